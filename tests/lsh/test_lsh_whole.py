"""Whole indexes: merges beside inserts, groups in pieces, lost keys, and refused builds."""

import json
import os
import random
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from inputs import json_lines
from letters import Letters, some_words
from reference_lsh import Model
from speeds import crossed
from systemcalls import failing_calls

import fpstore
from fpstore import InputError, MinHash, _kernel, lsh
from fpstore.cli import index as of_index
from fpstore.cli import main
from fpstore.hashing import PrecomputedMinHash, PStable
from fpstore.lsh import groups
from fpstore.lsh import keys as keys_module
from fpstore.lsh.writer import IndexWriter
from fpstore.query.store_snapshot import StoreSnapshot

HASHER = Letters()
FORM = lsh.plan(1000, HASHER, 0.8, bands=(6, 3), radius=8)
WORDS = some_words(random.Random(21), 300)


def built(path, words=WORDS, form=FORM):
    return lsh.build(path, words, [f"w{i}" for i in range(len(words))], hasher=HASHER, plan=form)


def opened(path, mode="r", **options):
    return fpstore.open(path, mode, hasher=HASHER, **options)


def model_of(index, words=WORDS):
    model = Model(6, 3, index.stats()["key_bits"], 8)
    sketches, signatures = HASHER.sketches(words, 18), HASHER.signatures(words)
    rows = zip(sketches.tolist(), map(bytes, signatures), range(len(words)), strict=True)
    model.documents = [model.document(sketch, signature, f"w{i}") for sketch, signature, i in rows]
    return model


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("at", "sync"), crossed([1, 2, 3, 4, 6], ["commit", "batch", "none"]))
def test_an_insert_during_a_merge_that_leaves_keys_out(tmp_path, sync, at):
    built(tmp_path / "i").close()
    calls = []
    with opened(tmp_path / "i", "r+", sync=sync) as index:
        index.delete([f"w{i}" for i in range(50)])

        def insert(*progress):
            calls.append(progress)
            if len(calls) == at:
                thread = threading.Thread(target=lambda: index.insert(WORDS[:2], ["x", "y"]))
                thread.start()
                thread.join()

        index.merge(threads=1, progress=insert)
        assert len(calls) >= at
        assert {"x", "y"} <= {match.id for word in WORDS[:2] for match in index.probe(word)}
        assert index.verify().ok
        index.backup(tmp_path / "copy")
    for path in (tmp_path / "i", tmp_path / "copy"):
        with opened(path, "r+") as index:
            assert len(index) == 252
            assert index.verify().ok
            index.merge()
            assert index.stats()["keys"] == 6 * 252


@pytest.fixture(params=[1, 5, 1000])
def in_pieces(request, monkeypatch, set_limits):
    """Let everything come in pieces of so many."""
    whole = StoreSnapshot.fingerprints

    def fingerprints(snapshot):
        for piece in whole(snapshot):
            yield from (
                piece[start : start + request.param]
                for start in range(0, len(piece), request.param)
            )

    monkeypatch.setattr(StoreSnapshot, "fingerprints", fingerprints)
    set_limits(lsh_entries=request.param)


@pytest.mark.sampled(1)
@pytest.mark.usefixtures("in_pieces")
def test_pieces_make_no_difference(tmp_path):
    index = built(tmp_path / "i", WORDS[:60])
    model = model_of(index, WORDS[:60])
    for word, document in zip(WORDS[:60], model.documents, strict=True):
        assert [match.id for match in index.probe(word)] == [
            name for _, name in model.find(document)
        ]
    wanted = {(f"w{i}", f"w{j}") for i, j in model.pairs()}
    assert {(a, b) for batch in index.pairs() for a, b, _ in batch} == wanted
    assert index.verify().ok


def test_batches_of_pairs_have_their_own_similarities(tmp_path, set_limits):

    index = built(tmp_path / "i", WORDS[:80])
    whole = [pair for batch in index.pairs() for pair in batch]
    set_limits(lsh_pairs_yielded=3)
    parts = list(index.pairs())
    assert len(parts) > 5
    assert [pair for batch in parts for pair in batch] == whole


def greedy(model, order):
    """Return the clusters of brute force.

    In each component a document near no representative becomes one.
    """
    documents, pairs = model.documents, model.pairs()
    parent = list(range(len(documents)))

    def root(i):
        return i if parent[i] == i else root(parent[i])

    for i, j in pairs:
        parent[root(j)] = root(i)
    distance = [[(a.signature ^ b.signature).bit_count() for b in documents] for a in documents]
    chosen, groups = [], {}
    for i in sorted(range(len(documents)), key=order):
        if not any(root(r) == root(i) and distance[i][r] <= model.radius for r in chosen):
            chosen.append(i)
    for i in range(len(documents)):
        own = (
            i
            if i in chosen
            else min(
                (r for r in chosen if root(r) == root(i)), key=lambda r: (distance[i][r], order(r))
            )
        )
        groups.setdefault(own, []).append(i)
    return {
        (f"w{r}", frozenset(f"w{i}" for i in part)) for r, part in groups.items() if len(part) > 1
    }


