"""Keys of rows: values that are equal for the same document, as hashes of 128 bits.

Two of n different values have the same hash with a probability below ``n^2 / 2^129``: 1.5e-21 for a
billion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import xxhash

from fpstore.base.aliases import Words
from fpstore.errors import InputError, show
from fpstore.io.urls import canonical_url, is_url

KEY_RULES = ("url", "plain")
WORDS = 2  # of a hash


def hash_values(values: Iterable[bytes | None]) -> Words:
    """Return a hash for each value, of shape (n, 2); zeros for None, which is no key."""
    digests = [
        bytes(8 * WORDS) if value is None else xxhash.xxh3_128_digest(value) for value in values
    ]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(-1, WORDS)


def has_key(keys: Words) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which rows of hashes are not zero."""
    return np.asarray(keys.any(axis=1))


def key_value(value: object, rule: str) -> bytes | None:
    """Return what of a value is compared: None for null and for an empty text, which are no keys.

    An integer is compared as its digits. With the rule "url", a URL is `canonical_url`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise InputError(f"a key must be a string or an integer, got {show(value)}")
    text = value.strip() if rule == "url" else value
    text = canonical_url(text) if rule == "url" and is_url(text) else value
    return text.encode("utf-8", "surrogatepass")


def column_keys(values: Sequence[object], rule: str) -> Words:
    """Return the hashes of the values of a column; InputError for a value of another type."""
    return hash_values(key_value(value, rule) for value in values)
