"""The command line: verbs, outputs, exit codes, one-line errors; help and documentation agree with it."""

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, suppress
from pathlib import Path

import click
import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import fpstore
from fpstore.cli import main
from fpstore.cli.plan import parse_count
from fpstore.cli.signals import Interrupted, raised_as_exceptions
from fpstore.cli.verb import examples
from fpstore.hashing import SimHash

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "fpstore"]
NEAR, FAR = 0x00FF00FF00FF00FF, 0xAAAA5555AAAA5555
FINGERPRINTS = np.array([NEAR, NEAR ^ 1, NEAR ^ 0b111, FAR, 42, 0, 2**64 - 1, NEAR], dtype=np.uint64)
IDS = ["a", "b", "c", "far", "small", "zero", "ones", "a again"]
TEXT = "".join(f"word{i} follows word{i - 1} in the text that everybody copies. " for i in range(200))


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin)


def fine(*arguments: object, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def failure(*arguments: object, code: int = 1, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == code, result.output
    assert re.fullmatch(r"fpstore: [^\n]+\n", result.stderr), result.stderr
    assert result.stdout == ""
    return result.stderr


def verbs(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from verbs(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with what the examples of the help texts work on."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = list(zip(FINGERPRINTS.tolist(), IDS, strict=True))
    (folder / "crawl.tsv").write_text("".join(f"{f:016x}\t{i}\n" for f, i in rows))
    (folder / "crawl.csv").write_text("".join(f"{f},{i}\n" for f, i in rows))
    (folder / "crawl.jsonl").write_text("".join(json.dumps({"hash": f"{f:016x}", "url": i}) + "\n" for f, i in rows))
    for name, part in (("a", FINGERPRINTS[:4]), ("b", FINGERPRINTS[4:]), ("queries", FINGERPRINTS[:2])):
        np.save(folder / f"{name}.npy", part)
    (folder / "notes").mkdir()
    (folder / "notes" / "one.txt").write_text(TEXT)
    (folder / "notes" / "two.txt").write_text(TEXT + "and an ending")
    (folder / "notes" / "empty.md").write_text("")
    (folder / "notes" / "picture.txt").write_bytes(b"\x89PNG\0\0")
    (folder / "draft.txt").write_text(TEXT.replace("everybody", "everybody", 1) + "and another ending")
    assert run("build", folder / "crawl.fps", folder / "crawl.tsv").exit_code == 0
    with chdir(folder):
        assert run("build", "notes.fps", "notes", "--text", "-q").exit_code == 0
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy it, and make that the current folder."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Help, examples, documentation


@pytest.mark.parametrize("verb", ["", *(name for name, _ in verbs())])
def test_examples_of_help_run(verb: str, folder: Path) -> None:
    command: click.Command = dict(verbs())[verb] if verb else main
    if verb in ("", "build"):
        shutil.rmtree("crawl.fps")
        shutil.rmtree("notes.fps")
    found = examples(command.help)
    assert found
    for line in found:
        if line.startswith("fpstore demo"):
            continue  # test_demo.py
        if "|" not in line:
            result = run(*shlex.split(line)[1:])
            assert result.exit_code == 0, f"{line}: {result.output}"
            continue
        script = f'fpstore() {{ "{sys.executable}" -m fpstore "$@"; }}\n{line}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), line


@pytest.mark.parametrize("verb", [name for name, _ in verbs()])
def test_every_flag_has_help_and_an_example(verb: str) -> None:
    command = dict(verbs())[verb]
    assert all(line.split("fpstore ")[1].startswith(verb) for line in examples(command.help))
    words = set(shlex.split(" ".join(examples(command.help))))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert words & set(parameter.opts), f"no example of {verb} has {parameter.opts[-1]}"


def test_documentation_is_up_to_date() -> None:
    script = ROOT / "tools" / "make_cli_docs"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_and_version() -> None:
    assert all(name.split()[0] in fine("--help") for name, _ in verbs())
    assert fine("--version") == f"fpstore {fpstore.__version__}\n"
    for name, _ in verbs():
        assert "$ fpstore" in fine(*name.split(), "--help")


# Build


def test_build_says_what_it_made(folder: Path) -> None:
    out = fine("build", "x.fps", "crawl.tsv", "--design", "flip-2")
    assert re.fullmatch(r"x\.fps: 7 fingerprints, 8 ids, radius 3, flip-2 \(2 tables\), .* [\d.]+ s\n", out)
    assert fine("build", "x.fps", "crawl.tsv", "--force", "-q") == ""
    made = json.loads(fine("build", "x.fps", "crawl.tsv", "-r", 1, "--design", "blocks-4-1", "--force", "--json"))
    with fpstore.open("x.fps") as store:
        assert made == store.stats()
        assert (store.radius, store.design.name) == (1, "blocks-4-1")


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (["crawl.tsv"], None),
        (["crawl.csv", "--decimal"], None),
        (["crawl.jsonl", "--fingerprint-field", "hash", "--id-field", "url"], None),
        (["-"], "crawl.tsv"),
        (["-", "--format", "csv", "--decimal"], "crawl.csv"),
        (["-", "--format", "jsonl", "--fingerprint-field", "hash", "--id-field", "url"], "crawl.jsonl"),
    ],
)
def test_build_reads_every_text_format(arguments: list[str], stdin: str | None, folder: Path) -> None:
    fine("build", "x.fps", *arguments, "-q", stdin=stdin and Path(stdin).read_text())
    with fpstore.open("x.fps") as store:
        assert sorted(store[NEAR]) == ["a", "a again"]
        assert store[42] == ["small"]


def test_build_without_ids_numbers_the_rows(folder: Path) -> None:
    fine("build", "x.fps", "a.npy", "b.npy")
    with fpstore.open("x.fps") as store:
        assert sorted(store[NEAR]) == [0, 7]


def test_build_id_type(folder: Path) -> None:
    Path("n.tsv").write_text("1\t10\n2\t11\n")
    fine("build", "x.fps", "n.tsv", "--id-type", "str", "-q")
    assert fpstore.open("x.fps")[1] == ["10"]


def test_build_options_reach_the_library(folder: Path) -> None:
    options = [
        "--block-bytes",
        1024,
        "--memory",
        "64MiB",
        "--threads",
        1,
        "--storage",
        "cold",
        "--disk-budget",
        "1GB",
    ]
    made = json.loads(fine("build", "x.fps", "crawl.tsv", "--json", *options))
    assert made["block_bytes"] == 1024
    assert "disk budget" in failure("build", "y.fps", "crawl.tsv", "--disk-budget", "10")


def test_build_text_remembers_the_fingerprinter(folder: Path) -> None:
    result = run("build", "x.fps", "notes", "--text", "--shingle", "chars", "--shingle-size", 7, "--weighting", "set")
    assert result.stderr == ("fpstore: 1 file left out: binary, not text\nfpstore: 1 file without any words: fingerprint 0\n")
    with fpstore.open("x.fps") as store:
        made = store.fingerprinter
        assert made is not None
        assert (made["name"], made["parameters"]["shingle"], made["parameters"]["size"]) == (
            "simhash",
            "chars",
            7,
        )
        assert made["parameters"]["weighting"] == "set"
        assert store[0] == ["notes/empty.md"]
    result = run("build", "x.fps", "notes", "--text", "--skip-empty", "--suffix", ".md", "--force")
    assert result.stderr == "fpstore: 1 file left out: without any words\n"
    assert len(fpstore.open("x.fps")) == 0


# Probe and scan


def test_probe_writes_one_line_per_id(folder: Path) -> None:
    near = f"{NEAR:016x}"
    assert fine("probe", "crawl.fps", near, "-r", 1).splitlines() == [
        f"{near}\t{near}\t0\ta",
        f"{near}\t{near}\t0\ta again",
        f"{near}\t{NEAR ^ 1:016x}\t1\tb",
    ]
    assert len(fine("probe", "crawl.fps", near).splitlines()) == 4
    assert fine("probe", "crawl.fps", "0123456789abcdef") == ""


def test_probe_json_has_one_object_per_query(folder: Path) -> None:
    out = fine("probe", "crawl.fps", "0xFF", "--json") + fine("probe", "crawl.fps", "43", "--decimal", "--json")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"query": "00000000000000ff", "matches": []},
        {
            "query": "000000000000002b",
            "matches": [{"fingerprint": "000000000000002a", "distance": 1, "ids": ["small"]}],
        },
    ]


