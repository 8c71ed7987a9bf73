"""Searches by brute force, and numbers and rows of any width."""

from collections.abc import Iterable

import numpy as np
from reference import joined_words, words_of


def rows_of(numbers: Iterable[int], width: int = 64) -> np.ndarray:
    """Return fingerprints as the kernel has them: (n,), or (n, words) above 64 bits."""
    words = words_of(width)
    rows = np.frombuffer(
        b"".join([number.to_bytes(8 * words) for number in numbers]), ">u8"
    ).astype(np.uint64)
    return rows.reshape(-1, words) if words > 1 else rows


def numbers_of(rows: np.ndarray) -> list[int]:
    return rows.tolist() if rows.ndim == 1 else [joined_words(row) for row in rows.tolist()]


def distances_of(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the distances of rows from a row: uint8, or uint16 at 256 bits."""
    if rows.ndim == 1:
        return np.bitwise_count(rows ^ np.uint64(row))
    return np.bitwise_count(rows ^ row).sum(
        axis=1, dtype=np.uint16 if rows.shape[1] == 4 else np.uint8
    )


def brute_force(
    fingerprints: np.ndarray, query: int | np.ndarray, radius: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (fingerprint, distance) of all within the radius, by distance, then fingerprint."""
    distances = distances_of(fingerprints, query)
    near = distances <= radius
    near_rows, distances = fingerprints[near], distances[near]
    columns = [near_rows] if near_rows.ndim == 1 else list(near_rows.T[::-1])
    order = np.lexsort((*columns, distances))
    return near_rows[order], distances[order]


def brute_force_many(
    fingerprints: np.ndarray, queries: Iterable[int] | np.ndarray, radius: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the limits, fingerprints and distances of several queries, as columns."""
    parts = [brute_force(fingerprints, query, radius) for query in queries]
    lims = np.cumsum([0, *(len(rows) for rows, _ in parts)], dtype=np.int64)
    matches = np.concatenate([fingerprints[:0], *(part[0] for part in parts)])
    wide = fingerprints.ndim > 1 and fingerprints.shape[1] == 4
    distances = np.concatenate(
        [np.empty(0, np.uint16 if wide else np.uint8), *(part[1] for part in parts)]
    )
    return lims, matches, distances
