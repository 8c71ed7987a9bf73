"""Texts in any encoding, and what cannot be read.

Binaries, long lines, loops of folders, files that are locked.
"""

import codecs
import itertools
import json
from pathlib import Path

import pytest
from building import run_python
from commandline import failure, fine, run
from limited import LIMITED
from speeds import crossed

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError, StorageError
from fpstore.hashing import DocumentReader, TextReader, iter_documents
from fpstore.io import open_reader
from fpstore.io.lines import LINE_BYTES, LineLimit

FRENCH = (
    "Le café était très fort à Paris, où l'été fut long. Après le déjeuner, les élèves rentrèrent "
    "à la maison, "
    "fatigués mais heureux. Le garçon a répété sa leçon près de la fenêtre. "
)
RUSSIAN = (
    "Привет, как дела? Это длинный текст на русском языке, в котором много разных слов и букв. "
)
JAPANESE = (
    "これは日本語のテキストです。文字コードを判定するために、十分な長さが必要です。"
    "東京は日本の首都です。"
)
MARKED = [
    ("utf-8-sig", "utf-8-sig"),
    ("utf-16", "utf-16"),
    ("utf-32", "utf-32"),
    ("utf-16-be", "utf-16"),
    ("utf-32-be", "utf-32"),
]
MARKS = {"utf-16-be": codecs.BOM_UTF16_BE, "utf-32-be": codecs.BOM_UTF32_BE}


def marked(text, encoding):
    return MARKS.get(encoding, b"") + text.encode(encoding)


def test_marks_say_the_encoding(tmp_path):
    for (encoding, name), text in itertools.product(
        MARKED, ("plain", FRENCH, JAPANESE, "\U0001f600", "")
    ):
        (tmp_path / "a.txt").write_bytes(marked(text, encoding))
        (result,) = iter_documents(tmp_path / "a.txt")
        assert (result.text, result.encoding, result.declared, result.replaced) == (
            text,
            name,
            False,
            0,
        )
    (tmp_path / "f.tsv").write_bytes("000000000000002a\té\n".encode("utf-16"))
    assert [chunk.ids for chunk in open_reader(tmp_path / "f.tsv")] == [["é"]]


@pytest.mark.parametrize(
    ("text", "encoding"), [(FRENCH, "cp1252"), (RUSSIAN, "cp1251"), (JAPANESE, "gb18030")]
)
def test_legacy_encodings_need_a_name(tmp_path, monkeypatch, text, encoding):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_bytes((text * 3).encode(encoding))
    Path("notes/b.txt").write_text(text * 3)
    done = run("build", "n.fps", "notes", "--text")
    left_out = "1 file left out, not in UTF-8 (name another encoding): notes/a.txt"
    assert (done.exit_code, done.stderr) == (0, f"fpstore: {left_out}\n")
    message = failure("build", "m.fps", "notes/a.txt", "--text")
    assert "a.txt: its bytes are not utf-8: name its encoding with --encoding" in message
    assert fine("build", "m.fps", "notes/a.txt", "--text", "--encoding", encoding, "-q") == ""
    with fpstore.open("n.fps") as utf8, fpstore.open("m.fps") as named:
        assert list(utf8) == list(named)  # the same words


def test_a_few_bytes_that_are_no_utf8_are_replaced_and_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(JAPANESE.encode() + b"\xff" + JAPANESE.encode())
    (result,) = iter_documents("a.txt")
    assert (result.text, result.encoding, result.replaced) == (
        f"{JAPANESE}\ufffd{JAPANESE}",
        "utf-8",
        1,
    )
    done = run("hash", "--text", "a.txt")
    assert (
        done.stderr == "fpstore: 1 file with bytes that are not UTF-8, which were replaced: a.txt\n"
    )


NO_TEXT = bytes(range(128, 256)) * 8


def test_what_is_not_in_its_encoding_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_bytes(NO_TEXT)
    Path("notes/b.txt").write_bytes(codecs.BOM_UTF16_LE + b"a")
    Path("notes/c.txt").write_text("some words")
    done = run("build", "n.fps", "notes", "--text")
    reason = "not in UTF-8 (name another encoding)"
    assert done.stderr == f"fpstore: 2 files left out, {reason}: notes/a.txt, notes/b.txt\n"
    reader = DocumentReader("notes", SimHash())
    assert ([chunk.ids for chunk in reader], reader.skipped) == ([["notes/c.txt"]], 2)
    assert "a.txt: its bytes are not utf-8" in failure("hash", "--text", "notes/a.txt")
    assert "b.txt: its bytes are not utf-16" in failure("hash", "--text", "notes/b.txt")
    assert "b.txt: its bytes are not utf-8: name its encoding" in failure(
        "hash", "--text", "notes/b.txt", "--encoding", "utf-8"
    )
    Path("notes/c.txt").unlink()
    assert "no text to make a fingerprint of; left out: 2 (not in UTF-8" in failure(
        "build", "n.fps", "notes", "--text", "--force"
    )


