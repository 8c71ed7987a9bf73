"""Single fingerprints as text, and the arrays and ids that callers pass."""

import numpy as np
import pytest
from inputs import MAX, parse_fingerprint

from fpstore.errors import InputError
from fpstore.io.check import check_fingerprints, check_id, check_ids

# Single values


def test_fingerprint_text_is_read():
    for text, decimal, value in (
        ("0000000000000000", False, 0),
        ("0x0", False, 0),
        ("0x0000000000000001", False, 1),
        ("ffffffffffffffff", False, MAX),
        ("0xFFFFFFFFFFFFFFFF", False, MAX),
        ("0Xa", False, 10),
        (" 00000000000000aB\n", False, 0xAB),
        ("18446744073709551615", True, MAX),
    ):
        assert parse_fingerprint(text, decimal) == value


def test_other_text_is_no_fingerprint():
    for text, decimal, reason in (
        ("", False, "expected 16 hexadecimal digits, or 0x and 1 to 16$"),
        (
            "ff",
            False,
            (
                "'ff' is not a fingerprint: it has 2 of 16 hexadecimal digits: write all 16, or 0x "
                "before fewer"
            ),
        ),
        ("123456789012345", False, r"15 of 16 .* \(decimal fingerprints need decimal=True\)$"),
        ("00000000000000000", False, "over|decimal"),
        ("0x00000000000000001", False, "is not a fingerprint"),
        (
            "10000000000000000f",
            False,
            "it has 18 hexadecimal digits, but the width is 64: expected 16$",
        ),
        ("18446744073709551615", False, "decimal=True"),
        ("xyz", False, "'xyz' is not a fingerprint"),
        ("+1", False, "is not a fingerprint"),
        ("\uff11", False, "is not a fingerprint"),
        ("-5", True, "negative"),
        ("18446744073709551616", True, "it takes 65 bits, but the width is 64: pass width=128"),
        (
            "9" * 5000,
            True,
            (
                "it has 5000 decimal digits, but the width is 64: "
                "there are widths of 32, 64, 128 and 256 bits"
            ),
        ),
        ("0xff", True, "decimal digits"),
        ("1.5", True, "decimal digits"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            parse_fingerprint(text, decimal)
        assert len(str(caught.value)) < 200


# What callers pass


def test_what_is_no_fingerprint_array_is_named():
    for values, parts in (
        (np.array([1, -1]), ["int64", "(2,)", ".view(np.uint64)"]),
        (np.array([1.0]), ["float64", "(1,)"]),
        (np.zeros((2, 3), dtype=np.uint64), ["uint64", "(2, 3)"]),
        (np.array(1, dtype=np.uint64), ["uint64", "()"]),
        (np.array(["a"]), ["position 0: 'a'", "1 of 16 hexadecimal digits"]),
        (np.array([1, None]), ["NoneType None", "position 1"]),
        ([1, -1], ["-1", "position 1"]),
        ([1, MAX + 1], ["18446744073709551616", "position 1"]),
        ([1.0, 2], ["float 1.0", "position 0"]),
        ([[1, 2], [3, 4]], ["position 0", "list [1, 2]"]),
        # the value behind a mask was stored
        (np.ma.array([1, 2], np.uint64, mask=[True, False]), ["masked"]),
        ("00ff", ["str '00ff'"]),
        (b"00", ["bytes"]),
        (None, ["NoneType"]),
    ):
        with pytest.raises(InputError) as caught:
            check_fingerprints(values)
        assert all(part in str(caught.value) for part in parts), caught.value


def test_ids_become_integers_or_strings():
    for ids, expected in (
        (np.array([3, 4], dtype=np.int8), [3, 4]),
        (np.array([3, MAX], dtype=">u8"), [3, MAX]),
        ([3, MAX], [3, MAX]),
        ((3, np.int64(4)), [3, 4]),
        (["a", "\u00e9\U0001f600"], ["a", "\u00e9\U0001f600"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
        (np.array([3, MAX], dtype=object), [3, MAX]),
    ):
        checked = check_ids(ids, 2)
        assert (
            (checked.dtype == np.uint64)
            if isinstance(expected[0], int)
            else {type(item) for item in checked} == {str}
        )
        assert list(checked) == expected
    for case in (0, MAX, np.uint64(MAX), np.int8(7), "a", np.str_("b")):
        assert check_id(case) == case
        assert type(check_id(case)) in (int, str)


def test_what_are_no_ids_is_named():
    for ids, message in (
        ([1], "1 id for 2 fingerprints"),
        ([1, "a"], "all integers or all strings"),
        ([1, None], "position 1: .* NoneType None"),
        ([True, False], "bool"),
        ([1, -1], "position 1: .*-1"),
        (np.array([1, -7]), "-7"),
        (np.array([1.0, 2.0]), "float64"),
        (np.array([[1, 2]]), r"\(1, 2\)"),
        (np.array([b"a", b"b"]), r"S1"),
        (["a", ""], "empty"),
        (["a", "\ud800"], "UTF-8"),
        ("ab", "got str"),
    ):
        with pytest.raises(InputError, match=message):
            check_ids(ids, 2)


AN_ID = "an id must be an integer 0 to 2^64-1, or a string, got"


def test_a_single_id_that_is_refused_has_no_position():
    for identifier, message in (
        (1.5, f"{AN_ID} float 1.5"),
        (True, f"{AN_ID} bool True"),
        (None, f"{AN_ID} NoneType None"),
        ([1], f"{AN_ID} list [1]"),
        (-1, "the id -1 is out of range 0 to 2^64-1"),
        (np.int64(-1), "the id -1 is out of range 0 to 2^64-1"),
        (MAX + 1, f"the id {MAX + 1} is out of range 0 to 2^64-1"),
        ("", "the id is empty"),
    ):
        with pytest.raises(InputError) as caught:
            check_id(identifier)
        assert str(caught.value) == message
