"""Bad input on the command line.

One line on standard error, an exit code, and nothing left behind.
"""

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
from speeds import crossed

import fpstore


def _bad_files() -> None:
    Path("words.tsv").write_text("0x00ff\tx\nnot hex\ty\n")
    Path("negative.csv").write_text("-5,a\n")
    Path("latin.tsv").write_bytes(b"0x00ff\t\xff\xfe\n")
    Path("bigids.tsv").write_text(f"0x00ff\t7\n0x00fe\t{2**64}\n")
    Path("broken.parquet").write_bytes(b"PAR1")
    Path("plain").write_text("x")
    np.save("float.npy", np.zeros(3))


BAD_BUILDS: "Uses" = [
    (["missing.tsv"], "missing.tsv: no such file"),
    (["words.tsv"], "words.tsv:2: 'not hex' is not a fingerprint"),
    (["negative.csv", "--decimal"], "negative.csv:1: "),
    (["latin.tsv"], "latin.tsv:1: .*UTF-8"),
    (["bigids.tsv"], "is over 2\\^64-1, but other ids are integers.*--id-type str"),
    (["broken.parquet"], "broken.parquet: "),
    (["float.npy"], "float.npy: .*float64"),
    (["plain"], "unknown extension"),
    (["notes"], "notes: is a folder; --text"),
    (["missing", "--text"], "missing: No such file"),
    (["notes/picture.txt", "--text"], "NUL byte"),
    (["-", "-"], "more than once"),
    (["crawl.tsv", "--id-field", "url"], "crawl.tsv: .*header|crawl.tsv:1: .*header"),
]


