"""Windows that occur before, found exactly, and the runs that they cover.

A word that white space separates, or a byte, is a *unit*. A *window* is a run of as many units as a
passage has at least; a *gram* is about half as long.

1. The first reading hashes grams, such that every window has one. Grams that occur once cannot lie
   in a repeated window.
2. The second reading hashes the windows around the other grams, with 122 bits. Windows with equal
   keys are equal.
3. A window that is not the first of its key occurs before. These windows are joined to runs.

All rows of keys and places are sorted within the memory budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Array, Flags, Lims, Words
from fpstore.base.arrays import NO_WORDS, is_run_start, list_lims, list_numbers
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.base.strings import Encoded, encoded
from fpstore.building.columns import SortedRows
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.scores import NULL, concatenate_keys, ranks_of_keys, rows_of_keys
from fpstore.io.source import Batch, RowSource
from fpstore.jobs.passage_job import PassageJob
from fpstore.jobs.row_set import SpooledIds
from fpstore.query.id_lookup import IdLookup, InMemoryIds

WAITING_BATCHES = 4  # for each thread
PLACES_AT_ONCE = 1 << 20  # of the windows that one call makes: a text may be long


class PassageDocuments:
    """The rows of the corpus: where the units of each start, and which go before others.

    Row i has the units ``lims[i]:lims[i + 1]``. Without ``ranks``, rows are in the order of the
    rule.
    """

    def __init__(self, sizes: Sequence[Words], ids: SpooledIds | None, known: Flags) -> None:
        self.lims: Lims = list_lims(np.concatenate([NO_WORDS, *sizes]))
        self.ranks: Words | None = None
        self._ids, self._known = ids, known

    def __len__(self) -> int:
        return len(self.lims) - 1

    def id_numbers(self, rows: Words) -> tuple[IdLookup, Words]:
        """Return the ids of rows that have a text: their numbers without a column of ids."""
        if self._ids is None:
            return InMemoryIds(rows), np.arange(len(rows), dtype=np.uint64)
        before = np.cumsum(self._known) - 1
        return self._ids, before[rows.view(np.int64)].astype(np.uint64)

    def rank_of(self, places: Words) -> Words | None:
        """Return the ranks of the documents that some units are in."""
        if self.ranks is None:
            return None
        rows = np.searchsorted(self.lims, places.view(np.int64), side="right") - 1
        ranks: Words = self.ranks[rows]
        return ranks


class Runs(NamedTuple):
    """Runs of units that occur before, ascending. Row i has the runs ``lims[i]:lims[i + 1]``.

    ``starts`` and ``ends`` count the units of the corpus.
    """

    lims: Lims
    starts: Words
    ends: Words
    occurrences: Words


def join_windows(windows: Iterator[tuple[Words, Array]], lims: Lims, size: int) -> Runs:
    """Return the runs that windows cover. The windows come as ascending places and frequencies.

    Row i of the corpus has the units ``lims[i]:lims[i + 1]``.
    """
    columns = [SpilledNumbers(np.uint64) for _ in range(3)]
    unended = [NO_WORDS] * 3  # the start of the last run, its last window, its most
    for part in windows:
        places, frequencies = (
            np.concatenate([before, values.astype(np.uint64)])
            for before, values in zip(unended[1:], part, strict=True)
        )
        if not len(places):
            continue
        rows = np.searchsorted(lims, places.view(np.int64), side="right")
        begins = np.ones(len(places), bool)
        begins[1:] = (np.diff(places) > size) | (np.diff(rows) > 0)
        firsts = np.flatnonzero(begins)
        starts = places[firsts]
        starts[: len(unended[0])] = unended[0]
        lasts = places[np.append(firsts[1:], len(places)) - 1]
        runs = starts, lasts, np.maximum.reduceat(frequencies, firsts)
        unended = [values[-1:] for values in runs]
        _add_runs(columns, [values[:-1] for values in runs], size)
    _add_runs(columns, unended, size)
    starts, ends, occurrences = (column.finish() for column in columns)
    return Runs(np.searchsorted(starts, lims.view(np.uint64)), starts, ends, occurrences)


def _add_runs(columns: list[SpilledNumbers], runs: Sequence[Words], size: int) -> None:
    starts, lasts, occurrences = runs
    for column, values in zip(columns, (starts, lasts + np.uint64(size), occurrences), strict=True):
        column.append(values)


class PassageSearch:
    """Finds the runs of a corpus that occur before, in bounded memory.

    ``temporary_bytes`` counts the bytes of all rows that are sorted.
    """

    def __init__(self, corpus: RowSource, job: PassageJob, resources: Resources) -> None:
        self._corpus, self._job, self._resources = corpus, job, resources
        self.temporary_bytes = 0

    def find(self) -> tuple[PassageDocuments, Runs]:
        """Read the corpus twice, and return its documents and the runs."""
        documents, grams = self._read_grams()
        windows = self._read_windows(documents, self._repeated_places(grams))
        later = self._later_windows(windows, documents)
        return documents, join_windows(later, documents.lims, self._job.size)

    def _sorter(self, share: int, rows: int | None = None, words: int = 1) -> Sorter:
        memory = self._resources.memory // share
        return Sorter(memory, None, rows, words, self._resources.threads)

    def _groups(self, sorter: Sorter, phase: str, words: int = 1) -> Iterator[SortedRows]:
        number_bytes = 4 if sorter.rows < 1 << 32 else 8
        self.temporary_bytes += sorter.rows * (8 * words + number_bytes)
        done = 0

        def tick(rows: int) -> None:
            nonlocal done
            done += rows
            self._resources.report(phase, done, sorter.rows)

        return sorter.groups(tick)

    def _read_grams(self) -> tuple[PassageDocuments, Sorter]:
        """Read the corpus, and return its documents, and their grams to sort."""
        job, projection = self._job, self._job.projection
        grams, sizes, known = self._sorter(2), list[Words](), list[Flags]()
        ids = None if projection.id is None else SpooledIds()
        scores, count, done = list[Words](), 0, 0

        def work(batch: Batch) -> tuple[Words, Words, Words]:
            return _kernel.choose_grams(*_encoded(batch), job.in_words, job.size, job.gram)

        for batch, (hashes, places, units) in map_in_order(
            work, self._corpus.batches(projection), self._resources.threads, WAITING_BATCHES
        ):
            grams.add(hashes, places + np.uint64(count))
            row_units = np.zeros(len(batch.flags), np.uint64)
            row_units[batch.flags] = units
            sizes.append(row_units)
            known.append(batch.flags)
            count += int(units.sum())
            if ids is not None:
                ids.add(self._corpus.check_ids_writable(batch))
            if batch.scores is not None:
                scores.append(_row_scores(batch.scores, batch.flags))
            done += len(row_units)
            self._resources.report("reading", done)
        if not done:
            raise InputError(f"{self._corpus.label}: no rows")
        if ids is not None:
            ids.finish()
        documents = PassageDocuments(sizes, ids, np.concatenate(known))
        if job.keep == "longest":
            documents.ranks = ~np.concatenate(sizes)
        elif job.keep == "highest":
            documents.ranks = ranks_of_keys(concatenate_keys(scores))
        return documents, grams

    def _repeated_places(self, grams: Sorter) -> Sorter:
        """Return the places of grams that occur more than once, to sort."""
        places = self._sorter(4, grams.rows)
        for part in self._groups(grams, "sorting"):
            if part.per_key is not None:
                sizes = part.per_key.view(np.int64)
                places.add(part.ids[np.repeat(sizes > 1, sizes)].astype(np.uint64), None)
        return places

    def _read_windows(self, documents: PassageDocuments, places: Sorter) -> Sorter:
        """Read the corpus again, and return the windows around grams at some places, to sort."""
        job = self._job
        if isinstance(self._corpus, DocumentFiles):
            self._corpus.silence()
        most = min(places.rows * (job.size - job.gram + 1), int(documents.lims[-1]))
        windows = self._sorter(2, most, words=2)
        stream = _Ascending(part.keys for part in self._groups(places, "sorting places"))

        def batches() -> Iterator[tuple[Encoded, int, Words]]:
            start = 0
            for batch in self._corpus.batches(job.projection):
                end = start + len(batch.flags)
                if end > len(documents):
                    raise InputError(f"{self._corpus.label}: changed while it was read")
                first, last = (int(documents.lims[row]) for row in (start, end))
                texts = None
                for place in range(first, last, PLACES_AT_ONCE):
                    gram_places = stream.take(min(place + PLACES_AT_ONCE, last))
                    if len(gram_places):
                        texts = _encoded(batch) if texts is None else texts
                        yield texts, first, gram_places - np.uint64(first)
                start = end
                self._resources.report("reading again", end, len(documents))

        def work(item: tuple[Encoded, int, Words]) -> tuple[Words, Words, Words]:
            texts, _, gram_places = item
            return _kernel.window_keys(*texts, job.in_words, job.size, job.gram, gram_places)

        done = 0
        for (_, first, _), (keys, places_of_texts, _) in map_in_order(
            work, batches(), self._resources.threads, WAITING_BATCHES
        ):
            window_places = places_of_texts + np.uint64(first)
            # grams of two calls may have windows in common
            first_new = int(np.searchsorted(window_places, np.uint64(done)))
            windows.add(keys[first_new:], window_places[first_new:])
            done = int(window_places[-1]) + 1 if len(window_places) else done
        self._corpus.check_unchanged()
        return windows

    def _later_windows(
        self, windows: Sorter, documents: PassageDocuments
    ) -> Iterator[tuple[Words, Array]]:
        """Yield the places of windows that occur before, ascending, and how often each occurs."""
        later = self._sorter(4, windows.rows)
        for part in self._groups(windows, "comparing", words=2):
            if part.per_key is None:
                continue
            sizes = part.per_key.view(np.int64)
            members = part.ids[np.repeat(sizes > 1, sizes)].astype(np.uint64)
            sizes = sizes[sizes > 1]
            occurs_before = np.ones(len(members), bool)
            occurs_before[_first_members(list_lims(sizes), documents.rank_of(members))] = False
            frequencies = np.repeat(sizes, sizes)[occurs_before].view(np.uint64)
            later.add(members[occurs_before], frequencies)
        for rows in self._groups(later, "sorting passages"):
            yield rows.keys, rows.ids


def _encoded(batch: Batch) -> Encoded:
    """Return the texts of a batch's rows as the kernel takes them."""
    texts = batch.texts or () if batch.text_of_row is None else list(batch.row_texts())
    return encoded(texts)


