"""Changes to a store through its methods: what they return, what is refused, and snapshots."""

import numpy as np
import pytest
from sets import flipped, make_set
from speeds import crossed
from store_model import CHANGES, MAX, content_of, plain, words

import fpstore
from fpstore import Match

KINDS = {"row": None, "integer": [10, 20, 30], "string": ["a", "b", "c"]}
OPTIONS = {"radius": 2, "design": "flip-2", "block_bytes": 128}


FAR = 0xFFFF << 40  # from all other fingerprints here


def build(path, fingerprints=(1, 2, 3), ids=None, **options):
    fpstore.build(path, words(fingerprints), ids, **{**OPTIONS, **options}).close()
    return path


@pytest.fixture
def path(tmp_path):
    return build(tmp_path / "s.fps")


@pytest.fixture
def writer(path):
    with fpstore.open(path, "r+") as store:
        yield store


# --- What is returned -----------------------------------------------------------------------------


def test_insert_counts_new_pairs(writer):
    assert writer.insert(7, 40) == 1
    assert writer.insert(7, 40) == 0
    assert writer.insert([7, 7, 8, 8], [40, 41, 1, 1]) == 2
    assert writer.insert([], []) == writer.insert(np.empty(0, np.uint64)) == 0
    assert content_of(writer) == {1: {0}, 2: {1}, 3: {2}, 7: {40, 41}, 8: {1}}
    assert len(writer.ids) == 6


def test_row_numbers_go_on_after_all_that_were_given(writer):
    """In whichever way a number was given, also if it is the one that comes next.

    A row that was not inserted has none.
    """
    assert writer.insert([9, 9]) == 2
    assert writer[9] == [3, 4]
    writer.insert(10, 5)
    writer.probe_insert(FAR, 6)
    writer.probe_insert_many([9 << 30, 1], [7, 1000])
    writer.upsert(11, 8)
    writer.upsert([12], [9])
    writer.insert(13)
    assert writer[13] == [10]
    matches = writer.probe_insert_many([1, 9 << 20, 9 << 20 | 1, 7 << 50], radius=1)
    assert matches.inserted.tolist() == [False, True, False, True]
    assert (writer[9 << 20], writer[7 << 50]) == ([12], [14])
    writer.insert(14, 100)
    writer.insert(15)
    assert writer[15] == [101]
    writer.delete(ids=[100, 101])
    writer.merge()
    writer.insert(16)
    assert writer[16] == [102]


def test_probe_insert_many_numbers_the_rows_of_an_empty_store(tmp_path):
    """The ids of rows without ids are row numbers."""
    with fpstore.open(build(tmp_path / "empty.fps", ()), "r+") as store:
        for start in (0, 1):
            assert store.probe_insert_many(
                [start << 20, start << 30 | 0xFF], radius=0
            ).inserted.tolist() == [True, True]
        store.insert(7)
        assert store.stats()["id_kind"] == "row"
        assert content_of(store) == {0: {0}, 0xFF: {1}, 1 << 20: {2}, 1 << 30 | 0xFF: {3}, 7: {4}}


def test_the_last_row_number_is_not_followed_by_another(writer):
    assert writer.insert(4, MAX) == 1
    assert writer[4] == [MAX]
    with pytest.raises(fpstore.InputError, match="row numbers are used up"):
        writer.insert(5)
    assert writer.insert(5, 17) == 1
    writer.close()
    with fpstore.open(writer.path, "r+") as again:
        assert (again[4], again[5]) == ([MAX], [17])
        assert again.verify().ok


def test_probe_insert_returns_what_was_there_before(writer):
    assert writer.probe_insert(0xFF00, 7) == []
    assert writer.probe_insert(0xFF01, 8) == [Match(0xFF00, 1, [7])]
    assert 0xFF01 not in writer
    assert writer.probe_insert(0xFF01, 8, radius=0) == []
    assert writer.probe_insert(0xFF01, 9, always=True) == [
        Match(0xFF01, 0, [8]),
        Match(0xFF00, 1, [7]),
    ]
    assert writer[0xFF01] == [8, 9]
    assert writer.probe_insert(0xFF01, 9, always=True)[0] == Match(0xFF01, 0, [8, 9])
    assert len(writer.ids) == 6


