"""Designs of stores that grow, and what is counted."""

import numpy as np
import pytest

import fpstore

FRESH = np.random.default_rng(5).integers(0, 2**64, 40_000, np.uint64)


def test_a_store_that_starts_empty_gets_the_tables_that_it_needs(tmp_path):
    fpstore.build(tmp_path / "s", []).close()
    with fpstore.open(tmp_path / "s") as reader, fpstore.open(tmp_path / "s", "r+") as store:
        before = reader.design
        store.insert(FRESH, np.arange(len(FRESH), dtype=np.uint64))
        store.merge()
        assert store.design == reader.design != before
        assert store.design == fpstore.build(tmp_path / "anew", FRESH).design
        assert store.verify().ok
        assert [len(found) for found in reader.probe_many(FRESH[:50] ^ np.uint64(5))] == [1] * 50
        store.insert(FRESH[:100] ^ np.uint64(1 << 40), np.arange(100, dtype=np.uint64))
        now = store.design
        store.merge()
        assert store.design == now  # a little more is no reason


class Asked:
    """A delta that notes by what it was asked."""

    def __init__(self, kernel):
        self.kernel, self.names = kernel, []

    def __getattr__(self, name):
        self.names.append(name)
        return getattr(self.kernel, name)


@pytest.mark.parametrize(("design", "radius", "way"), [("flip-1", 3, "probe"), ("scan", 3, "probe"), ("flip-1", 4, "scan")])
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_a_delta_is_looked_up_beside_tables_that_are_scanned(tmp_path, monkeypatch, design, radius, way):
    path = tmp_path / "a.fps"
    fpstore.build(path, [], design=design).close()
    rows = np.random.default_rng(1).integers(0, 2**64, 2_000, dtype=np.uint64)
    with fpstore.open(path, "r+") as store:
        store.insert(rows)
        snapshot = store._tracker.snapshot()
        asked = Asked(snapshot._delta_kernel)
        monkeypatch.setattr(snapshot, "_delta_kernel", asked)
        found = store.probe_many(rows[:50] ^ np.uint64(5), radius)
        assert found.fingerprints.tolist() == rows[:50].tolist()
    assert way in asked.names
    assert {"probe": "scan", "scan": "probe"}[way] not in asked.names


def test_a_design_that_was_named_stays_until_another_is(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100], design="flip-2").close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[100:], np.arange(100, len(FRESH), dtype=np.uint64))
        store.merge()
        assert store.design.name == "flip-2"
        store.redesign("manku-10")  # also without any change
        assert (store.design.name, store.stats()["generation"]) == ("manku-10", 3)
        assert store.verify().ok
        with fpstore.build(tmp_path / "anew", FRESH, design="manku-10") as anew:
            folders = tmp_path / "s" / "gen-00000003", anew.path / "gen-00000001"
            for i in range(10):
                name = f"table-{i:03d}.fpt"
                assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
        store.redesign("auto")
        assert store.design.name != "manku-10"
        with pytest.raises(fpstore.InputError, match="nonsense"):
            store.redesign("nonsense")
    with fpstore.open(tmp_path / "s") as store:
        assert len(store) == len(FRESH)


def test_verify_counts_what_is_stored_now(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[95:110])
        store.delete(fingerprints=FRESH[:3])
        report = store.verify()
        assert (report.ok, report.fingerprints, report.ids) == (True, 107, 112)
        assert (len(store), len(store.ids)) == (107, 112)


def test_stats_of_a_store_that_was_replaced(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[100:110])
    with fpstore.open(tmp_path / "s") as reader:
        before = reader.stats()
        assert before["bytes"]["delta"] > 0
        fpstore.build(tmp_path / "s", FRESH[:7], overwrite=True).close()
        stats = reader.stats()
        assert (stats["fingerprints"], stats["bytes"]["delta"]) == (110, before["bytes"]["delta"])
