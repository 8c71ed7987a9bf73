"""Bad input on the command line: one line on standard error, an exit code, and nothing left behind."""

import re
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import NEAR, failure, failure_of, fine, run

import fpstore


def _bad_files() -> None:
    Path("words.tsv").write_text("0x00ff\tx\nnot hex\ty\n")
    Path("big.csv").write_text(f"1,a\n{2**64},b\n")
    Path("negative.csv").write_text("-5,a\n")
    Path("noid.tsv").write_text("0x00ff\tx\n0x0fff\n")
    Path("emptyid.tsv").write_text("0x00ff\t\n")
    Path("latin.tsv").write_bytes(b"0x00ff\t\xff\xfe\n")
    Path("bigid.tsv").write_text(f"0x00ff\t{2**64}\n")
    Path("bigids.tsv").write_text(f"0x00ff\t7\n0x00fe\t{2**64}\n")
    Path("cut.u64").write_bytes(b"1234567")
    Path("zero.npy").write_bytes(b"")
    Path("broken.jsonl").write_text('{"fingerprint": "0xff"\n')
    Path("broken.parquet").write_bytes(b"PAR1")
    Path("plain").write_text("x")
    np.save("float.npy", np.zeros(3))
    np.save("signed.npy", np.zeros(3, np.int64))
    np.save("square.npy", np.zeros((3, 3), np.uint64))


