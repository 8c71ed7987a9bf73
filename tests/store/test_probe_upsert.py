"""An id that comes again, with another fingerprint, is decided anew in one change."""

import pytest

import fpstore
from fpstore import InputError, Match


def pairs_of(store):
    """Return the pairs of fingerprint and id."""
    return [(number, name) for number in store for name in store[number]]


def test_probe_upsert_decides_anew_in_one_step(tmp_path):
    for width, strings in ((32, False), (64, True), (256, True), (256, False)):
        a, b, c = ("a", "b", "c") if strings else (1, 2, 3)
        at = 0xFF << (width - 8)
        path = tmp_path / f"{width} {strings}"
        fpstore.build(path, [7, at, at], [a, b, c], width=width, radius=3).close()
        with fpstore.open(path, "r+") as store, fpstore.open(path) as reader:
            assert store.probe_upsert(7, a) == [Match(7, 0, [a])]  # has not changed
            assert store.probe_upsert(6, a) == []  # its own old version is not near it
            assert (reader[6], 7 in reader, len(reader), len(reader.ids)) == ([a], False, 2, 3)
            assert store.probe_upsert(5, a, 0) == []
            # another document has the old fingerprint, too
            assert store.probe_upsert(at ^ 1, b) == [Match(at, 1, [c])]
            assert (reader[at], len(reader.ids)) == ([c], 2)
            # another one is near: the old version is gone
            assert store.probe_upsert(at ^ 1, a) == [Match(at, 1, [c])]
            assert (dict(pairs_of(reader)), len(reader)) == ({at: c}, 1)
            assert store.probe_upsert(at ^ 1, c) == []
            store.insert([at ^ 1, 9], [a, c])
            assert store.probe_upsert(at ^ 1, c) == [Match(at ^ 1, 0, sorted([a, c]))]
            assert (len(reader), len(reader.ids)) == (1, 2)
            with pytest.raises(InputError):
                store.probe_upsert(1, 5 if strings else "x")
        with fpstore.open(path, "r+") as store:
            store.merge()
            assert store.probe_upsert(9, a) == []
            assert sorted(pairs_of(store)) == sorted([(9, a), (at ^ 1, c)])
        assert fpstore.open(path).verify().ok


def test_probe_upsert_into_an_empty_store_decides_its_id_kind(tmp_path):
    for number, name in enumerate(["a", 5]):
        with fpstore.build(tmp_path / str(number), []) as store:
            assert store.path.exists()
        with fpstore.open(tmp_path / str(number), "r+") as store:
            assert store.probe_upsert(1, name) == []
            assert store.probe_upsert(1 << 40, name) == []
            assert pairs_of(store) == [(1 << 40, name)]
