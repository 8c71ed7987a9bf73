"""Bands in small memory, groups in pieces, and a search by bands that is killed and resumed."""

import json

import numpy as np
import pytest
from building import run_python
from limited import LIMITED
from resuming import calls_in_a_child, command, outputs

from fpstore.cli import main
from fpstore.jobs import bands, grouping
from fpstore.jobs.grouping import distances_to_majority, members_in_sets, without_chains

MIB = 1 << 20
BUDGET, SPARE = 64 * MIB, 48 * MIB  # what is read at a time, a piece of groups, stacks of threads
ROWS, BANDS = 1 << 21, 3
SEARCH = (
    LIMITED
    + """
    from fpstore.base.resources import Resources
    from fpstore.base.width import Width
    from fpstore.disk.temporary import SpilledNumbers
    from fpstore.jobs.bands import BandKeys, connected_by_bands

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
    sets = connected_by_bands(rows, None, keys, 3, Width(256), Resources(memory, 2))
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
def test_groups_do_not_depend_on_pieces(monkeypatch, piece):
    rng = np.random.default_rng(piece)
    rows, sets = rng.integers(0, 16, 600, np.uint64), rng.integers(0, 150, 600, np.uint64)
    members, _ = members_in_sets(sets)
    of = rows[members.documents]
    ranks = {
        "first": members.documents,
        "central": distances_to_majority(lambda here: of[here], members.lims),
    }
    whole = {
        name: without_chains(members, lambda here: of[here], some, 1)
        for name, some in ranks.items()
    }
    monkeypatch.setattr(grouping, "PIECE", piece)
    assert (distances_to_majority(lambda here: of[here], members.lims) == ranks["central"]).all()
    for name, some in ranks.items():
        found = without_chains(members, lambda here: of[here], some, 1)
        assert found.lims.tolist() == whole[name].lims.tolist()
        assert found.documents.tolist() == whole[name].documents.tolist()
        leasts = np.minimum.reduceat(found.documents, found.lims[:-1])
        assert (leasts[1:] > leasts[:-1]).all()


@pytest.mark.sampled(1)
@pytest.mark.parametrize("call", [1, 2, 30])
def test_a_search_that_is_killed_is_resumed(job_folder, monkeypatch, call):
    """Where documents of one fingerprint are united, or before a band.

    The result is that of a run that was not killed.
    """
    monkeypatch.setattr(bands, "BLOCK_ROWS", 128)
    main(command("dedup bands", "whole"), standalone_mode=False)
    expected = outputs("whole")
    again = [*command("dedup bands", "again"), "--resume"]
    assert (
        calls_in_a_child(lambda: main(again, standalone_mode=False), call, [(bands, "_groups")])
        is None
    )
    assert any(job_folder.glob("again*resume*"))
    main(again, standalone_mode=False)
    assert outputs("again") == expected
    assert not any(job_folder.glob("again*resume*"))
