"""Making a sound index of a damaged one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fpstore.base.resources import Resources
from fpstore.building.target import Target
from fpstore.care.repair import repair_store
from fpstore.care.reports import RepairReport
from fpstore.errors import counted
from fpstore.lsh.building import identities_in
from fpstore.lsh.care import keys_of_documents
from fpstore.lsh.manifest import DOCUMENTS, KEYS, is_index, put_manifest, read_index_manifest
from fpstore.lsh.parts import IndexParts
from fpstore.store import Store


def repair_index(path: Path, target: Path, resources: Resources) -> RepairReport:
    """Make a sound index of the intact parts of a damaged one: see :func:`fpstore.lsh.repair`."""
    manifest, whole = read_index_manifest(path), RepairReport()
    try:
        with Target(target, False, is_index, DOCUMENTS) as folder:
            for name in (DOCUMENTS, KEYS):
                lost = target.with_name(f"{target.name}.{name}.lost.tsv")
                _add_report(whole, repair_store(path / name, folder / name, False, lost, resources))
                if not (folder / name).exists():
                    with Store(path / name) as sound:
                        sound.backup(folder / name)
            documents, keys = identities_in(folder)
            put_manifest(folder, manifest._replace(documents=documents, keys=keys))
            parts = IndexParts(folder, "r", "commit")
            whole.fingerprints = whole.ids = len(parts.documents)
            counts, _ = keys_of_documents(parts.state(), None)
            parts.close()
            if lacking := int(np.count_nonzero(counts == 0)):
                whole.losses.append(f"all keys of {counted(lacking, 'document')}: insert the items again")
            if not whole.faults:
                raise _SoundError
    except _SoundError:
        whole.sound = True
    whole.output = None if whole.sound else str(target)
    return whole


class _SoundError(Exception):
    """Nothing is to be written."""


def _add_report(whole: RepairReport, part: RepairReport) -> None:
    whole.faults += part.faults
    whole.actions += part.actions
    whole.losses += part.losses
    whole.lost_file = part.lost_file or whole.lost_file
