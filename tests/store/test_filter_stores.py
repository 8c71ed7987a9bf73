"""Stores keep their setting of filters, and write filters for the fingerprints they hold."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from commandline import fine
from filtering import (
    NEAR,
    STORED,
    N,
    as_fingerprints,
    assert_alike,
    files_of,
    generation_of,
    random_rows,
    shapes_of,
)
from speeds import slow

import fpstore
from fpstore.design.estimates import choose_filters
from fpstore.design.filters import FilterShape
from fpstore.disk.mapped import PAGES
from fpstore.format.filter import filter_name
from fpstore.format.manifest import read_manifest


def check_filters(path: Path, wanted: bool | str) -> dict[int, FilterShape]:
    """Check that a store has the filters that its setting and size ask for, whole and no others.

    Return their shapes.
    """
    with fpstore.open(path) as store:
        manifest, count = read_manifest(path), generation_of(store).count
        assert manifest.filter == wanted
        expected = choose_filters(store.design, count, manifest.blocks)
        assert manifest.generation.filters == sorted(expected)
        assert shapes_of(store) == expected
        assert list(files_of(path)) == [filter_name(table) for table in sorted(expected)]
        assert store.stats()["bytes"]["filters"] == sum(files_of(path).values())
        assert store.verify().ok
        return expected


@pytest.mark.parametrize(
    ("wanted", "prefer", "kept"),
    [
        (True, "balance", True),
        (True, "space", True),
        (False, "speed", False),
        ("auto", "balance", "auto"),
        ("auto", "speed", True),
        ("auto", "space", False),
    ],
)
def test_what_a_store_remembers(tmp_path, wanted, prefer, kept):
    """A preference settles what is left to choose."""
    path = tmp_path / "s"
    fpstore.build(path, STORED, design="flip-2", filter=wanted, prefer=prefer).close()
    shapes = check_filters(path, kept)
    rule = {True: "all that save time", False: "none", "auto": "those that pay for their bytes"}[
        kept
    ]
    assert re.search(f"filters +{rule} *\n", fine("stats", path))
    assert set(shapes) == ({0, 1} if kept is True else set() if kept is False else set(shapes))
    (chosen,) = [p for p in fpstore.plan(N, filter=wanted, prefer=prefer) if p.name == "flip-2"]
    assert chosen.filters == len(shapes)
    with fpstore.open(path, "r+") as store:
        store.insert(NEAR[:10], np.arange(10))
        store.merge()
    check_filters(path, kept)


@pytest.mark.parametrize("pages", PAGES)
def test_with_each_way_to_load_pages(tmp_path, pages):
    """And closing gives the filters back."""
    path = tmp_path / "a.fps"
    fpstore.build(path, STORED, design="manku-10", filter=True).close()
    with (
        fpstore.build(tmp_path / "without.fps", STORED, design="manku-10", filter=False) as plain,
        fpstore.open(path, pages=pages) as store,
    ):
        assert_alike(store.probe_many(STORED), plain.probe_many(STORED))
        generation = generation_of(store)
        assert len(generation.filters) == 10
        assert store.stats()["bytes"]["filters"] == sum(files_of(path).values())
        assert plain.stats()["bytes"]["filters"] == 0
        assert store.stats()["bytes"]["total"] > plain.stats()["bytes"]["total"]
    assert not generation.filters


def test_changes_and_merges(tmp_path):
    """A merge writes filters for the new number of fingerprints; readers and writers take them."""
    path = tmp_path / "a.fps"
    fpstore.build(path, STORED, design="flip-2", filter=True).close()
    before = check_filters(path, True)
    more = as_fingerprints(random_rows(8 * N, 64, 5))
    with (
        fpstore.open(path, "r+") as writer,
        fpstore.open(path) as reader,
        fpstore.build(
            tmp_path / "without.fps", np.concatenate([STORED, more]), design="flip-2", filter=False
        ) as plain,
    ):
        writer.insert(more, np.arange(len(more)) + 10**6)
        queries = np.concatenate([NEAR, more ^ np.uint64(1 << 30)])
        for store in (writer, reader):
            assert_alike(store.probe_many(queries), plain.probe_many(queries))
        writer.merge()
        for store in (writer, reader):
            assert_alike(store.probe_many(queries), plain.probe_many(queries))
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert len(generation_of(copy).filters) == 2
            assert_alike(copy.probe_many(queries), plain.probe_many(queries))
    after = check_filters(path, True)
    assert all(after[table].prefix_bits > before[table].prefix_bits for table in (0, 1))


def test_from_none_to_some_and_back(tmp_path):
    """An empty store has no filters, and gets them when a merge fills it."""
    path = tmp_path / "a.fps"
    fpstore.build(path, [], design="flip-2", filter=True).close()
    assert check_filters(path, True) == {}
    with fpstore.open(path, "r+") as store:
        store.insert(STORED)
        store.merge()
        assert set(check_filters(path, True)) == {0, 1}
        store.delete(fingerprints=STORED[10:])
        store.merge()
    assert check_filters(path, True) == {}


@pytest.mark.parametrize("wanted", [True, False, "auto"])
def test_other_designs(tmp_path, wanted):
    path = tmp_path / "a.fps"
    fpstore.build(path, STORED, design="flip-2", filter=wanted).close()
    for name in ("manku-10", "columns-4", "flip-1"):
        with fpstore.open(path, "r+") as store:
            store.redesign(name)
        shapes = check_filters(path, wanted)
        assert not shapes or name != "columns-4"
        assert wanted is not True or bool(shapes) == (name != "columns-4")
        with fpstore.open(path) as store:
            assert (np.diff(store.probe_many(NEAR).lims) >= 1).all()


@pytest.mark.parametrize("wanted", [True, slow(False), slow("auto")])
def test_backups_splits_and_joins(tmp_path, wanted):
    path = tmp_path / "a.fps"
    with fpstore.build(path, STORED, np.arange(N), design="flip-2", filter=wanted) as store:
        shapes = check_filters(path, wanted)
        store.backup(tmp_path / "copy.fps")
        assert check_filters(tmp_path / "copy.fps", wanted) == shapes
        assert files_of(tmp_path / "copy.fps") == files_of(path)
        parts = store.split(tmp_path / "parts", 2)
    for part in parts:
        check_filters(part, wanted)
    with fpstore.open(parts[0], "r+") as store:
        store.absorb(*parts[1:])
        assert len(store) == N
        assert (np.diff(store.probe_many(NEAR).lims) >= 1).all()
    assert check_filters(parts[0], wanted) == shapes
    assert files_of(parts[0]) == files_of(path)


@pytest.mark.parametrize("wanted", [True, slow(False), slow("auto")])
def test_a_repair_keeps_the_setting(tmp_path, wanted):
    path = tmp_path / "a.fps"
    fpstore.build(path, STORED, np.arange(N), design="flip-2", filter=wanted).close()
    shapes = check_filters(path, wanted)
    (path / "gen-00000001" / "table-001.fpt").unlink()
    report = fpstore.repair(path)
    assert report.complete
    assert check_filters(Path(report.output), wanted) == shapes
    assert files_of(Path(report.output)) == files_of(path)


@pytest.mark.parametrize("width", [64, slow(256)])
def test_each_way_to_build_writes_the_same(tmp_path, set_limits, width):
    """In memory, on several threads, of sorted parts on disk, and by a merge."""
    stored = as_fingerprints(random_rows(3_000, width, 1), width)

    def built(name, threads=1):
        fpstore.build(
            tmp_path / name,
            stored,
            width=width,
            design="flip-2",
            filter=True,
            memory="64MiB",
            threads=threads,
        ).close()
        return contents(name)

    def contents(name):
        return [file.read_bytes() for file in sorted(tmp_path.glob(f"{name}/gen-*/filter-*"))]

    expected = built("memory")
    assert len(expected) == 2
    assert built("threads", 3) == expected
    fpstore.build(
        tmp_path / "merged", stored[:100], width=width, design="flip-2", filter=True
    ).close()
    with fpstore.open(tmp_path / "merged", "r+") as store:
        store.insert(stored[100:])
        store.merge()
    assert contents("merged") == expected
    # so that some thousand rows go through files
    set_limits(pair_bytes=1 << 16, sort_bytes=1 << 15, table_memory=1)
    assert built("disk, threads", 2) == expected
