"""What a store answers as of one moment: the interface of all snapshots.

``query.store_snapshot`` has the snapshot of one store, ``query.sharded`` that of its shards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Groups, Lims, Words
from fpstore.base.arrays import list_lims
from fpstore.base.width import Width, fingerprint_text, number_to_row, rows_to_numbers
from fpstore.design.families import Design
from fpstore.errors import NotStoredError
from fpstore.format.record import Totals
from fpstore.query.batches import MatchColumns, Nearest
from fpstore.query.id_lookup import SizedIds, ids_at, ids_in_slices
from fpstore.query.matches import MatchList

IdLists = tuple[Lims, Words | list[str]]  # lims, ids
FIRST_BATCH = 1 << 12  # queries


class Snapshot(ABC):
    """One consistent state of a store; later inserts, deletes and merges do not affect it.

    Fingerprints are rows of the width, as the kernel has them. The ids of a store are numbers: the
    integers themselves, or numbers of strings.
    """

    width: Width
    totals: Totals

    # What it is

    @property
    @abstractmethod
    def folder(self) -> Path:
        """The folder that messages name."""

    @property
    @abstractmethod
    def design(self) -> Design:
        """The design of the tables; of shards, which may differ, that of the first."""

    @property
    @abstractmethod
    def radius(self) -> int:
        """The largest radius that probes answer from the tables."""

    @property
    @abstractmethod
    def state(self) -> dict[str, object]:
        """The facts that differ for another store, or for another time."""

    @property
    @abstractmethod
    def has_long_strings(self) -> bool:
        """Whether strings are so long that a record of the dictionary has one."""

    @property
    def has_single_ids(self) -> bool:
        """Whether no fingerprint has several ids."""
        return self.totals.ids == self.totals.fingerprints

    @abstractmethod
    def scans(self, radius: int) -> bool:
        """Whether a probe of this radius compares every fingerprint."""

    @abstractmethod
    def probe_nanoseconds(self, radius: int, queries: int) -> float:
        """Return the estimated time of one query of a batch.

        The radius is at most that of the tables.
        """

    @property
    @abstractmethod
    def bounded_queries(self) -> int:
        """The most queries of a kernel call whose matches are bounded."""

    # Probing

    @abstractmethod
    def probe(self, value: int, radius: int) -> MatchList:
        """Return the matches of one fingerprint, by distance and fingerprint."""

    @abstractmethod
    def probe_columns(
        self, queries: Words, radius: int, threads: int, most: int | None = None
    ) -> MatchColumns | None:
        """Return the columns of the matches of many queries.

        None if a part has more than ``most``.
        """

    def probe_in_parts(
        self, queries: Words, radius: int, threads: int, matches: int
    ) -> Iterator[tuple[Words, MatchColumns]]:
        """Yield successive queries and the columns of their matches.

        See :meth:`fpstore.Store.probe_batches`.
        """
        start, size = 0, FIRST_BATCH
        while start < len(queries):
            part = queries[start : start + size]
            columns = self.probe_columns(
                part, radius, threads, max(matches // threads, 1) if len(part) > 1 else None
            )
            # The tables keep to the bound; the delta has added its matches.
            if columns is None or (len(part) > 1 and len(columns[1]) > matches):
                size = max(len(part) // 2, 1)
                continue
            yield part, columns
            start += len(part)
            if len(columns[1]) < matches // 4:
                size = min(size * 2, self.bounded_queries * threads)

    @abstractmethod
    def probe_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        """Return the nearest matches of many queries, and which have more than ``limit``."""

    @abstractmethod
    def scan_columns(self, queries: Words, radius: int, threads: int) -> MatchColumns:
        """Compare each query with every stored fingerprint, at any radius."""

    @abstractmethod
    def scan_nearest(self, queries: Words, radius: int, threads: int, limit: int) -> Nearest:
        """Do :meth:`scan_columns`, and keep the ``limit`` nearest matches of each query."""

    @abstractmethod
    def has(self, value: int) -> bool:
        """Whether a fingerprint is stored."""

    # Ids

    def get_ids(self, value: int) -> list[int] | list[str]:
        """Return the ids of a fingerprint; none if it is not stored."""
        return self.list_ids(self.id_numbers(number_to_row(value, self.width.words))[1].tolist())

    def ids_of(self, fingerprints: Words) -> IdLists:
        """Return (lims, ids) of stored fingerprints; KeyError if one is not stored."""
        lims, numbers = self.stored_id_numbers(fingerprints)
        return lims, ids_at(self, numbers)

    def stored_id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        """Return (lims, id numbers) of stored fingerprints; KeyError if one is not stored."""
        lims, numbers = self.id_numbers(fingerprints)
        missing = np.flatnonzero(np.diff(lims) == 0)
        if len(missing):
            first = self.width.numbers(fingerprints[missing[:1]])[0]
            raise NotStoredError(
                f"the fingerprint {fingerprint_text(first, self.width.bits)} is not stored: `in` "
                "says which ones are",
                got=first,
            )
        return lims, numbers

    @abstractmethod
    def id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        """Return (lims, id numbers) of fingerprints; a fingerprint that is not stored has none."""

    def list_ids(self, numbers: list[int]) -> list[int] | list[str]:
        """Return the ids of id numbers: the numbers themselves, or their strings."""
        if self.totals.id_kind != "string":
            return numbers
        return ids_at(self, np.array(numbers, np.uint64))  # type: ignore[return-value]

    @abstractmethod
    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        """Return the ids of many id numbers.

        None if they are strings that take more than ``most`` bytes together.
        """

    @abstractmethod
    def number_of(self, name: str) -> int | None:
        """Return the number of a string id, or None if it has none."""

    @abstractmethod
    def numbers_of_strings(self, strings: Sequence[bytes]) -> Words:
        """Return the numbers of string ids, NO_NUMBER for unknown strings."""

    @abstractmethod
    def with_ids(self, numbers: Words) -> tuple[Words, Words]:
        """Return (fingerprints, id numbers) of the stored pairs with these ids.

        They are in order of the id, and then of the fingerprint.
        """

    def get_fingerprints(self, number: int) -> list[int]:
        """Return the fingerprints that have an id, ascending."""
        return rows_to_numbers(self.with_ids(np.array([number], np.uint64))[0])

    # Everything

    @abstractmethod
    def groups(self) -> Iterator[Groups]:
        """Yield everything as pieces (fingerprints, ids of each, id numbers), ascending."""

    @abstractmethod
    def fingerprints(self) -> Iterator[Words]:
        """Yield all fingerprints as pieces, in ascending order."""

    def items(self) -> Iterator[tuple[Words, Lims, Words | list[str]]]:
        """Yield everything as pieces (fingerprints, lims, ids), in ascending order.

        See :meth:`fpstore.Store.items`.
        """
        for keys, counts, numbers in self.groups():
            lims = list_lims(counts)
            for rows, (ids,) in ids_in_slices([(self, numbers)]):
                first = np.searchsorted(lims, rows.start, side="right") - 1
                last = np.searchsorted(lims, rows.stop)
                yield (
                    keys[first:last],
                    np.clip(lims[first : last + 1], rows.start, rows.stop) - rows.start,
                    ids,
                )
