"""Files of object stores, by URI: copied to a disk to be read, and from it when they are written.

pyarrow knows ``s3://``, ``gs://``, ``hf://``, ``file://`` and others; the package fsspec knows the
rest. Settings and credentials come from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit
from weakref import finalize

from fpstore.base.arguments import is_uri
from fpstore.errors import FpstoreError, InputError, StorageError, StoreNotFoundError
from fpstore.io.packages import import_package

USER = "an object store"
PREFIX = "fpstore-copy-"  # begins the names of folders for copies
_COPIED_BYTES = 1 << 20


def check_uri(uri: str) -> None:
    """Raise InputError for a URI with settings or a password, which messages would show."""
    location = uri.partition("://")[2].partition("/")[0]
    scheme = uri.partition("://")[0]
    if "?" in uri or urlsplit(f"{scheme}://{location}").password is not None:
        shown = f"{scheme}://{location.rpartition('@')[2]}".partition("?")[0]
        advice = (
            "give its settings and credentials by variables of the environment, such as "
            "AWS_ENDPOINT_URL"
        )
        raise InputError(f"{shown}: a plan keeps the URI of an object store: {advice}")


def open_filesystem(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, as pyarrow has it, and its path of the bucket.

    InputError for a scheme that nothing knows, and MissingExtraError for one that only fsspec may.
    """
    check_uri(uri)
    fs = import_package("pyarrow.fs", USER, uri)
    arrow = import_package("pyarrow", USER, uri)
    scheme, _, location = uri.partition("://")
    bucket = f"{scheme}://{location.partition('/')[0]}"
    try:
        system, top = fs.FileSystem.from_uri(f"{bucket}/")
        return system, str(top).rstrip("/")
    except (arrow.ArrowException, ValueError, OSError) as error:
        if "Unrecognized filesystem type" not in str(error):
            raise InputError(f"{uri}: {first_line(error)}", path=uri) from error
    fsspec = import_package("fsspec", USER, uri)
    try:
        system, top = fsspec.core.url_to_fs(bucket)
    except (ImportError, ValueError, OSError) as error:
        raise InputError(f"{uri}: {first_line(error)}", path=uri) from error
    return fs.PyFileSystem(fs.FSSpecHandler(system)), str(top).rstrip("/")


class RemoteFile:
    """A file, or a folder, by its URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._fs, top = open_filesystem(uri)
        self._kinds = import_package("pyarrow.fs", USER, uri)
        inner = uri.partition("://")[2].partition("/")[2].strip("/")
        self._path = f"{top}/{inner}" if inner else top

    def is_file(self) -> bool:
        with self._errors():
            return bool(self._fs.get_file_info(self._path).type == self._kinds.FileType.File)

    def names(self) -> list[str]:
        """Return the sorted names of the files in a folder, and in folders below."""
        selector = self._kinds.FileSelector(self._path, recursive=True, allow_not_found=True)
        with self._errors():
            infos = self._fs.get_file_info(selector)
        return sorted(
            PurePosixPath(info.path).relative_to(self._path).as_posix()
            for info in infos
            if info.type == self._kinds.FileType.File
        )

    def download(self, path: Path, name: str = "") -> None:
        """Copy the file, or a file of the folder, to a path on a disk."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            self._errors(),
            self._open_input(name) as source,
            path.open("xb") as target,
        ):
            while data := source.read(_COPIED_BYTES):
                target.write(data)

    def read_head(self, name: str, size: int) -> bytes:
        with self._errors(), self._open_input(name) as source:
            return bytes(source.read(size))

    def _open_input(self, name: str) -> Any:
        """Open the bytes of a file, which pyarrow would otherwise unpack by its extension."""
        return self._fs.open_input_stream(self._inner(name), compression=None)

    def upload(self, path: Path, name: str = "") -> None:
        """Copy a file on a disk to the file, or to a file of the folder.

        An object store shows it when it is complete.
        """
        target_path = self._inner(name)
        with self._errors():
            self._fs.create_dir(target_path.rpartition("/")[0], recursive=True)
            with (
                path.open("rb") as source,
                # by default, pyarrow would pack it by its extension
                self._fs.open_output_stream(target_path, compression=None) as target,
            ):
                while data := source.read(_COPIED_BYTES):
                    target.write(data)

    def _inner(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path

    @contextmanager
    def _errors(self) -> Iterator[None]:
        arrow = import_package("pyarrow", USER, self.uri)
        try:
            yield
        except FpstoreError:
            raise
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"{self.uri}: is not there", path=self.uri) from error
        except (arrow.ArrowException, ValueError, OSError) as error:
            raise StorageError(f"{self.uri}: {first_line(error)}", path=self.uri) from error


