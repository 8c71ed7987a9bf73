"""Low thresholds of `dedup`.

Texts are compared exactly unless a caller says otherwise, and unrelated texts stay.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import run
from inputs import json_lines

import fpstore
from fpstore import InputError, MinHash
from fpstore.hashing.corpora import open_corpus
from fpstore.jobs.dedup_job import MAX_UNRELATED, DedupSpec

VERIFIED, UNVERIFIED = (
    "are read again and compared exactly",
    "with a line in common may be near each other",
)
COUNT, COPIES = 3000, 20


@pytest.fixture(scope="module")
def strangers():
    """Return unrelated texts of 150 words, 7 of them a common line."""
    words = np.random.default_rng(1).integers(0, 50_000, (COUNT, 143)).tolist()
    return [
        "all rights reserved by the publisher x " + " ".join(f"w{n}" for n in word)
        for word in words
    ]


def with_copies(texts):
    """Return texts, and behind them copies of the first ones, whose last 20 words are others.

    A similarity of about 0.75.
    """
    return [
        *texts,
        *(
            " ".join([*text.split()[:-20], *(f"x{i}" for i in range(20))])
            for text in texts[:COPIES]
        ),
    ]


def planned(threshold, fingerprinter=None, **given):
    table = pa.table({"t": ["a b c d"] * 2000})
    spec = DedupSpec(table, text="t", threshold=threshold, fingerprinter=fingerprinter, **given)
    return spec.job().plan_search(open_corpus(table, False))


def test_unrelated_texts_with_a_common_line_stay(strangers):
    table = pa.table({"t": with_copies(strangers)})
    assert fpstore.dedup(table, text="t", threshold=0.3).removed.rows.tolist() == list(
        range(COUNT, COUNT + COPIES)
    )
    removed = fpstore.dedup(table, text="t", threshold=0.3, verify=False).removed.rows
    assert len(removed[removed < COUNT]) > 0


def test_the_rule_leaves_higher_thresholds_as_they_are():
    for threshold, least in (
        (0.1, 0.1),
        (0.3, 0.3),
        (0.4, 0.4),
        (0.45, None),
        (0.5, None),
        (0.7, None),
        (None, None),
    ):
        job = planned(threshold)
        assert job.least_similarity == least, threshold
        assert (job.unrelated_share >= MAX_UNRELATED) == (least is not None)
    assert planned(0.45, width=128).least_similarity == 0.45
    assert planned(0.5, width=64).least_similarity is None
    assert planned(0.3, verify=False).least_similarity is None
    assert planned(0.3, group="connected").least_similarity is None
    assert planned(None, radius=106).least_similarity is None
    # another similarity than that of sets
    assert planned(0.3, MinHash(weighting="count")).least_similarity is None
    assert planned(0.45, verify=True).least_similarity == 0.45


def test_notes_say_what_is_verified_and_what_cannot_be(tmp_path, monkeypatch, strangers):
    monkeypatch.chdir(tmp_path)
    texts = with_copies(strangers[:300])
    Path("c.jsonl").write_text(json_lines({"id": n, "t": text} for n, text in enumerate(texts)))
    prints = MinHash().fingerprints(texts)
    Path("h.tsv").write_text("h\n" + "".join(row.tobytes().hex() + "\n" for row in prints))
    of_texts, low = ("c.jsonl", "--text-field", "t"), ("--threshold", "0.3")
    store = ("--id-field", "id", "--against", "new.fps", "--add")
    for options, verifies, warns in (
        ((*of_texts, *low), True, ""),
        ((*of_texts, *low, "--no-verify"), False, ""),
        (of_texts, False, ""),
        ((*of_texts, *low, "--verify"), False, ""),
        ((*of_texts, *low, "--group", "connected"), False, "or --verify"),
        ((*of_texts, *low, *store), False, "a store has no texts"),
        (
            ("h.tsv", "--fingerprint-field", "h", "--width", "256", "--radius", "106"),
            False,
            "fingerprints cannot be verified",
        ),
        (("h.tsv", "--fingerprint-field", "h", "--width", "256", "--radius", "50"), False, ""),
    ):
        name, *others = options
        result = run("dedup", name, "o" + Path(name).suffix, *others, "--force", "--no-progress")
        assert result.exit_code == 0, result.stderr
        assert (VERIFIED in result.stderr) == verifies, options
        assert (UNVERIFIED in result.stderr) == bool(warns), (options, result.stderr)
        assert warns in result.stderr


def test_reference_of_texts_and_a_resumed_job_verify_too(tmp_path, monkeypatch, strangers):
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"t": text}) + "\n" for text in with_copies(strangers)]
    Path("old.jsonl").write_text("".join(rows[: COUNT // 2]))
    Path("new.jsonl").write_text("".join(rows[COUNT // 2 :]))
    options = {"text": "t", "threshold": 0.3, "against": "old.jsonl"}
    copies = list(range(COUNT // 2, COUNT // 2 + COPIES))
    assert fpstore.dedup("new.jsonl", **options).removed.rows.tolist() == copies
    assert len(fpstore.dedup("new.jsonl", **options, verify=False).removed) > COPIES

    def stop(phase, done, total):
        if phase == "verifying":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fpstore.dedup("new.jsonl", **options, resume="kept", progress=stop)
    with pytest.raises(InputError, match="least_similarity was"):
        fpstore.dedup("new.jsonl", **options, verify=False, resume="kept")
    assert fpstore.dedup("new.jsonl", **options, resume="kept").removed.rows.tolist() == copies
