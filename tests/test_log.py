"""The log: what is appended is read, a torn tail is cut off, and damage is told, with its place."""

import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from powerfailure import Disk, record

from fpstore import _kernel
from fpstore.errors import CorruptStoreError, FormatVersionError, StorageError, StoreNotFoundError
from fpstore.format import log as log_format
from fpstore.format.log import (
    BOOT,
    END,
    HEADER_BYTES,
    WORDS_AT,
    LogHeader,
    LogReader,
    boot_word,
    end_word,
    later_records,
    told_end,
)
from fpstore.format.log_writer import LogWriter, create_log, set_end, supersede_log
from fpstore.format.record import ADD, ID_KINDS, Change, Totals, pack_added_pair, pack_change

IDENTITY = bytes(range(16))
GENERATION = 3
HEADER = LogHeader(IDENTITY, GENERATION, 7, Totals(1, 2, 3, "string"))
SEED = HEADER.seed
PAGE = 4096


def change(rows, strings=(), totals=(10, 20, 30, 0)):
    """Return a change of [(fingerprint, id, kind)]."""
    fingerprints, ids, kinds = (
        np.array([row[i] for row in rows], kind) for i, kind in enumerate((np.uint64, np.uint64, np.uint8))
    )
    return Change(Totals(*totals[:3], ID_KINDS[totals[3]]), kinds, fingerprints, ids, list(strings))


CHANGES = [
    change([]),
    change([(2**64 - 1, 5, 0)]),
    change([(1, 2, 1), (3, 0, 2), (5, 6, 0)], [b"abc", b"", "schön".encode()], (2**64 - 1, 0, 2**63, 2)),
    change([(7, 8, 0)] * 5, [b"x" * 100], (1, 1, 1, 1)),
    change([], [b"only a string"]),
    change([(9, 9, 0)]),
]


def parts(found):
    return (tuple(found.totals[:3]), found.totals.id_kind, *(part.tolist() for part in found[1:4]), found.strings)


def merged(changes):
    """Return several changes as one, as they are read."""
    joined = [np.concatenate([part[i] for part in changes]) for i in range(1, 4)]
    return Change(changes[-1].totals, *joined, [string for part in changes for string in part.strings])


def of_reference(found):
    totals, rows = found.totals, found.rows
    return change(rows, found.strings, totals)


def open_writer(path):
    return LogWriter(path, IDENTITY, GENERATION)


def open_reader(path):
    return LogReader(path, IDENTITY, GENERATION)


def read(path):
    """Return the numbers of the records and the change that a reader sees, None if there is none."""
    reader = open_reader(path)
    try:
        pieces = list(reader.read(HEADER_BYTES, 1))
    finally:
        reader.close()
    return (pieces[-1].last, merged([piece.change for piece in pieces])) if pieces else (0, None)


def same(found, changes):
    number, joined = found
    return number == len(changes) and (joined is None if not changes else parts(joined) == parts(merged(changes)))


@pytest.fixture
def path(tmp_path):
    create_log(tmp_path / "log", HEADER)
    return tmp_path / "log"


@pytest.fixture
def full(path):
    """Return the path of a log with all the changes, and the places of its records."""
    writer = open_writer(path)
    places = []
    for each in CHANGES:
        places.append(writer.place)
        writer.append(pack_change(each), durable=True)
        writer.publish()
    writer.close()
    return path, [*places, path.stat().st_size]


def with_words(data, end=None, boot=None):
    """Return a log with other words in its header."""
    data = bytearray(data)
    if end is not None:
        struct.pack_into("<Q", data, 8 * END, end_word(end))
    if boot is not None:
        struct.pack_into("<Q", data, 8 * BOOT, boot)
    return bytes(data)


# --- Records --------------------------------------------------------------------------------------

numbers = st.integers(0, 2**64 - 1)
shapes = st.builds(
    change,
    st.lists(st.tuples(numbers, numbers, st.integers(0, 2)), max_size=5),
    st.lists(st.binary(max_size=9), max_size=4),
    st.tuples(numbers, numbers, numbers, st.integers(0, 2)),
)


def kernel(data, place, seed, number=0, most=2**64 - 1):
    count, used, last, durable, totals, *columns = _kernel.read_log(np.frombuffer(data, np.uint8), place, seed, number, most)
    return count, used, last, durable, log_format._change(totals, columns) if count else None


