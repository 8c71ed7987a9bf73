"""Help: its examples run, every flag has one, and the documentation agrees with it."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from commandline import ROOT, SEARCHES, fine, run, verbs

import fpstore
from fpstore.cli import main
from fpstore.cli.verb import examples


@pytest.mark.parametrize("verb", ["", *(name for name, _ in verbs())])
def test_examples_of_help_run(verb: str, folder: Path) -> None:
    command: click.Command = dict(verbs())[verb] if verb else main
    if verb in ("", "build"):
        shutil.rmtree("crawl.fps")
        shutil.rmtree("notes.fps")
        shutil.rmtree("vectors.fps")
        shutil.rmtree("photos.fps")
        shutil.rmtree("site.fps")
    found = examples(command.help)
    assert found
    for line in found:
        if line.startswith("fpstore demo"):
            continue  # test_demo.py
        if "|" not in line:
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


@pytest.mark.parametrize("verb", [name for name, _ in verbs()])
def test_every_flag_has_help_and_an_example(verb: str) -> None:
    command = dict(verbs())[verb]
    assert all(line.split("fpstore ")[1].startswith(verb) for line in examples(command.help))
    words = set(shlex.split(" ".join(examples(command.help))))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert words & set(parameter.opts), f"no example of {verb} has {parameter.opts[-1]}"


def test_documentation_is_up_to_date() -> None:
    script = ROOT / "tools" / "make_cli_docs"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_version() -> None:
    assert all(name.split()[0] in fine("--help") for name, _ in verbs())
    assert fine("--version") == f"fpstore {fpstore.__version__}\n"
    for name, _ in verbs():
        assert "$ fpstore" in fine(*name.split(), "--help")
