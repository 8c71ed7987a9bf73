"""Groups of near-duplicate documents, and which document represents each group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Lims, Words
from fpstore.lims import lims_of
from fpstore.width import WORD_BITS, words_of

PIECE = 1 << 20  # documents that are looked at together
HALF_BITS = 32


class Members(NamedTuple):
    """Documents in groups of two or more, group by group.

    Attributes
    ----------
    lims : ndarray of int64, (groups + 1,)
        The members of group g are at ``lims[g]:lims[g + 1]``.
    documents : ndarray of uint64
        Their numbers: ascending in each group, or the representative first. Groups are in the order of their least numbers.
    """

    lims: Lims
    documents: Words

    @property
    def groups(self) -> npt.NDArray[np.intp]:
        """The group of each member."""
        return np.repeat(np.arange(len(self.lims) - 1), np.diff(self.lims))


def members_of(sets: npt.NDArray[Any], documents: Words) -> tuple[Members, npt.NDArray[np.intp]]:
    """Return the members of the sets of two or more documents, and at which places they were.

    Parameters
    ----------
    sets : ndarray of integers
        For each document, the place of one of its set: the same for all of the set.
    documents : ndarray of unsigned integers
        The numbers of the documents, which are distinct.
    """
    several = np.zeros(len(sets), bool)
    for start in range(0, len(sets), PIECE):
        piece = sets[start : start + PIECE]
        behind = np.flatnonzero(piece != np.arange(start, start + len(piece)))
        several[start + behind] = several[piece[behind]] = True
    places = np.flatnonzero(several)
    places = places[stable_order(documents[places])]
    firsts = np.empty(len(sets), np.intp)
    firsts[sets[places[::-1]]] = np.arange(len(places))[::-1]  # of equal sets, the last that is written is the least document
    begins = firsts[sets[places]]
    order = stable_order(begins)
    places = places[order]
    starts = np.flatnonzero(differs(begins[order]))
    return Members(lims_of(np.diff(np.append(starts, len(order)))), documents[places].astype(np.uint64)), places


def of_documents(sets: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sets of documents, by those of their fingerprints.

    Parameters
    ----------
    sets : ndarray of integers
        For each fingerprint, the place of one of its set.
    places : ndarray of integers
        The fingerprint of each document; each fingerprint has one.

    Returns
    -------
    ndarray of integers
        For each document, the place of one of its set, as :func:`members_of` takes them.
    """
    document = np.empty(len(sets), np.intp)
    document[places] = np.arange(len(places))
    found: npt.NDArray[np.intp] = document[sets[places]]
    return found


def stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the stable order of some numbers; the kernel sorts those of 32 bits several times as fast as NumPy does."""
    if not len(values) or int(values.max()) >> HALF_BITS or len(values) >> HALF_BITS:
        return np.argsort(values, kind="stable")
    keys = values.astype(np.uint64) << np.uint64(HALF_BITS) | np.arange(len(values), dtype=np.uint64)
    _kernel.sort_keys(keys, np.empty_like(keys))
    return (keys & np.uint64((1 << HALF_BITS) - 1)).astype(np.intp)


def differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values are not equal to the one before them."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def represented(members: Members, ranks: npt.NDArray[Any]) -> Members:
    """Return the same groups, in each of them the member of the least rank first; of equal ranks, the first.

    Parameters
    ----------
    members : Members
        Ascending in each group.
    ranks : ndarray, shape (members,)
    """
    if not len(ranks):
        return members
    groups = members.groups
    least = np.flatnonzero(ranks == np.minimum.reduceat(ranks, members.lims[:-1])[groups])
    chosen = np.empty(len(members.lims) - 1, np.intp)
    chosen[groups[least][::-1]] = least[::-1]
    behind = np.ones(len(ranks), bool)
    behind[chosen] = False
    return Members(members.lims, members.documents[np.lexsort((behind, groups))])


def distances_to_majority(rows: Words, lims: Lims) -> npt.NDArray[np.int64]:
    """Return how far each fingerprint is from the majority of its group, bit by bit: where the sum of distances is least.

    Parameters
    ----------
    rows : Words
        The fingerprints of the members of groups.
    lims : Lims
    """
    words = rows.reshape(len(rows), words_of(rows))
    sizes = np.diff(lims)
    distances = np.zeros(len(rows), np.int64)
    if not len(rows):
        return distances
    for word in words.T:
        majority = np.zeros(len(sizes), np.uint64)
        for bit in range(WORD_BITS):
            ones = np.add.reduceat((word >> np.uint64(bit)) & np.uint64(1), lims[:-1]).astype(np.int64)
            majority |= (2 * ones > sizes).astype(np.uint64) << np.uint64(bit)
        distances += np.bitwise_count(word ^ np.repeat(majority, sizes))
    return distances


def without_chains(members: Members, rows: Words, ranks: npt.NDArray[Any], radius: int) -> Members:
    """Return groups in which each member is within the radius of its representative, which stands first.

    In each group that chains connect, the member of the least rank that is in no new group represents the next one, and takes all
    that are within the radius and in none.

    Parameters
    ----------
    members : Members
        Connected groups, ascending.
    rows : Words
        The fingerprints of the members.
    ranks : ndarray, shape (members,)
    radius : int
    """
    if not len(ranks):
        return members
    order = np.lexsort((members.documents, ranks, members.groups))
    ordered = np.ascontiguousarray(rows[order])
    chosen = _kernel.group_greedily(ordered, members.lims.astype(np.uint64), radius)
    representatives = np.empty(len(order), np.int64)
    representatives[order] = order[chosen.astype(np.intp)]
    new, places = members_of(representatives, members.documents)
    return represented(new, (representatives[places] != places).astype(np.int64))


class Asked(NamedTuple):
    """Which groups are asked for: the radius, one of GROUPINGS, and one of KEPT for their representatives."""

    radius: int
    group: str
    rule: str

    @property
    def needs_fingerprints(self) -> bool:
        """Whether fingerprints of the members are compared."""
        return self.group == "greedy" or self.rule == "central"


def grouped(
    members: Members,
    asked: Asked,
    fingerprints: Callable[[], Words],
    ids: Callable[[Words], Words | list[str]],
    scores: npt.NDArray[np.float64] | None = None,
) -> Members:
    """Return the groups that are asked for, of connected ones; the representative of each stands first.

    Parameters
    ----------
    members : Members
        Ascending in each group.
    asked : Asked
    fingerprints : callable
        Returns those of the members.
    ids : callable
        Returns those of documents, by their numbers.
    scores : ndarray, optional
        Those of all documents, for the rule "highest".
    """
    if asked.group == "connected" and asked.rule == "first":
        return members
    ranks: npt.NDArray[Any] = members.documents
    rows = fingerprints() if asked.needs_fingerprints else None
    if asked.rule == "central":
        assert rows is not None
        ranks = distances_to_majority(rows, members.lims)
    elif asked.rule == "smallest":
        ranks = _ranks_of_ids(ids(members.documents))
    elif asked.rule == "highest":
        assert scores is not None
        ranks = -scores[members.documents]
    if asked.group == "greedy":
        assert rows is not None
        return without_chains(members, rows, ranks, asked.radius)
    return represented(members, ranks)


def _ranks_of_ids(ids: Words | Sequence[str]) -> npt.NDArray[Any]:
    """Return ranks by which the least id is the first: of numbers by value, of strings by code points."""
    if isinstance(ids, np.ndarray):
        return ids
    ranks = np.empty(len(ids), np.int64)
    ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids))
    return ranks
