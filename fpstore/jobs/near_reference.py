"""Documents near a reference: those of a corpus that go for a row of a store or another corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import list_lims, list_numbers
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.errors import InputError
from fpstore.hashing.wrapper import unwrap_minhash
from fpstore.io.source import RowSource
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.deciding import Decision
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.evidence import near_store, of_distances, select
from fpstore.jobs.grouping import Members
from fpstore.jobs.outputs import share_a_file
from fpstore.jobs.reference import (
    STAGE,
    NearReference,
    Reference,
    id_names,
    join_side,
    near_candidates,
)
from fpstore.query.id_lookup import ids_at
from fpstore.work.checkpoint import Checkpoint


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


def check_saved(checkpoint: Checkpoint, reference: Reference, target: Path | None) -> None:
    """Refuse to go on if rows may have been added, and what was near the store before is lost.

    The rows would be near themselves.
    """
    written = target is not None or bool(checkpoint.numbers(STAGE))
    if written and NearReference.saved(checkpoint) is None:
        raise InputError(
            f"{checkpoint.folder}: the rows that were near {reference.path} are damaged or gone, "
            "and rows of this job may be in the store: delete them there, then remove the output "
            "and this folder to start anew",
            path=checkpoint.folder,
        )


def find_near_reference(
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
    stores = dict(zip(reference.names, reference.stores, strict=True))
    near = find_near_stores(stores, documents, job, resources)
    if reference.corpus is not None and job.rule is None:
        others = np.delete(np.arange(len(documents.rows)), near.places)
        rows = documents.fingerprints[others]
        in_corpus = _find_near_corpus(reference.corpus, rows, job, resources)
        near = NearReference.joined([near, in_corpus.at(others)])
    if checkpoint is not None:
        near.save(checkpoint, of_store=reference.store is not None)
    return near


def find_near_stores(
    stores: Mapping[str, Any], documents: ComparedRows, job: DedupJob, resources: Resources
) -> NearReference:
    """Return the documents whose fingerprints are near stores, by their paths.

    Each is near the first store that has one near it.
    """
    none = np.empty(0, np.intp)
    parts = [NearReference(none, none.astype(np.uint64), of_distances(none.astype(np.uint16)))]
    fingerprints, others = documents.fingerprints, np.arange(len(documents.rows))
    for name, store in stores.items():
        side, rows = store.snapshot(), fingerprints if len(parts) == 1 else fingerprints[others]
        candidates = near_candidates(
            side, rows, job.grouping.radius, job.projection.width, resources
        )
        near = NearReference.from_candidates(candidates, side, name)
        parts.append(near.at(others))
        others = np.delete(others, near.places)
    near, minhash = NearReference.joined(parts[1:] or parts), unwrap_minhash(job.fingerprinter)
    if documents.texts is None or minhash is None:
        return near
    similarity = np.array([minhash.jaccard(bits) for bits in near.evidence["distance"].tolist()])
    places = near.places.view(np.uint64)
    return near._replace(
        evidence=near_store(documents.texts, places, similarity.astype(np.float64))
    )


def _find_near_corpus(
    other: RowSource, fingerprints: Words, job: DedupJob, resources: Resources
) -> NearReference:
    """Return the places of fingerprints that are near those of another corpus."""
    other_documents = compared_rows(other, job.reference_columns, resources)
    side = join_side(other_documents, job.projection.width)
    candidates = near_candidates(
        side, fingerprints, job.grouping.radius, job.projection.width, resources
    )
    near = NearReference.from_candidates(candidates, side)
    return near.in_corpus(other, _row_numbers(other_documents, candidates.numbers))


def _row_numbers(documents: ComparedRows, places: Words) -> Words:
    """Return the numbers of rows among all, by the places of their documents."""
    return documents.rows[places.view(np.intp)].astype(np.uint64)


def split_reference(
    decision: Decision, other: ComparedRows, corpus: RowSource, own: int
) -> tuple[Decision, NearReference]:
    """Return the decision of documents, and those that go for a document of another corpus.

    The latter are numbered from ``own`` on.
    """
    members, evidence = decision.members, decision.evidence
    owners = list_numbers(members.lims)
    firsts = members.documents[members.lims[:-1]]
    in_reference = (firsts >= own)[owners]
    goes = in_reference & members.is_removed
    documents = members.documents[goes].view(np.intp)
    order = np.argsort(documents)
    kept = firsts[owners[goes]][order] - np.uint64(own)
    near = NearReference(
        documents[order],
        ids_at(id_names(other), kept),
        select(select(evidence, goes), order),
        of_store=False,
    ).in_corpus(corpus, _row_numbers(other, kept))
    sizes = np.diff(members.lims)[firsts < own]
    kept_members = Members(list_lims(sizes), members.documents[~in_reference])
    return Decision(kept_members, select(evidence, ~in_reference), decision.near), near
