"""Readers of NumPy arrays and of Parquet, and signed integers as the bits of fingerprints."""

import itertools
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from inputs import MAX, parse_fingerprint, put, read

import fpstore
from fpstore import SimHash
from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.hashing import TextReader
from fpstore.io import open_reader, open_writer
from fpstore.io.digits import Digits, parse_block


def test_other_npy_arrays_are_named(tmp_path):
    for array, parts in (
        (np.arange(3), ["int64", "(3,)", ".view(np.uint64)"]),
        (np.ones(3), ["float64", "(3,)"]),
        (np.ones((2, 2), dtype=np.uint64), ["uint64", "(2, 2)"]),
        (np.uint64(3), ["uint64", "()"]),
        (np.array(["ab"]), ["<U2", "(1,)"]),
        (np.array([None]), ["Python objects"]),
        (np.zeros(1, dtype=[("a", "u8")]), ["[('a', '<u8')]", "(1,)"]),
    ):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(InputError) as caught:
            open_reader(tmp_path / "a.npy")
        assert str(caught.value).startswith(str(tmp_path / "a.npy"))
        assert all(part in str(caught.value) for part in parts), caught.value


@pytest.mark.parametrize("name", ["a.npy", "a.parquet"])
def test_every_truncation_of_a_binary_file_is_an_error(tmp_path, name):
    with open_writer(tmp_path / name, columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": np.arange(20, dtype=np.uint64)})
    whole = (tmp_path / name).read_bytes()
    for size in range(0, len(whole), 7):
        with pytest.raises(InputError, match=r"truncated|not a readable"):
            read(put(tmp_path, "cut" + name, whole[:size]))


def test_damaged_parquet_pages_give_rows_or_an_input_error(tmp_path):
    table = pa.table(
        {"fingerprint": pa.array(range(200), pa.uint64()), "id": [f"d{i}" for i in range(200)]}
    )
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


def test_parquet_columns_are_read(tmp_path):
    for ids, options, expected in (
        (pa.array([7, MAX], pa.uint64()), {}, [7, MAX]),
        (pa.array([7, 8], pa.int32()), {}, [7, 8]),
        (pa.array([7, 8], pa.int64()), {"id_type": "str"}, ["7", "8"]),
        (pa.array(["7", "\u00e9"]), {}, ["7", "\u00e9"]),
        (pa.array(["7", "08"], pa.large_string()), {"id_type": "int"}, [7, 8]),
        (pa.array(["a", "b"]).dictionary_encode(), {}, ["a", "b"]),
        (None, {}, None),
    ):
        columns = {
            "x": [1.0, 2.0],
            "fingerprint": pa.array([1, MAX], pa.uint64()),
            **({} if ids is None else {"id": ids}),
        }
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        reader = open_reader(tmp_path / "a.parquet", chunk_rows=1, **options)
        assert (reader.rows, reader.has_ids) == (2, ids is not None)
        assert read(tmp_path / "a.parquet", **options) == ([1, MAX], expected)
        assert [len(chunk.fingerprints) for chunk in reader] == [1, 1]
        assert reader.bytes_done == reader.bytes_total


TWO = pa.array([1, 2], pa.uint64())


def test_other_parquet_columns_are_named(tmp_path):
    for columns, options, message in (
        ({"fp": TWO[:1]}, {}, r"no column named 'fingerprint' \(columns here: fp\)"),
        ({"fingerprint": pa.array([1])}, {}, r"type int64, .*cast\(\"uint64\", safe=False\)"),
        ({"fingerprint": [1.0]}, {}, "type double"),
        (
            {"fingerprint": ["ff"]},
            {},
            "row 1: 'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits",
        ),
        ({"fingerprint": pa.array([1, None], pa.uint64())}, {}, "row 2: the fingerprint is null"),
        ({"fingerprint": TWO, "id": ["a", None]}, {}, "row 2: the id is null"),
        ({"fingerprint": TWO, "id": ["a", ""]}, {}, "row 2: the id is empty"),
        ({"fingerprint": TWO, "id": [1, -1]}, {}, "row 2: the id -1 is negative"),
        ({"fingerprint": TWO[:1], "id": [1.5]}, {}, "'id' has type double"),
        ({"fingerprint": TWO[:1], "id": [b"a"]}, {}, "'id' has type binary"),
        ({"fingerprint": TWO[:1], "id": ["a"]}, {"id_type": "int"}, "row 1: the id 'a'"),
        ({"fingerprint": TWO[:1]}, {"id_field": "doc"}, "no column named 'doc'"),
        (
            {"fingerprint": pa.array([1] * 10 + [None], pa.uint64())},
            {"chunk_rows": 3},
            "row 11: the fingerprint is null",
        ),
        (
            {"fingerprint": bad_strings([b"0x1", b"0x\xff"])},
            {},
            "row 2: the fingerprint is not valid UTF-8",
        ),
    ):
        pq.write_table(pa.table(columns), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=message) as caught:
            read(tmp_path / "a.parquet", **options)
        assert str(caught.value).startswith(f"{tmp_path / 'a.parquet'}: ")


def bad_strings(values, kind=None):
    """Return a column of strings of which some are not UTF-8."""
    binary = pa.array(values, kind or pa.binary())
    text = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}[binary.type]
    return pa.Array.from_buffers(text, len(values), binary.buffers())


