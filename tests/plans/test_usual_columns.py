"""Plans read the columns that fpstore build and probe read, unless others are named."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from small_plans import plan_build, plan_probe
from text_corpora import finished

import fpstore


@pytest.mark.full
@pytest.mark.parametrize("ids", [["a", "b"], None])
def test_plans_take_the_column_of_fingerprints(tmp_path, ids):
    table = pa.table(
        {"fingerprint": pa.array([1, 2], pa.uint64())} | ({} if ids is None else {"id": ids})
    )
    pq.write_table(table, tmp_path / "a.parquet")
    plan = plan_build(tmp_path / "plan", tmp_path / "a.parquet", tmp_path / "s")
    finished(plan)
    with fpstore.open(tmp_path / "s") as store:
        assert [match.ids for match in store.probe(1, radius=0)] == [[(ids or [0])[0]]]
    plan = plan_probe(
        tmp_path / "probe",
        tmp_path / "s",
        tmp_path / "a.parquet",
        tmp_path / "found",
        radius=0,
        output_format="csv",
    )
    plan.run_all()
    assert plan.finish()["matched"] == 2
    rows = [path.read_text() for path in (tmp_path / "found").glob("*.csv")]
    assert all(
        row.count(",") == (4 if ids is None else 5) for text in rows for row in text.splitlines()
    )


@pytest.mark.parametrize("command", ["task build p s.fps k", "task probe p a.fps k out"])
def test_plans_report_what_they_leave_out_once(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    Path("k").mkdir()
    for name in ("a.csv", ".hidden.csv", "about.json"):
        Path("k", name).write_text(
            "fingerprint,id\n00ff00ff00ff00ff,a\n" if name.endswith("csv") else "{}"
        )
    fpstore.build("a.fps", [1]).close()
    done = run(*command.split())
    assert done.exit_code == 0, done.output
    assert done.stderr.count("1 left out of folders") == 1, done.stderr
    assert done.stderr.count("named .json left out") == 1, done.stderr


@pytest.mark.full
def test_the_first_file_says_if_a_plan_has_ids(tmp_path):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.csv").write_text("fingerprint,id\n00ff00ff00ff00ff,x\n")
    (tmp_path / "k" / "b.csv").write_text("fingerprint\n" + "0f" * 8 + "\n")
    plan = plan_build(tmp_path / "plan", tmp_path / "k" / "a.csv", tmp_path / "s")
    finished(plan)
    with fpstore.open(tmp_path / "s") as store:
        assert [match.ids for match in store.probe(0x00FF00FF00FF00FF, radius=0)] == [["x"]]
    plan = plan_build(tmp_path / "other", tmp_path / "k" / "b.csv", tmp_path / "t")
    finished(plan)
    with fpstore.open(tmp_path / "t") as store:
        assert [match.ids for match in store.probe(0x0F0F0F0F0F0F0F0F, radius=0)] == [[0]]


def test_a_format_makes_numbers_of_any_name_rows(tmp_path):
    """Files named .npy are raw numbers only where no format says otherwise."""
    (tmp_path / "a.npy").write_text('{"fingerprint": "00ff00ff00ff00ff", "id": "x"}\n')
    plan = plan_build(tmp_path / "plan", tmp_path / "a.npy", tmp_path / "s", format="jsonl")
    finished(plan)
    with fpstore.open(tmp_path / "s") as store:
        assert [match.ids for match in store.probe(0x00FF00FF00FF00FF, radius=0)] == [["x"]]
