"""Log records: what is packed is unpacked, and nothing else is taken for one."""

import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from fpstore.errors import CorruptStoreError
from fpstore.query.delta import Record, Totals, pack, unpack

PATH = Path("log")
words = st.integers(0, 2**64 - 1)


@st.composite
def records(draw):
    rows = draw(st.lists(st.tuples(words, words, st.integers(0, 2)), max_size=5))
    totals = Totals(draw(words), draw(words), draw(words), draw(st.sampled_from(["row", "integer", "string"])))
    names = draw(st.lists(st.binary(max_size=9), max_size=4))
    kinds, fingerprints, ids = (
        np.array([row[i] for row in rows], kind) for i, kind in ((2, np.uint8), (0, np.uint64), (1, np.uint64))
    )
    return Record(draw(words), totals, kinds, fingerprints, ids, names)


def plain(record):
    return [part.tolist() if isinstance(part, np.ndarray) else part for part in record]


@given(records())
def test_a_record_comes_back(record):
    assert plain(unpack(pack(record), PATH)) == plain(record)


@given(records(), st.data())
def test_a_damaged_record_is_refused(record, data):
    packed = bytearray(pack(record))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptStoreError):
        unpack(bytes(packed), PATH)


def sealed(data):
    return data[:8] + xxhash.xxh64_digest(data[16:])[::-1] + data[16:]


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(48, "I", 2), (48, "I", 2**32 - 1), (48, "I", 0), (52, "I", 2), (52, "I", 0), (52, "I", 2**32 - 1), (56, "I", 3),
     (80, "B", 3), (81, "I", 2**31), (81, "I", 4)],
)  # fmt: skip
def test_a_record_that_says_what_cannot_be_is_refused(at, form, value):
    """Under a right checksum: lengths that lead outside, unknown kinds."""
    one = np.ones(1, np.uint64)
    good = pack(Record(1, Totals(1, 1, 1, "row"), np.zeros(1, np.uint8), one, one, [b"abc"]))
    assert unpack(sealed(good), PATH).names == [b"abc"]
    forged = bytearray(good)
    struct.pack_into("<" + form, forged, at, value)
    with pytest.raises(CorruptStoreError, match="log record 1 is malformed"):
        unpack(sealed(bytes(forged)), PATH)
