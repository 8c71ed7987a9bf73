"""Streaming merges of the kernel at every width, of rows that tie in their leading words, against plain Python."""

import brute_force
import numpy as np
import pytest
from tableimage import WIDTHS, kinds_of, make_rows

from fpstore import _kernel


def rows_of(numbers, width):
    return brute_force.rows_of(sorted(numbers), width)


def drawn(width, kind, seed):
    """Return three sets of numbers that overlap."""
    rng = np.random.default_rng(seed)
    numbers = brute_force.numbers_of(make_rows(kind, seed, 240, width))
    return tuple({numbers[i] for i in rng.choice(len(numbers), len(numbers) // 2, replace=False)} for _ in range(3))


def groups_of(keys, rng):
    return {key: set(rng.integers(0, 50, rng.integers(1, 5)).tolist()) for key in keys}


def columns(groups, width):
    keys = sorted(groups)
    counts = np.array([len(groups[key]) for key in keys], np.uint64)
    return rows_of(keys, width), counts, np.array([i for key in keys for i in sorted(groups[key])], np.uint64)


def as_dictionary(keys, counts, ids):
    numbers = brute_force.numbers_of(keys)
    assert numbers == sorted(set(numbers))
    assert counts.sum() == len(ids)
    parts = np.split(ids, np.cumsum(counts.astype(np.int64))[:-1])
    return {key: set(part.tolist()) for key, part in zip(numbers, parts, strict=True)}


@pytest.mark.parametrize(("width", "kind"), [(width, kind) for width in WIDTHS for kind in kinds_of(width)])
def test_sets_and_groups_are_merged(width, kind):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        keys, drop, add = drawn(width, kind, seed)
        for dropped in (drop, set(), keys):
            out = np.empty((len(keys) + len(add), *rows_of(keys, width).shape[1:]), np.uint64)
            count = _kernel.merge_keys(rows_of(keys, width), rows_of(dropped, width), rows_of(add, width), out)
            assert brute_force.numbers_of(out[:count]) == sorted(keys - dropped | add)
        groups, others = groups_of(keys, rng), groups_of(add, rng)
        merged = _kernel.merge_groups(*columns(groups, width), rows_of(drop | add, width), *columns(others, width))
        assert as_dictionary(*merged) == {key: ids for key, ids in groups.items() if key not in drop | add} | others
        union = as_dictionary(*_kernel.union_groups(*columns(groups, width), *columns(others, width)))
        assert union == {key: groups.get(key, set()) | others.get(key, set()) for key in groups.keys() | others.keys()}


@pytest.mark.parametrize("width", [128, 256])
def test_rows_that_differ_in_the_last_word_only_must_ascend(width):
    rows = make_rows("last", 3, 60, width)[:5]
    none = rows[:0]
    out = np.empty_like(rows)
    assert _kernel.merge_keys(rows, none, none, out) == len(rows)
    assert np.array_equal(out, rows)
    for wrong in (np.ascontiguousarray(rows[::-1]), rows[[0, 0, 1, 2, 3]]):
        with pytest.raises(ValueError, match="keys must ascend"):
            _kernel.merge_keys(wrong, none, none, out)
