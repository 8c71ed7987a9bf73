"""Verification of what a deduplication removes: the features of the rows that stay and of those that go, compared as sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import lims_of
from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.disk.refusals import refusing
from fpstore.disk.temporary import SpillFile
from fpstore.errors import InputError
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.grouping import Members, Numbers, members_of, represented
from fpstore.jobs.removed import distances_of

WAITING_BATCHES = 4  # for each thread


class TextSets:
    """The texts of some rows of a corpus, which are read again, as sets of features in a temporary file."""

    def __init__(
        self, corpus: RowSource, projection: Projection, maker: Fingerprinter[Any], rows: npt.NDArray[np.intp],
        resources: Resources,
    ) -> None:  # fmt: skip
        """Read the texts of rows, which ascend."""
        sizes: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._features, self._rows = np.empty(0, np.uint32), rows
        if len(rows):
            with refusing("a temporary file"):
                file = SpillFile(None)
                for sets in _sets(corpus, projection, maker, rows, resources):
                    file.append(sets.features.view(np.uint8))
                    sizes.append(sets.sizes)
                if file.size:
                    self._features = file.mapped().view(np.uint32)
                file.close()  # what is mapped stays
        self._lims = lims_of(np.concatenate(sizes)).view(np.uint64)
        if len(self._lims) != len(rows) + 1:
            raise InputError(f"{corpus.label}: changed while it was read")

    def similarities(self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return the Jaccard similarities of pairs of rows."""
        places = (np.searchsorted(self._rows, some).astype(np.uint64) for some in (a, b))
        return _kernel.jaccard_similarities(self._features, self._lims, *places)


class Verifier(NamedTuple):
    """What verification compares: fingerprints of documents, which connected group each is in, and their exact similarities."""

    fingerprints: Words
    sets: Numbers
    radius: int
    similarities: Callable[[Words, Words], npt.NDArray[np.float64]]
    threshold: float

    def verified(self, members: Members, every: Members) -> Members:
        """Return groups in which every member reaches the threshold to the first one, which is kept.

        ``every`` has the connected groups. A member that does not reach it is compared with all other documents of its connected
        group that are kept and within the radius, the nearest first, and is kept itself if it reaches none of them. So no
        document is removed for one that is not alike, or kept beside an earlier one that is alike and within the radius.
        """
        if len(members.lims) == 1:
            return members
        documents = np.sort(every.documents)
        places = np.searchsorted(documents, members.documents)
        firsts = np.repeat(places[members.lims[:-1]], np.diff(members.lims))
        reached = self.similarities(documents[places], documents[firsts]) >= self.threshold
        kept_for = np.arange(len(documents))
        kept_for[places[reached]] = firsts[reached]
        failed = places[~reached]
        kept = kept_for == np.arange(len(documents))
        kept[failed] = False
        sets = self.sets[documents.view(np.intp)]
        for name, some in _by_set(sets, failed):
            stays = np.flatnonzero(kept & (sets == name)).tolist()
            for place in some.tolist():
                found = self._alike(documents, place, np.array(stays, np.intp))
                kept_for[place] = place if found is None else found
                if found is None:
                    stays.append(place)
        new, at = members_of(kept_for.astype(np.uint64), documents)
        return represented(new, kept_for[at.view(np.intp)] != at.view(np.intp))

    def _alike(self, documents: Words, place: int, kept: npt.NDArray[np.intp]) -> int | None:
        """Return the nearest of some kept documents that reaches the threshold to the document at a place."""
        alone = np.full(len(kept), documents[place])
        distances = distances_of(self.fingerprints, alone, documents[kept])
        near = np.flatnonzero(distances <= self.radius)
        near = near[np.argsort(distances[near], kind="stable")]
        reached = np.flatnonzero(self.similarities(alone[near], documents[kept[near]]) >= self.threshold)
        return int(kept[near[reached[0]]]) if len(reached) else None


def _by_set(sets: Numbers, places: npt.NDArray[np.intp]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield the sets of some places, and their places in the given order."""
    if not len(places):
        return
    order = np.argsort(sets[places], kind="stable")
    names, starts = np.unique(sets[places][order], return_index=True)
    yield from zip(names.tolist(), np.split(places[order], starts[1:]), strict=True)


def _sets(
    corpus: RowSource, projection: Projection, maker: Fingerprinter[Any], rows: npt.NDArray[np.intp], resources: Resources
) -> Iterator[FeatureSets]:
    """Yield the features of the texts of some rows, which ascend."""

    def texts() -> Iterator[list[Any]]:
        done = 0
        for batch in corpus.batches(projection):
            here = done + np.flatnonzero(batch.flags)
            done += len(batch.flags)
            resources.report("verifying", done)
            wanted = (rows[np.minimum(np.searchsorted(rows, here), len(rows) - 1)] == here).tolist()
            if some := [text for text, is_wanted in zip(batch.row_texts(), wanted, strict=True) if is_wanted]:
                yield some

    for _, made in in_order(maker.feature_sets, texts(), resources.threads, WAITING_BATCHES):
        yield made
