"""An index against brute force over its sketches: the same changes to both, the same answers."""

import random

import numpy as np
import pytest
from letters import Letters, some_words
from reference_lsh import Model
from speeds import crossed

import fpstore
from fpstore import lsh

HASHER = Letters()


def form_of(bands, rows, radius):
    return lsh.plan(1000, HASHER, 0.8, bands=(bands, rows), radius=radius)


def new_index(path, words, ids, bands=6, rows=3, radius=8, **options):
    index = lsh.build(path, words, ids, hasher=HASHER, plan=form_of(bands, rows, radius), **options)
    model = Model(bands, rows, index.stats()["key_bits"], radius)
    add(model, words, ids)
    return index, model


def described(model, words, ids):
    if not words:
        return []
    sketches, signatures = (
        HASHER.sketches(words, model.bands * model.rows),
        HASHER.signatures(words),
    )
    return [
        model.document(*item)
        for item in zip(sketches.tolist(), map(bytes, signatures), ids, strict=True)
    ]


def add(model, words, ids):
    model.documents += described(model, words, ids)


def expected(model, words, radius=None):
    estimates = HASHER.estimate(np.arange(HASHER.signature_bits + 1))
    return [
        [(name, estimates[distance]) for distance, name in model.find(query, radius)]
        for query in described(model, words, range(len(words)))
    ]


def answers(matches):
    return [[tuple(match) for match in item] for item in matches]


def check(index, model, rng, known):
    queries = some_words(rng, 5) + rng.sample(known, min(len(known), 5))
    assert len(index) == len(model.documents)
    assert answers(index.probe_many(queries, threads=1)) == expected(model, queries)
    assert answers([index.probe(queries[-1])]) == expected(model, queries[-1:])
    radius = rng.randrange(HASHER.signature_bits)
    assert answers(index.probe_many(queries, radius=radius, threads=3)) == expected(
        model, queries, radius
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("kind", "seed"), crossed(["string", "integer", "row"], range(3)))
def test_changes_and_answers_are_those_of_a_model(tmp_path, kind, seed):
    rng = random.Random(seed)
    count = rng.choice([0, 1, 2, 17, 300])
    words = some_words(rng, count)
    used = 0

    def ids_of(part):
        nonlocal used
        first, used = used, used + len(part)
        return [
            f"id-{i}" if kind == "string" else i * 7 if kind == "integer" else i
            for i in range(first, used)
        ]

    def given(ids):
        return None if kind == "row" else ids

    ids = ids_of(words)
    index, model = (
        new_index(tmp_path / "i.lsh", words, ids)
        if kind != "row"
        else new_row_index(tmp_path / "i.lsh", words, ids)
    )
    index.close()
    reader = fpstore.open(tmp_path / "i.lsh", hasher=HASHER)
    index = fpstore.open(tmp_path / "i.lsh", "r+", hasher=HASHER)
    for _ in range(40):
        change = rng.choice(["insert", "upsert", "delete", "probe_insert", "merge", "reopen"])
        part = some_words(rng, rng.randrange(1, 8))
        if change == "insert":
            new = ids_of(part)
            assert index.insert(part, given(new)) == len(part)
            add(model, part, new)
        elif change == "upsert" and kind != "row" and model.documents:
            old = [rng.choice(model.documents).id for _ in part]
            index.upsert(part, old)
            last = dict(zip(old, described(model, part, old), strict=True))
            order = sorted(last, key=lambda name: len(old) - 1 - old[::-1].index(name))
            model.documents = [document for document in model.documents if document.id not in last]
            model.documents += [last[name] for name in order]
        elif change == "delete" and model.documents:
            gone = {rng.choice(model.documents).id for _ in range(rng.randrange(1, 5))}
            assert index.delete(sorted(gone)).removed == sum(
                document.id in gone for document in model.documents
            )
            model.documents = [document for document in model.documents if document.id not in gone]
        elif change == "probe_insert":
            new = ids_of(part)
            if kind == "row":
                used = new[0]
            matches = index.probe_insert_many(part, given(new))
            places = iter(range(len(part)))
            for place, (document, own) in enumerate(
                zip(described(model, part, new), answers(matches), strict=True)
            ):
                assert own == expected(model, part[place : place + 1])[0]
                assert bool(matches.inserted[place]) == (not own)
                if not own:
                    name = used + next(places) if kind == "row" else document.id
                    model.documents.append(document._replace(id=name))
            if kind == "row":
                used += int(matches.inserted.sum())
        elif change == "merge":
            index.merge()
        elif change == "reopen":
            index.close()
            index = fpstore.open(tmp_path / "i.lsh", "r+", hasher=HASHER)
        known = words + part
        check(index, model, rng, known)
        check(reader, model, rng, known)
    assert index.verify().ok
    index.close()
    reader.close()


