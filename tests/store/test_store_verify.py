"""What verify tells and how it stops."""

import signal

import numpy as np
import pytest

import fpstore


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Build a store of many pieces, with names."""
    monkeypatch.setattr("fpstore.format.packed_table.DECODE_ROOM", 1)
    monkeypatch.setattr("fpstore.format.mapping.TICK_ROWS", 100)
    monkeypatch.setattr("fpstore.format.strings.RECORDS_AT_ONCE", 2)
    fingerprints = np.random.default_rng(4).integers(0, 2**64, 5000, np.uint64)
    with fpstore.build(
        tmp_path / "s", fingerprints, [f"name {i}" for i in range(5000)], design="flip-2", block_bytes=128
    ) as store:
        yield store


def test_verify_tells_its_progress(named):
    calls = []
    assert named.verify(progress=lambda *call: calls.append(call)).ok
    assert list(dict.fromkeys(phase for phase, _, _ in calls)) == ["tables", "ids", "strings", "index by id", "changes"]
    # Two tables with filters, each of which is read once.
    for name, most, total in (("tables", 10000, 10000), ("ids", 5000, 5000), ("strings", 20000, 20000)):
        done = [d for phase, d, _ in calls if phase == name]
        assert done == sorted(done)
        assert (done[0], done[-1], len(set(done)) > 2) == (0, most, True)
        assert {t for phase, _, t in calls if phase == name} == {total}


@pytest.mark.parametrize("phase", ["tables", "ids", "strings"])
def test_control_c_stops_verify(named, phase):
    calls = []

    def interrupt(*call):
        calls.append(call)
        if call[0] == phase and call[1] > 100:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        named.verify(progress=interrupt)
    assert [done > 100 for name, done, _ in calls if name == phase].count(True) == 1
    assert calls[-1][0] == phase
    assert named.verify().ok
