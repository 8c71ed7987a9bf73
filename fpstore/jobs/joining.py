"""Joins: the pairs within a radius of a set in memory, or of two, in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Words
from fpstore.base.resources import Resources
from fpstore.base.threads import Pool
from fpstore.base.width import Distances, words_of
from fpstore.design.joins import JoinDesign
from fpstore.design.tables import TableSpec
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.saved_parts import SavedSpans, Task
from fpstore.jobs.sorting import ROOM, SortedTable, Span, SpanSorter, TableSorter, spans_of

BATCH_PAIRS = 1 << 18
LEAST_ROWS = 1 << 15  # of a part of a table that a thread takes
PARTS = 4  # of a sorted table for each thread
LINK_BYTES = 8  # of a row of a table that is searched as a whole
UNBOUNDED = Resources(1 << 62, 1)


class PairColumns(NamedTuple):
    """Pairs as rows, and their distances."""

    a: Words
    b: Words
    distances: Distances

    def part(self, start: int, end: int) -> PairColumns:
        """Return successive pairs."""
        return PairColumns(self.a[start:end], self.b[start:end], self.distances[start:end])


class Search(Protocol):
    """A search for pairs, some at a time."""

    @property
    def done(self) -> bool:
        """Whether there are no more."""

    def more(self, room: int, stop: _kernel.Stop | None = None) -> tuple[Words, Words, npt.NDArray[np.uint16]]:
        """Return the next pairs, about ``room`` at most."""


Start = Callable[[Sequence[SortedTable], Span], Search]  # of the search in some buckets of a table


def pairs_within(
    rows: Words, design: JoinDesign, resources: Resources = UNBOUNDED, kept: Checkpoint | None = None
) -> Iterator[PairColumns]:
    """Yield the pairs of a set in memory.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending.
    design : JoinDesign
    resources : Resources
        Threads share the buckets of a table; one of a design that flips bits is sorted by one, and a design of one bucket is
        compared by one. The memory is that of the tables. The progress is the phase "finding pairs", of the rows of all tables.
    kept : Checkpoint, optional
        Keeps what is found in each span of a table, and has what was found before.
    """
    if design.radius == 0:
        return iter(())  # rows are distinct
    return _found([rows], design, partial(_join, design), resources, kept)


def pairs_between(
    rows: Words, others: Words, design: JoinDesign, resources: Resources = UNBOUNDED, kept: Checkpoint | None = None
) -> Iterator[PairColumns]:
    """Yield the pairs of a row of one set in memory and a row of another, in this order.

    Parameters
    ----------
    rows, others : Words
        Distinct rows, ascending. It is faster if the first are fewer.
    design : JoinDesign
    resources, kept
        As for :func:`pairs_within`.
    """
    return _found([rows, others], design, partial(_join, design), resources, kept)


def links_within(
    rows: Words, design: JoinDesign, resources: Resources = UNBOUNDED, kept: Checkpoint | None = None
) -> Iterator[PairColumns]:
    """Yield links of a set in memory: at most two for each row from each table, however many pairs there are.

    Parameters
    ----------
    rows : Words
        Distinct rows, ascending; they are left as they are.
    design : JoinDesign
    resources, kept
        As for :func:`pairs_within`; a design that flips bits is searched by one thread, and the phase is "clustering".
    """
    if design.radius == 0:
        return iter(())
    return _found([rows], design, partial(_linking, design), resources, kept, linked=True)


class _Rules(NamedTuple):
    """The parameters of the kernel for a table and the tables before it: the first table in which a pair meets reports it."""

    permutation: Bytes
    bucket_masks: Words
    tag_masks: Words
    flips: list[int]
    both: list[int]
    tag_bits: int
    radius: int


def _rules(design: JoinDesign, number: int) -> _Rules:
    spec, upto = design.tables[number], number + 1
    return _Rules(
        np.frombuffer(spec.permutation, np.uint8), design.bucket_masks[:upto], design.tag_masks[:upto],
        list(design.flips[:upto]), list(design.both[:upto]), spec.tag_bits, design.radius,
    )  # fmt: skip


def _join(design: JoinDesign, number: int, sides: Sequence[SortedTable], span: Span) -> _kernel.PairJoin:
    first, end = span
    opposite = sides[1] if len(sides) > 1 else None
    return _kernel.PairJoin(*sides[0], **_rules(design, number)._asdict(), first=first, end=end, opposite=opposite)


def _linking(design: JoinDesign, number: int, sides: Sequence[SortedTable], span: Span) -> _kernel.Linking:
    return _kernel.Linking(*sides[0], **_rules(design, number)._asdict())


def _found(
    sides: Sequence[Words],
    design: JoinDesign,
    start: Callable[..., Search],
    resources: Resources,
    kept: Checkpoint | None,
    *,
    linked: bool = False,
) -> Iterator[PairColumns]:
    """Yield the results of each table, sorted as a whole, or span by span where spans of buckets do not meet."""
    threads, spans_of_sides, saved = resources.threads, _Spans(sides, linked), SavedSpans(kept, PairColumns)
    rows = max(map(len, sides))
    ended = _Ended(resources, "clustering" if linked else "finding pairs", rows * len(design.tables))
    sorters: list[TableSorter] = []
    waiting: list[_Part] = []  # of tables that are sorted in spans: threads go on with the next table
    for number, spec in enumerate(design.tables):
        search = partial(start, number)
        parts = _parts(sides, design.flips[number], resources)
        spans = saved.whole(number, 1 << spec.prefix_bits)
        if parts > 1 and spans is None:
            spans = spans_of(max(sides, key=len), spec, parts)
        if parts > 1 and spans is not None:
            sorters = []
            starts = [partial(spans_of_sides.start, spec, search, span, parts) for span in spans]
        else:
            parts = 1
            tables: list[SortedTable] = []
            if spans is None:
                room = resources.memory // len(sides) - (LINK_BYTES * rows if linked else 0)
                sorters = sorters or [TableSorter(side, linked, room) for side in sides]
                tables = [sorter.sorted(spec) for sorter in sorters]
                spans = [Span(0, 1 << spec.prefix_bits)]
                if threads > 1 and not linked:
                    spans = _even_spans(tables[0], max(min(len(tables[0].rows) // LEAST_ROWS, PARTS * threads), 1))
            starts = [partial(_start, search, tables, span) for span in spans]
        waiting += [
            _Part(saved.task(number, span, _Search(begin)), rows / len(spans)) for span, begin in zip(spans, starts, strict=True)
        ]
        if parts == 1:
            yield from _streamed(waiting, threads, ended)
            waiting = []
    yield from _streamed(waiting, threads, ended)


class _Part(NamedTuple):
    """A search, and the rows among which it looks."""

    task: Task[PairColumns]
    rows: float


class _Ended:
    """Counts the rows of the searches that have ended, and reports them."""

    def __init__(self, resources: Resources, phase: str, total: int) -> None:
        self._resources, self._phase, self._total = resources, phase, total
        self._done = 0.0
        resources.report(phase, 0, total)

    def add(self, part: _Part) -> None:
        """Count a search."""
        self._done += part.rows
        self._resources.report(self._phase, round(self._done), self._total)


def _start(
    search: Start, tables: Sequence[SortedTable], span: Span, stop: _kernel.Stop | None
) -> tuple[Search, Callable[[], None]]:
    return search(tables, span), lambda: None


class _Spans:
    """Starts the searches in spans of the tables of some sets; each thread sorts in arrays that the next span uses again."""

    def __init__(self, sides: Sequence[Words], linked: bool) -> None:
        self._sides, self._linked = sides, linked
        self._free: list[list[SpanSorter]] = []

    def start(
        self, spec: TableSpec, search: Start, span: Span, parts: int, stop: _kernel.Stop | None
    ) -> tuple[Search, Callable[[], None]]:
        """Return a search, and what to call when it has ended."""
        try:
            sorters = self._free.pop()
        except IndexError:  # not asked before: another thread may take the last
            sorters = [SpanSorter(rows, self._linked) for rows in self._sides]
        tables = [s.sorted(spec, span, len(rows) // parts, stop) for s, rows in zip(sorters, self._sides, strict=True)]
        return search(tables, span), partial(self._free.append, sorters)


def _parts(sides: Sequence[Words], flips: int, resources: Resources) -> int:
    """Return in how many spans to sort a table: one where a pair may meet in buckets that differ."""
    if flips:
        return 1
    count = sum(map(len, sides))
    row = 2 * ROOM * words_of(sides[0])  # bytes in the table, and in a scratch array
    least = min(resources.threads, max(count // LEAST_ROWS, 1))
    needed = count * row * resources.threads // max(resources.memory, 1)
    return max(least, needed + 1 if needed else 1)


def _even_spans(table: SortedTable, parts: int) -> list[Span]:
    """Return spans of a sorted table that have about as many rows each."""
    count, last = len(table.rows), len(table.starts) - 1
    wanted = np.arange(1, parts, dtype=np.uint64) * np.uint64(count) // np.uint64(parts)
    bounds = [0, *np.searchsorted(table.starts, wanted).tolist(), last]
    return [Span(first, end) for first, end in pairwise(bounds) if first < end]


class _Search:
    """A search of the kernel that begins when it is first asked for more."""

    def __init__(self, start: Callable[[_kernel.Stop | None], tuple[Search, Callable[[], None]]]) -> None:
        self._start = start
        self._search: Search | None = None
        self._end: Callable[[], None] = lambda: None
        self.done = False

    def more(self, stop: _kernel.Stop | None = None) -> PairColumns:
        """Return the next pairs."""
        if self._search is None:
            self._search, self._end = self._start(stop)
        columns = PairColumns(*self._search.more(BATCH_PAIRS, stop=stop))
        self.done = self._search.done
        if self.done:
            self._search = None  # before another one uses its arrays
            self._end()
        return columns


def _streamed(parts: Iterable[_Part], threads: int, ended: _Ended) -> Iterator[PairColumns]:
    parts = list(parts)
    if threads == 1 or len(parts) == 1:
        for part in parts:
            while not part.task.done:
                yield part.task.more()
            ended.add(part)
        return
    waiting, stop = iter(parts), _kernel.Stop()
    with Pool(threads) as pool:
        try:
            running = deque((part, pool.submit(part.task.more, stop=stop)) for part in islice(waiting, threads))
            while True:
                if not running:
                    return
                part, job = running.popleft()
                columns = job.result()
                if part.task.done:
                    ended.add(part)
                for further in islice(waiting, 1) if part.task.done else [part]:
                    running.append((further, pool.submit(further.task.more, stop=stop)))
                yield columns
        except BaseException:
            stop.set()
            raise
