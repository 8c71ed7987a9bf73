"""Single fingerprints as text, and the arrays and ids that callers pass."""

import numpy as np
import pyarrow as pa
import pytest
from inputs import MAX, parse_fingerprint

from fpstore.errors import InputError
from fpstore.io import check_fingerprints, check_id, check_ids

# Single values


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("0000000000000000", False, 0),
        ("0x0", False, 0),
        ("0x0000000000000001", False, 1),
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
        ("", False, "expected 16 hexadecimal digits, or 0x and 1 to 16$"),
        ("0x", False, "expected 16 hexadecimal digits, or 0x and 1 to 16$"),
        ("ff", False, "'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits: write all 16, or 0x before fewer"),
        ("123456789012345", False, r"15 of 16 .* \(decimal fingerprints need decimal=True, --decimal\)$"),
        ("00000000000000000", False, "over|decimal"),
        ("0x00000000000000001", False, "is not a fingerprint"),
        ("10000000000000000f", False, "it has 18 hexadecimal digits, but the width is 64: expected 16$"),
        ("18446744073709551615", False, "--decimal"),
        ("xyz", False, "'xyz' is not a fingerprint"),
        ("1_0", False, "is not a fingerprint"),
        ("+1", False, "is not a fingerprint"),
        ("\uff11", False, "is not a fingerprint"),
        ("-5", False, "negative"),
        ("-5", True, "negative"),
        ("18446744073709551616", True, "it takes 65 bits, but the width is 64: pass width=128"),
        ("9" * 5000, True, "it has 5000 decimal digits, but the width is 64: there are widths of 32, 64, 128 and 256 bits"),
        ("0xff", True, "decimal digits"),
        ("1.5", True, "decimal digits"),
        ("\u0663", True, "decimal digits"),
    ],
)
def test_other_text_is_no_fingerprint(text, decimal, reason):
    with pytest.raises(InputError, match=reason) as caught:
        parse_fingerprint(text, decimal)
    assert len(str(caught.value)) < 200


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


@pytest.mark.parametrize("dtype", [np.uint16, ">u2"])
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
        (np.array(["a"]), ["position 0: 'a'", "1 of 16 hexadecimal digits"]),
        (np.array([1, None]), ["NoneType None", "position 1"]),
        ([1, -1], ["-1", "position 1"]),
        ([1, MAX + 1], ["18446744073709551616", "position 1"]),
        ([1.0, 2], ["float 1.0", "position 0"]),
        ([1, True], ["bool True", "position 1"]),
        ([1, "00"], ["position 1: '00'", "2 of 16 hexadecimal digits"]),
        ([[1, 2], [3, 4]], ["position 0", "list [1, 2]"]),
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
        ([1], "1 id for 2 fingerprints"),
        (np.arange(3), "3 ids for 2 fingerprints"),
        ([1, "a"], "all integers or all strings"),
        (["a", None], "all integers or all strings"),
        ([1, None], "position 1: .* NoneType None"),
        ([1, 2.0], "float 2.0"),
        ([True, False], "bool"),
        ([1, -1], "position 1: .*-1"),
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


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        (1.5, "an id must be an integer 0 to 2^64-1, or a string, got float 1.5"),
        (True, "an id must be an integer 0 to 2^64-1, or a string, got bool True"),
        (None, "an id must be an integer 0 to 2^64-1, or a string, got NoneType None"),
        ([1], "an id must be an integer 0 to 2^64-1, or a string, got list [1]"),
        (-1, "the id -1 is out of range 0 to 2^64-1"),
        (np.int64(-1), "the id -1 is out of range 0 to 2^64-1"),
        (MAX + 1, f"the id {MAX + 1} is out of range 0 to 2^64-1"),
        ("", "the id is empty"),
    ],
)
def test_a_single_id_that_is_refused_has_no_position(identifier, message):
    with pytest.raises(InputError) as caught:
        check_id(identifier)
    assert str(caught.value) == message


@pytest.mark.parametrize("identifier", [0, MAX, np.uint64(MAX), np.int8(7), "a", np.str_("b")])
def test_a_single_id_becomes_an_int_or_a_str(identifier):
    assert check_id(identifier) == identifier
    assert type(check_id(identifier)) in (int, str)


def test_masked_values_are_refused():
    """A mask said that there is no value, and the value behind it was stored."""
    with pytest.raises(InputError, match="masked"):
        check_fingerprints(np.ma.array([1, 2], np.uint64, mask=[True, False]))
    assert list(check_fingerprints(np.ma.array([1, 2], np.uint64))) == [1, 2]
