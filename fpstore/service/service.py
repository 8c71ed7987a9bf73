"""The stores of a server by name, with what its interfaces share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fpstore.api import open_store
from fpstore.errors import InputError, StoreNotFoundError, show
from fpstore.service.metrics import Metrics
from fpstore.service.served import Limits, ServedStore


class Service:
    """Stores that are open, by name. No name from a client opens a file."""

    def __init__(self, paths: Mapping[str, str | os.PathLike[str]], limits: Limits) -> None:
        self._paths, self.limits = dict(paths), limits
        self.stores: dict[str, ServedStore] = {}
        self.metrics = Metrics(self.stores)
        self.is_open = False

    async def open(self, mode: str = "r+", merge_at: float | None = 0.1) -> None:
        """Open all stores for a server that runs in this loop."""
        call_back = asyncio.get_running_loop().call_soon_threadsafe
        try:
            for name, path in self._paths.items():
                share = merge_at if mode == "r+" else None
                store = await asyncio.to_thread(open_store, path, mode, merge_at=share)
                self.stores[name] = ServedStore(name, store, self.limits, call_back)
        except BaseException:
            self.close()
            raise
        self.is_open = True

    def close(self) -> None:
        """Make what waits durable, and close all stores."""
        self.is_open = False
        while self.stores:
            self.stores.popitem()[1].close()

    def store(self, name: str | None) -> ServedStore:
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
