"""New columns of the rows: what dedup found, and how many copies each row that stays has."""

import csv
import gzip
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from small_plans import plan_dedup

import fpstore
from fpstore.errors import InputError

STORY = " ".join(f"word{number}" for number in range(60))
OTHER = " ".join(f"other{number}" for number in range(40))
ALONE = "nothing like the others but with a few words of its own"
LONGER = f"A menu. {STORY} and some more at the end"
IDS = ["a", "b", "c", "d", "e", "f"]
TEXTS = [STORY, OTHER, LONGER, None, OTHER, ALONE]
NAMES = ("cluster", "copies", "kept", "kept_id", "contained")
EXPECTED = {
    "a": (0, 2, False, "c", 1.0),
    "b": (1, 2, True, "b", None),
    "c": (0, 2, True, "c", None),
    "d": (None, 1, True, "d", None),
    "e": (1, 2, False, "b", 1.0),
    "f": (None, 1, True, "f", None),
}
KEPT = {"b": 2, "c": 2, "d": 1, "f": 1}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def rows(ids=IDS, texts=TEXTS):
    return [{"id": name, "text": text} for name, text in zip(ids, texts, strict=True)]


def write(path, rows):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)


def read(path):
    path = Path(path)
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open(newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    parsers = {"cluster": int, "copies": int, "kept": {"true": True, "false": False}.get}
    parsers |= {"contained": float}
    return [
        {name: None if not cell else parsers.get(name, str)(cell) for name, cell in row.items()}
        for row in found
    ]


def annotated(path, names=NAMES):
    return {row["id"]: tuple(row[name] for name in names) for row in read(path)}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "parquet"])
def test_all_rows_have_new_columns(suffix):
    write(f"in.{suffix}", rows())
    options = ("--text-field", "text", "--id-field", "id")
    out = fine("dedup", f"in.{suffix}", f"out.{suffix}", *options, "--annotate")
    assert f"marked in out.{suffix}" in out
    found = read(f"out.{suffix}")
    assert [list(row) for row in found] == [["id", "text", *NAMES]] * 6
    assert [row["text"] for row in found] == TEXTS
    assert annotated(f"out.{suffix}") == EXPECTED
    fine("dedup", f"in.{suffix}", f"counted.{suffix}", *options, "--count-column", "times")
    found = read(f"counted.{suffix}")
    assert {row["id"]: int(row["times"]) for row in found} == KEPT
    assert [list(row) for row in found] == [["id", "text", "times"]] * 4
    both = ("--annotate", "--count-column", "times")
    fine("dedup", f"in.{suffix}", f"both.{suffix}", *options, *both)
    assert list(read(f"both.{suffix}")[0]) == ["id", "text", "cluster", "times", *NAMES[2:]]


def test_the_rows_that_are_kept_are_those_of_dedup():
    write("in.parquet", rows())
    options = ("--text-field", "text", "--id-field", "id", "--quiet")
    fine("dedup", "in.parquet", "plain.parquet", *options)
    fine("dedup", "in.parquet", "out.parquet", *options, "--annotate", "--removed", "r.parquet")
    marked = pq.read_table("out.parquet")
    kept = marked.filter(marked["kept"])
    assert kept.select(["id", "text"]).equals(pq.read_table("plain.parquet"))
    removed = pq.read_table("r.parquet")
    gone = marked.filter(pa.compute.invert(marked["kept"]))
    assert gone["cluster"].to_pylist() == removed["cluster"].to_pylist()
    assert gone["kept_id"].to_pylist() == removed["kept"].to_pylist()
    assert gone["contained"].to_pylist() == removed["contained"].to_pylist()


def test_lines_stay_byte_for_byte():
    lines = [
        f'{{"text":"{STORY}","id":1}}',
        f'{{ "n": 1.50, "id": 2, "text": "{ALONE}" }} ',
        f'{{"text": "\\u00e9 {STORY}", "id": 3}}',
    ]
    Path("in.jsonl").write_bytes("\r\n".join(lines).encode() + b"\r\n")
    fine("dedup", "in.jsonl", "out.jsonl", "--text-field", "text", "--count-column", "n o", "-q")
    assert Path("out.jsonl").read_bytes() == (
        f'{lines[1].rstrip()[:-2]}, "n o": 1}} \r\n{lines[2][:-1]}, "n o": 2}}\r\n'.encode()
    )
    text = f'id,text\r\n1,"{STORY}, ""so\r\nto say"""\r\n2,{ALONE}\r\n'
    Path("in.csv").write_bytes(text.encode())
    fine("dedup", "in.csv", "out.csv", "--text-field", "text", "--count-column", "a,b", "-q")
    marked = text.replace("id,text", 'id,text,"a,b"').replace('say"""', 'say""",1')
    assert Path("out.csv").read_bytes() == marked.replace(ALONE, f"{ALONE},1").encode()


