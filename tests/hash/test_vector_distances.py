"""What distances of fingerprints of vectors say: angles, Hamming distances, Manhattan distances.

The tests of distributions have fixed seeds. Each would fail with a probability below 1e-6 if its
subject is right, over seeds.
"""

import math

import numpy as np
import pytest
import reference_vectors as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from speeds import ALL_WIDTHS, crossed

from fpstore import BitSample, HyperplaneHash, InputError, Unary

ALPHA = 1e-6


def distances(a, b):
    differing = np.bitwise_count(a ^ b)
    return differing if differing.ndim == 1 else differing.sum(1)


# ---- angles ----


def pair_at(cosine, kind, rng, dimension=48):
    """Return two vectors at an angle: dense ones, or ones with two components other than 0."""
    base = (
        np.eye(dimension)[:2]
        if kind == "sparse"
        else np.linalg.qr(rng.normal(size=(dimension, 2)))[0].T
    )
    return np.array([base[0], cosine * base[0] + math.sqrt(1 - cosine**2) * base[1]])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "cosine"), crossed(["dense", "sparse"], [0.99, 0.95, 0.8, 0.5, 0.0, -0.7])
)
def test_a_bit_differs_with_the_probability_of_the_angle(kind, cosine):
    rng = np.random.default_rng(1)
    differing, bits = 0, 0
    for seed in range(60):
        a, b = HyperplaneHash(dimension=48, width=256, seed=seed).fingerprints(
            pair_at(cosine, kind, rng)
        )
        differing += int(distances(a[None], b[None])[0])
        bits += 256
    assert stats.binomtest(differing, bits, math.acos(cosine) / math.pi).pvalue > ALPHA


@pytest.mark.sampled(1)
@pytest.mark.parametrize("cosine", [0.95, 0.7])
def test_distances_are_binomial(cosine):
    rng = np.random.default_rng(2)
    hashers = [HyperplaneHash(dimension=6, width=32, seed=seed) for seed in range(600)]
    fingerprints = np.array(
        [hasher.fingerprints(pair_at(cosine, "dense", rng, 6)) for hasher in hashers]
    )
    counts, law = distances(*fingerprints.T), stats.binom(32, math.acos(cosine) / math.pi)
    # The probability of fewer, and a random part of that of as many: uniform if the distances are
    # binomial.
    places = law.cdf(counts - 1.0) + law.pmf(counts) * rng.random(len(counts))
    assert stats.kstest(places, "uniform").pvalue > ALPHA


@pytest.mark.full
def test_bits_are_balanced_and_independent_of_each_other():
    vectors = np.random.default_rng(4).normal(size=(20_000, 32))
    bits = np.unpackbits(
        HyperplaneHash(dimension=32, width=128, seed=9).fingerprints(vectors), axis=1
    ).astype(float)
    z = (bits.mean(0) - 0.5) * 2 * math.sqrt(len(bits))
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 2 / 128)
    # Correlations of bits are those of the angles of their planes, 0 on average over pairs of
    # planes.
    pairs = np.corrcoef(bits.T)[np.triu_indices(128, 1)]
    assert abs(pairs.mean()) < stats.norm.isf(ALPHA / 2) * pairs.std() / math.sqrt(len(pairs))


@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_recall_is_the_binomial_distribution(width):
    hasher = HyperplaneHash(dimension=3, width=width)
    for cosine in (-1, -0.3, 0, 0.5, 0.9, 0.999, 1):
        share = math.acos(cosine) / math.pi
        results = [hasher.recall(cosine, radius) for radius in range(width + 1)]
        assert np.allclose(
            results, stats.binom.cdf(range(width + 1), width, share), rtol=1e-11, atol=1e-300
        )
        for recall in (0.01, 0.5, 0.99, 0.999999):
            radius = hasher.radius(cosine, recall)
            assert results[radius] >= recall
            assert radius == 0 or results[radius - 1] < recall


def test_recall_refuses_what_is_no_cosine_radius_or_share():
    hasher = HyperplaneHash(dimension=3)
    for cosine in (1.1, -2, math.nan, "1", True):
        with pytest.raises(InputError, match="cosine must be a number from -1 to 1"):
            hasher.recall(cosine, 3)
    with pytest.raises(InputError, match="radius must be a whole number from 0 to 64"):
        hasher.recall(0.9, 65)
    for recall in (0, 1, 2.0, math.nan, None):
        with pytest.raises(InputError, match="recall must be a number between 0 and 1"):
            hasher.radius(0.9, recall)


# ---- bit samples ----


@pytest.mark.parametrize(
    ("dimension", "width"), [(32, 32), (100, 32), (257, 64), (1024, 128), (1000, 256)]
)
def test_bit_samples_are_those_of_the_definition(dimension, width):
    bits = np.random.default_rng(5).random((9, dimension)) < 0.5
    hasher = BitSample(dimension=dimension, width=width, seed=4)
    expected = [reference.bit_sample(dimension, width, 4, row.tolist()) for row in bits]
    for same in (
        bits,
        bits.astype(np.int64),
        np.packbits(bits, axis=1),
        bits.tolist(),
        list(np.packbits(bits, axis=1)),
    ):
        fingerprints = hasher.fingerprints(same)
        assert [hasher.fingerprint(row) for row in same] == expected
        assert (
            fingerprints.tolist()
            if width <= 64
            else [int.from_bytes(row.tobytes(), "big") for row in fingerprints]
        ) == expected
    assert not hasher.is_empty(np.zeros(dimension, bool))


PINNED_SAMPLE, PINNED_CODE = "2a7086cdbd18007e", "0000ffffff00fff0"


