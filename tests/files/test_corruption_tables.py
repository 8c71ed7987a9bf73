"""Damaged table files: a flipped bit, a file that has grown, and forged blocks.

Forged blocks are such as no writer makes, under right checksums.

What a forged block says is read here leniently, also past its end, and the key is set to the last
entry found so: a kernel that takes the lengths on trust would return the entries.
"""

import struct

import numpy as np
import pytest
import reference
import tableimage
from bitarray import bitarray
from bitarray.util import ba2int, int2ba
from damage import FINGERPRINTS, NOTICED, TABLES, check, flips
from repairing import damage_block
from speeds import slow

import fpstore
from fpstore import _kernel
from fpstore.errors import CorruptStoreError
from fpstore.format.packed_table import PackedTable, make_directory


def sections(path):
    """Return the places of a table file that mean something: of the header, and all behind it."""
    return [*range(256), *range(4088, path.stat().st_size)]


def check_flips(copy, name, right, places, bits=1):
    """Every flip is noticed.

    The directory has no checksum: a probe checks what it uses of it, so the answers may be right.
    """
    directory = tableimage.open_table((copy / name).read_bytes()).directory_offset
    check(copy, name, right, flips([at for at in places if at < directory], bits), NOTICED)
    check(
        copy,
        name,
        right,
        flips([at for at in places if at >= directory], bits),
        NOTICED | {"noticed, right"},
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "step", "bits"),
    [(TABLES[1], 23, 1), (TABLES[0], 41, 1), *(slow(name, 1, 8) for name in TABLES)],
)
def test_flips_in_a_table_are_noticed(copy, right, name, step, bits):
    check_flips(copy, name, right, sections(copy / name)[::step], bits)


def test_a_table_that_has_grown_is_refused(copy):
    with (copy / TABLES[0]).open("ab") as file:
        file.write(b"\0")
    with pytest.raises(fpstore.CorruptStoreError, match="file size differs from the header"):
        fpstore.open(copy)


def test_verify_goes_on_after_a_fault(copy):
    for name in TABLES:
        damage_block(copy / name, 1)
    with fpstore.open(copy) as store:
        faults = store.verify().faults
    assert [(fault["path"], fault["block"]) for fault in faults] == [
        (str(copy / name), 1) for name in TABLES
    ]
    assert all("block 1: block checksum differs" in fault["message"] for fault in faults)


def test_errors_carry_the_facts(copy):
    damage_block(copy / TABLES[0], 2)
    with fpstore.open(copy) as store, pytest.raises(fpstore.CorruptStoreError) as caught:
        store.scan([0], 64)
    assert (str(caught.value.path), caught.value.block) == (str(copy / TABLES[0]), 2)
    assert caught.value.expected != caught.value.got


def test_damage_elsewhere_does_not_matter_to_a_probe(copy, right):
    """A probe reads, and checks, only the blocks it needs."""
    damage_block(copy / TABLES[1], 0)
    fine = failed = 0
    with fpstore.open(copy) as store:
        for fingerprint in FINGERPRINTS.tolist():
            try:
                assert store.probe(fingerprint)[0].fingerprint == fingerprint
                fine += 1
            except fpstore.CorruptStoreError:
                failed += 1
    assert failed > 0
    assert fine > 5 * failed


EVEN = np.array([6] * 64 + [0], np.uint8)
FITS_NOT = "block bit streams do not fit the block"


def image_of(code: np.ndarray, block_bytes: int) -> bytearray:
    keys = tableimage.make_keys("random", 1, 1200)
    image = bytearray(tableimage.build(keys, block_bytes=block_bytes, lengths=code))
    assert reference.parse_header(image, len(image)).block_count > 2
    return image


def forge(
    image: bytearray, symbols: list[int], *, count: int | None = None, code_bits: int | None = None
) -> tuple[_kernel.Table, list[int]]:
    """Replace block 0 by these symbols and random tails.

    Return the table and the entries as read leniently.
    """
    header = reference.parse_header(image, len(image))
    size = header.block_bytes
    book = reference.codebook(header.code_bits)
    codes = bitarray(endian="big")
    for symbol in symbols:
        codes += book[symbol]
    room = (size - reference.BLOCK_HEADER_BYTES) * 8 - len(codes)
    tails = bitarray(endian="big")
    tails.frombytes(np.random.default_rng(2).bytes(size))
    count = len(symbols) + 1 if count is None else count
    code_bits = len(codes) if code_bits is None else code_bits
    first = 0x0123456789ABCDEF
    payload = (codes + tails[:room]).tobytes()
    image[4096 : 4096 + size] = struct.pack("<IHHQ", 0, count, code_bits, first) + payload
    bits = bitarray(endian="big")
    bits.frombytes(bytes(image[4096 + reference.BLOCK_HEADER_BYTES : 4096 + 2 * size]))
    names = {code.to01(): symbol for symbol, code in book.items()}
    entries, at, tail_at = [first], 0, code_bits
    for _ in range(count - 1):
        end = next(end for end in range(at + 1, at + 17) if bits[at:end].to01() in names)
        h, at = names[bits[at:end].to01()], end
        entries.append(
            ba2int(int2ba(entries[-1], 64)[:h] + bitarray("1") + bits[tail_at : tail_at + 63 - h])
        )
        tail_at += 63 - h
    return resealed(image, entries[-1]), entries


def resealed(image: bytearray, key: int | None = None) -> _kernel.Table:
    """Open a table with another block 0, under a right checksum and perhaps another key."""
    header = reference.parse_header(image, len(image))
    at, end = header.keys_offset, 4096 + header.block_bytes
    if key is not None:
        image[at : at + 8] = key.to_bytes(8, "little")
    seed = reference.block_seed(header.seed, 0, int.from_bytes(image[at : at + 8], "little"), 0)
    image[4096:4100] = reference.block_sum(image[4096:end], seed).to_bytes(4, "little")
    return tableimage.open_table(bytes(image))


