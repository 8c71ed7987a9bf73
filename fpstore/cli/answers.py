"""Matches as the questions write them: rows of columns, or JSON objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.width import Width
from fpstore.hashing.documents import NO_WORDS
from fpstore.io import Chunk, open_writer
from fpstore.io.check import check_fingerprints
from fpstore.io.sink import Sink
from fpstore.io.source import OmittedRow, format_by_name
from fpstore.io.tables import values_at
from fpstore.query.matches import Match, Matches

COLUMNS = ("query", "fingerprint", "distance", "id")
# Columns that describe a query: its place, and its id, of a text its path.
ROW, QUERY_ID, DOCUMENT = "row", "query_id", "document"

# of the queries, their matches and, if a row does not match itself, the ids of the queries
Write = Callable[..., int]


@dataclass(frozen=True)
class QueryBatch:
    """Queries with their ids, if they have any, and with their rows, if the input has other rows.

    If each row has an answer, ``end`` is the row after the batch and after the rows that are left
    out behind it. ``left_out`` has the rows without a fingerprint by their numbers. ``first_id`` is
    the id of row 0, if ids are the numbers of rows.
    """

    fingerprints: npt.NDArray[Any]
    ids: Words | list[str] | None = None
    rows: Words | None = None
    end: int | None = None
    left_out: Mapping[int, OmittedRow] = field(default_factory=dict)
    first_id: int | None = None

    @classmethod
    def from_chunk(cls, chunk: Chunk | QueryBatch) -> QueryBatch:
        return chunk if isinstance(chunk, cls) else cls(chunk.fingerprints, chunk.ids)

    def slice(self, start: int, end: int | None, step: int = 1) -> QueryBatch:
        places = slice(start, end, step)
        return QueryBatch(
            self.fingerprints[places],
            None if self.ids is None else self.ids[places],
            None if self.rows is None else self.rows[places],
        )

    def rows_from(self, before: int) -> Words:
        """Return the rows of the queries, which by default count on from ``before``."""
        return (
            np.arange(before, before + len(self.fingerprints), dtype=np.uint64)
            if self.rows is None
            else self.rows
        )


def is_json(output: str, as_json: bool) -> bool:
    """Return whether to write JSON lines; refuse ``--json`` with another extension."""
    format_name = format_by_name(output)
    if as_json and format_name not in ("", "jsonl"):
        raise click.UsageError(
            f"--json does not go with an output named *.{format_name}", click.get_current_context()
        )
    return as_json or format_name == "jsonl"


@contextmanager
def rows_writer(
    output: str,
    width: int,
    query_columns: Sequence[str] = (),
) -> Iterator[Write]:
    """Write a row per match and id: the four columns, then the columns of the query."""
    before = 0
    with open_writer(output, columns=[*COLUMNS, *query_columns], width=width) as writer:

        def write(
            queries: QueryBatch, matches: Matches, own_ids: Words | list[str] | None = None
        ) -> int:
            nonlocal before
            written = 0
            fingerprints, queries_of_matches = (
                matches.fingerprints,
                np.repeat(np.arange(len(matches)), np.diff(matches.lims)),
            )
            for of_match, ids in matches.rows_of_ids():
                of_query = queries_of_matches[of_match]
                if own_ids is not None:  # a query's own fingerprint with its id is no match
                    differs = np.asarray(ids, object) != np.asarray(own_ids, object)[of_query]
                    near = np.flatnonzero(differs | (matches.distances[of_match] > 0))
                    ids, of_match, of_query = (
                        values_at(ids, near),
                        of_match[near],
                        of_query[near],
                    )
                data: dict[str, Any] = {
                    "query": queries.fingerprints[of_query],
                    "fingerprint": fingerprints[of_match],
                    "distance": matches.distances[of_match],
                    "id": ids,
                }
                query_ids: Any = queries.ids
                for name in query_columns:
                    data[name] = (
                        queries.rows_from(before)[of_query]
                        if name == "row"
                        else values_at(query_ids, of_query)
                    )
                writer.write(data)
                written += len(of_match)
            before += len(matches)
            writer.flush()
            return written

        yield write


def _remove_own_id(matches: Sequence[Match], own_id: int | str) -> list[Match]:
    remaining = [
        match._replace(ids=[i for i in match.ids if i != own_id]) if match.distance == 0 else match
        for match in matches
    ]
    return [match for match in remaining if match.ids]


@contextmanager
def json_lines_writer(
    output: str,
    bits: int,
    query_columns: Sequence[str] = (),
    limited: bool = False,
) -> Iterator[Write]:
    """Write an object per query, even without a match; the columns of the query come first."""
    width, before = Width(bits), 0
    encode = json.JSONEncoder(ensure_ascii=False).encode

    with Sink(output, packed=True) as sink:

        def put(record: dict[str, Any]) -> None:
            # A lone surrogate, as in the id of a wrong row, has the same form in JSON: \ud800.
            sink.write((encode(record) + "\n").encode("utf-8", "backslashreplace"))

        def leave_out(rows: range, queries: QueryBatch) -> None:
            for number in rows:
                row = queries.left_out.get(number, OmittedRow(number, None))
                name = row.id if queries.first_id is None else queries.first_id + number
                record: dict[str, Any] = {
                    "row": number,
                    "query_id": name,
                    "query": None,
                    "matches": [],
                    "inserted": False,
                }
                put(
                    {**record, "reason": "error", "error": row.error}
                    if row.error
                    else {**record, "reason": NO_WORDS}
                )

        def write(
            queries: QueryBatch, matches: Matches, own_ids: Words | list[str] | None = None
        ) -> int:
            nonlocal before
            rows = 0
            ids = queries.ids.tolist() if isinstance(queries.ids, np.ndarray) else queries.ids
            columns = (
                query_columns
                if ids is not None
                else [name for name in query_columns if name == "row"]
            )
            digits = width.texts(check_fingerprints(queries.fingerprints, width))
            places, next_row = queries.rows_from(before).tolist(), before
            for number, (query, query_matches) in enumerate(zip(digits, matches, strict=True)):
                if queries.end is not None:
                    leave_out(range(next_row, places[number]), queries)
                    next_row = places[number] + 1
                record: dict[str, Any] = {
                    name: places[number] if name == "row" or ids is None else ids[number]
                    for name in columns
                }
                record["query"] = query
                shown = (
                    query_matches
                    if own_ids is None
                    else _remove_own_id(query_matches, own_ids[number])
                )
                record["matches"] = [_object(match, width) for match in shown]
                if limited:
                    record["more"] = bool(matches.more[number])
                if matches.inserted is not None:
                    record["inserted"] = bool(matches.inserted[number])
                    if not matches.inserted[number]:
                        is_stored = own_ids is not None and any(
                            own_ids[number] in match.ids
                            for match in query_matches
                            if match.distance == 0
                        )
                        record["reason"] = "stored" if is_stored else "near"
                rows += sum(len(match.ids) for match in shown)
                put(record)
            before = before + len(digits) if queries.end is None else queries.end
            leave_out(range(next_row, before if queries.end is not None else 0), queries)
            sink.flush()
            return rows

        yield write


def _object(match: Match, width: Width) -> dict[str, Any]:
    digits = width.text(match.fingerprint)
    return {"fingerprint": digits, "distance": match.distance, "ids": match.ids}
