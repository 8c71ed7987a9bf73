"""Excerpts of texts that go and of the texts that stay for them, from where they differ on.

The texts are read again: all texts of pairs lie in a temporary file, and so do the excerpts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags, Words
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn, cut_text
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.documents import DocumentFiles
from fpstore.hashing.html import MainText
from fpstore.hashing.page_text import main_texts
from fpstore.hashing.plain_pages import PlainPages, is_page, without_tags
from fpstore.io.source import Batch, Projection, RowSource
from fpstore.jobs.row_set import SpooledIds
from fpstore.query.id_lookup import ChainedIds, IdLookup, InMemoryIds, ids_in_slices

EXCERPT_COLUMNS = ("text", "kept_text")
MAX_CHARACTERS = 1 << 20
BEFORE = 40  # characters before the first difference, or a quarter of the excerpt if that is less


class Excerpts(NamedTuple):
    """Excerpts of texts that went, and of those that stayed; a number is the place of a pair."""

    texts: IdLookup
    kept_texts: IdLookup


class Pairs(NamedTuple):
    """Rows that go, by their numbers, and the rows that stay for them, of the same corpus or not.

    Of a kept row that is not in the corpus, the number is one of another corpus, or means nothing
    for one in a store.
    """

    rows: Words
    kept_rows: Words
    in_reference: Flags
    in_store: Flags


class TextReader(NamedTuple):
    """Reads the texts of rows as they are compared: of pages of HTML, what is compared of them."""

    projection: Projection
    fingerprinter: Fingerprinter[Any] | None
    resources: Resources

    def read(self, corpus: RowSource, rows: Words) -> SpooledIds:
        """Return the texts of rows, which ascend, with blanks for white space.

        InputError if the corpus is another one than before.
        """
        if isinstance(corpus, DocumentFiles):
            corpus.silence()
        texts, done, place = SpooledIds(), 0, 0
        for batch in corpus.batches(self.projection) if len(rows) else ():
            end = int(np.searchsorted(rows, done + len(batch.flags)))
            if end > place:
                wanted = rows[place:end].astype(np.intp) - done
                texts.add(StringColumn.from_strings(list(map(_clean, self._texts(batch, wanted)))))
                place = end
            done += len(batch.flags)
            self.resources.report("reading texts", done)
        if len(rows):
            corpus.check_unchanged()
        if place < len(rows):
            raise _changed_error(corpus)
        texts.finish()
        return texts

    def _texts(self, batch: Batch, places: Words | Any) -> list[str]:
        """Return the texts of some rows of a batch."""
        assert batch.texts is not None
        flags = batch.flags
        if not flags[places].all():
            raise InputError("the input changed while it was read: a row has no text now")
        numbers = (np.cumsum(flags) - 1)[places]
        if batch.text_of_row is not None:
            numbers = batch.text_of_row[numbers]
        values = [batch.texts[number] for number in numbers.tolist()]
        if isinstance(self.fingerprinter, MainText):
            return main_texts(values, self.fingerprinter.extractor)
        parts = [[value] if isinstance(value, str) else value for value in values]
        return [" ".join(map(self._shown, filter(None, texts))) for texts in parts]

    def _shown(self, text: str) -> str:
        """Return a text as it is compared: a page among texts without its tags."""
        is_plain = not isinstance(self.fingerprinter, PlainPages) or not is_page(text)
        return text if is_plain else without_tags(text)


def read_excerpts(
    pairs: Pairs,
    reader: TextReader,
    characters: int,
    corpus: RowSource,
    reference: RowSource | None,
) -> Excerpts:
    """Return excerpts of up to some characters of the texts of pairs.

    What stays in a store has no text: its excerpt is empty.
    """
    own = np.unique(np.concatenate([pairs.rows, pairs.kept_rows[~pairs.in_reference]]))
    texts: IdLookup = reader.read(corpus, own)
    places = np.searchsorted(own, pairs.rows).astype(np.uint64)
    kept_places = np.searchsorted(own, pairs.kept_rows).astype(np.uint64)
    in_corpus = pairs.in_reference & ~pairs.in_store
    other = np.unique(pairs.kept_rows[in_corpus])
    if reference is not None:
        texts = ChainedIds(texts, reader.read(reference, other), len(own))
    texts = ChainedIds(texts, InMemoryIds([""]), len(own) + len(other))
    numbers = np.searchsorted(other, pairs.kept_rows[in_corpus])
    kept_places[in_corpus] = np.uint64(len(own)) + numbers.astype(np.uint64)
    kept_places[pairs.in_store] = len(own) + len(other)
    excerpts, kept_excerpts = SpooledIds(), SpooledIds()
    for _, columns in ids_in_slices([(texts, places), (texts, kept_places)]):
        cut = [cut_pair(str(a), str(b), characters) for a, b in zip(*columns, strict=True)]
        for spooled, column in ((excerpts, 0), (kept_excerpts, 1)):
            spooled.add(StringColumn.from_strings([pair[column] for pair in cut]))
    for spooled in (excerpts, kept_excerpts):
        spooled.finish()
    return Excerpts(excerpts, kept_excerpts)


def cut_pair(text: str, kept_text: str, characters: int) -> tuple[str, str]:
    """Return up to some characters of two texts, from a little before where they differ on.

    Equal texts are cut at the start. An ellipsis stands for what is left out.
    """
    same = 0 if text == kept_text else _same_characters(text, kept_text)
    start = max(same - min(BEFORE, characters // 4), 0)
    if start:
        word = text.find(" ", start, same)
        start = start if word < 0 else word + 1
    return cut_text(text, start, characters), cut_text(kept_text, start, characters)


def _same_characters(a: str, b: str) -> int:
    """Return how many characters two texts begin with alike."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _clean(text: str) -> str:
    return " ".join(text.split()).encode("utf-8", "replace").decode()


def _changed_error(corpus: RowSource) -> InputError:
    return InputError(f"{corpus.label}: changed while it was read: it has fewer rows than before")
