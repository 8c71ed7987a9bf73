"""The faults themselves: each does what it is called, where it is asked to, and a sweep sees what goes wrong after it."""

import re
import textwrap

import pytest
from faultline import KILLS

SETUP = """
import ctypes, os
from pathlib import Path
(root / "a").write_bytes(b"old")
"""
# Each call that is counted, once; the first write is not armed, those elsewhere are not below the root.
OPERATION = """
(root / "a").write_bytes(b"new")
libc = ctypes.CDLL(None, use_errno=True)
arm()
elsewhere = root.parent / "elsewhere"
elsewhere.write_bytes(b"x")
elsewhere.unlink()
os.chdir(root)
folder = os.open(root, os.O_RDONLY)
file = os.open("b", os.O_RDWR | os.O_CREAT, dir_fd=folder)
os.write(file, b"0123456789")
os.pwrite(file, b"0123", 10)
os.writev(file, [b"01", b"", b"2345"])
os.pwritev(file, [b"012", b"34567"], 1)
os.read(file, 1)
os.ftruncate(file, 6)
os.fsync(file)
os.fdatasync(file)
os.fsync(folder)
os.mkdir("m")
os.mkdir("n", dir_fd=folder)
os.rename("b", root / "m" / "c")
os.rename("m", "o", src_dir_fd=folder, dst_dir_fd=folder)
os.link("o/c", root / "d")
if libc.renameat2(-100, b"d", -100, b"a", 2):
    raise OSError(ctypes.get_errno(), "renameat2")
os.unlink("d")
os.unlink("c", dir_fd=os.open("o", os.O_RDONLY))
os.rmdir("n")
os.chdir(root.parent)
"""
CALLS = [
    ("openat", "b"), ("write", "b"), ("pwrite", "b"), ("writev", "b"), ("pwritev", "b"), ("ftruncate", "b"), ("fsync", "b"),
    ("fdatasync", "b"), ("fsync", "."), ("mkdir", "m"), ("mkdirat", "n"), ("rename", "m/c"), ("renameat", "o"), ("link", "d"),
    ("renameat2", "a"), ("unlink", "d"), ("unlinkat", "o/c"), ("rmdir", "n"),
]  # fmt: skip
CHECK = """
assert not (root.parent / "elsewhere").exists()
names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
b = root / "b"
state = [names, b.read_bytes().decode("latin-1") if b.exists() else None]
"""


def plain(calls):
    """Which of its variants of a call libc is asked for is up to Python."""
    return [(re.sub("^(p?writev?|open(?:at)?|ftruncate)(64)?(v?2)?$", r"\1", name), path) for name, path in calls]


def test_each_call_is_counted_and_hit(sweep):
    calls, outcomes = sweep(SETUP, OPERATION, CHECK, KILLS)
    assert plain(calls) == CALLS
    assert outcomes[0].state == [["a", "o"], None]
    left = {(o.mode, o.at): o.state for o in outcomes[1:]}
    assert {o.kind for o in outcomes[1:]} == {"killed"}
    for at in range(2, len(CALLS) + 1):
        assert left["kill", at] == left["kill-after", at - 1]
    assert left["kill", 1] == [["a"], None]
    assert left["kill-after", len(CALLS)] == outcomes[0].state
    texts = {at: left["torn", at][1].rstrip("\0") for mode, at in left if mode == "torn"}
    assert texts == {2: "01234", 3: "012345678901", 4: "01234567890123", 5: "0012356789012345"}


def test_a_refused_call_is_not_done(sweep):
    operation = "try:\n" + textwrap.indent(OPERATION, "    ") + "\nexcept OSError:\n    pass\n"
    calls, outcomes = sweep(SETUP, operation, CHECK, ("kill", "EIO", "ENOSPC-from", "short"))
    assert plain(calls) == CALLS
    left = {(o.mode, o.at): o.state for o in outcomes[1:]}
    assert {o.kind for o in outcomes if o.mode != "kill"} == {"ok"}
    for at in range(1, len(CALLS) + 1):
        assert left["EIO", at] == left["ENOSPC-from", at] == left["kill", at]
    assert left["short", 2][0] == left["short", 4][0] == ["a", "o"]  # who writes must look at how much was written


BROKEN = """
arm()
(root / "a").write_bytes(b"new")  # not in one step
"""
WHOLE = 'assert (root / "a").read_bytes() in (b"old", b"new"), "torn"'


def test_a_sweep_sees_what_goes_wrong(sweep):
    with pytest.raises(AssertionError, match=r"times kill-after open.* torn"):
        sweep(SETUP, BROKEN, WHOLE)
    with pytest.raises(AssertionError, match="must arm once"):
        sweep(SETUP, "pass", "")
