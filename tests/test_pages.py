"""How tables get into memory: lazily, populated, or copied into huge pages. The answers are the same."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore.disk.pages import PAGES

N = 20_000
ROWS = np.random.default_rng(1).integers(0, 2**64, N, dtype=np.uint64)
QUERIES = np.concatenate([ROWS[:500] ^ np.uint64(5), ROWS[500:1000]])


def mappings(path: Path) -> list[dict[str, int]]:
    """Return kB of each mapping of tables of a store in this process."""
    parts = re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    tables = [part for part in parts if re.search(rf"{path}/.*\.fpt$", part, re.MULTILINE)]
    return [{name: int(kb) for name, kb in re.findall(r"^(\w+): +(\d+) kB", part, re.MULTILINE)} for part in tables]


@pytest.mark.parametrize("pages", PAGES)
@pytest.mark.parametrize("design", ["manku-4", "flip-2", "columns-4"])
def test_answers_are_the_same(tmp_path, design, pages):
    path = tmp_path / "a.fps"
    with fpstore.build(path, ROWS, np.arange(N), design=design) as store:
        expected = store.probe_many(QUERIES)
    with fpstore.open(path, pages=pages) as store:
        got = store.probe_many(QUERIES)
        assert np.array_equal(got.lims, expected.lims)
        assert np.array_equal(got.fingerprints, expected.fingerprints)
        assert store.probe(int(QUERIES[0]))[0].ids == [0]
        assert store.scan(QUERIES[1:2], 3).fingerprints.tolist() == [int(ROWS[1])]


def test_which_pages_are_there(tmp_path):
    path = tmp_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    with fpstore.open(path, pages="populated"):
        tables = mappings(path)
        assert tables
        assert all(table["Rss"] == table["Size"] for table in tables)
    with fpstore.open(path, pages="huge") as store:
        assert not mappings(path)
        assert store.probe(int(ROWS[0]))


def test_the_next_generation_is_opened_alike(tmp_path):
    path = tmp_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    with fpstore.open(path, pages="huge") as reader, fpstore.open(path, "r+", pages="huge") as writer:
        writer.insert([7], [7])
        writer.merge()
        assert writer.probe(7)[0].fingerprint == reader.probe(7)[0].fingerprint == 7
        assert not mappings(path)
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert copy.probe(7)
            assert not mappings(path)


@pytest.mark.parametrize("pages", PAGES)
def test_a_damaged_block_is_found(tmp_path, pages):
    path = tmp_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-1", radius=0).close()
    table = next(path.glob("gen-*/table-000.fpt"))
    with table.open("r+b") as file:
        file.seek(4096 * 4 + 100)
        byte = file.read(1)[0]
        file.seek(4096 * 4 + 100)
        file.write(bytes([byte ^ 1]))
    with fpstore.open(path, pages=pages) as store, pytest.raises(fpstore.CorruptStoreError):
        store.probe_many(ROWS)


def test_a_file_that_becomes_shorter(tmp_path, monkeypatch):
    """Between the checks of its header and the copy: what is left is not taken for the whole."""
    import os

    from fpstore.disk import pages

    path = tmp_path / "table"
    path.write_bytes(bytes(10_000))
    with path.open("rb") as file:
        size = os.fstat(file.fileno())
        os.truncate(path, 5_000)
        monkeypatch.setattr(pages.os, "fstat", lambda descriptor: size)
        with pytest.raises(fpstore.CorruptStoreError, match="shorter"):
            pages.in_memory(path, file.fileno(), "huge", 0)


@pytest.mark.parametrize("given", [{"pages": "huge"}, {"prefix_filter": True}])
def test_no_memory_is_a_memory_error(tmp_path, given):
    path = tmp_path / "a.fps"
    fpstore.build(path, ROWS, design="flip-2").close()
    code = f"""
import gc, mmap, os, resource
import fpstore
from fpstore.disk import pages
fpstore.open({str(path)!r}).close()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
pages.mmap.mmap = lambda fd, size, **options: mmap_of(fd, size if size == 0 or fd >= 0 else 1 << 40, **options)
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
before = len(os.listdir("/proc/self/fd"))
try:
    fpstore.open({str(path)!r}, **{given!r})
except MemoryError:
    print("MemoryError")
gc.collect()
assert len(os.listdir("/proc/self/fd")) == before
""".replace("import fpstore\n", "import fpstore\nmmap_of = mmap.mmap\n", 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "MemoryError\n"), done.stderr


def test_other_words_are_refused(tmp_path):
    fpstore.build(tmp_path / "a.fps", ROWS).close()
    with pytest.raises(fpstore.InputError, match="pages"):
        fpstore.open(tmp_path / "a.fps", pages="large")
