"""Rows in several variants, such as pictures in eight orientations: near rows, and their groups."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import distinct_places
from fpstore.base.resources import Resources
from fpstore.base.width import Width, row_places
from fpstore.jobs.grouping import Members, Numbers, regroup
from fpstore.jobs.joining import pairs_between
from fpstore.jobs.pairs import join_design


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
        rows, others = self._rows[places], self._rows[other_places]
        both = [
            np.bitwise_count(a ^ b[:, :1]).sum(axis=2, dtype=np.uint16).min(axis=1)
            for a, b in ((rows, others), (others, rows))
        ]
        distances: npt.NDArray[np.uint16] = np.minimum(*both)
        return distances

    def connect(self, radius: int, resources: Resources) -> Numbers:
        """Return for each row the number of its set; chains of near rows connect a set."""
        resources.report("grouping", 0)
        upright, place = distinct_places(self._words(self._rows[:, 0]))
        variants, place_of_variant = distinct_places(self._words(self._rows))
        count = self._rows.shape[1]
        owner = np.repeat(np.arange(len(place), dtype=np.uint64), count)  # of each variant
        first_row, first_owner = (
            np.empty(len(upright), np.uint64),
            np.empty(len(variants), np.uint64),
        )
        first_row[place[::-1]] = np.arange(len(place), dtype=np.uint64)[::-1]
        first_owner[place_of_variant[::-1]] = owner[::-1]
        sets, is_near = _kernel.Sets(len(place)), np.zeros(len(variants), bool)
        sets.unite(owner[::count].copy(), first_row[place])
        for pairs in pairs_between(
            upright, variants, join_design(variants, radius, self._width), resources
        ):
            near = row_places(variants, pairs.b)
            is_near[near] = True
            sets.unite(first_row[row_places(upright, pairs.a)], first_owner[near])
        # all rows with a variant that is near a row are near that row
        shared = is_near[place_of_variant]
        sets.unite(owner[shared], first_owner[place_of_variant[shared]])
        return sets.names()

    def split_chains(
        self, members: Members, ranks: npt.NDArray[np.integer], radius: int
    ) -> Members:
        """Return groups as :func:`fpstore.jobs.grouping.split_chains` does."""

        def choose(span: slice, order: npt.NDArray[np.intp], lims: Lims) -> Words:
            documents = members.documents[span][order].view(np.intp)
            return np.concatenate(
                [
                    start + self._representatives(documents[start:end], radius)
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
            least[number] = -1  # it stays, whatever comes
        return chosen

    def _words(self, rows: Words) -> Words:
        words = self._width.words
        return np.ascontiguousarray(rows).reshape((-1,) if words == 1 else (-1, words))
