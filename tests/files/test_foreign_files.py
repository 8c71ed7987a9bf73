"""Files that are intact in themselves but belong elsewhere.

Also damage that only a merge would have met.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import reference
import reference_records
from damage import records_of, rewrite, rewrite_records
from limits import limited
from small_stores import content, rows_of
from speeds import slow

import fpstore
from fpstore.base.strings import string_hash
from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.log import LOG_FILE, LogHeader
from fpstore.format.log_writer import LogWriter
from fpstore.format.manifest import read_manifest
from fpstore.format.mapping import record_seed
from fpstore.format.record import ADD, Change, pack_change

FINGERPRINTS = np.random.default_rng(3).integers(0, 2**64, 300, np.uint64)
STRINGS = [f"document {i}" for i in range(300)]


def make(path, ids, changes=True, merge=False):
    fpstore.build(path, FINGERPRINTS, ids, design="manku-4", block_bytes=128).close()
    if changes or merge:
        with fpstore.open(path, "r+") as store:
            store.insert(FINGERPRINTS[:9] ^ np.uint64(4), ids[:9])
            if merge:
                store.delete(ids=ids[:20])  # the dictionary is written anew
                store.merge()
    return path


def lost_of(report):
    return (
        set()
        if report.lost_file is None
        else set(Path(report.lost_file).read_text("utf-8").splitlines())
    )


def test_repair_takes_nothing_from_a_dictionary_of_another_store(tmp_path):
    """It has the same fingerprints and other strings."""
    path, other = (
        make(tmp_path / "s", STRINGS, merge=True),
        make(tmp_path / "other", STRINGS[::-1], merge=True),
    )
    right = content(path)
    shutil.copyfile(other / "gen-00000002" / "strings.mdb", path / "gen-00000002" / "strings.mdb")
    report = fpstore.repair(path)
    assert any(
        "strings.mdb: a file of another store" in fault["message"] for fault in report.faults
    )
    assert content(report.output) <= right
    assert not report.complete or content(report.output) == right


def test_repair_takes_nothing_from_the_ids_of_another_store(tmp_path):
    path = make(tmp_path / "s", np.arange(300, dtype=np.uint64))
    other = make(tmp_path / "other", np.arange(300, dtype=np.uint64)[::-1].copy())
    right = content(path)
    shutil.copyfile(other / "gen-00000001" / "ids.mdb", path / "gen-00000001" / "ids.mdb")
    report = fpstore.repair(path)
    assert not report.complete
    assert content(report.output) <= right
    assert len(lost_of(report)) == 300


@pytest.mark.parametrize("name", ["hashes.fpt", slow("numbers.mdb")])
def test_repair_needs_no_way_back_from_strings_to_numbers(tmp_path, name):
    path, other = (
        make(tmp_path / "s", STRINGS, merge=True),
        make(tmp_path / "other", STRINGS[::-1], merge=True),
    )
    right = content(path)
    shutil.copyfile(other / "gen-00000002" / name, path / "gen-00000002" / name)
    with pytest.raises(fpstore.CorruptStoreError, match=f"{name}: .*another store"):
        fpstore.open(path)
    report = fpstore.repair(path)
    assert report.complete
    assert content(report.output) == right


def test_damaged_lists_of_numbers_do_not_survive_a_merge(tmp_path):
    """A merge copies which number has which hash.

    A wrong one would lose the string for look-ups by it.
    """
    path = make(tmp_path / "s", STRINGS)
    file = path / "gen-00000001" / "numbers.mdb"
    data = file.read_bytes()
    records = records_of(file)
    for at, record in list(enumerate(records.values()))[::3]:
        damaged = bytearray(data)
        damaged[data.find(record) + len(record) - 1 - at % 8] ^= 1
        file.write_bytes(damaged)
        refused_merge(path)
        file.write_bytes(data)


def test_a_number_beyond_all_strings_does_not_survive_a_merge(tmp_path):
    """Under checksums that are right: what a faulty writer would leave."""
    path = make(tmp_path / "s", STRINGS)
    digest = reference.set_digest([string_hash(string.encode()) for string in STRINGS])

    def change(records):
        key = max(records)
        seed = record_seed(digest, int.from_bytes(key, "big"))
        *lists, _ = reference_records.decode_record(records[key], seed)
        records[key] = reference_records.encode_record([*lists, [2**40]], seed)

    rewrite_records(path, "gen-00000001/numbers.mdb", change)
    refused_merge(path)


@pytest.mark.parametrize("wrong", [{"ids": 301}, {"fingerprints": 299}])
def test_log_with_wrong_totals_is_not_merged(tmp_path, wrong):
    """Under checksums that are right: what a faulty writer would leave."""
    path = make(tmp_path / "s", STRINGS, changes=False)
    manifest = read_manifest(path)
    log = LogWriter(path / "gen-00000001" / LOG_FILE, LogHeader.from_manifest(manifest))
    none = np.empty(0, np.uint64)
    log.append(
        pack_change(
            Change(log.header.totals._replace(**wrong), none.astype(np.uint8), none, none, [])
        ),
        durable=True,
    )
    log.publish()
    log.close()
    with (
        fpstore.open(path, "r+") as store,
        pytest.raises(fpstore.CorruptStoreError, match="hold 300 fingerprints with 300 ids"),
    ):
        store.merge()
    assert sorted(p.name for p in path.glob("gen-*")) == ["gen-00000001"]


def test_store_whose_strings_do_not_match_its_ids_is_not_joined(tmp_path):
    """Under checksums that are right: what a faulty writer would leave."""
    make(tmp_path / "s", ["mine", *STRINGS[1:]], changes=False)
    path = make(tmp_path / "a", STRINGS, changes=False)

    def change(records):
        key = max(records)
        seed = record_seed(reference.set_digest(FINGERPRINTS.tolist()), int.from_bytes(key, "big"))
        *lists, _ = reference_records.decode_record(records[key], seed)
        records[key] = reference_records.encode_record([*lists, [len(STRINGS)]], seed)

    rewrite_records(path, "gen-00000001/ids.mdb", change)
    with fpstore.open(tmp_path / "s", "r+") as store:
        with pytest.raises(fpstore.CorruptStoreError, match="has no string"):
            store.absorb(path)
        assert len(store) == 300


def test_an_id_number_of_the_log_that_has_no_string_is_found(tmp_path):
    path = make(tmp_path / "s", STRINGS, changes=False)
    manifest = read_manifest(path)
    log = LogWriter(path / "gen-00000001" / LOG_FILE, LogHeader.from_manifest(manifest))
    numbers = np.array([1], np.uint64)
    totals = log.header.totals._replace(fingerprints=301, ids=301)
    log.append(
        pack_change(
            Change(totals, np.array([ADD], np.uint8), numbers, numbers * np.uint64(300), [b""])
        ),
        durable=True,
    )
    log.publish()
    log.close()
    with fpstore.open(path, "r+") as store:
        (fault,) = store.verify().faults
        assert "id number 300 is in use, but has no string" in fault["message"]
        with pytest.raises(
            fpstore.CorruptStoreError,
            match="301 id numbers are in use, and 300 of them have a string",
        ):
            store.merge()


def test_an_id_number_that_has_no_string_is_damage(tmp_path):
    """Under checksums that are right, the dictionary has no strings for ids 0 to 19."""
    path, other = (
        make(tmp_path / "s", STRINGS, changes=False),
        make(tmp_path / "other", STRINGS, merge=True),
    )
    for name in DICTIONARY_FILES:
        shutil.copyfile(other / "gen-00000002" / name, path / "gen-00000001" / name)
    dictionary = read_manifest(other).generation.dictionary
    rewrite(path, lambda record: record["generation"].update(dictionary=dictionary))
    with fpstore.open(path) as store:
        (fault,) = store.verify().faults
        assert "id number 0 is in use, but has no string" in fault["message"]
        with pytest.raises(fpstore.CorruptStoreError, match="id number 0 has no string"):
            store.split(tmp_path / "parts", 1)
    make(tmp_path / "mine", ["mine", *STRINGS[1:]], changes=False)
    with fpstore.open(tmp_path / "mine", "r+") as store:
        with pytest.raises(fpstore.CorruptStoreError, match="id number 0 has no string"):
            store.absorb(path)
        assert rows_of(store) == set(
            zip(FINGERPRINTS.tolist(), ["mine", *STRINGS[1:]], strict=True)
        )
    # without a new string a merge would take the dictionary over
    for number, name in enumerate((STRINGS[50], "new"), 1):
        with fpstore.open(path, "r+") as store:
            store.insert([number], [name])
            with pytest.raises(
                fpstore.CorruptStoreError,
                match=r"id numbers are in use, and 28\d of them have a string",
            ):
                store.merge()
            assert len(store) == 300 + number
    assert sorted(p.name for p in path.glob("gen-*")) == ["gen-00000001"]


def refused_merge(path):
    with limited(bytes_checked_at_open=0), fpstore.open(path, "r+") as store:  # as if it were large
        # without a new string, a merge takes the dictionary over as it is
        store.insert([1], ["more"])
        with pytest.raises(fpstore.CorruptStoreError):
            store.merge()
        assert len(store) == 310
    assert sorted(p.name for p in path.glob("gen-*")) == ["gen-00000001"]
