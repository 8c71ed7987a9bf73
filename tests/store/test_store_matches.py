"""What probe, probe_many, scan and nearest return, against brute force.

Every width, design, radius and kind of set.
"""

import random

import numpy as np
import pytest
import tableimage
from sets import make_set
from small_stores import numbers_of
from speeds import crossed

import fpstore
from fpstore.design import families as design_module
from fpstore.design.blocks import CODECS

# probes beyond the store's radius are meant
pytestmark = pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")

KINDS = (
    *tableimage.KINDS,
    *("near", "half", "low-half", "few-prefixes", "families"),
    *("none", "one", "ends", "all-equal", "zero", "adjacent", "top", "powers"),
)
# A case has a width, a design and a radius, then a kind of set and its size.
DESIGNS = (
    (64, "manku-4", 3),
    (64, "manku-20", 3),
    (64, "manku-28", 6),
    (64, "flip-2", 3),
    (64, "flip-1", 5),
    (64, "flip-5", 7),
)
OTHER_DESIGNS = (
    (64, "manku-10", 3),
    (64, "manku-16", 3),
    (64, "blocks-3-1", 4),
    (64, "blocks-9-2", 7),
    (64, "nested-3-3", 2),
    *((64, f"flip-{count}", 3) for count in (1, 3, 4)),
    *((64, f"flip-{count}", 7) for count in (1, 2, 8)),
    (64, "flip-1", 0),
    (64, "auto", 4),
)
DESIGNS_OF_WIDTHS = (
    *((32, name, 4) for name in ("auto", "flip-2", "scan", "columns-2", "columns-4")),
    *((32, name, radius) for name, radius in (("manku-4", 3), ("columns-2-10", 4), ("scan", 32))),
    *((64, name, 8) for name in ("auto", "columns-4", "columns-3-19", "columns-4-10", "columns-8")),
    *((128, name, 3) for name in ("manku-4", "blocks-5-2")),
    *((128, name, 10) for name in ("auto", "flip-2", "scan")),
    *((128, name, 10) for name in ("columns-8", "columns-7", "columns-4-10")),
    *((256, name, radius) for name, radius in (("manku-4", 3), ("striped-4-1", 3), ("scan", 256))),
    *((256, name, 10) for name in ("auto", "flip-3", "scan", "columns-16", "columns-8-12")),
)
CASES = [
    *crossed(DESIGNS, [(kind, 400) for kind in KINDS], tuple(CODECS), [256], share=12),
    *crossed(
        OTHER_DESIGNS,
        [(kind, 400) for kind in ("near", "families", "few-prefixes")],
        *(tuple(CODECS), [256]),
        share=6,
    ),
    *crossed(
        [(64, "manku-10", 3)],
        [(kind, 3000) for kind in ("random", "near", "dense", "few-prefixes")],
        *(["huffman"], [128, 512, 1024, 2048, 4096]),
        share=3,
    ),
    *crossed(
        DESIGNS_OF_WIDTHS,
        [("tied", count) for count in (0, 1, 5, 129, 600)],
        *(["huffman"], [None]),
        share=3,
    ),
]


