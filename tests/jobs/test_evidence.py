"""What lists of removed rows say about each pair: the files, and excerpts of both texts."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from small_plans import plan_dedup

import fpstore
from fpstore.base.resources import make_resources
from fpstore.errors import InputError
from fpstore.hashing.corpora import open_corpus
from fpstore.io.source import Projection
from fpstore.jobs.excerpts import TextReader, cut_pair
from fpstore.jobs.reference import NearReference
from fpstore.query.id_lookup import ids_at
from fpstore.work.checkpoint import Checkpoint

STORY = " ".join(f"word{number}" for number in range(60))
OTHER = " ".join(f"other{number}" for number in range(40))
ROWS = {
    "a.jsonl": [("a1", STORY), ("a2", OTHER)],
    "sub/b.jsonl": [("b1", f"{STORY} and some more at the end"), ("b2", f"A menu. {STORY}")],
}
CONTENT = [("r0", "nothing of that"), ("r1", OTHER)]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Files of rows in a folder, of which a1 and b2 go for b1."""
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        write(Path("pages", name), rows)
    return Path("pages")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": name, "text": text}) + "\n" for name, text in rows]
    path.write_text("".join(lines))


def listed(path, *names):
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [tuple(row[name] for name in names) for row in rows]


FILES = ("id", "shard", "kept", "kept_shard")


def test_rows_name_their_files_within_the_folder(corpus):
    fine(
        "dedup", "pages", "out", "--text-field", "text", "--id-field", "id", "--removed", "r.jsonl"
    )
    expected = [
        ("a1", "a.jsonl", "b1", "sub/b.jsonl"),
        ("b2", "sub/b.jsonl", "b1", "sub/b.jsonl"),
    ]
    assert listed("r.jsonl", *FILES) == expected
    result = fpstore.dedup(corpus, text="text", id="id")
    columns = result.removed.to_arrow().select(FILES).to_pylist()
    assert [tuple(row.values()) for row in columns] == expected


@pytest.mark.full
@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet"])
def test_a_plan_lists_the_files_with_the_same_bytes(corpus, suffix):
    arguments = ("pages", "--text-field", "text", "--id-field", "id", "--quiet")
    source, *options = arguments
    fine("dedup", source, "one", *options, "--removed", f"one.{suffix}")
    sizes = ("--part-bytes", "300", "--slice-rows", "1")
    fine(
        "dedup", source, "many", *options, "--removed", f"many.{suffix}", "--processes", "1", *sizes
    )
    assert Path(f"one.{suffix}").read_bytes() == Path(f"many.{suffix}").read_bytes()


def test_files_of_one_name_have_their_paths(corpus):
    write(Path("more", "a.jsonl"), [("c1", OTHER)])
    result = fpstore.dedup(["pages/a.jsonl", "more/a.jsonl"], text="text", id="id")
    assert list(result.removed.to_arrow()["kept_shard"].to_pylist()) == ["pages/a.jsonl"]


def test_inputs_of_several_folders_begin_with_them(corpus):
    write(Path("more", "x.jsonl"), [("c1", OTHER)])
    result = fpstore.dedup(["pages", "more"], text="text", id="id")
    files = result.removed.to_arrow().select(["shard", "kept_shard"]).to_pylist()
    assert list(files[-1].values()) == ["more/x.jsonl", "pages/a.jsonl"]


def test_a_reference_names_its_files_and_rows(corpus):
    write(Path("seen", "r.jsonl"), CONTENT)
    for options in ({}, {"estimate": True}):
        result = fpstore.dedup(corpus, text="text", id="id", against="seen", **options)
        rows = result.removed.to_arrow().to_pylist()
        row = next(row for row in rows if row["reference"])
        got = [row[name] for name in ("row", "shard", "kept_row", "kept", "kept_shard")]
        assert got == [1, "a.jsonl", 1, "r1", "r.jsonl"]


def test_a_checkpoint_keeps_the_files_and_rows_of_a_reference(corpus):
    source, places = open_corpus("pages", False), np.array([0, 3])
    list(source.batches(Projection(text="text")))
    evidence = {"distance": places.astype(np.uint16)}
    near = NearReference(places, places.astype(np.uint64), evidence)
    with Checkpoint(Path("work").absolute(), {"job": "test"}) as checkpoint:
        near.in_corpus(source, places.astype(np.uint64)).save(checkpoint, of_store=False)
        saved = NearReference.saved(checkpoint)
    assert saved.kept_rows.tolist() == [0, 3]
    assert saved.kept_shards == ["a.jsonl", "sub/b.jsonl"]