Uses = list[tuple[Sequence[object], str]]
BAD_ARGUMENTS: Uses = [
    (["build", "crawl.fps", "crawl.tsv"], "crawl.fps exists: .*--force"),
    (["build", "notes", "crawl.tsv", "--force"], "notes exists and is not an fpstore store"),
    (
        ["backup", "crawl.fps", "notes"],
        "notes exists and is not an fpstore store: choose another path\\n",
    ),
    (["build", "x.fps", "crawl.fps"], "crawl.fps: is a store: fpstore absorb adds"),
    (
        ["build", "x.fps", "crawl.fps", "--text"],
        "crawl.fps: is a store, not a folder of files to make fingerprints of",
    ),
    (["build", "x.fps", "notes", "--text", "--suffix", ".none"], "notes \\(only .none\\): no text"),
    (["build", "no/such/folder.fps", "crawl.tsv"], "no/such: no such folder"),
    (["build", "/sys/new.fps", "crawl.tsv"], "/sys/new.fps: cannot write"),
    (["probe", "notes", "1"], "notes: not an fpstore store"),
    (["repair", "missing.fps"], "missing.fps: no such store"),
    (["insert", "crawl.fps", "a.npy"], "its ids are strings: give one for each row"),
    (["insert", "numbers.fps", "new.tsv"], "got strings: give integers below 2\\^64"),
    (["probe", "crawl.fps", "0x1", "-o", "m.docx"], "unknown extension '.docx'"),
    (["probe", "crawl.fps", "0x1", "-o", "no/m.tsv"], "no/m.tsv: no such file or folder"),
    (
        ["insert", "crawl.fps", "corpus.parquet", "--text-field", "text"],
        "does not know how its fingerprints were made",
    ),
    (["stats", "draft.txt"], "draft.txt: not an fpstore store"),
    (["export", "crawl.fps", "-o", "notes"], "unknown extension|is a folder"),
    (["hash", "--text", "missing.txt"], "missing.txt: No such file"),
    (["insert", "crawl.fps", "new.tsv", "missing.tsv"], "missing.tsv: no such file"),
    (["insert", "crawl.fps", "words.tsv"], "words.tsv:2: "),
    (["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", "no/m.tsv"], "no such file or folder"),
    (["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", "m.docx"], "unknown extension"),
    (["insert", "notes.fps", "notes/empty.md"], "no text"),
    (["insert", "notes.fps", "notes", "--decimal"], "leave out --fingerprints"),
    (["delete", "crawl.fps", "--fingerprints", "--input", "words.tsv"], "words.tsv:2: "),
    (["delete", "crawl.fps", "--input", "missing.txt"], "missing.txt: no such file"),
    (["delete", "numbers.fps", "one"], "unsigned integer"),
    (["ids", "crawl.fps", "a", "-o", "x.npy"], "npy"),
    (["absorb", "crawl.fps", "monday.fps", "notes"], "notes: not an fpstore store"),
    (["absorb", "crawl.fps", "crawl.fps"], "itself"),
    (["build", "crawl.fps", "missing.tsv", "--force"], "missing.tsv: no such file"),
    (["build", "crawl.fps", "missing", "--text", "--force"], "missing: No such file"),
    (["backup", "monday.fps", "crawl.fps"], "crawl.fps exists"),
]
WRONG_USE: Uses = [  # which ends with 2
    (["nonsense"], "nonsense"),
    (["--nonsense"], "nonsense"),
    (["build", "x.fps"], "INPUT.*fpstore build --help"),
    (
        ["build", "x.fps", "crawl.tsv", "--shingle", "words"],
        "--shingle is for files .*--text or --text-field., not for fingerprints",
    ),
    (
        ["build", "x.fps", "notes", "--text", "--decimal"],
        "--decimal is for fingerprints, not for files of texts",
    ),
    (["probe", "notes.fps"], "give fingerprints, files or --input FILE"),
    (
        ["probe", "notes.fps", "draft.txt", "--input", "a.npy"],
        "--input does not go with files of texts",
    ),
    (
        ["probe", "notes.fps", "missing.txt"],
        "'missing.txt' is not a fingerprint.*, and there is no such file",
    ),
    (["probe", "crawl.fps", "0x1", "--json", "-o", "m.parquet"], "--json does not go with"),
    (["scan", "crawl.fps", "1"], "--radius"),
    (["export", "crawl.fps", "--json", "--format", "csv"], "--json does not go with"),
    (["build", "x.fps", "notes", "--text", "--suffix", "txt"], "--suffix: must start with a dot"),
    (["build", "x.fps", "crawl.tsv", "--design", "best"], "--design: unknown design 'best'"),
    (
        ["build", "x.fps", "crawl.tsv", "--design", "manku-10", "-r", 5],
        "manku-10 is exact up to radius 3",
    ),
    (
        ["probe", "crawl.fps", "draft.txt"],
        "'draft.txt' is not a fingerprint.*; --input is for files .* need a store",
    ),
    (
        ["probe", "crawl.fps", "1111222233334444f"],
        "17 hexadecimal digits, but this store holds 64 bits: expected 16",
    ),
    (
        ["probe", "crawl.fps", "0x1", "-r", 257],
        "--radius: must be a whole number from 0 to 256, got '257'",
    ),
    (["delete", "crawl.fps", "--fingerprints", "xyz"], "'xyz' is not a fingerprint"),
    (["delete", "crawl.fps", "--decimal", "a"], "--decimal needs --fingerprints or --pairs"),
    (["redesign", "crawl.fps", "best"], "DESIGN: unknown design 'best'"),
    (["absorb", "crawl.fps", "--renumber"], "Missing argument 'OTHER...'"),
    (["merge", "crawl.fps", "--design", "flip-1"], "fpstore redesign takes another design"),
    (["plan", "much"], "'much' is not a number of fingerprints"),
    (
        ["calibrate", "corpus.parquet", "--text-field", "text", "--most-wrong", 2],
        "--most-wrong",
    ),
    (["insert", "crawl.fps", "new.tsv", "--suffix", ".md"], "--suffix"),
    (["insert", "crawl.fps", "new.tsv", "-r", 2], "--radius needs --unmatched"),
    (["insert", "notes.fps", "-"], "standard input"),
    (["insert", "crawl.fps"], "INPUT"),
    (["delete", "crawl.fps"], ""),
    (["ids", "crawl.fps", "a", "--json", "-o", "x.tsv"], "--json does not go with"),
    (["build", "crawl.fps", "new.tsv", "--force", "--design", "best"], "unknown design"),
    (["repair", "crawl.fps", "--yes", "-o", "x"], ""),
    # Obvious guesses, and the right form.
    (
        ["export", "crawl.fps", "out.tsv"],
        r"extra argument \(out.tsv\): --output names what to write",
    ),
    (["pairs", "crawl.fps", "out.tsv"], "--output names what to write"),
    (["report", "crawl.fps", "out.html"], "--output names what to write"),
    (["repair", "crawl.fps", "new.fps"], "--output names what to write"),
    (
        ["stats", "crawl.fps", "out.tsv"],
        r"extra argument \(out.tsv\) \(see fpstore stats --help\)$",
    ),
    (
        ["probe", "crawl.fps", "0x1", "out.tsv"],
        "'out.tsv' is not a fingerprint: .*; --output names the file to write",
    ),
    (
        ["probe", "crawl.fps", "0x1", "-n", 3],
        "No such option -n: --limit N writes the N nearest matches within the radius",
    ),
    (["nearest", "crawl.fps", "-k", 5], "give fingerprints, files or --input FILE"),
    (
        ["nearest", "crawl.fps", "0x1", "-n", 3],
        r"No such option -n: -k N, or --count N, says how many \(",
    ),
    (["nearest", "crawl.fps", "0x1", "--top=3"], "No such option --top: -k N"),
    (["plan", "-n", 1000000], r"No such option -n: N stands alone, as in fpstore plan 1000000 \("),
    (
        ["dedup", "pages.jsonl", "-o", "clean.jsonl", "--text-field", "text"],
        "OUTPUT is the last argument",
    ),
    (
        ["dedup", "photos", "out", "--image", "--lossless"],
        "--lossless is not for pictures",
    ),
    (["build", "crawl.tsv", "-o", "x.fps"], "the store to write is the first argument"),
    (["backup", "crawl.fps", "--output", "x.fps"], "the copy is the second argument"),
    (
        ["split", "crawl.fps", "-o", "parts", "--bits", 1],
        "the folder to write to is the second argument",
    ),
    (["delete", "crawl.fps", "--fingerprints", "out.tsv"], r"or 0x and 1 to 16 \(see"),
]


