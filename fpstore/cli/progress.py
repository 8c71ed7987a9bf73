"""Progress bars on standard error, on a terminal only: phase, share, rate, time left."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from fpstore.cli.signals import raise_again

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Source(Protocol):
    """An input that counts the bytes read."""

    @property
    def bytes_total(self) -> int | None:
        """All bytes, None when unknown."""

    @property
    def bytes_done(self) -> int:
        """Bytes read so far."""


class Bars:
    """A context manager, called as ``bars(phase, done, total)`` from any thread; shows one phase at a time.

    Parameters
    ----------
    wanted : bool
        False shows nothing; neither does a standard error that is not a terminal.
    source : Source, optional
        Gives the share done, in bytes, while a phase has no total.
    """

    def __init__(self, wanted: bool, source: Source | None = None) -> None:
        self._shown = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._source = source
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._phase = ""

    def __enter__(self) -> Self:
        if self._shown:
            self._progress = _bars()
            self._progress.start()
            if self._source is not None:
                self("reading", 0)  # so that a bar is there before the first rows are
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None = None) -> None:
        """Show how far a phase is: ``done`` of ``total`` rows. A signal that somebody has ignored is raised again."""
        raise_again()
        progress = self._progress
        if progress is None:
            return
        with self._lock:
            if self._task is None or phase != self._phase:
                self._next(progress, phase)
            assert self._task is not None
            share, whole = done, total
            source = self._source
            if total is None and source is not None and source.bytes_total is not None and source.bytes_done < source.bytes_total:
                share, whole = source.bytes_done, source.bytes_total
            progress.update(self._task, completed=share, total=whole, rows=done)

    def _next(self, progress: Progress, phase: str) -> None:
        if self._task is not None:
            progress.remove_task(self._task)
        self._phase = phase
        self._task = progress.add_task(phase, total=None, rows=0)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows, and rows per second."""

        def render(self, task: Any) -> Text:
            rows = task.fields["rows"]
            if not rows:
                return Text("")
            rate = rows / task.elapsed if task.elapsed else 0.0
            return Text(f"{rows:,} ({rate / 1e6:.1f} M/s)" if rate >= 1e5 else f"{rows:,} ({rate:,.0f}/s)")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        Rate(),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
