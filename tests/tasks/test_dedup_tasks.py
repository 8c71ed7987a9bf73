"""Deduplication by tasks: the files and the list of removed rows have the bytes that one process writes."""

import csv
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fpstore
from fpstore.io import open_writer
from fpstore.jobs.removed import REMOVED_COLUMNS, REMOVED_WITH_REFERENCE
from fpstore.tasks import plan_dedup

WORDS = [f"word{n}" for n in range(2000)]


def rows_of(count, seed):
    """Return rows of texts, of which some are near others, some have no words, and ids of either type."""
    rng, texts = random.Random(seed), []
    for _ in range(count):
        if texts and rng.random() < 0.4:
            words = rng.choice(texts).split()
            for _ in range(rng.choice((0, 0, 1, 2, 6))):
                words[rng.randrange(len(words))] = rng.choice(WORDS)
        else:
            words = rng.choices(WORDS, k=rng.randrange(20, 80))
        texts.append(" ".join(words))
    rows = [
        {"key": f"k{rng.randrange(count)}", "number": rng.randrange(count), "text": text, "score": rng.random()} for text in texts
    ]
    for place in rng.sample(range(count), count // 20):
        rows[place]["text"] = rng.choice((None, "", "?!"))
    return rows


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=37)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            lines = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            lines.writeheader()
            lines.writerows(rows)


def corpus_in(folder, suffix="parquet", count=240, files=3, seed=1):
    rows = rows_of(count, seed)
    for number in range(files):
        write(folder / f"part-{number}.{suffix}", rows[number::files])
    return folder


def finished(plan):
    """Run all tasks in this process."""
    assert [plan.run(index) for index in range(len(plan))] == [True] * len(plan)
    return plan.finish()


def listed(removed, path):
    columns = REMOVED_WITH_REFERENCE if removed.has_reference else REMOVED_COLUMNS
    with open_writer(path, columns=columns, width=256) as writer:
        for batch in removed.batches():
            writer.write(batch)
    return path.read_bytes()


def files_in(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name[0] != "_"
    }


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
