"""All pairs of a store by tasks: each sorts a range of the buckets of one table of the join, and compares the rows in it.

The one stage, *pairs*, reads the fingerprints of all shards, and keeps those of its range: no rows are sent from task to task. A
pair that meets in several tables is written by the first of them (docs/design.md, "Joins: all pairs, and clusters").
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS, empty_rows
from fpstore.design.joins import JoinDesign, plan_join
from fpstore.io import open_writer
from fpstore.io.writers import ColumnKind
from fpstore.jobs.joining import PairColumns, pairs_within
from fpstore.jobs.pairs import batches_of
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store, snapshot_of
from fpstore.tasks.inputs import opened_store, store_asked
from fpstore.tasks.outputs import output_folder
from fpstore.tasks.pieces import PieceWriter
from fpstore.tasks.places import Place
from fpstore.tasks.plan import PlanFolder, Stage
from fpstore.tasks.shuffle import key_bits_of, table_keys
from fpstore.tasks.work import Work

COLUMNS: dict[str, ColumnKind] = {"a": "fingerprint", "b": "fingerprint", "distance": "distance"}


def plan_of_pairs(
    place: Place, store: Store, output: str | os.PathLike[str], radius: int, form: str, slice_rows: int
) -> PlanFolder:
    """Write the plan of all pairs of a store, and claim its output."""
    snapshot, target = snapshot_of(store), output_folder(output)
    rows = snapshot.totals.fingerprints
    bits = key_bits_of(plan_join(rows, radius, store.width), rows, slice_rows)
    asked = {
        "store": store_asked(store), "rows": rows, "radius": radius, "bits": bits, "form": form,
        "output": target._asdict(),
    }  # fmt: skip
    made = PlanFolder.made(place, "pairs", asked, [Stage("pairs", sum(1 << one for one in bits))])
    target.claim(made)
    return made


class PairsWork(Work):
    """What the tasks of a search for pairs do."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        self._ranges = [(table, place) for table, bits in enumerate(plan.asked["bits"]) for place in range(1 << bits)]

    def _pairs(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Write the pairs that meet in a range of the buckets of a table, and in no table before."""
        (table, place), asked = self._ranges[number], self._asked
        with opened_store(asked["store"]) as store:
            snapshot = snapshot_of(store)
            design = plan_join(asked["rows"], asked["radius"], store.width)
            rows = _some(snapshot, design, table, place, asked["bits"][table])
            found = pairs_within(rows, design, resources, only=table)
            writer.facts["pairs"] = self._write(number, snapshot, found)

    def _write(self, number: int, snapshot: Snapshot, found: Iterator[PairColumns]) -> int:
        """Write a row for each pair of ids; return how many."""
        name, width, written = f"pairs-{number:05d}.{self._asked['form']}", snapshot.width.bits, 0
        kind: ColumnKind = "text" if snapshot.totals.id_kind == "string" else "value"
        columns = {**COLUMNS, "id_a": kind, "id_b": kind}
        with self._output.writing(name, self._plan.digest) as path, open_writer(path, columns=columns, width=width) as writer:
            for data in (data for some in found for batch in batches_of(some, snapshot) for data in batch.rows_of_ids()):
                writer.write(data)
                written += len(data["distance"])
        return written

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the manifest of the output; return what was found."""
        summary = {"pairs": sum(one.facts["pairs"] for one in self._plan.results("pairs"))}
        self._output.complete(self._plan.digest, summary, ["pairs"])
        return summary


def _some(snapshot: Snapshot, design: JoinDesign, table: int, place: int, bits: int) -> Words:
    """Return the fingerprints in a range of the buckets of a table, ascending."""
    held = [empty_rows(0, design.width.words)]
    shift = np.uint64(WORD_BITS - bits) if bits else None
    pieces = snapshot.fingerprints()
    held += pieces if shift is None else (piece[table_keys(design, table, piece) >> shift == place] for piece in pieces)
    return np.concatenate(held)
