"""Many upserts in one change have the answers of single ones, and leave the same store."""

import pickle

import numpy as np
import pytest
from speeds import ALL_WIDTHS

import fpstore
from fpstore import InputError, Match

KINDS = {
    "integer": lambda number: number,
    "indexed": lambda number: number,
    "row": lambda number: number,
    "string": str,
}


def content(store):
    return [(number, sorted(store[number])) for number in store]


def drawn(chance, width, count, named):
    """Return rows of a few clusters, whose ids often come again."""
    centres = [int(digit * (width // 4), 16) for digit in "0123"]
    flips = [chance.choice(width, 2, replace=False).tolist() for _ in range(count)]
    values = [centres[chance.integers(4)] ^ 1 << item ^ 1 << other for item, other in flips]
    return values, [named(int(number)) for number in chance.integers(0, 16, count)]


def both(path, start, ids, **options):
    """Return two stores of the same rows, open for changes."""
    path.mkdir()
    for name in ("many", "single"):
        fpstore.build(path / name, start, ids, **options).close()
    return fpstore.open(path / "many", "r+"), fpstore.open(path / "single", "r+")


@pytest.mark.filterwarnings("ignore::fpstore.ScanWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", ALL_WIDTHS)
def test_many_rows_are_decided_as_row_by_row(tmp_path, width, kind):
    for seed in range(3):
        chance = np.random.default_rng([width, seed])
        start, ids = drawn(chance, width, 12, KINDS[kind]) if seed else ([], [])
        if kind == "row":
            ids = None
        more = {"index_ids": True} if kind == "indexed" else {}
        many, single = both(tmp_path / str(seed), start, ids, width=width, radius=3, **more)
        with many, single:
            for step in range(6):
                values, names = drawn(chance, width, int(chance.integers(0, 25)), KINDS[kind])
                radius = [None, 1, 5][step % 3]
                wanted = [
                    single.probe_upsert(value, name, radius)
                    for value, name in zip(values, names, strict=True)
                ]
                matches = many.probe_upsert_many(values, names, radius, threads=1 + step % 2)
                assert list(matches) == [matches[row] for row in range(len(values))] == wanted
                assert list(pickle.loads(pickle.dumps(matches))) == wanted
                assert matches.inserted.tolist() == [not row for row in wanted]
                assert content(many) == content(single)
                assert many.snapshot().totals == single.snapshot().totals
                if step == 3:
                    many.merge()
                    single.merge()
                    assert list(matches) == wanted
        with fpstore.open(tmp_path / str(seed) / "many") as store:
            assert store.verify().ok


def test_rows_of_a_batch_are_one_change(tmp_path):
    fpstore.build(tmp_path / "s", [7, 0xFF00], ["a", "b"]).close()
    with fpstore.open(tmp_path / "s", "r+") as store, fpstore.open(tmp_path / "s") as reader:
        before = reader.snapshot().record
        matches = store.probe_upsert_many([6, 5, 1 << 40, 0xFF01], ["a", "c", "a", "c"])
        assert list(matches) == [[], [Match(6, 2, ["a"])], [], [Match(0xFF00, 1, ["b"])]]
        assert content(reader) == [(0xFF00, ["b"]), (1 << 40, ["a"])]
        assert reader.snapshot().record == before + 1
        assert matches.to_arrow().column("id").to_pylist() == ["a", "b"]


def test_a_batch_reads_the_id_map_once(tmp_path, monkeypatch):
    fpstore.build(tmp_path / "s", np.arange(100, dtype=np.uint64) << np.uint64(40)).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        calls, find = [], type(store.snapshot().generation.ids).find
        monkeypatch.setattr(
            type(store.snapshot().generation.ids),
            "find",
            lambda *given: calls.append(1) or find(*given),
        )
        store.probe_upsert_many(
            np.arange(100, dtype=np.uint64) << np.uint64(41) | np.uint64(1), range(100)
        )
        assert len(calls) == 1


def test_a_batch_with_a_wrong_row_changes_nothing(tmp_path):
    fpstore.build(tmp_path / "s", [7], ["a"]).close()
    with fpstore.open(tmp_path / "s", "r+") as store:
        for values, ids in (
            ([1 << 30, -1], ["a", "b"]),
            ([1 << 30], None),
            ([1 << 30], [5]),
            ([1, 2], ["a"]),
            ([1], ["a", "b"]),
        ):
            with pytest.raises(InputError):
                store.probe_upsert_many(values, ids)
        assert content(store) == [(7, ["a"])]
        assert store.probe_upsert_many([], []).inserted.tolist() == []
