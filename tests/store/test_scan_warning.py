"""A probe above the store's radius is a scan, and warns once per store object."""

import warnings

import numpy as np
import pytest
from building import run_python

import fpstore
from fpstore import ScanWarning

FINGERPRINTS = np.random.default_rng(3).integers(0, 2**64, 5000, np.uint64)


@pytest.fixture
def path(tmp_path):
    fpstore.build(tmp_path / "s", FINGERPRINTS, radius=2).close()
    return tmp_path / "s"


FAR = 3  # over the store's radius of 2, and not so far that a scan would be the best design


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
        assert text.startswith(
            f"radius {FAR} is over the store's 2: every one of 5,000 fingerprints is compared"
        )
        best = fpstore.plan(5000, FAR)[0]
        assert (
            f"radius {FAR} (design {best.name}, {best.bytes_per_fingerprint:.1f} bytes per "
            "fingerprint) answers from its tables" in text
        )
        assert "\n" not in text


def test_what_scans_on_purpose_does_not_warn(path):
    with fpstore.open(path) as store, warnings.catch_warnings():
        warnings.simplefilter("error")
        store.scan(FINGERPRINTS[:3], 9)
        store.nearest_many(FINGERPRINTS[:3], 5)
        store.probe(1, 2)
    with (
        fpstore.build(path.parent / "t", FINGERPRINTS, radius=40) as store,
        warnings.catch_warnings(),
    ):
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
    with (
        fpstore.open(path) as store,
        pytest.warns(ScanWarning, match="No design answers radius 30 faster than this scan"),
    ):
        store.probe(1, 30)


@pytest.mark.full
def test_a_script_shows_it_for_each_of_two_stores(path):
    program = """
        import sys, fpstore
        for _ in range(2):
            with fpstore.open(sys.argv[1]) as store:
                store.probe(1, 9), store.probe(2, 9)
    """
    code, _, err = run_python(program, path)
    assert (code, err.count("ScanWarning: radius 9 is over the store's 2")) == (0, 2)
