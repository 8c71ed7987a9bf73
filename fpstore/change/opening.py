"""Opening a store for writing."""

from __future__ import annotations

import errno

from fpstore.change.obsolete import start_journal, sweep
from fpstore.change.writer import Writer
from fpstore.disk.locks import WriterLock
from fpstore.disk.refusals import refused
from fpstore.errors import FpstoreError, ReadOnlyError, StoreNotFoundError
from fpstore.query.journal import Journal
from fpstore.query.tracker import Follower


def open_writer(follower: Follower, sync: str, merge_at: float | None, delta_bytes: int) -> Writer:
    """Make this process the store's writer: take the lock, start a journal if there is none, sweep up after a dead writer."""
    path = follower.path
    if follower.journal is not None:
        follower.journal.register()
    try:
        lock = WriterLock(path)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnlyError(f"{path}: cannot be changed ({error.strerror})", path=path) from error
        raise refused(path, error) from error
    try:
        if not follower.is_same():
            raise StoreNotFoundError(f"{path}: was replaced while it was opened: open it again", path=path)
        view = follower.view()
        if follower.journal is None:
            start_journal(view, delta_bytes)
            follower.resolve()
            view = follower.view()
        journal = _settled(follower)
        view = follower.view()
        follower.switch(view, journal)
        sweep(path, view.generation.record["number"])
        journal.remove_dead_readers()
        follower.lead()
        return Writer(follower, lock, sync, merge_at, delta_bytes)
    except BaseException as error:
        lock.release()
        if isinstance(error, OSError) and not isinstance(error, FpstoreError):
            raise refused(path, error, "; nothing was changed") from error
        raise


def _settled(follower: Follower) -> Journal:
    """Open the current journal for writing, after a last transaction of a dead writer, which may be that of a merge."""
    while True:
        assert follower.journal is not None
        journal = Journal(follower.journal.path, writable=True)
        journal.recover()
        follower.view()
        if follower.journal.path == journal.path:
            return journal
        journal.close()
