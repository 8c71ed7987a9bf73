"""Verification of what `dedup` removes, against sets of Python."""

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from fpstore.jobs.verified import TextSets
from inputs import json_lines
from speeds import crossed

import fpstore
from fpstore import InputError, MinHash, SimHash, _kernel
from fpstore.hashing import Fields, LongestSentences, MainText

# Some lines depend on the neighbours of a character, so that Python makes their normal forms.
MARKED = ["e\u0301a", "\u1100\u1161", "\u03a3x", "\u0e01\u0e38\u0e48"]


def corpus(seed, marked=False):
    """Return texts, of which some are copies with one to fifteen words changed."""
    rng, texts = random.Random(seed), []
    words = [f"w{n}" for n in range(400)] + MARKED * (20 if marked else 0)
    for _ in range(60):
        base = rng.choices(words, k=rng.randrange(1, 80))
        texts.append(" ".join(base))
        for _ in range(rng.randrange(4)):
            copy = list(base)
            for place in rng.sample(range(len(base)), min(rng.randrange(16), len(base))):
                copy[place] = rng.choice(words)
            texts.append("\n".join((" ".join(copy[:40]), " ".join(copy[40:]))))
    rng.shuffle(texts)
    return [*texts, "", " "]


def jaccard(fingerprinter, a, b):
    a, b = set(fingerprinter.features(a)), set(fingerprinter.features(b))
    return len(a & b) / len(a | b)


def expected(fingerprinter, texts, radius, threshold, ranks):
    """Return the groups.

    In the order of ranks, a text joins the nearest kept text that is alike, or else is kept.
    """
    prints, known = fingerprinter.fingerprints(texts, empty="mask")
    table = pa.table({"t": texts})
    kept_for = {}
    for cluster in fpstore.dedup(
        table, text="t", fingerprinter=fingerprinter, radius=radius, group="connected"
    ).clusters:
        kept = []
        for row in sorted(cluster, key=lambda row: (ranks[row], row)):
            distances = {
                other: int(np.bitwise_count(prints[row] ^ prints[other]).sum()) for other in kept
            }
            near = sorted(
                (other for other in kept if distances[other] <= radius),
                key=lambda other: distances[other],
            )
            result = next(
                (
                    other
                    for other in near
                    if jaccard(fingerprinter, texts[row], texts[other]) >= threshold
                ),
                None,
            )
            if result is None:
                kept.append(row)
            else:
                kept_for[row] = result
    assert all(known[row] for row in kept_for)
    groups = {}
    for row in sorted(kept_for):
        groups.setdefault(kept_for[row], []).append(row)
    return sorted(([kept, *others] for kept, others in groups.items()), key=min)


WAYS = [
    (MinHash(), None, 0.8),
    (MinHash(), 90, 0.5),
    (MinHash(size=1, weighting="count"), 80, 0.6),
    (SimHash(width=128), 30, 0.8),
    (SimHash(hash="blake2b"), 12, 0.9),
    (MinHash(shingle="chars", size=5), 60, 0.75),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("way", "keep"), crossed(WAYS, ["first", "highest"]))
def test_what_is_not_alike_enough_stays(way, keep):
    fingerprinter, radius, threshold = way
    texts = corpus(radius or 1, marked=True)
    scores = np.random.default_rng(3).integers(0, 50, len(texts))
    table = pa.table({"t": texts, "s": scores})
    options = {"text": "t", "fingerprinter": fingerprinter, "keep": keep} | (
        {"score": "s"} if keep == "highest" else {}
    )
    options["radius"] = fingerprinter.radius(threshold) if radius is None else radius
    wanted = expected(
        fingerprinter,
        texts,
        options["radius"],
        threshold,
        -scores if keep == "highest" else range(len(texts)),
    )
    result = fpstore.dedup(table, **options, verify=True, threshold=threshold)
    assert list(result.clusters) == wanted
    removed = {row for _, *others in wanted for row in others}
    assert result.kept["t"].to_pylist() == [
        text for row, text in enumerate(texts) if row not in removed
    ]
    assert result.removed.rows.tolist() == sorted(removed)
    before = fpstore.dedup(table, **options, group="greedy")
    assert 0 < len(removed) < len(before.removed)
    assert (
        list(fpstore.dedup(table, **options, verify=True, threshold=threshold, threads=2).clusters)
        == wanted
    )


