"""Pairs, clusters and joins of a store, each compared with brute force.

In small memory, with threads, and by drawn designs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fpstore import InputError, Store
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.design.joins import JoinDesign, dealt_design, designs, varying_bits
from fpstore.design.sample import Sample
from fpstore.io.check import check_fingerprints
from fpstore.jobs import grouping, joining, pairs, sorting
from fpstore.jobs.clusters import cluster_grouping, find_clusters
from fpstore.jobs.pairs import find_joined_pairs, find_pairs
from fpstore.jobs.row_set import read_row_set
from fpstore.query.store_snapshot import StoreSnapshot
from sweep import groups
from sweep.cases import STATES
from sweep.data import Ids, Rng, Shape, Words, distinct, make_ids, make_queries
from sweep.model import Model

if TYPE_CHECKING:
    from sweep.asking import Asker

MAX_PAIRS = 1 << 18  # of one question: its radius is cut
MAX_ROWS = 20_000  # pairs of ids that are looked at
MAX_STORED_ROWS = 5000  # all of which are compared with each other
MAX_OTHER_ROWS = 400  # of an array that is joined with a store
MAX_BUCKET_BITS = 12  # of a design that is drawn
RULES = ("first", "smallest", "central")

Triples = npt.NDArray[np.int64]  # place, place, distance of each pair


@contextmanager
def changed(*changes: tuple[Any, Mapping[str, Any]]) -> Iterator[None]:
    """Give names of modules and classes other values for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, values in changes for name in values]
    try:
        for owner, values in changes:
            for name, value in values.items():
                setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


