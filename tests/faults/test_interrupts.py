"""Ctrl-C in calls of the kernel: signals are met inside them, on sets that make them long."""

from functools import partial

import numpy as np
import pytest
import tableimage
from building import run_python
from speeds import slow

import fpstore
from fpstore import _kernel

IDENTITY = np.arange(64, dtype=np.uint8)
NEWEST = 2**32 - 2
ROWS = 1 << 17
NO_FLIP = np.zeros(1, np.uint64)


@pytest.fixture(scope="module")
def skewed():
    """Fingerprints that share their leading half: a look-up there meets them all."""
    return np.unique(np.random.default_rng(1).integers(0, 2**32, ROWS, dtype=np.uint64))


@pytest.fixture(scope="module")
def store(skewed, tmp_path_factory):
    with fpstore.build(tmp_path_factory.mktemp("skewed") / "s", skewed, design="manku-4") as store:
        yield store


def crowd(seed, count):
    """Return fingerprints without the bits of a delta's first block.

    All are in one bucket of it.
    """
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64) & np.uint64(
        0x7777777777777777
    )


def crowded():
    changes, rows = _kernel.Delta(3, IDENTITY), crowd(1, ROWS)
    zeros = np.zeros(len(rows), np.uint8)
    changes.apply(zeros, rows, np.arange(len(rows), dtype=np.uint64), zeros, 1)
    return changes


@pytest.fixture(scope="module")
def delta():
    return crowded()


def whole_tables(store, times):
    """Return a prober one look-up of which reads the whole identity table, so many times."""
    prober = _kernel.Prober()
    for _ in range(times):
        prober.add(store.snapshot().generation.tables[0].kernel, 0, 0, NO_FLIP)
    return prober


def few_rows(count, queries):
    """Probe a table of so many rows, all of which are near each query, by threads."""
    prober = _kernel.Prober()
    prober.add(
        tableimage.open_table(tableimage.build(np.arange(count, dtype=np.uint64), block_bytes=512)),
        0,
        0,
        NO_FLIP,
    )
    return prober.probe(queries, 64, threads=2, order="asked")


def joining(make, flips, bits, rows):
    """Return a function that finds pairs or links of rows in one bucket, or in a few far ones."""
    starts, tags, mask = (
        np.empty((1 << bits) + 1, np.uint64),
        np.empty(len(rows) + _kernel.TAG_ROOM, np.uint16),
        np.zeros(1, np.uint64),
    )
    _kernel.index_rows(rows, bits, starts, tags)
    buckets = (0, 1 << bits) if make is _kernel.PairJoin else ()
    rules = _kernel.JoinRules(IDENTITY, mask, mask, [flips], [flips + 1], 16, 0)
    more = make(rows.copy(), starts, tags, rules, *buckets).more
    return lambda: more(1 << 18)


