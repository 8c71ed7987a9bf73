"""The input of `fpstore demo`, Python's own source files, and its result, families of near-duplicates."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from fpstore.errors import StorageError

MODULES = "*.py"
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages"}


def python_sources() -> tuple[Path, list[str]]:
    """Return the folder of the standard library, and the packages in it with source files, without tests.

    Raises
    ------
    StorageError
        This Python has no source files: they are in an archive or were removed.
    """
    library = Path(sysconfig.get_path("stdlib"))
    entries = sorted(library.iterdir()) if library.is_dir() else []
    packages = [path.name for path in entries if path.name not in _LEFT_OUT and (path / "__init__.py").is_file()]
    if not packages or not any(library.glob(MODULES)):
        raise StorageError(f"{library}: this Python comes without its source files, which the demo needs", path=library)
    return library, packages


def families(clusters: Path) -> list[list[str]]:
    """Return the documents of each cluster, sorted, the largest cluster first.

    Parameters
    ----------
    clusters : Path
        The TSV output of ``fpstore cluster``.
    """
    members: dict[str, list[str]] = {}
    with clusters.open(encoding="utf-8") as lines:
        for line in lines:
            identifier, cluster, _ = line.rstrip("\n").split("\t")
            members.setdefault(cluster, []).append(identifier)
    return sorted(map(sorted, members.values()), key=lambda ids: (-len(ids), ids))
