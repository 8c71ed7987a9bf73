"""Every keyword of the public functions, and the options of the command line that set them.

Odd values are refused by name before anything is written.
"""

import inspect
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commandline import failure
from speeds import full
from store_model import content_of

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
ONE = {"1", "numpy 1"}
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
    "pairs": (
        {},
        {
            "radius": NONE | SMALL,
            "duplicates": FLAGS,
            "orientations": ONE,
            **RUNNING,
            "resume": NONE | PATHS,
        },
    ),
    "clusters": (
        {},
        {
            "radius": NONE | SMALL,
            "group": NONE,
            "keep": NOTHING,
            "orientations": ONE,
            **RUNNING,
            "resume": NONE | PATHS,
        },
    ),
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


# --- Words of the messages -----------------------------------------------------------------------


def build(**given):
    return fpstore.build(**{"path": "new.fps", "fingerprints": [7], **given})


def method(name, *values, **given):
    """Return a call of a method of a store, which takes one more argument."""

    def call(**wrong):
        with fpstore.open("s.fps", "r+") as store:
            result = getattr(store, name)(*values, **given, **wrong)
            return list(result) if inspect.isgenerator(result) else result

    return call


read_texts = partial(fpstore.hashing.TextReader, "a.jsonl", fpstore.SimHash())
RADIUS = "must be a whole number from 0 to 64"
SIZE = "must be a number of bytes or a size such as 2GiB or 500MB"
SHARE = "must be a positive number such as 0.1"
# An argument, a value that is wrong by itself, what is wrong, a call of Python, and a command whose
# last word is the option that sets the argument.
WRONG_VALUES = [
    ("radius", 65, RADIUS, build, "build new.fps a.tsv --radius"),
    (
        *("radius", 33, "must be a whole number from 0 to 32", partial(build, width=32)),
        "build new.fps a.tsv --width 32 --radius",
    ),
    (
        *("radius", 257, "must be a whole number from 0 to 256", partial(build, width=256)),
        "build new.fps a.tsv --width 256 --radius",
    ),
    ("radius", 65, RADIUS, partial(fpstore.plan, 10), "plan 10 --radius"),
    ("radius", 65, RADIUS, method("probe", 7), "probe s.fps 0x7 --radius"),
    ("radius", 65, RADIUS, method("probe_many", [7]), "probe s.fps --input a.tsv --radius"),
    ("radius", 65, RADIUS, method("probe_batches", [7]), None),
    ("radius", 65, RADIUS, method("scan", [7]), "scan s.fps 0x7 --radius"),
    ("radius", 65, RADIUS, method("probe_insert", 9, 9), "insert s.fps a.tsv --unmatched --radius"),
    ("radius", 65, RADIUS, method("pairs"), "pairs s.fps --radius"),
    ("radius", 65, RADIUS, method("clusters"), "cluster s.fps --radius"),
    ("radius", 65, RADIUS, method("join", [7]), "join s.fps s.fps --radius"),
    ("max_radius", 65, RADIUS, method("nearest", 7, 1), "nearest s.fps 0x7 --max-radius"),
    ("max_radius", 65, RADIUS, method("nearest_many", [7], 1), None),
    (
        "count",
        0,
        "must be a whole number from 1 to ",
        method("nearest", 7),
        "nearest s.fps 7 --count",
    ),
    (
        "limit",
        0,
        "must be a whole number from 1 to ",
        method("probe", 7),
        "probe s.fps 0x7 --limit",
    ),
    ("matches", 0, "must be a whole number from 1 to ", method("probe_batches", [7]), None),
    (
        *("threads", 0, "must be a whole number from 1 to 1024", method("probe_many", [7])),
        "probe s.fps 0x7 --threads",
    ),
    ("threads", 1025, "must be a whole number from 1 to 1024", build, "build x a.tsv --threads"),
    ("bits", 9, "must be a whole number from 1 to 8", method("split", "x"), "split s.fps x --bits"),
    ("n", -1, "must be a whole number from 0 to 2^64", fpstore.plan, None),
    ("width", 16, "must be one of 32, 64, 128, 256", build, "build new.fps a.tsv --width"),
    ("width", "x", "must be one of 32, 64, 128, 256", partial(fpstore.plan, 10), "plan 10 --width"),
    (
        *("block_bytes", 100, "must be one of 128, 256, 512, 1024, 2048, 4096", build),
        "build new.fps a.tsv --block-bytes",
    ),
    ("memory", "63MiB", "must be at least 64MiB", build, "build new.fps a.tsv --memory"),
    ("memory", "1", "must be at least 64MiB", method("merge"), "merge s.fps --memory"),
    ("memory", "much", SIZE, method("pairs"), "pairs s.fps --memory"),
    ("disk_budget", "much", SIZE, build, "build new.fps a.tsv --disk-budget"),
    ("memory_budget", "much", SIZE, partial(fpstore.plan, 10), "plan 10 --memory-budget"),
    (
        "merge_at",
        float("nan"),
        SHARE,
        partial(fpstore.open, "s.fps", "r+"),
        "insert s.fps a.tsv --merge-at",
    ),
    ("at", -1.0, SHARE, method("merge"), "merge s.fps --at"),
    ("index_ids", 3, "must be True or False", build, None),
    ("filter", "often", "must be True, False or 'auto'", build, None),
    ("design", 5, "must be auto or the name of a design", build, None),
    ("design", 5, "must be auto or the name of a design", method("redesign"), None),
    ("mode", "w", "must be one of r, r+", partial(fpstore.open, "s.fps"), None),
    (
        *("size", 0, "must be a whole number from 1 to 255", fpstore.SimHash),
        "build new.fps a.txt --text --shingle-size",
    ),
    (
        *("id", "", "must be the name of a column", partial(read_texts, text="text")),
        "build new.fps a.jsonl --text-field text --id-field",
    ),
]
# The same of the arguments that are one of some words.
CHOICES = [
    ("storage", ("hot", "cold"), partial(build, design="manku-4"), "build new.fps a.tsv --storage"),
    ("storage", ("hot", "cold"), partial(fpstore.plan, 10), "plan 10 --storage"),
    ("prefer", ("balance", "speed", "space"), build, "build new.fps a.tsv --prefer"),
    ("prefer", ("balance", "speed", "space"), partial(fpstore.plan, 10), "plan 10 --prefer"),
    ("codec", ("huffman", "elias-fano"), build, "build new.fps a.tsv --codec"),
    ("group", ("connected", "greedy"), method("clusters"), "cluster s.fps --group"),
    ("keep", ("first", "smallest", "central"), method("clusters"), "cluster s.fps --keep"),
    (
        *("sync", ("commit", "batch", "none"), partial(fpstore.open, "s.fps")),
        "insert s.fps a.tsv --sync",
    ),
    ("sync", ("commit", "batch", "none"), method("insert", 9), None),
]


