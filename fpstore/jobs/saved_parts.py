"""The pairs of a join in the parts of a checkpoint; a span that was searched before is read from there."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from fpstore import _kernel
from fpstore.jobs.checkpoint import Checkpoint, PartWriter
from fpstore.jobs.sorting import Span

SPANS = "spans of tables were searched"


class ArrayTuple(Protocol):
    """A named tuple of arrays."""

    def _asdict(self) -> dict[str, Any]: ...


C = TypeVar("C", bound=ArrayTuple)
Found = TypeVar("Found", covariant=True)


class Task(Protocol[Found]):
    """A search that returns its results some at a time."""

    done: bool

    def more(self, stop: _kernel.Stop | None = None) -> Found:
        """Return some."""


class SavedSpans(Generic[C]):
    """The parts of a checkpoint that hold the results of spans; without a checkpoint, nothing is kept.

    Parameters
    ----------
    kept : Checkpoint, optional
    make : callable
        Makes a batch of columns with names.
    """

    def __init__(self, kept: Checkpoint | None, make: Callable[..., C]) -> None:
        self._kept, self._make = kept, make
        self._batches: dict[str, int | None] = {}  # of parts that were looked at

    def _count(self, kept: Checkpoint, name: str) -> int | None:
        if name not in self._batches:
            self._batches[name] = kept.count(name)
        return self._batches[name]

    def whole(self, number: int, buckets: int) -> list[Span] | None:
        """Return the spans in which all buckets of a table were searched; None if some were not."""
        spans: list[Span] = []
        end = 0
        if self._kept is None:
            return None
        names = [name.split("-") for name in self._kept.names(f"table-{number}-")]
        for span in sorted(Span(*map(int, name)) for name in names if len(name) == 2 and all(map(str.isdecimal, name))):
            if span.first == end and self._count(self._kept, _name(number, span)):
                spans.append(span)
                end = span.end
        return spans if end == buckets else None

    def task(self, number: int, span: Span, search: Task[C]) -> Task[C]:
        """Return an iterator of the results of a search in a span; it keeps them, unless they are kept already."""
        if self._kept is None:
            return search
        name = _name(number, span)
        batches = self._count(self._kept, name)
        self._kept.note(SPANS, int(bool(batches)), 1)
        if not batches:
            return _Kept(search, partial(self._kept.write, name))
        return _Read(self._kept.read(name), batches, self._make)


def _name(number: int, span: Span) -> str:
    return f"table-{number}-{span.first}-{span.end}"


def saved_batches(kept: Checkpoint, name: str, found: Iterator[C], make: Callable[..., C]) -> Iterator[C]:
    """Yield the results of a search and keep them as a part; or yield the kept part, and do not search."""
    if kept.count(name) is None:
        part = kept.write(name)
        for columns in found:
            part.append(columns._asdict())
            yield columns
        part.finish()
        return
    for batch in kept.read(name):
        yield make(**batch)


class _Kept(Generic[C]):
    """A search whose results are written to a part."""

    def __init__(self, search: Task[C], begin: Callable[[], PartWriter]) -> None:
        self._search, self._begin = search, begin
        self._part: PartWriter | None = None
        self.done = False

    def more(self, stop: _kernel.Stop | None = None) -> C:
        """Return some."""
        if self._part is None:
            self._part = self._begin()
        columns = self._search.more(stop)
        self._part.append(columns._asdict())
        if self._search.done:
            self._part.finish()
            self.done = True
        return columns


class _Read(Generic[C]):
    """Results that are read from a part."""

    def __init__(self, batches: Generator[dict[str, Any], None, None], count: int, make: Callable[..., C]) -> None:
        self._batches, self._left, self._make = batches, count, make
        self.done = False

    def more(self, stop: _kernel.Stop | None = None) -> C:
        """Return some."""
        columns = self._make(**next(self._batches))
        self._left -= 1
        if not self._left:
            self.done = True
            self._batches.close()  # and the file
        return columns
