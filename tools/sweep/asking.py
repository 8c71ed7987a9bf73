"""Runs a case: asks a store in every way, and compares the answers with brute force."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import fpstore
from fpstore import Matches, Store, _kernel
from fpstore.base.width import leading_words
from fpstore.design.tables import BLOCKS
from fpstore.io.check import check_fingerprints
from fpstore.store import store_snapshot
from sweep import corpora
from sweep.cases import QUESTIONS, STATES, Case, Question
from sweep.data import Words
from sweep.joins import JoinAsker
from sweep.model import MatchColumns, Model, brute

warnings.simplefilter("ignore", fpstore.ScanWarning)  # probes beyond a store's radius are meant

MAX_MATCHES = 1 << 20  # of one question: its batch is cut
MAX_IDS = 5_000  # of one question about ids
SCAN_MATCHES = 1 << 15
MAX_SCANNED_PAIRS = 1 << 19  # pairs of query and row
SHARING = 500  # queries of a batch that ask for what has the same leading bits
SINGLE = 6  # queries of a batch that are asked one at a time
LISTED = 200  # fingerprints and ids that are looked up


class DifferenceError(Exception):
    """An answer is not that of brute force."""


class Asker:
    """Asks one store in one state, and counts the answers that were compared."""

    def __init__(self, case: Case, note: Callable[[str], None]) -> None:
        self.case, self.note = case, note
        self.answers = 0
        self.shape = case.shape
        self.model = Model(case.shape, case.rows, case.ids)
        self.now = self.model.fingerprints

    def same(
        self, call: str, ok: object, got: object = "", expected: object = "", count: int = 1
    ) -> None:
        """Count answers, or stop at a difference."""
        if not ok:
            raise DifferenceError(f"{call}: got {_short(got)}, expected {_short(expected)}")
        self.answers += count

    def state(self, store: Store, state: str) -> None:
        """Ask everything about one state."""
        self.now = self.model.fingerprints
        for place in range(QUESTIONS[state]):
            self.numbered(store, state, place)
        self.whole(store, state)
        JoinAsker(self, store, state).all()

    def numbered(self, store: Store, state: str, place: int) -> None:
        """Ask one of the case's questions, with the instruction set that it names."""
        question = self.case.question(state, place)
        isas = _kernel.available_isas()
        _kernel.select_isa(isas[question.isa % len(isas)])
        self.batch(
            store,
            question,
            f"{state}: question {place}, {_kernel.isa()}, threads={question.threads}",
        )

    def batch(self, store: Store, question: Question, where: str) -> None:
        """Ask about a batch in each way there is for many queries, and some of it one at a time."""
        radius, threads = question.radius, question.threads
        queries, expected = self.truth(question.queries, radius, MAX_MATCHES)
        call = f"{where}: probe_many({len(queries)} queries, radius={radius})"
        self.note(call)
        rows = self.shape.to_array(queries)
        matches = store.probe_many(rows, radius=radius, threads=threads)
        self.columns(call, queries, [matches], expected)
        self.ids(call, matches)
        most = max(question.part_matches, len(expected[1]) // 20, 1)
        call = f"{where}: probe_batches({len(queries)} queries, radius={radius}, matches={most})"
        self.note(call)
        parts = list(store.probe_batches(rows, radius=radius, threads=threads, matches=most))
        self.columns(call, queries, parts, expected)
        self.same(
            call,
            all(len(p) == 1 or len(p.fingerprints) <= most for p in parts),
            "a part that is too large",
        )
        self.wide(store, question, where)
        self.sharing(store, question, where)
        for query in queries[:: max(len(queries) // SINGLE, 1)][:SINGLE]:
            self.one(store, query[None], radius, where)

    def truth(self, queries: Words, radius: int, most: int) -> tuple[Words, MatchColumns]:
        """Return as many of the queries as have not too many matches, and those."""
        expected = brute(self.shape, self.now, queries, radius, most)
        return queries[: len(expected[0]) - 1], expected

    def wide(self, store: Store, question: Question, where: str) -> None:
        """Scan, at any radius; and probe beyond the radius of the store, which is a scan too."""
        radius = question.scan_radius
        queries, expected = self.truth(
            question.queries[: MAX_SCANNED_PAIRS // (len(self.now) + 1)], radius, SCAN_MATCHES
        )
        call = f"{where}: scan({len(queries)} queries, radius={radius})"
        self.note(call)
        rows = self.shape.to_array(queries)
        matches = store.scan(rows, radius, threads=question.threads)
        self.columns(call, queries, [matches], expected)
        self.ids(call, matches)
        if radius > store.radius:
            self.columns(
                call, queries, [store.probe_many(rows, radius, threads=question.threads)], expected
            )
        self.few(store, question, queries, expected, where)

    def sharing(self, store: Store, question: Question, where: str) -> None:
        """Look up the leading bits of each query, as LSH indexes do, in a first table of blocks."""
        snapshot = store_snapshot(store)
        if snapshot.generation.design.tables[0].kind != BLOCKS:
            return
        bits = min(question.scan_radius % 65, self.shape.bits)
        questions = question.queries[: min(MAX_SCANNED_PAIRS // (len(self.now) + 1), SHARING)]
        call = f"{where}: sharing({len(questions)} queries, {bits} bits)"
        self.note(call)
        now, queries = (
            check_fingerprints(self.shape.to_array(rows), snapshot.width)
            for rows in (self.now, questions)
        )
        leading, own = (
            leading_words(rows) >> np.uint64(64 - bits) if bits else np.zeros(len(rows))
            for rows in (now, queries)
        )
        alike = own[:, None] == leading[None]
        for most in (None, question.part_matches):
            columns = snapshot.probe_prefixes(queries, bits, most)
            if columns is None:
                # the tables may have what was deleted since
                self.same(call, most is not None, "None", "columns")
                continue
            lims, rows, distances = columns
            away = self.shape.distances(questions, self.now)
            query, place = np.nonzero(alike)
            order = np.lexsort((place, away[query, place], query))
            expected = now[place[order]], away[query, place][order]
            self.same(
                call, np.array_equal(np.diff(lims), alike.sum(1)), np.diff(lims), alike.sum(1)
            )
            self.same(call, np.array_equal(rows, expected[0]), rows, expected[0], 0)
            self.same(
                call, np.array_equal(distances, expected[1]), distances, expected[1], len(questions)
            )

    def few(
        self, store: Store, question: Question, queries: Words, expected: MatchColumns, where: str
    ) -> None:
        """Ask for the nearest matches, as many as a limit allows."""
        radius, limit = question.scan_radius, question.part_matches % 11 + 1
        lims, fingerprints, distances = expected
        counts = np.diff(lims)
        kept = np.arange(lims[-1]) - np.repeat(lims[:-1], counts) < limit
        first = (
            np.append(0, np.cumsum(np.minimum(counts, limit))),
            fingerprints[kept],
            distances[kept],
        )
        call = f"{where}: scan({len(queries)} queries, radius={radius}, limit={limit})"
        self.note(call)
        rows = self.shape.to_array(queries)
        matches = store.scan(rows, radius, threads=question.threads, limit=limit)
        self.columns(call, queries, [matches], first)
        self.same(
            call, np.array_equal(matches.more, counts > limit), "more", "which queries have more"
        )
        call = f"{where}: nearest({len(queries)} queries, {limit}, max_radius={radius})"
        self.note(call)
        self.columns(
            call,
            queries,
            [store.nearest_many(rows, limit, max_radius=radius, threads=question.threads)],
            first,
        )

    def columns(
        self, call: str, queries: Words, parts: list[Matches], expected: MatchColumns
    ) -> None:
        """Compare columns, in the order by query, distance and fingerprint."""
        lims, start = [np.zeros(1, np.int64)], 0
        for part in parts:
            lims.append(part.lims[1:] + start)
            start += len(part.fingerprints)
        got = (
            np.concatenate(lims),
            np.concatenate([expected[1][:0], *(part.fingerprints for part in parts)]),
            np.concatenate([expected[2][:0], *(part.distances for part in parts)]),
        )
        alike = (g.dtype == e.dtype and np.array_equal(g, e) for g, e in _beside(got, expected))
        if all(alike):
            self.answers += len(queries)
            return
        for place, query in enumerate(self.shape.numbers(self.shape.to_array(queries))):
            lists = (
                [_matches(columns, place) for columns in (got, expected)]
                if len(got[0]) == len(expected[0])
                else [got, expected]
            )
            self.same(
                f"{call}, query {place} = {query:#x}", lists[0] == lists[1], lists[0], lists[1], 0
            )
        self.same(call, False, got, expected)

    def ids(self, call: str, matches: Matches) -> None:
        """Compare the ids of matches, as columns and as lists, when they are not too many."""
        sizes = {fingerprint: len(names) for fingerprint, names in self.model.ids.items()}
        if (
            sum(map(sizes.__getitem__, self.shape.numbers(matches.fingerprints[:MAX_IDS])))
            > MAX_IDS
            or len(matches.fingerprints) > MAX_IDS
        ):
            return
        call += " ids"
        self.note(call)
        self.listed(call, matches.fingerprints, *matches.read_ids())
        if len(matches) > MAX_IDS:
            return
        rows = [[(m.fingerprint, m.distance, _sorted(m.ids)) for m in row] for row in matches]
        names = self.model.ids_of(matches.fingerprints)
        flat = list(
            zip(
                self.shape.numbers(matches.fingerprints),
                matches.distances.tolist(),
                names,
                strict=True,
            )
        )
        expected = [
            flat[a:b]
            for a, b in zip(matches.lims.tolist(), matches.lims[1:].tolist(), strict=False)
        ]
        self.same(f"{call}, as lists", rows == expected, rows, expected, len(rows))

    def listed(
        self,
        call: str,
        fingerprints: npt.NDArray[Any],
        lims: npt.NDArray[np.int64],
        ids: Words | list[str],
    ) -> None:
        """Compare the ids of fingerprints."""
        plain = ids if isinstance(ids, list) else ids.tolist()
        got = [_sorted(plain[a:b]) for a, b in zip(lims.tolist(), lims[1:].tolist(), strict=False)]
        expected = self.model.ids_of(fingerprints)
        self.same(
            call, got == expected and len(plain) == sum(map(len, expected)), got, expected, len(got)
        )

    def one(self, store: Store, row: Words, radius: int, where: str) -> None:
        """Ask about one fingerprint, an array of it alone: probe, `in` and `[]`."""
        (query,) = self.shape.numbers(self.shape.to_array(row))
        call = f"{where}: probe({query:#x}, radius={radius})"
        self.note(call)
        _, fingerprints, distances = brute(self.shape, self.now, row, radius)
        got = [(m.fingerprint, m.distance, _sorted(m.ids)) for m in store.probe(query, radius)]
        expected = list(
            zip(
                self.shape.numbers(fingerprints),
                distances.tolist(),
                self.model.ids_of(fingerprints),
                strict=True,
            )
        )
        self.same(call, got == expected, got, expected)
        call = f"{where}: store[{query:#x}]"
        self.note(call)
        here, known = query in store, query in self.model.ids
        self.same(f"{where}: {query:#x} in store", here == known, here, known)
        try:
            names = _sorted(store[query])
        except KeyError:
            names = []
        known_names = sorted(self.model.ids.get(query, []), key=repr)
        self.same(call, names == known_names, names, known_names)

    def whole(self, store: Store, state: str) -> None:
        """Ask about everything that is stored.

        Counts, items, ids of fingerprints, fingerprints of ids, and verify.
        """
        self.note(f"{state}: items and ids")
        self.same(f"{state}: len", len(store) == len(self.now), len(store), len(self.now))
        self.same(
            f"{state}: len(ids)",
            len(store.ids) == self.model.pairs,
            len(store.ids),
            self.model.pairs,
        )
        pieces = list(store.items())
        now = self.shape.to_array(self.now)
        keys = np.concatenate([now[:0], *(piece[0] for piece in pieces)])
        self.same(
            f"{state}: items", keys.dtype == now.dtype and np.array_equal(keys, now), keys, now
        )
        for fingerprints, lims, ids in pieces:
            self.listed(f"{state}: items", fingerprints, lims, ids)
        sample = np.random.default_rng(self.case.seed).permutation(now)[:LISTED]
        self.listed(f"{state}: ids_of", sample, *store.ids_of(sample))
        self.reverse(store, state)
        report = store.verify()
        self.same(f"{state}: verify", report.ok, report.faults, "no fault")

    def reverse(self, store: Store, state: str) -> None:
        """Ask which fingerprints have an id."""
        by_id = self.model.by_id()
        names: list[Any] = list(by_id)[:: max(len(by_id) // LISTED, 1)]
        absent: Any = "not there" if self.case.id_kind == "strings" else 3 * 10**18 + 7
        lims, fingerprints = store.fingerprints_of([*names, absent])
        got = [
            self.shape.numbers(fingerprints[a:b])
            for a, b in zip(lims.tolist(), lims[1:].tolist(), strict=False)
        ]
        expected = [*(by_id[name] for name in names), []]
        self.same(f"{state}: fingerprints_of", got == expected, got, expected, len(got))
        self.same(f"{state}: ids", absent not in store.ids, absent)
        for name in names[:3]:
            self.same(
                f"{state}: ids",
                name in store.ids and store.ids[name] == by_id[name],
                name,
                by_id[name],
            )
        for edge in set(self.shape.numbers(self.shape.to_array(self.shape.edges))) - set(
            self.model.ids
        ):
            self.same(f"{state}: {edge} in store", edge not in store, edge)


def _sorted(names: Iterable[Any]) -> list[Any]:
    return sorted(names, key=repr)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 600 else text[:600] + " ..."


def _beside(
    got: MatchColumns, expected: MatchColumns
) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    return [(got[0], expected[0]), (got[1], expected[1]), (got[2], expected[2])]


def _matches(columns: MatchColumns, place: int) -> list[tuple[int, int]]:
    lims, fingerprints, distances = columns
    span = slice(lims[place], lims[place + 1])
    return list(zip(fingerprints[span].tolist(), distances[span].tolist(), strict=True))


def run(case: Case, path: Path, note: Callable[[str], None]) -> int:
    """Do all that is done with a store.

    Build, ask, change, ask, open again, merge, ask, change, ask, merge another store, ask.

    Return how many answers were compared, with those of a deduplication of the same rows.
    """
    asker = Asker(case, note)
    note("build")
    with fpstore.build(path, **case.arguments()) as store:
        asker.state(store, STATES[0])
    with fpstore.open(path) as reader:
        with fpstore.open(path, "r+") as writer:
            _change(asker, writer, STATES[1])
            asker.state(writer, STATES[1])
            asker.numbered(reader, STATES[1], QUESTIONS[STATES[1]])
        asker.state(reader, STATES[2])
        with fpstore.open(path, "r+") as writer:
            note("merge")
            writer.merge(memory="64MiB")
            asker.model.merge()
            asker.state(writer, STATES[3])
            _change(asker, writer, STATES[4])
        asker.state(reader, STATES[4])
        _join(asker, path)
        asker.state(reader, STATES[5])
    corpora.ask(asker, path.parent)
    return asker.answers


def _change(asker: Asker, store: Store, state: str) -> None:
    for change in asker.case.changes[state]:
        call = f"{state}: {change.verb} of {len(change.rows)} rows, ids {_short(change.ids)}"
        asker.note(call)
        got, expected = change.apply(store), change.foretell(asker.model)
        asker.same(call, got == expected, got, expected)


def _join(asker: Asker, path: Path) -> None:
    """Merge another store into this one: its ids, also row numbers, stay as they are."""
    other = path.with_name("other")
    rows, ids = asker.case.joined
    with fpstore.build(other, **asker.case.other()) as theirs, fpstore.open(path, "r+") as writer:
        JoinAsker(asker, writer, "changed again").stores(theirs, Model(asker.shape, rows, ids))
        asker.note("joined: merge of another store")
        writer.absorb(other, memory="64MiB")
    asker.model.insert(rows, np.arange(len(rows), dtype=np.uint64) if ids is None else ids)
    asker.model.merge()
