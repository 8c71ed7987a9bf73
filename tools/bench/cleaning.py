"""The operations join, dedup and copies.

Pairs of two sets, and the near-duplicates of a corpus of real texts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
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
SUFFIXES = (".py", ".pyi", ".txt", ".md", ".rst", ".html", ".h", ".c", ".hpp", ".json")
MAX_BYTES, SMOKE_BYTES = 300 << 20, 1 << 20
MAX_TEXT_BYTES = 1 << 20
CLEANED_BY = ("fpstore", "rensa", "datasketch", "simhash")  # others take too long for 300 MB
COMPARED = 1000  # texts that the rival takes: more take it minutes
DOCUMENTATION = (".txt", ".md", ".rst")
CHANGED = (0.01, 0.02, 0.03, 0.04, 0.05, 0.1)  # shares of the words of a copy
FEW = 0.05
COPIES = 150  # of each share
MIN_WORDS = 50  # of a text that is copied
MINHASH = (32, 38, 44, 50, 56)
SIMHASH = ((1, 64, 3), (1, 64, 6), (1, 256, 24), (3, 64, 10), (3, 256, 44), (3, 256, 54))
# share of the pieces of three words that two texts have in common, from which on they are
# near-duplicates
ALIKE = 0.5


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


def copies(bench: Bench) -> Result:
    """Find planted copies of real texts (`--texts`), by the share of their words that was changed.

    `dedup`, and its rivals.

    Recall is the share of the copies with 1 to 5% that are in one group with their original.
    Precision is the share of the removed texts that have half of their pieces of three words in
    common with the text that was kept instead. Times are processor time.
    """
    roots = (bench.options.texts,) if bench.options.texts else None
    texts = list(
        dict.fromkeys(texts_here(SMOKE_BYTES if bench.smoke else MAX_BYTES, DOCUMENTATION, roots))
    )
    rng = np.random.default_rng([bench.seed, 1 << 46])
    planted = _planted(rng, texts, 5 if bench.smoke else COPIES)
    table = pa.table({"text": [*texts, *(copy for _, _, copy in planted)]})
    every = table["text"].to_pylist()
    pieces = Pieces(every)
    out: Result = {
        "texts": len(texts),
        "bytes": sum(len(text.encode("utf-8", "surrogatepass")) for text in texts),
        "copies": len(planted),
    }
    path = bench.folder / "corpus.parquet"
    pq.write_table(table, path)
    for name in CLEANED_BY:
        command = [sys.executable, "-m", "bench.cleaners", name, str(path)]
        done = subprocess.run(
            command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, check=True
        )
        answer = json.loads(done.stdout)
        if "missing" in answer:
            out[name] = answer["missing"]
            continue
        took = {
            "processor_seconds": round(answer["seconds"], 2),
            "peak_megabytes": answer["peak_bytes"] >> 20,
        }
        out[name] = took | _quality(answer["groups"], pieces, len(every), planted)
    fpstore.dedup(table.slice(0, COMPARED), text="text")  # the first takes longer
    settings: list[tuple[str, fpstore.MinHash | fpstore.SimHash, int]] = [
        (f"minhash, radius {radius}", fpstore.MinHash(), radius) for radius in MINHASH
    ]
    for words, bits, radius in SIMHASH:
        settings.append(
            (
                f"simhash, size {words}, {bits} bits, radius {radius}",
                fpstore.SimHash(size=words, width=bits),
                radius,
            )
        )
    for name, fingerprinter, radius in settings:
        for group in ("connected", "greedy"):
            began = time.process_time()
            result = fpstore.dedup(
                table, text="text", fingerprinter=fingerprinter, radius=radius, group=group
            )
            spent = {"processor_seconds": round(time.process_time() - began, 2)}
            out[f"{name}, {group}"] = spent | _quality(
                [list(map(int, group)) for group in result.clusters], pieces, len(every), planted
            )
    return out


def _planted(
    rng: np.random.Generator, texts: list[str], count: int
) -> list[tuple[int, float, str]]:
    """Return copies of texts, each of another one.

    (place of the original, share of words that are changed, copy).
    """
    long = [place for place, text in enumerate(texts) if len(text.split()) >= MIN_WORDS]
    chosen = rng.permutation(long)[: count * len(CHANGED)].tolist()
    words = " ".join(texts[place] for place in rng.permutation(long)[:COMPARED].tolist()).split()
    out = []
    for number, place in enumerate(chosen):
        share, pieces = CHANGED[number % len(CHANGED)], re.split(r"(\s+)", texts[place])
        places = [at for at, piece in enumerate(pieces) if piece.strip()]
        for at in rng.choice(places, max(round(share * len(places)), 1), replace=False).tolist():
            pieces[at] = words[rng.integers(len(words))]
        out.append((place, share, "".join(pieces)))
    return out


class Pieces:
    """The runs of three words of texts, as sorted hashes, each made when it is first asked for."""

    def __init__(self, texts: list[str]) -> None:
        self._texts = texts
        self._found: dict[int, data.Words] = {}

    def similarity(self, a: int, b: int) -> float:
        """Return the Jaccard similarity of two texts."""
        left, right = self._of(a), self._of(b)
        common = len(np.intersect1d(left, right, assume_unique=True))
        return common / (len(left) + len(right) - common)

    def _of(self, place: int) -> data.Words:
        if place not in self._found:
            words = re.findall(r"\w+", self._texts[place].casefold())
            runs = list(zip(words, words[1:], words[2:], strict=False)) or [tuple(words)]
            self._found[place] = np.unique(
                np.fromiter(map(hash, runs), np.int64, len(runs)).view(np.uint64)
            )
        return self._found[place]


def _quality(
    groups: list[list[int]], pieces: Pieces, texts: int, planted: list[tuple[int, float, str]]
) -> Result:
    """Return the recall of the planted copies, and the precision of what is removed.

    The first row of a group is kept.
    """
    group_of: dict[int, int] = {}
    removed = right = 0
    for number, (kept, *others) in enumerate(groups):
        group_of.update(dict.fromkeys((kept, *others), number))
        right += sum(pieces.similarity(kept, other) >= ALIKE for other in others)
        removed += len(others)
    first = texts - len(planted)
    removed_rows = {other for _, *others in groups for other in others}
    hits: dict[float, list[bool]] = {share: [] for share in CHANGED}
    gone: dict[float, list[bool]] = {share: [] for share in CHANGED}
    for number, (place, share, _) in enumerate(planted, first):
        gone[share].append(number in removed_rows or place in removed_rows)
        hits[share].append(number in group_of and group_of[number] == group_of.get(place))
    few = [hit for share, each in hits.items() if share <= FEW for hit in each]
    return {
        "recall": round(sum(few) / max(len(few), 1), 3),
        "not_both_kept": round(
            sum(one for share, each in gone.items() if share <= FEW for one in each)
            / max(len(few), 1),
            3,
        ),
        "recall_by_share": {
            f"{share:.0%}": round(sum(each) / max(len(each), 1), 3) for share, each in hits.items()
        },
        "removed": removed,
        "precision": ratio(right, removed, 3),
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
