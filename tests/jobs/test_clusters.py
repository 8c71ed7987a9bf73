"""Clusters against the connected components that SciPy finds; families that are too large to list.

Groups in any pieces.
"""

import itertools

import numpy as np
import pytest
from column_sets import bits_to_words, kernel_rows, make_set
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from speeds import SOME_WIDTHS, slow

import fpstore
from fpstore.base import arrays
from fpstore.base.arrays import list_lims, spans
from fpstore.base.resources import Resources
from fpstore.base.width import WIDTHS, Width
from fpstore.design.joins import scan_design
from fpstore.jobs.joining import connect_rows, pairs_within
from fpstore.jobs.pairs import join_design


def distances_of(bits):
    """Return the distances of all rows to each other, by NumPy alone."""
    ones = bits.astype(np.float32)  # exact, and faster than integers
    return ones @ (1 - ones).T + (1 - ones) @ ones.T


def components(bits, radius):
    """Return the components of two or more rows, as sets of their numbers, by SciPy."""
    _, labels = connected_components(csr_array(distances_of(bits) <= radius), directed=False)
    collected = {}
    for row, label in enumerate(labels.tolist()):
        collected.setdefault(label, set()).add(row)
    return {frozenset(rows) for rows in collected.values() if len(rows) > 1}


def uniform(width, count, rng):
    return rng.integers(0, 2, (count, width), np.uint8)


def chains(width, radius, rng, step=None):
    """Return walks from random rows; a step flips ``radius`` bits that its walk has not used."""
    step = radius if step is None else step
    rows = []
    for _ in range(6):
        order = rng.permutation(width)
        rows.append(uniform(width, 1, rng)[0])
        for place in range(0, width - step + 1, max(step, 1)):
            row = rows[-1].copy()
            row[order[place : place + step]] ^= 1
            rows.append(row)
    return np.array(rows)


