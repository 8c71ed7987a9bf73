"""Which texts of a sample resemble each other: the share of their shingles that they have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.calibration.rows import Places, in_blocks
from fpstore.hashing.draws import mix

SHINGLE_CHARS = 5
_BINS_LOG2 = 7
_EMPTY = np.uint32(2**32 - 1)  # of a bin without shingles
_SUSPECTED = 0.5  # of the bound: pairs whose estimate is above this share of it are compared
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SPACES = re.compile(r"\s+")

Sketches = npt.NDArray[np.uint32]


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

    Notes
    -----
    A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997, section 2.
    """
    both = len(np.intersect1d(some, others, assume_unique=True))
    either = len(some) + len(others) - both
    return both / either if either else 0.0


def resembling_pairs(texts: Sequence[str], least: float) -> Places:
    """Return the pairs of texts whose resemblance is a bound or more.

    Parameters
    ----------
    texts : sequence of str
    least : float
        The bound, above 0 and up to 1.

    Returns
    -------
    ndarray of intp, shape (2, pairs)
        The places of both texts, the first of which is the smaller.

    Notes
    -----
    All pairs are estimated by sketches, and those near the bound or above are then compared by all their shingles. A sketch has
    the smallest shingle in each of 128 ranges of hashes: P. Li, A. Owen, C.-H. Zhang, *One permutation hashing*, NIPS 2012.
    With an estimate at half of the bound, a pair at the bound is 5 standard deviations away for a bound of 0.5.
    """
    found = [shingles(text) for text in texts]
    sketches = np.full((len(texts), 1 << _BINS_LOG2), _EMPTY, np.uint32)
    for row, values in zip(sketches, found, strict=True):
        bins, firsts = np.unique(values >> np.uint64(64 - _BINS_LOG2), return_index=True)
        # The bits below those of the bin; the greatest value stands for an empty bin.
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
