"""JSON lines that the kernel reads, against json.loads, and rows that it reads, against others."""

import io
import json
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fpstore
from fpstore import _kernel
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.errors import InputError
from fpstore.io import lines
from fpstore.io.json_lines import JsonLines
from fpstore.io.lines import LineRows
from fpstore.io.row_copy import KeptRows
from fpstore.io.source import IdRule, Projection, RowFlags

NAMES = ("text", "id", "\u00e9")


def read(block, names=NAMES):
    """Return what the kernel reads of each line, by kind and value; None if it is not regular."""
    columns = _kernel.read_json_lines(block, [name.encode() for name in names])
    if columns is None:
        return None
    read_columns = []
    for kinds, data, ends in columns:
        assert len(data) == (int(ends[-1]) if len(ends) else 0)
        bounds = pairwise([0, *ends.tolist()])
        strings = [data[start:end].decode() for start, end in bounds]
        read_columns.append(list(zip(kinds.tolist(), strings, strict=True)))
    return list(zip(*read_columns, strict=True))


def check_line(line):
    """Whether a line is regular; check that json.loads has the same values then."""
    rows = read(line + b"\n")
    if rows is None:
        return False
    row = json.loads(line.decode())
    assert type(row) is dict
    assert len(rows) == 1
    for name, (kind, string) in zip(NAMES, rows[0], strict=True):
        if name not in row:
            assert (kind, string) == (_kernel.JSON_MISSING, "")
        elif type(row[name]) is str:
            assert (kind, string) == (_kernel.JSON_STRING, row[name])
        else:
            assert (kind, repr(json.loads(string))) == (_kernel.JSON_OTHER, repr(row[name]))
    return True


CHARACTERS = st.characters(exclude_categories=["Cs"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(CHARACTERS),
    st.text('"\\/\b\f\n\r\t\0\x1f\x7f\u00e9\u4e2d\U0001f600', max_size=40),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(CHARACTERS), inner)
)
OBJECTS = st.dictionaries(
    st.sampled_from([*NAMES, "texts", "", "i"]) | st.text("abc"), VALUES, max_size=5
)


@st.composite
def json_text(draw):
    row, ascii_only = draw(OBJECTS), draw(st.booleans())
    gap = draw(st.sampled_from(["", " ", "\t", " \r "]))
    text = json.dumps(row, ensure_ascii=ascii_only, separators=(f"{gap},{gap}", f"{gap}:{gap}"))
    return (gap + text + gap).encode()


@settings(max_examples=40)  # they are slow to make; tools/fuzz has millions
@given(json_text())
def test_what_json_writes_is_read_as_json_reads_it(line):
    assert check_line(line)


PIECES = [
    *(
        bytes([byte])
        for byte in b'"\\{}[]:,019-+.eEuNI \t\r\0\x1f\x7f\x80\xc0\xe0\xed\xa0\xf0\xf4\xff'
    ),
    *(
        b"\\u",
        b"\\ud83d\\ude00",
        b"\\ud800",
        b"\\udc00",
        b"\\n",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
    ),
    *(b"NaN", b"Infinity", b"null", b"1e5", b'"text":', b'"id":1,'),
]


@st.composite
def damaged_json(draw):
    """Return a line of JSON with a few bytes replaced, added or removed."""
    line = bytearray(draw(json_text()))
    pieces = st.sampled_from(PIECES)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(line)))
        line[place : place + draw(st.integers(0, 2))] = draw(pieces)
    return bytes(line).replace(b"\n", b"")


@given(damaged_json())
def test_what_the_kernel_reads_of_damaged_lines_is_what_json_reads(line):
    check_line(line)


