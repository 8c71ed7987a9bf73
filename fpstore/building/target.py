"""Building a folder beside its target and moving it into place in one step, or leaving no trace."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fpstore.base.keywords import keyword
from fpstore.disk.folders import (
    exchange,
    put_back,
    remove_abandoned,
    shorten_name,
    sync_folder,
    temporary_folder,
)
from fpstore.disk.locks import LOCK_FILE, WriterLock
from fpstore.disk.refusals import (
    NOTHING_CHANGED,
    is_system_error,
    refusal_error,
    translate_refusals,
)
from fpstore.errors import CorruptStoreError, InputError, StorageError, StoreExistsError
from fpstore.format.manifest import is_store

TEMPORARY_ROOM = 40  # bytes that the names of temporary folders are longer than the target's


class Target:
    """Context manager: yields a temporary folder, and on success makes it the target beside it.

    The folder is locked while its builder lives, so the next build can tell one that was abandoned
    (a killed process) and remove it. With ``overwrite``, an existing store is exchanged with the
    new one in one system call. ``is_own_store`` says what may be replaced, and ``locked`` names the
    folder in it where its writer has the lock.
    """

    def __init__(
        self,
        path: Path,
        overwrite: bool,
        is_own_store: Callable[[Path], bool] = is_store,
        locked: str = "",
    ) -> None:
        # a link stands for the store that it names
        self.path = path.resolve() if overwrite and is_own_store(path) else path
        self._is_own_store, self._locked = is_own_store, locked
        self._overwrite = overwrite
        prefix = f"{temporary_prefix(self.path)}{os.getpid()}-"
        self._temporary = temporary_folder(self.path.parent, prefix)
        self._folder: Path
        # the lock of the store that is replaced: nobody changes it meanwhile
        self._writer: WriterLock | None = None

    def __enter__(self) -> Path:
        try:
            self._prepare()
        except BaseException as error:  # __exit__ will not be called
            self._release_writer()
            if is_system_error(error):
                raise refusal_error(self.path, error, NOTHING_CHANGED) from error
            raise
        return self._folder

    def _prepare(self) -> None:
        path = self.path
        refuse_inside_store(path)
        put_back(self.path, temporary_prefix(self.path), self._is_own_store)
        if path.is_symlink() or path.exists():
            if not self._is_own_store(path):
                kind = "an fpstore store" if self._is_own_store is is_store else "an LSH index"
                raise StoreExistsError(
                    f"{path} exists and is not {kind}: choose another path", path=path
                )
            if not self._overwrite:
                advice = f"choose another path, or replace it with {keyword('overwrite', True)}"
                raise StoreExistsError(f"{path} exists: {advice}", path=path)
            self._keep_writers_away()
        if not path.parent.is_dir():
            raise StorageError(f"{path.parent}: no such folder", path=path.parent)
        remove_abandoned(path.parent, f"{glob.escape(temporary_prefix(path))}*")
        try:
            self._folder = self._temporary.__enter__()
        except OSError as error:
            raise refusal_error(f"{path}: cannot write beside it", error) from error

    def _keep_writers_away(self) -> None:
        """Take the lock of the store that is replaced, if anybody has ever written to it."""
        if self._writer is None and (self.path / self._locked / LOCK_FILE).exists():
            # where the lock cannot be opened there is no writer
            with suppress(OSError, CorruptStoreError):
                self._writer = WriterLock(self.path / self._locked)

    def _release_writer(self) -> None:
        if self._writer is not None:
            self._writer.release()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                with translate_refusals(self.path, NOTHING_CHANGED):
                    self._publish()
            elif is_system_error(error) and not isinstance(
                error, (InterruptedError, BrokenPipeError)
            ):
                raise refusal_error(error.filename or self.path, error, NOTHING_CHANGED) from error
        finally:
            self._temporary.__exit__(None, None, None)
            self._release_writer()

    def _publish(self) -> None:
        for folder, _, _ in os.walk(self._folder, topdown=False):
            sync_folder(Path(folder))
        replaced = self._overwrite and self.path.exists()
        if replaced:
            self._keep_writers_away()  # the first one may have come meanwhile
            exchange(self._folder, self.path)
        else:
            if self.path.exists():
                raise StoreExistsError(
                    f"{self.path} appeared while it was built: nothing was changed", path=self.path
                )
            self._folder.rename(self.path)
        try:
            sync_folder(self.path.parent)
        except OSError:
            self._take_back(replaced)
            raise

    def _take_back(self, replaced: bool) -> None:
        """Undo the last step of a build, so that an error always means that nothing was changed."""
        try:
            if replaced:
                exchange(self._folder, self.path)
            else:
                self.path.rename(self._folder)
        except OSError as error:
            outcome = "; the new store is in place, but may be lost in a power failure"
            raise refusal_error(self.path, error, outcome) from error


def temporary_prefix(path: Path) -> str:
    return f".{shorten_name(path.name, TEMPORARY_ROOM)}.tmp-"


def refuse_inside_store(path: Path) -> None:
    """Raise InputError if a path to be written lies inside a store, where nothing else belongs."""
    folder = _resolve_links(path.parent)
    for parent in () if folder is None else (folder, *folder.parents):
        with suppress(PermissionError):
            if is_store(parent):
                raise InputError(
                    f"{path}: would lie inside the store {parent}: choose a path outside it",
                    path=path,
                )


def is_inside_folder(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies in it, with all links followed."""
    inner, outer = _resolve_links(path), _resolve_links(folder)
    return inner is not None and outer is not None and inner.is_relative_to(outer)


def _resolve_links(path: Path) -> Path | None:
    """Follow all links; None if they form a circle, or cannot be followed."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return None


@contextmanager
def sorting_folder(target: Path) -> Iterator[Path]:
    """Yield a folder for the files of a sort.

    The next build of the target removes a folder that a killed process has left.
    """
    with (
        translate_refusals(target.parent),
        temporary_folder(target.parent, temporary_prefix(target)) as folder,
    ):
        yield folder
