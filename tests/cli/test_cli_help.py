"""Help: its examples run, every flag has one, and the documentation agrees with it."""

import itertools
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest
from commandline import COMMAND, SEARCHES, failure, fine, run, verbs

import fpstore
from fpstore.cli import main


@pytest.mark.sampled(1)
@pytest.mark.parametrize("verb", ["", *(name for name, _ in verbs())])
def test_examples_of_help_run(verb: str, folder: Path) -> None:
    command: Any = dict(verbs())[verb] if verb else main
    if verb in ("", "build"):
        for name in ("crawl", "notes", "vectors", "photos", "site"):
            shutil.rmtree(f"{name}.fps")
    if verb.startswith("task"):
        fine("dedup", "shards", "by-tasks", "--text-field", "text", "--plan", "shards.plan")
        if verb == "task finish":
            fine("task", "run", "shards.plan", "--processes", "1")
    assert command.examples
    for line in command.examples:
        if line.startswith(("fpstore demo", "fpstore serve")):
            continue  # test_demo.py; a server runs until a signal: tests/service
        # The other programs of a pipe run in a shell; what is behind the command only takes its
        # output.
        before, _, own = line.partition("fpstore ")
        shell = subprocess.run(
            ["sh", "-c", before.rstrip("| ") or ":"], capture_output=True, text=True, check=True
        )
        result = run(
            *shlex.split(own.partition(" | ")[0].partition(" > ")[0]),
            stdin=shell.stdout if before else None,
        )
        assert result.exit_code in found_or_not(line), f"{line}: {result.output}"
        assert not before or result.stderr == "", line


def found_or_not(example: str) -> tuple[int, ...]:
    """Return the exit codes of an example: that of a search may find nothing."""
    return (0, 1) if any(f"fpstore {verb} " in example for verb in SEARCHES) else (0,)


def test_every_flag_has_help_and_an_example() -> None:
    """An option that several verbs have with the same words is in an example of one of them."""
    shown: dict[tuple[str, str], bool] = {}
    for verb, command in verbs():
        examples: Any = command.examples  # type: ignore[attr-defined]
        assert all(line.split("fpstore ")[1].startswith(verb) for line in examples)
        words = set(shlex.split(" ".join(examples)))
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, parameter.name
                record = (parameter.opts[-1], parameter.help)
                shown[record] = shown.get(record, False) or bool(words & set(parameter.opts))
    assert [option for (option, _), item in shown.items() if not item] == []


def test_help_fits_a_terminal_and_ends_with_at_most_3_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 25 summaries 22 were cut, and the help of build began with 23 examples."""
    for columns, verb in itertools.product(("80", "200"), ["", *(name for name, _ in verbs())]):
        monkeypatch.setenv("COLUMNS", columns)
        text = fine(*verb.split(), "--help")
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80
        assert not [
            line
            for line in lines
            if line.endswith(("...", "\u2026")) and not line.startswith("Usage:")
        ]
        end = lines.index("Examples:")
        assert lines.index("Options:") < end
        assert 1 <= len(lines) - end - 1 <= 3
        assert all(line.startswith("  $ ") for line in lines[end + 1 :])
        same = fine("help", *verb.split())
        assert same.replace("fpstore help", "fpstore") == text.replace("fpstore help", "fpstore")
    assert fine("--version") == f"fpstore {fpstore.__version__}\n"


def test_every_verb_is_listed_by_what_it_is_for() -> None:
    listed = [name for names in main.sections.values() for name in names]
    assert sorted(listed) == sorted(main.verbs())
    text = fine("--help")
    longest = max(map(len, listed))
    for name, command in main.verbs().items():
        summary = command.get_short_help_str(200)
        assert len(summary) <= 50
        assert f"  {name.ljust(longest)}  {summary}\n" in text
    assert (
        text.index("Options:")
        < text.index("Make a store:")
        < text.index("Take care:")
        < text.index("Examples:")
    )


def test_help_of_no_verb_is_refused() -> None:
    assert "No such command 'nothing'" in failure("help", "nothing", code=2)
    assert "No such command 'more'" in failure("help", "build", "more", code=2)
    for words in (["help", "prob"], ["prob", "crawl.fps"]):
        assert "No such command 'prob'. Did you mean 'probe'?" in failure(*words, code=2)


def test_a_shell_completes_verbs_options_and_paths(folder: Path) -> None:
    """Paths were not completed: an argument was any text."""

    def completed(way: str, *words: str) -> str:
        options = {
            "_FPSTORE_COMPLETE": way,
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        done = subprocess.run(
            COMMAND, env={**os.environ, **options}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    for words, answer in (
        (("pr",), "plain,probe\n"),
        (("help", "ver"), "plain,verify\n"),
        (("build", "--codec", "el"), "plain,elias-fano\n"),
        (("probe", "a.fps", "--output", "x"), "file,x\n"),
        (("dedup", "a", "b"), "file,b\n"),
    ):
        assert completed("bash_complete", "fpstore", *words) == answer
    assert all("complete" in completed(f"{shell}_source") for shell in ("bash", "zsh", "fish"))


def test_every_parameter_that_names_a_path_is_completed() -> None:
    """A new option for a path must be one of them."""
    named = {
        "inputs",
        "store",
        "output",
        "path",
        "paths",
        "files",
        "folder",
        "others",
        "other",
        "input",
        "lost",
    }
    for _, command in verbs():
        for parameter in command.params:
            if parameter.name in {*named, "stop_words", "weights"}:
                assert parameter.shell_complete(click.Context(command), "x")[0].type == "file", (
                    parameter.name
                )
