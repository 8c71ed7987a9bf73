"""How tables get into memory: lazily, populated, or copied into huge pages.

The answers are the same.
"""

import ctypes
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore import _kernel
from fpstore.disk import mapped
from fpstore.disk.mapped import PAGES, PIECE, StoredFile

N = 20_000
ROWS = np.random.default_rng(1).integers(0, 2**64, N, dtype=np.uint64)
QUERIES = np.concatenate([ROWS[:500] ^ np.uint64(5), ROWS[500:1000]])


def mappings(path: Path) -> list[dict[str, int]]:
    """Return kB of each mapping of a file, or of the tables of a store, in this process."""
    parts = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    tables = [part for part in parts if re.search(rf"{path}(/.*\.fpt)?$", part, re.MULTILINE)]
    return [
        {name: int(kb) for name, kb in re.findall(r"^(\w+): +(\d+) kB", part, re.MULTILINE)}
        for part in tables
    ]


@pytest.mark.parametrize("design", ["manku-4", "flip-2", "columns-4"])
def test_answers_are_the_same(disk_path, design):
    path = disk_path / "a.fps"
    with fpstore.build(path, ROWS, np.arange(N), design=design) as store:
        expected = store.probe_many(QUERIES)
    for pages in PAGES:
        with fpstore.open(path, pages=pages) as store:
            got = store.probe_many(QUERIES)
            assert np.array_equal(got.lims, expected.lims)
            assert np.array_equal(got.fingerprints, expected.fingerprints)
            assert store.probe(int(QUERIES[0]))[0].ids == [0]
            assert store.scan(QUERIES[1:2], 3).fingerprints.tolist() == [int(ROWS[1])]


def test_which_pages_are_there(disk_path):
    path = disk_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    with fpstore.open(path, pages="populated"):
        tables = mappings(path)
        assert tables
        assert all(table["Rss"] == table["Size"] for table in tables)
    with fpstore.open(path, pages="huge") as store:
        assert not mappings(path)
        assert store.probe(int(ROWS[0]))


def cached_bytes(path: Path) -> int | None:
    """Return how much of a file is in the page cache, or None if the system does not tell."""

    class Range(ctypes.Structure):
        _fields_ = (("start", ctypes.c_uint64), ("bytes", ctypes.c_uint64))

    class State(ctypes.Structure):
        _fields_ = tuple(
            (name, ctypes.c_uint64)
            for name in ("cached", "dirty", "written", "evicted", "recently")
        )

    state = State()
    with path.open("rb") as file:
        whole_file = Range(0, path.stat().st_size)
        if ctypes.CDLL(None).syscall(
            451, file.fileno(), ctypes.byref(whole_file), ctypes.byref(state), 0
        ):
            return None
    return state.cached * 4096


def mapped_bytes(path: Path) -> int:
    """Return how many bytes of a new mapping of a file are there after map_cached."""
    file = StoredFile(path)
    file.map_for_probes("lazy")
    file.map_cached_pages()
    (result,) = mappings(path)
    return 1024 * result["Rss"]


def test_cached_pages_are_mapped(disk_path):
    for size in (1, 4096, 4097, 1 << 20, PIECE - 1, PIECE + 1):
        path = disk_path / str(size)
        path.write_bytes(bytes(size))
        whole = -(-size // 4096) * 4096
        assert mapped_bytes(path) == (whole if cached_bytes(path) == whole else 0)
    with pytest.raises(ValueError, match="not in the mapping"):
        _kernel.map_cached_pages(0, np.zeros(4096, np.uint8), 4096, 1)


@pytest.mark.parametrize("evicted", [0, PIECE])
def test_of_a_piece_that_is_partly_on_disk_nothing_is_mapped(disk_path, evicted):
    path = disk_path / "a"
    size = PIECE + (1 << 20)
    with path.open("wb") as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), evicted, 1 << 20, os.POSIX_FADV_DONTNEED)
    mapped, there = mapped_bytes(path), cached_bytes(path)
    # a system that does not tell, or a file system in memory, which evicts nothing
    if not there or there == size:
        assert mapped == (there or 0)
    elif there == size - (1 << 20):
        assert mapped == (1 << 20 if evicted == 0 else PIECE)
    else:  # a system that needs memory evicts more, and one with large pages less
        assert mapped <= there


@pytest.mark.sampled(1)
@pytest.mark.parametrize("design", ["manku-4", "flip-2", "columns-4"])
def test_a_large_batch_maps_all_that_is_cached(disk_path, design):
    """A small one does not."""
    path = disk_path / "a.fps"
    rows = np.random.default_rng(2).integers(0, 2**64, 1 << 18, dtype=np.uint64)
    fpstore.build(path, rows, design=design).close()
    table = path / "gen-00000001" / "table-000.fpt"
    known = cached_bytes(table) == -(-table.stat().st_size // 4096) * 4096

    def is_whole(store: fpstore.Store, count: int) -> bool:
        matches = store.probe_many(np.full(count, rows[0]))
        assert len(matches.fingerprints) == count
        return all(table["Rss"] == table["Size"] for table in mappings(path))

    with fpstore.open(path) as store:
        is_whole(store, 1)  # one look-up may meet the only large page of a table
        assert not store.snapshot().generation.has_mapped
        assert not is_whole(store, 1000)
        assert is_whole(store, 1 << 12) == known


def test_the_next_generation_is_opened_alike(disk_path):
    path = disk_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    with (
        fpstore.open(path, pages="huge") as reader,
        fpstore.open(path, "r+", pages="huge") as writer,
    ):
        writer.insert([7], [7])
        writer.merge()
        assert writer.probe(7)[0].fingerprint == reader.probe(7)[0].fingerprint == 7
        assert not mappings(path)
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert copy.probe(7)
            assert not mappings(path)


def test_a_damaged_block_is_found(disk_path):
    path = disk_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-1", radius=0).close()
    table = next(path.glob("gen-*/table-000.fpt"))
    image = bytearray(table.read_bytes())
    image[4096 * 4 + 100] ^= 1
    table.write_bytes(image)
    for pages in PAGES:
        with fpstore.open(path, pages=pages) as store, pytest.raises(fpstore.CorruptStoreError):
            store.probe_many(ROWS)


def test_a_file_that_becomes_shorter(disk_path, monkeypatch):
    """Between the checks of its header and the copy: what is left is not taken for the whole."""
    path = disk_path / "table"
    path.write_bytes(bytes(10_000))
    file = StoredFile(path)
    size = os.fstat(file.fileno())
    os.truncate(path, 5_000)
    monkeypatch.setattr(mapped.os, "fstat", lambda descriptor: size)
    with pytest.raises(fpstore.CorruptStoreError, match="shorter"):
        file.map_for_probes("huge")


@pytest.mark.full
def test_no_memory_is_a_memory_error(disk_path):
    path = disk_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    code = f"""
import gc, mmap, os, resource
import fpstore
from fpstore.disk import mapped
fpstore.open({str(path)!r}).close()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
def too_much(fd, size, **options):
    return mmap_of(fd, size if size == 0 or fd >= 0 else 1 << 40, **options)
mapped.mmap.mmap = too_much
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
before = len(os.listdir("/proc/self/fd"))
try:
    fpstore.open({str(path)!r}, pages="huge")
except MemoryError:
    print("MemoryError")
gc.collect()
assert len(os.listdir("/proc/self/fd")) == before
""".replace("import fpstore\n", "import fpstore\nmmap_of = mmap.mmap\n", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr
