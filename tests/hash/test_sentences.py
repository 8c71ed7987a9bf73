"""LongestSentences against its description, and fingerprinters that a store describes."""

import json
import pickle
import re
import unicodedata

import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from simhash_oracle import DEFAULTS, is_ignored

from fpstore.errors import FormatVersionError, InputError, MissingExtraError, one_line
from fpstore.hashing import Fingerprinter, LongestSentences, MinHash, SimHash, from_description
from fpstore.hashing.registry import readable_description

PAGE = "\u9996\u9875\u3000\u65b0\u95fb\u3002{}\u7248\u6743\u6240\u6709\uff01"
STORY = (
    "\u4e00\u53ea\u72d0\u72f8\u770b\u89c1\u4e4c\u9e26\u53fc\u7740\u5976\u916a\u3002"
    "\u5b83\u8d70\u5230\u6811\u4e0b\uff0c\u5f00\u59cb\u5938\u5956\u4e4c\u9e26\u3002"
    "\u4e4c\u9e26\u5f20\u5f00\u4e86\u5634\u3002"
)
CHARACTERS = st.one_of(
    st.sampled_from("ab A.!?\n\u3002\uff0c\u4e2d\u0301"), st.characters(codec="utf-8")
)


def described(text, n):
    """Return the signature that the docstring describes."""
    text = "".join(char for char in text if not is_ignored(char))
    sentences = re.split(
        "[!?;\n\v\f\r\x85\u2028\u2029\u2026\u3002\uff01\uff1b\uff1f]|\\.(?=\\s|$)", text
    )
    forms = set()
    for sentence in sentences:
        folded = unicodedata.normalize("NFKC", sentence).casefold()
        forms.add(
            "".join(c for c in folded if re.match(r"\w", c) or unicodedata.category(c)[0] == "M")
        )
    forms.discard("")
    if not forms:
        return "".join(unicodedata.normalize("NFKC", text).casefold().split())
    return "\n".join(sorted(sorted(forms), key=len, reverse=True)[:n])


@given(st.text(CHARACTERS, max_size=60), st.integers(1, 4))
def test_equals_its_description(text, n):
    longest = LongestSentences(n=n)
    wanted = described(text, n)
    assert longest.is_empty(text) == (not wanted)
    if wanted:
        assert longest.fingerprint(text) == xxhash.xxh64_intdigest(wanted.encode())


def test_copy_in_another_frame_is_found_and_another_text_is_not():
    longest = LongestSentences()
    copies = (STORY, PAGE.format(STORY), STORY.replace("\uff0c", " , "))
    assert len(set(map(longest.fingerprint, copies))) == 1
    assert longest.fingerprint(STORY) != longest.fingerprint(
        STORY.replace("\u72d0\u72f8", "\u72fc")
    )
    assert longest.fingerprint("a b. c d. e f") == longest.fingerprint("e f. c d. a b. a b.")


def test_pinned():
    assert LongestSentences().fingerprint(STORY) == 0x2D21A26FE6186FAE
    assert LongestSentences(n=2).sentences("ccc! bbb! aaa! dd!") == ["aaa", "bbb"]
    longest = LongestSentences(n=2, width=128, seed=5)
    assert from_description(longest.describe()) == longest
    assert (
        LongestSentences(n=1, width=128, seed=3).fingerprint("one. two words")
        == 0x34086DBF49D8C98EAFC0C8916C317362
    )


def test_empty_texts_and_wrong_arguments():
    longest = LongestSentences()
    fingerprints, known = longest.fingerprints(["\u200b", "a", ""], empty="mask")
    assert (fingerprints[[0, 2]].tolist(), known.tolist()) == ([0, 0], [False, True, False])
    with pytest.raises(InputError, match=r"item 1: .* is blank"):
        longest.fingerprints(["a", " "])
    with pytest.raises(InputError, match="item 0: expected a text"):
        longest.fingerprints([{"a": 1}])
    for wrong, message in (
        ({"n": 0}, "n must be"),
        ({"width": 8}, "width must be"),
        ({"seed": -1}, "seed must be"),
    ):
        with pytest.raises(InputError, match=message):
            LongestSentences(**wrong)


