"""Files of vectors: fingerprints and ids of their rows, stores made of them, and searches."""

import itertools
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run

import fpstore
from fpstore import BitSample, HyperplaneHash, InputError, StorageError, Unary
from fpstore.hashing import VectorReader, from_description

DIMENSION = 16
VECTORS = np.random.default_rng(1).normal(size=(30, DIMENSION)).astype(np.float32)
HASHER = HyperplaneHash(dimension=DIMENSION, width=128, seed=3)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("v.npy", VECTORS)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.reshape(-1)), DIMENSION)
    names = [f"name {i}" for i in range(30)]
    pq.write_table(pa.table({"vector": fixed, "id": names}), "v.parquet", row_group_size=7)
    pq.write_table(pa.table({"e": list(VECTORS), "number": range(100, 130)}), "lists.parquet")
    return tmp_path


def rows_of(reader):
    """Return all fingerprints and ids of a reader."""
    chunks = list(reader)
    ids = [
        i
        for chunk in chunks
        for i in (chunk.ids if isinstance(chunk.ids, list) else chunk.ids.tolist())
    ]
    return np.concatenate([chunk.fingerprints for chunk in chunks]), ids


def test_files_give_the_fingerprints_of_their_vectors(here, set_limits):
    for piece, (path, fields, ids) in itertools.product(
        (4, 1 << 13),
        (
            ("v.npy", {}, range(30)),
            ("v.parquet", {}, [f"name {i}" for i in range(30)]),
            ("lists.parquet", {"vector_field": "e"}, range(30)),
            ("lists.parquet", {"vector_field": "e", "id_field": "number"}, range(100, 130)),
            (
                "lists.parquet",
                {"vector_field": "e", "id_field": "number", "id_type": "str"},
                list(map(str, range(100, 130))),
            ),
        ),
    ):
        set_limits(vector_rows=piece)
        reader = VectorReader(path, HASHER, **fields)
        for _ in range(2):  # it can be read again
            rows, found_ids = rows_of(reader)
            assert (rows == HASHER.fingerprints(VECTORS)).all()
            assert found_ids == list(ids)
            assert reader.bytes_done == reader.bytes_total
        made = VectorReader(path, lambda dimension: HyperplaneHash(dimension=dimension), **fields)
        assert made.fingerprinter == HyperplaneHash(dimension=DIMENSION)


def test_vectors_of_several_files_are_numbered_on(here):
    other = VECTORS[:5].astype(np.float64)
    other[2] = 0
    np.save("w.npy", other)
    seen = []
    rows, ids = rows_of(
        VectorReader(
            ["v.npy", "w.npy", "v.npy"], HASHER, on_notice=lambda *notice: seen.append(notice)
        )
    )
    assert ids == [*range(32), *range(33, 65)]
    assert seen == [("w.npy", 2)]
    assert (rows == HASHER.fingerprints(np.vstack([VECTORS, other[[0, 1, 3, 4]], VECTORS]))).all()


def write(name, **columns):
    pq.write_table(pa.table(columns), name)
    return name


def test_files_without_such_vectors_are_refused(here):
    for make, message in (
        (lambda: np.save("a.npy", np.ones(3)), "two dimensions"),
        (lambda: np.save("a.npy", np.ones((3, 4))), "a.npy: vector 0: has 4 components"),
        (lambda: np.save("a.npy", np.array([["x"] * DIMENSION])), "numbers of type <U1"),
        (
            lambda: np.save("a.npy", np.zeros((3, DIMENSION))),
            "no vector to make a fingerprint of; left out: 3 .all comp",
        ),
        (
            lambda: np.save("a.npy", np.where(np.eye(20, DIMENSION, -15), math.nan, 1.0)),
            "a.npy: vector 15: component 0 is nan",
        ),
        (lambda: Path("a.npy").write_bytes(b"\x93NUMPY"), "a.npy: not a readable .npy file"),
        (lambda: Path("a.npy").write_bytes(b""), "a.npy: not a readable .npy file"),
        (
            lambda: Path("a.npy").write_bytes(Path("v.npy").read_bytes()[:-5]),
            "a.npy: not a readable .npy file: it is shorter",
        ),
        (
            lambda: np.save("a.npy", np.array([[{}] * DIMENSION]), allow_pickle=True),
            "a.npy: not a readable .npy file",
        ),
        (
            lambda: write("a.parquet", vector=[1.0]),
            "a.parquet: vectors must be lists of numbers, got a column of type double",
        ),
        (
            lambda: write("a.parquet", vector=[[1.0] * DIMENSION, None]),
            "a.parquet: vector 1: is null",
        ),
        (
            lambda: write("a.parquet", vector=[[1.0] * DIMENSION, [1.0]]),
            "a.parquet: vector 1: has 1 numbers",
        ),
        (lambda: write("a.parquet", vector=[[1.0] * DIMENSION], id=[None]), "id"),
        (
            lambda: write("a.parquet", vector=[[1.0] * DIMENSION] * 2, id=["a", None]),
            "row 2: the id is null",
        ),
        (lambda: Path("a.parquet").write_bytes(b"PAR1"), "a.parquet: not a readable Parquet file"),
        (lambda: Path("a.tsv").write_text("0"), "vectors are read from files named"),
    ):
        make()
        (path,) = here.glob("a.*")
        for fingerprinter in (HASHER, lambda dimension: HASHER):
            with pytest.raises(InputError, match=message) as caught:
                rows_of(VectorReader(path.name, fingerprinter))
            assert str(caught.value).count(path.name) == 1
        path.unlink()
    with pytest.raises(InputError, match=r"v.npy: no id here, but earlier rows have one"):
        rows_of(VectorReader(["v.parquet", "v.npy"], HASHER))


