"""Deduplication of a corpus: fingerprints, groups, the choice of kept rows, and their copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import HALF_BITS, distinct_places, list_numbers
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.base.width import distances_between
from fpstore.errors import InputError, StoreExistsError, plural
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.source import RowSource
from fpstore.jobs.bands import connect_by_bands
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.grouping import (
    IdReader,
    Members,
    Numbers,
    group_members,
    members_in_sets,
    regroup,
    representative_ranks,
    rows_at,
)
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.outputs import Listing, Outputs, check_outside, share_a_file
from fpstore.jobs.pairs import join_design
from fpstore.jobs.reference import STAGE as REFERENCE_STAGE
from fpstore.jobs.reference import NearReference, Reference, join_side, near_candidates
from fpstore.jobs.removed import Removed
from fpstore.jobs.verified import MAX_COMPARED_ROWS, SECOND, TextSets, text_sets
from fpstore.query.id_lookup import IdLookup, InMemoryIds, ids_at
from fpstore.work.checkpoint import Checkpoint, JobIdentity, is_output, open_checkpoint_in

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
        counts = f"{len(self.kept):,} of {plural(self.clusters.documents, 'document')} kept"
        return (
            f"<fpstore.Deduplication: {counts}, {plural(len(self.clusters), 'cluster')}, "
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
    open_checkpoint: OpenCheckpoint = open_checkpoint_in,
    reference: Reference | None = None,
) -> Deduplication:
    """Find the duplicates of a corpus, copy the kept rows, and write lists.

    ``kept`` of the result has a flag for each row. Rows are added to a reference last: not if
    anything else fails. An error of a path comes before the work. ``folder`` keeps finished work,
    to resume the job; ``open_checkpoint`` returns the checkpoint in it.
    """
    if folder is not None:
        check_outside(corpus, folder)
    sources = [] if reference is None or reference.corpus is None else [reference.corpus]
    outputs = Outputs(corpus, output, listings, overwrite, folder, sources)
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
        adds_again = reference.adds and reference.store is not None and overwrite
        if adds_again and target is not None and target.exists() and not is_output(folder, target):
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
        if reference is not None and reference.adds and checkpoint is not None and resumed:
            _check_saved(checkpoint, reference, target)
        documents, result = find_duplicates(corpus, job, resources, checkpoint, reference, resumed)
        if reference is None or not reference.adds:
            outputs.write(result, result.kept, resources, checkpoint)
            return result
        assert documents.ids is not None
        places = np.flatnonzero(result.kept[documents.is_compared])
        ids = reference.ids_to_add(ids_at(documents.ids, places.astype(np.uint64)), corpus.typed)
        near = NearReference.saved(checkpoint) if resumed and checkpoint is not None else None
        if near is not None:
            reference.check_began(documents.fingerprints[places], near)
        outputs.write(result, result.kept, resources, checkpoint)
        description = None if job.fingerprinter is None else job.fingerprinter.describe()
        reference.add(
            documents.fingerprints[places],
            ids,
            job.projection.width,
            job.stored_radius,
            description,
        )
    return result


def _check_saved(checkpoint: Checkpoint, reference: Reference, target: Path | None) -> None:
    """Refuse to go on if rows may have been added, and what was near the store before is lost.

    The rows would be near themselves.
    """
    written = target is not None or bool(checkpoint.numbers(REFERENCE_STAGE))
    if written and NearReference.saved(checkpoint) is None:
        raise InputError(
            f"{checkpoint.folder}: the rows that were near {reference.path} are damaged or gone, "
            "and rows of this job may be in the store: delete them there, then remove the output "
            "and this folder to start anew",
            path=checkpoint.folder,
        )


def check_reference(
    reference: Reference, corpus: RowSource, job: DedupJob, outputs: Sequence[Path]
) -> None:
    """Raise InputError for a reference that does not fit the corpus or cannot take its rows."""
    path = reference.path
    if reference.corpus is not None and share_a_file(corpus, reference.corpus):
        raise InputError(
            f"{path}: is an input too: a reference ({keyword('against')}) is another corpus",
            path=path,
        )
    if reference.adds and job.projection.id is None:
        raise InputError(
            f"{keyword('add', True)} stores the ids of rows: name their column with {keyword('id')}"
        )
    if reference.adds and reference.corpus is not None:
        raise InputError(f"{path}: is no store: {keyword('add', True)} inserts into one", path=path)
    if reference.corpus is None:
        check_store(path, reference.store, job, outputs)


def check_store(path: str, store: Any, job: DedupJob, outputs: Sequence[Path]) -> None:
    """Raise InputError for a store that cannot be the reference of a job.

    None is a store that the job will create.
    """
    description = None if job.fingerprinter is None else job.fingerprinter.describe()
    if job.least_similarity is not None:
        raise InputError(
            f"{path}: a store has no texts to verify with: leave {keyword('verify')} out, or name "
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
    stored = store.fingerprinter
    within = Path(path).resolve()
    for output in outputs:
        if output.resolve().is_relative_to(within):
            raise InputError(
                f"{printable(output)}: is in the store {printable(path)}: name a place outside",
                path=output,
            )
    if description is not None and stored != description:
        reason = (
            "does not know how its fingerprints were made"
            if stored is None
            else f"has fingerprints of {stored['name']}"
        )
        message = (
            f"{path}: {reason}, and this job would make others: leave out method, width and other "
            "options of fingerprints"
        )
        raise InputError(message, expected=stored, got=description)


def find_duplicates(
    corpus: RowSource,
    job: DedupJob,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
    reference: Reference | None = None,
    resumed: bool = False,
) -> tuple[ComparedRows, Deduplication]:
    """Return the duplicates of a corpus, with a flag for each row.

    A checkpoint has the fingerprints, and links of duplicates. If ``resumed``, the output is there,
    and the documents near the reference, as they were before it was written, are in the checkpoint.
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
        near = _find_near_reference(
            reference, corpus, documents, job, resources, checkpoint, resumed
        )
        # an error comes before the corpus is compared with itself
        near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    members = _group_documents(corpus, job, documents, near, resources, checkpoint)
    rows = documents.rows
    removed_rows = rows[members.documents[members.is_removed].view(np.intp)]
    near_rows = rows[:0] if near is None else rows[near.places]
    flags = kept_flags(documents.is_compared, job.unknown, [removed_rows, near_rows])
    names: IdLookup = InMemoryIds(rows.view(np.uint64)) if documents.ids is None else documents.ids
    from_kept = distances_from_kept(documents.fingerprints, members)
    removed = Removed(members, from_kept, rows, names, near)
    clusters = Clusters(members.lims, names, members.documents, len(flags), from_kept)
    return documents, Deduplication(flags, clusters, len(flags) - len(rows), removed)


