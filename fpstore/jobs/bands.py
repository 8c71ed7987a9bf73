"""Near-duplicates among the documents that share the key of a band.

What takes the place of an exact join for many documents.

A document takes four bytes of memory, for the set that it is in. Keys and fingerprints lie in
temporary files: the keys of one band after the other are sorted in a budget, and fingerprints are
read of those documents that share a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import HALF_BITS, distinct_places, lims_of, lists_of, spans
from fpstore.base.resources import Resources
from fpstore.base.width import Width, equal, words_of
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import SpilledNumbers, SpillFile
from fpstore.jobs.grouping import Numbers, rows_at
from fpstore.jobs.joining import pairs_within
from fpstore.jobs.pairs import join_design

BLOCK_ROWS = 1 << 16  # whose keys are written together
# documents of a group of which every two are compared: a larger one is joined
MOST_COMPARED = 1 << 10
MEMBER_BYTES = 1 << 8  # of a member of the groups that are looked at together, and its fingerprint
MIXER = np.uint64(0x9E3779B97F4A7C15)


class BandKeys:
    """The keys of some bands of documents, in the order in which they come, in a temporary file.

    Block by block, band by band.
    """

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
        """Note that all documents are there."""
        if self._waiting:
            self._write()

    def column(self, band: int) -> Iterator[Words]:
        """Yield the keys of one band, some documents at a time."""
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
    def of(cls, members: Words, owners: npt.NDArray[np.intp]) -> Groups:
        """Return groups of members whose groups have the numbers ``owners``, ascending.

        Those of one member are left out.
        """
        sizes = np.bincount(owners)
        return cls(members[(sizes > 1)[owners]], lims_of(sizes[sizes > 1]))

    @property
    def firsts(self) -> npt.NDArray[np.intp]:
        """For each member the place of the first one of its group."""
        return self.lims[lists_of(self.lims)]

    def apart(self, sets: _kernel.Sets) -> Groups:
        """Return the groups that are not within one set."""
        owners, roots = lists_of(self.lims), sets.least(self.members)
        mixed = np.zeros(len(self.lims) - 1, bool)
        mixed[owners[roots != roots[self.firsts]]] = True
        kept = mixed[owners]
        return Groups.of(self.members[kept], owners[kept])


def connected_by_bands(
    fingerprints: Words,
    searched: Flags | None,
    keys: BandKeys,
    radius: int,
    width: Width,
    resources: Resources,
) -> Numbers:
    """Return for each document the first one that is connected with it.

    Connected are two documents with one fingerprint, two that share a key and lie within the
    radius, and what is connected with one that is connected. Every such pair is found. ``searched``
    flags the documents that may be connected; None: all may.
    """
    sets = _kernel.Sets(len(fingerprints))
    _unite_equal(sets, fingerprints, searched, resources)
    firsts = _firsts(sets, len(fingerprints))
    for band in range(keys.bands):
        resources.report("searching bands", band, keys.bands)
        rows = _searched(keys.column(band), firsts, searched)
        for groups in _groups(rows, len(fingerprints), resources):
            link(sets, fingerprints, groups.apart(sets), radius, width, resources)
    resources.report("searching bands", keys.bands, keys.bands)
    return sets.names()


def _searched(
    pieces: Iterable[Words], numbers: Numbers | None, searched: Flags | None
) -> Iterator[tuple[Words, Numbers]]:
    """Yield values of successive documents, and a number of each, by default its own.

    Only of those that are searched.
    """
    start = 0
    for values in pieces:
        some = slice(start, start + len(values))
        own: Numbers = (
            np.arange(some.start, some.stop, dtype=np.uint64) if numbers is None else numbers[some]
        )
        yield (values, own) if searched is None else (values[searched[some]], own[searched[some]])
        start = some.stop


def _groups(
    rows: Iterator[tuple[Words, Numbers]], count: int, resources: Resources
) -> Iterator[Groups]:
    """Yield the different numbers that share a key, of at most ``count`` rows of a key and a number."""
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
            members, lims = (
                part.ids[start:end][np.repeat(sizes > 1, sizes)],
                lims_of(sizes[sizes > 1]),
            )
            for some in spans(lims, most):
                within = lims[some.start : some.stop + 1]
                yield Groups(members[within[0] : within[-1]].astype(np.uint64), within - within[0])


def _unite_equal(
    sets: _kernel.Sets, fingerprints: Words, searched: Flags | None, resources: Resources
) -> None:
    """Unite the documents that have one fingerprint."""
    pieces = (
        fingerprints[start : start + BLOCK_ROWS]
        for start in range(0, len(fingerprints), BLOCK_ROWS)
    )
    for groups in _groups(
        _searched(map(row_hashes, pieces), None, searched), len(fingerprints), resources
    ):
        while len(groups.members):
            rows, firsts = rows_at(fingerprints, groups.members), groups.firsts
            same = equal(rows, rows[firsts])
            sets.unite(groups.members[same], groups.members[firsts[same]])
            # what has only the hash in common
            groups = Groups.of(groups.members[~same], lists_of(groups.lims)[~same])


def row_hashes(rows: Words) -> Words:
    """Return a hash of each row, which few different rows share."""
    first, *others = rows.reshape(len(rows), words_of(rows)).T
    for word in others:
        first = (first ^ first >> np.uint64(HALF_BITS)) * MIXER + word
    return np.ascontiguousarray(first)


def _firsts(sets: _kernel.Sets, count: int) -> Numbers:
    """Return the first document of the set of each, in a temporary file."""
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
    """Unite the members of groups that are within the radius of each other."""
    if not len(groups.members):
        return
    rows = rows_at(fingerprints, groups.members)
    left = sets.link_groups(
        rows, groups.members, groups.lims.view(np.uint64), radius, MOST_COMPARED
    )
    for group in np.flatnonzero(left).tolist():
        some = slice(*groups.lims[group : group + 2].tolist())
        _join_group(sets, rows[some], groups.members[some], radius, width, resources)


def _join_group(
    sets: _kernel.Sets, rows: Words, members: Words, radius: int, width: Width, resources: Resources
) -> None:
    """Unite the members of a large group that are connected.

    Those of one fingerprint, and the first of each by a join.
    """
    distinct, which = distinct_places(rows)
    firsts, index = np.empty_like(members, shape=len(distinct)), _kernel.RowIndex(distinct)
    firsts[which[::-1]] = members[::-1]
    sets.unite(members, firsts[which])
    for links in pairs_within(
        distinct,
        join_design(distinct, radius, width),
        resources._replace(progress=None),
        linked=True,
    ):
        sets.unite(*(firsts[index.places(some).view(np.intp)] for some in (links.a, links.b)))
