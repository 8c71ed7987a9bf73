"""Plans on Apache Spark: PySpark 3.5 or 4, also over Spark Connect.

Spark carries paths and the numbers of tasks, and no rows: tasks read and write files themselves,
and rows of one key meet in files in the folder of the plan. So no shuffle of Spark takes part, and
the output has the bytes that one process writes, in any order of tasks, after retries and with
speculation. Only DataFrames are used: no SparkContext, no RDDs, no broadcasts.

Each worker needs fpstore, pyarrow and NumPy in the versions that the plan was made with, and
pandas, without which PySpark hands Arrow data to no function. The plan, the inputs and the output
are where the driver and all workers reach them by the same names: in a folder that machines share,
or in an object store.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from fpstore.base.resources import parse_memory
from fpstore.errors import InputError, MissingExtraError, show
from fpstore.io.arrow import import_pyarrow
from fpstore.plans import Plan, open_plan
from fpstore.plans.api import PathLike
from fpstore.plans.engines import Outcome, attempt, run_stages

# of an Outcome, in the order of its fields
COLUMNS = {"task": "bigint", "error": "string", "message": "string"}

_MISSING_PACKAGE = re.compile(r"No module named '(fpstore|numpy|pandas|pyarrow)'")


def run(plan: Plan | PathLike, spark: Any, *, memory: int | str | None = None) -> None:
    """Run all remaining tasks of a plan, stage by stage; a task has one thread.

    A task that fails for lack of memory, or by an error of a file system, is tried three times.
    Spark restarts tasks whose process has ended, as often as it is set to (``local[N]`` never
    does). Results stay: run again.

    Parameters
    ----------
    plan : Plan or path-like
        A plan of any kind, or where it is.
    spark : pyspark.sql.SparkSession
        Of this process or of Spark Connect.
    memory : int or str, optional
        For each task, such as ``"2GiB"``; by default a quarter of the memory of its machine, or
        control group, divided by the processors there.

    Raises
    ------
    InputError
        ``spark`` is no session; or an input has changed since the plan was made.
    StoreNotFoundError
        There is no plan, or a worker does not reach it.
    FormatVersionError
        A worker has other versions of fpstore, NumPy or pyarrow.
    MissingExtraError
        The workers run a Python without one of these, or without pandas.
    CorruptStoreError
        The result of an earlier task is damaged, or of another plan.
    StorageError
        A file cannot be read or written.

    Examples
    --------
    With a session of Spark::

        from fpstore.plans import DedupSpec, Plan

        spec = DedupSpec("s3://bucket/pages", "s3://bucket/clean", text="text", id="url")
        plan = Plan.of(spec)  # in s3://bucket/clean.plan
        fpstore.spark.run(plan, spark, memory="2GiB")
        plan.finish(remove=True)
    """
    task_memory = _task_memory(spark, memory)
    opened = plan if isinstance(plan, Plan) else open_plan(plan)

    def run_tasks(indexes: list[int]) -> list[Outcome]:
        function = partial(_outcomes, opened.path, opened.digest, indexes, task_memory)
        schema = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        # One number in each partition; repartition() would put several numbers in some and none in
        # others.
        numbers = spark.range(0, len(indexes), 1, len(indexes))
        try:
            rows = numbers.mapInArrow(function, schema).collect()
        except Exception as error:  # PySpark has other classes for each kind of session
            missing = _MISSING_PACKAGE.search(str(error))
            if missing is None:
                raise
            raise MissingExtraError(
                f"Spark's workers run a Python without {missing[1]}: before the session starts, "
                "set PYSPARK_PYTHON, or "
                f"spark.pyspark.python, to one that has it, such as {sys.executable} on this "
                "machine"
            ) from error
        return [Outcome(*row) for row in rows]

    run_stages(opened, run_tasks)


def _task_memory(spark: Any, memory: int | str | None) -> int | None:
    """Check the session; return the memory of a task in bytes."""
    if not hasattr(spark, "createDataFrame"):
        raise InputError(f"spark must be a SparkSession, got {show(spark)}", argument="spark")
    return None if memory is None else parse_memory(memory)


def _outcomes(
    path: str, digest: str, indexes: list[int], memory: int | None, batches: Iterable[Any]
) -> Iterator[Any]:
    """Run tasks in a worker; the Arrow batches have their places in the list of indexes."""
    arrow = import_pyarrow(path, "a plan")
    types = {"bigint": arrow.int64(), "string": arrow.string()}
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    for batch in batches:
        for place in batch.column(0).to_pylist():
            outcome = attempt(path, digest, indexes[place], memory)
            yield arrow.RecordBatch.from_pylist([outcome._asdict()], schema)
