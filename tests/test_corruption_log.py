"""Damaged logs: a flipped bit in any byte of a small one, a file cut short anywhere, headers of other versions."""

import shutil
import struct

import pytest
import xxhash
from damage import FINGERPRINTS, LOG, STRINGS, check, cut, flips, make

import fpstore
from fpstore.format.log import END, HEADER_BYTES, LOG_FILE, SUPERSEDED

FINE = {"refused", "noticed, error", "noticed, right", "unnoticed, right"}
HEADER_PLACES = [*range(100), *range(8 * END, 8 * END + 24), 4095]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Make a store with a small log: records of one row each, of several, deletes, and strings that are used again."""
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
def copy(good, tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.query.tracker.ATTEMPTS", 2)  # nobody merges beside these tests
    return shutil.copytree(good, tmp_path / "copy")


def quick(store):
    """Return what the log has changed: what is there, and what is there no more."""
    asked = [*FINGERPRINTS[:30:2].tolist(), *(FINGERPRINTS[:5] ^ 1).tolist()]
    return (
        [(f, store[f]) for f in asked if f in store],
        len(store),
        [column.tolist() for column in store.fingerprints_of(STRINGS[:8])],
    )


def test_a_flipped_bit_in_every_byte_of_a_small_log(copy, right):
    size = (copy / LOG).stat().st_size
    assert size < HEADER_BYTES + 2000
    results = check(copy, LOG, right, flips([*HEADER_PLACES, *range(HEADER_BYTES, size)]), FINE, quick)
    assert results["refused"] > size - HEADER_BYTES - 100
    assert results["refused"] + results["unnoticed, right"] == sum(results.values())


@pytest.mark.slow
def test_every_bit_of_a_small_log(copy, right):
    size = (copy / LOG).stat().st_size
    check(copy, LOG, right, flips([*HEADER_PLACES, *range(HEADER_BYTES, size)], 8), FINE, quick)


def test_a_log_cut_short_anywhere(copy, right):
    """What was acknowledged is not there any more: that is told, wherever it ends."""
    size = (copy / LOG).stat().st_size
    lengths = [0, 1, 87, 88, 512, 4095, HEADER_BYTES, *range(HEADER_BYTES + 1, size - 8, 7)]
    results = check(copy, LOG, right, {length: cut(length) for length in lengths}, {"refused"}, quick)
    assert results == {"refused": len(lengths)}


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (8, 2, fpstore.FormatVersionError),
        (12, 8192, fpstore.FormatVersionError),
        (72, 3, fpstore.CorruptStoreError),
        (76, 1, fpstore.FormatVersionError),
        (0, 0x41424344, fpstore.CorruptStoreError),
        (32, 7, fpstore.CorruptStoreError),
        (16, 0, fpstore.CorruptStoreError),
    ],
)
def test_another_header_with_a_right_checksum(copy, right, at, value, error):
    data = bytearray((copy / LOG).read_bytes())
    struct.pack_into("<I", data, at, value)
    data[80:88] = xxhash.xxh64_intdigest(bytes(data[:80])).to_bytes(8, "little")
    (copy / LOG).write_bytes(data)
    for mode in ("r", "r+"):
        with pytest.raises(error, match="log"):
            fpstore.open(copy, mode)


def test_a_log_that_claims_to_be_superseded_without_another_generation_is_read_on(copy, right):
    data = bytearray((copy / LOG).read_bytes())
    (word,) = struct.unpack_from("<Q", data, 8 * END)
    struct.pack_into("<Q", data, 8 * END, word | SUPERSEDED)
    (copy / LOG).write_bytes(data)
    with fpstore.open(copy) as store:
        assert quick(store) == right
        assert store.verify().ok
    assert (copy / LOG).name == LOG_FILE
