"""fpstore.HyperplaneHash.

Signs of projections without rounding, whatever the batches, types, layouts and orders of addition.
"""

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import reference_vectors as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from limits import limited
from speeds import slow

from fpstore import HyperplaneHash, InputError
from fpstore.hashing.hyperplanes import plane_weights

DIMENSION = 5
PLANES = reference.normals(DIMENSION, 32, 7)
SMALL = HyperplaneHash(dimension=DIMENSION, width=32, seed=7)


def numbers(found):
    return (
        found.tolist()
        if found.ndim == 1
        else [int.from_bytes(row.tobytes(), "big") for row in found]
    )


def embeddings(count, dimension=100, seed=1):
    return np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)


# ---- the definition ----


def test_weights_are_those_of_the_recipe():
    for seed in (0, 1, 2**64 - 1):
        expected = reference.normals(3, 7, seed)
        assert plane_weights(3, 7, seed).tolist() == expected
        with limited(plane_words=64):  # four weights at once
            assert plane_weights(3, 7, seed).tolist() == expected


def test_fingerprints_are_those_of_the_definition():
    vectors = embeddings(20, 9)
    for width in (32, 64, 128, 256):
        planes = reference.normals(9, width, 3)
        hasher = HyperplaneHash(dimension=9, width=width, seed=3)
        expected = [reference.hyperplane(planes, v.tolist()) for v in vectors]
        assert numbers(hasher.fingerprints(vectors)) == expected
        assert [hasher.fingerprint(v) for v in vectors[:3]] == expected[:3]
    many = embeddings(3, 3000)  # which are multiplied in pieces
    planes = plane_weights(3000, 32, 0).astype(int).tolist()
    fingerprints = HyperplaneHash(dimension=3000, width=32).fingerprints(many)
    assert fingerprints.tolist() == [reference.hyperplane(planes, v) for v in many.tolist()]
    assert HyperplaneHash(dimension=3, width=256).fingerprints([]).shape == (0, 32)


PINNED = ["a805f161", "a805f16106f60b13"]


def test_version_1_is_pinned():
    vector = [1.0, -2.0, 0.5, 3.25, -0.125]
    assert [
        f"{HyperplaneHash(dimension=5, width=w).fingerprint(vector):0{w // 4}x}" for w in (32, 64)
    ] == PINNED
    wide = f"{HyperplaneHash(dimension=5, width=256).fingerprint(vector):064x}"
    assert wide.startswith(PINNED[1])
    assert f"{HyperplaneHash(dimension=5, width=128).fingerprint(vector):032x}" == wide[:32]


FINITE = {"allow_nan": False, "allow_infinity": False}


@settings(max_examples=80)
@given(
    st.one_of(
        arrays(np.float32, (3, DIMENSION), elements=st.floats(width=32, **FINITE)),
        arrays(np.float64, (3, DIMENSION), elements=st.floats(**FINITE)),
        arrays(np.float16, (3, DIMENSION), elements=st.floats(width=16, **FINITE)),
        arrays(np.int8, (3, DIMENSION)),
        arrays(np.int32, (3, DIMENSION)),
    )
)
def test_any_finite_numbers_have_the_exact_signs(vectors):
    fingerprints, known = SMALL.fingerprints(vectors, empty="mask")
    assert known.tolist() == [any(v) for v in vectors.tolist()]
    assert fingerprints.tolist() == [reference.hyperplane(PLANES, v) for v in vectors.tolist()]


def on_plane(bit, scale):
    """Return a vector on a plane, exactly."""
    a, b = PLANES[bit][:2]
    return [b * scale, -a * scale, 0.0, 0.0, 0.0]


