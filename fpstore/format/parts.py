"""Files of tables and filters that are read in parts with ``pread``: a mapping of a file that shrinks could end the process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar
from weakref import finalize

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Bytes
from fpstore.base.arguments import printable
from fpstore.disk.closing import close_file
from fpstore.disk.files import RUN_REPAIR, open_file, read_at
from fpstore.errors import CorruptStoreError

Parts = TypeVar("Parts", _kernel.TableParts, _kernel.ColumnParts, _kernel.Filter)


class FileInParts(Generic[Parts]):
    """An open file with a checked header.

    Parameters
    ----------
    path : Path
    parts : callable
        Checks (header, size of the file, path), and returns what the header says.
    header : bytes, optional
        A header to use instead of the file's own, which is damaged.
    most : int, optional
        Bytes of the file that are looked at: the size that belongs to that header.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError, StorageError
    """

    def __init__(
        self, path: Path, parts: Callable[[Bytes, int, str], Parts], header: bytes | None = None, most: int | None = None
    ) -> None:
        self.path = path
        self._descriptor = open_file(path)
        finalize(self, close_file, self._descriptor)
        size = os.fstat(self._descriptor).st_size
        size = size if most is None else min(size, most)
        if size == 0:
            raise CorruptStoreError(f"{path}: the file is empty", path=path)
        if header is None:
            header = read_at(self._descriptor, path, 0, _kernel.HEADER_BYTES)
        self.kernel: Parts = parts(np.frombuffer(header, np.uint8), size, printable(path))

    def fileno(self) -> int:
        """Return the descriptor, which is closed with this object."""
        return self._descriptor

    def check_size(self) -> None:
        """Refuse a file that has become shorter or longer since it was opened.

        Raises
        ------
        CorruptStoreError
        """
        size, expected = os.fstat(self._descriptor).st_size, self.kernel.file_bytes
        if size != expected:
            raise CorruptStoreError(
                f"{self.path}: the file has {size} bytes, its header says {expected}: {RUN_REPAIR}",
                path=self.path, expected=expected, got=size,
            )  # fmt: skip
