"""Groups of rows with an equal key, of which one row stays, whatever the texts say.

There are two kinds of keys: hashes of whole texts ("exact"), and hashes of a column ("key"). Rows
of equal keys are linked like near-duplicates, so that they are decided together: first by texts as
wholes, then by the column, then by the rule for near-duplicates. Of the rows of a key that the step
before has left, the best one by the keep rule stays. The row that stays for a removed row is the
last one: the row for which it went may have gone in a later step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import first_places, repeated_places
from fpstore.io.keys import WORDS, has_key
from fpstore.jobs.bands import MIXER
from fpstore.jobs.evidence import EQUAL_KEY, EXACT, Evidence

#: The kinds of keys, in the order of the steps, with the rules that they are in the evidence.
KINDS = {"exact": EXACT, "key": EQUAL_KEY}


class KeyColumn(NamedTuple):
    """The keys of rows that have one: their places, ascending, and hashes of shape (n, 2)."""

    places: npt.NDArray[np.intp]
    hashes: Words

    @classmethod
    def from_pieces(cls, pieces: list[Words]) -> Self:
        """Return the keys of successive rows; zeros are none."""
        places, hashes, first = [np.empty(0, np.intp)], [np.empty((0, WORDS), np.uint64)], 0
        for piece in pieces:
            with_key = np.flatnonzero(has_key(piece))
            places.append(first + with_key)
            hashes.append(piece[with_key])
            first += len(piece)
        return cls(np.concatenate(places), np.concatenate(hashes))

    def followed_by(self, other: KeyColumn, rows: int) -> KeyColumn:
        """Return the keys of ``rows`` rows and of others behind them."""
        return KeyColumn(
            np.concatenate([self.places, rows + other.places]),
            np.concatenate([self.hashes, other.hashes]),
        )

    def inside(self, values: Words) -> KeyColumn:
        """Return keys that are equal only for rows of equal values."""
        hashes = self.hashes.copy()
        hashes[:, 0] ^= (values[self.places] + np.uint64(1)) * MIXER
        return KeyColumn(self.places, hashes)

    def at(self, rows: npt.NDArray[np.intp]) -> Words:
        """Return the keys of some rows, zeros for rows without one."""
        keys = np.zeros((len(rows), WORDS), np.uint64)
        if len(self.places):
            nearest = np.minimum(np.searchsorted(self.places, rows), len(self.places) - 1)
            has_key = self.places[nearest] == rows
            keys[has_key] = self.hashes[nearest[has_key]]
        return keys

    def equal(self, searched: Flags | None = None) -> tuple[Words, Words]:
        """Return rows that have the key of an earlier row, and the first row of that key."""
        places, hashes = self
        if searched is not None:
            places, hashes = places[searched[places]], hashes[searched[places]]
        repeats, firsts = repeated_places(hashes)
        return places[repeats].astype(np.uint64), places[firsts].astype(np.uint64)


Keys = Mapping[str, KeyColumn]  # by one of KINDS
_NO_KEYS = KeyColumn(np.empty(0, np.intp), np.empty((0, WORDS), np.uint64))


def join_keys(keys: Keys, others: Keys, rows: int) -> Keys:
    """Return the keys of ``rows`` rows and of others behind them."""
    return {
        kind: keys.get(kind, _NO_KEYS).followed_by(others.get(kind, _NO_KEYS), rows)
        for kind in KINDS
        if kind in keys or kind in others
    }


def unite_keys(sets: _kernel.Sets, keys: Keys, searched: Flags | None) -> None:
    """Unite rows of equal keys."""
    for column in keys.values():
        sets.unite(*column.equal(searched))


class KeySteps:
    """Decides by keys which documents go; ``rules`` has the rule for each, 0 if none."""

    def __init__(self, keys: Keys, documents: int) -> None:
        self.keys = keys
        self.rules = np.zeros(documents, np.uint8)

    def choose(self, documents: npt.NDArray[np.intp], stays: Flags) -> npt.NDArray[np.intp]:
        """Return for each document of whole groups, the best first, the place of one that stays.

        All of an equal key are there.
        """
        chosen = np.arange(len(documents))
        for kind, rule in KINDS.items():
            if kind not in self.keys:
                continue
            left = np.flatnonzero(chosen == np.arange(len(chosen)))
            hashes = self.keys[kind].at(documents[left])
            left, hashes = left[has_key(hashes)], hashes[has_key(hashes)]
            firsts = left[first_places(hashes)]
            goes = (firsts != left) & ~stays[left]
            self.rules[documents[left[goes]]] = rule
            step = np.arange(len(documents))
            step[left[goes]] = firsts[goes]
            chosen = step[chosen]
        return chosen

    def explain(self, evidence: Evidence, documents: Words) -> Evidence:
        """Return the evidence of documents with the rules of these steps.

        Of texts without pieces, the shares are 1 if they are equal, otherwise unknown.
        """
        rules = self.rules[documents.view(np.intp)]
        wordless = (evidence["pieces"] == 0) & (rules > 0)
        share = np.where(rules[wordless] == EXACT, 1.0, np.nan)
        shares = {name: evidence[name].copy() for name in ("contained", "similarity")}
        for column in shares.values():
            column[wordless] = share
        return {**evidence, "rule": np.where(rules > 0, rules, evidence["rule"]), **shares}
