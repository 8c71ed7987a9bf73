"""Commands that answer each query as it comes: a program can hold them open through two pipes."""

import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commandline import (
    FAR,
    FINGERPRINTS,
    NEAR,
    TEXT,
    TEXT_AND_ID,
    TEXT_AND_URL,
    TEXT_FIELD,
    failure,
    fine,
    run,
)
from conversation import TIMEOUT_SECONDS, Conversation
from inputs import json_lines
from limits import SetLimits
from speeds import crossed

import fpstore

VERBS = [
    ("probe", "crawl.fps", "-r", "1"),
    ("scan", "crawl.fps", "-r", "1"),
    ("nearest", "crawl.fps", "-k", "2"),
]
GAPS = {"csv": ",", "tsv": "\t", "txt": " "}


def query(form: str, fingerprint: int, name: str) -> str:
    if form == "jsonl":
        return json.dumps({"fingerprint": f"{fingerprint:016x}", "id": name}) + "\n"
    return f"{fingerprint:016x}{GAPS[form]}{name}\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("form", "verb"), crossed(["txt", "tsv", "csv", "jsonl"], VERBS))
def test_each_line_is_answered_before_the_next_is_sent(
    folder: Path, verb: tuple[str, ...], form: str
) -> None:
    rng = np.random.default_rng(7)
    queries = [
        int(f) ^ 1 << int(bit)
        for f, bit in zip(rng.choice(FINGERPRINTS, 50), rng.integers(0, 64, 50), strict=True)
    ]
    Path("q.tsv").write_text("".join(f"{f:016x}\tid{i}\n" for i, f in enumerate(queries)))
    wanted = fine(*verb, "--input", "q.tsv", "--json").splitlines()
    with Conversation(*verb, "--input", "-", "--format", form, "--json") as conversation:
        for i, f in enumerate(queries):
            conversation.send(query(form, f, f"id{i}"))
            assert conversation.answer() == wanted[i]
        assert conversation.ended() == (0, b"", "")


@pytest.mark.full
def test_a_half_line_waits_for_its_rest(folder: Path) -> None:
    with Conversation("probe", "crawl.fps", "0x2a", "-r", 0, "--input", "-") as conversation:
        assert conversation.answer().endswith(
            "\tsmall"
        )  # the argument is answered before any input
        conversation.send(f"{NEAR:016x}\n{FAR:016x}\n00000000")
        assert [conversation.answer().split("\t")[3] for _ in range(3)] == ["a", "a again", "far"]
        assert conversation.is_silent()
        conversation.send("0000002a\n")
        assert conversation.answer().endswith("\tsmall")
        conversation.send("0x")
        conversation.send("0")
        # the last line needs no end
        assert conversation.ended() == (0, b"0000000000000000\t0000000000000000\t0\tzero\n", "")
    with Conversation(
        "probe", "crawl.fps", "--input", "-", "--id-field", "url", "--json"
    ) as conversation:
        for line in ("# a comment\n", "url\tother\tfingerprint\n", "here\t?\t000000000000002a\n"):
            conversation.send(line)
        assert json.loads(conversation.answer())["query_id"] == "here"
        assert conversation.ended()[0] == 0


def test_what_is_inserted_meanwhile_is_found(folder: Path) -> None:
    with (
        Conversation("probe", "crawl.fps", "--input", "-", "--json") as conversation,
        fpstore.open("crawl.fps", "r+") as writer,
    ):
        for number in range(20):
            fingerprint = 0x1234_5678_0000_0000 | number << 20 | 0x1F << 40
            conversation.send(f"{fingerprint:016x}\n")
            before = json.loads(conversation.answer())["matches"]
            writer.insert(fingerprint, f"new {number}")
            conversation.send(f"{fingerprint:016x}\n")
            after = json.loads(conversation.answer())["matches"]
            assert [m for m in after if m not in before] == [
                {"fingerprint": f"{fingerprint:016x}", "distance": 0, "ids": [f"new {number}"]}
            ]


