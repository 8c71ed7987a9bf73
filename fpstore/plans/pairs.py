"""All pairs of a store, or of two, by tasks, each of which joins slices of a table.

Stages: *send* writes the fingerprints of a shard, or some of them, in slices by the leading bits of
each table; *pairs* reads a slice of all shards, and finds the pairs in it. A pair that meets in
several tables is written by the first of them (docs/design.md, "Joins: all pairs, and clusters").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice
from fpstore.base.arrays import is_run_start
from fpstore.base.resources import Resources
from fpstore.base.threads import cached_property
from fpstore.base.width import Width, empty_rows
from fpstore.design.families import check_radius
from fpstore.io import open_writer
from fpstore.io.writers import ColumnKind
from fpstore.jobs.joining import PairColumns
from fpstore.jobs.pairs import id_batches
from fpstore.jobs.row_spec import RESOLVED, Spec
from fpstore.jobs.store_job import check_same_width
from fpstore.plans.inputs import StoreState, shard_paths, store_context
from fpstore.plans.outputs import FORMATS, output_folder
from fpstore.plans.shuffle import slice_places, table_keys, usual_slice_rows
from fpstore.plans.slicing import Cut, Slicing, plan_slicing
from fpstore.plans.work import Sizes, Work, stage
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store
from fpstore.work.folder import Stage
from fpstore.work.ids import id_column_kind
from fpstore.work.pieces import Pieces, PieceWriter

COLUMNS: dict[str, ColumnKind] = {"a": "fingerprint", "b": "fingerprint", "distance": "distance"}
SENT_ROWS = 50_000_000  # about, by a task
PIECE_BYTES = 1 << 26  # of fingerprints that are sorted at once


@dataclass(frozen=True)
class PairsSpec(Spec):
    """The search for all pairs of a store, or of two.

    It writes the rows of :meth:`fpstore.Store.pairs` or :meth:`fpstore.Store.join` to many files. A
    task of the stage send reads the fingerprints of a shard, and writes them in the order of each
    table of the join. A task of the stage pairs reads a slice of a table of all shards.

    Parameters
    ----------
    store : Store or path-like
        A store, most often a sharded one, on a disk that all machines share. Tasks open it by its
        path.
    output : path-like
        A new folder, or its URI, for files of pairs: ``a``, ``b``, ``distance``, ``id_a`` and
        ``id_b``. A pair is in one file.
    other : Store or path-like, optional
        Another store of the same width: pairs have ``a`` and ``id_a`` of the store, ``b`` and
        ``id_b`` of the other one.
    radius : int, optional
        By default the store's.
    output_format : {"parquet", "tsv", "csv", "jsonl"}
        The format of the files of pairs.

    Examples
    --------
    >>> import fpstore, pathlib, tempfile
    >>> from fpstore.plans import PairsSpec, Plan
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fpstore.build(folder / "crawl.fps", [8, 7 << 40], ["a", "b"]).close()
    >>> fpstore.build(folder / "new.fps", [8, 11], ["c", "d"]).close()
    >>> crawl, new = folder / "crawl.fps", folder / "new.fps"
    >>> spec = PairsSpec(crawl, folder / "pairs", other=new, output_format="csv")
    >>> plan = Plan.of(spec)
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()
    {'pairs': 2}
    >>> sorted((folder / "pairs" / "pairs-00000.csv").read_text().split())
    ['0000000000000008,0000000000000008,0,a,c', '0000000000000008,000000000000000b,2,a,d']
    """

    store: Any = field(metadata=RESOLVED)
    output: Any = field(metadata=RESOLVED)
    _: KW_ONLY
    other: Any = field(default=None, metadata=RESOLVED)
    radius: int | None = None
    output_format: str = "parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.output_format, FORMATS, "output_format")


class Side(NamedTuple):
    """A store of a join: its shards, and the number of tasks that send each of them."""

    store: StoreState
    shards: int
    parts: int
    rows: int

    @classmethod
    def from_store(cls, store: Store) -> Self:
        shards, rows = len(shard_paths(store)), store.snapshot().totals.fingerprints
        return cls(
            StoreState.from_store(store), shards, max(-(-rows // (shards * SENT_ROWS)), 1), rows
        )


def _slicing(sides: Sequence[Side], radius: int, width: int, slice_rows: int) -> Slicing:
    """Plan the slices of the join of a set with itself, or of two sets."""
    rows = [side.rows for side in sides]
    return plan_slicing(max(rows), radius, width, slice_rows, min(rows) if len(rows) > 1 else None)


@dataclass(kw_only=True, eq=False)
class PairsWork(Work):
    """The work of a search for pairs, in one store or two."""

    kind = "pairs"
    sizes = ("slice_rows",)
    spec: PairsSpec
    sides: list[Side]
    radius: int
    width: int
    slice_rows: int
    cut: Cut

    @classmethod
    def from_spec(cls, spec: PairsSpec, sizes: Sizes) -> Self:
        with ExitStack() as stack:
            names = [spec.store] if spec.other is None else [spec.store, spec.other]
            stores = [stack.enter_context(store_context(store)) for store in names]
            width, sides = stores[0].width, [Side.from_store(store) for store in stores]
            check_same_width(width, stores[-1].width)
            usual = stores[0].radius
            radius = usual if spec.radius is None else check_radius(spec.radius, width)
        rows = sum(side.rows for side in sides)
        slice_rows = usual_slice_rows(sizes.slice_rows, rows)
        bits = _slicing(sides, radius, width, slice_rows).bits
        return cls(
            spec=spec,
            sides=sides,
            radius=radius,
            width=width,
            slice_rows=slice_rows,
            cut=Cut.choose(bits, rows, slice_rows),
            output=output_folder(spec.output),
        )

    def stages(self) -> list[Stage]:
        return [Stage("send", len(self._send_tasks)), Stage("pairs", self.cut.tasks)]

    @cached_property
    def _send_tasks(self) -> list[tuple[int, int, int]]:
        """The side, the shard, and the part of the shard, of each task that sends."""
        return [
            (number, shard, part)
            for number, side in enumerate(self.sides)
            for shard in range(side.shards)
            for part in range(side.parts)
        ]

    @cached_property
    def _slicing(self) -> Slicing:
        return _slicing(self.sides, self.radius, self.width, self.slice_rows)

    @stage("send")
    def _send(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        side, shard, part = self._send_tasks[number]
        with (
            self.sides[side].store.open() as whole,
            Store(shard_paths(whole)[shard]) as store,
        ):
            count = 0
            for count, rows in enumerate(
                part_pieces(store.snapshot(), part, self.sides[side].parts), 1
            ):
                self._write_rows(writer, count, rows)
        writer.facts["pieces"] = count

    def _write_rows(self, writer: PieceWriter, number: int, rows: Words) -> None:
        """Write a piece of fingerprints, in slices of each table."""
        if not all(self.cut.bits):
            writer.add(f"fingerprints-{number}", rows)
        for table, bits in enumerate(self.cut.bits):
            if bits:
                slices = slice_places(table_keys(self._slicing.design, table, rows), bits)
                writer.add_slices(f"fingerprints-{table}-{number}", rows, slices)

    @stage("pairs")
    def _pairs(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Write the pairs that meet in these slices, and in no earlier table."""
        with ExitStack() as stack:
            snapshots = [stack.enter_context(side.store.open()).snapshot() for side in self.sides]
            name = f"pairs-{number:05d}.{self.spec.output_format}"
            writer.facts["pairs"] = self._write(
                name, snapshots, self._find_pairs(number, resources)
            )
        writer.facts["files"] = [self.output.describe_file(name)]

    def _find_pairs(self, number: int, resources: Resources) -> Iterator[PairColumns]:
        sent: list[list[Pieces]] = [[] for _ in self.sides]
        for (side, _, _), pieces in zip(self._send_tasks, self.plan.results("send"), strict=True):
            sent[side].append(pieces)
        for table, place in self.cut.slices(number):
            sides = [self._slice(pieces, table, place) for pieces in sent]
            if all(map(len, sides)):
                yield from self._slicing.pairs(sides, table, resources)

    def _slice(self, sent: Sequence[Pieces], table: int, place: int) -> Words:
        """Return the distinct fingerprints in a slice of a table, ascending."""
        ending, slice_number = (f"-{table}", place) if self.cut.bits[table] else ("", None)
        pieces = [
            result.read(f"fingerprints{ending}-{number}", slice_number)
            for result in sent
            for number in range(1, result.facts["pieces"] + 1)
        ]
        rows = np.concatenate([empty_rows(0, Width(self.width).words), *pieces])
        _kernel.sort_keys(rows, np.empty_like(rows))
        distinct: Words = rows[is_run_start(rows)]
        return distinct

    def _write(self, name: str, snapshots: Sequence[Snapshot], pairs: Iterator[PairColumns]) -> int:
        """Write a row for each pair of ids; return the number of rows."""
        width, row_count = self.width, 0
        columns = COLUMNS | {
            f"id_{side}": id_column_kind(snapshot)
            for side, snapshot in zip("ab", [*snapshots, *snapshots][:2], strict=True)
        }
        with (
            self.output.create_file(name, self.plan.digest) as path,
            open_writer(path, columns=columns, width=width) as writer,
        ):
            batches = (batch for near in pairs for batch in id_batches(near, *snapshots))
            for rows in (rows for batch in batches for rows in batch.rows_of_ids()):
                writer.write(rows)
                row_count += len(rows["distance"])
        return row_count

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the manifest of the output; return a summary."""
        parts = self.plan.results("pairs")
        summary = {"pairs": sum(pieces.facts["pairs"] for pieces in parts)}
        self.output.finish(parts, self.plan.digest, summary)
        return summary


def part_pieces(snapshot: Snapshot, part: int, parts: int) -> Iterator[Words]:
    """Yield a part of the fingerprints, in pieces of about PIECE_BYTES; it decodes all of them."""
    batches: list[Words] = []
    number = size = 0
    for rows in snapshot.fingerprints():
        if number % parts == part:
            batches.append(rows)
        size += rows.nbytes
        if size >= PIECE_BYTES:
            yield from [np.concatenate(batches)] if batches else []
            batches, number, size = [], number + 1, 0
    yield from [np.concatenate(batches)] if batches else []
