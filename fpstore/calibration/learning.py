"""Weights of features, learnt from a random sample of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.hashing.html import extractor_of, main_texts
from fpstore.hashing.text import SimHash
from fpstore.io.source import Projection, RowSource


class Learning(NamedTuple):
    """The sample from which weights are learnt.

    Attributes
    ----------
    sample : int
        The most documents that are looked at.
    most : int
        The most features whose weights are kept.
    seed : int
        The same seed gives the same sample of the same corpus.
    html : bool or str
        Texts are pages of HTML, of which the main texts count.
    """

    sample: int
    most: int
    seed: int
    html: bool | str = False


class Learnt(NamedTuple):
    """Learnt weights.

    Attributes
    ----------
    simhash : SimHash
        With `weights`.
    looked_at : int
        The documents of the sample.
    documents : int
        Those of the corpus that have a text.
    """

    simhash: SimHash
    looked_at: int
    documents: int


def learnt_weights(
    rows: RowSource, projection: Projection, simhash: SimHash, learning: Learning, progress: Progress | None = None
) -> Learnt:
    """Return a fingerprinter with weights of features, learnt from a random sample of some rows, which are read once.

    Parameters
    ----------
    rows : RowSource
    projection : Projection
        Names one column of texts, or several: then a document has the features of all of them.
    simhash : SimHash
        Says what a feature is.
    learning : Learning
    progress : callable, optional
        Called as ``progress("reading", rows, None)``, and ``progress("learning", documents, documents of the sample)``.

    Raises
    ------
    InputError
        No text of the sample has features, or rows are wrong.
    """
    held = Reservoir[Any](learning.sample, Draws(learning.seed, "weights"))
    read = 0
    for batch in rows.batches(projection):
        for text in batch.row_texts():
            held.see(text)
        read += len(batch.flags)
        if progress is not None:
            progress("reading", read, None)

    sample, extractor = held.sample(), extractor_of(learning.html)

    def sampled() -> Iterator[tuple[str | None, ...]]:
        for done, text in enumerate(sample):
            if progress is not None and done % 100 == 0:
                progress("learning", done, len(sample))
            one_column = text if isinstance(text, tuple) else (text,)
            yield one_column if extractor is None else tuple(main_texts(one_column, extractor))

    return Learnt(simhash.learn_from_rows(sampled(), learning.most), len(sample), held.seen)
