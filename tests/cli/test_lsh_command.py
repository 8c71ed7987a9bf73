"""Verbs on an LSH index.

Each does what the library does, and refuses what it cannot do in one line.
"""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commandline import COMMAND, TEXT, TEXT_AND_ID, TEXT_FIELD, failure, fine, run
from inputs import json_lines

import fpstore
from fpstore import MinHash, lsh
from fpstore.lsh.manifest import put_manifest, read_index_manifest


def rows_of(printed: str) -> list[list[str]]:
    return [line.split("\t") for line in printed.splitlines()]


def process(*arguments: object, stdin: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], input=stdin, capture_output=True, check=False
    )


def test_a_life_of_an_index(folder: Path) -> None:
    """Real processes, from a build to a delete."""
    rows = [{"text": TEXT + f" and {n} more words" * 3, "id": f"d{n}"} for n in range(5)] + [
        {"text": "", "id": "nothing"}
    ]
    Path("rows.jsonl").write_text(json_lines(rows))
    built = process(
        "lsh",
        "build",
        "a.lsh",
        "rows.jsonl",
        *TEXT_AND_ID,
        "--threshold",
        "0.5",
        "--documents",
        "1000",
    )
    assert built.returncode == 0
    assert built.stderr == b"fpstore: 1 row left out, blank: row 5\n"
    assert built.stdout.startswith(b"a.lsh: 5 documents, 11 bands of 2, ")
    done = process("probe", "a.lsh", "-", stdin=rows[0]["text"].encode())
    assert (done.returncode, done.stderr) == (0, b"")
    with fpstore.open("a.lsh") as index:
        expected = [
            ["-", str(match.id), str(match.similarity)] for match in index.probe(rows[0]["text"])
        ]
    assert rows_of(done.stdout.decode()) == expected
    assert len(expected) == 5
    nothing = process(
        "probe",
        "a.lsh",
        "-",
        "--quiet",
        stdin=b"something else altogether, which nobody has said before",
    )
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, b"", b"")
    more = json.dumps({"text": "a new text of some words that nobody has", "id": "d0"}) + "\n"
    put = process(
        "insert",
        "a.lsh",
        "-",
        "--upsert",
        "--format",
        "jsonl",
        *TEXT_AND_ID,
        "--json",
        stdin=more.encode(),
    )
    assert (put.stderr, json.loads(put.stdout)) == (b"", {"texts": 1, "changed": 1, "documents": 5})
    gone = process("delete", "a.lsh", "d1", "d7", "--json")
    assert json.loads(gone.stdout) == {"removed": 1, "missing": 1, "documents": 4}
    assert (gone.returncode, gone.stderr) == (0, b"fpstore: a.lsh: 1 id is not stored\n")
    assert process("merge", "a.lsh", "-q").returncode == 0
    assert process("verify", "a.lsh").stdout.startswith(b"a.lsh: sound: 4 documents, ")
    with fpstore.open("a.lsh") as index:
        assert {match.id for match in index.probe(rows[1]["text"])} == {"d2", "d3", "d4"}
        assert [match.id for match in index.probe(json.loads(more)["text"])] == ["d0"]


def test_probe_writes_lines_objects_and_parquet(folder: Path) -> None:
    lines = rows_of(fine("probe", "titled.lsh", "--input", "corpus.parquet", *TEXT_AND_ID))
    assert {(query, near) for query, near, _ in lines} == {
        (a, b) for a in ("a", "b", "far") for b in ("a", "b", "far")
    } | {("c", "c")}
    fine("probe", "titled.lsh", "--input", "corpus.parquet", *TEXT_AND_ID, "-o", "m.parquet")
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "id", "similarity"]
    assert [list(map(str, row.values())) for row in table.to_pylist()] == lines
    objects = list(
        map(
            json.loads,
            fine(
                "probe", "titled.lsh", "--input", "corpus.parquet", *TEXT_AND_ID, "--json"
            ).splitlines(),
        )
    )
    assert [
        [item["query"], match["id"], str(match["similarity"])]
        for item in objects
        for match in item["matches"]
    ] == lines
    alone = json.loads(
        fine("probe", "titled.lsh", "-", "--json", stdin="nobody has these words", code=1)
    )
    assert alone == {"query": "-", "matches": []}
    assert rows_of(fine("probe", "notes.lsh", "notes/one.txt"))[0][:2] == [
        "notes/one.txt",
        "notes/one.txt",
    ]


