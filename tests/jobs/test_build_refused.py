"""What a build refuses, and that it writes nowhere else."""

import itertools

import numpy as np
import pytest
from building import listing, make_rows, pieces
from limits import patch_limits

import fpstore
from fpstore.design.families import _lookups
from fpstore.io import open_reader

ONE = np.array([1], np.uint64)
BAD = {
    "text": (("abc",), {}, "an iterable of arrays, or a reader, got str"),
    "dict": (({1: 2},), {}, "got dict"),
    "iterable of ints": (
        (dict.fromkeys([1, 2]).keys(),),
        {},
        "arrays of fingerprints, not single ones, got 1",
    ),
    "signed part": (([ONE, ONE.view(np.int64)],), {}, "int64"),
    "few ids": (([1, 2], [1]), {}, "1 id for 2 fingerprints"),
    "many ids": (([1, 2], ["a", "b", "c"]), {}, "3 ids for 2 fingerprints"),
    "many id parts": (([ONE], [[1], [2]]), {}, "more id arrays than fingerprint arrays"),
    "id array for parts": (
        ([ONE], np.array([1])),
        {},
        "ids must be an iterable of as many id arrays",
    ),
    "id text for parts": (([ONE], "a"), {}, "ids must be an iterable of as many id arrays"),
    "ids of two kinds": (([ONE, ONE], [[1], ["a"]]), {}, "ids of the same kind"),
    "mixed ids": (([1, 2], [1, "a"]), {}, "all integers or all strings"),
    "large id": (([1], [2**64]), {}, "2\\^64-1"),
    "float ids": (([1], np.array([1.5])), {}, "float64"),
    "design": ((ONE,), {"design": "manku-5"}, "unknown design 'manku-5'"),
    "uncovered": (
        (ONE,),
        {"design": "manku-4", "radius": 4},
        "manku-4 is exact up to radius 3, got 4",
    ),
    # their record could not be read back
    "too many tables": ((ONE,), {"design": "nested-32-32"}, "more than 500 tables"),
    "disk budget": (
        (ONE,),
        {"disk_budget": 1},
        "no design fits the disk budget: .* is the smallest at",
    ),
}


def test_refused(tmp_path):
    for case, (args, options, message) in BAD.items():
        for overwrite in (False, True):
            with pytest.raises(fpstore.InputError, match=message) as caught:
                fpstore.build(tmp_path / "s", *args, overwrite=overwrite, **options)
            assert "\n" not in str(caught.value)
            assert listing(tmp_path) == [], case


def test_design_of_too_many_lookups_is_refused_before_any_write(tmp_path, monkeypatch):
    class Unread:
        rows = 1 << 34
        __iter__ = None

    message = r"flip-1 needs .* look-ups in table 0 at radius 7; .* choose a design"
    with pytest.raises(fpstore.InputError, match=message):
        fpstore.build(tmp_path / "s", Unread(), design="flip-1", radius=7)
    patch_limits(monkeypatch, table_variants=1000)
    monkeypatch.setattr("fpstore.building.generation_writer.TableWriter", None)
    _lookups.cache_clear()
    with pytest.raises(fpstore.InputError, match=message):
        fpstore.build(
            tmp_path / "s", pieces(make_rows("random", 1 << 14)[0]), design="flip-1", radius=7
        )
    assert listing(tmp_path) == []
    monkeypatch.undo()
    _lookups.cache_clear()


def test_readers_that_are_refused(tmp_path):
    path = tmp_path / "a.tsv"
    for text, ids, message in (
        ("0x2a\n", [[1]], "ids come with the reader"),
        ("0x2a\nzz\n", None, f"{path}:2: "),
    ):
        path.write_text(text)
        with pytest.raises(fpstore.InputError, match=message):
            fpstore.build(tmp_path / "s", open_reader(path), ids)
    assert listing(tmp_path) == ["a.tsv"]


def test_the_disk_budget_bounds_the_choice(tmp_path):
    fingerprints = make_rows("random", 20_000)[0]
    free = fpstore.build(tmp_path / "free", fingerprints)
    plans = fpstore.plan(len(free))
    budget = (plans[0].disk_bytes + min(p.disk_bytes for p in plans)) // 2
    bound = fpstore.build(tmp_path / "bound", fingerprints, disk_budget=budget)
    with free, bound:
        assert bound.design != free.design
        assert bound.stats()["bytes"]["total"] < 1.1 * budget < free.stats()["bytes"]["total"]
        assert bound.probe(int(fingerprints[0])) == free.probe(int(fingerprints[0]))


class Column:
    """What converts itself to an array, as columns of data frames do."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


MASKED = np.ma.array([1, 2, 3], mask=[False, True, False], dtype=np.uint64)
RECORDS = np.ma.array(
    [(1, 2), (3, 4)], mask=[(False, True), (False, False)], dtype=[("a", "u8"), ("b", "u8")]
)


def test_masked_values_are_refused(tmp_path):
    """The values under the mask were stored, and records ended in a TypeError."""
    fpstore.build(tmp_path / "t", [7]).close()
    for wrap, array in itertools.product(
        (lambda a: a, Column, lambda a: [a]), (MASKED, RECORDS, RECORDS[:1])
    ):
        part = [1, 2, 3][: len(array)]
        with fpstore.open(tmp_path / "t", "r+") as store:
            for call in (
                lambda a: fpstore.build(tmp_path / "s", a),
                lambda a, part=part: fpstore.build(tmp_path / "s", part, a),
                store.probe_many,
                store.ids_of,
                lambda a, store=store: store.scan(a, 1),
                store.insert,
                lambda a, store=store, part=part: store.insert(part, a),
                lambda a, store=store, part=part: store.probe_insert_many(a, part),
                lambda a, store=store: store.delete(fingerprints=a),
                lambda a, store=store: store.delete(ids=a),
            ):
                with pytest.raises(fpstore.InputError):
                    call(wrap(array))
            assert len(store) == 1
    assert listing(tmp_path) == ["t"]


def test_a_masked_array_without_masked_values_is_an_array(tmp_path):
    whole = np.ma.array([1, 2, 3], mask=False, dtype=np.uint64)
    with fpstore.build(tmp_path / "s", Column(whole), whole) as store:
        assert list(store) == [1, 2, 3]
