"""The group ``fpstore lsh``.

Each verb does what the library does, and refuses what it cannot do in one line.
"""

import json
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commandline import COMMAND, TEXT, failure, fine, run

import fpstore
from fpstore import MinHash, lsh
from fpstore.lsh.manifest import put_manifest, read_index_manifest

ROWS = ("--text-field", "text", "--id-field", "id")


def rows_of(printed: str) -> list[list[str]]:
    return [line.split("\t") for line in printed.splitlines()]


def process(*arguments: object, stdin: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, "lsh", *map(str, arguments)], input=stdin, capture_output=True, check=False
    )


def test_a_life_of_an_index(folder: Path) -> None:
    """Real processes, from a build to a delete."""
    rows = [{"text": TEXT + f" and {n} more words" * 3, "id": f"d{n}"} for n in range(5)] + [
        {"text": "", "id": "nothing"}
    ]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = process(
        "build", "a.lsh", "rows.jsonl", *ROWS, "--threshold", "0.5", "--documents", "1000"
    )
    assert built.returncode == 0
    assert built.stderr == b"fpstore: 1 row left out, blank: row 5\n"
    assert built.stdout.startswith(b"a.lsh: 5 documents, 11 bands of 2, ")
    found = process("probe", "a.lsh", "-", stdin=rows[0]["text"].encode())
    assert (found.returncode, found.stderr) == (0, b"")
    with lsh.open("a.lsh") as index:
        expected = [
            ["-", str(match.id), str(match.similarity)] for match in index.probe(rows[0]["text"])
        ]
    assert rows_of(found.stdout.decode()) == expected
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
    put = process("upsert", "a.lsh", "-", "--format", "jsonl", *ROWS, "--json", stdin=more.encode())
    assert (put.stderr, json.loads(put.stdout)) == (b"", {"texts": 1, "changed": 1, "documents": 5})
    gone = process("delete", "a.lsh", "d1", "d7", "--json")
    assert json.loads(gone.stdout) == {"removed": 1, "missing": 1, "documents": 4}
    assert (gone.returncode, gone.stderr) == (0, b"fpstore: a.lsh: 1 id is not stored\n")
    assert process("merge", "a.lsh", "-q").returncode == 0
    assert process("verify", "a.lsh").stdout.startswith(b"a.lsh: sound: 4 documents, ")
    with lsh.open("a.lsh") as index:
        assert {match.id for match in index.probe(rows[1]["text"])} == {"d2", "d3", "d4"}
        assert [match.id for match in index.probe(json.loads(more)["text"])] == ["d0"]


def test_probe_writes_lines_objects_and_parquet(folder: Path) -> None:
    lines = rows_of(fine("lsh", "probe", "titled.lsh", "corpus.parquet", *ROWS))
    assert {(query, near) for query, near, _ in lines} == {
        (a, b) for a in ("a", "b", "far") for b in ("a", "b", "far")
    } | {("c", "c")}
    fine(
        "lsh",
        "probe",
        "titled.lsh",
        "corpus.parquet",
        *ROWS,
        "-o",
        "m.parquet",
    )
    table = pq.read_table("m.parquet")
    assert table.column_names == ["query", "id", "similarity"]
    assert [list(map(str, row.values())) for row in table.to_pylist()] == lines
    objects = list(
        map(
            json.loads,
            fine("lsh", "probe", "titled.lsh", "corpus.parquet", *ROWS, "--json").splitlines(),
        )
    )
    assert [
        [one["query"], match["id"], str(match["similarity"])]
        for one in objects
        for match in one["matches"]
    ] == lines
    alone = json.loads(
        fine("lsh", "probe", "titled.lsh", "-", "--json", stdin="nobody has these words", code=1)
    )
    assert alone == {"query": "-", "matches": []}
    assert rows_of(fine("lsh", "probe", "notes.lsh", "notes/one.txt"))[0][:2] == [
        "notes/one.txt",
        "notes/one.txt",
    ]


def test_pairs_clusters_stats_and_plan_are_those_of_the_library(folder: Path) -> None:
    with lsh.open("titled.lsh") as index:
        pairs = [[a, b, str(value)] for batch in index.pairs() for a, b, value in batch]
        clusters, stats = list(index.clusters()), index.stats()
    assert sorted(rows_of(run("lsh", "pairs", "titled.lsh").stdout)) == sorted(pairs)
    printed = rows_of(run("lsh", "cluster", "titled.lsh", "-q").stdout)
    assert [name for name, _, _ in printed] == [name for cluster in clusters for name in cluster]
    assert json.loads(fine("lsh", "stats", "titled.lsh", "--json")) == stats
    shown = fine("lsh", "stats", "titled.lsh")
    assert f"{stats['bands']} of {stats['rows']} values" in shown
    form = lsh.plan(10**6, MinHash(size=5), 0.8)
    how = ("--threshold", "0.8", "--shingle-size", "5")
    assert fine("lsh", "plan", "1M", *how) == f"{form}\n"
    assert json.loads(fine("lsh", "plan", "1M", *how, "--json"))["bands"] == form.bands


