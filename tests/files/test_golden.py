"""Golden files: what earlier versions wrote still opens, answers and re-encodes the same.

What is bad still says why.
"""

import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import reference
import reference_columns
import reference_log
import reference_store
import tableimage

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width, rows_to_numbers
from fpstore.format.packed_table import PackedTable
from fpstore.format.record import ADD, IN_BASE, KIND_MASK, REMOVE, WIPE

DATA = Path(__file__).parents[1] / "data"
TOOL = Path(__file__).parents[2] / "tools" / "make_golden"
CASES = sorted(DATA.glob("v*/*.fpt"))
GOOD = [path for path in CASES if not path.name.startswith("bad-")]
BAD = [path for path in CASES if path.name.startswith("bad-")]
STORES = sorted(path for path in DATA.glob("v*/*") if path.is_dir())
MAX_BYTES = 130_000


def case(path):
    return f"{path.parent.name}/{path.stem}"


def facts_of(path):
    return json.loads(path.with_suffix(".json").read_text())


def integers(values):
    return [int(value, 16) for value in values]


def digits(value, width):
    return f"{value:0{width // 4}x}"


def test_there_are_golden_files_of_this_version():
    folder = DATA / f"v{_kernel.FORMAT_VERSION}"
    names = {path.name for path in folder.iterdir()}
    assert {
        "empty.fpt",
        "one.fpt",
        "dense.fpt",
        "random-50.fpt",
        "skewed.fpt",
        "store",
        "living",
    } <= names
    assert {f"{kind}-{width}" for kind in ("wide", "store") for width in (32, 128, 256)} <= {
        Path(n).stem for n in names
    }
    assert {path.stem for path in folder.glob("*.json")} == {Path(n).stem for n in names}
    assert {"columns-64", "columns-256", "filters-64", "filters-128"} <= names
    packed = [len(zlib.compress(path.read_bytes())) for path in folder.rglob("*") if path.is_file()]
    # what they take in the repository: the padding of LMDB files is zeros
    assert sum(packed) < MAX_BYTES


# --- Good tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GOOD, ids=case)
def test_a_good_table_opens_answers_and_is_encoded_again(path):
    facts, data, reader = facts_of(path), path.read_bytes(), PackedTable(path)
    reader.verify()
    kernel, stored = reader.kernel, integers(facts["fingerprints"])
    width, design = (
        Width(kernel.width),
        {name: facts[name] for name in ("table", "table_count", "prefix_bits", "flips")},
    )
    assert {name: getattr(kernel, name) for name in (*design, "block_bytes")} == design | {
        "block_bytes": facts["block_bytes"]
    }
    assert list(kernel.permutation) == facts["permutation"]
    permutation = np.array(facts["permutation"], np.uint8)
    keys, _, _ = kernel.decode(0, kernel.block_count, 1)
    inner = [width.to_number(value) for value in stored]
    assert sorted(rows_to_numbers(_kernel.permute(keys, permutation, inverse=True))) == inner
    assert reference.Table(data).verify() == inner
    assert kernel.fingerprint_count == len(keys)
    for scan in facts["scans"]:
        _, fingerprints, distances = kernel.scan(
            width.row(int(scan["query"], 16)), scan["radius"], 0, kernel.block_count
        )
        got = sorted(zip(distances.tolist(), width.numbers(fingerprints), strict=True))
        assert got == [(distance, int(f, 16)) for f, distance in scan["matches"]]
    for value in (*stored, *(f ^ 1 for f in stored), 0, 2**width.bits - 1):
        assert (kernel.locate_one(width.to_number(value)) is not None) == (value in set(stored))
    code = np.frombuffer(tableimage.open_table(data).code_bits, np.uint8)
    assert (
        tableimage.build(width.rows(stored), permutation, facts["block_bytes"], code, **design)
        == data
    )


# --- Bad tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BAD, ids=case)
def test_a_bad_table_says_why(path):
    facts = facts_of(path)
    error = getattr(fpstore, facts["error"])

    def use():
        reader = PackedTable(path)
        assert facts["when"] != "open"
        if facts["when"] == "read":
            with pytest.raises(error, match=facts["message"]):
                reader.kernel.decode(0, reader.kernel.block_count, 1)
        reader.verify()

    with pytest.raises(error, match=facts["message"]) as caught:
        use()
    assert type(caught.value) is error
    assert str(caught.value.path) == str(path)
    assert str(caught.value).startswith(str(path))
    wanted = (
        reference.VersionError if facts["error"] == "FormatVersionError" else reference.FormatError
    )
    with pytest.raises(wanted) as caught:
        reference.Table(path.read_bytes()).verify()
    assert type(caught.value) is wanted