BAD_BUILDS: list[tuple[Sequence[object], str]] = [
    (["missing.tsv"], "missing.tsv: no such file"),
    (["words.tsv"], "words.tsv:2: 'not hex' is not a fingerprint"),
    (["big.csv", "--decimal"], "big.csv:2: .*takes 65 bits, but the width is 64"),
    (["negative.csv", "--decimal"], "negative.csv:1: "),
    (["noid.tsv"], "noid.tsv:2: "),
    (["emptyid.tsv"], "emptyid.tsv:1: the id is empty"),
    (["latin.tsv"], "latin.tsv:1: .*UTF-8"),
    (["bigid.tsv", "--id-type", "int"], "bigid.tsv:1: .*2\\^64-1"),
    (["bigids.tsv"], "is over 2\\^64-1, but other ids are integers.*--id-type str"),
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
        (["build", "notes", "crawl.tsv", "--force"], "notes exists and is not an fpstore store"),
        (["build", "notes", "crawl.tsv"], "notes exists and is not an fpstore store: choose another path\\n"),
        (["backup", "crawl.fps", "notes"], "notes exists and is not an fpstore store: choose another path\\n"),
        (["build", "x.fps", "crawl.fps"], "crawl.fps: is a store: fpstore absorb adds"),
        (["build", "x.fps", "crawl.fps", "--text"], "crawl.fps: is a store, not a folder of files to make fingerprints of"),
        (["build", "x.fps", "notes", "--text", "--suffix", ".none"], "notes \\(only .none\\): no text"),
        (["build", "no/such/folder.fps", "crawl.tsv"], "no/such: no such folder"),
        (["build", "/sys/new.fps", "crawl.tsv"], "/sys/new.fps: cannot write"),
        (["probe", "missing.fps", "1"], "missing.fps: no such store"),
        (["probe", "notes", "1"], "notes: not an fpstore store"),
        (["probe", "crawl.fps", "--input", "missing.npy"], "missing.npy: no such file"),
        (["probe", "crawl.fps", "--input", "missing"], "missing: no such file"),
        (["repair", "missing.fps"], "missing.fps: no such store"),
        (["repair", "notes"], "notes: not an fpstore store"),
        (["insert", "crawl.fps", "a.npy"], "its ids are strings: give one for each row"),
        (["insert", "numbers.fps", "new.tsv"], "got strings: give integers below 2\\^64"),
        (["probe", "crawl.fps", "0x1", "-o", "m.docx"], "unknown extension '.docx'"),
        (["probe", "crawl.fps", "0x1", "-o", "no/m.tsv"], "no/m.tsv: no such file or folder"),
        (["insert", "crawl.fps", "corpus.parquet", "--text-field", "text"], "does not know how its fingerprints were made"),
        (["insert", "notes.fps", "missing.txt"], "missing.txt: No such file"),
        (["stats", "draft.txt"], "draft.txt: not an fpstore store"),
        (["export", "crawl.fps", "-o", "notes"], "unknown extension|is a folder"),
        (["hash", "--text", "missing.txt"], "missing.txt: No such file"),
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
        (
            ["build", "x.fps", "crawl.tsv", "--shingle", "words"],
            "--shingle is for files .*--text or --text-field., not for fingerprints",
        ),
        (["build", "x.fps", "notes", "--text", "--decimal"], "--decimal is for fingerprints, not for files of texts"),
        (["probe", "crawl.fps"], "give fingerprints"),
        (["probe", "notes.fps"], "give fingerprints, files or --input FILE"),
        (["probe", "notes.fps", "draft.txt", "--input", "a.npy"], "--input does not go with files of texts"),
        (["probe", "notes.fps", "missing.txt"], "'missing.txt' is not a fingerprint.*, and there is no such file"),
        (["probe", "crawl.fps", "0x1", "--json", "-o", "m.parquet"], "--json does not go with"),
        (["scan", "crawl.fps", "1"], "--radius"),
        (["export", "crawl.fps", "--json", "--format", "csv"], "--json does not go with"),
        (["build", "x.fps", "notes", "--text", "--suffix", "txt"], "--suffix: must start with a dot"),
        (["build", "x.fps", "notes", "--text", "--shingle-size", 0], "--shingle-size: must be a whole number from 1 to 255"),
        (["build", "x.fps", "crawl.tsv", "-r", 65], "--radius: must be a whole number from 0 to 64, got '65'"),
        (["build", "x.fps", "crawl.tsv", "-r", "9" * 5000], "--radius: must be"),
        (["build", "x.fps", "crawl.tsv", "--design", "best"], "--design: unknown design 'best'"),
        (["build", "x.fps", "crawl.tsv", "--design", "manku-10", "-r", 5], "manku-10 is exact up to radius 3"),
        (["build", "x.fps", "crawl.tsv", "--memory", "lots"], "--memory: must be"),
        (["build", "x.fps", "crawl.tsv", "--memory", "1MiB"], "at least 64MiB"),
        (["build", "x.fps", "crawl.tsv", "--threads", 0], "--threads: must be"),
        (["build", "x.fps", "crawl.tsv", "--block-bytes", 100], "--block-bytes: must be one of"),
        (["build", "x.fps", "crawl.tsv", "--disk-budget", "much"], "--disk-budget: must be"),
        (["probe", "crawl.fps", "xyz"], "'xyz' is not a fingerprint"),
        (
            ["probe", "crawl.fps", "draft.txt"],
            "'draft.txt' is not a fingerprint.*; --input is for files .* need a store",
        ),
        (["probe", "crawl.fps", "1111222233334444f"], "17 hexadecimal digits, but this store holds 64 bits: expected 16"),
        (["probe", "crawl.fps", "0x1", "-r", 99], "--radius: must be a whole number from 0 to 64, got '99'"),
        (["probe", "crawl.fps", "0x1", "--threads", 0], "--threads: must be"),
        (["scan", "crawl.fps", "0x1", "-r", 65], "--radius: must be a whole number from 0 to 64, got '65'"),
        (["nearest", "crawl.fps", "0x1", "--max-radius", 100], "--max-radius: must be a whole number from 0 to 64, got '100'"),
        (["probe", "crawl.fps", "0x1", "-r", 257], "--radius: must be a whole number from 0 to 256, got '257'"),
        (["probe", "crawl.fps", "f" * 64], "64 hexadecimal digits, a fingerprint of 256 bits, but this store holds 64 bits"),
        (["delete", "crawl.fps", "--fingerprints", "f" * 8], "8 hexadecimal digits, a fingerprint of 32 bits, but this store"),
        (["build", "x.fps", "crawl.tsv", "--width", 16], "--width: must be one of 32, 64, 128, 256, got 16"),
        (["plan", "2^24", "--width", "wide"], "--width: must be one of 32, 64, 128, 256, got 'wide'"),
        (["insert", "crawl.fps", "new.tsv", "--merge-at", "nan"], "--merge-at: must be a positive number"),
        (["insert", "crawl.fps", "new.tsv", "--unmatched", "-r", 99], "--radius: must be"),
        (["delete", "crawl.fps", "--fingerprints", "xyz"], "'xyz' is not a fingerprint"),
        (["delete", "crawl.fps", "--decimal", "a"], "--decimal needs --fingerprints or --pairs"),
        (["redesign", "crawl.fps", "best"], "DESIGN: unknown design 'best'"),
        (["absorb", "crawl.fps", "--renumber"], "Missing argument 'OTHER...'"),
        (["merge", "crawl.fps", "--design", "flip-1"], "fpstore redesign takes another design"),
        (["split", "crawl.fps", "parts", "--bits", 9], "--bits: must be a whole number from 1 to 8"),
        (["plan", "much"], "'much' is not a number of fingerprints"),
    ],
)
def test_usage_errors_exit_with_2(arguments: Sequence[object], message: str, folder: Path) -> None:
    if not arguments:
        assert run().exit_code == 2
        return
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert re.search(message, failure(*arguments, code=2))
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "crawl.fps", "out.tsv"], r"extra argument \(out.tsv\): --output names what to write"),
        (["pairs", "crawl.fps", "out.tsv"], "--output names what to write"),
        (["report", "crawl.fps", "out.html"], "--output names what to write"),
        (["repair", "crawl.fps", "new.fps"], "--output names what to write"),
        (["stats", "crawl.fps", "out.tsv"], r"extra argument \(out.tsv\) \(see fpstore stats --help\)$"),
        (["probe", "crawl.fps", "0x1", "out.tsv"], "'out.tsv' is not a fingerprint: .*; --output names the file to write"),
        (["probe", "crawl.fps", "0x1", "-n", 3], "No such option -n: --limit N writes the N nearest matches within the radius"),
        (["probe", "crawl.fps", "0x1", "-k3"], "No such option -k: --limit N"),
        (["nearest", "crawl.fps", "-k", 5], "give fingerprints, files or --input FILE"),
        (["nearest", "crawl.fps", "0x1", "-n", 3], r"No such option -n: -k N, or --count N, says how many \("),
        (["nearest", "crawl.fps", "0x1", "--top=3"], "No such option --top: -k N"),
        (["nearest", "crawl.fps", "0x1", "--nonsense"], "nonsense"),
        (["plan", "-n", 1000000], r"No such option -n: N stands alone, as in fpstore plan 1000000 \("),
        (["plan", "--n", "1e6"], "No such option --n: N stands alone"),
        (["dedup", "pages.jsonl", "-o", "clean.jsonl", "--text-field", "text"], "OUTPUT is the last argument"),
        (["build", "crawl.tsv", "-o", "x.fps"], "the store to write is the first argument"),
        (["backup", "crawl.fps", "--output", "x.fps"], "the copy is the second argument"),
        (["split", "crawl.fps", "-o", "parts", "--bits", 1], "the folder to write to is the second argument"),
        (["delete", "crawl.fps", "--fingerprints", "out.tsv"], r"or 0x and 1 to 16 \(see"),
    ],
)
def test_obvious_guesses_name_the_right_form(arguments: Sequence[object], message: str, folder: Path) -> None:
    assert re.search(message, failure(*arguments, code=2))