def test_rows_of_a_store_and_of_a_table_have_no_file(corpus):
    fpstore.build(
        "s.fps",
        fpstore.MinHash().fingerprints([OTHER]),
        ["x"],
        width=256,
        radius=24,
        fingerprinter=fpstore.MinHash(),
    ).close()
    rows = [row for part in ROWS.values() for row in part]
    table = pa.table({"id": [row[0] for row in rows], "text": [row[1] for row in rows]})
    result = fpstore.dedup(table, text="text", id="id", against="s.fps")
    columns = result.removed.to_arrow().select(["id", "shard", "kept_shard"]).to_pylist()
    assert [tuple(row.values()) for row in columns] == [
        ("a1", "", ""),
        ("a2", "", ""),
        ("b2", "", ""),
    ]
    pq.write_table(table, "rows.parquet")
    result = fpstore.dedup("rows.parquet", text="text", id="id", against="s.fps")
    columns = result.removed.to_arrow().select(["id", "shard", "kept_shard"]).to_pylist()
    assert columns[1] == {"id": "a2", "shard": "rows.parquet", "kept_shard": ""}


EXCERPTS = ("id", "text", "kept_text")


def test_excerpts_begin_before_the_first_difference(corpus):
    fine(
        *("dedup", "pages", "out", "--text-field", "text", "--id-field", "id"),
        *("--removed", "r.jsonl", "--excerpts-of", "60"),
    )
    (_, text, kept), (_, other, other_kept) = listed("r.jsonl", *EXCERPTS)
    # a1 is a beginning of b1, and b2 begins with other words
    assert text == "…word58 word59"
    assert kept == "…word58 word59 and some more at the end"
    assert other == f"A menu. {STORY}"[:60] + "…"
    assert other_kept == STORY[:60] + "…"
    result = fpstore.dedup(corpus, text="text", id="id", excerpts_of=60)
    columns = result.removed.to_arrow().select(EXCERPTS).to_pylist()
    assert [tuple(row.values()) for row in columns] == listed("r.jsonl", *EXCERPTS)


@pytest.mark.parametrize("suffix", ["tsv", "csv", "parquet"])
def test_excerpts_have_one_line(corpus, suffix):
    for name, rows in ROWS.items():
        write(Path("pages", name), [(key, text.replace(" ", "\t\r\n ")) for key, text in rows])
    options = ("--text-field", "text", "--removed", f"r.{suffix}", "--excerpts-of", "30")
    fine("dedup", "pages", "out", *options)
    if suffix == "parquet":
        texts = pq.read_table("r.parquet")["kept_text"].to_pylist()
    else:
        import csv

        with Path(f"r.{suffix}").open(newline="") as file:
            rows = csv.DictReader(file, delimiter="\t" if suffix == "tsv" else ",")
            texts = [row["kept_text"] for row in rows]
    assert texts == ["…word59 and some more at the en…", f"{STORY[:30]}…"]


def test_equal_texts_are_shown_from_the_start():
    assert cut_pair("a b c d", "a b c d", 3) == ("a b…", "a b…")
    assert cut_pair("a b", "a b", 3) == ("a b", "a b")


@pytest.mark.parametrize("length", [1, 2, 7, 100, 5000])
def test_the_first_difference_is_in_both_excerpts(length):
    words = " ".join(map(str, range(2000)))
    for place in (0, 1, 17, 999, len(words) - 1):
        text = f"{words[:place]}#{words[place + 1 :]}"
        cut, kept = cut_pair(text, words, length)
        assert "#" in cut
        assert len(cut.strip("…")) == len(kept.strip("…")) <= length
        assert kept.strip("…") in words


