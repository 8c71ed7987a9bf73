"""Decontamination: removes rows that share n-grams with a benchmark, or are near its rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arguments import check_choice, check_number, check_whole
from fpstore.base.arrays import list_lims, lists_at
from fpstore.base.keywords import keyword
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.disk.temporary import SpilledNumbers
from fpstore.errors import InputError, plural
from fpstore.hashing.fields import check_fields
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.page_text import check_extractor
from fpstore.io.source import Batch, Projection, RowSource, select_ids
from fpstore.jobs import UNKNOWN
from fpstore.jobs.compared import convert_to_integers
from fpstore.jobs.hits import Bounds, Candidates, Hits
from fpstore.jobs.ngrams import (
    WAITING_BATCHES,
    Benchmark,
    Features,
    TextFeatures,
    known_hashes,
    read_benchmark,
)
from fpstore.jobs.outputs import Listing, Outputs, share_a_file
from fpstore.jobs.pairs import pairs_with
from fpstore.jobs.row_set import RowSet, SpooledIds
from fpstore.jobs.row_spec import with_columns, with_roles
from fpstore.query.id_lookup import IdLookup, InMemoryIds

USUAL_NGRAM = 13  # Brown et al., Language Models are Few-Shot Learners, 2020, appendix C
ROW_WORDS = 4  # of a fingerprint for near-duplicates


class BenchmarkCounts(NamedTuple):
    """The counts of an input of a benchmark.

    Attributes
    ----------
    name : str
        The path, or ``the table``.
    rows : int
        All rows of the input.
    not_compared : int
        Rows whose text is null or blank, or whose id is null.
    short : int
        Rows with words, but fewer than an n-gram has: only a row of the corpus with the same words,
        and no others, hits them.
    hit : int
        Rows that a row of the corpus hits.
    """

    name: str
    rows: int
    not_compared: int
    short: int
    hit: int


class Decontamination(NamedTuple):
    """The result of :func:`fpstore.decontaminate`.

    Attributes
    ----------
    kept : table or ndarray of int64
        The rows that are kept: of a table of pyarrow, Polars or pandas another one; of files, the
        numbers of the rows, from 0 in the first file on.
    hits : Hits
        Which rows of the corpus hit which rows of the benchmark; ``to_arrow`` makes a table.
    benchmarks : list of BenchmarkCounts
        Named tuples, one for each input of the benchmark: its ``name``, and how many ``rows`` it
        has; how many of them are ``not_compared``, for lack of words, or ``short``, with fewer
        words than an n-gram; and how many rows are ``hit``.
    not_compared : int
        Rows of the corpus that were not compared, because their text is null or blank, or their id
        is null.
    short : int
        Rows of the corpus with words, but fewer than an n-gram has.
    """

    kept: Any
    hits: Hits
    benchmarks: list[BenchmarkCounts]
    not_compared: int
    short: int

    def __repr__(self) -> str:
        hit = sum(counts.hit for counts in self.benchmarks)
        rows = sum(counts.rows for counts in self.benchmarks)
        corpus = f"{plural(len(self.kept), 'row')} kept, {len(self.hits.rows):,} with hits"
        return (
            f"<fpstore.Decontamination: {corpus}, {hit:,} of {plural(rows, 'row')} of the "
            "benchmark hit>"
        )


@dataclass(frozen=True)
class DecontaminationJob:
    """The columns of a corpus and a benchmark, the compared features, and the bounds of a hit.

    ``radius`` is for near-duplicates. ``unknown`` says whether to keep, drop or refuse a row that
    is not compared.
    """

    projection: Projection
    benchmark: Projection
    features: TextFeatures
    extractor: str | None
    bounds: Bounds
    radius: int
    unknown: str


def decontamination_job(
    text: Any,
    benchmark_text: Any,
    id: str | None,
    benchmark_id: str | None,
    ngram: int,
    bounds: Bounds,
    threshold: float | None,
    unknown: str,
    html: bool | str,
    roles: Any = None,
) -> DecontaminationJob:
    """Check the arguments of :func:`fpstore.decontaminate`; InputError if one is wrong."""
    columns = _text_columns(text, "text")
    benchmark_columns = columns
    if benchmark_text is not None:
        benchmark_columns = _text_columns(benchmark_text, "benchmark_text")
    corpus = with_roles(with_columns(Projection(id=id), columns, None), roles)
    benchmark = with_columns(Projection(id=benchmark_id, strict=True), benchmark_columns, None)
    ngrams = MinHash(size=check_whole(ngram, 1, 255, "ngram"))
    check_whole(bounds.least, 1, 2**63 - 1, "min_ngrams")
    check_number(bounds.least_share, 0, 1, "min_share")
    if bounds.most_rows is not None:
        check_whole(bounds.most_rows, 1, 2**63 - 1, "ignore_common")
    near = None if threshold is None else MinHash()
    radius = 0 if near is None else near.radius(check_number(threshold, 0, 1, "threshold"))
    features = TextFeatures(ngrams, near)
    check_choice(unknown, UNKNOWN, "unknown")
    return DecontaminationJob(
        corpus,
        benchmark,
        features,
        check_extractor(html),
        bounds,
        radius,
        unknown,
    )


def _text_columns(text: Any, argument: str) -> Any:
    """Return the column of texts, several columns, or True where files are texts."""
    if text is None or text is False:
        raise InputError(
            f"name the column of texts with {keyword('text')}, or give {keyword('text', True)}: "
            "each file is a text"
        )
    if isinstance(text, Mapping):
        raise InputError(
            f"{argument}: the columns of n-grams have no weights: name them alone", got=text
        )
    if text is True:
        return text
    names = tuple(check_fields(text, argument))
    return names if len(names) > 1 else names[0]


def decontaminate_corpus(
    corpus: RowSource,
    benchmarks: Sequence[tuple[str, RowSource]],
    job: DecontaminationJob,
    resources: Resources,
    output: str | os.PathLike[str] | None,
    overwrite: bool,
    *,
    listings: Sequence[Listing] = (),
) -> Decontamination:
    """Find the rows of a corpus that hit a benchmark, copy all others, and write lists.

    ``kept`` of the result has a flag for each row. Threads compare rows while others are read.
    """
    sources = [source for _, source in benchmarks]
    corpus.resolve_columns(job.projection)  # an error comes before the work
    for name, source in benchmarks:
        source.resolve_columns(job.benchmark)
        if share_a_file(corpus, source):
            raise InputError(
                f"{name}: is in the corpus and in the benchmark: every row of it would be removed"
            )
    outputs = Outputs(corpus, output, listings, overwrite, other_sources=sources)
    with ExitStack() as stack:
        outputs.open_lists(stack)
        for source in (corpus, *sources):
            source.limit_memory(resources.memory)
        benchmark = read_benchmark(benchmarks, job.benchmark, job.features, resources)
        find = partial(job.features.runs.ranks_among, known_hashes(benchmark))
        rows = _CandidateRows(job, corpus.label)
        work = partial(job.features.extract, find, job.extractor)
        for batch, features in map_in_order(
            work, corpus.batches(job.projection), resources.threads, WAITING_BATCHES
        ):
            rows.add(batch, features)
            corpus.check_ids_writable(batch)
            corpus.whole_pages += features.whole_pages
            resources.report("reading", rows.count)
        compared, candidates = rows.finish(corpus.typed)
        near = (
            None
            if job.features.near is None
            else _find_near_duplicates(candidates, benchmark, job, resources)
        )
        hits = Hits(candidates, benchmark, job.bounds, near)
        missing = rows.count - int(np.count_nonzero(compared))
        is_kept = compared if job.unknown == "drop" else np.ones(rows.count, bool)
        is_kept[hits.rows.view(np.int64)] = False
        result = Decontamination(is_kept, hits, _counts(benchmark, job, hits), missing, rows.short)
        outputs.write(result, is_kept, resources)
    return result


class _CandidateRows:
    """The rows of a corpus as they are read; rows that may hit a benchmark stay in memory."""

    def __init__(self, job: DecontaminationJob, label: str) -> None:
        self._job, self._label = job, label
        self._compared = list[Flags]()
        self._rows = list[Words]()
        self._sizes = list[npt.NDArray[np.int64]]()
        self._fingerprints, self._ids = list[Words](), SpooledIds()
        self.count = self.short = 0
        self._ranks = SpilledNumbers(np.uint32)

    def add(self, batch: Batch, features: Features) -> None:
        """Take the next rows, and the n-grams of the benchmark that they have."""
        ngrams, has_words = features.ngrams, features.ngrams.units > 0
        compared = batch.flags.copy()
        compared[batch.flags] = has_words
        if self._job.unknown == "refuse" and not compared.all():
            row = self.count + int(np.argmin(compared)) + 1
            raise InputError(f"{self._label}: row {row} has a null or blank text, or no id")
        self._compared.append(compared)
        self.short += int(
            np.count_nonzero(has_words & (ngrams.units < self._job.features.runs.size))
        )
        is_candidate = ngrams.sizes > 0
        if self._job.features.near is not None:
            is_candidate = has_words
            self._fingerprints.append(features.fingerprints[is_candidate])
        self._ids.add(select_ids(batch.ids, is_candidate))
        self._rows.append(
            (self.count + np.flatnonzero(batch.flags)[is_candidate]).astype(np.uint64)
        )
        self._sizes.append(ngrams.sizes[is_candidate])
        self._ranks.append(ngrams.features)
        self.count += len(compared)

    def finish(self, typed: bool) -> tuple[Flags, Candidates]:
        """Return a flag for each compared row, and the candidates.

        If ``typed``, ids that are strings stay strings.
        """
        if not self.count:
            raise InputError(f"{self._label}: no rows")
        self._ids.finish()
        ranks = self._ranks.finish()
        rows = np.concatenate(self._rows)
        lookup: IdLookup = self._ids if typed else convert_to_integers(self._ids)
        ids = (
            InMemoryIds(rows) if self._job.projection.id is None else lookup,
            np.arange(len(rows), dtype=np.uint64),
        )
        fingerprints = np.concatenate([np.empty((0, ROW_WORDS), np.uint64), *self._fingerprints])
        return np.concatenate(self._compared), Candidates(
            rows, list_lims(np.concatenate(self._sizes)), ranks, ids, fingerprints
        )


def _find_near_duplicates(
    candidates: Candidates, benchmark: Benchmark, job: DecontaminationJob, resources: Resources
) -> npt.NDArray[np.int64]:
    """Return the near-duplicate candidates and benchmark rows as the keys of `Hits`."""
    assert job.features.near is not None
    width, count = Width(job.features.near.width), len(benchmark.units)
    compared_rows = np.flatnonzero(benchmark.units)
    benchmark_set = RowSet(
        benchmark.fingerprints[compared_rows], InMemoryIds(compared_rows.astype(np.uint64)), width
    )
    candidate_set = RowSet(candidates.fingerprints, InMemoryIds(candidates.rows), width)
    keys = [np.empty(0, np.int64)]
    for pairs in pairs_with(candidate_set, benchmark_set.rows, job.radius, width, resources):
        lims, numbers = candidate_set.stored_id_numbers(pairs.b)
        benchmark_lims, benchmark_numbers = benchmark_set.stored_id_numbers(pairs.a)
        sizes, benchmark_sizes = np.diff(lims), np.diff(benchmark_lims)
        pair = np.repeat(np.arange(len(sizes)), sizes)  # of each candidate
        benchmark_rows = compared_rows[
            lists_at(benchmark_numbers, benchmark_lims[:-1][pair], benchmark_sizes[pair]).view(
                np.int64
            )
        ]
        keys.append(
            np.repeat(numbers.view(np.int64), benchmark_sizes[pair]) * count + benchmark_rows
        )
    return np.sort(np.concatenate(keys))


def _counts(benchmark: Benchmark, job: DecontaminationJob, hits: Hits) -> list[BenchmarkCounts]:
    counts = []
    ends = benchmark.ends.tolist()
    for name, (start, end), hit in zip(
        benchmark.names, pairwise(ends), hits.hits_of_inputs(), strict=True
    ):
        units = benchmark.units[start:end]
        missing = int(np.count_nonzero(units == 0))
        short = int(np.count_nonzero(units < job.features.runs.size))
        counts.append(BenchmarkCounts(name, end - start, missing, short - missing, hit))
    return counts
