"""Reading a store: open, probe, scan, inspect, close."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.aliases import Progress, Words
from fpstore.arguments import check_flag, check_path, check_progress, check_whole
from fpstore.care.reports import Report
from fpstore.care.stats import describe
from fpstore.care.verify import verify_store
from fpstore.design.families import Design, check_radius
from fpstore.errors import ClosedStoreError, InputError, NotStoredError
from fpstore.io import check_fingerprint, check_fingerprints
from fpstore.query.batches import PROBE_QUERIES
from fpstore.query.ids import Ids
from fpstore.query.matches import Match, Matches
from fpstore.query.snapshot import Snapshot
from fpstore.query.tracker import Tracker
from fpstore.resources import parse_memory, parse_threads

FIRST_BATCH = 1 << 12


class IdLookup:
    """Looks up the ids of matches, as of the moment when the matches were found; once pickled, as of the moment of use."""

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self._path, self._snapshot = path, snapshot

    def __call__(self, fingerprints: Words) -> tuple[npt.NDArray[np.int64], Words | list[str]]:
        """Return (lims, ids)."""
        return self._snapshot.ids_of(fingerprints)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._path,)


def _reopened(path: Path) -> IdLookup:
    return IdLookup(path, Tracker(path).snapshot())


class Reading:
    """The questions to a store; :class:`fpstore.Store` adds the changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tracker = Tracker(path)
        self._radius = self._tracker.design.radius
        self._closed = False

    # Life cycle

    def close(self) -> None:
        """Close all files. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        self._tracker.close()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise ClosedStoreError(f"{self.path}: the store is closed", path=self.path)

    def snapshot(self) -> Snapshot:
        """Return the store as it is now, which no later change affects; for tools that are built on fpstore."""
        if self._closed:
            self._check()
        return self._tracker.snapshot()

    # Properties

    @property
    def kernel_tables(self) -> list[_kernel.Table]:
        """The kernel's tables, in design order: for benchmarks and tests."""
        return [table.kernel for table in self.snapshot().generation.tables]

    @property
    def radius(self) -> int:
        """The largest radius that probes answer from the tables."""
        return self._radius

    @property
    def design(self) -> Design:
        """The tables and why they suffice."""
        return self._tracker.design if self._closed else self.snapshot().generation.design

    @property
    def fingerprinter(self) -> dict[str, Any] | None:
        """How the fingerprints were made (name, version, parameters), or None if that is not known."""
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
        return f"<fpstore.Store {str(self.path)!r}: {len(self)} fingerprints, radius {self.radius}, design {self.design.name}>"

    def __contains__(self, fingerprint: object) -> bool:
        snapshot = self.snapshot()
        try:
            value = check_fingerprint(fingerprint)
        except InputError:
            return False
        return snapshot.has(value)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the fingerprints stored now, in ascending order; later changes have no effect. See :meth:`items`."""
        snapshot = self.snapshot()
        return (value for piece in snapshot.fingerprints() for value in piece.tolist())

    __reversed__ = None  # else Python would ask for fingerprints by place

    def __getitem__(self, fingerprint: int) -> list[int] | list[str]:
        """Return the ids of a stored fingerprint; KeyError when it is not stored."""
        ids = self.snapshot().ids_of_one(check_fingerprint(fingerprint))
        if not ids:
            raise NotStoredError(f"the fingerprint {int(fingerprint)} is not stored", got=fingerprint)
        return ids

    # Probing

    def probe(self, fingerprint: int, radius: int | None = None) -> list[Match]:
        """Find every stored fingerprint within ``radius`` bits of one.

        Parameters
        ----------
        fingerprint : int
            0 to 2^64 - 1.
        radius : int, optional
            0 to 64; by default the store's. A larger radius than the store's is answered by a scan of the whole first table.

        Returns
        -------
        list of Match
            Every match, once, by distance and fingerprint.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [0b1000, 0b1011])
        >>> [(m.fingerprint, m.distance) for m in store.probe(0b1001, radius=1)]
        [(8, 1), (11, 1)]
        """
        snapshot = self.snapshot()
        value = check_fingerprint(fingerprint)
        radius = self._radius if radius is None else check_radius(radius, 64)
        if radius > self._radius:
            return next(iter(self.scan(np.array([value], np.uint64), radius)))
        return snapshot.probe(value, radius)

    def probe_many(self, fingerprints: Any, radius: int | None = None, threads: int | None = None) -> Matches:
        """Find every stored fingerprint within ``radius`` bits of each query.

        Parameters
        ----------
        fingerprints : ndarray of uint64, shape (queries,), or sequence of int
        radius : int, optional
            0 to 64; by default the store's. A larger one is answered by :meth:`scan`.
        threads : int, optional
            By default one per processor.

        Returns
        -------
        Matches

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints)
        radius = self.radius if radius is None else check_radius(radius, 64)
        if radius > self.radius:
            return self.scan(queries, radius, threads)
        columns = snapshot.probe_columns(queries, radius, parse_threads(threads))
        assert columns is not None
        return Matches(*columns, IdLookup(self.path, snapshot))

    def probe_batches(
        self, fingerprints: Any, radius: int | None = None, threads: int | None = None, matches: int = 1 << 22
    ) -> Iterator[Matches]:
        """Answer :meth:`probe_many` in parts, in bounded memory however many matches there are.

        Parameters
        ----------
        fingerprints : ndarray of uint64, shape (queries,), or sequence of int
        radius : int, optional
            0 to the store's, which is the default.
        threads : int, optional
            By default one per processor.
        matches : int
            The most matches to hold at once. Only a part of a single query may have more.

        Yields
        ------
        Matches
            The matches of the next ``len(part)`` queries, in order.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints)
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        matches = check_whole(matches, 1, 2**63 - 1, "matches")
        workers = parse_threads(threads)
        start, size = 0, FIRST_BATCH
        while start < len(queries):
            self._check()
            part = queries[start : start + size]
            columns = snapshot.probe_columns(part, radius, workers, max(matches // workers, 1) if len(part) > 1 else None)
            # The tables keep to the bound; the matches of the delta are known only now.
            if columns is None or (len(part) > 1 and len(columns[1]) > matches):
                size = max(len(part) // 2, 1)
                continue
            yield Matches(*columns, IdLookup(self.path, snapshot))
            start += len(part)
            if len(columns[1]) < matches // 4:
                size = min(size * 2, PROBE_QUERIES * workers)

    def scan(self, fingerprints: Any, radius: int, threads: int | None = None) -> Matches:
        """Find every stored fingerprint within any ``radius`` (0 to 64) of each query, by reading the whole first table.

        The table is read once for all queries. The time is proportional to fingerprints x queries.

        Raises
        ------
        InputError, CorruptStoreError, ClosedStoreError
        """
        snapshot = self.snapshot()
        queries = check_fingerprints(fingerprints)
        radius = check_radius(radius, 64)
        return Matches(*snapshot.scan_columns(queries, radius, parse_threads(threads)), IdLookup(self.path, snapshot))

    # Ids

    def ids_of(self, fingerprints: Any) -> tuple[npt.NDArray[np.int64], Words | list[str]]:
        """Return (lims, ids) of stored fingerprints; those of the m-th are ``ids[lims[m]:lims[m + 1]]``.

        Raises
        ------
        KeyError
            A fingerprint is not stored.
        """
        return self.snapshot().ids_of(check_fingerprints(fingerprints))

    def items(self) -> Iterator[tuple[Words, npt.NDArray[np.int64], Words | list[str]]]:
        """Yield everything stored now as pieces (fingerprints, lims, ids), in ascending order of fingerprint."""
        return self.snapshot().items()

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
        """Write the content to several stores, by leading bits: the inverse of joining them with :meth:`fpstore.Store.merge`.

        Parameters
        ----------
        folder : path-like
            The folder for the stores, ``00.fps``, ``01.fps``, ... for two bits; created if it is missing.
        bits : int
            1 to 8, for 2 to 256 stores, some of which may be empty.
        overwrite : bool
            Replace existing stores.
        memory, threads, progress
            As for :func:`fpstore.build`.

        Returns
        -------
        list of Path
            In order of the leading bits. All have the design of this store.

        Raises
        ------
        InputError, StoreExistsError, StorageError, ClosedStoreError
        """
        from fpstore.change.split import split_store

        check_progress(progress)
        target, overwrite = check_path(folder, "folder"), check_flag(overwrite, "overwrite")
        return split_store(self.snapshot(), target, bits, overwrite, parse_memory(memory), parse_threads(threads), progress)

    # Looking inside

    def backup(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy the store as it is at one moment, even while other processes insert and merge.

        The copy is an ordinary store with everything that was committed before the call. It appears complete or not at all.

        Parameters
        ----------
        path : path-like
            The folder to create.
        overwrite : bool
            Replace an existing store, in one step, once the copy is complete.
        progress : callable, optional
            Called as ``progress(phase, done, total)``, in bytes.

        Raises
        ------
        StoreExistsError
            The path exists and ``overwrite`` is false, or it is not a store.
        StorageError
            The disk is full or not writable; there is no copy.
        InputError, ClosedStoreError
        """
        from fpstore.care.backup import back_up

        self._check()
        target, overwrite = check_path(path), check_flag(overwrite, "overwrite")
        check_progress(progress)
        self._settle()
        back_up(self._tracker, target, overwrite, progress)

    def _settle(self) -> None:
        """Make durable what a copy of the files must contain."""

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of the store; docs/api.md lists the keys."""
        snapshot = self.snapshot()
        return {**describe(snapshot, self._tracker.log.file_bytes), **self._tracker.watched()}

    def verify(self, progress: Progress | None = None) -> Report:
        """Read every byte and check it: checksums, order, counts, keys, codes, id records, and that all tables hold the same set.

        Parameters
        ----------
        progress : callable, optional
            Called as ``progress(phase, done, total)``; total is None if it is not known.

        Returns
        -------
        Report
            ``ok``, and the faults, each with its file and block.
        """
        check_progress(progress)
        return verify_store(self.snapshot(), self._tracker.log, progress)
