"""An LSH index that is served."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from fpstore.base.aliases import Flags
from fpstore.base.threads import wait_for
from fpstore.change.writer import is_merge_due
from fpstore.errors import FpstoreError, InputError
from fpstore.hashing.base import Hasher
from fpstore.lsh.items import Items
from fpstore.lsh.store import LshStore
from fpstore.service.commits import Answer
from fpstore.service.served import Limits, Served


class ServedIndex(Served):
    """An LSH index. Rows are its `Items`."""

    source: LshStore[Any]

    def __init__(
        self,
        name: str,
        source: LshStore[Any],
        limits: Limits,
        call_back: Callable[..., object],
        merge_at: float,
    ) -> None:
        self.source, self._merge_at = source, merge_at
        self._merge: threading.Thread | None = None
        super().__init__(name, limits, call_back)

    def close(self) -> None:
        """End a merge, make the changes that wait, and close the index."""
        super().close()
        wait_for(self._merge)

    @property
    def hasher(self) -> Hasher[Any]:
        """The hasher of the index."""
        return self.source.hasher

    def rows(self, fingerprints: Sequence[str | int]) -> NoReturn:
        """Raise InputError: an index has no fingerprints."""
        raise self._refused("fingerprints")

    def rows_of_bytes(self, data: bytes) -> NoReturn:
        """Raise InputError: an index has no fingerprints."""
        raise self._refused("fingerprints")

    def _refused(self, what: str) -> InputError:
        return InputError(
            f"{self.name} is an LSH index, which has no {what}: send {self.hasher.items}"
        )

    def _hash(self, items: Sequence[Any]) -> tuple[Items, Flags]:
        return self.source.hash_known(items, threads=1)

    def _probe(self, rows: Any, radius: int | None, most: int) -> list[Answer]:
        rows_of_matches = self.source.probe_many(rows, radius=radius, threads=1)
        return [Answer(matches[:most], len(matches) > most) for matches in rows_of_matches]

    async def nearest(self, rows: Items, count: int) -> NoReturn:
        """Raise InputError: an index finds what shares a key."""
        raise self._refused("nearest")

    def compare(self, a: str | int, b: str | int) -> NoReturn:
        """Raise InputError: an index has no fingerprints."""
        raise self._refused("fingerprints")

    def fingerprints_of(self, identifier: int | str) -> list[str]:
        """Return nothing for an id that is stored."""
        if identifier not in self.source.ids:
            raise self._not_stored("id", identifier)
        return []

    def ids_of(self, fingerprint: str) -> NoReturn:
        """Raise InputError: an index has no fingerprints."""
        raise self._refused("fingerprints")

    def sizes(self) -> dict[str, int]:
        """Return the number of documents, and of ids."""
        return {"fingerprints": len(self.source), "ids": len(self.source.ids)}

    @property
    def _id_kind(self) -> tuple[str | None, int]:
        totals = self.source.snapshot().documents.totals
        return totals.id_kind, totals.ids

    def _changed(self) -> None:
        """Start a merge in the background if one is due."""
        if self._merge is not None and self._merge.is_alive():
            return
        if is_merge_due(self.source.snapshot().keys, self._merge_at):
            self._merge = threading.Thread(target=self._run_merge, name="fpstore-merge")
            with suppress(RuntimeError):  # no more threads: the next change starts it
                self._merge.start()

    def _run_merge(self) -> None:
        with suppress(FpstoreError):  # ``stats`` of the index says what it was
            self.source.merge()

    def _holds(self, answer: Answer, identifier: object) -> bool:
        return any(match.id == identifier for match in answer.matches)

    def fields(self, match: Any) -> dict[str, Any]:
        """Return ``id`` and ``similarity``."""
        return {"id": match.id, "similarity": match.similarity}
