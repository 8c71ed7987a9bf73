"""Repair of stores of column tables: what an intact page proves is kept, with its ids, and nothing else is there."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from repairing import GENERATION, content, flip
from speeds import slow

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import table_name
from fpstore.format.manifest import MANIFEST_FILE
from fpstore.format.table import open_of_any_kind

COUNT = 3000
DESIGNS = {
    "copies": (64, "columns-4-9"),
    "narrow copies": (32, "columns-2-8"),
    "dealt copies": (64, "dealt-4-12"),
    "references": (128, "columns-8-10"),
    "wide references": (256, "columns-16-8"),
    "dealt references": (128, "dealt-8-9"),
}
COPIES = ("copies", "narrow copies", "dealt copies")
QUICK = ("copies", "references", "dealt references")
PAGE = 4096


def numbers_of(bits, seed=1):
    digits = np.random.default_rng([bits, seed]).integers(0, 256, (COUNT, bits // 8), np.uint8)
    return sorted({int.from_bytes(row.tobytes(), "big") for row in digits})


@pytest.fixture(scope="module", params=[pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in DESIGNS])
def good(request, tmp_path_factory):
    """Return a store, its kind, and what it holds."""
    bits, design = DESIGNS[request.param]
    path, numbers = tmp_path_factory.mktemp("good") / "s", numbers_of(bits)
    ids = [f"d{i % 2500}" for i in range(len(numbers))]
    fpstore.build(path, numbers, ids, width=bits, design=design, radius=3, fingerprinter=fpstore.SimHash(width=bits)).close()
    return path, request.param, content(path)


@pytest.fixture
def store(good, tmp_path):
    path, kind, right = good
    return shutil.copytree(path, tmp_path / "s"), kind, right


def tables_of(path):
    return sorted((path / GENERATION).glob("table-*.fpt"))


def fill(file, start, end):
    """Overwrite bytes."""
    with file.open("r+b") as opened:
        opened.seek(start)
        opened.write(bytes((i * 7 + 1) % 251 for i in range(end - start)))


def repaired(path, right):
    """Repair; what is held was there, the report tells how much is missing, and the list names whose ids are."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    for name in (Path(f"{path}.repaired"), Path(f"{path}.lost.tsv")):
        shutil.rmtree(name) if name.is_dir() else name.unlink(missing_ok=True)
    with fpstore.open(path) if (path / MANIFEST_FILE).exists() and _opens(path) else _nothing() as damaged:
        assert damaged is None or not damaged.verify().ok
    report = fpstore.repair(path)
    assert not report.sound
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before
    held = content(report.output)
    assert held <= right
    fingerprints = {f for f, _ in right} - {f for f, _ in held}
    lines = Path(report.lost_file).read_text().splitlines() if report.lost_file else []
    named = {int(line.split("\t")[1], 16) for line in lines if line.split("\t")[1]}
    told = [loss for loss in report.losses if "which are not known" in loss]
    unknown = int(told[0].split()[0]) if told else 0
    assert len(fingerprints - named) == unknown
    assert {f for f, _ in right - held} - named == fingerprints - named
    assert report.complete == (held == right)
    return report, held


def _opens(path):
    try:
        fpstore.open(path).close()
    except fpstore.FpstoreError:
        return False
    return True


class _nothing:  # noqa: N801 (a context without a store)
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def sections(file):
    kernel = ColumnTable(file, None).header
    places = {"directory": kernel.directory_offset, "tags": kernel.tags_offset, "checksums": kernel.checksums_offset}
    return places | ({"rests": kernel.rest_offset} if kernel.rest_bits else {})


@pytest.mark.parametrize("part", ["directory", "tags", "rests", "checksums"])
def test_a_damaged_place_of_the_first_table(store, part):
    """Copies are in the other tables, and the bits of rows in the references to them."""
    path, kind, right = store
    file = path / GENERATION / table_name(0)
    flip(file, sections(file).get(part, 5000) + (8 if part == "checksums" else 100))
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    with fpstore.open(report.output) as new:
        assert new.design.name == DESIGNS[kind][1]


def test_damage_to_any_other_table_loses_nothing(store):
    path, _, right = store
    for file in tables_of(path)[1:]:
        for part, at in sections(file).items():
            flip(file, at + (200 if part != "checksums" else 8))
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)


def test_tables_that_are_missing(store):
    path, kind, right = store
    files = tables_of(path)
    for file in files[:-1] if kind in COPIES else files[1:]:
        file.unlink()
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)


def test_rows_that_are_missing_come_from_references(store):
    """Where buckets and tags have all bits of the rows; a store of copies has them anyway."""
    path, kind, right = store
    (path / GENERATION / table_name(0)).unlink()
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right), kind


@pytest.mark.parametrize("table", [0, 1])
def test_headers(store, table):
    """All of a header follows from the design, the count and the digest."""
    path, _, right = store
    file = path / GENERATION / table_name(table)
    before = file.read_bytes()
    fill(file, 0, 300)
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    assert f"read {file} with a new header in place of the damaged one" in report.actions
    file.write_bytes(before + b"more")
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    assert "with a new header" in " ".join(report.actions)


