"""The kernel's codec against the readable decoder of reference.py and plain NumPy."""

import numpy as np
import pytest
import reference
import tableimage
from hypothesis import example, given
from tableimage import NO_CODE, check_index, codec_settings, key_sets, make_keys, open_table

from fpstore import _kernel
from fpstore.design.blocks import CODECS
from fpstore.errors import CorruptStoreError
from fpstore.format.packed_table import make_directory


def read_in_turn(table: _kernel.Table, blocks: int, room: int) -> None:
    start = 0
    while start < blocks:
        _, _, end = table.decode(start, blocks, room)
        assert end > start
        start = end


def test_decode_stops_when_the_room_is_used():
    """However little room is asked for, two of the fullest blocks are decoded."""
    keys = make_keys("dense", 5, 200_000)
    table = open_table(tableimage.build(keys, block_bytes=4096))
    values, counts, end = table.decode(0, table.block_count, 100_000)
    assert 0 < end < table.block_count
    assert 0 < len(values) == counts.sum() <= 100_000
    assert 2 <= table.decode(0, table.block_count, 0)[2] <= end
    rest, _, stop = table.decode(end, table.block_count, len(keys))
    assert stop == table.block_count
    assert np.array_equal(np.concatenate([values, rest]), keys)


@pytest.mark.parametrize("count", [0, 1, 32769, 65535])
def test_a_changed_count_is_an_error_whatever_the_room(count):
    """Not an empty answer, which would have a reader ask for the same blocks for ever."""
    image = tableimage.build(make_keys("random", 6, 30), block_bytes=128)
    blocks = open_table(image).block_count
    for changed in ([0], [1], range(blocks)):
        damaged = bytearray(image)
        for block in changed:
            at = 4096 + 128 * block + 4
            damaged[at : at + 2] = count.to_bytes(2, "little")
        table = open_table(bytes(damaged))
        for room in (0, 65536, 131072):
            with pytest.raises(CorruptStoreError):
                read_in_turn(table, blocks, room)


def test_an_empty_table():
    image = tableimage.build(np.empty(0, np.uint64))
    assert len(image) == 4096 + 16
    assert reference.Table(image).verify() == []
    table = open_table(image)
    check_index(image)
    assert table.locate_one(5) is None
    assert table.decode(0, 0, 1)[2] == 0
    prober = _kernel.Prober()
    prober.add(table, 10, 0, np.zeros(1, np.uint64))
    assert prober.probe(np.zeros(3, np.uint64), 64)[0].tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "lengths",
    [[1], [1, 0], [0, 2, 2], [1, 1, 1], [1, 2, 3], [17, 17, 16, *range(15, 0, -1)], [255, 1]],
    ids=["one", "half", "incomplete", "over", "short", "17 bits", "255 bits"],
)
def test_encoder_refuses_a_code(lengths):
    padded = np.array([*lengths, *[0] * (65 - len(lengths))], np.uint8)
    with pytest.raises(reference.FormatError):
        reference.check_code(padded.tolist())
    with pytest.raises(ValueError, match="complete code"):
        _kernel.BlockEncoder(padded, 128, 0)


@pytest.mark.parametrize("block_bytes", [0, 64, 127, 129, 384, 8192])
def test_encoder_refuses_a_block_size(block_bytes):
    with pytest.raises(ValueError, match="power of two"):
        _kernel.BlockEncoder(tableimage.code_lengths([1, 1]), block_bytes, 0)


@pytest.mark.parametrize("lengths", [None, NO_CODE], ids=CODECS)
def test_a_key_beyond_the_last_entry_is_found_though_every_checksum_is_right(lengths):
    """What only a faulty or hostile writer can make.

    Whoever looks for such a key is told, not answered.
    """
    keys = make_keys("random", 5, 12)
    image = bytearray(tableimage.build(keys, block_bytes=256, lengths=lengths))
    header = reference.parse_header(image, len(image))
    assert header.block_count == 1
    key = int(keys[-1]) + 1
    seed = reference.block_seed(header.seed, 0, key, 0)
    image[4096:4100] = reference.block_sum(image[4096 : 4096 + 256], seed).to_bytes(4, "little")
    image[header.keys_offset : header.keys_offset + 8] = key.to_bytes(8, "little")
    table = open_table(bytes(image))
    prober = _kernel.Prober()
    prober.add(table, 64, 0, np.zeros(1, np.uint64))
    wanted = np.array([key], np.uint64)
    for use in (
        lambda: table.locate(wanted),
        lambda: table.locate_one(key),
        lambda: prober.probe(wanted, 0),
        lambda: table.decode(0, 1, 0),
        lambda: table.scan(wanted, 0, 0, 1),
    ):
        with pytest.raises(CorruptStoreError, match="key index does not match the block"):
            use()
    assert table.locate_one(int(keys[3])) == (0, 3)


@codec_settings(40)
@given(key_sets(600))
@example(np.empty(0, np.uint64))
@example(make_keys("random", 1, 7))
@example(make_keys("random", 1, 15))
@example(make_keys("random", 1, 16))
def test_make_directory(keys):
    bits = reference.directory_bits_for(len(keys))
    assert make_directory(keys).tolist() == reference.make_directory(keys.tolist(), bits)
