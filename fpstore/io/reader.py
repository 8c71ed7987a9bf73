"""Reading fingerprints and ids from successive files of any known format."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, check_flag, check_whole, printable
from fpstore.base.arrays import NO_WORDS
from fpstore.base.diagnostics import notify
from fpstore.base.keywords import accepts, keyword
from fpstore.base.strings import NO_STRINGS, StringColumn
from fpstore.base.width import Width, check_width
from fpstore.errors import InputError, StorageError, plural, show
from fpstore.io.binary import RAW_BITS, NpyRows, RawRows
from fpstore.io.check import is_plain_integer
from fpstore.io.delimited import DelimitedText, Dialect
from fpstore.io.digits import check_signed, parse_integers
from fpstore.io.files import (
    HiddenNames,
    InputFile,
    check_paths,
    error_location,
    inner_name,
    input_error,
    is_hidden,
    translate_storage_errors,
)
from fpstore.io.json_lines import JsonLines
from fpstore.io.lines import LineRows
from fpstore.io.parquet import ParquetRows
from fpstore.io.remote import local_files
from fpstore.io.source import (
    FIELD_FORMATS,
    FIELD_SUFFIXES,
    FORMATS,
    LINE_FORMATS,
    Batch,
    Chunk,
    IdRule,
    IdType,
    OmittedRow,
    Projection,
    RowFiles,
    RowSource,
    format_suffix,
    select_ids,
)

HEAD_BYTES = 1 << 16  # enough of a file to see whether it has rows
# the most rows of a chunk, and bytes of its string ids
CHUNK_ROWS, CHUNK_BYTES = 1 << 18, 1 << 22
MAX_CHUNK_ROWS = 1 << 30


class NumberedChunk(NamedTuple):
    """A chunk, with the numbers of its rows in the input.

    ``end`` is the number of the next row behind them and behind the rows ``left_out``. The id of a
    row that is left out is known if the input has ids, and the row is not wrong.
    """

    chunk: Chunk
    places: Words
    end: int
    left_out: list[OmittedRow]


class _NumberedRows(NamedTuple):
    places: list[Words]
    left_out: list[OmittedRow]


class Reader:
    """The rows of one or more inputs, in order, as `Chunk` of at most ``chunk_rows`` rows.

    Made by `open_reader`.

    Iterating again reads the files again; standard input can be read only once.

    Attributes
    ----------
    rows : int or None
        The total number of rows, if every input has it before it is read (``.npy``, ``.u64``,
        ``.parquet``).
    width : int
        The bits of a fingerprint.
    fingerprinter : Fingerprinter, dict or None
        Makes the fingerprints, or has made them: Parquet files that ``fpstore hash`` writes
        remember how.
    """

    def __init__(
        self, sources: Sequence[RowSource], projection: Projection, id_type: IdType, chunk_rows: int
    ) -> None:
        self._sources = sources
        self._projections = [source.resolve_columns(projection) for source in sources]
        self._id_type: IdType = id_type
        self._chunk_rows = chunk_rows
        self._rule = IdRule(id_type)
        self._width = projection.width
        self.width = projection.width.bits
        self.rows = _total(source.rows for source in sources)
        self._done = 0  # rows of all sources
        self._row_numbers: _NumberedRows | None = None  # while `numbered_chunks` reads
        fingerprinters = [getattr(source, "fingerprinter", None) for source in sources]
        self.fingerprinter: Any = (
            fingerprinters[0]
            if fingerprinters and fingerprinters.count(fingerprinters[0]) == len(fingerprinters)
            else None
        )

    @property
    def bytes_total(self) -> int | None:
        """The size of all inputs in bytes; None if one is a stream."""
        return _total(source.bytes_total for source in self._sources)

    @property
    def bytes_done(self) -> int:
        """Bytes read so far."""
        return sum(source.bytes_done for source in self._sources)

    def limit_memory(self, memory: int) -> None:
        """Read lines as long as an amount of memory allows."""
        for source in self._sources:
            source.limit_memory(memory)

    @property
    def has_ids(self) -> bool | None:
        """Whether rows have ids; None while unknown."""
        if self._rule.has_ids is not None:
            return self._rule.has_ids
        filled = (
            projection
            for source, projection in zip(self._sources, self._projections, strict=True)
            if source.rows != 0
        )
        return next(
            (
                None if projection.optional_id else projection.id is not None
                for projection in filled
            ),
            None,
        )

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._as_chunk, self.columns())

    def _as_chunk(self, batch: Batch) -> Chunk:
        ids = batch.ids.texts() if isinstance(batch.ids, StringColumn) else batch.ids
        return Chunk(self._width.to_array(batch.fingerprints), ids)

    @property
    def unbuffered(self) -> bool:
        """Whether rows are yielded as they come."""
        return any(source.unbuffered for source in self._sources)

    @property
    def next_row(self) -> int:
        """The number of the row after those read so far, with those that are left out."""
        return self._done

    def numbered_chunks(self, leave_out_wrong: bool = False) -> Iterator[NumberedChunk]:
        """Yield chunks with the numbers of their rows in the input, and the rows that are left out.

        With ``leave_out_wrong``, a row that is wrong is left out; otherwise it is an error.
        """
        for source in self._sources:
            source.leave_out_wrong(leave_out_wrong)
        return self._numbered_chunks()

    def _numbered_chunks(self) -> Iterator[NumberedChunk]:
        noted = self._row_numbers = _NumberedRows([], [])
        later_places, left_out, end = NO_WORDS, list[OmittedRow](), self.next_row
        try:
            for chunk in self:
                places = np.concatenate([later_places, *noted.places])
                left_out += noted.left_out
                noted.places.clear()
                noted.left_out.clear()
                chunk_places, later_places = np.split(places, [len(chunk.fingerprints)])
                end = int(later_places[0]) if len(later_places) else self.next_row
                yield NumberedChunk(
                    chunk, chunk_places, end, [row for row in left_out if row.place < end]
                )
                left_out = [row for row in left_out if row.place >= end]
            left_out += noted.left_out
            if end < self.next_row:
                nothing = Chunk(self._width.to_array(self._width.empty(0)), None)
                yield NumberedChunk(nothing, NO_WORDS, self.next_row, left_out)
        finally:
            self._row_numbers = None

    def _note_places(self, batch: Batch) -> None:
        """Note which rows of a batch have a fingerprint and which are left out, and count all."""
        first = self.next_row
        if self._row_numbers is not None:
            self._row_numbers.places.append(
                np.flatnonzero(batch.flags).astype(np.uint64) + np.uint64(first)
            )
            self._row_numbers.left_out.extend(
                row._replace(place=first + row.place) for row in batch.left_out
            )
        self._done += len(batch.fingerprints if batch.known is None else batch.known)

    def columns(self) -> Iterator[Batch]:
        """Yield the same as rows of words, with strings in columns."""
        self._rule, self._done = IdRule(self._id_type), 0
        for source in self._sources:
            source.bytes_done = 0
        return cut_batches(self._with_final_ids(self._rule), self._chunk_rows, self.unbuffered)

    def columns_of_width(self, width: Width) -> Iterator[Batch]:
        """Yield :meth:`columns`; InputError if the reader was opened for another width."""
        if self.width != width.bits:
            raise InputError(
                f"the reader was opened for fingerprints of {self.width} bits, but the width is "
                f"{width.bits}: open it with "
                f"width={width.bits}",
                expected=width.bits,
                got=self.width,
            )
        return self.columns()

    def _read(self, source: RowSource, projection: Projection, rule: IdRule) -> Iterator[Batch]:
        for batch in source.batches(projection, rule):
            if not projection.optional_id and len(batch.fingerprints):
                with error_location(source.label):
                    rule.expect(projection.id is not None)
            self._note_places(batch)
            yield batch

    def _with_final_ids(self, rule: IdRule) -> Iterator[Batch]:
        """Yield batches with ids of their final type.

        Textual ids are held back until there is a chunk of them.
        """
        waiting: list[Batch] = []
        filled = 0.0
        for source, projection in zip(self._sources, self._projections, strict=True):
            if (source.typed or source.unbuffered) and waiting:
                yield from _decide_id_type(waiting, rule, self._chunk_rows)
                waiting, filled = [], 0.0
            if source.unbuffered and not source.typed and rule.kind is None:
                rule.kind = "str"  # later ids are not known yet
            for batch in self._read(source, projection, rule):
                batch = batch._replace(unbuffered=batch.unbuffered or source.unbuffered)
                if source.typed or batch.ids is None or rule.kind is not None:
                    yield batch
                    continue
                waiting.append(batch)
                filled += (
                    len(batch.fingerprints) / self._chunk_rows + batch.string_bytes / CHUNK_BYTES
                )
                if filled >= 1:
                    yield from _decide_id_type(waiting, rule, self._chunk_rows)
                    waiting, filled = [], 0.0
        yield from _decide_id_type(waiting, rule, self._chunk_rows)


def _decide_id_type(waiting: list[Batch], rule: IdRule, rows: int) -> Iterator[Batch]:
    """Let the first rows decide the id type, then convert the ids that were held back."""
    if not waiting:
        return
    columns = [batch.ids for batch in waiting if isinstance(batch.ids, StringColumn)]
    first_ids = StringColumn.concatenate(columns or [NO_STRINGS]).slice(0, rows)
    rule.kind = "str" if parse_integers(first_ids, plain=True) is None else "int"
    if rule.kind == "str" and first_ids.data.isdigit():
        texts = first_ids.texts()
        other_ids = [text for text in texts if not is_plain_integer(text)]
        if len(other_ids) < len(texts) and all(
            text.isdigit() and text[0] != "0" for text in other_ids
        ):
            raise InputError(  # all would silently become strings
                f"the id {show(other_ids[0])} is over 2^64-1, but other ids are integers below it; "
                f"give the id type explicitly ({keyword('id_type', 'str')})"
            )
    for batch in waiting:
        if (
            rule.kind == "int"
            and isinstance(batch.ids, StringColumn)
            and batch.row_error is not None
        ):
            batch = batch._replace(ids=rule.integers(batch.ids, batch.row_error))
        yield batch


def cut_batches(batches: Iterable[Batch], rows: int, empty_too: bool) -> Iterator[Batch]:
    """Regroup batches into parts of ``rows`` rows, or fewer where their ids are long.

    The last one may be shorter.
    """
    parts: list[Batch] = []
    part_rows, part_bytes = 0, 0
    for batch in batches:
        start, count = 0, len(batch.fingerprints)
        while start < count:
            stop = min(count, start + rows - part_rows)
            parts.append(
                Batch(batch.fingerprints[start:stop], select_ids(batch.ids, slice(start, stop)))
            )
            part_rows += stop - start
            part_bytes += parts[-1].string_bytes
            start = stop
            if part_rows == rows or part_bytes >= CHUNK_BYTES:
                yield _concatenate(parts)
                parts, part_rows, part_bytes = [], 0, 0
        if batch.unbuffered and (parts or (empty_too and not count)):
            yield _concatenate(parts or [batch])
            parts, part_rows, part_bytes = [], 0, 0
    if parts:
        yield _concatenate(parts)


def _concatenate(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    ids: Any = [part.ids for part in parts]
    join = StringColumn.concatenate if isinstance(ids[0], StringColumn) else np.concatenate
    return Batch(
        np.concatenate([part.fingerprints for part in parts]), None if ids[0] is None else join(ids)
    )


def _total(values: Iterable[int | None]) -> int | None:
    counts = list(values)
    return None if None in counts else sum(counts)  # type: ignore[arg-type]


def check_format(
    path: str | os.PathLike[str],
    format_name: str | None,
    formats: Sequence[str] = FORMATS,
    shown: Sequence[str] | None = None,
) -> str:
    """Return the named format, or the format of the extension, or TSV for ``-``.

    It must be one of ``formats``; messages list ``shown`` instead if that is not None.
    """
    names = ", ".join(f".{name}" for name in shown or formats)
    if format_name is not None:
        name = format_name.lower() if isinstance(format_name, str) else ""
        name = name.removeprefix(".")
        if name not in formats:
            raise InputError(f"unknown format {show(format_name)}; known formats: {names}")
        return name
    if os.fspath(path) == "-":
        return "tsv"
    name = format_suffix(path).removeprefix(".")
    if name not in formats:
        raise InputError(
            f"{printable(os.fspath(path))}: unknown extension {show('.' + name if name else '')}; "
            f"known extensions: {names}"
        )
    return name


def input_format(
    path: str | os.PathLike[str], format_name: str | None, formats: Sequence[str] = FORMATS
) -> str:
    """Return the format of a file that is read, which may be compressed."""
    if format_name is not None or os.fspath(path) == "-":
        return check_format(path, format_name, formats)
    inner = Path(path).with_name(inner_name(path)) if Path(path).name else Path(path)
    if format_suffix(inner).removeprefix(".") not in formats and not os.path.lexists(path):
        raise StorageError(f"{printable(os.fspath(path))}: no such file or folder", path=path)
    inner_format = check_format(inner, None, formats)
    if inner_format not in LINE_FORMATS and inner.name != Path(path).name:
        raise input_error(
            printable(os.fspath(path)),
            None,
            f"a compressed .{inner_format} file cannot be read: decompress it first",
        )
    return inner_format


def row_files(
    folder: str,
    names: Sequence[str],
    format_name: str | None,
    read_head: Callable[[str], bytes],
) -> list[str]:
    """Return the files in a folder whose rows are read; InputError for none.

    Without a named format, descriptions are left out: files named .json beside rows of Parquet, CSV
    or TSV, unless they are compressed or have several lines of JSON; ``read_head`` returns the
    first bytes of a file.
    """
    if not names:
        kinds = (
            "file" if format_name is not None else ", ".join(f".{name}" for name in FIELD_FORMATS)
        )
        texts = keyword("text", True)
        each = f"; {texts} makes a document of each file" if accepts("text", True) else ""
        raise InputError(f"{folder}: no {kinds} in this folder{each}", path=folder)
    json_names = [name for name in names if PurePath(name).suffix.lower() == ".json"]
    if format_name is not None or all(
        format_suffix(inner_name(name)) == ".jsonl" for name in names
    ):
        return list(names)
    described = {name for name in json_names if not _has_lines_of_json(read_head(name))}
    if described:
        first = ", ".join(map(printable, sorted(described)[:3]))
        notify(
            f"{plural(len(described), 'file')} named .json left out, as descriptions of the "
            f"other files: {first}"
        )
    return [name for name in names if name not in described]


def stored_files(
    uri: str,
    names: Iterable[str],
    format_name: str | None,
    read_head: Callable[[str], bytes],
) -> list[str]:
    """Return the files of a folder in an object store whose rows are read, as in a walk on a disk.

    If the format is named, all files of the folder have it.
    """
    hidden, shown = HiddenNames(), list[str]()
    for name in names:
        if any(map(is_hidden, name.split("/"))):
            hidden.add(f"{uri.rstrip('/')}/{name}")
        elif format_name is not None or inner_name(name).lower().endswith(FIELD_SUFFIXES):
            shown.append(name)
    hidden.report()
    return sorted(row_files(uri, shown, format_name, read_head), key=lambda name: name.split("/"))


def read_head(path: str) -> bytes:
    """Return the first bytes of a file on a disk."""
    with translate_storage_errors(printable(path)), Path(path).open("rb") as file:
        return file.read(HEAD_BYTES)


def _has_lines_of_json(head: bytes) -> bool:
    lines = head.split(b"\n", 2)
    return len(lines) > 1 and all(
        line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}") for line in lines[:2]
    )


def open_reader(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    format: str | None = None,
    decimal: bool = False,
    fingerprint_field: str | None = None,
    id_field: str | None = None,
    id_type: IdType = "auto",
    chunk_rows: int = CHUNK_ROWS,
    width: int | Width = 64,
    signed: bool = False,
    unbuffered: bool = False,
    skip_bad: bool = False,
) -> Reader:
    r"""Open files of fingerprints, with or without ids, for reading in succession.

    Parameters
    ----------
    paths : path or iterable of paths
        ``"-"`` is standard input. Text and JSON lines may be compressed by gzip, zstandard,
        bzip2 or xz, as in ``a.tsv.gz``.
    format : str, optional
        One of `FORMATS`, for all paths; by default from each path's extension, and "tsv" for
        standard input.
    decimal : bool
        Fingerprints in text are decimal instead of hexadecimal (``width / 4`` digits, or ``0x`` and
        fewer).
    fingerprint_field, id_field : str, optional
        Names of JSON fields, Parquet columns, or columns in the header line of delimited text; by
        default "fingerprint" and "id". A field named here must exist.
    id_type : {"auto", "int", "str"}
        Type of the ids. With "auto", JSON and Parquet ids keep their type, and ids in delimited
        text are integers if all ids of the first chunk are, without leading zeros and below 2**64.
    chunk_rows : int
        Largest number of rows in a chunk. A chunk has fewer where its string ids would take more
        than about 4 MiB.
    width : int
        The bits of a fingerprint: 32, 64, 128 or 256.
    signed : bool
        Take signed integers as the bits of fingerprints of 32 or 64 bits, in two's complement:
        int32 and int64 in ``.npy`` and Parquet, integers in JSON, and decimal digits after a minus.
        Unsigned ones are read as before.
    unbuffered : bool
        Yield the lines that have come through a pipe, a socket or a terminal without waiting for a
        chunk of them, so that another program can send a line and wait for what becomes of it. Its
        ids in delimited text are strings unless ``id_type`` is "int". The rows before a bad line
        are yielded, too. Files are read in chunks as always.
    skip_bad : bool
        Skip lines of text without a fingerprint, and lines of JSON that are broken: they are no
        rows. A warning in the log counts them, and names the first ten.

    Returns
    -------
    Reader
        Iterable of `Chunk`.

    Raises
    ------
    InputError
        For an unknown extension, a folder, another width, a wrong dtype or shape, or a damaged
        header; while iterating, for the first row that does not parse, as ``path:line: reason``.
    StorageError
        A file is missing or cannot be read.
    MissingExtraError
        Parquet without pyarrow.

    Notes
    -----
    A row of delimited text is a fingerprint and, after a separator, an optional id, which is not
    changed. The separator is a tab in ``.tsv``, a comma in ``.csv`` (where quoted cells may hold
    line breaks), and a tab, comma or blanks in ``.txt``. Blank lines and lines that start with
    ``#`` are skipped. A first row that names the fingerprint column is a header: it allows columns
    in any order, and further columns. JSON fields hold digits, or integers.

    A ``.npy`` file holds uint32 or uint64, shape (n,), for widths of 32 and 64; uint64 of shape (n,
    width / 64), most significant word first, for those above; and for all, big-endian bytes (uint8
    of shape (n, width / 8), or a bytes or void dtype) or bits (bool of shape (n, width)). ``.u32``
    and ``.u64`` files hold little-endian integers. A Parquet column holds uint32 or uint64 for
    widths of 32 and 64, and for all, ``fixed_size_binary(width / 8)``, ``binary`` of that length or
    digits.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = path.write_text("000000000000002a\tdoc\n0x2b\tother\n")
    >>> [(chunk.fingerprints.tolist(), chunk.ids) for chunk in open_reader(path)]
    [([42, 43], ['doc', 'other'])]
    """
    check_choice(id_type, get_args(IdType), "id_type")
    chunk_rows = check_whole(chunk_rows, 1, MAX_CHUNK_ROWS, "chunk_rows")
    decimal = check_flag(decimal, "decimal")
    checked_width = check_width(width)
    for argument, field in (("fingerprint_field", fingerprint_field), ("id_field", id_field)):
        if field is not None and not (isinstance(field, str) and field):
            raise InputError(
                f"{argument} must be the name of a column or field, got {show(field)}",
                argument=argument,
            )
    paths, copies = local_files([paths] if isinstance(paths, str | os.PathLike) else paths)
    names = check_paths(paths)
    if not names:
        raise InputError("no input was given")
    unbuffered = check_flag(unbuffered, "unbuffered")
    projection = Projection(
        fingerprint=fingerprint_field or "fingerprint",
        id=id_field or "id",
        width=checked_width,
        decimal=decimal,
        signed=check_signed(signed, checked_width),
        strict=True,
        optional_id=id_field is None,
        names_columns=fingerprint_field is not None or id_field is not None,
    )
    skip_bad = check_flag(skip_bad, "skip_bad")
    sources = [_open(path, format, projection, chunk_rows, unbuffered, skip_bad) for path in names]
    if copies is not None:
        for source in sources:
            source.copies = copies
            if isinstance(source, RowFiles):
                source.keep_copies(copies)
    return Reader(sources, projection, id_type, chunk_rows)


def _open(
    path: str,
    format_name: str | None,
    projection: Projection,
    rows: int,
    unbuffered: bool,
    skip_bad: bool,
) -> RowSource:
    InputFile(path)  # first: a file that is missing matters more than its extension
    name = input_format(path, format_name)
    if skip_bad and name not in LINE_FORMATS:
        raise InputError(f"{keyword('skip_bad', True)} is for files of lines, and {path} has none")
    if name == "npy":
        return NpyRows(path, rows)
    if name in RAW_BITS:
        return RawRows(path, RAW_BITS[name], rows)
    if name == "parquet":
        return ParquetRows([path])
    parser = partial(DelimitedText, dialect=cast(Dialect, name), projection=projection)
    return LineRows(
        [path],
        f".{name}",
        JsonLines if name == "jsonl" else parser,
        unbuffered=unbuffered,
        skip_bad=skip_bad,
    )


def open_vectors(path: str | os.PathLike[str], rows: int) -> NpyRows | ParquetRows:
    """Open a file of vectors, by its extension."""
    file = InputFile(path)
    suffix = Path(file.path).suffix.lower()
    if file.size is None:
        raise input_error(
            file.name, None, "vectors are read from a regular file: write them to one first"
        )
    if suffix not in (".npy", ".parquet"):
        raise input_error(
            file.name,
            None,
            "vectors are read from files named *.npy or *.parquet: save them as one of these",
        )
    return NpyRows(file.path, rows) if suffix == ".npy" else ParquetRows([file.path])
