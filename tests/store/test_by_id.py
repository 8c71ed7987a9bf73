"""Look-ups, deletes and replacements by id, with and without the index."""

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from commandline import failure, fine
from damage import rewrite
from small_stores import rows_of
from speeds import crossed, slow

import fpstore
from fpstore.format.mapping import PLACES_FILES, IdIndex, bits_per_rank
from fpstore.format.packed_table import PackedTable

KINDS = {
    "strings": (lambda i: f"d{i}", False),
    "indexed": (lambda i: i, True),
    "integers": (lambda i: i, False),
}
OPTIONS = {"design": "flip-1", "radius": 2, "block_bytes": 128, "threads": 1}
MAX = 2**64 - 1


def check(store, expected, names):
    """Compare everything, also what each id leads to."""
    assert rows_of(store) == expected
    assert (len(store), len(store.ids)) == (len({f for f, _ in expected}), len(expected))
    wanted = [sorted(f for f, i in expected if i == name) for name in names]
    assert [name in store.ids for name in names] == [bool(fingerprints) for fingerprints in wanted]
    assert [store.ids[name] for name in names if name in store.ids] == [
        fingerprints for fingerprints in wanted if fingerprints
    ]
    lims, result = store.fingerprints_of(names)
    assert [result[a:b].tolist() for a, b in pairwise(lims)] == wanted


class Changes:
    """Random changes to a store and to a set of pairs."""

    def __init__(self, seed, name):
        self.random, self.name = random.Random(seed), name
        self.names = [name(i) for i in range(60)]

    def rows(self, count):
        return [
            (self.random.randrange(40), self.name(self.random.randrange(60))) for _ in range(count)
        ]

    def step(self, store, held):
        rows = self.rows(self.random.choice([1, 1, 5]))
        fingerprints, ids = (list(column) for column in zip(*rows, strict=True))
        what = self.random.choice(
            [
                "insert",
                "upsert",
                "upsert",
                "delete",
                "delete many",
                "fingerprints",
                "pairs",
                "merge",
            ]
        )
        if what == "insert":
            assert store.insert(fingerprints, ids) == len({*rows} - held)
            return held | {*rows}
        if what == "upsert":
            last = {i: f for f, i in rows}
            if len(rows) == 1:
                fingerprints, ids = fingerprints[0], ids[0]
            after = {(f, i) for f, i in held if i not in last} | {(f, i) for i, f in last.items()}
            assert store.upsert(fingerprints, ids) == len({i for _, i in held ^ after})
            return after
        if what == "merge":
            store.merge(threads=1)
            return held
        if what == "pairs":
            rows = self.random.sample(sorted(held), min(3, len(held))) + rows + rows[:1]
            fingerprints, ids = (list(column) for column in zip(*rows, strict=True))
            assert store.delete(fingerprints=fingerprints, ids=ids) == (
                len({*rows} & held),
                len({*rows} - held),
            )
            return held - {*rows}
        options = (
            {*fingerprints} if what == "fingerprints" else {*(ids[:1] if what == "delete" else ids)}
        )
        gone = {pair for pair in held if pair[what != "fingerprints"] in options}
        answer = len(gone), len(options - {pair[what != "fingerprints"] for pair in gone})
        if what == "fingerprints":
            assert store.delete(fingerprints=fingerprints) == answer
        else:
            assert store.delete(ids=ids[0] if what == "delete" else ids) == answer
        return held - gone


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [0, slow(1), slow(2)])
@pytest.mark.parametrize("kind", KINDS)
def test_any_changes(tmp_path, kind, seed):
    name, index_ids = KINDS[kind]
    changes = Changes(seed, name)
    held = {*changes.rows(50)}
    fingerprints, ids = zip(*sorted(held), strict=True)
    fpstore.build(
        tmp_path / "s", list(fingerprints), list(ids), index_ids=index_ids, **OPTIONS
    ).close()
    with fpstore.open(tmp_path / "s", "r+") as store, fpstore.open(tmp_path / "s") as reader:
        for _ in range(40):
            held = changes.step(store, held)
            check(store, held, changes.names)
            assert rows_of(reader) == held
        assert store.verify().ok
        assert (store.snapshot().generation.places is not None) == (kind != "integers")
    with fpstore.open(tmp_path / "s") as store:
        check(store, held, changes.names)


def test_without_ids_no_kind_of_id_is_wrong(tmp_path):
    """A store that has none finds none, whatever is asked for."""
    fpstore.build(tmp_path / "s", [], design="flip-1", radius=2, threads=1).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for name in (5, "five"):
            assert name not in store.ids
            with pytest.raises(fpstore.NotStoredError):
                store.ids[name]
            assert store.delete(ids=name) == store.delete(ids=[name]) == (0, 1)
            assert [column.tolist() for column in store.fingerprints_of([name, name])] == [
                [0, 0, 0],
                [],
            ]


