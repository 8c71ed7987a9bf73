"""Rows that are read for some of their columns; a corpus is read again, to copy those that are kept as they are."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Progress, Words
from fpstore.base.arguments import printable
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTH_64, Width
from fpstore.errors import InputError, counted, show
from fpstore.io.check import MAX_U64, check_string_id
from fpstore.io.digits import Digits, of_signed, read_digits
from fpstore.io.encodings import check_encoding
from fpstore.io.scores import rows_of_keys, score_key
from fpstore.io.sink import Complete
from fpstore.io.source import IdColumn, InputFile, at, mixed_ids, storage_errors
from fpstore.io.wrong_width import too_large

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Chosen:
    """The columns to read, None for those that are not wanted, and how fingerprints are written.

    A row without an id is not known; with ``every_id``, it is an error. Integers among strings become strings; with
    ``alike_ids``, they are an error. With ``alike_scores``, a number has one key, whatever its type. The encoding is that of
    files of lines and of texts, if it was named. Several columns of texts are a tuple: a row without any of them is not known,
    and a text of a row is a tuple, with None where a column is null.
    """

    text: str | tuple[str, ...] | None = None
    fingerprint: str | None = None
    id: str | None = None
    score: str | None = None
    width: Width = WIDTH_64
    decimal: bool = False
    signed: bool = False
    every_id: bool = False
    alike_ids: bool = False
    alike_scores: bool = False
    encoding: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return self.text if isinstance(self.text, tuple) else () if self.text is None else (self.text,)

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [name for name in dict.fromkeys((*self.texts, self.fingerprint, self.id, self.score)) if name is not None]

    @property
    def needed(self) -> list[tuple[str, ...]]:
        """Groups of columns: a row in which all of a group are null is unknown."""
        columns = (self.fingerprint, None if self.every_id else self.id)
        return [*([self.texts] if self.texts else []), *((name,) for name in columns if name is not None)]


class Part(NamedTuple):
    """Some rows of a corpus, in order.

    Attributes
    ----------
    known : ndarray of bool, shape (rows,)
        False for a row whose text, fingerprint or id is null. The columns have a value for each of the others.
    texts : list of str, or of tuples of str and None, optional
    text_of_row : ndarray of intp, optional
        Which of the texts is that of each known row; by default each has its own.
    fingerprints : Words, optional
    ids : ndarray of uint64 or StringColumn, optional
    scores : Words, optional
        The keys of `fpstore.io.scores`.
    """

    known: Flags
    texts: list[Any] | None = None
    fingerprints: Words | None = None
    ids: IdColumn = None
    scores: Words | None = None
    text_of_row: npt.NDArray[np.intp] | None = None

    def row_texts(self) -> Iterator[Any]:
        """Iterate over the texts of the known rows."""
        texts = self.texts or []
        return iter(texts) if self.text_of_row is None else map(texts.__getitem__, self.text_of_row.tolist())


class FileState(NamedTuple):
    """The path of a file, its size, its inode, and the time of its last change in nanoseconds."""

    path: str
    size: int
    inode: int
    changed: int

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> Self:
        """Return the state that the system has told."""
        return cls(path, status.st_size, status.st_ino, status.st_mtime_ns)


class Rows(ABC):
    """Rows that are read in order, for some of their columns.

    Attributes
    ----------
    names : sequence of str
        The files, for messages.
    typed : bool
        Whether ids have a type of their own; in delimited text, all are strings.
    absent : collection of str
        Of several columns of texts, those that no row has that the reading under way has met: a row of JSON may lack some.
    tagged : bool
        Whether most of the first texts look like pages of HTML, and are taken as plain texts.
    arrives : bool
        Whether rows are wanted as they come. A caller sets it, where they can.
    bytes_total : int or None
    bytes_done : int
        How much the reading under way has read.
    """

    names: Sequence[str] = ()
    absent: Collection[str] = ()
    typed = True
    tagged = False
    arrives = False
    bytes_total: int | None = None
    bytes_done: int = 0

    def can_arrive(self) -> bool:
        """Whether rows come when another program or a person sends them, and can be taken then."""
        return False

    @abstractmethod
    def parts(self, chosen: Chosen, skipped: int = 0) -> Iterator[Part]:
        """Yield the chosen columns of all rows but some at the beginning.

        Parameters
        ----------
        chosen : Chosen
        skipped : int
            Rows of which nothing is wanted. They are counted, and not taken apart where that can be avoided.

        Raises
        ------
        InputError
            A value has another type, a column is not there, or there are fewer rows than skipped ones.
        """

    def _count(self, size: int) -> None:
        self.bytes_done += size


class Corpus(Rows):
    """Rows that can be read more than once, each time in the same order.

    Attributes
    ----------
    paths : sequence of str
        The paths of the files.
    folders : sequence of Path
        Those in which the files were found: a file that is written there would be read by the next run.
    suffix : str, optional
        The extension of a file that is written.
    """

    paths: Sequence[str] = ()
    folders: Sequence[Path] = ()
    suffix: str | None = None

    def states(self) -> list[FileState]:
        """Return the state of each file, in order.

        Raises
        ------
        InputError
            There are no files.
        StorageError
        """
        raise InputError("a table in memory is gone when the process ends: resume= (--resume) is for files")

    @abstractmethod
    def copy(self, kept: Flags, target: Any, progress: Progress | None = None, complete: Complete | None = None) -> None:
        """Write the rows that are kept to a path, which appears when all of them are written.

        Parameters
        ----------
        kept : ndarray of bool, shape (rows,)
        target : path
        progress : callable, optional
            Called as ``progress("copying", done, total)``, in rows.
        complete : Complete, optional
            Called before what is written appears.

        Raises
        ------
        InputError
            The files changed since they were read.
        StorageError
        """


class Skip:
    """Counts rows that are passed over.

    Parameters
    ----------
    count : int
        How many there are to pass over.
    """

    def __init__(self, count: int) -> None:
        self.left = count

    def of(self, rows: list[Any]) -> list[Any]:
        """Return some rows without those that are passed over."""
        passed = min(self.left, len(rows))
        self.left -= passed
        return rows[passed:] if passed else rows

    def finish(self) -> None:
        """Raise InputError if there were fewer."""
        if self.left:
            raise InputError(f"the input changed: {counted(self.left, 'row')} fewer than there were")


class CorpusFiles(Corpus):
    """Rows of one or more files.

    Parameters
    ----------
    paths : sequence of str
    again : bool
        They are read more than once, which only regular files can be; otherwise ``-`` is standard input.
    encoding : str, optional
        That of files of lines; by default UTF-8, or what a byte order mark says.
    """

    def __init__(self, paths: Sequence[str], again: bool = True, encoding: str | None = None) -> None:
        self.encoding = check_encoding(encoding)
        self.files = [InputFile(path) for path in paths]
        for file in self.files:
            if again and file.size is None:
                raise at(file.name, None, "must be a regular file, because it is read more than once")
        self.names, self.paths = [file.name for file in self.files], [file.path for file in self.files]
        sizes = [file.size for file in self.files if file.size is not None]
        self.bytes_total = sum(sizes) if len(sizes) == len(self.files) else None
        self._states = list(map(state_of, self.paths)) if again else []

    def states(self) -> list[FileState]:
        """Return the state of each file, in order."""
        return self._states

    def check_unchanged(self) -> None:
        """Raise InputError if a file is not the one that was there at first."""
        for file, path, before in zip(self.files, self.paths, self._states, strict=True):
            if state_of(path) != before:
                raise at(file.name, None, "changed while it was read")


def state_of(path: str) -> FileState:
    """Return what tells a file from what it may be later."""
    with storage_errors(printable(path)):
        status = Path(path).stat()
    return FileState.of(path, status)


class KeptRows:
    """Hands out the flags of successive rows, and tells when the rows of a second reading are not those of the first."""

    def __init__(self, kept: Flags, progress: Progress | None = None) -> None:
        self._kept = kept
        self._done = 0
        self._progress = progress

    def take(self, count: int) -> Flags:
        """Return the flags of the next rows."""
        if self._progress is not None:
            self._progress("copying", self._done, len(self._kept))
        self._done += count
        if self._done > len(self._kept):
            self._changed()
        return self._kept[self._done - count : self._done]

    def finish(self) -> None:
        """Raise InputError if there were fewer rows than flags."""
        if self._done != len(self._kept):
            self._changed()
        if self._progress is not None:
            self._progress("copying", self._done, self._done)

    def _changed(self) -> None:
        raise InputError(f"the input changed while it was read: {counted(len(self._kept), 'row')} before, another number now")


def part_of(columns: dict[str, list[Any]], chosen: Chosen, name: str, lines: Sequence[int]) -> Part:
    """Return rows whose values are Python's.

    Parameters
    ----------
    columns : dict of list
        The values of each chosen column, None where there is none.
    chosen : Chosen
    name : str
        The file, for messages.
    lines : sequence of int
        The line of each row in it.
    """
    known = np.ones(len(lines), bool)
    for group in chosen.needed:
        rows = zip(*(columns[column] for column in group), strict=True)
        known &= np.fromiter((any(value is not None for value in row) for row in rows), bool, len(lines))

    def converted(column: str, convert: Callable[[Any], Any]) -> list[Any]:
        out = []
        for value, line in compress(zip(columns[column], lines, strict=True), known.tolist()):
            try:
                out.append(convert(value))
            except InputError as error:
                raise at(name, line, f"{column}: {error}") from None
        return out

    part = Part(known)
    if isinstance(chosen.text, tuple):
        fields = (converted(name, lambda value: None if value is None else _text(value)) for name in chosen.text)
        part = part._replace(texts=list(zip(*fields, strict=True)))
    elif chosen.text is not None:
        part = part._replace(texts=converted(chosen.text, _text))
    if chosen.fingerprint is not None:
        numbers = converted(chosen.fingerprint, lambda value: _fingerprint(value, chosen))
        part = part._replace(fingerprints=chosen.width.rows(numbers))
    if chosen.id is not None:
        ids = converted(chosen.id, _id)
        if chosen.alike_ids and len(set(map(type, ids))) > 1:
            place = next(place for place, value in enumerate(ids) if type(value) is not type(ids[0]))
            line = lines[int(np.flatnonzero(known)[place])]
            raise at(name, line, f"{chosen.id}: {mixed_ids(type(ids[place]).__name__)}")
        part = part._replace(ids=_ids(ids))
    if chosen.score is not None:
        part = part._replace(scores=rows_of_keys(converted(chosen.score, score_key)))
    return part


def _named(value: object) -> str:
    """Return the type and the value, for a message; a decimal is how JSON's numbers are read exactly."""
    value = float(value) if isinstance(value, Decimal) else value
    return f"{type(value).__name__} {show(value)}"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise InputError(f"a text must be a string, got {_named(value)}")


def _fingerprint(value: object, chosen: Chosen) -> int:
    width = chosen.width
    if isinstance(value, str):
        return read_digits(value, Digits(width, chosen.decimal, chosen.signed))
    if type(value) is not int:
        raise InputError(f"a fingerprint must be an integer or a string of digits, got {_named(value)}")
    if chosen.signed:
        value = of_signed(value, width)
    if value < 0:
        raise InputError(f"the fingerprint {value} is negative; signed integers are read as bits with signed=True (--signed)")
    if value >> width.bits:
        raise InputError(f"the fingerprint does not fit: {too_large(value, width)}")
    return value


def _id(value: object) -> int | str:
    if isinstance(value, str):
        return check_string_id(value)
    if value is None:
        raise InputError("the id is null or empty")
    if type(value) is int and 0 <= value <= MAX_U64:
        return value
    raise InputError(f"an id must be a string or an integer from 0 to 2^64-1, got {_named(value)}")


def _ids(values: list[int | str]) -> IdColumn:
    if not any(isinstance(value, str) for value in values):
        return np.array(values, np.uint64)
    return StringColumn.of([str(value) for value in values])
