"""The checkpoint of a long job: a folder with finished parts, from which the same job resumes."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import reduce
from math import prod
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.strings import StringColumn
from fpstore.disk.files import create_anew, open_file, write_anew
from fpstore.disk.folders import sync_folder
from fpstore.disk.locks import FolderLock, process_name
from fpstore.disk.refusals import refusing
from fpstore.errors import (
    CorruptStoreError,
    FpstoreError,
    InputError,
    StoreLockedError,
    StoreNotFoundError,
    show,
)

Arrays = Mapping[str, npt.NDArray[Any]]  # a batch: columns with names
# the facts in which jobs differ: names for people, and values of JSON
JobIdentity = Mapping[str, object]
IDENTITY_FILE, LOCK_FILE = "job.json", "job.lock"
# in the file of the identity: the paths of outputs, and the states of the files there
OUTPUTS = "outputs"
PART, TEMPORARY = ".part", ".tmp"
# of columns
DTYPES = {np.dtype(kind).str: np.dtype(kind) for kind in (np.bool_, np.uint8, np.uint16, np.uint64)}
MOST_LINE = 1 << 16  # bytes: a longer line is damage


class PartWriter:
    """Writes a part batch by batch; it appears in the checkpoint when it is finished.

    The first line of JSON says which part of which job it is. A batch is a line that names its
    columns, and their bytes. Each line ends with the CRC-32 of both, and the last line has the
    number of batches.
    """

    def __init__(self, path: Path, first_line: Mapping[str, object]) -> None:
        self._path, self._temporary = path, path.with_suffix(TEMPORARY)
        self._batches = 0
        with refusing(path):
            self._file: IO[bytes] | None = os.fdopen(create_anew(self._temporary), "wb")
        self._line(first_line)

    def append(self, columns: Arrays) -> None:
        """Write a batch; InterruptedError if the job has ended."""
        arrays = {name: np.ascontiguousarray(column) for name, column in columns.items()}
        assert all(array.dtype.str in DTYPES for array in arrays.values())
        self._line(
            {"columns": {name: [array.dtype.str, array.shape] for name, array in arrays.items()}},
            *arrays.values(),
        )
        self._batches += 1

    def finish(self) -> None:
        """Make the part durable, and then visible."""
        self._line({"batches": self._batches})
        with refusing(self._path):
            assert self._file is not None
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._temporary.replace(self._path)
            sync_folder(self._path.parent)
        self._file = None

    def abort(self) -> None:
        """Remove the part, unless it is finished."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._temporary.unlink(missing_ok=True)
            self._file = None

    def _line(self, fields: Mapping[str, object], *arrays: npt.NDArray[Any]) -> None:
        if self._file is None:
            raise InterruptedError("the part was dropped")
        line = json.dumps(fields).encode()
        views = [array.reshape(-1).view(np.uint8).data for array in arrays]
        check = reduce(lambda check, view: zlib.crc32(view, check), views, zlib.crc32(line))
        with refusing(self._path):
            self._file.write(b"%s %08x\n" % (line, check))
            self._file.writelines(views)


