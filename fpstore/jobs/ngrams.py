"""Runs of words of texts, n-grams, and the rows of a benchmark by their n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import differs, stable_order
from fpstore.base.pools import in_order
from fpstore.base.resources import Resources
from fpstore.errors import InputError
from fpstore.hashing.base import UnitSets
from fpstore.hashing.html import page_texts
from fpstore.hashing.minhash import MinHash
from fpstore.io.source import Batch, Projection, RowSource
from fpstore.jobs.compared import with_integers
from fpstore.jobs.row_set import SpooledIds
from fpstore.query.names import HeldIds, Names

WAITING_BATCHES = 4  # for each thread


class Features(NamedTuple):
    """What texts are compared by.

    ``fingerprints`` has rows of words, or no row if they are not compared.
    """

    ngrams: UnitSets
    fingerprints: Words
    whole_pages: int  # see `MainText`


@dataclass(frozen=True)
class TextFeatures:
    """Makes n-grams of texts, as `runs` cuts them, and the fingerprints of a MinHash, if there is one.

    Texts of several columns are one text, with a line break between two.
    """

    runs: MinHash
    near: MinHash | None = None

    def of(
        self, find: Callable[[Sequence[str]], UnitSets], extractor: str | None, batch: Batch
    ) -> Features:
        """Return the features of the texts of known rows, of pages of HTML if there is an extractor; ``find`` makes n-grams."""
        texts = [
            text if isinstance(text, str) else "\n".join(filter(None, text))
            for text in batch.row_texts()
        ]
        whole_pages = 0
        if extractor is not None:
            pages = page_texts(texts, extractor)
            texts, whole_pages = [page.text for page in pages], sum(page.is_whole for page in pages)
        fingerprints = np.empty(0, np.uint64) if self.near is None else self.near.hashed(texts).rows
        return Features(find(texts), fingerprints, whole_pages)


class Benchmark(NamedTuple):
    """The rows of the inputs of a benchmark, one input after the other.

    Row r has ``sizes[r]`` different n-grams. Posting list: the i-th n-gram, in hash order, is in
    rows ``rows[lims[i]:lims[i + 1]]``.
    """

    names: list[str]  # of the inputs
    ends: Lims  # the rows of input i are at ends[i]:ends[i + 1]
    # the words of each row, or n if that is less; 0 for a row that is not compared
    units: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    hashes: Words
    lims: Lims
    rows: Words
    ids: tuple[Names, Words]  # and which of them each row has
    fingerprints: Words  # of each row


def read_benchmark(
    sources: Sequence[tuple[str, RowSource]],
    projection: Projection,
    features: TextFeatures,
    resources: Resources,
) -> Benchmark:
    """Read the inputs of a benchmark, with their names; InputError for one of blank texts only."""
    ends, flags, made, ids = [0], list[Flags](), list[Features](), SpooledIds()
    for name, source in sources:
        rows = compared = 0
        for batch, found in _made(source, projection, features, resources):
            ids.add(source.checked_ids(batch))
            flags.append(batch.flags)
            made.append(found)
            rows, compared = (
                rows + len(batch.flags),
                compared + int(np.count_nonzero(found.ngrams.units)),
            )
            resources.report("reading the benchmark", ends[-1] + rows)
        if not compared:
            raise InputError(
                f"{name}: {'only blank texts' if rows else 'no rows'} to decontaminate against"
            )
        ends.append(ends[-1] + rows)
    ids.finish()
    known = np.concatenate(flags)
    units, sizes = np.zeros(len(known), np.int64), np.zeros(len(known), np.int64)
    units[known] = np.concatenate([found.ngrams.units for found in made])
    sizes[known] = np.concatenate([found.ngrams.sizes for found in made])
    hashes, lims, rows_of_hashes = _postings(
        np.concatenate([found.ngrams.features for found in made]), sizes
    )
    among_known = np.maximum(np.cumsum(known) - 1, 0)  # for a row that is not known, any
    fingerprints = np.concatenate([found.fingerprints for found in made])
    if features.near is not None:
        fingerprints = fingerprints[among_known]
    if projection.id is None:
        names: Names = HeldIds(
            np.concatenate([np.arange(rows, dtype=np.uint64) for rows in np.diff(ends).tolist()])
        )
        places = np.arange(len(known))
    else:
        names, places = (
            ids if any(source.typed for _, source in sources) else with_integers(ids),
            among_known,
        )
    return Benchmark(
        [name for name, _ in sources],
        np.array(ends, np.int64),
        units,
        sizes,
        hashes,
        lims,
        rows_of_hashes,
        (names, places.astype(np.uint64)),
        fingerprints,
    )


def _made(
    source: RowSource, projection: Projection, features: TextFeatures, resources: Resources
) -> Iterator[tuple[Batch, Features]]:
    def work(batch: Batch) -> Features:
        return features.of(features.runs.whole_hashes, None, batch)

    return in_order(work, source.batches(projection), resources.threads, WAITING_BATCHES)


def _postings(hashes: Words, sizes: npt.NDArray[np.int64]) -> tuple[Words, Lims, Words]:
    """Return different hashes, ascending, and the rows in which each one is."""
    order = stable_order(hashes)
    hashes, rows = hashes[order], np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)[order]
    firsts = np.flatnonzero(differs(hashes))
    return hashes[firsts], np.append(firsts, len(hashes)), rows


def known_hashes(benchmark: Benchmark) -> _kernel.KnownHashes:
    """Return the hashes of a benchmark, to be looked up; InputError for 2^32 or more."""
    if len(benchmark.hashes) >> 32:
        raise InputError(
            f"the benchmark has {len(benchmark.hashes):,} n-grams: decontaminate against its "
            "parts, one by one"
        )
    return _kernel.KnownHashes(benchmark.hashes)
