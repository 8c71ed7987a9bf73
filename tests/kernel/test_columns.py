"""Column tables against brute force.

Probes, scans and look-ups of every kind of set, in every instruction set.
"""

import column_sets
import numpy as np
import pytest
from column_sets import (
    KINDS,
    Built,
    brute,
    even_thresholds,
    kernel_rows,
    make_queries,
    make_set,
    matches,
    random_thresholds,
    verify,
)
from speeds import crossed, slow

from fpstore import _kernel
from fpstore.errors import CorruptStoreError

ISAS = _kernel.available_isas()
# (width, tables, bits of a bucket): blocks that are longer than bucket and tag, and such that are
# shorter than a tag.
DESIGNS = [
    (32, 2, 16),
    (32, 4, 8),
    (32, 1, 19),
    (32, 2, 13),
    (64, 4, 16),
    (64, 5, 12),
    (64, 7, 9),
    (64, 3, 19),
    (64, 8, 8),
    (64, 1, 10),
    (128, 8, 16),
    (128, 4, 16),
    (128, 7, 18),
    (128, 16, 8),
    (128, 1, 12),
    (256, 16, 16),
    (256, 8, 14),
    (256, 32, 8),
    (256, 2, 19),
]


def radii(width, tables, bucket_bits):
    """Radii up to where a few tables have to flip some bits each."""
    most = {8: 4, 9: 4, 10: 3}.get(bucket_bits, 2)
    return sorted({0, 1, tables - 1, tables, 2 * tables + 1, min(most * tables, width // 4)})


@pytest.mark.parametrize(
    ("isa", "design", "kind", "count"),
    crossed(ISAS, DESIGNS, KINDS, [0, 1, 2, 5, 300, 3000], share=37),
    indirect=["isa"],
)
def test_probes_find_what_brute_force_finds(tmp_path, isa, design, kind, count):
    width, tables, bucket_bits = design
    rng = np.random.default_rng([width, tables, bucket_bits, count, KINDS.index(kind)])
    words = make_set(kind, width, count, rng)
    built = Built(tmp_path, words, width, tables, bucket_bits, rng)
    for radius in radii(*design):
        queries = make_queries(words, width, 70, radius, rng)
        right = brute(words, queries, radius)
        even = built.probe(kernel_rows(queries), radius, even_thresholds(radius, tables))
        assert matches(even) == right
        chosen = random_thresholds(radius, tables, rng)
        if max(chosen) <= 3:
            assert matches(built.probe(kernel_rows(queries), radius, chosen)) == right
        assert matches(built.probe(kernel_rows(queries), radius)) == right
        for i in range(3):
            assert matches(
                built.probe(kernel_rows(queries[i : i + 1]), radius, None if i % 2 else chosen)
            ) == [right[i]]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "count"), crossed([32, 64, 128, 256], [1023, 1024, 3000]))
def test_many_queries_are_answered_in_their_own_order(tmp_path, width, count):
    """They are asked in the order of the buckets of each table, in which some are equal."""
    rng = np.random.default_rng(width)
    words = make_set("clustered", width, 2000, rng)
    built = Built(tmp_path, words, width, 4, 8, rng)
    queries = rng.permutation(make_queries(words, width, count, 4, rng))
    queries[count // 2 :] = queries[: count - count // 2]
    for thresholds in (even_thresholds(4, 4), None):
        rows = matches(built.probe(kernel_rows(queries), 4, thresholds))
        assert rows == brute(words, queries, 4)
        assert sum(map(bool, rows)) > count // 4


@pytest.mark.parametrize(
    ("width", "chosen"), [(64, True), slow(32, False), slow(256, False), slow(256, True)]
)
def test_more_queries_than_go_through_a_table_at_once(tmp_path, width, chosen):
    rng = np.random.default_rng(width)
    words = make_set("clustered", width, 500, rng)
    built = Built(tmp_path, words, width, 4, 8, rng)
    queries = make_queries(words, width, 1000, 2, rng)
    count = (1 << 20) + 1500
    thresholds = None if chosen else even_thresholds(2, 4)
    lims, rows, distances, _ = built.probe(kernel_rows(queries), 2, thresholds)
    result = built.probe(kernel_rows(np.resize(queries, (count, queries.shape[1]))), 2, thresholds)
    sizes = np.resize(np.diff(lims), count)
    assert np.array_equal(np.diff(result[0]), sizes)
    assert np.array_equal(result[1], np.resize(rows, (len(result[1]), *rows.shape[1:])))
    assert np.array_equal(result[2], np.resize(distances, len(result[2])))


@pytest.mark.parametrize(("width", "tables"), [(32, 2), (64, 8), (64, 1), (128, 1), (256, 32)])
def test_every_radius_up_to_the_width(tmp_path, width, tables):
    rng = np.random.default_rng(3)
    words = make_set("uniform", width, 40, rng)
    built = Built(tmp_path, words, width, tables, 8, rng)
    queries = make_queries(words, width, 3, 3, rng)
    # as far as can be
    queries[0] = ~words[0] if width > 32 else (~words[0] & np.uint64(0xFFFFFFFF00000000))
    for radius in [*range(0, width, 11), width - 1, width, width + 5]:
        right = brute(words, queries, radius)
        assert (
            matches(built.probe(kernel_rows(queries), radius, even_thresholds(radius, tables)))
            == right
        )
        assert matches(built.probe(kernel_rows(queries), radius)) == right


@pytest.mark.sampled(7)
@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_scans_locating_and_decoding(tmp_path, isa, width):
    rng = np.random.default_rng(width)
    for count in (0, 1, 127, 128, 129, 2000):
        words = make_set("clustered", width, count, rng)
        folder = tmp_path / str(count)
        folder.mkdir()
        built = Built(folder, words, width, 1, 13, rng)
        readers = [built.rows] if built.rows else built.readers
        for reader in readers:
            table = reader.kernel
            queries = make_queries(words, width, 40, 6, rng)
            assert matches(table.scan(kernel_rows(queries), 6, 0, table.block_count)) == brute(
                words, queries, 6
            )
            blocks, ranks = table.locate(kernel_rows(np.concatenate([words, queries])))
            entries, counts, end = table.decode(0, table.block_count, 128 * table.block_count)
            assert (counts.sum(), end) == (len(words), table.block_count)
            if not built.rows:
                permutation = np.frombuffer(table.permutation, np.uint8)
                whole = np.concatenate([permutation, np.arange(width, 64, dtype=np.uint8)])
                entries = _kernel.permute(entries, whole, True)
            entries = entries.reshape(words.shape)
            part = table.block_count // 3
            rest = entries[part * 128 :]
            assert matches(table.scan(kernel_rows(queries), 6, part, table.block_count)) == brute(
                rest, queries, 6
            )
            assert (entries[(blocks * 128 + ranks)[: len(words)].astype(np.int64)] == words).all()
            known = {tuple(row) for row in words.tolist()}
            for query, block in zip(queries.tolist(), blocks[len(words) :].tolist(), strict=True):
                assert (block != 2**64 - 1) == (tuple(query) in known)
            verify(reader)
        if built.rows:
            for reader in built.readers:
                verify(reader, built.rows)
                verify(reader)


@pytest.mark.parametrize("width", [64, 128, 256])
def test_blocks_of_entries(tmp_path, width):
    rng = np.random.default_rng(width)
    words = make_set("uniform", width, 1000, rng)
    digest = _kernel.digest(kernel_rows(words))
    if width == 64:
        layout = column_sets.ColumnLayout(
            column_sets.KIND_COPIES, 64, len(words), digest, bytes(range(64))
        )
    else:
        layout = column_sets.rows_layout(width, len(words), digest)
    reader = column_sets.ColumnTable(column_sets.write(tmp_path / "t", layout, kernel_rows(words)))
    table = reader.kernel
    number = np.arange(len(words))
    blocks, ranks = table.locate(kernel_rows(words))
    assert (blocks == number // 128).all()
    assert (ranks == number % 128).all()
    assert table.block_count == 8
    last = np.minimum(np.arange(1, 9) * 128, len(words)) - 1
    assert (table.keys_of(np.arange(8, dtype=np.uint64)) == kernel_rows(words)[last]).all()
    assert (reader.block_keys == kernel_rows(words)[last]).all()
    assert (reader.sample_keys(3) == kernel_rows(words)[last[::3]]).all()
    assert (reader.sample_keys(70) == kernel_rows(words)[last[:1]]).all()
    places = rng.integers(0, len(words), 50)
    result = table.entries_at(
        (places // 128).astype(np.uint64), (places % 128).astype(np.uint32), "ids"
    )
    assert (result == kernel_rows(words)[places]).all()
    for block in range(8):
        entries, counts, end = table.decode(block, 8, 200)
        assert (entries == kernel_rows(words)[128 * block :][:128]).all()
        assert (counts.tolist(), end) == ([len(entries)], block + 1)
    assert (reader.decode(5, len(words)) == kernel_rows(words)[5:]).all()
    with pytest.raises(IndexError):
        table.decode(0, 9, 1)
    with pytest.raises(IndexError):
        table.keys_of(np.array([8], np.uint64))
    for block, rank in ((8, 0), (7, 104), (0, 128)):
        with pytest.raises(CorruptStoreError, match="ids"):
            table.entries_at(np.array([block], np.uint64), np.array([rank], np.uint32), "ids")


def test_balanced_thresholds_meet_fewer_entries(tmp_path):
    rng = np.random.default_rng(6)
    words = make_set("uniform", 64, 50_000, rng)
    words[:, 0] &= np.uint64(2**64 - 1 - (0xFFF << 48))  # the first block says little
    words = np.unique(words, axis=0)
    built = Built.__new__(Built)
    column_sets.Built.__init__(built, tmp_path, words, 64, 4, 14, _Unshuffled())
    queries = kernel_rows(make_queries(words, 64, 50, 6, rng))
    even, chosen = (
        built.probe(queries, 6, thresholds) for thresholds in (even_thresholds(6, 4), None)
    )
    assert (even[1] == chosen[1]).all()
    assert chosen[3][1] < even[3][1] / 2


class _Unshuffled:
    """Deals bits in their order."""

    def permutation(self, n):
        return np.arange(n)


def test_a_limit_of_matches(tmp_path):
    rng = np.random.default_rng(8)
    words = make_set("clustered", 128, 500, rng)
    built = Built(tmp_path, words, 128, 4, 9, rng)
    queries = kernel_rows(words[:20])
    count = len(built.probe(queries, 8, [2, 2, 1, 0])[2])
    assert count > 20
    assert built.probe(queries, 8, [2, 2, 1, 0], most=count - 1) is None
    assert len(built.probe(queries, 8, [2, 2, 1, 0], most=count)[2]) == count


def test_a_stop_ends_a_probe_and_a_scan(tmp_path):
    rng = np.random.default_rng(9)
    words = make_set("uniform", 128, 5000, rng)
    built = Built(tmp_path, words, 128, 4, 9, rng)
    stop = _kernel.Stop()
    stop.set()
    for work in (
        lambda: built.probe(words, 8, [2, 2, 1, 0], stop=stop),
        lambda: built.rows.kernel.scan(words, 3, 0, 40, stop=stop),
    ):
        with pytest.raises(InterruptedError):
            work()
