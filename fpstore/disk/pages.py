"""How a file that is only read gets into memory: its pages as they are used, all at once, or copied into huge pages."""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.disk.files import read_all
from fpstore.disk.refusals import refusing
from fpstore.errors import CorruptStoreError, MemoryLimitError

LAZY, POPULATED, HUGE = PAGES = ("lazy", "populated", "huge")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
POPULATE_READ = getattr(mmap, "MADV_POPULATE_READ", 22)  # Linux 5.14; the module has the name from Python 3.14 on
SMALL = 1 << 22  # smaller arrays are made and dropped too often to be worth a mapping each
PIECE = 64 << 20  # bytes between which an interrupt is noticed

Bytes = npt.NDArray[np.uint8]


def in_memory(path: Path, descriptor: int, pages: str, advice: int) -> Bytes:
    """Return the bytes of an open file, read-only.

    Parameters
    ----------
    path : Path
        Of the file, for messages.
    descriptor : int
    pages : {"lazy", "populated", "huge"}
        See :func:`fpstore.open`.
    advice : int
        How a mapping will be read, one of the ``MADV_`` of :mod:`mmap`.

    Raises
    ------
    CorruptStoreError, StorageError
    """
    if pages == HUGE:
        return _copied(path, descriptor)
    with refusing(path):
        mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    mapped.madvise(advice)
    if pages == POPULATED:
        _populate(mapped)
    return np.frombuffer(mapped, np.uint8)


def map_cached(descriptor: int, mapping: Bytes) -> None:
    """Map the pages of a file's mapping that are in the page cache, so that probes do not fault for each.

    Of each 64 MiB it maps all pages, or none if one is missing. It does nothing where the system does not tell what is
    there: before Linux 6.5, and for files that the user may neither own nor write.
    """
    for start in range(0, len(mapping), PIECE):
        _kernel.map_cached_pages(descriptor, mapping, start, min(PIECE, len(mapping) - start))


def own_pages(size: int) -> Bytes:
    """Return memory that begins with a page. From :data:`SMALL` bytes on it is a mapping of its own.

    The system gets that back as soon as it is dropped, where the allocator of the process would keep some of it. NumPy also
    asks for large pages for its arrays, which are slow to touch for the first time where a hypervisor takes free memory back.
    """
    if size < SMALL:
        memory = np.empty(size + PAGE_BYTES, np.uint8)
        start = -memory.ctypes.data % PAGE_BYTES
        return memory[start : start + size]
    return np.frombuffer(_mapping(size), np.uint8)


def huge_pages(size: int) -> Bytes:
    """Return zeroed memory of its own mapping, at least one byte, in pages of 2 MiB where the system gives them."""
    memory = _mapping(size)
    with suppress(OSError):  # a system without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _mapping(size: int) -> mmap.mmap:
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
        except OSError:  # an older system, or a page that cannot be read: whoever probes it will be told
            mapped.madvise(mmap.MADV_WILLNEED, start, end - start)


def _copied(path: Path, descriptor: int) -> Bytes:
    size = os.fstat(descriptor).st_size
    with refusing(path):
        memory = huge_pages(size)
        if read_all(descriptor, memory.data, 0) < size:
            raise CorruptStoreError(f"{path}: the file has become shorter", path=path)
    memory.flags.writeable = False
    return memory
