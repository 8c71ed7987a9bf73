"""The sample of a calibration for texts, and changed copies of some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpstore.base.characters import is_blank
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.calibration.measures import (
    CalibrationSample,
    distances_in_blocks,
    family_heads,
    hash_items,
)
from fpstore.calibration.rates import Places
from fpstore.calibration.removals import Removals
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import CalibrationOptions
from fpstore.calibration.text_changes import Material
from fpstore.errors import InputError
from fpstore.hashing import MinHash
from fpstore.hashing.page_text import check_extractor, main_texts, whole_text
from fpstore.io.source import Projection, RowSource
from fpstore.jobs.text_sets import TextSets, join_sets

MAX_TEXT_CHARS = 1 << 18  # characters of a text that count
MAX_GROUPED, MAX_CHARS = 10_000, 1 << 24  # documents, and their characters
CHARACTERS, WORDS = MinHash(shingle="chars", size=5, punctuation="keep"), MinHash()
_SURE = 0.9999  # of the pairs at the bound


def read_texts(
    corpus: RowSource,
    projection: Projection,
    options: CalibrationOptions,
    html: bool | str,
    resources: Resources,
) -> CalibrationSample:
    """Sample the texts of a corpus, which is read once, and make changed copies of some.

    For pages of HTML, copies are made of the main texts. They take long to extract, so only pages
    whose distances are measured are grouped. Resemblances count all words outside of menus.
    """
    most = 0 if html else MAX_GROUPED
    reservoir = Reservoir[str](options.sample, Draws(options.seed, "sample"), most, MAX_CHARS)
    rows = documents = 0
    for batch in corpus.batches(projection):
        rows += len(batch.flags)
        for text in batch.row_texts():
            if not is_blank(text):
                documents += 1
                text = text if html else text[:MAX_TEXT_CHARS]
                reservoir.add(text, len(text))
        resources.report("reading", rows)
    texts, measured = reservoir.sample(), reservoir.part()
    whole_texts, extractor = texts, check_extractor(html)
    if extractor is not None:
        pages = [
            (text[:MAX_TEXT_CHARS], (whole_text(page) or text)[:MAX_TEXT_CHARS])
            for page, text in zip(texts, main_texts(texts, extractor), strict=True)
            if text
        ]
        documents -= len(texts) - len(pages)
        texts, whole_texts = [text for text, _ in pages], [whole for _, whole in pages]
        measured = list(range(len(texts)))
    if len(measured) < 2:
        raise InputError(
            "a calibration compares documents with each other: at least 2 with text are needed, "
            f"got {len(measured)}",
            got=len(measured),
        )
    alike = resembling_pairs(
        [whole_texts[place] for place in measured], options.resemblance, resources.threads
    )
    strangers = np.array(measured, np.intp)[family_heads(len(measured), alike)]
    items, copies = changed_copies(texts, strangers, options, resources)
    shingles = shingle_sets(whole_texts, WORDS, resources.threads)
    shingles.chars = np.array(list(map(len, texts)), np.uint32)
    removals = Removals(shingles, options, resources._replace(progress=None))
    return CalibrationSample(
        items,
        strangers,
        copies,
        alike=len(measured) - len(strangers),
        documents=documents,
        empty=rows - documents,
        hashed=lambda number: hash_items(
            options.settings[number].fingerprinter,
            items,
            resources.threads,
            sets=number in removals.jobs,
        ),
        grouped=len(texts),
        removals=removals,
    )


def changed_copies(
    texts: list[str], strangers: Places, options: CalibrationOptions, resources: Resources
) -> tuple[list[str], dict[str, Places]]:
    """Return the texts and changed copies of some, and the places of originals and copies."""
    items, copies = list(texts), dict[str, Places]()
    material = Material([texts[place] for place in strangers])
    order = Draws(options.seed, "order").order(len(strangers))
    for number, change in enumerate(options.changes):
        pairs = list[tuple[int, int]]()
        for place in order:
            copy = None
            if len(pairs) < options.copies:
                copy = change.copy(material, place, options.seed)
            if copy is not None:
                pairs.append((strangers[place], len(items)))
                items.append(copy)
        if pairs:
            copies[change.name] = np.array(pairs, np.intp).T
        resources.report("changing", number + 1, len(options.changes))
    if not copies:
        raise InputError(
            "no document of the sample can be changed in any of these ways: they are too short, "
            "or have no numbers"
        )
    return items, copies


def shingle_sets(texts: Sequence[str], fingerprinter: MinHash, threads: int = 1) -> TextSets:
    batches = [
        sets
        for _, sets in map_in_order(
            fingerprinter.feature_sets, fingerprinter.batches(texts), threads
        )
    ]
    none = np.empty(0, np.uint32)
    return join_sets(
        np.concatenate([none, *(sets.features for sets in batches)]),
        [(sets.sizes, sets.digests, sets.samples, none) for sets in batches],
    )


def resembling_pairs(texts: Sequence[str], least: float, threads: int = 1) -> Places:
    """Return the pairs of texts whose resemblance is at least a bound, shape (2, pairs).

    Places ascend. The resemblance is the share of shingles of five characters (A. Broder, SEQUENCES
    1997). All pairs are estimated by MinHash. Those within the radius that finds nearly all pairs
    at the bound are compared exactly.
    """
    hashed = hash_items(CHARACTERS, texts, threads)
    sets, radius = shingle_sets(texts, CHARACTERS, threads), CHARACTERS.radius(least, _SURE)
    pairs = [np.empty((2, 0), np.intp)]
    for start, bits in distances_in_blocks(hashed.rows):
        near = start + np.array(np.nonzero(bits <= radius))
        near = near[:, (near[0] < near[1]) & hashed.known[near].all(0)]
        smaller, larger = np.ascontiguousarray(near).view(np.uint64)
        _, similarities = sets.shares(smaller, larger)
        pairs.append(near[:, similarities >= least])
    return np.concatenate(pairs, axis=1)
