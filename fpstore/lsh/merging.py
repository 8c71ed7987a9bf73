"""A merge of the store of keys.

It leaves out the entries of documents that are gone, and may widen the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Flags, Groups, Words
from fpstore.base.resources import Resources
from fpstore.change.committer import Committer
from fpstore.change.content import SnapshotContent
from fpstore.change.merge import Merge, ToWrite
from fpstore.design.tables import TableSpec
from fpstore.format.manifest import Manifest
from fpstore.lsh.keys import EntryLayout
from fpstore.query.store_snapshot import StoreSnapshot


class EntriesOfStored(SnapshotContent):
    """The entries of documents that are stored, in another layout.

    Wider numbers leave the entries in their order.

    ``stored`` has a flag for each number up to some; greater ones are of documents that were
    inserted meanwhile.
    """

    def __init__(
        self, snapshot: StoreSnapshot, stored: Flags, layout: EntryLayout, new: EntryLayout
    ) -> None:
        super().__init__(snapshot)
        self._stored, self._layout, self._new = stored, layout, new

    def groups(self) -> Iterator[Groups]:
        """Start a pass over (entries, 1 for each, 0 for each), ascending."""
        for entries, _, _ in super().groups():
            kept = self._kept(entries)
            if len(kept):
                yield kept, np.ones(len(kept), np.uint64), np.zeros(len(kept), np.uint64)

    def keys(self, spec: TableSpec, stop: _kernel.Stop | None = None) -> Iterator[Words] | None:
        """Start a pass over the entries, ascending."""
        entries = super().keys(spec, stop)
        return (
            None if entries is None else (kept for some in entries if len(kept := self._kept(some)))
        )

    def shape(self) -> None:
        """Return None: how many entries stay is not known beforehand."""

    def _kept(self, entries: Words) -> Words:
        numbers = self._layout.numbers(entries)
        kept = numbers >= len(self._stored)
        kept[~kept] = self._stored[numbers[~kept]]
        entries, numbers = entries[kept], numbers[kept]
        bits, new_bits = np.uint64(self._layout.number_bits), np.uint64(self._new.number_bits)
        return entries if bits == new_bits else ((entries >> bits) << new_bits) | numbers


class MergeOfKeys(Merge):
    """Merges the store of keys. While it widens numbers, nothing may be inserted."""

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
        content = EntriesOfStored(frozen.snapshot, self._stored, self._layout, self._new)
        self._replace(frozen, ToWrite(content, frozen.snapshot.totals, is_union=True))

    def _redesigned(self, snapshot: StoreSnapshot, count: int) -> Manifest:
        return snapshot.generation.manifest._replace(design=self._new.design)
