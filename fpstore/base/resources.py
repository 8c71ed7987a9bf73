"""Memory sizes and thread counts, as users write them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import NamedTuple

from fpstore import _kernel
from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_progress, check_whole
from fpstore.errors import InputError, show

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1000,
    "kb": 1000,
    "kib": 1 << 10,
    "m": 10**6,
    "mb": 10**6,
    "mib": 1 << 20,
    "g": 10**9,
    "gb": 10**9,
    "gib": 1 << 30,
    "t": 10**12,
    "tb": 10**12,
    "tib": 1 << 40,
}
MIN_MEMORY = 64 << 20
_TRIM_BYTES = 8 << 20  # bytes of a reservation
MAX_THREADS = 1024
ROOT = Path("/")  # of /proc and /sys


class Resources(NamedTuple):
    """Limits of a long operation: memory in bytes, threads, and the progress callback."""

    memory: int
    threads: int
    progress: Progress | None = None

    def for_each(self, parts: int) -> Resources:
        """Return the budget of each of some parts that are worked on at once."""
        # two threads: one works while the other waits for the disk
        threads = min(max(self.threads // parts, 2), self.threads)
        return Resources(self.memory // parts, threads)

    def report(self, phase: str, done: int, total: int | None = None) -> None:
        """Call ``progress``, if there is one."""
        if self.progress is not None:
            self.progress(phase, done, total)


class MemoryBudget:
    """Bytes that threads share: a thread waits until what it needs is free, or all is."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._taken = 0
        self._freed = Condition()

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Hold bytes inside the block."""
        with self._freed:
            self._freed.wait_for(lambda: self._taken + count <= self.total or not self._taken)
            self._taken += count
        try:
            yield
        finally:
            if count >= _TRIM_BYTES:
                _kernel.trim()  # each thread would keep some
            with self._freed:
                self._taken -= count
                self._freed.notify_all()


def total_memory(root: Path = ROOT) -> int:
    """Return the bytes of memory of this machine, or the least limit of its control groups."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *group_limits(root)])


def group_limits(root: Path = ROOT) -> Iterator[int]:
    """Yield the memory limits of this process's control groups and the groups above them.

    They have version 1 or 2.

    Slurm and systemd set the limit of a nested group. In a container the kernel may name a path
    that is not visible there: the top is its own group.
    """
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, controllers, group = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        nested = top if ".." in group.split("/") else top / group.strip("/")
        for folder in (nested, *nested.parents):
            limit = _text(folder / name).strip()
            if limit.isdecimal():
                yield int(limit)
            if folder == top:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def format_size(byte_count: float) -> str:
    """Return a number of bytes for people, in powers of 1000."""
    value = float(byte_count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def parse_size(size: int | str, argument: str = "size") -> int:
    """Return the number of bytes of an int, or of a string such as ``2GiB`` or ``500 MB``."""
    if isinstance(size, int) and not isinstance(size, bool):
        value: float = size
    else:
        text = show(size) if isinstance(size, (list, tuple, dict)) else str(size)
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
        if match is None or match[2].lower() not in _UNITS:
            raise InputError(
                f"{argument} must be a number of bytes or a size such as 2GiB or 500MB, got "
                f"{show(size)}",
                argument=argument,
            )
        unit = _UNITS[match[2].lower()]
        value = (
            int(match[1]) * unit
            if match[1].isdecimal() and len(match[1]) < 30
            else float(match[1]) * unit
        )
    if value < 1:
        raise InputError(f"{argument} must be positive, got {show(size)}", argument=argument)
    if value >= 2**63:
        raise InputError(
            f"{argument} must be less than 2^63 bytes, got {show(size)}", argument=argument
        )
    return int(value)


def parse_memory(memory: int | str | None) -> int:
    """Return a memory budget in bytes; None is a quarter of this machine's memory."""
    if memory is None:
        return max(total_memory() // 4, MIN_MEMORY)
    value = parse_size(memory, "memory")
    if value < MIN_MEMORY:
        raise InputError(f"memory must be at least 64MiB, got {show(memory)}", argument="memory")
    return value


def memory_of_each(memory: int | str | None, processes: int) -> int:
    """Return the share of each process in a memory budget; InputError if it is too small."""
    budget = parse_memory(memory)
    share = budget // processes
    if share < MIN_MEMORY:
        raise InputError(
            f"memory must be at least {64 * processes}MiB for {processes} processes, got "
            f"{budget >> 20}MiB",
            got=memory,
            argument="memory",
        )
    return share


def parse_threads(threads: int | None, argument: str = "threads") -> int:
    """Return a count of threads or processes; None is one per available processor."""
    if threads is None:
        return (
            len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count() or 1
        )
    return check_whole(threads, 1, MAX_THREADS, argument)


def make_resources(
    memory: int | str | None, threads: int | None, progress: Progress | None
) -> Resources:
    check_progress(progress)
    return Resources(parse_memory(memory), parse_threads(threads), progress)
