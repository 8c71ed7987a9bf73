"""Names and extensions of files of rows, their compression, and formats that are named."""

import bz2
import gzip
import json
import logging
import lzma

import pytest
import zstandard
from commandline import run
from inputs import json_lines
from small_plans import plan_dedup

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import open_reader
from fpstore.plans.inputs import find_inputs

TEXTS = [
    "the quick brown fox jumps over the lazy dog and runs away",
    "nobody has written these words before anywhere",
]
ROWS = [{"id": n, "text": text} for n, text in enumerate([TEXTS[0], TEXTS[1], TEXTS[0]])]
LINES = json_lines(ROWS).encode()
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
UNPACKED = {
    "": bytes,
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


@pytest.mark.parametrize("packing", list(PACKED))
@pytest.mark.parametrize("extension", [".json", ".jsonl", ".ndjson", ".jl", ".jsonlines"])
def test_names_of_json_lines(tmp_path, extension, packing):
    path = tmp_path / "k" / f"train{extension}{packing}"
    path.parent.mkdir()
    path.write_bytes(PACKED[packing](LINES))
    fpstore.dedup(path.parent, tmp_path / "out", text="text")
    (written,) = (tmp_path / "out").iterdir()
    assert written.name == f"train{extension}{packing}"
    assert UNPACKED[packing](written.read_bytes()).splitlines() == LINES.splitlines()[:2]
    for other in PACKED:
        fpstore.dedup(path, one := tmp_path / f"one{extension}{other}", text="text")
        assert UNPACKED[other](one.read_bytes()).splitlines() == LINES.splitlines()[:2]
        assert other != packing or one.read_bytes() == written.read_bytes()
    fpstore.dedup(tmp_path / "k", tmp_path / "out", text="text", overwrite=True)


@pytest.mark.parametrize("packing", list(PACKED))
def test_packed_files_of_several_frames(tmp_path, packing):
    path = tmp_path / f"a.tsv{packing}"
    frames = [f"{n:016x}\t{n}\n".encode() * 5000 for n in range(3)]
    path.write_bytes(b"".join(map(PACKED[packing], frames)))
    assert sum(len(chunk.ids) for chunk in open_reader(path)) == 15_000
    if packing:
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(InputError, match="damaged"):
            list(open_reader(path))
        path.write_bytes(b"0000000000000001\n")
        with pytest.raises(InputError, match="its extension says"):
            list(open_reader(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps(ROWS), "is one JSON array"),
        (json.dumps(ROWS, indent=1), "is one JSON array"),
        (json.dumps(ROWS[0], indent=2), "is JSON over several lines"),
        ("\ufeff" + json.dumps(ROWS), "is one JSON array"),
        (json.dumps(["long " * (1 << 22)]), "is one JSON array"),
    ],
)
def test_json_that_is_no_lines_is_named(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(
        InputError, match=rf"a.json: {message}.*jq -c .*FILE.jsonl writes a line for each \w+$"
    ):
        list(TextReader(path, SimHash(), text="text"))


def test_an_array_behind_rows_is_a_bad_row(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(LINES + b"[1]\n")
    with pytest.raises(InputError, match=r"a.json:4: expected a JSON object, got \[1\]"):
        list(TextReader(path, SimHash(), text="text"))


@pytest.mark.parametrize("is_stored", [False, True])
def test_json_beside_rows_of_another_format_describes_them(tmp_path, is_stored, caplog):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.csv").write_text(f"text\n{TEXTS[0]}\n")
    (tmp_path / "k" / "dataset_info.json").write_text("{\n}")
    with caplog.at_level(logging.WARNING, "fpstore"):
        result = find_inputs((tmp_path / "k").as_uri() if is_stored else tmp_path / "k")
    assert [spec.name for spec in result] == ["a.csv"]
    assert "1 file named .json left out" in caplog.text


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("name", ["part-0.json.gz", "part-0.json"])
def test_rows_in_json_are_not_lost_beside_another_format(tmp_path, is_stored, name):
    (tmp_path / "k").mkdir()
    (tmp_path / "k" / "a.csv").write_text(f"text\n{TEXTS[0]}\n")
    (tmp_path / "k" / name).write_bytes(gzip.compress(LINES) if name.endswith(".gz") else LINES)
    with pytest.raises(InputError, match=r"files of one format are expected, got \.?csv, \.?jsonl"):
        find_inputs((tmp_path / "k").as_uri() if is_stored else tmp_path / "k")


@pytest.fixture
def odd(tmp_path, monkeypatch):
    """Make a folder of JSON lines under names that say nothing."""
    (tmp_path / "k").mkdir()
    for name in ("part-0", "part-1.data"):
        (tmp_path / "k" / name).write_bytes(LINES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize(
    "command",
    [
        "dedup k out",
        "dedup k out --processes 2",
        "dedup k/part-0 out.jsonl",
        "boilerplate k out --unit line",
        "dedup k out --against k2",
        "decontaminate k benchmark.jsonl",
        "calibrate k --sample 10 --copies 2",
        "weights k",
        "lsh build i.lsh k --threshold 0.5",
        "build s.fps k",
        "task build p s.fps k",
        "task lsh p i.lsh k --threshold 0.5",
    ],
)
def test_format_counts_for_folders(odd, command):
    (odd / "benchmark.jsonl").write_bytes(LINES)
    (odd / "k2").mkdir()
    (odd / "k2" / "other").write_bytes(LINES)
    done = run(*command.split(), "--text-field", "text", "--format", "jsonl")
    assert done.exit_code == 0, done.output
    if command.startswith("dedup k out") and "--" not in command:
        assert sorted(path.name for path in (odd / "out").iterdir()) == ["part-0", "part-1.data"]
        assert (
            run(*command.split(), "--text-field", "text", "--format", "jsonl", "--force").exit_code
            == 0
        )


def test_format_of_functions(odd):
    assert len(fpstore.dedup("k", text="text", format="jsonl").kept) == 2
    assert len(fpstore.remove_boilerplate("k", text="text", format="jsonl").pieces) == 0
    (odd / "benchmark.jsonl").write_bytes(LINES)
    assert (
        len(fpstore.decontaminate("k", "benchmark.jsonl", text="text", format="jsonl").hits.rows)
        > 0
    )


@pytest.mark.full
@pytest.mark.parametrize("is_stored", [False, True])
def test_format_of_plans(odd, is_stored):
    source = (odd / "k").as_uri() if is_stored else "k"
    plan = plan_dedup(odd / "plan", source, odd / "planned", text="text", format="jsonl")
    plan.run_all()
    assert plan.finish()["kept"] == 2
    assert sorted(path.name for path in (odd / "planned").iterdir()) == [
        "_fpstore.json",
        "part-0",
        "part-1.data",
    ]
