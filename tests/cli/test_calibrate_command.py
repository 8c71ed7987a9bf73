"""`fpstore calibrate` and `fpstore compare` from end to end.

Inputs of every kind, outputs, the page in a browser, refusals.
"""

import json
import random
import re

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run
from pages import Page

from fpstore import SimHash
from fpstore.calibration import calibrate
from fpstore.calibration.perturbations import CHANGES
from fpstore.cli.calibrate import build_options
from fpstore.hashing import ImageHash, LongestSentences, MinHash

QUICK = ["--setting", "size=1", "--setting", "shingle=chars,size=4", "--threads", "1", "-q"]


def texts_of(count, seed=2):
    rng = random.Random(seed)
    vocabulary = [
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(400)
    ]
    return [
        "".join(" ".join(rng.choices(vocabulary, k=9)).capitalize() + ". " for _ in range(12))
        for _ in range(count)
    ]


TEXTS = texts_of(25)


@pytest.fixture
def corpora(tmp_path, monkeypatch):
    """Make the same corpus in every format, and make its folder the current one."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({"name": [f"d/{place:02}.txt" for place in range(25)], "body": TEXTS})
    frame.to_csv("c.csv", index=False)
    frame.to_csv("c.tsv", index=False, sep="\t")
    frame.to_json("c.jsonl", orient="records", lines=True)
    pq.write_table(pa.table(frame), "c.parquet")
    (tmp_path / "d").mkdir()
    for name, text in zip(frame["name"], frame["body"], strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_kind_of_corpus_gives_the_same(corpora):
    asked = [(f"c.{form}", "--text-field", "body") for form in ("csv", "tsv", "jsonl", "parquet")]
    found = [
        json.loads(fine("calibrate", *one, *QUICK, "--json"))
        for one in (*asked, ("d", "--text", "--suffix", ".txt"))
    ]
    assert all(each == found[0] for each in found)
    expected = calibrate(
        "c.parquet", text="body", settings=["size=1", "shingle=chars,size=4"], threads=1
    ).to_dict()
    assert found[0] == json.loads(json.dumps(expected))
    assert found[0]["documents"] == found[0]["sample"] == 25


def test_the_table_says_what_the_json_says(corpora):
    printed = fine(
        "calibrate", "d", "--text", *QUICK, "--documents", "2M", "--recall", "0.8", "--seed", "3"
    )
    found = json.loads(
        fine(
            "calibrate",
            "d",
            "--text",
            *QUICK,
            "--documents",
            "2M",
            "--recall",
            "0.8",
            "--seed",
            "3",
            "--json",
        )
    )
    wanted = "2,000,000 documents, recall of 0.8 or more, at most 5% removed wrongly"
    assert printed.startswith(f"Settings for {wanted}, the suggested one first\n")
    for line, one in zip(printed.splitlines()[2:], found["settings"], strict=False):
        cells = line.split()
        assert cells[:4] == [one["setting"], "64", str(one["radius"]), f"{one['recall']:.1%}"]
        assert one["recall"] >= 0.8
        assert one["plan"]["design"] in cells
        assert one["threshold"] is None
        assert cells[5:9] == [
            str(one["removal"]["documents"]),
            "25",
            f"{one['removal']['wrong']:.1%}",
            "0.0%",
        ]
    for change in CHANGES:
        assert (change.name in printed) == (change.name in found["settings"][0]["duplicates"])
    assert re.search(r"strangers +300 pairs", printed)
    assert "~ is extrapolated" in printed
    hopeless = ("-n", "1e12", "--recall", "1", "--false-pairs", "0.001", "--change", "words=5")
    printed = fine("calibrate", "d", "--text", *QUICK, *hopeless)
    assert [line.split()[1:] for line in printed.splitlines()[2:4]] == [["64", "none"]] * 2
    assert "No setting meets the wish" in printed


@pytest.mark.full
def test_the_command_that_is_suggested_removes_what_was_counted(corpora):
    rng = random.Random(5)
    texts = [
        re.sub(
            r"\w+",
            lambda word, n=n: word[0] if rng.random() > n % 6 * 0.03 else "new",
            TEXTS[n // 6],
        )
        for n in range(150)
    ]
    pq.write_table(pa.table({"body": texts}), "many.parquet")
    asked = (
        "calibrate",
        "many.parquet",
        "--text-field",
        "body",
        "-q",
        "--most-wrong",
        "0.1",
        "--threads",
        "1",
    )
    for more in (
        ("--setting", "method=minhash"),
        ("--setting", "method=minhash,threshold=0.8"),
        ("--setting", "size=2,width=128"),
    ):
        (one,) = json.loads(fine(*asked, *more, "--json"))["settings"]
        words = re.search(r"^fpstore (dedup .*)$", fine(*asked, *more), re.MULTILINE)[1].split()
        assert ("--threshold" in words) == ("threshold" in more[1])
        if one["threshold"] is not None:
            assert (
                MinHash().radius(one["threshold"])
                <= one["radius"]
                < MinHash().radius(one["threshold"] - 0.01)
            )
            assert one["threshold"] == (0.8 if "--threshold" in words else one["threshold"])
        assert (one["threshold"] is None) == ("minhash" not in more[1])
        done = json.loads(
            fine(
                *words,
                "many.parquet",
                "out.parquet",
                "--text-field",
                "body",
                "--json",
                "-q",
                "--force",
            )
        )
        assert done["removed"] == one["removal"]["documents"] > 10
        assert one["removal"]["wrong"] <= 0.1
    hopeless = fine(*asked, "--setting", "size=1,radius=40", "--false-pairs", "1e9")
    assert "fpstore dedup" not in hopeless
    assert re.search(
        r"No setting meets the wish.* Nearest is size=1,radius=40 with radius 40: \d\d\.\d% of "
        r"what",
        hopeless,
    )


def test_labelled_pairs_from_files(corpora):
    (corpora / "p.csv").write_text("a,b,label\nd/01.txt,d/01.txt,1\nd/02.txt,d/03.txt,0\n")
    found = json.loads(fine("calibrate", "d", "--text", "--pairs", "p.csv", *QUICK, "--json"))
    again = json.loads(
        fine(
            "calibrate",
            "c.csv",
            "--text-field",
            "body",
            "--id-field",
            "name",
            "--pairs",
            "p.csv",
            *QUICK,
            "--json",
        )
    )
    assert found == again
    assert [one["duplicates"]["labelled"]["by_distance"][0] for one in found["settings"]] == [1, 1]
    maker = SimHash(size=1)
    apart = (maker.fingerprint(TEXTS[2]) ^ maker.fingerprint(TEXTS[3])).bit_count()
    (one,) = (one for one in found["settings"] if one["setting"] == "size=1")
    assert one["different"]["by_distance"].index(1) == apart
    assert "labelled different" in fine("calibrate", "d", "--text", "--pairs", "p.csv", *QUICK)


def test_the_page_has_the_figures(corpora):
    printed = fine("calibrate", "d", "--text", *QUICK, "-o", "p.html")
    text = (corpora / "p.html").read_text()
    page = Page(text)
    found = json.loads(fine("calibrate", "d", "--text", *QUICK, "--json"))
    rows = page.table("Settings")
    assert [row[0] for row in rows] == [one["setting"] for one in found["settings"]]
    assert [row[4] for row in rows] == [f"{one['recall']:.1%}" for one in found["settings"]]
    assert [row[6] for row in rows] == [one["removal"]["documents"] for one in found["settings"]]
    assert (
        f"{found['settings'][0]['setting']} with radius {found['settings'][0]['radius']}." in text
    )
    assert page.facts["Looked at"] == "25"
    assert all(name in text for name in found["settings"][0]["duplicates"])
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert fine("calibrate", "d", "--text", *QUICK, "-o", "-") == text
    assert "p.html exists: --force" in failure("calibrate", "d", "--text", *QUICK, "-o", "p.html")
    assert fine("calibrate", "d", "--text", *QUICK, "-o", "p.html", "--force") == printed
    assert (corpora / "p.html").read_text() == text


def test_wrong_use_is_refused(corpora):
    for arguments, code, told in (
        ((), 2, "name files or folders"),
        (("d",), 2, "or pictures (--image)"),
        (("none", "--text"), 1, "none"),
        (("d", "--text", "--setting", "size=0"), 2, "size must be"),
        (("d", "--text", "--change", "x"), 2, "a change is one of"),
        (("d", "--text", "--recall", "2"), 2, "recall must be"),
        (("d", "--text", "--sample", "1"), 2, "from 2 to 10000"),
        (("d", "--text", "--id-field", "x"), 2, "calibrate needs no ids"),
        (("c.csv", "--suffix", ".a"), 2, "or --image"),
        (("c.csv", "--text-field", "nothing"), 1, "nothing"),
        (("d/01.txt", "--text"), 1, "at least 2 with text are needed, got 1"),
        (("d", "--text", "--pairs", "c.csv", "--seed", "1"), 2, "--seed is for copies"),
        (("d", "--text", "--json", "-o", "-"), 2, "both write to standard output"),
        (("--pairs", "c.csv"), 1, "text_a"),
        (("--pairs", "c.csv", "--text-field", "x"), 2, "name files or folders"),
        (("d", "--text", "--documents", "many"), 2, "not a number"),
        (("d", "--text", "--documents", "1"), 2, "documents must be a whole number from 2"),
    ):
        assert told in failure("calibrate", *arguments, code=code)


def test_empty_files_are_left_out(corpora):
    (corpora / "d" / "empty.txt").write_text(" \n")
    (corpora / "d" / "picture.txt").write_bytes(b"\0")
    done = run("calibrate", "d", "--text", "--setting", "size=1")
    assert (done.exit_code, "1 file left out, binary, not text: d/picture.txt" in done.stderr) == (
        0,
        True,
    )
    rows = re.search(
        r"^documents +(\d+)\nempty, left out +1\nlooked at +(\d+)$", done.stdout, re.MULTILINE
    )
    assert int(rows[1]) == 1 + int(rows[2])  # all of a small corpus


# --- compare --------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("the cat sat on the mat and the dog")
    (tmp_path / "b.txt").write_text("the cat sat on a mat and the dog\x07")
    return tmp_path


def test_compare_shows_what_differs(pair):
    maker = SimHash(size=1, weighting="count")
    a, b = (maker.fingerprint((pair / name).read_text()) for name in ("a.txt", "b.txt"))
    found = json.loads(fine("compare", "a.txt", "b.txt", "--weighting", "count", "--json"))
    assert found == {
        "fingerprint_a": f"{a:016x}",
        "fingerprint_b": f"{b:016x}",
        "width": 64,
        "distance": (a ^ b).bit_count(),
        "features_a": 7,
        "features_b": 8,
        "shared": 7,
        "resemblance": 7 / 8,
        "weighted_resemblance": 8 / 10,
        "differing": [
            {"feature": "a", "weight_a": 0, "weight_b": 1},
            {"feature": "the", "weight_a": 3, "weight_b": 2},
        ],
    }
    printed = fine("compare", "a.txt", "b.txt", "--weighting", "count")
    assert f"{a:016x}  7 features, 0 only in A" in printed
    assert f"{b:016x}  8 features, 1 only in B" in printed
    assert re.search(r"shared +7  features, 1 with different weights", printed)
    assert re.search(r"the +3 +2$", printed, re.MULTILINE)
    text = (pair / "b.txt").read_text()
    assert fine("compare", "a.txt", "-", "--json", stdin=text) == fine(
        "compare", "a.txt", "b.txt", "--json"
    )
    assert "B, standard input" in fine("compare", "a.txt", "-", stdin=text)
    printed = fine("compare", "a.txt", "a.txt")
    assert re.search(r"distance +0  of 64 bits", printed)
    assert re.search(r"resemblance +1.000  1.000 weighted", printed)
    assert "differ most" not in printed


def test_compare_shows_few_and_cuts_long_ones(pair):
    (pair / "c.txt").write_text("xy " * 100)
    options = ["--shingle", "chars", "--shingle-size", "90"]
    printed = fine("compare", "a.txt", "c.txt", *options, "--limit", "1")
    assert "and 3 more: --limit shows them." in printed
    assert max(map(len, fine("compare", "a.txt", "c.txt", *options).splitlines())) < 120
    assert (
        len(
            json.loads(
                fine("compare", "a.txt", "b.txt", "--shingle-size", "3", "--json", "--limit", "3")
            )["differing"]
        )
        == 3
    )
    assert (
        len(
            json.loads(fine("compare", "a.txt", "b.txt", "--shingle-size", "3", "--json"))[
                "differing"
            ]
        )
        == 6
    )


def test_compare_refuses_what_is_no_text(pair):
    (pair / "empty.txt").write_text(" ")
    (pair / "binary.txt").write_bytes(b"a\0b")
    assert "empty.txt: the text ' ' is blank, and so has no fingerprint" in failure(
        "compare", "a.txt", "empty.txt"
    )
    assert "standard input: the text '' is blank" in failure("compare", "-", "a.txt", stdin="")
    assert "NUL byte" in failure("compare", "a.txt", "binary.txt")
    assert "is a folder" in failure("compare", "a.txt", ".")
    pair.joinpath("rows.jsonl").write_text('{"text": "some words"}\n')
    assert "rows.jsonl: holds rows, not one text; compare takes text files" in failure(
        "compare", "a.txt", "rows.jsonl"
    )
    assert "no such" in failure("compare", "a.txt", "none.txt").lower()
    assert "only one of A and B" in failure("compare", "-", "-", code=2)


def test_options_that_build_takes():
    for made, options in (
        (SimHash(), ["--method", "simhash"]),
        (MinHash(size=2), ["--method", "minhash", "--shingle-size", "2"]),
        (
            SimHash(shingle="chars", size=4, width=128),
            ["--method", "simhash", "--shingle", "chars", "--shingle-size", "4", "--width", "128"],
        ),
        (
            SimHash(hash="md5", weighting="set"),
            ["--method", "simhash", "--weighting", "set", "--feature-hash", "md5"],
        ),
        (SimHash(case="keep"), None),
        (SimHash(tokenizer=str.split), None),
        (SimHash().learn_weights(["a"]), None),
        (LongestSentences(), None),
        (
            ImageHash(method="difference", width=256),
            ["--image", "--image-hash", "difference", "--width", "256"],
        ),
        (
            ImageHash(method="pdq"),
            ["--image", "--image-hash", "pdq", "--width", "256", "--min-quality", "20"],
        ),
    ):
        assert build_options(made) == options
        if options is not None:
            words = options if isinstance(made, ImageHash) else ["--text", *options]
            out = run("build", "x.fps", "no such file", *words, "--radius", "3").output
            assert "no such file: No such file" in out
