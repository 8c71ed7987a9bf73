"""``fpstore demo``: finds families that are known to be there, shows commands that work, leaves nothing."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import fpstore
from fpstore.cli import demo, main


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_demo_finds_the_code_pages_and_leaves_nothing(temporary: Path) -> None:
    before = Path.cwd()
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert re.search(r"^ +\d+ +encodings/cp\d+\.py, encodings/", result.stdout, re.MULTILINE)
    assert re.search(r"^\d+ families of near-duplicates$", result.stdout, re.MULTILINE)
    assert re.search(r"\tencodings/iso8859_9\.py$", result.stdout, re.MULTILINE)
    assert re.search(r"^total +[\d,]+ +[\d.]+ kB$", result.stdout, re.MULTILINE)  # too few for bits per fingerprint
    assert list(temporary.iterdir()) == []
    assert Path.cwd() == before


@pytest.mark.slow
def test_commands_of_the_demo_work_in_a_shell(tmp_path: Path) -> None:
    kept, again = tmp_path / "kept", tmp_path / "again"
    result = CliRunner().invoke(main, ["demo", "--keep", str(kept)])
    assert result.exit_code == 0, result.output
    again.mkdir()
    commands = [line.removeprefix("$ ") for line in result.stdout.splitlines() if line.startswith("$ ")]
    assert [command.split()[:2] for command in commands[1:]] == [
        ["fpstore", verb] for verb in ("build", "probe", "cluster", "stats")
    ]
    script = "\n".join(commands).replace(str(kept), str(again))
    script = f'fpstore() {{ "{sys.executable}" -m fpstore "$@"; }}\nset -e\n{script}'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (again / "clusters.tsv").read_bytes() == (kept / "clusters.tsv").read_bytes()
    with fpstore.open(kept / "python.fps") as store:
        assert len(store) > 100
    assert re.search("exists and is not empty", CliRunner().invoke(main, ["demo", "--keep", str(kept)]).stderr)


def test_a_python_without_sources_is_one_line(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(temporary / "python311.zip"))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"fpstore: .*comes without its source files.*\n", result.stderr)
    assert list(temporary.iterdir()) == []


def test_families_are_printed_largest_first(capsys: pytest.CaptureFixture[str]) -> None:
    demo.print_families([["b", "a"], ["x", "z", "y"]])
    assert " ".join(capsys.readouterr().out.split()) == "2 families of near-duplicates files 3 x, y, z 2 a, b"
