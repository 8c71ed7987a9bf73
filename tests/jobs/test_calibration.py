"""Calibrations against brute force: distances, resemblance, intervals, removals and samples."""

import random
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from speeds import full

import fpstore
from fpstore.calibration import calibrate
from fpstore.calibration.rates import Rate
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import SETTINGS, parse_setting
from fpstore.calibration.text_changes import Material, TextChange
from fpstore.calibration.texts import CHARACTERS, MAX_TEXT_CHARS, resembling_pairs, shingle_sets
from fpstore.errors import InputError
from fpstore.hashing import ImageHash, MinHash, SimHash


def texts_of(count, seed=1, words=60):
    rng = random.Random(seed)
    vocabulary = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(500)
    ]
    return [" ".join(rng.choices(vocabulary, k=words)) + "." for _ in range(count)]


def shingles_of(text):
    folded = " ".join(text.casefold().split())
    return {folded[i : i + 5] for i in range(max(len(folded) - 4, 1))} if folded else set()


def test_resembling_pairs_are_those_of_brute_force():
    texts = [*texts_of(60), "", "a", "ab", "a", "abcde", "abcdef", "\u8fd9\u662f\u3002"]
    texts += [text[: len(text) * part // 10] for part in (3, 5, 7, 9) for text in texts[:10]]
    texts += [text.upper().replace(" ", "\n ") for text in texts[:3]]
    sets = list(map(shingles_of, texts))
    pairs = [(a, b) for a, b in combinations(range(len(texts)), 2) if sets[a] and sets[b]]
    true = {(a, b): len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in pairs}
    for least in (0.3, 0.5, 0.9, 1.0):
        result = set(map(tuple, resembling_pairs(texts, least).T.tolist()))
        assert result == {pair for pair, share in true.items() if share >= least}
        assert result
    places = np.array([*true]).T
    _, similarities = shingle_sets(texts, CHARACTERS).shares(*places.astype(np.uint64, "C"))
    assert similarities.tolist() == pytest.approx([*true.values()])


def test_intervals_are_wilsons():
    for count, total in ((0, 1), (1, 1), (0, 1000), (3, 10), (999, 1000), (123456, 10**6)):
        expected = scipy.stats.binomtest(count, total).proportion_ci(method="wilson")
        assert Rate(count, total).interval == pytest.approx((expected.low, expected.high), abs=1e-7)
        assert Rate(count, total).value == count / total
    assert Rate(0, 0).interval == (0, 1)
    assert np.isnan(Rate(0, 0).value)


def templated(count, seed):
    """Make texts in families: of a template of their own, with some other words, some with few."""
    rng = random.Random(seed)
    templates = [text.split() for text in texts_of(8, seed)]
    out = []
    for _ in range(count):
        words = list(rng.choice(templates))
        for place in rng.sample(range(len(words)), rng.choice((1, 2, 4, 6, 9, 14))):
            words[place] = f"word{rng.randrange(10**6)}"
        out.append(" ".join(words))
    return out


def triples(text):
    words = text.rstrip(".").replace(".", " ").split()
    return {tuple(words[place : place + 3]) for place in range(max(len(words) - 2, 1))}


def share(some, others):
    return len(some & others) / len(some | others)


def judged(table, **arguments):
    """Return what `dedup` does, and of the removed documents those contained, and those unlike."""
    result = fpstore.dedup(table, text="text", threads=1, **arguments)
    words = [triples(text or "") for text in table["text"].to_pylist()]
    pairs = zip(result.removed.rows.tolist(), result.removed.kept_rows.tolist(), strict=True)
    shares = [
        (len(words[a] & words[b]) / len(words[a]), share(words[a], words[b])) for a, b in pairs
    ]
    contained = sum(within >= 0.95 for within, _ in shares)
    return result, contained, sum(within < 0.8 and both < 0.5 for within, both in shares)


def removed_by_dedup(table, one):
    """Return how many documents `dedup` removes by a radius, and how many unlike the kept one."""
    fingerprinter = one.measured.setting.fingerprinter
    result, _, wrong = judged(table, fingerprinter=fingerprinter, radius=one.radius, group="greedy")
    return len(result.removed.rows), wrong


def apart(fingerprinter, one, other):
    return (fingerprinter.fingerprint(one) ^ fingerprinter.fingerprint(other)).bit_count()


@pytest.mark.parametrize("fingerprinter", [SimHash(size=2), SimHash(width=128), MinHash()])
def test_distances_are_those_of_brute_force(fingerprinter):
    table = pa.table({"text": [*texts_of(14, words=12), None, "  "]})
    result = calibrate(
        table,
        text="text",
        settings=[fingerprinter],
        changes=["words=1", "truncate=0.4"],
        seed=3,
        threads=1,
    )
    (suggestion,) = result.suggestions
    sample = result.sample
    items, strangers = sample.items, sample.strangers.tolist()
    assert (sample.documents, sample.empty, strangers, len(items)) == (14, 2, [*range(14)], 42)
    for name, pairs in sample.copies.items():
        bits = []
        for place, other in pairs.T.tolist():
            assert items[other] == TextChange.parse(name).copy(Material(items[:14]), place, 3)
            bits.append(apart(fingerprinter, items[place], items[other]))
        counts = np.bincount(bits, minlength=fingerprinter.width + 1)
        assert suggestion.measured.copies[name].counts.tolist() == counts.tolist()
    bits = [apart(fingerprinter, a, b) for a, b in combinations(items[:14], 2)]
    counts = np.bincount(bits, minlength=fingerprinter.width + 1)
    assert suggestion.measured.strangers.counts.tolist() == counts.tolist()
    assert suggestion.recall == Rate(
        int(suggestion.measured.all_copies.counts[: suggestion.radius + 1].sum()), 28
    )
    assert suggestion.strangers == Rate(0, 91)


@pytest.mark.parametrize(
    "setting", ["method=minhash", full("method=minhash,width=128"), "size=1,width=256"]
)
def test_what_is_removed_is_what_dedup_removes(setting):
    table = pa.table({"text": [*templated(90, 1), None, "", *templated(40, 1)]})
    shares = set()
    for radius in (None, 8, 20, 32):
        named = setting if radius is None else f"{setting},radius={radius}"
        result = calibrate(
            table,
            text="text",
            settings=[named],
            changes=["words=2"],
            sample=40,
            most_wrong=1,
            threads=1,
        )
        (suggestion,) = result.suggestions
        assert (
            result.sample.grouped,
            suggestion.removed.total,
            len(result.sample.strangers) < 40,
        ) == (
            130,
            130,
            True,
        )
        assert radius in (None, suggestion.radius)
        count, wrong = removed_by_dedup(table, suggestion)
        assert (suggestion.removed.count, suggestion.wrong) == (count, Rate(wrong, count))
        shares.add(suggestion.wrong)
    assert len(shares) > 2


@pytest.mark.parametrize(
    "setting", ["size=1,width=32,radius=4", "method=minhash,width=32,radius=6"]
)
def test_what_is_removed_by_32_bits_is_what_dedup_removes(setting):
    table = pa.table({"text": templated(90, 1)})
    result = calibrate(table, text="text", settings=[setting], changes=["words=2"], threads=1)
    (suggestion,) = result.suggestions
    count, wrong = removed_by_dedup(table, suggestion)
    assert (suggestion.removed.count, suggestion.wrong) == (count, Rate(wrong, count))
    assert count > 10


def nested(count, seed):
    """Make texts of families, and texts that longer ones contain, wholly or mostly."""
    texts = templated(count, seed)
    return [*texts, *(" ".join(text.split()[:20]) for text in texts[::5]), None, "", *texts[:9]]


RULES = ["method=minhash", "method=minhash,size=2", "method=minhash,shingle=chars,size=5"]


def test_rules_remove_what_dedup_removes():
    table = pa.table({"text": nested(120, 3)})
    settings = ["size=1", *RULES, "method=minhash,width=128", "method=minhash,radius=9"]
    bounds = [f"method=minhash,threshold={bound}" for bound in (0.9, 0.2)]
    result = calibrate(
        table, text="text", settings=[*settings, *bounds], changes=["words=8"], threads=1
    )
    assert sorted(rule.setting.name for rule in result.rules) == sorted([*RULES, RULES[0], *bounds])
    assert [rule.setting.name for rule in result.rules if rule.is_lossless] == RULES[:1]
    counts = set()
    for rule in result.rules:
        bound = {"lossless": True} if rule.is_lossless else {"threshold": rule.setting.threshold}
        done, contained, wrong = judged(
            table, fingerprinter=rule.setting.fingerprinter, estimate=False, **bound
        )
        count = len(done.removed.rows)
        assert rule.removed == Rate(count, result.sample.grouped)
        assert (rule.contained, rule.wrong) == (Rate(contained, count), Rate(wrong, count))
        assert (rule.near, rule.fits) == (done.near, wrong <= 0.05 * count)
        counts.add((count, contained, wrong, done.near))
    assert len(counts) > 4


@pytest.mark.full
def test_rules_find_the_copies_of_which_dedup_removes_one():
    table = pa.table({"text": texts_of(40)})
    changes = ["words=5", "truncate=0.2", "boilerplate=0.3", "typos=0.02"]
    result = calibrate(table, text="text", settings=RULES, changes=changes, copies=8, threads=1)
    items = result.sample.items
    for rule in result.rules:
        for name, pairs in result.sample.copies.items():
            each = [
                fpstore.dedup(
                    pa.table({"text": [items[place] for place in pair]}),
                    text="text",
                    fingerprinter=rule.setting.fingerprinter,
                    lossless=rule.is_lossless,
                    threads=1,
                )
                for pair in pairs.T.tolist()
            ]
            assert rule.copies[name] == Rate(sum(len(one.removed.rows) for one in each), 8)
        assert rule.found == Rate(sum(rate.count for rate in rule.copies.values()), 32)
    assert len({rule.found for rule in result.rules}) == len(result.rules)


def test_the_first_rule_finds_most_of_those_that_fit():
    table = pa.table({"text": nested(120, 3)})
    firsts = set()
    for most in (0, 0.05, 1):
        result = calibrate(
            table, text="text", settings=RULES, changes=["typos=0.03"], most_wrong=most, threads=1
        )
        first, *others = result.rules
        assert [rule.fits for rule in result.rules] == sorted(
            (rule.wrong.count <= most * rule.wrong.total for rule in result.rules), reverse=True
        )
        best = max(rule.found.value for rule in result.rules if rule.fits)
        assert first.found.interval[0] <= best <= first.found.interval[1]
        shares = [rule.found.value for rule in others if rule.fits]
        assert shares == sorted(shares, reverse=True)
        firsts.add(first.setting.name)
    assert len(firsts) > 1


def test_no_suggestion_removes_more_wrongly_than_allowed():
    table = pa.table({"text": templated(150, 4)})
    wide = ["method=minhash,threshold=0.3", "size=1,radius=20"]
    others = ["method=minhash", "method=minhash,threshold=0.9", "size=2,width=128"]
    for most in (0, 0.02, 0.2, 1):
        result = calibrate(
            table,
            text="text",
            settings=[*wide, *others],
            changes=["words=2"],
            most_wrong=most,
            threads=1,
        )
        fits = {
            suggestion.measured.setting.name: suggestion.fits for suggestion in result.suggestions
        }
        assert [*fits.values()] == sorted(fits.values(), reverse=True)
        for suggestion in result.suggestions:
            count, wrong = removed_by_dedup(table, suggestion)
            assert (suggestion.removed.count, suggestion.wrong.count) == (count, wrong)
            assert suggestion.fits == (wrong <= most * count)
        assert [fits[name] for name in wide] == [most == 1] * 2
        assert all(fits[name] for name in others)
        best = max(suggestion.recall.value for suggestion in result.suggestions if suggestion.fits)
        first = result.suggestions[0]
        assert first.recall.interval[0] <= best <= first.recall.interval[1]
        assert first.measured.setting.fingerprinter.name == "minhash"


def test_the_threshold_of_a_radius_gives_it_again():
    table = pa.table({"text": texts_of(20)})
    result = calibrate(table, text="text", changes=["words=2"], threads=1)
    for suggestion in result.suggestions:
        fingerprinter = suggestion.measured.setting.fingerprinter
        assert (suggestion.threshold is None) == (not isinstance(fingerprinter, MinHash))
        if suggestion.threshold is not None:
            assert (
                fingerprinter.radius(suggestion.threshold)
                <= suggestion.radius
                < fingerprinter.radius(suggestion.threshold - 0.01)
            )


def test_a_sample_is_random_and_the_same_again(set_limits):
    table = pa.table({"text": [*texts_of(200), None, " \n", ""]})

    def sampled(size, seed):
        result = calibrate(
            table,
            text="text",
            settings=["size=1"],
            changes=["words=1"],
            sample=size,
            seed=seed,
            threads=1,
        )
        drawn = result.sample
        assert (drawn.documents, drawn.empty) == (200, 3)
        return drawn, [drawn.items[place] for place in drawn.strangers]

    (single, first), (_, again), (_, other) = sampled(50, 1), sampled(50, 1), sampled(50, 2)
    assert first == again != other
    texts_in_order = table["text"].to_pylist()
    assert [text for text in texts_in_order if text in set(first)] == first
    assert (len(first), single.grouped) == (50, 200)
    set_limits(calibration_chars=sum(map(len, filter(None, texts_in_order))) // 2)
    assert 80 < sampled(50, 1)[0].grouped < 120
    long = calibrate(
        pa.table({"text": ["a b " * MAX_TEXT_CHARS, "c d e f g h i j"]}),
        text="text",
        settings=["size=1"],
        changes=["truncate=0.1"],
        threads=1,
    )
    assert len(long.sample.items[0]) == MAX_TEXT_CHARS


def test_threads_do_not_matter():
    table = pa.table({"text": texts_of(80)})
    first, again = (
        calibrate(table, text="text", sample=60, copies=20, threads=threads).to_dict()
        for threads in (1, 2)
    )
    assert first == again
    assert (len(first["settings"]), first["originals"], first["documents"]) == (
        len(SETTINGS),
        60,
        80,
    )
    kinds = first["settings"][0]["by_distance"]
    assert sum(kinds.pop("strangers")) == 60 * 59 / 2
    assert {sum(counts) for counts in kinds.values()} == {20}


def test_near_duplicates_of_the_corpus_are_no_strangers():
    each = texts_of(30)
    results = [
        calibrate(pa.table({"text": corpus}), text="text", settings=["size=1"], threads=1)
        for corpus in (each, [*each, *each])
    ]
    clean, twice = (result.sample for result in results)
    assert (twice.documents, len(twice.strangers), twice.alike) == (60, 30, 30)
    assert twice.items == [*each, *clean.items]
    assert twice.strangers.tolist() == clean.strangers.tolist()
    (suggestion,) = results[1].suggestions
    assert (suggestion.removed, suggestion.wrong) == (Rate(30, 60), Rate(0, 30))
    with pytest.raises(InputError, match="all 2 items of the sample resemble each other"):
        calibrate(pa.table({"text": [each[0], each[0] + " more"]}), text="text")


def test_settings_are_lists_of_parameters_or_fingerprinters():
    table = pa.table({"text": texts_of(10)})
    made = [SimHash(size=1), "size=2,case=keep"]
    result = calibrate(table, text="text", settings=made, threads=1)
    listed, named = sorted(suggestion.measured.setting.name for suggestion in result.suggestions)
    assert (listed.startswith("simhash shingle=auto, size=1"), named) == (True, "size=2,case=keep")
    assert parse_setting("size=2,case=keep").fingerprinter == SimHash(size=2, case="keep")
    minhash = parse_setting("method=minhash,threshold=0.7")
    assert (minhash.fingerprinter, minhash.radius, minhash.threshold) == (MinHash(), 50, 0.7)
    simhash = parse_setting("width=128,radius=9")
    assert (simhash.fingerprinter, simhash.radius) == (SimHash(width=128), 9)


def test_a_reservoir_has_the_things_of_the_least_numbers():
    rng = random.Random(8)
    for size, most, limit in ((3, 3, 0), (5, 40, 300), (20, 400, 900), (1, 10, 10)):
        draws, held = Draws(1, "any"), Reservoir[int](size, Draws(1, "any"), most, limit)
        weights, words = [], []
        for place in range(300):
            weights.append(rng.choice((1, 2, 90)))
            words.append(draws.word())
            held.add(place, weights[-1])
            chosen = held.sample()
            assert set(chosen) == set(
                sorted(range(place + 1), key=words.__getitem__)[: len(chosen)]
            )
            assert chosen == sorted(chosen)
            assert min(size, place + 1) <= len(chosen) <= most
            assert len(chosen) <= size or sum(weights[item] for item in chosen) <= limit
            assert [chosen[at] for at in held.part()] == sorted(
                sorted(range(place + 1), key=words.__getitem__)[:size]
            )


def test_what_cannot_be_measured_is_refused():
    for text, message in (
        ("", "parameters are shingle, size"),
        ("sise=1", "parameters are"),
        ("size", "parameters are"),
        ("size=1,size=2", "size twice"),
        ("method=minhash,method=simhash", "method twice"),
        ("method=x", "method must be"),
        ("size=2,threshold=0.7", "for method=minhash"),
        ("method=minhash,threshold=0.7,radius=9", "without a radius"),
        ("method=minhash,threshold=2", "threshold must be"),
        ("radius=65", "radius"),
        ("radius=x", "radius"),
        ("size=0", "size must be"),
        ("shingle=bytes", "shingle must"),
        ("size=x", "size must"),
    ):
        with pytest.raises(InputError, match=message):
            parse_setting(text)
    for each, message in (
        ([], "at least 2 with text are needed, got 0"),
        (["one text"], "got 1"),
        ([None, " ", "one text"], "got 1"),
        (["a", "b"], "no document of the sample can be changed"),
        (["one two three four five"] * 3, "all 3 items of the sample resemble each other"),
        (["?!?!?!?!", "!?!?!?!?!?", "\u2014 \u2014"], "no document|resemble"),
    ):
        table = pa.table({"text": pa.array(each, "string")})
        with pytest.raises(InputError, match=message):
            calibrate(table, text="text", settings=["shingle=words"], changes=["words=1"])
    for arguments, message in (
        ({"sample": 1}, "sample must be"),
        ({"copies": 0}, "copies must be"),
        ({"resemblance": 0}, "resemblance must be"),
        ({"settings": []}, "settings is empty"),
        ({"settings": [7]}, "a setting is a str"),
        ({"seed": -1}, "seed must be"),
        ({"most_wrong": 2}, "most_wrong must be"),
        ({"text": None}, "name the column of texts"),
        ({"progress": 1}, "progress must be"),
        ({"changes": ["x=1"]}, "a change is one"),
        ({"settings": [ImageHash()]}, "a fingerprinter of texts"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate(pa.table({"text": texts_of(4)}), **{"text": "text", **arguments})
