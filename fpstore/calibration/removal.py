"""What `dedup` removes of the documents of a sample, and which of them it removes wrongly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpstore.base.aliases import Lims
from fpstore.base.arrays import distinct_places, lists_of
from fpstore.base.width import Width
from fpstore.calibration.evidence import SampledPairs
from fpstore.calibration.measures import Rate
from fpstore.calibration.request import Wish
from fpstore.calibration.resemblance import CHARACTERS, WORDS, Places, ShingleSets
from fpstore.design.joins import everything
from fpstore.hashing.base import Hashed
from fpstore.jobs.grouping import Grouping, Members, grouped, members_of
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
        self.with_copies = np.sort(rows[: len(rows) - self.documents + evidence.documents])  # strangers, and the copies
        self.duplicates: Places = rows[np.concatenate(list(evidence.duplicates.values()), axis=1)]
        texts = [evidence.items[place] for place in evidence.drawn]
        self.sets = [ShingleSets(texts, maker, threads) for maker in (WORDS, CHARACTERS)]


class Removals:
    """What is removed of a sample by the fingerprints of a setting, at any radius."""

    def __init__(self, sample: CountedSample, hashed: Hashed, width: int) -> None:
        self._sample, self._width = sample, Width(width)
        self._rows, self._known = hashed.rows[sample.order], hashed.known[sample.order]
        self._near: tuple[int, Places] | None = None  # a radius, and the documents that are within it of another one

    def at(self, radius: int) -> Removal:
        """Return what is removed of the documents."""
        sample = self._sample
        if self._near is None or self._near[0] < radius:
            some, _ = self._connected(np.flatnonzero(self._known[: sample.documents]), radius)
            self._near = radius, np.sort(some)
        kept = self._kept_instead(self._near[1], radius)
        gone = np.flatnonzero(kept != np.arange(len(kept)))
        pairs = np.array([gone, kept[gone]])
        return Removal(len(gone), *(int((each.similarities(pairs) < sample.wish.resemblance).sum()) for each in sample.sets))

    def found(self, radius: int) -> Rate:
        """Return of how many near-duplicates one or both are removed from strangers and copies, but not in favour of a copy."""
        some = self._sample.with_copies
        kept = self._kept_instead(some[self._known[some]], radius)
        firsts, seconds = self._sample.duplicates
        gone = (kept != np.arange(len(kept))) & (kept < self._sample.documents)
        return Rate(int((gone[firsts] | gone[seconds] | (firsts == seconds)).sum()), len(firsts))

    def _kept_instead(self, places: Places, radius: int) -> Places:
        """Return for each row the one that `dedup`, which has some rows, keeps in its place: the same, if it keeps that one."""
        documents, lims = self._connected(places, radius)
        grouping = Grouping(radius, self._sample.wish.group, "first")
        members = Members(lims, documents.astype(np.uint64))
        members = grouped(members, grouping, lambda: self._rows[documents], lambda ids: ids)
        kept, documents = np.arange(len(self._rows)), members.documents.view(np.intp)
        kept[documents] = documents[members.lims[:-1]][lists_of(members.lims)]
        return kept

    def _connected(self, places: Places, radius: int) -> tuple[Places, Lims]:
        """Return those of some rows that pairs within the radius connect with others, group by group."""
        distinct, which = distinct_places(self._rows[places])
        # They are so few that a plan would take longer than all comparisons.
        sets = connected(distinct, everything(radius, self._width.bits), self._sample.resources)
        members, _ = members_of(sets[which], places.astype(np.uint64))
        return members.documents.view(np.intp), members.lims
