"""A merge of the store of keys, which drops the entries of deleted documents."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Flags, Groups, Words
from fpstore.base.resources import Resources
from fpstore.change.committer import Committer
from fpstore.change.content import SnapshotContent
from fpstore.change.merge import Merge, MergeInput
from fpstore.design.tables import TableSpec
from fpstore.format.manifest import Manifest
from fpstore.lsh.keys import EntryLayout
from fpstore.query.store_snapshot import StoreSnapshot


class StoredEntries(SnapshotContent):
    """The entries of stored documents, in another layout.

    Wider numbers leave the entries in their order. ``stored`` has a flag for each number below its
    length; greater numbers belong to documents that were inserted meanwhile.
    """

    def __init__(
        self, snapshot: StoreSnapshot, stored: Flags, layout: EntryLayout, new: EntryLayout
    ) -> None:
        super().__init__(snapshot)
        self._stored, self._layout, self._new = stored, layout, new

    def groups(self) -> Iterator[Groups]:
        for batch, _, _ in super().groups():
            entries = self._convert(batch)
            if len(entries):
                yield entries, np.ones(len(entries), np.uint64), np.zeros(len(entries), np.uint64)

    def keys(self, spec: TableSpec, stop: _kernel.Stop | None = None) -> Iterator[Words] | None:
        batches = super().keys(spec, stop)
        if batches is None:
            return None
        return (entries for entries in map(self._convert, batches) if len(entries))

    def shape(self) -> None:
        """Return None: how many entries stay is not known beforehand."""

    def _convert(self, entries: Words) -> Words:
        numbers = self._layout.numbers(entries)
        stored = numbers >= len(self._stored)
        stored[~stored] = self._stored[numbers[~stored]]
        entries, numbers = entries[stored], numbers[stored]
        bits, new_bits = np.uint64(self._layout.number_bits), np.uint64(self._new.number_bits)
        return entries if bits == new_bits else ((entries >> bits) << new_bits) | numbers


class KeyMerge(Merge):
    """Merges the store of keys. While it widens numbers, inserts must wait."""

    def __init__(
        self,
        committer: Committer,
        resources: Resources,
        stored: Flags,
        layout: EntryLayout,
        new: EntryLayout,
    ) -> None:
        super().__init__(committer, resources)
        self._stored, self._layout, self._new = stored, layout, new

    def _run(self) -> None:
        with self._committer.turn:
            frozen = self._freeze()
        content = StoredEntries(frozen.snapshot, self._stored, self._layout, self._new)
        self._replace(frozen, MergeInput(content, frozen.snapshot.totals, is_union=True))

    def _choose_manifest(self, snapshot: StoreSnapshot, count: int) -> Manifest:
        return snapshot.generation.manifest._replace(design=self._new.design)
