"""The sides of random hyperplanes on which vectors lie, exactly.

A fast matrix product, then more digits where they matter.

A side is the sign of the sum of ``weight * component``, as a real number. The product in float32
decides it where it is farther from 0 than any rounding can bring it, whatever the order of the
additions: so the result does not depend on the library that multiplies, on threads or on batches.
The few other sums are repeated in float64, and the last in integers. This is the filter
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
_WORD_BATCH = 1 << 18  # random words drawn at once
_PIECE = 512  # components of a matrix product: a sum of short products is rounded fewer times
_SUM_BATCH = 1 << 16  # sums computed at once
_COMPONENT_BATCH = 1 << 20  # components multiplied in float64 at once
_SINGLE, _DOUBLE = 2.0**-24, 2.0**-53  # units of rounding
_LENGTH_SLACK = 1.02  # the most by which a true length exceeds the computed length
# the most that results near 0 may lose to underflow, for each component
_MIN_SINGLE, _MIN_DOUBLE = 2.0**-124, 2.0**-1000
_MAX_SHIFT = 1000
_MANTISSA = 53


def plane_weights(dimension: int, width: int, seed: int) -> npt.NDArray[np.float32]:
    """Return the weights of all components in all bits.

    Whole numbers below 2^21, shape (width, dimension).

    The weight of component i in bit j is the sum of the 64 numbers of 16 bits in the random words
    16 (2^32 j + i) + 0 to 15, less its mean: nearly normal (an excess kurtosis of -0.019),
    symmetric, and exact in float32.
    """
    weights = np.empty(width * dimension, np.float32)
    batch_size = _WORD_BATCH // _WORDS
    for start in range(0, len(weights), batch_size):
        part = slice(start, start + batch_size)
        numbers = np.arange(start, min(start + batch_size, len(weights)), dtype=np.uint64)
        bits, components = np.divmod(numbers, np.uint64(dimension))
        first = (bits << np.uint64(32) | components) * np.uint64(_WORDS)
        words = draws(seed, np.add.outer(first, np.arange(_WORDS, dtype=np.uint64)))
        sums = sum(
            ((words >> np.uint64(16 * quarter)) & np.uint64(0xFFFF)).sum(1)
            for quarter in range(_QUARTERS)
        )
        weights[part] = np.asarray(sums, np.int64) - _MIDDLE
    return weights.reshape(width, dimension)


@lru_cache(maxsize=4)
def hyperplanes(dimension: int, width: int, seed: int) -> Hyperplanes:
    return Hyperplanes(plane_weights(dimension, width, seed))


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
        self._single_slack = longest * _max_error(roundings, _SINGLE)
        self._double_slack = (
            1.01 * longest * math.sqrt(self._dimension) * _max_error(self._dimension + 2, _DOUBLE)
        )

    def sides(
        self,
        values: Floats,
        singles: npt.NDArray[np.float32],
        squares: npt.NDArray[np.float32],
        known: Sides,
    ) -> Sides:
        """Return whether finite vectors lie on the positive sides, shape (n, width).

        A vector on a hyperplane does not. ``singles`` are the values rounded to float32, and
        ``squares`` their squared lengths as computed in float32, infinite where they overflow. The
        sides of vectors that are not ``known`` are arbitrary.
        """
        shape = (len(values), len(self.normals))
        sides, sure = np.empty(shape, np.bool_), np.empty(shape, np.bool_)
        with np.errstate(all="ignore"):
            lengths = np.sqrt(
                squares.astype(np.float64) * _LENGTH_SLACK + self._dimension * _MIN_SINGLE
            )
            # Rounded up: the comparison is one of float32.
            slack = np.nextafter(
                (lengths * self._single_slack).astype(np.float32), np.float32(np.inf)
            )
            slack[~known] = -1
            batch_size = max(_SUM_BATCH // len(self.normals), 1)  # fits into the cache
            for start in range(0, len(values), batch_size):
                part = slice(start, start + batch_size)
                sums: npt.NDArray[np.float32] = singles[part, :_PIECE] @ self.normals[:, :_PIECE].T
                for column in range(_PIECE, self._dimension, _PIECE):
                    sums += (
                        singles[part, column : column + _PIECE]
                        @ self.normals[:, column : column + _PIECE].T
                    )
                np.greater(sums, 0, out=sides[part])
                # false for NaN
                np.greater(np.abs(sums, out=sums), slack[part, None], out=sure[part])
        rows, bits = np.divmod(np.flatnonzero(~sure), len(self.normals))
        batch_size = max(_COMPONENT_BATCH // self._dimension, 1)
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            sides[rows[part], bits[part]] = self._exact_sides(
                values[rows[part]], self.normals[bits[part]]
            )
        return sides

    def _exact_sides(self, vectors: Floats, normals: npt.NDArray[np.float32]) -> Sides:
        """Return the side of each vector for the normal in the same row."""
        largest = np.maximum(vectors.max(1), -vectors.min(1)).astype(np.float64)
        scaled = vectors.astype(np.float64)
        if vectors.dtype != np.float32:
            # Scaled by a power of two to nearly 1, nothing overflows, and signs stay.
            scale = np.ldexp(1.0, -np.clip(np.frexp(largest)[1], -_MAX_SHIFT, _MAX_SHIFT))
            scaled *= scale[:, None]
            largest *= scale
        sums = np.vecdot(scaled, normals.astype(np.float64))
        sides: Sides = sums > 0
        slack = self._double_slack * largest + self._dimension * _MIN_DOUBLE
        for place in np.flatnonzero(~(np.abs(sums) > slack)).tolist():
            sides[place] = exact_sum(vectors[place], normals[place]) > 0
        return sides


def exact_sum(vector: Floats, normal: npt.NDArray[np.float32]) -> int:
    """Return the sum of the products of components, times a power of two that makes it whole."""
    parts, exponents = np.frexp(vector.astype(np.float64))
    whole = np.ldexp(parts, _MANTISSA).astype(np.int64).tolist()
    shifts = (exponents - exponents.min()).tolist()
    factors = normal.astype(np.int64).tolist()
    return sum((a * b) << shift for a, b, shift in zip(whole, factors, shifts, strict=True))


def _max_error(roundings: int, unit: float) -> float:
    """Return a bound of the relative error of a number of roundings."""
    return roundings * unit / (1 - roundings * unit)
