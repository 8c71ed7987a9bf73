"""Cases: a store, how it is changed, and what it is asked. A case follows from the seed and its number alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fpstore import Store
from fpstore.design.families import TableSpec, identity
from sweep.data import KINDS, Ids, Rng, Words, make_ids, make_queries
from sweep.model import Model

SMALL = (*range(21), 63, 64, 65, 66)
SIZES = (*SMALL, 127, 128, 129, 130, 500, 3000)
BATCHES = (0, 1, 2, 23, 24, 25, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 70000)
LARGE = (5000, 70000)
THREADS = (1, 2, 3, None)
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
STRINGS = ("rows", "integers", "strings")
DESIGNS = (  # and the largest radius of each
    *(("flip-1", 7), ("flip-2", 7), ("flip-3", 7), ("flip-4", 7), ("flip-5", 7), ("flip-6", 7), ("flip-7", 7), ("flip-8", 7)),
    *(("manku-4", 3), ("manku-10", 3), ("manku-16", 3), ("manku-20", 3), ("manku-28", 6), ("custom", 7), ("auto", 7)),
    *(
        ("custom", 7),
        ("blocks-1-1", 7),
        ("blocks-8-1", 7),
        ("blocks-9-2", 7),
        ("blocks-5-3", 7),
        ("blocks-7-4", 7),
        ("blocks-64-1", 7),
    ),
    *(
        ("custom", 7),
        ("nested-2-3", 1),
        ("nested-3-5", 2),
        ("nested-6-5", 4),
        ("nested-8-8", 7),
        ("striped-4-1", 7),
        ("striped-6-2", 7),
    ),
    *(("flip-4", 16), ("flip-6", 12), ("scan", 40), ("auto", 30)),
)
QUESTIONS = {
    "built": 4,
    "changed": 3,
    "reopened": 1,
    "merged": 3,
    "changed again": 2,
    "joined": 1,
}  # about batches, of each state
STATES = tuple(QUESTIONS)
MOST_PAIRS = 1 << 19  # of different queries and rows that brute force compares for one question


@dataclass(frozen=True)
class Change:
    """One call that changes a store."""

    verb: str
    rows: Words
    ids: Any = None

    def apply(self, store: Store) -> int:
        """Make the change; return how many pairs it changed."""
        if self.verb == "insert":
            return store.insert(self.rows, self.ids)
        if self.verb == "delete":
            return store.delete(ids=self.ids) if self.ids is not None else store.delete(fingerprints=self.rows)
        inserted = store.probe_insert_many(self.rows, self.ids, always=True).inserted
        return 0 if inserted is None else int(inserted.sum())

    def foretell(self, model: Model) -> int:
        """Make the change in the model; return what :meth:`apply` must."""
        if self.verb == "insert":
            return model.insert(self.rows, self.ids)
        if self.verb == "delete":
            return model.delete(ids=self.ids) if self.ids is not None else model.delete(fingerprints=self.rows.tolist())
        model.insert(self.rows, self.ids)
        return len(self.rows)


@dataclass(frozen=True)
class Question:
    """A batch of queries and how it is asked."""

    queries: Words
    radius: int
    threads: int | None
    isa: int
    scan_radius: int
    part_matches: int


@dataclass(frozen=True)
class Case:
    """One store and all that is done with it."""

    seed: int
    number: int
    design: str
    tables: list[TableSpec] | None
    radius: int
    kind: str
    rows: Words
    id_kind: str
    ids: Ids
    block_bytes: int
    threads: int | None
    changes: dict[str, list[Change]]
    joined: tuple[Words, Ids]  # rows and ids of another store
    joined_design: str | None
    large: bool

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``fpstore.build`` after the path."""
        return {
            "fingerprints": self.rows, "ids": self.ids, "radius": self.radius, "design": self.tables or self.design,
            "block_bytes": self.block_bytes, "memory": "64MiB", "threads": self.threads,
        }  # fmt: skip

    def other(self) -> dict[str, Any]:
        """Return the arguments of ``fpstore.build`` for the store that is merged into this one."""
        rows, ids = self.joined
        return {**self.arguments(), "fingerprints": rows, "ids": ids, "design": self.joined_design or self.tables or self.design}

    def everything(self) -> Words:
        """Return the rows that are stored at any time."""
        changed = (change.rows for changes in self.changes.values() for change in changes)
        return np.concatenate([self.rows, self.joined[0], *changed])

    def question(self, state: str, place: int) -> Question:
        """Return a question about a state."""
        rng = np.random.default_rng([self.seed, self.number, STATES.index(state), place])
        rows = self.everything()
        large = self.large and state == "built" and place < len(LARGE)
        batch = LARGE[place] if large else int(rng.choice(BATCHES))
        threads = THREADS[rng.integers(0, len(THREADS))]
        radius = self.radius if rng.random() < 0.7 else int(rng.integers(0, self.radius + 1))
        return Question(
            make_queries(rng, rows, radius, batch, MOST_PAIRS // (len(rows) + 1)), radius, threads, int(rng.integers(0, 8)),
            int(rng.integers(0, 65)), int(rng.choice([1, 7, 300, 5000, 1 << 22])),
        )  # fmt: skip


def draw(seed: int, number: int) -> Case:
    """Return a case. The even ones take all small sizes and all designs in turn, with large batches."""
    rng = np.random.default_rng([seed, number])
    large = number % 2 == 0
    turn = number // 2
    design, most = DESIGNS[turn % len(DESIGNS)] if large else DESIGNS[rng.integers(0, len(DESIGNS))]
    size = SMALL[turn % len(SMALL)] if large else int(rng.choice(SIZES))
    radius = min(most, 3 if rng.random() < 0.4 else int(rng.integers(0, max(most + 1, 8))))
    if design.startswith("flip-"):
        radius = max(radius, int(design[5:]) - 1)
    kind = list(KINDS)[rng.integers(0, len(KINDS))]
    rows = KINDS[kind](rng, size)
    others = np.concatenate([KINDS[kind](rng, int(rng.choice(SMALL))), rows[: rng.integers(0, 9)]])
    id_kind = STRINGS[rng.integers(0, 3)]
    ids = make_ids(rng, id_kind, len(rows))
    return Case(
        seed=seed,
        number=number,
        design=design,
        tables=custom(rng, radius) if design == "custom" else None,
        radius=radius,
        kind=kind,
        rows=rows,
        id_kind=id_kind,
        ids=ids,
        block_bytes=int(rng.choice(BLOCK_BYTES)),
        threads=THREADS[rng.integers(0, len(THREADS))],
        changes={state: _changes(rng, rows, ids, id_kind, kind) for state in ("changed", "changed again")},
        joined=(others, make_ids(rng, id_kind, len(others))),
        joined_design="auto" if rng.random() < 0.3 else None,
        large=large,
    )


def custom(rng: Rng, radius: int) -> list[TableSpec]:
    """Return tables whose leading blocks, of any width, are disjoint: exact when their flips, and one each, exceed the radius."""
    count = int(rng.integers(1, radius + 2))
    cuts = np.sort(rng.choice(np.arange(1, 64), count, replace=False))
    first, order = int(cuts[0]), rng.permutation(64 - int(cuts[0])) + int(cuts[0])
    blocks = [np.arange(first), *np.split(order, cuts[1:] - first)[: count - 1]]
    flips = np.bincount(rng.integers(0, count, radius + 1 - count), minlength=count)
    tables: list[TableSpec] = []
    for block, most in zip(blocks, flips.tolist(), strict=True):
        others = rng.permutation(np.setdiff1d(np.arange(64), block))
        bits = bytes([*block.tolist(), *others.tolist()]) if tables else identity(64)
        tables.append(TableSpec(bits, len(block), min(most, len(block))))
    # A look-up of every entry, which needs no other table, is drawn now and then.
    return [TableSpec(identity(64), 0), *tables[1:]] if rng.random() < 0.1 else tables


def _changes(rng: Rng, rows: Words, ids: Ids, id_kind: str, kind: str) -> list[Change]:
    """Insert new rows and more ids for stored ones, remove ids and fingerprints, and put some back."""
    fresh = KINDS[kind](rng, int(rng.choice([0, 1, 5, 66, 300])))
    again = rows[rng.integers(0, len(rows), min(len(rows), 10))] if len(rows) else fresh[:1]
    added = np.concatenate([fresh, again])
    named = make_ids(rng, id_kind, len(added))
    some = int(rng.integers(0, 20))
    removed_rows = rng.permutation(np.concatenate([rows, added]))[:some]
    back = removed_rows[: some // 2]
    number = rng.integers(0, max(len(rows), 1), some)
    known = number.astype(np.uint64) if ids is None else [ids[i] for i in number.tolist()] if len(rows) else []
    changes = [
        Change("insert", added, named),
        Change("delete", removed_rows),
        Change("delete", removed_rows[:0], known if len(rows) else np.empty(0, np.uint64)),
        Change("insert", back, make_ids(rng, id_kind, len(back))),
    ]
    if id_kind != "rows":
        more = _near(rng, rows, 30)
        changes.append(Change("probe_insert", more, _unique(id_kind, rng, len(more))))
    return changes


def _near(rng: Rng, rows: Words, count: int) -> Words:
    """Return fingerprints that are not stored yet, near the rows."""
    near = make_queries(rng, rows, 2, count, count)
    return np.setdiff1d(near, rows)


def _unique(id_kind: str, rng: Rng, count: int) -> Any:
    numbers = 10**12 * rng.integers(1, 10**6) + rng.permutation(count)
    return [f"fresh {number}" for number in numbers.tolist()] if id_kind == "strings" else numbers.astype(np.uint64)
