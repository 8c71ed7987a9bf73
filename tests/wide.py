"""Fingerprints of any width in the forms that users have."""

import random

import numpy as np


def numbers(bits, count=50):
    rng = random.Random(bits)
    return [*(rng.getrandbits(bits) for _ in range(count)), 0, 1, 2**bits - 1, 2 ** (bits - 1), 2**bits - 256]


def as_uint8(values, bits):
    return np.array([list(value.to_bytes(bits // 8, "big")) for value in values], np.uint8).reshape(-1, bits // 8)


def as_bits(values, bits):
    return np.array([[value >> (bits - 1 - bit) & 1 for bit in range(bits)] for value in values], bool)


class Bits:
    """An object like an ImageHash."""

    def __init__(self, value, bits):
        self.hash = as_bits([value], bits).reshape(bits // 8, 8)


def advice(bits):
    return f"pass width={bits} (--width {bits})"
