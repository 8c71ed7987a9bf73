"""The kernel's functions for strings against readable ones, and what they refuse."""

import numpy as np
import pytest
import xxhash
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_store import sealed_value

from fpstore import _kernel
from fpstore.base.strings import StringColumn, string_hash
from fpstore.base.width import Width
from fpstore.format.strings import with_checksum

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), max_size=30)


def words(*numbers):
    return np.array(numbers, np.uint64)


def separated(strings):
    return b"".join(string + b"\xff" for string in strings)


@settings(max_examples=60)
@given(texts, texts, st.data())
def test_a_column_holds_its_strings(one, other, data):
    encoded = [text.encode() for text in one]
    column = StringColumn.from_strings(one)
    assert column.tolist() == encoded == StringColumn.from_strings(encoded).tolist()
    assert len(column) == len(one)
    assert column.sizes.tolist() == [len(string) for string in encoded]
    assert (
        column.hashes().tolist()
        == [xxhash.xxh64_intdigest(string) for string in encoded]
        == [*map(string_hash, encoded)]
    )
    assert column.join_separated() == separated(encoded)
    assert column.texts() == one
    assert (
        StringColumn.concatenate([column, StringColumn.from_strings(other), column]).texts()
        == one + other + one
    )
    start = data.draw(st.integers(0, len(one)))
    end = data.draw(st.integers(start, len(one)))
    assert column.slice(start, end).tolist() == encoded[start:end]
    text = "-".join(one).encode()
    ends = words(*(len("-".join(one[: i + 1]).encode()) for i in range(len(one))))
    assert StringColumn.from_spans(text, ends - column.sizes, ends).tolist() == encoded
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(one), max_size=len(one))), bool)
    assert column.with_blanks(kept).tolist() == [
        string if keep else b"" for string, keep in zip(encoded, kept, strict=True)
    ]
    assert column.filter(kept).tolist() == [
        string for string, keep in zip(encoded, kept, strict=True) if keep
    ]


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
            min_size=1,
            max_size=9,
        ),
        max_size=6,
    ),
    st.data(),
)
def test_strings_of_decompressed_records(records, data):
    encoded = [[text.encode() for text in record] for record in records]
    contents = [separated(record) for record in encoded]
    counts = words(*map(len, records))
    requests = [
        sorted(data.draw(st.lists(st.integers(0, len(record) - 1), max_size=12)))
        for record in records
    ]
    lims = np.cumsum([0, *map(len, requests)], dtype=np.uint64)
    ranks = words(*(rank for part in requests for rank in part))
    expected = [
        record[rank] for record, part in zip(encoded, requests, strict=True) for rank in part
    ]
    places = words(*data.draw(st.permutations(range(len(expected)))))
    out = [""] * len(expected)
    assert _kernel.place_strings(contents, counts, lims, ranks, places, out) == sum(
        map(len, expected)
    )
    assert out == [expected[places.tolist().index(i)].decode() for i in range(len(expected))]
    joined = StringColumn(*_kernel.join_contents(contents, counts))
    assert joined.tolist() == [string for record in encoded for string in record]
    for record, content in zip(records, contents, strict=True):
        assert [
            _kernel.string_at(content, len(record), rank) for rank in range(len(record))
        ] == record


BAD_CONTENTS = {
    "a string less": b"a\xff",
    "a string more": b"a\xffb\xffc\xff",
    "no separator at the end": b"a\xffb",
    "nothing": b"",
}


@pytest.mark.parametrize("bad", BAD_CONTENTS)
def test_a_record_that_has_another_number_of_strings_is_refused(bad):
    contents, counts, lims = [b"x\xffy\xff", BAD_CONTENTS[bad]], words(2, 2), words(0, 1, 2)
    assert _kernel.place_strings(contents, counts, lims, words(0, 0), words(0, 1), ["", ""]) is None
    assert (
        _kernel.place_strings(contents, words(2, 2**63), lims, words(0, 0), words(0, 1), ["", ""])
        is None
    )
    assert _kernel.join_contents(contents, counts) is None
    assert _kernel.join_contents(contents[::-1], counts) is None
    assert _kernel.string_at(contents[1], 2, 0) is None


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3\x28\xff"])
def test_an_empty_string_and_one_that_is_not_utf8_are_not_placed(bad):
    assert (
        _kernel.place_strings(
            [b"a" + b"\xff" + bad], words(2), words(0, 1), words(1), words(0), [""]
        )
        is None
    )