def test_probe_writes_files_by_extension(folder: Path) -> None:
    lines = fine("probe", "crawl.fps", "--input", "queries.npy")
    for name in ("m.tsv", "m.csv", "m.jsonl", "m.parquet"):
        assert fine("probe", "crawl.fps", "--input", "queries.npy", "-o", name, "--threads", 2) == ""
    assert Path("m.tsv").read_text() == lines
    assert Path("m.csv").read_text() == lines.replace("\t", ",")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "fingerprint", "distance", "id"]
    assert [str(kind) for kind in table.schema.types[:3]] == ["uint64", "uint64", "uint8"]
    rows = [f"{r['query']:016x}\t{r['fingerprint']:016x}\t{r['distance']}\t{r['id']}\n" for r in table.to_pylist()]
    assert "".join(rows) == lines
    assert [json.loads(line)["query"] for line in Path("m.jsonl").read_text().splitlines()] == [
        f"{NEAR:016x}",
        f"{NEAR ^ 1:016x}",
    ]


def test_probe_takes_queries_from_arguments_files_and_standard_input(folder: Path) -> None:
    lines = fine("probe", "crawl.fps", "2a", "--input", "-", "--json", stdin="0\tan id that does not matter\n")
    assert [json.loads(line)["query"] for line in lines.splitlines()] == [
        "000000000000002a",
        "0000000000000000",
    ]


