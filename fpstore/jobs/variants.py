"""Rows in several variants: pictures in eight orientations. Near rows, their pairs and groups."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import distinct_places, list_lims, lists_at, stable_order
from fpstore.base.pools import map_in_order
from fpstore.base.resources import MemoryBudget, Resources
from fpstore.base.width import Width, row_places
from fpstore.errors import InputError
from fpstore.hashing.decoding import PictureSource
from fpstore.hashing.image import ImageHash, Rejection
from fpstore.hashing.pictures import WAITING_FILES
from fpstore.jobs.grouping import Members, Numbers, regroup
from fpstore.jobs.joining import PairColumns, pairs_between
from fpstore.jobs.pairs import Pairs, id_batches, join_design
from fpstore.jobs.report_files import FRAME_ID
from fpstore.query.id_lookup import ids_at
from fpstore.query.snapshot import Snapshot
from fpstore.work.checkpoint import Checkpoint


def find_oriented_pairs(
    snapshot: Snapshot,
    hasher: ImageHash,
    radius: int,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
) -> Iterator[Pairs]:
    """Yield the pairs of pictures of which one is near a mirrored or turned copy of the other."""
    variants = RowVariants.read(snapshot, hasher, resources)
    for columns in variants.pairs(radius, resources, checkpoint):
        yield from id_batches(columns, snapshot)


class _VariantJoin:
    """The distinct rows, the distinct variants of all rows, and which of them each row has."""

    def __init__(self, rows: Words, variants: Words) -> None:
        self.upright, self.place = distinct_places(rows)
        self.variants, self.place_of_variant = distinct_places(variants)

    def pairs(
        self, radius: int, width: Width, resources: Resources, checkpoint: Checkpoint | None = None
    ) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
        """Yield the places of distinct rows and of distinct variants within the radius."""
        design = join_design(self.variants, radius, width)
        for pairs in pairs_between(self.upright, self.variants, design, resources, checkpoint):
            yield row_places(self.upright, pairs.a), row_places(self.variants, pairs.b)


def _first_places(numbers: npt.NDArray[np.intp], count: int) -> Words:
    """Return the first place of each number below ``count``."""
    first = np.empty(count, np.uint64)
    first[numbers[::-1]] = np.arange(len(numbers), dtype=np.uint64)[::-1]
    return first


class RowVariants:
    """The variants of each row, the first of which is the row itself.

    Two rows are near if one is within the radius of a variant of the other; their distance is the
    least of these distances.
    """

    def __init__(self, rows: Words, width: Width) -> None:
        """Take words, shape (rows, variants, words of the width)."""
        self._rows, self._width = rows, width

    def distances(
        self, places: npt.NDArray[np.intp], other_places: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """Return the distances of pairs of rows, by their places."""
        distances: npt.NDArray[np.uint16] = self._distances(places, other_places).min(axis=1)
        return distances

    def _distances(
        self, places: npt.NDArray[np.intp], other_places: npt.NDArray[np.intp]
    ) -> npt.NDArray[np.uint16]:
        """Return the distances from the variants of the other row, then the other way round."""
        rows, others = self._rows[places], self._rows[other_places]
        return np.concatenate(
            [
                np.bitwise_count(a[:, :1] ^ b).sum(axis=2, dtype=np.uint16)
                for a, b in ((rows, others), (others, rows))
            ],
            axis=1,
        )

    def at(self, places: npt.NDArray[np.intp]) -> RowVariants:
        """Return the rows at some places."""
        return RowVariants(self._rows[places], self._width)

    def connect(self, radius: int, resources: Resources) -> Numbers:
        """Return for each row the number of its set; chains of near rows connect a set."""
        resources.report("grouping", 0)
        join = _VariantJoin(self._words(self._rows[:, 0]), self._words(self._rows))
        sets, count = _kernel.Sets(len(self._rows)), self._rows.shape[1]
        first_row, first_variant = (
            _first_places(places, number)
            for places, number in (
                (join.place, len(join.upright)),
                (join.place_of_variant, len(join.variants)),
            )
        )
        is_near = np.zeros(len(join.variants), bool)
        for a, variant in join.pairs(radius, self._width, resources):
            is_near[variant] = True
            sets.unite(first_row[a], first_variant[variant] // np.uint64(count))
        # all rows with a variant that is near a row are near that row; each row is a variant
        near = np.flatnonzero(is_near[join.place_of_variant])
        sets.unite(
            near.astype(np.uint64) // np.uint64(count),
            first_variant[join.place_of_variant[near]] // np.uint64(count),
        )
        return sets.names()

    def pairs(
        self, radius: int, resources: Resources, checkpoint: Checkpoint | None = None
    ) -> Iterator[PairColumns]:
        """Yield the pairs of near rows, the lesser row first; rows must be distinct and ascend."""
        rows, count = self._words(self._rows[:, 0]), self._rows.shape[1]
        join = _VariantJoin(rows, self._words(self._rows))
        by_variant = stable_order(join.place_of_variant)
        lims = list_lims(np.bincount(join.place_of_variant, minlength=len(join.variants)))
        for a, variant in join.pairs(radius, self._width, resources, checkpoint):
            sizes = np.diff(lims)[variant]
            owners = lists_at(by_variant, lims[variant], sizes)
            first, (second, number) = np.repeat(a, sizes), np.divmod(owners, count)
            # a pair is met with each variant within the radius, from both sides
            distances = self._distances(np.minimum(first, second), np.maximum(first, second))
            is_first = (distances <= radius).argmax(axis=1) == number + count * (first > second)
            met = np.flatnonzero(is_first & (first != second))
            first, second = first[met], second[met]
            yield PairColumns(
                rows[np.minimum(first, second)],
                rows[np.maximum(first, second)],
                distances[met].min(axis=1),
            )

    def split_chains(self, members: Members, ranks: npt.NDArray[Any], radius: int, /) -> Members:
        """Return groups as :func:`fpstore.jobs.grouping.split_chains`; row i is of member i."""

        def choose(span: slice, order: npt.NDArray[np.intp], lims: Lims) -> Words:
            places = np.arange(span.start, span.stop)[order]
            return np.concatenate(
                [
                    start + self._representatives(places[start:end], radius)
                    for start, end in pairwise(lims.tolist())
                ]
            ).astype(np.uint64)

        return regroup(members, ranks, choose)

    def _representatives(self, places: npt.NDArray[np.intp], radius: int) -> npt.NDArray[np.intp]:
        """Return for each row the representative that is nearest, of equally near ones the first.

        In order, a row that is near no representative becomes one.
        """
        chosen = np.arange(len(places))
        least = np.full(len(places), radius + 1)
        for number in range(len(places)):
            if least[number] <= radius:
                continue
            distances = self.distances(places, places[number : number + 1])
            nearer = distances < least
            chosen[nearer], least[nearer] = number, distances[nearer]
        return chosen

    @classmethod
    def read(cls, snapshot: Snapshot, hasher: ImageHash, resources: Resources) -> RowVariants:
        """Read the pictures of a store again, one for each fingerprint, in eight orientations.

        Ids are their paths. InputError for a picture that has changed or is missing.
        """
        width, done = snapshot.width, 0
        variants = np.empty((snapshot.totals.fingerprints, 8, width.words), np.uint64)
        read = partial(_read_orientations, hasher, MemoryBudget(resources.memory))
        for rows, counts, numbers in snapshot.groups():
            names = map(str, ids_at(snapshot, numbers[list_lims(counts)[:-1]]))
            pictures = map_in_order(read, names, resources.threads, WAITING_FILES)
            for row, (name, fingerprints) in zip(rows, pictures, strict=True):
                values = width.rows(fingerprints)
                if len(values) != 8 or not (values[:1] == row).all():
                    raise InputError(
                        f"{name}: has another fingerprint than in the store: insert it again",
                        path=name,
                    )
                variants[done] = values.reshape(8, -1)
                done += 1
                resources.report("reading", done, len(variants))
        return cls(variants, width)

    def _words(self, rows: Words) -> Words:
        words = self._width.words
        return np.ascontiguousarray(rows).reshape((-1,) if words == 1 else (-1, words))


def _read_orientations(hasher: ImageHash, budget: MemoryBudget, name: str) -> tuple[int, ...]:
    """Return the fingerprints of the picture whose path, or path and frame, is an id."""
    path, number = Path(name), 0
    frame = FRAME_ID.fullmatch(name)
    if hasher.frame == "all" and frame is not None and not path.exists():
        path, number = Path(frame[1]), int(frame[2])
    frames = hasher.frame_fingerprints(
        PictureSource(path, name), every=number > 0, orientations=8, budget=budget
    )
    fingerprints = frames[number] if number < len(frames) else ()
    return () if isinstance(fingerprints, Rejection) else fingerprints
