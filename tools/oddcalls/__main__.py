#!/usr/bin/env python3
"""Call every public function with odd values, and report what is no clear refusal.

A call starts from arguments that are right, and one to three of them are replaced by odd values. It
may return, or raise an error of fpstore, or a TypeError or ValueError with a message. Anything else
is a finding: another exception, a crash, a call that does not end, a lock that stays. Each is
printed with the call, an expression that ``--call`` evaluates alone. The last line is a report in
JSON; the exit status is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import itertools
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from targets import Target, targets
from world import NAMES, make_world

import fpstore

BATCH = 100  # calls of one process, in one world
SECONDS = 30  # of a call
MEMORY = 6 << 30  # of a process, in addresses
MAX_KINDS = 100  # that are printed
ODD = (
    *("None", "True", "False", "np.True_"),
    *("0", "1", "-1", "2", "99", "2**31", "2**63", "2**64", "10**30", "-10**30"),
    *("0.0", "0.5", "1.0", "-0.5", "float('nan')", "float('inf')", "-float('inf')", "1e308", "1j"),
    *("decimal.Decimal('1')", "np.int64(3)", "np.uint64(7)", "np.float32(0.5)"),
    *("np.float64('nan')", "np.datetime64('2020-01-01')"),
    *("''", "' '", "'odd'", "'3'", "'1GiB'", "'a\\0b'", "'\\ud800'", "'x' * 300", "'x' * 5000"),
    *("'line\\nfeed'", "'link'"),
    *("'missing/odd'", "'r.jsonl'", "'s.fps'", "'i.lsh'", "'odd.parquet'", "'.'"),
    *("pathlib.Path('odd')", "pathlib.Path('link')"),
    *("b'odd'", "bytearray(b'odd')", "memoryview(b'odd')"),
    *("[]", "[[]]", "[None]", "[-1]", "[0]", "[1, 2]", "[2**64]", "[0.5]", "['']", "['a']"),
    *("['a', 'b']", "['a', 1]", "[[1], [2]]", "[['a'], ['b']]", "[True]", "[b'a']"),
    *("[float('nan')]", "[object()]", "loop"),
    *("()", "(1,)", "(1, 2, 3)"),
    *("{}", "{'a': 1}", "{1: 2}", "{'text': 'text'}", "{'name': 'minhash'}"),
    *("set()", "{1, 2}", "frozenset()", "range(3)", "range(0)", "iter([1, 2])", "iter([])"),
    "(i for i in ['a'])",
    *("object()", "int", "len", "Ellipsis", "NotImplemented", "fpstore"),
    *("lambda *odd: None", "lambda *odd: []", "slice(None)"),
    *("np.array(3)", "np.array('a')", "np.array([])", "np.array([1, 2])", "np.array([-1, 2])"),
    *("np.array([0.5, np.nan])", "np.array(['a', 'b'])", "np.array([None, 1], object)"),
    "np.array([True, False])",
    *("np.zeros((0, 8))", "np.zeros((2, 2))", "np.zeros((2, 8))", "np.zeros((2, 8), np.uint8)"),
    *("np.zeros((2, 2, 2))", "np.zeros(2, 'M8[s]')", "np.zeros(2, [('a', int)])"),
    *("np.array([1, 2], np.uint64)[::-1]", "np.array([1, 2], '>u8')"),
    "np.ma.array([1, 2], mask=[0, 1])",
    *("pa.array([1, 2])", "pa.array(['a', None])", "pa.array([1.5])"),
    *("pa.table({'text': ['a b c'], 'id': [1]})", "pa.table({'a': []})"),
    "collections.Counter('a')",
    *("fpstore.SimHash()", "fpstore.SimHash", "fpstore.MinHash()"),
    *("fpstore.HyperplaneHash(dimension=8)", "fpstore.open('s.fps')", "fpstore.open('i.lsh')"),
    *("TEXTS", "TEXTS[0]", "VECTORS"),
    "fpstore.hashing.TextReader('r.jsonl', fpstore.SimHash(), text='text')",
)
HEAVY = ("processes", "threads")  # these take no large numbers here


def drawn_call(target: Target, rng: random.Random) -> str:
    """Return a call as an expression."""
    arguments = dict(target.base)
    for name in rng.sample(
        target.parameters, min(rng.choice((1, 1, 1, 2, 3)), len(target.parameters))
    ):
        odd = rng.choice(ODD)
        arguments[name] = "2" if name in HEAVY and odd in {"99", "np.uint64(7)"} else odd
    if target.name.endswith(("__contains__", "__getitem__")):
        return f"{target.called}({', '.join(arguments.values())})"
    return f"{target.called}({', '.join(f'{name}={value}' for name, value in arguments.items())})"


def finding_of(call: str) -> str | None:
    """Make a call; return what is wrong with its end, or None."""
    signal.alarm(SECONDS)
    try:
        _consume(eval(call, dict(NAMES)))
    except (fpstore.FpstoreError, TypeError, ValueError, MemoryError) as error:
        return None if str(error).strip() else f"{type(error).__name__} without a message"
    except BaseException as error:
        if isinstance(error, IndexError) and ".__getitem__(" in call:  # as of every sequence
            return None
        place = traceback.extract_tb(error.__traceback__)[-1]
        return (
            f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: "
            f"{str(error)[:100]}"
        )
    finally:
        signal.alarm(0)
    return None


def _consume(result: Any) -> None:
    if isinstance(result, Iterator):
        for _ in itertools.islice(result, 3):
            pass
    repr(result)
    if hasattr(result, "close"):
        result.close()


def held_lock() -> str | None:
    """Return the lock of a store in this folder that is held although no call is under way."""
    for path in Path().rglob("writer.lock"):
        descriptor = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return f"the lock {path} stays"
        finally:
            os.close(descriptor)
    return None


def _ended(number: int, frame: object) -> None:
    raise TimeoutError(f"it did not end within {SECONDS} seconds")


def make_calls(calls: list[str], report: int) -> None:
    """Make calls in this process; write each call to a pipe before it, and its finding after it."""
    signal.signal(signal.SIGALRM, _ended)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    with tempfile.TemporaryDirectory(prefix="oddcalls-") as folder, os.fdopen(report, "w") as out:
        make_world(Path(folder))
        for call in calls:
            print(json.dumps(call), file=out, flush=True)
            finding = finding_of(call)
            if ("'r+'" in call or "repair" in call) and finding is None:
                gc.collect()
                finding = held_lock()
            print(json.dumps(finding), file=out, flush=True)
        os.chdir("/")


def batch_findings(calls: list[str]) -> list[tuple[str, str]]:
    """Make calls in a process of their own, and return those with findings."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        try:
            make_calls(calls, write)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    findings, call = [], None
    with os.fdopen(read) as lines:
        for line in lines:
            if call is None:
                call = json.loads(line)
                continue
            if (finding := json.loads(line)) is not None:
                findings.append((call, finding))
            call = None
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or call is not None:
        findings.append((call or calls[-1], f"the process ended with {status}"))
    return findings


