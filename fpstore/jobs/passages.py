"""Repeated passages: runs of words or bytes that occur before are cut out of texts."""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import list_numbers
from fpstore.base.characters import LINE_END
from fpstore.base.resources import Resources
from fpstore.base.strings import character_places
from fpstore.disk.temporary import array_on_disk
from fpstore.io.source import RowSource
from fpstore.jobs.editing import EditCounts, changed_row_error, edit_corpus
from fpstore.jobs.outputs import Listing
from fpstore.jobs.passage_job import PassageJob
from fpstore.jobs.passage_windows import PassageDocuments, PassageSearch, Runs
from fpstore.jobs.removed_passages import (
    EXCERPT_TYPE,
    Passages,
    RemovedPassages,
    pack_excerpt,
)

_LINE_END = re.compile(LINE_END)


class PassageEdit:
    """Cuts repeated passages out of texts, or drops documents, and notes what goes.

    Threads edit different rows.
    """

    def __init__(self, job: PassageJob, documents: PassageDocuments, runs: Runs) -> None:
        self._job, self._documents, self._runs = job, documents, runs
        self.rows = len(documents)
        self._touched = np.diff(runs.lims) > 0
        if job.drop_above is not None:
            owners = list_numbers(runs.lims)
            copied = np.zeros(self.rows, np.int64)
            np.add.at(copied, owners, (runs.ends - runs.starts).view(np.int64))
            self._touched &= copied > job.drop_above * np.diff(documents.lims)
        count = len(runs.starts)
        self._starts, self._ends = (array_on_disk((count,), np.uint64) for _ in range(2))
        self._sizes = array_on_disk((count,), np.uint64)  # of what goes, in words or bytes
        self._excerpts = array_on_disk((count,), EXCERPT_TYPE)
        self._counts = EditCounts()

    def changed_rows(self, rows: slice) -> Flags:
        """Return which rows may lose a passage."""
        return self._touched[rows]

    def edit_text(self, row: int, text: Any) -> str | None:
        """Return the text of a row without repeated passages; None if nothing remains.

        InputError if the text has changed since the first reading.
        """
        cuts = self._cuts(row, text)
        if self._job.whole_lines:
            cuts = _whole_lines(text, cuts)
        self._note(row, text, cuts)
        new = None
        if self._job.drop_above is None:
            new = "".join(text[start:end] for start, end in _remaining(text, cuts))
        return self._counts.add(text, new)

    def _cuts(self, row: int, text: Any) -> list[tuple[int, int, int, int]]:
        """Return the characters of each passage: start and end, and those with white space."""
        first, behind = self._documents.lims[row : row + 2].tolist()
        units = behind - first
        runs = slice(*self._runs.lims[row : row + 2].tolist())
        starts, ends = (column[runs] - np.uint64(first) for column in self._runs[1:3])
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
        if not self._job.in_words:
            if len(data) != units:
                raise changed_row_error(row)
            first, last = _whole_characters(data, starts, ends)
            return list(zip(first, last, first, last, strict=True))
        last_unit, one = np.uint64(units - 1), np.uint64(1)
        words = np.stack(
            [starts - np.minimum(starts, one), starts, ends - one, np.minimum(ends, last_unit)],
            axis=1,
        )
        word_starts, word_ends, count = _kernel.word_bounds(data, words.reshape(-1))
        if count != units:
            raise changed_row_error(row)
        word_starts, word_ends = word_starts.reshape(-1, 4), word_ends.reshape(-1, 4)
        # the passage, from the end of the word before to the start of the word behind
        before = np.where(starts > 0, word_ends[:, 0], 0).astype(np.uint64)
        behind = np.where(ends <= last_unit, word_starts[:, 3], len(data)).astype(np.uint64)
        bounds = np.stack([word_starts[:, 1], word_ends[:, 2], before, behind], axis=1)
        return [tuple(cut) for cut in character_places(data, bounds).tolist()]

    def _note(self, row: int, text: str, cuts: list[tuple[int, int, int, int]]) -> None:
        first = int(self._runs.lims[row])
        for place, (start, end, *_) in enumerate(cuts, first):
            self._starts[place], self._ends[place] = start, end
            self._excerpts[place] = pack_excerpt(text[start:end])
            self._sizes[place] = self._size(text, place, start, end)

    def _size(self, text: str, place: int, start: int, end: int) -> int:
        if not self._job.whole_lines:
            return int(self._runs.ends[place] - self._runs.starts[place])
        part = text[start:end]
        return len(part.split() if self._job.in_words else part.encode("utf-8", "surrogatepass"))

    def passages(self) -> RemovedPassages:
        """Return the removed passages, when all rows are edited."""
        rows = list_numbers(self._runs.lims)
        listed = np.flatnonzero(self._touched[rows] & (self._ends > self._starts))
        numbers = rows[listed].astype(np.uint64)
        return RemovedPassages(
            numbers,
            self._starts[listed],
            self._ends[listed],
            self._sizes[listed],
            self._runs.occurrences[listed],
            self._excerpts[listed],
            self._documents.id_numbers(numbers),
            self._job.unit,
        )

    def result(self, temporary_bytes: int, table: Any) -> Passages:
        """Return the counts, with a table of remaining rows, when all rows are edited."""
        sizes, removed, counts = np.diff(self._documents.lims), self.passages(), self._counts
        return Passages(
            self.rows,
            int(np.count_nonzero(sizes < self._job.size)),
            int(sizes.max()),
            counts.changed,
            counts.dropped,
            len(removed),
            counts.removed_bytes,
            temporary_bytes,
            removed,
            table,
        )


