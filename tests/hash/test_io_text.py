"""Files that are read and files that are refused, in every format: what comes of each line."""

import pytest
from inputs import MAX, put, read

from fpstore.errors import InputError

# Headers of .npy files whose bytes are not a number of the system.
OVERFLOWING = (
    "(18446744073709551616,)",
    "(9223372036854775808,)",
    "(4294967296, 4294967296)",
    "(2305843009213693952,)",
)


def npy_header(shape):
    text = f"{{'descr': '<u8', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(64)


def test_input_is_read(tmp_path):
    for name, content, options, expected in (
        ("a.tsv", b"00000000000000ff\n0000000000000001\n", {}, ([255, 1], None)),
        ("a.TSV", b"0xFF\r\n0x1\r\n", {}, ([255, 1], None)),
        ("a.tsv", b"\xef\xbb\xbf0xff\n", {}, ([255], None)),
        ("a.tsv", b"", {}, ([], None)),
        ("a.tsv", b"\xef\xbb\xbf", {}, ([], None)),
        ("a.tsv", b"# only\n\n  \n", {}, ([], None)),
        (
            "a.tsv",
            b"# x\ty\n0xff\ta\n\n#\xff\n0x1\tb c, d\n \t\r\n",
            {},
            ([255, 1], ["a", "b c, d"]),
        ),
        ("a.tsv", b"0xff\t7\r\n0x1\t18446744073709551615\r\n", {}, ([255, 1], [7, MAX])),
        ("a.tsv", b"0xff\t18446744073709551617\n", {}, ([255], ["18446744073709551617"])),
        ("a.tsv", b"0xff\t7\n0x1\t07\n", {}, ([255, 1], ["7", "07"])),
        ("a.tsv", b"0xff\t7\n0x1\t07\n", {"id_type": "int"}, ([255, 1], [7, 7])),
        ("a.tsv", b"18446744073709551615\n1\n", {"decimal": True}, ([MAX, 1], None)),
        ("a.tsv", "0xff\t\u00e9\u4e2d\n".encode(), {}, ([255], ["\u00e9\u4e2d"])),
        ("a.tsv", b"fingerprint\tid\n0xff\ta\n", {}, ([255], ["a"])),
        ("a.tsv", b"\xef\xbb\xbf# c\nFingerprint\r\n0xff\r\n", {}, ([255], None)),
        ("a.tsv", b"id\tfingerprint\n#1\t0xff\n", {}, ([255], ["#1"])),
        ("a.tsv", b"query\tfingerprint\tdistance\tid\n0x1\t0xff\t3\ta\n", {}, ([255], ["a"])),
        ("a.tsv", b"hash\tdoc\n0xff\ta\n", {"fingerprint_field": "hash"}, ([255], ["a"])),
        (
            "a.tsv",
            b"hash\tx\tdoc\n0xff\t1\ta\n",
            {"fingerprint_field": "hash", "id_field": "doc"},
            ([255], ["a"]),
        ),
        ("a.tsv", b"0xff\tfingerprint\n", {}, ([255], ["fingerprint"])),
        ("a.csv", b'0xff,"a"\n', {}, ([255], ["a"])),
        ("a.csv", b"0xff,a b\n0x1,\xc3\xa9\n", {}, ([255, 1], ["a b", "\u00e9"])),
        ("a.csv", b'"0xff","a,""b"""\r\n0x1,c\r\n', {}, ([255, 1], ['a,"b"', "c"])),
        ("a.csv", b'0xff,"a\n0x1,b"\n0x1,c\n', {}, ([255, 1], ["a\n0x1,b", "c"])),
        (
            "a.csv",
            b'# a, "b\n\n0xff,"a\r\n\r\n"\r\n#,"\r\n0x1,5""\n',
            {},
            ([255, 1], ["a\r\n\r\n", '5""']),
        ),
        ("a.csv", b'"the\nid",Fingerprint\n"#\n",0xff\n#,0x1', {}, ([255, 1], ["#\n", "#"])),
        ("a.txt", b"  0xff ,  a\n0x1   b \n", {}, ([255, 1], ["a", "b"])),
        (
            "a.jsonl",
            b'{"fingerprint": 255}\r\n\n{"fingerprint": "0x1", "x": 1.5}',
            {},
            ([255, 1], None),
        ),
        ("a.jsonl", b'\xef\xbb\xbf{"fingerprint": "0xff", "id": "7"}\n', {}, ([255], ["7"])),
        ("a.jsonl", b'{"fingerprint": "0xff", "id": "07"}\n', {"id_type": "int"}, ([255], [7])),
        (
            "a.jsonl",
            b'{"fingerprint": "10"}\n{"fingerprint": 10}',
            {"decimal": True},
            ([10, 10], None),
        ),
        ("a.jsonl", b'{"h":1,"d":"a"}', {"fingerprint_field": "h", "id_field": "d"}, ([1], ["a"])),
        ("a.jsonl", '{"fingerprint":1,"id":"a\u2028b"}'.encode(), {}, ([1], ["a\u2028b"])),
        ("a.u64", (1).to_bytes(8, "little") + b"\xff" * 8, {}, ([1, MAX], None)),
        ("data.bin", b"\x02" + bytes(7), {"format": "u64"}, ([2], None)),
    ):
        path = put(tmp_path, name, content)
        assert read(path, **options) == read(path, chunk_rows=2, **options) == expected, content


