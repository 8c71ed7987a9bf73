"""Files of fingerprints of every width: written and read back in every format, and refused where they have another width."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inputs import put
from speeds import SOME_WIDTHS
from wide import advice, as_bits, as_uint8, numbers

from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io import Chunk, check_fingerprints, open_reader, open_writer

FORMATS = ("a.npy", "a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet")
RAW = {32: "a.u32", 64: "a.u64"}
FILES = [(name, bits) for bits in WIDTHS for name in (*FORMATS, *([RAW[bits]] if bits in RAW else []))]
TYPES = {32: ("uint32", (5,)), 64: ("uint64", (5,)), 128: ("uint8", (5, 16)), 256: ("uint8", (5, 32))}


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
    assert [value for batch in reader.columns() for value in Width(bits).numbers(batch.fingerprints)] == values
    return values, ids


# What is written is read


@pytest.mark.parametrize(("name", "bits"), FILES)
def test_every_format_holds_every_width(tmp_path, name, bits):
    values, path = numbers(bits), tmp_path / name
    with open_writer(path, columns=["fingerprint"], width=bits) as writer:
        writer.write({"fingerprint": values[:7]})
        writer.write(Chunk(Width(bits).outside(Width(bits).rows(values[7:20])), None))
        writer.write({"fingerprint": as_uint8(values[20:], bits)})
    assert read(path, bits) == (values, None)
    assert read(path, bits, chunk_rows=3) == (values, None)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet"])
def test_rows_of_matches_have_every_width(tmp_path, name, bits):
    values, path = numbers(bits, 3), tmp_path / name
    with open_writer(path, columns=["query", "fingerprint", "distance", "id"], width=bits, header=True) as writer:
        writer.write([(values[0], value, bits, f"d{place}") for place, value in enumerate(values)])
    assert read(path, bits) == (values, [f"d{place}" for place in range(len(values))])
    assert read(path, bits, fingerprint_field="query")[0] == values[:1] * len(values)
    if name == "a.parquet":
        table = pq.read_table(path)
        kind = {32: "uint32", 64: "uint64", 128: "fixed_size_binary[16]", 256: "fixed_size_binary[32]"}[bits]
        assert [str(table.schema.field(i).type) for i in range(3)] == [kind, kind, "uint8" if bits < 256 else "uint16"]
        assert table["distance"].to_pylist() == [bits] * len(values)
    else:
        assert f"{values[0]:0{bits // 4}x}" in path.read_text()


@pytest.mark.parametrize("bits", SOME_WIDTHS)
@pytest.mark.parametrize("name", FORMATS)
def test_no_rows_of_any_width(tmp_path, name, bits):
    open_writer(tmp_path / name, columns=["fingerprint"], width=bits).close()
    assert read(tmp_path / name, bits) == ([], None)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_npy_is_what_numpy_and_faiss_expect(tmp_path, bits):
    with open_writer(tmp_path / "a.npy", columns=["fingerprint"], width=bits) as writer:
        writer.write({"fingerprint": numbers(bits, 0)})
    array = np.load(tmp_path / "a.npy")
    assert (array.dtype.name, array.shape) == TYPES[bits]
    assert Width(bits).numbers(check_fingerprints(array, Width(bits))) == numbers(bits, 0)


# Arrays


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_npy_of_every_kind(tmp_path, bits):
    values = numbers(bits)
    data = as_uint8(values, bits)
    arrays = {
        "rows": data,
        "columns first": np.asfortranarray(data),
        "void": data.view(f"V{bits // 8}").reshape(-1),
        "bytes": data.view(f"S{bits // 8}").reshape(-1),
        "bits": as_bits(values, bits),
        "words": Width(bits).rows(values) if bits > 64 else np.array(values, ">u8"),
        "numbers": Width(bits).outside(Width(bits).rows(values)),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
        path = tmp_path / f"{name}.npy"
        reader = open_reader(path, width=bits, chunk_rows=7)
        assert read(path, bits) == read(path, bits, chunk_rows=7) == (values, None), name
        assert reader.rows == len(values)
        list(reader)
        assert reader.bytes_done == reader.bytes_total, name


@pytest.mark.parametrize(
    ("bits", "array", "message"),
    [
        (
            64,
            np.zeros((5, 32), np.uint8),
            f"fingerprints of 256 bits (dtype uint8, shape (5, 32)), but the width is 64: {advice(256)}",
        ),
        (256, np.zeros(5, np.uint64), f"fingerprints of 64 bits (dtype uint64, shape (5,)), but the width is 256: {advice(64)}"),
        (
            256,
            np.zeros((5, 4), np.float32),
            "fingerprints of 256 bits must be uint64 rows of shape (n, 4), or uint8 rows of shape",
        ),
        (
            128,
            np.zeros(3, [("a", "u8"), ("b", "u8")]),
            "fingerprints of 128 bits must be uint64 rows of shape (n, 2), or uint8 rows",
        ),
    ],
)
def test_npy_of_another_width_is_named_before_it_is_read(tmp_path, bits, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(InputError) as caught:
        open_reader(tmp_path / "a.npy", width=bits)
    assert str(caught.value).startswith(f"{tmp_path / 'a.npy'}: {message}")


def test_npy_names_the_row_that_does_not_fit(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1] * 10 + [2**40], np.uint64))
    with pytest.raises(InputError) as caught:
        list(open_reader(tmp_path / "a.npy", width=32, chunk_rows=3))
    assert str(caught.value) == (
        f"{tmp_path / 'a.npy'}: the fingerprint at position 10 does not fit: "
        f"1099511627776 takes 41 bits, but the width is 32: {advice(64)}"
    )


def test_raw_numbers_are_little_endian(tmp_path):
    path = put(tmp_path, "a.u32", b"\x01\0\0\0\xff\xff\xff\xff")
    assert read(path, 32) == ([1, 2**32 - 1], None)
    with pytest.raises(InputError, match="truncated: 1 bytes are left over, uint32 takes 4"):
        open_reader(put(tmp_path, "b.u32", bytes(5)), width=32)


@pytest.mark.parametrize(("name", "own"), [("a.u32", 32), ("a.u64", 64)])
@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_raw_numbers_have_one_width(tmp_path, name, own, bits):
    if bits == own:
        return
    path = put(tmp_path, name, bytes(64))
    with pytest.raises(InputError) as caught:
        open_reader(path, width=bits)
    assert str(caught.value) == f"{path}: fingerprints of {own} bits (.{name[2:]}), but the width is {bits}: {advice(own)}"
    with pytest.raises(InputError) as caught:
        open_writer(tmp_path / f"new{name}", columns=["fingerprint"], width=bits)
    assert str(caught.value) == f"the {name[2:]} format holds fingerprints of {own} bits, but the width is {bits}: use npy"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("bits", "advised"), [(32, "u32"), (64, "u64"), (128, "tsv"), (256, "tsv")])
def test_npy_to_a_stream_advises_a_format_that_holds_the_width(bits, advised):
    with pytest.raises(InputError, match=f"for a stream use format='{advised}'"):
        open_writer(io.BytesIO(), format="npy", columns=["fingerprint"], width=bits)
    with open_writer(stream := io.BytesIO(), format=advised, columns=["fingerprint"], width=bits) as writer:
        writer.write([(1,)])
    assert stream.getvalue()


# Parquet


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
        assert read(path, bits) == read(path, bits, chunk_rows=7) == (values, list(range(len(values)))), column.type
    path = parquet(tmp_path, pa.array(map(str, values)))
    assert read(path, bits, decimal=True) == (values, None)


@pytest.mark.parametrize(
    ("bits", "column", "message"),
    [
        (
            64,
            pa.array([bytes(32)], pa.binary(32)),
            f"column 'fingerprint' has type fixed_size_binary[32]: fingerprints of 256 bits, but the width is 64: {advice(256)}",
        ),
        (
            256,
            pa.array([1], pa.uint64()),
            f"column 'fingerprint' has type uint64: fingerprints of 64 bits, but the width is 256: {advice(64)}",
        ),
        (
            128,
            pa.array([bytes(5)], pa.binary(5)),
            (
                "column 'fingerprint' has type fixed_size_binary[5], "
                "fingerprints of 128 bits must be fixed_size_binary(16), or strings of digits"
            ),
        ),
        (
            32,
            pa.array([1.0]),
            (
                "column 'fingerprint' has type double, "
                "fingerprints of 32 bits must be uint32, fixed_size_binary(4), or strings of digits"
            ),
        ),
        (
            64,
            pa.array([bytes(8), bytes(16)]),
            f"row 2: a fingerprint of 128 bits, but the width is 64: {advice(128)}",
        ),
        (64, pa.array([bytes(8), bytes(7)]), "row 2: a fingerprint of 64 bits has 8 bytes, got 7"),
        (256, pa.array([bytes(32), None]), "row 2: the fingerprint is null"),
        (256, pa.array([bytes(32), None], pa.binary(32)), "row 2: the fingerprint is null"),
        (
            64,
            pa.array(["f" * 16, "f" * 64]),
            (
                f"row 2: '{'f' * 64}' is not a fingerprint: "
                f"it has 64 hexadecimal digits, a fingerprint of 256 bits, but the width is 64: {advice(256)}"
            ),
        ),
        (64, pa.array(["f" * 16, None]), "row 2: the fingerprint is null"),
        (
            32,
            pa.array([1, 2**32], pa.uint64()),
            f"row 2: the fingerprint does not fit: 4294967296 takes 33 bits, but the width is 32: {advice(64)}",
        ),
    ],
    ids=range(11),
)
def test_parquet_columns_of_another_width_are_named(tmp_path, bits, column, message):
    path = parquet(tmp_path, column)
    with pytest.raises(InputError) as caught:
        read(path, bits)
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("texts", [["0" * 16 + "\n" + "0" * 16], ["0" * 16 + "\n" + "0" * 16, ""], ["", "0x0\n0x1"], ["#"]])
def test_texts_of_parquet_are_one_fingerprint_each(tmp_path, texts):
    with pytest.raises(InputError, match=r": row 1: '.*' is not a fingerprint: expected 16 hexadecimal digits"):
        read(parquet(tmp_path, pa.array(texts)), 64)


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.binary(8), pa.uint64()])
def test_rows_of_parquet_are_counted_over_batches(tmp_path, kind):
    good = {"binary": bytes(8), "string": "0" * 16, "fixed_size_binary[8]": bytes(8), "uint64": 1}[str(kind)]
    path = parquet(tmp_path, pa.array([good] * 10 + [None], kind))
    with pytest.raises(InputError, match="row 11: the fingerprint is null"):
        read(path, 64, chunk_rows=3)


# Text


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_json_holds_digits_and_numbers_of_every_width(tmp_path, bits):
    values = numbers(bits, 9)
    for kinds in ([int], [f"{{:0{bits // 4}x}}".format], [hex, int]):
        rows = [{"fingerprint": kinds[place % len(kinds)](value)} for place, value in enumerate(values)]
        path = put(tmp_path, "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        assert read(path, bits) == (values, None)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
@pytest.mark.parametrize("quoted", [False, True])  # block by block, and line by line
def test_lines_of_another_width_are_named(tmp_path, bits, quoted):
    good = f"{7:0{bits // 4}x}"
    cell = '"{}"'.format if quoted else str
    for other in (32, 64, 128, 256):
        if other == bits:
            continue
        path = put(tmp_path, "a.csv", f"{cell(good)},1\n{cell('f' * (other // 4))},2\n".encode())
        with pytest.raises(InputError) as caught:
            read(path, bits)
        assert f"{path}:2: " in str(caught.value)
        expected = (
            f"it has {other // 4} hexadecimal digits, a fingerprint of {other} bits, but the width is {bits}: {advice(other)}"
        )
        assert expected in str(caught.value)
    path = put(tmp_path, "b.csv", f"{cell(7)},1\n{cell(2**bits)},2\n".encode())
    with pytest.raises(InputError, match=f":2: .* it takes {bits + 1} bits, but the width is {bits}: "):
        read(path, bits, decimal=True)


@pytest.mark.parametrize(
    ("value", "reason"), [(-1, "-1 is not a fingerprint: it is negative"), (2**200, "takes 201 bits, but the width is 128")]
)
def test_numbers_in_json_that_do_not_fit_are_named(tmp_path, value, reason):
    path = put(tmp_path, "a.jsonl", f'{{"fingerprint": 1}}\n{{"fingerprint": {value}}}\n'.encode())
    with pytest.raises(InputError, match=f":2: .*{reason}"):
        read(path, 128)


# Writers


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_writers_refuse_other_widths(bits):
    with open_writer(stream := io.BytesIO(), columns=["fingerprint", "distance"], width=bits) as writer:
        with pytest.raises(InputError, match=f"column 'fingerprint': .*takes {bits + 1} bits, but the width is {bits}: "):
            writer.write([(2**bits, 0)])
        with pytest.raises(InputError, match=f"column 'distance' must hold distances of 0 to {bits} bits"):
            writer.write([(1, bits + 1)])
        writer.write([(1, bits)])
    assert stream.getvalue() == f"{1:0{bits // 4}x}\t{bits}\n".encode()
