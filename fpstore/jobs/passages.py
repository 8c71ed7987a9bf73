"""Repeated passages: runs of words or bytes that occur twice are found exactly, and cut.

A word that white space separates, or a byte, is a *unit*. A *window* is a run of as many units as a
passage has at least; a *gram* is about half as long.

1. The first reading hashes grams, such that every window has one. Grams that occur once cannot lie
   in a repeated window.
2. The second reading hashes the windows around the other grams, with 122 bits. Windows with equal
   keys are equal.
3. A window that is not the first of its key occurs before. What goes is what these windows cover.
4. The third reading cuts texts.

All rows of keys and places are sorted within the memory budget.
"""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Array, Flags, Lims, Words
from fpstore.base.arguments import check_choice, check_flag, check_number, check_whole
from fpstore.base.arrays import is_run_start, list_lims, list_numbers
from fpstore.base.characters import LINE_END, is_blank
from fpstore.base.keywords import keyword
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.building.columns import SortedRows
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import SpilledNumbers, array_on_disk
from fpstore.errors import InputError, plural, show
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.scores import NULL, concatenate_keys, ranks_of_keys, rows_of_keys
from fpstore.io.source import Batch, Projection, RowSource
from fpstore.io.tables import Tabular, arrow_table
from fpstore.jobs.editing import edited_column, write_edits
from fpstore.jobs.outputs import Listing, Outputs
from fpstore.jobs.row_set import SpooledIds
from fpstore.query.id_lookup import IdLookup, InMemoryIds, ids_in_slices

USUAL_WORDS = 50
MAX_UNITS = 1 << 20  # of a window
KEEP_PASSAGES = ("first", "longest", "highest")
WAITING_BATCHES = 4  # for each thread
EXCERPT_BYTES = 80
_LINE_END = re.compile(LINE_END)


class RemovedPassages(Tabular):
    """The passages that :func:`fpstore.remove_passages` removed, in the order of the corpus.

    Attributes
    ----------
    rows : ndarray of uint64, shape (n,)
        The number of the row, or file, from 0 over all files.
    starts, ends : ndarray of uint64, shape (n,)
        What was removed of the text: ``text[start:end]``, without white space around it.
    lengths : ndarray of uint64, shape (n,)
        The words, or bytes, of the passage.
    occurrences : ndarray of uint64, shape (n,)
        How often the corpus has the most frequent of its runs that occur before.
    """

    def __init__(
        self,
        rows: Words,
        starts: Words,
        ends: Words,
        lengths: Words,
        occurrences: Words,
        excerpts: npt.NDArray[np.bytes_],
        ids: tuple[IdLookup, Words],
        unit: str,
    ) -> None:
        self.rows, self.starts, self.ends = rows, starts, ends
        self.lengths, self.occurrences = lengths, occurrences
        self._excerpts, self._ids, self._unit = excerpts, ids, unit

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 rows.

        They are ``row``, ``id``, ``start``, ``end``, ``words`` or ``bytes``, ``occurrences``, and
        ``text``, which has the first 80 bytes of the passage.
        """
        for rows, (ids,) in ids_in_slices([self._ids]):
            columns = (
                self.rows[rows],
                ids,
                *(
                    np.array(column[rows])
                    for column in (self.starts, self.ends, self.lengths, self.occurrences)
                ),
                [text.decode() for text in self._excerpts[rows].tolist()],
            )
            yield dict(zip(passage_columns(self._unit), columns, strict=True))

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return the columns as a ``pyarrow.Table``, as :meth:`fpstore.Matches.to_arrow` does."""
        return arrow_table(self.batches(), names)

    def __repr__(self) -> str:
        return f"<fpstore.RemovedPassages: {len(self):,} rows>"


def passage_columns(unit: str) -> tuple[str, ...]:
    """Return the columns of a list of passages; ``unit`` is "words" or "bytes"."""
    return ("row", "id", "start", "end", unit, "occurrences", "text")


