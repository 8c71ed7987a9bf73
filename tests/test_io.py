import doctest
import importlib
import io
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpstore.errors import InputError, StorageError
from fpstore.io import (
    Chunk,
    check_fingerprints,
    check_ids,
    format_fingerprint,
    open_reader,
    open_writer,
    parse_fingerprint,
)
from fpstore.io.columns import parse_block
from fpstore.io.jsonl import JsonlSource
from fpstore.io.reader import Reader
from fpstore.io.sink import Encoder
from fpstore.io.source import Fields, IdRule, InputFile, Source
from fpstore.io.text import TextSource

MAX = 2**64 - 1


def read(paths, **options):
    """Return all rows of a reader as plain lists."""
    fingerprints, ids = [], None
    for chunk in open_reader(paths, **options):
        assert chunk.fingerprints.dtype == np.uint64
        assert chunk.fingerprints.ndim == 1
        fingerprints += chunk.fingerprints.tolist()
        if chunk.ids is not None:
            if isinstance(chunk.ids, np.ndarray):
                assert chunk.ids.dtype == np.uint64
            assert len(chunk.ids) == len(chunk.fingerprints)
            ids = (ids or []) + list(chunk.ids if isinstance(chunk.ids, list) else chunk.ids.tolist())
    return fingerprints, ids


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content)
    return path


# Single values


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("0", False, 0),
        ("ffffffffffffffff", False, MAX),
        ("0xFFFFFFFFFFFFFFFF", False, MAX),
        ("0Xa", False, 10),
        (" 00000000000000aB\n", False, 0xAB),
        ("18446744073709551615", True, MAX),
        ("000000000000000000000000000000007", True, 7),
        ("0", True, 0),
    ],
)
def test_fingerprint_text_is_read(text, decimal, value):
    assert parse_fingerprint(text, decimal) == value


@pytest.mark.parametrize(
    ("text", "decimal", "reason"),
    [
        ("", False, "1 to 16 hexadecimal digits"),
        ("0x", False, "1 to 16 hexadecimal digits"),
        ("10000000000000000f", False, "over 2\\^64-1"),
        ("18446744073709551615", False, "--decimal"),
        ("xyz", False, "'xyz' is not a fingerprint"),
        ("1_0", False, "is not a fingerprint"),
        ("+1", False, "is not a fingerprint"),
        ("\uff11", False, "is not a fingerprint"),
        ("-5", False, "negative"),
        ("-5", True, "negative"),
        ("18446744073709551616", True, "over 2\\^64-1"),
        ("9" * 5000, True, "over 2\\^64-1"),
        ("0xff", True, "decimal digits"),
        ("1.5", True, "decimal digits"),
        ("\u0663", True, "decimal digits"),
        (5, False, "must be a str, got int"),
    ],
)
def test_other_text_is_no_fingerprint(text, decimal, reason):
    with pytest.raises(InputError, match=reason) as caught:
        parse_fingerprint(text, decimal)
    assert len(str(caught.value)) < 200


@given(st.integers(0, MAX))
def test_formatted_fingerprint_is_read_back(value):
    text = format_fingerprint(value)
    assert len(text) == 16
    assert text == text.lower()
    assert parse_fingerprint(text) == value
    assert format_fingerprint(np.uint64(value)) == text


@pytest.mark.parametrize("value", [-1, MAX + 1, 1.0, "1", None, True])
def test_only_64_bit_integers_are_formatted(value):
    with pytest.raises(InputError, match="fingerprint"):
        format_fingerprint(value)


# What callers pass


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, MAX], dtype=np.uint64),
        np.array([1, MAX], dtype=">u8"),
        np.array([1, 9, MAX, 9], dtype=np.uint64)[::2],
        [1, MAX],
        (1, MAX),
        [np.uint64(1), MAX],
        pa.array([1, MAX], pa.uint64()),
    ],
)
def test_fingerprints_become_contiguous_native_uint64(values):
    array = check_fingerprints(values)
    assert array.dtype == np.dtype("=u8")
    assert array.flags.c_contiguous
    assert array.tolist() == [1, MAX]


@pytest.mark.parametrize("values", [[], (), np.array([], dtype=np.uint64), range(0)])
def test_no_fingerprints_are_fingerprints(values):
    array = check_fingerprints(values)
    assert (array.dtype, array.shape) == (np.uint64, (0,))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_narrow_unsigned_arrays_are_widened(dtype):
    array = check_fingerprints(np.array([0, 200], dtype=dtype))
    assert array.dtype == np.uint64
    assert array.tolist() == [0, 200]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        (np.array([1, -1]), ["int64", "(2,)", ".view(np.uint64)"]),
        (np.array([1, -1], dtype=np.int32), ["int32", "(2,)", ".view(np.uint32)"]),
        (np.array([1.0]), ["float64", "(1,)"]),
        (np.array([True]), ["bool", "(1,)"]),
        (np.zeros((2, 3), dtype=np.uint64), ["uint64", "(2, 3)"]),
        (np.uint64(1), ["uint64", "()"]),
        (np.array(1, dtype=np.uint64), ["uint64", "()"]),
        (np.array(["a"]), ["<U1", "(1,)"]),
        (np.array([1, None]), ["object", "(2,)"]),
        ([1, -1], ["-1", "position 1"]),
        ([1, MAX + 1], ["18446744073709551616", "position 1"]),
        ([1.0, 2], ["float 1.0", "(2,)"]),
        ([1, True], ["bool True", "(2,)"]),
        (["00"], ["str '00'", "(1,)"]),
        ([[1, 2], [3, 4]], ["1-D", "(2, 2)"]),
        ("00ff", ["str '00ff'"]),
        (b"00", ["bytes"]),
        (5, ["int 5"]),
        (None, ["NoneType"]),
    ],
)
def test_what_is_no_fingerprint_array_is_named(values, parts):
    with pytest.raises(InputError) as caught:
        check_fingerprints(values)
    for part in parts:
        assert part in str(caught.value)