def test_places_and_ranks_outside_are_refused():
    contents, counts, lims, single = [b"a\xff"], words(1), words(0, 1), words(0)
    for call in (
        lambda: _kernel.place_strings(contents, counts, lims, words(1), single, [""]),
        lambda: _kernel.place_strings(contents, counts, lims, single, words(1), [""]),
        lambda: _kernel.equal_strings(np.zeros(1, np.uint8), words(1), words(1), words(0, 1)),
    ):
        with pytest.raises(IndexError):
            call()
    for call in (
        lambda: _kernel.place_strings(contents, counts, words(0), single, single, [""]),
        lambda: _kernel.place_strings(contents, counts, words(0, 2), single, single, [""]),
        lambda: _kernel.place_strings(contents, counts, words(1, 0), single, single, [""]),
        lambda: _kernel.place_strings(contents, counts, lims, single, words(), [""]),
        lambda: _kernel.checked_frames([b""], words(), 9),
        lambda: _kernel.hash_strings(b"ab", words(3)),
        lambda: _kernel.equal_strings(np.zeros(1, np.uint8), words(2), words(0), words(0, 1)),
        lambda: _kernel.equal_strings(np.zeros(1, np.uint8), words(1), words(0), words(0, 2)),
        lambda: _kernel.copy_spans(b"ab", words(0), words(3)),
        lambda: _kernel.copy_spans(b"ab", words(1), words(0)),
        lambda: _kernel.copy_spans(b"ab", words(1), words()),
    ):
        with pytest.raises(ValueError, match=r"descend|past|different lengths"):
            call()
    with pytest.raises(UnicodeDecodeError):
        StringColumn.from_spans(b"\xff", words(0), words(1))
    with pytest.raises(UnicodeEncodeError):
        StringColumn.from_strings(["\ud800"])
    with pytest.raises(TypeError):
        StringColumn.from_strings([7])


@settings(max_examples=60)
@given(st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), min_size=1, max_size=12), st.data())
def test_rows_that_equal_the_first_of_their_group(strings, data):
    column = StringColumn.from_strings(strings)
    groups = data.draw(
        st.lists(st.lists(st.integers(0, len(strings) - 1), min_size=1, max_size=5), max_size=5)
    )
    lims = np.cumsum([0, *map(len, groups)], dtype=np.uint64)
    rows = words(*(row for group in groups for row in group))
    equal = _kernel.equal_strings(np.frombuffer(column.data, np.uint8), column.ends, rows, lims)
    assert equal.tolist() == [
        strings[row] == strings[group[0]] for group in groups for row in group
    ]


# --- Frames ---------------------------------------------------------------------------------------

MAX_BYTES = 2 * 256 * 900  # bytes of two of the largest
CONTENTS = [b"x\xff", b"y" * 300 + b"\xff", b"z" * 70_000 + b"\xff", bytes(range(256)) * 900]


@pytest.mark.parametrize("content", range(len(CONTENTS)))
def test_a_whole_frame_is_taken_and_nothing_less_or_more(content):
    """Frames of one block or several, whose content size takes a field of each length."""
    frame = zstandard.compress(CONTENTS[content])
    assert _kernel.checked_frame(sealed_value(5, frame), 5) == frame
    data, segments, sizes = _kernel.checked_frames(
        [sealed_value(i, frame) for i in (5, 6)], words(5, 6), MAX_BYTES
    )
    assert (data, np.frombuffer(segments, np.uint64).tolist()) == (
        frame * 2,
        [0, len(frame), len(frame), len(frame)],
    )
    assert np.frombuffer(sizes, np.uint64).tolist() == [len(CONTENTS[content])] * 2
    for most in (0, 1, len(CONTENTS[content]), 2 * len(CONTENTS[content]) - 1):
        assert (
            _kernel.checked_frames([sealed_value(i, frame) for i in (5, 6)], words(5, 6), most)[0]
            == frame
        )
    assert _kernel.checked_frame(sealed_value(5, frame), 6) is None
    for bad in (
        frame + b"\0",
        frame[:-1],
        frame[:7],
        frame[:4],
        b"",
        frame + frame,
        b"\0" + frame[1:],
    ):
        assert _kernel.checked_frame(sealed_value(5, bad), 5) is None
        assert (
            _kernel.checked_frames(
                [sealed_value(5, frame), sealed_value(6, bad)], words(5, 6), MAX_BYTES
            )
            is None
        )
    for short in (b"", b"\0" * 3):
        assert _kernel.checked_frame(short, 0) is None
    assert _kernel.checked_frames([sealed_value(5, frame), None], words(5, 6), MAX_BYTES) is None
    assert with_checksum(7, frame) == sealed_value(7, frame)


def test_frame_without_a_size_or_content_is_refused():
    compressor = zstandard.ZstdCompressor().compressobj()
    unsized = compressor.compress(b"text") + compressor.flush()
    reserved = bytearray(zstandard.compress(b"text"))
    reserved[4] |= 8
    for frame in (unsized, zstandard.compress(b""), bytes(reserved)):
        assert _kernel.checked_frame(sealed_value(0, frame), 0) is None
    known = zstandard.train_dictionary(
        1 << 10, [f"sample {i} of text".encode() for i in range(2000)]
    )
    for options in ({"write_checksum": True}, {"dict_data": known}):
        frame = zstandard.ZstdCompressor(**options).compress(b"text")
        assert _kernel.checked_frame(sealed_value(0, frame), 0) is None


