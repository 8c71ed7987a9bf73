"""Which pictures of a sample resemble each other: the correlation of their brightnesses, also with lost edges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fpstore.calibration.rows import Places, in_blocks

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 32
CROP, PLACES = 0.06, 3  # the share of both sides that a view has lost, and how many places it may have along a side
_ROUNDING = 1e-6  # equal pictures have a product of nearly 1

Views = npt.NDArray[np.float32]


def views(picture: Image) -> Views:
    """Return the brightnesses of a picture and of nine crops of it, each scaled to 32 x 32, with mean 0 and length 1.

    So they depend on no setting of a fingerprinter. The shape is (10, 1024). Those of a blank picture or crop are all 0.
    """
    from PIL.Image import Resampling

    grey, (width, height) = picture.convert("L"), picture.size
    shifts = [(x / (PLACES - 1) * CROP, y / (PLACES - 1) * CROP) for x, y in product(range(PLACES), repeat=2)]
    boxes = [(0.0, 0.0, 1.0, 1.0), *((x, y, x + 1 - CROP, y + 1 - CROP) for x, y in shifts)]
    scaled = [
        grey.resize((SIDE, SIDE), Resampling.BOX, (left * width, top * height, right * width, bottom * height))
        for left, top, right, bottom in boxes
    ]
    values = np.array([np.asarray(each, np.float32).reshape(-1) for each in scaled])
    values -= values.mean(1, keepdims=True)
    lengths = np.sqrt((values * values).sum(1, keepdims=True))
    out: Views = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return out


def resembling_images(found: Sequence[Views], least: float) -> Places:
    """Return the pairs of pictures whose resemblance is a bound or more.

    The resemblance is the highest correlation coefficient of the brightnesses of one picture and of a view of the other: nearly 1
    for copies of other sizes, with other light, or with lost edges.

    Parameters
    ----------
    found : sequence of ndarray of float32, shape (10, 1024)
        What `views` returns of each picture.
    least : float
        The bound, above 0 and up to 1.

    Returns
    -------
    ndarray of intp, shape (2, pairs)
        The places of both pictures, the first of which is the smaller.

    Notes
    -----
    J. P. Lewis, *Fast normalized cross-correlation*, Vision Interface 1995, section 2, with few shifts.
    """
    every = np.array(found, np.float32).reshape(-1, 1 + PLACES**2, SIDE * SIDE)
    pairs = [np.empty((2, 0), np.intp)]
    for start, block in in_blocks(every):
        near = np.zeros((len(block), len(every)), bool)
        for place in range(every.shape[1]):
            near |= block[:, place] @ every[:, 0].T >= least - _ROUNDING
        firsts, seconds = np.nonzero(near)
        pairs.append(np.sort([firsts + start, seconds], axis=0))
    both = np.concatenate(pairs, axis=1)
    return np.unique(both[:, both[0] != both[1]], axis=1)
