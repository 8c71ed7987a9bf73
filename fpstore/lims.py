"""Where each list of a column begins and ends."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fpstore.aliases import Lims


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
