"""The readable decoder of LMDB files: the ids and strings in them, by docs/format.md.

The LMDB library reads a file only after the seal of the file was checked here.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb
import reference
import reference_columns
import reference_records
import zstandard
from reference import WORD, require, xxh64

PAGE = 4096
PAD = 262144
SEPARATOR = b"\xff"
LAYOUT_KEYS = (WORD - 2, WORD - 1)
LAYOUT = struct.Struct("<IQ")
MAX_STRINGS, MAX_BYTES = 256, 65536
Records = dict[int, bytes]


# --- LMDB files -----------------------------------------------------------------------------------


def used_bytes(data: bytes) -> int:
    """Return U, the bytes that are in use.

    The newer of the two metadata pages has the number of the last page, which counts from 0.
    """
    last, _ = max(
        (struct.unpack_from("<QQ", data, page + 136) for page in (0, PAGE)),
        key=lambda pair: pair[1],
    )
    return int(last + 1) * PAGE


def hashes(data: bytes, step: int) -> bytes:
    return b"".join(
        struct.pack("<Q", xxh64(data[at : at + step])) for at in range(0, len(data), step)
    )


def seal_of(data: bytes) -> bytes:
    """Return the checksums of pages: of each page, of each 512 of these, and the digest."""
    first = hashes(data, PAGE)
    second = hashes(first, 512 * 8)
    return first + second + struct.pack("<Q", xxh64(second, len(data)))


def check_seal(data: bytes, largest: int, digest: int | None = None) -> None:
    used = used_bytes(data)
    end = seal_of(data[:used])
    room = PAD + -(-largest // PAGE) * PAGE
    require(len(data) == used + room + len(end), "the file has another size")
    require(not any(data[used : used + room]), "the padding is not zero")
    require(data[used + room :] == end, "the seal is wrong")
    require(digest in (None, int.from_bytes(end[-8:], "little")), "the digest is another one")


def read_records(path: Path, shape: dict[str, int], words: int = 1) -> Records:
    """Return the values of a sealed file by key, of so many words.

    ``shape`` is what the manifest says of it.
    """
    data = path.read_bytes()
    require(len(data) == shape["bytes"], "size")
    check_seal(data, shape["largest"], shape["digest"])
    with (
        lmdb.open(str(path), subdir=False, readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        items = list(transaction.cursor())
    require(all(len(key) == 8 * words for key, _ in items), "a key has another length")
    require(
        max((len(value) for _, value in items), default=0) == shape["largest"], "the largest value"
    )
    return {int.from_bytes(key, "big"): value for key, value in items}


# --- Ids ------------------------------------------------------------------------------------------


def read_mapping(table: reference.Table, records: Records) -> Iterator[tuple[int, list[int]]]:
    """Yield (entry, numbers) of a table whose permutation is the identity, ascending."""
    blocks = {key: table.block(index) for index, key in enumerate(table.keys)}
    return read_lists(blocks, records, table.header.set_digest, table.header.width)


def read_lists(
    blocks: dict[int, list[int]], records: Records, digest: int, width: int
) -> Iterator[tuple[int, list[int]]]:
    """Yield (entry, numbers) of blocks of ids by key."""
    require(
        list(records) == list(blocks),
        "each block has a record under its key, and there are no others",
    )
    for key, entries in blocks.items():
        lists = reference_records.decode_record(
            records[key], reference_records.record_seed(digest, key, width)
        )
        yield from zip(entries, lists, strict=True)


# --- Strings --------------------------------------------------------------------------------------


def sealed_value(key: int, content: bytes) -> bytes:
    return struct.pack("<I", xxh64(content, key) % 2**32) + content


def opened_value(key: int, value: bytes) -> bytes:
    require(sealed_value(key, value[4:]) == value, "the checksum of a value differs")
    return value[4:]


def encode_layout(per_record: int, trained: int, dictionary: bytes) -> bytes:
    return LAYOUT.pack(per_record, trained) + dictionary


def decode_layout(content: bytes) -> tuple[int, int, bytes]:
    require(len(content) >= LAYOUT.size, "the layout is cut short")
    per_record, trained = LAYOUT.unpack_from(content)
    require(1 <= per_record <= MAX_STRINGS, "strings in a record")
    return per_record, trained, content[LAYOUT.size :]


def zstandard_dictionary(dictionary: bytes) -> zstandard.ZstdCompressionDict | None:
    return zstandard.ZstdCompressionDict(dictionary) if dictionary else None


def encode_strings(strings: Sequence[bytes], dictionary: bytes) -> bytes:
    """Return a frame of strings."""
    content = b"".join(string + SEPARATOR for string in strings)
    known = zstandard_dictionary(dictionary)
    return zstandard.ZstdCompressor(
        dict_data=known, write_dict_id=False, write_checksum=False
    ).compress(content)


def is_text(string: bytes) -> bool:
    try:
        return string.decode() is not None
    except UnicodeDecodeError:
        return False


def decode_strings(frame: bytes, dictionary: bytes) -> list[bytes]:
    try:
        parameters = zstandard.get_frame_parameters(frame)
        require(
            not parameters.has_checksum and parameters.dict_id == 0,
            "a frame has neither checksum nor dictionary number",
        )
        require(parameters.content_size <= MAX_STRINGS * (MAX_BYTES + 1), "the size of the content")
        zstd = zstandard.ZstdDecompressor(dict_data=zstandard_dictionary(dictionary))
        content = zstd.decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise reference.FormatError(str(error)) from error
    require(content.endswith(SEPARATOR), "the last string has no end")
    strings = content[:-1].split(SEPARATOR)
    for string in strings:
        require(len(string) <= MAX_BYTES and is_text(string), "a string")
    return strings


def read_strings(records: Records, count: int) -> dict[int, bytes]:
    """Return the strings in use by number."""
    layouts = [decode_layout(opened_value(key, records[key])) for key in LAYOUT_KEYS]
    require(layouts[0] == layouts[1], "the copies differ")
    per_record, _, dictionary = layouts[0]
    require(list(records) == [*range(-(-count // per_record)), *LAYOUT_KEYS], "keys")
    strings = []
    for key in list(records)[:-2]:
        record = decode_strings(opened_value(key, records[key]), dictionary)
        require(len(record) == min(per_record, count - key * per_record), "strings of a record")
        strings += record
    return {number: string for number, string in enumerate(strings) if string}


def read_dictionary(folder: Path, shape: dict[str, object]) -> dict[int, bytes]:
    """Return the strings of a generation by number, after a check of the way back."""
    strings = read_strings(read_records(folder / "strings.mdb", shape["strings"]), shape["count"])
    table = reference.Table((folder / "hashes.fpt").read_bytes())
    h = table.header
    require(
        (h.width, h.table, h.table_count, h.prefix_bits, h.flips) == (64, 0, 1, 64, 0),
        "place of the hashes",
    )
    require(h.permutation == tuple(range(64)), "order of the hashes")
    require(
        (h.fingerprint_count, h.set_digest) == (shape["hashes"], shape["hash_digest"]),
        "the set of hashes",
    )
    table.verify()
    wanted: dict[int, list[int]] = {}
    for number, string in strings.items():
        wanted.setdefault(xxh64(string), []).append(number)
    mapping = dict(read_mapping(table, read_records(folder / "numbers.mdb", shape["numbers"])))
    require(mapping == wanted, "the numbers of the hashes")
    return strings


def read_store(path: Path) -> dict[int, list[int] | list[str]]:
    """Return the ids of each fingerprint in the tables of a store; the log is not looked at."""
    manifest = reference_records.parse_manifest((path / "manifest.json").read_bytes())
    generation, words = manifest["generation"], reference.words_of(manifest["width"])
    folder = path / f"gen-{generation['number']:08d}"
    data, records = (
        (folder / "table-000.fpt").read_bytes(),
        read_records(folder / "ids.mdb", generation["ids_file"], words),
    )
    if data.startswith(reference_columns.MAGIC):
        columns = reference_columns.Table(data)
        require(columns.layout.width == manifest["width"], "width")
        blocks = {block[-1]: block for block in columns.blocks()}
        content = dict(read_lists(blocks, records, columns.set_digest, manifest["width"]))
    else:
        table = reference.Table(data)
        table.verify()
        require(table.header.width == manifest["width"], "width")
        content = dict(read_mapping(table, records))
    require(sum(map(len, content.values())) == generation["ids"], "the number of ids")
    if generation["dictionary"] is None:
        require(generation["id_kind"] != "string", "strings without a dictionary")
        return content
    strings = read_dictionary(folder, generation["dictionary"])
    return {
        fingerprint: [strings[number].decode() for number in ids]
        for fingerprint, ids in content.items()
    }