@pytest.mark.full
def test_bad_line_is_named_after_answers_to_earlier_lines(folder: Path) -> None:
    for form in ("tsv", "jsonl"):
        good = query(form, NEAR, "x")
        with Conversation(
            "probe", "crawl.fps", "-r", 0, "--input", "-", "--format", form, "--json"
        ) as conversation:
            for _ in range(3):
                conversation.send(good)
                assert json.loads(conversation.answer())["matches"]
            conversation.send(good + good + "zz\n" + good)  # what came with the bad line, too
            code, out, err = conversation.ended()
        assert (code, [json.loads(line)["row"] for line in out.splitlines()]) == (2, [3, 4])
        assert err.startswith("fpstore: <stdin>:6: ")


@pytest.mark.full
@pytest.mark.parametrize("form", ["txt", "tsv", "csv", "jsonl"])
def test_a_bad_line_does_not_end_a_writer(folder: Path, form: str) -> None:
    sent = [
        (0xFFFF_0000_FFFF_0000, "new"),
        (0xFFFF_0000_FFFF_0001, "like"),
        None,
        (0xFFFF_0000_FFFF_0000, "new"),
        (0xFFFF, "after"),
    ]
    lines = [
        query(form, *row)
        if row
        else {"jsonl": '{"id": "bad", "fingerprint": 1.5}\n'}.get(form, "zz\tbad\n")
        for row in sent
    ]
    wanted = [
        (0, "new", None),
        (1, "like", "near"),
        (2, "bad", "error"),
        (3, "new", "stored"),
        (4, "after", None),
    ]
    for together in (False, True):
        with Conversation(
            "insert", "crawl.fps", "-", "--format", form, "--unmatched", "--json", "-r", 1
        ) as conversation:
            if together:
                conversation.send("".join(lines))
            collected = []
            for line in lines:
                if not together:
                    conversation.send(line)
                collected.append(json.loads(conversation.answer()))
            code, out, err = conversation.ended()
        assert (code, out) == (1, b"")
        assert "fpstore: 1 row wrong, the first one: <stdin>:" in err
        keys = [(row["row"], row["query_id"], row.get("reason")) for row in collected]
        names = [
            (number, name if form == "jsonl" or name != "bad" else None, why)
            for number, name, why in wanted
        ]
        assert keys == names
        assert [row["inserted"] for row in collected] == [why is None for *_, why in wanted]
        assert [bool(row.get("error")) for row in collected] == [
            why == "error" for *_, why in wanted
        ]
        fine("delete", "crawl.fps", "new", "after", "-q")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("options", [[], ["--upsert"], ["--unmatched", "--json"]])
def test_rows_left_out_behind_the_last_chunk_are_no_error(
    folder: Path, set_limits: SetLimits, options: list[str]
) -> None:
    set_limits(cli_texts=1)
    fine("build", "pages.fps", "corpus.parquet", *TEXT_AND_ID, "-q", "--force")
    rows = [
        {"url": "x", "text": "words of a page of its own"},
        {"url": "y", "text": " "},
        {"url": "z", "text": None},
    ]
    Path("p.jsonl").write_text(json_lines(rows))
    out = run("insert", "pages.fps", "p.jsonl", *TEXT_AND_URL, "-q", *options)
    assert (out.exit_code, out.stderr) == (0, "")
    written = [
        (row["query_id"], row.get("reason")) for row in map(json.loads, out.stdout.splitlines())
    ]
    assert written == (
        [("x", None), ("y", "no words"), ("z", "no words")] if "--json" in options else []
    )
    assert fine("ids", "pages.fps", "x").endswith("\tx\n")


