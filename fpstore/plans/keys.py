"""The keys of rows (`fpstore.jobs.keys`) by tasks.

*hash* writes the keys of a part in slices, *equal* links rows of a slice with equal keys, and
*members* sends the keys of a component to the task that decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import NO_WORDS, repeated_places
from fpstore.io.keys import WORDS, has_key
from fpstore.jobs.keys import KINDS, KeyColumn, Keys
from fpstore.plans.shuffle import row_numbers, slice_places
from fpstore.work.pieces import Pieces, PieceWriter

Slices = Sequence[npt.NDArray[np.intp]]


def write_keys(writer: PieceWriter, keys: Keys, rows: npt.NDArray[np.intp], bits: int) -> None:
    """Write the keys of some rows of a part, in slices; a row is its place among these."""
    for kind, column in keys.items():
        hashes = column.at(rows)
        places = np.flatnonzero(has_key(hashes))
        slices = slice_places(np.ascontiguousarray(hashes[places, 0]), bits)
        writer.add_slices(f"{kind}.places", places.astype(np.uint32), slices)
        writer.add_slices(f"{kind}.hashes", hashes[places], slices)


def linked_by_keys(hashed: Sequence[Pieces], number: int) -> Iterator[tuple[Words, Words]]:
    """Yield, for each kind of keys, the first rows of equal keys in a slice, and others."""
    for kind in KINDS:
        numbers, hashes = [NO_WORDS], [np.empty((0, WORDS), np.uint64)]
        for part, pieces in enumerate(hashed):
            if f"{kind}.places" in pieces:
                numbers.append(row_numbers(part, pieces.read(f"{kind}.places", number)))
                hashes.append(pieces.read(f"{kind}.hashes", number))
        rows = np.concatenate(numbers)
        repeats, firsts = repeated_places(np.concatenate(hashes))
        yield rows[firsts], rows[repeats]


def write_member_keys(
    writer: PieceWriter, hashed: Pieces, slices_of_rows: Slices, places: npt.NDArray[np.intp]
) -> None:
    """Write the keys of rows of a part at some places, in slices of these."""
    for kind in KINDS:
        if f"{kind}.places" in hashed:
            owners = hashed.read(f"{kind}.places").astype(np.intp)
            order = np.argsort(owners)
            column = KeyColumn(owners[order], hashed.read(f"{kind}.hashes")[order])
            writer.add_slices(f"{kind}.keys", column.at(places), slices_of_rows)


def read_member_keys(parts: list[Pieces], number: int) -> Keys:
    """Return the keys of the rows of a slice."""
    keys = {}
    for kind in KINDS:
        if any(f"{kind}.keys" in pieces for pieces in parts):
            keys[kind] = KeyColumn.from_pieces(
                [
                    pieces.read(f"{kind}.keys", number)
                    if f"{kind}.keys" in pieces
                    else np.zeros((len(pieces.read("numbers", number)), WORDS), np.uint64)
                    for pieces in parts
                ]
            )
    return keys
