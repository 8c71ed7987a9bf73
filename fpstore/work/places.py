"""Folders that tasks share, on a disk or in an object store: a file appears whole, once."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from fpstore.base.arguments import check_path, is_uri
from fpstore.disk.folders import (
    UNFINISHED,
    remove_abandoned,
    remove_tree,
    sync_folder,
    temporary_folder,
)
from fpstore.disk.refusals import FULL, refusal_error, translate_refusals
from fpstore.disk.temporary import ANOTHER_FOLDER
from fpstore.errors import FpstoreError, StorageError, StoreNotFoundError
from fpstore.io.arrow import import_pyarrow
from fpstore.io.packages import import_package
from fpstore.io.remote import first_line, open_filesystem

SCRATCH = "fpstore-task-"  # begins the names of folders for copies on the disk of one machine
BOOT = Path("/proc/sys/kernel/random/boot_id")  # of all processes of one kernel, in containers too


class Place(ABC):
    """A folder that tasks read from and publish in; a file appears when it is complete."""

    uri: str
    readers = 1  # threads that read many files

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file, or None if it is missing.

        StorageError if something else has its name.
        """

    @abstractmethod
    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file, fewer at its end; StoreNotFoundError if it is missing."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """Return a context manager that yields a source for pyarrow."""

    @abstractmethod
    def names(self, beginning: str = "") -> list[str]:
        """Return the sorted names with this beginning of all files here and in folders below."""

    @abstractmethod
    def times(self, beginning: str = "") -> dict[str, float]:
        """Return when each file was written, in seconds since 1970, by its name."""

    def unfinished(self, beginning: str = "") -> list[str]:
        """Return the names of unfinished files; an object store shows none."""
        return []

    @abstractmethod
    def create_file(self, name: str) -> Any:
        """Return a context manager that yields a new path on a disk, and publishes it at the end.

        The first publisher of a name wins: what others have written is dropped.
        """

    @abstractmethod
    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a file or folder on a disk, or of a copy of it in ``scratch``."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also over an old one."""

    @abstractmethod
    def remove_unfinished(self, name: str) -> None:
        """Remove what killed processes have left beside a file.

        No other machine may write there any more.
        """

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and all files in it."""

    @abstractmethod
    def remove_file(self, name: str) -> None:
        """Remove a file."""

    def read_all(self, name: str) -> bytes:
        """Return the bytes of a small file; StoreNotFoundError if it is missing."""
        size = self.size(name)
        if size is None:
            raise StoreNotFoundError(f"{self.label(name)}: is not there", path=self.label(name))
        return self.read(name, 0, size)

    def label(self, name: str) -> str:
        """Return the name of a file for people."""
        return f"{self.uri.rstrip('/')}/{name}" if name else self.uri

    def publish(self, name: str, data: bytes) -> bytes:
        """Write a small file unless there is one, and return the bytes that are there."""
        with self.create_file(name) as path:
            path.write_bytes(data)
        return self.read_all(name)


class DiskPlace(Place):
    """A folder of this machine's file systems, which may be one that machines share."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uri = str(self.path)
        self._cleaned = set[Path]()  # folders whose abandoned files were removed

    def size(self, name: str) -> int | None:
        path = self.path / name
        with translate_refusals(path), suppress(FileNotFoundError, NotADirectoryError):
            status = path.stat()
            _check_regular(path, status)
            return status.st_size
        return None

    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file; links of the user are followed."""
        path = self.path / name
        with translate_refusals(path):
            try:
                file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115
            except (FileNotFoundError, NotADirectoryError):
                raise StoreNotFoundError(f"{path}: is not there", path=path) from None
            with file:
                _check_regular(path, os.fstat(file.fileno()))
                file.seek(start)
                return file.read(count)

    def open(self, name: str) -> Any:
        return nullcontext(str(self.path / name))

    def names(self, beginning: str = "") -> list[str]:
        return [name for name in self._list_all(beginning) if UNFINISHED not in name]

    def _list_all(self, beginning: str) -> list[str]:
        """Return the names of all files, also of unfinished ones."""
        top = beginning.rpartition("/")[0]
        with translate_refusals(self.path):
            return sorted(
                name
                for name in _list_files(self.path / top, f"{top}/" if top else "")
                if name.startswith(beginning)
            )

    def times(self, beginning: str = "") -> dict[str, float]:
        times = dict[str, float]()
        for name in self.names(beginning):
            with translate_refusals(self.path / name), suppress(FileNotFoundError):
                times[name] = (self.path / name).stat().st_mtime
        return times

    def unfinished(self, beginning: str = "") -> list[str]:
        """Return the names of the files in unfinished folders."""
        names = [Path(name) for name in self._list_all(beginning) if UNFINISHED in name]
        return sorted(
            {
                str(name.parent.parent / name.name)
                for name in names
                if name.parent.name.startswith(UNFINISHED)
            }
        )

    @contextmanager
    def create_file(self, name: str) -> Iterator[Path]:
        """Yield a new path beside the target, and give it the target's name at the end."""
        target = self.path / name
        with translate_refusals(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._remove_killed(target.parent)
            with temporary_folder(target.parent, unfinished_prefix()) as folder:
                new = folder / target.name
                yield new
                _sync(new)
                _publish(new, target)
            sync_folder(target.parent)

    def _remove_killed(self, folder: Path) -> None:
        """Remove what killed processes have left, once: the folder may have many files."""
        if folder not in self._cleaned:
            remove_abandoned(folder, f"{unfinished_prefix()}*")
            self._cleaned.add(folder)

    def on_disk(self, name: str, scratch: Path) -> Path:
        return self.path / name

    def replace(self, name: str, data: bytes) -> None:
        with (
            translate_refusals(self.path / name),
            temporary_folder(self.path, unfinished_prefix()) as folder,
        ):
            (folder / name).write_bytes(data)
            _sync(folder / name)
            (folder / name).replace(self.path / name)

    def remove_unfinished(self, name: str) -> None:
        """Remove the unfinished folders beside a file that no process holds."""
        remove_abandoned((self.path / name).parent, f"{UNFINISHED}*")

    def remove(self) -> None:
        """Remove the folder and all files in it, and a link to it."""
        remove_tree(self.path.resolve())
        if self.path.is_symlink():
            self.path.unlink()

    def remove_file(self, name: str) -> None:
        with translate_refusals(self.path / name):
            (self.path / name).unlink(missing_ok=True)


def _list_files(folder: Path, beginning: str) -> Iterator[str]:
    """Yield the names of all files in a folder and those below, mostly without a stat."""
    folders = [(str(folder), beginning)]
    while folders:
        path, prefix = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            listing = list(entries)
            folders += [
                (entry.path, f"{prefix}{entry.name}/")
                for entry in listing
                if entry.is_dir(follow_symlinks=False)
            ]
            yield from [
                f"{prefix}{entry.name}"
                for entry in listing
                if entry.is_file() or entry.is_symlink()
            ]


@cache
def unfinished_prefix(boot: Path = BOOT) -> str:
    """Return the beginning of the names of unfinished folders of this machine.

    Locks of a shared file system may hold on one machine only (Lustre with ``localflock``, NFS with
    ``nolock``): there a folder of another machine looks abandoned while a task writes to it.
    """
    machine = socket.gethostname().encode()
    with suppress(OSError):
        machine = boot.read_bytes()
    return f"{UNFINISHED}{blake2b(machine, digest_size=4).hexdigest()}-"


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file, without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{path}: not a file: remove it", path=path)


def _publish(new: Path, target: Path) -> None:
    """Give a file or a folder its name, unless it is taken; an error for a different type."""
    is_folder = new.is_dir()
    try:
        if is_folder:
            new.rename(target)  # refused if there is a folder with files
        else:
            os.link(new, target)
    except OSError:
        if not target.exists():  # a file system without links
            new.rename(target)
        elif target.is_dir() != is_folder:
            raise


def _sync(path: Path) -> None:
    """Make a file, or a folder with its whole content, durable."""
    for item in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(item, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for copies on the disk of this machine.

    Folders of killed processes are removed.
    """
    parent = Path(tempfile.gettempdir())
    with translate_refusals(parent, ANOTHER_FOLDER):
        remove_abandoned(parent, f"{SCRATCH}*")
        with temporary_folder(parent, SCRATCH) as folder:
            folder.chmod(0o700)
            yield folder


class StoredPlace(Place):
    """A folder of an object store, which a file system of pyarrow reads.

    ``s3://bucket/folder``, ``gs://...``.

    An object appears whole. pyarrow has no put that refuses to replace an object, so a name is
    looked up before the put: if two tasks publish a name at once, the last one wins, and has
    written the same bytes. The text behind the name of the bucket is the name of an object as it
    is, without ``%20``.
    """

    readers = 16  # an object store is slow, and answers many requests at once

    def __init__(self, uri: str) -> None:
        self._arrow = import_pyarrow(uri, "an object store")
        self._fs = fs = import_package("pyarrow.fs", "an object store", uri)
        self._kinds = fs.FileType
        scheme, _, location = uri.partition("://")
        bucket, _, path = location.partition("/")
        self.uri = f"{scheme}://{bucket}/{path}".rstrip("/")
        self._system, top = open_filesystem(uri)
        self._path = f"{top}/{path.strip('/')}".rstrip("/")
        self._selector = fs.FileSelector

    def size(self, name: str) -> int | None:
        with self._translate_errors(name):
            info = self._system.get_file_info(self._object_path(name))
        return int(info.size) if info.type == self._kinds.File else None

    def read(self, name: str, start: int, count: int) -> bytes:
        with (
            self._translate_errors(name),
            self._system.open_input_file(self._object_path(name)) as file,
        ):
            return bytes(file.read_at(max(min(count, file.size() - start), 0), start))

    @contextmanager
    def open(self, name: str) -> Iterator[Any]:
        with (
            self._translate_errors(name),
            self._system.open_input_file(self._object_path(name)) as file,
        ):
            yield file

    def names(self, beginning: str = "") -> list[str]:
        return list(self.times(beginning))

    def times(self, beginning: str = "") -> dict[str, float]:
        top = beginning.rpartition("/")[0]
        with self._translate_errors(beginning):
            infos = self._system.get_file_info(
                self._selector(self._object_path(top), recursive=True, allow_not_found=True)
            )
        length = len(self._path.rstrip("/")) + 1
        files = sorted(
            (info.path[length:], (info.mtime_ns or 0) / 1e9)
            for info in infos
            if info.type == self._kinds.File
        )
        return {name: seconds for name, seconds in files if name.startswith(beginning)}

    @contextmanager
    def create_file(self, name: str) -> Iterator[Path]:
        """Yield a new path on the local disk, and copy it to the store unless the name is taken."""
        with scratch_folder() as folder:
            new = folder / Path(name).name
            yield new
            self._put(new, name)

    def _put(self, path: Path, name: str) -> None:
        """Copy a file to the store; after an error, remove a partial copy.

        A stream ends well in any case, so an incomplete object may appear.
        """
        if self.size(name) is not None:
            return
        try:
            with self._translate_errors(name):
                self._copy(
                    self._fs.LocalFileSystem(), str(path), self._system, self._object_path(name)
                )
        except BaseException:
            with suppress(FpstoreError), self._translate_errors(name):
                if self.size(name) not in (None, path.stat().st_size):
                    self._system.delete_file(self._object_path(name))
            raise

    def _copy(self, source: Any, path: str, target: Any, to: str) -> None:
        self._fs.copy_files(
            path, to, source_filesystem=source, destination_filesystem=target, use_threads=False
        )

    def on_disk(self, name: str, scratch: Path) -> Path:
        path = scratch / name
        if self.size(name) is None:
            raise StoreNotFoundError(f"{self.label(name)}: is not there", path=self.label(name))
        with translate_refusals(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._translate_errors(name):
            try:
                self._copy(
                    self._system, self._object_path(name), self._fs.LocalFileSystem(), str(path)
                )
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise refusal_error(path, error, ANOTHER_FOLDER) from error
        return path

    def replace(self, name: str, data: bytes) -> None:
        with (
            self._translate_errors(name),
            self._system.open_output_stream(self._object_path(name), compression=None) as stream,
        ):
            stream.write(data)

    def remove_unfinished(self, name: str) -> None:
        """Do nothing: unfinished objects have no name."""

    def remove(self) -> None:
        with suppress(StoreNotFoundError), self._translate_errors(""):
            if "/" in self._path:
                self._system.delete_dir(self._path)
            else:  # the bucket itself stays
                self._system.delete_dir_contents(self._path)

    def remove_file(self, name: str) -> None:
        with suppress(StoreNotFoundError), self._translate_errors(name):
            self._system.delete_file(self._object_path(name))

    def _object_path(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}" if name else self._path

    @contextmanager
    def _translate_errors(self, name: str) -> Iterator[None]:
        where = self.label(name)
        try:
            yield
        except FpstoreError:
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"{where}: is not there", path=where) from error
        except (self._arrow.ArrowException, ValueError, OSError) as error:
            raise StorageError(f"{where}: {first_line(error)}", path=where) from error


def full_uri(path: str | os.PathLike[str], argument: str) -> str:
    return str(path) if is_uri(path) else str(check_path(path, argument).absolute())


def is_inside(path: str, folder: str) -> bool:
    """Whether a path or a URI is a folder, or in it; links are followed."""
    if is_uri(path) or is_uri(folder):
        return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


def open_place(path: str | os.PathLike[str], argument: str = "a path") -> Place:
    return StoredPlace(str(path)) if is_uri(path) else DiskPlace(check_path(path, argument))
