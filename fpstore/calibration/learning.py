"""Weights of features that are learnt from a sample of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fpstore.base.aliases import Progress
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.hashing.page_text import check_extractor, main_texts
from fpstore.hashing.text import TextHash
from fpstore.io.source import Projection, RowSource


class LearnedWeights(NamedTuple):
    """A fingerprinter with learnt weights.

    ``sample_size`` documents were sampled, of ``documents`` with a text.
    """

    fingerprinter: TextHash
    sample_size: int
    documents: int


def learn_weights(
    rows: RowSource,
    projection: Projection,
    fingerprinter: TextHash,
    *,
    sample: int,
    most: int,
    seed: int,
    html: bool | str = False,
    progress: Progress | None = None,
) -> LearnedWeights:
    """Learn the weights of at most ``most`` features from a random sample of rows, read once.

    The projection names one column of texts, or several: then a document has the features of all of
    them. For pages of HTML, the main texts count.

    Raises
    ------
    InputError
        No text of the sample has features, or rows are wrong.
    """
    reservoir = Reservoir[Any](sample, Draws(seed, "weights"))
    read = 0
    for batch in rows.batches(projection):
        for document in batch.row_texts():
            reservoir.add(document)
        read += len(batch.flags)
        if progress is not None:
            progress("reading", read, None)
    texts, extractor = reservoir.sample(), check_extractor(html)

    def sampled() -> Iterator[tuple[str | None, ...]]:
        for done, document in enumerate(texts):
            if progress is not None and done % 100 == 0:
                progress("learning", done, len(texts))
            one_column = document if isinstance(document, tuple) else (document,)
            yield one_column if extractor is None else tuple(main_texts(one_column, extractor))

    weighted = fingerprinter.learn_from_rows(sampled(), most)
    return LearnedWeights(weighted, len(texts), reservoir.count)