def test_a_name_forces_an_encoding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes("short é".encode("cp437"))
    Path("w.txt").write_bytes("wide text".encode("utf-16-le"))
    assert [d.text for d in iter_documents("a.txt", encoding="IBM437")] == ["short é"]
    assert [d.text for d in iter_documents("w.txt", encoding="utf-16-le")] == ["wide text"]
    with pytest.raises(InputError, match="a NUL byte"):
        list(iter_documents("w.txt"))
    for name in ("nothing", "", 5, "rot13", "hex", "a\0b"):
        with pytest.raises(InputError, match="encoding must be the name of one"):
            iter_documents("a.txt", encoding=name)
    assert "--encoding: must be the name of one" in failure(
        "hash", "--text", "a.txt", "--encoding", "nothing", code=2
    )
    assert "--encoding is for files of texts" in failure(
        "build", "x.fps", "a.tsv", "--encoding", "utf-8", code=2
    )


@pytest.mark.parametrize(
    ("encoding", "suffix"),
    crossed([document_id for document_id, _ in MARKED] + ["cp1252"], ["jsonl", "csv", "tsv"]),
)
def test_rows(tmp_path, suffix, encoding):
    rows = [{"text": f"{FRENCH} {row}", "url": f"é{row}"} for row in range(150)]
    path = tmp_path / f"p.{suffix}"
    if suffix == "jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        gap, quote = ("\t", "") if suffix == "tsv" else (",", '"')
        text = (
            gap.join(rows[0])
            + "\n"
            + "".join(f"{quote}{row['text']}{quote}{gap}{row['url']}\n" for row in rows)
        )
    path.write_bytes(marked(text, encoding))
    named = encoding if encoding == "cp1252" else None
    reader = TextReader(path, SimHash(), text="text", id="url", encoding=named)
    assert [document_id for chunk in reader for document_id in chunk.ids] == [
        row["url"] for row in rows
    ]
    assert [int(f) for chunk in reader for f in chunk.fingerprints] == [
        SimHash().fingerprint(row["text"]) for row in rows
    ]
    assert reader.bytes_done == path.stat().st_size
    result = fpstore.dedup(
        path, tmp_path / f"clean.{suffix}", text="text", encoding=named, radius=0
    )
    assert (tmp_path / f"clean.{suffix}").read_text().count("\n") == len(result.kept) + (
        suffix != "jsonl"
    )


def test_rows_of_another_encoding_are_refused_with_their_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(f"text\nplain\n{FRENCH}\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"p\.csv:3: not valid UTF-8: .*; encoding= names another"):
        list(TextReader(path, SimHash(), text="text"))
    path.write_bytes(codecs.BOM_UTF16_LE + "text\nplain\n".encode("utf-16-le") + b"\x00\xd8\n\x00")
    with pytest.raises(InputError, match=r"p\.csv: not valid utf-16: "):
        list(TextReader(path, SimHash(), text="text"))
    with pytest.raises(InputError, match=r"Parquet and tables have their own"):
        TextReader(
            pytest.importorskip("pyarrow").table({"text": ["a"]}),
            SimHash(),
            text="text",
            encoding="utf-8",
        )


def test_standard_input():
    data = (FRENCH * 3).encode("cp437")
    printed = fine("hash", "--text", "-", "--encoding", "cp437", stdin=data)
    assert printed == f"{SimHash().fingerprint(FRENCH * 3):016x}\t-\n"
    for wrong in (data, NO_TEXT):
        assert "name its encoding with --encoding" in failure("hash", "--text", "-", stdin=wrong)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pictures(place):
    """Make a folder with nothing to read."""
    Path("pictures/deep").mkdir(parents=True)
    for name in ("a.png", "deep/b.jpg"):
        Path("pictures", name).write_bytes(b"\x89PNG\r\n\0\0" + bytes(100))
    Path("pictures/rows.jsonl").write_text('{"text": "some words"}\n')
    Path("pictures/empty.txt").touch()
    return Path("pictures")


LEFT_OUT = "left out: 2 (binary, not text), 1 (blank), 1 (rows, not one text)"


def test_a_folder_without_texts_is_an_error_that_says_why(pictures):
    fpstore.build("n.fps", [1], ["a"], fingerprinter=SimHash()).close()
    for verb, *options in (
        ("build", "x.fps", "--text"),
        ("hash", "--text"),
        ("insert", "n.fps"),
        ("probe", "n.fps"),
        ("nearest", "n.fps"),
        ("scan", "n.fps", "-r", "9"),
    ):
        message = failure(verb, *options, "pictures")
        assert message == f"fpstore: pictures: no text to make a fingerprint of; {LEFT_OUT}\n"
        assert not Path("x.fps").exists()
        assert len(fpstore.open("n.fps")) == 1
    Path("pictures/empty.txt").unlink()
    assert "pictures: no rows" in failure("dedup", "pictures", "clean", "--text")
    assert not Path("clean").exists()
    Path("hollow").mkdir()
    for verb in (("build", "x.fps", "hollow", "--text"), ("hash", "--text", "hollow")):
        assert "hollow: no text to make a fingerprint of" in failure(*verb)
    message = failure("build", "x.fps", "hollow", "--text-field", "text")
    assert "hollow: no .parquet, .jsonl, .csv, .tsv in this folder" in message


def test_a_loop_of_folders_is_entered_once(place):
    Path("notes/deep").mkdir(parents=True)
    Path("notes/deep/a.txt").write_text("some words")
    Path("notes/deep/p.jsonl").write_text('{"text": "some words"}\n')
    Path("notes/deep/loop").symlink_to(place / "notes")
    assert [chunk.ids for chunk in DocumentReader("notes", SimHash(), follow_symlinks=True)] == [
        ["notes/deep/a.txt"]
    ]
    assert [list(chunk.ids) for chunk in TextReader("notes", SimHash(), text="text")] == [[0]]
    Path("round").symlink_to("round")
    with pytest.raises(StorageError, match="round"):
        TextReader("round/p.jsonl", SimHash(), text="text")
    with pytest.raises(StorageError, match="round"):
        DocumentReader("round", SimHash())


def test_locked_files_are_named(place, with_mode):
    for name in ("p.jsonl", "p.csv", "p.parquet", "folder/p.jsonl"):
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"text": "some words"}\n')
        with with_mode(path, 0), pytest.raises(StorageError, match=rf"{name}: Permission denied"):
            list(TextReader(path.parent if "/" in name else path, SimHash(), text="text"))


