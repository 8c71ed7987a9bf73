"""What a caller gives as a corpus: files of rows, folders of them, folders of texts, or a table in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fpstore.arguments import check_path, printable
from fpstore.errors import InputError, show
from fpstore.hashing.corpus import TextCorpus
from fpstore.hashing.documents import Notice
from fpstore.hashing.walk import Walk
from fpstore.io.corpus import Corpus
from fpstore.io.corpus_rows import DelimitedCorpus, JsonlCorpus
from fpstore.io.corpus_tables import ParquetCorpus, TableCorpus
from fpstore.io.reader import format_of

FORMATS = ("parquet", "jsonl", "csv", "tsv")
_SUFFIXES = tuple(f".{name}" for name in FORMATS)


def open_corpus(source: Any, texts: bool, suffixes: Iterable[str] | None = None, on_notice: Notice | None = None) -> Corpus:
    """Return the corpus that a caller gives.

    Parameters
    ----------
    source : path, iterable of paths, or table
        Files of one format of :data:`FORMATS`, and folders of them; with ``texts``, files and folders of texts; or what has the
        Arrow C stream interface.
    texts : bool
        Each file is one document.
    suffixes, on_notice : optional
        As for `TextCorpus`.
    """
    if hasattr(source, "__arrow_c_stream__"):
        return TableCorpus(source)
    paths = paths_of(source)
    corpus = TextCorpus(paths, suffixes, on_notice) if texts else _corpus_of_rows(paths)
    corpus.folders = [Path(path) for path in paths if Path(path).is_dir()]
    return corpus


def _corpus_of_rows(paths: list[str]) -> Corpus:
    """Return the corpus of some files of rows, and folders of them."""
    files = [file for path in paths for file in _files(Path(path))]
    forms = {format_of(file, None, FORMATS) for file in files}
    if len(forms) > 1:
        raise InputError(f"files of one format are expected, got {', '.join(sorted(forms))}")
    return _opener(forms.pop())(files)


def paths_of(source: Any) -> list[str]:
    """Return the paths of a caller; InputError for something else."""
    if isinstance(source, str | os.PathLike):
        source = [source]
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        kinds = "a path, several paths, or a table with the Arrow C stream interface (pyarrow, polars, pandas)"
        raise InputError(f"a corpus is {kinds}, got {type(source).__name__} {show(source)}", got=source)
    paths = list(source)
    if not paths:
        raise InputError("no input was given")
    if "-" in paths:
        raise InputError("a corpus is read more than once, which standard input cannot be: write it to a file")
    for path in paths:
        check_path(path)
    return [os.fspath(path) for path in paths]


def _files(path: Path) -> list[str]:
    """Return a file, or those with rows in a folder and below it, in the order of their names."""
    if not path.is_dir():
        return [str(path)]
    found = [str(file.path) for file in Walk(path, _SUFFIXES, True, False, None).files()]
    if not found:
        names = ", ".join(_SUFFIXES)
        raise InputError(
            f"{printable(path)}: no {names} in this folder; --text (text=True) makes a document of each file", path=path
        )
    return found


def _opener(form: str) -> Callable[[list[str]], Corpus]:
    if form == "parquet":
        return ParquetCorpus
    if form == "jsonl":
        return JsonlCorpus
    return lambda files: DelimitedCorpus(files, form)