def framed(each, number, durable, place, seed):
    rows = list(zip(each.fingerprints.tolist(), each.ids.tolist(), each.kinds.tolist(), strict=True))
    totals = (*each.totals[:3], ID_KINDS.index(each.totals.id_kind))
    return reference.encode_change(reference.Change(number, durable, totals, rows, each.strings), place, seed)


@given(st.lists(shapes, max_size=4), numbers, st.integers(0, 2**60).map(lambda n: 8 * n), st.integers(1, 2**63))
def test_the_kernel_reads_what_the_reference_writes(changes, seed, place, number):
    data = b""
    for i, each in enumerate(changes):
        data += framed(each, number + i, i, place + len(data), seed)
    for first in (0, number):
        count, used, last, durable, found = kernel(data, place, seed, first)
        assert (count, used) == (len(changes), len(data))
        if changes:
            assert (last, durable) == (number + count - 1, count - 1)
            assert parts(found) == parts(merged(changes))
    assert kernel(data, place, seed, most=1)[0] == min(1, len(changes))
    assert kernel(data, place, seed, number + 1)[0] == 0
    assert kernel(data, place + 8, seed)[0] == kernel(data, place, seed ^ 1)[0] == 0


@given(shapes, st.data())
def test_a_damaged_record_is_not_read(each, data):
    packed = bytearray(framed(each, 1, 0, PAGE, SEED))
    length = struct.unpack_from("<Q", packed, 16)[0]
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert kernel(bytes(packed), PAGE, SEED)[0] == 0


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(16, "Q", 87), (16, "Q", 0), (16, "Q", 2**64 - 1), (16, "Q", 2**64 - 7), (64, "Q", 2), (64, "Q", 0), (64, "Q", 2**64 - 1),
     (64, "Q", 2**60), (72, "Q", 2), (72, "Q", 0), (72, "Q", 2**64 - 1), (80, "Q", 3), (104, "B", 3), (105, "I", 2**31),
     (105, "I", 4), (105, "I", 2)],
)  # fmt: skip
def test_a_record_that_says_what_cannot_be_is_not_read(at, form, value):
    """Under a right checksum: lengths that lead outside, unknown kinds."""

    def sealed(data):
        length = struct.unpack_from("<Q", data, 16)[0]
        return data[:8] + struct.pack("<Q", reference.xxh64(data[16:length], SEED ^ PAGE)) + data[16:]

    good = framed(change([(1, 1, 0)], [b"abc"]), 1, 0, PAGE, SEED)
    assert sealed(good) == good
    forged = bytearray(good)
    struct.pack_into("<" + form, forged, at, value)
    assert kernel(sealed(bytes(forged)), PAGE, SEED)[0] == 0
    with pytest.raises(reference.FormatError):
        reference.decode_change(bytes(PAGE) + sealed(bytes(forged)), PAGE, SEED)


@given(numbers, numbers, st.lists(st.binary(max_size=9), max_size=2), st.tuples(numbers, numbers, numbers, st.integers(0, 2)))
def test_one_pair_is_packed_as_a_change_of_one(fingerprint, number, strings, totals):
    one = change([(fingerprint, number, ADD)], strings, totals)
    assert pack_added_pair(one.totals, fingerprint, number, strings) == pack_change(one)


def test_a_log_is_what_the_reference_says(full):
    path, places = full
    data = path.read_bytes()
    header = reference.parse_log_header(data)
    assert (header.identity, header.generation, header.first_string) == HEADER[:3]
    assert header.totals == (1, 2, 3, 2)
    assert (header.end, header.superseded, header.boot) == (len(data), False, boot_word())
    assert not any(data[88:WORDS_AT])
    assert not any(data[WORDS_AT + 16 : HEADER_BYTES])
    found, end = reference.read_log(data, boot_word())
    assert [parts(of_reference(each)) for each in found] == [parts(each) for each in CHANGES]
    assert [each.durable for each in found] == places[:-1]
    assert end == len(data)
    expected = b"".join(
        framed(each, i, place, place, SEED) for i, (each, place) in enumerate(zip(CHANGES, places[:-1], strict=True), 1)
    )
    assert data[HEADER_BYTES:] == expected


