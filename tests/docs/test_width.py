"""The widths of fingerprints: rows of words, and what they stand for."""

import random

import numpy as np
import pytest

from fpstore.base.width import WIDTHS, Width, check_width, comparable, place_of, rows_like, words_of
from fpstore.errors import InputError


def numbers(bits: int, count: int = 200) -> list[int]:
    rng = random.Random(bits)
    return [*(rng.getrandbits(bits) for _ in range(count)), 0, 1, 2**bits - 1, 2 ** (bits - 1)]


@pytest.mark.parametrize("bits", WIDTHS)
def test_rows_stand_for_their_numbers(bits: int) -> None:
    width, values = check_width(bits), numbers(bits)
    rows = width.rows(values)
    assert rows.shape == ((len(values),) if bits <= 64 else (len(values), bits // 64))
    assert width.numbers(rows) == values
    assert [int(text, 16) for text in width.texts(rows)] == values
    assert {len(text) for text in width.texts(rows)} == {bits // 4}
    assert width.texts(rows) == [width.text(value) for value in values]
    assert [width.outer(width.inner(value)) for value in values] == values
    assert [width.numbers(width.row(value)) for value in values] == [[value] for value in values]


@pytest.mark.parametrize("bits", WIDTHS)
def test_bytes_are_big_endian(bits: int) -> None:
    width, values = Width(bits), numbers(bits)
    data = width.to_bytes(width.rows(values))
    assert [int.from_bytes(row.tobytes(), "big") for row in data] == values
    np.testing.assert_array_equal(width.from_bytes(data), width.rows(values))
    assert width.row(1 << (bits - 1)).reshape(-1).tolist() == [1 << 63] + [0] * (width.words - 1)  # bit 0 is the highest


@pytest.mark.parametrize("bits", WIDTHS)
def test_rows_are_in_the_order_of_their_numbers(bits: int) -> None:
    width, values = Width(bits), sorted(numbers(bits))
    rows = width.rows(values)
    shuffled = rows[np.random.default_rng(1).permutation(len(rows))]
    np.testing.assert_array_equal(shuffled[np.argsort(comparable(shuffled))], rows)
    for place in (0, 1, 100, len(values) - 1):
        assert place_of(rows, width.row(values[place])) == place
        assert place_of(rows, width.row(values[place]), "right") == place + 1


@pytest.mark.parametrize("bits", WIDTHS)
def test_users_get_the_types_of_their_width(bits: int) -> None:
    width = Width(bits)
    rows = width.rows(numbers(bits))
    outside = width.outside(rows)
    expected = {32: ("uint32", ()), 64: ("uint64", ()), 128: ("uint8", (16,)), 256: ("uint8", (32,))}[bits]
    assert (outside.dtype.name, outside.shape[1:]) == expected
    assert rows_like(rows, 3).shape == (3, *rows.shape[1:])
    assert words_of(rows) == width.words


def test_there_are_four_widths() -> None:
    for value in (0, 16, 63, 65, 512, -64, 64.0, "64", True, None):
        with pytest.raises(InputError, match="width must be one of 32, 64, 128, 256, got"):
            check_width(value)
