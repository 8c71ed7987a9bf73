"""The in-memory delta against a slow model.

Presence, ids and probes as of every version, on every instruction set.
"""

import brute_force
import numpy as np
import pytest
from deltamodel import ADD, IDENTITY, NEWEST, REMOVE, SHUFFLED, Model, Pair, lists, octets, words
from speeds import crossed

from fpstore import _kernel

ISAS = _kernel.available_isas()


def within(rows: list[list[tuple[int, int]]], radius: int) -> list[list[tuple[int, int]]]:
    return [[match for match in row if match[1] <= radius] for row in rows]


def base_columns(pair: Pair, rows: list[list[tuple[int, int]]]) -> tuple:
    """Return what the tables would: the matches of the base, whatever the delta says."""
    lims = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    distances = np.array([d for row in rows for _, d in row], distance_type(pair))
    return lims, pair.rows(fp for row in rows for fp, _ in row), distances


def distance_type(pair: Pair) -> type:
    return np.uint16 if pair.width == 256 else np.uint8


def check(pair: Pair, version: int) -> None:
    delta, model = pair.delta, pair.model
    content, said, _ = model.at(version)
    queries = pair.queries(37)
    rows = pair.rows(queries)
    base = Model(model.base)
    of_base = [base.matches(0, q, pair.width, base=True) for q in queries]
    of_delta = [model.matches(version, q, pair.width) for q in queries]
    of_both = [model.matches(version, q, pair.width, base=True) for q in queries]
    for radius in sorted({*range(min(pair.radius, 9) + 1), pair.radius, 13, 26, pair.width}):
        result = delta.probe(rows, radius, version)
        assert [c.dtype for c in result] == [np.int64, np.uint64, distance_type(pair)]
        expected = within(of_delta, radius)
        assert lists(*result) == expected
        assert [delta.probe_one(q, radius, version) for q in queries] == expected
        merged = delta.combine(base_columns(pair, within(of_base, radius)), result, version)
        assert lists(*merged) == within(of_both, radius)
    for radius in (pair.radius, 20, pair.width):
        assert lists(*delta.scan(rows, radius, version)) == within(of_delta, radius)
        for limit in (1, 4, 2**40):
            *result, more = delta.nearest(rows, radius, limit, version)
            expected = within(of_delta, radius)
            assert lists(*result) == [row[:limit] for row in expected]
            assert more.tolist() == [len(row) > limit for row in expected]
    fps = [*pair.pool, *queries]
    assert delta.states(pair.rows(fps), version).tolist() == [
        model.state(version, fp) for fp in fps
    ]
    assert [delta.state(fp, version) for fp in fps] == [model.state(version, fp) for fp in fps]
    base_ids = [sorted(model.base.get(fp, ())) for fp in fps]
    lims = np.cumsum([0, *map(len, base_ids)]).astype(np.int64)
    ids = delta.ids(pair.rows(fps), lims, words(i for part in base_ids for i in part), version)
    expected_ids = [sorted(content.get(fp, ())) for fp in fps]
    assert lists(*ids) == expected_ids
    assert [
        delta.ids_one(fp, part, version) for fp, part in zip(fps, base_ids, strict=True)
    ] == expected_ids
    both = [(fp, item) for fp in pair.pool for item in pair.ids]
    pairs = delta.pair_states(
        pair.rows(fp for fp, _ in both), words(item for _, item in both), version
    )
    assert pairs.tolist() == [model.pair(version, fp, item) for fp, item in both]
    wanted = [*pair.rng.choices(pair.ids, k=3), 12345]
    fingerprints, ids = delta.find(words(wanted), version)
    result = zip(brute_force.numbers_of(fingerprints), ids.tolist(), strict=True)
    assert list(result) == sorted(p for p, added in said.items() if added and p[1] in wanted)
    check_export(pair, version)


