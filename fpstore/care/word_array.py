"""Arrays of words that may outgrow memory: above a limit they move to an unnamed temporary file."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from typing import IO

import numpy as np

from fpstore.aliases import Words
from fpstore.disk.files import write_all
from fpstore.disk.refusals import refusing

WORD = 8
COPY_BYTES = 1 << 20
MARKED = 1 << 12  # rows of a sorted array per row kept in memory


class WordArray:
    """Words by number; 0 if none was written.

    Parameters
    ----------
    folder : Path
        The folder for the file.
    room : int
        The most bytes of memory to use.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder, self._room = folder, room
        self._words = array("Q")
        self._file: IO[bytes] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> int:
        if number >= self._count:
            return 0
        return int(self.read(number, number + 1)[0]) if self._file is not None else self._words[number]

    def __setitem__(self, number: int, word: int) -> None:
        self._grow(number + 1)
        if self._file is None:
            self._words[number] = word
        else:
            self._write(number, word.to_bytes(WORD, "little"))

    def append(self, words: Words) -> None:
        """Append words."""
        start = self._count
        self._grow(start + len(words))
        if self._file is None:
            np.frombuffer(self._words, np.uint64)[start:] = words
        else:
            self._write(start, words.astype("<u8").tobytes())

    def read(self, start: int, end: int) -> Words:
        """Return the words from ``start`` to before ``end``; fewer after the last."""
        end = max(min(end, self._count), start)
        if self._file is None:
            return np.array(self._words[start:end], np.uint64)
        data = bytearray(WORD * (end - start))  # after the last word written there may be no file: zeros
        view, at = memoryview(data), WORD * start
        with refusing(self._folder):
            while len(view) and (got := os.preadv(self._file.fileno(), [view], at)):
                view, at = view[got:], at + got
        return np.frombuffer(data, "<u8").astype(np.uint64, copy=False)

    def _grow(self, count: int) -> None:
        if count <= self._count:
            return
        if self._file is None and WORD * count > self._room:
            self._spill()
        if self._file is None:
            self._words.frombytes(bytes(WORD * (count - self._count)))
        self._count = count

    def _spill(self) -> None:
        import tempfile  # and with it all that packs and unpacks archives

        with refusing(self._folder):
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - it lives as long as this object
        step = COPY_BYTES // WORD
        for start in range(0, len(self._words), step):
            self._write(start, np.array(self._words[start : start + step], "<u8").tobytes())
        self._words = array("Q")

    def _write(self, number: int, data: bytes) -> None:
        assert self._file is not None
        with refusing(self._folder):
            write_all(self._file.fileno(), data, WORD * number)

    @property
    def memory(self) -> int:
        """Bytes that are in memory."""
        return WORD * len(self._words)

    def close(self) -> None:
        """Release the memory and the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._words, self._count = array("Q"), 0


class SortedWords(WordArray):
    """Ascending words that are appended in order; a search reads one piece of the file."""

    def __init__(self, folder: Path, room: int) -> None:
        super().__init__(folder, room)
        self._marks = array("Q")

    def append(self, words: Words) -> None:
        """Append words that are greater than the last."""
        self._marks.frombytes(words[-len(self) % MARKED :: MARKED].tobytes())
        super().append(words)

    def below(self, word: int, inclusive: bool = False) -> int:
        """Return the number of words less than this one; with ``inclusive``, not greater."""
        side = "right" if inclusive else "left"
        wanted = np.uint64(word)
        mark = int(np.searchsorted(np.frombuffer(self._marks, np.uint64), wanted, side))  # type: ignore[call-overload]
        if not mark:
            return 0
        first = (mark - 1) * MARKED
        return first + int(np.searchsorted(self.read(first, first + MARKED), wanted, side))  # type: ignore[call-overload]