LONG = (
    LIMITED
    + """
    from fpstore.errors import InputError
    from fpstore.hashing import SimHash, TextReader

    TextReader
    limit(400 << 20)
    for name in sys.argv[1:]:
        try:
            reader = TextReader(name, SimHash(), text="text", threads=2)
            print(sum(len(chunk.ids) for chunk in reader))
        except InputError as error:
            print(error)
"""
)


@pytest.mark.full
def test_lines_beyond_the_limit_are_refused_in_small_memory(place):
    """A document of 15 MB is read.

    A line of 1 GiB is refused when its first 16 MiB have been read.
    """
    words = "word " * 3_000_000
    assert len(words) < LINE_BYTES
    Path("fits.jsonl").write_text(
        json.dumps({"text": words}) + "\n" + json.dumps({"text": "more words"}) + "\n"
    )
    Path("fits.csv").write_text(f'text\n"{words}"\nmore words\n')
    for name, head in (("long.jsonl", b'{"text": "'), ("long.csv", b'text\n"')):
        with Path(name).open("wb") as file:
            file.write(head)
            file.seek(1 << 30)  # over a hole, which takes no space
            file.write(b"end\n")
    Path("lines.csv").write_text('text\n"' + ("x" * 1023 + "\n") * 40_000)
    code, out, err = run_python(
        LONG, "fits.jsonl", "fits.csv", "long.jsonl", "long.csv", "lines.csv"
    )
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2",
        "2",
        f"long.jsonl:1: line {LineLimit()}; not text?",
        f"long.csv:2: line {LineLimit()}; not text?",
        f"lines.csv:2: a row {LineLimit()}; is a quote not closed?",
    ]


def test_bytes_that_are_no_rows_are_named(place):
    Path("p.jsonl").write_bytes(b'{"text": "a b"}\n\x89PNG\0\xff\n')
    Path("p.csv").write_bytes(b"text\na b\n\x89PNG\xff\n")
    with pytest.raises(InputError, match=r"p\.jsonl:2: not valid UTF-8"):
        list(TextReader("p.jsonl", SimHash(), text="text"))
    with pytest.raises(InputError, match=r"p\.csv:3: not valid UTF-8"):
        list(TextReader("p.csv", SimHash(), text="text"))
    done = run("build", "x.fps", "p.jsonl", "--text-field", "text")
    assert (done.exit_code, Path("x.fps").exists()) == (1, False)


def test_a_text_above_the_limit_is_left_out(place):
    Path("notes").mkdir()
    Path("notes/large.txt").write_text("word " * 1000)
    Path("notes/small.txt").write_text("some words")
    reader = DocumentReader("notes", SimHash(), max_bytes=4999)
    assert ([chunk.ids for chunk in reader], reader.skipped) == ([["notes/small.txt"]], 1)
    with Path("notes/huge.txt").open("wb") as file:
        file.truncate((1 << 30) + 1)  # a hole, which takes no space
    done = run("hash", "--text", "notes")
    assert (done.exit_code, done.stderr) == (
        0,
        "fpstore: 1 file left out, too large: notes/huge.txt\n",
    )


def test_standard_input_with_zero_bytes_is_no_text():
    assert "standard input: a NUL byte in its first 8 KiB" in failure(
        "hash", "--text", "-", stdin="a b\0c"
    )
    assert fine("hash", "--text", "-", "--encoding", "utf-16-le", stdin="a\0 \0b\0").endswith(
        "\t-\n"
    )
