"""The in-memory delta under threads, without memory and with arguments out of bounds."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from deltamodel import ADD, IDENTITY, NEWEST, REMOVE, WIPE, Pair, lists, octets, words

from fpstore import _kernel


def test_a_version_reads_the_same_while_changes_are_applied():
    pair = Pair(3, 3, fingerprints=3000)
    pair.apply(2000)
    pair.apply(2000)
    delta, fixed = pair.delta, (pair.version - 1, pair.version)
    queries, fps = words(pair.queries(300)), words(pair.pool)
    base_ids = np.zeros(len(fps) + 1, np.int64)
    ones = queries[:20].tolist()

    def read(version: int) -> list:
        matches = delta.probe(queries, 3, version)
        columns = [
            *matches,
            *delta.scan(queries, 9, version),
            *delta.combine(matches, matches, version),
            delta.states(fps, version),
        ]
        columns += [
            *delta.ids(fps, base_ids, words([]), version),
            delta.pair_states(fps, fps % np.uint64(5), version),
        ]
        columns += [*delta.find(words(pair.ids), version), *delta.export(version)]
        return [
            *(c.tolist() for c in columns),
            *([delta.probe_one(q, 3, version), delta.state(q, version)] for q in ones),
        ]

    expected = [read(version) for version in fixed]
    stop, rounds, wrong, waiting = threading.Event(), [0] * 3, [], threading.Barrier(4)

    def look(place: int) -> None:
        waiting.wait()
        while not stop.is_set():
            wrong.extend(v for v, before in zip(fixed, expected, strict=True) if read(v) != before)
            rounds[place] += 1

    threads = [threading.Thread(target=look, args=(place,), daemon=True) for place in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait()
    until = time.monotonic() + 60
    try:
        while min(rounds) < 3 and time.monotonic() < until:
            pair.apply(500)
            more = words(pair.rng.getrandbits(64) for _ in range(500))
            none = np.zeros(500, np.uint8)
            delta.probe_insert(more, more, none, none, 3, False, pair.version)
    finally:
        stop.set()
    for thread in threads:
        thread.join(60)
    assert min(rounds) >= 3  # neither side keeps the other out
    assert wrong == []
    assert read(NEWEST) != expected[1]


EXHAUSTED = """
import resource, sys
import numpy as np
from fpstore import _kernel

rng, one = np.random.default_rng(4), np.ones(3000, np.uint8)
delta = _kernel.Delta(3, np.arange(64, dtype=np.uint8))
mine, call = rng.integers(0, 2**64, 3000, np.uint64), sys.argv[1]
queries, ids = mine[:200] ^ np.uint64(3), rng.integers(0, 500, 3000, np.uint64)
delta.apply(0 * one, mine, ids, 0 * one, 1)
delta.apply(0 * one, mine[:600].repeat(5), np.tile(ids[:5], 600), 0 * one, 2)
delta.apply(one[:900] * 2, mine[900:1800], ids[:900], 0 * one[:900], 3)
based = rng.integers(0, 2**64, 3000, np.uint64)
delta.apply(one, based, ids, one, 4)

def state():
    at = 2**32 - 1
    parts = [*delta.export(at), *delta.probe(queries, 3, at), *delta.find(ids[:40], at)]
    parts += delta.scan(queries[:9], 9, at)
    for fps, of_fps in ((mine, ids), (mine[:600].repeat(5), np.tile(ids[:5], 600))):
        parts.append(delta.pair_states(fps, of_fps, at))
    return [part.tolist() for part in parts] + [delta.removals, delta.operations]

