"""Which texts or pictures of a sample resemble each other, by shared shingles or by the correlation of brightnesses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.hashing.vector_base import mix

if TYPE_CHECKING:
    from PIL.Image import Image

_BLOCK_PAIRS = 1 << 20  # compared at once
SHINGLE_CHARS = 5
_BINS_LOG2 = 7
_EMPTY = np.uint32(2**32 - 1)  # of a bin without shingles
_SUSPECTED = 0.5  # of the bound: pairs whose estimate is above this share of it are compared
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SPACES = re.compile(r"\s+")

SIDE = 32
CROP, SHIFTS = 0.06, 3  # the share of both sides that a view has lost, and how many places it may have along a side
_ROUNDING = 1e-6  # equal pictures have a product of nearly 1


Places = npt.NDArray[np.intp]
Sketches = npt.NDArray[np.uint32]
Views = npt.NDArray[np.float32]


def in_blocks(rows: npt.NDArray[Any]) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield slices of rows with the place of the first row, so that the pairs of a slice with all rows fit into memory."""
    step = max(_BLOCK_PAIRS // max(len(rows), 1), 1)
    for start in range(0, len(rows), step):
        yield start, rows[start : start + step]


def one_of_each(count: int, pairs: Places, preferred: npt.NDArray[np.bool_]) -> Places:
    """Return the places of one item of each family, ascending: the families are what pairs of items connect.

    It is the first of the preferred items in its family, or the first of all if the family has none of these.
    """
    sets = _kernel.Sets(count)
    sets.unite(*np.ascontiguousarray(pairs, np.uint64))
    order = np.argsort(~preferred, kind="stable")
    _, firsts = np.unique(sets.names()[order], return_index=True)
    return np.sort(order[firsts])


# Texts


def shingles(text: str) -> Words:
    """Return the distinct shingles of a text as hashes, ascending.

    A shingle is five successive characters of the text with case folded and each run of white space as one space; a shorter text
    is one shingle. So it depends on no setting of a fingerprinter.
    """
    folded = _SPACES.sub(" ", text.casefold()).strip()
    points = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.uint64)
    count = max(len(points) - SHINGLE_CHARS + 1, min(len(points), 1))
    mixed = np.full(count, len(points) if count == 1 else SHINGLE_CHARS, np.uint64)
    for step in range(SHINGLE_CHARS):
        some = points[step : step + count]
        mixed[: len(some)] = mix(mixed[: len(some)] * _ODD + some)
    return np.unique(mixed)


def resemblance(some: Words, others: Words) -> float:
    """Return the Jaccard coefficient of two sets of shingles: shared shingles by all shingles; 0 for two empty sets.

    A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997, section 2.
    """
    both = len(np.intersect1d(some, others, assume_unique=True))
    either = len(some) + len(others) - both
    return both / either if either else 0.0


def resembling_pairs(texts: Sequence[str], least: float) -> Places:
    """Return the places of the pairs of texts whose resemblance is a bound (above 0) or more, shape (2, pairs), ascending.

    All pairs are estimated by sketches, and those near the bound or above are then compared by all their shingles. A sketch has
    the smallest shingle in each of 128 ranges of hashes: P. Li, A. Owen, C.-H. Zhang, *One permutation hashing*, NIPS 2012.
    With an estimate at half of the bound, a pair at the bound is 5 standard deviations away for a bound of 0.5.
    """
    found = [shingles(text) for text in texts]
    sketches = np.full((len(texts), 1 << _BINS_LOG2), _EMPTY, np.uint32)
    for row, values in zip(sketches, found, strict=True):
        bins, firsts = np.unique(values >> np.uint64(64 - _BINS_LOG2), return_index=True)
        # The bits below the bits of the bin; the greatest value stands for an empty bin.
        row[bins] = np.minimum(values[firsts] >> np.uint64(32 - _BINS_LOG2) & np.uint64(_EMPTY), _EMPTY - np.uint32(1))
    pairs = [
        (start + first, start + second)
        for start, block in in_blocks(sketches)
        for first, second in _suspects(block, sketches[start:], _SUSPECTED * least)
        if resemblance(found[start + first], found[start + second]) >= least
    ]
    return np.array(pairs, np.intp).reshape(-1, 2).T


def _suspects(block: Sketches, others: Sketches, least: float) -> list[tuple[int, int]]:
    """Return the pairs of some rows, with which others begin, and later rows of those whose estimate is a bound or more."""
    same = np.zeros((len(block), len(others)), np.int16)
    empty = np.zeros_like(same)
    for mine, theirs in zip(block.T, others.T, strict=True):
        equal = mine[:, None] == theirs
        same += equal
        empty += equal & (mine == _EMPTY)[:, None]
    estimate = (same - empty) / np.maximum((1 << _BINS_LOG2) - empty, 1)
    firsts, seconds = np.nonzero(estimate >= least)
    later = seconds > firsts
    return list(zip(firsts[later].tolist(), seconds[later].tolist(), strict=True))


# Pictures


def views(picture: Image) -> Views:
    """Return the brightnesses of a picture and of nine crops of it, each scaled to 32 x 32, with mean 0 and length 1.

    So they depend on no setting of a fingerprinter. The shape is (10, 1024). The values of a blank picture or crop are all 0.
    """
    from PIL.Image import Resampling

    grey, (width, height) = picture.convert("L"), picture.size
    shifts = [(x / (SHIFTS - 1) * CROP, y / (SHIFTS - 1) * CROP) for x, y in product(range(SHIFTS), repeat=2)]
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
    """Return the places of the pairs of pictures whose resemblance is a bound (above 0) or more, shape (2, pairs), ascending.

    The resemblance is the highest correlation coefficient of the brightnesses of one picture and of a view of the other: nearly 1
    for copies of other sizes, with other light, or with lost edges (J. P. Lewis, *Fast normalized cross-correlation*, Vision
    Interface 1995, section 2, with few shifts).
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
