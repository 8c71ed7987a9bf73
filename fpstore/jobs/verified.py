"""Verification of what a deduplication removes: the features of the rows that stay and of those that go, compared as sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import lims_of, stable_order
from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.base.width import distances_between
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.grouping import Members, RowsOf, members_of, represented

WAITING_BATCHES = 4  # for each thread
SECOND = 1 << 62
MOST_COMPARED = 256  # kept documents with one: the nearest
COMPARED_AT_ONCE = 16  # kept documents with one: the nearest are mostly alike
Alike = Callable[[Words, Words], Flags]


class TextSets:
    """The texts of some rows as sets of features."""

    def __init__(self, rows: npt.NDArray[np.intp], features: Counts, sizes: npt.NDArray[np.int64]) -> None:
        """Take the numbers of the rows, which ascend, and their features, as in `FeatureSets`."""
        self._rows, self._features, self._lims = rows, features, lims_of(sizes).view(np.uint64)

    def similarities(self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return the Jaccard similarities of pairs of rows: the features that both have by the features of either.

        A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997, section 2.
        """
        places = (np.searchsorted(self._rows, some).astype(np.uint64) for some in (a, b))
        return _kernel.jaccard_similarities(self._features, self._lims, *places)


def text_sets(
    corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]], projection: Projection, makers: Sequence[Fingerprinter[Any]],
    resources: Resources,
) -> list[TextSets]:  # fmt: skip
    """Read the texts of some rows of a corpus, or of two, once; return their sets in temporary files, for each fingerprinter.

    The rows of each corpus ascend. The rows of the second one are numbered from SECOND on.
    """
    numbers = np.concatenate([rows + place * SECOND for place, (_, rows) in enumerate(corpora)])
    sizes = [[np.zeros(0, np.int64)] for _ in makers]
    features = [SpilledNumbers(np.uint32) for _ in makers]
    for corpus, rows in corpora:
        count = sum(map(len, sizes[0])) + len(rows)
        for made in sets_of_texts(corpus, projection, makers, rows, resources) if len(rows) else ():
            for place, sets in enumerate(made):
                features[place].append(sets.features)
                sizes[place].append(sets.sizes)
        if sum(map(len, sizes[0])) != count:
            raise InputError(f"{corpus.label}: changed while it was read")
        corpus.check_unchanged()
    return [TextSets(numbers, one.finish(), np.concatenate(each)) for one, each in zip(features, sizes, strict=True)]


def verified(every: Members, ranks: npt.NDArray[Any], fingerprints: RowsOf, radius: int, alike: Alike) -> Members:
    """Return groups in which every document is alike to the first one, and within the radius of it.

    In each connected group, in the order of ranks, a document goes to the nearest one that is kept, within the radius, and
    alike. If there is none among the nearest MOST_COMPARED, the document is kept: so the work grows with the documents, not with
    their square, where many are near and few are alike.
    ``fingerprints`` returns those of some documents; ``alike`` takes some documents, and others to compare each with.
    """
    chosen = np.arange(len(every.documents))
    for start, end in pairwise(every.lims.tolist()):
        rows = fingerprints(slice(start, end))
        kept, kept_rows = np.empty(end - start, np.intp), np.empty_like(rows)
        count = 0
        for place in stable_order(ranks[start:end]).tolist():
            near = _nearest(kept_rows[:count], rows[place], radius)[:MOST_COMPARED]
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


def sets_of_texts(
    corpus: RowSource, projection: Projection, makers: Sequence[Fingerprinter[Any]], rows: npt.NDArray[np.intp],
    resources: Resources,
) -> Iterator[list[FeatureSets]]:  # fmt: skip
    """Yield the features of the texts of some rows, which ascend, for each fingerprinter."""

    def texts() -> Iterator[list[Any]]:
        done = 0
        for batch in corpus.batches(projection):
            here = done + np.flatnonzero(batch.flags)
            done += len(batch.flags)
            resources.report("verifying", done)
            wanted = (rows[np.minimum(np.searchsorted(rows, here), len(rows) - 1)] == here).tolist()
            if some := [text for text, is_wanted in zip(batch.row_texts(), wanted, strict=True) if is_wanted]:
                yield some

    def features(batch: list[Any]) -> list[FeatureSets]:
        return [maker.feature_sets(batch) for maker in makers]

    for _, made in in_order(features, texts(), resources.threads, WAITING_BATCHES):
        yield made
