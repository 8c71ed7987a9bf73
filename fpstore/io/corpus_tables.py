"""Corpora in Parquet files, and in tables of Arrow, Polars and pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Progress, Words
from fpstore.base.arrays import keys_of
from fpstore.errors import InputError
from fpstore.io.arrow import (
    FingerprintColumns,
    cast_to,
    codes_of,
    dense,
    distinct_texts,
    find_column,
    id_kind,
    ids_of_column,
    import_pyarrow,
    in_pieces,
    integers_of_times,
    is_ordered,
    is_text,
    kept_rows,
    plain_type,
    with_schema,
    without_views,
    writable,
)
from fpstore.io.corpus import Chosen, Corpus, CorpusFiles, Flags, KeptRows, Part, Rows, Skip
from fpstore.io.corpus_rows import PART_BYTES
from fpstore.io.parquet import BATCH_BYTES, GROUP_ROWS, PAGE_STEP, open_rows, parquet_errors
from fpstore.io.scores import rows_of_keys, score_key
from fpstore.io.sink import Complete, Sink
from fpstore.io.source import IdRule, at, located

BATCH_ROWS = 1 << 14  # that are read at once, or fewer where they are long
GROUP_BYTES = 1 << 25  # of a row group that is written, or GROUP_ROWS


class ArrowColumns:
    """Turns record batches into parts of a corpus.

    Parameters
    ----------
    schema : pyarrow.Schema
    chosen : Chosen

    Raises
    ------
    InputError
        A column is missing, or has a type that it cannot have.
    """

    def __init__(self, schema: Any, chosen: Chosen) -> None:
        self._chosen = chosen
        self.text = chosen.text if isinstance(chosen.text, str) else None  # of which distinct values are decoded once
        self._rule = IdRule("auto")
        for name in chosen.texts:
            found = plain_type(find_column(schema, name))
            if not is_text(found) and not (len(chosen.texts) > 1 and str(found) == "null"):
                raise InputError(f"column {name!r} has type {found}, texts must be strings")
        if chosen.fingerprint is not None:
            self._fingerprints = FingerprintColumns(chosen.fingerprint, chosen.width, chosen.decimal, chosen.signed)
            self._fingerprints.check_type(find_column(schema, chosen.fingerprint))
        if chosen.id is not None:
            self._rule.kind = id_kind(chosen.id, find_column(schema, chosen.id))
        if chosen.score is not None:
            found = plain_type(find_column(schema, chosen.score))
            if not is_ordered(found):
                raise InputError(f"column {chosen.score!r} has type {found}, scores must be numbers or times")

    def part(self, batch: Any, done: int) -> Part:
        """Return the chosen columns of a batch that has so many rows before it."""
        chosen, known = self._chosen, np.ones(batch.num_rows, bool)
        for group in chosen.needed:
            known &= np.logical_or.reduce([_given(batch.column(name)) for name in group])
        if known.all():
            return self._converted(batch, known, done)
        try:
            return self._converted(kept_rows(batch, known), known, done)
        except InputError:
            for place in np.flatnonzero(known).tolist():  # which row it is: those without a value count, too
                self._converted(batch.slice(place, 1), known[place : place + 1], done + place)
            raise

    def _converted(self, batch: Any, known: Flags, done: int) -> Part:
        """Return the columns of a batch whose values are all known."""
        chosen, part = self._chosen, Part(known)
        if isinstance(chosen.text, tuple):
            fields = (_texts(dense(batch.column(name)), name, done)[0] for name in chosen.text)
            part = part._replace(texts=list(zip(*fields, strict=True)))
        elif chosen.text is not None:
            texts, text_of_row = _texts(batch.column(chosen.text), chosen.text, done)
            part = part._replace(texts=texts, text_of_row=text_of_row)
        if chosen.fingerprint is not None:
            part = part._replace(fingerprints=self._fingerprints.rows(batch.column(chosen.fingerprint), done))
        if chosen.id is not None:
            part = part._replace(ids=ids_of_column(batch.column(chosen.id), done, self._rule))
        if chosen.score is not None:
            part = part._replace(scores=self._scores(batch.column(chosen.score), done))
        return part

    def _scores(self, column: Any, done: int) -> Words:
        column = integers_of_times(dense(column))
        plain = str(column.type).removeprefix("u").startswith(("int", "float", "double"))
        if plain and not self._chosen.alike_scores:  # of all parts: they have one schema
            known, values = np.asarray(column.is_valid()), np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False))
            if not np.isnan(values).any():  # below, an error names the row
                return np.stack([known.astype(np.uint64), np.where(known, keys_of(values), np.uint64(0))], axis=1)
        keys = []
        for row, value in enumerate(column.to_pylist(), done + 1):
            try:
                keys.append(score_key(value))
            except InputError as error:
                raise InputError(f"row {row}: {self._chosen.score}: {error}") from None
        return rows_of_keys(keys)


def _texts(column: Any, name: str, done: int) -> tuple[list[str], npt.NDArray[np.intp] | None]:
    try:
        return distinct_texts(column)
    except UnicodeDecodeError as error:
        if len(column) > 1:  # which row it is
            for place in range(len(column)):
                _texts(column.slice(place, 1), name, done + place)
        raise InputError(f"row {done + 1}: {name}: a text that is not valid UTF-8 ({error.reason})") from None


def _given(column: Any) -> Flags:
    """Return which values are not null, also of a dictionary with a null among its values."""
    given: Flags = column.is_valid().to_numpy(zero_copy_only=False)
    if getattr(getattr(column, "dictionary", None), "null_count", 0):
        given = given & column.dictionary.is_valid().to_numpy(zero_copy_only=False)[codes_of(column)]
    return given


def _groups_behind(metadata: Any, skip: Skip) -> tuple[list[int], int]:
    """Return the row groups of a file behind those that are passed over as a whole, and how many rows these have."""
    first = done = 0
    while first < metadata.num_row_groups and metadata.row_group(first).num_rows <= skip.left:
        rows = metadata.row_group(first).num_rows
        skip.left -= rows
        done += rows
        first += 1
    return list(range(first, metadata.num_row_groups)), done


class ParquetCorpus(CorpusFiles):
    """Parquet files of one schema."""

    suffix = ".parquet"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(paths)
        self._arrow = import_pyarrow(self.names[0])
        self._schema: Any = None
        self._compression = "snappy"
        for file in self.files:
            with self._errors(file.name), self._arrow.parquet.ParquetFile(file.path) as parquet:
                schema, metadata = parquet.schema_arrow, parquet.metadata
                if self._schema is None:
                    self._schema = schema
                    if metadata.num_row_groups and metadata.num_columns:
                        self._compression = metadata.row_group(0).column(0).compression
            if not schema.equals(self._schema):
                raise at(file.name, None, f"has another schema than {self.files[0].name}")
        with located(self.names[0]):
            self._plain = without_views(self._schema)

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning."""
        with located(self.names[0]):
            columns = ArrowColumns(self._plain, chosen)
        for name, done, batch in self._batches(chosen.names, skipped):
            for start, some in in_pieces(batch, PART_BYTES, columns.text):
                with located(name), self._errors(name):
                    part = columns.part(some, done + start)
                yield part

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Write the rows that are kept, with all their columns and the metadata of the schema."""
        flags = KeptRows(kept, progress)
        self.check_unchanged()
        with Sink(target, complete) as sink, sink.errors():
            codec = "none" if self._compression == "UNCOMPRESSED" else self._compression
            writer = self._arrow.parquet.ParquetWriter(sink.file, self._schema, compression=codec, write_batch_size=PAGE_STEP)
            try:
                held: list[Any] = []
                rows = size = 0
                for some in self._kept(flags):
                    held, rows, size = [*held, some], rows + some.num_rows, size + some.nbytes
                    if rows < GROUP_ROWS and size < GROUP_BYTES:
                        continue
                    writer.write_table(self._arrow.Table.from_batches(held, self._schema))
                    held, rows, size = [], 0, 0
                flags.finish()
                self.check_unchanged()
                if held:
                    writer.write_table(self._arrow.Table.from_batches(held, self._schema))
            finally:
                writer.close()

    def _kept(self, flags: KeptRows) -> Iterator[Any]:
        """Yield the rows that are kept, in batches that are decoded, with the types of the file."""
        for _, _, batch in self._batches(None):
            for _, some in in_pieces(kept_rows(batch, flags.take(batch.num_rows)), BATCH_BYTES):
                yield cast_to(self._schema, cast_to(self._plain, some))

    def _batches(self, names: list[str] | None, skipped: int = 0) -> Iterator[tuple[str, int, Any]]:
        """Yield the name of a file, the number of rows of it before a batch, and the batch; not some rows at the beginning."""
        self.bytes_done = before = 0
        skip = Skip(skipped)
        for file in self.files:
            with self._errors(file.name):
                parquet, most = open_rows(self._arrow, file.path, names, BATCH_ROWS)
            with parquet:
                groups, done = _groups_behind(parquet.metadata, skip)
                count = max(parquet.metadata.num_rows, 1)
                rows = parquet.iter_batches(most, row_groups=groups, columns=names, use_threads=names is None)
                while True:
                    with self._errors(file.name):
                        batch = next(rows, None)
                    if batch is None:
                        break
                    passed = min(skip.left, batch.num_rows)
                    skip.left -= passed
                    if passed < batch.num_rows:
                        yield file.name, done + passed, batch.slice(passed)
                    done += batch.num_rows
                    self.bytes_done = before + (file.size or 0) * done // count
            before += file.size or 0
        skip.finish()

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        with parquet_errors(self._arrow, name):
            yield


class TableCorpus(Corpus):
    """A table in memory, of whatever has the Arrow C stream interface.

    Parameters
    ----------
    table : object
        A table of pyarrow, Polars or pandas, or another object with ``__arrow_c_stream__``.
    """

    names, suffix = ("the table",), ".parquet"

    def __init__(self, table: Any) -> None:
        self._arrow = import_pyarrow("the table", "a table")
        self._given = table
        arrow = self._as_arrow(table)
        self._plain = without_views(arrow.schema)
        self.table = arrow
        self.bytes_total = self.table.nbytes

    def _as_arrow(self, table: Any) -> Any:
        try:
            return table if isinstance(table, self._arrow.Table) else self._arrow.table(table)
        except (TypeError, ValueError):  # a column of pyarrow, Polars or pandas has the interface, too
            kind = type(table).__name__
            raise InputError(
                f"a corpus in memory is a table with named columns, got {kind}: make it a column of a table", got=table
            ) from None

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning."""
        columns = ArrowColumns(self._plain, chosen)
        done, self.bytes_done = skipped, 0
        for batch in self.table.select(chosen.names).slice(skipped).to_batches(max_chunksize=BATCH_ROWS):
            for start, some in in_pieces(batch, PART_BYTES, columns.text):
                yield columns.part(some, done + start)
            done += batch.num_rows
            self.bytes_done = (self.bytes_total or 0) * done // max(self.table.num_rows, 1)

    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Write the rows that are kept as Parquet."""
        with Sink(target, complete) as sink, sink.errors():
            rows = kept_rows(self.table, kept)
            self._arrow.parquet.write_table(with_schema(rows, writable(rows.schema)), sink.file)

    def kept(self, kept: Flags) -> Any:
        """Return the rows that are kept, as a table of the kind that was given."""
        kind = type(self._given).__module__.partition(".")[0]
        if kind == "pandas":
            return self._given[kept]
        return self._given.filter(kept) if kind == "polars" else kept_rows(self.table, kept)


class BatchRows(Rows):
    """The rows of a table in memory, or of a stream of record batches, of which one is held at a time.

    Parameters
    ----------
    table : object
        A table, a record batch or a record batch reader of pyarrow, a data frame of Polars or pandas, or another object with
        ``__arrow_c_stream__``.
    """

    names = ("the table",)

    def __init__(self, table: Any) -> None:
        self._arrow = import_pyarrow("the table", "a table")
        self._given = table
        self._spent = False

    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning."""
        skip, done = Skip(skipped), 0
        with self._stream() as stream:
            for name in chosen.names:
                find_column(stream.schema, name)
            schema = without_views(self._arrow.schema([stream.schema.field(name) for name in chosen.names]))
            columns = ArrowColumns(schema, chosen)
            for given in stream:
                batch = given.select(chosen.names)
                passed = min(skip.left, batch.num_rows)
                skip.left -= passed
                if passed < batch.num_rows:
                    for start, some in in_pieces(batch.slice(passed), PART_BYTES, columns.text):
                        yield columns.part(some, done + passed + start)
                done += batch.num_rows
        skip.finish()

    def _stream(self) -> Any:
        reader = self._arrow.RecordBatchReader
        if isinstance(self._given, reader):
            if self._spent:
                raise InputError("a record batch reader can be read only once: make a table of it, or another reader")
            self._spent = True
        try:
            return reader.from_stream(self._given)
        except (TypeError, ValueError):  # a column of pyarrow, Polars or pandas has the interface, too
            kind = type(self._given).__name__
            raise InputError(f"rows in memory are a table with named columns, got {kind}: make it a column of a table") from None
