"""Files that gzip and zstandard compressed, as texts, rows and fingerprints.

Damaged ones, and bombs.
"""

import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import zstandard
from building import run_python
from commandline import fine, run
from inputs import json_lines
from limited import LIMITED
from speeds import slow

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError
from fpstore.hashing import TextReader, iter_documents
from fpstore.io import open_reader
from fpstore.io.lines import LineLimit

PACKERS = {".gz": partial(gzip.compress, mtime=0), ".zst": zstandard.ZstdCompressor().compress}
ROWS = [
    {"text": f"the text of the page number {row} of many", "url": f"u{row}"} for row in range(3000)
]


@pytest.fixture(params=PACKERS)
def extension(request):
    return request.param


def pack(path, data, extension):
    data = data.encode() if isinstance(data, str) else data
    path = Path(f"{path}{extension}")
    path.write_bytes(PACKERS[extension](data))
    return path


def content(name):
    if name == "jsonl":
        return json_lines(ROWS)
    gap = "," if name == "csv" else "\t"
    return f"text{gap}url\n" + "".join(f"{row['text']}{gap}{row['url']}\n" for row in ROWS)


def read(reader):
    chunks = list(reader)
    return [int(f) for chunk in chunks for f in chunk.fingerprints], [
        document_id for chunk in chunks for document_id in chunk.ids
    ]


def test_rows_of_texts_and_fingerprints(tmp_path, extension):
    for name in ("jsonl", "csv", "tsv"):
        plain = tmp_path / f"p.{name}"
        plain.write_text(content(name))
        path = pack(plain, content(name), extension)
        reader = TextReader(path, SimHash(), text="text", id="url")
        expected = read(TextReader(plain, SimHash(), text="text", id="url"))
        assert read(reader) == expected
        assert reader.bytes_done == reader.bytes_total == path.stat().st_size
        hidden = path.rename(tmp_path / f"hidden.{name}")  # recognized by its content
        assert read(TextReader(hidden, SimHash(), text="text", id="url")) == expected
    rows = [(f"{row * 0x9E3779B97F4A7C15 % 2**64:016x}", f"id{row}") for row in range(2000)]
    shapes = {
        "jsonl": '{{"fingerprint": "{}", "id": "{}"}}\n',
        "csv": "{},{}\n",
        "tsv": "{}\t{}\n",
        "txt": "{} {}\n",
    }
    for name, line in shapes.items():
        path = pack(tmp_path / f"f.{name}", "".join(line.format(*row) for row in rows), extension)
        assert read(open_reader(path)) == ([int(f, 16) for f, _ in rows], [i for _, i in rows])
    lines = [json.dumps(row) + "\n" for row in ROWS[:10]]  # members and frames follow each other
    (tmp_path / "m.jsonl").write_bytes(
        b"".join(PACKERS[extension](line.encode()) for line in lines)
    )
    assert read(TextReader(tmp_path / "m.jsonl", SimHash(), text="text", id="url"))[1] == [
        f"u{row}" for row in range(10)
    ]
    lines = (tmp_path / "m.jsonl").read_bytes()
    out = run("hash", "-", "--text-field", "text", "--format", "jsonl", "-q", stdin=lines).stdout
    assert len(out.splitlines()) == 10


