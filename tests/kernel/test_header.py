"""The header of a table file: every byte of it matters, and a file of another length is refused.

Also the worked example of docs/format.md, which is a whole table file.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import reference
import reference_records
import tableimage
from hypothesis import given, settings
from hypothesis import strategies as st
from tableimage import header_fields, open_table, sealed

from fpstore import _kernel
from fpstore.errors import CorruptStoreError, FormatVersionError, FpstoreError

FORMAT_PAGE = Path(__file__).parents[2] / "docs" / "format.md"
FINGERPRINTS = np.array([3, 5, 2**40, 2**63, 2**64 - 1], np.uint64)
IMAGE = tableimage.build(
    FINGERPRINTS,
    np.roll(tableimage.IDENTITY, 9),
    128,
    table=1,
    table_count=4,
    prefix_bits=24,
    flips=1,
)

# Offset, size and name of every field up to the reserved bytes.
FIELDS = {
    "magic": (0, 8),
    "version": (8, 4),
    "flags": (12, 4),
    "width": (16, 2),
    "table": (18, 2),
    "table_count": (20, 2),
    "prefix_bits": (22, 2),
    "flips": (24, 2),
    "directory_bits": (26, 2),
    "block_bytes": (28, 4),
    "fingerprint_count": (32, 8),
    "block_count": (40, 8),
    "blocks_offset": (48, 8),
    "keys_offset": (56, 8),
    "directory_offset": (64, 8),
    "file_bytes": (72, 8),
    "set_digest": (80, 8),
    "reserved_1": (88, 40),
    "permutation": (128, 64),
    "reserved_2": (192, 192),
    "code_bits": (384, 65),
    "reserved_3": (449, 3639),
    "checksum": (4088, 8),
}


def refusal(image: bytes) -> type[FpstoreError] | None:
    """Return the error class with which the kernel refuses a file.

    The reference must refuse it alike.
    """
    try:
        open_table(image)
    except FpstoreError as error:
        kind = type(error)
    else:
        kind = None
    try:
        reference.parse_header(image, len(image))
    except reference.VersionError:
        assert kind is FormatVersionError
    except reference.FormatError:
        assert kind is CorruptStoreError
    else:
        assert kind is None
    return kind


def with_field(name: str, value: int) -> bytes:
    """Return the image with another value in a field, and the checksum right."""
    header = header_fields(IMAGE)
    offset, size = FIELDS[name]
    header[offset : offset + size] = value.to_bytes(size, "little")
    return sealed(header, IMAGE)


def test_the_fields_cover_the_header():
    ends = [offset + size for offset, size in FIELDS.values()]
    assert [0, *ends[:-1]] == [offset for offset, _ in FIELDS.values()]
    assert ends[-1] == _kernel.HEADER_BYTES == reference.HEADER_BYTES


def test_kernel_and_reference_read_the_same_fields():
    table = open_table(IMAGE)
    header = reference.parse_header(IMAGE, len(IMAGE))
    shared = [
        "version",
        "table",
        "table_count",
        "prefix_bits",
        "flips",
        "block_bytes",
        "fingerprint_count",
        "block_count",
    ]
    for name in [*shared, "keys_offset", "directory_offset", "file_bytes", "set_digest"]:
        offset, size = FIELDS[name]
        stored = int.from_bytes(IMAGE[offset : offset + size], "little")
        assert getattr(table, name) == getattr(header, name) == stored
    assert (table.table, table.table_count, table.prefix_bits, table.flips) == (1, 4, 24, 1)
    assert table.permutation == bytes(header.permutation)
    assert table.code_bits == bytes(header.code_bits)
    seed = _kernel.block_seed(
        *(np.frombuffer(b, np.uint8) for b in (table.permutation, table.code_bits)),
        table.set_digest,
    )
    assert seed == header.seed


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_every_changed_byte_is_an_error(change):
    for offset in range(_kernel.HEADER_BYTES):
        image = bytearray(IMAGE)
        image[offset] ^= change
        expected = FormatVersionError if 8 <= offset < 12 else CorruptStoreError
        assert refusal(bytes(image)) is expected, offset


def test_the_codec_and_the_code_belong_together():
    """A table of the other codec has no code, and one without a code is of the other codec."""
    assert refusal(with_field("flags", 1)) is CorruptStoreError
    assert refusal(with_field("code_bits", 0)) is CorruptStoreError


@pytest.mark.parametrize("name", ["version", "flags", "width"])
def test_what_a_newer_version_may_use_is_a_version_error(name):
    offset, size = FIELDS[name]
    good = int.from_bytes(IMAGE[offset : offset + size], "little")
    for value in (
        0,
        *([] if name == "flags" else [1]),
        2,
        31,
        63,
        64,
        65,
        512,
        2 ** (8 * size - 1),
        2 ** (8 * size) - 1,
    ):
        assert refusal(with_field(name, value)) is (None if value == good else FormatVersionError)


@pytest.mark.parametrize("width", [32, 128, 256])
def test_a_table_of_another_known_width_is_damaged(width):
    """Its permutation is not one of so many bits."""
    assert refusal(with_field("width", width)) is CorruptStoreError


def test_a_newer_version_is_named_before_its_checksum_is_judged():
    image = bytearray(IMAGE)
    image[8] = 9
    image[300] = 7
    with pytest.raises(FormatVersionError, match="unknown format version") as caught:
        open_table(bytes(image))
    assert (caught.value.expected, caught.value.got, caught.value.path) == (1, 9, "image")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("magic", [], [0, 1]),
        ("table", [0, 3], [4, 65535]),
        ("table_count", [2, 65535], [0, 1]),
        ("prefix_bits", [1, 64], [0, 65, 65535]),
        ("flips", [0, 24], [25, 65535]),
        ("directory_bits", [], [1, 32, 33, 65535]),
        ("block_bytes", [], [0, 1, 64, 127, 256, 4096, 8192, 2**31]),
        ("fingerprint_count", [1, 4, 65535], [0, 65536, 2**64 - 1]),
        ("block_count", [], [0, 2, 2**61, 2**63, 2**64 - 1]),
        ("blocks_offset", [], [0, 4095, 8192, 2**64 - 1]),
        ("keys_offset", [], [0, 4096, 4232, 2**64 - 1]),
        ("directory_offset", [], [0, 4224, 2**64 - 8]),
        ("file_bytes", [], [0, 4096, len(IMAGE) - 1, len(IMAGE) + 1, 2**64 - 1]),
        ("set_digest", [0, 2**64 - 1], []),
    ],
)
def test_values_of_a_field_under_a_right_checksum(name, good, bad):
    for value in good:
        assert refusal(with_field(name, value)) is None, value
    for value in bad:
        assert refusal(with_field(name, value)) is CorruptStoreError, value


def test_valid_header_of_another_set_does_not_open_these_blocks():
    """The set digest, the permutation and the code are part of every block's checksum."""
    header = header_fields(IMAGE)
    header[128:192] = bytes(reversed(header[128:192]))
    for image in (with_field("set_digest", 1), sealed(header, IMAGE)):
        with pytest.raises(CorruptStoreError, match="block checksum differs"):
            open_table(image).decode(0, 1, 10)
        with pytest.raises(reference.FormatError, match="block checksum differs"):
            reference.Table(image).verify()


