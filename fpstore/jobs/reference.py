"""References: a store, or another corpus, near whose documents a deduplication keeps no rows."""

from __future__ import annotations

from collections.abc import Iterator
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
from fpstore.io.source import RowSource, unwritable_id
from fpstore.jobs.compared import ComparedRows
from fpstore.jobs.joining import PairColumns
from fpstore.jobs.pairs import Side, pairs_with
from fpstore.jobs.row_set import RowSet
from fpstore.jobs.verified import Alike
from fpstore.query.id_lookup import InMemoryIds, ids_at
from fpstore.work.checkpoint import Checkpoint, JobIdentity
from fpstore.work.ids import plain_ids
from fpstore.work.pieces import PieceWriter

MAX_PENDING_PAIRS = 1 << 22  # pairs, or twice the nearest ones, before all others are dropped
STAGE = "reference"  # of a checkpoint


class Reference(NamedTuple):
    """A store (`fpstore.Store`, None for a new one at the path), or a corpus.

    With ``adds``, kept rows are added to the store.
    """

    path: str
    store: Any = None
    corpus: RowSource | None = None
    adds: bool = False

    def identity(self) -> JobIdentity:
        """Return the facts about the reference that the result of a job depends on.

        The content of a store is none of them: it may change until rows are written.
        """
        files = [] if self.corpus is None else self.corpus.states()
        path = str(Path(self.path).absolute()) if self.corpus is None else self.path
        return {
            "reference": path,
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
    """Documents near a reference: places, ascending, with the nearest id there and its distance."""

    places: npt.NDArray[np.intp]
    ids: Words | list[str]
    distances: npt.NDArray[np.uint16]
    of_store: bool = True  # a store that was there when the job began

    @classmethod
    def from_candidates(
        cls, candidates: Candidates, side: Side, alike: Alike | None = None
    ) -> NearReference:
        """Return the documents with a candidate, the nearest, or the nearest that is alike."""
        places, chosen = candidates.chosen(alike)
        return cls(places, ids_at(side, candidates.numbers[chosen]), candidates.distances[chosen])

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
        writer.add("near.distances", self.distances)
        writer.add_ids("near.kept", ids)

    @classmethod
    def saved(cls, checkpoint: Checkpoint) -> NearReference | None:
        pieces = checkpoint.result(STAGE, 0)
        if pieces is None:
            return None
        ids, distances = plain_ids(pieces.read_ids("near.kept")), pieces.read("near.distances")
        return cls(pieces.read("near.places"), ids, distances, pieces.facts["store"])


def join_side(documents: ComparedRows, width: Width) -> RowSet:
    """Return the documents of a corpus as one side of a join; without ids, row numbers are ids."""
    names = InMemoryIds(documents.rows.view(np.uint64)) if documents.ids is None else documents.ids
    return RowSet(documents.fingerprints, names, width)


class Candidates(NamedTuple):
    """Documents of a reference near those of a corpus, the nearest first.

    There is one for each fingerprint of the reference. Document d has the candidates
    ``lims[groups[d]]:lims[groups[d] + 1]``; ``numbers`` are numbers in the reference.
    """

    groups: npt.NDArray[np.intp]
    lims: npt.NDArray[np.intp]
    numbers: Words
    distances: npt.NDArray[np.uint16]

    def documents(self) -> npt.NDArray[np.intp]:
        """Return the places of the documents that have candidates, ascending."""
        return np.flatnonzero((self.lims[1:] > self.lims[:-1])[self.groups])

    def chosen(
        self, alike: Alike | None = None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the places of documents, and the first candidate of each, or first alike one."""
        waiting = self.documents()
        starts, stops = self.lims[self.groups], self.lims[self.groups + 1]
        if alike is None:
            return waiting, starts[waiting]
        choice = np.full(len(self.groups), -1)
        for turn in range(int((stops - starts).max(initial=0))):
            waiting = waiting[starts[waiting] + turn < stops[waiting]]
            candidates = starts[waiting] + turn
            hit = alike(waiting.astype(np.uint64), self.numbers[candidates])
            choice[waiting[hit]] = candidates[hit]
            waiting = waiting[~hit]
        places = np.flatnonzero(choice >= 0)
        return places, choice[places]


def near_candidates(
    side: Side, fingerprints: Words, radius: int, width: Width, resources: Resources, most: int
) -> Candidates:
    """Return up to ``most`` candidates within the radius for each document.

    Of equally near fingerprints of the reference, the least come first.
    """
    distinct, which = distinct_places(fingerprints)
    nearest = _nearest(pairs_with(side, distinct, radius, width, resources), distinct, most)
    distinct_rows, at = distinct_places(nearest.rows)
    lims, numbers = side.stored_id_numbers(distinct_rows)
    bounds = np.searchsorted(nearest.places, np.arange(len(distinct) + 1))
    return Candidates(which, bounds, numbers[lims[:-1]][at], nearest.distances)


class _Nearest(NamedTuple):
    """Pairs of the place of a distinct fingerprint, ascending, and a row near it, by distance."""

    places: npt.NDArray[np.intp]
    rows: Words
    distances: npt.NDArray[np.uint16]

    def best(self, most: int) -> _Nearest:
        """Return the ``most`` nearest for each place."""
        words = self.rows.reshape(-1, row_words(self.rows))
        order = np.lexsort((*words.T[::-1], self.distances, self.places))
        places = self.places[order]
        starts = np.flatnonzero(is_run_start(places))
        ranks = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
        order = order[ranks < most]
        return _Nearest(self.places[order], self.rows[order], self.distances[order])


def _nearest(pairs: Iterator[PairColumns], distinct: Words, most: int) -> _Nearest:
    """Return the ``most`` nearest rows of the reference for each distinct fingerprint."""
    index = _kernel.RowIndex(distinct)
    parts = [_Nearest(np.empty(0, np.intp), distinct[:0], np.empty(0, np.uint16))]
    count = 0
    limit = MAX_PENDING_PAIRS
    # distance up to which a row may be among the nearest
    farthest = np.full(len(distinct), np.iinfo(np.uint16).max, np.uint16)
    for batch in pairs:
        places, distances = index.places(batch.a).view(np.intp), batch.distances.astype(np.uint16)
        near = distances <= farthest[places]
        parts.append(_Nearest(places[near], batch.b[near], distances[near]))
        count += len(parts[-1].places)
        if count > limit:
            parts = [_join_parts(parts).best(most)]
            count = len(parts[0].places)
            limit = max(MAX_PENDING_PAIRS, 2 * count)
            counts = np.bincount(parts[0].places, minlength=len(distinct))
            full = counts == most
            farthest[full] = parts[0].distances[np.cumsum(counts)[full] - 1]
    return _join_parts(parts).best(most)


def _join_parts(parts: list[_Nearest]) -> _Nearest:
    return _Nearest(*map(np.concatenate, zip(*parts, strict=True)))
