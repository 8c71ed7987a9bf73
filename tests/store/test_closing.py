"""Descriptors of removed files.

A thread closes them, so that no question waits for the system to free them.
"""

import _thread
import os
from contextlib import nullcontext

import pytest
from forks import wait_for

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


def test_a_thread_closes_a_large_file_that_was_removed(removed, set_limits):
    set_limits(seconds_of_a_dropped_mapping=0.2)
    closing.close_file(removed)
    assert is_open(removed)
    wait_for(lambda: not is_open(removed))


@pytest.mark.parametrize(
    ("size", "remove"), [(closing.SLOW_BYTES, False), (closing.SLOW_BYTES - 1, True)]
)
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
    def no_thread(*_):
        raise error

    monkeypatch.setattr(_thread, "start_new_thread", no_thread)
    with pytest.raises(error) if error is KeyboardInterrupt else nullcontext():
        closing.close_file(removed)
    assert not is_open(removed)


def test_a_child_keeps_no_removed_file(removed, set_limits):
    set_limits(seconds_of_a_dropped_mapping=0.5)
    closing.close_file(removed)
    child = os.fork()
    if child == 0:
        os._exit(is_open(removed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    wait_for(lambda: not is_open(removed))
