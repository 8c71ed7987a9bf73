"""Every keyword of the public functions: odd values are refused by name before anything is written."""

import inspect
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from inputs import parse_fingerprint

import fpstore
from fpstore import errors
from fpstore.hashing import DocumentReader, HyperplaneHash, ImageReader, SimHash, TextReader, VectorReader
from fpstore.io import open_reader, open_writer

ODD = {
    "None": None,
    "True": True,
    "False": False,
    "numpy True": np.True_,
    "0": 0,
    "1": 1,
    "numpy 1": np.int64(1),
    "numpy 1.0": np.float64(1),
    "-1": -1,
    "99": 99,
    "2000": 2000,
    "10**30": 10**30,
    "0.1": 0.1,
    "1.0": 1.0,
    "nan": float("nan"),
    "inf": float("inf"),
    "text": "odd",
    "empty": "",
    "3": "3",
    "1GB": "1GB",
    "9s": "9" * 400 + "GB",
    "bytes": b"odd",
    "list": [],
    "dict": {},
    "object": object(),
    "array of no dimension": np.array("odd"),
    "array of two": np.array([[1.5, 2.0], [3.0, 4.0]]),
    "surrogate": "\ud800",
    "NUL": "a\0b",
    "long": "x" * 300,
}
SIZES = {"1", "numpy 1", "1.0", "numpy 1.0", "99", "2000", "3", "1GB"}
FLAGS = {"True", "False", "numpy True"}
PATHS = {"text", "3", "1GB"}
SMALL = {"0", "1", "numpy 1"}
THREADS = {"None", "1", "numpy 1", "99"}
MEMORY = {"None", "1GB"}
NONE = {"None"}
BUILD = {
    "path": PATHS,
    "radius": SMALL,
    "design": set(),
    "memory": MEMORY,
    "threads": THREADS,
    "progress": NONE,
    "overwrite": FLAGS,
    "block_bytes": NONE,
    "codec": set(),
    "filter": FLAGS,
    "disk_budget": NONE | SIZES - {"1", "numpy 1", "1.0", "numpy 1.0", "99", "2000", "3"},
    "storage": set(),
    "prefer": set(),
    "width": NONE,
    "fingerprinter": NONE,
    "index_ids": FLAGS,
    "ids": NONE,
}
SHARES = {"1", "numpy 1", "99", "2000", "0.1", "1.0", "numpy 1.0", "10**30"}
OPEN = {"path": set(), "mode": set(), "sync": set(), "merge_at": NONE | SHARES, "pages": set()}
PLAN = {
    "n": {"0", "1", "numpy 1", "99", "2000"},
    "radius": SMALL,
    "disk_budget": NONE | SIZES,
    "memory_budget": NONE | SIZES,
    "storage": set(),
    "block_bytes": NONE,
    "codec": set(),
    "filter": FLAGS,
    "prefer": set(),
    "sample": NONE | {"list"},
    "width": set(),
}
REPAIR = {
    "path": set(),
    "output": NONE | PATHS,
    "in_place": FLAGS,
    "lost": NONE | PATHS,
    "memory": MEMORY,
    "threads": THREADS,
    "progress": NONE,
}
# Of each method: what it is called with, and which of the odd values each of its arguments takes.
FINGERPRINT = {"0", "1", "99", "2000"}
IDS = {"list", "0", "1", "numpy 1", "99", "2000"}
COUNTS = {"1", "numpy 1", "99", "2000"}
READING = {
    "probe": ({"fingerprint": 7}, {"fingerprint": FINGERPRINT, "radius": NONE | SMALL, "limit": NONE | COUNTS}),
    "probe_many": (
        {"fingerprints": [7]},
        {"fingerprints": {"list"}, "radius": NONE | SMALL, "threads": THREADS, "limit": NONE | COUNTS},
    ),
    "nearest": (
        {"fingerprint": 7, "count": 2},
        {"fingerprint": FINGERPRINT, "count": COUNTS, "max_radius": NONE | SMALL},
    ),
    "nearest_many": (
        {"fingerprints": [7], "count": 2},
        {"fingerprints": {"list"}, "count": COUNTS, "max_radius": NONE | SMALL, "threads": THREADS},
    ),
    "probe_batches": (
        {"fingerprints": [7]},
        {
            "fingerprints": {"list"},
            "radius": NONE | SMALL,
            "threads": THREADS,
            "matches": {"1", "numpy 1", "99", "2000"},
        },
    ),
    "scan": (
        {"fingerprints": [7], "radius": 3},
        {"fingerprints": {"list"}, "radius": SMALL, "threads": THREADS, "limit": NONE | COUNTS},
    ),
    "ids_of": ({"fingerprints": [7]}, {"fingerprints": {"list"}}),
    "fingerprints_of": ({"ids": [7]}, {"ids": {"list"}}),
    "split": (
        {"folder": "parts", "bits": 1},
        {
            "folder": PATHS,
            "bits": {"1", "numpy 1"},
            "overwrite": FLAGS,
            "memory": MEMORY,
            "threads": THREADS,
            "progress": NONE,
        },
    ),
    "backup": ({"path": "copy.fps"}, {"path": PATHS, "overwrite": FLAGS, "progress": NONE}),
    "verify": ({}, {"progress": NONE}),
}
WRITING = {
    "insert": ({"fingerprints": [9], "ids": [9]}, {"fingerprints": set(), "ids": set(), "sync": NONE}),
    "probe_insert": (
        {"fingerprint": 9, "id": 9},
        {
            "fingerprint": FINGERPRINT,
            "id": {"0", "1", "numpy 1", "99", "2000"},
            "radius": NONE | SMALL,
            "always": FLAGS,
            "sync": NONE,
        },
    ),
    "probe_insert_many": (
        {"fingerprints": [9], "ids": [9]},
        {
            "fingerprints": set(),
            "ids": set(),
            "radius": NONE | SMALL,
            "always": FLAGS,
            "threads": THREADS,
            "sync": NONE,
        },
    ),
    "delete": ({"ids": [9]}, {"ids": IDS, "fingerprints": NONE, "sync": NONE}),
    "merge": ({}, {"at": NONE | SHARES, "memory": MEMORY, "threads": THREADS, "progress": NONE}),
    "absorb": ({}, {"renumber": FLAGS, "memory": MEMORY, "threads": THREADS, "progress": NONE}),
    "redesign": ({"design": "auto"}, {"design": set(), "memory": MEMORY, "threads": THREADS, "progress": NONE}),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("s.fps", [7, 11], [50, 60]).close()
    return tmp_path


def names(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_POSITIONAL}


def refused(call, name, value, accepted):
    """Call; an odd value that is not accepted must be an error of one line. Return what a call that was accepted returns."""
    caught, result = None, None
    try:
        result = call()
    except Exception as error:
        caught = error
    if accepted:
        assert caught is None, f"{name}={value!r:.60} was refused: {caught!r}"
        return result
    assert caught is not None, f"{name}={value!r:.60} was taken"
    kinds = (fpstore.InputError, fpstore.StorageError, fpstore.StoreNotFoundError)
    assert isinstance(caught, kinds), f"{name}={value!r:.60}: {caught!r}"
    assert str(caught).isprintable(), caught
    return None


def sweep(function, given, table, leaves=lambda result: None):
    """Call a function with each odd value of each argument."""
    before = set(Path.cwd().iterdir())
    for name, taken in table.items():
        for label, value in ODD.items():
            result = refused(lambda: function(**{**given, name: value}), name, value, label in taken)  # noqa: B023
            if result is None and label not in taken:
                assert set(Path.cwd().iterdir()) == before, f"{name}={value!r} left something behind"
            else:
                leaves(result)


def close_and_remove(before):
    def leaves(result):
        if isinstance(result, fpstore.Store):
            result.close()
        for path in set(Path.cwd().iterdir()) - before:
            shutil.rmtree(path)

    return leaves


def test_every_argument_of_build(here):
    given = {"path": "new.fps", "fingerprints": [7, 11]}
    assert names(fpstore.build) == {*BUILD, "fingerprints"}
    sweep(fpstore.build, given, BUILD, close_and_remove(set(here.iterdir())))


def test_every_argument_of_open(here):
    assert names(fpstore.open) == set(OPEN)
    sweep(fpstore.open, {"path": "s.fps", "mode": "r+"}, OPEN | {"path": set()}, lambda store: store and store.close())


def test_every_argument_of_plan(here):
    assert names(fpstore.plan) == set(PLAN)
    sweep(fpstore.plan, {"n": 1000}, PLAN)


def test_every_argument_of_repair(here):
    assert names(fpstore.repair) == set(REPAIR)
    sweep(fpstore.repair, {"path": "s.fps"}, REPAIR)


@pytest.mark.parametrize("method", READING)
def test_every_argument_that_asks(here, method):
    given, table = READING[method]
    with fpstore.open("s.fps") as store:
        call = getattr(store, method)
        assert names(call) == set(table)

        def ask(**values):
            result = call(**values)
            return list(result) if inspect.isgenerator(result) else result

        sweep(ask, given, table, close_and_remove(set(here.iterdir())))


@pytest.mark.parametrize("method", WRITING)
def test_every_argument_that_changes(here, method):
    given, table = WRITING[method]
    fpstore.build("other.fps", [9], [9]).close()
    with fpstore.open("s.fps", "r+") as store:
        call = partial(getattr(store, method), *(["other.fps"] if method == "absorb" else []))
        assert names(call) == set(table)
        sweep(call, given, table)
        assert store.verify().ok


def test_what_is_for_changing_is_refused_with_a_store_open_for_reading(here):
    with pytest.raises(fpstore.InputError, match="sync must be one of commit, batch, none, got 'foo'"):
        fpstore.open("s.fps", "r", sync="foo")
    for name, value in (("sync", "batch"), ("merge_at", 0.1)):
        with pytest.raises(fpstore.InputError, match=f"{name} is for changing a store: open it with mode='r\\+'"):
            fpstore.open("s.fps", "r", **{name: value})


@pytest.mark.parametrize("design", ["auto", "manku-4", "flip-1"])
def test_storage_is_checked_whatever_the_design(here, design):
    with pytest.raises(fpstore.InputError, match="storage must be one of hot, cold, got 'ssd'"):
        fpstore.build("new.fps", [1], design=design, storage="ssd")
    assert not Path("new.fps").exists()


def test_budgets_are_sizes_like_memory(here):
    fpstore.build("new.fps", [1], disk_budget="1GB").close()
    assert fpstore.plan(1000, disk_budget="1GB", memory_budget="2GiB") == fpstore.plan(
        1000, disk_budget=10**9, memory_budget=2 << 30
    )


def test_what_is_not_stored_is_an_error_of_fpstore(here):
    with fpstore.open("s.fps") as store:
        for look_up in (lambda: store.ids_of([7, 99]), lambda: store[99], lambda: store.ids[99]):
            with pytest.raises(fpstore.NotStoredError, match="99 is not stored") as caught:
                look_up()
            assert isinstance(caught.value, (fpstore.FpstoreError, KeyError))
            assert caught.value.got == 99


@pytest.mark.parametrize("text", ["1" * 17, "9" * 19, str(2**64 - 1)])
def test_decimal_is_advised_where_it_helps(text):
    with pytest.raises(fpstore.InputError, match="--decimal"):
        parse_fingerprint(text)


@pytest.mark.parametrize("text", [str(2**64), "9" * 20, "1" * 21, "1" * 5000])
def test_decimal_is_not_advised_for_a_number_that_is_too_large(text):
    for decimal in (False, True):
        with pytest.raises(fpstore.InputError, match=r"but the width is 64: ") as caught:
            parse_fingerprint(text, decimal)
        assert "--decimal" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["format", "decimal", "fingerprint_field", "id_field", "id_type", "chunk_rows", "width", "unbuffered", "null"]
)
def test_every_argument_of_open_reader(here, name):
    Path("a.tsv").write_text("0000000000000007\ta\n")
    taken = {
        "format": NONE,
        "decimal": FLAGS,
        "fingerprint_field": NONE,
        "id_field": NONE,
        "id_type": set(),
        "chunk_rows": {"1", "numpy 1", "99", "2000"},
        "width": set(),
        "unbuffered": FLAGS,
        "null": FLAGS,
    }[name]
    sweep(lambda **values: list(open_reader("a.tsv", **values)), {}, {name: taken})


