"""A new index: its two stores, from items and ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import is_iterable
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.building.builder import Options, build_into
from fpstore.design.blocks import ELIAS_FANO
from fpstore.disk.temporary import SpillFile
from fpstore.errors import InputError
from fpstore.families import Family, Sketched
from fpstore.format.manifest import read_manifest
from fpstore.io.check import check_ids
from fpstore.lsh.keys import DOCUMENT_DESIGN, DOCUMENT_WIDTH, MOST_DOCUMENTS, EntryLayout, band_keys, document_rows
from fpstore.lsh.manifest import DOCUMENTS, KEYS, IndexManifest, put_manifest
from fpstore.lsh.plan import LshPlan

BLOCK_BYTES = 1024  # smaller ones are larger on disk, larger ones slower to look up
PIECE_DOCUMENTS = 1 << 16


class Piece(NamedTuple):
    """Some documents as a build takes them."""

    fingerprints: Words
    ids: Any


class DocumentPieces:
    """The documents of items, in pieces, each known one with the next number; their keys go to a file meanwhile.

    ``row_numbers`` and ``next_row`` are for the builder: without ids, an item's id is its place, and empty items have none.
    """

    def __init__(self, items: Iterable[Any], ids: Any, family: Family[Any], plan: LshPlan, resources: Resources) -> None:
        self._items, self._ids, self.family, self._plan, self._resources = items, ids, family, plan, resources
        self.row_numbers = ids is None
        self.next_row = 0  # items so far
        self.count = 0  # documents so far
        self.keys = SpillFile(None)

    def __iter__(self) -> Iterator[Piece]:
        plan, left = self._plan, None if self._ids is None else ids_in_order(self._ids)
        for sketched in self.family.sketched(self._items, plan.bands * plan.rows, self._resources.threads):
            known = np.flatnonzero(sketched.known)
            first, count = self.next_row, len(sketched.known)
            ids = np.arange(first, first + count, dtype=np.uint64) if left is None else taken_ids(left, count, first)
            self.next_row += count
            if len(known):
                yield Piece(self._rows(sketched, known), at_places(ids, known))
        if left is not None and next(left, None) is not None:
            raise InputError(f"there are more ids than items ({self.next_row})")

    def _rows(self, sketched: Sketched, known: Any) -> Words:
        plan = self._plan
        keys = band_keys(sketched.sketches[known], plan.bands, plan.rows)
        self.keys.append(keys.reshape(-1).view(np.uint8))
        numbers = np.arange(self.count, self.count + len(keys), dtype=np.uint64)
        self.count += len(keys)
        if self.count > MOST_DOCUMENTS:
            raise InputError(f"an index has at most {MOST_DOCUMENTS:,} documents")
        return document_rows(numbers, sketched.signatures[known])

    def entries(self, layout: EntryLayout) -> Iterator[Piece]:
        """Yield the entries of the store of keys, whose ids are all 0."""
        bands = self._plan.bands
        for first in range(0, self.count, PIECE_DOCUMENTS):
            some = min(PIECE_DOCUMENTS, self.count - first)
            keys = np.empty((some, bands), np.uint64)
            self.keys.read(8 * bands * first, keys.reshape(-1).view(np.uint8))
            entries = layout.entries(keys, np.arange(first, first + some, dtype=np.uint64))
            yield Piece(entries, np.zeros(len(entries), np.uint64))


def at_places(ids: Any, places: Any) -> Any:
    """Return the ids at some places."""
    return [ids[place] for place in places.tolist()] if isinstance(ids, list) else ids[places]


def ids_in_order(ids: Any) -> Iterator[Any]:
    """Return an iterator over ids; InputError for what cannot be many ids."""
    if not is_iterable(ids, str):
        raise InputError(f"ids must be one for each item, got {type(ids).__name__}")
    return iter(ids.tolist() if hasattr(ids, "tolist") else ids.to_pylist() if hasattr(ids, "to_pylist") else ids)


def taken_ids(left: Iterator[Any], count: int, before: int) -> Words | list[str]:
    """Return the ids of the next items."""
    some = list(islice(left, count))
    if len(some) < count:
        raise InputError(f"there are fewer ids ({before + len(some)}) than items")
    return check_ids(some, count)


def build_index(
    folder: Path, pieces: DocumentPieces, plan: LshPlan, index_ids: bool, resources: Resources
) -> None:  # fmt: skip
    """Write an index into an empty folder: the documents while items are read, then their keys, the manifest last."""
    _write_store(folder / DOCUMENTS, pieces, DOCUMENT_DESIGN, DOCUMENT_WIDTH.bits, resources, index_ids)
    layout = EntryLayout.of_size(pieces.count, plan.bands)
    _write_store(folder / KEYS, pieces.entries(layout), layout.design, WORD_BITS, resources)
    pieces.keys.close()
    form = pieces.family.describe(), plan.threshold, plan.recall, plan.bands, plan.rows, plan.probes, layout.key_bits, plan.radius
    put_manifest(folder, IndexManifest(*form, *identities_in(folder), pieces.count))


def identities_in(folder: Path) -> tuple[str, str]:
    """Return the identities of the two stores of an index."""
    documents, keys = (read_manifest(folder / name).identity.hex() for name in (DOCUMENTS, KEYS))
    return documents, keys


def _write_store(folder: Path, source: Any, design: Any, width: int, resources: Resources, index_ids: bool = False) -> None:
    folder.mkdir()
    options = Options(
        radius=0, width=width, design=design, memory=resources.memory, threads=resources.threads,
        block_bytes=BLOCK_BYTES,
        codec=ELIAS_FANO, filter=False, index_ids=index_ids, progress=resources.progress,
    )  # fmt: skip
    build_into(folder, source, None, options.checked())