@pytest.mark.full
def test_null_and_blank_texts_have_one_reason_everywhere(folder: Path) -> None:
    """A null text was "no words" in an answer, "null" in the list and "no text" in the note.

    The list lacked wrong rows.
    """
    fine("build", "pages.fps", "corpus.parquet", *TEXT_AND_ID, "-q", "--force")
    lines = [
        '{"url": "x", "text": "!!!"}',
        '{"url": "y", "text": " "}',
        '{"url": "z", "text": null}',
        '{"url": "w"',
        "7",
    ]
    words = ("--format", "jsonl", *TEXT_AND_URL, "--unmatched", "--json", "--left-out", "left.tsv")
    with Conversation("insert", "pages.fps", "-", *words) as conversation:
        conversation.send("".join(f"{line}\n" for line in lines))
        answers = [json.loads(conversation.answer()) for _ in lines]
        _, _, err = conversation.ended()
    reasons = [None, "no words", "no words", "error", "error"]
    assert [answer.get("reason") for answer in answers] == reasons
    listed = [f"{row}\t{reason}" for row, reason in enumerate(reasons) if reason is not None]
    assert Path("left.tsv").read_text().splitlines() == listed
    assert "fpstore: 2 rows left out, blank: row 1, row 2\n" in err


def test_a_changed_page_is_decided_anew_by_the_pipe(folder: Path) -> None:
    sent = [
        (FAR, "new"),
        (FAR, "new"),
        (FAR ^ 1, "new"),
        (NEAR ^ 2, "new"),
        (FAR ^ 2, "other"),
        (FAR ^ 3, "new"),
    ]
    wanted = [
        (True, None),
        (False, "stored"),
        (True, None),
        (False, "near"),
        (True, None),
        (False, "near"),
    ]
    fine("build", "anew.fps", "-", "--radius", 3, "-q", stdin=f"{NEAR:016x}\ta\n")
    for together in (False, True):
        shutil.copytree("anew.fps", f"{together}.fps")
        options = ["-", "--format", "jsonl", "--unmatched", "--upsert", "--json", "-q"]
        with Conversation("insert", f"{together}.fps", *options) as conversation:
            if together:
                conversation.send("".join(query("jsonl", *row) for row in sent))
            collected = []
            for row in sent:
                if not together:
                    conversation.send(query("jsonl", *row))
                collected.append(json.loads(conversation.answer()))
            assert conversation.ended() == (0, b"", "")
        assert [(row["inserted"], row.get("reason")) for row in collected] == wanted
        assert [match["ids"] for match in collected[3]["matches"]] == [["a"]]
        assert fine("ids", f"{together}.fps", "other") == f"{FAR ^ 2:016x}\tother\n"
        assert fine("ids", f"{together}.fps", "new", "-q") == ""
    assert "give --json" in failure("insert", "anew.fps", "-", "--unmatched", "--upsert", code=2)


@pytest.mark.full
def test_lines_that_are_no_rows_have_answers_too(folder: Path) -> None:
    fine("build", "pages.fps", "corpus.parquet", *TEXT_AND_ID, "-q", "--force")
    good = {"url": "good", "text": "some words that no other page of this store has"}
    lines = [
        b"{",
        b'{"url": "x"}',
        b'{"url": "", "text": "a b c d"}',
        b'"\xff',
        b"[1]",
        b'{"url": "y", "text": 5}',
        b'{"text": "no id"}',
    ]
    lines += [
        b'{"url": 7, "text": "words of a page whose id is a number"}',
        json.dumps(good).encode(),
    ]
    options = ["--format", "jsonl", "--unmatched", "--json", *TEXT_AND_URL, "-q"]
    with Conversation("insert", "pages.fps", "-", *options) as conversation:
        collected = []
        for line in lines:
            conversation.send(line.decode("latin-1") + "\n")
            collected.append(json.loads(conversation.answer()))
        assert conversation.ended() == (1, b"", "")
    assert [row.get("reason") for row in collected] == ["error"] * 7 + [None, None]
    assert [row["query_id"] for row in collected] == [
        None,
        "x",
        "",
        None,
        None,
        "y",
        None,
        "7",
        "good",
    ]
    assert [row["row"] for row in collected] == list(range(9))
    assert fine("ids", "pages.fps", "good", "7").count("\n") == 2


