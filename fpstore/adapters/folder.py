"""What the adapters share: a store in a folder that the user names, or in a temporary one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import finalize

import fpstore
from fpstore.api import PathLike
from fpstore.base.arguments import check_path
from fpstore.lsh.store import LshStore
from fpstore.store import Store

AnyStore = TypeVar("AnyStore", bound=Store[Any] | LshStore[Any])


class FolderIndex(Generic[AnyStore]):
    """An index that keeps its fingerprints in :attr:`store`, open for writing.

    A context manager. A temporary folder is removed when the index is closed or dropped, or when
    the interpreter ends. Pickling copies the files of the store. Unpickling writes them into a new
    temporary folder, so that both indexes can be changed.
    """

    store: AnyStore
    _opening: ClassVar[dict[str, Any]] = {"merge_at": 0.1}  # options of `fpstore.open`
    _removal: finalize[..., Any] | None = None  # of a temporary folder

    def _open(self, build: Callable[[Path], AnyStore], path: PathLike | None) -> None:
        """Open the store at a path, or build it there."""
        folder = self._temporary_folder() if path is None else check_path(path)
        if not folder.exists():
            build(folder).close()
        self._open_store(folder)

    def _open_store(self, folder: Path) -> None:
        sync = "batch" if self._removal is None else "none"
        self.store = fpstore.open(folder, "r+", sync=sync, **self._opening)

    def _temporary_folder(self) -> Path:
        parent = mkdtemp(prefix="fpstore-")
        self._removal = finalize(self, _remove, parent, os.getpid())
        return Path(parent, "store")

    def close(self) -> None:
        """Make all changes durable and close the store. A temporary folder is removed."""
        self.store.close()
        if self._removal is not None:
            self._removal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, with the files of a backup in place of the store."""
        self.store.flush()
        with TemporaryDirectory(prefix="fpstore-") as parent:
            copy = Path(parent, "store")
            self.store.backup(copy)
            paths = [path for path in copy.rglob("*") if path.is_file()]
            files = {str(path.relative_to(copy)): path.read_bytes() for path in sorted(paths)}
        state = {**vars(self), "store": files}
        state.pop("_removal", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        folder, files = self._temporary_folder(), state.pop("store")
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        vars(self).update(state)
        self._open_store(folder)


def _remove(parent: str, owner: int) -> None:
    """Remove a temporary folder, but not in a fork of the process that made it."""
    if os.getpid() == owner:
        rmtree(parent, ignore_errors=True)
