"""Input files: what tests write into them, and what readers make of them."""

import json
from collections.abc import Iterable

import numpy as np

from fpstore.base.width import Width
from fpstore.io import open_reader
from fpstore.io.digits import Digits, check_signed, read_digits

MAX = 2**64 - 1


def read(paths, **options):
    """Return all rows of a reader as plain lists."""
    fingerprints, ids = [], None
    for chunk in open_reader(paths, **options):
        assert chunk.fingerprints.dtype == np.uint64
        assert chunk.fingerprints.ndim == 1
        fingerprints += chunk.fingerprints.tolist()
        if chunk.ids is not None:
            if isinstance(chunk.ids, np.ndarray):
                assert chunk.ids.dtype == np.uint64
            assert len(chunk.ids) == len(chunk.fingerprints)
            ids = (ids or []) + list(
                chunk.ids if isinstance(chunk.ids, list) else chunk.ids.tolist()
            )
    return fingerprints, ids


def parse_fingerprint(text, decimal=False, width=64, signed=False):
    """Return the fingerprint that is written in digits."""
    return read_digits(text, Digits(Width(width), decimal, check_signed(signed, Width(width))))


def json_lines(rows: Iterable[object]) -> str:
    """Return a line of JSON for each row."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path
