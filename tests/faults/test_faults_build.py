"""A build that is killed at any of its writes, or refused any of them.

The old store or the new one, whole, and nothing else.
"""

from pathlib import Path

import pytest
from faultline import ERRORS, MODES, states
from speeds import slow

from fpstore.format.dictionary import DICTIONARY_FILES
from fpstore.format.mapping import PLACES_FILES

# Old and new rows; the tables are synced where they are written, so that the calls come in the same
# order every time.
SETUP = """
import os, numpy as np, fpstore
from inline_pool import InlinePool
from small_stores import content
from fpstore.building import generation_writer
from fpstore.base.pools import Pool

generation_writer.Pool = InlinePool
rng = np.random.default_rng(1)
fingerprints = rng.choice(rng.integers(0, 2**64, 280, np.uint64), 300)
numbers = [int(i) for i in rng.permutation(300)]
ids = np.array(numbers, np.uint64)
options = {"radius": 3, "design": "flip-2", "threads": 1, "overwrite": False}

def new_rows():
    return set(zip(fingerprints.tolist(), ids if isinstance(ids, list) else ids.tolist()))
"""
OVERWRITE = """
old = {(5, 0), (6, 1), (7, 2)}
fpstore.build(root / "s", [5, 6, 7]).close()
options["overwrite"] = True
"""
STRINGS = """
ids = [f"document {i}" for i in numbers]
"""
SPILLED = """
from fpstore.building import external_sort as sorting
# The least budget holds 150 rows; of the 300, each has one of three leading bytes.
sorting.PAIR_BYTES = sorting.SORT_BYTES = (64 << 20) // 150
options["memory"] = "64MiB"
leading = rng.choice(np.array([1, 128, 255], np.uint64), 300)
fingerprints = fingerprints >> np.uint64(8) | leading << np.uint64(56)
"""
THREADS = """
generation_writer.Pool = Pool
options |= {"threads": 2, "design": "manku-4"}
"""
OPERATION = """
arm()
fpstore.build(root / "s", fingerprints, ids, **options).close()
"""
CHECK = """
path = root / "s"
removing = outcome.call in ("unlink", "unlinkat", "rmdir")
old_rows = old if options["overwrite"] else None
here = sorted(os.listdir(root))
asides = [name for name in here if name.endswith("-old")]
if path.exists():
    found = content(path)
    assert found in (old_rows, new_rows()), "neither old nor new"
    state = "new" if found == new_rows() else "old"
elif asides:
    # Killed between two renames, where one call cannot do both: the next build finds the old store.
    assert os.environ.get("FPFAULT_REFUSE") == "exchange"
    assert (outcome.kind, outcome.call) == ("killed", "rename")
    assert [content(root / name) for name in asides] == [old_rows]
    try:
        fpstore.build(path, fingerprints, ids, **options | {"overwrite": False})
        raise AssertionError("the old store is gone")
    except fpstore.StoreExistsError:
        assert content(path) == old_rows
    state = "aside"
else:
    assert old_rows is None, "the old store is gone"
    state = "old"
if outcome.kind == "ok":
    assert state == "new"
if outcome.kind == "error":
    assert state == "old" or "is in place" in outcome.message
    assert outcome.type == "StorageError", outcome.type
    assert outcome.message.startswith(str(root))
    assert "\\n" not in outcome.message
if outcome.kind != "killed" and not removing:
    assert here == asides + (["s"] if path.exists() else []), here
    assert not asides or outcome.call == "rename"
if here not in ([], ["s"]):  # else there is nothing that a fault left
    fpstore.build(path, fingerprints, ids, **options | {"overwrite": True}).close()
    assert content(path) == new_rows()
    here = os.listdir(root)
assert here in ([], ["s"]), "left over"
"""
KINDS = {"rows": "", "overwrite": OVERWRITE, "strings": STRINGS, "spilled": SPILLED}
LASTING = ("ENOSPC-from", "EIO-from", "EROFS")
# A kill after a call leaves what a kill before the next one leaves, and a short write is much like
# a refused one: the slow tests have them for every kind of store.
FEWER = ("kill", "torn", *ERRORS)


def check_outcomes(outcomes, calls):
    """Check what holds of every build.

    There is the old store until the target is put in place, and the new one from then on.
    """
    assert outcomes[0].kind == "ok"
    published = next(
        at for at, (name, path) in enumerate(calls, 1) if path == "s" and name.startswith("rename")
    )
    for o in outcomes[1:]:
        before = o.at < published or (o.at == published and o.mode in ("kill", "torn"))
        if o.kind == "killed":
            assert o.state == ("old" if before else "new"), o
        # Where no lock can be made, nobody can be writing to the store that is replaced.
        passed = o.call == "rmdir" or calls[o.at - 1][1].endswith("writer.lock")
        if o.mode in ERRORS and before and not (o.kind == "ok" and passed):
            assert o.kind == "error", o


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "modes", "every"),
    [("rows", FEWER, 19), ("overwrite", MODES, 31), ("strings", FEWER, 43), ("spilled", FEWER, 47)],
)
def test_a_fault_at_calls_of_a_build(sweep, kind, modes, every):
    calls, outcomes = sweep(SETUP + KINDS[kind], OPERATION, CHECK, modes, every)
    check_outcomes(outcomes, calls)
    assert "old" in states(outcomes, "killed")
    if kind == "strings":
        assert {Path(path).name for _, path in calls} > {*DICTIONARY_FILES, *PLACES_FILES}
    if kind == "spilled":
        # of a file without a name
        assert any("#" in path for name, path in calls if "write" in name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_faults_of_every_kind_at_any_call_of_a_build(sweep, kind):
    calls, outcomes = sweep(SETUP + KINDS[kind], OPERATION, CHECK, (*MODES, *LASTING))
    check_outcomes(outcomes, calls)
    assert states(outcomes, "killed") >= {"old", "new"}


@pytest.mark.parametrize("every", [23, slow(1)])
def test_a_disk_that_stays_full_or_broken(sweep, every):
    _, outcomes = sweep(SETUP + OVERWRITE, OPERATION, CHECK, LASTING, every)
    assert {o.kind for o in outcomes[1:] if o.state == "old"} == {"error"}


@pytest.mark.full
@pytest.mark.parametrize("modes", [("kill",), slow(("EIO", "kill-after", "torn"))])
def test_a_disk_that_cannot_exchange_two_folders(sweep, modes):
    """There are two renames with nothing at the target in between."""
    calls, outcomes = sweep(
        SETUP + OVERWRITE, OPERATION, CHECK, modes, 1, {"FPFAULT_REFUSE": "exchange"}
    )
    # the first: a manifest
    assert [name for name, _ in calls if name.startswith("rename")] == ["renameat"] + ["rename"] * 3
    assert states(outcomes, "killed") == {"old", "aside", "new"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["kill", "EIO"])
def test_faults_in_a_build_with_threads(sweep, mode):
    """The calls come in another order from run to run.

    All that holds of each is what the check says.
    """
    sweep(SETUP + OVERWRITE + THREADS, OPERATION, CHECK, (mode,))


AGAIN = """
arm()
try:
    fpstore.build(root / "s", fingerprints, ids, **options).close()
except fpstore.StorageError:
    fpstore.build(root / "s", fingerprints, ids, **options).close()
"""


@pytest.mark.full
@pytest.mark.parametrize("every", [19, slow(1)])
def test_a_refused_build_can_be_tried_again_in_its_process(sweep, every):
    _, outcomes = sweep(SETUP + STRINGS, AGAIN, CHECK, ("EIO",), every)
    assert {o.kind for o in outcomes} == {"ok"}
