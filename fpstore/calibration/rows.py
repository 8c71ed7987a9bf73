"""Distances between the rows of arrays of fingerprints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words

_BLOCK_PAIRS = 1 << 20  # compared at once

Counts = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]


def in_blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield slices of rows with the place of the first row, so that the pairs of a slice with all rows fit into memory."""
    step = max(_BLOCK_PAIRS // max(len(rows), 1), 1)
    for start in range(0, len(rows), step):
        yield start, rows[start : start + step]


def one_of_each(count: int, pairs: Places, preferred: npt.NDArray[np.bool_]) -> Places:
    """Return the places of one item of each family, ascending: the families are what pairs of items connect.

    Parameters
    ----------
    count : int
        Items.
    pairs : ndarray of intp, shape (2, pairs)
    preferred : ndarray of bool, shape (count,)
        The item is the first of these in its family, or the first of all if the family has none of these.
    """
    sets = _kernel.Sets(count)
    sets.unite(*np.ascontiguousarray(pairs, np.uint64))
    order = np.argsort(~preferred, kind="stable")
    _, firsts = np.unique(sets.names()[order], return_index=True)
    return np.sort(order[firsts])


def distances(rows: Words, others: Words) -> Places:
    """Return the number of bits in which each row differs from the row of others at its place."""
    bits = np.bitwise_count(rows ^ others).astype(np.intp)
    return bits if bits.ndim == 1 else np.asarray(bits.sum(-1), np.intp)


def all_distances(rows: Words, width: int) -> Counts:
    """Return how many pairs of different rows have each distance, shape (width + 1,)."""
    counts = np.zeros(width + 1, np.int64)
    for start, block in in_blocks(rows):
        later = rows[start:]
        bits = np.zeros((len(block), len(later)), np.uint16)
        for mine, theirs in zip(_columns(block), _columns(later), strict=True):
            bits += np.bitwise_count(mine[:, None] ^ theirs)
        counts += np.bincount(bits.reshape(-1), minlength=width + 1)
        counts -= np.bincount(bits[:, : len(block)][np.tri(len(block), dtype=bool)], minlength=width + 1)
    return counts


def _columns(rows: Words) -> list[Words]:
    return [rows] if rows.ndim == 1 else list(rows.T)
