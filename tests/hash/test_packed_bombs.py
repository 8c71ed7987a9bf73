"""Compressed files that hold far more than their own bytes."""

import bz2
import io
import lzma

import pytest

from fpstore.io import files

MIB = 1 << 20


@pytest.mark.parametrize(("name", "compress"), [("a.bz2", bz2.compress), ("a.xz", lzma.compress)])
def test_little_more_is_unpacked_than_is_asked_for(name, compress, monkeypatch):
    longest = 0

    class Counted(bytearray):
        def extend(self, data):
            nonlocal longest
            super().extend(data)
            longest = max(longest, len(self))

    monkeypatch.setattr(files, "bytearray", Counted, raising=False)
    content = b"a" * (40 * MIB) + b"end"
    packed = compress(content) + compress(b"more")
    assert len(packed) < 10_000
    read = files.counting_reader(io.BytesIO(packed), name, name, lambda _: None)
    parts = list(iter(lambda: read(MIB), b""))
    assert longest <= 2 * MIB
    assert b"".join(parts) == content + b"more"
