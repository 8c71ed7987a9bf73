"""Columns of lists in one array, and long arrays a piece at a time.

NumPy meets no signal before it is done with an array, which may take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.width import empty_rows, rows_like, words_of

PIECE = 1 << 20  # elements that are looked at together
HALF_BITS = 32
SIGN = np.uint64(1 << 63)


def lims_of(counts: npt.ArrayLike) -> Lims:
    """Return the lims of lists that have these sizes: list i is ``column[lims[i]:lims[i + 1]]``.

    Parameters
    ----------
    counts : array_like of integers, shape (n,)

    Returns
    -------
    ndarray of int64, shape (n + 1,)
    """
    sizes = np.asarray(counts)
    lims = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=lims[1:])
    return lims


def spans(lims: Lims, most: int) -> Iterator[slice]:
    """Yield slices of successive lists that have at most ``most`` elements together; a longer list is alone.

    Parameters
    ----------
    lims : ndarray of int64, shape (n + 1,)
        Of elements of any kind: the bytes of strings are elements too.
    most : int
    """
    first, count = 0, len(lims) - 1
    while first < count:
        end = max(int(np.searchsorted(lims, lims[first] + most, side="right")) - 1, first + 1)
        yield slice(first, end)
        first = end


def pieces(count: int) -> Iterator[slice]:
    """Yield slices that cover so many elements."""
    return (slice(start, min(start + PIECE, count)) for start in range(0, count, PIECE))


def filled(count: int, dtype: npt.DTypeLike, make: Callable[[slice], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return an array whose pieces are made one after the other."""
    out = np.empty(count, dtype)
    for piece in pieces(count):
        out[piece] = make(piece)
    return out


def taken(values: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``values[places]``; the values may be rows."""
    out = np.empty((len(places), *values.shape[1:]), values.dtype)
    for piece in pieces(len(places)):
        out[piece] = values[places[piece]]
    return out


def put(out: npt.NDArray[Any], places: npt.NDArray[Any], make: Callable[[slice], Any]) -> None:
    """Do ``out[places] = values``, where pieces of the values are made; of equal places, the last counts."""
    for piece in pieces(len(places)):
        out[places[piece]] = make(piece)


def places_where(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
    """Return ``np.flatnonzero(flags)``."""
    out = np.empty(sum(int(np.count_nonzero(flags[piece])) for piece in pieces(len(flags))), np.intp)
    done = 0
    for piece in pieces(len(flags)):
        found = np.flatnonzero(flags[piece])
        out[done : done + len(found)] = found + piece.start
        done += len(found)
    return out


def joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return several arrays, at least one, as one."""
    first = parts[0]
    out = np.empty((sum(map(len, parts)), *first.shape[1:]), first.dtype)
    done = 0
    for part in parts:
        for piece in pieces(len(part)):
            out[done + piece.start : done + piece.stop] = part[piece]
        done += len(part)
    return out


def differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values, or rows, are not equal to the one before them."""
    out = np.ones(len(values), bool)
    for piece in pieces(len(values) - 1 if len(values) else 0):
        unequal = values[piece.start + 1 : piece.stop + 1] != values[piece]
        out[piece.start + 1 : piece.stop + 1] = unequal if values.ndim == 1 else unequal.any(axis=1)
    return out


def lists_of(lims: Lims) -> npt.NDArray[np.intp]:
    """Return for each element of a column of lists the number of its list."""
    out = np.empty(int(lims[-1]), np.intp)
    for lists in spans(lims, PIECE):
        out[lims[lists.start] : lims[lists.stop]] = np.repeat(
            np.arange(lists.start, lists.stop), np.diff(lims[lists.start : lists.stop + 1])
        )
    return out


def keys_of(values: npt.NDArray[Any]) -> Words:
    """Return numbers in the same order as some integers, those without a sign as they are, or floats that are not NaN."""
    if values.dtype.kind in "bu":
        return filled(len(values), np.uint64, lambda piece: values[piece])
    if values.dtype.kind == "i":
        return filled(len(values), np.uint64, lambda piece: values[piece].astype(np.int64).view(np.uint64) ^ SIGN)

    def of_floats(piece: slice) -> Words:
        bits = (values[piece].astype(np.float64) + 0.0).view(np.uint64)  # of two zeros, one
        return np.where(bits & SIGN, ~bits, bits | SIGN)

    return filled(len(values), np.uint64, of_floats)


def stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the stable order of some integers, as the kernel finds it, which sorts faster than NumPy and meets signals."""
    count = len(values)
    if not count:
        return np.empty(0, np.intp)
    mask = np.uint64((1 << HALF_BITS) - 1)
    if values.dtype.kind in "biu" and int(values.min()) >= 0 and not (int(values.max()) | count) >> HALF_BITS:
        keys = filled(count, np.uint64, lambda piece: _numbered(values[piece].astype(np.uint64), piece))
        _kernel.sort_keys(keys, np.empty_like(keys))
        return filled(count, np.intp, lambda piece: keys[piece] & mask)
    pairs = _sorted_with_places(keys_of(values))
    return filled(count, np.intp, lambda piece: pairs[piece, -1])


def _numbered(values: Words, piece: slice) -> Words:
    return values << np.uint64(HALF_BITS) | np.arange(piece.start, piece.stop, dtype=np.uint64)


def _sorted_with_places(rows: Words) -> Words:
    """Return rows with the place of each behind it, in order of the rows and of the places."""
    words = words_of(rows)
    pairs = empty_rows(len(rows), words + 1)
    for piece in pieces(len(rows)):
        pairs[piece, :words] = rows[piece].reshape(-1, words)
        pairs[piece, words] = np.arange(piece.start, piece.stop)
    _kernel.sort_pairs(pairs.reshape(-1), np.empty(pairs.size, np.uint64), words)
    return pairs


def distinct_places(rows: Words) -> tuple[Words, npt.NDArray[np.intp]]:
    """Return the distinct rows, ascending, and for each row which of them it is."""
    pairs, words = _sorted_with_places(rows), words_of(rows)
    sorted_rows = pairs[:, 0] if words == 1 else pairs[:, :words]
    first = differs(sorted_rows)
    begins = places_where(first)
    distinct = rows_like(rows, len(begins))
    for piece in pieces(len(begins)):
        distinct[piece] = sorted_rows[begins[piece]]
    which = np.empty(len(rows), np.intp)
    before = 0
    for piece in pieces(len(rows)):
        numbers = before + np.cumsum(first[piece])
        which[pairs[piece, words].astype(np.intp)] = numbers - 1
        before = int(numbers[-1])
    return distinct, which
