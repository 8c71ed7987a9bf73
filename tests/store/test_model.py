"""A store that changes, against a plain model.

Random changes by one writer, readers that follow, crashes and merges.
"""

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from forks import Child, reader
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from store_model import MAX, Model, answers, check_merged, content_of, expected, plain, words

import fpstore

# probes beyond the store's radius are meant
pytestmark = pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")

BLOCK_BYTES = 128
DESIGNS = [
    ("flip-2", 1),
    ("flip-2", 2),
    ("flip-2", 3),
    ("flip-2", 4),
    ("flip-3", 2),
    ("manku-4", 3),
    ("blocks-3-1", 2),
    ("blocks-4-2", 2),
    ("blocks-5-1", 4),
    ("blocks-6-3", 3),
    ("columns-2-10", 5),
    ("columns-4-8", 3),
    ("dealt-5-9", 4),
]


def make_pool():
    """Return fingerprints within 6 bits of few centres, and around both ends of the range."""
    rng = np.random.default_rng(3)
    centres = [
        0,
        MAX,
        0x0123456789ABCDEF,
        0x0123456789ABCDEF ^ 0xFF << 28,
        int(rng.integers(0, 2**64, dtype=np.uint64)),
    ]
    pool = list(centres)
    for centre in centres:
        for bits in (1, 1, 1, 2, 2, 3, 4, 5, 6):
            changed = sum(1 << bit for bit in rng.choice(64, bits, replace=False).tolist())
            pool.append(centre ^ changed)
    return pool


POOL = make_pool()
MORE = np.random.default_rng(4).integers(0, 2**64, 560, np.uint64).tolist()
IDS = {
    "row": [*range(12), 1000, 2**40],
    "integer": [*range(10), 2**31, 2**63, MAX - 1, MAX],
    "string": [
        "a",
        "b",
        "c",
        "d",
        "0",
        "Grüße",
        "文档",
        "x" * 600,
        "x" * 600 + "y",
        "\x00",
        "e",
        "f",
    ],
}

fingerprints = st.sampled_from(POOL)
places = st.integers(0, 11)  # of an id among those of the kind
pairs = st.lists(st.tuples(fingerprints, places), max_size=8)
syncs = st.sampled_from([None, None, None, "commit", "batch", "none"])