@pytest.mark.parametrize("lost", ["manifest", "manifest and the first header", "manifest and the last table"])
def test_the_design_of_headers(store, lost):
    path, kind, right = store
    (path / MANIFEST_FILE).unlink()
    files = tables_of(path)
    if "header" in lost:
        fill(files[0], 0, 300)
    elif "table" in lost:
        files[-1].unlink()
    report = fpstore.repair(path)
    assert content(report.output) == right
    with fpstore.open(report.output) as new:
        assert (new.design.name, new.radius) == (DESIGNS[kind][1], 3) or "the last table" in lost
        assert new.design.tables[1].kind == ("copies" if kind in COPIES else "references")


def all_but(file, start, end):
    """Damage every page but some."""
    kernel = ColumnTable(file, None).header
    for at in range(PAGE, kernel.checksums_offset, PAGE):
        if not start <= at < end:
            fill(file, at, min(at + 60, kernel.checksums_offset))


@pytest.mark.parametrize("every", [1, slow(2), 3, 5])
def test_what_intact_pages_prove_is_kept(store, every):
    """Pages of all tables are damaged: what is left is found here by hand, and all of it must be in the new store."""
    path, kind, right = store
    files = tables_of(path)
    for number, file in enumerate(files):
        kernel = ColumnTable(file, None).header
        for page, at in enumerate(range(PAGE, kernel.checksums_offset, PAGE)):
            if (page + number) % every == 0:
                fill(file, at, min(at + 60, kernel.checksums_offset))
    known = set()
    for file in files if kind in COPIES else files[:1]:
        known |= by_hand(file)
    report, held = repaired(path, right)
    found = {fingerprint for fingerprint, _ in held}
    listed = set()
    if report.lost_file:
        listed = {int(line.split("\t")[1], 16) for line in Path(report.lost_file).read_text().splitlines() if line.split("\t")[1]}
    assert known <= found | listed
    assert bool(known) == (every > 1)
    if kind in COPIES:
        assert found | listed == known
    if every == 5:  # in the first table, what is known has a place, and by it ids
        assert len(found) > 0.9 * len(by_hand(files[0]))


