"""The search of `fpstore.jobs.overlaps` by tasks.

Stages: *equal* finds texts with equal features; *sample* sends the sampled features of the first of
each to slices; *pairs* pairs texts that share a feature; *candidates* counts what pairs share, and
sends the smaller text to the part of the larger one; *check* compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Words
from fpstore.base.arrays import (
    HALF_BITS,
    NO_WORDS,
    distinct_places,
    is_run_start,
    list_lims,
    lists_at,
    repeated_places,
)
from fpstore.base.resources import Resources
from fpstore.building.external_sort import Sorter
from fpstore.hashing.base import FeatureSets
from fpstore.jobs.compared import SETS
from fpstore.jobs.overlaps import (
    LINKED,
    Shared,
    largest_first,
    may_contain,
    ranks_of,
    share_several,
    shared_pairs,
)
from fpstore.jobs.text_sets import TextSets, join_sets
from fpstore.jobs.within import salts_of
from fpstore.plans.keys import linked_by_keys
from fpstore.plans.shuffle import group_places, mix, row_numbers, slice_places, split_numbers
from fpstore.work.folder import PlanFolder, Stage
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays

WriteLinks = Callable[[PieceWriter, Words, Words], None]  # of two rows each
LINKING = ("equal", "check")  # the stages that write links
WITHIN = "within"  # the keys of values
COUNTS = ("smaller", "larger", "larger.sizes", "rare", "total")


def overlap_stages(parts: int, equal_bits: int, feature_bits: int) -> list[Stage]:
    return [
        Stage("equal", 1 << equal_bits),
        Stage("sample", parts),
        Stage("pairs", 1 << feature_bits),
        Stage("candidates", parts),
        Stage("check", parts),
    ]


def write_sets(
    writer: PieceWriter,
    texts: TextSets,
    places: npt.NDArray[np.intp],
    bits: int,
    within: Words | None = None,
) -> None:
    """Write the sets of texts at some places, and their digests in slices.

    ``within`` has the keys of the values inside of which these texts are compared.
    """
    features = lists_at(texts.features, texts.lims[places], texts.sizes[places])
    sets = FeatureSets(features, texts.sizes[places], texts.digests[places], texts.samples[places])
    columns: list[npt.NDArray[Any]] = [*sets, texts.chars[places]]
    for name, column in zip(SETS, columns, strict=True):
        writer.add(name, column)
    with_features = np.flatnonzero(sets.sizes)
    digests = sets.digests[with_features]
    digest_slices = slice_places(digests, bits)
    writer.add_slices("equal.digests", digests, digest_slices)
    writer.add_slices("equal.places", with_features.astype(np.uint32), digest_slices)
    if within is not None:
        writer.add(WITHIN, within)
        writer.add_slices("equal.within", within[with_features], digest_slices)


def read_sets(hashed: Pieces) -> TextSets:
    """Return the sets of the texts of a part."""
    features, *columns = (hashed.read(name) for name in SETS)
    return join_sets(features, [tuple(columns)])


def find_equal(plan: PlanFolder, number: int, writer: PieceWriter, write: WriteLinks) -> None:
    """Link the texts of a slice that are equal, and write those behind the first.

    Link rows of equal keys, too.
    """
    hashed = plan.results("hash")
    digests = concatenate_arrays(hashed, "equal.digests", number)
    places = [pieces.read("equal.places", number) for pieces in hashed]
    numbers = np.concatenate(
        [row_numbers(part, part_places) for part, part_places in enumerate(places)]
    )
    values = (
        [concatenate_arrays(hashed, "equal.within", number)] if "equal.within" in hashed[0] else []
    )
    repeats, firsts = repeated_places(digests, *values)
    a, b = numbers[firsts], numbers[repeats]
    parts, own_places = split_numbers(b)
    writer.add_slices("repeats", own_places.astype(np.uint32), group_places(parts, len(hashed)))
    pairs = [(a, b), *linked_by_keys(hashed, number)]
    write(writer, *(_rows_of(plan, np.concatenate(ends)) for ends in zip(*pairs, strict=True)))


def _rows_of(plan: PlanFolder, numbers: Words) -> Words:
    """Return the numbers of rows, by the numbers of parts and the places of texts in them."""
    parts, places = split_numbers(numbers)
    rows = np.empty_like(numbers)
    for part in np.unique(parts).tolist():
        of_part = parts == part
        rows[of_part] = row_numbers(part, plan.result("hash", part).read("rows")[places[of_part]])
    return rows


def write_samples(plan: PlanFolder, part: int, writer: PieceWriter, bits: int) -> None:
    """Write the samples of a part in slices of features, without texts that others equal."""
    hashed = plan.result("hash", part)
    texts = read_sets(hashed)
    is_first = np.ones(len(texts), bool)
    for pieces in plan.results("equal"):
        is_first[pieces.read("repeats", part)] = False
    places = np.flatnonzero(is_first)
    samples = texts.samples[places]
    features = lists_at(texts.features, texts.lims[places], samples)
    if WITHIN in hashed:
        features = features ^ np.repeat(salts_of(hashed.read(WITHIN)[places]), samples)
    sizes = np.repeat(texts.sizes[places], samples)
    feature_slices = slice_places(mix(features.astype(np.uint64) << np.uint64(HALF_BITS)), bits)
    writer.add_slices("features", features, feature_slices)
    writer.add_slices("places", np.repeat(places, samples).astype(np.uint32), feature_slices)
    writer.add_slices("sizes", sizes, feature_slices)


def write_pairs(
    plan: PlanFolder, number: int, writer: PieceWriter, least: float, resources: Resources
) -> None:
    """Write the pairs of the texts of a slice that share a feature, by the smaller one's part.

    Pairs that share too few features of the slice for ``least`` are left out.
    """
    sampled = plan.results("sample")
    features, sizes = (concatenate_arrays(sampled, name, number) for name in ("features", "sizes"))
    numbers = np.concatenate(
        [row_numbers(part, pieces.read("places", number)) for part, pieces in enumerate(sampled)]
    )
    distinct, texts = distinct_places(numbers)
    text_sizes = np.empty(len(distinct), np.int64)
    text_sizes[texts] = sizes
    order = largest_first(text_sizes)
    samples = Sorter(resources.memory // 2, None, len(features), threads=resources.threads)
    samples.add(features.astype(np.uint64), ranks_of(order)[texts])
    pairs = shared_pairs(samples, order.astype(np.uint32), text_sizes, least, resources)
    shared, crowded = _join_pairs(list(pairs))
    smaller, larger = (distinct[side.view(np.intp)] for side in (shared.smaller, shared.larger))
    parts, places = split_numbers(smaller)
    columns: list[npt.NDArray[Any]] = [
        places.astype(np.uint32),
        larger,
        text_sizes[shared.larger.view(np.intp)],
        shared.rare,
        shared.total,
    ]
    part_slices = group_places(parts, len(sampled))
    for name, column in zip(COUNTS, columns, strict=True):
        writer.add_slices(name, column, part_slices)
    # a text once for each feature that is crowded for it
    parts, places = split_numbers(np.repeat(smaller, is_run_start(smaller) * crowded))
    writer.add_slices("crowded", places.astype(np.uint32), group_places(parts, len(sampled)))


def _join_pairs(pairs: list[tuple[Shared, Counts]]) -> tuple[Shared, Counts]:
    kinds = (np.uint64, np.uint64, np.int64, np.int64)
    columns = zip(*(shared for shared, _ in pairs), strict=True) if pairs else ((),) * len(kinds)
    shared = (
        np.concatenate([np.empty(0, kind), *column])
        for kind, column in zip(kinds, columns, strict=True)
    )
    crowded = np.concatenate([np.empty(0, np.uint32), *(counts for _, counts in pairs)])
    return Shared(*shared), crowded


def write_candidates(plan: PlanFolder, part: int, writer: PieceWriter, least: float) -> None:
    """Write the pairs that may contain each other, with the smaller text, by the larger's part."""
    paired, parts = plan.results("pairs"), len(plan.results("hash"))
    texts = read_sets(plan.result("hash", part))
    smaller, larger, sizes, rare, total = (
        concatenate_arrays(paired, name, part) for name in COUNTS
    )
    order = np.lexsort((larger, smaller))
    smaller, larger = smaller[order].astype(np.uint64), larger[order]
    shared, starts = Shared(smaller, larger, rare[order], total[order]).summed()
    several = share_several(shared, texts.sizes, least)
    shared, starts = shared.select(several), starts[several]
    crowded = np.zeros(len(texts), np.uint32)
    for pieces in paired:
        crowded += np.bincount(pieces.read("crowded", part), minlength=len(texts)).astype(np.uint32)
    places = shared.smaller.view(np.intp)
    near = may_contain(shared, texts.sizes[places], sizes[order][starts], crowded[places], least)
    places, larger = places[near], shared.larger[near]
    _write_texts(writer, texts, places, larger, parts)


