"""Files of fingerprints of every width.

Written and read back in every format, and refused where they have another width.
"""

import io
import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import json_lines, put
from speeds import SOME_WIDTHS
from wide import advice, as_uint8, numbers

from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.io import Chunk, open_reader, open_writer
from fpstore.io.check import check_fingerprints

FORMATS = ("a.npy", "a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet")
RAW = {32: "a.u32", 64: "a.u64"}
FILES = [
    (name, bits)
    for bits in (32, 64, 256)
    for name in (*FORMATS, *([RAW[bits]] if bits in RAW else []))
]
TYPES = {
    32: ("uint32", (5,)),
    64: ("uint64", (5,)),
    128: ("uint8", (5, 16)),
    256: ("uint8", (5, 32)),
}


def read(path, bits, **options):
    """Return all rows of a file as numbers and ids."""
    values, ids = [], None
    reader = open_reader(path, width=bits, **options)
    assert reader.width == bits
    for chunk in reader:
        dtype, shape = TYPES[bits]
        assert (chunk.fingerprints.dtype.name, chunk.fingerprints.shape[1:]) == (dtype, shape[1:])
        values += Width(bits).numbers(check_fingerprints(chunk.fingerprints, Width(bits)))
        if chunk.ids is not None:
            ids = (ids or []) + list(chunk.ids)
    assert [
        value for batch in reader.columns() for value in Width(bits).numbers(batch.fingerprints)
    ] == values
    return values, ids


