"""Changes of texts: they are the same everywhere, really change something, and change no more than they say."""

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import crossed

from fpstore import _kernel
from fpstore.calibration.perturbations import CHANGES, KINDS, MOST_CHANGED, Material, TextChange, parse_change, sentences, words
from fpstore.calibration.seeded import Draws
from fpstore.errors import InputError

ENGLISH = " ".join(
    f"On 2023-04-{day:02} the ship number {day * 7} left harbour {name}, and nobody saw it before May."
    for day, name in enumerate(("Alpha", "Bravo", "Delta", "Hotel", "Kilo", "Lima", "Oscar", "Romeo", "Tango"), 1)
)
CHINESE = "".join(
    f"\u4e8c\u3007\u4e8c{n}\u5e74\u4e09\u6708\uff0c\u8239\u53ea{c}\u79bb\u5f00\u4e86\u6e2f\u53e3\uff0c\u65e0\u4eba\u77e5\u6653\u3002"
    for n, c in zip(
        "\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d",
        "\u7532\u4e59\u4e19\u4e01\u620a\u5df1\u5e9a\u8f9b\u58ec",
        strict=True,
    )
)
THAI = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 " * 12
POEM = "\n".join(f"line {name} of a poem" for name in ("one", "two", "three", "four", "five", "six", "seven", "eight"))
OTHERS = [
    "Some entirely different words stand here. They make another document! Do they? Certainly they do.",
    "\u8fd9\u662f\u53e6\u5916\u4e00\u7bc7\u6587\u7ae0\u3002\u5b83\u6ca1\u6709\u8bf4\u8239\u3002",
]
TEXTS = [ENGLISH, CHINESE, THAI, POEM, *OTHERS]
MATERIAL = Material(TEXTS)
NOT_APPLICABLE = {
    ("numbers", 2), ("numbers", 3), ("case", 1), ("case", 2), ("spaces", 1), ("punctuation", 2), ("punctuation", 3),
    *((kind, 2) for kind in ("drop", "swap", "repeat")),
}  # fmt: skip
ONE = {kind: 1 if kind in ("words", "drop", "swap", "repeat") else 0.3 for kind in KINDS}


def copy_of(kind, amount, place, seed=0):
    return TextChange(kind, amount).copy(MATERIAL, place, seed)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_differs_and_is_the_same_again(kind, place):
    copy = copy_of(kind, ONE[kind], place)
    if (kind, place) in NOT_APPLICABLE:
        assert copy is None
        return
    assert copy not in (None, TEXTS[place])
    assert copy == copy_of(kind, ONE[kind], place)
    # A large text has more than one copy; the ends that are cut are always the same.
    assert kind == "truncate" or len({copy_of(kind, ONE[kind], place, seed) for seed in range(8)}) > 1


def test_copies_are_the_same_on_every_machine():
    """Their digests, once computed, stay: other random numbers would change all measurements."""
    copies = [change.copy(MATERIAL, place, 7) or "" for change in CHANGES for place in range(4)]
    assert _kernel.xxh64("\0".join(copies).encode()) == PINNED


PINNED = 17129195186837011691


