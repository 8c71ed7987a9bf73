"""Stores that the build tests make.

Rows of every kind, what was built from them, and builds in other processes.
"""

import itertools
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tableimage
from small_stores import rows_in_order

import fpstore

MIB = 1 << 20


def tables_of(path):
    """Return the bytes of the tables and of their filters."""
    return {
        p.name: p.read_bytes()
        for kind in ("table-*.fpt", "filter-*.fpf")
        for p in sorted(path.glob(f"gen-*/{kind}"))
    }


def build(path, *args, **options):
    """Build, and return the table files and the rows that it decodes to."""
    with fpstore.build(path, *args, **options) as store:
        report = store.verify()
        assert report.ok, report.faults
        return tables_of(path), rows_in_order(store)


def make_rows(kind, count):
    rng = np.random.default_rng(7)
    if kind == "duplicates":
        fingerprints = rng.choice(rng.integers(0, 2**64, 50, np.uint64), count)
    elif kind == "one prefix":
        fingerprints = np.uint64(0xABCDEF << 40) | rng.integers(0, 2**20, count, np.uint64)
    elif kind == "all equal":
        fingerprints = np.full(count, 12345, np.uint64)
    elif kind == "shared low half":
        fingerprints = np.uint64(77) | rng.integers(0, 2**32, count, np.uint64) << np.uint64(32)
    else:
        fingerprints = rng.choice(tableimage.make_keys(kind, 5, count), count)
    return fingerprints, rng.permutation(np.arange(count, dtype=np.uint64) * np.uint64(3))


ROWS = (
    "random",
    "clustered",
    "skewed",
    "dense",
    "duplicates",
    "one prefix",
    "all equal",
    "shared low half",
)


def pieces(array, cuts=(0, 1, 1, 170, 400)):
    return [array[a:b] for a, b in itertools.pairwise((*cuts, len(array)))]


@pytest.fixture
def tiny(set_limits):
    """Let the least budget hold 64 rows: a few thousand are spilled, split again and merged."""
    set_limits(pair_bytes=MIB, sort_bytes=MIB, copy_rows=16, sample_step=4, decoded_entries=1)
    set_limits(table_memory=96 * MIB, table_thread_memory=1)


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def run_python(code, *args, stdin=None, wait=True):
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", textwrap.dedent(code), *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if wait:
        out, err = process.communicate(stdin, timeout=120)
        return process.returncode, out, err
    return process
