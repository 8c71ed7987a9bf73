"""The weights of features that a sample of a corpus teaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.hashing.html import extractor_of, main_texts
from fpstore.hashing.text import TextHash
from fpstore.io.source import Projection, RowSource


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