class JoinAsker:
    """Asks a store in one state for everything that is a join."""

    def __init__(self, asker: Asker, store: Store, state: str) -> None:
        self.asker, self.store, self.state = asker, store, state
        self.shape, self.now = asker.shape, asker.now
        self.width = Width(self.shape.bits)
        self.rng: Rng = np.random.default_rng(
            [asker.case.seed, asker.case.number, STATES.index(state), 99]
        )
        few = self.now if len(self.now) <= MAX_STORED_ROWS else self.now[:0]
        self.distances = groups.all_distances(self.shape, few, few)

    def all(self) -> None:
        """Ask for pairs, clusters and joins."""
        if len(self.now) <= MAX_STORED_ROWS:
            self.pairs()
            self.designed()
            self.clusters()
        self.array()

    # How

    def radius(self) -> int:
        """Return a radius, mostly a small one."""
        return int(self.rng.integers(0, 13 if self.rng.random() < 0.7 else self.shape.bits + 1))

    def resources(self) -> Resources:
        """Return a budget that mostly forces spans, and one thread or two."""
        return Resources(
            int(self.rng.choice([1 << 8, 1 << 12, 1 << 15, 1 << 40])), int(self.rng.integers(1, 3))
        )

    @contextmanager
    def small_steps(self) -> Iterator[None]:
        """Let small sets be shared by threads, and found in many batches."""
        rows = int(self.rng.choice([1, 40, joining.MIN_ROWS]))
        part = int(self.rng.choice([1, 40, sorting.PART_ROWS]))
        batch = int(self.rng.choice([1, 3000, joining.BATCH_PAIRS]))
        piece = int(self.rng.choice([1, 9, grouping.PIECE]))
        with changed(
            (joining, {"MIN_ROWS": rows, "BATCH_PAIRS": batch}),
            (sorting, {"PART_ROWS": part}),
            (grouping, {"PIECE": piece}),
        ):
            yield

    def drawn(self, rows: Words, radius: int) -> JoinDesign:
        """Return a design that a set of any size may have, of rows as the package knows them."""
        bits = varying_bits(rows, self.width) if self.rng.random() < 0.5 else None
        choices = [
            d
            for count in (len(rows), 1 << 12, 1 << 20)
            for d in designs(count, radius, self.shape.bits, bits)
        ]
        choices = [d for d in choices if d.tables[0].prefix_bits <= MAX_BUCKET_BITS]
        design = choices[self.rng.integers(0, len(choices))]
        if len(rows) and design.tables[0].prefix_bits and self.rng.random() < 0.2:
            return dealt_design(design, Sample(rows, self.width), bits)
        return design

    # Pairs

    def within(self, radius: int) -> Triples:
        """Return the pairs of the stored fingerprints, by brute force."""
        a, b = np.nonzero(np.triu(self.distances <= radius, 1))
        return np.stack([a, b, self.distances[a, b]], axis=1).astype(np.int64)

    def pairs(self) -> None:
        """Ask for pairs, with their ids."""
        radius = groups.largest_radius(self.distances, 2 * MAX_PAIRS, self.radius())
        resources = self.resources()
        call = (
            f"{self.state}: pairs(radius={radius}) with {resources.memory} bytes, "
            f"threads={resources.threads}"
        )
        self.asker.note(call)
        with self.small_steps():
            batches = list(find_pairs(self.store.snapshot(), radius, resources))
        self.compare(
            call, [(b.a, b.b, b.distances) for b in batches], self.now, self.within(radius)
        )
        ids = self.asker.model.ids_of(self.shape.to_array(self.now))
        self.ids(call, batches, self.within(radius), ids, ids)

    def designed(self) -> None:
        """Ask the kernel for pairs and components, by a design that no planner has chosen."""
        radius = groups.largest_radius(self.distances, 2 * MAX_PAIRS, self.radius())
        resources = self.resources()
        rows = check_fingerprints(self.shape.to_array(self.now), self.width)
        design = self.drawn(rows, radius)
        call = (
            f"{self.state}: design {design.name}, radius={radius}, {resources.memory} bytes, "
            f"threads={resources.threads}"
        )
        self.asker.note(call)
        with self.small_steps():
            parts = list(joining.pairs_within(rows, design, resources))
            sets = joining.connect_rows(rows, design, resources)
        self.compare(call, self.outside(parts), self.now, self.within(radius))
        components = groups.connect(self.distances <= radius)
        self.asker.same(f"{call}, sets", np.array_equal(sets, components), sets, components)
        chosen = self.rng.random(len(rows)) < 0.5
        with self.small_steps():
            parts = list(
                joining.pairs_between(
                    np.ascontiguousarray(rows[chosen]),
                    np.ascontiguousarray(rows[~chosen]),
                    design,
                    resources,
                )
            )
        a, b = np.nonzero((self.distances <= radius) & chosen[:, None] & ~chosen)
        expected = np.stack([a, b, self.distances[a, b]], axis=1).astype(np.int64)
        self.compare(f"{call}, of two sets", self.outside(parts), self.now, expected)

    def outside(self, parts: list[joining.PairColumns]) -> list[tuple[Any, Any, Any]]:
        """Return pairs of the kernel as a store gives them."""
        return [
            (self.width.to_array(part.a), self.width.to_array(part.b), part.distances)
            for part in parts
        ]

    def compare(
        self, call: str, parts: Iterable[tuple[Any, Any, Any]], others: Words, expected: Triples
    ) -> None:
        """Compare pairs, whose second fingerprints are among others, with those by brute force."""
        columns = [
            np.stack(
                [
                    self.places(call, a, self.now),
                    self.places(call, b, others),
                    distances.astype(np.int64),
                ],
                axis=1,
            )
            for a, b, distances in parts
        ]
        got = np.concatenate([np.empty((0, 3), np.int64), *columns])
        got = got[np.lexsort((got[:, 1], got[:, 0]))]
        self.asker.same(
            call,
            np.array_equal(got, expected),
            got[:20].tolist(),
            expected[:20].tolist(),
            len(expected) + 1,
        )

    def places(
        self, call: str, fingerprints: npt.NDArray[Any], known: Words
    ) -> npt.NDArray[np.int64]:
        """Return the places of fingerprints of a store among known ones."""
        rows = (
            fingerprints.astype(np.uint64)
            if self.shape.words == 1
            else fingerprints.view(">u8").astype(np.uint64)
        )
        mixed, keys = _mixed(known), _mixed(rows)
        order = np.argsort(mixed)
        ranks = np.searchsorted(mixed, keys, sorter=order)
        self.asker.same(call, (ranks < len(known)).all(), "a fingerprint that is not stored", "", 0)
        places: npt.NDArray[np.int64] = order[ranks]
        self.asker.same(
            call, np.array_equal(known[places], rows), "a fingerprint that is not stored", "", 0
        )
        return places

    def ids(
        self,
        call: str,
        batches: Iterable[Any],
        expected: Triples,
        ids_a: list[Any],
        ids_b: list[Any],
    ) -> None:
        """Compare the rows of ids, when they are not too many."""
        if (
            sum(len(ids_a[a]) * len(ids_b[b]) for a, b, _ in expected[:MAX_ROWS].tolist())
            > MAX_ROWS
            or len(expected) > MAX_ROWS
        ):
            return
        got: Counter[tuple[Any, Any, int]] = Counter()
        for batch in batches:
            for part in batch.rows_of_ids():
                sides = (
                    part[name] if isinstance(part[name], list) else part[name].tolist()
                    for name in ("id_a", "id_b")
                )
                got.update(zip(*sides, part["distance"].tolist(), strict=True))
        counts = Counter(
            (i, j, d) for a, b, d in expected.tolist() for i in ids_a[a] for j in ids_b[b]
        )
        self.asker.same(f"{call}, ids", got == counts, got - counts, counts - got, len(counts) + 1)

    # Clusters

    def clusters(self) -> None:
        """Ask for clusters of a kind."""
        radius, resources = self.radius(), self.resources()
        group, rule = str(self.rng.choice(["connected", "greedy"])), str(self.rng.choice(RULES))
        call = f"{self.state}: clusters(radius={radius}, group={group}, keep={rule})"
        self.asker.note(f"{call} with {resources.memory} bytes, threads={resources.threads}")
        with self.small_steps():
            try:
                clusters = find_clusters(
                    self.store.snapshot(), cluster_grouping(radius, group, rule, None), resources
                )
            except InputError as error:
                several = any(len(places) > 1 for places in self.documents()[1])
                refused = several and (group == "greedy" or rule == "central")
                self.asker.same(call, refused, error, "clusters")
                return
        names, places = self.documents()
        expected = [
            [names[document] for document in members]
            for members in self.wanted_groups(radius, group, rule, places)
        ]
        self.asker.same(
            call, list(clusters) == expected, list(clusters), expected, len(expected) + 1
        )
        self.asker.same(call, clusters.documents == len(names), clusters.documents, len(names))

    def documents(self) -> tuple[list[int | str], list[list[int]]]:
        """Return the ids in the order of their numbers, and the places of their fingerprints."""
        order = {name: place for place, name in enumerate(self.asker.model.seen)}
        place_of = {
            fingerprint: place for place, fingerprint in enumerate(sorted(self.asker.model.ids))
        }
        by_id = self.asker.model.by_id()
        names = sorted(by_id, key=lambda name: order[name] if isinstance(name, str) else name)
        return names, [[place_of[fingerprint] for fingerprint in by_id[name]] for name in names]

    def wanted_groups(
        self, radius: int, group: str, rule: str, places: list[list[int]]
    ) -> list[list[int]]:
        """Return the groups of documents, by their numbers."""
        sets = groups.united(
            groups.connect(self.distances <= radius),
            [members for members in places if len(members) > 1],
        )
        firsts = [members[0] for members in places]
        documents = groups.members([int(sets[first]) for first in firsts])
        ranks: dict[int, Any] = {
            document: document for members in documents for document in members
        }
        if rule == "smallest":
            names = self.documents()[0]
            ranks = {document: names[document] for document in ranks}
        elif rule == "central":
            ranks = {
                document: far
                for members in documents
                for document, far in zip(
                    members,
                    groups.from_majority(self.now, [firsts[document] for document in members]),
                    strict=True,
                )
            }
        return groups.put_representatives_first(
            documents, ranks, self.distances, radius, firsts, group == "greedy"
        )

    # Joins

    def array(self) -> None:
        """Ask for the pairs of the store and an array."""
        count = int(self.rng.choice([0, 1, 2, 33, MAX_OTHER_ROWS]))
        rows = make_queries(
            self.rng, self.shape, self.now, int(self.rng.integers(0, 5)), count, count
        )
        ids = make_ids(self.rng, str(self.rng.choice(["rows", "integers", "strings"])), len(rows))
        others = read_row_set(self.shape.to_array(rows), ids, self.width)
        known = distinct(rows)
        self.join("an array", others, known, _ids_of(self.shape, rows, ids, known))

    def stores(self, other: Store, model: Model) -> None:
        """Ask for the pairs of two stores, in both directions."""
        known = model.fingerprints
        ids = model.ids_of(self.shape.to_array(known))
        self.join("another store", other.snapshot(), known, ids)

    def join(self, what: str, other: Any, known: Words, ids: list[Any]) -> None:
        """Ask for the pairs with another side, in one of the ways that there are."""
        distances = groups.all_distances(self.shape, self.now, known)
        radius = groups.largest_radius(distances, MAX_PAIRS, self.radius())
        resources = self.resources()
        way = str(self.rng.choice(["any way", "probes", "tables"]))
        call = f"{self.state}: join({what} of {len(known)}, radius={radius}) by {way}"
        self.asker.note(f"{call} with {resources.memory} bytes, threads={resources.threads}")
        slow = {
            "probes": (pairs, {"join_nanoseconds": _never}),
            "tables": (StoreSnapshot, {"probe_nanoseconds": _never}),
        }.get(way)
        with self.small_steps(), changed(*([] if slow is None else [slow])):
            batches = list(find_joined_pairs(self.store.snapshot(), other, radius, resources))
        a, b = np.nonzero(distances <= radius)
        expected = np.stack([a, b, distances[a, b]], axis=1).astype(np.int64)
        self.compare(
            call, [(batch.a, batch.b, batch.distances) for batch in batches], known, expected
        )
        self.ids(
            call, batches, expected, self.asker.model.ids_of(self.shape.to_array(self.now)), ids
        )


def _mixed(rows: Words) -> Words:
    """Return a number for each row, by which it is found: others have another one."""
    if rows.ndim == 1:
        return rows
    out = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out


def _never(*_: object) -> float:
    return float("inf")


def _ids_of(shape: Shape, rows: Words, ids: Ids, known: Words) -> list[list[int | str]]:
    """Return the ids of each of the distinct rows of an array."""
    by_number: dict[int, list[int | str]] = {
        number: [] for number in shape.numbers(shape.to_array(known))
    }
    names = range(len(rows)) if ids is None else ids if isinstance(ids, list) else ids.tolist()
    for number, name in zip(shape.numbers(shape.to_array(rows)), names, strict=True):
        by_number[number].append(name)
    return list(by_number.values())
