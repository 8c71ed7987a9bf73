"""Messages and descriptions where something else is wrong than what they speak of."""

import errno
import os
import shutil

import numpy as np
import pytest

import fpstore
from fpstore.base.width import Width
from fpstore.errors import StorageError
from fpstore.hashing.corpora import open_corpus
from fpstore.hashing.registry import readable_description
from fpstore.io.source import Projection


def test_full_disk_error_names_the_output_not_the_copied_file(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("some words")

    def full(source, target):
        raise OSError(
            errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(source), None, os.fspath(target)
        )

    corpus = open_corpus(tmp_path / "in", texts=True)
    assert len(list(corpus.batches(Projection(text="text", width=Width(64))))) == 1
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=f"^{tmp_path}/out: No space left"):
        corpus.copy(np.ones(1, bool), tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_one_is_told_in_the_singular(tmp_path):
    with fpstore.build(tmp_path / "s.fps", [7], ["a"]) as store:
        assert ": 1 fingerprint of 64 bits, radius 3, " in repr(store)
        with pytest.raises(fpstore.InputError, match=r"^1 id for 2 fingerprints: "):
            fpstore.build(tmp_path / "t.fps", [7, 8], ["a"])
    with fpstore.open(tmp_path / "s.fps", "r+") as store:
        store.insert(6, "b")
        assert [repr(pairs) for pairs in store.pairs()] == ["<fpstore.Pairs: 1 pair>"]
        assert repr(store.clusters()) == "<fpstore.Clusters: 1 cluster of 2 among 2 documents>"


def test_a_lock_of_this_process_is_not_waited_for(tmp_path):
    fpstore.build(tmp_path / "s.fps", [7]).close()
    with fpstore.open(tmp_path / "s.fps", "r+") as store:
        with pytest.raises(
            fpstore.StoreLockedError,
            match=r"this process has it open .* use the store that is open",
        ):
            fpstore.open(tmp_path / "s.fps", "r+")
        (tmp_path / "s.fps/writer.lock").write_text("")  # as while another process notes its number
        for ask in (
            lambda: fpstore.open(store.path, "r+"),
            lambda: fpstore.repair(store.path, in_place=True),
        ):
            with pytest.raises(
                fpstore.StoreLockedError, match=r": another process has it open for writing"
            ):
                ask()


def test_description_with_malformed_parameters_is_shown_as_it_is():
    assert (
        readable_description({"name": "simhash", "version": 1, "parameters": 7}) == "simhash 1 (7)"
    )
