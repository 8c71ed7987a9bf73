"""The LSH index, which a user holds: questions and changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fpstore.base.aliases import Flags, Progress, Words
from fpstore.base.arguments import check_flag, check_path, check_whole
from fpstore.base.resources import Resources, checked_resources, parse_threads
from fpstore.base.threads import cached_property
from fpstore.base.width import WORD_BITS
from fpstore.care.reports import Report
from fpstore.change.decisions import Deleted, kind_with, numbered
from fpstore.disk.files import open_folder
from fpstore.disk.folders import temporary_folder
from fpstore.errors import ClosedStoreError, CorruptStoreError, InputError, ReadOnlyError, StorageError, show
from fpstore.families import Family, as_family, from_description
from fpstore.io.check import check_id, check_ids
from fpstore.lsh.answers import Asked, Found, Match, Matches, State, first_of_similar
from fpstore.lsh.building import at_places
from fpstore.lsh.keys import DOCUMENT_DESIGN, MOST_DOCUMENTS, EntryLayout, band_keys, document_rows, numbers_of_rows
from fpstore.lsh.manifest import DOCUMENTS, KEYS, read_index_manifest, write_index_manifest
from fpstore.lsh.merging import MergeOfKeys
from fpstore.query.ids import IdLookup, Ids
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store, snapshot_of

if TYPE_CHECKING:
    from fpstore.jobs.clusters import Clusters
    from fpstore.lsh.groups import Pairs

TextsOf = Callable[[list[Any]], Iterable[Any]]


class LshStore:
    """An index of locality-sensitive hashes on disk, which :func:`fpstore.lsh.build` makes and :func:`fpstore.lsh.open` opens.

    It is a folder with two stores: of documents, with the signature and the id of each, and of the keys of bands, with the number
    of the document beside each key. An item finds every document that shares a key with it and whose signature is within
    :attr:`radius` bits of its own. That is exact: at any number of threads, and during changes. How many of the similar documents
    this finds is a law of probability, which :func:`fpstore.lsh.plan` computes.

    A context manager. Any number of processes can read an index at once, beside one writer, and each sees a change at its next
    question. A change is made as a whole or not at all, whatever happens to the process.

    Every method raises ClosedStoreError after :meth:`close`, InputError for a wrong argument, CorruptStoreError where it meets
    damage; a change raises ReadOnlyError in an index that is open for reading, and StorageError where the disk is full or refuses
    the write, which then has changed nothing.
    """

    def __init__(self, path: Path, mode: str = "r", sync: str = "commit", family: Any = None) -> None:
        self.path = path
        self._manifest = read_index_manifest(path)
        self._family: Family[Any] = from_description(self._manifest.family) if family is None else as_family(family)
        if self._family.describe() != self._manifest.family:
            raise InputError(f"{path}: is of another family: {self._manifest.family}", got=self._family.describe())
        self._last: State | None = None  # of which the last question was asked
        self._turn = threading.RLock()  # held during a change
        self._writing = mode == "r+"
        with ExitStack() as opened:
            self._folder = open_folder(path)
            opened.callback(os.close, self._folder)
            self._keys = opened.enter_context(Store(path / KEYS, mode, sync))
            self._documents = opened.enter_context(Store(path / DOCUMENTS, mode, sync))
            self._check_stores()
            if self._writing:
                assert self._documents._writer is not None
                self._documents._writer.committer.before_flush = self._flush_keys
                self._next = self._first_free()
            self._opened = opened.pop_all()  # closed in reverse: what the documents wait for is flushed before

    def _check_stores(self) -> None:
        for name, store in ((DOCUMENTS, self._documents), (KEYS, self._keys)):
            wanted, got = getattr(self._manifest, name), snapshot_of(store).generation.manifest.identity.hex()
            if wanted != got:
                raise CorruptStoreError(f"{store.path}: belongs to another index", path=store.path, expected=wanted, got=got)
        if snapshot_of(self._documents).generation.design.tables != DOCUMENT_DESIGN.tables:
            raise CorruptStoreError(f"{self._documents.path}: is not the store of an index", path=self._documents.path)
        self._layout_of(snapshot_of(self._keys))

    def _layout_of(self, keys: Snapshot) -> EntryLayout:
        layout = EntryLayout(self._manifest.key_bits, WORD_BITS - keys.generation.design.tables[0].prefix_bits)
        if keys.generation.design.tables != layout.design.tables or sum(layout) > WORD_BITS:
            raise CorruptStoreError(f"{self._keys.path}: is not the store of keys of an index", path=self._keys.path)
        return layout

    def _first_free(self) -> int:
        """Return a number that is greater than those of all documents, also of one whose insert has left its keys alone."""
        documents, keys = snapshot_of(self._documents), snapshot_of(self._keys)
        used = [np.empty(0, np.uint64)]
        block_keys = documents.generation.tables[0].block_keys
        used += [numbers_of_rows(block_keys[-1:])] if len(block_keys) else []
        if documents.version:
            used.append(numbers_of_rows(documents.delta.kernel.export(documents.version)[0]))
        if keys.version:
            used.append(self._layout_of(keys).numbers(keys.delta.kernel.export(keys.version)[0]))
        largest = np.concatenate(used)
        return max(self._manifest.next_number, int(largest.max()) + 1 if len(largest) else 0)

    def __reduce__(self) -> tuple[type[LshStore], tuple[Path]]:
        """Pickle the path; unpickling opens the index for reading."""
        return type(self), (self.path,)

    def close(self) -> None:
        """Make all changes durable, release the writer's lock, and close all files. Closing twice is allowed."""
        with self._turn:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # What it is

    @property
    def family(self) -> Family[Any]:
        """The family that makes sketches and signatures of items."""
        return self._family

    @property
    def bands(self) -> tuple[int, int]:
        """The number of bands, and the values of a sketch in each."""
        return self._manifest.bands, self._manifest.rows

    @property
    def radius(self) -> int:
        """The bits in which the signature of a match may differ."""
        return self._manifest.radius

    @property
    def threshold(self) -> float:
        """The similarity at which :attr:`recall` of the documents are found; of some families, a distance."""
        return self._manifest.threshold

    @property
    def recall(self) -> float:
        """The computed share of the documents of the threshold's similarity that are found."""
        return self._manifest.recall

    @property
    def ids(self) -> Ids:
        """Look-ups by id: whether an id is stored."""
        return self._documents.ids

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def __repr__(self) -> str:
        bands, rows = self.bands
        about = f"{self._family.describe()['name']}, {bands} bands of {rows}, radius {self.radius}"
        try:
            return f"<fpstore.lsh.LshStore {str(self.path)!r}: {len(self):,} documents, {about}>"
        except ClosedStoreError:
            return f"<fpstore.lsh.LshStore {str(self.path)!r}, closed>"

    # Questions

    def _state(self) -> State:
        """Return both stores as of one moment.

        An insert adds keys first, and a merge removes keys of documents that are gone. So while no document comes or goes, the
        store of keys has those of all documents.
        """
        state = self._last
        while True:
            documents, keys = snapshot_of(self._documents), snapshot_of(self._keys)
            if snapshot_of(self._documents) is documents:
                if state is None or state.documents is not documents or state.keys is not keys:
                    self._last = state = State(documents, keys, self._layout_of(keys))
                return state

    def _asked(self, items: Iterable[Any], threads: int) -> tuple[Asked, Flags]:
        """Return what is known of items: rows without numbers, keys, and which of the items are not empty."""
        manifest = self._manifest
        rows, keys, known = [np.empty((0, 4), np.uint64)], [np.empty((0, manifest.bands), np.uint64)], [np.empty(0, bool)]
        for some in self._family.sketched(items, manifest.values, threads):
            here = some.known
            rows.append(document_rows(np.zeros(int(here.sum()), np.uint64), some.signatures[here]))
            keys.append(band_keys(some.sketches[here], manifest.bands, manifest.rows))
            known.append(here)
        return Asked(np.concatenate(rows), np.concatenate(keys)), np.concatenate(known)

    def _all_asked(self, items: Iterable[Any], threads: int) -> Asked:
        asked, known = self._asked(items, threads)
        if not known.all():
            place = int(np.argmin(known))
            raise InputError(f"item {place}: is empty, and so has no sketch: leave it out", got=place)
        return asked

    def probe(self, item: Any, *, radius: int | None = None, verify: TextsOf | None = None) -> list[Match]:
        """Find the documents that are similar to an item.

        Parameters
        ----------
        item : object
            A text, a vector or what else the family takes.
        radius : int, optional
            The bits in which signatures may differ; by default that of the index.
        verify : callable, optional
            Called with a list of ids; returns their items, in this order. The similarities are then exact, and none is below
            the threshold.

        Returns
        -------
        list of Match
            The most similar first.
        """
        if verify is not None:
            return self.probe_many([item], radius=radius, verify=verify, threads=1)[0]
        radius = self._checked_radius(radius)
        made = next(iter(self._family.sketched([item], self._manifest.values)))
        if not made.known[0]:
            raise InputError(f"the item is empty, and so has no sketch: {show(item)}", got=item)
        found = self._state().find_one(made.sketches[0], made.signatures[0], self.bands, radius)
        return [Match(name, self._estimates[distance]) for name, distance in found]

    @cached_property
    def _estimates(self) -> list[float]:
        """The similarity that each distance of signatures stands for."""
        similarities: list[float] = np.asarray(self._family.estimate(np.arange(self._family.width + 1)), np.float64).tolist()
        return similarities

    def probe_many(
        self, items: Iterable[Any], *, radius: int | None = None, verify: TextsOf | None = None, threads: int | None = None
    ) -> Matches:
        """Find the documents that are similar to each of many items; the arguments are as for :meth:`probe`."""
        threads = parse_threads(threads)
        radius = self._checked_radius(radius)
        given: list[Any] = [] if verify is None else list(items)
        items, state = items if verify is None else given, self._state()
        found = self._matches(state, state.find(self._all_asked(items, threads), radius, threads))
        if verify is None:
            return found
        return found.verified(partial(self._exact, given, verify), self.threshold, self._family.is_distance)

    def _checked_radius(self, radius: int | None) -> int:
        return self.radius if radius is None else check_whole(radius, 0, self._family.width, "radius")

    def _exact(self, items: list[Any], texts_of: TextsOf, item: int, ids: Any) -> Any:
        wanted = ids if isinstance(ids, list) else ids.tolist()
        others = list(texts_of(wanted))
        if len(others) != len(wanted):
            raise InputError(f"verify returned {len(others)} items for {len(wanted)} ids")
        return self._family.similarities(items[item], others)

    def _matches(self, state: State, found: Found, inserted: Flags | None = None) -> Matches:
        lookup = IdLookup(self._documents.path, state.documents)
        return Matches(found, np.asarray(self._family.estimate(found.distances), np.float64), lookup, inserted)

    # Changes

    def _flush_keys(self) -> None:
        """Make keys durable before the documents that they are of."""
        writer = self._keys._writer
        if writer is not None and not self._keys._closed:
            writer.flush()

    def _changing(self) -> None:
        self._documents._check()
        if not self._writing:
            raise ReadOnlyError(f"{self.path}: open for reading; to change it, open it with mode='r+'", path=self.path)

    def _with_numbers(self, asked: Asked) -> tuple[Words, Words]:
        """Return the rows and the entries of new documents, with the next numbers."""
        count = len(asked.rows)
        if self._next + count > MOST_DOCUMENTS:
            raise StorageError(f"{self.path}: an index has at most {MOST_DOCUMENTS:,} documents", path=self.path)
        numbers = np.arange(self._next, self._next + count, dtype=np.uint64)
        self._make_room(self._next + count)
        rows = asked.rows.copy()
        rows[:, 0] |= numbers << np.uint64(32)
        layout = self._layout_of(snapshot_of(self._keys))
        return rows, layout.entries(asked.keys, numbers)

    def _add(self, asked: Asked, sync: str | None, add: Callable[[Words], Any]) -> Any:
        """Add the keys of new documents, and then the documents, which is the commit: keys without a document mean nothing."""
        rows, entries = self._with_numbers(asked)
        try:
            self._keys.insert(entries, np.zeros(len(entries), np.uint64), sync=sync)
            return add(rows)
        finally:
            self._next += len(rows)  # also of documents that were refused: their keys may be there

    def insert(self, items: Iterable[Any], ids: Any = None, *, sync: str | None = None, threads: int | None = None) -> int:
        """Add documents. All of a call are one change.

        An id that is already stored keeps its old document too: :meth:`upsert` takes it away.

        Parameters
        ----------
        items : iterable
            Texts, vectors or what else the family takes; none is empty.
        ids : optional
            One per item: integers or strings, whichever the index has. By default the next row numbers, in an index whose ids are
            row numbers.
        sync : {"commit", "batch", "none"}, optional
            As for :meth:`fpstore.Store.insert`.

        Returns
        -------
        int
            The number of documents.
        """
        self._changing()
        asked = self._all_asked(items, parse_threads(threads))
        checked = None if ids is None else check_ids(ids, len(asked.rows))
        with self._turn:
            self._check_kind(checked)
            return int(self._add(asked, sync, lambda rows: self._documents.insert(rows, checked, sync=sync)))

    def upsert(self, items: Iterable[Any], ids: Any, *, sync: str | None = None, threads: int | None = None) -> int:
        """Add documents, and take away those that had their ids. Returns how many ids are new or changed; see :meth:`insert`."""
        self._changing()
        if ids is None:
            raise InputError("upsert needs an id for each item")
        asked = self._all_asked(items, parse_threads(threads))
        checked = check_ids(ids, len(asked.rows))
        with self._turn:
            self._check_kind(checked)
            return int(self._add(asked, sync, lambda rows: self._documents.upsert(rows, checked, sync=sync)))

    def delete(self, ids: Any, *, sync: str | None = None) -> Deleted:
        """Remove the documents with some ids. Their keys stay until the next :meth:`merge`, and find nothing.

        Returns
        -------
        Deleted
            How many documents were removed, and how many ids were not stored.
        """
        self._changing()
        with self._turn:
            self._flush_keys()  # a commit makes documents durable that came before
            return self._documents.delete(ids=ids, sync=sync)

    def probe_insert(self, item: Any, id: int | str, *, radius: int | None = None, sync: str | None = None) -> list[Match]:  # noqa: A002
        """Insert an item unless a similar document is stored; return the matches before. Probe and insert are one step."""
        return self.probe_insert_many([item], [check_id(id)], radius=radius, sync=sync, threads=1)[0]

    def probe_insert_many(
        self, items: Iterable[Any], ids: Any = None, *, radius: int | None = None, sync: str | None = None,
        threads: int | None = None,
    ) -> Matches:  # fmt: skip
        """Do :meth:`probe_insert` for each item in order, as one change: the second of two similar items finds the first.

        Returns
        -------
        Matches
            The matches of each item; ``inserted`` has the items that were inserted.
        """
        self._changing()
        threads = parse_threads(threads)
        radius = self._checked_radius(radius)
        asked = self._all_asked(items, threads)
        checked = None if ids is None else check_ids(ids, len(asked.rows))
        with self._turn:
            self._check_kind(checked)
            state, first = self._state(), self._next
            known = np.diff(state.find(asked, radius, threads).lims) > 0
            inserted = first_of_similar(asked, state.layout, radius, known)
            places = np.flatnonzero(inserted)
            if len(places):
                new_ids = None if checked is None else at_places(checked, places)
                self._add(asked.part(places), sync, lambda rows: self._documents.insert(rows, new_ids, sync=sync))
                state = self._state()
            return self._matches(state, state.find(asked, radius, threads).before(first, places), inserted)

    def _check_kind(self, ids: Words | list[str] | None) -> None:
        """Refuse ids of another kind than those of the index, before anything is changed."""
        snapshot = snapshot_of(self._documents)
        if ids is not None:
            kind_with(snapshot, self.path, ids)
        else:
            numbered(snapshot, self.path, snapshot.width.empty(0), None, lambda number: None)

    def flush(self) -> None:
        """Make the changes of ``sync="batch"`` and ``"none"`` durable, and show them to other processes."""
        self._changing()
        self._documents.flush()

    # The whole index

    def merge(self, *, memory: int | str | None = None, threads: int | None = None, progress: Progress | None = None) -> None:
        """Fold all changes into new tables, and drop the keys of documents that are gone. Readers and inserts go on meanwhile."""
        self._changing()
        resources = checked_resources(memory, threads, progress)
        with self._turn:
            self._note_numbers()
            layout, free = self._layout_of(snapshot_of(self._keys)), self._next
            if not layout.is_narrow_for(free):
                stored = self._stored(free)
        if layout.is_narrow_for(free):
            with self._turn:  # numbers become wider: nothing is inserted meanwhile
                self._merge_keys(self._next, resources)
        else:
            self._merge_keys_to(layout, stored, resources)
        self._documents.merge(memory=resources.memory, threads=resources.threads, progress=progress)

    def _note_numbers(self) -> None:
        """Remember the numbers that were given, of which merged stores may have lost the last."""
        if self._manifest.next_number != self._next:
            self._manifest = self._manifest._replace(next_number=self._next)
            write_index_manifest(self._folder, self._manifest)

    def _stored(self, free: int) -> Flags:
        """Return which of the numbers up to the first free one documents have."""
        stored = np.zeros(free, bool)
        for rows in snapshot_of(self._documents).fingerprints():
            stored[numbers_of_rows(rows)] = True
        return stored

    def _make_room(self, count: int) -> None:
        """Widen the numbers in the store of keys if some number of documents needs that."""
        if count > 1 << self._layout_of(snapshot_of(self._keys)).number_bits:
            self._note_numbers()
            self._merge_keys(count, checked_resources(None, None, None))

    def _merge_keys(self, count: int, resources: Resources) -> None:
        layout = self._layout_of(snapshot_of(self._keys)).widened(count)
        if layout is None:
            raise StorageError(
                f"{self.path}: the keys of this index leave no room for {count:,} documents: build it again", path=self.path
            )
        self._merge_keys_to(layout, self._stored(self._next), resources)

    def _merge_keys_to(self, new: EntryLayout, stored: Flags, resources: Resources) -> None:
        writer = self._keys._writer
        assert writer is not None
        layout = self._layout_of(snapshot_of(self._keys))
        writer._run(lambda: MergeOfKeys(writer.committer, resources, stored, layout, new))

    def pairs(
        self, radius: int | None = None, *, memory: int | str | None = None, threads: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Pairs]:  # fmt: skip
        """Yield every pair of documents that share a key and lie within the radius, once, as of the moment of the call.

        Every two documents of a key are compared: for families of many thousand copies, take :meth:`clusters`.

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
        from fpstore.lsh.groups import pairs_of

        radius, state = self._checked_radius(radius), self._state()
        resources = checked_resources(memory, threads, progress)
        estimates = np.asarray(self._family.estimate(np.arange(radius + 1)), np.float64)
        with temporary_folder(Path(gettempdir()), "fpstore-pairs-") as folder:
            yield from pairs_of(state, radius, estimates, folder, resources)

    def clusters(
        self, radius: int | None = None, *, group: str = "greedy", keep: str = "first", memory: int | str | None = None,
        threads: int | None = None, progress: Progress | None = None,
    ) -> Clusters:  # fmt: skip
        """Return the groups of two or more documents that similar documents form.

        Parameters
        ----------
        radius : int, optional
            The bits in which signatures may differ; by default that of the index.
        group : {"greedy", "connected"}
            Groups in which every member is within the radius of its representative, or chains of pairs; see
            :meth:`fpstore.Store.clusters`.
        keep : {"first", "smallest", "central"}
            The document that stands for its group: the first that was inserted, the least id, or the most central one.
        memory, threads, progress : optional
            As for :meth:`pairs`.
        """
        from fpstore.jobs.clusters import grouping_of
        from fpstore.lsh.groups import clusters_of

        grouping = grouping_of(self._checked_radius(radius), group, keep, None)
        return clusters_of(self._state(), grouping, checked_resources(memory, threads, progress)).held()

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of the index, and under ``stores`` those of its two stores."""
        from fpstore.lsh.care import describe_index

        return describe_index(self._state(), self._manifest, self._documents.stats(), self._keys.stats())

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Read and check every byte that is used, and that every document has keys; the report is as of a store."""
        from fpstore.lsh.care import verify_index

        documents, keys = self._documents.verify(progress=progress), self._keys.verify(progress=progress)
        return verify_index(self.path, documents, keys, self._state(), progress)

    def backup(self, path: str | os.PathLike[str], *, overwrite: bool = False, progress: Progress | None = None) -> None:
        """Copy the index as of one moment, even while other processes insert and merge; see :meth:`fpstore.Store.backup`."""
        from fpstore.lsh.care import back_up_index

        manifest = partial(read_index_manifest, self.path, self._folder)
        back_up_index(self._documents, self._keys, manifest, check_path(path), check_flag(overwrite, "overwrite"), progress)
