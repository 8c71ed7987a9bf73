"""Zero bytes as the ends of lines.

Ids may hold line breaks, and pass through grep -z and xargs -0.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import FINGERPRINTS, failure, fine, run
from conversation import Conversation

import fpstore
from fpstore.errors import InputError
from fpstore.io import open_reader, open_writer

IDS = [
    "plain",
    "two\nlines",
    "\nfirst",
    "last\n",
    "return\r",
    "\r\n",
    'quo"te',
    'comma, "and"\nbreak',
    "#comment",
]
FORMS = ["tsv", "csv", "txt", "jsonl"]
COLUMNS = ["fingerprint", "id"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ids_of(form: str) -> list[str]:
    return [name for name in IDS if form != "txt" or not set(name) & set(" ,\t")]


def stored(ids: list[str]) -> None:
    fpstore.build(
        "s.fps",
        [*FINGERPRINTS[: len(ids) - 1].tolist(), 0x77 << 50],
        ids=ids,
        radius=0,
        overwrite=True,
    ).close()


def test_what_is_written_is_read() -> None:
    for form, unbuffered in itertools.product(FORMS, (False, True)):
        ids = ids_of(form)
        values = list(range(7, 7 + len(ids)))
        for count in range(1, len(ids) + 1):
            with open_writer(f"a.{form}", columns=COLUMNS, null=True) as writer:
                writer.write({"fingerprint": values[:count], "id": ids[:count]})
            data = Path(f"a.{form}").read_bytes()
            assert (data.count(b"\0"), data[-1:]) == (count, b"\0")
            # the last needs no end; empty ones are nothing
            for text in (data, data[:-1], b"\0" + data.replace(b"\0", b"\0\0")):
                Path(f"a.{form}").write_bytes(text)
                (chunk,) = open_reader(f"a.{form}", null=True, unbuffered=unbuffered)
                assert (chunk.fingerprints.tolist(), chunk.ids) == (values[:count], ids[:count])


def test_a_header_and_a_bad_line() -> None:
    Path("a.csv").write_text('url,x,fingerprint\0one\nand two,,0x7\0"three ""\n",,0x8\0zz\0')
    with pytest.raises(InputError, match=r"a\.csv:4: "):
        list(open_reader("a.csv", id_field="url", null=True))
    Path("a.csv").write_text(Path("a.csv").read_text().removesuffix("zz\0"))
    (chunk,) = open_reader("a.csv", id_field="url", null=True)
    assert (chunk.fingerprints.tolist(), chunk.ids) == ([7, 8], ["one\nand two", 'three "\n'])
    # the line break is not in quotes, and some are
    for cell in ('"quoted"x\n', '"quoted"\n', 'a "b"\nc'):
        Path("a.csv").write_text(f'0x7,"x"\x000x8,{cell}\0')
        with pytest.raises(InputError, match=r"a\.csv:2: not valid CSV"):
            list(open_reader("a.csv", null=True))


def test_what_cannot_hold_zero_bytes_is_refused() -> None:
    with (
        open_writer("a.tsv", columns=COLUMNS, null=True) as writer,
        pytest.raises(InputError, match="a separator or a zero byte"),
    ):
        writer.write({"fingerprint": [7], "id": ["a\0b"]})
    with open_writer("a.jsonl", columns=COLUMNS, null=True) as writer:
        writer.write({"fingerprint": [7], "id": ["a\0b"]})
    (chunk,) = open_reader("a.jsonl", null=True)
    assert chunk.ids == ["a\0b"]
    for form in ("npy", "u64", "parquet"):
        with pytest.raises(
            InputError, match=f"null, the zero byte at the end of lines, is for .*, not for {form}"
        ):
            open_writer(f"a.{form}", columns=["fingerprint"], null=True)
        Path(f"a.{form}").write_bytes(b"")
        with pytest.raises(InputError, match=f"not for {form}"):
            open_reader(f"a.{form}", null=True)
    stored(["a", "b"])
    for verb in (["probe"], ["scan", "-r", 0], ["nearest"]):
        assert "neither input nor output" in failure(
            verb[0], "s.fps", *verb[1:], "0x7", "-0", "-o", "m.parquet", code=2
        )
    assert "not for npy" in failure("probe", "s.fps", "--input", "a.npy", "--input", "a.tsv", "-0")
    assert "not for npy" in failure("export", "s.fps", "-0", "-o", "m.npy", code=2)
    assert "neither input nor output" in failure(
        "ids", "s.fps", "a", "-0", "-o", "m.parquet", code=2
    )
    assert "--null needs --input" in failure("delete", "s.fps", "a", "-0", code=2)


@pytest.mark.parametrize("verb", ["probe -r 0", "scan -r 0", "nearest --max-radius 0"])
def test_queries_and_matches(verb: str) -> None:
    name, *options = verb.split()
    for form in FORMS:
        stored(ids_of(form))
        fine("export", "s.fps", "--null", "-o", f"q.{form}")
        rows = [(f, i) for f, many in zip(*all_of("s.fps"), strict=True) for i in many]
        command = (name, "s.fps", *options, "--input", f"q.{form}", "--null")
        lines = fine(*command, "--json").split("\0")
        assert lines.pop() == ""
        assert [json.loads(line)["query_id"] for line in lines] == [i for _, i in rows]
        fine(*command, "--with-queries", "-o", "m.tsv")
        cells = [line.split("\t") for line in Path("m.tsv").read_bytes().decode().split("\0")[:-1]]
        assert {(int(row), query) for *_, row, query in cells} == set(enumerate(i for _, i in rows))
        of_id = {i: f for f, i in rows}
        assert all(rows[int(row)][0] == of_id[name] for _, _, _, name, row, _ in cells)


def all_of(store: str) -> tuple[list[int], list[list[str]]]:
    with fpstore.open(store) as opened:
        values = [int(value) for piece, _, _ in opened.items() for value in piece]
        return values, [list(opened[value]) for value in values]


def test_ids_and_deletions() -> None:
    stored(IDS)
    Path("ids.txt").write_text("\0".join(IDS[:4]))
    out = fine("ids", "s.fps", "--input", "ids.txt", "-0").split("\0")[:-1]
    assert [line.split("\t", 1)[1] for line in out] == IDS[:4]
    fine("ids", "s.fps", "--input", "ids.txt", "--null", "-o", "found.parquet")
    fine("delete", "s.fps", "--input", "ids.txt", "--null", "-q")
    with fpstore.open("s.fps") as store:
        assert sorted(i for i in IDS if i in store.ids) == sorted(IDS[4:])


def test_other_programs_take_the_lines() -> None:
    stored(IDS)
    written = "import json, sys; print(json.dumps(sys.argv[1:]))"
    script = f"cut -z -f 2 | grep -z . | xargs -0 '{sys.executable}' -c '{written}'"
    out = run("export", "s.fps", "-0").stdout_bytes
    done = subprocess.run(["sh", "-c", script], input=out, capture_output=True, check=True)
    assert sorted(json.loads(done.stdout)) == sorted(IDS)


def test_a_process_that_is_held_open() -> None:
    stored(IDS)
    with Conversation("probe", "s.fps", "-r", 0, "--input", "-", "--null", "--json") as one:
        for name in IDS:
            one.send(f"0x{0x77 << 50:x}\t{name}\0")
            found = json.loads(one.answer(b"\0"))
            assert (found["query_id"], found["matches"][0]["ids"]) == (name, [IDS[-1]])
        assert one.ended() == (0, b"", "")
