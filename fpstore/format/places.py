"""The index by id: from an id number to the places of its fingerprints, their blocks and ranks in the identity table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Counts, Lims, Words
from fpstore.errors import CorruptStoreError
from fpstore.format.id_map import IdMap
from fpstore.format.mapping import MappingFiles, digest_of, open_mapping, pair_digest
from fpstore.format.table import Table

PLACES_FILES = ("places.fpt", "places.mdb")


class Found(NamedTuple):
    """The places of many ids: list i is from ``lims[i]`` to ``lims[i + 1]``."""

    lims: Lims
    blocks: Words
    ranks: Counts


def places_files(folder: Path) -> MappingFiles:
    """Return the files of the index."""
    return MappingFiles(*(folder / name for name in PLACES_FILES))


def bits_of_ranks(most: int) -> int:
    """Return how many bits of a place are for the rank, where no block has more than ``most`` entries."""
    return max(most - 1, 0).bit_length()


def pairs(table: Table, ids: IdMap, rank_bits: int) -> Iterator[tuple[Words, Words]]:
    """Yield everything as pieces (id numbers, their places), in the order of the table."""
    first = 0
    for keys, entry_counts in table.pieces():
        counts, numbers = ids.blocks(first, keys, entry_counts)
        sizes = entry_counts.astype(np.int64)
        blocks = np.repeat(np.arange(first, first + len(sizes), dtype=np.uint64), sizes)
        ranks = np.arange(len(blocks), dtype=np.uint64) - np.repeat(np.cumsum(sizes) - sizes, sizes).astype(np.uint64)
        yield numbers, np.repeat(blocks << np.uint64(rank_bits) | ranks, counts.astype(np.int64))
        first += len(sizes)


class Places:
    """Reads the index.

    Parameters
    ----------
    folder : Path
        Of the generation.
    record : dict
        Its description in the manifest.
    """

    def __init__(self, folder: Path, record: dict[str, Any]) -> None:
        self._rank_bits = int(record["rank_bits"])
        self._mapping = open_mapping(places_files(folder), record["ids"], record["id_digest"], record["places"])

    @property
    def name(self) -> str:
        """The path of the file that has the places, for messages of the kernel."""
        return self._mapping.numbers.name

    def gather(self, numbers: Words) -> Found:
        """Return the places of ids; an id that has none is not stored."""
        lims, places = self._mapping.gather(numbers)
        return Found(lims, *self._split(places))

    def get(self, number: int) -> list[tuple[int, int]]:
        """Return the (block, rank) pairs of one id, ascending."""
        bits = self._rank_bits
        return [(place >> bits, place & ((1 << bits) - 1)) for place in self._mapping.get(number)]

    def _split(self, places: Words) -> tuple[Words, Counts]:
        return places >> np.uint64(self._rank_bits), (places & np.uint64((1 << self._rank_bits) - 1)).astype(np.uint32)

    def verify(self, table: Table, ids: IdMap, tick: Callable[[int], None] = lambda rows: None) -> None:
        """Check all of it, and that it says the same as the id map.

        Raises
        ------
        CorruptStoreError
        """
        self._mapping.verify(tick)
        expected = sum(pair_digest(numbers, places) for numbers, places in pairs(table, ids, self._rank_bits)) % 2**64
        if digest_of(self._mapping.groups(), tick) != expected:
            path = self._mapping.numbers.path
            raise CorruptStoreError(f"{path}: the index by id does not say the same as the id map: run fpstore repair", path=path)

    @property
    def file_bytes(self) -> int:
        """Bytes that both files take on disk."""
        return self._mapping.file_bytes

    def close(self) -> None:
        """Close the files."""
        self._mapping.close()
