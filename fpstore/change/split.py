"""Splitting a store by leading bits: the inverse of joining."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fpstore.aliases import Progress
from fpstore.arguments import check_whole
from fpstore.building.generation_writer import GenerationWriter, finish_store
from fpstore.building.sources import Part
from fpstore.building.target import Target, refuse_inside_store
from fpstore.disk.refusals import refused
from fpstore.format.manifest import IDENTITY_BYTES, generation_folder
from fpstore.format.strings import STRINGS_FILE, merge_strings
from fpstore.query.snapshot import Snapshot

MOST_BITS = 8


def split_store(
    snapshot: Snapshot, folder: Path, bits: int, overwrite: bool, memory: int, threads: int, progress: Progress | None
) -> list[Path]:
    """Write one store per value of the leading bits; return their paths."""
    bits = check_whole(bits, 1, MOST_BITS, "bits")
    refuse_inside_store(folder / "0.fps")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise refused(folder, error, "; nothing was changed") from error
    paths = []
    for prefix in range(1 << bits):
        path = folder / f"{prefix:0{bits}b}.fps"
        with Target(path, overwrite) as temporary:
            _write_part(snapshot, temporary, bits, prefix, memory, threads, progress)
        paths.append(path)
    return paths


def _write_part(
    snapshot: Snapshot, folder: Path, bits: int, prefix: int, memory: int, threads: int, progress: Progress | None
) -> None:
    generation, manifest = folder / generation_folder(1), snapshot.generation.manifest
    generation.mkdir()
    delta, totals = snapshot.delta, snapshot.totals
    writer = GenerationWriter(generation, manifest.design, manifest.block_bytes, memory, threads, progress)
    if totals.id_kind == "string":
        writer.used = np.zeros(delta.next_string, bool)
    writer.write(Part(snapshot, bits, prefix))
    strings_file = None
    if writer.used is not None:
        strings_file = merge_strings(
            generation / STRINGS_FILE,
            snapshot.generation.strings,
            delta.strings,
            delta.first_string,
            None,
            writer.used,
            writer.tick,
        )
    totals = totals._replace(fingerprints=writer.fingerprints, ids=writer.ids)
    record = writer.record(1, totals, delta.next_string, strings_file)
    finish_store(folder, manifest._replace(identity=os.urandom(IDENTITY_BYTES), generation=record))
