"""Hashes of 128 bits of labels (`fpstore.io.labels`), of keys among them, and of whole texts.

A key is a label that is equal for the same document. Two of n different values have the same hash
with a probability below ``n^2 / 2^129``: 1.5e-21 for a billion.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash

from fpstore.base.aliases import Words
from fpstore.io.urls import canonical_url, is_url

KEY_RULES = ("url", "plain")
WORDS = 2  # of a hash


def hash_values(values: Iterable[bytes | None]) -> Words:
    """Return a hash for each value, of shape (n, 2); zeros for None."""
    digests = [
        bytes(8 * WORDS) if value is None else xxhash.xxh3_128_digest(value) for value in values
    ]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, WORDS)


def has_key(keys: Words) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows of hashes are not zero."""
    return np.asarray(keys.any(axis=1))


def hash_labels(labels: Iterable[str | None]) -> Words:
    """Return the hash of each label; zeros for null."""
    return hash_values(
        None if label is None else label.encode("utf-8", "surrogatepass") for label in labels
    )


def hash_keys(labels: Iterable[str | None], rule: str) -> Words:
    """Return the hash of the key in each label; zeros for one without a key.

    Null and an empty string are no keys. With the rule "url", a URL is compared as `canonical_url`.
    """
    return hash_labels(_key(label, rule) if label else None for label in labels)


def _key(label: str, rule: str) -> str:
    url = label.strip()
    return canonical_url(url) if rule == "url" and is_url(url) else label
