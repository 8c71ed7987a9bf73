"""Deduplication of a corpus: fingerprints, groups, the choice of kept rows, and their copy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import HALF_BITS, distinct_places, list_lims, list_numbers
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.base.width import distances_between
from fpstore.errors import InputError, StoreExistsError, plural
from fpstore.hashing.plain_pages import PlainPages
from fpstore.hashing.wrapper import unwrap_minhash
from fpstore.io.parquet import TableRows
from fpstore.io.shards import ShardNames
from fpstore.io.source import RowSource
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.annotations import Annotation, Annotations
from fpstore.jobs.bands import connect_by_bands
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.evidence import Evidence, near_store, of_distances, of_texts, select
from fpstore.jobs.excerpts import TextReader, read_excerpts
from fpstore.jobs.grouping import (
    IdReader,
    Members,
    Numbers,
    group_members,
    members_in_sets,
    rank_documents,
    regroup,
    rows_at,
)
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.keys import KeySteps, join_keys
from fpstore.jobs.outputs import Listing, Outputs, check_outside, share_a_file
from fpstore.jobs.overlaps import connect_by_overlaps
from fpstore.jobs.pairs import join_design
from fpstore.jobs.reference import STAGE as REFERENCE_STAGE
from fpstore.jobs.reference import (
    NearReference,
    Reference,
    id_names,
    join_side,
    near_candidates,
)
from fpstore.jobs.removed import Removed
from fpstore.jobs.sources import Sources, loss_error
from fpstore.jobs.text_sets import Rule, TextSets
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
            _check_saved(checkpoint, reference, target)
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


def _check_annotation(
    job: DedupJob, annotation: Annotation, corpus: RowSource, outputs: Outputs
) -> None:
    """Raise InputError for new columns that the output cannot have, or if there is none."""
    by_texts = job.rule is not None
    outputs.check_new_columns(annotation.kinds(by_texts), annotation.advice(by_texts))
    if outputs.target is None and not is_table(corpus):
        name = "annotate" if annotation.annotate else "count_column"
        raise InputError(f"{keyword(name)} writes new columns: name an output")
    if outputs.target is not None and annotation.annotate and corpus.suffix == ".tsv":
        corpus.forbid_in_ids(corpus.forbidden_in_ids + forbidden_characters("tsv"))


def is_table(corpus: RowSource) -> bool:
    """Whether the rows of a corpus are a table in memory."""
    return isinstance(corpus, TableRows) and not corpus.paths


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
    if reference.corpus is not None and share_a_file(corpus, reference.corpus):
        path = reference.corpus.label
        raise InputError(
            f"{path}: is an input too: a reference ({keyword('against')}) is another corpus",
            path=path,
        )
    if reference.adds and job.projection.id is None:
        raise InputError(
            f"{keyword('add', True)} stores the ids of rows: name their column with {keyword('id')}"
        )
    for store in reference.stores:
        check_store(str(store.path), store, job, outputs)


def check_store(path: str, store: Any, job: DedupJob, outputs: Sequence[Path]) -> None:
    """Raise InputError for a store that cannot be the reference of a job."""
    description = None if job.fingerprinter is None else job.fingerprinter.describe()
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
        sets=job.rule is not None,
        fingerprints=job.makes_fingerprints,
    )
    near = None
    if reference is not None and (job.rule is None or reference.has_stores):
        near = _find_near_reference(reference, documents, job, resources, checkpoint, resumed)
        # an error comes before the corpus is compared with itself
        near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    near_kept = 0
    if job.rule is None:
        members = _group_documents(job, documents, near, resources, checkpoint)
        evidence = of_distances(distances_from_kept(documents.fingerprints, members))
    else:
        members, near, evidence, near_kept = _decide_by_texts(
            documents, near, job, resources, reference
        )
        if near is not None and reference is not None:
            near.refuse_unwritable(reference.path, corpus.forbidden_in_ids)
    rows = documents.rows
    removed_rows = rows[members.documents[members.is_removed].view(np.intp)]
    near_rows = rows[:0] if near is None else rows[near.places]
    flags = kept_flags(documents.is_compared, job.unknown, [removed_rows, near_rows])
    names = id_names(documents)
    removed = Removed(members, evidence, rows, names, near, ShardNames.of_corpus(corpus))
    clusters = Clusters(members.lims, names, members.documents, len(flags), evidence)
    not_compared = len(flags) - len(rows)
    pages = documents.pages if isinstance(job.fingerprinter, PlainPages) else 0
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
        flags, clusters, not_compared, removed, near_kept, pages, sources, annotated
    )


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
    job: DedupJob,
    documents: ComparedRows,
    near: NearReference | None,
    resources: Resources,
    checkpoint: Checkpoint | None,
) -> Members:
    """Return the groups of documents by fingerprints, the kept one first.

    Documents that are near a reference are in none.
    """
    members = _connect_documents(job, documents, near, resources, checkpoint)
    return group_members(
        members,
        job.grouping,
        lambda span: rows_at(documents.fingerprints, members.documents[span]),
        _id_reader(documents),
        documents.scores,
    )


def _id_reader(documents: ComparedRows) -> IdReader:
    ids = documents.ids
    return lambda numbers: numbers if ids is None else ids_at(ids, numbers)


def of_members(texts: TextSets, members: Members, rule: Rule, steps: KeySteps) -> Evidence:
    """Return the evidence of each member beside the first of its group."""
    firsts = members.documents[members.lims[list_numbers(members.lims)]]
    evidence = of_texts(texts, members.documents, firsts, rule)
    return steps.explain(evidence, members.documents) if steps.keys else evidence


def _decide_by_texts(
    documents: ComparedRows,
    near: NearReference | None,
    job: DedupJob,
    resources: Resources,
    reference: Reference | None,
) -> tuple[Members, NearReference | None, Evidence, int]:
    """Return the groups of documents by a rule, those near a reference, and the evidence.

    And how many documents are connected with others, but in no group. ``near`` are documents near a
    store. The documents of another corpus stay in any case, and others go for them.
    """
    assert job.rule is not None
    assert documents.texts is not None
    texts, keys, searched = documents.texts, documents.keys or {}, None
    if near is not None:
        searched = np.ones(len(texts), bool)
        searched[near.places] = False
    other, labeled = None, [documents]
    if reference is not None and reference.corpus is not None:
        labels = () if job.within is None else (job.within,)
        projection = replace(job.projection, score=None, labels=labels)
        other = compared_rows(
            reference.corpus,
            projection,
            job.fingerprinter,
            resources,
            False,
            None,
            sets=True,
            fingerprints=False,
            label_codes={name: documents.labels[name].names for name in labels},
        )
        assert other.texts is not None
        keys = join_keys(keys, other.keys or {}, len(texts))
        texts = texts.followed_by(other.texts, resources.memory)
        if searched is not None:
            searched = np.append(searched, np.ones(len(other.texts), bool))
        labeled.append(other)
    within = (
        None
        if job.within is None
        else Within.of_columns(
            [part.labels[job.within] for part in labeled], [part.rows for part in labeled]
        )
    )
    if within is not None:
        codes = within.codes.astype(np.uint64)
        keys = {kind: column.inside(codes) for kind, column in keys.items()}
    connected = connect_by_overlaps(texts, job.rule, resources, searched, keys, within)
    resources.report("deciding", 0)
    connected_members = members_in_sets(connected)[0]
    own = len(documents.texts)
    steps = KeySteps(keys, len(texts))
    members = choose_by_rule(
        connected_members, texts, job, _id_reader(documents), documents.scores, own, steps
    )
    alone = int((connected_members.documents < own).sum() - (members.documents < own).sum())
    near_kept = 0 if job.is_exact else alone
    evidence = of_members(texts, members, job.rule, steps)
    if other is not None:
        assert reference is not None
        assert reference.corpus is not None
        members, in_corpus, evidence = _split_reference(
            members, evidence, other, reference.corpus, own
        )
        near = in_corpus if near is None else NearReference.joined([near, in_corpus])
    return members, near, evidence, near_kept


def choose_by_rule(
    members: Members,
    texts: TextSets,
    job: DedupJob,
    fetch_ids: IdReader,
    scores: Words | None,
    own: int,
    steps: KeySteps,
) -> Members:
    """Return the groups by the rule of a job, from connected groups; the kept document is first.

    Keys decide before texts do. The documents from number ``own`` on are those of a reference,
    which stay.
    """
    rule = job.rule
    assert rule is not None
    is_own = members.documents < own
    ranks = np.zeros(len(members.documents), np.uint64)
    ranks[is_own] = rank_documents(
        members.documents[is_own], job.grouping.keep, texts, fetch_ids, scores
    )

    def choose(span: slice, order: npt.NDArray[np.intp], lims: Lims) -> Words:
        documents, stays = members.documents[span][order], ~is_own[span][order]
        chosen = steps.choose(documents.view(np.intp), stays)
        left = np.flatnonzero(chosen == np.arange(len(chosen)))
        left_lims = np.searchsorted(left, lims)
        by_texts = np.arange(len(chosen))
        by_texts[left] = left[
            texts.decide(
                documents[left],
                left_lims,
                rule,
                stays[left].view(np.uint8) if stays.any() else None,
            ).view(np.intp)
        ]
        return by_texts[chosen].astype(np.uint64)

    return regroup(members, ranks, choose, ~is_own)


def _split_reference(
    members: Members, evidence: Evidence, other: ComparedRows, corpus: RowSource, own: int
) -> tuple[Members, NearReference, Evidence]:
    """Return the groups of documents, and those that go for a document of a reference.

    The latter are numbered from ``own`` on.
    """
    owners = list_numbers(members.lims)
    firsts = members.documents[members.lims[:-1]]
    in_reference = (firsts >= own)[owners]
    near = in_reference & members.is_removed
    documents = members.documents[near].view(np.intp)
    order = np.argsort(documents)
    kept = firsts[owners[near]][order] - np.uint64(own)
    found = NearReference(
        documents[order],
        ids_at(id_names(other), kept),
        select(select(evidence, near), order),
        of_store=False,
    ).in_corpus(corpus, _row_numbers(other, kept))
    sizes = np.diff(members.lims)[firsts < own]
    kept_members = Members(list_lims(sizes), members.documents[~in_reference])
    return kept_members, found, select(evidence, ~in_reference)


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
    documents: ComparedRows,
    job: DedupJob,
    resources: Resources,
    checkpoint: Checkpoint | None,
    resumed: bool,
) -> NearReference:
    """Return the documents whose fingerprints are near a reference.

    A resumed job takes them from its checkpoint: files are as they were when the job began, but its
    own rows may be in the store.
    """
    if checkpoint is not None and (resumed or not reference.has_stores):
        saved = NearReference.saved(checkpoint)
        if saved is not None:
            return saved
    fingerprints = documents.fingerprints
    stores = dict(zip(reference.names, reference.stores, strict=True))
    near = find_near_stores(stores, fingerprints, job, resources)
    if reference.corpus is not None and job.rule is None:
        others = np.delete(np.arange(len(fingerprints)), near.places)
        in_corpus = _find_near_corpus(reference.corpus, fingerprints[others], job, resources)
        near = NearReference.joined([near, in_corpus.at(others)])
    near = by_the_rule(near, documents.texts, job)
    if checkpoint is not None:
        near.save(checkpoint, of_store=reference.store is not None)
    return near


def by_the_rule(near: NearReference, texts: TextSets | None, job: DedupJob) -> NearReference:
    """Return documents near a store with the evidence of a job where texts decide."""
    minhash = unwrap_minhash(job.fingerprinter)
    if texts is None or job.rule is None or minhash is None:
        return near
    similarity = np.array([minhash.jaccard(bits) for bits in near.evidence["distance"].tolist()])
    return near._replace(
        evidence=near_store(texts, near.places.view(np.uint64), similarity.astype(np.float64))
    )


def find_near_stores(
    stores: Mapping[str, Any], fingerprints: Words, job: DedupJob, resources: Resources
) -> NearReference:
    """Return the fingerprints that are near stores, by their paths.

    Each is near the first store that has one near it.
    """
    none = np.empty(0, np.intp)
    parts = [NearReference(none, none.astype(np.uint64), of_distances(none.astype(np.uint16)))]
    others = np.arange(len(fingerprints))
    for name, store in stores.items():
        side, rows = store.snapshot(), fingerprints if len(parts) == 1 else fingerprints[others]
        candidates = near_candidates(
            side, rows, job.grouping.radius, job.projection.width, resources
        )
        near = NearReference.from_candidates(candidates, side, name)
        parts.append(near.at(others))
        others = np.delete(others, near.places)
    return NearReference.joined(parts[1:] or parts)


def _find_near_corpus(
    other: RowSource, fingerprints: Words, job: DedupJob, resources: Resources
) -> NearReference:
    """Return the places of fingerprints that are near those of another corpus."""
    projection = replace(job.projection, score=None, labels=())
    other_documents = compared_rows(other, projection, job.fingerprinter, resources, False, None)
    side = join_side(other_documents, job.projection.width)
    candidates = near_candidates(
        side, fingerprints, job.grouping.radius, job.projection.width, resources
    )
    near = NearReference.from_candidates(candidates, side)
    return near.in_corpus(other, _row_numbers(other_documents, candidates.numbers))


def _row_numbers(documents: ComparedRows, places: Words) -> Words:
    """Return the numbers of rows among all, by the places of their documents."""
    return documents.rows[places.view(np.intp)].astype(np.uint64)
