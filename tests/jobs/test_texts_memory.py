"""Texts pass through every verb in memory that does not grow with their number, nor with what a file of them decodes to."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from building import run_python
from limited import LIMITED
from speeds import crossed

from fpstore.io import open_reader

BUILD = """
    import json, resource, sys
    from fpstore.cli import main

    fields = ["--text-field", "text", "--id-field", "n"]
    main(["build", sys.argv[2], sys.argv[1], *fields, "--memory", "64MiB", "--threads", "2", "-q"], standalone_mode=False)
    import fpstore
    with fpstore.open(sys.argv[2]) as store:
        print(json.dumps([len(store.ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
FEW, MANY = 50_000, 1_000_000
MOST_MORE = 160 << 10  # KiB: the budget of 64 MiB, and pages of the finished store that are mapped


def write(path, count):
    with path.open("w") as file:
        file.writelines(
            json.dumps({"n": row, "text": f"page {row} of {row * 7919 % 100_003} tells of {row * 104_729 % 1_000_003}"}) + "\n"
            for row in range(count)
        )


@pytest.mark.slow
def test_a_million_texts_in_flat_memory(tmp_path):
    peaks = []
    for count in (FEW, MANY):
        write(tmp_path / f"{count}.jsonl", count)
        code, out, err = run_python(BUILD, tmp_path / f"{count}.jsonl", tmp_path / f"{count}.fps")
        assert (code, err) == (0, ""), err
        ids, peak = json.loads(out)
        assert ids == count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < MOST_MORE, peaks


# --- Columns that are small in the file, and large when they are decoded ----------------------------------------------

BOMB = (
    LIMITED
    + """
    import os
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # others take address space in advance
    import pyarrow, pyarrow.parquet
    import fpstore.calibration.job, fpstore.design.planner, fpstore.io.parquet, fpstore.jobs.dedup
    from fpstore.cli import main

    main.verbs()  # imports their modules
    limit(int(sys.argv[1]))
    main(sys.argv[2:], standalone_mode=False)
"""
)
ROOM = 256 << 20
LONG = "some words of a text " * 50_000  # a megabyte
WAYS = {
    "hash": "hash {path} --text-field text -o {out}.tsv",
    "build": "build {out}.fps {path} --text-field text --threads 2",
    "dedup": "dedup {path} {out}.parquet --text-field text --threads 2",
}


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """Return small files whose texts have 800 megabytes: in a dictionary, in plain pages, and in a dictionary beside others."""
    folder = tmp_path_factory.mktemp("bombs")
    texts = pa.array([LONG, "another text"]).take(pa.array([0] * 800 + [1]))
    page = {"write_batch_size": 1}  # pyarrow decodes a page as a whole
    pq.write_table(pa.table({"text": texts}), folder / "dictionary.parquet", compression="zstd")
    pq.write_table(pa.table({"text": texts}), folder / "plain.parquet", compression="zstd", use_dictionary=False, **page)
    noise = pa.array([f"{n} {'x' * 4000}" for n in range(6000)])
    with pq.ParquetWriter(
        folder / "large.parquet", pa.schema([("text", pa.string())]), dictionary_pagesize_limit=1 << 22
    ) as writer:
        writer.write_table(pa.table({"text": pa.concat_arrays([texts, noise])}))
    return folder


@pytest.mark.parametrize(("name", "way"), crossed(["dictionary", "plain", "large"], list(WAYS)))
def test_texts_that_are_small_in_the_file(bombs, tmp_path, name, way):
    words = [word.format(path=bombs / f"{name}.parquet", out=tmp_path / "out") for word in WAYS[way].split()]
    code, _, err = run_python(BOMB, ROOM, *words)
    assert code == 0, err
    if way == "dedup":
        found = pq.read_table(tmp_path / "out.parquet")["text"].to_pylist()
        assert found[:2] == [LONG, "another text"]


def test_ids_that_are_small_in_the_file(tmp_path):
    """All of them would take 2.4 GB, and more than 2 GiB do not fit an array of strings."""
    count, name = 40_000, "a" * 60_000
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([name]))
    pq.write_table(pa.table({"fingerprint": np.arange(count, dtype=np.uint64), "id": ids}), tmp_path / "a.parquet")
    chunks = iter(open_reader(tmp_path / "a.parquet"))
    for chunk in (next(chunks), next(chunks)):
        assert 1 < len(chunk.ids) < 200
        assert set(chunk.ids) == {name}