def test_probe_streams_many_queries_exactly(folder: Path) -> None:
    rng = np.random.default_rng(5)
    stored = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    queries = np.repeat(stored, 60) ^ (np.uint64(1) << rng.integers(0, 64, 180_000, dtype=np.uint64))
    np.save("stored.npy", stored)
    np.save("many.npy", queries)
    fine("build", "x.fps", "stored.npy", "-q", "-r", 1)
    fine("probe", "x.fps", "--input", "many.npy", "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    np.testing.assert_array_equal(table["query"].to_numpy(), queries)
    np.testing.assert_array_equal(table["id"].to_numpy(), np.repeat(np.arange(3000), 60))


def test_probe_text_finds_the_documents(folder: Path) -> None:
    out = fine("probe", "notes.fps", "--text", "draft.txt")
    assert {line.split("\t")[3] for line in out.splitlines()} == {"notes/one.txt", "notes/two.txt"}
    found = json.loads(fine("probe", "notes.fps", "--text", "-", "--json", stdin=TEXT))
    assert found["document"] == "-"
    assert {"fingerprint": found["query"], "distance": 0, "ids": ["notes/one.txt"]} in found["matches"]
    fine("probe", "notes.fps", "--text", "--text", "draft.txt", "notes/one.txt", "-o", "m.parquet")
    assert set(pq.read_table("m.parquet")["document"].to_pylist()) == {"draft.txt", "notes/one.txt"}


def test_probe_over_the_radius_scans_and_says_so(folder: Path) -> None:
    far = f"{NEAR ^ 0x1F:016x}"
    result = run("probe", "crawl.fps", far, far, "-r", 5)
    assert result.exit_code == 0
    assert result.stderr == "fpstore: radius 5 is over the store's 3: answered by a scan of all 7 fingerprints\n"
    assert result.stdout == fine("scan", "crawl.fps", far, far, "-r", 5)
    assert result.stdout == fine("probe", "crawl.fps", far, far, "-r", 5, "-q")
    assert len(result.stdout.splitlines()) == 8
    assert len(fine("scan", "crawl.fps", far, "-r", 64).splitlines()) == len(IDS)


def test_ids_that_a_line_cannot_hold_go_to_json(folder: Path) -> None:
    fpstore.build("odd.fps", [1], ids=["tab\tand\nbreak"]).close()
    assert "JSON" in failure("probe", "odd.fps", "1")
    assert json.loads(fine("probe", "odd.fps", "1", "--json"))["matches"][0]["ids"] == ["tab\tand\nbreak"]


# Look inside, take out, plan, hash


def test_stats(folder: Path) -> None:
    found = json.loads(fine("stats", "crawl.fps", "--json", "--full"))
    assert found["fingerprints"] == 7
    assert sum(found["distribution"]["h"].values()) == 6
    out = fine("stats", "notes.fps", "--full")
    assert re.search(r"^fingerprints +3$", out, re.MULTILINE)
    assert re.search(r"^total +[\d,]+ +[\d.]+ kB +[\d.]+$", out, re.MULTILINE)
    assert "simhash" in out
    fpstore.build("empty.fps", []).close()
    assert "fingerprints    0" in fine("stats", "empty.fps", "--full")


def test_verify_names_file_and_block(folder: Path) -> None:
    assert fine("verify", "crawl.fps").startswith("crawl.fps: sound: 7 fingerprints, ")
    assert fine("verify", "crawl.fps", "-q") == ""
    table = sorted(Path("crawl.fps").rglob("table-*"))[-1]
    data = bytearray(table.read_bytes())
    data[4096 + 40] ^= 1
    table.write_bytes(data)
    result = run("verify", "crawl.fps")
    assert result.exit_code == 1
    assert result.stderr == "fpstore: crawl.fps: 1 fault\n"
    assert re.search(rf"{table.name}.*block 0|block 0.*{table.name}", result.stdout)
    result = run("verify", "crawl.fps", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, report["ok"]) == (1, False)
    assert (Path(report["faults"][0]["path"]).name, report["faults"][0]["block"]) == (table.name, 0)


@pytest.mark.parametrize("name", ["e.tsv", "e.csv", "e.jsonl", "e.parquet"])
def test_export_can_be_built_again(name: str, folder: Path) -> None:
    fine("export", "crawl.fps", "-o", name)
    fine("build", "again.fps", name, "-q")
    assert fine("export", "again.fps") == fine("export", "crawl.fps")
    assert len(fine("export", "crawl.fps").splitlines()) == len(IDS)


def test_export_formats(folder: Path) -> None:
    fine("export", "crawl.fps", "-o", "e.npy")
    np.testing.assert_array_equal(np.load("e.npy"), np.unique(FINGERPRINTS))
    assert fine("export", "crawl.fps", "--format", "csv").startswith("0000000000000000,zero\n")
    assert json.loads(fine("export", "crawl.fps", "--json").splitlines()[0]) == {
        "fingerprint": "0" * 16,
        "id": "zero",
    }


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16777216", 1 << 24), ("2^24", 1 << 24), ("2**24", 1 << 24), ("1e9", 10**9), ("16M", 16 * 10**6),
        ("16Mi", 1 << 24), ("1.5G", 1500 * 10**6), ("1_000", 1000), ("16,777,216", 1 << 24),
        ("0", 0), ("2^64", 1 << 64),
    ],
)  # fmt: skip
def test_plan_reads_numbers(text: str, number: int) -> None:
    assert parse_count(text) == number


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "2^65", "16Q", "1e-3", "2^", "nan", "9" * 40])
def test_plan_refuses_what_is_no_number(text: str) -> None:
    failure("plan", "--", text)