def test_rows_that_lack_fields():
    Path("in.jsonl").write_text('{"text": "a b c d", "id": 1}\n{"text": null}\n')
    fpstore.dedup("in.jsonl", "out.jsonl", text="text", count_column="n")
    assert read("out.jsonl") == [{"text": "a b c d", "id": 1, "n": 1}, {"text": None, "n": 1}]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("threads", [1, 2])
def test_shards(suffix, threads):
    write(f"in/a.{suffix}", rows()[:2])
    write(f"in/sub/b.{suffix}", rows()[2:])
    options = {"text": "text", "id": "id", "annotate": True, "threads": threads}
    result = fpstore.dedup("in", "out", **options)
    assert result.annotated is None
    both = annotated(f"out/a.{suffix}") | annotated(f"out/sub/b.{suffix}")
    assert both == EXPECTED
    fpstore.dedup("in", f"one.{suffix}", **options)
    assert annotated(f"one.{suffix}") == EXPECTED
    if suffix == "parquet":
        schemas = [pq.read_schema(f"out/{name}.parquet") for name in ("a", "sub/b")]
        assert schemas[0].equals(schemas[1])


def test_shards_whose_ids_have_several_types():
    large = 2**40
    columns = ({"id": pa.array([1, 2], pa.int32())}, {"id": pa.array([large], pa.int64())})
    for name, ids, texts in zip("ab", columns, ([STORY, ALONE], [LONGER]), strict=True):
        Path("in").mkdir(exist_ok=True)
        pq.write_table(pa.table({**ids, "text": texts}), f"in/{name}.parquet")
    fpstore.dedup("in", "out", text="text", id="id", annotate=True)
    marked = pq.read_table("out/a.parquet")
    assert marked["kept_id"].to_pylist() == [large, 2]
    assert [str(marked[name].type) for name in ("id", "kept_id")] == ["int32", "int64"]


def test_files_of_other_columns_and_compressed_lines():
    write("in/a.csv", [{"text": STORY, "id": "a"}])
    write("in/b.csv", [{"id": "b", "more": "x", "text": LONGER}])
    fpstore.dedup("in", "one.csv", text="text", id="id", count_column="n")
    assert read("one.csv") == [{"text": LONGER, "id": "b", "more": "x", "n": "2"}]
    with gzip.open("in.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows())
    fpstore.dedup("in.jsonl.gz", "out.jsonl.gz", text="text", id="id", annotate=True)
    Path("plain.jsonl").write_bytes(gzip.decompress(Path("out.jsonl.gz").read_bytes()))
    assert annotated("plain.jsonl") == EXPECTED


def test_rows_that_are_not_compared():
    write("in.jsonl", [*rows(), {"id": None, "text": STORY}])
    fpstore.dedup("in.jsonl", "out.jsonl", text="text", id="id", annotate=True, unknown="drop")
    found = read("out.jsonl")
    assert [row["kept"] for row in found] == [False, True, True, False, False, True, False]
    assert [row["kept_id"] for row in found] == ["c", "b", "c", None, "b", "f", None]
    fpstore.dedup("in.jsonl", "b.jsonl", text="text", id="id", annotate=True)
    found = read("b.jsonl")
    assert [row["kept_id"] for row in found] == ["c", "b", "c", "d", "b", "f", None]
    # without ids, these are row numbers, which all rows have
    fpstore.dedup("in.jsonl", "c.jsonl", text="text", annotate=True)
    assert [row["kept_id"] for row in read("c.jsonl")] == [2, 1, 2, 3, 1, 5, 2]


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        (pa.array(range(6), pa.int32()), "int32"),
        (pa.array([2**64 - 1 - n for n in range(6)], pa.uint64()), "uint64"),
        (pa.array(IDS, pa.large_string()), "large_string"),
        (pa.array(IDS).dictionary_encode(), "string"),
        (None, "int64"),
    ],
)
def test_ids_of_kept_rows_have_the_type_of_ids(ids, kind):
    columns = {"text": TEXTS} if ids is None else {"text": TEXTS, "id": ids}
    pq.write_table(pa.table(columns), "in.parquet")
    options = {"text": "text", "id": None if ids is None else "id", "annotate": True}
    fpstore.dedup("in.parquet", "out.parquet", **options)
    types = {field.name: str(field.type) for field in pq.read_schema("out.parquet")}
    assert types["kept_id"] == kind
    assert (types["cluster"], types["copies"]) == ("int64", "int64")
    assert (types["kept"], types["contained"]) == ("bool", "double")
    found = pq.read_table("out.parquet")
    names = list(range(6)) if ids is None else ids.to_pylist()
    assert found["kept_id"].to_pylist() == [names[place] for place in (2, 1, 2, 3, 1, 5)]


