"""Stores over HTTP, served by a real process."""

import asyncio
import json
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from serving import get, post, server

import fpstore
from fpstore.service.access import Access
from fpstore.service.http import HttpInterface
from fpstore.service.served import Limits
from fpstore.service.service import Service

TEXT = "the quick brown fox jumps over the lazy dog and runs away"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    fpstore.build(folder / "a.fps", [7, 0xFF00], ["x", "y"], fingerprinter=fpstore.SimHash())
    fpstore.build(folder / "n.fps", [1, 2, 2**255], [10, 20, 30], width=256, radius=31)
    with server(folder / "a.fps", f"numbers={folder / 'n.fps'}") as process:
        yield process


def test_a_probe_of_one_and_of_many(served):
    status, answer = post(served, "/stores/a/probe", {"fingerprint": "0000000000000006"})
    assert status == 200
    assert answer == {
        "matches": [{"fingerprint": "0000000000000007", "distance": 1, "ids": ["x"]}],
        "more": False,
    }
    status, answer = post(served, "/stores/a/probe", {"fingerprints": [7, 0xFF01], "radius": 0})
    assert [len(result["matches"]) for result in answer["results"]] == [1, 0]
    wide = f"{2**255 + 2**200:064x}"
    status, answer = post(served, "/stores/numbers/probe", {"fingerprint": wide})
    assert answer["matches"][0]["ids"] == [30]
    assert answer["matches"][0]["distance"] == 1


def test_raw_fingerprints_and_messagepack(served):
    raw = np.array([7, 0xFF00], ">u8").tobytes()
    headers = {"content-type": "application/octet-stream"}
    _, answer = post(served, "/stores/a/probe?radius=0", raw, headers)
    assert [result["matches"][0]["ids"] for result in answer["results"]] == [["x"], ["y"]]
    status, answer = post(served, "/stores/a/probe", raw[:-1], headers)
    assert (status, answer["error"]["type"]) == (400, "InputError")
    kind = "application/msgpack"
    body = msgspec.msgpack.encode({"fingerprint": 7})
    _, packed = post(served, "/stores/a/probe", body, {"content-type": kind, "accept": kind})
    assert msgspec.msgpack.decode(packed)["matches"][0]["ids"] == ["x"]


def test_texts_are_hashed_as_the_store_says(served):
    _, first = post(served, "/stores/a/probe-insert", {"text": TEXT, "id": "t1"})
    assert (first["inserted"], first["reason"]) == (True, None)
    body = {"texts": [TEXT + " .", " ", TEXT], "ids": ["t2", "t3", "t1"]}
    _, answer = post(served, "/stores/a/probe-insert", body)
    assert [result["reason"] for result in answer["results"]] == ["near", "no words", "stored"]
    digits = f"{fpstore.SimHash().fingerprint(TEXT):016x}"
    assert get(served, "/stores/a/ids/t1")[1] == {"id": "t1", "fingerprints": [digits]}
    assert get(served, f"/stores/a/fingerprints/{digits}")[1]["ids"] == ["t1"]


def test_changes_are_seen_by_other_processes(served, tmp_path):
    path = tmp_path / "s.fps"
    fpstore.build(path, [], width=64).close()
    with server(path) as process, fpstore.open(path) as reader:
        _, answer = post(process, "/insert", {"fingerprints": [1, 99], "ids": [5, 6]})
        assert answer == {"changed": 2}
        assert [match.ids for match in reader.probe(1, 0)] == [[5]]
        _, answer = post(process, "/upsert", {"fingerprint": 1 << 40, "id": 5})
        assert answer == {"changed": 1}
        _, answer = post(process, "/delete", {"ids": [6, 7]})
        assert answer == {"removed": 1, "missing": 1}
        assert {*reader} == {1 << 40}
        _, answer = post(process, "/probe-upsert", {"fingerprint": 3, "id": 5, "radius": 1})
        assert answer["inserted"]
        assert {*reader} == {3}
        _, answer = post(process, "/nearest", {"fingerprint": 0, "count": 1})
        assert answer["matches"][0]["distance"] == 2
        assert post(process, "/compare", {"a": 7, "b": "0000000000000001"})[1] == {"distance": 2}


