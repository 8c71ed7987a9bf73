"""Arguments that a store refuses by name, and those that it takes in other types."""

import numpy as np
import pytest
from sets import make_set

import fpstore

BAD_ARRAYS = {
    "signed": (np.array([1, 2]), ["int64", "(2,)", "view(np.uint64)"]),
    "float": (np.array([1.0]), ["float64", "(1,)"]),
    "bool": (np.array([True]), ["bool", "(1,)"]),
    "2-D": (np.zeros((2, 3), np.uint64), ["uint64", "(2, 3)"]),
    "0-D": (np.array(3, np.uint64), ["uint64", "()"]),
    "strings": (np.array(["ab"]), ["position 0: 'ab'", "2 of 16 hexadecimal digits"]),
    "objects": (np.array([2**70], object), ["position 0", "takes 71 bits, but "]),
    "negative": ([1, -1], ["-1", "2^64-1"]),
    "large": ([2**64], ["18446744073709551616 takes 65 bits, but "]),
    "list of floats": ([1.5], ["float", "1.5", "(1,)"]),
    "list of bools": ([True], ["bool", "(1,)"]),
    "list of strings": (["ab"], ["position 0: 'ab'", "2 of 16 hexadecimal digits"]),
    "nested list": ([[1, 2]], ["(1, 2)"]),
    "text": ("abcd", ["str"]),
    "none": (None, ["NoneType"]),
}


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_fingerprints_are_named(tmp_path, store, bad):
    value, words = BAD_ARRAYS[bad]
    for use in (
        lambda: store.probe_many(value),
        lambda: store.scan(value, 3),
        lambda: store.ids_of(value),
        lambda: fpstore.build(tmp_path / "new", value),
    ):
        with pytest.raises(fpstore.InputError) as caught:
            use()
        message = str(caught.value)
        assert "\n" not in message
        assert [word for word in words if word not in message] == [], message
    assert [p.name for p in tmp_path.iterdir()] == ["s.fps"]


@pytest.mark.parametrize("bad", [-1, 2**64, 1.0, None, True, np.int64(1), np.float64(1), [1]])
def test_bad_fingerprint(store, bad):
    with pytest.raises(fpstore.InputError, match=type(bad).__name__):
        store.probe(bad)


@pytest.mark.parametrize("bad", [-1, 65, 1.0, "1", True])
def test_bad_radius(store, bad):
    for use in (lambda: store.probe(1, bad), lambda: store.probe_many([1], bad), lambda: store.scan([1], bad)):
        with pytest.raises(fpstore.InputError, match="radius must be a whole number from 0 to 64"):
            use()


@pytest.mark.parametrize("bad", [0, -1, 2000, 1.5, True, "2"])
def test_bad_threads(store, bad):
    with pytest.raises(fpstore.InputError, match="threads must be a whole number from 1 to 1024"):
        store.probe_many([1], threads=bad)


def test_arrays_of_other_unsigned_types_and_layouts(store):
    distinct = np.unique(make_set("families"))
    expected = store.probe_many(distinct[::2])
    for queries in (
        distinct[::2],
        distinct[::2].astype(">u8"),
        distinct[::2].tolist(),
        tuple(distinct[::2].tolist()),
        distinct.view(np.int64)[::2].view(np.uint64),
    ):
        assert store.probe_many(queries).lims.tolist() == expected.lims.tolist()
    assert store.probe_many(np.array([1, 2], np.uint16), 0).lims.tolist() == [0, 0, 0]
    assert store.probe(np.uint64(distinct[0]))[0].fingerprint == distinct[0]
