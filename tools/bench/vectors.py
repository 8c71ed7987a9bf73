"""Operation on fingerprints of vectors.

Hyperplane hashing beside the bare product of the same matrices (hyperplanes).
"""

from __future__ import annotations

import statistics

import numpy as np

import fpstore
from bench.harness import Bench, Result, ratio
from fpstore.hashing.hyperplanes import Hyperplanes, plane_weights

SHAPES = ((384, 64), (384, 256), (768, 64), (1536, 64))  # dimension, width
BLOCK_ROWS = 1 << 12  # of a product, at a rate that larger ones do not exceed


def hyperplanes(bench: Bench) -> Result:
    """Vectors hashed per second beside the bare float32 product.

    OPENBLAS_NUM_THREADS=1 takes one thread for both.
    """
    out: Result = {}
    count = 1 << min(bench.log2(16), 20)
    for dimension, width in SHAPES:
        vectors = (
            np.random.default_rng([bench.seed, dimension])
            .normal(size=(count, dimension))
            .astype(np.float32)
        )
        doubles = vectors[: count // 4].astype(np.float64)
        normals = np.ascontiguousarray(plane_weights(dimension, width, bench.seed).T)
        hasher = fpstore.HyperplaneHash(dimension=dimension, width=width, seed=bench.seed)
        _check(hasher, vectors)

        def product(vectors: np.ndarray = vectors, normals: np.ndarray = normals) -> None:
            for start in range(0, len(vectors), BLOCK_ROWS):
                vectors[start : start + BLOCK_ROWS] @ normals

        works = (
            product,
            lambda h=hasher, v=vectors: h.fingerprints(v),
            lambda h=hasher, v=doubles: h.fingerprints(v),
        )
        # In turn: what else the machine does then falls on all of them.
        rounds = [[bench.seconds(work, 1) for work in works] for _ in range(bench.repeats)]
        bare, hashed, slow = (statistics.median(times) for times in zip(*rounds, strict=True))
        out[f"{dimension} to {width} bits"] = {
            "vectors": count,
            "product_vectors_per_second": round(count / bare),
            "vectors_per_second": round(count / hashed),
            "float64_vectors_per_second": round(len(doubles) / slow),
            "share_of_the_product": ratio(statistics.median(a / b for a, b, _ in rounds), 1),
            "percent_of_bits_summed_again": round(100 * _share_again(hasher, vectors), 4),
        }
    return out


def _share_again(hasher: fpstore.HyperplaneHash, vectors: np.ndarray) -> float:
    """Return the share of bits whose sums in float32 are too near 0 to tell."""
    bits = 0

    class Counting(Hyperplanes):
        def _exact_sides(self, vectors: np.ndarray, normals: np.ndarray) -> np.ndarray:
            nonlocal bits
            bits += len(vectors)
            return super()._exact_sides(vectors, normals)

    squares = np.vecdot(vectors, vectors)
    Counting(plane_weights(hasher.dimension, hasher.width, hasher.seed)).sides(
        vectors, vectors, squares, np.ones(len(vectors), bool)
    )
    return bits / (len(vectors) * hasher.width)


def _check(hasher: fpstore.HyperplaneHash, vectors: np.ndarray) -> None:
    """Compare with a product in float64, which is more exact than these sums need."""
    sample = vectors[:256].astype(np.float64)
    sides = (
        sample @ plane_weights(hasher.dimension, hasher.width, hasher.seed).T.astype(np.float64) > 0
    )
    expected = np.packbits(sides, axis=1)
    fingerprints = hasher.fingerprints(vectors[:256])
    if hasher.width <= 64:
        fingerprints = fingerprints.astype(f">u{hasher.width // 8}").view(np.uint8).reshape(256, -1)
    assert (fingerprints == expected).all(), "the product in float64 has other signs"
