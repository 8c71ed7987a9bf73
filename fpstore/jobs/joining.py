"""Joins: the pairs of one set or of two within a radius, and the rows that pairs connect."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import spans
from fpstore.base.pools import Job, Pool
from fpstore.base.resources import Resources
from fpstore.base.width import Distances
from fpstore.design.joins import JoinDesign
from fpstore.design.tables import TableSpec
from fpstore.jobs.sorting import PartedTable, SortedTable, Span, TableSorter
from fpstore.work.checkpoint import Checkpoint
from fpstore.work.pieces import Pieces

BATCH_PAIRS = 1 << 18
MIN_ROWS = 1 << 15  # of a span of a table that a thread takes
SPANS_PER_THREAD = 4  # of a table
SPANS = "spans of tables were searched"
UNBOUNDED = Resources(1 << 62, 1)


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances

    def part(self, start: int, end: int) -> PairColumns:
        return PairColumns(self.a[start:end], self.b[start:end], self.distances[start:end])


Start = Callable[[], _kernel.PairSearch]
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
    as all pairs do. Threads share the buckets of a table. A table that flips bits is sorted by one
    thread, which also finds its links; so is a table of one bucket. The memory is for the tables.
    The progress counts the rows of all tables. A checkpoint keeps the pairs of each span of a
    table. With ``only``, the number of a table, yield the pairs that meet in it and in no table
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


def _search_tables(
    sides: Sequence[Words],
    design: JoinDesign,
    resources: Resources,
    checkpoint: Checkpoint | None,
    *,
    linked: bool = False,
    only: int | None = None,
) -> Iterator[PairColumns]:
    """Yield the pairs of each table, whose spans are searched by threads."""
    threads, rows, done = resources.threads, max(map(len, sides)), 0.0
    phase, total = "clustering" if linked else "finding pairs", rows * len(design.tables)

    def report_part(rows_of_part: float) -> None:
        nonlocal done
        done += rows_of_part
        resources.report(phase, round(done), total)

    report_part(0)
    tables = _Tables(sides, design, resources, linked)
    for number in range(len(design.tables)) if only is None else [only]:
        # What refers to the rows of a table ends with it: the next one may need their memory.
        for parts in _searches(tables, number, rows, checkpoint):
            yield from _run_searches(parts, threads, report_part)
            del parts


def _searches(
    tables: _Tables, number: int, rows: int, checkpoint: Checkpoint | None
) -> Iterator[list[_Part]]:
    """Yield the searches of a table that can run at the same time."""
    saved = {} if checkpoint is None else _saved_spans(checkpoint, number)
    for spans_of_table in tables.spans(number, saved):
        parts: list[_Part] = []
        for span, start, share in spans_of_table:
            begin: Begin = partial(_search_results, start)
            if checkpoint is not None:
                begin = _with_checkpoint(checkpoint, number, span, begin, saved.get(span))
            parts.append((begin, rows * share))
        yield parts


def _search_results(start: Start, stop: _kernel.Stop | None) -> Iterator[PairColumns]:
    """Yield the batches of a search, at least one."""
    results = start()
    while True:
        yield PairColumns(*results.more(BATCH_PAIRS, stop=stop))
        if results.done:
            return


# The tables


_Spans = list[tuple[Span, Start, float]]  # with the share of a table that a span is


class _Tables:
    """The tables of a join, and the searches in spans of them."""

    def __init__(
        self, sides: Sequence[Words], design: JoinDesign, resources: Resources, linked: bool
    ) -> None:
        self._sides, self._design, self._resources = sides, design, resources
        self._linked = linked
        self._sorter = TableSorter(sides, linked, resources)

    def spans(self, number: int, saved: Iterable[Span]) -> Iterator[_Spans]:
        """Yield spans of a table whose rows are in memory at the same time.

        A span that is saved need not be in memory.
        """
        spec, rules = self._design.tables[number], self._rules(number)
        covering = _covering(saved, 1 << spec.prefix_bits)
        parted = None if covering or self._design.flips[number] else self._sorter.parts(spec)
        if covering:
            yield [
                (span, partial(self._start, rules, [], span), 1 / len(covering))
                for span in covering
            ]
        elif parted is not None:
            yield from self._spans_of_parts(spec, rules, parted, saved)
        else:
            yield self._spans_of_sorted(spec, rules)

    def _spans_of_parts(
        self,
        spec: TableSpec,
        rules: _kernel.JoinRules,
        table: PartedTable,
        saved: Iterable[Span],
    ) -> Iterator[_Spans]:
        bits, lims = table.bits, table.lims
        bucket_bits = spec.prefix_bits - bits
        for group in table.groups:
            spans_of_group = [
                slice(group.start + span.start, group.start + span.stop)
                for span in spans(
                    lims[group.start : group.stop + 1], self._span_rows(int(lims[-1]))
                )
            ]
            buckets = [
                Span(span.start << bucket_bits, span.stop << bucket_bits) for span in spans_of_group
            ]
            sides = [] if set(buckets) <= set(saved) else self._sorter.scatter(table, group)
            yield [
                (
                    named,
                    partial(
                        _kernel.PartSearch,
                        [
                            side.part(span.start - group.start, span.stop - group.start)
                            for side in sides
                        ],
                        rules,
                        spec.prefix_bits,
                        bits,
                        self._linked,
                    ),
                    int(lims[span.stop] - lims[span.start]) / max(int(lims[-1]), 1),
                )
                for named, span in zip(buckets, spans_of_group, strict=True)
            ]

    def _span_rows(self, rows: int) -> int:
        """Return the most rows of a span of a table of so many."""
        threads = self._resources.threads
        return max(rows if threads == 1 else -(-rows // (SPANS_PER_THREAD * threads)), MIN_ROWS)

    def _spans_of_sorted(self, spec: TableSpec, rules: _kernel.JoinRules) -> _Spans:
        """Sort a table as a whole; if rows are linked, one thread searches it."""
        tables = self._sorter.whole(spec)
        all_spans = [Span(0, 1 << spec.prefix_bits)]
        if self._resources.threads > 1 and not self._linked:
            rows = len(tables[0].rows)
            all_spans = _even_spans(tables[0], max(-(-rows // self._span_rows(rows)), 1))
        return [
            (span, partial(self._start, rules, tables, span), 1 / len(all_spans))
            for span in all_spans
        ]

    def _rules(self, number: int) -> _kernel.JoinRules:
        """Return how pairs meet in a table and in those before it."""
        design, spec, count = self._design, self._design.tables[number], number + 1
        return _kernel.JoinRules(
            np.frombuffer(spec.permutation, np.uint8),
            design.bucket_masks[:count],
            design.tag_masks[:count],
            list(design.flips[:count]),
            list(design.both[:count]),
            spec.tag_bits,
            design.radius,
        )

    def _start(
        self, rules: _kernel.JoinRules, tables: Sequence[SortedTable], span: Span
    ) -> _kernel.PairSearch:
        table = tables[0]
        if self._linked:
            return _kernel.Linking(table.rows, table.starts, table.tags, rules)
        opposite = tables[1] if len(tables) > 1 else None
        return _kernel.PairJoin(
            table.rows, table.starts, table.tags, rules, span.first, span.end, opposite
        )


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


def _even_spans(table: SortedTable, parts: int) -> list[Span]:
    count, last = len(table.rows), len(table.starts) - 1
    row_bounds = np.arange(1, parts, dtype=np.uint64) * np.uint64(count) // np.uint64(parts)
    bounds = [0, *np.searchsorted(table.starts, row_bounds).tolist(), last]
    return [Span(first, end) for first, end in pairwise(bounds) if first < end]


# The threads that search spans


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

        def start(part: _Part) -> tuple[float, Iterator[PairColumns], Job[PairColumns | None]]:
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