def test_one_of_many_clients_inserts(tmp_path):
    """Near-duplicates that come at once are inserted once."""
    path = tmp_path / "s.fps"
    fpstore.build(path, [], width=64).close()
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 1 << 63, 40, np.uint64).tolist()
    with server(path) as process:
        barrier = threading.Barrier(8)

        def offer(client):
            barrier.wait()
            answers = []
            for row in rows:
                body = {"fingerprint": f"{row ^ (1 << client % 3):016x}", "id": f"{client}-{row}"}
                answers.append(post(process, "/probe-insert", body)[1]["inserted"])
            return answers

        with ThreadPoolExecutor(8) as pool:
            inserted = np.array(list(pool.map(offer, range(8))))
        assert (inserted.sum(axis=0) == 1).all()
    with fpstore.open(path) as store:
        assert len(store) == len(rows)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/stores/a/probe", b"{", 400, "Input data was truncated"),
        ("/stores/a/probe", b"[" * 100_000, 400, "Expected `object`, got `array`"),
        ("/stores/a/probe", {"fingerprints": [1, None]}, 400, "Expected `int | str`, got `null`"),
        ("/stores/a/probe", {"fingerprint": "07"}, 400, "2 of 16 hexadecimal digits"),
        ("/stores/a/probe", {"fingerprint": 7, "text": "a"}, 400, "one of fingerprint"),
        ("/stores/a/probe", {"fingerprint": 7, "radius": -1}, 400, "Expected `int` >= 0"),
        ("/stores/a/probe", {"fingerprint": 7, "radius": 65}, 400, "radius"),
        ("/stores/a/probe", {"fingerprint": 1 << 64}, 400, "does not fit"),
        ("/stores/a/probe", {"print": 7}, 400, "unknown field `print`"),
        ("/stores/numbers/probe", {"text": "a"}, 400, "does not know how"),
        ("/stores/numbers/insert", {"fingerprint": 7, "id": "a"}, 400, "ids are integers"),
        ("/stores/numbers/insert", {"fingerprint": 7}, 400, "an id for each row"),
        ("/stores/numbers/insert", {"fingerprints": [7], "ids": [1, 2]}, 400, "2 ids for 1"),
        ("/stores/a/probe", {"fingerprint": 7, "limit": 0}, 400, "Expected `int` >= 1"),
        ("/stores/a/nearest", {"fingerprint": 7, "count": 0}, 400, "Expected `int` >= 1"),
        ("/stores/a/delete", {}, 400, "ids or fingerprints to delete"),
        ("/stores/b/probe", {"fingerprint": 7}, 404, "no store 'b'"),
        ("/probe", {"fingerprint": 7}, 400, "several stores: name one of a, numbers"),
        ("/stores/a/insert-all", {}, 404, "Not Found"),
    ],
)
def test_refusals_name_what_is_wrong(served, path, body, status, message):
    got, answer = post(served, path, body)
    assert got == status
    assert message in answer["error"]["message"]


def test_a_refused_row_does_not_spoil_the_changes_of_others(tmp_path):
    path = tmp_path / "s.fps"
    fpstore.build(path, [1], ["one"]).close()
    with server(path) as process, ThreadPoolExecutor(16) as pool:
        bodies = [
            {"fingerprint": 1 << (4 * i), "id": 5 if i % 4 == 0 else f"id{i}", "radius": 0}
            for i in range(1, 16)
        ]
        answers = list(pool.map(lambda body: post(process, "/probe-insert", body), bodies))
    statuses = [status for status, _ in answers]
    assert statuses == [400 if body["id"] == 5 else 200 for body in bodies]
    with fpstore.open(path) as store:
        assert len(store) == 1 + statuses.count(200)


def test_health_figures_and_description(served):
    assert get(served, "/health") == (200, {"status": "ok"})
    assert {*get(served, "/stats")[1]} == {"a", "numbers"}
    _, metrics = get(served, "/metrics")
    assert b'fpstore_ids{store="numbers"} 3.0' in metrics
    assert b'fpstore_requests_total{operation="health",status="200"}' in metrics
    _, description = get(served, "/openapi.json")
    assert description["openapi"].startswith("3.1")
    assert "/stores/{store}/probe-insert" in description["paths"]
    references = {word for word in json.dumps(description).split('"') if word.startswith("#/")}
    schemas = description["components"]["schemas"]
    assert all(reference.rpartition("/")[2] in schemas for reference in references)


