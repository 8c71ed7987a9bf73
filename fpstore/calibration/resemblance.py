"""Which texts or pictures of a sample resemble each other, by shared shingles or by the correlation of brightnesses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.pools import in_order
from fpstore.hashing import MinHash
from fpstore.jobs.verified import TextSets

if TYPE_CHECKING:
    from PIL.Image import Image

_BLOCK_PAIRS = 1 << 20  # compared at once
CHARACTERS, WORDS = MinHash(shingle="chars", size=5, punctuation="keep"), MinHash()
_SURE = 0.9999  # of the pairs at the bound

SIDE = 32
# the share of both sides that a view has lost, and how many places it may have along a side
CROP, SHIFTS = 0.06, 3
_ROUNDING = 1e-6  # equal pictures have a product of nearly 1


Places = npt.NDArray[np.intp]
Views = npt.NDArray[np.float32]


def in_blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield slices of rows with the place of the first row, so that the pairs of a slice with all rows fit into memory."""
    step = max(_BLOCK_PAIRS // max(len(rows), 1), 1)
    for start in range(0, len(rows), step):
        yield start, rows[start : start + step]


def distances_in_blocks(rows: Words) -> Iterator[tuple[int, npt.NDArray[np.uint16]]]:
    """Yield the place of the first row of a block, and the distances of the block's rows from all rows from that one on."""
    columns = rows[:, None] if rows.ndim == 1 else rows
    for start, block in in_blocks(columns):
        bits = np.zeros((len(block), len(rows) - start), np.uint16)
        for mine, theirs in zip(block.T, columns[start:].T, strict=True):
            bits += np.bitwise_count(mine[:, None] ^ theirs)
        yield start, bits


def one_of_each(count: int, pairs: Places, preferred: npt.NDArray[np.bool_]) -> Places:
    """Return the places of one item of each family, ascending.

    The families are what pairs of items connect.

    It is the first of the preferred items in its family, or the first of all if the family has none
    of these.
    """
    sets = _kernel.Sets(count)
    sets.unite(*np.ascontiguousarray(pairs, np.uint64))
    order = np.argsort(~preferred, kind="stable")
    _, firsts = np.unique(sets.names()[order], return_index=True)
    return np.sort(order[firsts])


# Texts


def shingle_sets(texts: Sequence[str], maker: MinHash, threads: int = 1) -> TextSets:
    """Return texts as sets of shingles; those of `CHARACTERS` and `WORDS` depend on no setting."""
    found = [made for _, made in in_order(maker.feature_sets, maker.batches(texts), threads)]
    features = np.concatenate([np.empty(0, np.uint32), *(one.features for one in found)])
    return TextSets(
        np.arange(len(texts)),
        features,
        np.concatenate([np.empty(0, np.int64), *(one.sizes for one in found)]),
    )


def resembling_pairs(texts: Sequence[str], least: float, threads: int = 1) -> Places:
    """Return the places of the pairs of texts whose resemblance is a bound (above 0) or more, shape (2, pairs), ascending.

    The resemblance is the similarity by `CHARACTERS`. All pairs are estimated by MinHash. Those
    within the radius that finds nearly all pairs at the bound are compared exactly.
    """
    rows, known = CHARACTERS.fingerprints(texts, empty="mask", threads=threads)
    sets, radius = shingle_sets(texts, CHARACTERS, threads), CHARACTERS.radius(least, _SURE)
    found = [np.empty((2, 0), np.intp)]
    for start, bits in distances_in_blocks(rows.view(np.uint64)):
        near = start + np.array(np.nonzero(bits <= radius))
        near = near[:, (near[0] < near[1]) & known[near].all(0)]
        found.append(near[:, sets.similarities(*near) >= least])
    return np.concatenate(found, axis=1)


# Pictures


def views(picture: Image) -> Views:
    """Return the brightnesses of a picture and of nine crops of it, each scaled to 32 x 32, with mean 0 and length 1.

    So they depend on no setting of a fingerprinter. The shape is (10, 1024). The values of a blank
    picture or crop are all 0.
    """
    from PIL.Image import Resampling

    grey, (width, height) = picture.convert("L"), picture.size
    shifts = [
        (x / (SHIFTS - 1) * CROP, y / (SHIFTS - 1) * CROP)
        for x, y in product(range(SHIFTS), repeat=2)
    ]
    boxes = [(0.0, 0.0, 1.0, 1.0), *((x, y, x + 1 - CROP, y + 1 - CROP) for x, y in shifts)]
    scaled = [
        grey.resize(
            (SIDE, SIDE),
            Resampling.BOX,
            (left * width, top * height, right * width, bottom * height),
        )
        for left, top, right, bottom in boxes
    ]
    values = np.array([np.asarray(each, np.float32).reshape(-1) for each in scaled])
    values -= values.mean(1, keepdims=True)
    lengths = np.sqrt((values * values).sum(1, keepdims=True))
    out: Views = np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0)
    return out


def resembling_images(found: Sequence[Views], least: float) -> Places:
    """Return the places of the pairs of pictures whose resemblance is a bound (above 0) or more, shape (2, pairs), ascending.

    The resemblance is the highest correlation coefficient of the brightnesses of one picture and of
    a view of the other: nearly 1 for copies of other sizes, with other light, or with lost edges
    (J. P. Lewis, *Fast normalized cross-correlation*, Vision Interface 1995, section 2, with few
    shifts).
    """
    every = np.array(found, np.float32).reshape(-1, 1 + SHIFTS**2, SIDE * SIDE)
    pairs = [np.empty((2, 0), np.intp)]
    for start, block in in_blocks(every):
        near = np.zeros((len(block), len(every)), bool)
        for place in range(every.shape[1]):
            near |= block[:, place] @ every[:, 0].T >= least - _ROUNDING
        firsts, seconds = np.nonzero(near)
        pairs.append(np.sort([firsts + start, seconds], axis=0))
    both = np.concatenate(pairs, axis=1)
    return np.unique(both[:, both[0] != both[1]], axis=1)
