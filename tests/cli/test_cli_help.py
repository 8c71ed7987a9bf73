"""Help: its examples run, every flag has one, and the documentation agrees with it."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from commandline import COMMAND, ROOT, SEARCHES, failure, fine, run, verbs

import fpstore
from fpstore.cli import main


@pytest.mark.parametrize("verb", ["", *(name for name, _ in verbs())])
def test_examples_of_help_run(verb: str, folder: Path) -> None:
    command: Any = dict(verbs())[verb] if verb else main
    if verb in ("", "build"):
        shutil.rmtree("crawl.fps")
        shutil.rmtree("notes.fps")
        shutil.rmtree("vectors.fps")
        shutil.rmtree("photos.fps")
        shutil.rmtree("site.fps")
    assert command.examples
    for line in command.examples:
        if line.startswith("fpstore demo"):
            continue  # test_demo.py
        if not set("|>") & set(line):
            result = run(*shlex.split(line)[1:])
            assert result.exit_code in found_or_not(line), f"{line}: {result.output}"
            continue
        script = f'fpstore() {{ "{sys.executable}" -m fpstore "$@"; }}\n{line}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode in found_or_not(line), line
        assert done.stderr == "", line


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
    assert [option for (option, _), found in shown.items() if not found] == []


def test_documentation_is_up_to_date() -> None:
    script = ROOT / "tools" / "make_cli_docs"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_version() -> None:
    assert all(name.split()[0] in fine("--help") for name, _ in verbs())
    assert fine("--version") == f"fpstore {fpstore.__version__}\n"
    for name, _ in verbs():
        assert "$ fpstore" in fine(*name.split(), "--help")


@pytest.fixture(params=[80, 200])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(request.param))


@pytest.mark.parametrize("verb", ["", *(name for name, _ in verbs())])
@pytest.mark.usefixtures("columns")
def test_help_fits_a_terminal_and_ends_with_three_examples_at_most(verb: str) -> None:
    """Of 25 summaries 22 were cut, and the help of build began with 23 examples."""
    lines = fine(*verb.split(), "--help").splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith(("...", "\u2026")) and not line.startswith("Usage:")]
    end = lines.index("Examples:")
    assert lines.index("Options:") < end
    assert 1 <= len(lines) - end - 1 <= 3
    assert all(line.startswith("  $ ") for line in lines[end + 1 :])
    assert fine("help", *verb.split()).replace("fpstore help", "fpstore") == fine(*verb.split(), "--help").replace(
        "fpstore help", "fpstore"
    )


def test_every_verb_is_listed_by_what_it_is_for() -> None:
    listed = [name for names in main.sections.values() for name in names]
    assert sorted(listed) == sorted(main.verbs())
    text = fine("--help")
    for name, command in main.verbs().items():
        summary = command.get_short_help_str(200)
        assert len(summary) <= 50
        assert f"  {name.ljust(9)}  {summary}\n" in text
    assert text.index("Options:") < text.index("Make a store:") < text.index("Take care:") < text.index("Examples:")


def test_help_of_no_verb_is_refused() -> None:
    assert "No such command 'nothing'" in failure("help", "nothing", code=2)
    assert "No such command 'more'" in failure("help", "build", "more", code=2)


def test_a_shell_completes_verbs_options_and_paths(folder: Path) -> None:
    """Paths were not completed: an argument was any text."""

    def completed(*words: str) -> list[str]:
        environment = {
            **os.environ,
            "_FPSTORE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    assert completed("fpstore", "pr") == ["plain,probe"]
    assert completed("fpstore", "help", "ver") == ["plain,verify"]
    assert "plain,--unmatched" in completed("fpstore", "insert", "--un")
    assert completed("fpstore", "build", "--codec", "el") == ["plain,elias-fano"]
    for words in (("probe", "cra"), ("build", "a.fps", "x"), ("probe", "a.fps", "--output", "x"), ("dedup", "a", "b")):
        assert completed("fpstore", *words) == [f"file,{words[-1]}"]
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run(
            COMMAND, env={**os.environ, "_FPSTORE_COMPLETE": f"{shell}_source"}, capture_output=True, text=True, check=False
        )
        assert "complete" in done.stdout


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
        "stop_words",
        "weights",
    }
    for _, command in verbs():
        for parameter in command.params:
            if parameter.name in named:
                assert parameter.shell_complete(click.Context(command), "x")[0].type == "file", parameter.name


def test_the_manual_page_has_every_verb_and_option() -> None:
    script = [sys.executable, ROOT / "tools" / "make_cli_docs", "--manual"]
    text = subprocess.run(script, capture_output=True, text=True, check=True).stdout.replace("\\-", "-")
    assert text.startswith(".TH FPSTORE 1\n")
    for name, command in verbs():
        part = text.split(f".SS fpstore {name} ")[1].split("\n.SS ")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[-1] in part
