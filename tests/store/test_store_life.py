"""The store as a container, and its life: opened, closed, opened again, missing."""

import signal

import numpy as np
import pytest
from sets import EMPTY, MAX, make_set

import fpstore
from fpstore import Match

# --- Container ------------------------------------------------------------------------------------


def test_contains_and_getitem(tmp_path):
    stored = {0, 5, MAX, 2**63}
    with fpstore.build(tmp_path / "s", sorted(stored)) as store:
        for value in (*stored, 1, 4, 6, MAX - 1, 2**63 - 1):
            assert (value in store) == (value in stored)
            assert (np.uint64(value) in store) == (value in stored)
            if value in stored:
                assert store[value] == store[np.uint64(value)] == [sorted(stored).index(value)]
            else:
                with pytest.raises(KeyError) as caught:
                    store[value]
                assert isinstance(caught.value, fpstore.NotStoredError)
                assert caught.value.got == value
                assert str(caught.value) == f"the fingerprint {value} is not stored"
        assert f"{5:016x}" in store


def test_len_and_repr(tmp_path, store):
    distinct = len(np.unique(make_set("families")))
    assert len(store) == distinct
    path = tmp_path / "s.fps"
    assert repr(store) == (
        f"<fpstore.Store {str(path)!r}: {distinct} fingerprints of 64 bits, radius 3, design "
        "flip-2>"
    )
    matches = store.probe_many([0, 1], 0)
    assert repr(matches) == "<fpstore.Matches: 0 matches of 2 queries>"
    store.close()
    assert repr(store) == f"<fpstore.Store {str(path)!r}, closed>"


def test_reprs_of_one_are_in_the_singular(tmp_path):
    with fpstore.build(tmp_path / "s", [7], ["a"]) as store:
        assert ": 1 fingerprint of 64 bits, radius 3, " in repr(store)
    with fpstore.build(tmp_path / "t", [6, 7]) as store:
        assert [repr(pairs) for pairs in store.pairs()] == ["<fpstore.Pairs: 1 pair>"]
        assert repr(store.clusters()) == "<fpstore.Clusters: 1 cluster of 2 among 2 documents>"


def test_matches_iterate_as_lists(tmp_path):
    with fpstore.build(
        tmp_path / "s", [0b0000, 0b0001, 0b1111], ["zero", "one", "fifteen"]
    ) as store:
        matches = store.probe_many([0b0011, 0b1111, 2**63], radius=2)
        assert len(matches) == 3
        assert list(matches) == [
            [Match(1, 1, ["one"]), Match(0, 2, ["zero"]), Match(15, 2, ["fifteen"])],
            [Match(15, 0, ["fifteen"])],
            [Match(0, 1, ["zero"]), Match(1, 2, ["one"])],
        ]
        assert list(matches) == [store.probe(query, 2) for query in (0b0011, 0b1111, 2**63)]
        lims, ids = matches.read_ids()
        assert lims.tolist() == [0, 1, 2, 3, 4, 5, 6]
        assert ids == ["one", "zero", "fifteen", "fifteen", "zero", "one"]


@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_no_queries(store):
    for matches in (store.probe_many([]), store.scan(EMPTY, 9), store.probe_many(EMPTY, 20)):
        assert matches.lims.tolist() == [0]
        assert list(matches) == []
        lims, ids = matches.read_ids()
        assert (lims.tolist(), len(ids)) == ([0], 0)


@pytest.mark.parametrize(
    ("name", "source"), [("auto", EMPTY), ("manku-20", []), ("flip-1", ()), ("flip-4", iter([]))]
)
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_empty_store(tmp_path, name, source):
    with fpstore.build(tmp_path / "s", source, design=name) as built:
        assert len(built) == 0
    with fpstore.open(tmp_path / "s") as store:
        assert 0 not in store
        with pytest.raises(KeyError):
            store[0]
        assert store.probe(0) == store.probe(MAX, 64) == []
        assert store.probe_many([0, MAX]).lims.tolist() == [0, 0, 0]
        assert store.scan([0, 1, 2], 64).lims.tolist() == [0, 0, 0, 0]
        assert list(store.items()) == []
        assert store.verify().ok
        stats = store.stats()
        assert (stats["fingerprints"], stats["ids"], stats["bits_per_fingerprint"]) == (0, 0, 0)


# --- Life -----------------------------------------------------------------------------------------