def test_draws_are_those_of_splitmix64():
    draws = Draws("any")
    draws._state = 1234567
    assert [draws.word() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert Draws(1, "a").word() == Draws("1", "a").word() != Draws(1, "b").word()


@pytest.mark.parametrize(("end", "count"), [(0, 3), (1, 1), (5, 5), (5, 9), (100, 7), (1000, 999)])
def test_places_are_distinct_and_ascending(end, count):
    found = Draws(end, count).places(end, count)
    assert found == sorted(set(found))
    assert len(found) == min(end, count)
    assert all(0 <= place < end for place in found)


def test_all_places_are_drawn():
    draws = Draws(5)
    seen = Counter(place for _ in range(3000) for place in draws.places(10, 3))
    assert set(seen) == set(range(10))
    assert all(750 < times < 1050 for times in seen.values())


def edits(a, b):
    """Return the Levenshtein distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@pytest.mark.parametrize(("place", "amount"), crossed(range(4), [0.01, 0.1, 1, 5]))
def test_typos_are_bounded(amount, place):
    text = TEXTS[place]
    letters = sum(map(str.isalnum, text))
    count = amount if amount >= 1 else max(1, round(amount * letters))
    for seed in range(3):
        copy = copy_of("typos", amount, place, seed)
        assert 1 <= edits(text, copy) <= 2 * count  # exchanged characters count twice


@pytest.mark.parametrize("count", [1, 2, 5])
def test_so_many_words_are_changed(count):
    for place, seed in ((0, 0), (0, 1), (1, 0), (2, 0)):
        copy, text = copy_of("words", count, place, seed), TEXTS[place]
        old, new = ([part[a:b] for a, b in words(part)] for part in (text, copy))
        if place == 0:
            assert sum(a != b for a, b in zip(old, new, strict=True)) == count
        assert 1 <= edits(text, copy) <= count * 30


def test_too_few_words_are_not_changed():
    text = "one two three four five six seven"
    material = Material([text, *OTHERS])
    assert TextChange("words", 1).copy(material, 0) is not None
    assert TextChange("words", 2).copy(material, 0) is None
    assert len(words(text)) < 2 * MOST_CHANGED


@pytest.mark.parametrize("place", [0, 1, 3])
def test_sentences_are_dropped_exchanged_and_repeated(place):
    text = TEXTS[place]
    parts = [text[a:b] for a, b in sentences(text)]
    assert "".join(parts) == text
    assert len(parts) == (8 if place == 3 else 9)
    for seed in range(5):
        dropped, swapped, repeated = (copy_of(kind, 1, place, seed) for kind in ("drop", "swap", "repeat"))
        assert dropped in {"".join(parts[:i] + parts[i + 1 :]) for i in range(len(parts))}
        changed = [i for i in range(len(parts)) if swapped == "".join([*parts[:i], *parts[i : i + 2][::-1], *parts[i + 2 :]])]
        assert len(changed) == 1
        assert repeated in {"".join([*parts[: i + 1], *parts[i:]]) for i in range(len(parts))}


@pytest.mark.parametrize("place", [0, 1])
def test_only_numbers_are_changed(place):
    text, copy = TEXTS[place], copy_of("numbers", 1, place)
    number = r"[0-9]|May|January|February|March|April|June|July|August|September|October|November|December"
    number += r"|[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u3007]"
    assert re.sub(number, "#", copy) == re.sub(number, "#", text)
    dates = re.findall(r"(\d{4})-(\d\d)-(\d\d)", copy)
    assert len(dates) == (9 if place == 0 else 0)
    assert all(1 <= int(month) <= 12 and 1 <= int(day) <= 28 for _, month, day in dates)
    assert not {part for part in re.findall(r"\d+", text) if part != "2023"} & set(re.findall(r"number (\d+)", copy))
    assert "2023-04-01" not in copy
    assert "\u4e09\u6708" not in copy


@pytest.mark.parametrize("place", range(4))
def test_the_rest_of_a_text_stays(place):
    text = TEXTS[place]
    framed = copy_of("boilerplate", 0.2, place)
    assert text in framed
    head, foot = framed.split(text)
    length = max(1, round(0.1 * len(text)))
    others = [other for other in TEXTS if other is not text]
    assert any(head == other[:length] + "\n" for other in others)
    assert any(foot == "\n" + other[-length:] for other in others)
    shorter = copy_of("truncate", 0.2, place)
    assert text.startswith(shorter)
    assert len(shorter) == len(text) - round(0.2 * len(text))
    for kind, same in (
        ("case", str.casefold),
        ("punctuation", lambda one: re.sub(r"[^\w\s]", "", one)),
        ("spaces", str.split),
    ):
        copy = copy_of(kind, 0.5, place)
        assert copy is None or same(copy) == same(text), kind


def test_a_share_of_all_things_is_changed():
    assert sum(a != b for a, b in zip(ENGLISH.split(), copy_of("case", 0.5, 0).split(), strict=True)) > 40
    assert copy_of("spaces", 0.99, 0).count(" ") < ENGLISH.count(" ")


def test_one_document_has_no_boilerplate_of_others():
    assert TextChange("boilerplate", 0.5).copy(Material([ENGLISH]), 0) is None


CHARACTERS = st.characters(codec=None) | st.sampled_from("a1 .\n\u4e00\u3002\u0e01\ud800\u0301\u00df\u0130")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.text(CHARACTERS, max_size=60), min_size=1, max_size=4),
    st.sampled_from(KINDS),
    st.sampled_from([0.01, 0.5, 1, 3]),
    st.integers(0, 3),
)
def test_any_text_is_changed_or_left_out(texts, kind, amount, seed):
    amount = min(amount, 1) if kind in ("numbers", "boilerplate", "truncate") else amount
    for place, text in enumerate(texts):
        copy = TextChange(kind, amount).copy(Material(texts), place, seed)
        assert copy is None or (copy not in ("", text) and not copy.isspace())


@pytest.mark.parametrize("text", ["." * 200_000, "\n" * 200_000, "! " * 100_000, '."' * 100_000, "\u3002" * 200_000])
def test_sentences_of_hostile_texts_are_found_in_linear_time(text):
    assert sentences(text) == []
    assert sentences(text + "a")[-1][1] == len(text) + 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("words=2", "words 2"),
        ("typos=0.01", "typos 1%"),
        ("typos=3", "typos 3"),
        ("numbers=1", "numbers 100%"),
        ("truncate=0.125", "truncate 12.5%"),
    ],
)
def test_changes_are_read_and_named(text, name):
    assert parse_change(text).name == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "one of typos, words"), ("typo=1", "one of typos, words"), ("words", "whole number"), ("words=0", "whole number"),
        ("words=-1", "whole number"), ("words=1.5", "whole number"), ("words=nan", "whole number"), ("words=1e9", "whole number"),
        ("numbers=2", "a share"), ("truncate=0", "a share"), ("boilerplate=x", "a share"), ("words=" + "9" * 400, "whole number"),
    ],
)  # fmt: skip
def test_wrong_changes_are_refused(text, told):
    with pytest.raises(InputError, match=told):
        parse_change(text)
