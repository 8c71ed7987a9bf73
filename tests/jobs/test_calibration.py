"""Calibrations against brute force.

Distances, resemblance, intervals, tails, removals, samples and labels.
"""

import random
from itertools import combinations
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats
from speeds import SOME_WIDTHS, crossed

import fpstore
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.calibration import calibrate, job, samples
from fpstore.calibration.advice import SAME_PRICE, TRIES, Wish
from fpstore.calibration.evidence import evidence_of_changes, fingerprints_of
from fpstore.calibration.measures import LEAST_MET, Rate, Tail, all_distances, distances
from fpstore.calibration.measures import measured as measured_by
from fpstore.calibration.perturbations import CHANGES, Material, parse_change
from fpstore.calibration.removal import CountedSample, SampleRemovals
from fpstore.calibration.resemblance import CHARACTERS, resembling_pairs, shingle_sets
from fpstore.calibration.samples import LONGEST, sample_of
from fpstore.calibration.seeded import Draws, Reservoir
from fpstore.calibration.settings import SETTINGS, Setting, parse_setting
from fpstore.errors import InputError
from fpstore.hashing import Fingerprinter, ImageHash, MinHash, SimHash
from fpstore.hashing.base import Hashed
from fpstore.hashing.corpora import open_source
from fpstore.io.source import Projection

ONE_THREAD = Resources(0, 1)


class Letters(Fingerprinter[str]):
    """Fingerprints of any width: bit i tells whether the letter number i is in the text.

    None for a text without letters.
    """

    name: ClassVar[str] = "letters"
    version: ClassVar[int] = 1
    parameters: ClassVar = {}

    def __init__(self, bits):
        self.bits = bits

    @property
    def width(self):
        return self.bits

    def number(self, text):
        return sum(1 << (ord(char) * 37 % self.bits) for char in set(text) if char.isalpha())

    def hashed(self, items):
        values = [self.number(text) for text in items]
        return Hashed(Width(self.bits).rows(values), np.array([value != 0 for value in values]))

    def batches(self, items):
        return SimHash().batches(items)

    def lack(self, item):
        return "no letters"


def measured(evidence, setting):
    return measured_by(evidence, setting, fingerprints_of(evidence.items, setting, 1))


def texts_of(count, seed=1, words=60):
    rng = random.Random(seed)
    vocabulary = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(500)
    ]
    return [" ".join(rng.choices(vocabulary, k=words)) + "." for _ in range(count)]


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_distances_of_rows(width):
    rng = random.Random(width)
    for count in (0, 1, 2, 50, 1500):
        values = [rng.getrandbits(width) & rng.getrandbits(width) for _ in range(count)]
        if count > 100:
            # few are different, so that brute force is quick
            values[7:] = [values[place % 40] for place in range(7, count)]
        rows = Width(width).rows(values)
        table = {(a, b): (a ^ b).bit_count() for a in set(values) for b in set(values)}
        counts = [0] * (width + 1)
        for a, b in combinations(values, 2):
            counts[table[a, b]] += 1
        assert all_distances(rows, width).tolist() == counts
        assert distances(rows, rows[::-1]).tolist() == [
            table[pair] for pair in zip(values, values[::-1], strict=True)
        ]


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
        found = set(map(tuple, resembling_pairs(texts, least).T.tolist()))
        assert found == {pair for pair, share in true.items() if share >= least}
        assert found
    places = np.array([*true]).T
    assert shingle_sets(texts, CHARACTERS).similarities(*places).tolist() == pytest.approx(
        [*true.values()]
    )


def test_intervals_are_wilsons():
    for found, total in ((0, 1), (1, 1), (0, 1000), (3, 10), (999, 1000), (123456, 10**6)):
        expected = scipy.stats.binomtest(found, total).proportion_ci(method="wilson")
        assert Rate(found, total).interval == pytest.approx((expected.low, expected.high), abs=1e-7)
        assert Rate(found, total).value == found / total
    assert Rate(0, 0).interval == (0, 1)
    assert np.isnan(Rate(0, 0).value)


