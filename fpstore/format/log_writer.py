"""Appending to the log of a generation; docs/format.md ("Log") is normative."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import xxhash

from fpstore.disk.files import open_descriptor, read_at, write_all, write_anew
from fpstore.disk.refusals import (
    NOTHING_CHANGED,
    is_system_error,
    refusal_error,
    translate_refusals,
)
from fpstore.errors import CorruptStoreError, FormatVersionError, StorageError, StoreNotFoundError
from fpstore.format.log import (
    ALIGN,
    BOOT,
    END,
    HEADER_BYTES,
    LOG_PIECE_BYTES,
    RECORD,
    RECORD_HEAD_BYTES,
    RECORD_MAGIC,
    SUPERSEDED,
    WORDS_AT,
    LogHeader,
    OpenLog,
    Records,
    boot_word,
    end_word,
    parse_header,
    published_end,
)

MIN_STEP, MAX_STEP = 1 << 16, 1 << 24  # bytes of space that are allocated ahead
_NOT_FORCED = -1  # no place in a log
_DSYNC: int = getattr(os, "RWF_DSYNC", 0)
# errors of a system that does not have the flag
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def create_log(path: Path, header: LogHeader) -> None:
    """Write an empty, durable log; the caller makes its name durable."""
    words = struct.pack("<QQ", end_word(HEADER_BYTES), boot_word())
    write_anew(path, (header.pack().ljust(WORDS_AT, b"\0") + words).ljust(HEADER_BYTES, b"\0"))


class LogWriter(OpenLog):
    """A log, open for appending by the process that holds the writer's lock.

    Opening it makes it end with its last whole record: a torn tail is cut off, and what was durable
    and never published is kept. ``number`` is the number of the last record, ``place`` the end of
    what was appended, ``durable`` the end of what is durable and published.
    """

    def __init__(self, path: Path, header: LogHeader) -> None:
        super().__init__(path, header, writable=True)
        self._seed = header.seed
        # a half-written record could not be taken back; the next record tries again
        self._failed = False
        # a sync has failed, and the system may have dropped the pages that it could not write
        self._unsure = False
        self._step = MIN_STEP  # bytes of space to allocate ahead next
        self._flag = 0  # SUPERSEDED, once another generation is announced
        try:
            published = published_end(self.word, path)
            self.place, self.number = HEADER_BYTES, 0
            for records in self.whole_records(HEADER_BYTES, 1, os.fstat(self.descriptor).st_size):
                self.place, self.number = records.end, records.last
            self.check_tail(self.place, published)
            # remains of a record that was never published must not be taken for one later
            with translate_refusals(path):
                os.ftruncate(self.descriptor, self.place)
                os.fsync(self.descriptor)
            self._size = self.place  # of the file, with the space allocated ahead
            # the end of what was written since the last publish, even if it was taken back
            self._furthest = self.place
            self._forced = self.place  # the place of the last sync
            self.publish()
            self.words[BOOT] = boot_word()  # after the end, which is exact from now on
        except BaseException:
            super().close()
            raise

    # Appending

    def append(self, payload: bytes, durable: bool = False) -> None:
        """Write the next record, a packed change, and make it and all before it ``durable``.

        Others see it after :meth:`publish`. If the system refuses the write, nothing was changed;
        the records before it stay, durable or not.
        """
        if self._failed:
            self.take_back(self.place, self.number)
            if self._failed:
                message = (
                    "a record that was half written cannot be taken back; nothing was changed: "
                    "the next change tries again"
                )
                raise StorageError(f"{self.path}: {message}", path=self.path)
        place, number = self.place, self.number
        length = RECORD_HEAD_BYTES + len(payload)
        body = RECORD.pack(length, number + 1, self.durable) + payload
        checksum = xxhash.xxh64_intdigest(body, self._seed ^ place)
        record = b"".join(
            (RECORD_MAGIC, checksum.to_bytes(8, "little"), body, bytes(-length % ALIGN))
        )
        end = place + len(record)
        try:
            if end > self._size:
                self._allocate(end)
            if end > self._furthest:
                self._furthest = end
            if durable and place == self.durable and not self._unsure:
                self._unsure = True
                _write_durably(self.descriptor, record, place)
                self._check_linked()
                self._unsure = False
                self._forced = end
            else:
                write_all(self.descriptor, record, place)
            self.place, self.number = end, number + 1
            if durable:
                self.sync_records()
        except BaseException as error:
            self.take_back(place, number)
            if is_system_error(error):
                raise refusal_error(self.path, error, NOTHING_CHANGED) from error
            raise

    def _allocate(self, end: int) -> None:
        """Write zeros up to a place and, if there is space, some way behind it.

        The next syncs have no metadata to write then.
        """
        try:
            self._write_zeros(end + self._step)
        except OSError:
            self._write_zeros(end)
        self._step = min(2 * self._step, MAX_STEP)

    def _write_zeros(self, end: int) -> None:
        for start in range(self._size, end, MAX_STEP):
            write_all(self.descriptor, bytes(min(MAX_STEP, end - start)), start)
        self._size = max(self._size, end)

    def sync_records(self) -> None:
        """Make the appended records durable; others do not see them yet.

        After StorageError they stay appended: call this again, or :meth:`take_back`.
        """
        if self._forced == self.place:
            return
        try:
            if self._unsure:  # the system drops what it could not write: write it again
                for start in range(self.durable, self._furthest, LOG_PIECE_BYTES):
                    count = min(LOG_PIECE_BYTES, self._furthest - start)
                    write_all(
                        self.descriptor, read_at(self.descriptor, self.path, start, count), start
                    )
            self._unsure = True
            os.fdatasync(self.descriptor)
            if self.place != self.durable:
                self._check_linked()
        except OSError as error:
            raise (
                error if isinstance(error, StorageError) else refusal_error(self.path, error)
            ) from error
        self._unsure = False
        self._forced = self.place

    def _check_linked(self) -> None:
        """Refuse a log whose file was removed: its records would go with the last open file."""
        if not os.fstat(self.descriptor).st_nlink:
            raise StorageError(
                f"{self.path}: was removed or replaced: open the store again", path=self.path
            )

    def publish(self) -> None:
        """Let others see the records that :meth:`sync_records` has made durable."""
        self.durable = self._furthest = self.place
        self.words[END] = end_word(self.durable) | self._flag  # one store of 8 aligned bytes

    def take_back(self, place: int, number: int) -> None:
        """Let the log end at a place behind which no record was acknowledged.

        ``number`` is the number of the record before it. The new end is made durable, at the latest
        before the next record, so that the change does not come back after a power failure.
        """
        self.place, self.number = place, number
        try:
            write_all(self.descriptor, bytes(len(RECORD_MAGIC)), place)
        except OSError:
            self._failed = os.fstat(self.descriptor).st_size > place
            return
        self._failed = False
        self._furthest = max(self._furthest, place + len(RECORD_MAGIC))
        self._size = max(self._size, self._furthest)
        self._forced, self._unsure = _NOT_FORCED, True
        with suppress(OSError):
            self.sync_records()

    def read(self, place: int, number: int, end: int | None = None) -> Iterator[Records]:
        """Yield the records appended from a place on, in pieces, up to ``end``.

        ``number`` is the number of the first record there. By default all are read, which only the
        thread that appends may do.
        """
        end = self.place if end is None else end
        for records in self.whole_records(place, number, end):
            yield self.check_records(records)
            place = records.end
        if place != end:
            raise self.damage_error(place)

    def supersede(self) -> None:
        """Announce another generation to readers, which then look for it at each question."""
        self._flag = SUPERSEDED
        self.words[END] |= SUPERSEDED

    def take_supersede_back(self) -> None:
        """Announce to readers that this generation stays current."""
        self._flag = 0
        self.words[END] &= ~SUPERSEDED

    def close(self) -> None:
        """Close the file, without the space that was allocated ahead. Closing twice is allowed."""
        try:
            if self._closer.alive and self.durable == self.place and not self.word & SUPERSEDED:
                with suppress(OSError):
                    os.ftruncate(self.descriptor, self.place)
                    # the end too: it distinguishes a damaged last record from a torn one
                    os.fdatasync(self.descriptor)
        finally:
            super().close()


def set_end(path: Path, end: int) -> None:
    """Store the end of a copied log, durably."""
    with open_descriptor(path, os.O_RDWR) as descriptor:
        write_all(descriptor, struct.pack("<QQ", end_word(end), boot_word()), WORDS_AT)
        os.fsync(descriptor)


def supersede_log(path: Path) -> None:
    """Mark a log as superseded, so that its readers look for the current generation.

    A log that cannot be written is ignored.
    """
    with (
        suppress(OSError, CorruptStoreError, FormatVersionError, StoreNotFoundError),
        open_descriptor(path, os.O_RDWR) as descriptor,
    ):
        parse_header(read_at(descriptor, path, 0, HEADER_BYTES), path)
        with (
            mmap.mmap(descriptor, HEADER_BYTES) as mapped,
            memoryview(mapped) as view,
            view.cast("Q") as words,
        ):
            words[END] |= SUPERSEDED


def _write_durably(descriptor: int, record: bytes, at: int) -> None:
    """Write a record and wait until it is durable, in one call where the system has one.

    Other dirty pages need not be written.
    """
    done = 0
    if _DSYNC:
        try:
            while done < len(record):
                done += os.pwritev(descriptor, (record[done:],), at + done, _DSYNC)
            return
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
    write_all(descriptor, record[done:], at + done)
    os.fdatasync(descriptor)
