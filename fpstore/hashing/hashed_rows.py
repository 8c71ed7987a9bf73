"""Rows that are read and hashed: the fingerprints of their texts are made by threads while others are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from fpstore.base.strings import StringColumn
from fpstore.base.threads import in_order
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.fields import length_of
from fpstore.hashing.html import MainText, are_pages
from fpstore.io.source import Batch, IdRule, Projection, RowSource

WAITING_BATCHES = 4  # for each thread: what is read while others are hashed


def hashed_rows(
    source: RowSource,
    projection: Projection,
    fingerprinter: Fingerprinter[Any],
    threads: int,
    rule: IdRule | None = None,
    skipped: int = 0,
) -> Iterator[Batch]:
    """Yield rows with the fingerprints of their texts in place of the texts; a row whose text has no words is not known.

    The projection names one column of texts, or several.
    """
    batches = source.batches(projection, rule, skipped)
    first = next(batches, None)
    if first is not None and not isinstance(fingerprinter, MainText):
        source.tagged = are_pages(first.texts or ())
    batches = batches if first is None else chain([first], batches)
    # Rows that are wanted as they come do not wait for others.
    for _, batch in in_order(partial(_hashed, fingerprinter), batches, 1 if source.arrives else threads, WAITING_BATCHES):
        yield batch


def _hashed(fingerprinter: Fingerprinter[Any], batch: Batch) -> Batch:
    assert batch.texts is not None
    assert batch.known is not None
    chars = sum(map(length_of, batch.texts))
    rows, filled = fingerprinter.hashed(batch.texts)
    if batch.text_of_row is not None:
        rows, filled = rows[batch.text_of_row], filled[batch.text_of_row]
    batch = batch._replace(fingerprints=rows, texts=None, text_of_row=None, given=batch.known, chars=chars)
    if filled.all():
        return batch
    places, known, ids, wrong = np.flatnonzero(filled), batch.flags.copy(), batch.ids, batch.wrong
    known[np.flatnonzero(known)[~filled]] = False

    def of_filled(place: int, message: str) -> InputError:
        assert wrong is not None
        return wrong(int(places[place]), message)

    return batch._replace(
        fingerprints=rows[filled],
        ids=ids.filter(filled) if isinstance(ids, StringColumn) else None if ids is None else ids[filled],
        scores=None if batch.scores is None else batch.scores[filled],
        known=known,
        wrong=of_filled,
    )