class Passages(NamedTuple):
    """The result of :func:`fpstore.remove_passages`.

    Attributes
    ----------
    documents : int
        Rows, or files, of the corpus.
    short : int
        Documents with fewer words, or bytes, than a passage has.
    longest : int
        The words, or bytes, of the longest document.
    changed : int
        Documents that lost a passage, dropped ones too.
    dropped : int
        Documents that went whole.
    removed_passages : int
        Passages that were removed.
    removed_bytes : int
        The bytes of texts that were removed, in UTF-8.
    temporary_bytes : int
        The bytes of all rows that were sorted: temporary files take no more.
    removed : RemovedPassages
        The passages that were removed; ``to_arrow`` makes a table.
    table : pyarrow.Table or None
        The remaining rows of a table in memory; None for files.
    """

    documents: int
    short: int
    longest: int
    changed: int
    dropped: int
    removed_passages: int
    removed_bytes: int
    temporary_bytes: int
    removed: RemovedPassages
    table: Any = None

    @property
    def kept(self) -> int:
        """Documents that remain."""
        return self.documents - self.dropped

    def __repr__(self) -> str:
        changed = (
            f"{self.changed:,} of {plural(self.documents, 'document')} changed, {self.dropped:,} "
            "of them dropped"
        )
        return f"<fpstore.Passages: {changed}, {self.removed_bytes:,} bytes removed>"


@dataclass(frozen=True)
class PassageJob:
    """What a passage is, which documents come first, and what becomes of later occurrences.

    ``size`` units are a window. Documents of which more than ``drop_above`` occurs before go whole
    in place of cuts; None: passages are cut.
    """

    projection: Projection
    unit: str
    size: int
    keep: str
    drop_above: float | None
    whole_lines: bool

    @property
    def in_words(self) -> bool:
        return self.unit == "words"

    @property
    def gram(self) -> int:
        """The units of a gram: half of a window, so that few grams are hashed for each window."""
        return self.size // 2 + 1 if self.size > 2 else self.size


def passage_job(
    text: str | bool,
    words: int | None,
    bytes: int | None,
    keep: str,
    score: str | None,
    id: str | None,
    drop_above: float | None,
    whole_lines: bool,
) -> PassageJob:
    """Check the arguments of :func:`fpstore.remove_passages`; InputError if one is wrong."""
    projection = edited_column(text)
    if words is not None and bytes is not None:
        raise InputError(
            f"a passage has a length in words or in bytes: give {keyword('words')} or "
            f"{keyword('bytes')}"
        )
    unit = "words" if bytes is None else "bytes"
    size = check_whole(
        bytes if bytes is not None else USUAL_WORDS if words is None else words, 1, MAX_UNITS, unit
    )
    check_choice(keep, KEEP_PASSAGES, "keep")
    for argument, name in {"score": score, "id": id}.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(
                f"{argument} must be the name of a column, got {show(name)}",
                got=name,
                argument=argument,
            )
        if name is not None and text is True:
            raise InputError("files that are texts have no columns: their ids are their paths")
    if (keep == "highest") != (score is not None):
        raise InputError(
            f"{keyword('keep', 'highest')} needs {keyword('score')}, and {keyword('score')} needs "
            f"{keyword('keep', 'highest')}"
        )
    if drop_above is not None:
        check_number(drop_above, 0, 1, "drop_above")
    if check_flag(whole_lines, "whole_lines") and drop_above is not None:
        raise InputError(
            f"{keyword('drop_above')} cuts nothing, so {keyword('whole_lines', True)} does not go "
            "with it"
        )
    if id is not None:
        projection = replace(projection, id=id)
    return PassageJob(replace(projection, score=score), unit, size, keep, drop_above, whole_lines)


class _Documents:
    """The rows of the corpus: where the units of each start, and which go before others.

    Row i has the units ``lims[i]:lims[i + 1]``. Without ``ranks``, rows are in the order of the
    rule.
    """

    def __init__(self, sizes: Sequence[Words], ids: SpooledIds | None, known: Flags) -> None:
        self.lims: Lims = list_lims(np.concatenate([np.empty(0, np.uint64), *sizes]))
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


def _encoded(batch: Batch) -> tuple[bytes, Words]:
    """Return the texts of a batch's rows in UTF-8, and their lims."""
    texts = [text.encode("utf-8", "surrogatepass") for text in batch.row_texts()]
    lims = list_lims(np.fromiter(map(len, texts), np.int64, len(texts)))
    return b"".join(texts), lims.view(np.uint64)


