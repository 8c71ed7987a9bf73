"""Runs of words of texts (n-grams), and an index of a benchmark by its n-grams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import NO_WORDS, is_run_start, stable_order
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.errors import InputError
from fpstore.hashing.base import UnitSets
from fpstore.hashing.minhash import MinHash
from fpstore.hashing.page_text import page_texts
from fpstore.io.source import Batch, Projection, RowSource
from fpstore.jobs.compared import convert_to_integers
from fpstore.jobs.row_set import SpooledIds
from fpstore.query.id_lookup import IdLookup, InMemoryIds

WAITING_BATCHES = 4  # for each thread


class Features(NamedTuple):
    """The n-grams of texts, and their fingerprints.

    ``fingerprints`` has rows of words; it is empty if near-duplicates do not count.
    """

    ngrams: UnitSets
    fingerprints: Words
    whole_pages: int  # see `MainText`


@dataclass(frozen=True)
class TextFeatures:
    """Makes n-grams of texts, as `runs` cuts them, and fingerprints by `near`, if it is set.

    Texts of several columns are one text, with a line break between two.
    """

    runs: MinHash
    near: MinHash | None = None

    def extract(
        self, find: Callable[[Sequence[str]], UnitSets], extractor: str | None, batch: Batch
    ) -> Features:
        """Return the features of a batch's texts, or of pages of HTML; ``find`` makes n-grams."""
        texts = [
            text if isinstance(text, str) else "\n".join(filter(None, text))
            for text in batch.row_texts()
        ]
        whole_pages = 0
        if extractor is not None:
            pages = page_texts(texts, extractor)
            texts, whole_pages = [page.text for page in pages], sum(page.is_whole for page in pages)
        fingerprints = NO_WORDS if self.near is None else self.near.hashed(texts).rows
        return Features(find(texts), fingerprints, whole_pages)


class Benchmark(NamedTuple):
    """The rows of the inputs of a benchmark, one input after the other.

    Row r has ``sizes[r]`` different n-grams. The i-th n-gram, in hash order, is in the rows
    ``rows[lims[i]:lims[i + 1]]``.
    """

    names: list[str]  # of the inputs
    ends: Lims  # input i has the rows ends[i]:ends[i + 1]
    # n or, if that is less, the words of each row; 0 for a row that is not compared
    units: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    hashes: Words
    lims: Lims
    rows: Words
    ids: tuple[IdLookup, Words]  # and the place of each row's id
    fingerprints: Words  # of each row


def read_benchmark(
    sources: Sequence[tuple[str, RowSource]],
    projection: Projection,
    features: TextFeatures,
    resources: Resources,
) -> Benchmark:
    """Read the inputs of a benchmark; InputError for one that has only blank texts."""
    ends, flags, parts, ids = [0], list[Flags](), list[Features](), SpooledIds()
    for name, source in sources:
        rows = compared = 0
        for batch, part in _batch_features(source, projection, features, resources):
            ids.add(source.check_ids_writable(batch))
            flags.append(batch.flags)
            parts.append(part)
            rows += len(batch.flags)
            compared += int(np.count_nonzero(part.ngrams.units))
            resources.report("reading the benchmark", ends[-1] + rows)
        if not compared:
            raise InputError(
                f"{name}: {'only blank texts' if rows else 'no rows'} to decontaminate against"
            )
        ends.append(ends[-1] + rows)
    ids.finish()
    is_compared = np.concatenate(flags)
    units, sizes = np.zeros(len(is_compared), np.int64), np.zeros(len(is_compared), np.int64)
    units[is_compared] = np.concatenate([part.ngrams.units for part in parts])
    sizes[is_compared] = np.concatenate([part.ngrams.sizes for part in parts])
    hashes, lims, rows_of_hashes = _postings(
        np.concatenate([part.ngrams.features for part in parts]), sizes
    )
    compared_places = np.maximum(np.cumsum(is_compared) - 1, 0)  # arbitrary for other rows
    fingerprints = np.concatenate([part.fingerprints for part in parts])
    if features.near is not None:
        fingerprints = fingerprints[compared_places]
    if projection.id is None:
        lookup: IdLookup = InMemoryIds(
            np.concatenate([np.arange(rows, dtype=np.uint64) for rows in np.diff(ends).tolist()])
        )
        places = np.arange(len(is_compared))
    else:
        lookup = ids if any(source.typed for _, source in sources) else convert_to_integers(ids)
        places = compared_places
    return Benchmark(
        [name for name, _ in sources],
        np.array(ends, np.int64),
        units,
        sizes,
        hashes,
        lims,
        rows_of_hashes,
        (lookup, places.astype(np.uint64)),
        fingerprints,
    )


def _batch_features(
    source: RowSource, projection: Projection, features: TextFeatures, resources: Resources
) -> Iterator[tuple[Batch, Features]]:
    def work(batch: Batch) -> Features:
        return features.extract(features.runs.whole_hashes, None, batch)

    return map_in_order(work, source.batches(projection), resources.threads, WAITING_BATCHES)


def _postings(hashes: Words, sizes: npt.NDArray[np.int64]) -> tuple[Words, Lims, Words]:
    """Return different hashes, ascending, and the rows of each."""
    order = stable_order(hashes)
    hashes, rows = hashes[order], np.repeat(np.arange(len(sizes), dtype=np.uint64), sizes)[order]
    firsts = np.flatnonzero(is_run_start(hashes))
    return hashes[firsts], np.append(firsts, len(hashes)), rows


def known_hashes(benchmark: Benchmark) -> _kernel.KnownHashes:
    """Return a look-up of the hashes of a benchmark; InputError for 2^32 or more."""
    if len(benchmark.hashes) >> 32:
        raise InputError(
            f"the benchmark has {len(benchmark.hashes):,} n-grams: decontaminate against its "
            "parts, one by one"
        )
    return _kernel.KnownHashes(benchmark.hashes)
