"""The section "Column table" of docs/format.md as a short, slow program.

It makes files of fingerprints, and probes them.
Fingerprints are Python integers of ``width`` bits; bit 0 is the most significant.
"""

import struct
from dataclasses import dataclass

import xxhash

MAGIC = b"FPSTCOLS"
HEADER_BYTES = PAGE_BYTES = 4096
ROWS_IN_BLOCK = 128
COPIES, REFERENCES, ROWS = range(3)
WORD = 2**64


def xxh64(data: bytes, seed: int = 0) -> int:
    return xxhash.xxh64_intdigest(data, seed)


def words(fingerprint: int, width: int) -> list[int]:
    """Return its words, the most significant first; one of 32 bits is the upper half of a word."""
    if width < 64:
        return [fingerprint << (64 - width)]
    return [fingerprint >> shift & (WORD - 1) for shift in range(width - 64, -1, -64)]


def word_bytes(fingerprint: int, width: int) -> bytes:
    return struct.pack(f"<{max(width // 64, 1)}Q", *words(fingerprint, width))


def bit(fingerprint: int, place: int, width: int) -> int:
    return fingerprint >> (width - 1 - place) & 1


def bits(fingerprint: int, places, width: int) -> int:
    """Return some bits of a fingerprint, one after the other, as a number."""
    number = 0
    for place in places:
        number = number << 1 | bit(fingerprint, place, width)
    return number


@dataclass(frozen=True)
class Layout:
    kind: int
    width: int
    permutation: tuple[int, ...]
    bucket_bits: int
    tag_bits: int
    threshold: int
    table: int
    table_count: int

    def rest_bits(self, count: int) -> int:
        if self.kind == ROWS:
            return 0
        if self.kind == COPIES:
            return max(self.width - self.bucket_bits - 16, 0)
        return (count - 1).bit_length() if count else 0

    def keys(self, fingerprints: list[int]) -> list[int]:
        """Return the keys of a table, ascending."""
        rest_bits, head = self.rest_bits(len(fingerprints)), self.bucket_bits + 16
        keys = []
        for row, fingerprint in enumerate(sorted(fingerprints)):
            if self.kind == COPIES:
                keys.append(bits(fingerprint, self.permutation, self.width) << (64 - self.width))
            else:
                top = bits(fingerprint, self.permutation[:head], self.width)
                keys.append((top << rest_bits | row) << (64 - head - rest_bits))
        return sorted(keys)


def section(data: bytes) -> bytes:
    """Return a section with its zeros."""
    data += bytes(64)
    return data + bytes(-len(data) % 64)


