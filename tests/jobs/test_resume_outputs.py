"""Jobs that are killed as their outputs appear: the same command finishes them, and replaces nothing that they have not made."""

import itertools
import json
import re
from pathlib import Path

import pytest
from commandline import failure, run
from resuming import command, in_another, killed
from speeds import slow

import fpstore
from fpstore.jobs.checkpoint import Checkpoint


@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize(
    "asked",
    [
        "dedup c.csv {}/out.csv --text-field text --id-field id --clusters {}/list.tsv --threads 1",
        "dedup c.jsonl {}/out.jsonl --text-field text --threads 1",
        "dedup notes {}/out --text --clusters {}/list.tsv --threads 1",
        slow("pairs s.fps --output {}/out.tsv --threads 1"),
        "join s.fps few.fps --output {}/out.tsv --threads 1",
        "cluster s.fps --output {}/out.tsv --threads 1",
    ],
)
def test_a_job_that_is_killed_as_its_outputs_appear_is_finished(asked):
    """The same command was refused then, because the output was there; and the list of clusters was missing."""

    def in_folder(name):
        Path(name).mkdir()
        return [*asked.format(name, name).split(), "--resume"]

    def content(name):
        paths = [path for path in Path(name).rglob("*") if path.is_file()]
        return {"/".join(path.parts[1:]): path.read_bytes() for path in paths if not re.match(r"\.|.*\.resume", path.parts[1])}

    methods = ("replace", "rmdir")
    count = in_another(in_folder("whole"), names=methods)
    removed = in_another(in_folder("removed"), names=("unlink",))
    expected = content("whole")
    assert ("list.tsv" in expected) == ("--clusters" in asked)
    states = []
    for call in (*range(count, count - 2, -1), removed // 2, *range(count - 2, 0, -1)):
        name = f"killed-{len(states)}"
        arguments = in_folder(name)
        assert in_another(arguments, call, ("unlink",) if len(states) == 2 else methods, after=True) is None
        states.append(content(name))
        if not list(Path(name).glob("*.resume/job.json")):  # it has ended
            assert states[-1] == expected
            continue
        again = run(*arguments)
        assert again.exit_code == 0, again.stderr
        assert content(name) == expected
        assert not list(Path(name).glob(".*"))
        if not states[-1]:
            break
    listed = {"list.tsv": expected["list.tsv"]} if "--clusters" in asked else {}
    assert [state for state, _ in itertools.groupby(states)] == [expected, *([listed] if listed else []), {}]


@pytest.mark.usefixtures("job_folder")
def test_texts_in_a_folder():
    asked = ["dedup", "notes", "clean", "--text", "--threads", "1", "--resume"]
    assert run(*asked[:2], "whole", *asked[3:-1]).exit_code == 0
    names = sorted(path.name for path in Path("whole").iterdir())
    assert killed(asked, 4)
    assert list(Path("clean.resume").glob("rows-*"))
    assert run(*asked).exit_code == 0
    assert sorted(path.name for path in Path("clean").iterdir()) == names
    assert not Path("clean.resume").exists()


def refuses_another(arguments, name):
    """Put a file in the place of an output: the job leaves it alone."""
    Path(name).write_text("mine")
    assert f"{name} exists: --force replaces it" in failure(*arguments)
    assert Path(name).read_text() == "mine"
    Path(name).unlink()


@pytest.mark.usefixtures("job_folder")
def test_a_file_that_the_job_has_not_made_is_not_replaced():
    arguments = ["dedup", "c.jsonl", "out.jsonl", "--text-field", "text", "--threads", "1", "--resume"]
    count = in_another(["dedup", "c.jsonl", "whole.jsonl", *arguments[3:]])
    for call, after in ((count, False), (2, True)):  # the second run has only the outputs to note and to rename
        assert in_another(arguments, call, after=after) is None
        assert Path("out.jsonl").exists() == after
        refuses_another(arguments, "out.jsonl")
    assert run(*arguments).exit_code == 0
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize("after", [False, True])
def test_a_list_of_clusters_that_the_job_has_not_made_is_not_replaced(after):
    """The job noted only the name of the list, and took whatever had it for its own."""
    asked = "dedup c.csv {}.csv --text-field text --id-field id --clusters {}.tsv --threads 1 --resume"
    arguments = asked.format("out", "list").split()
    count = in_another(asked.format("whole", "whole").split())
    assert in_another(arguments, count - 1, after=after) is None  # the list gets its name, then the output
    assert (Path("list.tsv").exists(), Path("out.csv").exists()) == (after, False)
    refuses_another(arguments, "list.tsv")
    assert run(*arguments).exit_code == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("list.tsv").read_bytes() == Path("whole.tsv").read_bytes()


@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize("appeared", [1, 2])
def test_outputs_that_are_written_again_as_the_next_run_is_killed(appeared):
    """The list has appeared, or the rows, too; the next run is killed before and after each file that it renames."""
    asked = "dedup c.csv {}.csv --text-field text --id-field id --clusters {}.tsv --threads 1 --resume"
    arguments = asked.format("out", "list").split()
    count = in_another(asked.format("whole", "whole").split())
    assert in_another(arguments, count - 2 + appeared, after=True) is None
    for call, after in itertools.product(range(1, 5), (False, True)):
        if in_another(arguments, call, after=after) is not None:  # it has ended
            break
    else:
        assert run(*arguments).exit_code == 0
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert Path("list.tsv").read_bytes() == Path("whole.tsv").read_bytes()


@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize(("source", "text"), [("c.jsonl", "text"), ("notes", True)])
def test_a_call_that_ended_before_its_folder_was_removed_is_repeated(monkeypatch, source, text):
    def dedup():
        return fpstore.dedup(source, f"new-{source}", text=text, threads=1, resume="kept")

    def stop(kept):
        kept.drop()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "remove", stop)
        with pytest.raises(KeyboardInterrupt):
            dedup()
    made = Path(f"new-{source}").stat()
    assert dedup().kept.tolist() == fpstore.dedup(source, text=text).kept.tolist()
    assert Path(f"new-{source}").stat().st_ino == made.st_ino
    assert not Path("kept").exists()
    with pytest.raises(fpstore.StoreExistsError):
        dedup()


@pytest.mark.usefixtures("job_folder")
@pytest.mark.parametrize("outputs", [None, 5, {"clusters.tsv": None}])
def test_outputs_that_cannot_be_are_damage(outputs):
    arguments = [*command("pairs", "p"), "--resume"]
    assert killed(arguments, 4)
    path = Path("p.tsv.resume/job.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "outputs": outputs}))
    assert "job.json: damaged: remove the folder to start anew" in failure(*arguments)