def test_plan(folder: Path) -> None:
    found = json.loads(fine("plan", "2^24", "--disk-budget", "300MB", "--memory-budget", "64GiB", "--json"))
    assert found == sorted(found, key=lambda p: not p["fits"])
    assert {p["fits"] for p in found} == {True, False}
    names = [line.split()[0] for line in fine("plan", "2^24", "--disk-budget", "300MB", "--memory-budget", "64GiB").splitlines()]
    assert names[2:] == [p["design"] for p in found]


def test_hash_text(folder: Path) -> None:
    simhash = SimHash(shingle="chars", size=4)
    out = fine("hash", "text", "notes/one.txt", "-", "--shingle", "chars", "--shingle-size", 4, stdin="hello world")
    assert out == f"{simhash.fingerprint(TEXT):016x}\tnotes/one.txt\n{simhash.fingerprint('hello world'):016x}\t-\n"
    fine("hash", "text", "notes", "--suffix", ".txt", "-o", "h.parquet", "-q")
    fine("build", "x.fps", "h.parquet", "-q")
    assert len(fpstore.open("x.fps")) == 2


# Bad input


def _bad_files() -> None:
    Path("words.tsv").write_text("00ff\tx\nnot hex\ty\n")
    Path("big.csv").write_text(f"1,a\n{2**64},b\n")
    Path("negative.csv").write_text("-5,a\n")
    Path("noid.tsv").write_text("00ff\tx\n0fff\n")
    Path("emptyid.tsv").write_text("00ff\t\n")
    Path("latin.tsv").write_bytes(b"00ff\t\xff\xfe\n")
    Path("bigid.tsv").write_text(f"00ff\t{2**64}\n")
    Path("cut.u64").write_bytes(b"1234567")
    Path("zero.npy").write_bytes(b"")
    Path("broken.jsonl").write_text('{"fingerprint": "ff"\n')
    Path("broken.parquet").write_bytes(b"PAR1")
    Path("plain").write_text("x")
    np.save("float.npy", np.zeros(3))
    np.save("signed.npy", np.zeros(3, np.int64))
    np.save("square.npy", np.zeros((3, 3), np.uint64))


