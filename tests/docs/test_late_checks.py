"""What returns an iterator checks its arguments, and takes its snapshot, when it is called."""

import inspect

import numpy as np
import pytest
from public import public_names

import fpstore
from fpstore import InputError, lsh


def public_functions():
    for _, name, value in public_names():
        if not inspect.isclass(value):
            yield name, value
            continue
        members = {member for member in dir(value) if not member.startswith("_")} | {
            "__init__",
            "__iter__",
        }
        for member in sorted(members):
            function = inspect.getattr_static(value, member, None)
            yield f"{name}.{member}", getattr(function, "__func__", function)


def test_no_public_generator_takes_arguments():
    late = [
        name
        for name, function in public_functions()
        if inspect.isgeneratorfunction(function) and len(inspect.signature(function).parameters) > 1
    ]
    assert late == []


@pytest.fixture
def store(tmp_path):
    return fpstore.build(tmp_path / "s.fps", [7, 11])


@pytest.fixture
def index(tmp_path):
    return lsh.build(
        tmp_path / "i.lsh", ["a b c d", "e f g h"], hasher=fpstore.MinHash(), threshold=0.8
    )


@pytest.mark.parametrize(
    "wrong", [{"radius": -5}, {"radius": 99}, {"threads": 0}, {"matches": 0}, {"fingerprints": "x"}]
)
def test_probe_batches_checks_at_the_call(store, wrong):
    with pytest.raises(InputError):
        store.probe_batches(**{"fingerprints": [7], **wrong})


@pytest.mark.parametrize(
    "wrong", [{"radius": -5}, {"memory": "x"}, {"threads": 0}, {"progress": 7}, {"resume": 7}]
)
def test_pairs_of_a_store_are_checked_at_the_call(store, wrong):
    with pytest.raises(InputError):
        store.pairs(**wrong)
    with pytest.raises(InputError):
        store.join([7], **wrong)


@pytest.mark.parametrize(
    "wrong", [{"radius": -5}, {"radius": 999}, {"memory": "x"}, {"threads": 0}, {"progress": 7}]
)
def test_pairs_of_an_index_are_checked_at_the_call(index, wrong):
    with pytest.raises(InputError):
        index.pairs(**wrong)


@pytest.mark.parametrize("wrong", [{"count": -1}, {"count": 1 << 20}, {"threads": 0}, {"items": 7}])
def test_sketched_checks_at_the_call(wrong):
    with pytest.raises(InputError):
        fpstore.MinHash().sketched(**{"items": ["a b c"], "count": 4, **wrong})


@pytest.mark.parametrize("wrong", [7, "x", np.float64(1)])
def test_batches_are_checked_at_the_call(wrong):
    for fingerprinter in (
        fpstore.PrecomputedMinHash(count=8),
        fpstore.BitSample(dimension=64),
        fpstore.MinHash(),
    ):
        with pytest.raises(InputError):
            fingerprinter.batches(wrong)


def test_closed_stores_have_no_iterators(store, index):
    store.close()
    index.close()
    for call in (
        lambda: store.probe_batches([7]),
        store.pairs,
        lambda: store.join([7]),
        store.items,
        index.pairs,
    ):
        with pytest.raises(fpstore.ClosedStoreError):
            call()


def test_pairs_of_an_index_are_those_of_the_call(tmp_path, index):
    with fpstore.open(index.path, "r+") as writer:
        pairs = writer.pairs()
        writer.insert(["a b c d"])
        assert [pair for batch in pairs for pair in batch] == []
        later = writer.pairs()
        writer.delete([0])
        writer.merge()
        assert [pair[:2] for batch in later for pair in batch] == [(0, 2)]


def test_probe_batches_answer_as_of_the_call(store):
    with fpstore.open(store.path, "r+") as writer:
        batches = writer.probe_batches([7])
        writer.insert([5], [9])
        assert [
            match.fingerprint for batch in batches for matches in batch for match in matches
        ] == [7, 11]


def test_pairs_outlive_the_index_that_is_dropped(index):
    pairs = fpstore.open(index.path).pairs(radius=224)
    assert [pair for batch in pairs for pair in batch] == []