def test_version_1_of_samples_and_codes_is_pinned():
    bits = np.arange(100) % 7 < 3
    assert f"{BitSample(dimension=100, seed=1).fingerprint(bits):016x}" == PINNED_SAMPLE
    assert (
        f"{Unary(dimension=4, low=-50, high=50, seed=1).fingerprint([-50, 50, 0, 21]):016x}"
        == PINNED_CODE
    )


@pytest.mark.full
def test_distances_of_samples_are_hypergeometric():
    dimension, width, differing = 512, 64, 60
    a = np.random.default_rng(6).random(dimension) < 0.5
    b = a.copy()
    b[:differing] ^= True
    fingerprints = [
        distances(*BitSample(dimension=dimension, seed=seed).fingerprints([a, b])[:, None])[0]
        for seed in range(2000)
    ]
    law = stats.hypergeom(dimension, differing, width)
    counts = np.bincount(fingerprints, minlength=17)
    expected = law.pmf(np.arange(16)) * len(fingerprints)
    cut = slice(3, 13)
    seen = [counts[: cut.start].sum(), *counts[cut], counts[cut.stop :].sum()]
    wanted = [
        expected[: cut.start].sum(),
        *expected[cut],
        len(fingerprints) - expected[: cut.stop].sum(),
    ]
    assert stats.chisquare(seen, wanted).pvalue > ALPHA
    assert math.isclose(law.mean(), differing * width / dimension)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (np.zeros((2, 99), bool), "vector 0: 99 numbers of type bool"),
        (
            np.zeros((2, 13), np.int8),
            "binary vectors of 100 bits have as many of type bool, or 13 of uint8",
        ),
        (np.zeros((2, 100)), "numbers of type float64"),
        ([[0] * 100, [0] * 98 + [2, 1]], "vector 1: component 98 is 2: bits are 0 or 1"),
        ([np.zeros(100, bool), np.zeros(13, np.uint8)], "vectors 0 to 1 have different types"),
    ],
)
def test_what_is_no_binary_vector_is_refused(items, message):
    with pytest.raises(InputError, match=message):
        BitSample(dimension=100).fingerprints(items)


def test_a_sample_is_no_wider_than_the_vector():
    with pytest.raises(InputError, match="dimension must be a whole number from 64 to"):
        BitSample(dimension=63)


# ---- unary codes ----


def manhattan(a, b):
    return int(np.abs(a.astype(np.int64) - b).sum())


@settings(max_examples=200)
@given(
    st.integers(1, 40),
    st.integers(-300, 300),
    st.integers(1, 300),
    st.sampled_from([32, 64, 128, 256]),
    st.integers(0, 2**64 - 1),
)
def test_unary_codes_keep_manhattan_distances(dimension, low, levels, width, seed):
    rng = np.random.default_rng(seed)
    high = low + levels
    vectors = rng.integers(low, high + 1, (6, dimension))
    vectors[0], vectors[1] = low, high
    vectors[2, 1:] = vectors[3, 1:]
    hasher = Unary(dimension=dimension, low=low, high=high, width=width, seed=seed)
    fingerprints = hasher.fingerprints(vectors)
    given_ = (
        fingerprints.tolist()
        if width <= 64
        else [int.from_bytes(row.tobytes(), "big") for row in fingerprints]
    )
    assert given_ == [reference.unary(low, high, width, seed, v) for v in vectors.tolist()]
    code = dimension * levels
    for i in range(6):
        for j in range(i):
            length, bits = (
                manhattan(vectors[i], vectors[j]),
                int(distances(fingerprints[i : i + 1], fingerprints[j : j + 1])[0]),
            )
            if code <= width:
                assert bits == length
            else:
                components = int((vectors[i] != vectors[j]).sum())
                assert abs(bits - length * width / code) < 2 * components or bits == length == 0


def test_distances_of_sampled_unary_codes_are_right_on_average():
    vectors = np.random.default_rng(7).integers(0, 256, (2, 300))
    expected = manhattan(*vectors) * 64 / (300 * 255)
    fingerprints = [
        distances(*Unary(dimension=300, low=0, high=255, seed=s).fingerprints(vectors)[:, None])[0]
        for s in range(500)
    ]
    assert abs(np.mean(fingerprints) - expected) < stats.norm.isf(ALPHA / 2) * np.std(
        fingerprints
    ) / math.sqrt(len(fingerprints))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([[0, 1, 2], [0, 17, 2]], "vector 1: component 1 is 17, out of the range from 0 to 16"),
        ([[0, -1, 2]], "vector 0: component 1 is -1"),
        (np.full((1, 3), 2**64 - 1, np.uint64), "component 0 is 18446744073709551615"),
        ([[0.5, 1, 2]], "round them to a grid"),
        ([[0, 1]], "has 2 components, and the fingerprinter is for 3"),
    ],
)
def test_what_has_no_unary_code_is_refused(items, message):
    with pytest.raises(InputError, match=message):
        Unary(dimension=3, low=0, high=16).fingerprints(items)


def test_long_unary_codes_are_not_written_out():
    """A code of 2^48 bits is sampled: a list of its bits would take more memory than there is."""
    hasher = Unary(dimension=2**16, low=-(2**31), high=2**31, width=32)
    vectors = np.full((2, 2**16), 2**31)
    vectors[1] = -(2**31)
    assert hasher.fingerprints(vectors).tolist() == [2**32 - 1, 0]


def test_bounds_of_unary_codes_are_checked():
    for low, high in ((3, 3), (4, 3), (0, 2**31 + 1), (-(2**31) - 1, 0)):
        with pytest.raises(InputError, match=r"(low|high) must be a whole number"):
            Unary(dimension=3, low=low, high=high)
