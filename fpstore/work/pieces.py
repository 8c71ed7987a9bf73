"""Finished work: files of named arrays, each of which is read and checked alone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, pairwise, takewhile
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Lims
from fpstore.base.arrays import list_lims, lists_at
from fpstore.base.pools import map_in_order
from fpstore.base.strings import StringColumn
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import CorruptStoreError
from fpstore.io.source import IdColumn
from fpstore.work.places import Place

MAGIC = b"fpspiece"
# the length of the index, its CRC-32, eight bytes each as digits of hexadecimal, and MAGIC
TRAILER_BYTES = 24
GUESSED_BYTES = 1 << 15  # at the end of a file, in which the index most often is
DTYPES = {
    np.dtype(kind).str: np.dtype(kind)
    for kind in (np.uint8, np.uint16, np.uint32, np.int64, np.uint64, np.float64)
}
BLOCK = "block-"  # begins the names of the blocks of a file
BLOCK_BYTES = 1 << 24
ENTRY_BYTES = 16  # of a slice in a table
TABLE = ".slices"  # ends the name of the table of an array in slices
Slices = Sequence[npt.NDArray[np.intp]]  # the places of the rows of each slice


class PieceWriter:
    """Writes a file of arrays, one after the other, with an index in JSON and a trailer."""

    def __init__(self, path: Path, facts: Mapping[str, object]) -> None:
        self._path = path
        self._index: dict[str, list[Any]] = {}
        self.facts = dict(facts)
        self._end = 0
        with translate_refusals(path):
            self._file = path.open("wb")

    def add(self, name: str, array: npt.NDArray[Any]) -> None:
        array = np.ascontiguousarray(array)
        assert array.dtype.str in DTYPES
        assert name not in self._index
        data = array.reshape(-1).view(np.uint8).data
        self._index[name] = [self._end, array.dtype.str, list(array.shape), zlib.crc32(data)]
        self._end += len(data)
        with translate_refusals(self._path):
            self._file.write(data)

    def add_slices(self, name: str, array: npt.NDArray[Any], slices: Slices) -> None:
        """Write the values at places of an array, slice by slice."""
        self.add_ordered(name, array[_all_places(slices)], _slice_lims(slices))

    def add_lists(
        self, name: str, values: npt.NDArray[Any], starts: Lims, sizes: Lims, slices: Slices
    ) -> None:
        """Write lists of values, of which each row of a slice has one, slice by slice."""
        places = _all_places(slices)
        lims = list_lims(sizes[places])[_slice_lims(slices)]
        self.add_ordered(name, lists_at(values, starts[places], sizes[places]), lims)

    def add_ordered(self, name: str, array: npt.NDArray[Any], lims: Lims) -> None:
        """Write an array in which slices lie one after the other: slice i ends at lims[i + 1].

        A table has the end and a CRC-32 of each slice: the index has two arrays for any number of
        slices. Two rows of the table give the bounds of a slice: so its CRC-32 covers them too.
        """
        ordered = np.ascontiguousarray(array)
        checksums = [
            zlib.crc32(ordered[slice(*bound)].reshape(-1).view(np.uint8).data, _seed(*bound))
            for bound in pairwise(lims.tolist())
        ]
        ends = lims[1:].astype(np.uint64)
        self.add(f"{name}{TABLE}", np.stack([ends, np.array(checksums, np.uint64)], axis=1))
        self.add(name, ordered)

    def add_ids(self, name: str, ids: IdColumn) -> None:
        if isinstance(ids, StringColumn):
            self.add(f"{name}.sizes", ids.sizes)
            self.add(f"{name}.data", np.frombuffer(ids.data, np.uint8))
        elif ids is not None:
            self.add(name, ids)

    def add_id_slices(self, name: str, ids: IdColumn, slices: Slices) -> None:
        if isinstance(ids, StringColumn):
            sizes = ids.sizes.astype(np.int64)
            self.add_slices(f"{name}.sizes", ids.sizes, slices)
            data = np.frombuffer(ids.data, np.uint8)
            self.add_lists(f"{name}.data", data, list_lims(sizes)[:-1], sizes, slices)
        elif ids is not None:
            self.add_slices(name, ids, slices)

    def add_file(self, path: Path) -> None:
        """Write the bytes of a file, in blocks."""
        with translate_refusals(path), path.open("rb") as file:
            for number, block in enumerate(iter(partial(file.read, BLOCK_BYTES), b"")):
                self.add(f"{BLOCK}{number}", np.frombuffer(block, np.uint8))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with translate_refusals(self._path), self._file as file:
            if error is None:
                index = json.dumps(
                    {"facts": self.facts, "arrays": self._index}, sort_keys=True
                ).encode()
                file.write(index)
                file.write(_trailer(index))


def _slice_lims(slices: Slices) -> Lims:
    return list_lims([len(places) for places in slices])


def _all_places(slices: Slices) -> npt.NDArray[np.intp]:
    return np.concatenate([np.empty(0, np.intp), *slices])


def _seed(start: int, end: int) -> int:
    """Return the start value of the CRC-32 of a slice, which its bounds decide."""
    return zlib.crc32(b"%016x%016x" % (start, end))


def _trailer(index: bytes) -> bytes:
    return b"%08x%08x" % (len(index), zlib.crc32(index)) + MAGIC


class Pieces:
    """A file of arrays that a task has published."""

    def __init__(self, place: Place, name: str) -> None:
        """Read the index; StoreNotFoundError for no file, CorruptStoreError for a damaged one."""
        self.place, self.name = place, name
        self._bytes = place.size(name) or 0
        tail = place.read(name, max(self._bytes - GUESSED_BYTES, 0), GUESSED_BYTES)
        try:
            length = int(tail[-TRAILER_BYTES:][:8], 16)
            index_bytes = length + TRAILER_BYTES
            if not 0 < index_bytes <= self._bytes:
                raise ValueError
            if index_bytes > len(tail):
                tail = place.read(name, self._bytes - index_bytes, index_bytes)
            index, trailer = tail[-index_bytes:-TRAILER_BYTES], tail[-TRAILER_BYTES:]
            if trailer != _trailer(index):
                raise ValueError
            content = json.loads(index)
            self.facts: dict[str, Any] = dict(content["facts"])
            self._index: dict[str, list[Any]] = dict(content["arrays"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._damage_error() from None

    def _damage_error(self) -> CorruptStoreError:
        where = self.place.label(self.name)
        return CorruptStoreError(f"{where}: damaged: remove it, and run its task again", path=where)

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def read(self, name: str, number: int | None = None) -> npt.NDArray[Any]:
        try:
            start, kind, shape, checksum = self._index[name]
            dtype, row = DTYPES[kind], shape[1:]
            first, end, seed = 0, shape[0], 0
            if number is not None:
                first, end, checksum = self._slice(name, number)
                seed = _seed(first, end)
            row_bytes = dtype.itemsize * int(np.prod(row, dtype=np.int64))
            begin, stop = start + first * row_bytes, start + end * row_bytes
            if not 0 <= start <= begin <= stop <= self._bytes or end > shape[0]:
                raise ValueError
        except (KeyError, ValueError, TypeError, OverflowError, IndexError):
            raise self._damage_error() from None
        data = self.place.read(self.name, begin, stop - begin)
        if len(data) != stop - begin or zlib.crc32(data, seed) != checksum:
            raise self._damage_error()
        return np.frombuffer(data, dtype).reshape(end - first, *row)

    def _slice(self, name: str, number: int) -> tuple[int, int, int]:
        """Return the first row of a slice, the row behind it, and its CRC-32."""
        start, _, (count, _), _ = self._index[f"{name}{TABLE}"]
        if not (0 <= number < count and 0 <= start <= self._bytes):
            raise IndexError
        previous = max(number - 1, 0)
        data = self.place.read(
            self.name, start + previous * ENTRY_BYTES, (number + 1 - previous) * ENTRY_BYTES
        )
        ends, checksums = (
            np.frombuffer(data, np.uint64).reshape(number + 1 - previous, 2).T.tolist()
        )
        return ends[-2] if number else 0, ends[-1], checksums[-1]

    def verify(self) -> None:
        """Read all arrays, one after the other; CorruptStoreError if one is damaged."""
        for name in self._index:
            self.read(name)

    def lims(self, name: str) -> Lims:
        """Return the bounds of the slices of an array."""
        return np.concatenate(
            [np.zeros(1, np.int64), self.read(f"{name}{TABLE}")[:, 0].astype(np.int64)]
        )

    def blocks(self) -> Iterator[bytes]:
        names = takewhile(self.__contains__, (f"{BLOCK}{number}" for number in count()))
        return (self.read(name).tobytes() for name in names)

    def read_ids(self, name: str, number: int | None = None) -> IdColumn:
        """Return ids of either type, or one slice of them; None if there are none."""
        if f"{name}.sizes" in self:
            ends = np.cumsum(self.read(f"{name}.sizes", number), dtype=np.uint64)
            return StringColumn(self.read(f"{name}.data", number).tobytes(), ends)
        return self.read(name, number) if name in self else None


def concatenate_arrays(
    parts: Sequence[Pieces], name: str, number: int | None = None
) -> npt.NDArray[Any]:
    """Concatenate the arrays of one name of several files, or one slice of each."""
    return np.concatenate(
        [
            array
            for _, array in map_in_order(
                lambda part: part.read(name, number), parts, reader_count(parts)
            )
        ]
    )


def reader_count(parts: Sequence[Pieces]) -> int:
    """Return the number of threads that read from several files."""
    return parts[0].place.readers if len(parts) > 1 else 1
