"""Damage in large LMDB files is found page by page.

Files above 4 MiB are not read as a whole when they are opened; here, smaller ones count as large.
"""

import random

import numpy as np
import pytest
import reference_records
from damage import PAGE, check, flip, records_of, rewrite_records, used_bytes
from speeds import slow

import fpstore
from fpstore.base.strings import string_hash
from fpstore.format.dictionary import DICTIONARY_FILES, HASHES_FILE, NUMBERS_FILE
from fpstore.format.mapping import IDS_FILE, record_seed
from fpstore.format.strings import STRINGS_FILE

GENERATION = "gen-00000001"
LEAF_FLAG = 2
ALLOWED = {"refused", "noticed, error", "noticed, right"}


def test_an_id_map_is_read_as_far_as_it_is_asked_for(tmp_path, unread):
    """One damaged leaf page.

    What lies on others is answered, and repair loses what lies on that page only.
    """
    path, count = tmp_path / "s", 30_000
    fingerprints = np.random.default_rng(3).integers(0, 2**64, count, np.uint64)
    ids = np.random.default_rng(4).permutation(count).astype(np.uint64) * np.uint64(2**43)
    fpstore.build(path, fingerprints, ids, radius=1, design="flip-1").close()
    file = path / GENERATION / IDS_FILE
    data = bytearray(file.read_bytes())
    leaves = [
        page for page in range(2 * PAGE, used_bytes(file), PAGE) if data[page + 10] == LEAF_FLAG
    ]
    bad = leaves[len(leaves) // 2]
    data[bad + 2000] ^= 4
    file.write_bytes(data)
    answered, values = 0, set()
    with fpstore.open(path) as store:
        for i in range(0, count, 50):
            try:
                assert store[int(fingerprints[i])] == [ids[i]]
                answered += 1
            except fpstore.CorruptStoreError as error:
                values.add(error.got)
        with pytest.raises(fpstore.CorruptStoreError, match=f"damaged at byte {bad} "):
            store.fingerprints_of(ids[:1])
        assert [fault["message"] for fault in store.verify().faults] != []
    assert answered > 500
    assert values <= {bad}
    report = fpstore.repair(path)
    assert report.fingerprints > count - 2000
    assert not report.complete


# --- Strings --------------------------------------------------------------------------------------

STRINGS = [f"https://example.org/{i}" for i in range(500)]
DOCUMENTS = np.random.default_rng(6).integers(0, 2**64, len(STRINGS), np.uint64)


def named(path, merged=False):
    """Make a small store of strings, whose dictionary is that of the build or of a merge.

    Return its generation.
    """
    count = 400 if merged else len(STRINGS)
    fpstore.build(
        path, DOCUMENTS[:count], STRINGS[:count], radius=1, design="flip-1", block_bytes=128
    ).close()
    if merged:
        with fpstore.open(path, "r+") as store:
            store.insert(DOCUMENTS[400:], STRINGS[400:])
            store.merge()
    return "gen-00000002" if merged else GENERATION


@pytest.fixture
def unread(set_limits):
    """Have no file read as a whole when it is opened, as if it had more than 4 MiB."""
    set_limits(bytes_checked_at_open=0)


def names_asked(store):
    return [name in store.ids for name in STRINGS], [store.ids[name] for name in STRINGS[::9]]


@pytest.mark.full
@pytest.mark.parametrize(
    ("merged", "name"),
    [
        (False, HASHES_FILE),
        *(slow(merged, name) for merged in (False, True) for name in DICTIONARY_FILES),
    ],
)
def test_a_flipped_bit_in_a_dictionary_is_no_absence(tmp_path, unread, merged, name):
    path = tmp_path / "s"
    name = f"{named(path, merged)}/{name}"
    data = (path / name).read_bytes()
    low, high = (PAGE, len(data)) if name.endswith(".fpt") else (2 * PAGE, used_bytes(path / name))
    places = random.Random(2).sample([at for at in range(low, high) if data[at]], 150)

    with fpstore.open(path) as store:
        right = names_asked(store)
    assert all(right[0])
    results = check(
        path, name, right, {at: flip(at, at % 8) for at in places}, ALLOWED, names_asked
    )
    assert results["noticed, error"] > 50


def place_of(generation, what):
    """Return a file of a dictionary, and where a look-up of STRINGS[77] reads it."""
    dictionary = generation.dictionary
    block = dictionary.mapping.table.kernel.locate_one(string_hash(STRINGS[77].encode()))[0]
    if what == HASHES_FILE:
        return PAGE + dictionary.mapping.table.kernel.block_bytes * block + 30
    key = {
        STRINGS_FILE: 77 // dictionary.strings.per_record,
        NUMBERS_FILE: dictionary.mapping.table.kernel.key_of(block),
    }[what]
    record = records_of(generation.folder / what)[key.to_bytes(8, "big")]
    # before may lie a page that is not in use
    return (generation.folder / what).read_bytes().rfind(record) + 18


@pytest.mark.parametrize("what", DICTIONARY_FILES)
def test_nothing_is_deleted_or_numbered_by_a_damaged_dictionary(tmp_path, unread, what):
    """Neither does a delete return 0 nor does an insert make a second number for a string."""
    path = tmp_path / "s"
    file = path / named(path) / what
    with fpstore.open(path) as store:
        at = place_of(store.snapshot().generation, what)
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


@pytest.mark.parametrize(
    "wrong", [[8], slow([499, 500]), slow([10_000]), [2**63], "no record", slow("a short record")]
)
def test_a_listed_number_whose_record_does_not_match_is_damage(tmp_path, wrong):
    """Under checksums that are right: what a faulty writer would leave."""
    path = tmp_path / "s"
    named(path)
    with fpstore.open(path) as store:
        mapping = store.snapshot().generation.dictionary.mapping
        block, rank = mapping.table.kernel.locate_one(string_hash(STRINGS[7].encode()))
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
            records[place] = reference_records.encode_record(
                [*lists[:rank], wrong, *lists[rank + 1 :]], seed
            )

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