class Checkpoint:
    """The folder of a job, which its first run creates.

    A context manager: a job that ends well removes the folder. The identity says in words for
    people what the result depends on: arguments, the state of inputs. A folder with another
    identity is refused. ``resumed`` says whether the folder was there; ``reused`` has for each kind
    of work the amount that an earlier run did, and the total.
    """

    def __init__(self, folder: Path, identity: JobIdentity) -> None:
        self.folder = folder
        self.reused: dict[str, tuple[int, int]] = {}
        self._writing: list[PartWriter] = []
        self._outputs: dict[str, list[list[int]]] = {}
        from importlib.metadata import version  # takes milliseconds that most jobs need not spend

        with refusing(folder):
            self.resumed = folder.exists()
            if self.resumed:
                _check_is_ours(folder)
            folder.mkdir(exist_ok=True)
            self._lock = FolderLock(folder, LOCK_FILE, _locked)
            try:
                self._identify({"library": f"fpstore {version('fpstore')}", **identity})
                self._sweep()
            except BaseException:
                if (folder / IDENTITY_FILE).exists():
                    self._lock.release()
                else:
                    self.remove()  # nothing was done
                raise

    def _sweep(self) -> None:
        """Remove unfinished parts, of this process or of one that was killed."""
        for writer in self._writing:
            writer.abort()
        for path in self.folder.glob(f"*{TEMPORARY}"):
            path.unlink(missing_ok=True)

    def _identify(self, identity: JobIdentity) -> None:
        path = self.folder / IDENTITY_FILE
        self._identity = now = json.loads(json.dumps(identity))
        if not path.exists():
            self.resumed = False
            self._note(identity)
            return
        try:
            before = _read_identity(self.folder)
            self._outputs = {name: list(states) for name, states in before.pop(OUTPUTS, {}).items()}
        except (ValueError, TypeError, AttributeError, CorruptStoreError):
            raise InputError(
                f"{path}: damaged: remove the folder to start anew", path=path
            ) from None
        for name in dict.fromkeys([*before, *now]):
            if before.get(name) != now.get(name):
                was, is_now = (
                    show(facts[name]) if name in facts else "absent" for facts in (before, now)
                )
                raise InputError(
                    f"{self.folder}: {name} was {was} when this job began, and is {is_now}: "
                    "give the same again, or remove the folder to start anew",
                    path=self.folder,
                    expected=before.get(name),
                    got=now.get(name),
                )

    def _note(self, identity: Mapping[str, object]) -> None:
        temporary = self.folder / IDENTITY_FILE.replace(".json", TEMPORARY)
        write_anew(temporary, json.dumps(identity, indent=1).encode())
        temporary.replace(self.folder / IDENTITY_FILE)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)

    def note_output(self, name: Path, written: Path) -> None:
        """Note the state of a complete output before it gets its name, for :func:`is_output`.

        The state of an earlier output of this name stays noted: a kill may come before the rename.
        """
        with refusing(self.folder):
            states, state = self._outputs.setdefault(str(name.resolve()), []), _state(written)
            if state not in states:
                states.append(state)
                self._note({**self._identity, OUTPUTS: self._outputs})

    def write(self, name: str) -> PartWriter:
        """Begin a part; it replaces one of the same name when it is finished."""
        writer = PartWriter(self.folder / f"{name}{PART}", self._first_line(name))
        self._writing.append(writer)
        return writer

    def _first_line(self, name: str) -> dict[str, object]:
        return {"part": name, "job": zlib.crc32(json.dumps(self._identity, indent=1).encode())}

    def names(self, beginning: str) -> list[str]:
        """Return the sorted names of the parts with a beginning, without the beginning."""
        with refusing(self.folder):
            return sorted(
                path.stem.removeprefix(beginning)
                for path in self.folder.glob(f"{beginning}*{PART}")
            )

    def has(self, name: str) -> bool:
        """Return whether a part is there and intact."""
        try:
            for _ in self.read(name):
                pass
        except (ValueError, FileNotFoundError):
            return False
        return True

    def read(self, name: str) -> Generator[dict[str, npt.NDArray[Any]], None, None]:
        """Yield the batches of a part.

        Raises ValueError if it is damaged, FileNotFoundError if it is not there.
        """
        path = self.folder / f"{name}{PART}"
        batches = 0
        try:
            descriptor = open_file(path, of_user=True)
        except StoreNotFoundError as error:
            raise FileNotFoundError(path) from error
        except CorruptStoreError as error:
            raise ValueError("not a regular file") from error
        with refusing(path), os.fdopen(descriptor, "rb") as file:
            if _read_line(file) != self._first_line(name):
                raise ValueError("another part")
            while True:
                fields = _read_line(file)
                if "columns" not in fields:
                    break
                yield fields["columns"]
                batches += 1
            if fields.get("batches") != batches or file.read(1):
                raise ValueError("another number of batches")

    def note(self, work: str, before: int, total: int) -> None:
        """Count work of one kind: the amount that an earlier run did, and the total."""
        done, noted_total = self.reused.get(work, (0, 0))
        self.reused[work] = (done + before, noted_total + total)

    def summary(self) -> str:
        """Return a line for people about the work of earlier runs."""
        return "resumed: " + ", ".join(
            f"{before:,} of {total:,} {work} before"
            for work, (before, total) in self.reused.items()
        )

    def remove(self) -> None:
        """Remove the folder of a finished job."""
        self._sweep()
        for path in [
            *self.folder.glob(f"*{PART}"),
            self.folder / IDENTITY_FILE,
            self.folder / LOCK_FILE,
        ]:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # it has other files
            self.folder.rmdir()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.remove()
        else:  # the folder is left to the next run
            with suppress(OSError):
                self._sweep()
            self._lock.release()


