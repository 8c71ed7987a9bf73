"""Inputs and outputs that URIs name, for the verbs of one process."""

import gc
import gzip
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from inputs import json_lines

import fpstore
from fpstore.errors import InputError, StorageError, StoreExistsError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import open_reader, open_writer
from fpstore.io.remote import PREFIX, RemoteFile

ROWS = [{"text": f"page {n // 2} of all the pages", "id": f"r{n}"} for n in range(8)]
FIELD = ("--text-field", "text")
EXACT = ("--threshold", 0.9, "-q")


def copies():
    return sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path, monkeypatch):
    """Return the URI of a folder in a store, with a folder of two files of rows in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    if request.param == "file":
        uri = (tmp_path / "a store").as_uri().replace("%20", " ")
    else:
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").store.clear()
        uri = "memory://bucket/a store"
    for name, rows in {"in/a.jsonl": ROWS[:4], "in/deep/b.jsonl": ROWS[4:]}.items():
        put(f"{uri}/{name}", json_lines(rows).encode())
    put(f"{uri}/in/_SUCCESS", b"")
    return uri


def put(uri, data):
    """Write a file by other means than fpstore does."""
    if uri.startswith("file://"):
        path = Path(uri.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    else:
        pytest.importorskip("fsspec").filesystem("memory").pipe(uri, data)


def get(uri):
    if uri.startswith("file://"):
        return Path(uri.removeprefix("file://")).read_bytes()
    return pytest.importorskip("fsspec").filesystem("memory").cat(uri)


def kept(data):
    return [json.loads(line)["id"] for line in data.splitlines()]


def test_files_and_folders_in_and_out(store):
    result = fpstore.dedup(f"{store}/in", f"{store}/out", text="text", threshold=0.9)
    assert result.kept.tolist() == [0, 2, 4, 6]
    assert RemoteFile(f"{store}/out").names() == ["a.jsonl", "deep/b.jsonl"]
    assert kept(get(f"{store}/out/a.jsonl")) == ["r0", "r2"]
    assert kept(get(f"{store}/out/deep/b.jsonl")) == ["r4", "r6"]
    lists = ("--removed", f"{store}/gone.csv.gz", "--clusters", "here.tsv", "--id-field", "id")
    fine("dedup", f"{store}/in/a.jsonl", f"{store}/one.jsonl", *FIELD, *EXACT, *lists)
    assert kept(get(f"{store}/one.jsonl")) == ["r0", "r2"]
    assert get(f"{store}/gone.csv.gz")[:2] == b"\x1f\x8b"
    assert len(Path("here.tsv").read_text().splitlines()) == 5  # with the header
    fine("boilerplate", f"{store}/one.jsonl", f"{store}/plain.jsonl", *FIELD, "-q")
    assert get(f"{store}/plain.jsonl") == get(f"{store}/one.jsonl")
    fine("decontaminate", f"{store}/one.jsonl", f"{store}/in/deep", *FIELD, "-q", "--ngram", 3)


def test_packed_lines_are_packed_once(store):
    """Streams of pyarrow unpack and pack by the extension, if they are not told otherwise."""
    put(f"{store}/a.jsonl.gz", gzip.compress(json_lines(ROWS).encode()))
    lists = ("--removed", f"{store}/gone.csv.gz", "--id-field", "id")
    fine("dedup", f"{store}/a.jsonl.gz", f"{store}/b.jsonl.gz", *FIELD, *EXACT, *lists)
    assert kept(gzip.decompress(get(f"{store}/b.jsonl.gz"))) == ["r0", "r2", "r4", "r6"]
    assert gzip.decompress(get(f"{store}/gone.csv.gz")).startswith(b"row,id,")


def test_patterns_name_files(store):
    for name in ("c.jsonl", ".hidden.jsonl", "c.txt", "deep/[1].jsonl"):
        put(f"{store}/in/{name}", json_lines(ROWS[:1]).encode())
    fine("dedup", f"{store}/in/*.jsonl", f"{store}/out/", *FIELD, *EXACT)
    assert RemoteFile(f"{store}/out").names() == ["a.jsonl", "c.jsonl"]
    fine("dedup", f"{store}/i*/d*/[1]*", f"{store}/in/*/b.jsonl", "x.jsonl", *FIELD, *EXACT)
    assert kept(Path("x.jsonl").read_bytes()) == ["r0", "r4", "r6"]
    put(f"{store}/h.tsv", b"00000000000000ff\t7\n")
    (chunk,) = open_reader(f"{store}/*.tsv")
    assert chunk.ids.tolist() == [7]
    put(f"{store}/s*.jsonl", json_lines(ROWS[1:2]).encode())
    put(f"{store}/sa.jsonl", json_lines(ROWS).encode())
    assert fpstore.dedup(f"{store}/s*.jsonl", text="text").kept.tolist() == [0]
    with pytest.raises(StorageError, match=r"in/\*\.csv: no file matches"):
        fpstore.dedup(f"{store}/in/*.csv", text="text")
    with pytest.raises(InputError, match="is an input: name another output"):
        fpstore.dedup(f"{store}/in/a*.jsonl", f"{store}/in/a.jsonl", text="text", overwrite=True)


def test_lists_without_rows_are_stored(store):
    """Of a job without an output, and of one that would remove too much of a source."""
    one, hits = f"{store}/in/a.jsonl", f"{store}/hits.csv"
    fine("decontaminate", one, one, *FIELD, "-q", "--ngram", 3, "--hits", hits)
    assert get(hits).splitlines()[1].startswith(f"0,0,{one},0,0,".encode())
    listed = ("--action", "list", "--passages", f"{store}/passages.csv", "--words", 3)
    fine("passages", one, *FIELD, *listed, "-q")
    assert len(get(f"{store}/passages.csv").splitlines()) > 1
    put(f"{store}/b.jsonl", json_lines([{"text": "a b c d", "s": "x"}] * 100).encode())
    lost = ("--source-field", "s", "--sources", f"{store}/s.csv", "--most-removed", 0.5)
    failure("dedup", f"{store}/b.jsonl", f"{store}/c.jsonl", *FIELD, *lost)
    assert get(f"{store}/s.csv") == b"source,rows,removed,share\nx,100,99,0.99\n"
    assert not RemoteFile(f"{store}/c.jsonl").is_file()


def test_no_copy_stays(store):
    for _ in range(2):
        fpstore.dedup(f"{store}/in", f"{store}/x.jsonl", text="text", overwrite=True)
    with pytest.raises(InputError):
        fpstore.dedup(f"{store}/in", f"{store}/y.jsonl", text="txt")
    gc.collect()
    assert copies() == []
    assert sorted(path.name for path in Path("tmp").iterdir()) == []


def test_stores_and_readers(store):
    fine("build", "s.fps", f"{store}/in/a.jsonl", *FIELD, "--id-field", "id", "-q")
    fine("insert", "s.fps", f"{store}/in/deep/b.jsonl", *FIELD, "--id-field", "id", "-q")
    fine("export", "s.fps", "-o", f"{store}/s.tsv", "-q")
    (chunk,) = open_reader(f"{store}/s.tsv")
    assert sorted(chunk.ids) == [row["id"] for row in ROWS]
    (chunk,) = TextReader(f"{store}/in/a.jsonl", SimHash(), text="text", id="id")
    assert chunk.ids == ["r0", "r1", "r2", "r3"]
    with open_writer(f"{store}/w.jsonl.zst", columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": [1, 2]})
    (chunk,) = open_reader(f"{store}/w.jsonl.zst")
    assert chunk.fingerprints.tolist() == [1, 2]


def test_parquet_and_benchmarks(store):
    pq.write_table(pa.Table.from_pylist(ROWS), "a.parquet")
    put(f"{store}/a.parquet", Path("a.parquet").read_bytes())
    fpstore.dedup(f"{store}/a.parquet", f"{store}/b.parquet", text="text", threshold=0.9)
    Path("b.parquet").write_bytes(get(f"{store}/b.parquet"))
    assert pq.read_table("b.parquet").to_pylist() == ROWS[::2]


def test_errors_name_the_uri(store):
    put(f"{store}/bad.jsonl", b'{"text": "a"}\n{\n')
    for uri, message in ((f"{store}/bad.jsonl", "/bad.jsonl:2: not valid JSON"),):
        with pytest.raises(InputError, match=message) as error:
            fpstore.dedup(uri, text="text")
        assert str(error.value).startswith(f"{uri}:2")
    with pytest.raises(StorageError, match="gone: no such file or folder"):
        fpstore.dedup(f"{store}/gone", text="text")
    with pytest.raises(InputError, match="no row has the field 'txt'") as error:
        fpstore.dedup(f"{store}/in/a.jsonl", text="txt")
    assert str(error.value).startswith(f"{store}/in/a.jsonl")


def test_what_is_refused(store):
    put(f"{store}/full/a.jsonl", b"")
    one = f"{store}/in/a.jsonl"
    for source, output, more, kind, message in (
        (one, one, {}, InputError, "is an input: name another output"),
        (one, f"{store}/full/a.jsonl", {}, StoreExistsError, "exists: overwrite=True replaces"),
        (f"{store}/in", f"{store}/full", {}, StoreExistsError, "exists, and has files"),
        (f"{store}/in", f"{store}/in/new", {}, InputError, "the next run would read it"),
        (one, f"{store}/x.csv", {}, InputError, r"a \.jsonl file"),
        (one, f"{store}/x.jsonl", {"resume": "r"}, InputError, "is for outputs on a disk"),
        (one, "x.jsonl", {"resume": "r"}, InputError, "resume= is for files on a disk"),
    ):
        with pytest.raises(kind, match=message):
            fpstore.dedup(source, output, text="text", **more)
    fpstore.dedup(one, f"{store}/y.jsonl", text="text")
    fpstore.dedup(one, f"{store}/y.jsonl", text="text", overwrite=True)
    with pytest.raises(InputError, match="is a URI, and a path is expected"):
        fpstore.dedup(f"{store}/in", text=True)


def test_schemes_that_nothing_knows(tmp_path):
    pytest.importorskip("fsspec")
    assert "foo://x/a.jsonl: Protocol not known: foo" in failure(
        "dedup", "foo://x/a.jsonl", "out.jsonl", *FIELD
    )
    for uri in ("s3://user:secret@host/a.jsonl", "s3://bucket/a.jsonl?endpoint_override=x"):
        message = failure("dedup", uri, "out.jsonl", *FIELD)
        assert "secret" not in message
        assert "variables of the environment" in message