@pytest.mark.parametrize("strings", [[], [b""], [b"a", b"", b"bc"], [b"x" * 5000, b"y"]])
def test_strings_are_joined_with_separators(strings):
    ends = np.cumsum([len(string) for string in strings], dtype=np.uint64)
    joined = _kernel.join_strings(b"".join(strings), ends)
    assert joined == b"".join(string + b"\xff" for string in strings)


def test_strings_beyond_the_data_are_not_joined():
    for ends in ([4], [2, 1]):
        with pytest.raises(ValueError, match="ends"):
            _kernel.join_strings(b"abc", np.array(ends, np.uint64))


def test_values_begin_with_the_checksum_of_their_frame():
    frames = [b"", b"one", bytearray(b"another " * 300)]
    keys = np.array([0, 5, 2**64 - 1], np.uint64)
    expected = [
        with_checksum(key, bytes(frame)) for key, frame in zip(keys.tolist(), frames, strict=True)
    ]
    values, offsets = _kernel.checked_values(keys, frames)
    assert values.tobytes() == b"".join(expected)
    assert np.diff(offsets).tolist() == [*map(len, expected)]
    with pytest.raises(ValueError, match="lengths"):
        _kernel.checked_values(keys[:2], frames)
    with pytest.raises(TypeError):
        _kernel.checked_values(keys, ["text"] * 3)


def lines_of(text, separators):
    """Return what `cut_lines` returns, read slowly."""
    starts, cuts, ends, at = [], [], [], 0
    for line in text.split(b"\n")[:-1]:
        content = line.removesuffix(b"\r")
        if content and not content.startswith(b"#"):
            gaps = [at + place for place, byte in enumerate(content) if byte in separators]
            if len(gaps) > 1:
                return None
            starts.append(at)
            cuts += gaps
            ends.append(at + len(content))
        at += len(line) + 1
    return (starts, cuts, ends) if len(cuts) in (0, len(starts)) else None


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([b"a", b"\t", b" ", b"#", b"\r", b"\n", b"\0", b"\xff"])).map(
        b"".join
    ),
    st.sampled_from([b"\t", b"\t ", b",", b""]),
)
def test_lines_are_cut(text, separators):
    cut = _kernel.cut_lines(text, separators)
    expected = lines_of(text, separators)
    assert (cut if cut is None else tuple(column.tolist() for column in cut)) == expected


def numbers_in(cells, read, *how):
    """Return the numbers that the kernel reads from cells, or None."""
    column = StringColumn.from_strings(cells)
    numbers = read(column.data, column.ends - column.sizes, column.ends, *how)
    return numbers if numbers is None else numbers.tolist()


@settings(max_examples=300)
@given(
    st.lists(st.text("0123456789-+ a:/", max_size=22) | st.integers(0, 2**64 + 9).map(str)),
    st.sampled_from([1, 32, 63, 64]),
    st.booleans(),
)
def test_decimal_digits_are_read(cells, bits, plain):
    known = all(
        cell.isdigit()
        and int(cell) < 2**bits
        and len(cell) <= 20
        and not (plain and cell != str(int(cell)))
        for cell in cells
    )
    expected = [int(cell) for cell in cells] if known else None
    assert numbers_in(cells, _kernel.read_decimal, bits, plain) == expected


@settings(max_examples=300)
@given(st.data(), st.sampled_from([8, 16, 32, 64]))
def test_hexadecimal_digits_are_read(data, digits):
    cell = st.text("0123456789abcdefABCDEFxX g/@`", max_size=digits + 3)
    number = st.integers(0, 2 ** (4 * digits) - 1)
    cells = data.draw(
        st.lists(cell | number.map(hex) | number.map(lambda value: f"{value:0{digits}X}"))
    )
    values = []
    for text in cells:
        prefixed = text[:2] in ("0x", "0X")
        own = text[2 * prefixed :]
        if not all(c in "0123456789abcdefABCDEF" for c in own) or not (
            1 <= len(own) <= digits if prefixed else len(own) == digits
        ):
            assert numbers_in(cells, _kernel.read_hexadecimal, digits) is None
            return
        values.append(int(own, 16))
    width = Width(4 * digits)
    assert numbers_in(cells, _kernel.read_hexadecimal, digits) == width.rows(values).tolist()


def test_digits_beyond_the_text_are_not_read():
    for starts, ends in (([0], [4]), ([2], [1]), ([0, 1], [2]), ([2**64 - 1], [2])):
        with pytest.raises(ValueError, match=r"ends|lengths"):
            _kernel.read_decimal(b"123", words(*starts), words(*ends), 64, False)
    for call in ((_kernel.read_decimal, 65, False), (_kernel.read_hexadecimal, 20)):
        with pytest.raises(ValueError, match=r"bits|width"):
            call[0](b"1", words(0), words(1), *call[1:])
