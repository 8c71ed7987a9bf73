"""Rows of a key and a number.

The kernel's parts and groups, the sort in memory, and the external sort that builds use.
"""

import itertools

import numpy as np
import pytest
from speeds import crossed

import fpstore
from fpstore import _kernel
from fpstore.base.width import rows_to_numbers
from fpstore.building.external_sort import NumberedRows, Sorter, pair_bytes, sort_rows

RNG = np.random.default_rng(7)


KINDS = ["random", "equal", "alike", "deep", "a crowd", "same"]


def drawn(kind, count, words=1):
    """Return keys of which some are equal, many begin alike, or all are."""
    keys = RNG.integers(0, 2**64, (count, words), dtype=np.uint64)
    if kind == "equal":
        keys = keys[RNG.integers(0, max(count // 3, 1), count)] if count else keys
    elif kind == "alike":
        keys[:, 0] >>= np.uint64(20)
    elif kind == "deep":
        keys[:, :-1] = 3
        keys[:, -1] >>= np.uint64(40)
    elif kind == "a crowd":
        keys[::2, 0] >>= np.uint64(50)
    elif kind == "same":
        keys[:] = 5
    return keys[:, 0].copy() if words == 1 else keys


def order_of(keys):
    return np.lexsort([keys] if keys.ndim == 1 else keys.T[::-1])


def groups_of(keys, numbers):
    """Return what a dictionary makes of the rows."""
    collected = {}
    for key, number in zip(rows_to_numbers(keys), numbers.tolist(), strict=True):
        collected.setdefault(key, set()).add(number)
    return [(key, sorted(collected[key])) for key in sorted(collected)]


def rows_in(sorter, ticks=None):
    out = []
    for part in sorter.groups(lambda rows: None if ticks is None else ticks.append(rows)):
        ends = np.cumsum(part.counts).tolist()
        ids, counts = part.ids.tolist(), part.counts.tolist()
        out += [
            (key, ids[end - count : end])
            for key, end, count in zip(rows_to_numbers(part.keys), ends, counts, strict=True)
        ]
    return out


def sorted_by(threads, rows, stop=None):
    out = rows.buffers()
    sort_rows(rows, out, threads, stop)
    return out


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "threads"), crossed(KINDS, [1, 3]))
def test_rows_are_sorted_as_by_numpy(set_limits, kind, threads):
    """Also where large parts are taken apart again."""
    for part_rows, counts in ((1 << 14, [0, 1, 2, 1000, 70_000]), (16, [1000, 3000])):
        set_limits(sorted_rows=part_rows)
        for count, words, number in itertools.product(
            counts, (1, 2, 4), (None, np.uint32, np.uint64)
        ):
            keys = drawn(kind, count, words)
            numbers = None if number is None else RNG.integers(0, 2**32, count).astype(number)
            order = order_of(keys)
            got = sorted_by(
                threads, NumberedRows(keys.copy(), None if numbers is None else numbers.copy(), 11)
            )
            assert np.array_equal(got[0], keys[order])
            assert np.array_equal(got[1], order + 11 if numbers is None else numbers[order])
            assert got[1].dtype == (number or np.uint32)


@pytest.mark.parametrize(
    ("kind", "shape", "room"), crossed(KINDS, [(1, 1), (2, 1), (1, 4)], [10**6, 300, 150], share=5)
)
def test_groups_are_those_of_a_dictionary(tmp_path, set_limits, kind, shape, room):
    """Also of runs that are sorted, because keys begin alike."""
    (threads, words), count = shape, 1000
    set_limits(sample_step=8)
    for part_rows, value in ((16, None), (1 << 14, 100), (16, 2**64 - 1)):
        set_limits(sorted_rows=part_rows)
        keys = drawn(kind, count, words)
        numbers = (
            np.arange(count) if value is None else RNG.integers(0, value, count, dtype=np.uint64)
        )
        sorter = Sorter(room * pair_bytes(words), tmp_path, None, words, threads)
        for start in range(0, count, 95):
            piece = slice(start, start + 95)
            sorter.add(keys[piece], None if value is None else numbers[piece])
        ticks = []
        assert rows_in(sorter, ticks) == groups_of(keys, numbers)
        assert sum(ticks) == sorter.rows == count
        assert sorter.spilled == (room < count)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["alike", "a crowd"])
def test_parts_fit_however_the_keys_lie(tmp_path, set_limits, kind):
    set_limits(sorted_rows=16, sample_step=4)
    sorter = Sorter(300 * pair_bytes(1), tmp_path, None, 1, 2)
    sorter.add(drawn(kind, 3000), None)
    ticks = []
    rows_in(sorter, ticks)
    assert max(ticks) <= 300 // 5  # some are sorted while others wait


@pytest.mark.parametrize("room", [10**6, 300])
@pytest.mark.parametrize("place", [0, 1, 7])
def test_numbers_of_more_bits(tmp_path, room, place):
    """Wherever they come: in the first piece, or after rows that have gone to a file."""
    keys, numbers = drawn("equal", 1600), np.arange(1600, dtype=np.uint64)
    numbers[200 * place + 3] = 2**32
    sorter = Sorter(room * pair_bytes(1), tmp_path, None, 1, 2)
    for start in range(0, 1600, 200):
        sorter.add(keys[start : start + 200], numbers[start : start + 200])
    assert rows_in(sorter) == groups_of(keys, numbers)


