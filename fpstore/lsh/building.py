"""A new index: its two stores, from items and ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.building.builder import BuildOptions, build_into
from fpstore.design.blocks import ELIAS_FANO
from fpstore.disk.temporary import SpillFile
from fpstore.errors import InputError
from fpstore.format.manifest import read_manifest
from fpstore.hashing.sketcher import Sketcher
from fpstore.lsh.items import ItemBatch
from fpstore.lsh.keys import (
    DOCUMENT_DESIGN,
    DOCUMENT_WIDTH,
    MAX_DOCUMENTS,
    MAX_NUMBER_BITS,
    EntryLayout,
)
from fpstore.lsh.manifest import DOCUMENTS, KEYS, IndexManifest, put_manifest
from fpstore.lsh.plan import LshPlan

BLOCK_BYTES = 1024  # smaller ones are larger on disk, larger ones slower to look up
PIECE_ENTRIES = 1 << 20


class Piece(NamedTuple):
    """Documents, or entries, as a build takes them."""

    fingerprints: Words
    ids: Any


class DocumentSource(Protocol):
    """Documents without numbers, in pieces; ``row_numbers`` says whether ids are row numbers."""

    row_numbers: bool

    @property
    def next_row(self) -> int:
        """The number of the item after those read so far."""

    def __iter__(self) -> Iterator[ItemBatch]:
        """Yield the documents in order."""


class DocumentPieces:
    """Documents of a source, in pieces, each with the next number.

    Their keys go to a file meanwhile. The builder reads ``row_numbers`` and ``next_row``.
    """

    def __init__(self, source: DocumentSource, hasher: Sketcher[Any], plan: LshPlan) -> None:
        self._source, self.hasher, self._plan = source, hasher, plan
        self.row_numbers = source.row_numbers
        self.count = 0  # documents so far
        self.keys = SpillFile(None)

    @property
    def next_row(self) -> int:
        """The number of the item after those read so far."""
        return self._source.next_row

    def __iter__(self) -> Iterator[Piece]:
        """Yield the rows of documents, which get their numbers in place."""
        for batch in self._source:
            rows = batch.items.rows
            self.keys.append(np.ascontiguousarray(batch.items.keys).reshape(-1).view(np.uint8))
            first, self.count = self.count, self.count + len(rows)
            if self.count > MAX_DOCUMENTS:
                raise InputError(f"an index has at most {MAX_DOCUMENTS:,} documents")
            if len(rows):
                rows[:, 0] |= np.arange(first, self.count, dtype=np.uint64) << np.uint64(
                    MAX_NUMBER_BITS
                )
                yield Piece(rows, batch.ids)

    def entries(self, layout: EntryLayout) -> Iterator[Piece]:
        """Yield the entries of the store of keys, whose ids are all 0.

        The entries of a piece do not depend on the bands.
        """
        bands = self._plan.bands
        step = max(PIECE_ENTRIES // bands, 1)
        for first in range(0, self.count, step):
            count = min(step, self.count - first)
            keys = np.empty((count, bands), np.uint64)
            self.keys.read(8 * bands * first, keys.reshape(-1).view(np.uint8))
            entries = layout.entries(keys, np.arange(first, first + count, dtype=np.uint64))
            yield Piece(entries, np.zeros(len(entries), np.uint64))


def build_index(
    folder: Path,
    pieces: DocumentPieces,
    plan: LshPlan,
    expected: int,
    index_ids: bool,
    resources: Resources,
    identities: tuple[bytes | None, bytes | None] = (None, None),
) -> None:
    """Write an index into an empty folder: documents, then their keys, the manifest last.

    Keys are long enough for ``expected`` documents at least. Without ``identities``, the stores
    have random ones.
    """
    document_identity, key_identity = identities
    _write_store(
        folder / DOCUMENTS,
        pieces,
        DOCUMENT_DESIGN,
        DOCUMENT_WIDTH.bits,
        resources,
        document_identity,
        index_ids,
    )
    layout = EntryLayout.for_size(max(pieces.count, expected), plan.bands)
    _write_store(
        folder / KEYS, pieces.entries(layout), layout.design, WORD_BITS, resources, key_identity
    )
    pieces.keys.close()
    documents, keys = read_identities(folder)
    manifest = IndexManifest(
        hasher=pieces.hasher.describe(),
        threshold=plan.threshold,
        recall=plan.recall,
        bands=plan.bands,
        rows=plan.rows,
        probes=plan.probes,
        key_bits=layout.key_bits,
        radius=plan.radius,
        documents=documents,
        keys=keys,
        next_number=pieces.count,
        keys_generation=1,
    )
    put_manifest(folder, manifest)


def read_identities(folder: Path) -> tuple[str, str]:
    """Return the identities of the two stores of an index."""
    documents, keys = (read_manifest(folder / name).identity.hex() for name in (DOCUMENTS, KEYS))
    return documents, keys


def _write_store(
    folder: Path,
    source: Any,
    design: Any,
    width: int,
    resources: Resources,
    identity: bytes | None,
    index_ids: bool = False,
) -> None:
    folder.mkdir()
    options = BuildOptions(
        radius=0,
        width=width,
        design=design,
        memory=resources.memory,
        threads=resources.threads,
        block_bytes=BLOCK_BYTES,
        codec=ELIAS_FANO,
        filter=False,
        index_ids=index_ids,
        progress=resources.progress,
        identity=identity,
    )
    build_into(folder, source, None, options.check())
