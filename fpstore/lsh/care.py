"""Verifying, describing and copying an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Counts, Progress, Words
from fpstore.base.arrays import NO_WORDS
from fpstore.building.target import Target, is_inside_folder
from fpstore.care.reports import Report
from fpstore.errors import CorruptStoreError, FpstoreError, InputError, plural
from fpstore.format.manifest import is_index
from fpstore.lsh.answers import IndexSnapshot
from fpstore.lsh.keys import document_numbers, find_numbers
from fpstore.lsh.manifest import DOCUMENTS, KEYS, IndexManifest, check_part, put_manifest
from fpstore.lsh.parts import IndexParts
from fpstore.store import store_snapshot

PHASE_CHECK = "comparing documents and keys"


def count_keys(state: IndexSnapshot, progress: Progress | None) -> tuple[Words, Counts]:
    """Return the numbers of all documents, ascending, and how many keys each has."""
    parts = [document_numbers(rows) for rows in state.documents.fingerprints()]
    numbers = np.concatenate([NO_WORDS, *parts])
    counts, done, total = np.zeros(len(numbers), np.uint32), 0, state.keys.totals.fingerprints
    for entries in state.keys.fingerprints():
        if progress is not None:
            progress(PHASE_CHECK, done, total)
        done += len(entries)
        np.add.at(counts, find_numbers(numbers, state.layout.numbers(entries))[1], 1)
    return numbers, counts


def verify_index(
    parts: IndexParts, documents: Report, keys: Report, progress: Progress | None
) -> Report:
    """Report on both stores, on the manifest, and on whether every document has keys."""
    path, bands, state = parts.path, parts.manifest.bands, parts.state()
    report = Report(
        documents.tables + keys.tables,
        documents.blocks + keys.blocks,
        documents.fingerprints,
        documents.ids,
        [*documents.faults, *keys.faults],
    )
    try:
        for name in (DOCUMENTS, KEYS):
            check_part(path, parts.read_manifest(), name, getattr(parts.manifest, name))
        _, counts = count_keys(state, progress)
    except FpstoreError as error:
        report.note(error)
        return report
    if crowded := int(np.count_nonzero(counts > bands)):
        message = (
            f"{path}: {plural(crowded, 'document')} with more than {bands} keys: some keys belong "
            "to other documents: build it again"
        )
        report.note(CorruptStoreError(message, path=path))
    if keyless := int(np.count_nonzero(counts == 0)):
        message = (
            f"{path}: {plural(keyless, 'document')} {'has' if keyless == 1 else 'have'} no keys: "
            "insert the items again"
        )
        report.note(CorruptStoreError(message, path=path))
    return report


def describe_index(
    state: IndexSnapshot, manifest: IndexManifest, documents: dict[str, Any], keys: dict[str, Any]
) -> dict[str, Any]:
    """Return the contents and sizes of an index from the ``stats`` of its stores."""
    sizes = {DOCUMENTS: documents["bytes"]["total"], KEYS: keys["bytes"]["total"]}
    total = sum(sizes.values())
    count = state.documents.totals.fingerprints
    return {
        "documents": count,
        "ids": state.documents.totals.ids,
        "id_kind": state.documents.totals.id_kind,
        "hasher": manifest.hasher,
        "threshold": manifest.threshold,
        "recall": manifest.recall,
        "bands": manifest.bands,
        "rows": manifest.rows,
        "probes": manifest.probes,
        "radius": manifest.radius,
        "key_bits": state.layout.key_bits,
        "number_bits": state.layout.number_bits,
        "keys": state.keys.totals.fingerprints,
        "bytes": {**sizes, "total": total},
        "bytes_per_document": total / max(count, 1),
        "stores": {DOCUMENTS: documents, KEYS: keys},
    }


def back_up_index(
    parts: IndexParts, target: Path, overwrite: bool, progress: Progress | None
) -> None:
    """Copy an index as of one moment: see :meth:`fpstore.lsh.LshStore.backup`."""
    if is_inside_folder(target, parts.path):
        raise InputError(
            f"{target}: would lie inside the index {parts.path}: choose a path outside it",
            path=target,
        )
    with Target(target, overwrite, is_index, DOCUMENTS) as folder:
        while True:
            # All copied documents have their keys in the copy, unless a merge drops keys meanwhile.
            before = store_snapshot(parts.keys).generation.record.number
            parts.documents.backup(folder / DOCUMENTS, overwrite=True, progress=progress)
            parts.keys.backup(folder / KEYS, overwrite=True, progress=progress)
            manifest = parts.read_manifest()
            if store_snapshot(parts.keys).generation.record.number == before:
                break
        put_manifest(folder, manifest)
