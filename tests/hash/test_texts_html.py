"""Pages of HTML: titles and main texts, in files, folders and columns."""

import json
import re
import sys
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from commandline import failure, fine, run
from inputs import json_lines
from small_plans import plan_build, plan_dedup, plan_lsh, plan_probe

import fpstore
from fpstore import ImageHash, SimHash
from fpstore.calibration import calibrate
from fpstore.calibration import texts as calibration_texts
from fpstore.calibration.rates import Rate
from fpstore.errors import InputError, MissingExtraError
from fpstore.hashing import (
    DocumentReader,
    MainText,
    TextReader,
    from_description,
    iter_documents,
    page_text,
)
from fpstore.hashing.page_text import EXTRACTORS, main_texts, page_texts, whole_text

SENTENCES = "".join(
    f"The {number} foxes jump over the lazy dogs of the village near the river. "
    for number in range(30)
)


def menu_of(name):
    items = "".join(f"<li><a href=/{name}{i}>{name} item {i}</a></li>" for i in range(30))
    return f"<nav><ul>{items}</ul></nav>"


MENUS = [menu_of("red"), menu_of("blue")]


def page(menu, title="Foxes and dogs", text=SENTENCES, more=""):
    return (
        f"<!DOCTYPE html><html><head>{more}<title>{title}</title><script>var x = "
        f"1;</script></head><body>{menu}"
        f"<article><h1>News of today</h1><p>{text}</p></article><footer>Imprint and "
        "contact</footer></body></html>"
    )


EMPTY = "<html><head><title>Nothing</title></head><body></body></html>"


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_the_title_and_the_main_text_count(extractor):
    first, second, other, empty, none = main_texts(
        [page(MENUS[0]), page(MENUS[1]), page("", "Cats"), EMPTY, ""], extractor
    )
    assert first == second
    assert first.startswith("Foxes and dogs\n")
    assert SENTENCES.strip() in first
    assert not any(left_out in first for left_out in ("item", "var x", "Imprint", "<"))
    assert other == first.replace("Foxes and dogs", "Cats", 1)
    assert (empty, none) == ("", "")
    deep = "<div>" * 3000 + "deep" + "</div>" * 3000
    broken = [
        "<p",
        "<html><body><p>" + SENTENCES,
        deep,
        "\x00\x01",
        "<?xml version='1.0' encoding='x'?><a/>",
        "]]>",
        "\ud800",
    ]
    assert SENTENCES.strip() in main_texts(broken, extractor)[1]


def list_page(number):
    """Return a page of a list, of which both packages take the menu, and not the items."""
    menu = " ".join(
        f'<a href="/{name}">{name}</a>'
        for name in ("red", "green", "blue", "white", "black", "Imprint") * 4
    )
    items = "".join(
        f'<li><a href="/{i}">item w{number * 7919 + i} of the shop v{number * 31 + i}</a></li>'
        for i in range(30)
    )
    return (
        f"<html><head><title>List</title></head><body><div><p>{menu}</p></div>"
        f"<div id=content><h1>List</h1><ul>{items}</ul></div>"
        "<div><p>imprint and contact</p></div></body></html>"
    )


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_pages_of_a_list_whose_items_are_lost_stay_apart(extractor):
    texts = page_texts([list_page(number) for number in range(8)], extractor)
    assert [text.is_whole for text in texts] == [True] * 8
    assert "w7919" in texts[1].text
    assert not any(word in texts[1].text for word in ("green", "Imprint", "var x", "<"))
    fingerprinter = MainText(SimHash(width=256), extractor)
    rows = [fingerprinter.fingerprint(list_page(number)) for number in range(8)]
    assert min((a ^ b).bit_count() for a, b in combinations(rows, 2)) > 40
    assert not page_texts([page(MENUS[0])], extractor)[0].is_whole


def test_calibration_compares_pages_by_all_their_words(monkeypatch):
    # What the fingerprints are made of is the same menu for all pages.
    monkeypatch.setattr(
        calibration_texts,
        "main_texts",
        lambda pages, extractor: [page.text for page in page_texts(pages, extractor, 0)],
    )
    table = pa.table({"text": [list_page(number) for number in range(12)]})
    setting = {"settings": ["size=1,radius=0"], "changes": ["words=1"], "threads": 1}
    (suggestion,) = calibrate(table, text="text", html="resiliparse", **setting).suggestions
    assert (suggestion.removed, suggestion.wrong, suggestion.fits) == (
        Rate(11, 12),
        Rate(11, 11),
        False,
    )


