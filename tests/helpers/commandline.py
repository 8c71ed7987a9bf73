"""The command line in this process or another, and a folder of inputs and stores for it."""

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from fpstore.cli import main

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-P", "-m", "fpstore"]
TEXT_FIELD = ("--text-field", "text")
TEXT_AND_ID = (*TEXT_FIELD, "--id-field", "id")
TEXT_AND_URL = (*TEXT_FIELD, "--id-field", "url")
SEARCHES = ("probe", "scan", "nearest")
NEAR, FAR = 0x00FF00FF00FF00FF, 0xAAAA5555AAAA5555
FINGERPRINTS = np.array(
    [NEAR, NEAR ^ 1, NEAR ^ 0b111, FAR, 42, 0, 2**64 - 1, NEAR], dtype=np.uint64
)
IDS = ["a", "b", "c", "far", "small", "zero", "ones", "a again"]
TEXT = "".join(
    f"word{i} follows word{i - 1} in the text that everybody copies. " for i in range(200)
)


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)), input=stdin)


def process(*arguments: object, **settings: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings
    )


def fine(*arguments: object, stdin: str | None = None, code: int = 0) -> str:
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stderr) == (code, ""), result.output
    return result.stdout


def failure(*arguments: object, code: int | None = None, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == (code or failure_of(arguments)), result.output
    assert re.fullmatch(r"fpstore: [^\n]+\n", result.stderr), result.stderr
    assert result.stdout == ""
    return result.stderr


def failure_of(arguments: Sequence[object]) -> int:
    """Return the exit code of an error."""
    return 2 if arguments[0] in SEARCHES or " ".join(map(str, arguments[:2])) in SEARCHES else 1


def verbs() -> list[tuple[str, click.Command]]:
    return list(main.all_verbs().items())


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with what the examples of the help texts work on."""
    folder = tmp_path_factory.mktemp("prepared")
    rows = list(zip(FINGERPRINTS.tolist(), IDS, strict=True))
    (folder / "crawl.tsv").write_text("".join(f"{f:016x}\t{i}\n" for f, i in rows))
    (folder / "crawl.csv").write_text("".join(f"{f},{i}\n" for f, i in rows))
    (folder / "crawl.jsonl").write_text(
        "".join(json.dumps({"hash": f"{f:016x}", "url": i}) + "\n" for f, i in rows)
    )
    fresh = [(f ^ 7 << 40, f"{i}-new") for f, i in rows]
    (folder / "new.tsv").write_text("".join(f"{f:016x}\t{i}\n" for f, i in fresh))
    (folder / "new.csv").write_text("".join(f"{f},{i}\n" for f, i in fresh))
    (folder / "signed.csv").write_text("".join(f"{f - (f >> 63 << 64)},{i}\n" for f, i in rows))
    (folder / "new.jsonl").write_text(
        "".join(json.dumps({"hash": f"{f:016x}", "url": i}) + "\n" for f, i in fresh)
    )
    (folder / "pdq.tsv").write_text("".join(f"{f:064x}\t{i}\n" for f, i in rows))
    (folder / "short.tsv").write_text("".join(f"{f >> 32:08x}\t{i}\n" for f, i in rows))
    (folder / "gone.txt").write_text(f"{IDS[0]}\nnobody\n")
    for name, part in (
        ("a", FINGERPRINTS[:4]),
        ("b", FINGERPRINTS[4:]),
        ("queries", FINGERPRINTS[:2]),
    ):
        np.save(folder / f"{name}.npy", part)
    (folder / "frequent.txt").write_text("the that in a")
    (folder / "notes").mkdir()
    (folder / "notes" / "one.txt").write_text(TEXT)
    (folder / "notes" / "two.txt").write_text(TEXT + "and an ending")
    (folder / "notes" / "empty.md").write_text("")
    (folder / "notes" / "picture.txt").write_bytes(b"\x89PNG\0\0")
    (folder / "site").mkdir()
    page = (
        "<html><head><title>A "
        f"page</title></head><body><nav>Home</nav><article><p>{TEXT}</p></article></body></html>"
    )
    (folder / "site" / "page.html").write_text(page)
    (folder / "site" / "other.html").write_text(
        page.replace(TEXT, " ".join(f"{n * n * n % 997:b}" for n in range(300)))
    )
    (folder / "draft.txt").write_text(
        TEXT.replace("everybody", "everybody", 1) + "and another ending"
    )
    (folder / "photos").mkdir()
    drawn = Image.radial_gradient("L").crop((20, 0, 220, 120))
    for name, angle in (("one", 0), ("two", 1), ("three", 90)):
        drawn.rotate(angle).save(folder / "photos" / f"{name}.png")
    for name in ("four", "five"):  # of other families
        spots = np.random.default_rng(len(name)).integers(
            0, 256, (5, 5) if name == "four" else (4, 6), np.uint8
        )
        Image.fromarray(spots).resize((200, 120), Image.Resampling.BICUBIC).save(
            folder / "photos" / f"{name}.png"
        )
    drawn.resize((150, 90)).save(folder / "new.png")
    (folder / "photos" / "readme.txt").write_text("no picture")
    texts = [TEXT, TEXT + "and an ending", "something else altogether", TEXT]
    (folder / "pages.jsonl").write_text(
        "".join(json.dumps({"text": t, "score": i}) + "\n" for i, t in enumerate(texts))
    )
    asked = [
        {"question": TEXT[40:200], "number": 1},
        {"question": "Which text is this?", "number": 2},
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    titles = ["A word", "A word with an ending", None, "Another word"]
    pq.write_table(
        pa.table({"id": IDS[:4], "text": texts, "title": titles}), folder / "corpus.parquet"
    )
    (folder / "shards").mkdir()
    for name, some in (("one", texts[:2]), ("two", texts[2:])):
        pq.write_table(pa.table({"text": some}), folder / "shards" / f"{name}.parquet")
    vectors = np.random.default_rng(1).normal(size=(len(IDS), 16)).astype(np.float32)
    np.save(folder / "embeddings.npy", vectors)
    pq.write_table(
        pa.table({"name": IDS, "number": range(len(IDS)), "embedding": list(vectors)}),
        folder / "embeddings.parquet",
    )
    (folder / "pairs.csv").write_text("a,b,label\na,b,1\na,far,1\na,c,0\n")
    labelled = [
        {"text_a": "a b c d e f", "text_b": b, "label": n}
        for b, n in (("a b c d e g", 1), ("u v w x y z", 0))
    ]
    (folder / "labelled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labelled))
    (folder / "stories").mkdir()
    for name in ("one", "two", "three", "four"):
        (folder / "stories" / f"{name}.txt").write_text(
            "".join(f"Story {name} has {name} {i}. " for i in range(40))
        )
    signed = FINGERPRINTS.view(np.int64).tolist()
    (folder / "hashes.csv").write_text(
        "url,hash\n" + "".join(f"{i},{f}\n" for f, i in zip(signed, IDS, strict=True))
    )
    assert run("build", folder / "crawl.fps", folder / "crawl.tsv").exit_code == 0
    assert (
        run("build", folder / "vectors.fps", folder / "embeddings.npy", "--vector", "-q").exit_code
        == 0
    )
    for day in ("monday", "tuesday"):
        assert run("build", folder / f"{day}.fps", folder / "new.tsv", "-q").exit_code == 0
    for name, part in (("numbers", "a"), ("shard", "b")):
        assert run("build", folder / f"{name}.fps", folder / f"{part}.npy", "-q").exit_code == 0
    with chdir(folder):
        assert run("build", "notes.fps", "notes", "--text", "-q").exit_code == 0
        fields = ("--text-field", "title=4", "--text-field", "text", "--id-field", "id")
        assert run("build", "titled.fps", "corpus.parquet", *fields, "-q").exit_code == 0
        assert (
            run(
                "weights", "corpus.parquet", "--text-field", "text", "-o", "weights.json", "-q"
            ).exit_code
            == 0
        )
        for name, *inputs in (
            ("pages", "pages.jsonl", "--text-field", "text"),
            ("notes", "notes", "--text"),
            ("titled", "corpus.parquet", "--text-field", "text", "--id-field", "id"),
        ):
            assert (
                run("lsh", "build", f"{name}.lsh", *inputs, "--threshold", "0.5", "-q").exit_code
                == 0
            )
        assert run("build", "photos.fps", "photos", "--image", "-q").exit_code == 0
        assert run("build", "site.fps", "site", "--text", "--html", "-q").exit_code == 0
    return folder


def copied(source: Path, target: Path) -> None:
    """Copy what a folder holds, holes of files as holes: the files of LMDB are mostly holes."""
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy it, and make that the current folder."""
    copied(prepared, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