def refused(table: _kernel.Table, message: str) -> None:
    for use in (
        lambda: table.decode(0, 1, 0),
        lambda: table.scan(np.zeros(1, np.uint64), 64, 0, 1),
    ):
        with pytest.raises(CorruptStoreError, match=message):
            use()


@pytest.mark.parametrize("count", [0, reference.MAX_ENTRIES + 1, 65535])
def test_a_count_that_no_block_has(count):
    image = image_of(EVEN, 512)
    _, entries = forge(image, [5])
    image[4100:4102] = count.to_bytes(2, "little")
    table = resealed(image)
    refused(table, "block entry count out of range")
    with pytest.raises(CorruptStoreError, match="block entry count out of range"):
        table.locate(np.array(entries[-1:], np.uint64))


def test_entries_out_of_order_are_found_by_verify(tmp_path):
    """A search relies on the order, and only a reading of the whole table can tell."""
    image = bytearray(
        tableimage.build(tableimage.make_keys("random", 1, 12), block_bytes=512, lengths=EVEN)
    )
    _, entries = forge(image, [3, 9, 30, 30, 30, 60, 50, 40, 2, 1, 0])
    first = next(i for i in range(1, 12) if entries[i] <= entries[i - 1])
    (tmp_path / "t").write_bytes(image)
    with pytest.raises(CorruptStoreError, match=f"entry {first} is out of order") as caught:
        PackedTable(tmp_path / "t").verify()
    assert (caught.value.expected, caught.value.got) == (entries[first - 1], entries[first])


def test_a_table_of_another_set_than_its_header_says(tmp_path):
    """Verify adds up what it reads.

    Every checksum is right, made with the digest of the other set.
    """
    keys, others = (tableimage.make_keys("random", seed, 300) for seed in (1, 2))
    digest = _kernel.digest(others, tableimage.IDENTITY)
    blocks, block_keys, _ = tableimage.encode(
        keys, EVEN, 256, _kernel.block_seed(tableimage.IDENTITY, EVEN, digest)
    )
    header = _kernel.make_header(
        tableimage.IDENTITY, EVEN, digest, len(keys), len(block_keys), 256, 0, 1, 64, 0
    )
    (tmp_path / "t").write_bytes(
        header + blocks + block_keys.tobytes() + make_directory(block_keys).tobytes()
    )
    reader = PackedTable(tmp_path / "t")
    assert reader.kernel.decode(0, len(block_keys), 1000)[0].tolist() == keys.tolist()
    with pytest.raises(
        CorruptStoreError, match=f"set digest is {_kernel.digest(keys, tableimage.IDENTITY)}"
    ) as caught:
        reader.verify()
    assert caught.value.expected == digest


def test_codes_that_go_on_in_the_next_block():
    """Codes of six bits without tails, more than the block has room for.

    What follows would be read as if it belonged to it.
    """
    image = image_of(EVEN, 512)
    image[4096 + 512 : 4096 + 1024] = b"\xff" * 512
    fits = (512 - reference.BLOCK_HEADER_BYTES) * 8 // 6
    table, entries = forge(image, [63] * fits)
    assert table.decode(0, 1, 0)[0].tolist() == entries
    for more in (1, 5, 20, 50):
        table, entries = forge(
            image, [63] * fits, count=fits + more + 1, code_bits=6 * (fits + more)
        )
        assert len(entries) == fits + more + 1
        refused(table, FITS_NOT)


# --- Elias-Fano -----------------------------------------------------------------------------------


def forge_elias_fano(
    gaps: list[int], low_bits: int, *, count: int | None = None, key: int | None = None
) -> _kernel.Table:
    """Replace block 0 of a table by these gaps between high parts, with random low parts.

    The key is the last entry.
    """
    image = image_of(tableimage.NO_CODE, 256)
    highs = bitarray(endian="little")
    for gap in gaps:
        highs += bitarray("0" * gap + "1")
    lows = np.random.default_rng(1).integers(0, 1 << low_bits, len(gaps), np.uint64).tolist()
    for low in lows:
        highs += int2ba(low, low_bits, "little")
    payload = highs.tobytes()[:248].ljust(248, b"\0")
    image[4096 : 4096 + 256] = (
        struct.pack("<IHH", 0, len(gaps) if count is None else count, low_bits) + payload
    )
    return resealed(image, sum(gaps) << low_bits | lows[-1] if key is None else key)


GAPS = [0, 3, 1, 0, 0, 7, 20, 2, 1]


@pytest.mark.parametrize("low_bits", [1, 13, 56])
def test_a_forged_elias_fano_block_that_claims_the_truth_is_read(low_bits):
    table = forge_elias_fano(GAPS, low_bits)
    result = table.decode(0, 1, 0)[0]
    assert (result >> np.uint64(low_bits)).tolist() == np.cumsum(GAPS).tolist()


@pytest.mark.parametrize("low_bits", [64, 200, 65535])
def test_low_parts_that_are_too_long(low_bits):
    image = image_of(tableimage.NO_CODE, 256)
    image[4102:4104] = low_bits.to_bytes(2, "little")
    refused(resealed(image), FITS_NOT)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"count": len(GAPS) + n} for n in (-1, 1, 51, 121)),
        *({"key": sum(GAPS) + n << 13} for n in (1, 5, 1000, 1 << 40)),
    ],
)
def test_high_parts_that_are_not_as_the_count_and_the_key_say(wrong):
    refused(forge_elias_fano(GAPS, 13, **wrong), f"{FITS_NOT}|key index does not match the block")
