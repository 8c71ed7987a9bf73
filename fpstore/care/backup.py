"""Backups: a copy of a store in use that holds exactly what the store held at one moment."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from fpstore.building.generation_writer import finish_copy
from fpstore.building.target import Target, lies_inside
from fpstore.disk.files import read_at
from fpstore.disk.refusals import refused
from fpstore.disk.seal import opened_seal
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.format.id_map import IDS_FILE
from fpstore.format.log import LOG_FILE, log_end
from fpstore.format.log_writer import set_end
from fpstore.format.strings import STRINGS_FILE
from fpstore.format.table import table_name
from fpstore.query.generation import Generation
from fpstore.query.tracker import Tracker

Progress = Callable[[str, int, int | None], None]
PHASE_COPY = "copying"
COPY_BYTES = 1 << 24  # at a time
ATTEMPTS = 100
PAUSE_SECONDS = 0.01
# What a file system answers that cannot copy within the kernel, or not between these two files, or cannot read one of them.
_NO_COPY_RANGE = (errno.EIO, errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM, errno.ETXTBSY)


def back_up(tracker: Tracker, path: Path, overwrite: bool, progress: Progress | None) -> None:
    """Copy what a store holds at one moment to ``path``; it appears complete, or not at all.

    Raises
    ------
    InputError, StoreExistsError, StorageError, StoreNotFoundError, CorruptStoreError
    """
    if lies_inside(path, tracker.path):
        raise InputError(f"{path}: a backup cannot lie inside the store itself: choose a path outside it", path=path)
    for attempt in range(ATTEMPTS):
        generation = tracker.snapshot().generation
        with ExitStack() as opened:
            try:
                files = _open_files(tracker.here() / generation.folder.name, generation, opened)
            except StoreNotFoundError:
                # A merge removes the generation before: look again, unless it is the one that is current.
                if tracker.snapshot().generation is generation and attempt > 1:
                    raise
                time.sleep(PAUSE_SECONDS)
                continue
            _copy(generation, files, path, overwrite, progress)
            return
    raise CorruptStoreError(f"{tracker.path}: the current generation could not be found", path=tracker.path)


def _open_files(folder: Path, generation: Generation, opened: ExitStack) -> dict[str, int]:
    """Open all files of a generation, so that they can be read whatever is merged; return their descriptors."""
    names = [table_name(table) for table in range(len(generation.design.tables))] + [IDS_FILE, LOG_FILE]
    if generation.strings is not None:
        names.append(STRINGS_FILE)
    files = {}
    for name in names:
        file = folder / name
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise StoreNotFoundError(f"{file}: missing ({error.strerror})", path=file) from error
        except OSError as error:
            raise refused(file, error) from error
        opened.callback(os.close, descriptor)
        files[name] = descriptor
    _check_whole(generation, files)
    return files


def _check_whole(generation: Generation, files: dict[str, int]) -> None:
    """Refuse to copy a file that has become shorter; nothing is read through a mapping, which would end the process."""
    for table in generation.tables:
        table.file.check_size()
    for name, descriptor in files.items():
        if name.endswith(".mdb"):
            opened_seal(generation.folder / name, descriptor)


def _copy(generation: Generation, files: dict[str, int], path: Path, overwrite: bool, progress: Progress | None) -> None:
    manifest, log_file = generation.manifest, generation.folder / LOG_FILE
    with Target(path, overwrite) as folder:
        target = folder / generation.folder.name
        target.mkdir()
        # What is copied of the log says which moment this is; all else never changes.
        end = log_end(files[LOG_FILE], log_file, manifest.identity, generation.record.number)
        sizes = {name: os.fstat(descriptor).st_size if name != LOG_FILE else end for name, descriptor in files.items()}
        done, total = 0, sum(sizes.values())
        for name, descriptor in files.items():
            for copied in copy_file(generation.folder / name, descriptor, target / name, sizes[name]):
                done += copied
                if progress is not None:
                    progress(PHASE_COPY, done, total)
        set_end(target / LOG_FILE, end)
        finish_copy(folder, manifest)


def copy_file(path: Path, source: int, target: Path, size: int) -> Iterator[int]:
    """Copy so much of an open file to a new one, holes as holes, and make that durable; yield how many bytes each step has copied.

    Raises
    ------
    CorruptStoreError
        A place of the file cannot be read, or it becomes shorter meanwhile.
    """
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