def test_int64_recipe_of_the_message_keeps_the_bits():
    assert check_fingerprints(np.array([-1]).view(np.uint64)).tolist() == [MAX]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (np.array([3, 4], dtype=np.int8), [3, 4]),
        (np.array([3, MAX], dtype=">u8"), [3, MAX]),
        ([3, MAX], [3, MAX]),
        ((3, np.int64(4)), [3, 4]),
        (["a", "\u00e9\U0001f600"], ["a", "\u00e9\U0001f600"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
        (np.array([3, MAX], dtype=object), [3, MAX]),
    ],
)
def test_ids_become_integers_or_strings(ids, expected):
    checked = check_ids(ids, 2)
    if isinstance(expected[0], int):
        assert checked.dtype == np.uint64
        assert checked.tolist() == expected
    else:
        assert checked == expected
        assert {type(item) for item in checked} == {str}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1], "1 ids for 2 fingerprints"),
        (np.arange(3), "3 ids for 2 fingerprints"),
        ([1, "a"], "all integers or all strings"),
        (["a", None], "all integers or all strings"),
        ([1, None], "NoneType None at position 1"),
        ([1, 2.0], "float 2.0"),
        ([True, False], "bool"),
        ([1, -1], "-1 at position 1"),
        ([1, MAX + 1], "out of range"),
        (np.array([1, -7]), "-7"),
        (np.array([1.0, 2.0]), "float64"),
        (np.array([[1, 2]]), r"\(1, 2\)"),
        (np.array([b"a", b"b"]), r"S1"),
        (["a", ""], "empty"),
        (["a", "\ud800"], "UTF-8"),
        ("ab", "got str"),
        (7, "got int"),
    ],
)
def test_what_are_no_ids_is_named(ids, message):
    with pytest.raises(InputError, match=message):
        check_ids(ids, 2)


# Text that is read


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("a.tsv", b"00000000000000ff\n0000000000000001\n", {}, ([255, 1], None)),
        ("a.tsv", b"ff\n1", {}, ([255, 1], None)),
        ("a.TSV", b"FF\r\n0x1\r\n", {}, ([255, 1], None)),
        ("a.tsv", b"\xef\xbb\xbfff\n", {}, ([255], None)),
        ("a.tsv", b"", {}, ([], None)),
        ("a.tsv", b"\xef\xbb\xbf", {}, ([], None)),
        ("a.tsv", b"# only\n\n  \n", {}, ([], None)),
        ("a.tsv", b"# x\ty\nff\ta\n\n#\xff\n1\tb c, d\n \t\r\n", {}, ([255, 1], ["a", "b c, d"])),
        ("a.tsv", b"ff\t7\r\n1\t18446744073709551615\r\n", {}, ([255, 1], [7, MAX])),
        ("a.tsv", b"ff\t7\n1\t18446744073709551616\n", {}, ([255, 1], ["7", "18446744073709551616"])),
        ("a.tsv", b"ff\t7\n1\t07\n", {}, ([255, 1], ["7", "07"])),
        ("a.tsv", b"ff\t7\n1\t07\n", {"id_type": "int"}, ([255, 1], [7, 7])),
        ("a.tsv", b"ff\t7\n", {"id_type": "str"}, ([255], ["7"])),
        ("a.tsv", b" ff \t7\n", {}, ([255], [7])),
        ("a.tsv", b"18446744073709551615\n1\n", {"decimal": True}, ([MAX, 1], None)),
        ("a.tsv", "ff\t\u00e9\u4e2d\n".encode(), {}, ([255], ["\u00e9\u4e2d"])),
        ("a.tsv", b"fingerprint\tid\nff\ta\n", {}, ([255], ["a"])),
        ("a.tsv", b"\xef\xbb\xbf# c\nFingerprint\r\nff\r\n", {}, ([255], None)),
        ("a.tsv", b"fingerprint\tid\n", {}, ([], None)),
        ("a.tsv", b"fingerprint\turl\nff\ta\n", {}, ([255], ["a"])),
        ("a.tsv", b"id\tfingerprint\n#1\tff\n", {}, ([255], ["#1"])),
        ("a.tsv", b"query\tfingerprint\tdistance\tid\n1\tff\t3\ta\n", {}, ([255], ["a"])),
        ("a.tsv", b"hash\tdoc\nff\ta\n", {"fingerprint_field": "hash"}, ([255], ["a"])),
        (
            "a.tsv",
            b"hash\tx\tdoc\nff\t1\ta\n",
            {"fingerprint_field": "hash", "id_field": "doc"},
            ([255], ["a"]),
        ),
        ("a.tsv", b"ff\tfingerprint\n", {}, ([255], ["fingerprint"])),
        ("a.csv", b'ff,"a"\n', {}, ([255], ["a"])),
        ("a.csv", b"ff,a b\n1,\xc3\xa9\n", {}, ([255, 1], ["a b", "\u00e9"])),
        ("a.csv", b'"ff","a,""b"""\r\n1,c\r\n', {}, ([255, 1], ['a,"b"', "c"])),
        ("a.txt", b"ff a\n1,b\n2\tc\n", {}, ([255, 1, 2], ["a", "b", "c"])),
        ("a.txt", b"  ff ,  a\n1   b \n", {}, ([255, 1], ["a", "b"])),
        ("a.jsonl", b'{"fingerprint": 255}\r\n\n{"fingerprint": "1", "x": 1.5}', {}, ([255, 1], None)),
        ("a.jsonl", b'\xef\xbb\xbf{"fingerprint": "ff", "id": "7"}\n', {}, ([255], ["7"])),
        ("a.jsonl", b'{"fingerprint": "ff", "id": 7}\n', {}, ([255], [7])),
        ("a.jsonl", b'{"fingerprint": "ff", "id": 7}\n', {"id_type": "str"}, ([255], ["7"])),
        ("a.jsonl", b'{"fingerprint": "ff", "id": "07"}\n', {"id_type": "int"}, ([255], [7])),
        ("a.jsonl", b'{"fingerprint": "10"}\n{"fingerprint": 10}', {"decimal": True}, ([10, 10], None)),
        ("a.jsonl", b'{"h":1,"d":"a"}', {"fingerprint_field": "h", "id_field": "d"}, ([1], ["a"])),
        ("a.jsonl", '{"fingerprint":1,"id":"a\u2028b"}'.encode(), {}, ([1], ["a\u2028b"])),
        ("a.jsonl", b"", {}, ([], None)),
        ("a.u64", b"", {}, ([], None)),
        ("a.u64", (1).to_bytes(8, "little") + b"\xff" * 8, {}, ([1, MAX], None)),
        ("data.bin", b"\x02" + bytes(7), {"format": "u64"}, ([2], None)),
    ],
)
def test_input_is_read(tmp_path, name, content, options, expected):
    path = put(tmp_path, name, content)
    assert read(path, **options) == expected
    assert read(path, chunk_rows=2, **options) == expected


