"""Sealed files in memory: each value is found, and what is damaged or lies is no value, never a wrong one or a crash."""

import os
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from fpstore.disk import lmdb_pages as pages
from fpstore.disk import sealed
from fpstore.disk.files import opened
from fpstore.disk.seal import GROUP_CHUNKS, PAD_BYTES, CheckedPages, seal

PAGE = 4096


def key_of(number, words=1):
    """Return a key, which differs from the next one in its last word."""
    return number.to_bytes(8, "big") * (words - 1) + (number * 3_000_017 + 5).to_bytes(8, "big")


def value_of(number):
    return b"value %d " % number * (1 + number % 7)


def written(path, items):
    """Write a sealed file with these keys and values, which ascend."""
    writer = sealed.SealedWriter(path)
    writer.run(lambda transaction: transaction.cursor().putmulti(items, append=True))
    writer.finish(max((len(value) for _, value in items), default=0))
    return path


@contextmanager
def in_memory(path, words=1, longest=PAD_BYTES, whole=False):
    with opened(path) as descriptor:
        yield CheckedPages(path, descriptor, 8 * words).in_memory(path.stat().st_size, longest, whole)


def parsed(data, kind):
    """Return the pages of a kind: number, and what Nodes it has."""
    found = {}
    for number in range(2, len(data) // PAGE):
        nodes = pages.parse_page(data[number * PAGE : (number + 1) * PAGE], number, kind)
        if nodes is not None:
            found[number] = nodes
    return found


def last_page_of(path):
    with opened(path) as descriptor:
        return pages.latest(path, descriptor).last_page


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 2, 20, 900, 20_000])
def test_each_value_is_found_and_no_other(tmp_path, count, words, whole):
    path = written(tmp_path / "f", [(key_of(number, words), value_of(number)) for number in range(count)])
    with in_memory(path, words, whole=whole) as file:
        for number in (*range(min(count, 300)), *range(max(count - 300, 0), count)):
            assert file.get(key_of(number, words)) == value_of(number)
        for number in (0, 1, count // 2, count):  # between two keys, before the first and behind the last
            near = int.from_bytes(key_of(number, words), "big")
            assert [file.get((near + by).to_bytes(8 * words, "big")) for by in (-1, 1)] == [None, None]
        assert [file.get(key) for key in (bytes(8 * words), b"\xff" * 8 * words, b"", bytes(8 * words + 1))] == [None] * 4
        assert file.get(key_of(count, words)) is None


def test_a_noted_place_is_only_that_of_its_own_key(tmp_path):
    """Numbers that are given the same place, and wrong ones, change nothing."""
    count = 1000
    path = written(tmp_path / "f", [(key_of(number), value_of(number)) for number in range(count)])
    with in_memory(path) as file:
        for of in (lambda number: number, lambda number: 7, lambda number: number << 40, lambda number: count - number):
            for _ in range(2):
                for number in range(count):
                    assert file.get(key_of(number), of(number)) == value_of(number)
                    assert file.get(key_of(count + number), of(number)) is None


def test_values_that_lie_on_pages_of_their_own(tmp_path):
    values = {number: bytes([number]) * (number * 1500 + 1) for number in range(1, 30)}
    path = written(tmp_path / "f", [(key_of(number), value) for number, value in values.items()])
    assert max(map(len, values.values())) > 2 * PAGE
    with in_memory(path) as file:
        for _ in range(2):
            assert {number: file.get(key_of(number), number) for number in values} == values
    with in_memory(path, longest=10_000) as file:
        assert {n: file.get(key_of(n)) for n in values} == {n: v if len(v) <= 10_000 else None for n, v in values.items()}


COUNT = 20_000


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Return a tree of three levels, and which of its leaves has each key."""
    path = written(tmp_path_factory.mktemp("tree") / "t", [(key_of(number), value_of(number)) for number in range(COUNT)])
    leaves = parsed(path.read_bytes(), pages.LEAF)
    of_key = {key: leaf for leaf, nodes in leaves.items() for key in nodes.keys}
    return path, [of_key[key_of(number)] for number in range(COUNT)]


@pytest.fixture
def copy(good, tmp_path):
    path = tmp_path / "t"
    path.write_bytes(good[0].read_bytes())
    return path


def flip(path, at):
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 4]))


def test_a_damaged_page_is_no_value_and_others_are_read(copy, good):
    leaf_of = good[1]
    bad = leaf_of[COUNT // 2]
    flip(copy, bad * PAGE + 3000)
    with in_memory(copy) as file:
        for _ in range(2):
            for number in range(0, COUNT, 7):
                assert file.get(key_of(number)) == (None if leaf_of[number] == bad else value_of(number))


def test_damaged_checksums_are_no_value(tmp_path):
    values = {key_of(number): bytes([number % 251]) * 900 for number in range(3000)}  # four on a page
    path = written(tmp_path / "f", list(values.items()))
    leaf_of = {key: leaf for leaf, nodes in parsed(path.read_bytes(), pages.LEAF).items() for key in nodes.keys}
    pages_of_file = last_page_of(path) + 1
    assert GROUP_CHUNKS < pages_of_file < 2 * GROUP_CHUNKS
    flip(path, path.stat().st_size - 8 - 2 * 8 - 8)  # of the last page: the checksums of the second group do not fit theirs
    with in_memory(path) as file:
        found = {key: file.get(key) for key in values}
    assert {key: value for key, value in found.items() if value is not None and found[key] != values[key]} == {}
    assert all(found[key] is None for key in values if leaf_of[key] >= GROUP_CHUNKS)
    assert 0 < sum(value is not None for value in found.values()) < len(values)


def test_what_lies_under_right_checksums_is_no_crash(copy, good):
    """What a faulty writer would leave: any field of any page, and the checksums made anew."""
    rng, sound = np.random.default_rng(3), copy.read_bytes()
    last = last_page_of(copy)
    branches, leaves = (sorted(parsed(sound, kind)) for kind in (pages.BRANCH, pages.LEAF))
    known = {value_of(number) for number in range(COUNT)}
    asked = [key_of(number) for number in range(0, COUNT, 997)]
    right = 0
    for turn in range(200):
        data = bytearray(sound[: (last + 1) * PAGE])
        for page in (*branches, *leaves[:: max(len(leaves) // 40, 1)]):
            for _ in range(rng.integers(0, 4)):
                place = int(rng.integers(0, 64 if turn % 2 else PAGE - 8)) // 2 * 2
                data[page * PAGE + place : page * PAGE + place + 2] = int(
                    rng.choice([0, 1, 2, 7, 8, 4088, 4095, 4096, 32768, 65535])
                ).to_bytes(2, "little")
        copy.write_bytes(data)
        seal(copy, len(data))
        with in_memory(copy) as file:
            found = [file.get(key, number) for _ in range(2) for number, key in enumerate(asked)]
            right += sum(value in known for value in found)
            assert all(value is None or len(value) <= PAD_BYTES for value in found)
    assert right > 0  # where nothing on the way was changed


def test_a_closed_descriptor_hides_pages_that_were_not_read(good):
    path, leaf_of = good
    with in_memory(path) as file:
        assert file.get(key_of(5)) == value_of(5)
    other = next(number for number in range(COUNT) if leaf_of[number] != leaf_of[5])
    same = [number for number in range(COUNT) if leaf_of[number] == leaf_of[5]]
    assert [file.get(key_of(number)) for number in same] == list(map(value_of, same))
    assert file.get(key_of(other)) is None


def test_threads_that_check_the_same_pages(good):
    path, _ = good
    wrong = []

    def look(file, order):
        wrong.extend(number for number in range(0, COUNT, 3)[::order] if file.get(key_of(number), number) != value_of(number))

    with in_memory(path) as file:
        threads = [threading.Thread(target=look, args=(file, order)) for order in (1, -1) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_child_of_a_fork_reads_on(good):
    with in_memory(good[0]) as file:
        assert file.get(key_of(1)) == value_of(1)
        child = os.fork()
        if not child:
            os._exit(0 if [file.get(key_of(n)) for n in (1, 9000)] == [value_of(1), value_of(9000)] else 1)
        assert os.waitpid(child, 0)[1] == 0
