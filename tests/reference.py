"""The readable decoder: docs/format.md in plain Python, section by section, and a brute-force search.

Slow on purpose and independent of the kernel: what the two agree on is what the format page says. Bit strings
are ``bitarray`` objects, most significant bit first.
"""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xxhash
from bitarray import bitarray
from bitarray.util import ba2int, canonical_decode, int2ba, zeros

MAGIC = b"FPSTABLE"
VERSION = 1
HEADER_BYTES = 4096
BLOCK_HEADER_BYTES = 20
RECORD_HEADER_BYTES = 16
MIN_BLOCK_BYTES, MAX_BLOCK_BYTES = 128, 4096
MAX_ENTRIES = 32768
MAX_CODE_BITS = 16
MAX_DIRECTORY_BITS = 32
PRIME_1 = 0x9E3779B185EBCA87
PRIME_2 = 0xC2B2AE3D27D4EB4F
PRIME_3 = 0x165667B19E3779F9
WORD = 2**64


class FormatError(Exception):
    """The bytes are not what docs/format.md says they must be."""


class DamageError(Exception):
    """A part of a file that was durable is not whole."""


class VersionError(FormatError):
    """The bytes are of a version, or use a flag or width, that this page does not describe."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise FormatError(message)


def xxh64(data: bytes, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(data, seed)


# --- Header ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Header:
    version: int
    flags: int
    width: int
    table: int
    table_count: int
    prefix_bits: int
    flips: int
    directory_bits: int
    block_bytes: int
    fingerprint_count: int
    block_count: int
    blocks_offset: int
    keys_offset: int
    directory_offset: int
    file_bytes: int
    set_digest: int
    permutation: tuple[int, ...]
    code_bits: tuple[int, ...]

    @property
    def seed(self) -> int:
        """The table seed."""
        return xxh64(bytes(self.permutation) + bytes(self.code_bits), self.set_digest)


FIELDS = struct.Struct("<IIHHHHHHIQQQQQQQ")  # bytes 8 to 87


def parse_header(data: bytes, file_bytes: int) -> Header:
    """Parse the first 4096 bytes of a table file of this size."""
    require(file_bytes >= HEADER_BYTES and len(data) >= HEADER_BYTES, "the file is shorter than a header")
    data = bytes(data[:HEADER_BYTES])
    require(data[:8] == MAGIC, "the magic bytes differ")
    (version,) = struct.unpack_from("<I", data, 8)
    if version != VERSION:
        raise VersionError(f"format version {version}")
    require(struct.unpack_from("<Q", data, 4088)[0] == xxh64(data[:4088]), "the header checksum differs")
    header = Header(*FIELDS.unpack_from(data, 8), tuple(data[128:192]), tuple(data[192:256]))
    if header.flags:
        raise VersionError(f"flags {header.flags:#x}")
    if header.width != 64:
        raise VersionError(f"width {header.width}")
    require(header.table < header.table_count, "table number outside the design")
    require(header.flips <= header.prefix_bits <= 64, "prefix bits or flips out of range")
    require(header.block_bytes in (128, 256, 512, 1024, 2048, 4096), "block size")
    require(header.directory_bits <= MAX_DIRECTORY_BITS, "directory bits")
    require(header.block_count <= header.fingerprint_count, "more blocks than fingerprints")
    require(
        header.fingerprint_count // MAX_ENTRIES <= header.block_count,
        "more fingerprints than the blocks can hold",
    )
    require(header.block_count > 0 or header.fingerprint_count == 0, "fingerprints without a block")
    require(sorted(header.permutation) == list(range(64)), "not a permutation")
    check_code(header.code_bits)
    require(header.blocks_offset == HEADER_BYTES, "blocks offset")
    require(header.keys_offset == header.blocks_offset + header.block_count * header.block_bytes, "keys offset")
    require(header.directory_offset == header.keys_offset + header.block_count * 8, "directory offset")
    slots = 2**header.directory_bits + 1
    require(header.file_bytes == header.directory_offset + slots * 8, "file size in the header")
    require(header.file_bytes == file_bytes, "file size")
    require(not any(data[88:128]) and not any(data[256:4088]), "reserved bytes are not zero")
    return header


# --- Permutation ----------------------------------------------------------------------------------


def permute(fingerprint: int, permutation: Sequence[int]) -> int:
    """Bit i of the result is bit permutation[i] of the fingerprint; bit 0 is the most significant."""
    result = 0
    for source in permutation:
        result = result << 1 | (fingerprint >> (63 - source) & 1)
    return result


def unpermute(key: int, permutation: Sequence[int]) -> int:
    result = 0
    for i, source in enumerate(permutation):
        result |= (key >> (63 - i) & 1) << (63 - source)
    return result


# --- Set digest -----------------------------------------------------------------------------------


def set_digest(fingerprints: Iterable[int]) -> int:
    return sum(xxh64(struct.pack("<Q", fingerprint)) for fingerprint in fingerprints) % WORD


# --- Code -----------------------------------------------------------------------------------------


def check_code(code_bits: Sequence[int]) -> None:
    used = [length for length in code_bits if length]
    require(len(code_bits) == 64 and all(length <= MAX_CODE_BITS for length in used), "a code length is above 16")
    require(len(used) >= 2, "the code has fewer than two symbols")
    require(sum(2 ** (MAX_CODE_BITS - length) for length in used) == 2**MAX_CODE_BITS, "the code is not complete")


def canonical_order(code_bits: Sequence[int]) -> tuple[list[int], list[int]]:
    """Count the codes of each length, and order the symbols by length and then by value."""
    count = [list(code_bits).count(length) if length else 0 for length in range(MAX_CODE_BITS + 1)]
    return count, sorted((s for s in range(64) if code_bits[s]), key=lambda s: (code_bits[s], s))


def codebook(code_bits: Sequence[int]) -> dict[int, bitarray]:
    book: dict[int, bitarray] = {}
    code = length = 0
    for symbol in canonical_order(code_bits)[1]:
        code <<= code_bits[symbol] - length
        length = code_bits[symbol]
        book[symbol] = int2ba(code, length)
        code += 1
    return book


# --- Blocks ---------------------------------------------------------------------------------------


def block_seed(table_seed: int, index: int, key: int, previous_key: int) -> int:
    return (table_seed + key * PRIME_1 + previous_key * PRIME_2 + index * PRIME_3) % WORD


def decode_block(
    block: bytes, code_bits: Sequence[int], table_seed: int, index: int, key: int, previous_key: int | None
) -> list[int]:
    """Return the entries of a block; ``previous_key`` is None for block 0."""
    block = bytes(block)
    checksum, first, count, length = struct.unpack_from("<QQHH", block)
    seed = block_seed(table_seed, index, key, previous_key or 0)
    require(checksum == xxh64(block[8:], seed), "the block checksum differs")
    require(1 <= count <= MAX_ENTRIES, "entry count")
    bits = bitarray(endian="big")
    bits.frombytes(block[BLOCK_HEADER_BYTES:])
    require(length <= len(bits), "the code stream is longer than the block")
    try:
        symbols = list(canonical_decode(bits[:length], *canonical_order(code_bits)))
    except ValueError as error:
        raise FormatError("the code stream ends inside a code") from error
    require(len(symbols) == count - 1, "the code stream does not hold count - 1 codes")
    at = length
    keys = [first]
    for h in symbols:
        tail = bits[at : at + 63 - h]
        require(len(tail) == 63 - h, "the tails are longer than the block")
        at += len(tail)
        previous = int2ba(keys[-1], 64)
        require(not previous[h], "entries out of order")
        keys.append(ba2int(previous[:h] + bitarray("1") + tail))
    require(not bits[at:].any(), "padding is not zero")
    require(keys[-1] == key, "the last entry is not the key")
    require(previous_key is None or first > previous_key, "blocks out of order")
    return keys


def encode_block(
    keys: Sequence[int],
    code_bits: Sequence[int],
    block_bytes: int,
    table_seed: int,
    index: int,
    previous_key: int,
) -> bytes:
    """Return a block of exactly these ascending entries, which must fit."""
    book = codebook(code_bits)
    codes, tails = bitarray(), bitarray()
    for before, key in pairwise(keys):
        h = 64 - (before ^ key).bit_length()
        codes += book[h]
        tails += int2ba(key, 64)[h + 1 :]
    stream = codes + tails
    stream += zeros(8 * (block_bytes - BLOCK_HEADER_BYTES) - len(stream))
    body = struct.pack("<QHH", keys[0], len(keys), len(codes)) + stream.tobytes()
    return struct.pack("<Q", xxh64(body, block_seed(table_seed, index, keys[-1], previous_key))) + body


def cut(keys: Sequence[int], code_bits: Sequence[int], block_bytes: int) -> list[list[int]]:
    """Distribute entries over blocks: one is closed when the next entry does not fit."""
    capacity = 8 * (block_bytes - BLOCK_HEADER_BYTES)
    blocks: list[list[int]] = []
    used = capacity
    for i, key in enumerate(keys):
        h = 64 - (keys[i - 1] ^ key).bit_length() if i else 0
        used += code_bits[h] + 63 - h
        if i == 0 or used > capacity:
            blocks.append([])
            used = 0
        blocks[-1].append(key)
    return blocks


def encode_blocks(keys: Sequence[int], code_bits: Sequence[int], block_bytes: int, table_seed: int) -> bytes:
    image, previous = b"", 0
    for index, part in enumerate(cut(keys, code_bits, block_bytes)):
        image += encode_block(part, code_bits, block_bytes, table_seed, index, previous)
        previous = part[-1]
    return image


# --- Key index and directory ----------------------------------------------------------------------


def directory_bits_for(block_count: int) -> int:
    return min(MAX_DIRECTORY_BITS, max(0, block_count.bit_length() - 4))


def make_directory(keys: Sequence[int], bits: int) -> list[int]:
    return [sum(key < slot << (64 - bits) for key in keys) for slot in range(2**bits)] + [len(keys)]


# --- Table file -----------------------------------------------------------------------------------


class Table:
    """A whole table file, given as bytes; the constructor checks the header and the two indexes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = parse_header(data, len(data))
        h = self.header
        self.keys = struct.unpack_from(f"<{h.block_count}Q", data, h.keys_offset)
        self.directory = struct.unpack_from(f"<{2**h.directory_bits + 1}Q", data, h.directory_offset)
        require(all(a < b for a, b in pairwise(self.keys)), "the key index does not ascend")
        require(list(self.directory) == make_directory(self.keys, h.directory_bits), "the directory is wrong")

    def block(self, index: int) -> list[int]:
        h = self.header
        start = h.blocks_offset + index * h.block_bytes
        previous = self.keys[index - 1] if index else None
        block = self.data[start : start + h.block_bytes]
        return decode_block(block, h.code_bits, h.seed, index, self.keys[index], previous)

    def permuted(self) -> Iterator[int]:
        """Yield the entries in table order."""
        for index in range(self.header.block_count):
            yield from self.block(index)

    def __iter__(self) -> Iterator[int]:
        """Yield the fingerprints in table order."""
        return (unpermute(key, self.header.permutation) for key in self.permuted())

    def verify(self) -> list[int]:
        """Check everything there is in one file; return the fingerprints in ascending order."""
        fingerprints = sorted(self)
        require(len(fingerprints) == self.header.fingerprint_count, "the number of fingerprints differs")
        require(set_digest(fingerprints) == self.header.set_digest, "the set digest differs")
        return fingerprints


