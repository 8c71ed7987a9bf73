"""Streaming merges of the kernel against plain Python.

Sets, groups of ids, and id records read in a row.
"""

import brute_force
import numpy as np
import pytest
import reference_records
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tableimage import WIDTHS, kinds_of, make_rows

from fpstore import _kernel
from fpstore.errors import CorruptStoreError

MAX = 2**64 - 1
few = settings(max_examples=80)
words = st.one_of(st.sampled_from([0, 1, MAX - 1, MAX]), st.integers(0, 40), st.integers(0, MAX))
seeds = st.integers(0, MAX)
key_sets = st.sets(words, max_size=60)
records_of_lists = st.lists(
    st.lists(
        st.lists(words, min_size=1, max_size=4, unique=True).map(sorted), min_size=1, max_size=20
    ),
    max_size=5,
)


def column(values):
    return np.array(list(values), np.uint64)


def ascending(values):
    return column(sorted(values))


def rows_of(numbers, width=64):
    return brute_force.rows_of(sorted(numbers), width)


def columns(groups, width=64):
    """Return keys, counts and ids of a dictionary of id sets."""
    keys = sorted(groups)
    return (
        rows_of(keys, width),
        column(len(groups[k]) for k in keys),
        column(i for k in keys for i in sorted(groups[k])),
    )


def as_dictionary(keys, counts, ids):
    numbers = brute_force.numbers_of(keys)
    assert numbers == sorted(set(numbers))
    assert (len(counts), counts.sum()) == (len(numbers), len(ids))
    parts = np.split(ids, np.cumsum(counts.astype(np.int64))[:-1]) if numbers else []
    for part in parts:
        assert part.tolist() == sorted(set(part.tolist()))
    return {key: set(part.tolist()) for key, part in zip(numbers, parts, strict=True)}


# --- Sets -----------------------------------------------------------------------------------------


def merged(keys, drop, add):
    out = np.full((len(keys) + len(add) + 3, *keys.shape[1:]), 77, np.uint64)
    n = _kernel.merge_keys(keys, drop, add, out)
    assert (out[len(keys) + len(add) :] == 77).all()
    return brute_force.numbers_of(out[:n])


def groups_of(keys, rng):
    return {
        key: set(rng.choice(column([0, MAX, *range(50)]), rng.integers(1, 5)).tolist())
        for key in keys
    }