def test_the_tail_is_observed_where_it_can_be_and_beta_binomial_below():
    for spread in (0.01, 0.1):
        rng = np.random.default_rng(3)
        a = b = (1 / spread - 1) / 2
        sample = rng.binomial(64, rng.beta(a, b, 200_000))
        tail = Tail(np.bincount(sample, minlength=65))
        for radius in range(65):
            observed = np.sum(sample <= radius)
            assert tail.is_observed(radius) == (observed >= LEAST_MET)
            if observed >= LEAST_MET:
                assert tail.share(radius) == observed / len(sample)
            else:
                true = scipy.stats.betabinom.cdf(radius, 64, a, b)
                # at most twice, where nothing was observed
                assert tail.share(radius) == pytest.approx(true, rel=1)
    for odd in (
        [0] * 64 + [5],
        [7] + [0] * 64,
        [0] * 32 + [1] + [0] * 32,
        [1] * 65,
        [3] + [0] * 63 + [3],
    ):
        shares = [Tail(np.array(odd)).share(radius) for radius in range(65)]
        assert shares == sorted(shares)
        assert 0 <= shares[0] <= shares[-1] == 1


@pytest.mark.parametrize("width", SOME_WIDTHS)
def test_distances_are_those_of_brute_force(width):
    texts = [*texts_of(12, words=8), "...", "1 2 3 4 5 6 7 8 9"]
    maker = Letters(width)
    changes = [parse_change(text) for text in ("words=1", "typos=0.2", "truncate=0.4", "numbers=1")]
    evidence = evidence_of_changes(texts, changes, 10, 3, 0.5, ONE_THREAD)
    found = measured(evidence, Setting("letters", maker))
    assert evidence.items[:14] == texts
    assert {name: pairs.shape[1] for name, pairs in evidence.duplicates.items()} == {
        "words 1": 10,
        "typos 20%": 10,
        "truncate 40%": 10,
        "numbers 100%": 1,
    }
    for name, pairs in evidence.duplicates.items():
        change = changes[[one.name for one in changes].index(name)]
        counts, missed = [0] * (width + 1), 0
        for place, other in pairs.T.tolist():
            assert evidence.items[other] == change.copy(Material(texts), place, 3)
            a, b = maker.number(texts[place]), maker.number(evidence.items[other])
            counts[(a ^ b).bit_count()] += bool(a and b)
            missed += not (a and b)
        assert found.duplicates[name].counts.tolist() == counts
        assert found.duplicates[name].missed == missed
    strangers = [0] * (width + 1)
    left_out = set(map(tuple, evidence.resembling.T.tolist()))
    for a, b in combinations(range(14), 2):
        values = [maker.number(texts[place]) for place in (a, b)]
        if all(values) and (a, b) not in left_out:
            strangers[(values[0] ^ values[1]).bit_count()] += 1
    assert found.strangers.counts.tolist() == strangers
    assert found.recall(width) == Rate(sum(found.all_duplicates.counts), 31)


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


