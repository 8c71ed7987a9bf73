"""Near-duplicates among the documents that share the key of a band: what takes the place of an exact join for many documents."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import differs, lims_of, sorted_with_places, stable_order
from fpstore.base.resources import Resources
from fpstore.base.threads import in_order
from fpstore.base.width import Width
from fpstore.disk.temporary import SpillFile
from fpstore.jobs.grouping import Numbers
from fpstore.jobs.joining import pairs_within
from fpstore.jobs.pairs import join_design

BLOCK_ROWS = 1 << 16  # whose keys are written together
MOST_COMPARED = 1 << 10  # documents of a group of which every two are compared: a larger one is joined


class BandKeys:
    """The keys of some bands of documents, in the order in which they come, in a temporary file: block by block, band by band."""

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
        block = np.ascontiguousarray(np.concatenate([np.empty((0, self.bands), np.uint64), *self._held]).T)
        self._file.append(block.reshape(-1).view(np.uint8))
        self._sizes.append(self._waiting)
        self._held, self._waiting = [], 0

    def finish(self) -> None:
        """Note that all documents are there."""
        if self._waiting:
            self._write()

    def column(self, band: int) -> Words:
        """Return the keys of one band."""
        out, done, start = np.empty(sum(self._sizes), np.uint64), 0, 0
        for size in self._sizes:
            self._file.read(start + 8 * band * size, out[done : done + size].view(np.uint8))
            done, start = done + size, start + 8 * self.bands * size
        return out


class _Groups(NamedTuple):
    """Fingerprints that share a key, by their places: group g has ``members[lims[g]:lims[g + 1]]``, two or more."""

    members: Words
    lims: Lims


def connected_by_bands(
    fingerprints: Words, places: npt.NDArray[np.intp], documents: npt.NDArray[np.intp], keys: BandKeys, radius: int, width: Width,
    resources: Resources,
) -> Numbers:  # fmt: skip
    """Return for each fingerprint the first one that is connected with it by pairs that share a key and lie within the radius.

    ``fingerprints`` are distinct and ascend. ``places`` says which of them each of some documents has. Every such pair is found.
    """
    sets = _kernel.Sets(len(fingerprints))
    order = stable_order(places)
    groups_of = partial(_groups, keys, documents[order], places[order].astype(np.uint64))
    for band, groups in in_order(groups_of, range(keys.bands), resources.threads):
        resources.report("searching bands", band, keys.bands)
        if not len(groups.members):
            continue
        left = sets.link_groups(fingerprints, groups.members, groups.lims.view(np.uint64), radius, MOST_COMPARED)
        for group in np.flatnonzero(left).tolist():
            _join_group(sets, fingerprints, groups.members[groups.lims[group] : groups.lims[group + 1]], radius, width, resources)
    resources.report("searching bands", keys.bands, keys.bands)
    return sets.names()


def _groups(keys: BandKeys, order: npt.NDArray[np.intp], places: Words, band: int) -> _Groups:
    """Return the fingerprints that share keys of a band; ``order`` brings documents in the order of ``places``."""
    pairs = sorted_with_places(keys.column(band)[order])
    ascending, members = pairs[:, 0], places[pairs[:, 1].view(np.intp)]
    starts = differs(ascending)
    kept = starts | differs(members)  # documents with one fingerprint stand together
    members, starts = members[kept], starts[kept]
    firsts = np.flatnonzero(starts)
    sizes = np.diff(firsts, append=len(members))
    shared = sizes > 1
    return _Groups(members[np.repeat(shared, sizes)], lims_of(sizes[shared]))


def _join_group(sets: _kernel.Sets, fingerprints: Words, members: Words, radius: int, width: Width, resources: Resources) -> None:
    """Unite the members of a large group that are connected."""
    rows = fingerprints[members.view(np.intp)]
    index = _kernel.RowIndex(rows)
    for links in pairs_within(rows, join_design(rows, radius, width), resources._replace(progress=None), linked=True):
        sets.unite(*(members[index.places(some).view(np.intp)] for some in (links.a, links.b)))