@pytest.mark.parametrize("value", [np.array(3), np.array("a.csv"), np.array(None), np.array([[1, 2], [3, 4]])], ids=str)
def test_arrays_are_refused_where_names_are_listed(here, value):
    Path("a.csv").write_text("h,t\n0000000000000007,a\n")
    calls = [
        lambda: fpstore.build("new.fps", [1], design=value),
        lambda: fpstore.dedup(value, fingerprint="h"),
        lambda: fpstore.dedup("a.csv", text=value),
        lambda: open_reader(value),
        lambda: SimHash(stop_words=value),
        lambda: TextReader(value, SimHash(), text="t"),
        lambda: TextReader("a.csv", SimHash(), text=value),
        lambda: DocumentReader(value, SimHash()),
        lambda: DocumentReader(".", SimHash(), suffixes=value),
        lambda: ImageReader(value, fpstore.ImageHash()),
        lambda: VectorReader(value, HyperplaneHash(dimension=2)),
    ]
    for call in calls:
        with pytest.raises(fpstore.InputError):
            call()


def test_every_argument_of_open_writer(here):
    def write(**values):
        with open_writer(**values) as writer:
            writer.write([(7, "a")])
        Path(values["path_or_stream"]).unlink()

    table = {
        "path_or_stream": set(),
        "format": NONE,
        "columns": set(),
        "header": FLAGS,
        "width": set(),
        "null": FLAGS,
        "names": {*NONE, "dict"},
    }
    sweep(write, {"path_or_stream": "out.tsv", "columns": ["fingerprint", "id"]}, table)


