"""Texts that cannot be read as expected: nothing but binaries, long lines, loops of folders, files that are locked."""

import json
import os
from pathlib import Path

import pytest
from building import run_python
from commandline import failure, fine, run
from limited import LIMITED

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError, StorageError
from fpstore.hashing import DocumentReader, TextReader
from fpstore.io.lines import MAX_LINE_BYTES


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


LEFT_OUT = "left out: 2 (binary, not text), 1 (no words), 1 (rows, not one text)"


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "x.fps"),
        ("hash", "--text"),
        ("insert", "n.fps"),
        ("probe", "n.fps"),
        ("nearest", "n.fps"),
        ("scan", "n.fps", "-r", "9"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_folder_without_texts_is_an_error_that_says_why(pictures, arguments):
    with fpstore.build("n.fps", [1], ["a"], fingerprinter=SimHash()) as store:
        before = len(store)
    flag = ("--text",) if arguments[0] == "build" else ()
    message = failure(*arguments, "pictures", *flag)
    assert message == f"fpstore: pictures: no text to make a fingerprint of; {LEFT_OUT}\n"
    assert not Path("x.fps").exists()
    with fpstore.open("n.fps") as store:
        assert len(store) == before


def test_a_folder_without_texts_is_an_error_of_dedup(pictures):
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
    assert [chunk.ids for chunk in DocumentReader("notes", SimHash(), follow_symlinks=True)] == [["notes/deep/a.txt"]]
    assert [list(chunk.ids) for chunk in TextReader("notes", SimHash(), text="text")] == [[0]]
    Path("round").symlink_to("round")
    with pytest.raises(StorageError, match="round"):
        TextReader("round/p.jsonl", SimHash(), text="text")
    with pytest.raises(StorageError, match="round"):
        DocumentReader("round", SimHash())


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.parquet", "folder/p.jsonl"])
def test_locked_files_are_named(place, with_mode, name):
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"text": "some words"}\n')
    with with_mode(path, 0):
        if os.access(path, os.R_OK, effective_ids=True) and _can_read(path):
            pytest.skip("modes do not bind here")
        with pytest.raises(StorageError, match=rf"{name}: Permission denied"):
            list(TextReader(path.parent if "/" in name else path, SimHash(), text="text"))


def _can_read(path):
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True


LONG = (
    LIMITED
    + """
    from fpstore.errors import InputError
    from fpstore.hashing import SimHash, TextReader

    TextReader
    limit(400 << 20)
    for name in sys.argv[1:]:
        try:
            print(sum(len(chunk.ids) for chunk in TextReader(name, SimHash(), text="text", threads=2)))
        except InputError as error:
            print(error)
"""
)


def test_lines_are_read_up_to_a_limit_and_longer_ones_refused_in_small_memory(place):
    """A document of 15 MB is read; a line of 1 GiB is refused when its first 16 MiB have been read."""
    words = "word " * 3_000_000
    assert len(words) < MAX_LINE_BYTES
    Path("fits.jsonl").write_text(json.dumps({"text": words}) + "\n" + json.dumps({"text": "more words"}) + "\n")
    Path("fits.csv").write_text(f'text\n"{words}"\nmore words\n')
    for name, head in (("long.jsonl", b'{"text": "'), ("long.csv", b'text\n"')):
        with Path(name).open("wb") as file:
            file.write(head)
            file.seek(1 << 30)  # over a hole, which takes no space
            file.write(b"end\n")
    Path("lines.csv").write_text('text\n"' + ("x" * 1023 + "\n") * 40_000)
    code, out, err = run_python(LONG, "fits.jsonl", "fits.csv", "long.jsonl", "long.csv", "lines.csv")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2",
        "2",
        "long.jsonl:1: line longer than 16 MiB; not text?",
        "long.csv:2: line longer than 16 MiB; not text?",
        "lines.csv:2: a row longer than 16 MiB: is a quote not closed?",
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
    assert (done.exit_code, done.stderr) == (0, "fpstore: 1 file left out, too large: notes/huge.txt\n")


def test_standard_input_with_zero_bytes_is_no_text():
    assert "standard input: a NUL byte in its first 8 KiB" in failure("hash", "--text", "-", stdin="a b\0c")
    assert fine("hash", "--text", "-", "--encoding", "utf-16-le", stdin="a\0 \0b\0").endswith("\t-\n")
