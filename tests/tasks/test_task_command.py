"""What the verbs of tasks say: which tasks are left, what a plan has, and which task makes a result that is damaged."""

import json
from pathlib import Path

import pytest
from commandline import failure, fine, run
from tasking import corpus_in, finished

import fpstore
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.tasks import open_plan

MANY = ("--text-field", "text", "--plan", "p", "--part-bytes", "3kB")


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return corpus_in(tmp_path / "corpus", count=600, files=3)


def test_the_tasks_that_are_left_are_named(source):
    fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    hashing = plan.status()[0].tasks
    assert hashing > 10
    assert "indexes left" not in fine("task", "status", "p")
    for index in (1, hashing - 1):
        plan.run(index)
    left = [0, *range(2, hashing - 1)]
    line = next(line for line in fine("task", "status", "p").splitlines() if line.startswith("hash"))
    assert line.endswith(f"{len(left)}  0, 2, 3, 4, 5, 6, 7, 8 and {len(left) - 8} more")
    stages = json.loads(fine("task", "status", "p", "--json"))
    assert stages[0] == {"stage": "hash", "first": 0, "tasks": hashing, "done": 2, "left": left}
    assert stages[1]["left"] == list(range(hashing, hashing + stages[1]["tasks"]))
    for index in left[:-1]:
        plan.run(index)
    assert f"1  {left[-1]}\n" in fine("task", "status", "p")


def test_a_plan_that_is_there_says_how_much_is_done(source):
    first, then = fine("dedup", "corpus", "out", *MANY).splitlines()
    assert (" planned, " in first, then) == (True, "fpstore task run p --processes N runs them")
    open_plan("p").run(0)
    assert " planned, 1 of them done, " in fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    for index in range(1, len(plan)):
        plan.run(index)
    assert fine("dedup", "corpus", "out", *MANY).endswith("\nfpstore task finish p ends the job\n")


def test_a_damaged_result_names_its_task(source, tmp_path):
    """The command line said that repair keeps what is intact."""
    fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    finished(plan)
    links, components = (one.first for one in plan.status()[1:3])
    for index, name, reader, readers in (
        (links, "links-00000", components, "components-*"),
        (3, "hash-00003", links, "links-*"),
    ):
        path = tmp_path / f"p/results/{name}.pieces"
        path.write_bytes(path.read_bytes()[:-1])
        for result in (tmp_path / "p/results").glob(readers):
            result.unlink()
        said = failure("task", "run", "p", "--index", reader)
        assert said.endswith(f"{name}.pieces: damaged: remove it, and run its task again (--index {index})\n")
        with pytest.raises(CorruptStoreError, match=rf"\(--index {index}\)$"):
            plan.run(reader)


URI_TAKERS = (
    "build b.fps {}", "build b.fps {} --text", "build b.fps {}.parquet --text-field text", "build {} a.tsv", "stats {}",
    "probe a.fps --input {}", "insert a.fps {}", "export a.fps --output {}", "ids a.fps --input {}", "join a.fps {}",
    "decontaminate corpus {} --text --output out", "dedup {} out --text-field text", "dedup corpus {} --text-field text",
    "dedup corpus out --text-field text --against {}", "calibrate {} --text",
    "lsh build {} corpus --text-field text --threshold 0.5",
    "lsh probe {} word", "hash {} --text", "weights {} --text", "backup a.fps {}", "report a.fps --output {}",
    "pairs a.fps --output {} --resume", "absorb a.fps {}", "split a.fps {} --bits 1", "repair {}", "compare {} a.tsv",
    "task probe p {} a.tsv out",
)  # fmt: skip


def test_an_object_store_needs_a_plan(source):
    """Most verbs said that there was no such file, and named a folder that the user had not."""
    (source.parent / "a.tsv").write_text(f"{7:016x}\n")
    fine("build", "a.fps", "a.tsv", "--quiet")
    for uri in ("s3://bucket/corpus", "gs://bucket/out"):
        for line in URI_TAKERS:
            said = run(*line.format(uri).split()).stderr.splitlines()[-1]
            assert f"fpstore: {uri}" in said, line
            assert ": is in an object store: only plans read inputs and write outputs there (fpstore task," in said, line
        for path in (uri, Path(uri)):
            with pytest.raises(InputError, match=r"//bucket/[a-z]+: is in an object store"):
                fpstore.open(path)
    (source.parent / "s3:").mkdir()
    with pytest.raises(StoreNotFoundError, match="no such store"):  # the name of a folder may end with a colon
        fpstore.open("s3:/store")


def test_parts_and_slices_have_a_size(source):
    fine("dedup", "corpus", "out", *MANY, "--method", "simhash", "--slice-rows", "40")
    plan = open_plan("p")
    assert plan.status()[1].tasks > 1
    finished(plan)
    fine("dedup", "corpus", "one", "--text-field", "text", "--method", "simhash")
    for path in (source.parent / "one").iterdir():
        assert path.read_bytes() == (source.parent / "out" / path.name).read_bytes()
    for verb, more in (("build", ("--by", "prefix")), ("lsh", ("--threshold", "0.5"))):
        counts = []
        for size in ("3kB", "1GB"):
            fine("task", verb, f"{verb}{size}", f"s{verb}{size}", "corpus", "--text-field", "text", *more, "--part-bytes", size)
            counts.append(open_plan(f"{verb}{size}").status()[0].tasks)
        assert counts[0] > counts[1] == 1
    fine("build", "store.fps", "corpus/part-0.parquet", "--text-field", "text", "--quiet")
    fine("task", "probe", "pp", "store.fps", "corpus", "found", "--text-field", "text", "--part-bytes", "3kB")
    assert open_plan("pp").status()[0].tasks > 10
    assert "must be 1 or more" in failure("dedup", "corpus", "o", *MANY, "--slice-rows", "0", code=2)
    assert "--part-bytes is for plans" in failure("dedup", "corpus", "o", "--text-field", "text", "--part-bytes", "1kB", code=2)
