"""Backups: a copy of a store in use that holds exactly what the store held at one moment."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from fpstore.building.target import Target, lies_inside
from fpstore.disk.files import read_at
from fpstore.disk.locks import LOCK_FILE
from fpstore.disk.refusals import refused
from fpstore.disk.seal import opened_seal
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.format import layout
from fpstore.query.generation import Generation
from fpstore.query.journal import MOST_NUMBER, Journal, lock_path
from fpstore.query.tracker import Follower

Progress = Callable[[str, int, int | None], None]
PHASE_COPY = "copying"
COPY_BYTES = 1 << 24  # at a time
ATTEMPTS = 100
PAUSE_SECONDS = 0.01
# What a file system answers that cannot copy within the kernel, or not between these two files, or cannot read one of them.
_NO_COPY_RANGE = (errno.EIO, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY)


class _MovedError(Exception):
    """A merge has made another generation current."""


def back_up(follower: Follower, path: Path, overwrite: bool, progress: Progress | None) -> None:
    """Copy what a store holds at one moment to ``path``; it appears complete, or not at all.

    Raises
    ------
    InputError, StoreExistsError, StorageError, StoreNotFoundError, CorruptStoreError
    """
    if lies_inside(path, follower.path):
        raise InputError(f"{path}: a backup cannot lie inside the store itself: choose a path outside it", path=path)
    for attempt in range(ATTEMPTS):
        generation = follower.view().generation
        with ExitStack() as opened:
            try:
                files = _open_files(follower, generation, opened)
            except StoreNotFoundError:
                # A merge removes the generation before: look again, unless it is the one that is current.
                if follower.view().generation is generation and attempt > 1:
                    raise
                time.sleep(PAUSE_SECONDS)
                continue
            with suppress(_MovedError):
                _copy(follower, generation, files, path, overwrite, progress)
                return
        time.sleep(PAUSE_SECONDS)
    raise CorruptStoreError(f"{follower.path}: the current generation could not be found", path=follower.path)


def _open_files(follower: Follower, generation: Generation, opened: ExitStack) -> dict[str, int]:
    """Open all files of a store that do not change, so that they can be read whatever is merged; return their descriptors."""
    folder = generation.folder.name
    names = [layout.table_name(table) for table in range(len(generation.design.tables))] + [layout.IDS_FILE]
    if generation.record.get("names_file"):
        names.append(layout.NAMES_FILE)
    files = {}
    for name in (layout.STORE_FILE, *(f"{folder}/{name}" for name in names)):
        file = follower.path / name
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            _check_same(follower)
            raise StoreNotFoundError(f"{file}: missing ({error.strerror})", path=file) from error
        except OSError as error:
            raise refused(file, error) from error
        opened.callback(os.close, descriptor)
        files[name] = descriptor
    _check_same(follower)
    _check_whole(follower, generation, files)
    return files


def _check_whole(follower: Follower, generation: Generation, files: dict[str, int]) -> None:
    """Refuse to copy a file that has become shorter; nothing is read through a mapping, which would end the process."""
    for table in generation.tables:
        table.file.check_size()
    for name, descriptor in files.items():
        if name.endswith(".mdb"):
            opened_seal(follower.path / name, descriptor)


def _check_same(follower: Follower) -> None:
    if not follower.is_same():
        raise StoreNotFoundError(f"{follower.path}: was replaced since it was opened: open it again", path=follower.path)


def _copy(
    follower: Follower, generation: Generation, files: dict[str, int], path: Path, overwrite: bool, progress: Progress | None
) -> None:
    total, done = sum(os.fstat(descriptor).st_size for descriptor in files.values()), 0
    with Target(path, overwrite) as folder:
        (folder / generation.folder.name).mkdir()
        # What is copied of the journal says which moment this is; all else was the same before and is so afterwards.
        if not _copy_journal(generation, folder) and follower.view().generation is not generation:
            raise _MovedError
        for name, descriptor in files.items():
            for copied in copy_file(follower.path / name, descriptor, folder / name):
                done += copied
                if progress is not None:
                    progress(PHASE_COPY, done, total)


def _copy_journal(generation: Generation, folder: Path) -> bool:
    """Copy the journal as it is at one moment, if there is one, and return whether there is."""
    source = generation.folder / layout.JOURNAL_FILE
    if not source.exists():
        return False
    target = folder / generation.folder.name / layout.JOURNAL_FILE
    try:
        journal = Journal(source)
    except StoreNotFoundError:
        raise _MovedError from None
    try:
        journal.copy(target)
    finally:
        journal.close()
    copied = Journal(target)
    try:
        if copied.read(MOST_NUMBER).moved is not None:
            raise _MovedError
    finally:
        copied.close()
        lock_path(target).unlink(missing_ok=True)
    (folder / LOCK_FILE).touch()  # a reader that may not write into the folder needs it
    return True


def copy_file(path: Path, source: int, target: Path) -> Iterator[int]:
    """Copy an open file to a new one, holes as holes, and make that durable; yield how many bytes each step has copied.

    Raises
    ------
    CorruptStoreError
        A place of the file cannot be read, or it becomes shorter meanwhile.
    """
    size = os.fstat(source).st_size
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(descriptor, size)
        done = 0
        for start, end in _data(source, size):
            at = start
            while at < end:
                copied = _copy_some(path, source, descriptor, at, min(end - at, COPY_BYTES))
                if not copied:
                    raise CorruptStoreError(f"{path}: became shorter than {at} bytes while it was copied", path=path, got=at)
                at += copied
                yield at - done
                done = at
        os.fsync(descriptor)
        if done < size:
            yield size - done
    finally:
        os.close(descriptor)


def _data(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that are no holes."""
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            yield end, size  # the file system does not tell
            return
        end = os.lseek(source, start, os.SEEK_HOLE)
        yield start, end


def _copy_some(path: Path, source: int, target: int, at: int, count: int) -> int:
    try:
        return os.copy_file_range(source, target, count, at, at)
    except OSError as error:
        if error.errno not in _NO_COPY_RANGE:
            raise
    # Reading tells whether it was the source that failed, and where.
    data = memoryview(read_at(source, path, at, count))
    written = 0
    while written < len(data):
        written += os.pwrite(target, data[written:], at + written)
    return written
