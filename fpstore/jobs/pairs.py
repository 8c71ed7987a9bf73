"""All pairs of a store within a radius, or of a store and another set, in batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Lims, NamedColumns, Words
from fpstore.base.arrays import distinct_places, list_lims, lists_at, nth_combinations, spans
from fpstore.base.resources import Resources
from fpstore.base.threads import cached_property
from fpstore.base.width import Distances, Width, empty_rows, equal, row_places
from fpstore.design.joins import SAMPLED_FROM, JoinDesign, join_nanoseconds, plan_join, varying_bits
from fpstore.design.sample import Sample
from fpstore.disk.temporary import array_on_disk
from fpstore.errors import CorruptStoreError, plural
from fpstore.io.tables import Tabular, arrow_table
from fpstore.jobs.joining import (
    PairColumns,
    pairs_between,
    pairs_within,
    read_saved_pairs,
    save_pairs,
)
from fpstore.jobs.row_set import RowSet
from fpstore.query.id_lookup import IdLookup, InMemoryIds, ids_at, ids_in_slices
from fpstore.query.snapshot import Snapshot
from fpstore.work.checkpoint import Checkpoint

MAX_ROWS = 1 << 16  # pairs of ids in a batch
MAX_LONG_ROWS = 1 << 10  # pairs of ids in a batch where records have one long string each
MATCHES = 1 << 20  # in a batch of probes
PROBED_ROWS = 1 << 20  # whose matches are one part of a checkpoint
STAGE = "probed"  # of a checkpoint; a result has the number of its first row
PROBED = "rows were looked up"
# Fingerprints with several ids are listed where ids exceed fingerprints by at most a
# SHARED_SHARE-th.
SHARED_SHARE = 8
READ_NANOSECONDS = 5.0  # to read a fingerprint of a store for a join

Side = Snapshot | RowSet


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
        Which of the fingerprints each pair has.
    """

    lims: Lims
    ids: Words | list[str]
    places: npt.NDArray[np.intp]


class _IdNumbers(NamedTuple):
    lims: Lims
    numbers: Words
    places: npt.NDArray[np.intp]

    @property
    def sizes(self) -> Lims:
        """The number of ids of the fingerprint of each pair."""
        return np.diff(self.lims)[self.places]

    def select(self, pairs: slice) -> _IdNumbers:
        used, places = np.unique(self.places[pairs], return_inverse=True)
        sizes = np.diff(self.lims)[used]
        return _IdNumbers(
            list_lims(sizes), lists_at(self.numbers, self.lims[:-1][used], sizes), places
        )


class SharedFingerprints(NamedTuple):
    """The fingerprints of a set that have several ids, ascending, and how many ids each has."""

    rows: Words
    counts: Lims

    @classmethod
    def read(cls, snapshot: Snapshot) -> SharedFingerprints:
        shared = [(keys[counts > 1], counts[counts > 1]) for keys, counts, _ in snapshot.groups()]
        rows, counts = (np.concatenate(column) for column in zip(*shared, strict=True))
        return cls(rows, counts.astype(np.int64))

    def count_ids(self, rows: Words) -> Lims:
        """Return the number of ids of each of some rows of the set."""
        counts = np.ones(len(rows), np.int64)
        places = np.minimum(row_places(self.rows, rows), len(self.rows) - 1)
        here = equal(self.rows[places], rows)
        counts[here] = self.counts[places[here]]
        return counts