def test_rows_of_several_texts_and_pages_are_verified():
    rng = random.Random(5)
    rows = []
    for _ in range(40):
        title, text = (
            " ".join(rng.choices("abcdef", k=6)),
            " ".join(f"w{rng.randrange(300)}" for _ in range(30)),
        )
        rows += [
            (title, text),
            (" ".join(rng.choices("uvwxyz", k=rng.randrange(12))) or None, text),
        ]
    fingerprinter = MinHash(size=2)
    table = pa.table({"title": [title for title, _ in rows], "text": [text for _, text in rows]})
    result = fpstore.dedup(
        table,
        text=["title", "text"],
        fingerprinter=Fields(fingerprinter, {"title": 1, "text": 1}),
        radius=90,
        verify=True,
        threshold=0.7,
    )
    sets = [
        set(fingerprinter.features(title or "")) | set(fingerprinter.features(text))
        for title, text in rows
    ]
    alike = [
        (a, b)
        for a in range(0, 80, 2)
        for b in [a + 1]
        if len(sets[a] & sets[b]) >= 0.7 * len(sets[a] | sets[b])
    ]
    assert [tuple(group) for group in result.clusters] == alike
    assert 0 < len(alike) < 40
    body = "<body><nav>{}</nav><article><p>{}</p></article></body>"
    page = f"<html><head><title>T</title></head>{body}</html>"
    pages = [
        page.format(menu, " ".join(["a story of words about a fox and a dog."] * 5))
        for menu in ("one two", "three")
    ]
    assert MainText(fingerprinter).feature_sets(pages).sizes.tolist() == [
        len(fingerprinter.features(main))
        for main in ["T\n" + " ".join(["a story of words about a fox and a dog."] * 5)] * 2
    ]


def test_the_command_verifies_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = corpus(3)
    Path("c.jsonl").write_text(json_lines({"text": text} for text in texts))
    verified = ("--verify", "--threshold", "0.9")
    said = json.loads(
        fine("dedup", "c.jsonl", "clean.jsonl", "--text-field", "text", *verified, "--json")
    )
    result = fpstore.dedup(pa.table({"text": texts}), text="text", verify=True, threshold=0.9)
    assert said["removed"] == len(texts) - len(result.kept)
    assert [
        json.loads(line)["text"] for line in Path("clean.jsonl").read_text().splitlines()
    ] == result.kept["text"].to_pylist()
    assert "--verify compares texts" in failure(
        "dedup", "c.jsonl", "x.jsonl", "--fingerprint-field", "text", "--verify", code=2
    )


def test_a_corpus_without_clusters_is_verified():
    assert (
        fpstore.dedup(pa.table({"t": ["a b c d", "a b c d"]}), text="t", verify=True).kept.num_rows
        == 1
    )
    for texts in (
        ["one two three four"],
        ["a b c d", "e f g h", "i j k l"],
        ["a b c d", None, " "],
    ):
        result = fpstore.dedup(pa.table({"t": texts}), text="t", verify=True)
        assert (len(result.kept), len(result.clusters), len(result.removed)) == (len(texts), 0, 0)


def test_a_radius_at_which_unrelated_texts_are_near_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = random.Random(2)
    texts = [" ".join(f"w{rng.randrange(10**6)}" for _ in range(20)) for _ in range(300)]
    Path("c.jsonl").write_text(json_lines({"t": text} for text in texts))
    message = "unrelated texts are near each other by chance"
    exact = ["--threshold", "0.3", "--search", "exact"]
    for options, noted in (
        ([], False),
        (["--threshold", "0.3"], False),
        (exact, False),
        ([*exact, "--no-verify"], True),
        (["--width", "32"], True),
        (["--method", "simhash", "--radius", "24"], True),
    ):
        result = run(
            "dedup", "c.jsonl", "o.jsonl", "--text-field", "t", "--force", "--no-progress", *options
        )
        assert result.exit_code == 0
        assert (message in result.stderr) == noted, options
    assert "in this corpus 100% of the texts or more" in result.stderr


