"""Opening a store for writing."""

from __future__ import annotations

import errno
from contextlib import suppress
from functools import partial

from fpstore.base.arguments import check_choice, check_share, check_sync
from fpstore.base.diagnostics import logger
from fpstore.base.threads import Worker
from fpstore.change.obsolete import remove_obsolete
from fpstore.change.writer import StoreWriter
from fpstore.disk.folders import sync_folder
from fpstore.disk.locks import LOCK_FILE, WriterLock
from fpstore.disk.refusals import NOTHING_CHANGED, is_of_the_system, refused
from fpstore.errors import FpstoreError, InputError, ReadOnlyError, StoreNotFoundError
from fpstore.format.log import HEADER_BYTES, LOG_FILE, LogHeader
from fpstore.format.log_writer import LogWriter
from fpstore.query.tracker import Tracker


def check_opening(mode: str, sync: str, merge_at: float | None) -> float | None:
    """Return ``merge_at``; InputError if a store cannot be opened with these."""
    check_choice(mode, ("r", "r+"), "mode")
    check_sync(sync)
    merge_at = check_share(merge_at, "merge_at")
    for name, given in {"sync": sync != "commit", "merge_at": merge_at is not None}.items():
        if given and mode == "r":
            raise InputError(f"{name} is for changing a store: open it with mode='r+', or leave {name} out")
    return merge_at


def open_writer(tracker: Tracker, sync: str, merge_at: float | None) -> StoreWriter:
    """Make this process the store's writer: take the lock, remove what a dead writer left, cut off a torn end of the log.

    Raises
    ------
    StoreLockedError, ReadOnlyError, StorageError, CorruptStoreError
    """
    path = tracker.path
    try:
        lock = WriterLock(tracker.here())
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnlyError(f"{path}: cannot be changed ({LOCK_FILE}: {error.strerror})", path=path) from error
        raise error if isinstance(error, FpstoreError) else refused(path, error) from error
    log = None
    try:
        if not tracker.is_same():
            raise StoreNotFoundError(f"{path}: was replaced while it was opened: open it again", path=path)
        generation = tracker.snapshot().generation
        manifest = tracker.manifest
        here = tracker.here()
        sync_folder(here)  # a writer that was killed may not have: what is current now stays current
        remove_obsolete(here, manifest.generation.number)
        before = tracker.log.told
        log = LogWriter(here / generation.folder.name / LOG_FILE, LogHeader.of(manifest))
        if log.durable != before:
            logger().warning("%s: a writer died: log recovered up to byte %d; published were %d", path, log.durable, before)
        # Only now are the records known that a writer logged before it died without publishing them.
        tracker.adopt(manifest, generation, tracker.log, log.read(HEADER_BYTES, 1))
        return StoreWriter(tracker, lock, log, sync, merge_at)
    except BaseException as error:
        if log is not None:
            log.close()
        lock.release()
        if is_of_the_system(error):
            raise refused(path, error, NOTHING_CHANGED) from error
        raise


def close_dropped(writer: StoreWriter) -> None:
    """Close the writer of a store that was dropped, or left open at the end of the interpreter."""
    with suppress(FpstoreError, RuntimeError):  # a finalizer has no caller to report to; there may be no more threads
        if writer.is_own and writer.is_nested(waits_for_merge=True):  # the garbage collector runs inside one of them
            Worker(partial(close_dropped, writer)).start()
        else:
            writer.close()