@pytest.mark.parametrize("keep", ["first", "smallest"])
def test_greedy_clusters(tmp_path, keep):
    index = built(tmp_path / "i", WORDS[:120])
    clusters = {(cluster[0], frozenset(cluster)) for cluster in index.clusters(keep=keep)}
    assert clusters == greedy(
        model_of(index, WORDS[:120]), (lambda i: i) if keep == "first" else (lambda i: f"w{i}")
    )


def test_a_document_without_keys_is_found_by_verify_and_repair(tmp_path):
    built(tmp_path / "i").close()
    with fpstore.open(tmp_path / "i" / "keys", "r+") as keys:
        bits = 64 - keys.design.tables[0].prefix_bits
        keys.delete(fingerprints=[entry for entry in keys if entry & ((1 << bits) - 1) in (5, 9)])
    with opened(tmp_path / "i") as index:
        report = index.verify()
        assert [fault["message"] for fault in report.faults] == [
            f"{tmp_path / 'i'}: 2 documents have no keys: insert the items again"
        ]
    report = fpstore.repair(tmp_path / "i", tmp_path / "r")
    assert not report.sound
    assert report.losses == ["2 documents, whose keys are lost: insert the items again"]
    assert (tmp_path / "r.lost.tsv").read_text() == "document\t\tw5\ndocument\t\tw9\n"
    with opened(tmp_path / "r", "r+") as index:
        assert index.verify().ok
        assert len(index) == 298
        index.insert([WORDS[5]], ["w5"])
        index.merge()
        assert "w5" in {match.id for match in index.probe(WORDS[5])}


def test_stores_of_different_ages(tmp_path):
    built(tmp_path / "i", WORDS[:10]).close()
    shutil.copytree(tmp_path / "i", tmp_path / "old")
    with opened(tmp_path / "i", "r+") as index:
        index.insert(WORDS[10:40], [f"w{i}" for i in range(10, 40)])
    for merged in (False, True):
        if merged:
            with opened(tmp_path / "i", "r+") as index:
                index.merge()
        for old in (
            ["keys"],
            ["documents", "lsh.json"],
            ["keys", "lsh.json"],
            ["documents"],
            ["lsh.json"],
        ):
            shutil.rmtree(tmp_path / "x", ignore_errors=True)
            shutil.copytree(tmp_path / "i", tmp_path / "x")
            for name in old:
                (shutil.rmtree if (tmp_path / "x" / name).is_dir() else os.unlink)(
                    tmp_path / "x" / name
                )
                (shutil.copytree if (tmp_path / "old" / name).is_dir() else shutil.copy)(
                    tmp_path / "old" / name, tmp_path / "x" / name
                )
            refused = "keys" in old or (merged and "lsh.json" in old)
            try:
                with opened(tmp_path / "x", "r+") as index:
                    assert not refused, old
                    index.insert(WORDS[40:45], list("abcde"))
                    assert index.verify().ok
                    index.merge()
                    assert index.verify().ok
            except fpstore.CorruptStoreError as error:
                assert refused, old
                assert "restore all of them from one copy" in str(error)


def test_keys_of_other_documents_are_found_by_verify(tmp_path):
    built(tmp_path / "i").close()
    with fpstore.open(tmp_path / "i" / "keys", "r+") as keys:
        keys.insert([next(iter(keys)) ^ 1], [0])
    with opened(tmp_path / "i") as index:
        assert "1 document with more than 6 keys" in index.verify().faults[0]["message"]


