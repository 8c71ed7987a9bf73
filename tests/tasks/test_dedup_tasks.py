"""Deduplication by tasks: the files and the list of removed rows have the bytes that one process writes."""

import json

import pytest
from tasking import corpus_in, files_in, finished

import fpstore
from fpstore.io import open_writer
from fpstore.jobs.removed import REMOVED_COLUMNS, REMOVED_WITH_REFERENCE
from fpstore.tasks import plan_dedup


def listed(removed, path):
    columns = REMOVED_WITH_REFERENCE if removed.has_reference else REMOVED_COLUMNS
    with open_writer(path, columns=columns, width=256) as writer:
        for batch in removed.batches():
            writer.write(batch)
    return path.read_bytes()


CASES = {
    "default": {},
    "bands": {"search": "bands"},
    "bands of small slices": {"search": "bands", "slice_rows": 40, "part_bytes": 4000},
    "small slices": {"slice_rows": 20, "part_bytes": 4000},
    "verified": {"threshold": 0.4, "keep": "smallest", "id": "number", "slice_rows": 40, "part_bytes": 9000},
    "simhash": {"method": "simhash", "keep": "highest", "score": "score", "id": "key", "slice_rows": 40, "part_bytes": 9000},
    "central": {"method": "simhash", "width": 128, "radius": 12, "keep": "central", "unknown": "drop", "slice_rows": 40},
    "string ids": {"id": "key", "keep": "smallest", "radius": 40, "group": "connected"},
    "radius 0": {"method": "simhash", "radius": 0, "slice_rows": 40},
    "one table": {"method": "simhash", "width": 32, "radius": 1, "slice_rows": 40, "group": "connected"},
}
OWN = ("slice_rows", "part_bytes")


@pytest.mark.parametrize(
    ("case", "suffix"), [*((case, "parquet") for case in CASES), ("string ids", "jsonl"), ("verified", "csv")]
)
def test_equals_one_process(tmp_path, case, suffix):
    asked = CASES[case]
    source = corpus_in(tmp_path / "corpus", suffix)
    plain = {name: value for name, value in asked.items() if name not in OWN}
    found = fpstore.dedup(source, tmp_path / "one", text="text", **plain)
    wanted = listed(found.removed, tmp_path / "one.csv")
    assert len(found.removed) > 20
    plan = plan_dedup(tmp_path / "plan", source, tmp_path / "many", text="text", removed=tmp_path / "many.csv", **asked)
    summary = finished(plan)
    assert files_in(tmp_path / "many") == files_in(tmp_path / "one")
    assert (tmp_path / "many.csv").read_bytes() == wanted
    kept = len(found.kept)
    told = {"documents": 240, "not_compared": found.not_compared, "clusters": len(found.clusters)}
    assert summary == {**told, "removed": 240 - kept, "kept": kept}
    assert plan.finish() == summary
    assert json.loads((tmp_path / "many" / "_fpstore.json").read_text()) == {"plan": plan.digest, "complete": True, **summary}