def test_ids_that_are_not_utf_8_are_named(tmp_path):
    """The row was not named, and the path twice; of a table in memory, the error was pyarrow's."""
    path, many = (
        tmp_path / "a.parquet",
        {"fingerprint": np.arange(4, dtype=np.uint64), "text": ["one", "two", "three", "four"]},
    )
    plain = [
        bad_strings([b"a", b"b\xc3\xa9", b"c\xff", b"d"], kind)
        for kind in (pa.binary(), pa.large_binary())
    ]
    for ids in (
        *plain,
        *(pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3]), ids) for ids in plain),
    ):
        table = pa.table({**many, "id": ids})
        pq.write_table(table, path)
        for source, call in itertools.product(
            (table, path),
            (
                lambda source: list(TextReader(source, SimHash(), text="text", id="id")),
                lambda source: fpstore.dedup(source, fingerprint="fingerprint", id="id"),
            ),
        ):
            message = re.escape(
                f"{path if source is path else 'the table'}: row 3: the id is not valid UTF-8 "
                "(invalid start byte)"
            )
            with pytest.raises(InputError, match=f"^{message}$"):
                call(source)
        with pytest.raises(InputError, match="row 3: the id is not valid UTF-8"):
            list(open_reader(path))


BITS = (32, 64)


def signed(bits):
    return [-1, 0, 1, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, -12345]


def fingerprints(path, bits, **options):
    return [
        fingerprint
        for chunk in open_reader(path, width=bits, signed=True, **options)
        for fingerprint in chunk.fingerprints.tolist()
    ]


@pytest.mark.parametrize("bits", BITS)
def test_every_format_holds_signed_integers(tmp_path, bits):
    values, kind = signed(bits), f"int{bits}"
    arguments = []  # files with the same signed integers, and the options that they need
    for name, dtype in (("a.npy", kind), ("b.npy", "int64"), ("c.npy", f">i{bits // 8}")):
        np.save(tmp_path / name, np.array(values, dtype))
        arguments.append((name, {}))
    for name, column in (
        ("a.parquet", pa.array(values, kind)),
        ("b.parquet", values),
        ("c.parquet", list(map(str, values))),
    ):
        pq.write_table(pa.table({"fingerprint": column}), tmp_path / name)
        arguments.append((name, {"decimal": name[0] == "c"}))
    # b is read line by line
    for name, make, end in (
        ("a.jsonl", int, "\n"),
        ("b.jsonl", int, "\n\n"),
        ("c.jsonl", str, "\n"),
    ):
        put(
            tmp_path,
            name,
            "".join(json.dumps({"fingerprint": make(value)}) + end for value in values).encode(),
        )
        arguments.append((name, {"decimal": name[0] == "c"}))
    for name, line in (
        ("a.tsv", "{}\n"),
        ("a.csv", "{}\n"),
        ("a.txt", "{}\n"),
        ("b.csv", '"{}"\n'),
    ):
        put(tmp_path, name, "".join(map(line.format, values)).encode())
        arguments.append((name, {"decimal": True}))
    for name, options in arguments:
        assert fingerprints(tmp_path / name, bits, **options) == [
            value % 2**bits for value in values
        ], name
        if name not in ("a.txt", "b.csv"):
            with pytest.raises(InputError):
                list(open_reader(tmp_path / name, width=bits, **options))
    # unsigned ones are read as before
    np.save(tmp_path / "u.npy", np.array([0, 2**bits - 1, 7], f"uint{bits}"))
    put(
        tmp_path,
        "u.tsv",
        "".join(f"{value:0{bits // 4}x}\n" for value in (0, 2**bits - 1, 7)).encode(),
    )
    for name in ("u.npy", "u.tsv"):
        assert fingerprints(tmp_path / name, bits) == [0, 2**bits - 1, 7]


@pytest.mark.parametrize("bits", BITS)
def test_what_does_not_fit_is_named(tmp_path, bits):
    low, high = -(2 ** (bits - 1)) - 1, 2**bits
    for value in (low, high):
        put(tmp_path, "a.jsonl", f'{{"fingerprint": 1}}\n{{"fingerprint": {value}}}\n'.encode())
        with pytest.raises(InputError, match=r"a\.jsonl:2: "):
            fingerprints(tmp_path / "a.jsonl", bits)
        put(tmp_path, "a.tsv", f"1\n{value}\n".encode())
        with pytest.raises(
            InputError, match=rf"a\.tsv:2: '{value}' is not a fingerprint: it (is below -2\^|takes)"
        ):
            fingerprints(tmp_path / "a.tsv", bits, decimal=True)
    if bits == 32:
        for value in (low, high):
            np.save(tmp_path / "a.npy", np.array([1, value]))
            with pytest.raises(InputError, match=f"at position 1 does not fit: {value} "):
                fingerprints(tmp_path / "a.npy", bits)
            pq.write_table(pa.table({"fingerprint": [1, value]}), tmp_path / "a.parquet")
            with pytest.raises(InputError, match=f"row 2: the fingerprint does not fit: {value} "):
                fingerprints(tmp_path / "a.parquet", bits)