def check_doors(argument, value, call, of_python, command, of_command):
    """Compare what both doors say, word for word."""
    with pytest.raises(fpstore.InputError) as caught:
        call(**{argument: value})
    assert caught.value.argument == argument
    assert re.fullmatch(of_python, str(caught.value))
    if command:
        verb = command.split()[0]
        message = failure(*command.split(), value, code=2)
        assert re.fullmatch(rf"fpstore: {of_command} \(see fpstore {verb} --help\)\n", message)


@pytest.fixture
def inputs(here):
    Path("a.tsv").write_text("0000000000000007\t1\n")
    Path("a.txt").write_text("some words")
    Path("a.jsonl").write_text('{"text": "some words"}\n')


def test_wrong_value_is_named_alike_by_both_doors(inputs):
    for argument, value, wrong, call, command in WRONG_VALUES:
        option = command and command.split()[-1]
        wrong = re.escape(wrong) + (r"\S.*" if wrong.endswith(" to ") else "")
        check_doors(
            *(argument, value, call, f"{argument} {wrong}, got {re.escape(repr(value))}"),
            *(command, f"{option}: {wrong}, got '?{re.escape(str(value))}'?"),
        )
    assert {path.name for path in Path.cwd().iterdir()} == {"s.fps", "a.tsv", "a.txt", "a.jsonl"}


