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
from fpstore.hashing.hashed_rows import Read, hashed_rows
from fpstore.io.check import is_plain_integer
from fpstore.io.corpus import Chosen, Corpus, Flags, Part
from fpstore.io.scores import joined_keys
from fpstore.io.source import IdColumn
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.spooled_ids import SpooledIds
from fpstore.query.names import NAMED_ROWS, names_in_slices

KEPT_ROWS, KEPT_CHARS = 1 << 20, 1 << 26  # of texts, in a part of a checkpoint: whichever comes first
READ = "rows were read"


class Documents(NamedTuple):
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

    def before(self) -> Iterator[Read]:
        """Yield the rows that are there: up to the first part that is missing or damaged."""
        while self._kept.count(name := _name(self.rows)) is not None:
            for batch in self._kept.read(name):
                self.rows += len(batch["known"])
                yield _read_of(batch)

    def written(self, find: Callable[[], Iterator[Read]]) -> Iterator[Read]:
        """Yield the rows behind them, and write a part whenever enough were read."""
        held: list[Read] = []
        first, rows, chars = self.rows, 0, 0
        for read in find():
            held.append(read)
            rows, chars = rows + len(read.part.known), chars + read.chars
            yield read
            if rows >= KEPT_ROWS or chars >= KEPT_CHARS:
                self._write(first, held)
                held, first, rows, chars = [], first + rows, 0, 0
        if held:
            self._write(first, held)

    def _write(self, first: int, held: list[Read]) -> None:
        part = self._kept.write(_name(first))
        for read in held:
            part.append(_batch_of(read))
        part.finish()


def _name(first: int) -> str:
    """Return the name of the part that begins with a row: what was cut in another way before is never met."""
    return f"rows-{first}"


def _batch_of(read: Read) -> dict[str, npt.NDArray[Any]]:
    """Return rows as columns of a part."""
    ids = read.part.ids
    batch: dict[str, npt.NDArray[Any] | None] = {"known": read.part.known, "fingerprints": read.fingerprints}
    if isinstance(ids, StringColumn):
        batch |= {"strings": np.frombuffer(ids.data, np.uint8), "ends": ids.ends}
    else:
        batch["ids"] = ids
    batch["scores"] = read.part.scores
    return {name: column for name, column in batch.items() if column is not None}


def _read_of(batch: dict[str, npt.NDArray[Any]]) -> Read:
    """Return the rows of such columns."""
    ids: IdColumn = StringColumn(batch["strings"].tobytes(), batch["ends"]) if "strings" in batch else batch.get("ids")
    return Read(Part(batch["known"], None, None, ids, batch.get("scores")), batch["fingerprints"])


def read_documents(
    corpus: Corpus,
    chosen: Chosen,
    fingerprinter: Fingerprinter[Any] | None,
    resources: Resources,
    refused: bool,
    kept: Checkpoint | None,
) -> Documents:
    """Return the rows of a corpus.

    Parameters
    ----------
    corpus : Corpus
    chosen : Chosen
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts.
    resources : Resources
        Threads and progress.
    refused : bool
        Raise InputError for a row that is not known.
    kept : Checkpoint, optional
        Has rows that were read before; the others are read, and kept there.
    """
    saved = None if kept is None else SavedRows(kept)
    reads: list[Read] = []
    ids, done = SpooledIds(), 0
    for read in _rows(corpus, chosen, fingerprinter, resources.threads, saved):
        known = read.part.known
        if refused and not known.all():
            row = done + int(np.argmin(known)) + 1
            raise InputError(f"{', '.join(corpus.names[:3])}: row {row} has no text, fingerprint or id")
        done += len(known)
        ids.add(read.part.ids)
        reads.append(read._replace(part=read.part._replace(ids=None)))
        resources.report("reading", done)
    if kept is not None and saved is not None:
        kept.note(READ, saved.rows, done)
    if not done:
        raise InputError(f"{', '.join(corpus.names[:3])}: no rows")
    ids.finish()
    scores = [read.part.scores for read in reads if read.part.scores is not None]
    return Documents(
        np.concatenate([read.part.known for read in reads]),
        np.concatenate([read.fingerprints for read in reads]),
        None if chosen.id is None else ids if corpus.typed else _decided(ids),
        joined_keys(scores) if chosen.score is not None else None,
    )


def _rows(
    corpus: Corpus, chosen: Chosen, fingerprinter: Fingerprinter[Any] | None, threads: int, saved: SavedRows | None
) -> Iterator[Read]:
    """Yield all rows: first those that were read before."""
    if saved is None:
        return hashed_rows(corpus, chosen, fingerprinter, threads)
    # The rest begins behind the rows that were there, which are known when they have been taken.
    return chain(saved.before(), saved.written(lambda: hashed_rows(corpus, chosen, fingerprinter, threads, saved.rows)))


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
