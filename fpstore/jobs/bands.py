"""Near-duplicates by bands: documents that share the key of a band are compared.

For many documents, this replaces an exact join. A document takes four bytes of memory, for its set.
Keys and fingerprints lie in temporary files. The keys of each band are sorted within the memory
budget, and only the fingerprints of documents that share a key are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import HALF_BITS, distinct_places, list_lims, list_numbers, spans
from fpstore.base.resources import Resources
from fpstore.base.width import Width, equal, row_words
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import SpilledNumbers, SpillFile
from fpstore.jobs.grouping import Numbers, rows_at
from fpstore.jobs.joining import pairs_within
from fpstore.jobs.pairs import join_design

BLOCK_ROWS = 1 << 16  # documents whose keys are written together
# a larger group is joined; in smaller groups all pairs of documents are compared
MAX_COMPARED_ROWS = 1 << 10
MEMBER_BYTES = 1 << 8  # a member of the groups that are compared together, and its fingerprint
MIXER = np.uint64(0x9E3779B97F4A7C15)


class BandKeys:
    """The keys of the bands of documents in a temporary file, block by block and band by band."""

    def __init__(self, bands: int) -> None:
        self.bands = bands
        self._held: list[Words] = []
        self._sizes: list[int] = []  # of the blocks
        self._waiting = 0
        self._file = SpillFile(None)

    def add(self, keys: Words) -> None:
        """Append the keys of documents, shape (documents, bands)."""
        self._held.append(keys)
        self._waiting += len(keys)
        if self._waiting >= BLOCK_ROWS:
            self._write()

    def _write(self) -> None:
        block = np.ascontiguousarray(
            np.concatenate([np.empty((0, self.bands), np.uint64), *self._held]).T
        )
        self._file.append(block.reshape(-1).view(np.uint8))
        self._sizes.append(self._waiting)
        self._held, self._waiting = [], 0

    def finish(self) -> None:
        if self._waiting:
            self._write()

    def column(self, band: int) -> Iterator[Words]:
        """Yield the keys of one band in batches of documents."""
        start = 0
        for size in self._sizes:
            keys = np.empty(size, np.uint64)
            self._file.read(start + 8 * band * size, keys.view(np.uint8))
            yield keys
            start += 8 * self.bands * size


class Groups(NamedTuple):
    """Documents that share a key.

    Group g has ``members[lims[g]:lims[g + 1]]``, two or more, ascending.
    """

    members: Words
    lims: Lims

    @classmethod
    def from_owners(cls, members: Words, owners: npt.NDArray[np.intp]) -> Groups:
        """Return the groups of two or more; ``owners`` has the ascending group of each member."""
        sizes = np.bincount(owners)
        return cls(members[(sizes > 1)[owners]], list_lims(sizes[sizes > 1]))

    @property
    def first_places(self) -> npt.NDArray[np.intp]:
        """For each member, the place of the first member of its group."""
        return self.lims[list_numbers(self.lims)]

    def in_several_sets(self, sets: _kernel.Sets) -> Groups:
        """Return the groups whose members are in several sets."""
        owners, roots = list_numbers(self.lims), sets.least(self.members)
        mixed = np.zeros(len(self.lims) - 1, bool)
        mixed[owners[roots != roots[self.first_places]]] = True
        is_mixed = mixed[owners]
        return Groups.from_owners(self.members[is_mixed], owners[is_mixed])


def connect_by_bands(
    fingerprints: Words,
    searched: Flags | None,
    keys: BandKeys,
    radius: int,
    width: Width,
    resources: Resources,
) -> Numbers:
    """Return for each document the first document that is connected with it.

    Two documents are connected if they have the same fingerprint, or share a key and lie within the
    radius, or are both connected with a third document. Every such pair is found. ``searched``
    flags the documents that may be connected; None: all may.
    """
    sets = _kernel.Sets(len(fingerprints))
    _unite_equal(sets, fingerprints, searched, resources)
    firsts = _first_documents(sets, len(fingerprints))
    for band in range(keys.bands):
        resources.report("searching bands", band, keys.bands)
        rows = _select_searched(keys.column(band), firsts, searched)
        for groups in _groups(rows, len(fingerprints), resources):
            link(sets, fingerprints, groups.in_several_sets(sets), radius, width, resources)
    resources.report("searching bands", keys.bands, keys.bands)
    return sets.names()


def _select_searched(
    pieces: Iterable[Words], numbers: Numbers | None, searched: Flags | None
) -> Iterator[tuple[Words, Numbers]]:
    """Yield the values of searched documents, and their numbers, which are places by default."""
    start = 0
    for values in pieces:
        end = start + len(values)
        piece_numbers: Numbers = (
            np.arange(start, end, dtype=np.uint64) if numbers is None else numbers[start:end]
        )
        if searched is not None:
            flags = searched[start:end]
            values, piece_numbers = values[flags], piece_numbers[flags]
        yield values, piece_numbers
        start = end


def _groups(
    rows: Iterator[tuple[Words, Numbers]], count: int, resources: Resources
) -> Iterator[Groups]:
    """Yield the groups of different numbers that share a key; there are at most ``count`` rows."""
    sorter = Sorter(resources.memory * 3 // 4, None, count, threads=resources.threads)
    most = max(resources.memory // 4 // MEMBER_BYTES, 1)
    for keys, numbers in rows:
        sorter.add(keys, numbers)
    for part in sorter.groups(lambda _: None):
        if part.per_key is None:
            continue
        end = 0
        for first in range(0, len(part.per_key), most):
            sizes = part.per_key[first : first + most].view(np.int64)
            start, end = end, end + int(sizes.sum())
            members = part.ids[start:end][np.repeat(sizes > 1, sizes)]
            lims = list_lims(sizes[sizes > 1])
            for batch in spans(lims, most):
                within = lims[batch.start : batch.stop + 1]
                yield Groups(members[within[0] : within[-1]].astype(np.uint64), within - within[0])


def _unite_equal(
    sets: _kernel.Sets, fingerprints: Words, searched: Flags | None, resources: Resources
) -> None:
    pieces = (
        fingerprints[start : start + BLOCK_ROWS]
        for start in range(0, len(fingerprints), BLOCK_ROWS)
    )
    for groups in _groups(
        _select_searched(map(row_hashes, pieces), None, searched), len(fingerprints), resources
    ):
        while len(groups.members):
            rows, firsts = rows_at(fingerprints, groups.members), groups.first_places
            same = equal(rows, rows[firsts])
            sets.unite(groups.members[same], groups.members[firsts[same]])
            # members that share only the hash
            groups = Groups.from_owners(groups.members[~same], list_numbers(groups.lims)[~same])


def row_hashes(rows: Words) -> Words:
    """Return a hash of each row; different rows rarely share one."""
    first, *later_words = rows.reshape(len(rows), row_words(rows)).T
    for word in later_words:
        first = (first ^ first >> np.uint64(HALF_BITS)) * MIXER + word
    return np.ascontiguousarray(first)


def _first_documents(sets: _kernel.Sets, count: int) -> Numbers:
    """Return the first document of each document's set, in a temporary file."""
    kind = np.dtype(np.uint32 if count <= 1 << HALF_BITS else np.uint64)
    numbers = SpilledNumbers(kind)
    for start in range(0, count, BLOCK_ROWS):
        numbers.append(
            sets.least(np.arange(start, min(start + BLOCK_ROWS, count), dtype=np.uint64)).astype(
                kind
            )
        )
    return numbers.finish()


def link(
    sets: _kernel.Sets,
    fingerprints: Words,
    groups: Groups,
    radius: int,
    width: Width,
    resources: Resources,
) -> None:
    if not len(groups.members):
        return
    rows = rows_at(fingerprints, groups.members)
    unlinked = sets.link_groups(
        rows, groups.members, groups.lims.view(np.uint64), radius, MAX_COMPARED_ROWS
    )
    for group in np.flatnonzero(unlinked).tolist():
        members = slice(*groups.lims[group : group + 2].tolist())
        _join_group(sets, rows[members], groups.members[members], radius, width, resources)


def _join_group(
    sets: _kernel.Sets, rows: Words, members: Words, radius: int, width: Width, resources: Resources
) -> None:
    """Unite equal fingerprints, then join the first document of each."""
    distinct, places = distinct_places(rows)
    firsts, index = np.empty_like(members, shape=len(distinct)), _kernel.RowIndex(distinct)
    firsts[places[::-1]] = members[::-1]
    sets.unite(members, firsts[places])
    for links in pairs_within(
        distinct,
        join_design(distinct, radius, width),
        resources._replace(progress=None),
        linked=True,
    ):
        sets.unite(*(firsts[index.places(side).view(np.intp)] for side in (links.a, links.b)))
