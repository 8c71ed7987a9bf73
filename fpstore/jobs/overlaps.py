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
from fpstore.base.aliases import Counts, Flags, Lims, Words
from fpstore.base.arrays import (
    HALF_BITS,
    is_run_start,
    list_lims,
    repeated_places,
    spans,
    stable_order,
)
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import NumbersWriter
from fpstore.errors import InputError, plural
from fpstore.hashing.base import SAMPLES
from fpstore.jobs.grouping import Numbers
from fpstore.jobs.keys import Keys, unite_keys
from fpstore.jobs.text_sets import Rule, TextSets
from fpstore.jobs.within import Within

LARGEST = 32  # of a list, with which each text of it is paired
LARGEST_CROWDED = 4  # of a list that is crowded for it
MAX_ROWS = 1 << 31
SAMPLES_AT_ONCE = 1 << 17  # samples that are read, and whose pairs are compared, together
HEADS_SHARE = 8  # one part in so many of the memory budget is for heads; more go to a file
DEVIATIONS = 2.5  # of the estimate below the containment that is searched
MIN_SHARED = 2  # sampled features, where texts have as many
LEAST_RARE = 4  # features of a sample that are not crowded, from which on they decide alone
RARE_SHARE = 0.5  # of them, which are shared at least
LINKED = 0.8  # of the least containment: two texts that a third one may contain are linked, too


class Shared(NamedTuple):
    """Pairs of rows with the number of sampled features that they share.

    ``rare`` counts those that are not crowded for the smaller row.
    """

    smaller: Words
    larger: Words
    rare: Lims
    total: Lims

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
    by_size = largest_first(texts.sizes[distinct.view(np.intp)])
    samples = _sort_samples(texts, distinct, ranks_of(by_size), resources, within)
    resources.report("searching", 0, samples.rows)
    order = distinct[by_size].astype(np.uint32)
    pairs = shared_pairs(samples, order, texts.sizes, least, resources)
    for (shared, _), linked in map_in_order(
        lambda item: _contained_pairs(texts, *item, within, least), pairs, resources.threads
    ):
        sets.unite(*linked)
        done += len(shared.smaller)
        resources.report("comparing", done)
    return sets.names()


def _contained_pairs(
    texts: TextSets, shared: Shared, crowded: Counts, within: Within | None, least: float
) -> tuple[Words, Words]:
    """Return the pairs that are linked: the larger text contains most of the smaller one."""
    smaller, larger = shared.smaller.view(np.intp), shared.larger.view(np.intp)
    near = may_contain(shared, texts.sizes[smaller], texts.sizes[larger], crowded, least)
    if within is not None:
        near &= within.are_equal(smaller, larger)
    a, b = shared.smaller[near], shared.larger[near]
    linked = texts.are_contained(a, b, LINKED * least)
    return a[linked], b[linked]


def largest_first(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the order of texts in a list: by size, then by place."""
    most = (1 << HALF_BITS) - 1
    return stable_order(most - np.minimum(sizes, most))


def ranks_of(order: npt.NDArray[np.intp]) -> Counts:
    """Return where each place stands in an order."""
    ranks = np.empty(len(order), np.uint32)
    ranks[order] = np.arange(len(order), dtype=np.uint32)
    return ranks


def shared_pairs(
    samples: Sorter,
    order: Counts,
    sizes: npt.NDArray[np.int64],
    least: float,
    resources: Resources,
) -> Iterator[tuple[Shared, Counts]]:
    """Yield pairs of texts, the smaller ones ascending, and the crowded features of these.

    ``samples`` sorts features with the ranks of texts; the text of rank r is ``order[r]``. Pairs
    that share too few features for ``least`` are left out; with 0, all pairs are yielded.

    A list is kept as its *head*, its first texts. For each other text of a list, the part of the
    heads with which it is paired is sorted: these are fewer rows than there are pairs.
    """
    memory = resources.memory // HEADS_SHARE
    heads = NumbersWriter(np.uint32, memory)
    sorter = Sorter(resources.memory // 2 - memory, None, samples.rows, threads=resources.threads)
    for lists in samples.groups(lambda done: resources.report("searching", done, samples.rows)):
        if lists.per_key is not None:  # otherwise no two texts share a feature
            heads_of_lists, texts, head_spans = _kernel.list_texts(
                lists.per_key,
                lists.ids.astype(np.uint32, copy=False),
                order,
                LARGEST,
                LARGEST_CROWDED,
                heads.size,
            )
            heads.append(heads_of_lists)
            sorter.add(texts, head_spans)
    counter = _kernel.SharedCounter(heads.finish(), len(sizes))
    for part in sorter.groups(lambda _: None):
        counts = part.counts
        lims = list_lims(counts)
        for batch in spans(lims, SAMPLES_AT_ONCE):
            numbers = part.keys[batch]
            smaller, larger, rare, total, crowded = counter.count(
                numbers,
                counts[batch],
                part.ids[lims[batch.start] : lims[batch.stop]].astype(np.uint64, copy=False),
                _least_shared(sizes[numbers.view(np.intp)], least).astype(np.uint32),
            )
            yield Shared(smaller, larger, rare, total), crowded


def _unite_equal(
    sets: _kernel.Sets, texts: TextSets, searched: Flags | None, within: Within | None
) -> Words:
    """Unite texts of equal digests and values; return the first of each, ascending."""
    numbers = np.arange(len(texts)) if searched is None else np.flatnonzero(searched)
    values = [] if within is None else [within.codes[numbers].astype(np.uint64)]
    repeats, firsts = repeated_places(texts.digests[numbers], *values)
    sets.unite(numbers[repeats].astype(np.uint64), numbers[firsts].astype(np.uint64))
    return np.delete(numbers, repeats).astype(np.uint64)


def _sort_samples(
    texts: TextSets,
    distinct: Words,
    ranks: Counts,
    resources: Resources,
    within: Within | None,
) -> Sorter:
    """Return the sampled features of texts with the ranks of these, to be sorted."""
    places = distinct.view(np.intp)
    samples = texts.samples[places]
    lims = list_lims(samples)
    sorter = Sorter(resources.memory // 2, None, int(lims[-1]), threads=resources.threads)
    for batch in spans(lims, SAMPLES_AT_ONCE):
        salts = np.empty(0, np.uint32) if within is None else within.salts_at(places[batch])
        sorter.add(*texts.sampled(distinct[batch], ranks[batch], salts))
    return sorter