# --- Id records -----------------------------------------------------------------------------------


def decode_record(record: bytes, seed: int) -> list[list[int]]:
    """Return the ids of each entry of a block, in rank order."""
    require(len(record) >= RECORD_HEADER_BYTES, "the record is shorter than its header")
    checksum, id_bits, count_bits, count, base = struct.unpack_from("<IBBHQ", record)
    require(checksum == xxh64(record[4:], seed) % 2**32, "the record checksum differs")
    require(id_bits <= 64 and count_bits <= 56 and count > 0, "field widths")
    require(id_bits > 0 or count_bits == 0, "equal ids of one fingerprint")
    bits = int.from_bytes(record[RECORD_HEADER_BYTES:], "little")  # a field at bit position p is bits >> p
    room = 8 * (len(record) - RECORD_HEADER_BYTES)
    require(count * count_bits <= room, "the counts are longer than the record")
    counts = [1 + (bits >> i * count_bits) % 2**count_bits for i in range(count)]
    total = sum(counts)
    used = count * count_bits + total * id_bits
    require(len(record) == RECORD_HEADER_BYTES + (used + 7) // 8, "the record has another length")
    bits >>= count * count_bits
    ids = [(base + (bits >> i * id_bits) % 2**id_bits) % WORD for i in range(total)]
    place = iter(ids)
    return [[next(place) for _ in range(n)] for n in counts]


def encode_record(lists: Sequence[Sequence[int]], seed: int) -> bytes:
    ids = [number for part in lists for number in part]
    base = min(ids)
    id_bits = (max(ids) - base).bit_length()
    count_bits = (max(len(part) for part in lists) - 1).bit_length()
    bits = at = 0
    for value, width in [(len(p) - 1, count_bits) for p in lists] + [(i - base, id_bits) for i in ids]:
        bits |= value << at
        at += width
    body = struct.pack("<BBHQ", id_bits, count_bits, len(lists), base) + bits.to_bytes((at + 7) // 8, "little")
    return struct.pack("<I", xxh64(body, seed) % 2**32) + body


# --- Manifest -------------------------------------------------------------------------------------


def manifest_checksum(content: dict[str, object]) -> str:
    return f"{xxh64(json.dumps(content, sort_keys=True, separators=(',', ':')).encode()):016x}"


def parse_manifest(data: bytes) -> dict[str, object]:
    content = json.loads(data)
    require(isinstance(content, dict), "not an object")
    require(content.pop("checksum", None) == manifest_checksum(content), "the checksum differs")
    if (content["format_version"], content["flags"], content["width"]) != (1, 0, 64):
        raise VersionError("format version, flags or width")
    return content


# --- Log ------------------------------------------------------------------------------------------

LOG_MAGIC, CHANGE_MAGIC = b"FPSTLOG\n", b"FPCHANGE"
LOG_HEADER_BYTES = 4096
LOG_FIELDS = struct.Struct("<8sII16sQQQQQII")  # bytes 0 to 79
CHANGE_FIELDS = struct.Struct("<QQQQQQQQQ")  # bytes 16 to 87 of a record
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

    @property
    def seed(self) -> int:
        """The log seed."""
        return xxh64(self.identity, self.generation)


def end_word(end: int) -> int:
    return end | (end * PRIME_1 % WORD >> 49) << 48


def parse_log_header(data: bytes) -> LogHeader:
    require(len(data) >= LOG_HEADER_BYTES, "the log is shorter than its header")
    require(struct.unpack_from("<Q", data, 80)[0] == xxh64(data[:80]), "the header checksum differs")
    magic, version, header_bytes, identity, generation, first, *totals, zero = LOG_FIELDS.unpack_from(data)
    require(magic == LOG_MAGIC, "the magic bytes differ")
    if (version, header_bytes, zero) != (1, LOG_HEADER_BYTES, 0) or totals[3] > 2:
        raise VersionError(f"log version {version}")
    word, boot = struct.unpack_from("<QQ", data, END_AT)
    superseded, word = word >> 63, word % 2**63
    end = word % 2**48
    require(word == end_word(end) and end >= LOG_HEADER_BYTES and end % 8 == 0, "the end is damaged")
    return LogHeader(identity, generation, first, tuple(totals), end, bool(superseded), boot)


@dataclass(frozen=True)
class Change:
    number: int
    durable: int
    totals: tuple[int, int, int, int]
    rows: list[tuple[int, int, int]]  # fingerprint, id, kinds
    strings: list[bytes]


def decode_change(data: bytes, place: int, seed: int) -> tuple[Change, int]:
    """Return the record at a place of a log, and the place behind it."""
    require(data[place : place + 8] == CHANGE_MAGIC and len(data) >= place + 88, "no record")
    fields = CHANGE_FIELDS.unpack_from(data, place + 16)
    length, number, durable, fingerprints, ids, next_row, row_count, string_count, kind = fields
    require(length >= 88 and place + length <= len(data), "the record is longer than the log")
    require(struct.unpack_from("<Q", data, place + 8)[0] == xxh64(data[place + 16 : place + length], seed ^ place), "checksum")
    require(kind <= 2 and 17 * row_count <= length - 88, "rows")
    at, end = place + 88, place + length
    words = struct.unpack_from(f"<{2 * row_count}Q", data, at)
    at += 16 * row_count
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
    rows = list(zip(words[:row_count], words[row_count:], kinds, strict=True))
    return Change(number, durable, (fingerprints, ids, next_row, kind), rows, strings), end


def encode_change(change: Change, place: int, seed: int) -> bytes:
    fingerprints, ids, kinds = ([row[i] for row in change.rows] for i in range(3))
    rows = struct.pack(f"<{2 * len(kinds)}Q", *fingerprints, *ids) + bytes(kinds)
    rest = rows + b"".join(struct.pack("<I", len(string)) + string for string in change.strings)
    *totals, kind = change.totals
    counts = (len(change.rows), len(change.strings), kind)
    body = CHANGE_FIELDS.pack(88 + len(rest), change.number, change.durable, *totals, *counts) + rest
    return CHANGE_MAGIC + struct.pack("<Q", xxh64(body, seed ^ place)) + body + bytes(-len(body) % 8)


def read_log(data: bytes, boot: int) -> tuple[list[Change], int]:
    """Return the changes of a log and where they end, as a reader that runs in this boot of the machine has to see them."""
    header = parse_log_header(data)
    exact = boot == header.boot != 0
    readable = data[: header.end] if exact else data
    changes: list[Change] = []
    place = LOG_HEADER_BYTES
    try:
        while True:
            change, end = decode_change(readable, place, header.seed)
            require(change.number == len(changes) + 1, "another record is expected here")
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


# --- Brute force ----------------------------------------------------------------------------------


def brute_force(fingerprints: np.ndarray, query: int, radius: int) -> tuple[np.ndarray, np.ndarray]:
    """Return every fingerprint within the radius and its distance, by distance and then by fingerprint."""
    distances = np.bitwise_count(fingerprints ^ np.uint64(query))
    near = distances <= radius
    found, distances = fingerprints[near], distances[near]
    order = np.lexsort((found, distances))
    return found[order], distances[order]


def brute_force_many(fingerprints: np.ndarray, queries: Iterable[int], radius: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do the same for several queries: limits, fingerprints and distances as columns."""
    parts = [brute_force(fingerprints, int(query), radius) for query in queries]
    lims = np.cumsum([0, *(len(found) for found, _ in parts)], dtype=np.int64)
    found = np.concatenate([np.empty(0, np.uint64), *(part[0] for part in parts)])
    distances = np.concatenate([np.empty(0, np.uint8), *(part[1] for part in parts)])
    return lims, found, distances
