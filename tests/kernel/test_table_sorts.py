"""The sort for a further table, where it scatters lines or finds parts in order.

In every instruction set, against NumPy.
"""

import itertools

import numpy as np
import pytest

from fpstore import _kernel

COUNT = 70_001  # more than are sorted in the cache at once
RNG = np.random.default_rng(5)
ORDERS = {
    "kept": [*range(64)],
    "begins alike": [*range(13), *range(39, 52), *range(13, 39), *range(52, 64)],
    "moved": [*range(26, 39), *range(52, 64), *range(26), *range(39, 52)],
    "reversed": [*range(63, -1, -1)],
    "begins alike for a bit": [0, *range(63, 0, -1)],
}


def drawn(kind):
    """Return sorted distinct keys.

    Even ones, such as begin alike, or such as are alike where another table begins.
    """
    keys = RNG.integers(0, 2**64, COUNT, dtype=np.uint64)
    if kind == "begin alike":
        keys >>= np.uint64(33)
    elif kind == "lumps":
        keys[: COUNT // 2] &= np.uint64(2**64 - 1 - (2**38 - 2**12))
    return np.unique(keys)


@pytest.mark.parametrize("kind", ["even", "begin alike", "lumps"])
def test_keys_are_in_order_of_their_leading_bits(isa, kind):
    keys = drawn(kind)
    for place, (order, bits) in enumerate(itertools.product(ORDERS, (1, 8, 9, 25, 26, 64))):
        check_order(keys, order, bits, (0, 3)[place % 2])


def check_order(keys, order, bits, shift):
    """Sort into arrays that begin ``shift`` words behind a line of the cache, and compare."""
    permutation = np.array(ORDERS[order], np.uint8)
    permuted = _kernel.permute(keys, permutation)
    expected = permuted[np.argsort(permuted >> np.uint64(64 - bits), kind="stable")]
    out, scratch = (np.zeros(len(keys) + 8, np.uint64)[shift : shift + len(keys)] for _ in range(2))
    _kernel.permute_sort(keys, permutation, out, scratch, bits)
    assert np.array_equal(out, expected)
    assert not out.base[:shift].any()
    assert not out.base[shift + len(keys) :].any()
