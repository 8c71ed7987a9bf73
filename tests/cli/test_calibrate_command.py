"""`fpstore calibrate` and `fpstore compare` from end to end: inputs, outputs and refusals."""

import gzip
import json
import random
import re
import shlex

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine, run

from fpstore import SimHash
from fpstore.calibration import calibrate
from fpstore.calibration.text_changes import CHANGES
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
    queries = [(f"c.{form}", "--text-field", "body") for form in ("csv", "tsv", "jsonl", "parquet")]
    printed = [
        json.loads(fine("calibrate", *item, *QUICK, "--json"))
        for item in (*queries, ("d", "--text", "--suffix", ".txt"))
    ]
    assert all(each == printed[0] for each in printed)
    settings = ["size=1", "shingle=chars,size=4"]
    expected = calibrate("c.parquet", text="body", settings=settings, threads=1).to_dict()
    assert printed[0] == json.loads(json.dumps(expected))
    assert printed[0]["documents"] == printed[0]["originals"] == 25


def test_the_table_says_what_the_json_says(corpora):
    arguments = ("calibrate", "d", "--text", *QUICK, "--setting", "method=minhash", "--seed", "3")
    printed, record = fine(*arguments), json.loads(fine(*arguments, "--json"))
    scope = "for 25 documents, at most 5% removed wrongly, the suggested one first\n"
    rules, settings = printed.split(f"Settings {scope}")
    lines = rules.removeprefix(f"Rules of dedup, where texts decide, {scope}").splitlines()[1:]
    for line, item in zip(lines[:2], record["rules"], strict=True):
        assert ("--lossless" in line) == (item["rule"] == {"contained": 0.95, "threshold": None})
        assert f" {item['found']['count'] / item['found']['total']:.1%} (" in line
        assert line.split()[-1] == str(item["near"])
    assert not any(lines[2:])
    lines = settings.splitlines()[1 : 1 + len(record["settings"])]
    for line, item in zip(lines, record["settings"], strict=True):
        recall, cells = item["recall"], line.split()
        assert cells[:3] == [item["setting"], str(item["width"]), str(item["radius"])]
        assert f" {recall['count'] / recall['total']:.1%} (" in line
        assert (item["threshold"] is None) == ("minhash" not in item["setting"])
        assert item["threshold"] is None or f"{item['threshold']:.2f}" == cells[3]
    for change in CHANGES:
        assert (change in printed) == (change in record["settings"][0]["by_distance"])
    assert re.search(r"strangers +300 pairs", printed)


