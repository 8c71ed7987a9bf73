"""Hashers in an index: an index of each finds what its plan says."""

import math

import datasketch
import numpy as np
import pytest
import rensa
from vector_pairs import pairs_at, pairs_of_bits, pairs_of_integers, pairs_with_cosine

import fpstore
from fpstore.hashing import BitSample, HyperplaneHash, PrecomputedMinHash, PStable, Unary
from fpstore.lsh.plan import plan, recall_at

N = 400


def precomputed_pairs(similarity):
    numbers = np.random.default_rng(4)
    a = numbers.integers(0, 2**32, (N, 128), np.uint64)
    return a, np.where(
        numbers.random((N, 128)) < similarity, a, numbers.integers(0, 2**32, (N, 128), np.uint64)
    )


@pytest.mark.parametrize(
    ("hasher", "threshold", "pairs", "options"),
    [
        (HyperplaneHash(dimension=64), 0.85, pairs_with_cosine(0.85, N), {}),
        (HyperplaneHash(dimension=64), 0.85, pairs_with_cosine(0.85, N), {"probes": 8}),
        (PStable(dimension=64, radius=2.0), 2.0, pairs_at(2.0, N), {"background": 20.0}),
        (
            PStable(dimension=64, radius=2.0),
            2.0,
            pairs_at(2.0, N),
            {"background": 20.0, "probes": 6},
        ),
        (BitSample(dimension=512), 60, pairs_of_bits(60, N), {}),
        (Unary(dimension=32, low=0, high=255), 400, pairs_of_integers(400, N), {}),
        (PrecomputedMinHash(count=128), 0.7, precomputed_pairs(0.7), {}),
    ],
)
def test_an_index_finds_what_its_plan_says(tmp_path, hasher, threshold, pairs, options):
    stored, requests = pairs
    form = plan(10**5, hasher, threshold, 0.9, **options)
    with fpstore.lsh.build(
        tmp_path / "index.lsh", stored, np.arange(N), hasher=hasher, plan=form
    ) as index:
        result = index.probe_many(requests)
        matches = [
            next((match for match in item if match.id == place), None)
            for place, item in enumerate(result)
        ]
    share, recall = (
        np.mean([match is not None for match in matches]),
        recall_at(form, hasher, threshold),
    )
    assert recall >= 0.9
    least = recall - 5 * math.sqrt(recall * (1 - recall) / N) - 0.01
    assert share > least
    # whose keys and signatures have values in common, and find more
    if not isinstance(hasher, PrecomputedMinHash):
        assert share < 2 * recall - least
    near = [match.similarity for match in matches if match is not None]
    assert np.mean(near) == pytest.approx(threshold, rel=0.15)


def test_arrays_of_datasketch_and_rensa_are_indexed(tmp_path):
    sets = [[f"{first}-{place}" for place in range(60)] for first in range(40)]
    # of a Jaccard similarity of 0.82
    others = [[*part[:54], *(f"{word}'" for word in part[54:])] for part in sets]

    def by_datasketch(words):
        minhash = datasketch.MinHash(num_perm=128)
        minhash.update_batch([word.encode() for word in words])
        return minhash.hashvalues

    def by_rensa(words):
        minhash = rensa.RMinHash(num_perm=128, seed=1)
        minhash.update(words)
        return minhash.digest()

    for name, make in (("datasketch", by_datasketch), ("rensa", by_rensa)):
        stored, queries = ([make(words) for words in part] for part in (sets, others))
        index = fpstore.lsh.build(
            tmp_path / f"{name}.lsh",
            stored,
            np.arange(40),
            hasher=PrecomputedMinHash(count=128),
            threshold=0.7,
        )
        with index:
            matches = [{match.id for match in item} for item in index.probe_many(queries)]
        assert sum(place in ids for place, ids in enumerate(matches)) >= 38
        assert all(ids <= {place} for place, ids in enumerate(matches))
