"""Fingerprints without ids as raw numbers: NumPy's ``.npy`` and little-endian ``.u64`` files."""

import math
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fpstore.errors import InputError
from fpstore.io.check import dtype_problem
from fpstore.io.sink import Columns, Encoder, Sink
from fpstore.io.source import Batch, IdRule, InputFile, Source, at, located, storage_errors

_ITEM_BYTES = 8
_NPY_HEADER_BYTES = 128
_NPY_MAGIC = b"\x93NUMPY\x01\x00"


class NpySource(Source):
    """A 1-D array of unsigned integers in a ``.npy`` file, mapped into memory."""

    def __init__(self, file: InputFile, batch_rows: int) -> None:
        super().__init__(file)
        if file.size is None:
            raise at(self.name, None, "a .npy input must be a regular file (for a stream use format='u64')")
        self._batch_rows = batch_rows
        self._dtype, self.rows, self._offset = self._read_header(file.size)
        self.has_ids = False

    def _read_header(self, size: int) -> tuple[np.dtype[Any], int, int]:
        with self.file.open() as stream, storage_errors(self.name):
            try:
                version = np.lib.format.read_magic(stream)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"version {version[0]}.{version[1]} of the format")
                read = np.lib.format.read_array_header_1_0
                if version == (2, 0):
                    read = np.lib.format.read_array_header_2_0
                shape, _, dtype = read(stream)
            except (ValueError, EOFError, SyntaxError, TypeError) as error:
                reason = str(error).splitlines()[0] if str(error) else "no header"
                raise at(self.name, None, f"not a readable .npy file: {reason}") from None
            offset = stream.tell()
        problem = dtype_problem(dtype, shape)
        if problem:
            raise at(self.name, None, problem)
        needed = offset + math.prod(shape) * dtype.itemsize
        if size < needed:
            raise at(self.name, None, f"truncated: {size} bytes, but its header promises {needed}")
        return dtype, shape[0], offset

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield slices of the mapped file; other widths and byte orders are converted."""
        if not self.rows:
            return
        with located(self.name):
            rule.expect(False)
        with storage_errors(self.name):
            mapped: npt.NDArray[Any] = np.memmap(
                self.file.path, dtype=self._dtype, mode="r", offset=self._offset, shape=(self.rows,)
            )
        values = mapped.view(np.ndarray)
        for start in range(0, self.rows, self._batch_rows):
            part = values[start : start + self._batch_rows]
            self.bytes_done = self._offset + (start + len(part)) * self._dtype.itemsize
            yield Batch(np.ascontiguousarray(part, dtype=np.uint64), None)


class RawSource(Source):
    """Successive little-endian 64-bit numbers in a file or a stream."""

    def __init__(self, file: InputFile, batch_rows: int) -> None:
        super().__init__(file)
        self._batch_rows = batch_rows
        self.has_ids = False
        if file.size is not None:
            self._check_size(file.size)
            self.rows = file.size // _ITEM_BYTES

    def _check_size(self, size: int) -> None:
        if size % _ITEM_BYTES:
            raise at(
                self.name,
                None,
                f"truncated: {size % _ITEM_BYTES} bytes are left over, uint64 takes {_ITEM_BYTES}",
            )

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield the numbers in the order of the file."""
        with self.file.open() as stream:
            while data := self._read(stream):
                self.bytes_done += len(data)
                self._check_size(len(data))  # only the last piece can be cut short
                with located(self.name):
                    rule.expect(False)
                yield Batch(np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False), None)

    def _read(self, stream: BinaryIO) -> bytes:
        with storage_errors(self.name):
            return stream.read(self._batch_rows * _ITEM_BYTES)


class RawEncoder(Encoder):
    """Fingerprints as a ``.npy`` or ``.u64`` file."""

    def __init__(self, sink: Sink, numpy_header: bool) -> None:
        if numpy_header and not sink.seekable:
            raise InputError("the .npy format needs a file to write to (for a stream use format='u64')")
        self._sink = sink
        self._rows = 0
        self._numpy_header = numpy_header
        if numpy_header:
            sink.write(_npy_header(0))

    def write(self, data: Columns) -> None:
        """Append the fingerprints of the only column."""
        for fingerprints in data.values():
            self._sink.write(np.asarray(fingerprints, dtype="<u8").tobytes())
            self._rows += len(fingerprints)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        if self._numpy_header:
            self._sink.overwrite(_npy_header(self._rows))


def _npy_header(rows: int) -> bytes:
    """Return a version 1.0 header of constant length, so that the count can be filled in at the end."""
    room = _NPY_HEADER_BYTES - len(_NPY_MAGIC) - 2
    text = f"{{'descr': '<u8', 'fortran_order': False, 'shape': ({rows},), }}".ljust(room - 1) + "\n"
    return _NPY_MAGIC + room.to_bytes(2, "little") + text.encode("ascii")
