"""Similar documents of a whole index: pairs, and clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Id, NamedColumns, Words
from fpstore.base.arrays import NO_WORDS, is_run_start, list_lims, nth_combinations
from fpstore.base.resources import Resources
from fpstore.base.width import WORD_BITS
from fpstore.building.external_sort import Sorter
from fpstore.disk.temporary import SpilledNumbers
from fpstore.io.tables import Tabular, arrow_table
from fpstore.jobs.bands import Groups, link
from fpstore.jobs.clusters import Clusters
from fpstore.jobs.grouping import Grouping, group_members, members_in_sets, rows_at
from fpstore.lsh.answers import IndexSnapshot
from fpstore.lsh.keys import (
    DOCUMENT_WIDTH,
    MAX_NUMBER_BITS,
    document_numbers,
    find_numbers,
    signature_distances,
)
from fpstore.query.id_lookup import ids_at, ids_in_slices

PAIRS_AT_ONCE, PAIR_BYTES = 1 << 20, 160  # compared together, and what a pair takes meanwhile
YIELDED_PAIRS = 1 << 16
PHASE_PAIRS, PHASE_GROUPS = "comparing documents of a key", "connecting documents of a key"


class Documents(NamedTuple):
    """All documents of a state, in the order of their numbers.

    The place of a document here stands for its number.
    """

    numbers: Words
    rows: Words  # signatures, without the numbers; in a file that is mapped
    id_numbers: Words

    @classmethod
    def from_snapshot(cls, state: IndexSnapshot, resources: Resources) -> Documents:
        numbers, rows, ids = (
            SpilledNumbers(np.uint64),
            SpilledNumbers(np.uint64),
            SpilledNumbers(np.uint64),
        )
        total, done = state.documents.totals.fingerprints, 0
        for fingerprints, _, id_numbers in state.documents.groups():
            numbers.append(np.ascontiguousarray(document_numbers(fingerprints)))
            signatures = fingerprints.copy()
            signatures[:, 0] &= np.uint64((1 << MAX_NUMBER_BITS) - 1)
            rows.append(signatures.reshape(-1))
            ids.append(np.ascontiguousarray(id_numbers))
            done += len(fingerprints)
            resources.report("reading", done, total)
        return cls(numbers.finish(), rows.finish().reshape(-1, DOCUMENT_WIDTH.words), ids.finish())


def key_groups(
    state: IndexSnapshot, documents: Documents, resources: Resources, phase: str
) -> Iterator[Groups]:
    """Yield the documents that share a key, in batches of keys; a key is not cut."""
    total, done = state.keys.totals.fingerprints, 0
    waiting = NO_WORDS  # entries of the last key
    for entries in state.keys.fingerprints():
        resources.report(phase, done, total)
        done += len(entries)
        entries = np.concatenate([waiting, entries])
        bits = np.uint64(state.layout.number_bits)
        end = int(np.searchsorted(entries, (entries[-1] >> bits) << bits))
        yield _groups(state, documents, entries[:end])
        waiting = entries[end:]
    yield _groups(state, documents, waiting)
    resources.report(phase, done, total)


def _groups(state: IndexSnapshot, documents: Documents, entries: Words) -> Groups:
    stored, places = find_numbers(documents.numbers, state.layout.numbers(entries))
    keys = entries[stored] >> np.uint64(state.layout.number_bits)
    return Groups.from_owners(places.astype(np.uint64), np.cumsum(is_run_start(keys)) - 1)


# Clusters


def group_documents(state: IndexSnapshot, grouping: Grouping, resources: Resources) -> Clusters:
    """Return the clusters of a state: see :meth:`fpstore.lsh.LshStore.clusters`."""
    documents = Documents.from_snapshot(state, resources)
    sets = _kernel.Sets(len(documents.numbers))
    for groups in key_groups(state, documents, resources, PHASE_GROUPS):
        link(sets, documents.rows, groups, grouping.radius, DOCUMENT_WIDTH, resources)
    resources.report("grouping", 0)
    connected, _ = members_in_sets(sets.names(), np.arange(len(documents.numbers), dtype=np.uint32))

    def read_ids(places: Words) -> Words | list[str]:
        return ids_at(state.documents, documents.id_numbers[places.view(np.intp)])

    def read_rows(places: slice) -> Words:
        return rows_at(documents.rows, connected.documents[places])

    members = group_members(connected, grouping, read_rows, read_ids)
    id_numbers = documents.id_numbers[members.documents.view(np.intp)]
    return Clusters(members.lims, state.documents, id_numbers, len(documents.numbers))


# Pairs


class Pairs(Tabular, Generic[Id]):
    """A batch of pairs of similar documents, in columns. Iterates as (id, id, similarity).

    Attributes
    ----------
    similarities : ndarray of float64, shape (pairs,)
        What the signatures estimate; of some hashers, distances.
    """

    def __init__(
        self,
        state: IndexSnapshot,
        numbers: tuple[Words, Words],
        similarities: npt.NDArray[np.float64],
    ) -> None:
        self._state, self._numbers, self.similarities = state, numbers, similarities

    @overload
    def ids_a(self: Pairs[int]) -> Words: ...

    @overload
    def ids_a(self: Pairs[str]) -> list[str]: ...

    def ids_a(self) -> Any:
        """Return the id of the document of each pair that was inserted first."""
        return self._ids(0)

    @overload
    def ids_b(self: Pairs[int]) -> Words: ...

    @overload
    def ids_b(self: Pairs[str]) -> list[str]: ...

    def ids_b(self) -> Any:
        """Return the id of the other document of each pair."""
        return self._ids(1)

    def _ids(self, side: int) -> Words | list[str]:
        return ids_at(self._state.documents, self._numbers[side])

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return a ``pyarrow.Table``: ``id_a``, ``id_b``, ``similarity``.

        ``names`` has other names for some of them.
        """
        columns: NamedColumns = {
            "id_a": self._ids(0),
            "id_b": self._ids(1),
            "similarity": self.similarities,
        }
        return arrow_table([columns], names)

    def __len__(self) -> int:
        return len(self.similarities)

    def __iter__(self) -> Iterator[tuple[Id, Id, float]]:
        sides = [ids if isinstance(ids, list) else ids.tolist() for ids in map(self._ids, (0, 1))]
        return zip(*sides, self.similarities.tolist(), strict=True)

    def __repr__(self) -> str:
        return f"<fpstore.lsh.Pairs: {len(self):,} pairs>"

    def rows_of_ids(self) -> Iterator[NamedColumns]:
        for rows, (ids_a, ids_b) in ids_in_slices(
            [(self._state.documents, numbers) for numbers in self._numbers]
        ):
            yield {"id_a": ids_a, "id_b": ids_b, "similarity": self.similarities[rows]}


