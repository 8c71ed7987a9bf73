"""The section "Filter file" of docs/format.md as a short, slow program.

It makes files of entries, and looks a prefix up in them. An entry is a Python integer, as in
``reference``: its words are read as one number.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import reference
from reference import WORD, require, xxh64

MAGIC = b"FPSFILTR"
VERSION = 1
HEADER_BYTES = PAGE_BYTES = 4096
MAX_PREFIX_BITS, MAX_BUCKET_BITS, MAX_REST_BITS, MAX_BITS_PER_PREFIX = 40, 28, 32, 64
FACTOR = 0x9E3779B97F4A7C15
FIELDS = struct.Struct("<IIHHHHHHIQQQQQQ")  # bytes 8 to 79


@dataclass(frozen=True)
class Header:
    version: int
    flags: int
    width: int
    table: int
    table_count: int
    prefix_bits: int
    bucket_bits: int
    bits_per_prefix: int
    reserved: int
    fingerprint_count: int
    word_count: int
    starts_offset: int
    checksums_offset: int
    file_bytes: int
    set_digest: int

    @property
    def rest_bits(self) -> int:
        return self.prefix_bits - self.bucket_bits


# --- Header ---------------------------------------------------------------------------------------


def starts_offset(word_count: int) -> int:
    return HEADER_BYTES + 8 * word_count


def checksums_offset(word_count: int, bucket_bits: int) -> int:
    return starts_offset(word_count) + (4 * (2**bucket_bits + 1) + 7) // 8 * 8


def file_bytes(word_count: int, bucket_bits: int) -> int:
    end = checksums_offset(word_count, bucket_bits)
    return end + 8 * -(-(end - HEADER_BYTES) // PAGE_BYTES)


def parse_header(data: bytes) -> Header:
    """Parse the header of a whole file."""
    require(len(data) >= HEADER_BYTES, "the file is shorter than a header")
    require(data[:8] == MAGIC, "the magic bytes differ")
    h = Header(*FIELDS.unpack_from(data, 8))
    if h.version != VERSION:
        raise reference.VersionError(f"format version {h.version}")
    require(
        struct.unpack_from("<Q", data, 4088)[0] == xxh64(data[:4088]), "the header checksum differs"
    )
    if h.flags or h.width not in reference.WIDTHS:
        raise reference.VersionError(f"flags {h.flags:#x}, width {h.width}")
    require(h.table < h.table_count, "table number outside the design")
    require(1 <= h.prefix_bits <= min(MAX_PREFIX_BITS, h.width), "prefix bits")
    require(
        h.bucket_bits <= min(MAX_BUCKET_BITS, h.prefix_bits) and h.rest_bits <= MAX_REST_BITS,
        "bucket bits",
    )
    require(1 <= h.bits_per_prefix <= MAX_BITS_PER_PREFIX, "bits for each prefix")
    require(h.word_count < 2**32, "words")
    require(sorted(data[128 : 128 + h.width]) == list(range(h.width)), "not a permutation")
    require(h.starts_offset == starts_offset(h.word_count), "starts offset")
    require(h.checksums_offset == checksums_offset(h.word_count, h.bucket_bits), "checksums offset")
    require(h.file_bytes == file_bytes(h.word_count, h.bucket_bits) == len(data), "file size")
    zeros = (data[28:32], data[80:128], data[128 + h.width : 384], data[384:4088])
    require(not any(map(any, zeros)), "reserved bytes are not zero")
    return h


# --- Words ----------------------------------------------------------------------------------------


def prefix_of(entry: int, width: int, prefix_bits: int) -> int:
    return entry >> (64 * reference.words_of(width) - prefix_bits)


def mask_of(prefix: int) -> int:
    """Return the bits that a prefix sets in its word."""
    mixed = prefix * FACTOR % WORD
    return 1 << mixed // 2**58 | 1 << mixed // 2**52 % 64 | 1 << mixed // 2**46 % 64


def make_words(
    prefixes: Iterable[int], prefix_bits: int, bucket_bits: int, bits_per_prefix: int
) -> tuple[list[int], list[int]]:
    """Return the words and the starts of a filter of these prefixes."""
    rest_bits = prefix_bits - bucket_bits
    buckets: list[set[int]] = [set() for _ in range(2**bucket_bits)]
    for prefix in prefixes:
        buckets[prefix >> rest_bits].add(prefix)
    words, starts = list[int](), [0]
    for bucket in buckets:
        own = [0] * max((len(bucket) * bits_per_prefix + 32) // 64, 1 if bucket else 0)
        for prefix in bucket:
            own[prefix % 2**rest_bits * len(own) // 2**rest_bits] |= mask_of(prefix)
        words += own
        starts.append(len(words))
    return words, starts


# --- Page checksums -------------------------------------------------------------------------------


def filter_seed(header: bytes, set_digest: int) -> int:
    return xxh64(header[16:32] + header[128:384], set_digest)


def page_checksums(body: bytes, seed: int) -> bytes:
    """Return the checksums of what is behind the header, up to them."""
    pages = [body[at : at + PAGE_BYTES] for at in range(0, len(body), PAGE_BYTES)]
    return b"".join(
        struct.pack("<Q", xxh64(page, (seed + number) % WORD)) for number, page in enumerate(pages)
    )


# --- Filter file ----------------------------------------------------------------------------------


def build(table: reference.Header, entries: Sequence[int], shape: tuple[int, int, int]) -> bytes:
    """Return the filter of a table with these entries.

    The shape is `prefix_bits`, `bucket_bits`, `bits_per_prefix`.
    """
    prefix_bits, bucket_bits, _ = shape
    words, starts = make_words(
        [prefix_of(entry, table.width, prefix_bits) for entry in entries], *shape
    )
    body = struct.pack(f"<{len(words)}Q{len(starts)}I", *words, *starts)
    body += bytes(-len(body) % 8)
    fields = FIELDS.pack(
        VERSION,
        0,
        table.width,
        table.table,
        table.table_count,
        *shape,
        0,
        table.fingerprint_count,
        len(words),
        starts_offset(len(words)),
        checksums_offset(len(words), bucket_bits),
        file_bytes(len(words), bucket_bits),
        table.set_digest,
    )
    header = (MAGIC + fields).ljust(128, b"\0") + bytes(table.permutation)
    header = header.ljust(4088, b"\0")
    return (
        header
        + struct.pack("<Q", xxh64(header))
        + body
        + page_checksums(body, filter_seed(header, table.set_digest))
    )


class Filter:
    """A whole filter file, given as bytes.

    The constructor checks all but whether it fits its table.
    """

    def __init__(self, data: bytes) -> None:
        self.header = h = parse_header(data)
        body = data[HEADER_BYTES : h.checksums_offset]
        require(
            data[h.checksums_offset :] == page_checksums(body, filter_seed(data, h.set_digest)),
            "a page checksum differs",
        )
        self.words = struct.unpack_from(f"<{h.word_count}Q", data, HEADER_BYTES)
        self.starts = struct.unpack_from(f"<{2**h.bucket_bits + 1}I", data, h.starts_offset)
        require(
            not any(data[h.starts_offset + 4 * len(self.starts) : h.checksums_offset]),
            "padding is not zero",
        )
        require(
            self.starts[0] == 0 and self.starts[-1] == h.word_count,
            "the words of the buckets are not those of the file",
        )
        require(all(a <= b for a, b in pairwise(self.starts)), "the starts do not ascend")

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.header.prefix_bits, self.header.bucket_bits, self.header.bits_per_prefix

    def passes(self, entry: int) -> bool:
        """Whether an entry with the prefix of this one may be in the table."""
        h = self.header
        prefix = prefix_of(entry, h.width, h.prefix_bits)
        bucket, rest = divmod(prefix, 2**h.rest_bits)
        start, count = self.starts[bucket], self.starts[bucket + 1] - self.starts[bucket]
        mask = mask_of(prefix)
        return count > 0 and self.words[start + rest * count // 2**h.rest_bits] & mask == mask
