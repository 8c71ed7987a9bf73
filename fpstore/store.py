"""The store, which a user holds: questions and changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, overload
from weakref import finalize

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Id, Lims, Progress, Words
from fpstore.base.arguments import (
    check_choice,
    check_flag,
    check_opening,
    check_path,
    check_progress,
    check_share,
    check_whole,
)
from fpstore.base.resources import make_resources, parse_threads
from fpstore.base.width import WORD_BITS, Width, fingerprint_text, number_to_row
from fpstore.design.families import Design, check_design, check_radius
from fpstore.disk.mapped import LAZY, PAGES
from fpstore.errors import (
    ClosedStoreError,
    FpstoreError,
    InputError,
    NotStoredError,
    ReadOnlyError,
    plural,
)
from fpstore.io.check import (
    check_fingerprint,
    check_fingerprints,
    check_id,
    check_rows,
    is_single_fingerprint,
)
from fpstore.query.ids import Ids, SnapshotIds, as_id_column, fingerprints_of, is_single_id
from fpstore.query.matches import MatchedIds, Matches, MatchList
from fpstore.query.snapshot import Snapshot
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.query.tracker import Tracker

# other modules are imported where they are used: opening and probing a store need few
if TYPE_CHECKING:
    from fpstore.care.reports import Report
    from fpstore.change.decisions import Deleted
    from fpstore.change.writer import StoreWriter
    from fpstore.jobs.clusters import Clusters
    from fpstore.jobs.pairs import Pairs

MAX_LIMIT = 2**63 - 1


def store_snapshot(store: Store) -> StoreSnapshot:
    """Return the current snapshot of one store, for modules of this package.

    InputError for a sharded store, whose snapshot has no tables of its own.
    """
    snapshot = store.snapshot()
    if not isinstance(snapshot, StoreSnapshot):
        raise InputError(f"{store.path}: is a sharded store: name one of its shards")
    return snapshot


def _no_matches(fingerprint: object) -> None:
    """Stand in for ``CurrentSnapshot.probe`` where a store has several snapshots, or none."""


class Store(Generic[Id]):
    """An exact Hamming-radius index on disk.

    :func:`fpstore.build` makes one, and :func:`fpstore.open` opens it. A store is a context
    manager. Any number of processes can read a store at once, beside one writer, and each sees a
    commit at its next question. A store survives ``fork``.

    Every method raises ClosedStoreError after :meth:`close`, InputError for a wrong argument,
    CorruptStoreError where it meets damage; a change raises ReadOnlyError in a store that is open
    for reading, and StorageError where the disk is full or refuses the write, which then has
    changed nothing. Arguments that several methods have mean the same in each: ``radius``, from 0
    to the width, is by default the store's, and a probe with a larger one compares every
    fingerprint, with a :class:`ScanWarning`; ``threads`` are by default one per processor,
    ``memory`` is a budget as for :func:`fpstore.build`, ``progress`` is called as ``progress(phase,
    done, total)`` from any thread, where total is None if it is not known; ``sync`` is as for
    :meth:`insert`.
    """

    # the matches of a usual probe in one call, or None where it takes more
    _probe_current: Callable[[object], Any]

    def __init__(
        self,
        path: Path,
        mode: str = "r",
        sync: str = "commit",
        merge_at: float | None = None,
        pages: str = LAZY,
    ) -> None:
        merge_at = check_opening(mode, sync, merge_at)
        check_choice(pages, PAGES, "pages")
        self._tracker = Tracker(path, pages)
        self._set_state(path, self._tracker.design.radius, self._tracker.design.width)
        self._probe_current = self._tracker.current.probe
        self._writer: StoreWriter | None = None
        if mode == "r+":
            from fpstore.change.writer import close_dropped, open_for_writing

            try:
                self._writer = open_for_writing(self._tracker, sync, merge_at)
                # A store that is dropped, or left open at the end of the interpreter.
                self._finalizer = finalize(self, close_dropped, self._writer)
            except BaseException:
                if self._writer is not None:
                    close_dropped(self._writer)
                self._tracker.close()
                raise

    def _set_state(self, path: Path, radius: int, width: Width) -> None:
        self.path = path
        self._radius = radius
        self._width = replace(width, stored=True)
        self._same_numbers = self._width.bits >= WORD_BITS  # inside as outside
        self._closed = False
        self._warned = False
        self._probe_current = _no_matches

    def __reduce__(self) -> tuple[type[Store], tuple[Path, str, str, None, str]]:
        """Pickle the path and ``pages``; unpickling opens the store for reading."""
        self._check()
        return type(self), (self.path, "r", "commit", None, self._tracker.pages)

    def close(self) -> None:
        """Make all changes durable, release the writer's lock, and close all files.

        Closing twice is allowed. A store that is dropped, or open when the interpreter ends
        normally, is closed in the same way. StorageError says, with ``sync`` other than
        ``"commit"``, that the last changes could not be made durable.
        """
        writer = self._writer
        if writer is not None and writer.is_own:
            writer.refuse_nested(waits_for_merge=True)
        try:
            if writer is not None:
                writer.close()
        except FpstoreError:
            self._close_files()
            raise
        self._close_files()

    def _close_files(self) -> None:
        if not self._closed:
            self._closed = True
            self._tracker.close()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)

    # For modules of this package

    def writer(self) -> StoreWriter:
        """Return the writer; ReadOnlyError if the store is open for reading."""
        if self._writer is None:
            self._check()
            raise ReadOnlyError(
                f"{self.path}: open for reading; to change it, open it with mode='r+'",
                path=self.path,
            )
        self._writer.check()
        return self._writer

    def snapshot(self) -> Snapshot:
        """Return the current snapshot, which no later change affects."""
        if self._closed:
            self._check()
        return self._tracker.snapshot()

    # What it is

    @property
    def radius(self) -> int:
        """The largest radius that probes answer from the tables."""
        return self._radius

    @property
    def width(self) -> int:
        """The bits of a fingerprint: 32, 64, 128 or 256."""
        return self._width.bits

    @property
    def design(self) -> Design:
        """The design of the tables: a :class:`fpstore.Design`."""
        return self._tracker.design if self._closed else self.snapshot().design

    @property
    def fingerprinter(self) -> dict[str, Any] | None:
        """The maker of the fingerprints (name, version, parameters), or None if it is not known."""
        return self._tracker.manifest.fingerprinter

    @property
    def ids(self) -> Ids:
        """Look-ups by id: whether an id is stored, and which fingerprints have it."""
        return Ids(self.snapshot)

    def __len__(self) -> int:
        """Return the number of distinct fingerprints."""
        return self.snapshot().totals.fingerprints

    def __repr__(self) -> str:
        if self._closed:
            return f"<fpstore.Store {str(self.path)!r}, closed>"
        holds = f"{plural(len(self), 'fingerprint')} of {self.width} bits"
        return (
            f"<fpstore.Store {str(self.path)!r}: {holds}, radius {self.radius}, design "
            f"{self.design.name}>"
        )

    def __contains__(self, fingerprint: object) -> bool:
        """Return whether a fingerprint is stored.

        InputError for a value that is no fingerprint of this width.
        """
        return self.snapshot().has(self._fingerprint(fingerprint))

    def __iter__(self) -> Iterator[int]:
        """Iterate over the fingerprints stored now, in ascending order.

        Later changes have no effect. See :meth:`items`.
        """
        snapshot = self.snapshot()
        return (value for piece in snapshot.fingerprints() for value in self._width.numbers(piece))

    __reversed__ = None  # else Python would ask for fingerprints by place

    def __getitem__(self, fingerprint: int) -> list[Id]:
        """Return the ids of a stored fingerprint; KeyError when it is not stored."""
        value = self._fingerprint(fingerprint)
        ids: list[Any] = self.snapshot().get_ids(value)
        if not ids:
            text = fingerprint_text(self._width.from_number(value), self.width)
            raise NotStoredError(f"the fingerprint {text} is not stored", got=fingerprint)
        return ids

    # Probing

    def probe(
        self, fingerprint: int, radius: int | None = None, *, limit: int | None = None
    ) -> MatchList[Id]:
        """Find every stored fingerprint within ``radius`` bits of a fingerprint.

        Parameters
        ----------
        fingerprint : int
            Below 2^width; or in another form of one fingerprint, see :func:`fpstore.build`.
        radius : int, optional
            0 to the width.
        limit : int, optional
            Keep at most this many matches, the nearest.

        Returns
        -------
        MatchList
            Every match, once, by distance and fingerprint; ``more`` says whether the limit left out
            others.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [0b1000, 0b1011])
        >>> [(m.fingerprint, m.distance) for m in store.probe(0b1001, radius=1)]
        [(8, 1), (11, 1)]
        """
        if radius is limit is None:
            matches: MatchList[Id] | None = self._probe_current(fingerprint)
            if matches is not None:
                return matches
        snapshot = self.snapshot()
        value = self._fingerprint(fingerprint)
        radius = self._check_radius(radius, snapshot)
        if limit is None:
            return self._outer_matches(snapshot.probe(value, radius))
        return next(
            iter(self._search(snapshot, number_to_row(value, self._width.words), radius, 1, limit))
        )

    def _fingerprint(self, fingerprint: Any) -> int:
        return self._width.to_number(check_fingerprint(fingerprint, self._width))

    def _outer_matches(self, matches: MatchList) -> MatchList[Id]:
        if self._same_numbers:
            return matches
        outer = self._width.from_number
        return MatchList(match._replace(fingerprint=outer(match.fingerprint)) for match in matches)

    def _matches(
        self, snapshot: Snapshot, queries: Words, columns: Any, **extra: Any
    ) -> Matches[Id]:
        """Return the matches of queries; ``extra`` has further columns, a row for each query."""
        lims, rows, distances = columns
        return Matches(
            lims, rows, distances, SnapshotIds(self.path, snapshot), self._width, queries, **extra
        )

    def _search(
        self,
        snapshot: Snapshot,
        queries: Words,
        radius: int,
        threads: int | None,
        limit: int | None,
        scanned: bool = False,
    ) -> Matches[Id]:
        threads = parse_threads(threads)
        if limit is None:
            find = snapshot.scan_columns if scanned else snapshot.probe_columns
            return self._matches(snapshot, queries, find(queries, radius, threads))
        find_nearest = snapshot.scan_nearest if scanned else snapshot.probe_nearest
        columns, more = find_nearest(
            queries, radius, threads, check_whole(limit, 1, MAX_LIMIT, "limit")
        )
        return self._matches(snapshot, queries, columns, more=more)

    def _check_radius(self, radius: int | None, snapshot: Snapshot) -> int:
        """Check the radius of a probe, and warn if it takes a scan."""
        if radius is None:
            return self._radius
        radius = check_radius(radius, self.width)
        if radius > self._radius and not self._warned:
            self._warned = True
            try:
                from fpstore.query.nearest import scan_advice, warn

                warn(scan_advice(snapshot.totals.fingerprints, self._radius, radius, self._width))
            except BaseException:  # where warnings are errors, each probe is one
                self._warned = False
                raise
        return radius

    def probe_many(
        self,
        fingerprints: Any,
        radius: int | None = None,
        *,
        threads: int | None = None,
        limit: int | None = None,
    ) -> Matches[Id]:
        """Find every stored fingerprint within ``radius`` bits of each query.

        Parameters
        ----------
        fingerprints : array or sequence of fingerprints, as for :func:`fpstore.build`
        limit : int, optional
            Keep at most this many matches of each query, the nearest; ``more`` marks the queries
            that have others.
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints, self._width)
        return self._search(snapshot, queries, self._check_radius(radius, snapshot), threads, limit)

    def probe_batches(
        self,
        fingerprints: Any,
        radius: int | None = None,
        *,
        threads: int | None = None,
        matches: int = 1 << 22,
    ) -> Iterator[Matches[Id]]:
        """Answer :meth:`probe_many` in parts, in bounded memory however many matches there are.

        Parameters
        ----------
        fingerprints, radius, threads
            As for :meth:`probe_many`.
        matches : int
            The most matches to hold at once. Only a part of a single query may have more.

        Yields
        ------
        Matches
            The matches of the next ``len(part)`` queries, in order.
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints, self._width)
        radius = self._check_radius(radius, snapshot)
        matches, threads = check_whole(matches, 1, MAX_LIMIT, "matches"), parse_threads(threads)

        def parts() -> Iterator[Matches[Id]]:
            for part, columns in snapshot.probe_in_parts(queries, radius, threads, matches):
                self._check()
                yield self._matches(snapshot, part, columns)

        return parts()

    def scan(
        self,
        fingerprints: Any,
        radius: int,
        *,
        threads: int | None = None,
        limit: int | None = None,
    ) -> Matches[Id]:
        """Find every stored fingerprint within any ``radius`` of each query, by a scan.

        The radius is 0 to the width. The first table is read once, as a whole, for many queries.
        The time is proportional to fingerprints x queries. With a ``limit``, at most that many
        matches of each query are kept, the nearest, in bounded memory; ``more`` marks the queries
        that have more.
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints, self._width)
        return self._search(
            snapshot, queries, check_radius(radius, self.width), threads, limit, scanned=True
        )

    def nearest(
        self, fingerprint: int, count: int, *, max_radius: int | None = None
    ) -> MatchList[Id]:
        """Find the ``count`` stored fingerprints that are nearest to a fingerprint.

        Of equally distant fingerprints, the smallest are taken. Probes with growing radii find them
        while that is cheaper than a scan of this store. One scan, without a warning, answers a
        query that still has too few matches.

        Parameters
        ----------
        fingerprint : int
            As for :meth:`probe`.
        count : int
            At least 1. There are fewer matches if fewer fingerprints are stored, or lie within
            ``max_radius``.
        max_radius : int, optional
            The largest distance of a match, 0 to the width; by default the width.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> store = fpstore.build(path, [0b1000, 0b1011, 2**63])
        >>> [(m.fingerprint, m.distance) for m in store.nearest(0b1111, 2)]
        [(11, 1), (8, 3)]
        """
        row = self._width.row(check_fingerprint(fingerprint, self._width))
        return next(iter(self._nearest(row, count, max_radius, 1)))

    def nearest_many(
        self,
        fingerprints: Any,
        count: int,
        *,
        max_radius: int | None = None,
        threads: int | None = None,
    ) -> Matches[Id]:
        """Find the ``count`` stored fingerprints that are :meth:`nearest` to each query.

        Parameters
        ----------
        fingerprints : array or sequence of fingerprints, as for :func:`fpstore.build`
        count, max_radius, threads
            As for :meth:`nearest`.
        """
        return self._nearest(
            check_fingerprints(fingerprints, self._width), count, max_radius, threads
        )

    def _nearest(
        self, queries: Words, count: int, max_radius: int | None, threads: int | None
    ) -> Matches[Id]:
        from fpstore.query.nearest import nearest

        snapshot = self.snapshot()
        count = check_whole(count, 1, MAX_LIMIT, "count")
        radius = (
            self.width if max_radius is None else check_radius(max_radius, self.width, "max_radius")
        )
        return self._matches(
            snapshot, queries, nearest(snapshot, queries, count, radius, parse_threads(threads))
        )

    # Ids

    @overload
    def ids_of(self: Store[int], fingerprints: Any) -> tuple[Lims, Words]: ...

    @overload
    def ids_of(self: Store[str], fingerprints: Any) -> tuple[Lims, list[str]]: ...

    def ids_of(self, fingerprints: Any) -> tuple[Lims, Any]:
        """Return (lims, ids) of stored fingerprints.

        The ids of fingerprint m are ``ids[lims[m]:lims[m + 1]]``.

        Raises
        ------
        KeyError
            A fingerprint is not stored.
        """
        return self.snapshot().ids_of(check_fingerprints(fingerprints, self._width))

    def fingerprints_of(self, ids: Any) -> tuple[npt.NDArray[np.int64], Words]:
        """Return (lims, fingerprints) of ids.

        Id m has ``fingerprints[lims[m]:lims[m + 1]]``, ascending.

        It finds strings, and integers of a store built with ``index_ids=True``, through an index.
        Otherwise it reads the whole id map once, whatever the number of ids.

        Parameters
        ----------
        ids : array of integers, or sequence of int or str
            Ids that are not stored have no fingerprints, nor have ids of the other kind, such as
            integers in a store whose ids are strings.
        """
        lims, rows = fingerprints_of(self.snapshot(), ids)
        return lims, self._width.to_array(rows)

    @overload
    def items(self: Store[int]) -> Iterator[tuple[Words, Lims, Words]]: ...

    @overload
    def items(self: Store[str]) -> Iterator[tuple[Words, Lims, list[str]]]: ...

    def items(self) -> Iterator[tuple[Words, Lims, Any]]:
        """Yield everything stored now as pieces (fingerprints, lims, ids).

        Fingerprints ascend. A piece has at most 65,536 ids, or about 4 MiB of strings. The last
        fingerprint of a piece may have more ids in the next.
        """
        return (
            (self._width.to_array(rows), lims, ids) for rows, lims, ids in self.snapshot().items()
        )

    # Whole-corpus jobs

    def pairs(
        self,
        radius: int | None = None,
        *,
        duplicates: bool = False,
        orientations: int = 1,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Iterator[Pairs]:
        """Yield every pair of stored fingerprints within the radius, once, in batches.

        Later changes are not seen. The pairs come from a join of permuted tables (Manku, Jain, Das
        Sarma, WWW 2007, section 3; Qin and Xiao, *Pigeonring*, VLDB 2018), which are sorted for it:
        the store's own design and radius do not matter. Pairs are not held.

        Parameters
        ----------
        duplicates : bool
            Also yield each fingerprint of several documents, as a pair with itself at distance 0,
            before all other pairs. Its ``rows_of_ids`` and tables list each pair of its ids once: n
            (n - 1) / 2 rows of n ids, 65,536 at a time.
        orientations : {1, 8}
            Of a store of pictures. With 8, two pictures are also a pair if one is near a mirrored
            or turned copy of the other, and their distance is the least. The pictures are read
            again, one for each fingerprint, by the paths that their ids are: see
            :meth:`fpstore.ImageHash.orientations`. Eight fingerprints of each are in memory.
        memory : int or str, optional
            For the fingerprints and the tables that are sorted, such as "8GiB"; by default a
            quarter of this machine's memory. About 24 bytes for a fingerprint of 64 bits are enough
            for all. With less, tables are sorted a part after the other, and fingerprints that take
            more than half of it are mapped from a temporary file. Where a design compares buckets
            that differ (at large radii), a table is sorted as a whole, in temporary files if it
            does not fit.
        progress : callable, optional
            Called as ``progress(phase, done, total)``, in rows of all tables of the join.
        resume : path-like, optional
            A folder for finished work. It is created by the call, and removed when all pairs have
            been yielded. If the process ends before, the same call with the same folder yields all
            pairs, and searches only the parts that were not finished.

        Yields
        ------
        Pairs
            ``a``, ``b``: a < b; ``distances``; ``ids_a()``, ``ids_b()``. Without ``duplicates``,
            two documents with the same fingerprint are no pair: they are the ids of one
            fingerprint.

        Raises
        ------
        InputError
            An argument is wrong, or the folder is of another job, or the store has changed since.
        StoreLockedError
            Another process has the folder.
        CorruptStoreError, StorageError, ClosedStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> store = fpstore.build(path, [0b1000, 0b1011, 0b1111_0000])
        >>> [tuple(pair) for batch in store.pairs(radius=2) for pair in batch]
        [(8, 11, 2)]
        """
        from fpstore.jobs.store_job import iterate_pairs, pairs_job

        return iterate_pairs(
            pairs_job(
                self, radius, duplicates, make_resources(memory, threads, progress), orientations
            ),
            resume,
        )

    def clusters(
        self,
        radius: int | None = None,
        *,
        group: str | None = None,
        keep: str = "first",
        orientations: int = 1,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Clusters:
        """Return the groups of two or more documents that near-duplicates form.

        Two documents are connected if their fingerprints are equal or within the radius, and so are
        those that a chain of such pairs connects. The pairs are not listed: the time does not grow
        with their number.

        Parameters
        ----------
        group : {"connected", "greedy"}, optional
            Connected components; or groups without chains, in which every member is within the
            radius of its representative. In each component, the first document by the rule below
            represents a group, and so does each next one that is not within the radius of a
            representative. Every other document is in the group of the nearest one. By default
            "greedy" for pictures and for MinHash, because chains connect many that are unlike,
            otherwise "connected".
        keep : {"first", "smallest", "central"}
            The document that stands for its group. "first": the least integer id, or the string id
            that the store saw first. "smallest": the least id, strings by code points. "central":
            the document whose fingerprint is nearest to the majority of the group, bit by bit (of
            the component if groups are greedy). With ``group="greedy"`` and with "central", each
            document must have one fingerprint.
        orientations : {1, 8}
            As for :meth:`pairs`.
        memory, threads, progress, resume : optional
            As for :meth:`pairs`. Besides, about 12 bytes per document are held, and what clusters
            themselves take.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fingerprints = [0b1000, 0b1011, 0b1000, 0b1111_0000]
        >>> store = fpstore.build(path, fingerprints, ids=["a", "b", "c", "d"])
        >>> list(store.clusters(radius=2))
        [['a', 'b', 'c']]
        """
        from fpstore.jobs.store_job import clusters_job

        resources = make_resources(memory, threads, progress)
        job = clusters_job(self, radius, group, keep, resources, orientations)
        with job.checkpoint(resume) as checkpoint:
            return job.run(checkpoint).in_memory()

    def join(
        self,
        other: Store | Any,
        radius: int | None = None,
        *,
        ids: Any = None,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        resume: str | os.PathLike[str] | None = None,
    ) -> Iterator[Pairs]:
        """Yield every pair of a stored fingerprint and one of another set within the radius.

        Each pair comes once, in batches. The store's own tables answer where the other set is
        small; otherwise both sets are sorted by tables made for the join, as for :meth:`pairs`.
        Later changes of either store are not seen.

        Parameters
        ----------
        other : Store, fingerprints, or a reader of ``fpstore.io`` or ``fpstore.hashing``
            The other set, of the same width; a :class:`fpstore.hashing.TextReader` hashes texts.
            Fingerprints are given as for :func:`fpstore.build`. Not a path: open it with
            :func:`fpstore.open` or :func:`fpstore.io.open_reader`.
        ids : optional
            The ids of the other fingerprints, unless they are a store: integers or strings. By
            default the row number.
        memory, threads, progress, resume : optional
            As for :meth:`pairs`.

        Yields
        ------
        Pairs
            ``a`` are stored here, and ``b`` in the other set; ``distances``; ``ids_a()``,
            ``ids_b()``. Fingerprints that both sets have are pairs of distance 0.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [0b1000, 0b1111_0000])
        >>> [tuple(pair) for batch in store.join([0b1011, 0b1000], radius=2) for pair in batch]
        [(8, 8, 0), (8, 11, 2)]
        """
        from fpstore.jobs.store_job import iterate_pairs, join_job

        return iterate_pairs(
            join_job(self, other, radius, ids, make_resources(memory, threads, progress)), resume
        )

    # Changing

    def insert(self, fingerprints: Any, ids: Any = None, *, sync: str | None = None) -> int:
        """Add fingerprints with their ids.

        With ``sync="commit"``, they are durable on return, and all processes find them.

        An id that is already stored keeps its old fingerprint too; :meth:`upsert` takes it away.
        The store does not know how the fingerprints were made: make them as its
        :attr:`fingerprinter` says (``fpstore.hashing.from_description``).

        Parameters
        ----------
        fingerprints : one fingerprint, or array or sequence of them, as for :func:`fpstore.build`
        ids : optional
            One per fingerprint: integers or strings, whichever the store has (the first insert into
            an empty store decides). By default the next row numbers, in a store whose ids are row
            numbers.
        sync : {"commit", "batch", "none"}, optional
            By default as given to :func:`fpstore.open`. In every mode, the rows are in the log on
            return, where they outlive this process, and this process finds them. They outlive the
            machine, and other processes find them, with ``"commit"`` on return, with ``"batch"``
            within 0.1 seconds or 10,000 rows, with ``"none"`` after a million rows; and in each
            case after :meth:`flush` or :meth:`close`.

        Returns
        -------
        int
            The number of new pairs of fingerprint and id. A pair that is already stored stays. All
            rows of a call are one change, which is made as a whole or not at all.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fpstore.build(path, []).close()
        >>> with fpstore.open(path, "r+") as store:
        ...     store.insert([7, 11], ["a", "b"])
        ...     store.probe(15)
        2
        [Match(fingerprint=7, distance=1, ids=['a']), Match(fingerprint=11, distance=1, ids=['b'])]
        """
        writer = self.writer()
        rows, row_ids = check_rows(fingerprints, ids, self._width)
        return writer.insert(rows, row_ids, sync)

    def upsert(self, fingerprints: Any, ids: Any, *, sync: str | None = None) -> int:
        """Give ids to fingerprints, and take the ids from the fingerprints that had them.

        For documents that have changed.

        All rows of a call are one change. An id that occurs several times in it gets its last
        fingerprint.

        Parameters
        ----------
        fingerprints : one fingerprint, or array or sequence of them, as for :func:`fpstore.build`
        ids : int or str, or array or sequence
            One per fingerprint: integers or strings, whichever the store has. For integer ids
            without an index (``index_ids``), each call reads the whole id map once.

        Returns
        -------
        int
            How many ids are new, or have another fingerprint than before.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fpstore.build(path, [7], ["a"]).close()
        >>> with fpstore.open(path, "r+") as store:
        ...     store.upsert([9, 11], ["a", "b"])
        ...     list(store.items())[0][0].tolist()
        2
        [9, 11]
        """
        writer = self.writer()
        if ids is None:
            raise InputError("upsert needs an id for each row")
        if is_single_fingerprint(fingerprints, self._width):
            return writer.upsert_one(self._fingerprint(fingerprints), check_id(ids), sync)
        rows, row_ids = check_rows(fingerprints, ids, self._width)
        assert row_ids is not None
        return writer.upsert(rows, row_ids, sync)

    def probe_insert(
        self,
        fingerprint: int,
        id: int | str,
        radius: int | None = None,
        *,
        always: bool = False,
        sync: str | None = None,
    ) -> MatchList[Id]:
        """Insert a fingerprint unless a near-duplicate is stored. Probe and insert are one step.

        Parameters
        ----------
        fingerprint : int
        id : int or str
        always : bool
            Insert even if there are matches.

        Returns
        -------
        MatchList
            The matches before the insert. If there are none, the fingerprint was inserted.
        """
        writer = self.writer()
        value = self._fingerprint(fingerprint)
        radius = self._check_radius(radius, self.snapshot())
        identifier = check_id(id)
        always = check_flag(always, "always")
        return self._outer_matches(writer.probe_insert_one(value, identifier, radius, always, sync))

    def probe_upsert(
        self, fingerprint: int, id: int | str, radius: int | None = None, *, sync: str | None = None
    ) -> MatchList[Id]:
        """Decide anew about a document that may have changed.

        `delete` its id, and `probe_insert` it, as one change.

        The id leaves all other fingerprints. The fingerprint is inserted unless another document is
        near. For integer ids without an index (``index_ids``), each call reads the whole id map
        once: :meth:`probe_upsert_many` does so for many rows.

        Parameters
        ----------
        fingerprint : int
        id : int or str
            Of the store's kind; the first id in an empty store decides the kind.
        radius : int, optional
            By default the store's. Above the store's, every fingerprint is compared.
        sync : {"commit", "batch", "none"}, optional
            As for :meth:`insert`.

        Returns
        -------
        MatchList
            The matches without earlier versions of the document. If there are none, the fingerprint
            was inserted. If the document is stored and has not changed, it is among the matches at
            distance 0, and it stays.

        Raises
        ------
        InputError
            The fingerprint, the radius or ``sync`` is wrong, or the id is of another kind than
            those of the store.
        ReadOnlyError
            The store was not opened with ``"r+"``.
        CorruptStoreError, StorageError, ClosedStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fpstore.build(path, [7, 0xFF00], ["a", "b"]).close()
        >>> with fpstore.open(path, "r+") as store:
        ...     store.probe_upsert(7, "a")
        ...     store.probe_upsert(6, "a")
        ...     store.probe_upsert(0xFF01, "a")
        ...     len(store.ids)
        [Match(fingerprint=7, distance=0, ids=['a'])]
        []
        [Match(fingerprint=65280, distance=1, ids=['b'])]
        1
        """
        writer = self.writer()
        value = self._fingerprint(fingerprint)
        radius = self._check_radius(radius, self.snapshot())
        return self._outer_matches(writer.probe_upsert_one(value, check_id(id), radius, sync))

    def probe_insert_many(
        self,
        fingerprints: Any,
        ids: Any = None,
        radius: int | None = None,
        *,
        always: bool = False,
        threads: int | None = None,
        sync: str | None = None,
    ) -> Matches[Id]:
        """Do :meth:`probe_insert` for each row in order, as one change.

        The second of two near-duplicates finds the first.

        Parameters
        ----------
        fingerprints : array or sequence of fingerprints, as for :func:`fpstore.build`
        ids : array or sequence of as many, optional
            By default the next row numbers, in a store whose ids are row numbers. The numbers of
            rows that are not inserted stay unused, except after the last inserted row.
        radius, always, sync
            As for :meth:`probe_insert`.

        Returns
        -------
        Matches
            The matches of each row; ``inserted`` has the rows that were inserted. The ids are those
            after the last row.
        """
        writer = self.writer()
        rows, row_ids = check_rows(fingerprints, ids, self._width)
        radius = self._check_radius(radius, self.snapshot())
        always = check_flag(always, "always")
        snapshot, columns, inserted = writer.probe_insert(
            rows, row_ids, radius, always, parse_threads(threads), sync
        )
        return self._matches(snapshot, rows, columns, inserted=inserted)

    def probe_upsert_many(
        self,
        fingerprints: Any,
        ids: Any,
        radius: int | None = None,
        *,
        threads: int | None = None,
        sync: str | None = None,
    ) -> Matches[Id]:
        """Do :meth:`probe_upsert` for each row in order, as one change.

        The second of two near-duplicates finds the first.

        An id may occur several times: each row takes it from the fingerprint of the row before. For
        integer ids without an index (``index_ids``), a call reads the whole id map once.

        Parameters
        ----------
        fingerprints : array or sequence of fingerprints, as for :func:`fpstore.build`
        ids : array or sequence of as many
        radius, sync
            As for :meth:`probe_upsert`.
        threads : int, optional
            That probe; by default all processors.

        Returns
        -------
        Matches
            The matches of each row, with the ids that they had when it was decided; ``inserted``
            has the rows that were inserted. The ids are in memory: later changes do not matter.

        Raises
        ------
        InputError
            A fingerprint, the radius, ``threads`` or ``sync`` is wrong, or there is not one id of
            the store's kind for each row.
        ReadOnlyError
            The store was not opened with ``"r+"``.
        CorruptStoreError, StorageError, ClosedStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fpstore.build(path, [7, 0xFF00], ["a", "b"]).close()
        >>> with fpstore.open(path, "r+") as store:
        ...     matches = store.probe_upsert_many([6, 0xFF01, 5], ["a", "a", "c"])
        >>> matches.inserted.tolist(), list(matches)[1]
        ([True, False, True], [Match(fingerprint=65280, distance=1, ids=['b'])])
        """
        writer = self.writer()
        if ids is None:
            raise InputError("probe_upsert_many needs an id for each row")
        rows, row_ids = check_rows(fingerprints, ids, self._width)
        assert row_ids is not None
        radius = self._check_radius(radius, self.snapshot())
        decisions = writer.probe_upsert(rows, row_ids, radius, parse_threads(threads), sync)
        ids_at_turn = MatchedIds(decisions.id_lims, decisions.ids)
        return Matches(*decisions.matches, ids_at_turn, self._width, rows, decisions.inserted)

    def delete(
        self, *unnamed: Any, ids: Any = None, fingerprints: Any = None, sync: str | None = None
    ) -> Deleted:
        """Remove documents by id, fingerprints with all their ids, or pairs of both.

        Parameters
        ----------
        ids : int, str, array or sequence, optional
            Every fingerprint loses these ids, and is removed when it has none left. For integer ids
            without an index (``index_ids``), each call reads the whole id map once: give many ids
            at a time.
        fingerprints : one fingerprint, or array or sequence of them, optional
            Fingerprints to remove with all their ids. With ``ids``, one for each fingerprint, only
            the pair of each row goes, and the other ids of these fingerprints and the other
            fingerprints of these ids stay.

        Returns
        -------
        Deleted
            How many pairs of fingerprint and id were removed, and how many of the ids, fingerprints
            or pairs were not stored.

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> path = os.path.join(tempfile.mkdtemp(), "s.fps")
        >>> fpstore.build(path, [7, 7, 11], ["a", "b", "b"]).close()
        >>> with fpstore.open(path, "r+") as store:
        ...     store.delete(fingerprints=7, ids="b")
        ...     store.delete(ids=["b", "c"])
        Deleted(removed=1, missing=0)
        Deleted(removed=1, missing=1)
        """
        if unnamed or (ids is None and fingerprints is None):
            raise InputError(
                "say what to delete: delete(ids=[...]), delete(fingerprints=[...]), or both for "
                "pairs"
            )
        writer = self.writer()
        if fingerprints is None:
            return writer.delete_ids(as_id_column([ids] if is_single_id(ids) else ids), sync)
        if ids is None:
            return writer.delete_fingerprints(check_rows(fingerprints, None, self._width)[0], sync)
        return writer.delete_pairs(*check_rows(fingerprints, ids, self._width), sync)

    def flush(self) -> None:
        """Make the changes of ``sync="batch"`` and ``"none"`` durable and visible to all processes.

        After a StorageError, free some space and call it again.
        """
        self.writer().flush()

    # The whole store

    def merge(
        self,
        *,
        at: float | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fold inserts and deletes into a new generation of tables.

        Readers go on meanwhile, and so do inserts of other threads. Tables are merged as streams,
        without sorting them again. If ``auto`` chose the design for less than half or more than
        twice as many fingerprints, it chooses again.

        Parameters
        ----------
        at : float, optional
            Merge only if the delta has reached this share of the tables, and 65,536 changes, as
            with ``merge_at`` of :func:`fpstore.open`; in any case, wait for a merge in the
            background.

        Raises
        ------
        StorageError
            There is no space for the new generation beside the old one: nothing was changed.
        """
        writer = self.writer()
        at = check_share(at, "at")
        writer.merge(make_resources(memory, threads, progress), at=at)

    def absorb(
        self,
        *others: str | os.PathLike[str],
        renumber: bool = False,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Add the content of other stores, and :meth:`merge`; inserts wait meanwhile.

        Parameters
        ----------
        *others : path-like
            Paths of stores, which do not change. They are streamed if they have the tables of this
            store's design, otherwise sorted again. A fingerprint in several stores gets the ids of
            all.
        renumber : bool
            Renumber the integer ids of each other store, in turn, from the largest so far. By
            default ids do not change: row numbers of two stores are then the same ids of different
            documents.

        Raises
        ------
        InputError
            The stores have ids of different kinds, or fingerprints that were made differently.
        StoreNotFoundError
        """
        writer = self.writer()
        if not others:
            raise InputError("absorb takes the paths of other stores")
        renumber = check_flag(renumber, "renumber")
        resources = make_resources(memory, threads, progress)
        with ExitStack() as stack:
            snapshots = []
            for path in map(check_path, others):
                if self._tracker.is_at(path):
                    raise InputError(f"{self.path}: cannot absorb itself")
                snapshots.append(store_snapshot(stack.enter_context(Store(path))))
            writer.absorb(resources, snapshots, renumber)

    def redesign(
        self,
        design: str,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Change to other tables, and :meth:`merge`.

        Parameters
        ----------
        design : str
            The name of a design, or ``auto``, which is the planner's choice.
        """
        writer = self.writer()
        design = check_design(design, self.radius, self.width)
        writer.redesign(make_resources(memory, threads, progress), design)

    def split(
        self,
        folder: str | os.PathLike[str],
        bits: int,
        *,
        overwrite: bool = False,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> list[Path]:
        """Write the content to several stores, one for each value of the leading bits.

        The inverse of :meth:`absorb`.

        Parameters
        ----------
        folder : path-like
            The folder for the stores, ``00.fps``, ``01.fps``, ... for two bits; created if it is
            missing.
        bits : int
            1 to 8, for 2 to 256 stores, some of which may be empty.
        overwrite : bool
            Replace existing stores.

        Returns
        -------
        list of Path
            In order of the leading bits. All have the design of this store. They appear one after
            the other: after an error, those before it are complete.

        Raises
        ------
        StoreExistsError
        """
        from fpstore.change.split import split_store

        target, overwrite = check_path(folder, "folder"), check_flag(overwrite, "overwrite")
        resources = make_resources(memory, threads, progress)
        return split_store(store_snapshot(self), target, bits, overwrite, resources)

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy the store as of one moment, even while other processes insert and merge.

        The copy is an ordinary store with everything that was committed before the call. It appears
        complete or not at all.

        Parameters
        ----------
        path : path-like
            The folder to create.
        overwrite : bool
            Replace an existing store, in one step, once the copy is complete.
        progress : callable, optional
            In bytes.

        Raises
        ------
        StoreExistsError
            The path exists and ``overwrite`` is false, or it is not a store.
        """
        from fpstore.care.backup import back_up

        self._check()
        target, overwrite = check_path(path), check_flag(overwrite, "overwrite")
        check_progress(progress)
        with suppress(ReadOnlyError):  # a read-only store has nothing to commit
            self.writer().flush()
        back_up(self._tracker, target, overwrite, progress)

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of the store.

        Returns
        -------
        dict
            ``fingerprints``, ``ids`` (numbers), ``radius``, ``width``, ``block_bytes``, ``codec``,
            ``filter``, ``id_kind``, ``format_version`` and ``fingerprinter``.
            ``design`` has ``name``, and for each of ``tables`` its ``kind`` (blocks, copies,
            references, rows), ``prefix_bits``, ``tag_bits``, ``flips`` (-1: no look-ups),
            ``lookups`` and ``filter_bits`` (0: no filter).
            ``bytes`` on disk are ``tables``, ``keys`` (part of ``tables``), ``filters``, ``ids``,
            ``strings`` (the dictionary of string ids), ``id_index``, ``delta``, ``metadata`` and
            ``total``. ``bytes_per_fingerprint`` has ``tables``, ``keys``, ``ids`` and ``total``.
            ``bits_per_fingerprint`` is of one table, ``limit_bits_per_fingerprint`` is
            log2 C(2^width, n) / n; ``ratio_to_limit`` and ``ratio_to_raw`` are None below 4,096
            fingerprints.
            ``delta`` (``fingerprints``, ``changes``, ``memory``, ``tables``), ``log``,
            ``generation``, ``generation_since``, ``merge_error`` and ``writer`` show how the store
            changes.
            A sharded store also has ``shards``, their number. Its sizes are of all shards
            together, ``design``, ``block_bytes``, ``codec`` and ``filter`` of the first shard,
            and ``generation`` is the greatest.
        """
        snapshot, writer = store_snapshot(self), self._writer
        changes = self._tracker.log_stats(snapshot)
        state = None if writer is None else writer.state()
        if writer is not None and writer.merge_error is not None:
            changes["merge_error"] = writer.merge_error
        from fpstore.care.stats import describe

        return {**describe(snapshot, self._tracker.log.file_bytes), **changes, "writer": state}

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Read and check every byte that is used.

        It checks checksums, order, counts, keys, codes, id records, and that all tables hold the
        same set.

        Returns
        -------
        Report
            ``ok``, and the faults, each with its file and block.
        """
        check_progress(progress)
        from fpstore.care.verify import verify_store

        return verify_store(store_snapshot(self), self._tracker.log, progress)
