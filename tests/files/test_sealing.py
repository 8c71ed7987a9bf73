"""Sealed files under damage.

Each page is checked before it is followed, and what lies under right checksums is no crash.
"""

import numpy as np
import pytest
import xxhash
from repairing import flip
from sealing import (
    BRANCH,
    COUNT,
    DIGEST_BYTES,
    GROUP_CHUNKS,
    HASH_BYTES,
    LEAF,
    PAGE,
    WAYS,
    key_of,
    opened,
    overwrite,
    pages_of,
    resealed,
    rows,
    tail_bytes,
    used_of,
    value_of,
    written,
)

import fpstore
from fpstore.disk import files, sealed
from fpstore.disk.sealed import PADDING_BYTES, SealedReader

HIGHEST = 2**64 - 1
DAMAGED = fpstore.CorruptStoreError


@pytest.fixture
def copy(tree, tmp_path, set_limits):
    set_limits(bytes_checked_at_open=0)
    path = tmp_path / "t"
    path.write_bytes(tree[0].read_bytes())
    return path


@pytest.mark.parametrize("at", [0, COUNT // 2, COUNT - 1])
def test_damaged_page_is_noticed_only_by_those_who_read_it(copy, tree, at):
    _, shape, leaf_of = tree
    bad = leaf_of[at]
    numbers = [number for number in range(COUNT) if leaf_of[number] == bad]
    first, end = numbers[0], numbers[-1] + 1
    flip(copy, bad * PAGE + 3000)
    message = f"damaged at byte {bad * PAGE} "
    others = [range(max(first - 200, 0), first)] * (first > 0) + [
        range(end, min(end + 200, COUNT))
    ] * (end < COUNT)
    wrong = [
        range(max(first - 200, 0), first + 1),
        range(end - 1, min(end + 200, COUNT)),
        range(first, end),
    ]
    for way, order in (
        ("get", 1),
        ("get", -1),
        ("get without a number", 1),
        ("get_many", 1),
        ("get_many", -1),
        ("range", 1),
    ):
        for other in others:
            reader = SealedReader(copy, shape)
            for _ in range(2):
                assert WAYS[way](reader, other[::order]) == [
                    value_of(number) for number in other[::order]
                ]
            reader.close()
        for other in wrong:
            reader = SealedReader(copy, shape)
            with pytest.raises(DAMAGED, match=message) as caught:
                WAYS[way](reader, other[::order])
            assert caught.value.got == bad * PAGE
            reader.close()
    reader = SealedReader(copy, shape)
    for read in (reader.verify, reader.file.check_all, lambda: next(reader.items())):
        with pytest.raises(DAMAGED, match=message):
            read()
    reader.close()


def test_damaged_checksums_are_an_error_for_those_pages_only(tmp_path):
    # four on a page
    values = {key_of(number): bytes([number % 251]) * 900 for number in range(5000)}
    path = tmp_path / "f"
    written(path, list(values.items()))
    with files.open_descriptor(path) as descriptor:
        leaf_of = {
            int.from_bytes(item.key, "big"): item.start // PAGE
            for item in sealed.salvaged_items(path, descriptor, 8, None)
        }
    assert 2 * GROUP_CHUNKS < used_of(path) // PAGE < 3 * GROUP_CHUNKS
    # of the second group: the first one has the metadata, and the third one the root
    first = path.stat().st_size - tail_bytes(used_of(path))
    flip(path, first + HASH_BYTES * (GROUP_CHUNKS + 7))
    file, read = opened(path), 0
    for key, value in values.items():
        try:
            assert file.get(key) == value
            read += 1
            assert leaf_of[key] // GROUP_CHUNKS != 1
        except DAMAGED as error:
            assert "its checksums are damaged" in str(error)
    assert read > 0
    with pytest.raises(DAMAGED, match="its checksums are damaged"):
        file.check_all()


def test_each_level_vouches_for_the_one_below(copy, tree):
    """A page changed together with its checksums, one level more each time.

    The level above notices, and last the digest.
    """
    _, shape, leaf_of = tree
    used, size = used_of(copy), copy.stat().st_size
    page, first, second = (
        leaf_of[0],
        size - tail_bytes(used),
        size - DIGEST_BYTES - HASH_BYTES * -(-used // (GROUP_CHUNKS * PAGE)),
    )
    flip(copy, page * PAGE + 3000)

    def hashed(at, count, seed=0):
        return xxhash.xxh64_intdigest(copy.read_bytes()[at : at + count], seed).to_bytes(
            HASH_BYTES, "little"
        )

    overwrite(copy, first + HASH_BYTES * page, hashed(page * PAGE, PAGE))
    for read in (lambda: opened(copy), lambda: SealedReader(copy, shape)):
        with pytest.raises(DAMAGED, match="its checksums are damaged"):
            read()  # the metadata pages are in the same group
    overwrite(copy, second, hashed(first, min(second - first, GROUP_CHUNKS * HASH_BYTES)))
    with pytest.raises(DAMAGED, match="digest differs"):
        opened(copy)
    overwrite(copy, size - DIGEST_BYTES, hashed(second, size - DIGEST_BYTES - second, used))
    opened(copy).check_all()
    with pytest.raises(DAMAGED, match="a file of another store"):
        SealedReader(copy, shape)


def test_a_flipped_bit_in_the_digest_is_noticed(copy):
    for at in range(1, DIGEST_BYTES + 1):
        flip(copy, copy.stat().st_size - at)
        with pytest.raises(DAMAGED, match="digest differs"):
            opened(copy)
        flip(copy, copy.stat().st_size - at)


def test_the_padding_behind_the_pages_is_there(copy):
    """The checksums themselves are right."""
    data, used = copy.read_bytes(), used_of(copy)
    tail = data[-tail_bytes(used) :]
    for kept in (0, PADDING_BYTES - 1):
        copy.write_bytes(data[:used] + bytes(kept) + tail)
        with pytest.raises(DAMAGED, match="cut short"):
            opened(copy)
    copy.write_bytes(data[:used] + bytes(PADDING_BYTES) + tail)
    opened(copy).check_all()


ROOT, DEPTH, ENTRIES, LAST_PAGE, TRANSACTION = 128, 94, 120, 136, 144  # in a metadata page
FORGED = {
    "the root is behind the file": (ROOT, 8, lambda last: last + 1, "a tree has no root"),
    "the root is a metadata page": (ROOT, 8, lambda last: 1, "a tree has no root"),
    "too deep": (DEPTH, 2, lambda last: 33, "a tree has no root"),
    "no depth": (DEPTH, 2, lambda last: 0, "a tree has no root"),
    "too many keys": (ENTRIES, 8, lambda last: last * 4096, "keys do not fit"),
    "more pages than there are": (LAST_PAGE, 8, lambda last: last + 10**6, "cut short"),
    "the same transaction": (TRANSACTION, 8, lambda last: 3, "wrong order"),
    "no magic": (16, 4, lambda last: 7, "not a metadata page"),
    "another page size": (40, 4, lambda last: 4097, "the metadata is damaged"),
    "other flags": (92, 2, lambda last: 8, "the metadata is damaged"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_metadata_is_damage(copy, name):
    """Under checksums that are right: what a faulty writer would leave."""
    data = bytearray(copy.read_bytes()[: used_of(copy)])
    at, size, value, output = FORGED[name]
    for meta in (0, PAGE):
        data[meta + at : meta + at + size] = value(len(data) // PAGE - 1).to_bytes(size, "little")
    resealed(copy, data)
    with pytest.raises(DAMAGED, match=f"LMDB file is .*{output}"):
        opened(copy)


def test_branches_out_of_the_file_or_in_circles_are_damage(copy):
    data = copy.read_bytes()[: used_of(copy)]
    last, branches = len(data) // PAGE - 1, pages_of(data, BRANCH)
    for wrong in (last + 1, 1, 0, branches[0]):
        forged = bytearray(data)
        for page in branches:
            node = page * PAGE + int.from_bytes(data[page * PAGE + 16 : page * PAGE + 18], "little")
            forged[node : node + 2] = wrong.to_bytes(2, "little")
        resealed(copy, forged)
        file = opened(copy)
        for read, query in (
            (file.get, (0,)),
            (file.get_many, (rows([0]), rows([0]))),
            (file.range, (0, HIGHEST)),
        ):
            with pytest.raises(DAMAGED, match=r"LMDB file is damaged \(page \d+\)"):
                read(*query)


def test_a_tree_that_has_a_page_twice_ends(copy, tree):
    """Else a tree of two children in each of 30 branches, all the same, would have 2^30 leaves."""
    data = bytearray(copy.read_bytes()[: used_of(copy)])
    for page in pages_of(data, BRANCH):
        nodes = np.frombuffer(
            data,
            "<u2",
            (int.from_bytes(data[page * PAGE + 12 : page * PAGE + 14], "little") - 16) // 2,
            page * PAGE + 16,
        )
        for node in nodes.tolist():
            data[page * PAGE + node : page * PAGE + node + 6] = data[
                page * PAGE + int(nodes[0]) : page * PAGE + int(nodes[0]) + 6
            ]
    shape = resealed(copy, data)
    reader = SealedReader(copy, shape)
    for read in (lambda: reader.file.range(0, HIGHEST), lambda: list(reader.items())):
        with pytest.raises(DAMAGED, match="keys are out of order"):
            read()
    reader.close()


def test_what_lies_under_right_checksums_is_no_crash(copy, tree):
    """Any field of any page, and the checksums made anew."""
    rng, sound = np.random.default_rng(3), copy.read_bytes()[: used_of(copy)]
    leaves, branches = pages_of(sound, LEAF), pages_of(sound, BRANCH)
    known = {value_of(number) for number in range(COUNT)}
    queries = range(0, COUNT, 997)
    right = wrong = 0
    for turn in range(40):
        data = bytearray(sound)
        for page in (*branches, *leaves[:: max(len(leaves) // 40, 1)]):
            for _ in range(rng.integers(0, 4)):
                place = int(rng.integers(0, 64 if turn % 2 else PAGE - 8)) // 2 * 2
                data[page * PAGE + place : page * PAGE + place + 2] = int(
                    rng.choice([0, 1, 2, 7, 8, 4088, 4095, 4096, 32768, 65535])
                ).to_bytes(2, "little")
        reader = SealedReader(copy, resealed(copy, data))
        for way in WAYS:
            for numbers in [[number] for number in queries] if way.startswith("get") else [queries]:
                try:
                    result = WAYS[way](reader, numbers)
                    right += sum(value in known for value in result)
                    assert all(
                        value is None or len(value) <= sealed.MIN_LONGEST_VALUE for value in result
                    )
                except DAMAGED:
                    wrong += 1
        reader.close()
    assert right > 0  # where nothing on the way was changed
    assert wrong > 0
