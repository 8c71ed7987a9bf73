"""The rows that a deduplication removes, each with the row that is kept in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import list_numbers
from fpstore.io.shards import ShardNames
from fpstore.io.tables import TabularBatches
from fpstore.jobs.evidence import Evidence, evidence_columns, join, select, written
from fpstore.jobs.excerpts import EXCERPT_COLUMNS, Excerpts, Pairs
from fpstore.jobs.grouping import Members
from fpstore.jobs.reference import NO_ROW, NearReference
from fpstore.query.id_lookup import ChainedIds, IdLookup, InMemoryIds, ids_at, ids_in_slices


def removed_columns(
    by_texts: bool, has_reference: bool, has_excerpts: bool = False
) -> tuple[str, ...]:
    """Return the columns of a list of removed rows."""
    reference = ("reference",) if has_reference else ()
    kept = ("kept_row", "kept", "kept_shard")
    names = ("row", "id", "shard", *kept, "cluster", *reference, *evidence_columns(by_texts))
    return (*names, *EXCERPT_COLUMNS) if has_excerpts else names


class Removed(TabularBatches):
    """The rows that a deduplication removed, in their order, but for rows that were not compared.

    Attributes
    ----------
    rows, kept_rows : ndarray of uint64, shape (n,)
        The number of a row that was removed, and of the row that was kept in its place, from 0 over
        all files.
    clusters : ndarray of uint64, shape (n,)
        The number of the cluster of both.
    in_reference : ndarray of bool, shape (n,)
        Whether what was kept is a document of a reference. Then `kept_rows` are those of a
        reference of files or of a table, and mean nothing for a store; `clusters` mean nothing.
    evidence : dict of str to ndarray, shape (n,)
        What is known of both. Where texts decide: ``rule``, a number of
        `fpstore.jobs.evidence.RULES`; ``contained``, the share of the pieces of the row that the
        row that stays has; the Jaccard ``similarity`` of both; and how many ``pieces`` and
        ``kept_pieces`` they have. Where fingerprints decide: their ``distance``, in bits.
    excerpts : Excerpts or None
        Parts of both texts from where they differ on, if the call asked for them.
    """

    def __init__(
        self,
        members: Members,
        evidence: Evidence,
        rows: npt.NDArray[np.intp],
        ids: IdLookup,
        reference: NearReference | None,
        shards: ShardNames,
    ) -> None:
        """Take groups of places of documents, their evidence, and the row and id at each place."""
        firsts, cluster = members.lims[:-1], list_numbers(members.lims)
        places = np.flatnonzero(members.is_removed)
        clusters = cluster[places].astype(np.uint64)
        documents = members.documents[places]
        kept_places = members.documents[firsts[cluster[places]]]
        evidence, self.has_reference = select(evidence, places), reference is not None
        count, nearer = len(documents), 0 if reference is None else len(reference.places)
        if reference is not None:
            documents = np.concatenate([documents, reference.places.astype(np.uint64)])
            kept_places = np.concatenate(
                [kept_places, np.uint64(len(rows)) + np.arange(nearer, dtype=np.uint64)]
            )
            clusters = np.concatenate([clusters, np.zeros(nearer, np.uint64)])
            evidence = join(evidence, reference.evidence)
        order = np.argsort(documents, kind="stable")
        self.in_reference = (np.arange(len(documents)) >= count)[order]
        self.clusters, self.evidence = clusters[order], select(evidence, order)
        documents, kept_places = documents[order], kept_places[order]
        row_numbers = rows.view(np.uint64)
        self.rows = row_numbers[documents.view(np.intp)]
        self.kept_rows = row_numbers[
            np.where(self.in_reference, documents, kept_places).view(np.intp)
        ]
        self.excerpts: Excerpts | None = None
        self._reference_strings = reference is not None and isinstance(reference.ids, list)
        self._shards = shards
        self._kept_shards = None if reference is None else reference.kept_shards
        self._reference_names = () if reference is None else reference.names
        self._places_in_reference = kept_places - np.uint64(len(rows))
        self._in_store = self.in_reference.copy()
        if reference is not None and reference.kept_rows is not None:
            numbers = self._places_in_reference[self.in_reference].view(np.intp)
            kept_rows = reference.kept_rows[numbers]
            in_corpus = np.flatnonzero(self.in_reference)[kept_rows != NO_ROW]
            self.kept_rows[in_corpus] = kept_rows[kept_rows != NO_ROW]
            self._in_store[in_corpus] = False
        self._ids: tuple[IdLookup, Words] = (ids, documents)
        if reference is not None:
            ids = ChainedIds(ids, InMemoryIds(reference.ids), len(rows))
        self._kept: tuple[IdLookup, Words] = (ids, kept_places)

    def in_memory(self) -> Removed:
        """Return the rows with all ids in memory."""
        new, places = copy(self), np.arange(len(self), dtype=np.uint64)
        new._ids, new._kept = (
            (InMemoryIds(ids_at(*column)), places) for column in (self._ids, self._kept)
        )
        return new

    @property
    def pairs(self) -> Pairs:
        """The rows, and those that are kept for them."""
        return Pairs(self.rows, self.kept_rows, self.in_reference, self._in_store)

    @property
    def has_kept_strings(self) -> bool:
        """Whether the ids of kept rows are strings, as far as those of a reference decide it."""
        return self._reference_strings

    def kept_ids(self, places: npt.NDArray[np.intp]) -> Words | list[str]:
        """Return the ids of the rows that are kept for those at places of the list."""
        lookup, numbers = self._kept
        return ids_at(lookup, numbers[places])

    def with_excerpts(self, excerpts: Excerpts) -> Removed:
        """Return the rows with excerpts of their pairs."""
        new = copy(self)
        new.excerpts = excerpts
        return new

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 rows.

        The columns are ``row``, ``id``, ``shard`` (the name of its file), ``kept_row``, ``kept``,
        ``kept_shard``, ``cluster``, with a reference also ``reference`` (the path of the store, the
        file or the folder that has the kept document; empty if the corpus has it), and those of
        `evidence`. The ``rule`` is a word. With `excerpts`, also ``text`` and ``kept_text``.
        """
        excerpts = self.excerpts
        names = removed_columns("rule" in self.evidence, self.has_reference, excerpts is not None)
        places = np.arange(len(self), dtype=np.uint64)
        texts = [] if excerpts is None else [(column, places) for column in excerpts]
        for rows, (ids, kept_ids, *shown) in ids_in_slices([self._ids, self._kept, *texts]):
            columns = {
                "row": self.rows[rows],
                "id": ids,
                "shard": self._shards.at(self.rows[rows]),
                "kept_row": self.kept_rows[rows],
                "kept": kept_ids,
                "kept_shard": self._shards_of_kept(rows),
                "cluster": self.clusters[rows],
                "reference": self._in_references(rows, self._reference_names),
                **written(self.evidence, rows),
                **dict(zip(EXCERPT_COLUMNS, map(list, shown), strict=False)),
            }
            yield {name: columns[name] for name in names}

    def _shards_of_kept(self, rows: slice) -> list[str]:
        """Return the file of each kept row; none for those of a store."""
        names = self._shards.at(self.kept_rows[rows])
        in_references = self._in_references(rows, self._kept_shards)
        for place in np.flatnonzero(self.in_reference[rows]).tolist():
            names[place] = in_references[place]
        return names

    def _in_references(self, rows: slice, values: Sequence[str] | None) -> list[str]:
        """Return a value of each kept row that is in a reference; an empty one for others."""
        out = [""] * len(self.rows[rows])
        if values is not None:
            places = np.flatnonzero(self.in_reference[rows])
            numbers = self._places_in_reference[rows][places]
            for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
                out[place] = values[number]
        return out