def test_a_record_of_20_mb_and_many_small_ones(path, monkeypatch):
    monkeypatch.setattr(log_format, "PIECE_BYTES", 1 << 20)
    words = np.random.default_rng(1).integers(0, 2**64, 1_000_000, np.uint64)
    large = Change(Totals(1, 1, 1, "integer"), np.zeros(len(words), np.uint8), words, words[::-1], [b"y" * 3_000_000])
    changes = [*CHANGES, large, *CHANGES * 20, large]
    writer = open_writer(path)
    for each in changes:
        writer.append(pack_change(each))
    writer.sync()
    writer.close()
    reader = open_reader(path)
    pieces = list(reader.read(HEADER_BYTES, 1))
    reader.close()
    assert len(pieces) > 3
    joined = merged([piece.change for piece in pieces])
    whole = merged(changes)
    assert pieces[-1].last == len(changes)
    assert joined.totals == whole.totals
    assert joined.strings == whole.strings
    assert all((a == b).all() for a, b in zip(joined[1:4], whole[1:4], strict=True))
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + 20_000)
        file.write(b"damage")
    with pytest.raises(CorruptStoreError, match="damaged at byte"):
        read(path)


# --- The word that tells the end ------------------------------------------------------------------


@pytest.mark.parametrize("end", [4096, 4104, 5000 * 8, 2**30, 2**47 + 8, 2**48 - 8])
def test_a_flipped_bit_of_the_end_is_found(end, tmp_path):
    assert end_word(end) == reference.end_word(end)
    assert told_end(end_word(end), tmp_path) == told_end(end_word(end) | 1 << 63, tmp_path) == end
    for bit in range(63):
        with pytest.raises(CorruptStoreError, match="damaged at byte 512"):
            told_end(end_word(end) ^ 1 << bit, tmp_path)


# --- Torn tails and damage ------------------------------------------------------------------------


def expected_of(data, boot):
    """Return what the reference sees: the changes, or the place of damage."""
    try:
        return [of_reference(each) for each in reference.read_log(data, boot)[0]]
    except (reference.DamageError, reference.FormatError) as error:
        return str(error)


def check_as_reference(path, data):
    """Check that a reader sees a log as the reference does."""
    path.write_bytes(data)
    expected = expected_of(data, boot_word())
    try:
        found = read(path)
    except (CorruptStoreError, FormatVersionError) as error:
        assert isinstance(expected, str), f"{error}, but {len(expected)} records are whole"
        if expected.startswith("damaged at byte "):
            assert expected in str(error)
        return None
    assert not isinstance(expected, str), expected
    assert same(found, expected)
    return expected


def check_writer(path, seen):
    """Check that a writer keeps what readers see, cuts the rest off, and appends."""
    writer = open_writer(path)
    assert writer.number == len(seen)
    assert path.stat().st_size == writer.place == writer.durable
    writer.append(pack_change(CHANGES[1]), durable=True)
    writer.publish()
    writer.close()
    assert same(read(path), [*seen, CHANGES[1]])


def test_torn_at_every_byte(full):
    """What was not told may go; what was durable is an error, which names the place."""
    path, places = full
    data = path.read_bytes()
    for told in (HEADER_BYTES, places[3], len(data)):
        stale = with_words(data, told, boot_word() ^ 1)
        for size in range(HEADER_BYTES, len(data) + 1, 1 if told == places[3] else 7):
            for torn in {stale[:size], stale[:size].ljust(len(data) + 100, b"\0")}:
                seen = check_as_reference(path, torn)
                missing = not torn.startswith(data[HEADER_BYTES:told], HEADER_BYTES)  # zeros may be what was there
                assert (seen is None) == missing
                if seen is not None:
                    assert len(seen) == sum(torn.startswith(data[HEADER_BYTES:place], HEADER_BYTES) for place in places[1:])
                    if size % 16 == 0 or size in places:
                        check_writer(path, seen)


def test_cut_short_before_its_end(full):
    """In the same boot: an error, and not a loop that waits for the rest of a record."""
    path, _ = full
    data = path.read_bytes()
    for size in range(HEADER_BYTES, len(data), 5):
        assert check_as_reference(path, data[:size]) is None
        with pytest.raises(CorruptStoreError, match="damaged at byte"):
            open_writer(path)


