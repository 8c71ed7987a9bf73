"""Compressed outputs: kept rows, lists of jobs and answers, each by the extension of its name."""

import bz2
import gzip
import json
import lzma
import random
from pathlib import Path

import numpy as np
import pytest
import zstandard
from commandline import failure, fine

import fpstore
from fpstore.io import open_reader, open_writer
from fpstore.io.sink import COMPRESSED_AT_ONCE, Sink

UNPACKED = {
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}
GZIP_TIME = slice(4, 8)  # RFC 1952, section 2.3
TEXT_FIELD = ("--text-field", "text")


@pytest.fixture(params=UNPACKED)
def extension(request):
    return request.param


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"url": f"u{n}", "text": f"page {n // 2} has the words {n // 2}"} for n in range(20)]
    lines = [json.dumps(row) for row in rows]
    Path("a.jsonl").write_text("\n".join(lines) + "\n")
    Path("a.csv").write_text(
        "url,text\n" + "".join(f"{row['url']},{row['text']}\n" for row in rows)
    )
    return tmp_path


@pytest.mark.parametrize("name", ["tsv", "csv", "txt", "jsonl"])
def test_rows_of_writers_come_back(tmp_path, extension, name):
    path = tmp_path / f"a.{name}{extension}"
    fingerprints = np.arange(5000, dtype=np.uint64) << np.uint64(40)
    with open_writer(path, columns=["fingerprint", "id"]) as writer:
        writer.write({"fingerprint": fingerprints, "id": fingerprints})
    (chunk,) = open_reader(path)
    assert np.array_equal(chunk.fingerprints, fingerprints)
    assert np.array_equal(chunk.ids, fingerprints)
    plain = tmp_path / f"a.{name}"
    with open_writer(plain, columns=["fingerprint", "id"]) as writer:
        writer.write({"fingerprint": fingerprints, "id": fingerprints})
    assert UNPACKED[extension](path.read_bytes()) == plain.read_bytes()


@pytest.mark.full
def test_bytes_do_not_depend_on_the_size_of_writes(tmp_path, extension):
    rng = random.Random(1)
    words = [b"one ", b"two ", b"three ", b"\n"]
    data = b"".join(rng.choices(words, k=COMPRESSED_AT_ONCE // 2))
    results = set()
    for size in (len(data), COMPRESSED_AT_ONCE, 77_777, COMPRESSED_AT_ONCE + 1):
        path = tmp_path / f"{size}.txt{extension}"
        with Sink(path, packed=True) as sink:
            for start in range(0, len(data), size):
                sink.write(data[start : start + size])
        results.add(path.read_bytes())
    (result,) = results
    assert UNPACKED[extension](result) == data
    if extension == ".gz":
        assert result[GZIP_TIME] == bytes(4)


def test_nothing_written_is_an_empty_frame(tmp_path, extension):
    with Sink(tmp_path / f"a.txt{extension}", packed=True):
        pass
    data = (tmp_path / f"a.txt{extension}").read_bytes()
    assert data
    assert UNPACKED[extension](data) == b""


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_kept_rows_and_lists_of_jobs(here, extension, name):
    fine("dedup", f"a.{name}", f"b.{name}", *TEXT_FIELD, "--removed", "r.csv", "-q")
    fine(
        "dedup",
        *(f"a.{name}", f"b.{name}{extension}", *TEXT_FIELD),
        *("--removed", f"r.csv{extension}", "--clusters", f"c.jsonl{extension}", "-q"),
    )
    for path in (f"b.{name}", "r.csv"):
        packed = UNPACKED[extension](Path(f"{path}{extension}").read_bytes())
        assert packed == Path(path).read_bytes()
    assert len(UNPACKED[extension](Path(f"c.jsonl{extension}").read_bytes()).splitlines()) == 20
    fine("boilerplate", f"b.{name}{extension}", f"d.{name}{extension}", *TEXT_FIELD, "-q")
    assert (
        UNPACKED[extension](Path(f"d.{name}{extension}").read_bytes())
        == Path(f"b.{name}").read_bytes()
    )


@pytest.mark.full
def test_plans_write_the_bytes_of_one_process(here, extension):
    arguments = (*TEXT_FIELD, "-q", "--removed")
    fine("dedup", "a.jsonl", f"b.jsonl{extension}", *arguments, f"r.tsv{extension}")
    fine(
        "dedup",
        *("a.jsonl", f"c.jsonl{extension}", *arguments, f"s.tsv{extension}", "--processes", 1),
    )
    assert Path(f"b.jsonl{extension}").read_bytes() == Path(f"c.jsonl{extension}").read_bytes()
    assert Path(f"r.tsv{extension}").read_bytes() == Path(f"s.tsv{extension}").read_bytes()
    assert len(UNPACKED[extension](Path(f"r.tsv{extension}").read_bytes()).splitlines()) == 11


def test_answers_and_exports(here, extension):
    fine("build", "a.fps", "a.jsonl", *TEXT_FIELD, "--id-field", "url", "-q")
    for verb in (("export", "a.fps"), ("pairs", "a.fps", "--duplicates"), ("ids", "a.fps", "u1")):
        for name in ("tsv", "jsonl"):
            fine(*verb, "-o", f"out.{name}", "-q")
            fine(*verb, "-o", f"out.{name}{extension}", "-q")
            assert (
                UNPACKED[extension](Path(f"out.{name}{extension}").read_bytes())
                == Path(f"out.{name}").read_bytes()
            )
    probe = ("probe", "a.fps", "--input", "a.jsonl", *TEXT_FIELD, "--with-queries")
    for name in ("csv", "jsonl"):
        fine(*probe, "-o", f"out.{name}", "--no-progress")
        fine(*probe, "-o", f"out.{name}{extension}", "--no-progress")
        assert (
            UNPACKED[extension](Path(f"out.{name}{extension}").read_bytes())
            == Path(f"out.{name}").read_bytes()
        )


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.npy.zst", "a.gz"])
def test_other_formats_are_not_compressed(here, name):
    fine("build", "a.fps", "a.jsonl", *TEXT_FIELD, "-q")
    assert "unknown extension" in failure("export", "a.fps", "-o", name)
    assert not Path(name).exists()


def test_a_fault_leaves_nothing(here):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup("a.jsonl", "b.jsonl.gz", text="text", progress=stop)
    assert sorted(path.name for path in here.iterdir()) == ["a.csv", "a.jsonl"]
