"""Small stores of integer ids, and what any store holds."""

import numpy as np

import fpstore
from fpstore.base.width import Width
from fpstore.io.check import check_fingerprints

RNG = np.random.default_rng(17)
FINGERPRINTS = RNG.integers(0, 2**64, 600, np.uint64)


def numbers_of(store, fingerprints):
    """Return what a store has given as an array."""
    return Width(store.width).numbers(check_fingerprints(fingerprints, Width(store.width)))


def rows_in_order(store):
    """Return each (fingerprint, id) of a store."""
    rows = []
    for fingerprints, lims, ids in store.items():
        numbers = numbers_of(store, fingerprints)
        every = [
            number
            for number, count in zip(numbers, np.diff(lims).tolist(), strict=True)
            for _ in range(count)
        ]
        rows += zip(every, np.asarray(ids).tolist(), strict=True)
    return rows


def rows_of(store):
    rows = rows_in_order(store)
    assert len(set(rows)) == len(rows)
    assert len({fingerprint for fingerprint, _ in rows}) == len(store)
    return set(rows)


def content(path, mode="r"):
    """Return the rows of a store, which must be sound."""
    with fpstore.open(path, mode) as store:
        report = store.verify()
        assert report.ok, report.faults
        return rows_of(store)


def pairs(start, end):
    return set(zip(FINGERPRINTS[start:end].tolist(), range(start, end), strict=True))


def build(path, start, end, **options):
    fpstore.build(
        path,
        FINGERPRINTS[start:end],
        list(range(start, end)),
        design="flip-2",
        threads=1,
        **options,
    ).close()
    return path
