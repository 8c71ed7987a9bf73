"""``fpstore demo``: finds families that are known to be there, shows commands that work, leaves nothing."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import fpstore
from fpstore.cli import demo_data as demo
from fpstore.cli import main
from fpstore.cli.demo import print_families


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
    assert re.search(r"^ +\d+ +\d bits +encodings/cp\d+\.py, encodings/", result.stdout, re.MULTILINE)
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
        ["fpstore", verb] for verb in ("build", "probe", "export", "probe", "stats")
    ]
    script = "\n".join(commands).replace(str(kept), str(again))
    script = f'fpstore() {{ "{sys.executable}" -m fpstore "$@"; }}\nset -e\n{script}'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (again / "pairs.tsv").read_bytes() == (kept / "pairs.tsv").read_bytes()
    with fpstore.open(kept / "python.fps") as store:
        assert len(store) > 100
    assert re.search("exists and is not empty", CliRunner().invoke(main, ["demo", "--keep", str(kept)]).stderr)


def test_a_python_without_sources_is_one_line(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(temporary / "python311.zip"))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"fpstore: .*comes without its source files.*\n", result.stderr)
    assert list(temporary.iterdir()) == []


def test_families_are_connected_components(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    rows = [
        "1 1 0 a",
        "1 3 1 b",
        "3 3 0 b",
        "3 1 1 a",
        "3 7 1 c",
        "7 7 0 c",
        "7 3 1 b",
        "9 9 0 d",
        "5 5 0 e",
        "5 5 0 f",
    ]
    pairs.write_text("".join(row.replace(" ", "\t") + "\n" for row in rows))
    assert demo.families(pairs) == [demo.Family(["a", "b", "c"], 1), demo.Family(["e", "f"], 0)]
    pairs.write_text("")
    assert demo.families(pairs) == []


def test_a_step_of_one_bit_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.tsv"
    rows = [(1, 1, 0, "a"), (1, 3, 1, "b"), (3, 3, 0, "b"), (3, 1, 1, "a")]
    pairs.write_text("".join(f"{query:016x}\t{found:016x}\t{distance}\t{row}\n" for query, found, distance, row in rows))
    print_families(pairs)
    assert re.search(r"^ +2 +1 bit +a, b$", capsys.readouterr().out, re.MULTILINE)


def test_families_that_are_not_shown_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = tmp_path / "pairs.tsv"
    for count, last in ((10, None), (13, "and 3 more")):
        rows = [(n, n, 0, f"{name}{n}") for n in range(count) for name in "ab"]
        pairs.write_text("".join(f"{query:016x}\t{found:016x}\t{distance}\t{row}\n" for query, found, distance, row in rows))
        print_families(pairs)
        lines = capsys.readouterr().out.splitlines()
        assert f"{count} families of near-duplicates" in lines
        assert (lines[-1] == last) == (last is not None)