def by_hand(file):
    """Return the fingerprints of which every byte is in an intact page, one by one, as the format page says."""
    table, data = ColumnTable(file, None), file.read_bytes()
    kernel, width = table.header, Width(table.header.width)
    end = kernel.checksums_offset
    stored = np.frombuffer(data[end:], "<u8")
    sums = [_kernel.page_checksums(np.frombuffer(data[at : min(at + PAGE, end)], np.uint8), kernel.seed, i)[0]
            for i, at in enumerate(range(PAGE, end, PAGE))]  # fmt: skip
    good = [a == b for a, b in zip(sums, stored, strict=True)]

    def read(at, count):
        pages = range((at - PAGE) // PAGE, (at + count - 1 - PAGE) // PAGE + 1)
        return data[at : at + count] if all(good[page] for page in pages) else None

    if kernel.kind == 2:
        each = width.bits // 8
        words = [read(kernel.tags_offset + each * i, each) for i in range(kernel.count)]
        return {int.from_bytes(b"".join(w[j : j + 8][::-1] for j in range(0, each, 8)), "big") for w in words if w is not None}
    found, size = set(), (kernel.rest_bits + 7) // 8
    for bucket in range(1 << kernel.bucket_bits):
        bounds = read(kernel.directory_offset + 4 * bucket, 8)
        if bounds is None:
            continue
        for entry in range(int.from_bytes(bounds[:4], "little"), int.from_bytes(bounds[4:], "little")):
            tag, rest = read(kernel.tags_offset + 2 * entry, 2), read(kernel.rest_offset + size * entry, size) if size else b""
            if tag is None or rest is None:
                continue
            bits = f"{bucket:0{kernel.bucket_bits}b}{int.from_bytes(tag, 'little'):016b}"
            bits += f"{int.from_bytes(rest, 'little'):0{kernel.rest_bits}b}" if size else ""
            number = 0
            for i, bit in enumerate(kernel.permutation):
                number |= int(bits[i]) << (width.bits - 1 - bit)
            found.add(number)
    return found


def test_entries_of_a_damaged_block_keep_their_ids(store):
    """A page of the rows is damaged in all that tells of it: what else its blocks of ids have is known by its places."""
    path, _, right = store
    files = tables_of(path)
    each = 2 if len(files) <= 4 else Width(ColumnTable(files[0], None).header.width).bytes
    at = (sections(files[0])["tags"] + 1500 * each) // PAGE
    fill(files[0], at * PAGE, at * PAGE + 50)
    for file in files[1:]:
        file.unlink()
    known = by_hand(files[0])
    assert len(known) < len({f for f, _ in right})
    _, held = repaired(path, right)
    kept = {f for f, _ in held}
    assert kept == known
    assert held == {(f, name) for f, name in right if f in known}


def test_lost_id_records_beside_lost_rows(store):
    """Which record is that of a block damaged in part is proven by what is next to it, or its ids are lost."""
    path, kind, right = store
    files, ids = tables_of(path), path / GENERATION / "ids.mdb"
    keys = ColumnTable(files[0], None).block_keys
    for file in files[1:]:
        file.unlink()
    each = 2 if kind in COPIES else Width(ColumnTable(files[0], None).header.width).bytes
    at = (sections(files[0])["tags"] + 1400 * each) // PAGE * PAGE
    first = -(-(at - sections(files[0])["tags"]) // each) - 1
    fill(files[0], at, at + 50)
    pristine = ids.read_bytes()
    for block in {first // 128, first // 128 + 1, (first + PAGE // each + 1) // 128}:
        data = bytearray(pristine)
        key = keys[block : block + 1].astype(">u8").tobytes()
        place = data.index(key)
        data[place + len(key) + 8 : place + len(key) + 40] = bytes(32)
        ids.write_bytes(data)
        _, held = repaired(path, right)
        assert len({f for f, _ in held}) > 100 or kind == "narrow copies"  # whose directory is on that page
        assert len({f for f, _ in held}) <= len({f for f, _ in right}) - min(PAGE // each, 1000)


def test_a_table_of_another_store(store, tmp_path):
    path, kind, right = store
    bits, design = DESIGNS[kind]
    fpstore.build(tmp_path / "other", numbers_of(bits, 2), width=bits, design=design, radius=3).close()
    shutil.copy(tmp_path / "other" / GENERATION / table_name(0), path / GENERATION / table_name(0))
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    assert "another store" in " ".join(report.faults)


def test_small_memory_reads_the_references_for_parts_of_the_rows(tmp_path, monkeypatch):
    numbers = numbers_of(128)
    fpstore.build(tmp_path / "s", numbers, width=128, design="columns-8-10").close()
    (tmp_path / "s" / GENERATION / table_name(0)).unlink()
    monkeypatch.setattr("fpstore.care.found_set.rows_of_references", _in_parts)
    report = fpstore.repair(tmp_path / "s")
    assert report.complete, report.losses
    assert {f for f, _ in content(report.output)} == set(numbers)


def _in_parts(references, rows, room):
    from fpstore.care import found_places

    before, found_places.LEAST_ROWS = found_places.LEAST_ROWS, 70
    try:
        parts = list(found_places.rows_of_references(references, rows, 0))
    finally:
        found_places.LEAST_ROWS = before
    assert len(parts) > COUNT // 70
    return iter(parts)


def test_rows_whose_bits_no_reference_has_are_lost(tmp_path):
    """Blocks of 18 bits: bucket and tag have 16 of them."""
    numbers = numbers_of(128)
    path = tmp_path / "s"
    fpstore.build(path, numbers, width=128, design="columns-7").close()
    file = path / GENERATION / table_name(0)
    flip(file, sections(file)["tags"] + 20_000)
    report = fpstore.repair(path)
    assert not report.complete
    assert {f for f, _ in content(report.output)} == by_hand(file)


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
def test_few_rows(tmp_path, bits):
    """Stores of no row, of one, and of one block more than a row."""
    for count in (0, 1, 129):
        path = tmp_path / f"s{count}"
        design = {32: "columns-2", 64: "columns-4", 128: "columns-8", 256: "columns-16"}[bits]
        fpstore.build(path, numbers_of(bits)[:count], width=bits, design=design).close()
        right = content(path)
        assert len(right) == count
        file = path / GENERATION / table_name(0)
        flip(file, file.stat().st_size - 3)
        report = fpstore.repair(path)
        assert (report.complete, content(report.output)) == (True, right)


def test_a_dealt_design_stays_dealt(tmp_path):
    """By a sample: its tables follow from no name, but have one."""
    rng = np.random.default_rng(8)
    numbers = rng.integers(0, 2**64, 20_000, np.uint64) & np.uint64(0xFFFFFFFF0F0F0F0F)
    path = tmp_path / "s"
    with fpstore.build(path, numbers, design="dealt-4-12", radius=8) as store:
        before = store.design
    flip(path / GENERATION / table_name(1), 9000)
    report = fpstore.repair(path)
    assert report.complete
    with fpstore.open(report.output) as store:
        assert store.design == before
        assert len(store.probe(int(numbers[0]) ^ 3, 8)) >= 1
    (path / MANIFEST_FILE).unlink()
    report = fpstore.repair(path, tmp_path / "again")
    with fpstore.open(tmp_path / "again") as store:
        assert (store.design.tables, store.radius) == (before.tables, 8)


def test_the_kind_of_a_file_is_told_by_itself(tmp_path):
    numbers = numbers_of(64)[:50]
    fpstore.build(tmp_path / "a", numbers, design="columns-4").close()
    fpstore.build(tmp_path / "b", numbers, design="manku-4").close()
    for name, kind in (("a", ColumnTable), ("b", object)):
        with fpstore.open(tmp_path / name) as store:
            spec = store.design.tables[1]
        file = open_of_any_kind(tmp_path / name / GENERATION / table_name(1))
        assert isinstance(file, kind)
        assert file.spec == spec
