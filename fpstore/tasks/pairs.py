"""All pairs of a store, or of two, by tasks.

Each compares the rows in a range of the buckets of one table of the join.

Stages: *send* writes the fingerprints of a shard, or some of them, in slices by the leading bits of
each table; *pairs* reads a slice of all shards, and finds the pairs in it. A pair that meets in
several tables is written by the first of them (docs/design.md, "Joins: all pairs, and clusters").
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import differs
from fpstore.base.resources import Resources
from fpstore.base.width import Width, empty_rows
from fpstore.errors import InputError
from fpstore.io import open_writer
from fpstore.io.writers import ColumnKind
from fpstore.jobs.joining import PairColumns
from fpstore.jobs.pairs import batches_of
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store
from fpstore.tasks.ids import kind_of_ids
from fpstore.tasks.inputs import opened_store, shards_of, store_asked
from fpstore.tasks.outputs import output_folder
from fpstore.tasks.pieces import Pieces, PieceWriter
from fpstore.tasks.places import Place
from fpstore.tasks.plan import PlanFolder, Stage
from fpstore.tasks.shuffle import slices_by, table_keys, usual_slice_rows
from fpstore.tasks.slicing import Cut, Slicing, slicing_of
from fpstore.tasks.work import Work

COLUMNS: dict[str, ColumnKind] = {"a": "fingerprint", "b": "fingerprint", "distance": "distance"}
SENT_ROWS = 50_000_000  # by a task, about
PIECE_BYTES = 1 << 26  # of fingerprints that are brought in order at once


def plan_of_pairs(
    place: Place,
    stores: Sequence[Store],
    output: str | os.PathLike[str],
    radius: int,
    form: str,
    slice_rows: int | None,
) -> PlanFolder:
    """Write the plan of all pairs of a store, or of two of the same width, and claim its output."""
    if len({store.width for store in stores}) > 1:
        raise InputError(
            f"this store holds {stores[0].width} bits, and the other one {stores[1].width}"
        )
    sides, rows = (
        [_side(store) for store in stores],
        [store.snapshot().totals.fingerprints for store in stores],
    )
    slice_rows = usual_slice_rows(slice_rows, sum(rows))
    bits = _slicing(rows, radius, stores[0].width, slice_rows).bits
    cut, target = Cut.of(bits, sum(rows), slice_rows), output_folder(output)
    asked = {
        "sides": sides,
        "rows": rows,
        "radius": radius,
        "width": stores[0].width,
        "slice_rows": slice_rows,
        "cut": cut,
        "form": form,
        "output": target._asdict(),
    }
    stages = [
        Stage("send", sum(side["shards"] * side["parts"] for side in sides)),
        Stage("pairs", cut.tasks),
    ]
    return target.planned(place, "pairs" if len(sides) == 1 else "join", asked, stages)


def _side(store: Store) -> dict[str, Any]:
    """Return a store as JSON, with the number of its shards, and of the tasks that send a shard."""
    shards, rows = len(shards_of(store)), store.snapshot().totals.fingerprints
    return {
        "store": store_asked(store),
        "shards": shards,
        "parts": max(-(-rows // (shards * SENT_ROWS)), 1),
    }


def _slicing(rows: Sequence[int], radius: int, width: int, slice_rows: int) -> Slicing:
    """Return the slices of the join of a set with itself, or of two sets."""
    return slicing_of(max(rows), radius, width, slice_rows, min(rows) if len(rows) > 1 else None)


class PairsWork(Work):
    """What the tasks of a search for pairs do, of one store or two."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        asked = plan.asked
        self._sides: list[dict[str, Any]] = asked["sides"]
        self._senders = [
            (number, shard, part)
            for number, side in enumerate(self._sides)
            for shard in range(side["shards"])
            for part in range(side["parts"])
        ]
        self._cut = Cut(*asked["cut"])
        self._words = Width(asked["width"]).words

    @cached_property
    def _slicing(self) -> Slicing:
        asked = self._asked
        return _slicing(asked["rows"], asked["radius"], asked["width"], asked["slice_rows"])

    def _send(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        side, shard, part = self._senders[number]
        with (
            opened_store(self._sides[side]["store"]) as whole,
            Store(shards_of(whole)[shard]) as store,
        ):
            count = 0
            for count, rows in enumerate(
                _some(store.snapshot(), part, self._sides[side]["parts"]), 1
            ):
                self._write_rows(writer, count, rows)
        writer.facts["pieces"] = count

    def _write_rows(self, writer: PieceWriter, number: int, rows: Words) -> None:
        """Write a piece of fingerprints, in slices of each table."""
        if not all(self._cut.bits):
            writer.add(f"fingerprints-{number}", rows)
        for table, bits in enumerate(self._cut.bits):
            if bits:
                slices = slices_by(table_keys(self._slicing.design, table, rows), bits)
                writer.add_slices(f"fingerprints-{table}-{number}", rows, slices)

    def _pairs(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Write the pairs that meet in some slices, and in no table before."""
        with ExitStack() as stack:
            snapshots = [
                stack.enter_context(opened_store(side["store"])).snapshot() for side in self._sides
            ]
            name = f"pairs-{number:05d}.{self._asked['form']}"
            writer.facts["pairs"] = self._write(name, snapshots, self._found(number, resources))
        writer.facts["files"] = [self._output.written(name)]

    def _found(self, number: int, resources: Resources) -> Iterator[PairColumns]:
        """Yield the pairs of some slices."""
        sent: list[list[Pieces]] = [[] for _ in self._sides]
        for (side, _, _), pieces in zip(self._senders, self._plan.results("send"), strict=True):
            sent[side].append(pieces)
        for table, place in self._cut.slices(number):
            sides = [self._slice(pieces, table, place) for pieces in sent]
            if all(map(len, sides)):
                yield from self._slicing.pairs(sides, table, resources)

    def _slice(self, sent: Sequence[Pieces], table: int, place: int) -> Words:
        """Return the distinct fingerprints in a slice of a table, ascending."""
        ending, some = (f"-{table}", place) if self._cut.bits[table] else ("", None)
        numbers = ((one, number) for one in sent for number in range(1, one.facts["pieces"] + 1))
        held = [one.read(f"fingerprints{ending}-{number}", some) for one, number in numbers]
        rows = np.concatenate([empty_rows(0, self._words), *held])
        _kernel.sort_keys(rows, np.empty_like(rows))
        distinct: Words = rows[differs(rows)]
        return distinct

    def _write(self, name: str, snapshots: Sequence[Snapshot], found: Iterator[PairColumns]) -> int:
        """Write a row for each pair of ids; return how many."""
        width, written = self._asked["width"], 0
        columns = COLUMNS | {
            f"id_{side}": kind_of_ids(one)
            for side, one in zip("ab", [*snapshots, *snapshots][:2], strict=True)
        }
        batches = (batch for some in found for batch in batches_of(some, *snapshots))
        with (
            self._output.writing(name, self._plan.digest) as path,
            open_writer(path, columns=columns, width=width) as writer,
        ):
            for data in (data for batch in batches for data in batch.rows_of_ids()):
                writer.write(data)
                written += len(data["distance"])
        return written

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the manifest of the output; return what was found."""
        parts = self._plan.results("pairs")
        summary = {"pairs": sum(one.facts["pairs"] for one in parts)}
        self._output.finish(parts, self._plan.digest, summary)
        return summary


def _some(snapshot: Snapshot, part: int, parts: int) -> Iterator[Words]:
    """Yield one of some parts of the fingerprints, in pieces of about PIECE_BYTES.

    Every part decodes all of them.
    """
    held: list[Words] = []
    piece = size = 0
    for rows in snapshot.fingerprints():
        if piece % parts == part:
            held.append(rows)
        size += rows.nbytes
        if size >= PIECE_BYTES:
            yield from [np.concatenate(held)] if held else []
            held, piece, size = [], piece + 1, 0
    yield from [np.concatenate(held)] if held else []
