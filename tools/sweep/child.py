"""Runs cases one after the other, in a process of its own.

Prints a line of JSON for whatever it begins or has found.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import fpstore
from sweep.asking import run
from sweep.cases import draw


def tell(**what: Any) -> None:
    """Print a line that the process which watches this one takes."""
    print(json.dumps(what), flush=True)


def main(task: dict[str, Any]) -> None:
    """Run one case, or case after case until the time is over."""
    end = time.perf_counter() + task["seconds"]
    numbers = itertools.count(task["first"]) if task["case"] is None else [task["case"]]
    for number in numbers:
        if time.perf_counter() > end:
            break
        tell(case=number, doing="draw")
        folder = Path(task["folder"]) / "stores"
        folder.mkdir()
        try:
            case = draw(task["seed"], number)
            answers = run(case, folder / "store", lambda doing: tell(doing=doing))
        except Exception as error:
            tell(difference=f"{type(error).__name__}: {error}")
            traceback.print_exc()
            sys.exit(1)
        shutil.rmtree(folder)
        tell(answers=answers, design=case.design, width=case.shape.bits)
    tell(end={"package": fpstore.__file__, "most_resident_bytes": _most_resident()})


def _most_resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
