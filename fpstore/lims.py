"""Where each list of a column begins and ends."""

from __future__ import annotations

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
