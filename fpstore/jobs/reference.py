"""References: stores and other corpora, near whose documents a deduplication keeps no rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import distinct_places, is_run_start
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width, row_words
from fpstore.building.builder import BuildOptions, build_store
from fpstore.change.decisions import is_fresh, kind_with
from fpstore.errors import InputError, StoreExistsError
from fpstore.io.shards import ShardNames, Shards, shard_name
from fpstore.io.source import RowSource, unwritable_id
from fpstore.io.tables import values_at
from fpstore.jobs.compared import ComparedRows
from fpstore.jobs.evidence import (
    FINGERPRINT_COLUMNS,
    TEXT_COLUMNS,
    Evidence,
    join,
    of_distances,
    select,
)
from fpstore.jobs.joining import PairColumns
from fpstore.jobs.pairs import Side, pairs_with
from fpstore.jobs.row_set import RowSet, SpooledIds
from fpstore.query.id_lookup import InMemoryIds, ids_at
from fpstore.work.checkpoint import Checkpoint, JobIdentity
from fpstore.work.ids import plain_ids
from fpstore.work.pieces import PieceWriter

MAX_PENDING_PAIRS = 1 << 22  # pairs, or twice the nearest ones, before all others are dropped
STAGE = "reference"  # of a checkpoint
NO_ROW = np.uint64(np.iinfo(np.uint64).max)


class Reference(NamedTuple):
    """Stores, a corpus, or both.

    ``store`` is the first store (`fpstore.Store`, None for a new one at the path), and ``others``
    are asked after it, the corpus last. ``names`` has the paths of the stores that are there, as
    the caller named them. With ``adds``, kept rows are added to the first store.
    """

    path: str
    store: Any = None
    corpus: RowSource | None = None
    adds: bool = False
    others: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def stores(self) -> list[Any]:
        """The stores that are there, in the order in which they are asked."""
        return [*([] if self.store is None else [self.store]), *self.others]

    @property
    def has_stores(self) -> bool:
        """Whether there are stores, or rows go to a new one."""
        return self.corpus is None or self.adds or bool(self.others) or self.store is not None

    def identity(self) -> JobIdentity:
        """Return the facts about the reference that the result of a job depends on.

        The content of a store is none of them: it may change until rows are written.
        """
        files = [] if self.corpus is None else self.corpus.states()
        path = str(Path(self.path).absolute()) if self.has_stores else self.path
        return {
            "reference": path,
            "other references": [str(store.path.absolute()) for store in self.others],
            "adds": self.adds,
            **{f"reference file {n}": state for n, state in enumerate(files, 1)},
        }

    def ids_to_add(self, ids: Words | list[str], typed: bool) -> Words | list[str]:
        """Return ids in the kind of the store's; InputError if it has another kind.

        Digits of delimited text may become strings.
        """
        if self.store is None:
            return ids
        snapshot = self.store.snapshot()
        if (
            not typed
            and isinstance(ids, np.ndarray)
            and not is_fresh(snapshot)
            and snapshot.totals.id_kind == "string"
        ):
            ids = list(map(str, ids.tolist()))
        kind_with(snapshot, ids, Path(self.path))
        return ids

    def add(
        self,
        rows: Words,
        ids: Words | list[str],
        width: Width,
        radius: int,
        fingerprinter: dict[str, Any] | None,
    ) -> None:
        """Insert fingerprints with their ids into the store, in one change.

        Repeating the insert of a killed run changes nothing.
        """
        if not len(rows):
            return
        if self.store is not None:
            self.store.insert(width.to_array(rows), ids)
            return
        options = BuildOptions(radius=radius, width=width.bits, fingerprinter=fingerprinter)
        try:
            build_store(Path(self.path), width.to_array(rows), ids, options, overwrite=False)
        except StoreExistsError:
            raise self._appeared_error() from None

    def check_began(self, rows: Words, near: NearReference) -> None:
        """Refuse to resume a job that began without a store, if another process made the store.

        Raises StoreExistsError.
        """
        if not near.of_store and self.store is not None and len(rows):
            lims, _ = self.store.snapshot().id_numbers(rows)
            if not np.diff(lims).all():
                raise self._appeared_error()

    def _appeared_error(self) -> StoreExistsError:
        advice = "remove the output, and the folder .resume beside it, and run again"
        return StoreExistsError(
            f"{self.path}: appeared while this job ran, and its rows were not compared: {advice}",
            path=self.path,
        )


class NearReference(NamedTuple):
    """Documents near a reference: places, ascending, with an id there and the evidence.

    ``names`` has the path of the store, or of the input of a corpus, that each is near to. Of a
    corpus, also the row there, and its file; beside a corpus, NO_ROW stands for a store.
    """

    places: npt.NDArray[np.intp]
    ids: Words | list[str]
    evidence: Evidence
    of_store: bool = True  # a store that was there when the job began
    kept_rows: Words | None = None
    kept_shards: list[str] | None = None
    names: Sequence[str] = ()

    @classmethod
    def from_candidates(cls, candidates: Candidates, side: Side, path: str = "") -> NearReference:
        """Return the documents with a candidate, which is the nearest, near a store at a path."""
        return cls(
            candidates.places,
            ids_at(side, candidates.numbers),
            of_distances(candidates.distances),
            names=[shard_name(path)] * len(candidates.places),
        )

    @classmethod
    def joined(cls, parts: Sequence[NearReference]) -> NearReference:
        """Return the documents near several references; each is near one of them."""
        if len(parts) == 1:
            return parts[0]
        places = np.concatenate([part.places for part in parts])
        order = np.argsort(places)
        evidence = reduce(join, (part.evidence for part in parts))
        ids: Any = [part.ids for part in parts]
        if all(isinstance(column, np.ndarray) for column in ids):
            ids = np.concatenate(ids)
        else:
            ids = [str(value) for column in ids for value in column]
        rows = shards = None
        if any(part.kept_rows is not None for part in parts):
            rows = np.concatenate(
                [
                    np.full(len(part.places), NO_ROW) if part.kept_rows is None else part.kept_rows
                    for part in parts
                ]
            )[order]
            shards = [
                shard for part in parts for shard in part.kept_shards or [""] * len(part.places)
            ]
        names = [name for part in parts for name in part.names]
        return cls(
            places[order],
            values_at(ids, order),
            select(evidence, order),
            parts[0].of_store,
            rows,
            None if shards is None else [shards[place] for place in order.tolist()],
            [names[place] for place in order.tolist()],
        )

    def at(self, places: npt.NDArray[np.intp]) -> NearReference:
        """Return the documents with their places among all, from those among some."""
        return self._replace(places=places[self.places])

    def refuse_unwritable(self, path: str, characters: str) -> None:
        """Raise InputError for a store's id with a character that a list cannot have."""
        wrong = (
            unwritable_id(StringColumn.from_strings(self.ids), characters)
            if isinstance(self.ids, list)
            else None
        )
        if wrong is not None:
            raise InputError(f"{path}: {wrong[1]}", path=path)

    def save(self, checkpoint: Checkpoint, of_store: bool) -> None:
        with checkpoint.create_result(STAGE, 0) as writer:
            writer.facts["store"] = of_store
            writer.add("near.places", self.places)
            self.write_nearest(writer)

    def write_nearest(self, writer: PieceWriter) -> None:
        ids = StringColumn.from_strings(self.ids) if isinstance(self.ids, list) else self.ids
        for name, column in self.evidence.items():
            writer.add(f"near.{name}", column)
        writer.add_ids("near.kept", ids)
        writer.add_ids("near.names", StringColumn.from_strings(list(self.names)))
        if self.kept_rows is not None and self.kept_shards is not None:
            writer.add("near.kept_rows", self.kept_rows)
            writer.add_ids("near.kept_shards", StringColumn.from_strings(self.kept_shards))

    @classmethod
    def saved(cls, checkpoint: Checkpoint) -> NearReference | None:
        pieces = checkpoint.result(STAGE, 0)
        if pieces is None:
            return None
        evidence = {
            name: pieces.read(f"near.{name}")
            for name in (*TEXT_COLUMNS, *FINGERPRINT_COLUMNS)
            if f"near.{name}" in pieces
        }
        ids = plain_ids(pieces.read_ids("near.kept"))
        near = cls(
            pieces.read("near.places"),
            ids,
            evidence,
            pieces.facts["store"],
            names=plain_ids(pieces.read_ids("near.names")),
        )
        if "near.kept_rows" not in pieces:
            return near
        shards = plain_ids(pieces.read_ids("near.kept_shards"))
        return near._replace(kept_rows=pieces.read("near.kept_rows"), kept_shards=shards)

    def in_corpus(self, corpus: RowSource, rows: Words) -> NearReference:
        """Return the documents with the rows of a corpus that they are near to."""
        return self._replace(
            kept_rows=rows,
            kept_shards=ShardNames.of_corpus(corpus).at(rows),
            names=input_names(corpus, rows),
        )


