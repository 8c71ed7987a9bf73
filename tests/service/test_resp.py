"""Stores over RESP: by a client of Redis, and byte by byte."""

import random
import socket
from itertools import pairwise

import numpy as np
import pytest
import redis
from serving import exchange, server

import fpstore
from fpstore.service.resp_format import RequestParser

TEXT = "the quick brown fox jumps over the lazy dog and runs away"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    fpstore.build(folder / "a.fps", [7, 0xFF00], ["x", "y"], fingerprinter=fpstore.SimHash())
    fpstore.build(folder / "n.fps", [1, 2], [10, 20])
    with server(folder / "a.fps", folder / "n.fps") as process:
        yield process


@pytest.fixture(params=[2, 3])
def client(served, request):
    with redis.Redis(port=served.resp, protocol=request.param) as connection:
        yield connection


def test_queries_and_changes(client):
    run = client.execute_command
    near = [b"0000000000000007", 1, [b"x"]]
    assert run("FP.PROBE", "a", "0000000000000006") == [near]
    assert run("fp.probe", "a", "0000000000000006", "radius", "0") == []
    assert run("FP.PROBEINSERT", "a", "0000000000000006", "z") == [0, b"near", [near]]
    assert run("FP.INSERT", "a", "ff00ff0000000000", "i", "00ff00ff00000000", "j") == 2
    assert run("FP.UPSERT", "a", "ff00ff0000000001", "i") == 1
    assert run("FP.IDS", "a", "ff00ff0000000001") == [b"i"]
    assert run("FP.FINGERPRINTS", "a", "j") == [b"00ff00ff00000000"]
    assert run("FP.NEAREST", "a", "ff00ff0000000000", "COUNT", "1") == [
        [b"ff00ff0000000001", 1, [b"i"]]
    ]
    assert run("FP.DEL", "a", "i", "j", "nothing") == 2
    assert run("FP.COUNT", "a") == 2
    assert run("FP.PROBE", "n", "0000000000000001", "RADIUS", "0") == [
        [b"0000000000000001", 0, [10]]
    ]
    assert run("FP.STORES") == [b"a", b"n"]


def test_texts(client):
    run = client.execute_command
    assert run("FP.TEXTPROBEINSERT", "a", "t", TEXT) == [1, None, []]
    inserted, reason, (match,) = run("FP.TEXTPROBEINSERT", "a", "u", TEXT + " .")
    assert (inserted, reason, match[2]) == (0, b"near", [b"t"])
    assert run("FP.TEXTPROBEUPSERT", "a", "t", TEXT)[:2] == [0, b"stored"]
    assert run("FP.TEXTPROBEINSERT", "a", "v", " ") == [0, b"no words", []]
    assert run("FP.TEXTPROBE", "a", TEXT)[0][1] == 0
    assert run("FP.DEL", "a", "t") == 1


def test_a_pipeline_answers_in_order(client):
    rng = np.random.default_rng(3)
    rows = [f"{row:016x}" for row in rng.integers(0, 1 << 63, 2_500).tolist()]
    pipeline = client.pipeline(transaction=False)
    for place, row in enumerate(rows):
        pipeline.execute_command("FP.PROBEINSERT", "n", row, place + 100)
        if place % 500 == 7:
            pipeline.execute_command("FP.PROBEINSERT", "n", "xyz", 1)
            pipeline.execute_command("FP.COUNT", "n")
    answers = pipeline.execute(raise_on_error=False)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    counts = [answer for answer in answers if isinstance(answer, int)]
    decisions = [answer for answer in answers if isinstance(answer, list)]
    assert len(errors) == len(counts) == 5
    assert counts == [2 + 8 + 500 * place for place in range(5)]
    assert all(answer == [1, None, []] for answer in decisions)
    assert client.execute_command("FP.DEL", "n", *range(100, 2_600)) == 2_500


