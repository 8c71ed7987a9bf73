"""Meetings and faults at calls of the system, which any way to read and write files makes."""

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest


def path_of(name, arguments, options):
    """Return the path of the file that a call opens, reads, writes, or gives a name."""
    place, folder = (1, "dst_dir_fd") if name in ("rename", "replace", "link") else (0, "dir_fd")
    file, above = arguments[place], options.get(folder)
    if isinstance(file, int):
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115
    return str(file) if above is None else str(Path(f"/proc/self/fd/{above}").readlink() / file)


def always(*_, **__):
    return True


@contextmanager
def at_calls(name, work, suffix="", when=always):
    """Let ``work(call)`` make the calls ``os.<name>`` for files whose paths end with a suffix.

    Of these calls only those for whose arguments ``when`` is true.
    """
    make = getattr(os, name)

    def meet(*arguments, **options):
        ours = path_of(name, arguments, options).endswith(suffix)
        if ours and when(*arguments, **options):
            return work(lambda: make(*arguments, **options))
        return make(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, meet)
        yield


@contextmanager
def at_first_call(name, suffix="", before=lambda: None, after=lambda: None):
    """Do something once, before or after a call ``os.<name>``; yield the list of such calls."""
    calls = []

    def meet(call):
        calls.append(suffix)
        if len(calls) > 1:
            return call()
        before()
        result = call()
        after()
        return result

    with at_calls(name, meet, suffix):
        yield calls


@contextmanager
def refused(name, suffix="", code=errno.ENOSPC, when=always):
    """Let calls ``os.<name>`` fail, by default as on a full disk."""

    def refuse(_):
        raise OSError(code, os.strerror(code))

    with at_calls(name, refuse, suffix, when):
        yield