def kept_flags(
    is_compared: Flags, unknown: str, removed: Iterable[npt.NDArray[np.integer]]
) -> Flags:
    """Return which rows are kept, from arrays of removed rows and the rule for unknown ones."""
    flags: Flags = is_compared | (unknown == "keep")
    for rows in removed:
        flags[rows] = False
    return flags


def distances_from_kept(fingerprints: Words, members: Members) -> npt.NDArray[np.uint16]:
    """Return the distance of each member from the first of its group."""
    distances = np.empty(len(members.documents), np.uint16)
    firsts = members.documents[members.lims[list_numbers(members.lims)]].view(np.intp)
    for start in range(0, len(distances), COMPARED_AT_ONCE):
        batch = slice(start, start + COMPARED_AT_ONCE)
        distances[batch] = distances_between(
            fingerprints[members.documents[batch].view(np.intp)], fingerprints[firsts[batch]]
        )
    return distances


def _group_documents(
    corpus: RowSource,
    job: DedupJob,
    documents: ComparedRows,
    near: NearReference | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the groups of documents that are not near a reference, the kept one first."""
    members = _connect_documents(job, documents, near, resources, checkpoint)

    def fetch_ids(numbers: Words) -> Words | list[str]:
        return numbers if documents.ids is None else ids_at(documents.ids, numbers)

    def read_texts() -> tuple[TextSets, npt.NDArray[np.intp]]:
        rows = np.sort(documents.rows[members.documents.view(np.intp)])
        return _reread_texts([(corpus, rows)], job, resources), documents.rows

    fingerprints, scores = documents.fingerprints, documents.scores
    return choose_groups(job, members, fingerprints, fetch_ids, scores, read_texts)


def choose_groups(
    job: DedupJob,
    members: Members,
    fingerprints: Words,
    fetch_ids: IdReader,
    scores: Words | None,
    read_texts: Callable[[], tuple[TextSets, npt.NDArray[np.intp]]],
) -> Members:
    """Return the groups by the rules of a job, from connected groups; the kept document is first.

    ``read_texts`` is called if texts are compared, for their sets and the row of each document.
    """

    def fetch_rows(span: slice) -> Words:
        return rows_at(fingerprints, members.documents[span])

    if job.least_similarity is None:
        return group_members(members, job.grouping, fetch_rows, fetch_ids, scores)
    radius, least = job.grouping.radius, job.least_similarity
    ranks = representative_ranks(members, job.grouping.keep, fetch_rows, fetch_ids, scores)
    texts, rows = read_texts()
    return regroup(
        members,
        fetch_rows,
        ranks,
        lambda piece, lims, documents: texts.representatives(
            piece, lims, rows[documents.view(np.intp)], radius, least
        ),
    )


def _connect_documents(
    job: DedupJob,
    documents: ComparedRows,
    near: NearReference | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the connected groups of documents that are not near a reference."""
    resources.report("grouping", 0)
    searched, radius, width = None, job.grouping.radius, job.projection.width
    if near is not None:
        searched = np.ones(len(documents.fingerprints), bool)
        searched[near.places] = False
    if documents.bands is not None:
        sets = connect_by_bands(
            documents.fingerprints, searched, documents.bands, radius, width, resources
        )
        resources.report("grouping", 0)
        return members_in_sets(sets)[0]
    fingerprints, places = distinct_places(
        documents.fingerprints if searched is None else documents.fingerprints[searched]
    )
    sets = connect_rows(
        fingerprints, join_design(fingerprints, radius, width), resources, checkpoint
    )
    resources.report("grouping", 0)
    if searched is None:
        return members_in_sets(sets[places])[0]
    searched_places = np.flatnonzero(searched)
    numbers: Numbers = (
        searched_places.astype(np.uint32)
        if len(searched) <= 1 << HALF_BITS
        else searched_places.view(np.uint64)
    )
    return members_in_sets(sets[places], numbers)[0]


def _find_near_reference(
    reference: Reference,
    corpus: RowSource,
    documents: ComparedRows,
    job: DedupJob,
    resources: Resources,
    checkpoint: Checkpoint | None,
    resumed: bool,
) -> NearReference:
    """Return the documents that are near a reference.

    A resumed job takes them from its checkpoint: files are as they were when the job began, but its
    own rows may be in the store.
    """
    if checkpoint is not None and (resumed or reference.corpus is not None):
        saved = NearReference.saved(checkpoint)
        if saved is not None:
            return saved
    near = NearReference(np.empty(0, np.intp), np.empty(0, np.uint64), np.empty(0, np.uint16))
    if reference.corpus is not None:
        near = _find_near_corpus(reference.corpus, corpus, documents, job, resources)
    elif reference.store is not None:
        near = find_near_store(reference.store, documents.fingerprints, job, resources)
    if checkpoint is not None:
        near.save(checkpoint, of_store=reference.store is not None)
    return near


def find_near_store(
    store: Any, fingerprints: Words, job: DedupJob, resources: Resources
) -> NearReference:
    """Return the fingerprints that are near a store."""
    side, radius = store.snapshot(), job.grouping.radius
    candidates = near_candidates(side, fingerprints, radius, job.projection.width, resources, 1)
    return NearReference.from_candidates(candidates, side)


def _find_near_corpus(
    other: RowSource,
    corpus: RowSource,
    documents: ComparedRows,
    job: DedupJob,
    resources: Resources,
) -> NearReference:
    """Return the documents near those of another corpus, and alike if texts are compared."""
    other_documents = compared_rows(
        other, replace(job.projection, score=None), job.fingerprinter, resources, False, None
    )
    side = join_side(other_documents, job.projection.width)
    most = 1 if job.least_similarity is None else MAX_COMPARED_ROWS
    candidates = near_candidates(
        side, documents.fingerprints, job.grouping.radius, job.projection.width, resources, most
    )
    if job.least_similarity is None:
        return NearReference.from_candidates(candidates, side)
    rows, other_rows = documents.rows, other_documents.rows
    compared = other_rows[np.unique(candidates.numbers).view(np.intp)]
    least = job.least_similarity
    corpora = [(corpus, rows[candidates.documents()]), (other, compared)]
    texts = _reread_texts(corpora, job, resources)

    def alike(a: Words, b: Words) -> Flags:
        return (
            texts.similarities(rows[a.view(np.intp)], other_rows[b.view(np.intp)] + SECOND) >= least
        )

    return NearReference.from_candidates(candidates, side, alike)


def _reread_texts(
    corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]], job: DedupJob, resources: Resources
) -> TextSets:
    """Read the texts of rows again, to compare them exactly."""
    assert job.fingerprinter is not None
    for corpus, _ in corpora:
        if isinstance(corpus, DocumentFiles):
            corpus.silence()
    (texts,) = text_sets(corpora, job.projection, [job.fingerprinter], resources)
    resources.report("verifying", len(corpora[0][1]))
    return texts