def test_damage_at_every_byte(full):
    """Without its place told: only where nothing says that it was durable, in the last record, and behind the records."""
    path, places = full
    data = path.read_bytes()
    kept = lost = 0
    for boot in (boot_word(), boot_word() ^ 2**64 - 1):
        for told in (len(data), places[-2], HEADER_BYTES):
            if boot == boot_word() and told != len(data):
                continue
            good = with_words(data, told, boot)
            for at in (*range(88), *range(WORDS_AT, WORDS_AT + 16), *range(HEADER_BYTES, len(data))):
                damaged = bytearray(good)
                damaged[at] ^= 1 << at % 8
                seen = check_as_reference(path, bytes(damaged))
                if seen is not None and len(seen) < len(CHANGES):
                    assert told < len(data)
                    assert at >= places[-2], at
                    assert len(seen) == len(CHANGES) - 1
                    lost += 1
                elif seen is not None:
                    kept += 1
    assert lost
    assert kept


def test_a_later_record_tells_damage_from_a_torn_tail(path):
    """It knows what was durable when it was written."""
    writer = open_writer(path)
    places = []
    for each in CHANGES[:4]:
        places.append(writer.place)
        writer.append(pack_change(each))  # none is durable before all are
    data = path.read_bytes()
    writer.sync()
    places.append(writer.place)
    writer.append(pack_change(CHANGES[4]))
    later = path.read_bytes()
    writer.sync()
    writer.close()
    hole = slice(places[1], places[1] + 8)
    for image, is_damage in ((data, False), (later, True)):
        image = bytearray(with_words(image, HEADER_BYTES, boot_word() ^ 1))
        image[hole] = bytes(8)
        path.write_bytes(image)
        if is_damage:
            for opened in (read, open_writer):
                with pytest.raises(CorruptStoreError, match=f"damaged at byte {places[1]} "):
                    opened(path)
            assert path.read_bytes() == image
        else:
            assert same(read(path), CHANGES[:1])
            check_writer(path, CHANGES[:1])
            assert not list(later_records_of(path, places[1] + 200))


def later_records_of(path, place):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield from later_records(descriptor, path, SEED, place)
    finally:
        os.close(descriptor)


def test_records_behind_damage_are_found(full):
    path, places = full
    with path.open("r+b") as file:
        file.seek(places[1] + 3)
        file.write(b"?")
    found = list(later_records_of(path, places[1]))
    assert [(place, records.first) for place, _, records in found] == [(places[i], i + 1) for i in range(2, len(CHANGES))]
    assert [parts(records.change) for _, _, records in found] == [parts(each) for each in CHANGES[2:]]


@pytest.mark.parametrize("size", [0, 1, 87, 4095])
def test_a_header_that_is_cut_short(path, size):
    os.truncate(path, size)
    for opened in (read, open_writer):
        with pytest.raises(CorruptStoreError, match="cut short"):
            opened(path)
    supersede_log(path)  # as far as it can
    assert path.stat().st_size == size


def test_a_missing_log(tmp_path):
    for opened in (read, open_writer):
        with pytest.raises(StoreNotFoundError, match="missing"):
            opened(tmp_path / "log")
    supersede_log(tmp_path / "log")


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [(0, b"X", CorruptStoreError), (8, b"\x02", FormatVersionError), (12, b"\x01", FormatVersionError),
     (72, b"\x03", FormatVersionError), (76, b"\x01", FormatVersionError)],
)  # fmt: skip
def test_a_header_that_this_version_does_not_know(path, at, value, error):
    data = bytearray(path.read_bytes())
    data[at : at + 1] = value
    data[80:88] = struct.pack("<Q", reference.xxh64(bytes(data[:80])))
    path.write_bytes(data)
    for opened in (read, open_writer):
        with pytest.raises(error):
            opened(path)


@pytest.mark.parametrize(
    ("identity", "generation", "said"), [(bytes(16), GENERATION, "another store"), (IDENTITY, GENERATION + 1, "generation 3")]
)
def test_the_log_of_another_store_or_generation_is_refused(full, identity, generation, said):
    path, _ = full
    before = path.read_bytes()
    for kind in (LogReader, LogWriter):
        with pytest.raises(CorruptStoreError, match=f"the log of {said}"):
            kind(path, identity, generation)
    assert path.read_bytes() == before


def test_records_of_another_place_or_log_do_not_count(full, tmp_path):
    """A checksum depends on the place, the store and the generation: what a disk puts elsewhere is not believed."""
    path, places = full
    data = path.read_bytes()
    moved = data[:HEADER_BYTES] + data[places[1] :]
    other = LogHeader(bytes(16), GENERATION, 7, Totals(1, 2, 3, "string")).pack()
    foreign = other + data[len(other) :]
    for image, identity in ((moved, IDENTITY), (foreign, bytes(16))):
        path.write_bytes(with_words(image, HEADER_BYTES, boot_word() ^ 1))
        reader = LogReader(path, identity, GENERATION)
        assert not list(reader.read(HEADER_BYTES, 1))
        reader.close()