# Text that is refused


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", b"ff\nxyz\n", {}, ":2: 'xyz' is not a fingerprint"),
        ("a.tsv", b"ff\n\n# c\n" + b"z" * 99, {}, ":4: 'zzz.*[.][.][.]' is not a fingerprint"),
        ("a.tsv", b"1ffffffffffffffff\n", {}, ":1: .*over 2\\^64-1"),
        ("a.tsv", b"ff\n0x\n", {}, ":2: '0x' is not a fingerprint"),
        ("a.tsv", b"ff\ta\n0x\tb\n", {}, ":2: '0x' is not a fingerprint"),
        ("a.tsv", b"\ta\n", {}, ":1: '' is not a fingerprint"),
        ("a.tsv", b"-1\n", {}, ":1: .*negative"),
        ("a.tsv", b"\xff\xfe0\x000\x00\n", {}, ":1: .*is not a fingerprint"),
        ("a.tsv", b"fp\tid\nff\ta\n", {}, ":1: 'fp' is not a fingerprint"),
        ("a.tsv", b"18446744073709551616\n", {"decimal": True}, ":1: .*over 2\\^64-1"),
        ("a.tsv", b"1.5\n", {"decimal": True}, ":1: .*decimal digits"),
        ("a.tsv", b"ff\ta\n1\t\n", {}, ":2: the id is empty"),
        ("a.tsv", b"ff\ta\n1\n", {}, ":2: no id here, but earlier rows have one"),
        ("a.tsv", b"ff\n1\ta\n", {}, ":2: an id here, but earlier rows have none"),
        ("a.tsv", b"ff\ta\tb\n", {}, ":1: columns: 3; expected"),
        ("a.tsv", b"fingerprint\tid\nff\n", {}, ":2: columns: 1, but the header names 2"),
        ("a.tsv", b"fingerprint\nff\ta\n", {}, ":2: columns: 2, but the header names 1"),
        ("a.tsv", b"ff\ta\n", {"fingerprint_field": "hash"}, ":1: no header line that names .* 'hash'"),
        ("a.tsv", b"fingerprint\tx\nff\ta\n", {"id_field": "doc"}, ":1: the header does not name .* 'doc'"),
        ("a.tsv", b"ff\ta\n1\tb\xff\n", {}, r":2: the id 'b\\\\xff' is not valid UTF-8"),
        ("a.tsv", b"ff\t7\n1\tx\n", {"id_type": "int"}, ":2: the id 'x' is not an unsigned integer$"),
        ("a.tsv", b"ff\t7\n1\t18446744073709551616\n", {"id_type": "int"}, ":2: .*over 2\\^64-1"),
        ("a.tsv", b"ff\t7\n1\t-1\n", {"id_type": "int"}, ":2: the id '-1' is not"),
        ("a.tsv", b"ff\t7\n1\tx\n", {"chunk_rows": 1}, ":2: the id 'x' .*--id-type str"),
        ("a.tsv", b"ff\t7\n1\t07\n", {"chunk_rows": 1}, ":2: the id '07' has leading zeros.*--id-type str"),
        ("a.tsv", b"ff\t7\n1\t18446744073709551616\n", {"chunk_rows": 1}, ":2: .*over.*--id-type str"),
        ("a.csv", b'ff,"a\n1,b"\n', {}, ":1: not valid CSV"),
        ("a.csv", b'ff,"a"\n1,"\xff"\n', {}, ":2: not valid UTF-8"),
        ("a.txt", b"ff my doc\n", {}, ":1: columns: 3; expected"),
        ("a.txt", b"ff,\n", {}, ":1: the id is empty"),
        ("a.jsonl", b'{"fingerprint": 1}\n{"fingerprint": 2\n', {}, ":2: not valid JSON: .*column 18"),
        ("a.jsonl", b'{"fingerprint": 1} {"fingerprint": 2}\n', {}, ":1: not valid JSON: Extra data"),
        ("a.jsonl", b'{"fingerprint": 1},\n', {}, ":1: not valid JSON"),
        ("a.jsonl", b"[1]\n", {}, r":1: expected a JSON object, got \[1\]"),
        ("a.jsonl", b'{"fp": 1}\n', {}, ":1: the field 'fingerprint' is missing .*'fp'"),
        ("a.jsonl", b'{"fingerprint": true}\n', {}, ":1: true is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": 1.0}\n', {}, ":1: 1.0 is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": null}\n', {}, ":1: null is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": -1}\n', {}, ":1: -1 is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": 18446744073709551616}\n', {}, ":1: .*0 to 2\\^64-1"),
        ("a.jsonl", b'{"fingerprint": ' + b"1" * 5000 + b"}\n", {}, ":1: .*too many digits"),
        ("a.jsonl", b"[" * 200_000 + b"\n", {}, ":1: .*nested too deeply"),
        ("a.jsonl", b'{"fingerprint": "zz"}\n', {}, ":1: 'zz' is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": "ab\\ncd"}\n{"fingerprint": ""}\n', {}, ":1: .*is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": 1, "id": ""}\n', {}, ":1: the id is empty"),
        ("a.jsonl", b'{"fingerprint": 1, "id": null}\n', {}, ":1: the id null is neither"),
        ("a.jsonl", b'{"fingerprint": 1, "id": false}\n', {}, ":1: the id false is neither"),
        ("a.jsonl", b'{"fingerprint": 1, "id": 18446744073709551616}\n', {}, ":1: the id .*range"),
        ("a.jsonl", b'{"fingerprint": 1, "id": "\\ud800"}\n', {}, ":1: the id .*UTF-8"),
        ("a.jsonl", b'{"fingerprint": 1, "id": 1}\n{"fingerprint": 1}\n', {}, ":2: no id here"),
        ("a.jsonl", b'{"fingerprint": 1, "id": 1}\n{"fingerprint": 1, "id": "1"}', {}, ":2: .*--id-type str"),
        ("a.jsonl", b'{"fingerprint": 1}\n', {"id_field": "doc"}, ":1: the field 'doc' is missing"),
        ("a.jsonl", b'{"fingerprint": "\xff"}\n', {}, ":1: not valid UTF-8"),
        ("a.u64", bytes(15), {}, ": truncated: 7 bytes are left over"),
        ("a.u64", b"", {"id_field": "id"}, "no column 'id'"),
        ("a.npy", b"", {}, ": not a readable .npy file"),
        ("a.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': ", {}, ": not a readable .npy file"),
        ("a.npy", b"\x93NUMPY\x03\x00\x76\x00{}", {}, "version 3.0"),
        ("a.npy", b"PK\x03\x04" + bytes(60), {}, ": not a readable .npy file"),
        ("a.parquet", b"", {}, ": not a readable Parquet file"),
        ("a.parquet", b"PAR1" + bytes(60), {}, ": not a readable Parquet file"),
        ("a.xlsx", b"", {}, r"unknown extension '\.xlsx'; known extensions: \.npy, \.u64, \.tsv"),
        ("a", b"", {}, "unknown extension ''"),
        ("a.tsv", b"", {"format": "xml"}, "unknown format 'xml'"),
        ("a.tsv", b"", {"id_type": "uuid"}, "id_type must be one of auto, int, str"),
        ("a.tsv", b"", {"chunk_rows": 0}, "chunk_rows"),
    ],
)
def test_bad_input_is_named_in_one_line(tmp_path, name, content, options, message):
    path = put(tmp_path, name, content)
    with pytest.raises(InputError, match=message) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    if message.startswith(":"):
        assert str(caught.value).startswith(f"{path}:")
        assert caught.value.path == str(path)


