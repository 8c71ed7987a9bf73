"""The texts that are looked at: a random sample of a corpus, or pairs with labels.

And the weights that a sample teaches.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress
from typing import Any, Literal, NamedTuple

import numpy as np

from fpstore.base.aliases import Progress
from fpstore.base.arguments import printable
from fpstore.base.characters import is_blank
from fpstore.base.strings import StringColumn
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.errors import InputError
from fpstore.hashing.html import extractor_of, main_texts, whole_text
from fpstore.hashing.text import TextHash
from fpstore.io.scores import NULL, Key, keys_of_rows, score_key
from fpstore.io.source import Batch, Projection, RowSource

LONGEST = 1 << 18  # characters of a text that are looked at
# documents that are grouped, for each one of the sample; characters of all these
COUNTED, COUNTED_CHARS = 10, 1 << 24
TEXT_COLUMNS, ID_COLUMNS, LABEL = ("text_a", "text_b"), ("a", "b"), "label"


class Facts(NamedTuple):
    """The facts about the corpus of a calibration.

    Attributes
    ----------
    documents : int
        The documents of the corpus that are not empty. For pictures, the files that their
        beginnings show to be pictures, without the pictures of the sample that are blank or broken.
    empty : int
        Documents that are null, or of white space only; blank pictures of the sample.
    shortened : int
        Documents of the sample with more than 262,144 characters, which are looked at up to there;
        pictures of the sample with more than 512 pixels on a side, which are made smaller.
    items : {"documents", "pictures"}
    """

    documents: int
    empty: int
    shortened: int
    items: Literal["documents", "pictures"] = "documents"


class Sampled(NamedTuple):
    """Random texts of a corpus, in its order, the places of those in the sample, the facts, and the whole texts of pages of HTML.

    The others are only grouped. There are more of them where texts are short, up to a whole corpus:
    a smaller part of a corpus has a far smaller part of its pairs.
    """

    texts: list[str]
    looked_at: list[int]
    facts: Facts
    whole_texts: list[str] | None = None


class Labelled(NamedTuple):
    """Texts, and pairs of their places with a label: whether the two are near-duplicates."""

    texts: list[str]
    pairs: list[tuple[int, int, bool]]
    facts: Facts


def sample_of(
    corpus: RowSource,
    projection: Projection,
    size: int,
    seed: int,
    progress: Progress | None = None,
    *,
    html: bool | str = False,
) -> Sampled:
    """Return a random sample of the texts of a corpus, which is read once, in its order.

    The same seed gives the same sample.

    Of pages of HTML, the main texts count, which take long to find: only those of the sample. Pages
    without one are empty texts.
    """
    held = Reservoir[str](size, Draws(seed, "sample"), 0 if html else COUNTED * size, COUNTED_CHARS)
    empty = rows = 0
    for batch in corpus.batches(projection):
        rows += len(batch.flags)
        empty += len(batch.flags) - int(batch.flags.sum())
        for text in batch.row_texts():
            if is_blank(text):
                empty += 1
                continue
            text = text if html else text[: LONGEST + 1]
            held.see(text, len(text))
        if progress is not None:
            progress("reading", rows, None)
    taken, looked_at = held.sample(), held.part()
    extractor = extractor_of(html)
    if extractor is None:
        return Sampled(_shortened(taken), looked_at, Facts(held.seen, empty, _too_long(taken)))
    found = [
        (text, whole_text(page))
        for page, text in zip(taken, main_texts(taken, extractor), strict=True)
        if text
    ]
    texts, whole_texts = [text for text, _ in found], [whole or text for text, whole in found]
    lost = len(taken) - len(texts)
    looked_at = looked_at[: len(looked_at) - lost]  # of pages all
    facts = Facts(held.seen - lost, empty + lost, _too_long(texts))
    return Sampled(_shortened(texts), looked_at, facts, _shortened(whole_texts))


def _shortened(texts: list[str]) -> list[str]:
    return [text[:LONGEST] for text in texts]


def _too_long(texts: list[str]) -> int:
    return sum(len(text) > LONGEST for text in texts)


def labelled_texts(pairs: RowSource) -> Labelled:
    """Return the pairs of a file with the columns ``text_a``, ``text_b`` and ``label``.

    1 for near-duplicates, 0 for others.
    """
    labels, sides = _labelled(pairs, TEXT_COLUMNS, ids=False)
    places: dict[str, int] = {}
    found = [
        (places.setdefault(a, len(places)), places.setdefault(b, len(places)), d)
        for a, b, d in zip(*sides, labels, strict=True)
    ]
    empty = sum(map(is_blank, places))
    return Labelled(
        _shortened([*places]), found, Facts(len(places) - empty, empty, _too_long([*places]))
    )


def labelled_ids(pairs: RowSource, corpus: RowSource, projection: Projection) -> Labelled:
    """Return the pairs of a file with the columns ``a``, ``b`` and ``label``, where a and b are ids of documents of a corpus."""
    labels, (firsts, seconds) = _labelled(pairs, ID_COLUMNS, ids=True)
    wanted = dict.fromkeys([*firsts, *seconds])
    texts: dict[str, str] = {}
    rows = filled = 0
    for batch in corpus.batches(projection):
        rows, filled = (
            rows + len(batch.flags),
            filled + sum(not is_blank(text) for text in batch.row_texts()),
        )
        texts |= {
            name: text
            for name, text in zip(_ids(batch), batch.row_texts(), strict=True)
            if name in wanted
        }
    missing = next((name for name in wanted if name not in texts), None)
    if missing is not None:
        raise InputError(
            f"{_name(pairs)}: no document of the corpus has the id {missing!r:.80}", got=missing
        )
    places = {name: place for place, name in enumerate(texts)}
    found = [
        (places[a], places[b], duplicate)
        for a, b, duplicate in zip(firsts, seconds, labels, strict=True)
    ]
    return Labelled(
        _shortened([*texts.values()]),
        found,
        Facts(filled, rows - filled, _too_long([*texts.values()])),
    )


def _labelled(
    pairs: RowSource, columns: tuple[str, str], *, ids: bool
) -> tuple[list[bool], list[list[str]]]:
    """Return the labels and both sides of the pairs that have all three."""
    sides, known, labels = [], [], list[Key]()
    for column in columns:
        names: dict[str, Any] = {"id" if ids else "text": column}
        projection = Projection(**names, score=LABEL, alike_scores=True)
        parts = list(pairs.batches(projection))
        flags = np.concatenate([np.empty(0, bool), *(batch.flags for batch in parts)])
        values = iter(
            [value for batch in parts for value in (_ids(batch) if ids else batch.row_texts())]
        )
        keys = iter(
            [
                key
                for batch in parts
                for key in (() if batch.scores is None else keys_of_rows(batch.scores))
            ]
        )
        rows = [(next(values), next(keys)) if flag else ("", NULL) for flag in flags]
        sides.append([value for value, _ in rows])
        labels = [key for _, key in rows]
        known.append(flags)
    one, neither = score_key(1), score_key(0)
    both = known[0] & known[1] & np.array([label != NULL for label in labels], bool)
    wrong = next(
        (row for row in np.flatnonzero(both).tolist() if labels[row] not in (one, neither)), None
    )
    if wrong is not None:
        raise InputError(
            f"{_name(pairs)}: the label of row {wrong + 1} must be 1 for near-duplicates and 0 "
            "for others"
        )
    found = [label == one for label in compress(labels, both)]
    if not any(found):
        raise InputError(
            f"{_name(pairs)}: no pair has the label 1: nothing shows which fingerprints find "
            "near-duplicates"
        )
    return found, [list(compress(side, both)) for side in sides]


def _ids(batch: Batch) -> list[str]:
    ids = batch.ids
    assert ids is not None
    return (
        ids.texts() if isinstance(ids, StringColumn) else list(map(str, np.asarray(ids).tolist()))
    )


def _name(corpus: RowSource) -> str:
    return ", ".join(map(printable, corpus.names[:3]))


class Learnt(NamedTuple):
    """A fingerprinter with learnt weights, the number of documents of the sample, and of documents of the corpus with a text."""

    fingerprinter: TextHash
    looked_at: int
    documents: int


def learnt_weights(
    rows: RowSource,
    projection: Projection,
    fingerprinter: TextHash,
    *,
    sample: int,
    most: int,
    seed: int,
    html: bool | str = False,
    progress: Progress | None = None,
) -> Learnt:
    """Learn the weights of at most ``most`` features from a random sample of some rows, which are read once.

    The projection names one column of texts, or several: then a document has the features of all of
    them. Of pages of HTML, the main texts count.

    Raises
    ------
    InputError
        No text of the sample has features, or rows are wrong.
    """
    held = Reservoir[Any](sample, Draws(seed, "weights"))
    read = 0
    for batch in rows.batches(projection):
        for text in batch.row_texts():
            held.see(text)
        read += len(batch.flags)
        if progress is not None:
            progress("reading", read, None)
    taken, extractor = held.sample(), extractor_of(html)

    def sampled() -> Iterator[tuple[str | None, ...]]:
        for done, text in enumerate(taken):
            if progress is not None and done % 100 == 0:
                progress("learning", done, len(taken))
            one_column = text if isinstance(text, tuple) else (text,)
            yield one_column if extractor is None else tuple(main_texts(one_column, extractor))

    return Learnt(fingerprinter.learn_from_rows(sampled(), most), len(taken), held.seen)
