"""The sample of a calibration for texts: changed copies of some, and removals by `dedup`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fpstore.base.aliases import Lims
from fpstore.base.arrays import distinct_places, list_numbers
from fpstore.base.characters import is_blank
from fpstore.base.pools import in_order
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.calibration.measures import (
    Evidence,
    Places,
    Rate,
    distances_in_blocks,
    family_heads,
)
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import Options
from fpstore.calibration.text_changes import Material
from fpstore.design.joins import scan_design
from fpstore.errors import InputError
from fpstore.hashing import MinHash
from fpstore.hashing.base import Hashed
from fpstore.hashing.page_text import check_extractor, main_texts, whole_text
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.grouping import Grouping, Members, grouped, members_in_sets
from fpstore.jobs.joining import UNBOUNDED, connected
from fpstore.jobs.verified import TextSets

LONGEST = 1 << 18  # characters of a text that count
MOST_GROUPED, MOST_CHARS = 50_000, 1 << 25  # documents, and their characters
CHARACTERS, WORDS = MinHash(shingle="chars", size=5, punctuation="keep"), MinHash()
_SURE = 0.9999  # of the pairs at the bound


@dataclass(frozen=True)
class Documents:
    """Random texts of a corpus, in its order.

    Attributes
    ----------
    texts : list of str
        The texts that are grouped: all of a small corpus.
    whole_texts : list of str
        Of pages of HTML, all their words outside of menus; otherwise the same texts.
    sample : list of int
        The places of the texts whose distances are measured.
    documents, empty : int
        The documents of the corpus that have a text, and those that have none.
    """

    texts: list[str]
    whole_texts: list[str]
    sample: list[int]
    documents: int
    empty: int


def read_documents(
    corpus: RowSource,
    projection: Projection,
    options: Options,
    html: bool | str,
    resources: Resources,
) -> Documents:
    """Return a random sample of the texts of a corpus, which is read once.

    For pages of HTML, the main texts count. They take long to extract, so only sampled pages are
    grouped.
    """
    most = 0 if html else MOST_GROUPED
    reservoir = Reservoir[str](options.sample, Draws(options.seed, "sample"), most, MOST_CHARS)
    empty = rows = 0
    for batch in corpus.batches(projection):
        rows += len(batch.flags)
        empty += len(batch.flags) - int(batch.flags.sum())
        for text in batch.row_texts():
            if is_blank(text):
                empty += 1
                continue
            text = text if html else text[:LONGEST]
            reservoir.add(text, len(text))
        resources.report("reading", rows)
    texts, sample = reservoir.sample(), reservoir.part()
    whole_texts, extractor = texts, check_extractor(html)
    if extractor is not None:
        pages = [
            (text[:LONGEST], (whole_text(page) or text)[:LONGEST])
            for page, text in zip(texts, main_texts(texts, extractor), strict=True)
            if text
        ]
        empty += len(texts) - len(pages)
        texts, whole_texts = [text for text, _ in pages], [whole for _, whole in pages]
        sample = list(range(len(texts)))
    if len(sample) < 2:
        raise InputError(
            "a calibration compares documents with each other: at least 2 with text are needed, "
            f"got {len(sample)}",
            got=len(sample),
        )
    return Documents(texts, whole_texts, sample, rows - empty, empty)


def changed_copies(documents: Documents, options: Options, resources: Resources) -> Evidence:
    """Return one document of each family of the sample, and changed copies of some.

    Documents whose resemblance is the bound or more are of one family, and so are those that a
    chain of such pairs connects: near-duplicates of a corpus are no strangers to each other.
    """
    sample = np.array(documents.sample, np.intp)
    texts = [documents.whole_texts[place] for place in documents.sample]
    alike = resembling_pairs(texts, options.resemblance, resources.threads)
    heads = sample[family_heads(len(sample), alike, np.ones(len(sample), bool))]
    items = [documents.texts[place] for place in heads]
    material, originals, pairs = Material(list(items)), len(items), dict[str, Places]()
    seed, order = options.seed, Draws(options.seed, "order").order(originals)
    for number, change in enumerate(options.changes):
        first, places = len(items), list[int]()
        for place in order:
            copy = change.copy(material, place, seed) if len(places) < options.copies else None
            if copy is not None:
                places.append(place)
                items.append(copy)
        if places:
            pairs[change.name] = np.array([places, range(first, len(items))], np.intp)
        resources.report("changing", number + 1, len(options.changes))
    if not pairs:
        raise InputError(
            "no document of the sample can be changed in any of these ways: they are too short, "
            "or have no numbers"
        )
    return Evidence(items, originals, pairs, len(sample) - originals)


class Removal:
    """The removals of `dedup` by the fingerprints of a setting, at any radius.

    A removal is wrong if the document shares less than a bound of its shingles of three words with
    the kept one.
    """

    def __init__(
        self, hashed: Hashed, width: int, sets: TextSets, options: Options, threads: int
    ) -> None:
        self._rows, self._places = hashed.rows, np.flatnonzero(hashed.known)
        self._width, self._sets = Width(width), sets
        self._group, self._resemblance = options.group, options.resemblance
        self._resources = UNBOUNDED._replace(threads=threads)
        # a radius, and the documents that are within it of another
        self._near: tuple[int, Places] | None = None

    def rates(self, radius: int) -> tuple[Rate, Rate]:
        """Return the share of removed documents, and the share of these that is wrong."""
        if self._near is None or self._near[0] < radius:
            near, _ = self._connected(self._places, radius)
            self._near = radius, np.sort(near)
        places, lims = self._connected(self._near[1], radius)
        members = grouped(
            Members(lims, places.astype(np.uint64)),
            Grouping(radius, self._group, "first"),
            lambda here: self._rows[places[here]],
            lambda ids: ids,
        )
        removed = members.documents.view(np.intp)
        representatives = removed[members.lims[:-1]][list_numbers(members.lims)]
        differ = removed != representatives
        removed, representatives = removed[differ], representatives[differ]
        wrong = int((self._sets.similarities(removed, representatives) < self._resemblance).sum())
        return Rate(len(removed), len(self._places)), Rate(wrong, len(removed))

    def _connected(self, places: Places, radius: int) -> tuple[Places, Lims]:
        """Return the places that pairs within the radius connect with others, group by group."""
        distinct, row_places = distinct_places(self._rows[places])
        # Comparing all of so few takes less time than a plan.
        sets = connected(distinct, scan_design(radius, self._width.bits), self._resources)
        members, _ = members_in_sets(sets[row_places], places.astype(np.uint64))
        return members.documents.view(np.intp), members.lims


def shingle_sets(texts: Sequence[str], maker: MinHash, threads: int = 1) -> TextSets:
    batches = [sets for _, sets in in_order(maker.feature_sets, maker.batches(texts), threads)]
    return TextSets(
        np.arange(len(texts)),
        np.concatenate([np.empty(0, np.uint32), *(sets.features for sets in batches)]),
        np.concatenate([np.empty(0, np.int64), *(sets.sizes for sets in batches)]),
    )


def resembling_pairs(texts: Sequence[str], least: float, threads: int = 1) -> Places:
    """Return the pairs of texts whose resemblance is at least a bound, shape (2, pairs).

    Places ascend. The resemblance is the share of shingles of five characters (A. Broder, SEQUENCES
    1997). All pairs are estimated by MinHash. Those within the radius that finds nearly all pairs
    at the bound are compared exactly.
    """
    rows, is_known = CHARACTERS.fingerprints(texts, empty="mask", threads=threads)
    sets, radius = shingle_sets(texts, CHARACTERS, threads), CHARACTERS.radius(least, _SURE)
    pairs = [np.empty((2, 0), np.intp)]
    for start, bits in distances_in_blocks(rows.view(np.uint64)):
        near = start + np.array(np.nonzero(bits <= radius))
        near = near[:, (near[0] < near[1]) & is_known[near].all(0)]
        pairs.append(near[:, sets.similarities(*near) >= least])
    return np.concatenate(pairs, axis=1)