def test_damaged_stores_are_one_line(folder: Path) -> None:
    for name in ("manifest.json", "ids.mdb", "table-0", "strings.mdb", "hashes.fpt", "numbers.mdb"):
        for path in sorted(Path("crawl.fps").rglob(f"{name}*")):
            data = path.read_bytes()
            for damaged in (data[: len(data) // 2], data[:100], b"", b"\xff" * len(data)):
                path.write_bytes(damaged)
                for verb in (["stats"], ["verify"], ["export"], ["probe", "0x2a"]):
                    result = run(verb[0], "crawl.fps", *verb[1:])
                    assert result.exit_code == failure_of(verb), (name, verb)
                    assert result.stderr.count("\n") == 1, (name, verb, result.stderr)
                    assert "internal error" not in result.stderr
            path.write_bytes(data)


def test_numbers_as_ids_of_a_store_of_strings_name_the_option(folder: Path) -> None:
    assert "got integers: give strings (--id-type str)" in failure("insert", "crawl.fps", "-", stdin="0x1\t5\n")
    assert "1 row of 1 inserted" in fine("insert", "crawl.fps", "-", "--id-type", "str", stdin="0x1\t5\n")


@pytest.mark.parametrize("name", ["table-000.fpt", "ids.mdb", "strings.mdb", "hashes.fpt", "numbers.mdb", "log"])
def test_a_missing_file_of_a_store_names_repair(folder: Path, name: str) -> None:
    Path("crawl.fps/gen-00000001", name).unlink()
    for verb in (["probe", "crawl.fps", "0x1"], ["backup", "crawl.fps", "copy.fps"]):
        assert f"{name}: missing: run fpstore repair\n" in failure(*verb)
    assert f"{name}: missing\n" in run("repair", "crawl.fps").stdout


def test_one_change_is_not_changes(folder: Path) -> None:
    fine("insert", "crawl.fps", "-", stdin="0x1\tone\n")
    assert " 1 change, " in fine("stats", "crawl.fps")


def test_a_missing_manifest_names_repair(folder: Path) -> None:
    Path("crawl.fps/manifest.json").unlink()
    assert "crawl.fps: manifest.json is missing: run fpstore repair\n" in failure("stats", "crawl.fps")
    said = run("repair", "crawl.fps").stdout
    assert "manifest.json is missing\n" in said
    assert re.search("next: to use the new store, move crawl.fps away and rename .*/crawl.fps.repaired to crawl.fps\n", said)
    message = failure("repair", "crawl.fps")
    for words in ("crawl.fps.repaired exists", "-o", "--yes"):
        assert words in message


def test_a_store_of_others_names_the_file_that_cannot_be_written(folder: Path, with_mode: Any) -> None:
    fpstore.open("crawl.fps", "r+").close()
    with with_mode(Path("crawl.fps/writer.lock"), 0o444):
        assert "crawl.fps: cannot be changed (writer.lock: Permission denied)" in failure("delete", "crawl.fps", "a")


@pytest.mark.parametrize("output", ["m.tsv", "m.csv", "m.jsonl", "m.parquet"])
@pytest.mark.parametrize("numbers", [False, True])
def test_an_insert_that_failed_is_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, numbers: bool) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 4)
    store = "numbers.fps" if numbers else "crawl.fps"
    rows = [(0x1234567812345678 ^ (i % 3 * 7) << 40 ^ (i > 2), i + 100) for i in range(9)]
    rows[5], rows[7] = rows[1], (0xF0F0, 107)
    lines = [f"{f:016x}\t{i if numbers else f'new {i}'}\n" for f, i in rows]
    Path("rows.tsv").write_text("".join(lines))
    shutil.copytree(store, "once.fps")
    fine("insert", "once.fps", "rows.tsv", "--unmatched", "-r", 1, "-o", output, "-q")
    expected = Path(output).read_bytes().replace(b'"inserted": true', b'"inserted": false')  # the run that failed inserted them
    Path(output).unlink()
    Path("part.tsv").write_text("".join(lines[:8]))
    Path("bad.tsv").write_text("not hex\n")
    message = failure("insert", store, "part.tsv", "bad.tsv", "--unmatched", "-r", 1, "-o", output)
    assert re.search("bad.tsv:1: .*; before that, [1-8] rows? of the first 8 (was|were) inserted; repeat the command", message)
    assert not Path(output).exists()
    fine("insert", store, "rows.tsv", "--unmatched", "-r", 1, "-o", output, "-q")
    assert Path(output).read_bytes().replace(b'"inserted": true', b'"inserted": false') == expected
    assert fine("export", store) == fine("export", "once.fps")