def test_tokens(tmp_path):
    path = tmp_path / "s.fps"
    fpstore.build(path, [1], ["one"]).close()
    write, read = "w" * 16, "r" * 16
    environment = {"FPSTORE_TOKEN": write, "FPSTORE_READ_TOKEN": read}

    def bearer(token):
        return {"authorization": f"Bearer {token}"}

    with server(path, environment=environment) as process:
        body = {"fingerprint": 1}
        assert post(process, "/probe", body)[0] == 401
        assert post(process, "/probe", body, bearer("x" * 16))[0] == 401
        assert post(process, "/probe", body, bearer(read))[0] == 200
        change = {"fingerprint": 1 << 30, "id": "two"}
        assert post(process, "/insert", change, bearer(read))[0] == 403
        assert post(process, "/insert", change, bearer(write))[0] == 200
        assert get(process, "/health")[0] == 200
        assert get(process, "/stats")[0] == 401


def test_a_body_is_bounded(served):
    most = 16 << 20
    status, answer = post(served, "/stores/a/probe", b" " * (most + 1))
    assert (status, answer["error"]["message"]) == (413, f"a request takes at most {most:,} bytes")


def test_limits_of_a_request_leave_matches_out(tmp_path):
    """One row is probed by itself, several as a batch."""
    path = tmp_path / "s.fps"
    fpstore.build(path, [0, 1, 2, 3], [10, 11, 12, 13]).close()
    with server(path) as process:
        one = post(process, "/probe", {"fingerprint": 0, "limit": 2})[1]
        assert ([match["distance"] for match in one["matches"]], one["more"]) == ([0, 1], True)
        many = post(process, "/probe", {"fingerprints": [0, 0], "limit": 2})[1]["results"]
        assert many == [one, one]
        assert not post(process, "/probe", {"fingerprint": 0, "limit": 4})[1]["more"]


def test_clients_that_are_gone_leave_nothing_behind(tmp_path):
    """Requests end in the middle of a body: nothing is logged, and others are answered."""
    path = tmp_path / "s.fps"
    fpstore.build(path, [1], ["one"]).close()
    head = b"POST /probe HTTP/1.1\r\ncontent-length: 100\r\n\r\n{"
    with server(path) as process:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", process.http)) as connection:
                connection.sendall(head)
        assert get(process, "/health")[0] == 200
        process.process.terminate()
        assert process.process.wait(30) == 0
        assert process.process.stderr.read() == ""


def test_ids_in_the_query_are_taken_as_they_are(tmp_path):
    path, headers = tmp_path / "s.fps", {"content-type": "application/octet-stream"}
    fpstore.build(path, [], ids=[], width=64).close()
    with server(path) as process:
        raw = np.array([7, 1 << 40], ">u8").tobytes()
        assert post(process, "/insert?ids=a,b&ids=c", raw, headers) == (200, {"changed": 2})
        assert get(process, "/ids/a,b")[0] == 200


def test_a_full_disk_refuses_a_change_and_keeps_the_server(tmp_path):
    """The server may write no file of more than a megabyte."""
    path = tmp_path / "s.fps"
    fpstore.build(path, [], ids=[], width=64).close()
    rows = np.random.default_rng(7).integers(0, 1 << 63, 60_000, np.uint64).tolist()
    stored = 0
    with server(path) as process:
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        for start in range(0, len(rows), 1_000):
            part = rows[start : start + 1_000]
            ids = [f"id number {start + place}" for place in range(len(part))]
            status, answer = post(process, "/insert", {"fingerprints": part, "ids": ids})
            if status != 200:
                break
            stored += answer["changed"]
        assert (status, answer["error"]["type"]) == (507, "StorageError")
        _, answer = post(process, "/probe", {"fingerprints": rows, "radius": 0})
        assert [len(one["matches"]) for one in answer["results"]] == [
            int(place < stored) for place in range(len(rows))
        ]
    with fpstore.open(path) as store:
        assert len(store) == stored


def test_requests_before_the_stores_are_open():
    """The application answers, as a server does that is opening large stores."""
    app = HttpInterface(Service({"s": "nowhere"}, Limits()), Access()).app()

    async def ask(path, method):
        sent = []
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }

        async def receive():
            return {"type": "http.request", "body": b'{"fingerprint": 1}', "more_body": False}

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])["error"]["message"]

    for path, method in [("/health", "GET"), ("/probe", "POST"), ("/stores/s/probe", "POST")]:
        assert asyncio.run(ask(path, method)) == (503, "the stores are being opened")
