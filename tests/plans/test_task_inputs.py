"""Plans whose inputs, outputs or folders are wrong.

One line says so before anything is published.
"""

import gzip
import json
import os
import random
import shutil

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from small_plans import (
    CORPUS_OPTIONS,
    corpus_at,
    done_at,
    plan_build,
    plan_dedup,
    plan_lsh,
    planned,
    run_all,
    written,
)
from speeds import slow

import fpstore
from fpstore.plans import open_plan
from fpstore.plans.inputs import file_digest
from fpstore.work.folder import plan_digest
from fpstore.work.places import DiskPlace


@pytest.fixture
def root(tmp_path):
    corpus_at(tmp_path / "corpus", rows=20)
    return tmp_path


def refused(kind, match, work, *args, **kwargs):
    """Check that some work is refused in one line."""
    with pytest.raises(kind, match=match) as caught:
        work(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return caught.value


# --- Inputs ---------------------------------------------------------------------------------------


CHANGES = {
    "changed": lambda path: path.write_bytes(path.read_bytes().replace(b"page 1", b"Page 1", 1)),
    "grew": lambda path: path.write_bytes(path.read_bytes() + b"more,0000000000000000\n"),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_input_that_is_not_as_it_was(root, what):
    plan, path = planned(root), root / "corpus" / "part-1.csv"
    CHANGES[what](path)
    says = {"gone": "is not there", "a folder": "not a file", "a pipe": "not a file"}.get(
        what, "changed since the plan was made"
    )
    assert plan.run(0)
    refused(fpstore.FpstoreError, rf"part-1\.csv: {says}", plan.run, 1)
    assert [stage.done for stage in plan.status()] == [1, *[0] * 8]
    assert written(root) == {}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("size", [1, 3 << 20, 1 << 24, 40_000_001])
def test_a_digest_is_of_all_of_a_file_or_of_even_pieces(tmp_path, size):
    place, path = DiskPlace(tmp_path), tmp_path / "file"
    path.write_bytes(bytes(size))
    results = {file_digest(place, "file")}
    read = [0, size - 1] + (
        [size // 2] if size <= 1 << 24 else [n * (size - (1 << 20)) // 15 for n in range(16)]
    )
    for at in read:
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"x")
        results.add(file_digest(place, "file"))
    assert len(results) == 1 + len(set(read))


def test_inputs_of_one_name(tmp_path):
    """The second would replace the rows of the first."""
    uris = [f"file://{corpus_at(tmp_path / above / 'day', rows=20)}" for above in "ab"]
    refused(fpstore.InputError, "two inputs would be written to one name", planned, tmp_path, uris)
    assert not (tmp_path / "plan").exists()


@pytest.mark.parametrize(
    ("form", "kinds"), [(None, ".parquet, .jsonl, .csv, .tsv"), ("jsonl", "file")]
)
def test_an_empty_folder_says_the_same_by_path_and_by_uri(tmp_path, form, kinds):
    (tmp_path / "k").mkdir()
    for source in (tmp_path / "k", (tmp_path / "k").as_uri()):
        refused(
            fpstore.InputError,
            f"k: no {kinds} in this folder",
            planned,
            tmp_path,
            source,
            format=form,
        )


@pytest.mark.parametrize(
    "made", [pa.table, pd.DataFrame, pl.DataFrame, pl.LazyFrame], ids=lambda made: made.__name__
)
def test_a_table(root, made):
    refused(
        fpstore.InputError,
        "a plan is for files: a table in memory",
        planned,
        root,
        made({"url": ["a"], "hash": ["0" * 16]}),
    )
    assert not (root / "plan").exists()


@pytest.mark.parametrize(
    ("source", "match"),
    [
        (5, "a corpus is a path"),
        ([None], "a corpus is a path"),
        ([], "no input was given"),
        ({"a": 1}, "a corpus is a path"),
        (b"x", "a corpus is a path"),
        ("-", "standard input cannot be"),
        ("nothing.csv", "nothing.csv"),
        (["part-0.csv", "s3://bucket/b.csv"], "paths and URIs of object stores are not mixed"),
        ("odd://b/x.csv", "odd://b/x.csv"),
        (
            "s3://bucket/x.csv?region=here",
            "s3://bucket: a plan keeps the URI .* variables of the environment",
        ),
        ("s3://key:secret@bucket/x.csv", "^s3://bucket: a plan keeps the URI"),
    ],
)
def test_no_input(root, monkeypatch, source, match):
    monkeypatch.chdir(root / "corpus")
    assert "secret" not in str(refused(fpstore.FpstoreError, match, planned, root, source))
    assert not (root / "plan").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name",
    [
        "with spaces",
        "größe 文",
        os.fsdecode(b"caf\xe9"),
        "a[b]*?",
        "%20#",
        pytest.param("x" * 200, id="long"),
    ],
)
def test_names_of_folders(root, name):
    """Also with subfolders, compressed files, and a link to the folder."""
    expected = done_at(root)
    folder = root / name
    shutil.move(root / "corpus", folder / "corpus" / "sub")
    packed = folder / "corpus" / "sub" / "part-1.csv"
    packed.with_suffix(".csv.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    (folder / "link").symlink_to("corpus")
    run_all(planned(folder, folder / "link", output="out put"))
    result = written(folder, "out put")
    removed = result.pop("removed").replace(b"sub/part", b"part").replace(b".csv.gz", b".csv")
    assert removed == expected["removed"]
    assert result.pop("out put/sub/part-0.csv") == expected["out/part-0.csv"]
    compressed = result.pop("out put/sub/part-1.csv.gz")
    assert gzip.decompress(compressed) == expected["out/part-1.csv"]
    assert not result
    assert (
        json.loads((folder / "plan" / "plan.json").read_text())["work"]["inputs"][0][1]
        == "sub/part-0.csv"
    )


def test_inputs_that_are_links(root):
    """Caches of data sets have links in their folders."""
    expected = done_at(root)
    (root / "removed.csv").unlink()
    (root / "linked").mkdir()
    for path in (root / "corpus").iterdir():
        (root / "linked" / path.name).symlink_to(path)
    run_all(planned(root, root / "linked", output="linked out"))
    assert list(written(root, "linked out").values()) == list(expected.values())


def test_relative_paths_and_two_folders(root, monkeypatch):
    """A plan has absolute paths: tasks run in any folder."""
    shutil.copytree(root / "corpus", root / "second")
    monkeypatch.chdir(root)
    plan = plan_dedup("plan", ["corpus", "second"], "out", **CORPUS_OPTIONS)
    monkeypatch.chdir("/")
    assert run_all(open_plan(root / "plan"))["documents"] == 40
    assert sorted(written(root)) == [
        f"out/{folder}/part-{n}.csv" for folder in ("corpus", "second") for n in (0, 1)
    ]
    assert plan.path == str(root / "plan")
    shutil.copytree(root / "corpus", root / "other" / "corpus")
    refused(
        fpstore.InputError,
        "would both be written to",
        planned,
        root,
        [root / "corpus", root / "other" / "corpus"],
        "plan2",
    )


# --- Folders in each other ------------------------------------------------------------------------


INSIDE = {
    "output in the input": (
        {"output": "corpus/out"},
        fpstore.InputError,
        "is in .*corpus, and the next run would read it",
    ),
    "output is the input": (
        {"output": "corpus"},
        fpstore.InputError,
        "is in .*corpus, and the next run would read it",
    ),
    "output above": ({"output": ""}, fpstore.InputError, "is in the output: name a place outside"),
    "output in the plan": (
        {"output": "plan/out"},
        fpstore.InputError,
        "is in the folder of the plan, which is removed",
    ),
    "output is the plan": (
        {"output": "plan"},
        fpstore.InputError,
        "is in the folder of the plan, which is removed",
    ),
    "plan in the output": (
        {"plan": "out/plan"},
        fpstore.InputError,
        "is in the output: name a place outside",
    ),
    "plan is the input": (
        {"plan": "corpus"},
        fpstore.StoreExistsError,
        "exists, and has files: name a new folder for the plan",
    ),
    "plan above": (
        {"plan": ""},
        fpstore.InputError,
        "is in the folder of the plan, which is removed",
    ),
    "plan in a file": (
        {"output": "o.csv", "source": "corpus/part-0.csv", "plan": "o.csv/p"},
        fpstore.InputError,
        "is in the output: name a place outside",
    ),
}


@pytest.mark.parametrize("case", INSIDE)
def test_folders_in_each_other(root, case):
    """Nothing is left of a plan that is refused, and all files are where they were."""
    options, kind, match = INSIDE[case]
    options = options | ({"source": root / options["source"]} if "source" in options else {})
    before = sorted(root.rglob("*"))
    refused(kind, match, planned, root, **options)
    assert sorted(root.rglob("*")) == before


def test_a_plan_in_the_folder_of_the_inputs(root):
    """Its files are no rows: the next plan has the same inputs."""
    expected = done_at(root)
    shutil.rmtree(root / "out")
    (root / "removed.csv").unlink()
    run_all(planned(root, plan="corpus/plan"))
    assert written(root) == expected
    (root / "removed.csv").unlink()
    assert done_at(root, output="again")["removed"] == expected["removed"]


def test_outputs_that_are_there(root):
    (root / "out").mkdir()
    (root / "out" / "old.csv").write_text("old")
    refused(fpstore.StoreExistsError, "out exists, and has files", planned, root)
    (root / "removed.csv").write_text("old")
    refused(fpstore.StoreExistsError, r"removed\.csv exists", planned, root, output="new")
    (root / "clean.csv").write_text("old")
    refused(
        fpstore.StoreExistsError,
        r"clean\.csv exists",
        planned,
        root,
        root / "corpus/part-0.csv",
        output="clean.csv",
    )
    assert not (root / "plan").exists()
    (root / "removed.csv").unlink()
    (root / "new").mkdir()
    for manifest in ("{", "[]", '{"plan": "other"}', "[" * 10_000, "\0"):
        (root / "new" / "_fpstore.json").write_text(manifest)
        refused(
            fpstore.StoreExistsError,
            "new: is the output of another plan",
            planned,
            root,
            output="new",
        )
    assert not (root / "plan").exists()
    run_all(planned(root, output="last"))
    assert (root / "removed.csv").read_text() != "old"


def test_a_file_that_appears_at_the_output(root):
    """It is not taken for what a task has written."""
    plan = planned(root, root / "corpus" / "part-0.csv", output="clean.csv")
    (root / "clean.csv").write_text("url,hash\n")
    refused(
        fpstore.StoreExistsError,
        r"clean\.csv: exists, and is not what the plan writes: remove it",
        run_all,
        plan,
    )
    (root / "clean.csv").unlink()
    (root / "removed.csv").write_text("mine")
    refused(
        fpstore.StoreExistsError,
        r"removed\.csv: exists, and is not what the plan writes: remove it",
        run_all,
        plan,
    )
    (root / "removed.csv").unlink()
    assert run_all(plan) == run_all(plan)


@pytest.mark.parametrize("output", ["out", "clean.csv"])
def test_the_same_plan_again(root, output):
    source = root / "corpus" / "part-0.csv"
    plan = planned(root, source, output=output)
    for index in range(len(plan)):
        assert plan.run(index)
    again = planned(root, source, output=output)
    assert (again.digest, again.status()) == (plan.digest, plan.status())
    assert again.finish() == planned(root, source, output=output).finish()
    refused(
        fpstore.StoreExistsError,
        "plan: holds another plan",
        planned,
        root,
        source,
        output=output,
        keep="smallest",
    )


# --- Tasks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 13, 2**70, "0", None, 1.5, True])
def test_an_index_that_is_none(root, index):
    refused(
        fpstore.InputError, "index must be a whole number from 0 to 12", planned(root).run, index
    )


def test_tasks_out_of_order(root):
    plan = planned(root)
    refused(
        fpstore.UnfinishedError,
        r"plan: task 0 of the stage hash \(index=0\) has not run: run the",
        plan.finish,
    )
    plan.run(0)
    refused(
        fpstore.UnfinishedError,
        r"plan: task 1 of the stage hash \(index=1\) has not run",
        plan.run,
        2,
    )
    for index in range(1, len(plan) - 1):
        plan.run(index)
    refused(
        fpstore.UnfinishedError,
        r"plan: task 1 of the stage list \(index=[0-9]+\) has not run",
        plan.finish,
    )
    assert not (root / "removed.csv").exists()
    assert not json.loads((root / "out" / "_fpstore.json").read_text())["complete"]
    plan.run(len(plan) - 1)
    (root / "out" / "part-0.csv").unlink()
    refused(
        fpstore.InputError,
        r"part-0\.csv: was written, and is gone: remove results/copy-00000\.pieces in",
        plan.finish,
    )


# --- The file of a plan ---------------------------------------------------------------------------


def test_no_plan(root):
    refused(
        fpstore.StoreNotFoundError,
        r"corpus: has no plan\.json: fpstore dedup --plan",
        open_plan,
        root / "corpus",
    )
    refused(fpstore.StoreNotFoundError, r"nowhere: has no plan\.json", open_plan, root / "nowhere")
    refused(
        fpstore.StoreNotFoundError, r"has no plan\.json", open_plan, root / "corpus" / "part-0.csv"
    )
    (root / "plan.json").mkdir()
    refused(fpstore.StorageError, r"plan\.json: not a file: remove it", open_plan, root)


def with_digest(content):
    return {
        **content,
        "digest": plan_digest({name: value for name, value in content.items() if name != "digest"}),
    }


VERSIONS = {
    "version": (2, "has version 2, and this fpstore knows version 1: make the plan anew"),
    "a version of digits": (10**400, "has version a larger number, and this"),
    "libraries": (
        {"fpstore": "0.1.0"},
        "was made by fpstore 0.1.0, and here is .*: results may differ; install the same",
    ),
    "numpy": ({"numpy": "1.0"}, "was made by numpy 1.0, and here is 2"),
    "missing": ({"sklearn": "1.0"}, "was made by sklearn 1.0, and here is none"),
    "kind": ("other", "was made by another fpstore"),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_a_plan_of_another_version(root, case):
    path = root / "plan" / "plan.json"
    planned(root)
    value, match = VERSIONS[case]
    name = {"numpy": "libraries", "missing": "libraries", "a version of digits": "version"}.get(
        case, case
    )
    path.write_text(json.dumps(with_digest({**json.loads(path.read_text()), name: value})))
    refused(fpstore.FormatVersionError, match, open_plan, root / "plan")


VALUES = [None, True, -1, 10**30, 1e300, "x", [], {}, [[]], "\ud800", {"a": {"b": []}}]
TEXTS = [
    "",
    "{",
    "null",
    "[]",
    "5",
    '"x"',
    "{}",
    "[" * 100_000,
    '{"format": "fpstore plan"}',
    "\0",
    "\xff",
    "9" * 5000,
    "NaN",
]


def places_in(content, above=()):
    """Yield the path to each value of JSON."""
    yield above
    if isinstance(content, (dict, list)):
        for key in content if isinstance(content, dict) else range(len(content)):
            yield from places_in(content[key], (*above, key))


def changed(content, place, value, drop):
    """Return JSON with one value changed, or dropped."""
    content = json.loads(json.dumps(content))
    at = content
    for key in place[:-1]:
        at = at[key]
    if drop:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return content


@pytest.mark.full
@pytest.mark.parametrize("cases", [300, slow(20_000)])
@pytest.mark.parametrize("forged", [False, True])
def test_a_damaged_plan(root, cases, forged):
    """Any value of any other type, also under a digest that is right.

    An FpstoreError in one line, or the same plan.
    """
    plan, rng, path = planned(root), random.Random(cases), root / "plan" / "plan.json"
    good = json.loads(path.read_text())
    places = [place for place in places_in(good) if place]
    kinds = set()
    version = next(place for place in places if list(place) == ["version"])
    for number in range(cases):
        case = (
            (rng.choice(places), rng.choice(VALUES), rng.random() < 0.3)
            if number
            else (version, 99, False)
        )
        content = changed(good, *case)
        if forged:
            content = with_digest(content)
        path.write_text(json.dumps(content))
        try:
            result = open_plan(root / "plan")
            assert result.digest == plan.digest or forged
            result.status()
        except fpstore.FpstoreError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error) or forged
            kinds.add(type(error).__name__)
    assert kinds >= {"CorruptStoreError", "FormatVersionError"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:12]))
