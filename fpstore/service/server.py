"""A process that serves stores over HTTP and RESP until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fpstore.errors import InputError, StorageError
from fpstore.service.access import Access
from fpstore.service.http import HttpInterface
from fpstore.service.resp import RespConnection
from fpstore.service.service import Service

BACKLOG = 2048
MAX_HEAD_BYTES = 1 << 16  # of a request, with what came in one piece behind it


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, option: str) -> Address:
        """Read HOST:PORT, or [HOST]:PORT for IPv6."""
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not (port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
            raise InputError(f"{option} must be HOST:PORT, got {text}", argument=option)
        return cls(host, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def listen(self) -> socket.socket:
        """Return a socket that listens; StorageError if it cannot."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # asyncio sends small answers at once only if the protocol is named
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(self)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            raise StorageError(f"{self}: {error.strerror or error}") from error
        listening.setblocking(False)
        return listening

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _HttpProtocol(HttpToolsProtocol):
    """A connection of HTTP whose heads come soon and are short, which uvicorn does not see to."""

    def __init__(self, seconds: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._in_head, self._head_bytes = True, 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.abort()
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._timer is None and self.timeout_keep_alive_task is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._start_timer()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self._seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _HttpServer(uvicorn.Server):
    """The server of HTTP; the process has its own handlers of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class Tls(NamedTuple):
    """Files in PEM format: a certificate with its chain, and its key."""

    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Return what encrypts connections; StorageError if the files are wrong."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # of which SSLError is one
            raise StorageError(f"{self.certificate}, {self.key}: {error}") from error
        return context


class Listening(NamedTuple):
    """The sockets of a server; None for an interface that it does not have."""

    http: socket.socket | None
    resp: socket.socket | None

    @classmethod
    def open(cls, http: Address | None, resp: Address | None, access: Access) -> Listening:
        """Listen; InputError where strangers would reach a server without tokens."""
        for address in (http, resp):
            if address is not None and not address.is_loopback and not access.is_guarded:
                raise InputError(
                    f"{address}: other machines reach this address: give a token, or listen on "
                    "127.0.0.1"
                )
        return cls(*(None if address is None else address.listen() for address in (http, resp)))

    def urls(self, tls: Tls | None) -> list[str]:
        """Return where clients find the server, with the ports that the system chose for 0."""
        http, resp = ("http", "redis") if tls is None else ("https", "rediss")
        names = {http: self.http, resp: self.resp}
        return [
            f"{scheme}://{Address(*listening.getsockname()[:2])}"
            for scheme, listening in names.items()
            if listening is not None
        ]


async def serve(
    service: Service,
    access: Access,
    listening: Listening,
    ended: asyncio.Event,
    ready: Callable[[], object],
    mode: str,
    tls: Tls | None = None,
) -> None:
    """Open the stores, and answer until ``ended`` is set; then answer what was asked, and close."""
    connections = set[RespConnection]()
    http_task, server, resp = None, None, None
    try:
        if listening.http is not None:
            config = uvicorn.Config(
                HttpInterface(service, access).app(),
                http=partial(_HttpProtocol, service.limits.seconds),  # type: ignore[arg-type]
                lifespan="off",
                log_config=None,
                access_log=False,
                limit_concurrency=service.limits.connections,
                timeout_keep_alive=int(service.limits.seconds),
                timeout_graceful_shutdown=10,
                server_header=False,
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
            )
            server = _HttpServer(config)
            http_task = asyncio.ensure_future(server.serve(sockets=[listening.http]))
        await service.open(mode)
        if listening.resp is not None:
            resp = await asyncio.get_running_loop().create_server(
                lambda: RespConnection(service, access, connections),
                sock=listening.resp,
                ssl=None if tls is None else tls.context(),
            )
        ready()
        stops = [asyncio.ensure_future(ended.wait()), *([http_task] if http_task else [])]
        await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if resp is not None:
            resp.close()
            for connection in list(connections):
                connection.end()
        if server is not None and http_task is not None:
            server.should_exit = True
            await http_task
        for _ in range(100):
            if not connections:
                break
            await asyncio.sleep(0.05)
        service.close()
