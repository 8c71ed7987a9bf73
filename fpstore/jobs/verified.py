"""Verification of removed rows: their features are compared with those of kept rows, as sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Counts, Flags, Words
from fpstore.base.arrays import list_lims
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.hashing.base import FeatureSets, Fingerprinter
from fpstore.io.source import Projection, RowSource

WAITING_BATCHES = 4  # for each thread
SECOND = 1 << 62  # the first number of the rows of a second corpus
MAX_COMPARED_ROWS = 256  # kept documents, the nearest, with which a document is compared
Alike = Callable[[Words, Words], Flags]


class TextSets:
    """The texts of rows as sets of features."""

    def __init__(
        self, rows: npt.NDArray[np.intp], features: Counts, sizes: npt.NDArray[np.int64]
    ) -> None:
        """Take the ascending numbers of the rows, and their features, as in `FeatureSets`."""
        self._rows, self._sets = (
            rows,
            _kernel.FeatureSets(features, list_lims(sizes).view(np.uint64)),
        )

    def similarities(
        self, a: npt.NDArray[np.intp], b: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.float64]:
        """Return the Jaccard similarities of pairs of rows: shared by all features of both.

        A. Broder, *On the resemblance and containment of documents*, SEQUENCES 1997, section 2.
        """
        return self._sets.similarities(self._numbers(a), self._numbers(b))

    def representatives(
        self,
        fingerprints: Words,
        lims: Words,
        rows: npt.NDArray[np.intp],
        radius: int,
        least: float,
    ) -> Words:
        """Return the place of the representative of each row; rows are in groups, in order.

        A row goes to the nearest representative within the radius whose similarity is at least
        ``least``. If none of the nearest MAX_COMPARED_ROWS is so, the row is a representative. So
        the work grows with the rows, not with their square, where many are near and few are alike.
        The kernel also bounds the representatives whose distance is computed (`kMaxScanned`).
        """
        places, _, _ = self._sets.representatives(
            fingerprints, lims, self._numbers(rows), radius, least, MAX_COMPARED_ROWS
        )
        return places

    def _numbers(self, rows: npt.NDArray[np.intp]) -> Words:
        return np.searchsorted(self._rows, rows).astype(np.uint64)


def text_sets(
    corpora: Sequence[tuple[RowSource, npt.NDArray[np.intp]]],
    projection: Projection,
    fingerprinters: Sequence[Fingerprinter[Any]],
    resources: Resources,
) -> list[TextSets]:
    """Read the texts of ascending rows of one or two corpora once, into temporary files.

    Returns their sets for each fingerprinter. The rows of the second corpus are numbered from
    SECOND on.
    """
    numbers = np.concatenate([rows + place * SECOND for place, (_, rows) in enumerate(corpora)])
    sizes = [[np.zeros(0, np.int64)] for _ in fingerprinters]
    features = [SpilledNumbers(np.uint32) for _ in fingerprinters]
    for corpus, rows in corpora:
        count = sum(map(len, sizes[0])) + len(rows)
        for batch in (
            read_feature_sets(corpus, projection, fingerprinters, rows, resources)
            if len(rows)
            else ()
        ):
            for place, sets in enumerate(batch):
                features[place].append(sets.features)
                sizes[place].append(sets.sizes)
        if sum(map(len, sizes[0])) != count:
            raise InputError(f"{corpus.label}: changed while it was read")
        corpus.check_unchanged()
    return [
        TextSets(numbers, spilled.finish(), np.concatenate(counts))
        for spilled, counts in zip(features, sizes, strict=True)
    ]


def read_feature_sets(
    corpus: RowSource,
    projection: Projection,
    fingerprinters: Sequence[Fingerprinter[Any]],
    rows: npt.NDArray[np.intp],
    resources: Resources,
) -> Iterator[list[FeatureSets]]:
    """Yield the features of the texts of ascending rows, for each fingerprinter."""

    def texts() -> Iterator[list[Any]]:
        done = 0
        for batch in corpus.batches(projection):
            numbers = done + np.flatnonzero(batch.flags)
            done += len(batch.flags)
            resources.report("verifying", done)
            is_wanted = rows[np.minimum(np.searchsorted(rows, numbers), len(rows) - 1)] == numbers
            pairs = zip(batch.row_texts(), is_wanted.tolist(), strict=True)
            if wanted_texts := [text for text, flag in pairs if flag]:
                yield wanted_texts

    def features(batch: list[Any]) -> list[FeatureSets]:
        return [fingerprinter.feature_sets(batch) for fingerprinter in fingerprinters]

    for _, batch in map_in_order(features, texts(), resources.threads, WAITING_BATCHES):
        yield batch
