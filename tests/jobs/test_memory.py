"""No verb takes memory that grows with the store, the texts or the ids, under a hard limit."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_python
from limited import LIMITED
from speeds import crossed, slow

import fpstore
from fpstore.io import open_reader
from fpstore.io.parquet import translate_parquet_errors

MIB = 1 << 20
# A verb of the command line, in a process that may take some memory more than it has.
VERB = (
    LIMITED
    + """
    import os
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others take address space in advance
    import pyarrow, pyarrow.parquet
    import fpstore.calibration.calibration, fpstore.care.repair, fpstore.change.absorb
    import fpstore.design.planner, fpstore.io.delimited, fpstore.io.lines, fpstore.io.parquet
    import fpstore.jobs.dedup, fpstore.jobs.joining, fpstore.jobs.pairs
    from fpstore.cli import main

    main.verbs()  # imports their modules
    limit(int(sys.argv[1]))
    main(sys.argv[2:], standalone_mode=False)
"""
)


def run_in(room, words, *options):
    code, _, err = run_python(VERB, room, *words.split(), *options)
    assert code == 0, err


# --- Long string ids ------------------------------------------------------------------------------

STRINGS, STRING_BYTES = 4_000, 20_000
STRING_ROOM = 56 * MIB  # the ids have 76
PYARROW = {
    "build parquet": 184,
    "build plain parquet": 184,
    "export parquet": 112,
    "pairs": 112,
    "probe json": 184,
    "dedup": 256,
}


@pytest.fixture(scope="module")
def long_ids(tmp_path_factory):
    """Return a folder with the same rows in files and in a store.

    2,000 pairs that differ in a bit, with ids of 20 KB.
    """
    folder = tmp_path_factory.mktemp("long")
    fingerprints = np.repeat(
        np.random.default_rng(1).integers(0, 2**64, STRINGS // 2, np.uint64), 2
    )
    fingerprints[1::2] ^= np.uint64(1)
    ids = [f"{n:0{STRING_BYTES}}!" for n in range(STRINGS)]
    with (folder / "a.tsv").open("w") as tsv, (folder / "a.jsonl").open("w") as lines:
        for fingerprint, name in zip(fingerprints.tolist(), ids, strict=True):
            tsv.write(f"{fingerprint:016x}\t{name}\n")
            lines.write(f'{{"fingerprint": "{fingerprint:016x}", "id": "{name}"}}\n')
    table = pa.table({"fingerprint": fingerprints, "id": ids})
    pages = {"write_batch_size": 16}  # a page, which is decoded as a whole, has about a megabyte
    pq.write_table(table, folder / "a.parquet", **pages)
    pq.write_table(
        table, folder / "plain.parquet", use_dictionary=False, compression="zstd", **pages
    )
    fpstore.build(folder / "s.fps", open_reader(folder / "a.parquet")).close()
    return folder


VERBS = {
    "build tsv": "build {out}.fps {a}.tsv",
    "build jsonl": "build {out}.fps {a}.jsonl",
    "build parquet": "build {out}.fps {a}.parquet",
    "build plain parquet": "build {out}.fps {plain}.parquet",
    "export tsv": "export {s}.fps -o {out}.tsv",
    "export jsonl": "export {s}.fps -o {out}.jsonl",
    "export parquet": "export {s}.fps -o {out}.parquet",
    "export npy": "export {s}.fps -o {out}.npy",
    "cluster": "cluster {s}.fps -o {out}.tsv",
    "pairs": "pairs {s}.fps -o {out}.parquet",
    "join": "join {s}.fps {s}.fps -o {out}.tsv",
    "join file": "join {s}.fps {a}.tsv -o {out}.jsonl",
    "probe": "probe {s}.fps --input {a}.tsv -o {out}.tsv",
    "probe json": "probe {s}.fps --input {a}.parquet -o {out}.jsonl",
    "dedup": "dedup {a}.parquet {out}.parquet --fingerprint-field fingerprint --id-field id "
    "--clusters {out}.tsv",
    "dedup jsonl": "dedup {a}.jsonl {out}.jsonl --fingerprint-field fingerprint --id-field id "
    "--clusters {out}.tsv",
    "split": "split {s}.fps {out} --bits 1",
    "backup": "backup {s}.fps {out}.fps",
}
BUDGETED = {"build", "cluster", "pairs", "join", "dedup", "split"}
THIN = ("build jsonl", "build plain parquet", "export tsv", "pairs", "dedup jsonl", "split")


@pytest.mark.full
@pytest.mark.parametrize("verb", [verb if verb in THIN else slow(verb) for verb in VERBS])
def test_long_ids_in_small_memory(long_ids, tmp_path, verb):
    words = VERBS[verb].format(
        out=tmp_path / "out", **{name: long_ids / name for name in ("a", "plain", "s")}
    )
    options = ["--memory", "64MiB", "--threads", "1"] if words.split()[0] in BUDGETED else []
    run_in(PYARROW[verb] * MIB if verb in PYARROW else STRING_ROOM, words, *options)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) > 1 << 14


# --- Texts ----------------------------------------------------------------------------------------

BUILD_TEXTS = """
    import json, resource, sys
    from fpstore.cli import main

    options = ["--text-field", "text", "--id-field", "n", "--memory", "64MiB", "--threads", "2"]
    main(["build", sys.argv[2], sys.argv[1], *options, "-q"], standalone_mode=False)
    import fpstore
    with fpstore.open(sys.argv[2]) as store:
        print(json.dumps([len(store.ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
FEW, MANY = 50_000, 1_000_000
MAX_GROWTH_KIB = (
    160 << 10
)  # KiB: the budget of 64 MiB, and pages of the finished store that are mapped


@pytest.mark.slow
def test_a_million_texts_in_flat_memory(tmp_path):
    peaks = []
    for count in (FEW, MANY):
        rows = ((row, row * 7919 % 100_003, row * 104_729 % 1_000_003) for row in range(count))
        with (tmp_path / "texts.jsonl").open("w") as file:
            file.writelines(
                json.dumps({"n": row, "text": f"page {row} of {a} tells of {b}"}) + "\n"
                for row, a, b in rows
            )
        code, out, err = run_python(
            BUILD_TEXTS, tmp_path / "texts.jsonl", tmp_path / f"{count}.fps"
        )
        assert (code, err) == (0, ""), err
        ids, peak = json.loads(out)
        assert ids == count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < MAX_GROWTH_KIB, peaks


LONG = f"{'word' * 250} " * 1000  # a megabyte, with few words to hash
WAYS = {
    "hash": "hash {path} --text-field text -o {out}.tsv",
    "build": "build {out}.fps {path} --text-field text --threads 2",
    "dedup": "dedup {path} {out}.parquet --text-field text --threads 2",
}


@pytest.mark.full
@pytest.mark.parametrize(("name", "way"), crossed(["dictionary", "plain", "large"], list(WAYS)))
def test_texts_that_are_small_in_the_file(tmp_path, name, way):
    """They decode to 230 megabytes.

    In a dictionary, in plain pages, and in a dictionary beside others.
    """
    texts, path = (
        pa.array([LONG, "another text"]).take(pa.array([0] * 230 + [1])),
        tmp_path / "texts.parquet",
    )
    if name == "dictionary":
        pq.write_table(pa.table({"text": texts}), path, compression="zstd")
    elif name == "plain":  # pyarrow decodes a page as a whole
        pq.write_table(
            pa.table({"text": texts}),
            path,
            compression="zstd",
            use_dictionary=False,
            write_batch_size=1,
        )
    else:
        noise = pa.array([f"{n} {'x' * 4000}" for n in range(3000)])
        with pq.ParquetWriter(
            path, pa.schema([("text", pa.string())]), dictionary_pagesize_limit=1 << 22
        ) as writer:
            writer.write_table(pa.table({"text": pa.concat_arrays([texts, noise])}))
    run_in(192 * MIB, WAYS[way].format(path=path, out=tmp_path / "out"))
    if way == "dedup":
        result = pq.read_table(tmp_path / "out.parquet")["text"].to_pylist()
        assert result[:2] == [LONG, "another text"]


ARROW_PEAK = """
    import sys, numpy, pyarrow
    from fpstore.io.parquet import ParquetRows
    from fpstore.io.row_copy import KeptRows
    from fpstore.io.source import Projection

    corpus, count = ParquetRows([sys.argv[1]]), 0
    for batch in corpus.batches(Projection(text="text")):
        count += len(batch.texts)
    read = pyarrow.default_memory_pool().max_memory()
    corpus = ParquetRows([sys.argv[1]], again=True)
    KeptRows(numpy.ones(count, bool)).write(corpus, slice(0, count), sys.argv[2])
    print(count, read, pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.full
@pytest.mark.parametrize("group", [1 << 20, 400])
def test_row_groups_are_not_held(tmp_path, group):
    """A row group of 64 MB, which does not compress, is read in pieces.

    Many row groups are not held until the last.
    """
    texts = [
        bytes(row).hex()
        for row in np.random.default_rng(1).integers(0, 256, (8000, 4000), np.uint8)
    ]
    path = tmp_path / "a.parquet"
    options = {"compression": "none", "use_dictionary": False, "write_batch_size": 64}
    pq.write_table(pa.table({"text": texts}), path, row_group_size=group, **options)
    code, out, err = run_python(ARROW_PEAK, path, tmp_path / "b.parquet")
    assert code == 0, err
    count, read, copied = map(int, out.split())
    assert count == 8000
    assert read < 32 * MIB  # a batch of 8 MB, and what it grows in
    assert copied < 64 * MIB  # a row group of 16 MB, and its pages
    assert pq.read_table(tmp_path / "b.parquet")["text"].to_pylist() == texts


def test_ids_that_are_small_in_the_file(tmp_path):
    """All of them would take 2.4 GB, and more than 2 GiB do not fit an array of strings."""
    count, name = 40_000, "a" * 60_000
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([name]))
    pq.write_table(
        pa.table({"fingerprint": np.arange(count, dtype=np.uint64), "id": ids}),
        tmp_path / "a.parquet",
    )
    chunks = iter(open_reader(tmp_path / "a.parquet"))
    for chunk in (next(chunks), next(chunks)):
        assert 1 < len(chunk.ids) < 200
        assert set(chunk.ids) == {name}


def test_pyarrow_without_memory_does_not_blame_the_file():
    with pytest.raises(MemoryError), translate_parquet_errors(pa, "a.parquet"):
        raise pa.ArrowMemoryError("malloc of size 64 failed")


# --- Stores: joined, repaired, compared -----------------------------------------------------------

BUILD = """
    import sys
    import numpy as np
    import fpstore

    path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    fingerprints = np.random.default_rng([*name.encode()]).integers(0, 2**64, count, np.uint64)
    names = [f"{name}{i:0{size}}" for i in range(count)]
    fpstore.build(path, fingerprints, names, design="flip-2", memory="64MiB").close()
"""
JOIN = (
    LIMITED
    + """
    import fpstore.change.absorb, fpstore.design.planner
    with fpstore.open(sys.argv[1], "r+") as store:
        limit(int(sys.argv[3]))
        store.absorb(sys.argv[2], memory="64MiB", threads=1)
        print(json.dumps([len(store), store.verify().ok, "b" + "0" * 2000 in store.ids]))
"""
)


@pytest.mark.full
def test_joining_many_strings_in_small_memory(tmp_path):
    """The strings of the other store, 60 MB, do not fit into what the process may have."""
    for name, count in (("a", 500), ("b", 30_000)):
        assert run_python(BUILD, tmp_path / name, name, count, 2_000) == (0, "", "")
    code, out, err = run_python(JOIN, tmp_path / "a", tmp_path / "b", 56 << 20)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == [30_500, True, True]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "gen-00000002",
        "manifest.json",
        "writer.lock",
    ]


REPAIR = (
    LIMITED
    + """
    import fpstore.care.repair, fpstore.building.builder, fpstore.design.planner
    limit(int(sys.argv[2]))
    report = fpstore.repair(sys.argv[1], memory="64MiB", threads=1)
    print(json.dumps([report.fingerprints, report.ids, report.losses, report.lost_file]))
"""
)
ROWS, NEAR = 6_000_000, 1000


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Return a folder with two stores, and a file, each with some near-duplicates."""
    folder = tmp_path_factory.mktemp("many")
    rows, others = (
        np.random.default_rng(seed).integers(0, 2**64, ROWS, np.uint64) for seed in (8, 9)
    )
    rows[-NEAR:] = rows[:NEAR] ^ np.uint64(5)
    others[:NEAR] = rows[NEAR : 2 * NEAR] ^ np.uint64(9)
    for name, fingerprints in (("a", rows), ("b", others)):
        fpstore.build(folder / name, fingerprints, design="flip-2").close()
    pq.write_table(pa.table({"hash": rows}), folder / "c.parquet", row_group_size=1 << 16)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["table-000.fpt", "ids.mdb"])
def test_repair_in_small_memory(inputs, tmp_path, lost):
    """All fingerprints come from another table, in its order, and are sorted.

    Without its ids every one is lost and listed.
    """
    path = shutil.copytree(inputs / "a", tmp_path / "s")
    (path / "gen-00000001" / lost).unlink()
    code, out, err = run_python(REPAIR, path, 150 * MIB)
    assert (code, err) == (0, ""), err
    fingerprints, ids, losses, listed = json.loads(out)
    if lost == "ids.mdb":
        assert (fingerprints, ids) == (0, 0)
        assert f"{ROWS:,} fingerprints with no id left, and so not in the new store" in losses
        with Path(listed).open() as file:
            assert sum(1 for _ in file) == 2 * ROWS
    else:
        assert (fingerprints, ids, losses, listed) == (ROWS, ROWS, [], None)


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


def done(job, inputs, memory, room, threads=1):
    """Return what a job prints in a process that may take so much memory, or its error."""
    names = {"join": "ab", "dedup": ["c.parquet"]}.get(job, "a")
    code, out, err = run_python(
        JOBS, job, memory, room, threads, *(inputs / name for name in names)
    )
    return out.strip() if code == 0 else err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "extra"), [("pairs", 0), ("join", 0), ("clusters", 12), ("dedup", 100)]
)
def test_jobs_take_their_budget_and_some_bytes_a_row(inputs, job, extra):
    """Tables of the whole sets would take 108 MB, of both sets twice that.

    Sets larger than half of the budget are mapped.
    """
    room = BUDGET + SPARE + extra * ROWS
    assert done(job, inputs, BUDGET, room) == str(NEAR)
    if extra == 0:
        assert done(job, inputs, BUDGET, room + 16 * MIB, 2) == str(NEAR)
    if job == "dedup":
        assert "rror" in done(job, inputs, BUDGET, BUDGET + 16 * ROWS)
    else:
        # of Python, or of the kernel
        assert re.search(r"Memory(Limit)?Error", done(job, inputs, "8GiB", room))
