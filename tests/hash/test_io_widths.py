"""Fingerprints of every width as users have them.

What becomes of them, and what is said of those of another width.
"""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from inputs import parse_fingerprint
from speeds import SOME_WIDTHS, full
from wide import Bits, advice, as_bits, as_uint8, numbers

from fpstore.base.width import Width, row_order, row_place
from fpstore.errors import InputError
from fpstore.io.check import check_fingerprint, check_fingerprints


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_every_kind_of_array_and_list_becomes_the_same_rows(bits):
    width, values = Width(bits), numbers(bits)
    rows, data = width.rows(values), as_uint8(values, bits)
    pieces = [value.to_bytes(bits // 8, "big") for value in values]
    kinds = {
        "ints": values,
        "tuple of ints": tuple(values),
        "array of ints": np.array(values, object),
        "uint8 rows": data,
        "uint8 rows, columns first": np.asfortranarray(data),
        "uint8 rows, every second": np.repeat(data, 2, axis=0)[::2],
        "void": data.view(f"V{bits // 8}").reshape(-1),
        "bytes dtype": data.view(f"S{bits // 8}").reshape(-1),
        "bits": as_bits(values, bits),
        "bytes": pieces,
        "array of bytes": np.array([*pieces, None], object)[:-1],
        "bytearrays": list(map(bytearray, pieces)),
        "memoryviews": list(map(memoryview, pieces)),
        "void scalars": list(data.view(f"V{bits // 8}").reshape(-1)),
        "list of rows": list(data),
        "hexadecimal digits": [f"{value:0{bits // 4}x}" for value in values],
        "digits after 0x": [f"{value:#x}" for value in values],
        "array of digits": np.array([f"{value:0{bits // 4}X}" for value in values]),
        "array of objects that are digits": np.array(
            [f"{value:0{bits // 4}X}" for value in values], object
        ),
        "image hashes": [Bits(value, bits) for value in values],
        "bool arrays": [Bits(value, bits).hash for value in values],
        "Arrow": pa.array(pieces, pa.binary(bits // 8)),
    }
    for name, argument in kinds.items():
        checked = check_fingerprints(argument, width)
        assert checked.dtype == np.dtype("=u8"), name
        assert checked.flags.c_contiguous, name
        np.testing.assert_array_equal(checked, rows, err_msg=name)


def test_words_and_unsigned_integers_are_taken_as_they_are():
    # words, the most significant first
    for bits, dtype in itertools.product((128, 256), ("<u8", ">u8")):
        rows = Width(bits).rows(numbers(bits))
        np.testing.assert_array_equal(check_fingerprints(rows.astype(dtype), Width(bits)), rows)
        np.testing.assert_array_equal(check_fingerprints(list(rows), Width(bits)), rows)
        assert np.shares_memory(check_fingerprints(rows, Width(bits)), rows)
    for bits, dtype in (
        (32, "<u2"),
        (32, ">u4"),
        (32, "<u8"),
        (64, "<u2"),
        (64, ">u2"),
        (64, "<u8"),
        (64, ">u8"),
    ):
        values = [0, 1, 200, min(np.iinfo(dtype).max, 2**bits - 1)]
        assert (
            Width(bits).numbers(check_fingerprints(np.array(values, dtype), Width(bits))) == values
        )
    for bits in (32, 64, 256):
        for value in (
            [],
            (),
            np.zeros((0, bits // 8), np.uint8),
            np.zeros(0, f"V{bits // 8}"),
            np.zeros((0, bits), bool),
        ):
            assert check_fingerprints(value, Width(bits)).shape == Width(bits).empty(0).shape


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_one_fingerprint_of_any_kind_is_a_number(bits):
    width = Width(bits)
    for value in numbers(bits, 5):
        data = value.to_bytes(bits // 8, "big")
        row = np.frombuffer(data, np.uint8)
        kinds = [
            value,
            data,
            bytearray(data),
            memoryview(data),
            row,
            Bits(value, bits),
            Bits(value, bits).hash,
        ]
        kinds += [hex(value), f"{value:0{bits // 4}X}", np.str_(f"{value:0{bits // 4}x}")]
        if bits <= 64:
            kinds.append(np.dtype(f"u{bits // 8}").type(value))
        else:
            kinds.append(width.row(value)[0])
        assert [check_fingerprint(argument, width) for argument in kinds] == [value] * len(kinds)
        assert {type(check_fingerprint(argument, width)) for argument in kinds} == {int}


# What is refused, in whole lines

WIDTHS_ARE = "there are widths of 32, 64, 128 and 256 bits"
KINDS = (
    "a fingerprint is an int from 0 to 2^{} - 1, {} hexadecimal digits, {} bytes, or an image "
    "hash of {} bits, got {}"
)


def few(text, bits):
    wanted = bits // 4
    reason = (
        f"it has {len(text)} of {wanted} hexadecimal digits: write all {wanted}, or 0x before fewer"
    )
    return f"{text!r} is not a fingerprint: {reason}"


def other(what, bits, width):
    return f"{what}, but the width is {width}: {advice(bits)}"


def unfit(place, shown, bits, width, then):
    return (
        f"the fingerprint at position {place} does not fit: {shown} takes {bits} bits, but the "
        f"width is {width}: {then}"
    )


AT = "the fingerprint at position {}: "


def refused(place, bits, got):
    return AT.format(place) + KINDS.format(bits, bits // 4, bits // 8, bits, got)


def must(bits, given):
    rows = f"uint64 rows of shape (n, {bits // 64})" if bits > 64 else f"a 1-D array of uint{bits}"
    return (
        f"fingerprints of {bits} bits must be {rows}, or uint8 rows of shape (n, {bits // 8}), "
        f"got {given}"
    )


ONE = "one fingerprint? pass row.tobytes(); several? use shape"
REFUSED = [
    *(
        (
            own,
            np.zeros(shape, kind),
            other(
                f"fingerprints of {bits} bits (dtype {np.dtype(kind)}, shape {shape})", bits, own
            ),
        )
        for own, shape, kind, bits in (
            (64, (5, 32), "uint8", 256),
            (64, (5, 4), "uint64", 256),
            (64, (5,), "uint32", 32),
            (64, (5, 4), "uint8", 32),
            (256, (5,), "uint64", 64),
            (128, (5,), "uint32", 32),
            (256, (5,), "|V16", 128),
            (32, (5,), "|S32", 256),
            (256, (5, 64), "bool", 64),
        )
    ),
    *(
        (own, np.zeros(size, np.uint8), f"dtype uint8, shape ({size},): {ONE} (n, {own // 8})")
        for own, size in ((64, 8), (32, 8), (256, 32))
    ),
    (256, np.zeros((5, 31), np.uint8), must(256, "dtype uint8, shape (5, 31)")),
    (64, np.zeros((5, 1), np.uint64), must(64, "dtype uint64, shape (5, 1)")),
    (32, np.zeros(5), must(32, "dtype float64, shape (5,)")),
    (
        128,
        np.zeros((5, 2), np.int64),
        (
            "fingerprints must be unsigned, got dtype int64, shape (5, 2); "
            "to keep the bits of signed integers use array.view(np.uint64)"
        ),
    ),
    (32, np.array([1, 2**40], np.uint64), unfit(1, "1099511627776", 41, 32, advice(64))),
    (64, [1, 2**64], unfit(1, "18446744073709551616", 65, 64, advice(128))),
    (64, [2**256 - 1], unfit(0, f"0x{'f' * 64}", 256, 64, advice(256))),
    (256, [0, 2**300], unfit(1, "it", 301, 256, WIDTHS_ARE)),
    (32, [1, np.uint64(2**32)], unfit(1, "4294967296", 33, 32, advice(64))),
    (256, [b"\0" * 32, -1], refused(1, 256, "int -1")),
    (64, [1, np.int64(-1)], refused(1, 64, "int64 np.int64(-1)")),
    (
        64,
        [b"\0" * 8, b"\0" * 32],
        AT.format(1) + other("a fingerprint of 256 bits (bytes, length 32)", 256, 64),
    ),
    (
        256,
        [b"\0" * 31],
        AT.format(0) + "a fingerprint of 256 bits has 32 bytes, got 31 (bytes, length 31)",
    ),
    (
        64,
        [np.zeros(16, np.uint8)],
        AT.format(0) + other("a fingerprint of 128 bits (dtype uint8, shape (16,))", 128, 64),
    ),
    (128, ["ab"], "the fingerprint at position 0: " + few("ab", 128)),
    (256, [None], refused(0, 256, "NoneType None")),
]


def test_other_widths_are_named_with_the_one_that_is_wanted():
    for bits, values, message in REFUSED:
        with pytest.raises(InputError) as caught:
            check_fingerprints(values, Width(bits))
        assert str(caught.value) == message
        assert bits == 64 or "2^64" not in message


def test_one_fingerprint_of_another_width_is_named():
    odd = Bits(0, 64)
    odd.hash = np.zeros((9, 9), bool)
    for bits, value, message in (
        (
            64,
            2**64,
            other("the fingerprint does not fit: 18446744073709551616 takes 65 bits", 128, 64),
        ),
        (
            32,
            np.uint64(2**40),
            other("the fingerprint does not fit: 1099511627776 takes 41 bits", 64, 32),
        ),
        (64, bytes(32), other("a fingerprint of 256 bits (bytes, length 32)", 256, 64)),
        (256, bytes(5), "a fingerprint of 256 bits has 32 bytes, got 5 (bytes, length 5)"),
        (
            128,
            np.zeros(32, np.uint8),
            other("a fingerprint of 256 bits (dtype uint8, shape (32,))", 256, 128),
        ),
        (256, -1, KINDS.format(256, 64, 32, 256, "int -1")),
        (64, True, KINDS.format(64, 16, 8, 64, "bool True")),
        (64, 1.0, KINDS.format(64, 16, 8, 64, "float 1.0")),
        (64, "ff", few("ff", 64)),
        (
            64,
            odd,
            f"a fingerprint of 81 bits (Bits, shape (9, 9)), but the width is 64: {WIDTHS_ARE}",
        ),
    ):
        with pytest.raises(InputError) as caught:
            check_fingerprint(value, Width(bits))
        assert str(caught.value) == message


def test_masked_bytes_of_one_fingerprint_are_refused():
    """A mask said that there is no value; in its place stood a number of NumPy's."""
    for mask in (True, [True] + [False] * 7):
        row = np.ma.array(np.arange(8), np.uint8, mask=mask)
        for call in (
            lambda r: check_fingerprint(r),
            lambda r: check_fingerprints([r]),
            lambda r: check_fingerprints(r[None]),
        ):
            with pytest.raises(InputError, match="masked"):
                call(row)
    assert check_fingerprint(np.ma.array(np.arange(8), np.uint8)) == 0x0001020304050607


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_digits_of_every_width_are_read_and_written(bits):
    for value in numbers(bits, 20):
        text = Width(bits).text(value)
        assert (len(text), int(text, 16)) == (bits // 4, value)
        for written in (text, text.upper(), "0x" + text, hex(value), f" {text}\n"):
            assert parse_fingerprint(written, width=bits) == value
        assert parse_fingerprint(str(value), True, bits) == value
        assert parse_fingerprint("000" + str(value), True, bits) == value


def test_digits_of_another_width_are_named():
    decimal_needed = "(decimal fingerprints need decimal=True)"
    for bits, text, decimal, reason in (
        (
            64,
            "f" * 64,
            False,
            other("it has 64 hexadecimal digits, a fingerprint of 256 bits", 256, 64),
        ),
        (
            64,
            "0x" + "f" * 32,
            False,
            other("it has 32 hexadecimal digits, a fingerprint of 128 bits", 128, 64),
        ),
        (
            256,
            "f" * 16,
            False,
            other("it has 16 hexadecimal digits, a fingerprint of 64 bits", 64, 256),
        ),
        (
            64,
            "12345678",
            False,
            other("it has 8 hexadecimal digits, a fingerprint of 32 bits", 32, 64)
            + f" {decimal_needed}",
        ),
        (32, "f" * 7, False, "it has 7 of 8 hexadecimal digits: write all 8, or 0x before fewer"),
        (32, "f" * 9, False, "it has 9 hexadecimal digits, but the width is 32: expected 8"),
        (128, "xyz", False, "expected 32 hexadecimal digits, or 0x and 1 to 32"),
        (256, "-1", False, "it is negative"),
        (32, str(2**32), True, other("it takes 33 bits", 64, 32)),
        (64, str(2**255), True, other("it takes 256 bits", 256, 64)),
        (256, str(2**256), True, f"it takes 257 bits, but the width is 256: {WIDTHS_ARE}"),
        (256, "9" * 79, True, f"it has 79 decimal digits, but the width is 256: {WIDTHS_ARE}"),
    ):
        with pytest.raises(InputError) as caught:
            parse_fingerprint(text, decimal, bits)
        assert str(caught.value) == f"{text!r} is not a fingerprint: {reason}"


@pytest.mark.parametrize("bits", [64, full(128), full(256)])
@pytest.mark.parametrize("count", [0, 1, 60])
def test_the_place_of_a_row_is_where_sorting_would_put_it(bits, count):
    """Many rows share their first words, and some are equal."""
    rng = np.random.default_rng(count)
    words = rng.integers(0, 3, (count + 20, bits // 64)).astype(np.uint64)
    rows = words if bits > 64 else words[:, 0]
    part = rows[20:][row_order(rows[20:])]
    known = list(map(int, Width(bits).numbers(part)))
    for row, value in zip(rows[:20], Width(bits).numbers(rows[:20]), strict=True):
        assert row_place(part, row[None]) == sum(item < value for item in known)
        assert row_place(part, row[None], "right") == sum(item <= value for item in known)