def test_a_file_that_is_no_plan(root, text):
    planned(root)
    (root / "plan" / "plan.json").write_text(text, "latin-1")
    refused(
        fpstore.CorruptStoreError,
        r"plan\.json: damaged, changed, or not a plan",
        open_plan,
        root / "plan",
    )
    refused(fpstore.StoreExistsError, "plan: holds another plan", planned, root)


def test_any_byte_of_a_plan(root):
    """A change of any of them is noticed, but of a space."""
    plan, path = planned(root), root / "plan" / "plan.json"
    good = path.read_bytes()
    for place in np.random.default_rng(1).choice(len(good), 200, replace=False).tolist():
        path.write_bytes(good[:place] + bytes([good[place] ^ 1 << place % 8]) + good[place + 1 :])
        try:
            assert open_plan(root / "plan").digest == plan.digest
            assert good[place : place + 1].isspace() or b'"digest"' in good[:place][-40:], good[
                place - 20 : place + 5
            ]
        except (fpstore.CorruptStoreError, fpstore.FormatVersionError) as error:
            assert str(path) in str(error)


# --- Numbers of NumPy -----------------------------------------------------------------------------


WHOLE = {"radius": 3, "width": 64, "slice_rows": 10, "star_rows": 9, "part_bytes": 500}


