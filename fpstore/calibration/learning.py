"""Weights of features that are learnt from a sample of a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.hashing.page_text import check_extractor, main_texts
from fpstore.hashing.text import TextHash
from fpstore.io.source import Projection, RowSource


def learn_weights(
    rows: RowSource,
    projection: Projection,
    fingerprinter: TextHash,
    *,
    sample: int,
    most: int,
    seed: int,
    html: bool | str,
    progress: Progress,
) -> tuple[TextHash, int, int]:
    """Learn the weights of at most ``most`` features from a random sample of rows, read once.

    The projection names one column of texts, or several: then a document has the features of all of
    them. For pages of HTML, the main texts count. Returns the fingerprinter with the weights, and
    the numbers of documents with a text in the sample and in all rows.

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
        progress("reading", read, None)
    texts, extractor = reservoir.sample(), check_extractor(html)

    def sampled() -> Iterator[tuple[str | None, ...]]:
        for done, document in enumerate(texts):
            if done % 100 == 0:
                progress("learning", done, len(texts))
            columns = document if isinstance(document, tuple) else (document,)
            yield columns if extractor is None else tuple(main_texts(columns, extractor))

    return fingerprinter.learn_from_rows(sampled(), most), len(texts), reservoir.count
