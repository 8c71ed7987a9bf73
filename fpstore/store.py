"""The store: questions and changes."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from fpstore.aliases import Progress, Words
from fpstore.arguments import check_choice, check_flag, check_path, check_progress, check_share, check_sync
from fpstore.change.opening import open_writer
from fpstore.change.writer import StoreWriter
from fpstore.design.families import check_design, check_radius
from fpstore.errors import FpstoreError, InputError, ReadOnlyError
from fpstore.io import check_fingerprint, check_fingerprints, check_id, check_ids
from fpstore.query.matches import Match, Matches
from fpstore.reading import IdLookup, Reading
from fpstore.resources import parse_memory, parse_threads


class Store(Reading):
    """An exact Hamming-radius index on disk; made by :func:`fpstore.build`, opened by :func:`fpstore.open`.

    A context manager. Any number of processes can read a store at once, beside one writer, and each sees a commit at its next
    question. A store survives ``fork``. After :meth:`close`, every use is an error.

    Raises
    ------
    StoreNotFoundError, CorruptStoreError, FormatVersionError
        From the constructor.
    """

    def __init__(self, path: Path, mode: str = "r", sync: str = "commit", merge_at: float | None = None) -> None:
        check_choice(mode, ("r", "r+"), "mode")
        check_sync(sync)
        merge_at = check_share(merge_at, "merge_at")
        given = {"sync": sync != "commit", "merge_at": merge_at is not None}
        for name in given:
            if given[name] and mode == "r":
                raise InputError(f"{name} is for changing a store: open it with mode='r+', or leave {name} out")
        super().__init__(path)
        self._writer: StoreWriter | None = None
        if mode == "r+":
            try:
                self._writer = open_writer(self._tracker, sync, merge_at)
                # A store that is dropped, or left open at the end of the interpreter.
                self._finalizer = finalize(self, _close_dropped, self._writer)
            except BaseException:
                if self._writer is not None:
                    _close_dropped(self._writer)
                super().close()
                raise

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        """Pickle the path; unpickling opens the store for reading."""
        self._check()
        return type(self), (self.path,)

    def close(self) -> None:
        """Make all changes durable, release the writer's lock, and close all files. Closing twice is allowed.

        A store that is dropped, or open when the interpreter ends normally, is closed in the same way.

        Raises
        ------
        StorageError
            With ``sync`` other than ``"commit"``: the last changes could not be made durable.
        """
        writer = self._writer
        if writer is not None and writer.is_own:
            writer.refuse_inside(merges=True)
        try:
            if writer is not None:
                writer.close()
        except FpstoreError:
            super().close()
            raise
        super().close()

    def _changing(self) -> StoreWriter:
        self._check()
        if self._writer is None:
            raise ReadOnlyError(f"{self.path}: open for reading; to change it, open it with mode='r+'", path=self.path)
        self._writer.check()
        self._writer.refuse_inside()
        return self._writer

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of the store; docs/api.md lists the keys."""
        found, writer = super().stats(), self._writer
        if writer is not None:
            found["log"]["records"] = writer.log.number
        return {**found, "writer": None if writer is None else writer.state()}

    def _settle(self) -> None:
        with suppress(ReadOnlyError):  # a read-only store has nothing to commit
            self._changing().flush()

    # Changing

    def insert(self, fingerprints: Any, ids: Any = None, sync: str | None = None) -> int:
        """Add fingerprints with their ids. When this returns, they are durable, and all processes find them.

        An id that is already stored keeps its old fingerprint too. To replace a document, delete its id first.

        Parameters
        ----------
        fingerprints : int, or ndarray of uint64, shape (n,), or sequence of int
        ids : optional
            One per fingerprint: integers or strings, whichever the store has (the first insert into an empty store decides).
            By default the next row numbers, in a store whose ids are row numbers.
        sync : {"commit", "batch", "none"}, optional
            By default that of :func:`fpstore.open`. In every mode, the rows are in the log on return, where they outlive this
            process, and this process finds them. They outlive the machine, and other processes find them, with ``"commit"``
            on return, with ``"batch"`` within 0.1 seconds or 10,000 rows, with ``"none"`` after a million rows; and in each case
            after :meth:`flush` or :meth:`close`.

        Returns
        -------
        int
            The number of new pairs of fingerprint and id. A pair that is already stored stays. All rows of a call are one change,
            which is made as a whole or not at all.

        Raises
        ------
        InputError, ReadOnlyError, ClosedStoreError
        StorageError
            The disk is full, or refuses the write: nothing was inserted.

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
        writer = self._changing()
        rows, checked = _rows(fingerprints, ids)
        _check_optional_sync(sync)
        return writer.insert(rows, checked, sync)

    def probe_insert(
        self, fingerprint: int, id: int | str, radius: int | None = None, always: bool = False, sync: str | None = None
    ) -> list[Match]:
        """Insert a fingerprint unless a near-duplicate is stored; probe and insert are one step.

        Parameters
        ----------
        fingerprint : int
        id : int or str
        radius : int, optional
            0 to the store's, which is the default.
        always : bool
            Insert even if there are matches.
        sync : str, optional
            See :meth:`insert`.

        Returns
        -------
        list of Match
            The matches before the insert. If there are none, the fingerprint was inserted.

        Raises
        ------
        InputError, ReadOnlyError, StorageError, ClosedStoreError
        """
        writer = self._changing()
        value = check_fingerprint(fingerprint)
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        identifier = check_id(id)
        always = check_flag(always, "always")
        _check_optional_sync(sync)
        return writer.probe_insert_one(value, identifier, radius, always, sync)

    def probe_insert_many(
        self,
        fingerprints: Any,
        ids: Any,
        radius: int | None = None,
        always: bool = False,
        threads: int | None = None,
        sync: str | None = None,
    ) -> Matches:
        """Do :meth:`probe_insert` for each row in order, as one step: the second of two near-duplicates finds the first.

        Parameters
        ----------
        fingerprints : ndarray of uint64, shape (n,), or sequence of int
        ids : array or sequence of as many
        radius, always, sync
            See :meth:`probe_insert`.
        threads : int, optional
            By default one per processor.

        Returns
        -------
        Matches
            The matches of each row; ``inserted`` has the rows that were inserted. The ids are those after the last row.

        Raises
        ------
        InputError, ReadOnlyError, StorageError, ClosedStoreError
        """
        writer = self._changing()
        rows, checked = _rows(fingerprints, ids)
        if checked is None:
            raise InputError("probe_insert_many needs ids: give one per row")
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        always = check_flag(always, "always")
        _check_optional_sync(sync)
        snapshot, columns, inserted = writer.probe_insert(rows, checked, radius, always, parse_threads(threads), sync)
        return Matches(*columns, IdLookup(self.path, snapshot), inserted)

    def delete(self, ids: Any = None, fingerprints: Any = None, sync: str | None = None) -> int:
        """Remove documents by their ids, or fingerprints with all their ids. When this returns, they are in no answer any more.

        Parameters
        ----------
        ids : int, str, array or sequence, optional
            Every fingerprint loses these ids, and is removed when it has none left. Each call reads the whole id map once, so
            give many ids at a time.
        fingerprints : int, array of uint64 or sequence of int, optional
        sync : str, optional
            See :meth:`insert`.

        Returns
        -------
        int
            The number of pairs of fingerprint and id that were removed. What is not stored is ignored.

        Raises
        ------
        InputError, ReadOnlyError, StorageError, ClosedStoreError
        """
        writer = self._changing()
        if (ids is None) == (fingerprints is None):
            raise InputError("delete takes either ids or fingerprints: give one of them")
        _check_optional_sync(sync)
        if fingerprints is not None:
            return writer.delete_fingerprints(_many(fingerprints), sync)
        return writer.delete_ids(self.ids.numbers(ids), sync)

    def flush(self) -> None:
        """Make durable, and show to other processes, the changes made with ``sync`` other than ``"commit"``.

        Raises
        ------
        StorageError
            The disk is full, or refuses the write: free some space and call it again.
        """
        self._changing().flush()

    def merge(
        self,
        *others: str | os.PathLike[str],
        renumber: bool = False,
        design: str | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fold inserts and deletes, and other stores, into a new generation of tables.

        Readers go on meanwhile, and so do inserts of other threads unless other stores are given. Tables are merged as streams,
        without sorting them again.

        Parameters
        ----------
        *others : path-like
            Stores whose content is added; they do not change. They are streamed if they have the tables of this store's design,
            otherwise sorted again. A fingerprint in several stores gets the ids of all.
        renumber : bool
            Renumber the integer ids of each other store, in turn, from the largest so far. By default ids do not change.
        design : str, optional
            Change to another design; ``auto`` is the planner's choice. By default the design stays, unless ``auto`` chose it
            for less than half or more than twice as many fingerprints: then it is chosen again.
        memory : int or str, optional
            Budget, as for :func:`fpstore.build`.
        threads : int, optional
            By default one per processor.
        progress : callable, optional
            Called as ``progress(phase, done, total)``, from any thread.

        Raises
        ------
        StorageError
            There is no space for the new generation beside the old one: nothing was changed.
        InputError
            The stores have ids of different kinds, or fingerprints that were made differently.
        ReadOnlyError, StoreNotFoundError, ClosedStoreError
        """
        writer = self._changing()
        renumber = check_flag(renumber, "renumber")
        if renumber and not others:
            raise InputError("renumber is for the ids of other stores: name them, or leave it out")
        if design is not None and not isinstance(check_design(design, self.radius), str):
            raise InputError("merge takes the name of a design: a list of tables needs a new build")
        parse_memory(memory)
        parse_threads(threads)
        check_progress(progress)
        with ExitStack() as stack:
            snapshots = []
            for path in map(check_path, others):
                if path.exists() and path.samefile(self.path):
                    raise InputError(f"{self.path}: cannot be merged with itself")
                snapshots.append(stack.enter_context(Reading(path)).snapshot())
            writer.merge(memory, threads, progress, snapshots, renumber, design)


def _close_dropped(writer: StoreWriter) -> None:
    with suppress(FpstoreError):  # a finalizer has no caller to report to
        writer.close()


def _check_optional_sync(sync: str | None) -> None:
    if sync is not None:
        check_sync(sync)


def _many(values: Any) -> Words:
    return (
        np.array([check_fingerprint(values)], np.uint64) if isinstance(values, (int, np.integer)) else check_fingerprints(values)
    )


def _rows(fingerprints: Any, ids: Any) -> tuple[Words, Words | list[str] | None]:
    """Check fingerprints and ids, one or many."""
    single = isinstance(fingerprints, (int, np.integer))
    if single and ids is not None:
        ids = [ids]
    rows = _many(fingerprints)
    return rows, None if ids is None else check_ids(ids, len(rows))
