"""The operation thresholds.

What `dedup` finds of planted copies of a known Jaccard similarity, and what it removes wrongly.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import fpstore
from bench.harness import Bench, Result, ratio

WORDS, SIZE = 200, 3  # of a text, all different, and of a piece of it
PAIRS, SMOKE_PAIRS = 5000, 100
MIN_SIMILARITY = 0.1  # similarity of a planted copy: from here to 1, evenly
WITHIN = 0.1  # below the threshold, a removed row is not counted as wrong
THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# texts, and their random words behind a line of WORDS_OF_LINE
UNRELATED, VOCABULARY, WORDS_BEHIND = 20_000, 50_000, 143
LINES, WORDS_OF_LINE = 5, 7
COMMON_THRESHOLDS = (0.3, 0.4, 0.5)
SEARCHES: dict[str, dict[str, Any]] = {
    "texts": {},
    "exact estimate": {"search": "exact"},
    "bands estimate": {"search": "bands"},
}
Floats = npt.NDArray[np.float64]


def thresholds(bench: Bench) -> Result:
    """Deduplicate texts with planted copies, at many thresholds, and by estimates."""
    texts, similarities = _texts(bench.seed, SMOKE_PAIRS if bench.smoke else PAIRS)
    table = pa.table({"text": texts})
    out: Result = {"texts": len(texts), "similarities": [MIN_SIMILARITY, 1]}
    for threshold in THRESHOLDS:
        row: Result = {}
        for name, how in SEARCHES.items():
            start = time.process_time()
            result = fpstore.dedup(table, text="text", threshold=threshold, threads=1, **how)
            seconds = time.process_time() - start
            row[name] = _judged(result, similarities, threshold) | {
                "processor_seconds": round(seconds, 2)
            }
        out[str(threshold)] = row
    return out | {"common line": _with_common_lines(bench)}


def _with_common_lines(bench: Bench) -> Result:
    """Deduplicate texts that share nothing but their first line, for several such lines."""
    rng, out = np.random.default_rng(bench.seed), dict[str, Any]()
    count = SMOKE_PAIRS if bench.smoke else UNRELATED
    words = rng.integers(0, VOCABULARY, (count, WORDS_BEHIND))
    texts = [" ".join(f"v{word}" for word in row) for row in words.tolist()]
    for threshold in COMMON_THRESHOLDS:
        row: Result = {"texts": count}
        for name, how in (("texts", SEARCHES["texts"]), ("estimate", {"estimate": True})):
            removed, start = [], time.process_time()
            for line in range(LINES):
                front = " ".join(f"l{line}{place}" for place in range(WORDS_OF_LINE))
                table = pa.table({"text": [f"{front} {text}" for text in texts]})
                result = fpstore.dedup(table, text="text", threshold=threshold, threads=1, **how)
                removed.append(len(result.removed.rows))
            row[name] = {
                "removed": removed,
                "processor_seconds": round((time.process_time() - start) / LINES, 2),
            }
        out[str(threshold)] = row
    return out


def _texts(seed: int, pairs: int) -> tuple[list[str], Floats]:
    """Return unrelated texts, each followed by its copy, and the similarity of each pair."""
    rng, pieces = np.random.default_rng(seed), WORDS - SIZE + 1
    similarities = rng.uniform(MIN_SIMILARITY, 1, pairs)
    common = np.round(2 * pieces * similarities / (1 + similarities)).astype(int)
    texts, number = list[str](), 0
    for kept in (common + SIZE - 1).tolist():
        own, new = range(number, number + WORDS), range(number + WORDS, number + 2 * WORDS - kept)
        number += 2 * WORDS
        texts += [" ".join(f"w{n}" for n in own), " ".join(f"w{n}" for n in (*own[:kept], *new))]
    return texts, common / (2 * pieces - common)


def _judged(result: fpstore.Deduplication, similarities: Floats, threshold: float) -> Result:
    """Return recall (of the copies at the threshold) and precision (of the removed rows)."""
    rows, kept = result.removed.rows.astype(np.int64), result.removed.kept_rows.astype(np.int64)
    is_pair = rows // 2 == kept // 2
    removed = np.zeros(len(similarities), bool)
    removed[rows[is_pair] // 2] = True
    right = is_pair & (similarities[rows // 2] >= threshold - WITHIN)
    alike = similarities >= threshold
    just = alike & (similarities < threshold + WITHIN)
    return {
        "recall": ratio(float(removed[alike].sum()), float(alike.sum()), 4),
        "recall_up_to_a_tenth_above": ratio(float(removed[just].sum()), float(just.sum()), 4),
        "precision": ratio(float(right.sum()), float(len(rows)), 4),
        "strangers_removed": int((~is_pair).sum()),
        "removed": len(rows),
    }
