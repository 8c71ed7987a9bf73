"""Results as tables of Arrow, pandas and polars, which are imported when the first one is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import NamedColumns, Words
from fpstore.errors import InputError, show
from fpstore.io.packages import import_package


class Tabular(ABC):
    """A result that converts to tables.

    It has the Arrow C stream protocol, so other packages can take it too.
    """

    @abstractmethod
    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return the columns as a ``pyarrow.Table``."""

    def to_pandas(self, **options: Any) -> Any:
        """Return the same as a ``pandas.DataFrame``, with the options of ``to_arrow``.

        Needs pyarrow too.
        """
        table = self.to_arrow(**options)
        import_package("pandas", "to_pandas")  # pyarrow imports it, and has a message of its own
        return table.to_pandas()

    def to_polars(self, **options: Any) -> Any:
        """Return the same as a ``polars.DataFrame``, with the options of ``to_arrow``.

        Needs pyarrow too.
        """
        table = self.to_arrow(**options)
        return import_package("polars", "to_polars").from_arrow(table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the columns of ``to_arrow()`` as a capsule of an Arrow C stream.

        See https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)


class TabularBatches(Tabular):
    """A result whose rows come in batches of columns."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 rows."""

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return the columns as a ``pyarrow.Table``, as :meth:`fpstore.Matches.to_arrow` does."""
        return arrow_table(self.batches(), names)

    def __repr__(self) -> str:
        return f"<fpstore.{type(self).__name__}: {len(self):,} rows>"


def arrow_table(parts: Iterable[NamedColumns], names: Mapping[str, str] | None) -> Any:
    """Return the columns of one or more parts as a ``pyarrow.Table``, with a chunk for each part.

    ``names`` has new names of columns.
    Numbers in 1-D arrays are not copied; uint8 of shape (rows, bytes) becomes bytes of fixed size,
    and lists become strings.
    """
    pyarrow = import_package("pyarrow", "a table")
    chunks: dict[str, list[Any]] = {}
    for part in parts:
        if not chunks:
            chunks = {name: [] for name in part}
            new = renamed(list(part), names)
        for name, values in part.items():
            array = arrow_array(values)
            # pyarrow makes several arrays of more strings than the type holds
            chunks[name] += getattr(array, "chunks", [array])
    return pyarrow.table([pyarrow.chunked_array(arrays) for arrays in chunks.values()], new)


def append_columns(table: Any, new: Any) -> Any:
    """Return a table of pyarrow, Polars, pandas or datasets with the columns of a pyarrow one."""
    kind = type(table).__module__.partition(".")[0]
    if kind == "polars":
        return table.hstack(import_package("polars", "a data frame").from_arrow(new))
    if kind == "pandas":
        pandas, pyarrow = import_package("pandas", "a table"), import_package("pyarrow", "a table")
        frame = new.to_pandas(types_mapper={pyarrow.int64(): pandas.Int64Dtype()}.get)
        return table.assign(**{name: frame[name].array for name in frame.columns})
    for field, column in zip(new.schema, new.columns, strict=True):
        table = (
            table.add_column(field.name, column.to_pylist())
            if kind == "datasets"
            else table.append_column(field, column)
        )
    return table


def values_at(
    values: npt.NDArray[Any] | list[str], places: npt.NDArray[Any]
) -> npt.NDArray[Any] | list[str]:
    return (
        [values[place] for place in places.tolist()] if isinstance(values, list) else values[places]
    )


def renamed(columns: Sequence[str], names: Mapping[str, str] | None) -> list[str]:
    """Return the names of the columns.

    InputError for names of other columns, and for two columns of one name.
    """
    if names is None:
        return list(columns)
    if not isinstance(names, Mapping):
        raise InputError(
            f"names must be a dict of columns and their new names, got {show(names)}",
            got=names,
            argument="names",
        )
    for name, new_name in names.items():
        if name not in columns:
            raise InputError(
                f"there is no column {show(name)} to rename (columns here: {', '.join(columns)})",
                got=name,
            )
        if not isinstance(new_name, str) or not new_name:
            raise InputError(
                f"the new name of {name!r} must be a string, got {show(new_name)}", got=new_name
            )
    new = [names.get(column, column) for column in columns]
    if len(set(new)) != len(new):
        raise InputError(f"two columns would have one name: {', '.join(new)}", got=names)
    return new


def arrow_array(values: Words | npt.NDArray[Any] | list[str]) -> Any:
    """Return the values of a column as an Arrow array.

    Uint8 of shape (rows, bytes) as bytes of fixed size, a list as strings.
    """
    import pyarrow

    if isinstance(values, list):
        return pyarrow.array(values, pyarrow.string())
    if values.ndim == 1:
        column_type = pyarrow.from_numpy_dtype(values.dtype)
    else:
        column_type = pyarrow.binary(values.shape[1])
    data = np.packbits(values, bitorder="little") if values.dtype == bool else values
    # pyarrow.array would import pandas, which takes longer than a small job
    return pyarrow.Array.from_buffers(
        column_type, len(values), [None, pyarrow.py_buffer(np.ascontiguousarray(data))]
    )
