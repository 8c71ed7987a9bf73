"""The figures of a report on a store: what it holds, how it is coded, how near and how skewed its fingerprints are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log2
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS, leading_words
from fpstore.design.sample import EvenRows
from fpstore.errors import InputError
from fpstore.format import huffman
from fpstore.format.column_table import ColumnTable
from fpstore.format.packed_table import PackedTable
from fpstore.jobs.clusters import Clusters, clusters_of, grouping_of
from fpstore.jobs.pairs import pairs_of, rows_of
from fpstore.jobs.report_files import Files, Found
from fpstore.query.ids import fingerprints_of
from fpstore.query.snapshot import Snapshot

WHOLE = 1 << 20  # a larger set of fingerprints is sampled
SPANS = 32  # of successive fingerprints, in a sample
MOST_PAIRS = 10_000_000  # that are counted
LARGEST, OTHERS, SHOWN = 8, 6, 6  # families that are shown, and documents of each
DIRECTORY = 1 << 22  # words that are taken together


class Codes(NamedTuple):
    """The first differing bit h of neighbours in the first table: how often each occurs, and the bits of its code."""

    counts: dict[int, int]
    bits: dict[int, int]
    sampled: bool


class Buckets(NamedTuple):
    """The number of buckets of a column table by their size; sizes are exact or like ``4-7``."""

    table: int
    prefix_bits: int
    histogram: dict[str, int]


class Skew(NamedTuple):
    """The share of ones of each bit, and the fingerprints that share leading bits with one of the set.

    Attributes
    ----------
    ones : list of float
        By bit, the most significant first.
    others : list of float
        How many others share the first 1, 2, ... bits with a fingerprint, on average.
    uniform : list of float
        How many they would be if all bits were random.
    sample : int or None
        The fingerprints that were looked at, if not all.
    """

    ones: list[float]
    others: list[float]
    uniform: list[float]
    sample: int | None


class DistanceCounts(NamedTuple):
    """The number of pairs by distance, from 1 on, and whether the count was stopped."""

    counts: list[int]
    stopped: bool


class Member(NamedTuple):
    """A document of a family: its id, its distance to the representative, its text or picture or why there is none."""

    id: int | str
    distance: int
    found: Found


class Family(NamedTuple):
    """A cluster: the number of its documents, and some of them, the representative first."""

    size: int
    members: list[Member]


@dataclass(frozen=True)
class Figures:
    """All figures of a report.

    Attributes
    ----------
    name : str
    stats : dict
        Those of ``Store.stats``.
    radius : int
        Of the pairs and clusters.
    grouping : {"connected", "greedy"}
        The kind of the clusters.
    codes, buckets, skew
        What the tables and the set are like; either codes or buckets.
    distances, clusters, largest, others
        None and empty where pairs were not wanted.
    missing : str
        Of how many documents the files were not found; empty if of none.
    """

    name: str
    stats: dict[str, Any]
    radius: int
    grouping: str
    codes: Codes | None
    buckets: Buckets | None
    skew: Skew
    distances: DistanceCounts | None
    clusters: Clusters | None
    largest: list[Family]
    others: list[Family]
    missing: str


def figures_of(snapshot: Snapshot, stats: dict[str, Any], radius: int | None, files: Files, resources: Resources) -> Figures:
    """Return the figures of a snapshot.

    Parameters
    ----------
    snapshot : Snapshot
    stats : dict
        Of the same snapshot.
    radius : int, optional
        That of pairs and clusters. Without one, there are none.
    files : Files
    resources : Resources
        Memory and threads for pairs and clusters, and progress.
    """
    resources.report("reading", 0)
    shown = stats["radius"] if radius is None else radius
    grouping = grouping_of(shown, None, "first", stats["fingerprinter"])
    first = snapshot.generation.tables[0]
    codes = codes_of(first, snapshot.generation.count) if isinstance(first, PackedTable) else None
    buckets = None if codes is not None else buckets_of(snapshot)
    skew, distances, clusters = skew_of(snapshot, resources), None, None
    largest: list[Family] = []
    others: list[Family] = []
    if radius is not None:
        distances = distances_of(snapshot, radius, resources)
        try:
            clusters = clusters_of(snapshot, grouping, resources)
        except InputError:  # pictures with several fingerprints, whose groups have chains
            grouping = grouping._replace(group="connected")
            clusters = clusters_of(snapshot, grouping, resources)
        largest, others = families_of(snapshot, clusters, files)
    name = snapshot.generation.path.name
    return Figures(name, stats, shown, grouping.group, codes, buckets, skew, distances, clusters, largest, others, files.told())


def codes_of(table: PackedTable, fingerprint_count: int) -> Codes:
    """Return the first differing bits of a table of blocks: of all neighbours, or of those in some spans."""
    counts = np.zeros(huffman.SYMBOLS, np.uint64)
    whole = fingerprint_count <= WHOLE
    last = None
    for keys in _spans(table, whole):
        _kernel.histogram(keys if last is None else np.concatenate([last, keys]), counts)
        last = keys[-1:] if whole else None
    bits = np.frombuffer(table.kernel.code_bits, np.uint8)
    met = np.flatnonzero(counts)
    coded = np.flatnonzero(bits) if len(met) else met
    return Codes({int(h): int(counts[h]) for h in met}, {int(h): int(bits[h]) for h in coded}, not whole)


def _spans(table: PackedTable, whole: bool) -> Iterator[Words]:
    """Yield all keys of a table, or successive ones from some places."""
    if whole:
        yield from (keys for keys, _ in table.pieces())
        return
    for start in np.unique(np.arange(SPANS) * table.kernel.block_count // SPANS).tolist():
        for keys, _ in table.pieces(start):
            yield keys
            break


def buckets_of(snapshot: Snapshot) -> Buckets | None:
    """Return the sizes of the buckets of the first column table that is looked up."""
    generation = snapshot.generation
    place = generation.design.ring[0][0] if generation.design.ring else 0
    table = generation.tables[place]
    assert isinstance(table, ColumnTable)
    directory = table.directory
    exponents: npt.NDArray[np.int64] = np.zeros(WORD_BITS, np.int64)  # of sizes 0, 1, 2-3, 4-7, ...
    for start in range(0, len(directory) - 1, DIRECTORY):
        sizes = np.diff(directory[start : start + DIRECTORY + 1].astype(np.int64))
        exponents += np.bincount(np.frexp(sizes)[1], minlength=WORD_BITS)
    names = ["0", "1", *(f"{1 << e}-{(2 << e) - 1}" for e in range(1, WORD_BITS))]
    most = int(np.flatnonzero(exponents)[-1]) if exponents.any() else 0
    histogram = {name: int(count) for name, count in zip(names[: most + 1], exponents[: most + 1], strict=True)}
    return Buckets(place, generation.design.tables[place].prefix_bits, histogram)


def skew_of(snapshot: Snapshot, resources: Resources) -> Skew:
    """Return how far the bits of a set are from random ones: of all fingerprints, or of a sample."""
    count, width = snapshot.totals.fingerprints, snapshot.width
    rows = rows_of(snapshot, resources)[0] if count <= WHOLE else _sample(snapshot)
    m = len(rows)
    ones = np.zeros(width.bits, np.int64)
    for start in range(0, m, DIRECTORY >> 6):
        ones += np.unpackbits(width.to_bytes(rows[start : start + (DIRECTORY >> 6)]), axis=1).sum(axis=0, dtype=np.int64)
    # A sample tells of buckets that have some of its fingerprints; of a whole set, a little more than there are is told.
    deepest = 0 if m < 2 else ceil(log2(m)) + (2 if m == count else -3)
    bits = range(1, max(min(deepest, width.bits, WORD_BITS), 0) + 1)
    others = [_sharing(rows, b) * (count - 1) for b in bits]
    return Skew((ones / max(m, 1)).tolist(), others, [(count - 1) / 2**b for b in bits], None if m == count else m)


def _sample(snapshot: Snapshot) -> Words:
    """Return fingerprints that are spread over the set: those of the tables, unless much was changed since."""
    if 2 * snapshot.generation.count > snapshot.totals.fingerprints:
        return snapshot.generation.full_sample()
    some = EvenRows(snapshot.width.words)
    for rows in snapshot.fingerprints():
        some.add(rows)
    return some.rows()


def _sharing(rows: Words, bits: int) -> float:
    """Return the share of the others that have the same leading bits as one of some ascending fingerprints."""
    leading = leading_words(rows) >> np.uint64(WORD_BITS - bits)
    begins = np.flatnonzero(np.append(True, leading[1:] != leading[:-1]))
    sizes = np.diff(np.append(begins, len(rows))).astype(np.float64)
    return float(sizes @ (sizes - 1)) / (len(rows) * (len(rows) - 1))


def distances_of(snapshot: Snapshot, radius: int, resources: Resources) -> DistanceCounts:
    """Count the pairs of fingerprints by distance. A count that is stopped is made by one thread: it tells always the same."""
    found = _counted(snapshot, radius, resources)
    if found.stopped and resources.threads > 1:
        return _counted(snapshot, radius, resources._replace(threads=1))
    return found


def _counted(snapshot: Snapshot, radius: int, resources: Resources) -> DistanceCounts:
    counts = np.zeros(radius + 1, np.int64)
    done, stopped = 0, False
    for pairs in pairs_of(snapshot, radius, resources):
        some = pairs.distances[: MOST_PAIRS - done]
        counts += np.bincount(some, minlength=radius + 1)
        done, stopped = done + len(some), len(some) < len(pairs)
        if stopped:
            break
    return DistanceCounts(counts[1:].tolist(), stopped)


def families_of(snapshot: Snapshot, clusters: Clusters, files: Files) -> tuple[list[Family], list[Family]]:
    """Return the largest clusters, and some others spread over the rest; of each some members, the nearest first."""
    order = clusters.by_size()
    rest = order[LARGEST:]
    spread = rest[(np.arange(OTHERS) * 2 + 1) * len(rest) // (2 * OTHERS)] if len(rest) > OTHERS else rest
    places = [*order[:LARGEST].tolist(), *spread.tolist()]
    shown = [clusters.first(place, SHOWN) for place in places]
    ids = [one for some in shown for one in some]
    lims, rows = fingerprints_of(snapshot, ids if snapshot.totals.id_kind == "string" else np.array(ids, np.uint64))
    numbers = snapshot.width.numbers(rows)
    own = {one: numbers[a:b] for one, (a, b) in zip(ids, pairwise(lims.tolist()), strict=True)}
    families = []
    for place, some in zip(places, shown, strict=True):
        first = own[some[0]]
        members = [
            Member(one, min((a ^ b).bit_count() for a in own[one] for b in first), files.of(one, own[one])) for one in some
        ]
        families.append(Family(int(clusters.sizes[place]), sorted(members, key=lambda member: member.distance)))
    return families[:LARGEST], families[LARGEST:]
