"""Which rows `dedup` removes because a row that stays contains them, against sets of Python."""

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import TEXT_AND_ID, failure, fine, run
from contained_texts import (
    by_length,
    changed,
    goes,
    oracle,
    pieces,
    planted,
    shares,
    templated,
    weather_reports,
)
from inputs import json_lines
from speeds import full

import fpstore
from fpstore import InputError, MinHash, SimHash, _kernel
from fpstore.hashing import Fields, LongestSentences
from fpstore.jobs import overlaps, text_sets
from fpstore.jobs.evidence import RULES
from fpstore.jobs.text_sets import Rule

SEEDS = [range(4), full(range(4, 60))]


def dedup(texts, **options):
    columns = {"t": texts, **options.pop("columns", {})}
    return fpstore.dedup(pa.table(columns), text="t", **options)


def kept_rows(result):
    """Return the row that stays for each row that goes."""
    removed = result.removed
    return dict(zip(removed.rows.tolist(), removed.kept_rows.tolist(), strict=True))


def check_rule(texts, result, contained=0.8, similar=0.7):
    """Check that all removed rows satisfy the rule, exactly as they are listed."""
    kept_for, evidence = kept_rows(result), result.removed.evidence
    assert not kept_for.keys() & set(kept_for.values())  # what stays is kept
    assert result.kept["t"].to_pylist() == [
        text for row, text in enumerate(texts) if row not in kept_for
    ]
    for place, (row, kept) in enumerate(kept_for.items()):
        share, similarity = shares(texts[row], texts[kept])
        assert evidence["contained"][place] == share
        assert evidence["similarity"][place] == similarity
        assert goes(texts[row], texts[kept], contained, similar), row
        rule = "equal" if similarity == 1 else "contained" if share >= contained else "similar"
        assert RULES[evidence["rule"][place]] == rule
        assert evidence["pieces"][place] == len(pieces(texts[row]))
        assert evidence["kept_pieces"][place] == len(pieces(texts[kept]))
    return kept_for


@pytest.mark.parametrize("seeds", SEEDS)
def test_removed_rows_are_those_of_sets_of_python(seeds):
    count = expected_count = 0
    for seed in seeds:
        texts = planted(seed)
        expected, kept_for = oracle(texts), check_rule(texts, dedup(texts))
        count += len(expected.keys() & kept_for.keys())
        expected_count += len(expected)
    assert expected_count > 25 * len(seeds)
    assert count >= 0.97 * expected_count


@pytest.mark.parametrize("seeds", [range(1), full(range(1, 20))])
@pytest.mark.parametrize(
    ("options", "bounds"),
    [
        ({"lossless": True}, (0.95, 2.0)),
        ({"contained": 0.5}, (0.5, 0.5 / 1.5)),
        ({"threshold": 0.5}, (1 / 1.5, 0.5)),
        ({"threshold": 1.0}, (1.0, 1.0)),
        ({"contained": 1.0, "threshold": 0.9}, (1.0, 0.9)),
    ],
)
def test_bounds_of_the_rule(options, bounds, seeds):
    count = expected_count = 0
    for seed in seeds:
        texts = planted(seed)
        expected = oracle(texts, None, *bounds)
        kept_for = check_rule(texts, dedup(texts, **options), *bounds)
        count += len(expected.keys() & kept_for.keys())
        expected_count += len(expected)
    assert expected_count > 0
    assert count >= 0.97 * expected_count


def test_a_rule_with_one_bound_has_the_other_for_texts_of_equal_sizes():
    assert Rule.choose(None, None) == Rule(0.8, 0.7)
    assert Rule.choose(0.9, 0.3) == Rule(0.9, 0.3)
    for sizes, shared in ((100, 80), (30, 10), (7, 7), (9, 0)):
        contained, similar = shared / sizes, shared / (2 * sizes - shared)
        assert Rule.choose(contained, None) == pytest.approx((contained, similar))
        assert Rule.choose(None, similar) == pytest.approx((contained, similar))


