"""Arrays of words that may outgrow memory: above a limit they move to an unnamed temporary file."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import IO

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.width import comparable, empty_rows, row_of_number, rows_to_numbers
from fpstore.disk.files import read_all, write_all
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
        with refusing(self._folder):
            read_all(self._file.fileno(), memoryview(data), WORD * start)
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


class SortedArray:
    """Ascending rows of so many words, appended in order; a search reads one piece of the file.

    Parameters
    ----------
    folder : Path
        The folder for the file.
    room : int
        The most bytes of memory to use.
    words : int
        The words of a row.
    """

    def __init__(self, folder: Path, room: int, words: int = 1) -> None:
        self._array = WordArray(folder, room)
        self._words = words
        self._marks = bytearray()  # of every so many rows the first, as NumPy searches them
        self._marks_type = comparable(empty_rows(0, words)).dtype

    def __len__(self) -> int:
        return len(self._array) // self._words

    def __getitem__(self, place: int) -> int:
        """Return a row as a number."""
        return rows_to_numbers(self.read(place, place + 1))[0]

    def append(self, rows: Words) -> None:
        """Append rows that are greater than the last."""
        self._marks += comparable(rows[-len(self) % MARKED :: MARKED]).tobytes()
        self._array.append(rows.reshape(-1))

    def read(self, start: int, end: int) -> Words:
        """Return the rows from ``start`` to before ``end``; fewer after the last."""
        words = self._array.read(start * self._words, end * self._words)
        return words if self._words == 1 else words.reshape(-1, self._words)

    def below(self, number: int, inclusive: bool = False) -> int:
        """Return the count of rows that are less than that of a number; with ``inclusive``, not greater."""
        side = "right" if inclusive else "left"
        wanted = comparable(row_of_number(number, self._words))
        mark = int(np.searchsorted(np.frombuffer(self._marks, self._marks_type), wanted, side)[0])  # type: ignore[call-overload]
        if not mark:
            return 0
        first = (mark - 1) * MARKED
        rows = comparable(self.read(first, first + MARKED))
        return first + int(np.searchsorted(rows, wanted, side)[0])  # type: ignore[call-overload]

    @property
    def memory(self) -> int:
        """Bytes that are in memory."""
        return self._array.memory + len(self._marks)

    def close(self) -> None:
        """Release the memory and the file."""
        self._array.close()
        self._marks = bytearray()
