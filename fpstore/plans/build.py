"""Sharded stores by tasks: shards of successive rows, or of the same leading bits.

Stages, by rows: *build* makes each shard of the inputs. By leading bits: *hash* makes fingerprints
of a part of the inputs, slice by slice; *build* makes a shard of one slice of all parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, check_whole, is_iterable, is_uri
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS, check_width, leading_words
from fpstore.building.builder import BuildOptions, build_into
from fpstore.errors import CorruptStoreError, InputError, StoreNotFoundError
from fpstore.format.shards import shard_name
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.html import MainText
from fpstore.io.source import Batch, IdColumn, IdType, Projection
from fpstore.jobs.row_spec import RESOLVED, HashedRowsSpec
from fpstore.plans.inputs import (
    InputSpec,
    Part,
    are_raw,
    count_rows,
    cut_parts,
    find_inputs,
    id_projection,
    resolve_ids,
)
from fpstore.plans.outputs import output_folder
from fpstore.plans.rows import PartRows, raw_pieces, read_part
from fpstore.plans.shuffle import slice_places
from fpstore.plans.work import Sizes, Work, stage
from fpstore.sharded import ShardedStore
from fpstore.store import Store
from fpstore.work.folder import Stage, result_name
from fpstore.work.pieces import PieceWriter

SHARD_ROWS = 50_000_000


@dataclass(frozen=True)
class BuildSpec(HashedRowsSpec):
    """A build of a sharded store, which :func:`fpstore.open` opens as one.

    Parameters
    ----------
    source : path, URI, or iterable of them
        Files of Parquet, JSON lines, CSV or TSV with a header, or folders of them; or files of raw
        numbers (.npy, .u64, .u32).
    output : path-like
        The folder of the sharded store, on a disk that all machines share.
    text, fingerprint, method, fingerprinter : optional
        As for :func:`fpstore.dedup`: the columns of texts and what makes their fingerprints, by
        default by simhash, or the column of fingerprints, by default "fingerprint". Neither is for
        raw numbers.
    id : str, optional
        The column of ids; by default, of fingerprints, "id" if there is such a column, and else row
        numbers, from 0 over all inputs.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes that of the column, and strings in delimited text.
    width, radius, design, storage, prefer, index_ids : optional
        As for :func:`fpstore.build`; the design by its name.
    by : {"rows", "prefix"}
        A shard has successive rows; or all fingerprints with the same leading bits, which takes a
        shuffle: the store is smaller, equal fingerprints come together, and a look-up of an id of a
        fingerprint asks one shard.
    shard_rows : int
        About how many rows a shard has. Look-ups take about as many times longer as there are
        shards.
    decimal, signed, encoding, html, format : optional
        As for :func:`fpstore.dedup`; a format is not for raw numbers.

    Examples
    --------
    >>> import fpstore, numpy as np, pathlib, tempfile
    >>> from fpstore.plans import BuildSpec, Plan
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "crawl.npy", np.arange(1000, dtype=np.uint64) << np.uint64(40))
    >>> spec = BuildSpec(folder / "crawl.npy", folder / "crawl", by="prefix", shard_rows=500)
    >>> plan = Plan.of(spec)
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()["shards"]
    2
    >>> with fpstore.open(folder / "crawl") as store:
    ...     store.probe(5 << 40, radius=0)
    [Match(fingerprint=5497558138880, distance=0, ids=[5])]
    """

    source: Any = field(metadata=RESOLVED)
    output: Any = field(metadata=RESOLVED)
    _: KW_ONLY
    id_type: IdType = "auto"
    radius: int | None = None
    by: str = "rows"
    shard_rows: int = SHARD_ROWS
    design: str = "auto"
    storage: str = "hot"
    prefer: str = "balance"
    index_ids: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.by, ("rows", "prefix"), "by")
        check_choice(self.id_type, get_args(IdType), "id_type")
        check_whole(self.shard_rows, 1, 1 << 40, "shard_rows")

    def inputs_and_columns(
        self,
    ) -> tuple[list[InputSpec], Projection, Fingerprinter[Any] | None]:
        """Return the files, their columns, and the fingerprinter of texts, if there are any."""
        files = list(self.source) if is_iterable(self.source, str, Mapping) else [self.source]
        projection, fingerprinter = id_projection(self, check_width(self.width or WORD_BITS)), None
        if self.format is not None or not are_raw(files, self):
            rows = self
            if (self.text, self.method, self.fingerprinter) == (None, None, None):
                rows = replace(self, fingerprint=self.fingerprint or "fingerprint")
            projection, fingerprinter = rows.hashed_columns(projection, "simhash")
        self.options(projection, fingerprinter).check()
        specs = find_inputs(
            files,
            self.encoding,
            raw=fingerprinter is None,
            outside=[self.output],
            format_name=self.format,
        )
        projection = resolve_ids(projection, specs, self.encoding)
        if specs[0].is_raw and projection.id is not None:
            raise InputError(f"{specs[0].name}: has no ids: leave {keyword('id')} out")
        return specs, projection, fingerprinter

    def options(
        self, projection: Projection, fingerprinter: Fingerprinter[Any] | None
    ) -> BuildOptions:
        """Return the options of the build of a shard, without resources and its identity."""
        return BuildOptions.for_fingerprinter(
            fingerprinter,
            self.radius,
            projection.width.bits,
            design=self.design,
            storage=self.storage,
            prefer=self.prefer,
            index_ids=self.index_ids,
        )


@dataclass(kw_only=True, eq=False)
class BuildWork(Work):
    """The work of a build.

    ``shards`` are the numbers of the parts of each shard; None: shards are by ``bits`` leading
    bits.
    """

    kind = "build"
    sizes = ("part_bytes",)
    spec: BuildSpec
    inputs: list[InputSpec]
    parts: list[Part]
    shards: list[list[int]] | None
    bits: int
    projection: Projection
    fingerprinter: Fingerprinter[Any] | None

    @classmethod
    def from_spec(cls, spec: BuildSpec, sizes: Sizes) -> Self:
        if is_uri(spec.output):
            raise InputError(
                f"{spec.output}: a store lies on a disk: name a folder that all machines share, or "
                "copy it afterwards"
            )
        inputs, projection, fingerprinter = spec.inputs_and_columns()
        count = max(-(-count_rows(inputs, projection, spec.encoding) // spec.shard_rows), 1)
        part_bytes, shards = sizes.part_bytes, None
        if spec.by == "rows" and part_bytes is None:  # a shard has one part or more
            part_bytes = max(sum(file.bytes for file in inputs) // count, 1)
        parts = cut_parts(inputs, part_bytes)
        if spec.by == "rows":
            split = np.array_split(np.arange(len(parts)), min(count, len(parts)))
            shards = [numbers.tolist() for numbers in split]
        return cls(
            spec=spec,
            inputs=inputs,
            parts=parts,
            shards=shards,
            bits=(count - 1).bit_length() if shards is None else 0,
            projection=projection,
            fingerprinter=fingerprinter,
            output=output_folder(spec.output),
        )

    def stages(self) -> list[Stage]:
        if self.shards is not None:
            return [Stage("build", len(self.shards))]
        return [Stage("hash", len(self.parts)), Stage("build", 1 << self.bits)]

    @stage("hash")
    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        rows = self._read(number, resources)
        writer.facts |= {"rows": rows.total, "whole_pages": rows.whole_pages}
        slices = slice_places(np.ascontiguousarray(leading_words(rows.fingerprints)), self.bits)
        writer.add_slices("fingerprints", rows.fingerprints, slices)
        if rows.ids is None:
            writer.add_slices("rows", rows.places.astype(np.uint64), slices)
        writer.add_id_slices("ids", rows.ids, slices)

    def _read(self, number: int, resources: Resources) -> PartRows:
        """Return the rows of a part that have fingerprints."""
        return read_part(
            self.inputs,
            self.parts[number],
            self.projection,
            self.fingerprinter,
            self.spec.id_type,
            self.spec.encoding,
            resources,
        )

    @stage("build")
    def _build(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        rows = _ShardSource(
            self._read_rows(number, resources)
            if self.shards is not None
            else self._read_slice(number)
        )
        rows.row_numbers = (
            self.shards is not None and self.projection.id is None and not self.inputs[0].is_raw
        )
        options = replace(
            self.spec.options(self.projection, self.fingerprinter),
            memory=resources.memory,
            threads=resources.threads,
            progress=resources.progress,
            identity=self.identity(number),
        )
        with self.output.place.create_file(shard_name(number)) as folder:
            folder.mkdir()
            build_into(folder, rows, None, options.check())
        writer.facts |= {"rows": rows.next_row, "whole_pages": rows.whole_pages}

    def _read_rows(self, number: int, resources: Resources) -> Iterator[_ShardRows]:
        """Yield batches of the parts of a shard; without ids, row numbers are the ids."""
        assert self.shards is not None
        done = 0
        for part in self.shards[number]:
            if self.inputs[0].is_raw:  # the builder numbers rows
                for piece in raw_pieces(self.inputs, self.parts[part], self.projection):
                    yield _ShardRows(piece, None, len(piece))
                continue
            rows = self._read(part, resources)
            ids = (rows.places + done).astype(np.uint64) if rows.ids is None else rows.ids
            yield _ShardRows(rows.fingerprints, ids, rows.total, rows.whole_pages)
            done += rows.total

    def _read_slice(self, number: int) -> Iterator[_ShardRows]:
        """Yield the fingerprints and ids of a slice of each part.

        Without a column of ids, the ids are row numbers of all inputs.
        """
        first = 0
        for hashed in self.plan.results("hash"):
            ids = hashed.read_ids("ids", number)
            if ids is None:
                ids = hashed.read("rows", number) + np.uint64(first)
            total = hashed.facts["rows"]
            yield _ShardRows(hashed.read("fingerprints", number), ids, total)
            first += total

    def _check(self, folder: Path, count: int) -> None:
        """Raise an error for a shard that is gone, or has changed."""
        for number in range(count):
            shard, remedy = (
                folder / shard_name(number),
                f"{result_name('build', number)} in the plan, and run again",
            )
            if not os.path.lexists(shard):
                raise StoreNotFoundError(
                    f"{shard}: was written, and is gone: remove {remedy}", path=shard
                )
            with Store(shard) as store:
                got = store.snapshot().state
            expected = {"identity": self.identity(number).hex(), "generation": 1, "log records": 0}
            if got != expected:
                message = (
                    f"{shard}: is not what the plan makes, or has changed: remove it and {remedy}"
                )
                raise CorruptStoreError(message, path=shard, expected=expected, got=got)

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Combine the shards; return a summary."""
        count, folder = len(self.plan.results("build")), Path(self.output.uri)
        self._check(folder, count)
        with ShardedStore.combine(
            folder, count=count, plan=self.plan.digest, progress=resources.progress
        ) as store:
            stats = store.stats()
            summary = {
                "shards": count,
                "fingerprints": len(store),
                "ids": stats["ids"],
                "bytes": stats["bytes"]["total"],
            }
        if isinstance(self.fingerprinter, MainText):
            hashed = (
                self.plan.results("hash") if self.shards is None else self.plan.results("build")
            )
            summary["whole_pages"] = sum(pieces.facts["whole_pages"] for pieces in hashed)
        self.output.finish([], self.plan.digest, summary)
        return summary


@dataclass(frozen=True)
class _ShardRows:
    """Rows of a shard that have fingerprints; the other fields are as of :class:`PartRows`."""

    fingerprints: Words
    ids: IdColumn
    total: int
    whole_pages: int = 0


class _ShardSource:
    """The rows of a shard, as a build takes them."""

    row_numbers = False
    rows = None

    def __init__(self, batches: Iterator[_ShardRows]) -> None:
        self._batches, self.next_row, self.whole_pages = batches, 0, 0

    def __iter__(self) -> Iterator[Batch]:
        for rows in self._batches:
            self.next_row += rows.total
            self.whole_pages += rows.whole_pages
            yield Batch(np.ascontiguousarray(rows.fingerprints), rows.ids)
