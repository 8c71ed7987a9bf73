"""How far apart the fingerprints of near-duplicates and of strangers are, for each setting; the pairs of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.threads import cached_property
from fpstore.base.width import Width
from fpstore.calibration.perturbations import Material, TextChange
from fpstore.calibration.rates import Histogram, Rate, Tail
from fpstore.calibration.resemblance import Places, in_blocks, one_of_each, resembling_pairs
from fpstore.calibration.samples import LabelledPairs, TextSample
from fpstore.calibration.seeded import Draws
from fpstore.calibration.settings import Setting
from fpstore.errors import InputError
from fpstore.hashing.base import Hashed

LABELLED = "labelled"
BOUND = 0.5


class SampledPairs(NamedTuple):
    """The items on which settings are measured.

    Attributes
    ----------
    items : list
        Documents, then copies of some: texts, or an `ImageItem` for each picture.
    documents : int
        How many there are of the first: their pairs are strangers, unless they are among `resembling`.
    duplicates : dict
        For each way in which near-duplicates were made, the places of both items: ndarray of intp, shape (2, pairs).
    different : ndarray of intp, shape (2, pairs), optional
        Pairs of which somebody said that they are no near-duplicates.
    resembling : ndarray of intp, shape (2, pairs)
        With labels, the pairs of documents that resemble each other or are near-duplicates: no strangers. Otherwise there are
        none, since only one document of each family is looked at.
    alike : int
        Documents of the sample that were left out because they belong to the family of one that is looked at.
    """

    items: list[Any]
    documents: int
    duplicates: dict[str, Places]
    different: Places | None
    resembling: Places
    alike: int = 0


class Distances(NamedTuple):
    """Pairs by the distance of their fingerprints.

    Attributes
    ----------
    counts : ndarray of int64, shape (width + 1,)
    missed : int
        Pairs of which an item has no fingerprint.
    """

    counts: Histogram
    missed: int = 0

    def within(self, radius: int) -> Rate:
        """Return the share of pairs within a radius; a pair without a distance is not."""
        return Rate(int(self.counts[: radius + 1].sum()), int(self.counts.sum()) + self.missed)


class Measured:
    """The distances of a setting.

    Parameters
    ----------
    setting : Setting
    duplicates : dict of Distances
        For each way in which near-duplicates were made.
    strangers : Distances
        Of pairs of documents that do not resemble each other.
    different : Distances, optional
        Of pairs with the label 0.
    """

    def __init__(
        self, setting: Setting, duplicates: dict[str, Distances], strangers: Distances, different: Distances | None
    ) -> None:
        self.setting, self.duplicates, self.strangers, self.different = setting, duplicates, strangers, different
        self.width = setting.fingerprinter.width

    @cached_property
    def all_duplicates(self) -> Distances:
        """Those of all near-duplicates."""
        each = self.duplicates.values()
        return Distances(np.sum([one.counts for one in each], axis=0), sum(one.missed for one in each))

    @cached_property
    def tail(self) -> Tail:
        """The share of strangers within small radii."""
        return Tail(self.strangers.counts)

    def recall(self, radius: int) -> Rate:
        """Return the share of all near-duplicates that a radius finds."""
        return self.all_duplicates.within(radius)


def evidence_of_changes(
    sample: TextSample, changes: Sequence[TextChange], copies: int, seed: int, bound: float, resources: Resources
) -> SampledPairs:
    """Return one document of each family of a sample, with copies that are changed in several ways.

    A corpus has near-duplicates of its own. They are no strangers to each other, and would count twice.

    Parameters
    ----------
    sample : TextSample
        At least two texts.
    changes : sequence of TextChange
    copies : int
        The most copies of each kind: each of another document.
    seed : int
    bound : float
        Documents whose resemblance is this or more are of one family, and so are those that a chain of such pairs connects.
    resources : Resources
        Progress.

    Raises
    ------
    InputError
        There are fewer than two families, or no document can be changed.
    """
    if len(sample.texts) < 2:
        raise InputError(
            f"a calibration compares documents with each other: at least 2 with text are needed, got {len(sample.texts)}",
            got=len(sample.texts),
        )
    drawn = len(sample.texts)
    families = one_of_each(drawn, resembling_pairs(sample.texts, bound), np.ones(drawn, bool))
    check_families(len(families), drawn, "documents")
    texts, duplicates = [sample.texts[place] for place in families.tolist()], dict[str, Places]()
    material, documents = Material(list(texts)), len(texts)
    order = Draws(seed, "order").order(documents)
    for number, change in enumerate(changes):
        places, others = list[int](), list[str]()
        for place in order:
            copy = change.copy(material, place, seed) if len(places) < copies else None
            if copy is not None:
                places.append(place)
                others.append(copy)
        if places:
            duplicates[change.name] = np.array([places, range(len(texts), len(texts) + len(others))], np.intp)
            texts += others
        resources.report("changing", number + 1, len(changes))
    if not duplicates:
        raise InputError("no document of the sample can be changed in any of these ways: they are too short, or have no numbers")
    return SampledPairs(texts, documents, duplicates, None, np.empty((2, 0), np.intp), drawn - documents)


def check_families(families: int, drawn: int, items: str) -> None:
    """Raise InputError if all items of a sample are of one family: then no two are strangers."""
    if families < 2:
        raise InputError(
            f"all {drawn:,} {items} of the sample resemble each other, so nothing tells how near strangers are: "
            f"take a larger sample, other {items}, or a higher resemblance= (--resemblance)",
            got=families,
        )


def evidence_of_labels(found: LabelledPairs, bound: float) -> SampledPairs:
    """Return the evidence of pairs with labels: strangers are all other pairs of their texts that do not resemble each other."""
    labelled = {True: list[tuple[int, int]](), False: list[tuple[int, int]]()}
    for a, b, duplicate in found.pairs:
        labelled[duplicate].append((a, b))
    same, different = (np.array(labelled[duplicate], np.intp).reshape(-1, 2).T for duplicate in (True, False))
    ordered = np.sort(same, axis=0)
    left_out = np.concatenate([ordered[:, ordered[0] != ordered[1]], resembling_pairs(found.texts, bound)], axis=1)
    distinct = np.unique(left_out, axis=1)
    return SampledPairs(found.texts, len(found.texts), {LABELLED: same}, different, distinct)


def measured(evidence: SampledPairs, setting: Setting, hashed: Hashed) -> Measured:
    """Return the distances of a setting.

    Parameters
    ----------
    evidence : SampledPairs
    setting : Setting
    hashed : Hashed
        The fingerprints that the setting gives the items of the evidence.

    Raises
    ------
    InputError
        No two documents with fingerprints are strangers.
    """
    width, items = setting.fingerprinter.width, setting.fingerprinter.items
    rows, known = hashed

    def between(pairs: Places) -> Distances:
        both = known[pairs[0]] & known[pairs[1]]
        first, second = pairs[:, both]
        counts = np.bincount(distances(rows[first], rows[second]), minlength=width + 1)
        return Distances(counts, int(len(both) - both.sum()))

    of_documents = np.flatnonzero(known[: evidence.documents])
    strangers = all_distances(rows[of_documents], width) - between(evidence.resembling).counts
    if not strangers.any():
        raise InputError(
            f"{setting.name}: all {items} with fingerprints resemble each other, so nothing tells how near strangers are: "
            f"take a larger sample, or other {items}"
        )
    different = None if evidence.different is None else between(evidence.different)
    return Measured(
        setting, {name: between(pairs) for name, pairs in evidence.duplicates.items()}, Distances(strangers), different
    )


def fingerprints_of(items: Iterable[Any], setting: Setting, threads: int) -> Hashed:
    """Return the fingerprints that a setting gives some items."""
    found, known = setting.fingerprinter.fingerprints(items, empty="mask", threads=threads)
    width = Width(setting.fingerprinter.width)
    return Hashed(width.from_bytes(found) if width.words > 1 else found.astype(np.uint64), known)


def each_measured(evidence: SampledPairs, settings: Sequence[Setting], resources: Resources) -> Iterator[Measured]:
    """Yield the distances of each setting, of evidence whose items are texts."""
    for number, setting in enumerate(settings):
        resources.report("measuring", number, len(settings))
        yield measured(evidence, setting, fingerprints_of(evidence.items, setting, resources.threads))


def distances(rows: Words, others: Words) -> Places:
    """Return the number of bits in which each row differs from the row of others at its place."""
    bits = np.bitwise_count(rows ^ others).astype(np.intp)
    return bits if bits.ndim == 1 else np.asarray(bits.sum(-1), np.intp)


def all_distances(rows: Words, width: int) -> Histogram:
    """Return how many pairs of different rows have each distance, shape (width + 1,)."""
    counts = np.zeros(width + 1, np.int64)
    for start, block in in_blocks(rows):
        later = rows[start:]
        bits = np.zeros((len(block), len(later)), np.uint16)
        for mine, theirs in zip(_columns(block), _columns(later), strict=True):
            bits += np.bitwise_count(mine[:, None] ^ theirs)
        counts += np.bincount(bits.reshape(-1), minlength=width + 1)
        counts -= np.bincount(bits[:, : len(block)][np.tri(len(block), dtype=bool)], minlength=width + 1)
    return counts


def _columns(rows: Words) -> list[Words]:
    return [rows] if rows.ndim == 1 else list(rows.T)