# --- Readers and the writer -----------------------------------------------------------------------


def test_readers_see_what_is_durable_and_no_more(path):
    writer, reader = open_writer(path), open_reader(path)
    seen, place = [], HEADER_BYTES
    for i, each in enumerate(CHANGES):
        writer.append(pack_change(each), durable=i % 2 == 0)
        if i % 2:
            assert not list(reader.read(place, len(seen) + 1))
            writer.force()
        assert reader.end == end_word(place)
        writer.publish()
        for records in reader.read(place, len(seen) + 1):
            assert (records.first, records.last) == (i + 1, i + 1)
            seen.append(records.change)
            place = records.end
        assert reader.end == end_word(place)
    assert [parts(each) for each in seen] == [parts(each) for each in CHANGES]
    writer.supersede()
    assert reader.end == end_word(place) | 1 << 63
    writer.close()
    reader.close()
    again = open_writer(path)  # whoever opens the log of the current generation knows that it is
    assert read(path)[0] == len(CHANGES)
    again.close()
    assert reference.parse_log_header(path.read_bytes()).superseded is False


def test_a_reader_from_before_the_first_writer_since_a_reboot_sees_what_is_durable_and_no_more(full):
    """Until there is a writer, all whole records count, told or not."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader = open_reader(path)
    assert [records.last for records in reader.read(HEADER_BYTES, 1)] == [len(CHANGES)]
    writer = open_writer(path)
    place, number = writer.place, writer.number
    writer.append(pack_change(CHANGES[2]))
    assert not list(reader.read(place, number + 1))
    writer.take_back(place, number)
    writer.append(pack_change(CHANGES[3]), durable=True)
    writer.publish()
    (records,) = reader.read(place, number + 1)
    assert parts(records.change) == parts(CHANGES[3])
    writer.close()
    reader.close()


def test_a_writer_that_opens_while_a_reader_scans(full, monkeypatch):
    """The scan began when every whole record counted; then only what is durable does."""
    path, places = full
    path.write_bytes(with_words(path.read_bytes(), places[2], boot_word() ^ 1))
    reader = open_reader(path)
    writers, scan = [], log_format.whole_records

    def with_a_writer(*arguments):
        if not writers:
            writers.append(open_writer(path))
            writers[0].append(pack_change(CHANGES[0]))
        yield from scan(*arguments)

    monkeypatch.setattr(log_format, "whole_records", with_a_writer)
    assert [records.last for records in reader.read(HEADER_BYTES, 1)] == [len(CHANGES)]
    assert writers[0].number == len(CHANGES) + 1
    writers[0].close()
    reader.close()


def test_a_dead_writer_told_only_part(path):
    """What it had written behind the end is for the next writer to find."""
    writer = open_writer(path)
    writer.append(pack_change(CHANGES[0]), durable=True)
    writer.publish()
    writer.append(pack_change(CHANGES[1]))
    del writer
    assert same(read(path), CHANGES[:1])
    check_writer(path, CHANGES[:2])


def test_space_is_made_ahead_and_given_back(path):
    writer = open_writer(path)
    sizes = []
    for each in CHANGES:
        writer.append(pack_change(each), durable=True)
        writer.publish()
        sizes.append(path.stat().st_size)
    assert len(set(sizes)) == 1
    assert sizes[0] >= writer.place + (1 << 15)
    assert not any(path.read_bytes()[writer.place :])
    assert path.stat().st_blocks * 512 >= sizes[0]  # no hole: a sync would have to write where it is
    large = change([(1, 1, 0)] * 20_000)
    steps = set()
    for _ in range(30):
        writer.append(pack_change(large), durable=True)
        steps.add(path.stat().st_size - writer.place)
    assert max(steps) > 1 << 20
    writer.publish()
    place = writer.place
    writer.close()
    assert path.stat().st_size == place
    assert same(read(path), [*CHANGES, *[large] * 30])


def test_a_copy_gets_its_own_end(full):
    path, places = full
    os.truncate(path, places[3])
    set_end(path, places[3])
    assert same(read(path), CHANGES[:3])
    assert reference.parse_log_header(path.read_bytes()).end == places[3]


# --- Writes that fail -----------------------------------------------------------------------------


def test_a_full_disk_takes_a_record_back(small_disk):
    folder, limit = small_disk(1 << 20)
    if limit is not None:
        pytest.skip("nothing can be mounted here")
    path = folder / "log"
    create_log(path, HEADER)
    writer = open_writer(path)
    filler = folder / "filler"
    kept = []
    for pages in (40, 18, 9, 3, 2, 1, 0):
        free = os.statvfs(folder).f_bavail - pages
        if free > 0:
            with filler.open("ab") as file:
                file.write(bytes(free * os.statvfs(folder).f_frsize))
        for each in (change([(1, 1, 0)] * 3000), CHANGES[2], change([(2, 2, 0)] * 400)):
            place, number = writer.place, writer.number
            try:
                writer.append(pack_change(each), durable=True)
            except StorageError as error:
                assert "No space left on device; nothing was changed" in str(error)
                assert (writer.place, writer.number) == (place, number)
            else:
                writer.publish()
                kept.append(each)
            assert same(read(path), kept)
    filler.unlink()
    writer.append(pack_change(CHANGES[5]), durable=True)
    writer.close()
    check_writer(path, [*kept, CHANGES[5]])
    assert 3 < len(kept) < 20


SWEEP_SETUP = """
import json
from test_log import *

