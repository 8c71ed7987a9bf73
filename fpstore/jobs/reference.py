"""A reference that a corpus is compared with.

A store, or the rows of another corpus, whose documents stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import differs, distinct_places
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width, words_of
from fpstore.building.builder import Options, build_store
from fpstore.change.decisions import is_fresh, kind_with
from fpstore.errors import InputError, StoreExistsError
from fpstore.io.source import RowSource, unwritable_id
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity, id_columns, ids_in
from fpstore.jobs.compared import ComparedRows
from fpstore.jobs.joining import PairColumns
from fpstore.jobs.pairs import Side, pairs_with
from fpstore.jobs.row_set import RowSet
from fpstore.jobs.verified import Alike
from fpstore.query.names import HeldIds, names_of

MOST_HELD = 1 << 22  # pairs, or twice as many as the nearest, before all but these are dropped
PART = "reference"  # of a checkpoint


class Reference(NamedTuple):
    """A store (`fpstore.Store`, None for one that will be made at a path), or a corpus.

    Kept rows may be added to the store.
    """

    path: str
    store: Any = None
    corpus: RowSource | None = None
    adds: bool = False

    def identity(self) -> JobIdentity:
        """Return the facts that a job with this reference depends on.

        What a store holds may change until rows are written.
        """
        files = [] if self.corpus is None else self.corpus.states()
        path = str(Path(self.path).absolute()) if self.corpus is None else self.path
        return {
            "reference": path,
            "adds": self.adds,
            **{f"reference file {n}": state for n, state in enumerate(files, 1)},
        }

    def ids_to_add(self, ids: Words | list[str], typed: bool) -> Words | list[str]:
        """Return ids as the store takes them; InputError if it has others.

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
        made: dict[str, Any] | None,
    ) -> None:
        """Insert fingerprints with their ids into the store, in one change.

        What a killed run has inserted changes nothing.
        """
        if not len(rows):
            return
        if self.store is not None:
            self.store.insert(width.outside(rows), ids)
            return
        options = Options(radius=radius, width=width.bits, fingerprinter=made)
        try:
            build_store(Path(self.path), width.outside(rows), ids, options, overwrite=False)
        except StoreExistsError:
            raise self._appeared() from None

    def check_began(self, rows: Words, near: NearReference) -> None:
        """Raise StoreExistsError if a job that is resumed began without a store, and has not made the one that is there."""
        if not near.of_store and self.store is not None and len(rows):
            lims, _ = self.store.snapshot().id_numbers(rows)
            if not np.diff(lims).all():
                raise self._appeared()

    def _appeared(self) -> StoreExistsError:
        advice = "remove the output, and the folder .resume beside it, and run again"
        return StoreExistsError(
            f"{self.path}: appeared while this job ran, and its rows were not compared: {advice}",
            path=self.path,
        )


class NearReference(NamedTuple):
    """Documents that are near a reference, by their places, ascending.

    The id of the nearest one there, and its distance.
    """

    places: npt.NDArray[np.intp]
    ids: Words | list[str]
    distances: npt.NDArray[np.uint16]
    of_store: bool = True  # that was there

    @classmethod
    def of(cls, found: Candidates, side: Side, alike: Alike | None = None) -> NearReference:
        """Return the documents that have a candidate, or one that is alike, of one side of a join."""
        places, chosen = found.chosen(alike)
        return cls(places, names_of(side, found.numbers[chosen]), found.distances[chosen])

    def refuse_unwritable(self, path: str, characters: str) -> None:
        """Raise InputError for an id of the store at a path that a list cannot have, as it has one of the characters."""
        wrong = (
            unwritable_id(StringColumn.of(self.ids), characters)
            if isinstance(self.ids, list)
            else None
        )
        if wrong is not None:
            raise InputError(f"{path}: {wrong[1]}", path=path)

    def save(self, checkpoint: Checkpoint, of_store: bool) -> None:
        """Make a part of a checkpoint."""
        ids = StringColumn.of(self.ids) if isinstance(self.ids, list) else self.ids
        part = checkpoint.write(PART)
        columns: dict[str, Any] = {
            "places": self.places.astype(np.uint64),
            "distances": self.distances,
            "store": np.array([of_store]),
        }
        part.append({**columns, **id_columns(ids)})
        part.finish()

    @classmethod
    def saved(cls, checkpoint: Checkpoint) -> NearReference:
        """Return the part of a checkpoint."""
        (columns,) = checkpoint.read(PART)
        found = ids_in(columns)
        assert found is not None
        ids = list(found.texts()) if isinstance(found, StringColumn) else found
        return cls(
            columns["places"].astype(np.intp), ids, columns["distances"], bool(columns["store"][0])
        )


