"""Folders that tasks share, on a disk or in an object store.

A file appears in them whole, once, and never changes.
"""

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
from urllib.parse import urlsplit

from fpstore.base.arguments import check_path, is_uri
from fpstore.disk.folders import (
    UNFINISHED,
    remove_abandoned,
    remove_tree,
    sync_folder,
    temporary_folder,
)
from fpstore.disk.refusals import FULL, refused, refusing
from fpstore.disk.temporary import ANOTHER_FOLDER
from fpstore.errors import FpstoreError, InputError, StorageError, StoreNotFoundError
from fpstore.io.arrow import import_pyarrow
from fpstore.io.packages import import_package

SCRATCH = "fpstore-task-"  # begins those of folders for copies on the disk of one machine
BOOT = Path("/proc/sys/kernel/random/boot_id")  # of all processes of one kernel, in containers too


class Place(ABC):
    """A folder that tasks read from and publish in: a file has its name when all of it is there."""

    uri: str
    readers = 1  # threads that read many files

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file.

        None if it is not there, StorageError if something else has its name.
        """

    @abstractmethod
    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file; StoreNotFoundError if it is not there, fewer bytes at its end."""

    @abstractmethod
    def opened(self, name: str) -> Any:
        """Return a context manager: yield what pyarrow reads a file from."""

    @abstractmethod
    def names(self, beginning: str = "") -> list[str]:
        """Return the names of all files here and in folders below that begin so, in order.

        None if the folder is not there.
        """

    @abstractmethod
    def times(self, beginning: str = "") -> dict[str, float]:
        """Return the names of all files that begin so, with the seconds since 1970 at which they were written."""

    def begun(self, beginning: str = "") -> list[str]:
        """Return the names that begin so of files that are written, or were when a process was killed, as far as one can see."""
        return []

    @abstractmethod
    def writing(self, name: str) -> Any:
        """Return a context manager.

        Yield the path of a new file, or folder, on a disk, and publish what is there at the end.

        The first one that publishes a name wins: what others have made is dropped.
        """

    @abstractmethod
    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a file, or of a folder of files, on a disk.

        Of a copy in a folder, unless it is on one already.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""

    @abstractmethod
    def tidy(self, name: str) -> None:
        """Remove what killed processes have left beside a file, when no other machine writes there any more."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and all files in it."""

    @abstractmethod
    def remove_file(self, name: str) -> None:
        """Remove a file."""

    def read_all(self, name: str) -> bytes:
        """Return a small file; StoreNotFoundError if it is not there."""
        size = self.size(name)
        if size is None:
            raise StoreNotFoundError(f"{self.shown(name)}: is not there", path=self.shown(name))
        return self.read(name, 0, size)

    def shown(self, name: str) -> str:
        """Return where a file is, for people."""
        return f"{self.uri.rstrip('/')}/{name}" if name else self.uri

    def publish(self, name: str, data: bytes) -> bytes:
        """Write a small file unless there is one, and return what is there."""
        with self.writing(name) as path:
            path.write_bytes(data)
        return self.read_all(name)


