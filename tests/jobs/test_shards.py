"""A folder of files of rows to a folder of the same names.

What each file keeps, kills, and what is refused.
"""

import csv
import gzip
import itertools
import json
import os
import random
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from inputs import json_lines
from resuming import in_another, killed
from speeds import slow

import fpstore
from fpstore.errors import InputError, StoreExistsError

FORMATS = ("parquet", "jsonl", "csv", "tsv")
NAMES = ("b", "a", "deep/a", "deep/er/c", "z")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        types = pa.schema({"n": pa.int64(), "h": pa.string()}, {b"key": b"value"})
        pq.write_table(
            pa.Table.from_pylist(rows, types), path, compression="zstd", row_group_size=7
        )
    elif path.suffix == ".jsonl":
        path.write_text(json_lines(rows))
    else:
        with path.open("w", newline="") as file:
            lines = csv.writer(
                file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n"
            )
            lines.writerows([["n", "h"], *([row["n"], row["h"]] for row in rows)])


def numbers(path):
    """Return the numbers of the rows of a file."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        assert table.schema.equals(pa.schema({"n": pa.int64(), "h": pa.string()}))
        assert table.schema.metadata == {b"key": b"value"}
        return table["n"].to_pylist()
    lines = path.read_text().splitlines()
    if path.suffix == ".jsonl":
        return [json.loads(line)["n"] for line in lines]
    gap = "\t" if path.suffix == ".tsv" else ","
    assert lines[0] == f"n{gap}h"
    return [int(line.split(gap)[0]) for line in lines[1:]]


def corpus_in(folder, suffix, seed, sizes=(40, 0, 31, 1, 55)):
    """Write shards of rows with some equal hashes.

    Return the numbers of the first row of each hash, by name.
    """
    rng, seen, wanted = random.Random(seed), set(), {}
    values = [rng.getrandbits(40) << 20 for _ in range(30)]
    names = sorted(f"{name}.{suffix}" for name in NAMES)
    counts = itertools.count()
    for name, size in zip(sorted(names, key=order_of), sizes, strict=True):
        rows = [{"n": next(counts), "h": f"{rng.choice(values):016x}"} for _ in range(size)]
        write(folder / name, rows)
        wanted[name] = [row["n"] for row in rows if row["h"] not in seen and not seen.add(row["h"])]
    return wanted


def order_of(name):
    """Return what names are sorted by in a folder: one part after the other."""
    return Path(name).parts


def found_in(folder):
    return {
        path.relative_to(folder).as_posix(): numbers(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("suffix", FORMATS)
def test_each_file_has_its_kept_rows(tmp_path, suffix, threads):
    wanted = corpus_in(tmp_path / "crawl", suffix, f"{suffix}{threads}")
    assert [] in wanted.values()
    seen = []
    result = fpstore.dedup(
        tmp_path / "crawl",
        tmp_path / "clean",
        fingerprint="h",
        radius=0,
        threads=threads,
        progress=lambda *said: seen.append(said),
    )
    assert found_in(tmp_path / "clean") == wanted
    assert sorted(result.kept.tolist()) == sorted(itertools.chain(*wanted.values()))
    assert next(total for phase, _, total in seen if phase == "copying") == 127
    fpstore.dedup(tmp_path / "crawl", tmp_path / f"one.{suffix}", fingerprint="h", radius=0)
    assert numbers(tmp_path / f"one.{suffix}") == sorted(itertools.chain(*wanted.values()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "crawl", f"one.{suffix}"]


def test_names_in_the_new_folder(tmp_path):
    wanted = corpus_in(tmp_path / "crawl", "jsonl", 1)
    paths = [tmp_path / "crawl" / name for name in sorted(wanted, key=order_of)]
    packed = paths[0].with_name(f"{paths[0].name}.gz")
    packed.write_bytes(gzip.compress(paths[0].read_bytes()))
    # of the two of one name, the one in the folder is given below
    files = [packed, *paths[1:2], *paths[3:]]
    same = [tmp_path / name / "a.jsonl" for name in "cd"]
    for path in same:
        write(path, [])
    with pytest.raises(
        InputError, match=r"c/a\.jsonl and .*d/a\.jsonl would both be written to a\.jsonl: "
    ):
        fpstore.dedup(same, tmp_path / "clean", fingerprint="h", radius=0)
    fpstore.dedup(files, tmp_path / "clean", fingerprint="h", radius=0)
    assert sorted(path.name for path in (tmp_path / "clean").iterdir()) == sorted(
        path.name for path in files
    )
    with gzip.open(tmp_path / "clean" / packed.name) as lines:
        assert [json.loads(line)["n"] for line in lines] == wanted[paths[0].name]
    shutil.move(tmp_path / "crawl" / "deep", tmp_path / "other")
    packed.unlink()
    fpstore.dedup(
        [tmp_path / "crawl", tmp_path / "other"], tmp_path / "two", fingerprint="h", radius=0
    )
    assert sorted(found_in(tmp_path / "two")) == [
        "crawl/a.jsonl",
        "crawl/b.jsonl",
        "crawl/z.jsonl",
        "other/a.jsonl",
        "other/er/c.jsonl",
    ]
    fpstore.dedup(tmp_path / "crawl", tmp_path / "clean.v2", fingerprint="h", radius=0)
    assert sorted(found_in(tmp_path / "clean.v2")) == ["a.jsonl", "b.jsonl", "z.jsonl"]
    (tmp_path / "empty").mkdir()
    fpstore.dedup(tmp_path / "crawl" / "z.jsonl", tmp_path / "empty", fingerprint="h", radius=0)
    fpstore.dedup(tmp_path / "crawl" / "z.jsonl", f"{tmp_path}/slash/", fingerprint="h", radius=0)
    assert list(found_in(tmp_path / "empty")) == list(found_in(tmp_path / "slash")) == ["z.jsonl"]


def test_links_to_files_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("blobs").mkdir()
    Path("shards").mkdir()
    for n in range(2):
        Path(f"blobs/{n}").write_text(f'{{"text": "a b c {n}"}}\n')
        Path(f"shards/{n}.jsonl").symlink_to(f"../blobs/{n}")
    assert len(fpstore.dedup("shards", "clean", text="text").kept) == 2
    assert sorted(path.name for path in Path("clean").iterdir()) == ["0.jsonl", "1.jsonl"]


def test_what_is_refused(tmp_path):
    corpus_in(tmp_path / "crawl", "csv", 2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a.csv").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for source, output, kind, message, force in (
        ("crawl", "full", StoreExistsError, r"full exists: overwrite=True replaces it", False),
        ("crawl", "file", StoreExistsError, "file exists, and is no folder", True),
        (
            "full/a.csv",
            "clean",
            InputError,
            "the output has the format of the input: name a .csv file or a new folder, whose name",
            False,
        ),
        ("full/a.csv", "full", InputError, r"full/a\.csv is an input in it", True),
        (
            "crawl",
            "crawl/clean",
            InputError,
            "is in .*crawl, and the next run would read it",
            False,
        ),
        ("crawl", "clean.npy", InputError, "the output has the format of the input", False),
        ("crawl", "clean.gz", InputError, "the output has the format of the input", False),
    ):
        with pytest.raises(kind, match=message):
            fpstore.dedup(
                tmp_path / source, tmp_path / output, fingerprint="h", radius=0, overwrite=force
            )
    for name, table in (
        ("a", {"h": ["0"], "n": [1]}),
        ("b", {"h": ["0"], "n": ["1"]}),
        ("c", {"h": ["0"]}),
    ):
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    with pytest.raises(
        InputError, match=r"b\.parquet: the column 'n' is string here, and int64 in .*a\.parquet"
    ):
        fpstore.dedup(
            [tmp_path / "a.parquet", tmp_path / "b.parquet"],
            tmp_path / "one.parquet",
            fingerprint="h",
            radius=0,
        )
    with pytest.raises(InputError, match=r"c\.parquet: no column named 'n'"):
        fpstore.dedup(
            [tmp_path / "a.parquet", tmp_path / "c.parquet"], fingerprint="h", id="n", radius=0
        )
    for name in "abc":
        (tmp_path / f"{name}.parquet").unlink()
    fpstore.dedup(tmp_path / "crawl", tmp_path / "full", fingerprint="h", radius=0, overwrite=True)
    (tmp_path / "full" / "notes.md").write_text("mine")
    with pytest.raises(
        StoreExistsError, match=r"full/notes\.md is no \.csv file: name a new folder"
    ):
        fpstore.dedup(
            tmp_path / "crawl", tmp_path / "full", fingerprint="h", radius=0, overwrite=True
        )
    assert (tmp_path / "full" / "notes.md").read_text() == "mine"
    (tmp_path / "full" / "notes.md").unlink()
    (tmp_path / "full" / ".git").mkdir()
    (tmp_path / "full" / ".git" / "HEAD").write_text("mine")
    with pytest.raises(StoreExistsError, match=r"full/\.git/HEAD is no \.csv file"):
        fpstore.dedup(
            tmp_path / "crawl", tmp_path / "full", fingerprint="h", radius=0, overwrite=True
        )
    shutil.rmtree(tmp_path / "full" / ".git")
    (tmp_path / "full" / "link.csv").symlink_to(tmp_path / "crawl" / "a.csv")
    with pytest.raises(StoreExistsError, match=r"full/link\.csv is no \.csv file"):
        fpstore.dedup(
            tmp_path / "crawl", tmp_path / "full", fingerprint="h", radius=0, overwrite=True
        )
    assert (tmp_path / "full" / "link.csv").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crawl", "file", "full"]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_shard_that_is_damaged_or_changes(tmp_path, suffix):
    corpus_in(tmp_path / "crawl", suffix, 3)
    path = tmp_path / "crawl" / "deep" / f"a.{suffix}"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    with pytest.raises(InputError, match=rf"deep/a\.{suffix}"):
        fpstore.dedup(tmp_path / "crawl", tmp_path / "clean", fingerprint="h", radius=0)
    path.write_bytes(whole)

    def changes(phase, done, total):
        if phase == "copying" and path.read_bytes() == whole:
            path.write_bytes(whole + (b"\n" if suffix == "jsonl" else b""))
            os.utime(path, ns=(1, 1))

    def stops(phase, done, total):
        if phase == "copying":
            raise KeyboardInterrupt

    for progress, kind in ((changes, InputError), (stops, KeyboardInterrupt)):
        with pytest.raises(kind):
            fpstore.dedup(
                tmp_path / "crawl",
                tmp_path / "clean",
                fingerprint="h",
                radius=0,
                threads=2,
                progress=progress,
            )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crawl"]


@pytest.mark.parametrize("every", [2, slow(1)])
def test_killed_and_resumed(tmp_path, monkeypatch, every):
    """Before it is complete, the folder is not there.

    The same command goes on, and replaces a folder that it has not made.
    """
    monkeypatch.chdir(tmp_path)
    wanted = corpus_in(Path("crawl"), "jsonl", 4)
    words = [
        "dedup",
        "crawl",
        "clean",
        "--fingerprint-field",
        "h",
        "--radius",
        "0",
        "--threads",
        "1",
        "--quiet",
        "--resume",
        "--clusters",
        "c.tsv",
    ]
    count = in_another(words)
    assert count
    assert count > 6
    lists = Path("c.tsv").read_bytes()
    for force, call in itertools.product((False, True), range(1, count + 1)):
        if (call + force) % every:  # each call is met with or without a folder that is replaced
            continue
        shutil.rmtree("clean")
        Path("c.tsv").unlink()
        if force:
            write(Path("clean/old.jsonl"), [])
            words = [*words, "--force"] if "--force" not in words else words
        if not killed(words, call):
            continue  # folders are exchanged, not renamed
        assert found_in(Path("clean")) in (({"old.jsonl": []},) if force else ({}, wanted))
        fine(*words)
        assert found_in(Path("clean")) == wanted
        assert Path("c.tsv").read_bytes() == lists
        assert sorted(map(str, Path().iterdir())) == ["c.tsv", "clean", "crawl"]


def test_command_line(folder: Path) -> None:
    for name in ("one", "two"):
        shutil.copy("corpus.parquet", f"shards/{name}.parquet")
    out = fine("dedup", "shards", "clean", "--text-field", "text", "--threads", 2)
    assert re.search(r"kept +2  in clean\n", out)
    assert [pq.read_table(f"clean/{name}.parquet").num_rows for name in ("one", "two")] == [2, 0]
    assert "clean exists: --force replaces it" in failure(
        "dedup", "shards", "clean", "--text-field", "text"
    )
    assert "clean/c.tsv: is in the output: name another file for the list" in failure(
        "dedup", "shards", "clean", "--text-field", "text", "--clusters", "clean/c.tsv", "--force"
    )


@pytest.mark.parametrize("name", [".DS_Store", "_SUCCESS", ".part-0.csv.crc"])
def test_hidden_files_do_not_stop_overwriting(tmp_path, name):
    (tmp_path / "crawl").mkdir()
    (tmp_path / "crawl" / "a.csv").write_text("h\n0x0\n")
    fpstore.dedup(tmp_path / "crawl", tmp_path / "out/", fingerprint="h", radius=0)
    (tmp_path / "out" / name).write_text("of a file manager or an engine")
    fpstore.dedup(tmp_path / "crawl", tmp_path / "out/", fingerprint="h", radius=0, overwrite=True)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a.csv"]
