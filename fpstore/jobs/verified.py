"""Verification of what a deduplication removes: the features of the rows that stay and of those that go, compared as sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims
from fpstore.base.arrays import lims_of
from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.disk.refusals import refusing
from fpstore.disk.temporary import SpillFile
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.grouping import Members

WAITING_BATCHES = 4  # for each thread


def verified(members: Members, similarities: npt.NDArray[np.float64], threshold: float) -> Members:
    """Return the groups without the members whose similarity to the first one is below a threshold."""
    kept = similarities >= threshold
    counts = np.add.reduceat(kept, members.lims[:-1], dtype=np.int64) if len(members.lims) > 1 else np.empty(0, np.int64)
    kept &= np.repeat(counts > 1, np.diff(members.lims))
    return Members(lims_of(counts[counts > 1]), members.documents[kept])


def similarities_to_first(
    corpus: RowSource,
    projection: Projection,
    maker: Fingerprinter[Any],
    rows: npt.NDArray[np.intp],
    lims: Lims,
    resources: Resources,
) -> npt.NDArray[np.float64]:
    """Return the Jaccard similarity of each row in some groups to the first row of its group, by the texts, which are read again.

    ``rows`` are the numbers of the rows, group by group. The sets lie in a temporary file.
    """
    if not len(rows):
        return np.empty(0)
    order = np.argsort(rows)
    with refusing("a temporary file"):
        file, sizes = SpillFile(None), [np.zeros(0, np.int64)]
        for features, lengths in _sets(corpus, projection, maker, rows[order], resources):
            file.append(features.view(np.uint8))
            sizes.append(lengths)
        features = file.mapped().view(np.uint32) if file.size else np.empty(0, np.uint32)
        file.close()  # what is mapped stays
    places = np.empty(len(rows), np.uint64)
    places[order] = np.arange(len(rows), dtype=np.uint64)
    firsts = np.repeat(places[lims[:-1]], np.diff(lims))
    resources.report("verifying", len(rows))
    return _kernel.jaccard_similarities(features, lims_of(np.concatenate(sizes)).view(np.uint64), places, firsts)


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
