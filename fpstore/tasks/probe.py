"""Batch probes by tasks.

Many queries against many shards, as the batch queries of Manku, Jain and Das Sarma, section 3.

Stages: *queries* reads a part of the queries, and makes their fingerprints; *probe* asks one shard
for one part; *match* unites what the shards have found for a part, reads ids, and writes a file.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import differs, distinct_places, lims_of, lists_of, slices
from fpstore.base.resources import Resources
from fpstore.base.width import words_of
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.html import MainText
from fpstore.io import open_writer
from fpstore.io.source import Projection
from fpstore.io.tables import values_at
from fpstore.io.writers import ColumnKind
from fpstore.jobs.pairs import pairs_with
from fpstore.query.matches import Matches
from fpstore.store import Store
from fpstore.tasks.asked import fingerprinter_in, projection_asked, projection_in
from fpstore.tasks.ids import kind_of_ids, values_of
from fpstore.tasks.inputs import (
    found_inputs,
    opened_store,
    parts_of,
    rows_of,
    shards_of,
    store_asked,
    with_known_ids,
)
from fpstore.tasks.outputs import output_folder
from fpstore.tasks.pieces import PieceWriter, joined
from fpstore.tasks.places import Place
from fpstore.tasks.plan import PlanFolder, Stage
from fpstore.tasks.rows import rows_of_part
from fpstore.tasks.work import Work

COLUMNS: dict[str, ColumnKind] = {
    "query": "fingerprint",
    "fingerprint": "fingerprint",
    "distance": "distance",
}
MOST_HELD = 1 << 22  # matches, before all but the nearest are dropped


class Found(NamedTuple):
    """Matches of queries, by their places: the stored fingerprint and the distance of each."""

    queries: npt.NDArray[np.int64]
    fingerprints: Words
    distances: npt.NDArray[np.uint16]

    def nearest(self, most: int | None) -> Found:
        """Return them by query, distance and fingerprint, each once, at most so many for each query."""
        words = self.fingerprints.reshape(-1, words_of(self.fingerprints))
        order = np.lexsort((*words.T[::-1], self.distances, self.queries))
        queries, fingerprints = self.queries[order], self.fingerprints[order]
        kept = differs(queries) | differs(fingerprints)
        if most is not None:
            places = np.flatnonzero(kept)
            starts = np.flatnonzero(differs(queries[places]))
            ranks = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
            kept[places[ranks >= most]] = False
        return Found(queries[kept], fingerprints[kept], self.distances[order][kept])


def plan_of_probe(
    place: Place,
    store: Store,
    queries: Any,
    output: str | os.PathLike[str],
    projection: Projection,
    maker: Fingerprinter[Any] | None,
    radius: int,
    limit: int | None,
    id_type: str,
    encoding: str | None,
    form: str,
    part_bytes: int | None,
) -> PlanFolder:
    """Write the plan of a batch of probes, and claim its output."""
    specs = found_inputs(queries, encoding, raw=maker is None, outside=[output])
    projection = with_known_ids(projection, specs, encoding)
    rows_of(specs, projection, encoding)  # an error of a column comes before the work
    parts, shards = parts_of(specs, part_bytes), shards_of(store)
    target = output_folder(output)
    asked = {
        "store": store_asked(store),
        "shards": len(shards),
        "inputs": specs,
        "parts": parts,
        "projection": projection_asked(projection),
        "fingerprinter": None if maker is None else maker.describe(),
        "radius": radius,
        "limit": limit,
        "id_type": id_type,
        "encoding": encoding,
        "form": form,
        "output": target._asdict(),
    }
    stages = [
        Stage("queries", len(parts)),
        Stage("probe", len(parts) * len(shards)),
        Stage("match", len(parts)),
    ]
    return target.planned(place, "probe", asked, stages)


class ProbeWork(Work):
    """What the tasks of a batch of probes do."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        asked = plan.asked
        self._projection = projection_in(asked["projection"])
        self._maker = fingerprinter_in(asked["fingerprinter"])
        self._limit: int | None = asked["limit"]

    def _store(self) -> AbstractContextManager[Store]:
        return opened_store(self._asked["store"])

    def _queries(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        part, asked = self._parts[number], self._asked
        how = self._projection, self._maker, asked["id_type"], asked["encoding"]
        found = rows_of_part(self._inputs, part, *how, resources)
        writer.facts |= {"rows": found.total, "whole_pages": found.whole_pages}
        writer.add("rows", found.places.astype(np.uint64))
        writer.add("fingerprints", found.fingerprints)
        writer.add_ids("ids", found.ids)

    def _probe(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        part, shard = divmod(number, self._asked["shards"])
        distinct, _ = distinct_places(self._plan.result("queries", part).read("fingerprints"))
        with self._store() as whole, Store(shards_of(whole)[shard]) as store:
            found = self._found(store.snapshot(), distinct, resources)
        writer.add("queries", found.queries)
        writer.add("fingerprints", found.fingerprints)
        writer.add("distances", found.distances)

    def _found(self, snapshot: Any, distinct: Words, resources: Resources) -> Found:
        """Return the matches of distinct fingerprints, by their places.

        Looked up, or joined where that takes less time.
        """
        width, most = self._projection.width, None if self._limit is None else self._limit + 1
        index = _kernel.RowIndex(distinct)
        none = Found(np.empty(0, np.int64), distinct[:0], np.empty(0, np.uint16))
        held, count = [none], 0
        for pairs in pairs_with(snapshot, distinct, self._asked["radius"], width, resources):
            held.append(
                Found(
                    index.places(pairs.a).astype(np.int64),
                    pairs.b,
                    pairs.distances.astype(np.uint16),
                )
            )
            count += len(pairs.a)
            if count > MOST_HELD and most is not None:
                held = [united(held).nearest(most)]
                count = len(held[0].queries)
        return united(held).nearest(most)

    def _match(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        asked, shards = self._plan.result("queries", number), self._asked["shards"]
        parts = [self._plan.result("probe", number * shards + shard) for shard in range(shards)]
        found = Found(*(joined(parts, name) for name in Found._fields)).nearest(None)
        fingerprints = asked.read("fingerprints")
        distinct, which = distinct_places(fingerprints)
        sizes = np.bincount(found.queries, minlength=len(distinct))
        more = np.zeros(len(distinct), bool)
        if self._limit is not None:
            more, found = sizes > self._limit, found.nearest(self._limit)
            sizes = np.minimum(sizes, self._limit)
        every = np.arange(len(found.queries), dtype=np.uint64)
        places = slices(every, lims_of(sizes)[:-1][which], sizes[which]).view(np.intp)
        first = sum(self._plan.result("queries", part).facts["rows"] for part in range(number))
        with self._store() as store:
            matches = Matches(
                lims_of(sizes[which]),
                found.fingerprints[places],
                found.distances[places],
                store.snapshot(),
                self._projection.width,
                fingerprints,
                more=more[which],
            )
            name = f"matches-{number:05d}.{self._asked['form']}"
            with self._output.writing(name, self._plan.digest) as path:
                of_queries = asked.read("rows") + np.uint64(first), values_of(asked.read_ids("ids"))
                rows = self._write(path, matches, *of_queries, kind_of_ids(store.snapshot()))
        writer.facts |= {
            "queries": len(which),
            "matched": int(np.count_nonzero(sizes[which])),
            "matches": rows,
        }
        writer.facts["files"] = [self._output.written(name)]

    def _write(self, path: Path, matches: Matches, rows: Words, ids: Any, kind: ColumnKind) -> int:
        """Write a row for each match and id of the stored fingerprint; return how many."""
        columns: dict[str, ColumnKind] = {"row": "value"}
        if ids is not None:
            columns["query_id"] = "text" if isinstance(ids, list) else "value"
        columns |= {**COLUMNS, "id": kind} | ({} if self._limit is None else {"more": "value"})
        query_of, written = lists_of(matches.lims), 0
        distances = matches.distances.astype(
            np.uint8 if self._projection.width.bits < 256 else np.uint16
        )
        with open_writer(path, columns=columns, width=self._projection.width.bits) as writer:
            for of_match, found in matches.rows_of_ids():
                query = query_of[of_match]
                data: dict[str, Any] = {
                    "row": rows[query],
                    "query": matches.queries[query],
                    "fingerprint": matches.fingerprints[of_match],
                    "distance": distances[of_match],
                    "id": found,
                    "more": matches.more[query].astype(np.uint64),
                }
                if ids is not None:
                    data["query_id"] = values_at(ids, query)
                writer.write({name: data[name] for name in columns})
                written += len(of_match)
        return written

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the manifest of the output; return what was found."""
        parts = self._plan.results("match")
        summary = {
            name: sum(one.facts[name] for one in parts)
            for name in ("queries", "matched", "matches")
        }
        if isinstance(self._maker, MainText):
            summary["whole_pages"] = sum(
                one.facts["whole_pages"] for one in self._plan.results("queries")
            )
        self._output.finish(parts, self._plan.digest, summary)
        return summary


def united(parts: list[Found]) -> Found:
    """Return the matches of several parts in one."""
    return Found(*map(np.concatenate, zip(*parts, strict=True)))