REGULAR = [
    b"{}",
    b' \t{ "text" : "a" , "id" : -0 } \r',
    b'{"text":"\\ud83d\\ude00\\u0000\\u00e9\\u4E2d\\uffff"}',
    b'{"other":"\\ud800","id":7}',
    b'{"te\\u0078t":"a","\\"":1,"\\u00e9":2}',
    b'{"a":1,"a":2,"id":[1,{"id":[]},{}]}',
    b'{"id":NaN,"text":-Infinity,"\xc3\xa9":Infinity}',
    b'{"id":1E+5,"text":0.5e-300,"\xc3\xa9":-12345678901234567890}',
    b'{"text":"\x7f\xe2\x80\xa8\xef\xbb\xbf\xef\xbf\xbf\xf4\x8f\xbf\xbf"}',
    b'{"id":%s}' % (b"[" * 30 + b"]" * 30),
    b'{"id":%s}' % (b"1" * 400),
]
# refused, or read by Python alone
IRREGULAR = [
    b"",
    b" ",
    b"[]",
    b"1",
    b'"text"',
    b"\xef\xbb\xbf{}",
    b"{}{}",
    b"{},",
    b"{,}",
    b'{"id":1,}',
    b'{"id":[1,]}',
    b'{"id":[,1]}',
    b'{"id":{"a"}}',
    b'{"id":{1:2}}',
    b'{"id" 1}',
    b'{"id":1 "text":2}',
    b'{"id":1;"text":2}',
    b'{"other":[1;2]}',
    b"{'id':1}",
    b"{id:1}",
    b'{"id":01}',
    b'{"id":1.}',
    b'{"id":.5}',
    b'{"id":+1}',
    b'{"id":-}',
    b'{"id":1e}',
    b'{"id":-NaN}',
    b'{"id":Nan}',
    b'{"id":Infinit}',
    b'{"id":True}',
    b'{"id":nul}',
    b'{"id":nullx}',
    b'{"text":"a\tb"}',
    b'{"text":"\0"}',
    b'{"other":"a\x1fb"}',
    b'{"text":"\\x41"}',
    b'{"text":"\\u12"}',
    b'{"text":"\\u+123"}',
    b'{"other":"\\u12g4"}',
    b'{"text":"\\"}',
    b'{"text":"a}',
    b'{"text":"\xff"}',
    b'{"other":"\xc0\x80"}',
    b'{"other":"\xe0\x80\x80"}',
    b'{"other":"\xe0\x9f\xbf"}',
    b'{"other":"\xed\xa0\x80"}',
    b'{"other":"\xf0\x80\x80\x80"}',
    b'{"other":"\xf4\x90\x80\x80"}',
    b'{"other":"\xe4\xb8"}',
    b'{"other":"\xf0\x9f\x98A"}',
    b'{"other":"\x80"}',
    b'{"text":"\\ud800"}',
    b'{"text":"\\ud800\\u0041"}',
    b'{"text":"\\udc00\\ud800"}',
    b'{"text":"\\ud83d\\udbff"}',
    b'{"text":"\\udc00\\udc00"}',
    b'{"text":1,"text":2}',
    b'{"te\\u0078t":1,"text":2}',
    b'{"te\\ud800":1}',
    b'{"id":%s}' % (b"[" * 32 + b"]" * 32),
    b'{"id":%s}' % (b"1" * 401),
    b'{"id":1e1234567}',
    b"{}\x0b",
]


@pytest.mark.parametrize("line", REGULAR)
def test_a_regular_line_is_read(line):
    assert check_line(line)


@pytest.mark.parametrize("line", IRREGULAR)
def test_an_irregular_line_is_left_to_python(line):
    assert not check_line(line)
    assert read(b'{"id":1}\n' + line + b"\n{}\n") is None


def test_each_length_of_a_string_ends_where_it_ends():
    for length in range(40):
        for end in (b'"', b"\\n", b"\x01", b"\xc3\xa9"):
            line = b'{"id":"%s%s"}' % (b"x" * length, end if end != b'"' else b"")
            assert check_line(line) == (end != b"\x01")
            assert not check_line(line[:-2])


def test_blocks_need_a_last_line_end_and_may_be_empty():
    assert read(b"") == []
    assert _kernel.read_json_lines(b"{}", []) is None
    assert _kernel.read_json_lines(b"{}\n{}\n", []) == []


@given(st.lists(st.sampled_from([b"", b"{}", b" \r", b"ab c", b"\t\t", b"\xff" * 300])))
@example([b"\n" * 1000])
def test_lines_are_counted_and_those_that_are_not_blank_found(parts):
    for block in (b"\n".join(parts), b"\n".join([*parts, b""])):
        assert _kernel.count_lines(block) == block.count(b"\n")
        starts, ends = _kernel.nonblank_lines(block)
        lines = [line for line in io.BytesIO(block) if line.strip(b" \t\r\n")]
        assert [block[a:b] for a, b in zip(starts, ends, strict=True)] == lines


# --- Rows -----------------------------------------------------------------------------------------

ROWS = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "text": st.sampled_from(["a b", "", None, "\u4e2d \U0001f600", ["x", "y"], 7]),
                "id": st.sampled_from([1, 2, "3", None, -1, 1.5]),
                "meta": st.sampled_from([{"url": "u", "n": {"x": 1}}, {"url": None}, {}, None, 3]),
                "meta.url": st.sampled_from(["own", None]),
                "score": st.sampled_from([1, 0.1, "2", None, float("nan")]),
            },
        ).map(json.dumps),
        st.sampled_from(
            ["", " ", "{", "[]", '{"text":"\\ud800","id":1}', '{"text":"a","text":"b","id":2}']
        ),
        st.just('{"text": "plain words", "id": 5, "score": 1}'),
    ),
    max_size=6,
)
PROJECTIONS = st.sampled_from(
    [
        Projection(text="text"),
        Projection(text="text", id="id"),
        Projection(text="text", id="id", strict=True, optional_id=True),
        Projection(text="text", id="text"),
        Projection(text=("text", "meta.url"), score="score"),
        Projection(text="meta.url", key="text", key_rule="text"),
        Projection(text="text", key="meta.url", labels=("meta.n.x", "text")),
        Projection(text="text", score="score", roles=("user",)),
        Projection(text="id", edits_texts=True),
        Projection(fingerprint="id", id="score", optional_id=True),
    ]
)