def join_side(documents: ComparedRows, width: Width) -> RowSet:
    """Return the documents of a corpus as one side of a join.

    Their ids are row numbers unless they have others.
    """
    names = HeldIds(documents.rows.view(np.uint64)) if documents.ids is None else documents.ids
    return RowSet(documents.fingerprints, names, width)


class Candidates(NamedTuple):
    """Documents of a reference that may be near those of a corpus, the nearest first.

    One of each fingerprint that is.

    Document d has those at ``lims[which[d]]:lims[which[d] + 1]``, by their numbers in the
    reference.
    """

    which: npt.NDArray[np.intp]
    lims: npt.NDArray[np.intp]
    numbers: Words
    distances: npt.NDArray[np.uint16]

    def documents(self) -> npt.NDArray[np.intp]:
        """Return the places of the documents that have candidates, ascending."""
        return np.flatnonzero((self.lims[1:] > self.lims[:-1])[self.which])

    def chosen(
        self, alike: Alike | None = None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the places of documents, and which candidate each has.

        The first, or the first that is alike, if one is.
        """
        waiting = self.documents()
        starts, stops = self.lims[self.which], self.lims[self.which + 1]
        if alike is None:
            return waiting, starts[waiting]
        found = np.full(len(self.which), -1)
        for turn in range(int((stops - starts).max(initial=0))):
            waiting = waiting[starts[waiting] + turn < stops[waiting]]
            candidates = starts[waiting] + turn
            hit = alike(waiting.astype(np.uint64), self.numbers[candidates])
            found[waiting[hit]] = candidates[hit]
            waiting = waiting[~hit]
        places = np.flatnonzero(found >= 0)
        return places, found[places]


def near_candidates(
    side: Side, fingerprints: Words, radius: int, width: Width, resources: Resources, most: int
) -> Candidates:
    """Return up to so many documents of a reference for each document, by their fingerprints, within the radius.

    Of equally near fingerprints of the reference, the least come first.
    """
    distinct, which = distinct_places(fingerprints)
    found = _nearest(pairs_with(side, distinct, radius, width, resources), distinct, most)
    others, at = distinct_places(found.others)
    lims, numbers = side.stored_id_numbers(others)
    bounds = np.searchsorted(found.places, np.arange(len(distinct) + 1))
    return Candidates(which, bounds, numbers[lims[:-1]][at], found.distances)


class _Nearest(NamedTuple):
    # of distinct fingerprints, ascending; those of one, from the nearest on
    places: npt.NDArray[np.intp]
    others: Words
    distances: npt.NDArray[np.uint16]

    def best(self, most: int) -> _Nearest:
        """Return at most so many for each place."""
        words = self.others.reshape(-1, words_of(self.others))
        order = np.lexsort((*words.T[::-1], self.distances, self.places))
        places = self.places[order]
        starts = np.flatnonzero(differs(places))
        ranks = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
        order = order[ranks < most]
        return _Nearest(self.places[order], self.others[order], self.distances[order])


def _nearest(pairs: Iterator[PairColumns], distinct: Words, most: int) -> _Nearest:
    """Return the fingerprints of the reference that are nearest to each of some."""
    index = _kernel.RowIndex(distinct)
    held, count, limit = (
        [_Nearest(np.empty(0, np.intp), distinct[:0], np.empty(0, np.uint16))],
        0,
        MOST_HELD,
    )
    # distance that is still among the nearest
    farthest = np.full(len(distinct), np.iinfo(np.uint16).max, np.uint16)
    for batch in pairs:
        places, distances = index.places(batch.a).view(np.intp), batch.distances.astype(np.uint16)
        near = distances <= farthest[places]
        held.append(_Nearest(places[near], batch.b[near], distances[near]))
        count += len(held[-1].places)
        if count > limit:
            held = [_joined(held).best(most)]
            count = len(held[0].places)
            limit = max(MOST_HELD, 2 * count)
            counts = np.bincount(held[0].places, minlength=len(distinct))
            full = counts == most
            farthest[full] = held[0].distances[np.cumsum(counts)[full] - 1]
    return _joined(held).best(most)


def _joined(parts: list[_Nearest]) -> _Nearest:
    return _Nearest(*map(np.concatenate, zip(*parts, strict=True)))