BAD_BUILDS: list[tuple[Sequence[object], str]] = [
    (["missing.tsv"], "missing.tsv: no such file"),
    (["words.tsv"], "words.tsv:2: 'not hex' is not a fingerprint"),
    (["big.csv", "--decimal"], "big.csv:2: .*2\\^64-1"),
    (["negative.csv", "--decimal"], "negative.csv:1: "),
    (["noid.tsv"], "noid.tsv:2: "),
    (["emptyid.tsv"], "emptyid.tsv:1: the id is empty"),
    (["latin.tsv"], "latin.tsv:1: .*UTF-8"),
    (["bigid.tsv", "--id-type", "int"], "bigid.tsv:1: .*2\\^64-1"),
    (["cut.u64"], "cut.u64: "),
    (["zero.npy"], "zero.npy: "),
    (["broken.jsonl"], "broken.jsonl:1: "),
    (["broken.parquet"], "broken.parquet: "),
    (["float.npy"], "float.npy: .*float64"),
    (["signed.npy"], "signed.npy: .*int64.*view"),
    (["square.npy"], "square.npy: .*\\(3, 3\\)"),
    (["plain"], "unknown extension"),
    (["notes"], "notes: is a folder; --text"),
    (["missing", "--text"], "missing: No such file"),
    (["notes/picture.txt", "--text"], "NUL byte"),
    (["notes", "--text", "--suffix", "txt"], "suffix"),
    (["notes", "--text", "--shingle-size", 0], "size is an integer from 1 to 255"),
    (["crawl.tsv", "-r", 8], "radius must be a whole number from 0 to 7"),
    (["crawl.tsv", "-r", -1], "radius must be"),
    (["crawl.tsv", "--design", "best"], "unknown design 'best'"),
    (["crawl.tsv", "--design", "manku-10", "-r", 5], "manku-10 is exact up to radius 3"),
    (["crawl.tsv", "--memory", "lots"], "memory must be"),
    (["crawl.tsv", "--memory", "1MiB"], "at least 64MiB"),
    (["crawl.tsv", "--threads", 0], "threads must be"),
    (["crawl.tsv", "--block-bytes", 100], "block_bytes must be"),
    (["crawl.tsv", "--disk-budget", "much"], "disk budget must be"),
    (["-", "-"], "more than once"),
    (["crawl.tsv", "--id-field", "url"], "crawl.tsv: .*header|crawl.tsv:1: .*header"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    BAD_BUILDS,
    ids=lambda value: " ".join(map(str, value))[:40] if isinstance(value, list) else "",
)
def test_bad_build_input_is_one_line_and_leaves_nothing(arguments: Sequence[object], message: str, folder: Path) -> None:
    _bad_files()
    before = sorted(Path().iterdir())
    assert re.search(message, failure("build", "new.fps", *arguments))
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build", "crawl.fps", "crawl.tsv"], "crawl.fps exists: .*--force"),
        (["build", "notes", "crawl.tsv", "--force"], "notes exists and is no fpstore store"),
        (["build", "no/such/folder.fps", "crawl.tsv"], "no/such: no such folder"),
        (["build", "/sys/new.fps", "crawl.tsv"], "/sys/new.fps: cannot write"),
        (["probe", "missing.fps", "1"], "missing.fps: no such store"),
        (["probe", "notes", "1"], "notes: not a fpstore store"),
        (["probe", "crawl.fps", "xyz"], "'xyz' is not a fingerprint"),
        (["probe", "crawl.fps", "draft.txt"], "'draft.txt' is not a fingerprint.*--text"),
        (["probe", "crawl.fps", "1111222233334444f"], "over 2\\^64-1"),
        (["probe", "crawl.fps", "1", "-r", 65], "radius must be"),
        (["probe", "crawl.fps", "1", "--threads", 0], "threads must be"),
        (["probe", "crawl.fps", "--input", "missing.npy"], "missing.npy: no such file"),
        (["probe", "crawl.fps", "1", "-o", "m.docx"], "unknown extension '.docx'"),
        (["probe", "crawl.fps", "1", "-o", "no/m.tsv"], "no/m.tsv: no such file or folder"),
        (["probe", "crawl.fps", "--text", "draft.txt"], "does not know how its fingerprints were made"),
        (["probe", "notes.fps", "--text", "missing.txt"], "missing.txt: No such file"),
        (["scan", "crawl.fps", "1", "-r", -1], "radius must be a whole number from 0 to 64"),
        (["stats", "draft.txt"], "draft.txt: not a fpstore store"),
        (["export", "crawl.fps", "-o", "notes"], "unknown extension|is a folder"),
        (["plan", "2^24", "-r", 9], "radius must be"),
        (["plan", "2^24", "--disk-budget", "x"], "disk budget must be"),
        (["hash", "text", "missing.txt"], "missing.txt: No such file"),
    ],
)  # fmt: skip
def test_bad_arguments_are_one_line(arguments: Sequence[object], message: str, folder: Path) -> None:
    before = sorted(Path().iterdir())
    assert re.search(message, failure(*arguments))
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], ""),
        (["nonsense"], "nonsense"),
        (["--nonsense"], "nonsense"),
        (["build", "x.fps"], "INPUT.*fpstore build --help"),
        (["build", "x.fps", "crawl.tsv", "--storage", "warm"], "warm"),
        (["build", "x.fps", "crawl.tsv", "-r", "three"], "three"),
        (["build", "x.fps", "crawl.tsv", "--shingle", "words"], "--shingle needs --text"),
        (["build", "x.fps", "notes", "--text", "--decimal"], "--decimal does not go with --text"),
        (["probe", "crawl.fps"], "give fingerprints"),
        (["probe", "notes.fps", "--text"], "--text needs a file"),
        (
            ["probe", "notes.fps", "--text", "draft.txt", "--input", "a.npy"],
            "--input does not go with --text",
        ),
        (["probe", "crawl.fps", "1", "--json", "-o", "m.parquet"], "--json does not go with"),
        (["scan", "crawl.fps", "1"], "--radius"),
        (["export", "crawl.fps", "--json", "--format", "csv"], "--json does not go with"),
    ],
)
def test_usage_errors_exit_with_2(arguments: Sequence[object], message: str, folder: Path) -> None:
    if not arguments:
        assert run().exit_code == 2
        return
    assert re.search(message, failure(*arguments, code=2))