@pytest.mark.full
def test_threads_insert_and_merge_while_numbers_become_wider(tmp_path, set_limits):
    set_limits(lsh_number_bits=3)
    built(tmp_path / "i", WORDS[:3], lsh.plan(3, HASHER, 0.8, bands=(6, 3), radius=8)).close()
    with opened(tmp_path / "i", "r+", sync="none") as index:
        ready = threading.Barrier(4)

        def insert(first):
            ready.wait()
            for i in range(first, 300, 2):
                index.insert([WORDS[i]], [f"w{i}"])

        def merge(_):
            ready.wait()
            for _ in range(15):
                index.merge(threads=1)

        threads = [
            threading.Thread(target=work, args=(first,))
            for work in (insert, merge)
            for first in (3, 4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert index.verify().ok
        model = model_of(index)
        for word, document in zip(WORDS, model.documents, strict=True):
            assert {match.id for match in index.probe(word)} == {
                name for _, name in model.find(document)
            }


def test_numbers_become_wider_only_after_a_merge_of_keys(tmp_path, monkeypatch, set_limits):
    set_limits(lsh_number_bits=3)
    # 8 numbers fit, and the merge need not widen them: the keys leave no more room.
    monkeypatch.setattr(
        keys_module.EntryLayout,
        "widen",
        lambda layout, count: None if count <= 8 else layout._replace(number_bits=6),
    )
    built(tmp_path / "i", WORDS[:4], lsh.plan(4, HASHER, 0.8, bands=(6, 3), radius=8)).close()
    with opened(tmp_path / "i", "r+") as index:
        index.delete(["w0"])
        inserting = threading.Thread(
            target=lambda: index.insert(WORDS[4:20], [f"w{i}" for i in range(4, 20)])
        )

        merge_keys = IndexWriter.merge_keys

        def merge_late(*arguments):
            if inserting.ident is None:
                inserting.start()
                inserting.join(0.3)  # it waits for this merge
                assert inserting.is_alive()
            merge_keys(*arguments)

        monkeypatch.setattr(IndexWriter, "merge_keys", merge_late)
        index.merge(threads=1)
        inserting.join()
        assert index.stats()["number_bits"] == 6
        assert index.verify().ok
        model = model_of(index, WORDS[:20])
        for word, document in zip(WORDS[1:20], model.documents[1:20], strict=True):
            assert {match.id for match in index.probe(word)} == {
                name for _, name in model.find(document)
            } - {"w0"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", ["merge", "insert", "delete", "upsert", "probe_insert_many"])
def test_a_child_of_a_fork_changes_nothing(tmp_path, change):
    built(tmp_path / "i").close()
    with opened(tmp_path / "i", "r+") as index:
        index.delete(["w1"])
        before = sorted((path.name, path.stat().st_size) for path in (tmp_path / "i").rglob("*"))
        child = os.fork()
        if child == 0:
            arguments = {"merge": (), "delete": (["w2"],)}.get(change, (WORDS[:1], ["x"]))
            try:
                getattr(index, change)(*arguments)
            except fpstore.FpstoreError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert (
            sorted((path.name, path.stat().st_size) for path in (tmp_path / "i").rglob("*"))
            == before
        )
        index.insert(WORDS[:1], ["x"])
        index.merge()
        assert index.verify().ok


def test_keys_are_as_long_as_the_plan_says(tmp_path):
    form = lsh.plan(10**6, HASHER, 0.8, bands=(6, 3))
    assert (
        lsh.build(tmp_path / "i", [], [], hasher=HASHER, plan=form).stats()["key_bits"]
        == form.key_bits
        == 31
    )
    empty = lsh.build(tmp_path / "e", [], [], hasher=MinHash(), threshold=0.8)
    assert empty.bands[1] > 2
    assert empty.stats()["key_bits"] > 32


def test_a_copy_inside_the_index(tmp_path):
    with pytest.raises(InputError, match="would lie inside the index"):
        built(tmp_path / "i").backup(tmp_path / "i" / "copy")


def test_numbers_of_refused_documents_are_not_reused(tmp_path):
    built(tmp_path / "i", WORDS[:10]).close()
    with opened(tmp_path / "i", "r+") as index:
        with (
            failing_calls("pwritev", "documents/gen-00000001/log"),
            pytest.raises(fpstore.StorageError, match="No space left"),
        ):
            index.insert(WORDS[10:13], ["a", "b", "c"])
        assert not {"a", "b", "c"} & {
            match.id for word in WORDS[10:13] for match in index.probe(word)
        }
    with opened(tmp_path / "i", "r+") as index:
        index.insert(WORDS[13:14], ["d"])
        index.merge()
        assert index.stats()["keys"] == 6 * 11
    with fpstore.open(tmp_path / "i" / "documents") as documents:
        assert max(documents) >> 224 == 13
    assert json.loads((tmp_path / "i" / "lsh.json").read_text())["next_number"] == 14


def test_exact_distances(tmp_path):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 16))
    hasher = PStable(dimension=16, radius=2.0)
    index = lsh.build(tmp_path / "i", vectors, hasher=hasher, threshold=2.0)
    queries = vectors[3] + rng.normal(size=16) * 0.1
    matches = index.probe(queries, verify=lambda ids: vectors[ids])
    assert matches[0].id == 3
    distances = {match.id: match.similarity for match in matches}
    assert distances == pytest.approx({i: np.linalg.norm(vectors[i] - queries) for i in distances})
    assert max(distances.values()) <= 2.0
    assert list(distances.values()) == sorted(distances.values())


@pytest.mark.full
def test_a_hasher_that_a_manifest_cannot_hold(tmp_path):
    built(tmp_path / "i").close()
    large = MinHash(stop_words=[f"word{i:08d}" for i in range(100_000)])
    with pytest.raises(InputError, match="a manifest has at most"):
        lsh.build(tmp_path / "i", ["one two three"], hasher=large, threshold=0.7, overwrite=True)
    with pytest.raises(InputError, match="a manifest has at most"):
        fpstore.build(tmp_path / "s", [1], width=256, fingerprinter=large, radius=3)
    assert opened(tmp_path / "i").verify().ok
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"plan": "x"}, "plan must be what"),
        ({"plan": lsh.plan(100, MinHash(), 0.8)}, "is for another hasher"),
        ({"plan": replace(FORM, width=224)}, "is for another hasher"),
        ({"plan": replace(FORM, bands=256, rows=256 + 1)}, "take 65792 hash values"),
        ({"plan": FORM, "recall": 0.9}, "give a threshold"),
        ({"plan": FORM, "threshold": 0.9}, "give a threshold"),
        ({"threshold": 0.8, "recall": 7}, "recall must be"),
    ],
)
def test_plans_that_do_not_fit(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        lsh.build(tmp_path / "i", WORDS, hasher=HASHER, **options)


def test_plans_take_any_integer_and_know_the_hash_value_count():
    assert lsh.plan(np.int64(100), HASHER, 0.8) == lsh.plan(100, HASHER, 0.8)
    with pytest.raises(
        InputError, match="take 256 hash values, and the hasher precomputed-minhash has 64"
    ):
        lsh.plan(100, PrecomputedMinHash(count=64), 0.8, bands=(64, 4))


def test_verify_is_a_function_and_a_word_is_no_list(tmp_path):
    index = built(tmp_path / "i", WORDS[:5])
    with pytest.raises(InputError, match="verify must be a function"):
        index.probe(WORDS[0], verify="exact")
    for items in (WORDS[0], None, 5):
        with pytest.raises(InputError, match="expected an iterable of words"):
            index.probe_many(items, verify=lambda ids: ids)


def test_odd_arguments_of_the_kernel(tmp_path):
    with built(tmp_path / "i", WORDS[:5]) as index:
        prober = index.snapshot().item_prober
        sketch, signature = np.zeros(18, np.uint32), np.zeros(6, np.uint8)
        for bands, rows in ((2, 2**63), (2**63, 2), (0, 3), (3, 0), (257, 1), (1, 257), (7, 3)):
            with pytest.raises(ValueError, match="bands and rows"):
                prober.probe(sketch, signature, bands, rows, 10)
        with pytest.raises(ValueError, match="28 bytes"):
            prober.probe(sketch, np.zeros(29, np.uint8), 6, 3, 10)
        for bands, rows in ((2, 2**63), (0, 3), (257, 1), (7, 3)):
            with pytest.raises(ValueError, match="bands and rows"):
                _kernel.band_keys(sketch[None], bands, rows)


# --- Memory of pairs ------------------------------------------------------------------------------


def test_pairs_of_one_key_are_compared_within_the_budget(tmp_path, monkeypatch):
    """A million pairs of a key were compared together in 160 MB, whatever the budget was."""
    compared, distances = [], groups.signature_distances

    def counting(rows, others):
        compared.append(len(rows))
        return distances(rows, others)

    monkeypatch.setattr(groups, "signature_distances", counting)
    with built(tmp_path / "i", WORDS[:1] * 500) as index:
        assert sum(map(len, index.pairs(memory="64MiB", threads=1))) == 500 * 499 // 2
    assert sum(compared) >= 500 * 499 // 2
    assert max(compared) * 160 <= 16 << 20


def test_pairs_with_long_ids_are_written_in_parts(tmp_path, monkeypatch):
    """The ids of 65,536 pairs were held together, however long they were."""
    written, opened_output = [], of_index.open_output

    def recording(*args):
        writer = opened_output(*args)
        write = writer.write
        writer.write = lambda columns: (
            written.append(sum(map(len, columns["id_a"]))),
            write(columns),
        )
        return writer

    monkeypatch.setattr(of_index, "open_output", recording)
    texts = tmp_path / "texts.jsonl"
    text = " ".join(WORDS[:30])
    texts.write_text(json_lines({"id": f"{i:04d}" * 5000, "text": text} for i in range(60)))
    fields = ["--text-field", "text", "--id-field", "id"]
    main(
        ["lsh", "build", f"{tmp_path}/i", f"{texts}", *fields, "--threshold", "0.8", "-q"],
        standalone_mode=False,
    )
    main(["pairs", f"{tmp_path}/i", "-o", f"{tmp_path}/pairs.tsv", "-q"], standalone_mode=False)
    assert sum(written) == 60 * 59 // 2 * 20_000
    assert max(written) <= 4 << 20
