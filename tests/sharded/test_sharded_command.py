"""The verbs on a sharded store.

They write what they write of the one store of all rows, or refuse in one line.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine, run
from shards import both, ids_of, queries_of, rows_of, shards

import fpstore

VALUES = rows_of(64, 150, 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    mine, single = both(tmp_path, VALUES, ids_of("string", len(VALUES)), [50, 100])
    mine.close()
    single.close()
    np.save("queries.npy", np.array(queries_of(VALUES, 64), np.uint64))
    Path("others.txt").write_text("".join(f"{value:016x}\n" for value in queries_of(VALUES, 64)))
    return tmp_path


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "arguments",
    [
        ("probe", f"{VALUES[3]:016x}", "--json"),
        ("probe", "--input", "queries.npy", "-r", 2),
        ("probe", "--input", "queries.npy", "--limit", 1),
        ("scan", "--input", "queries.npy", "-r", 7, "--limit", 2),
        ("nearest", "--input", "queries.npy", "-k", 3),
        ("ids", "document 3", "document 90", "document 3"),
        ("pairs", "--duplicates"),
        ("cluster", "--keep", "smallest", "--json"),
        ("join", "others.txt"),
        ("export",),
        ("export", "--format", "u64"),
    ],
    ids=lambda value: " ".join(map(str, value[:3])),
)
def test_what_a_verb_writes_is_equal(folder, arguments):
    verb, *rest = arguments
    results = [run(verb, store, *rest) for store in ("S", "one.fps")]
    mine, single = (
        sorted(result.stdout_bytes.splitlines())
        if verb in ("pairs", "join")
        else result.stdout_bytes
        for result in results
    )
    assert mine == single
    assert mine
    assert results[0].stderr == results[1].stderr
    assert results[0].exit_code == results[1].exit_code


def test_either_side_of_a_join_is_sharded(folder):
    shards(folder / "other", queries_of(VALUES, 64), None, [30]).close()
    mine, single = run("join", "S", "other"), run("join", "one.fps", "other")
    assert mine.exit_code == 0
    assert sorted(mine.stdout.splitlines()) == sorted(single.stdout.splitlines())


def test_a_corpus_is_compared_with_a_sharded_store(folder):
    rows = "".join(
        f"{value:016x},{number}\n" for number, value in enumerate(queries_of(VALUES, 64))
    )
    Path("rows.csv").write_text("hash,id\n" + rows)
    arguments = ("dedup", "rows.csv", "--fingerprint-field", "hash", "--id-field", "id")
    for store, output in (("S", "a.csv"), ("one.fps", "b.csv")):
        fine(*arguments, "--against", store, "--quiet", output)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()
    assert Path("a.csv").stat().st_size < Path("rows.csv").stat().st_size
    assert "a sharded store is read-only" in failure(*arguments, "--against", "S", "--add", "c.csv")


def test_stats_are_those_of_all_shards(folder):
    stats, single = (json.loads(fine("stats", store, "--json")) for store in ("S", "one.fps"))
    for name in ("fingerprints", "ids", "radius", "width", "id_kind", "fingerprinter", "codec"):
        assert stats[name] == single[name], name
    assert stats.keys() == {*single, "shards"}
    assert stats["shards"] == 3
    files = [path.stat() for path in Path("S").glob("shard-*/gen-*/table-*")]
    assert stats["bytes"]["tables"] == sum(file.st_size for file in files)
    out = fine("stats", "S")
    assert "shards          3" in out
    assert f'fpstore_fingerprints{{store="S"}} {len(set(VALUES))}' in fine(
        "stats", "S", "--prometheus"
    )


def test_verify_says_what_is_wrong_with_a_shard(folder):
    assert "sound" in fine("verify", "S")
    table = Path("S/shard-00001.fps/gen-00000001/table-000.fpt")
    data = bytearray(table.read_bytes())
    data[-9] ^= 1
    table.write_bytes(data)
    result = run("verify", "S", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert {fault["path"] for fault in report["faults"]} == {str(folder / table)} or all(
        "shard-00001.fps" in fault["message"] for fault in report["faults"]
    )
    Path("S/shards.json").write_text("{}")
    result = run("verify", "S")
    assert result.exit_code == 1
    assert "shards.json: damaged" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("insert", "S", "others.txt"),
        ("insert", "S", "others.txt", "--unmatched"),
        ("delete", "S", "document 3"),
        ("merge", "S"),
        ("redesign", "S", "flip-2"),
        ("absorb", "S", "one.fps"),
        ("absorb", "one.fps", "S"),
        ("split", "S", "parts", "--bits", "1"),
        ("backup", "S", "copy"),
        ("repair", "S"),
        ("build", "S", "others.txt", "--force"),
    ],
    ids=" ".join,
)
def test_verbs_that_change_refuse(folder, arguments):
    before = {path: path.read_bytes() for path in Path("S").rglob("*") if path.is_file()}
    message = failure(*arguments)
    assert "sharded store" in message or arguments[0] == "build", message
    assert {path: path.read_bytes() for path in Path("S").rglob("*") if path.is_file()} == before


def test_pages_of_one_store_refuse(folder):
    assert "a report is for one store" in failure("report", "S", "--output", "page.html", code=2)
    assert "--full is for one store" in failure("stats", "S", "--full", code=2)
    assert not Path("page.html").exists()


def test_a_folder_of_texts_with_a_sharded_store_is_refused(folder):
    Path("texts").mkdir()
    Path("S").rename("texts/S")
    Path("texts/a.txt").write_text("a text")
    fine(
        "build", "notes.fps", "texts", "--text", "--suffix", ".txt", "--suffix", ".json", "--quiet"
    )
    with fpstore.open("notes.fps") as store:
        assert len(store.ids) == 1