def test_damaged_stores_are_one_line(folder: Path) -> None:
    for name in ("store.mdb", "ids.mdb", "table-0"):
        for path in sorted(Path("crawl.fps").rglob(f"{name}*")):
            data = path.read_bytes()
            for damaged in (data[: len(data) // 2], data[:100], b"", b"\xff" * len(data)):
                path.write_bytes(damaged)
                for verb in (["stats"], ["verify"], ["export"], ["probe", "2a"]):
                    result = run(verb[0], "crawl.fps", *verb[1:])
                    assert result.exit_code in (0, 1)
                    assert result.stderr.count("\n") == (result.exit_code == 1), (name, verb, result.stderr)
                    assert "internal error" not in result.stderr
            path.write_bytes(data)


def test_a_bug_is_one_line_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise RuntimeError("some\nbug")

    monkeypatch.setattr(fpstore, "open", broken)
    assert "internal error (RuntimeError: some\\nbug)" in failure("stats", "crawl.fps")
    monkeypatch.setenv("FPSTORE_TRACEBACK", "1")
    assert "in broken" in run("stats", "crawl.fps").stderr


# Processes: signals, pipes, terminals, full disks


def process(*arguments: object, **settings: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings
    )


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, b"interrupted"),
        (signal.SIGTERM, 143, b"terminated"),
        (signal.SIGHUP, 129, b"hung up"),
    ],
)
@pytest.mark.parametrize("existing", [False, True])
def test_signals_during_a_build_leave_nothing(
    number: signal.Signals, code: int, word: bytes, existing: bool, folder: Path
) -> None:
    np.save("many.npy", np.random.default_rng(1).integers(0, 2**64, 3_000_000, dtype=np.uint64))
    target = "crawl.fps" if existing else "new.fps"
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    build = process("build", target, "many.npy", "--design", "manku-20", "--force")
    while not list(folder.glob(f".{target}.tmp-*")):
        assert build.poll() is None, build.stderr and build.stderr.read()
        with suppress(subprocess.TimeoutExpired):
            build.wait(0.01)
    build.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        build.wait(0.01)
    build.send_signal(number)  # an impatient user: the temporary files are removed all the same
    out, err = build.communicate(timeout=60)
    assert (build.returncode, out, err) == (code, b"", b"fpstore: " + word + b"\n")
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_second_signal_does_not_stop_the_removal_of_files() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        with raised_as_exceptions():
            with pytest.raises(Interrupted) as caught:
                signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
        assert caught.value.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_ignored_signals_stay_ignored(folder: Path) -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom fpstore.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "build", "x.fps", "-", "-q"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as build:
        while not list(folder.glob(".x.fps.tmp-*")):
            with suppress(subprocess.TimeoutExpired):
                build.wait(0.01)
        build.send_signal(signal.SIGHUP)
        _, err = build.communicate(b"2a\tx\n", timeout=60)
    assert (build.returncode, err) == (0, b"")
    assert fpstore.open("x.fps")[42] == ["x"]


