"""Sharded stores by tasks.

A shard is made of successive rows, or of the fingerprints with the same leading bits.

Stages, by rows: *build* makes each shard of the inputs. By leading bits: *hash* makes fingerprints
of a part of the inputs, slice by slice; *build* makes a shard of one slice of all parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import is_uri
from fpstore.base.resources import Resources
from fpstore.base.width import leading_words
from fpstore.building.builder import Options, build_into
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.format.shards import shard_name
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.html import MainText
from fpstore.io.source import Batch, IdColumn, Projection
from fpstore.sharded import ShardedStore
from fpstore.store import Store
from fpstore.tasks.asked import fingerprinter_in, projection_asked, projection_in
from fpstore.tasks.inputs import (
    found_inputs,
    parts_of,
    rows_of,
    with_known_ids,
)
from fpstore.tasks.outputs import output_folder
from fpstore.tasks.pieces import PieceWriter
from fpstore.tasks.places import Place
from fpstore.tasks.plan import PlanFolder, Stage, result_name
from fpstore.tasks.rows import PartRows, raw_pieces, rows_of_part
from fpstore.tasks.shuffle import slices_by
from fpstore.tasks.work import Work


def plan_of_build(
    place: Place,
    source: Any,
    output: str | os.PathLike[str],
    projection: Projection,
    maker: Fingerprinter[Any] | None,
    options: Mapping[str, Any],
    id_type: str,
    encoding: str | None,
    by: str,
    shard_rows: int,
    part_bytes: int | None,
    form: str | None = None,
) -> PlanFolder:
    """Write the plan of a build, and claim its output."""
    if is_uri(output):
        raise InputError(
            f"{output}: a store lies on a disk: name a folder that all machines share, or copy it "
            "afterwards"
        )
    target = output_folder(output)
    specs = found_inputs(source, encoding, raw=maker is None, outside=[output], form=form)
    projection = with_known_ids(projection, specs, encoding)
    if specs[0].is_raw and projection.id is not None:
        raise InputError(f"{specs[0].name}: has no ids: leave id= (--id-field) out")
    rows = rows_of(specs, projection, encoding)
    shards = max(-(-rows // shard_rows), 1)
    most = max(sum(spec.bytes for spec in specs) // shards, 1)  # a shard has one part or more
    parts = parts_of(specs, most if by == "rows" and part_bytes is None else part_bytes)
    bits = (shards - 1).bit_length() if by == "prefix" else 0
    of_shards = None
    if by == "rows":
        of_shards = [
            some.tolist() for some in np.array_split(np.arange(len(parts)), min(shards, len(parts)))
        ]
    asked = {
        "inputs": specs,
        "parts": parts,
        "shards": of_shards,
        "bits": bits,
        "encoding": encoding,
        "id_type": id_type,
        "projection": projection_asked(projection),
        "fingerprinter": None if maker is None else maker.describe(),
        "options": dict(options),
        "output": target._asdict(),
    }
    hashing = [] if of_shards is not None else [Stage("hash", len(parts))]
    stages = [*hashing, Stage("build", 1 << bits if of_shards is None else len(of_shards))]
    return target.planned(place, "build", asked, stages)


class BuildWork(Work):
    """What the tasks of a build do."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        asked = plan.asked
        # the parts of each; None: by leading bits
        self._shards: list[list[int]] | None = asked["shards"]
        self._bits: int = asked["bits"]
        self._encoding: str | None = asked["encoding"]
        self._projection = projection_in(asked["projection"])
        self._maker = fingerprinter_in(asked["fingerprinter"])
        self._options: dict[str, Any] = asked["options"]
        self._id_type: str = asked["id_type"]

    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        rows, fingerprints, ids, count, whole_pages = self._read(number, resources)
        writer.facts |= {"rows": count, "whole_pages": whole_pages}
        slices = slices_by(np.ascontiguousarray(leading_words(fingerprints)), self._bits)
        writer.add_slices("fingerprints", fingerprints, slices)
        if ids is None:
            writer.add_slices("rows", rows.astype(np.uint64), slices)
        writer.add_id_slices("ids", ids, slices)

    def _read(self, number: int, resources: Resources) -> PartRows:
        """Return the rows of a part that have fingerprints."""
        part = self._parts[number]
        how = self._projection, self._maker, self._id_type, self._encoding
        return rows_of_part(self._inputs, part, *how, resources)

    def _build(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        rows = _Rows(
            self._of_rows(number, resources) if self._shards is not None else self._of_slice(number)
        )
        rows.row_numbers = (
            self._shards is not None and self._projection.id is None and not self._inputs[0].is_raw
        )
        options = Options(
            **self._options,
            fingerprinter=None if self._maker is None else self._maker.describe(),
            memory=resources.memory,
            threads=resources.threads,
            progress=resources.progress,
            identity=self._identity(number),
        )
        with self._output.place.writing(shard_name(number)) as folder:
            folder.mkdir()
            build_into(folder, rows, None, options.checked())
        writer.facts |= {"rows": rows.next_row, "whole_pages": rows.whole_pages}

    def _of_rows(
        self, number: int, resources: Resources
    ) -> Iterator[tuple[Words, IdColumn, int, int]]:
        """Yield fingerprints, ids, and how many rows and whole pages the parts of a shard have.

        Without ids, rows are the ids.
        """
        assert self._shards is not None
        done = 0
        for part in self._shards[number]:
            if self._inputs[0].is_raw:  # the builder numbers rows
                for piece in raw_pieces(self._inputs, self._parts[part], self._projection):
                    yield piece, None, len(piece), 0
                continue
            rows, fingerprints, ids, count, whole_pages = self._read(part, resources)
            yield (
                fingerprints,
                (rows + done).astype(np.uint64) if ids is None else ids,
                count,
                whole_pages,
            )
            done += count

    def _of_slice(self, number: int) -> Iterator[tuple[Words, IdColumn, int, int]]:
        """Yield the fingerprints and ids of a slice of each part.

        Ids are rows of all inputs unless there are others.
        """
        first = 0
        for found in self._plan.results("hash"):
            ids = found.read_ids("ids", number)
            if ids is None:
                ids = found.read("rows", number) + np.uint64(first)
            yield found.read("fingerprints", number), ids, found.facts["rows"], 0
            first += found.facts["rows"]

    def _check(self, folder: Path, count: int) -> None:
        """Raise an error for a shard that is gone, or not as its task has made it."""
        for number in range(count):
            shard, again = (
                folder / shard_name(number),
                f"{result_name('build', number)} in the plan, and run again",
            )
            if not os.path.lexists(shard):
                raise StoreNotFoundError(
                    f"{shard}: was written, and is gone: remove {again}", path=shard
                )
            with Store(shard) as store:
                got = store.snapshot().state
            expected = {"identity": self._identity(number).hex(), "generation": 1, "log records": 0}
            if got != expected:
                message = (
                    f"{shard}: is not what the plan makes, or has changed: remove it and {again}"
                )
                raise CorruptStoreError(message, path=shard, expected=expected, got=got)

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Combine the shards, and return what they hold."""
        count, folder = len(self._plan.results("build")), Path(self._output.uri)
        self._check(folder, count)
        with ShardedStore.combine(
            folder, count=count, plan=self._plan.digest, progress=resources.progress
        ) as store:
            stats = store.stats()
            summary = {
                "shards": count,
                "fingerprints": len(store),
                "ids": stats["ids"],
                "bytes": stats["bytes"]["total"],
            }
        if isinstance(self._maker, MainText):
            hashed = (
                self._plan.results("hash") if self._shards is None else self._plan.results("build")
            )
            summary["whole_pages"] = sum(one.facts["whole_pages"] for one in hashed)
        self._output.finish([], self._plan.digest, summary)
        return summary


class _Rows:
    """Rows as a build takes them."""

    row_numbers = False
    rows = None

    def __init__(self, parts: Iterator[tuple[Words, IdColumn, int, int]]) -> None:
        self._parts, self.next_row, self.whole_pages = parts, 0, 0

    def __iter__(self) -> Iterator[Batch]:
        for fingerprints, ids, count, whole_pages in self._parts:
            self.next_row, self.whole_pages = self.next_row + count, self.whole_pages + whole_pages
            yield Batch(np.ascontiguousarray(fingerprints), ids)
