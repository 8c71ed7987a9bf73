"""Normal forms that the kernel makes by characters, against those of whole texts by Python."""

import sys
import threading
import unicodedata
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from simhash_oracle import AS_THEY_ARE, normal_form_of
from speeds import full

from fpstore import _kernel
from fpstore.base.strings import encoded
from fpstore.hashing import Fields, SimHash, normal
from fpstore.hashing.normal import CharMap, NormalForm

FORMS = [
    NormalForm(
        units=units,
        normalize=normalize,
        case=case,
        punctuation=punctuation,
        marks=marks,
        digits=digits,
        spaces=spaces,
    )
    for units, normalize, case, punctuation, marks, digits, spaces in (
        ("auto", True, "fold", "space", "keep", "keep", "single"),
        ("words", True, "fold", "space", "punctuation", "zero", "single"),
        ("words", False, "lower", "keep", "keep", "keep", "single"),
        ("auto", True, "lower", "remove", "punctuation", "zero", "single"),
        ("chars", True, "fold", "keep", "keep", "keep", "single"),
        ("chars", True, "keep", "space", "keep", "zero", "remove"),
        ("chars", False, "lower", "remove", "punctuation", "keep", "remove"),
        ("auto", True, "fold", "space", "fold", "keep", "single"),
    )
]
# What may depend on the characters before.
MARKS = "\u200d\xad\x01\u0301\u0308\u0323\u3099\uff9e\u0e48\u0e38\u094d\u093c\u1161\u11a8\u0316"
STARTS = (
    "aeo\u00e9\u1ea1\u30cf\uff8a\uac00\u1100\u0915\u212b\ufdfa\u4e2d\uff0c"
    "\U0001f600\ud800\u0130\u1e9e\u3000 .G\u03a3\u0e01\u0663"
)


def simhash_of(form):
    return SimHash(
        shingle=form.units,
        size=1 if form.units == "chars" else 2,
        normalize=form.normalize,
        case=form.case,
        punctuation=form.punctuation,
        marks=form.marks,
        digits=form.digits,
        spaces=form.spaces,
    )


def in_one_call(simhash, texts, tables):
    return simhash._kernel_rows(simhash._kernel_features(np.ones(1, np.uint32)), texts, tables)


def by_python(simhash, texts):
    """Return fingerprints of texts whose normal forms Python has made."""
    forms = encoded([normal_form_of(simhash).apply(text) for text in texts])
    made = in_one_call(simhash, forms, _kernel.CharTables(*AS_THEY_ARE))
    assert len(made.missing) == len(made.lines) == 0
    return made.rows.tolist(), (made.states == 0).tolist()


def by_kernel(simhash, texts):
    hashed = simhash.hashed(texts)
    return hashed.rows.tolist(), hashed.known.tolist()


def handed_back(text):
    """Return whether the kernel leaves the normal form of a text to Python."""
    simhash = SimHash()
    simhash.hashed([text])  # makes the tables
    made = in_one_call(simhash, encoded([text]), normal.char_map(normal_form_of(simhash)).tables)
    assert len(made.missing) == 0
    assert len(made.lines) == (made.states.tolist() == [2])
    return made.states.tolist() == [2]


def test_which_characters_of_scripts_are_handed_back():
    """As docs/design.md says ("Fingerprints of texts")."""
    hindi, thai = (
        [chr(point) for point in range(start, start + 0x80)] for start in (0x0900, 0x0E00)
    )
    assert [char for char in hindi + thai if handed_back(f"x{char}")] == ["\u093c"]
    assert unicodedata.normalize("NFC", "\u095c") == "\u0921\u093c"
    assert handed_back("\u0921\u093c")
    assert not handed_back("\u095c")
    assert [
        handed_back(text)
        for text in ("e\u0301", "\u00e9", "\u1100\u1161", "\uac00", "\u30cf\u3099", "\u30d0")
    ] == [True, False] * 3
    assert handed_back("\u0e01\u0e48\u0e38")  # a tone mark before a vowel below: not in order
    assert not handed_back("\u0e01\u0e38\u0e48")


def is_plain(char):
    """Return whether a character has one form under all options.

    An ideograph, a letter without case, nothing assigned.
    """
    return unicodedata.category(char) in ("Lo", "Cn", "Co") and {
        unicodedata.normalize("NFKD", char),
        char.casefold(),
    } == {char}


