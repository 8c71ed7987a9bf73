"""The group ``fpstore task``: the tasks of a plan, one by one or all."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fpstore.base.arguments import printable
from fpstore.base.resources import memory_of_each
from fpstore.cli import options
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_json, print_table
from fpstore.cli.signals import advice_on_interrupt
from fpstore.cli.verb import Arguments, Verbs, fail, translate_usage_errors, verb
from fpstore.errors import plural

if TYPE_CHECKING:
    from fpstore.jobs.dedup_job import DedupSpec
    from fpstore.plans import Plan, StageStatus
    from fpstore.plans.api import Spec

PLAN = argument("plan", "PLAN")
AnySpec = TypeVar("AnySpec", bound=Any)
OPTIONS = {  # by the fields of specs, where the names differ
    "source": "inputs",
    "text": "text_field",
    "fingerprint": "fingerprint_field",
    "id": "id_field",
    "score": "score_field",
    "key": "key_field",
}
MAX_PROCESSES = 1024
SHOWN = 8  # indexes of tasks that are left
UNITS = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "d"))
PLANNING = (
    option(
        "--plan FOLDER",
        "Only write a plan to a new folder, or to an object store such as s3://bucket/plan: "
        "fpstore task runs it, one task here and another on some other machine. The output is the "
        "same. INPUT and OUTPUT may be in an object store, too.",
    ),
    option(
        "--processes N",
        "Work in N processes instead of threads, through a plan in the folder OUTPUT.plan. If the "
        "job ends early, the same command goes on.",
        whole_number(1, MAX_PROCESSES),
    ),
)
PART_BYTES = option(
    "--part-bytes SIZE",
    "About how many bytes of input a task reads, such as 64MB. By default there are about 256 "
    "parts.",
    options.BUDGET,
)


@click.command(
    cls=Verbs,
    modules={
        "Make a plan": {
            **dict.fromkeys(("build", "probe", "pairs", "join"), "task_plans"),
            "lsh": "task_lsh",
        },
        "Run a plan": dict.fromkeys(("run", "status", "finish", "remove"), "task"),
    },
)
def task() -> None:
    """Run jobs in many processes or machines.

    A plan, which these verbs and fpstore dedup --plan write, has tasks with numbers from 0 on, in
    stages. The tasks of a stage may run at once, on any machines that reach the plan, the inputs
    and the output. A stage begins when the one before is done. Any scheduler runs them:
    docs/guides/machines.md shows Slurm, Spark and a shell.

    $ fpstore task run shards.plan --processes 2
    $ fpstore task status shards.plan
    $ fpstore task finish shards.plan
    """


def _open_plan(args: Arguments) -> Plan:
    # with what processes need: fpstore dedup knows the options without it
    from fpstore.plans import open_plan

    return open_plan(args.plan)


@verb(
    PLAN,
    option(
        "--index N",
        "Run the task with this number. If its result is there, nothing is done.",
        whole_number(0, 2**31 - 1),
    ),
    option(
        "--processes N",
        "Run all remaining tasks in N processes, stage by stage.",
        whole_number(1, MAX_PROCESSES),
    ),
    *options.LIMITS,
    *options.RESULT,
)
def run(args: Arguments) -> None:
    """Run a task of a plan, or all that are left.

    A task reads what it needs, writes to a temporary file, and publishes its result at the end,
    unless another process was faster: so a task may be run again at any time. --threads are for a
    task, --memory is for all processes together.

    $ fpstore task run shards.plan --index 0 --threads 1
    $ fpstore task run shards.plan --processes 2 --memory 1GiB --json
    """
    plan = _open_plan(args)
    if (args.index is None) == (args.processes is None):
        fail("give --index for one task, or --processes for all that are left")
    if args.index is not None:
        with args.bars() as bars:
            done = plan.run(args.index, threads=args.threads, memory=args.memory, progress=bars)
        ended = "done" if done else "was done before"
        args.result(
            {"index": args.index, "was_done": not done},
            args.with_time(args.plan, f"task {args.index} {ended}"),
        )
        return
    args.refuse("is for --index: --processes divides the processors itself", "threads")
    run_all(args, plan, args.processes)
    tasks = plural(len(plan), "task")
    args.result(
        {"tasks": len(plan)},
        args.with_time(args.plan, f"{tasks} done; fpstore task finish ends the job"),
    )


def run_all(args: Arguments, plan: Plan, processes: int) -> None:
    advice = "; results of finished tasks stay in the plan: the same command goes on"
    with advice_on_interrupt(lambda: advice), args.bars() as bars:
        plan.run_all(processes, memory=args.memory, progress=bars)


@verb(PLAN, options.JSON)
def status(args: Arguments) -> None:
    """Show the stages of a plan, how many tasks are done, and how fast.

    The indexes are those of fpstore task run --index. A stage that is done in part has the first
    tasks that are left; --json has all. Its rate is that of the last 100 results, or of all since
    the stage before was done, by the times of their files, and the time left is that of this stage
    at this rate. Tasks that are begun run, or were killed: on a disk, their unfinished files are
    seen. Attempts are not recorded.

    $ fpstore task status shards.plan
    $ fpstore task status shards.plan --json
    """
    stages = _open_plan(args).status()
    if args.as_json:
        print_json([{**stage._asdict(), "seconds_left": stage.seconds_left} for stage in stages])
        return
    columns = {
        "stage": [stage.stage for stage in stages],
        "indexes": [_indexes(stage.first, stage.tasks) for stage in stages],
        "done": [f"{stage.done:,}" for stage in stages],
        "left": [f"{len(stage.left):,}" for stage in stages],
        "begun": [f"{stage.begun:,}" if stage.begun else "" for stage in stages],
        "rate": list(map(_rate, stages)),
        "time left": list(map(_time_left, stages)),
        "indexes left": list(map(_first_open_tasks, stages)),
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    words = [
        place for place, name in enumerate(shown) if name in ("stage", "indexes", "indexes left")
    ]
    print_table(
        printable(args.plan),
        list(shown),
        list(zip(*shown.values(), strict=True)),
        text_columns=words,
    )
    latest = max((stage.latest for stage in stages if stage.latest is not None), default=None)
    if latest is not None and any(map(_is_in_part, stages)):
        click.echo(
            "The last result appeared at "
            f"{time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(latest))}."
        )


def _is_in_part(stage: StageStatus) -> bool:
    return 0 < stage.done < stage.tasks


def _first_open_tasks(stage: StageStatus) -> str:
    """Return the first open tasks of a stage that is done in part."""
    hidden = f" and {len(stage.left) - SHOWN:,} more" if len(stage.left) > SHOWN else ""
    return ", ".join(map(str, stage.left[:SHOWN])) + hidden if _is_in_part(stage) else ""


def _rate(stage: StageStatus) -> str:
    """Return the rate of a stage that is done in part, in a unit with a rate of 1 or more."""
    if stage.rate is None or not _is_in_part(stage):
        return ""
    seconds, unit = next(
        (
            (seconds_of_unit, name)
            for seconds_of_unit, name in UNITS
            if stage.rate * seconds_of_unit >= 1
        ),
        UNITS[-1],
    )
    return f"{stage.rate * seconds:.1f}/{unit}"


def _time_left(stage: StageStatus) -> str:
    return (
        ""
        if stage.seconds_left is None or not _is_in_part(stage)
        else _duration(stage.seconds_left)
    )


def _duration(seconds: float) -> str:
    """Return a time in its two largest units, such as ``2 h 5 min``."""
    whole = round(seconds)
    for (size, unit), (smaller, name) in pairwise(reversed(UNITS)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {name}"
    return f"{whole} s"


def _indexes(first: int, count: int) -> str:
    return f"{first}" if count == 1 else f"{first}-{first + count - 1}"


@verb(PLAN, *options.RESULT)
def finish(args: Arguments) -> None:
    """End the job of a plan, when all tasks are done.

    Writes what appears last, such as the manifest of an output folder and the list of removed rows,
    and prints what was found. The exit code is 3 if tasks are left, and 1 if something is wrong.
    fpstore task remove removes the plan afterwards.

    $ fpstore task finish shards.plan --json
    """
    with args.bars() as bars:
        summary = _open_plan(args).finish(progress=bars)
    show_summary(args, summary)


@verb(
    PLAN,
    option(
        "--force",
        "Remove it also if its job is not finished, or another version of fpstore made it.",
    ),
    *options.RESULT,
)
def remove(args: Arguments) -> None:
    """Remove a plan, with the results of its tasks.

    The output stays. So do files of others in the folder of the plan. A folder without a plan is
    refused, and so is a plan whose job is not finished.

    $ fpstore task remove shards.plan --force --json
    """
    from fpstore.plans import remove_plan

    foreign = remove_plan(args.plan, force=args.force)
    if foreign:
        args.note(
            f"{args.plan}: {plural(len(foreign), 'file')} of others "
            f"stay{'s' if len(foreign) == 1 else ''}: {foreign[0]}"
        )
    args.result({"removed": args.plan, "others": foreign}, args.with_time(args.plan, "removed"))


def show_summary(args: Arguments, summary: dict[str, Any]) -> None:
    args.result(summary)
    if not (args.as_json or args.quiet):
        rows = [
            (name.replace("_", " "), value if isinstance(value, str) else f"{value:,}")
            for name, value in summary.items()
            if value is not None and name != "sources"
        ]
        print_table("Done", ("", ""), rows)
        if "sources" in summary:
            from fpstore.cli.sources import print_sources

            print_sources(summary["sources"])


def read_spec(kind: type[AnySpec], args: Arguments, **values: Any) -> AnySpec:
    """Return a spec of these values and of the options of the command line."""
    for field in fields(kind):
        value = getattr(args, OPTIONS.get(field.name, field.name), None)
        if value is not None:
            values.setdefault(field.name, value)
    with translate_usage_errors():
        spec: AnySpec = kind(**values)
    return spec


def make_plan(args: Arguments, spec: Spec, **sizes: Any) -> None:
    with translate_usage_errors():
        plan = planned(spec, args.plan, **sizes)
    show_plan(args, plan)


def show_plan(args: Arguments, plan: Plan) -> None:
    stages = plan.status()
    done, path = sum(stage.done for stage in stages), printable(args.plan)
    line = (
        f"{plural(len(plan), 'task')} in {plural(len(stages), 'stage')} "
        f"planned{f', {done:,} of them done' if done else ''}"
    )
    then = (
        f"run {path} --processes N runs them" if done < len(plan) else f"finish {path} ends the job"
    )
    record = {
        "plan": plan.path,
        "digest": plan.digest,
        "stages": [stage._asdict() for stage in stages],
    }
    args.result(record, f"{args.with_time(args.plan, line)}\nfpstore task {then}")


def plan_or_run(args: Arguments, spec: DedupSpec, **sizes: Any) -> None:
    from fpstore.plans.replacing import replacing_outputs
    from fpstore.work.places import full_uri

    if args.plan is not None:
        args.refuse(
            "is for work, and --plan only writes a plan",
            "processes",
            "threads",
            "memory",
            "overwrite",
        )
        show_plan(args, planned(spec, args.plan, **sizes))
        return
    args.refuse("does not go with --processes, which divides the processors itself", "threads")
    with translate_usage_errors():  # before anything is written
        memory_of_each(args.memory, args.processes)
    folder = f"{full_uri(args.output, 'output').rstrip('/')}.plan"
    replaces = replacing_outputs(spec, Path(folder)) if args.overwrite else nullcontext(spec)
    with replaces as new_spec:
        plan = planned(new_spec, folder, **sizes)
        run_all(args, plan, args.processes)
        summary = plan.finish(remove=True)
    show_summary(args, summary)


def planned(spec: Spec, folder: str | None, **sizes: Any) -> Plan:
    from fpstore.plans import Plan

    return Plan.of(spec, folder, **sizes)
