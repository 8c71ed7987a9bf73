"""Groups of near-duplicate documents, and which document represents each group."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import list_lims, list_numbers, lists_at, spans, stable_order
from fpstore.base.width import WORD_BITS, empty_rows_like
from fpstore.io.scores import ranks_of_keys
from fpstore.jobs.text_sets import TextSets

Numbers = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]
PIECE = 1 << 18  # members of groups that are processed together
RowReader = Callable[[slice], Words]  # the fingerprints of a slice of the members
IdReader = Callable[[Words], Words | list[str]]  # the ids of documents, by their numbers
# from a slice of the members, their places in order there, and the lims of their groups
Choose = Callable[[slice, npt.NDArray[np.intp], Lims], Words]


class Members(NamedTuple):
    """Documents in groups of two or more, ordered by the least document of each group.

    The members of group g are at ``lims[g]:lims[g + 1]``: ascending numbers, or the representative
    first.
    """

    lims: Lims
    documents: Words

    @property
    def is_removed(self) -> Flags:
        """For each member, whether it stands behind the first of its group."""
        flags = np.ones(len(self.documents), bool)
        flags[self.lims[:-1]] = False
        return flags


def members_in_sets(sets: Numbers, documents: Numbers | None = None) -> tuple[Members, Words]:
    """Return the members of the sets of two or more documents, and their places in ``sets``.

    ``sets`` has the number of each document's set. Without ``documents``, the number of a document
    is its place. It takes about three bits of memory for each number up to the largest, and some 40
    bytes for each member.
    """
    lims, members, places = _kernel.documents_in_sets(sets, documents)
    return Members(lims.view(np.int64), members), places


def put_representatives_first(members: Members, ranks: npt.NDArray[Any]) -> Members:
    """Move the member of the least rank, the first of equal ones, to the front of each group.

    The members of each group must ascend.
    """
    documents = np.empty_like(members.documents)
    for groups in spans(members.lims, PIECE):
        lims = members.lims[groups.start : groups.stop + 1]
        sizes, span = np.diff(lims), slice(int(lims[0]), int(lims[-1]))
        begins = lims[:-1] - lims[0]
        piece_ranks = ranks[span]
        least = np.flatnonzero(
            piece_ranks == np.repeat(np.minimum.reduceat(piece_ranks, begins), sizes)
        )
        _, firsts = np.unique(np.searchsorted(begins, least, side="right"), return_index=True)
        chosen = np.repeat(least[firsts], sizes)
        begins = np.repeat(begins, sizes)
        places = np.arange(len(piece_ranks))
        moved = np.where(places == chosen, begins, np.where(places < chosen, places + 1, places))
        documents[span.start + moved] = members.documents[span]
    return Members(members.lims, documents)


def rows_at(fingerprints: Words, places: Words) -> Words:
    """Return the fingerprints at places of an array, which is read in order, as from a file."""
    order = stable_order(places)
    rows = empty_rows_like(fingerprints, len(places))
    rows[order] = fingerprints[places[order].view(np.intp)]
    return rows


def distances_to_majority(fingerprints: RowReader, lims: Lims) -> npt.NDArray[np.int64]:
    """Return the distance of each fingerprint from the bitwise majority of its group.

    The majority has the least sum of distances.
    """
    distances = np.zeros(int(lims[-1]), np.int64)
    for groups in spans(lims, PIECE):
        bounds = lims[groups.start : groups.stop + 1]
        span = slice(int(bounds[0]), int(bounds[-1]))
        rows = fingerprints(span)
        for word in rows.reshape(len(rows), -1).T:
            distances[span] += _distances_of_words(word, bounds - bounds[0])
    return distances


def _distances_of_words(word: Words, lims: Lims) -> npt.NDArray[np.uint8]:
    sizes = np.diff(lims)
    majority = np.zeros(len(sizes), np.uint64)
    for bit in range(WORD_BITS):
        ones = np.add.reduceat((word >> np.uint64(bit)) & np.uint64(1), lims[:-1]).astype(np.int64)
        majority |= (2 * ones > sizes).astype(np.uint64) << np.uint64(bit)
    distances: npt.NDArray[np.uint8] = np.bitwise_count(word ^ np.repeat(majority, sizes))
    return distances


def split_chains(
    members: Members, fingerprints: RowReader, ranks: npt.NDArray[Any], radius: int
) -> Members:
    """Return groups in which each member is within the radius of its representative.

    The representative stands first. In each connected group, in the order of ranks, a member that
    is within the radius of no representative becomes one. Each other member goes to its nearest
    representative, of equally near ones to the first.
    """

    def choose(span: slice, order: npt.NDArray[np.intp], lims: Lims) -> Words:
        return _kernel.group_greedily(fingerprints(span)[order], lims.view(np.uint64), radius)

    return regroup(members, ranks, choose)


def regroup(
    members: Members, ranks: npt.NDArray[Any], choose: Choose, before: Flags | None = None
) -> Members:
    """Return the groups of members that share a representative, which stands first.

    Members are ordered by their ranks; those of ``before`` come before the others.

    ``choose`` takes a slice of the members, their places there in the order of groups and ranks,
    and the lims of the groups. It returns the place in that order of each one's representative.
    """
    if not len(ranks):
        return members
    pieces, leasts = list[Members](), list[Words]()
    for groups in spans(members.lims, PIECE):
        lims = members.lims[groups.start : groups.stop + 1]
        span = slice(int(lims[0]), int(lims[-1]))
        order = stable_order(ranks[span])
        if before is not None:
            order = order[stable_order(~before[span][order])]
        order = order[stable_order(list_numbers(lims)[order])]
        documents = members.documents[span]
        chosen = choose(span, order, lims - lims[0])
        representatives = np.empty(len(order), np.uint64)
        representatives[order] = order[chosen.view(np.intp)]
        split, places = members_in_sets(representatives, documents)
        leasts.append(split.documents[split.lims[:-1]])
        pieces.append(
            put_representatives_first(split, representatives[places.view(np.intp)] != places)
        )
    return _sort_groups(pieces, np.concatenate(leasts))


def _sort_groups(pieces: list[Members], leasts: Words) -> Members:
    """Return the groups of all pieces in the order of their least members."""
    lims = list_lims(np.concatenate([np.diff(piece.lims) for piece in pieces]))
    documents = np.concatenate([piece.documents for piece in pieces])
    if (leasts[1:] > leasts[:-1]).all():
        return Members(lims, documents)
    order = stable_order(leasts)
    starts, sizes = lims[:-1][order], np.diff(lims)[order]
    ordered, lims = np.empty_like(documents), list_lims(sizes)
    for groups in spans(lims, PIECE):
        ordered[lims[groups.start] : lims[groups.stop]] = lists_at(
            documents, starts[groups], sizes[groups]
        )
    return Members(lims, ordered)


class Splitter(Protocol):
    """Splits chains of rows in several variants: `fpstore.jobs.variants.RowVariants`."""

    def split_chains(self, members: Members, ranks: npt.NDArray[Any], radius: int, /) -> Members:
        """Return groups as :func:`split_chains` does."""


class Grouping(NamedTuple):
    """The radius, one of GROUPINGS, and one of KEEP_RULES for the representatives."""

    radius: int
    group: str
    keep: str

    @property
    def needs_fingerprints(self) -> bool:
        return self.group == "greedy" or self.keep == "central"


def group_members(
    members: Members,
    grouping: Grouping,
    fingerprints: RowReader,
    ids: IdReader,
    scores: Words | None = None,
    variants: Splitter | None = None,
) -> Members:
    """Return the groups by a rule, from connected groups of ascending members.

    The representative of each group stands first. ``fingerprints`` returns the rows of a slice of
    the members, ``ids`` the ids of documents by their numbers. ``scores``, for the rule "highest",
    has the key (`fpstore.io.scores`) of each document. ``variants`` of the members split chains in
    place of the fingerprints.
    """
    if grouping.group == "connected" and grouping.keep == "first":
        return members
    ranks = representative_ranks(members, grouping.keep, fingerprints, ids, scores)
    if grouping.group == "greedy" and variants is not None:
        return variants.split_chains(members, ranks, grouping.radius)
    if grouping.group == "greedy":
        return split_chains(members, fingerprints, ranks, grouping.radius)
    return put_representatives_first(members, ranks)


def representative_ranks(
    members: Members,
    keep: str,
    fingerprints: RowReader,
    ids: IdReader,
    scores: Words | None = None,
) -> npt.NDArray[Any]:
    """Return the ranks of the members by one of KEEP_RULES; the least represents its group."""
    if keep == "central":
        return distances_to_majority(fingerprints, members.lims)
    if keep == "smallest":
        return _id_ranks(ids(members.documents), members.lims)
    if keep == "highest":
        assert scores is not None
        return ranks_of_keys(scores[members.documents.view(np.intp)])
    return members.documents


def rank_documents(
    documents: Words, keep: str, texts: TextSets, ids: IdReader, scores: Words | None
) -> Words:
    """Return ranks by which texts are decided: by one of KEEP_RULES, then by length.

    The least is decided first; equal ones are in the order of their documents.
    """
    ranks = texts.ranks(documents)
    if keep == "first":
        ranks = documents
    elif keep == "smallest":
        names = ids(documents)
        by_id = sorted(range(len(documents)), key=names.__getitem__)
        ranks = np.empty(len(documents), np.uint64)
        ranks[by_id] = np.arange(len(documents), dtype=np.uint64)
    elif keep == "highest":
        assert scores is not None
        order = np.lexsort((documents, ranks, ranks_of_keys(scores[documents.view(np.intp)])))
        ranks = np.empty(len(documents), np.uint64)
        ranks[order] = np.arange(len(documents), dtype=np.uint64)
    return ranks


def _id_ranks(ids: Words | list[str], lims: Lims) -> npt.NDArray[Any]:
    """Return ranks that order the ids of each group: numbers by value, strings by code points."""
    if isinstance(ids, np.ndarray):
        return ids
    order = [
        place
        for group in pairwise(lims.tolist())
        for place in sorted(range(*group), key=ids.__getitem__)
    ]
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks
