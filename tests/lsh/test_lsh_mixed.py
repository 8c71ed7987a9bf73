"""Indexes with a store of another index: what open refuses, repair does not call sound."""

import random
import shutil

import pytest
from letters import Letters, some_words

import fpstore
from fpstore import CorruptStoreError, lsh

HASHER = Letters()
FORM = lsh.plan(1000, HASHER, 0.8, bands=(6, 3), radius=8)


@pytest.fixture
def indexes(tmp_path):
    paths = tmp_path / "i.lsh", tmp_path / "other.lsh"
    for seed, path in enumerate(paths):
        lsh.build(path, some_words(random.Random(seed), 60), hasher=HASHER, plan=FORM).close()
    return paths


def opened(path, mode="r"):
    return fpstore.open(path, mode, hasher=HASHER)


def put(source, target):
    shutil.rmtree(target)
    shutil.copytree(source, target)


def swap(path):
    (path / "keys").rename(path / "aside")
    (path / "documents").rename(path / "keys")
    (path / "aside").rename(path / "documents")


MIXED = {
    "documents of another": (
        lambda i, o: put(o / "documents", i / "documents"),
        "documents: belongs to another index",
    ),
    "keys of another": (lambda i, o: put(o / "keys", i / "keys"), "keys: belongs to another index"),
    "manifest of another": (
        lambda i, o: shutil.copy(o / "lsh.json", i / "lsh.json"),
        "documents: belongs to another index",
    ),
    "keys for documents": (
        lambda i, o: put(i / "keys", i / "documents"),
        "documents: holds the keys of this index",
    ),
    "documents for keys": (
        lambda i, o: put(i / "documents", i / "keys"),
        "keys: holds the documents of this index",
    ),
    "swapped": (lambda i, o: swap(i), "documents: holds the keys of this index"),
    "no documents": (lambda i, o: shutil.rmtree(i / "documents"), "documents: is missing"),
    "no keys": (lambda i, o: shutil.rmtree(i / "keys"), "keys: is missing"),
}


@pytest.mark.parametrize("case", MIXED)
def test_a_store_of_another_index_is_refused_by_name(indexes, case):
    path, other = indexes
    mix, message = MIXED[case]
    mix(path, other)
    for work in (opened, lambda path: opened(path, "r+"), fpstore.repair):
        with pytest.raises(CorruptStoreError, match=message) as caught:
            work(path)
        assert str(caught.value.path).startswith(str(path))
    assert sorted(p.name for p in path.parent.iterdir()) == ["i.lsh", "other.lsh"]


@pytest.mark.parametrize("part", ["documents", "keys"])
def test_a_nameless_store_in_an_index_is_not_repaired(indexes, part):
    path, _ = indexes
    put(path / ("keys" if part == "documents" else "documents"), path / part)
    (path / part / "manifest.json").unlink()
    (log,) = (path / part).glob("gen-*/log")
    log.write_bytes(bytes(64) + log.read_bytes()[64:])
    with pytest.raises(CorruptStoreError, match=f"i.lsh/{part}: .*nothing can be recovered"):
        fpstore.repair(path)


def test_an_index_that_does_not_open_is_not_sound(indexes, tmp_path):
    path, _ = indexes
    shutil.copytree(path / "keys", tmp_path / "keys")
    with opened(path, "r+") as index:
        index.merge()
        index.merge()
    # has all keys, but of a generation before those that lsh.json allows
    put(tmp_path / "keys", path / "keys")
    with pytest.raises(CorruptStoreError, match="is older"):
        opened(path)
    report = fpstore.repair(path)
    assert not report.sound
    assert [fault["message"] for fault in report.faults] == [
        f"{path}/keys: is older than the documents or lsh.json: " + AGE
    ]
    assert report.losses == []
    with opened(report.output) as index:
        assert len(index) == 60
        assert index.verify().ok


AGE = "restore all of them from one copy"


def test_verify_reads_the_manifest_of_the_index(indexes):
    path, other = indexes
    with opened(path) as index:
        assert index.verify().ok
        shutil.copy(other / "lsh.json", path / "lsh.json")
        assert "belongs to another index" in index.verify().faults[0]["message"]
        (path / "lsh.json").write_bytes(b"{")
        assert "lsh.json: damaged" in index.verify().faults[0]["message"]


def test_a_shard_of_another_store_is_refused_by_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            fpstore.build(
                tmp_path / name / f"shard-0000{number}.fps", [number, 99 * len(name)]
            ).close()
        fpstore.ShardedStore.combine(tmp_path / name).close()
    put(tmp_path / "b" / "shard-00001.fps", tmp_path / "a" / "shard-00001.fps")
    with pytest.raises(
        CorruptStoreError, match=r"shard-00001\.fps: another store is in the place of this shard"
    ):
        fpstore.open(tmp_path / "a")
