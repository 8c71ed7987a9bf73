"""Ids of odd characters: what Unicode calls a line break, blanks, controls.

From a file, through a store, to a file and back.
"""

import json
import re
from pathlib import Path

import pytest
from commandline import failure, fine, run

import fpstore

# Everything that str.splitlines takes for the end of a line, except the line feed.
BREAKS = ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
ODD = [
    *(f"a{c}b" for c in BREAKS if c != "\r"),
    *(f"{c}" for c in BREAKS if c != "\r"),
    " a",
    "a ",
    "\xa0",
    "a\0b",
    "\x1b[31m",
    '"',
    'a"b',
    "#a",
    "#",
    "\\n",
    "\\xff",
    "a\u200bb",
    "a\ufeffb",
    "\U0010ffff",
    "e\u0301",
    "é",
    "id",
    "fingerprint",
    "null",
    "0x1",
    "01",
    "x" * 60000,
]
PLAIN = ["a", "b", "ab"]
SEPARATORS = ["a\tb", "\t", "a\rb", "a\nb", "\n", "a,b", "a b"]


def content(path):
    with fpstore.open(path) as store:
        return {name: store.ids[name] for _, _, names in store.items() for name in names}


@pytest.mark.parametrize("extension", ["tsv", "csv", "jsonl", "parquet"])
def test_odd_ids_survive_build_export_and_build(tmp_path, monkeypatch, extension):
    monkeypatch.chdir(tmp_path)
    ids = [*PLAIN, *ODD] + (SEPARATORS if extension in ("jsonl", "parquet") else [])
    fpstore.build("a.fps", list(range(len(ids))), ids).close()
    fine("export", "a.fps", "-o", f"out.{extension}")
    fine("build", "b.fps", f"out.{extension}", "-q")
    assert content("b.fps") == content("a.fps") == {name: [n] for n, name in enumerate(ids)}
    fine("insert", "b.fps", f"out.{extension}", "-q")
    assert content("b.fps") == content("a.fps")
    fine("merge", "b.fps", "-q")
    assert content("b.fps") == content("a.fps")


def test_delete_input_ends_lines_at_line_feeds_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    left = [*PLAIN, *ODD]
    fpstore.build("a.fps", list(range(len(left))), left).close()
    for odd in ODD:
        Path("gone.txt").write_bytes(f"\n{odd}\r\n".encode())
        out = fine("delete", "a.fps", "--input", "gone.txt", "--json")
        assert json.loads(out)["removed"] == 1
        left.remove(odd)
        assert set(content("a.fps")) == set(left)


def test_text_output_refuses_an_id_that_would_be_read_as_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for odd in SEPARATORS[:5]:
        fpstore.build("a.fps", [0, 1], ["a", odd], overwrite=True).close()
        for verb in (["export", "a.fps"], ["probe", "a.fps", "0x0"]):
            assert re.search(
                "cannot be written as tsv.*JSON lines", failure(*verb, "-o", "out.tsv")
            )
            assert not Path("out.tsv").exists()
        assert odd in fine("export", "a.fps", "--json").encode().decode("unicode_escape")
        assert json.loads(fine("delete", "a.fps", odd, "--json"))["removed"] == 1


