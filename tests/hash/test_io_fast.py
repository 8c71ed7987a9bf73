"""Regular text is parsed in whole blocks: the same rows and errors as line by line."""

import csv
import json
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import MAX, put
from speeds import SOME_WIDTHS

from fpstore.base.width import WIDTHS, Width
from fpstore.errors import InputError
from fpstore.io import lines, open_reader
from fpstore.io.delimited import DelimitedText
from fpstore.io.digits import Digits, parse_block
from fpstore.io.files import InputFile
from fpstore.io.json_lines import JsonLines


def outcome(path, block_bytes, **options):
    """Return the rows of a file that is read in blocks, or the error."""
    with patch.object(lines, "BLOCK_BYTES", block_bytes):
        try:
            chunks = list(open_reader(path, **options))
        except InputError as error:
            return str(error)
    return [
        (c.fingerprints.tolist(), c.ids.tolist() if isinstance(c.ids, np.ndarray) else c.ids)
        for c in chunks
    ]


def careful_outcome(path, block_bytes, **options):
    """Return the same, if no block is parsed as a whole."""
    with (
        patch.object(DelimitedText, "regular_block", lambda *_: None),
        patch.object(JsonLines, "regular_block", lambda *_: None),
    ):
        return outcome(path, block_bytes, **options)


CELLS = st.one_of(
    st.integers(0, MAX).map("{:016x}".format),
    st.integers(0, MAX).map(str),
    st.sampled_from(WIDTHS).flatmap(
        lambda bits: st.integers(0, 2**bits - 1).map(f"{{:0{bits // 4}x}}".format)
    ),
    st.sampled_from(WIDTHS).flatmap(lambda bits: st.integers(2**bits - 2, 2**bits + 1).map(str)),
    st.text("0123456789abcdefABCDEF", min_size=1, max_size=21),
    st.sampled_from(
        ["0x1F", "0X0", "x", "0x", "", " 1", "1 ", '"1"', '"a,b"', '"', "#1", "g", "-1", "+1"]
    ),
    st.sampled_from(
        ["\u00e9", "1\r", "18446744073709551615", "18446744073709551616", "07", "fingerprint", "id"]
    ),
)
GAPS = st.sampled_from(["\t", "\t", "\t", ",", ",", " ", "  ", " , ", "\t\t"])
ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", "\n#c\td\n", " \n"])


@st.composite
def text_files(draw, bits):
    if draw(st.booleans()):  # mostly alike: what the fast path is for, perhaps with one line spoilt
        gap, end = draw(st.sampled_from("\t, ")), draw(st.sampled_from(["\n", "\r\n"]))
        whole = f"{{:0{bits // 4}x}}"
        with_ids, digits = (
            draw(st.booleans()),
            draw(st.sampled_from([whole, "0x" + whole, "{:x}", "0x{:x}", "{}"])),
        )
        most = draw(st.sampled_from([2**bits - 1, 2**bits - 1, 2**bits]))
        rows = draw(
            st.lists(
                st.tuples(st.integers(0, most) | st.just(most), st.integers(0, 2**65)), max_size=12
            )
        )
        lines = [digits.format(f) + (f"{gap}{i}" if with_ids else "") + end for f, i in rows]
        if lines and draw(st.booleans()):
            lines[draw(st.integers(0, len(lines) - 1))] = (
                draw(CELLS) + draw(GAPS) + draw(CELLS) + end
            )
        content = "".join(lines).encode()
    else:
        line = st.one_of(CELLS, st.tuples(CELLS, GAPS, CELLS).map("".join))
        content = "".join(draw(st.lists(st.tuples(line, ENDS).map("".join), max_size=8))).encode()
    if draw(st.integers(0, 9)) == 0:
        content += draw(st.sampled_from([b"\xff\n", b"1\t\xff\n", b"\x00", b"1\ta\xc3\n"]))
    return content[: len(content) - draw(st.integers(0, 2))]


@settings(max_examples=60)
@given(
    bits_and_content=st.sampled_from(WIDTHS).flatmap(
        lambda bits: st.tuples(st.just(bits), text_files(bits))
    ),
    dialect=st.sampled_from(["tsv", "csv", "txt"]),
    decimal=st.booleans(),
    id_type=st.sampled_from(["auto", "int", "str"]),
    chunk_rows=st.sampled_from([1, 3, 1000]),
    block_bytes=st.sampled_from([1, 7, 40, 1 << 20]),
)
def test_fast_and_careful_text_reading_agree(
    tmp_path_factory, bits_and_content, dialect, decimal, id_type, chunk_rows, block_bytes
):
    bits, content = bits_and_content
    path = put(tmp_path_factory.getbasetemp(), f"fuzz.{dialect}", content)
    options = {"decimal": decimal, "width": bits, "id_type": id_type, "chunk_rows": chunk_rows}
    assert outcome(path, block_bytes, **options) == careful_outcome(path, block_bytes, **options)


CSV_CELLS = st.lists(
    st.sampled_from(["a", "#", "5", '"', ",", " ", "\t", "\n", "\n", "\r\n", "\u00e9"]),
    min_size=1,
    max_size=8,
).map("".join)