create_log(root / "log", HEADER)
writer = open_writer(root / "log")
writer.append(pack_change(CHANGES[0]), durable=True)
writer.publish()
writer.close()
"""
SWEEP_OPERATION = """
arm()
told = []  # kept outside of the root, which is all that counts
def tell(number):
    with open(str(root) + ".told", "a") as file:
        file.write(f"{number}\\n")
open(str(root) + ".told", "w").close()
writer = open_writer(root / "log")
for number, each in enumerate(CHANGES[1:], 1):
    try:
        writer.append(pack_change(each), durable=number not in (3, 5))
    except StorageError:
        continue
    if number == 3:  # made durable with the next
        continue
    if number == 5:
        try:
            writer.force()
        except StorageError:
            writer.force()
    writer.publish()
    tell(number)
writer.close()
"""
SWEEP_CHECK = """
told = {int(line) for line in open(str(root) + ".told")}
seen = read(root / "log")
open_writer(root / "log").close()
numbers, joined = read(root / "log")
assert outcome.kind != "ok" or seen[0] == numbers
found = parts(joined)
candidates = []
for kept in range(1 << (len(CHANGES) - 1)):
    chosen = [0, *(n for n in range(1, len(CHANGES)) if kept >> n - 1 & 1)]
    if found == parts(merged([CHANGES[n] for n in chosen])) and numbers == len(chosen):
        candidates.append(set(chosen))
assert any(told <= chosen for chosen in candidates), (told, candidates)
if outcome.kind == "ok":
    assert any(chosen - {0, 3} <= told for chosen in candidates), (told, candidates)
check_writer(root / "log", [CHANGES[n] for n in sorted(candidates[0])])
state = outcome.kind
"""


def test_every_call_of_a_writer_killed_or_refused(sweep):
    """What was told is there; what was refused is not, whichever call it was."""
    calls, outcomes = sweep(SWEEP_SETUP, SWEEP_OPERATION, SWEEP_CHECK)
    assert len(calls) > 10
    assert {o.state for o in outcomes} == {"ok", "error", "killed"}


TWO_SYNCS = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_log import *
from pathlib import Path

path = Path(sys.argv[1]) / "log"
writer = open_writer(path)
writer.append(pack_change(CHANGES[2]))
writer.append(pack_change(CHANGES[3]))
try:
    writer.force()
    print("no error")
except StorageError:
    pass
writer.force()
writer.publish()
os._exit(0)
"""


def test_a_sync_that_fails_once_writes_the_data_again(compiled, tmp_path):
    """The system has forgotten what it could not write, and would call the next sync a success."""
    folder = tmp_path / "root"
    folder.mkdir()
    create_log(folder / "log", HEADER)
    disk = Disk(folder)
    events = record(compiled("record.c"), folder, TWO_SYNCS, str(Path(__file__).parent), fail=2)  # the first is that of opening
    assert [event.kind for event in events].count("X") == 1
    for event in events:
        disk.take(event)
    ((content, _),) = disk.image(random.Random(0), 0).values()  # nothing that need not be there
    found, _ = reference.read_log(content, 0)
    assert [parts(of_reference(each)) for each in found] == [parts(each) for each in CHANGES[2:4]]
