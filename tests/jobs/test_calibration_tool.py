"""tools/calibration without downloads.

Other simhashes, recalls at a share of strangers, and documents of packages.
"""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import xxhash

from fpstore.calibration.measures import Distances, Measured
from fpstore.calibration.settings import SETTINGS, parse_setting

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture
def tool(monkeypatch):
    """Return a function that imports a module of the tool."""
    monkeypatch.syspath_prepend(TOOLS)
    return lambda name: importlib.import_module(f"calibration.{name}")


def test_other_simhashes_and_the_recall_between_two_radii(tool):
    maker, text = (
        tool("baselines").TextDedupSimhash(),
        "One, two, three - four five one, two, three",
    )
    pieces = re.split(r"\W", text.lower())
    hashes = [
        xxhash.xxh3_64_intdigest(one.encode())
        for one in {" ".join(pieces[i : i + 3]) for i in range(len(pieces) - 2)}
    ]
    assert maker.fingerprint(text) == sum(
        1 << b for b in range(64) if 2 * sum(one >> b & 1 for one in hashes) > len(hashes)
    )
    strangers, near = (
        np.bincount([4] * 2 + [6] * 8, minlength=65),
        np.bincount([0] * 5 + [4] * 3 + [6] * 2, minlength=65),
    )
    found = Measured(parse_setting("size=1"), {"all": Distances(near)}, Distances(strangers), None)
    recall_at = tool("command").recall_at
    for share, recall in ((0.2, 0.8), (0.1, 0.65), (0.6, 0.9), (1.0, 1.0), (0.0001, 0.50015)):
        assert recall_at(found, found.all_duplicates, share) == pytest.approx(recall)
    assert {*tool("plots").RECALL, *tool("plots").DISTANCES} <= set(SETTINGS)
