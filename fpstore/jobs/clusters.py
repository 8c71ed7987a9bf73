"""Clusters of near-duplicates: connected components of documents within a radius."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Lims, Progress, Words
from fpstore.base.arguments import check_choice, check_whole
from fpstore.base.arrays import HALF_BITS, is_run_start, list_numbers, stable_order
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.base.threads import cached_property
from fpstore.errors import CorruptStoreError, InputError, plural
from fpstore.io.tables import Tabular, arrow_table, values_at
from fpstore.jobs import GROUPINGS, REPRESENTATIVES
from fpstore.jobs.evidence import SHOWN_DIGITS, Evidence
from fpstore.jobs.grouping import Grouping, Numbers, group_members, members_in_sets
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.pairs import join_design, load_fingerprints
from fpstore.jobs.variants import RowVariants
from fpstore.query.id_lookup import ID_SLICE_ROWS, IdLookup, InMemoryIds, ids_at, ids_in_slices
from fpstore.query.snapshot import Snapshot
from fpstore.work.checkpoint import Checkpoint

if TYPE_CHECKING:
    from fpstore.hashing.image import ImageHash
    from fpstore.io import Writer

CLUSTER_COLUMNS = ("id", "cluster", "representative")
CORPUS_COLUMNS = (*CLUSTER_COLUMNS, "distance")  # where fingerprints decide
TEXT_CLUSTER_COLUMNS = (*CLUSTER_COLUMNS, "similarity")
MAX_DOCUMENTS = 2**63 - 1
SET_BYTES = 5  # for each fingerprint: its set, and its share of an index
DENSE = 4  # flags tell different numbers if the largest is below this many times their count


class Clusters(Tabular):
    """Clusters of two or more documents, of a store or a corpus.

    Iterates as one list of ids per cluster.

    Attributes
    ----------
    documents : int
        All documents, in clusters or alone; of a corpus all rows.
    lims : ndarray of int64, shape (clusters + 1,)
        The ids of cluster c are ``ids[lims[c]:lims[c + 1]]``.
    evidence : dict of str to ndarray, shape (members,)
        Of a corpus: what each document has in common with the representative, as for `Removed`.
    """

    def __init__(
        self,
        lims: Lims,
        names: IdLookup,
        numbers: Words,
        documents: int,
        evidence: Evidence | None = None,
    ) -> None:
        self.lims = lims
        self.documents = documents
        self.evidence = {} if evidence is None else evidence
        self._names, self._numbers = names, numbers  # of the members

    @cached_property
    def ids(self) -> Words | list[str]:
        """The documents of each cluster, the representative first.

        Uint64, shape (members,), or a list of str.
        """
        return ids_at(self._names, self._numbers)

    def in_memory(self) -> Clusters:
        """Return the clusters with all ids in memory."""
        numbers = np.arange(len(self._numbers), dtype=np.uint64)
        return Clusters(self.lims, InMemoryIds(self.ids), numbers, self.documents, self.evidence)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The number of documents of each cluster."""
        return np.diff(self.lims)

    @property
    def duplicates(self) -> int:
        """The number of documents that a deduplication removes: all but the representatives."""
        return int(self.lims[-1]) - len(self)

    def histogram(self) -> dict[str, int]:
        """Return the number of clusters by size: 2, 3, ``4-7``, ``8-15``, and so on.

        Sizes without clusters are left out.
        """
        exponents = np.frexp(self.sizes)[1] - 1
        counts = {"2": int(np.sum(self.sizes == 2)), "3": int(np.sum(self.sizes == 3))}
        for exponent in range(2, int(exponents.max(initial=1)) + 1):
            counts[f"{1 << exponent}-{(2 << exponent) - 1}"] = int(np.sum(exponents == exponent))
        return {size: count for size, count in counts.items() if count}

    def largest(self, count: int) -> list[list[int] | list[str]]:
        """Return the largest clusters, of equal ones the first."""
        count = check_whole(count, 0, MAX_DOCUMENTS, "count")
        return [self[place] for place in self.by_size()[:count].tolist()]

    def by_size(self) -> npt.NDArray[np.intp]:
        """Return the numbers of all clusters, the largest first, and of equal ones the first."""
        sizes = self.sizes
        return stable_order(sizes.max(initial=0) - sizes)

    def columns(self) -> dict[str, Any]:
        """Return a row per document in a cluster.

        The columns are ``id``, the number of the ``cluster``, and the id of its ``representative``;
        for a corpus also the ``similarity`` to the representative or, where fingerprints decide,
        the ``distance`` from it.
        """
        cluster = list_numbers(self.lims)
        representatives = values_at(self.ids, self.lims[cluster])
        columns = {
            "id": self.ids,
            "cluster": cluster.astype(np.uint64),
            "representative": representatives,
        }
        return columns | self._shown(slice(None))

    def _shown(self, rows: slice) -> dict[str, Any]:
        if "similarity" in self.evidence:
            return {"similarity": np.round(self.evidence["similarity"][rows], SHOWN_DIGITS)}
        return {name: self.evidence[name][rows] for name in self.evidence if name == "distance"}

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the :meth:`columns` in batches of at most 65,536 rows.

        Without clusters, there is one batch without rows. A column of strings has at most 4 MiB, or
        one row.
        """
        count = len(self._numbers)
        for start in range(0, max(count, 1), ID_SLICE_ROWS):
            end = min(start + ID_SLICE_ROWS, count)
            cluster = np.searchsorted(self.lims, np.arange(start, end), side="right") - 1
            id_columns = [
                (self._names, numbers)
                for numbers in (self._numbers[start:end], self._numbers[self.lims[cluster]])
            ]
            for rows, (ids, representatives) in ids_in_slices(id_columns):
                columns = {
                    "id": ids,
                    "cluster": cluster[rows].astype(np.uint64),
                    "representative": representatives,
                }
                yield columns | self._shown(slice(start + rows.start, start + rows.stop))

    def to_arrow(self, *, names: Mapping[str, str] | None = None) -> Any:
        """Return the :meth:`columns` as a ``pyarrow.Table``.

        See :meth:`fpstore.Matches.to_arrow`. ``cluster`` is uint64; ids are uint64 or string
        (large_string above 2 GiB).
        """
        return arrow_table(self.batches(), names)

    def __len__(self) -> int:
        return len(self.lims) - 1

    @overload
    def __getitem__(self, place: int) -> list[int] | list[str]: ...
    @overload
    def __getitem__(self, place: slice) -> list[list[int] | list[str]]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(len(self))[place]]
        return self.first(range(len(self))[place], int(self.lims[-1]))

    def first(self, place: int, count: int) -> list[int] | list[str]:
        """Return the first documents of a cluster."""
        place = check_whole(place, 0, len(self) - 1, "place")
        count = check_whole(count, 0, MAX_DOCUMENTS, "count")
        start, end = self.lims[place : place + 2].tolist()
        members = ids_at(self._names, self._numbers[start : min(end, start + count)])
        return members if isinstance(members, list) else members.tolist()

    def __iter__(self) -> Iterator[list[int] | list[str]]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        among = f"{int(self.lims[-1]):,} among {plural(self.documents, 'document')}"
        return f"<fpstore.Clusters: {plural(len(self), 'cluster')} of {among}>"


def write_clusters(clusters: Clusters, writer: Writer, progress: Progress | None) -> None:
    total, done = int(clusters.lims[-1]), 0
    for data in clusters.batches():
        if progress is not None:
            progress("writing clusters", done, total)
        writer.write(data)
        done += len(data["id"])


def cluster_grouping(
    radius: int, group: str | None, keep: str, fingerprinter: Mapping[str, Any] | None
) -> Grouping:
    """Return the grouping of a store's documents; InputError if an argument is wrong.

    By default chains connect clusters. Those of pictures and MinHash are greedy, as their chains
    lead from any document to any other.
    """
    if group is None:
        from fpstore.hashing.registry import usual_group

        group = GROUPINGS[0] if fingerprinter is None else usual_group(fingerprinter)
    return Grouping(
        radius, check_choice(group, GROUPINGS, "group"), check_choice(keep, REPRESENTATIVES, "keep")
    )


def find_clusters(
    snapshot: Snapshot,
    grouping: Grouping,
    resources: Resources,
    checkpoint: Checkpoint | None = None,
    oriented: ImageHash | None = None,
) -> Clusters:
    """Return the clusters of a snapshot, whose ids are read on demand.

    See :meth:`fpstore.Store.clusters`. With ``oriented``, pictures are near mirrored and turned
    ones.
    """
    variants = None if oriented is None else RowVariants.read(snapshot, oriented, resources)
    rows, remaining = load_fingerprints(snapshot, resources)
    remaining = remaining._replace(
        memory=max(remaining.memory - SET_BYTES * len(rows), remaining.memory // 4)
    )
    sets = (
        connect_rows(
            rows, join_design(rows, grouping.radius, snapshot.width), remaining, checkpoint
        )
        if variants is None
        else variants.connect(grouping.radius, remaining)
    )
    resources.report("grouping", 0)
    fingerprints = rows if grouping.needs_fingerprints else None
    del rows  # memory for the documents
    documents = _documents(snapshot, sets, grouping.needs_fingerprints)
    del sets
    # a document with several fingerprints connects their clusters
    if not are_distinct(documents.numbers):
        documents = _unite_documents(documents)
        if grouping.needs_fingerprints:
            name, value = ("group", "greedy") if grouping.group == "greedy" else ("keep", "central")
            more = plural(snapshot.totals.ids - len(documents.numbers), "fingerprint")
            raise InputError(
                f"{keyword(name, value)} needs documents of one fingerprint each, but some have "
                f"several: {more} more than documents; choose {keyword('group', 'connected')} and "
                f"{keyword('keep', 'first')}"
            )
    members, members_at = members_in_sets(documents.sets, documents.numbers)

    def member_places(span: slice) -> npt.NDArray[Any]:
        places = members_at[span].view(np.intp)
        return places if documents.owners is None else documents.owners[places]

    def member_rows(span: slice) -> Words:
        assert fingerprints is not None
        rows: Words = fingerprints[member_places(span)]
        return rows

    members = group_members(
        members,
        grouping,
        member_rows,
        lambda numbers: ids_at(snapshot, numbers),
        variants=None
        if variants is None or not grouping.needs_fingerprints
        else variants.at(member_places(slice(None))),
    )
    return Clusters(members.lims, snapshot, members.documents, len(documents.numbers))


class _Documents(NamedTuple):
    """The documents of each fingerprint, one after the other."""

    numbers: Numbers
    sets: Numbers  # the sets of their fingerprints
    # places of their fingerprints; None if equal to their own places, or not needed
    owners: Numbers | None = None


def _documents(snapshot: Snapshot, sets: Numbers, owned: bool) -> _Documents:
    """Return the documents of a snapshot with the sets of their fingerprints.

    If ``owned``, they have the places of their fingerprints, too. Numbers of 32 bits take half of
    the memory.
    """
    count = snapshot.totals.ids
    numbers: npt.NDArray[Any] = np.empty(count, np.uint32)
    single = count == len(sets)
    document_sets = sets if single else np.empty(count, sets.dtype)
    owners = np.empty(count, sets.dtype) if owned and not single else None
    done = first = 0
    for _, counts, ids in snapshot.groups():
        end, last, sizes = done + len(ids), first + len(counts), counts.astype(np.int64)
        if end > count or last > len(sets):
            break
        if numbers.dtype == np.uint32 and int(ids.max()) >> HALF_BITS:
            numbers = numbers.astype(np.uint64)
        numbers[done:end] = ids
        if not single:
            document_sets[done:end] = np.repeat(sets[first:last], sizes)
        if owners is not None:
            owners[done:end] = np.repeat(np.arange(first, last), sizes)
        done, first = end, last
    else:
        if done == count:
            return _Documents(numbers, document_sets, owners)
    path = snapshot.folder
    raise CorruptStoreError(f"{path}: does not hold {count} rows", path=path, expected=count)


def are_distinct(documents: Numbers) -> bool:
    """Return whether all numbers differ: by flags where they are dense, otherwise by sorting."""
    most = int(documents.max()) if len(documents) else 0
    if len(documents) and most >= DENSE * len(documents):
        return bool(is_run_start(documents[stable_order(documents)]).all())
    flags = np.zeros(most + 1, bool)
    flags[documents] = True
    return int(np.count_nonzero(flags)) == len(documents)


def _unite_documents(documents: _Documents) -> _Documents:
    numbers, sets, _ = documents
    order = stable_order(numbers)
    first = is_run_start(numbers[order])
    repeats = np.flatnonzero(~first)
    united = _kernel.Sets(int(sets.max()) + 1)
    united.unite(*(sets[order[places]].astype(np.uint64) for places in (repeats, repeats - 1)))
    is_first = np.zeros(len(sets), bool)
    is_first[order[first]] = True
    return _Documents(numbers[is_first], united.names()[sets[is_first]])
