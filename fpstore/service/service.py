"""The stores of a server by name, with what its interfaces share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fpstore.api as api
from fpstore.errors import InputError, StoreNotFoundError, show
from fpstore.format.manifest import is_index, is_sharded
from fpstore.lsh.store import LshStore
from fpstore.service.metrics import Metrics
from fpstore.service.served import Limits, Served
from fpstore.service.served_index import ServedIndex
from fpstore.service.served_store import ServedStore
from fpstore.store import Store

MERGE_AT = 0.1  # changes for each fingerprint in the tables


class Service:
    """Stores that are open, by name. No name from a client opens a file."""

    def __init__(self, paths: Mapping[str, str | os.PathLike[str]], limits: Limits) -> None:
        self._paths, self.limits = dict(paths), limits
        self.stores: dict[str, Served] = {}
        self.metrics = Metrics(self.stores)
        self.is_open = False

    async def open(self, mode: str) -> None:
        """Open all stores for a server that runs in this loop.

        Sharded stores are read, also with "r+": nothing changes them.
        """
        call_back = asyncio.get_running_loop().call_soon_threadsafe
        try:
            for name, path in self._paths.items():
                source = await asyncio.to_thread(_open, path, mode)
                self.stores[name] = (
                    ServedIndex(name, source, self.limits, call_back, MERGE_AT)
                    if isinstance(source, LshStore)
                    else ServedStore(name, source, self.limits, call_back)
                )
        except BaseException:
            self.close()
            raise
        self.is_open = True

    def close(self) -> None:
        """Make what waits durable, and close all stores."""
        self.is_open = False
        while self.stores:
            self.stores.popitem()[1].close()

    def store(self, name: str | None) -> Served:
        """Return a store; without a name the only one."""
        if not self.is_open:
            raise StoreNotFoundError("the stores are being opened")
        if name is None:
            if len(self.stores) > 1:
                names = ", ".join(sorted(self.stores))
                raise InputError(f"this server has several stores: name one of {names}")
            return next(iter(self.stores.values()))
        if name not in self.stores:
            raise StoreNotFoundError(f"this server has no store {show(name)}")
        return self.stores[name]


def _open(path: str | os.PathLike[str], mode: str) -> Store[Any] | LshStore[Any]:
    if mode == "r" or is_sharded(Path(path)):
        return api.open(path)
    return api.open(path, "r+", merge_at=None if is_index(Path(path)) else MERGE_AT)


def name_stores(paths: Sequence[str]) -> dict[str, str]:
    """Return paths by the names that clients use: ``NAME=PATH``, or the file name's stem."""
    named = dict[str, str]()
    for argument in paths:
        name, separator, path = argument.partition("=")
        if not separator or "/" in name:
            name, path = Path(argument).name.partition(".")[0], argument
        if not name or not all(c.isalnum() or c in "-_" for c in name):
            raise InputError(
                f"{argument}: a store needs a name of letters, digits, - and _: NAME={path}"
            )
        if name in named:
            raise InputError(f"two stores would have the name {name}: NAME=PATH gives another one")
        named[name] = path
    return named