def plain(value):
    """Return a part of a batch as values of Python."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, StringColumn):
        return value.texts()
    if isinstance(value, TextColumn):
        return list(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return tuple(map(plain, value))
    return [*map(plain, value)] if isinstance(value, tuple | list) else value


def outcome(path, projection, **options):
    """Return all batches of a file, what is noted of them, and the error that ends them, if any."""
    batches, rule = [], IdRule()
    leaves_out = options.pop("leaves_out", False)
    source = LineRows([str(path)], ".jsonl", JsonLines, again=True, **options)
    source.leave_out_wrong(leaves_out)
    try:
        for batch in source.batches(projection, rule):
            errors = []
            if batch.row_error is not None:
                errors = [str(batch.row_error(place, "x")) for place in range(batch.flags.sum())]
            batches.append((plain(batch._replace(row_error=None)), errors, vars(rule).copy()))
    except InputError as error:
        return batches, str(error), error.line, source.rows_of_files
    return batches, None, None, source.rows_of_files


@given(ROWS, PROJECTIONS, st.booleans(), st.booleans(), st.sampled_from([b"\n", b"\r\n"]))
def test_rows_are_those_that_python_reads(tmp_path_factory, rows, projection, skips, leaves, end):
    path = tmp_path_factory.getbasetemp() / "rows.jsonl"
    path.write_bytes(end.join(row.encode() for row in rows))
    options = {"skip_bad": skips, "leaves_out": leaves}
    for block_bytes in (30, 1 << 20):
        with patch.object(lines, "BLOCK_BYTES", block_bytes):
            by_kernel = outcome(path, projection, **options)
            with patch.object(_kernel, "read_json_lines", lambda *_: None):
                assert by_kernel == outcome(path, projection, **options)


def test_the_texts_of_regular_lines_are_no_strings(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a\\u00e9", "id": 1, "m": {"u": 2}}\n{"id": 2, "text": "", "m": 1}\n')
    source = LineRows([str(path)], ".jsonl", JsonLines)
    (batch,) = source.batches(Projection(text="text", id="id", key="m.u"))
    assert isinstance(batch.texts, TextColumn)
    assert [*batch.texts] == ["a\u00e9", ""]


@given(
    st.lists(st.sampled_from([b'{"text": "a"}', b"{} \r", b"", b"\t", b"{", b"[1]"]), max_size=8),
    st.booleans(),
    st.integers(0, 255),
)
def test_kept_lines_are_those_of_kept_rows(tmp_path_factory, written, skips, bits):
    path = tmp_path_factory.getbasetemp() / "kept.jsonl"
    path.write_bytes(b"\n".join(written))
    with patch.object(lines, "BLOCK_BYTES", 10):
        source = LineRows([str(path)], ".jsonl", JsonLines, again=True, skip_bad=skips)
        count = sum(len(rows) for _, rows in source.all_rows())
        flags = np.array([bits >> place & 1 for place in range(count)], bool)
        kept = b"".join(source.kept_lines(RowFlags(flags)))
        rows = [row for _, some in source.kept_rows(RowFlags(flags)) for row in some]
    assert kept == b"".join(row.raw + b"\n" for row in rows)
    with pytest.raises(InputError, match="changed while it was read"):
        list(source.kept_lines(RowFlags(np.ones(count + 1, bool))))


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_copy_does_not_depend_on_threads(tmp_path, suffix):
    rows = [json.dumps({"id": n, "text": f"w{n % 70} x{n % 70} y\n"}) for n in range(300)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(rows))
    outputs = []
    with patch.object(lines, "BLOCK_BYTES", 500):
        for threads in (1, 2, 3, 8):
            output = tmp_path / f"{threads}.jsonl{suffix}"
            result = fpstore.dedup(path, output, text="text", threads=threads)
            assert len(result.kept) == 70
            outputs.append(output.read_bytes())
    assert len(set(outputs)) == 1


def test_an_error_while_lines_are_copied_leaves_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a"}\n' * 100)
    source = LineRows([str(path)], ".jsonl", JsonLines, again=True)
    for threads in (1, 2):
        with (
            patch.object(lines, "BLOCK_BYTES", 100),
            pytest.raises(InputError, match="changed while it was read"),
        ):
            KeptRows(np.ones(101, bool)).write(
                source, slice(0, 101), tmp_path / "b.jsonl", threads=threads
            )
        assert [*tmp_path.iterdir()] == [path]
