"""An index beside other processes, as it grows, is damaged, copied, repaired, and refuses."""

import json
import os
import pickle
import random
import shutil
import threading

import numpy as np
import pytest
from letters import Letters, some_words
from reference_lsh import Model, band_keys, document_row, entry

import fpstore
from fpstore import FpstoreError, InputError, lsh

HASHER = Letters()
FORM = lsh.plan(1000, HASHER, 0.8, bands=(6, 3), radius=8)
WORDS = some_words(random.Random(11), 200)


def built(path, words=WORDS, ids=None, **options):
    return lsh.build(
        path,
        words,
        ids or [f"w{i}" for i in range(len(words))],
        hasher=HASHER,
        plan=FORM,
        **options,
    )


def opened(path, mode="r", **options):
    return fpstore.open(path, mode, hasher=HASHER, **options)


def found(index, words=WORDS):
    return [list(matches) for matches in index.probe_many(words)]


def test_the_bytes_of_both_stores(tmp_path):
    index = built(tmp_path / "i.lsh")
    stats = index.stats()
    sketches, signatures = HASHER.sketches(WORDS, 18), HASHER.signatures(WORDS)
    entries = {
        entry(key, number, stats["key_bits"], stats["number_bits"])
        for number, sketch in enumerate(sketches.tolist())
        for key in band_keys(sketch, 6, 3)
    }
    with fpstore.open(tmp_path / "i.lsh" / "keys") as keys:
        assert list(keys) == sorted(entries)
    with fpstore.open(tmp_path / "i.lsh" / "documents") as documents:
        assert list(documents) == [
            document_row(number, bytes(signature)) for number, signature in enumerate(signatures)
        ]


def test_an_empty_item_has_no_document_and_keeps_its_row_number(tmp_path):
    words = [WORDS[0], "", WORDS[1], ""]
    with lsh.build(tmp_path / "i.lsh", words, hasher=HASHER, plan=FORM) as index:
        assert len(index) == 2
        assert index.probe(WORDS[1])[0].id == 2
    with opened(tmp_path / "i.lsh", "r+") as index:
        assert index.insert([WORDS[2]]) == 1
        assert 4 in {match.id for match in index.probe(WORDS[2])}
    with lsh.build(
        tmp_path / "s.lsh", words, ["a", "b", "c", "d"], hasher=HASHER, plan=FORM
    ) as index:
        assert index.probe(WORDS[1])[0].id == "c"
        assert "b" not in index.ids


def test_exact_verification(tmp_path):
    index = built(tmp_path / "i.lsh")
    texts = {f"w{i}": word for i, word in enumerate(WORDS)}
    for word in WORDS[:20]:
        candidates = [match.id for match in index.probe(word)]
        exact = {
            name: np.mean([a == b for a, b in zip(word, texts[name], strict=True)])
            for name in candidates
        }
        verified = index.probe(word, verify=lambda ids: [texts[name] for name in ids])
        assert {match.id: match.similarity for match in verified} == {
            n: s for n, s in exact.items() if s >= index.threshold
        }
        assert [match.similarity for match in verified] == sorted(
            (match.similarity for match in verified), reverse=True
        )
    with pytest.raises(InputError, match="verify returned 0 items for"):
        index.probe(WORDS[0], verify=lambda ids: [])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("growth", ["insert", "merge"])
def test_numbers_become_wider(tmp_path, set_limits, growth):
    set_limits(lsh_number_bits=3)
    form = lsh.plan(5, HASHER, 0.8, bands=(6, 3), radius=8)
    index = lsh.build(
        tmp_path / "i.lsh", WORDS[:5], [f"w{i}" for i in range(5)], hasher=HASHER, plan=form
    )
    model = Model(6, 3, index.stats()["key_bits"], 8)
    sketches, signatures = HASHER.sketches(WORDS, 18), HASHER.signatures(WORDS)
    model.documents = [
        model.document(s, bytes(g), f"w{i}")
        for i, (s, g) in enumerate(zip(sketches, signatures, strict=True))
    ]
    reader, bits = opened(tmp_path / "i.lsh"), []
    with opened(tmp_path / "i.lsh", "r+") as index:
        for start in range(5, 80, 3 if growth == "insert" else 1):
            part = range(start, min(start + (3 if growth == "insert" else 1), 80))
            index.insert([WORDS[i] for i in part], [f"w{i}" for i in part])
            if growth == "merge" and start % 3 == 0:
                index.merge()
            bits.append(index.stats()["number_bits"])
            for word in (WORDS[0], WORDS[part[-1]]):
                document = model.documents[WORDS.index(word)]
                wanted = [name for _, name in model.find(document) if int(name[1:]) <= part[-1]]
                assert [match.id for match in index.probe(word)] == wanted
                assert [match.id for match in reader.probe(word)] == wanted
        assert bits[0] == 4
        assert bits[-1] >= 7
        assert index.verify().ok


