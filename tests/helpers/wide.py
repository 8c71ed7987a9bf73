"""Fingerprints of any width in the forms that users have."""

import random

import numpy as np


def numbers(bits, count=50):
    rng = random.Random(bits)
    return [
        *(rng.getrandbits(bits) for _ in range(count)),
        0,
        1,
        2**bits - 1,
        2 ** (bits - 1),
        2**bits - 256,
    ]


def alike_numbers(bits, count=600):
    """Return distinct numbers.

    Of the wide ones, many share their leading words, and some all but the last.
    """
    rng = np.random.default_rng(bits)
    digits = rng.integers(0, 256, (count, bits // 8), np.uint8)
    if bits > 64:
        digits[: count // 2, :8] = rng.integers(0, 2, (count // 2, 1), np.uint8) * 255
        digits[: count // 4, : bits // 8 - 8] = 255
    return list(dict.fromkeys(int.from_bytes(row.tobytes(), "big") for row in digits))


def as_uint8(values, bits):
    return np.array([list(value.to_bytes(bits // 8, "big")) for value in values], np.uint8).reshape(
        -1, bits // 8
    )


def as_bits(values, bits):
    return np.array(
        [[value >> (bits - 1 - bit) & 1 for bit in range(bits)] for value in values], bool
    )


class Bits:
    """An object like an ImageHash."""

    def __init__(self, value, bits):
        self.hash = as_bits([value], bits).reshape(bits // 8, 8)


def advice(bits):
    return f"pass width={bits}"
