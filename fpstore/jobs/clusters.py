"""Clusters of near-duplicates: the connected components of the documents whose fingerprints are within a radius."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Lims, Words
from fpstore.jobs.linking import connected
from fpstore.jobs.pairs import join_design, rows_of
from fpstore.lims import lims_of
from fpstore.query.snapshot import Snapshot


class Members(NamedTuple):
    """Documents in clusters of two or more, cluster by cluster.

    Attributes
    ----------
    lims : ndarray of int64, (clusters + 1,)
        The members of cluster c are at ``lims[c]:lims[c + 1]``.
    documents : ndarray of uint64
        Their numbers, ascending in each cluster; clusters are in the order of their first members.
    """

    lims: Lims
    documents: Words


class Clusters:
    """The clusters of a store that have two or more documents. Iterates as one list of ids per cluster.

    Attributes
    ----------
    documents : int
        All documents of the store, in clusters or alone.
    lims : ndarray of int64, shape (clusters + 1,)
        The ids of cluster c are ``ids[lims[c]:lims[c + 1]]``.
    ids : ndarray of uint64 or list of str, shape (members,)
        The documents of each cluster, the representative first: the one with the least id; of strings, the one whose id the
        store saw first.
    """

    def __init__(self, lims: Lims, ids: Words | list[str], documents: int) -> None:
        self.lims = lims
        self.ids = ids
        self.documents = documents

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of documents of each cluster."""
        return np.diff(self.lims)

    @property
    def duplicates(self) -> int:
        """The number of documents in clusters that are not the representative: what a deduplication removes."""
        return int(self.lims[-1]) - len(self)

    def columns(self) -> dict[str, Any]:
        """Return a row per document in a cluster: ``id``, the number of the ``cluster``, and the id of its ``representative``."""
        cluster = np.repeat(np.arange(len(self), dtype=np.uint64), self.sizes)
        firsts = np.repeat(self.lims[:-1], self.sizes)
        if isinstance(self.ids, list):
            return {"id": self.ids, "cluster": cluster, "representative": [self.ids[first] for first in firsts.tolist()]}
        return {"id": self.ids, "cluster": cluster, "representative": self.ids[firsts]}

    def __len__(self) -> int:
        return len(self.lims) - 1

    @overload
    def __getitem__(self, place: int) -> list[int] | list[str]: ...
    @overload
    def __getitem__(self, place: slice) -> list[list[int] | list[str]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        place = range(len(self))[place]
        members = self.ids[self.lims[place] : self.lims[place + 1]]
        return members if isinstance(members, list) else members.tolist()

    def __iter__(self) -> Iterator[list[int] | list[str]]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return f"<fpstore.Clusters: {len(self)} clusters of {int(self.lims[-1])} among {self.documents} documents>"


def members_of(sets: npt.NDArray[Any], documents: Words) -> Members:
    """Return the members of the sets of two or more documents.

    Parameters
    ----------
    sets : ndarray of unsigned integers
        The set of each row.
    documents : ndarray of uint64
        The number of the document of each row.
    """
    order = np.lexsort((documents, sets))
    sets, documents = sets[order], documents[order]
    begins = np.flatnonzero(_differs(sets))
    sizes = np.diff(np.concatenate([begins, [len(sets)]]))
    kept = sizes > 1
    begins, sizes = begins[kept], sizes[kept]
    order = np.argsort(documents[begins], kind="stable")
    begins, sizes = begins[order], sizes[order]
    lims = lims_of(sizes)
    places = np.arange(int(lims[-1])) + np.repeat(begins - lims[:-1], sizes)
    return Members(lims, documents[places])


def _differs(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which values are not equal to the one before them."""
    return np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])


def clusters_of(snapshot: Snapshot, radius: int) -> Clusters:
    """Return the clusters of a snapshot; see :meth:`fpstore.Store.clusters`."""
    rows = rows_of(snapshot)
    sets = connected(rows, join_design(rows, radius, snapshot.width))
    del rows
    held, held_documents, done = [sets[:0]], [np.empty(0, np.uint64)], 0
    for _, counts, numbers in snapshot.groups():
        held.append(np.repeat(sets[done : done + len(counts)], counts.astype(np.int64)))
        held_documents.append(numbers)
        done += len(counts)
    own, documents = np.concatenate(held), np.concatenate(held_documents)
    del held, held_documents
    order = np.argsort(documents, kind="stable")
    own, documents = own[order], documents[order]
    again = ~_differs(documents)
    if again.any():  # a document of several fingerprints connects what they are connected with
        own = _united(sets, own[1:][again[1:]], own[:-1][again[1:]])[own]
        own, documents = own[~again], documents[~again]
    members = members_of(own, documents)
    return Clusters(members.lims, snapshot.names_of(members.documents), len(documents))


def _united(sets: npt.NDArray[Any], a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the sets with some of them united, pair by pair."""
    united = _kernel.Sets(len(sets))
    united.unite(np.arange(len(sets), dtype=np.uint64), sets.astype(np.uint64))
    united.unite(a.astype(np.uint64), b.astype(np.uint64))
    return united.names()