OTHERS = {
    "shingle": "words",
    "size": 255,
    "weighting": "set",
    "width": 128,
    "hash": "blake2b",
    "seed": 2**64 - 1,
    "normalize": False,
    "case": "keep",
    "hyphens": "join",
    "punctuation": "remove",
    "marks": "punctuation",
    "digits": "zero",
    "spaces": "single",
    "stop_words": ["the", "of"],
    "weights": {"hashes": "AQAAAAAAAAA=", "weights": "BwA=", "other": 9},
    "tokenizer": None,
    "order": "given",
}


@pytest.mark.parametrize(
    "parameters", [DEFAULTS | {"stop_words": [], "weights": None, "tokenizer": None}, OTHERS]
)
def test_description_survives_json_and_rebuilds_the_hasher(parameters):
    simhash = SimHash(**parameters)
    description = json.loads(json.dumps(simhash.describe()))
    assert description == {"name": "simhash", "version": 2, "parameters": parameters}
    assert from_description(description) == simhash
    assert pickle.loads(pickle.dumps(simhash)) == simhash
    assert isinstance(simhash, Fingerprinter)
    assert json.dumps(SimHash(size=np.int64(4), seed=np.uint64(2**64 - 1)).describe())


@pytest.mark.parametrize("fingerprinter", [SimHash(), MinHash()])
def test_an_older_version_advises_to_build_again(fingerprinter):
    """It advised to upgrade fpstore, which is what made the description older."""
    own, kind = fingerprinter.version, f"the hasher {fingerprinter.name!r}"
    with pytest.raises(FormatVersionError) as caught:
        from_description(fingerprinter.describe() | {"version": own - 1})
    older = (
        f"version {own - 1} of {kind} is of an older fpstore, and this one makes {own}: build it "
        "again from its texts"
    )
    assert (str(caught.value), caught.value.expected, caught.value.got) == (older, own, own - 1)
    with pytest.raises(
        FormatVersionError,
        match=f"^unknown version {own + 1} of {kind}: this one makes {own}; upgrade fpstore$",
    ):
        from_description(fingerprinter.describe() | {"version": own + 1})


def test_unknown_names_versions_and_parameters_are_told_apart():
    good = SimHash().describe()
    with pytest.raises(MissingExtraError, match="hasher 'phash' is not installed") as caught:
        from_description({**good, "name": "phash"})
    assert "simhash" in caught.value.expected
    with pytest.raises(FormatVersionError, match="unknown version 3") as caught:
        from_description({**good, "version": 3})
    assert (caught.value.expected, caught.value.got) == (2, 3)
    with pytest.raises(FormatVersionError, match="unknown parameter 'stem'"):
        from_description({**good, "parameters": {**good["parameters"], "stem": True}})
    with pytest.raises(InputError, match="lacks size"):
        from_description(
            {**good, "parameters": {k: v for k, v in good["parameters"].items() if k != "size"}}
        )
    with pytest.raises(InputError, match="size must be a whole number"):
        from_description({**good, "parameters": {**good["parameters"], "size": 0}})
    wrong = ({"name": 1}, {"version": "1"}, {"version": True}, {"parameters": []})
    for description in (
        None,
        "simhash",
        {},
        {"name": "simhash"},
        *({**good, **change} for change in wrong),
    ):
        with pytest.raises(InputError, match="a hasher is described by"):
            from_description(description)


def test_description_with_malformed_parameters_is_shown_as_it_is():
    malformed = {"name": "simhash", "version": 1, "parameters": 7}
    assert readable_description(malformed) == "simhash 1 (7)"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("ca\udcc3\udca9 \u00e9", "ca\\xc3\\xa9 \u00e9"),
        ("\udc80\udcff", "\\x80\\xff"),
        ("\ud800\udc7f", "\\ud800\\udc7f"),
        ("a\tb\n", "a\\tb\\n"),
    ],
)
def test_bytes_of_file_names_are_shown_as_bytes(text, line):
    assert one_line(text) == line
