"""Deduplication of a corpus: fingerprints, groups, the choice of kept rows, and their copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags
from fpstore.base.arguments import printable
from fpstore.base.arrays import HALF_BITS, distinct_places
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.errors import InputError, StoreExistsError, plural
from fpstore.io.parquet import TableRows
from fpstore.io.shards import ShardNames
from fpstore.io.source import RowSource
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.annotations import Annotation, Annotations
from fpstore.jobs.bands import connect_by_bands
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.deciding import Decision, decide_by_fingerprints, decide_by_texts, kept_flags
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.excerpts import TextReader, read_excerpts
from fpstore.jobs.grouping import (
    IdReader,
    Members,
    Numbers,
    members_in_sets,
)
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.keys import join_keys
from fpstore.jobs.near_reference import (
    check_reference,
    check_saved,
    find_near_reference,
    split_reference,
)
from fpstore.jobs.outputs import Listing, Outputs, check_outside
from fpstore.jobs.overlaps import connect_by_overlaps
from fpstore.jobs.pairs import join_design
from fpstore.jobs.reference import (
    NearReference,
    Reference,
    id_names,
)
from fpstore.jobs.removed import Removed
from fpstore.jobs.sources import Sources, loss_error
from fpstore.jobs.variants import RowVariants
from fpstore.jobs.within import Within
from fpstore.query.id_lookup import ids_at
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
        The rows that are not kept, each with the row that is kept in its place, and how much they
        have in common; ``to_arrow`` makes a table.
    near : int
        Rows that are kept although a row has much of their text, but not enough: from 0.8 of the
        containment on that the rule asks for. 0 where fingerprints decide.
    pages : int
        Rows that look like pages of HTML, and were compared by their texts without tags.
    sources : Sources or None
        The rows of each source, and how many of them go; None without a column of sources.
    annotated : table or None
        All rows of a table with new columns, if the call asked for them with `annotate`; None for
        files.
    """

    kept: Any
    clusters: Clusters
    not_compared: int
    removed: Removed
    near: int = 0
    pages: int = 0
    sources: Sources | None = None
    annotated: Any = None

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
    if job.annotation is not None:
        _check_annotation(job, job.annotation, corpus, outputs)
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
            check_saved(checkpoint, reference, target)
        documents, result = find_duplicates(corpus, job, resources, checkpoint, reference, resumed)
        if job.excerpts_of is not None:
            reader = TextReader(replace(job.projection, score=None), job.fingerprinter, resources)
            others = None if reference is None else reference.corpus
            pairs = result.removed.pairs
            excerpts = read_excerpts(pairs, reader, job.excerpts_of, corpus, others)
            result = result._replace(removed=result.removed.with_excerpts(excerpts))
        if job.most_removed is not None and result.sources is not None:
            error = loss_error(result.sources, job.most_removed)
            if error is not None:
                outputs.write_lists(result, resources, checkpoint)
                raise error
        if reference is None or not reference.adds:
            outputs.write(result, result.kept, resources, checkpoint, result.annotated)
            return result
        assert documents.ids is not None
        places = np.flatnonzero(result.kept[documents.is_compared])
        ids = reference.ids_to_add(ids_at(documents.ids, places.astype(np.uint64)), corpus.typed)
        near = NearReference.saved(checkpoint) if resumed and checkpoint is not None else None
        if near is not None:
            reference.check_began(documents.fingerprints[places], near)
        outputs.write(result, result.kept, resources, checkpoint, result.annotated)
        description = None if job.fingerprinter is None else job.fingerprinter.describe()
        reference.add(
            documents.fingerprints[places],
            ids,
            job.projection.width,
            job.stored_radius,
            description,
        )
    return result


class ChosenRows(NamedTuple):
    """The rows that a user has chosen; ``kept`` has a flag for each row, as in `Deduplication`."""

    kept: Flags


def copy_chosen(
    corpus: RowSource,
    flags: Flags,
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    listings: Sequence[Listing],
) -> None:
    """Copy the rows that a user has chosen, and write lists, whose rows take `ChosenRows`."""
    outputs = Outputs(corpus, output, listings, overwrite)
    with ExitStack() as stack:
        outputs.open_lists(stack)
        outputs.write(ChosenRows(flags), flags, resources)


def _check_annotation(
    job: DedupJob, annotation: Annotation, corpus: RowSource, outputs: Outputs
) -> None:
    """Raise InputError for new columns that the output cannot have, or if there is none."""
    by_texts = job.rule is not None
    outputs.check_new_columns(annotation.columns(by_texts))
    if outputs.target is None and not is_table(corpus):
        name = "annotate" if annotation.annotate else "count_column"
        raise InputError(f"{keyword(name)} writes new columns: name an output")
    if outputs.target is not None and annotation.annotate and corpus.suffix == ".tsv":
        corpus.forbid_in_ids(corpus.forbidden_in_ids + forbidden_characters("tsv"))


