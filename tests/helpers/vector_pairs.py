"""Pairs of drawn vectors at a distance or an angle."""

import math

import numpy as np

RANDOM = np.random.default_rng(1)


def pairs_at(distance, n, dimension=64, p=2):
    """Return vectors, and others at a distance of them."""
    steps = RANDOM.normal(size=(n, dimension))
    steps *= distance / np.linalg.norm(steps, ord=p, axis=1)[:, None]
    vectors = RANDOM.normal(size=(n, dimension)) * 3
    return vectors, vectors + steps


def pairs_with_cosine(cosine, n, dimension=64):
    """Return vectors, and others at an angle to them."""
    a, b = (
        rows / np.linalg.norm(rows, axis=1)[:, None]
        for rows in RANDOM.normal(size=(2, n, dimension))
    )
    b -= np.vecdot(a, b)[:, None] * a
    b /= np.linalg.norm(b, axis=1)[:, None]
    return a, cosine * a + math.sqrt(1 - cosine * cosine) * b


def pairs_of_bits(distance, n, dimension=512):
    """Return binary vectors, packed, and others that differ in some bits."""
    bits = RANDOM.random((n, dimension)) < 0.5
    others = bits ^ np.array([RANDOM.permutation(dimension) < distance for _ in range(n)])
    return np.packbits(bits, axis=1), np.packbits(others, axis=1)


def pairs_of_integers(distance, n, dimension=32):
    """Return vectors of integers from 0 to 255, and others at an L1 distance."""
    vectors = RANDOM.integers(50, 200, (n, dimension))
    steps = RANDOM.multinomial(distance, np.full(dimension, 1 / dimension), n)
    return vectors, np.clip(vectors + steps * RANDOM.choice([-1, 1], (n, dimension)), 0, 255)