def _remaining(text: str, cuts: list[tuple[int, int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what stays of a text as spans of characters."""
    done = 0
    for start, end, before, behind in cuts:
        if 0 < before < start and end < behind < len(text):
            # Of the white space on both sides, that with more line ends stays.
            left, right = (
                len(_LINE_END.findall(text, *place)) for place in ((before, start), (end, behind))
            )
            start, end = (before, end) if right > left else (start, behind)
        elif end < behind < len(text):  # at the start of the text
            end = behind
        elif 0 < before < start:  # at its end
            start = before
        yield done, start
        done = end
    yield done, len(text)


def _whole_lines(
    text: str, cuts: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return the parts of passages that are whole lines with words, and what is between them.

    Some are empty.
    """
    lims = [0, *(end.end() for end in _LINE_END.finditer(text)), len(text)]

    def is_blank_between(start: int, end: int) -> bool:
        return not text[start:end].strip()

    parts = []
    for start, end, *_ in cuts:
        first = bisect_right(lims, start) - 1
        first += not is_blank_between(lims[first], start)
        last = bisect_left(lims, end)
        last -= not is_blank_between(end, lims[last])
        while first < last and is_blank_between(lims[first], lims[first + 1]):
            first += 1
        while first < last and is_blank_between(lims[last - 1], lims[last]):
            last -= 1
        part = (lims[first], lims[max(first, last)])
        parts.append((*part, *part))
    return parts


def _whole_characters(data: bytes, starts: Words, ends: Words) -> tuple[list[int], list[int]]:
    """Return the characters that lie in spans of bytes, as their starts and ends."""
    first, last = character_places(data, starts), character_places(data, ends)
    if not data.isascii():
        padded = np.append(np.frombuffer(data, np.uint8), [0])
        last -= (padded[ends] & 0xC0) == 0x80  # the end cuts a character
    return first.tolist(), np.maximum(first, last).tolist()


def remove_corpus_passages(
    corpus: RowSource,
    job: PassageJob,
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    listings: Sequence[Listing] = (),
) -> Passages:
    """Remove repeated passages; without an output, only count.

    An error of a path comes before the work. Listings are of the `PassageEdit`.
    """
    search = PassageSearch(corpus, job, resources)
    edit, table = edit_corpus(
        corpus,
        job.projection,
        lambda: PassageEdit(job, *search.find()),
        resources,
        output,
        overwrite,
        listings,
    )
    return edit.result(search.temporary_bytes, table)