def test_the_whole_text_of_a_page_has_no_menus():
    links = [f'<a href="/{n}">{n}</a>' for n in ("home", "news", "sports", "contact")]
    menus = (
        f"<ul>{''.join(f'<li>{link}</li>' for link in links)}</ul>",
        f"<div><p>{' | '.join(links)}</p></div>",
        f"<table><tr>{''.join(f'<td>{link}</td>' for link in links)}</tr></table>",
        f"<nav>{links[0]}</nav>",
        f'<div role="navigation">{links[0]} and more</div>',
        '<div class="t-navbar"><a href="/">the home of all the sports</a></div>',
    )
    for menu in menus:
        assert (
            whole_text(f"<html><body>{menu}<p>One <a href=/x>word</a> of text.</p></body></html>")
            == "One word of text."
        ), menu
    assert whole_text("<html><body class=nav><ul><li>a b</li></ul></body></html>") == "a b"
    assert [whole_text(text) for text in ("", "]]>", "<frameset></frameset>")] == ["", "]]>", ""]
    assert whole_text("<div>" * 3000 + "deep" + "</div>" * 3000) in ("deep", "")


@pytest.mark.parametrize("option", ["--html", "--html-fast"])
def test_pages_that_are_compared_by_all_words_are_counted(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    name = "resiliparse" if option == "--html-fast" else "trafilatura"
    rows = [{"url": number, "page": list_page(number)} for number in range(3)] + [
        {"url": 9, "page": page(MENUS[0])}
    ]
    Path("p.jsonl").write_text(json_lines(rows))
    Path("site").mkdir()
    for row in rows:
        Path(f"site/{row['url']}.html").write_text(row["page"])
    message = (
        "fpstore: 3 pages compared by all words outside of menus: their main texts have few of "
        "these words\n"
    )
    assert run("build", "r.fps", "p.jsonl", "--text-field", "page", option).stderr == message
    assert run("build", "f.fps", "site", "--text", option).stderr == message
    way = f"--html={name}"
    assert run("dedup", "p.jsonl", "c.jsonl", "--text-field", "page", way).stderr == message
    assert (
        run("probe", "r.fps", "--input", "p.jsonl", "--text-field", "page", "-r", 0).stderr
        == message
    )
    assert (
        message
        in run(
            "lsh", "build", "r.lsh", "p.jsonl", "--text-field", "page", option, "--threshold", 0.5
        ).stderr
    )
    assert message in run("insert", "r.lsh", "p.jsonl", "--text-field", "page").stderr
    benchmark = ("p.jsonl", "b.jsonl", "--text-field", "page", "--benchmark-field", "text")
    Path("b.jsonl").write_text(json.dumps({"text": "words of a benchmark " * 9}) + "\n")
    assert run("decontaminate", *benchmark, option).stderr == message
    reader = TextReader("p.jsonl", SimHash(), text="page", html=name)
    assert (sum(len(chunk.ids) for chunk in reader), reader.whole_pages) == (4, 3)


@pytest.mark.full
@pytest.mark.parametrize("job", ["dedup", "build by rows", "build by prefix", "probe", "lsh"])
def test_plans_count_pages_that_are_compared_by_all_words(tmp_path, monkeypatch, job):
    monkeypatch.chdir(tmp_path)
    for part in range(2):
        pages = [*map(list_page, range(3 * part, 3 * part + 3)), page(MENUS[part])]
        Path(f"p{part}.jsonl").write_text(json_lines({"page": text} for text in pages))
    inputs, texts = ["p0.jsonl", "p1.jsonl"], {"text": "page", "html": True}
    if job == "dedup":
        plan = plan_dedup("plan", inputs, "out", **texts)
    elif job == "lsh":
        plan = plan_lsh("plan", inputs, "out", threshold=0.5, **texts)
    elif job == "probe":
        first = plan_build("first", inputs, "s.fps", fingerprinter=SimHash(), **texts)
        first.run_all(1)
        first.finish()
        plan = plan_probe("plan", "s.fps", inputs, "out", text="page", radius=0)
    else:
        by = job.removeprefix("build by ")
        plan = plan_build("plan", inputs, "out", by=by, fingerprinter=SimHash(), **texts)
    plan.run_all(1)
    assert plan.finish()["whole_pages"] == 6


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("site").mkdir()
    Path("site/a.html").write_text(page(MENUS[0]))
    Path("site/b.htm").write_text(page(MENUS[1]))
    Path("site/empty.html").write_text(EMPTY)
    rows = [
        {"url": "a", "page": page(MENUS[0])},
        {"url": "e", "page": EMPTY},
        {"url": "b", "page": page(MENUS[1])},
    ]
    Path("p.jsonl").write_text(json_lines(rows))
    return tmp_path


def test_every_verb_takes_pages(site):
    done = run("build", "s.fps", "site", "--text", "--html")
    assert (done.exit_code, done.stderr) == (
        0,
        "fpstore: 1 file left out, no main text: site/empty.html\n",
    )
    with fpstore.open("s.fps") as store:
        assert list(store) == [SimHash().fingerprint(main_texts([page("")])[0])]
    fields = ("--text-field", "page", "--id-field", "url")
    done = run("insert", "s.fps", "p.jsonl", *fields, "-q")
    assert done.exit_code == 0
    done = run("probe", "s.fps", "--input", "p.jsonl", *fields, "-r", 0, "--json")
    assert done.stderr == "fpstore: 1 row left out, no main text: row 1\n"
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["row"], row["query_id"], row["matches"][0]["ids"]) for row in rows] == [
        (0, "a", ["site/a.html", "site/b.htm", "a", "b"]),
        (2, "b", ["site/a.html", "site/b.htm", "a", "b"]),
    ]
    assert len(fine("probe", "s.fps", "site/a.html", "-r", 0).splitlines()) == 4
    lines = fine("hash", "p.jsonl", "--text-field", "page", "--html", "-q").splitlines()
    assert [line.split("\t")[1] for line in lines] == ["0", "2"]
    assert (
        fine("hash", "--text", "-", "--html", stdin=page("")).split("\t")[0]
        == lines[0].split("\t")[0]
    )
    assert "no main text" in failure("hash", "--text", "-", "--html", stdin=EMPTY)