def _row_scores(scores: Words, flags: Flags) -> Words:
    """Return the keys of the scores of all rows: null for a row that is not known."""
    if flags.all():
        return scores
    null = rows_of_keys([NULL])
    both = concatenate_keys([null, scores])
    places = np.zeros(len(flags), np.intp)
    places[flags] = np.arange(1, len(both))
    rows: Words = both[places]
    return rows


def _first_members(lims: Lims, ranks: Words | None) -> npt.NDArray[np.int64]:
    """Return for each group the place of its first member: of the least rank, then the first."""
    if ranks is None or len(lims) == 1:
        return lims[:-1]
    least = np.minimum.reduceat(ranks, lims[:-1])
    owners = list_numbers(lims)
    places = np.flatnonzero(ranks == least[owners])
    firsts: npt.NDArray[np.int64] = places[is_run_start(owners[places])]
    return firsts


class _Ascending:
    """Hands out ascending numbers, which come in parts, up to bounds."""

    def __init__(self, parts: Iterator[Words]) -> None:
        self._parts, self._part = parts, NO_WORDS

    def take(self, bound: int) -> Words:
        """Return the next numbers below the bound."""
        taken = list[Words]()
        while True:
            end = int(np.searchsorted(self._part, np.uint64(bound)))
            taken.append(self._part[:end])
            self._part = self._part[end:]
            part = None if len(self._part) else next(self._parts, None)
            if part is None:
                return np.concatenate(taken)
            self._part = part