def test_an_insert_of_row_numbers_that_failed_is_not_repeated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 2)
    Path("part.tsv").write_text("0x1\n0x2\n")
    Path("bad.tsv").write_text("not hex\n")
    message = failure("insert", "numbers.fps", "part.tsv", "bad.tsv")
    assert "before that, 2 rows of the first 2 were inserted; insert only the rows after these" in message


@pytest.mark.parametrize("rows", [300, 3])  # the output is refused in the first chunk, or when it is complete
def test_an_insert_whose_output_is_refused_says_what_is_in(folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 300)
    Path("rows.tsv").write_text("0x123456789\n" + f"0x{NEAR:x}\n" * (rows - 1))
    Path("full.tsv").symlink_to("/dev/full")
    message = failure("insert", "numbers.fps", "rows.tsv", "--unmatched", "-o", "full.tsv")
    told = f"before that, 1 row of the first {rows} was inserted; insert only the rows after these"
    assert message == f"fpstore: full.tsv: No space left on device: free some space; {told}\n"
    assert fpstore.open("numbers.fps")[0x123456789] == [4]


def test_a_bug_is_one_line_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise RuntimeError("some\nbug")

    monkeypatch.setattr(fpstore, "open", broken)
    assert "internal error (RuntimeError: some\\nbug)" in failure("stats", "crawl.fps")
    monkeypatch.setenv("FPSTORE_TRACEBACK", "1")
    assert "in broken" in run("stats", "crawl.fps").stderr


