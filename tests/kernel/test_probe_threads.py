"""Probes on several threads, which share out the tables and, where these are few, the queries."""

import numpy as np
import pytest
import tableimage

from fpstore import _kernel
from fpstore.errors import CorruptStoreError

KEYS = tableimage.make_keys("random", 7, 4000)
QUERIES = np.random.default_rng(8).permutation(
    np.concatenate([KEYS ^ np.uint64(1 << 40), KEYS ^ np.uint64(0x10010), KEYS])
)
PREFIX_BITS, FLIPS = 12, 1
TABLES = {"one table": 1, "two tables": 2, "five tables": 5}


def images(count: int, lengths: np.ndarray | None = None, keys: np.ndarray = KEYS) -> list[bytes]:
    """Return tables whose permutations bring other bits to the front."""
    out = []
    for i in range(count):
        permutation = np.roll(np.arange(64, dtype=np.uint8), -PREFIX_BITS * i)
        out.append(
            tableimage.build(keys, permutation=permutation, block_bytes=128, lengths=lengths)
        )
    return out


def prober_of(tables: list[bytes]) -> _kernel.Prober:
    prober = _kernel.Prober()
    for i, image in enumerate(tables):
        prober.add(
            tableimage.open_table(image, f"table {i}"),
            PREFIX_BITS,
            FLIPS,
            tableimage.flip_masks(PREFIX_BITS, FLIPS),
        )
    return prober


@pytest.mark.sampled(10)
@pytest.mark.parametrize("threads", [2, 3, 8, 40])
@pytest.mark.parametrize("count", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("lengths", [None, tableimage.NO_CODE], ids=["huffman", "elias-fano"])
def test_threads_give_what_one_gives(lengths, count, threads):
    prober = prober_of(images(count, lengths))
    expected = prober.probe(QUERIES, 3)
    assert len(expected[1]) > len(QUERIES) / 2
    matches = prober.probe(QUERIES, 3, threads=threads)
    assert all(np.array_equal(a, b) for a, b in zip(matches[:3], expected[:3], strict=True))
    few = prober.probe(QUERIES[:7], 3, threads=threads)
    assert len(few[0]) == 8
    assert few[1].tolist() == expected[1][: expected[0][7]].tolist()


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_a_large_batch_gives_what_small_ones_give(threads):
    """Matches are ordered for 8,192 queries at a time, those of a small batch all at once."""
    keys = tableimage.make_keys("clustered", 9, 4000)
    queries = np.random.default_rng(10).permutation(np.tile(keys, 3))
    assert len(queries) > 8192 + 1000
    prober = prober_of(images(5, keys=keys))
    small = [prober.probe(part, 3) for part in np.array_split(queries, 5)]
    matches = prober.probe(queries, 3, threads=threads)
    assert len(matches[1]) > 5 * len(queries)
    assert (
        matches[0].tolist()
        == np.concatenate([[0], *(np.diff(part[0]) for part in small)]).cumsum().tolist()
    )
    for i in (1, 2):
        assert np.array_equal(matches[i], np.concatenate([part[i] for part in small]))


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_matches_of_a_part_and_of_none_are_ordered(width, threads):
    """Those of 8,192 queries are a part, which threads take one by one.

    A query that is nowhere has none.
    """
    keys = tableimage.make_rows("tied" if width > 64 else "clustered", 11, 3000, width)
    prober = _kernel.Prober()
    prober.add(
        tableimage.open_table(tableimage.build(keys, np.arange(width, dtype=np.uint8), 512)),
        8,
        0,
        np.zeros(1, np.uint64),
    )
    queries = np.full(
        (40_000, *keys.shape[1:]), 0x5A5A5A5A << (32 if width == 32 else 3), np.uint64
    )
    queries[-9000:] = np.random.default_rng(12).permutation(
        np.resize(keys, (9000, *keys.shape[1:]))
    )
    lims, matches, distances = prober.probe(queries, 2, threads=threads)[:3]
    none = prober.probe(queries[:1], 2)[0][1]
    assert none == 0
    assert lims[31_000] == 0
    assert len(matches) >= 9000
    for start in range(31_000, 40_000, 3000):
        part = prober.probe(queries[start : start + 3000], 2)
        rows = slice(lims[start], lims[start + 3000])
        assert np.array_equal(lims[start : start + 3001] - lims[start], part[0])
        assert np.array_equal(matches[rows], part[1])
        assert np.array_equal(distances[rows], part[2])


@pytest.mark.parametrize("count", TABLES.values(), ids=TABLES.keys())
def test_the_most_matches_are_those_of_all_threads_together(count):
    prober = prober_of(images(count))
    matches = len(prober.probe(QUERIES, 3)[1])
    assert prober.probe(QUERIES, 3, matches - 1, threads=2) is None
    assert prober.probe(QUERIES, 3, matches // count - 1, threads=2) is None
    result = prober.probe(QUERIES, 3, matches, threads=2)
    assert result is not None
    assert len(result[1]) == matches


@pytest.mark.parametrize("damaged", [0, 3, 4])
def test_a_fault_is_told_of_its_table(damaged):
    tables = images(5)
    at = 4096 + 128 * 20 + 64
    tables[damaged] = (
        tables[damaged][:at] + bytes([tables[damaged][at] ^ 8]) + tables[damaged][at + 1 :]
    )
    for threads in (1, 2, 5):
        with pytest.raises(CorruptStoreError, match=f"table {damaged}.*block 20"):
            prober_of(tables).probe(QUERIES, 3, threads=threads)


def test_all_threads_end_when_the_call_is_stopped():
    stop = _kernel.Stop()
    stop.set()
    with pytest.raises(InterruptedError):
        prober_of(images(5)).probe(QUERIES, 3, threads=3, stop=stop)


def test_a_thread_that_waits_for_others_meets_signals(count_signals):
    """It is done with its table at once.

    The other one goes through all of its own for each query.
    """
    prober = _kernel.Prober()
    for image, prefix_bits in zip(images(2), (64, 0), strict=True):
        prober.add(tableimage.open_table(image), prefix_bits, 0, np.zeros(1, np.uint64))
    assert count_signals(lambda: prober.probe(np.tile(QUERIES, 8), 3, threads=2)) > 5
