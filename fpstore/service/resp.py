"""The RESP interface: commands ``FP.*`` that any client of Redis or Valkey can send."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from fpstore import __version__
from fpstore.errors import FpstoreError, InputError
from fpstore.service.access import Access, Right
from fpstore.service.commits import Answer
from fpstore.service.resp_format import (
    ProtocolError,
    ReplyError,
    RequestParser,
    Status,
    encode,
)
from fpstore.service.served import NO_WORDS, Served
from fpstore.service.service import Service

OK = Status("OK")
LOGGER = logging.getLogger(__name__)
PIPELINE = 10_000  # requests that wait before a connection is read no further
AT_ONCE = 1_000  # requests of a pipeline that are one batch


class Query(NamedTuple):
    """A request whose answer concerns one row: successive ones that are alike are one batch.

    ``value`` is a fingerprint or a text; ``id`` is of a row that is offered.
    """

    operation: str
    store: str
    of_text: bool
    value: bytes
    id: bytes | None
    radius: int | None
    limit: int | None
    durable: bool

    @property
    def key(self) -> tuple[object, ...]:
        """What queries of one batch have in common."""
        return (*self[:3], *self[5:])


# operation, whether the value is a text, and whether an id comes with it
QUERIES = {
    b"FP.PROBE": ("probe", False, False),
    b"FP.TEXTPROBE": ("probe", True, False),
    b"FP.PROBEINSERT": ("probe_insert", False, True),
    b"FP.PROBEUPSERT": ("probe_upsert", False, True),
    b"FP.TEXTPROBEINSERT": ("probe_insert", True, True),
    b"FP.TEXTPROBEUPSERT": ("probe_upsert", True, True),
}
CHANGES = {b"FP.INSERT": "insert", b"FP.UPSERT": "upsert"}
HTTP_WORDS = {b"POST", b"HOST:", b"GET", b"PUT", b"OPTIONS"}
WRITES = {*CHANGES, b"FP.DEL", *(name for name, (_, _, has_id) in QUERIES.items() if has_id)}


class RespConnection(asyncio.Protocol):
    """A connection: its requests are answered in their order."""

    def __init__(self, service: Service, access: Access, connections: set[RespConnection]) -> None:
        self._service, self._access, self._connections = service, access, connections
        self._parser = RequestParser(service.limits.body_bytes)
        self._requests: deque[list[bytes] | ProtocolError] = deque()
        self._version = 2
        self._right = None if access.is_guarded else Right.WRITE
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_closing = False
        self._queued_bytes = 0  # about, of the requests that wait
        self._timer: asyncio.TimerHandle | None = None

    # what asyncio calls

    def connection_made(self, transport: Any) -> None:
        """Begin a connection."""
        self._transport = transport
        self._connections.add(self)
        if len(self._connections) > self._service.limits.connections:
            self._reply(ReplyError("max number of clients reached"))
            transport.close()
        self._client = (transport.get_extra_info("peername") or [None])[0]
        connection = transport.get_extra_info("socket")
        if connection is not None:  # a client that is gone without a word is noticed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Queue the requests that are complete."""
        try:
            self._requests.extend(self._parser.feed(data))
        except ProtocolError as error:
            self._requests.append(error)
            self._transport.pause_reading()
        self._queued_bytes += len(data)
        is_long = len(self._requests) > PIPELINE
        if self._requests and (is_long or self._queued_bytes > self._service.limits.body_bytes):
            self._transport.pause_reading()
        if not self._requests:
            self._expect_rest()
        elif self._task is None:
            self._stop_timer()
            self._task = asyncio.ensure_future(self._answer_all())

    def pause_writing(self) -> None:
        """Answer no further while the client does not read."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """Answer on."""
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget what waits."""
        self._connections.discard(self)
        self._stop_timer()
        self._requests.clear()
        self._can_write.set()

    def end(self) -> None:
        """Answer what is being answered, and close."""
        self._is_closing = True
        self._requests.clear()
        if self._task is None:
            self._transport.close()

    # requests

    def _expect_rest(self) -> None:
        """Close a connection that has begun a request and does not end it."""
        if self._parser.is_inside and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._service.limits.seconds, self._transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _answer_all(self) -> None:
        try:
            while self._requests:
                await self._can_write.wait()
                await self._answer_some()
                if not self._requests:
                    self._queued_bytes = 0
                    self._transport.resume_reading()
        finally:
            self._task = None
            if self._is_closing:
                self._transport.close()
            elif not self._transport.is_closing():
                self._expect_rest()

    async def _answer_some(self) -> None:
        """Answer the first request, or the first ones if they are one batch."""
        first = self._requests.popleft()
        if isinstance(first, ProtocolError):
            self._reply(ReplyError(f"Protocol error: {first}"))
            self._requests.clear()
            self._is_closing = True
            return
        name = first[0].upper()
        if name in HTTP_WORDS:  # from the page of a stranger, whose browser can do no better
            self._transport.abort()
            return
        is_known = name in QUERIES or name in CHANGES or name in COMMANDS
        label = name.decode().lower() if is_known else "unknown"  # or clients could make up labels
        with self._service.metrics.request(label, "resp", self._client) as timed:
            try:
                self._check(name)
                if name not in QUERIES:
                    self._reply(await self._answer(name, first[1:]))
                    return
                query = _query(first)
                batch = [query, *self._alike(query)]
                timed.count = len(batch)
                self._reply(*await self._answer_queries(batch))
            except FpstoreError as error:
                timed.status = type(error).__name__
                self._reply(ReplyError(str(error), getattr(error, "code", "ERR")))
            except Exception as error:
                timed.status = "internal error"
                LOGGER.exception("an internal error")
                self._reply(ReplyError(f"internal error ({type(error).__name__})"))
                self._is_closing = True
                self._requests.clear()

    def _alike(self, query: Query) -> list[Query]:
        """Take the next requests that are one batch with a query."""
        batch = list[Query]()
        while self._requests and len(batch) < AT_ONCE:
            request = self._requests[0]
            if isinstance(request, ProtocolError) or request[0].upper() not in QUERIES:
                break
            try:
                other = _query(request)
            except InputError:
                break
            if other.key != query.key:
                break
            batch.append(other)
            self._requests.popleft()
        return batch

    def _check(self, name: bytes) -> None:
        if name in (b"HELLO", b"AUTH", b"QUIT", b"PING"):
            return
        if self._right is None:
            raise _RefusedError("authentication required: AUTH TOKEN", "NOAUTH")
        if name in WRITES and self._right < Right.WRITE:
            raise _RefusedError("this token may read, and not write", "NOPERM")

    async def _answer_queries(self, batch: list[Query]) -> list[object]:
        """Answer queries that are alike; each alone if one of them is refused."""
        try:
            return await self._answer_batch(batch)
        except FpstoreError as error:
            if len(batch) == 1:
                return [ReplyError(str(error))]
            return [reply for query in batch for reply in await self._answer_queries([query])]

    async def _answer_batch(self, batch: list[Query]) -> list[object]:
        query, store = batch[0], self._service.store(batch[0].store)
        values = [_text(query.value) for query in batch]
        known = [True] * len(batch)
        if query.of_text:
            rows, flags = await store.rows_of_items("texts", values)
            known = flags.tolist()
        else:
            rows = store.rows(values)
        if query.id is None:
            answers = await store.probe(rows, query.radius, query.limit)
        else:
            ids = store.ids_of_texts(
                [_text(q.id or b"") for q, is_known in zip(batch, known, strict=True) if is_known]
            )
            answers = await store.decide(query.operation, rows, ids, query.radius, query.durable)
        replies = iter([_reply_of(store, answer) for answer in answers])
        wordless: list[object] = [] if query.id is None else [0, NO_WORDS, []]
        return [next(replies) if is_known else wordless for is_known in known]

    async def _answer(self, name: bytes, arguments: list[bytes]) -> object:
        if name in CHANGES:
            return await self._change(CHANGES[name], arguments)
        command = COMMANDS.get(name)
        if command is None:
            raise InputError(f"unknown command {_text(name)!r}")
        least, work = command
        if len(arguments) < least:
            raise InputError(f"wrong number of arguments for {_text(name)}")
        return await work(self, arguments)

    async def _change(self, method: str, arguments: list[bytes]) -> object:
        words, durable = _split_off(arguments, b"NOSYNC")
        if len(words) < 3 or len(words) % 2 == 0:
            raise InputError("expected STORE FINGERPRINT ID [FINGERPRINT ID ...] [NOSYNC]")
        store = self._service.store(_text(words[0]))
        rows = store.rows([*map(_text, words[1::2])])
        ids = store.ids_of_texts([*map(_text, words[2::2])])
        return await store.change(method, rows, ids, not durable)

    async def _delete(self, arguments: list[bytes]) -> object:
        words, without_sync = _split_off(arguments, b"NOSYNC")
        store = self._service.store(_text(words[0]))
        ids = store.ids_of_texts([*map(_text, words[1:])])
        deleted = await store.change("delete", None, ids, not without_sync)
        return int(deleted.removed)

    async def _nearest(self, arguments: list[bytes]) -> object:
        store = self._service.store(_text(arguments[0]))
        options = _options(arguments[2:], b"COUNT")
        rows = store.rows([_text(arguments[1])])
        answers = await store.nearest(rows, options.get(b"COUNT", 10))
        return _reply_of(store, answers[0])

    async def _count(self, arguments: list[bytes]) -> object:
        return self._service.store(_text(arguments[0])).sizes()["ids"]

    async def _ids(self, arguments: list[bytes]) -> object:
        return self._service.store(_text(arguments[0])).ids_of(_text(arguments[1]))

    async def _fingerprints(self, arguments: list[bytes]) -> object:
        store = self._service.store(_text(arguments[0]))
        (identifier,) = store.ids_of_texts([_text(arguments[1])])
        return store.fingerprints_of(identifier)

    async def _stores(self, _: list[bytes]) -> object:
        return sorted(self._service.stores)

    async def _ping(self, arguments: list[bytes]) -> object:
        return arguments[0] if arguments else Status("PONG")

    async def _hello(self, arguments: list[bytes]) -> object:
        words = list(arguments)
        version = _number(words.pop(0)) if words else self._version
        if version not in (2, 3):
            raise _RefusedError("unsupported protocol version", "NOPROTO")
        while words:
            option = words.pop(0).upper()
            if option == b"AUTH" and len(words) >= 2:
                del words[0]  # the name of a user
                self._log_in(words.pop(0))
            elif option == b"SETNAME" and words:
                del words[0]
            else:
                raise InputError(f"HELLO has no option {_text(option)}")
        if self._right is None:
            raise _RefusedError("HELLO must be called with AUTH", "NOAUTH")
        self._version = version
        names = {"server": "fpstore", "version": __version__, "proto": version}
        return {**names, "mode": "standalone", "role": "master", "modules": []}

    async def _auth(self, arguments: list[bytes]) -> object:
        self._log_in(arguments[-1])
        return OK

    def _log_in(self, token: bytes) -> None:
        if not self._access.is_guarded:
            raise InputError("this server has no tokens")
        right = self._access.right(token)
        if right is None:
            raise _RefusedError("invalid token", "WRONGPASS")
        self._right = right

    async def _info(self, _: list[bytes]) -> object:
        lines = ["# Server", f"fpstore_version:{__version__}", "# Stores"]
        for name, served in self._service.stores.items():
            sizes = served.sizes().items()
            lines.append(f"{name}:{','.join(f'{key}={size}' for key, size in sizes)}")
        return "\r\n".join([*lines, ""])

    async def _command(self, _: list[bytes]) -> object:
        names = [*COMMANDS, *QUERIES, *CHANGES]
        return [[_text(name).lower(), -1, [], 0, 0, 0] for name in names]

    async def _accept(self, _: list[bytes]) -> object:
        return OK

    async def _quit(self, _: list[bytes]) -> object:
        self.end()
        return OK

    def _reply(self, *replies: object) -> None:
        out = bytearray()
        for reply in replies:
            encode(reply, self._version, out)
        self._transport.write(bytes(out))


