"""All pairs of a store within a radius, in batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Lims, NamedColumns, Words
from fpstore.cached import cached_property
from fpstore.design.joins import SAMPLED_FROM, JoinDesign, plan_join, varying_bits
from fpstore.design.sample import Sample
from fpstore.disk.temporary import array_on_disk
from fpstore.errors import CorruptStoreError
from fpstore.io.tables import Tabular, arrow_table, values_at
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.joining import PairColumns, pairs_within
from fpstore.pieces import distinct_places
from fpstore.query.snapshot import Snapshot
from fpstore.resources import Resources
from fpstore.width import Distances, Width, empty_rows

MOST_ROWS = 1 << 16  # of pairs of ids that are made together


class Pair(NamedTuple):
    """Two stored fingerprints within the radius, or one of several documents.

    Attributes
    ----------
    a, b : int
        The lesser fingerprint first. They are the same for documents that share a fingerprint.
    distance : int
        The number of bits in which they differ.
    """

    a: int
    b: int
    distance: int


class PairIds(NamedTuple):
    """The ids of one fingerprint of each of some pairs.

    Attributes
    ----------
    lims : ndarray of int64, shape (fingerprints + 1,)
        Fingerprint f has ``ids[lims[f]:lims[f + 1]]``.
    ids : ndarray of uint64 or list of str
    places : ndarray of intp, shape (pairs,)
        Which fingerprint is that of each pair.
    """

    lims: Lims
    ids: Words | list[str]
    places: npt.NDArray[np.intp]


class Side(Protocol):
    """One of the sets whose fingerprints make pairs."""

    def ids_of(self, fingerprints: Words, /) -> tuple[Lims, Words | list[str]]:
        """Return (lims, ids) of fingerprints that are among them."""


class Pairs(Tabular):
    """A batch of pairs of stored fingerprints, or of those of two sets, in columns. Iterates as :class:`Pair`.

    Attributes
    ----------
    distances : ndarray of uint8, shape (pairs,)
        Of fingerprints of 256 bits, uint16.
    """

    def __init__(self, columns: PairColumns, snapshot: Snapshot, other: Side | None = None) -> None:
        self.rows_a, self.rows_b, distances = columns  # as the kernel knows the fingerprints
        self._snapshot, self._other, self._of_one_set = snapshot, other, other is None
        self._width: Width = snapshot.width
        self.distances: Distances = distances.astype(np.uint8 if self._width.bits < 256 else np.uint16)

    @property
    def a(self) -> npt.NDArray[Any]:
        """The lesser fingerprint of each pair, of a join that of the store, shape (pairs,).

        Uint64; at other widths as :attr:`fpstore.Matches.fingerprints`.
        """
        return self._width.outside(self.rows_a)

    @property
    def b(self) -> npt.NDArray[Any]:
        """The greater fingerprint of each pair, of a join that of the other set, in the same form."""
        return self._width.outside(self.rows_b)

    def ids_a(self) -> PairIds:
        """Return the ids of the first fingerprints of the pairs: those of each fingerprint once, however many pairs it has."""
        return self._ids[0]

    def ids_b(self) -> PairIds:
        """Return the ids of the second fingerprints of the pairs, likewise."""
        return self._ids[1]

    @cached_property
    def _ids(self) -> tuple[PairIds, PairIds]:
        if self._other is None:
            rows, places = distinct_places(np.concatenate([self.rows_a, self.rows_b]))
            lims, ids = self._snapshot.ids_of(rows)
            return PairIds(lims, ids, places[: len(self)]), PairIds(lims, ids, places[len(self) :])
        (a, places_a), (b, places_b) = distinct_places(self.rows_a), distinct_places(self.rows_b)
        return PairIds(*self._snapshot.ids_of(a), places_a), PairIds(*self._other.ids_of(b), places_b)

    def rows_of_ids(self) -> Iterator[NamedColumns]:
        """Yield the columns ``a``, ``b``, ``distance``, ``id_a``, ``id_b``, one row per pair of ids, at most 65,536 at once.

        Of the n ids of a fingerprint that is a pair with itself, each has a row with each one after it: n (n - 1) / 2 rows.
        Without pairs, it yields empty columns.
        """
        (lims_a, ids_a, place_a), (lims_b, ids_b, place_b) = self.ids_a(), self.ids_b()
        sizes_a, sizes_b = np.diff(lims_a)[place_a], np.diff(lims_b)[place_b]
        a, b = self.a, self.b
        shared = (self.distances == 0) & self._of_one_set  # by the documents of both sides, which are the same ones
        before = np.concatenate([[0], np.cumsum(np.where(shared, sizes_a * (sizes_a - 1) // 2, sizes_a * sizes_b))])
        for start in range(0, max(int(before[-1]), 1), MOST_ROWS):
            row = np.arange(start, min(start + MOST_ROWS, int(before[-1])))
            pair = np.searchsorted(before, row, side="right") - 1
            inside = row - before[pair]
            first, second = inside // sizes_b[pair], inside % sizes_b[pair]
            if shared.any():
                among = shared[pair]
                first[among], second[among] = _combination(inside[among], sizes_a[pair[among]])
            yield {
                "a": a[pair],
                "b": b[pair],
                "distance": self.distances[pair],
                "id_a": values_at(ids_a, lims_a[place_a[pair]] + first),
                "id_b": values_at(ids_b, lims_b[place_b[pair]] + second),
            }

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table`` with a row per pair of ids.

        Parameters
        ----------
        names : dict of str to str, optional
            Other names for some of the columns.

        Returns
        -------
        pyarrow.Table
            ``a`` and ``b`` (uint32, uint64, or fixed_size_binary(width / 8) above 64 bits), ``distance`` (uint8; of 256 bits
            uint16), ``id_a`` and ``id_b`` (uint64 or string; large_string above 2 GiB).

        Raises
        ------
        InputError
            A name is wrong.
        MissingExtraError
            pyarrow is not installed.
        CorruptStoreError
        """
        return arrow_table(self.rows_of_ids(), names)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the pairs with their ids, which are read for it."""
        return {**self.__dict__, "_ids": self._ids, "_snapshot": None, "_other": None}

    def __len__(self) -> int:
        return len(self.distances)

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...
    def __getitem__(self, place: int | slice) -> Pair | list[Pair]:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        place = range(len(self))[place]
        a, b = (self._width.numbers(rows[place : place + 1])[0] for rows in (self.rows_a, self.rows_b))
        return Pair(a, b, int(self.distances[place]))

    def __iter__(self) -> Iterator[Pair]:
        return map(Pair, self._width.numbers(self.rows_a), self._width.numbers(self.rows_b), self.distances.tolist())

    def __repr__(self) -> str:
        return f"<fpstore.Pairs: {len(self)} pairs>"


def rows_of(snapshot: Snapshot, resources: Resources) -> tuple[Words, Resources]:
    """Return all fingerprints of a snapshot, ascending, and what is left of the resources.

    They are in memory, or in a temporary file that is mapped if they would take more than half of it.
    """
    count, words = snapshot.totals.fingerprints, snapshot.width.words
    held = 8 * words * count
    fits = held <= resources.memory // 2
    rows: Words = empty_rows(count, words) if fits else array_on_disk((count, words) if words > 1 else (count,), np.uint64)
    for done, piece in _pieces(snapshot, resources):
        rows[done : done + len(piece)] = piece[: max(count - done, 0)]
    return rows, resources._replace(memory=resources.memory - held) if fits else resources


def _pieces(snapshot: Snapshot, resources: Resources) -> Iterator[tuple[int, Words]]:
    """Yield all fingerprints of a snapshot in pieces, with how many come before."""
    count, done = snapshot.totals.fingerprints, 0
    for piece in snapshot.fingerprints():
        resources.report("reading", done, count)
        yield done, piece
        done += len(piece)
    if done != count:
        path = snapshot.generation.folder
        raise CorruptStoreError(f"{path}: holds {done} fingerprints, not {count}", path=path, expected=count, got=done)


def join_design(rows: Words, radius: int, width: Width) -> JoinDesign:
    """Return the design to take for the pairs of a set."""
    sample = Sample(rows, width) if len(rows) >= SAMPLED_FROM else None
    return plan_join(len(rows), radius, width.bits, sample, bits=varying_bits(rows, width))


def _combination(numbers: Lims, sizes: Lims) -> tuple[Lims, Lims]:
    """Return i and j of the pairs with these numbers: all i < j < size are numbered by i and then by j, from 0."""
    left = sizes * (sizes - 1) // 2 - 1 - numbers
    rest = ((1 + np.sqrt(8.0 * left + 1)) / 2).astype(np.int64)  # the pairs of i and later ones; it may be off by one
    rest -= rest * (rest - 1) // 2 > left
    rest += rest * (rest + 1) // 2 <= left
    return sizes - 1 - rest, sizes - 1 - (left - rest * (rest - 1) // 2)


def duplicates_of(snapshot: Snapshot) -> Iterator[Pairs]:
    """Yield each fingerprint that several documents share as a pair with itself, a bounded number of ids at a time."""
    if snapshot.totals.ids == snapshot.totals.fingerprints:
        return
    for keys, counts, _ in snapshot.groups():
        rows, sizes = keys[counts > 1], counts[counts > 1]
        before = np.cumsum(sizes)
        start = 0
        while start < len(rows):
            bound = before[start] - sizes[start] + np.uint64(MOST_ROWS)
            end = max(start + 1, int(np.searchsorted(before, bound, side="right")))
            shared = rows[start:end]
            yield Pairs(PairColumns(shared, shared, np.zeros(len(shared), np.uint16)), snapshot)
            start = end


def pairs_identity(duplicates: bool) -> dict[str, object]:
    """Return what tells the job of finding pairs from others."""
    return {"job": "pairs", "duplicates": duplicates}


def pairs_of(
    snapshot: Snapshot, radius: int, resources: Resources, duplicates: bool = False, kept: Checkpoint | None = None
) -> Generator[Pairs, None, None]:
    """Yield the pairs of a snapshot; see :meth:`fpstore.Store.pairs`."""
    if duplicates:
        yield from duplicates_of(snapshot)
    rows, left = rows_of(snapshot, resources)
    for columns in pairs_within(rows, join_design(rows, radius, snapshot.width), left, kept):
        if len(columns.a):
            yield Pairs(columns, snapshot)