def test_ids_of_a_stream_are_strings_unless_told(folder: Path) -> None:
    for options, wanted in (([], ["1", "x"]), (["--id-type", "int"], [1])):
        with Conversation("probe", "crawl.fps", "--input", "-", "--json", *options) as conversation:
            conversation.send("0x2a\t1\n")
            assert json.loads(conversation.answer())["query_id"] == wanted[0]
            conversation.send("0x2a\tx\n")
            code, out, err = conversation.ended()
        assert [json.loads(line)["query_id"] for line in out.splitlines()] == wanted[1:]
        assert (code, "--id-type" in err or "integer" in err) == (
            (0, False) if not options else (2, True)
        )
    fine("build", "integers.fps", "-", "-q", stdin="ffff0000ffff0000\t7\n")
    # of inserts they are of the kind of the store
    for name, kept in (("integers.fps", 8), ("crawl.fps", "8")):
        with Conversation("insert", name, "-", "--unmatched", "--json", "-q") as conversation:
            conversation.send("00000000ffffffff\t8\n")
            assert json.loads(conversation.answer())["query_id"] == kept
            assert conversation.ended() == (0, b"", "")


@pytest.mark.full
def test_the_codes_of_a_stream(folder: Path) -> None:
    for sent, code in (("", 1), ("0x1234567812345678\n", 1), ("0x1234567812345678\n0x2a\n", 0)):
        with Conversation("probe", "crawl.fps", "-r", 0, "--input", "-") as conversation:
            conversation.send(sent)
            assert (conversation.ended()[0], sent) == (code, sent)
    with Conversation("probe", "crawl.fps", "-r", 0, "--input", "-", "--quiet") as conversation:
        conversation.send("0x1234567812345678\n0x2a\n")
        assert conversation.process.wait(TIMEOUT_SECONDS) == 0  # although its input is open
        assert conversation.ended() == (0, b"", "")


@pytest.mark.full
def test_a_signal_ends_the_wait_for_a_line(folder: Path) -> None:
    for number, code, word in (
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
    ):
        with Conversation("probe", "crawl.fps", "-r", 0, "--input", "-") as conversation:
            conversation.send("0x2a\n")
            assert conversation.answer().endswith("\tsmall")
            assert conversation.interrupted(number) == (code, b"", f"fpstore: {word}\n")


@pytest.mark.full
def test_a_reader_that_has_gone_ends_it_quietly(folder: Path) -> None:
    with Conversation("probe", "crawl.fps", "-r", 0, "--input", "-") as conversation:
        conversation.send("0x2a\n")
        assert conversation.answer()
        assert conversation.process.stdout is not None
        conversation.process.stdout.close()
        conversation.send("0x2a\n")
        assert conversation.process.wait(TIMEOUT_SECONDS) == 141
        assert conversation.process.stderr is not None
        assert conversation.process.stderr.read() == b""


def converse(one: Conversation, send: Callable[[bytes], object]) -> None:
    for _ in range(3):
        send(b"0x2a\n")
        assert one.answer().endswith("\tsmall")