def test_rows_beyond_the_last_number_of_32_bits(tmp_path, set_limits):
    set_limits(short_number=500)
    keys = drawn("random", 1000)
    sorter = Sorter(300 * pair_bytes(1), tmp_path, None, 1, 2)
    for start in range(0, 1000, 100):
        sorter.add(keys[start : start + 100], None)
    assert rows_in(sorter) == groups_of(keys, np.arange(1000))


@pytest.mark.parametrize("shift", range(0, 16, 5))
@pytest.mark.parametrize("bits", [1, 6, 12])
@pytest.mark.parametrize("depth", [0, 9, 52])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_rows_are_scattered_to_any_places(depth, bits, shift, words):
    """Also where parts begin and end within a line, or have no row."""
    depth += 64 * (words - 1)
    keys = RNG.integers(0, 2**64, (5000, words), dtype=np.uint64)
    digits = (keys[:, -1] << np.uint64(depth % 64)) >> np.uint64(64 - bits)
    keys = keys[:, 0].copy() if words == 1 else keys
    counts = np.zeros(1 << bits, np.uint64)
    _kernel.count_parts(keys, depth, counts)
    assert np.array_equal(counts, np.bincount(digits.astype(np.int64), minlength=1 << bits))
    order = np.argsort(digits, kind="stable")
    for number in (np.uint32, np.uint64):
        out = (
            np.full((5000 + shift, *keys.shape[1:]), 7, np.uint64)[shift:],
            np.full(5000 + shift, 7, number)[shift:],
        )
        at = np.cumsum(counts) - counts
        _kernel.scatter_parts(keys, None, 3, depth, at, out)
        assert np.array_equal(at, np.cumsum(counts))
        assert np.array_equal(out[0], keys[order])
        assert np.array_equal(out[1], order.astype(number) + 3)


def test_the_kernel_refuses_other_arrays():
    keys, numbers, counts = (
        np.arange(100, dtype=np.uint64),
        np.arange(100, dtype=np.uint32),
        np.zeros(4, np.uint64),
    )
    with pytest.raises(ValueError, match="no room"):
        _kernel.scatter_parts(
            keys, numbers, 0, 0, counts + np.uint64(90), (keys.copy(), numbers.copy())
        )
    with pytest.raises(ValueError, match="no room"):
        _kernel.scatter_parts(
            keys, numbers, 0, 0, counts + np.uint64(2**63), (keys.copy(), numbers.copy())
        )
    with pytest.raises(ValueError, match="a number for each key"):
        _kernel.scatter_parts(keys, numbers[:9], 0, 0, counts, (keys.copy(), numbers.copy()))
    with pytest.raises(ValueError, match="different lengths"):
        _kernel.scatter_parts(keys, numbers, 0, 0, counts, (keys.copy(), numbers[:9].copy()))
    for wrong in (np.zeros(3, np.uint64), np.zeros(1, np.uint64), np.zeros(1 << 13, np.uint64)):
        with pytest.raises(ValueError, match="a place for each value"):
            _kernel.count_parts(keys, 0, wrong)
    with pytest.raises(ValueError, match="a place for each value"):
        _kernel.count_parts(keys, 63, counts)
    for ends in ([101], [5, 4]):
        with pytest.raises(ValueError, match="ends must ascend"):
            _kernel.sort_parts(keys, numbers, np.array(ends, np.uint64), 0)
    with pytest.raises(ValueError, match="a number and a count"):
        _kernel.group_numbered(keys, numbers, counts)
    with pytest.raises(TypeError, match="32 or 64 bits"):
        _kernel.sort_parts(keys, keys.astype(np.uint16), counts, 0)
    with pytest.raises(ValueError, match="of the type"):
        _kernel.scatter_parts(keys, numbers, 0, 0, counts, (keys.copy(), keys.copy()))
    with pytest.raises(ValueError, match="another width"):
        _kernel.scatter_parts(
            keys, numbers, 0, 0, counts, (np.zeros((100, 2), np.uint64), numbers.copy())
        )


@pytest.mark.parametrize(
    ("kind", "ids"), crossed(["random", "equal", "same"], ["rows", "small", "large"])
)
def test_a_build_has_the_same_bytes_in_any_memory_and_threads(tmp_path, set_limits, kind, ids):
    """Also the file of the ids, whose pages depend on how many records come at once."""
    count = 12_000
    keys = drawn(kind, count)
    options = {
        "rows": None,
        "small": RNG.permutation(count).astype(np.uint64),
        "large": RNG.integers(0, 2**64, count, np.uint64),
    }
    expected = None
    for number, (size, threads) in enumerate(((1, 1), (1, 3), (1 << 10, 2))):
        set_limits(
            pair_bytes=32 * size,
            sort_bytes=16 * size,
            table_memory=8 * size << 16,
            column_rows=5000,
        )
        path = tmp_path / str(number)
        fpstore.build(
            path, keys, options[ids], design="manku-4", memory="64MiB", threads=threads
        ).close()
        files = {
            file.name: file.read_bytes()
            for file in path.rglob("*")
            if file.suffix in (".fpt", ".mdb")
        }
        expected = expected or files
        assert files == expected
