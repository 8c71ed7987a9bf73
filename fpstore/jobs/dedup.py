"""Deduplication of a corpus.

Fingerprints, groups, the document that is kept of each group, and the copy of kept rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import HALF_BITS, distinct_places, lists_of
from fpstore.base.resources import Resources
from fpstore.base.width import distances_between
from fpstore.errors import InputError, StoreExistsError, counted
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.source import RowSource
from fpstore.jobs.bands import connected_by_bands
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity, checkpoint_in, is_output
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.grouping import (
    Members,
    Numbers,
    grouped,
    members_in_sets,
    regrouped,
    representative_ranks,
    rows_at,
)
from fpstore.jobs.joining import connected
from fpstore.jobs.outputs import Listing, Outputs, check_outside, share_a_file
from fpstore.jobs.pairs import join_design
from fpstore.jobs.reference import PART, NearReference, Reference, join_side, near_candidates
from fpstore.jobs.removed import Removed
from fpstore.jobs.verified import MOST_COMPARED, SECOND, TextSets, text_sets
from fpstore.query.names import HeldIds, Names, names_of

COMPARED_AT_ONCE = 1 << 18
OpenCheckpoint = Callable[
    [Path | None, Callable[[], JobIdentity]], AbstractContextManager[Checkpoint | None]
]


class Deduplication(NamedTuple):
    """The result of :func:`fpstore.dedup`.

    Attributes
    ----------
    kept : table or ndarray of int64
        The rows that are kept: of a table of pyarrow, Polars or pandas another one; of files, the
        numbers of the rows, from 0 in the first file on.
    clusters : Clusters
        Groups of near-duplicates, the document that is kept first. Ids come from the column of ids,
        or else are row numbers.
    not_compared : int
        Rows that were not compared, because their text is null or blank, or their fingerprint or id
        is null.
    removed : Removed
        The rows that are not kept, each with the row that is kept in its place, and their distance;
        ``to_arrow`` makes a table.
    """

    kept: Any
    clusters: Clusters
    not_compared: int
    removed: Removed

    def __repr__(self) -> str:
        kept = f"{len(self.kept):,} of {counted(self.clusters.documents, 'document')} kept"
        return (
            f"<fpstore.Deduplication: {kept}, {counted(len(self.clusters), 'cluster')}, "
            f"{self.not_compared:,} not compared>"
        )


def deduplicate(
    corpus: RowSource,
    job: DedupJob,
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    folder: Path | None,
    *,
    listings: Sequence[Listing] = (),
    open_checkpoint: OpenCheckpoint = checkpoint_in,
    reference: Reference | None = None,
) -> Deduplication:
    """Find the duplicates of a corpus, copy the rows that are kept, and list what else is asked for.

    ``kept`` of the result has a flag for each row. What a reference adds is added last: it is not
    there if anything else fails. An error of a path comes before the work. ``folder`` keeps what is
    done, to resume the job; ``open_checkpoint`` returns the checkpoint in it.
    """
    if folder is not None:
        check_outside(corpus, folder)
    beside = [] if reference is None or reference.corpus is None else [reference.corpus]
    outputs = Outputs(corpus, output, listings, overwrite, folder, beside)
    target = outputs.target
    if (
        folder is not None
        and target is not None
        and folder.resolve().is_relative_to(target.resolve())
    ):
        raise InputError(
            f"{folder}: is the output, or in it: name a folder beside it for resume=", path=folder
        )
    if reference is not None:
        check_reference(reference, corpus, job, outputs.paths)
        again = reference.adds and reference.store is not None and overwrite
        if again and target is not None and target.exists() and not is_output(folder, target):
            advice = "they would be near themselves: name another output, or remove this one"
            raise StoreExistsError(
                f"{printable(str(output))} exists, and its rows may be in the store: {advice}",
                path=target,
            )
    with (
        open_checkpoint(folder, lambda: job.identity(corpus, reference)) as checkpoint,
        ExitStack() as stack,
    ):
        outputs.open_lists(stack)
        resumed = target is None or is_output(folder, target)
        documents, found = find_duplicates(corpus, job, resources, checkpoint, reference, resumed)
        if reference is None or not reference.adds:
            outputs.write(found, found.kept, resources, checkpoint)
            return found
        assert documents.ids is not None
        places = np.flatnonzero(found.kept[documents.is_compared])
        ids = reference.ids_to_add(names_of(documents.ids, places.astype(np.uint64)), corpus.typed)
        if resumed and checkpoint is not None:
            reference.check_began(documents.fingerprints[places], NearReference.saved(checkpoint))
        outputs.write(found, found.kept, resources, checkpoint)
        made = None if job.fingerprinter is None else job.fingerprinter.describe()
        reference.add(
            documents.fingerprints[places], ids, job.projection.width, job.stored_radius, made
        )
    return found


def check_reference(
    reference: Reference, corpus: RowSource, job: DedupJob, outputs: Sequence[Path]
) -> None:
    """Raise InputError for a reference that cannot be compared with a corpus, or to which its rows cannot be added."""
    path = reference.path
    if reference.corpus is not None and share_a_file(corpus, reference.corpus):
        raise InputError(
            f"{path}: is an input too: a reference (against=, --against) is another corpus",
            path=path,
        )
    if reference.adds and job.projection.id is None:
        raise InputError(
            "add=True (--add) stores the ids of rows: name their column with id= (--id-field)"
        )
    if reference.adds and reference.corpus is not None:
        raise InputError(f"{path}: is no store: add=True (--add) inserts into a store", path=path)
    if reference.corpus is None:
        check_store(path, reference.store, job, outputs)


def check_store(path: str, store: Any, job: DedupJob, outputs: Sequence[Path]) -> None:
    """Raise InputError for a store that cannot be the reference of a job.

    None is one that will be made.
    """
    made = None if job.fingerprinter is None else job.fingerprinter.describe()
    if job.least_similarity is not None:
        raise InputError(
            f"{path}: a store has no texts to verify with: leave verify (--verify) out, or name "
            "files",
            path=path,
        )
    if store is None:
        return
    if store.width != job.projection.width.bits:
        message = (
            f"{path}: holds {store.width} bits, and the corpus has fingerprints of "
            f"{job.projection.width.bits}"
        )
        raise InputError(message, expected=store.width, got=job.projection.width.bits)
    theirs = store.fingerprinter
    within = Path(path).resolve()
    for one in outputs:
        if one.resolve().is_relative_to(within):
            raise InputError(
                f"{printable(one)}: is in the store {printable(path)}: name a place outside",
                path=one,
            )
    if made is not None and theirs != made:
        how = (
            "does not know how its fingerprints were made"
            if theirs is None
            else f"has fingerprints of {theirs['name']}"
        )
        message = (
            f"{path}: {how}, made in another way than is asked for: leave method, width and "
            "others out"
        )
        raise InputError(message, expected=theirs, got=made)


def find_duplicates(
    corpus: RowSource,
    job: DedupJob,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
    reference: Reference | None = None,
    resumed: bool = False,
) -> tuple[ComparedRows, Deduplication]:
    """Return the duplicates of a corpus, with a flag for each row.

    A checkpoint has the fingerprints, and links of duplicates.

    ``resumed``: the output is there, and what was near the reference before it was written is taken
    from the checkpoint.
    """
    documents = compared_rows(
        corpus,
        job.projection,
        job.fingerprinter,
        resources,
        job.unknown == "refuse",
        checkpoint,
        job.bands,
    )
    near = None
    if reference is not None:
        near = _near(reference, corpus, documents, job, resources, checkpoint, resumed)
        # before the corpus is compared with itself
        near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    members = _grouped(corpus, job, documents, near, resources, checkpoint)
    rows = documents.rows
    flags = np.full(len(documents.is_compared), job.unknown == "keep")
    flags[rows] = True
    members_at = rows[members.documents.view(np.intp)]
    flags[members_at] = False
    flags[members_at[members.lims[:-1]]] = True
    if near is not None:
        flags[rows[near.places]] = False
    names: Names = HeldIds(rows.view(np.uint64)) if documents.ids is None else documents.ids
    from_kept = distances_from_kept(documents.fingerprints, members)
    removed = Removed(members, from_kept, rows, names, near)
    clusters = Clusters(members.lims, names, members.documents, len(flags), from_kept)
    return documents, Deduplication(flags, clusters, len(flags) - len(rows), removed)


def distances_from_kept(fingerprints: Words, members: Members) -> npt.NDArray[np.uint16]:
    """Return the distance of each member from the first of its group."""
    out = np.empty(len(members.documents), np.uint16)
    firsts = members.documents[members.lims[lists_of(members.lims)]].view(np.intp)
    for start in range(0, len(out), COMPARED_AT_ONCE):
        some = slice(start, start + COMPARED_AT_ONCE)
        out[some] = distances_between(
            fingerprints[members.documents[some].view(np.intp)], fingerprints[firsts[some]]
        )
    return out


def _grouped(
    corpus: RowSource,
    job: DedupJob,
    documents: ComparedRows,
    near: NearReference | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the groups of the documents that are not near a reference, those that are kept first."""
    members = _connected(job, documents, near, resources, checkpoint)

    def fetch_rows(here: slice) -> Words:
        return rows_at(documents.fingerprints, members.documents[here])

    def fetch_ids(wanted: Words) -> Words | list[str]:
        return wanted if documents.ids is None else names_of(documents.ids, wanted)

    if job.least_similarity is None:
        return grouped(members, job.grouping, fetch_rows, fetch_ids, documents.scores)
    ranks = representative_ranks(
        members, job.grouping.keep, fetch_rows, fetch_ids, documents.scores
    )
    at = documents.rows
    texts, least = (
        _texts_of([(corpus, np.sort(at[members.documents.view(np.intp)]))], job, resources),
        job.least_similarity,
    )

    def choose(rows: Words, lims: Words, some: Words) -> Words:
        return texts.representatives(rows, lims, at[some.view(np.intp)], job.grouping.radius, least)

    return regrouped(members, fetch_rows, ranks, choose)


