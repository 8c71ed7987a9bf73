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


@pytest.mark.parametrize("words", [1, 2, 4])
def test_keys_are_scattered_to_their_parts(isa, words):
    """Two slices of a set go to the same parts, behind each other."""
    keys = RNG.integers(0, 2**64, (5001, words)[: 1 + (words > 1)], dtype=np.uint64)
    permutation = RNG.permutation(64 * words).astype(np.uint8)
    permuted = _kernel.permute(keys, permutation)
    for bits, first, end, shift in (0, 0, 1, 0), (1, 0, 2, 3), (5, 0, 32, 5), (9, 17, 400, 1):
        places = permuted.reshape(len(keys), -1)[:, 0] >> np.uint64(1) >> np.uint64(63 - bits)
        counts = [_kernel.count_permuted(k, permutation, bits) for k in (keys[:3000], keys[3000:])]
        assert np.array_equal(sum(counts), np.bincount(places.astype(int), minlength=1 << bits))
        here = (places >= first) & (places < end)
        expected = permuted[here][np.argsort(places[here], kind="stable")]
        sizes = sum(counts)[first:end]
        starts = np.cumsum(sizes) - sizes
        memory = np.zeros((len(expected) + 16, *keys.shape[1:]), np.uint64)
        out = memory[shift : shift + len(expected)]
        second = starts + counts[0][first:end]
        _kernel.scatter_permuted(keys[3000:], permutation, bits, first, second, out)
        _kernel.scatter_permuted(keys[:3000], permutation, bits, first, starts, out)
        assert np.array_equal(out, expected)
        assert not memory[:shift].any()
        assert not memory[shift + len(expected) :].any()
        if bits:
            with pytest.raises(ValueError, match="no room"):
                _kernel.scatter_permuted(keys, permutation, bits, first, second, out)
