"""Batches are cut, run in threads and put together again; scans are cut into many calls."""

import threading

import brute_force
import numpy as np
import pytest
from speeds import crossed

import fpstore
from fpstore.design.families import design
from fpstore.query import batches as probing

MANY = 3 * probing.PROBE_QUERIES


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "edge", [0, 1, probing.SPLIT_QUERIES, 2 * probing.SPLIT_QUERIES, probing.PROBE_QUERIES, MANY]
)
def test_a_batch_is_cut_evenly_into_few_parts(edge, threads):
    for count in {max(edge + off, 0) for off in (-1, 0, 1)}:
        queries = np.arange(count, dtype=np.uint64)
        parts = probing.split_queries(queries, threads, probing.PROBE_QUERIES)
        assert np.array_equal(np.concatenate([queries[:0], *parts]), queries)
        sizes = [len(part) for part in parts]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        assert max(sizes, default=0) <= probing.PROBE_QUERIES
        assert sizes == [0] or min(sizes) > 0
        if count <= probing.PROBE_QUERIES and (threads == 1 or count < 2 * probing.SPLIT_QUERIES):
            assert len(parts) == 1
        else:
            assert len(parts) % threads == 0
            assert len(parts) < count / probing.PROBE_QUERIES + 1 + threads
            if threads <= count // probing.SPLIT_QUERIES <= probing.PROBE_QUERIES:
                assert len(parts) >= threads


@pytest.mark.parametrize(
    ("name", "width", "count", "log2"),
    [
        ("manku-10", 64, 26, 22),
        ("manku-10", 64, 30, 22),
        ("manku-10", 64, 24, 20),
        ("manku-10", 64, 22, 18),
        ("manku-10", 64, 0, 18),
        ("blocks-6-2", 32, 26, 22),
        ("blocks-6-2", 128, 26, 21),
        ("blocks-6-2", 256, 26, 20),
        ("flip-2", 64, 26, 20),
        ("flip-2", 64, 22, 18),
        ("flip-1", 256, 26, 20),
        ("columns-4", 64, 26, 17),
    ],
)
def test_how_many_queries_a_call_takes(name, width, count, log2):
    made = design(name, 3, width)
    at_once = probing.queries_at_once(made, 1 << count)
    assert at_once == 1 << log2
    calls = probing.run_batch(
        lambda part, threads, stop: (len(part), threads),
        np.zeros(3 << log2, np.uint8),
        1,
        made,
        at_once,
    )
    assert calls == [(1 << log2, 1)] * 3


@pytest.mark.parametrize(("width", "name"), crossed([64, 256], ["manku-4", "flip-2", "flip-1"]))
def test_a_long_call_finds_what_short_ones_find(tmp_path, name, width):
    """It permutes its queries in pieces of 2^16."""
    random = np.random.default_rng(1)
    shape = (3_000,) if width == 64 else (3_000, width // 64)
    stored = random.integers(0, 2**64, shape, np.uint64)
    queries = stored[random.integers(0, 3_000, (1 << 17) + 3)]
    queries.reshape(len(queries), -1)[:, -1] ^= np.uint64(1) << random.integers(
        0, 64, len(queries)
    ).astype(np.uint64)
    with fpstore.build(tmp_path / "a.fps", stored, design=name, width=width) as store:
        long = store.probe_many(queries, threads=1)
        short = [
            store.probe_many(queries[i : i + 5_000], threads=1)
            for i in range(0, len(queries), 5_000)
        ]
    assert len(long.fingerprints) >= len(queries)
    assert np.array_equal(long.fingerprints, np.concatenate([part.fingerprints for part in short]))
    assert np.array_equal(
        np.diff(long.lims), np.concatenate([np.diff(part.lims) for part in short])
    )


def test_parts_run_side_by_side_and_come_back_in_order():
    here, met = threading.get_ident(), threading.Barrier(2, timeout=60)

    def work(part, stop):
        if part < 2:
            met.wait()  # a thread alone would never be met
        assert stop is not None
        assert threading.get_ident() != here
        return part * 10

    assert probing.run(work, [0, 1, 2, 3, 4], 2) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize(("parts", "threads"), [([], 2), ([7], 2), ([7], 1), ([7, 8, 9], 1)])
def test_what_needs_no_thread_runs_in_this_one(parts, threads):
    """The kernel looks for signals only there, and needs no one to stop it."""
    here = threading.get_ident()
    outcome = probing.run(lambda part, stop: (part, stop, threading.get_ident()), parts, threads)
    assert outcome == [(part, None, here) for part in parts]


def test_error_in_one_part_stops_the_running_and_waiting_parts(tmp_path):
    """The other thread is in a call that takes seconds, and 98 more such calls wait."""
    queries = np.zeros(1 << 16, np.uint64)
    begun, called, stopped = threading.Event(), [], []
    with fpstore.build(
        tmp_path / "s", np.arange(1 << 18, dtype=np.uint64), design="flip-2"
    ) as store:
        kernel = store.snapshot().generation.tables[0].for_scans

        def work(part, stop):
            called.append(part)
            if part == 0:
                begun.wait(60)
                raise ZeroDivisionError
            begun.set()
            try:
                kernel.scan(queries, 0, 0, kernel.block_count, stop=stop)
            except BaseException:
                stopped.append(part)
                raise

        with pytest.raises(ZeroDivisionError):
            probing.run(work, list(range(100)), 2)
    assert 2 <= len(called) < 10
    assert set(stopped) == set(called) - {0}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_scan_in_many_calls_is_brute_force(tmp_path, set_limits, threads):
    """The ranges of blocks and of queries end in the middle, at the end, and one past it."""
    rng = np.random.default_rng(2)
    fingerprints = np.unique(
        rng.integers(0, 2**64, 300, np.uint64) & np.uint64(0xFF0F_0000_0000_F0FF)
    )
    with fpstore.build(tmp_path / "s", fingerprints, design="flip-2", block_bytes=128) as store:
        blocks = store.snapshot().generation.tables[0].kernel.block_count
        assert blocks > 4
        for block_count in (1, 3, blocks - 1, blocks, blocks + 1):
            for query_count in (1, 2, 5, 8):
                set_limits(scan_blocks=block_count, scan_queries=query_count)
                for count in (0, 1, 5, 6):
                    queries = np.concatenate(
                        [
                            fingerprints[:count] ^ np.uint64(5),
                            np.full(min(count, 1), 2**64 - 1, np.uint64),
                        ]
                    )
                    matches = store.scan(queries, 9, threads=threads)
                    expected = brute_force.brute_force_many(fingerprints, queries, 9)
                    for column, wanted in zip(
                        (matches.lims, matches.fingerprints, matches.distances),
                        expected,
                        strict=True,
                    ):
                        assert np.array_equal(column, wanted)
                        assert column.dtype == wanted.dtype


def test_every_call_of_a_scan_in_threads_can_be_stopped(tmp_path):
    with fpstore.build(tmp_path / "s", np.arange(100, dtype=np.uint64), design="flip-2") as store:
        table, stops = store.snapshot().generation.tables[0].for_scans, []

        class Watched:
            block_count = table.block_count

            def scan(self, *arguments, stop):
                stops.append(stop)
                return table.scan(*arguments, stop=stop)

        probing.scan_table(Watched(), np.zeros(2 * probing.SCAN_QUERIES, np.uint64), 1, 2)
    assert len(stops) == 2
    assert stops[0] is not None
    assert stops[0] is stops[1]