def id_columns(ids: Words | StringColumn | None) -> dict[str, npt.NDArray[Any]]:
    if isinstance(ids, StringColumn):
        return {"strings": np.frombuffer(ids.data, np.uint8), "ends": ids.ends}
    return {} if ids is None else {"ids": ids}


def ids_in(columns: Mapping[str, npt.NDArray[Any]]) -> Words | StringColumn | None:
    if "strings" in columns:
        return StringColumn(columns["strings"].tobytes(), columns["ends"])
    return columns.get("ids")


def checkpoint_in(
    folder: Path | None, identity: Callable[[], JobIdentity]
) -> AbstractContextManager[Checkpoint | None]:
    return nullcontext() if folder is None else Checkpoint(folder, identity())


def is_output(folder: Path | None, path: Path) -> bool:
    """Return whether a path is an output of the job of a folder.

    A job that ended before it removed its folder has noted its outputs.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, FpstoreError):
        if folder is not None and path.exists():
            return _state(path) in _read_identity(folder)[OUTPUTS][str(path.resolve())]
    return False


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns]


def _read_identity(folder: Path) -> dict[str, Any]:
    """Return the identity of a folder's job, with noted outputs; ValueError if it is damaged."""
    with os.fdopen(open_file(folder / IDENTITY_FILE, of_user=True), "rb") as file:
        noted = json.loads(file.read())
    if not isinstance(noted, dict):
        raise ValueError("no object")
    return noted


def _check_is_ours(folder: Path) -> None:
    # files of a first run that was killed at once
    begun = {LOCK_FILE, Path(IDENTITY_FILE).with_suffix(TEMPORARY).name}
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {""}
    if IDENTITY_FILE not in names and names - begun:
        raise InputError(
            f"{folder}: is not the folder of a job that can be resumed: name another one, or "
            "remove it",
            path=folder,
        )


def _locked(folder: Path, holder: str) -> StoreLockedError:
    return StoreLockedError(
        f"{folder}: {process_name(holder)} is running this job: wait until it has ended",
        path=folder,
        got=holder,
    )


def _read_line(file: IO[bytes]) -> dict[str, Any]:
    """Return the fields of a line, or its columns; ValueError if anything is damaged."""
    line, _, checksum = file.readline(MOST_LINE).rpartition(b" ")
    check, columns = zlib.crc32(line), {}
    remaining = os.fstat(file.fileno()).st_size - file.tell()
    try:
        fields = json.loads(line)
        for name, (kind, shape) in fields.get("columns", {}).items():
            dtype = DTYPES[kind]
            size = dtype.itemsize * prod(shape)
            if not 0 <= size <= remaining:
                raise ValueError("longer than the file")
            data, remaining = file.read(size), remaining - size
            check = zlib.crc32(data, check)
            columns[name] = np.frombuffer(data, dtype).reshape(shape)
    except (TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError("malformed") from None
    if checksum != b"%08x\n" % check:
        raise ValueError("the checksum differs")
    return {"columns": columns} if "columns" in fields else dict(fields)