class PassageSearch:
    """Finds the repeated windows of a corpus, in bounded memory.

    ``temporary_bytes`` counts the bytes of all rows that are sorted.
    """

    def __init__(self, corpus: RowSource, job: PassageJob, resources: Resources) -> None:
        self._corpus, self._job, self._resources = corpus, job, resources
        self.temporary_bytes = 0

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

    def read_grams(self) -> tuple[_Documents, Sorter]:
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
        documents = _Documents(sizes, ids, np.concatenate(known))
        if job.keep == "longest":
            documents.ranks = ~np.concatenate(sizes)
        elif job.keep == "highest":
            documents.ranks = ranks_of_keys(concatenate_keys(scores))
        return documents, grams

    def repeated_places(self, grams: Sorter) -> Sorter:
        """Return the places of grams that occur more than once, to sort."""
        places = self._sorter(4, grams.rows)
        for part in self._groups(grams, "sorting"):
            if part.per_key is not None:
                sizes = part.per_key.view(np.int64)
                places.add(part.ids[np.repeat(sizes > 1, sizes)].astype(np.uint64), None)
        return places

    def read_windows(self, documents: _Documents, places: Sorter) -> Sorter:
        """Read the corpus again, and return the windows around grams at some places, to sort."""
        job = self._job
        if isinstance(self._corpus, DocumentFiles):
            self._corpus.silence()
        most = min(places.rows * (job.size - job.gram + 1), int(documents.lims[-1]))
        windows = self._sorter(2, most, words=2)
        stream = _Ascending(part.keys for part in self._groups(places, "sorting places"))

        def batches() -> Iterator[tuple[Batch, int, Words]]:
            start = 0
            for batch in self._corpus.batches(job.projection):
                end = start + len(batch.flags)
                if end > len(documents):
                    raise InputError(f"{self._corpus.label}: changed while it was read")
                first, last = (int(documents.lims[row]) for row in (start, end))
                yield batch, first, stream.take(last) - np.uint64(first)
                start = end
                self._resources.report("reading again", end, len(documents))

        def work(item: tuple[Batch, int, Words]) -> tuple[Words, Words, Words] | None:
            batch, _, chosen = item
            if not len(chosen):
                return None
            return _kernel.window_keys(*_encoded(batch), job.in_words, job.size, job.gram, chosen)

        for (_, first, _), result in map_in_order(
            work, batches(), self._resources.threads, WAITING_BATCHES
        ):
            if result is None:
                continue
            keys, window_places, _ = result
            windows.add(keys, window_places + np.uint64(first))
        self._corpus.check_unchanged()
        return windows

    def later_windows(
        self, windows: Sorter, documents: _Documents
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
        self._parts, self._part = parts, np.empty(0, np.uint64)

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
    unended = [np.empty(0, np.uint64)] * 3  # the start of the last run, its last window, its most
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


class PassageEdit:
    """Cuts repeated passages out of texts, or drops documents, and notes what goes.

    Threads edit different rows.
    """

    def __init__(self, job: PassageJob, documents: _Documents, runs: Runs) -> None:
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
        self._excerpts = array_on_disk((count,), f"S{EXCERPT_BYTES}")
        self._lock = threading.Lock()
        self.changed = self.dropped = self.removed_bytes = 0

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
        goes = new is None or (bool(cuts) and is_blank(new))
        lost = _utf8_size(text) - (0 if new is None or goes else _utf8_size(new))
        with self._lock:
            self.changed += goes or new != text
            self.dropped += goes
            self.removed_bytes += lost
        return None if goes else new

    def _cuts(self, row: int, text: Any) -> list[tuple[int, int, int, int]]:
        """Return the characters of each passage: start and end, and those with white space."""
        first, behind = self._documents.lims[row : row + 2].tolist()
        units = behind - first
        runs = slice(*self._runs.lims[row : row + 2].tolist())
        starts, ends = (column[runs] - np.uint64(first) for column in self._runs[1:3])
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""
        if not self._job.in_words:
            if len(data) != units:
                raise InputError(f"row {row + 1:,} changed while it was read")
            first, last = _whole_characters(data, starts, ends)
            return list(zip(first, last, first, last, strict=True))
        last_unit, one = np.uint64(units - 1), np.uint64(1)
        words = np.stack(
            [starts - np.minimum(starts, one), starts, ends - one, np.minimum(ends, last_unit)],
            axis=1,
        )
        word_starts, word_ends, count = _kernel.word_bounds(data, words.reshape(-1))
        if count != units:
            raise InputError(f"row {row + 1:,} changed while it was read")
        word_starts, word_ends = word_starts.reshape(-1, 4), word_ends.reshape(-1, 4)
        # the passage, from the end of the word before to the start of the word behind
        before = np.where(starts > 0, word_ends[:, 0], 0).astype(np.uint64)
        behind = np.where(ends <= last_unit, word_starts[:, 3], len(data)).astype(np.uint64)
        bounds = np.stack([word_starts[:, 1], word_ends[:, 2], before, behind], axis=1)
        return [tuple(cut) for cut in _characters(data, bounds).tolist()]

    def _note(self, row: int, text: str, cuts: list[tuple[int, int, int, int]]) -> None:
        first = int(self._runs.lims[row])
        for place, (start, end, *_) in enumerate(cuts, first):
            excerpt = text[start : min(end, start + EXCERPT_BYTES)].encode("utf-8", "replace")
            self._starts[place], self._ends[place] = start, end
            self._excerpts[place] = excerpt[:EXCERPT_BYTES].decode("utf-8", "ignore").encode()

    def passages(self) -> RemovedPassages:
        """Return the removed passages, when all rows are edited."""
        rows = list_numbers(self._runs.lims)
        listed = np.flatnonzero(self._touched[rows] & (self._ends > self._starts))
        numbers = rows[listed].astype(np.uint64)
        return RemovedPassages(
            numbers,
            self._starts[listed],
            self._ends[listed],
            (self._runs.ends[listed] - self._runs.starts[listed]),
            self._runs.occurrences[listed],
            self._excerpts[listed],
            self._documents.id_numbers(numbers),
            self._job.unit,
        )

    def result(self, temporary_bytes: int, table: Any) -> Passages:
        """Return the counts, with a table of remaining rows, when all rows are edited."""
        sizes, removed = np.diff(self._documents.lims), self.passages()
        return Passages(
            self.rows,
            int(np.count_nonzero(sizes < self._job.size)),
            int(sizes.max()),
            self.changed,
            self.dropped,
            len(removed),
            self.removed_bytes,
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


def _characters(data: bytes, places: Array) -> npt.NDArray[np.int64]:
    """Return places of bytes as places of characters."""
    if data.isascii():
        return places.astype(np.int64)
    later_bytes = np.flatnonzero((np.frombuffer(data, np.uint8) & 0xC0) == 0x80)
    return places.astype(np.int64) - np.searchsorted(later_bytes, places.view(np.int64))


def _whole_characters(data: bytes, starts: Words, ends: Words) -> tuple[list[int], list[int]]:
    """Return the characters that lie in spans of bytes, as their starts and ends."""
    first, last = _characters(data, starts), _characters(data, ends)
    if not data.isascii():
        padded = np.append(np.frombuffer(data, np.uint8), [0])
        last -= (padded[ends] & 0xC0) == 0x80  # the end cuts a character
    return first.tolist(), np.maximum(first, last).tolist()


def _utf8_size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


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
    outputs = Outputs(corpus, output, listings, overwrite)
    corpus.resolve_columns(job.projection)
    with ExitStack() as stack:
        outputs.open_lists(stack)
        corpus.limit_memory(resources.memory)
        search = PassageSearch(corpus, job, resources)
        documents, grams = search.read_grams()
        windows = search.read_windows(documents, search.repeated_places(grams))
        later = search.later_windows(windows, documents)
        edit = PassageEdit(job, documents, join_windows(later, documents.lims, job.size))
        table = write_edits(corpus, job.projection, edit, outputs, output, resources)
    return edit.result(search.temporary_bytes, table)
