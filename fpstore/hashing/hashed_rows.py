"""Rows that are read and hashed: the fingerprints of their texts are made by threads while others are read."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.threads import in_order
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.fields import length_of
from fpstore.hashing.html import MainText, are_pages
from fpstore.io.corpus import Chosen, Flags, Part, Rows

WAITING_PARTS = 4  # for each thread: what is read while others are hashed


class Read(NamedTuple):
    """Rows that were read and hashed; the part has neither texts nor fingerprints any more.

    Attributes
    ----------
    part : Part
    fingerprints : Words
    chars : int
        The length of the texts.
    given : ndarray of bool, shape (rows,), optional
        The rows that have a text, with words or without.
    """

    part: Part
    fingerprints: Words
    chars: int = 0
    given: Flags | None = None


def hashed_rows(
    rows: Rows, chosen: Chosen, fingerprinter: Fingerprinter[Any] | None, threads: int, skipped: int = 0
) -> Iterator[Read]:
    """Yield rows with the fingerprints of the known ones.

    Parameters
    ----------
    rows : Rows
    chosen : Chosen
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts; without it, the rows have a column of fingerprints.
    threads : int
    skipped : int
        Rows at the beginning of which nothing is wanted.
    """
    parts = rows.parts(chosen, skipped)
    if fingerprinter is None:
        for part in parts:
            assert part.fingerprints is not None
            yield Read(part._replace(fingerprints=None), part.fingerprints)
        return
    first = next(parts, None)
    if first is not None and not isinstance(fingerprinter, MainText):
        rows.tagged = are_pages(first.texts or ())
    parts = parts if first is None else chain([first], parts)
    # Rows that are wanted as they come do not wait for others.
    for _, read in in_order(partial(_fingerprinted, fingerprinter), parts, 1 if rows.arrives else threads, WAITING_PARTS):
        yield read


def _fingerprinted(fingerprinter: Fingerprinter[Any], part: Part) -> Read:
    """Return the fingerprints of the texts of a part; a text without words is not known."""
    assert part.texts is not None
    chars = sum(map(length_of, part.texts))
    rows, filled = fingerprinter.hashed(part.texts)
    if part.text_of_row is not None:
        rows, filled = rows[part.text_of_row], filled[part.text_of_row]
    if filled.all():
        return Read(part._replace(texts=None, text_of_row=None), rows, chars, part.known)
    known = part.known.copy()
    known[np.flatnonzero(known)[~filled]] = False
    ids = part.ids if part.ids is None else part.ids[filled] if isinstance(part.ids, np.ndarray) else part.ids.filter(filled)
    scores = part.scores if part.scores is None else part.scores[filled]
    return Read(Part(known, None, None, ids, scores), rows[filled], chars, part.known)
