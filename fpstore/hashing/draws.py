"""Random numbers that are the same on every platform, for ever: SplitMix64, in integers alone.

Number k of seed s is ``mix(mix(s) + (k + 1) * 0x9E3779B97F4A7C15)`` modulo 2^64, where ``mix`` is the finalizer below: output
k + 1 of the generator of G. Steele, D. Lea and C. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014, section
5.2, from the state ``mix(s)``. Each number is found by itself, so that the weights of a wide fingerprint begin with those of a
narrow one.
"""

from __future__ import annotations

import numpy as np

from fpstore.base.aliases import Words

_STEP = 0x9E3779B97F4A7C15
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27)
_LAST_SHIFT = 31


def mix(words: Words) -> Words:
    """Return words whose bits are mixed; one-to-one."""
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=True):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(_LAST_SHIFT))


def draws(seed: int, numbers: Words) -> Words:
    """Return the random words with these numbers, of any shape."""
    start = mix(np.array([seed], np.uint64))
    return mix(start + (numbers + np.uint64(1)) * np.uint64(_STEP))
