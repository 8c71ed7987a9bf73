"""Damaged journals: a flipped bit on any page, a file cut short, records that do not fit each other."""

import shutil

import numpy as np
import pytest
from damage import FINGERPRINTS, PAGE, answers, check, flips, make

import fpstore
from fpstore import layout

JOURNAL = f"gen-00000001/{layout.JOURNAL_FILE}"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Make a store with small log records, a large one, and enough of them for a branch page."""
    path = make(tmp_path_factory.mktemp("good") / "s")
    rng = np.random.default_rng(3)
    with fpstore.open(path, "r+") as store:
        for step in range(60):
            store.insert(rng.integers(0, 2**64, 2, np.uint64), [f"new {step} {i}" for i in range(2)])
        store.insert(rng.integers(0, 2**64, 300, np.uint64), [f"many {i}" for i in range(300)])
        store.delete(ids=["document 5", "new 3 1", "many 7"])
        store.delete(fingerprints=FINGERPRINTS[20:24])
        store.insert(FINGERPRINTS[22:25], ["again", "document 5", "document 6"])
    with fpstore.open(path) as store:
        assert store.verify().ok
    return path


@pytest.fixture(scope="module")
def right(good):
    with fpstore.open(good) as store:
        return answers(store)


# Free space and stale pages have no meaning: LMDB keeps both.
FINE = {"refused", "noticed, error", "noticed, right", "unnoticed, right"}


def places(path, step):
    """Return the heads of all pages with some pointers, and each ``step``-th byte that is not zero."""
    data = path.read_bytes()
    heads = [at + i for at in range(0, len(data), PAGE) for i in range(152 if at < 2 * PAGE else 20)]
    return sorted({*heads[::3], *[i for i in range(len(data)) if data[i]][::step]})


def test_flips_on_the_pages_of_a_journal(good, right, tmp_path):
    copy = shutil.copytree(good, tmp_path / "copy")
    results = check(copy, JOURNAL, right, flips(places(copy / JOURNAL, 67)), FINE)
    print(results)
