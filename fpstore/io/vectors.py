"""Vectors in arrays, in columns of Arrow, and in files: ``.npy``, mapped into memory, and Parquet."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.strings import StringColumn
from fpstore.errors import InputError
from fpstore.io.arrow import find_column, id_kind, ids_of_column, import_pyarrow
from fpstore.io.parquet import parquet_errors
from fpstore.io.source import IdRule, Ids, InputFile, at, located, storage_errors

Array = npt.NDArray[Any]
PIECE_ROWS = 1 << 13
VECTOR_FIELD, ID_FIELD = "vector", "id"


def is_arrow(values: object) -> bool:
    """Return whether values are an array or a chunked array of pyarrow."""
    return type(values).__module__.partition(".")[0] == "pyarrow" and hasattr(values, "null_count")


def arrays_of_column(column: Any, rows: int) -> Iterator[Array]:
    """Yield the vectors of an array of Arrow as arrays of so many rows, without copies where there are no nulls.

    Raises
    ------
    InputError
        The type is not that of lists of numbers, a vector or a number is null, or lists have different lengths; the message has
        the position.
    """
    done = 0
    for chunk in getattr(column, "chunks", [column]):
        for start in range(0, len(chunk), rows):
            part = chunk.slice(start, rows)
            yield _array_of_lists(part, done)
            done += len(part)


def list_size(column_type: Any) -> int | None:
    """Return the length of vectors of an Arrow type, None if it has them of any length; InputError for other types."""
    from pyarrow import types

    fixed = types.is_fixed_size_list(column_type)
    if not (fixed or types.is_list(column_type) or types.is_large_list(column_type)):
        raise InputError(f"vectors must be lists of numbers, got a column of type {column_type}")
    inner = column_type.value_type
    if not (types.is_floating(inner) or types.is_integer(inner) or types.is_boolean(inner)):
        raise InputError(f"vectors must be lists of numbers, got a column of type {column_type}")
    return int(column_type.list_size) if fixed else None


def _array_of_lists(column: Any, done: int) -> Array:
    size = list_size(column.type)
    if column.null_count:
        place = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"vector {done + place}: is null: leave such rows out")
    if size is None:
        lengths = np.diff(column.offsets.to_numpy(zero_copy_only=False))
        size = int(lengths[0]) if len(lengths) else 0
        other = np.flatnonzero(lengths != size)
        if len(other):
            place = int(other[0])
            raise InputError(
                f"vector {done + place}: has {int(lengths[place])} numbers, and vector {done} has {size}: "
                "all must have as many as one another"
            )
    numbers = column.flatten()
    if numbers.null_count:
        place = int(np.argmax(numbers.is_null().to_numpy(zero_copy_only=False))) // max(size, 1)
        raise InputError(f"vector {done + place}: holds a null: vectors have a number in every place")
    array: Array = numbers.to_numpy(zero_copy_only=False).reshape(len(column), size)
    return array


class VectorFile(ABC):
    """A file of vectors, read in pieces.

    Attributes
    ----------
    name : str
        What messages call it.
    rows : int
    dimension : int or None
        Numbers in a vector; None if the file does not say before it is read.
    kind : dtype or None
        Of the numbers, likewise.
    has_ids : bool
    bytes_total : int
    """

    rows: int
    dimension: int | None
    has_ids: bool

    def __init__(self, file: InputFile) -> None:
        if file.size is None:
            raise at(file.name, None, "vectors are read from a regular file: write them to one first")
        self.name, self.path, self.bytes_total = file.name, file.path, file.size

    @abstractmethod
    def pieces(self, rule: IdRule) -> Iterator[tuple[Array, Ids]]:
        """Yield vectors, shape (n, dimension), with their ids if there are any."""


class NpyVectors(VectorFile):
    """The rows of a ``.npy`` file, which have no ids."""

    has_ids = False

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        mapped = self._mapped()
        if mapped.ndim != 2:
            raise at(self.name, None, f"an array of shape {mapped.shape}: vectors are rows of an array of two dimensions")
        self.rows, self.dimension = mapped.shape

    def _mapped(self) -> Array:
        with storage_errors(self.name):
            try:
                mapped: Array = np.lib.format.open_memmap(self.path, mode="r")
            except (ValueError, EOFError, SyntaxError, TypeError) as error:
                reason = (str(error) or "no header").splitlines()[0]
                raise at(self.name, None, f"not a readable .npy file: {reason}") from None
            return mapped

    def pieces(self, rule: IdRule) -> Iterator[tuple[Array, Ids]]:
        """Yield slices of the mapped file."""
        mapped = self._mapped()
        for start in range(0, self.rows, PIECE_ROWS):
            yield np.asarray(mapped[start : start + PIECE_ROWS]), None


class ParquetVectors(VectorFile):
    """A column of lists in a Parquet file, and one of ids if there is one."""

    def __init__(self, file: InputFile, vector_field: str | None, id_field: str | None) -> None:
        super().__init__(file)
        self._arrow = import_pyarrow(self.name)
        with parquet_errors(self._arrow, self.name), self._arrow.parquet.ParquetFile(self.path) as parquet:
            schema = parquet.schema_arrow
            self.rows = int(parquet.metadata.num_rows)
        self._vector_field = vector_field or VECTOR_FIELD
        self._id_field = id_field or ID_FIELD
        with located(self.name):
            self.dimension = list_size(find_column(schema, self._vector_field))
            self.has_ids = id_field is not None or self._id_field in schema.names
            if self.has_ids:
                id_kind(self._id_field, find_column(schema, self._id_field))
        if self.dimension is None:
            self.dimension = next((vectors.shape[1] for vectors, _ in self._read(1, IdRule("auto"))), None)

    def pieces(self, rule: IdRule) -> Iterator[tuple[Array, Ids]]:
        """Yield batches of rows in the order of the file."""
        return self._read(PIECE_ROWS, rule)

    def _read(self, rows: int, rule: IdRule) -> Iterator[tuple[Array, Ids]]:
        names = [self._vector_field, *([self._id_field] if self.has_ids else [])]
        done = 0
        with parquet_errors(self._arrow, self.name):
            parquet = self._arrow.parquet.ParquetFile(self.path)
        with parquet:
            batches = parquet.iter_batches(batch_size=rows, columns=names)
            while True:
                with parquet_errors(self._arrow, self.name):
                    batch = next(batches, None)
                if batch is None:
                    return
                with located(self.name):
                    vectors = _array_of_lists(batch.column(self._vector_field), done)
                    ids = ids_of_column(batch.column(self._id_field), done, rule) if self.has_ids else None
                done += len(vectors)
                yield vectors, ids.texts() if isinstance(ids, StringColumn) else ids


def open_vectors(path: str | os.PathLike[str], vector_field: str | None = None, id_field: str | None = None) -> VectorFile:
    """Open a file of vectors, by its extension.

    Raises
    ------
    InputError
        The extension is neither ``.npy`` nor ``.parquet``, the file is not in the format, or it has no such columns.
    StorageError
        The file cannot be read.
    MissingExtraError
        Parquet without pyarrow.
    """
    file = InputFile(path)
    suffix = Path(file.path).suffix.lower()
    if suffix == ".parquet":
        return ParquetVectors(file, vector_field, id_field)
    if suffix != ".npy":
        raise at(file.name, None, "vectors are read from files named *.npy or *.parquet: save them as one of these")
    if vector_field is not None or id_field is not None:
        raise at(file.name, None, "a .npy file has no columns: leave out the names of fields, or write Parquet")
    return NpyVectors(file)
