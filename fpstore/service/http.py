"""The HTTP interface: an ASGI application over served stores."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import Any

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from fpstore.errors import (
    InputError,
    NotStoredError,
    ReadOnlyError,
    StorageError,
    StoreNotFoundError,
)
from fpstore.service.access import Access, Right
from fpstore.service.openapi import describe
from fpstore.service.requests import OPERATIONS, Operation
from fpstore.service.served import Served
from fpstore.service.service import Service

JSON, MESSAGE_PACK, RAW = "application/json", "application/msgpack", "application/octet-stream"
FORM = "application/x-www-form-urlencoded"  # what curl -d says of any body
INTERNAL = 500
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotStoredError, 404),
    (StoreNotFoundError, 404),
    (ReadOnlyError, 403),
    (InputError, 400),
    (StorageError, 507),
    (Exception, INTERNAL),
)
LOGGER = logging.getLogger(__name__)


class RequestError(Exception):
    """A request that is refused before a store sees it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class HttpInterface:
    """The routes of a service.

    A store is at ``/stores/NAME/...``; one that is served alone is also at ``/...``.
    """

    def __init__(self, service: Service, access: Access) -> None:
        self._service, self._access = service, access

    def app(self) -> Starlette:
        """Return the ASGI application."""
        routes = [
            Route("/health", self._health),
            Route("/stats", self._stats),
            Route("/metrics", self._metrics),
            Route("/openapi.json", self._openapi),
        ]
        for prefix in ("", "/stores/{store}"):
            for name, kind in OPERATIONS.items():
                work = partial(self._post, name, kind)
                routes.append(Route(f"{prefix}/{name}", work, methods=["POST"]))
            routes.append(Route(f"{prefix}/ids/{{id:path}}", self._by_id))
            routes.append(Route(f"{prefix}/fingerprints/{{digits}}", self._by_fingerprint))
        return Starlette(routes=routes, exception_handlers={HTTPException: _refuse})

    async def _post(self, name: str, kind: type[Operation], request: HttpRequest) -> Response:
        async def answer() -> object:
            self._check(request, kind.right)
            store = self._store(request)
            return await (await self._read(kind, request)).answer(store)

        return await self._respond(request, name, answer)

    async def _respond(
        self, request: HttpRequest, name: str, answer: Callable[[], Awaitable[object]]
    ) -> Response:
        client = None if request.client is None else request.client.host
        with self._service.metrics.request(name, "http", client) as timed:
            try:
                status, content = 200, await answer()
            except RequestError as error:
                status, content = error.status, _error("RequestError", str(error))
            except ClientDisconnect:  # nobody reads this
                status, content = 499, _error("RequestError", "the client is gone")
            except Exception as error:
                status = next(code for kind, code in STATUS if isinstance(error, kind))
                if status == INTERNAL:
                    LOGGER.exception("an internal error")
                content = _error(type(error).__name__, str(error))
            timed.status = status
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        if MESSAGE_PACK in request.headers.get("accept", ""):
            return Response(msgspec.msgpack.encode(content), status, headers, MESSAGE_PACK)
        return Response(msgspec.json.encode(content), status, headers, JSON)

    def _check(self, request: HttpRequest, right: Right) -> None:
        """Raise RequestError unless the token of a request has a right."""
        headers = request.headers
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers.get("host"):
            raise RequestError(403, "the page of another site may not ask this server")
        if not self._access.is_guarded:
            # a name that a stranger has given to this machine would make its pages ours
            if not _is_address(request.url.hostname):
                raise RequestError(
                    403, "a server without tokens is asked at localhost or at an address"
                )
            return
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        has = self._access.right(token.strip()) if scheme.lower() == "bearer" else None
        if has is None:
            raise RequestError(401, "the request has no token that this server knows")
        if has < right:
            raise RequestError(403, "this token may read, and not write")

    def _store(self, request: HttpRequest) -> Served:
        if not self._service.is_open:
            raise RequestError(503, "the stores are being opened")
        return self._service.store(request.path_params.get("store"))

    async def _read(self, kind: type[Operation], request: HttpRequest) -> Operation:
        """Return the fields of a request: of its body and of its query."""
        data = await self._body(request)
        media = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        query = _query(request)
        try:
            if media == RAW:
                return msgspec.convert({**query, "raw": data}, kind, strict=False)
            if media.startswith("image/"):
                return msgspec.convert({**query, "picture": data}, kind, strict=False)
            if media not in (JSON, MESSAGE_PACK, FORM):
                raise RequestError(
                    415, f"a body is {JSON}, {MESSAGE_PACK}, {RAW} or a picture, got {media}"
                )
            decode = msgspec.msgpack.decode if media == MESSAGE_PACK else msgspec.json.decode
            if not query:
                return decode(data, type=kind)
            fields = decode(data, type=dict[str, Any])
            return msgspec.convert({**fields, **query}, kind, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RequestError(400, str(error) or "the body is nested too deeply") from None

    async def _body(self, request: HttpRequest) -> bytes:
        limits = self._service.limits
        too_large = RequestError(413, f"a request takes at most {limits.body_bytes:,} bytes")
        if int(request.headers.get("content-length") or 0) > limits.body_bytes:
            raise too_large
        parts, size = list[bytes](), 0
        try:
            async with asyncio.timeout(limits.seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > limits.body_bytes:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise RequestError(408, f"the body took more than {limits.seconds} seconds") from None
        return b"".join(parts)

    async def _by_id(self, request: HttpRequest) -> Response:
        async def answer() -> object:
            self._check(request, Right.READ)
            store, text = self._store(request), request.path_params["id"]
            (identifier,) = store.ids_of_texts([text])
            return {"id": identifier, "fingerprints": store.fingerprints_of(identifier)}

        return await self._respond(request, "ids", answer)

    async def _by_fingerprint(self, request: HttpRequest) -> Response:
        async def answer() -> object:
            self._check(request, Right.READ)
            store, digits = self._store(request), request.path_params["digits"]
            return {"fingerprint": digits, "ids": store.ids_of(digits)}

        return await self._respond(request, "fingerprints", answer)

    async def _health(self, request: HttpRequest) -> Response:
        async def answer() -> object:
            if not self._service.is_open:
                raise RequestError(503, "the stores are being opened")
            return {"status": "ok"}

        return await self._respond(request, "health", answer)

    async def _stats(self, request: HttpRequest) -> Response:
        async def answer() -> object:
            self._check(request, Right.READ)
            stores = self._service.stores.items()
            return {name: await asyncio.to_thread(store.source.stats) for name, store in stores}

        return await self._respond(request, "stats", answer)

    async def _metrics(self, request: HttpRequest) -> Response:
        return Response(self._service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    async def _openapi(self, request: HttpRequest) -> Response:
        return Response(msgspec.json.encode(describe()), media_type=JSON)


def _is_address(host: str | None) -> bool:
    try:
        return host == "localhost" or bool(ip_address(host or ""))
    except ValueError:
        return False


def _query(request: HttpRequest) -> dict[str, Any]:
    """Return the fields in the query; ``ids`` may be there several times."""
    fields: dict[str, Any] = dict(request.query_params)
    if "ids" in fields:
        fields["ids"] = request.query_params.getlist("ids")
    return fields


def _refuse(_: HttpRequest, error: Exception) -> Response:
    """Return the answer to a request that no route takes."""
    assert isinstance(error, HTTPException)
    content = msgspec.json.encode(_error("RequestError", error.detail))
    return Response(content, error.status_code, error.headers, JSON)


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"type": kind, "message": message}}