def test_new_matches_stand_among_the_old(tmp_path):
    """By distance and fingerprint, wherever they come from; what is in both comes once."""
    fpstore.build(tmp_path / "s", [7, 1, 2**63, 6], radius=3).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert([3, 8, 0, 6, 2**62, 14], range(10, 16))
        right = sorted((value.bit_count(), value) for value in (7, 1, 2**63, 6, 3, 8, 0, 2**62, 14))
        for item in (
            store.probe(0),
            next(iter(store.probe_many([0]))),
            next(iter(store.scan([0], 3))),
        ):
            assert [(match.distance, match.fingerprint) for match in item] == right


def test_probe_insert_of_a_fingerprint_that_was_deleted(writer):
    """It is in the tables still, and may not be found there and in the delta."""
    writer.delete(fingerprints=[2])
    assert 2 not in writer
    assert writer.probe_insert(2, 50, radius=0) == []
    for _ in range(2):
        assert writer.probe(2, radius=0) == [Match(2, 0, [50])]
        assert writer.probe_many([2], radius=0).fingerprints.tolist() == [2]
        assert content_of(writer) == {1: {0}, 2: {50}, 3: {2}}
        assert writer.verify().ok
        writer.merge()


def test_probe_insert_many_goes_row_by_row(writer):
    matches = writer.probe_insert_many([0xF0, 0xF1, 0xF0, FAR], [5, 6, 7, 8])
    assert matches.inserted.tolist() == [True, False, False, True]
    assert list(matches) == [[], [Match(0xF0, 1, [5])], [Match(0xF0, 0, [5])], []]
    matches = writer.probe_insert_many([0xF1, 0xF0, 0xF1], [6, 5, 6], always=True)
    assert matches.inserted.tolist() == [True, False, False]
    assert list(matches)[2] == [Match(0xF1, 0, [6]), Match(0xF0, 1, [5])]


@pytest.mark.parametrize("always", [False, True])
def test_rows_find_fingerprints_that_an_earlier_row_brought_back(tmp_path, always):
    with fpstore.open(build(tmp_path / "s", [0xF0, 0xFF00, 0xF00000, FAR]), "r+") as store:
        store.delete(fingerprints=[0xF0, 0xFF00, 0xF00000])
        matches = store.probe_insert_many(
            [0xF0, 0xF1, 0xFF00, FAR, 0xF00000, 0xF0, 0xF00000], range(10, 17), always=always
        )
        wanted = [[], [0xF0], [], [FAR], [], [0xF0, 0xF1] if always else [0xF0], [0xF00000]]
        assert [[match.fingerprint for match in part] for part in matches] == wanted
        assert matches.inserted.tolist() == [always or not part for part in wanted]
        assert store[0xF0] == ([10, 15] if always else [10])
        assert len(store) == (5 if always else 4)


@pytest.fixture(params=KINDS)
def three_pairs(request, tmp_path):
    """Yield a store of (1, first), (2, second), (2, third), the ids, and an id that it lacks."""
    ids = KINDS[request.param]
    with fpstore.open(build(tmp_path / "s", [1, 2, 2], ids), "r+") as store:
        yield store, ids or (0, 1, 2), "nothing" if request.param == "string" else 99


def test_delete_counts_pairs(three_pairs):
    store, (first, second, third), missing = three_pairs
    assert store.delete(ids=missing) == store.delete(fingerprints=99) == (0, 1)
    assert store.delete(ids=[]) == store.delete(fingerprints=[]) == (0, 0)
    assert store.delete(ids=[second, missing, second, missing]) == (1, 1)
    assert (store[1], store[2]) == ([first], [third])
    assert store.delete(ids=third) == (1, 0)
    assert 2 not in store
    assert store.delete(fingerprints=np.array([1, 1, 5, 5], np.uint64)) == (1, 1)
    assert (len(store), len(store.ids), content_of(store)) == (0, 0, {})


def test_delete_takes_nothing_by_position(writer):
    """Insert takes (fingerprints, ids).

    Hashes in the first place would delete the documents that have these numbers.
    """
    for call in (lambda: writer.delete([1]), lambda: writer.delete([1], [0])):
        with pytest.raises(
            fpstore.InputError, match=r"delete\(ids=\[...\]\), delete\(fingerprints=\[...\]\)"
        ):
            call()
    assert content_of(writer) == {1: {0}, 2: {1}, 3: {2}}


