"""Signals as the tests expect them, and places that refuse writes: a small disk and a read-only folder."""

import os
import signal
import subprocess
from contextlib import contextmanager

import pytest

pytest_plugins = ["building", "commandline", "damage", "sets"]  # modules of helpers with fixtures of their own

# A background job of a shell starts with these ignored, and so would the processes that the tests interrupt.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def _mounted(target, *arguments):
    return os.geteuid() == 0 and subprocess.run(["mount", *arguments, target], capture_output=True).returncode == 0


def _unmount(target):
    subprocess.run(["umount", "--lazy", target], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """Return make(size_bytes): a folder on a file system of that size and no limit, or any folder and the limit.

    Where nothing can be mounted, the caller sets the limit as the largest file size of a process of its own.
    """
    disks = []

    def make(size_bytes):
        folder = tmp_path / f"disk-{len(disks)}"
        folder.mkdir()
        if _mounted(folder, "-t", "tmpfs", "-o", f"size={size_bytes}", "none"):
            disks.append(folder)
            return folder, None
        return folder, size_bytes

    yield make
    for folder in disks:
        _unmount(folder)


@pytest.fixture
def read_only():
    """Return a context manager that makes a folder read-only: mounted so for root, by its mode for others."""

    @contextmanager
    def make(folder):
        if os.geteuid() != 0:
            mode = folder.stat().st_mode
            folder.chmod(0o555)
            yield
            folder.chmod(mode)
            return
        assert _mounted(folder, "--bind", folder), "root cannot mount here: run the tests as another user"
        try:
            assert _mounted(folder, "-o", "remount,bind,ro")
            yield
        finally:
            _unmount(folder)

    return make