def test_tables_in_memory():
    table = pa.table({"id": IDS, "text": TEXTS})
    options = {"text": "text", "id": "id", "annotate": True}
    for source in (table, pl.from_arrow(table), table.to_pandas()):
        result = fpstore.dedup(source, **options)
        kind = type(source)
        assert isinstance(result.annotated, kind)
        assert isinstance(result.kept, kind)
        frame = pa.table(result.annotated)
        found = {row["id"]: tuple(row[name] for name in NAMES) for row in frame.to_pylist()}
        assert {name: clean(row) for name, row in found.items()} == EXPECTED
        kept = pa.table(result.kept).to_pylist()
        assert {row["id"]: row["copies"] for row in kept} == KEPT
        assert all(row["kept"] for row in kept)
        result = fpstore.dedup(source, text="text", id="id", count_column="times")
        assert result.annotated is None
        assert {row["id"]: row["times"] for row in pa.table(result.kept).to_pylist()} == KEPT
        result = fpstore.dedup(source, "out.parquet", overwrite=True, **options)
        assert {name: clean(row) for name, row in annotated("out.parquet").items()} == EXPECTED


def clean(row):
    return tuple(None if value != value else value for value in row)


def test_a_frame_of_pandas_keeps_its_index():
    frame = pd.DataFrame({"id": IDS, "text": TEXTS}, index=list("uvwxyz"))
    result = fpstore.dedup(frame, text="text", id="id", annotate=True)
    assert result.annotated.index.tolist() == list("uvwxyz")
    assert result.kept["copies"].to_dict() == {"v": 2, "w": 2, "x": 1, "z": 1}


def test_estimates_have_distances():
    hashes = pa.table({"hash": pa.array([0, 1, 2**63 + 0xFF00], pa.uint64())})
    result = fpstore.dedup(hashes, fingerprint="hash", annotate=True)
    assert result.annotated.drop_columns("hash").to_pylist() == [
        {"cluster": 0, "copies": 2, "kept": True, "kept_id": 0, "distance": None},
        {"cluster": 0, "copies": 2, "kept": False, "kept_id": 0, "distance": 1},
        {"cluster": None, "copies": 1, "kept": True, "kept_id": 2, "distance": None},
    ]


