"""`SimhashIndex` beside the one of the package simhash."""

import logging
import pickle
from pathlib import Path

import numpy as np
import pytest
import simhash
from simhash import Simhash

import fpstore
from fpstore import InputError
from fpstore.adapters.simhash import SimhashIndex

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))


@pytest.fixture(autouse=True)
def _silence():
    """Let the package log no look-ups."""
    logging.getLogger("simhash").setLevel(logging.CRITICAL)


def families(f, count, seed=1):
    """Return random hashes, of which some are near each other, and equal ids."""
    generator = np.random.default_rng(seed)
    values = [int.from_bytes(generator.bytes(f // 8)) for _ in range(count)]
    for value in values[: count // 2]:
        bits = generator.choice(f, generator.integers(0, 6), replace=False).tolist()
        values.append(value ^ sum(1 << bit for bit in bits))
    return [(str(number % (count + 7)), Simhash(value, f)) for number, value in enumerate(values)]


def check_equal(index, other, queries):
    for query in queries:
        names = index.get_near_dups(query)
        assert len({*names}) == len(names)
        assert sorted(names) == sorted(other.get_near_dups(query))


@pytest.mark.parametrize(("f", "k"), [(64, 0), (64, 3), (64, 10), (32, 2), (128, 5), (96, 4)])
def test_answers_are_those_of_the_package(f, k):
    rows = families(f, 60)
    index, other = SimhashIndex(rows, f, k), simhash.SimhashIndex(rows, f, k)
    queries = [query for _, query in rows] + [Simhash(0, f), Simhash((1 << f) - 1, f)]
    check_equal(index, other, queries)
    for name, value in rows[::3]:
        for each in (index, other):
            each.delete(name, value)
            each.delete(name, value)  # quietly
            each.delete("none", value)
    check_equal(index, other, queries)
    for name, value in rows[:30]:
        for each in (index, other):
            each.add(name, value)
            each.add(name, value)  # once
            each.add("other", value)
    check_equal(index, other, queries)


def test_pages_of_text():
    rows = [(str(page), Simhash(page.read_text("utf-8")[:4000])) for page in PAGES]
    rows += [(f"{name}, cut", Simhash(Path(name).read_text("utf-8")[:3900])) for name, _ in rows]
    index, other = SimhashIndex(rows, k=8), simhash.SimhashIndex(rows, k=8)
    check_equal(index, other, [query for _, query in rows])
    assert sum(len(index.get_near_dups(query)) for _, query in rows) > len(rows)


def test_an_empty_index_and_other_ids():
    index = SimhashIndex([], k=3)
    assert index.get_near_dups(Simhash(7)) == []
    index.add(12, Simhash(7))
    index.add("a,b", Simhash(6))
    assert index.get_near_dups(Simhash(7)) == ["12", "a,b"]  # the nearest first


def test_the_index_is_kept_at_a_path(tmp_path):
    path = tmp_path / "pages.fps"
    with SimhashIndex([("a", Simhash(7))], k=3, path=path) as index:
        index.add("b", Simhash(15))
    with SimhashIndex([("c", Simhash(6))], k=3, path=path) as index:
        assert sorted(index.get_near_dups(Simhash(7))) == ["a", "b", "c"]
    with fpstore.open(path) as store:
        assert store[15] == ["b"]
    with pytest.raises(InputError, match="the store has 64 bits, f needs 128"):
        SimhashIndex([], f=128, path=path)


def test_a_copy_is_another_index():
    index = SimhashIndex([("a", Simhash(7))], k=3)
    copy = pickle.loads(pickle.dumps(index))
    copy.add("b", Simhash(7))
    index.close()
    assert (copy.k, copy.f, copy.get_near_dups(Simhash(7))) == (3, 64, ["a", "b"])


def test_other_widths_are_refused():
    index = SimhashIndex([], f=64, k=3)
    with pytest.raises(InputError, match="a Simhash must have 64 bits"):
        index.add("a", Simhash(7, f=128))
    with pytest.raises(InputError, match="a Simhash must have 64 bits"):
        index.get_near_dups(Simhash(1 << 64))
    with pytest.raises(InputError, match="k must be"):
        SimhashIndex([], k=65)
    with pytest.raises(InputError, match="f must be"):
        SimhashIndex([], f=264)
