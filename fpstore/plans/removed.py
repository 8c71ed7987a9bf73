"""The list of removed rows by tasks: one list for each part, joined at the end.

The number of a cluster is its rank among all clusters, by their first rows. Stages: *ranks* orders
the clusters whose first rows are in some parts; *clusters* numbers the rows and clusters of one
task of *decide*; *list* writes the rows of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import list_lims, stable_order
from fpstore.base.strings import StringColumn
from fpstore.base.width import WIDTHS
from fpstore.disk.refusals import translate_refusals
from fpstore.io import open_writer
from fpstore.io.arrow import import_pyarrow, is_text
from fpstore.io.shards import ShardNames
from fpstore.io.sink import Sink
from fpstore.io.source import format_by_name, format_suffix
from fpstore.io.writers import Writer
from fpstore.jobs.evidence import FINGERPRINT_COLUMNS, TEXT_COLUMNS, written
from fpstore.plans.shuffle import group_places, split_numbers
from fpstore.query.id_lookup import ID_SLICE_ROWS
from fpstore.work.folder import PlanFolder, Stage
from fpstore.work.ids import concatenate_ids, plain_ids, take_ids
from fpstore.work.pieces import Pieces, PieceWriter
from fpstore.work.places import scratch_folder


def list_stages(parts: int, slices: int) -> list[Stage]:
    """Return the stages of a list of ``parts`` parts, with clusters in ``slices`` slices."""
    return [Stage("ranks", min(parts, slices)), Stage("clusters", slices), Stage("list", parts)]


def write_leasts(writer: PieceWriter, leasts: Words, parts: int, slices: int) -> None:
    """Write the first rows of clusters, which ascend, for each task of *ranks*."""
    tasks = list_stages(parts, slices)[0].tasks
    writer.add_slices(
        "leasts", leasts, group_places(split_numbers(leasts)[0] * tasks // parts, tasks)
    )


def write_ranks(writer: PieceWriter, decided: list[Pieces], number: int) -> None:
    """Write the ranks of the clusters of a task, in slices by their tasks of *decide*."""
    parts = [pieces.read("leasts", number) for pieces in decided]
    leasts = np.concatenate(parts)
    ranks = np.empty(len(leasts), np.uint64)
    ranks[stable_order(leasts)] = np.arange(len(leasts), dtype=np.uint64)
    writer.facts["clusters"] = len(leasts)
    writer.add_ordered("ranks", ranks, list_lims(list(map(len, parts))))


def write_row_numbers(writer: PieceWriter, plan: PlanFolder, number: int) -> None:
    """Write the numbers of removed rows, of their kept rows and of their clusters, by parts."""
    hashed, ranked, decided = (
        plan.results("hash"),
        plan.results("ranks"),
        plan.result("decide", number),
    )
    ranks_before = list_lims([pieces.facts["clusters"] for pieces in ranked]).astype(np.uint64)
    ranks = np.concatenate(
        [
            pieces.read("ranks", number) + first
            for pieces, first in zip(ranked, ranks_before, strict=False)
        ]
    )
    firsts = list_lims([pieces.facts["rows"] for pieces in hashed]).astype(np.uint64)
    own_strings = any(pieces.facts["ids"] == "string" for pieces in hashed)
    kept_strings = own_strings or any("near.kept.sizes" in pieces for pieces in hashed)
    writer.facts["strings"] = ["id"] * own_strings + ["kept"] * kept_strings
    writer.add("firsts", firsts)
    lims = decided.lims("removed")
    for name in ("removed", "kept"):
        parts, rows = split_numbers(decided.read(name))
        writer.add_ordered(name, firsts[parts] + rows.astype(np.uint64), lims)
    writer.add_ordered("clusters", ranks[decided.read("clusters").view(np.intp)], lims)


def write_list(
    writer: PieceWriter,
    plan: PlanFolder,
    part: int,
    list_path: str,
    columns: tuple[str, ...],
    shards: ShardNames,
) -> None:
    """Write the list of a part, in blocks of its format.

    With a column ``reference``, the list also has rows that are near a reference. ``shards`` names
    the files of the rows of all parts.
    """
    numbered, decided = plan.results("clusters"), plan.results("decide")
    tables = [_removed_rows(*pair, part, shards) for pair in zip(numbered, decided, strict=True)]
    if "reference" in columns:
        first = numbered[0].read("firsts")[part]
        tables.append(_near_rows(plan.result("hash", part), first, shards))
    strings = {"rule", "shard", "kept_shard", "reference", *numbered[0].facts["strings"]}
    with scratch_folder() as folder:
        path = folder / f"list{format_suffix(list_path)}"  # the blocks are not compressed
        with _open_list(path, columns) as file:
            for batch in _merge_rows(tables, columns, strings):
                file.write(batch)
        writer.add_file(path)


def join_lists(path: Path, lists: Iterable[Pieces], columns: tuple[str, ...]) -> None:
    """Write the lists of all parts as one file, with the bytes of a list of one process."""
    if path.suffix.lower() == ".parquet":
        with _open_list(path, columns) as file:
            for batch in _batches(lists, import_pyarrow(str(path))):
                file.write(batch)
        return
    with translate_refusals(path), Sink(path, packed=True) as joined:
        joined.write(_header(path, columns))
        for pieces in lists:
            for block in pieces.blocks():
                joined.write(block)


def _header(path: Path, columns: tuple[str, ...]) -> bytes:
    """Return the line of column names that begins a list."""
    stream = BytesIO()
    name = format_by_name(path)
    open_writer(stream, format=name, columns=columns, width=WIDTHS[-1], header=True).close()
    return stream.getvalue()


def _open_list(path: Path, columns: tuple[str, ...]) -> Writer:
    return open_writer(path, columns=columns, width=WIDTHS[-1])


def _removed_rows(
    numbered: Pieces, decided: Pieces, part: int, shards: ShardNames
) -> dict[str, Any]:
    """Return the columns of the rows of a part that one task has removed."""
    row, kept_row = numbered.read("removed", part), numbered.read("kept", part)
    ids, kept_ids = (decided.read_ids(name, part) for name in ("ids", "kept.ids"))
    return {
        "row": row,
        "id": row if ids is None else ids,
        "shard": StringColumn.from_strings(shards.at(row)),
        "kept_row": kept_row,
        "kept": kept_row if kept_ids is None else kept_ids,
        "kept_shard": StringColumn.from_strings(shards.at(kept_row)),
        "cluster": numbered.read("clusters", part),
        "reference": StringColumn.from_strings([""] * len(row)),
        **_evidence(decided, "", part),
    }


def _near_rows(hashed: Pieces, first: np.uint64, shards: ShardNames) -> dict[str, Any]:
    """Return the columns of the rows of a part that are near the reference."""
    row, ids = hashed.read("near.rows").astype(np.uint64) + first, hashed.read_ids("near.ids")
    return {
        "row": row,
        "id": row if ids is None else ids,
        "shard": StringColumn.from_strings(shards.at(row)),
        "kept_row": row,
        "kept": hashed.read_ids("near.kept"),
        "kept_shard": StringColumn.from_strings([""] * len(row)),
        "cluster": np.zeros(len(row), np.uint64),
        "reference": hashed.read_ids("near.names"),
        **_evidence(hashed, "near."),
    }


def _evidence(pieces: Pieces, prefix: str, number: int | None = None) -> dict[str, Any]:
    """Return the columns of evidence in a result."""
    names = (*TEXT_COLUMNS, *FINGERPRINT_COLUMNS)
    evidence = {
        name: pieces.read(f"{prefix}{name}", number)
        for name in names
        if f"{prefix}{name}" in pieces
    }
    columns = written(evidence, slice(None))
    if "rule" in columns:
        columns["rule"] = StringColumn.from_strings(columns["rule"])
    return columns


def _merge_rows(
    tables: list[dict[str, Any]], names: tuple[str, ...], strings: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield columns of several tables in the order of rows, at most ID_SLICE_ROWS in a batch.

    ``strings`` names the columns of strings.
    """
    columns = {
        name: concatenate_ids([table[name] for table in tables], name in strings) for name in names
    }
    order = stable_order(np.concatenate([table["row"] for table in tables]))
    for start in range(0, len(order), ID_SLICE_ROWS):
        places = order[start : start + ID_SLICE_ROWS]
        yield {name: plain_ids(take_ids(column, places)) for name, column in columns.items()}


def _batches(lists: Iterable[Pieces], arrow: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of lists in Parquet by ID_SLICE_ROWS, as one process writes them.

    The row groups depend on that.
    """
    waiting: Any = None
    for pieces in lists:
        table = arrow.parquet.read_table(arrow.BufferReader(b"".join(pieces.blocks())))
        if table.num_rows:  # the types of an empty table are unknown
            waiting = table if waiting is None else arrow.concat_tables([waiting, table])
            whole = waiting.num_rows // ID_SLICE_ROWS * ID_SLICE_ROWS
            yield from (
                _values(waiting.slice(start, ID_SLICE_ROWS))
                for start in range(0, whole, ID_SLICE_ROWS)
            )
            waiting = waiting.slice(whole)
    if waiting is not None and waiting.num_rows:
        yield _values(waiting)


def _values(table: Any) -> dict[str, Any]:
    """Return the columns of a table as writers of rows take them."""
    columns = zip(table.column_names, table.columns, strict=True)
    return {
        name: column.to_pylist() if is_text(column.type) else column.to_numpy()
        for name, column in columns
    }
