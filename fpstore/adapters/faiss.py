"""The methods of a binary index of FAISS: `range_search` with its triple, and `search`."""

from __future__ import annotations

from typing import Any

import numpy as np

import fpstore
from fpstore.adapters.folder import FolderIndex
from fpstore.api import PathLike
from fpstore.base.aliases import Array
from fpstore.errors import InputError, show

__all__ = ["IndexBinary"]

NO_DISTANCE, NO_ID = 2**31 - 1, -1  # where fewer are stored than `search` asks for


class IndexBinary(FolderIndex[fpstore.Store[int]]):
    """The methods of ``faiss.IndexBinary`` in a store: exact, on disk, with removals.

    Codes are arrays of uint8, shape (n, d / 8). A code with an id is stored once, however often it
    is added.

    Parameters
    ----------
    d : int
        Bits of a code: 32, 64, 128 or 256.
    max_distance : int
        The largest distance that the tables answer; ``range_search`` compares all codes beyond.
    path : path-like, optional
        The folder of the store. If it exists, it is opened. Without it, the store is temporary.

    Raises
    ------
    InputError
        The width, or the shape or type of codes is wrong, or an id is negative.

    Examples
    --------
    >>> import numpy as np
    >>> from fpstore.adapters.faiss import IndexBinary
    >>> index = IndexBinary(64, max_distance=3)
    >>> index.add(np.array([[0] * 8, [0] * 7 + [3], [255] * 8], np.uint8))
    >>> lims, distances, ids = index.range_search(np.zeros((1, 8), np.uint8), 3)
    >>> lims.tolist(), distances.tolist(), ids.tolist()
    ([0, 2], [0.0, 2.0], [0, 1])
    """

    def __init__(self, d: int, max_distance: int = 3, *, path: PathLike | None = None) -> None:
        self.d = d
        self._open(lambda folder: fpstore.build(folder, [], radius=max_distance, width=d), path)
        if self.store.width != d:
            stored = self.store.width
            self.close()
            raise InputError(f"the store has codes of {stored} bits", expected=d, got=stored)

    @property
    def ntotal(self) -> int:
        """The number of stored codes."""
        return len(self.store.ids)

    def add(self, x: Array) -> None:
        """Add codes, whose ids are the next row numbers."""
        self.store.insert(self._rows(x))

    def add_with_ids(self, x: Array, ids: Any) -> None:
        """Add codes with ids from 0 to 2^63 - 1."""
        self.store.insert(self._rows(x), np.asarray(ids, np.int64))

    def remove_ids(self, ids: Any) -> int:
        """Remove the codes of ids, and return their number. Other ids stay as they are."""
        return self.store.delete(ids=np.asarray(ids, np.int64)).removed

    def range_search(self, x: Array, radius: int) -> tuple[Array, Array, Array]:
        """Return (lims, distances, ids) of the codes at a distance *below* the radius.

        The matches of query q are at ``lims[q]:lims[q + 1]``, the nearest first. The types are
        those of FAISS: uint64, float32, int64.
        """
        rows = self._rows(x)
        if radius < 1:
            return (
                np.zeros(len(rows) + 1, np.uint64),
                np.empty(0, np.float32),
                np.empty(0, np.int64),
            )
        lims, distances, ids = _columns(self.store.probe_many(rows, min(radius - 1, self.d)))
        return lims.astype(np.uint64), distances.astype(np.float32), ids

    def search(self, x: Array, k: int) -> tuple[Array, Array]:
        """Return (distances, ids) of the `k` nearest codes: int32 and int64, shape (n, k).

        Where fewer are stored, the distance is 2^31 - 1 and the id is -1.
        """
        rows = self._rows(x)
        lims, distances, ids = _columns(self.store.nearest_many(rows, k))
        places = lims[:-1, None] + np.arange(k)
        stored = places < lims[1:, None]
        nearest = np.full((2, len(rows), k), [[[NO_DISTANCE]], [[NO_ID]]], np.int64)
        nearest[:, stored] = distances[places[stored]], ids[places[stored]]
        return nearest[0].astype(np.int32), nearest[1]

    def _rows(self, x: Any) -> Array:
        """Return codes in the form of a store, where 32 and 64 bits are numbers."""
        codes = np.ascontiguousarray(x)
        if codes.dtype != np.uint8 or codes.ndim != 2 or codes.shape[1] * 8 != self.d:
            message = f"codes must be uint8 of shape (n, {self.d // 8})"
            raise InputError(f"{message}, got {codes.dtype} {codes.shape}: {show(x)}", got=x)
        if self.d > 64:
            return codes
        return codes.view(f">u{self.d // 8}")[:, 0].astype(f"u{self.d // 8}")


def _columns(matches: fpstore.Matches[int]) -> tuple[Array, Array, Array]:
    """Return where the rows of each query are, and distances and ids, with a row for each id."""
    id_lims, ids = matches.read_ids()
    distances = np.repeat(matches.distances, np.diff(id_lims))
    return id_lims[matches.lims], distances, ids.astype(np.int64)