@pytest.mark.parametrize("of_store", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_references(of_store, suffix):
    reference = pa.table({"id": ["x"], "text": [OTHER]})
    if of_store:
        hashes = fpstore.MinHash().fingerprints([OTHER])
        description = fpstore.MinHash()
        reference = fpstore.build(
            "s.fps", hashes, ["x"], width=256, radius=24, fingerprinter=description
        )
    write(f"in.{suffix}", rows(list(range(6))))
    options = {"text": "text", "id": "id", "annotate": True, "against": reference}
    fpstore.dedup(f"in.{suffix}", f"out.{suffix}", **options)
    found = list(annotated(f"out.{suffix}").values())
    near = (None, 1, False, "x", None if of_store else 1.0)
    assert [found[1], found[4]] == [near, near]
    assert found[0] == (0, 2, False, "2", 1.0)
    assert found[5] == (None, 1, True, "5", None)


def test_ids_of_a_store_that_tsv_cannot_have():
    hashes = fpstore.MinHash().fingerprints([OTHER])
    fpstore.build(
        "s.fps", hashes, ["x\ty"], width=256, radius=24, fingerprinter=fpstore.MinHash()
    ).close()
    write("in.tsv", rows())
    options = {"text": "text", "id": "id", "against": "s.fps"}
    with pytest.raises(InputError, match=r"the id 'x\\ty' cannot be written"):
        fpstore.dedup("in.tsv", "out.tsv", annotate=True, **options)
    assert not Path("out.tsv").exists()
    fpstore.dedup("in.tsv", "out.tsv", count_column="n", **options)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_a_column_that_is_there_is_refused(suffix):
    write(f"in.{suffix}", [{**row, "kept": "x", "copies": "y"} for row in rows()])
    arguments = ("dedup", f"in.{suffix}", f"out.{suffix}", "--text-field", "text")
    text = failure(*arguments, "--annotate", "--count-column", "n")
    assert f"in.{suffix}: has a column 'kept' already: rename it, or leave --annotate out" in text
    text = failure(*arguments, "--count-column", "copies")
    assert "has a column 'copies' already: name another one with --count-column" in text
    fine(*arguments, "--count-column", "other", "--quiet")


def test_a_field_of_a_later_line_is_refused():
    for name in ("copies", "c\\u006fpies"):
        lines = [json.dumps(row) for row in rows()]
        lines[5] = f'{{"text": "{ALONE}", "{name}": 1}}'
        Path("in.jsonl").write_text("\n".join(lines))
        with pytest.raises(InputError, match=r"in.jsonl:6: has a column 'copies' already: name"):
            fpstore.dedup("in.jsonl", "out.jsonl", text="text", count_column="copies")
        assert not Path("out.jsonl").exists()
    inner = [{**row, "more": {"copies": 1, "x": "copies"}} for row in rows()]
    write("in.jsonl", inner)
    fpstore.dedup("in.jsonl", "out.jsonl", text="text", count_column="copies")
    assert read("out.jsonl")[0]["copies"] == 2


def test_wrong_arguments():
    write("in.jsonl", rows())
    write("texts/a.txt", [{"a": "b"}])
    for options, message in (
        ({"annotate": 1}, "annotate"),
        ({"count_column": ""}, "count_column must be the name of a new column"),
        ({"annotate": True, "count_column": "kept"}, "annotate=True has a column 'kept', too"),
        ({"annotate": True}, "annotate= writes new columns: name an output"),
        ({"count_column": "n"}, "count_column= writes new columns: name an output"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup("in.jsonl", text="text", **options)
    with pytest.raises(InputError, match="new columns are for rows, and these files are texts"):
        fpstore.dedup("texts", "out", text=True, annotate=True)
    arguments = ("dedup", "in.jsonl", "out", "--text-field", "text", "--plan", "plan")
    for option in (("--annotate",), ("--count-column", "n")):
        assert f"{option[0]} is not for plans" in failure(*arguments, *option, code=2)
    with pytest.raises(InputError, match="count_column= is not for plans"):
        plan_dedup("plan", "in.jsonl", "out", text="text", count_column="n")


class StopError(Exception):
    pass


def test_a_job_goes_on_with_its_columns():
    write("in/a.jsonl", rows()[:3])
    write("in/b.jsonl", rows()[3:])

    def stop(phase, done, total):
        if phase == "copying":
            raise StopError

    options = {"text": "text", "id": "id", "resume": "work", "annotate": True, "threads": 1}
    with pytest.raises(StopError):
        fpstore.dedup("in", "out", progress=stop, **options)
    with pytest.raises(InputError, match="when this job began"):
        fpstore.dedup("in", "out", **{**options, "annotate": False})
    fpstore.dedup("in", "out", **options)
    assert annotated("out/a.jsonl") | annotated("out/b.jsonl") == EXPECTED
    assert not Path("work").exists()


def test_a_folder_of_a_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"id": IDS, "text": TEXTS})
    result = fpstore.dedup(dataset, text="text", id="id", annotate=True)
    found = {row["id"]: tuple(row[name] for name in NAMES) for row in result.annotated}
    assert found == EXPECTED
    dataset.save_to_disk("set")
    fpstore.dedup("set", "out.parquet", text="text", id="id", annotate=True)
    assert annotated("out.parquet") == EXPECTED
    with pytest.raises(InputError, match=r"a folder of a dataset has no new columns: name a .parq"):
        fpstore.dedup("set", "folder", text="text", id="id", annotate=True)
