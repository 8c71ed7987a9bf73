"""Pairs, clusters, joins and deduplications keep to their memory budget, under a limit of the system."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_python
from limited import LIMITED

import fpstore
from fpstore.io.parquet import parquet_errors

ROWS, NEAR = 6_000_000, 1000
MIB = 1 << 20
BUDGET = 64 * MIB
SPARE = 32 * MIB  # batches of pairs, what is read of a store at a time, stacks of threads

JOBS = (
    LIMITED
    + """
    import pyarrow, pyarrow.parquet
    import fpstore.design.planner, fpstore.io.parquet, fpstore.jobs.pairs, fpstore.jobs.dedup

    job, memory, room, threads, *paths = sys.argv[1:]
    options = {"memory": memory, "threads": int(threads)}
    stores = [fpstore.open(path) for path in paths if not path.endswith(".parquet")]
    limit(int(room))
    if job == "pairs":
        print(sum(len(batch) for batch in stores[0].pairs(3, **options)))
    elif job == "join":
        print(sum(len(batch) for batch in stores[0].join(stores[1], 3, **options)))
    elif job == "clusters":
        print(len(stores[0].clusters(3, **options)))
    else:
        print(len(fpstore.dedup(paths[0], fingerprint="hash", radius=3, **options).clusters))
"""
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return the paths of two stores, and of a file, each with some near-duplicates."""
    folder = tmp_path_factory.mktemp("many")
    rows, others = (np.random.default_rng(seed).integers(0, 2**64, ROWS, np.uint64) for seed in (8, 9))
    rows[-NEAR:] = rows[:NEAR] ^ np.uint64(5)
    others[:NEAR] = rows[NEAR : 2 * NEAR] ^ np.uint64(9)
    for name, fingerprints in (("a", rows), ("b", others)):
        fpstore.build(folder / name, fingerprints, design="flip-2").close()
    pq.write_table(pa.table({"hash": rows}), folder / "c.parquet", row_group_size=1 << 16)
    return {"pairs": [folder / "a"], "clusters": [folder / "a"], "join": [folder / "a", folder / "b"],
            "dedup": [folder / "c.parquet"]}  # fmt: skip


def done(job, inputs, memory, room, threads=1):
    """Return what a job prints in a process that may take so much memory, or its error."""
    code, out, err = run_python(JOBS, job, memory, room, threads, *inputs[job])
    return out.strip() if code == 0 else err


@pytest.mark.slow
@pytest.mark.parametrize("job", ["pairs", "join"])
def test_joins_take_no_more_than_their_budget(inputs, job):
    """Tables of the whole sets would take 108 MB, of both sets twice that; sets larger than half of the budget are mapped."""
    for threads in (1, 2):
        assert done(job, inputs, BUDGET, BUDGET + SPARE + 16 * MIB * (threads - 1), threads) == str(NEAR)
    assert "MemoryError" in done(job, inputs, "8GiB", BUDGET + SPARE)


@pytest.mark.slow
def test_clusters_take_their_budget_and_12_bytes_a_document(inputs):
    room = BUDGET + SPARE + 12 * ROWS
    assert done("clusters", inputs, BUDGET, room) == str(NEAR)
    assert "MemoryError" in done("clusters", inputs, "8GiB", room)


@pytest.mark.slow
def test_a_deduplication_takes_its_budget_and_100_bytes_a_row(inputs):
    assert done("dedup", inputs, BUDGET, BUDGET + SPARE + 100 * ROWS) == str(NEAR)
    assert "rror" in done("dedup", inputs, BUDGET, BUDGET + 16 * ROWS)


def test_pyarrow_without_memory_does_not_blame_the_file():
    with pytest.raises(MemoryError), parquet_errors(pa, "a.parquet"):
        raise pa.ArrowMemoryError("malloc of size 64 failed")