before = state()
n = 25_600 if call == "match" else 600_000
kinds, fps = rng.integers(0, 3, n, np.uint8), rng.integers(0, 2**64, n, np.uint64)
fps[:3000], fps[3000:6000] = mine, based
fps[6000:9000] = mine[:300].repeat(10)
if call == "match":  # the results are larger than what is put in
    fps = (mine[0] ^ np.uint64(1) << np.arange(64, dtype=np.uint64)).repeat(n // 64)
in_base, none, some = np.zeros(n, np.uint8), np.zeros(n, np.uint8), np.arange(n, dtype=np.uint64)
if call != "match":
    in_base[3000:6000] = 1


def change(delta):
    if call == "apply":
        return delta.apply(kinds, fps, some, in_base, 5)
    return delta.probe_insert(fps, some, none, in_base, 3, True, 5)


used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for room in range(0, 2048, int(sys.argv[2])):
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), hard))
    try:
        change(delta)
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        assert state() == before, room
    else:
        break
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
assert room > 3 * int(sys.argv[2])
fresh = _kernel.Delta(3, np.arange(64, dtype=np.uint8))
fresh.apply(0 * one, mine, ids, 0 * one, 1)
fresh.apply(0 * one, mine[:600].repeat(5), np.tile(ids[:5], 600), 0 * one, 2)
fresh.apply(one[:900] * 2, mine[900:1800], ids[:900], 0 * one[:900], 3)
fresh.apply(one, based, ids, one, 4)
change(fresh)
after, delta = state(), fresh
assert after == state()
print("kept")
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "step"),
    [
        ("apply", 17),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("insert", 17), ("match", 9))),
    ],
)
def test_changes_that_find_no_memory_are_taken_back(call, step):
    command = [sys.executable, "-P", "-c", EXHAUSTED, call, str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


def test_a_base_that_changes_is_refused_and_nothing_is_taken():
    delta = _kernel.Delta(2, IDENTITY)
    with pytest.raises(ValueError, match="in_base"):
        delta.apply(
            octets([ADD, ADD, WIPE, ADD]),
            words([4, 5, 6, 5]),
            words([1, 1, 1, 2]),
            octets([0, 0, 1, 1]),
            3,
        )
    assert delta.operations == delta.removals == 0
    assert delta.states(words([4, 5, 6]), NEWEST).tolist() == [0, 0, 0]
    assert lists(*delta.probe(words([4]), 2, NEWEST)) == [[]]
    assert [len(column) for column in delta.export(NEWEST)] == [0, 0, 1, 0]
    delta.apply(octets([ADD]), words([4]), words([1]), octets([0]), 0)
    assert delta.probe_one(5, 2, 0) == [(4, 1)]


def test_changes_of_one_version_count_in_their_order():
    delta = _kernel.Delta(0, IDENTITY)
    kinds = octets([ADD, ADD, WIPE, ADD, REMOVE, ADD, WIPE, ADD])
    delta.apply(kinds, words([9] * 8), words([1, 2, 0, 2, 2, 3, 3, 4]), octets([1] * 8), 5)
    assert delta.ids_one(9, [1, 7], 5) == [4]
    assert delta.ids_one(9, [1, 7], 4) == [1, 7]
    assert delta.pair_states(words([9] * 6), words([1, 2, 3, 4, 7, 8]), 5).tolist() == [
        2,
        2,
        2,
        1,
        2,
        2,
    ]
    delta.apply(octets([REMOVE]), words([9]), words([4]), octets([1]), 5)
    assert delta.ids_one(9, [1, 7], 5) == []
    assert (delta.state(9, 5), delta.state(9, 4)) == (1, 0)
    assert delta.removals == 1


@pytest.mark.parametrize("radius", [65, 2**31])
def test_a_radius_above_64_is_refused(radius):
    with pytest.raises(ValueError, match="radius"):
        _kernel.Delta(radius, IDENTITY)


@pytest.mark.parametrize(
    "bits", [IDENTITY[:63], np.append(IDENTITY, 64), IDENTITY % 63, IDENTITY + 1]
)
def test_bits_that_are_no_permutation_are_refused(bits):
    with pytest.raises(ValueError, match="bits"):
        _kernel.Delta(3, bits.astype(np.uint8))


def test_arguments_out_of_bounds_are_refused():
    delta = _kernel.Delta(3, IDENTITY)
    fps, none = words([1, 2]), octets([0, 0])
    empty = (np.zeros(1, np.int64), words([]), octets([]))
    delta.apply(none, fps, fps, none, 7)
    refused = {
        "kinds": [lambda: delta.apply(octets([0, 3]), fps, fps, none, 7)],
        "version": [
            lambda: delta.apply(none, fps, fps, none, 6),
            lambda: delta.apply(none[:0], fps[:0], fps[:0], none[:0], 6),
            lambda: delta.probe_insert(fps, fps, none, none, 3, True, 6),
        ],
        "matched": [lambda: delta.probe_insert(fps, fps, octets([0, 3]), none, 3, True, 7)],
        "radius": [
            lambda: delta.probe(fps, 65, 7),
            lambda: delta.probe_one(1, 65, 7),
            lambda: delta.scan(fps, 65, 7),
            lambda: delta.nearest(fps, 65, 1, 7),
            lambda: delta.probe_insert(fps, fps, none, none, 65, True, 7),
        ],
        "columns": [
            *(
                lambda columns=columns: delta.apply(*columns, 7)
                for columns in (
                    (none[:1], fps, fps, none),
                    (none, fps[:1], fps, none),
                    (none, fps, fps[:1], none),
                    (none, fps, fps, none[:1]),
                )
            ),
            lambda: delta.pair_states(fps, fps[:1], 7),
            lambda: delta.probe_insert(fps, fps[:1], none, none, 3, True, 7),
            lambda: delta.probe_insert(fps, fps, none[:1], none, 3, True, 7),
            lambda: delta.probe_insert(fps, fps, none, none[:1], 3, True, 7),
        ],
        "lims": [
            *(
                lambda lims=lims: delta.ids(fps, np.array(lims, np.int64), fps, 7)
                for lims in ([0, 1], [1, 1, 2], [0, 2, 1], [0, 1, 3], [0, 0, -1], [])
            ),
            lambda: delta.combine((np.array([0, 1]), words([1]), octets([])), empty, 7),
            lambda: delta.combine(
                (np.array([0, 1]), words([]), octets([1])), (np.array([0, 0]), *empty[1:]), 7
            ),
            lambda: delta.combine(
                (np.array([0, 0]), *empty[1:]), (np.array([0, 1]), words([1]), octets([])), 7
            ),
            lambda: delta.combine((np.array([0, 0]), *empty[1:]), empty, 7),
        ],
    }
    for message, calls in refused.items():
        for call in calls:
            with pytest.raises(ValueError, match=message):
                call()
    for call in (
        lambda: delta.probe(fps.astype(np.int64), 3, 7),
        lambda: delta.probe(fps, 3, -1),
        lambda: delta.probe(fps, 3, 2**32),
        lambda: delta.state(2**64, 7),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="rows of another width"):
        delta.states(np.zeros((2, 2), np.uint64), 7)
    assert delta.operations == 2
    assert delta.export(7)[0].tolist() == [1, 2]


def test_an_empty_delta_says_nothing():
    delta = _kernel.Delta(3, IDENTITY)
    for version in (0, NEWEST):
        assert (
            lists(*delta.probe(words([1, 2]), 3, version))
            == lists(*delta.scan(words([1, 2]), 64, version))
            == [[], []]
        )
        assert (
            delta.states(words([1]), version).tolist()
            == delta.pair_states(words([1]), words([1]), version).tolist()
            == [0]
        )
        assert delta.ids_one(1, [4, 5], version) == [4, 5]
        assert [len(column) for column in delta.find(words([1]), version)] == [0, 0]
        assert [len(column) for column in delta.probe(words([]), 3, version)] == [1, 0, 0]
    assert (delta.entries, delta.operations, delta.removals) == (0, 0, 0)
    before = delta.memory_bytes
    delta.apply(octets([ADD]), words([1]), words([1]), octets([0]), 0)
    assert before < delta.memory_bytes < 4 << 20


def test_a_change_takes_at_most_100_bytes():
    n = 1 << 20
    fps = np.random.default_rng(20).integers(0, 1 << 64, n, dtype=np.uint64)
    ids, none = np.arange(n, dtype=np.uint64), np.zeros(n, np.uint8)
    delta = _kernel.Delta(3, IDENTITY)
    delta.apply(none, fps, ids, none, 1)
    assert delta.memory_bytes <= 100 * n
    part = fps[:: n // 16].copy()
    assert lists(*delta.probe(part, 0, 1)) == [[(fingerprint, 0)] for fingerprint in part.tolist()]


def test_ids_are_found_from_the_first_look_up_on():
    delta = _kernel.Delta(0, IDENTITY)
    delta.apply(octets([ADD] * 3), words([1, 2, 3]), words([7, 7, 8]), octets([0] * 3), 1)
    before = delta.memory_bytes
    assert [column.tolist() for column in delta.find(words([7]), 1)] == [[1, 2], [7, 7]]
    assert delta.memory_bytes > before  # the index of ids
    with pytest.raises(ValueError, match="in_base"):  # what was made is taken back
        delta.apply(octets([ADD, ADD]), words([4, 1]), words([7, 7]), octets([0, 1]), 2)
    delta.apply(octets([ADD, REMOVE]), words([5, 1]), words([7, 7]), octets([0, 0]), 2)
    assert [column.tolist() for column in delta.find(words([7, 8]), 2)] == [[2, 3, 5], [7, 8, 7]]
    assert [column.tolist() for column in delta.find(words([7]), 1)] == [[1, 2], [7, 7]]
