"""Rows and removed rows of each source, and the bound at which a job stops."""

import csv
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import TEXT_FIELD, failure, fine, run
from inputs import json_lines

import fpstore
from fpstore.errors import InputError, SourceLossError
from fpstore.io.labels import LabelCodes, LabelColumn, encode_labels
from fpstore.jobs.sources import Sources

WORDS = [f"w{n}" for n in range(4000)]


def rows_of(seed, count=400):
    """Return rows of a few sources; most rows of "mirror" have one text, and some have none."""
    rng, rows = np.random.default_rng(seed), []
    for n in range(count):
        source = ("news", "blog", "mirror", None, "7")[
            int(rng.choice(5, p=(0.3, 0.2, 0.3, 0.15, 0.05)))
        ]
        text = " ".join(rng.choice(WORDS, 30))
        if source == "mirror" and n > 20:
            text = "the same words in each of these pages, which a mirror has copied many times"
        elif rng.random() < 0.1 and rows:
            text = rows[int(rng.integers(len(rows)))]["text"]
        if rng.random() < 0.03:
            text = None
        rows.append({"id": f"r{n}", "source": source, "text": text})
    return rows


def counted(rows, kept):
    """Return (rows, removed) by source, counted one by one."""
    total, stays = Counter(row["source"] for row in rows), set(map(int, kept))
    kept_rows = Counter(row["source"] for n, row in enumerate(rows) if n in stays)
    return {source: (count, count - kept_rows[source]) for source, count in total.items()}


def found(sources):
    return {source: (rows, removed) for source, rows, removed, _ in sources}


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text(json_lines(rows))
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=61)
    else:
        with path.open("w", newline="") as file:
            lines = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            lines.writeheader()
            lines.writerows(rows)
    return path


@pytest.mark.parametrize("unknown", ["keep", "drop"])
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
def test_rows_of_each_source_are_counted(tmp_path, suffix, unknown):
    rows = rows_of(1)
    path = write(tmp_path / f"c{suffix}", rows)
    result = fpstore.dedup(path, text="text", id="id", source_field="source", unknown=unknown)
    assert found(result.sources) == counted(rows, result.kept)
    assert result.sources.rows.tolist() == sorted(result.sources.rows.tolist(), reverse=True)
    table = result.sources.to_arrow().to_pylist()
    assert [tuple(row.values()) for row in table] == [
        (source, rows, removed, round(share, 6)) for source, rows, removed, share in result.sources
    ]
    assert result.sources.above(0.8).names == ["mirror"]


def test_sources_of_a_dictionary_and_of_integers():
    """Integers are their digits, also beside strings of another batch."""
    values = ["b", None, "b", "a", "", "b"]
    texts = [f"{n} " * 3 + " ".join(WORDS[40 * n : 40 * n + 30]) for n in range(6)]
    plain = pa.table({"s": values, "t": texts})
    coded = plain.set_column(0, "s", plain["s"].dictionary_encode())
    for table in (plain, coded, coded.slice(0, 6)):
        sources = fpstore.dedup(table, text="t", source_field="s").sources
        assert list(sources) == [
            ("b", 3, 0, 0.0),
            (None, 1, 0, 0.0),
            ("a", 1, 0, 0.0),
            ("", 1, 0, 0.0),
        ]
    numbers = pa.table({"s": [-5, None, -5, 8, 7, 7], "t": texts})
    sources = fpstore.dedup(numbers, text="t", source_field="s").sources
    assert found(sources) == {"-5": (2, 0), "7": (2, 0), "8": (1, 0), None: (1, 0)}
    codes = LabelCodes()
    a, b = encode_labels(["7", None, "x"]), encode_labels(["x", "7", None])
    assert codes.encode(a).tolist() == [1, 0, 2]
    assert codes.encode(b).tolist() == [2, 1, 0]
    assert codes.values() == [None, "7", "x"]


def test_equal_labels_of_two_corpora_have_equal_hashes():
    codes = [LabelCodes(), LabelCodes()]
    columns = [
        LabelColumn(each.encode(encode_labels(labels)), each)
        for each, labels in zip(codes, ([None, "7", ""], ["", "x", None, "7"]), strict=True)
    ]
    hashes, others = (column.hashes(np.arange(len(column.codes))) for column in columns)
    assert hashes.tolist() == others[[2, 3, 0]].tolist()
    assert not hashes[0].any()
    assert len({*map(tuple, others.tolist())}) == 4


