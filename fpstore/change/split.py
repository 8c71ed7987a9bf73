"""Splitting a store by leading bits: the inverse of joining."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.arguments import check_whole
from fpstore.building.generation_writer import Written
from fpstore.building.sources import Part
from fpstore.building.target import Target, refuse_inside_store
from fpstore.disk.refusals import refused
from fpstore.disk.sealed import Writer
from fpstore.format import layout
from fpstore.format.strings import merge_names
from fpstore.query.snapshot import View

Progress = Callable[[str, int, int | None], None]
MOST_BITS = 8


def split_store(
    view: View, folder: Path, bits: int, overwrite: bool, memory: int, threads: int, progress: Progress | None
) -> list[Path]:
    """Write one store for each value of the leading bits; return their paths."""
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
            _write_part(view, temporary, bits, prefix, memory, threads, progress)
        paths.append(path)
    return paths


def _write_part(view: View, folder: Path, bits: int, prefix: int, memory: int, threads: int, progress: Progress | None) -> None:
    generation = folder / layout.generation_name(1)
    generation.mkdir()
    design, store, totals = view.generation.design, view.generation.store, view.totals
    written = Written(generation, design, store["block_bytes"], memory, threads, progress)
    names = [] if view.delta is None else view.delta.names
    first = view.generation.next_name() if view.delta is None else view.delta.first_name
    if totals.id_kind == "string":
        written.used = np.zeros(first + len(names), bool)
    written.write(Part(view, bits, prefix))
    record: dict[str, Any] = written.record(1, totals.next_row if totals.id_kind == "row" else written.ids)
    if written.used is not None:
        record["names_file"] = merge_names(
            generation / layout.NAMES_FILE, view.generation.names, names, first, None, written.used, written.tick
        )
    write_store_file(folder, store | {"id_kind": totals.id_kind}, record)


def write_store_file(folder: Path, store: dict[str, Any], generation: dict[str, Any]) -> None:
    """Write the store file of a store with one generation."""
    writer = Writer(folder / layout.STORE_FILE)
    try:
        meta = writer.database(layout.META)

        def work(transaction: Any) -> None:
            for key, record in ((layout.STORE_KEY, store), (layout.GENERATION_KEY, generation)):
                transaction.put(key, layout.pack_record(record), db=meta)

        writer.run(work)
        writer.finish()
    except BaseException:
        writer.abort()
        raise