def long_calls(store, skewed, delta):
    """Return what prepares each call."""
    rng, table = np.random.default_rng(2), store and store.snapshot().generation.tables[0].kernel

    def nothing():
        return rng.integers(2**63, 2**64, 4000, dtype=np.uint64)

    def rows():
        return np.unique(rng.integers(0, 2**64, ROWS, dtype=np.uint64))

    def many():
        return np.tile(crowd(1, ROWS), 20)

    def sort(call):
        rows = rng.integers(0, 2**64, 1 << 22, dtype=np.uint64)
        return lambda: call(rows, np.empty_like(rows))

    return {
        "probe one": lambda: partial(whole_tables(store, 300).probe, nothing()[:1], 3),
        "probe": lambda: partial(whole_tables(store, 300).probe, nothing()[:3], 3),
        "probe sorted": lambda: partial(
            whole_tables(store, 300).probe, nothing()[:3], 3, order="sorted"
        ),
        "scan": lambda: partial(table.scan, nothing(), 3, 0, table.block_count),
        "locate": lambda: partial(table.locate, np.tile(skewed, 20)),
        "matches in order": lambda: partial(
            whole_tables(store, 1).probe, np.zeros(20, np.uint64), 64
        ),
        "matches in order by threads": lambda: lambda: few_rows(16, np.zeros(1 << 18, np.uint64)),
        "delta probe": lambda: partial(delta.probe, crowd(2, 4000), 3, NEWEST),
        "delta scan": lambda: partial(delta.scan, crowd(2, 4000), 3, NEWEST),
        "delta states": lambda: partial(delta.states, many(), NEWEST),
        "delta pairs": lambda: partial(delta.pair_states, many(), many(), NEWEST),
        "delta find": lambda: partial(delta.find, many(), NEWEST),
        "delta ids": lambda: partial(
            delta.ids, many(), np.zeros(20 * ROWS + 1, np.int64), NO_FLIP, NEWEST
        ),
        "delta export": lambda: partial(delta.export, NEWEST),
        "pairs of one bucket": lambda: joining(_kernel.PairJoin, 0, 0, rows()),
        "pairs of few rows in many buckets": lambda: joining(
            _kernel.PairJoin, 9, 18, rows()[::300].copy()
        ),
        "links of one bucket": lambda: joining(_kernel.Linking, 0, 0, rows()),
        "links of few rows in many buckets": lambda: joining(
            _kernel.Linking, 9, 18, rows()[::300].copy()
        ),
        "sort_keys": lambda: sort(lambda rows, spare: _kernel.sort_keys(rows, spare, 64)),
        "sort_pairs": lambda: sort(_kernel.sort_pairs),
        "permute_sort": lambda: sort(
            lambda rows, spare: _kernel.permute_sort(
                np.sort(rows), IDENTITY[::-1].copy(), rows, spare, 30
            )
        ),
        "group_numbered": lambda: sort(
            lambda rows, spare: _kernel.group_numbered(
                np.repeat(np.arange(1 << 21, dtype=np.uint64), 2), rows, spare
            )
        ),
        "members of sets": lambda: partial(
            _kernel.documents_in_sets,
            rng.integers(0, 1 << 22, 1 << 22, np.uint32),
            rng.permutation(1 << 22).astype(np.uint32),
        ),
        "names of sets": lambda: _kernel.Sets(1 << 25).names,
    }


QUICK = (
    "probe one",
    "scan",
    "matches in order by threads",
    "delta probe",
    "delta ids",
    "links of one bucket",
)
QUICK += ("pairs of few rows in many buckets", "permute_sort", "members of sets")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "name", [name if name in QUICK else slow(name) for name in long_calls(None, None, None)]
)
def test_signals_are_met_inside_a_call(store, skewed, delta, count_signals, name):
    """A call that looks for none meets at most one before it begins and one when it is over."""
    call = long_calls(store, skewed, delta)[name]()
    assert count_signals(call) > (2 if name.startswith("delta") else 5)


def test_signals_are_met_while_rows_are_grouped(count_signals):
    """All rows are one set, and each is a group of its own."""
    rows = np.unique(np.random.default_rng(1).integers(0, 2**64, 1 << 14, dtype=np.uint64))
    sets = np.array([0, len(rows)], np.uint64)
    assert count_signals(lambda: _kernel.group_greedily(rows, sets, 0)) > 5
    stop = _kernel.Stop()
    stop.set()
    with pytest.raises(InterruptedError):
        _kernel.group_greedily(rows, sets, 0, stop=stop)


