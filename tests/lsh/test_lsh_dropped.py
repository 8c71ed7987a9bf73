"""An index that is dropped, or left open at the end of the interpreter, is closed as a store is."""

import gc
import os
import random
import subprocess
import sys
from functools import partial

import pytest
from disks import held_files
from letters import Letters, some_words
from systemcalls import at_calls

import fpstore
from fpstore import lsh

HASHER = Letters()
WORDS = some_words(random.Random(5), 60)


@pytest.fixture
def path(tmp_path):
    lsh.build(tmp_path / "i.lsh", WORDS[:40], hasher=HASHER, threshold=0.8).close()
    return tmp_path / "i.lsh"


@pytest.fixture
def no_collector():
    """Leave cycles alone: what is dropped must be freed without the collector."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("sync", ["commit", "batch", "none"])
def test_a_dropped_index_gives_its_lock_back(path, no_collector, sync):
    index = fpstore.open(path, "r+", sync=sync, hasher=HASHER)
    assert index.insert(WORDS[40:]) == 20
    del index
    assert held_files(path.parent) == []
    with fpstore.open(path, "r+", hasher=HASHER) as index:
        assert len(index) == 60


def test_changes_of_a_dropped_index_are_published(path, no_collector):
    reader = fpstore.open(path, hasher=HASHER)
    index = fpstore.open(path, "r+", sync="none", hasher=HASHER)
    index.insert(WORDS[40:])
    assert len(reader) == 40
    del index
    assert len(reader) == 60
    assert reader.probe(WORDS[50])[0].id == 50
    assert reader.verify().ok


def test_keys_of_a_dropped_index_are_durable_first(path):
    flushed = []

    def note(name, sync):
        sync()
        flushed.append(name)

    index = fpstore.open(path, "r+", sync="none", hasher=HASHER)
    index.insert(WORDS[40:])
    with (
        at_calls("fdatasync", partial(note, "keys"), "keys/gen-00000001/log"),
        at_calls("fdatasync", partial(note, "documents"), "documents/gen-00000001/log"),
    ):
        del index
    assert flushed[:2] == ["keys", "documents"]


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_dropped_index_leaves_no_descriptor(path, no_collector, mode):
    for _ in range(3):
        index = fpstore.open(path, mode, hasher=HASHER)
        index.probe(WORDS[0])
        list(index.pairs())
        del index
    assert held_files(path.parent) == []


@pytest.mark.full
def test_an_index_that_is_left_open_is_closed_at_the_end(path):
    program = """
import sys
from letters import Letters, some_words
import random
import fpstore
from fpstore import lsh
words = some_words(random.Random(5), 60)
index = fpstore.open(sys.argv[1], "r+", sync="none", hasher=Letters())
index.insert(words[40:])
index.cycle = index
"""
    folders = os.pathsep.join(sys.path)
    subprocess.run(
        [sys.executable, "-c", program, path], check=True, env={**os.environ, "PYTHONPATH": folders}
    )
    with fpstore.open(path, "r+", hasher=HASHER) as index:
        assert len(index) == 60
