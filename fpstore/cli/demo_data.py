"""The input of `fpstore demo`, Python's own source files, and its result, families of near-duplicates."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fpstore.errors import StorageError

MODULES = "*.py"
_LEFT_OUT = {"test", "tests", "site-packages", "dist-packages"}


class Family(NamedTuple):
    """Documents connected by near-duplicates.

    Attributes
    ----------
    ids : list of str
        The documents, sorted.
    distance : int
        The largest distance between two directly connected documents, in bits.
    """

    ids: list[str]
    distance: int


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


def families(pairs: Path) -> list[Family]:
    """Return the connected components of matches, largest first, without those of one document.

    Parameters
    ----------
    pairs : Path
        The TSV output of ``fpstore probe`` when the queries are all fingerprints of the store.
    """
    with pairs.open(encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t", 3) for line in lines]
    ids_of: dict[str, list[str]] = {}
    for query, fingerprint, _, identifier in rows:
        if query == fingerprint:
            ids_of.setdefault(query, []).append(identifier)
    root = _components((query, fingerprint) for query, fingerprint, _, _ in rows)
    members: dict[str, list[str]] = {}
    widest: dict[str, int] = {}
    for fingerprint, ids in ids_of.items():
        members.setdefault(root[fingerprint], []).extend(ids)
    for query, _, distance, _ in rows:
        widest[root[query]] = max(widest.get(root[query], 0), int(distance))
    found = [Family(sorted(set(ids)), widest[key]) for key, ids in members.items()]
    return sorted((family for family in found if len(family.ids) > 1), key=lambda family: (-len(family.ids), family.ids))


def _components(edges: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a representative of the connected component of each node (union-find)."""
    parent: dict[str, str] = {}

    def find(node: str) -> str:
        parent.setdefault(node, node)
        while parent[node] != node:
            parent[node] = node = parent[parent[node]]
        return node

    for a, b in edges:
        parent[find(a)] = find(b)
    return {node: find(node) for node in list(parent)}
