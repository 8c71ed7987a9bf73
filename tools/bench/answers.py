"""Checks that answers are right: against brute force, a scan, or what a rival found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import fpstore
from bench.data import Words

BRUTE_LOG2 = 22


class Answers(NamedTuple):
    """Distinct fingerprints found for each query.

    Those of query q are at ``lims[q]:lims[q + 1]``, in any order.
    """

    lims: npt.NDArray[np.int64]
    fingerprints: Words


def of_store(store: fpstore.Store, queries: Words) -> Answers:
    """Return what ``probe_many`` answers."""
    matches = store.probe_many(queries)
    return Answers(matches.lims, matches.fingerprints)


def require_same(answers: Answers, other: Answers, what: str) -> None:
    """Stop the run when the answers differ."""
    if not np.array_equal(answers.lims, other.lims) or not np.array_equal(
        _ordered(answers), _ordered(other)
    ):
        raise AssertionError(f"{what}: answers differ")


def _ordered(answers: Answers) -> Words:
    numbers = np.repeat(np.arange(len(answers.lims) - 1), np.diff(answers.lims))
    return answers.fingerprints[np.lexsort((answers.fingerprints, numbers))]


def brute(keys: Words, queries: Words, radius: int) -> Answers:
    """Compare every query with every key."""
    distinct = np.unique(keys)
    matches = [distinct[np.bitwise_count(distinct ^ query) <= radius] for query in queries]
    lims = np.cumsum([0, *map(len, matches)], dtype=np.int64)
    return Answers(lims, np.concatenate([np.empty(0, np.uint64), *matches]))


def check_store(store: fpstore.Store, queries: Words, keys: Words | None = None) -> int:
    """Check a few queries against brute force over the keys of a small set, or against a scan.

    Return how many.
    """
    few = queries[:16]
    if keys is not None and len(keys) <= 1 << BRUTE_LOG2:
        expected = brute(keys, few, store.radius)
    else:
        few = few[:4]
        matches = store.scan(few, store.radius)
        expected = Answers(matches.lims, matches.fingerprints)
    require_same(of_store(store, few), expected, str(store.path.name))
    return len(few)