def test_a_label_with_half_of_a_surrogate_pair_is_refused_and_a_key_is_not(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"t": "a b", "s": "x"}\n' + '{"t": "c d", "s": "\\ud800"}\n' * 2)
    with pytest.raises(InputError, match=r"c\.jsonl:2: s: holds half of a surrogate pair"):
        fpstore.dedup(path, text="t", source_field="s")
    assert fpstore.dedup(path, text="t", key="s", keep="first").removed.rows.tolist() == [2]


def test_fingerprints_have_sources_too(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("h,s\n0000000000000001,a\n0000000000000003,a\n00000000000000ff,b\n")
    sources = fpstore.dedup(path, fingerprint="h", radius=1, source_field="s").sources
    assert found(sources) == {"a": (2, 1), "b": (1, 0)}


@pytest.mark.full
def test_a_million_sources():
    """The values of a column of hosts are all different."""
    count = 1_000_000
    table = pa.table(
        {
            "s": [f"host-{n}" for n in range(count)],
            "h": np.arange(count, dtype=np.uint64) // 2 * 999983,
        }
    )
    sources = fpstore.dedup(table, fingerprint="h", radius=0, source_field="s").sources
    assert len(sources) == count
    assert sources.removed.sum() == count // 2
    assert sources.names[:2] == ["host-0", "host-1"]
    assert sources.removed[:4].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("value", [1.5, True, ["a"], {"a": 1}])
def test_a_source_that_is_neither_string_nor_integer_is_refused_with_its_line(tmp_path, value):
    path = tmp_path / "c.jsonl"
    path.write_text(json_lines([{"t": "a b c", "s": "x"}, {"t": "a b d", "s": value}]))
    with pytest.raises(
        InputError, match=r"c\.jsonl:2: s: expected a string, an integer or null, got"
    ):
        fpstore.dedup(path, text="t", source_field="s")
    with pytest.raises(InputError, match="its values must be strings or integers"):
        fpstore.dedup(pa.table({"t": ["a"], "s": [value]}), text="t", source_field="s")


def test_a_source_field_that_is_missing_is_refused(tmp_path):
    path = write(tmp_path / "c.jsonl", [{"text": "a b c"}])
    with pytest.raises(InputError, match="no row has the field 'site'"):
        fpstore.dedup(path, text="text", source_field="site")
    with pytest.raises(InputError, match="files that are texts have no columns"):
        fpstore.dedup(tmp_path, tmp_path / "o", text=True, source_field="site")
    with pytest.raises(InputError, match="name the column of sources with source_field="):
        fpstore.dedup(path, text="text", most_removed=0.5)


def test_a_job_stops_at_the_bound_before_it_writes(tmp_path, monkeypatch):
    """The lists are there, the output is not; an output that was there before stays."""
    monkeypatch.chdir(tmp_path)
    rows = rows_of(2)
    write(tmp_path / "c.jsonl", rows)
    options = (*TEXT_FIELD, "--source-field", "source")
    lists = ("--sources", "s.csv", "--removed", "r.csv", "--clusters", "m.csv", "--force")
    (tmp_path / "o.jsonl").write_text("before\n")
    message = failure("dedup", "c.jsonl", "o.jsonl", *options, *lists, "--most-removed", 0.8)
    mirror = sum(row["source"] == "mirror" for row in rows)
    assert "1 source would lose more than 0.8 of the rows: 'mirror' " in message
    assert f"of {mirror} rows" in message
    assert (tmp_path / "o.jsonl").read_text() == "before\n"
    written = {name: (tmp_path / name).read_text() for name in ("s.csv", "r.csv", "m.csv")}
    result = run("dedup", "c.jsonl", "o.jsonl", *options, *lists, "--most-removed", 1)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) > 100
    assert written == {name: (tmp_path / name).read_text() for name in written}
    listed = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert [line["source"] for line in listed if line["source"] == "mirror"] == ["mirror"]
    assert [int(line["rows"]) for line in listed] == sorted(
        Counter(row["source"] for row in rows).values(), reverse=True
    )


def test_the_error_has_the_sources(tmp_path):
    path = write(tmp_path / "c.jsonl", rows_of(3))
    with pytest.raises(SourceLossError) as raised:
        fpstore.dedup(
            path, tmp_path / "o.jsonl", text="text", source_field="source", most_removed=0.8
        )
    sources = raised.value.sources
    assert isinstance(sources, Sources)
    assert sources.names == ["mirror"]
    assert not (tmp_path / "o.jsonl").exists()


