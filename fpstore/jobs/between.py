"""Joins of two sets: the pairs of a stored fingerprint and one of another store, or of others that a caller has."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import lims_of
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn, hash_of
from fpstore.base.width import Width, ascending, order_of, places_of
from fpstore.design.estimates import probe_nanoseconds
from fpstore.design.joins import SAMPLED_FROM, JoinDesign, join_nanoseconds, plan_join, varying_bits
from fpstore.design.sample import Sample
from fpstore.errors import InputError
from fpstore.io import check_fingerprints, check_id, check_ids
from fpstore.io.check import is_one
from fpstore.jobs.checkpoint import Checkpoint
from fpstore.jobs.joining import PairColumns, pairs_between, saved, saving
from fpstore.jobs.pairs import Pairs, batches_of, rows_of
from fpstore.jobs.spooled_ids import SpooledIds
from fpstore.query.names import HeldIds, Named, Names, names_in_slices
from fpstore.query.snapshot import Snapshot

MATCHES = 1 << 20  # of a batch of probes
PROBED_ROWS = 1 << 20  # that are looked up before what was found is kept
DIGESTED = 1 << 18  # rows at a time
PROBED = "rows were looked up"
READ_NANOSECONDS = 5.0  # a fingerprint that is read from a store, to be sorted with the others


class GivenRows:
    """Fingerprints and ids of a caller, as one side of a join.

    Parameters
    ----------
    rows : Words
        In any order; a fingerprint may occur more than once.
    names : Names
        Of one id per row; its number is the place of the row.
    width : Width
    """

    def __init__(self, rows: Words, names: Names, width: Width) -> None:
        order = order_of(rows)
        ordered = rows[order]
        begins = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), bool), ascending(ordered)]))
        self.width, self.rows = width, np.ascontiguousarray(ordered[begins])
        self._lims = np.append(begins, len(rows))
        self._names, self._order = names, order.astype(np.uint64)

    def digest(self) -> str:
        """Return a number that tells these rows from others."""
        digest = b""
        for _, (ids,) in names_in_slices([(self._names, self._order)]):
            if isinstance(ids, list):
                column = StringColumn.of(ids)
                digest = hash_of(digest + column.data).to_bytes(8, "big")
                ids = column.ends
            digest = hash_of(digest + ids.tobytes()).to_bytes(8, "big")
        for array in (self.rows, self._lims):
            for start in range(0, len(array), DIGESTED):
                digest = hash_of(digest + array[start : start + DIGESTED].tobytes()).to_bytes(8, "big")
        return digest.hex()

    @property
    def one_id_each(self) -> bool:
        """Whether no fingerprint has several ids."""
        return len(self.rows) == int(self._lims[-1])

    def stored_id_numbers(self, rows: Words) -> tuple[Lims, Words]:
        """Return (lims, places of the ids) of fingerprints of the set."""
        places = places_of(self.rows, rows)
        sizes = np.diff(self._lims)[places]
        lims = lims_of(sizes)
        return lims, self._order[np.arange(int(lims[-1])) + np.repeat(self._lims[places] - lims[:-1], sizes)]

    def named_within(self, numbers: Words, most: int | None) -> Named | None:
        """Return the ids at some places; see :class:`fpstore.query.names.Names`."""
        return self._names.named_within(numbers, most)


def given_rows(other: Any, ids: Any, width: Width) -> GivenRows:
    """Return the fingerprints of a caller (one, many, or a reader), with ids or row numbers; InputError if they are wrong."""
    from fpstore.io.reader import Reader

    if isinstance(other, Reader):
        if ids is not None:
            raise InputError("a reader has ids of its own")
        pieces, spooled = [width.empty(0)], SpooledIds()
        for batch in other.of_width(width):
            pieces.append(batch.fingerprints)
            spooled.add(batch.ids)
        spooled.finish()
        rows = np.concatenate(pieces)
        return GivenRows(rows, spooled if other.has_ids else _row_numbers(rows), width)
    one = is_one(other, width)
    rows = check_fingerprints([other] if one else other, width)
    checked = None if ids is None else check_ids([check_id(ids)] if one else ids, len(rows))
    return GivenRows(rows, _row_numbers(rows) if checked is None else HeldIds(checked), width)


def _row_numbers(rows: Words) -> HeldIds:
    return HeldIds(np.arange(len(rows), dtype=np.uint64))


def join_of(
    snapshot: Snapshot, other: Snapshot | GivenRows, radius: int, resources: Resources, kept: Checkpoint | None = None
) -> Generator[Pairs, None, None]:
    """Yield the pairs of a snapshot and another side, in batches; see :meth:`fpstore.Store.join`."""
    for columns in _columns(snapshot, other, radius, resources, kept):
        yield from batches_of(columns, snapshot, other)


def _columns(
    snapshot: Snapshot, other: Snapshot | GivenRows, radius: int, resources: Resources, kept: Checkpoint | None
) -> Iterator[PairColumns]:
    count = snapshot.totals.fingerprints
    theirs = other.totals.fingerprints if isinstance(other, Snapshot) else len(other.rows)
    if not count or not theirs:
        return
    # The smaller side may be looked up in the other, if that is a store whose tables serve the radius.
    turned = count < theirs
    stored, asked = (other, snapshot) if turned else (snapshot, other)
    rows, left = _held(asked, resources)
    design = plan_between(max(count, theirs), rows, radius, snapshot.width)
    if isinstance(stored, Snapshot) and _probes_are_faster(stored, len(rows), radius, design):
        for found in _probed(stored, rows, radius, left, kept):
            yield _turned(found, not turned)
        return
    others, left = _held(stored, left)
    design = plan_between(len(others), rows, radius, snapshot.width, others)
    for found in pairs_between(rows, others, design, left, kept):
        yield _turned(found, not turned)


def _held(side: Snapshot | GivenRows, resources: Resources) -> tuple[Words, Resources]:
    """Return the fingerprints of a side, and what they leave of the resources."""
    if isinstance(side, Snapshot):
        return rows_of(side, resources)
    memory = max(resources.memory - side.rows.nbytes, resources.memory // 4)
    return side.rows, resources._replace(memory=memory)


def _probed(stored: Snapshot, rows: Words, radius: int, resources: Resources, kept: Checkpoint | None) -> Iterator[PairColumns]:
    """Yield the pairs of rows and the stored fingerprints that their look-ups find; what some rows find is a part."""
    for start in range(0, len(rows), PROBED_ROWS):
        resources.report("finding pairs", start, len(rows))
        some = rows[start : start + PROBED_ROWS]
        parts = stored.probe_in_parts(some, radius, resources.threads, MATCHES)
        found = (
            PairColumns(np.repeat(queries, np.diff(lims), axis=0), others, distances.astype(np.uint16))
            for queries, (lims, others, distances) in parts
        )
        if kept is None:
            yield from found
            continue
        name = f"probed-{start}"
        is_there = kept.count(name) is not None
        kept.note(PROBED, len(some) if is_there else 0, len(some))
        yield from saved(kept, name) if is_there else saving(kept, name, found)
    resources.report("finding pairs", len(rows), len(rows))


def plan_between(count: int, rows: Words, radius: int, width: Width, others: Words | None = None) -> JoinDesign:
    """Return the design for the pairs of rows and other rows; other rows in memory give a sample and the bits that vary."""
    if others is None:
        return plan_join(count, radius, width.bits, queries=len(rows))
    sample = Sample(others, width) if count >= SAMPLED_FROM else None
    bits = sorted({*varying_bits(rows, width), *varying_bits(others, width, rows[:1])})
    return plan_join(count, radius, width.bits, sample, len(rows), bits)


def _probes_are_faster(stored: Snapshot, queries: int, radius: int, design: JoinDesign) -> bool:
    generation, count = stored.generation, stored.totals.fingerprints
    if radius > generation.design.radius:
        return False
    probing = queries * probe_nanoseconds(generation.design, count, radius, queries, generation.manifest.blocks)
    return probing < join_nanoseconds(design, count, queries) + READ_NANOSECONDS * count


def _turned(columns: PairColumns, turn: bool) -> PairColumns:
    return PairColumns(columns.b, columns.a, columns.distances) if turn else columns
