"""The verbs that look inside, take out, plan and hash."""

import itertools
import json
import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from commandline import COMMAND, FINGERPRINTS, IDS, TEXT, failure, fine, run
from limits import SetLimits
from speeds import crossed, slow

import fpstore
from fpstore.cli.options import parse_count
from fpstore.hashing import SimHash


def test_stats(folder: Path) -> None:
    summary = json.loads(fine("stats", "crawl.fps", "--json", "--full"))
    assert summary["fingerprints"] == 7
    assert sum(summary["distribution"]["h"].values()) == 6
    out = fine("stats", "notes.fps", "--full")
    assert re.search(r"^fingerprints +2$", out, re.MULTILINE)
    assert re.search(r"^total +[\d,]+ +[\d.]+ [kM]B$", out, re.MULTILINE)
    assert "simhash" in out
    taken = {
        name: int(number.replace(",", ""))
        for name, number in re.findall(
            r"^(\w+|index by id) +([\d,]+) +[\d.]+ [kM]?B\b", out, re.MULTILINE
        )
    }
    assert taken["strings"] > 0
    # the keys are among the tables, and their row has two words
    assert taken.pop("total") == sum(taken.values())
    fpstore.build("empty.fps", []).close()
    assert "fingerprints    0" in fine("stats", "empty.fps", "--full")
    with fpstore.open("empty.fps", "r+") as store:  # whose tables stay empty: there is no ratio
        store.insert(np.random.default_rng(1).integers(0, 2**64, 5000, np.uint64))
        stats = store.stats()
    assert stats["bytes_per_fingerprint"]["total"] == stats["bytes"]["total"] / 5000
    assert stats["ratio_to_limit"] is None
    out = fine("stats", "empty.fps")
    assert ("x the limit" in out, "bytes/fingerprint" in out) == (False, True)
    fpstore.build("wide.fps", [1, 2], width=256).close()
    assert re.search(r"^width +256 bits$", fine("stats", "wide.fps"), re.MULTILINE)
    assert json.loads(fine("stats", "wide.fps", "--json"))["width"] == 256