class Machine(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model.

    Then all stores must answer as the model does.
    """

    @initialize(
        kind=st.sampled_from(["row", "integer", "string"]),
        shape=st.sampled_from(DESIGNS),
        size=st.sampled_from([0, 3, 600]),
    )
    def start(self, kind, shape, size):
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.path = self.place / "s.fps"
        self.kind, (design, self.radius) = kind, shape
        stored = (POOL[::2] + MORE + POOL[:20])[:size] if size > 3 else POOL[5 : 5 + size]
        ids = None if kind == "row" or not size else [IDS[kind][i * i % 12] for i in range(size)]
        options = {"radius": self.radius, "design": design, "block_bytes": BLOCK_BYTES}
        fpstore.build(self.path, words(stored), ids, **options).close()
        inputs = range(size) if ids is None else ids
        self.model = Model(kind, zip(stored, inputs, strict=True), size if kind == "row" else 0)
        # what others may see: the last commit, and then each change after it
        self.states = [self.model.copy()]
        self.batched = False
        self.other = reader(self.path)
        self.near = fpstore.open(self.path)
        self.store = fpstore.open(self.path, "r+")
        self.step = 0

    # What every change does

    def wrote(self, sync):
        """Note a change, and what others see of it."""
        if sync in (None, "commit"):
            self.committed()
        else:
            self.states.append(self.model.copy())
            self.batched |= sync == "batch"

    def committed(self):
        self.states = [self.model.copy()]
        self.batched = False

    def ids(self, places):
        return [IDS[self.kind][place] for place in places]

    @property
    def undecided(self):
        """Whether the first ids decide of what kind they are: only the id-less keep rows rows."""
        return self.kind == "row" and self.model.next_row == 0

    # Rules

    @rule(rows=pairs, sync=syncs)
    def insert(self, rows, sync):
        values = [value for value, _ in rows]
        ids = self.ids(place for _, place in rows)
        if self.undecided:
            ids = None
        assert self.store.insert(values, ids, sync=sync) == self.model.insert(values, ids)
        self.wrote(sync)

    @precondition(lambda self: self.kind == "row")
    @rule(values=st.lists(fingerprints, max_size=6), sync=syncs)
    def insert_rows(self, values, sync):
        assert (
            self.store.insert(words(values), sync=sync) == self.model.insert(values) == len(values)
        )
        self.wrote(sync)

    @precondition(lambda self: not self.undecided)
    @rule(
        value=fingerprints, place=places, bits=st.sets(st.integers(0, 63), max_size=3), sync=syncs
    )
    def insert_one(self, value, place, bits, sync):
        value ^= sum(1 << bit for bit in bits)
        (item,) = self.ids([place])
        assert self.store.insert(value, item, sync=sync) == self.model.insert([value], [item])
        self.wrote(sync)

    @precondition(lambda self: not self.undecided)
    @rule(
        value=fingerprints, place=places, less=st.integers(0, 4), always=st.booleans(), sync=syncs
    )
    def probe_insert(self, value, place, less, always, sync):
        radius = max(self.radius - less, 0)
        (item,) = self.ids([place])
        before = self.model.matches(value, radius)
        self.model.probe_insert(value, item, radius, always)
        got = self.store.probe_insert(
            value, item, None if less == 0 else radius, always=always, sync=sync
        )
        assert plain(got) == before
        self.wrote(sync)

    @precondition(lambda self: not self.undecided)
    @rule(value=fingerprints, place=places, less=st.integers(0, 4), sync=syncs)
    def probe_upsert(self, value, place, less, sync):
        (item,) = self.ids([place])
        wanted = self.model.probe_upsert(value, item, max(self.radius - less, 0))
        got = self.store.probe_upsert(value, item, max(self.radius - less, 0), sync=sync)
        assert [(match.distance, match.fingerprint) for match in got] == wanted
        self.wrote(sync)

    @precondition(lambda self: not self.undecided)
    @rule(
        rows=pairs,
        less=st.integers(0, 4),
        always=st.booleans(),
        threads=st.sampled_from([1, 2]),
        sync=syncs,
    )
    def probe_insert_many(self, rows, less, always, threads, sync):
        radius = max(self.radius - less, 0)
        values = [value for value, _ in rows]
        ids = self.ids(place for _, place in rows)
        matches = [
            self.model.probe_insert(value, item, radius, always)
            for value, item in zip(values, ids, strict=True)
        ]
        got = self.store.probe_insert_many(
            words(values), ids, radius, always=always, threads=threads, sync=sync
        )
        assert got.inserted.tolist() == [inserted for _, inserted in matches]
        content = self.model.content
        wanted = [
            [(value, distance, sorted(content[value])) for distance, value in near]
            for near, _ in matches
        ]
        assert [plain(part) for part in got] == wanted
        self.wrote(sync)

    @precondition(lambda self: not self.undecided)
    @rule(rows=pairs, less=st.integers(0, 4), threads=st.sampled_from([1, 2]), sync=syncs)
    def probe_upsert_many(self, rows, less, threads, sync):
        radius = max(self.radius - less, 0)
        values = [value for value, _ in rows]
        ids = self.ids(place for _, place in rows)
        wanted = []
        for value, item in zip(values, ids, strict=True):
            near = self.model.probe_upsert(value, item, radius)
            wanted.append(
                [
                    (fingerprint, distance, sorted(self.model.content[fingerprint]))
                    for distance, fingerprint in near
                ]
            )
        got = self.store.probe_upsert_many(words(values), ids, radius, threads=threads, sync=sync)
        assert got.inserted.tolist() == [not near for near in wanted]
        assert [plain(part) for part in got] == wanted
        self.wrote(sync)

    @rule(chosen=st.lists(places, max_size=4), sync=syncs)
    def delete_ids(self, chosen, sync):
        ids = self.ids(chosen)
        assert self.store.delete(ids=ids, sync=sync).removed == self.model.delete_ids(ids)
        self.wrote(sync)

    @rule(chosen=st.lists(fingerprints, max_size=5), sync=syncs)
    def delete_fingerprints(self, chosen, sync):
        assert self.store.delete(
            fingerprints=chosen, sync=sync
        ).removed == self.model.delete_fingerprints(chosen)
        self.wrote(sync)

    @rule(bit=st.integers(0, 63), sync=syncs)
    def delete_half(self, bit, sync):
        chosen = [value for value in self.model.content if value >> bit & 1]
        assert self.store.delete(
            fingerprints=words(chosen), sync=sync
        ).removed == self.model.delete_fingerprints(chosen)
        self.wrote(sync)

    @rule(chosen=st.lists(places, min_size=1, max_size=3), sync=syncs)
    def delete_and_insert_again(self, chosen, sync):
        ids = self.ids(chosen)
        gone = [(value, item) for value, item in self.model.rows() if item in ids][::2]
        assert self.store.delete(ids=ids, sync=sync).removed == self.model.delete_ids(ids)
        self.wrote(sync)
        values, again = [value for value, _ in gone], [item for _, item in gone]
        assert (
            self.store.insert(words(values), again, sync=sync)
            == self.model.insert(values, again)
            == len(gone)
        )
        self.wrote(sync)

    @rule(threads=st.sampled_from([1, 2]))
    def merge(self, threads):
        self.store.merge(threads=threads)
        self.committed()
        if self.store.stats()["generation"] > 1:
            check_merged(self.path, self.model, self.store, self.place)

    @rule()
    def flush(self):
        self.store.flush()
        self.committed()

    @rule()
    def reopen(self):
        self.store.close()
        self.committed()
        self.store = fpstore.open(self.path, "r+")

    @rule(
        data=st.data(),
        kill=st.booleans(),
        sync=st.sampled_from(["commit", "commit", "batch", "none"]),
    )
    def crash(self, data, kill, sync):
        """Let another process be the writer, and die."""
        self.store.close()
        self.committed()
        changes = data.draw(
            st.lists(
                st.one_of(inserts, id_deletes, deletes, merges, flushes), min_size=1, max_size=5
            )
        )
        if self.undecided:
            changes = [change for change in changes if change[0] != "insert"]
        acknowledged = data.draw(st.integers(0, len(changes)))
        pause = data.draw(st.sampled_from([0, 0.0002, 0.001, 0.003]))
        child = Child(lambda pipe: self.change(pipe, changes, sync))
        for _ in range(acknowledged):
            child.receive()
        if kill:
            time.sleep(pause)
        else:
            for _ in range(len(changes) - acknowledged):
                child.receive()
            acknowledged = len(changes)
        acknowledged += len(child.kill())
        after = [self.model.copy()]
        safe = 0
        for number, change in enumerate(changes, 1):
            self.apply(self.model, change)
            after.append(self.model.copy())
            if number <= acknowledged and (sync == "commit" or change[0] in ("merge", "flush")):
                safe = number
        self.store = fpstore.open(self.path, "r+")
        content = content_of(self.store)
        possible = after[safe : acknowledged + 2]
        results = [model for model in possible if model.content == content]
        stored = {(value, item) for value, ids in content.items() for item in ids}
        assert results, (acknowledged, [stored ^ set(model.rows()) for model in possible])
        if self.kind == "row":  # states that differ only in the next row are told apart by it
            next_row = self.store.snapshot().totals.next_row
            results = [model for model in results if model.next_row == next_row]
            assert results
        self.model = results[0]
        self.committed()
        leftovers = [entry.name for entry in self.path.iterdir() if entry.name.endswith(".tmp")]
        assert not leftovers

    def change(self, pipe, changes, sync):
        store = fpstore.open(self.path, "r+", sync=sync)
        for change in changes:
            self.apply(store, change)
            pipe.send("done")
        pipe.recv()

    def apply(self, target, change):
        kind, what = change
        model = isinstance(target, Model)
        if kind == "insert":
            values = [value for value, _ in what]
            target.insert(values, self.ids(place for _, place in what))
        elif kind == "delete ids":
            ids = self.ids(what)
            target.delete_ids(ids) if model else target.delete(ids=ids)
        elif kind == "delete":
            target.delete_fingerprints(what) if model else target.delete(fingerprints=what)
        elif not model:
            target.merge() if kind == "merge" else target.flush()

    @rule()
    def backup(self):
        self.store.backup(self.place / "copy.fps", overwrite=True)
        self.committed()
        with fpstore.open(self.place / "copy.fps") as copy:
            assert content_of(copy) == self.model.content
            assert copy.verify().ok

    # Checks

    @invariant()
    def everybody_answers_as_the_model_does(self):
        self.step += 1
        rng = np.random.default_rng(self.step)
        queries = (
            rng.choice(words(POOL), 8).tolist() + rng.choice(words(MORE), 2).tolist() + [0, MAX]
        )
        queries = [
            query ^ 1 << int(rng.integers(64)) if m % 3 == 1 else query
            for m, query in enumerate(queries)
        ]
        ids = [IDS[self.kind][place] for place in rng.choice(12, 4)]
        wide = self.radius + 3
        question = (queries, ids, wide)
        assert answers(self.store, *question) == expected(self.model, self.radius, *question)
        possible = [
            expected(model, self.radius, *question)
            for model in (self.states if self.batched else self.states[:1])
        ]
        for ask in (lambda: self.other.ask(*question), lambda: answers(self.near, *question)):
            seen = ask()
            if self.batched and seen not in possible:
                seen = ask()  # what was queued was committed between two of the questions
            assert seen in possible
            possible = possible[possible.index(seen) :]  # who asks later sees no less

    def teardown(self):
        if not hasattr(self, "store"):
            return
        try:
            for store in (self.store, self.near):
                report = store.verify()
                assert report.ok, report.faults
        finally:
            self.store.close()
            self.near.close()
            code = self.other.end()
            self.folder.cleanup()
        assert code == 0
        assert not os.path.exists(self.path)  # noqa: PTH110


inserts = st.tuples(st.just("insert"), pairs)
id_deletes = st.tuples(st.just("delete ids"), st.lists(places, max_size=4))
deletes = st.tuples(st.just("delete"), st.lists(fingerprints, max_size=5))
merges = st.just(("merge", None))
flushes = st.just(("flush", None))

QUIET = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "report_multiple_bugs": False,
    # without the phase that explains, which traces every line
    "phases": [Phase.reuse, Phase.generate, Phase.shrink],
}


def test_any_changes():
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=4, stateful_step_count=25, **QUIET)
    )


@pytest.mark.slow
def test_many_more_changes():
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=400, stateful_step_count=50, **QUIET)
    )