def check_export(pair: Pair, version: int) -> None:
    content, _, touched = pair.model.at(version)
    fps, in_base, lims, ids = pair.delta.export(version)
    numbers = brute_force.numbers_of(fps)
    assert numbers == sorted(touched)
    assert in_base.tolist() == [fp in pair.model.base for fp in numbers]
    assert lists(lims, ids) == [
        [] if fp in pair.model.base else sorted(content.get(fp, ())) for fp in numbers
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("isa", "radius", "loaded"),
    crossed(ISAS, [*range(9), 11, 20, 40, 64], [0, 3, 6], share=11),
    indirect=["isa"],
)
def test_every_version_reads_as_the_model_says(isa, radius, loaded):
    """Also those that came when the delta was loaded, before it was indexed."""
    check_versions(Pair(radius, radius, IDENTITY if radius == 2 else SHUFFLED), loaded)


@pytest.mark.parametrize(
    ("isa", "width", "radius", "loaded"),
    crossed(ISAS, [32, 128, 256], [0, 1, 3, 7, 8, 20, 24, 32], [0, 3, 6], share=18),
    indirect=["isa"],
)
def test_every_version_of_every_width(isa, width, radius, loaded):
    bits = np.random.default_rng(width).permutation(width).astype(np.uint8)
    check_versions(Pair(width + radius, radius, bits), loaded)


def check_versions(pair: Pair, loaded: int) -> None:
    for number, count in enumerate((1, 5, 40, 17, 100, 3)):
        if number < loaded:
            pair.delta.load(count)
        elif number == loaded:
            pair.delta.index()
        pair.apply(count)
    pair.delta.index()
    for version in range(pair.version + 2):
        check(pair, version)
    check(pair, NEWEST)
    removed = {fp for fp, gone in pair.model.touched.items() if gone and fp in pair.model.base}
    assert removed
    assert pair.delta.removals == len(removed)
    assert pair.delta.entries == len(pair.model.touched)
    assert pair.delta.operations == 166


# --- probe_insert ---------------------------------------------------------------------------------


def insert_slowly(
    pair: Pair, rows: list[tuple[int, int, int]], radius: int, always: bool
) -> tuple[list, list]:
    """Do what probe_insert says it does, one query after the other, to the model."""
    model, collected, inserted = pair.model, [], []
    for query, item, matched in rows:
        near = [(fp, (fp ^ query).bit_count()) for fp in model.content if fp not in model.base]
        near = sorted((m for m in near if m[1] <= radius), key=lambda m: m[::-1])
        wanted = matched != 2 and (always or (matched == 0 and not near))
        wanted = wanted and model.present.get((query, item)) is not True
        if wanted:
            model.change(ADD, query, item)
        collected.append(near)
        inserted.append(int(wanted))
    return collected, inserted


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("isa", "radius", "always"),
    crossed(ISAS, [0, 1, 3, 7, 8, 12, 30, 64], [False, True], share=6),
    indirect=["isa"],
)
def test_probe_insert_goes_query_by_query(isa, radius, always):
    check_probe_inserts(Pair(50 + radius, radius, fingerprints=200), always)


@pytest.mark.parametrize(
    ("isa", "width", "radius", "always"),
    crossed(ISAS, [32, 128, 256], [1, 3, 8, 26], [False, True], share=12),
    indirect=["isa"],
)
def test_probe_insert_of_every_width(isa, width, radius, always):
    bits = np.random.default_rng(width).permutation(width).astype(np.uint8)
    check_probe_inserts(Pair(70 + width + radius, radius, bits, fingerprints=200), always)