def test_verify_names_file_and_block(folder: Path) -> None:
    assert fine("verify", "crawl.fps").startswith("crawl.fps: sound: 7 fingerprints, ")
    assert fine("verify", "crawl.fps", "-q") == ""
    table = sorted(Path("crawl.fps").rglob("table-*"))[-1]
    data = bytearray(table.read_bytes())
    data[4096 + 40] ^= 1
    table.write_bytes(data)
    result = run("verify", "crawl.fps")
    assert result.exit_code == 1
    assert result.stderr == "fpstore: crawl.fps: 1 fault: fpstore repair keeps what is intact\n"
    assert re.search(rf"{table.name}.*block 0|block 0.*{table.name}", result.stdout)
    result = run("verify", "crawl.fps", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (1, False)
    assert (Path(report["faults"][0]["path"]).name, report["faults"][0]["block"]) == (table.name, 0)


def test_ids_are_found(folder: Path) -> None:
    """In the order in which they are asked for, each with all its fingerprints."""
    Path("more.tsv").write_text("00000000000000ff\tzero\n")
    fine("insert", "crawl.fps", "more.tsv", "-q")
    rows = f"{int(FINGERPRINTS[3]):016x}\tfar\n{0:016x}\tzero\n{255:016x}\tzero\n"
    assert fine("ids", "crawl.fps", "far", "zero") == rows
    Path("asked.txt").write_text("zero\nnobody\n")
    done = run("ids", "crawl.fps", "far", "--input", "asked.txt")
    assert (done.exit_code, done.stdout, done.stderr) == (
        0,
        rows,
        "fpstore: crawl.fps: 1 id is not stored\n",
    )
    assert fine("ids", "crawl.fps", "nobody", "--quiet") == ""
    assert run("ids", "crawl.fps", "x", "y").stderr == "fpstore: crawl.fps: 2 ids are not stored\n"
    lines = [json.loads(line) for line in fine("ids", "crawl.fps", "far", "--json").splitlines()]
    assert lines == [{"fingerprint": f"{int(FINGERPRINTS[3]):016x}", "id": "far"}]


def test_integer_ids_are_found(folder: Path) -> None:
    for index in ((), ("--index-ids",)):
        fine("build", "n.fps", "a.npy", *index, "-q", "--force")
        rows = [f"{int(FINGERPRINTS[place]):016x}\t{place}\n" for place in (3, 0, 3)]
        assert fine("ids", "n.fps", "--input", "-", stdin="3\n0\n3\n") == "".join(rows)
        assert run("ids", "n.fps", 2**64 - 1, 1).stderr == "fpstore: n.fps: 1 id is not stored\n"
        assert "the id '0x1' is not an unsigned integer" in failure("ids", "n.fps", "0x1")


def test_exports_and_found_ids_can_be_built_again(folder: Path) -> None:
    for suffix, verb in itertools.product(
        ("tsv", "csv", "jsonl", "parquet"), (["export"], ["ids", *IDS])
    ):
        fine(verb[0], "crawl.fps", *verb[1:], "-o", f"{verb[0]}.{suffix}")
        fine("build", "again.fps", f"{verb[0]}.{suffix}", "-q", "--force")
        assert fine("export", "again.fps") == fine("export", "crawl.fps")
    assert len(fine("export", "crawl.fps").splitlines()) == len(IDS)
    fine("export", "crawl.fps", "-o", "e.npy")
    np.testing.assert_array_equal(np.load("e.npy"), np.unique(FINGERPRINTS))
    assert fine("export", "crawl.fps", "--format", "csv").startswith("0000000000000000,zero\n")
    assert json.loads(fine("export", "crawl.fps", "--json").splitlines()[0]) == {
        "fingerprint": "0" * 16,
        "id": "zero",
    }


def test_plan_reads_numbers() -> None:
    for text, number in (
        ("16777216", 1 << 24),
        ("2^24", 1 << 24),
        ("2**24", 1 << 24),
        ("1e9", 10**9),
        ("16M", 16 * 10**6),
        ("0", 0),
        ("16Mi", 1 << 24),
        ("1.5G", 1500 * 10**6),
        ("1_000", 1000),
        ("16,777,216", 1 << 24),
        ("2^64", 1 << 64),
    ):
        assert parse_count(text) == number
    for text in ("", "x", "-1", "1.5", "2^65", "16Q", "1e-3", "2^", "nan", "9" * 40):
        failure("plan", "--", text, code=2)


@pytest.mark.full
def test_plan(folder: Path) -> None:
    summary = json.loads(
        fine("plan", "2^24", "--disk-budget", "300MB", "--memory-budget", "64GiB", "--json")
    )["plans"]
    assert summary == sorted(summary, key=lambda p: not p["fits"])
    assert {p["fits"] for p in summary} == {True, False}
    lines = fine(
        "plan", "2^24", "--disk-budget", "300MB", "--memory-budget", "64GiB", "--all"
    ).splitlines()
    assert [line.split()[0] for line in lines[2:-4]] == [p["design"] for p in summary]
    assert lines[-4].startswith("Times are estimates for one slow thread")
    assert lines[-3].startswith("bytes/fp leaves out ids")
    assert lines[-2].startswith(
        "Bytes of memory of each change until a merge: 406 of 10,000, 154 of 100,000, 111 of "
        "300,000"
    )


@pytest.mark.full
@pytest.mark.parametrize("columns", [slow(80), 60, slow(40)])
@pytest.mark.parametrize(
    "arguments",
    [("1e9", "--disk-budget", "20GB", "--memory-budget", "4GiB"), slow(("2^34", "-r", "12"))],
)
def test_plan_on_a_terminal_breaks_no_word(columns: int, arguments: tuple[str, ...]) -> None:
    """Its lines of 170 characters were broken by the terminal, wherever that was."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb"}
    with subprocess.Popen(
        [*COMMAND, "plan", *arguments], stdout=follower, env=environment
    ) as process:
        os.close(follower)
        written = b""
        with suppress(OSError):  # the end of a terminal
            while data := os.read(leader, 1 << 16):
                written += data
    os.close(leader)
    assert process.returncode == 0
    lines = written.decode().splitlines()
    assert max(map(len, lines)) <= columns
    plain = fine("plan", *arguments)
    words = {word.removesuffix(":") for word in plain.split()}
    assert {word.removesuffix(":") for line in lines for word in line.split()} <= words | {"note"}
    assert len(" ".join(lines).split()) >= len(plain.split())


@pytest.mark.full
def test_plan_marks_what_auto_takes(folder: Path) -> None:
    lines = fine("plan", "2^22", "--radius", 5).splitlines()
    assert re.fullmatch(rf"{fpstore.plan(1 << 22, 5)[0].name} .* auto", lines[2])
    assert not [line for line in lines[3:] if line.endswith("auto")]
    assert fine("plan", "2^22", "--disk-budget", "1MB").endswith("\nNo design fits the budgets.\n")
    cold = "\nNo design fits the budgets; build would then choose as with --storage cold.\n"
    assert fine("plan", "2^22", "--memory-budget", "1MB").endswith(cold)


@pytest.mark.full
def test_plan_shows_the_best_rows_and_with_all_every_one(folder: Path) -> None:
    designs = [p.name for p in fpstore.plan(1 << 24)]
    assert len(designs) > 12
    for arguments, shown in ((), 12), (("--all",), len(designs)):
        lines = fine("plan", "2^24", *arguments).splitlines()
        assert lines[0] == "16,777,216 fingerprints, radius 3, width 64, hot storage"
        assert [line.split()[0] for line in lines[2 : 2 + shown]] == designs[:shown]
        assert (lines[2 + shown] == f"and {len(designs) - 12} more: --all shows them.") == (
            not arguments
        )
    summary = json.loads(fine("plan", "2^24", "--width", 128, "--json"))
    assert (summary["width"], len(summary["plans"])) == (128, len(fpstore.plan(1 << 24, width=128)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("n", "prefer"), crossed([100, 1000, 5000, 1 << 20], ["balance", "speed", "space"], share=3)
)
def test_plan_says_why_auto_does_not_take_the_fastest_design(n: int, prefer: str) -> None:
    output = fine("plan", n, "--radius", 10, "--prefer", prefer)
    scan_is_cheaper = (
        json.loads(fine("plan", n, "--radius", 10, "--json"))["scan"]["cheaper_from_radius"] <= 10
    )
    differs = (fpstore.plan(n, 10, prefer=prefer)[0].name == "scan") != scan_is_cheaper
    assert output.endswith("auto weighs bytes, too.\n") == (differs and prefer != "speed")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("n", [0, slow(1), 2, slow(5), slow(1000), 5000])
def test_a_tiny_store_prints_no_ratio(folder: Path, n: int) -> None:
    """Two fingerprints were said to take 291.780 x the limit.

    One was said to take 49688.0 bytes per fingerprint.
    """
    fingerprints = np.random.default_rng(n).integers(0, 2**64, n, np.uint64)
    np.save("n.npy", fingerprints)
    built = fine("build", "n.fps", "n.npy")
    out = fine("stats", "n.fps", "--full")
    planned = fine("plan", n)
    units = ["bytes per fingerprint" in built, "bytes/fingerprint" in out, "x the limit" in out]
    assert units == [n >= 4096] * 3
    assert planned.startswith(f"{n:,} fingerprint{'' if n == 1 else 's'}, ")
    assert ("The first table is empty." in out) == (n == 0)
    summary = json.loads(fine("stats", "n.fps", "--json"))
    assert (summary["ratio_to_limit"] is None) == (summary["ratio_to_raw"] is None) == (n < 4096)
    disk = json.loads(fine("plan", n, "--json"))["plans"][0]["disk_bytes"]
    assert disk == pytest.approx(summary["bytes"]["total"], rel=0.2)
    assert fine("verify", "n.fps").startswith(f"n.fps: sound: {n:,} fingerprint")


def test_hash_text(folder: Path) -> None:
    simhash = SimHash(shingle="chars", size=4)
    files = ("notes/one.txt", "-")
    out = fine(
        "hash", "--text", *files, "--shingle", "chars", "--shingle-size", 4, stdin="hello world"
    )
    assert out.splitlines() == [
        f"{simhash.fingerprint(text):016x}\t{name}"
        for text, name in zip((TEXT, "hello world"), files, strict=True)
    ]
    fine("hash", "--text", "notes", "--suffix", ".txt", "-o", "h.parquet", "-q")
    fine("build", "x.fps", "h.parquet", "-q")
    assert len(fpstore.open("x.fps")) == 2


def test_verify_of_a_store_that_cannot_be_opened_names_the_fault(folder: Path) -> None:
    with Path("crawl.fps", "gen-00000001", "ids.mdb").open("r+b") as file:
        file.seek(8192)
        file.write(b"damaged")
    done = run("verify", "crawl.fps")
    assert done.exit_code == 1
    assert "ids.mdb" in done.stdout
    assert (
        "1 fault; it cannot be opened, so the rest was not read: fpstore repair keeps what is "
        "intact" in done.stderr
    )
    summary = json.loads(run("verify", "crawl.fps", "--json").stdout)
    assert (summary["ok"], len(summary["faults"])) == (False, 1)


def test_unmatched_rows_without_ids_get_numbers_in_empty_store(folder: Path) -> None:
    fpstore.build("empty.fps", []).close()
    rows = np.arange(70_000, dtype=np.uint64) << np.uint64(20)  # more than one chunk
    np.save("new.npy", rows)
    options = ("--unmatched", "-r", "0", "-o", "m.tsv", "-q")
    done = json.loads(fine("insert", "empty.fps", "new.npy", *options, "--json"))
    assert done["inserted"] == len(rows)
    np.save("more.npy", np.append(rows[:2], np.uint64(1)))
    fine("insert", "empty.fps", "more.npy", *options)
    np.save("last.npy", np.array([2], np.uint64))
    fine("insert", "empty.fps", "last.npy", "-q")
    with fpstore.open("empty.fps") as store:
        assert store.stats()["id_kind"] == "row"
        assert (store[int(rows[-1])], store[1], store[2]) == ([69_999], [70_002], [70_003])


def test_inserts_that_make_the_delta_large_end_with_a_merge(
    folder: Path, set_limits: SetLimits
) -> None:
    """Each command is short, so a merge in the background would be given up with each."""
    set_limits(merge_changes=10)
    rng = np.random.default_rng(2)

    def insert(rows: int) -> int:
        np.save("new.npy", rng.integers(0, 2**64, rows, np.uint64))
        fine("insert", "numbers.fps", "new.npy", "--merge-at", 0.9, "-q")
        return int(json.loads(fine("stats", "numbers.fps", "--json"))["generation"])

    assert (insert(6), insert(3)) == (1, 1)
    assert insert(1) == 2
    np.save("new.npy", rng.integers(0, 2**64, 12, np.uint64))
    fine("insert", "numbers.fps", "new.npy", "-q")
    message = (
        "numbers.fps: nothing to merge yet: 12 changes since the last merge; --at {} merges from "
        "{} on\n"
    )
    # of 14 fingerprints in the tables
    assert fine("merge", "numbers.fps", "--at", 50) == message.format(50, "700")
    assert fine("merge", "numbers.fps", "--at", 0.9) == message.format(0.9, "13")
    assert fine("merge", "numbers.fps", "--at", 1e308) == message.format(
        "1e+308", "9,223,372,036,854,775,808"
    )
    assert "generation 3, " in fine("merge", "numbers.fps", "--at", 0.1)


def test_delta_that_outgrows_the_tables_is_noted_once_at_the_end(
    folder: Path, set_limits: SetLimits
) -> None:
    set_limits(merge_changes=10, cli_changes=4)
    held = len(fpstore.open("numbers.fps"))
    rows = np.arange(10**9, 10**9 + held + 20, dtype=np.uint64)
    for name, part in (("few.npy", rows[: held - 1]), ("more.npy", rows[held - 1 :])):
        np.save(name, part)
    assert run("insert", "numbers.fps", "few.npy").stderr == ""
    output = run("insert", "numbers.fps", "more.npy").stderr
    assert output.startswith(
        f"fpstore: numbers.fps: {held + 20} changes since the last merge, for {held} fingerprints "
        "in"
    )
    assert output.endswith("Merge it: fpstore merge, or Store.merge()\n")
    assert run("delete", "numbers.fps", "0").stderr.startswith(
        f"fpstore: numbers.fps: {held + 21} changes since"
    )
    assert run("insert", "numbers.fps", "more.npy", "--merge-at", 0.9).stderr == ""


def test_rows_of_an_unknown_hasher_are_noted_as_perhaps_unfit(folder: Path) -> None:
    """A store of one kind of hashes, and an input that may have any."""
    fpstore.build("texts.fps", [1, 2], ["a", "b"], fingerprinter=fpstore.SimHash()).close()
    fpstore.build("bare.fps", [3], ["c"]).close()
    Path("more.tsv").write_text("00000000000000ff\tzero\n")
    Path("page.txt").write_text("a text of some words")
    note = "fpstore: texts.fps: the store has fingerprints made by simhash; "
    note += "nothing says how the fingerprints of {} were made: they may not fit\n"
    assert run("insert", "texts.fps", "more.tsv", "--fingerprints").stderr == note.format(
        "the input"
    )
    assert "holds rows, not one text" in failure("insert", "texts.fps", "more.tsv")
    assert (
        run("insert", "texts.fps", "page.txt").stderr
        == run("insert", "bare.fps", "more.tsv").stderr
        == ""
    )
    assert run("absorb", "texts.fps", "bare.fps").stderr == note.format("bare.fps")
    fpstore.build("others.fps", [3], ["c"], fingerprinter=fpstore.ImageHash()).close()
    assert "were made in different ways" in run("join", "texts.fps", "others.fps").stderr
    assert "were made in another way" in failure("absorb", "texts.fps", "others.fps")
    np.save("wide.npy", np.zeros((3, 16), np.uint8))
    assert "128 bits" in failure("insert", "texts.fps", "wide.npy", "--fingerprints")


def test_matches_of_an_insert(folder: Path) -> None:
    assert "--with-queries needs --unmatched" in failure(
        "insert", "crawl.fps", "new.tsv", "--with-queries", code=2
    )
    Path("new.tsv").write_text(f"{FINGERPRINTS[0]:016x}\tother\n")
    lines = run(
        "insert", "crawl.fps", "new.tsv", "--unmatched", "--with-queries"
    ).stdout.splitlines()
    assert lines
    assert {(line.split("\t")[0], line.split("\t")[4]) for line in lines} == {
        (f"{FINGERPRINTS[0]:016x}", "other")
    }
    Path("new.tsv").write_text(f"{FINGERPRINTS[0]:016x}\tother\nffff0000ffff0000\tnew\n")
    result = run("insert", "crawl.fps", "new.tsv", "--unmatched", "--json")
    assert result.exit_code == 0
    matched, unmatched = map(json.loads, result.stdout.splitlines())
    assert matched["matches"][0]["fingerprint"] == f"{FINGERPRINTS[0]:016x}"
    assert unmatched["matches"] == []
    assert (matched["query_id"], unmatched["query_id"]) == ("other", "new")
    assert "1 row of 2 inserted" in result.stderr
    done = json.loads(
        fine("insert", "crawl.fps", "new.tsv", "--unmatched", "--json", "-o", "m.tsv")
    )
    assert (done["rows"], done["inserted"]) == (2, 0)


def test_a_merge_of_nothing_says_so(folder: Path) -> None:
    """It printed the line of a merge, below --at and without any change."""
    assert (
        fine("merge", "numbers.fps")
        == "numbers.fps: nothing to merge yet: 0 changes since the last merge\n"
    )
    fine("insert", "numbers.fps", "b.npy", "-q")
    message = (
        "numbers.fps: nothing to merge yet: 4 changes since the last merge; --at 0.1 merges from "
        "65,536 on\n"
    )
    assert fine("merge", "numbers.fps", "--at", 0.1) == message
    assert json.loads(fine("merge", "numbers.fps", "--at", 0.1, "--json"))["merged"] is False
    summary = json.loads(fine("merge", "numbers.fps", "--json"))
    assert (summary["merged"], summary["generation"]) == (True, 2)


def test_an_upsert_tells_of_changed_rows(folder: Path) -> None:
    """It said that rows were inserted whose ids had moved."""
    Path("moved.tsv").write_text(
        f"{FINGERPRINTS[3]:016x}\tfar\n00000000000000f0\tzero\n00000000000000f1\tzero\n"
    )
    assert fine("insert", "crawl.fps", "moved.tsv", "--upsert").startswith(
        "crawl.fps: 1 row of 3 changed, "
    )
    assert fine("ids", "crawl.fps", "zero") == "00000000000000f1\tzero\n"
    Path("moved.tsv").write_text("00000000000000f0\tzero\n00000000000000f1\tnew\n")
    done = json.loads(fine("insert", "crawl.fps", "moved.tsv", "--upsert", "--json"))
    assert done == {"rows": 2, "changed": 2, "fingerprints": 8, "ids": 9}


def test_stores_of_row_numbers_are_said_to_share_ids(folder: Path) -> None:
    for name in ("a.fps", "b.fps"):
        fpstore.build(name, [1, 2] if name == "a.fps" else [5]).close()
    assert "a.fps and b.fps both have row numbers as ids" in run("absorb", "a.fps", "b.fps").stderr
    assert run("absorb", "a.fps", "b.fps", "--renumber").stderr == ""
