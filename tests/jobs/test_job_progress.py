"""How far a job over a store or a corpus is: phases with a total that is reached, in rows."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import json_lines
from resuming import near
from speeds import full

import fpstore
from fpstore.errors import InputError


@pytest.fixture
def told():
    return []


def phases(told):
    """Return each phase with the calls of it."""
    return [
        (phase, [call[1:] for call in calls])
        for phase, calls in itertools.groupby(told, lambda call: call[0])
    ]


def check(told, wanted):
    """Check the order of phases, that none goes back, and that those with a total reach it."""
    result = phases(told)
    assert [phase for phase, _ in result] == wanted
    for phase, calls in result:
        done = [item for item, _ in calls]
        assert done == sorted(done), phase
        totals = {total for _, total in calls}
        assert len(totals) == 1, phase
        (total,) = totals
        if phase in ("clustering", "finding pairs", "copying"):
            assert done[0] == 0
            assert done[-1] == total > 0, phase
        elif phase == "reading" and total is not None:
            assert done[-1] < total


def test_jobs_over_a_store(tmp_path, small_parts, told):
    def note(*call):
        told.append(call)

    with fpstore.build(tmp_path / "s", near(1)) as store:
        for threads, radius in itertools.product((1, 2), (3, 12)):
            told.clear()
            list(store.pairs(radius, threads=threads, progress=note))
            check(told, ["reading", "finding pairs"])
            tables = told[-1][2] / len(store)
            assert tables == int(tables)  # rows of all tables
            assert len({done for _, done, _ in told}) > tables
            told.clear()
            store.clusters(radius, threads=threads, progress=note)
            check(told, ["reading", "clustering", "grouping"])
            told.clear()
            list(store.join(near(2), radius, threads=threads, progress=note))
            assert phases(told)[-1][0] == "finding pairs"
            check(told[-len(phases(told)[-1][1]) :], ["finding pairs"])
        for job in (store.pairs, store.clusters, lambda **how: store.join([1], **how)):
            with pytest.raises(InputError, match="progress must be a function"):
                job(progress=5)


BY_TEXTS = ["reading", "searching", "comparing", "deciding", "copying"]
BY_FINGERPRINTS = ["reading", "grouping", "clustering", "grouping", "copying"]


@pytest.mark.parametrize(("estimate", "wanted"), [(None, BY_TEXTS), full(True, BY_FINGERPRINTS)])
@pytest.mark.parametrize("form", ["jsonl", "tsv", "parquet", "folder", "table"])
def test_a_deduplication(tmp_path, told, form, estimate, wanted):
    texts = [f"a text of words {n % 90}" for n in range(120)]
    source = tmp_path / f"c.{form}"
    if form == "jsonl":
        source.write_text(json_lines({"text": text} for text in texts))
    elif form == "tsv":
        source.write_text("text\n" + "".join(f"{text}\n" for text in texts))
    elif form == "parquet":
        pq.write_table(pa.table({"text": texts}), source)
    elif form == "table":
        source = pa.table({"text": texts})
    else:
        source.mkdir()
        for n, text in enumerate(texts):
            (source / f"{n}.txt").write_text(text)
    output = tmp_path / f"out.{'parquet' if form == 'table' else form}"
    result = fpstore.dedup(
        source,
        output,
        text=True if form == "folder" else "text",
        estimate=estimate,
        progress=lambda *call: told.append(call),
    )
    if form == "table":
        assert result.kept.equals(pq.read_table(output))
    else:
        assert np.array_equal(result.kept, np.sort(result.kept))
    check(told, wanted)
    assert told[-1] == ("copying", 120, 120)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("output", ["clean", "clean.jsonl"])
def test_a_folder_of_files(tmp_path, told, output, threads):
    (tmp_path / "c").mkdir()
    for name in range(4):
        lines = [json.dumps({"text": f"a text of words {n % 90}"}) + "\n" for n in range(30)]
        (tmp_path / "c" / f"{name}.jsonl").write_text("".join(lines))
    fpstore.dedup(
        tmp_path / "c",
        tmp_path / output,
        text="text",
        threads=threads,
        progress=lambda *call: told.append(call),
    )
    check(told, BY_TEXTS)
    assert told[-1] == ("copying", 120, 120)