def test_row_numbers_go_on_and_other_ids_are_refused(folder: Path) -> None:
    fine("lsh", "insert", "pages.lsh", "pages.jsonl", "--text-field", "text", "-q")
    assert "4" in {near for _, near, _ in rows_of(fine("lsh", "probe", "pages.lsh", "draft.txt"))}
    assert "its ids are row numbers or other integers, got strings" in failure(
        "lsh", "insert", "pages.lsh", "notes"
    )
    assert "its ids are strings, got integers" in failure(
        "lsh",
        "insert",
        "titled.lsh",
        "embeddings.parquet",
        "--text-field",
        "name",
        "--id-field",
        "number",
    )
    refused = failure("lsh", "insert", "titled.lsh", "pages.jsonl", "--text-field", "text")
    assert "its ids are not row numbers: name the column of ids with --id-field" in refused
    assert "upsert needs an id for each row" in failure(
        "lsh", "upsert", "pages.lsh", "pages.jsonl", "--text-field", "text"
    )


def test_what_is_asked_of_no_index(folder: Path) -> None:
    for words, door in (
        (("probe", "notes.lsh", "draft.txt"), "probe"),
        (("stats", "notes.lsh"), "stats"),
        (("delete", "notes.lsh", "a"), "delete"),
        (("scan", "notes.lsh", "draft.txt", "-r", "3"), "--help"),
    ):
        assert failure(*words).endswith(
            f"is an LSH index, which fpstore.lsh.open opens: use fpstore lsh {door}\n"
        )
    for words, door in (
        (("probe", "notes.fps", "draft.txt"), "probe"),
        (("upsert", "notes.fps", "draft.txt"), "insert --upsert"),
    ):
        assert failure("lsh", *words).endswith(
            f"it is a store of fingerprints: use fpstore {door}\n"
        )
    assert "no such LSH index" in failure("lsh", "stats", "nowhere.lsh")
    assert "not an LSH index" in failure("lsh", "stats", "notes")
    assert "No such command 'prob'. Did you mean 'probe'?" in failure("lsh", "prob", code=2)


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
            (
                *build,
                "empty.jsonl",
                "--text-field",
                "text",
                "--threshold",
                "0.5",
                "-q",
                "--documents",
                "9",
            ),
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
        (("lsh", "delete", "notes.lsh"), "give ids, or --input FILE", 2),
        (("lsh", "probe", "notes.lsh", "-"), "standard input: blank", 2),
        (("lsh", "probe", "notes.lsh", "missing.txt"), "missing.txt", 2),
    ):
        assert message in failure(*words, code=code), words
    assert not Path("x.lsh").exists()


@pytest.mark.parametrize("verb", ["probe", "stats", "insert", "verify"])
def test_an_index_that_cannot_be_opened(folder: Path, verb: str) -> None:
    words = ("lsh", verb, "notes.lsh", *(["draft.txt"] if verb in ("probe", "insert") else []))
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
    fine("lsh", "backup", "titled.lsh", "copy.lsh", "-q")
    assert fine("lsh", "repair", "copy.lsh") == "copy.lsh: sound: nothing to repair\n"
    (table,) = Path("copy.lsh/keys").glob("gen-*/table-*")
    data = bytearray(table.read_bytes())
    data[4096 + 40] ^= 1
    table.write_bytes(data)
    result = run("lsh", "verify", "copy.lsh")
    assert result.exit_code == 1
    assert result.stderr.endswith("fault: fpstore lsh repair keeps what is intact\n")
    lost = [name for _, _, names in fpstore.open("copy.lsh/documents").items() for name in names]
    found = json.loads(run("lsh", "repair", "copy.lsh", "-o", "new.lsh", "--json").stdout)
    assert (found["sound"], found["output"]) == (False, str(Path("new.lsh").absolute()))
    with lsh.open("new.lsh") as index:
        assert len(index) == 0  # all keys were in one block
    assert sorted(Path("new.lsh.lost.tsv").read_text().split()) == sorted(["document"] * 4 + lost)
