"""Stores of every width against a dictionary: built, changed, merged, joined, split, copied and opened again.

The sets have few leading words of 64 bits, or one: look-ups, ids and merges must tell their fingerprints apart by the rest.
"""

import dataclasses
import random

import numpy as np
import pytest
import reference_log
from speeds import crossed

import fpstore
from fpstore.base.width import Width
from fpstore.format.log import HEADER_BYTES, LOG_FILE, parse_header

OTHERS = [32, 128, 256]
DESIGNS = [("flip-2", 3), ("blocks-4-2", 2), ("manku-4", 3), ("scan", 5), ("columns-2-9", 4), ("dealt-4-8", 3)]
SETS = ["tied", "constant", "spread"]


class Model:
    """What a store holds: the ids of each fingerprint."""

    def __init__(self, width, kind, seed):
        self.width, self.rng = width, random.Random(seed)
        self.content = {}
        self.leads = [self.rng.getrandbits(64) for _ in range(4 if kind == "tied" else 1)]
        self.pool = self.made(kind, 260)

    def made(self, kind, count):
        found = set()
        while len(found) < count:
            if found and self.rng.random() < 0.5:
                found.add(self.flipped(self.rng.choice(sorted(found)), self.rng.randrange(1, 4), kind))
            elif kind == "spread" or self.width == 32:
                found.add(self.rng.getrandbits(self.width))
            else:
                rest = self.width - 64
                found.add(self.rng.choice(self.leads) << rest | self.rng.getrandbits(rest))
        return self.rng.sample(sorted(found), count)

    def flipped(self, value, count, kind="spread"):
        bits = self.width if kind == "spread" or self.width == 32 else self.width - 64
        for bit in self.rng.sample(range(bits), count):
            value ^= 1 << bit
        return value

    def insert(self, value, item):
        ids = self.content.setdefault(value, set())
        before = len(ids)
        ids.add(item)
        return len(ids) - before

    def delete(self, value):
        return len(self.content.pop(value, ()))

    def delete_id(self, item):
        holding = [value for value, ids in self.content.items() if item in ids]
        for value in holding:
            self.content[value].discard(item)
            if not self.content[value]:
                del self.content[value]
        return len(holding)

    def matches(self, query, radius):
        near = [((value ^ query).bit_count(), value) for value in self.content if (value ^ query).bit_count() <= radius]
        return [(value, distance, sorted(self.content[value])) for distance, value in sorted(near)]


def plain(matches):
    return [(match.fingerprint, match.distance, sorted(match.ids)) for match in matches]


