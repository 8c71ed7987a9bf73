"""The intact records of damaged LMDB files: ids of blocks, and strings.

The files are read page by page, without LMDB. Each record has a checksum of its own, so it does not matter on which page it is.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS, Width, comparable, empty_rows, row_of_number, rows_to_numbers
from fpstore.building.columns import Column
from fpstore.building.external_sort import Sorter
from fpstore.disk.files import open_file, read_if_possible
from fpstore.disk.sealed import Item, left_items
from fpstore.errors import CorruptStoreError, StoreNotFoundError
from fpstore.format.mapping import record_seed
from fpstore.format.strings import LAYOUT_KEYS, RecordReader, checked, parse_layout

FOUND_AT_ONCE = 1 << 12


class RowFile:
    """Rows of words in a file without a name: append them all, then read and search them. They take no memory of the budget."""

    def __init__(self, folder: Path, words: int = 1) -> None:
        self._column, self._words = Column(folder), words

    def append(self, rows: Words) -> None:
        """Add rows at the end; for a search they have to ascend."""
        self._column.append(comparable(rows))

    def __len__(self) -> int:
        return self._column.rows

    @cached_property
    def _mapped(self) -> npt.NDArray[Any]:
        return self._column.mapped() if len(self) else comparable(empty_rows(0, self._words))

    def read(self, start: int, end: int) -> Words:
        """Return the rows from ``start`` to before ``end``."""
        part = np.array(self._mapped[start:end])
        return part if self._words == 1 else part.view(">u8").astype(np.uint64).reshape(-1, self._words)

    def take(self, places: npt.NDArray[np.integer]) -> Words:
        """Return the words at some places."""
        return np.array(self._mapped[places])

    def places(self, rows: Words, inclusive: bool = False) -> npt.NDArray[np.intp]:
        """Return how many rows are less than each of some rows; with ``inclusive``, not greater."""
        found: npt.NDArray[np.intp] = np.searchsorted(self._mapped, comparable(rows), "right" if inclusive else "left")
        return found

    def below(self, number: int, inclusive: bool = False) -> int:
        """Return the same for the row of a number."""
        return int(self.places(row_of_number(number, self._words), inclusive)[0])

    def find(self, rows: Words) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Return the place of each of some rows, and whether it is there."""
        places = self.places(rows)
        return places, self.places(rows, inclusive=True) > places

    def close(self) -> None:
        """Drop the rows."""
        self.__dict__.pop("_mapped", None)
        self._column.close()


class IntactRecords(ABC):
    """The intact records of an LMDB file (None: nothing of it can be trusted), by number, in the order of their ``keys``.

    ``shape`` is what the manifest says of the file, if there is one; ``words`` are those of a key.
    """

    def __init__(self, path: Path | None, shape: dict[str, int] | None, words: int, folder: Path, memory: int) -> None:
        self._path = path or Path()
        self._longest = None if shape is None else shape["largest"]
        self._width = Width(WORD_BITS * words)
        self.keys, self._places = RowFile(folder, words), RowFile(folder)
        self._descriptor = -1
        if path is not None:
            with suppress(StoreNotFoundError, CorruptStoreError):
                self._descriptor = open_file(path)
        if self._descriptor >= 0:
            self._find(folder, memory)

    @abstractmethod
    def _is_intact(self, key: int, value: bytes) -> bool:
        """Whether a value belongs to a key."""

    def _find(self, folder: Path, memory: int) -> None:
        """Sort the found records by key; of copies on pages that are not in use, the first counts."""
        found = RowFile(folder)  # of each record, where it starts and its size
        sorter = Sorter(memory, folder, words=self._width.words)
        records = self._intact()
        for batch in iter(lambda: list(islice(records, FOUND_AT_ONCE)), []):
            sorter.add(self._width.rows(int.from_bytes(item.key, "big") for item in batch), None)
            found.append(np.array([(item.start, item.size) for item in batch], np.uint64).reshape(-1))
        for group in sorter.groups(lambda rows: None):
            self.keys.append(group.keys)
            firsts = group.ids[np.cumsum(group.counts) - group.counts].astype(np.intp)
            self._places.append(found.take(np.add.outer(2 * firsts, [0, 1])).reshape(-1))
        found.close()

    def _intact(self) -> Iterator[Item]:
        for item in left_items(self._path, self._descriptor, self._width.bytes, self._longest):
            value = read_if_possible(self._descriptor, self._path, item.start, item.size)
            if self._is_intact(int.from_bytes(item.key, "big"), value):
                yield item

    def __len__(self) -> int:
        return len(self.keys)

    def values(self, numbers: npt.NDArray[np.integer]) -> Iterator[bytes]:
        """Yield the values of records, read again."""
        for start, size in self._places.take(np.add.outer(2 * numbers, [0, 1])).tolist():
            yield read_if_possible(self._descriptor, self._path, start, size)

    def of_keys(self, keys: Words) -> Iterator[bytes | None]:
        """Yield the value of each of some keys, or None if there is none."""
        numbers, found = self.keys.find(keys)
        values = self.values(numbers[found])
        return (next(values) if there else None for there in found.tolist())

    def close(self) -> None:
        """Give the files back."""
        self.keys.close()
        self._places.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class IdRecords(IntactRecords):
    """The intact records of ``ids.mdb``: the key of each is the last fingerprint of its block."""

    def __init__(
        self, path: Path | None, shape: dict[str, int] | None, words: int, set_digest: int, folder: Path, memory: int
    ) -> None:
        self._digest = set_digest
        super().__init__(path, shape, words, folder, memory)

    def _is_intact(self, key: int, value: bytes) -> bool:
        return self._unpacked(key, value) is not None

    def _unpacked(self, key: int, value: bytes) -> tuple[Words, Words] | None:
        try:
            return _kernel.unpack_record(value, record_seed(self._digest, key), printable(self._path))
        except CorruptStoreError:
            return None

    def ids(self, number: int) -> tuple[Words, Words] | None:
        """Return (ids per fingerprint, ids) of a record, or None if it cannot be read again."""
        (value,) = self.values(np.array([number]))
        return self._unpacked(rows_to_numbers(self.keys.read(number, number + 1))[0], value)


class StringRecords(IntactRecords):
    """The intact records of ``strings.mdb``; ``end`` is above the numbers of all strings that are left."""

    def __init__(self, path: Path | None, shape: dict[str, int] | None, folder: Path, memory: int) -> None:
        super().__init__(path, shape, 1, folder, memory)
        layout = parse_layout(self.of_keys(np.array(LAYOUT_KEYS, np.uint64)))
        self._reader = None if layout is None else RecordReader(layout)
        self._per_record = 1 if layout is None else layout.per_record
        records = self.keys.below(LAYOUT_KEYS[0]) if layout is not None else 0
        self.end = (int(self.keys.read(records - 1, records)[0]) + 1) * self._per_record if records else 0

    def _is_intact(self, key: int, value: bytes) -> bool:
        return checked(key, value) is not None

    def get(self, numbers: Words) -> list[bytes | None]:
        """Return the strings of some numbers; None for each that is lost."""
        if self._reader is None:
            return [None] * len(numbers)
        records, which = np.unique(numbers // np.uint64(self._per_record), return_inverse=True)
        strings = [
            [] if value is None else self._reader.strings(record, value) or []
            for record, value in zip(records.tolist(), self.of_keys(records), strict=True)
        ]
        ranks = numbers % np.uint64(self._per_record)
        pairs = zip(which.tolist(), ranks.tolist(), strict=True)
        return [(strings[i][rank] or None) if rank < len(strings[i]) else None for i, rank in pairs]
