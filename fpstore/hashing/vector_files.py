"""Files of vectors as fingerprints and ids, for building stores and for asking them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Any

import numpy as np

from fpstore.base.arguments import check_path, check_whole, is_iterable
from fpstore.base.width import Width
from fpstore.errors import InputError, show
from fpstore.hashing.vector_base import Array, VectorFingerprinter
from fpstore.io.source import Chunk, IdRule, Ids, IdType, located
from fpstore.io.vectors import VectorFile, open_vectors

Notice = Callable[[str, int], object]


def _nobody(path: str, number: int) -> None:
    """Ignore a vector without a fingerprint."""


class VectorReader:
    """Files of vectors as chunks of fingerprints and ids: a reader like those of `fpstore.io`, for building a store.

    Each iteration reads the files again, in pieces: memory does not grow with them.

    Parameters
    ----------
    paths : path or iterable of paths
        ``.npy`` files with an array of shape (n, dimension), and ``.parquet`` files with a column of lists.
    fingerprinter : HyperplaneHash, BitSample, Unary
        Or a function that makes one from the dimension of the first file.
    vector_field, id_field : str, optional
        The columns of Parquet files; by default "vector", and "id" if there is such. Without ids, the number of a vector among
        all, from ``first_row``, is its id.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes that of the file.
    first_row : int
        The number of the first vector, for files without ids.
    on_notice : callable, optional
        Called with the path and the number in the file of each vector that has no fingerprint; such are left out.

    Attributes
    ----------
    fingerprinter : Fingerprinter
    rows : None
        Not known before the files are read, since some vectors may have no fingerprint.
    has_ids : bool
        True.
    row_numbers : bool
        Whether the ids are the numbers of the vectors, as of files without ids.
    next_row : int
        The number of the vector after those read so far, with those that are left out.
    bytes_total, bytes_done : int
        The sizes of all files, and of what was read of them.

    Raises
    ------
    InputError
        A file is not in its format, some files have ids and others none, the dimension is not that of the fingerprinter, a vector
        holds NaN or infinity; or an iteration has found no vector with a fingerprint.
    StorageError
        A file cannot be read.
    MissingExtraError
        Parquet without pyarrow.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fpstore import HyperplaneHash
    >>> from fpstore.hashing import VectorReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.npy")
    ...     np.save(path, np.ones((3, 8), np.float32))
    ...     [chunk.ids.tolist() for chunk in VectorReader(path, HyperplaneHash(dimension=8))]
    [[0, 1, 2]]
    """

    rows: None = None
    has_ids = True

    def __init__(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        fingerprinter: VectorFingerprinter | Callable[[int], VectorFingerprinter],
        *,
        vector_field: str | None = None,
        id_field: str | None = None,
        id_type: IdType = "auto",
        first_row: int = 0,
        on_notice: Notice | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        if not is_iterable(given):
            raise InputError(f"paths must be a path or an iterable of paths, got {type(given).__name__}", got=type(given))
        if on_notice is not None and not callable(on_notice):
            raise InputError(f"on_notice must be a function of (path, number), got {show(on_notice)}")
        names = list(given)
        for path in names:
            check_path(path)
        self._files = [open_vectors(path, vector_field, id_field) for path in names]
        if not self._files:
            raise InputError("no files of vectors are given")
        self._id_type, self._on_notice = id_type, on_notice or _nobody
        self._first_row = self.next_row = check_whole(first_row, 0, 2**64 - 1, "first_row")
        self.row_numbers = not self._files[0].has_ids
        self.fingerprinter = self._made(fingerprinter)
        self.bytes_total = sum(file.bytes_total for file in self._files)
        self.bytes_done = 0

    def __iter__(self) -> Iterator[Chunk]:
        rule = IdRule(self._id_type)
        self.bytes_done = done = made = 0
        self.next_row = self._first_row
        for file in self._files:
            before, rows_before = self.bytes_done, done
            with located(file.name):
                rule.expect(file.has_ids)
            for values, ids in file.pieces(rule):
                for chunk in self._chunks(file, values, ids, rows_before, done - rows_before):
                    made += len(chunk.fingerprints)
                    yield chunk
                done += len(values)
                self.next_row = self._first_row + done
                self.bytes_done = before + file.bytes_total * (done - rows_before) // max(file.rows, 1)
            self.bytes_done = before + file.bytes_total
        if not made:
            names = ", ".join(file.name for file in self._files)
            raise InputError(f"{names}: no vector to make a fingerprint of" + (f": {done:,} are zero" if done else ""))

    def _made(self, fingerprinter: VectorFingerprinter | Callable[[int], VectorFingerprinter]) -> VectorFingerprinter:
        if isinstance(fingerprinter, VectorFingerprinter):
            return fingerprinter
        if not callable(fingerprinter):
            raise InputError(
                f"fingerprinter must be one of vectors, such as HyperplaneHash(dimension=384), got {show(fingerprinter)}"
            )
        first = self._files[0]
        if first.dimension is None:
            raise InputError(f"{first.name}: no vectors, which would tell the dimension", path=first.name)
        with located(first.name):
            return fingerprinter(first.dimension)

    def _chunks(self, file: VectorFile, values: Array, ids: Ids, before: int, first: int) -> Iterator[Chunk]:
        """Yield the chunks of a piece, with so many vectors before the file, and so many in the file before the piece."""
        with located(file.name):
            for block in self.fingerprinter.blocks(values, first):
                rows, known = self.fingerprinter.hashed(block)
                for place in np.flatnonzero(~known).tolist():
                    self._on_notice(file.name, block.first + place)
                start = block.first - first
                own: Any = None if ids is None else ids[start : start + len(block)]
                if own is None:
                    own = np.arange(len(block), dtype=np.uint64) + np.uint64(self._first_row + before + block.first)
                if not known.any():
                    continue
                kept = list(compress(own, known)) if isinstance(own, list) else own[known]
                yield Chunk(Width(self.fingerprinter.width).outside(rows[known]), kept)
