"""Lines above 16 MiB: a book or a log in a line is read if the memory allows it.

Else the limit and the option are named.
"""

import pytest
from commandline import TEXT_FIELD, run
from inputs import json_lines

import fpstore
from fpstore.errors import InputError
from fpstore.io.lines import LINE_BYTES

WORDS = " ".join(map(str, range(100)))
BOOK = " ".join(map(str, range(1000, 2000))) + " " + "word " * (LINE_BYTES // 4)


@pytest.fixture(params=["jsonl", "csv", "rows of lines"])
def book(request, tmp_path, monkeypatch):
    """Write a file with a long line, or with a row of many lines, between two short ones."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("book.jsonl" if request.param == "jsonl" else "book.csv")
    if request.param == "jsonl":
        path.write_text(json_lines({"text": text} for text in (WORDS, BOOK, WORDS)))
    else:
        text = BOOK if request.param == "csv" else BOOK.replace(" word word", "\nword word")
        path.write_text(f'text\n{WORDS}\n"{text}"\n{WORDS}\n')
    return path


@pytest.mark.full
def test_long_lines_are_read_in_the_memory_given(book):
    out = book.with_name(f"out{book.suffix}")
    result = fpstore.dedup(book, out, text="text", memory="512MiB")
    assert result.kept.tolist() == [0, 1]
    assert (
        out.read_bytes()
        == book.read_bytes()[
            : -len(WORDS) - (len('{"text": ""}\n') if book.suffix == ".jsonl" else 1)
        ]
    )
    assert (
        run("build", "s.fps", book.name, "--text-field", "text", "--memory", "512MiB").exit_code
        == 0
    )
    assert (
        run(
            "lsh",
            "build",
            "i.lsh",
            book.name,
            *TEXT_FIELD,
            "--threshold",
            "0.5",
            "--memory",
            "512MiB",
        ).exit_code
        == 0
    )
    assert fpstore.remove_boilerplate(book, text="text", memory="512MiB").documents == 3


@pytest.mark.sampled(1)
def test_too_long_lines_name_the_limit_and_the_option(book):
    with pytest.raises(
        InputError, match=r"longer than 16 MiB: with more memory=, a line may take an eighth of it;"
    ):
        fpstore.dedup(book, text="text", memory="64MiB")
    done = run("dedup", book.name, f"out{book.suffix}", "--text-field", "text", "--memory", "64MiB")
    assert "longer than 16 MiB: with more --memory, a line may take an eighth of it;" in done.stderr


@pytest.mark.full
def test_hash_reads_long_lines_in_the_memory_given(book):
    done = run("hash", book.name, "--text-field", "text", "--memory", "512MiB")
    assert (done.exit_code, done.stdout.count("\n")) == (0, 3)
    done = run("hash", book.name, "--text-field", "text", "--memory", "64MiB")
    assert "longer than 16 MiB: with more --memory, a line may take an eighth of it;" in done.stderr


@pytest.mark.sampled(1)
def test_verbs_without_memory_name_no_such_option(book):
    assert run("build", "s.fps", "--empty", "--text").exit_code == 0
    done = run("insert", "s.fps", book.name, "--text-field", "text")
    assert done.exit_code != 0
    assert "longer than 16 MiB;" in done.stderr
    assert "memory" not in done.stderr
