"""The in-memory delta against a slow model: presence, ids and probes as of every version, on every instruction set."""

import random
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from fpstore import _kernel

ISAS = _kernel.available_isas()
IDENTITY = np.arange(64, dtype=np.uint8)
SHUFFLED = np.random.default_rng(6).permutation(64).astype(np.uint8)
ADD, REMOVE, REMOVE_LAST, WIPE = range(4)
NEWEST = 2**32 - 1


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = _kernel.isa()
    _kernel.select_isa(request.param)
    yield request.param
    _kernel.select_isa(before)


def words(values) -> np.ndarray:
    return np.array(list(values), np.uint64)


def octets(values) -> np.ndarray:
    return np.array(list(values), np.uint8)


def lists(lims: np.ndarray, *columns: np.ndarray) -> list[list]:
    rows = list(zip(*(c.tolist() for c in columns), strict=True)) if len(columns) > 1 else columns[0].tolist()
    return [rows[a:b] for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]


class Model:
    """The content as plain sets, a copy of it for every version."""

    def __init__(self, base: dict[int, set[int]]) -> None:
        self.base = base
        self.content = {fp: set(ids) for fp, ids in base.items()}
        self.said: dict[tuple[int, int], bool] = {}
        self.touched: dict[int, bool] = {}  # whether it was ever absent
        self.versions: list[tuple] = []
        self.save(0)

    def save(self, version: int) -> None:
        content = {fp: frozenset(ids) for fp, ids in self.content.items()}
        self.versions.append((version, content, dict(self.said), dict(self.touched)))

    def at(self, version: int) -> tuple:
        return [v for v in self.versions if v[0] <= version][-1][1:]

    def change(self, kind: int, fp: int, item: int) -> None:
        ids = self.content.setdefault(fp, set())
        self.touched.setdefault(fp, False)
        if kind == ADD:
            ids.add(item)
            self.said[fp, item] = True
        elif kind == REMOVE:
            ids.discard(item)
            self.said[fp, item] = False
        else:
            ids.clear()
            self.touched[fp] = True
            for pair in [pair for pair in self.said if pair[0] == fp]:
                self.said[pair] = False
        if not ids:
            del self.content[fp]

    def pair(self, version: int, fp: int, item: int) -> int:
        _, said, touched = self.at(version)
        if (fp, item) in said:
            return 1 if said[fp, item] else 2
        return 2 if touched.get(fp) else 0

    def state(self, version: int, fp: int) -> int:
        content, _, touched = self.at(version)
        return 0 if fp not in touched else 1 if fp in content else 2

    def matches(self, version: int, query: int, radius: int, base: bool = False) -> list[tuple[int, int]]:
        content = self.at(version)[0]
        found = [(fp, (fp ^ query).bit_count()) for fp in content if base or fp not in self.base]
        return sorted((m for m in found if m[1] <= radius), key=lambda m: m[::-1])