def test_endless_line_is_refused_before_it_fills_memory(tmp_path):
    path = put(tmp_path, "a.tsv", b"ff\n" + bytes(20 << 20))
    with pytest.raises(InputError, match=":2: line longer than 16 MiB"):
        read(path)


@pytest.mark.parametrize(("base", "method"), [(Source, "batches"), (Encoder, "write")])
def test_a_format_without_its_method_is_refused_when_made(base, method):
    with pytest.raises(TypeError, match=f"abstract method '?{method}"):
        type("Format", (base,), {})()


# The fast and the careful path


class SlowText(TextSource):
    _parse = TextSource.parse_lines


class SlowJsonl(JsonlSource):
    def _parse_alike(self, block, rule):
        return None


def outcome(source, id_type, chunk_rows):
    reader = Reader([source], id_type, chunk_rows)
    try:
        chunks = list(reader)
    except InputError as error:
        return str(error)
    return [(c.fingerprints.tolist(), c.ids.tolist() if isinstance(c.ids, np.ndarray) else c.ids) for c in chunks]


CELLS = st.one_of(
    st.integers(0, MAX).map("{:016x}".format),
    st.integers(0, MAX).map(str),
    st.text("0123456789abcdefABCDEF", min_size=1, max_size=21),
    st.sampled_from(["0x1F", "0X0", "x", "0x", "", " 1", "1 ", '"1"', '"a,b"', '"', "#1", "g", "-1", "+1"]),
    st.sampled_from(["\u00e9", "1\r", "18446744073709551615", "18446744073709551616", "07", "fingerprint", "id"]),
)
GAPS = st.sampled_from(["\t", "\t", "\t", ",", ",", " ", "  ", " , ", "\t\t"])
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\n#c\td\n", " \n"])


@st.composite
def text_files(draw):
    if draw(st.booleans()):  # mostly alike: what the fast path is for, perhaps with one line spoilt
        gap, end = draw(st.sampled_from("\t, ")), draw(st.sampled_from(["\n", "\r\n"]))
        with_ids, digits = draw(st.booleans()), draw(st.sampled_from(["{:016x}", "{:x}", "0x{:x}", "{}"]))
        rows = draw(st.lists(st.tuples(st.integers(0, MAX), st.integers(0, 2**65)), max_size=12))
        lines = [digits.format(f) + (f"{gap}{i}" if with_ids else "") + end for f, i in rows]
        if lines and draw(st.booleans()):
            lines[draw(st.integers(0, len(lines) - 1))] = draw(CELLS) + draw(GAPS) + draw(CELLS) + end
        content = "".join(lines).encode()
    else:
        line = st.one_of(CELLS, st.tuples(CELLS, GAPS, CELLS).map("".join))
        content = "".join(draw(st.lists(st.tuples(line, ENDS).map("".join), max_size=8))).encode()
    if draw(st.integers(0, 9)) == 0:
        content += draw(st.sampled_from([b"\xff\n", b"1\t\xff\n", b"\x00", b"1\ta\xc3\n"]))
    return content[: len(content) - draw(st.integers(0, 2))]


