"""What `dedup` removes of the documents of a sample, or of a corpus, and which of them it removes wrongly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import distinct_places, lists_of
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.calibration.evidence import SampledPairs
from fpstore.calibration.measures import Rate
from fpstore.calibration.request import Wish
from fpstore.calibration.resemblance import CHARACTERS, WORDS, Places, shingle_sets
from fpstore.design.joins import everything
from fpstore.hashing import Fingerprinter
from fpstore.hashing.base import Hashed
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.compared import compared_rows
from fpstore.jobs.grouping import Grouping, Members, grouped, members_of
from fpstore.jobs.joining import UNBOUNDED, connected
from fpstore.jobs.verified import TextSets, text_sets

WHOLE = 50_000  # documents of a corpus that is counted as a whole

Similarities = Callable[[Places, Places], npt.NDArray[np.float64]]  # of pairs of rows


class RemovalCounts(NamedTuple):
    """How much is removed of some documents.

    Attributes
    ----------
    documents : int
        How many are removed.
    unlike_words, unlike_characters : int
        How many of these share less than the bound of their shingles of three words, or of five
        characters, with the document that is kept.
    of : int
        From how many documents they are removed.
    """

    documents: int
    unlike_words: int
    unlike_characters: int
    of: int

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
        # strangers, and the copies
        self.with_copies = np.sort(rows[: len(rows) - self.documents + evidence.documents])
        self.duplicates: Places = rows[np.concatenate(list(evidence.duplicates.values()), axis=1)]
        texts = evidence.whole_texts or [evidence.items[place] for place in evidence.drawn]
        self.sets = [shingle_sets(texts, maker, threads) for maker in (WORDS, CHARACTERS)]


class Removals(ABC):
    """What is removed of some documents by the fingerprints of a setting, at any radius."""

    def __init__(
        self, rows: Words, documents: Places, width: int, wish: Wish, resources: Resources
    ) -> None:
        """Take rows, and the places of those that have a fingerprint and are documents."""
        self._rows, self._documents, self._width, self._wish, self._resources = (
            rows,
            documents,
            Width(width),
            wish,
            resources,
        )
        # a radius, and the documents that are within it of another one
        self._near: tuple[int, Places] | None = None
        self._similarities: list[Similarities] = []

    def at(self, radius: int) -> RemovalCounts:
        """Return what is removed of the documents."""
        if self._near is None or self._near[0] < radius:
            some, _ = self._connected(self._documents, radius)
            self._near = radius, np.sort(some)
            self._similarities = self._compared(self._near[1])
        kept = self._kept_instead(self._near[1], radius)
        gone = np.flatnonzero(kept != np.arange(len(kept)))
        pairs = np.array([gone, kept[gone]])
        words, characters = (
            int((each(*pairs) < self._wish.resemblance).sum()) for each in self._similarities
        )
        return RemovalCounts(len(gone), words, characters, len(self._documents))

    @abstractmethod
    def found(self, radius: int) -> Rate:
        """Return of how many near-duplicates one or both are removed."""

    @abstractmethod
    def _compared(self, places: Places) -> list[Similarities]:
        """Return what computes similarities by words and by characters of pairs of these documents."""

    def _kept_instead(self, places: Places, radius: int) -> Places:
        """Run `dedup` on some rows; return for each row the one that is kept for it, or itself."""
        documents, lims = self._connected(places, radius)
        grouping = Grouping(radius, self._wish.group, "first")
        members = Members(lims, documents.astype(np.uint64))
        members = grouped(
            members, grouping, lambda here: self._rows[documents[here]], lambda ids: ids
        )
        kept, documents = np.arange(len(self._rows)), members.documents.view(np.intp)
        kept[documents] = documents[members.lims[:-1]][lists_of(members.lims)]
        return kept

    def _connected(self, places: Places, radius: int) -> tuple[Places, Lims]:
        """Return those of some rows that pairs within the radius connect with others, group by group."""
        distinct, which = distinct_places(self._rows[places])
        # They are so few that a plan would take longer than all comparisons.
        sets = connected(distinct, everything(radius, self._width.bits), self._resources)
        members, _ = members_of(sets[which], places.astype(np.uint64))
        return members.documents.view(np.intp), members.lims


class SampleRemovals(Removals):
    """What is removed of a sample."""

    def __init__(self, sample: CountedSample, hashed: Hashed, width: int) -> None:
        self._sample, known = sample, hashed.known[sample.order]
        documents = np.flatnonzero(known[: sample.documents])
        super().__init__(hashed.rows[sample.order], documents, width, sample.wish, sample.resources)
        self._with_copies = sample.with_copies[known[sample.with_copies]]

    def found(self, radius: int) -> Rate:
        """Return of how many near-duplicates one or both are removed from strangers and copies, but not in favour of a copy."""
        kept = self._kept_instead(self._with_copies, radius)
        firsts, seconds = self._sample.duplicates
        gone = (kept != np.arange(len(kept))) & (kept < self._sample.documents)
        return Rate(int((gone[firsts] | gone[seconds] | (firsts == seconds)).sum()), len(firsts))

    def _compared(self, places: Places) -> list[Similarities]:
        return [each.similarities for each in self._sample.sets]


class CorpusRemovals(Removals):
    """What is removed of a whole corpus, which is read again.

    Near-duplicates are those of the sample.
    """

    def __init__(
        self,
        corpus: RowSource,
        columns: Projection,
        maker: Fingerprinter[Any],
        sample: Removals,
        wish: Wish,
        resources: Resources,
    ) -> None:
        if isinstance(corpus, DocumentFiles):
            corpus.silence()
        self._columns, self._reading, self._sample = (
            replace(columns, width=Width(maker.width)),
            resources,
            sample,
        )
        self._corpus, found = (
            corpus,
            compared_rows(corpus, self._columns, maker, resources, False, None),
        )
        self._row_of = np.flatnonzero(found.known)
        every = UNBOUNDED._replace(threads=resources.threads)
        super().__init__(found.fingerprints, np.arange(len(self._row_of)), maker.width, wish, every)

    def found(self, radius: int) -> Rate:
        """Return of how many near-duplicates of the sample one or both are removed."""
        return self._sample.found(radius)

    def _compared(self, places: Places) -> list[Similarities]:
        def of_rows(sets: TextSets) -> Similarities:
            return lambda a, b: sets.similarities(self._row_of[a], self._row_of[b])

        read = [(self._corpus, self._row_of[places])]
        return [
            of_rows(sets)
            for sets in text_sets(read, self._columns, [WORDS, CHARACTERS], self._reading)
        ]
