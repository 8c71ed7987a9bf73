"""What no reader sees changes nothing: invisible characters, other white space.

Texts of other characters than letters count.
"""

import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import regex
from inputs import json_lines
from simhash_oracle import is_diacritic, is_ignored, normal_form_of

import fpstore
from fpstore import MinHash, SimHash
from fpstore.base import characters
from fpstore.errors import InputError
from fpstore.hashing import Fields, LongestSentences, page_text

SENTENCE = (
    "an honest man walked along the river with his dog while the sun went slowly down behind the "
    "mountains"
)
HASHERS = (
    SimHash(),
    SimHash(shingle="chars", size=4),
    SimHash(normalize=False, punctuation="keep"),
    SimHash(tokenizer="unicode"),
    SimHash(hash="md5"),
    MinHash(),
    MinHash(shingle="chars", size=5, punctuation="remove"),
    LongestSentences(),
)
EVERY = "".join(map(chr, range(0x110000)))
IGNORED = list(
    filter(is_ignored, regex.findall(r"[\p{Default_Ignorable_Code_Point}\p{Cc}]", EVERY))
)
ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"]
BRAILLE, PRIVATE, MORSE = (
    "\u2801\u2803 \u2809\u2819\u2811",
    "\ue001\ue002 \ue003\ue004",
    "... --- ...",
)
SYMBOLS = [BRAILLE, PRIVATE, MORSE, "\U0001f600\U0001f389", "!!!", "$ + %", "\u2500\u2502"]


def hidden(text, char="\xad", every=7):
    """Return a text with a character behind each few letters."""
    return "".join(letter + char * (place % every == 1) for place, letter in enumerate(text))


@pytest.mark.parametrize("hasher", HASHERS, ids=str)
def test_invisible_characters_cut_no_words(hasher):
    wanted = hasher.fingerprint(SENTENCE)
    for char in (*IGNORED[::41], *"\xad\u200b\u200d\u2060\ufeff\ufe0f\x00\x7f\u3164\u2065"):
        assert np.array_equal(hasher.fingerprint(char + hidden(SENTENCE, char)), wanted), hex(
            ord(char)
        )


def test_ignored_characters_are_those_of_unicode():
    assert len(IGNORED) > 4000
    assert characters.visible(EVERY) == EVERY.translate(dict.fromkeys(map(ord, IGNORED)))
    assert all(map(str.isspace, regex.findall(r"\p{White_Space}", EVERY)))


@pytest.mark.parametrize("char", ["\u200d", "\x01", "\u034f"])
def test_marks_behind_an_ignored_character_are_put_in_nfc(char):
    for text in (
        "cafe\u0301s",
        "x\u0316\u0301",
        "x\u0301\u0316",
        "b\u0323\u0307",
        "\u1100\u1161\u11a8",
        "\u0e01\u0e48\u0e38",
    ):
        for hasher in (SimHash(), MinHash(shingle="chars")):
            assert np.array_equal(
                hasher.fingerprint(char.join(text)),
                hasher.fingerprint(unicodedata.normalize("NFC", text)),
            )


def test_invisible_characters_hide_nothing_from_jobs(tmp_path):
    """Six soft hyphens in 18 words: `dedup` removed nothing, `decontaminate` hit nothing."""
    both = pa.table(
        {
            "text": [
                SENTENCE,
                hidden(SENTENCE, every=16),
                "another text of some other words that nobody has read",
            ]
        }
    )
    assert fpstore.dedup(both, text="text").kept.num_rows == 2
    clean = fpstore.decontaminate(both.slice(1), pa.table({"text": [SENTENCE]}), text="text")
    assert clean.benchmarks[0].hit == 1
    pages = pa.table(
        {
            "text": [
                f"Story {n}\n\nAll {'r' + chr(0xAD) * (n % 2)}ights reserved." for n in range(20)
            ]
        }
    )
    assert fpstore.remove_boilerplate(pages, text="text").repeated == 1
    assert MinHash(stop_words=["the"]).features(hidden(SENTENCE)) == MinHash(
        stop_words=["t\xadhe"]
    ).features(SENTENCE)


