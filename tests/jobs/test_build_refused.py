"""What a build refuses, and that it writes nowhere else."""

import os

import numpy as np
import pytest
from building import listing, make_rows, pieces, run_python

import fpstore
from fpstore.design.families import _lookups
from fpstore.io import open_reader

ONE = np.array([1], np.uint64)
BAD = {
    "text": (("abc",), {}, "an iterable of arrays, or a reader, got str"),
    "number": ((3,), {}, "got int"),
    "dict": (({1: 2},), {}, "got dict"),
    "iterable of ints": ((dict.fromkeys([1, 2]).keys(),), {}, "arrays of fingerprints, not single ones, got 1"),
    "signed part": (([ONE, ONE.view(np.int64)],), {}, "int64"),
    "few ids": (([1, 2], [1]), {}, "1 id for 2 fingerprints"),
    "many ids": (([1, 2], ["a", "b", "c"]), {}, "3 ids for 2 fingerprints"),
    "few id parts": (([ONE, ONE], [[1]]), {}, "fewer id arrays than fingerprint arrays"),
    "many id parts": (([ONE], [[1], [2]]), {}, "more id arrays than fingerprint arrays"),
    "id array for parts": (([ONE], np.array([1])), {}, "ids must be an iterable of as many id arrays"),
    "id text for parts": (([ONE], "a"), {}, "ids must be an iterable of as many id arrays"),
    "ids of two kinds": (([ONE, ONE], [[1], ["a"]]), {}, "ids of the same kind"),
    "mixed ids": (([1, 2], [1, "a"]), {}, "all integers or all strings"),
    "negative id": (([1], [-1]), {}, "-1"),
    "large id": (([1], [2**64]), {}, "2\\^64-1"),
    "float id": (([1], [1.5]), {}, "1.5"),
    "float ids": (([1], np.array([1.5])), {}, "float64"),
    "empty id": (([1], [""]), {}, "the id is empty"),
    "surrogate id": (([1], ["\ud800"]), {}, "is not valid UTF-8"),
    "id text": (([1], "a"), {}, "ids must be an array or a list, got str"),
    "radius": ((ONE,), {"radius": 65}, "radius must be a whole number from 0 to 64, got 65"),
    "design": ((ONE,), {"design": "manku-5"}, "unknown design 'manku-5'"),
    "design for radius": ((ONE,), {"design": "manku-4", "radius": 4}, "manku-4 is exact up to radius 3"),
    "uncovered": (
        (ONE,),
        {"design": [{"permutation": list(range(64)), "prefix_bits": 16}]},
        "some pairs meet in none",
    ),
    "memory": ((ONE,), {"memory": "63MiB"}, "memory must be at least 64MiB"),
    "memory text": ((ONE,), {"memory": "lots"}, "memory must be a number of bytes or a size such as 2GiB"),
    "memory negative": ((ONE,), {"memory": -1}, "memory must be positive"),
    "threads": ((ONE,), {"threads": 0}, "threads must be a whole number from 1 to 1024, got 0"),
    "block bytes": ((ONE,), {"block_bytes": 1000}, "block_bytes must be one of 128, 256"),
    "storage": ((ONE,), {"storage": "lukewarm"}, "storage must be one of hot, cold"),
    "disk budget": ((ONE,), {"disk_budget": 1}, "no design fits the disk budget: .* is the smallest at"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(tmp_path, case):
    args, options, message = BAD[case]
    for overwrite in (False, True):
        with pytest.raises(fpstore.InputError, match=message) as caught:
            fpstore.build(tmp_path / "s", *args, overwrite=overwrite, **options)
        assert "\n" not in str(caught.value)
        assert listing(tmp_path) == []


class Unread:
    """A source that knows how many rows it has, and is not to be read."""

    rows = 1 << 34

    def __iter__(self):
        raise AssertionError("read")


def test_a_design_with_too_many_lookups_is_refused_unread(tmp_path):
    with pytest.raises(fpstore.InputError, match=r"flip-1 needs .* look-ups in table 0 at radius 7; .* choose a design"):
        fpstore.build(tmp_path / "s", Unread(), design="flip-1", radius=7)
    assert listing(tmp_path) == []


def test_a_design_with_too_many_lookups_is_refused_before_its_tables_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("fpstore.design.families.MAX_VARIANTS", 1000)
    monkeypatch.setattr("fpstore.building.generation_writer.TableWriter", None)
    fingerprints = make_rows("random", 1 << 14)[0]
    _lookups.cache_clear()
    with pytest.raises(fpstore.InputError, match=r"flip-1 needs .* look-ups in table 0 at radius 7"):
        fpstore.build(tmp_path / "s", pieces(fingerprints), design="flip-1", radius=7)
    assert listing(tmp_path) == []
    monkeypatch.undo()
    _lookups.cache_clear()


def test_ids_do_not_go_with_a_reader(tmp_path):
    np.save(tmp_path / "a.npy", ONE)
    with pytest.raises(fpstore.InputError, match="ids come with the reader"):
        fpstore.build(tmp_path / "s", open_reader(tmp_path / "a.npy"), [[1]])
    assert listing(tmp_path) == ["a.npy"]


def test_a_bad_line_of_a_reader_is_named(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("0x2a\nzz\n")
    with pytest.raises(fpstore.InputError, match=f"{path}:2: "):
        fpstore.build(tmp_path / "s", open_reader(path))
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


def test_the_building_process_needs_no_other_folder(tmp_path):
    """Nothing is written outside the target's parent."""
    code, _, err = run_python(
        "import os, sys, fpstore; os.environ['TMPDIR'] = '/nonexistent'; fpstore.build(sys.argv[1], [1, 2])",
        tmp_path / "s",
    )
    assert (code, err) == (0, "")
    assert os.listdir(tmp_path) == ["s"]  # noqa: PTH208 - hidden names too


def test_nested_designs_have_as_many_tables_as_others_at_most(tmp_path):
    """A thousand tables made a record that the store could not read back."""
    with pytest.raises(fpstore.InputError, match="more than 500 tables"):
        fpstore.build(tmp_path / "s", [1, 2, 3], design="nested-32-32")
    assert list(tmp_path.iterdir()) == []


class Column:
    """What converts itself to an array, as columns of data frames do."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


MASKED = np.ma.array([1, 2, 3], mask=[False, True, False], dtype=np.uint64)
RECORDS = np.ma.array([(1, 2), (3, 4)], mask=[(False, True), (False, False)], dtype=[("a", "u8"), ("b", "u8")])


@pytest.mark.parametrize(
    "wrap", [lambda a: a, Column, lambda a: [a], lambda a: iter([a])], ids=["array", "column", "list", "parts"]
)
@pytest.mark.parametrize("array", [MASKED, RECORDS, RECORDS[:1]], ids=["masked", "records", "one record"])
def test_masked_values_are_refused(tmp_path, array, wrap):
    """The values under the mask were stored, and records ended in a TypeError."""
    with pytest.raises(fpstore.InputError):
        fpstore.build(tmp_path / "s", wrap(array))
    with pytest.raises(fpstore.InputError):
        fpstore.build(tmp_path / "s", [1, 2, 3][: len(array)], wrap(array))
    assert listing(tmp_path) == []
    path = tmp_path / "t"
    with fpstore.build(path, [7]) as store:
        for ask in (store.probe_many, store.ids_of, lambda a: store.scan(a, 1)):
            with pytest.raises(fpstore.InputError):
                ask(wrap(array))
    with fpstore.open(path, "r+") as store:
        for change in (
            lambda a: store.insert(a),
            lambda a: store.insert([1, 2, 3][: len(array)], a),
            lambda a: store.probe_insert_many(a, [1, 2, 3][: len(array)]),
            lambda a: store.delete(fingerprints=a),
            lambda a: store.delete(ids=a),
        ):
            with pytest.raises(fpstore.InputError):
                change(wrap(array))
        assert len(store) == 1


def test_a_masked_array_without_masked_values_is_an_array(tmp_path):
    whole = np.ma.array([1, 2, 3], mask=False, dtype=np.uint64)
    with fpstore.build(tmp_path / "s", Column(whole), whole) as store:
        assert list(store) == [1, 2, 3]
