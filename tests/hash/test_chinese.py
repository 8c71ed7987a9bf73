"""Traditional and simplified Chinese as one text, and full width for jieba."""

import json
import sys
from pathlib import Path

import pytest
from commandline import fine
from inputs import json_lines

import fpstore
from fpstore import MinHash, SimHash
from fpstore.errors import InputError, MissingExtraError
from fpstore.hashing import Fields, SimMinHash, TextReader, from_description
from fpstore.work.folder import libraries

SIMPLIFIED = "计算机软件的发展很快。头发是汉字。后来的皇后在城里。"
TRADITIONAL = "計算機軟件的發展很快。頭髮是漢字。後來的皇后在城裏。"
WIDE = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in "fpstore 2026 NFKC")


@pytest.fixture
def opencc():
    return pytest.importorskip("opencc")


@pytest.mark.parametrize("kind", [SimHash, MinHash, SimMinHash])
@pytest.mark.parametrize("form", ["simplified", "traditional"])
def test_both_forms_are_one_text(opencc, kind, form):
    plain, hasher = kind(), kind(chinese=form)
    here = SIMPLIFIED if form == "simplified" else TRADITIONAL
    texts = [SIMPLIFIED, TRADITIONAL, f"{TRADITIONAL}\u0301 and Latin"]
    assert plain.features(texts[0]) != plain.features(texts[1])
    assert hasher.features(texts[0]) == hasher.features(texts[1]) == plain.features(here)
    first, second, third = hasher.fingerprints(texts).tolist()
    assert first == second == plain.fingerprints([here]).tolist()[0]
    assert third == plain.fingerprints([f"{here}\u0301 and Latin"]).tolist()[0]
    assert not any(map(hasher.is_empty, texts))
    sets = hasher.feature_sets(texts[:2])
    assert sets.features[: sets.sizes[0]].tolist() == sets.features[sets.sizes[0] :].tolist()


def test_the_words_around_decide_on_traditional_forms(opencc):
    features = SimHash(chinese="traditional", shingle="chars", size=2).features
    assert "頭髮" in features("头发")
    assert "發展" in features("发展")


def test_fields_and_stop_words(opencc):
    fields = Fields(SimHash(chinese="simplified"), {"a": 2, "b": 1})
    rows = [{"a": SIMPLIFIED, "b": TRADITIONAL}, {"a": TRADITIONAL, "b": SIMPLIFIED}]
    first, second = fields.fingerprints(rows).tolist()
    assert first == second
    hasher = SimHash(chinese="simplified", stop_words=["發"])
    assert set(hasher.features(SIMPLIFIED)) == {"发"} == set(hasher.features(TRADITIONAL))


def test_other_characters_pass(opencc):
    odd = ["", "a\0b", "\ud800漢\udfff", "漢\0漢", "é" * 9, "\U0002f800漢"]
    expected = ["", "a\0b", "\ud800汉\udfff", "汉\0汉", "é" * 9]
    hasher, plain = SimHash(chinese="simplified"), SimHash()
    for text, converted in zip(odd, expected, strict=False):
        assert hasher.features(text) == plain.features(converted)
    known = [True, True, True, True, True, True]
    assert hasher.fingerprints(odd[1:], empty="mask")[1].tolist() == known[1:]


def test_descriptions(opencc):
    hasher = MinHash(chinese="simplified")
    assert hasher.parameters["chinese"] == "simplified"
    assert from_description(json.loads(json.dumps(hasher.describe()))) == hasher
    assert "chinese" not in MinHash().parameters  # so stores from before are the same
    assert from_description(MinHash().describe()) == MinHash()
    assert hasher.describe() != MinHash().describe()
    assert "opencc" in libraries({"fingerprinter": hasher.describe()})
    assert "opencc" not in libraries({"fingerprinter": MinHash().describe()})


def test_a_store_remembers_it(opencc, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text(json_lines([{"text": SIMPLIFIED}]))
    Path("b.jsonl").write_text(json_lines([{"text": TRADITIONAL}]))
    words = ("--text-field", "text", "--no-progress")
    fine("build", "a.fps", "a.jsonl", *words, "--chinese", "simplified", "-q")
    out = fine("probe", "a.fps", "--input", "b.jsonl", *words, "--radius", 0)
    assert len(out.splitlines()) == 1
    counts = [
        json.loads(fine("dedup", "a.jsonl", "b.jsonl", "c", *words, "--json", *more))["kept"]
        for more in (("--chinese", "simplified"), ("--force",))
    ]
    assert counts == [1, 2]


def test_what_is_refused(monkeypatch):
    with pytest.raises(InputError, match="chinese must be one of keep, simplified, traditional"):
        SimHash(chinese="old")
    with pytest.raises(InputError, match="chinese has no effect on a tokenizer that is a function"):
        SimHash(chinese="simplified", tokenizer=str.split)
    fpstore.hashing.chinese.chinese_converter.cache_clear()
    monkeypatch.setitem(sys.modules, "opencc", None)
    with pytest.raises(MissingExtraError, match="needs the package opencc: pip install opencc"):
        SimHash(chinese="simplified")


def test_jieba_cuts_full_width_as_half_width(tmp_path):
    pytest.importorskip("jieba")
    hasher = SimHash(tokenizer="jieba")
    plain = "fpstore 2026 NFKC 是一个文本去重工具"
    wide = f"{WIDE} 是一个文本去重工具"
    assert wide != plain
    assert hasher.features(wide) == hasher.features(plain)
    assert "fpstore" in hasher.features(plain)
    assert hasher.features("文本\u200b去重\xad工具") == hasher.features("文本去重工具")


def test_jieba_with_both_forms(opencc):
    pytest.importorskip("jieba")
    hasher = SimHash(tokenizer="jieba", chinese="simplified")
    assert hasher.features(TRADITIONAL) == hasher.features(SIMPLIFIED)
    assert hasher.features(TRADITIONAL) == SimHash(tokenizer="jieba").features(SIMPLIFIED)


def test_readers_convert(opencc, tmp_path):
    (tmp_path / "a.jsonl").write_text(json_lines([{"t": SIMPLIFIED}, {"t": TRADITIONAL}]))
    (chunk,) = TextReader(tmp_path / "a.jsonl", SimHash(chinese="simplified"), text="t")
    assert len(set(chunk.fingerprints.tolist())) == 1