def _write_texts(
    writer: PieceWriter,
    texts: TextSets,
    places: npt.NDArray[np.intp],
    larger: Words,
    parts: int,
) -> None:
    """Write pairs by the part of the larger text, and each smaller text once for a part."""
    targets, targeted = split_numbers(larger)
    by_part = group_places(targets, parts)
    writer.add_slices("smaller", places.astype(np.uint32), by_part)
    writer.add_slices("larger", targeted.astype(np.uint32), by_part)
    distinct = [np.unique(places[pairs]) for pairs in by_part]
    sent = np.concatenate([np.empty(0, np.intp), *distinct])
    lims = list_lims(list(map(len, distinct)))
    sizes = texts.sizes[sent]
    writer.add_ordered("texts", sent.astype(np.uint32), lims)
    writer.add_ordered("sizes", sizes, lims)
    features = lists_at(texts.features, texts.lims[sent], sizes)
    writer.add_ordered("features", features, list_lims(sizes)[lims])


def check_pairs(
    plan: PlanFolder, part: int, writer: PieceWriter, least: float, write: WriteLinks
) -> None:
    """Link the candidates of a part, which has the larger text of each, by all features."""
    hashed, own = plan.result("hash", part), read_sets(plan.result("hash", part))
    rows = hashed.read("rows")
    smaller, larger = list[Words](), list[Words]()
    for place, pieces in enumerate(plan.results("candidates")):
        sent = pieces.read("texts", part)
        if not len(sent):
            continue
        features, sizes = _join(own, pieces, part)
        sets = _kernel.FeatureSets(features, list_lims(sizes).view(np.uint64))
        pair_texts, pair_larger = pieces.read("smaller", part), pieces.read("larger", part)
        a = (len(own) + np.searchsorted(sent, pair_texts)).astype(np.uint64)
        linked = sets.contain(a, pair_larger.astype(np.uint64), LINKED * least).view(bool)
        sender = plan.result("hash", place)
        if WITHIN in hashed:
            keys = sender.read(WITHIN)[pair_texts], hashed.read(WITHIN)[pair_larger]
            linked &= (keys[0] == keys[1]).all(axis=1)
        sent_rows = sender.read("rows")
        smaller.append(row_numbers(place, sent_rows[pair_texts[linked]]))
        larger.append(row_numbers(part, rows[pair_larger[linked]]))
    write(writer, np.concatenate([NO_WORDS, *smaller]), np.concatenate([NO_WORDS, *larger]))


def _join(own: TextSets, pieces: Pieces, part: int) -> tuple[Counts, npt.NDArray[np.int64]]:
    features = np.concatenate([own.features, pieces.read("features", part)])
    return features, np.concatenate([own.sizes, pieces.read("sizes", part)])


def write_members(
    writer: PieceWriter,
    texts: TextSets,
    slices_of_rows: Sequence[npt.NDArray[np.intp]],
    places: npt.NDArray[np.intp],
) -> None:
    """Write the sets of texts at some places, in slices of these."""
    sizes, starts = texts.sizes[places], texts.lims[places]
    for name, column in (("sizes", sizes), ("digests", texts.digests[places])):
        writer.add_slices(name, column, slices_of_rows)
    writer.add_slices("chars", texts.chars[places], slices_of_rows)
    writer.add_lists("features", texts.features, starts, sizes, slices_of_rows)


def read_members(parts: list[Pieces], number: int) -> TextSets:
    """Return the sets of the texts of a slice."""
    features, sizes, digests, chars = (
        concatenate_arrays(parts, name, number)
        for name in ("features", "sizes", "digests", "chars")
    )
    return join_sets(features, [(sizes, digests, np.zeros(len(sizes), np.uint32), chars)])
