"""Descriptors of removed files: a thread closes them, so that no question waits for the system to free them."""

import os
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

import fpstore
from fpstore.disk import files as closing


@pytest.fixture
def removed(tmp_path):
    """Return the descriptor of a large file that was removed."""
    path = tmp_path / "large"
    path.write_bytes(bytes(closing.SLOW_BYTES))
    descriptor = os.open(path, os.O_RDONLY)
    path.unlink()
    return descriptor


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def wait_until(is_so):
    for _ in range(1000):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("still not so after ten seconds")


def removed_files_open(folder):
    """Return the files in a folder that this process has open though they were removed."""
    names = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            names.append(str(link.readlink()))
    return [name for name in names if name.startswith(str(folder)) and name.endswith("(deleted)")]


def test_a_thread_closes_a_large_file_that_was_removed(removed, monkeypatch):
    monkeypatch.setattr(closing, "DROPPED_SECONDS", 0.2)
    closing.close_file(removed)
    assert is_open(removed)
    wait_until(lambda: not is_open(removed))


@pytest.mark.parametrize(("size", "remove"), [(closing.SLOW_BYTES, False), (closing.SLOW_BYTES - 1, True)])
def test_other_files_are_closed_at_once(tmp_path, size, remove):
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    descriptor = os.open(path, os.O_RDONLY)
    if remove:
        path.unlink()
    closing.close_file(descriptor)
    assert not is_open(descriptor)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt])
def test_without_a_thread_it_is_closed_at_once(removed, monkeypatch, error):
    def no_thread(self):
        raise error

    monkeypatch.setattr(closing.Worker, "start", no_thread)
    with pytest.raises(error) if error is KeyboardInterrupt else nullcontext():
        closing.close_file(removed)
    assert not is_open(removed)


def test_an_interrupt_after_the_start_closes_once(removed, monkeypatch):
    start, threads = closing.Worker.start, []

    def started(self):
        threads.append(self)
        start(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(closing.Worker, "start", started)
    with pytest.raises(KeyboardInterrupt):
        closing.close_file(removed)
    with Path(os.devnull).open("rb") as other:  # it may get the number, and stays open
        threads[0].wait()
        assert is_open(other.fileno())
    assert not closing._left


def test_a_child_keeps_no_removed_file(removed, monkeypatch):
    monkeypatch.setattr(closing, "DROPPED_SECONDS", 0.5)
    closing.close_file(removed)
    child = os.fork()
    if child == 0:
        os._exit(is_open(removed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_until(lambda: not is_open(removed))


def test_a_reader_gives_back_what_a_merge_has_removed(tmp_path, monkeypatch):
    """Its tables and its id map are larger than SLOW_BYTES."""
    monkeypatch.setattr(closing, "SLOW_BYTES", 1 << 16)
    closed = []
    keys = np.random.default_rng(1).integers(0, 2**64, 50_000, np.uint64)
    fpstore.build(tmp_path / "s", keys, radius=3).close()
    with fpstore.open(tmp_path / "s", "r+") as writer, fpstore.open(tmp_path / "s") as reader:
        assert reader.probe(int(keys[0]))
        writer.insert([5], [50_000])
        monkeypatch.setattr(closing, "_close_later", lambda descriptor: (closed.append(descriptor), closing._close(descriptor)))
        writer.merge()
        assert reader.probe(5)
        wait_until(lambda: not removed_files_open(tmp_path))
        assert len(closed) >= 3
        assert reader.probe(int(keys[0]))
