"""Batch probes by tasks, as the batch queries of Manku, Jain and Das Sarma, section 3.

Stages: *queries* reads a part of the queries, and makes their fingerprints; *probe* asks one shard
for one part; *match* unites what the shards have found for a part, reads ids, and writes a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arguments import check_choice, check_whole, is_iterable
from fpstore.base.arrays import distinct_places, is_run_start, list_lims, list_numbers, lists_at
from fpstore.base.resources import Resources
from fpstore.base.width import Width, row_words
from fpstore.design.families import check_radius
from fpstore.errors import InputError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.html import MainText
from fpstore.hashing.registry import fingerprinter_from_description
from fpstore.io import open_writer
from fpstore.io.source import IdType, Projection
from fpstore.io.tables import values_at
from fpstore.io.writers import ColumnKind
from fpstore.jobs.pairs import pairs_with
from fpstore.jobs.row_spec import RESOLVED, RowsSpec
from fpstore.plans.inputs import (
    InputSpec,
    Part,
    StoreState,
    are_raw,
    count_rows,
    cut_parts,
    find_inputs,
    id_projection,
    resolve_ids,
    shard_paths,
    store_context,
)
from fpstore.plans.outputs import FORMATS, output_folder
from fpstore.plans.rows import read_part
from fpstore.plans.work import Sizes, Work, stage
from fpstore.query.matches import Matches
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store
from fpstore.work.folder import Stage
from fpstore.work.ids import id_column_kind, plain_ids
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays

COLUMNS: dict[str, ColumnKind] = {
    "query": "fingerprint",
    "fingerprint": "fingerprint",
    "distance": "distance",
}
MAX_MATCHES = 1 << 22  # in memory, before all but the nearest are dropped


@dataclass(frozen=True)
class ProbeMatches:
    """Matches of queries, by their places: the stored fingerprint and the distance of each."""

    queries: npt.NDArray[np.int64]
    fingerprints: Words
    distances: npt.NDArray[np.uint16]

    @classmethod
    def concatenate(cls, parts: Sequence[ProbeMatches]) -> ProbeMatches:
        return cls(
            np.concatenate([part.queries for part in parts]),
            np.concatenate([part.fingerprints for part in parts]),
            np.concatenate([part.distances for part in parts]),
        )

    @classmethod
    def read(cls, parts: Sequence[Pieces]) -> ProbeMatches:
        """Read the matches that tasks have written."""
        return cls(
            *(concatenate_arrays(parts, name) for name in ("queries", "fingerprints", "distances"))
        )

    def write(self, writer: PieceWriter) -> None:
        writer.add("queries", self.queries)
        writer.add("fingerprints", self.fingerprints)
        writer.add("distances", self.distances)

    def nearest(self, most: int | None) -> ProbeMatches:
        """Return each match once, sorted by query and distance; at most ``most`` of a query."""
        words = self.fingerprints.reshape(-1, row_words(self.fingerprints))
        order = np.lexsort((*words.T[::-1], self.distances, self.queries))
        queries, fingerprints = self.queries[order], self.fingerprints[order]
        is_near = is_run_start(queries) | is_run_start(fingerprints)
        if most is not None:
            places = np.flatnonzero(is_near)
            starts = np.flatnonzero(is_run_start(queries[places]))
            ranks = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
            is_near[places[ranks >= most]] = False
        return ProbeMatches(queries[is_near], fingerprints[is_near], self.distances[order][is_near])


@dataclass(frozen=True)
class ProbeSpec(RowsSpec):
    """A batch of probes: all queries against all shards of a store.

    By look-ups or by joins, whatever takes less time.

    Parameters
    ----------
    store : Store or path-like
        A store, most often a sharded one, on a disk that all machines share. Tasks open it by its
        path.
    source : path, URI, or iterable of them
        The queries, as the source of :class:`BuildSpec`.
    output : path-like
        A new folder, or its URI, for a file of matches for each part of the queries: ``row`` (of
        the query, from 0 over all inputs), ``query_id`` with `id`, ``query``, ``fingerprint``,
        ``distance`` and ``id``, as ``fpstore probe`` writes them.
    text : str or sequence of str, optional
        The columns of texts, which are hashed as the store hashed its own.
    fingerprint, id, id_type, decimal, signed, encoding, html, format : optional
        As for :class:`BuildSpec`.
    radius : int, optional
        By default the store's.
    limit : int, optional
        At most so many fingerprints for each query, the nearest; then a column ``more`` is 1 where
        others were left out.
    output_format : {"parquet", "tsv", "csv", "jsonl"}
        The format of the files of matches.

    Examples
    --------
    >>> import fpstore, numpy as np, pathlib, tempfile
    >>> from fpstore.plans import Plan, ProbeSpec
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fpstore.build(folder / "crawl.fps", [8, 11, 1 << 40], ["a", "b", "c"]).close()
    >>> np.save(folder / "queries.npy", np.array([9, 1], np.uint64))
    >>> queries, matches = folder / "queries.npy", folder / "matches"
    >>> spec = ProbeSpec(folder / "crawl.fps", queries, matches, radius=1, output_format="csv")
    >>> plan = Plan.of(spec)
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()
    {'queries': 2, 'matched': 1, 'matches': 2}
    >>> (matches / "matches-00000.csv").read_text().split()
    ['0,0000000000000009,0000000000000008,1,a', '0,0000000000000009,000000000000000b,1,b']
    """

    store: Any = field(metadata=RESOLVED)
    source: Any = field(metadata=RESOLVED)
    output: Any = field(metadata=RESOLVED)
    _: KW_ONLY
    id_type: IdType = "auto"
    radius: int | None = None
    limit: int | None = None
    output_format: str = "parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.id_type, get_args(IdType), "id_type")
        check_choice(self.output_format, FORMATS, "output_format")
        if self.limit is not None:
            check_whole(self.limit, 1, 1 << 40, "limit")

    def inputs_and_columns(
        self, store: Store
    ) -> tuple[list[InputSpec], Projection, Fingerprinter[Any] | None]:
        """Return the queries, their columns, and the fingerprinter of texts, if there are any."""
        files = list(self.source) if is_iterable(self.source, str, Mapping) else [self.source]
        projection, fingerprinter = id_projection(self, Width(store.width)), None
        if self.text is not None:
            if store.fingerprinter is None:
                raise InputError(
                    f"{store.path}: does not know how its fingerprints were made, so it takes no "
                    "texts"
                )
            projection, fingerprinter = self.columns(
                projection, fingerprinter_from_description(store.fingerprinter)
            )
        elif self.format is not None or not are_raw(files, self):
            rows = replace(self, fingerprint=self.fingerprint or "fingerprint")
            projection, fingerprinter = rows.columns(projection, None)
        specs = find_inputs(
            files,
            self.encoding,
            raw=fingerprinter is None,
            outside=[self.output],
            format_name=self.format,
        )
        return specs, resolve_ids(projection, specs, self.encoding), fingerprinter


@dataclass(kw_only=True, eq=False)
class ProbeWork(Work):
    """The work of a batch of probes."""

    kind = "probe"
    sizes = ("part_bytes",)
    spec: ProbeSpec
    store: StoreState
    shards: int
    radius: int
    inputs: list[InputSpec]
    parts: list[Part]
    projection: Projection
    fingerprinter: Fingerprinter[Any] | None

    @classmethod
    def from_spec(cls, spec: ProbeSpec, sizes: Sizes) -> Self:
        with store_context(spec.store) as store:
            radius = store.radius if spec.radius is None else check_radius(spec.radius, store.width)
            inputs, projection, fingerprinter = spec.inputs_and_columns(store)
            # an error of a column comes before the work
            count_rows(inputs, projection, spec.encoding)
            return cls(
                spec=spec,
                store=StoreState.from_store(store),
                shards=len(shard_paths(store)),
                radius=radius,
                inputs=inputs,
                parts=cut_parts(inputs, sizes.part_bytes),
                projection=projection,
                fingerprinter=fingerprinter,
                output=output_folder(spec.output),
            )

    def stages(self) -> list[Stage]:
        parts = len(self.parts)
        return [
            Stage("queries", parts),
            Stage("probe", parts * self.shards),
            Stage("match", parts),
        ]

    @stage("queries")
    def _queries(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        rows = read_part(
            self.inputs,
            self.parts[number],
            self.projection,
            self.fingerprinter,
            self.spec.id_type,
            self.spec.encoding,
            resources,
        )
        writer.facts |= {"rows": rows.total, "whole_pages": rows.whole_pages}
        writer.add("rows", rows.places.astype(np.uint64))
        writer.add("fingerprints", rows.fingerprints)
        writer.add_ids("ids", rows.ids)

    @stage("probe")
    def _probe(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        part, shard = divmod(number, self.shards)
        distinct, _ = distinct_places(self.plan.result("queries", part).read("fingerprints"))
        with self.store.open() as whole, Store(shard_paths(whole)[shard]) as store:
            matches = self._find_matches(store.snapshot(), distinct, resources)
        matches.write(writer)

    def _find_matches(
        self, snapshot: Snapshot, distinct: Words, resources: Resources
    ) -> ProbeMatches:
        """Return the matches of distinct fingerprints, by their places.

        They are looked up, or joined if that is faster.
        """
        width, limit = self.projection.width, self.spec.limit
        most = None if limit is None else limit + 1
        index = _kernel.RowIndex(distinct)
        batches = [ProbeMatches(np.empty(0, np.int64), distinct[:0], np.empty(0, np.uint16))]
        count = 0
        for pairs in pairs_with(snapshot, distinct, self.radius, width, resources):
            queries = index.places(pairs.a).astype(np.int64)
            batches.append(ProbeMatches(queries, pairs.b, pairs.distances.astype(np.uint16)))
            count += len(queries)
            if count > MAX_MATCHES and most is not None:
                batches = [ProbeMatches.concatenate(batches).nearest(most)]
                count = len(batches[0].queries)
        return ProbeMatches.concatenate(batches).nearest(most)

    @stage("match")
    def _match(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        queries, shards = self.plan.result("queries", number), self.shards
        parts = [self.plan.result("probe", number * shards + shard) for shard in range(shards)]
        matches = ProbeMatches.read(parts).nearest(None)
        fingerprints = queries.read("fingerprints")
        distinct, owners = distinct_places(fingerprints)
        sizes = np.bincount(matches.queries, minlength=len(distinct))
        more = np.zeros(len(distinct), bool)
        if self.spec.limit is not None:
            more, matches = sizes > self.spec.limit, matches.nearest(self.spec.limit)
            sizes = np.minimum(sizes, self.spec.limit)
        numbers = np.arange(len(matches.queries), dtype=np.uint64)
        places = lists_at(numbers, list_lims(sizes)[:-1][owners], sizes[owners]).view(np.intp)
        first = sum(self.plan.result("queries", part).facts["rows"] for part in range(number))
        with self.store.open() as store:
            answers = Matches(
                list_lims(sizes[owners]),
                matches.fingerprints[places],
                matches.distances[places],
                store.snapshot(),
                self.projection.width,
                fingerprints,
                more=more[owners],
            )
            name = f"matches-{number:05d}.{self.spec.output_format}"
            with self.output.create_file(name, self.plan.digest) as path:
                query_rows = queries.read("rows") + np.uint64(first)
                query_ids = plain_ids(queries.read_ids("ids"))
                kind = id_column_kind(store.snapshot())
                row_count = self._write(path, answers, query_rows, query_ids, kind)
        writer.facts |= {
            "queries": len(owners),
            "matched": int(np.count_nonzero(sizes[owners])),
            "matches": row_count,
        }
        writer.facts["files"] = [self.output.describe_file(name)]

    def _write(self, path: Path, matches: Matches, rows: Words, ids: Any, kind: ColumnKind) -> int:
        """Write a row for each match and each of its ids; return the number of rows."""
        columns: dict[str, ColumnKind] = {"row": "value"}
        if ids is not None:
            columns["query_id"] = "text" if isinstance(ids, list) else "value"
        columns |= {**COLUMNS, "id": kind} | ({} if self.spec.limit is None else {"more": "value"})
        query_places, row_count = list_numbers(matches.lims), 0
        distances = matches.distances.astype(
            np.uint8 if self.projection.width.bits < 256 else np.uint16
        )
        with open_writer(path, columns=columns, width=self.projection.width.bits) as writer:
            for match_places, ids_of_matches in matches.rows_of_ids():
                query = query_places[match_places]
                data: dict[str, Any] = {
                    "row": rows[query],
                    "query": matches.queries[query],
                    "fingerprint": matches.fingerprints[match_places],
                    "distance": distances[match_places],
                    "id": ids_of_matches,
                    "more": matches.more[query].astype(np.uint64),
                }
                if ids is not None:
                    data["query_id"] = values_at(ids, query)
                writer.write({name: data[name] for name in columns})
                row_count += len(match_places)
        return row_count

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the manifest of the output; return a summary."""
        parts = self.plan.results("match")
        summary = {
            name: sum(pieces.facts[name] for pieces in parts)
            for name in ("queries", "matched", "matches")
        }
        if isinstance(self.fingerprinter, MainText):
            summary["whole_pages"] = sum(
                pieces.facts["whole_pages"] for pieces in self.plan.results("queries")
            )
        self.output.finish(parts, self.plan.digest, summary)
        return summary
