"""Corpora as sources of rows, and the rows hashed by threads while others are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_flag, is_iterable, is_uri, printable
from fpstore.base.keywords import accepts, in_python, keyword
from fpstore.base.pools import map_in_order
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.errors import InputError, StorageError
from fpstore.hashing.base import Fingerprinter, Hashed
from fpstore.hashing.documents import DocumentFiles, Notice, Walk
from fpstore.hashing.exact import ExactText
from fpstore.hashing.fields import text_chars
from fpstore.hashing.html import MainText
from fpstore.hashing.page_text import are_pages
from fpstore.hashing.plain_pages import PlainPages
from fpstore.io.datasets import (
    SPLITS,
    STATE,
    DatasetRows,
    dataset_of,
    dataset_table,
    is_dataset,
    is_dataset_folder,
)
from fpstore.io.delimited import DelimitedText, Dialect
from fpstore.io.files import check_paths
from fpstore.io.json_lines import JsonLines
from fpstore.io.keys import has_key
from fpstore.io.lines import LineRows
from fpstore.io.parquet import ParquetRows, TableRows
from fpstore.io.reader import HEAD_BYTES, input_format, read_head, row_files, stored_files
from fpstore.io.remote import Copies, RemoteFile, expand_pattern
from fpstore.io.shards import Shards
from fpstore.io.source import (
    FIELD_FORMATS,
    FIELD_SUFFIXES,
    Batch,
    IdRule,
    OmittedRow,
    Projection,
    RowFiles,
    RowSource,
    select_ids,
)

HashTexts = Callable[[Sequence[Any]], Hashed]

WAITING_BATCHES = 4  # for each thread: batches that are read while others are hashed


def open_corpus(
    source: Any,
    texts: bool,
    *,
    suffixes: Iterable[str] | None = None,
    on_notice: Notice | None = None,
    encoding: str | None = None,
    html: bool = False,
    format: str | None = None,
    skip_bad: bool | None = None,
) -> RowSource:
    """Return rows that can be read more than once: `open_source` or, with ``texts``, files."""
    if not texts:
        return open_source(source, format=format, encoding=encoding, skip_bad=skip_bad)
    if skip_bad:
        raise InputError(f"{keyword('skip_bad', True)} is for lines, and files are texts")
    if format is not None:
        raise InputError(
            f"{keyword('format')} is for files of rows: with {keyword('text', True)}, each file is "
            "a text",
            got=format,
        )
    return DocumentFiles(
        Walk(corpus_paths(source), suffixes, encoding=encoding), on_notice, on_notice, html
    )


def open_benchmark(
    benchmark: Any,
    texts: bool,
    *,
    suffixes: Iterable[str] | None = None,
    on_notice: Notice | None = None,
    encoding: str | None = None,
) -> list[tuple[str, RowSource]]:
    """Return the inputs of a benchmark, whose formats may differ, with their names."""
    benchmark = _collect(benchmark)
    if hasattr(benchmark, "__arrow_c_stream__"):
        return [("the table", open_corpus(benchmark, texts, encoding=encoding))]
    named = [benchmark] if is_uri(benchmark) else benchmark
    if is_iterable(named, str) and any(map(is_uri, named := list(named))):
        corpora = (open_corpus(path, texts, encoding=encoding) for path in named)
        return list(zip(map(str, named), corpora, strict=True))
    paths = check_paths(
        named,
        "a benchmark is a path, several paths, or a table with the Arrow C stream interface",
    )
    if not paths:
        raise InputError("no benchmark was given")
    corpora = (
        open_corpus(path, texts, suffixes=suffixes, on_notice=on_notice, encoding=encoding)
        for path in paths
    )
    return list(zip(paths, corpora, strict=True))


def open_source(
    source: Any,
    *,
    format: str | None = None,
    encoding: str | None = None,
    again: bool = True,
    unbuffered: bool = False,
    skip_bad: bool | None = None,
) -> RowSource:
    """Return the rows of files, of folders of files, or of a table.

    All files have one format: ``format`` or, by default, that of their extensions. A table has the
    Arrow C stream interface. If the rows are not read ``again``, ``-`` is standard input, and a
    stream of batches is a table, too. JSON lines may be ``unbuffered``, and lines that are broken
    may be skipped: see `LineRows`.
    """
    if skip_bad is not None:
        check_flag(skip_bad, "skip_bad")
    dataset = dataset_of(source) if is_dataset(source) else None
    source = _collect(source) if dataset is None else dataset_table(dataset)
    is_table = hasattr(source, "__arrow_c_stream__")
    source, copies = (source, None) if is_table else _copy_stored(source, format)
    paths = [] if is_table else corpus_paths(source, again)
    if format is None and any(Path(path).is_dir() and is_dataset_folder(path) for path in paths):
        dataset_rows = _open_dataset(paths, again, encoding, skip_bad)
        dataset_rows.copies = copies
        return dataset_rows
    files = [file for path in paths for file in _files(path, format)]
    format_names = (
        {"parquet"} if is_table else {input_format(file, format, FIELD_FORMATS) for file in files}
    )
    if len(format_names) > 1:
        advice = "; clean the files of each format in turn, and compare with the output so far: "
        raise InputError(
            f"files of one format are expected, got {', '.join(sorted(format_names))}: "
            f"{', '.join(map(str, paths[:3]))}"
            + (advice + keyword("against") if accepts("against") else "")
        )
    (format_name,) = format_names
    if format_name != "parquet":
        is_json = format_name == "jsonl"
        parser = (
            JsonLines if is_json else partial(DelimitedText, dialect=cast(Dialect, format_name))
        )
        rows: RowSource = LineRows(
            files,
            f".{format_name}",
            parser,
            again,
            encoding,
            unbuffered and is_json,
            skip_bad,
        )
    elif encoding is not None:
        raise InputError(
            f"{keyword('encoding')} is for texts and files of lines: Parquet and tables have "
            "their own",
            got=encoding,
        )
    elif skip_bad:
        raise InputError(
            f"{keyword('skip_bad', True)} is for files of lines: a broken file of Parquet has no "
            "rows to go on with"
        )
    else:
        rows = TableRows(source, again, dataset) if is_table else ParquetRows(files, again)
    rows.folders = [Path(path) for path in paths if Path(path).is_dir()]
    if isinstance(rows, Shards):
        rows.source_paths = list(map(Path, paths))
    if isinstance(rows, RowFiles) and copies is not None:
        rows.keep_copies(copies)
    return rows


def _copy_stored(source: Any, format_name: str | None) -> tuple[Any, Copies | None]:
    """Return paths, with copies in place of the files and folders that URIs name."""
    if not is_uri(source) and not is_iterable(source, str, Mapping):
        return source, None
    paths = [source] if is_uri(source) else list(source)
    if not any(map(is_uri, paths)):
        return paths, None
    copies = Copies()
    names = chain.from_iterable(
        (_copy(uri, copies, format_name) for uri in expand_pattern(path))
        if is_uri(path)
        else [path]
        for path in paths
    )
    return list(names), copies


def _copy(uri: str, copies: Copies, format_name: str | None) -> str:
    stored = RemoteFile(uri)
    if stored.is_file():
        return copies.add_file(uri)
    names = stored.names()
    if not names:
        raise StorageError(f"{uri}: no such file or folder", path=uri)
    if not {SPLITS, STATE} & {name for name in names if "/" not in name}:
        names = stored_files(
            uri, names, format_name, lambda name: stored.read_head(name, HEAD_BYTES)
        )
    return copies.add_folder(uri, stored, names)


def _open_dataset(
    paths: Sequence[str], again: bool, encoding: str | None, skip_bad: bool | None
) -> DatasetRows:
    """Return the rows of a folder of ``save_to_disk``."""
    name = printable(paths[0])
    if len(paths) > 1:
        raise InputError(f"{name}: a dataset is read alone: name one folder", path=paths[0])
    if encoding is not None or skip_bad:
        argument = "encoding" if encoding is not None else "skip_bad"
        raise InputError(f"{keyword(argument)} is for files of lines, and {name} is a dataset")
    rows = DatasetRows(paths[0], again)
    rows.folders = [Path(paths[0])]
    return rows


def _collect(source: Any) -> Any:
    """Collect a Polars LazyFrame, and make a table of a dataset; return anything else unchanged."""
    if is_dataset(source):
        return dataset_table(dataset_of(source))
    is_lazy = type(source).__name__ == "LazyFrame" and type(source).__module__.startswith("polars.")
    return source.collect() if is_lazy else source


def corpus_paths(source: Any, again: bool = True) -> list[str]:
    """Return the paths in ``source``.

    InputError for something else, and for standard input where files are read again.
    """
    kinds = (
        "a path, several paths, or a table with the Arrow C stream interface (pyarrow, Polars, "
        "pandas, DuckDB, datasets)"
    )
    is_list = is_iterable(source, str, Mapping)
    items = list(source) if is_list else [source]
    advice = "pyarrow.table({'text': texts}) makes a table of texts"
    if any(
        "\n" in item if isinstance(item, str) else not isinstance(item, os.PathLike)
        for item in items
    ):
        raise InputError(
            f"a corpus is {kinds}, got {type(source).__name__}: {advice}", got=type(source)
        )
    paths = check_paths(items, f"a corpus is {kinds}")
    if not paths:
        raise InputError("no input was given")
    if "-" in paths and again:
        raise InputError(
            "a corpus is read more than once, which standard input cannot be: write it to a file"
        )
    if is_list and in_python() and not any(map(os.path.lexists, paths)):
        message = f"{printable(paths[0])}: no such file or folder; a list has paths: {advice}"
        raise StorageError(message, path=paths[0])
    return paths


def _files(name: str, format_name: str | None) -> list[str]:
    """Return a file, or the files of rows in a folder, in the order of their names.

    With a format, these are all files of the folder.
    """
    path = Path(name)
    if name == "-" or not path.is_dir():
        return [name]
    walk = Walk(path, FIELD_SUFFIXES if format_name is None else None, follow_symlinks=True)
    paths = [str(file.path) for file in walk.files()]
    return row_files(printable(path), paths, format_name, read_head)


def hash_rows(
    source: RowSource,
    projection: Projection,
    fingerprinter: Fingerprinter[Any],
    threads: int,
    rule: IdRule | None = None,
    skipped: int = 0,
    hash_texts: HashTexts | None = None,
) -> Iterator[Batch]:
    """Yield rows with the fingerprints of their texts in place of the texts.

    A row whose text is blank is not known, unless its key suffices. The projection names one column
    of texts, or several. ``hash_texts`` computes other rows than fingerprints.
    """
    batches = source.batches(projection, rule, skipped)
    first = next(batches, None)
    if first is not None and not isinstance(fingerprinter, MainText | PlainPages):
        source.tagged = are_pages(first.texts or ())
    batches = batches if first is None else chain([first], batches)
    # Unbuffered rows do not wait for others.
    hash_items = hash_texts or fingerprinter.hashed
    if projection.key_suffices and not isinstance(fingerprinter, ExactText):
        hash_items = partial(_hash_null_as_blank, hash_items)
    work = partial(_hash_batch, hash_items, projection.key_suffices)
    source.whole_pages = source.whole_pages if skipped else 0
    for _, batch in map_in_order(
        work, batches, 1 if source.unbuffered else threads, WAITING_BATCHES
    ):
        source.whole_pages += batch.whole_pages
        yield batch


def _hash_null_as_blank(hash_texts: HashTexts, texts: Sequence[Any]) -> Hashed:
    is_column = isinstance(texts, TextColumn)  # which has no nulls
    return hash_texts(texts if is_column else [text or "" for text in texts])


def _count(flags: Flags | None) -> int:
    return 0 if flags is None else int(np.count_nonzero(flags))


def _hash_batch(hash_texts: HashTexts, key_suffices: bool, batch: Batch) -> Batch:
    assert batch.texts is not None
    assert batch.known is not None
    lengths = text_chars(batch.texts)
    chars, hashed = int(lengths.sum()), hash_texts(batch.texts)
    lengths = lengths if hashed.text_chars is None else hashed.text_chars
    if batch.text_of_row is not None:
        hashed, lengths = hashed.select(batch.text_of_row), lengths[batch.text_of_row]
    batch = batch._replace(
        fingerprints=hashed.rows,
        sets=hashed.sets,
        text_keys=hashed.text_keys,
        texts=None,
        text_of_row=None,
        chars=chars,
        text_chars=lengths,
        whole_pages=_count(hashed.whole_pages),
        pages=_count(hashed.pages),
    )
    is_hashed = hashed.known
    if key_suffices and batch.keys is not None:
        is_hashed = is_hashed | has_key(batch.keys)
    if is_hashed.all():
        return batch
    places, known, ids = np.flatnonzero(is_hashed), batch.flags.copy(), batch.ids
    batch_error = batch.row_error
    known[np.flatnonzero(known)[~is_hashed]] = False

    def row_error(place: int, message: str) -> InputError:
        assert batch_error is not None
        return batch_error(int(places[place]), message)

    blank_ids = select_ids(ids, ~is_hashed)
    if blank_ids is not None:
        names = blank_ids.texts() if isinstance(blank_ids, StringColumn) else blank_ids.tolist()
        blank_rows = np.flatnonzero(batch.flags)[~is_hashed].tolist()
        batch = batch._replace(left_out=[*batch.left_out, *map(OmittedRow, blank_rows, names)])
    return batch._replace(
        fingerprints=hashed.rows[is_hashed],
        sets=None if hashed.sets is None else hashed.sets.select(is_hashed),
        text_chars=lengths[is_hashed],
        ids=select_ids(ids, is_hashed),
        scores=None if batch.scores is None else batch.scores[is_hashed],
        keys=None if batch.keys is None else batch.keys[is_hashed],
        text_keys=None if hashed.text_keys is None else hashed.text_keys[is_hashed],
        known=known,
        row_error=row_error,
    )