def test_what_may_be_searched_has_the_least_containment_of_both_bounds():
    for rule in (Rule(0.8, 0.7), Rule(0.95, 2.0), Rule(0.9, 0.3), Rule(0.5, 0.9)):
        least = rule.least_containment
        for size, kept in ((100, 100), (60, 100), (90, 100), (100, 1000)):
            for shared in range(size + 1):
                if shared / size >= rule.contained or shared / (size + kept - shared) >= (
                    rule.similar
                ):
                    assert shared / size >= least - 1e-9


# --- Which rows stay ------------------------------------------------------------------------------


ORDERS = {
    "longest": lambda texts, ids, scores: by_length(texts),
    "first": lambda texts, ids, scores: range(len(texts)),
    "smallest": lambda texts, ids, scores: sorted(range(len(texts)), key=lambda n: (ids[n], n)),
    "highest": lambda texts, ids, scores: sorted(
        by_length(texts), key=lambda n: -1 if scores[n] is None else -1 - scores[n]
    ),
}


@pytest.mark.parametrize("seed", [1, *map(full, range(2, 8))])
@pytest.mark.parametrize("keep", ORDERS)
@pytest.mark.parametrize("strings", [True, full(False)])
def test_rows_are_decided_in_the_order_of_a_rule(keep, strings, seed):
    rng, texts = random.Random(seed), planted(seed)
    ids = [rng.randrange(150) for _ in texts]  # some twice
    ids = [f"i{n}" for n in ids] if strings else ids
    scores = [rng.choice((None, 0, 1, 2, 3)) for _ in texts]
    options = {"score": "s"} if keep == "highest" else {}
    columns = {"i": ids, "s": scores}
    result = dedup(texts, columns=columns, id="i", keep=keep, **options)
    kept_for = check_rule(texts, result)
    expected = oracle(texts, ORDERS[keep](texts, ids, scores))
    assert len(expected.keys() - kept_for.keys()) <= 2
    same = [row for row in expected if kept_for.get(row) == expected[row]]
    assert len(same) >= len(expected) - 3


def sentence(*numbers):
    return " ".join(f"w{n}" for n in numbers)


WHOLE = sentence(*range(100))
PART = sentence(*range(20, 40))


def test_an_excerpt_goes_for_the_whole_and_the_whole_for_no_excerpt():
    for texts in ([WHOLE, PART], [PART, WHOLE]):
        assert dedup(texts).kept["t"].to_pylist() == [WHOLE]
        first = dedup(texts, keep="first").kept["t"].to_pylist()
        assert first == ([WHOLE] if texts[0] == WHOLE else texts)
        for scores in ([1, 2], [2, 1], [1, 1]):
            kept = dedup(texts, columns={"s": scores}, score="s").kept["t"].to_pylist()
            part_first = scores[texts.index(PART)] > scores[texts.index(WHOLE)]
            assert sorted(kept) == (sorted(texts) if part_first else [WHOLE])


def test_a_score_comes_before_length_and_length_before_the_row():
    short, long = sentence(*range(90)), sentence(*range(100))
    for texts, scores, kept in (
        ([short, long], [1, 1], 1),
        ([short, long], [2, 1], 0),
        ([short, long], [None, 1], 1),
        ([short, long], [None, None], 1),
        ([long, short, long], [1, 2, 1], 1),
        ([long, long], [1, 1], 0),
        ([long, long], [1, 2], 1),
    ):
        result = dedup(texts, columns={"s": scores}, score="s", threshold=0.7)
        assert len(result.removed) == len(texts) - 1, (texts, scores)
        assert set(kept_rows(result).values()) == {kept}


@pytest.mark.parametrize("copies", [2, 5, 30])
def test_of_equal_texts_the_one_of_most_characters_stays_then_the_first(copies):
    texts = ["a b c d e"] * copies
    assert kept_rows(dedup(texts)) == dict.fromkeys(range(1, copies), 0)
    spaces = [*texts, "a  b c d e", "A, b; c d e", "a b c d e"]  # equal pieces
    rows = set(range(len(spaces)))
    assert kept_rows(dedup(spaces)) == dict.fromkeys(sorted(rows - {copies + 1}), copies + 1)
    assert kept_rows(dedup(spaces, keep="first")) == dict.fromkeys(sorted(rows - {0}), 0)
    columns = {"i": [f"{9 - n % 10}" for n in range(len(spaces))]}
    kept = min(rows, key=lambda n: (columns["i"][n], n))
    result = dedup(spaces, columns=columns, id="i", keep="smallest")
    assert kept_rows(result) == dict.fromkeys(sorted(rows - {kept}), kept)


