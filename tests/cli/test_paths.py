"""Paths of every kind: names that are not UTF-8 work everywhere.

What can be no path is refused before anything is made.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from commandline import COMMAND, failure

import fpstore

NAME = os.fsdecode(b"caf\xe9")
ESCAPED = "caf\\xe9"


def command(*arguments, code=0):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True)
    assert done.returncode == code, done
    return done.stdout.decode("utf-8"), done.stderr.decode("utf-8")


def test_a_store_whose_name_is_not_utf8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Path(NAME)
    folder.mkdir()
    path = folder / f"{NAME}.fps"
    with fpstore.build(path, [7, 11], ["a", "b"], design="manku-4") as store:
        assert store.probe(7)[0].ids == ["a"]
        assert NAME.encode("unicode_escape").decode() in repr(store)
    with fpstore.open(path, "r+") as store:
        store.insert([1 << 40], ["c"])
        store.delete(ids="b")
        store.merge()
        store.insert([1 << 50], ["d"])
        assert store.verify().ok
        assert store.stats()["fingerprints"] == 3
        store.backup(folder / f"copy-{NAME}")
        parts = store.split(folder / f"parts-{NAME}", 1)
    with fpstore.open(parts[0], "r+") as part:
        part.absorb(folder / f"copy-{NAME}")
        assert len(part) == 3
    assert fpstore.repair(path).sound
    table = next(path.glob("gen-*/table-001.fpt"))
    data = table.read_bytes()
    table.write_bytes(data[:100])
    with pytest.raises(fpstore.CorruptStoreError) as caught:
        fpstore.open(path)
    assert ESCAPED in str(caught.value)
    str(caught.value).encode("utf-8")
    report = fpstore.repair(path, in_place=True)
    assert report.complete
    with fpstore.open(path) as store:
        assert len(store) == 3


@pytest.mark.full
def test_commands_on_names_that_are_not_utf8(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = Path(f"{NAME}.tsv")
    rows.write_text("0000000000000007\ta\n")
    store = f"{NAME}.fps"
    assert command("build", store, str(rows))[0].startswith(f"{ESCAPED}.fps: 1 fingerprint")
    for verb in (
        ["verify"],
        ["probe", "0x7", "-o", f"{NAME}.jsonl"],
        ["export", "-o", f"out-{NAME}.tsv"],
    ):
        assert command(verb[0], store, *verb[1:])[1] == ""
    assert json.loads(Path(f"{NAME}.jsonl").read_text())["matches"][0]["ids"] == ["a"]
    assert command("build", store, str(rows), code=1)[1].count(ESCAPED) == 1
    Path(NAME).mkdir()
    (Path(NAME) / f"{NAME}.txt").write_text("some words in a text")
    (Path(NAME) / "plain.txt").write_text("some other words in a text")
    command("build", "texts.fps", NAME, "--text")
    with fpstore.open("texts.fps") as opened:
        assert f"{ESCAPED}/{ESCAPED}.txt" in opened.ids
        assert len(opened.ids) == 2
    # An id cannot hold such bytes: it is refused, and nothing is deleted.
    assert "is not valid UTF-8" in command("delete", "texts.fps", f"{NAME}/{NAME}.txt", code=1)[1]
    assert len(fpstore.open("texts.fps").ids) == 2


def test_targets_inside_a_store_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fpstore.build("s.fps", [7, 11]).close()
    Path("link").symlink_to("s.fps")
    before = sorted(Path().rglob("*"))
    with fpstore.open("s.fps") as store:
        for inside in ("s.fps", "s.fps/parts", "link", "link/parts", "s.fps/gen-00000001"):
            with pytest.raises(fpstore.InputError, match=r"inside the store|itself"):
                store.split(inside, 1)
            if inside not in ("s.fps", "link"):
                with pytest.raises(fpstore.InputError, match=r"inside the store|itself"):
                    store.backup(inside)
        for overwrite in (False, True):
            with pytest.raises(fpstore.FpstoreError, match=r"itself|inside the store"):
                store.backup("s.fps", overwrite=overwrite)
    for inside in ("s.fps/new.fps", "link/new.fps", "s.fps/gen-00000001/new.fps"):
        with pytest.raises(
            fpstore.InputError, match=r"inside the store .*s\.fps: choose a path outside"
        ):
            fpstore.build(inside, [1])
        with pytest.raises(fpstore.InputError, match="inside the store"):
            fpstore.build(inside, [1], overwrite=True)
    for name in ("output", "lost"):
        with pytest.raises(fpstore.InputError, match="inside the store"):
            fpstore.repair("s.fps", **{name: "s.fps/new"})
    for verb in (["export", "s.fps"], ["probe", "s.fps", "0x7"]):
        assert "inside the store" in failure(*verb, "-o", "s.fps/out.tsv")
    assert sorted(Path().rglob("*")) == before


@pytest.mark.full
def test_inputs_inside_a_store(tmp_path, monkeypatch):
    """A build does not replace the store that its input is in.

    Texts of a folder leave out the stores in it.
    """
    monkeypatch.chdir(tmp_path)
    fpstore.build("s.fps", [7, 11]).close()
    Path("s.fps/in.tsv").write_text("0000000000000007\ta\n")
    Path("s.fps/a.txt").write_text("some words")
    Path("a.txt").write_text("some words in a text")
    assert "s.fps/in.tsv: lies inside s.fps" in failure("build", "s.fps", "s.fps/in.tsv", "--force")
    assert "s.fps/a.txt: lies inside s.fps" in failure(
        "build", "s.fps", "s.fps/a.txt", "--text", "--force"
    )
    assert Path("s.fps/in.tsv").exists()
    assert command("build", "texts.fps", ".", "--text", "-q") == ("", "")
    with fpstore.open("texts.fps") as store:
        assert next(iter(store.items()))[2] == ["a.txt"]
    for name, reason in (
        ("a\0b", "a NUL character"),
        ("a\ud800b", "a character that the file system cannot encode"),
    ):
        with pytest.raises(fpstore.InputError, match=f"cannot be a file name: it holds {reason}"):
            fpstore.open(name)
    with pytest.raises(fpstore.StoreNotFoundError):
        fpstore.open("a.txt/s")
