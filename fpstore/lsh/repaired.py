"""The repair of an index: a sound index from the intact parts of a damaged one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.building.target import Target
from fpstore.care.damaged_store import DamagedStore
from fpstore.care.repair import repair_store
from fpstore.care.reports import RepairReport
from fpstore.design.families import Design
from fpstore.errors import CorruptStoreError, plural
from fpstore.format.manifest import is_index, looks_like_store, not_a_store_error, read_manifest
from fpstore.lsh.answers import IndexSnapshot, stored_documents
from fpstore.lsh.building import read_identities
from fpstore.lsh.care import count_keys
from fpstore.lsh.keys import DOCUMENT_DESIGN, EntryLayout
from fpstore.lsh.manifest import (
    DOCUMENTS,
    KEYS,
    IndexManifest,
    check_part,
    missing_part_error,
    put_manifest,
    read_index_manifest,
)
from fpstore.lsh.parts import IndexParts, check_documents, entry_layout
from fpstore.query.id_lookup import ids_at
from fpstore.store import Store, store_snapshot


class _UndamagedError(Exception):
    """Nothing is to be written."""


def repair_index(path: Path, output: Path | None, resources: Resources) -> RepairReport:
    """Write the intact parts of a damaged index as a sound one: see :func:`fpstore.repair`."""
    target = path.with_name(f"{path.name}.repaired") if output is None else output
    manifest, whole = read_index_manifest(path), RepairReport()
    designs = {name: _read_design(path, manifest, name) for name in (DOCUMENTS, KEYS)}
    try:
        with Target(target, False, is_index, DOCUMENTS) as folder:
            for name, design in designs.items():
                lost = target.with_name(f"{target.name}.{name}.lost.tsv")
                part = _repair_part(path / name, folder / name, lost, resources, design)
                _add_report(whole, part)
            _drop_documents(
                path, folder, manifest, target.with_name(f"{target.name}.lost.tsv"), whole
            )
            if not whole.faults:
                _check_opens(path, whole)
            documents, keys = read_identities(folder)
            generation = read_manifest(folder / KEYS).generation.number
            put_manifest(
                folder,
                manifest._replace(documents=documents, keys=keys, keys_generation=generation),
            )
    except _UndamagedError:
        whole.sound = True
    whole.output = None if whole.sound else str(target)
    return whole


def _read_design(path: Path, manifest: IndexManifest, name: str) -> Design:
    """Return the design of a store of the index.

    CorruptStoreError for a store of another index: repair would make a wrong index of it.
    """
    if not (path / name).exists():
        raise missing_part_error(path / name)
    if not looks_like_store(path / name):
        raise not_a_store_error(path / name)
    store = DamagedStore(path / name, RepairReport())
    check_part(path, manifest, name, store.identity.hex())
    if store.manifest is not None:
        return store.manifest.design
    if name == DOCUMENTS:
        return DOCUMENT_DESIGN
    number_bits = WORD_BITS - store.tables[0].spec.prefix_bits
    return EntryLayout(manifest.key_bits, number_bits).design


def _check_opens(path: Path, whole: RepairReport) -> None:
    """End the repair if the index opens; else note why it does not, with sound stores."""
    try:
        IndexParts(path, "r", "commit").close()
    except CorruptStoreError as error:
        whole.note(error)
    else:
        raise _UndamagedError


def _repair_part(
    path: Path, target: Path, lost: Path, resources: Resources, design: Design
) -> RepairReport:
    """Repair one of the stores, or copy it if it is sound."""
    report = repair_store(path, target, False, lost, resources, design=design)
    if not target.exists():
        with Store(path) as sound:
            sound.backup(target)
    return report


def _add_report(whole: RepairReport, part: RepairReport) -> None:
    whole.faults += part.faults
    whole.actions += part.actions
    whole.losses += part.losses
    whole.lost_file = part.lost_file or whole.lost_file


def _drop_documents(
    path: Path, folder: Path, manifest: IndexManifest, lost: Path, whole: RepairReport
) -> None:
    """Drop the documents that have lost most of their keys, and list their ids."""
    with Store(folder / KEYS) as keys, Store(folder / DOCUMENTS, "r+") as documents:
        check_documents(path, store_snapshot(documents))
        state = IndexSnapshot(
            store_snapshot(documents),
            store_snapshot(keys),
            entry_layout(path, manifest, store_snapshot(keys)),
        )
        numbers, counts = count_keys(state, None)
        dropped = numbers[2 * counts < manifest.bands]
        if len(dropped):
            message = f"{path}: {plural(len(dropped), 'document')} without most of their keys"
            whole.faults.append({"message": message, "path": str(path), "block": None})
            whole.losses.append(
                f"{plural(len(dropped), 'document')}, whose keys are lost: insert the items again"
            )
            _, rows = stored_documents(state.documents, dropped)
            lost.write_text(
                "".join(_lost_lines(state, rows)), encoding="utf-8", errors="surrogateescape"
            )
            whole.lost_file = str(lost)
            documents.delete(fingerprints=rows)
            documents.merge()
        whole.fingerprints = whole.ids = len(documents)


def _lost_lines(state: IndexSnapshot, rows: Words) -> list[str]:
    ids = ids_at(state.documents, state.documents.stored_id_numbers(rows)[1])
    return [
        f"document\t\t{name}\n" for name in (ids.tolist() if isinstance(ids, np.ndarray) else ids)
    ]