@pytest.mark.parametrize("error", [MemoryError(), fpstore.MemoryLimitError("out of memory: work on fewer rows at a time")])
def test_no_memory_is_one_line_too(folder: Path, monkeypatch: pytest.MonkeyPatch, error: MemoryError) -> None:
    def full(path: str) -> None:
        raise error

    monkeypatch.setattr(fpstore, "open", full)
    assert failure("stats", "crawl.fps") == "fpstore: out of memory: work on fewer rows at a time\n"


WRONG_USES: list[tuple[Sequence[object], int]] = [
    (["insert", "crawl.fps", "missing.tsv"], 1),
    (["insert", "crawl.fps", "new.tsv", "missing.tsv"], 1),
    (["insert", "crawl.fps", "notes"], 1),
    (["insert", "crawl.fps", "draft.txt"], 1),
    (["insert", "crawl.fps", "words.tsv"], 1),
    (["insert", "crawl.fps", "broken.parquet"], 1),
    (["insert", "crawl.fps", "missing.tsv", "--unmatched"], 1),
    (["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", "no/m.tsv"], 1),
    (["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", "m.docx"], 1),
    (["insert", "crawl.fps", "new.tsv", "--unmatched", "-r", 65], 2),
    (["insert", "crawl.fps", "new.tsv", "--suffix", ".md"], 2),
    (["insert", "crawl.fps", "new.tsv", "-r", 2], 2),
    (["insert", "crawl.fps", "new.tsv", "--merge-at", 0], 2),
    (["insert", "crawl.fps", "notes"], 1),
    (["insert", "notes.fps", "missing"], 1),
    (["insert", "notes.fps", "notes/empty.md"], 1),
    (["insert", "notes.fps", "notes/picture.txt"], 1),
    (["insert", "notes.fps", "-"], 2),
    (["insert", "notes.fps", "notes", "--decimal"], 1),
    (["insert", "crawl.fps"], 2),
    (["delete", "crawl.fps"], 2),
    (["delete", "crawl.fps", "--decimal", "a"], 2),
    (["delete", "crawl.fps", "--fingerprints", "xyz"], 2),
    (["delete", "crawl.fps", "--fingerprints", "--input", "words.tsv"], 1),
    (["delete", "crawl.fps", "--input", "missing.txt"], 1),
    (["ids", "crawl.fps"], 2),
    (["ids", "crawl.fps", "--input", "missing.txt"], 1),
    (["ids", "crawl.fps", "a", "--json", "-o", "x.tsv"], 2),
    (["ids", "crawl.fps", "a", "-o", "x.npy"], 1),
    (["ids", "numbers.fps", "one"], 1),
    (["delete", "numbers.fps", "one"], 1),
    (["delete", "numbers.fps", "--input", "gone.txt"], 1),
    (["absorb", "crawl.fps", "missing.fps"], 1),
    (["absorb", "crawl.fps", "monday.fps", "notes"], 1),
    (["absorb", "crawl.fps", "crawl.fps"], 1),
    (["absorb", "crawl.fps", "--renumber"], 2),
    (["absorb", "crawl.fps", "monday.fps", "--at", 0.1], 2),
    (["redesign", "crawl.fps", "best"], 2),
    (["merge", "crawl.fps", "--memory", "1"], 2),
    (["build", "crawl.fps", "missing.tsv", "--force"], 1),
    (["build", "crawl.fps", "missing", "--text", "--force"], 1),
    (["build", "crawl.fps", "new.tsv"], 1),
    (["build", "crawl.fps", "new.tsv", "--force", "--design", "best"], 2),
    (["backup", "missing.fps", "crawl.fps", "--force"], 1),
    (["backup", "monday.fps", "crawl.fps"], 1),
    (["repair", "crawl.fps", "--yes", "-o", "x"], 2),
    (["repair", "crawl.fps", "--memory", "1"], 2),
    (["split", "crawl.fps", "out", "--bits", 9], 2),
]


