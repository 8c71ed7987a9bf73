"""Tasks that are killed, refused, interrupted, doubled or damaged.

The output is that of a clean run, and nothing is left.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from multiprocessing import active_children

import pytest
from faultline import states
from small_plans import corpus_at, done_at, plan_pairs, planned, run_all, written
from speeds import crossed, slow

import fpstore
from fpstore.plans import dedup, open_plan, pairs

SMALL = {"slice_rows": 10}
SETUP = """
import json, os
from small_plans import corpus_at, done_at, planned, run_all, written

corpus_at(root / "corpus", files=1, rows=24)
expected = done_at(root)
assert len(expected) == 2
for name in ("out", "removed.csv"):
    os.system(f"rm -r {root / name}")

def everything(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
"""
OPERATION = """
arm()
done_at(root)
"""
CHECK = """
for name, data in written(root).items():
    assert ".unfinished-" in name or data == expected[name], name
manifest = root / "out/_fpstore.json"
complete = manifest.exists() and json.loads(manifest.read_text())["complete"]
if outcome.kind == "ok" or complete:
    finished = {name: data for name, data in written(root).items() if ".unfinished-" not in name}
    assert finished == expected
if outcome.kind == "error":
    assert outcome.type == "StorageError", outcome.message
    assert outcome.message.startswith(str(root)), outcome.message
    assert "\\n" not in outcome.message
state = "complete" if complete else "planned" if (root / "plan/plan.json").exists() else "begun"
done_at(root)
assert written(root) == expected
files = everything(root)
assert files == ["corpus/part-0.csv", "out/_fpstore.json", "out/part-0.csv", "removed.csv"], files
"""


@pytest.mark.full
@pytest.mark.parametrize("every", [41, slow(1)])
def test_a_fault_at_calls_of_a_plan(sweep, every):
    """From the writing of the plan to its removal.

    The next run goes on, and leaves what a clean run leaves.
    """
    _, outcomes = sweep(SETUP, OPERATION, CHECK, every=every)
    assert states(outcomes, "killed") >= (
        {"planned"} if every > 1 else {"begun", "planned", "complete"}
    )
    assert "planned" in states(outcomes, "error")


def damaged(plan, path):
    """Return what is said of a damaged result, with the index of its task."""
    stage, _, number = path.stem.rpartition("-")
    first = next(item.first for item in plan.status() if item.stage == stage)
    return f"{path}: damaged: remove it, and run its task again (index={first + int(number)})"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Return a folder with a corpus, and what a clean run writes."""
    root = tmp_path_factory.mktemp("clean")
    corpus_at(root / "corpus")
    return root, done_at(root, **SMALL)


@pytest.fixture
def begun(clean, tmp_path):
    """Return a plan in a new folder, and what it must write."""
    shutil.copytree(clean[0] / "corpus", tmp_path / "corpus")
    return planned(tmp_path, **SMALL), clean[1], tmp_path


RUN = (
    "import sys; from fpstore.plans import open_plan; p = open_plan(sys.argv[1]); [p.run(i) for i "
    "in range(len(p))]; p.finish()"
)


@pytest.mark.parametrize("processes", [2, slow(8)])
def test_runs_of_one_plan_at_once(begun, processes):
    plan, expected, root = begun
    running = [
        subprocess.Popen([sys.executable, "-P", "-c", RUN, plan.path], stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    assert [(item.communicate()[1], item.returncode) for item in running] == [(b"", 0)] * processes
    assert written(root) == expected
    assert all(stage.done == stage.tasks for stage in plan.status())
    assert not list(root.rglob(".unfinished-*"))


@pytest.mark.full
def test_a_worker_that_is_killed(begun):
    """What is done stays, and running again goes on."""
    plan, expected, root = begun

    def kill(*_):
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(
        fpstore.StorageError,
        match=r"a process was ended while it ran a task of the stage (hash|links).*run",
    ):
        plan.run_all(2, progress=kill)
    assert plan.status()[0].done > 0
    assert plan.status()[-1].done == 0
    notices = []
    plan.run_all(2, progress=lambda *said: notices.append(said))
    assert notices[-1] == ("list", 2, 2)
    plan.finish()
    assert written(root) == expected
    assert not list(root.rglob(".unfinished-*"))


@pytest.mark.full
@pytest.mark.parametrize("guard", ["", 'if __name__ == "__main__":\n    '])
def test_a_script_without_a_guard_is_told_so(begun, guard):
    """Its processes import it, and end before they take a task.

    "fewer processes if memory was short".
    """
    plan, _, root = begun
    script = root / "script.py"
    script.write_text(
        "import "
        f"fpstore.plans\n{guard}fpstore.plans.open_plan({plan.path!r}).run_all(processes=2)\n"
    )
    ended = subprocess.run([sys.executable, "-P", script], capture_output=True, text=True)
    message = (
        f'InputError: {plan.path}: no process could begin: .*under if __name__ == "__main__":$'
    )
    if guard:
        assert (ended.returncode, ended.stderr) == (0, "")
    else:
        assert re.search(message, ended.stderr.rstrip())


@pytest.mark.full
def test_an_error_of_a_worker_comes_whole(begun):
    plan, _, root = begun
    (root / "corpus" / "part-1.csv").write_text("url,hash\n")
    with pytest.raises(
        fpstore.InputError, match=r"part-1\.csv: changed since the plan was made"
    ) as caught:
        plan.run_all(1)
    assert caught.value.path == str(root / "corpus" / "part-1.csv")
    assert caught.value.expected != caught.value.got


def fail_late(patch, work, stage, error):
    """Let the tasks of a stage fail when their work is done and nothing of it is published."""
    done = work.tasks[stage]

    def late(*args):
        done(*args)
        raise error

    patch.setitem(work.tasks, stage, late)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, MemoryError, OSError(5, "no more"), fpstore.InputError("wrong")]
)
@pytest.mark.parametrize("stage", ["links", "copy"])
def test_an_error_in_the_middle_of_a_task(begun, monkeypatch, stage, error):
    plan, expected, root = begun
    first = next(item.first for item in plan.status() if item.stage == stage)
    for index in range(first):
        plan.run(index)
    with monkeypatch.context() as patch:
        fail_late(patch, dedup.DedupWork, stage, error)
        expecting = (
            fpstore.StorageError
            if isinstance(error, OSError)
            else type(error)
            if isinstance(error, Exception)
            else error
        )
        with pytest.raises(expecting):
            plan.run(first)
    assert not list(root.rglob(".unfinished-*"))
    assert plan.status()[STAGES.index(stage)].done == 0
    run_all(plan)
    assert written(root) == expected


STAGES = ("hash", "links", "components", "members", "decide", "copy", "ranks", "clusters", "list")


def cut(data):
    return data[:-1]


def empty(data):
    return b""


def at(share):
    def flip(data):
        place = int(share * (len(data) - 1))
        return data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :]

    flip.__name__ = f"at_{share}"
    return flip