def test_reserved_bytes_are_zero():
    for offset in (*range(88, 128), *range(192, 384), *range(449, 500), *range(4000, 4088)):
        header = header_fields(IMAGE)
        header[offset] = 1
        assert refusal(sealed(header, IMAGE)) is CorruptStoreError, offset


@settings(max_examples=200)
@given(st.integers(12, 460), st.integers(0, 255), st.integers(12, 460), st.integers(0, 255))
def test_changed_headers_under_a_right_checksum_are_judged_alike(first, value, second, other):
    header = header_fields(IMAGE)
    header[first], header[second] = value, other
    refusal(sealed(header, IMAGE))


def test_every_shorter_or_longer_file_is_an_error():
    for length in range(len(IMAGE)):
        assert refusal(IMAGE[:length]) is CorruptStoreError, length
    for extra in (1, 8, 4096):
        assert refusal(IMAGE + bytes(extra)) is CorruptStoreError


def test_shorter_file_is_an_error_even_with_a_header_made_for_it():
    """A header that claims the length that is there cannot also claim the sections."""
    for length in range(_kernel.HEADER_BYTES, len(IMAGE)):
        header = header_fields(IMAGE)
        header[72:80] = length.to_bytes(8, "little")
        assert refusal(sealed(header, IMAGE)[:length]) is CorruptStoreError, length


def hex_dumps(text: str) -> list[bytes]:
    """Read the dumps of a page: lines of an offset and up to 16 bytes.

    Lines that are left out are zeros.
    """
    dumps = []
    for block in re.findall(r"```text\n(.*?)```", text, re.DOTALL):
        data = bytearray()
        for line in block.splitlines():
            offset, values = line.split("  ")
            data += bytes(int(offset, 16) - len(data)) + bytes.fromhex(values)
        dumps.append(bytes(data))
    return dumps


def test_the_worked_example_of_the_format_page():
    text = FORMAT_PAGE.read_text()
    image, record = hex_dumps(text)
    rows = re.findall(r"^\| `(\w{16})` \| `(\w{16})` \|", text, re.MULTILINE)
    fingerprints, entries = ([int(row[i], 16) for row in rows] for i in (0, 1))
    image += bytes(4248 - len(image))
    readable = reference.Table(image)
    assert list(readable) == fingerprints
    assert list(readable.permuted()) == entries
    assert readable.verify() == sorted(fingerprints)
    header = readable.header
    assert (header.table, header.table_count, header.prefix_bits, header.flips) == (1, 2, 32, 1)
    seed = reference.block_seed(header.seed, 0, entries[-1], 0)
    for number in (header.set_digest, header.seed, seed):
        assert f"`{number:016x}`" in text
    permutation = np.roll(tableimage.IDENTITY, -8)
    design = {"table": 1, "table_count": 2, "prefix_bits": 32, "flips": 1}
    assert tableimage.build(np.array(fingerprints, np.uint64), permutation, 128, **design) == image
    assert open_table(image).decode(0, 1, 10)[0].tolist() == entries
    assert reference_records.decode_record(record, header.set_digest) == [
        [7],
        [8, 1000],
        [9],
        [10],
        [11],
        [12],
        [13],
    ]