# --- Stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STORES, ids=case)
def test_a_golden_store_answers(tmp_path, path):
    facts = facts_of(path)
    with fpstore.open(shutil.copytree(path, tmp_path / "copy")) as store:
        report = store.verify()
        assert report.ok, report.faults
        assert store.fingerprinter == facts["fingerprinter"]
        assert len(store) == len(facts["ids"])
        width = store.width
        assert {digits(f, width): sorted(store[f]) for f in integers(facts["ids"])} == facts["ids"]
        for probe in facts["probes"]:
            matches = next(iter(store.scan([int(probe["query"], 16)], probe["radius"])))
            if probe["radius"] <= store.radius:
                assert store.probe(int(probe["query"], 16), probe["radius"]) == matches
            assert [[digits(m.fingerprint, width), m.distance] for m in matches] == probe["matches"]
            for match in matches:
                assert sorted(match.ids) == facts["ids"][digits(match.fingerprint, width)]


def test_reference_reads_tables_ids_and_strings_of_golden_stores(tmp_path):
    for path in STORES:
        result = reference_store.read_store(shutil.copytree(path, tmp_path / path.name))
        ids = facts_of(path)["ids"]
        width = Width(4 * len(next(iter(ids))))
        content = {
            digits(width.from_number(f), width.bits): sorted(names) for f, names in result.items()
        }
        if path.name == "store":  # the others have changes in their logs
            assert content == ids
        assert len(set(content) & set(ids)) > 20


@pytest.mark.parametrize(("name", "tables"), [("filters-64", 2), ("filters-128", 4)])
def test_filters_of_a_golden_store_are_rewritten_byte_for_byte(tmp_path, name, tables):
    path = shutil.copytree(DATA / "v1" / name, tmp_path / "copy")
    with fpstore.open(path) as store:
        generation = store.snapshot().generation
        assert sorted(generation.filters) == list(range(tables))
        for table, opened in generation.filters.items():
            opened.verify(store.design, (keys for keys, _ in generation.tables[table].pieces()))


@pytest.mark.parametrize("name", ["columns-64", "columns-256"])
def test_the_reference_builds_the_column_tables_again(tmp_path, name):
    path = shutil.copytree(DATA / "v1" / name, tmp_path / "copy")
    with fpstore.open(path) as store:
        tables, width = store.design.tables, store.design.width
    assert [table.kind for table in tables] == (
        ["copies"] * 4 if width.bits == 64 else ["rows"] + ["references"] * 5
    )
    stored = [width.from_number(value) for value in reference_store.read_store(path)]
    for place, table in enumerate(tables):
        kind = ("copies", "references", "rows").index(table.kind)
        buckets = 8 if table.kind == "rows" else table.prefix_bits
        threshold, tag_bits = (-1, 0) if table.kind == "rows" else (table.flips, table.tag_bits)
        fields = (
            kind,
            width.bits,
            tuple(table.permutation),
            buckets,
            tag_bits,
            threshold,
            place,
            len(tables),
        )
        data = (path / "gen-00000001" / f"table-{place:03}.fpt").read_bytes()
        assert reference_columns.build(reference_columns.Layout(*fields), stored) == data


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("store-32", 32),
        ("store-128", 128),
        ("store-256", 256),
        ("columns-64", 64),
        ("columns-256", 256),
        ("filters-64", 64),
        ("filters-128", 128),
    ],
)
def test_the_reference_decodes_the_log_of_a_store_of_each_width(tmp_path, name, width):
    path = DATA / "v1" / name
    ids = facts_of(path)["ids"]
    content = reference_store.read_store(shutil.copytree(path, tmp_path / "copy"))
    data = (path / "gen-00000001" / "log").read_bytes()
    assert reference_log.parse_log_header(data).width == width
    changes, end = reference_log.read_log(data, 0)
    assert end == len(data)
    for fingerprint, number, kind in (row for change in changes for row in change.rows):
        if kind & KIND_MASK == ADD:
            content.setdefault(fingerprint, []).append(number)
        else:
            assert kind & KIND_MASK == WIPE
            del content[fingerprint]
    assert {
        digits(Width(width).from_number(f), width): sorted(numbers)
        for f, numbers in content.items()
    } == ids
    assert changes[-1].totals[:2] == (len(ids), sum(map(len, ids.values())))


def test_the_reference_decodes_the_log_of_the_living_store():
    data = (DATA / "v1" / "living" / "gen-00000002" / "log").read_bytes()
    changes, _ = reference_log.read_log(data, 0)
    kinds = {ADD, WIPE, ADD | IN_BASE, REMOVE | IN_BASE, WIPE | IN_BASE}
    assert {kind for change in changes for _, _, kind in change.rows} == kinds


# --- The tool -------------------------------------------------------------------------------------


def run_tool(*arguments):
    command = [sys.executable, "-P", str(TOOL), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.full
def test_the_tool_makes_the_same_again_and_keeps_what_there_is(tmp_path):
    target = tmp_path / "v1"
    assert run_tool("--output", target).returncode == 0
    assert sorted(p.name for p in target.iterdir()) == sorted(
        p.name for p in (DATA / "v1").iterdir()
    )
    for path in [*target.glob("*.json"), *target.rglob("*.fp[tf]")]:
        assert path.read_bytes() == (DATA / "v1" / path.relative_to(target)).read_bytes(), path.name
    (target / "one.fpt").write_bytes(b"old")
    refused = run_tool("--output", target)
    assert refused.returncode == 1
    assert "golden files never change" in refused.stderr
    assert (target / "one.fpt").read_bytes() == b"old"