def test_a_store_of_pages_remembers_that_its_texts_are_pages(site):
    other = page(
        "",
        "Cats",
        "The cat of the house sleeps on a warm stove while it rains outside all day. " * 30,
    )
    Path("new.html").write_text(other)
    assert run("build", "s.fps", "site", "--text", "--html", "-q").exit_code == 0
    expected = MainText(SimHash())
    with fpstore.open("s.fps") as store:
        assert from_description(store.fingerprinter) == expected
    assert run("insert", "s.fps", "new.html", "-q").exit_code == 0
    assert (
        run(
            "insert", "s.fps", "p.jsonl", "--text-field", "page", "--id-field", "url", "-q"
        ).exit_code
        == 0
    )
    with fpstore.open("s.fps") as store:
        pages = [page(MENUS[0]), other]
        assert sorted(store) == sorted(expected.fingerprints(pages).tolist())
        assert store.ids["new.html"] == [expected.fingerprint(pages[1])]
    for verb in ("probe", "scan", "nearest"):
        radius = "--max-radius" if verb == "nearest" else "--radius"
        (line,) = fine(verb, "s.fps", "new.html", radius, 0).splitlines()
        assert line.endswith("\tnew.html")
        assert len(fine(verb, "s.fps", "-", radius, 0, stdin=page(MENUS[1])).splitlines()) == 4
        rows = fine(
            verb, "s.fps", "--input", "p.jsonl", "--text-field", "page", radius, 0, "--quiet"
        )
        assert rows == ""
        assert "--html: the store knows what it was made of" in failure(
            verb, "s.fps", "site", "--html", code=2
        )
    assert "main-text 2 (fingerprinter=simhash 2 (shingle=auto" in fine("stats", "s.fps")
    assert run("report", "s.fps", "--output", "r.html", "--files-in", ".", "-q").exit_code == 0
    shown = Path("r.html").read_text()
    assert "main-text 2 (fingerprinter=simhash 2" in shown
    # of each page the main text, without tags
    (text,) = set(re.findall(r'<p class="text"><bdi>(Foxes[^<]*)', shown))
    assert text.startswith("Foxes and dogs")
    assert "The 3 foxes jump" in text
    assert "has changed since" not in shown


