"""Readable codecs of id records and of the manifest, as docs/format.md describes them."""

import json
import struct
from collections.abc import Sequence

from reference import RECORD_HEADER_BYTES, WIDTHS, WORD, VersionError, require, split_words, xxh64


def record_seed(digest: int, key: int, width: int = 64) -> int:
    return (digest + sum(split_words(key, width))) % WORD


def decode_record(record: bytes, seed: int) -> list[list[int]]:
    """Return the ids of each entry of a block, in rank order."""
    require(len(record) >= RECORD_HEADER_BYTES, "the record is shorter than its header")
    checksum, id_bits, count_bits, count, base = struct.unpack_from("<IBBHQ", record)
    require(checksum == xxh64(record[4:], seed) % 2**32, "the record checksum differs")
    require(id_bits <= 64 and count_bits <= 56 and count > 0, "field widths")
    require(id_bits > 0 or count_bits == 0, "equal ids of one fingerprint")
    # a field at bit position p is bits >> p
    bits = int.from_bytes(record[RECORD_HEADER_BYTES:], "little")
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
    for value, width in [(len(p) - 1, count_bits) for p in lists] + [
        (i - base, id_bits) for i in ids
    ]:
        bits |= value << at
        at += width
    body = struct.pack("<BBHQ", id_bits, count_bits, len(lists), base) + bits.to_bytes(
        (at + 7) // 8, "little"
    )
    return struct.pack("<I", xxh64(body, seed) % 2**32) + body


# --- Manifest -------------------------------------------------------------------------------------


def manifest_checksum(content: dict[str, object]) -> str:
    return f"{xxh64(json.dumps(content, sort_keys=True, separators=(',', ':')).encode()):016x}"


def parse_manifest(data: bytes) -> dict[str, object]:
    content = json.loads(data)
    require(isinstance(content, dict), "not an object")
    require(content.pop("checksum", None) == manifest_checksum(content), "the checksum differs")
    if (content["format_version"], content["flags"]) != (1, 0) or content["width"] not in WIDTHS:
        raise VersionError("format version, flags or width")
    return content
