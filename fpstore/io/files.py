"""Files that are read: named or standard input, checked before anything is read, and errors that name them."""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from fpstore.base.arguments import printable
from fpstore.disk.refusals import refused
from fpstore.errors import InputError, StorageError

STDIN_NAME = "<stdin>"
MOST_BYTES = 1 << 30  # of a text, which is held as a whole


def at(name: str, line: int | None, message: str) -> InputError:
    """Return the error for one line of an input, or for the input as a whole."""
    where = name if line is None else f"{name}:{line}"
    return InputError(f"{where}: {message}", path=name, line=line)


@contextmanager
def located(name: str, line: int | None = None) -> Iterator[None]:
    """Put ``name:line:`` in front of the message of an `InputError` from inside."""
    try:
        yield
    except InputError as error:
        raise at(name, line, str(error)) from None


class FileState(NamedTuple):
    """The path of a file, its size, its inode, and the time of its last change in nanoseconds."""

    path: str
    size: int
    inode: int
    changed: int

    @classmethod
    def of(cls, path: str, status: os.stat_result | None = None) -> Self:
        """Return the state of a file, which the system may have told already."""
        if status is None:
            with storage_errors(printable(path)):
                status = Path(path).stat()
        return cls(path, status.st_size, status.st_ino, status.st_mtime_ns)


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


@contextmanager
def storage_errors(name: str) -> Iterator[None]:
    """Turn errors of the system into `StorageError`; a closed pipe passes through."""
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
