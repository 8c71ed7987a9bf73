"""The log: what is appended is read, a torn tail is cut off, and damage is told, with its place."""

import os
import struct

import numpy as np
import pytest
import reference
import reference_log
from hypothesis import given
from hypothesis import strategies as st
from logs import (
    CHANGES,
    GENERATION,
    HEADER,
    IDENTITY,
    PAGE,
    SEED,
    change,
    check_writer,
    merged,
    of_reference,
    open_reader,
    open_writer,
    parts,
    read,
    same,
    with_words,
)
from speeds import slow

from fpstore import _kernel
from fpstore.errors import CorruptStoreError, FormatVersionError, StoreNotFoundError
from fpstore.format import log as log_format
from fpstore.format.log import (
    HEADER_BYTES,
    WORDS_AT,
    LogFile,
    LogHeader,
    LogReader,
    boot_word,
    end_word,
    published_end,
)
from fpstore.format.log_writer import LogWriter, create_log, supersede_log
from fpstore.format.record import ADD, ID_KINDS, IN_BASE, Change, Totals, pack_change, pack_one

# --- Records --------------------------------------------------------------------------------------

numbers = st.integers(0, 2**64 - 1)
shapes = st.builds(
    change,
    st.lists(st.tuples(numbers, numbers, st.sampled_from([0, 1, 2, 4, 5, 6])), max_size=5),
    st.lists(st.binary(max_size=9), max_size=4),
    st.tuples(numbers, numbers, numbers, st.integers(0, 2)),
)


def kernel(data, place, seed, number=0, words=0, most=2**64 - 1):
    array = np.frombuffer(data, np.uint8)
    count, used, last, durable, totals, *columns = _kernel.read_log(
        array, place, seed, number, words, most
    )
    return count, used, last, durable, log_format.parse_change(totals, columns) if count else None


def framed(each, number, durable, place, seed):
    rows = list(
        zip(each.fingerprints.tolist(), each.ids.tolist(), each.kinds.tolist(), strict=True)
    )
    totals = (*each.totals[:3], ID_KINDS.index(each.totals.id_kind))
    return reference_log.encode_change(
        reference_log.Change(number, durable, totals, rows, each.strings), place, seed
    )


@given(
    st.lists(shapes, max_size=4),
    numbers,
    st.integers(0, 2**60).map(lambda n: 8 * n),
    st.integers(1, 2**63),
)
def test_the_kernel_reads_what_the_reference_writes(changes, seed, place, number):
    data = b""
    for i, each in enumerate(changes):
        data += framed(each, number + i, i, place + len(data), seed)
    for first in (0, number):
        count, used, last, durable, result = kernel(data, place, seed, first)
        assert (count, used) == (len(changes), len(data))
        if changes:
            assert (last, durable) == (number + count - 1, count - 1)
            assert parts(result) == parts(merged(changes))
    assert kernel(data, place, seed, most=1)[0] == min(1, len(changes))
    assert kernel(data, place, seed, number + 1)[0] == 0
    assert kernel(data, place, seed, words=2)[0] == 0
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
    [
        (16, "Q", 87),
        (16, "Q", 0),
        (16, "Q", 2**64 - 1),
        (16, "Q", 2**64 - 7),
        (64, "Q", 2),
        (64, "Q", 0),
        (64, "Q", 2**64 - 1),
        (64, "Q", 2**60),
        (72, "Q", 2),
        (72, "Q", 0),
        (72, "Q", 2**64 - 1),
        (80, "Q", 3),
        (104, "B", 3),
        (104, "B", 7),
        (104, "B", 8),
        (105, "I", 2**31),
        (105, "I", 4),
        (105, "I", 2),
    ],
)
def test_a_record_that_says_what_cannot_be_is_not_read(at, form, value):
    """Under a right checksum: lengths that lead outside, unknown kinds."""

    def sealed(data):
        length = struct.unpack_from("<Q", data, 16)[0]
        return (
            data[:8] + struct.pack("<Q", reference.xxh64(data[16:length], SEED ^ PAGE)) + data[16:]
        )

    good = framed(change([(1, 1, 0)], [b"abc"]), 1, 0, PAGE, SEED)
    assert sealed(good) == good
    forged = bytearray(good)
    struct.pack_into("<" + form, forged, at, value)
    assert kernel(sealed(bytes(forged)), PAGE, SEED)[0] == 0
    with pytest.raises(reference.FormatError):
        reference_log.decode_change(bytes(PAGE) + sealed(bytes(forged)), PAGE, SEED)


