"""Many cases, each in a process of its own, and the count of what came of them."""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import damage
from damage.case import Case
from damage.files import Damage, choose, copied, kind_of
from damage.forge import choose_forgery
from damage.indexes import Index, IndexCase
from damage.shards import ShardedCase
from damage.stores import LARGE, SPECS, Store
from fpstore.disk import sealed as environment

FAULTS = ("wrong", "false", "dead", "slow", "foreign")  # the worst first
MEMORY = 1 << 30  # that a process may map for a forged store, besides what it has


class Campaign:
    """Cases, each in a process of its own, as many at once as there are workers."""

    def __init__(self, folder: Path, seed: int, names: list[str], forged: bool) -> None:
        self._folder, self._seed, self._names, self._forged = folder, seed, names, forged
        self._stores: dict[str, Store | Index] = {}

    def plan(self, number: int) -> tuple[Store | Index, Damage]:
        """Return what case ``number`` is."""
        chance = random.Random(f"{self._seed} {number}")
        weights = [1 if name in LARGE else 4 for name in self._names]
        name = chance.choices(self._names, weights)[0]
        if name not in self._stores:
            self._stores[name] = (Index if SPECS[name].lsh else Store)(
                self._folder / name.replace(" ", "-"), name, self._seed
            )
        store = self._stores[name]
        return store, choose_forgery(store, chance) if self._forged and isinstance(
            store, Store
        ) else choose(store, chance)

    def begin(self, number: int) -> tuple[int, int]:
        """Start a case; return the process and where it says what came of it."""
        store, damage = self.plan(number)
        read, write = os.pipe()
        child = os.fork()
        if child:
            os.close(write)
            return child, read
        try:
            quiet()
            if store.spec.trusting:
                environment.CHECKED_AT_OPEN = 0
            path = self._folder / f"case-{number}" / "s"
            path.parent.mkdir()
            copied(store, damage.file, path)
            damage.apply(path / damage.file)
            if self._forged:
                resource.setrlimit(resource.RLIMIT_AS, (mapped() + MEMORY, resource.RLIM_INFINITY))
            case: Any = IndexCase if store.spec.lsh else ShardedCase if store.spec.shards else Case
            case(store, path, write, damage.kind, forged=self._forged).run()
        except BaseException:
            os.write(
                write,
                json.dumps(["case", "foreign", traceback.format_exc()[-1500:]]).encode() + b"\n",
            )
        finally:
            os._exit(0)

    def end(self, number: int, output: int, status: int) -> dict[str, Any]:
        """Return what came of a case."""
        with os.fdopen(output, encoding="utf-8") as lines:
            messages = [json.loads(line) for line in lines]
        outcomes = {operation: (verdict, detail) for operation, verdict, detail in messages}
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            outcomes[messages[-1][0] if messages else "case"] = (
                "slow" if name in ("SIGPROF", "SIGALRM") else "dead",
                name,
            )
        store, damage = self.plan(number)
        return {
            "case": number,
            "store": store.name,
            "file": damage.file,
            "damage": damage.kind,
            "forged": self._forged,
            "outcomes": outcomes,
        }

    def run(
        self, numbers: range, workers: int, seconds: float, keep: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Do these cases, as far as the time allows."""
        began, running = time.monotonic(), dict[int, tuple[int, int]]()
        waiting = iter(numbers)
        while True:
            while len(running) < workers and time.monotonic() - began < seconds:
                number = next(waiting, None)
                if number is None:
                    break
                child, output = self.begin(number)
                running[child] = number, output
            if not running:
                return
            child, status = os.wait()
            number, output = running.pop(child)
            yield self.end(number, output, status)
            if not keep:
                shutil.rmtree(self._folder / f"case-{number}", ignore_errors=True)


def mapped() -> int:
    """Return how many bytes this process has mapped."""
    return (
        int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        * resource.getpagesize()
    )


def quiet() -> None:
    """Let a process die without a word: what it dies of is told by its status."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)


def faults_of(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (operation, verdict, detail) of what must not be."""
    # without filters, all that is asked is right
    harmless = result["damage"] == "nothing" or kind_of(result["file"]) == "filter"
    bad: tuple[str, ...] = (*FAULTS, "refused", "losses") if harmless else FAULTS
    bad = FAULTS[2:] if result["forged"] else bad
    return [
        (operation, *outcome)
        for operation, outcome in result["outcomes"].items()
        if outcome[0] in bad
    ]


def verdict_of(result: dict[str, Any]) -> str:
    verdicts = {verdict for verdict, _ in result["outcomes"].values()}
    return next((verdict for verdict in (*FAULTS, "refused") if verdict in verdicts), "right")


def summary(detail: str) -> str:
    """Return what of a message is the same in like cases."""
    last = detail.strip().splitlines()[-1] if detail.strip() else ""
    last = re.sub(r"/[^ :]*/", "", last)
    return re.sub(r"0x[0-9a-f]+|\d+", "N", last)[:160]


class Tally:
    """Counts of what came of the cases."""

    def __init__(self) -> None:
        self.cases = 0
        self.by: dict[str, dict[str, Counter[str]]] = {"file": {}, "damage": {}, "store": {}}
        self.repairs: dict[str, Counter[str]] = {}
        self.groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def add(self, result: dict[str, Any]) -> None:
        self.cases += 1
        verdict, file = verdict_of(result), kind_of(result["file"])
        for name, value in (
            ("file", file),
            ("damage", result["damage"]),
            ("store", result["store"]),
        ):
            self.by[name].setdefault(value, Counter())[verdict] += 1
        report = result["outcomes"].get("report", result["outcomes"].get("repair", ("none", "")))[0]
        self.repairs.setdefault(file, Counter())[report] += 1
        for operation, verdict, detail in faults_of(result):
            self.groups.setdefault((file, operation, verdict, summary(detail)), []).append(result)

    def report(self) -> dict[str, Any]:
        faults: list[dict[str, Any]] = [
            {
                "file": file,
                "operation": operation,
                "verdict": verdict,
                "what": what,
                "count": len(results),
                "damages": dict(Counter(result["damage"] for result in results)),
                "cases": [result["case"] for result in results[:6]],
            }
            for (file, operation, verdict, what), results in self.groups.items()
        ]
        faults.sort(
            key=lambda fault: (
                (*FAULTS, "refused", "losses").index(fault["verdict"]),
                -fault["count"],
            )
        )
        bad = {result["case"] for results in self.groups.values() for result in results}
        return {
            "cases": self.cases,
            "cases with faults": len(bad),
            "by": {
                name: {value: dict(counts) for value, counts in sorted(each.items())}
                for name, each in self.by.items()
            },
            "repair": {file: dict(counts) for file, counts in sorted(self.repairs.items())},
            "faults": faults,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=damage.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1000, help="(default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument(
        "--seconds", type=float, default=600, help="no case begins later (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--case", type=int, help="do this one alone, and show all that came of it")
    parser.add_argument("--stores", help=f"separated by commas: {', '.join(SPECS)} (default: all)")
    parser.add_argument(
        "--forge", action="store_true", help="forge metadata, under checksums that are right"
    )
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where the stores go, best in memory; a temporary folder by default",
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    options = parser.parse_args()
    every = [
        name for name, spec in SPECS.items() if not (options.forge and (spec.lsh or spec.shards))
    ]
    names = options.stores.split(",") if options.stores else every
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    began = time.monotonic()
    try:
        campaign = Campaign(folder, options.seed, names, options.forge)
        if options.case is not None:
            result = next(
                campaign.run(
                    range(options.case, options.case + 1), 1, options.seconds, options.keep
                )
            )
            print(json.dumps({"folder": str(folder), **result}, indent=2))
            return 1 if faults_of(result) else 0
        tally = Tally()
        for result in campaign.run(
            range(options.first, options.first + options.cases), options.workers, options.seconds
        ):
            tally.add(result)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    took = time.monotonic() - began
    report = {
        "seed": options.seed,
        "first": options.first,
        "seconds": round(took, 1),
        **tally.report(),
    }
    print(json.dumps(report, indent=2))
    return 1 if report["cases with faults"] else 0
