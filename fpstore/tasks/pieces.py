"""The results of tasks: files of named arrays, each of which is read and checked alone, also from an object store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.strings import StringColumn
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError
from fpstore.io.source import IdColumn
from fpstore.tasks.places import Place

MAGIC = b"fpspiece"
TRAILER_BYTES = 24  # the length of the index, its CRC-32, eight bytes each as digits of hexadecimal, and MAGIC
GUESSED_BYTES = 1 << 16  # at the end of a file, in which the index most often is
DTYPES = {np.dtype(kind).str: np.dtype(kind) for kind in (np.uint8, np.uint16, np.uint32, np.int64, np.uint64)}


class PieceWriter:
    """Writes a file of arrays, one after the other; behind them come an index in JSON and a trailer."""

    def __init__(self, path: Path, facts: Mapping[str, object]) -> None:
        self._path = path
        self._index: dict[str, list[Any]] = {}
        self.facts = dict(facts)
        self._end = 0
        with refusing(path):
            self._file = path.open("wb")

    def add(self, name: str, array: npt.NDArray[Any]) -> None:
        """Write an array under a name."""
        array = np.ascontiguousarray(array)
        assert array.dtype.str in DTYPES
        assert name not in self._index
        data = array.reshape(-1).view(np.uint8).data
        self._index[name] = [self._end, array.dtype.str, list(array.shape), zlib.crc32(data)]
        self._end += len(data)
        with refusing(self._path):
            self._file.write(data)

    def add_ids(self, name: str, ids: IdColumn) -> None:
        """Write ids of either type."""
        if isinstance(ids, StringColumn):
            self.add(f"{name}.ends", ids.ends)
            self.add(f"{name}.data", np.frombuffer(ids.data, np.uint8))
        elif ids is not None:
            self.add(name, ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with refusing(self._path), self._file as file:
            if error is None:
                index = json.dumps({"facts": self.facts, "arrays": self._index}, sort_keys=True).encode()
                file.write(index)
                file.write(_trailer(index))


def _trailer(index: bytes) -> bytes:
    return b"%08x%08x" % (len(index), zlib.crc32(index)) + MAGIC


class Pieces:
    """A file of arrays that a task has published."""

    def __init__(self, place: Place, name: str) -> None:
        """Read the index; StoreNotFoundError if the file is not there, CorruptStoreError if it is damaged."""
        self._place, self.name = place, name
        self._bytes = place.size(name) or 0
        tail = place.read(name, max(self._bytes - GUESSED_BYTES, 0), GUESSED_BYTES)
        try:
            length = int(tail[-TRAILER_BYTES:][:8], 16)
            wanted = length + TRAILER_BYTES
            if not 0 < wanted <= self._bytes:
                raise ValueError
            if wanted > len(tail):
                tail = place.read(name, self._bytes - wanted, wanted)
            index, trailer = tail[-wanted:-TRAILER_BYTES], tail[-TRAILER_BYTES:]
            if trailer != _trailer(index):
                raise ValueError
            content = json.loads(index)
            self.facts: dict[str, Any] = dict(content["facts"])
            self._index: dict[str, list[Any]] = dict(content["arrays"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self._damaged() from None

    def _damaged(self) -> CorruptStoreError:
        where = self._place.shown(self.name)
        return CorruptStoreError(f"{where}: damaged: remove it, and run its task again", path=where)

    def __contains__(self, name: str) -> bool:
        """Whether there is an array of a name."""
        return name in self._index

    def read(self, name: str) -> npt.NDArray[Any]:
        """Return an array."""
        try:
            start, kind, shape, check = self._index[name]
            dtype, count = DTYPES[kind], int(np.prod(shape, dtype=np.int64))
            if not 0 <= start <= start + dtype.itemsize * count <= self._bytes:
                raise ValueError
        except (KeyError, ValueError, TypeError, OverflowError):
            raise self._damaged() from None
        data = self._place.read(self.name, start, dtype.itemsize * count)
        if len(data) != dtype.itemsize * count or zlib.crc32(data) != check:
            raise self._damaged()
        return np.frombuffer(data, dtype).reshape(shape)

    def read_ids(self, name: str) -> IdColumn:
        """Return ids of either type; None if there are none."""
        if f"{name}.ends" in self:
            return StringColumn(self.read(f"{name}.data").tobytes(), self.read(f"{name}.ends"))
        return self.read(name) if name in self else None


def joined(parts: Iterable[Pieces], name: str) -> npt.NDArray[Any]:
    """Return the arrays of a name of several files in one."""
    return np.concatenate([part.read(name) for part in parts])
