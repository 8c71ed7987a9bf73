"""Faults, and actions of a test, at calls of the system, which any way to use files makes."""

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest


def path_of(name, arguments, options):
    """Return the path of the file that a call opens, reads, writes, or gives a name."""
    place, folder = (1, "dst_dir_fd") if name in ("rename", "replace", "link") else (0, "dir_fd")
    file, parent = arguments[place], options.get(folder)
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
    return str(file) if parent is None else str(Path(f"/proc/self/fd/{parent}").readlink() / file)


@contextmanager
def at_calls(name, work, suffix="", when=None):
    """Replace ``os.<name>`` by ``work(call)`` for files whose paths end with a suffix.

    ``when`` takes the arguments of a call, and says whether it is replaced.
    """
    original = getattr(os, name)

    def replacement(*arguments, **options):
        is_target = path_of(name, arguments, options).endswith(suffix)
        if is_target and (when is None or when(*arguments, **options)):
            return work(lambda: original(*arguments, **options))
        return original(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, replacement)
        yield


@contextmanager
def at_first_call(name, suffix="", before=lambda: None, after=lambda: None):
    """Do something once, before or after a call ``os.<name>``; yield the list of such calls."""
    calls = []

    def work(call):
        calls.append(suffix)
        if len(calls) > 1:
            return call()
        before()
        result = call()
        after()
        return result

    with at_calls(name, work, suffix):
        yield calls


@contextmanager
def failing_calls(name, suffix="", code=errno.ENOSPC, when=None):
    """Let calls ``os.<name>`` fail, by default as on a full disk."""

    def fail(_):
        raise OSError(code, os.strerror(code))

    with at_calls(name, fail, suffix, when):
        yield
