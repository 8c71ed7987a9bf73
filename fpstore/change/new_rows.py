"""Rows that are to be added: which of their pairs and fingerprints are stored already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.query.delta import Totals
from fpstore.query.snapshot import View

Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.uint8]
KIND_WORDS = {"row": "row numbers or other integers", "integer": "integers", "string": "strings"}

PRESENT, ABSENT = 1, 2  # what the delta says
MANY_IDS = 64  # for each row asked; where there are more, they are searched and not listed


class Rows(NamedTuple):
    """Rows that are to be added, their ids as numbers, and what the numbers rest on."""

    fingerprints: Words
    ids: Words
    names: list[bytes]  # strings that have no number yet
    totals: Totals  # with the kind of ids and the next row as they will be


def new_pairs(view: View, rows: Rows, in_base: Mask) -> npt.NDArray[np.bool_]:
    """Return which pairs are not stored yet, each only the first time that it comes."""
    fingerprints, ids = rows.fingerprints, rows.ids
    new = np.ones(len(fingerprints), bool)
    order = np.lexsort((ids, fingerprints))
    same = (np.diff(fingerprints[order]) == 0) & (np.diff(ids[order]) == 0)
    new[order[1:][same]] = False  # lexsort is stable: the first of equal pairs comes first
    assert view.delta is not None
    known = view.delta.kernel.pairs(fingerprints, ids, view.delta.version)
    new &= known != PRESENT
    ask = np.flatnonzero(new & (known == 0) & (in_base != 0))
    if len(ask):
        distinct, place = np.unique(fingerprints[ask], return_inverse=True)
        lims, numbers = view.base_numbers(distinct)
        owner = np.repeat(np.arange(len(distinct)), np.diff(lims))
        stored = set(zip(owner.tolist(), numbers.tolist(), strict=True)) if len(numbers) < MANY_IDS * len(ask) else None
        for row, at in zip(ask.tolist(), place.tolist(), strict=True):
            if stored is not None:
                new[row] = (at, int(ids[row])) not in stored
            else:
                part = numbers[lims[at] : lims[at + 1]]
                found = int(np.searchsorted(part, ids[row]))
                new[row] = found == len(part) or part[found] != ids[row]
    return new


def absent(view: View, fingerprints: Words, in_base: Mask) -> npt.NDArray[np.bool_]:
    """Return which fingerprints are not stored."""
    assert view.delta is not None
    states = view.delta.kernel.states(fingerprints, view.delta.version)
    return np.asarray((states == ABSENT) | ((states == 0) & (in_base == 0)))


def count_absent(view: View, fingerprints: Words, in_base: Mask) -> int:
    """Return how many different fingerprints are not stored."""
    return len(np.unique(fingerprints[absent(view, fingerprints, in_base)]))


def is_fresh(view: View) -> bool:
    """Whether a store has never had an id, so that the next ones decide their kind."""
    totals = view.totals
    return totals.ids == 0 and totals.next_row == 0 and not (view.delta is not None and view.delta.names)
