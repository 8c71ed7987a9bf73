"""The page of a list of removed rows."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from inputs import json_lines

from fpstore.jobs.evidence import RULES
from fpstore.jobs.review import review_page
from fpstore.pages.marks import compare_words

VOID = {"meta", "input", "br"}
EVIL = '</p><script>alert(1)</script><b onclick="x">\u202eevil & "so"'


class Page(HTMLParser):
    """The elements of a page: pairs with their texts, marks, filters and scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.pairs, self.boxes, self.tags, self.text = [], [], [], set(), ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.add(tag)
        assert not any(name.startswith("on") for name in values)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "article":
            names = values["class"].split()
            self.pairs.append({"classes": names[1:], "id": values["id"], "texts": [], "marks": []})
            assert values["tabindex"] == "0"
        if tag == "input":
            self.boxes.append(values["id"])
            assert "checked" in values
        if tag == "p" and "article" in self.open:
            self.pairs[-1]["texts"].append("")
            self.pairs[-1]["marks"].append([])
        if tag == "mark" and "article" in self.open:
            self.pairs[-1]["marks"][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if "p" in self.open and "article" in self.open:
            self.pairs[-1]["texts"][-1] += data
            if "mark" in self.open:
                self.pairs[-1]["marks"][-1][-1] += data


def row(number, text, kept_text, contained=0.9, rule="contained", **other):
    columns = {
        "row": number,
        "id": f"r{number}",
        "shard": "a.jsonl",
        "kept_row": 0,
        "kept": "k",
        "kept_shard": "b.jsonl",
        "cluster": 0,
        "rule": rule,
        "contained": contained,
        "similarity": 0.7,
        "pieces": 10,
        "kept_pieces": 12,
        "text": text,
        "kept_text": kept_text,
    }
    return {**columns, **other}


def page_of(rows, most=500):
    Path("r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text, _ = review_page("r.jsonl", most)
    return Page(text)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_most_doubtful_come_first():
    shares = [0.95, 0.81, 1.0, 0.8, 0.9]
    rows = [row(number, "a", "a", share) for number, share in enumerate(shares)]
    assert order(page_of(rows)) == ["r3", "r1", "r4", "r0", "r2"]
    page = page_of(rows, 2)
    assert order(page) == ["r3", "r1"]
    assert "the 2 most doubtful of 5 rows" in page.text
    # a store has no texts: the estimate counts; equal shares go by similarity, then by rows
    rows = [row(0, "a", "", None, "near", similarity=0.85), row(1, "a", "a", 0.9, similarity=0.8)]
    rows += [row(2, "a", "a", 0.9, similarity=0.6), row(3, "a", "a", 0.9, similarity=0.6)]
    assert order(page_of(rows)) == ["r0", "r2", "r3", "r1"]


def order(page):
    return re.findall(r"Went: (\w+)", page.text)


def test_differing_words_are_marked_on_both_sides():
    page = page_of([row(1, "The old fox, jumps over!", "the brown old fox jumps")])
    (pair,) = page.pairs
    assert pair["texts"] == ["The old fox, jumps over!", "the brown old fox jumps"]
    assert pair["marks"] == [["over!"], ["brown"]]


def test_words_of_scripts_without_spaces_are_their_characters():
    spans, kept_spans = compare_words("我们去北京看书", "我们去上海看书")
    assert [span.text for span in spans if span.differs] == ["北京"]
    assert [span.text for span in kept_spans if span.differs] == ["上海"]


def test_words_behind_the_end_of_the_other_excerpt_are_not_marked():
    spans, kept_spans = compare_words("a b c d e…", "a b c d")
    assert [span.text for span in spans if span.differs] == ["e…"]
    spans, kept_spans = compare_words("a b c…", "a b c d e…")
    assert not any(span.differs for span in [*spans, *kept_spans])
    spans, kept_spans = compare_words("a b c d e", "a b c…")
    assert not any(span.differs for span in [*spans, *kept_spans])
    spans, kept_spans = compare_words("x b c…", "a b c d")
    assert [span.text for span in spans if span.differs] == ["x"]
    assert [span.text for span in kept_spans if span.differs] == ["a"]


def test_frequent_words_are_compared_like_others():
    words = "the cat and the dog " * 100
    spans, kept_spans = compare_words(words, f"a bird {words}")
    assert not any(span.differs for span in spans)
    assert [span.text for span in kept_spans if span.differs] == ["a bird"]


def test_texts_are_whole_whatever_differs():
    for text, other in (("", "a b"), ("a  b", "a  b"), ("a, b c", "x, y c"), ("- a", "a -")):
        spans, others = compare_words(text, other)
        assert "".join(span.text for span in spans) == text
        assert "".join(span.text for span in others) == other


def test_of_a_very_long_text_the_beginning_is_shown():
    words = " ".join(map(str, range(5000)))
    spans, _ = compare_words(words, words)
    assert spans[0].text.split() == [str(number) for number in range(2000)]
    assert spans[-1].text == "…"


def test_nothing_of_a_list_becomes_a_part_of_the_page():
    page = page_of([row(1, EVIL, "k", id=EVIL, shard=EVIL, kept=EVIL, rule="no rule")])
    assert not page.tags & {"script", "b\u202e", "img", "link", "iframe"}
    assert "</p><script>alert(1)</script>" in page.pairs[0]["texts"][0]
    text, _ = review_page("r.jsonl", 9)
    assert "\u202e" not in text
    assert "default-src 'none'" in text
    assert "http" not in re.sub(r"http-equiv", "", text)


def test_each_rule_has_a_box_and_a_fact():
    rows = [row(number, "a", "a", rule=rule) for number, rule in enumerate([*RULES, "no rule"])]
    page = page_of(rows)
    assert page.boxes == [*(f"rule-{rule}" for rule in RULES), "rule-estimate"]
    assert [pair["classes"][0] for pair in page.pairs] == page.boxes
    assert "The same key" in page.text


def test_boxes_choose_rules_and_sources():
    rows = [row(0, "a", "a"), row(1, "a", "a", 1.0, "equal", shard="b.jsonl")]
    page = page_of(rows)
    assert page.boxes == ["rule-equal", "rule-contained", "source-0", "source-1"]
    assert [pair["classes"] for pair in page.pairs] == [
        ["rule-contained", "source-0", "panel"],
        ["rule-equal", "source-1", "panel"],
    ]
    text, _ = review_page("r.jsonl", 9)
    for box in page.boxes:
        assert f"body:has(#{box}:not(:checked)) .{box} {{ display: none; }}" in text
    assert page_of(rows[:1]).boxes == []  # with nothing to choose from


def test_sources_of_a_column_come_before_files_and_rare_ones_are_joined():
    rows = [row(0, "a", "a", source="wiki"), row(1, "a", "a", source="web")]
    assert [pair["classes"][1] for pair in page_of(rows).pairs] == ["source-1", "source-0"]
    rows = [row(n, "a", "a", shard=f"{max(n, 2)}.jsonl") for n in range(40)]
    page = page_of(rows)
    assert len(page.boxes) == 25
    assert page.boxes[-1] == "source-other"
    assert [pair["classes"][1] for pair in page.pairs].count("source-other") == 14


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "parquet", "jsonl.gz"])
def test_all_formats_and_both_kinds_of_lists(suffix):
    story = " ".join(f"word{number}" for number in range(60))
    table = pa.table({"text": [story, f"{story} and more", "other"]})
    pq.write_table(table, "c.parquet")
    for options, name in (((), "contained"), (("--estimate",), "estimate")):
        fine(
            *("dedup", "c.parquet", "out.parquet", "--text-field", "text", "--force", "--quiet"),
            *("--removed", f"r.{suffix}", "--excerpts-of", "60", *options),
        )
        out = fine("review", f"r.{suffix}", "--force")
        assert out.startswith("r.html: 1 pair")
        page = Page(Path("r.html").read_text())
        assert page.pairs[0]["classes"][0] == f"rule-{name}"
        if name == "contained":
            assert page.pairs[0]["marks"] == [[], ["and more"]]
            assert "contained 100.0%" in " ".join(page.text.split())