def test_delete_removes_one_pair_of_a_fingerprint_with_others(three_pairs):
    store, (first, second, third), missing = three_pairs
    store.insert([1, 5], [second, second])
    rows = [2, 1, 2, 2, 2, 7], [second, third, missing, missing, second, second]
    assert store.delete(fingerprints=rows[0], ids=rows[1]) == (1, 3)
    assert {f: set(store[f]) for f in (1, 2, 5)} == {1: {first, second}, 2: {third}, 5: {second}}
    assert store.delete(fingerprints=2, ids=third) == (1, 0)
    assert store.delete(fingerprints=[], ids=[]) == (0, 0)
    assert (2 in store, len(store), len(store.ids)) == (False, 2, 3)
    assert store.verify().ok


@pytest.mark.parametrize(("kind", "merged"), crossed(list(KINDS), [False, True]))
def test_deleting_everything_and_starting_again(tmp_path, kind, merged):
    fingerprints = make_set("families")
    ids = (
        None
        if kind == "row"
        else [f"{i}" if kind == "string" else i for i in range(len(fingerprints))]
    )
    path = build(tmp_path / "s", fingerprints, ids)
    with fpstore.open(path, "r+") as store, fpstore.open(path) as other:
        assert store.delete(fingerprints=fingerprints).removed == len(fingerprints)
        if merged:
            store.merge()
        for each in (store, other):
            assert (len(each), each.probe(int(fingerprints[0])), content_of(each)) == (0, [], {})
            assert each.stats()["ids"] == 0
        item = {"row": None, "integer": 5, "string": "again"}[kind]
        assert store.insert(77, item) == 1
        assert other[77] == [len(fingerprints) if item is None else item]
        store.merge()
        assert store.verify().ok
        assert len(other) == 1


def test_the_first_ids_decide_their_kind(tmp_path):
    for name, item in (("row", None), ("integer", 5), ("string", "x")):
        with fpstore.open(build(tmp_path / name, []), "r+") as store:
            store.insert(7, item)
            assert store.stats()["id_kind"] == name
            store.merge()
            assert store.stats()["id_kind"] == name
        with fpstore.open(tmp_path / name, "r+") as store:
            for wrong in [1, None] if name == "string" else ["y"]:
                with pytest.raises(fpstore.InputError, match="its ids are"):
                    store.insert(8, wrong)
            for without in (
                lambda: store.insert(9),
                lambda: store.probe_insert_many([FAR], radius=0),
            ):
                if name != "row":
                    with pytest.raises(fpstore.InputError, match="give one for each row"):
                        without()
            assert content_of(store) == {7: {0 if item is None else item}}


def test_ids_that_were_all_deleted_decide_the_kind_until_a_merge(tmp_path):
    """Their strings still have numbers."""
    with fpstore.open(build(tmp_path / "s", []), "r+") as store:
        store.insert(7, "x")
        store.delete(ids="x")
        with pytest.raises(fpstore.InputError, match="its ids are strings"):
            store.insert(8, 5)
        store.merge()
        store.insert(8, 5)
        assert content_of(store) == {8: {5}}
        store.delete(ids=5)
        with pytest.raises(fpstore.InputError, match="its ids are integers"):
            store.insert(7, "x")
        store.merge()
        store.insert(7, "x")
        store.merge()
        assert content_of(store) == {7: {"x"}}
        assert store.verify().ok


# --- What is refused ------------------------------------------------------------------------------

WRONG = {
    "one id too few": lambda s: s.insert([1, 2], [1]),
    "negative id": lambda s: s.insert(1, -1),
    "float id": lambda s: s.insert(1, 1.5),
    "bool id": lambda s: s.insert(1, True),
    "list of one": lambda s: s.insert(1, [1]),
    "mixed ids": lambda s: s.insert([1, 2], [1, "a"]),
    "string id": lambda s: s.insert(4, "a"),
    "fingerprint": lambda s: s.insert(2**64, 1),
    "fingerprints": lambda s: s.insert([1.5], [1]),
    "probe_insert_many ids": lambda s: s.probe_insert_many([1, 2], [1]),
    "delete without a name": lambda s: s.delete([50], ids=[0]),
    "delete pairs of unequal length": lambda s: s.delete(fingerprints=[1, 2], ids=[1]),
    "delete one fingerprint with ids": lambda s: s.delete(fingerprints=1, ids=[0]),
    "delete pairs with strings": lambda s: s.delete(fingerprints=[1], ids=["a"]),
    "delete strings": lambda s: s.delete(ids=["a", "b"]),
    "delete fingerprint": lambda s: s.delete(fingerprints=-1),
    "find mixed": lambda s: s.fingerprints_of([5, "a"]),
    "look up": lambda s: s.ids["a"],
}


