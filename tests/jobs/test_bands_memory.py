"""Bands in small memory, and groups in pieces."""

import json

import numpy as np
import pytest
from building import run_python
from limited import LIMITED

from fpstore.jobs.grouping import distances_to_majority, members_in_sets, split_chains

MIB = 1 << 20
BUDGET, SPARE = 64 * MIB, 48 * MIB  # what is read at a time, a piece of groups, stacks of threads
ROWS, BANDS = 1 << 21, 3
SEARCH = (
    LIMITED
    + """
    from fpstore.base.resources import Resources
    from fpstore.base.width import Width
    from fpstore.disk.temporary import SpilledNumbers
    from fpstore.jobs.bands import BandKeys, connect_by_bands

    count, bands, memory, room = map(int, sys.argv[1:])
    fingerprints, keys = SpilledNumbers(np.uint64), BandKeys(bands)
    for start in range(0, count, 1 << 16):  # pairs, and 1,024 copies of one
        rows = np.random.default_rng(start).integers(0, 2**64, (1 << 15, 4), np.uint64)
        rows = np.repeat(rows, 2, axis=0)
        rows[1::2, 0] ^= np.uint64(7)
        rows[:32] = 5
        fingerprints.append(rows.reshape(-1))
        keys.add(np.repeat(rows[::2, :bands], 2, axis=0))
    keys.finish()
    rows = fingerprints.finish().reshape(-1, 4)
    limit(room)
    sets = connect_by_bands(rows, None, keys, 3, Width(256), Resources(memory, 2))
    numbers = np.arange(count, dtype=np.uint32)
    expected = np.where(numbers % (1 << 16) < 32, 0, numbers & ~np.uint32(1))
    print(json.dumps([sets.dtype.name, int(np.count_nonzero(sets != expected))]))
"""
)


@pytest.mark.full
def test_a_search_takes_its_budget_and_some_bytes_a_document():
    """There is no room for the fingerprints, nor for the keys of a band as they are sorted.

    Both take 64 MiB.
    """
    code, out, err = run_python(SEARCH, ROWS, BANDS, BUDGET, BUDGET + SPARE + 8 * ROWS)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == ["uint32", 0]
    code, _, err = run_python(SEARCH, ROWS, BANDS, BUDGET, 4 * ROWS)
    assert code != 0
    assert "rror" in err


@pytest.mark.sampled(1)
@pytest.mark.parametrize("piece", [1, 2, 7, 100])
def test_groups_do_not_depend_on_pieces(set_limits, piece):
    rng = np.random.default_rng(piece)
    rows, sets = rng.integers(0, 16, 600, np.uint64), rng.integers(0, 150, 600, np.uint64)
    members, _ = members_in_sets(sets)
    of = rows[members.documents]
    ranks = {
        "first": members.documents,
        "central": distances_to_majority(lambda here: of[here], members.lims),
    }
    whole = {
        name: split_chains(members, lambda here: of[here], part, 1) for name, part in ranks.items()
    }
    set_limits(grouped_members=piece)
    assert (distances_to_majority(lambda here: of[here], members.lims) == ranks["central"]).all()
    for name, part in ranks.items():
        result = split_chains(members, lambda here: of[here], part, 1)
        assert result.lims.tolist() == whole[name].lims.tolist()
        assert result.documents.tolist() == whole[name].documents.tolist()
        leasts = np.minimum.reduceat(result.documents, result.lims[:-1])
        assert (leasts[1:] > leasts[:-1]).all()