def test_a_list_without_rows_and_files_that_are_no_lists():
    assert "The list has no rows." in page_of([]).text
    Path("empty.tsv").write_text("row\tkept\ttext\tkept_text\n")
    assert "no rows" in fine_page("empty.tsv")
    Path("plain.tsv").write_text("row\tkept\n1\t2\n")
    Path("other.csv").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"row": [1], "kept": [1]}), "plain.parquet")
    for name, message in (
        ("plain.tsv", "plain.tsv: has no texts: fpstore dedup --removed FILE --excerpts-of 400"),
        ("plain.parquet", "plain.parquet: has no texts"),
        ("other.csv", "other.csv: is no list of removed rows: it has no row"),
    ):
        assert message in failure("review", name)
    assert not Path("plain.html").exists()


def test_damaged_lists_are_refused_by_file_and_line():
    good = json_lines([{"row": 0, "kept": 1, "text": "a", "kept_text": "b"}])
    Path("short.csv").write_text("row,kept,text,kept_text\n1,2,3,4\n5,6\n")
    Path("long.csv").write_text("row,kept,text,kept_text\n5,6,7,8,9\n")
    Path("cut.jsonl").write_text(good + '{"row": 1, "kept": "')
    Path("other.jsonl").write_text(good + "[1]\n")
    Path("later.jsonl").write_text(good + '{"id": 1}\n')
    Path("lists").mkdir()
    for name, message in (
        ("short.csv", "short.csv:3: has 2 cells, the header has 4"),
        ("long.csv", "long.csv:2: has 5 cells, the header has 4"),
        ("cut.jsonl", "cut.jsonl:2: not valid JSON"),
        ("other.jsonl", "other.jsonl:2: expected a JSON object, got [1]"),
        ("later.jsonl", "later.jsonl: is no list of removed rows: it has no row"),
    ):
        assert message in failure("review", name)
    for name in ("lists", ".", "/"):
        assert "is a folder: name a list" in failure("review", name, code=2)


def test_numbers_that_are_not_finite_are_left_out():
    record = {"row": 0, "kept": 1, "text": "a", "kept_text": "b", "distance": 1e999}
    Path("r.jsonl").write_text(json_lines([record | {"pieces": 1e999}]))
    assert "inf" not in Page(fine_page("r.jsonl")).text


def fine_page(name):
    fine("review", name, "page.html", "--force", "--quiet")
    return Path("page.html").read_text()


def test_the_page_is_a_new_file():
    page_of([row(1, "a", "a")])
    assert fine("review", "r.jsonl", "--quiet") == ""
    assert "r.html exists: --force replaces it" in failure("review", "r.jsonl")
    assert "the page is a file on a disk" in failure("review", "r.jsonl", "page.txt", code=2)
    assert "the second argument" in failure("review", "r.jsonl", "-o", "page.html", code=2)
    assert "from 1 to 100000" in failure("review", "r.jsonl", "--pairs", "0", code=2)
