"""Several references: each row goes for the first that has a document near it, which is named."""

import csv
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from commandline import TEXT_AND_ID, failure, fine, run
from inputs import json_lines
from small_plans import plan_dedup
from text_corpora import files_in, finished, listed

import fpstore
from fpstore import InputError, MinHash, SourceLossError

WORDS = [f"w{n}" for n in range(5000)]


def sentence(seed, count=60):
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def write(path, texts, name):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json_lines({"id": f"{name}{n}", "text": text} for n, text in enumerate(texts)))
    return path


def build(path, texts, name):
    minhash, ids = MinHash(), [f"{name}{n}" for n in range(len(texts))]
    fpstore.build(path, minhash.fingerprints(texts), ids, fingerprinter=minhash).close()
    return path


def removed_rows(result):
    return {
        row["id"]: (row["kept"], row["reference"], row["kept_shard"])
        for row in result.removed.to_arrow().to_pylist()
    }


@pytest.mark.parametrize("last", ["store", "files", "table"])
def test_fingerprints_go_for_the_first_reference_that_is_near(tmp_path, last):
    """By comparing everything; the ids of one store are integers, those of the other strings."""
    rng = np.random.default_rng(3)
    rows, first, second, third = (rng.integers(0, 1 << 9, count) for count in (80, 6, 6, 6))
    stores = {}
    for name, numbers in (("a", first), ("b", second), ("c", third)):
        ids = np.arange(6) + 100 if name == "a" else [f"{name}{n}" for n in range(6)]
        stores[name] = tmp_path / f"{name}.fps"
        fpstore.build(stores[name], numbers.astype(np.uint64), ids, radius=1).close()
    table = pa.table({"h": third.astype(np.uint64), "id": [f"c{n}" for n in range(6)]})
    pa.parquet.write_table(table, tmp_path / "c.parquet")
    end = {"store": stores["c"], "files": tmp_path / "c.parquet", "table": table}[last]
    corpus = pa.table({"h": rows.astype(np.uint64), "id": [f"r{n}" for n in range(80)]})
    with fpstore.open(stores["b"]) as opened:
        against = [stores["a"], opened, end]
        result = fpstore.dedup(corpus, fingerprint="h", id="id", radius=1, against=against)
    found = removed_rows(result)
    names = [str(stores["a"]), str(stores["b"]), "the table" if last == "table" else str(end)]
    hits = 0
    for n, row in enumerate(rows.tolist()):
        near = [
            any((row ^ other).bit_count() <= 1 for other in numbers.tolist())
            for numbers in (first, second, third)
        ]
        kept, name, _ = found.get(f"r{n}", ("", "", ""))
        assert name == (names[near.index(True)] if any(near) else "")
        if any(near):
            numbers = (first, second, third)[near.index(True)]
            place = int(kept) - 100 if near[0] else int(kept[1:])
            assert (row ^ int(numbers[place])).bit_count() <= 1
            hits += 1
    assert set(names) <= {name for _, name, _ in found.values()}
    assert hits < 80


def corpus_of_texts(folder):
    """Write a corpus, two stores and two files that have near texts, one each."""
    texts = [sentence(n) for n in range(8)]
    build(folder / "mon.fps", [texts[0], sentence(100)], "m")
    build(folder / "tue.fps", [texts[0], texts[1]], "t")
    write(folder / "bench.jsonl", [sentence(101), f"{texts[2]} and more", texts[1]], "b")
    write(folder / "crawl" / "part.jsonl", [texts[3]], "w")
    return write(folder / "c.jsonl", [*texts, texts[7]], "c")


def test_stores_and_files_are_asked_together(tmp_path):
    path = corpus_of_texts(tmp_path)
    names = [str(tmp_path / name) for name in ("mon.fps", "tue.fps", "bench.jsonl", "crawl")]
    result = fpstore.dedup(path, text="text", id="id", against=names, excerpts_of=500)
    assert removed_rows(result) == {
        "c0": ("m0", names[0], ""),
        "c1": ("t1", names[1], ""),
        "c2": ("b1", names[2], "bench.jsonl"),
        "c3": ("w0", names[3], "crawl/part.jsonl"),
        "c8": ("c7", "", "c.jsonl"),
    }
    assert result.kept.tolist() == [4, 5, 6, 7]
    assert result.removed.in_reference.tolist() == [True] * 4 + [False]
    assert result.removed.kept_rows.tolist()[2:] == [1, 3, 7]
    shown = result.removed.to_arrow().to_pylist()
    assert [row["kept_text"] for row in shown[:2]] == ["", ""]
    assert shown[2]["kept_text"].endswith(" and more")
    assert shown[3]["kept_text"] == shown[3]["text"] == sentence(3)
    assert shown[4]["kept_text"] == sentence(7)


def test_a_file_or_a_folder_is_named_as_the_caller_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus_of_texts(tmp_path)
    arguments = ("dedup", "c.jsonl", "o.jsonl", *TEXT_AND_ID, "--removed", "r.csv")
    references = ("--against", "bench.jsonl", "--against", "crawl")
    summary = json.loads(fine(*arguments, *references, "--json"))
    assert summary["near_reference"] == 3
    with (tmp_path / "r.csv").open() as file:
        rows = {row["id"]: row["reference"] for row in csv.DictReader(file)}
    assert rows == {"c1": "bench.jsonl", "c2": "bench.jsonl", "c3": "crawl", "c8": ""}


