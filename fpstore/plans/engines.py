"""Tasks on engines of clusters: how a worker runs a task, and the order of the stages."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fpstore import errors
from fpstore.base.resources import MIN_MEMORY, parse_memory, parse_threads
from fpstore.errors import (
    FpstoreError,
    MemoryLimitError,
    StorageError,
    StoreNotFoundError,
    one_line,
)
from fpstore.plans.api import Plan, open_plan_once

ROUNDS = 3  # in which tasks are tried
# errors that may not occur again
PASSING = {"MemoryLimitError", "StorageError", "StoreNotFoundError", "UnfinishedError"}


class Outcome(NamedTuple):
    """The end of a task in a worker: the class and the message of its error, if it failed."""

    task: int
    error: str | None = None
    message: str | None = None


def attempt(path: str, digest: str, index: int, memory: int | None) -> Outcome:
    """Run a task of a plan in a worker.

    An error of fpstore is returned, not raised: engines wrap exceptions, shorten their messages,
    and some retry none. A MemoryError of Python or NumPy is returned as the one of fpstore.
    """
    task_memory = (
        max(parse_memory(None) // parse_threads(None), MIN_MEMORY) if memory is None else memory
    )
    try:
        _open_plan(path, digest).run(index, memory=task_memory)
    except FpstoreError as error:
        return Outcome(index, type(error).__name__, str(error))
    except MemoryError as error:
        message = (
            f"{path}: memory ran out in task {index}: {one_line(str(error)) or 'no more is known'}"
        )
        return Outcome(index, MemoryLimitError.__name__, message)
    return Outcome(index)


def _open_plan(path: str, digest: str) -> Plan:
    """Open a plan; the error for a missing one names the machine."""
    try:
        return open_plan_once(path, digest)
    except StoreNotFoundError:
        reached = "the plan, the inputs and the output must be where all machines reach them"
        raise StoreNotFoundError(
            f"{path}: the machine {socket.gethostname()} has no plan there: {reached}", path=path
        ) from None


def run_stages(plan: Plan, run_tasks: Callable[[list[int]], Iterable[Outcome]]) -> None:
    """Run all remaining tasks, stage by stage, with a function that runs tasks at once.

    Published results count. Outcomes only say why a result is missing: a task may fail in one
    process and succeed in another.
    """
    for number in range(len(plan.status())):
        _run_stage(plan, number, run_tasks)


def _run_stage(
    plan: Plan, number: int, run_tasks: Callable[[list[int]], Iterable[Outcome]]
) -> None:
    remaining, failed = plan.status()[number].left, list[Outcome]()
    for _ in range(ROUNDS):
        if not remaining or any(outcome.error not in PASSING for outcome in failed):
            break
        outcomes = run_tasks(list(remaining))
        remaining = plan.status()[number].left
        failed = [
            outcome
            for outcome in outcomes
            if outcome.error is not None and outcome.task in remaining
        ]
    if failed:
        outcome = min(failed, key=lambda outcome: (outcome.error in PASSING, outcome.task))
        raise getattr(errors, str(outcome.error))(str(outcome.message))
    if remaining:
        stage = plan.status()[number].stage
        message = (
            f"{plan.path}: task {remaining[0]} of the stage {stage} has run, and its result is not "
            "here"
        )
        raise StorageError(
            f"{message}: the plan must be where all machines reach it", path=plan.path
        )