def is_table(corpus: RowSource) -> bool:
    """Whether the rows of a corpus are a table in memory."""
    return isinstance(corpus, TableRows) and not corpus.paths


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
    documents = compared_rows(corpus, job.columns, resources, checkpoint)
    near = None
    if reference is not None and (job.rule is None or reference.has_stores):
        near = find_near_reference(reference, documents, job, resources, checkpoint, resumed)
        # an error comes before the corpus is compared with itself
        near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    searched = None
    if near is not None:
        searched = np.ones(len(documents.rows), bool)
        searched[near.places] = False
    if job.rule is None:
        variants = None
        if documents.variants is not None:
            variants = RowVariants(documents.variants, job.projection.width)
            sets = variants.connect(job.grouping.radius, resources)
            connected = members_in_sets(sets)[0]
        else:
            connected = _connect_by_fingerprints(job, documents, searched, resources, checkpoint)
        decision = decide_by_fingerprints(
            connected,
            documents.fingerprints,
            job.grouping,
            _id_reader(documents),
            documents.scores,
            variants,
        )
    else:
        other = None if reference is None else reference.corpus
        decision, in_corpus = _decide_by_texts(documents, searched, job, resources, other)
        if in_corpus is not None and reference is not None:
            near = in_corpus if near is None else NearReference.joined([near, in_corpus])
            near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    members, evidence = decision.members, decision.evidence
    rows = documents.rows
    removed_rows = rows[members.documents[members.is_removed].view(np.intp)]
    near_rows = rows[:0] if near is None else rows[near.places]
    flags = kept_flags(documents.is_compared, job.unknown, [removed_rows, near_rows])
    names = id_names(documents)
    removed = Removed(members, evidence, rows, names, near, ShardNames.of_corpus(corpus))
    clusters = Clusters(members.lims, names, members.documents, len(flags), evidence)
    not_compared = len(flags) - len(rows)
    sources = (
        None
        if job.source_field is None
        else Sources.of_column(documents.labels[job.source_field], flags)
    )
    annotated = (
        None
        if job.annotation is None
        else Annotations(job.annotation, documents, members, removed, flags, job.projection.id)
    )
    return documents, Deduplication(
        flags, clusters, not_compared, removed, decision.near, documents.pages, sources, annotated
    )


def _id_reader(documents: ComparedRows) -> IdReader:
    ids = documents.ids
    return lambda numbers: numbers if ids is None else ids_at(ids, numbers)


def _decide_by_texts(
    documents: ComparedRows,
    searched: Flags | None,
    job: DedupJob,
    resources: Resources,
    reference: RowSource | None,
) -> tuple[Decision, NearReference | None]:
    """Decide documents by their texts; return those that go for one of another corpus, too.

    The documents of that corpus stay. ``searched`` flags the documents that are compared; None:
    all.
    """
    assert job.rule is not None
    assert documents.texts is not None
    texts, keys, parts = documents.texts, documents.keys, [documents]
    own = len(texts)
    if reference is not None:
        columns = job.reference_columns
        codes = {name: documents.labels[name].names for name in columns.projection.labels}
        other = compared_rows(reference, columns, resources, label_codes=codes)
        assert other.texts is not None
        keys = join_keys(keys, other.keys, own)
        texts = texts.followed_by(other.texts, resources.memory)
        if searched is not None:
            searched = np.append(searched, np.ones(len(other.texts), bool))
        parts.append(other)
    within = None
    if job.within is not None:
        columns_of_parts = [part.labels[job.within] for part in parts]
        within = Within.of_columns(columns_of_parts, [part.rows for part in parts])
        values = within.codes.astype(np.uint64)
        keys = {kind: column.inside(values) for kind, column in keys.items()}
    sets = connect_by_overlaps(texts, job.rule, resources, searched, keys, within)
    resources.report("deciding", 0)
    connected = members_in_sets(sets)[0]
    decision = decide_by_texts(
        connected, texts, keys, job, _id_reader(documents), documents.scores, own
    )
    if reference is None:
        return decision, None
    return split_reference(decision, parts[1], reference, own)


def _connect_by_fingerprints(
    job: DedupJob,
    documents: ComparedRows,
    searched: Flags | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the connected groups of the documents that ``searched`` flags; None: of all."""
    resources.report("grouping", 0)
    radius, width = job.grouping.radius, job.projection.width
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
