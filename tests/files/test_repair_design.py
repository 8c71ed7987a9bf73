"""Repair after a merge has changed the design.

What is current counts, not what the first generation was.
"""

import shutil

import numpy as np
import pytest
from repairing import current, flip
from small_stores import content, rows_of
from speeds import slow

import fpstore
from fpstore.format.layout import table_name
from fpstore.format.log import LOG_FILE
from fpstore.format.manifest import MANIFEST_FILE

COUNT = 1000
FINGERPRINTS = np.random.default_rng(31).integers(0, 2**64, COUNT, np.uint64)


def grown(path, design="auto", kind="row", first=2):
    """Build a small store, insert many times as much, and merge it into another design."""
    ids = None if kind == "row" else [f"d{i}" for i in range(COUNT)]
    start, rest = (None, None) if ids is None else (ids[:first], ids[first:])
    fpstore.build(
        path, FINGERPRINTS[:first], start, radius=3, design=design, fingerprinter=fpstore.SimHash()
    ).close()
    with fpstore.open(path, "r+") as store:
        before = store.design
        store.insert(FINGERPRINTS[first:], rest)
        store.redesign("manku-4")
        assert store.design.name == "manku-4" != before.name
    return path


@pytest.fixture(scope="module", params=["row", slow("string")])
def good(request, tmp_path_factory):
    path = grown(tmp_path_factory.mktemp("good") / "s", "flip-1", request.param)
    return path, content(path)


def test_repair_after_a_change_of_design_keeps_what_is_intact(tmp_path):
    path = tmp_path / "s"
    fingerprints = np.random.default_rng(7).integers(0, 2**64, 40_000, np.uint64)
    fpstore.build(path, fingerprints[:2], radius=3).close()
    with fpstore.open(path, "r+") as store:
        first = store.design.name
        store.insert(fingerprints[2:])
        store.merge()
        assert store.design.name != first
    right = content(path)
    with fpstore.open(path) as store:
        design, settings = store.design, store.snapshot().generation.manifest
    for at in (5000, 50_000, 150_000):
        flip(path / current(path) / table_name(0), at)
    report = fpstore.repair(path)
    assert report.complete, report.losses
    assert not any("another design" in fault["message"] for fault in report.faults)
    with fpstore.open(report.output) as store:
        assert rows_of(store) == right
        assert store.design == design
        assert store.snapshot().generation.manifest.auto == settings.auto


@pytest.mark.parametrize("lost", ["log", "manifest"])
def test_the_design_when_a_record_is_lost(good, tmp_path, lost):
    path, right = shutil.copytree(good[0], tmp_path / "s"), good[1]
    folder = path / current(path)
    if lost == "log":
        flip(folder / LOG_FILE, 50)
    else:
        (path / MANIFEST_FILE).unlink()
    flip(folder / table_name(1), 4096 + 40)
    with fpstore.open(good[0]) as store:
        before = store.design
    report = fpstore.repair(path)
    assert content(report.output) == right
    with fpstore.open(report.output) as store:
        assert store.radius == 3
        assert store.design.tables == before.tables or lost == "manifest"
        assert store.fingerprinter == (fpstore.SimHash().describe() if lost == "log" else None)
        kind = store.stats()["id_kind"]
    assert kind == ("string" if any(isinstance(i, str) for _, i in right) else "row")
    if kind == "row":
        with fpstore.open(report.output, "r+") as store:
            store.insert(np.array([77], np.uint64))
            assert store[77] == [COUNT]