def test_a_row_goes_for_the_text_that_contains_most_of_it():
    part = sentence(*range(50))
    others = [
        sentence(*range(45), *range(1000, 1100)),
        sentence(*range(48), *range(2000, 2100)),
        sentence(*range(46), *range(3000, 3100)),
    ]
    assert kept_rows(dedup([part, *others])) == {0: 2}
    assert kept_rows(dedup([*others, part])) == {3: 1}


def test_a_chain_is_no_group():
    """Each text has much of the next one; a row goes for one that stays, not for one that goes."""
    texts = [sentence(*range(10 * n, 10 * n + 100)) for n in range(20)]
    kept_for = check_rule(texts, dedup(texts))
    assert kept_for == oracle(texts)
    assert len(kept_for) == 10  # every other one


# --- Texts that stay ------------------------------------------------------------------------------


def test_reports_of_one_template_stay():
    """A fifth of the words are facts."""
    reports = weather_reports(150)
    result = dedup(reports)
    assert len(result.removed) == 0
    least = 0.8 * Rule().least_containment
    sets = list(map(pieces, reports))
    sizes = np.array(list(map(len, sets)))
    shared = np.array([[len(a & b) for b in sets] for a in sets]) - np.diag(sizes)
    like_another = ((shared / sizes).max(0) >= least) | ((shared / sizes[:, None]).max(1) >= least)
    assert result.near <= like_another.sum() < 60
    assert len(dedup([*reports, reports[7]]).removed) == 1


def test_pages_of_one_template_stay_and_their_copies_go():
    """Each feature of the template is in more texts than are paired."""
    pages = templated(500, 0.46)
    similarities = [shares(a, b)[1] for a, b in pairwise(pages)]
    assert np.mean(similarities) == pytest.approx(0.46, abs=0.02)
    assert len(dedup(pages).removed) == 0
    rng, others = random.Random(2), [f"x{n}" for n in range(10**4)]
    copies = [" ".join(changed(rng, page.split(), others, 0.03)) for page in pages[:40]]
    kept_for = kept_rows(dedup([*pages, *copies]))
    expected = {500 + n for n, copy in enumerate(copies) if goes(copy, pages[n])}
    assert len(expected) > 30
    assert kept_for.keys() - expected <= set(range(40))  # the original may be the shorter one
    assert len(kept_for.keys() & (expected | set(range(40)))) >= 0.97 * len(expected)


def test_short_texts_and_blank_ones():
    texts = ["", " ", None, "a", "a", "b", "a b", "A b!", "a b c", "a b c d", "a b c d e", "b c d"]
    kept_for = kept_rows(dedup(texts))
    assert kept_for == {4: 3, 6: 7, 8: 10, 9: 10, 11: 10}
    result = dedup(texts, unknown="drop")
    assert result.not_compared == 3
    assert len(result.kept) == len(texts) - 3 - len(kept_for)
    for single in (["a b c d"], ["a b c d", "e f g h", "i j k l"], ["a b c d", None, " "]):
        result = dedup(single)
        assert (len(result.kept), len(result.clusters), len(result.removed)) == (len(single), 0, 0)


def test_rows_that_are_kept_although_others_have_much_of_them_are_counted():
    near = sentence(*range(50), *range(900, 918))  # of 66 pieces, 48 are in the text: 0.73
    far = sentence(*range(20), *range(800, 850))
    for texts, count in (([WHOLE, near], 2), ([WHOLE, far], 0), ([WHOLE, near, far], 2)):
        assert dedup(texts).near == count
    # of a row that goes and one that stays for it, none is near
    assert dedup([WHOLE, PART]).near == 0


# --- References -----------------------------------------------------------------------------------


def write_texts(path, texts, name):
    path.write_text(json_lines({"i": f"{name}{n}", "t": text} for n, text in enumerate(texts)))


