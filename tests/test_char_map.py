"""Normal forms of texts, character by character in the kernel, against those of whole texts by Python."""

import itertools
import sys
import threading
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpstore import _kernel
from fpstore.hashing.normal import CharMap, ascii_table, char_map, prepare

HOW = list(itertools.product((True, False), repeat=3))  # words, normalize, casefold
MARKS = "\u0301\u0308\u0323\u3099\uff9e\u0e48\u094d\u1161\u11a8"  # what depends on the character before it
STARTS = "aeo\u00e9\u1ea1\u30cf\uff8a\uac00\u1100\u0915\u212b\ufdfa\u4e2d\uff0c\U0001f600\ud800\u0130\u1e9e\u3000 .G"


def finished(prepared, how):
    """Return texts after the steps that are left for later."""
    bounds = prepared.offsets.tolist()
    return [prepared.data[start:end].translate(ascii_table(how[0], how[2])) for start, end in itertools.pairwise(bounds)]


@pytest.mark.parametrize("how", HOW)
def test_each_character(how):
    """Alone, and in a text of all of its page, which is taken character by character unless one of them depends on others.

    Of the third plane these are the ideographs that have another form; beyond it are tags and private characters, of which a few
    are enough.
    """
    chars = list(map(chr, [*range(0x20000), *range(0x2F800, 0x2FA20), *range(0x2FA20, sys.maxunicode + 1, 251)]))
    pages = ["".join(chars[start : start + 256]) for start in range(0, len(chars), 256)]
    for texts in (chars, pages):
        wanted = [prepare(text, *how).translate(ascii_table(how[0], how[2])) for text in texts]
        assert finished(char_map(*how).prepare(texts), how) == wanted


@given(st.lists(st.text(st.one_of(st.sampled_from(MARKS + STARTS), st.characters(codec=None)), max_size=12), max_size=6))
def test_any_texts(texts):
    for how in HOW:
        wanted = [prepare(text, *how).translate(ascii_table(how[0], how[2])) for text in texts]
        assert finished(char_map(*how).prepare(texts), how) == wanted


def test_what_is_composed_is_left_to_python():
    for text in ("e\u0301", "\u1100\u1161", "\uff8a\uff9e", "a\u0323\u0307"):
        assert char_map(False, True, True).prepare([text]).data == unicodedata.normalize("NFKC", text).encode()


def test_threads_that_meet_new_characters_at_once():
    """Pages are added while other threads read those that are there."""
    chars = CharMap(True, True, True)
    texts = [chr(point) * 3 for point in range(0x80, 0x3000, 7)]
    wanted = [prepare(text, True, True, True) for text in texts]
    found: list[bool] = []

    def work(shift):
        some, of_some = texts[shift:] + texts[:shift], wanted[shift:] + wanted[:shift]
        prepared = [chars.prepare([text]).data for text in some]
        found.append(prepared == of_some)

    threads = [threading.Thread(target=work, args=(shift,)) for shift in (0, 100, 400, 900)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_the_kernel_refuses_what_it_would_read_outside():
    pages, entries = np.full(0x1100, -1, np.int32), np.zeros(256, np.uint32)
    text, offsets = "\u00e9".encode(), np.array([0, 2], np.uint64)
    assert _kernel.normalize_texts(text, offsets, pages, entries, b"")[3].tolist() == [0]
    pages[0] = 0
    assert _kernel.normalize_texts(text, offsets, pages, entries, b"")[0] == text
    entries[0xE9] = 1 << 30 | 1 << 24 | 4
    assert _kernel.normalize_texts(text, offsets, pages, entries, b"abcde")[0] == b"e"
    for wrong, message in (
        ((text, offsets, pages, entries, b"abcd"), "the pool is too short"),
        ((text, offsets, pages, entries[:-1], b"abcde"), "entries are missing"),
        ((text, offsets, pages[:-1], entries, b"abcde"), "a page for each"),
        ((text, offsets[::-1].copy(), pages, entries, b"abcde"), "offsets descend"),
        ((text, offsets + np.uint64(1), pages, entries, b"abcde"), "past the text"),
        ((text, offsets[:0], pages, entries, b"abcde"), "offsets have a start"),
    ):
        with pytest.raises(ValueError, match=message):
            _kernel.normalize_texts(*wrong)
    # Bytes that are no UTF-8: each text ends where it ends.
    for size in range(1, 5):
        cut = "\U0001f600".encode()[:size]
        _kernel.normalize_texts(cut, np.array([0, size], np.uint64), np.zeros(0x1100, np.int32), np.zeros(256, np.uint32), b"")