def test_every_argument_of_simhash_and_of_the_document_reader(here):
    table = {
        "shingle": set(),
        "size": {"1", "numpy 1", "99"},
        "weighting": set(),
        "width": set(),
        "hash": set(),
        "seed": {"0", "1", "numpy 1", "99", "2000"},
        "normalize": FLAGS,
        "case": set(),
        "punctuation": set(),
        "marks": set(),
        "digits": set(),
        "spaces": set(),
        "stop_words": {"list", "dict"},
        "weights": NONE,
        "tokenizer": NONE,
        "order": set(),
    }
    assert names(fpstore.SimHash) == set(table)
    sweep(fpstore.SimHash, {}, table)
    Path("a.txt").write_text("words")
    table = {
        "paths": {"list", "dict"},
        "fingerprinter": set(),
        "chunk_documents": {"1", "numpy 1", "99", "2000"},
        "suffixes": NONE | {"list", "dict"},
        "recursive": FLAGS,
        "follow_symlinks": FLAGS,
        "max_bytes": NONE | {"0", "1", "numpy 1", "99", "2000"},
        "on_notice": NONE,
        "encoding": NONE,
        "html": FLAGS,
        "threads": THREADS,
    }
    assert names(DocumentReader.__init__) == set(table)
    sweep(DocumentReader, {"paths": ["a.txt"], "fingerprinter": fpstore.SimHash()}, table)


@pytest.mark.parametrize(
    "value",
    [10**5000, [10**5000], "x" * 10**6, ["y"] * 10**6, b"z" * 10**6, "a\nb", object()],
    ids=["int", "list with an int", "str", "list", "bytes", "lines", "object"],
)
def test_messages_show_any_value_on_one_short_line(value):
    shown = errors.show(value)
    assert 0 < len(shown) <= errors.SHOWN_CHARACTERS + 2
    assert shown.isprintable()
    for refused in (lambda: fpstore.plan(1000, disk_budget=value), lambda: fpstore.plan(1000, memory_budget=value)):
        with pytest.raises(fpstore.InputError) as caught:
            refused()
        assert len(str(caught.value)) < 200
