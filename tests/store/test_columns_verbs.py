"""The verbs of whole stores with designs of columns: backup, export, split, merge, join, and a change of design and back."""

import json

import numpy as np
import pytest
from commandline import fine

import fpstore
from fpstore.base.width import Width
from fpstore.io.check import check_fingerprints

DESIGNS = {32: "columns-2-9", 64: "columns-4-12", 128: "columns-8-10", 256: "columns-16-8"}
COUNT = 1500


def content(path):
    with fpstore.open(path) as store:
        report, width, held = store.verify(), Width(store.width), {}
        assert report.ok, report.faults
        for values, lims, ids in store.items():
            rows = width.numbers(check_fingerprints(values, width))
            held |= {row: sorted(ids[a:b]) for row, a, b in zip(rows, lims[:-1], lims[1:], strict=True)}
    return held


def design_of(path):
    with fpstore.open(path) as store:
        return store.design.name


@pytest.fixture(params=DESIGNS)
def made(request, tmp_path):
    """Return a store with changes in its log, its width, and what it holds."""
    bits = request.param
    digits = np.random.default_rng(bits).integers(0, 256, (COUNT, bits // 8), np.uint8)
    values = sorted({int.from_bytes(row.tobytes(), "big") for row in digits})
    held = {value: [f"document {i}"] for i, value in enumerate(values)}
    path, names = tmp_path / "s", [name for (name,) in held.values()]
    fpstore.build(path, values[:-50], names[:-50], width=bits, design=DESIGNS[bits]).close()
    with fpstore.open(path, "r+") as store:
        store.insert(values[-50:], names[-50:])
        store.insert(values[7], "another")
        store.delete(fingerprints=values[20:30])
    held[values[7]] = sorted([*held[values[7]], "another"])
    return path, bits, {value: ids for value, ids in held.items() if value not in values[20:30]}


def test_a_backup(made, tmp_path):
    path, _, held = made
    fine("backup", path, tmp_path / "copy")
    assert content(tmp_path / "copy") == held
    assert design_of(tmp_path / "copy") == design_of(path)
    fine("merge", tmp_path / "copy")
    assert content(tmp_path / "copy") == held == content(path)


def test_an_export_that_is_built_again(made, tmp_path):
    path, bits, held = made
    fine("export", path, "-o", tmp_path / "all.tsv", "-q")
    rows = [line.split("\t") for line in (tmp_path / "all.tsv").read_text().splitlines()]
    assert {(int(value, 16), name) for value, name in rows} == {(value, name) for value, ids in held.items() for name in ids}
    assert [int(value, 16) for value, _ in rows] == sorted(value for value, ids in held.items() for _ in ids)
    fine("build", tmp_path / "again", tmp_path / "all.tsv", "--design", DESIGNS[bits], "--width", bits, "-q")
    assert content(tmp_path / "again") == held
    fine("export", path, "-o", tmp_path / "values.npy", "-q")
    assert len(np.load(tmp_path / "values.npy")) == len(held)


def test_parts_that_are_joined_again(made, tmp_path):
    path, bits, held = made
    fine("split", path, tmp_path / "parts", "--bits", 1)
    parts = sorted((tmp_path / "parts").iterdir())
    for prefix, part in enumerate(parts):
        assert content(part) == {value: ids for value, ids in held.items() if value >> bits - 1 == prefix}
        assert design_of(part) == DESIGNS[bits]
    fine("absorb", parts[0], parts[1])
    assert content(parts[0]) == held
    stats = json.loads(fine("stats", parts[0], "--json"))
    assert (stats["fingerprints"], stats["design"]["name"]) == (len(held), DESIGNS[bits])


def test_a_merge_changes_the_kind_of_the_tables(made):
    path, bits, held = made
    with fpstore.open(path, "r+") as store:
        query, radius = next(iter(held)) ^ 5, store.radius
        before = store.probe(query, radius)
    for design in ("flip-2", DESIGNS[bits], "scan", DESIGNS[bits]):
        fine("redesign", path, design)
        assert design_of(path) == design
        assert content(path) == held
        with fpstore.open(path) as store:
            assert store.probe(query, radius) == before