@pytest.mark.full
@pytest.mark.parametrize(
    ("form", "every"),
    [
        (FORMS[0], 17),
        *((form, 83) for form in FORMS[1:]),
        *(pytest.param(form, 1, marks=pytest.mark.slow) for form in FORMS),
    ],
)
def test_each_character(form, every):
    """Each alone, and in a text of all of its page.

    The kernel takes the text by characters, unless one of them depends on others.
    Of the third plane these are the ideographs that have another form; beyond it are tags and
    private characters, of which a few are enough. The default run has a part of them, another part
    for each form; of characters that no option changes, fewer.
    """
    chars = list(
        map(
            chr,
            [*range(0x20000), *range(0x2F800, 0x2FA20), *range(0x2FA20, sys.maxunicode + 1, 251)],
        )
    )
    plain = every if every == 1 else 11 * every
    chars = [
        char
        for place, char in enumerate(chars)
        if place % plain == FORMS.index(form)
        or (place % every == FORMS.index(form) and not is_plain(char))
        or every == 1
    ]
    pages = ["".join(chars[start : start + 256]) for start in range(0, len(chars), 256)]
    simhash = simhash_of(form)
    for texts in (chars, pages):
        assert by_kernel(simhash, texts) == by_python(simhash, texts)


@pytest.mark.full
@settings(max_examples=50)
@given(
    st.lists(
        st.text(st.one_of(st.sampled_from(MARKS + STARTS), st.characters(codec=None)), max_size=12),
        max_size=6,
    )
)
def test_any_texts(texts):
    for form in FORMS:
        simhash = simhash_of(form)
        assert by_kernel(simhash, texts) == by_python(simhash, texts)


@settings(max_examples=50)
@given(
    st.lists(
        st.lists(
            st.sampled_from(
                ["", "a b", "\u4e2d", "e\u0301", "x\u0301 \u1100\u1161", " \u0301", "\u0323"]
            )
        ),
        max_size=6,
    )
)
def test_lines_of_which_some_depend_on_neighbours(texts):
    for form in FORMS[:5]:
        simhash = simhash_of(form)
        joined = ["\n".join(lines) for lines in texts]
        assert by_kernel(simhash, joined) == by_python(simhash, joined)


def test_only_lines_that_depend_on_neighbours_are_left_to_python():
    simhash, lines = SimHash(), []

    class Noting(NormalForm):
        def translated(self, line):
            lines.append(line)
            return super().translated(line)

    chars = CharMap(Noting(**vars(normal_form_of(simhash))))
    text = "one\n\u4e2de\u0301\n\nthree\r\nfour e\u0301"
    texts = [text, "a\u0301", "b", "c\n\u0301\n"]
    chars.hashed(texts, partial(in_one_call, simhash))  # makes the tables
    lines.clear()
    rows, known = chars.hashed(texts, partial(in_one_call, simhash))
    assert (rows.tolist(), known.tolist()) == by_kernel(simhash, texts)
    assert lines == ["\u4e2de\u0301", "four e\u0301", "a\u0301", "\u0301"]


def test_fields_of_which_one_depends_on_neighbours():
    simhash = SimHash(shingle="words", size=1)
    rows = [["e\u0301", "b\nc"], ["a", "b"], ["a\u0301\nd", "e\u0301"]]
    composed = [[unicodedata.normalize("NFC", text) for text in row] for row in rows]
    weights = {"title": 3, "text": 1}

    def made(given):
        return (
            Fields(simhash, weights)
            .hashed([dict(zip(weights, row, strict=True)) for row in given])
            .rows.tolist()
        )

    assert made(rows) == made(composed)


@pytest.mark.parametrize("sigma", ["\u03a3", "\u03f9", "\U0001d6ba", "\U0001d7a4"])
def test_capital_sigma_of_any_kind_is_lowered_by_its_neighbours(sigma):
    """NFKC makes capital sigmas of others, which become a final sigma at the end of a word."""
    for shingle in ("auto", "chars"):
        simhash = SimHash(shingle=shingle, case="lower")
        texts = [f"\u03bf{sigma}", f"\u03bf{sigma} b", f"{sigma}\u03bf", sigma]
        assert by_kernel(simhash, texts) == by_python(simhash, texts)


