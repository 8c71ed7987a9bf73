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
from fpstore.jobs import grouping, joining, pairs
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

MOST_PAIRS = 1 << 18  # of one question: its radius is cut
MOST_ROWS = 20_000  # pairs of ids that are looked at
MOST_STORED = 5000  # all of which are compared with each other
MOST_OTHERS = 400  # of an array that is joined with a store
MOST_BUCKET_BITS = 12  # of a design that is drawn
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
        few = self.now if len(self.now) <= MOST_STORED else self.now[:0]
        self.distances = groups.all_distances(self.shape, few, few)

    def all(self) -> None:
        """Ask for pairs, clusters and joins."""
        if len(self.now) <= MOST_STORED:
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
        rows, found = (
            int(self.rng.choice([1, 40, joining.LEAST_ROWS])),
            int(self.rng.choice([1, 3000, joining.BATCH_PAIRS])),
        )
        piece = int(self.rng.choice([1, 9, grouping.PIECE]))
        with changed(
            (joining, {"LEAST_ROWS": rows, "BATCH_PAIRS": found}), (grouping, {"PIECE": piece})
        ):
            yield

    def drawn(self, rows: Words, radius: int) -> JoinDesign:
        """Return a design that a set of any size may have, of rows as the package knows them."""
        bits = varying_bits(rows, self.width) if self.rng.random() < 0.5 else None
        some = [
            d
            for count in (len(rows), 1 << 12, 1 << 20)
            for d in designs(count, radius, self.shape.bits, bits)
        ]
        some = [d for d in some if d.tables[0].prefix_bits <= MOST_BUCKET_BITS]
        design = some[self.rng.integers(0, len(some))]
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
        radius, resources = (
            groups.largest_radius(self.distances, 2 * MOST_PAIRS, self.radius()),
            self.resources(),
        )
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
        ids = self.asker.model.ids_of(self.shape.given(self.now))
        self.ids(call, batches, self.within(radius), ids, ids)

    def designed(self) -> None:
        """Ask the kernel for pairs and components, by a design that no planner has chosen."""
        radius, resources = (
            groups.largest_radius(self.distances, 2 * MOST_PAIRS, self.radius()),
            self.resources(),
        )
        rows = check_fingerprints(self.shape.given(self.now), self.width)
        design = self.drawn(rows, radius)
        call = (
            f"{self.state}: design {design.name}, radius={radius}, {resources.memory} bytes, "
            f"threads={resources.threads}"
        )
        self.asker.note(call)
        with self.small_steps():
            parts = list(joining.pairs_within(rows, design, resources))
            sets = joining.connected(rows, design, resources)
        self.compare(call, self.outside(parts), self.now, self.within(radius))
        expected = groups.connected(self.distances <= radius)
        self.asker.same(f"{call}, sets", np.array_equal(sets, expected), sets, expected)
        some = self.rng.random(len(rows)) < 0.5
        with self.small_steps():
            parts = list(
                joining.pairs_between(
                    np.ascontiguousarray(rows[some]),
                    np.ascontiguousarray(rows[~some]),
                    design,
                    resources,
                )
            )
        a, b = np.nonzero((self.distances <= radius) & some[:, None] & ~some)
        wanted = np.stack([a, b, self.distances[a, b]], axis=1).astype(np.int64)
        self.compare(f"{call}, of two sets", self.outside(parts), self.now, wanted)

    def outside(self, parts: list[joining.PairColumns]) -> list[tuple[Any, Any, Any]]:
        """Return pairs of the kernel as a store gives them."""
        return [
            (self.width.to_array(part.a), self.width.to_array(part.b), part.distances)
            for part in parts
        ]

    def compare(
        self, call: str, parts: Iterable[tuple[Any, Any, Any]], others: Words, wanted: Triples
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
            np.array_equal(got, wanted),
            got[:20].tolist(),
            wanted[:20].tolist(),
            len(wanted) + 1,
        )

    def places(self, call: str, given: npt.NDArray[Any], known: Words) -> npt.NDArray[np.int64]:
        """Return where fingerprints that a store gave stand among known ones."""
        wanted = (
            given.astype(np.uint64)
            if self.shape.words == 1
            else given.view(">u8").astype(np.uint64)
        )
        mixed, asked = _mixed(known), _mixed(wanted)
        order = np.argsort(mixed)
        found = np.searchsorted(mixed, asked, sorter=order)
        self.asker.same(call, (found < len(known)).all(), "a fingerprint that is not stored", "", 0)
        places: npt.NDArray[np.int64] = order[found]
        self.asker.same(
            call, np.array_equal(known[places], wanted), "a fingerprint that is not stored", "", 0
        )
        return places

    def ids(
        self, call: str, batches: Iterable[Any], wanted: Triples, ids_a: list[Any], ids_b: list[Any]
    ) -> None:
        """Compare the rows of ids, when they are not too many."""
        if (
            sum(len(ids_a[a]) * len(ids_b[b]) for a, b, _ in wanted[:MOST_ROWS].tolist())
            > MOST_ROWS
            or len(wanted) > MOST_ROWS
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
        expected = Counter(
            (i, j, d) for a, b, d in wanted.tolist() for i in ids_a[a] for j in ids_b[b]
        )
        self.asker.same(
            f"{call}, ids", got == expected, got - expected, expected - got, len(expected) + 1
        )

    # Clusters

    def clusters(self) -> None:
        """Ask for clusters of a kind."""
        radius, resources = self.radius(), self.resources()
        group, rule = str(self.rng.choice(["connected", "greedy"])), str(self.rng.choice(RULES))
        call = f"{self.state}: clusters(radius={radius}, group={group}, keep={rule})"
        self.asker.note(f"{call} with {resources.memory} bytes, threads={resources.threads}")
        with self.small_steps():
            try:
                found = find_clusters(
                    self.store.snapshot(), cluster_grouping(radius, group, rule, None), resources
                )
            except InputError as error:
                several = any(len(places) > 1 for places in self.documents()[1])
                refused = several and (group == "greedy" or rule == "central")
                self.asker.same(call, refused, error, "clusters")
                return
        names, places = self.documents()
        expected = [
            [names[one] for one in some] for some in self.wanted_groups(radius, group, rule, places)
        ]
        self.asker.same(call, list(found) == expected, list(found), expected, len(expected) + 1)
        self.asker.same(call, found.documents == len(names), found.documents, len(names))

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
            groups.connected(self.distances <= radius), [some for some in places if len(some) > 1]
        )
        firsts = [some[0] for some in places]
        found = groups.members([int(sets[first]) for first in firsts])
        ranks: dict[int, Any] = {one: one for some in found for one in some}
        if rule == "smallest":
            names = self.documents()[0]
            ranks = {one: names[one] for one in ranks}
        elif rule == "central":
            ranks = {
                one: far
                for some in found
                for one, far in zip(
                    some, groups.from_majority(self.now, [firsts[one] for one in some]), strict=True
                )
            }
        return groups.represented(found, ranks, self.distances, radius, firsts, group == "greedy")

    # Joins

    def array(self) -> None:
        """Ask for the pairs of the store and an array."""
        count = int(self.rng.choice([0, 1, 2, 33, MOST_OTHERS]))
        rows = make_queries(
            self.rng, self.shape, self.now, int(self.rng.integers(0, 5)), count, count
        )
        ids = make_ids(self.rng, str(self.rng.choice(["rows", "integers", "strings"])), len(rows))
        others = read_row_set(self.shape.given(rows), ids, self.width)
        known = distinct(rows)
        self.join("an array", others, known, _ids_of(self.shape, rows, ids, known))

    def stores(self, other: Store, model: Model) -> None:
        """Ask for the pairs of two stores, in both directions."""
        known = model.fingerprints
        ids = model.ids_of(self.shape.given(known))
        self.join("another store", other.snapshot(), known, ids)

    def join(self, what: str, other: Any, known: Words, ids: list[Any]) -> None:
        """Ask for the pairs with another side, in one of the ways that there are."""
        distances = groups.all_distances(self.shape, self.now, known)
        radius, resources = (
            groups.largest_radius(distances, MOST_PAIRS, self.radius()),
            self.resources(),
        )
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
        wanted = np.stack([a, b, distances[a, b]], axis=1).astype(np.int64)
        self.compare(
            call, [(batch.a, batch.b, batch.distances) for batch in batches], known, wanted
        )
        self.ids(call, batches, wanted, self.asker.model.ids_of(self.shape.given(self.now)), ids)


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
    found: dict[int, list[int | str]] = {number: [] for number in shape.numbers(shape.given(known))}
    names = range(len(rows)) if ids is None else ids if isinstance(ids, list) else ids.tolist()
    for number, name in zip(shape.numbers(shape.given(rows)), names, strict=True):
        found[number].append(name)
    return list(found.values())
