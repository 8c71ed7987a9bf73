"""What clients may ask of a store: the fields of each request, and its answer."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Protocol

from msgspec import Meta, Struct

from fpstore.base.aliases import Flags
from fpstore.errors import InputError
from fpstore.service.access import Right
from fpstore.service.commits import Answer
from fpstore.service.served import NO_WORDS, Served

Fingerprint = Annotated[str | int, Meta(description="hexadecimal digits, or an integer")]
Id = str | int
Whole = Annotated[int, Meta(ge=0)]
Natural = Annotated[int, Meta(ge=1)]
Vector = list[float]


class Operation(Protocol):
    """A request that can be answered; its attributes are the fields that a client sends."""

    right: ClassVar[Right]

    async def answer(self, store: Served, /) -> object:
        """Return the content of the answer."""


class RowsRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """A request with rows: fingerprints, texts, vectors or a picture.

    ``raw`` and ``picture`` are what a body is that is not JSON.
    """

    right: ClassVar[Right] = Right.READ
    fingerprint: Fingerprint | None = None
    fingerprints: list[Fingerprint] | None = None
    text: str | None = None
    texts: list[str] | None = None
    vector: Vector | None = None
    vectors: list[Vector] | None = None
    picture: bytes | None = None
    raw: bytes | None = None

    @property
    def is_single(self) -> bool:
        """Whether there is one row, whose answer comes alone."""
        single = self.fingerprint, self.text, self.vector, self.picture
        return any(field is not None for field in single)

    async def read(self, store: Served) -> tuple[Any, Flags | None]:
        """Return the rows that have content, and which those are; None for fingerprints."""
        items: list[tuple[str, Any]] = [
            ("fingerprints", self.fingerprints),
            ("texts", self.texts),
            ("vectors", self.vectors),
            ("raw", self.raw),
            ("fingerprints", None if self.fingerprint is None else [self.fingerprint]),
            ("texts", None if self.text is None else [self.text]),
            ("vectors", None if self.vector is None else [self.vector]),
            ("pictures", None if self.picture is None else [self.picture]),
        ]
        sent = [(kind, values) for kind, values in items if values is not None]
        if len(sent) != 1:
            raise InputError(
                "a request has one of fingerprint, fingerprints, text, texts, vector and vectors, "
                "or raw fingerprints or a picture as its body"
            )
        ((kind, values),) = sent
        if isinstance(values, bytes):
            return store.rows_of_bytes(values), None
        if kind == "fingerprints":
            return store.rows(values), None
        return await store.rows_of_items(kind, values)

    def answers(
        self, store: Served, answers: list[Answer], known: Flags | None, empty: Answer
    ) -> object:
        """Return the answer to the one row, or to each of several."""
        ordered = iter(answers)
        if known is not None:
            answers = [next(ordered) if is_known else empty for is_known in known.tolist()]
        plain = [store.plain(answer) for answer in answers]
        return plain[0] if self.is_single else {"results": plain}


class Probe(RowsRequest, kw_only=True):
    """The stored fingerprints within the radius of each row, by default the store's."""

    radius: Whole | None = None
    limit: Natural | None = None

    async def answer(self, store: Served) -> object:
        """Probe; many rows in a thread."""
        rows, known = await self.read(store)
        answers = await store.probe(rows, self.radius, self.limit)
        return self.answers(store, answers, known, Answer())


class Nearest(RowsRequest, kw_only=True):
    """The nearest stored fingerprints of each row, at any distance."""

    count: Natural = 10

    async def answer(self, store: Served) -> object:
        """Look in a thread."""
        rows, known = await self.read(store)
        answers = await store.nearest(rows, self.count)
        return self.answers(store, answers, known, Answer())


class Compare(Struct, forbid_unknown_fields=True, kw_only=True):
    """The number of bits in which two fingerprints differ."""

    right: ClassVar[Right] = Right.READ
    a: Fingerprint
    b: Fingerprint

    async def answer(self, store: Served) -> object:
        """Return ``distance``."""
        return {"distance": store.compare(self.a, self.b)}


class OfferedRows(RowsRequest, kw_only=True):
    """Rows with an id for each.

    The answer comes when they are durable; with ``durable`` false, when this server finds them.
    """

    right = Right.WRITE
    id: Id | None = None
    ids: list[Id] | None = None
    durable: bool = True

    def known_ids(self, known: Flags | None) -> list[Id]:
        """Return the ids of the rows that have content."""
        if (self.id is None) == (self.ids is None):
            raise InputError("a request has an id for each row: id or ids")
        ids = self.ids if self.id is None else [self.id]
        assert ids is not None
        if known is None:
            return ids
        if len(ids) != len(known):
            raise InputError(f"{len(ids):,} ids for {len(known):,} rows")
        return [identifier for identifier, is_known in zip(ids, known, strict=True) if is_known]


class ProbeInsert(OfferedRows, kw_only=True):
    """Insert each row unless a near-duplicate is stored; the second of two rows finds the first."""

    method: ClassVar[str] = "probe_insert"
    radius: Whole | None = None

    async def answer(self, store: Served) -> object:
        """Decide about each row, in order."""
        rows, known = await self.read(store)
        ids = self.known_ids(known)
        answers = await store.decide(self.method, rows, ids, self.radius, self.durable)
        return self.answers(store, answers, known, Answer(inserted=False, reason=NO_WORDS))


class ProbeUpsert(ProbeInsert, kw_only=True):
    """Decide anew about documents that may have changed: earlier versions of an id go."""

    method: ClassVar[str] = "probe_upsert"


class Insert(OfferedRows, kw_only=True):
    """Insert rows, also those near others."""

    method: ClassVar[str] = "insert"

    async def answer(self, store: Served) -> object:
        """Return how many pairs of row and id are new."""
        rows, known = await self.read(store)
        count = await store.change(self.method, rows, self.known_ids(known), self.durable)
        return {"changed": count}


class Upsert(Insert, kw_only=True):
    """Give ids to fingerprints, and take them from those that had them."""

    method: ClassVar[str] = "upsert"


class Delete(Struct, forbid_unknown_fields=True, kw_only=True):
    """Delete ids, fingerprints with all their ids, or pairs of both."""

    right: ClassVar[Right] = Right.WRITE
    id: Id | None = None
    ids: list[Id] | None = None
    fingerprint: Fingerprint | None = None
    fingerprints: list[Fingerprint] | None = None
    durable: bool = True

    async def answer(self, store: Served) -> object:
        """Return how many were removed, and how many were not there."""
        ids = self.ids if self.id is None else [self.id]
        fingerprints = self.fingerprints if self.fingerprint is None else [self.fingerprint]
        if ids is None and fingerprints is None:
            raise InputError("a request has ids or fingerprints to delete, or both")
        rows = None if fingerprints is None else store.rows(fingerprints)
        deleted = await store.change("delete", rows, ids, self.durable)
        return deleted._asdict()


OPERATIONS: dict[str, type[Operation]] = {
    "probe": Probe,
    "nearest": Nearest,
    "compare": Compare,
    "probe-insert": ProbeInsert,
    "probe-upsert": ProbeUpsert,
    "insert": Insert,
    "upsert": Upsert,
    "delete": Delete,
}