def new_row_index(path, words, ids):
    index, model = new_index(path, words, None) if not words else (None, None)
    if index is None:
        index = lsh.build(path, words, hasher=HASHER, plan=form_of(6, 3, 8))
        model = Model(6, 3, index.stats()["key_bits"], 8)
        add(model, words, ids)
    return index, model


@pytest.mark.parametrize(("bands", "rows"), [(1, 1), (24, 1), (2, 12), (1, 24), (7, 3)])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 100, 1000])
def test_any_bands_and_sizes(tmp_path, bands, rows, count):
    rng = random.Random(count)
    words = some_words(rng, count)
    index, model = new_index(tmp_path / "i.lsh", words, list(range(count)), bands, rows, 10)
    queries = words[:20] + some_words(rng, 20)
    assert answers(index.probe_many(queries, threads=2)) == expected(model, queries)
    assert index.verify().ok


@pytest.mark.parametrize("probes", [2, 7])
def test_look_ups_by_further_keys(tmp_path, probes):
    form = lsh.plan(1000, HASHER, 0.8, bands=(3, 5), radius=10, probes=probes)
    words, rng = some_words(random.Random(8), 300), random.Random(9)
    index = lsh.build(tmp_path / "i.lsh", words, hasher=HASHER, plan=form)
    model = Model(3, 5, index.stats()["key_bits"], 10)
    add(model, words, range(300))
    estimates, more = HASHER.estimate(np.arange(HASHER.signature_bits + 1)), 0

    def wanted(word):
        query = described(model, [word], [None])[0]
        values = HASHER.probes(word, 3, 5, probes)
        sketches = [values[:, probe].reshape(-1).tolist() for probe in range(probes)]
        keys = frozenset().union(*(model.document(sketch, b"", None).keys for sketch in sketches))
        assert keys > query.keys
        return [
            (name, estimates[distance]) for distance, name in model.find(query._replace(keys=keys))
        ], len(model.find(query))

    for word in words[:30] + some_words(rng, 30):
        result, alone = wanted(word)
        more += len(result) - alone
        assert answers([index.probe(word)]) == [result]
    assert more > 0
    index.close()
    with fpstore.open(tmp_path / "i.lsh", "r+", hasher=HASHER) as index:
        for word in some_words(rng, 20):
            result = index.probe_insert_many([word, word])
            assert list(result.inserted) == [not wanted(word)[0], False]
            if result.inserted[0]:
                add(model, [word], [len(model.documents)])


def test_pairs_and_clusters(tmp_path):
    words = some_words(random.Random(5), 400)
    index, model = new_index(tmp_path / "i.lsh", words, [f"w{i}" for i in range(400)])
    pairs = model.pairs()
    estimates = HASHER.estimate(np.arange(HASHER.signature_bits + 1))
    wanted = {
        (
            f"w{i}",
            f"w{j}",
            estimates[(model.documents[i].signature ^ model.documents[j].signature).bit_count()],
        )
        for i, j in pairs
    }
    results = [pair for batch in index.pairs() for pair in batch]
    assert len(results) == len(wanted)
    assert set(results) == wanted
    assert {tuple(cluster) for cluster in index.clusters(group="connected")} == set(
        components(400, pairs)
    )


def components(count, pairs):
    parent = list(range(count))

    def root(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in pairs:
        a, b = sorted((root(i), root(j)))
        parent[b] = a
    sets = {}
    for i in range(count):
        sets.setdefault(root(i), []).append(f"w{i}")
    return [tuple(part) for part in sets.values() if len(part) > 1]


def test_many_documents_of_one_key_are_joined(tmp_path, set_limits):

    set_limits(band_documents=4, lsh_pairs=7)
    words = some_words(random.Random(6), 300)
    index, model = new_index(
        tmp_path / "i.lsh", words, [f"w{i}" for i in range(300)], bands=2, rows=1, radius=4
    )
    pairs = model.pairs()
    assert sum(len(batch) for batch in index.pairs()) == len(pairs)
    assert {tuple(cluster) for cluster in index.clusters(group="connected")} == set(
        components(300, pairs)
    )


def test_a_part_with_too_many_candidates_is_asked_in_halves(tmp_path, set_limits):

    set_limits(lsh_candidates=50)
    words = some_words(random.Random(7), 300)
    index, model = new_index(tmp_path / "i.lsh", words, list(range(300)), bands=2, rows=1)
    assert answers(index.probe_many(words)) == expected(model, words)
