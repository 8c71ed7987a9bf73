"""``dedup --processes --force``: outputs are replaced once the new ones are complete."""

import json
import shutil
from pathlib import Path

import pytest
from commandline import failure, fine
from inputs import json_lines
from resuming import killed

from fpstore.plans import Plan

ROWS = [{"text": f"page {n // 2} of all the pages", "n": n} for n in range(12)]
WORDS = ("--text-field", "text", "--threshold", 0.9, "-q")
FORCED = ("--processes", 1, "--force")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for part in range(2):
        Path("in", f"{part}.jsonl").write_text(json_lines(ROWS[6 * part :][:6]))
    return tmp_path


def names():
    return sorted(str(path) for path in Path().iterdir())


def kept(folder):
    return [
        json.loads(line)["n"]
        for path in sorted(Path(folder).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


@pytest.mark.full
def test_a_folder_and_a_list_are_replaced(here):
    for more in ((*FORCED[:2],), FORCED, ("--force",), FORCED):
        fine("dedup", "in", "out", *WORDS, "--removed", "gone.tsv", *more)
        assert kept("out") == list(range(0, 12, 2))
        assert len(Path("gone.tsv").read_text().splitlines()) == 7  # with the header
        assert names() == ["gone.tsv", "in", "out"]
        Path("out/old.jsonl").write_text('{"n": -1}\n')
        Path("gone.tsv").write_text("old")


@pytest.mark.full
def test_a_file_is_replaced_and_a_link_stays(here):
    Path("deep").mkdir()
    Path("deep/real.jsonl").write_text("old\n")
    Path("one.jsonl").symlink_to("deep/real.jsonl")
    fine("dedup", "in/0.jsonl", "one.jsonl", *WORDS, *FORCED)
    assert Path("one.jsonl").is_symlink()
    assert Path("deep/real.jsonl").read_text() == json_lines(ROWS[:6:2])
    fine("dedup", "in/1.jsonl", "new.jsonl", *WORDS, *FORCED)
    assert Path("new.jsonl").read_text() == json_lines(ROWS[6::2])
    assert names() == ["deep", "in", "new.jsonl", "one.jsonl"]


def test_what_is_not_replaced(here):
    Path("out").mkdir()
    Path("out/notes.md").write_text("mine")
    assert "out/notes.md is no .jsonl file" in failure("dedup", "in", "out", *WORDS, *FORCED)
    assert "is an input in it" in failure("dedup", "in/0.jsonl", "in", *WORDS, *FORCED)
    assert "--force is for work, and --plan only writes a plan" in failure(
        "dedup", "in", "new", *WORDS, "--plan", "p", "--force", code=2
    )
    assert "--force is for outputs on a disk" in failure(
        "dedup", "in", (here / "new").as_uri(), *WORDS, *FORCED
    )
    assert names() == ["in", "out"]
    assert Path("out/notes.md").read_text() == "mine"


def test_the_old_output_stays_until_the_new_one_is_complete(here, monkeypatch):
    Path("out").mkdir()
    Path("out/old.jsonl").write_text('{"n": -1}\n')
    finish = Plan.finish
    calls = []

    def stop(plan, **options):
        calls.append(kept("out"))
        if len(calls) == 1:
            raise KeyboardInterrupt
        return finish(plan, **options)

    monkeypatch.setattr(Plan, "finish", stop)
    words = ("dedup", "in", "out", *WORDS, *FORCED)
    with pytest.raises(AssertionError):
        fine(*words)
    assert kept("out") == [-1]
    assert Path("out.plan").is_dir()
    fine(*words)  # goes on with the plan
    assert calls == [[-1], [-1]]
    assert kept("out") == list(range(0, 12, 2))
    assert names() == ["in", "out"]


@pytest.mark.full
def test_killed_at_any_rename(here):
    words = ["dedup", "in", "out", *map(str, WORDS), *map(str, FORCED)]
    for call in range(1, 200, 7):
        shutil.rmtree("out", ignore_errors=True)
        Path("out").mkdir()
        Path("out/old.jsonl").write_text('{"n": -1}\n')
        if not killed(words, call):
            break
        assert kept("out") in ([-1], list(range(0, 12, 2)))
        fine(*words)
        assert kept("out") == list(range(0, 12, 2))
        assert names() == ["in", "out"]
    else:
        pytest.fail("it never ended")
