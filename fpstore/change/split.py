"""A split: one store becomes several, by the leading bits of its fingerprints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_whole
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn, string_spans
from fpstore.building.generation_writer import GenerationWriter, TrackedWork, finish_store
from fpstore.building.strings import StringSpool
from fpstore.building.target import Target, refuse_inside_store
from fpstore.change.content import PHASE_MERGE, SnapshotContent, mark_used, write_sorted
from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.folders import sync_folder
from fpstore.disk.refusals import NOTHING_CHANGED, translate_refusals
from fpstore.errors import CorruptStoreError
from fpstore.format.manifest import IDENTITY_BYTES, generation_folder
from fpstore.query.store_snapshot import StoreSnapshot

MAX_BITS = 8  # by which a store is split


def split_store(
    snapshot: StoreSnapshot, folder: Path, bits: int, overwrite: bool, resources: Resources
) -> list[Path]:
    """Write one store per value of the leading bits; return their paths."""
    bits = check_whole(bits, 1, MAX_BITS, "bits")
    refuse_inside_store(folder / "0.fps")
    new = not folder.exists()
    paths = [folder / f"{prefix:0{bits}b}.fps" for prefix in range(1 << bits)]
    try:
        with translate_refusals(folder, NOTHING_CHANGED):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.absolute().parent)
        for prefix, path in enumerate(paths):
            with Target(path, overwrite) as temporary:
                _write_part(snapshot, (bits, prefix), temporary, resources)
    except BaseException:
        if new:
            with suppress(OSError):  # a part is complete
                folder.rmdir()
        raise
    return paths


def _write_part(
    snapshot: StoreSnapshot, part: tuple[int, int], folder: Path, resources: Resources
) -> None:
    generation, manifest = folder / generation_folder(1), snapshot.generation.manifest
    generation.mkdir()
    work = TrackedWork(resources.progress)
    writer = GenerationWriter(generation, manifest.blocks, work)
    if snapshot.totals.id_kind == "string":
        work.expect(PHASE_MERGE, None)
        numbers = _string_numbers(snapshot, part, work)
        strings = StringSpool(generation, resources.memory, len(numbers), resources.threads)
        try:
            for column in _strings(snapshot, numbers):
                strings.add(column)
                work.tick()
            strings.resolve(lambda rows: work.tick())
            content = SnapshotContent(snapshot, partial(_renumber, numbers, strings), part)
            write_sorted(writer, content, manifest.design, resources)
            writer.write_dictionary(strings, resources.threads)
        finally:
            strings.close()
    else:
        write_sorted(writer, SnapshotContent(snapshot, part=part), manifest.design, resources)
    if writer.dictionary or manifest.index_ids:
        writer.write_places(resources.memory)
    record = writer.record(1, snapshot.totals)
    finish_store(folder, manifest._replace(identity=os.urandom(IDENTITY_BYTES), generation=record))


def _string_numbers(snapshot: StoreSnapshot, part: tuple[int, int], work: TrackedWork) -> Words:
    """Return the numbers of the strings that a part has, ascending."""
    used = np.zeros(snapshot.delta.next_string, bool)
    for _ in mark_used(
        SnapshotContent(snapshot, part=part).groups(), used, snapshot.generation.folder
    ):
        work.tick()
    return np.flatnonzero(used).astype(np.uint64)


def _renumber(numbers: Words, strings: StringSpool, ids: Words) -> Words:
    """Return the id numbers in a part; ``numbers`` are those of its strings before."""
    return strings.numbers_at(np.searchsorted(numbers, ids).astype(np.uint64))


def _strings(snapshot: StoreSnapshot, numbers: Words) -> Iterator[StringColumn]:
    """Yield the strings of ascending id numbers, in parts."""
    dictionary, delta = snapshot.generation.dictionary, snapshot.delta
    end = int(np.searchsorted(numbers, np.uint64(delta.first_string)))
    if dictionary is not None:
        yield from dictionary.strings.selected(numbers[:end])
    added = [delta.strings[number - delta.first_string] for number in numbers[end:].tolist()]
    if b"" in added:
        folder, number = snapshot.generation.folder, int(numbers[end + added.index(b"")])
        raise CorruptStoreError(
            f"{folder}: id number {number} has no string: {RUN_REPAIR}", path=folder, got=number
        )
    for span in string_spans(added):
        yield StringColumn.from_strings(added[span])