def test_the_form_says_what_a_text_becomes():
    def of(text, **given):
        return normal_form_of(SimHash(**given)).apply(text)

    assert (
        of("  The QUICK \u2460 \u4e2d\u6587\uff01 caf\u00e9s")
        == "the quick 1 \u4e2d \u6587 caf\u00e9s"
    )
    assert of("a-b  c", punctuation="remove") == "ab c"
    assert of("a-b  c", punctuation="keep", shingle="words") == "a-b c"
    assert of("5 May 1987, \u0665", digits="zero") == "0 may 0000 0"
    assert of("a b\u3000c.", shingle="chars", spaces="remove", punctuation="keep") == "abc."
    hindi = "\u0928\u092e\u0938\u094d\u0924\u0947"
    assert of(hindi) == of(hindi, shingle="words") == hindi
    assert of(hindi, marks="punctuation") == "\u0928\u092e\u0938 \u0924"
    assert of("\u039f\u03a3 \u0130", case="lower") == "\u03bf\u03c2 i\u0307"


def test_scripts_without_spaces_by_the_names_of_their_characters():
    unspaced = (
        "CJK UNIFIED",
        "CJK COMPAT",
        "HIRAGANA",
        "KATAKANA",
        "THAI",
        "LAO",
        "TIBETAN",
        "MYANMAR",
        "KHMER",
        "BOPOMOFO",
    )
    spaced = (
        "LATIN",
        "GREEK",
        "CYRILLIC",
        "ARABIC",
        "HEBREW",
        "DEVANAGARI",
        "HANGUL SYLLABLE",
        "ETHIOPIC",
        "MONGOLIAN",
        "TAMIL",
    )
    for point in [*range(0x3400), *range(0x3400, 0x32000, 7)]:
        char = chr(point)
        name = unicodedata.name(char, "")
        if name.startswith(unspaced) and char.isalpha():
            assert normal.is_unspaced(char), name
        if name.startswith(spaced):
            assert not normal.is_unspaced(char), name


SAMPLE_PAGES = (
    *(
        0x00,
        0x01,
        0x03,
        0x06,
        0x09,
        0x0D,
        0x11,
        0x1F,
        0x20,
        0x30,
        0x4D,
        0x4E,
        0xAC,
        0xD7,
        0xD8,
        0xE0,
    ),
    *(0xF9, 0xFE, 0xFF, 0x110, 0x113, 0x16D, 0x1D1, 0x1D4, 0x1D7, 0x2F8, 0xE01, 0x10FF),
)


@pytest.mark.parametrize(
    ("form", "pages"),
    [
        *((form, SAMPLE_PAGES) for form in FORMS),
        *(full(form, range(0x1100)) for form in FORMS),
    ],
)
def test_pages_are_made_as_each_character_alone(form, pages):
    """Characters of one kind, and pages of one kind, are made together."""
    chars, pool = CharMap(form), bytearray()
    chars._add_pages([*pages])
    columns = chars.columns
    for page in pages:
        wanted = []
        for char in map(chr, range(page * 256, page * 256 + 256)):
            composed = form.compose(char)
            first = unicodedata.normalize("NFKD", char)[0]
            wanted.append(chars._entry(char, composed, form.fold(composed), first, pool))
        assert columns.entries[columns.pages[page] * 256 :][:256].tolist() == wanted, hex(page)
    assert columns.pool == pool


def test_characters_that_may_be_composed_with_the_one_before():
    pairs = (unicodedata.decomposition(char).split() for char in map(chr, range(0x110000)))
    seconds = {chr(int(pair[1], 16)) for pair in pairs if len(pair) == 2 and pair[0][0] != "<"}
    syllables = (unicodedata.normalize("NFD", chr(point)) for point in range(0xAC00, 0xD7A4))
    assert normal._second_characters() == seconds.union(*(parts[1:] for parts in syllables))


def test_only_rows_with_new_characters_are_made_again():
    simhash = SimHash()
    texts = ["a", "\u4e2d", "b", "e\u0301", "c"]
    calls = []

    def noting(batch, tables):
        calls.append(batch.data)
        return in_one_call(simhash, batch, tables)

    chars = CharMap(normal_form_of(simhash))
    rows, known = chars.hashed(texts, noting)
    assert (rows.tolist(), known.tolist()) == by_kernel(simhash, texts)
    assert calls == [
        "a\u4e2dbe\u0301c".encode(),
        "\u4e2de\u0301".encode(),  # with the pages that were missing
        b"\xff\xc3\xa9\xff",
    ]


