"""Rows of equal texts and of equal keys, which go before near-duplicates are decided."""

import json
import random
from contextlib import chdir
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import fine, run
from inputs import json_lines
from resuming import in_another, killed
from small_plans import plan_dedup, run_all

import fpstore
from fpstore import SimHash
from fpstore.errors import InputError, MissingExtraError
from fpstore.hashing.exact import ExactText, normal_text, text_keys
from fpstore.io import urls
from fpstore.io.keys import hash_keys
from fpstore.io.urls import TRACKING_PARAMETERS, canonical_url
from fpstore.jobs.keys import KINDS, KeyColumn, KeySteps

FOX = "the quick brown fox jumps over the lazy dog and sleeps under the old apple tree"
RIVER = "a river runs from the high hills down to the sea past seven towns and nine mills"


def table(*rows, columns=("url", "text")):
    return pa.table({name: [row[n] for row in rows] for n, name in enumerate(columns)})


def removed(source, **options):
    """Return (row, kept row, rule) of each row that goes."""
    result = fpstore.dedup(source, text="text", **options)
    columns = result.removed.to_arrow().to_pydict()
    return list(zip(columns["row"], columns["kept_row"], columns["rule"], strict=True))


# Equal texts


def test_only_equal_texts_go():
    texts = ["C++ is", "C# is", "C++ is", "!!!", "!!!", "", "", " ", None, None, FOX, FOX.upper()]
    rows = table(*((None, text) for text in texts))
    assert removed(rows, method="exact") == [(2, 0, "exact"), (4, 3, "exact"), (6, 5, "exact")]
    assert fpstore.dedup(rows, text="text", method="exact").not_compared == 2


@pytest.mark.parametrize(
    ("names", "a", "b"),
    [
        ("space", " a\u00a0 b\n", "a b"),
        ("case", "STRASSE \u0130", "stra\u00dfe i\u0307"),
        ("nfc", "e\u0301", "\u00e9"),
        ("nfkc", "\ufb01n \uff21", "fin A"),
        ("case,nfkc", "\u2460\u212b", "1\u00e5"),
        (["nfc", "case"], "\u0390", "\u03aa\u0301"),  # folding one takes it out of its form
    ],
)
def test_texts_are_equal_after_what_is_named(names, a, b):
    rows = table((None, a), (None, b), (None, "other"))
    assert removed(rows, method="exact", normalize=names, keep="first") == [(1, 0, "exact")]
    assert removed(rows, method="exact") == []
    normal = normal_text(a, names.split(",") if isinstance(names, str) else names)
    again = names.split(",") if isinstance(names, str) else names
    assert normal_text(normal, again) == normal


def test_the_longest_of_texts_that_are_alike_stays():
    rows = table((None, "a b"), (None, "a   b"), (None, "a  b"))
    assert removed(rows, method="exact", normalize="space") == [(0, 1, "exact"), (2, 1, "exact")]


def test_rows_of_several_texts_are_compared_column_by_column():
    rows = table(("a", "bc"), ("ab", "c"), ("a", "bc"), (None, "x"), ("", "x"), ("x", None))
    result = fpstore.dedup(rows, text=("url", "text"), method="exact")
    assert result.removed.rows.tolist() == [2]


def test_lone_surrogates_are_characters(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "\\ud800"}\n{"text": "\\ud801"}\n{"text": "\\ud800"}\n')
    assert removed(path, method="exact") == [(2, 0, "exact")]


def test_hashes_of_texts_are_of_the_whole_text():
    keys = text_keys(["", "a", "b", ("a",), ("a", None), (None, "a"), ("", "a")])
    assert len({tuple(key) for key in keys.tolist()}) == 7
    assert keys.any(axis=1).all()
    assert ExactText(("case",)) == ExactText.from_parameters(ExactText(("case",)).parameters)


# Keys


def test_one_row_of_a_key_stays_whatever_the_texts_say():
    rows = table(("a", "short"), ("a", FOX), ("b", RIVER), ("", "x y"), ("", "z y"), ("a", "one"))
    assert removed(rows, key="url") == [(0, 1, "key"), (5, 1, "key")]
    assert removed(rows, key="url", keep="first") == [(1, 0, "key"), (5, 0, "key")]


