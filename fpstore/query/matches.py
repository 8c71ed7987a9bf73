"""The results of probes: a match, and the columns of many matches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from operator import index
from typing import Any, Generic, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Id, Lims, NamedColumns, Words
from fpstore.base.arguments import check_whole
from fpstore.base.arrays import list_lims, lists_at
from fpstore.base.width import Distances, Width, equal, fingerprint_text, to_comparable
from fpstore.errors import InputError
from fpstore.io.check import check_ids
from fpstore.io.tables import Tabular, arrow_table, values_at
from fpstore.query.id_lookup import InMemoryIds, StoredIdLookup, ids_at, ids_in_slices


class Match(NamedTuple, Generic[Id]):
    """A stored fingerprint within the radius of a query.

    Its repr has a fingerprint above 64 bits in hexadecimal digits.

    Attributes
    ----------
    fingerprint : int
    distance : int
        The number of bits in which it differs from the query.
    ids : list of int or list of str
        The documents that have the fingerprint.
    """

    fingerprint: int
    distance: int
    ids: list[Id]

    def __repr__(self) -> str:
        return (
            f"Match(fingerprint={fingerprint_text(self.fingerprint)}, distance={self.distance!r}, "
            f"ids={self.ids!r})"
        )


class MatchList(list[Match[Id]]):
    """The matches of one query: a list, by distance and fingerprint.

    Attributes
    ----------
    more : bool
        Whether a ``limit`` left out matches.
    """

    more = False


class MatchedIds(InMemoryIds):
    """The ids of matches at the time of the probe: match m has ``ids[lims[m]:lims[m + 1]]``."""

    def __init__(self, lims: Lims, ids: Words | list[str]) -> None:
        super().__init__(ids)
        self._lims = lims

    def id_numbers(self) -> tuple[Lims, Words]:
        return self._lims, np.arange(len(self.ids), dtype=np.uint64)

    def take(self, matches: npt.NDArray[np.intp]) -> MatchedIds:
        """Return the ids of the matches at some places."""
        sizes = np.diff(self._lims)[matches]
        numbers = lists_at(
            np.arange(len(self.ids), dtype=np.uint64), self._lims[:-1][matches], sizes
        )
        return MatchedIds(list_lims(sizes), ids_at(self, numbers))


class Matches(Tabular, Generic[Id]):
    """The matches of many queries, in columns.

    As a sequence, it has one :class:`MatchList` per query.

    Attributes
    ----------
    lims : ndarray of int64, shape (queries + 1,)
        The matches of query q are at ``lims[q]:lims[q + 1]``.
    distances : ndarray of uint8, shape (matches,)
        Of fingerprints of 256 bits, uint16.
    inserted : ndarray of bool, shape (queries,), or None
        Whether :meth:`fpstore.Store.probe_insert_many` or :meth:`fpstore.Store.probe_upsert_many`
        inserted the query.
    more : ndarray of bool, shape (queries,)
        Whether a ``limit`` left out matches of the query.
    """

    def __init__(
        self,
        lims: npt.NDArray[np.int64],
        rows: Words,
        distances: Distances,
        stored: StoredIdLookup | MatchedIds,
        width: Width,
        queries: Words,
        inserted: npt.NDArray[np.bool_] | None = None,
        more: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        self.lims = lims
        self.rows = rows  # the fingerprints in the kernel's form
        self.distances = distances
        self._stored = stored
        self._width = width
        self._queries = queries  # in the kernel's form, not copied
        self.inserted = inserted
        self.more = np.zeros(len(queries), np.bool_) if more is None else more

    @property
    def fingerprints(self) -> npt.NDArray[Any]:
        """The fingerprints, by query, distance, fingerprint.

        uint64, shape (matches,); of 32 bits uint32; of 128 and 256 bits uint8, shape (matches,
        width / 8), big-endian.
        """
        return self._width.to_array(self.rows)

    @property
    def queries(self) -> npt.NDArray[Any]:
        """The queries, in the form of :attr:`fingerprints`."""
        return self._width.to_array(self._queries)

    @overload
    def read_ids(self: Matches[int]) -> tuple[Lims, Words]: ...

    @overload
    def read_ids(self: Matches[str]) -> tuple[Lims, list[str]]: ...

    def read_ids(self) -> tuple[Lims, Any]:
        """Return (lims, ids): the ids of match m are ``ids[lims[m]:lims[m + 1]]``.

        Uint64, or strings in a list.
        """
        lims, numbers = self._id_numbers()
        return lims, ids_at(self._stored, numbers)

    def rows_of_ids(self) -> Iterator[tuple[npt.NDArray[np.intp], Any]]:
        """Yield (matches, ids) with a row for each match and id.

        A piece has at most 65,536 rows, and about 4 MiB of strings.
        """
        lims, numbers = self._id_numbers()
        match = np.repeat(np.arange(len(self.rows)), np.diff(lims))
        for rows, (ids,) in ids_in_slices([(self._stored, numbers)]):
            yield match[rows], ids

    def _id_numbers(self) -> tuple[Lims, Words]:
        if isinstance(self._stored, MatchedIds):
            return self._stored.id_numbers()
        return self._stored.stored_id_numbers(self.rows)

    def unite(self, count: int, *, limit: int | None = None) -> Matches[Id]:
        """Return the matches of each ``count`` successive queries as those of one query.

        A stored fingerprint is a match if one of the queries is within the radius, and its distance
        is the least. The first query stands for all. It is for the variants of a query, such as a
        picture that is mirrored and turned: see :meth:`fpstore.ImageHash.orientations`.

        Parameters
        ----------
        count : int
            A divisor of the number of queries.
        limit : int, optional
            Keep at most this many matches of each query, the nearest. With the limit of the probe,
            or a smaller one, they are the nearest of all.

        Returns
        -------
        Matches
            ``len(self) / count`` queries. ``inserted`` is None.

        Raises
        ------
        InputError
            `count` does not divide the number of queries.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [0b1000, 0b1011])
        >>> matches = store.probe_many([0b1001, 0b1010], radius=1).unite(2)
        >>> [(match.fingerprint, match.distance) for match in matches[0]]
        [(8, 1), (11, 1)]
        """
        count = check_whole(count, 1, 2**63 - 1, "count")
        if len(self) % count:
            raise InputError(f"{len(self):,} queries cannot be united by {count:,}", got=count)
        query = np.repeat(np.arange(len(self)), np.diff(self.lims)) // count
        order = np.lexsort((self.distances, to_comparable(self.rows), query))
        repeats = np.zeros(len(order), bool)
        repeats[1:] = equal(self.rows[order[1:]], self.rows[order[:-1]])
        repeats[1:] &= query[order[1:]] == query[order[:-1]]
        places = order[~repeats]  # by query and fingerprint
        places = places[np.lexsort((self.distances[places], query[places]))]
        sizes = np.bincount(query[places], minlength=len(self) // count)
        more = np.asarray(self.more.reshape(-1, count).any(axis=1))
        if limit is not None:
            limit = check_whole(limit, 1, 2**63 - 1, "limit")
            ranks = np.arange(len(places)) - list_lims(sizes)[query[places]]
            places, more = places[ranks < limit], more | (sizes > limit)
            sizes = sizes.clip(0, limit)
        stored = self._stored
        return Matches(
            list_lims(sizes),
            self.rows[places],
            self.distances[places],
            stored.take(places) if isinstance(stored, MatchedIds) else stored,
            self._width,
            self._queries[::count],
            more=more,
        )

    def to_arrow(self, *, query_ids: Any = None, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table`` with a row per match and id, in the order of the matches.

        Queries without a match have no row. Distances, and fingerprints of 64 bits that have one id
        each, are not copied.

        Parameters
        ----------
        query_ids : array or sequence of int or str, optional
            The ids of the queries, one per query, for a column ``query_id``.
        names : dict of str to str, optional
            Other names for some of the columns.

        Returns
        -------
        pyarrow.Table
            ``query_row`` (uint64: the place of the query in the batch), ``query_id`` (if given),
            ``query`` and ``fingerprint`` (uint32, uint64, or fixed_size_binary(width / 8) above 64
            bits), ``distance`` (uint8; of 256 bits uint16), and ``id`` (uint64 or string;
            large_string above 2 GiB).

        Raises
        ------
        InputError
            There is not one id per query, or a name is wrong.
        MissingExtraError
            pyarrow is not installed.
        CorruptStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [8, 11], ["a", "b"])
        >>> table = store.probe_many([9], 1).to_arrow(names={"id": "url"})
        >>> table.select(["query_row", "distance", "url"]).to_pylist()
        [{'query_row': 0, 'distance': 1, 'url': 'a'}, {'query_row': 0, 'distance': 1, 'url': 'b'}]
        """
        return arrow_table([self._columns(query_ids)], names)

    def _columns(self, query_ids: Any) -> NamedColumns:
        names = None if query_ids is None else check_ids(query_ids, len(self))
        lims, numbers = self._id_numbers()
        ids = ids_at(self._stored, numbers)
        query = np.repeat(np.arange(len(self)), np.diff(self.lims))
        fingerprints, distances, sizes = self.fingerprints, self.distances, np.diff(lims)
        if (sizes != 1).any():
            match = np.repeat(np.arange(len(sizes)), sizes)
            query, fingerprints, distances = query[match], fingerprints[match], distances[match]
        columns: NamedColumns = {"query_row": query.view(np.uint64)}
        if names is not None:
            columns["query_id"] = values_at(names, query)
        return columns | {
            "query": self.queries[query],
            "fingerprint": fingerprints,
            "distance": distances,
            "id": ids,
        }

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.lims) - 1

    def __iter__(self) -> Iterator[MatchList[Id]]:
        lims, numbers = self._id_numbers()
        fingerprints, distances = self._width.numbers(self.rows), self.distances.tolist()
        for queries, (ids,) in ids_in_slices([(self._stored, numbers)], lims[self.lims]):
            plain = ids if isinstance(ids, list) else ids.tolist()
            bounds = self.lims[queries.start : queries.stop + 1].tolist()
            ends = (lims[bounds[0] : bounds[-1] + 1] - lims[bounds[0]]).tolist()
            for (start, end), left_out in zip(
                pairwise(bounds), self.more[queries].tolist(), strict=True
            ):
                places = zip(
                    range(start, end),
                    pairwise(ends[start - bounds[0] : end - bounds[0] + 1]),
                    strict=True,
                )
                matches = MatchList(
                    [
                        Match(fingerprints[m], distances[m], plain[first:last])
                        for m, (first, last) in places
                    ]
                )
                if left_out:
                    matches.more = True
                yield matches

    def __getitem__(self, query: int) -> MatchList[Id]:
        """Return the matches of one query; IndexError if there are fewer queries."""
        query = range(len(self))[index(query)]
        lims = self.lims[query : query + 2]
        places = slice(*lims.tolist())
        stored = self._stored
        single = Matches[Id](
            lims - lims[0],
            self.rows[places],
            self.distances[places],
            stored.take(np.arange(*lims)) if isinstance(stored, MatchedIds) else stored,
            self._width,
            self._queries[query : query + 1],
            more=self.more[query : query + 1],
        )
        return next(iter(single))

    def __repr__(self) -> str:
        return f"<fpstore.Matches: {len(self.rows)} matches of {len(self)} queries>"
