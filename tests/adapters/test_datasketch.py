"""`MinHashLSH` beside the one of datasketch."""

import pickle
from pathlib import Path

import datasketch
import numpy as np
import pytest
from datasketch import MinHash, WeightedMinHashGenerator

import fpstore
from fpstore import InputError
from fpstore.adapters.datasketch import MinHashLSH

PAGES = sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))


def sketches(count, num_perm=64, seed=1):
    """Return MinHashes of sets in families of several similarities."""
    generator = np.random.default_rng(seed)
    sets = []
    for number in range(count):
        base = sets[-1] if number % 3 else generator.integers(0, 1 << 30, 40)
        kept = base[generator.random(len(base)) < 0.9]
        sets.append(np.concatenate([kept, generator.integers(0, 1 << 30, 3)]))
    return MinHash.bulk([[str(v).encode() for v in row] for row in sets], num_perm=num_perm)


def check_equal(index, other, queries):
    answers = [index.query(query) for query in queries]
    assert [set(answer) for answer in answers] == [set(other.query(query)) for query in queries]
    assert all(len({*answer}) == len(answer) for answer in answers)
    assert [set(answer) for answer in index.query_many(queries)] == [*map(set, answers)]
    return sum(map(len, answers))


@pytest.mark.parametrize(
    "arguments",
    [
        {"threshold": 0.5},
        {"threshold": 0.9, "weights": (0.2, 0.8)},
        {"params": (32, 2)},
        {"params": (2, 32)},
    ],
)
def test_answers_are_those_of_the_package(arguments):
    rows = sketches(60)
    keys = [number if number % 2 else ("page", number) for number in range(len(rows))]
    index, other = (one(num_perm=64, **arguments) for one in (MinHashLSH, datasketch.MinHashLSH))
    assert (index.b, index.r, index.h) == (other.b, other.r, other.h)
    assert index.is_empty()
    assert check_equal(index, other, rows[:2]) == 0
    for key, row in zip(keys[:40], rows, strict=False):
        index.insert(key, row)
        other.insert(key, row)
    assert check_equal(index, other, rows) > 40
    for key in keys[:40:3]:
        index.remove(key)
        other.remove(key)
        assert key not in index
    check_equal(index, other, rows)
    for each in (index, other):
        with each.insertion_session(buffer_size=7) as session:
            for key, row in zip(keys[40:], rows[40:], strict=True):
                session.insert(key, row)
        with each.deletion_session() as session:
            session.remove(keys[41])
    check_equal(index, other, rows)
    assert len(index) == 60 - 14 - 1
    assert (keys[41] in index, keys[42] in index) == (False, True)


def test_pages_of_text():
    texts = [page.read_text("utf-8").split() for page in PAGES]
    texts += [words[: len(words) * 4 // 5] for words in texts]
    rows = MinHash.bulk([[word.encode() for word in words] for words in texts], num_perm=128)
    index, other = MinHashLSH(threshold=0.6), datasketch.MinHashLSH(threshold=0.6)
    with index.insertion_session() as session:
        for number, row in enumerate(rows):
            session.insert(number, row)
            other.insert(number, row)
    assert check_equal(index, other, rows) > len(rows)


def test_weighted_sets():
    generator = WeightedMinHashGenerator(12, 32)
    weights = np.random.default_rng(1).uniform(1, 10, (30, 12))
    weights[20:] = weights[:10] * 1.01
    rows = [generator.minhash(row) for row in weights]
    index, other = (one(0.6, num_perm=32) for one in (MinHashLSH, datasketch.MinHashLSH))
    for number, row in enumerate(rows):
        index.insert(number, row)
        other.insert(number, row)
    assert check_equal(index, other, rows) > 30


KEYS = ["a", "", "\0", "\0'a'", "1", 1, -1, 2.5, b"\xff", None, (1, ("a", b"b")), "line\nend"]


def test_keys_come_back_as_they_were(tmp_path):
    (row,) = sketches(1)
    with MinHashLSH(num_perm=64, path=tmp_path / "i") as index:
        for number, key in enumerate(KEYS, 1):
            index.insert(key, row)
            assert len(index) == number
    with MinHashLSH(num_perm=64, path=tmp_path / "i") as index:
        assert sorted(map(repr, index.query(row))) == sorted(map(repr, KEYS))
        assert all(key in index for key in KEYS)
        for key in (object(), frozenset([1]), float("nan")):
            with pytest.raises(InputError, match="a key is"):
                index.insert(key, row)
    with fpstore.open(tmp_path / "i") as store:
        assert "a" in store.ids


def test_keys_are_inserted_once_and_removed_once():
    first, second = sketches(2)
    index = MinHashLSH(num_perm=64)
    index.insert("a", first)
    with pytest.raises(ValueError, match="already exists"):
        index.insert("a", second)
    with pytest.raises(ValueError, match="already exists"):
        index.insert_many([("b", first), ("b", second)])
    assert len(index) == 1
    index.insert("a", second, check_duplication=False)
    assert len(index) == 2
    index.remove("a")
    assert index.is_empty()
    with pytest.raises(ValueError, match="does not exist"):
        index.remove("a")


def test_minhashes_that_do_not_compare_are_refused():
    (row,) = sketches(1)
    index = MinHashLSH(num_perm=64)
    index.insert("a", row)
    legacy = MinHash(num_perm=64, scheme="legacy")
    for wrong in (MinHash(num_perm=32), legacy):
        with pytest.raises(ValueError, match="a MinHash must have length 64"):
            index.query(wrong)
    with pytest.raises(InputError, match="empty"):
        index.insert("b", MinHash(num_perm=64))


def test_other_bands_at_the_path_are_refused(tmp_path):
    MinHashLSH(params=(20, 5), path=tmp_path / "i").close()
    with pytest.raises(InputError, match=r"the index has \(20, 5\) bands and rows"):
        MinHashLSH(params=(16, 8), path=tmp_path / "i")


def test_a_copy_is_another_index():
    (first,) = sketches(1)
    index = MinHashLSH(num_perm=64)
    index.insert(("a", 1), first)
    copy = pickle.loads(pickle.dumps(index))
    copy.insert("b", first)
    index.close()
    assert (set(copy.query(first)), copy.b, len(copy)) == ({("a", 1), "b"}, index.b, 2)