def test_a_small_source_may_go(tmp_path):
    """99 rows are too few to judge, 100 are not."""
    for count, stops in ((99, False), (100, True)):
        rows = [{"s": "x", "text": "one text that all of the rows of a source have"}] * count
        path = write(tmp_path / f"{count}.jsonl", rows)
        arguments = {"text": "text", "source_field": "s", "most_removed": 0.5}
        if stops:
            with pytest.raises(SourceLossError):
                fpstore.dedup(path, **arguments)
        else:
            assert fpstore.dedup(path, **arguments).sources.removed.tolist() == [98]


def test_a_job_that_stopped_goes_on_with_a_higher_bound(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.jsonl", rows_of(4))
    arguments = (
        *("dedup", "c.jsonl", "o.jsonl", *TEXT_FIELD, "--source-field", "source"),
        *("--sources", "s.csv", "--resume", "--most-removed"),
    )
    failure(*arguments, 0.5)
    assert (tmp_path / "o.jsonl.resume").is_dir()
    result = run(*arguments, 1)
    assert result.exit_code == 0
    assert "400 of 400 rows were read before" in result.stderr
    assert not (tmp_path / "o.jsonl.resume").exists()
    direct = ("dedup", "c.jsonl", "p.jsonl", *TEXT_FIELD, "--source-field", "source")
    run(*direct, "--sources", "p.csv")
    for name in ("o.jsonl", "s.csv"):
        other = name.replace("o", "p", 1) if name[0] == "o" else "p.csv"
        assert (tmp_path / name).read_bytes() == (tmp_path / other).read_bytes()


def test_the_command_line_prints_sources_and_notes_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.jsonl", rows_of(5))
    options = ("dedup", "c.jsonl", "o.jsonl", *TEXT_FIELD, "--force", "--source-field", "source")
    result = run(*options)
    assert result.exit_code == 0
    assert "fpstore: 1 source lost more than 0.9 of the rows: 'mirror' " in result.stderr
    assert "Sources by rows, of 5\n" in result.stdout
    assert "Sources by the share removed, of 100 rows or more\nsource" in result.stdout
    sources = json.loads(run(*options, "--json").stdout)["sources"]
    assert sources["count"] == 5
    assert sources["most_removed"][0]["source"] == "mirror"
    assert {record["source"] for record in sources["largest"]} == {
        "news",
        "blog",
        "mirror",
        None,
        "7",
    }
    assert "--source-field names" in failure(
        "dedup", "c.jsonl", "p.jsonl", *TEXT_FIELD, "--sources", "s.tsv", code=2
    )


def test_a_source_that_a_list_cannot_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "c.jsonl", [{"text": "a b c d", "s": "x"}, {"text": "a b c e", "s": "x\ty"}])
    arguments = ("dedup", "c.jsonl", "o.jsonl", *TEXT_FIELD, "--source-field", "s", "--sources")
    assert "cannot be written" in failure(*arguments, "s.tsv")
    fine(*arguments, "s.jsonl")
    lines = (tmp_path / "s.jsonl").read_text().splitlines()
    assert [json.loads(line)["source"] for line in lines] == ["x", "x\ty"]


@pytest.mark.parametrize("name", ["s.jsonl", "s.parquet", "s.csv", "s.tsv"])
def test_null_and_empty_sources_are_listed(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "c.jsonl",
        [{"text": f"{n} b c d", "s": s} for n, s in enumerate([None, "", None])],
    )
    fine("dedup", "c.jsonl", "o.jsonl", *TEXT_FIELD, "--source-field", "s", "--sources", name)
    if name == "s.jsonl":
        values = [json.loads(line)["source"] for line in (tmp_path / name).read_text().splitlines()]
        assert values == [None, ""]
    elif name == "s.parquet":
        assert pq.read_table(tmp_path / name)["source"].to_pylist() == [None, ""]
    else:
        lines = (tmp_path / name).read_text().splitlines()
        assert lines[0].replace("\t", ",") == "source,rows,removed,share"
        assert [line.replace("\t", ",") for line in lines[1:]] == [",2,0,0.0", ",1,0,0.0"]


def test_all_sources_may_be_null(tmp_path):
    table = pa.table({"t": ["a b c", "d e f"], "s": [None, None]})
    assert list(fpstore.dedup(table, text="t", source_field="s").sources) == [(None, 2, 0, 0.0)]
