"""Shares with confidence intervals, and the distances of near-duplicates and of strangers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.keywords import keyword
from fpstore.base.pools import map_in_order
from fpstore.calibration.rates import Places, Rate
from fpstore.calibration.removals import Removals
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing import Fingerprinter
from fpstore.hashing.base import FeatureSets, Hashed

Histogram = npt.NDArray[np.int64]  # pairs by distance, shape (width + 1,)
FALSE_PAIRS = 0.01  # pairs of strangers within a radius, for each document
BLOCK_PAIRS = 1 << 20  # in a batch


@dataclass(frozen=True)
class CalibrationSample:
    """Documents or pictures of a random sample, and changed copies of some.

    Attributes
    ----------
    items : list
        The documents, then the copies; for pictures the path, and the name of the change or None.
    strangers : ndarray of intp
        The places of documents of which no two are near-duplicates: one of each family.
    copies : mapping of str to ndarray of intp, shape (2, pairs)
        The places of strangers and of their copies, by the name of the change.
    alike : int
        Documents that were left out, because they are in the family of a stranger.
    documents, empty : int
        The documents of the corpus with and without a text; for pictures, all pictures, and the
        blank ones of the sample.
    hashed : callable
        Returns the fingerprints of the items for the n-th setting, with sets for `removals`.
    grouped : int or None
        The number of documents that are grouped as by `dedup`: the first items. None for pictures.
    removals : Removals or None
        What `dedup` removes of these documents. None for pictures.
    """

    items: list[Any]
    strangers: Places
    copies: Mapping[str, Places]
    alike: int
    documents: int
    empty: int
    hashed: Callable[[int], Hashed]
    grouped: int | None = None
    removals: Removals | None = None


class Distances(NamedTuple):
    """The number of pairs by distance, and of pairs in which an item has no fingerprint."""

    counts: Histogram
    missed: int = 0

    def within(self, radius: int | None) -> Rate:
        """Return the share of pairs within a radius: none of those without a distance."""
        near = self.counts[: 0 if radius is None else radius + 1]
        return Rate(int(near.sum()), int(self.counts.sum()) + self.missed)


class Measurement:
    """The distances by a setting, of copies from their originals by change, and of strangers."""

    def __init__(self, setting: Setting, sample: CalibrationSample, hashed: Hashed) -> None:
        """InputError if fewer than two strangers have a fingerprint."""
        self.setting, self.width = setting, setting.fingerprinter.width
        self.copies = {name: self._between(hashed, pairs) for name, pairs in sample.copies.items()}
        self.all_copies = self._between(hashed, np.concatenate([*sample.copies.values()], axis=1))
        strangers = sample.strangers[hashed.known[sample.strangers]]
        if len(strangers) < 2:
            raise InputError(
                f"{setting.name}: fewer than two {setting.fingerprinter.items} of the sample have "
                "a fingerprint: take a larger sample, or another setting"
            )
        self.strangers = Distances(all_distances(hashed.rows[strangers], self.width))

    def _between(self, hashed: Hashed, pairs: Places) -> Distances:
        both = hashed.known[pairs[0]] & hashed.known[pairs[1]]
        first, second = pairs[:, both]
        bits = np.bitwise_count(hashed.rows[first] ^ hashed.rows[second]).astype(np.intp)
        counts = np.bincount(bits if bits.ndim == 1 else bits.sum(-1), minlength=self.width + 1)
        return Distances(counts, int(len(both) - both.sum()))

    def largest_radius(self, documents: int) -> int | None:
        """Return the radius of the setting, or the largest one with few expected strangers.

        At most one pair of strangers is expected for each hundred documents of the corpus, as many
        as in the sample.
        """
        if self.setting.radius is not None:
            return self.setting.radius
        pairs = max(documents * (documents - 1) // 2, 1)
        allowed = int(FALSE_PAIRS * documents * int(self.strangers.counts.sum()) / pairs)
        radius = int(np.searchsorted(self.strangers.counts.cumsum(), allowed, "right")) - 1
        if radius < 0:
            return None
        # larger radii that find no more copies only take in strangers
        copies = self.all_copies.counts.cumsum()
        return int(np.searchsorted(copies, copies[radius]))


def hash_items(
    fingerprinter: Fingerprinter[Any], items: Iterable[Any], threads: int, sets: bool = False
) -> Hashed:
    """Return the fingerprints of items, with or without sets of their features."""
    hash_batch = (
        partial(fingerprinter.hashed_sets, fingerprints=True) if sets else fingerprinter.hashed
    )
    parts = [part for _, part in map_in_order(hash_batch, fingerprinter.batches(items), threads)]
    rows, known = (np.concatenate([part[column] for part in parts]) for column in range(2))
    columns = zip(*(part.sets for part in parts if part.sets is not None), strict=True)
    return Hashed(rows, known, sets=FeatureSets(*map(np.concatenate, columns)) if sets else None)


def distances_in_blocks(rows: Words) -> Iterator[tuple[int, npt.NDArray[np.uint16]]]:
    """Yield the first row of each block, and its distances from all rows from there on."""
    columns = rows[:, None] if rows.ndim == 1 else rows
    step = max(BLOCK_PAIRS // max(len(rows), 1), 1)
    for start in range(0, len(rows), step):
        block = columns[start : start + step]
        bits = np.zeros((len(block), len(rows) - start), np.uint16)
        for block_word, word in zip(block.T, columns[start:].T, strict=True):
            bits += np.bitwise_count(block_word[:, None] ^ word)
        yield start, bits


def all_distances(rows: Words, width: int) -> Histogram:
    """Return the number of pairs of different rows at each distance, shape (width + 1,)."""
    counts = np.zeros(width + 1, np.int64)
    for _, bits in distances_in_blocks(rows):
        later = bits[np.triu(np.ones(bits.shape, np.bool_), 1)]
        counts += np.bincount(later, minlength=width + 1)
    return counts


def family_heads(count: int, pairs: Places, preferred: Any = False) -> Places:
    """Return the place of one item of each family, ascending: the first preferred, or the first.

    Pairs of items connect families. InputError if there is one family: then no two are strangers.
    """
    sets = _kernel.Sets(count)
    sets.unite(*np.ascontiguousarray(pairs, np.uint64))
    order = np.argsort(~np.broadcast_to(preferred, count), kind="stable")
    _, firsts = np.unique(sets.names()[order], return_index=True)
    if len(firsts) < 2:
        raise InputError(
            f"all {count:,} items of the sample resemble each other, so nothing shows how near "
            f"strangers are: take a larger sample, or a higher {keyword('resemblance')}",
            got=len(firsts),
        )
    return np.sort(order[firsts])
