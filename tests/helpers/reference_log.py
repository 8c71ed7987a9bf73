"""The readable decoder of logs of changes, as docs/format.md describes them."""

import struct
from contextlib import suppress
from dataclasses import dataclass

from reference import (
    PRIME_1,
    WIDTHS,
    WORD,
    FormatError,
    VersionError,
    joined_words,
    require,
    split_words,
    words_of,
    xxh64,
)


class DamageError(Exception):
    """A part of a file that was durable is not whole."""


LOG_MAGIC, CHANGE_MAGIC = b"FPSTLOG\n", b"FPCHANGE"
LOG_HEADER_BYTES = 4096
LOG_FIELDS = struct.Struct("<8sII16sQQQQQHHI")  # bytes 0 to 79
CHANGE_FIELDS = struct.Struct("<QQQQQQQQII")  # bytes 16 to 87 of a record
END_AT, BOOT_AT = 512, 520


@dataclass(frozen=True)
class LogHeader:
    identity: bytes
    generation: int
    first_string: int
    totals: tuple[int, int, int, int]  # fingerprints, ids, next row, kind of ids
    end: int
    superseded: bool
    boot: int
    width: int = 64

    @property
    def seed(self) -> int:
        """The log seed."""
        return xxh64(self.identity, self.generation)


def end_word(end: int) -> int:
    return end | (end * PRIME_1 % WORD >> 49) << 48


def parse_log_header(data: bytes) -> LogHeader:
    require(len(data) >= LOG_HEADER_BYTES, "the log is shorter than its header")
    require(
        struct.unpack_from("<Q", data, 80)[0] == xxh64(data[:80]), "the header checksum differs"
    )
    magic, version, header_bytes, identity, generation, first, *totals, width, zero = (
        LOG_FIELDS.unpack_from(data)
    )
    require(magic == LOG_MAGIC, "the magic bytes differ")
    if (
        (version, header_bytes, zero) != (1, LOG_HEADER_BYTES, 0)
        or totals[3] > 2
        or width not in WIDTHS
    ):
        raise VersionError(f"log version {version}")
    word, boot = struct.unpack_from("<QQ", data, END_AT)
    superseded, word = word >> 63, word % 2**63
    end = word % 2**48
    require(
        word == end_word(end) and end >= LOG_HEADER_BYTES and end % 8 == 0, "the end is damaged"
    )
    return LogHeader(identity, generation, first, tuple(totals), end, bool(superseded), boot, width)


@dataclass(frozen=True)
class Change:
    number: int
    durable: int
    totals: tuple[int, int, int, int]
    rows: list[tuple[int, int, int]]  # fingerprint, id, kinds
    strings: list[bytes]
    words: int = 1  # of a fingerprint


def decode_change(data: bytes, place: int, seed: int) -> tuple[Change, int]:
    """Return the record at a place of a log, and the place behind it."""
    require(data[place : place + 8] == CHANGE_MAGIC and len(data) >= place + 88, "no record")
    fields = CHANGE_FIELDS.unpack_from(data, place + 16)
    length, number, durable, fingerprints, ids, next_row, row_count, string_count, kind, words = (
        fields
    )
    require(length >= 88 and place + length <= len(data), "the record is longer than the log")
    require(
        struct.unpack_from("<Q", data, place + 8)[0]
        == xxh64(data[place + 16 : place + length], seed ^ place),
        "checksum",
    )
    require(kind <= 2 and words in (1, 2, 4) and (8 * words + 9) * row_count <= length - 88, "rows")
    at, end = place + 88, place + length
    rows = [
        joined_words(row)
        for row in struct.iter_unpack(f"<{words}Q", data[at : at + 8 * words * row_count])
    ]
    at += 8 * words * row_count
    numbers = struct.unpack_from(f"<{row_count}Q", data, at)
    at += 8 * row_count
    kinds = data[at : at + row_count]
    require(all(kind & 3 < 3 and kind < 8 for kind in kinds), "kind of a row")
    at += row_count
    strings = []
    for _ in range(string_count):
        require(at + 4 <= end, "strings")
        (size,) = struct.unpack_from("<I", data, at)
        require(at + 4 + size <= end, "strings")
        strings.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    require(at == end, "the record is longer than its strings")
    end += -end % 8
    require(end <= len(data), "padding")
    totals = (fingerprints, ids, next_row, kind)
    return Change(
        number, durable, totals, list(zip(rows, numbers, kinds, strict=True)), strings, words
    ), end


def encode_change(change: Change, place: int, seed: int) -> bytes:
    fingerprints, ids, kinds = ([row[i] for row in change.rows] for i in range(3))
    words = [
        word for fingerprint in fingerprints for word in split_words(fingerprint, 64 * change.words)
    ]
    rows = struct.pack(f"<{len(words) + len(ids)}Q", *words, *ids) + bytes(kinds)
    rest = rows + b"".join(struct.pack("<I", len(string)) + string for string in change.strings)
    *totals, kind = change.totals
    counts = (len(change.rows), len(change.strings), kind, change.words)
    body = (
        CHANGE_FIELDS.pack(88 + len(rest), change.number, change.durable, *totals, *counts) + rest
    )
    return (
        CHANGE_MAGIC + struct.pack("<Q", xxh64(body, seed ^ place)) + body + bytes(-len(body) % 8)
    )


def read_log(data: bytes, boot: int) -> tuple[list[Change], int]:
    """Return the changes of a log and their end, as a reader in this boot must see them."""
    header = parse_log_header(data)
    exact = boot == header.boot != 0
    readable = data[: header.end] if exact else data
    changes: list[Change] = []
    place = LOG_HEADER_BYTES
    try:
        while True:
            change, end = decode_change(readable, place, header.seed)
            require(change.number == len(changes) + 1, "another record is expected here")
            require(change.words == words_of(header.width), "a record of another width")
            changes.append(change)
            place = end
    except FormatError:
        pass
    if place < header.end:
        raise DamageError(f"damaged at byte {place}")
    if not exact:
        for later in range(place, len(data), 8):
            with suppress(FormatError):
                change, _ = decode_change(data, later, header.seed)
                if change.durable > place:
                    raise DamageError(f"damaged at byte {place}")
    return changes, place
