"""What `dedup` removes of the documents of a sample, and which of them it removes wrongly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import distinct_places, lists_of
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.calibration.evidence import SampledPairs
from fpstore.calibration.measures import Rate
from fpstore.calibration.request import Wish
from fpstore.calibration.resemblance import CHARACTERS, WORDS, Places, ShingleSets
from fpstore.design.joins import everything
from fpstore.hashing.base import Hashed
from fpstore.jobs.grouping import Grouping, grouped, members_of
from fpstore.jobs.joining import UNBOUNDED, connected


class Removal(NamedTuple):
    """What is removed of the documents of a sample.

    Attributes
    ----------
    documents : int
        How many are removed.
    unlike_words, unlike_characters : int
        How many of these share less than the bound of their shingles of three words, or of five characters, with the document
        that is kept.
    """

    documents: int
    unlike_words: int
    unlike_characters: int

    @property
    def wrong(self) -> float:
        """The share of the removed documents that is unlike the kept one by words."""
        return self.unlike_words / max(self.documents, 1)


class CountedSample:
    """The documents of a sample and the copies, as `dedup` takes them, and the sets of shingles of the documents."""

    def __init__(self, evidence: SampledPairs, wish: Wish, threads: int) -> None:
        assert evidence.drawn is not None
        self.wish, self.resources = wish, UNBOUNDED._replace(threads=threads)
        self.documents = len(evidence.drawn)
        copies = np.setdiff1d(np.arange(len(evidence.items)), evidence.drawn)
        self.order = np.concatenate([evidence.drawn, copies])  # the places of the rows
        rows = np.argsort(self.order)
        self.duplicates: Places = rows[np.concatenate(list(evidence.duplicates.values()), axis=1)]
        texts = [evidence.items[place] for place in evidence.drawn]
        self.sets = [ShingleSets(texts, maker, threads) for maker in (WORDS, CHARACTERS)]


class Removals:
    """What is removed of a sample by the fingerprints of a setting, at any radius."""

    def __init__(self, sample: CountedSample, hashed: Hashed, width: int) -> None:
        self._sample, self._width = sample, Width(width)
        self._rows, self._known = hashed.rows[sample.order], hashed.known[sample.order]

    def at(self, radius: int) -> Removal:
        """Return what is removed of the documents."""
        sample = self._sample
        kept = self._kept_instead(sample.documents, radius)
        gone = np.flatnonzero(kept != np.arange(len(kept)))
        pairs = np.array([gone, kept[gone]])
        return Removal(len(gone), *(int((each.similarities(pairs) < sample.wish.resemblance).sum()) for each in sample.sets))

    def found(self, radius: int) -> Rate:
        """Return of how many near-duplicates one or both are removed, but not in favour of a copy that was made here."""
        kept = self._kept_instead(len(self._rows), radius)
        firsts, seconds = self._sample.duplicates
        gone = (kept != np.arange(len(kept))) & (kept < self._sample.documents)
        return Rate(int((gone[firsts] | gone[seconds] | (firsts == seconds)).sum()), len(firsts))

    def _kept_instead(self, count: int, radius: int) -> Places:
        """Return for each of the first rows the one that is kept in its place: itself, if it is kept or has no fingerprint."""
        places = np.flatnonzero(self._known[:count])
        kept = np.arange(count)
        if len(places):
            grouping = Grouping(radius, self._sample.wish.group, "first")
            first, members = _first_of_each(self._rows[places], grouping, self._width, self._sample.resources)
            kept[places[members]] = places[first]
        return kept


def _first_of_each(rows: Words, grouping: Grouping, width: Width, resources: Resources) -> tuple[Places, Places]:
    """Return the members of the groups of some rows, and of each the one that is kept of its group."""
    distinct, which = distinct_places(rows)
    sets = connected(distinct, everything(grouping.radius, width.bits), resources)  # they are few: planning would take longer
    members, _ = members_of(sets[which], np.arange(len(rows), dtype=np.uint32))
    members = grouped(members, grouping, lambda: rows[members.documents.view(np.intp)], lambda ids: ids)
    documents = members.documents.view(np.intp)
    return documents[members.lims[:-1]][lists_of(members.lims)], documents
