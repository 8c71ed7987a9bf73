"""Deduplication of a corpus: fingerprints, groups, the document that is kept of each group, and the copy of kept rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arguments import check_choice, check_flag, check_number
from fpstore.base.arrays import HALF_BITS, distinct_places
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.design.families import check_radius
from fpstore.errors import InputError, counted, show
from fpstore.hashing.bands import Bands, can_have_bands, minhash_in, planned_bands
from fpstore.hashing.base import USUAL_BITS, Fingerprinter
from fpstore.hashing.documents import DocumentFiles
from fpstore.hashing.fields import is_weighted, maker_of_columns
from fpstore.hashing.html import extractor_of, of_pages
from fpstore.hashing.minhash import USUAL_JACCARD, USUAL_RECALL
from fpstore.hashing.registry import from_description, text_fingerprinter
from fpstore.io.digits import check_signed
from fpstore.io.source import Projection, RowSource
from fpstore.jobs import GROUPINGS, KEEP_RULES, SEARCHES, UNKNOWN
from fpstore.jobs.bands import connected_by_bands
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity, checkpoint_in
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.grouping import Grouping, Members, Numbers, grouped, members_of, ranks_of
from fpstore.jobs.joining import connected
from fpstore.jobs.outputs import Listing, Outputs, check_outside
from fpstore.jobs.pairs import join_design
from fpstore.jobs.reference import PART, NearReference, Reference, Similar, near_reference, side_of
from fpstore.jobs.removed import Removed
from fpstore.jobs.verified import SECOND, TextSets, verified
from fpstore.query.names import HeldIds, Names, names_of

OpenCheckpoint = Callable[[Path | None, Callable[[], JobIdentity]], AbstractContextManager[Checkpoint | None]]
EXACT_ROWS = 1 << 20  # of which all are compared, unless a caller says how to search
BANDS_RECALL = 0.995
DEDUP_METHOD = "minhash"  # unless a caller names another
PATHS_TEXT, PATHS_ID = "text", "id"  # where each file is a document


class DedupJob(NamedTuple):
    """How duplicates are looked for: by columns of texts or of fingerprints, and what makes the fingerprints of texts.

    ``unknown`` says what becomes of a row without a text, a fingerprint or an id, which is not compared. ``least_similarity`` is
    a bound: a row is removed if its Jaccard similarity to the kept row is at least this. None: fingerprints decide. ``search`` is
    one of SEARCHES; ``jaccard`` is the similarity at which pairs are to be found, None without MinHash.
    """

    projection: Projection
    grouping: Grouping
    unknown: str
    fingerprinter: Fingerprinter[Any] | None
    least_similarity: float | None = None
    search: str = "exact"
    jaccard: float | None = None
    fixed_radius: bool = False
    bands: Bands | None = None

    def planned(self, corpus: RowSource) -> DedupJob:
        """Return the job with the bands that are searched, if that is asked for, or better for as many rows as a corpus has.

        The radius leaves enough of the recall to the bands, unless it is fixed.
        """
        if self.jaccard is None or self.search == "exact" or (self.search == "auto" and not self._has_many(corpus)):
            return self
        bands, minhash = planned_bands(self.jaccard, BANDS_RECALL), minhash_in(self.fingerprinter)
        assert minhash is not None
        if bands is None:
            if self.search == "auto":
                return self
            raise InputError(f"no bands find pairs of similarity {self.jaccard:.3g}: leave search='bands' (--search bands) out")
        if self.fixed_radius:
            return self._replace(bands=bands)
        radius = minhash.radius(self.jaccard, USUAL_RECALL / bands.recall(self.jaccard))
        return self._replace(bands=bands, grouping=self.grouping._replace(radius=radius))

    def _has_many(self, corpus: RowSource) -> bool:
        """Whether a corpus has more rows than are compared exactly, as far as its first rows tell."""
        if isinstance(corpus, DocumentFiles):
            return len(corpus.paths) > EXACT_ROWS
        if corpus.rows is not None or corpus.bytes_total is None:
            return (corpus.rows or 0) > EXACT_ROWS
        batches = corpus.batches(self.projection)
        first = next(batches, None)
        return first is not None and len(first.flags) * corpus.bytes_total > EXACT_ROWS * max(corpus.bytes_done, 1)

    @property
    def recall(self) -> float | None:
        """The share of the pairs of similarity ``jaccard`` that is found; None without MinHash."""
        minhash = minhash_in(self.fingerprinter)
        if self.jaccard is None or minhash is None:
            return None
        shared = 1 if self.bands is None else self.bands.recall(self.jaccard)
        return shared * minhash.recall(self.jaccard, self.grouping.radius)

    def identity(self, corpus: RowSource, reference: Reference | None = None) -> JobIdentity:
        """Return the facts that decide about the duplicates of a corpus."""
        projection = {**asdict(self.projection), "width": self.projection.width.bits}
        maker = {} if self.fingerprinter is None else {"fingerprinter": self.fingerprinter.describe()}
        files = {f"file {number}": state for number, state in enumerate(corpus.states(), 1)}
        asked = {**projection, **self.grouping._asdict(), "unknown": self.unknown, "bands": self.bands}
        told = {} if reference is None else reference.identity()
        facts = {"job": "dedup", "encoding": corpus.encoding, "least_similarity": self.least_similarity}
        return {**facts, **asked, **maker, **files, **told}


class Deduplication(NamedTuple):
    """The result of :func:`fpstore.dedup`.

    Attributes
    ----------
    kept : table or ndarray of int64
        The rows that are kept: of a table of pyarrow, Polars or pandas another one; of files, the numbers of the rows, from 0
        in the first file on.
    clusters : Clusters
        Groups of near-duplicates, the document that is kept first. Ids come from the column of ids, or else are row numbers.
    not_compared : int
        Rows that were not compared, because they have no text, no fingerprint or no id.
    removed : Removed
        The rows that are not kept, each with the row that is kept in its place, and their distance; ``to_arrow`` makes a table.
    """

    kept: Any
    clusters: Clusters
    not_compared: int
    removed: Removed

    def __repr__(self) -> str:
        kept = f"{len(self.kept):,} of {counted(self.clusters.documents, 'document')} kept"
        return f"<fpstore.Deduplication: {kept}, {counted(len(self.clusters), 'cluster')}, {self.not_compared:,} not compared>"


class Likeness(NamedTuple):
    """What makes two documents near-duplicates; None stands for a default that depends on the rest.

    ``method`` names the fingerprinter of texts. ``threshold`` is a Jaccard similarity, from which the radius follows.
    """

    radius: int | None = None
    width: int | None = None
    method: str | None = None
    threshold: float | None = None
    group: str | None = None
    keep: str = "first"
    verify: bool = False
    search: str = "auto"

    def maker(self, text: Any) -> Fingerprinter[Any]:
        """Return the fingerprinter of the method, for columns of texts."""
        width = {} if self.width is None else {"width": self.width}
        return text_fingerprinter(DEDUP_METHOD if self.method is None else self.method, is_weighted(text), **width)

    def grouping(self, maker: Fingerprinter[Any] | None, width: Width) -> Grouping:
        """Return the radius and the groups that are wanted; InputError for a wrong value."""
        minhash = minhash_in(maker)
        if check_flag(self.verify, "verify") and self.group == "connected":
            raise InputError("verify (--verify) makes groups without chains: leave group='connected' (--group connected) out")
        if self.threshold is not None and not self.verify:
            if minhash is None:
                raise InputError("threshold (--threshold) is a Jaccard similarity, for MinHash or verify: give radius (--radius)")
            if self.radius is not None:
                raise InputError("give threshold (--threshold) or radius (--radius), not both: one follows from the other")
        if self.radius is not None:
            radius = self.radius
        elif self.threshold is not None and minhash is not None:
            radius = minhash.radius(check_number(self.threshold, 0, 1, "threshold"))
        else:
            radius = USUAL_BITS * width.bits // WORD_BITS if maker is None else maker.usual_radius
        usual = "connected" if maker is None else "greedy" if self.verify else maker.usual_group
        check_radius(radius, width.bits)
        group = check_choice(usual if self.group is None else self.group, GROUPINGS, "group")
        return Grouping(radius, group, check_choice(self.keep, KEEP_RULES, "keep"))

    def jaccard(self, maker: Fingerprinter[Any] | None, radius: int) -> float | None:
        """Return the similarity at which USUAL_RECALL of the pairs are found; None without MinHash, of which bands need one."""
        minhash = minhash_in(maker)
        if check_choice(self.search, SEARCHES, "search") == "bands" and not can_have_bands(maker):
            raise InputError("search='bands' (--search bands) is for texts, and MinHash of 64 bits or more")
        if minhash is None or self.radius is None:
            return None if minhash is None else USUAL_JACCARD if self.threshold is None else self.threshold
        percent = (jaccard for jaccard in range(101) if minhash.recall(jaccard / 100, radius) >= USUAL_RECALL)
        return next(percent, 100) / 100


def dedup_job(
    how: Projection, text: Any, fingerprint: str | None, likeness: Likeness, unknown: str,
    fingerprinter: Fingerprinter[Any] | None, html: bool | str, reference: Reference | None = None,
) -> DedupJob:  # fmt: skip
    """Return the job that the arguments of :func:`fpstore.dedup` ask for; InputError if one is wrong."""
    columns = text
    if reference is not None and reference.store is not None:
        likeness, fingerprinter = _like_the_store(reference.store, likeness, text, fingerprinter)
    if likeness.width is not None:
        how = replace(how, width=check_width(likeness.width))
    if fingerprinter is not None and likeness.method is not None:
        raise InputError("a fingerprinter is a method: leave method out", got=likeness.method)
    if text is not None and text is not False:
        fingerprinter = likeness.maker(text) if fingerprinter is None else fingerprinter
        if text is not True:
            fingerprinter, columns = maker_of_columns(fingerprinter, text)
    projection = projection_of(how, columns, fingerprint)
    if fingerprinter is not None:
        if not isinstance(fingerprinter, Fingerprinter) or fingerprinter.items not in ("texts", "rows"):
            raise InputError(f"fingerprinter must be one of texts, such as MinHash(), got {type(fingerprinter).__name__}")
        if projection.text is None:
            raise InputError("a fingerprinter is for texts, and the corpus has fingerprints")
        if isinstance(projection.text, tuple) != (fingerprinter.items == "rows"):
            raise InputError("Fields is for columns of texts: name them, as in text={'title': 4, 'text': 1}", got=projection.text)
        if likeness.width not in (None, fingerprinter.width):
            message = f"fingerprinter: it makes {fingerprinter.width} bits, not width={likeness.width}: leave width out"
            raise InputError(message, expected=fingerprinter.width, got=likeness.width)
        fingerprinter = of_pages(fingerprinter, html)
        projection = replace(projection, width=Width(fingerprinter.width))
    elif likeness.method is not None:
        raise InputError("method (--method) is for texts, and the corpus has fingerprints")
    elif extractor_of(html) is not None:
        raise InputError("html=True (--html) is for texts, and the corpus has fingerprints")
    grouping = likeness.grouping(fingerprinter, projection.width)
    check_choice(unknown, UNKNOWN, "unknown")
    if (grouping.keep == "highest") != (projection.score is not None):
        raise InputError("keep='highest' (--keep highest) needs score= (--score-field), and the other way round")
    if grouping.keep == "smallest" and projection.id is None:
        raise InputError("keep='smallest' (--keep smallest) needs a column of ids (--id-field)")
    least = None
    if likeness.verify:
        if fingerprinter is None:
            raise InputError("verify (--verify) compares texts, and the corpus has fingerprints")
        fingerprinter.feature_sets([])  # an error comes before the work
        least = USUAL_JACCARD if likeness.threshold is None else check_number(likeness.threshold, 0, 1, "threshold")
    jaccard = likeness.jaccard(fingerprinter, grouping.radius)
    return DedupJob(projection, grouping, unknown, fingerprinter, least, likeness.search, jaccard, likeness.radius is not None)


def _like_the_store(
    store: Any, likeness: Likeness, text: Any, fingerprinter: Fingerprinter[Any] | None
) -> tuple[Likeness, Fingerprinter[Any] | None]:
    """Return what is not asked for as the store of a reference has it: radius, width, and the fingerprinter of texts."""
    if likeness.radius is None and likeness.threshold is None:
        likeness = likeness._replace(radius=store.radius)
    if text in (None, False):
        return likeness._replace(width=store.width if likeness.width is None else likeness.width), fingerprinter
    if (likeness.method, likeness.width, fingerprinter) == (None, None, None) and store.fingerprinter is not None:
        fingerprinter = from_description(store.fingerprinter)
    return likeness, fingerprinter


def projection_of(how: Projection, text: str | tuple[str, ...] | bool | None, fingerprint: str | None) -> Projection:
    """Return the columns to read: some of texts, True where files are texts, or one of fingerprints."""
    if (text in (None, False)) == (fingerprint is None):
        raise InputError(
            "name either the column of texts (text=, --text-field) or the column of fingerprints (fingerprint=, "
            "--fingerprint-field); text=True (--text) makes a document of each file"
        )
    if check_signed(how.signed, how.width) and fingerprint is None:
        raise InputError("signed=True (--signed) is for a column of fingerprints")
    if check_flag(how.decimal, "decimal") and fingerprint is None:
        raise InputError("decimal=True (--decimal) is for a column of fingerprints")
    columns = None if text is True or isinstance(text, tuple) else text or None
    for what, name in {"text": columns, "fingerprint": fingerprint, "id": how.id, "score": how.score}.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(f"{what} must be the name of a column, got {show(name)}", got=name)
    if text is True:
        if how.id is not None or how.score is not None:
            raise InputError("files that are texts have no columns: their ids are their paths")
        return replace(how, text=PATHS_TEXT, id=PATHS_ID)
    return replace(how, text=text or None, fingerprint=fingerprint)


def deduplicate(
    corpus: RowSource, job: DedupJob, resources: Resources, output: str | os.PathLike[str] | None, overwrite: bool,
    folder: Path | None, *, listings: Sequence[Listing] = (), open_checkpoint: OpenCheckpoint = checkpoint_in,
    reference: Reference | None = None,
) -> Deduplication:  # fmt: skip
    """Find the duplicates of a corpus, copy the rows that are kept, and list what else is asked for.

    ``kept`` of the result has a flag for each row. What a reference adds is added last: it is not there if anything else fails.
    An error of a path comes before the work. ``folder`` keeps what is done, to resume the job; ``open_checkpoint`` returns
    the checkpoint in it.
    """
    if folder is not None:
        check_outside(corpus, folder)
    outputs = Outputs(corpus, output, listings, overwrite, folder)
    target = outputs.target
    if folder is not None and target is not None and folder.resolve().is_relative_to(target.resolve()):
        raise InputError(f"{folder}: is the output, or in it: name a folder beside it for resume=", path=folder)
    if reference is not None:
        check_reference(reference, corpus, job)
    with open_checkpoint(folder, lambda: job.identity(corpus, reference)) as checkpoint, ExitStack() as stack:
        outputs.open_lists(stack)
        documents, found = find_duplicates(corpus, job, resources, checkpoint, reference)
        if reference is None or not reference.adds:
            outputs.write(found, found.kept, resources, checkpoint)
            return found
        assert documents.ids is not None
        places = np.flatnonzero(found.kept[documents.known])
        ids = names_of(documents.ids, places.astype(np.uint64))
        reference.check_ids(ids)
        outputs.write(found, found.kept, resources, checkpoint)
        made = None if job.fingerprinter is None else job.fingerprinter.describe()
        reference.add(documents.fingerprints[places], ids, job.projection.width, job.grouping.radius, made)
    return found


def check_reference(reference: Reference, corpus: RowSource, job: DedupJob) -> None:
    """Raise InputError for a reference that cannot be compared with a corpus, or to which its rows cannot be added."""
    path, made = reference.path, None if job.fingerprinter is None else job.fingerprinter.describe()
    if reference.corpus is not None and set(reference.corpus.paths) & set(corpus.paths):
        raise InputError(f"{path}: is an input too: a reference (against=, --against) is another corpus", path=path)
    if reference.adds and job.projection.id is None:
        raise InputError("add=True (--add) stores the ids of rows: name their column with id= (--id-field)")
    if reference.adds and reference.corpus is not None:
        raise InputError(f"{path}: is no store: add=True (--add) inserts into a store", path=path)
    if reference.corpus is not None:
        return
    if job.least_similarity is not None:
        raise InputError(f"{path}: a store has no texts to verify with: leave verify (--verify) out, or name files", path=path)
    if reference.store is None:
        return
    if reference.store.width != job.projection.width.bits:
        message = f"{path}: holds {reference.store.width} bits, and the corpus has fingerprints of {job.projection.width.bits}"
        raise InputError(message, expected=reference.store.width, got=job.projection.width.bits)
    theirs = reference.store.fingerprinter
    if made is not None and theirs != made:
        how = "does not know how its fingerprints were made" if theirs is None else f"has fingerprints of {theirs['name']}"
        message = f"{path}: {how} with other parameters than the corpus: leave method, width and others out"
        raise InputError(message, expected=theirs, got=made)


def find_duplicates(
    corpus: RowSource, job: DedupJob, resources: Resources, checkpoint: Checkpoint | None = None,
    reference: Reference | None = None,
) -> tuple[ComparedRows, Deduplication]:  # fmt: skip
    """Return the duplicates of a corpus, with a flag for each row; a checkpoint has the fingerprints, and links of duplicates."""
    documents = compared_rows(
        corpus, job.projection, job.fingerprinter, resources, job.unknown == "refuse", checkpoint, job.bands
    )
    near = None if reference is None else _near(reference, corpus, documents, job, resources, checkpoint)
    members = _grouped(corpus, job, documents, near, resources, checkpoint)
    rows = np.flatnonzero(documents.known)
    flags = np.full(len(documents.known), job.unknown == "keep")
    flags[rows] = True
    members_at = rows[members.documents.view(np.intp)]
    flags[members_at] = False
    flags[members_at[members.lims[:-1]]] = True
    if near is not None:
        flags[rows[near.places]] = False
    names: Names = HeldIds(rows.view(np.uint64)) if documents.ids is None else documents.ids
    removed = Removed(members, rows, documents.fingerprints, names, near)
    clusters = Clusters(members.lims, names, members.documents, len(flags))
    return documents, Deduplication(flags, clusters, len(flags) - len(rows), removed)


def _grouped(
    corpus: RowSource, job: DedupJob, documents: ComparedRows, near: NearReference | None, resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:  # fmt: skip
    """Return the groups of the documents that are not near a reference, those that are kept first."""
    members = _connected(job, documents, near, resources, checkpoint)

    def rows() -> Words:
        return documents.fingerprints[members.documents.view(np.intp)]

    def ids_of(wanted: Words) -> Words | list[str]:
        return wanted if documents.ids is None else names_of(documents.ids, wanted)

    if job.least_similarity is None:
        return grouped(members, job.grouping, rows, ids_of, documents.scores)
    ranks = ranks_of(members, job.grouping.keep, rows, ids_of, documents.scores)
    at = np.flatnonzero(documents.known)
    similar = _similarities([(corpus, np.sort(at[members.documents.view(np.intp)]))], job, resources)

    def alike(a: Words, b: Words) -> Flags:
        return similar(at[a.view(np.intp)], at[b.view(np.intp)])

    return verified(members, ranks, rows(), job.grouping.radius, alike)


def _connected(
    job: DedupJob, documents: ComparedRows, near: NearReference | None, resources: Resources, checkpoint: Checkpoint | None
) -> Members:
    """Return the groups of documents that pairs within the radius connect."""
    resources.report("grouping", 0)
    apart = np.ones(len(documents.fingerprints), bool)
    if near is not None:
        apart[near.places] = False
    numbers, radius, width = np.flatnonzero(apart), job.grouping.radius, job.projection.width
    fingerprints, places = distinct_places(documents.fingerprints if near is None else documents.fingerprints[apart])
    sets: Numbers
    if documents.bands is None:
        sets = connected(fingerprints, join_design(fingerprints, radius, width), resources, checkpoint)
    else:
        sets = connected_by_bands(fingerprints, places, numbers, documents.bands, radius, width, resources)
    resources.report("grouping", 0)
    short: Numbers = numbers.astype(np.uint32) if len(apart) <= 1 << HALF_BITS else numbers.view(np.uint64)
    return members_of(sets[places], short)[0]


def _near(
    reference: Reference, corpus: RowSource, documents: ComparedRows, job: DedupJob, resources: Resources,
    checkpoint: Checkpoint | None,
) -> NearReference:  # fmt: skip
    """Return the documents that are near a reference, as it was when a job began that is resumed."""
    if checkpoint is not None and checkpoint.has(PART):
        return NearReference.saved(checkpoint)
    width, similar, side = job.projection.width, None, None
    if reference.corpus is not None:
        columns = replace(job.projection, score=None)
        theirs = compared_rows(reference.corpus, columns, job.fingerprinter, resources, False, None)
        side = side_of(theirs, width)
        if job.least_similarity is not None:
            similar = partial(_between, corpus, documents, reference.corpus, theirs, job, resources)
    elif reference.store is not None:
        side = reference.store._snapshot()
    if side is None:
        near = NearReference(np.empty(0, np.intp), np.empty(0, np.uint64), np.empty(0, np.uint16))
    else:
        near = near_reference(side, documents.fingerprints, job.grouping.radius, width, resources, similar)
    if checkpoint is not None:
        near.save(checkpoint)
    return near


def _between(
    corpus: RowSource, documents: ComparedRows, other: RowSource, theirs: ComparedRows, job: DedupJob, resources: Resources,
    some: npt.NDArray[np.intp], others: Words,
) -> Similar:  # fmt: skip
    """Return a function that compares the texts of some documents with those of some of a reference, by their places."""
    rows, other_rows = np.flatnonzero(documents.known), np.flatnonzero(theirs.known)
    read = [(corpus, rows[some]), (other, other_rows[others.view(np.intp)])]
    similar = _similarities(read, job, resources)
    return lambda a, b: similar(rows[a], other_rows[b] + SECOND)


def _similarities(corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]], job: DedupJob, resources: Resources) -> Similar:
    """Return a function that compares rows of corpora exactly, whose texts are read again."""
    assert job.fingerprinter is not None
    assert job.least_similarity is not None
    least = job.least_similarity
    for corpus, _ in corpora:
        if isinstance(corpus, DocumentFiles):
            corpus.silence()
    texts = TextSets(corpora, job.projection, job.fingerprinter, resources)
    resources.report("verifying", len(corpora[0][1]))
    return lambda a, b: texts.similarities(a, b) >= least
