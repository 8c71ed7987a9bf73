"""Operations that probe: probe, growth, frontier; and how a store and a rival are compared."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial

import numpy as np

import fpstore
from bench import rivals
from bench.answers import Answers, check_store, of_store, require_same
from bench.data import Words, random_words
from bench.harness import Bench, Result, microseconds, ratio, run_child
from bench.rivals import Contender, MissingError
from bench.single import SINGLE_QUERIES, single_times
from fpstore.design.blocks import HUFFMAN

COMPANION = "manku-10"  # the store beside a rival that cannot take the whole set
GROWTH_FROM = 20
SMALLER_BATCHES = (1 << 12, 1 << 16, 1 << 18, 1 << 20)  # timed beside the largest
FEWER_QUERIES = 1 << 20  # of the runs without matches, and in huge pages
NEW_PROCESS_QUERIES = 1 << 16  # of the first batch of a new process


@dataclass
class Field:
    """A set of keys, queries and the answers that all must give."""

    bench: Bench
    kind: str
    log2: int
    queries: Words
    expected: Answers | None = None

    def check(self, store: fpstore.Store) -> None:
        """Require the answers of the store that came first, which is checked by other means."""
        if self.expected is None:
            check_store(
                store,
                self.queries,
                self.bench.keys(self.kind, self.log2) if self.log2 <= 22 else None,
            )
            self.expected = of_store(store, self.queries)
        else:
            require_same(of_store(store, self.queries), self.expected, store.path.name)

    def first(self, count: int) -> Answers:
        """Return the expected answers to the first queries."""
        assert self.expected is not None
        lims = self.expected.lims[: count + 1]
        return Answers(lims, self.expected.fingerprints[: lims[-1]])

    def store(self, design: str, codec: str = HUFFMAN) -> Result:
        """Time ``probe_many`` of a store on one and two threads."""
        store = self.bench.store(design, self.kind, self.log2, codec=codec, filter=False)
        self.check(store)
        batch = self.bench.fitting(lambda q: store.probe_many(q, threads=1), self.queries)
        absent = random_words(
            np.random.default_rng(self.bench.seed + 1), min(len(batch), FEWER_QUERIES)
        )
        expected_absent = of_store(store, absent)
        with fpstore.open(store.path, pages="huge") as copied:
            fewer = batch[:FEWER_QUERIES]
            huge = self.bench.seconds(lambda: copied.probe_many(fewer, threads=1))
        stats = store.stats()
        expected = self.first(len(self.queries))
        return {
            **self.batches(store, batch, absent),
            "filter": self.filtered(design, codec, batch, absent, expected_absent),
            "huge_pages_microseconds": microseconds(huge, len(fewer)),
            "huge_pages_queries": len(fewer),
            "new_process": self.first_batches(store, batch[:NEW_PROCESS_QUERIES]),
            "queries": len(batch),
            "matches_per_query": round(float(expected.lims[-1]) / len(self.queries), 3),
            "bytes_per_fingerprint": round(stats["bytes_per_fingerprint"]["tables"], 2),
            "bytes_with_ids": round(stats["bytes_per_fingerprint"]["total"], 2),
        }

    def batches(self, store: fpstore.Store, batch: Words, absent: Words) -> Result:
        """Time batches of several sizes, and a large batch that hardly ever matches."""
        sizes = {
            str(size): self.threads(store, batch[:size])
            for size in (*SMALLER_BATCHES, len(batch))
            if size <= len(batch)
        }
        whole = sizes.pop(str(len(batch)))
        without = self.bench.seconds(lambda: store.probe_many(absent, threads=1))
        return {
            **whole,
            "without_match_microseconds": microseconds(without, len(absent)),
            "without_match_queries": len(absent),
            "smaller_batches": sizes,
        }

    def filtered(
        self, design: str, codec: str, batch: Words, absent: Words, expected_absent: Answers
    ) -> Result:
        """Time the same of a store with filters; the answers must be the same."""
        store = self.bench.store(design, self.kind, self.log2, codec=codec, filter=True)
        require_same(of_store(store, batch), self.first(len(batch)), "with filters")
        require_same(of_store(store, absent), expected_absent, "with filters, without matches")
        taken = store.stats()["bytes"]["filters"] / (1 << self.log2)
        return {
            **self.batches(store, batch, absent),
            "new_process": self.first_batches(store, batch[:NEW_PROCESS_QUERIES]),
            "bytes_per_fingerprint": round(taken, 2),
        }

    def threads(self, store: fpstore.Store, batch: Words) -> Result:
        """Time a batch on one thread and on two."""
        one, two = (self.bench.seconds(partial(store.probe_many, batch, threads=t)) for t in (1, 2))
        return {
            "microseconds": microseconds(one, len(batch)),
            "two_threads_microseconds": microseconds(two, len(batch)),
            "two_threads_ratio": ratio(one, two),
        }

    def first_batches(self, store: fpstore.Store, batch: Words) -> Result:
        """Time the first batch of a new process against the median of those after it.

        The page cache is warm.
        """
        if self.bench.smoke and store.design.name != COMPANION:
            # a child says nothing about answers: that it runs is shown by those of one design
            return {}
        queries = self.bench.folder / "queries.npy"
        np.save(queries, batch)
        task = {
            "do": "batches",
            "path": str(store.path),
            "queries": str(queries),
            "repeats": max(self.bench.repeats, 5),
        }
        times = run_child(task)["seconds"]
        steady = statistics.median(times[1:])
        return {
            "microseconds": microseconds(times[0], len(batch)),
            "times_steady": ratio(times[0], steady),
        }

    def rival(self, contender: Contender) -> Result:
        """Build a rival, require its answers, and time it.

        On a smaller set, beside a store of that, when it takes no more.
        """
        log2 = contender.log2(self.log2)
        if log2 < self.log2:
            smaller = Field(
                self.bench, self.kind, log2, self.bench.queries(self.kind, log2, len(self.queries))
            )
            beside = smaller.store(COMPANION)
            out = smaller.rival(contender)
            if "microseconds" not in out:
                return out
            reason = f"limited to n = 2^{log2}" + (
                "" if log2 == contender.most_log2 else " by the memory free now"
            )
            faster = ratio(out["microseconds"], beside["microseconds"])
            return {
                "limit": reason,
                **out,
                f"{COMPANION} at this n": {**beside, "times_faster": faster},
            }
        try:
            rival = contender.make(self.bench.keys(self.kind, log2))
        except MissingError as error:
            return {"missing": str(error)}
        batch = self.bench.fitting(lambda q: rival.run(q, 1), self.queries)
        require_same(rival.answers(batch), self.first(len(batch)), contender.name)
        took = {t: self.bench.seconds(partial(rival.run, batch, t)) for t in contender.threads}
        out = {"n": 1 << log2, "microseconds": microseconds(took[1], len(batch))}
        if 2 in took:
            out["two_threads_microseconds"] = microseconds(took[2], len(batch))
            out["two_threads_ratio"] = ratio(took[1], took[2])
        out["queries"] = len(batch)
        out["bytes_per_fingerprint"] = round(rival.bytes / (1 << log2), 1)
        out["has_ids"] = contender.has_ids
        return out


def compare(design: Result, rival: Result, name: str) -> None:
    """Note in a design's figures how it stands to a rival of the same set."""
    if "microseconds" not in rival or "limit" in rival:
        return
    mine = design["bytes_with_ids" if rival["has_ids"] else "bytes_per_fingerprint"]
    for figures in (design, design["filter"]):
        figures.setdefault("times_faster", {})[name] = ratio(
            rival["microseconds"], figures["microseconds"]
        )
    design.setdefault("share_of_memory", {})[name] = ratio(mine, rival["bytes_per_fingerprint"], 3)