@pytest.mark.parametrize("seeds", [range(2), full(range(2, 20))])
def test_rows_go_for_those_of_a_reference_of_files(tmp_path, seeds):
    count = expected_count = 0
    for seed in seeds:
        texts = planted(seed)
        reference, rows = texts[:60], texts[60:]
        write_texts(tmp_path / "r.jsonl", reference, "r")
        write_texts(tmp_path / "c.jsonl", rows, "c")
        result = fpstore.dedup(tmp_path / "c.jsonl", text="t", id="i", against=tmp_path / "r.jsonl")
        listed = result.removed.to_arrow().to_pylist()
        kept = set(result.kept.tolist())
        for row in listed:
            other = (reference if row["reference"] else rows)[int(row["kept"][1:])]
            assert row["kept"][0] == "r" if row["reference"] else row["kept_row"] in kept
            assert (row["contained"], row["similarity"]) == pytest.approx(
                shares(rows[row["row"]], other), abs=1e-6
            )
            assert goes(rows[row["row"]], other)
        expected = oracle(texts, stay=range(60)).keys()
        removed = {row["row"] + 60 for row in listed}
        assert kept == set(range(len(rows))) - {row - 60 for row in removed}
        count += len(expected & removed)
        expected_count += len(expected)
    assert expected_count > 15 * len(seeds)
    assert count >= 0.97 * expected_count


@pytest.mark.parametrize("keep", ["longest", "first"])
def test_an_excerpt_of_a_reference_goes_and_a_text_that_contains_one_stays(tmp_path, keep):
    for reference, row, goes_there in ((WHOLE, PART, True), (PART, WHOLE, False)):
        write_texts(tmp_path / "r.jsonl", [reference, reference], "r")
        write_texts(tmp_path / "c.jsonl", [row], "c")
        result = fpstore.dedup(
            tmp_path / "c.jsonl", text="t", id="i", keep=keep, against=tmp_path / "r.jsonl"
        )
        assert len(result.removed) == goes_there
        assert len(result.clusters) == 0
        if goes_there:
            (listed,) = result.removed.to_arrow().to_pylist()
            assert listed == {
                "row": 0,
                "id": "c0",
                "shard": "c.jsonl",
                "kept_row": 0,
                "kept": "r0",
                "kept_shard": "r.jsonl",
                "cluster": 0,
                "reference": str(tmp_path / "r.jsonl"),
                "rule": "contained",
                "contained": 1.0,
                "similarity": round(18 / 98, 6),
                "pieces": 18,
                "kept_pieces": 98,
            }


def test_a_store_has_no_texts_and_its_rows_are_near(tmp_path):
    minhash, rng = MinHash(), random.Random(1)
    stored = [sentence(*(rng.randrange(5000) for _ in range(100))) for _ in range(10)]
    fpstore.build(
        tmp_path / "s.fps",
        minhash.fingerprints(stored),
        [f"s{n}" for n in range(10)],
        fingerprinter=minhash,
    ).close()
    near = [" ".join(changed(rng, text.split(), ["other"], 0.02)) for text in stored[:5]]
    parts = [" ".join(text.split()[:30]) for text in stored[5:]]  # not near
    write_texts(tmp_path / "c.jsonl", [*near, *parts, WHOLE, PART], "c")
    result = fpstore.dedup(tmp_path / "c.jsonl", text="t", id="i", against=tmp_path / "s.fps")
    assert result.kept.tolist() == [*range(5, 10), 10]
    *listed, last = result.removed.to_arrow().to_pylist()
    assert (last["id"], last["kept"], last["reference"], last["rule"]) == (
        "c11",
        "c10",
        "",
        "contained",
    )
    for n, row in enumerate(listed):
        assert (row["id"], row["kept"], row["reference"], row["rule"]) == (
            f"c{n}",
            f"s{n}",
            str(tmp_path / "s.fps"),
            "near",
        )
        distance = np.bitwise_count(
            minhash.fingerprints([near[n]]) ^ minhash.fingerprints([stored[n]])
        ).sum()
        assert row["similarity"] == pytest.approx(minhash.jaccard(int(distance)), abs=1e-6)
        assert (row["pieces"], row["kept_pieces"]) == (len(pieces(near[n])), 0)


