"""Vectors that are inserted into stores of vectors.

In the way that the store remembers, with ids or numbered on.
"""

import json
import math
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run

import fpstore
from fpstore import HyperplaneHash, InputError
from fpstore.hashing import VectorReader

DIMENSION = 16
OLD, NEW = np.random.default_rng(1).normal(size=(2, 20, DIMENSION)).astype(np.float32)
HASHER = HyperplaneHash(dimension=DIMENSION, width=128, seed=9)


def fingerprints(vectors):
    """Return fingerprints as the numbers that a store lists."""
    return [HASHER.fingerprint(vector) for vector in vectors]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make files of vectors, a store with row numbers and a store with names as ids."""
    place = tmp_path_factory.mktemp("made")
    with chdir(place):
        make()
    return place


@pytest.fixture
def here(made, tmp_path, monkeypatch):
    """Copy them, and make that the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make():
    np.save("old.npy", OLD)
    np.save("new.npy", NEW)
    for name, vectors in (("old", OLD), ("new", NEW)):
        columns = {
            "vector": list(vectors),
            "id": [f"{name} {i}" for i in range(20)],
            "e": list(vectors),
            "number": range(50, 70),
        }
        pq.write_table(pa.table(columns), f"{name}.parquet")
    options = ("--vector", "--width", 128, "--seed", 9, "--radius", 20, "-q")
    fine("build", "rows", "old.npy", *options)
    fine("build", "names", "old.parquet", *options)
    fine("build", "numbers", "old.parquet", "--id-field", "number", *options)
    Path("t.jsonl").write_text('{"text": "some words"}\n')
    fine("build", "texts", "t.jsonl", "--text-field", "text", "-q")
    fpstore.build("plain", [1, 2]).close()


def test_store_fingerprints_new_vectors_as_it_did_the_old(here):
    out = json.loads(fine("insert", "rows", "new.npy", "--json"))
    assert out == {"rows": 20, "inserted": 20, "fingerprints": 40, "ids": 40}
    with fpstore.open("rows") as store:
        assert store.fingerprinter == HASHER.describe()
        assert [store.ids[i] for i in range(40)] == [[f] for f in fingerprints([*OLD, *NEW])]
    assert fine("insert", "names", "new.parquet").startswith("names: 20 rows of 20 inserted, ")
    assert fine("insert", "names", "new.parquet").startswith("names: 0 rows of 20 inserted, ")
    with fpstore.open("names") as store:
        assert [store.ids[f"new {i}"] for i in range(20)] == [[f] for f in fingerprints(NEW)]
    pq.write_table(pa.table({"e": list(NEW), "number": range(80, 100)}), "later.parquet")
    fine("insert", "numbers", "later.parquet", "--vector-field", "e", "--id-field", "number", "-q")
    with fpstore.open("numbers") as store:
        assert [store.ids[i] for i in range(80, 100)] == [[f] for f in fingerprints(NEW)]


def test_numbers_go_on_behind_vectors_that_were_left_out(here):
    vectors = NEW.copy()
    vectors[[0, 19]] = 0
    np.save("some.npy", vectors)
    fine("build", "s", "some.npy", "--vector", "-q")
    with fpstore.open("s", "r+") as store:  # which counts vectors that were left out
        assert (len(store.ids), store.stats()["id_kind"]) == (18, "row")
        assert (store.insert([1]), store.ids[20]) == (1, [1])
    fine("build", "s", "old.npy", "--vector", "-q", "--force")
    for first in (20, 39):  # after the largest id in the store
        done = run("insert", "s", "some.npy")
        assert done.stderr == (
            "fpstore: 2 vectors left out, all components 0: some.npy vector 0, some.npy vector 19\n"
        )
        assert done.stdout.startswith("s: 18 rows of 18 inserted, ")
        with fpstore.open("s") as store:
            assert (first in store.ids, first + 1 in store.ids, first + 18 in store.ids) == (
                False,
                True,
                True,
            )
    assert run("insert", "s", "some.npy", "-q").stderr == ""


