"""The sides of random hyperplanes on which vectors lie, exactly.

A fast matrix product, then more digits where they matter.

A side is the sign of the sum of ``weight * component``, as a real number. The product in float32
decides it where it is farther from 0 than any rounding can bring it, whatever the order of the
additions: so the result does not depend on the library that multiplies, on threads or on batches.
The few other sums are made again in float64, and what is still open in integers. This is the filter
of J. Shewchuk, *Adaptive precision floating-point arithmetic and fast robust geometric predicates*,
Discrete & Computational Geometry 18 (1997), section 4. The bound is (3.5) of N. Higham, *Accuracy
and Stability of Numerical Algorithms*.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.hashing.words import draws

Floats = npt.NDArray[Any]  # float32 or float64
Sides = npt.NDArray[np.bool_]

_WORDS, _QUARTERS = 16, 4  # random words of a weight, and numbers of 16 bits in each word
_MIDDLE = _WORDS * _QUARTERS * 0xFFFF // 2
# of a weight, the sum of 64 uniform numbers of 16 bits
DEVIATION = math.sqrt(_WORDS * _QUARTERS * (2**32 - 1) / 12)
_DRAWN = 1 << 18  # random words drawn at once
_PIECE = 512  # components whose products are added together: each sum is then rounded fewer times
_SUMS = 1 << 16  # sums made at once
_PAIRS = 1 << 20  # components multiplied again at once
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53  # units of rounding
_LENGTH_SLACK = 1.02  # a computed length is below the true one by less
# a bound of what results near 0 may lose, for each component
_LEAST_SINGLE, _LEAST_DOUBLE = 2.0**-124, 2.0**-1000
_MOST_SHIFT = 1000
_MANTISSA = 53


def weights(dimension: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    """Return the weights of all components in all bits.

    Whole numbers below 2^21, shape (width, dimension).

    The weight of component i in bit j is the sum of the 64 numbers of 16 bits in the random words
    16 (2^32 j + i) + 0 to 15, less its mean: nearly normal (an excess kurtosis of -0.019),
    symmetric, and exact in float32.
    """
    found = np.empty(width * dimension, np.float32)
    at_once = _DRAWN // _WORDS
    for start in range(0, len(found), at_once):
        part = slice(start, start + at_once)
        bits, components = np.divmod(
            np.arange(start, min(start + at_once, len(found)), dtype=np.uint64),
            np.uint64(dimension),
        )
        first = (bits << np.uint64(32) | components) * np.uint64(_WORDS)
        words = draws(seed, np.add.outer(first, np.arange(_WORDS, dtype=np.uint64)))
        sums = sum(
            ((words >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)).sum(1)
            for quarter in range(_QUARTERS)
        )
        found[part] = np.asarray(sums, np.int64) - _MIDDLE
    return found.reshape(width, dimension)


@lru_cache(maxsize=4)
def hyperplanes(dimension: int, width: int, seed: int) -> Hyperplanes:
    """Return the hyperplanes of a seed, and keep them."""
    return Hyperplanes(weights(dimension, width, seed))


class Hyperplanes:
    """Hyperplanes through the origin.

    Their normal vectors, shape (width, dimension), have whole numbers below 2^24.
    """

    def __init__(self, normals: npt.NDArray[np.float32]) -> None:
        self.normals = normals
        self._dimension = normals.shape[1]
        longest = math.sqrt(
            float(np.vecdot(normals.astype(np.float64), normals.astype(np.float64)).max())
        ) * (1 + 1e-9)
        roundings = min(self._dimension, _PIECE) + -(-self._dimension // _PIECE) + 2
        self._single_slack = longest * _most_error(roundings, _SINGLE)
        self._double_slack = (
            1.01 * longest * math.sqrt(self._dimension) * _most_error(self._dimension + 2, _DOUBLE)
        )

    def sides(
        self,
        values: Floats,
        singles: npt.NDArray[np.float32],
        squares: npt.NDArray[np.float32],
        known: Sides,
    ) -> Sides:
        """Return whether finite vectors lie on the positive sides, shape (n, width).

        A vector on a hyperplane does not.

        ``singles`` are the values rounded to float32, and ``squares`` their squared lengths as
        computed in float32, infinite where they overflow. The sides of vectors that are not
        ``known`` are of no interest.
        """
        shape = (len(values), len(self.normals))
        found, sure = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
        with np.errstate(all="ignore"):
            lengths = np.sqrt(
                squares.astype(np.float64) * _LENGTH_SLACK + self._dimension * _LEAST_SINGLE
            )
            # Rounded up: the comparison is one of float32.
            slack = np.nextafter(
                (lengths * self._single_slack).astype(np.float32), np.float32(np.inf)
            )
            slack[~known] = -1
            at_once = max(_SUMS // len(self.normals), 1)  # stay in the cache
            for start in range(0, len(values), at_once):
                part = slice(start, start + at_once)
                sums: npt.NDArray[np.float32] = singles[part, :_PIECE] @ self.normals[:, :_PIECE].T
                for column in range(_PIECE, self._dimension, _PIECE):
                    sums += (
                        singles[part, column : column + _PIECE]
                        @ self.normals[:, column : column + _PIECE].T
                    )
                np.greater(sums, 0, out=found[part])
                # not if it is NaN
                np.greater(np.abs(sums, out=sums), slack[part, None], out=sure[part])
        rows, bits = np.divmod(np.flatnonzero(~sure), len(self.normals))
        at_once = max(_PAIRS // self._dimension, 1)
        for start in range(0, len(rows), at_once):
            part = slice(start, start + at_once)
            found[rows[part], bits[part]] = self._sides_of_pairs(
                values[rows[part]], self.normals[bits[part]]
            )
        return found

    def _sides_of_pairs(self, vectors: Floats, normals: npt.NDArray[np.float32]) -> Sides:
        largest = np.maximum(vectors.max(1), -vectors.min(1)).astype(np.float64)
        scaled = vectors.astype(np.float64)
        if vectors.dtype != np.float32:
            # A power of two that makes it nearly 1 changes no sign, and nothing overflows.
            scale = np.ldexp(1.0, -np.clip(np.frexp(largest)[1], -_MOST_SHIFT, _MOST_SHIFT))
            scaled *= scale[:, None]
            largest *= scale
        sums = np.vecdot(scaled, normals.astype(np.float64))
        found: Sides = sums > 0
        slack = self._double_slack * largest + self._dimension * _LEAST_DOUBLE
        for place in np.flatnonzero(~(np.abs(sums) > slack)).tolist():
            found[place] = exact_sum(vectors[place], normals[place]) > 0
        return found


def exact_sum(vector: Floats, normal: npt.NDArray[np.float32]) -> int:
    """Return the sum of the products of components, times a power of two that makes it whole."""
    parts, exponents = np.frexp(vector.astype(np.float64))
    whole = np.ldexp(parts, _MANTISSA).astype(np.int64).tolist()
    shifts = (exponents - exponents.min()).tolist()
    factors = normal.astype(np.int64).tolist()
    return sum((a * b) << shift for a, b, shift in zip(whole, factors, shifts, strict=True))


def _most_error(roundings: int, unit: float) -> float:
    """Return the relative error that a number of roundings can sum up to."""
    return roundings * unit / (1 - roundings * unit)