def many_texts():
    """Make texts in families, of which some differ in many words."""
    rng = random.Random(5)
    return [
        re.sub(
            r"\w+",
            lambda word, n=n: word[0] if rng.random() > n % 6 * 0.03 else "new",
            TEXTS[n // 6],
        )
        for n in range(150)
    ]


def commands_of(printed):
    """Return the words of the commands that are suggested, by their verbs."""
    lines = printed.partition("\nTake the first rows with\n")[2].splitlines()
    words = [shlex.split(line) for line in lines]
    assert all(line[0] == "fpstore" for line in words)
    return {line[1]: line[1:] for line in words}


@pytest.mark.full
def test_the_command_of_an_estimate_removes_what_was_counted(corpora):
    pq.write_table(pa.table({"body": many_texts()}), "many.parquet")
    arguments = ("calibrate", "many.parquet", "--text-field", "body", "-q", "--threads", "1")
    for setting in ("method=minhash,radius=40", "size=2,width=128"):
        more = ("--most-wrong", "0.1", "--setting", setting)
        (row,) = json.loads(fine(*arguments, *more, "--json"))["settings"]
        command = commands_of(fine(*arguments, *more))["dedup"]
        done = json.loads(fine(*command, "--json", "-q", "--force"))
        assert done["removed"] == row["removed"]["count"] > 10
        assert row["wrong"]["count"] <= 0.1 * row["wrong"]["total"]
    hopeless = fine(*arguments, "--setting", "size=1,radius=40")
    assert commands_of(hopeless) == {}
    assert "No setting fits: allow more with --most-wrong" in hopeless
    low = commands_of(fine(*arguments, "--setting", "method=minhash,threshold=0.1"))["dedup"]
    assert low[3:] == ["--text-field", "body", "--lossless"]


def test_commands_can_be_run_as_they_are(corpora):
    rows = [json.dumps({"a": {"body": text}}) for text in many_texts()]
    with gzip.open("my rows.v1.jsonl.gz", "wt") as file:
        file.write("\n".join([*rows[:9], "no row", *rows[9:]]))
    folder = corpora / "some texts"
    folder.mkdir()
    for number, text in enumerate(many_texts()):
        (folder / f"{number}.txt").write_text(text)
    (folder / "other.md").write_text("some other text, which is not read")
    (corpora / "clean").mkdir()
    (corpora / "rows").write_text("\n".join(rows))
    for arguments, output, store in (
        (
            ("my rows.v1.jsonl.gz", "--text-field", "a.body", "--skip-bad"),
            "my rows.v1.clean.jsonl.gz",
            "my rows.fps",
        ),
        (
            ("rows", "--text-field", "a.body=2", "--format", "jsonl"),
            "rows.clean.jsonl",
            "rows.fps",
        ),
        (("some texts", "--text", "--suffix", ".txt"), "2-clean", "some texts.fps"),
    ):
        setting = ("--setting", "method=minhash,size=2", "--most-wrong", "1", "-q")
        record = json.loads(fine("calibrate", *arguments, *setting, "--json"))
        commands = commands_of(fine("calibrate", *arguments, *setting))
        assert commands["dedup"] == [
            "dedup",
            arguments[0],
            output,
            *arguments[1:],
            "--shingle-size",
            "2",
        ]
        done = json.loads(fine(*commands["dedup"], "--json", "-q"))
        assert done["removed"] == record["rules"][0]["removed"]["count"] > 10
        assert done["near"] == record["rules"][0]["near"]
        assert commands["build"][:3] == ["build", store, arguments[0]]
        built = json.loads(fine(*commands["build"], "--json", "-q"))
        assert built["radius"] == record["settings"][0]["radius"]


def test_outputs_of_commands_are_outside_of_inputs(corpora, monkeypatch):
    monkeypatch.chdir(corpora / "d")
    commands = commands_of(fine("calibrate", ".", "--text", "--setting", "method=minhash", "-q"))
    assert commands["dedup"] == ["dedup", ".", "../clean", "--text"]
    assert commands["build"][1:3] == ["../d.fps", "."]


def test_wrong_use_is_refused(corpora):
    for arguments, code, message in (
        ((), 2, "Missing argument"),
        (("d",), 2, "or pictures (--image)"),
        (("none", "--text"), 1, "none"),
        (("d", "--text", "--setting", "size=0"), 2, "size must be"),
        (("d", "--text", "--change", "x"), 2, "a change is one of"),
        (("d", "--text", "--sample", "1"), 2, "from 2 to 10000"),
        (("c.csv", "--suffix", ".a"), 2, "or --image"),
        (("c.csv", "--text-field", "nothing"), 1, "nothing"),
        (("d/01.txt", "--text"), 1, "at least 2 with text are needed, got 1"),
        (("c.csv", "--text-field", "body", "--text-field", "name"), 2, "one column of texts"),
    ):
        assert message in failure("calibrate", *arguments, code=code)


def test_empty_files_are_left_out(corpora):
    (corpora / "d" / "empty.txt").write_text(" \n")
    (corpora / "d" / "picture.txt").write_bytes(b"\0")
    done = run("calibrate", "d", "--text", "--setting", "size=1")
    assert done.exit_code == 0
    assert "1 file left out, binary, not text: d/picture.txt" in done.stderr
    assert re.search(r"^documents +26\nempty or blank, left out +1$", done.stdout, re.MULTILINE)


# --- compare --------------------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("the cat sat on the mat and the dog")
    (tmp_path / "b.txt").write_text("the cat sat on a mat and the dog\x07")
    return tmp_path


def test_compare_shows_what_differs(pair):
    fingerprinter = SimHash(size=1, weighting="count")
    a, b = (fingerprinter.fingerprint((pair / name).read_text()) for name in ("a.txt", "b.txt"))
    answer = json.loads(fine("compare", "a.txt", "b.txt", "--weighting", "count", "--json"))
    assert answer == {
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
