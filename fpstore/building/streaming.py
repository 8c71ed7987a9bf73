"""Writing a generation of any size from sorted sources, as streams: what a merge and a split do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Groups, Words
from fpstore.base.resources import Resources
from fpstore.base.threads import ahead
from fpstore.building.external_sort import in_pieces, sort_room
from fpstore.building.generation_writer import GenerationWriter
from fpstore.building.sources import SortedSource
from fpstore.building.table_keys import TableKeys
from fpstore.design.families import Design
from fpstore.errors import CorruptStoreError
from fpstore.format.histogram import KeySummary

PHASE_MERGE = "merging"
WORD_BYTES = 8  # of a word of the sorted keys that are kept


def write_sorted(
    writer: GenerationWriter, source: SortedSource, design: Design, resources: Resources, used: npt.NDArray[np.bool_] | None
) -> None:
    """Write the tables and the ids of sorted content, and make them durable.

    Parameters
    ----------
    writer : GenerationWriter
    source : SortedSource
    design : Design
    resources : Resources
    used : ndarray of bool, optional
        Where to note which id numbers occur.

    Raises
    ------
    OSError
        The system refused a write.
    """
    with writer:
        _Stream(writer, source, design, resources).write(used)
        writer.finish()


class _Stream:
    def __init__(self, writer: GenerationWriter, source: SortedSource, design: Design, resources: Resources) -> None:
        self._writer, self._source, self._design = writer, source, design
        self._work = writer.work
        self._threads = resources.threads
        self._each = resources.for_each(min(resources.threads, len(design.tables)))
        self._rooms: list[Words] = []  # for the keys of a table, free for the next ones

    def write(self, used: npt.NDArray[np.bool_] | None) -> None:
        self._work.expect(PHASE_MERGE, None)
        shape, counted = self._source.shape(), None
        if shape is None:
            counted = self._counted()
            shape = counted.count, counted.digest
        self._work.expect(PHASE_MERGE, shape[0] * len(self._design.tables))
        self._writer.begin(self._design, *shape)
        parts: list[Callable[[], None]] = [partial(self._identity, counted, used)]
        parts += [partial(self._table, table) for table in range(1, len(self._design.tables))]
        try:
            self._work.share(self._threads, parts)
        finally:
            self._rooms.clear()

    def _sorted(self) -> Iterator[Words]:
        keys = self._source.keys(self._design.tables[0], self._work.stop)
        assert keys is not None, "the first table of every store is in order of the fingerprints"
        return keys

    def _counted(self) -> KeySummary:
        """Return what a pass over the fingerprints tells."""
        summary = KeySummary()
        for piece in in_pieces(self._sorted()):
            summary.add(piece)
            self._work.tick()
        return summary

    def _identity(self, counted: KeySummary | None, used: npt.NDArray[np.bool_] | None) -> None:
        histogram = (counted or self._counted()).histogram
        groups = self._source.groups() if self._threads == 1 else ahead(self._source.groups())
        self._writer.write_identity(histogram, groups if used is None else self._noting(groups, used))

    def _noting(self, groups: Iterable[Groups], used: npt.NDArray[np.bool_]) -> Iterator[Groups]:
        for keys, counts, ids in groups:
            if len(ids) and int(ids.max()) >= len(used):
                folder = self._writer.folder
                raise CorruptStoreError(f"{folder}: id number {int(ids.max())} has no string", path=folder)
            used[ids] = True
            yield keys, counts, ids

    def _table(self, number: int) -> None:
        writer, spec, stop = self._writer, self._design.tables[number], self._work.stop
        count = writer.fingerprints
        keys = self._source.keys(spec, stop)
        if keys is None:
            # No source has this order.
            made = TableKeys(self._sorted, count, spec, writer.folder / f"table-{number}.tmp", self._each, stop)
            try:
                writer.write_table(number, made)
            finally:
                made.close()
        elif count * WORD_BYTES * spec.width.words <= self._each.memory:
            room = self._room(count)
            writer.write_table(number, _Kept(keys, room))
            self._rooms.append(room)
        else:
            writer.write_table(number, lambda: self._source.keys(spec, stop) or ())

    def _room(self, count: int) -> Words:
        try:
            return self._rooms.pop()
        except IndexError:  # all are in use
            return sort_room(count, self._design.width.words)


class _Kept:
    """Starts passes over keys that come only once: the first keeps them in an array of this length, which the next ones read."""

    def __init__(self, keys: Iterable[Words], room: Words) -> None:
        self._keys: Iterable[Words] | None = keys
        self._room, self._rows = room, 0

    def __call__(self) -> Iterator[Words]:
        """Start a pass."""
        if self._keys is None:
            return in_pieces([self._room[: self._rows]])
        keys, self._keys = self._keys, None
        return self._keeping(keys)

    def _keeping(self, keys: Iterable[Words]) -> Iterator[Words]:
        for piece in in_pieces(keys):
            self._room[self._rows : self._rows + len(piece)] = piece
            self._rows += len(piece)
            yield piece