def probe(bench: Bench) -> Result:
    """`probe_many`, radius 3.

    Designs against the rivals, uniform and clustered keys, one and two threads.
    """
    log2 = bench.log2()
    out: Result = {"n": 1 << log2}
    for kind in bench.options.data:
        field = Field(bench, kind, log2, bench.queries(kind, log2))
        designs: Result = {}
        others: Result = {}
        for name in bench.designs("manku-4", "manku-10", "manku-20", "flip-2", "flip-3"):
            if reason := bench.no_room(name, log2):
                designs[name] = {"skipped": reason}
                continue
            packed = bench.packed(name)
            for codec, label in packed:
                designs[label] = field.store(name, codec)
                bench.forget()
            table = rivals.uncompressed(name, bench.folder)
            others[table.name] = field.rival(table)
            for _, label in packed:
                compare(designs[label], others[table.name], table.name)
            bench.forget()
        for contender in rivals.outside():
            if bench.options.rivals and not any(
                name in contender.name for name in bench.options.rivals
            ):
                continue
            others[contender.name] = field.rival(contender)
            for figures in designs.values():
                compare(figures, others[contender.name], contender.name)
            bench.forget()
        out[kind] = {"designs": designs, "rivals": others}
    return out


def growth(bench: Bench) -> Result:
    """Microseconds a probe as the set grows, uniform keys, one thread.

    A batch, and one at a time.
    """
    log2 = bench.log2(26)
    out: Result = {}
    for design in bench.designs("manku-10", "flip-2"):
        points: list[Result] = []
        for size in range(
            min(GROWTH_FROM, log2) if log2 % 2 == 0 else min(GROWTH_FROM + 1, log2), log2 + 1, 2
        ):
            if reason := bench.no_room(design, size):
                points.append({"log2": size, "skipped": reason})
                continue
            store = bench.store(design, "uniform", size)
            queries = bench.queries("uniform", size)
            checked = check_store(
                store, queries, bench.keys("uniform", size) if size <= 22 else None
            )
            probe_many = partial(store.probe_many, threads=1)
            batch = bench.fitting(probe_many, queries)
            took = bench.seconds(partial(probe_many, batch))
            median, tail = single_times(bench, store, queries[:SINGLE_QUERIES])
            points.append(
                {
                    "log2": size,
                    "microseconds": microseconds(took, len(batch)),
                    "single_median_microseconds": median,
                    "single_p99_microseconds": tail,
                    "bytes_per_fingerprint": round(
                        store.stats()["bytes_per_fingerprint"]["tables"], 2
                    ),
                    "answers_checked": checked,
                }
            )
            bench.forget()
        timed = [p for p in points if "microseconds" in p]
        out[design] = {"points": points}
        if timed:
            out[design]["largest_to_smallest"] = ratio(
                timed[-1]["microseconds"], timed[0]["microseconds"]
            )
    return out


def frontier(bench: Bench) -> Result:
    """Bytes a fingerprint against microseconds per probe: designs for radius 3, and the rivals."""
    log2 = bench.log2()
    field = Field(bench, "uniform", log2, bench.queries("uniform", log2))
    points: list[Result] = []
    for name in bench.designs("flip-2", "flip-3", "manku-4", "manku-10", "manku-20"):
        point: Result = {"name": name, "kind": "design"}
        points.append(
            {**point, "skipped": reason}
            if (reason := bench.no_room(name, log2))
            else {**point, **field.store(name)}
        )
        bench.forget()
    tables = [rivals.uncompressed(design, bench.folder) for design in ("flip-2", "manku-10")]
    for kind, contenders in (("rival", rivals.outside()), ("uncompressed", tables)):
        for contender in contenders:
            points.append({"name": contender.name, "kind": kind, **field.rival(contender)})
            bench.forget()
    return {"n": 1 << log2, "points": points}