def input_names(corpus: RowSource, rows: Words) -> list[str]:
    """Return the path of the input, a file or a folder, that has each row of a corpus."""
    if not isinstance(corpus, Shards) or not corpus.paths:
        return [shard_name(corpus.label)] * len(rows)
    inputs = [
        next((top for top in corpus.source_paths if Path(path).is_relative_to(top)), path)
        for path in corpus.paths
    ]
    return ShardNames(list(map(shard_name, inputs)), corpus.rows_of_files).at(rows)


def id_names(documents: ComparedRows) -> InMemoryIds | SpooledIds:
    """Return the ids of the documents of a corpus, which are row numbers if it has none."""
    rows = documents.rows.view(np.uint64)
    return InMemoryIds(rows) if documents.ids is None else documents.ids


def join_side(documents: ComparedRows, width: Width) -> RowSet:
    """Return the documents of a corpus as one side of a join."""
    return RowSet(documents.fingerprints, id_names(documents), width)


class Candidates(NamedTuple):
    """Documents near one of a reference, and the number of the nearest there.

    Of equally near ones it is that of the least fingerprint.
    """

    places: npt.NDArray[np.intp]
    numbers: Words
    distances: npt.NDArray[np.uint16]


def near_candidates(
    side: Side, fingerprints: Words, radius: int, width: Width, resources: Resources
) -> Candidates:
    """Return the nearest document within the radius of each document that has one."""
    distinct, which = distinct_places(fingerprints)
    nearest = _nearest(pairs_with(side, distinct, radius, width, resources), distinct)
    distinct_rows, at = distinct_places(nearest.rows)
    lims, numbers = side.stored_id_numbers(distinct_rows)
    choice = np.full(len(distinct), -1)
    choice[nearest.places] = np.arange(len(nearest.places))
    chosen = choice[which]
    places = np.flatnonzero(chosen >= 0)
    chosen = chosen[places]
    return Candidates(places, numbers[lims[:-1]][at][chosen], nearest.distances[chosen])