# --- What is compared -----------------------------------------------------------------------------


def test_features_are_those_of_the_fingerprinter():
    """Several columns, pages of HTML, and pieces of other kinds."""
    rng, rows = random.Random(5), []
    for _ in range(40):
        title = " ".join(rng.choices("abcdef", k=6))
        text = sentence(*(rng.randrange(300) for _ in range(30)))
        rows += [(title, text), (" ".join(rng.choices("uvwxyz", k=rng.randrange(12))), text)]
    minhash = MinHash(size=2)
    fields = Fields(minhash, {"title": 1, "text": 1})
    table = pa.table({"title": [title for title, _ in rows], "text": [text for _, text in rows]})
    result = fpstore.dedup(
        table, text=["title", "text"], fingerprinter=fields, threshold=0.8, contained=0.99
    )
    sets = [
        set(minhash.features(title)) | set(minhash.features(text))
        if title
        else set(minhash.features(text))
        for title, text in rows
    ]
    alike = {
        n
        for n in range(40)
        for a, b in [sorted((sets[2 * n], sets[2 * n + 1]), key=len)]
        if len(a & b) >= 0.8 * len(a | b) or len(a & b) >= 0.99 * len(a)
    }
    assert 5 < len(alike) < 40
    assert {row // 2 for row in result.removed.rows.tolist()} == alike
    page = (
        "<html><head><title>T</title></head><body><nav>{}</nav><article><p>{}</p></article></body>"
    )
    story = sentence(*range(60))
    pages = [page.format(menu, story) for menu in ("one two", "three four five " * 30)]
    assert len(dedup(pages, html=True).removed) == 1
    assert len(dedup(pages).removed) == 1  # the longer one has the story, too
    letters = ["abcdefghijklmnopqrstuvwxyz" * n for n in (1, 3)]
    assert len(dedup(letters).removed) == 0  # one word each
    assert len(dedup(letters, fingerprinter=MinHash(shingle="chars", size=5)).removed) == 1


def test_the_width_does_not_decide():
    texts = planted(4)
    assert kept_rows(dedup(texts, width=64)) == kept_rows(dedup(texts))


def test_another_method_compares_texts_where_it_is_told_to():
    texts = planted(4, 80)
    assert "distance" in dedup(texts, method="simhash").removed.evidence
    result = dedup(texts, method="simhash", estimate=False)
    assert set(result.removed.evidence) == set(dedup(texts).removed.evidence)
    assert len(result.removed) > 0


# --- Options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"estimate": True},
        {"radius": 50},
        {"group": "greedy"},
        {"search": "exact"},
        {"keep": "central"},
        {"method": "simhash"},
        {"fingerprinter": LongestSentences()},
    ],
)
def test_options_of_estimates_let_fingerprints_decide(options):
    assert set(dedup([WHOLE, PART, WHOLE], **options).removed.evidence) == {"distance"}


