"""Repair of stores of column tables.

What an intact page proves is kept, and nothing else is there.
"""

import shutil

import numpy as np
import pytest
from repairing import GENERATION, flip, lost_rows, repaired
from small_stores import content
from speeds import SOME_WIDTHS, slow

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width
from fpstore.format.column_table import ColumnTable
from fpstore.format.layout import table_name
from fpstore.format.manifest import MANIFEST_FILE

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
QUICK = ("copies", "references")
PAGE = 4096


def numbers_of(bits, seed=1):
    digits = np.random.default_rng([bits, seed]).integers(0, 256, (COUNT, bits // 8), np.uint8)
    return sorted({int.from_bytes(row.tobytes(), "big") for row in digits})


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(kind, marks=() if kind in QUICK else pytest.mark.slow) for kind in DESIGNS
    ],
)
def good(request, tmp_path_factory):
    """Return a store, its kind, and what it holds."""
    bits, design = DESIGNS[request.param]
    path, numbers = tmp_path_factory.mktemp("good") / "s", numbers_of(bits)
    ids = [f"d{i % 2500}" for i in range(len(numbers))]
    fpstore.build(
        path,
        numbers,
        ids,
        width=bits,
        design=design,
        radius=3,
        fingerprinter=fpstore.SimHash(width=bits),
    ).close()
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


def named_in(report):
    """Return the fingerprints of the list of losses."""
    return {int(fingerprint, 16) for _, fingerprint, _ in lost_rows(report) if fingerprint}


def sections(file):
    kernel = ColumnTable(file, None).header
    places = {
        "directory": kernel.directory_offset,
        "tags": kernel.tags_offset,
        "checksums": kernel.checksums_offset,
    }
    return places | ({"rests": kernel.rest_offset} if kernel.rest_bits else {})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("part", [slow("directory"), "tags", "rests", "checksums"])
def test_a_damaged_place_of_the_first_table(store, part):
    """Copies are in the other tables.

    Of rows, blocks are lost that lie on the page, and nothing of others.
    """
    path, kind, right = store
    file = path / GENERATION / table_name(0)
    each = Width(ColumnTable(file, None).header.width).bytes
    flip(file, sections(file).get(part, 5000) + (8 if part == "checksums" else 100))
    report, held = repaired(path, right)
    if kind in COPIES:
        assert (report.complete, held) == (True, right)
    else:
        left = by_hand(file)
        assert len({f for f, _ in right}) - len(left) <= PAGE // each
        assert {f for f, _ in held} | named_in(report) == left
        assert len(right - held) <= PAGE // each + 2 * _kernel.ROWS_IN_BLOCK
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


def test_tables_with_damaged_headers_come_from_others(store):
    path, kind, right = store
    file = path / GENERATION / table_name(0 if kind in COPIES else 1)
    before = file.read_bytes()
    fill(file, 0, 300)
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    file.write_bytes(before + b"more")
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)


def test_a_lost_manifest_takes_the_design_with_it(store):
    path, _, right = store
    (path / MANIFEST_FILE).unlink()
    report = fpstore.repair(path, radius=5)
    assert content(report.output) == right
    assert "the settings: the new store answers radius 5" in report.losses[0]
    with fpstore.open(report.output) as new:
        assert new.radius == 5


@pytest.mark.parametrize("every", [*map(slow, (1, 2, 3)), 5])
def test_what_intact_pages_prove_is_kept(store, every):
    """Pages of all tables are damaged.

    What is left is found here by hand, and all of it must be in the new store.
    """
    path, kind, right = store
    files = tables_of(path)
    for number, file in enumerate(files):
        kernel = ColumnTable(file, None).header
        for page, at in enumerate(range(PAGE, kernel.checksums_offset, PAGE)):
            if (page + number) % every == 0:
                fill(file, at, min(at + 60, kernel.checksums_offset))
    known = set().union(*map(by_hand, files if kind in COPIES else files[:1]))
    report, held = repaired(path, right)
    assert {fingerprint for fingerprint, _ in held} | named_in(report) == known
    assert bool(known) == (every > 1)