class Pairs(Tabular):
    """A batch of pairs of fingerprints of a store, or of two sets, in columns.

    Iterates as :class:`Pair`.

    It has at most 65,536 pairs of ids, which are the rows of its tables; of strings that take about
    a kilobyte or more, 1,024. Two fingerprints of many ids may have more: the others are in the
    batches that follow, which have rows, but no pair.

    Attributes
    ----------
    distances : ndarray of uint8, shape (pairs,)
        Of fingerprints of 256 bits, uint16.
    """

    def __init__(
        self,
        columns: PairColumns,
        snapshot: Snapshot,
        other: Side | None = None,
        numbers: tuple[_IdNumbers, _IdNumbers] | None = None,
        rows: slice | None = None,  # among the pairs of ids, by default all
    ) -> None:
        self._columns, self._snapshot, self._other, self._rows = columns, snapshot, other, rows
        self._sides: tuple[IdLookup, IdLookup] = snapshot, snapshot if other is None else other
        self._of_one_set = other is None
        self._width: Width = snapshot.width
        if numbers is not None:
            self._numbers = numbers
        # A pair belongs to the batch in which its rows begin.
        self.rows_a, self.rows_b, distances = (
            columns if rows is None or not rows.start else columns.part(0, 0)
        )
        self.distances: Distances = distances.astype(
            np.uint8 if self._width.bits < 256 else np.uint16
        )

    @property
    def a(self) -> npt.NDArray[Any]:
        """The lesser fingerprint of each pair, in a join that of the store, shape (pairs,).

        Uint64; at other widths as :attr:`fpstore.Matches.fingerprints`.
        """
        return self._width.to_array(self.rows_a)

    @property
    def b(self) -> npt.NDArray[Any]:
        """The greater fingerprint of each pair, in a join that of the other set, as `a`."""
        return self._width.to_array(self.rows_b)

    def ids_a(self) -> PairIds:
        """Return the ids of the first fingerprints of the pairs, once for each fingerprint."""
        return self._ids(0)

    def ids_b(self) -> PairIds:
        """Return the ids of the second fingerprints of the pairs, once for each fingerprint."""
        return self._ids(1)

    def _ids(self, side: int) -> PairIds:
        lims, numbers, places = self._numbers[side].select(slice(0, len(self)))
        return PairIds(lims, ids_at(self._sides[side], numbers), places)

    @cached_property
    def _numbers(self) -> tuple[_IdNumbers, _IdNumbers]:
        a, b, _ = self._columns
        if self._other is None:
            rows, places = distinct_places(np.concatenate([a, b]))
            lims, ids = self._snapshot.stored_id_numbers(rows)
            return _IdNumbers(lims, ids, places[: len(a)]), _IdNumbers(lims, ids, places[len(a) :])
        (a, places_a), (b, places_b) = distinct_places(a), distinct_places(b)
        return (
            _IdNumbers(*self._snapshot.stored_id_numbers(a), places_a),
            _IdNumbers(*self._other.stored_id_numbers(b), places_b),
        )

    @property
    def _is_self_pair(self) -> npt.NDArray[np.bool_]:
        """Which pairs are a fingerprint with itself, so that both sides have the same documents."""
        a, b, distances = self._columns
        shared: npt.NDArray[np.bool_] = (distances == 0) & self._of_one_set
        # turned pictures at distance 0 have other fingerprints
        return shared & equal(a, b) if shared.any() else shared

    def _lims(self, sizes_a: Lims, sizes_b: Lims) -> Lims:
        """Return the lims of the rows of each pair, whose sides have so many ids."""
        return list_lims(
            np.where(self._is_self_pair, sizes_a * (sizes_a - 1) // 2, sizes_a * sizes_b)
        )

    def _cut_batches(self, most: int, shared: SharedFingerprints | None) -> Iterator[Pairs]:
        """Yield the pairs in batches of at most ``most`` rows.

        Without the shared fingerprints, the ids are looked up to count them.
        """
        lims = self._lims(
            *(
                (numbers.sizes for numbers in self._numbers)
                if shared is None
                else map(shared.count_ids, (self._columns.a, self._columns.b))
            )
        )
        for pairs in spans(lims, most):
            columns, numbers = self._columns.part(pairs.start, pairs.stop), None
            if shared is None:
                a, b = self._numbers
                numbers = a.select(pairs), b.select(pairs)
            for start in range(0, max(int(lims[pairs.stop] - lims[pairs.start]), 1), most):
                yield Pairs(
                    columns, self._snapshot, self._other, numbers, slice(start, start + most)
                )

    def rows_of_ids(self) -> Iterator[NamedColumns]:
        """Yield columns with one row per pair of ids, at most 65,536 rows at once.

        The columns are ``a``, ``b``, ``distance``, ``id_a`` and ``id_b``. A pair of a fingerprint
        with itself, which has n ids, has a row for each two of them: n (n - 1) / 2 rows. Without
        rows, it yields empty columns. A column of strings has at most 4 MiB, or one row.
        """
        a, b = self._numbers
        sizes_a, sizes_b, shared = a.sizes, b.sizes, self._is_self_pair
        lims = self._lims(sizes_a, sizes_b)
        begin, end, _ = (self._rows or slice(None)).indices(int(lims[-1]))
        for start in range(begin, max(end, begin + 1), MAX_ROWS):
            row = np.arange(start, min(start + MAX_ROWS, end))
            pair = np.searchsorted(lims, row, side="right") - 1
            inside = row - lims[pair]
            first, second = inside // sizes_b[pair], inside % sizes_b[pair]
            if shared.any():
                among = shared[pair]
                first[among], second[among] = nth_combinations(inside[among], sizes_a[pair[among]])
            columns = PairColumns(*(column[pair] for column in self._columns))
            numbers = (
                side.numbers[side.lims[side.places[pair]] + within]
                for side, within in ((a, first), (b, second))
            )
            for rows, (ids_a, ids_b) in ids_in_slices(list(zip(self._sides, numbers, strict=True))):
                yield {
                    "a": self._width.to_array(columns.a[rows]),
                    "b": self._width.to_array(columns.b[rows]),
                    "distance": columns.distances[rows].astype(self.distances.dtype),
                    "id_a": ids_a,
                    "id_b": ids_b,
                }

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table`` with a row per pair of ids.

        See :meth:`fpstore.Matches.to_arrow`. ``a`` and ``b`` are uint32, uint64, or
        fixed_size_binary(width / 8) above 64 bits, ``distance`` is uint8, of 256 bits uint16,
        ``id_a`` and ``id_b`` are uint64 or string (large_string above 2 GiB).
        """
        return arrow_table(self.rows_of_ids(), names)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the pairs with their ids, which are read for it."""
        sides = tuple(
            InMemoryIds(ids_at(side, side_ids.numbers))
            for side, side_ids in zip(self._sides, self._numbers, strict=True)
        )
        numbers = tuple(
            side_ids._replace(numbers=np.arange(len(side_ids.numbers), dtype=np.uint64))
            for side_ids in self._numbers
        )
        return {
            **self.__dict__,
            "_sides": sides,
            "_numbers": numbers,
            "_snapshot": None,
            "_other": None,
        }

    def __len__(self) -> int:
        return len(self.distances)

    @overload
    def __getitem__(self, place: int) -> Pair: ...
    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...
    def __getitem__(self, place: int | slice) -> Pair | list[Pair]:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        place = range(len(self))[place]
        a, b = (
            self._width.numbers(rows[place : place + 1])[0] for rows in (self.rows_a, self.rows_b)
        )
        return Pair(a, b, int(self.distances[place]))

    def __iter__(self) -> Iterator[Pair]:
        return map(
            Pair,
            self._width.numbers(self.rows_a),
            self._width.numbers(self.rows_b),
            self.distances.tolist(),
        )

    def __repr__(self) -> str:
        return f"<fpstore.Pairs: {plural(len(self), 'pair')}>"


def id_batches(
    columns: PairColumns,
    snapshot: Snapshot,
    other: Side | None = None,
    *,
    shared: SharedFingerprints | None = None,
) -> Iterator[Pairs]:
    """Yield pairs in batches with a bounded number of pairs of ids.

    Pairs of ids are counted only where fingerprints have several ids; ``shared`` saves these
    look-ups.
    """
    most = MAX_LONG_ROWS if snapshot.has_long_strings else MAX_ROWS
    simple = snapshot.has_single_ids and (other is None or other.has_single_ids)
    for start in range(0, len(columns.a), most if simple else MAX_ROWS):
        pairs = Pairs(columns.part(start, start + (most if simple else MAX_ROWS)), snapshot, other)
        yield from [pairs] if simple else pairs._cut_batches(most, shared)


def load_fingerprints(snapshot: Snapshot, resources: Resources) -> tuple[Words, Resources]:
    """Return all fingerprints of a snapshot, ascending, and the remaining resources.

    They are in memory, or in a mapped temporary file if they would take more than half of the
    memory.
    """
    count, words, done = snapshot.totals.fingerprints, snapshot.width.words, 0
    size = 8 * words * count
    fits = size <= resources.memory // 2
    rows: Words = (
        empty_rows(count, words)
        if fits
        else array_on_disk((count, words) if words > 1 else (count,), np.uint64)
    )
    for piece in snapshot.fingerprints():
        resources.report("reading", done, count)
        rows[done : done + len(piece)] = piece[: max(count - done, 0)]
        done += len(piece)
    if done != count:
        path = snapshot.folder
        raise CorruptStoreError(
            f"{path}: holds {done} fingerprints, not {count}", path=path, expected=count, got=done
        )
    return rows, resources._replace(memory=resources.memory - size) if fits else resources


def join_design(
    rows: Words, radius: int, width: Width, sampled_from: int = SAMPLED_FROM
) -> JoinDesign:
    """Return the design for the pairs of a set; ``sampled_from`` rows or more are sampled."""
    sample = Sample(rows, width) if len(rows) >= sampled_from else None
    return plan_join(len(rows), radius, width.bits, sample, bits=varying_bits(rows, width))


def find_pairs(
    snapshot: Snapshot,
    radius: int,
    resources: Resources,
    duplicates: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Generator[Pairs, None, None]:
    """Yield the pairs of a snapshot, which a checkpoint keeps.

    See :meth:`fpstore.Store.pairs`.
    """
    if duplicates and snapshot.totals.ids > snapshot.totals.fingerprints:
        for keys, counts, _ in snapshot.groups():
            fingerprints = keys[counts > 1]
            distances = np.zeros(len(fingerprints), np.uint16)
            yield from id_batches(PairColumns(fingerprints, fingerprints, distances), snapshot)
    rows, remaining = load_fingerprints(snapshot, resources)
    extra_ids = snapshot.totals.ids - snapshot.totals.fingerprints
    shared: SharedFingerprints | None = None
    for columns in pairs_within(
        rows, join_design(rows, radius, snapshot.width), remaining, checkpoint
    ):
        if shared is None and 0 < extra_ids <= len(rows) // SHARED_SHARE and len(columns.a):
            shared = SharedFingerprints.read(snapshot)
        yield from id_batches(columns, snapshot, shared=shared)


def find_joined_pairs(
    snapshot: Snapshot,
    other: Side,
    radius: int,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
) -> Generator[Pairs, None, None]:
    """Yield the pairs of a snapshot and another side; see :meth:`fpstore.Store.join`."""
    count = snapshot.totals.fingerprints
    other_count = other.totals.fingerprints if isinstance(other, Snapshot) else len(other.rows)
    if not count or not other_count:
        return
    # Probes of the smaller side may be faster, if the other is a store whose tables fit the radius.
    is_swapped = count < other_count
    stored, queried = (other, snapshot) if is_swapped else (snapshot, other)
    rows, remaining = _side_rows(queried, resources)
    for columns in pairs_with(stored, rows, radius, snapshot.width, remaining, checkpoint):
        yield from id_batches(
            columns if is_swapped else PairColumns(columns.b, columns.a, columns.distances),
            snapshot,
            other,
        )


def pairs_with(
    stored: Side,
    rows: Words,
    radius: int,
    width: Width,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of a row of ``rows``, distinct and ascending, and a stored fingerprint."""
    count = stored.totals.fingerprints if isinstance(stored, Snapshot) else len(stored.rows)
    if not count or not len(rows):
        return iter(())
    if isinstance(stored, Snapshot):
        design = design_between(count, rows, radius, width)
        if _probes_are_faster(stored, len(rows), radius, design):
            return _probe_rows(stored, rows, radius, resources, checkpoint)
    stored_rows, remaining = _side_rows(stored, resources)
    return pairs_between(
        rows,
        stored_rows,
        design_between(count, rows, radius, width, stored_rows),
        remaining,
        checkpoint,
    )


def _side_rows(side: Side, resources: Resources) -> tuple[Words, Resources]:
    if isinstance(side, Snapshot):
        return load_fingerprints(side, resources)
    memory = max(resources.memory - side.rows.nbytes, resources.memory // 4)
    return side.rows, resources._replace(memory=memory)


def _probe_rows(
    stored: Snapshot, rows: Words, radius: int, resources: Resources, checkpoint: Checkpoint | None
) -> Iterator[PairColumns]:
    """Yield the pairs of rows and their matches; a checkpoint has a part for each batch."""
    for start in range(0, len(rows), PROBED_ROWS):
        resources.report("finding pairs", start, len(rows))
        batch = rows[start : start + PROBED_ROWS]
        parts = stored.probe_in_parts(batch, radius, resources.threads, MATCHES)
        pairs = (
            PairColumns(
                np.repeat(queries, np.diff(lims), axis=0), matches, distances.astype(np.uint16)
            )
            for queries, (lims, matches, distances) in parts
        )
        if checkpoint is None:
            yield from pairs
            continue
        pieces = checkpoint.result(STAGE, start)
        checkpoint.note(PROBED, 0 if pieces is None else len(batch), len(batch))
        yield from (
            save_pairs(checkpoint, STAGE, start, pairs)
            if pieces is None
            else read_saved_pairs(pieces)
        )
    resources.report("finding pairs", len(rows), len(rows))


def design_between(
    count: int,
    rows: Words,
    radius: int,
    width: Width,
    other_rows: Words | None = None,
    sampled_from: int = SAMPLED_FROM,
) -> JoinDesign:
    """Return the design for a join of two sets.

    ``other_rows`` in memory give a sample and the bits that vary.
    """
    if other_rows is None:
        return plan_join(count, radius, width.bits, queries=len(rows))
    sample = Sample(other_rows, width) if count >= sampled_from else None
    bits = sorted({*varying_bits(rows, width), *varying_bits(other_rows, width, rows[:1])})
    return plan_join(count, radius, width.bits, sample, len(rows), bits)


def _probes_are_faster(stored: Snapshot, queries: int, radius: int, design: JoinDesign) -> bool:
    if radius > stored.radius:
        return False
    count, probing = stored.totals.fingerprints, queries * stored.probe_nanoseconds(radius, queries)
    return probing < join_nanoseconds(design, count, queries) + READ_NANOSECONDS * count