TEXT = {"text": "t"}
HASH = {"fingerprint": "h"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TEXT | {"contained": 1.5}, "contained must be a number from 0 to 1, got 1.5"),
        (TEXT | {"contained": -0.1}, "contained must be a number from 0 to 1"),
        (TEXT | {"contained": "most"}, "contained must be a number from 0 to 1"),
        (TEXT | {"contained": float("nan")}, "contained must be a number from 0 to 1"),
        (TEXT | {"threshold": 1.5}, "threshold must be a number from 0 to 1"),
        (TEXT | {"lossless": 1}, "lossless must be True or False"),
        (TEXT | {"estimate": "yes"}, "estimate must be True or False"),
        (TEXT | {"lossless": True, "threshold": 0.5}, "is the rule contained=0.95: leave"),
        (TEXT | {"lossless": True, "contained": 0.5}, "is the rule contained=0.95: leave"),
        (TEXT | {"estimate": False, "radius": 3}, "radius= is for estimates: leave estimate=False"),
        (TEXT | {"estimate": False, "group": "greedy"}, "group= is for estimates"),
        (TEXT | {"estimate": False, "search": "bands"}, "search= is for estimates"),
        (TEXT | {"estimate": False, "keep": "central"}, "keep= is for estimates"),
        (TEXT | {"radius": 3, "contained": 0.5}, "contained=0.5 compares texts: leave radius="),
        (TEXT | {"radius": 3, "contained": 0}, "contained=0 compares texts: leave radius="),
        (TEXT | {"radius": 3, "lossless": True}, "lossless=True compares texts: leave radius="),
        (TEXT | {"group": "greedy", "keep": "longest"}, "keep='longest' compares texts: leave gro"),
        (TEXT | {"estimate": True, "lossless": True}, "compares texts: leave estimate="),
        (TEXT | {"method": "simhash", "contained": 0.5}, "leave the method simhash out"),
        (TEXT | {"method": "simhash", "keep": "longest"}, "leave the method simhash out"),
        (TEXT | {"method": "simhash", "threshold": 0.5}, "a Jaccard similarity"),
        (TEXT | {"fingerprinter": LongestSentences(), "estimate": False}, "has no features"),
        (TEXT | {"score": "s", "keep": "longest"}, "score= needs keep='highest'"),
        (TEXT | {"keep": "highest"}, "needs score="),
        (TEXT | {"keep": "smallest"}, "needs a column of ids"),
        (TEXT | {"keep": "last"}, "keep must be one of longest, first"),
        (TEXT | {"threshold": 0.5, "radius": 3}, "not both"),
        (TEXT | {"method": "tlsh"}, "method must be one of minhash, simhash"),
        (TEXT | {"method": "simhash", "fingerprinter": SimHash()}, "leave method out"),
        (TEXT | {"group": "chains"}, "group must be one of connected, greedy"),
        (HASH | {"contained": 0.5}, "contained=0.5 compares texts: the corpus has fingerprints"),
        (HASH | {"contained": 0.0}, "compares texts: the corpus has fingerprints"),
        (HASH | {"lossless": True}, "compares texts: the corpus has fingerprints"),
        (HASH | {"estimate": False}, "compares texts: the corpus has fingerprints"),
        (HASH | {"keep": "longest"}, "compares texts: the corpus has fingerprints"),
        (HASH | {"threshold": 0.5}, "the corpus has fingerprints: give radius="),
        (HASH | {"method": "simhash"}, "is for texts"),
    ],
)
def test_what_is_refused(options, message):
    table = pa.table({"t": ["a b c d"], "h": pa.array([1], pa.uint64()), "s": [1]})
    with pytest.raises(InputError, match=message):
        fpstore.dedup(table, **options)


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = planted(3)
    Path("c.jsonl").write_text(
        json_lines({"id": f"n{n}", "text": text} for n, text in enumerate(texts))
    )
    words = ("dedup", "c.jsonl", "o.jsonl", *TEXT_AND_ID, "--force", "--quiet", "--json")
    for options, named in (
        ((), {}),
        (("--threshold", 0.5), {"threshold": 0.5}),
        (("--contained", 0.9, "--keep", "first"), {"contained": 0.9, "keep": "first"}),
        (("--lossless",), {"lossless": True}),
        (("--no-estimate",), {"estimate": False}),
    ):
        summary = json.loads(fine(*words, *options, "--removed", "r.jsonl"))
        result = dedup(
            texts, columns={"id": [f"n{n}" for n in range(len(texts))]}, id="id", **named
        )
        listed = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
        shards = {"shard": "c.jsonl", "kept_shard": "c.jsonl"}  # a table has no files
        assert listed == [row | shards for row in result.removed.to_arrow().to_pylist()]
        assert [
            json.loads(line)["text"] for line in Path("o.jsonl").read_text().splitlines()
        ] == result.kept["t"].to_pylist()
        rule = (
            Rule(0.95)
            if "lossless" in named
            else Rule.choose(named.get("contained"), named.get("threshold"))
        )
        assert summary["contained"] == rule.contained
        assert summary["threshold"] == (None if "lossless" in named else rule.similar)
        assert (summary["removed"], summary["near"]) == (len(result.removed), result.near)
        lossless = int((result.removed.evidence["contained"] >= 0.95).sum())
        assert summary["lossless"] == lossless
    for options, message in (
        (("--contained", "1.5"), "1.5 is not in the range 0<=x<=1"),
        (("--lossless", "--threshold", 0.5), "--lossless is the rule --contained 0.95"),
        (("--no-estimate", "--radius", 3), "--radius is for estimates: leave --no-estimate out"),
        (("--radius", 3, "--lossless"), "--lossless compares texts: leave --radius out"),
        (("--verify",), "No such option"),
    ):
        assert message in failure(*words[:5], *options, code=2)


