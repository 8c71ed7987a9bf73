"""Stores take image hashes, hexadecimal digits and bits wherever they take fingerprints."""

import imagehash
import numpy as np
import pytest
from drawing import scene

import fpstore
from fpstore.errors import InputError

SIZES = {64: 8, 256: 16}
FORMS = {
    "image hash": lambda value: value,
    "digits": str,
    "digits after 0x": lambda value: f"0x{value}",
    "bits": lambda value: value.hash.ravel(),
    "packed bits": lambda value: np.packbits(value.hash).tobytes(),
    "row of bytes": lambda value: np.packbits(value.hash),
}


@pytest.fixture(scope="module", params=SIZES)
def hashes(request):
    return request.param, [imagehash.phash(scene(seed, (160, 120)), hash_size=SIZES[request.param]) for seed in range(8)]


@pytest.mark.parametrize("form", FORMS)
def test_a_store_takes_every_form_of_a_fingerprint(tmp_path, hashes, form):
    width, values = hashes
    numbers = [int(str(value), 16) for value in values]
    given = [FORMS[form](value) for value in values]
    with fpstore.build(tmp_path / "a", given[:6], list("abcdef"), width=width, radius=2):
        pass
    with fpstore.open(tmp_path / "a", "r+") as store:
        assert list(store) == sorted(numbers[:6])
        assert [match.ids for match in store.probe(given[2])] == [["c"]]
        assert store.probe_many(given[:6]).read_ids()[1] == list("abcdef")
        assert store.nearest(given[3], 1)[0].ids == ["d"]
        assert [found[0].ids for found in store.nearest_many(given[:3], 1)] == [["a"], ["b"], ["c"]]
        assert store.scan(given[:2], 0).read_ids()[1] == ["a", "b"]
        assert given[0] in store
        assert given[6] not in store
        assert store[given[1]] == ["b"]
        assert store.insert(given[6], "g") == 1
        assert store.insert(given[6:], ["g", "h"]) == 1
        assert store.upsert(given[0], "h") == 1
        assert store.probe_insert(given[7], "h")[0:] == []
        assert store.delete(fingerprints=given[7]).removed == 1
        assert store.delete(fingerprints=given[:2]).removed == 3
        assert sorted(store) == sorted(numbers[2:7])
        assert sum(len(pairs.a) for pairs in store.join(given[2:7], 0)) == 5


def test_a_store_is_built_from_an_iterator_of_image_hashes(tmp_path, hashes):
    width, values = hashes
    with fpstore.build(tmp_path / "a", iter(values), width=width, radius=2) as store:
        assert store.probe_many(values).read_ids()[1].tolist() == list(range(8))


def test_image_hashes_of_another_width_are_refused(tmp_path, hashes):
    width, values = hashes
    other = 320 - width
    with fpstore.build(tmp_path / "a", [1, 2], width=other, radius=2) as store:
        message = rf"{width} bits.*, but this store holds {other} bits"
        for given in (values, list(map(str, values)), np.array([value.hash.ravel() for value in values])):
            with pytest.raises(InputError, match=message):
                store.probe_many(given)
        for given in (values[0], str(values[0]), values[0].hash):
            with pytest.raises(InputError, match=message):
                store.probe(given)
