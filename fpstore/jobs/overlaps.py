"""The search for texts of which one may contain the other.

A text of n features has a *sample*: its features whose hash is below a bound, about SAMPLES of
them. The bound of the larger of two texts holds for both, so the shared part of the smaller one's
sample estimates how much of it the larger one contains. (Irber and others 2022 take one bound for
all texts; here small texts keep a larger share, and large ones a smaller one.)

Texts that share a sampled feature make a list, the largest first. A text is paired with the LARGEST
first texts of each of its lists. If more than these are larger, the feature is *crowded* for it.
Pairs that share enough are compared by all features, and linked if one contains most of the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import HALF_BITS, is_run_start, list_lims, repeated_places, slices, spans
from fpstore.base.resources import Resources
from fpstore.building.external_sort import Sorter
from fpstore.errors import InputError, plural
from fpstore.hashing.base import SAMPLES
from fpstore.jobs.grouping import Numbers
from fpstore.jobs.keys import Keys, unite_keys
from fpstore.jobs.text_sets import Rule, TextSets
from fpstore.jobs.within import Within

LARGEST = 32  # of a list, with which each text of it is paired
LARGEST_CROWDED = 4  # of a list that is crowded for it
MAX_ROWS = 1 << 31
AT_ONCE = 1 << 21  # samples that are read together
COMPARED_AT_ONCE = 1 << 16  # pairs
DEVIATIONS = 2.5  # of the estimate below the containment that is searched
MIN_SHARED = 2  # sampled features, where texts have as many
LEAST_RARE = 4  # features of a sample that are not crowded, from which on they decide alone
RARE_SHARE = 0.5  # of them, which are shared at least
LINKED = 0.8  # of the least containment: two texts that a third one may contain are linked, too


class SizedRows(NamedTuple):
    """Lists of two or more rows that share a sampled feature, the largest first."""

    numbers: Words
    lims: npt.NDArray[np.int64]


class Pairs(NamedTuple):
    """Pairs of a row and a larger one, one for each feature that they share.

    ``is_crowded`` flags pairs by a feature that is crowded for the smaller one. ``crowded`` has the
    smaller row once for each such feature.
    """

    smaller: Words
    larger: Words
    is_crowded: Flags
    crowded: Words


def sort_key(features: Counts, sizes: npt.NDArray[np.int64]) -> Words:
    """Return keys that sort rows by a feature, and by size, the largest first."""
    most = (1 << HALF_BITS) - 1
    return features.astype(np.uint64) << np.uint64(HALF_BITS) | (
        most - np.minimum(sizes, most)
    ).astype(np.uint64)


def lists_of(keys: Words, numbers: Words) -> SizedRows:
    """Return the lists of two or more rows of ascending keys."""
    starts = np.flatnonzero(is_run_start(keys >> np.uint64(HALF_BITS)))
    sizes = np.diff(starts, append=len(keys))
    several = sizes > 1
    return SizedRows(slices(numbers, starts[several], sizes[several]), list_lims(sizes[several]))


def pair_rows(rows: SizedRows) -> Pairs:
    """Return the pairs of each row with the first rows of its lists."""
    starts = np.repeat(rows.lims[:-1], np.diff(rows.lims))
    ranks = np.arange(len(rows.numbers)) - starts
    is_crowded = ranks > LARGEST
    places = [
        np.flatnonzero((ranks > turn) & (~is_crowded | (turn < LARGEST_CROWDED)))
        for turn in range(LARGEST)
    ]
    turns = np.repeat(np.arange(LARGEST), list(map(len, places)))
    smaller = np.concatenate(places)
    return Pairs(
        rows.numbers[smaller],
        rows.numbers[starts[smaller] + turns],
        is_crowded[smaller],
        rows.numbers[is_crowded],
    )


class Shared(NamedTuple):
    """Pairs of rows with the number of sampled features that they share.

    ``rare`` counts those that are not crowded for the smaller row.
    """

    smaller: Words
    larger: Words
    rare: npt.NDArray[np.int64]
    total: npt.NDArray[np.int64]

    def select(self, flags: Flags) -> Shared:
        smaller, larger, rare, total = self
        return Shared(smaller[flags], larger[flags], rare[flags], total[flags])

    def summed(self) -> tuple[Shared, npt.NDArray[np.intp]]:
        """Return each pair once, of ascending pairs, and the place where it stands first."""
        starts = np.flatnonzero(is_run_start(self.smaller) | is_run_start(self.larger))
        rare, total = (
            np.add.reduceat(counts, starts) if len(starts) else counts
            for counts in (self.rare, self.total)
        )
        return Shared(self.smaller[starts], self.larger[starts], rare, total), starts


def _least_shared(sizes: npt.NDArray[np.int64], least: float) -> npt.NDArray[np.float64]:
    """Return how many features a text of each size shares at least: one says little."""
    counts: npt.NDArray[np.float64] = np.minimum(MIN_SHARED, np.ceil(sizes * least))
    return counts


def share_several(shared: Shared, sizes: npt.NDArray[np.int64], least: float) -> Flags:
    """Return which pairs may share ``least`` of the smaller text; most pairs share one feature."""
    flags: Flags = shared.total >= _least_shared(sizes[shared.smaller.view(np.intp)], least)
    return flags


def may_contain(
    shared: Shared,
    sizes: npt.NDArray[np.int64],
    larger_sizes: npt.NDArray[np.int64],
    crowded: npt.NDArray[np.integer],
    least: float,
) -> Flags:
    """Return which pairs share enough of their samples to be compared.

    Of the features of the smaller text, ``mean`` are expected below the bound of the larger one. If
    that contains ``least`` of the text, they share ``mean * least``, with the deviation of a
    binomial variable. Or the features that are not crowded say it: all crowded ones may be shared.
    ``crowded`` has their number in the sample of the smaller text.
    """
    share = np.minimum(SAMPLES / np.maximum(larger_sizes, 1), 1.0)
    own_share = np.minimum(SAMPLES / np.maximum(sizes, 1), 1.0)
    mean = sizes * share
    floor = _least_shared(sizes, least)

    def bound(expected: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        deviation = np.sqrt(np.maximum(expected, 0) * (1 - share))
        # samples that are whole texts have no deviation
        lowered = np.minimum(expected - DEVIATIONS * deviation, LINKED * expected)
        least_shared = np.ceil(lowered - 1e-6)
        return np.asarray(np.maximum(least_shared, floor), np.float64)

    crowded_mean = crowded * share / own_share
    rare_mean = np.maximum(mean - crowded_mean, 0)
    expected = np.maximum(least * mean - crowded_mean, RARE_SHARE * rare_mean)
    by_rare = (shared.rare >= bound(expected)) & (rare_mean >= LEAST_RARE)
    flags: Flags = (shared.total >= bound(least * mean)) | by_rare
    return flags


def connect_by_overlaps(
    texts: TextSets,
    rule: Rule,
    resources: Resources,
    searched: Flags | None = None,
    keys: Keys | None = None,
    within: Within | None = None,
) -> Numbers:
    """Return for each text the first text that is connected with it.

    Texts are connected if they are equal, or if one contains LINKED of the rule's containment of
    the other, and `may_contain` finds it; if they have an equal key; or through a third one.
    ``searched`` flags the texts that may be connected; None: all may. Texts of different values of
    ``within`` are not connected.
    """
    if len(texts) > MAX_ROWS:
        raise InputError(
            f"{plural(len(texts), 'text')} are more than {MAX_ROWS:,}: make a plan of tasks"
        )
    sets = _kernel.Sets(len(texts))
    unite_keys(sets, keys or {}, searched)
    has_features = texts.sizes > 0
    if not has_features.all():
        searched = has_features if searched is None else searched & has_features
        if not searched.any():
            return sets.names()
    distinct = _unite_equal(sets, texts, searched, within)
    least, done = rule.least_containment, 0
    for shared, crowded in _shared_pairs(texts, distinct, resources, within, least):
        smaller, larger = shared.smaller.view(np.intp), shared.larger.view(np.intp)
        near = may_contain(
            shared, texts.sizes[smaller], texts.sizes[larger], crowded[smaller], least
        )
        if within is not None:
            near &= within.are_equal(smaller, larger)
        link_contained(sets, texts, shared.smaller[near], shared.larger[near], least)
        done += len(near)
        resources.report("comparing", done)
    return sets.names()


def link_contained(
    sets: _kernel.Sets, texts: TextSets, smaller: Words, larger: Words, least: float
) -> None:
    """Unite pairs of texts of which the larger contains LINKED times ``least`` of the smaller."""
    for start in range(0, len(smaller), COMPARED_AT_ONCE):
        a, b = (side[start : start + COMPARED_AT_ONCE] for side in (smaller, larger))
        linked = texts.are_contained(a, b, LINKED * least)
        sets.unite(a[linked], b[linked])


def _shared_pairs(
    texts: TextSets, distinct: Words, resources: Resources, within: Within | None, least: float
) -> Iterator[tuple[Shared, Counts]]:
    """Yield pairs of texts, the smaller ones ascending; and the crowded features of each text."""
    memory = resources._replace(memory=resources.memory // 2)
    sorter = Sorter(memory.memory, None, threads=resources.threads)
    crowded = np.zeros(len(texts), np.uint32)
    for rows in _lists(texts, distinct, memory, within):
        pairs = pair_rows(rows)
        sorter.add(pair_keys(pairs), None)
        crowded += np.bincount(pairs.crowded.view(np.intp), minlength=len(texts)).astype(np.uint32)
    for part in sorter.groups(lambda _: None):
        shared = count_shared(part.keys, part.counts.view(np.int64))
        yield shared.select(share_several(shared, texts.sizes, least)), crowded


def pair_keys(pairs: Pairs) -> Words:
    """Return keys of pairs, in whose order the smaller rows ascend."""
    flags = pairs.is_crowded.astype(np.uint64)
    keys: Words = pairs.smaller << np.uint64(HALF_BITS) | pairs.larger << np.uint64(1) | flags
    return keys


def count_shared(keys: Words, counts: npt.NDArray[np.int64]) -> Shared:
    """Return the pairs of ascending keys, whose last bit flags a crowded feature."""
    mask = np.uint64((1 << HALF_BITS) - 1)
    smaller, larger = keys >> np.uint64(HALF_BITS), (keys & mask) >> np.uint64(1)
    rare = np.where(keys & np.uint64(1), 0, counts)
    return Shared(smaller, larger, rare, counts).summed()[0]


def _unite_equal(
    sets: _kernel.Sets, texts: TextSets, searched: Flags | None, within: Within | None
) -> Words:
    """Unite texts of equal digests and values; return the first of each, ascending."""
    numbers = np.arange(len(texts)) if searched is None else np.flatnonzero(searched)
    values = [] if within is None else [within.codes[numbers].astype(np.uint64)]
    repeats, firsts = repeated_places(texts.digests[numbers], *values)
    sets.unite(numbers[repeats].astype(np.uint64), numbers[firsts].astype(np.uint64))
    return np.delete(numbers, repeats).astype(np.uint64)


def _lists(
    texts: TextSets, distinct: Words, resources: Resources, within: Within | None
) -> Iterator[SizedRows]:
    """Yield lists of texts that share a sampled feature."""
    places = distinct.view(np.intp)
    samples, starts = texts.samples[places].astype(np.int64), texts.lims[places]
    count = int(samples.sum())
    sorter = Sorter(resources.memory, None, count, threads=resources.threads)
    for batch in spans(list_lims(samples), AT_ONCE):
        features = slices(texts.features, starts[batch], samples[batch])
        if within is not None:
            features ^= np.repeat(within.salts_at(places[batch]), samples[batch])
        sizes = np.repeat(texts.sizes[places[batch]], samples[batch])
        sorter.add(sort_key(features, sizes), np.repeat(distinct[batch], samples[batch]))
    resources.report("searching", 0, count)
    # a list may end in the next part
    keys, numbers = np.empty(0, np.uint64), np.empty(0, np.uint64)
    for part in sorter.groups(lambda done: resources.report("searching", done, count)):
        part_keys = (
            part.keys if part.per_key is None else np.repeat(part.keys, part.per_key.view(np.int64))
        )
        keys = np.concatenate([keys, part_keys])
        numbers = np.concatenate([numbers, part.ids.astype(np.uint64)])
        last = int(np.searchsorted(keys, keys[-1] >> np.uint64(HALF_BITS) << np.uint64(HALF_BITS)))
        yield lists_of(keys[:last], numbers[:last])
        keys, numbers = keys[last:], numbers[last:]
    yield lists_of(keys, numbers)