def test_a_row_for_which_many_go_is_noted_and_few_of_its_ids_are_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = [f"w{n}" for n in range(200)]

    def dedup_pages(count, *options):
        facts = ([f"f{n:03}x{k}" for k in range(20)] for n in range(count))
        Path("c.jsonl").write_text(json_lines({"text": " ".join(page[:180] + f)} for f in facts))
        ended = run("dedup", "c.jsonl", "o.jsonl", "--text-field", "text", "--force", *options)
        assert ended.exit_code == 0
        return ended

    ended = dedup_pages(101, "--json")
    (largest,) = json.loads(ended.stdout)["largest"]
    assert largest == {"documents": 101, "ids": list(range(100))}
    assert "100 rows are removed for 0, which contains less than 95% of each" in ended.stderr
    assert "and 97 more" in dedup_pages(101).stdout
    assert "less than 95%" not in dedup_pages(100).stderr
    assert "less than 95%" not in dedup_pages(101, "--lossless").stderr
    Path("c.jsonl").write_text(json_lines({"text": f"n{n}", "key": 1} for n in range(200)))
    ended = run(
        "dedup", "c.jsonl", "o.jsonl", "--text-field", "text", "--key-field", "key", "--force"
    )
    assert "less than 95%" not in ended.stderr


# --- Work -----------------------------------------------------------------------------------------


class Kernel:
    """The kernel, with the elements of the arrays of all calls."""

    def __init__(self, kernel, read):
        self._kernel, self._read = kernel, read

    def __getattr__(self, name):
        def call(*arguments):
            result = getattr(self._kernel, name)(*arguments)
            self._read.append(sum(item.size for item in arguments if hasattr(item, "size")))
            wrapped = isinstance(result, _kernel.FeatureSets | _kernel.Sets)
            return Kernel(result, self._read) if wrapped else result

        return call


def work_for(monkeypatch, texts):
    """Return how many rows are removed, and the elements that the kernel takes for it."""
    read = []
    with monkeypatch.context() as patch:
        for module in (overlaps, text_sets):
            patch.setattr(module, "_kernel", Kernel(_kernel, read))
        result = dedup(texts)
    return len(result.removed), sum(read)


def test_equal_rows_are_never_compared(monkeypatch):
    count = 2000
    for number in (count, 2 * count):
        texts = [sentence(*range(20))] * number
        removed, work = work_for(monkeypatch, texts)
        assert removed == number - 1
        assert work < 40 * number


@pytest.mark.parametrize("copies", [2, 50])
def test_the_work_is_linear(monkeypatch, copies):
    texts = [" ".join(f"w{n // copies}x{i}" for i in range(20)) + f" y{n}" for n in range(4000)]
    removed, once = work_for(monkeypatch, texts[:2000])
    assert removed == 2000 - 2000 // copies
    removed, twice = work_for(monkeypatch, texts)
    assert removed == 4000 - 4000 // copies
    assert twice <= 2.1 * once


@pytest.mark.full
def test_many_equal_rows_and_many_clusters(monkeypatch):
    removed, work = work_for(monkeypatch, ["one text of a few words"] * 200_000)
    assert removed == 199_999
    assert work < 40 * 200_000
    texts = [f"w{n // 2} {n // 2} x{n // 2} y{n // 2} z{n // 2} end of all" for n in range(100_000)]
    removed, work = work_for(monkeypatch, [f"{text} {n % 2}" for n, text in enumerate(texts)])
    assert removed == 50_000
    assert work < 60 * 100_000
