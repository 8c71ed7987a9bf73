"""What a deduplication writes to: outputs that are refused, inputs that change meanwhile, and disks that fill."""

import resource
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from living import forked

import fpstore
from fpstore.errors import InputError, StorageError, StoreExistsError
from fpstore.hashing.corpora import open_corpus
from fpstore.jobs.dedup import check_output


def test_clusters_do_not_replace_a_text(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("a.txt", "list.tsv"):
        (folder / name).write_text("the same words in both of them")
    listing = folder / "list.tsv"
    with pytest.raises(InputError, match="is an input too"):
        check_output(listing, open_corpus(folder, texts=True), overwrite=True, of_rows=False)
    assert listing.read_text() == "the same words in both of them"


def test_outputs_that_are_refused(tmp_path):
    path = tmp_path / "corpus.csv"
    path.write_text("h\n0000000000000001\n")
    (tmp_path / "link.csv").symlink_to(path)
    (tmp_path / "there.csv").write_text("kept as it is")
    for output, kind, message in (
        (path, InputError, "is an input too"),
        (tmp_path / "link.csv", InputError, "is an input too"),
        (tmp_path / "clean.parquet", InputError, r"name a \.csv file"),
        (tmp_path / "none" / "clean.csv", StorageError, "no such folder"),
        (tmp_path / "there.csv", StoreExistsError, "exists"),
    ):
        with pytest.raises(kind, match=message):
            fpstore.dedup(path, output, fingerprint="h", overwrite=kind is InputError)
    assert (tmp_path / "there.csv").read_text() == "kept as it is"
    fpstore.dedup(path, tmp_path / "there.csv", fingerprint="h", overwrite=True)
    assert (tmp_path / "there.csv").read_text() == path.read_text()


@pytest.mark.parametrize("text", [True, None])
def test_an_output_in_a_folder_that_is_read(tmp_path, text):
    """It was input of the next run."""
    folder = tmp_path / "corpus"
    (folder / "more").mkdir(parents=True)
    (folder / "a.csv").write_text("h\n0000000000000001\n")
    (folder / "a.txt").write_text("some words")
    how = {"text": True} if text else {"fingerprint": "h"}
    for output in (folder / "clean.csv", folder / "more" / "clean.csv", tmp_path / "corpus" / ".." / "corpus" / "clean.csv"):
        with pytest.raises(InputError, match=r"is in .*corpus, and the next run would read it"):
            fpstore.dedup(folder, output, **how)
    with pytest.raises(InputError, match=r"is in .*corpus, and the next run would read it"):
        fpstore.dedup(folder, tmp_path / "clean.csv", resume=folder / "kept", **how)
    assert len(list(folder.rglob("*"))) == 3


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_a_corpus_that_changes_meanwhile(tmp_path, form):
    path = tmp_path / f"corpus.{form}"

    def write(count):
        if form == "parquet":
            pq.write_table(pa.table({"h": pa.array(range(count), pa.uint64())}), path)
        else:
            lines = [f"{n:016x}" for n in range(count)]
            path.write_text("h\n" + "\n".join(lines) + "\n" if form == "csv" else "".join(f'{{"h": "{h}"}}\n' for h in lines))

    for later in (9, 11, 10, 0):
        write(10)

        def change(phase, done, total, later=later):
            if phase == "clustering":
                write(later)

        with pytest.raises(InputError, match="changed while it was read"):
            fpstore.dedup(path, tmp_path / f"clean.{form}", fingerprint="h", progress=change)
        assert sorted(tmp_path.iterdir()) == [path]


def test_texts_that_change_meanwhile(tmp_path):
    """They were copied as they were then."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.txt").write_text(f"words of {name} that no other has")

    def change(phase, done, total):
        if phase == "copying" and done == 1:
            (folder / "c.txt").write_text("something else")

    with pytest.raises(InputError, match=r"c\.txt: changed while it was read"):
        fpstore.dedup(folder, tmp_path / "clean", text=True, progress=change)
    assert sorted(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_write_that_the_system_refuses_leaves_nothing(tmp_path, form):
    path = tmp_path / f"corpus.{form}"
    digits = [f"{value:016x}" for value in np.random.default_rng(1).integers(0, 2**64, 50_000, np.uint64).tolist()]
    if form == "parquet":
        pq.write_table(pa.table({"h": digits}), path)
    else:
        path.write_text("".join(f'{{"h": "{h}"}}\n' for h in digits))

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        with pytest.raises(StorageError, match="File too large"):
            fpstore.dedup(path, tmp_path / f"clean.{form}", fingerprint="h", radius=0, threads=1)

    forked(limited)
    assert sorted(tmp_path.iterdir()) == [path]


def test_folders_for_texts(tmp_path, monkeypatch):
    folder, there = tmp_path / "notes", tmp_path / "there"
    folder.mkdir()
    there.mkdir()
    (folder / "a.txt").write_text("some words")
    (tmp_path / "link").symlink_to(there)
    (tmp_path / "dangling").symlink_to(tmp_path / "new")
    for output in ("link", "dangling", "x" * 250):
        fpstore.dedup(folder, tmp_path / output, text=True)
        assert (tmp_path / output / "a.txt").read_text() == "some words"
    with pytest.raises(InputError, match="is the output, or in it"):
        fpstore.dedup(folder, tmp_path / "o", text=True, resume=tmp_path / "o" / "kept")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError, match="is the current folder"):
        fpstore.dedup(folder, ".", text=True)