def test_unmatched_and_upsert_take_vectors(here):
    near = OLD.copy()
    near[:5] = NEW[:5]
    np.save("near.npy", near)
    matches = [
        line.split("\t")[3]
        for line in run("insert", "rows", "near.npy", "--unmatched", "-r", 0).stdout.splitlines()
    ]
    assert matches == [str(i) for i in range(5, 20)]
    with fpstore.open("rows") as store:
        assert sorted(store) == sorted(fingerprints([*OLD, *NEW[:5]]))
    columns = {"vector": list(near), "id": [f"old {i}" for i in range(20)]}
    pq.write_table(pa.table(columns), "near.parquet")
    assert fine("insert", "names", "near.parquet", "--upsert").startswith(
        "names: 5 rows of 20 changed, "
    )
    with fpstore.open("names") as store:
        assert [store.ids[f"old {i}"] for i in range(20)] == [[f] for f in fingerprints(near)]
    for query in (("rows", "new.npy"), ("texts", "t.jsonl", "--text-field", "text")):
        message = failure("insert", *query, "--upsert")
        assert (
            "--upsert needs an id in each row: without ids, rows cannot replace others" in message
        )


def test_wrong_vectors_are_refused_and_change_nothing(here):
    def with_number(number):
        vectors = NEW.astype(np.float64)
        vectors[7, 2] = number
        return vectors

    for vectors, message in (
        (NEW[:, :12], "a.npy: vector 0: has 12 components, and the fingerprinter is for 16"),
        (
            with_number(-math.inf),
            "a.npy: vector 7: component 2 is -inf: vectors have finite numbers",
        ),
        (NEW * 0, "a.npy: no vector to make a fingerprint of; left out: 20 (all components 0)"),
        (NEW[0], "vectors are rows of an array of two dimensions"),
        (NEW[:0], "a.npy: no vector to make a fingerprint of"),
        (with_number(math.nan), "a.npy: vector 7: component 2 is nan: vectors have finite numbers"),
    ):
        np.save("a.npy", vectors)
        assert message in failure("insert", "rows", "a.npy")
        with fpstore.open("rows") as store:
            assert sorted(store) == sorted(fingerprints(OLD))
    expected = failure("insert", "rows", "new.npy", "a.npy")
    assert "a.npy: vector 7: component 2 is nan" in expected
    assert (
        "before that, 20 rows of the first 20 were inserted; insert only the rows after these"
        in expected
    )
    expected = failure("insert", "names", "new.parquet", "a.npy")
    assert "a.npy: no id here, but earlier rows have one" in expected
    assert "repeat the command: a row that is stored is not added again" in expected


def test_wrong_use_is_refused_and_changes_nothing(here):
    for arguments, code, message in (
        (
            ["rows", "new.npy", "--vector-field", "e", "--fingerprints"],
            2,
            "--vector-field is for vectors, not for fingerprints",
        ),
        (
            ["rows", "new.npy", "--text-field", "t"],
            1,
            "were made of vectors (hyperplane), so it takes no columns of texts",
        ),
        (
            ["rows", "new.npy", "--format", "npy"],
            2,
            "--format is for fingerprints and columns of texts (--text-field), not for",
        ),
        (
            ["rows", "new.npy", "--suffix", ".npy"],
            2,
            "--suffix is for files of texts and pictures, not for vectors",
        ),
        (["rows", "new.npy", "--vector-field", "e"], 1, "a .npy file has no columns"),
        (
            ["names", "new.npy"],
            1,
            "its ids are not row numbers: name the column of ids with --id-field: .npy",
        ),
        (["rows", "new.parquet"], 1, "ids"),
        (["texts", "new.npy"], 1, "holds rows, not one text"),
    ):
        assert message in failure("insert", *arguments, code=code)
        with fpstore.open(arguments[0]) as store:
            assert len(store) in (1, 2, 20)
            assert store.stats()["delta"]["changes"] == 0


def test_a_reader_numbers_vectors_from_its_first_row(here):
    reader = VectorReader(["old.npy", "new.npy"], HASHER, first_row=7)
    assert (reader.row_numbers, reader.next_row) == (True, 7)
    for _ in range(2):
        assert np.concatenate([chunk.ids for chunk in reader]).tolist() == list(range(7, 47))
        assert reader.next_row == 47
    assert VectorReader("old.parquet", HASHER, first_row=7).row_numbers is False
    for wrong in (-1, 2**64, "1"):
        with pytest.raises(InputError, match="first_row"):
            VectorReader("old.npy", HASHER, first_row=wrong)