def test_excerpts_of_a_reference_of_files_and_of_a_store(corpus):
    write(Path("seen", "r.jsonl"), CONTENT)
    store = fpstore.build(
        "s.fps",
        fpstore.MinHash().fingerprints([OTHER]),
        ["x"],
        width=256,
        radius=24,
        fingerprinter=fpstore.MinHash(),
    )
    for reference, text in (("seen", OTHER[:50] + "…"), (store, "")):
        result = fpstore.dedup(corpus, text="text", id="id", against=reference, excerpts_of=50)
        shown = dict(zip(*result.removed.to_arrow().select(["id", "kept_text"]), strict=True))
        assert {str(key): str(value) for key, value in shown.items()}["a2"] == text


def test_excerpts_of_several_columns_of_pages_and_of_files_that_are_texts(corpus):
    story = STORY + ", which ends"
    table = pa.table({"title": ["One", None], "text": [STORY, story]})
    result = fpstore.dedup(table, text=["title", "text"], excerpts_of=20)
    assert result.removed.to_arrow()["text"].to_pylist() == [f"One {STORY}"[:20] + "…"]
    page = "<!doctype html><html><body><nav>Menu</nav><article><p>{}</p></article></body></html>"
    pages = pa.table({"text": [page.format(f"{text}.") for text in (STORY * 3, STORY * 3)]})
    result = fpstore.dedup(pages, text="text", html=True, excerpts_of=20)
    assert result.removed.to_arrow()["text"].to_pylist() == [STORY[:20] + "…"]
    mixed = pa.table({"text": [page.format(f"{STORY * 3}."), f"{STORY * 3} and"]})
    result = fpstore.dedup(mixed, text="text", excerpts_of=40)
    assert result.removed.to_arrow()["kept_text"].to_pylist() == [f"Menu {STORY}"[:40] + "…"]
    for name, text in (("a.txt", STORY), ("b.txt", story)):
        Path("texts").mkdir(exist_ok=True)
        Path("texts", name).write_text(text)
    result = fpstore.dedup("texts", text=True, excerpts_of=30)
    assert result.removed.to_arrow()["kept_text"].to_pylist() == ["…word59, which ends"]


def test_lone_surrogates_and_no_pairs(corpus):
    Path("odd.jsonl").write_text(
        "".join(f'{{"text": "{STORY} \\ud800{end}"}}\n' for end in (" x", " x y"))
    )
    result = fpstore.dedup("odd.jsonl", text="text", excerpts_of=20)
    assert result.removed.to_arrow()["text"].to_pylist() == ["…? x"]
    none = fpstore.dedup("odd.jsonl", text="text", threshold=1, contained=1, excerpts_of=20)
    assert none.removed.to_arrow().num_rows == 1
    write(Path("one.jsonl"), [("a", STORY)])
    options = ("--text-field", "text", "--removed", "none.parquet", "--excerpts-of", "9")
    fine("dedup", "one.jsonl", "out.jsonl", *options)
    empty = pq.read_table("none.parquet")
    assert (empty.num_rows, str(empty.schema.field("kept_text").type)) == (0, "string")


def test_excerpts_are_refused_where_there_are_none(corpus):
    arguments = ("dedup", "pages", "out", "--text-field", "text")
    for options, message in (
        (("--excerpts-of", "9"), "--excerpts-of is for the list of --removed"),
        (("--excerpts-of", "0", "--removed", "r.tsv"), "--excerpts-of"),
        (("--excerpts-of", "9", "--removed", "r.txt"), "a .txt list has no texts"),
        (
            ("--excerpts-of", "9", "--removed", "r.tsv", "--plan", "p"),
            "--excerpts-of is not for plans",
        ),
    ):
        assert message in failure(*arguments, *options, code=2)
        assert not Path("out").exists()
    with pytest.raises(InputError, match="excerpts_of= is not for plans"):
        plan_dedup("plan", "pages", "out", text="text", excerpts_of=9)
    hashes = pa.table({"hash": pa.array([1, 2], pa.uint64())})
    with pytest.raises(InputError, match="excerpts_of= shows texts"):
        fpstore.dedup(hashes, fingerprint="hash", excerpts_of=9)


def test_a_corpus_that_changed_has_no_excerpts(corpus):
    source = open_corpus("pages", False)
    reader = TextReader(Projection(text="text"), None, make_resources(None, None, None))
    rows = np.array([0, 9], np.uint64)
    with pytest.raises(InputError, match="has fewer rows than before"):
        reader.read(source, rows)
    assert ids_at(reader.read(source, rows[:1]), rows[:1]) == [STORY]
