"""Sketches of vectors: laws, also with probes, E2LSH's rule, exact values, wrong vectors."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from checked_hasher import check_hasher
from laws import agrees_with, bits_that_differ
from vector_pairs import RANDOM, pairs_at, pairs_of_bits, pairs_of_integers, pairs_with_cosine

from fpstore import BitSample, HyperplaneHash, InputError, Unary
from fpstore.hashing import PStable, RandomProjection, from_description
from fpstore.hashing.hyperplanes import plane_weights
from fpstore.hashing.probing import probing_sequence
from fpstore.hashing.pstable import draw_lines
from fpstore.lsh.plan import _Request, plan, recall_at


def of_seeds(kind, **parameters):
    return [kind(seed=seed, **parameters) for seed in range(12)]


LAWS = [
    *(
        (of_seeds(HyperplaneHash, dimension=64), cosine, pairs_with_cosine(cosine, 30))
        for cosine in (0.95, 0.7, 0.2)
    ),
    *(
        (of_seeds(PStable, dimension=64, radius=2.0), 2.0 * ratio, pairs_at(2.0 * ratio, 30))
        for ratio in (0.5, 1, 2, 5)
    ),
    *(
        (of_seeds(PStable, dimension=64, radius=2.0, p=1), ratio, pairs_at(ratio, 30, p=1))
        for ratio in (1, 2, 5)
    ),
    *(
        (of_seeds(BitSample, dimension=512), distance, pairs_of_bits(distance, 30))
        for distance in (16, 64, 200)
    ),
    *(
        (of_seeds(Unary, dimension=32, low=0, high=255), distance, pairs_of_integers(distance, 30))
        for distance in (100, 900)
    ),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("hashers", "value", "pairs"), LAWS)
def test_values_and_bits_obey_the_law(hashers, value, pairs):
    hasher = hashers[0]
    exact = np.array([hasher.similarities(a, [b])[0] for a, b in zip(*pairs, strict=True)])
    if not isinstance(hasher, Unary):  # some integers are cut
        assert exact == pytest.approx(value, rel=1e-6)
    agreed, differed = [], []
    for one in hashers:
        (a, b) = (next(one.sketched(rows, 256)) for rows in pairs)
        agreed.append((a.sketches == b.sketches).mean())
        differed.append(bits_that_differ(a.signatures, b.signatures).mean())
    for shares, law in (
        (agreed, [hasher.law.collision(x) for x in exact]),
        (differed, [hasher.law.differing(x) for x in exact]),
    ):
        error = np.std(shares, ddof=1) / math.sqrt(len(shares))  # of seeds, which are independent
        assert abs(np.mean(shares) - np.mean(law)) < 5 * error + 1e-3, (
            np.mean(shares),
            np.mean(law),
            error,
        )
        assert error < 0.02


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("hasher", "value", "pairs"),
    [
        (HyperplaneHash(dimension=64), 0.9, pairs_with_cosine(0.9, 60)),
        (PStable(dimension=64, radius=1.0), 1.2, pairs_at(1.2, 60)),
        (PStable(dimension=64, radius=1.0, p=1), 0.5, pairs_at(0.5, 60, p=1)),
    ],
)
@pytest.mark.parametrize(("rows", "count"), [(6, 1), (6, 5), (10, 24)])
def test_probes_meet_near_vectors_as_often_as_told(hasher, value, pairs, rows, count):
    bands = 120
    probed = np.stack([hasher.probes(vector, bands, rows, count) for vector in pairs[0]])
    assert probed.shape == (60, bands, count, rows)
    assert (
        probed[:, :, 0] == hasher.sketches(pairs[0], bands * rows).reshape(60, bands, rows)
    ).all()
    near = hasher.sketches(pairs[1], bands * rows).reshape(60, bands, 1, rows)
    met = (probed == near).all(-1).any(-1).mean(0)  # of each band: bands are independent
    collision = hasher.law.band_collision(value, rows, count)
    assert abs(met.mean() - collision) < 5 * met.std(ddof=1) / math.sqrt(bands) + 0.01
    assert count == 1 or collision > 1.5 * hasher.law.band_collision(value, rows)


@pytest.mark.parametrize(
    ("hasher", "values"), [(HyperplaneHash(dimension=3), 4), (PStable(dimension=3, radius=1), 9)]
)
def test_probes_come_again_where_a_band_has_few_values(hasher, values):
    matches = hasher.probes([1, 2, 3], 4, 2, 20)
    assert matches.shape == (4, 20, 2)
    for band in matches:
        assert len(np.unique(band, axis=0)) == values
        assert (band[values:] == band[0]).all()


def test_probes_of_more_values_than_a_hasher_has_are_refused():
    hasher = PStable(dimension=3, radius=1)
    rows = hasher.most_values // 2
    assert hasher.probes([1, 2, 3], 2, rows, 1).shape == (2, 1, rows)
    with pytest.raises(InputError, match=rf"bands \* rows .*, got {4 * rows}$"):
        hasher.probes([1, 2, 3], 4, rows, 1)


def test_the_probing_sequence_is_that_of_all_sets_sorted():
    scores = np.sort(RANDOM.random((4, 1)), axis=0) + np.array([[0.0, 2.0]])
    result = probing_sequence(scores, 81)
    costs = [
        sum(scores[row, change - 1] for row, change in enumerate(one) if change)
        for one in result.tolist()
    ]
    assert len({tuple(one) for one in result.tolist()}) == 3**4
    assert costs == pytest.approx(sorted(costs))


def test_values_stay_as_indexes_have_them():
    vectors = [[1.0, -2.0, 0.5, 3.0], [0.1, 0.2, 0.3, 0.4]]
    assert PStable(dimension=4, radius=1).sketches(vectors, 4).tolist() == [
        [4073133549, 3236783079, 2104692556, 1925792722],
        [4073133549, 3236783080, 2104692555, 1925792723],
    ]


def test_probes_need_fewer_bands():
    hasher = PStable(dimension=96, radius=4.4)
    one, eight = (plan(200_000, hasher, 4.4, background=13.0, probes=probes) for probes in (1, 8))
    assert eight.bands < one.bands / 3
    assert recall_at(eight, hasher, 4.4) >= 0.95
    assert "8 probes each" in str(eight)
    with pytest.raises(InputError, match=r"or more probes$"):
        plan(10**9, hasher, 4.4, background=6.0)


def test_the_parameter_rule_of_e2lsh():
    """E2LSH 0.1 user manual, section 3.

    With w = 4, L is the least number with 1 - (1 - p(1)^k)^L >= 1 - delta.

    Where pairs of m halves make the functions, L = m (m - 1) / 2: of k = 20 and delta = 0.1, m = 35
    and L = 595.
    """
    hasher, delta = PStable(dimension=784, radius=0.6), 0.1
    near = hasher.law.collision(0.6)
    assert near == pytest.approx(
        1 - math.erfc(4 / math.sqrt(2)) - 2 / (math.sqrt(2 * math.pi) * 4) * (1 - math.exp(-8))
    )
    assert round(near, 4) == 0.8005
    request = _Request(1, hasher, 0.6, 2.4, math.inf, 1)
    numbers = {bands.rows: bands.number for bands in request.bands_for(1 - delta)}
    for rows, number in numbers.items():
        assert number == math.ceil(math.log(delta) / math.log(1 - near**rows))
    assert {rows: numbers[rows] for rows in (8, 10, 16, 20)} == {8: 13, 10: 21, 16: 80, 20: 196}

    half = near**10
    failure = {m: (1 - half) ** m + m * half * (1 - half) ** (m - 1) for m in range(2, 100)}
    m = min(m for m, share in failure.items() if share <= delta)
    assert (m, m * (m - 1) // 2) == (35, 595)


def test_hyperplane_values_are_the_bits_of_fingerprints():
    vectors = RANDOM.normal(size=(5, 32))
    bits = np.unpackbits(
        HyperplaneHash(dimension=32, width=256, seed=3).fingerprints(vectors), axis=1
    )
    hasher = HyperplaneHash(dimension=32, width=32, seed=3)
    assert (hasher.sketches(vectors, 256) == bits).all()
    assert (hasher.sketches(vectors.astype(np.float64) * 1e-30, 500)[:, :256] == bits).all()
    assert not np.array_equal(np.unpackbits(hasher.signatures(vectors), axis=1), bits[:, :224])


@pytest.mark.parametrize("p", [1, 2])
def test_slots_on_bounds_do_not_depend_on_the_batch(p):
    """Whole vectors in a slot of 1 lie on many bounds of lines with whole components.

    Their sums are settled exactly.
    """
    hasher = PStable(dimension=8, radius=1.0, slot=1.0, p=p)
    lines, starts, shifts = draw_lines(8, 4, hasher.seed, p)
    vectors = RANDOM.normal(size=(40, 8))
    for row in range(40):  # onto a bound of line row % 4
        line = lines[row % 4]
        vectors[row] -= line * ((line @ vectors[row] + starts[row % 4]) % 1) / (line @ line)
    alone = np.concatenate([hasher.sketches(vector[None], 4) for vector in vectors])
    assert (hasher.sketches(vectors, 4) == alone).all()
    assert (hasher.sketches(vectors, 300)[:, :4] == alone).all()
    for row in range(40):
        products = vectors[row] * lines[row % 4]
        exact = sum(map(Fraction, products.tolist())) + Fraction(float(starts[row % 4]))
        rounded = math.floor(float(exact))
        assert int(alone[row, row % 4]) == (rounded + int(shifts[row % 4])) % 2**32


def test_lines_of_one_norm_are_cauchy():
    lines = draw_lines(200, 200, 0, 1)[0].ravel()
    quantiles = np.quantile(lines, [0.1, 0.25, 0.5, 0.75, 0.9])
    assert quantiles == pytest.approx(
        np.tan(np.pi * (np.array([0.1, 0.25, 0.5, 0.75, 0.9]) - 0.5)), abs=0.1
    )
    normal = draw_lines(200, 200, 0, 2)[0].ravel()
    assert (normal.mean(), normal.std()) == (pytest.approx(0, abs=0.02), pytest.approx(1, abs=0.02))
    assert plane_weights(200, 200, 0).ravel()[0] / normal[0] == pytest.approx(151_349, rel=1e-4)


def test_bits_are_taken_packed_and_unpacked_alike():
    bits = RANDOM.random((20, 300)) < 0.5
    hasher = BitSample(dimension=300)
    for same in (np.packbits(bits, axis=1), bits.astype(np.int64), list(bits)):
        assert (hasher.sketches(same, 100) == hasher.sketches(bits, 100)).all()
        assert (hasher.signatures(same) == hasher.signatures(bits)).all()
        assert hasher.similarities(same[0], same).tolist() == (bits[0] != bits).sum(1).tolist()
    marked = np.packbits(bits, axis=1)
    marked[::2, -1] |= 0x0F  # behind the last bit
    assert hasher.similarities(marked[0], marked).tolist() == (bits[0] != bits).sum(1).tolist()


def test_estimates_are_told_in_the_measure():
    assert BitSample(dimension=512).estimate([0, 56, 224]).tolist() == [0, 128, 512]
    assert Unary(dimension=4, low=0, high=16).estimate([112])[0] == 32
    assert HyperplaneHash(dimension=4).estimate([0, 112]) == pytest.approx([1, 0], abs=1e-12)
    hasher = PStable(dimension=4, radius=2.5)
    assert hasher.law.differing(hasher.estimate([40])[0]) == pytest.approx(40 / 224)
    assert hasher.estimate([224])[0] == 250


CHECKED = [
    (
        HyperplaneHash(dimension=64, seed=2),
        np.concatenate(
            [one for cosine in (0.99, 0.9, 0.5) for one in pairs_with_cosine(cosine, 6)]
        ),
    ),
    (PStable(dimension=16, radius=3.0), np.cumsum(RANDOM.normal(size=(30, 16)), axis=0)),
    (PStable(dimension=16, radius=18.0, p=1), np.cumsum(RANDOM.normal(size=(30, 16)), axis=0)),
    (
        BitSample(dimension=512),
        np.concatenate([pairs_of_bits(distance, 1)[1] for distance in range(20)] * 2)[:20],
    ),
    (
        Unary(dimension=32, low=0, high=255),
        np.clip(np.cumsum(RANDOM.integers(-9, 10, (20, 32)), axis=0) + 128, 0, 255),
    ),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("hasher", "items"), CHECKED)
def test_hashers_of_vectors_do_what_an_index_relies_on(hasher, items):
    if isinstance(hasher, BitSample):
        bits = np.cumsum(RANDOM.random((20, 512)) < 0.05, axis=0) & 1
        items = np.packbits(bits.astype(bool), axis=1)
    assert len(check_hasher(hasher, list(items))) >= 4
    assert from_description(json.loads(json.dumps(hasher.describe()))) == hasher


@pytest.mark.parametrize(
    ("hasher", "vectors"),
    [
        (HyperplaneHash(dimension=9, seed=4), RANDOM.normal(size=(5, 9))),
        (BitSample(dimension=512, seed=4), RANDOM.random((5, 512)) < 0.5),
        (Unary(dimension=9, low=0, high=7, seed=4), RANDOM.integers(0, 8, (5, 9))),
    ],
)
def test_sketches_do_not_depend_on_the_width(hasher, vectors):
    wide = replace(hasher, width=256)
    assert (wide.sketches(vectors, 300) == hasher.sketches(vectors, 300)).all()
    assert (wide.signatures(vectors) == hasher.signatures(vectors)).all()


def test_a_projection_keeps_distances_and_angles():
    vectors = RANDOM.normal(size=(40, 2000))
    vectors[20:] = vectors[:20] + 0.3 * vectors[20:]
    projected = RandomProjection(dimension=2000, to=400)(vectors)
    assert projected.dtype == np.float32
    assert projected.shape == (40, 400)
    ratios = np.linalg.norm(projected[:20] - projected[20:], axis=1) / np.linalg.norm(
        vectors[:20] - vectors[20:], axis=1
    )
    assert abs((ratios**2).mean() - 1) < 5 * math.sqrt(2 / 400 / 20)
    assert ratios.std() < 3 * math.sqrt(1 / 800)
    assert RandomProjection(dimension=2, to=1)([]).shape == (0, 1)
    assert (
        RandomProjection(dimension=2000, to=400)(list(vectors[:3]))
        == RandomProjection(dimension=2000, to=400)(vectors[:3])
    ).all()


VECTOR = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: HyperplaneHash(dimension=3).sketches(VECTOR, 4),
            "vector 0: not a vector of numbers",
        ),
        (
            lambda: HyperplaneHash(dimension=3).sketches(np.array(VECTOR), 4),
            "wrap a single vector in a list",
        ),
        (
            lambda: HyperplaneHash(dimension=3).sketches([VECTOR, VECTOR[:2]], 4),
            "vector 1: has 2 components, and the fingerprinter",
        ),
        (
            lambda: HyperplaneHash(dimension=3).sketches([VECTOR, [0, 0, 0]], 4),
            "item 1: all components of the vector are 0",
        ),
        (
            lambda: HyperplaneHash(dimension=3).probes([0, 0, 0], 2, 2, 2),
            "all components of the vector are 0",
        ),
        (
            lambda: HyperplaneHash(dimension=3).signatures([[1, 2, math.nan]]),
            "vector 0: component 2 is nan",
        ),
        (
            lambda: PStable(dimension=3, radius=1).sketches([VECTOR, [1, math.nan, 2]], 4),
            "vector 1: component 1 is nan",
        ),
        (
            lambda: PStable(dimension=3, radius=1).signatures([[1, math.inf, 2]]),
            "vector 0: component 1 is inf",
        ),
        (
            lambda: PStable(dimension=3, radius=1e-10).sketches([[1e300, 0, 0]], 4),
            "vector 0: it is too large for a radius of 1e-10",
        ),
        (lambda: PStable(dimension=3, radius=1).sketches(["abc"], 4), "vector 0: "),
        (lambda: PStable(dimension=3, radius=0), "radius must be a number from"),
        (lambda: PStable(dimension=3, radius=math.nan), "radius must be a number from"),
        (lambda: PStable(dimension=3, radius=1, p=3), "p must be a whole number from 1 to 2"),
        (lambda: PStable(dimension=0, radius=1), "dimension must be a whole number"),
        (lambda: PStable(dimension=3, radius=1, slot=0), "slot must be a number"),
        (
            lambda: PStable(dimension=3, radius=1).law.check_measure(-1, "threshold"),
            "must be an L2 distance, from 0 to 100",
        ),
        (lambda: BitSample(dimension=63), "dimension must be a whole number from 64"),
        (
            lambda: BitSample(dimension=256).sketches(np.zeros((2, 33), np.uint8), 4),
            "vector 0: 33 numbers of type uint8",
        ),
        (
            lambda: BitSample(dimension=256).sketches(np.full((1, 256), 2), 4),
            "vector 0: component 0 is 2: bits are 0 or 1",
        ),
        (
            lambda: Unary(dimension=2, low=0, high=9).sketches([[1, 10]], 4),
            "component 1 is 10, out of the range from 0 to 9",
        ),
        (
            lambda: Unary(dimension=2, low=0, high=9).sketches([[1, 1.5]], 4),
            "unary codes are of integers",
        ),
        (lambda: Unary(dimension=2, low=9, high=9), "high must be a whole number"),
        (lambda: RandomProjection(dimension=3, to=4), "to must be a whole number from 1 to 3"),
        (
            lambda: RandomProjection(dimension=3, to=2)([[1, 2, math.nan]]),
            "vector 0: it has a component that is not finite",
        ),
    ],
)
def test_wrong_vectors_are_one_line(make, message):
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_agreement_of_shares_can_fail():
    with pytest.raises(AssertionError):
        agrees_with(np.full(50, 0.5), np.full(50, 0.6), 200)
