"""The store: what can be asked of it, and what changes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np
import numpy.typing as npt

from fpstore.arguments import check_choice, check_flag, check_path, check_progress, check_share, check_sync
from fpstore.change.opening import open_writer
from fpstore.change.writer import Writer
from fpstore.design.families import check_design, check_radius
from fpstore.errors import FpstoreError, InputError, ReadOnlyError
from fpstore.io import check_fingerprint, check_fingerprints, check_ids
from fpstore.query.matches import Match, Matches
from fpstore.reading import IdLookup, Reading
from fpstore.resources import parse_memory, parse_threads

Words = npt.NDArray[np.uint64]


class Store(Reading):
    """An exact Hamming-radius index on disk; made by :func:`fpstore.build`, opened by :func:`fpstore.open`.

    A context manager. Any number of processes may read a store at once, and each sees at once what the one writer commits; it
    survives ``fork``; after :meth:`close` every use is an error.

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
        self._writer: Writer | None = None
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
        """Pickle as the path: the other process opens the store anew, for reading."""
        self._check()
        return type(self), (self.path,)

    def close(self) -> None:
        """Commit what is not committed yet, and give back every handle. Closing twice is allowed.

        Raises
        ------
        StorageError
            The last inserts of a store opened with ``sync`` other than ``"commit"`` could not be written.
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

    def _changing(self) -> Writer:
        self._check()
        if self._writer is None:
            raise ReadOnlyError(f"{self.path}: open for reading; to change it, open it with mode='r+'", path=self.path)
        self._writer.check()
        self._writer.refuse_inside()
        return self._writer

    def _settle(self) -> None:
        with suppress(ReadOnlyError):  # who may not change the store has nothing to commit
            self._changing().flush()

    # Changing

    def insert(self, fingerprints: Any, ids: Any = None, sync: str | None = None) -> int:
        """Add fingerprints with their ids. Everybody's answers have them when this returns, and they are durable.

        An id that is stored already is not replaced: it is then found under both fingerprints. To replace a document, delete
        its id first.

        Parameters
        ----------
        fingerprints : int, or ndarray of uint64, shape (n,), or sequence of int
        ids : optional
            As many: integers or strings, as the store has them (the first insert into an empty store decides). By default the
            next row numbers, in a store whose ids are row numbers.
        sync : {"commit", "batch", "none"}, optional
            By default that of :func:`fpstore.open`. ``"commit"``: durable on return. ``"batch"``: seen by this process on
            return, durable and seen by others within 0.1 seconds or 10,000 rows. ``"none"``: after a million rows,
            :meth:`flush` or :meth:`close`. In every mode the change is in the file on return: a process that dies loses
            nothing. Only a machine that stops loses what is not durable, the latest changes, never the store.

        Returns
        -------
        int
            How many pairs of fingerprint and id were new. A pair that is stored already stays as it is. All rows of a call are
            one change: it happens, or does not.

        Raises
        ------
        InputError, ReadOnlyError, ClosedStoreError
        StorageError
            No space: nothing was inserted.

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
        """Ask whether a near-duplicate is stored and, if not, insert the fingerprint, as one step.

        Parameters
        ----------
        fingerprint : int
        id : int or str
        radius : int, optional
            0 to the store's, which is the default.
        always : bool
            Insert also when there are matches.
        sync : str, optional
            See :meth:`insert`.

        Returns
        -------
        list of Match
            What :meth:`probe` found before the insert. Empty: it was inserted.

        Raises
        ------
        InputError, ReadOnlyError, StorageError, ClosedStoreError
        """
        writer = self._changing()
        value = check_fingerprint(fingerprint)
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        checked = check_ids([id], 1)[0]
        always = check_flag(always, "always")
        _check_optional_sync(sync)
        return writer.probe_insert_one(value, checked if isinstance(checked, str) else int(checked), radius, always, sync)

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
            Of each row what it found; ``inserted`` tells which rows were inserted. The ids are those after the last row.

        Raises
        ------
        InputError, ReadOnlyError, StorageError, ClosedStoreError
        """
        writer = self._changing()
        rows, checked = _rows(fingerprints, ids)
        if checked is None:
            raise InputError("probe_insert_many needs ids: give one for each row")
        radius = check_radius(self.radius if radius is None else radius, self.radius)
        always = check_flag(always, "always")
        _check_optional_sync(sync)
        snapshot, columns, inserted = writer.probe_insert(rows, checked, radius, always, parse_threads(threads), sync)
        return Matches(*columns, IdLookup(self.path, snapshot), inserted)

    def delete(self, ids: Any = None, fingerprints: Any = None, sync: str | None = None) -> int:
        """Remove documents by their ids, or fingerprints with all their ids. They are gone from all answers when this returns.

        Parameters
        ----------
        ids : int, str, array or sequence, optional
            Every fingerprint loses these ids, and is gone when it has none left. Finding ids in the tables reads the whole
            id map, once a call: give many at a time.
        fingerprints : int, array of uint64 or sequence of int, optional
        sync : str, optional
            See :meth:`insert`.

        Returns
        -------
        int
            How many pairs of fingerprint and id were removed. What is not stored is passed over.

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
        """Make durable, and show to other processes, what was inserted with ``sync`` other than ``"commit"``.

        Raises
        ------
        StorageError
            No space: call it again when there is.
        """
        self._changing().flush()

    def merge(
        self,
        *others: str | os.PathLike[str],
        renumber: bool = False,
        design: str | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        """Fold what was inserted and deleted, and other stores, into a new generation of tables.

        Readers go on meanwhile, and so do inserts of other threads unless other stores are given. What is sorted already is
        streamed, not sorted again.

        Parameters
        ----------
        *others : path-like
            Stores whose content is added; they stay as they are. Where their design has the same tables as this store's they are
            streamed, otherwise sorted anew. A fingerprint of several stores has the ids of all.
        renumber : bool
            Give the integer ids of each other store, in turn, the numbers after the largest so far. By default ids stay as
            they are.
        design : str, optional
            Keep other tables from now on; ``auto`` takes the planner's choice. By default those that there are, unless they
            were chosen by ``auto`` for less than half or more than twice as many fingerprints: then they are chosen again.
        memory : int or str, optional
            Budget, as for :func:`fpstore.build`.
        threads : int, optional
            By default one per processor.
        progress : callable, optional
            Called as ``progress(phase, done, total)``, from any thread.

        Raises
        ------
        StorageError
            No space for the new generation beside the old: nothing was changed.
        InputError
            Ids of different kinds, or fingerprints that were made differently.
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


def _close_dropped(writer: Writer) -> None:
    with suppress(FpstoreError):  # nobody is there to be told
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