@pytest.mark.parametrize("extractor", page_text.EXTRACTORS)
def test_main_texts_have_no_invisible_characters(extractor):
    page = (
        "<html><head><title>A "
        "ri&shy;ver</title></head><body><article><p>{}</p></article></body></html>"
    )
    plain, other = (
        page_text.main_texts([page.format(text * 10)], extractor)[0]
        for text in (f"{SENTENCE}. ", f"{hidden(SENTENCE)}. ")
    )
    assert plain == other
    assert plain.startswith("A river")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "blank", ["", " ", "\u00a0", "\u3000\t", "\u2003", "\u200b", "\ufeff ", "\x1c"]
)
def test_blank_lines_of_any_white_space_end_a_paragraph(end, blank):
    pages = pa.table(
        {"text": [f"Story {n}{end}{blank}{end}All rights reserved.{blank}" for n in range(20)]}
    )
    done = fpstore.remove_boilerplate(pages, text="text")
    assert done.table["text"].to_pylist() == [f"Story {n}" for n in range(20)]
    lines = pa.table({"text": [f"Story {n}{end}Share{end}{blank}{end}" for n in range(20)]})
    done = fpstore.remove_boilerplate(lines, text="text", unit="line")
    assert done.table["text"].to_pylist() == [f"Story {n}{end}{blank}{end}" for n in range(20)]


def test_a_paragraph_separator_ends_a_paragraph_alone():
    pages = pa.table({"text": [f"Story {n}\u2029All rights\r\nreserved." for n in range(20)]})
    assert fpstore.remove_boilerplate(pages, text="text").pieces.texts == [
        "All rights\r\nreserved."
    ]


@pytest.mark.parametrize("end", ENDS)
def test_sentences_end_with_lines(end):
    assert LongestSentences(n=9).sentences(f"one two{end}three") == ["onetwo", "three"]


def test_a_text_of_blanks_is_dropped():
    pages = pa.table(
        {
            "text": [
                f"All rights reserved.\n\n{blank}"
                for blank in ["\u00a0", "\u200b", "\ufeff\u3000", ""] * 5
            ]
        }
    )
    assert fpstore.remove_boilerplate(pages, text="text").dropped == 20


@pytest.mark.sampled(9)
@pytest.mark.parametrize("text", SYMBOLS)
@pytest.mark.parametrize("hasher", [*HASHERS, SimHash(tokenizer="jieba", size=1)], ids=str)
def test_texts_without_letters_are_compared(hasher, text):
    others = [other for other in SYMBOLS if other != text]
    assert np.array_equal(hasher.fingerprint(text), hasher.fingerprint(f" {text}\n"))
    known = hasher.fingerprints([text, *others, " \n", "\u200b\u3000", ""], empty="mask")[1]
    assert known.tolist() == [True] * len(SYMBOLS) + [False] * 3
    assert not any(
        np.array_equal(hasher.fingerprint(text), hasher.fingerprint(other)) for other in others
    )


def test_copies_of_texts_without_letters_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [*SYMBOLS, SENTENCE, "", "  ", None]
    for search in ("exact", "bands"):
        result = fpstore.dedup(pa.table({"text": texts * 3}), text="text", search=search)
        assert result.kept["text"].to_pylist() == [*texts[:-3], *["", "  ", None] * 3]
    rows = [{"id": place, "text": text} for place, text in enumerate(SYMBOLS)]
    Path("b.jsonl").write_text(json_lines(rows))
    result = fpstore.decontaminate(pa.table({"text": texts}), "b.jsonl", text="text")
    assert result.kept["text"].to_pylist() == texts[len(SYMBOLS) :]


def test_each_field_without_letters_counts():
    fields = Fields(SimHash(), {"title": 3, "text": 1})
    row = {"title": BRAILLE, "text": "some words"}
    assert fields.fingerprint(row) != fields.fingerprint(row | {"title": PRIVATE})
    assert fields.fingerprint(row) == fields.fingerprint(row | {"title": f" {BRAILLE}"})
    by_md5 = Fields(SimHash(hash="md5"), {"title": 3, "text": 1})
    assert by_md5.fingerprint(row) != by_md5.fingerprint(row | {"title": PRIVATE})