DAMAGES = [cut, empty, *map(at, (0, 0.3, 0.6, 1))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("damage", "stage"), crossed(DAMAGES, STAGES, share=3))
def test_a_damaged_result(begun, stage, damage):
    """Whoever reads it says its name; after it was removed, its task makes it again."""
    plan, expected, root = begun
    run_all(plan)
    path = root / "plan" / "results" / f"{stage}-00000.pieces"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    for item in STAGES[STAGES.index(stage) + 1 :]:
        for later in (root / "plan" / "results").glob(f"{item}-*"):
            later.unlink()
    for name in ("out/part-0.csv", "out/part-1.csv", "removed.csv"):
        (root / name).unlink()
    for later in (root / "plan" / "results").glob("copy-*"):
        if later != path:
            later.unlink()
    try:
        run_all(plan)
        assert stage == "copy" or written(root) == expected
    except fpstore.CorruptStoreError as error:
        assert str(error) == damaged(plan, path)
        assert not (root / "removed.csv").exists()
    except fpstore.InputError as error:
        assert stage == "copy"
        assert "was written, and is gone: remove results/copy-00000.pieces in the plan" in str(
            error
        )
    path.unlink()
    run_all(plan)
    assert path.read_bytes() == good
    assert written(root) == expected


def make(path, what):
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"loop": path.name, "nowhere": "nothing", "link": "../good"}[what])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", ["folder", "pipe", "loop", "nowhere", "link"])
@pytest.mark.parametrize("stage", ["hash", "copy"])
def test_something_else_in_place_of_a_result(begun, what, stage):
    plan, expected, root = begun
    run_all(plan)
    path = root / "plan" / "results" / f"{stage}-00000.pieces"
    path.rename(root / "plan" / "good")
    make(path, what)
    if what in ("nowhere", "link"):  # nothing is there, or all that is needed
        run_all(plan)
    else:
        with pytest.raises(
            fpstore.StorageError,
            match=f"{stage}-00000.pieces: (not a file: remove it|Too many levels)",
        ):
            run_all(plan)
        path.rmdir() if what == "folder" else path.unlink()
        run_all(plan)
    assert written(root) == expected


