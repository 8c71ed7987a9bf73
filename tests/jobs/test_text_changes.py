"""Changes of texts are the same everywhere, change something, and no more than they say."""

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fpstore import _kernel
from fpstore.calibration.text_changes import CHANGES as NAMES
from fpstore.calibration.text_changes import Material, TextChange, sentences
from fpstore.errors import InputError

CHANGES = [*map(TextChange.parse, NAMES)]
ENGLISH = " ".join(
    f"On 2023-04-{day:02} the ship number {day * 7} left harbour {name}, and nobody saw it before "
    "May."
    for day, name in enumerate(
        ("Alpha", "Bravo", "Delta", "Hotel", "Kilo", "Lima", "Oscar", "Romeo", "Tango"), 1
    )
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
POEM = "\n".join(
    f"line {name} of a poem"
    for name in ("one", "two", "three", "four", "five", "six", "seven", "eight")
)
OTHERS = [
    (
        "Some entirely different words stand here. They make another document! Do they? Certainly "
        "they do."
    ),
    "\u8fd9\u662f\u53e6\u5916\u4e00\u7bc7\u6587\u7ae0\u3002\u5b83\u6ca1\u6709\u8bf4\u8239\u3002",
]
TEXTS = [ENGLISH, CHINESE, THAI, POEM, *OTHERS]
MATERIAL = Material(TEXTS)
NOT_APPLICABLE = {("numbers", 1), ("numbers", 2), ("numbers", 3), ("drop", 2)}
ONE = {kind: 1 if kind in ("words", "drop") else 0.3 for kind in [*TextChange.kinds]}


def copy_of(kind, amount, place, seed=0):
    return TextChange(kind, amount).copy(MATERIAL, place, seed)


def test_a_copy_differs_and_is_the_same_again():
    for kind, place in itertools.product([*TextChange.kinds], range(4)):
        copy = copy_of(kind, ONE[kind], place)
        assert (copy is None) == ((kind, place) in NOT_APPLICABLE), (kind, place)
        if copy is not None:
            assert copy != TEXTS[place]
            assert copy == copy_of(kind, ONE[kind], place)
            # A large text has more than one copy; the ends that are cut are always the same.
            assert (
                kind == "truncate"
                or len({copy_of(kind, ONE[kind], place, seed) for seed in range(8)}) > 1
            )
    assert TextChange("boilerplate", 0.5).copy(Material([ENGLISH]), 0) is None  # of other documents
    # too few words for two changes
    material = Material(["one two three four five six seven", *OTHERS])
    assert [TextChange("words", count).copy(material, 0) is None for count in (1, 2)] == [
        False,
        True,
    ]


def test_copies_are_the_same_on_every_machine():
    """Their digests, once computed, stay: other random numbers would change all measurements."""
    copies = [change.copy(MATERIAL, place, 7) or "" for change in CHANGES for place in range(4)]
    assert _kernel.xxh64("\0".join(copies).encode()) == PINNED


PINNED = 997315754737703540


def test_sentences_are_dropped():
    for place in (0, 1, 3):
        text = TEXTS[place]
        parts = [text[a:b] for a, b in sentences(text)]
        assert ("".join(parts), len(parts)) == (text, 8 if place == 3 else 9)
        dropped = copy_of("drop", 1, place)
        assert dropped in {"".join(parts[:i] + parts[i + 1 :]) for i in range(len(parts))}


def test_the_rest_of_a_text_stays():
    for place, text in enumerate(TEXTS[:4]):
        head, foot = copy_of("boilerplate", 0.2, place).split(text)
        length, others = (
            max(1, round(0.1 * len(text))),
            [other for other in TEXTS if other is not text],
        )
        assert any(head == other[:length] + "\n" for other in others)
        assert any(foot == "\n" + other[-length:] for other in others)
        shorter = copy_of("truncate", 0.2, place)
        assert (text.startswith(shorter), len(shorter)) == (
            True,
            len(text) - round(0.2 * len(text)),
        )
        copy = copy_of("numbers", 0.5, place)
        assert copy is None or re.sub("[0-9]", "0", copy) == re.sub("[0-9]", "0", text)


CHARACTERS = st.characters(codec=None) | st.sampled_from(
    "a1 .\n\u4e00\u3002\u0e01\ud800\u0301\u00df\u0130"
)


@settings(max_examples=100)
@given(
    st.lists(st.text(CHARACTERS, max_size=60), min_size=1, max_size=4),
    st.sampled_from([*TextChange.kinds]),
    st.sampled_from([0.01, 0.5, 1, 3]),
    st.integers(0, 3),
)
def test_any_text_is_changed_or_left_out(texts, kind, amount, seed):
    amount = min(amount, 1) if kind in ("numbers", "boilerplate", "truncate") else amount
    for place, text in enumerate(texts):
        copy = TextChange(kind, amount).copy(Material(texts), place, seed)
        assert copy is None or (copy not in ("", text) and not copy.isspace())


def test_sentences_of_hostile_texts_are_found_in_linear_time():
    for text in ("." * 200_000, "\n" * 200_000, "! " * 100_000, '."' * 100_000, "\u3002" * 200_000):
        assert sentences(text) == []
        assert sentences(text + "a")[-1][1] == len(text) + 1


def test_changes_are_read_named_and_refused():
    names = ["words=2", "typos=0.01", "numbers=1", "truncate=0.125", "drop=123456789", *NAMES]
    assert [TextChange.parse(name).name for name in names] == names
    for text, message in (
        ("", "one of typos, words"),
        ("typo=1", "one of typos, words"),
        ("words", "whole number"),
        ("words=0", "whole number"),
        ("words=-1", "whole number"),
        ("words=1.5", "whole number"),
        ("words=nan", "whole number"),
        ("words=1e9", "whole number"),
        ("numbers=2", "a share"),
        ("truncate=0", "a share"),
        ("boilerplate=x", "a share"),
        ("words=" + "9" * 400, "whole number"),
        ("words 2", "one of typos, words"),
        ("typos=1%", "a share below 1"),
    ):
        with pytest.raises(InputError, match=message):
            TextChange.parse(text)
