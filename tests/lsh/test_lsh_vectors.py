"""Known answers: what docs/format.md says of keys is what the kernel makes, for ever."""

import re
from pathlib import Path

import numpy as np
import pytest
import reference_lsh

from fpstore.lsh.keys import EntryLayout, band_keys

PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text(encoding="utf-8")
SKETCH = [0x00000000, 0x2545F491, 0x4A8BE922, 0x6FD1DDB3, 0x9517D244, 0xBA5DC6D5]
LONG = [n * 0x9E3779B1 % 2**32 for n in range(40)]


@pytest.mark.parametrize(
    ("sketch", "bands", "rows", "keys"),
    [
        (SKETCH, 2, 3, [0x03B61A6D0FE824C1, 0xBB0EC704B1238601]),
        ([0, 1, 0xFFFFFFFF], 3, 1, [0x47848A7571B87D9C, 0xDDA2B4F7476D4D45, 0xDDB2BD76EC9E7461]),
    ],
)
def test_keys_of_bands(sketch, bands, rows, keys):
    assert band_keys(np.array([sketch], np.uint32), bands, rows).tolist() == [keys]
    assert reference_lsh.band_keys(sketch, bands, rows) == keys


@pytest.mark.parametrize("rows", range(1, 41))
def test_keys_are_those_of_the_reference(rows):
    bands = len(LONG) // rows
    assert band_keys(np.array([LONG], np.uint32), bands, rows).tolist() == [
        reference_lsh.band_keys(LONG, bands, rows)
    ]


def test_entries():
    keys = np.array([[0x03B61A6D0FE824C1, 0xBB0EC704B1238601]], np.uint64)
    assert EntryLayout(12, 20).entries(keys, np.array([5], np.uint64)).tolist() == [
        0x03B00005,
        0xBB000005,
    ]


def test_the_page_has_these():
    section = PAGE[PAGE.index("\n## LSH index\n") : PAGE.index("\n## Limits\n")]
    named = re.search(r"The sketch ((?:[0-9a-f]{8} ?)+)", section)
    assert named is not None
    assert [int(word, 16) for word in named[1].split()] == SKETCH
    assert re.findall(r"`([0-9a-f]{16})`", section) == [
        *("03b61a6d0fe824c1", "bb0ec704b1238601"),
        *("0000000003b00005", "00000000bb000005"),
    ]