def test_arguments_of_the_reader_are_checked(here):
    with pytest.raises(StorageError, match="no such file"):
        VectorReader("gone.npy", HASHER)
    with pytest.raises(InputError, match="no files"):
        VectorReader([], HASHER)
    with pytest.raises(InputError, match="fingerprinter must be one of vectors"):
        VectorReader("v.npy", 3)
    for paths in (5, None, b"v.npy"):
        with pytest.raises(InputError, match="paths must be a path or an iterable of paths, got"):
            VectorReader(paths, HASHER)
    with pytest.raises(InputError, match="on_notice must be a function"):
        VectorReader("v.npy", HASHER, on_notice=5)
    with pytest.raises(InputError, match=r"a \.npy file has no columns"):
        VectorReader("v.npy", HASHER, vector_field="e")


def test_memory_does_not_grow_with_the_file(tmp_path):
    peaks = []
    for count in (20_000, 80_000):
        np.save(tmp_path / "v.npy", np.ones((count, 64), np.float32))
        reader = VectorReader(tmp_path / "v.npy", HyperplaneHash(dimension=64))
        tracemalloc.start()
        assert sum(len(chunk.fingerprints) for chunk in reader) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    "hasher",
    [HASHER, BitSample(dimension=100, seed=2), Unary(dimension=3, low=-5, high=5, width=32)],
)
def test_a_store_remembers_fingerprinters_of_vectors(tmp_path, hasher):
    items = np.eye(3, hasher.dimension, dtype=np.float32 if hasher is HASHER else np.int64)
    with fpstore.build(
        tmp_path / "s", hasher.fingerprints(items), width=hasher.width, fingerprinter=hasher
    ) as store:
        made = from_description(json.loads(json.dumps(store.fingerprinter)))
    assert made == hasher
    assert made.items == "vectors"
    assert (made.fingerprints(items) == hasher.fingerprints(items)).all()


def test_the_command_writes_fingerprints_and_ids(here):
    hasher = HyperplaneHash(dimension=DIMENSION)
    expected = [f"{f:016x}" for f in hasher.fingerprints(VECTORS).tolist()]
    assert fine("hash", "--vector", "v.npy") == "".join(
        f"{f}\t{i}\n" for i, f in enumerate(expected)
    )
    lines = fine("hash", "--vector", "v.parquet", "--json").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"fingerprint": f, "id": f"name {i}"} for i, f in enumerate(expected)
    ]
    columns = ("--vector-field", "e", "--id-field", "number")
    fine("hash", "--vector", "lists.parquet", *columns, "-o", "out.parquet", "--width", "256")
    table = pq.read_table("out.parquet")
    assert table["id"].to_pylist() == list(range(100, 130))
    wide = HyperplaneHash(dimension=DIMENSION, width=256).fingerprints(VECTORS)
    assert table["fingerprint"].to_pylist() == [row.tobytes() for row in wide]


