"""Stores of every width on disk: what of a damaged word or block is found, what merges keep, and statistics."""

import numpy as np
import pytest
import reference
from repairing import GENERATION, content
from speeds import SOME_WIDTHS
from wide import alike_numbers

import fpstore
from fpstore import _kernel
from fpstore.care.stats import distribution
from fpstore.format.layout import table_name
from fpstore.format.packed_table import PackedTable

P1 = 0x9E3779B185EBCA87  # of XXH64


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_a_merge_that_chooses_a_design_keeps_the_width(tmp_path, bits):
    """It made tables for 64 bits: by name, and where `auto` chose again because the set had grown."""
    numbers = [number >> 8 << 8 for number in alike_numbers(bits)]
    fpstore.build(tmp_path / "s", numbers[:10], width=bits, radius=2).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for step, design in ((200, None), (300, "flip-2"), (400, "blocks-3-1"), (500, "auto")):
            store.insert(numbers[step - 200 : step])
            store.redesign(design)
            assert (store.width, store.design.width.bits) == (bits, bits)
            assert design in (None, "auto", store.design.name)
            assert store.verify().ok
            assert all(number in store for number in numbers[:step])


def test_a_key_behind_the_leading_word_is_damaged(tmp_path):
    """A look-up trusted the words behind the leading word of a key, and missed what the next block has."""
    numbers = [(1 << 255) + i for i in range(0, 2000, 2)]
    path = tmp_path / "s"
    fpstore.build(path, numbers, width=256, radius=0, design="flip-1", block_bytes=128).close()
    kernel = PackedTable(path / GENERATION / table_name(0)).kernel
    blocks = kernel.block_count
    with fpstore.open(path) as store:
        place = kernel.keys_offset + 8 * blocks + 24 * (blocks // 2) + 16  # the last word of a key in the middle
        with (path / GENERATION / table_name(0)).open("r+b") as file:
            file.seek(place)
            file.write((2**64 - 1).to_bytes(8, "little"))
        missed = []
        for number in numbers:
            try:
                missed += [] if number in store else [number]
            except fpstore.CorruptStoreError:
                continue
        assert missed == []
        assert not store.verify().ok


def test_bits_behind_a_narrow_fingerprint_are_refused(tmp_path):
    """A block under a right checksum whose first entry had more than 32 bits: its distances were wrong."""
    path = tmp_path / "s"
    fpstore.build(path, alike_numbers(32), width=32, radius=2, design="flip-1", block_bytes=128).close()
    file = path / GENERATION / table_name(0)
    kernel = PackedTable(file).kernel
    seed = _kernel.block_seed(
        np.frombuffer(kernel.permutation, np.uint8), np.frombuffer(kernel.code_bits, np.uint8), kernel.set_digest
    )
    data = bytearray(file.read_bytes())
    data[4096 + 8] |= 1
    checksum = reference.block_sum(data[4096 : 4096 + 128], (seed + kernel.key_of(0) * P1) % 2**64)
    data[4096 : 4096 + 4] = checksum.to_bytes(4, "little")
    file.write_bytes(data)
    with fpstore.open(path) as store:
        assert "bit streams do not fit" in store.verify().faults[0]["message"]
        with pytest.raises(fpstore.CorruptStoreError, match="block 0"):
            store.scan([0], 32)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_statistics(tmp_path, bits):
    """The tails and the words behind them fill the blocks, whatever the width."""
    path, numbers = tmp_path / "s", alike_numbers(bits)
    fpstore.build(path, numbers, radius=2, design="blocks-3-1", block_bytes=128, width=bits).close()
    with fpstore.open(path) as store:
        stats = store.stats()
    table = distribution(PackedTable(path / GENERATION / table_name(0)))
    assert stats["fingerprints"] == len(content(path)) == len(numbers)
    assert sum(table["h"].values()) == len(numbers) - 1
    assert max(table["h"]) < {32: 32, 64: 64}.get(bits, 65)
    assert (64 in table["h"]) == (bits > 64)
    assert 0.5 < table["fill"] <= 1
    assert 0 < stats["limit_bits_per_fingerprint"] < bits