def test_near_duplicates_are_searched_among_the_rows_that_keys_leave():
    """Row 1 goes by its key, so row 2, which it contains, stays."""
    rows = table(("a", f"{RIVER} {FOX} {FOX} again"), ("a", FOX), ("b", f"{FOX} now"))
    assert removed(rows, key="url") == [(1, 0, "key"), (2, 0, "contained")]
    rows = table(("a", RIVER), ("a", FOX), ("b", FOX))
    assert removed(rows, key="url", keep="first") == [(1, 0, "key")]


def test_a_row_that_stays_for_a_removed_row_is_in_the_output():
    """Row 0 went for row 1 by its key, and row 1 for row 2."""
    rows = table(("a", "few words"), ("a", FOX), ("b", f"{FOX} {RIVER}"))
    assert removed(rows, key="url") == [(0, 2, "key"), (1, 2, "contained")]
    evidence = fpstore.dedup(rows, text="text", key="url").removed.evidence
    assert evidence["contained"].tolist() == [0, 1]


def test_a_row_without_words_is_in_no_other_row():
    """Row 1 stays for row 2, which links it with row 0."""
    rows = table(("b", f"{FOX} {RIVER}"), ("a", ""), ("a", FOX))
    assert removed(rows, key="url", keep="first") == [(2, 1, "key")]


def test_texts_come_before_keys():
    """Row 2 goes for row 0, whose text it has; so no row has its key."""
    rows = table(("a", "one"), ("b", "two"), ("b", "one"))
    assert removed(rows, method="exact", key="url") == [(2, 0, "exact")]
    assert removed(rows, key="url", keep="first") == [(2, 1, "key")]


def test_keys_may_be_integers_and_strings(tmp_path):
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(pa.table({"url": [5, None], "text": [FOX, RIVER]}), files[0])
    pq.write_table(pa.table({"url": ["5", ""], "text": ["x", "y"]}), files[1])
    result = fpstore.dedup(files[0], text="text", key="url", against=files[1])
    assert result.removed.rows.tolist() == [0]
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines([{"url": 5, "text": FOX}, {"url": "5", "text": RIVER}]))
    assert removed(path, key="url", keep="first") == [(1, 0, "key")]
    path = tmp_path / "a.csv"
    path.write_text("url,text\n5,one\n,two\n5,three\n,four\n")
    assert removed(path, key="url", keep="first") == [(2, 0, "key")]


def test_rows_of_a_reference_stay():
    rows = table(("a", FOX), ("b", RIVER), ("c", "!!!"), ("d", ""))
    other = table(("a", "x"), ("a", "y"), ("q", "!!!"), ("r", ""))
    result = fpstore.dedup(rows, text="text", key="url", against=other)
    assert result.removed.rows.tolist() == [0, 2]
    assert result.removed.in_reference.all()
    result = fpstore.dedup(rows, text="text", method="exact", against=other)
    assert result.removed.rows.tolist() == [2, 3]
    assert [batch["rule"] for batch in result.removed.batches()] == [["exact", "exact"]]


@pytest.mark.parametrize("method", ["minhash", "exact"])
def test_a_row_without_a_text_is_compared_by_its_key(tmp_path, method):
    rows = table(
        ("a", None), ("a", FOX), ("b", ""), ("b", " "), ("b", None), (None, None), ("c", "")
    )
    dictionary = rows.set_column(1, "text", rows["text"].dictionary_encode())
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines(rows.to_pylist()))
    expected = [(0, 1, "key"), (2, 3, "key"), (4, 3, "key")]
    if method == "exact":  # row 6 goes for row 2 before row 2 goes for row 3
        expected = [(0, 1, "key"), (2, 3, "key"), (4, 3, "key"), (6, 3, "exact")]
    for source in (rows, dictionary, path):
        assert removed(source, key="url", method=method) == expected
        result = fpstore.dedup(source, text="text", key="url", method=method)
        assert result.not_compared == 1
        assert np.isnan(result.removed.evidence["similarity"][:3]).all()
        result = fpstore.dedup(source, text="text", key="url", method=method, unknown="drop")
        assert result.not_compared == (6 if method == "minhash" else 3)
    with pytest.raises(InputError, match="null or blank text"):
        removed(rows, key="url", method=method, unknown="refuse")