@pytest.mark.parametrize("count", [3, 5, 8])
def test_input_that_changes_before_verification_is_an_error(tmp_path, monkeypatch, count):
    monkeypatch.chdir(tmp_path)
    line = json.dumps({"t": "the same words in each of the texts"}) + "\n"

    def change(phase, done, total):
        if phase == "grouping":
            Path("new").write_text(line * count)
            Path("new").rename("c.jsonl")

    Path("c.jsonl").write_text(line * 5)
    with pytest.raises(InputError, match="changed while it was read"):
        fpstore.dedup("c.jsonl", text="t", verify=True, progress=change)
    Path("notes").mkdir()
    for name in "abc":
        Path("notes", f"{name}.txt").write_text("the same words in each of the texts")
    with pytest.raises(InputError, match="changed while it was read"):
        fpstore.dedup(
            "notes",
            text=True,
            verify=True,
            progress=lambda *_: Path("notes/c.txt").write_text("other"),
        )


def test_files_that_are_left_out_are_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    for name in ("a.txt", "b.txt"):
        Path("notes", name).write_text("some words that are the same in both of the files")
    Path("notes", "c.bin").write_bytes(b"\0" * 100)
    said = run("dedup", "notes", "clean", "--text", "--verify", "--no-progress").stderr
    assert said.count("c.bin") == 1
    assert sorted(path.name for path in Path("clean").rglob("*.txt")) == ["a.txt"]