@pytest.mark.full
def test_sockets_and_pipes_of_every_kind(folder: Path) -> None:
    arguments = ("probe", "crawl.fps", "-r", 0, "--input")
    near, far = socket.socketpair()
    with near, far, Conversation(*arguments, "-", stdin=far.fileno()) as conversation:
        far.close()
        converse(conversation, near.sendall)
        near.shutdown(socket.SHUT_WR)
        assert conversation.ended() == (0, b"", "")
    os.mkfifo("queries.txt")
    with Conversation(*arguments, "queries.txt", stdin=subprocess.DEVNULL) as conversation:
        with Path("queries.txt").open("wb", buffering=0) as fifo:
            converse(conversation, fifo.write)
        assert conversation.ended() == (0, b"", "")
    out, into = os.pipe()
    os.set_blocking(out, False)  # Node and others leave their pipes so
    with os.fdopen(out, "rb") as end, Conversation(*arguments, "-", stdin=end) as conversation:
        end.close()
        converse(conversation, lambda data: os.write(into, data))
        os.close(into)
        assert conversation.ended() == (0, b"", "")
    leader, follower = pty.openpty()  # a terminal is read by lines, and once to its end
    with Conversation(*arguments, "-", stdin=follower) as conversation:
        os.close(follower)
        converse(conversation, lambda data: os.write(leader, data))
        os.write(leader, b"\x04")  # Ctrl-D
        assert conversation.process.wait(TIMEOUT_SECONDS) == 0
    os.close(leader)


