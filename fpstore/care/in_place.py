"""Replacing a store by a new one, keeping the old one beside it, and keeping writers away meanwhile."""

from __future__ import annotations

import fcntl
import itertools
import os
from contextlib import suppress
from pathlib import Path

from fpstore.disk.files import open_file, read_at, write_all
from fpstore.disk.folders import ASIDE, exchange, remove_tree, short_name, sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock, process_name
from fpstore.disk.refusals import NOTHING_CHANGED, refusing
from fpstore.errors import CorruptStoreError, FpstoreError, StoreExistsError, StoreLockedError, StoreNotFoundError
from fpstore.format.manifest import IDENTITY_BYTES, read_manifest

MARKER = "made-by-fpstore-repair"
NUMBER_ROOM = 8  # bytes of a name for a number behind it


def free_name(path: Path, ending: str, suffix: str = "") -> Path:
    """Return the first name beside a path that is free: without a number, or numbered from 2 on."""
    return names_to_free(path, ending, suffix)[-1]


def names_to_free(path: Path, ending: str, suffix: str = "") -> list[Path]:
    """Return the names beside a path that are taken, in order, and the first that is free."""
    name, names = short_name(path.name, len(ending) + len(suffix) + NUMBER_ROOM), []
    for number in itertools.count(1):
        names.append(path.with_name(f"{name}{ending}{'' if number == 1 else f'-{number}'}{suffix}"))
        if not (names[-1].exists() or names[-1].is_symlink()):
            break
    return names


def take_lock(path: Path) -> WriterLock:
    """Become a store's single writer.

    Raises
    ------
    StoreLockedError, StorageError
    """
    with refusing(path, NOTHING_CHANGED):
        return WriterLock(path)


def keep_still(path: Path) -> int | None:
    """Keep writers away without changing a byte; return the descriptor of the lock, or None if there is no lock file.

    Raises
    ------
    StoreLockedError
        The store has a writer.
    StorageError
    """
    try:
        descriptor = open_file(path / LOCK_FILE, of_user=True)
    except (StoreNotFoundError, CorruptStoreError):  # without a lock there is no writer
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StoreLockedError(
            f"{path}: {process_name(holder)} has it open for writing: close it there first", path=path, got=holder
        ) from None
    return descriptor


class InPlace:
    """The folder beside a store in which a repair in place writes the new one, and from where it exchanges the two.

    A file in it says that a repair has made it, and, before the exchange, which store is the new one. So the next repair knows
    what one that was killed has left: half of a new store, which goes, or the damaged store, which is kept. That file is the
    first thing in the folder, and the last to go: an empty folder is of a repair too.

    Parameters
    ----------
    path : Path
        The store. The caller has its lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = path.with_name(f".{short_name(path.name, NUMBER_ROOM + len('..repairing'))}.repairing")
        self.target = self._folder / "store"
        self._marker = self._folder / MARKER
        self._lock = -1

    def take_up(self) -> Path | None:
        """Bring to its end what a repair that was killed has left; return where the damaged store is now, if it was there.

        Raises
        ------
        StoreLockedError
            That repair is at work.
        """
        if self._folder.is_symlink() or self._marker.is_symlink() or not self._marker.is_file():
            with suppress(OSError):  # unless it is empty
                self._folder.rmdir()
            return None
        with refusing(self._path):
            self._take_lock()
            damaged = self._damaged()
            aside = None if damaged is None else self._put_aside(damaged)
            self.close()
        return aside

    def _damaged(self) -> Path | None:
        """Return where the damaged store lies in the folder, if it does."""
        aside = self._folder / f"{self.target.name}{ASIDE}"
        if aside.is_dir():
            return aside
        return self.target if self.target.is_dir() and not self._is_new() else None

    def _put_aside(self, damaged: Path) -> Path:
        # Without a store a repair was killed between two renames, where folders cannot be exchanged in one step.
        aside = free_name(self._path, ".damaged") if self._path.exists() else self._path
        damaged.rename(aside)
        sync_folder(self._path.parent)
        return aside

    def _is_new(self) -> bool:
        """Whether the store in the folder is the new one: before the exchange it is noted which that is."""
        noted = read_at(self._lock, self._marker, 0, 4 * IDENTITY_BYTES)
        try:
            return not noted or read_manifest(self.target).identity.hex() == noted.decode("ascii", "replace")
        except FpstoreError:
            return False

    def begin(self) -> None:
        """Make the folder.

        Raises
        ------
        StoreExistsError
            There is one that no repair has made.
        StorageError
        """
        if self._folder.exists() or self._folder.is_symlink():
            raise StoreExistsError(
                f"{self._folder} exists, and no repair has made it: move it away, or repair to another path (output, -o)",
                path=self._folder,
            )
        with refusing(self._path):
            self._folder.mkdir()
            self._marker.touch()
            self._take_lock()

    def _take_lock(self) -> None:
        self._lock = open_file(self._marker, os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = -1
            raise StoreLockedError(
                f"{self._path}: another process repairs it: wait until it has ended", path=self._path
            ) from None

    def swap(self) -> Path:
        """Put the new store in place of the damaged one, and return where that one is kept."""
        with refusing(self._path):
            write_all(self._lock, read_manifest(self.target).identity.hex().encode(), 0)
            os.fsync(self._lock)
            sync_folder(self._folder)
            exchange(self.target, self._path)
            return self._put_aside(self.target)

    def close(self) -> None:
        """Remove the folder, if this process has made it or taken it up, unless the damaged store is still in it."""
        if self._lock >= 0:
            if self._damaged() is None:
                with suppress(OSError):
                    self._remove()
            os.close(self._lock)
            self._lock = -1

    def _remove(self) -> None:
        os.ftruncate(self._lock, 0)  # without a note, a store in the folder is the new one, of which half may be left
        for path in self._folder.iterdir():
            if path != self._marker:
                remove_tree(path)
        if len(list(self._folder.iterdir())) == 1:
            self._marker.unlink()
            self._folder.rmdir()
