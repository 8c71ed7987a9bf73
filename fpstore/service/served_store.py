"""A store of fingerprints that is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags
from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.hashing.registry import from_description
from fpstore.io.check import check_fingerprints
from fpstore.service.commits import Answer
from fpstore.service.served import Limits, Served
from fpstore.store import Store


class ServedStore(Served):
    """A store of fingerprints. Rows are arrays as :func:`fpstore.build` takes them."""

    source: Store[Any]

    def __init__(
        self, name: str, source: Store[Any], limits: Limits, call_back: Callable[..., object]
    ) -> None:
        self.source, self.width = source, Width(source.width)
        super().__init__(name, limits, call_back)

    @cached_property
    def hasher(self) -> Any:
        """What makes fingerprints of texts or pictures; InputError if the store has none."""
        description = self.source.fingerprinter
        if description is None:
            raise InputError(
                f"the store {self.name} does not know how its fingerprints were made: send "
                "fingerprints, or build it with a fingerprinter"
            )
        return from_description(description)

    def rows(self, fingerprints: Sequence[str | int]) -> npt.NDArray[Any]:
        """Return rows of fingerprints in hexadecimal digits, or numbers up to 64 bits."""
        self._check_count(len(fingerprints))
        return self._array(check_fingerprints(list(fingerprints), self.width))

    def rows_of_bytes(self, data: bytes) -> npt.NDArray[Any]:
        """Return rows of fingerprints in big-endian bytes, one after the other."""
        size = self.width.bytes
        if len(data) % size:
            raise InputError(f"fingerprints have {size} bytes each, got {len(data)} bytes")
        self._check_count(len(data) // size)
        return self._array(self.width.from_bytes(np.frombuffer(data, np.uint8)))

    def _array(self, rows: Any) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self.width.to_array(rows)
        return array

    def _hash(self, items: Sequence[Any]) -> tuple[npt.NDArray[Any], Flags]:
        fingerprints, known = self.hasher.fingerprints(items, empty="mask", threads=1)
        return fingerprints[known], known

    def _probe(self, rows: npt.NDArray[Any], radius: int | None, most: int) -> list[Answer]:
        if len(rows) != 1:
            rows_of_matches = self.source.probe_many(rows, radius, limit=most, threads=1)
            return [Answer(matches, matches.more) for matches in rows_of_matches]
        matches = self.source.probe(rows[0], radius)  # a tenth of the time of a batch of one
        return [Answer(matches[:most], len(matches) > most)]

    async def nearest(self, rows: npt.NDArray[Any], count: int) -> list[Answer]:
        """Scan in a thread: it may take long."""
        most = self._most(count, "count")
        rows_of_matches = await asyncio.to_thread(self.source.nearest_many, rows, most, threads=1)
        return [Answer(matches, matches.more) for matches in rows_of_matches]

    def compare(self, a: str | int, b: str | int) -> int:
        """Compare two fingerprints of this width, stored or not."""
        first, second = check_fingerprints([a, b], self.width)
        return int(np.bitwise_count(first ^ second).sum())

    def fingerprints_of(self, identifier: int | str) -> list[str]:
        """Return the fingerprints of an id in digits."""
        _, rows = self.source.fingerprints_of([identifier])
        if not len(rows):
            raise self._not_stored("id", identifier)
        digits: list[str] = self.width.texts(check_fingerprints(rows, self.width))
        return digits

    def ids_of(self, fingerprint: str) -> list[Any]:
        """Return the ids of a fingerprint."""
        _, ids = self.source.ids_of(self.rows([fingerprint]))
        if not len(ids):
            raise self._not_stored("fingerprint", fingerprint)
        plain: list[Any] = ids if isinstance(ids, list) else ids.tolist()
        return plain

    def sizes(self) -> dict[str, int]:
        """Return the numbers of fingerprints and of ids."""
        totals = self.source.snapshot().totals
        return {"fingerprints": totals.fingerprints, "ids": totals.ids}

    @property
    def _id_kind(self) -> tuple[str | None, int]:
        totals = self.source.snapshot().totals
        return totals.id_kind, totals.ids

    def _changed(self) -> None:
        """Do nothing: a store starts its merges itself."""

    def _holds(self, answer: Answer, identifier: object) -> bool:
        return any(match.distance == 0 and identifier in match.ids for match in answer.matches)

    def fields(self, match: Any) -> dict[str, Any]:
        """Return ``fingerprint``, ``distance`` and ``ids``."""
        digits = self.width.text(match.fingerprint)
        return {"fingerprint": digits, "distance": match.distance, "ids": match.ids}