def build(layout: Layout, fingerprints: list[int]) -> bytes:
    """Return the file of a set."""
    count, bucket_bits, rest_bits = (
        len(fingerprints),
        layout.bucket_bits,
        layout.rest_bits(len(fingerprints)),
    )
    tags = rests = b""
    if layout.kind == ROWS:
        buckets = [fingerprint >> (layout.width - bucket_bits) for fingerprint in fingerprints]
        tags = b"".join(
            word_bytes(fingerprint, layout.width) for fingerprint in sorted(fingerprints)
        )
    else:
        keys = layout.keys(fingerprints)
        buckets = [key >> (64 - bucket_bits) for key in keys]
        tags = b"".join(struct.pack("<H", key >> (48 - bucket_bits) & 0xFFFF) for key in keys)
        numbers = [
            key >> (48 - bucket_bits - rest_bits) & (2**rest_bits - 1) if rest_bits else 0
            for key in keys
        ]
        rests = b"".join(number.to_bytes((rest_bits + 7) // 8, "little") for number in numbers)
    counts = [0] * 2**bucket_bits
    for bucket in buckets:
        counts[bucket] += 1
    starts = [0]
    for number in counts:
        starts.append(starts[-1] + number)
    body, offsets = b"", []
    for part in (struct.pack(f"<{len(starts)}I", *starts), tags, rests):
        offsets.append(HEADER_BYTES + len(body))
        body += section(part)
    pages = [body[at : at + PAGE_BYTES] for at in range(0, len(body), PAGE_BYTES)]
    checksums_offset = HEADER_BYTES + len(body)
    digest = (
        sum(xxh64(word_bytes(fingerprint, layout.width)) for fingerprint in fingerprints) % WORD
    )
    header = MAGIC + struct.pack(
        "<IIHHHHHHHHQQQQQQQ",
        1,
        0,
        layout.width,
        layout.kind,
        layout.table,
        layout.table_count,
        bucket_bits,
        layout.tag_bits,
        layout.threshold + 1,
        rest_bits,
        count,
        *offsets,
        checksums_offset,
        checksums_offset + 8 * len(pages),
        digest,
    )
    header += bytes(128 - len(header)) + bytes(layout.permutation)
    header += bytes(HEADER_BYTES - 8 - len(header))
    checksum = xxh64(header)
    sums = [xxh64(page, (checksum + number) % WORD) for number, page in enumerate(pages)]
    return header + struct.pack("<Q", checksum) + body + struct.pack(f"<{len(sums)}Q", *sums)


class Table:
    """A file of copies in the order of the fingerprints, or of rows.

    Its entries, and its blocks of ids.
    """

    def __init__(self, data: bytes) -> None:
        fields = struct.unpack_from("<IIHHHHHHHHQQQQQQQ", data, 8)
        (
            _,
            _,
            width,
            kind,
            table,
            table_count,
            bucket_bits,
            tag_bits,
            threshold,
            rest_bits,
            count,
            *at,
            self.set_digest,
        ) = fields
        permutation = tuple(data[128 : 128 + width])
        self.layout = Layout(
            kind, width, permutation, bucket_bits, tag_bits, threshold - 1, table, table_count
        )
        starts = struct.unpack_from(f"<{2**bucket_bits + 1}I", data, at[0])
        buckets = [
            bucket for bucket, low in enumerate(starts[:-1]) for _ in range(low, starts[bucket + 1])
        ]
        size = (rest_bits + 7) // 8
        self.entries = []  # the words of each as one number
        for entry, bucket in enumerate(buckets):
            if kind == ROWS:
                words = struct.unpack_from(f"<{width // 64}Q", data, at[1] + width // 8 * entry)
                self.entries.append(
                    sum(word << 64 * place for place, word in enumerate(reversed(words)))
                )
            else:
                (tag,) = struct.unpack_from("<H", data, at[1] + 2 * entry)
                rest = int.from_bytes(
                    data[at[2] + size * entry : at[2] + size * (entry + 1)], "little"
                )
                self.entries.append(
                    ((bucket << 16 | tag) << rest_bits | rest) << (48 - bucket_bits - rest_bits)
                )
        assert (kind, permutation) == (ROWS if width > 64 else COPIES, tuple(range(width)))
        outer = [entry >> max(64 - width, 0) for entry in self.entries]
        assert build(self.layout, outer) == data
        assert len(self.entries) == count

    def blocks(self) -> list[list[int]]:
        """Return the entries by blocks of ids."""
        return [
            self.entries[start : start + ROWS_IN_BLOCK]
            for start in range(0, len(self.entries), ROWS_IN_BLOCK)
        ]


def probe(
    layouts: list[Layout], thresholds: list[int], fingerprints: list[int], query: int
) -> list[list[int]]:
    """Return, for each table of a ring, the fingerprints that a probe meets in it.

    Those whose distance it computes.
    """
    met = []
    for i, layout in enumerate(layouts):
        own, both = thresholds[i], thresholds[i] + thresholds[(i + 1) % len(layouts)] + 1
        bucket = layout.permutation[: layout.bucket_bits]
        tag = layout.permutation[layout.bucket_bits : layout.bucket_bits + layout.tag_bits]
        matches = []
        for fingerprint in fingerprints:
            d = bits(fingerprint ^ query, bucket, layout.width).bit_count()
            e = bits(fingerprint ^ query, tag, layout.width).bit_count()
            if d <= own and d + e <= both:
                matches.append(fingerprint)
        met.append(matches)
    return met
