"""Plans read the columns that fpstore build and probe read, unless others are named."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpstore
from fpstore.tasks import plan_build, plan_probe


@pytest.mark.parametrize("ids", [["a", "b"], None])
def test_plans_take_the_column_of_fingerprints(tmp_path, ids):
    table = pa.table({"fingerprint": pa.array([1, 2], pa.uint64())} | ({} if ids is None else {"id": ids}))
    pq.write_table(table, tmp_path / "a.parquet")
    plan = plan_build(tmp_path / "plan", tmp_path / "a.parquet", tmp_path / "s")
    plan.run_all()
    plan.finish()
    with fpstore.open(tmp_path / "s") as store:
        assert [match.ids for match in store.probe(1, radius=0)] == [[(ids or [0])[0]]]
    plan = plan_probe(tmp_path / "probe", tmp_path / "s", tmp_path / "a.parquet", tmp_path / "found", radius=0, format="csv")
    plan.run_all()
    assert plan.finish()["matched"] == 2
    rows = [path.read_text() for path in (tmp_path / "found").glob("*.csv")]
    assert all(row.count(",") == (4 if ids is None else 5) for text in rows for row in text.splitlines())