def test_wrong_arguments_change_nothing(writer):
    before = content_of(writer)
    for name, wrong in WRONG.items():
        with pytest.raises(fpstore.InputError):
            wrong(writer)
        assert content_of(writer) == before, name
    assert writer.insert(50) == 1
    assert writer[50] == [3]


def test_ids_that_are_no_ids_are_not_in_a_store(tmp_path, writer):
    for other in (None, 1.0, True, [0], (0, 1), "0", "", -1, 2**64, b"x"):
        assert other not in writer.ids, other
    assert 0 in writer.ids
    assert np.uint64(2) in writer.ids
    with pytest.raises(KeyError):
        writer.ids[77]
    lims, fingerprints = writer.fingerprints_of([2, 77, 0, 2])
    assert (lims.tolist(), fingerprints.tolist()) == ([0, 1, 1, 2, 3], [3, 1, 3])


def test_changes_need_a_store_that_is_open_for_them(path):
    files = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    with fpstore.open(path) as store:
        for change in CHANGES.values():
            with pytest.raises(fpstore.ReadOnlyError, match="open it with mode='r\\+'"):
                change(store)
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == files
    store = fpstore.open(path, "r+")
    store.close()
    store.close()
    for change in CHANGES.values():
        with pytest.raises(fpstore.ClosedStoreError):
            change(store)


# --- Snapshots ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["integer", "string"])
def test_matches_stay_as_they_were_found(tmp_path, kind):
    rng = np.random.default_rng(1)
    fingerprints = np.unique(flipped(0xABCDEF << 20, 300, 3, rng))
    ids = [f"n{i}" if kind == "string" else i for i in range(len(fingerprints))]
    path = build(tmp_path / "s", fingerprints, ids)
    with fpstore.open(path, "r+") as store, fpstore.open(path) as other:
        store.insert(fingerprints[::2], ids[1::2] if len(ids) % 2 == 0 else [*ids[1::2], ids[0]])
        results = [s.probe_many(fingerprints, 1) for s in (store, other)]
        before = [[plain(part) for part in matches] for matches in results]
        items = [s.items() for s in (store, other)]
        rows = [content_of(s) for s in (store, other)]
        store.delete(fingerprints=fingerprints[::3])
        assert [[plain(part) for part in matches] for matches in results] == before
        store.merge()
        store.delete(ids=ids[:50])
        store.insert(fingerprints, ids[::-1])
        store.merge()
        assert len(other) == len(fingerprints)
        assert [[plain(part) for part in matches] for matches in results] == before
        for pieces, wanted in zip(items, rows, strict=True):
            seen = {}
            for keys, lims, named in pieces:
                listed = named if isinstance(named, list) else named.tolist()
                seen |= {
                    key: set(listed[lims[m] : lims[m + 1]]) for m, key in enumerate(keys.tolist())
                }
            assert seen == wanted


# --- Limits ---------------------------------------------------------------------------------------


def test_a_delta_that_has_no_room_for_another_change(path, set_limits):
    """There are 2^32 - 2 of them.

    The next is refused, whatever it is, until the store is merged.
    """
    set_limits(versions=3)
    calls = {
        "insert": lambda: store.insert([20], [20]),
        "probe_insert": lambda: store.probe_insert(20, 20, 0),
        "probe_insert_many": lambda: store.probe_insert_many([20], [20], 0),
        "delete": lambda: store.delete(fingerprints=[1]),
    }
    with fpstore.open(path, "r+") as store:
        for value in (10, 11):
            store.insert([value])
        with pytest.raises(
            fpstore.StorageError,
            match="no room for these changes: merge the store; nothing was changed",
        ):
            # each row of it takes a version, and so does the whole
            store.probe_insert_many([20], [20], 0)
        store.insert([12])
        for call in calls.values():
            with pytest.raises(
                fpstore.StorageError,
                match="no room for these changes: merge the store; nothing was changed",
            ):
                call()
        assert list(content_of(store)) == [1, 2, 3, 10, 11, 12]
        store.merge()
        for call in calls.values():
            call()
        assert list(content_of(store)) == [2, 3, 10, 11, 12, 20]


