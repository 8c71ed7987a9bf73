"""The stores to be damaged, and what each of them holds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore
from fpstore.base.width import Width, distinct_rows, is_member, row_order, row_place
from fpstore.format.shards import shard_name

Words = npt.NDArray[np.uint64]
QUERIES = 90
CHANGED = 60  # rows of each change


class Spec(NamedTuple):
    """A kind of store, sharded store or LSH index: what it holds, and what was done to it."""

    ids: str  # row, integer, string
    design: str = "manku-4"
    radius: int = 3
    fingerprint_count: int = 500
    each: int = 1  # ids of a fingerprint, at most
    name_bytes: int = 12
    changed: bool = False  # a log with inserts and deletes that are not merged
    merged: bool = False  # a second generation before
    merge_design: str | None = None
    block_bytes: int = 128
    index_ids: bool = False
    width: int = 64
    # LMDB files are not checked when they are opened, as those over 4 MiB are not
    trusting: bool = False
    shards: int = 0  # of a sharded store; their changes come before they are combined
    lsh: bool = False


SPECS = {
    "rows": Spec("row"),
    "integers": Spec("integer", "flip-2", each=6),
    "indexed integers": Spec("integer", "flip-2", each=3, changed=True, index_ids=True),
    "strings": Spec("string", "blocks-3-1", 2, each=3),
    "inserts": Spec("string", "manku-10", each=2, changed=True),
    "merged": Spec("string", each=3, changed=True, merged=True),
    "redesigned": Spec(
        "integer",
        "flip-1",
        each=2,
        changed=True,
        merged=True,
        merge_design="manku-4",
        block_bytes=256,
    ),
    "trusting rows": Spec("row", "flip-2", changed=True, trusting=True),
    "trusting integers": Spec("integer", "flip-2", each=40, trusting=True),
    "trusting strings": Spec("string", "blocks-3-1", 2, each=3, trusting=True),
    "trusting merged": Spec("string", each=3, changed=True, merged=True, trusting=True),
    # ids.mdb of more than 4 MiB
    "large ids": Spec("integer", "flip-2", fingerprint_count=13_000, each=42),
    # strings.mdb of more than 4 MiB
    "large strings": Spec("string", "flip-2", fingerprint_count=12_000, name_bytes=800),
    "large merged": Spec(
        "string", "flip-2", fingerprint_count=12_000, name_bytes=800, changed=True, merged=True
    ),
}
SPECS |= {
    "32 bits": Spec("integer", "flip-2", each=3, changed=True, width=32),
    "merged 32 bits": Spec("string", each=2, changed=True, merged=True, width=32),
    "128 bits": Spec("integer", each=3, changed=True, width=128),
    "merged 128 bits": Spec(
        "string", "blocks-3-1", 2, each=2, changed=True, merged=True, width=128, block_bytes=256
    ),
    "256 bits": Spec("string", "flip-2", each=2, changed=True, width=256, block_bytes=256),
    "merged 256 bits": Spec(
        "row", changed=True, merged=True, merge_design="flip-1", width=256, trusting=True
    ),
}
SPECS |= {
    "copies": Spec("integer", "columns-4-10", each=3, changed=True, index_ids=True),
    "merged copies": Spec("string", "dealt-6-9", 4, each=2, changed=True, merged=True),
    "columns after blocks": Spec(
        "row", "flip-2", changed=True, merged=True, merge_design="columns-3-9"
    ),
    "copies of 32 bits": Spec("string", "columns-2-9", each=2, changed=True, merged=True, width=32),
    "references of 128 bits": Spec("row", "columns-8-9", 7, changed=True, width=128),
    "merged references of 128 bits": Spec(
        "integer", "dealt-8-8", each=2, changed=True, merged=True, width=128
    ),
    "references of 256 bits": Spec(
        "integer", "columns-16-8", 20, fingerprint_count=3000, each=2, width=256
    ),
    "merged references of 256 bits": Spec(
        "string", "columns-8-11", each=3, changed=True, merged=True, width=256
    ),
}
SPECS |= {
    "sharded rows": Spec("row", shards=3),
    "sharded integers": Spec("integer", "flip-2", each=3, changed=True, index_ids=True, shards=3),
    "sharded strings": Spec("string", each=2, changed=True, merged=True, shards=2, trusting=True),
    "index of rows": Spec("row", fingerprint_count=150, lsh=True),
    "index of integers": Spec(
        "integer", fingerprint_count=200, changed=True, index_ids=True, lsh=True
    ),
    "index of strings": Spec("string", fingerprint_count=200, changed=True, merged=True, lsh=True),
    "trusting index": Spec(
        "string", fingerprint_count=200, changed=True, merged=True, trusting=True, lsh=True
    ),
}
LARGE = tuple(name for name in SPECS if name.startswith("large"))


class Pairs(NamedTuple):
    """Fingerprints, as rows, and the numbers of their ids, ascending."""

    fingerprints: Words
    numbers: Words

    def keys(self, width: Width) -> set[tuple[int, int]]:
        return set(zip(width.numbers(self.fingerprints), self.numbers.tolist(), strict=True))

    def equal(self, other: Pairs) -> bool:
        return np.array_equal(self.fingerprints, other.fingerprints) and np.array_equal(
            self.numbers, other.numbers
        )


def in_order(fingerprints: Words, numbers: Words) -> Pairs:
    order = row_order(fingerprints, numbers)
    return Pairs(fingerprints[order], numbers[order])


class Store:
    """A store to be damaged.

    Its folder, older states, a stranger, a twin (same fingerprints, other ids), the truth.
    """

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.spec = spec = SPECS[name]
        self.name, self.folder = name, folder
        self.width = Width(spec.width)
        self.rng = np.random.default_rng([seed, *name.encode()])
        folder.mkdir(parents=True)
        self.path, self.stranger, self.twin = folder / "now", folder / "stranger", folder / "twin"
        self.older: list[Path] = []
        self.parts = [shard_name(number) for number in range(spec.shards)]
        self.numbers: dict[str, int] = {}
        fingerprints = self._fingerprints(spec.fingerprint_count)
        counts = (
            self.rng.integers(1, spec.each + 1, spec.fingerprint_count)
            if spec.each > 1
            else np.ones(spec.fingerprint_count, np.int64)
        )
        fingerprints = np.repeat(fingerprints, counts, axis=0)
        ids = np.arange(len(fingerprints), dtype=np.uint64)
        if spec.ids == "integer":
            ids = self.rng.integers(0, 2**64, len(fingerprints), np.uint64)
        self.now = self.ever = in_order(fingerprints, ids)
        self._build(self.path, fingerprints, ids)
        self._keep_state()
        self._build(
            self.stranger,
            np.repeat(self._fingerprints(spec.fingerprint_count), counts, axis=0),
            ids[::-1].copy(),
        )
        self._build(self.twin, fingerprints, ids[::-1].copy())
        if spec.changed:
            self._change(self.path)
            self._change(self.stranger, False)
            self._change(self.twin, False)
        if spec.merged:
            self._keep_state()
            for path in (self.path, self.stranger, self.twin):
                self._each(path, self._merge)
            self._change(self.path)
            self._keep_state()
            self._change(self.path)
            self._change(self.stranger, False)
            self._change(self.twin, False)
        self.queries = self._queries()
        self.matches = self.near(self.queries, spec.radius)
        self.steps = self._steps()

    def _fingerprints(self, count: int) -> Words:
        """Return different ones, half of them near others.

        Of the wide ones a third has one of three leading words.
        """
        rows = self.width.from_bytes(self.rng.integers(0, 256, (count, self.width.bytes), np.uint8))
        if self.width.words > 1:
            rows[::3, 0] = self.rng.choice(
                np.array([0, 7 << 40, 2**64 - 1], np.uint64), len(rows[::3])
            )
        pool: Words = distinct_rows(np.concatenate([self._flipped(rows[: count // 2]), rows]))
        return pool[self.rng.permutation(len(pool))[:count]]

    def _flipped(self, rows: Words) -> Words:
        """Return rows with one bit of each flipped."""
        data, bits = self.width.to_bytes(rows), self.rng.integers(0, self.width.bits, len(rows))
        data[np.arange(len(rows)), bits // 8] ^= (1 << bits % 8).astype(np.uint8)
        return self.width.from_bytes(data)

    def ids(self, numbers: Words) -> Any:
        """Return ids as they are given to the store."""
        if self.spec.ids != "string":
            return numbers
        more = (self.spec.name_bytes - 12) // 2  # which nothing compresses to less than half
        names = [
            f"{number:012}{random.Random(number).randbytes(more).hex()}"
            for number in numbers.tolist()
        ]
        self.numbers.update(zip(names, numbers.tolist(), strict=True))
        return names

    def _keep_state(self) -> None:
        self.older.append(self.folder / f"older-{len(self.older)}")
        shutil.copytree(self.path, self.older[-1])

    def _build(self, path: Path, fingerprints: Words, numbers: Words) -> None:
        if not self.parts:
            self._build_one(path, fingerprints, numbers)
            return
        path.mkdir()
        cuts = np.array_split(np.arange(len(numbers)), len(self.parts))
        for name, rows in zip(self.parts, cuts, strict=True):
            self._build_one(path / name, fingerprints[rows], numbers[rows])
        fpstore.ShardedStore.combine(path).close()

    def _each(self, path: Path, change: Callable[[fpstore.Store, int], None]) -> None:
        """Change a store, or each shard of it by its number."""
        for number, part in enumerate(self.parts or [""]):
            with fpstore.open(path / part, "r+") as store:
                change(store, number)
        if self.parts:
            fpstore.ShardedStore.combine(path).close()

    def _merge(self, store: fpstore.Store, _: int) -> None:
        if self.spec.merge_design is None:
            store.merge(memory="64MiB", threads=1)
        else:
            store.redesign(self.spec.merge_design, memory="64MiB", threads=1)

    def _build_one(self, path: Path, fingerprints: Words, numbers: Words) -> None:
        spec = self.spec
        fpstore.build(
            path,
            self.width.to_array(fingerprints),
            None if spec.ids == "row" else self.ids(numbers),
            width=spec.width,
            radius=spec.radius,
            design=spec.design,
            block_bytes=spec.block_bytes,
            memory="64MiB",
            threads=1,
            fingerprinter=fpstore.SimHash(width=spec.width),
            index_ids=spec.index_ids,
            filter=True,
        ).close()

    def _change(self, path: Path, ours: bool = True) -> None:
        """Insert and delete, in several commits."""
        added = in_order(
            self._fingerprints(CHANGED), self.rng.integers(2**62, 2**63, CHANGED, np.uint64)
        )
        removed = self.rng.choice(distinct_rows(self.now.fingerprints), CHANGED // 2, replace=False)

        def change(store: fpstore.Store, part: int) -> None:
            for start in range(20 * part, CHANGED, 20 * max(len(self.parts), 1)):
                rows = self.width.to_array(added.fingerprints[start : start + 20])
                store.insert(rows, self.ids(added.numbers[start : start + 20]))
            store.delete(fingerprints=self.width.to_array(removed))

        self._each(path, change)
        if ours:
            self.now = self._with(added)
            self.ever = Pairs(*map(np.concatenate, zip(self.ever, added, strict=True)))
            self.now = self._without(is_member(self.now.fingerprints, removed))

    def _with(self, added: Pairs) -> Pairs:
        return in_order(*map(np.concatenate, zip(self.now, added, strict=True)))

    def _without(self, gone: npt.NDArray[np.bool_]) -> Pairs:
        return Pairs(self.now.fingerprints[~gone], self.now.numbers[~gone])

    def _queries(self) -> Words:
        stored = self.rng.choice(self.now.fingerprints, QUERIES)
        for i in range(self.spec.radius + 1):
            stored[i::5] = self._flipped(stored[i::5])
        ever = distinct_rows(self.ever.fingerprints)
        deleted = ever[~is_member(ever, self.now.fingerprints)][:5]
        strangers = self.width.from_bytes(
            self.rng.integers(0, 256, (10, self.width.bytes), np.uint8)
        )
        return np.concatenate(
            [stored, deleted, strangers, self.width.rows([0, 2**self.width.bits - 1])]
        )

    def near(self, queries: Words, radius: int) -> list[list[tuple[int, int]]]:
        """Return (distance, fingerprint) of the matches of each query."""
        stored = distinct_rows(self.now.fingerprints)
        out = []
        for query in queries:
            distances = np.bitwise_count(stored ^ query).reshape(len(stored), -1).sum(1, np.int64)
            hits = np.flatnonzero(distances <= radius)
            out.append(
                sorted(zip(distances[hits].tolist(), self.width.numbers(stored[hits]), strict=True))
            )
        return out

    def of(self, fingerprint: int) -> list[int]:
        """Return the numbers of the ids of a fingerprint."""
        row = self.width.row(fingerprint)
        start, end = (row_place(self.now.fingerprints, row, side) for side in ("left", "right"))
        numbers: list[int] = self.now.numbers[start:end].tolist()
        return numbers

    def _steps(self) -> list[tuple[str, Any, int, Pairs]]:
        """Return changes: what is called, with what, what it returns, and what is stored then."""
        before = self.now
        added = in_order(self._fingerprints(20), self.rng.integers(2**61, 2**62, 20, np.uint64))
        steps: list[tuple[str, Any, int, Pairs]] = [
            (
                "insert",
                (self.width.to_array(added.fingerprints), self.ids(added.numbers)),
                20,
                self._with(added),
            )
        ]
        self.now = steps[0][3]
        removed = self.rng.choice(self.now.fingerprints, 5)
        gone = is_member(self.now.fingerprints, removed)
        self.now = self._without(gone)
        steps.append(
            ("delete", {"fingerprints": self.width.to_array(removed)}, int(gone.sum()), self.now)
        )
        gone = np.isin(self.now.numbers, self.rng.choice(self.now.numbers, 5))
        removed = np.unique(self.now.numbers[gone])
        self.now = self._without(gone)
        steps.append(("delete", {"ids": self.ids(removed)}, int(gone.sum()), self.now))
        self.now = before
        return steps
