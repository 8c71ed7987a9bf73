"""The open parts of an index: its manifest and its two stores, and both as of one moment."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from weakref import finalize

from fpstore.base.width import WORD_BITS
from fpstore.disk.files import open_folder
from fpstore.errors import CorruptStoreError
from fpstore.format.manifest import INDEX_FILE
from fpstore.lsh.answers import IndexSnapshot
from fpstore.lsh.keys import DOCUMENT_DESIGN, EntryLayout
from fpstore.lsh.manifest import (
    DOCUMENTS,
    KEYS,
    IndexManifest,
    check_part,
    missing_part_error,
    read_index_manifest,
)
from fpstore.query.store_snapshot import StoreSnapshot
from fpstore.store import Store, store_snapshot

ATTEMPTS = 3  # to open an index that is replaced meanwhile


def entry_layout(path: Path, manifest: IndexManifest, keys: StoreSnapshot) -> EntryLayout:
    """Return the layout of the entries of a snapshot; CorruptStoreError if it has none."""
    tables = keys.generation.design.tables
    layout = EntryLayout(manifest.key_bits, WORD_BITS - tables[0].prefix_bits)
    if sum(layout) > WORD_BITS or tables != layout.design.tables:
        raise CorruptStoreError(f"{path / KEYS}: is not the store of keys of an index", path=path)
    return layout


def check_documents(path: Path, documents: StoreSnapshot) -> None:
    """Refuse a store that does not have the form of the documents of an index."""
    if documents.generation.design.tables != DOCUMENT_DESIGN.tables:
        raise CorruptStoreError(
            f"{path / DOCUMENTS}: is not the store of documents of an index", path=path
        )


def _part(path: Path, mode: str, sync: str) -> Store:
    if not path.exists():
        raise missing_part_error(path)
    return Store(path, mode, sync)


class IndexParts:
    """The manifest and the stores of an index that is open; ``folder`` is a descriptor."""

    def __init__(self, path: Path, mode: str, sync: str) -> None:
        self.path = path
        self._last: IndexSnapshot | None = None  # of the last question
        for attempt in range(ATTEMPTS):
            self.manifest = read_index_manifest(path)
            try:
                self._open(mode, sync)
                return
            except CorruptStoreError:
                if attempt + 1 == ATTEMPTS or read_index_manifest(path) == self.manifest:
                    raise

    def _open(self, mode: str, sync: str) -> None:
        path = self.path
        with ExitStack() as opened:
            self.folder = open_folder(path)
            opened.callback(finalize(self, os.close, self.folder))  # also if the index is dropped
            # Closed in reverse: the documents flush first, and their keys before them.
            self.keys = opened.enter_context(_part(path / KEYS, mode, sync))
            self.documents = opened.enter_context(_part(path / DOCUMENTS, mode, sync))
            self._check_identities()
            self._check_age()
            self._opened = opened.pop_all()

    def _check_identities(self) -> None:
        """Refuse stores that the manifest does not name."""
        for name, store in ((DOCUMENTS, self.documents), (KEYS, self.keys)):
            check_part(
                self.path,
                self.manifest,
                name,
                store_snapshot(store).generation.manifest.identity.hex(),
            )
        check_documents(self.path, store_snapshot(self.documents))

    def _check_age(self) -> None:
        """Refuse stores of different ages, such as one of an older copy."""
        state, manifest = self.state(), self.manifest
        generation = state.keys.generation.record.number
        incomplete = (
            2 * state.keys.totals.fingerprints
            < manifest.bands * state.documents.totals.fingerprints
        )
        if incomplete or generation not in (manifest.keys_generation - 1, manifest.keys_generation):
            age = "older" if incomplete or generation < manifest.keys_generation else "newer"
            message = (
                f"{self.path / KEYS}: is {age} than the documents or {INDEX_FILE}: restore all "
                "of them from one copy"
            )
            raise CorruptStoreError(
                message, path=self.path, expected=manifest.keys_generation, got=generation
            )

    def close(self) -> None:
        """Close all files; closing twice is allowed."""
        self._last = None
        self._opened.close()

    @property
    def layout(self) -> EntryLayout:
        """The layout of the entries of keys now."""
        return entry_layout(self.path, self.manifest, store_snapshot(self.keys))

    def state(self) -> IndexSnapshot:
        """Return both stores as of one moment.

        An insert adds keys first, and a merge removes keys of documents that are gone. So while no
        document comes or goes, the store of keys has those of all documents.
        """
        state = self._last
        while True:
            documents, keys = store_snapshot(self.documents), store_snapshot(self.keys)
            if store_snapshot(self.documents) is documents:
                if state is None or state.documents is not documents or state.keys is not keys:
                    self._last = state = IndexSnapshot(
                        documents, keys, entry_layout(self.path, self.manifest, keys)
                    )
                return state

    def read_manifest(self) -> IndexManifest:
        return read_index_manifest(self.path, self.folder)
