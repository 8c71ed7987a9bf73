"""The sorted content that merge, absorb and split stream into a new generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Groups, Words
from fpstore.base.pools import read_ahead
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS, empty_rows_like, leading_words, number_to_row, row_place
from fpstore.building.columns import COPY_ROWS, cut_pieces
from fpstore.building.external_sort import sort_buffer, stop_between
from fpstore.building.generation_writer import GenerationWriter
from fpstore.building.table_keys import TableKeys
from fpstore.design.families import Design
from fpstore.design.tables import REFERENCES, TableSpec
from fpstore.errors import CorruptStoreError
from fpstore.format.huffman import KeySummary
from fpstore.format.packed_table import PackedTable
from fpstore.format.table import Table
from fpstore.query.merged import cut_groups
from fpstore.query.store_snapshot import StoreSnapshot

PHASE_MERGE = "merging"
WORD_BYTES = 8  # of a word of the sorted keys that are kept
T = TypeVar("T")


class SnapshotContent:
    """The content of a snapshot, any number of times.

    Each table is brought up to date with the delta while it is decoded. ``renumber`` maps id
    numbers to other numbers. With a ``part`` (bits, prefix), only fingerprints with that prefix
    belong to the content.
    """

    def __init__(
        self,
        snapshot: StoreSnapshot,
        renumber: Callable[[Words], Words] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        self._snapshot, self._renumber = snapshot, renumber
        changed, added = snapshot.changed_groups
        self._drop, self._add = changed[~snapshot.still_stored(changed)], added[0]
        self._bounds: tuple[Words, Words] | None = None
        if part is not None:
            (bits, prefix), words = part, snapshot.width.words
            step = 1 << WORD_BITS * words - bits
            self._bounds = (
                number_to_row(prefix * step, words),
                number_to_row((prefix + 1) * step - 1, words),
            )

    def groups(self) -> Iterator[Groups]:
        """Start a pass over (fingerprints, number of ids of each, id numbers), ascending."""
        for group in self._snapshot.groups():
            if self._bounds is not None:
                first, last = self._bounds
                if not row_place(group[0][:1], last, "right"):
                    return
                group, _ = cut_groups(cut_groups(group, first, "left")[1], last, "right")
                if not len(group[0]):
                    continue
            keys, counts, ids = group
            yield group if self._renumber is None else _sort_ids(keys, counts, self._renumber(ids))

    def keys(self, spec: TableSpec, stop: _kernel.Stop | None = None) -> Iterator[Words] | None:
        """Start a pass over the permuted fingerprints, ascending.

        None if no table has them in this order.

        Each piece is valid until the next. When another thread sets ``stop``, the pass ends soon
        with InterruptedError.
        """
        if spec.kind == REFERENCES:
            return None  # the numbers of the rows change
        tables = self._snapshot.generation.tables
        places = (
            i
            for i, own in enumerate(self._snapshot.generation.design.tables)
            if own.kind != REFERENCES
        )
        table = next(
            (tables[i] for i in places if tables[i].kernel.permutation == spec.permutation), None
        )
        if table is None:
            return None
        permutation = np.frombuffer(spec.permutation, np.uint8)
        keys = self._apply_changes(table, permutation, stop)
        return (
            keys
            if self._bounds is None
            else self._select_range(keys, permutation, *map(leading_words, self._bounds))
        )

    def shape(self) -> tuple[int, int] | None:
        """Return the number of fingerprints and their digest; None if that takes a pass."""
        if self._bounds is not None:
            return None
        record = self._snapshot.generation.record
        added, dropped = (_kernel.digest(keys) for keys in (self._add, self._drop))
        count = record.fingerprints + len(self._add) - len(self._drop)
        return count, (record.set_digest + added - dropped) % 2**64

    def _apply_changes(
        self, table: Table, permutation: npt.NDArray[np.uint8], stop: _kernel.Stop | None
    ) -> Iterator[Words]:
        drop, add = np.empty_like(self._drop), np.empty_like(self._add)
        for keys, out in ((self._drop, drop), (self._add, add)):
            _kernel.permute_sort(keys, permutation, out, np.empty_like(out), len(permutation), stop)
        dropped = added = 0
        pieces = table.pieces(reuse=True) if isinstance(table, PackedTable) else table.pieces()
        buffer = empty_rows_like(drop, 0)
        for keys in stop_between((keys for keys, _ in pieces), stop):
            drop_end = dropped + row_place(drop[dropped:], keys[-1:], "right")
            add_end = added + row_place(add[added:], keys[-1:], "right")
            if drop_end > dropped or add_end > added:
                if len(buffer) < len(keys) + add_end - added:
                    buffer = empty_rows_like(keys, 2 * (len(keys) + add_end - added))
                n = _kernel.merge_keys(keys, drop[dropped:drop_end], add[added:add_end], buffer)
                dropped, added = drop_end, add_end
                keys = buffer[:n]
            if len(keys):
                yield keys
        yield from (add[i : i + COPY_ROWS] for i in range(added, len(add), COPY_ROWS))

    @staticmethod
    def _select_range(
        keys: Iterator[Words], permutation: npt.NDArray[np.uint8], low: Words, high: Words
    ) -> Iterator[Words]:
        for piece in keys:
            leads = leading_words(_kernel.permute(piece, permutation, inverse=True))
            selected = piece[(leads >= low) & (leads <= high)]
            if len(selected):
                yield selected


class UnitedContent:
    """The content of several snapshots; a fingerprint in several of them has the ids of all."""

    def __init__(self, sources: Sequence[SnapshotContent]) -> None:
        self._sources = sources

    def groups(self) -> Iterator[Groups]:
        """Start a pass over everything, with ids."""
        return unite_groups([source.groups() for source in self._sources])

    def keys(self, spec: TableSpec, stop: _kernel.Stop | None = None) -> Iterator[Words] | None:
        """Start a pass over the tables with this permutation, if all sources have one."""
        streams: list[Iterator[tuple[Words]]] = []
        for source in self._sources:
            keys = source.keys(spec, stop)
            if keys is None:
                return None
            streams.append((piece,) for piece in keys)
        return (piece for (piece,) in _union_all(streams, _cut_keys, _union_keys))

    def shape(self) -> None:
        """Return None: the overlap of the sources is not known beforehand."""


Content = SnapshotContent | UnitedContent


def _union_all(
    streams: list[Iterator[T]],
    cut: Callable[[T, Words, str], tuple[T, T]],
    unite: Callable[[T, T], T],
) -> Iterator[T]:
    """Merge ascending streams as a balanced tree, so that each piece passes through few unions."""
    while len(streams) > 1:
        pairs = [
            _union(streams[i], streams[i + 1], cut, unite) for i in range(0, len(streams) - 1, 2)
        ]
        streams = pairs + streams[len(pairs) * 2 :]
    return streams[0]


def _union(
    left: Iterator[T],
    right: Iterator[T],
    cut: Callable[[T, Words, str], tuple[T, T]],
    unite: Callable[[T, T], T],
) -> Iterator[T]:
    """Merge two ascending streams of pieces, which are tuples that begin with their keys.

    This takes the memory of two pieces.
    """
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None:
        ends: tuple[Words, Words] = a[0][-1:], b[0][-1:]  # type: ignore[index]
        bound = ends[row_place(ends[1], ends[0], "right")]
        below_a, above_a = cut(a, bound, "right")
        below_b, above_b = cut(b, bound, "right")
        yield unite(below_a, below_b)
        a = above_a if len(above_a[0]) else next(left, None)  # type: ignore[index]
        b = above_b if len(above_b[0]) else next(right, None)  # type: ignore[index]
    for first, stream in ((a, left), (b, right)):
        if first is not None:
            yield first
            yield from stream


def _cut_keys(piece: tuple[Words], bound: Words, side: str) -> tuple[tuple[Words], tuple[Words]]:
    at = row_place(piece[0], bound, side)
    return (piece[0][:at],), (piece[0][at:],)


def _union_keys(a: tuple[Words], b: tuple[Words]) -> tuple[Words]:
    out = empty_rows_like(a[0], len(a[0]) + len(b[0]))
    return (out[: _kernel.merge_keys(a[0], a[0][:0], b[0], out)],)


def _union_groups(a: Groups, b: Groups) -> Groups:
    return _kernel.union_groups(*a, *b)


def unite_groups(streams: list[Iterator[Groups]]) -> Iterator[Groups]:
    """Merge ascending streams of groups; equal keys have the numbers of all."""
    return _union_all(streams, cut_groups, _union_groups)


def _sort_ids(keys: Words, counts: Words, ids: Words) -> Groups:
    """Sort the ids of each fingerprint again, and drop repeated ones."""
    owner = np.repeat(np.arange(len(keys)), counts.astype(np.int64))
    order = np.lexsort((ids, owner))
    owner, ids = owner[order], ids[order]
    new = np.ones(len(ids), bool)
    new[1:] = (np.diff(owner) != 0) | (np.diff(ids) != 0)
    return keys, np.bincount(owner[new], minlength=len(keys)).astype(np.uint64), ids[new]


# Writing


def mark_used(
    groups: Iterable[Groups], used: npt.NDArray[np.bool_], folder: Path
) -> Iterator[Groups]:
    """Yield the groups, and set ``used`` at each number of a string that occurs."""
    for keys, counts, ids in groups:
        if len(ids) and int(ids.max()) >= len(used):
            raise CorruptStoreError(
                f"{folder}: id number {int(ids.max())} has no string", path=folder
            )
        used[ids] = True
        yield keys, counts, ids


def write_sorted(
    writer: GenerationWriter,
    source: Content,
    design: Design,
    resources: Resources,
    used: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Write the tables and the ids durably, and set ``used`` at each id number that occurs."""
    with writer:
        _Stream(writer, source, design, resources).write(used)
        writer.finish()