@pytest.mark.full
def test_a_fast_producer_is_answered_in_large_batches(folder: Path) -> None:
    """Not in one batch for each of the producer's writes: the calls of the store are counted."""
    rows = 30_000
    Path("many.txt").write_text("".join(f"{i << 20:016x}\n" for i in range(rows)))
    script = (
        "import sys, fpstore.store as s\nfrom fpstore.cli import main\nplain, calls = "
        "s.Store.probe_many, []\n"
        "def counted(self, part, *a, **b):\n    calls.append(len(part))\n    return plain(self, "
        "part, *a, **b)\n"
        "s.Store.probe_many = counted\ntry:\n    main(['probe', 'crawl.fps', '--input', '-', "
        "'--json', '-o', 'out.jsonl'])\n"
        "finally:\n    print(len(calls), sum(calls))"
    )
    with Path("many.txt").open("rb") as file:
        cat = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdin=cat.stdout,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    assert cat.stdout is not None
    cat.stdout.close()
    assert cat.wait(TIMEOUT_SECONDS) == 0
    calls, queries = map(int, done.stdout.split())
    assert (queries, done.stderr) == (rows, "")
    assert calls < rows / 1000
    probe = ("probe", "crawl.fps", "--input", "many.txt", "--json")
    fine(*probe, "-o", "same.jsonl", code=done.returncode)
    assert Path("out.jsonl").read_bytes() == Path("same.jsonl").read_bytes()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("form", "sync"), crossed(["txt", "tsv", "csv", "jsonl"], ["commit", "batch"])
)
def test_each_row_is_probed_and_inserted_before_the_next_is_sent(
    folder: Path, form: str, sync: str
) -> None:
    """Answers came at the end of the input: only Python could probe and insert in one step."""
    new = 0x1234_5678_9ABC_DEF0
    sent = [
        (NEAR ^ 2, "one"),
        (new, "two"),
        (new ^ 1, "three"),
        (new, "two"),
        (FAR ^ 0xFFFF, "five"),
    ]
    options = ("--format", form, "--unmatched", "--json", "-r", 1, "--sync", sync)
    with Conversation("insert", "crawl.fps", "-", *options) as conversation:
        for row, (fingerprint, name) in enumerate(sent):
            conversation.send(query(form, fingerprint, name))
            answer = json.loads(conversation.answer())
            assert (answer["row"], answer["query_id"], answer["query"]) == (
                row,
                name,
                f"{fingerprint:016x}",
            )
            assert answer["inserted"] == (name in ("two", "five") and row != 3)
            matches = [i for match in answer["matches"] for i in match["ids"]]
            # a stored row is no match of itself
            assert matches == [["a", "a again"], [], ["two"], [], []][row]
            if sync == "commit":  # then other processes have it before the answer
                with fpstore.open("crawl.fps") as reader:
                    assert bool(reader.probe(fingerprint, 0)) == (name in ("two", "five"))
        code, out, err = conversation.ended()
    assert (code, out) == (0, b"")
    assert err.startswith("fpstore: crawl.fps: 2 rows of 5 inserted, ")
    assert (
        fine("ids", "crawl.fps", "two", "five") == f"{new:016x}\ttwo\n{FAR ^ 0xFFFF:016x}\tfive\n"
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("given", [True, False])
def test_stream_text_is_answered_before_the_next_is_sent(folder: Path, given: bool) -> None:
    """Texts waited for the end of the input, so a program could not have its pages hashed.

    Each row has one answer.
    """
    build = ["build", "pages.fps", "corpus.parquet", *(TEXT_AND_ID if given else TEXT_FIELD)]
    build += ["-q", "--force"]
    fine(*build)
    texts = [TEXT + "an end", None, "", "one more text of its own", TEXT, "", None]
    wanted = [False, False, False, True, False, False, False]
    options = ["--format", "jsonl", "--unmatched", "--json"]
    options += TEXT_AND_URL if given else TEXT_FIELD
    lines = [
        json.dumps({"url": f"page {row}", "text": text}) + "\n" for row, text in enumerate(texts)
    ]
    with Conversation("insert", "pages.fps", "-", *options, "-q") as conversation:
        one_by_one = []
        for line in lines:
            conversation.send(line)
            one_by_one.append(json.loads(conversation.answer()))
        assert conversation.ended() == (0, b"", "")
    assert [answer["row"] for answer in one_by_one] == list(range(7))
    assert [answer["inserted"] for answer in one_by_one] == wanted
    assert [answer["query"] is None for answer in one_by_one] == [
        text in (None, "") for text in texts
    ]
    reasons = ["near", "no words", "no words", None, "near", "no words", "no words"]
    near = [reason == "near" for reason in reasons]
    assert [bool(answer["matches"]) for answer in one_by_one] == near
    names = [answer.get("query_id") for answer in one_by_one]
    assert names == [f"page {row}" if given else 4 + row for row in range(7)]
    assert [answer.get("reason") for answer in one_by_one] == reasons
    fine(*build)
    with Conversation("insert", "pages.fps", "-", *options, "-q") as conversation:  # all at once
        conversation.send("".join(lines))
        assert [json.loads(conversation.answer()) for _ in lines] == one_by_one
        assert conversation.ended() == (0, b"", "")
    Path("pages.jsonl").write_text("".join(lines))
    fine(*build)
    result = run("insert", "pages.fps", "pages.jsonl", *options[2:], "-q")
    assert [json.loads(line) for line in result.stdout.splitlines()] == one_by_one


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        (
            ['{"id": "x", "text": "a b c"}', "not json", '{"id": 5, "text": "d e f"}'],
            [None, "error", "error"],
        ),
        (['{"id": 5, "text": "a b c"}', '{"id": "x", "text": "d e f"}'], [None, "error"]),
        (
            ['{"id": "z\\ud800", "text": "a b c"}', '{"id": "z\\ud800", "text": ""}'],
            ["error", "error"],
        ),
    ],
)
def test_ids_of_wrong_lines_do_not_end_a_writer(tmp_path, monkeypatch, lines, reasons):
    """A wrong line made the writer forget the kind of ids.

    A lone surrogate could not be written in an answer.
    """
    monkeypatch.chdir(tmp_path)
    fine("build", "--empty", "s.fps", "--text-field", "text", "-q")
    last = json.dumps({"id": 9 if lines[0].startswith('{"id": 5') else "y", "text": "q r s"})
    options = ["--format", "jsonl", *TEXT_AND_ID, "--unmatched", "--json", "-q"]
    with Conversation("insert", "s.fps", "-", *options) as conversation:
        for batch in (lines, [last]):
            conversation.send("".join(f"{line}\n" for line in batch))
            rows = [json.loads(conversation.answer()) for _ in batch]
            assert [row.get("reason") for row in rows] == (reasons if batch is lines else [None])
        assert conversation.ended()[0] == 1
