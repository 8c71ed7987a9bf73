"""Joins: the pairs within a radius of a set in memory, or of two, in batches.

And the rows that such pairs connect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.pools import Pool
from fpstore.base.resources import Resources
from fpstore.base.width import Distances, words_of
from fpstore.design.joins import JoinDesign
from fpstore.design.tables import TableSpec
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.sorting import ROOM, SortedTable, Span, SpanSorter, TableSorter, spans_of

BATCH_PAIRS = 1 << 18
LEAST_ROWS = 1 << 15  # of a part of a table that a thread takes
PARTS = 4  # of a sorted table for each thread
LINK_BYTES = 8  # of a row of a table that is searched as a whole
SPANS = "spans of tables were searched"
UNBOUNDED = Resources(1 << 62, 1)


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances

    def part(self, start: int, end: int) -> PairColumns:
        """Return successive pairs."""
        return PairColumns(self.a[start:end], self.b[start:end], self.distances[start:end])


Search = _kernel.PairJoin | _kernel.Linking  # finds pairs, some at a time
Start = Callable[[Sequence[SortedTable], Span], Search]  # of the search in some buckets of a table
Begin = Callable[[_kernel.Stop | None], Iterator[PairColumns]]  # what such a search finds
_Part = tuple[Begin, float]  # a search that has not begun, and its number of rows


def pairs_within(
    rows: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
    linked: bool = False,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of a set in memory: distinct rows, ascending.

    If it is ``linked``, yield at most two pairs for each row from each table, which connect the
    same rows as all pairs do. Threads share the buckets of a table; one of a design that flips bits
    is sorted by one, and its links are searched by one. A design of one bucket is compared by one.
    The memory is for the tables. The progress counts the rows of all tables. A checkpoint keeps
    what is found in each span of a table. With ``only``, the number of a table, yield what meets in
    it, and in none before.
    """
    if design.radius == 0:
        return iter(())  # rows are distinct
    return _found([rows], design, resources, checkpoint, linked=linked, only=only)