def test_line_without_letters_is_dropped_where_others_have_some():
    """Some of these lines depend on neighbours of characters, and are left to Python."""
    for marks in ("keep", "punctuation"):
        hasher = SimHash(marks=marks, size=2)
        assert hasher.fingerprint("!!!\ncafe\u0301\n\u2801\n???") == hasher.fingerprint("caf\u00e9")
        only = "!!!\n\u0338=\n???"
        assert hasher.features(only) == hasher.features(f"\n{only}\n")
        assert hasher.is_empty(only) is False
        assert hasher.fingerprint(only) == hasher.fingerprint(f"  {only}")


def test_stop_words_find_no_text_without_letters():
    assert SimHash(stop_words=["the"]).is_empty("!!!")
    with pytest.raises(InputError, match="no word is left"):
        SimHash(stop_words=["!!!"])


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m", "cafe cafe naive angstrom"),
        ("\u00f8\u0142", "\u00f8\u0142"),
        ("\u0643\u0650\u062a\u064e\u0640\u0640\u0627\u0628\u064c", "\u0643\u062a\u0627\u0628"),
        ("\u0623\u0622\u0625", "\u0627\u0627\u0627"),
        ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("\u0451\u0439 \u03ac", "\u0435\u0438 \u03b1"),
        (
            "\u0928\u092e\u0938\u094d\u0924\u0947 \u0921\u093c",
            "\u0928\u092e\u0938\u094d\u0924\u0947 \u0921\u093c",
        ),
        ("\u0e01\u0e38\u0e48", "\u0e01 \u0e38 \u0e48"),
        ("\uac00 \u304b\u3099", "\uac00 \u304c"),
    ],
)
def test_diacritics_are_folded_and_vowels_stay(text, form):
    assert normal_form_of(SimHash(marks="fold")).apply(text) == form
    plain = SimHash(marks="fold")
    assert plain.fingerprint(text) == plain.fingerprint(form) == SimHash().fingerprint(form)
    described = fpstore.hashing.from_description(plain.describe())
    assert described == plain
    assert described.fingerprint(text) == plain.fingerprint(text)


def test_folded_marks_are_those_of_their_blocks():
    form = normal_form_of(SimHash(marks="fold", case="keep", shingle="words"))
    marks = set(filter(is_diacritic, regex.findall(r"[\p{M}\u0640]", EVERY)))
    assert not any(map(form.compose, marks))
    others = set(map(chr, range(0x300, 0x20000))) - marks - set(IGNORED)
    assert {char for char in others if not form.compose(char)} <= {
        char for char in others if "\u0640" in unicodedata.normalize("NFKD", char)
    }


def test_folding_needs_the_normal_form():
    with pytest.raises(InputError, match="marks='fold' needs normalize=True"):
        SimHash(marks="fold", normalize=False)


@pytest.mark.parametrize("hyphen", ["-", "\u2010", "\xad"])
@pytest.mark.parametrize("end", ENDS)
def test_words_that_a_line_end_breaks_are_joined(hyphen, end):
    whole, broken = "a small example of it", f"a small exam{hyphen} {end}  ple of it"
    for hasher in (
        SimHash(hyphens="join"),
        SimHash(hyphens="join", tokenizer="unicode"),
        MinHash(hyphens="join", shingle="chars"),
    ):
        assert np.array_equal(hasher.fingerprint(broken), hasher.fingerprint(whole))
    assert SimHash().fingerprint(broken) != SimHash().fingerprint(whole)
    features = MinHash(hyphens="join").feature_sets([whole, broken]).features
    assert np.array_equal(*np.split(features, 2))
    for other in (
        f"Smith{hyphen}{end}Jones",
        f"1{hyphen}{end}a",
        f"a {hyphen}{end}b",
        f"a{hyphen}{end}1",
    ):
        assert SimHash(hyphens="join", size=2).features(other) == SimHash(size=2).features(other)