@settings(max_examples=150, deadline=None)
@given(
    content=text_files(),
    dialect=st.sampled_from(["tsv", "csv", "txt"]),
    decimal=st.booleans(),
    id_type=st.sampled_from(["auto", "int", "str"]),
    chunk_rows=st.sampled_from([1, 3, 1000]),
    block_bytes=st.sampled_from([1, 7, 40, 1 << 20]),
)
def test_fast_and_careful_text_reading_agree(tmp_path_factory, content, dialect, decimal, id_type, chunk_rows, block_bytes):
    path = put(tmp_path_factory.getbasetemp(), f"fuzz.{dialect}", content)
    arguments = (InputFile(path), Fields(decimal), dialect, block_bytes)
    assert outcome(TextSource(*arguments), id_type, chunk_rows) == outcome(SlowText(*arguments), id_type, chunk_rows)


JSON_VALUES = st.one_of(
    st.integers(0, MAX),
    st.integers(0, MAX).map("{:x}".format),
    st.sampled_from([None, True, 1.5, -1, 2**64, "", "zz", "#1", "a\nb", "1\t2", "07", "\ud800", [1], {"a": 1}]),
)


@settings(max_examples=80, deadline=None)
@given(
    fingerprints=st.lists(st.integers(0, MAX) | st.integers(0, MAX).map(hex) | JSON_VALUES, max_size=6),
    ids=st.one_of(
        st.none(),
        st.lists(st.integers(0, MAX), min_size=6, max_size=6),
        st.lists(st.text(min_size=1), min_size=6, max_size=6),
        st.lists(JSON_VALUES, min_size=5, max_size=6),
    ),
    end=st.sampled_from(["\n", "\r\n", " \n", "\n\n", "}\n"]),
    decimal=st.booleans(),
    id_type=st.sampled_from(["auto", "int", "str"]),
    block_bytes=st.sampled_from([10, 50, 1 << 20]),
)
def test_fast_and_careful_json_reading_agree(tmp_path_factory, fingerprints, ids, end, decimal, id_type, block_bytes):
    rows = [{"fingerprint": value} for value in fingerprints]
    for row, identifier in zip(rows, ids or [], strict=False):
        row["id"] = identifier
    content = "".join(json.dumps(row) + end for row in rows).encode()
    path = put(tmp_path_factory.getbasetemp(), "fuzz.jsonl", content)
    arguments = (InputFile(path), Fields(decimal), block_bytes)
    assert outcome(JsonlSource(*arguments), id_type, 1000) == outcome(SlowJsonl(*arguments), id_type, 1000)


@pytest.mark.parametrize(
    ("block", "decimal", "kind", "expected"),
    [
        (b"00000000000000ff\nFFFFFFFFFFFFFFFF\n", False, None, ([255, MAX], None)),
        (b"ff\r\n0x1\r\n\r\n#\ta\n", False, None, ([255, 1], None)),
        (b"255\n18446744073709551615\n", True, None, ([255, MAX], None)),
        (b"ff\t0\n#\n0x01\t18446744073709551615\n", False, "int", ([255, 1], [0, MAX])),
        (b"ff\t7\n1\ta b\r\n", False, None, ([255, 1], ["7", "a b"])),
        ("255\t\u00e9\n1\t\u4e2d,\n".encode(), True, "str", ([255, 1], ["\u00e9", "\u4e2d,"])),
        (b"#\n", False, None, ([], None)),
    ],
)
def test_regular_blocks_take_the_fast_path(block, decimal, kind, expected):
    fingerprints, ids = parse_block(block, b"\t", decimal, kind, plain=True)
    assert (fingerprints.tolist(), ids.tolist() if kind == "int" else ids) == expected


def test_byte_order_mark_is_skipped_only_at_the_start(tmp_path):
    path = put(tmp_path, "a.tsv", b"\xef\xbb\xbfff\n\xef\xbb\xbfff\n")
    with pytest.raises(InputError, match=r":2: .*is not a fingerprint"):
        list(TextSource(InputFile(path), Fields(), "tsv", 6).batches(IdRule("auto")))


@pytest.mark.parametrize("block_bytes", [1, 16, 17, 18, 64])
def test_blocks_end_anywhere(tmp_path, block_bytes):
    content = b"\xef\xbb\xbf# c\nfingerprint\tid\n" + b"".join(b"%016x\tdoc-%d\r\n" % (i, i) for i in range(50))
    source = TextSource(InputFile(put(tmp_path, "a.tsv", content)), Fields(), "tsv", block_bytes)
    chunks = list(Reader([source], "auto", 20))
    assert [len(chunk.fingerprints) for chunk in chunks] == [20, 20, 10]
    assert [f for chunk in chunks for f in chunk.fingerprints.tolist()] == list(range(50))
    assert [i for chunk in chunks for i in chunk.ids] == [f"doc-{i}" for i in range(50)]
    assert source.bytes_done == len(content)


