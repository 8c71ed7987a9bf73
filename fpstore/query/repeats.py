"""Strings that have several numbers, such as ids that several shards have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from fpstore.base.aliases import Groups, Words
from fpstore.base.arrays import list_lims
from fpstore.query.id_lookup import ID_SLICE_ROWS, IdLookup, ids_in_slices


def repeated_ids(lookup: IdLookup, groups: Iterator[Groups]) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs of a number and the first number with the same id, where they differ.

    The groups are the hashes of ids with their numbers, which ascend. Many ids are read at
    once: reading one costs as much as reading all that are compressed with it.
    """
    for counts, numbers in _groups_of_several(groups):
        lims = list_lims(counts)
        for lists, (ids,) in ids_in_slices([(lookup, numbers)], lims):
            bounds = lims[lists.start : lists.stop + 1]
            pairs = _repeats(
                (bounds - bounds[0]).tolist(), numbers[bounds[0] : bounds[-1]].tolist(), ids
            )
            if pairs:
                yield pairs


def _groups_of_several(groups: Iterator[Groups]) -> Iterator[tuple[Words, Words]]:
    """Yield (counts, numbers) of many keys at once, without keys that have one number."""
    counts, numbers, rows = list[Words](), list[Words](), 0
    for _, sizes, group_numbers in groups:
        several = sizes > 1
        counts.append(sizes[several])
        numbers.append(group_numbers[np.repeat(several, sizes.astype(np.int64))])
        rows += len(numbers[-1])
        if rows >= ID_SLICE_ROWS:
            yield np.concatenate(counts), np.concatenate(numbers)
            counts, numbers, rows = [], [], 0
    if rows:
        yield np.concatenate(counts), np.concatenate(numbers)


def _repeats(lims: list[int], numbers: list[int], ids: Any) -> list[tuple[int, int]]:
    """Return each number whose id came before in its list, with the first such number."""
    pairs = list[tuple[int, int]]()
    for start, end in pairwise(lims):
        first: dict[object, int] = {}
        for value, number in zip(ids[start:end], numbers[start:end], strict=True):
            if first.setdefault(value, number) != number:
                pairs.append((number, first[value]))
    return pairs