def _files_of_stores() -> dict[Path, tuple[int, bytes]]:
    """Return the time of the last change of everything in the stores here, and the bytes of the files."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for store in Path().glob("*.fps")
        for path in (store, *store.rglob("*"))
    }


@pytest.mark.parametrize(("arguments", "code"), WRONG_USES, ids=lambda value: str(value)[:70])
def test_wrong_use_changes_nothing_in_a_store(arguments: Sequence[object], code: int, folder: Path) -> None:
    _bad_files()
    for store in ("crawl.fps", "notes.fps", "numbers.fps"):
        fpstore.open(store, "r+").close()  # there is a lock, whose time and content would change
    before = _files_of_stores()
    failure(*arguments, code=code)
    assert _files_of_stores() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["calibrate", "corpus.parquet", "--text-field", "text", "--recall", 2], "--recall must be a share up to 1"),
        (["build", "x.fps", "pages.jsonl", "--text-field", "text", "--id-field", ""], "--id-field: must be the name of a column"),
    ],
)
def test_errors_name_options_not_arguments_of_python(arguments: Sequence[object], said: str, folder: Path) -> None:
    assert said in failure(*arguments, code=2)


def test_merge_beside_a_long_lived_writer_says_how_it_merges(folder: Path) -> None:
    with fpstore.open("crawl.fps", "r+"):
        message = failure("merge", "crawl.fps")
    for words in ("this process has it open for writing", "one writer at a time", "Store.merge()", "merge_at=0.1"):
        assert words in message


ODD_FILES = {
    "folder": None,
    "empty": b"",
    "nul": b"\0" * 100,
    "binary": bytes(range(256)) * 20,
    "latin": "caf\xe9\n".encode("latin-1") * 3,
    "utf16": "0000000000000007\ta\n".encode("utf-16"),
    "digits": b"9" * 5000 + b"\n",
    "json": b'{"fingerprint": ' + b"9" * 5000 + b"}\n",
    "deep": b"[" * 100_000 + b"\n",
    "line": b"a" * (17 << 20),
    "unreadable": b"0000000000000007\ta\n",
    "loop": None,
}
READERS = (
    ["build", "x.fps"],
    ["build", "x.fps", "--decimal"],
    ["build", "x.fps", "--text"],
    ["insert", "crawl.fps"],
    ["insert", "crawl.fps", "--unmatched"],
    ["insert", "notes.fps"],
    ["delete", "crawl.fps", "--input"],
    ["delete", "numbers.fps", "--input"],
    ["delete", "crawl.fps", "--fingerprints", "--input"],
    ["ids", "crawl.fps", "--input"],
    ["probe", "crawl.fps", "--input"],
    ["scan", "crawl.fps", "-r", "3", "--input"],
    ["probe", "notes.fps"],
    ["hash", "--text"],
    ["stats"],
    ["verify"],
    ["absorb", "crawl.fps"],
    ["repair"],
    ["backup"],
    ["split", "--bits", "1"],
)


EXTENSIONS = ("", ".tsv", ".csv", ".txt", ".jsonl", ".npy", ".u64", ".parquet")


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_odd_files_never_end_in_a_traceback(folder: Path, with_mode: Any, extension: str, every: int) -> None:
    paths = {}
    for name, data in ODD_FILES.items():
        path = paths[name] = Path(f"odd-{name}{extension}")
        if name == "loop":
            path.symlink_to(path)
        elif data is None:
            path.mkdir()
        else:
            path.write_bytes(data[: 1 << 20] if extension == ".u64" else data)  # where there are no lines, none is too long
    for number, (name, path) in enumerate(paths.items(), EXTENSIONS.index(extension)):
        for verb in READERS[number % every :: every]:
            last = ["out"] if verb[0] in ("backup", "split") else []
            with with_mode(path, 0) if name == "unreadable" else nullcontext():
                result = run(*verb, path, *last)
            where = (verb, name, result.stderr)
            assert "internal error" not in result.stderr, where
            assert result.exit_code in (0, 1, failure_of(verb)), where
            assert all(line.startswith("fpstore: ") for line in result.stderr.splitlines()), where
            if result.exit_code == failure_of(verb):
                assert result.stderr.count("\n") == 1, where
    for store in ("crawl.fps", "notes.fps", "numbers.fps"):
        assert run("verify", store).exit_code == 0


@pytest.mark.parametrize(
    "output",
    ["folder", "missing/x.tsv", "file/x.tsv", "locked/x.tsv", "loop.tsv", "a\0b.tsv", "x" * 300 + ".tsv", "x.docx", "/dev/full"],
)
def test_odd_outputs_never_end_in_a_traceback(folder: Path, with_mode: Any, output: str) -> None:
    Path("folder").mkdir()
    Path("locked").mkdir()
    Path("file").write_text("")
    Path("loop.tsv").symlink_to("loop.tsv")
    verbs: list[list[object]] = [
        ["export", "crawl.fps", "-o", output],
        ["probe", "crawl.fps", f"{NEAR:016x}", "-o", output],
        ["hash", "--text", "notes", "-o", output],
        ["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", output],
    ]
    if not output.startswith("/dev"):
        verbs += [
            ["backup", "crawl.fps", output],
            ["split", "crawl.fps", output, "--bits", 1],
            ["build", output, "crawl.tsv"],
        ]
    for verb in verbs:
        with with_mode(Path("locked"), 0):
            result = run(*verb)
        where = (verb, result.stderr)
        assert "internal error" not in result.stderr, where
        assert result.exit_code in (0, failure_of(verb)), where
        if result.exit_code:
            assert result.stderr.count("\n") == 1, where
