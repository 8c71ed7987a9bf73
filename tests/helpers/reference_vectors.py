"""Fingerprints of vectors as documented, in Python's integers and fractions without rounding."""

from fractions import Fraction

MASK = 2**64 - 1


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def word(seed, number):
    return mix((mix(seed) + (number + 1) * 0x9E3779B97F4A7C15) & MASK)


def weight(seed, bit, component):
    words = [word(seed, 16 * (2**32 * bit + component) + k) for k in range(16)]
    return sum((w >> shift) & 0xFFFF for w in words for shift in (0, 16, 32, 48)) - 64 * 65535 // 2


def normals(dimension, width, seed):
    return [[weight(seed, bit, i) for i in range(dimension)] for bit in range(width)]


def hyperplane(planes, vector):
    """Return the fingerprint of a vector of numbers, by the normals of its planes."""
    exact = [int(Fraction(x) * 2**1074) for x in vector]  # of which each double is a multiple
    sides = [sum(w * x for w, x in zip(plane, exact, strict=True)) > 0 for plane in planes]
    return number(sides)


def bit_sample(dimension, width, seed, bits):
    places = sorted(range(dimension), key=lambda i: word(seed, i))[:width]
    return number([bits[i] for i in places])


def unary(low, high, width, seed, vector):
    code = [x > low + step for x in vector for step in range(high - low)]
    if len(code) <= width:
        return number(code + [False] * (width - len(code)))
    places = [
        ((j << 32) + (word(seed, j) >> 32)) * len(code) // (width << 32) for j in range(width)
    ]
    return number([code[p] for p in places])


def number(bits):
    return int("".join("01"[bool(b)] for b in bits), 2)
