"""Messages and descriptions where something else is wrong than what they speak of."""

import errno
import os
import shutil

import numpy as np
import pytest

from fpstore.errors import StorageError
from fpstore.hashing.corpus import TextCorpus
from fpstore.hashing.registry import in_words
from fpstore.io.corpus import Chosen
from fpstore.width import Width


def test_a_full_disk_is_said_of_the_output_not_of_the_file_that_is_copied(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("some words")

    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(source), None, os.fspath(target))

    corpus = TextCorpus(tmp_path / "in")
    assert len(list(corpus.parts(Chosen(text="text", width=Width(64))))) == 1
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match=f"^{tmp_path}/out: No space left"):
        corpus.copy(np.ones(1, bool), tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["in"]


def test_a_description_with_parameters_that_are_none_is_shown_as_it_is():
    assert in_words({"name": "simhash", "version": 1, "parameters": 7}) == "simhash 1 (7)"
