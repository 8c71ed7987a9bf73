"""A split: one store becomes several, by the leading bits of its fingerprints. Absorbing them is the inverse."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from fpstore.base.arguments import check_whole
from fpstore.base.resources import Resources
from fpstore.building.generation_writer import GenerationWriter, Work, finish_store
from fpstore.building.target import Target, refuse_inside_store
from fpstore.change.content import SnapshotContent, write_sorted
from fpstore.change.merged_strings import MergedStrings
from fpstore.disk.folders import sync_folder
from fpstore.disk.refusals import NOTHING_CHANGED, refusing
from fpstore.format.manifest import IDENTITY_BYTES, generation_folder
from fpstore.query.snapshot import Snapshot

MOST_BITS = 8  # by which a store is split


def split_store(snapshot: Snapshot, folder: Path, bits: int, overwrite: bool, resources: Resources) -> list[Path]:
    """Write one store per value of the leading bits; return their paths."""
    bits = check_whole(bits, 1, MOST_BITS, "bits")
    refuse_inside_store(folder / "0.fps")
    new = not folder.exists()
    paths = [folder / f"{prefix:0{bits}b}.fps" for prefix in range(1 << bits)]
    try:
        with refusing(folder, NOTHING_CHANGED):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.absolute().parent)
        for prefix, path in enumerate(paths):
            with Target(path, overwrite) as temporary:
                _write_part(snapshot, SnapshotContent(snapshot, part=(bits, prefix)), temporary, resources)
    except BaseException:
        if new:
            with suppress(OSError):  # a part is complete
                folder.rmdir()
        raise
    return paths


def _write_part(snapshot: Snapshot, part: SnapshotContent, folder: Path, resources: Resources) -> None:
    generation, manifest = folder / generation_folder(1), snapshot.generation.manifest
    generation.mkdir()
    delta, totals = snapshot.delta, snapshot.totals
    writer = GenerationWriter(generation, manifest.blocks, Work(resources.progress))
    used = np.zeros(delta.next_string, bool) if totals.id_kind == "string" else None
    write_sorted(writer, part, manifest.design, resources, used)
    if used is not None:
        strings = MergedStrings(snapshot.generation.dictionary, delta.first_string, delta.strings, None, used)
        writer.write_dictionary(strings, resources.threads, used)
    if used is not None or manifest.index_ids:
        writer.write_places(resources.memory)
    record = writer.record(1, totals)
    finish_store(folder, manifest._replace(identity=os.urandom(IDENTITY_BYTES), generation=record))
