"""Corpora of texts in files, and the outputs of plans over them."""

import csv
import hashlib
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import json_lines
from small_plans import plan_dedup

from fpstore.errors import InputError
from fpstore.io import open_writer
from fpstore.jobs.removed import removed_columns

WORDS = [f"word{n}" for n in range(2000)]


def rows_of(count, seed):
    """Return rows with ids of either type: some texts are near others, some have no words."""
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
        {
            "key": f"k{rng.randrange(count)}",
            "number": rng.randrange(count),
            "text": text,
            "score": rng.random(),
        }
        for text in texts
    ]
    for place in rng.sample(range(count), count // 20):
        rows[place]["text"] = rng.choice((None, "", " \u200b"))
    return rows


def write(path, rows):
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=37)
    elif path.suffix == ".jsonl":
        path.write_text(json_lines(rows))
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
    """Run all tasks in this process, and return the summary of the plan."""
    assert [plan.run(index) for index in range(len(plan))] == [True] * len(plan)
    return plan.finish()


def files_in(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name[0] != "_"
    }


def digests_in(folder):
    """Return the SHA-256 of each file of a store by its name, without locks."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def listed(removed, path):
    """Write the removed rows to a file, and return its bytes."""
    columns = removed_columns("rule" in removed.evidence, removed.has_reference)
    with open_writer(path, columns=columns, width=256, header=True) as writer:
        for batch in removed.batches():
            writer.write(batch)
    return path.read_bytes()


def with_a_changed_input(folder):
    """Return a plan of a corpus in which one file has changed since it was planned.

    Also return the message of the task that reads the file.
    """
    source = corpus_in(folder / "corpus", count=60)
    plan = plan_dedup(folder / "plan", source, folder / "many", text="text", part_bytes=4000)
    (source / "part-1.parquet").write_bytes((source / "part-0.parquet").read_bytes())
    with pytest.raises(InputError) as raised:
        plan.run(1)
    return plan, str(raised.value)
