"""Arrays in temporary files, for data that does not fit the memory that an operation may use."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.disk.refusals import refusing


def nameless_file() -> io.FileIO:
    """Return a temporary file without a name, which vanishes when it is closed and no longer mapped.

    Raises
    ------
    StorageError
        There is no folder for temporary files.
    """
    import tempfile

    with refusing("a temporary file"):
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
        assert isinstance(file, io.FileIO)
        return file


def array_on_disk(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an array of zeros in a file that has no name, and vanishes with the array.

    Its disk space is taken at once: a disk that fills later would end the process.

    Raises
    ------
    StorageError
        There is no space, or no folder for temporary files.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return np.empty(shape, dtype)
    with refusing(f"a temporary file of {size:,} bytes"), nameless_file() as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "r+", shape=shape)
