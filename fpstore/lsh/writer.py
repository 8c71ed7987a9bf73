"""The one writer of an index: numbers for documents, the order of the two stores, and merges.

The keys of a document come first, and then the document, which is the commit: keys without a
document find nothing. A number is not reused while the store of keys may have it. So a writer that
was killed leaves at most unused keys.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

import numpy as np

from fpstore.base.aliases import Flags, Words
from fpstore.base.resources import Resources, make_resources
from fpstore.change.decisions import kind_with
from fpstore.disk.refusals import NOTHING_CHANGED, translate_refusals
from fpstore.errors import ClosedStoreError, StorageError
from fpstore.lsh.items import Items
from fpstore.lsh.keys import MAX_DOCUMENTS, MAX_NUMBER_BITS, EntryLayout, document_numbers
from fpstore.lsh.manifest import write_index_manifest
from fpstore.lsh.merging import KeyMerge
from fpstore.lsh.parts import IndexParts
from fpstore.store import Store, store_snapshot

T = TypeVar("T")


def _flush(keys: Store) -> None:
    """Make keys durable before their documents.

    The writer of the documents holds the store of keys, and nothing that holds the documents: so a
    dropped index is freed, and its documents are closed before its keys.
    """
    with suppress(ClosedStoreError):
        keys.writer().flush()


class IndexWriter:
    """Changes the two stores of an index, in step.

    Only the thread that holds :attr:`turn` may change anything.
    """

    def __init__(self, parts: IndexParts) -> None:
        self.turn = threading.RLock()
        self._merging = threading.RLock()  # held while keys are merged
        self._parts = parts
        parts.documents.writer().committer.before_flush = partial(_flush, parts.keys)
        self.next = self._first_free()  # the number of the next document

    def _first_free(self) -> int:
        """Return a number above those of all documents and of all keys.

        Keys without a document are left by an insert that failed.
        """
        documents, keys = store_snapshot(self._parts.documents), store_snapshot(self._parts.keys)
        numbers = [document_numbers(documents.generation.tables[0].block_keys[-1:])]
        if documents.version:
            rows = documents.delta.kernel.export(documents.version)[0]
            numbers.append(document_numbers(rows))
        if keys.version:
            entries = keys.delta.kernel.export(keys.version)[0]
            numbers.append(self._parts.layout.numbers(entries))
        firsts = (int(batch.max()) + 1 for batch in numbers if len(batch))
        return max([self._parts.manifest.next_number, *firsts])

    def flush_keys(self, sync: str | None) -> None:
        """Make keys durable before a change of the documents alone that is durable itself."""
        if (sync or self._parts.keys.writer().committer.sync) == "commit":
            _flush(self._parts.keys)

    def check_kind(self, ids: Words | list[str] | None) -> None:
        """Refuse ids of another kind than those of the index, before any change."""
        kind_with(store_snapshot(self._parts.documents), ids, self._parts.path)

    def add(self, items: Items, sync: str | None, add: Callable[[Words], T]) -> T:
        """Add the keys of new documents, and call ``add`` with the rows of the documents."""
        first, count = self.next, len(items.rows)
        self._make_room(first + count)
        numbers = np.arange(first, first + count, dtype=np.uint64)
        entries = self._parts.layout.entries(items.keys, numbers)
        rows = items.rows.copy()
        rows[:, 0] |= numbers << np.uint64(MAX_NUMBER_BITS)
        try:
            self._parts.keys.insert(entries, np.zeros(len(entries), np.uint64), sync=sync)
            return add(rows)
        finally:
            # also after refused documents, whose keys may be stored
            self.next = first + count

    def merge(self, resources: Resources) -> None:
        """Merge the keys, without those of documents that are gone, and then the documents.

        Numbers become wider before they run out.
        """
        with ExitStack() as merging:
            with self.turn:
                # always after the turn, so that two threads cannot wait for each other
                merging.enter_context(self._merging)
                layout = self._parts.layout
                new, stored = layout.widen(2 * self.next) or layout, self._prepare_merge()
                if new != layout:  # entries change, so inserts must wait
                    self.merge_keys(layout, new, stored, resources)
            if new == layout:
                self.merge_keys(layout, new, stored, resources)
        self._parts.documents.merge(
            memory=resources.memory, threads=resources.threads, progress=resources.progress
        )

    def _make_room(self, count: int) -> None:
        """Widen the numbers in the store of keys if ``count`` documents need that."""
        path = self._parts.path
        if count > MAX_DOCUMENTS:
            raise StorageError(
                f"{path}: an index has at most {MAX_DOCUMENTS:,} documents", path=path
            )
        if count <= 1 << self._parts.layout.number_bits:
            return
        with self._merging:
            layout = self._parts.layout
            new = layout.widen(2 * count) or layout.widen(count)
            if new is None:
                message = (
                    f"{path}: the keys of this index leave no room for {count:,} documents: build "
                    "it again"
                )
                raise StorageError(message, path=path)
            self.merge_keys(layout, new, self._prepare_merge(), make_resources(None, None, None))

    def check(self) -> None:
        """Refuse changes of a process that is not the writer, as after a fork."""
        self._parts.keys.writer()
        self._parts.documents.writer()

    def _prepare_merge(self) -> Flags:
        """Note the next number and the coming merge; return which numbers documents have.

        Merged stores may have lost the last numbers, so the manifest has the next one.
        """
        parts, generation = self._parts, store_snapshot(self._parts.keys).generation.record.number
        manifest = parts.manifest._replace(next_number=self.next, keys_generation=generation + 1)
        if manifest != parts.manifest:
            with translate_refusals(parts.path, NOTHING_CHANGED):
                write_index_manifest(parts.folder, manifest)
            parts.manifest = manifest
        stored = np.zeros(self.next, bool)
        for rows in store_snapshot(parts.documents).fingerprints():
            stored[document_numbers(rows)] = True
        return stored

    def merge_keys(
        self, layout: EntryLayout, new: EntryLayout, stored: Flags, resources: Resources
    ) -> None:
        writer = self._parts.keys.writer()
        writer.run(lambda: KeyMerge(writer.committer, resources, stored, layout, new))
