"""Links between near-duplicates, and their connected components.

See docs/design.md, "Beyond one machine".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import (
    NO_WORDS,
    distinct_places,
    is_run_start,
    repeated_places,
    stable_order,
)
from fpstore.base.resources import Resources
from fpstore.base.width import Width, row_words
from fpstore.jobs.bands import Groups, link, row_hashes
from fpstore.plans.shuffle import ROW_BITS, SliceRows
from fpstore.plans.slicing import Slicing
from fpstore.plans.stars import write_edges
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays


class Links:
    """Links between numbers of rows: from the first row of a set to each other row."""

    def __init__(self) -> None:
        self._a, self._b = [NO_WORDS], [NO_WORDS]

    def add(self, rows: SliceRows, sets: _kernel.Sets) -> None:
        """Add the sets of rows that share a slice."""
        firsts = sets.names()
        linked = np.flatnonzero(firsts != np.arange(len(firsts), dtype=firsts.dtype))
        self._a.append(rows.numbers[firsts[linked]])
        self._b.append(rows.numbers[linked])

    def write(self, writer: PieceWriter, star_bits: int | None) -> None:
        write_links(writer, np.concatenate(self._a), np.concatenate(self._b), star_bits)


def write_links(writer: PieceWriter, a: Words, b: Words, star_bits: int | None) -> None:
    """Write links between numbers of rows; for stars, in slices of their nodes."""
    if star_bits is not None:
        write_edges(writer, a, b, star_bits, both=True)
    else:
        writer.add("a", a)
        writer.add("b", b)


def find_repeats(
    fingerprints: Words, bands: Iterable[Words]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of rows that repeat an earlier row, and the place of that first row.

    The two have the same fingerprint and the same key in each band, so any link to one of them
    connects both.
    """
    repeats, firsts = repeated_places(row_hashes(fingerprints))
    columns = chain(fingerprints.reshape(len(fingerprints), row_words(fingerprints)).T, bands)
    while len(repeats) and (values := next(columns, None)) is not None:
        same = values[repeats] == values[firsts]
        repeats, firsts = repeats[same], firsts[same]
    return repeats, firsts


def link_keys(rows: SliceRows, radius: int, width: Width, resources: Resources) -> _kernel.Sets:
    """Return the sets of rows that share a key and are within the radius."""
    sets, order = _kernel.Sets(len(rows.keys)), stable_order(rows.keys)
    owners = np.cumsum(is_run_start(rows.keys[order])) - 1
    groups = Groups.from_owners(order.astype(np.uint64), owners)
    link(sets, rows.fingerprints, groups, radius, width, resources)
    return sets


def link_equal(rows: SliceRows) -> _kernel.Sets:
    """Return the sets of rows with the same fingerprint."""
    sets = _kernel.Sets(len(rows.numbers))
    _unite_equal(sets, *distinct_places(rows.fingerprints))
    return sets


def _unite_equal(
    sets: _kernel.Sets, distinct: Words, owners: npt.NDArray[np.intp], unite: bool = True
) -> Words:
    """Unite equal rows, unless ``unite`` is false; return the first row of each fingerprint."""
    places = np.arange(len(owners), dtype=np.uint64)
    firsts = np.empty(len(distinct), np.uint64)
    firsts[owners[::-1]] = places[::-1]
    if unite:
        sets.unite(places, firsts[owners])
    return firsts


def link_table(rows: SliceRows, slicing: Slicing, table: int, resources: Resources) -> _kernel.Sets:
    """Return the sets of equal rows, and of near rows that meet in a slice of a table."""
    sets = _kernel.Sets(len(rows.numbers))
    distinct, owners = distinct_places(rows.fingerprints)
    # all tables have the same equal rows: the first one unites them
    firsts = _unite_equal(sets, distinct, owners, table == 0)
    index = _kernel.RowIndex(distinct)
    for links in slicing.links(distinct, table, resources._replace(progress=None)):
        sets.unite(*(firsts[index.places(side).view(np.intp)] for side in (links.a, links.b)))
    return sets


def write_components(writer: PieceWriter, links: Sequence[Pieces], parts: int) -> None:
    """Write the number and the component of each linked row, by parts.

    A component has the least number of its rows.
    """
    nodes = _distinct_nodes(links)
    sets = _kernel.Sets(len(nodes))
    for pieces in links:
        sets.unite(
            *(np.searchsorted(nodes, pieces.read(end)).astype(np.uint64) for end in ("a", "b"))
        )
    write_labels(writer, nodes, nodes[sets.names()], parts)


def _distinct_nodes(links: Sequence[Pieces]) -> Words:
    """Return the numbers of linked rows, ascending.

    Most have links in many bands, so no array has all ends.
    """
    batches, count = [NO_WORDS], 0
    for pieces in links:
        batches += [pieces.read(end) for end in ("a", "b")]
        count += len(batches[-1]) + len(batches[-2])
        if count > len(batches[0]):
            batches, count = [_distinct_numbers(batches)], 0
    return _distinct_numbers(batches)


def _distinct_numbers(batches: list[Words]) -> Words:
    """Return the distinct numbers of several arrays, ascending."""
    numbers = np.concatenate(batches)
    _kernel.sort_keys(numbers, np.empty_like(numbers))
    return numbers[is_run_start(numbers)]


def write_labels(writer: PieceWriter, nodes: Words, labels: Words, parts: int) -> None:
    """Write ascending numbers and their labels, by parts."""
    bounds = np.searchsorted(
        nodes, np.arange(parts + 1, dtype=np.uint64) << np.uint64(ROW_BITS)
    ).tolist()
    slices = [np.arange(start, end) for start, end in pairwise(bounds)]
    writer.add_slices("rows", nodes, slices)
    writer.add_slices("labels", labels, slices)


def read_labels(components: Sequence[Pieces], part: int) -> tuple[Words, Words]:
    """Return the linked rows of a part, ascending, and their components."""
    numbers, labels = (
        concatenate_arrays(components, "rows", part),
        concatenate_arrays(components, "labels", part),
    )
    order = stable_order(numbers)
    numbers, labels = numbers[order], labels[order]
    is_new = is_run_start(numbers)  # the least of a component is in several slices
    return numbers[is_new], labels[is_new]