def test_line_number_counts_from_the_start_of_the_file(tmp_path):
    content = b"# head\nfingerprint\tid\n" + b"ff\t1\n" * 5000 + b"ff\tx\n"
    source = TextSource(InputFile(put(tmp_path, "a.tsv", content)), Fields(), "tsv", 1000)
    with pytest.raises(InputError, match=r"a\.tsv:5003: the id 'x' is not") as caught:
        list(Reader([source], "auto", 10))
    assert caught.value.line == 5003


# Arrays and Parquet


@pytest.mark.parametrize("dtype", ["<u8", ">u8", "<u4", "u1"])
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
        (np.array([None]), ["object", "(1,)"]),
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
        ({"fingerprint": ["ff"]}, {}, "type string"),
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


# Files, streams, several inputs


def test_what_the_system_refuses_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"gone\.tsv: no such file"):
        open_reader(tmp_path / "gone.tsv")
    with pytest.raises(InputError, match="is a folder, not a file"):
        open_reader(tmp_path, format="tsv")
    with pytest.raises(StorageError, match="null"):
        open_reader("a\0b.tsv")
    with pytest.raises(InputError, match="no input"):
        open_reader([])


def test_no_permission_is_a_storage_error(tmp_path):
    path = put(tmp_path, "a.tsv", b"ff\n")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read everything
    try:
        with pytest.raises(StorageError, match=r"a\.tsv: Permission denied"):
            open_reader(path)
        with pytest.raises(StorageError, match=r"b\.tsv: Permission denied"):
            open_writer("/proc/b.tsv" if user else tmp_path / "b.tsv", columns=["fingerprint"])
    finally:
        if user == 0:
            os.seteuid(0)


def test_file_name_that_is_not_utf8_can_be_printed(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tsv"))
    path.write_bytes(b"zz\n")
    with pytest.raises(InputError, match=r"xff\.tsv:1: ") as caught:
        read(path)
    assert str(caught.value).encode("utf-8")


def test_several_inputs_are_one(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3, dtype=np.uint64))
    paths = [tmp_path / "a.npy", put(tmp_path, "b.u64", b"\x07" + bytes(7)), put(tmp_path, "c.tsv", b"ff\n")]
    reader = open_reader(paths, chunk_rows=2)
    assert reader.rows is None
    assert reader.bytes_total == sum(path.stat().st_size for path in paths)
    assert reader.has_ids is False
    for _ in range(2):  # a reader can be read again
        assert [chunk.fingerprints.tolist() for chunk in reader] == [[0, 1], [2, 7], [255]]
        assert reader.bytes_done == reader.bytes_total
    iter(reader)
    assert reader.bytes_done == 0
    assert open_reader(paths[:2]).rows == 4


def test_presence_of_ids_is_known_after_the_first_row(tmp_path):
    reader = open_reader(put(tmp_path, "a.tsv", b"ff\ta\n"))
    assert (reader.has_ids, reader.rows) == (None, None)
    assert len(list(reader)) == 1
    assert reader.has_ids is True


def test_inputs_must_agree_on_ids(tmp_path):
    with_ids = put(tmp_path, "a.tsv", b"ff\t1\n")
    without = put(tmp_path, "b.tsv", b"# c\nff\n")
    raw = put(tmp_path, "c.u64", bytes(8))
    empty = put(tmp_path, "d.u64", b"")
    for paths, where in [((with_ids, without), "b.tsv:2: no id"), ((without, with_ids), "a.tsv:1: an id"),
                         ((with_ids, raw), "c.u64: no id"), ((raw, with_ids), "a.tsv:1: an id")]:  # fmt: skip
        with pytest.raises(InputError, match=where):
            read(paths)
    assert read([empty, with_ids]) == ([255], [1])


def test_id_type_is_decided_by_the_first_chunk_of_all_inputs(tmp_path):
    numbers, names = put(tmp_path, "a.tsv", b"1\t1\n2\t2\n"), put(tmp_path, "b.tsv", b"3\tx\n")
    assert read([numbers, names]) == ([1, 2, 3], ["1", "2", "x"])
    with pytest.raises(InputError, match=r"b\.tsv:1: the id 'x' .*--id-type str"):
        read([numbers, names], chunk_rows=2)
    assert read([numbers, names], chunk_rows=2, id_type="str") == ([1, 2, 3], ["1", "2", "x"])
    assert read([names, numbers], chunk_rows=1) == ([3, 1, 2], ["x", "1", "2"])
    typed = put(tmp_path, "c.jsonl", b'{"fingerprint": 4, "id": "x"}')
    with pytest.raises(InputError, match=r"c\.jsonl:1: .*type str, but earlier ids are integers"):
        read([numbers, typed])


