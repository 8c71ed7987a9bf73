"""Changes of many clients, made by one thread and durable together (group commit)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from itertools import groupby
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Words
from fpstore.errors import InputError
from fpstore.lsh.items import Items
from fpstore.lsh.store import LshStore
from fpstore.query.matches import MatchList
from fpstore.store import Store

Rows = Words | Items  # of a store; of an LSH index
GROUP_ROWS = 10_000  # of changes that become durable together, about


class Answer(NamedTuple):
    """The answer to one query or one offered row.

    ``more`` says that a limit left out matches. ``inserted`` and ``reason``, why not, are of
    offered rows.
    """

    matches: Sequence[Any] = ()
    more: bool = False
    inserted: bool | None = None
    reason: str | None = None


class Change(NamedTuple):
    """A change of rows that a client asks for, in one piece.

    ``method`` is that of a store. Successive changes of one method and one radius that decide row
    by row are made as one batch.
    """

    method: str
    rows: Rows | None
    ids: Sequence[int] | Sequence[str] | None
    radius: int | None = None
    durable: bool = True

    @property
    def decides(self) -> bool:
        """Whether each row is inserted or not, by what is stored."""
        return self.method.startswith("probe_")

    @property
    def row_count(self) -> int:
        """The number of its rows, or of ids without rows."""
        return len(self.rows if self.rows is not None else self.ids or ())


class Committer:
    """A thread that makes the changes of a store, in the order in which they came.

    All changes that wait are made, and then one sync makes them durable. A client hears of its
    change behind the sync, unless it asked for less.
    """

    def __init__(self, store: Store[Any] | LshStore[Any], call_back: Callable[..., object]) -> None:
        self._store, self._call_back = store, call_back
        self._waiting: SimpleQueue[tuple[Change, asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fpstore-commits", daemon=True)
        self._thread.start()

    def submit(self, change: Change) -> asyncio.Future[Any]:
        """Queue a change; the result is what its method returns, or a list of `Answer`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.put((change, future))
        return future

    def close(self) -> None:
        """Make the changes that wait, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            group, rows = list[tuple[Change, asyncio.Future[Any]]](), 0
            while rows < GROUP_ROWS and (not group or not self._waiting.empty()):
                item = self._waiting.get()
                if item is None:
                    ended = True
                    break
                group.append(item)
                rows += item[0].row_count
            if group:
                self._commit(group)

    def _commit(self, group: list[tuple[Change, asyncio.Future[Any]]]) -> None:
        outcomes = list[tuple[asyncio.Future[Any], Any]]()
        for _, run in groupby(group, lambda item: _batch_key(item[0])):
            changes, futures = zip(*run, strict=True)
            outcomes += zip(futures, self._make(changes), strict=True)
        if any(change.durable for change, _ in group):
            try:
                self._store.flush()
            except Exception as error:  # whatever it is, the clients wait
                outcomes = [(future, error) for future, _ in outcomes]
        self._call_back(_set_all, outcomes)

    def _make(self, changes: Sequence[Change]) -> list[Any]:
        """Make changes that may be one batch; return their results, or errors in their places."""
        try:
            if not changes[0].decides:
                return [self._make_one(change) for change in changes]
            return self._decide(changes)
        except InputError as error:
            if len(changes) == 1:
                return [error]
            return [outcome for change in changes for outcome in self._make([change])]
        except Exception as error:
            return [error] * len(changes)

    def _make_one(self, change: Change) -> Any:
        method: Any = getattr(self._store, change.method)
        if change.method == "delete":
            fingerprints = {} if change.rows is None else {"fingerprints": change.rows}
            return method(ids=change.ids, sync="none", **fingerprints)
        return method(change.rows, change.ids, sync="none")

    def _decide(self, changes: Sequence[Change]) -> list[list[Answer]]:
        rows: Any = [change.rows for change in changes]
        ids = [identifier for change in changes for identifier in change.ids or ()]
        matches = getattr(self._store, changes[0].method)(
            Items.concatenate(rows) if isinstance(rows[0], Items) else np.concatenate(rows),
            ids,
            radius=changes[0].radius,
            threads=1,
            sync="none",
        )
        answers = (
            Answer(found, isinstance(found, MatchList) and found.more, inserted)
            for found, inserted in zip(matches, matches.inserted.tolist(), strict=True)
        )
        return [[next(answers) for _ in range(change.row_count)] for change in changes]


def _batch_key(change: Change) -> tuple[object, ...]:
    return (change.method, change.radius) if change.decides else (id(change),)


def _set_all(outcomes: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in outcomes:
        if future.done():  # its client is gone
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
