"""The sorted keys of a table that do not fit into memory: runs, and the parts of a pass."""

from functools import partial

import numpy as np
import pytest

from fpstore import _kernel
from fpstore.building import table_keys
from fpstore.building.table_keys import TableKeys
from fpstore.design.families import design as make
from fpstore.resources import Resources
from fpstore.width import Width, rows_to_numbers

RNG = np.random.default_rng(7)
DRAWS = {
    "uniform": lambda n, bits: draw(n, bits),
    "begin alike": lambda n, bits: [value >> 40 for value in draw(n, bits)],
    "end alike": lambda n, bits: [value >> 40 << 40 for value in draw(n, bits)],
    "a crowd": lambda n, bits: [*draw(n // 2, bits), *(value % 2**20 << (bits // 2) for value in draw(n // 2, bits))],
}


def draw(n, bits):
    return [int.from_bytes(RNG.bytes(bits // 8), "big") for _ in range(n)]


def keys_of(spec, fingerprints, width):
    rows = Width(width).rows(sorted(fingerprints))
    if spec.kind != "references":
        return rows, rows_to_numbers(_kernel.permute(rows, np.frombuffer(spec.permutation, np.uint8), False))
    permutation = np.frombuffer(spec.permutation, np.uint8)
    return rows, _kernel.reference_keys(rows, 0, len(rows), permutation, spec.prefix_bits).tolist()


@pytest.mark.parametrize("kind", DRAWS)
@pytest.mark.parametrize(("design", "width"), [("manku-10", 64), ("flip-2", 64), ("flip-2", 128), ("columns-16", 256)])
def test_passes_have_all_keys_in_order_in_parts_that_fit(tmp_path, monkeypatch, kind, design, width):
    monkeypatch.setattr(table_keys, "LEAST_ROWS", 100)
    monkeypatch.setattr(table_keys, "SAMPLE_STEP", 8)
    spec = make(design, 3, width).tables[-1]
    for n in (0, 1, 100, 101, 1200):
        rows, keys = keys_of(spec, set(DRAWS[kind](n, width)), width)
        for threads, memory in ((1, 0), (3, 0), (2, 1 << 20)):
            path = tmp_path / "runs"
            pieces = partial(iter, [rows[:7], rows[7:7], rows[7:]])
            made = TableKeys(pieces, len(rows), spec, path, Resources(memory, threads), _kernel.Stop())
            for _ in range(2):
                parts = [part.copy() for part in made()]
                found = np.concatenate(parts) if parts else rows[:0]
                assert (found.tolist() if found.ndim == 1 else rows_to_numbers(found)) == sorted(keys)
                most = len(rows) if memory else 100 if len(rows) <= 800 else 300  # a part has a step of each run more
                assert all(len(part) <= most for part in parts)
                assert path.exists() == (len(rows) > 100 and memory == 0)
            made.close()
            assert not path.exists()


def test_a_pass_ends_when_it_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(table_keys, "LEAST_ROWS", 100)
    spec = make("flip-2").tables[-1]
    rows = np.sort(RNG.integers(0, 2**64, 2000, np.uint64))
    stop = _kernel.Stop()

    def pieces():
        yield rows[:1000]
        stop.set()
        yield rows[1000:]

    made = TableKeys(pieces, len(rows), spec, tmp_path / "runs", Resources(0, 2), stop)
    with pytest.raises(InterruptedError):
        next(made())
    made.close()