@pytest.mark.parametrize(("name", "bits"), FILES)
def test_every_format_holds_every_width(tmp_path, name, bits):
    values, path = numbers(bits), tmp_path / name
    open_writer(path, columns=["fingerprint"], width=bits).close()
    assert read(path, bits) == ([], None)
    with open_writer(path, columns=["fingerprint"], width=bits) as writer:
        writer.write({"fingerprint": values[:7]})
        writer.write(Chunk(Width(bits).to_array(Width(bits).rows(values[7:20])), None))
        writer.write({"fingerprint": as_uint8(values[20:], bits)})
    assert read(path, bits) == read(path, bits, chunk_rows=3) == (values, None)
    if name == "a.npy":
        array = np.load(path)
        # what NumPy and FAISS expect
        assert (array.dtype.name, array.shape[1:]) == (TYPES[bits][0], TYPES[bits][1][1:])


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_rows_of_matches_have_every_width(tmp_path, bits):
    values = numbers(bits, 3)
    for name in ("a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet"):
        path = tmp_path / name
        with open_writer(
            path, columns=["query", "fingerprint", "distance", "id"], width=bits, header=True
        ) as writer:
            writer.write(
                [(values[0], value, bits, f"d{place}") for place, value in enumerate(values)]
            )
        assert read(path, bits) == (values, [f"d{place}" for place in range(len(values))])
        assert read(path, bits, fingerprint_field="query")[0] == values[:1] * len(values)
    table = pq.read_table(path)
    kind = {32: "uint32", 64: "uint64"}.get(bits, f"fixed_size_binary[{bits // 8}]")
    assert [str(table.schema.field(i).type) for i in range(3)] == [
        kind,
        kind,
        "uint8" if bits < 256 else "uint16",
    ]
    assert table["distance"].to_pylist() == [bits] * len(values)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_npy_of_every_kind(tmp_path, bits):
    values = numbers(bits)
    data = as_uint8(values, bits)
    arrays = {
        "rows": data,
        "columns first": np.asfortranarray(data),
        "void": data.view(f"V{bits // 8}").reshape(-1),
        "numbers": Width(bits).to_array(Width(bits).rows(values)),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        path = tmp_path / f"{name}.npy"
        reader = open_reader(path, width=bits, chunk_rows=7)
        assert read(path, bits) == read(path, bits, chunk_rows=7) == (values, None), name
        assert reader.rows == len(values)
        list(reader)
        assert reader.bytes_done == reader.bytes_total, name
    assert bits != 64 or not next(iter(reader)).fingerprints.flags.owndata  # mapped, not copied


def test_npy_of_another_width_is_named(tmp_path):
    path = tmp_path / "a.npy"
    for bits, array, message in (
        (
            64,
            np.zeros((5, 32), np.uint8),
            f"fingerprints of 256 bits (dtype uint8, shape (5, 32)), but {of(64)}: {advice(256)}",
        ),
        (
            256,
            np.zeros(5, np.uint64),
            f"fingerprints of 64 bits (dtype uint64, shape (5,)), but {of(256)}: {advice(64)}",
        ),
        (
            256,
            np.zeros((5, 4), np.float32),
            "fingerprints of 256 bits must be uint64 rows of shape (n, 4), or uint8 rows",
        ),
        (
            128,
            np.zeros(3, [("a", "u8")]),
            "fingerprints of 128 bits must be uint64 rows of shape (n, 2), or uint8 rows",
        ),
    ):
        np.save(path, array)
        with pytest.raises(InputError) as caught:
            open_reader(path, width=bits)  # before it is read
        assert str(caught.value).startswith(f"{path}: {message}")
    np.save(path, np.array([1] * 10 + [2**40], np.uint64))
    expected = (
        f"the fingerprint at position 10 does not fit: 1099511627776 takes 41 bits, but {of(32)}: "
        f"{advice(64)}"
    )
    with pytest.raises(InputError) as caught:
        list(open_reader(path, width=32, chunk_rows=3))
    assert str(caught.value) == f"{path}: {expected}"


def of(bits):
    return f"the width is {bits}"


def test_raw_numbers_are_little_endian_and_have_one_width(tmp_path):
    assert read(put(tmp_path, "a.u32", b"\x01\0\0\0\xff\xff\xff\xff"), 32) == ([1, 2**32 - 1], None)
    with pytest.raises(InputError, match="truncated: 1 bytes are left over, uint32 takes 4"):
        open_reader(put(tmp_path, "b.u32", bytes(5)), width=32)
    for name, own, bits in (("c.u32", 32, 64), ("c.u64", 64, 32), ("c.u64", 64, 256)):
        path = put(tmp_path, name, bytes(64))
        with pytest.raises(InputError) as caught:
            open_reader(path, width=bits)
        assert (
            str(caught.value)
            == f"{path}: fingerprints of {own} bits (.{name[2:]}), but {of(bits)}: {advice(own)}"
        )
        with pytest.raises(InputError) as caught:
            open_writer(tmp_path / f"new{name}", columns=["fingerprint"], width=bits)
        assert (
            str(caught.value)
            == f"the {name[2:]} format holds fingerprints of {own} bits, but {of(bits)}: use npy"
        )
    for bits, advised in ((32, "u32"), (64, "u64"), (256, "tsv")):
        with pytest.raises(InputError, match=f"for a stream use format='{advised}'"):
            open_writer(io.BytesIO(), format="npy", columns=["fingerprint"], width=bits)


def parquet(folder, column, ids=None):
    table = pa.table({"fingerprint": column} if ids is None else {"fingerprint": column, "id": ids})
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_parquet_columns_of_every_kind(tmp_path, bits):
    values = numbers(bits)
    data = [value.to_bytes(bits // 8, "big") for value in values]
    texts = [f"{value:0{bits // 4}x}" for value in values]
    columns = [
        pa.array(data, pa.binary(bits // 8)),
        pa.array(data, pa.binary()),
        pa.array(data, pa.large_binary()),
        pa.array(texts),
        pa.array(texts, pa.large_string()),
        pa.array([hex(value) for value in values]),
        *([pa.array(values, pa.uint64())] if bits <= 64 else []),
        *([pa.array(values, pa.uint32())] if bits == 32 else []),
    ]
    for column in columns:
        path = parquet(tmp_path, column, list(range(len(values))))
        assert (
            read(path, bits) == read(path, bits, chunk_rows=7) == (values, list(range(len(values))))
        ), column.type
    path = parquet(tmp_path, pa.array(map(str, values)))
    assert read(path, bits, decimal=True) == (values, None)


def test_parquet_columns_of_another_width_are_named(tmp_path):
    kind = "column 'fingerprint' has type"
    wide = f"fingerprints of 256 bits, but {of(64)}: {advice(256)}"
    unfit = (
        f"row 2: the fingerprint does not fit: 4294967296 takes 33 bits, but {of(32)}: {advice(64)}"
    )
    digits = "it has 64 hexadecimal digits, a fingerprint of 256 bits"
    for bits, column, message in (
        (64, pa.array([bytes(32)], pa.binary(32)), f"{kind} fixed_size_binary[32]: {wide}"),
        (
            256,
            pa.array([1], pa.uint64()),
            f"{kind} uint64: fingerprints of 64 bits, but {of(256)}: {advice(64)}",
        ),
        (
            128,
            pa.array([bytes(5)], pa.binary(5)),
            f"{kind} fixed_size_binary[5], {must(128, 'fixed_size_binary(16)')}",
        ),
        (32, pa.array([1.0]), f"{kind} double, {must(32, 'uint32, fixed_size_binary(4)')}"),
        (
            64,
            pa.array([bytes(8), bytes(16)]),
            f"row 2: a fingerprint of 128 bits, but {of(64)}: {advice(128)}",
        ),
        (64, pa.array([bytes(8), bytes(7)]), "row 2: a fingerprint of 64 bits has 8 bytes, got 7"),
        (256, pa.array([bytes(32), None]), "row 2: the fingerprint is null"),
        (256, pa.array([bytes(32), None], pa.binary(32)), "row 2: the fingerprint is null"),
        (
            64,
            pa.array(["f" * 16, "f" * 64]),
            f"row 2: '{'f' * 64}' is not a fingerprint: {digits}, but {of(64)}: {advice(256)}",
        ),
        (64, pa.array(["f" * 16, None]), "row 2: the fingerprint is null"),
        (32, pa.array([1, 2**32], pa.uint64()), unfit),
    ):
        path = parquet(tmp_path, column)
        for chunk_rows in (1, 100):
            with pytest.raises(InputError) as caught:
                read(path, bits, chunk_rows=chunk_rows)
            assert str(caught.value) == f"{path}: {message}"
    single = "0" * 16 + "\n" + "0" * 16
    for texts in ([single], [single, ""], ["", "0x0\n0x1"], ["#"]):
        with pytest.raises(
            InputError, match=r": row 1: '.*' is not a fingerprint: expected 16 hexadecimal digits"
        ):
            read(parquet(tmp_path, pa.array(texts)), 64)


def must(bits, kinds):
    return f"fingerprints of {bits} bits must be {kinds}, or strings of digits"


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_json_holds_digits_and_numbers_of_every_width(tmp_path, bits):
    values = numbers(bits, 9)
    for kinds in ([int], [f"{{:0{bits // 4}x}}".format], [hex, int]):
        rows = [
            {"fingerprint": kinds[place % len(kinds)](value)} for place, value in enumerate(values)
        ]
        path = put(tmp_path, "a.jsonl", json_lines(rows).encode())
        assert read(path, bits) == (values, None)
    for value, reason in (
        (-1, "-1 is not a fingerprint: it is negative"),
        (2**300, f"takes 301 bits, but {of(bits)}"),
    ):
        path = put(
            tmp_path, "a.jsonl", f'{{"fingerprint": 1}}\n{{"fingerprint": {value}}}\n'.encode()
        )
        with pytest.raises(InputError, match=f":2: .*{reason}"):
            read(path, bits)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_lines_of_another_width_are_named(tmp_path, bits):
    # block by block, and line by line
    for cell, other in itertools.product((str, '"{}"'.format), {32, 64, 256} - {bits}):
        path = put(
            tmp_path,
            "a.csv",
            f"{cell(f'{7:0{bits // 4}x}')},1\n{cell('f' * (other // 4))},2\n".encode(),
        )
        with pytest.raises(InputError) as caught:
            read(path, bits)
        expected = (
            f"it has {other // 4} hexadecimal digits, a fingerprint of {other} bits, but "
            f"{of(bits)}: {advice(other)}"
        )
        assert f"{path}:2: " in str(caught.value)
        assert expected in str(caught.value)
        path = put(tmp_path, "b.csv", f"{cell(7)},1\n{cell(2**bits)},2\n".encode())
        with pytest.raises(InputError, match=f":2: .* it takes {bits + 1} bits, but {of(bits)}: "):
            read(path, bits, decimal=True)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_writers_refuse_other_widths(bits):
    with open_writer(
        stream := io.BytesIO(), columns=["fingerprint", "distance"], width=bits
    ) as writer:
        with pytest.raises(
            InputError,
            match=f"column 'fingerprint': .*takes {bits + 1} bits, but the width is {bits}: ",
        ):
            writer.write([(2**bits, 0)])
        with pytest.raises(
            InputError, match=f"column 'distance' must hold distances of 0 to {bits} bits"
        ):
            writer.write([(1, bits + 1)])
        writer.write([(1, bits)])
    assert stream.getvalue() == f"{1:0{bits // 4}x}\t{bits}\n".encode()
