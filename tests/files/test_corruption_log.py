"""Damaged logs under checksums that are right.

Headers of other versions, and records that no writer logs.
"""

import shutil
import struct

import numpy as np
import pytest
import xxhash
from damage import FINGERPRINTS, LOG, STRINGS, make

import fpstore
from fpstore.format.log import END, HEADER_BYTES, LOG_FILE, SUPERSEDED, LogHeader
from fpstore.format.log_writer import LogWriter, create_log
from fpstore.format.manifest import read_manifest
from fpstore.format.record import ADD, IN_BASE, Change, pack_change


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Make a store with a small log.

    Records of one row each, of several, deletes, and strings that are used again.
    """
    path = make(tmp_path_factory.mktemp("good") / "s")
    with fpstore.open(path, "r+") as store:
        for i in range(4):
            store.insert(FINGERPRINTS[i : i + 1] ^ 1, [f"new {i}"])
        store.delete(ids=["document 5", "new 3"])
        store.delete(fingerprints=FINGERPRINTS[20:24])
        store.insert(FINGERPRINTS[22:25], ["again", "document 5", "document 6"])
    return path


@pytest.fixture(scope="module")
def right(good):
    with fpstore.open(good) as store:
        assert store.verify().ok
        return quick(store)


@pytest.fixture
def copy(good, tmp_path, set_limits):
    set_limits(snapshot_attempts=2)  # nobody merges beside these tests
    return shutil.copytree(good, tmp_path / "copy")


def quick(store):
    """Return what the log has changed: what is there, and what is there no more."""
    queries = [*FINGERPRINTS[:30:2].tolist(), *(FINGERPRINTS[:5] ^ 1).tolist()]
    return (
        [(f, store[f]) for f in queries if f in store],
        len(store),
        [column.tolist() for column in store.fingerprints_of(STRINGS[:8])],
    )


def test_another_header_with_a_right_checksum(copy):
    before = (copy / LOG).read_bytes()
    for at, value, error in (
        (8, 2, fpstore.FormatVersionError),
        (12, 8192, fpstore.FormatVersionError),
        (72, 3, fpstore.CorruptStoreError),
        (76, 1, fpstore.FormatVersionError),
        (0, 0x41424344, fpstore.CorruptStoreError),
        (32, 7, fpstore.CorruptStoreError),
        (16, 0, fpstore.CorruptStoreError),
    ):
        data = bytearray(before)
        struct.pack_into("<I", data, at, value)
        data[80:88] = xxhash.xxh64_intdigest(bytes(data[:80])).to_bytes(8, "little")
        (copy / LOG).write_bytes(data)
        for mode in ("r", "r+"):
            with pytest.raises(error, match="log"):
                fpstore.open(copy, mode)


KINDS_AT = 88 + 8 + 8  # of a record of one row of 64 bits


@pytest.fixture
def single(tmp_path):
    """Make a store with one record in its log."""
    path = make(tmp_path / "s")
    with fpstore.open(path, "r+") as store:
        store.insert(FINGERPRINTS[:1] ^ 1, ["new"])
    return path


def test_forged_records_are_refused(single):
    """What no writer logs, under a right checksum.

    Counts above what fits into the file, a kind, a string that is not UTF-8.
    """
    before = (single / LOG).read_bytes()
    for at, form, value in (
        (40, "<Q", 2**64 - 1),
        (40, "<Q", 2**40),
        (48, "<Q", 2**63),
        (48, "<Q", 1),
        (64, "<Q", 2**64 - 1),
        (72, "<Q", 2**32 - 1),
        (80, "<I", 3),
        (84, "<I", 3),
        (KINDS_AT, "<B", 4),
        (KINDS_AT, "<B", 3),
        (KINDS_AT + 5, "<B", 0xFF),
    ):
        data = bytearray(before)
        struct.pack_into(form, data, HEADER_BYTES + at, value)
        length = int.from_bytes(data[HEADER_BYTES + 16 : HEADER_BYTES + 24], "little")
        seed = xxhash.xxh64_intdigest(bytes(data[16:32]), int.from_bytes(data[32:40], "little"))
        checksum = xxhash.xxh64_intdigest(
            bytes(data[HEADER_BYTES + 16 : HEADER_BYTES + length]), seed ^ HEADER_BYTES
        )
        data[HEADER_BYTES + 8 : HEADER_BYTES + 16] = checksum.to_bytes(8, "little")
        (single / LOG).write_bytes(data)
        # it says that the tables have a fingerprint: then they are asked
        if (at, value) == (KINDS_AT, 4):
            with fpstore.open(single) as store:
                assert not store.verify().ok
            continue
        for mode in ("r", "r+"):
            with pytest.raises(fpstore.CorruptStoreError, match=r"the log is (malformed|damaged)"):
                fpstore.open(single, mode)
    assert not fpstore.repair(single).sound


def test_log_record_that_denies_a_table_fingerprint_is_refused(copy):
    """A row of the log says whether the tables have its fingerprint.

    What reads everything finds that it is not so.
    """
    header = LogHeader.from_manifest(read_manifest(copy))
    (copy / LOG).unlink()
    create_log(copy / LOG, header)
    log = LogWriter(copy / LOG, header)
    rows, totals = FINGERPRINTS[:1], header.totals
    for kind in (ADD, ADD | IN_BASE):
        log.append(
            pack_change(
                Change(totals, np.array([kind], np.uint8), rows, np.ones(1, np.uint64), [])
            ),
            durable=True,
        )
        log.publish()
        if kind == ADD:
            with fpstore.open(copy) as store:
                for read in (store.items, store.snapshot().fingerprints):
                    with pytest.raises(
                        fpstore.CorruptStoreError, match="its rows contradict the tables"
                    ):
                        list(read())
    log.close()
    with pytest.raises(fpstore.CorruptStoreError, match=r"log is malformed \(in_base differs"):
        fpstore.open(copy)


def test_log_marked_superseded_without_a_successor_is_read_on(copy, right):
    data = bytearray((copy / LOG).read_bytes())
    (word,) = struct.unpack_from("<Q", data, 8 * END)
    struct.pack_into("<Q", data, 8 * END, word | SUPERSEDED)
    (copy / LOG).write_bytes(data)
    with fpstore.open(copy) as store:
        assert quick(store) == right
        assert store.verify().ok
    assert (copy / LOG).name == LOG_FILE
