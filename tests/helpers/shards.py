"""Sharded stores for tests, and the one store of all their rows."""

from itertools import pairwise

import numpy as np

import fpstore
from fpstore.base.width import Width

RADIUS = 3
KINDS = ("row", "integer", "string")


def rows_of(bits, count, seed):
    """Return numbers of a width among which many are near or equal to others."""
    rng = np.random.default_rng([bits, seed])
    centres = [int.from_bytes(rng.bytes(bits // 8), "big") for _ in range(max(count // 6, 1))]
    values = []
    for _ in range(count):
        value = centres[rng.integers(len(centres))]
        for bit in rng.integers(0, bits, rng.integers(0, 4)).tolist():
            value ^= 1 << bit
        values.append(value)
    return values


def ids_of(kind, count, seed=0):
    """Return ids of a kind; some documents have several fingerprints."""
    numbers = np.random.default_rng(seed).integers(0, max(count * 2 // 3, 1), count).tolist()
    return {
        "row": None,
        "integer": [7 * n for n in numbers],
        "string": [f"document {n}" for n in numbers],
    }[kind]


def queries_of(values, bits, count=60):
    """Return some of the values, some that are near, and some that are not."""
    rng = np.random.default_rng(bits)
    near = [value ^ 1 << int(rng.integers(bits)) for value in values[: count // 3]]
    return [
        *values[-count // 3 :],
        *near,
        *(int.from_bytes(rng.bytes(bits // 8), "big") for _ in range(count // 3)),
    ]


def shards(folder, values, ids, cuts, **options):
    """Build a shard of each part of some rows, combine them, and return the sharded store."""
    folder.mkdir()
    for number, (start, end) in enumerate(pairwise([0, *cuts, len(values)])):
        part = None if ids is None else ids[start:end]
        fpstore.build(
            folder / f"shard-{number:05d}.fps", values[start:end], part, **options
        ).close()
    return fpstore.ShardedStore.combine(folder)


def both(tmp_path, values, ids, cuts, **options):
    """Return a sharded store and the one store of all its rows."""
    options = {"radius": RADIUS, "threads": 1, **options}
    return shards(tmp_path / "S", values, ids, cuts, **options), fpstore.build(
        tmp_path / "one.fps", values, ids, **options
    )


def assert_equal(matches, wanted):
    """Compare all that two results have."""
    for name in ("lims", "distances", "fingerprints", "queries", "more"):
        mine, theirs = getattr(matches, name), getattr(wanted, name)
        assert mine.dtype == theirs.dtype, name
        assert np.array_equal(mine, theirs), name
    assert_ids_equal(matches.read_ids(), wanted.read_ids())
    assert list(matches) == list(wanted)


def assert_ids_equal(mine, theirs):
    """Compare (lims, ids)."""
    assert np.array_equal(mine[0], theirs[0])
    assert type(mine[1]) is type(theirs[1])
    assert list(mine[1]) == list(theirs[1])


def content_of(store):
    """Return everything in a store, in order, however it is cut into pieces."""
    numbers, width = [], Width(store.width)
    for fingerprints, lims, ids in store.items():
        every = np.repeat(np.arange(len(fingerprints)), np.diff(lims))
        values = (
            [int.from_bytes(bytes(row), "big") for row in fingerprints]
            if width.bits > 64
            else fingerprints.tolist()
        )
        numbers += zip([values[at] for at in every.tolist()], list(ids), strict=True)
    return numbers


def pairs_in(batches):
    """Return the pairs of ids of a job, in order."""
    pairs = []
    for batch in batches:
        for columns in batch.rows_of_ids():
            pairs += zip(
                *(map(str, np.asarray(column).tolist()) for column in columns.values()), strict=True
            )
    return sorted(pairs)
