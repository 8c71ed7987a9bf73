"""Links between near-duplicates, and the connected components that they make.

See docs/design.md, "Beyond one machine".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from fpstore import _kernel
from fpstore.base.aliases import Words
from fpstore.base.arrays import differs, distinct_places, stable_order
from fpstore.base.resources import Resources
from fpstore.base.width import Width, row_words
from fpstore.jobs.bands import Groups, link, row_hashes
from fpstore.plans.pieces import Pieces, PieceWriter, joined
from fpstore.plans.shuffle import ROW_BITS, SliceRows
from fpstore.plans.slicing import Slicing
from fpstore.plans.stars import write_edges


class Links:
    """Links that connect rows, by their numbers.

    From the first of a set to each other row of it.
    """

    def __init__(self) -> None:
        self._a, self._b = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]

    def add(self, rows: SliceRows, sets: _kernel.Sets) -> None:
        """Take the sets of some rows."""
        firsts = sets.names()
        linked = np.flatnonzero(firsts != np.arange(len(firsts), dtype=firsts.dtype))
        self._a.append(rows.numbers[firsts[linked]])
        self._b.append(rows.numbers[linked])

    def write(self, writer: PieceWriter, star_bits: int | None) -> None:
        """Write all links."""
        write_links(writer, np.concatenate(self._a), np.concatenate(self._b), star_bits)


def write_links(writer: PieceWriter, a: Words, b: Words, star_bits: int | None) -> None:
    """Write links between rows with some numbers; for stars, in slices of their nodes."""
    if star_bits is not None:
        write_edges(writer, a, b, star_bits, both=True)
    else:
        writer.add("a", a)
        writer.add("b", b)


def find_repeats(
    fingerprints: Words, bands: Iterable[Words]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the places of rows that repeat an earlier one, and the place of that one, which repeats none.

    The two have one fingerprint, and one key in each of some bands: so what connects either with a
    third row connects both.
    """
    hashes = row_hashes(fingerprints)
    order = stable_order(hashes)
    new = differs(hashes[order])
    repeats, firsts = order[~new], order[new][np.cumsum(new)[~new] - 1]
    columns = chain(fingerprints.reshape(len(fingerprints), row_words(fingerprints)).T, bands)
    while len(repeats) and (values := next(columns, None)) is not None:
        same = values[repeats] == values[firsts]
        repeats, firsts = repeats[same], firsts[same]
    return repeats, firsts


def link_keys(rows: SliceRows, radius: int, width: Width, resources: Resources) -> _kernel.Sets:
    """Return the sets of rows that share a key and are within the radius."""
    sets, order = _kernel.Sets(len(rows.keys)), stable_order(rows.keys)
    owners = np.cumsum(differs(rows.keys[order])) - 1
    groups = Groups.of(order.astype(np.uint64), owners)
    link(sets, rows.fingerprints, groups, radius, width, resources)
    return sets


def link_equal(rows: SliceRows) -> _kernel.Sets:
    """Return the sets of rows with one fingerprint."""
    sets = _kernel.Sets(len(rows.numbers))
    _unite_equal(sets, *distinct_places(rows.fingerprints))
    return sets


def _unite_equal(
    sets: _kernel.Sets, distinct: Words, which: npt.NDArray[np.intp], united: bool = True
) -> Words:
    """Unite the rows of each fingerprint, unless they are already, and return the first row of each."""
    places = np.arange(len(which), dtype=np.uint64)
    firsts = np.empty(len(distinct), np.uint64)
    firsts[which[::-1]] = places[::-1]
    if united:
        sets.unite(places, firsts[which])
    return firsts


def link_table(rows: SliceRows, slicing: Slicing, table: int, resources: Resources) -> _kernel.Sets:
    """Return the sets of rows with one fingerprint, or that are within the radius and meet in a slice of a table of a join."""
    sets = _kernel.Sets(len(rows.numbers))
    distinct, which = distinct_places(rows.fingerprints)
    firsts = _unite_equal(sets, distinct, which, table == 0)  # all tables have the same equal rows
    index = _kernel.RowIndex(distinct)
    for links in slicing.links(distinct, table, resources._replace(progress=None)):
        sets.unite(*(firsts[index.places(some).view(np.intp)] for some in (links.a, links.b)))
    return sets


def write_components(writer: PieceWriter, links: Sequence[Pieces], parts: int) -> None:
    """Write, by parts, the number of each row that a link has, and the first number of its component."""
    nodes = _distinct_nodes(links)
    sets = _kernel.Sets(len(nodes))
    for one in links:
        sets.unite(*(np.searchsorted(nodes, one.read(end)).astype(np.uint64) for end in ("a", "b")))
    write_labels(writer, nodes, nodes[sets.names()], parts)


def _distinct_nodes(links: Sequence[Pieces]) -> Words:
    """Return the numbers that links have, ascending.

    Most have links in many bands, so no array has all ends.
    """
    held, count = [np.empty(0, np.uint64)], 0
    for one in links:
        held += [one.read(end) for end in ("a", "b")]
        count += len(held[-1]) + len(held[-2])
        if count > len(held[0]):
            held, count = [_distinct(held)], 0
    return _distinct(held)


def _distinct(held: list[Words]) -> Words:
    """Return the numbers in some arrays, each once, ascending."""
    numbers = np.concatenate(held)
    _kernel.sort_keys(numbers, np.empty_like(numbers))
    return numbers[differs(numbers)]


def write_labels(writer: PieceWriter, nodes: Words, labels: Words, parts: int) -> None:
    """Write ascending numbers and their labels, by parts."""
    bounds = np.searchsorted(
        nodes, np.arange(parts + 1, dtype=np.uint64) << np.uint64(ROW_BITS)
    ).tolist()
    slices = [np.arange(start, end) for start, end in pairwise(bounds)]
    writer.add_slices("rows", nodes, slices)
    writer.add_slices("labels", labels, slices)


def read_labels(components: Sequence[Pieces], part: int) -> tuple[Words, Words]:
    """Return the numbers of the rows of a part that are in components, ascending, and the components."""
    numbers, labels = joined(components, "rows", part), joined(components, "labels", part)
    order = stable_order(numbers)
    numbers, labels = numbers[order], labels[order]
    kept = differs(numbers)  # the least of a component is in several slices
    return numbers[kept], labels[kept]
