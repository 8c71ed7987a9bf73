"""Joins: the pairs of one set or of two within a radius, and the rows that pairs connect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from fpstore.base.width import Distances, row_words
from fpstore.design.joins import JoinDesign
from fpstore.design.tables import TableSpec
from fpstore.jobs.sorting import ROOM, SortedTable, Span, SpanSorter, TableSorter, sample_spans
from fpstore.work.checkpoint import Checkpoint
from fpstore.work.pieces import Pieces

BATCH_PAIRS = 1 << 18
MIN_ROWS = 1 << 15  # of a part of a table that a thread takes
PARTS = 4  # of a sorted table for each thread
LINK_BYTES = 8  # for each row of a linked table, besides the sorting
SPANS = "spans of tables were searched"
UNBOUNDED = Resources(1 << 62, 1)


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances

    def part(self, start: int, end: int) -> PairColumns:
        return PairColumns(self.a[start:end], self.b[start:end], self.distances[start:end])


Search = _kernel.PairJoin | _kernel.Linking  # finds pairs in batches
Start = Callable[[Sequence[SortedTable], Span], Search]  # of a search in a span of a table
Begin = Callable[[_kernel.Stop | None], Iterator[PairColumns]]  # runs a search
_Part = tuple[Begin, float]  # a search that has not begun, and the number of its rows


def pairs_within(
    rows: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
    linked: bool = False,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of a set of distinct, ascending rows.

    If ``linked``, yield at most two pairs for each row from each table, which connect the same rows
    as all pairs do. Threads share the buckets of a table. One thread alone sorts a table whose
    design flips bits, searches its links, or compares a design of one bucket. The memory is for the
    tables. The progress counts the rows of all tables. A checkpoint keeps the pairs of each span of
    a table. With ``only``, the number of a table, yield the pairs that meet in it and in no table
    before.
    """
    if design.radius == 0:
        return iter(())  # rows are distinct
    return _search_tables([rows], design, resources, checkpoint, linked=linked, only=only)


