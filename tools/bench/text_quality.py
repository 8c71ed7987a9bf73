"""What indexes of texts find, of a corpus whose similarities are known, and what they take."""

from __future__ import annotations

from functools import partial

import numpy as np

from bench.harness import Bench, Result, microseconds, ratio
from bench.rivals import MissingError
from bench.shingled import Corpus, corpus
from bench.text_indexes import TIMED_THRESHOLD, LookUp, TextIndex, text_indexes

THRESHOLDS = (0.5, 0.7, 0.8, 0.9)
COUNT, SMOKE_COUNT = 100_000, 500
TIMED_QUERIES = 1000
SLACK = 0.1  # below the threshold: what is nearer is counted as right


def text_quality(bench: Bench) -> Result:
    """Build indexes of synthetic texts and look up the copies among them, at some thresholds."""
    made = corpus(bench.seed, SMOKE_COUNT if bench.smoke else COUNT)
    out: Result = {"documents": len(made.texts), "bytes": made.bytes, "pairs": len(made.pairs)}
    for name, make in text_indexes(bench.folder):
        try:
            out[name] = _one(bench, make(), made)
        except MissingError as error:
            out[name] = str(error)
    own = out["fpstore"]
    for other in (
        figures for figures in out.values() if isinstance(figures, dict) and figures is not own
    ):
        other["fpstore_builds_faster"] = ratio(
            own["megabytes_per_second"], other["megabytes_per_second"], 1
        )
        other["fpstore_finds_faster"] = ratio(
            other["probe_microseconds"], own["probe_microseconds"], 1
        )
        other["bytes_to_fpstore"] = ratio(other["bytes_per_document"], own["bytes_per_document"], 1)
    return out


def _one(bench: Bench, tool: TextIndex, made: Corpus) -> Result:
    """Build and look up with one thread, in the least processor time of some runs.

    A query is a text, whose answer is ids.
    """
    texts = made.texts[-tool.timed_texts :]
    prepared = tool.prepared(texts)
    built = bench.processor_seconds(lambda: tool.build(prepared))
    tool.take(made.texts)
    rows = np.random.default_rng([bench.seed, 1 << 50]).permutation(
        np.arange(made.first_copy, len(made.texts))
    )
    rows = np.sort(rows[: tool.queries])
    out: Result = {
        "megabytes_per_second": round(sum(map(len, texts)) / built / 1e6, 1),
        "built_texts": len(texts),
    }
    for threshold in THRESHOLDS:
        look_up = tool.look_up(threshold)
        out[f"threshold {threshold}"] = _quality(
            [look_up(made.texts[row]) for row in rows.tolist()], rows, made, threshold
        )
        if threshold == TIMED_THRESHOLD:
            queries = [made.texts[row] for row in rows[:TIMED_QUERIES].tolist()]
            took = bench.processor_seconds(partial(_each, look_up, queries))
            out["probe_microseconds"] = microseconds(took, len(queries), 1)
            out["bytes_per_document"] = round(tool.bytes / len(made.texts), 1)
            out |= _parts(bench, tool, queries)
    return out


def _each(look_up: LookUp, queries: list[str]) -> list[object]:
    return list(map(look_up, queries))


def _parts(bench: Bench, tool: TextIndex, queries: list[str]) -> Result:
    """Return the times of signing and of look-ups in batches, for tools that have them."""
    out: Result = {}
    if tool.sign(queries[0]) is not None:
        out["of_these_signing"] = microseconds(
            bench.processor_seconds(lambda: list(map(tool.sign, queries))), len(queries), 1
        )
    if tool.look_up_batch(queries) is not None:
        out["batch_microseconds"] = microseconds(
            bench.processor_seconds(lambda: tool.look_up_batch(queries)), len(queries), 1
        )
    return out


def _quality(matches: list[list[int]], rows: np.ndarray, made: Corpus, threshold: float) -> Result:
    """Return recall and precision of pairs: each query with what was there before it."""
    pairs = np.array(
        [
            (row, other)
            for row, ids in zip(rows.tolist(), matches, strict=True)
            for other in set(ids)
            if other < row
        ]
    )
    pairs = np.unique(pairs.reshape(-1, 2).astype(np.int64), axis=0)
    right = made.similarities_of(pairs)
    is_query = np.isin(made.pairs[:, 0], rows)
    known = made.similarities[is_query]

    def recall(most: float) -> float:
        got = np.count_nonzero((right >= threshold) & (right < most))
        return ratio(int(got), int(np.count_nonzero((known >= threshold) & (known < most))), 4)

    return {
        "queries": len(rows),
        "recall": recall(2),
        "recall_up_to_a_tenth_above": recall(threshold + SLACK),
        "precision": ratio(int(np.count_nonzero(right >= threshold - SLACK)), len(right), 4),
        "found": len(right),
    }
