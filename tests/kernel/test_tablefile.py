"""Tables read a part at a time: the same entries as through a mapping, and the same faults."""

import os

import numpy as np
import pytest
import tableimage
from repairing import flip

import fpstore
from fpstore import _kernel
from fpstore.design.blocks import BlockPacking
from fpstore.format import packed_table as tablefile
from fpstore.format.huffman import GapHistogram
from fpstore.format.layout import TableLayout
from fpstore.format.mapping import MAPPING_DESIGN
from fpstore.format.packed_table import PackedTable, PackedWriter


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "s"
    keys = tableimage.make_keys("clustered", 3, 3000)
    fpstore.build(path, keys, radius=2, design="blocks-3-1", block_bytes=128).close()
    return path / "gen-00000001" / "table-001.fpt"


def test_parts_decode_to_what_the_whole_table_does(path):
    table, data = PackedTable(path).kernel, path.read_bytes()
    parts = _kernel.TableParts(np.frombuffer(data[:4096], np.uint8), len(data), str(path))
    keys = np.frombuffer(data, "<u8", table.block_count, table.keys_offset)
    assert table.block_count > 100
    for first, count in [
        (0, 1),
        (0, 40),
        (1, 1),
        (1, 60),
        (7, 0),
        (table.block_count - 1, 1),
        (5, table.block_count - 5),
    ]:
        blocks = np.frombuffer(
            data, np.uint8, count * 128 + _kernel.OVERREAD_BYTES, 4096 + 128 * first
        ).copy()
        known = np.concatenate(
            [
                keys[first - 1 : first] if first else np.zeros(1, np.uint64),
                keys[first : first + count],
            ]
        )
        values, counts = parts.decode(blocks, known, first, 1 << 20)
        expected, expected_counts, end = table.decode(first, first + count, 1 << 20)
        assert end == first + count
        assert values.tolist() == expected.tolist()
        assert counts.tolist() == expected_counts.tolist()
        if count:
            for wrong in (known[:-1], np.append(known, known[-1:])):
                with pytest.raises(IndexError):
                    parts.decode(blocks, wrong, first, 1)
            known[0] ^= np.uint64(1)
            if first:  # the key of the block before is in the checksum of the first
                with pytest.raises(fpstore.CorruptStoreError) as caught:
                    parts.decode(blocks, known, first, 1)
                assert caught.value.block == first
    with pytest.raises(IndexError):
        parts.decode(
            np.zeros(2 * 128 + 16, np.uint8), np.zeros(3, np.uint64), table.block_count - 1, 1
        )


@pytest.mark.parametrize("more", [-1, 1])
def test_table_with_another_key_count_than_declared_is_refused(tmp_path, more):
    keys = np.arange(100, dtype=np.uint64)
    histogram = GapHistogram()
    histogram.add(keys)
    writer = PackedWriter(
        tmp_path / "table",
        TableLayout(MAPPING_DESIGN, 0, BlockPacking(128), len(keys) - more, 0, histogram.counts),
    )
    writer.feed(keys)
    with pytest.raises(
        fpstore.CorruptStoreError, match=f"would hold 100 keys instead of {100 - more}"
    ):
        writer.finish()
    writer.abort()


@pytest.mark.parametrize("room", [1, 1 << 18])
@pytest.mark.parametrize("piece_bytes", [1, 640, 1 << 20])
def test_pieces_of_any_size(path, set_limits, room, piece_bytes):
    set_limits(decoded_entries=room, table_bytes=piece_bytes)
    table = PackedTable(path)
    expected, expected_counts, _ = table.kernel.decode(0, table.kernel.block_count, 1 << 20)
    pieces = list(table.pieces())
    assert np.concatenate([values for values, _ in pieces]).tolist() == expected.tolist()
    assert np.concatenate([counts for _, counts in pieces]).tolist() == expected_counts.tolist()
    table.verify()


@pytest.mark.parametrize("block", [0, 1, 33, -1])
def test_the_number_of_a_damaged_block(path, tmp_path, block):
    copy = tmp_path / "t"
    copy.write_bytes(path.read_bytes())
    block %= PackedTable(copy, None).header.block_count
    flip(copy, 4096 + 128 * block + 40)
    with pytest.raises(fpstore.CorruptStoreError, match=f"block {block}: ") as caught:
        PackedTable(copy, None).verify()
    assert (caught.value.path, caught.value.block) == (str(copy), block)


@pytest.fixture
def changing(path, tmp_path):
    """Return a copy that is open, to be changed."""
    copy = tmp_path / "t"
    copy.write_bytes(path.read_bytes())
    return PackedTable(copy, None)


def test_file_longer_or_shorter_than_when_opened_is_an_error(changing):
    size = changing.header.file_bytes
    for wrong in (size + 1, size - 1):
        os.truncate(changing.path, wrong)
        with pytest.raises(
            fpstore.CorruptStoreError, match=f"has {wrong} bytes, its header says {size}"
        ) as caught:
            changing.verify()
        assert (caught.value.expected, caught.value.got) == (size, wrong)
    os.truncate(changing.path, size)
    with changing.path.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"\1")  # in the directory
    with pytest.raises(fpstore.CorruptStoreError):
        changing.check_index()


def test_sampled_keys_are_those_of_every_so_many_blocks(path):
    table = PackedTable(path)
    keys = table.read_keys(0, table.kernel.block_count).tolist()
    for step in (1, 2, tablefile.SPARSE - 1, tablefile.SPARSE, 100, len(keys), len(keys) + 1):
        assert table.sample_keys(step).tolist() == keys[::step]