class ScratchFolder:
    """A temporary folder, which is removed when nothing refers to this any more."""

    def __init__(self) -> None:
        import shutil  # imports all the archive modules

        self.path = Path(mkdtemp(prefix=PREFIX))
        self.remove = finalize(self, shutil.rmtree, self.path, ignore_errors=True)


class Copies:
    """Copies of files in a temporary folder, which goes when nothing refers to this any more.

    Attributes
    ----------
    uris : list of str
        What was copied: files and folders.
    labels : dict
        The URI of each file, by the path of its copy.
    """

    def __init__(self) -> None:
        self._folder = ScratchFolder()
        self.uris: list[str] = []
        self.labels: dict[str, str] = {}

    def add_file(self, uri: str) -> str:
        """Copy a file, and return the path of the copy, whose name is the same."""
        path = self._new_path(uri)
        RemoteFile(uri).download(path)
        self.labels[str(path)] = uri
        return str(path)

    def add_folder(self, uri: str, folder: RemoteFile, names: list[str]) -> str:
        """Copy files of a folder, and return the path of the new folder."""
        path = self._new_path(uri)
        path.mkdir(parents=True)
        for name in names:
            if ".." in name.split("/"):
                raise InputError(f"{uri}: has an object named {name!r}, which no folder can have")
            folder.download(path / name, name)
            self.labels[str(path / name)] = f"{uri.rstrip('/')}/{name}"
        return str(path)

    def _new_path(self, uri: str) -> Path:
        self.uris.append(uri)
        name = PurePosixPath(uri.partition("://")[2]).name or "files"
        return self._folder.path / str(len(self.uris)) / name


def expand_pattern(uri: str) -> list[str]:
    """Return the sorted URIs of the files that match a pattern, or the URI as it is.

    As in a shell, ``*`` matches within a name, and no dot at its beginning. The bucket is no
    pattern, nor is the name of a file that is there.
    """
    scheme, _, location = uri.partition("://")
    bucket, *parts = location.split("/")
    first = next((place for place, part in enumerate(parts) if "*" in part), None)
    if first is None or RemoteFile(uri).is_file():
        return [uri]
    folder = "/".join([f"{scheme}://{bucket}", *parts[:first]])
    matching = [
        f"{folder}/{name}"
        for name in RemoteFile(folder).names()
        if _matches(name.split("/"), parts[first:])
    ]
    if not matching:
        raise StorageError(f"{uri}: no file matches", path=uri)
    return matching


def _matches(names: list[str], patterns: list[str]) -> bool:
    return len(names) == len(patterns) and all(
        fnmatchcase(name, _only_stars(pattern)) and (pattern[:1] == "." or name[:1] != ".")
        for name, pattern in zip(names, patterns, strict=True)
    )


def _only_stars(pattern: str) -> str:
    """Return a pattern in which other characters than stars stand for themselves."""
    return re.sub(r"[\[?]", r"[\g<0>]", pattern)


def local_files(paths: Any) -> tuple[Any, Copies | None]:
    """Return paths, with copies in place of files that URIs name; and the copies, if there are."""
    if not isinstance(paths, list | tuple) or not any(map(is_uri, paths)):
        return paths, None
    copies = Copies()
    names = chain.from_iterable(
        map(copies.add_file, expand_pattern(path)) if is_uri(path) else [path] for path in paths
    )
    return list(names), copies


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
