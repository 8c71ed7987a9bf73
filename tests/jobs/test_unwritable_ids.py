"""An id that a list cannot hold is refused when ids are read, and names its row.

Nothing is written, and no join is made.
"""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import TEXT_AND_ID, run
from inputs import json_lines

TEXT = "the quick brown fox jumps over the lazy dog and runs away from here"


@pytest.fixture(params=["tab\tid", "line\nid", "return\rid"])
def corpus(request, tmp_path, monkeypatch):
    """Write rows in two formats; the third has an id that a .tsv file cannot hold."""
    rows = [
        {"id": "a", "text": TEXT},
        {"id": "b", "text": None},
        {"id": request.param, "text": TEXT},
    ]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.jsonl").write_text(json_lines(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    (tmp_path / "other.jsonl").write_text(json.dumps({"id": "x", "text": TEXT}) + "\n")
    return tmp_path


COMMANDS = {
    "clusters": "dedup {} out{} --id-field id --clusters list.tsv",
    "removed": "dedup {} out{} --id-field id --removed list.tsv",
    "removed by a plan": "dedup {} out{} --id-field id --removed list.tsv --processes 2",
    "reference": "dedup other.jsonl out.jsonl --id-field id --removed list.txt --against {}",
    "hits": "decontaminate {} other.jsonl -o out{} --id-field id --hits list.tsv",
    "hits in the benchmark": "decontaminate other.jsonl {} -o out.jsonl --benchmark-id-field id "
    "--hits list.tsv",
}


@pytest.mark.full
@pytest.mark.parametrize("command", list(COMMANDS))
@pytest.mark.parametrize(("suffix", "row"), [(".jsonl", ":3: "), (".parquet", ": row 3: ")])
def test_ids_that_cannot_be_written_are_refused_first(corpus, monkeypatch, command, suffix, row):
    def refused(*args, **kwargs):
        raise AssertionError("the work has begun")

    for place in ("fpstore.jobs.dedup.connect_rows", "fpstore.jobs.near_reference.near_candidates"):
        monkeypatch.setattr(place, refused)
    done = run(*COMMANDS[command].format(f"c{suffix}", suffix).split(), "--text-field", "text")
    assert done.exit_code == 1, done.output
    assert f"c{suffix}{row}the id " in done.stderr
    assert "name a .csv, .jsonl or .parquet file for the list" in done.stderr
    assert not list(corpus.glob("out*.jsonl")) + list(corpus.glob("list*"))


@pytest.mark.parametrize("name", ["list.csv", "list.jsonl", "list.parquet"])
def test_lists_that_hold_any_id_take_it(corpus, name):
    done = run("dedup", "c.jsonl", "out.jsonl", *TEXT_AND_ID, "--clusters", name)
    assert done.exit_code == 0, done.output
