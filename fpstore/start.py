"""Loads the kernel before anything that needs it, and explains why if it cannot be loaded.

FPSTORE_ISA may name an instruction set that this machine lacks. The command ``fpstore`` then ends with one line, although none of
its own code has run yet. Or Python was started beside the folder of the sources, so that it found that package first, while the
kernel is installed elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePath


def _is_source_folder() -> bool:
    return (Path(__file__).parent / "_native" / "CMakeLists.txt").is_file()


def _is_command() -> bool:
    program = sys.argv[0] if sys.argv else ""
    return PurePath(program).name == "fpstore" or (program == "-m" and "fpstore" in sys.orig_argv)


try:
    from fpstore import _kernel  # noqa: F401 - to see whether it loads
except ImportError as error:
    if str(error).startswith("FPSTORE_ISA"):
        if _is_command():
            sys.exit(f"fpstore: {error}")
    elif _is_source_folder():
        raise ImportError(
            f"{Path(__file__).parent} holds the sources of fpstore without the compiled kernel, and hides an installed fpstore: "
            "start Python from another folder, or run pip install -e . in the checkout"
        ) from error
    raise
