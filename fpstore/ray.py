"""Plans on Ray: each task of a plan is a task of Ray.

As on Spark, Ray carries paths and the numbers of tasks, and no rows.

Each worker needs fpstore, pyarrow and NumPy in the versions that the plan was made with. The plan,
the inputs and the output are where the driver and all workers reach them by the same names: in a
folder that machines share, or in an object store.
"""

from __future__ import annotations

from fpstore.base.resources import parse_memory
from fpstore.io.packages import import_package
from fpstore.plans import Plan, open_plan
from fpstore.plans.api import PathLike
from fpstore.plans.engines import Outcome, attempt, run_stages


def run(plan: Plan | PathLike, *, memory: int | str | None = None) -> None:
    """Run all remaining tasks of a plan, stage by stage, on the cluster of :func:`ray.init`.

    A task has one processor.

    A task that fails for lack of memory, or by an error of a file system, is tried three times. Ray
    restarts tasks whose process or machine is gone. Results stay: run again.

    Parameters
    ----------
    plan : Plan or path-like
        A plan of any kind, or where it is.
    memory : int or str, optional
        For each task, such as ``"2GiB"``; by default a quarter of the memory of its machine, or
        control group, divided by the processors there.

    Raises
    ------
    MissingExtraError
        Ray is not installed.
    FpstoreError
        A task failed, as for :func:`fpstore.spark.run`.

    Examples
    --------
    On a cluster of Ray::

        fpstore.ray.run("/shared/clean.plan", memory="2GiB")
    """
    remote = import_package("ray", "fpstore.ray")
    opened = plan if isinstance(plan, Plan) else open_plan(plan)
    task_memory = None if memory is None else parse_memory(memory)
    task = remote.remote(num_cpus=1)(attempt)

    def run_tasks(indexes: list[int]) -> list[Outcome]:
        outcomes: list[Outcome] = remote.get(
            [task.remote(opened.path, opened.digest, index, task_memory) for index in indexes]
        )
        return outcomes

    run_stages(opened, run_tasks)