def test_a_closed_pipe_is_quiet(folder: Path) -> None:
    fpstore.build("many.fps", np.arange(50_000, dtype=np.uint64)).close()
    for arguments in (
        ["export", "many.fps"],
        ["scan", "many.fps", "0", "-r", "64"],
        ["scan", "many.fps", "0", "-r", "64", "--json"],
    ):
        verb = process(*arguments)
        assert verb.stdout is not None
        assert verb.stderr is not None
        assert verb.stdout.read(10)
        verb.stdout.close()
        assert (verb.stderr.read(), verb.wait(60)) == (b"", 141)
        verb.stderr.close()


def test_closed_standard_streams_are_errors(folder: Path) -> None:
    for redirected, message in (
        ("export crawl.fps >&-", "output"),
        ("probe crawl.fps --input - <&-", "input"),
    ):
        script = f'"{sys.executable}" -m fpstore {redirected}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, f"fpstore: standard {message} is closed\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("verb", [["export", "crawl.fps"], ["stats", "crawl.fps"], ["plan", "9"], ["--help"]])
def test_a_full_output_is_an_error(verb: list[str], folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *verb], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"fpstore: .*No space left on device\n", done.stderr)


@pytest.mark.parametrize("limit", [4096, 100_000, 1_000_000, 10_000_000])
def test_a_build_that_cannot_write_leaves_nothing(limit: int, folder: Path) -> None:
    np.save("many.npy", np.random.default_rng(1).integers(0, 2**64, 2_000_000, dtype=np.uint64))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    script = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    arguments = ["build", "crawl.fps", "many.npy", "--design", "flip-2", "--force", "--memory", "64MiB"]
    done = subprocess.run(
        [sys.executable, "-c", f"{script}from fpstore.cli import main; main()", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"fpstore: .*(File too large|No space left on device).*\n", done.stderr)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("verb", "last"), [(["build", "x.fps", "crawl.tsv"], b"tables"), (["verify", "crawl.fps"], b"names")], ids=["build", "verify"]
)
@pytest.mark.parametrize("wanted", [True, False])
def test_bars_are_shown_on_a_terminal_only_if_wanted(wanted: bool, verb: list[str], last: bytes, folder: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = [*verb, *([] if wanted else ["--no-progress"])]
    done = subprocess.run(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=False,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal
        while data := os.read(ours, 4096):
            shown += data
    os.close(ours)
    assert done.returncode == 0
    assert done.stdout.startswith(verb[1].encode() + b": ")
    assert (last in shown) == wanted
    assert wanted or shown == b""
