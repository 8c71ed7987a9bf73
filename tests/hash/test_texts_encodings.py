"""Encodings of texts and of files of rows: marks, names, guesses, replacements, and what no encoding explains."""

import codecs
import json
import subprocess
from pathlib import Path

import pytest
from commandline import COMMAND, failure, fine, run

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError
from fpstore.hashing import DocumentReader, TextReader, iter_documents
from fpstore.io import open_reader
from fpstore.io.encodings import decoded

FRENCH = (
    "Le café était très fort à Paris, où l'été fut long. Après le déjeuner, les élèves rentrèrent à la maison, "
    "fatigués mais heureux. Le garçon a répété sa leçon près de la fenêtre. "
)
RUSSIAN = "Привет, как дела? Это длинный текст на русском языке, в котором много разных слов и букв. "
JAPANESE = "これは日本語のテキストです。文字コードを判定するために、十分な長さが必要です。東京は日本の首都です。"
MARKED = [
    ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-32", "utf-32"),
    ("utf-16-be", "utf-16"), ("utf-32-be", "utf-32"),
]  # fmt: skip
MARKS = {"utf-16-be": codecs.BOM_UTF16_BE, "utf-32-be": codecs.BOM_UTF32_BE}


def marked(text, encoding):
    return MARKS.get(encoding, b"") + text.encode(encoding)


@pytest.mark.parametrize(("encoding", "name"), MARKED)
@pytest.mark.parametrize("text", ["plain", FRENCH, JAPANESE, "\U0001f600", ""])
def test_marks_say_the_encoding(tmp_path, encoding, name, text):
    (tmp_path / "a.txt").write_bytes(marked(text, encoding))
    (found,) = iter_documents(tmp_path / "a.txt")
    assert (found.text, found.encoding, found.guessed, found.replaced) == (text, name, False, 0)


@pytest.mark.parametrize(("text", "encoding"), [(FRENCH, "cp1252"), (RUSSIAN, "cp1251"), (JAPANESE, "cp932")])
def test_other_encodings_are_guessed_and_told(tmp_path, monkeypatch, text, encoding):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_bytes((text * 3).encode(encoding))
    Path("notes/b.txt").write_text(text * 3)
    first, second = iter_documents("notes")
    assert (first.text, first.encoding, first.guessed) == (text * 3, encoding, True)
    assert (second.text, second.encoding, second.guessed) == (text * 3, "utf-8", False)
    done = run("build", "n.fps", "notes", "--text")
    assert (done.exit_code, done.stderr) == (0, f"fpstore: 1 file not in UTF-8, read as {encoding}: notes/a.txt\n")
    with fpstore.open("n.fps") as store:
        assert len(store) == 1  # the same words
    assert fine("build", "m.fps", "notes/a.txt", "--text", "--encoding", encoding, "-q") == ""


def test_a_guess_looks_where_the_first_odd_byte_is():
    text = "plain words only. " * 20_000 + FRENCH * 3
    found = decoded(text.encode("cp1252"))
    assert (found.text == text, found.encoding) == (True, "cp1252")


def test_a_few_bytes_that_are_no_utf8_are_replaced_and_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_bytes(JAPANESE.encode() + b"\xff" + JAPANESE.encode())
    (found,) = iter_documents("a.txt")
    assert (found.text, found.encoding, found.replaced) == (f"{JAPANESE}\ufffd{JAPANESE}", "utf-8", 1)
    done = run("hash", "--text", "a.txt")
    assert done.stderr == "fpstore: 1 file with bytes that are not UTF-8, which were replaced: a.txt\n"


NO_TEXT = bytes(range(128, 256)) * 8