def clustered(rng: random.Random, count: int) -> list[int]:
    """Return fingerprints of which many lie near each other."""
    centres = [rng.getrandbits(64) for _ in range(max(1, count // 12))]
    out = set()
    while len(out) < count:
        fp = rng.choice(centres)
        for _ in range(rng.randrange(6)):
            fp ^= 1 << rng.randrange(64)
        out.add(fp)
    return sorted(out)


class Pair:
    """A delta and the model that says what it must hold."""

    def __init__(self, seed: int, radius: int, bits: np.ndarray = SHUFFLED, fingerprints: int = 60, ids: int = 8) -> None:
        self.rng = random.Random(seed)
        self.pool = clustered(self.rng, fingerprints)
        self.ids = [*range(ids - 2), 2**63, 2**64 - 1]
        chosen = [fp for fp in self.pool if self.rng.random() < 0.4]
        self.model = Model({fp: set(self.rng.sample(self.ids, self.rng.randrange(1, 4))) for fp in chosen})
        self.radius = radius
        self.delta = _kernel.Delta(radius, bits)
        self.version = 0

    def row(self) -> tuple[int, int, int]:
        """Make a change that a store would log, to the model, and return it."""
        rng, model = self.rng, self.model
        fp, item, kind = rng.choice(self.pool), rng.choice(self.ids), rng.choice([ADD, ADD, REMOVE, WIPE])
        held = model.content.get(fp, set())
        if kind == REMOVE:
            if held:
                item = rng.choice(sorted(held))
            if held == {item}:
                kind = REMOVE_LAST
            elif item not in held:
                kind = ADD
        if kind == WIPE and rng.random() < 0.5:
            kind = ADD
        model.change(kind, fp, item)
        return kind, fp, item

    def apply(self, count: int) -> None:
        self.version += self.rng.randrange(1, 4)
        rows = [self.row() for _ in range(count)]
        kinds, fps, ids = zip(*rows, strict=True)
        in_base = octets(fp in self.model.base for fp in fps)
        self.delta.apply(octets(kinds), words(fps), words(ids), in_base, self.version)
        self.model.save(self.version)

    def queries(self, count: int) -> list[int]:
        rng = self.rng
        near = [rng.choice(self.pool) for _ in range(count)]
        return [fp ^ sum({1 << rng.randrange(64) for _ in range(rng.randrange(self.radius + 2))}) for fp in near]


def base_columns(pair: Pair, queries: list[int], radius: int) -> tuple:
    """Return what the tables would: the matches of the base, whatever the delta says."""
    rows = [Model(pair.model.base).matches(0, q, radius, base=True) for q in queries]
    lims = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return lims, words(fp for row in rows for fp, _ in row), octets(d for row in rows for _, d in row)


def check(pair: Pair, version: int) -> None:
    delta, model = pair.delta, pair.model
    content, said, _ = model.at(version)
    queries = pair.queries(37)
    for radius in range(pair.radius + 1):
        found = delta.probe(words(queries), radius, version)
        assert [c.dtype for c in found] == [np.int64, np.uint64, np.uint8]
        expected = [model.matches(version, q, radius) for q in queries]
        assert lists(*found) == expected
        assert [delta.probe_one(q, radius, version) for q in queries] == expected
        merged = delta.combine(base_columns(pair, queries, radius), found, version)
        assert lists(*merged) == [model.matches(version, q, radius, base=True) for q in queries]
    for radius in (pair.radius, 20, 64):
        assert lists(*delta.scan(words(queries), radius, version)) == [model.matches(version, q, radius) for q in queries]
    fps = [*pair.pool, *queries]
    assert delta.states(words(fps), version).tolist() == [model.state(version, fp) for fp in fps]
    assert [delta.state(fp, version) for fp in fps] == [model.state(version, fp) for fp in fps]
    base_ids = [sorted(model.base.get(fp, ())) for fp in fps]
    lims = np.cumsum([0, *map(len, base_ids)]).astype(np.int64)
    ids = delta.ids(words(fps), lims, words(i for part in base_ids for i in part), version)
    expected_ids = [sorted(content.get(fp, ())) for fp in fps]
    assert lists(*ids) == expected_ids
    assert [delta.ids_one(fp, part, version) for fp, part in zip(fps, base_ids, strict=True)] == expected_ids
    both = [(fp, item) for fp in pair.pool for item in pair.ids]
    pairs = delta.pairs(words(fp for fp, _ in both), words(item for _, item in both), version)
    assert pairs.tolist() == [model.pair(version, fp, item) for fp, item in both]
    wanted = [*pair.rng.choices(pair.ids, k=3), 12345]
    found = zip(*(c.tolist() for c in delta.find(words(wanted), version)), strict=True)
    assert list(found) == sorted(p for p, added in said.items() if added and p[1] in wanted)
    check_export(pair, version)


def check_export(pair: Pair, version: int) -> None:
    content, said, touched = pair.model.at(version)
    fps, in_base, wiped, add_lims, adds, remove_lims, removes = pair.delta.export(version)
    assert fps.tolist() == sorted(touched)
    rows = zip(fps.tolist(), in_base, wiped, lists(add_lims, adds), lists(remove_lims, removes), strict=True)
    for fp, based, gone, added, removed in rows:
        assert based == (fp in pair.model.base)
        assert gone == touched[fp]
        assert added == sorted(item for (f, item), yes in said.items() if f == fp and yes)
        assert removed == sorted(i for (f, i), yes in said.items() if f == fp and not yes and based and not gone)
        assert set(added) | (set() if gone else pair.model.base.get(fp, set()) - set(removed)) == content.get(fp, set())


@pytest.mark.parametrize("radius", range(8))
def test_every_version_reads_as_the_model_says(isa, radius):
    pair = Pair(radius, radius, IDENTITY if radius == 2 else SHUFFLED)
    for count in (1, 5, 40, 17, 100, 3):
        pair.apply(count)
    for version in range(pair.version + 2):
        check(pair, version)
    check(pair, NEWEST)
    removed = {fp for fp, gone in pair.model.touched.items() if gone and fp in pair.model.base}
    assert removed
    assert pair.delta.removals == len(removed)
    assert pair.delta.entries == len(pair.model.touched)
    assert pair.delta.operations == 166


# --- probe_insert ---------------------------------------------------------------------------------


def insert_slowly(pair: Pair, rows: list[tuple[int, int, int]], radius: int, always: bool) -> tuple[list, list]:
    """Do what probe_insert says it does, one query after the other, to the model."""
    model, found, inserted = pair.model, [], []
    for query, item, matched in rows:
        near = [(fp, (fp ^ query).bit_count()) for fp in model.content if fp not in model.base]
        near = sorted((m for m in near if m[1] <= radius), key=lambda m: m[::-1])
        wanted = matched != 2 and (always or (matched == 0 and not near))
        wanted = wanted and model.said.get((query, item)) is not True
        if wanted:
            model.change(ADD, query, item)
        found.append(near)
        inserted.append(int(wanted))
    return found, inserted


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("radius", [0, 1, 3, 7])
def test_probe_insert_goes_query_by_query(isa, radius, always):
    pair = Pair(50 + radius, radius, fingerprints=200)
    rng, seen = pair.rng, set()
    for step, count in enumerate((40, 100, 1, 7)):
        if step:
            pair.apply(30)
        pair.version += 1
        rows = [(rng.choice([rng.choice(pair.pool), *pair.queries(1)]), rng.choice(pair.ids)) for _ in range(count)]
        rows += rng.sample(rows, min(3, count))
        rows = [(*row, rng.choice([0, 0, 0, 1, 2])) for row in rows]
        for smaller in range(radius):  # finds with less than the radius of the delta, and changes nothing
            got = pair.delta.probe(words(r[0] for r in rows), smaller, NEWEST)
            assert lists(*got) == [pair.model.matches(NEWEST, r[0], smaller) for r in rows]
        columns = [words(r[0] for r in rows), words(r[1] for r in rows), octets(r[2] for r in rows)]
        in_base = octets(r[0] in pair.model.base for r in rows)
        *found, inserted = pair.delta.probe_insert(*columns, in_base, radius, always, pair.version)
        slowly = insert_slowly(pair, rows, radius, always)
        assert (lists(*found), inserted.tolist()) == slowly
        seen |= {(bool(near), bool(put)) for near, put in zip(*slowly, strict=True)}
        pair.model.save(pair.version)
    assert seen >= {(True, False), (False, True), (True, always)}
    for version in range(pair.version + 1):
        check(pair, version)


def test_a_query_sees_the_one_before_it():
    delta = _kernel.Delta(3, IDENTITY)
    queries = words([7, 6, 7, 0xFF00, 7])
    none = np.zeros(5, np.uint8)
    *found, inserted = delta.probe_insert(queries, words([1, 2, 3, 4, 5]), none, none, 3, False, 9)
    assert lists(*found) == [[], [(7, 1)], [(7, 0)], [], [(7, 0)]]
    assert inserted.tolist() == [1, 0, 0, 1, 0]
    *found, inserted = delta.probe_insert(queries, words([1, 2, 3, 4, 1]), none, none, 3, True, 9)
    assert lists(*found) == [[(7, 0)], [(7, 1)], [(7, 0), (6, 1)], [(0xFF00, 0)], [(7, 0), (6, 1)]]
    assert inserted.tolist() == [0, 1, 1, 0, 0]
    assert delta.ids_one(7, [], 9) == [1, 3]
    assert delta.ids_one(7, [], 8) == []


# --- Many -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0, 1, 3, 7])
def test_buckets_of_every_size(isa, radius):
    """Fingerprints in one cluster fill few buckets, and the others are in nearly as many as there are."""
    rng = np.random.default_rng(radius)
    centre = rng.integers(0, 2**64, 1, np.uint64)
    places = np.uint64(1) << rng.choice(64, 12, replace=False).astype(np.uint64)
    flips = (rng.integers(0, 2, (3000, 12), np.uint64) * places).sum(axis=1)
    fps = rng.permutation(np.unique(np.concatenate([centre ^ flips, rng.integers(0, 2**64, 3000, np.uint64)])))
    n = len(fps)
    delta = _kernel.Delta(radius, SHUFFLED)
    done = 0
    for size in (1, 2, 3, 15, 16, 17, 700, n):
        part = fps[done : done + size]
        none = np.zeros(len(part), np.uint8)
        delta.apply(none, part, part, none, done)
        done += len(part)
    queries = np.concatenate([rng.choice(fps, 40) ^ (np.uint64(1) << rng.integers(0, 64, 40, np.uint64)), centre ^ flips[:20]])
    for version, seen in ((36, 37), (700, 754), (754, n)):
        distances = np.bitwise_count(queries[:, None] ^ fps[None, :seen])
        for r in range(radius + 1):
            expected = []
            for row in distances:
                near = np.flatnonzero(row <= r)
                expected.append(sorted(zip(fps[near].tolist(), row[near].tolist(), strict=True), key=lambda m: m[::-1]))
            assert lists(*delta.probe(queries, r, version)) == expected
            assert lists(*delta.scan(queries, r, version)) == expected
            assert r == 0 or version < 754 or max(map(len, expected)) > 5


def test_many_ids_of_one_fingerprint_and_many_fingerprints_of_one_id():
    """A walk over all for every row would take minutes."""
    n = 300_000
    delta = _kernel.Delta(3, IDENTITY)
    none, many, one = np.zeros(n, np.uint8), np.arange(n, dtype=np.uint64), np.full(n, 77, np.uint64)
    delta.apply(none, one, many, none, 1)
    delta.apply(none, many + np.uint64(n), one, none, 2)
    delta.apply(np.full(n // 2, REMOVE, np.uint8), one[: n // 2], many[: n // 2], none[: n // 2], 3)
    assert delta.ids_one(77, [], 2) == many.tolist()
    assert delta.ids_one(77, [5, n], 3) == [*range(n // 2, n), n]
    assert delta.pairs(one, many, 3).tolist() == [2] * (n // 2) + [1] * (n - n // 2)
    assert delta.pairs(many + np.uint64(n), one, 3).tolist() == [1] * n
    fps, ids = delta.find(words([77]), 3)
    assert np.array_equal(fps, np.sort(np.append(many + np.uint64(n), []).astype(np.uint64)))
    assert set(ids.tolist()) == {77}
    for version in range(4, 2004):  # one pair that comes and goes
        delta.apply(octets([[ADD, REMOVE][version % 2]]), words([77]), words([3]), octets([0]), version)
    states = [delta.pairs(words([77]), words([3]), version)[0] for version in range(4, 2004)]
    assert states == [1, 2] * 1000


def test_few_ids_turn_into_many():
    """From the fifth id on the pairs of a fingerprint are found by hash."""
    delta = _kernel.Delta(1, IDENTITY)
    for count in range(1, 12):
        delta.apply(octets([ADD]), words([5]), words([count * 10]), octets([0]), count)
        asked = words(range(0, 130, 10))
        assert delta.pairs(np.full(13, 5, np.uint64), asked, count).tolist() == [0, *[1] * count, *[0] * (12 - count)]
        assert delta.pairs(np.full(13, 6, np.uint64), asked, count).tolist() == [0] * 13
    assert delta.operations == 11
    assert delta.entries == 1


# --- Threads, memory, bounds ----------------------------------------------------------------------


def test_a_version_reads_the_same_while_changes_are_applied():
    pair = Pair(3, 3, fingerprints=3000)
    pair.apply(2000)
    pair.apply(2000)
    delta, fixed = pair.delta, (pair.version - 1, pair.version)
    queries, fps = words(pair.queries(300)), words(pair.pool)
    base_ids = np.zeros(len(fps) + 1, np.int64)
    ones = queries[:20].tolist()

    def read(version: int) -> list:
        found = delta.probe(queries, 3, version)
        columns = [*found, *delta.scan(queries, 9, version), *delta.combine(found, found, version), delta.states(fps, version)]
        columns += [*delta.ids(fps, base_ids, words([]), version), delta.pairs(fps, fps % np.uint64(5), version)]
        columns += [*delta.find(words(pair.ids), version), *delta.export(version)]
        return [*(c.tolist() for c in columns), *([delta.probe_one(q, 3, version), delta.state(q, version)] for q in ones)]

    expected = [read(version) for version in fixed]
    stop, rounds, wrong, waiting = threading.Event(), [0] * 3, [], threading.Barrier(4)

    def look(place: int) -> None:
        waiting.wait()
        while not stop.is_set():
            wrong.extend(v for v, before in zip(fixed, expected, strict=True) if read(v) != before)
            rounds[place] += 1

    threads = [threading.Thread(target=look, args=(place,)) for place in range(3)]
    for thread in threads:
        thread.start()
    waiting.wait()
    while min(rounds) < 3:
        pair.apply(500)
        more = words(pair.rng.getrandbits(64) for _ in range(500))
        none = np.zeros(500, np.uint8)
        delta.probe_insert(more, more, none, none, 3, False, pair.version)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert read(NEWEST) != expected[1]


EXHAUSTED = """
import resource, sys
import numpy as np
from fpstore import _kernel
from fpstore.errors import MemoryLimitError

rng, one = np.random.default_rng(4), np.ones(3000, np.uint8)
delta = _kernel.Delta(3, np.arange(64, dtype=np.uint8))
mine, insert = rng.integers(0, 2**64, 3000, np.uint64), sys.argv[1] == "insert"
queries, ids = mine[:200] ^ np.uint64(3), rng.integers(0, 500, 3000, np.uint64)
delta.apply(0 * one, mine, ids, 0 * one, 1)
delta.apply(0 * one, mine[:600].repeat(5), np.tile(ids[:5], 600), 0 * one, 2)
delta.apply(one[:900] * 3, mine[:900], ids[:900], 0 * one[:900], 3)
based = rng.integers(0, 2**64, 3000, np.uint64)
delta.apply(one, based, ids, one, 4)

def state():
    at = 2**32 - 1
    parts = [*delta.export(at), *delta.probe(queries, 3, at), *delta.find(ids[:40], at), *delta.scan(queries[:9], 9, at)]
    parts += [delta.pairs(mine, ids, at), delta.pairs(mine[:600].repeat(5), np.tile(ids[:5], 600), at)]
    return [part.tolist() for part in parts] + [delta.removals, delta.operations]

before = state()
n = 600_000
kinds, fps = rng.integers(0, 4, n, np.uint8), rng.integers(0, 2**64, n, np.uint64)
fps[: 3000], fps[3000 : 6000] = mine, based
fps[6000:9000] = mine[:300].repeat(10)
in_base, none, some = np.zeros(n, np.uint8), np.zeros(n, np.uint8), np.arange(n, dtype=np.uint64)
in_base[3000:6000] = 1
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
for room in map(int, sys.argv[2].split(",")):
    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), hard))
    try:
        if insert:
            delta.probe_insert(fps, some, none, in_base, 3, True, 5)
        else:
            delta.apply(kinds, fps, some, in_base, 5)
    except MemoryLimitError:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        assert state() == before, room
    else:
        raise SystemExit("enough memory")
if insert:
    assert delta.probe_insert(fps, some, none, in_base, 3, True, 5)[3].all()
else:
    delta.apply(kinds, fps, some, in_base, 5)
fresh = _kernel.Delta(3, np.arange(64, dtype=np.uint8))
fresh.apply(0 * one, mine, ids, 0 * one, 1)
fresh.apply(0 * one, mine[:600].repeat(5), np.tile(ids[:5], 600), 0 * one, 2)
fresh.apply(one[:900] * 3, mine[:900], ids[:900], 0 * one[:900], 3)
fresh.apply(one, based, ids, one, 4)
fresh.apply(0 * kinds if insert else kinds, fps, some, in_base, 5)
after, delta = state(), fresh
assert after == state()
print("kept")
"""


@pytest.mark.parametrize("call", ["apply", "insert"])
def test_changes_that_find_no_memory_are_taken_back(call):
    command = [sys.executable, "-P", "-c", EXHAUSTED, call, "0,2,7,16,29,40"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "kept\n"), done.stderr


def test_a_base_that_changes_is_refused_and_nothing_is_taken():
    delta = _kernel.Delta(2, IDENTITY)
    with pytest.raises(ValueError, match="in_base"):
        delta.apply(octets([ADD, ADD, WIPE, ADD]), words([4, 5, 6, 5]), words([1, 1, 1, 2]), octets([0, 0, 1, 1]), 3)
    assert delta.operations == delta.removals == 0
    assert delta.states(words([4, 5, 6]), NEWEST).tolist() == [0, 0, 0]
    assert lists(*delta.probe(words([4]), 2, NEWEST)) == [[]]
    assert [len(column) for column in delta.export(NEWEST)] == [0, 0, 0, 1, 0, 1, 0]
    delta.apply(octets([ADD]), words([4]), words([1]), octets([0]), 0)
    assert delta.probe_one(5, 2, 0) == [(4, 1)]


def test_changes_of_one_version_count_in_their_order():
    delta = _kernel.Delta(0, IDENTITY)
    kinds = octets([ADD, ADD, WIPE, ADD, REMOVE, ADD, REMOVE_LAST, ADD])
    delta.apply(kinds, words([9] * 8), words([1, 2, 0, 2, 2, 3, 3, 4]), octets([1] * 8), 5)
    assert delta.ids_one(9, [1, 7], 5) == [4]
    assert delta.ids_one(9, [1, 7], 4) == [1, 7]
    assert delta.pairs(words([9] * 6), words([1, 2, 3, 4, 7, 8]), 5).tolist() == [2, 2, 2, 1, 2, 2]
    delta.apply(octets([REMOVE]), words([9]), words([4]), octets([1]), 5)
    assert delta.ids_one(9, [1, 7], 5) == []
    assert (delta.state(9, 5), delta.state(9, 4)) == (1, 0)
    assert delta.removals == 1


@pytest.mark.parametrize("radius", [8, 64, 2**31])
def test_a_radius_above_7_is_refused(radius):
    with pytest.raises(ValueError, match="radius"):
        _kernel.Delta(radius, IDENTITY)


@pytest.mark.parametrize("bits", [IDENTITY[:63], np.append(IDENTITY, 64), IDENTITY % 63, IDENTITY + 1])
def test_bits_that_are_no_permutation_are_refused(bits):
    with pytest.raises(ValueError, match="bits"):
        _kernel.Delta(3, bits.astype(np.uint8))


def test_arguments_out_of_bounds_are_refused():
    delta = _kernel.Delta(3, IDENTITY)
    fps, none = words([1, 2]), octets([0, 0])
    empty = (np.zeros(1, np.int64), words([]), octets([]))
    delta.apply(none, fps, fps, none, 7)
    refused = {
        "kinds": [lambda: delta.apply(octets([0, 4]), fps, fps, none, 7)],
        "version": [
            lambda: delta.apply(none, fps, fps, none, 6),
            lambda: delta.apply(none[:0], fps[:0], fps[:0], none[:0], 6),
            lambda: delta.probe_insert(fps, fps, none, none, 3, True, 6),
        ],
        "matched": [lambda: delta.probe_insert(fps, fps, octets([0, 3]), none, 3, True, 7)],
        "radius": [
            lambda: delta.probe(fps, 4, 7),
            lambda: delta.probe_one(1, 4, 7),
            lambda: delta.scan(fps, 65, 7),
            lambda: delta.probe_insert(fps, fps, none, none, 4, True, 7),
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
            lambda: delta.pairs(fps, fps[:1], 7),
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
            lambda: delta.combine((np.array([0, 1]), words([]), octets([1])), (np.array([0, 0]), *empty[1:]), 7),
            lambda: delta.combine((np.array([0, 0]), *empty[1:]), (np.array([0, 1]), words([1]), octets([])), 7),
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
        lambda: delta.states(np.zeros((2, 2), np.uint64), 7),
    ):
        with pytest.raises(TypeError):
            call()
    assert delta.operations == 2
    assert delta.export(7)[0].tolist() == [1, 2]


def test_an_empty_delta_says_nothing():
    delta = _kernel.Delta(3, IDENTITY)
    for version in (0, NEWEST):
        assert lists(*delta.probe(words([1, 2]), 3, version)) == lists(*delta.scan(words([1, 2]), 64, version)) == [[], []]
        assert delta.states(words([1]), version).tolist() == delta.pairs(words([1]), words([1]), version).tolist() == [0]
        assert delta.ids_one(1, [4, 5], version) == [4, 5]
        assert [len(column) for column in delta.find(words([1]), version)] == [0, 0]
        assert [len(column) for column in delta.probe(words([]), 3, version)] == [1, 0, 0]
    assert (delta.entries, delta.operations, delta.removals) == (0, 0, 0)
    before = delta.memory_bytes
    delta.apply(octets([ADD]), words([1]), words([1]), octets([0]), 0)
    assert before < delta.memory_bytes < 4 << 20