SCRIPT = """
import sys
from fpstore.io import open_reader, open_writer
reader = open_reader("-", format=sys.argv[1])
assert reader.bytes_total is None
columns = ["fingerprint"] if sys.argv[1] == "u64" else ["fingerprint", "id"]
with open_writer("-", format=sys.argv[2], columns=columns) as writer:
    for chunk in reader:
        writer.write(chunk)
try:
    list(reader)
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("source", "target", "given_bytes", "printed"),
    [
        ("tsv", "jsonl", b"ff\t\xc3\xa9\n", '{"fingerprint": "00000000000000ff", "id": "\u00e9"}'),
        ("jsonl", "tsv", b'{"fingerprint": 1, "id": 7}', "0000000000000001\t7"),
        ("u64", "tsv", b"\x02" + bytes(7), "0000000000000002"),
    ],
)
def test_standard_streams(tmp_path, source, target, given_bytes, printed):
    environment = dict(os.environ, PYTHONUTF8="0", LC_ALL="C", PYTHONIOENCODING="ascii")
    command = [sys.executable, "-c", SCRIPT, source, target]
    done = subprocess.run(command, input=given_bytes, capture_output=True, env=environment, cwd=tmp_path, check=True)
    assert done.stdout.decode().splitlines() == [printed, "standard input can be read only once"]


def test_standard_input_is_named_in_errors(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ff\nzz\n")))
    with pytest.raises(InputError, match=r"^<stdin>:2: 'zz'"):
        read("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(bytes(9))))
    with pytest.raises(InputError, match=r"^<stdin>: truncated: 1 bytes"):
        read("-", format="u64")
    with pytest.raises(InputError, match="more than once"):
        open_reader(["-", "-"])
    for name in ("npy", "parquet"):
        with pytest.raises(InputError, match=r"<stdin>: .* must be a regular file"):
            open_reader("-", format=name)


def test_named_pipe_is_read(tmp_path):
    pipe = tmp_path / "pipe.tsv"
    os.mkfifo(pipe)
    with subprocess.Popen(["/bin/sh", "-c", 'printf "ff\\n1\\n" > "$0"', str(pipe)]):
        assert read(pipe) == ([255, 1], None)


# Writing


STRING_IDS = st.text(min_size=1, max_size=8)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, MAX), STRING_IDS, st.integers(0, MAX)), max_size=9),
    name=st.sampled_from(["a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet"]),
    integers=st.booleans(),
    header=st.booleans(),
    cut=st.integers(0, 9),
)
def test_what_is_written_is_read(tmp_path_factory, rows, name, integers, header, cut):
    path = tmp_path_factory.getbasetemp() / name
    path.unlink(missing_ok=True)
    fingerprints, strings, numbers = ([row[index] for row in rows] for index in range(3))
    ids = numbers if integers else strings
    try:
        with open_writer(path, columns=["fingerprint", "id"], header=header) as writer:
            writer.write({"fingerprint": fingerprints[:cut], "id": ids[:cut]})
            writer.write({"id": ids[cut:], "fingerprint": fingerprints[cut:]})
    except InputError as error:
        assert "separator or a line break" in str(error)  # noqa: PT017 - only some ids are refused
        assert set("".join(strings)) & set("\t\r\n ,")
        assert not path.exists()
        return
    assert read(path, id_type="int" if integers else "str") == (fingerprints, ids if rows else None)


@pytest.mark.parametrize("name", ["a.npy", "a.u64", "a.tsv", "a.csv", "a.txt", "a.jsonl", "a.parquet"])
def test_fingerprints_alone_are_written_and_read(tmp_path, name):
    values = np.random.default_rng(7).integers(0, MAX, 1000, dtype=np.uint64, endpoint=True)
    with open_writer(tmp_path / name, columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": values[:600]})
        writer.write(Chunk(values[600:].astype(">u8"), None))
        assert list(tmp_path.glob("a.*")) == []  # nothing under the name before the end
    assert writer.rows == 1000
    assert read(tmp_path / name) == (values.tolist(), None)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_npy_is_what_numpy_writes(tmp_path):
    with open_writer(tmp_path / "a.npy", columns=["fingerprint"]) as writer:
        writer.write([(1,), (MAX,)])
    np.save(tmp_path / "b.npy", np.array([1, MAX], dtype=np.uint64))
    assert np.load(tmp_path / "a.npy").tolist() == [1, MAX]
    assert (tmp_path / "a.npy").stat().st_size == (tmp_path / "b.npy").stat().st_size


@pytest.mark.parametrize("name", ["a.npy", "a.u64", "a.tsv", "a.jsonl", "a.parquet"])
def test_writing_no_rows_gives_a_readable_file(tmp_path, name):
    open_writer(tmp_path / name, columns=["fingerprint"]).close()
    assert read(tmp_path / name) == ([], None)


COLUMNS = ("query", "fingerprint", "distance", "id")


def test_result_rows_in_every_text_format():
    rows = [(1, 3, 1, "a"), (1, MAX, 63, "b,")]
    expected = {
        "tsv": "0000000000000001\t0000000000000003\t1\ta\n0000000000000001\tffffffffffffffff\t63\tb,\n",
        "csv": '0000000000000001,0000000000000003,1,a\n0000000000000001,ffffffffffffffff,63,"b,"\n',
        "jsonl": '{"query": "0000000000000001", "fingerprint": "0000000000000003", "distance": 1, "id": "a"}'
        '\n{"query": "0000000000000001", "fingerprint": "ffffffffffffffff", "distance": 63, "id": "b,"}\n',
    }
    for name, text in expected.items():
        for stream in (io.StringIO(), io.BytesIO()):
            with open_writer(stream, format=name, columns=COLUMNS) as writer:
                writer.write(rows)
            assert stream.getvalue() in (text, text.encode())
    with open_writer(stream := io.StringIO(), columns=["a", "n%"], header=True) as writer:
        writer.write([(5, 6)])
    assert stream.getvalue() == "a\tn%\n0000000000000005\t6\n"
    with open_writer(stream := io.StringIO(), format="jsonl", columns={"n%": "value"}) as writer:
        writer.write({"n%": ["\u2028\n"]})
    assert json.loads(stream.getvalue()) == {"n%": "\u2028\n"}


def test_parquet_types(tmp_path):
    with open_writer(tmp_path / "a.parquet", columns=COLUMNS) as writer:
        writer.write([(1, 3, 1, "a"), (1, MAX, 63, "b")])
    table = pq.read_table(tmp_path / "a.parquet")
    assert [str(kind) for kind in table.schema.types] == ["uint64", "uint64", "uint8", "string"]
    assert table.to_pylist()[1] == {"query": 1, "fingerprint": MAX, "distance": 63, "id": "b"}


def test_small_writes_make_large_row_groups(tmp_path):
    with open_writer(tmp_path / "a.parquet", columns=["fingerprint"]) as writer:
        for start in range(0, 600_000, 60_000):
            writer.write({"fingerprint": np.arange(start, start + 60_000, dtype=np.uint64)})
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert (metadata.num_rows, metadata.num_row_groups) == (600_000, 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"fingerprint": [1]}, "columns fingerprint given, fingerprint, id expected"),
        ({"fingerprint": [1], "id": ["a"], "x": [1]}, "given"),
        ({"fingerprint": [1, 2], "id": ["a"]}, "'id' has 1 rows, the columns before it 2"),
        ({"fingerprint": [-1], "id": ["a"]}, "'fingerprint': .*-1"),
        ({"fingerprint": [1], "id": [""]}, "'id': the id is empty"),
        ({"fingerprint": [1], "id": ["a\tb"]}, "cannot be written as tsv"),
        ({"fingerprint": [1], "id": [5]}, "'id' mixes integers and strings"),
        ([(1,)], "a row of 1 values for the columns fingerprint, id"),
        (Chunk(np.zeros(1, dtype=np.uint64), None), "columns fingerprint given"),
    ],
)
def test_refused_rows_leave_the_writer_as_it_was(tmp_path, data, message):
    with open_writer(tmp_path / "a.tsv", columns=["fingerprint", "id"]) as writer:
        writer.write([(1, "a")])
        with pytest.raises(InputError, match=message):
            writer.write(data)
        writer.write([(2, "b")])
    assert read(tmp_path / "a.tsv") == ([1, 2], ["a", "b"])


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("a.xyz", {"columns": ["fingerprint"]}, "unknown extension"),
        ("a.npy", {"columns": ["fingerprint", "id"]}, "npy format holds one column"),
        ("a.u64", {"columns": ["distance"]}, "u64 format holds one column"),
        ("a.tsv", {"columns": []}, "distinct names"),
        ("a.tsv", {"columns": ["id", "id"]}, "distinct names"),
        ("a.tsv", {"columns": ["a\tb"], "header": True}, "cannot be written"),
        (".", {"columns": ["id"], "format": "tsv"}, "is a folder"),
        (io.BytesIO(), {"columns": ["fingerprint"], "format": "npy"}, "needs a file"),
        (io.BytesIO(), {"columns": ["fingerprint"], "format": "parquet"}, "needs a file"),
    ],
)
def test_impossible_targets_are_named(tmp_path, target, options, message):
    with pytest.raises(InputError, match=message):
        open_writer(tmp_path / target if isinstance(target, str) else target, **options)
    assert list(tmp_path.iterdir()) == []


def test_distance_of_more_than_64_bits_is_refused():
    with (
        open_writer(io.StringIO(), columns=["distance"]) as writer,
        pytest.raises(InputError, match="0 to 64"),
    ):
        writer.write({"distance": [65]})


@pytest.mark.parametrize("name", ["a.npy", "a.u64", "a.tsv", "a.jsonl", "a.parquet"])
def test_failed_block_leaves_the_old_file(tmp_path, name):
    put(tmp_path, name, b"old")
    writer = open_writer(tmp_path / name, columns=["fingerprint"])
    writer.write({"fingerprint": [1]})
    with pytest.raises(KeyError), writer:
        raise KeyError
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [(name, b"old")]
    with pytest.raises(InputError, match="closed"):
        writer.write({"fingerprint": [1]})


@pytest.mark.parametrize("name", ["a.npy", "a.u64", "a.tsv", "a.jsonl", "a.parquet"])
def test_full_disk_leaves_nothing(tmp_path, name):
    values = np.random.default_rng(7).integers(0, MAX, 400_000, dtype=np.uint64)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with (
            pytest.raises(StorageError, match=f"{name}: File too large"),
            open_writer(tmp_path / name, columns=["fingerprint"]) as writer,
        ):
            writer.write({"fingerprint": values})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such device here")
def test_device_is_written_directly():
    writer = open_writer("/dev/full", format="tsv", columns=["fingerprint"])
    writer.write({"fingerprint": [1]})
    with pytest.raises(StorageError, match="/dev/full: No space left on device"):
        writer.close()
    assert not Path("/dev/full").is_file()


def test_closed_pipe_passes_through():
    receiver, sender = os.pipe()
    os.close(receiver)
    with os.fdopen(sender, "wb", buffering=0) as stream:
        writer = open_writer(stream, columns=["fingerprint"])
        with pytest.raises(BrokenPipeError):
            writer.write({"fingerprint": [1]})


def test_symbolic_link_stays_and_its_file_is_replaced(tmp_path):
    put(tmp_path, "real.tsv", b"old")
    (tmp_path / "link.tsv").symlink_to("real.tsv")
    with open_writer(tmp_path / "link.tsv", columns=["fingerprint"]) as writer:
        writer.write({"fingerprint": [1]})
    assert (tmp_path / "link.tsv").is_symlink()
    assert (tmp_path / "real.tsv").read_bytes() == b"0000000000000001\n"


# The package


def test_missing_pyarrow_names_the_extra(tmp_path):
    put(tmp_path, "a.parquet", b"PAR1")
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from fpstore.io import open_reader, open_writer\n"
        "for call in (lambda: open_reader('a.parquet'), lambda: open_writer('b.parquet', columns=['id'])):\n"
        "    try: call()\n"
        "    except ImportError as error: print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"MissingExtraError {name}: Parquet needs the package pyarrow: pip install 'fpstore[parquet]'"
        for name in ("a.parquet", "b.parquet")
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_import_brings_no_pyarrow(tmp_path):
    script = "import sys, fpstore.io; print([name for name in sys.modules if name.startswith('pyarrow')])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", ["check", "reader", "writers"])
def test_examples_of_the_docstrings(name):
    failed, attempted = doctest.testmod(importlib.import_module(f"fpstore.io.{name}"))
    assert attempted > 0
    assert failed == 0