Work = Callable[[RespConnection, list[bytes]], Awaitable[object]]
# by name, with the least number of arguments
COMMANDS: dict[bytes, tuple[int, Work]] = {
    b"FP.DEL": (2, RespConnection._delete),
    b"FP.NEAREST": (2, RespConnection._nearest),
    b"FP.COUNT": (1, RespConnection._count),
    b"FP.IDS": (2, RespConnection._ids),
    b"FP.FINGERPRINTS": (2, RespConnection._fingerprints),
    b"FP.STORES": (0, RespConnection._stores),
    b"PING": (0, RespConnection._ping),
    b"HELLO": (0, RespConnection._hello),
    b"AUTH": (1, RespConnection._auth),
    b"INFO": (0, RespConnection._info),
    b"COMMAND": (0, RespConnection._command),
    b"CLIENT": (1, RespConnection._accept),
    b"SELECT": (1, RespConnection._accept),
    b"QUIT": (0, RespConnection._quit),
}


class _RefusedError(FpstoreError):
    """A request that is refused with a code of its own."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


def _reply_of(store: Served, answer: Answer) -> object:
    matches = [[*store.fields(match).values()] for match in answer.matches]
    if answer.inserted is None:
        return matches
    return [int(answer.inserted), answer.reason, matches]


def _query(request: list[bytes]) -> Query:
    """Read a request of `QUERIES`."""
    operation, of_text, has_id = QUERIES[request[0].upper()]
    least = 4 if has_id else 3
    if len(request) < least:
        fields = "STORE TEXT" if of_text else "STORE FINGERPRINT"
        raise InputError(f"expected {fields}{' ID' * has_id} [RADIUS R] ...")
    value, identifier = request[2], request[3] if has_id else None
    if has_id and of_text:  # the id is before the text
        value, identifier = request[3], request[2]
    words, without_sync = (
        _split_off(request[least:], b"NOSYNC") if has_id else (request[least:], False)
    )
    options = _options(words, b"RADIUS", *(() if has_id else (b"LIMIT",)))
    return Query(
        operation,
        _text(request[1]),
        of_text,
        value,
        identifier,
        options.get(b"RADIUS"),
        options.get(b"LIMIT"),
        not without_sync,
    )


def _split_off(words: Sequence[bytes], word: bytes) -> tuple[list[bytes], bool]:
    """Return words without a last one, and whether it was there."""
    is_there = bool(words) and words[-1].upper() == word
    return list(words[: len(words) - is_there]), is_there


def _options(words: Sequence[bytes], *names: bytes) -> dict[bytes, int]:
    """Read pairs of a name and a number."""
    options = {name.upper(): value for name, value in zip(words[::2], words[1::2], strict=False)}
    unknown = [name for name in map(bytes.upper, words[::2]) if name not in names]
    if unknown or len(words) % 2:
        shown = _text(unknown[0] if unknown else words[-1])
        raise InputError(f"no such option, or an option without its number: {shown}")
    return {name: _number(value) for name, value in options.items()}


def _number(text: bytes) -> int:
    if not (text.isdigit() and len(text) <= 9):
        raise InputError(f"expected a number, got {_text(text)!r}")
    return int(text)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError("a word is not valid UTF-8") from None
