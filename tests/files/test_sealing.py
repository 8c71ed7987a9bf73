"""Seals: damage is noticed before LMDB reads it, where it is, and nowhere else."""

import os
from contextlib import contextmanager

import numpy as np
import pytest
import xxhash

import fpstore
from fpstore.disk import files
from fpstore.disk import lmdb_pages as pages
from fpstore.disk import sealed as environment
from fpstore.disk.seal import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    HASH_BYTES,
    PAD_BYTES,
    PIECE_BYTES,
    CheckedPages,
    Seal,
    seal,
    tail_bytes,
)

USED = PIECE_BYTES + 5 * CHUNK_BYTES  # two groups of chunks
DATA = np.random.default_rng(1).bytes(USED)
HIGHEST = 2**64 - 1  # of the keys
DAMAGED = fpstore.CorruptStoreError


@pytest.fixture
def sealed(tmp_path):
    """Return a sealed file, which is not LMDB's: a seal does not look into the pages."""
    path = tmp_path / "f"
    path.write_bytes(DATA)
    seal(path, USED)
    return path


@contextmanager
def opened(path, used=USED):
    with path.open("rb") as file:
        yield Seal(path, file.fileno(), used)


def overwrite(path, at, new):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(new)


def flip(path, at):
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 4]))


@pytest.mark.parametrize("place", [0, CHUNK_BYTES - 1, CHUNK_BYTES, PIECE_BYTES - 1, PIECE_BYTES, USED - 1])
def test_a_damaged_chunk_is_noticed_by_who_reads_it(sealed, place):
    flip(sealed, place)
    start = place // CHUNK_BYTES * CHUNK_BYTES
    with opened(sealed) as found:
        for first, last in ((0, start - 1), (start + CHUNK_BYTES, USED - 1)):  # what is before it, and behind it
            if first <= last:
                found.check(first, last - first + 1)
        for first, last in ((start, start), (max(start - 1, 0), start), (start, USED - 1), (start + CHUNK_BYTES - 1,) * 2):
            with pytest.raises(DAMAGED, match=f"damaged at byte {start} ") as caught:
                found.check(first, last - first + 1)
            assert caught.value.got == start
        with pytest.raises(DAMAGED, match=f"damaged at byte {start} "):
            found.check_all()


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 0), (USED, 1), (USED - 1, 2), (HIGHEST, 1)])
def test_there_are_no_other_bytes(sealed, start, count):
    with opened(sealed) as found, pytest.raises(DAMAGED, match="there is no byte"):
        found.check(start, count)


