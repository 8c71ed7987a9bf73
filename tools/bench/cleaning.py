"""The operations join and dedup.

Pairs of two sets, and the near-duplicates of a corpus of real texts.
"""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from bench import data
from bench.cleaners import simhash
from bench.corpus import RADIUS
from bench.harness import Bench, Result, ratio

QUERY_LOG2 = 20
DOCUMENTATION = (".txt", ".md", ".rst")
SUFFIXES = (".py", ".pyi", ".txt", ".md", ".rst", ".html", ".h", ".c", ".hpp", ".json")
MAX_BYTES, SMOKE_BYTES = 300 << 20, 1 << 20
MAX_TEXT_BYTES = 1 << 20
CLEANED_BY = ("fpstore", "rensa", "datasketch", "simhash")  # others take too long for 300 MB
COMPARED = 1000  # texts that the rival takes: more take it minutes


def join(bench: Bench) -> Result:
    """Find the pairs of a store and 2^20 other fingerprints, beside probes of each, one thread."""
    out: Result = {}
    for log2 in bench.sizes(24, 26):
        keys = data.uniform(bench.seed, log2)
        others = data.near(bench.seed, keys, min(1 << QUERY_LOG2, len(keys)))
        others[::2] = data.uniform(bench.seed + 1, log2)[: len(others)][::2]
        with fpstore.build(bench.folder / "join.fps", keys, radius=RADIUS) as store:
            probing = bench.seconds(partial(store.probe_many, others, RADIUS, threads=1))
            joining = bench.seconds(partial(_joined, store, others))
            pairs = _joined(store, others)
            matches = len(store.probe_many(np.unique(others), RADIUS).fingerprints)
            if pairs != matches:
                raise AssertionError(f"a join finds {pairs} pairs, and probes {matches}")
            out[f"2^{log2}"] = {
                "design": store.design.name,
                "queries": len(others),
                "pairs": pairs,
                "probes_microseconds_per_query": round(probing / len(others) * 1e6, 3),
                "join_microseconds_per_query": round(joining / len(others) * 1e6, 3),
                "probes_to_join": ratio(probing, joining),
            }
        shutil.rmtree(store.path)
    return out


def _joined(store: fpstore.Store, others: data.Words) -> int:
    return sum(map(len, store.join(others, RADIUS, threads=1)))


def dedup(bench: Bench) -> Result:
    """Remove the near-duplicates from real texts in Parquet.

    Documentation and sources of this machine; beside their parts.
    """
    texts = texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES)
    source, clean = bench.folder / "corpus.parquet", bench.folder / "clean.parquet"
    pq.write_table(pa.table({"id": np.arange(len(texts)), "text": texts}), source)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    fingerprinter = fpstore.MinHash()

    def clear(threads: int) -> fpstore.Deduplication:
        return fpstore.dedup(source, clean, text="text", id="id", threads=threads, overwrite=True)

    whole, two = (bench.seconds(partial(clear, threads)) for threads in (1, 2))
    reading = bench.seconds(
        lambda: [
            batch.column(0).to_pylist()
            for batch in pq.ParquetFile(source).iter_batches(columns=["text"])
        ]
    )
    copying = bench.seconds(lambda: pq.write_table(pq.read_table(source), clean))
    hashing = bench.seconds(lambda: fingerprinter.fingerprints(texts, empty="mask", threads=1))
    result = clear(1)
    out: Result = {
        "documents": len(texts),
        "bytes": size,
        "clusters": len(result.clusters),
        "removed": len(texts) - len(result.kept),
        "seconds": round(whole, 3),
        "two_threads_faster": ratio(whole, two),
        "megabytes_per_second": round(size / whole / 1e6, 1),
        "reading_seconds": round(reading, 3),
        "hashing_seconds": round(hashing, 3),
        "copying_seconds": round(copying, 3),
        "rest_share": round(1 - (reading + hashing + copying) / whole, 3),
    }
    sample = texts[:: max(len(texts) // COMPARED, 1)][:COMPARED]
    pq.write_table(pa.table({"text": sample}), source)
    began = time.perf_counter()
    try:
        simhash(source)
    except ImportError as error:
        return out | {"simhash": f"{error.name} is missing: pip install {error.name}"}
    rival = time.perf_counter() - began
    began = time.perf_counter()
    fpstore.dedup(pa.table({"text": sample}), text="text", threads=1)
    own = time.perf_counter() - began
    return out | {
        "simhash": {
            "documents": len(sample),
            "seconds": round(rival, 3),
            "to_dedup": ratio(rival, own, 1),
        }
    }


def texts_here(
    most: int, suffixes: Sequence[str] = SUFFIXES, roots: Sequence[Path] | None = None
) -> list[str]:
    """Return the texts in some folders.

    By default the documentation and Python's packages on this machine, ordered by path.
    """
    own = [
        Path("/usr/share/doc"),
        Path("/usr/include"),
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")),
    ]
    out, size = [], 0
    for folder in own if roots is None else roots:
        for path in sorted(folder.rglob("*")) if size < most else ():
            if (
                path.suffix in suffixes
                and path.is_file()
                and size < most
                and path.stat().st_size <= MAX_TEXT_BYTES
            ):
                out.append(path.read_text("utf-8", "replace"))
                size += len(out[-1])
    return out
