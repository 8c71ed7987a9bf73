"""Long string ids pass through every verb in pieces of some bytes, under a limit of the system."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_python
from limited import LIMITED

import fpstore

VERB = (
    LIMITED
    + """
    import csv, os
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others take address space in advance
    import pyarrow, pyarrow.parquet
    import fpstore.calibration, fpstore.change.join, fpstore.design.planner, fpstore.io.parquet, fpstore.jobs.pairs
    import fpstore.care.repair, fpstore.jobs.dedup, fpstore.jobs.joining, fpstore.io.lines, fpstore.io.delimited
    from fpstore.cli import main

    main.verbs()  # imports their modules
    limit(int(sys.argv[1]))
    main(sys.argv[2:], standalone_mode=False)
"""
)
ROWS, BYTES = 4_000, 20_000
MIB = 1 << 20
ROOM = 56  # MiB; the ids have 76
PYARROW = {"build parquet": 184, "build plain parquet": 184, "export parquet": 112, "pairs": 112, "probe json": 184, "dedup": 256}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the same rows in files and in a store: 2,000 pairs that differ in a bit, with ids of 20 KB."""
    folder = tmp_path_factory.mktemp("long")
    fingerprints = np.repeat(np.random.default_rng(1).integers(0, 2**64, ROWS // 2, np.uint64), 2)
    fingerprints[1::2] ^= np.uint64(1)
    ids = [f"{n:0{BYTES}}!" for n in range(ROWS)]
    with (folder / "a.tsv").open("w") as tsv, (folder / "a.jsonl").open("w") as lines:
        for fingerprint, name in zip(fingerprints.tolist(), ids, strict=True):
            tsv.write(f"{fingerprint:016x}\t{name}\n")
            lines.write(f'{{"fingerprint": "{fingerprint:016x}", "id": "{name}"}}\n')
    table = pa.table({"fingerprint": fingerprints, "id": ids})
    pages = {"write_batch_size": 16}  # a page, which is decoded as a whole, has about a megabyte
    pq.write_table(table, folder / "a.parquet", **pages)
    pq.write_table(table, folder / "plain.parquet", use_dictionary=False, compression="zstd", **pages)
    fpstore.build(folder / "s.fps", folder_reader(folder)).close()
    return folder


def folder_reader(folder):
    return fpstore.io.open_reader(folder / "a.parquet")


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
    "dedup": "dedup {a}.parquet {out}.parquet --fingerprint-field fingerprint --id-field id --clusters {out}.tsv",
    "dedup jsonl": "dedup {a}.jsonl {out}.jsonl --fingerprint-field fingerprint --id-field id --clusters {out}.tsv",
    "split": "split {s}.fps {out} --bits 1",
    "backup": "backup {s}.fps {out}.fps",
}
BUDGETED = {"build", "cluster", "pairs", "join", "dedup", "split"}


@pytest.mark.parametrize("verb", VERBS)
def test_long_ids_in_small_memory(folder, tmp_path, verb):
    paths = {"out": tmp_path / "out", **{name: folder / name for name in ("a", "plain", "s")}}
    words = [word.format(**paths) for word in VERBS[verb].split()]
    options = ["--memory", "64MiB", "--threads", "1"] if words[0] in BUDGETED else []
    code, _, err = run_python(VERB, PYARROW.get(verb, ROOM) * MIB, *words, *options)
    assert code == 0, err
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) > 1 << 14
