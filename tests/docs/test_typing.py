"""Programs that a strict type checker passes without casts."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from fpstore import Match, Matches, Store, lsh
from fpstore.hashing import JaccardLaw, Sketcher, Values


class Lengths(Sketcher):
    name = "lengths"
    version = 1

    @property
    def law(self) -> JaccardLaw:
        return JaccardLaw()

    def values(self, items: Sequence[Any], functions: range) -> Values:
        return Values(np.zeros((len(items), len(functions)), np.uint32), np.ones(len(items), bool))

    def similarities(self, item: Any, others: Sequence[Any]) -> npt.NDArray[np.float64]:
        return np.ones(len(others))


def urls(store: Store[str]) -> list[str]:
    found = store.probe_many([7, 9])
    lims, ids = found.read_ids()
    first: list[str] = next(iter(found))[0].ids
    return ids[: int(lims[-1])] + first + store[7]


def numbers(store: Store[int]) -> list[int]:
    matches: Matches[int] = store.probe_many([7])
    ids: npt.NDArray[np.uint64] = matches.read_ids()[1]
    for _, _, some in store.items():
        ids = some
    match: Match[int] = store.probe(7)[0]
    return match.ids + [int(number) for number in (*ids, *store.ids_of([7])[1])]


def of_any_kind(path: str) -> list[str]:
    store = fpstore.open(path)
    return urls(store) + store.probe(7)[0].ids


def similar(index: lsh.LshStore[str], text: str) -> list[str]:
    found = index.probe_many([text]).read_ids()
    pairs = [pair[0] for batch in index.pairs() for pair in batch]
    return [match.id for match in index.probe(text)] + found + pairs


def opened() -> lsh.LshStore[str]:
    return fpstore.open("i.lsh", hasher=Lengths())


def modules() -> list[object]:
    of_texts = [fpstore.calibration, fpstore.hashing, fpstore.io]
    return [*of_texts, fpstore.plans, fpstore.ray, fpstore.spark]


urls(opened())  # wrong: an index is no store
"""


@pytest.mark.full
def test_programs_pass_a_strict_type_checker(tmp_path):
    from mypy import api

    (tmp_path / "program.py").write_text(PROGRAM)
    page = (ROOT / "docs" / "guides" / "hashers.md").read_text()
    (example,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "class IntegerSets" in block
    )
    (tmp_path / "example.py").write_text(example)
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = True\n[mypy-pyarrow.*,fpstore.*]\nignore_missing_imports = True\n"
    )
    options = [
        "--config-file",
        str(settings),
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "programs"),
    ]
    said, error, _ = api.run([*options, str(tmp_path / "program.py"), str(tmp_path / "example.py")])
    assert error == ""
    (wrong,) = [line for line in said.splitlines() if "error:" in line]
    assert "program.py" in wrong
    assert '"LshStore[str]"; expected "Store[str]"' in wrong