def state() -> dict[Path, tuple[int, bytes]]:
    """Return the bytes of all files here, and when each was changed last.

    A lock and the log that it guards may be touched.
    """

    def changed(path: Path) -> int:
        return 0 if path.name in ("log", "writer.lock") else path.stat().st_mtime_ns

    return {
        path: (changed(path), path.read_bytes() if path.is_file() else b"")
        for path in Path().rglob("*")
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "cases", [BAD_BUILDS, BAD_ARGUMENTS, WRONG_USE], ids=["builds", "arguments", "use"]
)
def test_wrong_use_is_one_line_and_changes_nothing(cases: Uses, folder: Path) -> None:
    _bad_files()
    for store in ("crawl.fps", "notes.fps", "numbers.fps"):
        fpstore.open(store, "r+").close()  # there is a lock, whose time and content would change
    before = state()
    for arguments, message in cases:
        arguments = ["build", "new.fps", *arguments] if cases is BAD_BUILDS else arguments
        assert re.search(message, failure(*arguments, code=2 if cases is WRONG_USE else None)), (
            arguments
        )
        assert state() == before, arguments
    assert run().exit_code == 2


def test_damaged_stores_are_one_line(folder: Path) -> None:
    for name in (
        "manifest.json",
        "ids.mdb",
        "table-000.fpt",
        "strings.mdb",
        "hashes.fpt",
        "numbers.mdb",
    ):
        (path,) = Path("crawl.fps").rglob(name)
        data = path.read_bytes()
        for damaged in (data[: len(data) // 2], data[:100], b"", b"\xff" * len(data)):
            path.write_bytes(damaged)
            for verb in (["stats"], ["verify"], ["probe", "0x2a"]):
                result = run(verb[0], "crawl.fps", *verb[1:])
                assert result.exit_code == failure_of(verb), (name, verb)
                assert result.stderr.count("\n") == 1, (name, verb, result.stderr)
                assert "internal error" not in result.stderr
        path.write_bytes(data)


def test_numbers_as_ids_of_a_store_of_strings_name_the_option(folder: Path) -> None:
    assert "got integers: give strings (--id-type str)" in failure(
        "insert", "crawl.fps", "-", stdin="0x1\t5\n"
    )
    assert "1 row of 1 inserted" in fine(
        "insert", "crawl.fps", "-", "--id-type", "str", stdin="0x1\t5\n"
    )


def test_a_missing_file_of_a_store_names_repair(folder: Path) -> None:
    for name in ("table-000.fpt", "ids.mdb", "strings.mdb", "hashes.fpt", "numbers.mdb", "log"):
        path = Path("crawl.fps/gen-00000001", name).rename("moved")
        for verb in (["probe", "crawl.fps", "0x1"], ["backup", "crawl.fps", "copy.fps"]):
            assert f"{name}: missing: run fpstore repair\n" in failure(*verb)
        path.rename(Path("crawl.fps/gen-00000001", name))


def test_a_missing_manifest_names_repair(folder: Path) -> None:
    Path("crawl.fps/manifest.json").unlink()
    assert "crawl.fps: manifest.json is missing: run fpstore repair\n" in failure(
        "stats", "crawl.fps"
    )
    said = run("repair", "crawl.fps").stdout
    assert "manifest.json is missing\n" in said
    assert re.search(
        "next: to use the new store, move crawl.fps away and rename .*/crawl.fps.repaired to "
        "crawl.fps\n",
        said,
    )
    message = failure("repair", "crawl.fps")
    for words in ("crawl.fps.repaired exists", "-o", "--yes"):
        assert words in message


def test_a_store_of_others_names_the_file_that_cannot_be_written(
    folder: Path, with_mode: Any
) -> None:
    fpstore.open("crawl.fps", "r+").close()
    with with_mode(Path("crawl.fps/writer.lock"), 0o444):
        assert "crawl.fps: cannot be changed (writer.lock: Permission denied)" in failure(
            "delete", "crawl.fps", "a"
        )


@pytest.mark.parametrize(
    ("output", "numbers"), crossed(["m.tsv", "m.csv", "m.jsonl", "m.parquet"], [False, True])
)
def test_an_insert_that_failed_is_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, output: str, numbers: bool
) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 4)
    store = "numbers.fps" if numbers else "crawl.fps"
    rows = [(0x1234567812345678 ^ (i % 3 * 7) << 40 ^ (i > 2), i + 100) for i in range(9)]
    rows[5], rows[7] = rows[1], (0xF0F0, 107)
    lines = [f"{f:016x}\t{i if numbers else f'new {i}'}\n" for f, i in rows]
    Path("rows.tsv").write_text("".join(lines))
    shutil.copytree(store, "once.fps")
    fine("insert", "once.fps", "rows.tsv", "--unmatched", "-r", 1, "-o", output, "-q")
    stored = b'"inserted": true', b'"inserted": false, "reason": "stored"'  # by the run that failed
    expected = Path(output).read_bytes().replace(*stored)
    Path(output).unlink()
    Path("part.tsv").write_text("".join(lines[:8]))
    Path("bad.tsv").write_text("not hex\n")
    message = failure("insert", store, "part.tsv", "bad.tsv", "--unmatched", "-r", 1, "-o", output)
    assert re.search(
        "bad.tsv:1: .*; before that, [1-8] rows? of the first 8 (was|were) inserted; repeat the "
        "command",
        message,
    )
    assert not Path(output).exists()
    fine("insert", store, "rows.tsv", "--unmatched", "-r", 1, "-o", output, "-q")
    assert Path(output).read_bytes().replace(*stored) == expected
    assert fine("export", store) == fine("export", "once.fps")


