"""Answers of an index: documents that share a key with an item and have a near signature."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import index
from typing import Any, Generic, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Bytes, Counts, Flags, Id, NamedColumns, Words
from fpstore.base.arrays import list_lims, list_numbers
from fpstore.base.threads import cached_property
from fpstore.base.width import Distances
from fpstore.io.check import check_ids
from fpstore.io.tables import Tabular, arrow_table, values_at
from fpstore.lsh.items import Items
from fpstore.lsh.keys import (
    MAX_NUMBER_BITS,
    EntryLayout,
    document_numbers,
    document_prefixes,
    signature_distances,
)
from fpstore.query.batches import MatchColumns, concatenate, empty_matches, run
from fpstore.query.id_lookup import StoredIdLookup, ids_at, ids_in_slices
from fpstore.query.store_snapshot import StoreSnapshot

ITEMS_AT_ONCE = 1 << 14
MAX_CANDIDATES = 1 << 22  # of a part of several items


class Match(NamedTuple, Generic[Id]):
    """A document that is similar to an item.

    Attributes
    ----------
    id : int or str
    similarity : float
        What the signatures estimate, or the exact one where ``verify`` was given; of some hashers,
        a distance.
    """

    id: Id
    similarity: float


def earlier_matches(
    matches: MatchColumns, finders: npt.NDArray[np.intp], first: int, inserted: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], Words, Distances]:
    """Return the matches that precede the items that found them, as items, rows and distances.

    Documents with numbers from ``first`` on are the inserted items, in order.
    """
    lims, rows, distances = matches
    items, numbers = finders[list_numbers(lims)], document_numbers(rows)
    earlier = numbers < first
    places = (numbers[~earlier] - np.uint64(first)).view(np.intp)
    earlier[~earlier] = inserted[places] < items[~earlier]
    return items[earlier], rows[earlier], distances[earlier]


@dataclass(frozen=True)
class IndexSnapshot:
    """Both stores of an index as of one moment."""

    documents: StoreSnapshot
    keys: StoreSnapshot
    layout: EntryLayout

    def find(self, items: Items, radius: int, threads: int) -> MatchColumns:
        """Find the documents that share a key with an item and lie within the radius.

        The matches are rows of documents, the nearest first.
        """
        count = len(items.rows)
        step = min(ITEMS_AT_ONCE, -(-count // threads)) or 1
        parts = [items.take(slice(start, start + step)) for start in range(0, count, step)]
        return concatenate(
            run(partial(self._probe_items, radius=radius), parts, threads)
            or [empty_matches(items.rows)]
        )

    @cached_property
    def item_prober(self) -> _kernel.ItemProber:
        documents, keys = self.documents, self.keys
        return _kernel.ItemProber(
            keys.generation.prefix_prober(self.layout.prefix_bits),
            documents.generation.prefix_prober(MAX_NUMBER_BITS),
            keys.changes,
            keys.version,
            documents.changes,
            documents.version,
            self.layout.key_bits,
            self.layout.number_bits,
        )

    def probe_item(
        self, sketch: Counts, signature: Bytes, bands: tuple[int, int], radius: int
    ) -> list[tuple[Any, int]]:
        """Return the ids and the distances of the matches of one item; see :meth:`find`."""
        sketch = np.ascontiguousarray(sketch, np.uint32)
        signature = np.ascontiguousarray(signature, np.uint8)
        matches = self.item_prober.probe(sketch, signature, *bands, radius)
        return [(self.documents.probe(row, 0)[0].ids[0], distance) for row, distance in matches]

    def _probe_items(self, items: Items, radius: int, stop: _kernel.Stop | None) -> MatchColumns:
        """Return the matches of items, which are halved if their keys have too many documents."""
        keys, layout, count = items.probe_keys, self.layout, len(items.rows)
        most = MAX_CANDIDATES if count > 1 else None
        shared = self.keys.probe_prefixes(
            layout.prefixes(keys.reshape(-1)), layout.prefix_bits, most, stop
        )
        if shared is None:
            halves = slice(0, count // 2), slice(count // 2, count)
            return concatenate(
                [self._probe_items(items.take(half), radius, stop) for half in halves]
            )
        lims, entries, _ = shared
        owners = np.repeat(np.arange(count * keys.shape[1]) // keys.shape[1], np.diff(lims))
        candidates = np.unique(
            (owners.astype(np.uint64) << np.uint64(MAX_NUMBER_BITS)) | layout.numbers(entries)
        )

        return self._candidates_within(items.rows, candidates, radius, stop)

    def _candidates_within(
        self, rows: Words, candidates: Words, radius: int, stop: _kernel.Stop | None
    ) -> MatchColumns:
        """Return the candidates within the radius.

        A candidate has the place of its item before the number of a document.
        """
        owners = (candidates >> np.uint64(MAX_NUMBER_BITS)).astype(np.intp)
        stored, documents = stored_documents(
            self.documents, candidates & np.uint64((1 << MAX_NUMBER_BITS) - 1), stop
        )
        owners = owners[stored]
        distances = signature_distances(documents, rows[owners])
        near = distances <= radius
        owners, documents, distances = owners[near], documents[near], distances[near]
        order = np.lexsort((distances, owners))
        return (
            list_lims(np.bincount(owners, minlength=len(rows))),
            documents[order],
            distances[order],
        )


def stored_documents(
    documents: StoreSnapshot, numbers: Words, stop: _kernel.Stop | None = None
) -> tuple[Flags, Words]:
    """Return which numbers belong to stored documents, and the rows of those documents."""
    shared = documents.probe_prefixes(document_prefixes(numbers), MAX_NUMBER_BITS, None, stop)
    assert shared is not None
    lims, rows, _ = shared
    return np.diff(lims) > 0, rows


def items_to_insert(items: Items, layout: EntryLayout, radius: int, has_matches: Flags) -> Flags:
    """Return which items to insert: not known, and not similar to an earlier inserted one."""
    inserted = np.zeros(len(has_matches), bool)
    holders: dict[int, list[int]] = {}  # the items to be inserted, by key
    own_keys, probe_keys = (
        layout.prefixes(keys).tolist() for keys in (items.keys, items.probe_keys)
    )
    for item in np.flatnonzero(~has_matches).tolist():
        near = sorted({holder for key in probe_keys[item] for holder in holders.get(key, ())})
        if near and (signature_distances(items.rows[near], items.rows[item]) <= radius).any():
            continue
        inserted[item] = True
        for key in own_keys[item]:
            holders.setdefault(key, []).append(item)
    return inserted


class Matches(Tabular, Generic[Id]):
    """The matches of many items.

    As a sequence, it has one list of :class:`Match` per item, the most similar first.

    Attributes
    ----------
    lims : ndarray of int64, shape (items + 1,)
        The matches of item i are at ``lims[i]:lims[i + 1]``.
    distances : ndarray of uint16, shape (matches,)
        The bits in which the signatures differ.
    similarities : ndarray of float64, shape (matches,)
    inserted : ndarray of bool, shape (items,), or None
        Whether :meth:`LshStore.probe_insert_many` inserted the item.
    """

    def __init__(
        self,
        columns: MatchColumns,
        similarities: npt.NDArray[np.float64],
        stored: StoredIdLookup,
        inserted: Flags | None = None,
    ) -> None:
        self.lims, self._rows, self.distances = columns
        self.similarities = similarities
        self.inserted = inserted
        self._stored = stored

    @overload
    def read_ids(self: Matches[int]) -> Words: ...

    @overload
    def read_ids(self: Matches[str]) -> list[str]: ...

    def read_ids(self) -> Any:
        """Return the ids of the matches: uint64, or strings in a list."""
        return ids_at(self._stored, self._numbers())

    def _numbers(self) -> Words:
        return self._stored.stored_id_numbers(self._rows)[1]  # a document has one id

    def verified(
        self,
        exact: Callable[[int, Words | list[str]], npt.NDArray[np.float64]],
        threshold: float,
        is_distance: bool,
    ) -> Matches[Id]:
        """Return the matches whose exact similarity reaches the threshold.

        A distance must be at most the threshold. ``exact`` returns the values of the item at a
        place and of the documents with these ids.
        """
        ids, sign = ids_at(self._stored, self._numbers()), -1 if is_distance else 1
        places, similar, sizes = [np.empty(0, np.intp)], [np.empty(0)], []
        for item, (start, end) in enumerate(pairwise(self.lims.tolist())):
            values = sign * (exact(item, ids[start:end]) if end > start else np.empty(0))
            order = np.argsort(-values, kind="stable")
            order = order[values[order] >= sign * threshold]
            places.append(start + order)
            similar.append(sign * values[order])
            sizes.append(len(order))
        chosen = np.concatenate(places)
        columns = list_lims(np.array(sizes, np.int64)), self._rows[chosen], self.distances[chosen]
        return Matches(columns, np.concatenate(similar), self._stored)

    def to_arrow(self, *, query_ids: Any = None, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table`` with a row per match.

        ``query_row``, ``query_id`` (if given), ``id``, ``similarity``.

        Parameters
        ----------
        query_ids : array or sequence of int or str, optional
            The ids of the items, one per item.
        names : dict of str to str, optional
            Other names for some of the columns.

        Raises
        ------
        InputError
            There is not one id per item, or a name is wrong.
        MissingExtraError
            pyarrow is not installed.
        """
        ids = None if query_ids is None else check_ids(query_ids, len(self))
        query = np.repeat(np.arange(len(self)), np.diff(self.lims))
        columns: NamedColumns = {"query_row": query.view(np.uint64)}
        if ids is not None:
            columns["query_id"] = values_at(ids, query)
        return arrow_table(
            [
                columns
                | {
                    "id": ids_at(self._stored, self._numbers()),
                    "similarity": self.similarities,
                }
            ],
            names,
        )

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self.lims) - 1

    def __iter__(self) -> Iterator[list[Match[Id]]]:
        similarities = self.similarities.tolist()
        for items, (ids,) in ids_in_slices([(self._stored, self._numbers())], self.lims):
            plain: list[Any] = ids if isinstance(ids, list) else ids.tolist()
            first = int(self.lims[items.start])
            for start, end in pairwise(self.lims[items.start : items.stop + 1].tolist()):
                yield [Match(plain[m - first], similarities[m]) for m in range(start, end)]

    def __getitem__(self, item: int) -> list[Match[Id]]:
        """Return the matches of one item; IndexError if there are fewer items."""
        item = range(len(self))[index(item)]
        matches = slice(*self.lims[item : item + 2].tolist())
        columns = (
            np.array([0, matches.stop - matches.start]),
            self._rows[matches],
            self.distances[matches],
        )
        return next(iter(Matches(columns, self.similarities[matches], self._stored)))

    def __repr__(self) -> str:
        return f"<fpstore.lsh.Matches: {len(self.distances)} matches of {len(self)} items>"
