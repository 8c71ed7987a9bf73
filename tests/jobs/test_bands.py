"""Bands of MinHash: keys as described, all pairs that share one, their law, and `dedup`."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from commandline import failure, run
from contained_texts import shares
from speeds import full, slow

import fpstore
from fpstore import InputError, MinHash, SimHash
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.hashing import Fields
from fpstore.hashing.bands import Bands, plan_bands
from fpstore.hashing.minhash import BandedMinHash
from fpstore.jobs import bands as bands_job
from fpstore.jobs.bands import BandKeys, connect_by_bands


def sets_of_pairs(pairs, common, n):
    """Return pairs of sets of n features that have some in common."""
    sets = [[f"{pair}-{i}" for i in range(2 * n - common)] for pair in range(pairs)]
    return [part[:n] for part in sets], [part[n - common :] for part in sets]


def keys_of(fingerprinter, items):
    result = fingerprinter.hashed(next(fingerprinter.batches(items)))
    words = Width(fingerprinter.width).words
    return result.rows[:, :words].reshape(len(items), words), result.rows[:, words:]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "weighting"), [(64, "set"), (256, "set"), (128, "count")])
def test_band_keys_follow_the_rows_and_are_shared_by_the_law(width, weighting):
    """The fingerprints are those of the hasher without bands."""
    minhash = MinHash(width=width, weighting=weighting)
    fingerprinter, pairs = minhash.with_bands(Bands(8, 3)), 400 if weighting == "set" else 60
    left, right = sets_of_pairs(pairs, 12, 15)
    (rows, a), (_, b) = keys_of(fingerprinter, left), keys_of(fingerprinter, right)
    assert (rows.reshape(-1) == minhash.hashed(next(minhash.batches(left))).rows.reshape(-1)).all()
    share = (12 / 18) ** 3
    # the bands of a pair depend on each other
    assert abs((a == b).mean() - share) < 5 * math.sqrt(share * (1 - share) / pairs)
    assert len(np.unique(a)) == a.size  # no key of one band is that of another


def test_texts_rows_and_lists_of_features_have_the_same_keys():
    fingerprinter = MinHash(size=2).with_bands(Bands(5, 4))
    text = "it was the best of times it was the worst of times"
    features = [list(fingerprinter.features(text))]
    assert (
        fingerprinter.hashed([text]).rows
        == fingerprinter.hashed(next(fingerprinter.batches(features))).rows
    ).all()
    fields = Fields(MinHash(size=2), {"a": 1, "b": 1}).with_bands(Bands(5, 4))
    assert isinstance(fields.fingerprinter, BandedMinHash)
    assert (fields.hashed([(text, None)]).rows == fingerprinter.hashed([text]).rows).all()
    by_python = MinHash(size=2, hash="md5").with_bands(Bands(5, 4))
    assert by_python.hashed([text, ""]).rows.shape == (2, 9)
    assert by_python.hashed([text, ""]).known.tolist() == [True, False]


def test_planned_bands_are_the_longest_that_suffice():
    for jaccard, recall in itertools.product(
        (0.05, 0.3, 0.5, 0.7, 0.8, 0.95, 1), (0.5, 0.9, 0.995)
    ):
        sizes = [(size, 256 // size) for size in range(1, 257)]
        longest = max(size for size, most in sizes if 1 - (1 - jaccard**size) ** most >= recall)
        result = plan_bands(jaccard, recall)
        assert result.size == longest
        assert result.recall(jaccard) >= recall
        assert result.number == 1 or Bands(result.number - 1, result.size).recall(jaccard) < recall
    assert plan_bands(0.01, 0.995) is None
    assert plan_bands(0, 0.5) is None


def connected_by_brute_force(rows, keys, searched, radius):
    """Return the first document that is connected with each, by comparing all pairs."""
    least = list(range(len(rows)))

    def root(i):
        return i if least[i] == i else root(least[i])

    each = rows.reshape(len(rows), -1)
    distances = np.bitwise_count(each[:, None] ^ each).sum(2, dtype=np.uint16)
    joined = (distances == 0) | (distances <= radius) & (keys[:, None] == keys).any(2)
    for i, j in np.argwhere(np.triu(joined & searched & searched[:, None], 1)).tolist():
        a, b = sorted((root(i), root(j)))
        least[b] = a
    return [root(i) for i in range(len(rows))]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("held", [1 << 20, 1 << 12])
@pytest.mark.parametrize("most", [2, 5, 1 << 10])
@pytest.mark.parametrize("width", [64, full(128), full(256)])
def test_all_pairs_that_share_a_key_are_connected(width, most, held, set_limits):
    """By comparing all pairs.

    Groups above the bound are joined, and what does not fit into the budget is sorted in runs.
    """
    set_limits(band_documents=most, band_rows=64)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, number, words = int(rng.integers(0, 220)), int(rng.integers(1, 5)), width // 64
        # few bits differ, some rows are equal
        rows = rng.integers(0, 2**64, (n, words), dtype=np.uint64) & np.uint64(7)
        rows = rows[:, 0] if words == 1 else rows
        keys = rng.integers(0, 12, (n, number), dtype=np.uint64) << np.uint64(50)
        searched = None if seed % 3 else rng.random(n) < 0.7
        spooled = BandKeys(number)
        for start in range(0, n, 40):
            spooled.add(keys[start : start + 40])
        spooled.finish()
        labels = connect_by_bands(
            rows, searched, spooled, 2, Width(width), Resources(held, 1 + seed % 2)
        )
        every = np.ones(n, bool) if searched is None else searched
        assert labels.tolist() == connected_by_brute_force(rows, keys, every, 2)


def test_fingerprints_with_one_hash_are_told_apart(monkeypatch):
    """Every two of them meet where equal ones are united, and only equal ones are."""
    monkeypatch.setattr(bands_job, "row_hashes", lambda rows: np.full(len(rows), 9, np.uint64))
    rows = np.random.default_rng(1).integers(0, 4, (50, 4), np.uint64)
    keys = BandKeys(1)
    keys.add(np.arange(50, dtype=np.uint64)[:, None])
    keys.finish()
    labels = connect_by_bands(rows, None, keys, 256, Width(256), Resources(1 << 20, 1))
    assert labels.tolist() == [
        next(j for j in range(50) if (rows[j] == rows[i]).all()) for i in range(50)
    ]
    assert len(set(labels.tolist())) < 50


def test_an_array_that_does_not_fit_is_refused():
    sets = fpstore._kernel.Sets(3)
    rows, lims = np.arange(2, dtype=np.uint64), np.array([0, 2], np.uint64)
    for part, members, bounds, error in (
        (rows[:1], [0, 1], lims, ValueError),
        (rows, [0, 3], lims, IndexError),
        (rows, [0, 1], np.array([0, 3], np.uint64), ValueError),
        (rows, [0, 1], np.array([1, 0, 2], np.uint64), ValueError),
    ):
        with pytest.raises(error):
            sets.link_groups(part, np.array(members, np.uint64), bounds, 3, 10)
    with pytest.raises(IndexError):
        sets.least(np.array([0, 3], np.uint64))
    with pytest.raises(ValueError, match="bands of too many functions"):
        fpstore._kernel.minhash_features(rows, np.empty(0), 0, 1, 65536, 65537)


def planted(path, pairs, rng, share):
    """Write texts and a copy of each in which a share of the words differs.

    Return the number of texts.
    """
    with path.open("w") as file:
        for n in range(pairs):
            words = [f"w{i}" for i in rng.integers(0, 5000, 200).tolist()]
            copy = [f"x{n}-{i}" if rng.random() < share else word for i, word in enumerate(words)]
            for name, part in (("a", words), ("b", copy)):
                file.write(
                    json.dumps({"id": f"{name}{n}", "title": words[0], "text": " ".join(part)})
                    + "\n"
                )
    return 2 * pairs


@pytest.mark.full
def test_dedup_finds_the_share_that_it_tells(tmp_path):
    rng, pairs = np.random.default_rng(7), 600
    planted(tmp_path / "c.jsonl", pairs, rng, 0.062)  # a similarity of about 0.7
    lines = (tmp_path / "c.jsonl").read_text().splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    alike = {n for n in range(pairs) if shares(texts[2 * n], texts[2 * n + 1])[1] >= 0.7}
    result = fpstore.dedup(tmp_path / "c.jsonl", text="text", threshold=0.7, search="bands")
    clusters = set(map(tuple, result.clusters))
    assert clusters <= {(2 * n, 2 * n + 1) for n in range(pairs)}
    near = alike & {row // 2 for row, _ in clusters}
    assert len(alike) > pairs // 3
    assert len(near) >= 0.98 * len(alike) - 5 * math.sqrt(0.02 * len(alike))


def test_many_rows_use_bands_and_a_note_states_the_law(tmp_path, monkeypatch, set_limits):
    monkeypatch.chdir(tmp_path)
    rows = planted(tmp_path / "c.jsonl", 40, np.random.default_rng(3), 0.01)

    def told(output, *options):
        words = ("--text-field", "text", "--estimate", "--json", "--force")
        result = run("dedup", "c.jsonl", output, *words, *options)
        return json.loads(result.stdout), result.stderr

    for most, how in ((rows, "exact"), (rows // 2, "bands")):
        set_limits(exact_rows=most)
        outcome, notes = told(f"{how}.jsonl")
        assert (outcome["search"], outcome["radius"], outcome["removed"]) == (
            how,
            {"exact": 50, "bands": 51}[how],
            40,
        )
        assert outcome["recall"] > 0.98
    assert notes == (
        "fpstore: texts are compared if they share one of 29 bands of 5 minima: 98.2% of the "
        "pairs of similarity 0.7 are found\n"
    )
    assert (tmp_path / "exact.jsonl").read_bytes() == (tmp_path / "bands.jsonl").read_bytes()
    # as the radius is asked for
    assert told("exact.jsonl", "--radius", "30")[0]["search"] == "exact"
    assert told("narrow.jsonl", "--width", "32")[0]["search"] == "exact"
    outcome, notes = told("fixed.jsonl", "--radius", "30", "--search", "bands")
    assert (outcome["radius"], outcome["removed"]) == (30, 40)
    assert told("titles.jsonl", "--text-field", "title", "--search", "bands")[0]["removed"] == 40


def sharing(pairs, words, rng):
    """Return texts, each followed by a copy of similarity 0.1 to 1, and the similarities."""
    texts, similarities, number = [], [], 0
    for kept in rng.integers(words // 5 + 2, words, pairs).tolist():
        own, new = range(number, number + words), range(number + words, number + 2 * words - kept)
        number += 2 * words
        texts += [" ".join(map(str, own)), " ".join(map(str, (*own[:kept], *new)))]
        similarities.append((kept - 2) / (2 * (words - 2) - (kept - 2)))  # of runs of three
    return texts, np.array(similarities)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("threshold", [0.3, slow(0.4), 0.5])
def test_a_low_threshold_finds_its_share_and_no_strangers(threshold):
    """At the radius for 0.3, a text is within it of 1 in 400 unrelated ones.

    To compare all would bring strangers together.
    """
    pairs = 600
    texts, similarities = sharing(pairs, 60, np.random.default_rng(5))
    table, alike = pa.table({"text": texts}), similarities >= threshold
    for search in ("auto", "bands"):
        result = fpstore.dedup(
            table, text="text", threshold=threshold, search=search, estimate=True
        )
        rows, kept = result.removed.rows // 2, result.removed.kept_rows // 2
        assert (rows == kept).all()
        removed = np.zeros(pairs, bool)
        removed[rows] = True
        assert removed[alike].mean() >= 0.98 - 5 * math.sqrt(0.02 * 0.98 / alike.sum())
    strangers = fpstore.dedup(table, text="text", threshold=threshold, search="exact").removed
    assert ((strangers.rows // 2 != strangers.kept_rows // 2).sum() > 100) == (threshold == 0.3)


def test_few_rows_use_bands_where_strangers_are_near_by_chance(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = planted(tmp_path / "c.jsonl", 300, np.random.default_rng(3), 0.01)
    for options, how in (
        (["--threshold", "0.5"], "exact"),
        (["--threshold", "0.4"], "bands"),
        (["--threshold", "0.4", "--search", "exact"], "exact"),
        (["--threshold", "0.01"], "exact"),
        (["--width", "64"], "bands"),
        (["--width", "64", "--radius", "16"], "exact"),
    ):
        words = ("--text-field", "text", "--estimate", "--json", "--force")
        result = run("dedup", "c.jsonl", "d.jsonl", *words, *options)
        assert (json.loads(result.stdout)["search"], rows) == (how, 600), options


def test_a_job_that_is_resumed_searches_in_the_same_way(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planted(tmp_path / "c.jsonl", 5, np.random.default_rng(3), 0.01)

    def stop(phase, done, total):
        if phase == "grouping":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup(
            "c.jsonl", text="text", radius=50, search="bands", resume="kept", progress=stop
        )
    with pytest.raises(InputError, match="bands was"):
        fpstore.dedup("c.jsonl", text="text", radius=50, search="exact", resume="kept")
    assert (
        len(fpstore.dedup("c.jsonl", text="text", radius=50, search="bands", resume="kept").kept)
        == 5
    )


def test_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planted(tmp_path / "c.jsonl", 3, np.random.default_rng(3), 0.01)
    for options, message in (
        ({"method": "simhash"}, "is for texts, and MinHash"),
        ({"fingerprinter": SimHash()}, "is for texts, and MinHash"),
        ({"width": 32}, "MinHash of 64 bits or more"),
        ({"threshold": 0.01}, "no bands find pairs of similarity 0.01"),
        ({"search": "fast"}, "search must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup(tmp_path / "c.jsonl", text="text", **{"search": "bands"} | options)
    by_bands = ("--method", "simhash", "--search", "bands")
    message = failure("dedup", "c.jsonl", "d.jsonl", "--text-field", "text", *by_bands, code=2)
    assert "--search bands is for texts, and MinHash" in message
