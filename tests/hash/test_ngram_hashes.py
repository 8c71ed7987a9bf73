"""Whole hashes of features, and their ranks among known ones, against NumPy."""

import numpy as np
import pytest
import xxhash
from simhash_oracle import normal_form_of

from fpstore import MinHash, SimHash, _kernel
from fpstore.base.width import Width
from fpstore.hashing.features import feature_rows


@pytest.mark.parametrize("shingle", ["words", "chars"])
def test_hashes_are_those_of_the_features(shingle):
    rng = np.random.default_rng(4)
    words = ["a", "bc", "\u4e2d\u6587", "e\u0301", "\u03a3", "x" * 40, "Stra\u00dfe"]
    texts = [" ".join(rng.choice(words, int(rng.integers(0, 12)))) for _ in range(60)] + [
        "",
        " ",
        "\n",
    ]
    for size in (1, 2, 3, 13):
        fingerprinter = MinHash(size=size, shingle=shingle)
        hashes, at = fingerprinter.whole_hashes(texts), 0
        for text, count, units in zip(texts, hashes.sizes, hashes.units, strict=True):
            pieces = list(fingerprinter.features(text))
            assert hashes.features[at : at + count].tolist() == sorted(
                feature_rows(pieces, "xxh64", 0, Width(64)).tolist()
            )
            at += count
            form = normal_form_of(fingerprinter).apply(text)
            assert units == min(len(form.split()) if shingle == "words" else len(form), size)
        assert at == len(hashes.features)
    (features,) = SimHash().whole_hashes(["abc"]).features.tolist()
    assert features == xxhash.xxh64_intdigest(b"abc")


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 31, 32, 33, 64, 1000, 70000])
def test_ranks_are_places_among_known_hashes(count):
    rng = np.random.default_rng(count)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 3000, 200)) for _ in range(40)] + [""]
    fingerprinter = MinHash(size=1)
    hashes = fingerprinter.whole_hashes(texts)
    every = np.unique(hashes.features)
    part = rng.choice(every, min(count, len(every)) // 2, replace=False)
    edges = np.array([0, 2**64 - 1, *(part[:5] ^ np.uint64(1))], np.uint64)
    known = np.unique(
        np.concatenate([part, edges, rng.integers(0, 2**64, count, dtype=np.uint64)])
    )[:count]
    ranks = fingerprinter.ranks_among(_kernel.KnownHashes(known), texts)
    at = np.searchsorted(known, hashes.features)
    there = np.array(
        [
            k < len(known) and known[k] == h
            for k, h in zip(at.tolist(), hashes.features, strict=True)
        ],
        bool,
    )
    lists = np.repeat(np.arange(len(texts)), hashes.sizes)
    assert ranks.features.tolist() == at[there].tolist()
    assert ranks.sizes.tolist() == np.bincount(lists[there], minlength=len(texts)).tolist()
    assert ranks.units.tolist() == [1] * 40 + [0]
    assert not count or there.any() or count < 8


def test_hashes_that_do_not_ascend_are_refused():
    for wrong in ([2, 1], [3, 3]):
        with pytest.raises(ValueError, match="hashes ascend"):
            _kernel.KnownHashes(np.array(wrong, np.uint64))
