"""Odd calls of every public function, and the ones that once ended in an error of the inside."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore import InputError, lsh
from fpstore.plans import BuildSpec, DedupSpec, LshSpec, Plan

TOOL = Path(__file__).parents[2] / "tools" / "oddcalls"
TEXTS = [
    "it was the best of times it was the worst of times",
    "call me ishmael some years ago never mind how long",
]
HASHERS = {
    "minhash": fpstore.MinHash(),
    "sim-min-hash": fpstore.SimMinHash(),
    "hyperplanes": fpstore.HyperplaneHash(dimension=8),
    "p-stable": fpstore.PStable(dimension=8, radius=1),
    "bits": fpstore.BitSample(dimension=256),
    "unary": fpstore.Unary(dimension=32, low=0, high=9),
    "sketches": fpstore.PrecomputedMinHash(count=8),
}


@pytest.mark.full
def test_odd_calls_are_refused_clearly(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, TOOL, "--calls", "300", "--seed", "5"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0), done.stdout
    report = json.loads(done.stdout)
    assert (report["calls"], report["findings"]) == (300, 0)
    assert report["targets"] > 200


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("r", "b"):
        rows = [
            json.dumps({"id": f"{name}{place}", "text": text}) for place, text in enumerate(TEXTS)
        ]
        Path(f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    Path("link").symlink_to("link")
    return tmp_path


@pytest.mark.parametrize("name", ["text", "benchmark_text"])
def test_an_empty_name_of_a_column_is_refused(here, name):
    with pytest.raises(InputError, match=f"{name} must be the name of a column"):
        fpstore.decontaminate("r.jsonl", "b.jsonl", **{"text": "text", name: ""})


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "link"])
def test_a_path_that_the_system_refuses_is_named(here, name):
    with pytest.raises(fpstore.StorageError):
        fpstore.dedup("r.jsonl", name, text="text")
    with pytest.raises(fpstore.StorageError):
        fpstore.dedup("r.jsonl", text="text", against=name)
    with pytest.raises(fpstore.StorageError):
        fpstore.decontaminate("r.jsonl", "b.jsonl", name, text="text")
    with pytest.raises(fpstore.StorageError):
        Plan.of(DedupSpec("r.jsonl", name, text="text"), "plan")


def test_arrays_in_place_of_choices_and_numbers_are_refused(here):
    odd = np.array([1, 2])
    with pytest.raises(InputError, match="method"):
        Plan.of(BuildSpec("r.jsonl", "out", text="text", method=odd), "plan")
    with pytest.raises(InputError, match="documents"):
        LshSpec("r.jsonl", "out", text="text", threshold=0.8, documents=np.array(3.5))
    with pytest.raises(InputError, match="iterable of texts"):
        lsh.build("i.lsh", np.array(3), hasher=fpstore.MinHash(), threshold=0.8)
    with pytest.raises(InputError, match="columns must be a list of names"):
        fpstore.io.open_writer("w.csv", columns=[[1], [2]])


def test_what_is_no_fingerprinter_is_refused(here):
    np.save("v.npy", np.ones((2, 8), np.float32))
    for fingerprinter in (None, 7, fpstore.SimHash):
        with pytest.raises(
            InputError, match="fingerprinter must be SimHash, MinHash or LongestSentences"
        ):
            fpstore.calibration.Comparison(fingerprinter, "a", "b")
    for fingerprinter in (int, lambda dimension: []):
        with pytest.raises(InputError, match="fingerprinter must be one of vectors"):
            fpstore.hashing.VectorReader("v.npy", fingerprinter)
    with pytest.raises(InputError, match="item 1: expected a text"):
        fpstore.MinHash().feature_sets(["a b", 7])


def test_odd_arguments_of_an_index_are_refused(here):
    lsh.build("i.lsh", TEXTS, hasher=fpstore.MinHash(), threshold=0.8).close()
    with fpstore.open("i.lsh", "r+") as index:
        with pytest.raises(InputError, match="verify must be a function"):
            index.probe_many(TEXTS, verify=5)
        for call in (
            lambda: index.probe_insert("some new text of words", 7, sync="nonsense"),
            # none of which is inserted
            lambda: index.probe_insert_many(TEXTS, [7, 8], sync="nonsense"),
        ):
            with pytest.raises(InputError, match="sync must be one of"):
                call()
        assert len(index) == 2


@pytest.mark.parametrize("hasher", HASHERS.values(), ids=HASHERS)
@pytest.mark.parametrize("odd", ["x", None, float("nan"), -3, [0.5], np.zeros(2)])
def test_odd_values_of_a_measure_are_refused(hasher, odd):
    for law in (
        hasher.law.collision,
        hasher.law.differing,
        lambda value: hasher.law.band_collision(value, 3),
    ):
        with pytest.raises(InputError):
            law(odd)


@pytest.mark.parametrize("hasher", HASHERS.values(), ids=HASHERS)
def test_odd_numbers_of_a_hasher_are_refused(hasher):
    for distances in ("x", [999], [-1], [0.5], None, [[None]]):
        with pytest.raises(InputError, match="distances must be whole numbers"):
            hasher.estimate(distances)
    for rows in (0, -1, "x", 0.5, None):
        with pytest.raises(InputError):
            hasher.law.band_collision(0.5, rows)
    with pytest.raises(InputError):
        hasher.similarities("a b c" if hasher.items == "texts" else np.ones(8), 3)
    for bands, rows, count in (
        (0, 1, 1),
        (1, "x", 1),
        (1, 1, None),
        (-2, -3, 1),
        (1 << 20, 1 << 20, 1),
    ):
        with pytest.raises(InputError):
            hasher.probes(np.ones(8), bands, rows, count)


def test_odd_places_of_clusters_are_refused(here):
    clusters = fpstore.build("s.fps", [7, 11, 1 << 40]).clusters(3)
    assert clusters.first(0, 1) == [0]
    for place, count in ((1, 1), (-1, 1), ("x", 1), (np.array(["a"]), 1), (0, -1), (0, None)):
        with pytest.raises(InputError, match="must be a whole number"):
            clusters.first(place, count)
    for odd in (-1, "x", 0.5, None):
        with pytest.raises(InputError, match="count must be a whole number"):
            clusters.largest(odd)


def test_a_design_of_blocks_has_no_thresholds(here):
    design = fpstore.build("s.fps", [7, 11]).design
    assert design.thresholds(3) == []
    for odd in ("x", -1, 0.5, None, float("inf")):
        with pytest.raises(InputError, match="fingerprint_count"):
            design.lookups(odd)
