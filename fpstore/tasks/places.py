"""Folders that tasks share, on a disk or in an object store: a file appears in them whole, once, and never changes."""

from __future__ import annotations

import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from fpstore.base.arguments import check_path
from fpstore.disk.files import opened, read_at
from fpstore.disk.folders import remove_abandoned, remove_tree, sync_folder, temporary_folder
from fpstore.disk.refusals import refusing
from fpstore.errors import FpstoreError, InputError, StorageError, StoreNotFoundError
from fpstore.io.arrow import import_pyarrow
from fpstore.io.packages import import_package

COPIED_BYTES = 1 << 22  # at once, between a disk and an object store
UNFINISHED = ".unfinished-"  # begins the names of folders with files that have not appeared


class Place(ABC):
    """A folder that tasks read from and publish in: a file has its name when all of it is there."""

    uri: str

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the bytes of a file; None if it is not there."""

    @abstractmethod
    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file; StoreNotFoundError if it is not there, fewer bytes at its end."""

    @abstractmethod
    def opened(self, name: str) -> Any:
        """Return a context manager: yield what pyarrow reads a file from."""

    @abstractmethod
    def names(self, beginning: str = "") -> list[str]:
        """Return the names of all files here and in folders below that begin so, in order; none if the folder is not there."""

    @abstractmethod
    def writing(self, name: str) -> Any:
        """Return a context manager: yield the path of a new file, or folder, on a disk, and publish what is there at the end.

        The first one that publishes a name wins: what others have made is dropped.
        """

    @abstractmethod
    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a file, or of a folder of files, on a disk: of a copy in a folder, unless it is on one already."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the folder and all files in it."""

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

    def size(self, name: str) -> int | None:
        """Return the bytes of a file; None if it is not there."""
        with suppress(FileNotFoundError, NotADirectoryError), refusing_others(self.path / name):
            return (self.path / name).stat().st_size
        return None

    def read(self, name: str, start: int, count: int) -> bytes:
        """Return bytes of a file."""
        path = self.path / name
        with opened(path, of_user=True) as descriptor:
            return read_at(descriptor, path, start, count)

    def opened(self, name: str) -> Any:
        """Yield the path of a file."""
        return nullcontext(str(self.path / name))

    def names(self, beginning: str = "") -> list[str]:
        """Return the names of files that begin so."""
        top, _, rest = beginning.rpartition("/")
        with refusing(self.path):
            files = (path for path in (self.path / top).rglob(f"{rest}*") if path.is_file())
            found = sorted(str(path.relative_to(self.path)) for path in files)
        return [name for name in found if name.startswith(beginning) and UNFINISHED not in name]

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a new path beside the target, and link it, or rename a folder, unless the name is there already."""
        target = self.path / name
        with refusing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(target.parent, f"{UNFINISHED}*")
            with temporary_folder(target.parent, UNFINISHED) as folder:
                new = folder / target.name
                yield new
                _sync(new)
                _publish(new, target)
            sync_folder(target.parent)

    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a file or folder."""
        return self.path / name

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""
        with refusing(self.path / name), temporary_folder(self.path, UNFINISHED) as folder:
            (folder / name).write_bytes(data)
            _sync(folder / name)
            (folder / name).replace(self.path / name)

    def remove(self) -> None:
        """Remove the folder and all files in it."""
        remove_tree(self.path)


def _publish(new: Path, target: Path) -> None:
    """Give a file or a folder its name, unless it is taken."""
    try:
        if new.is_dir():
            new.rename(target)  # refused if there is a folder with files
        else:
            os.link(new, target)
    except OSError:
        if not target.exists():  # a file system without links
            new.rename(target)


def _sync(path: Path) -> None:
    """Make a file, or a folder with all that is in it, durable."""
    for one in [*path.rglob("*"), path] if path.is_dir() else [path]:
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def refusing_others(path: Path) -> Iterator[None]:
    """Turn what the system refuses inside into StorageError, but not that a file is missing."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        with refusing(path):
            raise error


class StoredPlace(Place):
    """A folder of an object store, which a file system of pyarrow reads: ``s3://bucket/folder``, ``gs://...``.

    An object appears whole. Such a store may have no put that refuses to replace an object: of two tasks that publish a name at
    once, the last wins, and has written the same bytes.
    """

    def __init__(self, uri: str) -> None:
        self._arrow = import_pyarrow(uri, "an object store")
        fs = import_package("pyarrow.fs", "an object store", uri)
        self._kinds = fs.FileType
        self.uri = urlunsplit(urlsplit(uri)._replace(query="", fragment=""))
        try:
            self._system, self._path = fs.FileSystem.from_uri(uri)
        except (self._arrow.ArrowException, ValueError) as error:
            raise InputError(f"{self.uri}: {first_line(error)}", path=uri) from error
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
        top = beginning.rpartition("/")[0]
        with self._errors(beginning):
            found = self._system.get_file_info(self._selector(self._at(top), recursive=True, allow_not_found=True))
        length = len(self._path.rstrip("/")) + 1
        names = sorted(one.path[length:] for one in found if one.type == self._kinds.File)
        return [name for name in names if name.startswith(beginning)]

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Yield a new path on the local disk, and copy what is there to the store unless the name is there already."""
        with tempfile.TemporaryDirectory(prefix="fpstore-") as folder:
            new = Path(folder) / Path(name).name
            yield new
            files = [path for path in new.rglob("*") if path.is_file()] if new.is_dir() else [new]
            for path in sorted(files):
                self._put(path, name if path == new else f"{name}/{path.relative_to(new)}")

    def _put(self, path: Path, name: str) -> None:
        if self.size(name) is None:
            with self._errors(name), path.open("rb") as file, self._system.open_output_stream(self._at(name)) as stream:
                shutil.copyfileobj(file, stream, COPIED_BYTES)

    def on_disk(self, name: str, scratch: Path) -> Path:
        """Return the path of a copy of a file or folder."""
        target = scratch / name
        names = [name] if self.size(name) is not None else self.names(f"{name}/")
        if not names:
            raise StoreNotFoundError(f"{self.shown(name)}: is not there", path=self.shown(name))
        for one in names:
            path = scratch / one
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._errors(one), self._system.open_input_stream(self._at(one)) as stream, path.open("wb") as file:
                shutil.copyfileobj(stream, file, COPIED_BYTES)
        return target

    def replace(self, name: str, data: bytes) -> None:
        """Write a small file, also if there is one."""
        with self._errors(name), self._system.open_output_stream(self._at(name)) as stream:
            stream.write(data)

    def remove(self) -> None:
        """Remove the folder and all files in it."""
        with self._errors(""):
            self._system.delete_dir_contents(self._path, missing_dir_ok=True)

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
        except (self._arrow.ArrowException, OSError) as error:
            raise StorageError(f"{where}: {first_line(error)}", path=where) from error


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_uri(path: object) -> bool:
    """Whether a path names an object store."""
    return isinstance(path, str) and "://" in path


def full_uri(path: str | os.PathLike[str], what: str) -> str:
    """Return a URI as it is, or an absolute path."""
    return str(path) if is_uri(path) else str(check_path(path, what).absolute())


def place_of(path: str | os.PathLike[str], what: str = "a path") -> Place:
    """Return the place that a path or a URI names."""
    return StoredPlace(str(path)) if is_uri(path) else DiskPlace(check_path(path, what))
