"""Builds from every kind of input make the same store."""

import numpy as np
import pytest
from building import build, make_rows, pieces

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
    path.write_text("2a\tdoc a\n2b\tdoc b\n2a\tdoc c\n")
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
