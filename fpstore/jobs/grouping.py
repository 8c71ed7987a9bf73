"""Groups of near-duplicate documents, and which document represents each group."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import lists_of, spans, stable_order
from fpstore.base.width import WORD_BITS, words_of
from fpstore.io.scores import ranks_of_keys

Numbers = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
PIECE = 1 << 20  # members of groups that are looked at together


class Members(NamedTuple):
    """Documents in groups of two or more, group by group, in the order of the least number in each group.

    The members of group g are at ``lims[g]:lims[g + 1]``: ascending numbers, or the representative first.
    """

    lims: Lims
    documents: Words


def members_of(sets: Numbers, documents: Numbers) -> tuple[Members, Words]:
    """Return the members of the sets of two or more documents, and the places at which they were.

    ``sets`` has a number for the set of each document. It takes about three bits of memory for each number up to the largest.
    """
    lims, members, places = _kernel.documents_in_sets(sets, documents)
    return Members(lims.view(np.int64), members), places


def represented(members: Members, ranks: npt.NDArray[Any]) -> Members:
    """Return groups of ascending members with the member of the least rank first; of equal ranks, the first member."""
    documents = np.empty_like(members.documents)
    for groups in spans(members.lims, PIECE):
        lims = members.lims[groups.start : groups.stop + 1]
        sizes, here = np.diff(lims), slice(int(lims[0]), int(lims[-1]))
        begins = lims[:-1] - lims[0]
        some = ranks[here]
        least = np.flatnonzero(some == np.repeat(np.minimum.reduceat(some, begins), sizes))
        _, firsts = np.unique(np.searchsorted(begins, least, side="right"), return_index=True)
        chosen, begins, places = np.repeat(least[firsts], sizes), np.repeat(begins, sizes), np.arange(len(some))
        moved = np.where(places == chosen, begins, np.where(places < chosen, places + 1, places))
        documents[here.start + moved] = members.documents[here]
    return Members(members.lims, documents)


def distances_to_majority(rows: Words, lims: Lims) -> npt.NDArray[np.int64]:
    """Return the distance of each fingerprint from the majority of its group, bit by bit, where the sum of distances is least."""
    distances = np.zeros(len(rows), np.int64)
    for groups in spans(lims, PIECE):
        some = lims[groups.start : groups.stop + 1]
        here = slice(int(some[0]), int(some[-1]))
        words = rows[here].reshape(-1, words_of(rows))
        for word in words.T:
            distances[here] += _distances_of_words(word, some - some[0])
    return distances


def _distances_of_words(word: Words, lims: Lims) -> npt.NDArray[np.uint8]:
    sizes = np.diff(lims)
    majority = np.zeros(len(sizes), np.uint64)
    for bit in range(WORD_BITS):
        ones = np.add.reduceat((word >> np.uint64(bit)) & np.uint64(1), lims[:-1]).astype(np.int64)
        majority |= (2 * ones > sizes).astype(np.uint64) << np.uint64(bit)
    distances: npt.NDArray[np.uint8] = np.bitwise_count(word ^ np.repeat(majority, sizes))
    return distances


def without_chains(members: Members, rows: Words, ranks: npt.NDArray[Any], radius: int) -> Members:
    """Return groups in which each member is within the radius of its representative, which stands first.

    In each connected group, in the order of ranks, a member that is within the radius of no representative becomes one. The
    others go to the nearest one, of several to the first. ``rows`` has the fingerprints of the members.
    """
    if not len(ranks):
        return members
    order = stable_order(ranks)
    order = order[stable_order(lists_of(members.lims)[order])]
    chosen = _kernel.group_greedily(rows[order], members.lims.astype(np.uint64), radius)
    representatives = np.empty(len(order), np.uint64)
    representatives[order] = order[chosen.view(np.intp)]
    new, places = members_of(representatives, members.documents)
    return represented(new, representatives[places.view(np.intp)] != places)


class Grouping(NamedTuple):
    """The groups that are wanted: the radius, one of GROUPINGS, and one of KEEP_RULES for their representatives."""

    radius: int
    group: str
    keep: str

    @property
    def needs_fingerprints(self) -> bool:
        """Whether fingerprints of the members are compared."""
        return self.group == "greedy" or self.keep == "central"


def grouped(
    members: Members,
    grouping: Grouping,
    fingerprints: Callable[[], Words],
    ids: Callable[[Words], Words | list[str]],
    scores: Words | None = None,
) -> Members:
    """Return the groups that are wanted, of connected ones with ascending members; the representative of each stands first.

    ``fingerprints`` returns the fingerprints of the members, ``ids`` the ids of documents by their numbers. ``scores``, for the
    rule "highest", has the key (`fpstore.io.scores`) of each document.
    """
    if grouping.group == "connected" and grouping.keep == "first":
        return members
    rows = fingerprints() if grouping.needs_fingerprints else members.documents[:0]
    ranks = ranks_of(members, grouping.keep, lambda: rows, ids, scores)
    return without_chains(members, rows, ranks, grouping.radius) if grouping.group == "greedy" else represented(members, ranks)


def ranks_of(
    members: Members, keep: str, fingerprints: Callable[[], Words], ids: Callable[[Words], Words | list[str]],
    scores: Words | None = None,
) -> npt.NDArray[Any]:  # fmt: skip
    """Return ranks of the members by one of KEEP_RULES, by which the least represents a group; the rest is as for `grouped`."""
    if keep == "central":
        return distances_to_majority(fingerprints(), members.lims)
    if keep == "smallest":
        return _ranks_of_ids(ids(members.documents), members.lims)
    if keep == "highest":
        assert scores is not None
        return ranks_of_keys(scores[members.documents.view(np.intp)])
    return members.documents


def _ranks_of_ids(ids: Words | list[str], lims: Lims) -> npt.NDArray[Any]:
    """Return ranks by which the least id of a group is its first: of numbers by value, of strings by code points."""
    if isinstance(ids, np.ndarray):
        return ids
    order = [place for group in pairwise(lims.tolist()) for place in sorted(range(*group), key=ids.__getitem__)]
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks
