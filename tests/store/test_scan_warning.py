"""A probe above the store's radius compares every fingerprint and says so, once per store object."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import fpstore
from fpstore import ScanWarning

FINGERPRINTS = np.random.default_rng(3).integers(0, 2**64, 5000, np.uint64)


@pytest.fixture
def path(tmp_path):
    fpstore.build(tmp_path / "s", FINGERPRINTS, radius=2).close()
    return tmp_path / "s"


FAR = max(r for r in range(3, 10) if fpstore.plan(5000, r)[0].name != "scan")  # over the store's radius of 2


def asks(store):
    queries = FINGERPRINTS[:3]
    return {
        "probe": lambda: store.probe(int(queries[0]), FAR),
        "probe with a limit": lambda: store.probe(int(queries[0]), FAR, limit=1),
        "probe_many": lambda: store.probe_many(queries, FAR),
        "probe_many with a limit": lambda: store.probe_many(queries, FAR, limit=1),
        "probe_batches": lambda: list(store.probe_batches(queries, FAR)),
        "probe_insert": lambda: store.probe_insert(int(queries[0]), 0, FAR),
        "probe_insert_many": lambda: store.probe_insert_many(queries, [0, 1, 2], FAR),
    }


@pytest.mark.parametrize("name", list(asks(None)))
def test_each_way_to_probe_warns_once_per_store(path, name):
    for _ in range(2):  # Python would not show it twice for one place
        with fpstore.open(path, "r+") as store, warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(3):
                asks(store)[name]()
            asks(store)["probe"]()
        assert [w.category for w in seen] == [ScanWarning]
        assert seen[0].filename == __file__
        text = str(seen[0].message)
        assert text.startswith(f"radius {FAR} is over the store's 2: every one of 5,000 fingerprints is compared")
        best = fpstore.plan(5000, FAR)[0]
        assert (
            f"radius {FAR} (design {best.name}, {best.bytes_per_fingerprint:.1f} bytes per fingerprint) answers from its tables"
            in text
        )
        assert "\n" not in text


def test_what_scans_on_purpose_does_not_warn(path):
    with fpstore.open(path) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.scan(FINGERPRINTS[:3], 9)
        store.nearest_many(FINGERPRINTS[:3], 5)
        store.probe(1, 2)
    with fpstore.build(path.parent / "t", FINGERPRINTS, radius=40) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.design.name == "scan"
        store.probe(1, 40)


def test_where_warnings_are_errors_each_probe_is_one(path):
    with fpstore.open(path) as store, warnings.catch_warnings():
        warnings.simplefilter("error", ScanWarning)
        for _ in range(2):
            with pytest.raises(ScanWarning):
                store.probe(1, 9)


def test_where_no_design_is_cheaper_the_advice_is_a_scan(path):
    with fpstore.open(path) as store, pytest.warns(ScanWarning, match="For radius 30 that is the best design, too"):
        store.probe(1, 30)


def test_the_answers_are_those_of_a_scan(path):
    with fpstore.open(path, "r+") as store:
        with pytest.warns(ScanWarning):
            store.probe(1, 9)
        store.insert(FINGERPRINTS[:50] ^ np.uint64(0b111 << 30), np.arange(50))
        queries = FINGERPRINTS[:60] ^ np.uint64(0b11)
        wanted = store.scan(queries, 9)
        for found in (store.probe_many(queries, 9), *store.probe_batches(queries, 9)):
            assert found.lims.tolist() == wanted.lims.tolist()
            assert found.fingerprints.tolist() == wanted.fingerprints.tolist()
        assert [store.probe(int(q), 9) for q in queries] == list(wanted)
        assert np.diff(wanted.lims)[:50].tolist() == [2] * 50
        inserted = store.probe_insert_many(queries, np.arange(60) + 100, 9).inserted
        assert not inserted.any()
        far = int(FINGERPRINTS[0]) ^ (2**20 - 1)
        assert store.probe_insert(far, 7000, 9) == []
        assert [m.distance for m in store.probe_insert(far ^ (0xFF << 50), 7001, 9)] == [8]


def test_a_script_shows_it_for_each_of_two_stores(path, tmp_path):
    program = tmp_path / "p.py"
    program.write_text(
        f"import fpstore\nfor _ in range(2):\n    with fpstore.open({str(path)!r}) as s:\n        s.probe(1, 9); s.probe(2, 9)\n"
    )
    out = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert out.stderr.count("ScanWarning: radius 9 is over the store's 2") == 2