class DiskPlace(Place):
    """A folder of this machine's file systems, which may be one that machines share."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.uri = str(self.path)
        self._cleaned = set[Path]()  # folders in which what is abandoned was removed

    def size(self, name: str) -> int | None:
        """Return the bytes of a file."""
        path = self.path / name
        with refusing(path), suppress(FileNotFoundError, NotADirectoryError):
            found = path.stat()
            _check_regular(path, found)
            return found.st_size
        return None

    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file. A link that the user has made is followed."""
        path = self.path / name
        with refusing(path):
            try:
                file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
            except (FileNotFoundError, NotADirectoryError):
                raise StoreNotFoundError(f"{path}: is not there", path=path) from None
            with file:
                _check_regular(path, os.fstat(file.fileno()))
                file.seek(start)
                return file.read(count)

    def opened(self, name: str) -> Any:
        """Yield the path of a file."""
        return nullcontext(str(self.path / name))

    def names(self, beginning: str = "") -> list[str]:
        """Return the names of files that begin so."""
        return [name for name in self._all(beginning) if UNFINISHED not in name]

    def _all(self, beginning: str) -> list[str]:
        """Return the names that begin so of all files, also of those that have not appeared."""
        top = beginning.rpartition("/")[0]
        with refusing(self.path):
            return sorted(
                name
                for name in _files_in(self.path / top, f"{top}/" if top else "")
                if name.startswith(beginning)
            )

    def times(self, beginning: str = "") -> dict[str, float]:
        """Return the names of files that begin so, with the times of their last bytes."""
        found = dict[str, float]()
        for name in self.names(beginning):
            with refusing(self.path / name), suppress(FileNotFoundError):
                found[name] = (self.path / name).stat().st_mtime
        return found

    def begun(self, beginning: str = "") -> list[str]:
        """Return the names that begin so of files in unfinished folders."""
        names = [Path(name) for name in self._all(beginning) if UNFINISHED in name]
        return sorted(
            {
                str(name.parent.parent / name.name)
                for name in names
                if name.parent.name.startswith(UNFINISHED)
            }
        )

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a new path beside the target, and link it, or rename a folder, unless the name is there already."""
        target = self.path / name
        with refusing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            self._clean(target.parent)
            with temporary_folder(target.parent, _unfinished()) as folder:
                new = folder / target.name
                yield new
                _sync(new)
                _publish(new, target)
            sync_folder(target.parent)

    def _clean(self, folder: Path) -> None:
        """Remove what killed processes have left, once.

        A folder may have many files, and be written to as often.
        """
        if folder not in self._cleaned:
            remove_abandoned(folder, f"{_unfinished()}*")
            self._cleaned.add(folder)

    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a file or folder."""
        return self.path / name

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""
        with refusing(self.path / name), temporary_folder(self.path, _unfinished()) as folder:
            (folder / name).write_bytes(data)
            _sync(folder / name)
            (folder / name).replace(self.path / name)

    def tidy(self, name: str) -> None:
        """Remove the unfinished folders beside a file that no process holds."""
        remove_abandoned((self.path / name).parent, f"{UNFINISHED}*")

    def remove(self) -> None:
        """Remove the folder and all files in it, and a link to it."""
        remove_tree(self.path.resolve())
        if self.path.is_symlink():
            self.path.unlink()

    def remove_file(self, name: str) -> None:
        """Remove a file."""
        with suppress(FileNotFoundError):
            (self.path / name).unlink()


def _files_in(folder: Path, beginning: str) -> Iterator[str]:
    """Yield the names of all files in a folder and those below.

    Of most, the folder says what they are.
    """
    folders = [(str(folder), beginning)]
    while folders:
        path, before = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            listed = list(entries)
            folders += [
                (one.path, f"{before}{one.name}/")
                for one in listed
                if one.is_dir(follow_symlinks=False)
            ]
            yield from [
                f"{before}{one.name}" for one in listed if one.is_file() or one.is_symlink()
            ]


@cache
def _unfinished() -> str:
    """Return what begins the names of unfinished folders of this machine.

    Locks of a shared file system may hold on one machine only (Lustre with ``localflock``, NFS with
    ``nolock``): there a folder of another machine looks abandoned while a task writes to it.
    """
    machine = socket.gethostname().encode()
    with suppress(OSError):
        machine = BOOT.read_bytes()
    return f"{UNFINISHED}{blake2b(machine, digest_size=4).hexdigest()}-"


def _without_waiting(path: str, flags: int) -> int:
    """Open a file, and do not wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(f"{path}: not a file: remove it", path=path)


def _publish(new: Path, target: Path) -> None:
    """Give a file or a folder its name, unless it is taken.

    An error if something else has the name.
    """
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
    """Make a file, or a folder with all that is in it, durable."""
    for one in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a folder for copies on the disk of this machine.

    Those of processes that were killed are removed.
    """
    parent = Path(tempfile.gettempdir())
    with refusing(parent, ANOTHER_FOLDER):
        remove_abandoned(parent, f"{SCRATCH}*")
        with temporary_folder(parent, SCRATCH) as folder:
            folder.chmod(0o700)
            yield folder