def _connected(
    job: DedupJob,
    documents: ComparedRows,
    near: NearReference | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the groups of documents that pairs within the radius connect."""
    resources.report("grouping", 0)
    apart, radius, width = None, job.grouping.radius, job.projection.width
    if near is not None:
        apart = np.ones(len(documents.fingerprints), bool)
        apart[near.places] = False
    if documents.bands is not None:
        sets = connected_by_bands(
            documents.fingerprints, apart, documents.bands, radius, width, resources
        )
        resources.report("grouping", 0)
        return members_in_sets(sets)[0]
    fingerprints, places = distinct_places(
        documents.fingerprints if apart is None else documents.fingerprints[apart]
    )
    sets = connected(fingerprints, join_design(fingerprints, radius, width), resources, checkpoint)
    resources.report("grouping", 0)
    if apart is None:
        return members_in_sets(sets[places])[0]
    numbers = np.flatnonzero(apart)
    short: Numbers = (
        numbers.astype(np.uint32) if len(apart) <= 1 << HALF_BITS else numbers.view(np.uint64)
    )
    return members_in_sets(sets[places], short)[0]


def _near(
    reference: Reference,
    corpus: RowSource,
    documents: ComparedRows,
    job: DedupJob,
    resources: Resources,
    checkpoint: Checkpoint | None,
    resumed: bool,
) -> NearReference:
    """Return the documents that are near a reference.

    Of a job that is resumed, as it was before the output was written.

    Files are as they were when the job began.
    """
    if (
        checkpoint is not None
        and (resumed or reference.corpus is not None)
        and checkpoint.has(PART)
    ):
        return NearReference.saved(checkpoint)
    near = NearReference(np.empty(0, np.intp), np.empty(0, np.uint64), np.empty(0, np.uint16))
    if reference.corpus is not None:
        near = _near_corpus(reference.corpus, corpus, documents, job, resources)
    elif reference.store is not None:
        side = reference.store.snapshot()
        found = near_candidates(
            side, documents.fingerprints, job.grouping.radius, job.projection.width, resources, 1
        )
        near = NearReference.of(found, side)
    if checkpoint is not None:
        near.save(checkpoint, of_store=reference.store is not None)
    return near


def _near_corpus(
    other: RowSource,
    corpus: RowSource,
    documents: ComparedRows,
    job: DedupJob,
    resources: Resources,
) -> NearReference:
    """Return the documents that are near those of another corpus, and alike if texts are compared."""
    theirs = compared_rows(
        other, replace(job.projection, score=None), job.fingerprinter, resources, False, None
    )
    side = join_side(theirs, job.projection.width)
    most = 1 if job.least_similarity is None else MOST_COMPARED
    found = near_candidates(
        side, documents.fingerprints, job.grouping.radius, job.projection.width, resources, most
    )
    if job.least_similarity is None:
        return NearReference.of(found, side)
    rows, other_rows = documents.rows, theirs.rows
    compared = other_rows[np.unique(found.numbers).view(np.intp)]
    texts, least = (
        _texts_of([(corpus, rows[found.documents()]), (other, compared)], job, resources),
        job.least_similarity,
    )

    def alike(a: Words, b: Words) -> Flags:
        return (
            texts.similarities(rows[a.view(np.intp)], other_rows[b.view(np.intp)] + SECOND) >= least
        )

    return NearReference.of(found, side, alike)


def _texts_of(
    corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]], job: DedupJob, resources: Resources
) -> TextSets:
    """Return the texts of rows of corpora, which are read again, to compare them exactly."""
    assert job.fingerprinter is not None
    for corpus, _ in corpora:
        if isinstance(corpus, DocumentFiles):
            corpus.silence()
    (texts,) = text_sets(corpora, job.projection, [job.fingerprinter], resources)
    resources.report("verifying", len(corpora[0][1]))
    return texts
