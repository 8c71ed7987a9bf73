"""The operation passages: passages that occur before are cut from real texts."""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import fpstore
from bench.harness import Bench, Peak, Result, ratio, status_bytes
from bench.local_texts import SMOKE_BYTES, texts_here

MAX_BYTES = 110 << 20
MEMORY = "256MiB"
BYTES = 500  # of a passage, in place of words


def passages(bench: Bench) -> Result:
    """Cut passages from texts of this machine or `--texts`, and from those that `dedup` keeps.

    Rates are of one thread in processor time; seconds are wall time. Disk is the size of all sorted
    rows.
    """
    roots = (bench.options.texts,) if bench.options.texts else None
    texts = texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES, roots=roots)
    every, distinct = (bench.folder / f"{name}.jsonl" for name in ("every", "distinct"))
    every.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")
    fpstore.dedup(every, distinct, text="text")
    out: Result = {"memory": MEMORY}
    for name, path in {"all texts": every, "after dedup": distinct}.items():
        texts = [json.loads(line)["text"] for line in path.open(encoding="utf-8")]
        size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        words = sum(len(text.split()) for text in texts)
        out[name] = {"documents": len(texts), "bytes": size, "words": words}
        del texts
        out[name]["50 words"] = row = _measured(bench, path, size)
        row["disk_bytes_per_word"] = ratio(row.pop("temporary_bytes"), words, 1)
    out[name][f"{BYTES} bytes"] = row = _measured(bench, path, size, bytes=BYTES)
    row["disk_bytes_per_word"] = ratio(row.pop("temporary_bytes"), words, 1)
    return out


def _measured(bench: Bench, path: Path, size: int, **how: Any) -> Result:
    def cut(threads: int) -> fpstore.Passages:
        return fpstore.remove_passages(
            path,
            bench.folder / "cut.jsonl",
            text="text",
            memory=MEMORY,
            threads=threads,
            overwrite=True,
            **how,
        )

    gc.collect()
    before = status_bytes("RssAnon")
    began, spent = time.perf_counter(), time.process_time()
    with Peak() as peak:
        result = cut(1)
    took, spent = time.perf_counter() - began, time.process_time() - spent
    began = time.perf_counter()
    cut(2)
    return {
        "megabytes_per_second": ratio(size / 1e6, spent, 1),
        "seconds": round(took, 2),
        "two_threads_faster": ratio(took, time.perf_counter() - began),
        "removed_share": ratio(result.removed_bytes, size, 3),
        "removed_passages": result.removed_passages,
        "temporary_bytes": result.temporary_bytes,
        "peak_bytes": max(peak.bytes - before, 0),
    }
