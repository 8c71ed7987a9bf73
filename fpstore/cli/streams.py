"""Standard streams that were closed before the program began (``fpstore ... >&-``)."""

from __future__ import annotations

import fcntl
import os
import sys

CLOSED = "standard output is closed"


def occupy_closed_streams() -> None:
    """Let no other file get the number of a closed stream, and what is written to a closed standard output fail.

    Python has None for such a stream, and what is printed to that is lost without a word.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            taken = os.open(os.devnull, mode)
            if taken != number:
                os.close(taken)
            elif number == 1 and sys.stdout is None:
                sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


def output_is_closed() -> bool:
    """Whether nothing can be written to standard output: it was closed, or opened only to be read."""
    if sys.stdout is None:
        return True
    try:
        return fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (OSError, ValueError):  # not a file of the system
        return False
