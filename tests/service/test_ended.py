"""Servers that are killed, or ended by a signal, while clients write."""

import random
import signal
import threading
import time
from contextlib import suppress
from http.client import HTTPException

import pytest
import redis
from serving import get, post, server
from speeds import slow

import fpstore

CLIENTS = 4


class Writers:
    """Threads that offer rows by both protocols until the server is gone.

    ``accepted`` has each row that was acknowledged as inserted.
    """

    def __init__(self, served, seed):
        self.accepted, self._served = {}, served
        self._threads = [
            threading.Thread(target=self._write, args=(client, random.Random(f"{seed} {client}")))
            for client in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, client, rng):
        by_resp = redis.Redis(port=self._served.resp, socket_timeout=20, retry=None)
        with suppress(OSError, redis.RedisError, HTTPException), by_resp:
            for number in range(1_000_000):
                rows = {f"{client}-{number}-{i}": rng.getrandbits(64) for i in range(5)}
                digits = {name: f"{row:016x}" for name, row in rows.items()}
                if client % 2:
                    body = {"fingerprints": [*digits.values()], "ids": [*rows]}
                    status, _ = post(self._served, "/insert", body)
                    assert status == 200
                else:
                    pipeline = by_resp.pipeline(transaction=False)
                    for name, text in digits.items():
                        pipeline.execute_command("FP.INSERT", "s", text, name)
                    assert pipeline.execute() == [1] * len(rows)
                self.accepted.update(rows)

    def join(self):
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("seed", [1, 2, 3, *map(slow, range(4, 104))])
def test_a_killed_server_has_what_it_acknowledged(tmp_path, seed):
    path, rng = tmp_path / "s.fps", random.Random(seed)
    fpstore.build(path, [], ids=[], width=64).close()
    with server(path) as process:
        writers = Writers(process, seed)
        while len(writers.accepted) < 20:
            time.sleep(0.001)
        time.sleep(rng.random() * 0.2)
        process.process.kill()
        writers.join()
    with fpstore.open(path) as store:
        _, stored = store.fingerprints_of([*writers.accepted])
        assert stored.tolist() == [*writers.accepted.values()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server_behind_its_answers(tmp_path, number):
    path = tmp_path / "s.fps"
    fpstore.build(path, [], ids=[], width=64).close()
    with server(path) as process:
        writers = Writers(process, number)
        while len(writers.accepted) < 100:
            time.sleep(0.001)
        process.process.send_signal(number)
        assert process.process.wait(30) == 0
        writers.join()
        assert process.process.stderr.read() == ""
    with fpstore.open(path) as store:
        _, stored = store.fingerprints_of([*writers.accepted])
        assert stored.tolist() == [*writers.accepted.values()]


def test_a_store_that_another_process_writes_is_refused_or_read(tmp_path):
    path = tmp_path / "s.fps"
    fpstore.build(path, [1], ["one"]).close()
    with fpstore.open(path, "r+") as store:
        with pytest.raises(AssertionError, match="writer"), server(path):
            pass
        with server(path, options=["--read-only"]) as process:
            store.insert(1 << 20, "two")
            _, answer = post(process, "/probe", {"fingerprint": 1 << 20, "radius": 0})
            assert answer["matches"][0]["ids"] == ["two"]
            assert post(process, "/insert", {"fingerprint": 9, "id": "c"})[0] == 403
            assert get(process, "/health")[0] == 200