def test_unknown_choice_is_named_with_those_there_are(inputs):
    for argument, choices, call, command in CHOICES:
        option = command and command.split()[-1]
        known = ", ".join(map(repr, choices))
        check_doors(
            *(argument, "odd", call, f"{argument} must be one of {', '.join(choices)}, got 'odd'"),
            *(command, f"Invalid value for '{option}': 'odd' is not one of {known}\\."),
        )
    assert {path.name for path in Path.cwd().iterdir()} == {"s.fps", "a.tsv", "a.txt", "a.jsonl"}


# --- Every value of every argument ----------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("s.fps", [7, 11], [50, 60]).close()
    return tmp_path


def names(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_POSITIONAL}


def check_outcome(call, name, value, accepted):
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
    assert argument is None or (name.startswith(argument) and str(caught).startswith(argument)), (
        f"{name}={value!r:.60}: {caught!r} names {argument}"
    )
    return None


def sweep(function, given, table, leaves=lambda result: None):
    """Call a function with each odd value of each argument."""
    before = set(Path.cwd().iterdir())
    for name, taken in table.items():
        for label, value in ODD.items():
            result = check_outcome(
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


FUNCTIONS = {
    "build": ({"path": "new.fps", "fingerprints": [7, 11]}, BUILD),
    "open": ({"path": "s.fps", "mode": "r+"}, OPEN),
    "plan": ({"n": 1000}, PLAN),
    "repair": ({"path": "s.fps"}, REPAIR),
}


@pytest.mark.parametrize("name", ["build", "open", full("plan"), full("repair")])
def test_every_argument_of_the_functions(here, name):
    function, (values, table) = getattr(fpstore, name), FUNCTIONS[name]
    assert names(function) == {*table, "fingerprints"} if name == "build" else set(table)
    sweep(function, values, table, close_and_remove(set(here.iterdir())))


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


@pytest.mark.parametrize(
    "method", [full(name) if name in ("absorb", "redesign") else name for name in WRITING]
)
def test_every_argument_that_changes(here, method):
    given, table = WRITING[method]
    fpstore.build("other.fps", [9], [9]).close()
    with fpstore.open("s.fps", "r+") as store:
        function = partial(getattr(store, method), *(["other.fps"] if method == "absorb" else []))
        assert names(function) == set(table)

        def call(**values):
            before = content_of(store)
            try:
                return function(**values)
            except fpstore.FpstoreError:
                assert content_of(store) == before
                raise

        sweep(call, given, table)
        assert store.verify().ok


def test_options_for_changes_are_refused_with_a_read_only_open(here):
    for name, value in (("sync", "batch"), ("merge_at", 0.1)):
        with pytest.raises(
            fpstore.InputError, match=f"{name} is for changing a store: open it with mode='r\\+'"
        ):
            fpstore.open("s.fps", "r", **{name: value})


def test_sizes_are_numbers_of_bytes_or_words(here):
    sizes = {"disk_budget": 10**9, "memory_budget": 2 << 30}
    assert fpstore.plan(1000, disk_budget="1GB", memory_budget="2GiB") == fpstore.plan(
        1000, **sizes
    )


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


@pytest.mark.full
def test_every_argument_of_simhash_and_of_the_document_reader(here):
    table = takes(
        {
            "shingle weighting width hash case": NOTHING,
            "punctuation marks digits spaces hyphens order chinese": NOTHING,
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
    for value in (10**5000, [10**5000], "x" * 10**5, ["y"] * 10**5, b"z" * 10**5, "a\nb", object()):
        shown = errors.show(value)
        assert 0 < len(shown) <= errors.SHOWN_CHARACTERS + 2
        assert shown.isprintable()
        with pytest.raises(fpstore.InputError) as caught:
            fpstore.plan(1000, disk_budget=value)
        assert len(str(caught.value)) < 200