def test_upsert_of_odd_rows(tmp_path):
    with fpstore.build(tmp_path / "s", [1, 1, 2], ["a", "b", "a"], **OPTIONS):
        pass
    with fpstore.open(tmp_path / "s", "r+") as store:
        assert store.upsert(1, "b") == 0
        # the last row of an id counts; the other pair of `a` goes
        assert store.upsert([5, 6, 1], ["c", "c", "a"]) == 2
        assert rows_of(store) == {(1, "a"), (1, "b"), (6, "c")}
        assert store.upsert([], []) == 0
        version = store.snapshot().version + 1
        assert store.upsert([7, 7], ["a", "b"]) == 2
        assert rows_of(store) == {(7, "a"), (7, "b"), (6, "c")}
        assert store.snapshot().version == version  # it is one change
        assert store.upsert([7, 6], ["b", "c"]) == 0
        assert store.snapshot().version == version  # nothing is logged
        for wrong, message in (
            (lambda: store.upsert(1, None), "an id for each row"),
            (lambda: store.upsert([1, 2], ["a"]), "1 id for 2 fingerprints"),
            (lambda: store.upsert(1, 5), "its ids are strings, got integers"),
        ):
            with pytest.raises(fpstore.InputError, match=message):
                wrong()
        assert store.verify().ok
    with fpstore.open(tmp_path / "s") as store, pytest.raises(fpstore.ReadOnlyError):
        store.upsert(1, "a")


@pytest.mark.parametrize("kind", KINDS)
def test_ids_that_change_places(tmp_path, kind):
    """A fingerprint whose only id leaves stays if another id comes in the same call."""
    name, index_ids = KINDS[kind]
    a, b, c = map(name, range(3))
    fpstore.build(tmp_path / "s", [1, 2, 3], [a, b, c], index_ids=index_ids, **OPTIONS).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        assert store.upsert([2, 3, 9], [a, b, c]) == 3
        for _ in range(2):
            check(store, {(2, a), (3, b), (9, c)}, [a, b, c])
            store.merge(threads=1)


# --- The index through merges, parts and copies ---------------------------------------------------


def test_the_index_stays(tmp_path):
    path = tmp_path / "s"
    rng = np.random.default_rng(5)
    fingerprints = rng.integers(0, 2**64, 900, np.uint64)
    ids = np.concatenate(
        [
            rng.integers(0, 2**64, 450, np.uint64),
            np.array([0, MAX], np.uint64),
            rng.integers(0, 100, 448).astype(np.uint64),
        ]
    )
    fpstore.build(path, fingerprints, ids, index_ids=True, **OPTIONS).close()
    fpstore.build(
        tmp_path / "other", fingerprints[:50] ^ np.uint64(1), np.arange(50), **OPTIONS
    ).close()
    with fpstore.open(path, "r+") as store:
        store.absorb(tmp_path / "other", threads=1)
        store.backup(tmp_path / "copy")
        parts = store.split(tmp_path / "parts", 1, threads=1)
        expected = rows_of(store)
    (path / "gen-00000002" / "table-000.fpt").unlink()
    report = fpstore.repair(path, tmp_path / "mended")
    united = set()
    for made in (tmp_path / "copy", *parts, Path(report.output)):
        with fpstore.open(made) as store:
            assert store.snapshot().generation.places is not None
            assert store.stats()["bytes"]["id_index"] > 0
            assert store.verify().ok
            held = rows_of(store)
            check(store, held, [0, MAX, *range(100), *ids[:50].tolist()])
            if made in parts:
                united |= held
    assert united == expected


def test_an_empty_store_gets_its_index_with_the_first_merge(tmp_path):
    with fpstore.build(tmp_path / "s", [], index_ids=True):
        pass
    with fpstore.open(tmp_path / "s", "r+") as store:
        assert 7 not in store.ids
        store.insert([1, 2], [7, 8])
        store.merge()
        assert (store.ids[7], store.ids[8], 9 in store.ids) == ([1], [2], False)
        store.delete(ids=[7, 8])
        store.merge()
        assert 7 not in store.ids
        assert store.verify().ok


@pytest.mark.parametrize("lost", [*PLACES_FILES, "manifest.json"])
def test_repair_makes_the_index_anew_or_names_its_loss(tmp_path, lost):
    """The new store had none, and nobody was told."""
    path, ids = tmp_path / "s", np.arange(100) * 7
    fpstore.build(path, np.arange(100, dtype=np.uint64), ids, index_ids=True, **OPTIONS).close()
    next(path.rglob(lost)).unlink()
    report = fpstore.repair(path)
    named = [loss for loss in report.losses if "has no index by id" in loss]
    assert bool(named) == (lost == "manifest.json")
    with fpstore.open(report.output) as store:
        assert store.snapshot().generation.manifest.index_ids == (not named)
        assert store.ids[ids[99]] == [99]


