"""The store against brute force: what probe, probe_many and scan return, ids, and the life of a store."""

import random
import signal
import string

import numpy as np
import pytest
import reference
import tableimage
from hypothesis import given, settings
from hypothesis import strategies as st

import fpstore
from fpstore import Match
from fpstore import design as design_module
from fpstore.design import MANKU

MAX = 2**64 - 1
EMPTY = np.empty(0, np.uint64)


def flipped(centre, count, most, rng):
    """Return fingerprints that differ from a centre in at most this many bits."""
    out = np.full(count, centre, np.uint64)
    for _ in range(most):
        out ^= np.uint64(1) << rng.integers(0, 64, count, np.uint64)
        out ^= np.where(rng.random(count) < 0.4, out ^ np.uint64(centre), np.uint64(0))  # sometimes fewer
    return out


def make_set(kind, count=400):
    rng = np.random.default_rng(len(kind) + count)
    if kind in tableimage.KINDS:
        return tableimage.make_keys(kind, 11, count)
    if kind == "near":
        return flipped(0x0123456789ABCDEF, count, 2, rng)
    if kind == "half":
        return np.uint64(0xCAFEBABE << 32) | rng.integers(0, 2**32, count, np.uint64)
    if kind == "low-half":
        return np.uint64(0xCAFEBABE) | rng.integers(0, 2**32, count, np.uint64) << np.uint64(32)
    if kind == "few-prefixes":
        prefixes = rng.integers(0, 2**16, 3, np.uint64) << np.uint64(48)
        return rng.choice(prefixes, count) | rng.integers(0, 2**20, count, np.uint64)
    if kind == "families":
        centres = rng.integers(0, 2**64, 8, np.uint64)
        return np.concatenate([flipped(c, count // 8, 9, rng) for c in centres])
    return {
        "none": EMPTY,
        "one": np.array([0xDEADBEEF], np.uint64),
        "ends": np.array([0, MAX], np.uint64),
        "all-equal": np.full(50, 0xFFFF0000FFFF0000, np.uint64),
        "zero": np.zeros(5, np.uint64),
        "adjacent": np.uint64(2**63 - 100) + np.arange(200, dtype=np.uint64),
        "top": np.uint64(MAX) - np.arange(200, dtype=np.uint64),
        "powers": np.array([0, *(1 << i for i in range(64)), *(MAX ^ (1 << i) for i in range(64))], np.uint64),
    }[kind]


KINDS = (
    *tableimage.KINDS,
    *("near", "half", "low-half", "few-prefixes", "families"),
    *("none", "one", "ends", "all-equal", "zero", "adjacent", "top", "powers"),
)
DESIGNS = (("manku-4", 3), ("manku-20", 3), ("manku-28", 6), ("flip-2", 3), ("flip-1", 5), ("flip-5", 7))
OTHER_DESIGNS = (
    ("manku-10", 3),
    ("manku-16", 3),
    ("blocks-3-1", 4),
    ("blocks-9-2", 7),
    ("nested-3-3", 2),
    *((f"flip-{count}", 3) for count in (1, 3, 4)),
    *((f"flip-{count}", 7) for count in (1, 2, 8)),
    ("flip-1", 0),
    ("auto", 4),
)
CASES = [
    *((name, radius, kind) for name, radius in DESIGNS for kind in KINDS),
    *((name, radius, kind) for name, radius in OTHER_DESIGNS for kind in ("near", "families", "few-prefixes")),
]


def queries_for(fingerprints, rng, count=24):
    """Return stored ones, neighbours of stored ones, both ends of the range, and strangers."""
    some = rng.choice(fingerprints, count) if len(fingerprints) else EMPTY
    near = some.copy()
    for _ in range(int(rng.integers(1, 9))):
        near ^= np.uint64(1) << rng.integers(0, 64, len(near), np.uint64)
    strangers = rng.integers(0, 2**64, 4, np.uint64)
    return np.concatenate([some[: count // 3], near, np.array([0, MAX], np.uint64), strangers])


def same(matches, expected):
    lims, fingerprints, distances = expected
    assert matches.lims.dtype == np.int64
    assert matches.fingerprints.dtype == np.uint64
    assert matches.distances.dtype == np.uint8
    assert matches.lims.tolist() == lims.tolist()
    assert matches.fingerprints.tolist() == fingerprints.tolist()
    assert matches.distances.tolist() == distances.tolist()


def check(store, fingerprints, queries, radius):
    """Compare probe_many, scan and probe with brute force, as lists: sets, counts and order."""
    expected = reference.brute_force_many(fingerprints, queries.tolist(), radius)
    same(store.probe_many(queries, radius, threads=1), expected)
    same(store.probe_many(queries, radius, threads=2), expected)
    same(store.scan(queries, radius), expected)
    lims, found, distances = (column.tolist() for column in expected)
    for q in range(0, len(queries), 5):
        part = slice(lims[q], lims[q + 1])
        matches = store.probe(int(queries[q]), radius)
        assert [(m.fingerprint, m.distance) for m in matches] == list(zip(found[part], distances[part], strict=True))
    return lims[-1]


@pytest.fixture
def small_pieces(monkeypatch):
    """Let small batches reach the code that cuts large ones, so that two threads have something to do."""
    monkeypatch.setattr("fpstore.store.PROBE_QUERIES", 7)
    monkeypatch.setattr("fpstore.store.SCAN_BLOCKS", 5)
    monkeypatch.setattr("fpstore.table.DECODE_ROOM", 1)


@pytest.fixture
def store(tmp_path):
    fingerprints = make_set("families")
    with fpstore.build(tmp_path / "s.fps", fingerprints, radius=3, design="flip-2") as store:
        yield store


# --- Oracle ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "radius", "kind"), CASES)
def test_matches_are_those_of_brute_force(tmp_path, small_pieces, name, radius, kind):
    rng = np.random.default_rng(radius)
    fingerprints = make_set(kind)
    distinct = np.unique(fingerprints)
    queries = queries_for(distinct, rng)
    with fpstore.build(tmp_path / "s", fingerprints, radius=radius, design=name, block_bytes=256) as store:
        assert len(store) == len(distinct)
        for smaller in range(radius + 1):
            check(store, distinct, queries, smaller)
        for larger in (radius + 1, 40, 64):
            check(store, distinct, queries[::4], larger)
        total = check(store, distinct, distinct[:40], radius)
        assert total >= min(len(distinct), 40)


@pytest.mark.parametrize("block_bytes", [128, 512, 1024, 2048, 4096])
@pytest.mark.parametrize("kind", ["random", "near", "dense", "few-prefixes"])
def test_every_block_size(tmp_path, small_pieces, block_bytes, kind):
    distinct = np.unique(make_set(kind, 3000))
    queries = queries_for(distinct, np.random.default_rng(1))
    with fpstore.build(tmp_path / "s", distinct, radius=3, design="manku-10", block_bytes=block_bytes) as store:
        for radius in (0, 2, 3, 5):
            check(store, distinct, queries, radius)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "clustered", "skewed", "few-prefixes", "families"])
@pytest.mark.parametrize(
    ("name", "radius"),
    [
        *((name, radius) for name, (_, most) in MANKU.items() for radius in range(most + 1)),
        *((f"flip-{count}", radius) for radius in range(8) for count in range(1, radius + 2)),
    ],
)
def test_large_sets_match_brute_force(tmp_path, kind, name, radius):
    distinct = np.unique(make_set(kind, 50_000))
    queries = queries_for(distinct, np.random.default_rng(radius), 200)
    with fpstore.build(tmp_path / "s", distinct, radius=radius, design=name) as store:
        for smaller in range(radius + 1):
            check(store, distinct, queries, smaller)


sets = st.one_of(
    tableimage.key_sets(200),
    st.builds(
        lambda centre, masks: np.unique(np.array([centre ^ m for m in masks], np.uint64)),
        st.integers(0, MAX),
        st.lists(st.lists(st.integers(0, 63), max_size=8).map(lambda b: sum({1 << i for i in b})), max_size=60),
    ),
)
radii_and_designs = st.integers(0, 7).flatmap(
    lambda radius: st.tuples(
        st.just(radius),
        st.sampled_from(
            [
                *(f"flip-{count}" for count in range(1, radius + 2)),
                *(name for name, (_, most) in MANKU.items() if radius <= most),
                f"blocks-{radius + 2}-1",
            ]
        ),
    )
)


@given(sets, radii_and_designs, st.sampled_from([128, 512]), st.integers(0, MAX), st.data())
@settings(max_examples=60, deadline=None)
def test_any_small_set(tmp_path_factory, fingerprints, radius_and_design, block_bytes, stranger, data):
    radius, name = radius_and_design
    path = tmp_path_factory.mktemp("any") / "s"
    bits = data.draw(st.lists(st.integers(0, 63), max_size=radius + 1, unique=True))
    near = fingerprints[:12] ^ np.uint64(sum(1 << bit for bit in bits))
    queries = np.concatenate([near, np.array([stranger], np.uint64)])
    with fpstore.build(path, fingerprints, radius=radius, design=name, block_bytes=block_bytes) as store:
        asked = data.draw(st.integers(0, min(radius + 1, 64)))
        check(store, fingerprints, queries, asked)
        lims, ids = store.probe_many(fingerprints, 0).ids()
        assert lims.tolist() == list(range(len(fingerprints) + 1))
        assert sorted(ids.tolist()) == list(range(len(fingerprints)))
        assert store.verify().ok


def test_radius_above_the_store_is_exact(store):
    distinct = np.unique(make_set("families"))
    query = int(distinct[7])
    for radius in (4, 9, 31, 64):
        expected = reference.brute_force(distinct, query, radius)[0].tolist()
        assert [m.fingerprint for m in store.probe(query, radius)] == expected
    assert len(store.probe(query, 64)) == len(store)


def test_default_radius_is_the_stores(store):
    query = int(make_set("families")[3])
    assert store.probe(query) == store.probe(query, 3)
    assert store.probe_many([query]).lims.tolist() == store.probe_many([query], 3).lims.tolist()
    assert store.radius == 3
    assert store.design == design_module.design("flip-2", 3)


# --- Ids ------------------------------------------------------------------------------------------


def test_ids_are_row_numbers_by_default(tmp_path):
    fingerprints = np.array([5, 3, 5, 9, 3, 5], np.uint64)
    with fpstore.build(tmp_path / "s", fingerprints) as store:
        assert (store[5], store[3], store[9]) == ([0, 2, 5], [1, 4], [3])
        assert store.stats()["ids"] == 6
        assert len(store) == 3


def test_duplicates_keep_all_ids_once(tmp_path):
    with fpstore.build(tmp_path / "s", [7, 7, 7, 8, 7, 8], [5, MAX, 5, 5, 0, 5]) as store:
        assert store[7] == [0, 5, MAX]
        assert store[8] == [5]
        assert store.probe(7, 0) == [Match(7, 0, [0, 5, MAX])]
        assert store.stats()["ids"] == 4


@pytest.mark.parametrize("spread", [1, 2**20, 2**40, MAX])
def test_integer_ids(tmp_path, spread):
    rng = random.Random(spread)
    rows = [(rng.randrange(300) << 32, rng.randrange(spread)) for _ in range(3000)]
    wanted = {}
    for fingerprint, number in rows:
        wanted.setdefault(fingerprint, set()).add(number)
    fingerprints, ids = zip(*rows, strict=True)
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128) as store:
        check_ids(store, wanted)


def check_ids(store, wanted):
    """Compare every way to get at ids; ``wanted`` maps fingerprints to sets."""
    stored = np.array(sorted(wanted), np.uint64)
    assert len(store) == len(stored)
    for fingerprint, ids in list(wanted.items())[::7]:
        assert sorted(store[fingerprint]) == sorted(ids)
    asked = np.concatenate([stored[::-1], stored[:10]])  # any order, some of them twice
    lims, ids = store.ids_of(asked)
    got = [sorted(ids[a:b]) for a, b in zip(lims[:-1].tolist(), lims[1:].tolist(), strict=True)]
    assert got == [sorted(wanted[f]) for f in asked.tolist()]
    matches = store.probe_many(stored, 0)
    assert [[(m.fingerprint, sorted(m.ids)) for m in part] for part in matches] == [
        [(f, sorted(wanted[f]))] for f in stored.tolist()
    ]
    seen = {}
    for fingerprints, lims, ids in store.items():
        assert len(lims) == len(fingerprints) + 1
        for i, fingerprint in enumerate(fingerprints.tolist()):
            seen[fingerprint] = set(ids[lims[i] : lims[i + 1]])
    assert seen == wanted
    assert list(seen) == stored.tolist()
    assert store.stats()["ids"] == sum(map(len, wanted.values()))
    assert store.verify().ids == store.stats()["ids"]


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Build a store of many pieces, with names."""
    monkeypatch.setattr("fpstore.table.DECODE_ROOM", 1)
    monkeypatch.setattr("fpstore.ids.TICK_ROWS", 100)
    fingerprints = np.random.default_rng(4).integers(0, 2**64, 5000, np.uint64)
    with fpstore.build(
        tmp_path / "s", fingerprints, [f"name {i}" for i in range(5000)], design="flip-2", block_bytes=128
    ) as store:
        yield store


def test_verify_tells_its_progress(named):
    calls = []
    assert named.verify(progress=lambda *call: calls.append(call)).ok
    assert list(dict.fromkeys(phase for phase, _, _ in calls)) == ["tables", "ids", "names"]
    for name, most, total in (("tables", 10000, 10000), ("ids", 5000, 5000), ("names", 4900, None)):
        done = [d for phase, d, _ in calls if phase == name]
        assert done == sorted(done)
        assert (done[0], done[-1], len(set(done)) > 2) == (0, most, True)
        assert {t for phase, _, t in calls if phase == name} == {total}


@pytest.mark.parametrize("phase", ["tables", "ids", "names"])
def test_control_c_stops_verify(named, phase):
    calls = []

    def interrupt(*call):
        calls.append(call)
        if call[0] == phase and call[1] > 100:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        named.verify(progress=interrupt)
    assert [done > 100 for name, done, _ in calls if name == phase].count(True) == 1
    assert calls[-1][0] == phase
    assert named.verify().ok


LONG = "x" * 5000
NAMES = ["a", " ", "\n", "0", "tab\there", "Grüße", "文档", "🙂" * 200, LONG, LONG + "y", "x" * 511, "x" * 512, "\x00"]


def test_string_ids(tmp_path):
    rng = random.Random(2)
    names = [*NAMES, *("".join(rng.choices(string.printable, k=rng.randint(1, 40))) for _ in range(1000))]
    rows = [(rng.randrange(400), rng.choice(names)) for _ in range(3000)]
    rows += [(1000 + i, name) for i, name in enumerate(names)]
    wanted = {}
    for fingerprint, name in rows:
        wanted.setdefault(fingerprint, set()).add(name)
    fingerprints, ids = zip(*rows, strict=True)
    with fpstore.build(tmp_path / "s", fingerprints, ids, block_bytes=128) as store:
        check_ids(store, wanted)
        assert store[1000 + NAMES.index(LONG)] == [LONG]
        assert isinstance(store.probe(1000)[0].ids[0], str)


def test_string_ids_come_in_order_of_first_appearance(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 1, 1, 1], ["b", "a", "b", "c"]) as store:
        assert store[1] == ["b", "a", "c"]


def test_names_with_equal_hashes_are_kept_apart(tmp_path, monkeypatch):
    class Xxhash:
        @staticmethod
        def xxh64_digest(name):
            return bytes(7) + name[:1]

        xxh64_intdigest = staticmethod(reference.xxh64)

    monkeypatch.setattr("fpstore.ids.xxhash", Xxhash)
    names = [f"{c}{i}" for i in range(20) for c in "abc"]
    rows = np.arange(120, dtype=np.uint64)
    parts = [rows[:60], rows[60:]]  # the second part meets the numbers of the first
    with fpstore.build(tmp_path / "s", parts, [names, names[::-1]]) as store:
        assert store.stats()["ids"] == 120
        assert [store[i] for i in range(120)] == [[name] for name in names + names[::-1]]
        assert store.verify().ok


def test_more_names_than_the_first_map_holds(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.environment.FIRST_MAP_BYTES", 1 << 15)
    names = [f"{i:05d}" * 20 for i in range(2000)]
    with fpstore.build(tmp_path / "s", np.arange(2000, dtype=np.uint64), names) as store:
        assert [store[i] for i in (0, 77, 1999)] == [[names[i]] for i in (0, 77, 1999)]
        assert store.verify().ok


def test_many_ids_of_one_fingerprint(tmp_path):
    ids = np.arange(100_000, dtype=np.uint64)
    with fpstore.build(tmp_path / "s", np.full(100_000, 9, np.uint64), ids) as store:
        assert store[9] == ids.tolist()
        assert store.probe(8, 1)[0].ids == ids.tolist()
        assert len(store) == 1


def test_id_lookups_of_what_is_not_stored(store):
    stored = int(make_set("families")[0])
    with pytest.raises(KeyError):
        store.ids_of([stored, stored ^ 0xF0F0F0F0F0F0F0F0])
    lims, ids = store.ids_of([])
    assert (lims.tolist(), len(ids)) == ([0], 0)


# --- Container ------------------------------------------------------------------------------------


def test_contains_and_getitem(tmp_path):
    stored = {0, 5, MAX, 2**63}
    with fpstore.build(tmp_path / "s", sorted(stored)) as store:
        for value in (*stored, 1, 4, 6, MAX - 1, 2**63 - 1):
            assert (value in store) == (value in stored)
            assert (np.uint64(value) in store) == (value in stored)
            if value in stored:
                assert store[value] == store[np.uint64(value)] == [sorted(stored).index(value)]
            else:
                with pytest.raises(KeyError) as caught:
                    store[value]
                assert caught.value.args == (value,)
        for other in ("5", 5.0, -1, 2**64, None, True):
            assert other not in store
            with pytest.raises(fpstore.InputError, match="a fingerprint is an int from 0 to 2\\^64 - 1"):
                store[other]


def test_len_and_repr(tmp_path, store):
    distinct = len(np.unique(make_set("families")))
    assert len(store) == distinct
    path = tmp_path / "s.fps"
    assert repr(store) == f"<fpstore.Store {str(path)!r}: {distinct} fingerprints, radius 3, design flip-2>"
    matches = store.probe_many([0, 1], 0)
    assert repr(matches) == "<fpstore.Matches: 0 matches of 2 queries>"
    store.close()
    assert repr(store) == f"<fpstore.Store {str(path)!r}, closed>"


def test_matches_iterate_as_lists(tmp_path):
    with fpstore.build(tmp_path / "s", [0b0000, 0b0001, 0b1111], ["zero", "one", "fifteen"]) as store:
        matches = store.probe_many([0b0011, 0b1111, 2**63], radius=2)
        assert len(matches) == 3
        assert list(matches) == [
            [Match(1, 1, ["one"]), Match(0, 2, ["zero"]), Match(15, 2, ["fifteen"])],
            [Match(15, 0, ["fifteen"])],
            [Match(0, 1, ["zero"]), Match(1, 2, ["one"])],
        ]
        assert list(matches) == [store.probe(query, 2) for query in (0b0011, 0b1111, 2**63)]
        lims, ids = matches.ids()
        assert lims.tolist() == [0, 1, 2, 3, 4, 5, 6]
        assert ids == ["one", "zero", "fifteen", "fifteen", "zero", "one"]


def test_no_queries(store):
    for matches in (store.probe_many([]), store.scan(EMPTY, 9), store.probe_many(EMPTY, 20)):
        assert matches.lims.tolist() == [0]
        assert list(matches) == []
        lims, ids = matches.ids()
        assert (lims.tolist(), len(ids)) == ([0], 0)


@pytest.mark.parametrize("name", ["auto", "manku-20", "flip-1", "flip-4"])
@pytest.mark.parametrize("source", [EMPTY, [], (), iter([])])
def test_empty_store(tmp_path, name, source):
    with fpstore.build(tmp_path / "s", source, design=name) as built:
        assert len(built) == 0
    with fpstore.open(tmp_path / "s") as store:
        assert 0 not in store
        with pytest.raises(KeyError):
            store[0]
        assert store.probe(0) == store.probe(MAX, 64) == []
        assert store.probe_many([0, MAX]).lims.tolist() == [0, 0, 0]
        assert store.scan([0, 1, 2], 64).lims.tolist() == [0, 0, 0, 0]
        assert list(store.items()) == []
        assert store.verify().ok
        stats = store.stats()
        assert (stats["fingerprints"], stats["ids"], stats["bits_per_fingerprint"]) == (0, 0, 0)


# --- Life -----------------------------------------------------------------------------------------

USES = {
    "probe": lambda s: s.probe(1),
    "probe_many": lambda s: s.probe_many([1]),
    "scan": lambda s: s.scan([1], 3),
    "ids_of": lambda s: s.ids_of([1]),
    "items": lambda s: next(s.items()),
    "contains": lambda s: 1 in s,
    "getitem": lambda s: s[1],
    "len": len,
    "stats": lambda s: s.stats(),
    "verify": lambda s: s.verify(),
    "enter": lambda s: s.__enter__(),
}


@pytest.mark.parametrize("use", USES)
def test_use_after_close(store, use):
    store.close()
    store.close()
    with pytest.raises(fpstore.ClosedStoreError, match="the store is closed"):
        USES[use](store)


def test_matches_after_close(store):
    matches = store.probe_many(make_set("families")[:3])
    store.close()
    assert len(matches.fingerprints) >= 3
    with pytest.raises(fpstore.ClosedStoreError):
        matches.ids()


def test_context_manager_closes(store):
    with store as entered:
        assert entered is store
    with pytest.raises(fpstore.ClosedStoreError):
        len(store)


def test_a_store_opened_twice_in_one_process(tmp_path, store):
    fingerprint = int(make_set("families")[0])
    first = fpstore.open(tmp_path / "s.fps")
    second = fpstore.open(str(tmp_path / "s.fps"))
    expected = store.probe(fingerprint)
    assert first.probe(fingerprint) == second.probe(fingerprint) == expected
    first.close()
    assert second.probe(fingerprint) == store.probe(fingerprint) == expected
    second.close()
    assert store[fingerprint] == expected[0].ids
    with fpstore.open(tmp_path / "s.fps") as again:
        assert again.probe(fingerprint) == expected


def test_open_takes_a_relative_path(tmp_path, store, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with fpstore.open("s.fps") as again:
        monkeypatch.chdir("/")
        assert len(again) == len(store)
        assert again.verify().ok


def test_what_is_no_store(tmp_path, store):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"x")
    for name, message in (("nothing", "no such store"), ("folder", "not a fpstore store"), ("file", "not a fp")):
        with pytest.raises(fpstore.StoreNotFoundError, match=message):
            fpstore.open(tmp_path / name)
    with pytest.raises(fpstore.InputError, match="mode must be 'r' or 'r\\+', got 'w'"):
        fpstore.open(tmp_path / "s.fps", "w")


@pytest.mark.parametrize("missing", ["store.mdb", "gen-00000001/ids.mdb", "gen-00000001/table-001.fpt"])
def test_a_missing_file(tmp_path, store, missing):
    (tmp_path / "s.fps" / missing).unlink()
    with pytest.raises(fpstore.StoreNotFoundError):
        fpstore.open(tmp_path / "s.fps")


def test_the_fingerprinter_is_remembered(tmp_path):
    made = {"name": "simhash", "version": 1, "shingle": 4}
    with fpstore.build(tmp_path / "s", [1], fingerprinter=made) as store:
        assert store.fingerprinter == made
        assert store.stats()["fingerprinter"] == made
    with fpstore.build(tmp_path / "t", [1]) as store:
        assert store.fingerprinter is None
    for bad in ("simhash", {"version": 1}, 3):
        with pytest.raises(fpstore.InputError, match="fingerprinter"):
            fpstore.build(tmp_path / "u", [1], fingerprinter=bad)


# --- Refused arguments ----------------------------------------------------------------------------

BAD_ARRAYS = {
    "signed": (np.array([1, 2]), ["int64", "(2,)", "view(np.uint64)"]),
    "float": (np.array([1.0]), ["float64", "(1,)"]),
    "bool": (np.array([True]), ["bool", "(1,)"]),
    "2-D": (np.zeros((2, 3), np.uint64), ["uint64", "(2, 3)"]),
    "0-D": (np.array(3, np.uint64), ["uint64", "()"]),
    "strings": (np.array(["ab"]), ["<U2", "(1,)"]),
    "objects": (np.array([2**70], object), ["object", "(1,)"]),
    "negative": ([1, -1], ["-1", "2^64-1"]),
    "large": ([2**64], ["18446744073709551616", "2^64-1"]),
    "list of floats": ([1.5], ["float", "1.5", "(1,)"]),
    "list of bools": ([True], ["bool", "(1,)"]),
    "list of strings": (["ab"], ["str", "'ab'", "(1,)"]),
    "nested list": ([[1, 2]], ["(1, 2)"]),
    "text": ("abcd", ["str"]),
    "none": (None, ["NoneType"]),
}


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_fingerprints_are_named(tmp_path, store, bad):
    value, words = BAD_ARRAYS[bad]
    for use in (
        lambda: store.probe_many(value),
        lambda: store.scan(value, 3),
        lambda: store.ids_of(value),
        lambda: fpstore.build(tmp_path / "new", value),
    ):
        with pytest.raises(fpstore.InputError) as caught:
            use()
        message = str(caught.value)
        assert "\n" not in message
        if "new" not in message and "iterable" not in message:
            assert all(word in message for word in words), message
    assert [p.name for p in tmp_path.iterdir()] == ["s.fps"]


@pytest.mark.parametrize("bad", [-1, 2**64, 1.0, "1", None, True, np.int64(1), np.float64(1), [1]])
def test_bad_fingerprint(store, bad):
    with pytest.raises(fpstore.InputError, match=type(bad).__name__):
        store.probe(bad)


@pytest.mark.parametrize("bad", [-1, 65, 1.0, "1", True])
def test_bad_radius(store, bad):
    for use in (lambda: store.probe(1, bad), lambda: store.probe_many([1], bad), lambda: store.scan([1], bad)):
        with pytest.raises(fpstore.InputError, match="radius must be a whole number from 0 to 64"):
            use()


@pytest.mark.parametrize("bad", [0, -1, 2000, 1.5, True, "2"])
def test_bad_threads(store, bad):
    with pytest.raises(fpstore.InputError, match="threads must be a whole number from 1 to 1024"):
        store.probe_many([1], threads=bad)


def test_arrays_of_other_unsigned_types_and_layouts(store):
    distinct = np.unique(make_set("families"))
    expected = store.probe_many(distinct[::2])
    for queries in (
        distinct[::2],
        distinct[::2].astype(">u8"),
        distinct[::2].tolist(),
        tuple(distinct[::2].tolist()),
        distinct.view(np.int64)[::2].view(np.uint64),
    ):
        assert store.probe_many(queries).lims.tolist() == expected.lims.tolist()
    assert store.probe_many(np.array([1, 2], np.uint8), 0).lims.tolist() == [0, 0, 0]
    assert store.probe(np.uint64(distinct[0]))[0].fingerprint == distinct[0]
