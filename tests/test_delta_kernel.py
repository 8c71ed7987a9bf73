"""The in-memory delta against a slow model: presence, ids and probes as of every version, on every instruction set."""

import random
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