@given(
    numbers,
    numbers,
    st.booleans(),
    st.lists(st.binary(max_size=9), max_size=2),
    st.tuples(numbers, numbers, numbers, st.integers(0, 2)),
)
def test_one_pair_is_packed_as_a_change_of_one(fingerprint, number, in_base, strings, totals):
    record = change([(fingerprint, number, ADD | IN_BASE if in_base else ADD)], strings, totals)
    assert pack_one(
        record.totals, (ADD | IN_BASE if in_base else ADD, fingerprint, number), strings, 1
    ) == pack_change(record)


def test_a_log_is_what_the_reference_says(full):
    path, places = full
    data = path.read_bytes()
    header = reference_log.parse_log_header(data)
    assert (header.identity, header.generation, header.first_string) == HEADER[:3]
    assert header.totals == (1, 2, 3, 2)
    assert (header.end, header.superseded, header.boot) == (len(data), False, boot_word())
    assert not any(data[88:WORDS_AT])
    assert not any(data[WORDS_AT + 16 : HEADER_BYTES])
    result, end = reference_log.read_log(data, boot_word())
    assert [parts(of_reference(each)) for each in result] == [parts(each) for each in CHANGES]
    assert [each.durable for each in result] == places[:-1]
    assert end == len(data)
    expected = b"".join(
        framed(each, i, place, place, SEED)
        for i, (each, place) in enumerate(zip(CHANGES, places[:-1], strict=True), 1)
    )
    assert data[HEADER_BYTES:] == expected


def test_a_record_of_20_mb_and_many_small_ones(path, set_limits):
    set_limits(log_bytes=1 << 20)
    words = np.random.default_rng(1).integers(0, 2**64, 1_000_000, np.uint64)
    large = Change(
        Totals(1, 1, 1, "integer"),
        np.zeros(len(words), np.uint8),
        words,
        words[::-1],
        [b"y" * 60_000] * 50,
    )
    changes = [*CHANGES, large, *CHANGES * 20, large]
    writer = open_writer(path)
    for each in changes:
        writer.append(pack_change(each))
    writer.sync_records()
    writer.publish()
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
    assert end_word(end) == reference_log.end_word(end)
    assert (
        published_end(end_word(end), tmp_path)
        == published_end(end_word(end) | 1 << 63, tmp_path)
        == end
    )
    for bit in range(63):
        with pytest.raises(CorruptStoreError, match="damaged at byte 512"):
            published_end(end_word(end) ^ 1 << bit, tmp_path)


# --- Torn tails and damage ------------------------------------------------------------------------


def expected_of(data, boot):
    """Return what the reference sees: the changes, or the place of damage."""
    try:
        return [of_reference(each) for each in reference_log.read_log(data, boot)[0]]
    except (reference_log.DamageError, reference.FormatError) as error:
        return str(error)


def check_as_reference(path, data):
    """Check that a reader sees a log as the reference does."""
    path.write_bytes(data)
    expected = expected_of(data, boot_word())
    try:
        result = read(path)
    except (CorruptStoreError, FormatVersionError) as error:
        assert isinstance(expected, str), f"{error}, but {len(expected)} records are whole"
        if expected.startswith("damaged at byte "):
            assert expected in str(error)
        return None
    assert not isinstance(expected, str), expected
    assert same(result, expected)
    return expected


