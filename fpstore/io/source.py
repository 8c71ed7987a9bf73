"""The common part of all inputs: a name, a size, and the rule for the type of their ids."""

import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTH_64, Width
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, StorageError
from fpstore.io.check import parse_integer_id
from fpstore.io.digits import Digits

FORMATS = ("npy", "u32", "u64", "tsv", "csv", "txt", "jsonl", "parquet")
LINE_FORMATS = ("tsv", "csv", "txt", "jsonl")
#: Extensions of files in these formats.
SUFFIXES = tuple(f".{name}" for name in FORMATS)

IdType = Literal["auto", "int", "str"]
IdKind = Literal["int", "str"]
Ids = Words | list[str] | None
IdColumn = Words | StringColumn | None

STDIN_NAME = "<stdin>"
MOST_BYTES = 1 << 30  # of a text, which is held as a whole


class Chunk(NamedTuple):
    """Some rows of an input, in input order.

    Attributes
    ----------
    fingerprints : numpy.ndarray
        uint32 or uint64, shape (rows,), for widths of 32 and 64; above, uint8, shape (rows, width / 8), big-endian. It may be a
        read-only slice of a mapped file.
    ids : numpy.ndarray, list of str or None
        uint64, shape (rows,), or one string per row; None if the input has no ids.
    """

    fingerprints: npt.NDArray[Any]
    ids: Ids


class Batch(NamedTuple):
    """Rows as a source yields them, with fingerprints as `fpstore.base.width` describes rows.

    ``as_integers`` is set while the type of textual ids is not decided: it parses the same ids as integers, and
    raises at the first that is not one. ``at_once`` says that the rows are wanted before others come.
    """

    fingerprints: Words
    ids: IdColumn
    as_integers: Callable[[], Words] | None = None
    at_once: bool = False

    @property
    def string_bytes(self) -> int:
        """The bytes of the ids, if they are strings."""
        return len(self.ids.data) if isinstance(self.ids, StringColumn) else 0


@dataclass(frozen=True)
class Fields:
    """The caller's choices for the columns of an input, and the width of its fingerprints."""

    decimal: bool = False
    fingerprint: str | None = None
    id: str | None = None
    width: Width = WIDTH_64
    signed: bool = False
    unbuffered: bool = False
    null: bool = False

    @property
    def digits(self) -> Digits:
        """How fingerprints in text are written."""
        return Digits(self.width, self.decimal, self.signed)


@contextmanager
def located(name: str, line: int | None = None) -> Iterator[None]:
    """Put ``name:line:`` in front of the message of an `InputError` from inside."""
    try:
        yield
    except InputError as error:
        raise at(name, line, str(error)) from None


def at(name: str, line: int | None, message: str) -> InputError:
    """Return the error for one line of an input, or for the input as a whole."""
    where = name if line is None else f"{name}:{line}"
    return InputError(f"{where}: {message}", path=name, line=line)


@dataclass
class IdRule:
    """Whether one reading has ids, and whether they are integers or strings. The first rows decide.

    ``kind`` is None until it is decided; ``asked`` is the caller's choice.
    """

    asked: IdType
    has_ids: bool | None = None
    kind: IdKind | None = None

    def __post_init__(self) -> None:
        if self.asked != "auto":
            self.kind = self.asked

    @property
    def plain(self) -> bool:
        """Whether integers were guessed from text, so that an id is one only if it prints as it was written."""
        return self.asked == "auto"

    def expect(self, has_ids: bool) -> None:
        """Refuse a mixture of rows with and without ids."""
        if self.has_ids is None:
            self.has_ids = has_ids
        elif self.has_ids != has_ids:
            now, before = ("an id", "none") if has_ids else ("no id", "one")
            raise InputError(f"{now} here, but earlier rows have {before}")

    def expect_kind(self, kind: IdKind) -> None:
        """Refuse a mixture of integer and string ids of typed inputs, unless the caller has chosen a type."""
        if self.kind is None:
            self.kind = kind
        elif self.asked == "auto" and self.kind != kind:
            raise InputError(mixed_ids(kind))

    def integer(self, text: str) -> int:
        """Parse an integer id; the message for a guessed type says how to choose the type."""
        try:
            return parse_integer_id(text, plain=self.plain)
        except InputError as error:
            if self.asked != "auto":
                raise
            raise InputError(
                f"{error}, but earlier ids are integers; give the id type explicitly (id_type='str', --id-type str)"
            ) from None


def mixed_ids(kind: str) -> str:
    """Return what is wrong with an id of this type, ``int`` or ``str``, after ids of the other."""
    words = {"int": "strings", "str": "integers"}
    return (
        f"the id is of type {kind}, but earlier ids are {words[kind]}; give the id type explicitly (id_type='str', --id-type str)"
    )


class InputFile:
    """A named file or standard input, checked before anything is read.

    Attributes
    ----------
    name : str
        What messages call it.
    size : int or None
        Bytes, None for streams.
    arrives : bool
        Whether it is a pipe, a socket or a terminal, whose bytes come when another program or a person sends them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.is_stdin = self.path == "-"
        self.name = STDIN_NAME if self.is_stdin else printable(self.path)
        self.size: int | None = None
        self._spent = False
        if self.is_stdin:
            self.arrives = _arrives(_mode_of_stdin())
            return
        with storage_errors(self.name):
            status = Path(self.path).stat()
            self.arrives = _arrives(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                raise InputError(f"{self.name}: is a folder, not a file", path=self.name)
            if stat.S_ISREG(status.st_mode):
                self.size = status.st_size
                with Path(self.path).open("rb"):  # report missing permission before any work is done
                    pass

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open for reading from the start; standard input can be read once."""
        if not self.is_stdin:
            with ExitStack() as stack:
                with storage_errors(self.name):
                    file = stack.enter_context(Path(self.path).open("rb"))
                yield file
            return
        if self._spent:
            raise InputError("standard input can be read only once")
        if sys.stdin is None:
            raise StorageError("standard input is closed")
        self._spent = True
        yield sys.stdin.buffer


def _mode_of_stdin() -> int:
    try:
        return os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or not a file of the system
        return 0


def _arrives(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)


class BatchSource(ABC):
    """One input of a `Reader`: yields its rows in batches of at most some number of rows."""

    #: Whether ids have a type of their own (JSON, Parquet), so that it is not guessed from text.
    typed = True
    #: Whether its rows are wanted as they come.
    arrives = False

    def __init__(self, name: str, bytes_total: int | None) -> None:
        self.name = name
        self.rows: int | None = None
        self.has_ids: bool | None = None
        self.bytes_total = bytes_total
        self.bytes_done = 0

    @abstractmethod
    def batches(self, rule: IdRule) -> Iterator[Batch]:
        """Read from the start."""


class Source(BatchSource):
    """A file of fingerprints."""

    def __init__(self, file: InputFile) -> None:
        super().__init__(file.name, file.size)
        self.file = file


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """Turn what the system refuses into `StorageError`; a closed pipe passes through."""
    try:
        yield
    except (BrokenPipeError, StorageError):
        raise
    except FileNotFoundError as error:
        raise StorageError(f"{name}: no such file or folder", path=name) from error
    except OSError as error:
        raise refused(name, error) from error
    except RuntimeError as error:  # pathlib's error for a circle of symbolic links
        raise StorageError(f"{name}: {error}", path=name) from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        # The error of open() and stat() for a path with a NUL character.
        raise StorageError(f"{name!r}: {error}", path=name) from error