def pairs_between(
    rows: Words,
    other_rows: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of a row of each set, in this order, like :func:`pairs_within`.

    It is faster if the first set is the smaller one.
    """
    return _search_tables([rows, other_rows], design, resources, checkpoint, only=only)


def _search(
    design: JoinDesign, number: int, linked: bool, sides: Sequence[SortedTable], span: Span
) -> Search:
    """Return a search in a span of a table; only the first table reports a pair."""
    spec, table, table_count = design.tables[number], sides[0], number + 1
    rules = (
        table.rows,
        table.starts,
        table.tags,
        np.frombuffer(spec.permutation, np.uint8),
        design.bucket_masks[:table_count],
        design.tag_masks[:table_count],
        list(design.flips[:table_count]),
        list(design.both[:table_count]),
        spec.tag_bits,
        design.radius,
    )
    if linked:
        return _kernel.Linking(*rules)
    return _kernel.PairJoin(*rules, span.first, span.end, sides[1] if len(sides) > 1 else None)


def _search_tables(
    sides: Sequence[Words],
    design: JoinDesign,
    resources: Resources,
    checkpoint: Checkpoint | None,
    *,
    linked: bool = False,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of each table, sorted as a whole or, if buckets are independent, by spans."""
    threads, rows, in_spans = resources.threads, max(map(len, sides)), _SpanSearches(sides, linked)
    phase, done, total = "clustering" if linked else "finding pairs", 0.0, rows * len(design.tables)

    def report_part(rows_of_part: float) -> None:
        nonlocal done
        done += rows_of_part
        resources.report(phase, round(done), total)

    report_part(0)
    sorters: list[TableSorter] = []
    # searches in spans of several tables, so that no thread waits for the end of a table
    waiting: list[_Part] = []
    for number, spec in [*enumerate(design.tables)][
        slice(only, None if only is None else only + 1)
    ]:
        search = partial(_search, design, number, linked)
        parts = _parts(sides, design.flips[number], resources)
        saved = {} if checkpoint is None else _saved_spans(checkpoint, number)
        spans = _covering(saved, 1 << spec.prefix_bits)
        if parts > 1 and spans is None:
            spans = sample_spans(max(sides, key=len), spec, parts)
        begins: list[Begin]
        if parts > 1 and spans is not None:
            sorters = []
            begins = [partial(in_spans.find, spec, search, span, len(spans)) for span in spans]
        else:
            parts, tables = 1, []
            if spans is None:
                room = resources.memory // len(sides) - (LINK_BYTES * rows if linked else 0)
                sorters = sorters or [TableSorter(side, linked, room) for side in sides]
                tables = [sorter.sort(spec) for sorter in sorters]
                spans = [Span(0, 1 << spec.prefix_bits)]
                if threads > 1 and not linked:
                    spans = _even_spans(
                        tables[0], max(min(len(tables[0].rows) // MIN_ROWS, PARTS * threads), 1)
                    )
            begins = [partial(_search_results, search, tables, span) for span in spans]
        if checkpoint is not None:
            begins = [
                _with_checkpoint(checkpoint, number, span, begin, saved.get(span))
                for span, begin in zip(spans, begins, strict=True)
            ]
        waiting += [(begin, rows / len(spans)) for begin in begins]
        if parts == 1:
            yield from _run_searches(waiting, threads, report_part)
            waiting = []
    yield from _run_searches(waiting, threads, report_part)


def _search_results(
    search: Start, tables: Sequence[SortedTable], span: Span, stop: _kernel.Stop | None
) -> Iterator[PairColumns]:
    """Yield the batches of a search, at least one."""
    results = search(tables, span)
    while True:
        yield PairColumns(*results.more(BATCH_PAIRS, stop=stop))
        if results.done:
            return


class _SpanSearches:
    """Sorts and searches spans of tables; each thread reuses its arrays."""

    def __init__(self, sides: Sequence[Words], linked: bool) -> None:
        self._sides, self._linked = sides, linked
        self._free: list[list[SpanSorter]] = []

    def find(
        self, spec: TableSpec, search: Start, span: Span, parts: int, stop: _kernel.Stop | None
    ) -> Iterator[PairColumns]:
        """Yield the pairs of one of ``parts`` spans of a table."""
        try:
            sorters = self._free.pop()
        except IndexError:  # no test before pop: another thread may take the last
            sorters = [SpanSorter(rows, self._linked) for rows in self._sides]
        tables = [
            s.sort(spec, span, len(rows) // parts, stop)
            for s, rows in zip(sorters, self._sides, strict=True)
        ]
        yield from _search_results(search, tables, span, stop)
        self._free.append(sorters)


# Parts of a checkpoint: the pairs of each span, with the number of its first bucket


def _saved_spans(checkpoint: Checkpoint, number: int) -> dict[Span, Pieces]:
    """Return the results for spans of a table."""
    stage = f"table-{number}"
    results = [(first, checkpoint.result(stage, first)) for first in checkpoint.numbers(stage)]
    return {
        Span(first, pieces.facts["end"]): pieces for first, pieces in results if pieces is not None
    }


def _covering(saved: Iterable[Span], buckets: int) -> list[Span] | None:
    """Return spans that have all buckets of a table, or None."""
    spans, end = list[Span](), 0
    for span in saved:
        if span.first == end:
            spans.append(span)
            end = span.end
    return spans if end == buckets else None


def _with_checkpoint(
    checkpoint: Checkpoint, number: int, span: Span, begin: Begin, saved: Pieces | None
) -> Begin:
    """Return a search that saves the pairs of a span, or yields saved ones."""
    checkpoint.note(SPANS, int(saved is not None), 1)
    if saved is not None:
        return lambda _: read_saved_pairs(saved)
    return lambda stop: save_pairs(
        checkpoint, f"table-{number}", span.first, begin(stop), end=span.end
    )


def read_saved_pairs(pieces: Pieces) -> Iterator[PairColumns]:
    for batch in range(pieces.facts["batches"]):
        yield PairColumns(*(pieces.read(f"{name}-{batch}") for name in PairColumns._fields))


def save_pairs(
    checkpoint: Checkpoint, stage: str, number: int, pairs: Iterator[PairColumns], **facts: int
) -> Iterator[PairColumns]:
    """Yield pairs, and save them as a result with some facts, batch by batch."""
    with checkpoint.create_result(stage, number) as writer:
        writer.facts |= {**facts, "batches": 0}
        for batch, columns in enumerate(pairs):
            for name, column in columns._asdict().items():
                writer.add(f"{name}-{batch}", column)
            writer.facts["batches"] = batch + 1
            yield columns


# Spans, and the threads that search them


def _parts(sides: Sequence[Words], flips: int, resources: Resources) -> int:
    """Return the number of spans to sort a table in: one where pairs meet in different buckets."""
    if flips:
        return 1
    count = sum(map(len, sides))
    row = 2 * ROOM * row_words(sides[0])  # bytes in the table, and in a scratch array
    least = min(resources.threads, max(count // MIN_ROWS, 1))
    needed = count * row * resources.threads // max(resources.memory, 1)
    return max(least, needed + 1 if needed else 1)


def _even_spans(table: SortedTable, parts: int) -> list[Span]:
    count, last = len(table.rows), len(table.starts) - 1
    row_bounds = np.arange(1, parts, dtype=np.uint64) * np.uint64(count) // np.uint64(parts)
    bounds = [0, *np.searchsorted(table.starts, row_bounds).tolist(), last]
    return [Span(first, end) for first, end in pairwise(bounds) if first < end]


def _run_searches(
    parts: Sequence[_Part], threads: int, report_part: Callable[[float], None]
) -> Iterator[PairColumns]:
    if threads == 1 or len(parts) == 1:
        for begin, rows in parts:
            yield from begin(None)
            report_part(rows)
        return
    waiting, stop = iter(parts), _kernel.Stop()
    with Pool(threads) as pool:

        def start(part: _Part) -> tuple[float, Iterator[PairColumns], Future[PairColumns | None]]:
            results = part[0](stop)
            return part[1], results, pool.submit(next, results, None)  # None at its end

        try:
            running = deque(map(start, islice(waiting, threads)))
            while running:
                rows, results, job = running.popleft()
                columns = pool.result(job)
                if columns is None:
                    report_part(rows)
                    running.extend(map(start, islice(waiting, 1)))
                else:
                    running.append((rows, results, pool.submit(next, results, None)))
                    yield columns
        except BaseException:
            stop.set()
            raise


# The rows that pairs connect


def connect_rows(
    rows: Words,
    design: JoinDesign,
    resources: Resources = UNBOUNDED,
    checkpoint: Checkpoint | None = None,
) -> npt.NDArray[np.uint32] | npt.NDArray[np.uint64]:
    """Return for each row of a set the first row that is connected with it.

    Rows are connected by pairs within the design's radius, and by chains of such pairs. The links
    of a table connect the same rows as its pairs do (docs/design.md, "Joins: all pairs, and
    clusters"), and the pairs of all tables are all pairs.
    """
    sets, index = _kernel.Sets(len(rows)), _kernel.RowIndex(rows)
    for links in pairs_within(rows, design, resources, checkpoint, linked=True):
        sets.unite(index.places(links.a), index.places(links.b))
    return sets.names()
