"""Faults at every call that changes the disk.

A library before libc, and the sweep of an operation under it (tests/faults).
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parents[1] / "faults"
KILLS = ("kill", "kill-after", "torn")
ERRORS = ("ENOSPC", "EIO")
MODES = (*KILLS, "short", *ERRORS)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Return make(name): the library of a file in tests/faults."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("faults are injected by a library that only gcc on Linux can make here")

    def make(name):
        library = (tmp_path_factory.mktemp("faults") / name).with_suffix(".so")
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", library, HERE / name, "-ldl"], check=True)
        return library

    return make


@pytest.fixture(scope="session")
def shim(compiled):
    """Return the compiled library."""
    return compiled("shim.c")


@pytest.fixture
def sweep(shim, tmp_path):
    """Return sweep(setup, operation, check, modes=MODES, every=1, environment={}).

    Three texts of Python are run in one process under the shim. ``setup`` once, in the folder
    ``root``; it also defines what the other two need. Then for each mode and each call that changes
    the disk (or each ``every``-th: other calls for each mode), on a copy of that folder, which is
    ``root`` now: ``operation``, in a fork of that process; it calls ``arm()`` where the calls are
    to be counted from. And ``check``: it sees ``outcome`` (kind: ok, error or killed; type and
    message of an FpstoreError; fired; at, mode, call and path of the fault), asserts what must
    hold, and may put what it found into ``state``.

    Returns the calls, [name, path from root], and the outcomes, first that without a fault. Nothing
    may be left running after setup and after an operation without a fault, or it is lost in the
    forks: no threads, no open store.
    """
    runs = []

    def run(setup, operation, check, modes=MODES, every=1, environment=None):
        folder = tmp_path / f"sweep-{len(runs)}"
        runs.append(folder)
        folder.mkdir()
        texts = {
            name: textwrap.dedent(text)
            for name, text in (("setup", setup), ("operation", operation), ("check", check))
        }
        process = subprocess.run(
            [sys.executable, "-P", HERE / "driver.py"],
            input=json.dumps({"folder": str(folder), "modes": modes, "every": every} | texts),
            env=os.environ
            | {"LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "1"}
            | (environment or {}),
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert (process.returncode, process.stderr) == (0, ""), process.stderr
        result = json.loads(process.stdout)
        outcomes = [SimpleNamespace(**outcome) for outcome in result["outcomes"]]
        wrong = [o for o in outcomes if o.problem]
        assert not wrong, report(wrong)
        assert all(o.fired for o in outcomes[1:]), (
            "a fault was never reached: the operation differs from run to run"
        )
        return result["calls"], outcomes

    return run


def report(wrong):
    """Describe the faults after which something was wrong.

    How many of each kind, and the first ones in full.
    """
    kinds = Counter((o.mode, o.call, o.problem.strip().splitlines()[-1]) for o in wrong)
    lines = [f"{n} times {' '.join(kind)}" for kind, n in kinds.most_common()]
    for o in wrong[:3]:
        lines += [
            f"\n{o.mode} at call {o.at}, {o.call} {o.path}: {o.kind} {o.type} {o.message}",
            o.problem,
        ]
    return "\n".join(lines)


def states(outcomes, *kinds):
    """Return the set of states that outcomes of these kinds left."""
    return {o.state for o in outcomes if o.kind in kinds}
