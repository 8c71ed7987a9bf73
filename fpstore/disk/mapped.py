"""Files of a store that are only read, in parts or in memory.

Pages as they are used, all at once, or copied into huge pages.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path
from weakref import finalize

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes
from fpstore.disk.files import RUN_REPAIR, close_file, open_file, read_at
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import CorruptStoreError, MemoryLimitError

LAZY, POPULATED, HUGE = PAGES = ("lazy", "populated", "huge")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Linux 5.14; the module has the name from Python 3.14 on
POPULATE_READ = getattr(mmap, "MADV_POPULATE_READ", 22)
SMALL = 1 << 22  # smaller arrays are made and dropped too often to be worth a mapping each
PIECE = 64 << 20  # bytes between which an interrupt is noticed


class StoredFile:
    """An open file, which is closed with this object.

    What need not be mapped is read with ``pread``: the mapping of a file that shrinks could end the
    process. ``file_bytes`` is what its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_file(path)
        finalize(self, close_file, self._descriptor)
        self.size = os.fstat(self._descriptor).st_size
        self.file_bytes = self.size
        self._bytes: Bytes | None = None  # mapped for probes
        if not self.size:
            raise CorruptStoreError(f"{path}: the file is empty", path=path)

    def start(self) -> Bytes:
        """Return the bytes of the header.

        They are read before the file is mapped: a header that cannot be read is an error so, not a
        signal.
        """
        return np.frombuffer(
            read_at(self._descriptor, self.path, 0, _kernel.HEADER_BYTES), np.uint8
        )

    def fileno(self) -> int:
        return self._descriptor

    def read_padded(self, at: int, count: int, room: int = 0) -> Bytes:
        """Return bytes of the file, with some zeros behind them.

        CorruptStoreError if the file ends before.
        """
        data = read_at(self._descriptor, self.path, at, count)
        if len(data) < count:
            end = at + len(data)
            raise CorruptStoreError(
                f"{self.path}: cut short at byte {end}: {RUN_REPAIR}", path=self.path, got=end
            )
        return np.frombuffer(data + bytes(room), np.uint8)

    def map_for_probes(self, pages: str) -> Bytes:
        """Return the bytes of the file for probes, which read a few pages.

        For ``pages`` see :func:`fpstore.open`.
        """
        self._bytes = _map(self.path, self._descriptor, pages, mmap.MADV_RANDOM)
        return self._bytes

    def map_for_scans(self) -> Bytes:
        """Return the bytes through a separate mapping, for which the system reads ahead."""
        return _map(self.path, self._descriptor, LAZY, mmap.MADV_NORMAL)

    def map_cached_pages(self) -> None:
        """Map the pages of :meth:`map_for_probes` in the page cache, so that probes do not fault.

        It maps pieces of 64 MiB, if all of their pages are there. It does nothing where the system
        does not report cached pages: before Linux 6.5, and for files that the user may neither own
        nor write.
        """
        if self._bytes is not None:
            for start in range(0, len(self._bytes), PIECE):
                _kernel.map_cached_pages(
                    self._descriptor, self._bytes, start, min(PIECE, len(self._bytes) - start)
                )

    def check_size(self) -> None:
        """Refuse a file that has become shorter or longer since it was opened."""
        size, expected = os.fstat(self._descriptor).st_size, self.file_bytes
        if size != expected:
            raise CorruptStoreError(
                f"{self.path}: the file has {size} bytes, its header says {expected}: {RUN_REPAIR}",
                path=self.path,
                expected=expected,
                got=size,
            )


def page_aligned(size: int) -> Bytes:
    """Return memory that begins with a page.

    From :data:`SMALL` bytes on it is a mapping of its own.

    The system gets that back as soon as it is dropped, where the allocator of the process would
    keep some of it. NumPy also asks for large pages for its arrays, which are slow to touch for the
    first time where a hypervisor takes free memory back.
    """
    if size < SMALL:
        memory = np.empty(size + PAGE_BYTES, np.uint8)
        start = -memory.ctypes.data % PAGE_BYTES
        return memory[start : start + size]
    return np.frombuffer(_anonymous_mapping(size), np.uint8)


def _anonymous_mapping(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryLimitError(f"out of memory: no room for {size} bytes") from error


def _populate(mapped: mmap.mmap) -> None:
    for start in range(0, len(mapped), PIECE):
        end = min(start + PIECE, len(mapped))
        try:
            mapped.madvise(POPULATE_READ, start, end - start)
        except OSError:
            # an older system, or a page that cannot be read: its probe gets the error
            mapped.madvise(mmap.MADV_WILLNEED, start, end - start)


def _copy(path: Path, descriptor: int) -> Bytes:
    """Copy a file into anonymous memory, in pages of 2 MiB where the system gives them."""
    size = os.fstat(descriptor).st_size
    with translate_refusals(path):
        memory = _anonymous_mapping(size)
        with suppress(OSError):  # a system without them
            memory.madvise(mmap.MADV_HUGEPAGE)
        if _read_all(descriptor, memoryview(memory)) < size:
            raise CorruptStoreError(f"{path}: the file has become shorter", path=path)
    data = np.frombuffer(memory, np.uint8)
    data.flags.writeable = False
    return data


def _read_all(descriptor: int, view: memoryview) -> int:
    done = 0
    while done < len(view) and (got := os.preadv(descriptor, [view[done : done + PIECE]], done)):
        done += got
    return done


def _map(path: Path, descriptor: int, pages: str, advice: int) -> Bytes:
    """Return the bytes of an open file, read-only; ``advice`` says how they will be read.

    One of the ``MADV_`` of :mod:`mmap`.
    """
    if pages == HUGE:
        return _copy(path, descriptor)
    with translate_refusals(path):
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    mapped.madvise(advice)
    if pages == POPULATED:
        _populate(mapped)
    return np.frombuffer(mapped, np.uint8)
