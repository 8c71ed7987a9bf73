"""``fpstore demo``: finds families that are known to be there, and leaves nothing."""

import re
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

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
    # too few for bits per fingerprint
    assert re.search(r"^total +[\d,]+ +[\d.]+ kB$", result.stdout, re.MULTILINE)
    assert list(temporary.iterdir()) == []
    assert Path.cwd() == before


def test_a_python_without_sources_is_one_line(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo.sysconfig, "get_path", lambda name: str(temporary / "python311.zip"))
    result = CliRunner().invoke(main, ["demo"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"fpstore: .*comes without its source files.*\n", result.stderr)
    assert list(temporary.iterdir()) == []


def test_families_are_printed_largest_first(capsys: pytest.CaptureFixture[str]) -> None:
    demo.print_families([["b", "a"], ["x", "z", "y"]])
    assert (
        " ".join(capsys.readouterr().out.split())
        == "2 families of near-duplicates files 3 x, y, z 2 a, b"
    )