def test_results_of_another_plan_or_task(begun, clean):
    plan, expected, root = begun
    run_all(plan)
    (root / "other").mkdir()
    shutil.copytree(root / "corpus", root / "other" / "corpus")
    other = planned(root / "other", slice_rows=10, keep="central")
    run_all(other)
    results = root / "plan" / "results"
    for source, what in (
        (results / "hash-00001.pieces", "task"),
        (root / "other/plan/results/hash-00000.pieces", "plan"),
    ):
        good = (results / "hash-00000.pieces").read_bytes()
        shutil.copy(source, results / "hash-00000.pieces")
        with pytest.raises(
            fpstore.CorruptStoreError,
            match=rf"hash-00000\.pieces: is of another {what}: remove it, and run",
        ):
            open_plan(root / "plan").finish()
        (results / "hash-00000.pieces").write_bytes(good)
    assert plan.finish()["documents"] == 60
    assert written(root) == expected


def test_the_end_removes_what_other_machines_have_left(begun):
    plan, expected, root = begun
    (root / "out" / ".unfinished-00000000-far").mkdir()
    run_all(plan)
    assert written(root) == expected
    assert not list(root.rglob(".unfinished-*"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(5, "no more")])
@pytest.mark.parametrize(("damage", "stage"), crossed(DAMAGES, ["send", "pairs"], share=3))
def test_damaged_and_interrupted_tasks_of_pairs(tmp_path, monkeypatch, damage, stage, error):
    """A task that fails publishes nothing.

    A damaged result is named, and its task makes it again.
    """
    fpstore.build(tmp_path / "s.fps", [row << 40 ^ row for row in range(300)]).close()
    plan = plan_pairs(
        tmp_path / "plan",
        tmp_path / "s.fps",
        tmp_path / "out",
        radius=2,
        output_format="csv",
        slice_rows=100,
    )
    with monkeypatch.context() as patch:
        fail_late(patch, pairs.PairsWork, stage, error)
        with pytest.raises(fpstore.StorageError if isinstance(error, OSError) else error):
            run_all(plan)
    assert not list(tmp_path.rglob(".unfinished-*"))
    assert all(item.done == 0 for item in plan.status() if item.stage == stage)
    result = run_all(plan)
    assert result["pairs"] > 100
    expected, path = written(tmp_path), tmp_path / "plan" / "results" / f"{stage}-00000.pieces"
    good = path.read_bytes()
    path.write_bytes(damage(good))
    if stage == "send":
        for later in (tmp_path / "plan" / "results").glob("pairs-*"):
            later.unlink()
    try:
        run_all(plan)  # nothing reads what is damaged
    except fpstore.CorruptStoreError as told:
        assert str(told) == damaged(plan, path)
    path.unlink()
    assert run_all(plan) == result
    assert path.read_bytes() == good
    assert written(tmp_path) == expected
