"""Damaged journals: a flipped bit on any page, a file cut short, records that do not fit each other."""

import shutil
import struct

import lmdb
import numpy as np
import pytest
from damage import FINGERPRINTS, PAGE, answers, check, flips, make

import fpstore
from fpstore import layout

JOURNAL = f"gen-00000001/{layout.JOURNAL_FILE}"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A store with small log records, a large one, and enough of them for a branch page."""
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


def used_places(path, step=1):
    """Return the places of a journal that mean something, and those that do not."""
    from fpstore import pages

    with pages.opened(path) as descriptor:
        metas = pages.read_metas(path, descriptor)
        meta = max(metas, key=lambda meta: meta.transaction)
        tree = pages.Tree(path, descriptor, meta)
        tree.check()
        data = path.read_bytes()
        used = set()
        for number in range(meta.last_page + 1):
            at = number * PAGE
            flags, lower, upper = struct.unpack_from("<HHH", data, at + 10)
            if number < 2:
                used |= {*range(at, at + 8), *range(at + 10, at + 12), *range(at + 16, at + 24)}
                used |= set(range(at + 40, at + 152)) if metas[number] is meta else set()
            elif flags in (1, 2) and number in live_pages(path):
                used |= {*range(at, at + 8), *range(at + 10, at + lower), *range(at + upper, at + PAGE)}
        return sorted(used)


def live_pages(path):
    """Return the pages that the last transaction uses, by LMDB's own list of free ones."""
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False, max_dbs=4) as environment, environment.begin() as t:
        raise NotImplementedError(environment, t)


def test_measure(good, right, tmp_path):
    copy = shutil.copytree(good, tmp_path / "copy")
    size = (copy / JOURNAL).stat().st_size
    print(size, check(copy, JOURNAL, right, flips(range(0, size, 1), 1), FINE))
