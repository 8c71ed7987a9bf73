"""Decontamination of a corpus against benchmarks, compared with sets of Python."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from inputs import json_lines
from resuming import in_another

import fpstore
from fpstore import InputError, MinHash, SimHash
from fpstore.errors import StoreExistsError

# Some lines depend on the neighbours of a character, so that Python makes their normal forms; a
# character may be a word.
MARKED = [
    "e\u0301a",
    "\u1100\u1161",
    "\u03a3x",
    "\u0e01\u0e38\u0e48",
    "\u4e2d\u6587",
    "Stra\u00dfe",
    "don't",
    "x_1",
]


def texts(rng, count, longest=40):
    """Return texts of few words, some of which are parts of others."""
    words, made = [f"W{n}" for n in range(60)] + MARKED, []
    for _ in range(count):
        part = rng.choices(words, k=rng.randrange(longest))
        if made and rng.random() < 0.5:
            other = rng.choice(made).split()
            at = rng.randrange(len(other) + 1)
            part[rng.randrange(len(part) + 1) :] = other[at : at + rng.randrange(1, 30)]
        made.append(rng.choice([" ", "\n", ", "]).join(part))
    return [*made, "", "\u200b"]


def ngrams(text, n):
    return set(SimHash(size=n, weighting="set").features(text or ""))


def expected(corpus, benchmark, n, least=1, share=0.0, common=None):
    """Return (row, row of the benchmark, shared n-grams, share) of each hit."""
    ours, theirs = [ngrams(text, n) for text in corpus], [ngrams(text, n) for text in benchmark]
    rows = Counter(ngram for our in ours for ngram in our)
    collected = []
    for row, our in enumerate(ours):
        for other, those in enumerate(theirs):
            shared = sum(common is None or rows[ngram] <= common for ngram in our & those)
            if shared >= least and shared / len(those) >= share:
                collected.append((row, other, shared, round(shared / len(those), 6)))
    return collected


def shown(found):
    return [
        tuple(row[name] for name in ("row", "benchmark_row", "shared", "share"))
        for row in found.hits.to_arrow().to_pylist()
    ]


@pytest.mark.parametrize("n", [1, 2, 5, 13])
def test_hits_are_those_of_sets(n, set_limits):
    rng = random.Random(n)
    set_limits(hits=50)
    for least, share, common in [
        (1, 0.0, None),
        (3, 0.0, None),
        (1, 0.3, None),
        (2, 0.5, 30 // n),
        (1, 0.0, 20 // n),
    ]:
        corpus, benchmark = texts(rng, 50), texts(rng, 40)
        benchmark += rng.sample(corpus, 5) + [
            text[: len(text) // 2] for text in rng.sample(corpus, 10)
        ]
        corpus += [benchmark[3] + "\nand more", None, benchmark[8], benchmark[11].upper()]
        result = fpstore.decontaminate(
            pa.table({"t": corpus}),
            pa.table({"t": [*benchmark, None]}),
            text="t",
            ngram=n,
            min_ngrams=least,
            min_share=share,
            ignore_common=common,
            threads=1 + n % 2,
        )
        wanted = expected(corpus, benchmark, n, least, share, common)
        assert shown(result) == wanted != []
        gone = {row for row, *_ in wanted}
        assert result.hits.rows.tolist() == sorted(gone)
        assert result.kept["t"].to_pylist() == [
            text for row, text in enumerate(corpus) if row not in gone
        ]
        words = [
            len(next(iter(ngrams(text, 255)), "").split(" ")) if ngrams(text, 1) else 0
            for text in benchmark
        ]
        (counts,) = result.benchmarks
        assert counts == (
            "the table",
            len(benchmark) + 1,
            words.count(0) + 1,
            sum(0 < k < n for k in words),
            len({other for _, other, *_ in wanted}),
        )
        assert result.not_compared == sum(not ngrams(text, 1) for text in corpus)
        used = Counter(ngram for text in corpus for ngram in ngrams(text, n))
        known = {ngram for text in benchmark for ngram in ngrams(text, n)}
        assert result.hits.ignored == (
            0 if common is None else sum(used[ngram] > common for ngram in known)
        )


def test_a_word_is_a_run_of_letters_and_digits():
    """The n-grams of the other tests come from the package.

    These are of plain words, cut by hand.
    """
    rng = random.Random(1)
    corpus = [[f"w{rng.randrange(9)}" for _ in range(rng.randrange(1, 60))] for _ in range(300)]
    benchmark = [[f"w{rng.randrange(9)}" for _ in range(rng.randrange(1, 12))] for _ in range(100)]
    runs = {
        tuple(words[at : at + 4]) for words in benchmark for at in range(max(len(words) - 3, 1))
    }
    kept = [
        row
        for row, words in enumerate(corpus)
        if not any(tuple(words[at : at + 4]) in runs for at in range(max(len(words) - 3, 1)))
    ]
    ours = pd.DataFrame({"t": [" - ".join(words).upper() for words in corpus]})
    result = fpstore.decontaminate(
        ours,
        pl.DataFrame({"u": list(map(" ".join, benchmark))}),
        text="t",
        benchmark_text="u",
        ngram=4,
    )
    assert result.kept.index.tolist() == kept
    assert 0 < len(kept) < 300
    assert (result.short, result.benchmarks[0].short) == tuple(
        sum(len(words) < 4 for words in part) for part in (corpus, benchmark)
    )


def test_quarters_of_texts_are_found(tmp_path, monkeypatch):
    """Of 250 rows, dedup found none of which a quarter is in another text."""
    monkeypatch.chdir(tmp_path)
    rng = random.Random(3)
    words = [f"word{n}" for n in range(5000)]
    corpus = [rng.choices(words, k=rng.randrange(100, 400)) for _ in range(1000)]
    benchmark = [rng.choices(words, k=rng.randrange(60, 200)) for _ in range(250)]
    planted = rng.sample(range(1000), 250)
    for row, query in zip(planted, benchmark, strict=True):
        size, place = len(query) // 4 + 1, rng.randrange(90)
        at = rng.randrange(len(query) - size)
        corpus[row][place:place] = query[at : at + size]
    table = pa.table({"text": [" ".join(part) for part in corpus], "n": range(1000)})
    pq.write_table(table, "c.parquet", row_group_size=300)
    lines = [
        json.dumps({"q": ". ".join(part).title(), "key": f"k{n}"})
        for n, part in enumerate(benchmark)
    ]
    Path("b.jsonl").write_text("\n".join(lines[:100]))
    Path("b.csv").write_text(
        "key,q\n" + "".join(f"k{n},{' '.join(benchmark[n])}\n" for n in range(100, 250))
    )
    arguments = ["c.parquet", "b.jsonl", "b.csv", "--text-field", "text", "--benchmark-field", "q"]
    arguments += ["--benchmark-id-field", "key"]
    said = json.loads(
        fine("decontaminate", *arguments, "-o", "o.parquet", "--hits", "h.jsonl", "--json")
    )
    kept = pq.read_table("o.parquet")
    assert kept["n"].to_pylist() == sorted(set(range(1000)) - set(planted))
    assert kept.schema == table.schema
    hits = list(map(json.loads, Path("h.jsonl").read_text().splitlines()))
    assert {(hit["row"], hit["benchmark_id"]) for hit in hits} == {
        (row, f"k{n}") for n, row in enumerate(planted)
    }
    assert {(hit["benchmark"], hit["benchmark_row"], hit["benchmark_id"]) for hit in hits} == {
        *(("b.jsonl", n, f"k{n}") for n in range(100)),
        *(("b.csv", n - 100, f"k{n}") for n in range(100, 250)),
    }
    assert [
        said[name] for name in ("rows", "removed", "kept", "hits", "short", "not_compared")
    ] == [1000, 250, 750, 250, 0, 0]
    assert [(item["name"], item["rows"], item["hit"]) for item in said["benchmarks"]] == [
        ("b.jsonl", 100, 100),
        ("b.csv", 150, 150),
    ]
    assert "exists: --force replaces it" in failure("decontaminate", *arguments, "-o", "o.parquet")
    assert "250  25.0%; --output writes the other rows" in fine("decontaminate", *arguments)


def test_rows_with_common_ngrams_alone_are_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(4)
    corpus = [" ".join(rng.choices("abcdefgh", k=rng.randrange(2, 9))) for _ in range(200)]
    benchmark = rng.sample(corpus, 20) + [" ".join(rng.choices("abcdefgh", k=4)) for _ in range(30)]
    for name, part in (("c.jsonl", corpus), ("b.jsonl", benchmark)):
        Path(name).write_text(json_lines({"t": text} for text in part))
    known = {ngram for text in benchmark for ngram in ngrams(text, 2)}
    rows = Counter(ngram for text in corpus for ngram in ngrams(text, 2))
    shared = [ngrams(text, 2) & known for text in corpus]
    alone = sum(bool(part) and all(rows[ngram] > 10 for ngram in part) for part in shared)
    arguments = ["decontaminate", "c.jsonl", "b.jsonl", "--text-field", "t", "--ngram", 2]
    assert 0 < alone < sum(map(bool, shared))
    assert (
        f"fpstore: {alone} rows hit only by n-grams that more than 10 rows have"
        in run(*arguments).stderr
    )
    left = run(*arguments, "--ignore-common", 10, "--json")
    assert (json.loads(left.stdout)["hits"], left.stderr) == (sum(map(bool, shared)) - alone, "")
    assert run(*arguments, "--min-ngrams", 2).stderr == run(*arguments, "--quiet").stderr == ""


def test_rows_of_several_columns_and_files_are_one_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        ("who said so", "it was the fox"),
        ("who said", "so it was the fox"),
        ("who", "said it"),
        (None, None),
    ]
    Path("c.tsv").write_text(
        "id\tq\ta\n" + "".join(f"{n + 7}\t{q or ''}\t{a or ''}\n" for n, (q, a) in enumerate(rows))
    )
    Path("b.txt").write_text("He asked who said so:\nit was the FOX.")
    Path("empty").mkdir()
    Path("notes/deep").mkdir(parents=True)
    Path("notes/a.md").write_text("Nobody knows who said so. It was the fox, they say")
    Path("notes/deep/b.txt").write_text("nothing of it")
    result = fpstore.decontaminate(
        "c.tsv", "b.txt", "o.tsv", text=["q", "a"], benchmark_text=True, id="id", ngram=7
    )
    assert Path("o.tsv").read_text() == "id\tq\ta\n9\twho\tsaid it\n10\t\t\n"
    hit = {
        "benchmark": "b.txt",
        "benchmark_row": 0,
        "benchmark_id": "b.txt",
        "shared": 1,
        "share": round(1 / 3, 6),
    }
    assert result.hits.to_arrow().to_pylist() == [
        {"row": row, "id": row + 7, **hit} for row in (0, 1)
    ]
    assert (result.kept.tolist(), result.not_compared, result.short) == ([2, 3], 1, 1)
    result = fpstore.decontaminate(["notes"], "b.txt", "clean", text=True, ngram=7)
    assert result.hits.to_arrow()["id"].to_pylist() == ["notes/a.md"]
    assert [str(path) for path in Path("clean").rglob("*.*")] == ["clean/deep/b.txt"]


def test_pages_are_compared_by_their_main_texts():
    body = "<body><nav>{}</nav><article><p>{}</p></article></body>"
    page = f"<html><head><title>T</title></head>{body}</html>"
    story = "a story of words about a fox and a dog. " * 5
    corpus = pa.table(
        {
            "t": [
                page.format("menu of a site", story),
                page.format("a story of words about a cat", "other. " * 40),
            ]
        }
    )
    queries = pa.table({"t": ["a story of words about a"]})
    assert fpstore.decontaminate(corpus, queries, text="t", ngram=6).hits.rows.tolist() == [0, 1]
    assert fpstore.decontaminate(
        corpus, queries, text="t", ngram=6, html=True
    ).hits.rows.tolist() == [0]


@pytest.mark.parametrize("bounds", [{}, {"min_ngrams": 4}, {"min_share": 0.9}])
def test_near_duplicates_are_hits_too(bounds, set_limits):
    set_limits(hits=40)
    rng, fingerprinter = random.Random(8), MinHash()
    words = [f"w{n}" for n in range(500)]
    benchmark = [" ".join(rng.choices(words, k=rng.randrange(20, 90))) for _ in range(60)]
    corpus = [" ".join(rng.choices(words, k=50)) for _ in range(100)]
    for text in benchmark:
        for _ in range(2):
            copy = text.split()
            # no n-gram of 13 is left, or some are
            for place in range(5, len(copy), rng.choice([8, 11, 40])):
                copy[place] = rng.choice(words)
            corpus.append(" ".join(copy))
    corpus += ["", benchmark[5], None]
    benchmark = [None, *benchmark, benchmark[0], "..."]
    result = fpstore.decontaminate(
        pa.table({"t": corpus}), pa.table({"t": benchmark}), text="t", threshold=0.6, **bounds
    )
    radius, wanted = fingerprinter.radius(0.6), {}
    (ours, known), (theirs, known_there) = (
        fingerprinter.fingerprints([t or "" for t in part], empty="mask")
        for part in (corpus, benchmark)
    )
    distances = np.bitwise_count(ours[:, None] ^ theirs).sum(2)
    by_ngrams = {(row, other): shared for row, other, shared, _ in expected(corpus, benchmark, 13)}
    least, share = bounds.get("min_ngrams", 1), bounds.get("min_share", 0)
    for row in np.flatnonzero(known).tolist():
        for other in np.flatnonzero(known_there).tolist():
            shared = by_ngrams.get((row, other), 0)
            enough = shared >= least and shared / len(ngrams(benchmark[other], 13)) >= share
            if enough or distances[row, other] <= radius:
                wanted[row, other] = (shared, int(distances[row, other]))
    got = {
        (hit["row"], hit["benchmark_row"]): (hit["shared"], hit["distance"])
        for hit in result.hits.to_arrow().to_pylist()
    }
    assert got == wanted
    assert any(not shared for shared, _ in wanted.values())
    assert result.hits.rows.tolist() == sorted({row for row, _ in wanted})
    assert result.benchmarks[0].hit == len({other for _, other in wanted})


def test_ids_keep_their_type_and_hits_are_held(tmp_path):
    (tmp_path / "b1.jsonl").write_text(
        '{"t": null, "k": 6}\n{"t": "one two three", "k": 7}\n{"t": null, "k": 8}\n'
    )
    (tmp_path / "b2.jsonl").write_text('{"t": "four five six", "k": "x"}\n')
    table = pa.table({"t": ["four five six", "one two three", "nothing"], "name": ["a", "b", None]})
    paths = [tmp_path / "b1.jsonl", tmp_path / "b2.jsonl"]
    rows = fpstore.decontaminate(table, paths, text="t", ngram=3).hits.to_arrow().to_pylist()
    assert [(hit["id"], hit["benchmark_id"], hit["benchmark_row"]) for hit in rows] == [
        (0, 0, 0),
        (1, 1, 1),
    ]
    (tmp_path / "b.csv").write_text("k,t\n8,three\n7,one two three\n")
    (tmp_path / "b3.jsonl").write_text('{"t": "one two three", "k": "7"}\n')
    # CSV has no types
    for benchmark, wanted in ((tmp_path / "b.csv", 7), (tmp_path / "b3.jsonl", "7")):
        result = fpstore.decontaminate(table, benchmark, text="t", benchmark_id="k", ngram=3)
        assert result.hits.to_arrow()["benchmark_id"].to_pylist() == [wanted]
    lazy = pl.LazyFrame({"t": ["one two three"]})
    assert fpstore.decontaminate(table, lazy, text="t", ngram=3).hits.rows.tolist() == [1]
    result = fpstore.decontaminate(table, paths, text="t", id="name", benchmark_id="k", ngram=3)
    assert [(hit["id"], hit["benchmark_id"]) for hit in result.hits.to_arrow().to_pylist()] == [
        ("a", "x"),
        ("b", "7"),
    ]
    assert result.not_compared == 1
    for row in (2, 0):
        none = fpstore.decontaminate(table.slice(row, 1), paths[:1], text="t", id="name", ngram=3)
        assert (none.hits.to_arrow().num_rows, len(none.kept), len(none.hits.rows)) == (0, 1, 0)
    with pytest.raises(InputError, match=r"row 3 has a null or blank text, or no id"):
        fpstore.decontaminate(table, paths, text="t", id="name", unknown="refuse")
    assert (
        fpstore.decontaminate(
            table, paths, text="t", id="name", ngram=3, unknown="drop"
        ).kept.num_rows
        == 0
    )
    (tmp_path / "b2.jsonl").write_text('{"t": "four five six", "k": null}\n')
    with pytest.raises(InputError, match=r"b2.jsonl:1: the id null is neither"):
        fpstore.decontaminate(table, paths, text="t", benchmark_id="k")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_is_killed_leaves_all_or_nothing(tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    table = pa.table({"t": [f"one two three {n % 7} of {n}" for n in range(500)]})
    pq.write_table(table, "c.parquet")
    Path("c.jsonl").write_text(json_lines(table.to_pylist()))
    Path("b.jsonl").write_text('{"t": "two three 5"}\n')

    def asked(name):
        words = ["decontaminate", f"c.{form}", "b.jsonl", "--text-field", "t", "--ngram", "3"]
        return [*words, "-o", f"{name}.{form}", "--hits", f"{name}.tsv", "--threads", "1"]

    assert in_another(asked("whole")) == 2
    listed, rows = Path("whole.tsv").read_bytes(), Path(f"whole.{form}").read_bytes()
    assert len(listed.splitlines()) == 1 + len([n for n in range(500) if n % 7 == 5])
    for call, there in ((1, (False, False)), (2, (True, False))):
        assert in_another(asked("killed"), call) is None
        assert (Path("killed.tsv").exists(), Path(f"killed.{form}").exists()) == there
        assert run(*asked("killed"), "--force", "--quiet").exit_code == 0
        assert (Path("killed.tsv").read_bytes(), Path(f"killed.{form}").read_bytes()) == (
            listed,
            rows,
        )
        assert not list(Path().glob(".killed*"))
        Path("killed.tsv").unlink()
        Path(f"killed.{form}").unlink()


def test_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text('{"t": "one two three", "id": "a"}\n')
    Path("b.jsonl").write_text('{"t": "one two three"}\n')
    Path("empty.jsonl").write_text("")
    Path("null.jsonl").write_text('{"t": null}\n{"t": " "}\n')
    Path("link.jsonl").hardlink_to("c.jsonl")
    for value, message in {
        ("c.jsonl", "c.jsonl"): "c.jsonl: is in the corpus and in the benchmark",
        ("c.jsonl", ("b.jsonl", "link.jsonl")): "link.jsonl: is in the corpus and in the benchmark",
        ("c.jsonl", "empty.jsonl"): "empty.jsonl: no rows to decontaminate against",
        (
            "c.jsonl",
            ("b.jsonl", "null.jsonl"),
        ): "null.jsonl: only blank texts to decontaminate against",
        ("empty.jsonl", "b.jsonl"): "empty.jsonl: no rows",
        ("c.jsonl", ()): "no benchmark was given",
        ("c.jsonl", 7): "a benchmark is a path, several paths, or a table",
    }.items():
        with pytest.raises(InputError) as caught:
            fpstore.decontaminate(value[0], value[1], text="t")
        assert message in str(caught.value)
    Path("link.jsonl").unlink()
    for wrong, message in [
        ({"ngram": 0}, "ngram must be a whole number from 1 to 255"),
        ({"ngram": 256}, "ngram must be"),
        ({"min_ngrams": 0}, "min_ngrams must be"),
        ({"min_share": 1.5}, "min_share must be"),
        ({"ignore_common": 0}, "ignore_common must be"),
        ({"threshold": -1}, "threshold must"),
        ({"unknown": "x"}, "unknown must be"),
        ({"text": None}, "name the column of texts"),
        ({"text": {"t": 2, "id": 1}}, "text: the columns of n-grams have no weights"),
        ({"text": 7}, "text must be the name"),
        ({"benchmark_text": "id"}, "id"),
        ({"text": "u"}, "'u'"),
        ({"id": "k"}, "'k'"),
        ({"benchmark_id": "k"}, "'k'"),
    ]:
        with pytest.raises(InputError) as caught:
            fpstore.decontaminate("c.jsonl", "b.jsonl", "o.jsonl", **{"text": "t", **wrong})
        assert message in str(caught.value)
    pq.write_table(pa.table({"t": ["a"]}), "c.parquet")
    with pytest.raises(InputError, match=r"c.parquet: no column named 'u'"):
        fpstore.decontaminate("c.parquet", "null.jsonl", text="u")
    Path("c.parquet").unlink()
    with pytest.raises(InputError, match=r"b.jsonl is an input: name another output"):
        fpstore.decontaminate("c.jsonl", "b.jsonl", "b.jsonl", text="t", overwrite=True)
    Path("asked").mkdir()
    Path("asked/b.jsonl").write_bytes(Path("b.jsonl").read_bytes())
    with pytest.raises(
        InputError, match=r"asked/o.jsonl: is in asked, and the next run would read it"
    ):
        fpstore.decontaminate("c.jsonl", "asked", "asked/o.jsonl", text="t")
    with pytest.raises(
        InputError, match=r"the output has the format of the input: name a .jsonl file"
    ):
        fpstore.decontaminate("c.jsonl", "b.jsonl", "o.csv", text="t")
    Path("o.jsonl").write_text("mine")
    with pytest.raises(StoreExistsError, match=r"o.jsonl, the output, exists"):
        fpstore.decontaminate("c.jsonl", "b.jsonl", "o.jsonl", text="t")
    assert Path("o.jsonl").read_text() == "mine"
    for arguments, message in {
        (): "name the column of texts with --text-field",
        (
            "--text-field",
            "t=4",
            "--text-field",
            "id",
        ): "--text-field: the columns of n-grams have no weights",
        ("--text-field", "t=3"): "--text-field: the columns of n-grams have no weights",
        (
            "clean.jsonl",
            "--text-field",
            "t",
        ): "clean.jsonl: no such file or folder; --output (-o) names what to write",
        ("--text-field", "t", "--ngram", "0"): "--ngram: must be a whole number from 1 to 255",
        ("--text-field", "t", "--min-share", "2"): "--min-share",
    }.items():
        assert message in failure("decontaminate", "c.jsonl", "b.jsonl", *arguments, code=2)
    same = ("--text-field", "t", "--hits", "x.jsonl", "-o", "x.jsonl")
    assert "x.jsonl: is the output, too" in failure("decontaminate", "c.jsonl", "b.jsonl", *same)
    noted = run("decontaminate", "c.jsonl", "b.jsonl", "--text-field", "t")
    assert (
        "b.jsonl: no text has 13 words, so only texts of the same words hit it: lower --ngram"
        in noted.stderr
    )
    assert "short  1  fewer than 13 words: compared as whole texts" in noted.stdout
    assert sorted(path.name for path in Path().iterdir()) == [
        "asked",
        "b.jsonl",
        "c.jsonl",
        "empty.jsonl",
        "null.jsonl",
        "o.jsonl",
    ]
