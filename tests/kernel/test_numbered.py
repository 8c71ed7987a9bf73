"""Rows with numbers of 32 bits: the kernel's parts and groups, and the sorter that builds use."""

import numpy as np
import pytest

import fpstore
from fpstore import _kernel
from fpstore.building import numbered, parts
from fpstore.building.external_sort import pair_bytes
from fpstore.building.numbered import NumberedSorter
from fpstore.building.parts import Rows, parts_of

RNG = np.random.default_rng(7)


def drawn(kind, count):
    """Return keys of which some are equal, many begin alike, or all are."""
    keys = RNG.integers(0, 2**64, count, dtype=np.uint64)
    if kind == "equal":
        keys = keys[RNG.integers(0, max(count // 3, 1), count)] if count else keys
    elif kind == "alike":
        keys >>= np.uint64(20)
    elif kind == "same":
        keys[:] = 5
    return keys


def groups_of(keys, numbers):
    """Return what a dictionary makes of the rows."""
    found = {}
    for key, number in zip(keys.tolist(), numbers.tolist(), strict=True):
        found.setdefault(key, set()).add(number)
    return [(key, sorted(found[key])) for key in sorted(found)]


def rows_in(sorter, ticks=None):
    out = []
    for part in sorter.groups(lambda rows: None if ticks is None else ticks.append(rows)):
        counts = np.ones(len(part.keys), np.uint64) if part.per_key is None else part.per_key
        ends = np.cumsum(counts).tolist()
        ids = part.ids.tolist()
        out += [(key, ids[end - count : end]) for key, end, count in zip(part.keys.tolist(), ends, counts.tolist(), strict=True)]
    return out


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("numbers_given", [True, False])
@pytest.mark.parametrize("kind", ["random", "equal", "alike", "same"])
@pytest.mark.parametrize("count", [0, 1, 2, 1000, 70_000])
def test_parts_are_sorted_as_by_numpy(count, kind, numbers_given, threads):
    keys = drawn(kind, count)
    numbers = RNG.integers(0, 2**32, count, dtype=np.uint32) if numbers_given else None
    got = parts_of(Rows(keys, numbers, 11), 0, threads).sorted()
    order = np.argsort(keys, kind="stable")
    assert np.array_equal(got[0], keys[order])
    assert np.array_equal(got[1], (np.arange(11, 11 + count, dtype=np.uint32) if numbers is None else numbers)[order])


@pytest.mark.parametrize("room", [10**6, 300, 7], ids=["memory", "runs", "small runs"])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["random", "equal", "alike", "same"])
@pytest.mark.parametrize("numbers_given", [True, False])
def test_groups_are_those_of_a_dictionary(tmp_path, monkeypatch, numbers_given, kind, threads, room):
    monkeypatch.setattr(parts, "PART_ROWS", 16)
    keys = drawn(kind, 2000)
    numbers = RNG.integers(0, 100 if kind == "same" else 2**32, 2000, dtype=np.uint64)
    sorter = NumberedSorter(room * pair_bytes(1), tmp_path, None, threads)
    for start in range(0, 2000, 190):
        piece = slice(start, start + 190)
        sorter.add(keys[piece], numbers[piece] if numbers_given else None)
    ticks = []
    expected = groups_of(keys, numbers if numbers_given else np.arange(2000))
    assert rows_in(sorter, ticks) == expected
    assert sum(ticks) == sorter.rows == 2000
    assert sorter.spilled == (room < 2000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room", [10**6, 300])
@pytest.mark.parametrize("place", [0, 1, 7])
def test_numbers_of_more_bits_are_left_to_pairs(tmp_path, room, place):
    """Wherever they come: in the first piece, or after rows that have gone to files."""
    keys, numbers = drawn("equal", 1600), np.arange(1600, dtype=np.uint64)
    numbers[200 * place + 3] = 2**32
    sorter = NumberedSorter(room * pair_bytes(1), tmp_path, None, 2)
    for start in range(0, 1600, 200):
        sorter.add(keys[start : start + 200], numbers[start : start + 200])
    assert rows_in(sorter) == groups_of(keys, numbers)
    assert list(tmp_path.iterdir()) == []


def test_rows_beyond_the_last_number_are_left_to_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(numbered, "MOST_NUMBER", 500)
    keys = drawn("random", 1000)
    sorter = NumberedSorter(300 * pair_bytes(1), tmp_path, None, 2)
    for start in range(0, 1000, 100):
        sorter.add(keys[start : start + 100], None)
    assert rows_in(sorter) == groups_of(keys, np.arange(1000))


@pytest.mark.parametrize("shift", range(0, 16, 5))
@pytest.mark.parametrize("bits", [1, 6, 12])
@pytest.mark.parametrize("depth", [0, 9, 52])
def test_rows_are_scattered_to_any_places(depth, bits, shift):
    """Also where parts begin and end within a line, or have no row."""
    keys = RNG.integers(0, 2**64, 5000, dtype=np.uint64)
    digits = (keys << np.uint64(depth)) >> np.uint64(64 - bits)
    counts = np.zeros(1 << bits, np.uint64)
    _kernel.count_parts(keys, depth, counts)
    assert np.array_equal(counts, np.bincount(digits.astype(np.int64), minlength=1 << bits))
    out = np.full(5000 + shift, 7, np.uint64)[shift:], np.full(5000 + shift, 7, np.uint32)[shift:]
    at = np.cumsum(counts) - counts
    _kernel.scatter_parts(keys, None, 3, depth, at, out)
    order = np.argsort(digits, kind="stable")
    assert np.array_equal(at, np.cumsum(counts))
    assert np.array_equal(out[0], keys[order])
    assert np.array_equal(out[1], order.astype(np.uint32) + 3)


def test_the_kernel_refuses_other_arrays():
    keys, numbers, counts = np.arange(100, dtype=np.uint64), np.arange(100, dtype=np.uint32), np.zeros(4, np.uint64)
    with pytest.raises(ValueError, match="no room"):
        _kernel.scatter_parts(keys, numbers, 0, 0, counts + np.uint64(90), (keys.copy(), numbers.copy()))
    with pytest.raises(ValueError, match="no room"):
        _kernel.scatter_parts(keys, numbers, 0, 0, counts + np.uint64(2**63), (keys.copy(), numbers.copy()))
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
    with pytest.raises(TypeError):
        _kernel.sort_parts(keys, keys, counts, 0)


@pytest.mark.parametrize("kind", ["random", "equal", "same"])
@pytest.mark.parametrize("ids", ["rows", "small", "large"])
def test_a_build_has_the_same_bytes_in_any_memory_and_threads(tmp_path, monkeypatch, kind, ids):
    """Also the file of the ids, whose pages depend on how many records come at once."""
    keys = drawn(kind, 30_000)
    given = {"rows": None, "small": RNG.permutation(30_000).astype(np.uint64), "large": RNG.integers(0, 2**64, 30_000, np.uint64)}
    expected = None
    for number, (size, threads) in enumerate(((1, 1), (1, 3), (1 << 12, 1), (1 << 12, 2))):
        monkeypatch.setattr("fpstore.building.external_sort.PAIR_BYTES", 32 * size)
        monkeypatch.setattr("fpstore.building.external_sort.SORT_BYTES", 16 * size)
        monkeypatch.setattr("fpstore.building.table_keys.LEAST_MEMORY", 8 * size << 16)  # of a table 65,536 rows
        monkeypatch.setattr("fpstore.building.sorted_columns.COPY_ROWS", 7000)
        path = tmp_path / str(number)
        fpstore.build(path, keys, given[ids], design="manku-4", memory="64MiB", threads=threads).close()
        files = {file.name: file.read_bytes() for file in path.rglob("*") if file.suffix in (".fpt", ".mdb")}
        expected = expected or files
        assert files == expected


@pytest.mark.parametrize("threads", [1, 3])
def test_sorts_end_when_they_are_stopped(threads):
    stop = _kernel.Stop()
    rows = parts_of(Rows(drawn("random", 70_000), None), 0, threads, stop)
    stop.set()
    with pytest.raises(InterruptedError):
        rows.sorted()
    with pytest.raises(InterruptedError):
        parts_of(Rows(drawn("random", 70_000), None), 0, threads, stop)
