"""Compressed files that hold far more than their own bytes."""

import bz2
import io
import lzma
import tracemalloc

import pytest

from fpstore.io import files

MIB = 1 << 20


@pytest.mark.parametrize(("name", "compress"), [("a.bz2", bz2.compress), ("a.xz", lzma.compress)])
def test_little_more_is_unpacked_than_is_asked_for(name, compress):
    content = b"a" * (40 * MIB) + b"end"
    packed = compress(content) + compress(b"more")
    assert len(packed) < 10_000
    read = files.counting_reader(io.BytesIO(packed), name, name, lambda _: None)
    tracemalloc.start()
    try:
        parts = [read(MIB)]
        # the part, as much beside it, and the window of the format
        assert tracemalloc.get_traced_memory()[1] <= (4 if name == "a.bz2" else 12) * MIB
    finally:
        tracemalloc.stop()
    parts += iter(lambda: read(MIB), b"")
    assert b"".join(parts) == content + b"more"
