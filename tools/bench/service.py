"""The operation service: a store over HTTP and RESP, with the client on the same machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

import fpstore
from bench.data import random_words
from bench.harness import Bench, Result, microseconds

PIPELINE, BATCH = 100, 1000
QUERIES, OFFERED, SINGLE = 100_000, 50_000, 5_000
END = b"+PONG\r\n"  # the reply to what ends a pipeline


class Server(NamedTuple):
    """A process that serves a store, and its ports."""

    process: int
    http: int
    resp: int

    def processor_seconds(self) -> float:
        """Return the processor time of the server so far."""
        stat = Path(f"/proc/{self.process}/stat").read_text("ascii")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def service(bench: Bench) -> Result:
    """Probe and insert over RESP and HTTP: requests a second, and processor time of the server.

    Integer ids, radius 3, one connection. Durable inserts are answered behind a sync.
    """
    log2 = bench.log2()
    keys = bench.keys("uniform", log2)
    path = bench.folder / "served.fps"
    fpstore.build(path, keys, np.arange(len(keys), dtype=np.uint64)).close()
    share = 50 if bench.smoke else 1
    stored = _digits(bench.queries("uniform", log2, QUERIES // share))
    absent = _digits(random_words(np.random.default_rng(bench.seed + 1), QUERIES // share))
    offered = _digits(random_words(np.random.default_rng(bench.seed + 2), 2 * OFFERED // share))
    half = len(offered) // 2
    out: Result = {"n": len(keys)}
    with _server(path) as server:
        resp, http = _connect(server.resp), _connect(server.http)
        for name, digits in (("near", stored), ("absent", absent)):
            requests = [_command("FP.PROBE", "served", text) for text in digits]
            out[f"resp_probe_{name}"] = _timed(server, requests, PIPELINE, _pipeline(resp))
        inserts = [
            _command("FP.PROBEINSERT", "served", text, str(len(keys) + place))
            for place, text in enumerate(offered)
        ]
        out["resp_probe_insert"] = _timed(server, inserts[:half], PIPELINE, _pipeline(resp))
        out["resp_probe_insert_batches"] = _timed(server, inserts[half:], BATCH, _pipeline(resp))
        single = [_post(b'{"fingerprint":"%b"}' % text.encode()) for text in stored[:SINGLE]]
        out["http_probe"] = _timed(server, single, 1, _http(http))
        names = [f'"{text}"' for text in stored]
        spans = range(0, len(names), BATCH)
        batches = [
            _post(b'{"fingerprints":[%b]}' % ",".join(names[at : at + BATCH]).encode())
            for at in spans
        ]
        out["http_batches"] = _timed(server, batches, 1, _http(http), BATCH)
        raw = [
            _post(bytes.fromhex("".join(stored[at : at + BATCH])), b"application/octet-stream")
            for at in spans
        ]
        out["http_raw_batches"] = _timed(server, raw, 1, _http(http), BATCH)
        resp.close()
        http.close()
    with fpstore.open(path) as store:
        out["inserted"] = len(store.ids) - len(keys)
    return out


@contextmanager
def _server(path: Path) -> Iterator[Server]:
    command = [sys.executable, "-P", "-m", "fpstore", "serve", str(path)]
    addresses = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]
    with subprocess.Popen([*command, *addresses], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        urls = [urlsplit(word) for word in process.stderr.readline().split() if "://" in word]
        ports = {url.scheme: url.port or 0 for url in urls}
        try:
            yield Server(process.pid, ports["http"], ports["redis"])
        finally:
            process.send_signal(signal.SIGTERM)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _digits(rows: object) -> list[str]:
    return [f"{row:016x}" for row in np.asarray(rows).tolist()]


def _command(*words: str) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def _post(body: bytes, kind: bytes = b"application/json") -> bytes:
    head = b"POST /probe HTTP/1.1\r\nhost: localhost\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
    return head % (kind, len(body)) + b"\r\n" + body


def _pipeline(connection: socket.socket) -> Callable[[bytes], None]:
    """Return what sends requests, and reads until their last reply."""

    def exchange(requests: bytes) -> None:
        connection.sendall(requests + b"PING\r\n")
        tail = b""
        while not tail.endswith(END):
            tail = (tail + connection.recv(1 << 20))[-len(END) :]

    return exchange


def _http(connection: socket.socket) -> Callable[[bytes], None]:
    """Return what sends a request, and reads its answer."""

    def exchange(request: bytes) -> None:
        connection.sendall(request)
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += connection.recv(1 << 20)
        assert received.startswith(b"HTTP/1.1 200 "), received[:200]
        head = received[:end].lower()
        size = int(head.partition(b"content-length:")[2].split()[0])
        left = size - (len(received) - end - 4)
        while left:
            left -= len(connection.recv(1 << 20))

    return exchange


def _timed(
    server: Server,
    requests: list[bytes],
    at_once: int,
    exchange: Callable[[bytes], None],
    rows: int = 1,
) -> Result:
    """Return rows a second, and the server's processor time of each, in microseconds."""
    processor, began = server.processor_seconds(), time.perf_counter()
    for at in range(0, len(requests), at_once):
        exchange(b"".join(requests[at : at + at_once]))
    count, took = len(requests) * rows, time.perf_counter() - began
    return {
        "rows_a_second": round(count / took),
        "processor_microseconds": microseconds(server.processor_seconds() - processor, count, 1),
    }