def test_the_command_says_which_vectors_are_left_out(here):
    vectors = VECTORS.copy()
    vectors[[3, 5, 7, 9]] = 0
    np.save("w.npy", vectors)
    result = run("hash", "--vector", "w.npy")
    assert result.exit_code == 0
    assert [int(line.split("\t")[1]) for line in result.stdout.splitlines()] == [
        i for i in range(30) if vectors[i].any()
    ]
    left_out = (
        "4 vectors left out, all components 0: w.npy vector 3, w.npy vector 5, w.npy vector 7 and "
        "1 more"
    )
    assert result.stderr == f"fpstore: {left_out}\n"
    assert run("hash", "--vector", "w.npy", "-q").stderr == ""
    vectors[8, 2] = math.inf
    np.save("w.npy", vectors)
    assert (
        "w.npy: vector 8: component 2 is inf"
        in run("hash", "--vector", "w.npy", "-o", "out.tsv").stderr
    )
    assert not (here / "out.tsv").exists()


def test_a_store_of_vectors_is_built_and_asked(here):
    fine("build", "s", "v.npy", "--vector", "--width", "128", "--seed", "9", "-r", "20", "-q")
    with fpstore.open("s") as store:
        assert (
            store.fingerprinter == HyperplaneHash(dimension=DIMENSION, width=128, seed=9).describe()
        )
        assert len(store.ids) == 30
    np.save("q.npy", VECTORS[[4, 8]] * 3.0)
    out = [
        json.loads(line) for line in fine("probe", "s", "q.npy", "--json", "-r", "0").splitlines()
    ]
    assert [[match["ids"] for match in line["matches"]] for line in out] == [[[4]], [[8]]]
    assert [line["query_id"] for line in out] == [0, 1]
    matches = fine("nearest", "s", "v.parquet", "--with-queries").splitlines()
    assert [line.split("\t")[3:] for line in matches] == [
        [str(i), str(i), f"name {i}"] for i in range(30)
    ]
    fine("build", "named", "v.parquet", "--vector", "-q")
    with fpstore.open("named") as store:
        matches = [store.ids[f"name {i}"][0] for i in range(30)]
    assert matches == HyperplaneHash(dimension=DIMENSION).fingerprints(VECTORS).tolist()


def test_options_that_do_not_go_together_are_refused(here):
    fine("build", "s", "v.npy", "--vector", "-q")
    for arguments, code, message in (
        (["build", "t", "v.npy", "--vector", "--text"], 2, "--vector does not go with --text"),
        (
            ["build", "t", "v.npy", "--seed", "3"],
            2,
            "--seed is for vectors (--vector), not for fingerprints",
        ),
        (
            ["build", "t", "v.npy", "--vector", "--decimal"],
            2,
            "--decimal is for fingerprints, not for vectors",
        ),
        (
            ["build", "t", "v.npy", "--vector", "--suffix", ".npy"],
            2,
            "--suffix is for files of texts and pictures (",
        ),
        (["probe", "s", "v.npy", "--text-field", "e"], 2, "so it takes no columns of texts"),
        (
            ["probe", "s", "v.npy", "--encoding", "cp437"],
            2,
            "--encoding is for files of texts and columns of texts",
        ),
        (
            ["probe", "s", "0x2a", "--vector-field", "e"],
            2,
            "--vector-field is for vectors, not for fingerprints",
        ),
        (
            ["hash", "v.npy"],
            2,
            "say what the inputs are: --text, --text-field, --image or --vector",
        ),
        (["hash", "--vector", "v.npy", "--vector-field", "e"], 1, "a .npy file has no columns"),
    ):
        assert message in failure(*arguments, code=code)
        assert not (here / "t").exists()


def test_stores_are_asked_for_what_they_were_made_of(here):
    (here / "notes").mkdir()
    (here / "notes" / "a.txt").write_text("some text of a few words")
    fine("build", "texts", "notes", "--text", "-q")
    fine("build", "vectors", "v.npy", "--vector", "-q")
    for verb in ("probe", "insert"):
        assert "v.npy: holds rows, not one text" in failure(verb, "texts", "v.npy")
        assert "notes: " in failure(verb, "vectors", "notes")
    made = (
        "vectors: the fingerprints of this store were made of vectors (hyperplane), so it takes "
        "no columns of texts"
    )
    assert made in failure("insert", "vectors", "notes/a.txt", "--text-field", "t")
    np.save("w.npy", np.ones((2, 3)))
    assert "has 3 components, and the fingerprinter is for 16" in failure(
        "probe", "vectors", "w.npy"
    )
    assert run("report", "vectors", "-o", "page.html").exit_code == 0
    with pytest.raises(InputError, match="fingerprinter must be one of texts"):
        fpstore.dedup(pa.table({"text": ["a b c"]}), text="text", fingerprinter=HASHER)
