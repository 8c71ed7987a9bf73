"""Cases: a store, how it is changed, and what it is asked.

A case follows from the seed and its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fpstore import Store
from fpstore.design.blocks import CODECS
from fpstore.design.families import design as make_design
from fpstore.errors import InputError
from sweep.data import KINDS, Ids, Rng, Shape, Words, make_ids, make_queries, make_rows, without
from sweep.model import Model

SMALL = (*range(21), 63, 64, 65, 66)
SIZES = (*SMALL, 127, 128, 129, 130, 500, 3000)
BATCHES = (0, 1, 2, 23, 24, 25, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 5000, 70000)
LARGE = (5000, 70000)
THREADS = (1, 2, 3, None)
BLOCK_BYTES = (128, 256, 512, 1024, 2048, 4096)
STRINGS = ("rows", "integers", "strings")
DESIGNS = (  # and the largest radius of each
    *(
        ("flip-1", 7),
        ("flip-2", 7),
        ("flip-3", 7),
        ("flip-4", 7),
        ("flip-5", 7),
        ("flip-6", 7),
        ("flip-7", 7),
        ("flip-8", 7),
    ),
    *(
        ("manku-4", 3),
        ("manku-10", 3),
        ("manku-16", 3),
        ("manku-20", 3),
        ("manku-28", 6),
        ("auto", 7),
    ),
    *(
        ("blocks-1-1", 7),
        ("blocks-8-1", 7),
        ("blocks-9-2", 7),
        ("blocks-5-3", 7),
        ("blocks-7-4", 7),
        ("blocks-64-1", 7),
    ),
    *(
        ("nested-2-3", 1),
        ("nested-3-5", 2),
        ("nested-6-5", 4),
        ("nested-8-8", 7),
        ("striped-4-1", 7),
        ("striped-6-2", 7),
    ),
    *(("flip-4", 16), ("flip-6", 12), ("scan", 40), ("auto", 30)),
    *(
        ("columns-1-19", 5),
        ("columns-2-12", 12),
        ("columns-4", 16),
        ("columns-7-9", 9),
        ("dealt-4-10", 7),
        ("dealt-6-8", 16),
    ),
)
WIDTHS, SHARES = (32, 64, 128, 256), (0.2, 0.4, 0.2, 0.2)
# More designs of the other widths, up to every radius.
FAR = (
    "auto",
    "scan",
    "flip-4",
    "flip-8",
    "flip-11",
    "flip-16",
    "columns-2-14",
    "columns-4-8",
    "columns-8-12",
    "columns-16-8",
    "dealt-8-11",
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
MAX_PAIRS = 1 << 19  # of different queries and rows that brute force compares for one question


@dataclass(frozen=True)
class Change:
    """One call that changes a store."""

    verb: str
    shape: Shape
    rows: Words
    ids: Any = None

    @property
    def array(self) -> Any:
        """The rows as the store takes them."""
        return self.shape.to_array(self.rows)

    def apply(self, store: Store) -> int:
        """Make the change; return how many pairs it changed."""
        if self.verb == "insert":
            return store.insert(self.array, self.ids)
        if self.verb == "delete":
            return store.delete(
                **({"fingerprints": self.array} if self.ids is None else {"ids": self.ids})
            ).removed
        inserted = store.probe_insert_many(self.array, self.ids, always=True).inserted
        return 0 if inserted is None else int(inserted.sum())

    def foretell(self, model: Model) -> int:
        """Make the change in the model; return what :meth:`apply` must."""
        if self.verb == "insert":
            return model.insert(self.rows, self.ids)
        if self.verb == "delete":
            return (
                model.delete(ids=self.ids)
                if self.ids is not None
                else model.delete(fingerprints=self.shape.numbers(self.array))
            )
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
    shape: Shape
    design: str
    radius: int
    kind: str
    rows: Words
    id_kind: str
    ids: Ids
    block_bytes: int
    codec: str
    filter: bool | str
    threads: int | None
    changes: dict[str, list[Change]]
    joined: tuple[Words, Ids]  # rows and ids of another store
    joined_design: str | None
    large: bool

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``fpstore.build`` after the path."""
        return {
            "fingerprints": self.shape.to_array(self.rows),
            "ids": self.ids,
            "width": self.shape.bits,
            "radius": self.radius,
            "design": self.design,
            "block_bytes": self.block_bytes,
            "codec": self.codec,
            "filter": self.filter,
            "memory": "64MiB",
            "threads": self.threads,
        }

    def other(self) -> dict[str, Any]:
        """Return the arguments of ``fpstore.build`` for the store that is merged into this one."""
        rows, ids = self.joined
        design = self.joined_design or self.design
        return {
            **self.arguments(),
            "fingerprints": self.shape.to_array(rows),
            "ids": ids,
            "design": design,
        }

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
            make_queries(
                rng,
                self.shape,
                rows,
                radius,
                batch,
                MAX_PAIRS // (len(rows) * self.shape.words + 1),
            ),
            radius,
            threads,
            int(rng.integers(0, 8)),
            int(rng.integers(0, self.shape.bits + 1)),
            int(rng.choice([1, 7, 300, 5000, 1 << 22])),
        )


