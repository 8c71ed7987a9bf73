"""Why rows go: the columns of a list of removed rows that compare a row with the one that stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.hashing.law import Reals
from fpstore.jobs.text_sets import Rule, TextSets

Evidence = dict[str, npt.NDArray[Any]]  # columns by name, a value for each row

EQUAL, CONTAINED, SIMILAR, NEAR, EXACT, EQUAL_KEY = range(6)
SHOWN_DIGITS = 6
RULES = ("equal", "contained", "similar", "near", "exact", "key")
#: What is known of rows that texts decide, and of rows that fingerprints decide.
TEXT_COLUMNS = ("rule", "contained", "similarity", "pieces", "kept_pieces")
FINGERPRINT_COLUMNS = ("distance",)


def evidence_columns(by_texts: bool) -> tuple[str, ...]:
    return TEXT_COLUMNS if by_texts else FINGERPRINT_COLUMNS


def of_distances(distances: npt.NDArray[np.uint16]) -> Evidence:
    """Return the evidence of rows within the radius of one that stays."""
    return {"distance": distances}


def of_texts(texts: TextSets, numbers: Words, kept_numbers: Words, rule: Rule) -> Evidence:
    """Return the evidence of sets that go, and of the sets that stay for them."""
    contained, similarity = texts.shares(numbers, kept_numbers)
    rules = np.where(contained >= rule.contained, CONTAINED, SIMILAR)
    rules[similarity == 1] = EQUAL
    return {
        "rule": rules.astype(np.uint8),
        "contained": contained,
        "similarity": similarity,
        "pieces": texts.sizes[numbers.view(np.intp)].astype(np.uint64),
        "kept_pieces": texts.sizes[kept_numbers.view(np.intp)].astype(np.uint64),
    }


def near_store(texts: TextSets, numbers: Words, similarity: Reals) -> Evidence:
    """Return the evidence of texts whose fingerprints are near those of a store.

    The store has no texts: the similarity is estimated, and nothing is known of the containment.
    """
    count, unknown = len(numbers), np.full(len(numbers), np.nan)
    return {
        "rule": np.full(count, NEAR, np.uint8),
        "contained": unknown,
        "similarity": similarity,
        "pieces": texts.sizes[numbers.view(np.intp)].astype(np.uint64),
        "kept_pieces": np.zeros(count, np.uint64),
    }


def select(evidence: Evidence, places: npt.NDArray[Any]) -> Evidence:
    return {name: column[places] for name, column in evidence.items()}


def join(a: Evidence, b: Evidence) -> Evidence:
    return {name: np.concatenate([column, b[name]]) for name, column in a.items()}


def written(evidence: Evidence, rows: slice) -> dict[str, Any]:
    """Return some rows as writers of lists take them."""
    columns: dict[str, Any] = {name: column[rows] for name, column in evidence.items()}
    if "rule" in columns:
        columns["rule"] = [RULES[code] for code in columns["rule"].tolist()]
        for name in ("contained", "similarity"):
            columns[name] = np.round(columns[name], SHOWN_DIGITS)
    else:
        columns["distance"] = columns["distance"].astype(np.uint64)
    return columns
