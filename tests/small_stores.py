"""Small stores of integer ids, and their rows."""

import numpy as np

import fpstore

RNG = np.random.default_rng(17)
FINGERPRINTS = RNG.integers(0, 2**64, 600, np.uint64)


def rows_of(store):
    found = set()
    for keys, lims, ids in store.items():
        ids = ids if isinstance(ids, list) else ids.tolist()
        found |= {(key, i) for key, a, b in zip(keys.tolist(), lims, lims[1:], strict=False) for i in ids[a:b]}
    return found


def pairs(start, end):
    return set(zip(FINGERPRINTS[start:end].tolist(), range(start, end), strict=True))


def build(path, start, end, **options):
    fpstore.build(path, FINGERPRINTS[start:end], list(range(start, end)), design="flip-2", threads=1, **options).close()
    return path