def test_signals_are_met_while_texts_are_compared(count_signals):
    """Calibration compared a million pairs of long texts in one call.

    Control-C ended it after that.
    """
    sets = _kernel.FeatureSets(
        np.tile(np.arange(1 << 14, dtype=np.uint32), 2), np.array([0, 1 << 14, 1 << 15], np.uint64)
    )
    pairs = np.zeros(1 << 13, np.uint64)
    assert count_signals(lambda: sets.shared(pairs, pairs + np.uint64(1))) > 5
    assert count_signals(lambda: sets.contain(pairs, pairs + np.uint64(1), 0.5)) > 5
    # each is looked up in an index of eight that share nothing with it
    numbers = np.arange(1 << 14, dtype=np.uint32).reshape(-1, 1 << 11)
    apart = np.concatenate([numbers, np.tile(1 << 20 | numbers[0], (1 << 12, 1))])
    sets = _kernel.FeatureSets(
        apart.reshape(-1), np.arange(0, apart.size + 1, 1 << 11, dtype=np.uint64)
    )
    rows = np.arange(len(apart), dtype=np.uint64)
    lims, none = np.array([0, len(rows)], np.uint64), np.empty(0, np.uint8)
    groups = (rows, lims, rows, none, 0.8, 0.7)
    assert count_signals(lambda: sets.decide(*groups)) > 5
    stop = _kernel.Stop()
    stop.set()
    with pytest.raises(InterruptedError):
        sets.decide(*groups, stop=stop)


INTERRUPTED = """
    import os, signal, sys, threading
    import numpy as np
    import fpstore
    from fpstore import _kernel

    skewed = np.random.default_rng(1).integers(0, 2**32, 1 << 17, dtype=np.uint64)
    store = fpstore.build(sys.argv[1], skewed, design="manku-4")
    table = store.snapshot().generation.tables[0].kernel
    # Each look-up reads the whole table: one probe has 20,000 of them, which takes minutes.
    prober = _kernel.Prober()
    for _ in range(20_000):
        prober.add(table, 0, 0, np.zeros(1, np.uint64))
    store.snapshot().generation._probers[3] = prober
    queries = np.arange(2**63, 2**63 + 1024, dtype=np.uint64)
    many = np.arange(2**63, 2**63 + 2_000_000, dtype=np.uint64)
    works = {
        "single": lambda: store.probe(2**63),
        "few": lambda: store.probe_many(queries[:2], threads=1),
        "small": lambda: store.probe_many(queries, threads=1),
        "threads": lambda: store.probe_many(queries, threads=2),
        "scan": lambda: store.scan(many, 3, threads=1),
        "scan in threads": lambda: store.scan(many, 3, threads=2),
    }
    # This thread gives up the GIL only inside the kernel, and there the other sends the signal.
    sys.setswitchinterval(100)
    begin = threading.Event()

    def interrupt():
        begin.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        begin.set()
        works[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted", prober.blocks < 20_000 * table.block_count // 2)
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "what", ["single", slow("few"), slow("small"), slow("threads"), slow("scan"), "scan in threads"]
)
def test_control_c_ends_a_call_on_a_skewed_set(tmp_path, what):
    """Long before it is done: whoever waits for the end of these calls waits for minutes."""
    assert run_python(INTERRUPTED, tmp_path / "s", what) == (0, "interrupted True\n", "")


def test_a_close_that_is_interrupted_gives_the_lock_back(tmp_path):
    """The next close met what the first had released already, and the store stayed locked."""
    fpstore.build(tmp_path / "s", np.arange(100, dtype=np.uint64)).close()
    store = fpstore.open(tmp_path / "s", "r+")
    store.insert([2**63], [1000])
    mapped = store._writer.committer.log._mapped

    class Interrupted:
        def close(self):
            if not mapped.closed:
                mapped.close()
                raise KeyboardInterrupt

    store._writer.committer.log._mapped = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()
    with fpstore.open(tmp_path / "s", "r+") as again:
        assert len(again) == 101


def test_control_c_in_a_merge_is_not_an_error_of_the_merge(tmp_path):
    fpstore.build(tmp_path / "s", np.arange(100, dtype=np.uint64)).close()

    def interrupt(*_):
        raise KeyboardInterrupt

    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([2**63], [1000])
        with pytest.raises(KeyboardInterrupt):
            store.merge(progress=interrupt)
        assert store.stats()["merge_error"] is None
        assert len(store) == 101