def test_pairs_of_a_fingerprint_that_has_many_ids(tmp_path):
    """They are searched for, where there are more than 64 for each row that is asked for."""
    ids = list(range(0, 1000, 2))
    path = build(tmp_path / "many", [5] * len(ids), ids)
    for part in ([0], [998], [400], [401], [1001], [400, 401], [999, 1001, 998, 0, 1]):
        with fpstore.open(path, "r+") as store:
            assert store.insert([5] * len(part), part) == len(set(part) - set(ids))
            assert content_of(store) == {5: {*ids, *part}}
            assert store.insert([5] * len(part), part) == 0
            store.delete(ids=[number for number in part if number not in ids])
            assert content_of(store) == {5: set(ids)}


# --- Designs of stores that grow, and what is counted ---------------------------------------------

FRESH = np.random.default_rng(5).integers(0, 2**64, 40_000, np.uint64)


def test_a_store_that_starts_empty_gets_the_tables_that_it_needs(tmp_path):
    fpstore.build(tmp_path / "s", []).close()
    with fpstore.open(tmp_path / "s") as reader, fpstore.open(tmp_path / "s", "r+") as store:
        before = reader.design
        store.insert(FRESH, np.arange(len(FRESH), dtype=np.uint64))
        store.merge()
        assert store.design == reader.design != before
        assert store.design == fpstore.build(tmp_path / "anew", FRESH).design
        assert store.verify().ok
        assert [len(item) for item in reader.probe_many(FRESH[:50] ^ np.uint64(5))] == [1] * 50
        store.insert(FRESH[:100] ^ np.uint64(1 << 40), np.arange(100, dtype=np.uint64))
        now = store.design
        store.merge()
        assert store.design == now  # a little more is no reason


class Asked:
    """A delta that notes by what it was asked."""

    def __init__(self, kernel):
        self.kernel, self.names = kernel, []

    def __getattr__(self, name):
        self.names.append(name)
        return getattr(self.kernel, name)


@pytest.mark.parametrize(
    ("design", "radius", "way"),
    [("flip-1", 3, "probe"), ("scan", 3, "probe"), ("flip-1", 4, "scan")],
)
@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
def test_a_delta_is_looked_up_beside_tables_that_are_scanned(
    tmp_path, monkeypatch, design, radius, way
):
    path = tmp_path / "a.fps"
    fpstore.build(path, [], design=design).close()
    rows = np.random.default_rng(1).integers(0, 2**64, 2_000, dtype=np.uint64)
    with fpstore.open(path, "r+") as store:
        store.insert(rows)
        snapshot = store.snapshot()
        delta = Asked(snapshot._delta_kernel)
        monkeypatch.setattr(snapshot, "_delta_kernel", delta)
        matches = store.probe_many(rows[:50] ^ np.uint64(5), radius)
        assert matches.fingerprints.tolist() == rows[:50].tolist()
    assert way in delta.names
    assert {"probe": "scan", "scan": "probe"}[way] not in delta.names


def test_a_design_that_was_named_stays_until_another_is(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100], design="flip-2").close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[100:], np.arange(100, len(FRESH), dtype=np.uint64))
        store.merge()
        assert store.design.name == "flip-2"
        store.redesign("manku-10")  # also without any change
        assert (store.design.name, store.stats()["generation"]) == ("manku-10", 3)
        assert store.verify().ok
        with fpstore.build(tmp_path / "anew", FRESH, design="manku-10") as anew:
            folders = tmp_path / "s" / "gen-00000003", anew.path / "gen-00000001"
            for i in range(10):
                name = f"table-{i:03d}.fpt"
                assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
        store.redesign("auto")
        assert store.design.name != "manku-10"
        with pytest.raises(fpstore.InputError, match="nonsense"):
            store.redesign("nonsense")
    with fpstore.open(tmp_path / "s") as store:
        assert len(store) == len(FRESH)


def test_verify_counts_what_is_stored_now(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[95:110])
        store.delete(fingerprints=FRESH[:3])
        report = store.verify()
        assert (report.ok, report.fingerprints, report.ids) == (True, 107, 112)
        assert (len(store), len(store.ids)) == (107, 112)


def test_stats_of_a_store_that_was_replaced(tmp_path):
    fpstore.build(tmp_path / "s", FRESH[:100]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        store.insert(FRESH[100:110])
    with fpstore.open(tmp_path / "s") as reader:
        before = reader.stats()
        assert before["bytes"]["delta"] > 0
        fpstore.build(tmp_path / "s", FRESH[:7], overwrite=True).close()
        stats = reader.stats()
        assert (stats["fingerprints"], stats["bytes"]["delta"]) == (110, before["bytes"]["delta"])
