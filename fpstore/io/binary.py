"""Raw numbers without ids: NumPy's ``.npy`` and little-endian ``.u32`` and ``.u64`` files."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import NamedColumns
from fpstore.base.keywords import keyword
from fpstore.base.width import WIDTH_64, Width
from fpstore.errors import InputError, show
from fpstore.io.check import dtype_problem, rows_of_array
from fpstore.io.digits import wrong_width
from fpstore.io.files import error_location, input_error, translate_storage_errors
from fpstore.io.sink import Encoder, Sink
from fpstore.io.source import Batch, IdRule, Projection, RowFiles

RAW_BITS = {"u32": 32, "u64": 64}
_NPY_HEADER_BYTES = 128
_NPY_MAGIC = b"\x93NUMPY\x01\x00"


class NpyRows(RowFiles):
    """An array in a ``.npy`` file, mapped into memory: fingerprints, or vectors as its rows."""

    def __init__(self, path: str, batch_rows: int) -> None:
        super().__init__([path])
        (self.file,), (self.name,) = self.files, self.names
        if self.file.size is None:
            raise input_error(
                self.name,
                None,
                "a .npy input must be a regular file (for a stream use format='u64')",
            )
        self._batch_rows = batch_rows
        mapped = self._map_rows()
        self._dtype, self._shape = mapped.dtype, mapped.shape
        self.rows = self._shape[0] if self._shape else 0

    def resolve_columns(self, projection: Projection) -> Projection:
        """Return the projection without its column of ids: a .npy file has none.

        InputError for an array of another type or shape.
        """
        if projection.vector is not None and projection.names_columns:
            raise input_error(
                self.name,
                None,
                "a .npy file has no columns: leave out the names of fields, or write Parquet",
            )
        if projection.id is not None and not projection.optional_id:
            raise input_error(self.name, None, f"a .npy file has no column {show(projection.id)}")
        if projection.vector is not None and len(self._shape) != 2:
            raise input_error(
                self.name,
                None,
                f"an array of shape {self._shape}: vectors are rows of an array of two dimensions",
            )
        width, dtype = projection.width, self._dtype
        problem = (
            None
            if projection.vector is not None
            else dtype_problem(dtype, self._shape, width, projection.signed)
        )
        if problem:
            if dtype.kind == "i" and width.words == 1 and not projection.signed:
                problem += f", or read the file with {keyword('signed', True)}"
            raise input_error(self.name, None, problem)
        return replace(projection, id=None, optional_id=False)

    def _map_rows(self) -> npt.NDArray[Any]:
        shorter = "it is shorter than its header says"
        with translate_storage_errors(self.name):
            try:
                with np.errstate(over="raise"):  # the number of bytes of a damaged shape
                    mapped: npt.NDArray[Any] = np.lib.format.open_memmap(self.file.path, mode="r")
            except ArithmeticError:
                raise input_error(self.name, None, f"not a readable .npy file: {shorter}") from None
            except (ValueError, EOFError, SyntaxError, TypeError) as error:
                reason = (str(error) or "no header").splitlines()[0]
                reason = reason.replace("mmap length is greater than file size", shorter)
                raise input_error(self.name, None, f"not a readable .npy file: {reason}") from None
            return mapped

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        """Yield slices of the mapped file.

        Fingerprints of other types and byte orders are converted.
        """
        assert not skipped, "no job with a checkpoint reads it"
        if not self.rows:
            return
        mapped = self._map_rows()
        values, offset = mapped.view(np.ndarray), (self.bytes_total or 0) - mapped.nbytes
        for start in range(0, self.rows, self._batch_rows):
            part = values[start : start + self._batch_rows]
            self.bytes_done = offset + (start + len(part)) * mapped.nbytes // self.rows
            if projection.vector is not None:
                yield Batch(vectors=part)
                continue
            with error_location(self.name):
                rows = rows_of_array(part, projection.width, start, projection.signed)
            yield Batch(rows)


class RawRows(RowFiles):
    """Successive little-endian numbers of 32 or 64 bits in a file or a stream."""

    def __init__(self, path: str, bits: int, batch_rows: int) -> None:
        super().__init__([path])
        (self.file,), (self.name,) = self.files, self.names
        self._bytes, self._batch_rows = bits // 8, batch_rows
        if self.file.size is not None:
            self._check_size(self.file.size)
            self.rows = self.file.size // self._bytes

    def resolve_columns(self, projection: Projection) -> Projection:
        """Return the columns without ids, which there are none of; InputError for another width."""
        bits = 8 * self._bytes
        if projection.id is not None and not projection.optional_id:
            raise input_error(
                self.name, None, f"a .u{bits} file has no column {show(projection.id)}"
            )
        if bits != projection.width.bits:
            raise input_error(
                self.name, None, wrong_width("fingerprints", bits, f" (.u{bits})", projection.width)
            )
        return replace(projection, id=None, optional_id=False)

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        assert not skipped, "no job with a checkpoint reads it"
        with self.file.open() as stream:
            for data in iter(partial(self._read, stream), b""):
                self.bytes_done += len(data)
                self._check_size(len(data))  # only the last piece can be cut short
                yield Batch(
                    rows_of_array(np.frombuffer(data, dtype=f"<u{self._bytes}"), projection.width)
                )

    def _check_size(self, size: int) -> None:
        if size % self._bytes:
            message = (
                f"truncated: {size % self._bytes} bytes are left over, uint{8 * self._bytes} "
                f"takes {self._bytes}"
            )
            raise input_error(self.name, None, message)

    def _read(self, stream: BinaryIO) -> bytes:
        with translate_storage_errors(self.name):
            return stream.read(self._batch_rows * self._bytes)


class RawEncoder(Encoder):
    """Fingerprints as a ``.npy``, ``.u32`` or ``.u64`` file."""

    def __init__(self, sink: Sink, numpy_header: bool, width: Width = WIDTH_64) -> None:
        if numpy_header and not sink.seekable:
            raw = next(
                (f"format='{name}'" for name, bits in RAW_BITS.items() if bits == width.bits),
                "format='tsv'",
            )
            raise InputError(f"the .npy format needs a file to write to (for a stream use {raw})")
        self._sink = sink
        self._rows = 0
        self._width = width
        self._numpy_header = numpy_header
        if numpy_header:
            sink.write(_npy_header(0, width))

    def write(self, data: NamedColumns) -> None:
        for rows in data.values():
            values = self._width.to_array(np.asarray(rows))
            self._sink.write(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
            self._rows += len(rows)

    def finish(self) -> None:
        if self._numpy_header:
            self._sink.overwrite(_npy_header(self._rows, self._width))


def _npy_header(rows: int, width: Width) -> bytes:
    """Return a version 1.0 header, whose length does not depend on the number of rows."""
    room = _NPY_HEADER_BYTES - len(_NPY_MAGIC) - 2
    descr, shape = (
        (f"<u{width.bytes}", f"({rows},)")
        if width.words == 1
        else ("|u1", f"({rows}, {width.bytes})")
    )
    text = (
        f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".ljust(room - 1) + "\n"
    )
    return _NPY_MAGIC + room.to_bytes(2, "little") + text.encode("ascii")