def near(rng, centres, width):
    value = rng.choice(centres)
    for _ in range(rng.randrange(width // 8)):
        value ^= 1 << rng.randrange(width)
    return value


def tied(rng, width, count):
    """Return fingerprints of which above 64 bits many begin with the same word."""
    centres = [rng.getrandbits(width) for _ in range(max(count // 10, 1))]
    low = (1 << max(width - 64, width // 2)) - 1
    return [
        near(rng, centres, width) & low | centres[0] & ~low
        if rng.random() < 0.3
        else near(rng, centres, width)
        for _ in range(count)
    ]


class BruteForce:
    """The stored fingerprints by distance and value, for each of some queries."""

    def __init__(self, stored, queries):
        self.queries = queries
        self.ranks = [
            sorted(((value ^ query).bit_count(), value) for value in stored) for query in queries
        ]

    def within(self, radius):
        return [[near for near in ranked if near[0] <= radius] for ranked in self.ranks]


def pairs(matches):
    return [(match.distance, match.fingerprint) for match in matches]


def check(store, brute, radius):
    """Compare probe_many, scan and probe with brute force, as lists: sets, counts and order."""
    expected, queries = brute.within(radius), brute.queries
    for matches in (
        store.probe_many(queries, radius, threads=1),
        store.probe_many(queries, radius, threads=2),
        store.scan(queries, radius),
    ):
        assert matches.lims.dtype == np.int64
        assert matches.distances.dtype == (np.uint16 if store.width == 256 else np.uint8)
        assert np.diff(matches.lims).tolist() == list(map(len, expected))
        columns = matches.distances.tolist(), numbers_of(store, matches.fingerprints)
        assert list(zip(*columns, strict=True)) == [pair for part in expected for pair in part]
    for place in range(0, len(queries), 5):
        assert pairs(store.probe(queries[place], radius)) == expected[place]


def check_limits(store, brute, radius):
    """Compare the nearest matches with brute force."""
    matches = store.nearest_many(brute.queries, 5)
    assert [pairs(part) for part in matches] == [ranked[:5] for ranked in brute.ranks]
    expected = brute.within(radius)
    limited = store.probe_many(brute.queries, radius, limit=2)
    assert [pairs(part) for part in limited] == [part[:2] for part in expected]
    assert limited.more.tolist() == [len(part) > 2 for part in expected]


# --- Oracle ---------------------------------------------------------------------------------------


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("shape", "content", "codec", "block_bytes"), CASES)
def test_matches_are_those_of_brute_force(request, tmp_path, shape, content, codec, block_bytes):
    if block_bytes:  # the batches of the others stay whole
        request.getfixturevalue("small_pieces")
    (width, name, radius), (kind, count) = shape, content
    rng = random.Random(f"{shape}{content}")
    values = tied(rng, width, count) if kind == "tied" else make_set(kind, count).tolist()
    stored = sorted(set(values))
    queries = [
        *rng.choices(stored or [1], k=8),
        *(near(rng, stored or [0], width) for _ in range(20)),
    ]
    queries += [0, 2**width - 1, *(rng.getrandbits(width) for _ in range(4))]
    brute = BruteForce(stored, queries)
    made = {"radius": radius, "design": name, "block_bytes": block_bytes, "codec": codec}
    with fpstore.build(tmp_path / "s", values, width=width, **made) as store:
        assert (store.width, len(store), list(store)) == (width, len(stored), stored)
        for smaller in {*range(min(radius, 8)), radius}:
            check(store, brute, smaller)
        for larger in {min(radius + 1, width), width // 2 + 8, width}:
            check(store, BruteForce(stored, queries[::4]), larger)
        check(store, BruteForce(stored, stored[:40]), radius)
        check_limits(store, BruteForce(stored, queries[::2]), radius)
        for value in stored[:20]:
            assert store[value] == [row for row, other in enumerate(values) if other == value]
        assert [query in store for query in queries] == [query in stored for query in queries]
        assert store.verify().ok


def test_the_matches_of_a_query_are_at_its_number(store):
    queries = [3, 2**40, *next(iter(store.items()))[0][:3].tolist()]
    matches = store.probe_many(queries, 20, limit=2)
    each = list(matches)
    assert any(item.more for item in each)
    for query, item in enumerate(each):
        for again in (matches[query], matches[query - len(each)]):
            assert (again, again.more) == (item, item.more)
    for wrong in (len(each), -len(each) - 1):
        with pytest.raises(IndexError):
            matches[wrong]


def test_default_radius_is_the_stores(store):
    query = int(make_set("families")[3])
    assert store.probe(query) == store.probe(query, 3)
    assert store.probe_many([query]).lims.tolist() == store.probe_many([query], 3).lims.tolist()
    assert store.radius == 3
    assert store.design == design_module.design("flip-2", 3)


@pytest.mark.parametrize(("threads", "most"), crossed([1, 2], [1, 50, 1000, 1 << 22]))
def test_batches_hold_few_matches_and_are_together_all(tmp_path, threads, most):
    """Ten of a thousand queries have a hundred times the matches of the others."""
    rng = np.random.default_rng(7)
    fingerprints = rng.integers(0, 2**64, 4000, dtype=np.uint64)
    crowd = fingerprints[0] ^ np.array(
        [1 << i | 1 << j for i in range(40) for j in range(i)], np.uint64
    )
    with fpstore.build(tmp_path / "s", np.concatenate([fingerprints, crowd])) as store:
        queries = np.concatenate(
            [fingerprints[1:500], np.repeat(fingerprints[:1], 10), fingerprints[500:1000]]
        )
        whole = store.probe_many(queries, threads=1)
        batches = list(store.probe_batches(queries, threads=threads, matches=most))
        assert sum(map(len, batches)) == len(queries)
        assert np.array_equal(
            np.concatenate([np.diff(b.lims) for b in batches]), np.diff(whole.lims)
        )
        for column in ("fingerprints", "distances"):
            assert np.array_equal(
                np.concatenate([getattr(b, column) for b in batches]), getattr(whole, column)
            )
        assert all(len(b) == 1 or len(b.fingerprints) <= most for b in batches)
        assert next(iter(batches[0])) == store.probe(int(queries[0]))
        assert list(store.probe_batches([], matches=most)) == []


@pytest.mark.parametrize(("threads", "most"), crossed([1, 3], [1, 2, 50]))
def test_batches_bound_delta_matches_and_all_threads_together(tmp_path, threads, most):
    """The bound was kept by the tables alone, and by each thread for at least one match."""
    rng = np.random.default_rng(8)
    fingerprints = rng.integers(0, 2**64, 900, dtype=np.uint64)
    fpstore.build(tmp_path / "s", fingerprints[800:]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(fingerprints[:800])
        batches = list(store.probe_batches(fingerprints, threads=threads, matches=most))
        assert all(len(b) == 1 or len(b.fingerprints) <= most for b in batches)
        assert np.concatenate([b.fingerprints for b in batches]).tolist() == fingerprints.tolist()