class StoredPlace(Place):
    """A folder of an object store, which a file system of pyarrow reads.

    ``s3://bucket/folder``, ``gs://...``.

    An object appears whole. pyarrow has no put that refuses to replace an object, so a name is
    looked for before the put: of two tasks that publish a name at once, the last one wins, and has
    written the same bytes. What follows the name of the bucket is the name of an object as it is,
    without ``%20``.
    """

    readers = 16  # an object store takes its time, and answers many at once

    def __init__(self, uri: str) -> None:
        self._arrow = import_pyarrow(uri, "an object store")
        self._fs = fs = import_package("pyarrow.fs", "an object store", uri)
        self._kinds = fs.FileType
        scheme, _, rest = uri.partition("://")
        bucket, _, path = rest.partition("/")
        self.uri = f"{scheme}://{bucket}/{path}".rstrip("/")
        if "?" in uri or urlsplit(f"{scheme}://{bucket}").password is not None:
            shown = f"{scheme}://{bucket.rpartition('@')[2]}".partition("?")[0]
            advice = (
                "give its settings and credentials by variables of the environment, such as "
                "AWS_ENDPOINT_URL"
            )
            raise InputError(f"{shown}: a plan keeps the URI of an object store: {advice}")
        try:
            self._system, top = fs.FileSystem.from_uri(f"{scheme}://{bucket}/")
        except (self._arrow.ArrowException, ValueError, OSError) as error:
            raise InputError(f"{self.uri}: {first_line(error)}", path=self.uri) from error
        self._path = f"{top.rstrip('/')}/{path.strip('/')}".rstrip("/")
        self._selector = fs.FileSelector

    def size(self, name: str) -> int | None:
        """Return the bytes of a file; None if it is not there."""
        with self._errors(name):
            found = self._system.get_file_info(self._at(name))
        return int(found.size) if found.type == self._kinds.File else None

    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file."""
        with self._errors(name), self._system.open_input_file(self._at(name)) as file:
            return bytes(file.read_at(max(min(count, file.size() - start), 0), start))

    @contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Yield a file of pyarrow."""
        with self._errors(name), self._system.open_input_file(self._at(name)) as file:
            yield file

    def names(self, beginning: str = "") -> list[str]:
        """Return the names of files that begin so."""
        return list(self.times(beginning))

    def times(self, beginning: str = "") -> dict[str, float]:
        """Return the names of files that begin so, with the times at which they were put."""
        top = beginning.rpartition("/")[0]
        with self._errors(beginning):
            found = self._system.get_file_info(
                self._selector(self._at(top), recursive=True, allow_not_found=True)
            )
        length = len(self._path.rstrip("/")) + 1
        files = sorted(
            (one.path[length:], (one.mtime_ns or 0) / 1e9)
            for one in found
            if one.type == self._kinds.File
        )
        return {name: seconds for name, seconds in files if name.startswith(beginning)}

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a new path on the local disk, and copy what is there to the store unless the name is there already."""
        with scratch_folder() as folder:
            new = folder / Path(name).name
            yield new
            self._put(new, name)

    def _put(self, path: Path, name: str) -> None:
        """Copy a file to the store.

        What is there of it after an error, as a stream ends well in any case, is removed.
        """
        if self.size(name) is not None:
            return
        try:
            with self._errors(name):
                self._copy(self._fs.LocalFileSystem(), str(path), self._system, self._at(name))
        except BaseException:
            with suppress(FpstoreError), self._errors(name):
                if self.size(name) not in (None, path.stat().st_size):
                    self._system.delete_file(self._at(name))
            raise

    def _copy(self, source: Any, path: str, target: Any, to: str) -> None:
        self._fs.copy_files(
            path, to, source_filesystem=source, destination_filesystem=target, use_threads=False
        )

    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a copy of a file."""
        path = scratch / name
        if self.size(name) is None:
            raise StoreNotFoundError(f"{self.shown(name)}: is not there", path=self.shown(name))
        with refusing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with self._errors(name):
            try:
                self._copy(self._system, self._at(name), self._fs.LocalFileSystem(), str(path))
            except OSError as error:
                if error.errno not in FULL:
                    raise
                raise refused(path, error, ANOTHER_FOLDER) from error
        return path

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""
        with self._errors(name), self._system.open_output_stream(self._at(name)) as stream:
            stream.write(data)

    def tidy(self, name: str) -> None:
        """Do nothing: unfinished objects have no name."""

    def remove(self) -> None:
        """Remove all files in the folder."""
        with suppress(StoreNotFoundError), self._errors(""):
            if "/" in self._path:
                self._system.delete_dir(self._path)
            else:  # the bucket itself stays
                self._system.delete_dir_contents(self._path)

    def remove_file(self, name: str) -> None:
        """Remove a file."""
        with suppress(StoreNotFoundError), self._errors(name):
            self._system.delete_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._path.rstrip('/')}/{name}" if name else self._path

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        where = self.shown(name)
        try:
            yield
        except FpstoreError:
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"{where}: is not there", path=where) from error
        except (self._arrow.ArrowException, ValueError, OSError) as error:
            raise StorageError(f"{where}: {first_line(error)}", path=where) from error


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def full_uri(path: str | os.PathLike[str], what: str) -> str:
    """Return a URI as it is, or an absolute path."""
    return str(path) if is_uri(path) else str(check_path(path, what).absolute())


def is_inside(path: str, folder: str) -> bool:
    """Whether a path or a URI is that of a folder, or of what is in it; links are followed."""
    if is_uri(path) or is_uri(folder):
        return f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/")
    return Path(path).resolve().is_relative_to(Path(folder).resolve())


def open_place(path: str | os.PathLike[str], what: str = "a path") -> Place:
    """Return the place that a path or a URI names."""
    return StoredPlace(str(path)) if is_uri(path) else DiskPlace(check_path(path, what))