def test_what_no_encoding_explains_is_left_out_and_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_bytes(NO_TEXT)
    Path("notes/b.txt").write_bytes(codecs.BOM_UTF16_LE + b"a")
    Path("notes/c.txt").write_text("some words")
    done = run("build", "n.fps", "notes", "--text")
    assert done.stderr == "fpstore: 2 files left out, of no known encoding: notes/a.txt, notes/b.txt\n"
    reader = DocumentReader("notes", SimHash())
    assert ([chunk.ids for chunk in reader], reader.skipped) == ([["notes/c.txt"]], 2)
    assert "a.txt: no encoding that is known explains its bytes" in failure("hash", "--text", "notes/a.txt")
    assert "b.txt: its bytes are not utf-16" in failure("hash", "--text", "notes/b.txt")
    assert "b.txt: its bytes are not utf-8: name its encoding" in failure("hash", "--text", "notes/b.txt", "--encoding", "utf-8")
    Path("notes/c.txt").unlink()
    assert "no text to make a fingerprint of; left out: 2 (of no known encoding)" in failure(
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
    assert "--encoding: must be the name of one" in failure("hash", "--text", "a.txt", "--encoding", "nothing", code=2)
    assert "--encoding is for files of texts" in failure("build", "x.fps", "a.tsv", "--encoding", "utf-8", code=2)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "cp1252"])
def test_rows(tmp_path, suffix, encoding):
    rows = [{"text": f"{FRENCH} {row}", "url": f"é{row}"} for row in range(20_000 // 50)]
    path = tmp_path / f"p.{suffix}"
    if suffix == "jsonl":
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    else:
        gap, quote = ("\t", "") if suffix == "tsv" else (",", '"')
        text = gap.join(rows[0]) + "\n" + "".join(f"{quote}{row['text']}{quote}{gap}{row['url']}\n" for row in rows)
    path.write_bytes(marked(text, encoding))
    named = encoding if encoding == "cp1252" else None
    reader = TextReader(path, SimHash(), text="text", id="url", encoding=named)
    assert [one for chunk in reader for one in chunk.ids] == [row["url"] for row in rows]
    assert [int(f) for chunk in reader for f in chunk.fingerprints] == [SimHash().fingerprint(row["text"]) for row in rows]
    assert reader.bytes_done == path.stat().st_size
    found = fpstore.dedup(path, tmp_path / f"clean.{suffix}", text="text", encoding=named, radius=0)
    assert (tmp_path / f"clean.{suffix}").read_text().count("\n") == len(found.kept) + (suffix != "jsonl")


def test_rows_of_another_encoding_are_refused_with_their_line(tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(f"text\nplain\n{FRENCH}\n".encode("cp1252"))
    with pytest.raises(InputError, match=r"p\.csv:3: not valid UTF-8: .*; --encoding \(encoding=\) names another"):
        list(TextReader(path, SimHash(), text="text"))
    path.write_bytes(codecs.BOM_UTF16_LE + "text\nplain\n".encode("utf-16-le") + b"\x00\xd8\n\x00")
    with pytest.raises(InputError, match=r"p\.csv: not valid utf-16: "):
        list(TextReader(path, SimHash(), text="text"))
    with pytest.raises(InputError, match=r"Parquet and tables have their own"):
        TextReader(pytest.importorskip("pyarrow").table({"text": ["a"]}), SimHash(), text="text", encoding="utf-8")


def test_fingerprints_with_a_mark(tmp_path):
    path = tmp_path / "f.tsv"
    path.write_bytes("000000000000002a\té\n".encode("utf-16"))
    assert [chunk.ids for chunk in open_reader(path)] == [["é"]]


def test_standard_input(tmp_path):
    for data, encoding, message in (
        ((FRENCH * 3).encode("cp1252"), (), "1 file not in UTF-8, read as cp1252: -"),
        ((FRENCH * 3).encode("utf-16"), (), ""),
        ((FRENCH * 3).encode("cp437"), ("--encoding", "cp437"), ""),
    ):
        done = subprocess.run([*COMMAND, "hash", "--text", "-", *encoding], input=data, capture_output=True, check=True)
        assert done.stdout.decode() == f"{SimHash().fingerprint(FRENCH * 3):016x}\t-\n"
        assert done.stderr.decode() == (f"fpstore: {message}\n" if message else "")
    done = subprocess.run([*COMMAND, "hash", "--text", "-"], input=NO_TEXT, capture_output=True)
    assert (done.returncode, b"name it with --encoding" in done.stderr) == (1, True)


def test_threads_do_not_change_the_fingerprints(tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(f"text number {number} of this folder")
    found = [[(c.fingerprints.tolist(), c.ids) for c in DocumentReader(tmp_path, SimHash(), 7, threads=t)] for t in (1, 3)]
    assert found[0] == found[1]
    assert len(found[0]) == 6
