"""Damage in LMDB files over 4 MiB, which are not read as a whole when they are opened: page by page, before LMDB reads them."""

import os
import random
import shutil
import struct

import lmdb
import numpy as np
import pytest
import xxhash
from damage import PAGE, check, reseal, rewrite, used_bytes

import fpstore
from fpstore.disk import sealed as lmdb_files
from fpstore.format.id_map import IDS_FILE
from fpstore.format.strings import STRINGS_FILE

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
    found = [column.tolist() for column in store.ids.find(IDS[:3])]
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


def test_a_damaged_node_in_a_large_id_map_does_not_end_the_process(large, tmp_path):
    path = shutil.copytree(large, tmp_path / "copy")
    name = f"{GENERATION}/{IDS_FILE}"
    data = (path / name).read_bytes()
    heads = {kind: [] for kind in (BRANCH_FLAG, LEAF_FLAG)}
    for page in range(2 * PAGE, used_bytes(path / name), PAGE):
        heads.setdefault(data[page + 10], []).append(page)
    pages = heads[BRANCH_FLAG][-6:] + random.Random(1).sample(heads[LEAF_FLAG], 6)
    with fpstore.open(path) as store:
        right = ids_asked(store)
    damages = overwrites(path / name, pages, 1)
    assert len(damages) > 60
    results = check(path, name, right, damages, ALLOWED, ids_asked)
    assert results["noticed, error"] > 15  # the branch pages at least are read


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
            store.ids.find(IDS[:1])
        assert [fault["message"] for fault in store.verify().faults] != []
    assert answered > len(SOME) * 0.9
    assert told <= {leaves[len(leaves) // 2]}
    report = fpstore.repair(path)
    assert report.fingerprints > COUNT - 2000
    assert not report.complete


# --- Strings --------------------------------------------------------------------------------------

STRINGS = [f"https://example.org/{i}" for i in range(500)]
OWN_STRINGS = f"{GENERATION}/{STRINGS_FILE}"
DOCUMENTS = np.random.default_rng(6).integers(0, 2**64, len(STRINGS), np.uint64)


def named(path, merged):
    """Make a small store of strings, whose dictionary is that of the build or of a merge."""
    fpstore.build(
        path, DOCUMENTS[:400] if merged else DOCUMENTS, STRINGS[:400] if merged else STRINGS, radius=1, design="flip-1"
    ).close()
    if merged:
        with fpstore.open(path, "r+") as store:
            store.insert(DOCUMENTS[400:], STRINGS[400:])
            store.merge()
        return f"gen-00000002/{STRINGS_FILE}"
    return OWN_STRINGS


@pytest.fixture
def unread(monkeypatch):
    """Have no file read as a whole when it is opened, as if it had more than 4 MiB."""
    monkeypatch.setattr(lmdb_files, "CHECKED_AT_OPEN", 0)


def names_asked(store):
    return [name in store.ids for name in STRINGS], [store.ids[name] for name in STRINGS[::9]]


@pytest.mark.parametrize("merged", [False, True])
def test_a_flipped_bit_in_a_string_dictionary_is_no_absence(tmp_path, unread, merged):
    path = tmp_path / "s"
    name = named(path, merged)
    used = used_bytes(path / name)
    data = (path / name).read_bytes()[:used]
    places = random.Random(2).sample([at for at in range(2 * PAGE, used) if data[at]], 150)

    def damage(at):
        return overwrite(at, bytes([data[at] ^ 1 << at % 8]))

    with fpstore.open(path) as store:
        right = names_asked(store)
    assert all(right[0])
    results = check(path, name, right, {at: damage(at) for at in places}, ALLOWED, names_asked)
    assert results["noticed, error"] > 50


@pytest.mark.parametrize("what", ["text", "listed"])
def test_nothing_is_deleted_or_numbered_by_a_damaged_dictionary(tmp_path, unread, what):
    """Neither does a delete return 0 nor does an insert make a second number for a string."""
    path = tmp_path / "s"
    named(path, False)
    data = bytearray((path / OWN_STRINGS).read_bytes())
    wanted = STRINGS[77].encode() if what == "text" else xxhash.xxh64_digest(STRINGS[77].encode())
    at = data.find(wanted)
    assert at > 0
    data[at + 5] ^= 1
    (path / OWN_STRINGS).write_bytes(data)
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


def test_a_listed_number_whose_record_does_not_match_is_damage(tmp_path):
    """Under checksums that are right: what a faulty writer would leave."""
    path = tmp_path / "s"
    named(path, False)
    key = xxhash.xxh64_digest(STRINGS[7].encode())
    for wrong in ((8).to_bytes(8, "big"), (10_000).to_bytes(8, "big"), b"", b"short"):
        copy = shutil.copytree(path, tmp_path / f"copy-{wrong.hex()}")
        with lmdb.open(str(copy / OWN_STRINGS), subdir=False, lock=False, max_dbs=4) as environment:
            numbers = environment.open_db(b"numbers")
            with environment.begin(write=True) as transaction:
                transaction.put(key, wrong, db=numbers)
        size, digest = reseal(copy / OWN_STRINGS)
        rewrite(copy, lambda record, s=size, d=digest: record["generation"]["strings_file"].update(bytes=s, digest=d))
        with fpstore.open(copy) as store, pytest.raises(fpstore.CorruptStoreError):
            store.ids[STRINGS[7]]