MAKERS = [MinHash(), MinHash(width=128), SimHash(size=2), SimHash(width=256)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("maker", "group"), crossed(MAKERS, ["greedy", "connected"]))
def test_what_is_removed_is_what_dedup_removes(maker, group):
    documents = [*templated(70, 1), "", *templated(50, 1)]
    changes = [parse_change(text) for text in ("words=2", "typos=0.03")]
    looked_at = range(10, 100)
    evidence = evidence_of_changes(documents, changes, 20, 3, 0.5, ONE_THREAD, looked_at)
    assert set(evidence.items[: evidence.documents]) <= {documents[place] for place in looked_at}
    assert [evidence.items[place] for place in evidence.drawn] == documents
    assert evidence.alike > 20
    wish = Wish(200, resemblance=0.6, group=group)
    hashed = fingerprints_of(evidence.items, Setting("any", maker), 1)
    counts = SampleRemovals(CountedSample(evidence, wish, 1), hashed, maker.width)
    copies = {
        place: text for place, text in enumerate(evidence.items) if place not in evidence.drawn
    }
    place_of = [
        *(place for place in evidence.drawn.tolist() if place < evidence.documents),
        *copies,
    ]
    everywhere = set()
    for radius in range(0, maker.width // 3, maker.width // 16):

        def removed(texts, radius=radius):
            table = pa.table({"text": texts})
            found = fpstore.dedup(
                table, text="text", fingerprinter=maker, radius=radius, group=group, threads=1
            ).removed
            return dict(zip(found.rows.tolist(), found.kept_rows.tolist(), strict=True))

        gone = removed(documents)
        pairs = [(documents[row], documents[kept]) for row, kept in gone.items()]
        words, chars = ([share(cut(a), cut(b)) for a, b in pairs] for cut in (triples, shingles_of))
        found = counts.at(radius)
        assert found == (
            len(gone),
            sum(one < 0.6 for one in words),
            sum(one < 0.6 for one in chars),
            120,
        )
        everywhere.add(found.wrong)
        gone = removed([evidence.items[place] for place in place_of])
        gone = {place_of[row]: place_of[kept] for row, kept in gone.items()}
        both = np.concatenate([*evidence.duplicates.values()], axis=1).T.tolist()
        right = sum(
            any(place in gone and gone[place] not in copies for place in pair) for pair in both
        )
        assert counts.found(radius) == Rate(right, len(both))
    assert len(everywhere) > 2


@pytest.mark.full
@pytest.mark.parametrize("recall", [None, 0.6])
def test_no_suggestion_removes_more_wrongly_than_it_may(recall):
    table = pa.table({"text": templated(150, 4)})
    wide = ["method=minhash,threshold=0.3", "size=1,radius=20"]
    settings = [
        *wide,
        "method=minhash",
        "method=minhash,threshold=0.9",
        "size=2,width=128",
        "size=1",
    ]
    for most in (0, 0.02, 0.2, 1):
        asked = {
            "text": "text",
            "settings": settings,
            "changes": ["words=2"],
            "recall": recall,
            "false_pairs": 1e6,
            "threads": 1,
        }
        found = calibrate(table, most_wrong=most, **asked)
        assert [one.fits for one in found.suggestions] == sorted(
            (one.fits for one in found.suggestions), reverse=True
        )
        for one in found.suggestions:
            if one.radius is None:
                assert (one.fits, one.removal, one.recall.value < recall) == (False, None, True)
                continue
            gone = fpstore.dedup(
                table,
                text="text",
                fingerprinter=one.measured.setting.fingerprinter,
                radius=one.radius,
                group="greedy",
                threads=1,
            ).removed
            rows = zip(gone.rows.tolist(), gone.kept_rows.tolist(), strict=True)
            texts = table["text"].to_pylist()
            wrong = sum(share(triples(texts[a]), triples(texts[b])) < 0.5 for a, b in rows)
            assert one.removal[:2] == (len(gone), wrong)
            assert one.fits == (wrong <= most * len(gone))
            assert recall is None or one.measured.recall(one.radius).value >= recall
        radii = {one.measured.setting.name: one.radius for one in found.suggestions}
        fits = {one.measured.setting.name: one.fits for one in found.suggestions}
        assert radii["method=minhash,threshold=0.3"] == MinHash().radius(0.3)
        assert [fits[name] for name in wide] == [most == 1] * 2
        if recall is None:
            assert fits["method=minhash,threshold=0.9"]
            assert all(fits[name] for name in settings if name not in wide)
            best = max(
                (one.recall for one in found.suggestions if one.fits), key=lambda rate: rate.value
            )
            as_good = [
                one
                for one in found.suggestions
                if one.fits and one.recall.value >= best.interval[0]
            ]
            least = min(one.plan.microseconds for one in as_good)
            methods = {
                one.measured.setting.name: one.measured.setting.fingerprinter.name
                for one in as_good
                if one.plan.microseconds <= SAME_PRICE * least
            }
            # minhash, if it is among them
            assert methods[found.suggestions[0].measured.setting.name] == min(methods.values())


@pytest.mark.full
def test_the_suggestion_is_counted_on_the_whole_corpus(monkeypatch):
    table = pa.table({"text": [*templated(330, 9), None, "...", *templated(60, 9)]})

    def found(whole, most, *settings):
        monkeypatch.setattr(job, "WHOLE", whole)
        asked = {
            "sample": 30,
            "settings": settings,
            "changes": ["words=2"],
            "false_pairs": 1e6,
            "threads": 1,
        }
        rows = []
        each = calibrate(
            table,
            text="text",
            most_wrong=most,
            **asked,
            progress=lambda *at: rows.append(at[1::-1]),
        ).suggestions
        readings = sum(one == (len(table), "verifying") for one in rows)
        assert readings == (whole > 390 if len(settings) == 1 else readings) <= TRIES
        return each

    def removal(one):
        maker, least = one.measured.setting.fingerprinter, one.radius
        gone = fpstore.dedup(
            table, text="text", fingerprinter=maker, radius=least, group="greedy", threads=1
        ).removed
        texts = [triples(text or "") for text in table["text"].to_pylist()]
        pairs = zip(gone.rows.tolist(), gone.kept_rows.tolist(), strict=True)
        return len(gone), sum(share(texts[a], texts[b]) < 0.5 for a, b in pairs)

    shares = {}
    for radius in (48, 56, 64):
        setting = f"method=minhash,radius={radius}"
        (of_sample,), (of_corpus,) = found(390, 1, setting), found(391, 1, setting)
        assert (of_sample.removal.of, of_corpus.removal.of) == (300, 391)
        assert of_corpus.removal[:2] == removal(of_corpus)
        assert of_corpus.recall == of_sample.recall
        shares[radius] = of_sample.wrong, of_corpus.wrong
    radius, (low, high) = max(shares.items(), key=lambda one: one[1][1] - one[1][0])
    assert low < high
    settings = (
        f"method=minhash,radius={radius}",
        "method=minhash,radius=20",
        "method=minhash,size=2",
    )
    for whole, last in ((390, None), (391, settings[0])):
        each = found(whole, (low + high) / 2, *settings)
        assert [one.measured.setting.name for one in each if not one.fits] == (
            [] if last is None else [last]
        )
        assert each[0].fits
    assert each[0].removal[:2] == removal(each[0])
    assert each[0].removal.of == 391


def test_a_sample_is_random_and_the_same_again(monkeypatch):
    table = pa.table({"text": [*map(str, range(1000)), None, " \n", ""]})
    found = [
        sample_of(open_source(table), Projection(text="text"), 100, seed) for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    texts, looked_at, facts, _ = found[0]
    assert len(texts) == 1000
    texts = [texts[place] for place in looked_at]
    assert (facts.documents, facts.empty) == (1000, 3)
    numbers = list(map(int, texts))
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 100
    assert 400 < np.mean(numbers) < 600
    everything, *_ = sample_of(open_source(table), Projection(text="text"), 5000, 1)
    assert everything == [*map(str, range(1000))]
    monkeypatch.setattr(samples, "COUNTED_CHARS", 600)  # of about 2.9 each
    by_size = [
        sample_of(open_source(table), Projection(text="text"), size, 1) for size in (50, 100, 400)
    ]
    assert [len(one.texts) for one in by_size] == [len(by_size[0].texts)] * 2 + [400]
    assert 190 < len(by_size[0].texts) < 220 >= sum(map(len, by_size[0].texts)) / 3
    chosen = [{one.texts[place] for place in one.looked_at} for one in by_size]
    assert (len(chosen[0]), chosen[0] < chosen[1] < chosen[2]) == (50, True)
    assert chosen[1] == set(map(str, numbers))
    long, _, facts, _ = sample_of(
        open_source(pa.table({"text": ["a " * LONGEST, "b"]})), Projection(text="text"), 10, 1
    )
    assert (facts.shortened, [len(text) for text in long]) == (1, [LONGEST, 1])


def test_a_reservoir_has_the_things_of_the_least_numbers():
    rng = random.Random(8)
    for size, most, limit in ((3, 3, 0), (5, 40, 300), (20, 400, 900), (1, 10, 10)):
        draws, held = Draws(1, "any"), Reservoir[int](size, Draws(1, "any"), most, limit)
        weights, words = [], []
        for place in range(300):
            weights.append(rng.choice((1, 2, 90)))
            words.append(draws.word())
            held.see(place, weights[-1])
            chosen = held.sample()
            assert set(chosen) == set(
                sorted(range(place + 1), key=words.__getitem__)[: len(chosen)]
            )
            assert chosen == sorted(chosen)
            assert min(size, place + 1) <= len(chosen) <= most
            assert len(chosen) <= size or sum(weights[one] for one in chosen) <= limit
            assert [chosen[at] for at in held.part()] == sorted(
                sorted(range(place + 1), key=words.__getitem__)[:size]
            )


def test_calibrations_are_the_same_again_and_threads_do_not_matter():
    table = pa.table({"text": texts_of(80)})
    first, again = (
        calibrate(table, text="text", sample=60, copies=20, threads=threads).to_dict()
        for threads in (1, 2)
    )
    assert first == again
    assert [len(first["settings"]), first["sample"], first["documents"]] == [len(SETTINGS), 60, 80]
    kinds = first["settings"][0]["duplicates"]
    assert list(kinds) == [
        change.name
        for change in CHANGES
        if change.kind not in ("drop", "swap", "repeat", "numbers")
    ]
    assert all(each["pairs"] == 20 for each in kinds.values())
    assert all(sum(one["strangers"]["by_distance"]) == 60 * 59 / 2 for one in first["settings"])


def test_near_duplicates_of_the_corpus_are_no_strangers():
    texts = texts_of(30)
    clean, found = (
        calibrate(pa.table({"text": each}), text="text", settings=["size=1"], threads=1)
        for each in (texts, [*texts, *texts])
    )
    assert (found.facts.documents, found.evidence.documents, found.evidence.alike) == (60, 30, 30)
    assert found.evidence.items == [*clean.evidence.items, *texts]
    assert [one.removal for one in found.suggestions] == [(30, 0, 0, 60)]
    with pytest.raises(InputError, match="all 2 documents of the sample resemble each other"):
        calibrate(pa.table({"text": [texts[0], texts[0] + " more"]}), text="text")


def test_settings_are_rows_of_data_or_fingerprinters():
    table = pa.table({"text": texts_of(10)})
    found = calibrate(
        table, text="text", settings=[Letters(256), SimHash(size=1), "size=2,case=keep"], threads=1
    )
    widths = {one.measured.setting.name: one.measured.width for one in found.suggestions}
    assert widths.pop("letters") == 256
    assert widths.pop("size=2,case=keep") == 64
    assert next(iter(widths)).startswith("simhash shingle=auto, size=1")
    assert parse_setting("size=2,case=keep").fingerprinter == SimHash(size=2, case="keep")
    assert len({parse_setting(text)[1:3] for text in SETTINGS}) == len(SETTINGS)
    assert parse_setting("method=minhash,threshold=0.7")[1:] == (MinHash(), 50, 0.7)
    assert parse_setting("width=128,radius=9")[1:] == (SimHash(width=128), 9, None)


STORIES = texts_of(6)


@pytest.mark.parametrize("ids", [False, True])
def test_labelled_pairs(ids):
    a, b, c, d, e, f = STORIES
    rows = [
        (a, a + " end", 1),
        (b, c, 0),
        (b, b, 1),
        (d, d.upper(), 1),
        (None, a, 1),
        (e, f, None),
        (e, f, 0),
    ]
    if ids:
        known = {
            text: str(number)
            for number, text in enumerate(sorted({x for row in rows for x in row[:2] if x}))
        }
        corpus = pa.table({"key": [*known.values(), "alone"], "body": [*known, "another text"]})
        pairs = pa.table(
            {
                "a": [known.get(x) for x, _, _ in rows],
                "b": [known[y] for _, y, _ in rows],
                "label": [n for *_, n in rows],
            }
        )
        found = calibrate(
            corpus, text="body", id="key", pairs=pairs, settings=["size=1"], threads=1
        )
        assert found.facts.documents == 9
    else:
        pairs = pa.table(
            {
                "text_a": [x for x, _, _ in rows],
                "text_b": [y for _, y, _ in rows],
                "label": [n for *_, n in rows],
            }
        )
        found = calibrate(pairs=pairs, settings=["size=1"], threads=1)
    maker = SimHash(size=1)
    one = found.suggestions[0].measured
    apart = {
        label: sorted(
            (maker.fingerprint(x) ^ maker.fingerprint(y)).bit_count()
            for x, y, n in rows
            if n == label and x
        )
        for label in (0, 1)
    }
    assert np.repeat(range(65), one.duplicates["labelled"].counts).tolist() == apart[1]
    assert np.repeat(range(65), one.different.counts).tolist() == apart[0]
    texts = found.evidence.items
    assert sorted(texts) == sorted({x for row in rows for x in row[:2] if x})
    alike = {frozenset(row[:2]) for row in rows if row[2] == 1}
    assert one.strangers.within(64).total == sum(
        {x, y} not in alike for x, y in combinations(texts, 2)
    )


def test_wrong_labels_are_refused():
    def refused(told, pairs, source=None, **arguments):
        with pytest.raises(InputError, match=told):
            calibrate(source, pairs=pa.table(pairs), **arguments)

    refused(
        "label of row 2 must be 1",
        {"text_a": ["a", "c"], "text_b": ["b", "d"], "label": [1, 1 + 2**-52]},
    )
    refused("no pair has the label 1", {"text_a": ["a"], "text_b": ["b"], "label": [0]})
    refused("text_a", {"a": ["a"], "b": ["b"], "label": [1]})
    corpus = pa.table({"key": ["1"], "body": ["text"]})
    refused(
        "no document of the corpus has the id '2'",
        {"a": ["1"], "b": ["2"], "label": [1]},
        corpus,
        text="body",
        id="key",
    )
    refused(
        "need the column of the ids", {"a": ["1"], "b": ["2"], "label": [1]}, corpus, text="body"
    )
    refused(
        "changes are made in copies",
        {"text_a": ["a"], "text_b": ["b"], "label": [1]},
        changes=["words=1"],
    )


def test_what_cannot_be_measured_is_refused():
    for text, told in (
        ("", "parameters are shingle, size"),
        ("sise=1", "parameters are"),
        ("size", "parameters are"),
        ("size=1,size=2", "size twice"),
        ("method=minhash,method=simhash", "method twice"),
        ("method=x", "method must be"),
        ("size=2,threshold=0.7", "for method=minhash"),
        ("method=minhash,threshold=0.7,radius=9", "one follows from the other"),
        ("method=minhash,threshold=2", "threshold must be"),
        ("radius=65", "radius"),
        ("radius=x", "radius"),
        ("size=0", "size must be"),
        ("shingle=bytes", "shingle must"),
        ("size=x", "size must"),
    ):
        with pytest.raises(InputError, match=told):
            parse_setting(text)
    for texts, told in (
        ([], "at least 2 with text are needed, got 0"),
        (["one text"], "got 1"),
        ([None, " ", "one text"], "got 1"),
        (["a", "b"], "no document of the sample can be changed"),
        (["one two three four five"] * 3, "all 3 documents of the sample resemble each other"),
        (["?!?!?!?!", "!?!?!?!?!?", "\u2014 \u2014"], "no document|resemble"),
    ):
        table = pa.table({"text": pa.array(texts, "string")})
        with pytest.raises(InputError, match=told):
            calibrate(table, text="text", settings=["shingle=words"], changes=["words=1"])
    with pytest.raises(InputError, match="nothing to measure"):
        calibrate()
    for arguments, told in (
        ({"sample": 1}, "sample must be"),
        ({"copies": 0}, "copies must be"),
        ({"resemblance": 0}, "resemblance must be"),
        ({"recall": 1.5}, "recall must be"),
        ({"false_pairs": 0}, "false_pairs must be"),
        ({"documents": 1}, "documents must be"),
        ({"settings": []}, "no setting is given"),
        ({"settings": [7]}, "a setting is a str"),
        ({"seed": -1}, "seed must be"),
        ({"most_wrong": 2}, "most_wrong must be"),
        ({"group": "chains"}, "group must be"),
        ({"text": None}, "say what is measured"),
        ({"progress": 1}, "progress must be"),
        ({"changes": ["x=1"]}, "a change is one"),
        ({"settings": [ImageHash()]}, "a fingerprinter of texts"),
    ):
        with pytest.raises(InputError, match=told):
            calibrate(pa.table({"text": texts_of(4)}), **{"text": "text", **arguments})