class _Nearest(NamedTuple):
    """Pairs of the place of a distinct fingerprint, ascending, and a row near it."""

    places: npt.NDArray[np.intp]
    rows: Words
    distances: npt.NDArray[np.uint16]

    def best(self) -> _Nearest:
        """Return the nearest row for each place, of equally near ones the least."""
        words = self.rows.reshape(-1, row_words(self.rows))
        order = np.lexsort((*words.T[::-1], self.distances, self.places))
        order = order[is_run_start(self.places[order])]
        return _Nearest(self.places[order], self.rows[order], self.distances[order])


def _nearest(pairs: Iterator[PairColumns], distinct: Words) -> _Nearest:
    """Return the nearest row of the reference for each distinct fingerprint."""
    index = _kernel.RowIndex(distinct)
    parts = [_Nearest(np.empty(0, np.intp), distinct[:0], np.empty(0, np.uint16))]
    count = 0
    limit = MAX_PENDING_PAIRS
    # distance up to which a row may be the nearest
    farthest = np.full(len(distinct), np.iinfo(np.uint16).max, np.uint16)
    for batch in pairs:
        places, distances = index.places(batch.a).view(np.intp), batch.distances.astype(np.uint16)
        near = distances <= farthest[places]
        parts.append(_Nearest(places[near], batch.b[near], distances[near]))
        count += len(parts[-1].places)
        if count > limit:
            parts = [_join_parts(parts).best()]
            count = len(parts[0].places)
            limit = max(MAX_PENDING_PAIRS, 2 * count)
            farthest[parts[0].places] = parts[0].distances
    return _join_parts(parts).best()


def _join_parts(parts: list[_Nearest]) -> _Nearest:
    return _Nearest(*map(np.concatenate, zip(*parts, strict=True)))
