"""The operation cores: what a deduplication takes on one thread and on two, beside its parts."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from bench.cleaners import rensa
from bench.harness import Bench, Result, processor_seconds, ratio, run_child
from bench.local_texts import SMOKE_BYTES, texts_here

MAX_BYTES, GROUP_ROWS, FILES = 450 << 20, 5000, 4
SAMPLES_A_SECOND = 500  # of the thread that holds the GIL
SHOWN_MODULES = 12
Work = Callable[[], object]


def cores(bench: Bench) -> Result:
    """Deduplicate real texts on one thread and on two: files, a folder, JSON lines, a table.

    Beside the bound, which is to read, hash, read again and write, and rensa, in the same run.
    """
    texts = texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES)
    table = pa.table({"id": range(len(texts)), "text": texts})
    source = _Source(bench.folder, table)
    work: dict[str, Work] = {"bound": partial(source.bound, texts), "rensa": source.rensa}
    for name in ("parquet", "folder", "lines", "table"):
        for threads in (1, 2):
            work[f"{name}, {threads}"] = partial(getattr(source, name), threads)
    for option in ("--threads", "--processes"):
        for count in (1, 2):
            work[f"command {option}, {count}"] = partial(source.command, option, count)
    source.parquet(1)  # imports are done, and memory is there
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
    for _ in range(bench.repeats):
        for name, job in work.items():
            seconds[name].append(_timed(job))
    walls = {name: median(wall for wall, _ in times) for name, times in seconds.items()}
    out: Result = {
        "documents": len(texts),
        "bytes": sum(len(text.encode("utf-8", "surrogatepass")) for text in texts),
        "kept": source.kept,
        "parts_of_bound": source.parts,
    }
    for name, times in seconds.items():
        out[name] = {
            "seconds": round(walls[name], 2),
            "processor_seconds": round(min(processor for _, processor in times), 2),
            "to_bound": ratio(walls[name], walls["bound"]),
        }
        if name.endswith(", 2"):
            out[name]["faster_than_one"] = ratio(walls[name.replace(", 2", ", 1")], walls[name])
    out["peak_mb"] = {
        f"{name}, {memory or 'default'}": source.peak(name, memory)
        for name in ("corpus.parquet", "corpus.jsonl")
        for memory in (None, "64MiB")
    }
    if not bench.smoke:
        for name, path in (("gil", source.path), ("gil_of_lines", source.lines_path)):
            out[name] = {str(threads): _gil(path, threads) for threads in (1, 2)}
    return out


class _Source:
    """The corpus in each form, and the jobs over it."""

    def __init__(self, folder: Path, table: Any) -> None:
        self._folder, self._table = folder, table
        self.path, self.lines_path = folder / "corpus.parquet", folder / "corpus.jsonl"
        self.parts: dict[str, float] = {}
        self.kept = 0
        write: Any = partial(pq.write_table, compression="zstd", row_group_size=GROUP_ROWS)
        write(table, self.path)
        (folder / "shards").mkdir()
        rows = -(-len(table) // FILES)
        for number in range(FILES):
            write(table.slice(number * rows, rows), folder / f"shards/{number}.parquet")
        with self.lines_path.open("w", encoding="utf-8") as lines:
            lines.writelines(json.dumps(row) + "\n" for row in table.to_pylist())

    def parquet(self, threads: int) -> None:
        self._dedup("corpus.parquet", "clean.parquet", threads)

    def folder(self, threads: int) -> None:
        self._dedup("shards", "clean-shards", threads)

    def lines(self, threads: int) -> None:
        self._dedup("corpus.jsonl", "clean.jsonl", threads)

    def table(self, threads: int) -> None:
        fpstore.dedup(self._table, text="text", threads=threads)

    def command(self, option: str, count: int) -> None:
        command = [sys.executable, "-P", "-m", "fpstore", "dedup", "shards", "clean-shards"]
        options = ["--text-field", "text", option, str(count), "--force", "--quiet"]
        subprocess.run([*command, *options], cwd=self._folder, check=True)

    def peak(self, source: str, memory: str | None) -> int:
        """Return the peak of the memory of a deduplication on two threads, in MB."""
        path = self._folder / source
        task = {"do": "dedup", "path": str(path), "output": f"{path}.clean{path.suffix}"}
        peak: int = run_child({**task, "memory": memory})["peak_resident_bytes"]
        return round(peak / 1e6)

    def rensa(self) -> None:
        """Find groups as `bench.cleaners` does, and write the first row of each."""
        gone = {row for _, *others in rensa(self.path) for row in others}
        flags = pa.array([row not in gone for row in range(len(self._table))])
        pq.write_table(pq.read_table(self.path).filter(flags), self._folder / "rensa.parquet")

    def bound(self, texts: list[str]) -> None:
        """Read the texts, hash them, read all columns, and write as many rows as are kept."""
        hasher = fpstore.MinHash()

        def write() -> None:
            rows = self._table.slice(0, self.kept)
            pq.write_table(rows, self._folder / "bound.parquet", compression="zstd")

        parts: dict[str, Work] = {
            "read": lambda: _read(self.path, ["text"]),
            "hash": lambda: [
                hasher.hashed_sets(batch, fingerprints=False) for batch in hasher.batches(texts)
            ],
            "read_again": lambda: _read(self.path, None),
            "write": write,
        }
        self.parts = {name: round(_timed(part)[0], 2) for name, part in parts.items()}

    def _dedup(self, source: str, output: str, threads: int) -> None:
        paths = self._folder / source, self._folder / output
        result = fpstore.dedup(*paths, text="text", threads=threads, overwrite=True)
        self.kept = len(result.kept)


def _read(path: Path, columns: list[str] | None) -> None:
    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches(columns=columns, use_threads=False):
            pass


def _timed(work: Work) -> tuple[float, float]:
    """Return the time and the processor time of some work, of its child processes too."""
    began, processor_began = time.perf_counter(), processor_seconds()
    work()
    return time.perf_counter() - began, processor_seconds() - processor_began


def _gil(path: Path, threads: int) -> Result | str:
    """Return the seconds under the GIL of a deduplication beside its imports, by module.

    py-spy samples the thread that holds it.
    """
    program = (
        "import sys, fpstore; path, output, threads = sys.argv[1:]; "
        "fpstore.dedup(path, output, text='text', threads=int(threads), overwrite=True)"
    )
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        stacks = Path(folder) / "stacks"
        command = ["py-spy", "record", "--gil", "--format", "raw", "--output", str(stacks)]
        rate = ["--rate", str(SAMPLES_A_SECOND), "--", sys.executable, "-P", "-c", program]
        try:
            subprocess.run(
                [*command, *rate, str(path), str(path.with_stem("out")), str(threads)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        except FileNotFoundError:
            return "py-spy is missing: pip install py-spy"
        modules = Counter[str]()
        for line in stacks.read_text("utf-8").splitlines():
            frames, _, count = line.rpartition(" ")
            own = [frame for frame in frames.split(";") if "fpstore/" in frame]
            if own and "importlib" not in frames:
                modules[own[-1].partition("fpstore/")[2].partition(":")[0]] += int(count)
    shown = {
        name: round(count / SAMPLES_A_SECOND, 3)
        for name, count in modules.most_common(SHOWN_MODULES)
    }
    return {"seconds": round(modules.total() / SAMPLES_A_SECOND, 3), "modules": shown}
