"""Stores of every width and kind of table: answers, changes, merges, splits and joins against a model."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from speeds import crossed, slow

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width

DESIGNS = {
    32: ("auto", "manku-4", "flip-2", "scan", "columns-2", "columns-4", "columns-2-10"),
    64: ("auto", "columns-4", "columns-3-19", "columns-4-10", "columns-8"),
    128: ("auto", "manku-4", "blocks-5-2", "flip-2", "scan", "columns-8", "columns-7", "columns-4-10"),
    256: ("auto", "manku-4", "flip-3", "striped-4-1", "scan", "columns-16", "columns-8-12"),
}
CHANGED = [
    *((32, design) for design in ("manku-4", "columns-2")),
    (64, "columns-4"),
    *((128, design) for design in ("manku-4", "columns-8")),
    *((256, design) for design in ("flip-2", "columns-16")),
]
SETS = [(bits, design) for bits, designs in DESIGNS.items() for design in designs]


def near(rng: random.Random, centres: list[int], bits: int) -> int:
    value = rng.choice(centres)
    for _ in range(rng.randrange(bits // 8)):
        value ^= 1 << rng.randrange(bits)
    return value


def tied(rng: random.Random, bits: int, count: int) -> list[int]:
    """Return fingerprints of which above 64 bits many begin with the same word."""
    centres = [rng.getrandbits(bits) for _ in range(max(count // 10, 1))]
    low = (1 << max(bits - 64, bits // 2)) - 1
    return [
        near(rng, centres, bits) & low | centres[0] & ~low if rng.random() < 0.3 else near(rng, centres, bits)
        for _ in range(count)
    ]


def brute(stored: list[int], query: int, radius: int) -> list[tuple[int, int]]:
    return sorted((distance, value) for value in stored if (distance := (value ^ query).bit_count()) <= radius)


def pairs(matches: list[fpstore.Match]) -> list[tuple[int, int]]:
    return [(match.distance, match.fingerprint) for match in matches]


@pytest.mark.parametrize(("made", "count"), crossed(SETS, [0, 1, 5, 129, 600], share=3))
def test_answers_are_those_of_brute_force(tmp_path: Path, made: tuple[int, str], count: int) -> None:
    bits, design = made
    rng = random.Random(f"{bits}{design}{count}")
    values = tied(rng, bits, count)
    most = 3 if design.startswith(("manku", "blocks", "striped")) else min(bits // 8, 10)
    stored = sorted(set(values))
    queries = [*(near(rng, stored or [0], bits) for _ in range(10)), 0, 2**bits - 1]
    with fpstore.build(tmp_path / "s", values, width=bits, radius=most, design=design) as store:
        assert (store.width, list(store)) == (bits, stored)
        for radius in sorted({0, 1, 3, most}):
            expected = [brute(stored, query, radius) for query in queries]
            assert [pairs(found) for found in store.probe_many(queries, radius)] == expected
            assert [pairs(store.probe(query, radius)) for query in queries] == expected
            assert [pairs(found) for found in store.scan(queries, radius)] == expected
        assert [pairs(found) for found in store.scan(queries, bits)] == [brute(stored, query, bits) for query in queries]
        assert [pairs(found) for found in store.nearest_many(queries, 5)] == [brute(stored, query, bits)[:5] for query in queries]
        limited = store.probe_many(queries, most, limit=2)
        assert [pairs(found) for found in limited] == [brute(stored, query, most)[:2] for query in queries]
        assert limited.more.tolist() == [len(brute(stored, query, most)) > 2 for query in queries]
        for value in stored[:20]:
            assert store[value] == [row for row, other in enumerate(values) if other == value]
        assert (2**bits - 1 in store) == (2**bits - 1 in stored)
        assert store.verify().ok


def test_fingerprints_that_differ_in_all_of_256_bits(tmp_path: Path) -> None:
    with fpstore.build(tmp_path / "s", [0, 2**256 - 1], width=256) as store:
        assert pairs(store.scan([0], 256).__iter__().__next__()) == [(0, 0), (256, 2**256 - 1)]
        assert pairs(store.nearest(0, 2)) == [(0, 0), (256, 2**256 - 1)]


@pytest.mark.parametrize(("changed", "kind"), crossed(CHANGED, ["integer", "string"], share=3))
def test_changes_against_a_model(tmp_path: Path, changed: tuple[int, str], kind: str) -> None:
    bits, design = changed
    rng = random.Random(f"{bits}{design}{kind}")
    centres = [rng.getrandbits(bits) for _ in range(30)]

    def some(count: int) -> list[tuple[int, int | str]]:
        numbers = [rng.randrange(300) for _ in range(count)]
        return [(near(rng, centres, bits), number if kind == "integer" else f"page-{number}") for number in numbers]

    rows = some(200)
    path = tmp_path / "s"
    fpstore.build(path, [f for f, _ in rows], [i for _, i in rows], width=bits, design=design, index_ids=True).close()
    model = set(rows)
    store = fpstore.open(path, "r+")
    for step in range(12):
        new = some(15)
        if step % 4 == 0:
            store.insert([f for f, _ in new], [i for _, i in new])
            model |= set(new)
        elif step % 4 == 1:
            found = store.probe_insert_many([f for f, _ in new], [i for _, i in new])
            for (value, identifier), inserted in zip(new, found.inserted, strict=True):
                assert inserted == all((value ^ f).bit_count() > 3 for f, _ in model)
                if inserted:
                    model.add((value, identifier))
        elif step % 4 == 2:
            gone = {identifier for _, identifier in new}
            last = {identifier: value for value, identifier in new}
            store.upsert([f for f, _ in new], [i for _, i in new])
            model = {pair for pair in model if pair[1] not in gone} | {(value, identifier) for identifier, value in last.items()}
        else:
            dead, out = {f for f, _ in sorted(model)[::20]}, {i for _, i in new[:4]}
            store.delete(fingerprints=sorted(dead))
            store.delete(ids=sorted(out))
            model = {pair for pair in model if pair[0] not in dead and pair[1] not in out}
        if step % 5 == 4:
            store.merge()
        if step % 5 == 2:
            store.close()
            store = fpstore.open(path, "r+")
        _same(store, model, [near(rng, centres, bits) for _ in range(5)])
    store.merge()
    assert store.verify().ok
    parts = store.split(tmp_path / "parts", 2)
    with fpstore.open(parts[0], "r+") as joined:
        joined.absorb(*parts[1:])
        _same(joined, model, [near(rng, centres, bits) for _ in range(5)])
        assert joined.verify().ok
    store.close()


def _same(store: fpstore.Store, model: set[tuple[int, int | str]], queries: list[int]) -> None:
    ids: dict[int, list[int | str]] = {}
    for value, identifier in model:
        ids.setdefault(value, []).append(identifier)
    assert list(store) == sorted(ids)
    for radius in (0, 3):
        expected = [[(d, f, sorted(ids[f])) for d, f in brute(list(ids), query, radius)] for query in queries]
        for found in (store.probe_many(queries, radius), [store.probe(query, radius) for query in queries]):
            assert [[(m.distance, m.fingerprint, sorted(m.ids)) for m in matches] for matches in found] == expected
    assert [pairs(found) for found in store.nearest_many(queries, 4)] == [
        brute(list(ids), query, store.width)[:4] for query in queries
    ]


@pytest.mark.parametrize(
    ("bits", "design"),
    [*CHANGED[2:3], *CHANGED[4:6], *(slow(*CHANGED[place]) for place in (1, 3, 6))],
)
def test_a_merge_and_a_build_in_little_memory_write_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, design: str
) -> None:
    width, rng = Width(bits), np.random.default_rng(bits)
    rows = rng.integers(0, 2**64, (4000, width.words), np.uint64)
    rows[::3, 0] = 7 << 32  # ties
    if bits <= 64:
        rows = rows[:, 0] if bits == 64 else rows[:, 0] >> np.uint64(32) << np.uint64(32)
    first, second = width.outside(rows[:3000]), width.outside(rows[2000:])

    def tables(name: str) -> list[bytes]:
        return [file.read_bytes() for file in sorted((tmp_path / name).glob("gen-*/table-*"))]

    fpstore.build(tmp_path / "whole", width.outside(rows[100:]), width=bits, design=design).close()
    monkeypatch.setattr("fpstore.building.external_sort.PAIR_BYTES", 1 << 15)
    monkeypatch.setattr("fpstore.building.external_sort.SORT_BYTES", 1 << 15)
    for module in ("columns", "external_sort"):
        monkeypatch.setattr(f"fpstore.building.{module}.COPY_ROWS", 1 << 10)
    fpstore.build(tmp_path / "parts", width.outside(rows[100:]), width=bits, design=design, memory="64MiB").close()
    assert tables("parts") == tables("whole")
    with fpstore.build(tmp_path / "merged", first, width=bits, design=design):
        pass
    with fpstore.open(tmp_path / "merged", "r+") as store:
        store.insert(second)
        store.delete(fingerprints=first[:100])
        store.merge(memory="64MiB")
        deleted = set(width.numbers(rows[:100]))
        assert list(store) == sorted(set(width.numbers(rows)) - deleted)
        assert store.verify().ok
    with fpstore.build(tmp_path / "again", list(store_numbers(tmp_path / "merged")), width=bits, design=design):
        assert tables("again") == tables("merged")


def store_numbers(path: Path) -> list[int]:
    with fpstore.open(path) as store:
        return list(store)


def test_stores_of_two_widths_are_not_joined(tmp_path: Path) -> None:
    fpstore.build(tmp_path / "narrow", [1, 2]).close()
    fpstore.build(tmp_path / "wide", [1, 2], width=256).close()
    with (
        fpstore.open(tmp_path / "narrow", "r+") as store,
        pytest.raises(fpstore.InputError, match=r"its fingerprints have 256 bits, the fingerprints of .*narrow 64"),
    ):
        store.absorb(tmp_path / "wide")


def test_a_reader_of_another_width_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 16), np.uint8))
    reader = fpstore.io.open_reader(tmp_path / "a.npy", width=128)
    with pytest.raises(fpstore.InputError, match="128 bits, but the width is 64"):
        fpstore.build(tmp_path / "s", reader)
    fpstore.build(tmp_path / "s", reader, width=128).close()


COLUMNS = {32: "columns-2-9", 64: "columns-3-19", 128: "columns-7-18", 256: "columns-14-18"}


@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
@pytest.mark.parametrize(("width", "design"), [item if item[0] % 192 == 64 else slow(*item) for item in COLUMNS.items()])
def test_radii_above_that_of_column_tables_are_scans_however_they_are_asked(tmp_path, width, design, monkeypatch):
    """Some looked up in nearly all buckets, thousands of times as long."""
    rows = np.random.default_rng(width).integers(0, 256, (500, width // 8), np.uint8)
    radius, asked = width * 45 // 64, rows[:10]
    monkeypatch.setattr(_kernel, "ColumnProber", None)
    fpstore.build(tmp_path / "s", rows, width=width, radius=1, design=design).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for changed in (False, True):
            if changed:
                store.delete(fingerprints=rows[:9])
                store.insert(rows[:5], np.arange(600, 605))
            expected = [[tuple(match) for match in found] for found in store.scan(asked, radius)]
            parts = list(store.probe_batches(asked, radius))
            assert [[tuple(match) for match in found] for part in parts for found in part] == expected
            assert [[tuple(match) for match in store.probe(row.tobytes(), radius)] for row in asked] == expected
            assert [[tuple(match) for match in found] for found in store.probe_many(asked, radius)] == expected
        assert len(store.probe_insert(rows[0].tobytes(), 700, radius)) == len(expected[0])


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_a_match_shows_its_fingerprint_in_a_form_that_python_reads(tmp_path: Path, width: int) -> None:
    """Those of 128 and 256 bits were shown in up to 78 decimal digits, which nobody has as a query."""
    value = 0x0123_4567 << width - 32
    with fpstore.build(tmp_path / "s", [value], width=width) as store:
        (match,) = store.probe(value ^ 1)
        digits = str(value) if width <= 64 else f"0x{value:0{width // 4}x}"
        assert repr(match) == f"Match(fingerprint={digits}, distance=1, ids=[0])"
        assert eval(repr(match), {"Match": fpstore.Match}) == match
        assert repr([*store.probe_many([value])]) == repr([store.nearest(value, 1)])


@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_a_fingerprint_of_any_form_is_said_not_to_be_stored(tmp_path: Path, width: int) -> None:
    """Digits, bytes and rows of numbers ended in a ValueError or TypeError of Python."""
    value = 0xF1 << width - 8
    row = np.frombuffer(value.to_bytes(width // 8, "big"), np.uint8)
    with fpstore.build(tmp_path / "s", [1], width=width) as store:
        shown = f"the fingerprint {value if width <= 64 else f'0x{value:x}'} is not stored"
        for form in (value, Width(width).text(value), row.tobytes(), row):
            with pytest.raises(fpstore.NotStoredError) as caught:
                store[form]  # type: ignore[index]
            assert str(caught.value) == shown
        with pytest.raises(fpstore.NotStoredError, match=shown):
            store.ids_of([value])
