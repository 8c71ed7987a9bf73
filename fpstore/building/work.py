"""The work on a generation, in several threads: its progress, and how it ends early."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from fpstore import _kernel
from fpstore.base.aliases import Progress
from fpstore.base.threads import Job, Pool


class Work:
    """Counts what is done of the current phase, and reports it to the caller's callback, from any thread."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.stop = _kernel.Stop()
        self._lock = threading.Lock()
        self._phase = ""
        self._done = 0
        self._total: int | None = None

    def start(self, phase: str, total: int | None) -> None:
        """Begin a phase and report it."""
        self.expect(phase, total)
        self._add(0)

    def expect(self, phase: str, total: int | None) -> None:
        """Begin a phase; the first :meth:`tick` reports it."""
        with self._lock:
            self._phase, self._done, self._total = phase, 0, total

    def tick(self, rows: int = 0) -> None:
        """Count rows, and raise InterruptedError once ``stop`` is set."""
        if self.stop.is_set():
            raise InterruptedError
        self._add(rows)

    def _add(self, rows: int) -> None:
        with self._lock:
            self._done += rows
            if self._progress:
                self._progress(self._phase, self._done, self._total)

    def share(self, threads: int, parts: Iterable[Callable[[], None]]) -> None:
        """Do the parts of the work in threads. When one fails, the others end soon, and its exception is raised."""
        with Pool(threads) as pool:
            jobs: list[Job[None]] = []
            try:
                jobs += [pool.submit(self._stopping, part) for part in parts]
                for job in jobs:
                    job.result()
            except BaseException as error:
                self.stop.set()
                pool.cancel()
                if isinstance(error, InterruptedError):  # another part failed, and may end later: it knows why
                    for job in jobs:
                        with suppress(InterruptedError):
                            job.result()
                raise

    def _stopping(self, part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException:
            self.stop.set()
            raise