def test_a_vector_on_a_plane_or_one_unit_beside_it():
    for dtype, exponent, bit in itertools.product(
        (np.float32, np.float64), (0, 60, -100), range(32)
    ):
        exact = np.array(on_plane(bit, 2.0**exponent), dtype)
        above = exact.copy()
        above[0] = np.nextafter(
            above[0], dtype(math.inf) if PLANES[bit][0] > 0 else dtype(-math.inf)
        )
        mask = 1 << (31 - bit)
        assert SMALL.fingerprint(exact) & mask == SMALL.fingerprint(-exact) & mask == 0
        assert SMALL.fingerprint(above) & mask == mask
        assert SMALL.fingerprint(above) == reference.hyperplane(PLANES, above.tolist())
    vector = np.linspace(-1, 2, DIMENSION)  # numbers too large for float32 are finite
    assert SMALL.fingerprint(vector * 2.0**1022) == SMALL.fingerprint(vector)


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [
        *((np.float32, e) for e in (0, -90)),
        *((np.float64, e) for e in (0, -400, 990)),
        *(slow(np.float64, e) for e in (-990, -90, 90, 400)),
    ],
)
def test_vectors_nearly_on_planes_are_decided_without_rounding(dtype, exponent):
    """Each vector is moved onto one plane, as near as rounding allows.

    There float32 alone gets many signs wrong.
    """
    dimension, width = 40, 64
    normals = plane_weights(dimension, width, 5).astype(np.float64)
    own = normals[:24]
    vectors = np.random.default_rng(2).normal(size=own.shape)
    for _ in range(3):
        vectors -= ((vectors * own).sum(1) / (own * own).sum(1))[:, None] * own
    vectors = vectors.astype(dtype)
    plain = np.packbits(vectors.astype(np.float32) @ normals.T.astype(np.float32) > 0, axis=1)
    vectors *= dtype(2.0**exponent)
    expected = [reference.hyperplane(normals.astype(int).tolist(), v.tolist()) for v in vectors]
    assert numbers(HyperplaneHash(dimension=dimension, seed=5).fingerprints(vectors)) == expected
    assert numbers(plain) != expected


# ---- what must not matter ----


def test_neither_batches_nor_order_nor_threads_matter(set_limits):
    vectors = embeddings(3000)
    hasher = HyperplaneHash(dimension=100, width=128)
    whole = hasher.fingerprints(vectors)
    order = np.random.default_rng(3).permutation(len(vectors))
    assert (hasher.fingerprints(vectors[order]) == whole[order]).all()
    for size in (1, 7, 1000):
        parts = [hasher.fingerprints(vectors[at : at + size]) for at in range(0, 700, size)]
        assert (np.concatenate(parts)[:700] == whole[:700]).all()
    set_limits(vector_numbers=1700)
    for threads in (1, 2, 5):
        assert (hasher.fingerprints(vectors, threads=threads) == whole).all()
    set_limits(plane_sums=1000, plane_components=300)
    assert (hasher.fingerprints(vectors) == whole).all()


def test_neither_types_nor_layouts_matter():
    vectors = embeddings(500).astype(np.float16).astype(np.float32)
    hasher = HyperplaneHash(dimension=100)
    expected = hasher.fingerprints(vectors)
    wide = np.zeros((1000, 300), np.float32)
    wide[::2, ::3] = vectors
    for same in (
        vectors.astype(np.float16),
        vectors.astype(np.float64),
        vectors.astype(">f4"),
        vectors.astype(">f8"),
        np.asfortranarray(vectors),
        wide[::2, ::3],
        vectors[::-1][::-1],
        vectors * np.float32(2.0**-40),
        vectors.tolist(),
        list(vectors),
        (row for row in vectors),
        np.array([*vectors, None], object)[:-1],
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 100),
        pa.array(list(vectors.astype(np.float64)), pa.list_(pa.float64())),
        pa.chunked_array(
            [
                pa.array(list(part), pa.large_list(pa.float32()))
                for part in (vectors[:7], vectors[7:])
            ]
        ),
        pa.FixedSizeListArray.from_arrays(
            pa.array(np.vstack([vectors[:3], vectors]).reshape(-1)), 100
        )[3:],
    ):
        assert (hasher.fingerprints(same) == expected).all(), type(same)


OTHERS = """
import numpy as np
from fpstore import HyperplaneHash
from fpstore.hashing.hyperplanes import plane_weights
normals = plane_weights(200, 64, 0).astype(np.float64)
vectors = np.random.default_rng(8).normal(size=(64, 200))
for _ in range(2):
    vectors -= ((vectors * normals).sum(1) / (normals * normals).sum(1))[:, None] * normals
print(HyperplaneHash(dimension=200).fingerprints(np.float32(vectors)).tolist())
"""