def pair_documents(
    state: IndexSnapshot, radius: int, estimates: npt.NDArray[np.float64], resources: Resources
) -> Iterator[Pairs]:
    """Yield each pair of documents that share a key and lie within the radius once.

    See :meth:`fpstore.lsh.LshStore.pairs`.
    """
    documents = Documents.from_snapshot(state, resources)
    sorter = Sorter(resources.memory // 2, None, threads=resources.threads)
    at_once = min(PAIRS_AT_ONCE, resources.memory // 4 // PAIR_BYTES)
    for groups in key_groups(state, documents, resources, PHASE_PAIRS):
        for a, b in _combine(groups, at_once):
            distances = signature_distances(documents.rows[a], documents.rows[b])
            near = distances <= radius
            codes = (a[near].astype(np.uint64) << np.uint64(WORD_BITS // 2)) | b[near].astype(
                np.uint64
            )
            sorter.add(codes, distances[near].astype(np.uint64))
    for part in sorter.groups(lambda rows: None):
        # a pair may share several keys
        distances = part.ids[(np.cumsum(part.counts) - part.counts).view(np.intp)]
        for start in range(0, len(part.keys), YIELDED_PAIRS):
            codes = part.keys[start : start + YIELDED_PAIRS]
            sides = codes >> np.uint64(WORD_BITS // 2), codes & np.uint64((1 << WORD_BITS // 2) - 1)
            numbers = (
                documents.id_numbers[sides[0].view(np.intp)],
                documents.id_numbers[sides[1].view(np.intp)],
            )
            yield Pairs(
                state, numbers, estimates[distances[start : start + YIELDED_PAIRS].astype(np.intp)]
            )


def _combine(
    groups: Groups, at_once: int
) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Yield all pairs of documents of each group, at most ``at_once`` in a batch."""
    sizes = np.diff(groups.lims)
    starts = list_lims(sizes * (sizes - 1) // 2)
    members = groups.members.view(np.intp)
    for start in range(0, int(starts[-1]), at_once):
        numbers = np.arange(start, min(start + at_once, int(starts[-1])))
        group = np.searchsorted(starts, numbers, side="right") - 1
        i, j = nth_combinations(numbers - starts[group], sizes[group])
        first = groups.lims[:-1][group]
        yield members[first + i], members[first + j]
