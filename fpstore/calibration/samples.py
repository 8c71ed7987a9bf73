"""The texts that a calibration looks at: a random sample of a corpus, or pairs with labels."""

from __future__ import annotations

from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Progress
from fpstore.base.arguments import printable
from fpstore.base.strings import StringColumn
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.errors import InputError
from fpstore.hashing.html import extractor_of, main_texts
from fpstore.io.scores import NULL, Key, keys_of_rows, score_key
from fpstore.io.source import Batch, Projection, RowSource

LONGEST = 1 << 18  # characters of a text that are looked at
TEXT_COLUMNS, ID_COLUMNS, LABEL = ("text_a", "text_b"), ("a", "b"), "label"


class TextSample(NamedTuple):
    """Some texts of a corpus, in the order of the corpus.

    Attributes
    ----------
    texts : list of str
    documents : int
        The texts of the corpus that are not empty.
    empty : int
        Those that are null, or of white space only.
    shortened : int
        Texts of the sample that are longer than 262,144 characters, of which only the beginning is looked at.
    """

    texts: list[str]
    documents: int
    empty: int
    shortened: int


class LabelledPairs(NamedTuple):
    """Pairs of texts of which somebody said whether they are near-duplicates.

    Attributes
    ----------
    texts : list of str
    pairs : list of (int, int, bool)
        The places of both texts, and whether they are near-duplicates.
    documents : int
        The texts of the corpus with ids, or those of the pairs, without empty ones.
    empty : int
        As in `TextSample`, of the same texts.
    shortened : int
        As in `TextSample`, of the texts of the pairs.
    """

    texts: list[str]
    pairs: list[tuple[int, int, bool]]
    documents: int
    empty: int
    shortened: int


def sample_of(
    corpus: RowSource, projection: Projection, size: int, seed: int, progress: Progress | None = None, *, html: bool | str = False
) -> TextSample:
    """Return a random sample of the texts of a corpus, which is read once.

    Parameters
    ----------
    corpus : RowSource
    projection : Projection
        Names the column of the texts.
    size : int
        The most texts in the sample.
    seed : int
        The same seed gives the same sample of the same corpus.
    progress : callable, optional
    html : bool or str
        Texts are pages of HTML, of which the main texts count; pages of the sample without one are empty texts.
    """
    held = Reservoir[str](size, Draws(seed, "sample"))
    empty = rows = 0
    for batch in corpus.batches(projection):
        rows += len(batch.flags)
        empty += len(batch.flags) - int(batch.flags.sum())
        for text in batch.row_texts():
            if not text or text.isspace():
                empty += 1
                continue
            held.see(text if html else text[: LONGEST + 1])
        if progress is not None:
            progress("reading", rows, None)
    taken = held.sample()
    extractor = extractor_of(html)
    texts = taken if extractor is None else list(filter(None, main_texts(taken, extractor)))
    lost = len(taken) - len(texts)
    shortened = sum(len(text) > LONGEST for text in texts)
    return TextSample([text[:LONGEST] for text in texts], held.seen - lost, empty + lost, shortened)


def labelled_texts(pairs: RowSource) -> LabelledPairs:
    """Return the pairs of a file with the columns ``text_a``, ``text_b`` and ``label``: 1 for near-duplicates, 0 for others."""
    labels, sides = _labelled(pairs, TEXT_COLUMNS, ids=False)
    places: dict[str, int] = {}
    found = [
        (places.setdefault(a, len(places)), places.setdefault(b, len(places)), d) for a, b, d in zip(*sides, labels, strict=True)
    ]
    return _checked(list(places), found, len(places), sum(not text.strip() for text in places), pairs)


def labelled_ids(pairs: RowSource, corpus: RowSource, projection: Projection) -> LabelledPairs:
    """Return the pairs of a file with the columns ``a``, ``b`` and ``label``, where a and b are ids of documents of a corpus."""
    labels, (firsts, seconds) = _labelled(pairs, ID_COLUMNS, ids=True)
    wanted = dict.fromkeys([*firsts, *seconds])
    texts: dict[str, str] = {}
    rows = filled = 0
    for batch in corpus.batches(projection):
        rows, filled = rows + len(batch.flags), filled + sum(bool(text.strip()) for text in batch.row_texts())
        texts |= {name: text for name, text in zip(_ids(batch), batch.row_texts(), strict=True) if name in wanted}
    missing = next((name for name in wanted if name not in texts), None)
    if missing is not None:
        raise InputError(f"{_name(pairs)}: no document of the corpus has the id {missing!r:.80}", got=missing)
    places = {name: place for place, name in enumerate(texts)}
    found = [(places[a], places[b], duplicate) for a, b, duplicate in zip(firsts, seconds, labels, strict=True)]
    return _checked(list(texts.values()), found, rows, rows - filled, pairs)


def _labelled(pairs: RowSource, columns: tuple[str, str], *, ids: bool) -> tuple[list[bool], list[list[str]]]:
    """Return the labels and both sides of the pairs that have all three."""
    sides, known, labels = [], [], list[Key]()
    for column in columns:
        names: dict[str, Any] = {"id" if ids else "text": column}
        projection = Projection(**names, score=LABEL, alike_scores=True)
        parts = list(pairs.batches(projection))
        flags = np.concatenate([np.empty(0, bool), *(batch.flags for batch in parts)])
        values = iter([value for batch in parts for value in (_ids(batch) if ids else batch.row_texts())])
        keys = iter([key for batch in parts for key in (() if batch.scores is None else keys_of_rows(batch.scores))])
        rows = [(next(values), next(keys)) if flag else ("", NULL) for flag in flags]
        sides.append([value for value, _ in rows])
        labels = [key for _, key in rows]
        known.append(flags)
    one, neither = score_key(1), score_key(0)
    both = known[0] & known[1] & np.array([label != NULL for label in labels], bool)
    wrong = next((row for row in np.flatnonzero(both).tolist() if labels[row] not in (one, neither)), None)
    if wrong is not None:
        raise InputError(f"{_name(pairs)}: the label of row {wrong + 1} must be 1 for near-duplicates and 0 for others")
    return [label == one for label in compress(labels, both)], [list(compress(side, both)) for side in sides]


def _ids(batch: Batch) -> list[str]:
    ids = batch.ids
    assert ids is not None
    return ids.texts() if isinstance(ids, StringColumn) else list(map(str, np.asarray(ids).tolist()))


def _checked(texts: list[str], pairs: list[tuple[int, int, bool]], rows: int, empty: int, source: RowSource) -> LabelledPairs:
    if not any(duplicate for _, _, duplicate in pairs):
        raise InputError(f"{_name(source)}: no pair has the label 1: nothing tells which fingerprints find near-duplicates")
    return LabelledPairs([text[:LONGEST] for text in texts], pairs, rows - empty, empty, sum(len(t) > LONGEST for t in texts))


def _name(corpus: RowSource) -> str:
    return ", ".join(map(printable, corpus.names[:3]))