def test_store_of_pages_remembers_its_main_text_extractor(site):
    assert run("build", "s.fps", "site", "--text", "--html-fast", "-q").exit_code == 0
    expected = MainText(SimHash(), "resiliparse")
    with fpstore.open("s.fps") as store:
        assert from_description(store.fingerprinter) == expected
        assert list(store) == [expected.fingerprint(page(""))]
    assert len(fine("probe", "s.fps", "site/a.html", "-r", 0).splitlines()) == 2
    assert run("build", "t.fps", "site", "--text", "--html", "-q").exit_code == 0
    assert "made in another way" in failure("absorb", "s.fps", "t.fps")
    assert DocumentReader("site", SimHash(), html="resiliparse").fingerprinter == expected
    assert TextReader("p.jsonl", expected, text="page", html=True).fingerprinter == expected
    with pytest.raises(
        InputError, match="the fingerprinter has the extractor resiliparse: give one of both"
    ):
        TextReader("p.jsonl", expected, text="page", html="trafilatura")
    with pytest.raises(InputError, match="extractor must be one of trafilatura, resiliparse"):
        MainText(SimHash(), "lynx")


def test_pages_that_are_taken_with_their_tags_are_told_once(site):
    tags = "of HTML, taken as plain text with its tags (--html takes the main text)"
    message = f"fpstore: 3 files {tags}: site/a.html, site/b.htm, site/empty.html\n"
    assert run("build", "s.fps", "site", "--text").stderr == message
    assert run("dedup", "site", "clean", "--text", "--html", "no").stderr == message
    assert run("weights", "site", "--text", "--output", "w.json").stderr == message
    assert run("hash", "--text", "site/a.html").stderr == f"fpstore: 1 file {tags}: site/a.html\n"
    assert tags in run("compare", "site/a.html", "site/b.htm").stderr
    assert (
        run("build", "h.fps", "site", "--text", "--html").stderr
        == "fpstore: 1 file left out, no main text: site/empty.html\n"
    )
    Path("new").mkdir()
    Path("new/c.html").write_text(page(""))
    # the store remembers that its texts are pages
    assert fine("insert", "h.fps", "new", "-q") == ""
    assert fine("compare", "site/a.html", "site/b.htm", "--html-fast").startswith("Two texts")


def test_columns_that_look_like_pages_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for texts, output in (
        ([page(MENUS[0]), "\ufeff\n<HTML lang=en>" + SENTENCES, "plain"], True),
        (["plain", "a <html> tag", page(MENUS[0])], False),
    ):
        Path("rows.jsonl").write_text(json_lines({"text": text} for text in texts))
        for verb in (
            ("dedup", "rows.jsonl", "out.jsonl", "--html=no"),
            ("build", "s.fps", "rows.jsonl"),
        ):
            message = run(*verb, "--text-field", "text", "--force").stderr
            assert (
                "look like pages of HTML, and were taken with their tags: --html takes the main "
                "text" in message
            ) == output
            assert "look like" not in run(*verb, "--text-field", "text", "--force", "--html").stderr


def test_readers_give_their_fingerprinter_to_the_store(site):
    inner = SimHash(size=2)
    for reader in (
        DocumentReader("site", inner, html=True),
        DocumentReader("site", MainText(inner)),
        TextReader("p.jsonl", MainText(inner), text="page", html=True),
    ):
        assert reader.fingerprinter == MainText(inner)
        with fpstore.build("s.fps", reader, overwrite=True) as store:
            assert from_description(store.fingerprinter) == MainText(inner)
            assert list(store) == [inner.fingerprint(main_texts([page("")])[0])]
    for wrong in (inner, inner.describe(), MainText(SimHash())):
        with pytest.raises(InputError, match="the reader makes its fingerprints with another one"):
            fpstore.build("t.fps", DocumentReader("site", inner, html=True), fingerprinter=wrong)
    assert not Path("t.fps").exists()
    with fpstore.build(
        "t.fps", DocumentReader("site", inner), fingerprinter=inner.describe()
    ) as store:
        assert store.fingerprinter == inner.describe()


