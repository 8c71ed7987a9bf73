"""Sealed files: each value is found and no other, by every way to ask.

What becomes of files, threads and forks.
"""

import os
import threading
from pathlib import Path

import lmdb
import numpy as np
import pytest
from sealing import (
    BRANCH,
    COUNT,
    LEAF,
    PAGE,
    WAYS,
    key_of,
    opened,
    overwrite,
    padding_of,
    pages_of,
    rows,
    seal,
    used_of,
    value_of,
    written,
)
from speeds import full

import fpstore
from fpstore import _kernel
from fpstore.base.width import Width
from fpstore.disk.sealed import MIN_LONGEST_VALUE, PADDING_BYTES, SealedReader, SealedWriter

HIGHEST = 2**64 - 1
DAMAGED = fpstore.CorruptStoreError

# --- What is there, and what is not ---------------------------------------------------------------


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 20, 900, 20_000])
def test_each_value_is_found_and_no_other(tmp_path, count, words):
    keys = [key_of(number, words) for number in range(count)]
    values = [value_of(number) for number in range(count)]
    written(tmp_path / "f", list(zip(keys, values, strict=True)), words)
    file = opened(tmp_path / "f", words)
    file.check_all()
    last = 2 ** (64 * words) - 1
    assert file.entries == count
    for number in (*range(min(count, 300)), *range(max(count - 300, 0), count)):
        assert file.get(keys[number]) == values[number]
    numbers = np.arange(count, dtype=np.uint64)
    for order in (slice(None), slice(None, None, -1), slice(None, None, 7)):
        for _ in range(2):  # the second time from what has been noted
            assert (
                file.get_many(rows(keys[order], words), np.ascontiguousarray(numbers[order]))
                == values[order]
            )
    result, in_range = file.range(0, last)
    assert (in_range, Width(64 * words).numbers(result)) == (values, keys)
    # between two keys, before the first and behind the last
    for number in (0, 1, count // 2, count):
        near = key_of(number, words)
        assert [file.get(near + by) for by in (-1, 1)] == [None, None]
        assert file.get_many(rows([near - 1, near + 1], words), np.array([0, 1], np.uint64)) == [
            None,
            None,
        ]
        assert file.range(near + 1, key_of(number + 1, words) - 1)[1] == []
        assert file.range(near, key_of(number + 2, words))[1] == values[number : number + 3]
        assert (
            file.range(near - 1, key_of(number + 2, words) + 1, 2)[1] == values[number : number + 2]
        )
    assert [file.get(key) for key in (0, last, key_of(count, words))] == [None] * 3
    assert file.range(last, 0)[1] == []


def test_the_first_values_that_are_enough(tmp_path):
    values = [bytes(100 + number % 3) for number in range(1000)]
    written(tmp_path / "f", list(enumerate(values)))
    file, numbers = opened(tmp_path / "f"), np.arange(1000, dtype=np.uint64)
    for enough in (0, 1, 100, 101, 5000, 10**6):
        count = next((n for n in range(1001) if sum(map(len, values[:n])) >= enough), 1000)
        assert file.get_many(numbers, numbers, enough) == values[:count]


def test_a_noted_place_is_only_that_of_its_own_key(tmp_path):
    """Numbers that are given the same place, and wrong ones, change nothing."""
    count = 1000
    written(tmp_path / "f", [(key_of(number), value_of(number)) for number in range(count)])
    file = opened(tmp_path / "f")
    for of in (
        lambda number: number,
        lambda number: 7,
        lambda number: number << 40,
        lambda number: count - number,
    ):
        for _ in range(2):
            for number in range(count):
                assert file.get(key_of(number), of(number)) == value_of(number)
                assert file.get(key_of(count + number), of(number)) is None


def test_values_that_lie_on_pages_of_their_own(tmp_path):
    values = {key_of(number): bytes([number]) * (number * 1500 + 1) for number in range(1, 30)}
    written(tmp_path / "f", list(values.items()))
    assert max(map(len, values.values())) > 2 * PAGE
    file = opened(tmp_path / "f")
    for _ in range(2):
        assert {key: file.get(key, key) for key in values} == values
    assert file.range(0, HIGHEST)[1] == list(values.values())


# on pages of its own, and longer than what is always read
@pytest.mark.parametrize("longest", [2100, PADDING_BYTES // 2 + 1])
def test_the_longest_value_is_read_and_none_longer(tmp_path, longest):
    path, value = tmp_path / "v", b"x" * longest
    shape = written(path, [(key_of(7), value)])
    assert shape["largest"] == longest
    padding = opened(path).padding_bytes - PADDING_BYTES
    # who follows a damaged length to its end reads the padding
    assert longest <= padding < longest + PAGE
    for way in WAYS.values():
        reader = SealedReader(path, shape)
        assert way(reader, [7]) == [value]
        reader.close()
        if longest > MIN_LONGEST_VALUE:
            reader = SealedReader(path, {**shape, "largest": longest - 1})
            with pytest.raises(DAMAGED, match=f"a value of {longest} bytes"):
                way(reader, [7])
            reader.close()
    with pytest.raises(DAMAGED, match=f"cannot have {padding + 1} bytes"):
        SealedReader(path, {**shape, "largest": padding + 1})


# --- Files ----------------------------------------------------------------------------------------


def test_a_file_of_another_length_or_digest_is_refused(tree):
    path, shape, _ = tree
    size, digest = shape["bytes"], shape["digest"]
    SealedReader(path, shape).close()
    with pytest.raises(DAMAGED, match="a file of another store"):
        SealedReader(path, {**shape, "digest": digest ^ 1})
    for wrong in (size - 1, size + 1):
        with pytest.raises(DAMAGED, match=f"{size} bytes, expected {wrong}"):
            SealedReader(path, {**shape, "bytes": wrong})


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "f"
    shape = written(path, [(number, value_of(number)) for number in range(1000)])
    data = path.read_bytes()
    for length in (0, 1, 15, 4095, 4096, 4097, 8191, 8192, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            opened(path)
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            SealedReader(path, {**shape, "bytes": length})
        with pytest.raises(DAMAGED, match=f"{length} bytes, expected {len(data)}"):
            SealedReader(path, shape)


def test_a_file_that_changes_its_length_while_it_is_open(tmp_path):
    path = tmp_path / "f"
    shape = written(path, [(number, value_of(number)) for number in range(1000)])
    size, data = shape["bytes"], path.read_bytes()
    for length in (0, 4096, size // 2, size - 1, size + 1, size + 4096):
        reader = SealedReader(path, shape)
        os.truncate(path, length)
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            reader.verify()
        os.truncate(path, size)
        overwrite(path, 0, data)
        reader.verify()
        reader.close()


def test_the_hole_of_a_file_takes_nothing_on_disk(tmp_path):
    """Where the file system has holes; `stats` counts what is taken."""
    path = tmp_path / "f"
    reader = SealedReader(path, shape := written(path, [(1, b"x")]))
    taken = min(shape["bytes"], path.stat().st_blocks * 512)
    assert reader.file_bytes == taken
    reader.close()
    assert reader.file_bytes == taken


def test_a_closed_file_is_not_read_and_given_back(tree):
    path, shape, _ = tree

    def is_open():
        return any(os.path.realpath(link) == str(path) for link in Path("/proc/self/fd").iterdir())

    reader = SealedReader(path, shape)
    items = reader.items()
    next(items)
    assert is_open()
    reader.close()
    reader.close()
    for use in (
        lambda: reader.file,
        lambda: next(reader.items()),
        reader.verify,
        lambda: list(items),
    ):
        with pytest.raises(fpstore.ClosedStoreError):
            use()
    assert not is_open()
    with pytest.raises(DAMAGED):
        SealedReader(path, {**shape, "digest": 0})
    assert not is_open()


def test_threads_that_check_the_same_pages(tree):
    file, wrong = opened(tree[0]), []

    def look(order):
        numbers = range(0, COUNT, 3)[::order]
        wrong.extend(
            number for number in numbers if file.get(key_of(number), number) != value_of(number)
        )
        if file.get_many(rows(map(key_of, numbers)), rows(numbers)) != list(map(value_of, numbers)):
            wrong.append("many")

    threads = [threading.Thread(target=look, args=(order,)) for order in (1, -1) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_child_of_a_fork_reads_on(tree):
    file = opened(tree[0])
    assert file.get(key_of(1)) == value_of(1)
    child = os.fork()
    if not child:
        os._exit(
            0 if [file.get(key_of(n)) for n in (1, 9000)] == [value_of(1), value_of(9000)] else 1
        )
    assert os.waitpid(child, 0)[1] == 0


# --- Writing --------------------------------------------------------------------------------------


SMALL_TREES = [(0, -2), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1), (1, 3)]
LARGE_TREES = [(2, -1), (2, 0), (2, 1), (2, 3)]


@pytest.mark.parametrize(
    ("full_levels", "more", "words"),
    [
        *((*tree, words) for tree in SMALL_TREES for words in (1, 2, 4)),
        (2, 1, 4),
        *(full(*tree, words) for tree in LARGE_TREES for words in (1, 2, 4)),
    ],
)
def test_lmdb_reads_what_was_written(tmp_path, full_levels, more, words):
    """As many keys, two in a leaf, as fill levels of branches, and a few more or less."""
    children = 4080 // (10 + 8 * words)
    count = 2 * children**full_levels + more
    # by turns small, just in a leaf, just not, and in several pages
    most = 2038 - 8 - 8 * words
    sizes = [most - 1, most, most + 1, 4080, 4081, 70_000, 0] if count < 100 else [1999 - 8 * words]
    values = [b"%d" % number * (sizes[number % len(sizes)]) for number in range(min(count, 500))]
    values = [value[: sizes[number % len(sizes)]] for number, value in enumerate(values)]
    values += [b"x" * sizes[0]] * (count - len(values))
    keys = [key_of(number, words) for number in range(count)]
    shape = written(tmp_path / "f", list(zip(keys, values, strict=True)), words)
    used = used_of(tmp_path / "f", words)
    assert shape["largest"] == max(map(len, values), default=0)
    assert seal(tmp_path / "again", (tmp_path / "f").read_bytes()[:used], padding_of(shape)) == (
        shape["bytes"],
        shape["digest"],
    )
    assert (tmp_path / "again").read_bytes() == (tmp_path / "f").read_bytes()
    with (
        lmdb.open(str(tmp_path / "f"), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        assert [*transaction.cursor()] == [
            (key.to_bytes(8 * words, "big"), value) for key, value in zip(keys, values, strict=True)
        ]
        for key, value in list(zip(keys, values, strict=True))[:: max(count // 300, 1)]:
            assert transaction.get(key.to_bytes(8 * words, "big")) == value
        stat = transaction.stat()
    data = (tmp_path / "f").read_bytes()[:used]
    assert stat["entries"] == count
    if full_levels:
        assert stat["leaf_pages"] == -(-count // 2)
        assert stat["depth"] == full_levels + 1 + (more > 0)
    assert stat["leaf_pages"] == len(pages_of(data, LEAF))
    assert stat["branch_pages"] == len(pages_of(data, BRANCH))


def test_pages_do_not_depend_on_the_calls(tmp_path):
    items = [(key_of(number), value_of(number) * (1 + number % 50)) for number in range(3000)]
    written(tmp_path / "f", items)
    writer = SealedWriter(tmp_path / "g")
    for start in range(0, len(items), 7):
        keys, values = zip(*items[start : start + 7], strict=True)
        writer.append_list(rows(keys), values)
    writer.finish()
    assert (tmp_path / "f").read_bytes() == (tmp_path / "g").read_bytes()


@pytest.mark.parametrize(("keys", "expected"), [([9], 9), ([4], 9), ([12, 3], 12)])
def test_keys_out_of_order_are_refused(tmp_path, keys, expected):
    writer = SealedWriter(tmp_path / "f")
    writer.append_list(rows([1, 9]), [b"x"] * 2)
    with pytest.raises(fpstore.InputError, match="out of order") as error:
        writer.append_list(rows(keys), [b"y"] * len(keys))
    assert (error.value.expected, error.value.got) == (expected, keys[-1])
    writer.abort()


def test_a_value_whose_size_has_more_than_32_bits_is_refused():
    """LMDB has 32 bits for it; the pages of these zeros are never touched."""
    encoder, size = _kernel.SealedEncoder(1), 1 << 32
    keys, values = np.array([1], np.uint64), np.zeros(size, np.uint8)
    with pytest.raises(ValueError, match="larger than 4 GiB"):
        encoder.append(keys, values, np.array([0, size], np.uint64))
    encoder.append(keys, values[:5], np.array([0, 5], np.uint64))
