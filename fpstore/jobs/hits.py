"""Hits: rows of a corpus that share n-grams with rows of a benchmark, or are near-duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Counts, Flags, Lims, Words
from fpstore.base.arrays import list_lims, lists_at, spans
from fpstore.base.width import distances_between
from fpstore.io.tables import Tabular, arrow_table
from fpstore.jobs.ngrams import Benchmark
from fpstore.query.id_lookup import IdLookup, InMemoryIds, ids_at, ids_in_slices

HIT_COLUMNS = ("row", "id", "benchmark", "benchmark_row", "benchmark_id", "shared", "share")
NEAR_COLUMNS = (*HIT_COLUMNS, "distance")
# n-grams of candidates, or pairs of such an n-gram and a row of the benchmark, in a batch
PIECE = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """The least number of shared n-grams of a hit, and their least share of the benchmark row's.

    With ``most_rows``, n-grams in more rows of the corpus do not count.
    """

    least: int = 1
    least_share: float = 0.0
    most_rows: int | None = None


class Candidates(NamedTuple):
    """Rows of a corpus that may hit a benchmark, ascending.

    Candidate i has the n-grams ``ranks[lims[i]:lims[i + 1]]``.
    """

    rows: Words
    lims: Lims
    ranks: Counts
    ids: tuple[IdLookup, Words]
    fingerprints: Words


class _Pairs(NamedTuple):
    candidates: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]  # of the benchmark
    shared: npt.NDArray[np.int64]


class Hits(Tabular):
    """Pairs of a row of the corpus and a row of the benchmark that it hits, in the order of rows.

    Attributes
    ----------
    rows : ndarray of uint64, shape (n,)
        The numbers of the rows of the corpus that hit the benchmark, from 0 over all files.
    ignored : int
        The n-grams that did not count, because too many rows of the corpus have them.
    """

    def __init__(
        self,
        candidates: Candidates,
        benchmark: Benchmark,
        bounds: Bounds,
        near: npt.NDArray[np.int64] | None,
    ) -> None:
        """Take near-duplicates as ascending keys: candidate times benchmark rows, plus row."""
        self._candidates = candidates
        self._benchmark = benchmark
        self._bounds = bounds
        self._is_near = near is not None
        self._near = np.empty(0, np.int64) if near is None else near
        self._count = len(benchmark.units)
        self._common: Flags | None = None  # n-grams that do not count
        self.ignored = 0
        if bounds.most_rows is not None:
            self._common = self._more_frequent_than(bounds.most_rows)
            self.ignored = int(np.count_nonzero(self._common))
        self._hitting, self._is_hit = self._find_hits()
        self.rows = candidates.rows[self._hitting]

    def in_memory(self) -> Hits:
        """Return the hits with all ids and n-grams in memory."""
        new, candidates, (lookup, places) = copy(self), self._candidates, self._benchmark.ids
        ids = (
            InMemoryIds(ids_at(*candidates.ids)),
            np.arange(len(candidates.rows), dtype=np.uint64),
        )
        new._candidates = candidates._replace(ranks=np.array(candidates.ranks), ids=ids)
        numbers = np.arange(int(places.max()) + 1, dtype=np.uint64)
        new._benchmark = self._benchmark._replace(
            ids=(InMemoryIds(ids_at(lookup, numbers)), places)
        )
        return new

    def hits_of_inputs(self) -> list[int]:
        """Return how many rows of each input of the benchmark are hit."""
        ends = self._benchmark.ends.tolist()
        return [int(np.count_nonzero(self._is_hit[a:b])) for a, b in pairwise(ends)]

    def without_rare_ngrams(self, most_rows: int) -> int:
        """Return how many rows hit the benchmark only by frequent n-grams.

        A frequent n-gram is in more than ``most_rows`` rows of the corpus.
        """
        common, only_common = self._more_frequent_than(most_rows), self._hitting.copy()
        for _, owners, ranks in self._ngrams():
            only_common[owners[~common[ranks]]] = False
        only_common[self._near // self._count] = False
        return int(np.count_nonzero(only_common))

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns of ``to_arrow``, at most 65,536 rows at once."""
        none = np.empty(0, np.int64)
        yield from self._columns(_Pairs(none, none, none))
        for pairs in self._hit_pairs():
            yield from self._columns(pairs)

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table`` with a row for each hit.

        ``row`` and ``id`` are those of the corpus; ``benchmark`` (string) is the name of the input,
        ``benchmark_row`` the number of the row in it, ``benchmark_id`` its id; ``shared`` counts
        the different n-grams that both rows have, and ``share`` is that number divided by the
        n-grams of the row of the benchmark, rounded to six digits. With a threshold for
        near-duplicates, ``distance`` is the distance of the fingerprints, in bits. Without columns
        of ids, ids are row numbers. ``names`` has other names for columns.
        """
        return arrow_table(self.batches(), names)

    def __repr__(self) -> str:
        return f"<fpstore.Hits of {len(self.rows):,} rows>"

    def _ngrams(self) -> Iterator[tuple[slice, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield batches of candidates, with the owner and the rank of each n-gram that counts."""
        lims = self._candidates.lims
        for part in spans(lims, PIECE):
            owners = np.repeat(
                np.arange(part.start, part.stop), np.diff(lims[part.start : part.stop + 1])
            )
            ranks = self._candidates.ranks[lims[part.start] : lims[part.stop]].astype(np.int64)
            if self._common is not None:
                counted = ~self._common[ranks]
                owners, ranks = owners[counted], ranks[counted]
            yield part, owners, ranks

    def _more_frequent_than(self, most_rows: int) -> Flags:
        """Return which n-grams are in more than ``most_rows`` rows of the corpus."""
        rows_with = np.zeros(len(self._benchmark.hashes), np.int64)
        for _, _, ranks in self._ngrams():
            rows_with += np.bincount(ranks, minlength=len(rows_with))
        flags: Flags = rows_with > most_rows
        return flags

    def _find_hits(self) -> tuple[Flags, Flags]:
        """Return which candidates hit the benchmark, and which of its rows are hit."""
        hitting, hit = np.zeros(len(self._candidates.rows), bool), np.zeros(self._count, bool)
        if self._bounds.least > 1 or self._bounds.least_share > 0:
            for pairs in self._hit_pairs():
                hitting[pairs.candidates] = hit[pairs.rows] = True
            return hitting, hit
        # no pairs: there may be many more where many rows have an n-gram
        used = np.zeros(len(self._benchmark.hashes), bool)
        for _, owners, ranks in self._ngrams():
            hitting[owners] = used[ranks] = True
        hit[self._benchmark.rows[np.repeat(used, np.diff(self._benchmark.lims))].view(np.int64)] = (
            True
        )
        hitting[self._near // self._count] = hit[self._near % self._count] = True
        return hitting, hit

    def _hit_pairs(self) -> Iterator[_Pairs]:
        """Yield the hits, in the order of the candidates and of the rows of the benchmark."""
        lims = self._benchmark.lims
        for part, owners, ranks in self._ngrams():
            sizes = np.diff(lims)[ranks]
            rows_of_owners = np.bincount(owners - part.start, sizes, part.stop - part.start).astype(
                np.int64
            )
            for batch in spans(list_lims(rows_of_owners), PIECE):
                first, last = part.start + batch.start, part.start + batch.stop
                span = slice(*np.searchsorted(owners, (first, last)).tolist())
                rows = lists_at(self._benchmark.rows, lims[ranks[span]], sizes[span]).view(np.int64)
                yield self._hits_among(
                    np.repeat(owners[span], sizes[span]) * self._count + rows, first, last
                )

    def _hits_among(self, keys: npt.NDArray[np.int64], first: int, last: int) -> _Pairs:
        """Return the hits of successive candidates.

        ``keys`` has one for each n-gram of a pair, as those of near-duplicates.
        """
        near = self._near[
            slice(*np.searchsorted(self._near, (first * self._count, last * self._count)).tolist())
        ]
        keys, shared = np.unique(np.concatenate([keys, near]), return_counts=True)
        are_near = np.searchsorted(keys, near)
        shared[are_near] -= 1
        sizes = self._benchmark.sizes[keys % self._count]
        is_hit = (shared >= self._bounds.least) & (shared / sizes >= self._bounds.least_share)
        is_hit[are_near] = True
        return _Pairs(keys[is_hit] // self._count, keys[is_hit] % self._count, shared[is_hit])

    def _columns(self, pairs: _Pairs) -> Iterator[dict[str, Any]]:
        benchmark = self._benchmark
        lookup, numbers = self._candidates.ids
        benchmark_lookup, places = self._benchmark.ids
        columns = [
            (lookup, numbers[pairs.candidates]),
            (benchmark_lookup, places[pairs.rows]),
        ]
        for batch, (ids, benchmark_ids) in ids_in_slices(columns):
            candidates = pairs.candidates[batch]
            rows = pairs.rows[batch]
            shared = pairs.shared[batch]
            inputs = np.searchsorted(benchmark.ends, rows, side="right") - 1
            table = {
                "row": self._candidates.rows[candidates],
                "id": ids,
                "benchmark": [benchmark.names[n] for n in inputs.tolist()],
                "benchmark_row": (rows - benchmark.ends[inputs]).astype(np.uint64),
                "benchmark_id": benchmark_ids,
                "shared": shared.astype(np.uint64),
                "share": np.round(shared / benchmark.sizes[rows], 6),
            }
            if self._is_near:
                row_fingerprints = self._candidates.fingerprints[candidates]
                benchmark_fingerprints = benchmark.fingerprints[rows]
                table["distance"] = distances_between(
                    row_fingerprints, benchmark_fingerprints
                ).astype(np.uint64)
            yield table