def test_an_insert_of_row_numbers_that_failed_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 2)
    Path("part.tsv").write_text("0x1\n0x2\n")
    Path("bad.tsv").write_text("not hex\n")
    message = failure("insert", "numbers.fps", "part.tsv", "bad.tsv")
    assert (
        "before that, 2 rows of the first 2 were inserted; insert only the rows after these"
        in message
    )


# the output is refused in the first chunk, or when it is complete
@pytest.mark.parametrize("rows", [300, 3])
def test_an_insert_whose_output_is_refused_says_what_is_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(import_module("fpstore.cli.changes"), "CHUNK_ROWS", 300)
    Path("rows.tsv").write_text("0x123456789\n" + f"0x{NEAR:x}\n" * (rows - 1))
    Path("full.tsv").symlink_to("/dev/full")
    message = failure("insert", "numbers.fps", "rows.tsv", "--unmatched", "-o", "full.tsv")
    expected = (
        f"before that, 1 row of the first {rows} was inserted; insert only the rows after these"
    )
    assert message == f"fpstore: full.tsv: No space left on device: free some space; {expected}\n"
    assert fpstore.open("numbers.fps")[0x123456789] == [4]


def test_bugs_and_no_memory_are_one_line_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for error, said in (
        (MemoryError(), "out of memory: work on fewer rows at a time"),
        (
            fpstore.MemoryLimitError("out of memory: work on fewer rows at a time"),
            "out of memory: work on fewer rows at a time",
        ),
        (RuntimeError("some\nbug"), "internal error (RuntimeError: some\\nbug)"),
    ):

        def broken(path: str, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("fpstore.cli.care.open_store", broken)
        assert failure("stats", "crawl.fps").startswith(f"fpstore: {said}")
    monkeypatch.setenv("FPSTORE_TRACEBACK", "1")
    assert "in broken" in run("stats", "crawl.fps").stderr


def test_merge_beside_a_long_lived_writer_says_how_it_merges(folder: Path) -> None:
    with fpstore.open("crawl.fps", "r+"):
        message = failure("merge", "crawl.fps", code=3)
    for words in (
        "this process has it open for writing",
        "one writer at a time",
        "Store.merge()",
        "merge_at=0.1",
    ):
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
READERS = [
    words.split()
    for words in (
        *(
            "build x.fps",
            "build x.fps --decimal",
            "build x.fps --text",
            "insert crawl.fps",
            "insert crawl.fps --unmatched",
        ),
        *(
            "insert notes.fps",
            "delete crawl.fps --input",
            "delete numbers.fps --input",
            "verify",
            "absorb crawl.fps",
            "repair",
        ),
        *(
            "ids crawl.fps --input",
            "probe crawl.fps --input",
            "scan crawl.fps -r 3 --input",
            "probe notes.fps",
            "hash --text",
        ),
        *("stats", "backup", "split --bits 1", "delete crawl.fps --fingerprints --input"),
    )
]


EXTENSIONS = ("", ".tsv", ".csv", ".txt", ".jsonl", ".npy", ".u64", ".parquet")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("extension", EXTENSIONS)
def test_odd_files_never_end_in_a_traceback(
    folder: Path, with_mode: Any, extension: str, every: int
) -> None:
    paths = {}
    for name, data in ODD_FILES.items():
        path = paths[name] = Path(f"odd-{name}{extension}")
        if name == "loop":
            path.symlink_to(path)
        elif data is None:
            path.mkdir()
        else:
            # where there are no lines, none is too long
            path.write_bytes(data[: 1 << 20] if extension == ".u64" else data)
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


def test_odd_outputs_never_end_in_a_traceback(folder: Path, with_mode: Any) -> None:
    Path("folder").mkdir()
    Path("locked").mkdir()
    Path("file").write_text("")
    Path("loop.tsv").symlink_to("loop.tsv")
    odd = (
        "folder",
        "missing/x.tsv",
        "file/x.tsv",
        "locked/x.tsv",
        "loop.tsv",
        "a\0b.tsv",
        "x" * 300 + ".tsv",
        "x.docx",
    )
    for output in (*odd, "/dev/full"):
        verbs: list[list[object]] = [
            ["export", "crawl.fps", "-o", output],
            ["probe", "crawl.fps", f"{NEAR:016x}", "-o", output],
            ["hash", "--text", "notes", "-o", output],
            ["insert", "crawl.fps", "new.tsv", "--unmatched", "-o", output],
        ]
        if not output.startswith("/dev"):
            verbs += [["backup", "crawl.fps", output], ["split", "crawl.fps", output, "--bits", 1]]
            verbs += [["build", output, "crawl.tsv"]]
        for verb in verbs:
            with with_mode(Path("locked"), 0):
                result = run(*verb)
            where = (verb, result.stderr)
            assert "internal error" not in result.stderr, where
            assert result.exit_code in (0, failure_of(verb)), where
            assert not result.exit_code or result.stderr.count("\n") == 1, where