def campaign(count: int, seed: int, seconds: float, only: str) -> int:
    """Make drawn calls, print findings and the report; return the exit status."""
    rng = random.Random(seed)
    known = [target for target in targets() if only in target.name and target.parameters]
    made, number, kinds, begun = 0, 0, set[str](), time.monotonic()
    while made < count and time.monotonic() - begun < seconds:
        calls = [drawn_call(rng.choice(known), rng) for _ in range(min(BATCH, count - made))]
        for call, finding in batch_findings(calls):
            number += 1
            kind = finding.split(": ")[0]
            if kind not in kinds and len(kinds) < MAX_KINDS:
                print(f"{finding}\n    {call}", flush=True)
            kinds.add(kind)
        made += len(calls)
    report = {
        "calls": made,
        "targets": len(known),
        "findings": number,
        "kinds": len(kinds),
        "seed": seed,
    }
    print(json.dumps({**report, "seconds": round(time.monotonic() - begun)}))
    return 1 if kinds else 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=50_000, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=86_400, help="no batch begins later (default: a day)"
    )
    parser.add_argument(
        "--only", default="", metavar="NAME", help="only targets with this in their names"
    )
    parser.add_argument(
        "--call", metavar="EXPRESSION", help="make this call alone, and show its traceback"
    )
    options = parser.parse_args()
    if options.call is None:
        return campaign(options.calls, options.seed, options.seconds, options.only)
    folder = tempfile.mkdtemp(prefix="oddcalls-")
    try:
        make_world(Path(folder))
        _consume(eval(options.call, dict(NAMES)))
    finally:
        os.chdir("/")
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
