"""What the verbs of tasks say.

Which tasks are left, what a plan has, and which task makes a result that is damaged.
"""

import json
import os
import re
from pathlib import Path

import pytest
from commandline import TEXT_FIELD, failure, fine, run
from small_plans import plan_dedup
from text_corpora import corpus_in, finished, write

import fpstore
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.plans import StageStatus, open_plan
from fpstore.work.folder import plan_digest
from fpstore.work.places import DiskPlace

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
    assert plan.status()[0].left == tuple(left)
    line = next(
        line for line in fine("task", "status", "p").splitlines() if line.startswith("hash")
    )
    assert line.split()[2:4] == ["2", f"{len(left)}"]
    assert line.endswith(f"  0, 2, 3, 4, 5, 6, 7, 8 and {len(left) - 8} more")
    stages = json.loads(fine("task", "status", "p", "--json"))
    wanted = {"stage": "hash", "first": 0, "tasks": hashing, "done": 2, "begun": 0, "left": left}
    assert {name: stages[0][name] for name in wanted} == wanted
    assert stages[1]["left"] == list(range(hashing, hashing + stages[1]["tasks"]))
    for index in left[:-1]:
        plan.run(index)
    assert f"  {left[-1]}\n" in fine("task", "status", "p")


def test_status_says_how_fast_and_how_long(source, tmp_path):
    """By the times of files, since the plan was made or the stage before was done."""
    fine("dedup", "corpus", "out", *MANY)
    plan, made = open_plan("p"), 1_000_000_000
    hashing = plan.status()[0].tasks
    os.utime("p/plan.json", (made, made))
    assert (plan.status()[0].rate, plan.status()[0].latest, plan.status()[0].seconds_left) == (
        None,
        None,
        None,
    )
    assert "rate" not in fine("task", "status", "p")
    for index in range(3):
        plan.run(index)
        os.utime(f"p/results/hash-{index:05d}.pieces", (made, made + 3600 + 120 * index))
    stage = plan.status()[0]
    assert (stage.latest, stage.rate, stage.seconds_left) == (
        made + 3840,
        3 / 3840,
        (hashing - 3) / (3 / 3840),
    )
    line = next(
        line for line in fine("task", "status", "p").splitlines() if line.startswith("hash")
    )
    hours, minutes = divmod(round(stage.seconds_left) // 60, 60)
    assert f"{hashing - 3}  2.8/h  {hours} h {minutes} min  3, 4, 5, " in line
    assert re.search(
        r"^The last result appeared at 2001-09-0[89] [0-9:]{8} [+-][0-9]{4}\.$",
        fine("task", "status", "p"),
        re.M,
    )
    for index in range(3, hashing):
        plan.run(index)
        os.utime(f"p/results/hash-{index:05d}.pieces", (made + 3840, made + 3840))
    plan.run(plan.status()[1].first)
    os.utime(next(Path("p/results").glob("equal-*")), (made, made + 3850))
    assert plan.status()[1].rate == 0.1  # since the stage before was done
    summary = json.loads(fine("task", "status", "p", "--json"))
    assert (summary[1]["rate"], summary[1]["latest"], summary[0]["seconds_left"]) == (
        0.1,
        made + 3850,
        0,
    )


def test_a_rate_is_that_of_the_last_hundred(tmp_path):
    for index in range(200):
        write(tmp_path / "corpus" / f"{index}.jsonl", [{"text": f"text {index}"}])
    plan = plan_dedup(
        tmp_path / "plan", tmp_path / "corpus", tmp_path / "out", text="text", part_bytes=1
    )
    folder, place = tmp_path / "plan" / "results", DiskPlace(tmp_path / "plan")
    for index in range(150):
        place.publish(f"results/hash-{index:05d}.pieces", b"")
        seconds = 1_000_000_000 + (index if index < 49 else 100_000 + 2 * (index - 49))
        os.utime(folder / f"hash-{index:05d}.pieces", (seconds, seconds))
    assert plan.status()[0] == StageStatus(
        "hash", 0, 200, 150, tuple(range(150, 200)), 1_000_100_200, 0.5, 0
    )
    assert plan.status()[0].seconds_left == 100


def test_status_counts_tasks_that_are_begun(source):
    fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    place = DiskPlace(Path("p"))
    with (
        place.create_file("results/hash-00003.pieces") as first,
        place.create_file("results/hash-00003.pieces") as second,
    ):
        first.write_bytes(b"")
        second.write_bytes(b"")
        assert [stage.begun for stage in plan.status()] == [1] + [0] * (len(plan.status()) - 1)
        assert "left  begun\n" in fine("task", "status", "p")
        plan.run(3)
        assert plan.status()[0].begun == 0


def test_not_yet_and_broken_have_exit_codes_of_their_own(source):
    """Both were 1: a script could not tell whether to wait."""
    fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    assert "(--index 0) has not run: run the stages in order" in failure(
        "task", "finish", "p", code=3
    )
    assert "has not run" in failure("task", "run", "p", "--index", plan.status()[1].first, code=3)
    with pytest.raises(fpstore.UnfinishedError):
        plan.finish()
    finished(plan)
    (path := Path("p/results/copy-00000.pieces")).write_bytes(path.read_bytes()[:-1])
    assert "damaged" in failure("task", "finish", "p", code=1)
    assert "no plan.json" in failure("task", "finish", "nothing", code=1)
    fine("task", "build", "b", "shards", "corpus", "--text-field", "text")
    finished(open_plan("b"))
    Path("shards/shards.json").unlink()
    assert "is an unfinished sharded store" in failure("stats", "shards", code=3)
    assert "is an unfinished sharded store" in failure("probe", "shards", "0", code=2)  # as grep
    with fpstore.open(fpstore.build("s.fps", [1]).path, "r+"):
        assert "open" in failure("merge", "s.fps", code=3)


@pytest.mark.full
def test_remove_takes_a_plan_whose_job_is_finished(source):
    for kind in ("disk", "stored"):
        where = "p" if kind == "disk" else f"file://{source.parent}/p"
        more = (*TEXT_FIELD, "--plan", "p", "--removed", f"{kind}.tsv", "--part-bytes", "3kB")
        fine("dedup", "corpus", f"out-{kind}", *more)
        assert f"{where}: its job is not finished" in failure("task", "remove", where, code=3)
        plan = open_plan("p")
        for index in range(len(plan)):
            plan.run(index)
        assert not plan.is_finished()
        assert f"{where}: its job is not finished" in failure("task", "remove", where, code=3)
        plan.finish()
        assert plan.is_finished()
        Path("p/notes.txt").write_text("of others")
        done = run("task", "remove", where, "--json")
        assert json.loads(done.stdout) == {"removed": where, "others": ["notes.txt"]}
        assert done.stderr == f"fpstore: {where}: 1 file of others stays: notes.txt\n"
        assert [path.name for path in Path("p").rglob("*") if path.is_file()] == ["notes.txt"]
        assert "has no plan.json" in failure("task", "remove", where, code=1)
        assert "has no plan.json" in failure("task", "remove", f"out-{kind}", "--force", code=1)
        assert len(list(Path(f"out-{kind}").iterdir())) == 4
        Path("p/notes.txt").unlink()
        fine("dedup", "corpus", f"new-{kind}", *more[:-3], f"{kind}-2.tsv", *more[-2:])
        content = json.loads(Path("p/plan.json").read_text())
        content["libraries"]["numpy"] = "1.0"
        content["digest"] = plan_digest(
            {name: value for name, value in content.items() if name != "digest"}
        )
        Path("p/plan.json").write_text(json.dumps(content))
        assert "was made by numpy 1.0" in failure("task", "remove", where, code=1)
        assert fine("task", "remove", where, "--force").startswith(f"{where}: removed, ")
        assert not list(Path("p").rglob("*.*"))


def test_a_plan_of_one_file_is_finished_with_its_list(source):
    parts = ("corpus/part-0.parquet", "one.parquet", "--text-field", "text")
    fine("dedup", *parts, "--plan", "p", "--removed", "r.tsv")
    plan = open_plan("p")
    for index in range(len(plan)):
        plan.run(index)
    assert not plan.is_finished()
    output = fine("task", "finish", "p")
    assert plan.is_finished()
    assert output.splitlines()[0] == "Done"
    assert "documents" in output
    assert fine("task", "finish", "p", "--quiet") == ""


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
    stages = {stage.stage: stage.first for stage in plan.status()}
    for index, name, reader, readers in (
        (stages["check"], "check-00000", stages["components"], "components-*"),
        (3, "hash-00003", stages["equal"], "equal-*"),
    ):
        path = tmp_path / f"p/results/{name}.pieces"
        path.write_bytes(path.read_bytes()[:-1])
        for result in (tmp_path / "p/results").glob(readers):
            result.unlink()
        said = failure("task", "run", "p", "--index", reader)
        assert said.endswith(
            f"{name}.pieces: damaged: remove it, and run its task again (--index {index})\n"
        )
        with pytest.raises(CorruptStoreError, match=rf"\(index={index}\)$"):
            plan.run(reader)


URI_REFUSERS = (
    "build b.fps {} --text",
    "build {} a.tsv",
    "stats {}",
    "ids a.fps --input {}",
    "decontaminate corpus {} --text --output out",
    "dedup corpus out --text-field text --against {}",
    "calibrate {} --text",
    "lsh build {} corpus --text-field text --threshold 0.5",
    "probe {} word",
    "hash {} --text",
    "weights {} --text",
    "backup a.fps {}",
    "pairs a.fps --output {} --resume",
    "absorb a.fps {}",
    "split a.fps {} --bits 1",
    "repair {}",
    "compare {} a.tsv",
    "task probe p {} a.tsv out",
)


def test_what_stays_on_disks_refuses_an_object_store(source):
    """Most verbs said that there was no such file, and named a folder that the user had not."""
    (source.parent / "a.tsv").write_text(f"{7:016x}\n")
    fine("build", "a.fps", "a.tsv", "--quiet")
    for uri in ("s3://bucket/corpus", "gs://bucket/out"):
        for line in URI_REFUSERS:
            said = run(*line.format(uri).split()).stderr.splitlines()[-1]
            assert f"fpstore: {uri}" in said, line
            assert (
                ": is a URI, and a path is expected: name a copy on a disk, or plan tasks" in said
            ), line
        with pytest.raises(InputError, match=r"//bucket/[a-z]+: is a URI, and a path is expected"):
            fpstore.open(uri)
        with pytest.raises(
            InputError, match=r":/bucket/[a-z]+: is a URI in a pathlib.Path, .*: give a str"
        ):
            fpstore.open(Path(uri))
    (source.parent / "s3:").mkdir()
    # the name of a folder may end with a colon
    with pytest.raises(StoreNotFoundError, match="no such store"):
        fpstore.open("s3:/store")


@pytest.mark.parametrize(
    "uri", ["https://example.org/a.parquet", "file:///tmp/a.parquet", "s3://bucket/a.parquet"]
)
def test_uris_are_printed_as_they_are(uri):
    """All were in an object store, and file:///tmp was file://tmp."""
    with pytest.raises(InputError, match=f"^{re.escape(uri)}: is a URI, and a path is expected"):
        fpstore.open(uri)


def test_names_with_colons_are_no_uris(source):
    for path in ("data:/x", "a:b", "1://x"):
        with pytest.raises(StoreNotFoundError, match="no such store"):
            fpstore.open(path)


def test_a_plan_refuses_a_path_made_of_a_uri(source):
    with pytest.raises(
        InputError, match=r"s3:/bucket/k: is a URI in a pathlib.Path, .*: give a str"
    ):
        plan_dedup("plan", Path("s3://bucket/k"), "out", text="text")


@pytest.mark.full
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
            task = ("task", verb, f"{verb}{size}", f"s{verb}{size}", "corpus")
            fine(*task, *TEXT_FIELD, *more, "--part-bytes", size)
            counts.append(open_plan(f"{verb}{size}").status()[0].tasks)
        assert counts[0] > counts[1] == 1
    fine("build", "store.fps", "corpus/part-0.parquet", "--text-field", "text", "--quiet")
    fine("task", "probe", "pp", "store.fps", "corpus", "found", *TEXT_FIELD, "--part-bytes", "3kB")
    assert open_plan("pp").status()[0].tasks > 10
    assert "must be 1 or more" in failure(
        "dedup", "corpus", "o", *MANY, "--slice-rows", "0", code=2
    )
    assert "--part-bytes is for plans" in failure(
        "dedup", "corpus", "o", "--text-field", "text", "--part-bytes", "1kB", code=2
    )


def test_the_method_refuses_a_plan_as_the_command_does(source):
    """`Plan.remove` removed the results of a job that was not finished."""
    fine("dedup", "corpus", "out", *MANY)
    plan = open_plan("p")
    plan.run(0)
    Path("p/notes.txt").write_text("of others")
    for remove in (plan.remove, lambda: fpstore.plans.remove_plan("p")):
        with pytest.raises(
            fpstore.UnfinishedError, match=r"its job is not finished.* with force=True$"
        ):
            remove()
    assert Path("p/results/hash-00000.pieces").is_file()
    assert plan.remove(force=True) == ["notes.txt"]
    assert [path.name for path in Path("p").rglob("*") if path.is_file()] == ["notes.txt"]


def test_remove_through_a_link_removes_the_plan(source):
    fine("dedup", "corpus", "out", "--text-field", "text", "--plan", "p")
    Path("link").symlink_to("p")
    Path("p/mine").symlink_to("..")
    done = run("task", "remove", "link", "--force", "--json")
    assert json.loads(done.stdout)["others"] == ["mine"]
    assert sorted(path.name for path in Path("p").iterdir() if path.name != "results") == ["mine"]
    Path("p/mine").unlink()
    fine("dedup", "corpus", "out", "--text-field", "text", "--plan", "p")
    fine("task", "remove", "link", "--force")
    assert not Path("p").exists()
    assert not Path("link").is_symlink()
