"""A disk that gets full while a job over a store or a corpus writes: a clear line, nothing at the output, and a rerun works."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from children import fill
from commandline import run
from resuming import near
from speeds import crossed

import fpstore

DISK_BYTES = 32 << 20
FULL = r"fpstore: [^\n]*No space left on device: free some space[^\n]*\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Make stores and a corpus in several formats, whose outputs take more than a megabyte."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = near(1, 30_000)
    texts = [f"a text of many words {n} " * 3 for n in range(len(rows))]
    fpstore.build(folder / "s.fps", rows, [f"https://example.org/{n:020}" for n in range(len(rows))]).close()
    fpstore.build(folder / "few.fps", rows ^ np.uint64(2)).close()
    table = pa.table({"hash": rows, "text": texts, "id": [f"https://example.org/{n:020}" for n in range(len(rows))]})
    pq.write_table(table, folder / "c.parquet", compression="none")
    (folder / "c.tsv").write_text("hash\tid\n" + "".join(f"{f:016x}\thttps://example.org/{n:030}\n" for n, f in enumerate(rows)))
    (folder / "notes").mkdir()
    for n in range(300):
        (folder / "notes" / f"{n}.txt").write_text(f"text {n} of words {n}" * 500)
    return folder


JOBS = {
    "pairs": "pairs s.fps -o {}/out.tsv",
    "pairs to parquet": "pairs s.fps -o {}/out.parquet",
    "join": "join s.fps few.fps -o {}/out.jsonl",
    "cluster": "cluster s.fps -o {}/out.tsv",
    "cluster to parquet": "cluster s.fps -o {}/out.parquet --group greedy",
    "dedup lines": "dedup c.tsv {}/out.tsv --fingerprint-field hash",
    "dedup parquet": "dedup c.parquet {}/out.parquet --fingerprint-field hash",
    "dedup folder": "dedup notes {}/out --text",
    "dedup listing": "dedup c.tsv {}/out.tsv --fingerprint-field hash --id-field id --clusters {}/list.tsv --keep smallest",
    "report": "report s.fps -o {}/out.html",
}


def names(disk):
    return sorted(path.relative_to(disk).as_posix() for path in disk.rglob("*") if path.name != "filler")


@pytest.mark.parametrize(
    ("job", "pages"), [case for case in crossed(list(JOBS), [0, 3, 100], share=5) if case.values != ("report", 100)]
)
def test_a_full_disk(inputs, mounted_disk, monkeypatch, job, pages):
    monkeypatch.chdir(inputs)
    disk = mounted_disk(DISK_BYTES)
    arguments = JOBS[job].replace("{}", str(disk)).split()
    fill(disk, pages)
    failed = run(*arguments)
    assert failed.exit_code == 1, failed.output
    assert re.fullmatch(FULL, failed.stderr), failed.stderr
    assert names(disk) == []
    (disk / "filler").unlink()
    assert run(*arguments, "--quiet").exit_code == 0
    assert "out" in names(disk)[-1]


@pytest.mark.parametrize(("job", "pages"), crossed(["pairs", "join", "cluster", "dedup lines"], [0, 1, 6, 40, 150], share=3))
def test_a_disk_that_gets_full_while_parts_are_kept(inputs, mounted_disk, monkeypatch, job, pages):
    """What is finished stays, and the same command goes on when there is room."""
    monkeypatch.chdir(inputs)
    monkeypatch.setattr("fpstore.jobs.given.KEPT_ROWS", 1000)
    monkeypatch.setattr("fpstore.io.lines.BLOCK_BYTES", 1 << 14)
    disk = mounted_disk(DISK_BYTES)
    arguments = [*JOBS[job].replace("{}", str(disk)).split(), "--resume", "--threads", "2"]
    fill(disk, pages)
    failed = run(*arguments)
    assert failed.exit_code == 1, failed.output
    assert re.fullmatch(FULL, failed.stderr), failed.stderr
    left = names(disk)
    assert not [name for name in left if name.endswith(".tmp") or ("/" not in name and ".resume" not in name)], left
    (disk / "filler").unlink()
    again = run(*arguments)
    assert again.exit_code == 0, again.output
    (output,) = names(disk)
    content = (disk / output).read_bytes()
    (disk / output).unlink()
    assert run(*arguments[:-3], "--threads", "2").exit_code == 0
    assert (disk / output).read_bytes() == content
