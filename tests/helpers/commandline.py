"""The command line in this process or another, and a folder of inputs and stores for it."""

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
from inputs import json_lines
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
    with chdir(folder):
        write_fingerprints()
        write_texts()
        write_pictures()
        write_tables()
        build_stores()
    return folder


def write_fingerprints() -> None:
    rows = list(zip(FINGERPRINTS.tolist(), IDS, strict=True))
    fresh = [(f ^ 7 << 40, f"{i}-new") for f, i in rows]
    for name, pairs in (("crawl", rows), ("new", fresh)):
        Path(f"{name}.tsv").write_text("".join(f"{f:016x}\t{i}\n" for f, i in pairs))
        Path(f"{name}.csv").write_text("".join(f"{f},{i}\n" for f, i in pairs))
        Path(f"{name}.jsonl").write_text(
            json_lines({"hash": f"{f:016x}", "url": i} for f, i in pairs)
        )
    signed = list(zip(FINGERPRINTS.view(np.int64).tolist(), IDS, strict=True))
    Path("signed.csv").write_text("".join(f"{f},{i}\n" for f, i in signed))
    Path("hashes.csv").write_text("url,hash\n" + "".join(f"{i},{f}\n" for f, i in signed))
    Path("pdq.tsv").write_text("".join(f"{f:064x}\t{i}\n" for f, i in rows))
    Path("short.tsv").write_text("".join(f"{f >> 32:08x}\t{i}\n" for f, i in rows))
    Path("gone.txt").write_text(f"{IDS[0]}\nnobody\n")
    np.save("a.npy", FINGERPRINTS[:4])
    np.save("b.npy", FINGERPRINTS[4:])
    np.save("queries.npy", FINGERPRINTS[:2])
    Path("pairs.csv").write_text("a,b,label\na,b,1\na,far,1\na,c,0\n")


def write_texts() -> None:
    for folder in ("notes", "site", "stories"):
        Path(folder).mkdir()
    Path("frequent.txt").write_text("the that in a")
    Path("notes/one.txt").write_text(TEXT)
    Path("notes/two.txt").write_text(TEXT + "and an ending")
    Path("notes/empty.md").write_text("")
    Path("notes/picture.txt").write_bytes(b"\x89PNG\0\0")
    page = (
        "<html><head><title>A page</title></head>"
        f"<body><nav>Home</nav><article><p>{TEXT}</p></article></body></html>"
    )
    other = " ".join(f"{n * n * n % 997:b}" for n in range(300))
    Path("site/page.html").write_text(page)
    Path("site/other.html").write_text(page.replace(TEXT, other))
    Path("draft.txt").write_text(TEXT + "and another ending")
    for name in ("one", "two", "three", "four"):
        story = "".join(f"Story {name} has {name} {i}. " for i in range(40))
        Path(f"stories/{name}.txt").write_text(story)


def write_pictures() -> None:
    Path("photos").mkdir()
    Path("photos/readme.txt").write_text("no picture")
    drawn = Image.radial_gradient("L").crop((20, 0, 220, 120))
    for name, angle in (("one", 0), ("two", 1), ("three", 90)):
        drawn.rotate(angle).save(f"photos/{name}.png")
    for name, shape in (("four", (5, 5)), ("five", (4, 6))):  # of other families
        spots = np.random.default_rng(4).integers(0, 256, shape, np.uint8)
        picture = Image.fromarray(spots).resize((200, 120), Image.Resampling.BICUBIC)
        picture.save(f"photos/{name}.png")
    drawn.resize((150, 90)).save("new.png")
    Path("copies.tsv").write_text("id\tkept\tdistance\nphotos/two.png\tphotos/one.png\t2\n")
    Path("choices.jsonl").write_text('{"id": "photos/two.png", "choice": "remove"}\n')


def write_tables() -> None:
    texts = [TEXT, TEXT + "and an ending", "something else altogether", TEXT]
    Path("pages.jsonl").write_text(
        json_lines(
            {"text": text, "score": score, "url": f"http://a.org/{score}"}
            for score, text in enumerate(texts)
        )
    )
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": TEXT}]
    Path("chats.jsonl").write_text(json_lines([{"messages": messages}]))
    questions = (TEXT[40:200], "Which text is this?")
    Path("questions.jsonl").write_text(
        json_lines({"question": q, "number": n} for n, q in enumerate(questions, 1))
    )
    titles = ["A word", "A word with an ending", None, "Another word"]
    pq.write_table(pa.table({"id": IDS[:4], "text": texts, "title": titles}), "corpus.parquet")
    Path("shards").mkdir()
    pq.write_table(pa.table({"text": texts[:2]}), "shards/one.parquet")
    pq.write_table(pa.table({"text": texts[2:]}), "shards/two.parquet")
    labelled = (("a b c d e g", 1), ("u v w x y z", 0))
    Path("labelled.jsonl").write_text(
        json_lines({"text_a": "a b c d e f", "text_b": b, "label": n} for b, n in labelled)
    )
    vectors = np.random.default_rng(1).normal(size=(len(IDS), 16)).astype(np.float32)
    np.save("embeddings.npy", vectors)
    pq.write_table(
        pa.table({"name": IDS, "number": range(len(IDS)), "embedding": list(vectors)}),
        "embeddings.parquet",
    )


def build_stores() -> None:
    for store, *inputs in (
        ("crawl.fps", "crawl.tsv"),
        ("vectors.fps", "embeddings.npy", "--vector"),
        ("monday.fps", "new.tsv"),
        ("tuesday.fps", "new.tsv"),
        ("numbers.fps", "a.npy"),
        ("shard.fps", "b.npy"),
        ("notes.fps", "notes", "--text"),
        ("titled.fps", "corpus.parquet", "--text-field", "title=4", *TEXT_AND_ID),
        ("photos.fps", "photos", "--image"),
        ("site.fps", "site", "--text", "--html"),
    ):
        fine("build", store, *inputs, "-q")
    for index, *inputs in (
        ("pages.lsh", "pages.jsonl", *TEXT_FIELD),
        ("notes.lsh", "notes", "--text"),
        ("titled.lsh", "corpus.parquet", *TEXT_AND_ID),
    ):
        fine("lsh", "build", index, *inputs, "--threshold", "0.5", "-q")
    fine("weights", "corpus.parquet", *TEXT_FIELD, "-o", "weights.json", "-q")
    listed = ("--excerpts-of", 300, "--removed", "removed.parquet", "-q")
    fine("dedup", "corpus.parquet", "kept.parquet", *TEXT_FIELD, *listed)
    Path("kept.parquet").unlink()


def copied(source: Path, target: Path) -> None:
    """Copy what a folder holds, holes of files as holes: the files of LMDB are mostly holes."""
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy it, and make that the current folder."""
    copied(prepared, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
