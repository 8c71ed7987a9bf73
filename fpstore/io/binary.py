"""Fingerprints without ids as raw numbers: NumPy's ``.npy`` and little-endian ``.u32`` and ``.u64`` files."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import NamedColumns
from fpstore.base.width import WIDTH_64, Width
from fpstore.errors import InputError
from fpstore.io.check import dtype_problem, rows_of_array
from fpstore.io.sink import Encoder, Sink
from fpstore.io.source import Batch, IdRule, InputFile, Source, at, located, storage_errors
from fpstore.io.wrong_width import wrong_width

RAW_BITS = {"u32": 32, "u64": 64}
_NPY_HEADER_BYTES = 128
_NPY_MAGIC = b"\x93NUMPY\x01\x00"


class NpySource(Source):
    """An array of fingerprints in a ``.npy`` file, mapped into memory."""

    def __init__(self, file: InputFile, batch_rows: int, width: Width = WIDTH_64, signed: bool = False) -> None:
        super().__init__(file)
        self._width, self._signed = width, signed
        if file.size is None:
            raise at(self.name, None, "a .npy input must be a regular file (for a stream use format='u64')")
        self._batch_rows = batch_rows
        self._dtype, self._shape, self._order, self._offset = self._read_header(file.size)
        self.rows = self._shape[0]
        self.has_ids = False

    def _read_header(self, size: int) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"], int]:
        with self.file.open() as stream, storage_errors(self.name):
            try:
                version = np.lib.format.read_magic(stream)
                if version not in ((1, 0), (2, 0)):
                    raise ValueError(f"version {version[0]}.{version[1]} of the format")
                read = np.lib.format.read_array_header_1_0
                if version == (2, 0):
                    read = np.lib.format.read_array_header_2_0
                shape, columns_first, dtype = read(stream)
            except (ValueError, EOFError, SyntaxError, TypeError) as error:
                reason = str(error).splitlines()[0] if str(error) else "no header"
                raise at(self.name, None, f"not a readable .npy file: {reason}") from None
            offset = stream.tell()
        problem = dtype_problem(dtype, shape, self._width, self._signed)
        if problem:
            if dtype.kind == "i" and self._width.words == 1 and not self._signed:
                problem += ", or read the file with signed=True (--signed)"
            raise at(self.name, None, problem)
        needed = offset + math.prod(shape) * dtype.itemsize
        if size < needed:
            raise at(self.name, None, f"truncated: {size} bytes, but its header promises {needed}")
        return dtype, shape, "F" if columns_first else "C", offset

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield slices of the mapped file; other types and byte orders are converted."""
        if not self.rows:
            return
        with located(self.name):
            rule.expect(False)
        with storage_errors(self.name):
            mapped: npt.NDArray[Any] = np.memmap(
                self.file.path, dtype=self._dtype, mode="r", offset=self._offset, shape=self._shape, order=self._order
            )
        values = mapped.view(np.ndarray)
        for start in range(0, self.rows, self._batch_rows):
            part = values[start : start + self._batch_rows]
            self.bytes_done = self._offset + (start + len(part)) * math.prod(self._shape[1:]) * self._dtype.itemsize
            with located(self.name):
                rows = rows_of_array(part, self._width, start, self._signed)
            yield Batch(rows, None)


class RawSource(Source):
    """Successive little-endian numbers of 32 or 64 bits in a file or a stream."""

    def __init__(self, file: InputFile, batch_rows: int, name: str = "u64", width: Width = WIDTH_64) -> None:
        super().__init__(file)
        self._width = width
        if RAW_BITS[name] != width.bits:
            raise at(self.name, None, wrong_width("fingerprints", RAW_BITS[name], f" (.{name})", width))
        self._batch_rows = batch_rows
        self.has_ids = False
        if file.size is not None:
            self._check_size(file.size)
            self.rows = file.size // width.bytes

    def _check_size(self, size: int) -> None:
        bits, taken = self._width.bits, self._width.bytes
        if size % taken:
            raise at(self.name, None, f"truncated: {size % taken} bytes are left over, uint{bits} takes {taken}")

    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Yield the numbers in the order of the file."""
        with self.file.open() as stream:
            for data in iter(partial(self._read, stream), b""):
                self.bytes_done += len(data)
                self._check_size(len(data))  # only the last piece can be cut short
                with located(self.name):
                    rule.expect(False)
                yield Batch(rows_of_array(np.frombuffer(data, dtype=f"<u{self._width.bytes}"), self._width), None)

    def _read(self, stream: BinaryIO) -> bytes:
        with storage_errors(self.name):
            return stream.read(self._batch_rows * self._width.bytes)


class RawEncoder(Encoder):
    """Fingerprints as a ``.npy``, ``.u32`` or ``.u64`` file."""

    def __init__(self, sink: Sink, numpy_header: bool, width: Width = WIDTH_64) -> None:
        if numpy_header and not sink.seekable:
            raw = next((f"format='{name}'" for name, bits in RAW_BITS.items() if bits == width.bits), "format='tsv'")
            raise InputError(f"the .npy format needs a file to write to (for a stream use {raw})")
        self._sink = sink
        self._rows = 0
        self._width = width
        self._numpy_header = numpy_header
        if numpy_header:
            sink.write(_npy_header(0, width))

    def write(self, data: NamedColumns) -> None:
        """Append the fingerprints of the only column."""
        for rows in data.values():
            values = self._width.outside(np.asarray(rows))
            self._sink.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
            self._rows += len(rows)

    def finish(self) -> None:
        """Write the number of rows into the header."""
        if self._numpy_header:
            self._sink.overwrite(_npy_header(self._rows, self._width))


def _npy_header(rows: int, width: Width) -> bytes:
    """Return a version 1.0 header of constant length, so that the count can be filled in at the end."""
    room = _NPY_HEADER_BYTES - len(_NPY_MAGIC) - 2
    descr, shape = (f"<u{width.bytes}", f"({rows},)") if width.words == 1 else ("|u1", f"({rows}, {width.bytes})")
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(room - 1) + "\n"
    return _NPY_MAGIC + room.to_bytes(2, "little") + text.encode("ascii")