def test_rows_without_words_are_not_added_to_a_store(tmp_path):
    rows = table(("a", ""), ("a", None), ("b", FOX))
    path = tmp_path / "s.fps"
    result = fpstore.dedup(rows, text="text", id="url", key="url", against=path, add=True)
    assert (result.not_compared, len(result.kept)) == (2, 3)
    with fpstore.open(path) as store:
        assert len(store) == 1


def test_keys_decide_with_a_store_too(tmp_path):
    path = tmp_path / "s.fps"
    options = {"text": "text", "id": "url", "key": "url"}
    fpstore.dedup(table(("a", FOX)), **options, against=path, add=True)
    rows = table(("b", FOX), ("c", RIVER), ("c", f"{RIVER} and more words than before"))
    result = fpstore.dedup(rows, **options, against=path)
    columns = result.removed.to_arrow().to_pydict()
    assert list(zip(columns["row"], columns["rule"], strict=True)) == [(0, "near"), (1, "key")]


# URLs


@pytest.mark.parametrize(
    ("spelling", "url"),
    [
        ("HTTP://Example.COM/A", "http://example.com/A"),
        ("http://example.com:80", "http://example.com/"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com/a#part", "http://example.com/a"),
        ("http://example.com/?b=2&a=1", "http://example.com/?a=1&b=2"),
        ("http://example.com/?b=2&a=2&b=1", "http://example.com/?a=2&b=2&b=1"),
        ("http://example.com/?utm_source=x&UTM_id=3", "http://example.com/"),
        ("http://example.com/?id=1&fbclid=x&&gclid", "http://example.com/?id=1"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://b\u00fccher.de/", "http://xn--bcher-kva.de/"),
        ("http://example.com/?a=b?c", "http://example.com/?a=b?c"),
        ("http://example.com/?", "http://example.com/"),
        ("http://example.com:99999/", "http://example.com:99999/"),
        ("http://example.com/\ud800", "http://example.com/\ud800"),
        ("not a url", "not a url"),
    ],
)
def test_spellings_of_a_url(spelling, url):
    assert canonical_url(spelling) == url
    assert canonical_url(url) == url


def test_all_parameters_for_tracking_are_left_out():
    for name in TRACKING_PARAMETERS:
        parameter = name.replace("*", "campaign")
        assert canonical_url(f"http://a.com/?{parameter}=1&q=2") == "http://a.com/?q=2", name
    assert canonical_url("http://a.com/?sid=1&utm=2") == "http://a.com/?sid=1&utm=2"
    assert list(TRACKING_PARAMETERS) == sorted(set(TRACKING_PARAMETERS))


def test_the_help_lists_the_parameters_for_tracking():
    shown = " ".join(fine("dedup", "--help").split())
    assert ", ".join(TRACKING_PARAMETERS) in shown


def test_keys_that_are_urls_are_compared_as_urls_unless_plain():
    rows = table(("http://a.com/?x=1&y=2", "one"), (" HTTP://A.com:80/?y=2&x=1#z", "two"))
    assert removed(rows, key="url", keep="first") == [(1, 0, "key")]
    assert removed(rows, key="url", key_rule="plain") == []
    assert removed(table(("A", "one"), ("a", "two")), key="url") == []


def test_a_missing_package_is_named(monkeypatch):
    def missing(*_):
        raise MissingExtraError("pip install ada-url")

    monkeypatch.setattr(urls, "import_package", missing)
    rows = table(("http://a.com", "one"), ("b", "two"))
    with pytest.raises(MissingExtraError, match="ada-url"):
        removed(rows, key="url")
    assert removed(rows, key="url", key_rule="plain") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": "case"}, "normalize= is for method='exact'"),
        ({"method": "exact", "normalize": "caps"}, "normalize must be one of space, case, nfc"),
        ({"method": "exact", "normalize": 3}, "normalize is a list of"),
        ({"method": "exact", "normalize": "nfc,nfkc"}, "give one of both"),
        ({"key_rule": "plain"}, "key_rule= is for key="),
        ({"key": "url", "key_rule": "host"}, "key_rule must be one of url, plain"),
        ({"key": "none"}, "no column named 'none'"),
        ({"key": ""}, "key must be the name of a column"),
        ({"key": "url", "radius": 3}, "key='url' compares texts: leave radius= out"),
        ({"key": "url", "method": "simhash"}, "compares texts: leave the method simhash out"),
        ({"method": "exact", "threshold": 0.5}, "threshold=0.5 is for near-duplicates"),
        ({"method": "exact", "html": True}, "html=True is for near-duplicates"),
        ({"method": "exact", "width": 64}, "width=64 is for near-duplicates"),
        ({"method": "exact", "fingerprinter": SimHash()}, "is for near-duplicates"),
        ({"method": "exact", "keep": "central"}, "keep='central' is for fingerprints"),
        ({"method": "exact", "text": {"url": 2, "text": 1}}, "without weights"),
        ({"method": "exact", "text": None, "fingerprint": "url"}, "method= is for texts"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    rows = table(("a", FOX), ("b", RIVER))
    with pytest.raises(InputError) as raised:
        fpstore.dedup(rows, **{"text": "text", **options})
    assert message in str(raised.value)


def test_a_store_has_no_texts_to_be_equal(tmp_path):
    with pytest.raises(InputError, match="a store does not have"):
        fpstore.dedup(
            table(("a", FOX)),
            text="text",
            id="url",
            method="exact",
            against=tmp_path / "s",
            add=True,
        )


def test_a_key_of_another_type_is_an_error_that_names_the_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json_lines([{"url": "a", "text": FOX}, {"url": 1.5, "text": FOX}]))
    with pytest.raises(InputError, match=r"a.jsonl:2: url: expected a string, an integer or null"):
        removed(path, key="url")
    with pytest.raises(InputError, match="its values must be strings or integers"):
        removed(pa.table({"url": [1.5], "text": [FOX]}), key="url")


# Against a slow oracle


def decided(rows, kinds):
    """Return the row that stays for each row by keys alone: a plain version of `KeySteps`."""
    stays = list(range(len(rows)))
    for kind in kinds:
        first = {}
        for place in range(len(rows)):
            if stays[place] == place and rows[place][kind] is not None:
                stays[place] = first.setdefault(rows[place][kind], place)
        stays = [stays[stay] for stay in stays]
    return stays


def test_steps_agree_with_a_plain_version():
    rng = random.Random(5)
    for _ in range(60):
        count, values = rng.randrange(1, 40), rng.randrange(1, 12)
        rows = [
            {kind: rng.choice([None, *map(str, range(values))]) for kind in KINDS}
            for _ in range(count)
        ]
        keys = {
            kind: KeyColumn.from_pieces([hash_keys([row[kind] for row in rows], "plain")])
            for kind in KINDS
        }
        order = np.array(rng.sample(range(count), count))
        steps = KeySteps(keys, count)
        chosen = steps.choose(order, np.zeros(count, bool))
        assert chosen.tolist() == decided([rows[place] for place in order], KINDS)
        assert (steps.rules[order] > 0).tolist() == (chosen != np.arange(count)).tolist()


def test_rows_that_stay_in_any_case_stay():
    keys = {"key": KeyColumn.from_pieces([hash_keys(["a", "a", "a", "b"], "plain")])}
    steps = KeySteps(keys, 4)
    stays = np.array([True, True, False, False])
    assert steps.choose(np.arange(4), stays).tolist() == [0, 1, 0, 3]


# One process, plans and resumed jobs


def corpus(folder, seed, files=3, count=120):
    rng, rows = random.Random(seed), []
    words = [f"w{n}" for n in range(60)]
    for number in range(count):
        text = " ".join(rng.choices(words, k=rng.choice((1, 3, 20, 60))))
        if rows and rng.random() < 0.5:
            text = rng.choice(rows)["text"] or "!!!"
            text += rng.choice(("", "", " and more", "\u200b"))
        host, query = rng.choice(("a.com", "A.com:80")), rng.choice(("", "&utm_x=1", "#f"))
        url = f"http://{host}/{rng.randrange(12)}?b={rng.randrange(3)}&a=1{query}"
        if rng.random() < 0.1:
            text = f"<html><body><p>{text.replace(' ', ' <b>')}</body></html>"
        rows.append(
            {
                "id": f"i{number}",
                "url": rng.choice((url, url, None, "")),
                "text": rng.choice((text, text, text, "!!!", "", None)),
                "score": rng.randrange(4),
            }
        )
    folder.mkdir()
    for file in range(files):
        (folder / f"{file}.jsonl").write_text(json_lines(rows[file::files]))
    return folder


CASES = {
    "pages": {},
    "keys": {"key": "url"},
    "plain keys": {"key": "url", "key_rule": "plain", "keep": "first"},
    "exact": {"method": "exact"},
    "normalized": {"method": "exact", "normalize": ("space", "case"), "keep": "smallest"},
    "exact and keys": {"method": "exact", "key": "url", "score": "score"},
    "tags": {"html": False, "key": "url"},
    "main texts": {"html": "resiliparse", "key": "url"},
    "columns": {"text": ("text", "url")},
    "exact columns": {"text": ("text", "url"), "method": "exact"},
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sizes", [{}, {"part_bytes": 3000, "slice_rows": 30, "star_rows": 0}])
def test_a_plan_has_the_bytes_of_one_process(tmp_path, case, sizes):
    source = corpus(tmp_path / "in", len(case))
    options = {"text": "text", "id": "id", **CASES[case]}
    result = fpstore.dedup(source, tmp_path / "one", **options)
    plan = plan_dedup(
        tmp_path / "plan",
        source,
        tmp_path / "two",
        removed=tmp_path / "two.jsonl",
        **sizes,
        **options,
    )
    summary = run_all(plan)
    assert len(result.removed) == summary["removed"] > 5
    assert (result.near, len(result.clusters)) == (summary["near"], summary["clusters"])
    assert (result.pages, result.not_compared) == (summary.get("pages", 0), summary["not_compared"])
    for file in source.iterdir():
        assert (tmp_path / "one" / file.name).read_bytes() == (
            tmp_path / "two" / file.name
        ).read_bytes()
    rows = [json.loads(line) for line in (tmp_path / "two.jsonl").read_text().splitlines()]
    columns = result.removed.to_arrow().to_pydict()
    for name in ("row", "id", "kept_row", "kept", "cluster", "rule", "pieces"):
        assert [row[name] for row in rows] == columns[name], name


@pytest.mark.parametrize("case", ["keys", "exact and keys", "pages"])
def test_threads_and_a_resumed_job_change_nothing(tmp_path, set_limits, case):
    set_limits(compared_rows=20, line_bytes=1 << 10)
    corpus(tmp_path / "in", 3)
    with chdir(tmp_path):
        options = {
            "pages": [],
            "keys": ["--key-field", "url"],
            "exact and keys": ["--method", "exact", "--key-field", "url"],
        }[case]
        command = [
            "dedup",
            "in",
            "",
            "--text-field",
            "text",
            "--id-field",
            "id",
            *options,
            "--json",
        ]

        def arguments(name, *more):
            return [*command[:2], name, *command[3:], "--removed", f"{name}.tsv", *more]

        assert in_another(arguments("whole", "--threads", "2"))
        whole = json.loads(run(*arguments("again", "--threads", "1")).stdout)
        assert killed(arguments("resumed", "--resume"), 4)
        assert list(Path().glob("resumed*.resume"))
        resumed = run(*arguments("resumed", "--resume", "--threads", "1"))
        assert json.loads(resumed.stdout) == whole
        assert whole.get("pages", 0) + whole.get("by_key", 0) > 0
        assert Path("whole.tsv").read_bytes() == Path("resumed.tsv").read_bytes()
        for file in Path("whole").iterdir():
            assert file.read_bytes() == (Path("resumed") / file.name).read_bytes()
