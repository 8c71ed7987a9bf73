"""The list of removed rows, by tasks.

Each writes the list of a part of the corpus, and the job ends by joining these.

The number of a cluster is its rank among all clusters, by their first rows. Stages: *ranks* orders
the clusters whose first rows are in some parts; *clusters* takes the numbers of rows and clusters
of one task of *decide*; *list* writes the rows of a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arrays import list_lims, stable_order
from fpstore.base.width import WIDTHS
from fpstore.disk.refusals import refusing
from fpstore.io import open_writer
from fpstore.io.arrow import import_pyarrow, is_text
from fpstore.io.writers import Writer
from fpstore.jobs.removed import REMOVED_COLUMNS, REMOVED_WITH_REFERENCE
from fpstore.plans.ids import joined_ids, plain_ids, take_ids
from fpstore.plans.pieces import Pieces, PieceWriter, runs
from fpstore.plans.places import scratch_folder
from fpstore.plans.plan import PlanFolder, Stage
from fpstore.plans.shuffle import group_places, split_numbers
from fpstore.query.names import NAMED_ROWS


def list_stages(parts: int, slices: int) -> list[Stage]:
    """Return the stages of a list of the rows of some parts, whose clusters are in some slices."""
    return [Stage("ranks", min(parts, slices)), Stage("clusters", slices), Stage("list", parts)]


def write_leasts(writer: PieceWriter, leasts: Words, parts: int, slices: int) -> None:
    """Write the first rows of clusters, which ascend, for each task of *ranks*."""
    tasks = list_stages(parts, slices)[0].tasks
    writer.add_slices(
        "leasts", leasts, group_places(split_numbers(leasts)[0] * tasks // parts, tasks)
    )


def write_ranks(writer: PieceWriter, decided: list[Pieces], number: int) -> None:
    """Write the ranks of the clusters of a task, in slices of those that decided on them."""
    found = [one.read("leasts", number) for one in decided]
    leasts = np.concatenate(found)
    ranks = np.empty(len(leasts), np.uint64)
    ranks[stable_order(leasts)] = np.arange(len(leasts), dtype=np.uint64)
    writer.facts["clusters"] = len(leasts)
    writer.add_slices("ranks", ranks, runs(list_lims([len(one) for one in found])))


def write_numbers(writer: PieceWriter, plan: PlanFolder, number: int) -> None:
    """Write the numbers of the rows that a task removed, of those that it kept for them, and of their clusters, by parts."""
    hashed, ranked, decided = (
        plan.results("hash"),
        plan.results("ranks"),
        plan.result("decide", number),
    )
    before = list_lims([one.facts["clusters"] for one in ranked]).astype(np.uint64)
    ranks = np.concatenate(
        [one.read("ranks", number) + first for one, first in zip(ranked, before, strict=False)]
    )
    firsts = list_lims([one.facts["rows"] for one in hashed]).astype(np.uint64)
    own = any(one.facts["ids"] == "string" for one in hashed)
    kept = own or any("near.kept.sizes" in one for one in hashed)
    writer.facts["strings"] = ["id"] * own + ["kept"] * kept
    writer.add("firsts", firsts)
    slices = runs(decided.lims("removed"))
    for name in ("removed", "kept"):
        parts, rows = split_numbers(decided.read(name))
        writer.add_slices(name, firsts[parts] + rows.astype(np.uint64), slices)
    writer.add_slices("clusters", ranks[decided.read("clusters").view(np.intp)], slices)


def write_list(writer: PieceWriter, plan: PlanFolder, part: int, listed: str, near: bool) -> None:
    """Write the list of a part, as a file of its format in blocks.

    With ``near``, also the rows that are near a reference.
    """
    numbered, decided = plan.results("clusters"), plan.results("decide")
    tables = [_rows_of(*pair, part) for pair in zip(numbered, decided, strict=True)]
    if near:
        tables.append(_near_rows(plan.result("hash", part), numbered[0].read("firsts")[part]))
    columns, strings = _columns(near), set(numbered[0].facts["strings"])
    with scratch_folder() as folder:
        path = folder / f"list{PurePosixPath(listed).suffix}"
        with _opened(path, near) as file:
            for batch in _in_order_of_rows(tables, columns, strings):
                file.write(batch)
        writer.add_file(path)


def join_lists(path: Path, lists: Iterable[Pieces], near: bool) -> None:
    """Write the lists of all parts as one file, which has the bytes that one process writes."""
    if path.suffix.lower() == ".parquet":
        with _opened(path, near) as file:
            for batch in _batches(lists, import_pyarrow(str(path))):
                file.write(batch)
        return
    with refusing(path), path.open("wb") as joined:
        for one in lists:
            joined.writelines(one.blocks())


def _columns(near: bool) -> tuple[str, ...]:
    return REMOVED_WITH_REFERENCE if near else REMOVED_COLUMNS


def _opened(path: Path, near: bool) -> Writer:
    return open_writer(path, columns=_columns(near), width=WIDTHS[-1])


def _rows_of(numbered: Pieces, decided: Pieces, part: int) -> dict[str, Any]:
    """Return the columns of the rows of a part that one task has removed."""
    row, kept = numbered.read("removed", part), numbered.read("kept", part)
    ids, kept_ids = (decided.read_ids(name, part) for name in ("ids", "kept.ids"))
    return {
        "row": row,
        "id": row if ids is None else ids,
        "kept_row": kept,
        "kept": kept if kept_ids is None else kept_ids,
        "cluster": numbered.read("clusters", part),
        "reference": np.zeros(len(row), np.uint64),
        "distance": decided.read("distances", part).astype(np.uint64),
    }


def _near_rows(found: Pieces, first: np.uint64) -> dict[str, Any]:
    """Return the columns of the rows of a part that are near the reference."""
    row, ids = found.read("near.rows").astype(np.uint64) + first, found.read_ids("near.ids")
    return {
        "row": row,
        "id": row if ids is None else ids,
        "kept_row": row,
        "kept": found.read_ids("near.kept"),
        "cluster": np.zeros(len(row), np.uint64),
        "reference": np.ones(len(row), np.uint64),
        "distance": found.read("near.distances").astype(np.uint64),
    }


def _in_order_of_rows(
    tables: list[dict[str, Any]], names: tuple[str, ...], strings: set[str]
) -> Iterator[dict[str, Any]]:
    """Yield some columns of several tables together, by their rows, at most NAMED_ROWS at once.

    Some are of strings.
    """
    columns = {
        name: joined_ids([table[name] for table in tables], name in strings) for name in names
    }
    order = stable_order(np.concatenate([table["row"] for table in tables]))
    for start in range(0, len(order), NAMED_ROWS):
        some = order[start : start + NAMED_ROWS]
        yield {name: plain_ids(take_ids(column, some)) for name, column in columns.items()}


def _batches(lists: Iterable[Pieces], arrow: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of lists in Parquet, NAMED_ROWS at once as one process writes them.

    Its row groups depend on that.
    """
    held: Any = None
    for one in lists:
        table = arrow.parquet.read_table(arrow.BufferReader(b"".join(one.blocks())))
        if table.num_rows:  # of no rows, the types are not told
            held = table if held is None else arrow.concat_tables([held, table])
            whole = held.num_rows // NAMED_ROWS * NAMED_ROWS
            yield from (
                _values(held.slice(start, NAMED_ROWS)) for start in range(0, whole, NAMED_ROWS)
            )
            held = held.slice(whole)
    if held is not None and held.num_rows:
        yield _values(held)


def _values(table: Any) -> dict[str, Any]:
    """Return the columns of a table as writers of rows take them."""
    columns = zip(table.column_names, table.columns, strict=True)
    return {
        name: column.to_pylist() if is_text(column.type) else column.to_numpy()
        for name, column in columns
    }
