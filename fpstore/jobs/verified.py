"""Verification of what a deduplication removes: the features of the rows that stay and of those that go, compared as sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import lims_of, stable_order
from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.base.width import distances_between
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.grouping import Members, members_of, represented

WAITING_BATCHES = 4  # for each thread
SECOND = 1 << 62
COMPARED_AT_ONCE = 16  # kept documents with one: the nearest are mostly alike
Alike = Callable[[Words, Words], Flags]


class TextSets:
    """The texts of some rows of a corpus, or of two, which are read again, as sets of features in a temporary file.

    The rows of the second corpus are numbered from SECOND on.
    """

    def __init__(
        self, corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]], projection: Projection, maker: Fingerprinter[Any],
        resources: Resources,
    ) -> None:  # fmt: skip
        """Read the texts of some rows of each corpus, which ascend."""
        sizes: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]
        self._rows = np.concatenate([rows + number * SECOND for number, (_, rows) in enumerate(corpora)])
        features = SpilledNumbers(np.uint32)
        for corpus, rows in corpora:
            count = sum(map(len, sizes)) + len(rows)
            for sets in _sets(corpus, projection, maker, rows, resources) if len(rows) else ():
                features.append(sets.features)
                sizes.append(sets.sizes)
            if sum(map(len, sizes)) != count:
                raise InputError(f"{corpus.label}: changed while it was read")
            corpus.check_unchanged()
        self._features = features.finish()
        self._lims = lims_of(np.concatenate(sizes)).view(np.uint64)

    def similarities(self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return the Jaccard similarities of pairs of rows."""
        places = (np.searchsorted(self._rows, some).astype(np.uint64) for some in (a, b))
        return _kernel.jaccard_similarities(self._features, self._lims, *places)


def verified(every: Members, ranks: npt.NDArray[Any], fingerprints: Words, radius: int, alike: Alike) -> Members:
    """Return groups in which every document is alike to the first one, and within the radius of it.

    In each connected group, in the order of ranks, a document goes to the nearest one that is kept, within the radius, and
    alike. If there is none, the document is kept. So none is kept beside an earlier one that is alike and within the radius.
    ``fingerprints`` has those of the documents in ``every``; ``alike`` takes some documents, and others to compare each with.
    """
    chosen = np.arange(len(every.documents))
    for start, end in pairwise(every.lims.tolist()):
        rows = fingerprints[start:end]
        kept, kept_rows = np.empty(end - start, np.intp), np.empty_like(rows)
        count = 0
        for place in stable_order(ranks[start:end]).tolist():
            near = _nearest(kept_rows[:count], rows[place], radius)
            for some in range(0, len(near), COMPARED_AT_ONCE):
                others = kept[near[some : some + COMPARED_AT_ONCE]]
                found = np.flatnonzero(alike(np.full(len(others), every.documents[start + place]), every.documents[others]))
                if len(found):
                    chosen[start + place] = others[found[0]]
                    break
            else:
                kept[count], kept_rows[count] = start + place, rows[place]
                count += 1
    new, at = members_of(chosen.astype(np.uint64), every.documents)
    return represented(new, chosen[at.view(np.intp)] != at.view(np.intp))


def _nearest(rows: Words, row: Words, radius: int) -> npt.NDArray[np.intp]:
    """Return the places of the rows within the radius of a row, the nearest first."""
    distances = distances_between(rows, row)
    near = np.flatnonzero(distances <= radius)
    return near[np.argsort(distances[near], kind="stable")]


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