def test_changes_that_are_not_durable_yet(tmp_path):
    built(tmp_path / "i.lsh").close()
    child = os.fork()
    if child == 0:  # a writer that ends without a word
        index = opened(tmp_path / "i.lsh", "r+", sync="none")
        index.insert(WORDS[:3], ["a", "b", "c"])
        index.delete(["w0"], sync="commit")
        index.insert(WORDS[3:5], ["d", "e"])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reader = opened(tmp_path / "i.lsh")
    assert "a" in reader.ids
    assert "w0" not in reader.ids
    assert {match.id for match in reader.probe(WORDS[1])} >= {"b", "w1"}
    with opened(tmp_path / "i.lsh", "r+") as index:
        assert {match.id for match in index.probe(WORDS[3])} >= {"d", "w3"}
        assert index.verify().ok
    assert "d" in reader.ids


def test_a_reader_sees_changes_as_a_whole(tmp_path):
    built(tmp_path / "i.lsh").close()
    word, stop, wrong = "abcd" * 6, threading.Event(), []
    reader = opened(tmp_path / "i.lsh")

    def read():
        while not stop.is_set():
            counts = [sum(match.similarity == 1 for match in reader.probe(word))]
            counts += [
                sum(match.similarity == 1 for match in matches)
                for matches in reader.probe_many([word, word])
            ]
            if any(count % 5 for count in counts) or counts[1] != counts[2]:
                wrong.append(counts)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    with opened(tmp_path / "i.lsh", "r+") as index:
        for turn in range(40):
            ids = [f"{turn}-{i}" for i in range(5)]
            index.insert([word] * 5, ids)
            if turn % 3:
                index.delete(ids)
            if turn % 10 == 9:
                index.merge()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(reader.probe(word)) >= 5 * 14


def test_a_copy_and_a_pickle(tmp_path):
    built(tmp_path / "i.lsh").close()
    with opened(tmp_path / "i.lsh", "r+") as index:
        index.insert(WORDS[:5], list("abcde"))
        index.backup(tmp_path / "copy.lsh")
        before = found(index)
        index.insert(WORDS[:5], list("fghij"))
        copy = opened(tmp_path / "copy.lsh")
        assert found(copy) == before
        assert copy.verify().ok
        assert found(pickle.loads(pickle.dumps(copy))) == before
        with pytest.raises(FpstoreError, match="exists"):
            index.backup(tmp_path / "copy.lsh")
        index.backup(tmp_path / "copy.lsh", overwrite=True)
    assert len(opened(tmp_path / "copy.lsh")) == 210


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("part", ["documents", "keys"])
def test_damage_is_an_error_or_harmless_and_is_repaired(tmp_path, part):
    words = some_words(random.Random(3), 2000)
    with built(tmp_path / "i.lsh", words) as index:
        whole = found(index, words[:50])
    (table,) = (tmp_path / "i.lsh" / part).glob("gen-*/table-*")
    size = table.stat().st_size
    for at in (5000, size // 2, size - 3):
        shutil.rmtree(tmp_path / "d.lsh", ignore_errors=True)
        shutil.copytree(tmp_path / "i.lsh", tmp_path / "d.lsh")
        (damaged,) = (tmp_path / "d.lsh" / part).glob("gen-*/table-*")
        flip(damaged, at)
        try:
            with opened(tmp_path / "d.lsh") as index:
                assert found(index, words[:50]) == whole
                assert not index.verify().ok
        except FpstoreError as error:
            assert isinstance(error, fpstore.CorruptStoreError)
        shutil.rmtree(tmp_path / "r.lsh", ignore_errors=True)
        report = fpstore.repair(tmp_path / "d.lsh", tmp_path / "r.lsh")
        assert report.faults
        assert not report.sound
        with opened(tmp_path / "r.lsh") as index:
            assert index.verify().ok == ("keys" not in " ".join(report.losses))
            assert len(index) >= 1800
    assert fpstore.repair(tmp_path / "i.lsh").sound
    assert not (tmp_path / "i.lsh.repaired").exists()


def changed(path, **members):
    content = json.loads((path / "lsh.json").read_text())
    content.pop("checksum")
    content |= members
    from reference_records import manifest_checksum

    (path / "lsh.json").write_text(json.dumps(content | {"checksum": manifest_checksum(content)}))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"bands": 0}, "malformed"),
        ({"bands": True}, "malformed"),
        ({"radius": 225}, "malformed"),
        ({"key_bits": 60}, "is not the store of keys"),
        ({"keys": "0" * 32}, "belongs to another index"),
        ({"documents": "00"}, "malformed"),
        ({"threshold": float("nan")}, "malformed"),
        ({"recall": 2.0}, "malformed"),
        ({"hasher": {"name": "letters", "version": 1}}, "malformed"),
        ({"hasher": {"name": "other", "version": 1, "parameters": {}}}, "is of another hasher"),
        ({"format_version": 2}, "upgrade fpstore"),
        ({"next_number": -1}, "malformed"),
        ({"more": 1}, "malformed"),
    ],
)
def test_a_manifest_that_cannot_be(tmp_path, members, message):
    built(tmp_path / "i.lsh").close()
    changed(tmp_path / "i.lsh", **members)
    with pytest.raises(FpstoreError, match=message) as caught:
        opened(tmp_path / "i.lsh")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"\xff" * 9, b"null", b'{"checksum": "0"}']
)
def test_a_damaged_manifest(tmp_path, content):
    built(tmp_path / "i.lsh").close()
    (tmp_path / "i.lsh" / "lsh.json").write_bytes(content)
    with pytest.raises(fpstore.CorruptStoreError, match=r"lsh\.json: damaged"):
        opened(tmp_path / "i.lsh")