def test_the_index_is_sorted_in_files(tmp_path, set_limits):
    # so that the least budget holds 4,096 rows
    set_limits(pair_bytes=1 << 14)
    ids = np.random.default_rng(6).permutation(20_000).astype(np.uint64)
    fingerprints = np.random.default_rng(7).integers(0, 2**64, len(ids), np.uint64)
    fpstore.build(
        tmp_path / "s", fingerprints, ids, index_ids=True, memory="64MiB", **OPTIONS
    ).close()
    with fpstore.open(tmp_path / "s") as store:
        lims, result = store.fingerprints_of(ids)
        assert (result == fingerprints).all()
        assert (np.diff(lims) == 1).all()
        assert store.verify().ok
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_looked_up_in_pieces(tmp_path, set_limits, kind):
    """Whichever way: a few keys of an index at a time, a few blocks of the id map."""
    set_limits(id_look_ups=3, id_find_blocks=2)
    name, index_ids = KINDS[kind]
    fingerprints = np.random.default_rng(4).integers(0, 2**64, 400, np.uint64).tolist()
    rows = [
        (fingerprint, name(place // (1 + place % 5)))
        for place, fingerprint in enumerate(fingerprints)
    ]
    with fpstore.build(
        tmp_path / "s", *map(list, zip(*rows, strict=True)), index_ids=index_ids, **OPTIONS
    ) as store:
        assert store.snapshot().generation.tables[0].kernel.block_count > 10
        check(store, set(rows), [name(place) for place in range(400)])


def test_bits_of_ranks():
    assert [bits_per_rank(most) for most in (0, 1, 2, 3, 4, 5, 32768)] == [0, 0, 1, 2, 2, 3, 15]


# --- Damage ---------------------------------------------------------------------------------------


@pytest.fixture
def indexed(tmp_path):
    fingerprints = np.random.default_rng(8).integers(0, 2**64, 400, np.uint64)
    fpstore.build(tmp_path / "s", fingerprints, [f"n{i}" for i in range(400)], **OPTIONS).close()
    return tmp_path / "s"


@pytest.mark.parametrize(
    ("file", "how"), crossed(PLACES_FILES, ["gone", "cut", "flipped", "of another store"])
)
def test_a_damaged_index_is_refused(indexed, tmp_path, file, how):
    path = indexed / "gen-00000001" / file
    data = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data[100] ^= 1
        path.write_bytes(data)
    else:
        fingerprints = np.random.default_rng(9).integers(0, 2**64, 400, np.uint64)
        fpstore.build(
            tmp_path / "o", fingerprints, [f"m{i}" for i in range(401)][1:], **OPTIONS
        ).close()
        with fpstore.open(tmp_path / "o", "r+") as other:
            other.delete(ids="m7")
            other.merge(threads=1)
        shutil.copyfile(tmp_path / "o" / "gen-00000002" / file, path)
    with pytest.raises(fpstore.FpstoreError, match=file.replace(".", r"\.")):
        fpstore.open(indexed)
    report = fpstore.repair(indexed)
    assert report.complete
    with fpstore.open(report.output) as store:
        assert store.ids["n7"]
        assert len(store.ids) == 400


def test_index_that_contradicts_the_id_map_is_noticed(tmp_path):
    """Under checksums that are right: what a faulty writer would leave."""
    fingerprints = np.random.default_rng(8).integers(0, 2**64, 400, np.uint64)
    numbers = np.arange(400)
    # the same ids for other fingerprints
    for name, ids in (("s", numbers), ("o", [1, 0, *range(2, 400)])):
        fpstore.build(tmp_path / name, fingerprints, ids, index_ids=True, **OPTIONS).close()
    with fpstore.open(tmp_path / "o") as other:
        record = other.snapshot().generation.record.places
    for file in PLACES_FILES:
        shutil.copyfile(
            tmp_path / "o" / "gen-00000001" / file, tmp_path / "s" / "gen-00000001" / file
        )
    rewrite(tmp_path / "s", lambda content: content["generation"].update(places=record))
    with fpstore.open(tmp_path / "s") as store:
        (fault,) = store.verify().faults
        assert "does not say the same as the id map" in fault["message"]


def test_verify_checks_the_whole_table_of_an_index(indexed):
    """Also its directory, which no question by id needs to be right."""
    path = indexed / "gen-00000001" / PLACES_FILES[0]
    data = path.read_bytes()
    with fpstore.open(indexed) as store:
        for at in range(PackedTable(path).kernel.directory_offset, len(data), 8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            (fault,) = store.verify().faults
            assert (fault["path"], "directory" in fault["message"]) == (str(path), True)


@pytest.mark.parametrize(("rank_bits", "what"), [(1, "block"), (15, "rank")])
def test_index_that_leads_beyond_the_table_is_named_as_damaged(
    indexed, monkeypatch, rank_bits, what
):
    with fpstore.open(indexed) as store:
        generation = store.snapshot().generation
        forged = IdIndex(generation.folder, {**generation.record.places, "rank_bits": rank_bits})
        monkeypatch.setattr(generation, "places", forged)
        names, blocks = [f"n{i}" for i in range(400)], generation.identity.block_count
        wrong = [
            name
            for number, name in enumerate(names)
            if _is_beyond(forged.get_places(number), generation)
        ]
        assert wrong, (what, blocks)
        for name in wrong[::10]:
            for ask in (
                lambda name=name: store.ids[name],
                lambda name=name: store.fingerprints_of([name]),
            ):
                with pytest.raises(
                    fpstore.CorruptStoreError,
                    match=r"places\.mdb, block \d+: a place that the table does not have",
                ):
                    ask()
        forged.close()


def _is_beyond(places, generation):
    counts = np.concatenate([counts for _, counts in generation.tables[0].pieces()])
    return any(block >= len(counts) or rank >= counts[block] for block, rank in places)


# --- The command line -----------------------------------------------------------------------------


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pages.tsv").write_text("0x1\thttps://a\n0x2\thttps://b\n")
    Path("again.tsv").write_text("0x5\thttps://a\n0x2\thttps://b\n")
    fine("build", "s.fps", "pages.tsv")
    done = json.loads(fine("insert", "s.fps", "again.tsv", "--upsert", "--json"))
    assert done == {"rows": 2, "changed": 1, "fingerprints": 2, "ids": 2}
    assert fine("export", "s.fps").splitlines() == [
        "0000000000000002\thttps://b",
        "0000000000000005\thttps://a",
    ]
    assert "give --json" in failure(
        "insert", "s.fps", "again.tsv", "--upsert", "--unmatched", code=2
    )
    Path("rows.tsv").write_text("0x7\n")
    assert "needs an id in each row" in failure("insert", "s.fps", "rows.tsv", "--upsert")
    Path("numbers.tsv").write_text("0x1\t10\n0x2\t20\n")
    fine("build", "n.fps", "numbers.tsv", "--index-ids")
    assert "index by id" in fine("stats", "n.fps")
    assert json.loads(fine("stats", "n.fps", "--json"))["bytes"]["id_index"] > 0
    fine("delete", "n.fps", "20")
    assert fine("export", "n.fps").splitlines() == ["0000000000000001\t10"]


@pytest.mark.parametrize("moved", [2, 1, 0])
def test_an_upsert_that_failed_says_which_rows_are_in(tmp_path, monkeypatch, set_limits, moved):
    """The number of ids does not tell.

    An id that moves adds none, and one that leaves two fingerprints takes one away.
    """
    monkeypatch.chdir(tmp_path)
    set_limits(cli_changes=2)
    fpstore.build("s.fps", [1, 2, 3], ["a", "b", "a"], **OPTIONS).close()
    Path("pages.tsv").write_text(
        "".join(f"0x{7 if row < moved else row + 1}\t{name}\n" for row, name in enumerate("ab"))
    )
    Path("bad.tsv").write_text("not hex\n")
    message = failure("insert", "s.fps", "pages.tsv", "bad.tsv", "--upsert")
    changed = 2 if moved == 2 else 1  # `a` leaves one of its fingerprints in any case
    were = "row of the first 2 was" if changed == 1 else "rows of the first 2 were"
    assert f"before that, {changed} {were} changed; repeat the command" in message
    with fpstore.open("s.fps") as store:
        assert len(store.ids) == 2


def test_paths_are_string_ids(tmp_path):
    paths = [Path("a", "b.txt"), Path("c.txt")]
    with fpstore.build(tmp_path / "s", [1, 2], paths) as store:
        assert store[1] == ["a/b.txt"]
        assert (paths[0] in store.ids, Path("d") in store.ids, store.ids[paths[1]]) == (
            True,
            False,
            [2],
        )
        assert store.fingerprints_of(paths)[1].tolist() == [1, 2]
    with fpstore.open(tmp_path / "s", "r+") as store:
        assert store.insert(3, Path("d")) == store.insert([4], np.array([Path("e")], object)) == 1
        assert store.upsert([5], [Path("e")]) == store.upsert(6, Path("d")) == 1
        assert store.probe_insert(2**40 - 1, Path("f")) == []
        assert store.delete(ids=Path("d")) == store.delete(ids=[Path("e")]) == (1, 0)
        assert store.delete(ids=[*paths, "f"]) == (3, 0)
    with pytest.raises(fpstore.InputError, match="ids must be all integers or all strings"):
        fpstore.build(tmp_path / "t", [1, 2], [Path("a"), 1])
