"""The texts of this machine: documentation, and sources of Python's packages."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path

DOCUMENTATION = (".txt", ".md", ".rst")
SUFFIXES = (".py", ".pyi", ".txt", ".md", ".rst", ".html", ".h", ".c", ".hpp", ".json")
MAX_BYTES, SMOKE_BYTES = 300 << 20, 1 << 20
MAX_TEXT_BYTES = 1 << 20


def texts_here(
    most: int, suffixes: Sequence[str] = SUFFIXES, roots: Sequence[Path] | None = None
) -> list[str]:
    """Return the texts in some folders.

    By default the documentation and Python's packages on this machine, ordered by path.
    """
    own = [
        Path("/usr/share/doc"),
        Path("/usr/include"),
        *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")),
    ]
    out, size = [], 0
    for folder in own if roots is None else roots:
        for path in sorted(folder.rglob("*")) if size < most else ():
            if (
                path.suffix in suffixes
                and path.is_file()
                and size < most
                and path.stat().st_size <= MAX_TEXT_BYTES
            ):
                out.append(path.read_text("utf-8", "replace"))
                size += len(out[-1])
    return out