def check_probe_inserts(pair: Pair, always: bool) -> None:
    radius = pair.radius
    rng, seen = pair.rng, set()
    for step, count in enumerate((40, 100, 1, 7)):
        if step:
            pair.apply(30)
        pair.version += 1
        rows = [
            (rng.choice([rng.choice(pair.pool), *pair.queries(1)]), rng.choice(pair.ids))
            for _ in range(count)
        ]
        rows += rng.sample(rows, min(3, count))
        rows = [(*row, rng.choice([0, 0, 0, 1, 2])) for row in rows]
        for smaller in {
            0,
            radius // 2,
            max(radius, 1) - 1,
            min(radius + 2, pair.width),
        }:  # finds with less than the radius of the delta, and changes nothing
            got = pair.delta.probe(pair.rows(r[0] for r in rows), smaller, NEWEST)
            assert lists(*got) == [pair.model.matches(NEWEST, r[0], smaller) for r in rows]
        columns = [
            pair.rows(r[0] for r in rows),
            words(r[1] for r in rows),
            octets(r[2] for r in rows),
        ]
        in_base = octets(r[0] in pair.model.base for r in rows)
        *matches, inserted = pair.delta.probe_insert(
            *columns, in_base, radius, always, pair.version
        )
        slowly = insert_slowly(pair, rows, radius, always)
        assert (lists(*matches), inserted.tolist()) == slowly
        seen |= {(bool(near), bool(put)) for near, put in zip(*slowly, strict=True)}
        pair.model.save(pair.version)
    assert seen >= {(True, False), (False, True), (True, always)} or radius > 12
    for version in range(pair.version + 1):
        check(pair, version)


def test_a_query_sees_the_one_before_it():
    delta = _kernel.Delta(3, IDENTITY)
    queries = words([7, 6, 7, 0xFF00, 7])
    none = np.zeros(5, np.uint8)
    *matches, inserted = delta.probe_insert(
        queries, words([1, 2, 3, 4, 5]), none, none, 3, False, 9
    )
    assert lists(*matches) == [[], [(7, 1)], [(7, 0)], [], [(7, 0)]]
    assert inserted.tolist() == [1, 0, 0, 1, 0]
    *matches, inserted = delta.probe_insert(queries, words([1, 2, 3, 4, 1]), none, none, 3, True, 9)
    assert lists(*matches) == [
        [(7, 0)],
        [(7, 1)],
        [(7, 0), (6, 1)],
        [(0xFF00, 0)],
        [(7, 0), (6, 1)],
    ]
    assert inserted.tolist() == [0, 1, 1, 0, 0]
    assert delta.ids_one(7, [], 9) == [1, 3]
    assert delta.ids_one(7, [], 8) == []


def test_a_delta_that_is_loading_is_not_probed():
    """Its fingerprints are not in the index yet: each answer would lack them."""
    delta, none = _kernel.Delta(1, IDENTITY), octets([0])
    delta.load(10)
    delta.apply(none, words([5]), words([7]), none, 1)
    for ask in (
        lambda: delta.probe(words([5]), 1, 1),
        lambda: delta.probe_one(5, 1, 1),
        lambda: delta.scan(words([5]), 1, 1),
        lambda: delta.probe_insert(words([5]), words([7]), none, none, 1, False, 2),
    ):
        with pytest.raises(ValueError, match="loading"):
            ask()
    assert delta.state(5, 1) == 1
    delta.index()
    assert delta.probe_one(5, 1, 1) == [(5, 0)]
    with pytest.raises(ValueError, match="changes already"):
        delta.load(1)
    delta.index()  # nothing is left to index
    assert delta.probe_one(5, 1, 1) == [(5, 0)]