def draw(seed: int, number: int) -> Case:
    """Return a case.

    The even ones take all small sizes and all designs in turn, with large batches.
    """
    rng = np.random.default_rng([seed, number])
    large = number % 2 == 0
    turn = number // 2
    design, most = DESIGNS[turn % len(DESIGNS)] if large else DESIGNS[rng.integers(0, len(DESIGNS))]
    size = SMALL[turn % len(SMALL)] if large else int(rng.choice(SIZES))
    radius = min(most, 3 if rng.random() < 0.4 else int(rng.integers(0, max(most + 1, 8))))
    if design.startswith("flip-"):
        radius = max(radius, int(design[5:]) - 1)
    shape = Shape(int(np.random.default_rng([seed, number, 1]).choice(WIDTHS, p=SHARES)))
    if shape.bits != 64:
        design, radius = _other_width(rng, shape, design, radius)
    kind = list(KINDS)[rng.integers(0, len(KINDS))]
    rows = make_rows(rng, shape, kind, size)
    others = np.concatenate(
        [make_rows(rng, shape, kind, int(rng.choice(SMALL))), rows[: rng.integers(0, 9)]]
    )
    id_kind = STRINGS[rng.integers(0, 3)]
    ids = make_ids(rng, id_kind, len(rows))
    return Case(
        seed=seed,
        number=number,
        shape=shape,
        design=design,
        radius=radius,
        kind=kind,
        rows=rows,
        id_kind=id_kind,
        ids=ids,
        block_bytes=int(rng.choice(BLOCK_BYTES)),
        codec=CODECS[int(np.random.default_rng([seed, number, 2]).integers(0, len(CODECS)))],
        filter=(True, True, "auto", False)[
            int(np.random.default_rng([seed, number, 3]).integers(0, 4))
        ],
        threads=THREADS[rng.integers(0, len(THREADS))],
        changes={
            state: _changes(rng, shape, rows, ids, id_kind, kind)
            for state in ("changed", "changed again")
        },
        joined=(others, make_ids(rng, id_kind, len(others))),
        joined_design="auto" if rng.random() < 0.3 else None,
        large=large,
    )


def _other_width(rng: Rng, shape: Shape, design: str, radius: int) -> tuple[str, int]:
    """Return a design that there is for the width, and its radius."""
    if rng.random() < 0.5:
        design = FAR[rng.integers(0, len(FAR))]
        radius = int(
            rng.integers(0, shape.bits + 1 if design in ("auto", "scan") else shape.bits // 4 + 1)
        )
    try:
        if design != "auto":
            make_design(design, radius, shape.bits).lookups(max(SIZES))
    except InputError:
        return "auto", radius
    return design, radius


def _changes(
    rng: Rng, shape: Shape, rows: Words, ids: Ids, id_kind: str, kind: str
) -> list[Change]:
    """Insert rows, add ids to stored rows, remove ids and fingerprints, and put some back."""
    fresh = make_rows(rng, shape, kind, int(rng.choice([0, 1, 5, 66, 300])))
    again = rows[rng.integers(0, len(rows), min(len(rows), 10))] if len(rows) else fresh[:1]
    added = np.concatenate([fresh, again])
    named = make_ids(rng, id_kind, len(added))
    some = int(rng.integers(0, 20))
    removed_rows = rng.permutation(np.concatenate([rows, added]))[:some]
    back = removed_rows[: some // 2]
    number = rng.integers(0, max(len(rows), 1), some)
    known = (
        number.astype(np.uint64)
        if ids is None
        else [ids[i] for i in number.tolist()]
        if len(rows)
        else []
    )
    changes = [
        Change("insert", shape, added, named),
        Change("delete", shape, removed_rows),
        Change("delete", shape, removed_rows[:0], known if len(rows) else np.empty(0, np.uint64)),
        Change("insert", shape, back, make_ids(rng, id_kind, len(back))),
    ]
    if id_kind != "rows":
        more = _near(rng, shape, rows, 30)
        changes.append(Change("probe_insert", shape, more, _unique(id_kind, rng, len(more))))
    return changes


def _near(rng: Rng, shape: Shape, rows: Words, count: int) -> Words:
    """Return fingerprints that are not stored yet, near the rows."""
    return without(make_queries(rng, shape, rows, 2, count, count), rows)


def _unique(id_kind: str, rng: Rng, count: int) -> Any:
    numbers = 10**12 * rng.integers(1, 10**6) + rng.permutation(count)
    return (
        [f"fresh {number}" for number in numbers.tolist()]
        if id_kind == "strings"
        else numbers.astype(np.uint64)
    )
