"""Pages of HTML among plain texts, which are compared by their texts without tags."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest
from commandline import failure, fine, run
from inputs import json_lines

import fpstore
from fpstore import MinHash, SimHash, _kernel
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError
from fpstore.hashing import Fields, MainText, from_description
from fpstore.hashing.plain_pages import PlainPages, _page_texts, _plain_page, is_page, without_tags
from fpstore.jobs.dedup_job import DedupSpec

FOX = "the quick brown fox jumps over the lazy dog and sleeps under the old apple tree"
PAGE = f"<!DOCTYPE html>\n<html><head><title>A fox</title></head><body><p>{FOX}</p></body></html>"


@pytest.mark.parametrize(
    "text",
    [
        PAGE,
        "<!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'><p>x",
        "\ufeff\u200b \n<HTML lang=en><p>x",
        "<?xml version='1.0'?>\n<!-- saved -->\n<!DOCTYPE html><p>x",
        "<!-- a --> <!-- b -->\n<html>",
        "HTTP/1.1 200 OK\n\n<html lang='en'>\n<head></head><BODY class=x>y",
    ],
)
def test_what_looks_like_a_page(text):
    assert is_page(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        FOX,
        "<p>a paragraph</p>",
        "<!doctype xml><x/>",
        "<htmlx>",
        "a < b and <b>c</b>",
        "the tag <html> begins a page",
        "<body> and then <html>",
        "x" * 1024 + "<html><body>",
        '<?xml version="1.0"?><feed></feed>',
        "<!-- " * 200,
    ],
)
def test_what_does_not_look_like_a_page(text):
    assert not is_page(text)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<p>a<p>b</p>c", "a b c"),
        ("a<script>if (x<y) z()</script >b<STYLE>p{}</style>c", "a b c"),
        ("a<!-- b > --> c <![CDATA[d]]> e <?php f ?> g", "a c e g"),
        ("1 < 2 and 4 > 3 <br/> a<b", "1 < 2 and 4 > 3 a"),
        ("&lt;b&gt; &amp;amp; &#65;&nbsp;&eacute;", "<b> &amp; A \u00e9"),
        ("a<script>b", "a"),
        ("a<!-- b", "a"),
        ("a<div b", "a"),
        ("<scripted>a</scripted>", "a"),
    ],
)
def test_the_text_of_a_page(page, words):
    assert " ".join(without_tags(page).split()) == words


@pytest.mark.parametrize(
    ("digits", "character"),
    [
        ("0" * 5000 + "65", "A"),
        ("65" + "0" * 5000, "\ufffd"),
        ("0" * 5000, "\ufffd"),
        ("1114111", ""),
        ("01114112", "\ufffd"),
        ("100000065", "\ufffd"),
    ],
)
def test_numbers_of_characters_may_be_of_any_length(digits, character):
    for end in (";", "x", ""):
        text = without_tags(f"<html>&#{digits}{end}")
        assert text == f" {character}{end.strip(';')}"
    assert PlainPages(SimHash()).fingerprint(f"<html>{FOX} &#{digits};") is not None


PIECES = [
    *"<>/!?-& ;#xXsp_9a\n\t\x1c\x85\xa0\u1680\u2028\u3000\u00e9\u4e2d\U0001f600",
    *("\u017f", "\u0131", "\u0130", "\u212a"),  # letters of ASCII in another case
    *("<script", "</script", "<style", "</STYLE", "<!--", "-->", "script", "style"),
    *("&amp;", "&amp", "&lt", "&notit;", "&nbsp", "&NotEqualTilde;", "&#", "&CounterClockwise"),
    *("&CounterClockwiseContourIntegral;", "&#39;", "&#x27;", "&#65", "&#x1F600;", "&#13;"),
    *("&#0;", "&#128;", "&#xD800;", "&#1114112;", "&#xfdd0;", "&#1;", "&#xffff;", "&#99999999;"),
]


@pytest.mark.parametrize("odd", [False, True])
def test_the_kernel_makes_pages_plain_as_the_patterns_do(odd):
    rng, regular = random.Random(7), 0
    pieces = PIECES if odd else [piece for piece in PIECES if piece.isascii()]
    for _ in range(4000):
        page = "".join(rng.choices(pieces, k=rng.randrange(14)))
        before = rng.choice(["", "<!-- &"]).encode()
        data, end = before + page.encode() + b"&amp -->", len(before) + len(page.encode())
        found = _page_texts().plain(data, len(before), end)
        plain = without_tags(page)
        regular += found is not None
        assert found in (None, (plain.encode(), len(" ".join(plain.split())))), page
        assert _plain_page(data, len(before), end) == (
            plain.encode(),
            len(" ".join(plain.split())),
        )
    assert regular > 1000


def test_texts_that_may_be_pages_are_found():
    texts = ["<HTML>", "x <!DocType", "< html", "<htm", "", "abc<html", "\u4e2d<html"]
    column = StringColumn.from_strings(texts)
    offsets = np.concatenate([np.zeros(1, np.uint64), column.ends])
    assert _kernel.page_candidates(column.data, offsets, 100).tolist() == [0, 1, 5, 6]
    assert _kernel.page_candidates(column.data, offsets, 7).tolist() == [0]
    assert _kernel.page_candidates(column.data, offsets, 8).tolist() == [0, 5, 6]
    for start, end in [(1, 0), (0, len(column.data) + 1)]:
        with pytest.raises(ValueError, match="past the data"):
            _page_texts().plain(column.data, start, end)


@pytest.mark.parametrize("inner", [MinHash(), SimHash(), MinHash(tokenizer=str.split)])
def test_plain_texts_are_hashed_as_they_are(inner):
    pages = PlainPages(inner)
    texts = [FOX, "a <b>c</b>", PAGE]
    assert pages.fingerprints(texts[:2]).tolist() == inner.fingerprints(texts[:2]).tolist()
    assert pages.fingerprint(PAGE) == inner.fingerprint(f"A fox {FOX}")
    assert pages.hashed(texts).pages.tolist() == [False, False, True]
    sets = pages.feature_sets(texts) if isinstance(inner, MinHash) else None
    assert sets is None or sets.sizes.tolist()[2] == inner.feature_sets([f"A fox {FOX}"]).sizes[0]


def test_columns_of_which_some_are_pages():
    rows = [{"a": PAGE, "b": None}, {"a": FOX, "b": "x"}]
    fields = Fields(MinHash(), {"a": 1, "b": 1})
    pages = PlainPages(fields)
    assert pages.items == "rows"
    assert pages.fingerprint(rows[0]) == fields.fingerprint({"a": f"A fox {FOX}", "b": None})
    assert pages.fingerprint(rows[1]) == fields.fingerprint(rows[1])
    assert from_description(pages.describe()) == pages
    assert from_description(PlainPages(MinHash()).describe()) == PlainPages(MinHash())


def test_what_takes_pages_itself_is_refused():
    for inner in (MainText(MinHash()), PlainPages(MinHash()), "minhash"):
        with pytest.raises(InputError, match="must be one of texts"):
            PlainPages(inner)


def kept(texts, **options):
    result = fpstore.dedup(pa.table({"text": texts}), text="text", **options)
    return result.kept["text"].to_pylist(), result.pages


def test_pages_are_duplicates_of_their_texts():
    longer = f"Yesterday we saw that {FOX}"
    texts = [PAGE, longer, "something else that nobody has copied from anywhere at all so far"]
    assert kept(texts) == (texts[1:], 1)
    assert kept(texts, html="auto") == (texts[1:], 1)
    assert kept([f"{PAGE}{'<b> <i>' * 50}", longer], html=False)[1] == 0
    assert kept(texts, html="resiliparse") == (texts[1:], 0)
    assert kept(texts, method="simhash", radius=30)[1] == 1
    assert kept(texts, search="bands")[1] == 1


def test_tags_make_no_text_longer():
    page = f"<html><body>{FOX}</body></html>"
    assert kept([FOX, page]) == ([FOX], 1)
    assert kept([page, FOX]) == ([page], 1)
    assert kept([page, f"{FOX}!"]) == ([f"{FOX}!"], 1)


def test_pages_of_one_template_with_other_texts_stay():
    """With their tags, their words are nearly the same."""
    head = "".join(f"<meta name='m{n}' content='c{n}'>" for n in range(40))
    template = f"<html><head>{head}</head><body>{{}}"
    texts = [template.format(text) for text in (FOX, "a river runs from the hills to the sea")]
    assert kept(texts) == (texts, 2)
    assert len(kept(texts, html=False)[0]) == 1


def test_pages_without_text_are_not_compared():
    shell = "<html><body><div id=app></div><script>run()</script>"
    assert kept([shell, shell, FOX]) == ([shell, shell, FOX], 0)
    assert kept([shell, shell, FOX], unknown="drop") == ([FOX], 0)
    assert kept([shell, shell, FOX], method="exact") == ([shell, FOX], 0)


def test_a_store_says_how_pages_are_compared(tmp_path):
    path, rows = tmp_path / "s.fps", pa.table({"id": ["a"], "text": [PAGE]})
    options = {"text": "text", "id": "id", "against": path}
    assert fpstore.dedup(rows, **options, add=True).pages == 0
    with fpstore.open(path) as store:
        assert store.fingerprinter["name"] == "minhash"
    assert fpstore.dedup(rows, **options).pages == 0
    result = fpstore.dedup(rows, text="text", against=pa.table({"text": [f"A fox {FOX}"]}))
    assert (result.pages, len(result.kept)) == (1, 0)


@pytest.mark.parametrize("html", ["yes", "tags", 1, None])
def test_other_ways_are_refused(html):
    with pytest.raises(InputError, match="html must be"):
        kept([FOX], html=html)


def test_only_dedup_has_the_way_auto(tmp_path):
    with pytest.raises(InputError, match="html must be one of trafilatura, resiliparse"):
        fpstore.decontaminate(
            pa.table({"text": [FOX]}), pa.table({"text": [FOX]}), text="text", html="auto"
        )
    assert DedupSpec(tmp_path).html == "auto"


def test_the_command_counts_pages(tmp_path):
    path, output = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text(json_lines([{"text": PAGE}, {"text": f"Now {FOX}"}]))
    command = ("dedup", path, output, "--text-field", "text", "--force")
    assert "pages      1  compared without tags" in fine(*command)
    assert json.loads(fine(*command, "--json"))["pages"] == 1
    assert "pages" not in json.loads(fine(*command, "--json", "--html", "no"))
    assert "pages" not in fine(*command, "--html", "resiliparse", "--quiet", "--json")
    yes = run(*command, "--html", "--quiet", "--json")
    assert yes.stdout == run(*command, "--html", "yes", "--quiet", "--json").stdout
    assert yes.exit_code == 0
    path.write_text(json_lines([{"text": PAGE}]))
    noted = run(*command, "--html", "no")
    assert "look like pages of HTML" in noted.stderr


def test_the_command_says_where_html_may_stand(tmp_path):
    assert "write --html behind the paths, or --html yes" in failure(
        "dedup", "--html", "a.jsonl", "b.jsonl", "--text-field", "text", code=2
    )
    assert "--html resiliparse" in failure(
        "dedup", "a", "b", "--text-field", "text", "--html-fast", code=2
    )


def test_files_of_pages_lose_their_tags(tmp_path):
    for name, text in {"a.html": PAGE, "b.txt": f"Now we saw that {FOX}"}.items():
        (tmp_path / "in" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(text)
    command = ("dedup", tmp_path / "in", tmp_path / "out", "--text")
    assert "compared without tags" in fine(*command)
    assert [path.name for path in (tmp_path / "out").rglob("*.*")] == ["b.txt"]
