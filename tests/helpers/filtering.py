"""Fingerprints for stores with filters, and the filters that such a store has."""

from pathlib import Path

import numpy as np

import fpstore
from fpstore.design.filters import FilterShape
from fpstore.query.generation import Generation

N = 5_000


def random_rows(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, width // 8), dtype=np.uint8)


def flipped(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return the rows with up to ``most`` bits flipped in each."""
    random = np.random.default_rng(seed)
    bits = np.unpackbits(rows, axis=1)
    for row in bits:
        row[random.choice(len(row), random.integers(0, most + 1), replace=False)] ^= 1
    return np.packbits(bits, axis=1)


def as_fingerprints(rows: np.ndarray, width: int = 64) -> np.ndarray:
    """Return rows of bytes as fingerprints of their width."""
    words = (
        np.ascontiguousarray(rows)
        .view(f">u{min(width, 64) // 8}")
        .astype(f"u{min(width, 64) // 8}")
    )
    return words[:, 0] if width <= 64 else words


def inner(queries: np.ndarray, width: int) -> np.ndarray:
    """Return fingerprints as the kernel has them: one of 32 bits in the upper half of a word."""
    return (
        queries.astype(np.uint64) << np.uint64(32) if width == 32 else np.ascontiguousarray(queries)
    )


STORED = as_fingerprints(random_rows(N, 64, 1))
NEAR = STORED ^ np.uint64(1 << 40)


def assert_alike(got: fpstore.Matches, expected: fpstore.Matches) -> None:
    assert np.array_equal(got.lims, expected.lims)
    assert np.array_equal(got.fingerprints, expected.fingerprints)
    assert np.array_equal(got.distances, expected.distances)


def generation_of(store: fpstore.Store) -> Generation:
    return store.snapshot().generation


def shapes_of(store: fpstore.Store) -> dict[int, FilterShape]:
    """Return the shapes of the filters that a store has open."""
    return {
        table: FilterShape(*opened.kernel.shape)
        for table, opened in generation_of(store).filters.items()
    }


def files_of(path: Path) -> dict[str, int]:
    """Return the sizes of the filter files of the current generation."""
    folder = sorted(path.glob("gen-*"))[-1]
    return {file.name: file.stat().st_size for file in sorted(folder.glob("filter-*"))}
