"""Other names for the columns of outputs: --rename, and names= of open_writer."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commandline import failure, fine

from fpstore.errors import InputError
from fpstore.io import open_reader, open_writer

MATCHES = ["query", "fingerprint", "distance", "id"]
PAIRS = ["a", "b", "distance", "id_a", "id_b"]
QUERIES = ("crawl.fps", "-r", 1, "--input", "crawl.tsv", "--with-queries")
# Commands, and what their tables are called by default.
OUTPUTS: list[tuple[tuple[object, ...], list[str]]] = [
    (("probe", *QUERIES), [*MATCHES, "row", "query_id"]),
    (("scan", *QUERIES), [*MATCHES, "row", "query_id"]),
    (("nearest", "crawl.fps", "0x7"), MATCHES),
    (("pairs", "crawl.fps", "-q"), PAIRS),
    (("join", "crawl.fps", "crawl.tsv", "-q"), PAIRS),
    (("cluster", "crawl.fps", "-q"), ["id", "cluster", "representative"]),
    (("export", "crawl.fps"), ["fingerprint", "id"]),
]
each_output = pytest.mark.parametrize(("command", "columns"), OUTPUTS, ids=lambda value: value[0])


@each_output
def test_columns_get_other_names(
    folder: Path, command: tuple[object, ...], columns: list[str]
) -> None:
    first, last = columns[0], columns[-1]
    new = ["neu, neu", *columns[1:-1], "letzte"]
    options = ("--rename", f"{first}=neu, neu", "--rename", f"{last}=letzte")
    if command[0] != "export":
        command = (*command, "--threads", 1)
    fine(*command, *options, "-o", "new.parquet")
    fine(*command, "-o", "old.parquet")
    table, old = pq.read_table("new.parquet"), pq.read_table("old.parquet")
    assert (table.column_names, old.column_names) == (new, columns)
    assert table.equals(old.rename_columns(new))
    fine(*command, *options, "-o", "new.csv")
    fine(*command, "-o", "old.csv")
    assert (
        Path("new.csv").read_text()
        == ",".join(['"neu, neu"', *new[1:]]) + "\n" + Path("old.csv").read_text()
    )
    assert fine(*command, *options).splitlines() == ["\t".join(new), *fine(*command).splitlines()]
    if command[0] in ("pairs", "join", "cluster", "export"):
        renamed, plain = (
            [json.loads(line) for line in fine(*command, *o, "--json").splitlines()]
            for o in (options, ())
        )
        assert [list(row) for row in renamed] == [new] * len(plain)
        assert [list(row.values()) for row in renamed] == [list(row.values()) for row in plain]


@each_output
def test_wrong_names_are_errors(
    folder: Path, command: tuple[object, ...], columns: list[str]
) -> None:
    here = f"(columns here: {', '.join(columns)})"
    for output in ("-", "m.parquet", "m.csv"):
        there = (*command, "-o", output, "--rename")
        assert f"there is no column 'nothing' to rename {here}" in failure(
            *there, "nothing=x", code=2
        )
        assert "two columns would have one name" in failure(
            *there, f"{columns[0]}={columns[1]}", code=2
        )
        assert not Path(output).exists()
    for wrong in ("id", "=x", "id=", ""):
        assert "--rename: must be OLD=NEW, got" in failure(*command, "--rename", wrong, code=2)
    assert "renamed twice" in failure(*command, "--rename", "id=x", "--rename", "id=y", code=2)


def test_names_may_be_exchanged(folder: Path) -> None:
    fine(
        "export",
        "crawl.fps",
        "--rename",
        "fingerprint=id",
        "--rename",
        "id=fingerprint",
        "-o",
        "m.parquet",
    )
    assert pq.read_table("m.parquet").column_names == ["id", "fingerprint"]
    Path("none.tsv").write_text("")  # an empty input may have ids
    fine(
        "probe",
        "crawl.fps",
        "--input",
        "none.tsv",
        "--rename",
        "query_id=url",
        "-o",
        "m.parquet",
        code=1,
    )
    assert pq.read_table("m.parquet").column_names[-1] == "url"
    wrong = failure("export", "crawl.fps", "-o", "m.npy", "--rename", "fingerprint=x", code=2)
    assert "the npy format has no names of columns" in wrong


def test_fields_of_objects_of_queries(folder: Path) -> None:
    names = {
        "row": "n",
        "query_id": "url",
        "query": "asked",
        "matches": "near",
        "fingerprint": "hash",
        "distance": "bits",
    }
    names |= {"ids": "urls"}
    command = ("probe", "crawl.fps", "--input", "crawl.tsv", "--json")
    for limit in ([], ["--limit", "50"]):
        new = {**names, "more": "cut"} if limit else names
        out = fine(
            *command, *limit, *(word for old in new for word in ("--rename", f"{old}={new[old]}"))
        ).splitlines()
        assert [list(json.loads(line)) for line in out] == [
            ["n", "url", "asked", "near", *(["cut"] if limit else [])]
        ] * 8
        back = "\n".join(out)
        for old, name in new.items():
            back = back.replace(f'"{name}": ', f'"{old}": ')
        assert back.splitlines() == fine(*command, *limit).splitlines()
    known = "row, query_id, query, matches, fingerprint, distance, ids"
    assert f"'more' to rename (columns here: {known})" in failure(*command, "--rename", "more=x")
    assert "two columns would have one name" in failure(*command, "--rename", "ids=query")
    texts = fine("probe", "notes.fps", "draft.txt", "--json", "--rename", "document=path")
    assert list(json.loads(texts)) == ["path", "query", "matches"]


def test_clusters_of_a_corpus(folder: Path) -> None:
    command = (
        "dedup",
        "corpus.parquet",
        "clean.parquet",
        "--text-field",
        "text",
        "--id-field",
        "id",
        "-q",
    )
    fine(*command, "--clusters", "c.csv", "--rename", "id=url")
    assert Path("c.csv").read_text().splitlines()[0] == "url,cluster,representative,distance"
    Path("clean.parquet").unlink()
    assert "--rename is for the columns of --clusters" in failure(
        *command, "--rename", "id=url", code=2
    )
    assert "no column 'url'" in failure(
        *command, "--clusters", "d.csv", "--rename", "url=id", code=2
    )
    assert not Path("clean.parquet").exists()


def test_a_writer_takes_the_old_names(tmp_path: Path) -> None:
    with open_writer(
        tmp_path / "a.tsv", columns=["fingerprint", "id"], names={"fingerprint": "hash"}
    ) as writer:
        writer.write({"fingerprint": [7], "id": ["x"]})
        with pytest.raises(InputError, match="columns hash, id given"):
            writer.write({"hash": [7], "id": ["x"]})
        writer.write([(8, "y")])
    (chunk,) = open_reader(tmp_path / "a.tsv", fingerprint_field="hash")
    assert (chunk.fingerprints.tolist(), chunk.ids) == ([7, 8], ["x", "y"])
    with pytest.raises(InputError, match="names must be a dict"):
        open_writer(tmp_path / "b.tsv", columns=["id"], names=["id"])  # type: ignore[arg-type]
