"""A store or an index that is served: what clients may ask, and in which form."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_whole
from fpstore.errors import InputError, NotStoredError, show
from fpstore.hashing.base import Hasher
from fpstore.io.check import parse_integer_id
from fpstore.lsh.store import LshStore
from fpstore.service.commits import Answer, Change, Committer
from fpstore.store import Store

NEAR, STORED, NO_WORDS = "near", "stored", "no words"  # why a row was not inserted
AT_ONCE = 256  # rows that are probed in the thread of the loop; more go to another thread
CHARACTERS_AT_ONCE = 1 << 16  # of texts that are hashed in the thread of the loop


class Limits(NamedTuple):
    """What one request may ask for.

    Attributes
    ----------
    body_bytes : int
        Of a request.
    rows : int
        Fingerprints, ids or texts in a request, or in the pipeline of a connection.
    matches : int
        Of each query; the answer says whether there are more.
    connections : int
    seconds : float
        That a connection may take for a request, or wait for the next one.
    """

    body_bytes: int = 16 << 20
    rows: int = 100_000
    matches: int = 1_000
    connections: int = 10_000
    seconds: float = 60.0


class Served(ABC):
    """A store or an index by the name that clients use.

    Short reads are answered in the thread of the loop, long ones in another; changes are made by a
    thread of their own. Rows are what the store makes of fingerprints or texts.
    """

    source: Store[Any] | LshStore[Any]

    def __init__(self, name: str, limits: Limits, call_back: Callable[..., object]) -> None:
        self.name, self._limits = name, limits
        self._committer = Committer(self.source, call_back)

    def close(self) -> None:
        """Make the changes that wait, and close the store."""
        self._committer.close()
        self.source.close()

    # rows

    @abstractmethod
    def rows(self, fingerprints: Sequence[str | int]) -> Any:
        """Return rows of fingerprints in hexadecimal digits, or numbers up to 64 bits."""

    @abstractmethod
    def rows_of_bytes(self, data: bytes) -> Any:
        """Return rows of fingerprints in big-endian bytes, one after the other."""

    async def rows_of_items(self, kind: str, items: Sequence[Any]) -> tuple[Any, Flags]:
        """Return rows of the items that have content, and a flag for each item.

        ``kind`` is "texts", "pictures" (bytes of files) or "vectors".
        """
        self._check_count(len(items))
        if self.hasher.items != kind:
            raise InputError(f"{self.name} takes {self.hasher.items}, not {kind}")
        if kind == "texts" and sum(map(len, items)) <= CHARACTERS_AT_ONCE:
            return self._hash(items)
        return await asyncio.to_thread(self._hash, items)

    @property
    @abstractmethod
    def hasher(self) -> Hasher[Any]:
        """What makes rows of texts, pictures or vectors; InputError if there is nothing."""

    @abstractmethod
    def _hash(self, items: Sequence[Any]) -> tuple[Any, Flags]: ...

    # questions

    async def probe(
        self, rows: Any, radius: int | None = None, limit: int | None = None
    ) -> list[Answer]:
        """Return the matches of each row, by default within the radius of the store."""
        most = self._most(limit, "limit")
        if len(rows) > AT_ONCE or (radius is not None and radius > self.source.radius):
            return await asyncio.to_thread(self._probe, rows, radius, most)
        return self._probe(rows, radius, most)

    @abstractmethod
    def _probe(self, rows: Any, radius: int | None, most: int) -> list[Answer]: ...

    @abstractmethod
    async def nearest(self, rows: Any, count: int) -> list[Answer]:
        """Return the nearest fingerprints of each row, at any distance."""

    @abstractmethod
    def compare(self, a: str | int, b: str | int) -> int:
        """Return the number of bits in which two fingerprints differ."""

    @abstractmethod
    def fingerprints_of(self, identifier: int | str) -> list[str]:
        """Return the fingerprints of an id; NotStoredError if it is not stored."""

    @abstractmethod
    def ids_of(self, fingerprint: str) -> list[Any]:
        """Return the ids of a fingerprint; NotStoredError if it is not stored."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Return the numbers of what is stored."""

    # changes

    async def decide(
        self,
        method: str,
        rows: Any,
        ids: Sequence[Any],
        radius: int | None = None,
        durable: bool = True,
    ) -> list[Answer]:
        """Insert the rows that have no near-duplicate, by ``probe_insert`` or ``probe_upsert``."""
        if not hasattr(self.source, method):
            raise InputError(f"{self.name} is an LSH index, which has no {method}")
        self._check_ids(rows, ids)
        if not len(rows):
            return []
        change = Change(f"{method}_many", rows, list(ids), radius, durable)
        answers: list[Answer] = await self._committer.submit(change)
        self._changed()
        return [
            answer
            if answer.inserted
            else answer._replace(reason=STORED if self._holds(answer, identifier) else NEAR)
            for answer, identifier in zip(answers, ids, strict=True)
        ]

    async def change(
        self, method: str, rows: Any, ids: Sequence[Any] | None, durable: bool = True
    ) -> Any:
        """Make a change by ``insert``, ``upsert`` or ``delete``; return what the method returns."""
        if rows is not None and ids is not None:
            self._check_ids(rows, ids)
        change = Change(method, rows, None if ids is None else list(ids), durable=durable)
        outcome = await self._committer.submit(change)
        self._changed()
        return outcome

    @abstractmethod
    def _changed(self) -> None:
        """Hear that a change was made."""

    @abstractmethod
    def _holds(self, answer: Answer, identifier: object) -> bool:
        """Return whether the matches of a row have the row itself, with its id."""

    def ids_of_texts(self, texts: Sequence[str]) -> list[int] | list[str]:
        """Return ids that came as texts, as integers in a store whose ids are integers."""
        kind, count = self._id_kind
        if kind == "string" or not count:
            return list(texts)
        return [parse_integer_id(text, plain=True) for text in texts]

    @property
    @abstractmethod
    def _id_kind(self) -> tuple[str | None, int]:
        """The kind of the ids, and their number."""

    # answers

    @abstractmethod
    def fields(self, match: Any) -> dict[str, Any]:
        """Return a match as JSON has it."""

    def plain(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as JSON has it, with fingerprints in hexadecimal digits."""
        out = {"matches": [self.fields(match) for match in answer.matches], "more": answer.more}
        if answer.inserted is not None:
            out |= {"inserted": answer.inserted, "reason": answer.reason}
        return out

    # checks

    def _most(self, count: int | None, name: str) -> int:
        """Return how many matches a query gets; InputError for less than one."""
        if count is None:
            return self._limits.matches
        return min(check_whole(count, 1, 2**64 - 1, name), self._limits.matches)

    def _check_ids(self, rows: Any, ids: Sequence[Any]) -> None:
        if len(ids) != len(rows):
            raise InputError(f"{len(ids):,} ids for {len(rows):,} rows")
        self._check_count(len(ids))

    def _check_count(self, count: int) -> None:
        if count > self._limits.rows:
            raise InputError(f"a request takes at most {self._limits.rows:,} rows, got {count:,}")

    def _not_stored(self, kind: str, value: object) -> NotStoredError:
        return NotStoredError(f"the store {self.name} has no {kind} {show(value)}")