def test_what_is_refused():
    table = pa.table({"t": ["a b c d"], "h": pa.array([1], pa.uint64())})
    for value, message in (
        (
            {"text": "t", "fingerprinter": LongestSentences(), "verify": True},
            "longest-sentences has no features",
        ),
        ({"fingerprint": "h", "verify": True}, "compares texts"),
        ({"text": "t", "verify": 1}, "verify must be True or False"),
        ({"text": "t", "verify": True, "group": "connected"}, "makes groups without chains"),
        ({"text": "t", "method": ""}, "method must be one of"),
        ({"text": "t", "threshold": 1.5}, "threshold must be a number from 0 to 1"),
        (
            {"text": "t", "threshold": 1.5, "verify": True, "radius": 3},
            "threshold must be a number from 0 to 1",
        ),
        ({"text": "t", "threshold": 0.5, "radius": 3}, "not both"),
        ({"text": "t", "threshold": 0.5, "method": "simhash"}, "a Jaccard similarity"),
        ({"text": "t", "method": "tlsh"}, "method must be one of minhash, simhash"),
        ({"text": "t", "group": "chains"}, "group must be one of connected, greedy"),
        ({"text": "t", "keep": "last"}, "keep must be one of first"),
        ({"text": "t", "method": "simhash", "fingerprinter": SimHash()}, "leave method out"),
        ({"fingerprint": "h", "method": "simhash"}, "is for texts"),
        ({"fingerprint": "h", "threshold": 0.5}, "a Jaccard similarity"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup(table, **value)


def test_defaults_follow_the_method_and_the_width():
    texts = [text for text in corpus(9) if text]
    table = pa.table(
        {"t": texts, "h": pa.array(SimHash().fingerprints(texts, empty="mask")[0], pa.uint64())}
    )

    def alike(first, second):
        assert list(fpstore.dedup(table, **first).clusters) == list(
            fpstore.dedup(table, **second).clusters
        )

    alike({"text": "t"}, {"text": "t", "fingerprinter": MinHash(), "radius": 50, "group": "greedy"})
    alike(
        {"text": "t", "threshold": 0.5},
        {"text": "t", "fingerprinter": MinHash(), "radius": MinHash().radius(0.5)},
    )
    alike(
        {"text": "t", "width": 64},
        {"text": "t", "fingerprinter": MinHash(width=64), "radius": MinHash(width=64).radius(0.7)},
    )
    alike(
        {"text": "t", "method": "simhash"},
        {"text": "t", "fingerprinter": SimHash(), "radius": 3, "group": "connected"},
    )
    alike(
        {"text": "t", "method": "simhash", "width": 256},
        {"text": "t", "fingerprinter": SimHash(width=256), "radius": 24},
    )
    alike({"fingerprint": "h"}, {"fingerprint": "h", "radius": 3, "width": 64})
    table = table.append_column("u", pa.array(texts[::-1]))
    weighted = Fields(MinHash(weighting="count"), {"t": 4, "u": 1})
    alike(
        {"text": {"t": 4, "u": 1}},
        {"text": {"t": 4, "u": 1}, "fingerprinter": weighted, "radius": 50, "group": "greedy"},
    )
    assert np.all(MinHash().feature_sets([]).sizes == 0)


def test_what_fails_beside_one_text_is_compared_again():
    """Exact copies stayed if the text that stood for them was not alike enough."""
    rng = random.Random(1)
    words = [f"w{n}" for n in range(400)]
    first = rng.choices(words, k=120)
    second = list(first)
    for place in rng.sample(range(120), 9):
        second[place] = "other"
    texts = [" ".join(first), *([" ".join(second)] * 3), " ".join([*second, "end"])]
    result = fpstore.dedup(pa.table({"t": texts}), text="t", radius=60, verify=True, threshold=0.9)
    assert jaccard(MinHash(), texts[0], texts[1]) < 0.9 < jaccard(MinHash(), texts[1], texts[4])
    assert list(result.clusters) == [[1, 2, 3, 4]]
    assert result.kept.num_rows == 2
    table = pa.table({"t": texts, "score": [9, 1, 3, 2, 0]})
    result = fpstore.dedup(
        table, text="t", radius=60, verify=True, threshold=0.9, score="score", keep="highest"
    )
    assert list(result.clusters) == [[2, 1, 3, 4]]


@pytest.mark.parametrize(("most", "representative"), [(1, 2), (2, 1)])
def test_the_nearest_are_compared_up_to_a_bound(set_limits, most, representative):
    """The last is near both, and alike to the farther one."""
    set_limits(verified_documents=most)
    sets = TextSets(np.arange(3), np.array([1, 2, 3, 2, 3], np.uint32), np.array([1, 2, 2]))
    rows = np.array([0b0001, 0b0110, 0b0000], np.uint64)
    result = sets.representatives(rows, np.array([0, 3], np.uint64), np.arange(3), 3, 0.9)
    assert result.tolist() == [0, 1, representative]


class Kernel:
    """The kernel, with what calls of it read.

    The elements of their arrays, and what the kernel itself counts.
    """

    def __init__(self, kernel, read):
        self._kernel, self._read = kernel, read

    def __getattr__(self, name):
        def call(*given):
            result = getattr(self._kernel, name)(*given)
            self._read.append(sum(item.size for item in given if isinstance(item, np.ndarray)))
            if isinstance(result, tuple):
                self._read += result[1:]
            return Kernel(result, self._read) if isinstance(result, _kernel.FeatureSets) else result

        return call


def read_for(monkeypatch, texts, **given):
    """Return how many rows are removed, and how much the kernel reads to verify them."""
    read = []
    with monkeypatch.context() as patch:
        patch.setattr("fpstore.jobs.verified._kernel", Kernel(_kernel, read))
        result = fpstore.dedup(pa.table({"t": texts}), text="t", verify=True, **given)
    return len(result.removed), sum(read)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("search", ["bands", "exact"])
@pytest.mark.parametrize("copies", [2, 1000])
def test_the_work_of_verification_is_that_of_each_document(monkeypatch, copies, search):
    """Each document had the bounds of all sets checked.

    Four times the work for twice the documents.
    """
    texts = [" ".join(f"w{n // copies}x{i}" for i in range(20)) for n in range(2000)]
    removed, once = read_for(monkeypatch, texts[:1000], search=search)
    assert removed == 1000 - 1000 // copies
    removed, twice = read_for(monkeypatch, texts, search=search)
    assert removed == 2000 - 2000 // copies
    assert twice <= 2.1 * once


def test_a_reference_is_verified_at_a_fixed_price(monkeypatch, tmp_path):
    texts = [" ".join(f"w{n}x{i}" for i in range(20)) for n in range(2000)]
    pq.write_table(pa.table({"t": texts}), tmp_path / "r.parquet")
    removed, once = read_for(monkeypatch, texts[:1000], against=tmp_path / "r.parquet")
    assert removed == 1000
    removed, twice = read_for(monkeypatch, texts, against=tmp_path / "r.parquet")
    assert removed == 2000
    assert twice <= 2.1 * once


def test_near_texts_that_are_not_alike_have_a_bound(monkeypatch):
    """Each document is near all others."""
    rng = random.Random(3)
    texts = [
        " ".join([*(f"t{n}" for n in range(30)), *(f"w{rng.randrange(10**6)}" for _ in range(8))])
        for _ in range(1200)
    ]
    removed, read = read_for(monkeypatch, texts, threshold=0.9, radius=120)
    sizes = MinHash().feature_sets(texts).sizes
    assert removed == 0
    assert read < len(texts) * (
        len(texts) / 2 + 2 * 256 * int(sizes.max()) + 2 * int(sizes.max()) + 10
    )
