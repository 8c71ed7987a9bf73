"""Features of texts: overlapping pieces, words of tokenizers, and the rows of their hashes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.strings import encoded
from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError, show
from fpstore.io.packages import import_package

#: Hashes of features, and the widest fingerprint that each hash makes.
HASHES = {"xxh64": WIDTHS[-1], "fnv1a": WIDTHS[-1], "md5": 128, "blake2b": WIDTHS[-1]}
IN_KERNEL = ("xxh64", "fnv1a")
UNITS = ("auto", "words", "chars")
WEIGHTINGS = ("count", "log", "set")
SEEDED = ("xxh64", "blake2b")
Tokenizer = Callable[[str], Iterable[Any]]
_KEYWORD_WEIGHT = 5  # of the most important keyword
_MAX_KEYWORDS = 64

Hash = Callable[[bytes], bytes | int]  # a hash function of the caller


def shingles(
    text: str, words: bool, size: int, stop_words: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield the shingles of a text in its normal form, in order.

    A shingle is ``size`` words with spaces between them, or characters. A text of fewer units is
    one shingle, and an empty text has none. If there are stop words, shingles without one are left
    out.
    """
    units: Sequence[str] = text.split() if words else text
    joint = " " if words else ""
    for start in range(max(len(units) - size + 1, 1) if units else 0):
        shingle = units[start : start + size]
        if not stop_words or not stop_words.isdisjoint(shingle):
            yield joint.join(shingle)


def feature_rows(features: Iterable[str], hash_: str | Hash, seed: int, width: Width) -> Words:
    """Return the hashes of features as rows of fingerprints.

    Up to 64 bits these are the first bits of XXH64 or FNV-1a. Above, each further word k of 64 bits
    is mixed from the hash h as the last steps of XXH64 mix h + k * 0x9E3779B185EBCA87. MD5 gives
    its last bits, as in the package ``simhash``. BLAKE2b has a digest as long as the fingerprint
    and, unless the seed is 0, the seed as a key of eight bytes, little-endian. A function gives the
    last bits of its result.
    """
    features = list(features)
    if hash_ in IN_KERNEL:
        rows: Words = _kernel.feature_rows(*encoded(features), hash_, seed, width.words)
        return rows & used_mask(width) if width.bits < 64 else rows
    import hashlib

    data = [feature.encode("utf-8", "surrogatepass") for feature in features]
    if callable(hash_):
        digests = [_last_bytes(hash_(feature), width) for feature in data]
    elif hash_ == "md5":
        digests = [
            hashlib.md5(feature, usedforsecurity=False).digest()[-width.bytes :] for feature in data
        ]
    else:
        key = seed.to_bytes(8, "little") if seed else b""
        digests = [
            hashlib.blake2b(feature, digest_size=width.bytes, key=key).digest() for feature in data
        ]
    return width.from_bytes(np.frombuffer(b"".join(digests), np.uint8))


def _last_bytes(digest: object, width: Width) -> bytes:
    if isinstance(digest, int) and not isinstance(digest, bool):
        return (digest & ((1 << width.bits) - 1)).to_bytes(width.bytes, "big")
    if not isinstance(digest, bytes) or len(digest) < width.bytes:
        raise InputError(
            f"hash must return an integer, or bytes, {width.bytes} or more, got {show(digest)}",
            got=digest,
            argument="hash",
        )
    return digest[-width.bytes :]


def used_mask(width: Width) -> np.uint64:
    """Return the bits of the first word of a row that are used: the upper half for 32 bits."""
    return np.uint64(2**64 - 2 ** (64 - min(width.bits, 64)))


def check_hash(name: str | Hash, width: int, seed: int) -> None:
    if callable(name):
        if seed:
            raise InputError(
                "a hash that is a function has no seed: leave it out", expected=0, got=seed
            )
        return
    if width > HASHES[name]:
        raise InputError(
            f"hash={name!r} has {HASHES[name]} bits, width is {width}: use xxh64 or blake2b",
            expected=HASHES[name],
            got=width,
        )
    if seed and name not in SEEDED:
        raise InputError(
            f"hash={name!r} has no seed: use xxh64 or blake2b, or seed=0", expected=0, got=seed
        )


def _unicode() -> Tokenizer:
    """Words after Unicode Standard Annex 29, by the package regex."""
    regex = import_package("regex", "tokenizer='unicode'")
    tokenizer: Tokenizer = regex.compile(r"\b\w.*?\b", regex.WORD | regex.DOTALL).findall
    return tokenizer


def _jieba() -> Tokenizer:
    """Chinese keywords by TF-IDF, with weights of 1 to 5, by the package jieba."""
    import logging
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jieba leaves a file open
        analyse = import_package("jieba.analyse", "tokenizer='jieba'")
    # jieba logs loading times
    import_package("jieba", "tokenizer='jieba'").setLogLevel(logging.WARNING)

    def keywords(text: str) -> list[tuple[str, int]]:
        tags = analyse.extract_tags(text, topK=_MAX_KEYWORDS, withWeight=True)
        most = max((weight for _, weight in tags), default=1.0)
        return [(word, max(1, -int(-_KEYWORD_WEIGHT * weight // most))) for word, weight in tags]

    return keywords


TOKENIZERS = {"jieba": _jieba, "unicode": _unicode}


@cache
def load_tokenizer(name: str) -> Tokenizer:
    """Return a tokenizer; MissingExtraError if its package is not installed."""
    return TOKENIZERS[name]()