def test_signed_integers_of_another_width_are_refused(tmp_path):
    """An int32 that is negative would have ones in its upper half."""
    for kind in ("int32", "int16"):
        np.save(tmp_path / "a.npy", np.array([-1], kind))
        pq.write_table(pa.table({"fingerprint": pa.array([-1], kind)}), tmp_path / "a.parquet")
        for name in ("a.npy", "a.parquet"):
            with pytest.raises(InputError, match=kind):
                fingerprints(tmp_path / name, 64)
    for bits in (128, 256):
        with pytest.raises(
            InputError, match=f"signed integers have 32 or 64 bits, but the width is {bits}"
        ):
            open_reader(tmp_path / "a.npy", width=bits, signed=True)
        with pytest.raises(InputError, match="signed integers have 32 or 64 bits"):
            parse_fingerprint("-1", True, bits, signed=True)
    with pytest.raises(InputError, match="signed must be True or False"):
        open_reader(tmp_path / "a.npy", signed=1)


def test_messages_about_negatives_name_the_option(tmp_path):
    np.save(tmp_path / "a.npy", np.array([-1]))
    pq.write_table(pa.table({"fingerprint": [-1]}), tmp_path / "a.parquet")
    put(tmp_path, "a.jsonl", b'{"fingerprint": -1}\n')
    put(tmp_path, "a.tsv", b"-1\n")
    for name, options in (
        ("a.npy", {}),
        ("a.parquet", {}),
        ("a.jsonl", {}),
        ("a.tsv", {}),
        ("a.tsv", {"decimal": True}),
    ):
        with pytest.raises(InputError, match="signed=True"):
            list(open_reader(tmp_path / name, **options))
        with pytest.raises(InputError) as caught:
            list(open_reader(tmp_path / name, width=128, **options))
        assert "--signed" not in str(caught.value)


@pytest.mark.parametrize("bits", BITS)
def test_regular_signed_blocks_take_the_fast_path(bits):
    digits = Digits(Width(bits), decimal=True, signed=True)
    block = "".join(f"{value}\t{place}\n" for place, value in enumerate(signed(bits))).encode()
    rows, ids = parse_block(block, b"\t", digits, "int", True)
    assert Width(bits).numbers(rows) == [value % 2**bits for value in signed(bits)]
    assert ids.tolist() == list(range(6))
    for line in (f"{-(2 ** (bits - 1)) - 1}\n", f"{2**bits}\n", "-\n", "--1\n", "1-\n", "+1\n"):
        assert parse_block(b"1\n" + line.encode(), b"\t", digits) is None
    assert parse_block(b"-1\n", b"\t", digits._replace(signed=False)) is None


def test_an_empty_fingerprint_before_a_negative_one_is_refused_by_its_row(tmp_path):
    """The sign of the next text was taken for its own."""
    path = put(tmp_path, "e.jsonl", b'{"fingerprint": ""}\n{"fingerprint": "-5"}\n')
    with pytest.raises(InputError, match=r"e\.jsonl:1: '' is not a fingerprint: expected decimal"):
        list(open_reader(path, decimal=True, signed=True))
    pq.write_table(pa.table({"fingerprint": ["", "-5"]}), tmp_path / "e.parquet")
    with pytest.raises(InputError, match=r"row 1: '' is not a fingerprint: expected decimal"):
        list(open_reader(tmp_path / "e.parquet", decimal=True, signed=True))


def test_the_command_line_takes_signed_integers(folder):
    fine("build", "x.fps", "signed.csv", "--decimal", "--signed", "-q")
    assert fine("export", "x.fps") == fine("export", "crawl.fps")
    assert (
        fine("probe", "x.fps", "--decimal", "--signed", "-r", 0, "--", "-1")
        == f"{'f' * 16}\t{'f' * 16}\t0\tones\n"
    )
    for verb in (("probe",), ("scan", "-r", 0), ("nearest",)):
        out = fine(*verb, "x.fps", "--input", "signed.csv", "--decimal", "--signed")
        assert [line.split("\t")[2] for line in out.splitlines() if line.endswith("\tones")] == [
            "0"
        ]
    assert "--signed" in failure("probe", "x.fps", "--decimal", "--", "-1", code=2)
    fine("build", "wide.fps", "pdq.tsv", "--width", 256, "-q")
    message = failure("probe", "wide.fps", "--decimal", "--signed", "1")
    assert message.startswith(
        "fpstore: signed integers have 32 or 64 bits, but this store holds 256 bits"
    )