def test_rows_are_added_to_the_first_store(tmp_path, monkeypatch):
    """A new store for each crawl, asked together: no crawl goes to the store of another one."""
    monkeypatch.chdir(tmp_path)
    path = corpus_of_texts(tmp_path)
    stores = ("--against", "wed.fps", "--against", "mon.fps", "--against", "tue.fps")
    result = run("dedup", path, "o.jsonl", *TEXT_AND_ID, *stores, "--add")
    assert (result.exit_code, result.stderr) == (
        0,
        "fpstore: wed.fps: made, as there was no such store\n",
    )
    for name, ids in (
        ("wed", ["c2", "c3", "c4", "c5", "c6", "c7"]),
        ("mon", ["m0", "m1"]),
        ("tue", ["t0", "t1"]),
    ):
        with fpstore.open(tmp_path / f"{name}.fps") as store:
            assert len(store.ids) == len(ids)
            assert all(name in store.ids for name in ids)
            assert store.fingerprinter == MinHash().describe()
    again = run("dedup", path, "p.jsonl", *TEXT_AND_ID, *stores, "--add", "--removed", "r.csv")
    assert "7 rows removed, which the store has under the same id" not in again.stderr
    assert "6 rows removed, which the store has under the same id" in again.stderr
    assert (tmp_path / "p.jsonl").read_text() == ""


def test_references_that_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    corpus_of_texts(tmp_path)
    options = ("dedup", "c.jsonl", "o.jsonl", *TEXT_AND_ID)

    def refused(*names, add=False, code=1):
        references = [word for name in names for word in ("--against", name)]
        return failure(*options, *references, *["--add"] * add, code=code)

    assert "none.fps: no such store, file or folder" in refused("mon.fps", "none.fps")
    assert "none.fps: no such store, file or folder" in refused("mon.fps", "none.fps", add=True)
    assert "bench.jsonl: is no store: --add inserts into one" in refused("bench.jsonl", add=True)
    assert "c.jsonl: is an input too" in refused("mon.fps", "c.jsonl")
    numbers = np.arange(3, dtype=np.uint64)
    fpstore.build("other.fps", numbers, ["x", "y", "z"]).close()
    assert "other.fps: holds 64 bits, and the corpus has fingerprints of 256" in refused(
        "mon.fps", "other.fps"
    )
    assert "a plan compares with a store" in failure(
        *options, "--against", "mon.fps", "--against", "crawl", "--processes", 1, code=2
    )
    assert not (tmp_path / "o.jsonl").exists()
    with pytest.raises(InputError, match="no input was given"):
        fpstore.dedup("c.jsonl", text="text", against=[])


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "tsv"])
def test_a_plan_with_several_stores_equals_one_process(tmp_path, suffix):
    corpus_of_texts(tmp_path)
    texts = [sentence(n) for n in range(8)]
    for number, part in enumerate((texts[:4], [*texts[4:], texts[7], texts[0]])):
        write(tmp_path / "corpus" / f"{number}.jsonl", part, f"{number}-")
    against = [tmp_path / "tue.fps", tmp_path / "mon.fps"]
    options = {"text": "text", "id": "id", "against": against}
    removed, corpus = tmp_path / f"r.{suffix}", tmp_path / "corpus"
    many = tmp_path / "many"
    plan = plan_dedup(tmp_path / "plan", corpus, many, removed=removed, part_bytes=500, **options)
    summary = finished(plan)
    result = fpstore.dedup(corpus, tmp_path / "one", **options)
    assert files_in(many) == files_in(tmp_path / "one")
    assert removed.read_bytes() == listed(result.removed, tmp_path / f"one.{suffix}")
    assert summary["near_reference"] == result.removed.in_reference.sum() == 3
    names = [name for _, name, _ in removed_rows(result).values()]
    assert sorted(names) == ["", *[str(against[0])] * 3]


def test_a_resumed_job_knows_which_reference_has_a_row(tmp_path):
    """What was near files is kept, and not searched again."""
    rng = random.Random(5)
    table = [{"h": f"{rng.randrange(1 << 64):016x}", "s": "x"} for _ in range(300)]
    for name, rows in (("c", table), ("a", table[:40]), ("b", table[40:200])):
        (tmp_path / f"{name}.jsonl").write_text(json_lines(rows))
    options = {
        "fingerprint": "h",
        "radius": 1,
        "source_field": "s",
        "against": [tmp_path / "a.jsonl", tmp_path / "b.jsonl"],
        "resume": tmp_path / "kept",
    }
    corpus, output = tmp_path / "c.jsonl", tmp_path / "o.jsonl"
    with pytest.raises(SourceLossError):
        fpstore.dedup(corpus, output, most_removed=0.5, **options)
    assert (tmp_path / "kept").is_dir()
    result = fpstore.dedup(corpus, output, **options)
    names = [row["reference"] for row in result.removed.to_arrow().to_pylist()]
    assert names == [str(tmp_path / "a.jsonl")] * 40 + [str(tmp_path / "b.jsonl")] * 160
    assert len(output.read_text().splitlines()) == 100
