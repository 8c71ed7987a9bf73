"""The LSH index, which a user holds: questions and changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self

import numpy as np

from fpstore.base.aliases import Flags, Id, Progress, Words
from fpstore.base.arguments import check_flag, check_path, check_sync, check_whole
from fpstore.base.arrays import list_lims
from fpstore.base.resources import make_resources, parse_threads
from fpstore.base.threads import cached_property
from fpstore.care.reports import Report
from fpstore.change.decisions import Deleted
from fpstore.errors import (
    ClosedStoreError,
    CorruptStoreError,
    FormatVersionError,
    InputError,
    MissingExtraError,
    ReadOnlyError,
    show,
)
from fpstore.hashing.base import check_items
from fpstore.hashing.registry import check_sketcher, from_description
from fpstore.hashing.sketcher import Sketcher
from fpstore.io.check import check_id, check_ids
from fpstore.lsh.answers import IndexSnapshot, Match, Matches, earlier_matches, items_to_insert
from fpstore.lsh.items import Items, ids_at_places
from fpstore.lsh.keys import band_keys
from fpstore.lsh.parts import IndexParts
from fpstore.lsh.writer import IndexWriter
from fpstore.query.batches import MatchColumns
from fpstore.query.ids import Ids, SnapshotIds
from fpstore.store import Store

if TYPE_CHECKING:
    from fpstore.jobs.clusters import Clusters
    from fpstore.lsh.groups import Pairs

ItemReader = Callable[[list[Any]], Iterable[Any]]


def _make_hasher(path: Path, description: dict[str, Any]) -> Sketcher[Any]:
    """Make the hasher that the manifest of an index describes."""
    try:
        return check_sketcher(from_description(description))
    except (FormatVersionError, MissingExtraError) as error:
        raise type(error)(
            f"{path}: {error}, or open it with hasher=", path=path, got=error.got
        ) from error


class LshStore(Generic[Id]):
    """An index of locality-sensitive hashes on disk.

    :func:`fpstore.lsh.build` makes it, and :func:`fpstore.open` opens it. The folder has two
    stores: one of documents, with the signature and the id of each, and one of the keys of bands,
    with the number of the document beside each key. An item finds every document that shares a key
    with it and whose signature is within :attr:`radius` bits of its own. That is exact: at any
    number of threads, and during changes. The share of the similar documents that this finds is a
    law of probability, which :func:`fpstore.lsh.plan` computes.

    A context manager. Any number of processes can read an index at once, beside one writer, and
    each sees a change at its next question. A change is made as a whole or not at all, whatever
    happens to the process.

    Every method raises ClosedStoreError after :meth:`close`, InputError for a wrong argument, and
    CorruptStoreError for damage. A change raises ReadOnlyError in an index that is open for
    reading, and StorageError where the disk is full or refuses the write, which then has changed
    nothing.
    """

    def __init__(
        self, path: Path, mode: str = "r", sync: str = "commit", hasher: Any = None
    ) -> None:
        self.path = path
        self._parts = IndexParts(path, mode, sync)
        try:
            description = self._parts.manifest.hasher
            self._hasher: Sketcher[Any] = (
                _make_hasher(path, description) if hasher is None else check_sketcher(hasher)
            )
            if self._hasher.describe() != description:
                raise InputError(
                    f"{path}: is of another hasher: {show(description)}",
                    got=self._hasher.describe(),
                )
            if self.radius > self._hasher.signature_bits:
                raise CorruptStoreError(
                    f"{path}: its radius is greater than the bits of a signature", path=path
                )
            self._writer = IndexWriter(self._parts) if mode == "r+" else None
        except BaseException:
            self._parts.close()
            raise

    def __reduce__(self) -> tuple[type[LshStore], tuple[Path, str, str, Sketcher[Any]]]:
        """Pickle the path and the hasher; unpickling opens the index for reading."""
        return type(self), (self.path, "r", "commit", self._hasher)

    def close(self) -> None:
        """Make all changes durable, release the writer's lock, and close all files.

        Closing twice is allowed.

        An index that is dropped, or open when the interpreter ends normally, is closed in the same
        way.
        """
        with nullcontext() if self._writer is None else self._writer.turn:
            self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    # Properties

    @property
    def hasher(self) -> Sketcher[Any]:
        """The hasher that makes sketches and signatures of items."""
        return self._hasher

    @property
    def bands(self) -> tuple[int, int]:
        """The number of bands, and the values of a sketch in each."""
        return self._parts.manifest.bands, self._parts.manifest.rows

    @property
    def radius(self) -> int:
        """The bits in which the signature of a match may differ."""
        return self._parts.manifest.radius

    @property
    def threshold(self) -> float:
        """The similarity at which :attr:`recall` of the documents are found.

        Of some hashers, a distance.
        """
        return self._parts.manifest.threshold

    @property
    def recall(self) -> float:
        """The computed share of the documents of the threshold's similarity that are found."""
        return self._parts.manifest.recall

    @property
    def ids(self) -> Ids:
        """Look-ups by id: whether an id is stored."""
        return self._documents.ids

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def __repr__(self) -> str:
        bands, rows = self.bands
        form = f"{self._hasher.describe()['name']}, {bands} bands of {rows}, radius {self.radius}"
        try:
            return f"<fpstore.lsh.LshStore {str(self.path)!r}: {len(self):,} documents, {form}>"
        except ClosedStoreError:
            return f"<fpstore.lsh.LshStore {str(self.path)!r}, closed>"

    # Questions

    def hash_known(self, items: Iterable[Any], threads: int) -> tuple[Items, Flags]:
        """Return the items that are not empty, hashed, and a flag for each, for this package."""
        manifest = self._parts.manifest
        item_list = [] if manifest.probes == 1 else self._list_items(items)
        batches = [Items.none(manifest.bands)]
        known = [np.empty(0, bool)]
        for sketched in self._hasher.sketched(item_list or items, manifest.values, threads):
            batches.append(Items.from_sketches(sketched, self.bands))
            known.append(sketched.known)
        hashed, flags = Items.concatenate(batches), np.concatenate(known)
        if manifest.probes == 1:
            return hashed, flags
        probe_keys = self._probe_keys([item_list[place] for place in np.flatnonzero(flags)])
        return replace(hashed, probe_keys=probe_keys), flags

    def _hash(self, items: Iterable[Any], threads: int) -> Items:
        """Make rows and keys of items; InputError for an empty one, which has no sketch."""
        if isinstance(items, Items):  # which were hashed before
            return items
        hashed, known = self.hash_known(items, threads)
        if not known.all():
            place = int(np.argmin(known))
            raise InputError(
                f"item {place}: is empty, and so has no sketch: leave it out", got=place
            )
        return hashed

    def _list_items(self, items: Iterable[Any]) -> list[Any]:
        check_items(items, self._hasher.items)
        return list(items)

    def _probe_keys(self, items: list[Any]) -> Words:
        """Return the keys of the bands of items, and others that a near item may have."""
        bands, rows, probes = self._parts.manifest.form
        keys = np.empty((len(items), probes * bands), np.uint64)
        for place, item in enumerate(items):
            values = (
                self._hasher.probes(item, bands, rows, probes)
                .transpose(1, 0, 2)
                .reshape(probes, bands * rows)
            )
            keys[place] = band_keys(values, bands, rows).reshape(-1)
        return keys

    def probe(
        self, item: Any, *, radius: int | None = None, verify: ItemReader | None = None
    ) -> list[Match[Id]]:
        """Find the documents that are similar to an item.

        Parameters
        ----------
        item : object
            A text, a vector or what else the hasher takes.
        radius : int, optional
            The bits in which signatures may differ; by default that of the index.
        verify : callable, optional
            Called with a list of ids; returns their items, in this order. The similarities are then
            exact, and none is below the threshold.

        Returns
        -------
        list of Match
            The most similar first.
        """
        if verify is not None or self._parts.manifest.probes > 1:
            return self.probe_many([item], radius=radius, verify=verify, threads=1)[0]
        radius = self._check_radius(radius)
        sketched = next(iter(self._hasher.sketched([item], self._parts.manifest.values)))
        if not sketched.known[0]:
            raise InputError(f"the item is empty, and so has no sketch: {show(item)}", got=item)
        matches = self._parts.state().probe_item(
            sketched.sketches[0], sketched.signatures[0], self.bands, radius
        )
        return [Match(name, self._estimates[distance]) for name, distance in matches]

    @cached_property
    def _estimates(self) -> list[float]:
        similarities: list[float] = np.asarray(
            self._hasher.estimate(np.arange(self._hasher.signature_bits + 1)), np.float64
        ).tolist()
        return similarities

    def probe_many(
        self,
        items: Iterable[Any],
        *,
        radius: int | None = None,
        verify: ItemReader | None = None,
        threads: int | None = None,
    ) -> Matches[Id]:
        """Find the documents that are similar to each of many items.

        The arguments are as for :meth:`probe`.
        """
        threads = parse_threads(threads)
        radius = self._check_radius(radius)
        if verify is not None and not callable(verify):
            raise InputError(
                f"verify must be a function that returns the items of ids, got {show(verify)}",
                got=verify,
                argument="verify",
            )
        item_list = [] if verify is None else self._list_items(items)
        items, state = items if verify is None else item_list, self._parts.state()
        matches = self._matches(state, state.find(self._hash(items, threads), radius, threads))
        if verify is None:
            return matches
        return matches.verified(
            partial(self._exact_similarities, item_list, verify),
            self.threshold,
            self._hasher.law.is_distance,
        )

    def _check_radius(self, radius: int | None) -> int:
        return (
            self.radius
            if radius is None
            else check_whole(radius, 0, self._hasher.signature_bits, "radius")
        )

    def _exact_similarities(
        self, items: list[Any], read_items: ItemReader, item: int, ids: Any
    ) -> Any:
        ids = ids if isinstance(ids, list) else ids.tolist()
        stored = list(read_items(ids))
        if len(stored) != len(ids):
            raise InputError(f"verify returned {len(stored)} items for {len(ids)} ids")
        return self._hasher.similarities(items[item], stored)

    def _matches(
        self, state: IndexSnapshot, columns: MatchColumns, inserted: Flags | None = None
    ) -> Matches[Id]:
        lookup = SnapshotIds(self._documents.path, state.documents)
        return Matches(
            columns, np.asarray(self._hasher.estimate(columns[2]), np.float64), lookup, inserted
        )

    # Changes

    def snapshot(self) -> IndexSnapshot:
        """Return both stores as they are now, for modules of this package."""
        return self._parts.state()

    def _open_writer(self) -> IndexWriter:
        if self._writer is None:
            self._documents.snapshot()  # of a closed index, that it is closed matters more
            raise ReadOnlyError(
                f"{self.path}: open for reading; to change it, open it with mode='r+'",
                path=self.path,
            )
        self._writer.check()
        return self._writer

    @property
    def _documents(self) -> Store:
        return self._parts.documents

    def insert(
        self,
        items: Iterable[Any],
        ids: Any = None,
        *,
        sync: str | None = None,
        threads: int | None = None,
    ) -> int:
        """Add documents. All of a call are one change.

        An id that is already stored keeps its old document too: :meth:`upsert` takes it away.

        Parameters
        ----------
        items : iterable
            Texts, vectors or what else the hasher takes; none is empty.
        ids : optional
            One per item: integers or strings, whichever the index has. By default the next row
            numbers, in an index whose ids are row numbers.
        sync : {"commit", "batch", "none"}, optional
            As for :meth:`fpstore.Store.insert`.

        Returns
        -------
        int
            The number of documents.
        """
        writer = self._open_writer()
        hashed = self._hash(items, parse_threads(threads))
        checked = None if ids is None else check_ids(ids, len(hashed.rows))
        with writer.turn:
            writer.check_kind(checked)
            return writer.add(
                hashed, sync, lambda rows: self._documents.insert(rows, checked, sync=sync)
            )

    def upsert(
        self, items: Iterable[Any], ids: Any, *, sync: str | None = None, threads: int | None = None
    ) -> int:
        """Add documents, and take away those that had their ids.

        Returns how many ids are new or changed; see :meth:`insert`.
        """
        writer = self._open_writer()
        if ids is None:
            raise InputError("upsert needs an id for each item")
        hashed = self._hash(items, parse_threads(threads))
        checked = check_ids(ids, len(hashed.rows))
        with writer.turn:
            writer.check_kind(checked)
            return writer.add(
                hashed, sync, lambda rows: self._documents.upsert(rows, checked, sync=sync)
            )

    def delete(self, ids: Any, *, sync: str | None = None) -> Deleted:
        """Remove the documents with some ids.

        Their keys stay until the next :meth:`merge`, and find nothing.

        Returns
        -------
        Deleted
            How many documents were removed, and how many ids were not stored.
        """
        writer = self._open_writer()
        with writer.turn:
            writer.flush_keys(sync)
            return self._documents.delete(ids=ids, sync=sync)

    def probe_insert(
        self, item: Any, id: int | str, *, radius: int | None = None, sync: str | None = None
    ) -> list[Match[Id]]:
        """Insert an item unless a similar document is stored; return the earlier matches.

        Probe and insert are one step.
        """
        return self.probe_insert_many([item], [check_id(id)], radius=radius, sync=sync, threads=1)[
            0
        ]

    def probe_insert_many(
        self,
        items: Iterable[Any],
        ids: Any = None,
        *,
        radius: int | None = None,
        sync: str | None = None,
        threads: int | None = None,
    ) -> Matches[Id]:
        """Do :meth:`probe_insert` for each item in order, as one change.

        The second of two similar items finds the first.

        Returns
        -------
        Matches
            The matches of each item; ``inserted`` has the items that were inserted.
        """
        writer, threads = self._open_writer(), parse_threads(threads)
        if sync is not None:
            check_sync(sync)
        radius = self._check_radius(radius)
        hashed = self._hash(items, threads)
        checked = None if ids is None else check_ids(ids, len(hashed.rows))
        with writer.turn:
            writer.check_kind(checked)
            state, first = self._parts.state(), writer.next
            matches = state.find(hashed, radius, threads)
            inserted = items_to_insert(hashed, state.layout, radius, np.diff(matches[0]) > 0)
            places = np.flatnonzero(inserted)
            if len(places):
                new_ids = None if checked is None else ids_at_places(checked, places)
                writer.add(
                    hashed.take(places),
                    sync,
                    lambda rows: self._documents.insert(rows, new_ids, sync=sync),
                )
                # An inserted item has no matches; the remaining ones may match inserted items
                # before them.
                state, remaining = self._parts.state(), np.flatnonzero(~inserted)
                candidates = state.find(hashed.take(remaining), radius, threads)
                owners, rows, distances = earlier_matches(candidates, remaining, first, places)
                matches = list_lims(np.bincount(owners, minlength=len(inserted))), rows, distances
            return self._matches(state, matches, inserted)

    def flush(self) -> None:
        """Make the changes of ``sync="batch"`` and ``"none"`` durable and visible everywhere."""
        self._open_writer()
        self._documents.flush()

    # The whole index

    def merge(
        self,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Fold all changes into new tables, and drop the keys of documents that are gone.

        Readers and inserts go on meanwhile.
        """
        self._open_writer().merge(make_resources(memory, threads, progress))

    def pairs(
        self,
        radius: int | None = None,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Pairs[Id]]:
        """Yield every pair of documents that share a key and lie within the radius.

        Each pair comes once, as of the moment of the call. Every two documents of a key are
        compared: for families of many thousand copies, take :meth:`clusters`.

        Parameters
        ----------
        radius : int, optional
            The bits in which signatures may differ; by default that of the index.
        memory, threads, progress : optional
            As for :meth:`fpstore.Store.pairs`. Documents are mapped from a temporary file.

        Yields
        ------
        Pairs
            ``ids_a()``, ``ids_b()``, ``similarities``; tables of Arrow, pandas and Polars.
        """
        from fpstore.lsh.groups import pair_documents

        radius, state = self._check_radius(radius), self._parts.state()
        resources = make_resources(memory, threads, progress)
        estimates = np.asarray(self._hasher.estimate(np.arange(radius + 1)), np.float64)
        return pair_documents(state, radius, estimates, resources)

    def clusters(
        self,
        radius: int | None = None,
        *,
        group: str = "greedy",
        keep: str = "first",
        memory: int | str | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> Clusters:
        """Return the groups of two or more documents that similar documents form.

        Parameters
        ----------
        radius : int, optional
            The bits in which signatures may differ; by default that of the index.
        group : {"greedy", "connected"}
            Groups in which every member is within the radius of its representative, or chains of
            pairs; see :meth:`fpstore.Store.clusters`.
        keep : {"first", "smallest", "central"}
            The document that stands for its group: the first that was inserted, the least id, or
            the most central one.
        memory, threads, progress : optional
            As for :meth:`pairs`.
        """
        from fpstore.jobs.clusters import cluster_grouping
        from fpstore.lsh.groups import group_documents

        grouping = cluster_grouping(self._check_radius(radius), group, keep, None)
        return group_documents(
            self._parts.state(), grouping, make_resources(memory, threads, progress)
        ).in_memory()

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of the index; ``stores`` has those of its two stores."""
        from fpstore.lsh.care import describe_index

        return describe_index(
            self._parts.state(),
            self._parts.manifest,
            self._documents.stats(),
            self._parts.keys.stats(),
        )

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Read and check every byte that is used, and that every document has keys.

        The report has the form of the one of a store.
        """
        from fpstore.lsh.care import verify_index

        documents, keys = (
            self._documents.verify(progress=progress),
            self._parts.keys.verify(progress=progress),
        )
        return verify_index(self._parts, documents, keys, progress)

    def backup(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy the index as of one moment, even while other processes insert and merge.

        See :meth:`fpstore.Store.backup`.
        """
        from fpstore.lsh.care import back_up_index

        back_up_index(self._parts, check_path(path), check_flag(overwrite, "overwrite"), progress)
