"""What an engine of a cluster needs.

How a worker runs a task, and in which order tasks run.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fpstore import errors
from fpstore.base.resources import LEAST_MEMORY, parse_memory, parse_threads
from fpstore.errors import (
    FpstoreError,
    MemoryLimitError,
    StorageError,
    StoreNotFoundError,
    one_line,
)
from fpstore.plans.api import Plan, opened_once

ROUNDS = 3  # in which tasks are tried
# what may be gone when a task runs again
PASSING = {"MemoryLimitError", "StorageError", "StoreNotFoundError", "UnfinishedError"}


class Outcome(NamedTuple):
    """How a task ended in a worker: with the class and the message of its error, if it failed."""

    task: int
    error: str | None = None
    message: str | None = None


def attempt(path: str, digest: str, index: int, memory: int | None) -> Outcome:
    """Run a task of a plan in a worker.

    An error of fpstore is returned, not raised: engines wrap exceptions, shorten their messages,
    and some retry none. So is the MemoryError of Python and NumPy, as the one of fpstore.
    """
    each = (
        max(parse_memory(None) // parse_threads(None), LEAST_MEMORY) if memory is None else memory
    )
    try:
        _opened(path, digest).run(index, memory=each)
    except FpstoreError as error:
        return Outcome(index, type(error).__name__, str(error))
    except MemoryError as error:
        message = (
            f"{path}: memory ran out in task {index}: {one_line(str(error)) or 'no more is known'}"
        )
        return Outcome(index, MemoryLimitError.__name__, message)
    return Outcome(index)


def _opened(path: str, digest: str) -> Plan:
    """Return a plan; if it is not there, the error names the machine."""
    try:
        return opened_once(path, digest)
    except StoreNotFoundError:
        reached = "the plan, the inputs and the output must be where all machines reach them"
        raise StoreNotFoundError(
            f"{path}: the machine {socket.gethostname()} has no plan there: {reached}", path=path
        ) from None


def run_stages(plan: Plan, run_tasks: Callable[[list[int]], Iterable[Outcome]]) -> None:
    """Run all tasks that are left, stage by stage, with a function that runs tasks at once.

    What is published counts. Outcomes only say why something is not: a task may fail in one process
    and be done by another.
    """
    for number in range(len(plan.status())):
        _run_stage(plan, number, run_tasks)


def _run_stage(
    plan: Plan, number: int, run_tasks: Callable[[list[int]], Iterable[Outcome]]
) -> None:
    left, failed = plan.status()[number].left, list[Outcome]()
    for _ in range(ROUNDS):
        if not left or any(one.error not in PASSING for one in failed):
            break
        outcomes = run_tasks(list(left))
        left = plan.status()[number].left
        failed = [one for one in outcomes if one.error is not None and one.task in left]
    for one in sorted(failed, key=lambda one: (one.error in PASSING, one.task)):
        raise getattr(errors, str(one.error))(str(one.message))
    if left:
        message = (
            f"{plan.path}: task {left[0]} of the stage {plan.status()[number].stage} has run, and "
            "its result is not here"
        )
        raise StorageError(
            f"{message}: the plan must be where all machines reach it", path=plan.path
        )
