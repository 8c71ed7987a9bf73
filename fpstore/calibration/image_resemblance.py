"""Which pictures of a sample resemble each other: the correlation of their brightnesses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fpstore.calibration.rows import Places, in_blocks

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32
_ROUNDING = 1e-9  # equal pictures have a product of nearly 1

Brightnesses = npt.NDArray[np.float64]


def brightnesses(picture: Image) -> Brightnesses:
    """Return the brightnesses of a picture that is scaled to 32 x 32, with mean 0 and length 1: shape (1024,); blank: all 0.

    So it depends on no setting of a fingerprinter.
    """
    from PIL.Image import Resampling

    grey = picture.convert("L").resize((SIDE, SIDE), Resampling.BOX)
    values: Brightnesses = np.asarray(grey, np.float64).reshape(-1)
    values = values - values.mean()
    length = np.sqrt(values @ values)
    return values / length if length else values


def resembling_images(found: Sequence[Brightnesses], least: float) -> Places:
    """Return the pairs of pictures whose resemblance is a bound or more.

    The resemblance is the correlation coefficient of their brightnesses: nearly 1 for copies of other sizes, or with other light.

    Parameters
    ----------
    found : sequence of ndarray of float64, shape (1024,)
        What `brightnesses` returns of each picture.
    least : float
        The bound, above 0 and up to 1.

    Returns
    -------
    ndarray of intp, shape (2, pairs)
        The places of both pictures, the first of which is the smaller.

    Notes
    -----
    J. P. Lewis, *Fast normalized cross-correlation*, Vision Interface 1995, section 2, without a shift.
    """
    every = np.array(found, np.float64).reshape(-1, SIDE * SIDE)
    pairs = [np.empty((2, 0), np.intp)]
    for start, block in in_blocks(every):
        firsts, seconds = np.nonzero(block @ every[start:].T >= least - _ROUNDING)
        later = seconds > firsts
        pairs.append(np.array([firsts[later], seconds[later]], np.intp) + start)
    return np.concatenate(pairs, axis=1)
