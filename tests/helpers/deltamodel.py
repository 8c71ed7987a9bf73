"""A slow model of the in-memory delta, and random changes that both go through."""

import random

import brute_force
import numpy as np
import reference

from fpstore import _kernel

IDENTITY = np.arange(64, dtype=np.uint8)
SHUFFLED = np.random.default_rng(6).permutation(64).astype(np.uint8)
ADD, REMOVE, WIPE = range(3)
NEWEST = 2**32 - 1


def words(values) -> np.ndarray:
    return np.array(list(values), np.uint64)


def octets(values) -> np.ndarray:
    return np.array(list(values), np.uint8)


def lists(lims: np.ndarray, *columns: np.ndarray) -> list[list]:
    plain = [c.tolist() if c.ndim == 1 else brute_force.numbers_of(c) for c in columns]
    rows = list(zip(*plain, strict=True)) if len(plain) > 1 else plain[0]
    return [rows[a:b] for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]


class Model:
    """The content as plain sets, a copy of it for every version."""

    def __init__(self, base: dict[int, set[int]]) -> None:
        self.base = base
        self.content = {fp: set(ids) for fp, ids in base.items()}
        self.present: dict[tuple[int, int], bool] = {}
        self.touched: dict[int, bool] = {}  # whether it was ever absent
        self.versions: list[tuple] = []
        self.save(0)

    def save(self, version: int) -> None:
        content = {fp: frozenset(ids) for fp, ids in self.content.items()}
        self.versions.append((version, content, dict(self.present), dict(self.touched)))

    def at(self, version: int) -> tuple:
        return [v for v in self.versions if v[0] <= version][-1][1:]

    def change(self, kind: int, fp: int, item: int) -> None:
        ids = self.content.setdefault(fp, set())
        self.touched.setdefault(fp, False)
        if kind == ADD:
            ids.add(item)
            self.present[fp, item] = True
        elif kind == REMOVE:
            ids.discard(item)
            self.present[fp, item] = False
        else:
            ids.clear()
            self.touched[fp] = True
            for pair in [pair for pair in self.present if pair[0] == fp]:
                self.present[pair] = False
        if not ids:
            del self.content[fp]

    def pair(self, version: int, fp: int, item: int) -> int:
        _, present, touched = self.at(version)
        if (fp, item) in present:
            return 1 if present[fp, item] else 2
        return 2 if touched.get(fp) else 0

    def state(self, version: int, fp: int) -> int:
        content, _, touched = self.at(version)
        return 0 if fp not in touched else 1 if fp in content else 2

    def matches(
        self, version: int, query: int, radius: int, base: bool = False
    ) -> list[tuple[int, int]]:
        content = self.at(version)[0]
        distances = [
            ((fp ^ query).bit_count(), fp) for fp in content if base or fp not in self.base
        ]
        return [(fp, distance) for distance, fp in sorted(m for m in distances if m[0] <= radius)]


def clustered(rng: random.Random, count: int, width: int) -> list[int]:
    """Return fingerprints in near groups; above 64 bits, many have the same leading words."""
    bits = 64 * reference.words_of(width)
    centres = [rng.getrandbits(width) << bits - width for _ in range(max(1, count // 12))]
    out = set()
    while len(out) < count:
        fp = rng.choice(centres)
        for _ in range(rng.randrange(6)):
            fp ^= 1 << bits - 1 - rng.randrange(width)
        if width > 64 and rng.random() < 0.5:
            fp = fp >> bits - 64 << bits - 64 | rng.getrandbits(bits - 64)
        out.add(fp)
    return sorted(out)


class Pair:
    """A delta and the model that says what it must hold."""

    def __init__(
        self,
        seed: int,
        radius: int,
        bits: np.ndarray = SHUFFLED,
        fingerprints: int = 60,
        ids: int = 8,
    ) -> None:
        self.rng = random.Random(seed)
        self.width = len(bits)
        self.pool = clustered(self.rng, fingerprints, self.width)
        self.ids = [*range(ids - 2), 2**63, 2**64 - 1]
        chosen = [fp for fp in self.pool if self.rng.random() < 0.4]
        self.model = Model(
            {fp: set(self.rng.sample(self.ids, self.rng.randrange(1, 4))) for fp in chosen}
        )
        self.radius = radius
        self.delta = _kernel.Delta(radius, bits)
        self.version = 0

    def rows(self, values) -> np.ndarray:
        return brute_force.rows_of(values, self.width)

    def row(self) -> tuple[int, int, int]:
        """Make a change that a store would log, to the model, and return it."""
        rng, model = self.rng, self.model
        fp, item, kind = (
            rng.choice(self.pool),
            rng.choice(self.ids),
            rng.choice([ADD, ADD, REMOVE, WIPE]),
        )
        held = model.content.get(fp, set())
        if kind == REMOVE:
            if held:
                item = rng.choice(sorted(held))
            if held == {item}:
                kind = WIPE
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
        self.delta.apply(octets(kinds), self.rows(fps), words(ids), in_base, self.version)
        self.model.save(self.version)

    def queries(self, count: int) -> list[int]:
        rng = self.rng
        near = [rng.choice(self.pool) for _ in range(count)]
        top = 64 * reference.words_of(self.width) - 1
        return [
            fp
            ^ sum(
                {
                    1 << top - rng.randrange(self.width)
                    for _ in range(rng.randrange(self.radius + 2))
                }
            )
            for fp in near
        ]