def test_bad_input_is_named_in_one_line(tmp_path):
    for name, content, options, message in (
        ("a.tsv", b"0xff\nxyz\n", {}, ":2: 'xyz' is not a fingerprint"),
        ("a.tsv", b"0xff\n\n# c\n" + b"z" * 99, {}, ":4: 'zzz.*[.][.][.]' is not a fingerprint"),
        ("a.tsv", b"0xff\n0x\n", {}, ":2: '0x' is not a fingerprint"),
        ("a.tsv", b"\ta\n", {}, ":1: '' is not a fingerprint"),
        ("a.tsv", b"\xff\xfe0\x000\x00\n", {}, "a.tsv: not valid utf-16"),
        ("a.tsv", b"fp\tid\n0xff\ta\n", {}, ":1: 'fp' is not a fingerprint"),
        (
            "a.tsv",
            b"18446744073709551616\n",
            {"decimal": True},
            ":1: .*it takes 65 bits, but the width is 64",
        ),
        ("a.tsv", b"0xff\ta\n0x1\t\n", {}, ":2: the id is empty"),
        ("a.tsv", b"0xff\ta\n0x1\n", {}, ":2: no id here, but earlier rows have one"),
        ("a.tsv", b"0xff\n0x1\ta\n", {}, ":2: an id here, but earlier rows have none"),
        ("a.tsv", b"0xff\ta\tb\n", {}, ":1: columns: 3; expected"),
        ("a.tsv", b"fingerprint\tid\n0xff\n", {}, ":2: columns: 1, but the header names 2"),
        (
            "a.tsv",
            b"0xff\ta\n",
            {"fingerprint_field": "hash"},
            ":1: no header line that names .* 'hash'",
        ),
        (
            "a.tsv",
            b"fingerprint\tx\n0xff\ta\n",
            {"id_field": "doc"},
            ":1: the header does not name .* 'doc'",
        ),
        ("a.tsv", b"0xff\ta\n0x1\tb\xff\n", {}, ":2: the id 'b.*udcff' is not valid UTF-8"),
        (
            "a.tsv",
            b"0xff\t7\n0x1\tx\n",
            {"id_type": "int"},
            ":2: the id 'x' is not an unsigned integer$",
        ),
        (
            "a.tsv",
            b"0xff\t7\n0x1\t18446744073709551616\n",
            {"id_type": "int"},
            ":2: .*over 2\\^64-1",
        ),
        (
            "a.tsv",
            b"0xff\t7\n0x1\t18446744073709551616\n",
            {},
            "18446744073709551616' is over .*id_type='str'",
        ),
        ("a.tsv", b"0xff\t7\n0x1\tx\n", {"chunk_rows": 1}, ":2: the id 'x' .*id_type='str'"),
        (
            "a.tsv",
            b"0xff\t7\n0x1\t18446744073709551616\n",
            {"chunk_rows": 1},
            ":2: .*over.*id_type='str'",
        ),
        (
            "a.csv",
            b'0xff,"a\n0x1,b\n',
            {},
            ":1: not valid CSV: unexpected end of data in '0xff,\"a'",
        ),
        (
            "a.csv",
            b'0xff,"a\nb"\n\n#\n0x1,"\n" c\n0x2,d\n',
            {},
            ":5: not valid CSV: ',' expected after '\"'",
        ),
        (
            "a.csv",
            b'0xff,"a\nb"\n0x1,"c\r"\r\r\n',
            {},
            ":3: not valid CSV: a line break outside quotes at the end of the row in",
        ),
        ("a.csv", b'0xff,"a\n\nb"\n0x1,"c\n"\n0x1\n', {}, ":6: no id here"),
        ("a.csv", b'0xff,"a"\n0x1,"\xff"\n', {}, ":2: the id .* is not valid UTF-8"),
        ("a.txt", b"0xff my doc\n", {}, ":1: columns: 3; expected"),
        (
            "a.jsonl",
            b'{"fingerprint": 1}\n{"fingerprint": 2\n',
            {},
            ":2: not valid JSON: .*column 18",
        ),
        (
            "a.jsonl",
            b'{"fingerprint": 1} {"fingerprint": 2}\n',
            {},
            ":1: not valid JSON: Extra data",
        ),
        ("a.jsonl", b'{"fp": 1}\n', {}, ":1: the field 'fingerprint' is missing .*'fp'"),
        ("a.jsonl", b'{"fingerprint": true}\n', {}, ":1: true is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": 1.0}\n', {}, ":1: 1.0 is not a fingerprint"),
        ("a.jsonl", b'{"fingerprint": -1}\n', {}, ":1: -1 is not a fingerprint"),
        (
            "a.jsonl",
            b'{"fingerprint": 18446744073709551616}\n',
            {},
            ":1: .*takes 65 bits, but the width is 64",
        ),
        ("a.jsonl", b'{"fingerprint": ' + b"1" * 5000 + b"}\n", {}, ":1: .*too many digits"),
        ("a.jsonl", b'{"a":' * 200_000 + b"\n", {}, ":1: .*nested too deeply"),
        (
            "a.jsonl",
            b'{"fingerprint": "ab\\ncd"}\n{"fingerprint": ""}\n',
            {},
            ":1: .*is not a fingerprint",
        ),
        ("a.jsonl", b'{"fingerprint": 1, "id": ""}\n', {}, ":1: the id is empty"),
        ("a.jsonl", b'{"fingerprint": 1, "id": null}\n', {}, ":1: the id null is neither"),
        ("a.jsonl", b'{"fingerprint": 1, "id": 18446744073709551616}\n', {}, ":1: the id .*range"),
        ("a.jsonl", b'{"fingerprint": 1, "id": "\\ud800"}\n', {}, ":1: the id .*UTF-8"),
        ("a.jsonl", b'{"fingerprint": 1, "id": 1}\n{"fingerprint": 1}\n', {}, ":2: no id here"),
        (
            "a.jsonl",
            b'{"fingerprint": 1, "id": 1}\n{"fingerprint": 1, "id": "1"}',
            {},
            ":2: .*id_type='str'",
        ),
        ("a.jsonl", b'{"fingerprint": 1}\n', {"id_field": "doc"}, ":1: the field 'doc' is missing"),
        ("a.jsonl", b'{"fingerprint": "\xff"}\n', {}, ":1: not valid UTF-8"),
        ("a.u64", bytes(15), {}, ": truncated: 7 bytes are left over"),
        ("a.npy", b"", {}, ": not a readable .npy file"),
        ("a.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': ", {}, ": not a readable .npy file"),
        ("a.npy", b"PK\x03\x04" + bytes(60), {}, ": not a readable .npy file"),
        *(
            ("a.npy", npy_header(shape), {}, ": not a readable .npy file: it is shorter")
            for shape in OVERFLOWING
        ),
        ("a.parquet", b"", {}, ": not a readable Parquet file"),
        ("a.parquet", b"PAR1" + bytes(60), {}, ": not a readable Parquet file"),
        (
            "a.xlsx",
            b"",
            {},
            r"unknown extension '\.xlsx'; known extensions: \.npy, \.u32, \.u64, \.tsv",
        ),
        ("a.tsv", b"", {"format": "xml"}, "unknown format 'xml'"),
        ("a.tsv", b"", {"id_type": "uuid"}, "id_type must be one of auto, int, str"),
        ("a.tsv", b"", {"chunk_rows": 0}, "chunk_rows"),
    ):
        path = put(tmp_path, name, content)
        with pytest.raises(InputError, match=message) as caught:
            read(path, **options)
        assert "\n" not in str(caught.value)
        if message.startswith(":"):
            assert str(caught.value).startswith(f"{path}:")
            assert caught.value.path == str(path)
    # an endless line is refused before it fills memory
    path = put(tmp_path, "a.tsv", b"0xff\n" + bytes(20 << 20))
    with pytest.raises(InputError, match=":2: line longer than 16 MiB"):
        read(path)
