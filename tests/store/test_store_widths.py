"""Stores of every width against a dictionary.

Built, changed, merged, joined, split, copied and opened again.

The sets have few leading words of 64 bits, or one: look-ups, ids and merges must tell their
fingerprints apart by the rest.
"""

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import reference
import reference_log
from repairing import GENERATION
from small_stores import content
from speeds import SOME_WIDTHS, crossed, slow
from store_model import Model, answers, expected, plain
from wide import alike_numbers

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width
from fpstore.care.stats import distribution
from fpstore.format.layout import table_name
from fpstore.format.log import HEADER_BYTES, LOG_FILE, parse_header
from fpstore.format.packed_table import PackedTable

OTHERS = [slow(32), slow(128), 256]
DESIGNS = [
    ("flip-2", 3),
    ("blocks-4-2", 2),
    ("manku-4", 3),
    ("scan", 5),
    ("columns-2-9", 4),
    ("dealt-4-8", 3),
]


@pytest.mark.parametrize(
    ("width", "design", "kind"),
    crossed([256, 32, 128], DESIGNS, ["integer", "string"], share=9),
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_a_store_that_lives(tmp_path, width, design, kind):
    (name, radius), rng, path, pool = (
        design,
        random.Random(width),
        tmp_path / "s",
        alike_numbers(width, 260),
    )
    names = [f"document {number}" if kind == "string" else number for number in range(310)]
    made = {
        "radius": radius,
        "width": width,
        "design": name,
        "block_bytes": 128,
        "index_ids": kind == "integer" and width == 256,
    }
    fpstore.build(path, pool[:200], names[:100] * 2, **made).close()
    model = Model(kind, zip(pool[:200], names[:100] * 2, strict=True))

    def flipped(value):
        return value ^ sum({1 << rng.randrange(width) for _ in range(rng.randrange(1, 5))})

    def check(*stores):
        queries = [*rng.sample(pool, 6), *map(flipped, rng.sample(pool, 6)), 0, 2**width - 1]
        question = queries, rng.sample(names, 9), width // 3
        for store in stores:
            assert answers(store, *question) == expected(model, radius, *question)
            assert (store.width, list(store)) == (width, sorted(model.content))
            report = store.verify()
            assert report.ok, report.faults

    with fpstore.open(path, "r+") as store, fpstore.open(path) as reader:
        check(store)
        for step in range(3):
            rows = [rng.choice(pool) for _ in range(40)], rng.choices(names[:300], k=40)
            assert store.insert(*rows) == model.insert(*rows)
            gone = rng.sample(pool, 15)
            assert store.delete(fingerprints=gone).removed == model.delete_fingerprints(gone)
            assert store.delete(ids=names[step]).removed == model.delete_ids([names[step]])
            value = flipped(rng.choice(pool))
            before = model.matches(value, radius)
            assert plain(store.probe_insert(value, names[300 + step])) == before
            model.probe_insert(value, names[300 + step], radius)
            check(store, reader)
            if step == 1:
                store.merge()
                check(store)
    with fpstore.open(path, "r+") as store:
        store.backup(tmp_path / "copy")
        store.redesign("blocks-3-1" if radius < 3 else "flip-3")
        assert {table.width.bits for table in store.design.tables} == {width}
        check(store)
        parts = store.split(tmp_path / "parts", 2)
    fpstore.build(
        tmp_path / "joined", [], radius=radius, width=width, design=name, block_bytes=128
    ).close()
    with fpstore.open(tmp_path / "joined", "r+") as store, fpstore.open(tmp_path / "copy") as copy:
        store.absorb(*parts)
        check(store, copy)


@pytest.mark.parametrize("width", OTHERS)
def test_stores_of_two_widths_are_not_joined(tmp_path, width):
    fpstore.build(tmp_path / "a", [1, 2], width=width).close()
    fpstore.build(tmp_path / "b", [1, 2]).close()
    with fpstore.open(tmp_path / "a", "r+") as store:
        with pytest.raises(fpstore.InputError, match="width"):
            store.absorb(tmp_path / "b")
        assert list(store) == [1, 2]


@pytest.mark.parametrize("part", ["header", "record"])
def test_the_log_of_another_width_under_right_checksums(tmp_path, part):
    """The kernel refused its rows with a ValueError."""
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3]).close()
    with fpstore.open(path, "r+") as store:
        store.insert([7, 8])
    file = path / "gen-00000001" / LOG_FILE
    header, data = parse_header(file.read_bytes(), file), bytearray(file.read_bytes())
    if part == "header":
        data[: HEADER_BYTES // 8] = (
            header._replace(width=128).pack().ljust(HEADER_BYTES // 8, b"\0")
        )
    else:
        [record] = reference_log.read_log(bytes(data), 0)[0]
        forged = reference_log.encode_change(
            dataclasses.replace(record, rows=[((1 << 64) + 5, 1, 0)], words=2),
            HEADER_BYTES,
            header.seed,
        )
        data[HEADER_BYTES : HEADER_BYTES + len(forged)] = forged
        assert reference_log.decode_change(bytes(data), HEADER_BYTES, header.seed)
    file.write_bytes(data)
    message = (
        "width of the header is 128, the manifest says 64" if part == "header" else "not whole"
    )
    for mode in ("r", "r+"):
        with pytest.raises(fpstore.CorruptStoreError, match=message):
            fpstore.open(path, mode)


# --- On disk --------------------------------------------------------------------------------------

P1 = 0x9E3779B185EBCA87  # of XXH64


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_a_merge_that_chooses_a_design_keeps_the_width(tmp_path, bits):
    """It made tables for 64 bits.

    By name, and where `auto` chose again because the set had grown.
    """
    numbers = [number >> 8 << 8 for number in alike_numbers(bits)]
    fpstore.build(tmp_path / "s", numbers[:10], width=bits, radius=2).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for step, design in ((200, None), (300, "flip-2"), (400, "blocks-3-1"), (500, "auto")):
            store.insert(numbers[step - 200 : step])
            store.merge() if design is None else store.redesign(design)
            assert (store.width, store.design.width.bits) == (bits, bits)
            assert design in (None, "auto", store.design.name)
            assert store.verify().ok
            assert all(number in store for number in numbers[:step])


def test_a_key_behind_the_leading_word_is_damaged(tmp_path):
    """A look-up trusted the later words of a key, and missed fingerprints of the next block."""
    numbers = [(1 << 255) + i for i in range(0, 2000, 2)]
    path = tmp_path / "s"
    fpstore.build(path, numbers, width=256, radius=0, design="flip-1", block_bytes=128).close()
    kernel = PackedTable(path / GENERATION / table_name(0)).kernel
    blocks = kernel.block_count
    with fpstore.open(path) as store:
        # the last word of a key in the middle
        place = kernel.keys_offset + 8 * blocks + 24 * (blocks // 2) + 16
        with (path / GENERATION / table_name(0)).open("r+b") as file:
            file.seek(place)
            file.write((2**64 - 1).to_bytes(8, "little"))
        missed = []
        for number in numbers:
            try:
                missed += [] if number in store else [number]
            except fpstore.CorruptStoreError:
                continue
        assert missed == []
        assert not store.verify().ok


def test_bits_behind_a_narrow_fingerprint_are_refused(tmp_path):
    """A block under a right checksum whose first entry had more than 32 bits.

    Its distances were wrong.
    """
    path = tmp_path / "s"
    fpstore.build(
        path, alike_numbers(32), width=32, radius=2, design="flip-1", block_bytes=128
    ).close()
    file = path / GENERATION / table_name(0)
    kernel = PackedTable(file).kernel
    seed = _kernel.block_seed(
        np.frombuffer(kernel.permutation, np.uint8),
        np.frombuffer(kernel.code_bits, np.uint8),
        kernel.set_digest,
    )
    data = bytearray(file.read_bytes())
    data[4096 + 8] |= 1
    checksum = reference.block_sum(data[4096 : 4096 + 128], (seed + kernel.key_of(0) * P1) % 2**64)
    data[4096 : 4096 + 4] = checksum.to_bytes(4, "little")
    file.write_bytes(data)
    with fpstore.open(path) as store:
        assert "bit streams do not fit" in store.verify().faults[0]["message"]
        with pytest.raises(fpstore.CorruptStoreError, match="block 0"):
            store.scan([0], 32)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_statistics(tmp_path, bits):
    """The tails and the words behind them fill the blocks, whatever the width."""
    path, numbers = tmp_path / "s", alike_numbers(bits)
    fpstore.build(path, numbers, radius=2, design="blocks-3-1", block_bytes=128, width=bits).close()
    with fpstore.open(path) as store:
        stats = store.stats()
    table = distribution(PackedTable(path / GENERATION / table_name(0)))
    assert stats["fingerprints"] == len(content(path)) == len(numbers)
    assert sum(table["h"].values()) == len(numbers) - 1
    assert max(table["h"]) < {32: 32, 64: 64}.get(bits, 65)
    assert (64 in table["h"]) == (bits > 64)
    assert 0.5 < table["fill"] <= 1
    assert 0 < stats["limit_bits_per_fingerprint"] < bits


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("bits", "design"),
    [
        (64, "columns-4"),
        (128, "columns-8"),
        (256, "flip-2"),
        slow(32, "columns-2"),
        slow(128, "manku-4"),
        slow(256, "columns-16"),
    ],
)
def test_merge_and_low_memory_build_write_the_same_tables(tmp_path, set_limits, bits, design):
    width, rng = Width(bits), np.random.default_rng(bits)
    rows = rng.integers(0, 2**64, (4000, width.words), np.uint64)
    rows[::3, 0] = 7 << 32  # ties
    if bits <= 64:
        rows = rows[:, 0] if bits == 64 else rows[:, 0] >> np.uint64(32) << np.uint64(32)
    first, second = width.to_array(rows[:3000]), width.to_array(rows[2000:])

    def tables(name: str) -> list[bytes]:
        return [file.read_bytes() for file in sorted((tmp_path / name).glob("gen-*/table-*"))]

    fpstore.build(tmp_path / "whole", width.to_array(rows[100:]), width=bits, design=design).close()
    set_limits(pair_bytes=1 << 15, sort_bytes=1 << 15, copy_rows=1 << 10)
    fpstore.build(
        tmp_path / "parts", width.to_array(rows[100:]), width=bits, design=design, memory="64MiB"
    ).close()
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
    with fpstore.build(
        tmp_path / "again", list(store_numbers(tmp_path / "merged")), width=bits, design=design
    ):
        assert tables("again") == tables("merged")


def store_numbers(path: Path) -> list[int]:
    with fpstore.open(path) as store:
        return list(store)


COLUMNS = {32: "columns-2-9", 64: "columns-3-19", 128: "columns-7-18", 256: "columns-14-18"}


@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
@pytest.mark.parametrize(
    ("width", "design"), [item if item[0] % 192 == 64 else slow(*item) for item in COLUMNS.items()]
)
def test_radii_above_that_of_column_tables_are_always_scans(tmp_path, width, design, monkeypatch):
    """Some looked up in nearly all buckets, thousands of times as long."""
    rows = np.random.default_rng(width).integers(0, 256, (500, width // 8), np.uint8)
    radius, queries = width * 45 // 64, rows[:10]
    monkeypatch.setattr(_kernel, "ColumnProber", None)
    fpstore.build(tmp_path / "s", rows, width=width, radius=1, design=design).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for changed in (False, True):
            if changed:
                store.delete(fingerprints=rows[:9])
                store.insert(rows[:5], np.arange(600, 605))
            expected = [[tuple(match) for match in case] for case in store.scan(queries, radius)]
            parts = list(store.probe_batches(queries, radius))
            assert [[tuple(match) for match in case] for part in parts for case in part] == expected
            assert [
                [tuple(match) for match in store.probe(row.tobytes(), radius)] for row in queries
            ] == expected
            assert [
                [tuple(match) for match in case] for case in store.probe_many(queries, radius)
            ] == expected
        assert len(store.probe_insert(rows[0].tobytes(), 700, radius)) == len(expected[0])