def test_binary_formats_are_not_read_compressed(tmp_path, extension):
    for name in ("f.npy", "f.u64", "f.parquet"):
        path = pack(tmp_path / name, b"x" * 80, extension)
        with pytest.raises(
            InputError, match=rf"a compressed \.{name[2:]} file cannot be read: decompress it first"
        ):
            open_reader(path)
    # Rows that begin like a compressed file are fingerprints.
    for head in (b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"):
        (tmp_path / "raw.u64").write_bytes(head + bytes(4))
        assert [
            int(f) for chunk in open_reader(tmp_path / "raw.u64") for f in chunk.fingerprints
        ] == [int.from_bytes(head + bytes(4), "little")]


def test_dedup_reads_and_writes_lines(tmp_path, extension, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [
        json.dumps(
            {"text": ("one long text of a family" if row % 2 else f"alone {row} " * 9), "n": row}
        )
        for row in range(50)
    ]
    pack("p.jsonl", "\n".join(lines), extension)
    fine("dedup", f"p.jsonl{extension}", "clean.jsonl", "--text-field", "text", "--json", "-q")
    assert Path("clean.jsonl").read_text().splitlines() == [
        line for row, line in enumerate(lines) if row % 2 == 0 or row == 1
    ]
    Path("day").mkdir()
    pack("day/a.jsonl", lines[0] + "\n", extension)
    Path("day/b.jsonl").write_text(lines[1] + "\n")
    assert (
        json.loads(fine("dedup", "day", "c.jsonl", "--text-field", "text", "--json"))["documents"]
        == 2
    )


def test_texts_in_folders(tmp_path, extension, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("a plain text")
    pack("notes/b.txt", "a compressed text", extension)
    pack("notes/c.md", "another one", extension)
    pack("notes/d.png", b"\x89PNG\0\0", extension)
    pack("notes/e.jsonl", "{}", extension)
    skipped = []
    results = {
        d.id: d.text
        for d in iter_documents("notes", on_skip=lambda path, why: skipped.append((path.name, why)))
    }
    assert results == {
        "notes/a.txt": "a plain text",
        f"notes/b.txt{extension}": "a compressed text",
        f"notes/c.md{extension}": "another one",
    }
    assert skipped == [(f"d.png{extension}", "binary"), (f"e.jsonl{extension}", "rows")]
    assert [d.id for d in iter_documents("notes", suffixes=[".txt"])] == [
        "notes/a.txt",
        f"notes/b.txt{extension}",
    ]
    assert [d.path.stem for d in iter_documents("notes", suffixes=[extension])] == [
        "b.txt",
        "c.md",
        "e.jsonl",
    ]
    fine("build", "n.fps", "notes", "--text", "--suffix", ".md", "-q")
    assert fine("export", "n.fps").endswith(f"notes/c.md{extension}\n")


def cases():
    good = content("jsonl").encode()
    for extension, packer in PACKERS.items():
        whole = packer(good)
        for cut in (5, 12, len(whole) // 2, len(whole) - 1):
            yield extension, whole[:cut], "damaged"
        middle = len(whole) // 2
        yield (
            extension,
            whole[:middle] + bytes([whole[middle] ^ 255]) * 8 + whole[middle + 8 :],
            "damaged",
        )
        yield extension, whole + b"more", "damaged"
        yield extension, good, "its extension says"
        yield extension, b"", "its extension says"


def test_damaged_files_are_named(tmp_path):
    for number, case in enumerate(cases()):
        (tmp_path / str(number)).mkdir()
        check_damaged(tmp_path / str(number), *case)


def check_damaged(tmp_path, extension, data, message):
    path = tmp_path / f"p.jsonl{extension}"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"p\.jsonl{extension}: {message}") as caught:
        fpstore.build(tmp_path / "p.fps", TextReader(path, SimHash(), text="text"))
    assert "\n" not in str(caught.value)
    (tmp_path / "notes").mkdir()
    text = tmp_path / "notes" / f"a.txt{extension}"
    text.write_bytes(data)
    with pytest.raises(InputError, match=rf"a\.txt{extension}: {message}"):
        list(iter_documents(text))
    (tmp_path / "notes" / "good.txt").write_text("some words")
    done = run("build", tmp_path / "n.fps", tmp_path / "notes", "--text")
    assert (done.exit_code, done.stderr) == (
        0,
        f"fpstore: 1 file left out, damaged compressed files: {text}\n",
    )


FRAMES = [
    {},
    {"write_checksum": True},
    {"write_content_size": False},
    slow({"level": -5}),
    slow({"level": 19}),
]


@pytest.mark.parametrize("options", FRAMES)
def test_ends_of_zstandard_frames_are_known(tmp_path, options):
    """Cut anywhere, frames of every kind are damaged; whole, they are read."""
    for size in (0, 1, 255, 256, 70_000, 200_000):
        check_frames(tmp_path, options, size)
    # a large window
    parameters = zstandard.ZstdCompressionParameters(window_log=28, enable_ldm=True)
    path = tmp_path / "t.txt.zst"
    path.write_bytes(
        zstandard.ZstdCompressor(compression_params=parameters)
        .compressobj()
        .compress(b"a" * (1 << 20))
    )
    with pytest.raises(InputError, match="damaged zstandard file"):
        list(iter_documents(path))


def check_frames(tmp_path, options, size):
    rng = np.random.default_rng(size)
    data = (b"ab" * size)[: size // 2] + rng.integers(65, 91, size - size // 2, np.uint8).tobytes()
    frame = zstandard.ZstdCompressor(**options).compress(data)
    skipped = b"\x53\x2a\x4d\x18\x05\x00\x00\x00other"
    path = tmp_path / "t.txt.zst"
    for whole, twice in ((frame, 1), (skipped + frame, 1), (frame + skipped + frame, 2)):
        path.write_bytes(whole)
        assert [d.text.encode() for d in iter_documents(path)] == [data * twice]
    cuts = {len(frame) - 1, len(frame) - 3, len(frame) - 5, len(frame) // 2, 5, 6, 7, 9}
    for cut in sorted(cuts & set(range(4, len(frame)))):
        path.write_bytes(frame[:cut])
        with pytest.raises(InputError, match="damaged zstandard file"):
            list(iter_documents(path))


BOMB = (
    LIMITED
    + """
    import fpstore
    from fpstore.hashing import DocumentReader, SimHash, TextReader
    from fpstore.errors import InputError

    TextReader  # loads the readers
    limit(100 << 20)
    rows = TextReader(sys.argv[1], SimHash(), text="t", threads=1)
    for reader in (rows, DocumentReader(sys.argv[2], SimHash(), max_bytes=1 << 23)):
        try:
            list(reader)
        except InputError as error:
            print(str(error).partition(": ")[2])
"""
)


@pytest.mark.full
def test_bombs_take_no_memory(tmp_path, extension):
    """Gigabytes of one line: they are refused when a line or a text is too long, and not held."""
    part = PACKERS[extension](b"a " * (1 << 23))
    for name in ("p.jsonl", "t.txt"):
        (tmp_path / (name + extension)).write_bytes(part * 300)
    code, out, err = run_python(
        BOMB, tmp_path / f"p.jsonl{extension}", tmp_path / f"t.txt{extension}"
    )
    assert (code, err) == (0, "")
    assert out == f"line {LineLimit()}; not text?\nmore than max_bytes=8388608 when decompressed\n"
