"""An index that is built of a reader is the one of the same texts and ids."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import json_lines
from letters import Letters, some_words
from speeds import crossed

import fpstore
from fpstore import InputError, MinHash, lsh
from fpstore.hashing import (
    DocumentReader,
    Fields,
    HyperplaneHash,
    SimHash,
    TextReader,
    VectorReader,
)

TEXTS = [" ".join(f"word{n * k % 97}" for k in range(40)) for n in range(1, 90)]
LACKING = [*TEXTS[:5], "", *TEXTS[5:], None, TEXTS[3]]
KNOWN = [place for place, text in enumerate(LACKING) if text]


def content(index, asked=TEXTS):
    """Return the documents, the keys, and what a few texts find."""
    matches = index.probe_many(asked[:10], radius=40)
    snapshot = index.snapshot()
    stores = snapshot.documents, snapshot.keys
    rows = [
        np.concatenate([np.asarray(piece[0]) for piece in store.items()]).tolist()
        for store in stores
    ]
    return (
        rows,
        [[tuple(match) for match in item] for item in matches],
        index.stats()["id_kind"],
    )


@pytest.fixture
def paths(tmp_path):
    ids = [f"d{n}" for n in range(len(LACKING))]
    pq.write_table(
        pa.table({"text": LACKING, "url": ids, "number": range(len(ids))}),
        tmp_path / "rows.parquet",
        row_group_size=7,
    )
    rows = [
        {"text": text, "url": name, "number": n}
        for n, (text, name) in enumerate(zip(LACKING, ids, strict=True))
    ]
    (tmp_path / "rows.jsonl").write_text(json_lines(rows))
    lines = [
        f"{text or ''},{name},{n}\n"
        for n, (text, name) in enumerate(zip(LACKING, ids, strict=True))
    ]
    (tmp_path / "rows.csv").write_text("text,url,number\n" + "".join(lines))
    (tmp_path / "texts").mkdir()
    for name, text in zip(ids, LACKING, strict=True):
        (tmp_path / "texts" / f"{name}.txt").write_text(text or "")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "column"),
    crossed(["rows.parquet", "rows.jsonl", "rows.csv", "table"], ["url", "number", None], share=2),
)
def test_rows_with_ids(paths: Path, name: str, column: str | None) -> None:
    source = pq.read_table(paths / "rows.parquet") if name == "table" else paths / name
    made = MinHash(size=2)
    seen = []
    reader = TextReader(
        source,
        made,
        text="text",
        id=column,
        on_notice=lambda row, why: seen.append((row, why)),
        threads=2,
    )
    index = lsh.build(paths / "a.lsh", reader, threshold=0.6)
    ids = [f"d{n}" for n in KNOWN] if column == "url" else KNOWN
    same = lsh.build(
        paths / "b.lsh", [LACKING[place] for place in KNOWN], ids, hasher=made, plan=form_of(index)
    )
    if column is not None:
        assert content(index) == content(same)
    else:
        assert content(index)[:2] == content(same)[:2]
        with fpstore.open(index.path, "r+") as writer:
            assert writer.insert([TEXTS[0]]) == 1
        assert index.probe(TEXTS[0])[-1].id == len(LACKING)
    assert sorted(row for row, _ in seen) == [5, len(LACKING) - 2]
    assert (reader.empty, reader.left_out.total()) == (2, 2)
    assert index.verify().ok
    # The reader itself still makes fingerprints.
    assert len(fpstore.build(paths / "f.fps", reader, width=256, radius=0)) <= len(KNOWN)


def form_of(index: lsh.LshStore) -> lsh.LshPlan:
    return lsh.plan(100, index.hasher, index.threshold, bands=index.bands, radius=index.radius)


def test_files_and_several_columns(paths: Path) -> None:
    index = lsh.build(
        paths / "a.lsh", DocumentReader(paths / "texts", MinHash(size=2)), threshold=0.6
    )
    assert len(index) == len(KNOWN)
    assert {match.id for match in index.probe(TEXTS[3])} == {
        f"{paths}/texts/d3.txt",
        f"{paths}/texts/d{len(LACKING) - 1}.txt",
    }
    fields = TextReader(paths / "rows.parquet", MinHash(size=2), text=("text", "url"), id="url")
    index = lsh.build(paths / "b.lsh", fields, threshold=0.6)
    assert isinstance(index.hasher.parameters["fingerprinter"], dict)
    assert index.probe({"text": TEXTS[0], "url": "d0"})[0].id == "d0"
    index.close()
    assert isinstance(fpstore.open(paths / "b.lsh").hasher, Fields)


def test_bands_are_planned_for_the_rows_of_the_input(paths: Path) -> None:
    few = lsh.build(
        paths / "a.lsh", TextReader(paths / "rows.parquet", MinHash(), text="text"), threshold=0.6
    )
    many = lsh.build(
        paths / "b.lsh", TextReader(paths / "rows.jsonl", MinHash(), text="text"), threshold=0.6
    )
    assert few.bands == lsh.build(paths / "c.lsh", TEXTS, hasher=MinHash(), threshold=0.6).bands
    assert few.bands[1] < many.bands[1]


def test_another_hasher_of_texts(paths: Path) -> None:
    words = some_words(random.Random(1), 100)
    reader = TextReader(
        pa.table({"word": [*words, "", None], "place": range(102)}),
        MinHash(),
        text="word",
        id="place",
    )
    index = lsh.build(paths / "a.lsh", reader, hasher=Letters(), threshold=0.6)
    same = lsh.build(paths / "b.lsh", words, range(100), hasher=Letters(), plan=form_of(index))
    assert content(index, words) == content(same, words)


def test_what_no_reader_is(paths: Path) -> None:
    np.save(paths / "v.npy", np.ones((3, 8), np.float32))
    vectors = VectorReader(paths / "v.npy", HyperplaneHash(dimension=8))
    rows = TextReader(paths / "rows.parquet", MinHash(), text="text", id="url")
    both = TextReader(paths / "rows.parquet", MinHash(), text=["text", "url"])
    for reader, more, message in (
        (vectors, {}, "a reader of texts, TextReader or DocumentReader, got VectorReader"),
        (rows, {"ids": [1]}, "ids come with the reader"),
        (both, {"hasher": MinHash()}, "leave hasher out"),
        (
            TextReader(paths / "rows.parquet", SimHash(), text="text"),
            {},
            "the hasher simhash has no law",
        ),
    ):
        with pytest.raises(InputError, match=message):
            lsh.build(paths / "a.lsh", reader, threshold=0.7, **more)
    assert not (paths / "a.lsh").exists()
    (paths / "empty.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(InputError, match="no text to make a fingerprint of; left out: 1"):
        lsh.build(
            paths / "a.lsh",
            TextReader(paths / "empty.jsonl", MinHash(), text="text"),
            threshold=0.7,
        )