def test_the_fingerprinter_of_pages_takes_one_of_texts():
    hasher = MainText(SimHash(width=128))
    assert hasher.width == 128
    assert hasher.is_empty(EMPTY)
    with pytest.raises(InputError, match="has no main text"):
        hasher.fingerprint(EMPTY)
    with pytest.raises(InputError, match="item 0: expected a text"):
        hasher.fingerprint([("a", 1)])
    for wrong in (hasher, None, ImageHash(), SimHash):
        with pytest.raises(InputError, match="fingerprinter must be one of texts"):
            MainText(wrong)
    nested = {
        "name": "main-text",
        "version": 2,
        "parameters": {**hasher.parameters, "fingerprinter": hasher.describe()},
    }
    with pytest.raises(InputError, match="in another one is one of texts"):
        from_description(nested)
    with pytest.raises(InputError, match="a hasher is described by"):
        from_description({**nested, "parameters": {**hasher.parameters, "fingerprinter": None}})


def test_dedup_compares_main_texts(site):
    pages = ("--text-field", "page", "--html", "--unknown", "drop")
    summary = json.loads(fine("dedup", "p.jsonl", "clean.jsonl", *pages, "--json"))
    assert (summary["kept"], summary["not_compared"], summary["removed"]) == (1, 1, 2)
    assert json.loads(fine("dedup", "site", "clean", "--text", "--html", "--json"))["kept"] == 2
    assert fpstore.dedup("p.jsonl", text="page", html=True, radius=0).kept.tolist() == [0, 1]
    assert fpstore.dedup(
        "p.jsonl", text="page", fingerprinter=MainText(SimHash()), radius=0
    ).kept.tolist() == [0, 1]
    assert fpstore.dedup("p.jsonl", text="page", radius=0).kept.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="html=True is for texts"):
        fpstore.dedup("p.jsonl", fingerprint="url", html=True)
    assert "--html is for files of texts" in failure(
        "dedup", "p.jsonl", "c.jsonl", "--fingerprint-field", "h", "--html", code=2
    )


def test_readers_count_pages_without_a_main_text(site):
    messages = []
    reader = DocumentReader(
        "site",
        SimHash(),
        html=True,
        threads=2,
        on_notice=lambda path, why: messages.append((path.name, why)),
    )
    assert [chunk.ids for chunk in reader] == [["site/a.html", "site/b.htm"]]
    assert (messages, reader.empty) == ([("empty.html", "html")], 1)
    table = pa.table({"page": [EMPTY, None]})
    with pytest.raises(
        InputError, match=r"no text to make a fingerprint of; left out: 2 \(no main text\)"
    ):
        list(TextReader(table, SimHash(), text="page", html=True))
    for wrong in (1, "yes"):
        with pytest.raises(InputError, match="html"):
            TextReader(table, SimHash(), text="page", html=wrong)


def test_pages_say_their_encoding(site):
    for name, codec, words in (
        ("iso-8859-1", "cp1252", "Größe"),
        ("windows-1251", "cp1251", "привет мир"),
        ("Shift_JIS", "shift_jis", "日本語"),
    ):
        Path("x.html").write_bytes(
            page("", more=f'<meta charset="{name}">', text=SENTENCES + words).encode(codec)
        )
        (document,) = iter_documents("x.html")
        assert words in document.text
        assert (document.encoding, document.declared) == (codec, True)


@pytest.mark.parametrize("extractor", EXTRACTORS)
def test_without_the_package_the_message_says_what_to_install(site, monkeypatch, extractor):
    for module in ("trafilatura", "resiliparse.parse.html"):
        monkeypatch.setitem(sys.modules, module, None)
    for make in (
        lambda: DocumentReader("site", SimHash(), html=extractor),
        lambda: TextReader("p.jsonl", SimHash(), text="page", html=extractor),
        lambda: fpstore.dedup("p.jsonl", text="page", html=extractor),
    ):
        with pytest.raises(MissingExtraError, match=f"pip install {extractor}"):
            make()


def test_the_least_share_is_that_of_the_caller():
    """A tool set a constant of the module instead."""
    pages = [list_page(number) for number in range(8)]
    assert any(page.is_whole for page in page_texts(pages, "resiliparse"))
    assert not any(page.is_whole for page in page_texts(pages, "resiliparse", least_share=0))


@pytest.mark.parametrize("start", ["<!--", "<script>", "<style ", "<", "<a "])
def test_what_does_not_end_is_looked_at_once(start):
    """Each start of a tag or comment was looked at up to the end of the page."""
    assert [match.span() for match in page_text.TAGS.finditer(start * 500)] == [
        (0, len(start) * 500)
    ]
    assert page_text.TAGS.sub(" ", f"a<b>c{start * 500}") == "a c "