def test_pairs_clusters_stats_and_plan_are_those_of_the_library(folder: Path) -> None:
    with fpstore.open("titled.lsh") as index:
        pairs = [[a, b, str(value)] for batch in index.pairs() for a, b, value in batch]
        clusters, stats = list(index.clusters()), index.stats()
    assert sorted(rows_of(run("pairs", "titled.lsh").stdout)) == sorted(pairs)
    printed = rows_of(run("cluster", "titled.lsh", "-q").stdout)
    assert [name for name, _, _ in printed] == [name for cluster in clusters for name in cluster]
    assert json.loads(fine("stats", "titled.lsh", "--json")) == stats
    shown = fine("stats", "titled.lsh")
    assert f"{stats['bands']} of {stats['rows']} values" in shown
    form = lsh.plan(10**6, MinHash(size=5), 0.8)
    how = ("--threshold", "0.8", "--shingle-size", "5")
    assert fine("lsh", "plan", "1M", *how) == f"{form}\n"
    assert json.loads(fine("lsh", "plan", "1M", *how, "--json"))["bands"] == form.bands


def test_row_numbers_go_on_and_other_ids_are_refused(folder: Path) -> None:
    fine("insert", "pages.lsh", "pages.jsonl", "--text-field", "text", "-q")
    assert "4" in {near for _, near, _ in rows_of(fine("probe", "pages.lsh", "draft.txt"))}
    assert "its ids are row numbers or other integers, got strings" in failure(
        "insert", "pages.lsh", "notes"
    )
    assert "its ids are strings, got integers" in failure(
        "insert", "titled.lsh", "embeddings.parquet", "--text-field", "name", "--id-field", "number"
    )
    refused = failure("insert", "titled.lsh", "pages.jsonl", "--text-field", "text")
    assert "its ids are not row numbers: name the column of ids with --id-field" in refused
    assert "upsert needs an id for each row" in failure(
        "insert", "pages.lsh", "pages.jsonl", "--upsert", "--text-field", "text"
    )


OF_STORES = (
    ("scan", "notes.lsh", "draft.txt", "-r", "3"),
    ("nearest", "notes.lsh", "draft.txt"),
    ("ids", "notes.lsh", "a"),
    ("absorb", "notes.lsh", "notes.fps"),
    ("absorb", "notes.fps", "notes.lsh"),
    ("redesign", "notes.lsh", "auto"),
    ("split", "notes.lsh", "parts", "--bits", "1"),
    ("export", "notes.lsh"),
    ("report", "notes.lsh", "-o", "page.html"),
    ("join", "notes.lsh", "notes.fps"),
    ("join", "notes.fps", "notes.lsh"),
    ("dedup", "corpus.parquet", "new.parquet", "--text-field", "text", "--against", "notes.lsh"),
)


@pytest.mark.parametrize("words", OF_STORES, ids=" ".join)
def test_verb_of_stores_names_the_kind_of_an_index(folder: Path, words: tuple[str, ...]) -> None:
    assert "notes.lsh: is an LSH index, and this is for stores of fingerprints" in failure(*words)


OPTIONS = (
    ("probe", "notes.lsh", "draft.txt", "--limit", "3"),
    ("probe", "notes.lsh", "draft.txt", "--with-queries"),
    ("probe", "notes.lsh", "draft.txt", "--fingerprints"),
    ("probe", "notes.lsh", "draft.txt", "--decimal"),
    ("insert", "notes.lsh", "draft.txt", "--unmatched"),
    ("insert", "notes.lsh", "draft.txt", "--merge-at", "0.1"),
    ("insert", "notes.lsh", "draft.txt", "--vector-field", "v"),
    ("delete", "notes.lsh", "a", "--pairs"),
    ("merge", "notes.lsh", "--at", "0.1"),
    ("pairs", "notes.lsh", "--duplicates"),
    ("pairs", "notes.lsh", "-o", "pairs.tsv", "--resume"),
    ("cluster", "notes.lsh", "-o", "clusters.tsv", "--resume"),
    ("stats", "notes.lsh", "--full"),
    ("stats", "notes.lsh", "--prometheus"),
    ("repair", "notes.lsh", "--yes"),
    ("repair", "notes.lsh", "--lost", "lost.tsv"),
    ("repair", "notes.lsh", "--radius", "3"),
)


@pytest.mark.parametrize("words", OPTIONS, ids=" ".join)
def test_option_of_stores_is_refused_by_name(folder: Path, words: tuple[str, ...]) -> None:
    name = next(word for word in reversed(words) if word.startswith("--"))
    message = f"{name} is not for an LSH index, which notes.lsh is"
    assert message in failure(*words, code=2)