def by_hand(file):
    """Return the fingerprints whose bytes all lie in intact pages, by the format page."""
    table, data = ColumnTable(file, None), file.read_bytes()
    kernel, width = table.header, Width(table.header.width)
    end = kernel.checksums_offset
    stored = np.frombuffer(data[end:], "<u8")
    sums = [
        _kernel.page_checksums(
            np.frombuffer(data[at : min(at + PAGE, end)], np.uint8), kernel.seed, i
        )[0]
        for i, at in enumerate(range(PAGE, end, PAGE))
    ]
    good = [a == b for a, b in zip(sums, stored, strict=True)]

    def read(at, count):
        pages = range((at - PAGE) // PAGE, (at + count - 1 - PAGE) // PAGE + 1)
        return data[at : at + count] if all(good[page] for page in pages) else None

    if kernel.kind == 2:
        each = width.bits // 8
        words = [read(kernel.tags_offset + each * i, each) for i in range(kernel.count)]
        return {
            int.from_bytes(b"".join(w[j : j + 8][::-1] for j in range(0, each, 8)), "big")
            for w in words
            if w is not None
        }
    collected, size = set(), (kernel.rest_bits + 7) // 8
    for bucket in range(1 << kernel.bucket_bits):
        bounds = read(kernel.directory_offset + 4 * bucket, 8)
        if bounds is None:
            continue
        for entry in range(
            int.from_bytes(bounds[:4], "little"), int.from_bytes(bounds[4:], "little")
        ):
            tag, rest = (
                read(kernel.tags_offset + 2 * entry, 2),
                read(kernel.rest_offset + size * entry, size) if size else b"",
            )
            if tag is None or rest is None:
                continue
            bits = f"{bucket:0{kernel.bucket_bits}b}{int.from_bytes(tag, 'little'):016b}"
            bits += f"{int.from_bytes(rest, 'little'):0{kernel.rest_bits}b}" if size else ""
            number = 0
            for i, bit in enumerate(kernel.permutation):
                number |= int(bits[i]) << (width.bits - 1 - bit)
            collected.add(number)
    return collected


def test_a_table_of_another_store(store, tmp_path):
    path, kind, right = store
    bits, design = DESIGNS[kind]
    fpstore.build(
        tmp_path / "other", numbers_of(bits, 2), width=bits, design=design, radius=3
    ).close()
    shutil.copy(tmp_path / "other" / GENERATION / table_name(1), path / GENERATION / table_name(1))
    report, held = repaired(path, right)
    assert (report.complete, held) == (True, right)
    assert "another store" in str(report.faults)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_few_rows(tmp_path, bits):
    """Stores of no row, of one, and of one block more than a row."""
    for count in (0, 1, 129):
        path = tmp_path / f"s{count}"
        design = {32: "columns-2", 64: "columns-4", 128: "columns-8", 256: "columns-16"}[bits]
        fpstore.build(path, numbers_of(bits)[:count], width=bits, design=design).close()
        right = content(path)
        assert len(right) == count
        file = path / GENERATION / table_name(1)
        flip(file, file.stat().st_size - 3)
        report = fpstore.repair(path)
        assert (report.complete, content(report.output)) == (True, right)


def test_a_dealt_design_stays_dealt(tmp_path):
    """By a sample: its tables follow from no name."""
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


def test_any_copy_is_enough_without_the_manifest(tmp_path):
    numbers, path = numbers_of(64)[:200], tmp_path / "s"
    fpstore.build(path, numbers, design="columns-3-8", radius=0).close()
    (path / MANIFEST_FILE).unlink()
    for file in tables_of(path):
        data = file.read_bytes()
        file.unlink()
        fpstore.repair(path, tmp_path / f"without {file.name}")
        with fpstore.open(tmp_path / f"without {file.name}") as store:
            assert len(store) == len(numbers)
            near = [number ^ (1 << 40) for number in numbers]
            assert all(len(matches) for matches in store.probe_many(near))
        file.write_bytes(data)
