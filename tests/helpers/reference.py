"""The readable decoder of table files: docs/format.md in plain Python, section by section.

The modules reference_* decode the other files. All are slow and independent of the kernel: where
both agree, the files are as the format page says.
Bit strings are ``bitarray`` objects, most significant bit first. A fingerprint is the number that
its words stand for, read as one: a number of 64, 128 or 256 bits, of which those of 32 bits take
the upper half.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import xxhash
from bitarray import bitarray
from bitarray.util import ba2int, canonical_decode, int2ba, zeros

MAGIC = b"FPSTABLE"
VERSION = 1
HEADER_BYTES = 4096
BLOCK_HEADER_BYTES = 16
ELIAS_FANO, ELIAS_FANO_HEADER_BYTES = 1, 8  # the flag of a table, and the header of its blocks
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


class VersionError(FormatError):
    """The bytes are of a version, or use a flag or width, that this page does not describe."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise FormatError(message)


def xxh64(data: bytes, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(data, seed)


# --- Widths ---------------------------------------------------------------------------------------

WIDTHS = (32, 64, 128, 256)


def words_of(width: int) -> int:
    """Return the words of a fingerprint."""
    return 1 if width == 32 else width // 64


def symbols_of(width: int) -> int:
    """Return how many symbols the code of this width may have, from 0 on."""
    return {32: 32, 64: 64}.get(width, 65)


def split_words(number: int, width: int) -> list[int]:
    """Return the words of a fingerprint, the most significant first."""
    words = words_of(width)
    return [number >> 64 * (words - 1 - i) & WORD - 1 for i in range(words)]


def joined_words(words: Iterable[int]) -> int:
    number = 0
    for word in words:
        number = number << 64 | word
    return number


def leading_word(number: int, width: int) -> int:
    return split_words(number, width)[0]


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
        permutation = bytes(self.permutation) + bytes(256 - self.width)
        return xxh64(permutation + bytes(self.code_bits), self.set_digest)


FIELDS = struct.Struct("<IIHHHHHHIQQQQQQQ")  # bytes 8 to 87


def parse_header(data: bytes, file_bytes: int) -> Header:
    """Parse the first 4096 bytes of a table file of this size."""
    require(
        file_bytes >= HEADER_BYTES and len(data) >= HEADER_BYTES,
        "the file is shorter than a header",
    )
    data = bytes(data[:HEADER_BYTES])
    require(data[:8] == MAGIC, "the magic bytes differ")
    (version,) = struct.unpack_from("<I", data, 8)
    if version != VERSION:
        raise VersionError(f"format version {version}")
    require(
        struct.unpack_from("<Q", data, 4088)[0] == xxh64(data[:4088]), "the header checksum differs"
    )
    fields = FIELDS.unpack_from(data, 8)
    width = fields[2]
    header = Header(*fields, tuple(data[128 : 128 + width]), tuple(data[384:449]))
    if header.flags & ~ELIAS_FANO:
        raise VersionError(f"flags {header.flags:#x}")
    if width not in WIDTHS:
        raise VersionError(f"width {width}")
    require(header.table < header.table_count, "table number outside the design")
    require(
        header.flips <= header.prefix_bits <= min(width, 64), "prefix bits or flips out of range"
    )
    require(header.block_bytes in (128, 256, 512, 1024, 2048, 4096), "block size")
    require(header.directory_bits <= MAX_DIRECTORY_BITS, "directory bits")
    require(header.block_count <= header.fingerprint_count, "more blocks than fingerprints")
    require(
        header.fingerprint_count // MAX_ENTRIES <= header.block_count,
        "more fingerprints than the blocks can hold",
    )
    require(header.block_count > 0 or header.fingerprint_count == 0, "fingerprints without a block")
    require(sorted(header.permutation) == list(range(width)), "not a permutation")
    if header.flags & ELIAS_FANO:
        require(not any(header.code_bits), "a code, which this codec does not have")
    else:
        check_code(header.code_bits, width)
    require(header.blocks_offset == HEADER_BYTES, "blocks offset")
    require(
        header.keys_offset == header.blocks_offset + header.block_count * header.block_bytes,
        "keys offset",
    )
    require(
        header.directory_offset == header.keys_offset + header.block_count * 8 * words_of(width),
        "directory offset",
    )
    slots = 2**header.directory_bits + 1
    require(header.file_bytes == header.directory_offset + slots * 8, "file size in the header")
    require(header.file_bytes == file_bytes, "file size")
    require(
        not any(data[88:128]) and not any(data[128 + width : 384]) and not any(data[449:4088]),
        "reserved bytes are not zero",
    )
    return header


# --- Permutation ----------------------------------------------------------------------------------


def permute(fingerprint: int, permutation: Sequence[int]) -> int:
    """Bit i of the result is bit permutation[i] of the fingerprint.

    Bit 0 is the most significant.
    """
    size = 64 * words_of(len(permutation))
    bits = f"{fingerprint:0{size}b}"
    return int("".join([bits[source] for source in permutation]).ljust(size, "0"), 2)


def unpermute(key: int, permutation: Sequence[int]) -> int:
    size = 64 * words_of(len(permutation))
    bits = ["0"] * size
    for source, bit in zip(permutation, f"{key:0{size}b}"):  # noqa: B905
        bits[source] = bit
    return int("".join(bits), 2)


# --- Set digest -----------------------------------------------------------------------------------


def set_digest(fingerprints: Iterable[int], width: int = 64) -> int:
    words = words_of(width)
    return (
        sum(
            xxh64(struct.pack(f"<{words}Q", *split_words(fingerprint, width)))
            for fingerprint in fingerprints
        )
        % WORD
    )


# --- Code -----------------------------------------------------------------------------------------


def check_code(code_bits: Sequence[int], width: int = 64) -> None:
    used = [length for length in code_bits if length]
    require(
        len(code_bits) == 65 and all(length <= MAX_CODE_BITS for length in used),
        "a code length is above 16",
    )
    require(
        not any(code_bits[symbols_of(width) :]), "a code for a symbol that this width does not have"
    )
    require(len(used) >= 2, "the code has fewer than two symbols")
    require(
        sum(2 ** (MAX_CODE_BITS - length) for length in used) == 2**MAX_CODE_BITS,
        "the code is not complete",
    )


def canonical_order(code_bits: Sequence[int]) -> tuple[list[int], list[int]]:
    """Count the codes of each length, and order the symbols by length and then by value."""
    count = [list(code_bits).count(length) if length else 0 for length in range(MAX_CODE_BITS + 1)]
    return count, sorted((s for s in range(65) if code_bits[s]), key=lambda s: (code_bits[s], s))


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


def block_sum(block: bytes, seed: int) -> int:
    """Return the checksum of a block, whose first four bytes, its own, count as zero."""
    lanes = [0] * 8
    for i, (word,) in enumerate(struct.iter_unpack("<Q", bytes(4) + bytes(block[4:]))):
        mixed = word ^ (seed + (i + 1) * PRIME_1) % WORD
        lanes[i % 8] += mixed % 2**32 * (mixed >> 32)
        lanes[i % 8 ^ 1] += word
    total = seed
    for j, lane in enumerate(lanes):
        mixed = lane % WORD ^ (seed + (j + 1) * PRIME_2) % WORD
        total += mixed % 2**32 * (mixed >> 32) + lane
    total %= WORD
    total = (total ^ total >> 33) * PRIME_2 % WORD
    total = (total ^ total >> 29) * PRIME_3 % WORD
    return (total ^ total >> 32) % 2**32


def symbol_between(before: int, key: int, width: int) -> int:
    """Return h: the first bit in which two entries differ, 64 if it is behind the leading word."""
    bits = 64 * words_of(width)
    return min(bits - (before ^ key).bit_length(), 64)


def tail_length(h: int, width: int) -> int:
    """Return the bits of the leading word behind bit h."""
    return max(min(width, 64) - 1 - h, 0)


def rest_bytes(width: int) -> int:
    """Return the bytes of the words behind the leading one."""
    return 8 * (words_of(width) - 1)


def decode_block(
    block: bytes,
    code_bits: Sequence[int],
    table_seed: int,
    index: int,
    key: int,
    previous_key: int | None,
    width: int = 64,
) -> list[int]:
    """Return the entries of a block; ``previous_key`` is None for block 0."""
    block = bytes(block)
    checksum, count, length = struct.unpack_from("<IHH", block)
    last, previous = leading_word(key, width), leading_word(previous_key or 0, width)
    require(
        checksum == block_sum(block, block_seed(table_seed, index, last, previous)),
        "the block checksum differs",
    )
    require(1 <= count <= MAX_ENTRIES, "entry count")
    end = len(block) - count * rest_bytes(width)
    if any(code_bits):
        leads = huffman_leads(block[:end], code_bits, count, length, width)
    else:
        leads = elias_fano_leads(block[:end], (previous, last), count, length, width)
    rests = (
        struct.iter_unpack(f"<{words_of(width) - 1}Q", block[end:]) if width > 64 else [()] * count
    )
    keys = [joined_words((lead, *rest)) for lead, rest in zip(leads, rests, strict=True)]
    require(all(a < b for a, b in pairwise(keys)), "entries out of order")
    require(keys[-1] == key, "the last entry is not the key")
    require(previous_key is None or keys[0] > previous_key, "blocks out of order")
    return keys


def huffman_leads(
    block: bytes, code_bits: Sequence[int], count: int, length: int, width: int
) -> list[int]:
    """Return the leading words of a block, which is given without the words behind them."""
    require(
        len(block) >= BLOCK_HEADER_BYTES,
        "the words behind the leading ones are longer than the block",
    )
    (first,) = struct.unpack_from("<Q", block, 8)
    bits = bitarray(endian="big")
    bits.frombytes(block[BLOCK_HEADER_BYTES:])
    require(length <= len(bits), "the code stream is longer than the block")
    try:
        symbols = list(canonical_decode(bits[:length], *canonical_order(code_bits)))
    except ValueError as error:
        raise FormatError("the code stream ends inside a code") from error
    require(len(symbols) == count - 1, "the code stream does not hold count - 1 codes")
    return decode_leads(first, symbols, bits[length:], width)


def elias_fano_leads(
    block: bytes, around: tuple[int, int], count: int, low_bits: int, width: int
) -> list[int]:
    """Do the same for a block of the Elias-Fano codec between these leading words of keys."""
    unused = max(64 - width, 0)
    require(
        len(block) >= ELIAS_FANO_HEADER_BYTES,
        "the words behind the leading ones are longer than the block",
    )
    require(low_bits < min(width, 64), "low bits")
    high, last = (word >> low_bits + unused for word in around)
    require(high <= last, "the keys do not ascend")
    # bit i of a stream is worth 2^i
    bits = int.from_bytes(block[ELIAS_FANO_HEADER_BYTES:], "little")
    length = count + last - high
    require(
        length + count * low_bits <= 8 * (len(block) - ELIAS_FANO_HEADER_BYTES),
        "the streams are longer than the block",
    )
    ones = [at for at in range(length) if bits >> at & 1]
    require(len(ones) == count, "the high parts do not hold count ones")
    bits >>= length
    lows = [bits >> i * low_bits & 2**low_bits - 1 for i in range(count)]
    require(bits >> count * low_bits == 0, "padding is not zero")
    return [
        (high + at - i << low_bits | low) << unused
        for i, (at, low) in enumerate(zip(ones, lows, strict=True))
    ]


def decode_leads(first: int, symbols: Iterable[int], tails: bitarray, width: int) -> list[int]:
    """Return the leading words of the entries of a block."""
    leads, at = [first], 0
    require(width >= 64 or first % 2 ** (64 - width) == 0, "bits behind the fingerprint")
    for h in symbols:
        tail = tails[at : at + tail_length(h, width)]
        require(len(tail) == tail_length(h, width), "the tails are longer than the block")
        at += len(tail)
        previous = int2ba(leads[-1], 64)
        if h == 64:
            leads.append(leads[-1])
            continue
        require(not previous[h], "entries out of order")
        lead = previous[:h] + bitarray("1") + tail
        leads.append(ba2int(lead + zeros(64 - len(lead))))
    require(not tails[at:].any(), "padding is not zero")
    return leads


def encode_block(
    keys: Sequence[int],
    code_bits: Sequence[int],
    block_bytes: int,
    table_seed: int,
    index: int,
    previous_key: int,
    width: int = 64,
) -> bytes:
    """Return a block of exactly these ascending entries, which must fit."""
    rests = b"".join(
        struct.pack(f"<{words_of(width) - 1}Q", *split_words(key, width)[1:]) for key in keys
    )
    first, last, previous = (leading_word(key, width) for key in (keys[0], keys[-1], previous_key))
    if any(code_bits):
        codes, tails = huffman_streams(keys, code_bits, width)
        header, stream = (
            struct.pack("<HHQ", len(keys), len(codes), first),
            (codes + tails).tobytes(),
        )
    else:
        low_bits, bits, length = elias_fano_streams(keys, previous, width)
        header, stream = (
            struct.pack("<HH", len(keys), low_bits),
            bits.to_bytes(-(-length // 8), "little"),
        )
    padding = bytes(block_bytes - 4 - len(header) - len(stream) - len(rests))
    body = bytes(4) + header + stream + padding + rests
    return (
        struct.pack("<I", block_sum(body, block_seed(table_seed, index, last, previous))) + body[4:]
    )


def huffman_streams(
    keys: Sequence[int], code_bits: Sequence[int], width: int
) -> tuple[bitarray, bitarray]:
    """Return the codes and the tails of entries."""
    book = codebook(code_bits)
    codes, tails = bitarray(), bitarray()
    for before, key in pairwise(keys):
        h = symbol_between(before, key, width)
        codes += book[h]
        tails += int2ba(leading_word(key, width), 64)[h + 1 : h + 1 + tail_length(h, width)]
    return codes, tails


def elias_fano_bits(before: int, last: int, count: int, low_bits: int, width: int) -> int:
    """Return the bits of both streams of so many entries between these leading words."""
    shift = low_bits + max(64 - width, 0)
    return count * (1 + low_bits) + (last >> shift) - (before >> shift)


def elias_fano_streams(keys: Sequence[int], previous: int, width: int) -> tuple[int, int, int]:
    """Return the low bits, both streams as a number, and their length."""
    leads = [leading_word(key, width) for key in keys]
    sizes = [
        elias_fano_bits(previous, leads[-1], len(keys), low_bits, width)
        for low_bits in range(min(width, 64))
    ]
    low_bits = sizes.index(min(sizes))
    unused = max(64 - width, 0)
    at = len(keys) + (leads[-1] >> low_bits + unused) - (previous >> low_bits + unused)
    bits = 0
    for i, lead in enumerate(leads):
        bits |= 1 << (lead >> low_bits + unused) - (previous >> low_bits + unused) + i
        bits |= (lead >> unused & 2**low_bits - 1) << at + i * low_bits
    return low_bits, bits, sizes[low_bits]


def cut(
    keys: Sequence[int], code_bits: Sequence[int], block_bytes: int, width: int = 64
) -> list[list[int]]:
    """Distribute entries over blocks: one is closed when the next entry does not fit."""
    blocks: list[list[int]] = []
    for key in keys:
        previous = leading_word(blocks[-2][-1], width) if len(blocks) > 1 else 0
        if not blocks or not fits([*blocks[-1], key], previous, code_bits, block_bytes, width):
            blocks.append([])
        blocks[-1].append(key)
    return blocks


def fits(
    keys: Sequence[int], previous: int, code_bits: Sequence[int], block_bytes: int, width: int
) -> bool:
    """Whether these entries have room in a block behind a key with this leading word."""
    room = 8 * (block_bytes - len(keys) * rest_bytes(width))
    if any(code_bits):
        symbols = [symbol_between(before, key, width) for before, key in pairwise(keys)]
        return (
            8 * BLOCK_HEADER_BYTES + sum(code_bits[h] + tail_length(h, width) for h in symbols)
            <= room
        )
    last = leading_word(keys[-1], width)
    sizes = [
        elias_fano_bits(previous, last, len(keys), low_bits, width)
        for low_bits in range(min(width, 64))
    ]
    return 8 * ELIAS_FANO_HEADER_BYTES + min(sizes) <= room


def encode_blocks(
    keys: Sequence[int],
    code_bits: Sequence[int],
    block_bytes: int,
    table_seed: int,
    width: int = 64,
) -> bytes:
    image, previous = b"", 0
    for index, part in enumerate(cut(keys, code_bits, block_bytes, width)):
        image += encode_block(part, code_bits, block_bytes, table_seed, index, previous, width)
        previous = part[-1]
    return image


# --- Key index and directory ----------------------------------------------------------------------


def directory_bits_for(block_count: int) -> int:
    return min(MAX_DIRECTORY_BITS, max(0, block_count.bit_length() - 4))


def decode_keys(data: bytes, count: int, width: int) -> list[int]:
    """Return the keys of a key index.

    The leading words of all, then the words behind them of all.
    """
    leads = struct.unpack_from(f"<{count}Q", data)
    rest_words = words_of(width) - 1
    rests = struct.unpack_from(f"<{count * rest_words}Q", data, 8 * count)
    return [
        joined_words((lead, *rests[i * rest_words :][:rest_words])) for i, lead in enumerate(leads)
    ]


def make_directory(leads: Sequence[int], bits: int) -> list[int]:
    """Return the directory of keys with these leading words."""
    return [sum(lead < slot << (64 - bits) for lead in leads) for slot in range(2**bits)] + [
        len(leads)
    ]


# --- Table file -----------------------------------------------------------------------------------


class Table:
    """A whole table file, given as bytes; the constructor checks the header and the two indexes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.header = parse_header(data, len(data))
        h = self.header
        self.keys = decode_keys(data[h.keys_offset : h.directory_offset], h.block_count, h.width)
        self.directory = struct.unpack_from(
            f"<{2**h.directory_bits + 1}Q", data, h.directory_offset
        )
        require(all(a < b for a, b in pairwise(self.keys)), "the key index does not ascend")
        leads = [leading_word(key, h.width) for key in self.keys]
        require(
            list(self.directory) == make_directory(leads, h.directory_bits),
            "the directory is wrong",
        )

    def block(self, index: int) -> list[int]:
        h = self.header
        start = h.blocks_offset + index * h.block_bytes
        previous = self.keys[index - 1] if index else None
        block = self.data[start : start + h.block_bytes]
        return decode_block(block, h.code_bits, h.seed, index, self.keys[index], previous, h.width)

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
        require(
            len(fingerprints) == self.header.fingerprint_count, "the number of fingerprints differs"
        )
        require(
            set_digest(fingerprints, self.header.width) == self.header.set_digest,
            "the set digest differs",
        )
        return fingerprints