USES = {
    "probe": lambda s: s.probe(1),
    "probe_many": lambda s: s.probe_many([1]),
    "scan": lambda s: s.scan([1], 3),
    "ids_of": lambda s: s.ids_of([1]),
    "items": lambda s: next(s.items()),
    "contains": lambda s: 1 in s,
    "getitem": lambda s: s[1],
    "len": len,
    "stats": lambda s: s.stats(),
    "verify": lambda s: s.verify(),
    "enter": lambda s: s.__enter__(),
}


def test_use_after_close(store):
    with store as entered:
        assert entered is store
        matches = store.probe_many(make_set("families")[:3])
    store.close()
    for use in USES.values():
        with pytest.raises(fpstore.ClosedStoreError, match="the store is closed"):
            use(store)
    assert len(matches.fingerprints) >= 3
    with pytest.raises(fpstore.ClosedStoreError):
        matches.read_ids()


def test_open_takes_a_relative_path(tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fpstore.open("s.fps") as again:
        monkeypatch.chdir("/")
        assert len(again) == len(store)
        assert again.verify().ok


def test_what_is_no_store(tmp_path, store):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    for name, message in (
        ("nothing", "no such store"),
        ("folder", "not an fpstore store"),
        ("file", "not an fp"),
    ):
        with pytest.raises(fpstore.StoreNotFoundError, match=message):
            fpstore.open(tmp_path / name)
    with pytest.raises(fpstore.InputError, match="mode must be one of r, r\\+, got 'w'"):
        fpstore.open(tmp_path / "s.fps", "w")
    for missing in ("gen-00000001/ids.mdb", "gen-00000001/table-001.fpt", "manifest.json"):
        (tmp_path / "s.fps" / missing).unlink()
        with pytest.raises(fpstore.StoreNotFoundError):
            fpstore.open(tmp_path / "s.fps")


def test_the_fingerprinter_is_remembered(tmp_path):
    simhash = fpstore.SimHash(size=4)
    made = simhash.describe()
    with fpstore.build(tmp_path / "s", [1], fingerprinter=simhash) as store:
        assert store.fingerprinter == made
        assert store.stats()["fingerprinter"] == made
    with fpstore.build(tmp_path / "t", [1]) as store:
        assert store.fingerprinter is None
    with fpstore.build(tmp_path / "r", [1], fingerprinter=made) as store:
        assert store.fingerprinter == made


def test_a_fingerprinter_that_could_not_be_used_later_is_refused(tmp_path):
    sound = fpstore.SimHash().describe()
    for bad in (
        "simhash",
        3,
        {"version": 1},
        {"name": "x"},
        {"name": "x", "version": 1, "parameters": {}},
        sound | {"version": 99},
        sound | {"parameters": {}},
        sound | {"parameters": sound["parameters"] | {"size": 0}},
        sound | {"parameters": sound["parameters"] | {"more": 1}},
        sound | {"more": 1},
    ):
        with pytest.raises(fpstore.InputError):
            fpstore.build(tmp_path / "u", [1], fingerprinter=bad)
    assert list(tmp_path.iterdir()) == []


# --- Verify ---------------------------------------------------------------------------------------


@pytest.fixture
def named(tmp_path, set_limits):
    """Build a store of many pieces, with names."""
    set_limits(decoded_entries=1, id_rows=100, string_records=2)
    fingerprints = np.random.default_rng(4).integers(0, 2**64, 5000, np.uint64)
    with fpstore.build(
        tmp_path / "s",
        fingerprints,
        [f"name {i}" for i in range(5000)],
        design="flip-2",
        block_bytes=128,
    ) as store:
        yield store


def test_verify_tells_its_progress(named):
    calls = []
    assert named.verify(progress=lambda *call: calls.append(call)).ok
    assert list(dict.fromkeys(phase for phase, _, _ in calls)) == [
        "tables",
        "ids",
        "strings",
        "index by id",
        "changes",
    ]
    # Two tables with filters, each of which is read once.
    for name, most, total in (
        ("tables", 10000, 10000),
        ("ids", 5000, 5000),
        ("strings", 20000, 20000),
    ):
        done = [d for phase, d, _ in calls if phase == name]
        assert done == sorted(done)
        assert (done[0], done[-1], len(set(done)) > 2) == (0, most, True)
        assert {t for phase, _, t in calls if phase == name} == {total}


@pytest.mark.parametrize("phase", ["tables", "ids", "strings"])
def test_control_c_stops_verify(named, phase):
    calls = []

    def interrupt(*call):
        calls.append(call)
        if call[0] == phase and call[1] > 100:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        named.verify(progress=interrupt)
    assert [done > 100 for name, done, _ in calls if name == phase].count(True) == 1
    assert calls[-1][0] == phase
    assert named.verify().ok