@pytest.mark.full
def test_fingerprints_do_not_depend_on_blas_kernels_or_threads():
    """OpenBLAS adds in another order on other processors and with more threads."""
    settings_ = ({}, {"OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Nehalem"})
    outcome = {
        subprocess.run(
            [sys.executable, "-c", OTHERS],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for variables in settings_
    }
    assert len(outcome) == 1


# ---- what has no fingerprint, and what is refused ----


def test_a_vector_of_zeros_has_no_fingerprint():
    vectors = embeddings(5)
    vectors[3] = [0.0, -0.0] * 50
    hasher = HyperplaneHash(dimension=100)
    fingerprints, known = hasher.fingerprints(vectors, empty="mask")
    assert known.tolist() == [True, True, True, False, True]
    assert fingerprints[3] == 0
    with pytest.raises(InputError, match="item 3: all components of the vector are 0"):
        hasher.fingerprints(vectors)
    with pytest.raises(InputError, match="all components"):
        hasher.fingerprint(vectors[3])
    assert hasher.is_empty(vectors[3])
    tiny = np.full(100, 5e-324)
    assert not hasher.is_empty(tiny)
    assert hasher.fingerprint(tiny) == hasher.fingerprint(np.ones(100))


def test_numbers_not_finite_are_refused_with_their_place(set_limits):
    set_limits(vector_numbers=700)
    for value, dtype in itertools.product(
        (math.nan, math.inf, -math.inf), (np.float16, np.float32, np.float64)
    ):
        vectors = embeddings(50).astype(dtype)
        vectors[33, 60] = value
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 100)
        for given_ in (
            vectors,
            list(vectors),
            column,
            pa.chunked_array([column[:20], column[20:]]),
        ):
            with pytest.raises(InputError, match=f"vector 33: component 60 is {value}") as caught:
                HyperplaneHash(dimension=100).fingerprints(given_, threads=2)
            assert caught.value.got == 33


def test_what_is_no_vector_is_refused():
    for items, message in (
        (np.ones((3, 4)), "vector 0: has 4 components, and the fingerprinter is for 5"),
        ([np.ones(5), np.ones(4)], "vector 1: has 4 components"),
        ([[1.0] * 5, [1.0] * 4 + ["x"]], "vector 1: "),
        ([[1.0] * 5, None], "vector 1: not a vector of numbers"),
        ([[1.0] * 5, 3.0], "vector 1: not a vector of numbers"),
        (np.ones((2, 5), bool), "numbers of type bool"),
        (np.ones((2, 5), complex), "numbers of type complex128"),
        (np.ones((2, 5), np.longdouble), "numbers of type float128"),
        (np.ones((2, 5, 5)), "vector 0: not a vector of numbers"),
        (np.ones(5), "wrap a single vector in a list"),
        (np.array(1.0), "wrap a single vector in a list"),
        (
            np.ma.masked_equal(np.ones((2, 5)), 1),
            r"^the array has masked values: leave those rows out \(numpy.ma.compress_rows",
        ),
        (
            list(np.ma.masked_equal([[1.0] * 5, [1.0] * 4 + [2.0]], 2)),
            "^vector 1: it has masked values: leave it out$",
        ),
        (
            iter([np.ones(5), np.ma.masked_equal(np.ones(5), 1)]),
            "^vector 1: it has masked values: leave it out$",
        ),
        ([np.ma.masked_equal([1.0, 2.0, 3.0, 4.0, 5.0], 1)], "masked"),
        ([np.ones(5), np.ma.masked_equal([1.0, 2.0, 3.0, 4.0, 5.0], 1)], "masked"),
        ("vectors.npy", "numpy.load"),
        (7, "an array of shape"),
        (pa.array(["a"]), "vectors must be lists of numbers"),
        (pa.array([["a"]]), "vectors must be lists of numbers"),
        (pa.array([[1.0] * 5, None]), "vector 1: is null"),
        (pa.array([[1.0] * 5, [None] * 5]), "vector 1: holds a null"),
        (pa.array([[1.0] * 5, [2.0]]), "vector 1: has 1 numbers"),
    ):
        with pytest.raises(InputError, match=message):
            SMALL.fingerprints(items)
    for parameters, message in (
        ({"dimension": 0}, "dimension must be a whole number from 1 to 65536"),
        ({"dimension": 2**16 + 1}, "dimension"),
        ({"dimension": 3.0}, "dimension"),
        ({"dimension": 3, "width": 63}, "width must be one of 32, 64, 128, 256"),
        ({"dimension": 3, "seed": -1}, "seed must be a whole number"),
    ):
        with pytest.raises(InputError, match=message):
            HyperplaneHash(**parameters)
