"""Readers of NumPy arrays and of Parquet."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import MAX, put, read

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError
from fpstore.hashing import TextReader
from fpstore.io import open_reader, open_writer


@pytest.mark.parametrize("dtype", ["<u8", ">u8", "<u2"])
def test_npy_of_unsigned_integers(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.arange(5, dtype=dtype))
    reader = open_reader(tmp_path / "a.npy", chunk_rows=2)
    assert (reader.rows, reader.has_ids) == (5, False)
    assert [chunk.fingerprints.tolist() for chunk in reader] == [[0, 1], [2, 3], [4]]
    assert reader.bytes_done == reader.bytes_total == (tmp_path / "a.npy").stat().st_size


def test_npy_is_mapped_not_copied(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.uint64))
    (chunk,) = open_reader(tmp_path / "a.npy")
    assert not chunk.fingerprints.flags.owndata
    assert not chunk.fingerprints.flags.writeable


@pytest.mark.parametrize(
    ("array", "parts"),
    [
        (np.arange(3), ["int64", "(3,)", ".view(np.uint64)"]),
        (np.ones(3), ["float64", "(3,)"]),
        (np.ones((2, 2), dtype=np.uint64), ["uint64", "(2, 2)"]),
        (np.uint64(3), ["uint64", "()"]),
        (np.array(["ab"]), ["<U2", "(1,)"]),
        (np.array([None]), ["Python objects"]),
        (np.zeros(1, dtype=[("a", "u8")]), ["[('a', '<u8')]", "(1,)"]),
    ],
)
def test_other_npy_arrays_are_named(tmp_path, array, parts):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError) as caught:
        open_reader(tmp_path / "a.npy")
    assert str(caught.value).startswith(str(tmp_path / "a.npy"))
    for part in parts:
        assert part in str(caught.value)


def test_empty_npy_has_no_rows(tmp_path):
    np.save(tmp_path / "a.npy", np.array([], dtype=np.uint64))
    reader = open_reader(tmp_path / "a.npy")
    assert (reader.rows, list(reader)) == (0, [])


@pytest.mark.parametrize("name", ["a.npy", "a.parquet"])
def test_every_truncation_of_a_binary_file_is_an_error(tmp_path, name):
    with open_writer(tmp_path / name, columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": np.arange(20, dtype=np.uint64)})
    whole = (tmp_path / name).read_bytes()
    for size in range(0, len(whole), 7):
        with pytest.raises(InputError, match=r"truncated|not a readable"):
            read(put(tmp_path, "cut" + name, whole[:size]))


def test_damaged_parquet_pages_give_an_error_or_rows_never_another_exception(tmp_path):
    table = pa.table({"fingerprint": pa.array(range(200), pa.uint64()), "id": [f"d{i}" for i in range(200)]})
    pq.write_table(table, tmp_path / "a.parquet")
    whole = bytearray((tmp_path / "a.parquet").read_bytes())
    messages = []
    for position in range(4, len(whole), 97):
        damaged = whole.copy()
        damaged[position] ^= 0xFF
        try:
            read(put(tmp_path, "b.parquet", bytes(damaged)))
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert not any("\n" in message for message in messages)


@pytest.mark.parametrize(
    ("ids", "options", "expected"),
    [
        (pa.array([7, MAX], pa.uint64()), {}, [7, MAX]),
        (pa.array([7, 8], pa.int32()), {}, [7, 8]),
        (pa.array([7, 8], pa.int64()), {"id_type": "str"}, ["7", "8"]),
        (pa.array(["7", "\u00e9"]), {}, ["7", "\u00e9"]),
        (pa.array(["7", "08"], pa.large_string()), {"id_type": "int"}, [7, 8]),
        (pa.array(["a", "b"]).dictionary_encode(), {}, ["a", "b"]),
        (None, {}, None),
    ],
)
def test_parquet_columns_are_read(tmp_path, ids, options, expected):
    columns = {"x": [1.0, 2.0], "fingerprint": pa.array([1, MAX], pa.uint64())}
    if ids is not None:
        columns["id"] = ids
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    reader = open_reader(tmp_path / "a.parquet", chunk_rows=1, **options)
    assert (reader.rows, reader.has_ids) == (2, ids is not None)
    assert read(tmp_path / "a.parquet", **options) == ([1, MAX], expected)
    assert [len(chunk.fingerprints) for chunk in reader] == [1, 1]
    assert reader.bytes_done == reader.bytes_total


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"fp": pa.array([1], pa.uint64())}, {}, r"no column named 'fingerprint' \(columns here: fp\)"),
        ({"fingerprint": pa.array([1])}, {}, r"type int64, .*cast\(\"uint64\", safe=False\)"),
        ({"fingerprint": [1.0]}, {}, "type double"),
        ({"fingerprint": ["ff"]}, {}, "row 1: 'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits"),
        ({"fingerprint": pa.array([1, None], pa.uint64())}, {}, "row 2: the fingerprint is null"),
        ({"fingerprint": pa.array([1, 2], pa.uint64()), "id": ["a", None]}, {}, "row 2: the id is null"),
        ({"fingerprint": pa.array([1, 2], pa.uint64()), "id": ["a", ""]}, {}, "row 2: the id is empty"),
        ({"fingerprint": pa.array([1, 2], pa.uint64()), "id": [1, -1]}, {}, "row 2: the id -1 is negative"),
        ({"fingerprint": pa.array([1], pa.uint64()), "id": [1.5]}, {}, "'id' has type double"),
        ({"fingerprint": pa.array([1], pa.uint64()), "id": [b"a"]}, {}, "'id' has type binary"),
        ({"fingerprint": pa.array([1], pa.uint64()), "id": ["a"]}, {"id_type": "int"}, "row 1: the id 'a'"),
        ({"fingerprint": pa.array([1], pa.uint64())}, {"id_field": "doc"}, "no column named 'doc'"),
    ],
)
def test_other_parquet_columns_are_named(tmp_path, columns, options, message):
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path / "a.parquet", **options)
    assert str(caught.value).startswith(f"{tmp_path / 'a.parquet'}: ")


def test_parquet_row_numbers_count_over_batches(tmp_path):
    column = pa.array([1] * 10 + [None], pa.uint64())
    pq.write_table(pa.table({"fingerprint": column}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 11: the fingerprint is null"):
        read(tmp_path / "a.parquet", chunk_rows=3)


def test_parquet_cast_of_the_message_keeps_the_bits(tmp_path):
    table = pa.table({"fingerprint": pa.array([-1, 5])})
    table = table.set_column(0, "fingerprint", table.column("fingerprint").cast("uint64", safe=False))
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ([MAX, 5], None)


def bad_strings(values, kind=None):
    """Return a column of strings of which some are not UTF-8."""
    binary = pa.array(values, kind or pa.binary())
    text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}[binary.type]
    return pa.Array.from_buffers(text, len(values), binary.buffers())


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_ids_that_are_not_utf_8_are_named(tmp_path, kind, dictionary):
    """The row was not named, and the path twice; of a table in memory, the error was pyarrow's."""
    ids = bad_strings([b"a", b"b\xc3\xa9", b"c\xff", b"d"], kind)
    if dictionary:
        ids = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), ids)
    table = pa.table({"fingerprint": np.arange(4, dtype=np.uint64), "id": ids, "text": ["one", "two", "three", "four"]})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    message = re.escape(f"{path}: row 3: the id is not valid UTF-8") + r" \(invalid start byte\)$"
    for read_all in (
        lambda: list(open_reader(path)),
        lambda: list(TextReader(path, SimHash(), text="text", id="id")),
        lambda: fpstore.dedup(path, fingerprint="fingerprint", id="id"),
    ):
        with pytest.raises(InputError, match=f"^{message}"):
            read_all()
    for read_all in (
        lambda: list(TextReader(table, SimHash(), text="text", id="id")),
        lambda: fpstore.dedup(table, fingerprint="fingerprint", id="id"),
    ):
        with pytest.raises(InputError, match=r"^the table: row 3: the id is not valid UTF-8 \(invalid start byte\)$"):
            read_all()


def test_fingerprints_in_digits_that_are_not_utf_8_are_named(tmp_path):
    digits = bad_strings([b"0x1", b"0x\xff"])
    pq.write_table(pa.table({"fingerprint": digits}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet: row 2: the fingerprint is not valid UTF-8"):
        list(open_reader(tmp_path / "a.parquet"))
