"""Backups: exact copies of a store in use, as of one moment."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from fpstore.base.aliases import Progress
from fpstore.building.generation_writer import finish_store
from fpstore.building.target import Target, is_inside_folder
from fpstore.disk.files import (
    data_ranges,
    missing_error,
    open_file,
    open_folder,
    read_at,
    write_all,
)
from fpstore.disk.refusals import refusal_error
from fpstore.disk.sealed import open_seal
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.filter import filter_name
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE, LogFile, LogHeader
from fpstore.format.log_writer import set_end
from fpstore.format.mapping import IDS_FILE, PLACES_FILES
from fpstore.query.generation import Generation
from fpstore.query.tracker import Tracker

PHASE_COPY = "copying"
COPY_BYTES = 1 << 24  # at a time
ATTEMPTS = 100
PAUSE_SECONDS = 0.01
# The errors of a file system that cannot copy within the kernel, or between two files, or that
# cannot read one of them.
_NO_COPY_RANGE = (
    errno.EIO,
    errno.ENOSYS,
    errno.EXDEV,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EBADF,
    errno.EPERM,
    errno.ETXTBSY,
)


def back_up(tracker: Tracker, path: Path, overwrite: bool, progress: Progress | None) -> None:
    """Copy a store to ``path`` as of one moment; the copy appears complete or not at all."""
    if is_inside_folder(path, tracker.path):
        raise InputError(
            f"{path}: a backup cannot lie inside the store itself: choose a path outside it",
            path=path,
        )
    for attempt in range(ATTEMPTS):
        generation = tracker.snapshot().generation
        with ExitStack() as stack:
            try:
                files = _open_files(generation, tracker.folder, stack)
            except StoreNotFoundError:
                tracker.check_not_replaced()
                # A merge removes the generation before: try again, unless this one is current.
                if tracker.snapshot().generation is generation and attempt > 1:
                    raise
                time.sleep(PAUSE_SECONDS)
                continue
            _copy(generation, files, path, overwrite, progress)
            return
    raise CorruptStoreError(
        f"{tracker.path}: the current generation could not be found", path=tracker.path
    )


def _open_files(generation: Generation, store: int, stack: ExitStack) -> dict[str, int]:
    """Return descriptors of all files of a generation, which a merge then cannot take away.

    ``store`` is the descriptor of the store's folder.
    """
    try:
        folder = open_folder(generation.folder, parent=store)
    except FileNotFoundError as error:
        raise missing_error(generation.folder) from error
    except OSError as error:
        raise refusal_error(generation.folder, error) from error
    stack.callback(os.close, folder)
    files: dict[str, int] = {}

    def take(name: str) -> None:
        files[name] = open_file(generation.folder / name, folder=folder)
        stack.callback(os.close, files[name])

    tables, dictionary = generation.tables, generation.dictionary
    for name in (
        *map(table_name, range(len(tables))),
        IDS_FILE,
        LOG_FILE,
        *(DICTIONARY_FILES if dictionary is not None else ()),
        *(PLACES_FILES if generation.places is not None else ()),
    ):
        take(name)
    # A file that has become shorter is refused; nothing is read through a mapping, which could end
    # the process.
    for table in (*tables, *(() if dictionary is None else (dictionary.mapping.table,))):
        table.check_size()
    for name, descriptor in files.items():
        if name.endswith(".mdb"):
            open_seal(generation.folder / name, descriptor)
    for number, reader in generation.sound_filters.items():
        with suppress(CorruptStoreError, StoreNotFoundError):  # a store is right without a filter
            reader.check_size()
            take(filter_name(number))
    return files


def _copy(
    generation: Generation,
    files: dict[str, int],
    path: Path,
    overwrite: bool,
    progress: Progress | None,
) -> None:
    manifest, log_file = generation.manifest, generation.folder / LOG_FILE
    report = progress or (lambda *_: None)
    with Target(path, overwrite) as folder:
        target = folder / generation.folder.name
        target.mkdir()
        # The copied part of the log decides the moment; the other files never change.
        end = LogFile(files[LOG_FILE], log_file, LogHeader.from_manifest(manifest)).durable_end()
        sizes = {
            name: os.fstat(descriptor).st_size if name != LOG_FILE else end
            for name, descriptor in files.items()
        }
        done, total = 0, sum(sizes.values())
        for name, descriptor in files.items():
            for copied in copy_file(
                generation.folder / name, descriptor, target / name, sizes[name]
            ):
                done += copied
                report(PHASE_COPY, done, total)
        set_end(target / LOG_FILE, end)
        filters = sorted(table for table in generation.filters if filter_name(table) in files)
        finish_store(
            folder, manifest._replace(generation=manifest.generation._replace(filters=filters))
        )


def copy_file(path: Path, source: int, target: Path, size: int) -> Iterator[int]:
    """Copy the start of an open file durably to a new one, holes as holes.

    Yield the number of bytes of each step.
    """
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        os.ftruncate(descriptor, size)
        done = 0
        for end in _copy_data(path, source, descriptor, size):
            yield end - done
            done = end
        os.fsync(descriptor)
        if done < size:
            yield size - done
    finally:
        os.close(descriptor)


def _copy_data(path: Path, source: int, target: int, size: int) -> Iterator[int]:
    for at, end in data_ranges(source, size):
        while at < end:
            count = min(end - at, COPY_BYTES)
            try:
                copied = os.copy_file_range(source, target, count, at, at)
            except OSError as error:
                if error.errno not in _NO_COPY_RANGE:
                    raise
                # Reading shows whether the source has failed, and where.
                data = read_at(source, path, at, count)
                write_all(target, data, at)
                copied = len(data)
            if not copied:
                raise CorruptStoreError(
                    f"{path}: became shorter than {at} bytes while it was copied", path=path, got=at
                )
            at += copied
            yield at