@settings(max_examples=60)
@given(
    ids=st.lists(CSV_CELLS, max_size=12),
    ids_first=st.booleans(),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n"]),
    block_bytes=st.sampled_from([1, 7, 40, 1 << 20]),
)
def test_both_users_of_the_reader_of_csv_read_what_was_written(
    tmp_path_factory, ids, ids_first, quoting, end, block_bytes
):
    head, rows = ["fingerprint", "id"], [[f"{n:016x}", name] for n, name in enumerate(ids)]
    order = slice(None, None, -1 if ids_first else 1)
    path = tmp_path_factory.getbasetemp() / "both.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=quoting, lineterminator=end).writerows(
            row[order] for row in [head, *rows]
        )
    chunks = outcome(path, block_bytes, id_type="str", chunk_rows=5)
    assert [name for _, names in chunks for name in names or ()] == ids
    assert [number for numbers, _ in chunks for number in numbers] == list(range(len(ids)))
    text = DelimitedText("both.csv", "csv")
    with patch.object(lines, "BLOCK_BYTES", block_bytes):
        blocks = list(text.blocks(lines.line_blocks(InputFile(path), lambda size: None)))
    results = [text.header, *(row for block, line in blocks for row in text.rows(block, line))]
    assert [row.cells for row in results] == [row[order] for row in [head, *rows]]
    assert b"".join(row.raw + b"\n" for row in results) == path.read_bytes()
    assert [row.line for row in results] == [
        1 + sum(row.raw.count(b"\n") + 1 for row in results[:n]) for n in range(len(results))
    ]


JSON_VALUES = st.one_of(
    st.integers(0, MAX),
    st.integers(0, MAX).map("{:x}".format),
    st.sampled_from(
        [None, True, 1.5, -1, 2**64, "", "zz", "#1", "a\nb", "1\t2", "07", "\ud800", [1], {"a": 1}]
    ),
)


@pytest.mark.full
@settings(max_examples=60)
@given(
    fingerprints=st.lists(
        st.integers(0, MAX) | st.integers(0, MAX).map(hex) | JSON_VALUES, max_size=6
    ),
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
    bits=st.sampled_from(WIDTHS),
)
def test_fast_and_careful_json_reading_agree(
    tmp_path_factory, fingerprints, ids, end, decimal, id_type, block_bytes, bits
):
    if fingerprints and bits != 64:  # some that only this width takes
        fingerprints[-1] = (
            fingerprints[-1] if isinstance(fingerprints[-1], int) else f"{2**bits - 3:x}"
        )
    rows = [{"fingerprint": value} for value in fingerprints]
    for row, identifier in zip(rows, ids or [], strict=False):
        row["id"] = identifier
    content = "".join(json.dumps(row) + end for row in rows).encode()
    path = put(tmp_path_factory.getbasetemp(), "fuzz.jsonl", content)
    options = {"decimal": decimal, "width": bits, "id_type": id_type}
    assert outcome(path, block_bytes, **options) == careful_outcome(path, block_bytes, **options)


def test_regular_blocks_take_the_fast_path():
    for block, decimal, kind, expected in (
        (b"00000000000000ff\nFFFFFFFFFFFFFFFF\n", False, None, ([255, MAX], None)),
        (b"0xff\r\n0x1\r\n\r\n#\ta\n", False, None, ([255, 1], None)),
        (b"255\n18446744073709551615\n", True, None, ([255, MAX], None)),
        (b"0xff\t0\n#\n0x01\t18446744073709551615\n", False, "int", ([255, 1], [0, MAX])),
        (b"0xff\t7\n0x1\ta b\r\n", False, None, ([255, 1], ["7", "a b"])),
        ("255\t\u00e9\n1\t\u4e2d,\n".encode(), True, "str", ([255, 1], ["\u00e9", "\u4e2d,"])),
        (b"#\n", False, None, ([], None)),
    ):
        fingerprints, ids = parse_block(block, b"\t", Digits(decimal=decimal), kind, plain=True)
        assert (
            fingerprints.tolist(),
            ids if ids is None else ids.tolist() if kind == "int" else ids.texts(),
        ) == expected


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_regular_blocks_of_every_width_take_the_fast_path(bits):
    width, values = (
        Width(bits),
        [0, 1, 2**bits - 1, 2 ** (bits - 1), 10 ** (bits // 4), 2**bits // 3],
    )
    values = [value % 2**bits for value in values]
    for digits, decimal in (
        (f"{{:0{bits // 4}x}}", False),
        ("0x{:x}", False),
        (f"0X{{:0{bits // 4}X}}", False),
        ("{}", True),
    ):
        lines = "".join(f"{digits.format(value)}\t{value % 7}\n" for value in values).encode()
        fingerprints, ids = parse_block(lines, b"\t", Digits(width, decimal), "int", True)
        assert (width.numbers(fingerprints), ids.tolist()) == (
            values,
            [value % 7 for value in values],
        )
    for digits, decimal in (
        (str(2**bits), True),
        (f"{2**bits:x}", False),
        (f"0x{2**bits:x}", False),
        ("f", False),
    ):
        assert parse_block(f"0x0\n{digits}\n".encode(), b"\t", Digits(width, decimal)) is None


def test_blocks_end_anywhere(tmp_path, set_limits):
    content = b"\xef\xbb\xbf# c\nfingerprint\tid\n" + b"".join(
        b"%016x\tdoc-%d\r\n" % (i, i) for i in range(50)
    )
    put(tmp_path, "a.tsv", content)
    put(tmp_path, "b.tsv", content + b"0x1\n\xef\xbb\xbf0xff\n")
    for block_bytes in (1, 16, 17, 18, 64):
        set_limits(line_bytes=block_bytes)
        reader = open_reader(tmp_path / "a.tsv", chunk_rows=20)
        chunks = list(reader)
        assert [len(chunk.fingerprints) for chunk in chunks] == [20, 20, 10]
        assert [f for chunk in chunks for f in chunk.fingerprints.tolist()] == list(range(50))
        assert [i for chunk in chunks for i in chunk.ids] == [f"doc-{i}" for i in range(50)]
        assert reader.bytes_done == len(content)
        with pytest.raises(InputError, match=r"b\.tsv:53: columns: 1, but") as caught:
            list(open_reader(tmp_path / "b.tsv", chunk_rows=10))
        assert caught.value.line == 53
