"""What keeps strangers out: pages in a browser, slow and long heads, no encryption."""

import json
import socket
import ssl
import subprocess
from contextlib import suppress
from http.client import HTTPSConnection
from shutil import which

import pytest
import redis
from serving import START_SECONDS, exchange, get, post, request, server

import fpstore
from fpstore.service.server import MAX_HEAD_BYTES

PROBE = {"fingerprint": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("strangers") / "s.fps"
    fpstore.build(path, [1], ["one"]).close()
    return path


@pytest.fixture(scope="module")
def served(store):
    with server(store, options=["--read-only"]) as process:
        yield process


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8765"}, 200),
        ({"host": "[::1]:8765"}, 200),
        ({"host": "10.1.2.3"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "localhost.evil.example"}, 403),
        ({"origin": "http://localhost:8765", "host": "localhost:8765"}, 200),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://evil.example", "content-type": "text/plain"}, 403),
    ],
)
def test_pages_of_other_sites_are_refused(served, headers, status):
    assert post(served, "/probe", PROBE, headers)[0] == status
    if "content-type" not in headers:
        assert get(served, "/ids/one", headers)[0] == status


def test_a_guarded_server_is_asked_by_any_name(store):
    token = {"authorization": "Bearer " + "t" * 16}
    with server(store, environment={"FPSTORE_TOKEN": "t" * 16}) as process:
        assert post(process, "/probe", PROBE, {"host": "fingerprints.example", **token})[0] == 200
        stranger = {"origin": "https://evil.example", **token}
        assert post(process, "/probe", PROBE, stranger)[0] == 403


@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
def test_a_browser_is_cut_off_at_the_port_of_resp(served, method):
    body = b"FP.COUNT s\r\n"
    head = f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with suppress(ConnectionResetError):
        assert exchange(served, head.encode() + body) == b""
    assert get(served, "/health")[0] == 200


@pytest.mark.parametrize("line", [b"x: " + b"y" * 1_000 + b"\r\n", b"x" * 1_000])
def test_a_head_without_end_is_cut_off(served, line):
    with socket.create_connection(("127.0.0.1", served.http), timeout=START_SECONDS) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        with suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(200 * MAX_HEAD_BYTES // len(line)):
                connection.sendall(line)
            pytest.fail("the server reads on")
    assert get(served, "/health")[0] == 200


@pytest.mark.skipif(which("openssl") is None, reason="makes the certificate")
def test_encrypted_connections(store, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    made = [*made.split(), "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    files = ["--tls-certificate", str(certificate), "--tls-key", str(key)]
    with server(store, options=files) as process:
        trusted = ssl.create_default_context(cafile=str(certificate))
        connection = HTTPSConnection("localhost", process.http, context=trusted)
        connection.request("POST", "/probe", json.dumps(PROBE))
        assert json.load(connection.getresponse())["matches"][0]["ids"] == ["one"]
        connection.close()
        with redis.Redis("localhost", process.resp, ssl=True, ssl_ca_certs=str(certificate)) as run:
            assert run.execute_command("FP.COUNT", "s") == 1
        with pytest.raises((OSError, redis.ConnectionError)):
            redis.Redis(port=process.resp, retry=None).ping()
    files[-1] = str(certificate)  # is no key
    with pytest.raises(AssertionError, match=r"certificate\.pem"), server(store, options=files):
        pass


def test_a_log_has_a_line_for_each_request(store, tmp_path):
    log = tmp_path / "log"
    with server(store, options=["--log", str(log)]) as process:
        post(process, "/probe", PROBE)
        post(process, "/probe", {"no": 1})
        request(process, "BREW", "/probe")
        log.rename(tmp_path / "older")
        with redis.Redis(port=process.resp) as client:
            pipeline = client.pipeline(transaction=False)
            for _ in range(5):
                pipeline.execute_command("FP.PROBE", "s", "0000000000000001")
            pipeline.execute()
    older, newer = (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (tmp_path / "older", log)
    )
    probes = [line for line in older if line["message"] == "request"]
    assert [(line["operation"], line["status"]) for line in probes] == [
        ("probe", 200),
        ("probe", 400),
    ]
    assert {line["client"] for line in probes} == {"127.0.0.1"}
    probes = [line for line in newer if line.get("operation") == "fp.probe"]
    assert sum(line["requests"] for line in probes) == 5