@pytest.mark.parametrize(
    ("width", "kind"), [(width, kind) for width in WIDTHS for kind in kinds_of(width)]
)
def test_sets_and_groups_are_merged(width, kind):
    """Of sets that overlap; above 64 bits rows tie in their leading words."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        numbers = brute_force.numbers_of(make_rows(kind, seed, 240 if seed else 2, width))
        numbers = [numbers[0], *numbers[seed:]]
        keys, drop, add = (
            set(rng.choice(np.array(numbers, object), len(numbers) // 2, replace=False))
            for _ in range(3)
        )
        for dropped in (drop, set(), keys):
            assert merged(*(rows_of(part, width) for part in (keys, dropped, add))) == sorted(
                keys - dropped | add
            )
        groups, others = groups_of(keys, rng), groups_of(add, rng)
        # some have ids in common
        groups |= {key: others[key] | {7} for key in sorted(others)[::2] if key in groups}
        parts = columns(groups, width), columns(others, width)
        if add & keys - drop:
            with pytest.raises(ValueError, match="is among those kept"):
                _kernel.merge_groups(*parts[0], rows_of(drop, width), *parts[1])
        whole = _kernel.merge_groups(*parts[0], rows_of(drop | add, width), *parts[1])
        assert (
            as_dictionary(*whole)
            == {key: ids for key, ids in groups.items() if key not in drop | add} | others
        )
        expected = {
            key: groups.get(key, set()) | others.get(key, set())
            for key in groups.keys() | others.keys()
        }
        for first, second in (parts, parts[::-1]):
            assert as_dictionary(*_kernel.union_groups(*first, *second)) == expected


@pytest.mark.parametrize("width", [128, 256])
def test_rows_that_differ_in_the_last_word_only_must_ascend(width):
    rows = make_rows("last", 3, 60, width)[:5]
    none = rows[:0]
    assert merged(rows, none, none) == brute_force.numbers_of(rows)
    for wrong in (np.ascontiguousarray(rows[::-1]), rows[[0, 0, 1, 2, 3]]):
        with pytest.raises(ValueError, match="keys must ascend"):
            merged(wrong, none, none)


@pytest.mark.parametrize("changes", [0, 1, 7, 300, 5000])
def test_merge_keys_of_long_runs(changes):
    rng = np.random.default_rng(changes)
    keys = np.unique(rng.integers(0, 2**64, 5000, np.uint64))
    drop = np.unique(rng.choice(keys, changes))
    add = np.unique(rng.integers(0, 2**64, changes, np.uint64))
    expected = np.union1d(np.setdiff1d(keys, drop), add)
    assert merged(keys, drop, add) == expected.tolist()
    assert merged(keys, keys, add) == add.tolist()
    assert merged(keys[:0], drop, keys) == keys.tolist()


@pytest.mark.parametrize("bad", [[2, 1], [1, 1], [0, MAX, MAX], [5, 6, 4]])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_merge_keys_refuses_what_does_not_ascend(bad, place):
    inputs = [column([1, 2, 3]), column([2]), column([4])]
    inputs[place] = column(bad)
    with pytest.raises(ValueError, match="keys must ascend"):
        _kernel.merge_keys(*inputs, np.empty(9, np.uint64))


def test_merge_keys_refuses_an_out_that_is_short_or_an_input():
    keys, none = column([1, 2, 3, 4]), column([])
    with pytest.raises(ValueError, match="too short"):
        _kernel.merge_keys(keys, none, column([9]), np.empty(4, np.uint64))
    for inputs in ((keys[:2], none, none), (none, keys[3:], none), (none, none, keys[1:3])):
        with pytest.raises(ValueError, match="over an input"):
            _kernel.merge_keys(*inputs, keys)
    assert _kernel.merge_keys(keys[:2], none, none, keys[2:]) == 2
    assert keys.tolist() == [1, 2, 1, 2]


# --- Groups ---------------------------------------------------------------------------------------


def test_groups_of_long_runs():
    rng = np.random.default_rng(5)
    groups = {
        int(key): set(rng.integers(0, 99, rng.integers(1, 9)).tolist())
        for key in rng.integers(0, 2**64, 3000, np.uint64)
    }
    part = sorted(groups)[100:2800:450]
    drop, add = ascending([*part, 5, MAX]), {part[1]: {1, 2}, part[1] + 1: {3}, 0: {0}}
    expected = {key: ids for key, ids in groups.items() if key not in part} | add
    assert as_dictionary(*_kernel.merge_groups(*columns(groups), drop, *columns(add))) == expected
    assert as_dictionary(*_kernel.union_groups(*columns(groups), *columns(add))) == groups | {
        key: groups.get(key, set()) | ids for key, ids in add.items()
    }


BAD_GROUPS = {
    "keys": ([2, 1], [1, 1], [5, 6]),
    "same": ([2, 2], [1, 1], [5, 6]),
    "lengths": ([1, 2], [2], [5, 6]),
    "few ids": ([1, 2], [1, 2], [5, 6]),
    "many ids": ([1, 2], [1, 1], [5, 6, 7]),
    "overflow": ([1, 2, 3], [2**63, 2**63, 2], [5, 6]),
}


@pytest.mark.parametrize("name", BAD_GROUPS)
def test_groups_that_make_no_sense_are_refused(name):
    bad, good, none = [
        [column(c) for c in group] for group in (BAD_GROUPS[name], ([9], [1], [4]), ([], [], []))
    ]
    for a, b in ((bad, good), (good, bad), (bad, none), (none, bad)):
        with pytest.raises(ValueError, match=r"ascend|disagree|lengths"):
            _kernel.union_groups(*a, *b)
        with pytest.raises(ValueError, match=r"ascend|disagree|lengths"):
            _kernel.merge_groups(*a, column([]), *b)
    with pytest.raises(ValueError, match="keys must ascend"):
        _kernel.merge_groups(*good, column([3, 3]), *none)


def test_a_union_needs_the_ids_of_a_common_key_in_order():
    good, bad = [[column([3]), column([2]), column(ids)] for ids in ([1, 2], [2, 2])]
    for a, b in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match="ids of a key must ascend"):
            _kernel.union_groups(*a, *b)


# --- Records --------------------------------------------------------------------------------------


def encoded(lists, first, seed):
    keys = keys_of(first, len(lists)).tolist()
    return [
        reference_records.encode_record(part, (seed + key) % 2**64)
        for part, key in zip(lists, keys, strict=True)
    ]


def keys_of(first, count):
    """Return a key for each of successive blocks."""
    return np.array([(first + i) * 0x9E3779B9 % 2**64 for i in range(count)], np.uint64)


def model_of_find(lists, first, wanted):
    return [
        (first + b, rank, number)
        for b, part in enumerate(lists)
        for rank, numbers in enumerate(part)
        for number in numbers
        if number in wanted
    ]


@few
@given(records_of_lists, st.integers(0, 2**40), seeds, key_sets, st.integers(1, 9))
@example([[[7]]], 0, MAX, {7}, 1)
@example([[[0, MAX]], [[MAX]]], 2**40, 3, {0, MAX}, 1)
def test_records_of_successive_blocks(lists, first, seed, others, step):
    records = encoded(lists, first, seed)
    counts, ids = _kernel.unpack_records(records, first, keys_of(first, len(records)), seed, "ids")
    assert (counts.dtype, ids.dtype) == (np.uint64, np.uint64)
    assert counts.tolist() == [len(numbers) for part in lists for numbers in part]
    assert ids.tolist() == [number for part in lists for numbers in part for number in numbers]
    for wanted in (others, others | set(ids.tolist()[::step]), set(ids.tolist())):
        blocks, ranks, result = _kernel.find_ids(
            records, first, keys_of(first, len(records)), seed, ascending(wanted), "ids"
        )
        assert (blocks.dtype, ranks.dtype, result.dtype) == (np.uint64, np.uint32, np.uint64)
        places = list(zip(blocks.tolist(), ranks.tolist(), result.tolist(), strict=True))
        assert places == model_of_find(lists, first, wanted)


def test_every_width_of_id():
    """Long enough that most fields are read wide, and with each end of the record."""
    for id_bits in range(65):
        check_width_of_id(id_bits)


def check_width_of_id(id_bits):
    rng = np.random.default_rng(id_bits)
    top = (1 << id_bits) - 1
    for count in (1, 2, 3, 70):
        lists = [[int(x) & top] for x in rng.integers(0, 2**64, count, np.uint64)]
        lists[0], lists[-1] = [top], [0]
        records = encoded([lists, lists], 5, 9)
        counts, ids = _kernel.unpack_records(records, 5, keys_of(5, len(records)), 9, "ids")
        assert counts.tolist() == [1] * 2 * count
        assert ids.tolist() == 2 * [number for numbers in lists for number in numbers]
        wanted = {top, *lists[count // 2]}
        blocks, ranks, result = _kernel.find_ids(
            records, 5, keys_of(5, len(records)), 9, ascending(wanted), "ids"
        )
        assert list(
            zip(blocks.tolist(), ranks.tolist(), result.tolist(), strict=True)
        ) == model_of_find([lists] * 2, 5, wanted)


def test_many_ids_for_a_fingerprint():
    lists = [[list(range(3 * i, 3 * i + 1 + 700 * (i % 50 == 3))) for i in range(200)]]
    counts, ids = _kernel.unpack_records(encoded(lists, 0, 1), 0, keys_of(0, 1), 1, "ids")
    assert counts.tolist() == [len(numbers) for numbers in lists[0]]
    assert ids.tolist() == [number for numbers in lists[0] for number in numbers]
    many = set(range(0, 1300, 2))
    blocks, ranks, result = _kernel.find_ids(
        encoded(lists, 0, 1), 0, keys_of(0, 1), 1, ascending(many), "ids"
    )
    assert list(
        zip(blocks.tolist(), ranks.tolist(), result.tolist(), strict=True)
    ) == model_of_find(lists, 0, many)


def test_each_changed_byte_of_a_record_is_found():
    lists = [[[1, 5], [2]], [[9], [3, 4, 8]], [[7]]]
    records = encoded(lists, 11, MAX - 11)  # the seed of a record passes 2^64
    none = column([])
    for number, record in enumerate(records):
        cut = [record[:n] for n in range(len(record))]
        for damaged in [
            *cut,
            record + b"\0",
            *(record[:i] + bytes([record[i] ^ 64]) + record[i + 1 :] for i in range(len(record))),
        ]:
            changed = [*records[:number], damaged, *records[number + 1 :]]
            with pytest.raises(
                CorruptStoreError, match=f"the/ids, block {11 + number}: "
            ) as caught:
                _kernel.unpack_records(changed, 11, keys_of(11, len(changed)), MAX - 11, "the/ids")
            assert (caught.value.path, caught.value.block) == ("the/ids", 11 + number)
            with pytest.raises(CorruptStoreError, match=f"block {11 + number}: "):
                _kernel.find_ids(changed, 11, keys_of(11, len(changed)), MAX - 11, none, "the/ids")
    for seed, first in ((MAX - 11, 12), (MAX - 10, 11)):
        with pytest.raises(CorruptStoreError):
            _kernel.unpack_records(records, first, keys_of(first, len(records)), seed, "ids")
    with pytest.raises(CorruptStoreError, match="block 11"):
        _kernel.unpack_records([records[1], records[0]], 11, keys_of(11, 2), MAX - 11, "ids")


def test_records_are_bytes_and_wanted_ascends():
    record = encoded([[[1]]], 0, 0)[0]
    for bad in ("text", None, bytearray(record), 3):
        with pytest.raises(TypeError, match="records are bytes"):
            _kernel.unpack_records([record, bad], 0, keys_of(0, 2), 0, "ids")
    for wanted in ([2, 1], [1, 1]):
        with pytest.raises(ValueError, match="must ascend"):
            _kernel.find_ids([record], 0, keys_of(0, 1), 0, column(wanted), "ids")
    with pytest.raises(TypeError):
        _kernel.find_ids([record], 0, keys_of(0, 1), 0, np.array([1], np.int64), "ids")
    counts, ids = _kernel.unpack_records([], 0, keys_of(0, 0), 0, "ids")
    assert (len(counts), len(ids)) == (0, 0)
    for keys in (keys_of(0, 0), keys_of(0, 2)):
        with pytest.raises(ValueError, match="different lengths"):
            _kernel.unpack_records([record], 0, keys, 0, "ids")
