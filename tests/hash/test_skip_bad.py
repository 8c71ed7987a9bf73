"""Lines that are broken are skipped, as blank ones are, and named; without the option, an error."""

import gzip
import json
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from resuming import in_another, killed

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import open_reader
from fpstore.work.folder import PLAN_FILE

GOOD = [f'{{"text": "page {n // 2} of all", "id": {n}}}'.encode() for n in range(6)]
BROKEN = [
    b'{"text": "cut',
    b"[1]",
    b'{"text": "\xff"}',
    b"not JSON",
    b'{"text": ' + b"[" * 100_000,
    b'{"a": 1} trailing',
]
CSV_GOOD = [f'"page {n // 2}, of\nall",{n}'.encode() for n in range(6)]
CSV_BROKEN = [b"one", b"a,b,c", b"\xff,1", b'"a"b,1', b'"a",1,"x"']
NOTE = "fpstore: {} broken lines skipped: {}\n"
FIELDS = ("--text-field", "text", "--id-field", "id")


def mixed(good, broken, header=()):
    """Return lines in which one broken stands before each good one, and where those are."""
    lines, places, line = list(header), [], 1 + len(header)
    for n, row in enumerate(good):
        if n < len(broken):
            lines.append(broken[n])
            places.append(line)
            line += 1
        lines.append(row)
        line += 1 + row.count(b"\n")
    return b"\n".join(lines) + b"\n", places


@pytest.fixture(params=["jsonl", "csv"])
def case(request, tmp_path, monkeypatch):
    """Return a file with broken lines, one without, and the lines that are broken."""
    monkeypatch.chdir(tmp_path)
    name, header = f"a.{request.param}", [b"text,id"] if request.param == "csv" else []
    good, broken = (GOOD, BROKEN) if request.param == "jsonl" else (CSV_GOOD, CSV_BROKEN)
    content, places = mixed(good, broken, header)
    Path(name).write_bytes(content)
    Path(f"good.{request.param}").write_bytes(b"\n".join([*header, *good]) + b"\n")
    return Path(name), Path(f"good.{request.param}"), places


def note(path, places):
    return NOTE.format(len(places), ", ".join(f"{path}:{line}" for line in places))


def test_kept_rows_are_those_of_a_file_without_broken_lines(case):
    path, good, places = case
    dedup = (*FIELDS, "--threshold", 0.9, "--json", "--removed")
    expected = fine("dedup", good, f"x{good.suffix}", *dedup, "r.csv")
    assert failure("dedup", path, f"y{good.suffix}", *FIELDS).startswith("fpstore: a.")
    done = run("dedup", path, f"y{good.suffix}", *dedup, "s.csv", "--skip-bad")
    assert done.stderr == note(path, places)
    assert json.loads(done.stdout) == json.loads(expected)
    assert Path(f"y{good.suffix}").read_bytes() == Path(f"x{good.suffix}").read_bytes()
    listed = Path("s.csv").read_text().replace(Path(path).name, good.name)
    assert listed == Path("r.csv").read_text()
    done = run("boilerplate", path, f"z{good.suffix}", *FIELDS[:2], "--skip-bad", "-q")
    assert (done.exit_code, Path(f"z{good.suffix}").read_bytes()) == (0, good.read_bytes())


def test_row_numbers_pass_over_them(case):
    path, good, places = case
    hashed = ("--text-field", "text", "--no-progress", "-o")
    fine("hash", good, *hashed, "good.tsv")
    done = run("hash", path, *hashed, "skipped.tsv", "--skip-bad")
    assert note(path, places) in done.stderr
    assert Path("skipped.tsv").read_bytes() == Path("good.tsv").read_bytes()


def test_every_verb_of_rows(case):
    path, good, places = case
    for words in (
        ("build", "s.fps", path, *FIELDS, "--no-progress"),
        ("insert", "s.fps", path, *FIELDS, "--no-progress"),
        ("probe", "s.fps", "--input", path, *FIELDS, "--no-progress"),
        ("lsh", "build", "s.lsh", path, *FIELDS, "--threshold", 0.5, "--no-progress"),
        ("weights", path, "--text-field", "text", "-o", "w.json", "--no-progress"),
        ("decontaminate", path, good, *FIELDS[:2]),
        ("join", "s.fps", path, *FIELDS, "--no-progress"),
    ):
        assert run(*words).exit_code, words
        done = run(*words, "--skip-bad")
        assert done.exit_code == 0, done.output
        assert note(path, places) in done.stderr, words
    assert len(fpstore.open("s.fps").ids) == 6


SKIPS = "; --skip-bad skips such lines\n"


def test_errors_name_the_option(case):
    """Of each kind of broken line; in Python, the argument."""
    path, good, _ = case
    first, *others = good.read_bytes().splitlines(keepends=True)
    for broken in BROKEN if path.suffix == ".jsonl" else CSV_BROKEN:
        # the header or the first row before it
        path.write_bytes(b"".join([first, broken, b"\n", *others]))
        message = failure("dedup", path, f"x{path.suffix}", *FIELDS)
        assert message.startswith(f"fpstore: {path}:2: ")
        assert message.endswith(SKIPS), broken
    with pytest.raises(InputError, match=r"; skip_bad=True skips such lines$"):
        fpstore.dedup(path, text="text")


def test_errors_name_no_option_that_would_not_help(case):
    path, good, _ = case
    for words in (
        ("dedup", good, f"x{path.suffix}", *FIELDS, "--against", path),
        ("decontaminate", good, path, *FIELDS[:2]),
        ("dedup", path, f"x{path.suffix}", *FIELDS, "--processes", 1),
    ):
        message = failure(*words)
        assert f"{path}:" in message, words
        assert "skip" not in message, words
    assert failure("decontaminate", path, good, *FIELDS[:2]).endswith(SKIPS)


