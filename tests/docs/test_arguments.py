"""Every keyword of the public functions.

Odd values are refused by name before anything is written.
"""

import inspect
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore import errors
from fpstore.hashing import (
    DocumentReader,
    HyperplaneHash,
    ImageReader,
    SimHash,
    TextReader,
    VectorReader,
)
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
NONE, LIST, NOTHING = {"None"}, {"list"}, set()
SIZES = {"1", "numpy 1", "1.0", "numpy 1.0", "99", "2000", "3", "1GB"}
FLAGS = {"True", "False", "numpy True"}
PATHS = {"text", "3", "1GB"}
SMALL = {"0", "1", "numpy 1"}
COUNTS = {"1", "numpy 1", "99", "2000"}
THREADS = {"None", "1", "numpy 1", "99"}
MEMORY = {"None", "1GB"}
SHARES = {"1", "numpy 1", "99", "2000", "0.1", "1.0", "numpy 1.0", "10**30"}
FINGERPRINT = {"0", "1", "99", "2000"}


def takes(table):
    """Return which of the odd values each argument takes.

    Those that take the same stand together.
    """
    return {name: taken for names, taken in table.items() for name in names.split()}


RUNNING = {"memory": MEMORY, "threads": THREADS, "progress": NONE}
BUILD = takes(
    {
        "path": PATHS,
        "radius": NONE | SMALL,
        **RUNNING,
        "overwrite filter index_ids": FLAGS,
        "disk_budget": MEMORY,
        "design codec storage prefer": NOTHING,
        "block_bytes width fingerprinter ids": NONE,
    }
)
OPEN = takes({"path mode sync pages": NOTHING, "merge_at": NONE | SHARES, "hasher": NONE})
PLAN = takes(
    {
        "n": {"0", *COUNTS},
        "radius": SMALL,
        "disk_budget memory_budget": NONE | SIZES,
        "block_bytes": NONE,
        "filter": FLAGS,
        "storage codec prefer width": NOTHING,
        "sample": NONE | LIST,
    }
)
REPAIR = takes(
    {
        "path": NOTHING,
        "output lost": NONE | PATHS,
        "in_place": FLAGS,
        "radius": NONE | SMALL,
        **RUNNING,
    }
)
# Of each method: what it is called with, and which of the odd values each of its arguments takes.
ASKING = {"fingerprints": LIST, "radius": NONE | SMALL, "threads": THREADS}
READING = {
    "probe": (
        {"fingerprint": 7},
        {"fingerprint": FINGERPRINT, "radius": NONE | SMALL, "limit": NONE | COUNTS},
    ),
    "probe_many": ({"fingerprints": [7]}, {**ASKING, "limit": NONE | COUNTS}),
    "nearest": (
        {"fingerprint": 7, "count": 2},
        {"fingerprint": FINGERPRINT, "count": COUNTS, "max_radius": NONE | SMALL},
    ),
    "nearest_many": (
        {"fingerprints": [7], "count": 2},
        {"fingerprints": LIST, "count": COUNTS, "max_radius": NONE | SMALL, "threads": THREADS},
    ),
    "probe_batches": ({"fingerprints": [7]}, {**ASKING, "matches": COUNTS}),
    "scan": (
        {"fingerprints": [7], "radius": 3},
        {**ASKING, "radius": SMALL, "limit": NONE | COUNTS},
    ),
    "ids_of": ({"fingerprints": [7]}, {"fingerprints": LIST}),
    "fingerprints_of": ({"ids": [7]}, {"ids": LIST}),
    "split": (
        {"folder": "parts", "bits": 1},
        {"folder": PATHS, "bits": {"1", "numpy 1"}, "overwrite": FLAGS, **RUNNING},
    ),
    "backup": ({"path": "copy.fps"}, {"path": PATHS, "overwrite": FLAGS, "progress": NONE}),
    "verify": ({}, {"progress": NONE}),
}
ADDING = {"radius": NONE | SMALL, "always": FLAGS, "sync": NONE}
WRITING = {
    "insert": (
        {"fingerprints": [9], "ids": [9]},
        takes({"fingerprints ids": NOTHING, "sync": NONE}),
    ),
    "probe_insert": (
        {"fingerprint": 9, "id": 9},
        {"fingerprint": FINGERPRINT, "id": {"0", *COUNTS}, **ADDING},
    ),
    "probe_insert_many": (
        {"fingerprints": [9], "ids": [9]},
        takes({"fingerprints ids": NOTHING, "threads": THREADS, **ADDING}),
    ),
    "probe_upsert_many": (
        {"fingerprints": [9], "ids": [9]},
        takes(
            {"fingerprints ids": NOTHING, "threads": THREADS, "radius": NONE | SMALL, "sync": NONE}
        ),
    ),
    "delete": ({"ids": [9]}, {"ids": {"list", "0", *COUNTS}, "fingerprints": NONE, "sync": NONE}),
    "merge": ({}, {"at": NONE | SHARES, **RUNNING}),
    "absorb": ({}, {"renumber": FLAGS, **RUNNING}),
    "redesign": ({"design": "auto"}, {"design": NOTHING, **RUNNING}),
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
    """Call; an odd value that is not accepted must be an error of one line.

    Return what a call that was accepted returns.
    """
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
    argument = getattr(caught, "argument", None)
    assert argument is None or str(caught).startswith(argument), caught
    return None


def sweep(function, given, table, leaves=lambda result: None):
    """Call a function with each odd value of each argument."""
    before = set(Path.cwd().iterdir())
    for name, taken in table.items():
        for label, value in ODD.items():
            result = refused(
                partial(function, **{**given, name: value}), name, value, label in taken
            )
            if result is None and label not in taken:
                assert set(Path.cwd().iterdir()) == before, (
                    f"{name}={value!r} left something behind"
                )
            else:
                leaves(result)


def close_and_remove(before):
    def leaves(result):
        if isinstance(result, fpstore.Store):
            result.close()
        for path in set(Path.cwd().iterdir()) - before:
            shutil.rmtree(path)

    return leaves


def test_an_error_of_an_argument_names_it(here):
    for name, value in {"radius": 99, "width": 7, "threads": 0, "index_ids": 3}.items():
        with pytest.raises(fpstore.InputError) as caught:
            fpstore.build("new.fps", [7, 11], **{name: value})
        assert caught.value.argument == name


def test_every_argument_of_the_functions(here):
    assert names(fpstore.build) == {*BUILD, "fingerprints"}
    sweep(
        fpstore.build,
        {"path": "new.fps", "fingerprints": [7, 11]},
        BUILD,
        close_and_remove(set(here.iterdir())),
    )
    for function, given, table in (
        (fpstore.open, {"path": "s.fps", "mode": "r+"}, OPEN),
        (fpstore.plan, {"n": 1000}, PLAN),
        (fpstore.repair, {"path": "s.fps"}, REPAIR),
    ):
        assert names(function) == set(table)
        sweep(
            function,
            given,
            table,
            lambda result: result.close() if isinstance(result, fpstore.Store) else None,
        )


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


def test_options_for_changes_are_refused_with_a_read_only_open(here):
    with pytest.raises(
        fpstore.InputError, match="sync must be one of commit, batch, none, got 'foo'"
    ):
        fpstore.open("s.fps", "r", sync="foo")
    for name, value in (("sync", "batch"), ("merge_at", 0.1)):
        with pytest.raises(
            fpstore.InputError, match=f"{name} is for changing a store: open it with mode='r\\+'"
        ):
            fpstore.open("s.fps", "r", **{name: value})


def test_sizes_and_storage_of_every_design(here):
    for design in ("auto", "manku-4", "flip-1"):
        with pytest.raises(fpstore.InputError, match="storage must be one of hot, cold, got 'ssd'"):
            fpstore.build("new.fps", [1], design=design, storage="ssd")
    sizes = {"disk_budget": 10**9, "memory_budget": 2 << 30}
    assert fpstore.plan(1000, disk_budget="1GB", memory_budget="2GiB") == fpstore.plan(
        1000, **sizes
    )


def test_what_is_not_stored_is_an_error_of_fpstore(here):
    with fpstore.open("s.fps") as store:
        for look_up in (lambda: store.ids_of([7, 99]), lambda: store[99], lambda: store.ids[99]):
            with pytest.raises(fpstore.NotStoredError, match="99 is not stored") as caught:
                look_up()
            assert isinstance(caught.value, (fpstore.FpstoreError, KeyError))
            assert caught.value.got == 99


def test_every_argument_of_readers_and_writers(here):
    Path("a.tsv").write_text("0000000000000007\ta\n")
    table = {
        "format fingerprint_field id_field": NONE,
        "id_type width": NOTHING,
        "decimal unbuffered": FLAGS,
    }
    sweep(
        lambda **values: list(open_reader("a.tsv", **values)),
        {},
        takes({**table, "chunk_rows": COUNTS}),
    )

    def write(**values):
        with open_writer(**values) as writer:
            writer.write([(7, "a")])
        Path(values["path_or_stream"]).unlink()

    table = {
        "path_or_stream columns width": NOTHING,
        "format": NONE,
        "header": FLAGS,
    }
    sweep(write, {"path_or_stream": "out.tsv", "columns": ["fingerprint", "id"]}, takes(table))


def test_arrays_are_refused_where_names_are_listed(here):
    Path("a.csv").write_text("h,t\n0000000000000007,a\n")
    calls = [
        lambda value: fpstore.build("new.fps", [1], design=value),
        lambda value: fpstore.dedup(value, fingerprint="h"),
        lambda value: fpstore.dedup("a.csv", text=value),
        lambda value: open_reader(value),
        lambda value: SimHash(stop_words=value),
        lambda value: TextReader(value, SimHash(), text="t"),
        lambda value: TextReader("a.csv", SimHash(), text=value),
        lambda value: DocumentReader(value, SimHash()),
        lambda value: DocumentReader(".", SimHash(), suffixes=value),
        lambda value: ImageReader(value, fpstore.ImageHash()),
        lambda value: VectorReader(value, HyperplaneHash(dimension=2)),
    ]
    for value in (np.array(3), np.array("a.csv"), np.array(None), np.array([[1, 2], [3, 4]])):
        for call in calls:
            with pytest.raises(fpstore.InputError):
                call(value)


def test_every_argument_of_simhash_and_of_the_document_reader(here):
    table = takes(
        {
            "shingle weighting width hash case": NOTHING,
            "punctuation marks digits spaces hyphens order": NOTHING,
            "size": {"1", "numpy 1", "99"},
            "seed": {"0", *COUNTS},
            "normalize": FLAGS,
            "stop_words": {"list", "dict"},
            "weights tokenizer": NONE,
        }
    )
    assert names(fpstore.SimHash) == set(table)
    sweep(fpstore.SimHash, {}, table)
    Path("a.txt").write_text("words")
    table = takes(
        {
            "paths": {"list", "dict"},
            "fingerprinter": NOTHING,
            "chunk_documents": COUNTS,
            "suffixes": NONE | {"list", "dict"},
            "recursive follow_symlinks html": FLAGS,
            "max_bytes": NONE | {"0", *COUNTS},
            "on_notice encoding": NONE,
            "threads": THREADS,
        }
    )
    assert names(DocumentReader.__init__) == set(table)
    sweep(DocumentReader, {"paths": ["a.txt"], "fingerprinter": fpstore.SimHash()}, table)


def test_messages_show_any_value_on_one_short_line():
    for value in (10**5000, [10**5000], "x" * 10**6, ["y"] * 10**6, b"z" * 10**6, "a\nb", object()):
        shown = errors.show(value)
        assert 0 < len(shown) <= errors.SHOWN_CHARACTERS + 2
        assert shown.isprintable()
        with pytest.raises(fpstore.InputError) as caught:
            fpstore.plan(1000, disk_budget=value)
        assert len(str(caught.value)) < 200
