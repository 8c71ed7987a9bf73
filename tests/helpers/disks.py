"""Disks that are nearly full, and the files that this process has open."""

import os
from contextlib import suppress
from pathlib import Path

PAGE = 4096


def free_pages(disk):
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize // PAGE


def fill(disk, room):
    """Write a file that leaves ``room`` pages of a disk free."""
    with (disk / "filler").open("wb") as file:
        size = (free_pages(disk) - room) * PAGE
        if size > 0:
            os.posix_fallocate(file.fileno(), 0, size)
    assert free_pages(disk) == room


def held_files(folder):
    """Return the files below a folder that this process has open or mapped, removed ones too."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = [line[line.index("/") :] for line in lines if "/" in line]
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            names.append(str(link.readlink()))
    return sorted({name for name in names if name.startswith(f"{folder}/")})
