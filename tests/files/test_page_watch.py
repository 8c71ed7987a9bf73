"""When probes ask the system for pages ahead.

After a look-up has waited for one, and never because something took long.
"""

import os
import subprocess
import sys
import textwrap

import pytest
from speeds import slow

# How many requests there were while something ran, under a library that counts them and says which
# faults there were.
SCRIPT = """
    import ctypes, sys
    import numpy as np
    import fpstore

    library = ctypes.CDLL(None)
    stored = np.random.default_rng(1).integers(0, 2**64, 50_000, dtype=np.uint64)
    queries = np.random.default_rng(2).integers(0, 2**64, 1000, dtype=np.uint64)
    store = fpstore.build(sys.argv[1], stored, design=sys.argv[2])
    prober = store.snapshot().generation.prober(3)

    def asked(work):
        before = library.fppages_asked(), prober.fetches
        work()
        after = library.fppages_asked(), prober.fetches
        assert after[0] - before[0] == after[1] - before[1]
        return after[0] - before[0]

    def single(count):
        return lambda: [store.probe(int(query)) for query in queries[:count]]

    def batch(count):
        return lambda: store.probe_many(queries[:count], threads=1)
"""
WARM = """
    library.fppages_faulting(0)
    print(asked(single(1)), asked(single(1000)), asked(batch(5)), asked(batch(1000)))
    checked = library.fppages_checked()
    single(1000)()
    print(library.fppages_checked() - checked < 100)
"""
COLD = """
    library.fppages_faulting(1)
    blocks = prober.blocks
    found = asked(single(20))
    print(found >= prober.blocks - blocks > 0)
    print(asked(batch(5)) > 0, asked(batch(1000)) > 0)
    library.fppages_faulting(0)
    single(1000)()  # the last look-ups for which pages are asked for ahead
    print(asked(single(1000)), asked(batch(1000)))
"""
# Each block that is read may be a look-up on disk, which takes as long as many in memory.
LOOKED_FOR_SIGNALS = """
    from fpstore import _kernel

    identity = store.snapshot().generation.tables[0].kernel
    whole = _kernel.Prober()
    for _ in range(200):
        whole.add(identity, 0, 0, np.zeros(1, np.uint64))

    def polls(work):
        before = library.fppages_polled()
        work()
        return library.fppages_polled() - before

    work = {
        "probe": lambda: whole.probe(queries[:1], 3),
        "scan": lambda: identity.scan(queries[:100], 3, 0, identity.block_count),
    }[sys.argv[3]]
    library.fppages_faulting(0)
    warm = polls(work)
    library.fppages_faulting(1)
    cold = polls(work)
    print(0 < 10 * warm < cold, warm, cold)
"""


@pytest.fixture(scope="session")
def pages(compiled):
    """Return the library that counts."""
    return compiled("pages.c")


def run(pages, path, design, part, *arguments):
    process = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            textwrap.dedent(SCRIPT) + textwrap.dedent(part),
            path,
            design,
            *arguments,
        ],
        env=os.environ | {"LD_PRELOAD": str(pages)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout.splitlines()


@pytest.mark.full
@pytest.mark.parametrize("design", ["manku-10", slow("flip-2")])
def test_a_warm_store_never_asks_for_pages(pages, tmp_path, design):
    """However slow the machine is.

    No clock is read, and without a fault nothing is asked for, in the first probe neither.
    """
    counts, checks_are_rare = run(pages, tmp_path / "s", design, WARM)
    assert counts == "0 0 0 0"
    assert checks_are_rare == "True"


@pytest.mark.full
@pytest.mark.parametrize("design", [slow("manku-10"), "flip-2"])
def test_after_a_fault_pages_are_asked_for_ahead_for_a_while(pages, tmp_path, design):
    first, then, later = run(pages, tmp_path / "s", design, COLD)
    assert first == "True"
    assert then == "True True"
    assert later == "0 0"


@pytest.mark.full
@pytest.mark.parametrize("what", ["probe", slow("scan")])
def test_signals_are_checked_more_often_while_there_are_faults(pages, tmp_path, what):
    """By the work alone, thousands of blocks are read between two looks: on a disk, seconds."""
    (said,) = run(pages, tmp_path / "s", "flip-2", LOOKED_FOR_SIGNALS, what)
    assert said.startswith("True")