@pytest.mark.parametrize("every", [11, slow(1)])
def test_torn_at_every_byte(full, every):
    """What was not told may go; what was durable is an error, which names the place."""
    path, places = full
    data = path.read_bytes()
    for published in (HEADER_BYTES, places[3], len(data)):
        stale = with_words(data, published, boot_word() ^ 1)
        step = every if published == places[3] else 7 * every
        for size in sorted({*range(HEADER_BYTES, len(data) + 1, step), *places, len(data)}):
            for torn in {stale[:size], stale[:size].ljust(len(data) + 100, b"\0")}:
                seen = check_as_reference(path, torn)
                # zeros may be what was there
                missing = not torn.startswith(data[HEADER_BYTES:published], HEADER_BYTES)
                assert (seen is None) == missing
                if seen is not None:
                    assert len(seen) == sum(
                        torn.startswith(data[HEADER_BYTES:place], HEADER_BYTES)
                        for place in places[1:]
                    )
                    if size % 16 == 0 or size in places:
                        check_writer(path, seen)


@pytest.mark.parametrize("every", [11, slow(1)])
def test_damage_at_every_byte(full, every):
    """Without its place told.

    Only where nothing says that it was durable, in the last record, and behind the records.
    """
    path, places = full
    data = path.read_bytes()
    kept = lost = 0
    for boot in (boot_word(), boot_word() ^ 2**64 - 1):
        for published in (len(data), places[-2], HEADER_BYTES):
            if boot == boot_word() and published != len(data):
                continue
            good = with_words(data, published, boot)
            for at in [
                *range(88),
                *range(WORDS_AT, WORDS_AT + 16),
                *range(HEADER_BYTES, len(data)),
            ][::every]:
                damaged = bytearray(good)
                damaged[at] ^= 1 << at % 8
                seen = check_as_reference(path, bytes(damaged))
                if seen is not None and len(seen) < len(CHANGES):
                    assert published < len(data)
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
    writer.sync_records()
    writer.publish()
    places.append(writer.place)
    writer.append(pack_change(CHANGES[4]))
    later = path.read_bytes()
    writer.sync_records()
    writer.publish()
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
        yield from LogFile(descriptor, path, HEADER).later_records(place)
    finally:
        os.close(descriptor)


def test_a_missing_log(tmp_path):
    for opened in (read, open_writer):
        with pytest.raises(StoreNotFoundError, match="missing"):
            opened(tmp_path / "log")
    supersede_log(tmp_path / "log")


def test_records_of_another_place_or_log_do_not_count(full, tmp_path):
    """A checksum depends on the place, the store and the generation.

    What a disk puts elsewhere is not believed.
    """
    path, places = full
    data = path.read_bytes()
    moved = data[:HEADER_BYTES] + data[places[1] :]
    other = LogHeader(bytes(16), GENERATION, 7, Totals(1, 2, 3, "string"), 64).pack()
    foreign = other + data[len(other) :]
    for image, identity in ((moved, IDENTITY), (foreign, bytes(16))):
        path.write_bytes(with_words(image, HEADER_BYTES, boot_word() ^ 1))
        reader = LogReader(path, HEADER._replace(identity=identity))
        assert not list(reader.read(HEADER_BYTES, 1))
        reader.close()


def test_a_record_with_bits_below_the_width_is_malformed(tmp_path):
    """Its checksum is right, but no writer of this width can have logged it."""
    header = HEADER._replace(width=32)
    create_log(tmp_path / "log", header)
    writer = LogWriter(tmp_path / "log", header)
    for fingerprint in (1 << 32, 1):
        writer.append(pack_change(change([(fingerprint, 1, 0)], totals=(1, 1, 1, 0))), durable=True)
        writer.publish()
    writer.close()
    reader = LogReader(tmp_path / "log", header)
    with pytest.raises(CorruptStoreError, match="a fingerprint of records 1 to 2"):
        list(reader.read(HEADER_BYTES, 1))
    reader.close()
