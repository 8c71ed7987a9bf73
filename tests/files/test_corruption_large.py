"""Damage in LMDB files over 4 MiB, which are not read as a whole when they are opened: page by page, before LMDB reads them."""

import os
import random
import shutil
import struct

import numpy as np
import pytest
import reference_records
from damage import PAGE, check, rewrite_records, used_bytes
from speeds import crossed

import fpstore
from fpstore.base.strings import hash_of
from fpstore.disk import sealed as lmdb_files
from fpstore.format.dictionary import DICTIONARY_FILES, HASHES_FILE, NUMBERS_FILE
from fpstore.format.mapping import IDS_FILE, record_seed
from fpstore.format.strings import STRINGS_FILE
from fpstore.store import snapshot_of

COUNT = 600_000
GENERATION = "gen-00000001"
BRANCH_FLAG, LEAF_FLAG = 1, 2
ALLOWED = {"refused", "noticed, error", "noticed, right"}
FINGERPRINTS = np.random.default_rng(3).integers(0, 2**64, COUNT, np.uint64)
IDS = np.random.default_rng(4).permutation(COUNT).astype(np.uint64) * np.uint64(2**43)
SOME = np.random.default_rng(5).integers(0, COUNT, 600)


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Return a store whose id map has more than 4 MiB."""
    path = tmp_path_factory.mktemp("large") / "s"
    fpstore.build(path, FINGERPRINTS, IDS, radius=1, design="flip-1").close()
    assert used_bytes(path / GENERATION / IDS_FILE) > lmdb_files.CHECKED_AT_OPEN
    return path


def ids_asked(store):
    """Ask for ids all at a time, one by one, and many."""
    found = [column.tolist() for column in store.fingerprints_of(IDS[:3])]
    one_by_one = [store[int(FINGERPRINTS[i])] for i in SOME]
    lims, ids = store.ids_of(FINGERPRINTS[SOME])
    return one_by_one, lims.tolist(), ids.tolist(), found


def overwrite(at, new):
    def damage(descriptor):
        old = os.pread(descriptor, len(new), at)
        os.pwrite(descriptor, new, at)
        return lambda: os.pwrite(descriptor, old, at)

    return damage


def overwrites(file, pages, seed):
    """Overwrite heads of pages, pointers and heads of nodes with all ones, zeros, or anything."""
    rng = random.Random(seed)
    data = file.read_bytes()
    damages = {}
    for page in pages:
        lower = struct.unpack_from("<H", data, page + 12)[0]
        nodes = struct.unpack_from(f"<{(lower - 16) // 2}H", data, page + 16)
        for at in (page, page + 10, page + 12, page + 16, page + rng.choice(nodes), page + rng.choice(nodes) + 4):
            new = rng.choice([b"\xff" * 8, bytes(8), rng.randbytes(8)])
            if data[at : at + 8] != new:
                damages[at, new] = overwrite(at, new)
        node = page + rng.choice(nodes)
        # The upper half of a value's length, or of a page number; the flag of a list of values, which LMDB would follow.
        for at, new in ((node + 2, b"\x7f\xff"), (node + 4, b"\x04\x00")):
            damages[at, new] = overwrite(at, new)
    return damages


@pytest.mark.parametrize("count", [3, pytest.param(6, marks=pytest.mark.slow)])
def test_a_damaged_node_in_a_large_id_map_does_not_end_the_process(large, tmp_path, count):
    path = shutil.copytree(large, tmp_path / "copy")
    name = f"{GENERATION}/{IDS_FILE}"
    data = (path / name).read_bytes()
    heads = {kind: [] for kind in (BRANCH_FLAG, LEAF_FLAG)}
    for page in range(2 * PAGE, used_bytes(path / name), PAGE):
        heads.setdefault(data[page + 10], []).append(page)
    pages = heads[BRANCH_FLAG][-count:] + random.Random(1).sample(heads[LEAF_FLAG], count)
    with fpstore.open(path) as store:
        right = ids_asked(store)
    damages = overwrites(path / name, pages, 1)
    assert len(damages) > 10 * count
    results = check(path, name, right, damages, ALLOWED, ids_asked)
    assert results["noticed, error"] > 5 * count // 2  # the branch pages at least are read


def test_a_large_id_map_is_read_as_far_as_it_is_asked_for(large, tmp_path):
    """One damaged leaf page: what lies on others is answered, and repair loses what lies on that page only."""
    path = shutil.copytree(large, tmp_path / "copy")
    file = path / GENERATION / IDS_FILE
    data = bytearray(file.read_bytes())
    leaves = [page for page in range(2 * PAGE, used_bytes(file), PAGE) if data[page + 10] == LEAF_FLAG]
    data[leaves[len(leaves) // 2] + 2000] ^= 4
    file.write_bytes(data)
    answered, told = 0, set()
    with fpstore.open(path) as store:
        for i in SOME:
            try:
                assert store[int(FINGERPRINTS[i])] == [IDS[i]]
                answered += 1
            except fpstore.CorruptStoreError as error:
                told.add(error.got)
        with pytest.raises(fpstore.CorruptStoreError, match=f"damaged at byte {leaves[len(leaves) // 2]} "):
            store.fingerprints_of(IDS[:1])
        assert [fault["message"] for fault in store.verify().faults] != []
    assert answered > len(SOME) * 0.9
    assert told <= {leaves[len(leaves) // 2]}
    report = fpstore.repair(path)
    assert report.fingerprints > COUNT - 2000
    assert not report.complete


# --- Strings --------------------------------------------------------------------------------------

STRINGS = [f"https://example.org/{i}" for i in range(500)]
DOCUMENTS = np.random.default_rng(6).integers(0, 2**64, len(STRINGS), np.uint64)


def named(path, merged=False):
    """Make a small store of strings, whose dictionary is that of the build or of a merge; return its generation."""
    count = 400 if merged else len(STRINGS)
    fpstore.build(path, DOCUMENTS[:count], STRINGS[:count], radius=1, design="flip-1", block_bytes=128).close()
    if merged:
        with fpstore.open(path, "r+") as store:
            store.insert(DOCUMENTS[400:], STRINGS[400:])
            store.merge()
    return "gen-00000002" if merged else GENERATION


@pytest.fixture
def unread(monkeypatch):
    """Have no file read as a whole when it is opened, as if it had more than 4 MiB."""
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", 0)


def names_asked(store):
    return [name in store.ids for name in STRINGS], [store.ids[name] for name in STRINGS[::9]]


@pytest.mark.parametrize(("merged", "name"), crossed([False, True], DICTIONARY_FILES))
def test_a_flipped_bit_in_a_dictionary_is_no_absence(tmp_path, unread, merged, name):
    path = tmp_path / "s"
    name = f"{named(path, merged)}/{name}"
    data = (path / name).read_bytes()
    low, high = (PAGE, len(data)) if name.endswith(".fpt") else (2 * PAGE, used_bytes(path / name))
    places = random.Random(2).sample([at for at in range(low, high) if data[at]], 150)

    def damage(at):
        return overwrite(at, bytes([data[at] ^ 1 << at % 8]))

    with fpstore.open(path) as store:
        right = names_asked(store)
    assert all(right[0])
    results = check(path, name, right, {at: damage(at) for at in places}, ALLOWED, names_asked)
    assert results["noticed, error"] > 50


def place_of(generation, what):
    """Return a file of a dictionary, and where a look-up of STRINGS[77] reads it."""
    dictionary = generation.dictionary
    block = dictionary.mapping.table.kernel.locate_one(hash_of(STRINGS[77].encode()))[0]
    if what == HASHES_FILE:
        return PAGE + dictionary.mapping.table.kernel.block_bytes * block + 30
    reader, key = {
        STRINGS_FILE: (dictionary.strings._reader, 77 // dictionary.strings.per_record),
        NUMBERS_FILE: (dictionary.mapping._reader, dictionary.mapping.table.kernel.key_of(block)),
    }[what]
    record = reader.file.get(key)
    return (generation.folder / what).read_bytes().rfind(record) + 18  # before may lie a page that is not in use


@pytest.mark.parametrize("what", DICTIONARY_FILES)
def test_nothing_is_deleted_or_numbered_by_a_damaged_dictionary(tmp_path, unread, what):
    """Neither does a delete return 0 nor does an insert make a second number for a string."""
    path = tmp_path / "s"
    file = path / named(path) / what
    with fpstore.open(path) as store:
        at = place_of(snapshot_of(store).generation, what)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with fpstore.open(path, "r+") as store:
        for ask in (
            lambda: store.ids[STRINGS[77]],
            lambda: STRINGS[77] in store.ids,
            lambda: store.delete(ids=[STRINGS[77]]),
            lambda: store.insert(DOCUMENTS[:1], [STRINGS[77]]),
        ):
            with pytest.raises(fpstore.CorruptStoreError):
                ask()
        assert store.stats()["ids"] == len(STRINGS)


@pytest.mark.parametrize("wrong", [[8], [499, 500], [10_000], [2**63], "no record", "a short record"])
def test_a_listed_number_whose_record_does_not_match_is_damage(tmp_path, wrong):
    """Under checksums that are right: what a faulty writer would leave."""
    path = tmp_path / "s"
    named(path)
    with fpstore.open(path) as store:
        mapping = snapshot_of(store).generation.dictionary.mapping
        block, rank = mapping.table.kernel.locate_one(hash_of(STRINGS[7].encode()))
        key, digest = mapping.table.kernel.key_of(block), mapping.table.kernel.set_digest

    def change(records):
        seed, place = record_seed(digest, key), key.to_bytes(8, "big")
        if wrong == "no record":
            del records[place]
        elif wrong == "a short record":
            records[place] = b"short"
        else:
            lists = reference_records.decode_record(records[place], seed)
            assert lists[rank] == [7]
            records[place] = reference_records.encode_record([*lists[:rank], wrong, *lists[rank + 1 :]], seed)

    rewrite_records(path, f"{GENERATION}/{NUMBERS_FILE}", change)
    with fpstore.open(path, "r+") as store:
        for ask in (
            lambda: store.ids[STRINGS[7]],
            lambda: store.fingerprints_of(STRINGS[7:8]),
            lambda: store.insert(DOCUMENTS[:1], [STRINGS[7]]),
        ):
            with pytest.raises(fpstore.CorruptStoreError):
                ask()
        assert not store.verify().ok
