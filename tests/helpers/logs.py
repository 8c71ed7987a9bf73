"""Changes for logs, and what readers and writers make of the file of a log."""

import struct

import numpy as np
import pytest

from fpstore.format.log import BOOT, END, HEADER_BYTES, LogHeader, LogReader, end_word
from fpstore.format.log_writer import LogWriter, create_log
from fpstore.format.record import ID_KINDS, Change, Totals, pack_change

IDENTITY = bytes(range(16))
GENERATION = 3
HEADER = LogHeader(IDENTITY, GENERATION, 7, Totals(1, 2, 3, "string"), 64)
SEED = HEADER.seed
PAGE = 4096


def change(rows, strings=(), totals=(10, 20, 30, 0)):
    """Return a change of [(fingerprint, id, kind)]."""
    fingerprints, ids, kinds = (
        np.array([row[i] for row in rows], kind)
        for i, kind in enumerate((np.uint64, np.uint64, np.uint8))
    )
    return Change(Totals(*totals[:3], ID_KINDS[totals[3]]), kinds, fingerprints, ids, list(strings))


CHANGES = [
    change([]),
    change([(2**64 - 1, 5, 0)]),
    change(
        [(1, 2, 1), (3, 0, 2), (5, 6, 0)], [b"abc", b"", "schön".encode()], (100, 200, 2**63, 2)
    ),
    change([(7, 8, 0)] * 5, [b"x" * 100], (1, 1, 1, 1)),
    change([], [b"only a string"]),
    change([(9, 9, 4), (1, 2, 5), (3, 0, 6)]),
    change([(9, 9, 0)]),
]


def parts(change):
    return (
        tuple(change.totals[:3]),
        change.totals.id_kind,
        *(part.tolist() for part in change[1:4]),
        change.strings,
    )


def merged(changes):
    """Return several changes as the one change that a reader makes of them."""
    joined = [np.concatenate([part[i] for part in changes]) for i in range(1, 4)]
    return Change(
        changes[-1].totals, *joined, [string for part in changes for string in part.strings]
    )


def of_reference(record):
    totals, rows = record.totals, record.rows
    return change(rows, record.strings, totals)


def open_writer(path):
    return LogWriter(path, HEADER)


def open_reader(path):
    return LogReader(path, HEADER)


def read(path):
    """Return the numbers of the records and the change that a reader sees, or None."""
    reader = open_reader(path)
    try:
        pieces = list(reader.read(HEADER_BYTES, 1))
    finally:
        reader.close()
    return (pieces[-1].last, merged([piece.change for piece in pieces])) if pieces else (0, None)


def same(records, changes):
    number, joined = records
    return number == len(changes) and (
        joined is None if not changes else parts(joined) == parts(merged(changes))
    )


@pytest.fixture
def path(tmp_path):
    create_log(tmp_path / "log", HEADER)
    return tmp_path / "log"


@pytest.fixture
def full(path):
    """Return the path of a log with all the changes, and the places of its records."""
    writer = open_writer(path)
    places = []
    for each in CHANGES:
        places.append(writer.place)
        writer.append(pack_change(each), durable=True)
        writer.publish()
    writer.close()
    return path, [*places, path.stat().st_size]


def with_words(data, end=None, boot=None):
    """Return a log with other words in its header."""
    data = bytearray(data)
    if end is not None:
        struct.pack_into("<Q", data, 8 * END, end_word(end))
    if boot is not None:
        struct.pack_into("<Q", data, 8 * BOOT, boot)
    return bytes(data)


def check_writer(path, seen):
    """Check that a writer keeps what readers see, cuts the rest off, and appends."""
    writer = open_writer(path)
    assert writer.number == len(seen)
    assert path.stat().st_size == writer.place == writer.durable
    writer.append(pack_change(CHANGES[1]), durable=True)
    writer.publish()
    writer.close()
    assert same(read(path), [*seen, CHANGES[1]])
