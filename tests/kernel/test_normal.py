"""fpstore.hashing.normal: the parts that stand in for unicodedata and str, against them."""

import unicodedata

import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from fpstore.hashing import SimHash, normal

MARKS = st.text(st.sampled_from("\u0301\u0316\u0308\u0344\u0f73\uff9e\u3099\u0338a\u0f71\u1100 \u05b0"), max_size=40)


@settings(deadline=None)
@given(st.one_of(MARKS, st.text(st.characters(exclude_categories=()))))
def test_nfkd_equals_unicodedata(text):
    assert normal._nfkd(text) == unicodedata.normalize("NFKD", text)


@settings(deadline=None)
@given(
    MARKS,
    st.integers(0, 1200),
    st.sampled_from(["\u0316\u0301", "\uff9e\u0316", "\u0f73"]),
    st.integers(265, 500),
)
def test_long_runs_of_marks_are_found_and_normalised_alike(around, offset, pair, count):
    text = "a" * offset + around + pair * count + around
    run = len(pair) * count
    assert normal._has_long_run(text) or run < normal._SAMPLE_STEP + normal._SAMPLE
    assert normal.nfkc(text) == unicodedata.normalize("NFKC", text)


def test_a_hostile_run_of_marks_takes_linear_time():
    # unicodedata.normalize alone takes the square of the length: minutes.
    n = 250_000
    text = "a" + "\u0301\u0316" * n
    assert normal.nfkc(text) == "\u00e1" + "\u0316" * n + "\u0301" * (n - 1)
    a, above, below = (xxhash.xxh64_intdigest(char.encode()) for char in "\u00e1\u0301\u0316")
    assert SimHash(shingle="chars", weighting="count").fingerprint(text) == below & (above | a)
