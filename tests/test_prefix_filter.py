"""Prefix filters: the answers are the same, with fewer blocks opened."""

import pickle
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore import _kernel
from fpstore.design.families import MAX_VARIANTS, design
from fpstore.disk.pages import PAGES
from fpstore.format.table import TableReader
from fpstore.query.generation import Generation

WIDTHS = [32, 64, 128, 256]
BLOCK_DESIGNS = ["manku-4", "manku-10", "flip-1", "flip-2", "striped-4-1", "scan"]
SIZES = [0, 1, 15, 16, 17, 63, 64, 65, 300, 5_000]


def random_rows(count: int, width: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, width // 8), dtype=np.uint8)


def flipped(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Return the rows with up to so many bits flipped."""
    random = np.random.default_rng(seed)
    bits = np.unpackbits(rows, axis=1)
    for row in bits:
        row[random.choice(len(row), random.integers(0, most + 1), replace=False)] ^= 1
    return np.packbits(bits, axis=1)


def given(rows: np.ndarray, width: int) -> np.ndarray:
    """Return rows of bytes as fingerprints of their width."""
    words = np.ascontiguousarray(rows).view(f">u{min(width, 64) // 8}").astype(f"u{min(width, 64) // 8}")
    return words[:, 0] if width <= 64 else words


def assert_alike(got: fpstore.Matches, expected: fpstore.Matches) -> None:
    assert np.array_equal(got.lims, expected.lims)
    assert np.array_equal(got.fingerprints, expected.fingerprints)
    assert np.array_equal(got.distances, expected.distances)


def generation_of(store: fpstore.Store) -> Generation:
    return store._tracker.snapshot().generation


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("name", "codec"), [*product(BLOCK_DESIGNS, ["huffman", "elias-fano"]), ("columns-4", "huffman")])
def test_answers_are_the_same(tmp_path, name, width, codec):
    for count in SIZES:
        rows = random_rows(count, width, count)
        rows[count // 2 :] = flipped(rows[: count - count // 2], 3, 1)  # families
        stored = given(rows, width)
        near = given(flipped(rows[np.random.default_rng(2).integers(0, count, 200)], 4, 3), width) if count else stored
        queries = np.concatenate([near, given(random_rows(200, width, 4), width), stored[:100]])
        path = tmp_path / f"{count}.fps"
        with (
            fpstore.build(path, stored, width=width, design=name, codec=codec) as plain,
            fpstore.open(path, prefix_filter=True) as store,
        ):
            for radius in range(4):
                expected = plain.probe_many(queries, radius)
                assert_alike(store.probe_many(queries, radius), expected)
                assert_alike(store.probe_many(queries, radius, threads=2), expected)
                for i in [0, 1, 150, len(queries) - 1]:
                    query = int.from_bytes(np.atleast_1d(queries[i]).byteswap().tobytes())
                    assert store.probe(query, radius) == plain.probe(query, radius)


@pytest.mark.parametrize("order", ["best", "asked", "near", "sorted"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_order_of_look_ups(tmp_path, width, order):
    """And batches of sizes around those at which groups and sorts begin."""
    rows = given(random_rows(20_000, width, 1), width)
    near = flipped(random_rows(20_000, width, 1)[:4_000], 3, 2)
    queries = given(np.concatenate([near, random_rows(4_000, width, 3)]), width)
    path = tmp_path / "a.fps"
    with fpstore.build(path, rows, width=width, design="flip-2") as plain, fpstore.open(path, prefix_filter=True) as store:
        for count in [0, 1, 31, 32, 33, 127, 128, 2_048, 4_095, 4_096, 8_000]:
            plain_prober, prober = generation_of(plain).prober(3), generation_of(store).prober(3)
            batch = np.ascontiguousarray(queries[::-1][:count])
            if width == 32:  # in the upper half of a word, as the kernel has it
                batch = batch.astype(np.uint64) << np.uint64(32)
            expected, got = plain_prober.probe(batch, 3), prober.probe(batch, 3, order=order)
            assert all(np.array_equal(a, b) for a, b in zip(got[:3], expected[:3], strict=True))


@pytest.mark.parametrize("order", ["asked", "near", "sorted"])
@pytest.mark.parametrize("name", ["manku-10", "flip-2"])
def test_look_ups_that_find_nothing_open_few_blocks(tmp_path, name, order):
    """At this size prefixes are long: without a filter, nearly each look-up opens a block."""
    rows = given(random_rows(400_000, 64, 1), 64)
    queries = given(random_rows(500, 64, 2), 64)
    path = tmp_path / "a.fps"
    with fpstore.build(path, rows, design=name) as plain, fpstore.open(path, prefix_filter=True) as store:
        opened, fewer = (generation_of(s).prober(3).probe(queries, 3, order=order)[3] for s in (plain, store))
        assert opened > 1_000
        assert fewer < 0.6 * opened


def test_how_many_bits():
    manku, flip = design("manku-10", 3), design("flip-2", 3)
    assert manku.filter_bits(2**22) == {0: 24, **dict.fromkeys(range(1, 10), 24)}
    assert set(manku.filter_bits(2**26 - 1).values()) == {25, 26}
    assert set(manku.filter_bits(2**26).values()) == {26}  # where 25 bits have two entries each, most look-ups pass
    assert manku.filter_bits(2**27) == {}
    assert flip.filter_bits(2**26) == {0: 28, 1: 28}
    assert flip.filter_bits(2**31) == {0: 32, 1: 32}
    assert flip.filter_bits(15) == flip.filter_bits(0) == {}
    assert flip.filter_bits(2**8) == {0: 10, 1: 10}
    assert design("columns-4", 3).filter_bits(2**22) == design("scan", 3).filter_bits(2**22) == {}


def test_look_ups_go_by_more_bits_where_flips_are_few():
    flip = design("flip-2", 3)
    assert [look.prefix_bits for look in flip.lookups(2**26)] == [24, 24]
    looks = flip.lookups(2**26, filtered={0, 1})
    assert [(look.prefix_bits, look.filter_bits) for look in looks] == [(28, 28), (28, 28)]
    looks = flip.lookups(2**26, filtered={1})
    assert [(look.prefix_bits, look.filter_bits) for look in looks] == [(24, 0), (28, 28)]
    far = design("flip-1", 7)  # so many flips that longer prefixes would be too many look-ups
    assert far.filter_bits(2**24) == {}
    assert far.lookups(2**24, filtered={0}) == far.lookups(2**24)
    for name, radius in [("flip-2", 5), ("flip-2", 7), ("flip-3", 10), ("flip-1", 3)]:
        made = design(name, radius)
        for looks in (made.lookups(2**22, r, made.filter_bits(2**22)) for r in range(1, radius + 1)):
            assert all(x.variant_count <= MAX_VARIANTS for x in looks)


def test_a_damaged_block_is_found_at_once(tmp_path):
    path = tmp_path / "a.fps"
    fpstore.build(path, given(random_rows(5_000, 64, 1), 64), design="flip-2").close()
    table = next(path.glob("gen-*/table-001.fpt"))
    with table.open("r+b") as file:
        file.seek(4096 + 700)
        byte = file.read(1)[0]
        file.seek(4096 + 700)
        file.write(bytes([byte ^ 1]))
    fpstore.open(path).close()
    with pytest.raises(fpstore.CorruptStoreError, match="table-001"):
        fpstore.open(path, prefix_filter=True)


@pytest.mark.parametrize("pages", PAGES)
def test_with_each_way_to_load_pages(tmp_path, pages):
    """And closing gives the filters back."""
    rows = given(random_rows(5_000, 64, 1), 64)
    path = tmp_path / "a.fps"
    with fpstore.build(path, rows, design="manku-10") as plain, fpstore.open(path, pages=pages, prefix_filter=True) as store:
        assert_alike(store.probe_many(rows), plain.probe_many(rows))
        generation = generation_of(store)
        assert generation.filters
        bits = store.design.filter_bits(len(store))
        assert store.stats()["prefix_filters"] == {"tables": len(bits), "memory": sum(2**b // 8 for b in bits.values())}
        assert plain.stats()["prefix_filters"] == {"tables": 0, "memory": 0}
    assert not generation.filters


def test_changes_and_merges(tmp_path):
    path = tmp_path / "a.fps"
    rows = given(random_rows(5_000, 64, 1), 64)
    fpstore.build(path, rows, design="flip-2").close()
    new = rows ^ np.uint64(1 << 40)
    with (
        fpstore.open(path, "r+", prefix_filter=True) as writer,
        fpstore.open(path, prefix_filter=True) as reader,
        fpstore.open(path) as plain,
    ):
        writer.insert(new[:100], np.arange(100) + 10**6)
        for store in (writer, reader):
            assert_alike(store.probe_many(new), plain.probe_many(new))
        writer.merge()
        for store in (writer, reader):
            assert_alike(store.probe_many(new), plain.probe_many(new))
            assert generation_of(store).filters
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert generation_of(copy).filters
            assert_alike(copy.probe_many(new), plain.probe_many(new))


def test_other_words_are_refused(tmp_path):
    fpstore.build(tmp_path / "a.fps", np.arange(100, dtype=np.uint64)).close()
    with pytest.raises(fpstore.InputError, match="prefix_filter"):
        fpstore.open(tmp_path / "a.fps", prefix_filter="yes")  # type: ignore[arg-type]


def table_of(folder: Path) -> TableReader:
    fpstore.build(folder / "a.fps", given(random_rows(1_000, 64, 1), 64), design="flip-2").close()
    return TableReader(next(folder.glob("a.fps/gen-*/table-000.fpt")))


def test_a_filter_has_the_leading_bits_of_all_entries(tmp_path):
    table = table_of(tmp_path)
    for bits in (6, 7, 10, 20):
        words = np.zeros(2**bits // 64, np.uint64)
        table.kernel.mark_prefixes(words)
        entries = np.concatenate([keys for keys, _ in table.pieces()])
        expected = np.zeros(2**bits, np.uint8)
        expected[(entries >> np.uint64(64 - bits)).astype(np.intp)] = 1
        assert np.array_equal(np.unpackbits(words.view(np.uint8), bitorder="little"), expected)


def test_filters_of_wrong_sizes_are_refused(tmp_path):
    table = table_of(tmp_path)
    prober = _kernel.Prober()
    masks = np.zeros(1, np.uint64)
    for words in (np.zeros(0, np.uint64), np.zeros(3, np.uint64)):
        with pytest.raises(ValueError, match="filter"):
            table.kernel.mark_prefixes(words)
        with pytest.raises(ValueError, match="filter"):
            prober.add(table.kernel, 32, 0, masks, words)
    with pytest.raises(ValueError, match="no more bits"):
        prober.add(table.kernel, 8, 0, masks, np.zeros(8, np.uint64))
    assert prober.probe(masks, 3)[0].tolist() == [0, 0]  # nothing was added


def test_an_interrupt_ends_the_reading(tmp_path):
    table = table_of(tmp_path)
    stop = _kernel.Stop()
    stop.set()
    with pytest.raises(InterruptedError):
        table.kernel.mark_prefixes(np.zeros(1, np.uint64), stop)