@pytest.mark.parametrize("asked", [WHOLE, {"threshold": 0.5}, {"contained": 0.25}])
def test_numbers_of_numpy_make_the_same_plan(root, asked):
    options = {
        name: np.float32(plan) if isinstance(plan, float) else np.array(plan)[()]
        for name, plan in asked.items()
    }
    plan = plan_dedup(root / "p", root / "corpus", root / "o", text="url", **asked)
    same = plan_dedup(root / "p", root / "corpus", root / "o", text="url", **options)
    assert type(next(iter(options.values()))).__module__ == "numpy"
    assert same.digest == plan.digest
    assert same.run(np.int64(0))
    assert not plan.run(0)


def test_numbers_of_numpy_in_other_plans(root):
    options = {"documents": np.int64(50), "index_ids": np.bool_(True), "candidates": np.float32(5)}
    plan = plan_lsh(
        root / "l",
        root / "corpus",
        root / "o.lsh",
        text="url",
        threshold=np.float64(0.8),
        **options,
    )
    assert open_plan(root / "l").digest == plan.digest
    options = {
        "radius": np.int64(2),
        "index_ids": np.bool_(True),
        "decimal": np.bool_(False),
        "shard_rows": np.uint8(20),
    }
    plan = plan_build(root / "b", root / "corpus", root / "o.fps", fingerprint="hash", **options)
    assert open_plan(root / "b").digest == plan.digest


def test_no_processes(root):
    refused(
        fpstore.InputError,
        "processes must be a whole number from 1 to 1024, got 0",
        planned(root).run_all,
        0,
    )
