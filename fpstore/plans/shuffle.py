"""The shuffle: rows of all parts that share a key come to one task, through files.

A task writes its rows by the leading bits of their keys, slice by slice, and a later task reads one
slice of every file. So an engine needs no shuffle of its own, and all engines have the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import list_lims, stable_order
from fpstore.base.pools import map_in_order
from fpstore.base.width import WORD_BITS, leading_words
from fpstore.design.joins import JoinDesign
from fpstore.jobs.bands import MIXER
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays, reader_count

ROW_BITS = 40  # of a number, for the row in its part; the bits before are the number of the part
SLICE_ROWS = 1 << 22  # that a task compares
MAX_SLICES = 512  # of a band or a table


def row_numbers(part: int, rows: npt.NDArray[np.unsignedinteger | np.intp]) -> Words:
    """Return the numbers of rows of a part, which ascend through the corpus."""
    return rows.astype(np.uint64) + np.uint64(part << ROW_BITS)


def split_numbers(numbers: Words) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the part and the row in it of each number."""
    return (numbers >> np.uint64(ROW_BITS)).astype(np.int64), (
        numbers & np.uint64((1 << ROW_BITS) - 1)
    ).astype(np.int64)


def group_places(owners: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.intp]]:
    """Return the places of the rows of each slice, ascending; owners are slices of rows."""
    lims = list_lims(np.bincount(owners, minlength=count)).tolist()
    order = stable_order(owners)
    return [order[start:end] for start, end in pairwise(lims)]


def slice_places(keys: Words, bits: int) -> list[npt.NDArray[np.intp]]:
    """Return the places of the rows of 2**bits slices, by the leading bits of keys."""
    return (
        group_places((keys >> np.uint64(WORD_BITS - bits)).astype(np.int64), 1 << bits)
        if bits
        else [np.arange(len(keys))]
    )


def slice_bits(rows: int, slice_rows: int) -> int:
    """Return how many leading bits make slices of about ``slice_rows`` rows."""
    return (max(rows - 1, 0) // slice_rows).bit_length()


def usual_slice_rows(slice_rows: int | None, rows: int) -> int:
    """Return the approximate rows of a slice; by default for at most MAX_SLICES slices."""
    return slice_rows or max(SLICE_ROWS, rows // MAX_SLICES)


def mix(numbers: Words) -> Words:
    """Return numbers with even leading bits."""
    return numbers * MIXER


def table_keys(design: JoinDesign, table: int, rows: Words) -> Words:
    """Return the leading words of rows in the order of the bits of a table."""
    permutation = np.frombuffer(design.tables[table].permutation, np.uint8)
    return np.ascontiguousarray(leading_words(_kernel.permute(rows, permutation)))


def write_column(
    writer: PieceWriter,
    column: int,
    keys: Words,
    bits: int,
    rows: npt.NDArray[np.uint32],
    fingerprints: Words,
) -> None:
    """Write rows of a part by the leading bits of their keys; only keys for a single slice.

    A single slice has all rows but the repeats.
    """
    if not bits:
        writer.add(f"keys-{column}", keys)
        return
    slices = slice_places(keys, bits)
    for name, array in (("keys", keys), ("rows", rows), ("fingerprints", fingerprints)):
        writer.add_slices(f"{name}-{column}", array, slices)


class SliceRows(NamedTuple):
    """The rows of a slice of a column of all parts; numbers ascend."""

    keys: Words
    numbers: Words
    fingerprints: Words


def gather(parts: Sequence[Pieces], column: int, number: int, bits: int) -> SliceRows:
    """Read a slice of a column of all parts."""

    def read(name: str) -> list[npt.NDArray[Any]]:
        return [
            array
            for _, array in map_in_order(
                lambda part: read_part(part, name), parts, reader_count(parts)
            )
        ]

    def read_part(part: Pieces, name: str) -> npt.NDArray[Any]:
        return (
            part.read(f"{name}-{column}", number)
            if bits
            else np.delete(part.read(name), part.read("repeats"), axis=0)
        )

    keys = concatenate_arrays(parts, f"keys-{column}", number if bits else None)
    numbers = [row_numbers(place, rows) for place, rows in enumerate(read("rows"))]
    return SliceRows(keys, np.concatenate(numbers), np.concatenate(read("fingerprints")))
