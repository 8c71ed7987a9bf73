"""The strings of a new dictionary, from an old one and from what was added since."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Words
from fpstore.building.sources import union_of_groups
from fpstore.building.strings import StringSpool
from fpstore.format.dictionary import Dictionary, hashes_of
from fpstore.format.strings import (
    SAMPLE_RECORDS,
    Sample,
    StringLayout,
    Strings,
    StringWriter,
    opened,
    record_key,
    strings_per_record,
    train,
)
from fpstore.query.snapshot import Groups

TRAINED_GROWTH = 4  # the zstandard dictionary is trained again when there are so many times as many strings
PIECE_STRINGS = 1 << 14


class MergedStrings:
    """Strings in the order of their numbers: those of an old dictionary, those added since, those of other stores.

    Parameters
    ----------
    old : Dictionary or None
    first : int
        The first number that is not of ``old``.
    added : sequence of bytes
        With the numbers from ``first`` on; b"" for numbers that are not in use.
    joined : StringSpool or None
        With the numbers after those.
    used : ndarray of bool
        For each number, whether it is still in use.
    """

    def __init__(
        self,
        old: Dictionary | None,
        first: int,
        added: Sequence[bytes],
        joined: StringSpool | None,
        used: npt.NDArray[np.bool_],
    ) -> None:
        self._old, self._first, self._added, self._joined, self._used = old, first, added, joined, used
        self.count = len(used)
        self._in_use_count = int(np.count_nonzero(used))

    # By hash

    def hashes(self) -> Iterator[Words]:
        """Start a pass over the distinct hashes, ascending."""
        return (hashes for hashes, _, _ in self.groups())

    def groups(self) -> Iterator[Groups]:
        """Start a pass over (hashes, how many strings have each, their numbers), by hash."""
        streams = [iter(self._groups_of_added())]
        if self._old is not None:
            streams.append(self._kept(self._old.groups(), 0))
        if self._joined is not None:
            streams.append(self._kept(self._joined.groups(), self._first + len(self._added)))
        return union_of_groups(streams)

    def _groups_of_added(self) -> list[Groups]:
        numbers = np.flatnonzero(self._used[self._first : self._first + len(self._added)])
        kept = [(number, self._added[number]) for number in numbers.tolist() if self._added[number]]
        if not kept:
            return []
        hashes = hashes_of([string for _, string in kept])
        order = np.argsort(hashes, kind="stable")
        distinct, counts = np.unique(hashes, return_counts=True)
        found = np.array([number for number, _ in kept], np.uint64)[order] + np.uint64(self._first)
        return [(distinct, counts.astype(np.uint64), found)]

    def _kept(self, groups: Iterator[Groups], shift: int) -> Iterator[Groups]:
        """Yield the groups of numbers in use, each number raised by ``shift``."""
        for hashes, counts, numbers in groups:
            shifted = numbers + np.uint64(shift)
            kept = self._used[shifted]
            if kept.all():
                yield hashes, counts, shifted
                continue
            owners = np.repeat(np.arange(len(hashes)), counts.astype(np.int64))
            left = np.bincount(owners[kept], minlength=len(hashes)).astype(np.uint64)
            if kept.any():
                yield hashes[left > 0], left[left > 0], shifted[kept]

    # By number

    def write(self, path: Path, threads: int, tick: Callable[[], None]) -> dict[str, int]:
        """Write the strings in the order of their numbers; return the shape of the file.

        Records of the old dictionary of which all strings stay are copied as they are.
        """
        old = None if self._old is None else self._old.strings
        layout = None if old is None else old.layout
        copies = layout is not None and self._in_use_count < TRAINED_GROWTH * layout.trained
        writer = StringWriter(path, layout if copies and layout is not None else self._trained(), threads)
        try:
            if old is not None:
                self._write_old(writer, old, copies, tick)
            writer.add([b""] * (self._first - (0 if old is None else old.count)))
            number = self._first
            for strings in chain(_pieces(self._added), () if self._joined is None else self._joined.strings()):
                writer.add(self._in_use(strings, number))
                number += len(strings)
                tick()
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _write_old(self, writer: StringWriter, old: Strings, copies: bool, tick: Callable[[], None]) -> None:
        step = old.per_record
        for record, value in old.records():
            number = record * step
            whole = copies and number + step <= old.count and bool(self._used[number : number + step].all())
            content = opened(record_key(record), value) if whole else None
            if content is not None:
                writer.copy(content)
            else:
                writer.add(self._in_use(old.parse(record, value), number))
            if record % SAMPLE_RECORDS == 0:
                tick()

    def _in_use(self, strings: list[bytes], first: int) -> list[bytes]:
        used = self._used[first : first + len(strings)]
        if used.all():
            return strings
        return [string if kept else b"" for string, kept in zip(strings, used.tolist(), strict=True)]

    def _trained(self) -> StringLayout:
        """Return a layout for all strings, by a sample of them."""
        step = max(self.count // (SAMPLE_RECORDS * 8), 1)
        sample = Sample()
        total = seen = 0
        for strings in self._all():
            for start in range(0, len(strings), 8 * step):
                part = [string for string in strings[start : start + 8] if string]
                sample.add(part)
                total += sum(map(len, part))
                seen += len(part)
        total_bytes = total * self._in_use_count // max(seen, 1)
        return StringLayout(strings_per_record(seen, total), self._in_use_count, train(sample, total_bytes))

    def _all(self) -> Iterator[list[bytes]]:
        if self._old is not None:
            old = self._old.strings
            yield from (old.parse(record, value) for record, value in old.records())
        yield from _pieces(self._added)
        if self._joined is not None:
            yield from self._joined.strings()


def _pieces(strings: Sequence[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(strings), PIECE_STRINGS):
        yield list(strings[start : start + PIECE_STRINGS])