def pairs_between(
    rows: Words,
    others: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of a row of one set and a row of another, in this order, like :func:`pairs_within`.

    It is faster if the first set is the smaller one.
    """
    return _found([rows, others], design, resources, checkpoint, only=only)


def _search(
    design: JoinDesign, number: int, linked: bool, sides: Sequence[SortedTable], span: Span
) -> Search:
    """Return a search in some buckets of a table.

    Of a pair that meets in several tables, the first one reports it.
    """
    spec, table, upto = design.tables[number], sides[0], number + 1
    rules = (
        table.rows,
        table.starts,
        table.tags,
        np.frombuffer(spec.permutation, np.uint8),
        design.bucket_masks[:upto],
        design.tag_masks[:upto],
        list(design.flips[:upto]),
        list(design.both[:upto]),
        spec.tag_bits,
        design.radius,
    )
    if linked:
        return _kernel.Linking(*rules)
    return _kernel.PairJoin(*rules, span.first, span.end, sides[1] if len(sides) > 1 else None)


def _found(
    sides: Sequence[Words],
    design: JoinDesign,
    resources: Resources,
    checkpoint: Checkpoint | None,
    *,
    linked: bool = False,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the results of each table, sorted as a whole, or span by span where spans of buckets do not meet."""
    threads, rows, in_spans = resources.threads, max(map(len, sides)), _SpanSearches(sides, linked)
    phase, done, total = "clustering" if linked else "finding pairs", 0.0, rows * len(design.tables)

    def ended(rows_of_part: float) -> None:
        nonlocal done
        done += rows_of_part
        resources.report(phase, round(done), total)

    ended(0)
    sorters: list[TableSorter] = []
    # of tables that are sorted in spans: threads go on with the next table
    waiting: list[_Part] = []
    for number, spec in [*enumerate(design.tables)][
        slice(only, None if only is None else only + 1)
    ]:
        search = partial(_search, design, number, linked)
        parts = _parts(sides, design.flips[number], resources)
        spans = saved = (
            None if checkpoint is None else _saved_spans(checkpoint, number, 1 << spec.prefix_bits)
        )
        if parts > 1 and spans is None:
            spans = spans_of(max(sides, key=len), spec, parts)
        begins: list[Begin]
        if parts > 1 and spans is not None:
            sorters = []
            begins = [partial(in_spans.find, spec, search, span, len(spans)) for span in spans]
        else:
            parts, tables = 1, []
            if spans is None:
                room = resources.memory // len(sides) - (LINK_BYTES * rows if linked else 0)
                sorters = sorters or [TableSorter(side, linked, room) for side in sides]
                tables = [sorter.sorted(spec) for sorter in sorters]
                spans = [Span(0, 1 << spec.prefix_bits)]
                if threads > 1 and not linked:
                    spans = _even_spans(
                        tables[0], max(min(len(tables[0].rows) // LEAST_ROWS, PARTS * threads), 1)
                    )
            begins = [partial(_searched, search, tables, span) for span in spans]
        if checkpoint is not None:
            begins = [
                _checkpointed(checkpoint, number, span, begin, saved is not None)
                for span, begin in zip(spans, begins, strict=True)
            ]
        waiting += [(begin, rows / len(spans)) for begin in begins]
        if parts == 1:
            yield from _streamed(waiting, threads, ended)
            waiting = []
    yield from _streamed(waiting, threads, ended)


def _searched(
    search: Start, tables: Sequence[SortedTable], span: Span, stop: _kernel.Stop | None
) -> Iterator[PairColumns]:
    """Yield what a search in some buckets of a table finds: one batch at least."""
    found = search(tables, span)
    while True:
        yield PairColumns(*found.more(BATCH_PAIRS, stop=stop))
        if found.done:
            return


class _SpanSearches:
    """Sorts spans of the tables of some sets, and searches them.

    Each thread sorts in arrays that its next span uses again.
    """

    def __init__(self, sides: Sequence[Words], linked: bool) -> None:
        self._sides, self._linked = sides, linked
        self._free: list[list[SpanSorter]] = []

    def find(
        self, spec: TableSpec, search: Start, span: Span, parts: int, stop: _kernel.Stop | None
    ) -> Iterator[PairColumns]:
        """Yield the results of a search in one of ``parts`` spans of a table."""
        try:
            sorters = self._free.pop()
        except IndexError:  # not asked before: another thread may take the last
            sorters = [SpanSorter(rows, self._linked) for rows in self._sides]
        tables = [
            s.sorted(spec, span, len(rows) // parts, stop)
            for s, rows in zip(sorters, self._sides, strict=True)
        ]
        yield from _searched(search, tables, span, stop)
        self._free.append(sorters)


# What a checkpoint keeps: what was found in a span is a part


def _name(number: int, span: Span) -> str:
    return f"table-{number}-{span.first}-{span.end}"


def _saved_spans(checkpoint: Checkpoint, number: int, buckets: int) -> list[Span] | None:
    """Return the spans in which all buckets of a table were searched; None if some were not."""
    spans: list[Span] = []
    end = 0
    names = [name.split("-") for name in checkpoint.names(f"table-{number}-")]
    for span in sorted(
        Span(*map(int, name)) for name in names if len(name) == 2 and all(map(str.isdecimal, name))
    ):
        if span.first == end and checkpoint.has(_name(number, span)):
            spans.append(span)
            end = span.end
    return spans if end == buckets else None


def _checkpointed(
    checkpoint: Checkpoint, number: int, span: Span, begin: Begin, is_there: bool
) -> Begin:
    """Return a search that keeps what it finds in a span, or one that yields what was kept."""
    name = _name(number, span)
    is_there = is_there or checkpoint.has(name)
    checkpoint.note(SPANS, int(is_there), 1)
    return lambda stop: (
        saved(checkpoint, name) if is_there else saving(checkpoint, name, begin(stop))
    )


def saved(checkpoint: Checkpoint, name: str) -> Iterator[PairColumns]:
    """Yield the pairs of a part."""
    return (PairColumns(**batch) for batch in checkpoint.read(name))


def saving(
    checkpoint: Checkpoint, name: str, found: Iterator[PairColumns]
) -> Iterator[PairColumns]:
    """Yield pairs, and make a part of them."""
    part = checkpoint.write(name)
    for columns in found:
        part.append(columns._asdict())
        yield columns
    part.finish()


# Spans, and the threads that search them


def _parts(sides: Sequence[Words], flips: int, resources: Resources) -> int:
    """Return the number of spans in which to sort a table.

    One where a pair may meet in buckets that differ.
    """
    if flips:
        return 1
    count = sum(map(len, sides))
    row = 2 * ROOM * words_of(sides[0])  # bytes in the table, and in a scratch array
    least = min(resources.threads, max(count // LEAST_ROWS, 1))
    needed = count * row * resources.threads // max(resources.memory, 1)
    return max(least, needed + 1 if needed else 1)


def _even_spans(table: SortedTable, parts: int) -> list[Span]:
    count, last = len(table.rows), len(table.starts) - 1
    wanted = np.arange(1, parts, dtype=np.uint64) * np.uint64(count) // np.uint64(parts)
    bounds = [0, *np.searchsorted(table.starts, wanted).tolist(), last]
    return [Span(first, end) for first, end in pairwise(bounds) if first < end]


def _streamed(
    parts: Sequence[_Part], threads: int, ended: Callable[[float], None]
) -> Iterator[PairColumns]:
    if threads == 1 or len(parts) == 1:
        for begin, rows in parts:
            yield from begin(None)
            ended(rows)
        return
    waiting, stop = iter(parts), _kernel.Stop()
    with Pool(threads) as pool:

        def begun(part: _Part) -> tuple[float, Iterator[PairColumns], Future[PairColumns | None]]:
            found = part[0](stop)
            return part[1], found, pool.submit(next, found, None)  # None at its end

        try:
            running = deque(map(begun, islice(waiting, threads)))
            while running:
                rows, found, job = running.popleft()
                columns = pool.result(job)
                if columns is None:
                    ended(rows)
                    running.extend(map(begun, islice(waiting, 1)))
                else:
                    running.append((rows, found, pool.submit(next, found, None)))
                    yield columns
        except BaseException:
            stop.set()
            raise


# The rows that pairs connect


def connected(
    rows: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
    """Return for each row of a set the first row that pairs within the design's radius connect with it.

    Connected are the rows of a pair, and what is connected with one that is connected. The links of
    a table connect the same rows as its pairs do (docs/design.md, "Joins: all pairs, and
    clusters"), and the pairs of all tables are all pairs.
    """
    sets, index = _kernel.Sets(len(rows)), _kernel.RowIndex(rows)
    for links in pairs_within(rows, design, resources, checkpoint, linked=True):
        sets.unite(index.places(links.a), index.places(links.b))
    return sets.names()
