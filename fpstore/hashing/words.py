"""Random words that are the same everywhere, and bits packed into bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words

STEP = np.uint64(0x9E3779B97F4A7C15)  # of the state of SplitMix64


def packed(bits: Flags) -> npt.NDArray[np.uint8]:
    """Return bits, shape (n, width), as bytes, the first bit the highest."""
    return np.packbits(np.ascontiguousarray(bits).reshape(-1)).reshape(
        len(bits), bits.shape[1] // 8
    )


def mix(words: Words) -> Words:
    """Return words whose bits are mixed by the finalizer of SplitMix64; one-to-one."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def draws(seed: int, numbers: Words) -> Words:
    """Return the random words with these numbers, of any shape.

    They are the same on every platform and in every version. Number k of seed s is ``mix(mix(s) +
    (k + 1) * 0x9E3779B97F4A7C15)`` modulo 2^64: output k + 1 of the generator of G. Steele, D. Lea
    and C. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014, section 5.2, from
    the state ``mix(s)``. A number does not depend on the numbers before it, so the weights of a
    wide fingerprint begin with the weights of a narrow one.
    """
    start = mix(np.array([seed], np.uint64))
    return mix(start + (numbers + np.uint64(1)) * STEP)
