"""Loads the kernel first, explains a failure, and lets a signal end a command quietly.

FPSTORE_ISA may name an instruction set that this machine lacks. The command ``fpstore`` then ends
with one line, although none of its own code has run yet. Or Python was started beside the folder of
the sources, so that it found that package first, while the kernel is installed elsewhere.

The command takes half a second to load. A signal in that time ends it as later, with a line and the
code 128 + number, and not with a traceback: nothing is open or written yet. A program that imports
the package keeps its own handlers.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path, PurePath
from types import FrameType

ENDINGS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


def _is_source_folder() -> bool:
    return (Path(__file__).parent / "_native" / "CMakeLists.txt").is_file()


def _is_command() -> bool:
    program = sys.argv[0] if sys.argv else ""
    return PurePath(program).name == "fpstore" or (program == "-m" and "fpstore" in sys.orig_argv)


def _end(number: int, frame: FrameType | None) -> None:
    """End the process at once: an exception could be caught by a module that is being loaded."""
    with suppress(OSError):  # nobody reads it
        os.write(2, f"fpstore: {ENDINGS[signal.Signals(number)]}\n".encode())
    os._exit(128 + number)


for _number in ENDINGS if _is_command() else ():
    # not if it is ignored, as by nohup
    if signal.getsignal(_number) in (signal.default_int_handler, signal.SIG_DFL):
        with suppress(ValueError):  # not in the main thread
            signal.signal(_number, _end)  # until the command line has handlers of its own

try:
    from fpstore import _kernel  # noqa: F401 - to see whether it loads
except ImportError as error:
    if str(error).startswith("FPSTORE_ISA"):
        if _is_command():
            sys.exit(f"fpstore: {error}")
    elif _is_source_folder():
        raise ImportError(
            f"{Path(__file__).parent} holds the sources of fpstore without the compiled kernel, "
            "and hides an installed fpstore: "
            "start Python from another folder, or run pip install -e . in the checkout"
        ) from error
    raise
