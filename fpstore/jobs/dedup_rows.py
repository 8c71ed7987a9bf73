"""The rows of a corpus that is deduplicated: fingerprints, made by threads, and ids; kept in the parts of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.hashed_rows import hashed_rows
from fpstore.io.check import is_plain_integer
from fpstore.io.scores import joined_keys
from fpstore.io.source import Batch, Flags, IdColumn, Projection, RowSource
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.spooled_ids import SpooledIds
from fpstore.query.names import NAMED_ROWS, names_in_slices

KEPT_ROWS, KEPT_CHARS = 1 << 20, 1 << 26  # of texts, in a part of a checkpoint: whichever comes first
READ = "rows were read"


class ComparedRows(NamedTuple):
    """The rows of a corpus that can be compared: a value for each in every column."""

    known: Flags  # of all rows
    fingerprints: Words
    ids: SpooledIds | None
    scores: Words | None  # keys


class SavedRows:
    """The parts of a checkpoint that hold rows, one after the other.

    Parameters
    ----------
    kept : Checkpoint
    """

    def __init__(self, kept: Checkpoint) -> None:
        self._kept = kept
        self.rows = 0  # in those that were there

    def before(self) -> Iterator[Batch]:
        """Yield the rows that are there: up to the first part that is missing or damaged."""
        while self._kept.count(name := _name(self.rows)) is not None:
            for columns in self._kept.read(name):
                self.rows += len(columns["known"])
                yield _batch_of(columns)

    def written(self, find: Callable[[], Iterator[Batch]]) -> Iterator[Batch]:
        """Yield the rows behind them, and write a part whenever enough were read."""
        held: list[Batch] = []
        first, rows, chars = self.rows, 0, 0
        for batch in find():
            held.append(batch)
            rows, chars = rows + len(batch.flags), chars + batch.chars
            yield batch
            if rows >= KEPT_ROWS or chars >= KEPT_CHARS:
                self._write(first, held)
                held, first, rows, chars = [], first + rows, 0, 0
        if held:
            self._write(first, held)

    def _write(self, first: int, held: list[Batch]) -> None:
        part = self._kept.write(_name(first))
        for batch in held:
            part.append(_columns_of(batch))
        part.finish()


def _name(first: int) -> str:
    """Return the name of the part that begins with a row: what was cut in another way before is never met."""
    return f"rows-{first}"


def _columns_of(batch: Batch) -> dict[str, npt.NDArray[Any]]:
    """Return rows as columns of a part."""
    ids = batch.ids
    columns: dict[str, npt.NDArray[Any] | None] = {"known": batch.flags, "fingerprints": batch.fingerprints}
    if isinstance(ids, StringColumn):
        columns |= {"strings": np.frombuffer(ids.data, np.uint8), "ends": ids.ends}
    else:
        columns["ids"] = ids
    columns["scores"] = batch.scores
    return {name: column for name, column in columns.items() if column is not None}


def _batch_of(columns: dict[str, npt.NDArray[Any]]) -> Batch:
    """Return the rows of such columns."""
    ids: IdColumn = StringColumn(columns["strings"].tobytes(), columns["ends"]) if "strings" in columns else columns.get("ids")
    return Batch(columns["fingerprints"], ids, columns["known"], scores=columns.get("scores"))


def compared_rows(
    corpus: RowSource,
    projection: Projection,
    fingerprinter: Fingerprinter[Any] | None,
    resources: Resources,
    refused: bool,
    kept: Checkpoint | None,
) -> ComparedRows:
    """Return the rows of a corpus.

    Parameters
    ----------
    corpus : RowSource
    projection : Projection
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts; without it, the rows have a column of fingerprints.
    resources : Resources
        Threads and progress.
    refused : bool
        Raise InputError for a row that is not known.
    kept : Checkpoint, optional
        Has rows that were read before; the others are read, and kept there.
    """

    def read(skipped: int = 0) -> Iterator[Batch]:
        if fingerprinter is None:
            return corpus.batches(projection, skipped=skipped)
        return hashed_rows(corpus, projection, fingerprinter, resources.threads, skipped=skipped)

    saved = None if kept is None else SavedRows(kept)
    # The rest begins behind the rows that were there, which are known when they have been taken.
    batches = read() if saved is None else chain(saved.before(), saved.written(lambda: read(saved.rows)))
    flags, fingerprints, scores = list[Flags](), list[Words](), list[Words]()
    ids, done = SpooledIds(), 0
    for batch in batches:
        known = batch.flags
        if refused and not known.all():
            raise InputError(f"{corpus.label}: row {done + int(np.argmin(known)) + 1} has no text, fingerprint or id")
        done += len(known)
        ids.add(batch.ids)
        flags.append(known)
        fingerprints.append(batch.fingerprints)
        scores.extend([] if batch.scores is None else [batch.scores])
        resources.report("reading", done)
    if kept is not None and saved is not None:
        kept.note(READ, saved.rows, done)
    if not done:
        raise InputError(f"{corpus.label}: no rows")
    ids.finish()
    return ComparedRows(
        np.concatenate(flags),
        np.concatenate(fingerprints),
        None if projection.id is None else ids if corpus.typed else _decided(ids),
        joined_keys(scores) if projection.score is not None else None,
    )


def _decided(ids: SpooledIds) -> SpooledIds:
    """Return ids of delimited text, which has no types: as integers, if all of them are."""
    if ids.integers is not None:
        return ids
    decided = SpooledIds()
    for start in range(0, len(ids), NAMED_ROWS):
        for _, (texts,) in names_in_slices([(ids, np.arange(start, min(start + NAMED_ROWS, len(ids)), dtype=np.uint64))]):
            if not all(map(is_plain_integer, map(str, texts))):
                return ids
            decided.add(np.array(list(map(int, texts)), np.uint64))
    decided.finish()
    return decided
