"""The sorted keys of a table that do not fit into memory: runs, and the parts of a pass."""

from functools import partial

import numpy as np
import pytest

from fpstore import _kernel
from fpstore.base.resources import Resources
from fpstore.base.width import Width, rows_to_numbers
from fpstore.building import table_keys
from fpstore.building.external_sort import Runs
from fpstore.building.table_keys import TableKeys
from fpstore.design.families import design as make

RNG = np.random.default_rng(7)
DRAWS = {
    "uniform": lambda n, bits: draw(n, bits),
    "begin alike": lambda n, bits: [value >> 40 for value in draw(n, bits)],
    "end alike": lambda n, bits: [value >> 40 << 40 for value in draw(n, bits)],
    "a crowd": lambda n, bits: [
        *draw(n // 2, bits),
        *(value % 2**20 << (bits // 2) for value in draw(n // 2, bits)),
    ],
}


def draw(n, bits):
    return [int.from_bytes(RNG.bytes(bits // 8), "big") for _ in range(n)]


def keys_of(spec, fingerprints, width):
    rows = Width(width).rows(sorted(fingerprints))
    if spec.kind != "references":
        return rows, rows_to_numbers(
            _kernel.permute(rows, np.frombuffer(spec.permutation, np.uint8), False)
        )
    permutation = np.frombuffer(spec.permutation, np.uint8)
    return rows, _kernel.reference_keys(rows, 0, len(rows), permutation, spec.prefix_bits).tolist()


def passes_of(rows, spec, folder, threads, budget_rows):
    """Return the parts of two passes within a budget of rows.

    A run takes three arrays of its rows, a part two.
    """
    resources = Resources(64 * -(-spec.key_words * budget_rows // 7), threads)
    made = TableKeys(
        partial(iter, [rows[:7], rows[7:7], rows[7:]]),
        len(rows),
        spec,
        folder,
        resources,
        _kernel.Stop(),
    )
    collected = []
    for _ in range(2):
        collected.append([part.copy() for part in made()])
        assert made.is_on_disk == (len(rows) > budget_rows // 3)
    made.close()
    assert list(folder.iterdir()) == []
    return collected


@pytest.mark.parametrize(
    ("kind", "design", "width"),
    [
        ("uniform", "manku-10", 64),
        ("begin alike", "flip-2", 64),
        ("end alike", "flip-2", 128),
        ("a crowd", "columns-16", 256),
    ],
)
def test_passes_have_all_keys_in_order_in_parts_that_fit(tmp_path, set_limits, kind, design, width):
    set_limits(table_memory=0, table_thread_memory=1, sample_step=8)
    spec = make(design, 3, width).tables[-1]
    rows, keys = keys_of(spec, set(DRAWS[kind](3000, width)), width)
    for threads, budget_rows in ((1, 1800), (3, 7200), (2, 9000)):
        at_once = 1 if threads == 1 else threads + 1
        room = budget_rows // (2 * at_once)
        for parts in passes_of(rows, spec, tmp_path, threads, budget_rows):
            result = np.concatenate(parts)
            assert (result.tolist() if result.ndim == 1 else rows_to_numbers(result)) == sorted(
                keys
            )
            if len(rows) > budget_rows // 3:
                assert len(parts) > 1
                assert all(room // 2 <= len(part) <= room for part in parts[:-1])
                assert len(parts[-1]) <= room


@pytest.mark.parametrize(("threads", "budget_rows"), [(1, 9000), (3, 36_000)])
def test_arrays_are_within_the_budget(tmp_path, monkeypatch, set_limits, threads, budget_rows):
    taken = {"runs": 0, "parts": 0}
    room, cut = table_keys.sort_buffer, Runs.parts

    def counted(count, words):
        taken["parts" if "cut" in taken else "runs"] += 8 * count * words
        return room(count, words)

    set_limits(table_memory=0, table_thread_memory=1)
    monkeypatch.setattr(table_keys, "sort_buffer", counted)
    monkeypatch.setattr(Runs, "parts", lambda runs, most: taken.update(cut=True) or cut(runs, most))
    spec = make("flip-2", 3, 128).tables[-1]
    rows, _ = keys_of(spec, set(draw(20_000, 128)), 128)
    budget = 16 * budget_rows
    made = TableKeys(
        partial(iter, [rows]), len(rows), spec, tmp_path, Resources(budget, threads), _kernel.Stop()
    )
    assert sum(len(part) for part in made()) == len(rows)
    made.close()
    assert budget // 2 <= taken["runs"] <= budget
    assert taken["parts"] <= budget


def test_a_pass_ends_when_it_is_stopped(tmp_path, set_limits):
    set_limits(table_memory=5000)
    spec = make("flip-2").tables[-1]
    rows = np.sort(RNG.integers(0, 2**64, 2000, np.uint64))
    stop = _kernel.Stop()

    def pieces():
        yield rows[:1000]
        stop.set()
        yield rows[1000:]

    made = TableKeys(pieces, len(rows), spec, tmp_path, Resources(0, 2), stop)
    with pytest.raises(InterruptedError):
        next(made())
    made.close()
