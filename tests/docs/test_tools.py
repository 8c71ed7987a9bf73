"""The tools that make tables of the documentation run, on small samples."""

import subprocess
import sys
from pathlib import Path

import pytest
from drawing import scene

TOOLS = Path(__file__).parents[2] / "tools"


def rows(tool, *arguments):
    """Return the cells of each row of the tables that a tool prints, by its first cell.

    Several rows of one name are joined.
    """
    command = [sys.executable, TOOLS / tool, *map(str, arguments)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    table = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in lines
        if line.startswith("|")
    ]
    return {
        name: [cells[1:] for cells in table if cells[0] == name]
        for name in {cells[0] for cells in table}
    }


@pytest.mark.full
def test_texts_of_made_pages_are_measured():
    """No test ran the tool, so a name that it imports could go unnoticed."""
    arguments = ("--pages", 8, "--extractors", "resiliparse", "--settings", "simhash-256-24")
    kept, removed = (
        rows("page_texts", *arguments),
        rows("page_texts", *arguments, "--least-share", 0),
    )
    assert (
        kept["articles on two sites, equal"]
        == removed["articles on two sites, equal"]
        == [["resiliparse", "0", "100% found"]]
    )
    assert kept["category pages"] == [["resiliparse", "8", "0 wrongly"]]
    assert removed["category pages"] == [["resiliparse", "0", "4 wrongly"]]


@pytest.mark.full
def test_distances_of_pictures_are_measured(tmp_path):
    for number in range(6):
        scene(number, (120, 90)).save(tmp_path / f"{number}.png")
    changes = ("--change", "jpeg=75", "--change", "mirror")
    table = rows("image_distances", tmp_path, "--setting", "method=difference", *changes)
    assert table["usual radius"] == [["8"]]
    assert table["jpeg=75"][1] == ["100%"]
    assert table["mirror"][1] == ["0%"]