def test_sets_of_rows_with_new_characters():
    """A row of several fields, of which one has them, is made again as a whole."""
    simhash = SimHash(shingle="words", size=1)
    work = simhash._kernel_features(np.ones(2, np.uint32)).hashes
    rows = [["a b", "c"], ["d", "e\u0301 \u4e2d"], ["\u0915 f", ""], ["g", "a"]]
    features, described = CharMap(normal_form_of(simhash)).sets(
        [text for row in rows for text in row], work, 2
    )
    ends = described[:, 0].tolist()
    assert [features[start:end].tolist() for start, end in pairwise([0, *ends])] == [
        sorted(
            xxhash.xxh64_intdigest(word.encode())
            for word in unicodedata.normalize("NFC", " ".join(row)).split()
        )
        for row in rows
    ]


def test_threads_that_meet_new_characters_at_once():
    """Pages are added while other threads read those that are there."""
    simhash = SimHash(shingle="chars", size=1)
    chars = CharMap(normal_form_of(simhash))
    texts = [chr(point) * 3 for point in range(0x80, 0x3000, 7)]
    wanted = by_python(simhash, texts)[0]
    found: list[bool] = []

    def work(shift):
        rotated, expected = texts[shift:] + texts[:shift], wanted[shift:] + wanted[:shift]
        found.append(
            [chars.hashed([text], partial(in_one_call, simhash))[0].tolist()[0] for text in rotated]
            == expected
        )

    threads = [threading.Thread(target=work, args=(shift,)) for shift in (0, 100, 400, 900)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


def test_the_kernel_refuses_what_it_would_read_outside():
    none, fields = np.empty(0, np.uint64), np.ones(1, np.uint32)
    given = (False, 1, "count", "xxh64", 0, 1, none, np.empty(0, np.uint32), 1, none, fields)
    table, pages, entries = (
        bytes(range(128)),
        np.full(0x1100, -1, np.int32),
        np.zeros(256, np.uint32),
    )
    text, offsets = "\u00e9".encode(), np.array([0, 2], np.uint64)

    def call(table=table, pages=pages, entries=entries, pool=b"abcde"):
        tables = _kernel.CharTables(table, pages, entries, pool)
        return _kernel.TextFeatures(*given).simhash(text, offsets, tables)

    assert call()[2].tolist() == [0]
    pages[0] = 0
    assert call()[0].tolist() == [_kernel.xxh64(text)]
    entries[0xE9] = 4 << 29 | 1 << 23 | 4
    assert call()[0].tolist() == [_kernel.xxh64(b"e")]
    for wrong, message in (
        ({"table": table[:127]}, "a byte for each ASCII"),
        ({"pool": b"abcd"}, "the pool is too short"),
        ({"entries": entries[:-1]}, "entries are missing"),
        ({"pages": pages[:-1]}, "a page for each"),
    ):
        with pytest.raises(ValueError, match=message):
            call(**wrong)


MARKED = st.text(
    st.sampled_from("\u0301\u0316\u0308\u0344\u0f73\uff9e\u3099\u0338a\u0f71\u1100 \u05b0"),
    max_size=40,
)


@given(st.one_of(MARKED, st.text(st.characters(exclude_categories=()))))
def test_nfkd_equals_unicodedata(text):
    for marked in (text, "\u0301" * normal.LONG_RUN + text):  # the second one has a long run
        assert normal.nfkd(marked) == unicodedata.normalize("NFKD", marked)


@given(
    MARKED,
    st.integers(0, 1200),
    st.sampled_from(["\u0316\u0301", "\uff9e\u0316", "\u0f73"]),
    st.integers(265, 500),
)
def test_long_runs_of_marks_are_found_and_normalised_alike(around, offset, pair, count):
    text = "a" * offset + around + pair * count + around
    run = len(pair) * count
    assert normal.has_long_run(text) or run < normal.LONG_RUN
    assert normal.nfkc(text) == unicodedata.normalize("NFKC", text)


def test_a_hostile_run_of_marks_takes_linear_time():
    # unicodedata.normalize alone takes the square of the length: minutes.
    n = 250_000
    text = "a" + "\u0301\u0316" * n
    assert normal.nfkc(text) == "\u00e1" + "\u0316" * n + "\u0301" * (n - 1)
    a, above, below = (xxhash.xxh64_intdigest(char.encode()) for char in "\u00e1\u0301\u0316")
    assert SimHash(shingle="chars", weighting="count").fingerprint(text) == below & (above | a)