def test_queries_are_files_or_rows(folder: Path) -> None:
    assert "give files of texts, or --input FILE" in failure("probe", "notes.lsh", code=2)
    both = ("probe", "notes.lsh", "draft.txt", "--input", "corpus.parquet")
    assert "give files of texts, or --input FILE" in failure(*both, code=2)
    rows = ("probe", "titled.lsh", "--input", "corpus.parquet")
    assert "--text-field names their column of texts" in failure(*rows, code=2)
    files = ("probe", "titled.lsh", "corpus.parquet", "--text-field", "text")
    assert "in files that --input names" in failure(*files, code=2)


def test_what_is_no_index(folder: Path) -> None:
    assert "no such store" in failure("stats", "nowhere.lsh")
    assert "not an fpstore store" in failure("stats", "notes")
    assert "No such command 'probe'" in failure("lsh", "probe", "notes.lsh", "draft.txt", code=2)


def test_bad_input_is_one_line(folder: Path) -> None:
    Path("empty.jsonl").write_text('{"text": ""}\n{"text": null}\n')
    build = ("lsh", "build", "x.lsh")
    for words, message, code in (
        (
            (*build, "shards", "--text-field", "text", "--threshold", "0.2", "--documents", "1e9"),
            "no number of bands up to 256",
            1,
        ),
        (("lsh", "plan", "1M", "--threshold", "0"), "no nearer than the one of unrelated items", 1),
        (
            (*build, "empty.jsonl", *TEXT_FIELD, "--threshold", "0.5", "-q", "--documents", "9"),
            "left out: 2 (blank)",
            1,
        ),
        (
            (*build, "corpus.parquet", "--text-field", "word", "--threshold", "0.5"),
            "no column named 'word'",
            1,
        ),
        (
            (*build, "corpus.parquet", "--threshold", "0.5"),
            "--text-field NAME names the column of texts",
            2,
        ),
        ((*build, "corpus.parquet", "--text-field", "text"), "Missing option '--threshold'", 2),
        (
            (*build, "corpus.parquet", "--text-field", "text", "--threshold", "2"),
            "2.0 is not in the range",
            2,
        ),
        (
            ("lsh", "build", "notes.fps", "notes", "--text", "--threshold", "0.5", "--force"),
            "is not an LSH index",
            1,
        ),
        (
            ("lsh", "build", "notes.lsh", "notes", "--text", "--threshold", "0.5"),
            "exists: choose another path",
            1,
        ),
        (("delete", "notes.lsh"), "give ids, or --input FILE", 2),
        (("probe", "notes.lsh", "-"), "standard input: blank", 2),
        (("probe", "notes.lsh", "missing.txt"), "missing.txt", 2),
    ):
        assert message in failure(*words, code=code), words
    assert not Path("x.lsh").exists()


@pytest.mark.parametrize("verb", ["probe", "stats", "insert", "verify"])
def test_an_index_that_cannot_be_opened(folder: Path, verb: str) -> None:
    words = (verb, "notes.lsh", *(["draft.txt"] if verb in ("probe", "insert") else []))
    path, manifest = Path("notes.lsh"), read_index_manifest(Path("notes.lsh"))
    put_manifest(path, manifest._replace(hasher=manifest.hasher | {"name": "elsewhere"}))
    if verb != "verify":
        assert "the hasher 'elsewhere' is not installed" in failure(*words)
    data = (path / "lsh.json").read_text()
    (path / "lsh.json").write_text(data.replace("elsewhere", "elsewhat"))
    result = run(*words)
    assert result.exit_code in (1, 2)
    assert "lsh.json: damaged (checksum differs): take it from a backup" in result.output
    assert result.stderr.count("\n") == 1


def test_repair_and_backup(folder: Path) -> None:
    fine("backup", "titled.lsh", "copy.lsh", "-q")
    assert fine("repair", "copy.lsh") == "copy.lsh: sound: nothing to repair\n"
    (table,) = Path("copy.lsh/keys").glob("gen-*/table-*")
    data = bytearray(table.read_bytes())
    data[4096 + 40] ^= 1
    table.write_bytes(data)
    result = run("verify", "copy.lsh")
    assert result.exit_code == 1
    assert result.stderr.endswith("fault: fpstore repair keeps what is intact\n")
    lost = [name for _, _, names in fpstore.open("copy.lsh/documents").items() for name in names]
    answer = json.loads(run("repair", "copy.lsh", "-o", "new.lsh", "--json").stdout)
    assert (answer["sound"], answer["output"]) == (False, str(Path("new.lsh").absolute()))
    with fpstore.open("new.lsh") as index:
        assert len(index) == 0  # all keys were in one block
    assert sorted(Path("new.lsh.lost.tsv").read_text().split()) == sorted(["document"] * 4 + lost)
