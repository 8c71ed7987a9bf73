"""Standard streams that were closed before the program began (``fpstore ... >&-``)."""

from __future__ import annotations

import fcntl
import os
import sys

CLOSED = "standard output is closed"


def occupy_closed_streams() -> None:
    """Keep other files from getting the number of a closed stream, and make writes to a closed standard output fail.

    Python uses None for such a stream, and silently drops what is printed to it.
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
    """Whether standard output cannot be written to: it was closed, or opened for reading only."""
    if sys.stdout is None:
        return True
    try:
        return fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except (OSError, ValueError):  # not a file of the system
        return False
