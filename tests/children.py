"""Work in a fork of the test, and disks that are nearly full."""

import os
import signal
import traceback

PAGE = 4096


def in_child(work, *arguments):
    """Run work in a fork; fail with what it raised, or with the signal that ended it. Return what it returned, a short string."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(60)
            try:
                os.write(writing, str(work(*arguments)).encode())
                status = 0
            except BaseException:
                os.write(writing, traceback.format_exc()[-4000:].encode())
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"ended with {status}: {said}"
    return said


def free_pages(disk):
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize // PAGE


def fill(disk, room):
    """Leave so many pages; with a negative number, as many as that less than none."""
    with (disk / "filler").open("wb") as file:
        size = (free_pages(disk) - room) * PAGE
        if size > 0:
            os.posix_fallocate(file.fileno(), 0, size)
    assert free_pages(disk) == room
