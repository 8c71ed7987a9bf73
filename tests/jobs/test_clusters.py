"""Clusters against the connected components that SciPy finds in the graph of all pairs; families that are too large to list."""

import numpy as np
import pytest
from column_sets import as_given, bits_to_words, make_set
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from speeds import SOME_WIDTHS

import fpstore
from fpstore.base.resources import Resources
from fpstore.base.width import WIDTHS, Width
from fpstore.design.joins import everything, plan_join
from fpstore.jobs import joining
from fpstore.jobs.joining import connected, links_within
from fpstore.jobs.pairs import join_design
from fpstore.store import snapshot_of

SMALL = Resources(1 << 12, 2)


def distances_of(bits):
    """Return the distances of all rows to each other, by NumPy alone."""
    ones = bits.astype(np.float32)  # exact, and faster than integers
    return ones @ (1 - ones).T + (1 - ones) @ ones.T


def components(bits, radius):
    """Return the components of two or more rows, as sets of their numbers, by SciPy."""
    _, labels = connected_components(csr_array(distances_of(bits) <= radius), directed=False)
    found = {}
    for row, label in enumerate(labels.tolist()):
        found.setdefault(label, set()).add(row)
    return {frozenset(rows) for rows in found.values() if len(rows) > 1}


def uniform(width, count, rng):
    return rng.integers(0, 2, (count, width), np.uint8)


def flip(bits, places):
    """Flip in each row the bits at some places."""
    out = bits.copy()
    np.put_along_axis(out, places, 1 - np.take_along_axis(out, places, 1), 1)
    return out


def chains(width, radius, rng, step=None):
    """Return walks from random rows, each step of which goes as far as the radius, along bits that are not used again."""
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
    rows = [flip(np.repeat(centre[None], 20, 0), rng.permuted(np.tile(np.arange(width), (20, 1)), axis=1)[:, : radius // 2])
            for centre in centres]  # fmt: skip
    bridges = []
    for a, b in zip(centres[0::2], centres[1::2], strict=True):
        row = a.copy()
        for place in np.flatnonzero(a != b):
            row[place] ^= 1
            if rng.random() < 0.97:  # a bridge with a gap, if the radius is small
                bridges.append(row.copy())
    return np.concatenate([*rows, np.array(bridges)])


def corners(width, radius, rng):
    """Return rows of one block only, next to 0 and next to all ones: those of a bucket, and of its farthest one."""
    block = rng.permutation(width)[: min(width, 12)]
    rows = np.zeros((300, width), np.uint8)
    rows[:, block] = rng.integers(0, 2, (300, len(block)))
    rows[150:] ^= 1
    return rows


def dense(width, radius, rng):
    """Return all numbers of nine bits, anywhere, whose distances are 1 to 9."""
    rows = np.repeat(uniform(width, 1, rng), 512, 0)
    rows[:, rng.permutation(width)[:9]] = np.arange(512)[:, None] >> np.arange(9) & 1
    return rows


def clustered(width, radius, rng):
    words = make_set("clustered", width, 500, rng)
    return np.unpackbits(words.astype(">u8").view(np.uint8).reshape(len(words), -1), axis=1)[:, :width]


SHAPES = {
    "uniform": lambda width, radius, rng: uniform(width, 400, rng),
    "clustered": clustered,
    "chains": chains,
    "chains with steps too long": lambda width, radius, rng: chains(width, radius, rng, radius + 1),
    "bridged": bridged,
    "corners": corners,
    "dense": dense,
}


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_clusters_are_the_connected_components(tmp_path, monkeypatch, width, shape, part):
    monkeypatch.setattr(joining, "LEAST_ROWS", 50)
    radii = (0, 1, 2, 3, 5, 8, 12, width // 3)
    for radius in radii[(WIDTHS.index(width) + list(SHAPES).index(shape) + part) % 4 :: 4]:
        rng = np.random.default_rng([width, radius, len(shape)])
        bits = SHAPES[shape](width, radius, rng)
        bits = np.concatenate([bits, bits[::17]])  # and documents with the fingerprint of another one
        rows = Width(width).outside(as_given(bits_to_words(bits)))
        wanted = components(bits, radius)
        assert wanted
        with fpstore.build(tmp_path / f"s{radius}", rows, width=width, radius=1) as store:
            for found in (store.clusters(radius), store.clusters(radius, threads=2)):
                assert {frozenset(members) for members in found} == wanted
                assert found.lims[-1] == sum(map(len, wanted))
            distinct = next(snapshot_of(store).fingerprints())
        sets = connected(distinct, join_design(distinct, radius, Width(width)), SMALL)
        assert len(np.unique(sets)) == connected_components(csr_array(distances_of(np.unique(bits, axis=0)) <= radius))[0]


# --- Families of a million ------------------------------------------------------------------------


def test_a_million_documents_of_one_fingerprint(tmp_path):
    count = 1 << 20
    fingerprints = np.full(count + 2, 0x0123_4567_89AB_CDEF, np.uint64)
    fingerprints[-2:] = [1, 3]
    with fpstore.build(tmp_path / "s", fingerprints, radius=1) as store:
        found = store.clusters()
        assert found.sizes.tolist() == [count, 2]
        assert np.array_equal(found.ids, np.arange(count + 2))
        assert [tuple(pair) for batch in store.pairs() for pair in batch] == [(1, 3, 1)]
        for options in ({"keep": "central"}, {"group": "greedy"}):
            assert store.clusters(**options).sizes.tolist() == [count, 2]


@pytest.mark.parametrize("width", SOME_WIDTHS)
@pytest.mark.parametrize("count", [513, 700, 3000])
def test_large_buckets_are_linked_group_by_group(width, count):
    """One bucket has all rows, so it is split by both parts of the tags into groups that are small, dense, or large."""
    rng = np.random.default_rng([width, count])
    centres = uniform(width, count, rng)
    centres[count // 3 :] = centres[0]  # one large group of equal tags
    flips = rng.integers(0, 2, (count, width), np.uint8) * (rng.random((count, width)) < 3 / width)
    flips[: count // 3] *= rng.random((count // 3, 1)) < 0.5
    bits = np.unique(centres ^ flips, axis=0)
    rows = as_given(bits_to_words(bits))
    for room in (512, 1 << 18):
        joining_room(room, rows, bits, width)


def joining_room(room, rows, bits, width):
    """Compare the sets of rows, for which links come in batches of so many, with SciPy's components."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joining, "BATCH_PAIRS", room)
        links = sum(len(part.a) for part in links_within(rows, everything(1, width)))
        sets = connected(rows, everything(1, width))
    assert links < 2 * len(rows)
    groups = {}
    for row, name in enumerate(sets.tolist()):
        groups.setdefault(name, set()).add(row)
    assert {frozenset(group) for group in groups.values() if len(group) > 1} == components(bits, 1)


def test_two_to_the_17_rows_that_are_all_near_each_other(tmp_path, monkeypatch):
    """They have 2^33 pairs; what is found to connect them is less than a link for each row of each table."""
    rows = np.arange(1 << 17, dtype=np.uint64) << np.uint64(13)
    links = 0

    def counted(*arguments):
        nonlocal links
        for part in links_within(*arguments):
            links += len(part.a)
            yield part

    monkeypatch.setattr("fpstore.jobs.joining.links_within", counted)
    with fpstore.build(tmp_path / "s", rows, radius=1) as store:
        found = store.clusters(17)
    assert found.sizes.tolist() == [len(rows)]
    assert len(rows) - 1 <= links < len(rows) * len(plan_join(len(rows), 17, 64).tables)
