"""What a server serves beside plain stores of texts: indexes, shards, pictures, vectors."""

import io

import numpy as np
import pytest
import redis
from PIL import Image
from serving import get, post, server
from shards import shards

import fpstore
from fpstore import lsh

TEXTS = [f"a story of the fox number {n} and the dog number {n * n} in a garden" for n in range(40)]
IDS = [f"t{n}" for n in range(40)]


def picture(seed, size=(64, 48)):
    """Return the bytes of a PNG file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(out, "PNG")
    return out.getvalue()


def test_an_index_answers_as_it_does_in_python(tmp_path):
    path = tmp_path / "t.lsh"
    index = lsh.build(path, TEXTS, IDS, hasher=fpstore.MinHash(), threshold=0.5)
    near = TEXTS[7].replace("garden", "yard")
    expected = [
        {"id": match.id, "similarity": match.similarity} for match in index.probe_many([near])[0]
    ]
    index.close()
    assert expected
    with server(path) as process, redis.Redis(port=process.resp, decode_responses=True) as client:
        status, answer = post(process, "/probe", {"text": near})
        assert (status, answer) == (200, {"matches": expected, "more": False})
        assert post(process, "/probe", {"text": near, "limit": 1})[1] == {
            "matches": expected[:1],
            "more": len(expected) > 1,
        }
        run = client.execute_command
        assert [match[0] for match in run("FP.TEXTPROBE", "t", near)] == [m["id"] for m in expected]
        body = {"texts": [TEXTS[3], " ", "new words that nobody has written here before"]}
        _, answer = post(process, "/probe-insert", {**body, "ids": ["t3", "blank", "new"]})
        outcomes = [(one["inserted"], one["reason"]) for one in answer["results"]]
        assert outcomes == [(False, "stored"), (False, "no words"), (True, None)]
        assert run("FP.TEXTPROBEINSERT", "t", "more", TEXTS[3])[:2] == [0, "near"]
        assert get(process, "/ids/new")[1] == {"id": "new", "fingerprints": []}
        assert run("FP.DEL", "t", "new", "nobody") == 1
        assert run("FP.COUNT", "t") == 40
        assert post(process, "/upsert", {"text": TEXTS[9], "id": "t8"})[0] == 200
        assert get(process, "/stats")[1]["t"]["documents"] == 40
        for route, body, message in [
            ("probe", {"fingerprint": 7}, "has no fingerprints: send texts"),
            ("nearest", {"text": near}, "has no nearest"),
            ("probe-upsert", {"text": near, "id": "x"}, "has no probe_upsert"),
            ("delete", {"fingerprint": 7}, "has no fingerprints"),
            ("probe", {"vector": [1, 2]}, "takes texts, not vectors"),
        ]:
            status, answer = post(process, f"/{route}", body)
            assert (status, message in answer["error"]["message"]) == (400, True)
    with fpstore.open(path) as index:
        assert "t8" in index.ids
        assert len(index) == 40


def test_a_sharded_store_is_read_beside_one_that_is_written(tmp_path):
    shards(tmp_path / "shards.fps", [*range(0, 4000, 40)], [*range(100)], [50]).close()
    fpstore.build(tmp_path / "b.fps", [], ids=[]).close()
    with server(tmp_path / "shards.fps", tmp_path / "b.fps") as process:
        _, answer = post(process, "/stores/shards/probe", {"fingerprint": 80, "radius": 0})
        assert [match["ids"] for match in answer["matches"]] == [[2]]
        status, answer = post(process, "/stores/shards/insert", {"fingerprint": 81, "id": 900})
        assert (status, answer["error"]["type"]) == (403, "ReadOnlyError")
        assert post(process, "/stores/b/insert", {"fingerprint": 81, "id": 900})[0] == 200


def test_pictures_are_sent_as_files(tmp_path):
    path, headers = tmp_path / "p.fps", {"content-type": "image/png"}
    hasher = fpstore.ImageHash(method="perceptual", width=64)
    fpstore.build(path, [], ids=[], width=64, radius=10, fingerprinter=hasher).close()
    with server(path) as process:
        status, answer = post(process, "/probe-insert?id=first", picture(1), headers)
        assert (status, answer["inserted"]) == (200, True)
        _, answer = post(process, "/probe", picture(1, (128, 96)), headers)
        assert [match["ids"] for match in answer["matches"]] == [["first"]]
        blank = io.BytesIO()
        Image.new("RGB", (64, 64)).save(blank, "PNG")
        _, answer = post(process, "/probe-insert?id=blank", blank.getvalue(), headers)
        assert answer["reason"] == "no words"
        status, answer = post(process, "/probe", b"no picture", headers)
        assert (status, answer["error"]["type"]) == (400, "InputError")
        status, answer = post(process, "/probe", {"text": str(path)})
        assert "takes pictures, not texts" in answer["error"]["message"]


def test_vectors(tmp_path):
    path, hasher = tmp_path / "v.fps", fpstore.HyperplaneHash(dimension=8, width=64)
    rows = np.random.default_rng(1).normal(size=(5, 8))
    fpstore.build(
        path, hasher.fingerprints(rows), [*range(5)], width=64, radius=3, fingerprinter=hasher
    ).close()
    with server(path) as process:
        _, answer = post(process, "/probe", {"vectors": rows[:2].tolist()})
        assert [result["matches"][0]["ids"] for result in answer["results"]] == [[0], [1]]
        assert post(process, "/probe", {"vector": [1.0]})[0] == 400


def test_an_index_is_merged_in_the_background(tmp_path):
    path = tmp_path / "t.lsh"
    lsh.build(path, TEXTS, IDS, hasher=fpstore.MinHash(), threshold=0.5).close()
    rng = np.random.default_rng(2)
    with server(path) as process:
        before = get(process, "/stats")[1]["t"]["stores"]["keys"]["generation"]
        made = 0
        while get(process, "/stats")[1]["t"]["stores"]["keys"]["generation"] == before:
            texts = [" ".join(map(str, rng.integers(0, 1 << 30, 8))) for _ in range(2_000)]
            body = {"texts": texts, "ids": [f"n{made + n}" for n in range(len(texts))]}
            assert post(process, "/insert", {**body, "durable": False})[0] == 200
            made += len(texts)
            assert made < 200_000
    with fpstore.open(path) as index:
        assert len(index) == 40 + made
        assert index.verify()


@pytest.mark.parametrize("word", [b"NOBODY", b"\xff\xfe", b"FP.NONE"])
def test_words_of_clients_are_no_labels_of_metrics(tmp_path, word):
    fpstore.build(tmp_path / "s.fps", [1]).close()
    with server(tmp_path / "s.fps") as process, redis.Redis(port=process.resp) as client:
        with pytest.raises(redis.ResponseError):
            client.execute_command(word)
        text = get(process, "/metrics")[1]
        assert b'fpstore_requests_total{operation="unknown"' in text
        assert word.lower() not in text
