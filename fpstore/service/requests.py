"""What clients may ask of a store: the fields of each request, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import numpy.typing as npt
from msgspec import Meta, Struct

from fpstore.errors import InputError
from fpstore.service.access import Right
from fpstore.service.served import NO_WORDS, Answer, ServedStore

AT_ONCE = 64  # rows that are probed in the thread of the loop; more go to another thread
Fingerprint = Annotated[str | int, Meta(description="hexadecimal digits, or an integer")]
Id = str | int
Whole = Annotated[int, Meta(ge=0)]
Natural = Annotated[int, Meta(ge=1)]


class Request(Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of a request. A body of raw fingerprints is in ``raw``."""

    right: ClassVar[Right] = Right.READ

    async def answer(self, store: ServedStore) -> object:
        """Return the content of the answer."""
        raise NotImplementedError


class RowsRequest(Request, kw_only=True):
    """A request with rows: fingerprints or texts, one or many."""

    fingerprint: Fingerprint | None = None
    fingerprints: list[Fingerprint] | None = None
    text: str | None = None
    texts: list[str] | None = None
    raw: bytes | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is one row, whose answer comes alone."""
        return self.fingerprint is not None or self.text is not None

    def read(self, store: ServedStore) -> tuple[npt.NDArray[Any], list[bool] | None]:
        """Return the rows that have words, and which those are; None for fingerprints."""
        fields = self.fingerprint, self.fingerprints, self.text, self.texts, self.raw
        if sum(field is not None for field in fields) != 1:
            raise InputError(
                "a request has one of fingerprint, fingerprints, text and texts, or raw "
                "fingerprints as its body"
            )
        if self.raw is not None:
            return store.rows_of_bytes(self.raw), None
        if self.text is not None or self.texts is not None:
            rows, known = store.rows_of_texts(
                [self.text] if self.text is not None else self.texts or []
            )
            return rows, known.tolist()
        if self.fingerprint is not None:
            return store.rows([self.fingerprint]), None
        return store.rows(self.fingerprints or []), None

    def answers(
        self, store: ServedStore, answers: list[Answer], known: list[bool] | None, wordless: Answer
    ) -> object:
        """Return the answer to the one row, or to each of several."""
        ordered = iter(answers)
        if known is not None:
            answers = [next(ordered) if is_known else wordless for is_known in known]
        plain = [store.plain(answer) for answer in answers]
        return plain[0] if self.is_single else {"results": plain}


class Probe(RowsRequest, kw_only=True):
    """The stored fingerprints within the radius of each row, by default the store's."""

    radius: Whole | None = None
    limit: Natural | None = None

    async def answer(self, store: ServedStore) -> object:
        """Probe; many rows in a thread, so that others are answered meanwhile."""
        rows, known = self.read(store)
        answers = await _ask(lambda: store.probe(rows, self.radius, self.limit), len(rows))
        return self.answers(store, answers, known, Answer())


class Nearest(RowsRequest, kw_only=True):
    """The nearest stored fingerprints of each row, at any distance."""

    count: Natural = 10

    async def answer(self, store: ServedStore) -> object:
        """Look in a thread: it may scan the store."""
        rows, known = self.read(store)
        answers = await asyncio.to_thread(store.nearest, rows, self.count)
        return self.answers(store, answers, known, Answer())


class Compare(Request, kw_only=True):
    """The number of bits in which two fingerprints differ."""

    a: Fingerprint
    b: Fingerprint

    async def answer(self, store: ServedStore) -> object:
        """Compare without the store, whose width counts."""
        return {"distance": store.compare(self.a, self.b)}


class OfferedRows(RowsRequest, kw_only=True):
    """Rows with an id for each.

    The answer comes when they are durable; with ``durable`` false, when this server finds them.
    """

    right = Right.WRITE
    id: Id | None = None
    ids: list[Id] | None = None
    durable: bool = True

    def known_ids(self, known: list[bool] | None) -> list[Id]:
        """Return the ids of the rows that have words."""
        if (self.id is None) == (self.ids is None):
            raise InputError("a request has an id for each row: id or ids")
        ids = self.ids if self.id is None else [self.id]
        assert ids is not None
        if known is None:
            return ids
        if len(ids) != len(known):
            raise InputError(f"{len(ids):,} ids for {len(known):,} texts")
        return [identifier for identifier, is_known in zip(ids, known, strict=True) if is_known]


class ProbeInsert(OfferedRows, kw_only=True):
    """Insert each row unless a near-duplicate is stored; the second of two rows finds the first."""

    method: ClassVar[str] = "probe_insert"
    radius: Whole | None = None

    async def answer(self, store: ServedStore) -> object:
        """Decide about each row, in order."""
        rows, known = self.read(store)
        answers = await store.decide(
            self.method, rows, self.known_ids(known), self.radius, self.durable
        )
        return self.answers(store, answers, known, Answer(inserted=False, reason=NO_WORDS))


class ProbeUpsert(ProbeInsert, kw_only=True):
    """Decide anew about documents that may have changed: earlier versions of an id go."""

    method: ClassVar[str] = "probe_upsert"


class Insert(OfferedRows, kw_only=True):
    """Insert rows, also those near others."""

    method: ClassVar[str] = "insert"

    async def answer(self, store: ServedStore) -> object:
        """Return how many pairs of fingerprint and id are new."""
        rows, known = self.read(store)
        count = await store.change(self.method, rows, self.known_ids(known), self.durable)
        return {"changed": count}


class Upsert(Insert, kw_only=True):
    """Give ids to fingerprints, and take them from those that had them."""

    method: ClassVar[str] = "upsert"


class Delete(Request, kw_only=True):
    """Delete ids, fingerprints with all their ids, or pairs of both."""

    right = Right.WRITE
    id: Id | None = None
    ids: list[Id] | None = None
    fingerprint: Fingerprint | None = None
    fingerprints: list[Fingerprint] | None = None
    durable: bool = True

    async def answer(self, store: ServedStore) -> object:
        """Return how many were removed, and how many were not there."""
        ids = self.ids if self.id is None else [self.id]
        fingerprints = self.fingerprints if self.fingerprint is None else [self.fingerprint]
        if ids is None and fingerprints is None:
            raise InputError("a request has ids or fingerprints to delete, or both")
        rows = None if fingerprints is None else store.rows(fingerprints)
        deleted = await store.change("delete", rows, ids, self.durable)
        return deleted._asdict()


Operation = Literal[
    "probe", "nearest", "compare", "probe-insert", "probe-upsert", "insert", "upsert", "delete"
]
OPERATIONS: dict[Operation, type[Request]] = {
    "probe": Probe,
    "nearest": Nearest,
    "compare": Compare,
    "probe-insert": ProbeInsert,
    "probe-upsert": ProbeUpsert,
    "insert": Insert,
    "upsert": Upsert,
    "delete": Delete,
}


async def _ask(work: Callable[[], list[Answer]], rows: int) -> list[Answer]:
    return work() if rows <= AT_ONCE else await asyncio.to_thread(work)
