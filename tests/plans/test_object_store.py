"""Plans in an object store.

A server of S3 on the loopback device, if it is installed (moto[s3], flask and flask-cors).
"""

import gzip
import importlib.util
import json
import os
import select
import socket
import subprocess
import sys
import textwrap
import zlib
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from inputs import json_lines
from pyarrow import fs
from small_plans import CORPUS_OPTIONS, corpus_at, done_at, plan_dedup
from speeds import slow

import fpstore
from fpstore.plans import open_plan
from fpstore.work.places import open_place

SERVER = "moto.server"
FOLDER = "a folder/größe 100%"  # which a URI would escape


def free_port():
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        return result.getsockname()[1]


@contextmanager
def serving(**variables):
    """Start a server in a process of its own; yield its URL."""
    if any(importlib.util.find_spec(name) is None for name in ("moto", "flask", "flask_cors")):
        pytest.skip("moto, flask and flask_cors are not installed")
    port = free_port()
    command = [sys.executable, "-m", SERVER, "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=os.environ | variables, **quiet) as server:
        try:
            while not answers(port):
                assert server.poll() is None
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def answers(port):
    """Whether the server takes a connection; if not, wait a little."""
    with socket.socket() as asking:
        result = asking.connect_ex(("127.0.0.1", port)) == 0
    if not result:
        select.select([], [], [], 0.05)
    return result


@pytest.fixture(scope="module")
def server():
    with serving() as url:
        yield url


def asking(monkeypatch, url):
    """Let all clients of this process and its children ask a server."""
    results = {
        "ENDPOINT_URL": url,
        "ACCESS_KEY_ID": "name",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "us-east-1",
    }
    for name, value in (results | {"EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def bucket(server, monkeypatch, request):
    """Return a new bucket's file system and its name."""
    asking(monkeypatch, server)
    name = f"bucket-{zlib.crc32(request.node.name.encode())}"
    urlopen(Request(f"{server}/{name}", method="PUT")).close()
    return fs.FileSystem.from_uri(f"s3://{name}/")[0], name


def uploaded(system, folder, to):
    fs.copy_files(
        str(folder), to, source_filesystem=fs.LocalFileSystem(), destination_filesystem=system
    )


def objects(system, name):
    """Return the contents of all objects in a bucket, but those that mark folders."""
    result = system.get_file_info(fs.FileSelector(name, recursive=True))
    return {
        item.path[len(name) + 1 :]: system.open_input_file(item.path).read()
        for item in result
        if item.type == fs.FileType.File
    }


def planned(name, **asked):
    top = f"s3://{name}/{FOLDER}"
    return plan_dedup(
        f"{top}/plan",
        f"{top}/corpus",
        f"{top}/out",
        **CORPUS_OPTIONS,
        removed=f"{top}/removed.csv",
        **asked,
    )


@pytest.fixture
def corpus(bucket, tmp_path):
    """Return a bucket with a corpus, and what one process makes of it."""
    system, name = bucket
    corpus_at(tmp_path / "corpus", files=1, rows=20)
    # sorts before part-0.csv as a folder, and behind it as a name
    corpus_at(tmp_path / "corpus" / "part", files=1, rows=20)
    fpstore.dedup(tmp_path / "corpus", tmp_path / "one", fingerprint="hash", id="url")
    expected = {f"{FOLDER}/{key}": value for key, value in done_at(tmp_path).items()}
    expected[f"{FOLDER}/removed.csv"] = expected.pop(f"{FOLDER}/removed")
    for path in (tmp_path / "one").rglob("*.csv"):
        assert path.read_bytes() == expected[f"{FOLDER}/out/{path.relative_to(tmp_path / 'one')}"]
    uploaded(system, tmp_path / "corpus", f"{name}/{FOLDER}/corpus")
    return system, name, expected


def written(system, name):
    result = objects(system, name)
    manifest = json.loads(result.pop(f"{FOLDER}/out/_fpstore.json"))
    left = [key for key in result if "/plan/" in key]
    return (
        {key: value for key, value in result.items() if "/corpus/" not in key and key not in left},
        manifest["complete"],
        left,
    )


RUN = """
import sys
from fpstore.plans import open_plan

plan = open_plan(sys.argv[1])
for index in range(len(plan)):
    plan.run(index)
plan.finish()
"""


@pytest.mark.full
@pytest.mark.parametrize("runs", [2, slow(6)])
def test_runs_at_once(corpus, runs):
    """The bytes are those of one process.

    The removal of the plan leaves only the input and the output.
    """
    system, name, expected = corpus
    plan = planned(name, slice_rows=30)
    command = [sys.executable, "-P", "-c", textwrap.dedent(RUN), plan.path]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(runs)]
    assert [(item.communicate()[1], item.returncode) for item in running] == [(b"", 0)] * runs
    assert written(system, name)[:2] == (expected, True)
    assert all(stage.done == stage.tasks and stage.latest is not None for stage in plan.status())
    again = planned(name, slice_rows=30)
    assert (again.digest, again.run(0)) == (plan.digest, False)
    assert fine("task", "remove", plan.path).startswith(f"{plan.path}: removed, ")
    assert written(system, name) == (expected, True, [])


def test_results_that_are_removed_or_damaged(corpus):
    system, name, expected = corpus
    plan = planned(name)
    links = plan.status()[1].first
    assert [plan.run(index) for index in range(links)] == [True] * links
    path = f"{name}/{FOLDER}/plan/results/hash-00000.pieces"
    good = system.open_input_file(path).read()
    with system.open_output_stream(path) as file:
        file.write(good[:-30])
    with pytest.raises(
        fpstore.CorruptStoreError,
        match=r"^s3://.*/plan/results/hash-00000\.pieces: damaged: remove it",
    ):
        open_plan(plan.path).run(links)
    system.delete_file(path)
    assert "its job is not finished" in failure("task", "remove", plan.path, code=3)
    with pytest.raises(
        fpstore.UnfinishedError, match=r"task 0 of the stage hash \(index=0\) has not run"
    ):
        plan.finish()
    assert plan.status()[0].done == links - 1
    for index in range(len(plan)):
        plan.run(index)
    plan.finish()
    assert system.open_input_file(path).read() == good
    assert written(system, name)[:2] == (expected, True)


def test_an_object_that_changes(corpus):
    system, name, _ = corpus
    plan = planned(name)
    with system.open_output_stream(f"{name}/{FOLDER}/corpus/part-0.csv") as file:
        file.write(b"url,hash\n")
    with pytest.raises(
        fpstore.InputError, match=r"^s3://.*corpus/part-0\.csv: changed since the plan was made"
    ):
        [plan.run(index) for index in range(len(plan))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("output", ["corpus/out", "plan/out", "corpus", "plan"])
def test_outputs_in_inputs_or_plans(corpus, output):
    system, name, _ = corpus
    top, before = f"s3://{name}/{FOLDER}", objects(system, name)
    with pytest.raises(
        fpstore.InputError, match=r"is in .*(the next run would read it|folder of the plan)"
    ):
        plan_dedup(f"{top}/plan", f"{top}/corpus", f"{top}/{output}", **CORPUS_OPTIONS)
    assert objects(system, name) == before


def test_a_copy_that_fails_leaves_no_object(bucket, tmp_path, monkeypatch):
    """A stream of pyarrow publishes what was written before an error."""
    system, name = bucket
    place = open_place(f"s3://{name}/plan")

    def half(source, path, target, to):
        with target.open_output_stream(to) as file:
            file.write(b"half")
        raise OSError("cannot be read")

    monkeypatch.setattr(place, "_copy", half)
    with (
        pytest.raises(fpstore.StorageError, match=f"^s3://{name}/plan/result: cannot be read"),
        place.create_file("result") as path,
    ):
        path.write_bytes(b"all of it")
    assert objects(system, name) == {}


# --- One process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl.gz"])
def test_one_process_reads_and_writes_objects(bucket, tmp_path, monkeypatch, suffix):
    """The objects are the files that are written on a disk."""
    system, name = bucket
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"r{n}", "text": f"page {n // 2} of all the pages"} for n in range(8)]
    (tmp_path / "in").mkdir()
    for number, half in enumerate((rows[:4], rows[4:])):
        path = tmp_path / "in" / f"{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(pa.Table.from_pylist(half), path)
        else:
            path.write_bytes(gzip.compress(json_lines(half).encode()))
    uploaded(system, tmp_path / "in", f"{name}/a b")
    options = ("--text-field", "text", "--threshold", 0.9, "--id-field", "id", "-q")
    Path("here").mkdir()
    for source, place in (("in", "here"), (f"s3://{name}/a b/*{suffix}", f"s3://{name}")):
        lists = ("--annotate", "--removed", f"{place}/gone.jsonl.gz")
        fine("dedup", source, f"{place}/out/", *options, *lists)
    result = objects(system, name)
    for written_name in ("gone.jsonl.gz", f"out/0{suffix}", f"out/1{suffix}"):
        assert result[written_name] == Path("here", written_name).read_bytes()
    assert len(gzip.decompress(result["gone.jsonl.gz"]).splitlines()) == 4


# --- Stores that refuse ---------------------------------------------------------------------------


@pytest.mark.full
def test_a_bucket_that_is_missing(server, monkeypatch, tmp_path):
    asking(monkeypatch, server)
    source = corpus_at(tmp_path / "corpus")
    with pytest.raises(
        fpstore.InputError, match=r"^s3://missing/x: no \.parquet, .* in this folder"
    ):
        plan_dedup(tmp_path / "plan", "s3://missing/x", tmp_path / "out", **CORPUS_OPTIONS)
    with pytest.raises(
        fpstore.StorageError,
        match=r"^s3://missing/plan/plan\.json: .*NO_SUCH_BUCKET.*bucket does not exist",
    ):
        plan_dedup("s3://missing/plan", source, tmp_path / "out", **CORPUS_OPTIONS)
    with pytest.raises(fpstore.StoreNotFoundError, match=r"^s3://missing/plan: has no plan\.json"):
        open_plan("s3://missing/plan")


@pytest.mark.full
def test_credentials_that_are_wrong(monkeypatch, tmp_path):
    with serving(INITIAL_NO_AUTH_ACTION_COUNT="0") as url:
        asking(monkeypatch, url)
        for work in (
            lambda: open_plan("s3://bucket/plan"),
            lambda: open_place("s3://bucket/plan").names(),
        ):
            with pytest.raises(
                fpstore.StorageError,
                match=r"^s3://bucket/plan.*(ACCESS_DENIED|INVALID_ACCESS_KEY_ID)",
            ) as caught:
                work()
            assert "\n" not in str(caught.value)


@pytest.mark.slow  # pyarrow tries again for six seconds
def test_a_server_that_is_gone(monkeypatch):
    asking(monkeypatch, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(
        fpstore.StorageError,
        match=r"^s3://bucket/plan/plan\.json: .*NETWORK_CONNECTION.*[cC]onnect",
    ):
        open_plan("s3://bucket/plan")
