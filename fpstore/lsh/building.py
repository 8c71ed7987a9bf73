"""A new index: its two stores, from items and ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.building.builder import Options, build_into
from fpstore.design.blocks import ELIAS_FANO
from fpstore.disk.temporary import SpillFile
from fpstore.errors import InputError
from fpstore.format.manifest import read_manifest
from fpstore.hashing.sketcher import Sketcher
from fpstore.lsh.given import Given
from fpstore.lsh.keys import (
    DOCUMENT_DESIGN,
    DOCUMENT_WIDTH,
    MOST_DOCUMENTS,
    MOST_NUMBER_BITS,
    EntryLayout,
)
from fpstore.lsh.manifest import DOCUMENTS, KEYS, IndexManifest, put_manifest
from fpstore.lsh.plan import LshPlan

BLOCK_BYTES = 1024  # smaller ones are larger on disk, larger ones slower to look up
PIECE_ENTRIES = 1 << 20


class Piece(NamedTuple):
    """Some documents as a build takes them."""

    fingerprints: Words
    ids: Any


class GivenDocuments(Protocol):
    """Documents without numbers, in pieces: the ids are those of rows, or others."""

    row_numbers: bool

    @property
    def next_row(self) -> int:
        """The number of the item after those read so far."""

    def __iter__(self) -> Iterator[Given]:
        """Yield some documents."""


class DocumentPieces:
    """The documents that are given, in pieces, each with the next number.

    Their keys go to a file meanwhile.

    ``row_numbers`` and ``next_row`` are for the builder.
    """

    def __init__(self, given: GivenDocuments, hasher: Sketcher[Any], plan: LshPlan) -> None:
        self._given, self.hasher, self._plan = given, hasher, plan
        self.row_numbers = given.row_numbers
        self.count = 0  # documents so far
        self.keys = SpillFile(None)

    @property
    def next_row(self) -> int:
        """The number of the item after those read so far."""
        return self._given.next_row

    def __iter__(self) -> Iterator[Piece]:
        for (rows, keys, _), ids in self._given:
            self.keys.append(np.ascontiguousarray(keys).reshape(-1).view(np.uint8))
            first, self.count = self.count, self.count + len(rows)
            if self.count > MOST_DOCUMENTS:
                raise InputError(f"an index has at most {MOST_DOCUMENTS:,} documents")
            if len(rows):
                rows[:, 0] |= np.arange(first, self.count, dtype=np.uint64) << np.uint64(
                    MOST_NUMBER_BITS
                )
                yield Piece(rows, ids)

    def entries(self, layout: EntryLayout) -> Iterator[Piece]:
        """Yield the entries of the store of keys, whose ids are all 0.

        The entries of a piece do not depend on the bands.
        """
        bands = self._plan.bands
        most = max(PIECE_ENTRIES // bands, 1)
        for first in range(0, self.count, most):
            some = min(most, self.count - first)
            keys = np.empty((some, bands), np.uint64)
            self.keys.read(8 * bands * first, keys.reshape(-1).view(np.uint8))
            entries = layout.entries(keys, np.arange(first, first + some, dtype=np.uint64))
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
    """Write an index into an empty folder.

    The documents while items are read, then their keys, the manifest last.

    Keys are long enough for as many documents as are ``expected``. The stores have random
    identities, unless these are given.
    """
    of_documents, of_keys = identities
    _write_store(
        folder / DOCUMENTS,
        pieces,
        DOCUMENT_DESIGN,
        DOCUMENT_WIDTH.bits,
        resources,
        of_documents,
        index_ids,
    )
    layout = EntryLayout.of_size(max(pieces.count, expected), plan.bands)
    _write_store(
        folder / KEYS, pieces.entries(layout), layout.design, WORD_BITS, resources, of_keys
    )
    pieces.keys.close()
    form = (
        pieces.hasher.describe(),
        plan.threshold,
        plan.recall,
        plan.bands,
        plan.rows,
        plan.probes,
        layout.key_bits,
        plan.radius,
    )
    put_manifest(folder, IndexManifest(*form, *identities_in(folder), pieces.count, 1))


def identities_in(folder: Path) -> tuple[str, str]:
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
    options = Options(
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
    build_into(folder, source, None, options.checked())
