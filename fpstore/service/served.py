"""A store that is served: what clients may ask, and in which form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.width import Width
from fpstore.errors import InputError, NotStoredError, show
from fpstore.hashing.registry import from_description
from fpstore.io.check import check_fingerprints, parse_integer_id
from fpstore.query.matches import MatchList
from fpstore.service.commits import Change, Committer, Decision
from fpstore.store import Store

NEAR, STORED, NO_WORDS = "near", "stored", "no words"  # why a row was not inserted


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


class Answer(NamedTuple):
    """The answer to one query or one offered row."""

    matches: MatchList[Any] = MatchList()
    inserted: bool | None = None
    reason: str | None = None


class ServedStore:
    """A store by its name. Reads are answered at once; changes are made by a thread.

    Rows are arrays as :func:`fpstore.build` takes them.
    """

    def __init__(
        self, name: str, store: Store[Any], limits: Limits, call_back: Callable[..., object]
    ) -> None:
        self.name, self.store, self._limits = name, store, limits
        self.width = Width(store.width)
        self._committer = Committer(store, call_back)

    def close(self) -> None:
        """Make the changes that wait, and close the store."""
        self._committer.close()
        self.store.close()

    @cached_property
    def _hasher(self) -> Any:
        description = self.store.fingerprinter
        if description is None:
            raise InputError(
                f"the store {self.name} does not know how its fingerprints were made: send "
                "fingerprints, or build it with a fingerprinter"
            )
        return from_description(description)

    def rows(self, fingerprints: Sequence[str | int]) -> npt.NDArray[Any]:
        """Return fingerprints in hexadecimal digits, or numbers up to 64 bits, as an array."""
        self._check_count(len(fingerprints))
        return self._array(check_fingerprints(list(fingerprints), self.width))

    def rows_of_bytes(self, data: bytes) -> npt.NDArray[Any]:
        """Return fingerprints in big-endian bytes, one after the other, as an array."""
        size = self.width.bytes
        if len(data) % size:
            raise InputError(f"fingerprints have {size} bytes each, got {len(data)} bytes")
        self._check_count(len(data) // size)
        return self._array(self.width.from_bytes(np.frombuffer(data, np.uint8)))

    def rows_of_texts(self, texts: Sequence[str]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return the fingerprints of texts that have words, and a flag for each text."""
        self._check_count(len(texts))
        fingerprints, known = self._hasher.fingerprints(list(texts), empty="mask")
        return fingerprints[known], known

    def _array(self, rows: Any) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self.width.to_array(rows)
        return array

    def _check_count(self, count: int) -> None:
        if count > self._limits.rows:
            raise InputError(f"a request takes at most {self._limits.rows:,} rows, got {count:,}")

    def probe(
        self, rows: npt.NDArray[Any], radius: int | None = None, limit: int | None = None
    ) -> list[Answer]:
        """Return the matches of each row."""
        most = self._limits.matches if limit is None else min(limit, self._limits.matches)
        if len(rows) != 1:
            matches = self.store.probe_many(rows, radius, limit=most, threads=1)
            return [Answer(match_list) for match_list in matches]
        found = self.store.probe(rows[0], radius)  # a tenth of the time of a batch of one
        if len(found) > most:
            found = MatchList(found[:most])
            found.more = True
        return [Answer(found)]

    def nearest(self, rows: npt.NDArray[Any], count: int) -> list[Answer]:
        """Return the nearest fingerprints of each row."""
        matches = self.store.nearest_many(rows, min(count, self._limits.matches), threads=1)
        return [Answer(match_list) for match_list in matches]

    async def decide(
        self,
        method: str,
        rows: npt.NDArray[Any],
        ids: Sequence[Any],
        radius: int | None = None,
        durable: bool = True,
    ) -> list[Answer]:
        """Insert the rows that have no near-duplicate, by ``probe_insert`` or ``probe_upsert``."""
        self._check_ids(rows, ids)
        if not len(rows):
            return []
        change = Change(f"{method}_many", rows, list(ids), radius, durable)
        decisions: list[Decision] = await self._committer.submit(change)
        return [
            Answer(decision.matches, decision.inserted, _reason(decision, identifier))
            for decision, identifier in zip(decisions, ids, strict=True)
        ]

    async def change(
        self,
        method: str,
        rows: npt.NDArray[Any] | None,
        ids: Sequence[Any] | None,
        durable: bool = True,
    ) -> Any:
        """Make a change by ``insert``, ``upsert`` or ``delete``; return what the method returns."""
        if rows is not None and ids is not None:
            self._check_ids(rows, ids)
        change = Change(method, rows, None if ids is None else list(ids), durable=durable)
        return await self._committer.submit(change)

    def _check_ids(self, rows: npt.NDArray[Any], ids: Sequence[Any]) -> None:
        if len(ids) != len(rows):
            raise InputError(f"{len(ids):,} ids for {len(rows):,} fingerprints")
        self._check_count(len(ids))

    def ids_of_texts(self, texts: Sequence[str]) -> list[int] | list[str]:
        """Return ids that came as texts, as integers in a store whose ids are integers."""
        totals = self.store.snapshot().totals
        if totals.id_kind == "string" or not totals.ids:
            return list(texts)
        return [parse_integer_id(text, plain=True) for text in texts]

    def fingerprints_of(self, identifier: int | str) -> list[str]:
        """Return the fingerprints of an id; NotStoredError if it is not stored."""
        _, rows = self.store.fingerprints_of([identifier])
        if not len(rows):
            raise NotStoredError(f"the store {self.name} has no id {show(identifier)}")
        digits: list[str] = self.width.texts(check_fingerprints(rows, self.width))
        return digits

    def ids_of(self, fingerprint: str) -> list[Any]:
        """Return the ids of a fingerprint; NotStoredError if it is not stored."""
        _, ids = self.store.ids_of(self.rows([fingerprint]))
        if not len(ids):
            raise NotStoredError(f"the store {self.name} has no fingerprint {fingerprint}")
        plain: list[Any] = ids if isinstance(ids, list) else ids.tolist()
        return plain

    def compare(self, a: str | int, b: str | int) -> int:
        """Return the number of bits in which two fingerprints differ."""
        first, second = check_fingerprints([a, b], self.width)
        return int(np.bitwise_count(first ^ second).sum())

    def plain(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as JSON has it, with fingerprints in hexadecimal digits."""
        matches = answer.matches
        out: dict[str, Any] = {
            "matches": [
                {
                    "fingerprint": self.width.text(match.fingerprint),
                    "distance": match.distance,
                    "ids": match.ids,
                }
                for match in matches
            ],
            "more": matches.more,
        }
        if answer.inserted is not None:
            out |= {"inserted": answer.inserted, "reason": answer.reason}
        return out


def _reason(decision: Decision, identifier: object) -> str | None:
    """Return why a row was not inserted; None if it was."""
    if decision.inserted:
        return None
    is_stored = any(match.distance == 0 and identifier in match.ids for match in decision.matches)
    return STORED if is_stored else NEAR
