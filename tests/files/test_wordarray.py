"""Arrays of words in memory and in a file, against NumPy's."""

import numpy as np
import pytest
from building import listing

from fpstore.care.word_array import MARKED, SortedArray, WordArray

COUNT = 3 * MARKED + 17


@pytest.mark.parametrize("room", [0, 800, 1 << 30])
def test_words_that_are_set_and_appended(tmp_path, room):
    words, right = WordArray(tmp_path, room), np.zeros(1000, np.uint64)
    rng = np.random.default_rng(4)
    for number in rng.permutation(400).tolist():
        words[number] = right[number] = int(rng.integers(1, 2**64, dtype=np.uint64))
    right[400:1000] = rng.integers(0, 2**64, 600, np.uint64)
    words.append(right[400:1000])
    assert len(words) == 1000
    assert [words[i] for i in range(1010)] == [*right.tolist(), *[0] * 10]
    assert words.read(390, 2000).tolist() == right[390:].tolist()
    assert words.memory == (8000 if room > 8000 else 0)
    assert listing(tmp_path) == []  # the file has no name
    words.close()
    assert (len(words), words[5], words.read(0, 9).tolist()) == (0, 0, [])


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_a_number_far_behind_the_last(tmp_path, room):
    words = WordArray(tmp_path, room)
    words[5000] = 7
    assert (len(words), words[4999], words[5000]) == (5001, 0, 7)
    assert words.read(4990, 5001).tolist() == [0] * 10 + [7]
    words.close()


@pytest.mark.parametrize("room", [0, 1 << 30])
@pytest.mark.parametrize("step", [1, 999, MARKED, COUNT])
def test_searches_in_sorted_words(tmp_path, room, step):
    values = np.unique(np.random.default_rng(5).integers(0, 2**64, COUNT, np.uint64))
    values[-1] = 2**64 - 1
    words = SortedArray(tmp_path, room)
    assert words.below(2**64 - 1, inclusive=True) == 0
    for start in range(0, len(values), step):
        words.append(values[start : start + step])
    for value in (0, 1, *values[:: MARKED // 2].tolist(), *(values[::MARKED] - np.uint64(1)).tolist(), 2**64 - 1):
        assert words.below(value) == int(np.searchsorted(values, np.uint64(value)))
        assert words.below(value, inclusive=True) == int(np.searchsorted(values, np.uint64(value), "right"))
    words.close()
