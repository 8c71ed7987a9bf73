"""A server as a process, and what clients send to it."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from http.client import HTTPConnection
from types import SimpleNamespace
from urllib.parse import urlsplit

START_SECONDS = 60


@contextmanager
def server(*stores, options=(), environment=None):
    """Start ``fpstore serve`` on ports of its own; yield the process and how to reach it."""
    command = [sys.executable, "-P", "-m", "fpstore", "serve", *map(str, stores)]
    addresses = ["--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, *addresses, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        line = process.stderr.readline()
        assert line.startswith("fpstore: serving "), line
        urls = [urlsplit(word) for word in line.split() if "://" in word]
        http, resp = (url.port for url in urls)
        yield SimpleNamespace(process=process, http=http, resp=resp)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)
        process.stderr.close()


def request(served, method, path, body=None, headers=None):
    """Return the status and the content of an answer; ``body`` is JSON, or bytes as they are."""
    connection = HTTPConnection("127.0.0.1", served.http, timeout=START_SECONDS)
    try:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        content = response.read()
        is_json = response.getheader("content-type", "").startswith("application/json")
        return response.status, json.loads(content) if is_json else content
    finally:
        connection.close()


def post(served, path, body=None, headers=None):
    return request(served, "POST", path, body, headers)


def get(served, path, headers=None):
    return request(served, "GET", path, None, headers)


def exchange(served, data):
    """Send bytes to the port of RESP; return all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", served.resp), timeout=START_SECONDS) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(1 << 16):
            received += part
        return received