def bridged(width, radius, rng):
    """Return balls of rows, of which some are connected by a single row between them."""
    centres = uniform(width, 12, rng)
    rows = np.repeat(centres, 20, 0)
    for row in rows:
        row[rng.permutation(width)[: radius // 2]] ^= 1
    bridges = []
    for a, b in zip(centres[0::2], centres[1::2], strict=True):
        row = a.copy()
        for place in np.flatnonzero(a != b):
            row[place] ^= 1
            if rng.random() < 0.97:  # a bridge with a gap, if the radius is small
                bridges.append(row.copy())
    return np.concatenate([rows, np.array(bridges)])


def dense(width, radius, rng):
    """Return all numbers of nine bits, anywhere, whose distances are 1 to 9."""
    rows = np.repeat(uniform(width, 1, rng), 512, 0)
    rows[:, rng.permutation(width)[:9]] = np.arange(512)[:, None] >> np.arange(9) & 1
    return rows


def clustered(width, radius, rng):
    words = make_set("clustered", width, 500, rng)
    return np.unpackbits(words.astype(">u8").view(np.uint8).reshape(len(words), -1), axis=1)[
        :, :width
    ]


SHAPES = {
    "uniform": lambda width, radius, rng: uniform(width, 400, rng),
    "clustered": clustered,
    "chains": chains,
    "chains with steps too long": lambda width, radius, rng: chains(width, radius, rng, radius + 1),
    "bridged": bridged,
    "dense": dense,
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", [0, *map(slow, (1, 2, 3))])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_clusters_are_the_connected_components(tmp_path, set_limits, width, shape, part):
    set_limits(join_rows=50, join_part_rows=20)
    radii = (0, 1, 2, 3, 5, 8, 12, width // 3)
    for radius in radii[(WIDTHS.index(width) + list(SHAPES).index(shape) + part) % 4 :: 4]:
        rng = np.random.default_rng([width, radius, len(shape)])
        bits = SHAPES[shape](width, radius, rng)
        # and documents with the fingerprint of another one
        bits = np.concatenate([bits, bits[::17]])
        rows = Width(width).to_array(kernel_rows(bits_to_words(bits)))
        wanted = components(bits, radius)
        assert wanted
        with fpstore.build(tmp_path / f"s{radius}", rows, width=width, radius=1) as store:
            for item in (store.clusters(radius), store.clusters(radius, threads=2)):
                assert {frozenset(members) for members in item} == wanted
                assert item.lims[-1] == sum(map(len, wanted))
            distinct = next(store.snapshot().fingerprints())
        sets = connect_rows(
            distinct, join_design(distinct, radius, Width(width)), Resources(1 << 12, 2)
        )
        assert (
            len(np.unique(sets))
            == connected_components(csr_array(distances_of(np.unique(bits, axis=0)) <= radius))[0]
        )


# --- Families of a million ------------------------------------------------------------------------


def test_a_million_documents_of_one_fingerprint(tmp_path):
    count = 1 << 20
    fingerprints = np.full(count + 2, 0x0123_4567_89AB_CDEF, np.uint64)
    fingerprints[-2:] = [1, 3]
    with fpstore.build(tmp_path / "s", fingerprints, radius=1) as store:
        clusters = store.clusters()
        assert clusters.sizes.tolist() == [count, 2]
        assert np.array_equal(clusters.ids, np.arange(count + 2))
        assert [tuple(pair) for batch in store.pairs() for pair in batch] == [(1, 3, 1)]
        for options in ({"keep": "central"}, {"group": "greedy"}):
            assert store.clusters(**options).sizes.tolist() == [count, 2]


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_large_buckets_are_linked_group_by_group(set_limits, width):
    """Both parts of the tags split one bucket of all rows into small, dense and large groups."""
    for count, room in itertools.product((513, 700, 3000), (512, 1 << 18)):
        rng = np.random.default_rng([width, count])
        centres = uniform(width, count, rng)
        centres[count // 3 :] = centres[0]  # one large group of equal tags
        flips = rng.integers(0, 2, (count, width), np.uint8) * (
            rng.random((count, width)) < 3 / width
        )
        flips[: count // 3] *= rng.random((count // 3, 1)) < 0.5
        bits = np.unique(centres ^ flips, axis=0)
        rows = kernel_rows(bits_to_words(bits))
        set_limits(join_pairs=room)
        assert sum(
            len(part.a) for part in pairs_within(rows, scan_design(1, width), linked=True)
        ) < 2 * len(rows)
        groups = {}
        for row, name in enumerate(connect_rows(rows, scan_design(1, width)).tolist()):
            groups.setdefault(name, set()).add(row)
        assert {frozenset(group) for group in groups.values() if len(group) > 1} == components(
            bits, 1
        )


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_orders_and_lists_are_those_of_numpy(rng):
    for values in (
        rng.integers(0, 5, 50),
        rng.integers(0, 2**64, 50, np.uint64),
        rng.choice([-np.inf, -0.0, 0.0, 2.0], 50),
    ):
        for part in (values[:0], values[:1], values):
            order = arrays.stable_order(part)
            assert order.tolist() == np.argsort(part, kind="stable").tolist(), part.dtype
            ascending = part[order]
            first = np.append(True, ascending[1:] != ascending[:-1])[: len(part)]
            assert arrays.is_run_start(ascending).tolist() == first.tolist()
    # NumPy adds unsigned and signed numbers as floats, which have 53 bits.
    assert list_lims(np.array([1 << 60, 1], np.uint64)).tolist() == [0, 1 << 60, (1 << 60) + 1]
    sizes = rng.integers(1, 12, 40)
    lims = list_lims(sizes)
    assert arrays.list_numbers(lims).tolist() == np.repeat(np.arange(40), sizes).tolist()
    for most in (1, 7, 1 << 20):
        cut = list(spans(lims, most))
        assert [n for span in cut for n in range(span.start, span.stop)] == list(range(40))
        assert all(lims[s.stop] - lims[s.start] <= most or s.stop == s.start + 1 for s in cut)


@pytest.mark.full
@pytest.mark.parametrize("strings", [False, True])
def test_clusters_in_any_pieces(set_limits, tmp_path, rng, strings):
    base = rng.integers(0, 2**64, 300, dtype=np.uint64)
    rows = np.concatenate([base, base[:200] ^ np.uint64(1), base[:100] ^ np.uint64(8), base[:50]])
    rng.shuffle(rows)
    ids = (
        [f"é{n}" for n in rng.permutation(len(rows))]
        if strings
        else rng.permutation(len(rows)).astype(np.uint64)
    )
    calls = [
        (group, rule)
        for group in ("connected", "greedy")
        for rule in ("first", "smallest", "central")
    ]
    with fpstore.build(tmp_path / "s", rows, ids) as store:
        wanted = [list(store.clusters(group=group, keep=rule)) for group, rule in calls]
        assert wanted[0]
        for size in (1, 3, 100):
            set_limits(grouped_members=size)
            assert [list(store.clusters(group=group, keep=rule)) for group, rule in calls] == wanted