def check(store, model):
    """Ask everything that can be asked."""
    width, content, rng = Width(model.width), model.content, model.rng
    assert (store.width, len(store), list(store)) == (model.width, len(content), sorted(content))
    stored = {}
    for values, lims, ids in store.items():
        rows = width.numbers(fpstore.io.check_fingerprints(values, width))
        stored |= {value: sorted(ids[a:b]) for value, a, b in zip(rows, lims[:-1], lims[1:], strict=True)}
    assert stored == {value: sorted(ids) for value, ids in content.items()}
    queries = [*rng.sample(model.pool, 6), *(model.flipped(value, rng.randrange(1, 5)) for value in rng.sample(model.pool, 6))]
    queries += [0, 2**model.width - 1]
    for radius in range(store.radius + 1):
        assert [plain(part) for part in store.probe_many(queries, radius)] == [model.matches(query, radius) for query in queries]
        assert plain(store.probe(queries[7], radius)) == model.matches(queries[7], radius)
    for radius in (0, model.width // 3, model.width):
        assert [plain(part) for part in store.scan(queries, radius)] == [model.matches(query, radius) for query in queries]
        cut = store.scan(queries, radius, limit=3)
        assert [plain(part) for part in cut] == [model.matches(query, radius)[:3] for query in queries]
        assert cut.more.tolist() == [len(model.matches(query, radius)) > 3 for query in queries]
    for count in (1, 9):
        found = [plain(part) for part in store.nearest_many(queries, count)]
        assert found == [model.matches(query, model.width)[:count] for query in queries]
    for query in queries:
        assert (query in store) == (query in content)
        if query in content:
            assert sorted(store[query]) == sorted(content[query])
    numbers = sorted({item for ids in content.values() for item in ids})
    chosen = [*rng.sample(numbers, min(5, len(numbers))), "nowhere" if numbers and isinstance(numbers[0], str) else 10**12]
    lims, values = store.fingerprints_of(chosen)
    found = width.numbers(fpstore.io.check_fingerprints(values, width))
    for place, item in enumerate(chosen):
        holding = sorted(value for value, ids in content.items() if item in ids)
        assert found[lims[place] : lims[place + 1]] == holding
    report = store.verify()
    assert report.ok, report.faults


def name_of(number, strings):
    return f"document {number}" if strings else number


@pytest.mark.parametrize(
    ("width", "kind", "design", "strings"),
    crossed(OTHERS, SETS, DESIGNS, [False, True], share=12),
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_a_store_that_lives(tmp_path, width, kind, design, strings):
    model, (name, radius) = Model(width, kind, width + len(kind)), design
    rng, path = model.rng, tmp_path / "s"
    ids = [name_of(number % 100, strings) for number in range(200)]
    made = {"radius": radius, "width": width, "design": name, "block_bytes": 128, "index_ids": not strings and kind == "tied"}
    fpstore.build(path, model.pool[:200], ids, **made).close()
    for value, item in zip(model.pool, ids, strict=False):
        model.insert(value, item)
    with fpstore.open(path, "r+") as store, fpstore.open(path) as reader:
        check(store, model)
        for step in range(3):
            rows = [(rng.choice(model.pool), name_of(rng.randrange(300), strings)) for _ in range(40)]
            expected = sum(model.insert(*row) for row in rows)
            assert store.insert([row[0] for row in rows], [row[1] for row in rows]) == expected
            gone = rng.sample(model.pool, 15)
            assert store.delete(fingerprints=gone).removed == sum(map(model.delete, gone))
            item = name_of(rng.randrange(100), strings)
            assert store.delete(ids=[item]).removed == model.delete_id(item)
            value = model.flipped(rng.choice(model.pool), 2)
            before = model.matches(value, radius)
            assert plain(store.probe_insert(value, name_of(1000 + step, strings))) == before
            if not before:
                model.insert(value, name_of(1000 + step, strings))
            check(store, model)
            check(reader, model)
            if step == 1:
                store.merge()
                check(store, model)
        stats = store.stats()
        assert stats["fingerprints"] == len(model.content)
    with fpstore.open(path, "r+") as store:
        check(store, model)
        store.backup(tmp_path / "copy")
        other = "blocks-3-1" if name != "blocks-3-1" else "flip-2"
        store.redesign(other if radius < 3 else "flip-3")
        assert {table.width.bits for table in store.design.tables} == {width}
        check(store, model)
        parts = store.split(tmp_path / "parts", 2)
    joined = fpstore.build(tmp_path / "joined", [], radius=radius, width=width, design=name, block_bytes=128)
    joined.close()
    with fpstore.open(tmp_path / "joined", "r+") as store:
        store.absorb(*parts)
        check(store, model)
    with fpstore.open(tmp_path / "copy") as copy:
        check(copy, model)


@pytest.mark.parametrize("width", OTHERS)
def test_stores_of_two_widths_are_not_joined(tmp_path, width):
    fpstore.build(tmp_path / "a", [1, 2], width=width).close()
    fpstore.build(tmp_path / "b", [1, 2]).close()
    with fpstore.open(tmp_path / "a", "r+") as store:
        with pytest.raises(fpstore.InputError, match="width"):
            store.absorb(tmp_path / "b")
        assert list(store) == [1, 2]


@pytest.mark.parametrize("width", OTHERS)
def test_a_radius_is_checked_against_the_width(tmp_path, width):
    with pytest.raises(fpstore.InputError, match=f"from 0 to {width}"):
        fpstore.build(tmp_path / "s", [1], width=width, radius=width + 1)
    with fpstore.build(tmp_path / "s", [1], width=width, radius=width, design="scan") as store:
        assert [match[:2] for match in store.probe(2**width - 2)] == [(1, width)]


def test_arrays_of_each_width_come_back_as_they_went_in(tmp_path):
    rng = np.random.default_rng(1)
    for width, values in (
        (32, rng.integers(0, 2**32, 50, np.uint32)),
        (128, rng.integers(0, 256, (50, 16), np.uint8)),
        (256, rng.integers(0, 256, (50, 32), np.uint8)),
    ):
        with fpstore.build(tmp_path / str(width), values, width=width) as store:
            found = store.probe_many(values, 0)
            assert (found.fingerprints.dtype, found.fingerprints.shape) == (values.dtype, values.shape)
            assert np.array_equal(found.fingerprints, values)
            assert found.distances.dtype == (np.uint16 if width == 256 else np.uint8)


def test_a_store_of_32_bits_is_repaired_as_one(tmp_path):
    """The new store held the numbers of whole words, and had 64 bits."""
    rng = random.Random(5)
    values = rng.sample(range(2**32), 600)
    fpstore.build(tmp_path / "s", values, [f"d{i}" for i in range(600)], width=32, design="flip-2", block_bytes=128).close()
    for table in ("table-000.fpt", "table-001.fpt"):  # a block each, of which the other table has most
        path = tmp_path / "s" / "gen-00000001" / table
        data = bytearray(path.read_bytes())
        data[4096 + 77] ^= 4
        path.write_bytes(data)
    report = fpstore.repair(tmp_path / "s", tmp_path / "new", lost=tmp_path / "lost.tsv")
    with fpstore.open(tmp_path / "new") as store:
        assert (store.width, store.design.width.bits) == (32, 32)
        assert set(store) <= set(values)
        assert len(store) == report.fingerprints > 500
        assert store.verify().ok
    lost = [line.split("\t") for line in (tmp_path / "lost.tsv").read_text().splitlines()]
    named = {fields[1] for fields in lost if len(fields) > 1 and fields[1]} - {"fingerprint"}
    assert named
    assert named <= {f"{value:08x}" for value in values}


@pytest.mark.parametrize("part", ["header", "record"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_log_of_another_width_under_right_checksums(tmp_path, part, mode):
    """The kernel refused its rows with a ValueError."""
    path = tmp_path / "s"
    fpstore.build(path, [1, 2, 3]).close()
    with fpstore.open(path, "r+") as store:
        store.insert([7, 8])
    file = path / "gen-00000001" / LOG_FILE
    header, data = parse_header(file.read_bytes(), file), bytearray(file.read_bytes())
    if part == "header":
        data[: HEADER_BYTES // 8] = header._replace(width=128).pack().ljust(HEADER_BYTES // 8, b"\0")
    else:
        [record] = reference_log.read_log(bytes(data), 0)[0]
        forged = reference_log.encode_change(
            dataclasses.replace(record, rows=[((1 << 64) + 5, 1, 0)], words=2), HEADER_BYTES, header.seed
        )
        data[HEADER_BYTES : HEADER_BYTES + len(forged)] = forged
        assert reference_log.decode_change(bytes(data), HEADER_BYTES, header.seed)
    file.write_bytes(data)
    told = "width of the header is 128, the manifest says 64" if part == "header" else "not whole"
    with pytest.raises(fpstore.CorruptStoreError, match=told):
        fpstore.open(path, mode)