@pytest.mark.parametrize("extension", ["tsv", "jsonl"])
def test_delete_of_pairs_says_what_was_not_stored(tmp_path, monkeypatch, extension):
    monkeypatch.chdir(tmp_path)
    for name, ids in (("a.fps", ["x", "017", "x"]), ("b.fps", [4, 17, 4])):
        fpstore.build(name, [7, 7, 9], ids).close()
        fine("export", name, "-o", f"rows.{extension}")
        rows = Path(f"rows.{extension}").read_text().splitlines(keepends=True)
        # a stored pair and another
        Path(f"gone.{extension}").write_text("".join([rows[0], rows[0].replace("7", "5", 1)]))
        done = run("delete", name, "--pairs", "--input", f"gone.{extension}")
        assert (done.stdout, done.stderr) == (
            f"{name}: 1 id removed, 2 fingerprints with 2 ids left\n",
            f"fpstore: {name}: 1 pair is not stored\n",
        )
        done = run("delete", name, "--pairs", "--input", f"gone.{extension}", "--json")
        assert json.loads(done.stdout) == {"removed": 0, "missing": 2, "fingerprints": 2, "ids": 2}
        assert (done.exit_code, done.stderr) == (0, f"fpstore: {name}: 2 pairs are not stored\n")
    assert (
        run("delete", "b.fps", "4", "5", "6", "6").stderr
        == "fpstore: b.fps: 2 ids are not stored\n"
    )
    assert (
        run("delete", "b.fps", "--fingerprints", "0x3").stderr
        == "fpstore: b.fps: 1 fingerprint is not stored\n"
    )
    assert fine("delete", "b.fps", "5", "--quiet") == ""
    Path("bare.tsv").write_text("0000000000000007\n")
    assert "--pairs needs an id in each row" in failure(
        "delete", "b.fps", "--pairs", "--input", "bare.tsv"
    )
    assert "--pairs takes a fingerprint and an id" in failure(
        "delete", "b.fps", "--pairs", "0x7", code=2
    )
    Path("rows.tsv").write_text("7\t17\n")
    for name, ids in (("a.fps", ["x", "017", "x"]), ("b.fps", [4, 17, 4])):
        fpstore.build(name, [7, 7, 9], ids, overwrite=True).close()
        done = run("delete", name, "--pairs", "0x7", ids[0], "0x8", ids[0])
        assert (done.stdout[-11:], done.stderr) == (
            "2 ids left\n",
            f"fpstore: {name}: 1 pair is not stored\n",
        )
    done = json.loads(
        fine("delete", "b.fps", "--pairs", "9", "4", "--decimal", "--input", "rows.tsv", "--json")
    )
    assert (done["removed"], done["missing"]) == (2, 0)


def test_a_bad_line_of_delete_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("a.fps", [0, 1]).close()
    Path("gone.txt").write_text("1\n\nx\n")
    Path("hex.txt").write_text("0x1\n\nx\n")
    assert "gone.txt:3: the id 'x' is not" in failure("delete", "a.fps", "--input", "gone.txt")
    assert "hex.txt:3: 'x' is not a fingerprint" in failure(
        "delete", "a.fps", "--fingerprints", "--input", "hex.txt"
    )
    assert len(fpstore.open("a.fps")) == 2


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("", "empty"),
        ("\ud800", "is not valid UTF-8"),
        ("a\udcff", "is not valid UTF-8"),
        ("x" * 65537, "65536 bytes.*got one of 65537"),
        ("é" * 40000, "65536 bytes.*got one of 80000"),
        ("🙂" * 16384 + "a", "65536 bytes.*got one of 65537"),
    ],
    ids=["empty", "surrogate", "byte of a file name", "long", "long in UTF-8", "one byte too long"],
)
def test_ids_that_cannot_be_kept_are_refused_before_anything_is(tmp_path, bad, message):
    path = tmp_path / "a.fps"
    with pytest.raises(fpstore.InputError, match=message):
        fpstore.build(path, [0, 1], ["a", bad])
    assert list(tmp_path.iterdir()) == []
    fpstore.build(path, [0], ["a"]).close()
    with fpstore.open(path, "r+") as store:
        before = store.stats()["bytes"]
        for change in (
            lambda: store.insert([1, 2], ["b", bad]),
            lambda: store.probe_insert(1, bad),
            lambda: store.probe_insert_many([1 << 40, 2 << 50], ["b", bad]),
            lambda: store.upsert([1, 2], ["b", bad]),
            lambda: store.probe_upsert(1, bad),
            lambda: store.delete(ids=[bad]),
        ):
            with pytest.raises(fpstore.InputError, match=message):
                change()
        assert bad not in store.ids
        assert store.stats()["bytes"] == before
        store.merge()
        assert [len(store), list(content(path))] == [1, ["a"]]