# --- Many -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isa", "radius", "loaded"),
    crossed(ISAS, [0, 1, 3, 7, 9, 16, 30], [0, 754, 6000], share=11),
    indirect=["isa"],
)
def test_buckets_of_every_size(isa, radius, loaded):
    """Fingerprints of one cluster fill few buckets; others fill nearly as many as there are."""
    rng = np.random.default_rng(radius)
    centre = rng.integers(0, 2**64, 1, np.uint64)
    places = np.uint64(1) << rng.choice(64, 12, replace=False).astype(np.uint64)
    flips = (rng.integers(0, 2, (3000, 12), np.uint64) * places).sum(axis=1)
    fps = rng.permutation(
        np.unique(np.concatenate([centre ^ flips, rng.integers(0, 2**64, 3000, np.uint64)]))
    )
    n = len(fps)
    delta = _kernel.Delta(radius, SHUFFLED)
    done = 0
    for size in (1, 2, 3, 15, 16, 17, 700, n):
        if done < loaded:
            delta.load(size)
        else:
            delta.index()
        part = fps[done : done + size]
        none = np.zeros(len(part), np.uint8)
        delta.apply(none, part, part, none, done)
        done += len(part)
    delta.index()
    queries = np.concatenate(
        [
            rng.choice(fps, 40) ^ (np.uint64(1) << rng.integers(0, 64, 40, np.uint64)),
            centre ^ flips[:20],
        ]
    )
    for version, seen in ((36, 37), (700, 754), (754, n)):
        every = []
        for row in np.bitwise_count(queries[:, None] ^ fps[None, :seen]):
            near = np.flatnonzero(row <= max(radius, 13))
            every.append(
                [
                    (fp, distance)
                    for distance, fp in sorted(
                        zip(row[near].tolist(), fps[near].tolist(), strict=True)
                    )
                ]
            )
        for r in {*range(min(radius, 7) + 1), radius, 13}:
            expected = within(every, r)
            assert lists(*delta.probe(queries, r, version)) == expected
            assert lists(*delta.scan(queries, r, version)) == expected
            assert delta.probe_one(int(queries[3]), r, version) == expected[3]
            assert r == 0 or version < 754 or max(map(len, expected)) > 5


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("radius", "step", "shift"),
    [
        (1, 1, 22),
        (1, 1, 24),
        (2, 1, 4),
        (2, 1, 6),
        (2, 3, 6),
        (2, 1, 8),
        (3, 1, 0),
        (5, 1, 3),
        (7, 1, 0),
    ],
)
def test_regular_fingerprints_fill_buckets_in_step(radius, step, shift):
    """A bucket that moved freed room that an equal bucket of another block was about to take."""
    fps = np.arange(40_000, dtype=np.uint64) * np.uint64(step) << np.uint64(shift)
    delta, none = _kernel.Delta(radius, IDENTITY), np.zeros(1000, np.uint8)
    for start in range(0, len(fps), 1000):
        part = fps[start : start + 1000]
        delta.apply(none, part, part, none, 1)
    queries = fps[:: len(fps) // 20].copy()
    distances = np.bitwise_count(queries[:, None] ^ fps)
    result = lists(*delta.probe(queries, radius, 1))
    for row, matches in zip(distances, result, strict=True):
        near = np.flatnonzero(row <= radius)
        assert sorted(fp for fp, _ in matches) == sorted(fps[near].tolist())
    assert lists(*delta.scan(queries, radius, 1)) == result


@pytest.mark.sampled(4)
@pytest.mark.parametrize("radius", [8, 9, 12])
def test_far_look_ups_among_many(isa, radius):
    """So many fingerprints that looking at buckets with flips is less work than a pass.

    Clusters fill some of the buckets.
    """
    rng = np.random.default_rng(radius)
    centres = rng.integers(0, 2**64, 20, np.uint64)
    near = np.repeat(centres, 400)
    for _ in range(9):
        near ^= np.uint64(1) << rng.integers(0, 64, len(near), np.uint64)
    fps = np.unique(np.concatenate([near, rng.integers(0, 2**64, 60_000, np.uint64)]))
    delta, none = _kernel.Delta(radius, SHUFFLED), np.zeros(len(fps), np.uint8)
    delta.load(len(fps))
    delta.apply(none, fps, fps, none, 1)
    delta.index()
    queries = np.concatenate(
        [centres, rng.choice(fps, 10) ^ np.uint64(0x8001), rng.integers(0, 2**64, 10, np.uint64)]
    )
    distances = np.bitwise_count(queries[:, None] ^ fps)
    for r in (3, 4, 7, 8, radius, radius + 3):
        expected = [
            sorted(zip(row[row <= r].tolist(), fps[row <= r].tolist(), strict=True))
            for row in distances
        ]
        assert lists(*delta.probe(queries, r, 1)) == [
            [(fp, d) for d, fp in row] for row in expected
        ]
        assert r < 8 or max(map(len, expected)) > 100


def test_a_change_takes_no_more_memory_at_a_large_radius():
    fps, none = (
        np.random.default_rng(4).integers(0, 2**64, 1 << 17, np.uint64),
        np.zeros(1 << 17, np.uint8),
    )
    taken = {}
    for radius in (3, 7, 8, 16, 25, 64):
        delta = _kernel.Delta(radius, IDENTITY)
        delta.load(len(fps))
        delta.apply(none, fps, fps, none, 1)
        delta.index()
        taken[radius] = delta.memory_bytes / len(fps)
    # At radius 16, a probe of so few compares all of them, and needs no buckets.
    assert max(taken[64], taken[25], taken[16]) < 70 < taken[8] < 1.2 * taken[3]


@pytest.mark.parametrize("radius", [8, 9])
def test_far_buckets_are_made_once_look_ups_pay(isa, radius):
    """Each change kept a copy in every block, also while a probe compared all changes."""
    rng, most = np.random.default_rng(radius), {8: 188 * 128, 9: 308 * 128}[radius]
    fps = rng.integers(0, 2**64, most + 500, np.uint64)
    delta, none, taken = _kernel.Delta(radius, SHUFFLED), np.zeros(500, np.uint8), []
    queries = fps[::4000] ^ np.uint64(0x8001)
    for start in [*range(0, most - 499, 500), most - most % 500]:
        part = fps[start : start + 500] if start + 500 <= most else fps[start:]
        delta.apply(none[:1].repeat(len(part)), part, part, none[:1].repeat(len(part)), 1)
        taken.append(delta.memory_bytes / delta.entries)
        if start + 1000 > most:
            distances = np.bitwise_count(queries[:, None] ^ fps[: delta.entries])
            for r in (3, 8, radius):
                expected = [
                    sorted(
                        zip(
                            row[row <= r].tolist(),
                            fps[: delta.entries][row <= r].tolist(),
                            strict=True,
                        )
                    )
                    for row in distances
                ]
                assert lists(*delta.probe(queries, r, 1)) == [
                    [(fp, d) for d, fp in row] for row in expected
                ]
    assert delta.entries > most
    assert taken[-2] < 80 < 2 * taken[-2] < taken[-1]


def test_delta_holds_many_ids_of_a_fingerprint_and_the_reverse():
    """A walk over all for every row would take minutes."""
    n = 300_000
    delta = _kernel.Delta(3, IDENTITY)
    none, many, single = (
        np.zeros(n, np.uint8),
        np.arange(n, dtype=np.uint64),
        np.full(n, 77, np.uint64),
    )
    delta.apply(none, single, many, none, 1)
    delta.apply(none, many + np.uint64(n), single, none, 2)
    delta.apply(
        np.full(n // 2, REMOVE, np.uint8), single[: n // 2], many[: n // 2], none[: n // 2], 3
    )
    assert delta.ids_one(77, [], 2) == many.tolist()
    assert delta.ids_one(77, [5, n], 3) == [*range(n // 2, n), n]
    assert delta.pair_states(single, many, 3).tolist() == [2] * (n // 2) + [1] * (n - n // 2)
    assert delta.pair_states(many + np.uint64(n), single, 3).tolist() == [1] * n
    fps, ids = delta.find(words([77]), 3)
    assert np.array_equal(fps, np.sort(np.append(many + np.uint64(n), []).astype(np.uint64)))
    assert set(ids.tolist()) == {77}
    for version in range(4, 2004):  # one pair that comes and goes
        delta.apply(
            octets([[ADD, REMOVE][version % 2]]), words([77]), words([3]), octets([0]), version
        )
    states = [delta.pair_states(words([77]), words([3]), version)[0] for version in range(4, 2004)]
    assert states == [1, 2] * 1000


def test_few_ids_turn_into_many():
    """From the fifth id on the pairs of a fingerprint are found by hash."""
    delta = _kernel.Delta(1, IDENTITY)
    for count in range(1, 12):
        delta.apply(octets([ADD]), words([5]), words([count * 10]), octets([0]), count)
        queries = words(range(0, 130, 10))
        assert delta.pair_states(np.full(13, 5, np.uint64), queries, count).tolist() == [
            0,
            *[1] * count,
            *[0] * (12 - count),
        ]
        assert delta.pair_states(np.full(13, 6, np.uint64), queries, count).tolist() == [0] * 13
    assert delta.operations == 11
    assert delta.entries == 1
