"""Strings that have several numbers, such as ids that several shards have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from fpstore.base.aliases import Groups, Words
from fpstore.base.arrays import lims_of
from fpstore.query.names import NAMED_ROWS, Names, names_in_slices


def repeated_names(names: Names, groups: Iterator[Groups]) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs of a number and of the first one that has the same name, of names that have several.

    The groups are the hashes of names with their numbers, which ascend. Many names are read at
    once: one alone costs as much as all that are compressed with it.
    """
    for counts, numbers in _of_several(groups):
        lims = lims_of(counts)
        for lists, (found,) in names_in_slices([(names, numbers)], lims):
            some = lims[lists.start : lists.stop + 1]
            pairs = _after_the_first(
                (some - some[0]).tolist(), numbers[some[0] : some[-1]].tolist(), found
            )
            if pairs:
                yield pairs


def _of_several(groups: Iterator[Groups]) -> Iterator[tuple[Words, Words]]:
    """Yield how many numbers keys have, and the numbers, of keys that have several.

    Of many keys at once.
    """
    counts, numbers, held = list[Words](), list[Words](), 0
    for _, sizes, listed in groups:
        several = sizes > 1
        counts.append(sizes[several])
        numbers.append(listed[np.repeat(several, sizes.astype(np.int64))])
        held += len(numbers[-1])
        if held >= NAMED_ROWS:
            yield np.concatenate(counts), np.concatenate(numbers)
            counts, numbers, held = [], [], 0
    if held:
        yield np.concatenate(counts), np.concatenate(numbers)


def _after_the_first(lims: list[int], numbers: list[int], names: Any) -> list[tuple[int, int]]:
    """Return the numbers of names that their list has before, each with the first number of the name there."""
    pairs = list[tuple[int, int]]()
    for start, end in pairwise(lims):
        first: dict[object, int] = {}
        for name, number in zip(names[start:end], numbers[start:end], strict=True):
            if first.setdefault(name, number) != number:
                pairs.append((number, first[name]))
    return pairs
