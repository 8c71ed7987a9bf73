"""Builds from every kind of input make the same store."""

import numpy as np
import pytest
from building import build, listing, make_rows, pieces

import fpstore
from fpstore.io import open_reader


@pytest.fixture(scope="module")
def rows():
    return make_rows("clustered", 3000)


@pytest.fixture(scope="module")
def expected(rows, tmp_path_factory):
    return build(tmp_path_factory.mktemp("expected") / "s", *rows)


@pytest.mark.parametrize("form", ["list", "tuple", "arrays", "generator", "lists", "other dtypes"])
def test_every_form_of_input_builds_the_same(tmp_path, rows, expected, form):
    fingerprints, ids = rows
    source, source_ids = {
        "list": lambda: (fingerprints.tolist(), ids.tolist()),
        "tuple": lambda: (tuple(fingerprints.tolist()), tuple(ids.tolist())),
        "arrays": lambda: (pieces(fingerprints), pieces(ids)),
        "generator": lambda: (iter(pieces(fingerprints)), (p for p in pieces(ids))),
        "lists": lambda: (iter([p.tolist() for p in pieces(fingerprints)]), [p.tolist() for p in pieces(ids)]),
        "other dtypes": lambda: (np.repeat(fingerprints, 2)[::2].astype(">u8"), ids.astype(np.int32)),
    }[form]()
    assert build(tmp_path / "s", source, source_ids) == expected


class Series:
    """Converts itself to an array, as a pandas Series does, and is a sequence of numpy integers besides."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype, copy=copy)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)


@pytest.mark.parametrize("form", ["column", "arrow", "chunked arrow", "columns"])
def test_what_turns_itself_into_an_array_builds_the_same(tmp_path, rows, expected, form):
    fingerprints, ids = rows
    if form == "column":
        source, source_ids = Series(fingerprints), Series(ids)
    elif form == "columns":
        source, source_ids = [Series(p) for p in pieces(fingerprints)], [Series(p) for p in pieces(ids)]
    else:
        arrow = pytest.importorskip("pyarrow")
        make = arrow.array if form == "arrow" else lambda values: arrow.chunked_array(pieces(values))
        source, source_ids = make(fingerprints), make(ids)
    assert build(tmp_path / "s", source, source_ids) == expected


@pytest.mark.parametrize("values", [np.arange(3), np.ones(3), np.ones((2, 3), np.uint64), np.array(3, np.uint64)])
def test_what_turns_itself_into_another_array_is_refused(tmp_path, values):
    with pytest.raises(fpstore.InputError, match=f"dtype {values.dtype}, shape"):
        fpstore.build(tmp_path / "s", Series(values))
    assert listing(tmp_path) == []


def test_row_numbers_run_on_over_the_parts(tmp_path, rows):
    fingerprints, _ = rows
    numbers = np.arange(len(fingerprints), dtype=np.uint64)
    wanted = build(tmp_path / "a", fingerprints, numbers)
    assert build(tmp_path / "b", fingerprints) == wanted
    assert build(tmp_path / "c", pieces(fingerprints)) == wanted


@pytest.mark.parametrize("suffix", ["npy", "u64", "tsv"])
def test_readers(tmp_path, rows, expected, suffix):
    fingerprints, ids = rows
    path = tmp_path / f"input.{suffix}"
    if suffix == "npy":
        np.save(path, fingerprints)
    elif suffix == "u64":
        fingerprints.astype("<u8").tofile(path)
    else:
        lines = zip(fingerprints.tolist(), ids.tolist(), strict=True)
        path.write_text("".join(f"{f:016x}\t{i}\n" for f, i in lines))
        assert build(tmp_path / "s", open_reader(path, chunk_rows=700)) == expected
        return
    wanted = build(tmp_path / "wanted", fingerprints)
    assert build(tmp_path / "s", open_reader(path, chunk_rows=700)) == wanted
    assert build(tmp_path / "t", open_reader([path])) == wanted


def test_string_ids_from_a_reader(tmp_path):
    path = tmp_path / "input.tsv"
    path.write_text("0x2a\tdoc a\n0x2b\tdoc b\n0x2a\tdoc c\n")
    with fpstore.build(tmp_path / "s", open_reader(path)) as store:
        assert store[0x2A] == ["doc a", "doc c"]


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("ids", [["a", "b"], [7, 8], None])
def test_an_empty_part_does_not_change_the_kind_of_ids(tmp_path, ids, at):
    parts = [np.array([1], np.uint64), np.array([2], np.uint64)]
    id_parts = None if ids is None else [[ids[0]], [ids[1]]]
    parts.insert(at, np.empty(0, np.uint64))
    if id_parts is not None:
        id_parts.insert(at, [])
    with fpstore.build(tmp_path / "s", parts, id_parts) as store:
        wanted = [0, 1] if ids is None else ids
        assert (store[1], store[2]) == ([wanted[0]], [wanted[1]])