def test_what_is_refused(tmp_path):
    with pytest.raises(fpstore.StoreNotFoundError, match="no such store"):
        fpstore.open(tmp_path / "none")
    fpstore.build(tmp_path / "s.fps", [1, 2]).close()
    with pytest.raises(InputError, match="is a store of fingerprints, which takes no hasher="):
        opened(tmp_path / "s.fps")
    with pytest.raises(fpstore.StoreExistsError):
        built(tmp_path / "s.fps", overwrite=True)
    index = built(tmp_path / "i.lsh")
    with pytest.raises(fpstore.MissingExtraError, match="'letters' is not installed"):
        fpstore.open(tmp_path / "i.lsh")
    with pytest.raises(fpstore.StoreNotFoundError, match="is an LSH index, and this is for stores"):
        fpstore.Store(tmp_path / "i.lsh")
    for name, value in (("merge_at", 0.1), ("pages", "huge")):
        with pytest.raises(InputError, match=f"is an LSH index, which takes no {name}="):
            opened(tmp_path / "i.lsh", "r+", **{name: value})
    for name, value in (("in_place", True), ("lost", "lost.tsv"), ("radius", 3)):
        with pytest.raises(InputError, match=f"is an LSH index, which takes no {name}="):
            fpstore.repair(tmp_path / "i.lsh", **{name: value})
    with pytest.raises(fpstore.StoreExistsError, match="is not an LSH index"):
        built(tmp_path, overwrite=True)
    with pytest.raises(fpstore.ReadOnlyError):
        index.insert(WORDS[:1], ["x"])
    for radius in (-1, 49, 1.5, "8"):
        with pytest.raises(InputError, match="radius"):
            index.probe(WORDS[0], radius=radius)
    with pytest.raises(InputError, match="is empty"):
        index.probe("")
    with pytest.raises(InputError, match="item 1: is empty"):
        index.probe_many([WORDS[0], ""])
    with pytest.raises(InputError, match="expected 24 letters"):
        index.probe("abc")
    with opened(tmp_path / "i.lsh", "r+") as writer:
        with pytest.raises(fpstore.StoreLockedError):
            opened(tmp_path / "i.lsh", "r+")
        before = found(writer)
        for wrong, message in (
            ([1], "strings"),
            (None, "give one for each row"),
            (["a", "b"], "1 fingerprint|2 ids|ids"),
        ):
            with pytest.raises(InputError, match=message):
                writer.insert(WORDS[:1], wrong)
        with pytest.raises(InputError, match="item 0: is empty"):
            writer.insert([""], ["x"])
        with pytest.raises(InputError, match="needs an id"):
            writer.upsert(WORDS[:1], None)
        assert found(writer) == before
    index.close()
    with pytest.raises(fpstore.ClosedStoreError):
        index.probe(WORDS[0])
    for ids, message in (
        (["a"], "fewer ids"),
        (["a", "b", "c"], "more ids"),
        ("ab", "ids must be"),
    ):
        with pytest.raises(InputError, match=message):
            lsh.build(tmp_path / "x.lsh", WORDS[:2], ids, hasher=HASHER, plan=FORM)
    assert not (tmp_path / "x.lsh").exists()
    with pytest.raises(InputError, match="give a threshold"):
        lsh.build(tmp_path / "x.lsh", WORDS, hasher=HASHER)


def test_tables_of_results(tmp_path):
    index = built(tmp_path / "i.lsh")
    table = index.probe_many(WORDS[:3]).to_arrow(query_ids=["x", "y", "z"])
    assert table.column_names == ["query_row", "query_id", "id", "similarity"]
    assert [
        (row["id"], row["similarity"]) for row in table.to_pylist() if row["query_id"] == "y"
    ] == found(index, WORDS[1:2])[0]
    pairs = next(index.pairs()).to_arrow()
    assert pairs.column_names == ["id_a", "id_b", "similarity"]
    assert pairs.num_rows == sum(len(batch) for batch in index.pairs())