def test_refusals(client):
    for words, message in [
        (["FP.NONE"], "unknown command 'FP.NONE'"),
        (["FP.PROBE", "a"], "expected STORE FINGERPRINT"),
        (["FP.PROBE", "a", "07"], "2 of 16 hexadecimal digits"),
        (["FP.PROBE", "q", "0000000000000007"], "no store 'q'"),
        (["FP.PROBE", "a", "0000000000000007", "RADIUS"], "without its number"),
        (["FP.PROBE", "a", "0000000000000007", "RADIUS", "-1"], "expected a number"),
        (["FP.PROBE", "a", "0000000000000007", "NOSYNC", "1"], "no such option"),
        (["FP.PROBE", "a", "0000000000000007", "LIMIT", "0"], "from 1 to"),
        (["FP.NEAREST", "a", "0000000000000007", "COUNT", "0"], "from 1 to"),
        (["FP.INSERT", "n", "0000000000000007", "x"], "not an unsigned integer"),
        (["FP.INSERT", "a", "0000000000000007"], "expected STORE FINGERPRINT ID"),
        (["FP.TEXTPROBE", "n", "a text"], "does not know how"),
    ]:
        with pytest.raises(redis.ResponseError, match=message.replace("(", "\\(")):
            client.execute_command(*words)
    assert client.ping()


def test_tokens(tmp_path):
    fpstore.build(tmp_path / "s.fps", [1], ["one"]).close()
    environment = {"FPSTORE_TOKEN": "w" * 16, "FPSTORE_READ_TOKEN": "r" * 16}
    with server(tmp_path / "s.fps", environment=environment) as process:
        with redis.Redis(port=process.resp) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.execute_command("FP.COUNT", "s")
        with (
            redis.Redis(port=process.resp, password="x" * 16) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
        with redis.Redis(port=process.resp, password="r" * 16) as reader:
            assert reader.execute_command("FP.COUNT", "s") == 1
            with pytest.raises(redis.ResponseError, match="may read"):
                reader.execute_command("FP.DEL", "s", "one")
        with redis.Redis(port=process.resp, password="w" * 16, protocol=3) as writer:
            assert writer.execute_command("FP.DEL", "s", "one") == 1


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        (b"PING\r\n", b"+PONG\r\n"),
        (b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nping\r\n$2\r\nhi\r\n", b"+PONG\r\n$2\r\nhi\r\n"),
        (b"*0\r\n\r\nPING\r\n", b"+PONG\r\n"),
        (b"*1000000000\r\n", b"-ERR Protocol error: too many arguments: 1000000000\r\n"),
        (b"*-1\r\n", b"-ERR Protocol error: invalid number of arguments\r\n"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", b"-ERR Protocol error: expected '$'"),
        (b"*1\r\n$99999999999\r\n", b"-ERR Protocol error: invalid number of bytes\r\n"),
        (b"*1\r\n$999999999\r\n", b"-ERR Protocol error: too many bytes: 999999999\r\n"),
        (b"*1\r\n$4\r\nPINGxx", b"-ERR Protocol error: a bulk string does not end"),
        (b"x" * (64 << 10), b"-ERR Protocol error: a line is too long\r\n"),
        (b"PING\r\nQUIT\r\nPING\r\n", b"+PONG\r\n+OK\r\n"),
    ],
)
def test_bytes_of_the_protocol(served, sent, received):
    end = b"" if b"QUIT" in sent or b"Protocol" in received else b"QUIT\r\n"
    got = exchange(served, sent + end)
    assert got.startswith(received)
    if end:
        assert got == received + b"+OK\r\n"


def test_requests_in_pieces(served):
    """Each byte comes alone."""
    request = b"*3\r\n$8\r\nFP.PROBE\r\n$1\r\na\r\n$16\r\n0000000000000007\r\n*1\r\n$4\r\nQUIT\r\n"
    with socket.create_connection(("127.0.0.1", served.resp)) as connection:
        for byte in request:
            connection.sendall(bytes([byte]))
        got = b""
        while part := connection.recv(1 << 16):
            got += part
    assert got == b"*1\r\n*3\r\n$16\r\n0000000000000007\r\n:0\r\n*1\r\n$1\r\nx\r\n+OK\r\n"


def test_a_parser_cuts_any_pipeline_in_any_pieces():
    """Short requests without line ends take a way of their own."""
    rng = random.Random(3)

    def string():
        return bytes(rng.choice(b"ab\r\n*$1") for _ in range(rng.choice([0, 1, 3, 9])))

    for _ in range(3_000):
        requests = [
            [string() for _ in range(rng.choice([1, 2, 3, 16, 17]))]
            for _ in range(rng.randint(1, 6))
        ]
        data = b"".join(
            b"*%d\r\n%b" % (len(words), b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words))
            for words in requests
        )
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
        parser, parsed = RequestParser(1 << 20), []
        for start, end in pairwise([0, *cuts, len(data)]):
            parsed += parser.feed(data[start:end])
        assert parsed == requests
        assert not parser.is_inside