class _Stream:
    def __init__(
        self, writer: GenerationWriter, source: Content, design: Design, resources: Resources
    ) -> None:
        self._writer, self._source, self._design = writer, source, design
        self._work = writer.work
        self._threads = resources.threads
        self._each = resources.for_each(min(resources.threads, len(design.tables)))
        self._buffers: list[Words] = []  # free ones, each for the keys of a table

    def write(self, used: npt.NDArray[np.bool_] | None) -> None:
        self._work.expect(PHASE_MERGE, None)
        shape, summary = self._source.shape(), None
        if shape is None:
            summary = self._summarize()
            shape = summary.count, summary.digest
        self._work.expect(PHASE_MERGE, shape[0] * len(self._design.tables))
        self._writer.begin(self._design, *shape)
        parts: list[Callable[[], None]] = [partial(self._write_identity, summary, used)]
        parts += [partial(self._write_table, table) for table in range(1, len(self._design.tables))]
        try:
            self._work.run_in_threads(self._threads, parts)
        finally:
            self._buffers.clear()

    def _sorted_keys(self) -> Iterator[Words]:
        keys = self._source.keys(self._design.tables[0], self._work.stop)
        assert keys is not None, "the first table of every store is in order of the fingerprints"
        return keys

    def _summarize(self) -> KeySummary:
        summary = KeySummary()
        for piece in cut_pieces(self._sorted_keys()):
            summary.add(piece)
            self._work.tick()
        return summary

    def _write_identity(
        self, summary: KeySummary | None, used: npt.NDArray[np.bool_] | None
    ) -> None:
        histogram = (summary or self._summarize()).counts
        groups = self._source.groups() if self._threads == 1 else read_ahead(self._source.groups())
        self._writer.write_identity(
            histogram, groups if used is None else mark_used(groups, used, self._writer.folder)
        )

    def _write_table(self, number: int) -> None:
        writer, spec, stop = self._writer, self._design.tables[number], self._work.stop
        count = writer.fingerprints
        keys = self._source.keys(spec, stop)
        if keys is None:
            # No source has this order.
            sorted_keys = TableKeys(self._sorted_keys, count, spec, writer.folder, self._each, stop)
            try:
                writer.write_table(number, sorted_keys)
            finally:
                sorted_keys.close()
        elif count * WORD_BYTES * spec.width.words <= self._each.memory:
            buffer, rows = self._take_buffer(count), 0
            for piece in cut_pieces(keys):
                buffer[rows : rows + len(piece)] = piece
                rows += len(piece)
                self._work.tick()
            writer.write_table(number, lambda: [buffer[:rows]])
            self._buffers.append(buffer)
        else:
            writer.write_table(number, lambda: self._source.keys(spec, stop) or ())

    def _take_buffer(self, count: int) -> Words:
        try:
            return self._buffers.pop()
        except IndexError:  # all are in use
            return sort_buffer(count, self._design.width.words)
