"""Columns of lists in one array.

Orders and distinct values of long arrays, which the kernel sorts faster than NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.width import empty_rows, row_words

Number = TypeVar("Number", bound=np.generic)
HALF_BITS = 32
SIGN = np.uint64(1 << 63)
NO_WORDS = np.empty(0, np.uint64)


def list_lims(counts: npt.ArrayLike) -> Lims:
    """Return the lims of lists that have these sizes: list i is ``column[lims[i]:lims[i + 1]]``."""
    sizes = np.asarray(counts)
    lims = np.zeros(len(sizes) + 1, np.int64)
    if sizes.dtype == np.uint64:
        sizes = sizes.view(np.int64)  # NumPy would add the two types as floats
    np.cumsum(sizes, dtype=np.int64, out=lims[1:])
    return lims


def spans(lims: Lims, most: int) -> Iterator[slice]:
    """Yield slices of successive lists with at most ``most`` elements together, such as bytes.

    A longer list is alone.
    """
    first, count = 0, len(lims) - 1
    while first < count:
        end = max(int(np.searchsorted(lims, lims[first] + most, side="right")) - 1, first + 1)
        yield slice(first, end)
        first = end


def list_numbers(lims: Lims) -> npt.NDArray[np.intp]:
    """Return for each element of a column of lists the number of its list."""
    return np.repeat(np.arange(len(lims) - 1), np.diff(lims))


def lists_at(
    values: npt.NDArray[Number], starts: npt.NDArray[Any], sizes: npt.NDArray[Any]
) -> npt.NDArray[Number]:
    """Return ``values[start:start + size]`` of each list, one after the other, read-only."""
    row_bytes = np.uint64(values.nbytes // max(len(values), 1))
    first_bytes = starts.astype(np.uint64) * row_bytes
    data, _ = _kernel.copy_spans(
        np.ascontiguousarray(values), first_bytes, first_bytes + sizes.astype(np.uint64) * row_bytes
    )
    return np.frombuffer(data, values.dtype).reshape(-1, *values.shape[1:])


def is_run_start(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values, or rows, are not equal to the one before them."""
    out = np.ones(len(values), bool)
    unequal = values[1:] != values[:-1]
    out[1:] = unequal if values.ndim == 1 else unequal.any(axis=1)
    return out


def order_keys(values: npt.NDArray[Any]) -> Words:
    """Return unsigned integers in the order of some integers, or of floats that are not NaN.

    Unsigned ones as they are.
    """
    if values.dtype.kind in "bu":
        return values.astype(np.uint64)
    if values.dtype.kind == "i":
        return values.astype(np.int64).view(np.uint64) ^ SIGN
    bits = (values.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the stable order of some numbers, such as ``np.argsort(values, kind="stable")``."""
    count = len(values)
    if not count:
        return np.empty(0, np.intp)
    if (
        values.dtype.kind in "biu"
        and int(values.min()) >= 0
        and not (int(values.max()) | count) >> HALF_BITS
    ):
        keys = values.astype(np.uint64)
        keys <<= np.uint64(HALF_BITS)
        keys |= np.arange(count, dtype=np.uint64)
        _kernel.sort_keys(keys, np.empty_like(keys))
        keys &= np.uint64((1 << HALF_BITS) - 1)
        return keys.view(np.intp)
    return np.ascontiguousarray(sort_with_places(order_keys(values))[:, -1]).view(np.intp)


def sort_with_places(rows: Words) -> Words:
    """Return rows with the place of each behind it, in order of the rows and of the places."""
    words = row_words(rows)
    pairs = empty_rows(len(rows), words + 1)
    pairs[:, :words] = rows.reshape(-1, words)
    pairs[:, words] = np.arange(len(rows))
    _kernel.sort_pairs(pairs.reshape(-1), np.empty(pairs.size, np.uint64), words)
    return pairs


def distinct_places(rows: Words) -> tuple[Words, npt.NDArray[np.intp]]:
    """Return the distinct rows, ascending, and for each row which of them it is."""
    pairs, words = sort_with_places(rows), row_words(rows)
    ascending = pairs[:, 0] if words == 1 else pairs[:, :words]
    first = is_run_start(ascending)
    numbers = np.cumsum(first, dtype=np.intp)
    numbers -= 1
    which = np.empty(len(rows), np.intp)
    which[pairs[:, words].view(np.intp)] = numbers
    return ascending[first], which


def first_places(*columns: Words) -> npt.NDArray[np.intp]:
    """Return for each row of columns of words the first place that has the same row."""
    rows = columns[0] if len(columns) == 1 else np.column_stack(columns)
    if (words := row_words(rows)) == 3:  # which the kernel does not sort
        rows, words = np.column_stack([rows, np.zeros(len(rows), np.uint64)]), 4
    ordered = sort_with_places(rows)
    is_first, places = is_run_start(ordered[:, :words]), ordered[:, words].view(np.intp)
    firsts = np.empty(len(rows), np.intp)
    firsts[places] = places[is_first][np.cumsum(is_first) - 1]
    return firsts


def repeated_places(
    *columns: Words,
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of rows that repeat an earlier one, ascending, and the first of each."""
    firsts = first_places(*columns)
    repeats = np.flatnonzero(firsts != np.arange(len(firsts)))
    return repeats, firsts[repeats]


def nth_combinations(numbers: Lims, sizes: Lims) -> tuple[Lims, Lims]:
    """Return the n-th pairs (i, j), for numbers n from 0.

    All i < j < size are in the order of i, then of j.
    """
    following = sizes * (sizes - 1) // 2 - 1 - numbers
    # the rows after i; the square root may be off by one
    later = ((1 + np.sqrt(8.0 * following + 1)) / 2).astype(np.int64)
    later -= later * (later - 1) // 2 > following
    later += later * (later + 1) // 2 <= following
    return sizes - 1 - later, sizes - 1 - (following - later * (later - 1) // 2)