@pytest.mark.parametrize(
    ("name", "content", "is_broken"),
    [
        ("a.tsv", "00000000000000ff\t1\nxyz\t2\n", True),
        ("a.tsv", "00000000000000ff\t1\n00000000000000fe\t2\t3\n", True),
        ("a.tsv", "00000000000000ff\t1\n00000000000000fe\n", False),  # an id is missing
        ("a.jsonl", '{"fingerprint": "xyz", "id": 1}\n', False),
        ("a.jsonl", '{"fingerprint": 1, "id": 1}\n{"fingerprint"\n', True),
    ],
)
def test_wrong_values_are_not_broken_lines(tmp_path, name, content, is_broken):
    """A row that --skip-bad would not skip is an error without it."""
    (tmp_path / name).write_text(content)
    message = failure("build", tmp_path / "s.fps", tmp_path / name)
    assert message.endswith(SKIPS) == is_broken, message
    done = run("build", tmp_path / "s.fps", tmp_path / name, "--skip-bad", "--no-progress")
    assert (done.exit_code == 0) == is_broken


def test_a_folder_of_shards(case):
    path, good, places = case
    Path("in").mkdir()
    path.rename(Path("in") / path.name)
    packed = Path("in") / f"{good.name}.gz"
    packed.write_bytes(gzip.compress(good.read_bytes()))
    words = ("--text-field", "text", "--radius", 0, "--no-progress", "--skip-bad", "--json")
    done = run("dedup", "in", "out", *words)
    assert done.stderr == note(f"in/{path.name}", places)
    assert json.loads(done.stdout)["documents"] == 12
    header = 1 if path.suffix == ".csv" else 0
    kept = Path("out", path.name).read_bytes()
    assert kept.count(b"page") == 3
    assert gzip.decompress(Path("out", packed.name).read_bytes()).count(b"\n") == header


def test_only_ten_are_named(tmp_path, caplog):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"x\n" * 1234 + GOOD[0] + b"\n")
    reader = TextReader(path, SimHash(), text="text", skip_bad=True)
    with caplog.at_level(logging.WARNING, "fpstore"):
        for _ in range(2):
            assert sum(len(chunk.ids) for chunk in reader) == 1
    (record,) = caplog.records
    named = ", ".join(f"{path}:{line}" for line in range(1, 11))
    assert record.getMessage() == f"1,234 broken lines skipped: {named} and 1,224 more"


def test_resumed_jobs_count_alike(case):
    path, output = case[0], Path(f"b{case[0].suffix}")
    exact = (*FIELDS, "--radius", "0", "--search", "exact", "--threads", "1", "--resume", "-q")
    words = ["dedup", str(path), str(output), *exact, "--skip-bad"]
    run(*words)
    expected = output.read_bytes()
    output.unlink()
    count = in_another(words)
    assert count
    refused = 0
    for call in range(1, count + 1, 3):
        output.unlink(missing_ok=True)
        killed(words, call)
        if Path(f"{output}.resume", PLAN_FILE).exists() and not output.exists():
            refused += "skip_bad" in run(*words[:-1]).stderr
        run(*words)
        assert output.read_bytes() == expected
    assert refused


def test_fingerprints_in_lines(tmp_path, caplog):
    for name, content, count in (
        ("a.tsv", b"000000000000002a\tx\nzz\ty\n\xff\n2b\tb\tc\n000000000000002b\tz\n", 3),
        ("b.csv", b'000000000000002a,x\n"2\n000000000000002b,z\n', 1),
        ("c.jsonl", b'{"fingerprint": 42, "id": "x"}\n{\n{"fingerprint": 43, "id": "z"}\n', 1),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            list(open_reader(tmp_path / name))
        with caplog.at_level(logging.WARNING, "fpstore"):
            (chunk,) = open_reader(tmp_path / name, skip_bad=True)
        assert f"{count} broken line" in caplog.records[-1].getMessage()
        assert chunk.ids[0] == "x"


def test_wrong_values_and_headers_are_errors(tmp_path):
    for name, content, message in (
        ("a.jsonl", '{"text": 5}\n', "a text must be a string"),
        ("a.csv", "text,\udcff\na,b\n", "not valid UTF-8"),
        ("b.csv", "name\na\n", "no column named 'text'"),
    ):
        (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
        with pytest.raises(InputError, match=message):
            fpstore.dedup(tmp_path / name, text="text", skip_bad=True)


def test_where_there_are_no_lines(tmp_path):
    pq.write_table(pa.table({"text": ["a b"]}), tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", pa.table({"text": ["a b"]})):
        with pytest.raises(InputError, match="skip_bad=True is for files of lines"):
            fpstore.dedup(source, text="text", skip_bad=True)
    (tmp_path / "a.txt").write_text("a b")
    with pytest.raises(InputError, match="skip_bad=True is for lines, and files are texts"):
        fpstore.dedup(tmp_path / "a.txt", text=True, skip_bad=True)
    (tmp_path / "a.u64").write_bytes(bytes(8))
    with pytest.raises(InputError, match="skip_bad=True is for files of lines"):
        open_reader(tmp_path / "a.u64", skip_bad=True)
    assert "--skip-bad is not for plans" in failure(
        *("dedup", tmp_path / "a.parquet", "o.parquet", "--text-field", "text", "--skip-bad"),
        *("--processes", 1),
        code=2,
    )
