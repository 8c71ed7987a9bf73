"""The operation lsh: indexes of locality-sensitive hashes, of synthetic sketches and of texts."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import fpstore.lsh
from bench.harness import Bench, Result, folder_bytes, microseconds
from bench.text_quality import text_quality
from fpstore.hashing import JaccardLaw, Sketched, Sketcher, Values
from fpstore.lsh.plan import recall_at

BANDS, THRESHOLD = (8, 5), 0.8
LARGE_LOG2 = 26
PIECE_LOG2 = 14
QUERIES_LOG2, SINGLE_QUERIES = 17, 4000
DEVIATIONS = 6  # within which a share that is found must be of the one that is computed


def lsh(bench: Bench) -> Result:
    """Build and ask indexes of sketches, and of texts beside datasketch, rensa and Lance.

    With --large, 2^26 sketches alone.
    """
    if bench.options.large:
        return {"sketches": {f"2^{LARGE_LOG2}": _of_sketches(bench, LARGE_LOG2)}}
    sketches = {f"2^{log2}": _of_sketches(bench, log2) for log2 in bench.sizes(20)}
    return {"sketches": sketches, "texts": text_quality(bench)}


@dataclass(frozen=True, kw_only=True)
class Ready(Sketcher[Sketched]):
    """Items are batches of sketches that are made already.

    What remains is the work of the index.
    """

    name: ClassVar[str] = "ready"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "batches of sketches"

    @property
    def law(self) -> JaccardLaw:
        """Of the similarity."""
        return JaccardLaw()

    def values(self, items: Sequence[Any], functions: range) -> Values:
        """Return some columns of the sketches."""
        columns = slice(functions.start, functions.stop)
        return Values(
            np.concatenate([item.sketches[:, columns] for item in items]),
            np.concatenate([item.known for item in items]),
        )

    def similarities(self, item: Sketched, others: Sequence[Sketched]) -> npt.NDArray[np.float64]:
        """Return the shares of equal values."""
        return np.array([(item.sketches == other.sketches).mean() for other in others])

    def sketched(
        self, items: Iterable[Sketched], count: int, threads: int | None = 1
    ) -> Iterator[Sketched]:
        """Yield the batches."""
        yield from items


def _piece(seed: int, number: int, rows: int) -> Sketched:
    rng = np.random.default_rng([seed, 1 << 48, number])
    sketches = rng.integers(0, 2**32, (rows, BANDS[0] * BANDS[1]), dtype=np.uint32)
    return Sketched(
        sketches,
        rng.integers(0, 256, (rows, Ready().signature_bits // 8), dtype=np.uint8),
        np.ones(rows, bool),
    )


def _pieces(seed: int, log2: int) -> Iterator[Sketched]:
    for number in range(1 << max(log2 - PIECE_LOG2, 0)):
        yield _piece(seed, number, 1 << min(log2, PIECE_LOG2))


def _near(seed: int, log2: int, count: int) -> tuple[Sketched, npt.NDArray[np.uint64]]:
    """Return sketches of the threshold's similarity to stored ones, and which these are."""
    rng, numbers = np.random.default_rng([seed, 1 << 49]), range(1 << max(log2 - PIECE_LOG2, 0))
    rows = 1 << min(log2, PIECE_LOG2)
    chosen = numbers[:: max(len(numbers) // 16, 1)]
    parts, places = [], []
    for number in chosen:
        chosen_rows = rng.integers(0, rows, -(-count // len(chosen)))
        piece = _piece(seed, number, rows)
        sketches, signatures = piece.sketches[chosen_rows], piece.signatures[chosen_rows]
        other = rng.random(sketches.shape) >= THRESHOLD
        sketches[other] = rng.integers(0, 2**32, int(other.sum()), dtype=np.uint32)
        flips = rng.random((len(chosen_rows), Ready().signature_bits)) < Ready().law.differing(
            THRESHOLD
        )
        parts.append(
            (sketches, signatures ^ np.packbits(flips, axis=1), np.ones(len(chosen_rows), bool))
        )
        places.append(np.uint64(number * rows) + chosen_rows.astype(np.uint64))
    return Sketched(
        *(np.concatenate(column) for column in zip(*parts, strict=True))
    ), np.concatenate(places)


def _part(items: Sketched, rows: slice) -> Sketched:
    return Sketched(items.sketches[rows], items.signatures[rows], items.known[rows])


def _of_sketches(bench: Bench, log2: int) -> Result:
    """Build an index of synthetic sketches, and look up near ones, with ids: one thread."""
    path, count, hasher = bench.folder / "sketches.lsh", 1 << log2, Ready()
    form = fpstore.lsh.plan(count, hasher, THRESHOLD, bands=BANDS)

    def build() -> fpstore.lsh.LshStore:
        return fpstore.lsh.build(
            path,
            _pieces(bench.seed, log2),
            hasher=hasher,
            plan=form,
            threads=1,
            memory=bench.options.memory,
            overwrite=True,
        )

    built = bench.processor_seconds(build, 1 if log2 == LARGE_LOG2 else None)
    making = bench.processor_seconds(
        lambda: sum(len(piece.known) for piece in _pieces(bench.seed, log2)), 1
    )
    queries, expected = _near(bench.seed, log2, 256 if bench.smoke else 1 << QUERIES_LOG2)
    singles = [
        _part(queries, slice(at, at + 1)) for at in range(min(len(expected), SINGLE_QUERIES))
    ]
    with fpstore.open(path, hasher=hasher) as index:
        matches = index.probe_many([queries], threads=1)
        _check(matches, expected, recall_at(form, hasher, THRESHOLD))
        batch = bench.processor_seconds(lambda: index.probe_many([queries], threads=1).read_ids())
        single = bench.processor_seconds(lambda: [index.probe(query) for query in singles])
        stats = index.stats()
    out: Result = {
        "bytes_per_document": round(stats["bytes_per_document"], 2),
        "planned_bytes_per_document": round(form.bytes_per_document, 2),
        "bytes_of_the_folder": folder_bytes(path),
        "build_microseconds_per_document": microseconds(built - making, count),
        "batch_microseconds": microseconds(batch, len(expected)),
        "single_microseconds": microseconds(single, len(singles)),
        "matches": len(matches.distances),
        "queries": len(expected),
    }
    shutil.rmtree(path)
    return out


def _check(matches: fpstore.lsh.Matches, expected: npt.NDArray[np.uint64], computed: float) -> None:
    """Raise AssertionError if the recall of the matches is not the computed one."""
    owners = np.repeat(np.arange(len(expected)), np.diff(matches.lims))
    ids = np.asarray(matches.read_ids())
    recall = len(np.unique(owners[ids == expected[owners]])) / len(expected)
    if abs(recall - computed) > DEVIATIONS * (computed * (1 - computed) / len(expected)) ** 0.5:
        raise AssertionError(
            f"{recall:.4f} of the near documents are found, and {computed:.4f} are computed"
        )