def test_each_level_vouches_for_the_one_below(sealed):
    """A page changed together with its checksums, one level more each time: the level above notices, and last the digest."""
    size = sealed.stat().st_size
    first = size - tail_bytes(USED)
    second = first + HASH_BYTES * (USED // CHUNK_BYTES)
    right = xxhash.xxh64_intdigest(sealed.read_bytes()[second:-DIGEST_BYTES], USED)
    overwrite(sealed, 0, b"another page" + DATA[12:CHUNK_BYTES])

    def hashed(at, count, seed=0):
        return xxhash.xxh64_intdigest(sealed.read_bytes()[at : at + count], seed).to_bytes(HASH_BYTES, "little")

    overwrite(sealed, first, hashed(0, CHUNK_BYTES))
    with opened(sealed) as found:
        for read in (lambda: found.check(0, 1), found.check_all):
            with pytest.raises(DAMAGED, match="its checksums are"):
                read()
        found.check(PIECE_BYTES, 1)  # in the other group
    overwrite(sealed, second, hashed(first, PIECE_BYTES // CHUNK_BYTES * HASH_BYTES))
    with pytest.raises(DAMAGED, match="digest differs"), opened(sealed):
        pass
    overwrite(sealed, size - DIGEST_BYTES, hashed(second, size - DIGEST_BYTES - second, USED))
    with opened(sealed) as found:
        found.check_all()
        assert found.digest != right


def test_a_flipped_bit_in_the_digest_is_noticed(sealed):
    for at in range(1, DIGEST_BYTES + 1):
        flip(sealed, sealed.stat().st_size - at)
        with pytest.raises(DAMAGED, match="digest differs"), opened(sealed):
            pass
        flip(sealed, sealed.stat().st_size - at)


def test_the_hole_behind_the_pages_is_there(sealed):
    """Without it a damaged length would lead LMDB out of the file; the checksums themselves are right."""
    data = sealed.read_bytes()
    for kept in (0, PAD_BYTES - 1):
        sealed.write_bytes(data[: USED + kept] + data[USED + PAD_BYTES :])
        with pytest.raises(DAMAGED, match="cut short"), opened(sealed):
            pass
    for used in (0, USED - CHUNK_BYTES, USED + CHUNK_BYTES):
        sealed.write_bytes(data)
        with pytest.raises(DAMAGED), opened(sealed, used):
            pass


# --- Trees ----------------------------------------------------------------------------------------

KEYS = 20_000  # as many as make a tree of three levels


def key_of(number):
    return place_of(number).to_bytes(8, "big")


def words(numbers):
    return np.fromiter(numbers, np.uint64)


def place_of(number):
    """Return a key as a number; not every number is one."""
    return number * 3_000_017 + 5


def value_of(number):
    return b"value %060d" % number


@pytest.fixture
def tree(tmp_path):
    """Return an LMDB file, and its leaf pages: page number, number of the first key, and of the key after the last."""
    path = tmp_path / "t"
    writer = environment.SealedWriter(path)
    items = [(key_of(number), value_of(number)) for number in range(KEYS)]
    writer.run(lambda transaction: transaction.cursor().putmulti(items, append=True))
    writer.finish()
    data, firsts, numbers = path.read_bytes(), {}, {key_of(number): number for number in range(KEYS)}
    for page in range(2, len(data) // 4096):
        nodes = pages.parse_page(data[page * 4096 : (page + 1) * 4096], page, pages.LEAF)
        if nodes is not None and nodes.keys[0] in numbers:
            firsts[numbers[nodes.keys[0]]] = page  # the others are the list of free pages
    starts = sorted(firsts)
    assert starts[0] == 0
    assert len(starts) > 250  # more than one branch page holds
    return path, [(firsts[a], a, b) for a, b in zip(starts, [*starts[1:], KEYS], strict=True)]


@contextmanager
def paths_of(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield CheckedPages(path, descriptor, 8)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("leaf", [0, 1, 130, -1])
def test_the_pages_to_a_key_are_checked_and_no_others(tree, leaf):
    path, leaves = tree
    page, first, end = leaves[leaf]
    flip(path, page * 4096 + 100)
    with paths_of(path) as paths:
        for key in (first, end - 1):
            with pytest.raises(DAMAGED, match=f"damaged at byte {page * 4096} "):
                paths.reach(place_of(key))
        last = end == KEYS
        if first:
            assert paths.reach(place_of(first - 1)) == place_of(first)
            paths.reach_range(0, place_of(first - 1))
        if not last:
            assert paths.reach(place_of(end)) > place_of(end)
            paths.reach_range(place_of(end), place_of(KEYS - 1))
            assert paths.reach(place_of(KEYS - 1)) == HIGHEST + 1
        for a, b in ((place_of(max(first - 1, 0)), place_of(first)), (0, HIGHEST), (place_of(end - 1), place_of(end))):
            with pytest.raises(DAMAGED, match="damaged at byte"):
                paths.reach_range(a, b)


WAYS = {
    "get": lambda reader, numbers: [reader.get(key_of(number), number) for number in numbers],
    "get without a number": lambda reader, numbers: [reader.get(key_of(number)) for number in numbers],
    "get_many": lambda reader, numbers: reader.get_many(words(map(place_of, numbers)), words(numbers)),
    "range": lambda reader, numbers: reader.range(key_of(numbers[0]), key_of(numbers[-1])),
}


@pytest.mark.parametrize("leaf", [0, 130, -1])
def test_a_reader_checks_what_it_reads_and_no_more(tree, leaf, monkeypatch):
    path, leaves = tree
    page, first, end = leaves[leaf]
    flip(path, page * 4096 + 100)
    monkeypatch.setattr(environment, "CHECKED_AT_OPEN", 0)

    def read(way, numbers, order):
        reader = environment.SealedReader(path)
        try:
            found = WAYS[way](reader, numbers[::order])
            assert WAYS[way](reader, numbers[::order]) == found  # from what has been noted
            return found
        finally:
            reader.close()

    others = [range(max(first - 200, 0), first)] * (first > 0) + [range(end, min(end + 200, KEYS))] * (end < KEYS)
    bad = [range(max(first - 200, 0), first + 1), range(end - 1, min(end + 200, KEYS)), range(first, end)]
    for way, order in (("get", 1), ("get", -1), ("get without a number", 1), ("get_many", 1), ("get_many", -1), ("range", 1)):
        for numbers in others:
            assert read(way, numbers, order) == [value_of(number) for number in numbers[::order]]
        for numbers in bad:
            with pytest.raises(DAMAGED, match=f"damaged at byte {page * 4096} "):
                read(way, numbers, order)
    reader = environment.SealedReader(path)
    with pytest.raises(DAMAGED, match="damaged at byte"):
        next(reader.items())
    with pytest.raises(DAMAGED, match="damaged at byte"):
        reader.verify()
    reader.close()


ROOT, DEPTH = 128, 94  # of the tree, in a metadata page


def damage_meta(path, at, wrong):
    for meta in (0, 4096):
        overwrite(path, meta + at, wrong.to_bytes(2, "little"))


def damage_children(path, wrong):
    """Change the first child of each branch page whose children are leaves; return which pages these are."""
    data, changed = path.read_bytes(), []

    def parsed(page, kind):
        return pages.parse_page(data[page * 4096 : (page + 1) * 4096], page, kind)

    for page in range(2, len(data) // 4096):
        nodes = parsed(page, pages.BRANCH)
        if nodes is not None and parsed(int(nodes.sizes[0]), pages.LEAF) is not None:
            overwrite(path, page * 4096 + int(nodes.starts[0]) - 8, wrong.to_bytes(2, "little"))
            changed.append(page)
    return changed


def damage_tree(path, damage, last_page):
    """Damage the tree; return how that is told."""
    if damage in ("child", "meta"):
        changed = damage_children(path, last_page + 1 if damage == "child" else 1)
        assert len(changed) > 1
        return rf"\(page ({'|'.join(map(str, changed))})\)"
    ways = {"root": (ROOT, last_page + 1), "depth": (DEPTH, 33), "no depth": (DEPTH, 0), "meta root": (ROOT, 1)}
    damage_meta(path, *ways[damage])
    return "a tree has no root"


@pytest.mark.parametrize("damage", ["root", "depth", "no depth", "meta root", "child", "meta"])
def test_a_tree_that_leads_out_of_the_file_is_damage(tree, damage):
    """Under checksums that are right: what a faulty writer would leave."""
    path, _ = tree
    with files.opened(path) as descriptor:
        last_page = pages.latest(path, descriptor).last_page
    told = damage_tree(path, damage, last_page)
    seal(path, (last_page + 1) * 4096)
    with pytest.raises(DAMAGED, match=f"LMDB file is damaged.*{told}"), paths_of(path) as paths:
        paths.reach(0)


def test_a_file_of_another_length_or_digest_is_refused(tree):
    path, _ = tree
    size = path.stat().st_size
    with paths_of(path) as paths:
        digest = paths.seal.digest
    environment.SealedReader(path, size, digest).close()
    with pytest.raises(DAMAGED, match="a file of another store"):
        environment.SealedReader(path, size, digest ^ 1)
    for wrong in (size - 1, size + 1):
        with pytest.raises(DAMAGED, match=f"{size} bytes, expected {wrong}"):
            environment.SealedReader(path, wrong)
    seal(path, path.stat().st_size - PAD_BYTES - tail_bytes_of(path), 4096)  # as long as its header does not say
    with pytest.raises(DAMAGED, match=f"{path.stat().st_size} bytes, expected {path.stat().st_size - 4096}"):
        environment.SealedReader(path)


def tail_bytes_of(path):
    with files.opened(path) as descriptor:
        meta = pages.latest(path, descriptor)
    return tail_bytes((meta.last_page + 1) * meta.page_bytes)


# --- Readers --------------------------------------------------------------------------------------


@pytest.fixture
def values(tmp_path):
    """Return a file whose longest value is as long as LMDB's pages are not, and that value."""
    path, value = tmp_path / "v", b"x" * (PAD_BYTES // 2 + 1)
    writer = environment.SealedWriter(path)
    writer.run(lambda transaction: transaction.put(key_of(7), value))
    size, _ = writer.finish(largest=len(value))
    with files.opened(path) as descriptor:
        used = (pages.latest(path, descriptor).last_page + 1) * 4096
    room = size - used - PAD_BYTES - tail_bytes(used)
    assert len(value) <= room < len(value) + 4096  # who follows a damaged length to its end reads the hole
    return path, value, size


def test_the_longest_value_is_read_and_none_longer(values):
    path, value, size = values
    ways = (
        lambda r: r.get(key_of(7)),
        lambda r: r.get_many(words([place_of(7)]), words([0]))[0],
        lambda r: r.range(key_of(7), key_of(7))[0],
    )
    for way in (*ways, lambda r: next(r.items())[1]):
        reader = environment.SealedReader(path, file_bytes=size, largest=len(value))
        assert way(reader) == value
        reader.close()
        reader = environment.SealedReader(path, file_bytes=size, largest=len(value) - 1)
        with pytest.raises(DAMAGED, match=f"a value of {len(value)} bytes"):
            way(reader)
        reader.close()


def test_a_file_that_has_no_room_for_metadata_is_refused(values):
    path, _, size = values
    data = path.read_bytes()
    for length in (0, 1, 15, 4095, 4096, 4097, 8191, 8192, size // 2, size - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            environment.SealedReader(path)
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            environment.SealedReader(path, file_bytes=length)
        with pytest.raises(DAMAGED, match=f"{length} bytes, expected {size}"):
            environment.SealedReader(path, file_bytes=size)


def test_the_hole_of_a_file_takes_nothing_on_disk(values):
    """Where the file system has holes; `stats` counts what is taken."""
    path, _, size = values
    reader = environment.SealedReader(path, file_bytes=size)
    taken = min(size, path.stat().st_blocks * 512)
    assert reader.file_bytes == taken
    reader.close()
    assert reader.file_bytes == taken


def test_a_file_that_changes_its_length_while_it_is_open(values):
    path, value, size = values
    for length in (0, 4096, size // 2, size - 1, size + 1, size + 4096):
        reader = environment.SealedReader(path, file_bytes=size, largest=len(value))
        data = path.read_bytes()
        os.truncate(path, length)
        with pytest.raises(DAMAGED, match=r"cut short|damaged"):
            reader.verify()
        overwrite(path, 0, data)
        os.truncate(path, size)
        reader.verify()
        reader.close()


def test_keys_that_are_not_there(values):
    path, value, size = values
    reader = environment.SealedReader(path, size, largest=len(value))
    for number in (0, 6, 8, 10**9):
        assert reader.get(key_of(number)) is None
        assert reader.range(key_of(number), key_of(number)) == []
        assert reader.get_many(words([place_of(number), place_of(7)]), words([1, 0])) == [None, value]
    assert reader.range(key_of(0), key_of(9)) == [value]
    reader.close()
    for use in (lambda: reader.get(key_of(7)), lambda: next(reader.items()), reader.verify):
        with pytest.raises(fpstore.ClosedStoreError):
            use()


@pytest.mark.parametrize("way", ["get", "get_many", "range", "items", "close"])
def test_nobody_forks_or_closes_in_the_middle_of_a_read(values, monkeypatch, way):
    """All that touches LMDB holds the lock, which a fork takes too."""
    path, value, size = values
    reader = environment.SealedReader(path, file_bytes=size, largest=len(value))
    held = []

    class Lock:
        def __enter__(self):
            held.append(way)

        def __exit__(self, *_):
            held.append("released")

    class Watched:
        def __getattr__(self, name):
            assert held[-1:] == [way]
            return getattr(transaction, name)

    reader.in_memory = None  # what can be read so needs no lock
    transaction, watched = reader._handle.transaction, Watched()
    monkeypatch.setattr(environment, "_lock", Lock())
    reader._handle.transaction = watched
    uses = {
        "get": lambda: reader.get(key_of(7)),
        "get_many": lambda: reader.get_many(words([place_of(7)]), words([0])),
        "range": lambda: reader.range(key_of(7), key_of(7)),
        "items": lambda: list(reader.items()),
        "close": reader.close,
    }
    uses[way]()
    assert held[: held.index("released")] == [way] * held.index("released")
    reader.close()
