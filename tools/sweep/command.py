"""Draw cases from a seed, build a store for each, and compare all answers with brute force.

    python tools/sweep                          # a minute, seed 1
    python tools/sweep --seconds 3600 --seed 7
    python tools/sweep --seed 7 --case 1234     # one case, again

Cases run in a process of their own, so that one that ends it (a segmentation fault, an error of a
sanitizer) is reported like a wrong answer. Prints a report as JSON; when anything was wrong, also a
few lines of Python that show it again, and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

SILENT_SECONDS = 300  # without a word of a case: it hangs


@dataclass
class Progress:
    """The results of the cases so far."""

    cases: int = 0
    answers: int = 0
    designs: dict[str, int] = field(default_factory=dict)
    widths: dict[int, int] = field(default_factory=dict)
    number: int = 0  # of the case that runs
    doing: str = "start"
    difference: str | None = None
    last: dict[str, Any] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """Take a message of the child."""
        message = json.loads(line)
        self.last = message.get("end", self.last)
        self.number, self.doing = message.get("case", self.number), message.get("doing", self.doing)
        self.difference = message.get("difference", self.difference)
        if "answers" in message:
            self.cases += 1
            self.answers += message["answers"]
            self.designs[message["design"]] = self.designs.get(message["design"], 0) + 1
            self.widths[message["width"]] = self.widths.get(message["width"], 0) + 1


def main() -> int:
    """Run the cases in a child process and report."""
    parser = argparse.ArgumentParser(
        prog="python tools/sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--seconds", type=float, default=60, help="no case begins later (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="(default: %(default)s)")
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument(
        "--first", type=int, default=0, help="the first case (default: %(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to put the stores, one at a time (in a temporary folder)"
    )
    args = parser.parse_args()
    progress, start = Progress(number=args.first), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fpstore-sweep-", dir=args.folder) as folder:
        task = {
            "seed": args.seed,
            "case": args.case,
            "first": args.first,
            "seconds": args.seconds,
            "folder": folder,
        }
        ending = watch(task, progress)
    report = {
        "ok": ending is None,
        "cases": progress.cases,
        "answers": progress.answers,
        "seconds": round(time.perf_counter() - start, 1),
        "seed": args.seed,
        **progress.last,
        "widths": dict(sorted(progress.widths.items())),
        "designs": dict(sorted(progress.designs.items())),
    }
    if ending is not None:
        report.update(case=progress.number, doing=progress.doing, fault=ending)
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if ending is not None:
        print(
            f"\n# Case {progress.number} of seed {args.seed} again: python tools/sweep --seed "
            f"{args.seed} --case {progress.number}"
        )
        print(reproduction(args.seed, progress.number, progress.doing))
    return int(ending is not None)


def watch(task: dict[str, Any], progress: Progress) -> str | None:
    """Run the cases in a child process; return what was wrong."""
    tools = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([tools, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", "sweep.child", json.dumps(task)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    ) as child:
        assert child.stdout is not None
        hangs = _listen(child.stdout, progress)
        if hangs:
            child.send_signal(signal.SIGABRT)  # faulthandler tells where
    if progress.difference is not None:
        return progress.difference
    if hangs:
        return f"nothing was heard for {SILENT_SECONDS} seconds"
    if child.returncode < 0:
        return (
            f"the process was ended by signal {-child.returncode} "
            f"({signal.Signals(-child.returncode).name})"
        )
    return f"the process ended with status {child.returncode}" if child.returncode else None


def _listen(pipe: IO[bytes], progress: Progress) -> bool:
    """Take each line that the child prints; return whether it fell silent."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], SILENT_SECONDS)[0]:
            return True
        read = os.read(pipe.fileno(), 1 << 16)
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            progress.read(line.decode())
        if not read:
            return False


def reproduction(seed: int, number: int, doing: str) -> str:
    """Return a few lines of Python that do again what went wrong."""
    state, _, call = doing.partition(": ")
    lines = [
        "# with PYTHONPATH=tools:",
        "import tempfile, fpstore, fpstore._kernel",
        "from sweep.cases import draw",
        f"case = draw({seed}, {number})",
        'path = tempfile.mkdtemp() + "/s"',
        "store = fpstore.build(path, **case.arguments())",
    ]
    if state != "built" and state != "build":
        lines += [
            'store = fpstore.open(path, "r+")',
            'for change in case.changes["changed"]: change.apply(store)',
        ]
    if state in ("merge", "merged", "changed again", "joined"):
        lines += ["store.merge()"]
    if state in ("changed again", "joined"):
        lines += ['for change in case.changes["changed again"]: change.apply(store)']
    if state == "joined":
        lines += [
            'fpstore.build(path + "-other", **case.other()).close()',
            'store.absorb(path + "-other")',
        ]
    question = re.fullmatch(
        r"question (\d+), (\w+), threads=(\w+): (\w+)\((\d+) queries, ([^)]*)\).*", call
    )
    if question:
        place, isa, threads, verb, count, options = question.groups()
        lines += [
            f'fpstore._kernel.select_isa("{isa}")',
            f'queries = case.shape.to_array(case.question("{state}", {place}).queries[:{count}])',
            f"answer = list(store.{verb}(queries, {options}, threads={threads}))",
        ]
    return "\n".join([*lines, f"# {doing}"])
