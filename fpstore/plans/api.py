"""Plans as users hold them: tasks that run anywhere, and the end of a job."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, NamedTuple

from fpstore.base import keywords
from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_progress, check_whole
from fpstore.base.keywords import keyword
from fpstore.base.resources import (
    Resources,
    make_resources,
    memory_of_each,
    parse_size,
    parse_threads,
)
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    InputError,
    StorageError,
    StoreExistsError,
    UnfinishedError,
    show,
)
from fpstore.jobs.dedup_job import DedupSpec
from fpstore.plans.build import BuildSpec, BuildWork
from fpstore.plans.dedup import DedupWork
from fpstore.plans.lsh import LshSpec, LshWork
from fpstore.plans.pairs import PairsSpec, PairsWork
from fpstore.plans.probe import ProbeSpec, ProbeWork
from fpstore.plans.records import as_json, from_json
from fpstore.plans.work import Sizes, Work
from fpstore.work.checkpoint import KIND as CHECKPOINT
from fpstore.work.folder import PLAN_FILE, PlanFolder, Stage, remove_files
from fpstore.work.places import full_uri, open_place

PathLike = str | os.PathLike[str]
_SIGNAL_OF_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
WORKS: dict[type, type[Work]] = {
    DedupSpec: DedupWork,
    BuildSpec: BuildWork,
    ProbeSpec: ProbeWork,
    PairsSpec: PairsWork,
    LshSpec: LshWork,
}
Spec = DedupSpec | BuildSpec | ProbeSpec | PairsSpec | LshSpec
KINDS = {work.kind: work for work in WORKS.values()}
RECENT = 100  # results that a rate counts


class StageStatus(NamedTuple):
    """The status of a stage of a plan.

    Attributes
    ----------
    stage : str
    first : int
        The index of its first task.
    tasks, done : int
        The number of its tasks, and of those that are done.
    left : tuple of int
        The indexes of the tasks that are not done.
    latest : float or None
        The time of the last result, in seconds since 1970.
    rate : float or None
        Results per second: of the last 100, or since the previous stage was done. The first stage
        counts from the time of the plan.
    begun : int
        Tasks that are not done and have an unfinished file: they run, or were killed. In an object
        store this is 0.
    """

    stage: str
    first: int
    tasks: int
    done: int
    left: tuple[int, ...]
    latest: float | None = None
    rate: float | None = None
    begun: int = 0

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the remaining tasks take at this rate; None if it is unknown."""
        return (self.tasks - self.done) / self.rate if self.rate else None


class Plan:
    """A job, cut into tasks: made by :meth:`of`, opened by :func:`open_plan`.

    Tasks have indexes from 0 on, through all stages. Those of one stage may run at once, in any
    order, on any machine that reaches the folder of the plan, the inputs and the output. A stage
    needs the results of the stages before. The result of a task is a function of the plan: it may
    run twice, also at once, and the first result that is complete counts.

    Attributes
    ----------
    path : str
        The folder, or its URI.
    digest : str
        A digest of the whole plan, in hexadecimal.
    """

    def __init__(self, folder: PlanFolder) -> None:
        self._folder = folder
        try:
            self._work: Work = from_json(KINDS[folder.kind], folder.work)
        except FpstoreError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # the digest is right: who wrote it knows more
            where = folder.place.label(PLAN_FILE)
            raise FormatVersionError(
                f"{where}: was made by another fpstore: make the plan anew", path=where
            ) from error
        self._work.plan = folder
        self.path, self.digest = folder.place.uri, folder.digest

    @classmethod
    def of(
        cls,
        spec: Spec,
        folder: PathLike | None = None,
        *,
        part_bytes: int | str | None = None,
        slice_rows: int | None = None,
        star_rows: int | None = None,
    ) -> Plan:
        r"""Plan a job of any kind: write its tasks to a folder, and claim its output.

        The stages of a deduplication of texts are hash, equal, sample, pairs, candidates, check,
        components, members, decide and copy; where fingerprints decide, links stands for the five
        behind hash. A list of removed rows adds ranks, clusters and list. `Beyond one machine` in
        the guide says what they read and write.

        Parameters
        ----------
        spec : DedupSpec, BuildSpec, ProbeSpec, PairsSpec or LshSpec
            The job.
        folder : path-like, optional
            A new folder for the plan and the results of its tasks, or its URI in an object store,
            as in ``s3://bucket/plans/one``: settings and credentials come from the environment. It
            may hold the same plan already, which goes on. By default ``OUTPUT.plan``.
        part_bytes : int or str, optional
            About how many bytes of input a task reads, not for pairs: small files together, large
            files of Parquet and raw numbers in pieces; other files are not cut. By default there
            are 256 parts, of 16 to 256 MiB, and no more than 4,096.
        slice_rows : int, optional
            About how many rows a task compares, of a deduplication or of pairs. By default 4
            million, or more if there were more than 512 slices. `Beyond one machine` says how much
            memory that takes.
        star_rows : int, optional
            Of more rows than this, by default 200 million, the components of a deduplication are
            found by many tasks in rounds of large-star and small-star, and not by one task.

        Returns
        -------
        Plan

        Raises
        ------
        InputError
            A field of the spec is wrong, a column is missing or has a wrong type, the output is in
            a folder of the inputs or of the plan, or a size is not for such a plan.
        StoreExistsError
            The output exists, or the folder has another plan, or other files.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from fpstore.plans import DedupSpec, Plan
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> lines = "url,hash", "a,00ff00ff00ff00ff", "b,00ff00ff00ff00fe", "c,123456789abcdef0"
        >>> _ = (folder / "pages.csv").write_text("\n".join(lines) + "\n")
        >>> spec = DedupSpec(folder / "pages.csv", folder / "clean.csv", fingerprint="hash")
        >>> plan = Plan.of(spec)
        >>> [plan.run(index) for index in range(len(plan))]
        [True, True, True, True, True, True]
        >>> plan.finish()["kept"], (folder / "clean.csv").read_text().split()
        (2, ['url,hash', 'a,00ff00ff00ff00ff', 'c,123456789abcdef0'])
        """
        kind = WORKS.get(type(spec))
        if kind is None:
            names = ", ".join(spec_type.__name__ for spec_type in WORKS)
            raise InputError(f"spec must be one of {names}, got {show(spec)}", got=spec)
        kind.check_sizes(
            sizes := Sizes(
                None if part_bytes is None else parse_size(part_bytes, "part_bytes"),
                slice_rows,
                star_rows,
            )
        )
        if folder is None:
            folder = f"{full_uri(spec.output, 'output').rstrip('/')}.plan"
        place, work = open_place(folder), kind.from_spec(spec, sizes)
        return cls(work.output.create_plan(place, kind.kind, as_json(work), work.stages()))

    def __len__(self) -> int:
        """Return the number of tasks."""
        return self._folder.tasks

    def __repr__(self) -> str:
        return f"<fpstore.plans.Plan {self.path}: {self._folder.kind}, {len(self):,} tasks>"

    def status(self) -> list[StageStatus]:
        """Return which tasks of each stage are done, and at which rate, in order."""
        times, begun = self._folder.times(), self._folder.unfinished()
        previous, stages = self._folder.place.times(PLAN_FILE).get(PLAN_FILE, 0.0), []
        for stage, indexes in self._folder.task_ranges():
            ended = [previous, *sorted(times[index] for index in indexes if index in times)]
            recent = ended[-RECENT - 1 :]
            passed, previous = recent[-1] - recent[0], ended[-1]
            rate = (len(recent) - 1) / passed if passed > 0 and ended[1:] else None
            latest = ended[-1] if ended[1:] else None
            remaining = tuple(index for index in indexes if index not in times)
            unfinished = len(begun.intersection(remaining))
            stages.append(
                StageStatus(
                    stage.name,
                    indexes.start,
                    stage.tasks,
                    len(ended) - 1,
                    remaining,
                    latest,
                    rate,
                    unfinished,
                )
            )
        return stages

    def run(
        self,
        index: int,
        *,
        threads: int | None = 1,
        memory: int | str | None = None,
        progress: Progress | None = None,
    ) -> bool:
        """Run a task in this process, unless it is done.

        Parameters
        ----------
        index : int
            The number of the task, from 0.
        threads, memory, progress : optional
            As for :func:`fpstore.build`. The result does not depend on them.

        Returns
        -------
        bool
            Whether the task has run now; False if it has a result.

        Raises
        ------
        InputError
            There is no such task, or an input has changed since the plan was made.
        UnfinishedError
            A task of an earlier stage has not run.
        CorruptStoreError
            The result of an earlier task is damaged, or of another plan.
        StorageError
            A file cannot be read or written; nothing is published.
        """
        index = check_whole(index, 0, max(len(self) - 1, 0), "index")
        with self._name_tasks():
            return self._folder.run(
                self._work.run, index, make_resources(memory, threads, progress)
            )

    def run_all(
        self,
        processes: int | None = None,
        *,
        memory: int | str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Run all remaining tasks, stage by stage, in processes of this machine.

        A process has one thread, or several in a stage with fewer tasks than processes. It imports
        the script that calls this: put the call under ``if __name__ == "__main__":``.

        Parameters
        ----------
        processes : int, optional
            By default one for each processor.
        memory : int or str, optional
            For all processes together; by default a quarter of the machine's memory.
        progress : callable, optional
            Called as ``progress(stage, done, total)`` with tasks.

        Raises
        ------
        FpstoreError
            A task failed, as in :meth:`run`; tasks that run are ended well, and no others begin.
        InputError
            The call is not under ``if __name__ == "__main__":``, so that no process begins.
        StorageError
            The system has ended a process, perhaps for lack of memory. Results stay.
        """
        count = parse_threads(processes, "processes")
        task_memory = memory_of_each(memory, count)
        check_progress(progress)
        done = self._folder.done()
        context = get_context("spawn")
        has_begun = context.RawValue("b", 0)
        with ProcessPoolExecutor(
            count, context, _begin_process, (os.getpid(), has_begun, keywords.options)
        ) as pool:
            for stage, indexes in self._folder.task_ranges():
                remaining = [index for index in indexes if index not in done]
                # the tasks of a small stage share the threads of all processes
                threads = max(count // max(len(remaining), 1), 1)
                resources = Resources(task_memory * threads, threads, progress)
                try:
                    _run_stage(pool, self, stage, remaining, resources)
                except BrokenProcessPool as error:
                    raise _pool_error(self.path, stage.name, bool(has_begun.value)) from error
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

    def finish(self, *, remove: bool = False, progress: Progress | None = None) -> dict[str, Any]:
        """Write the last files of the output, when all tasks are done, and return a summary.

        Finishing twice is allowed.

        Parameters
        ----------
        remove : bool
            Also remove the plan, as :meth:`remove` does.
        progress : callable, optional
            As for :func:`fpstore.build`.

        Raises
        ------
        UnfinishedError
            A task has not run.
        """
        with self._name_tasks():
            summary = self._work.finish(make_resources(None, None, progress))
        if check_flag(remove, "remove"):
            self.remove()
        return summary

    @contextmanager
    def _name_tasks(self) -> Iterator[None]:
        """Add the index of its task to the error of a damaged result."""
        try:
            yield
        except CorruptStoreError as error:
            index = self._folder.result_index(str(error.path))
            if index is None:
                raise
            raise CorruptStoreError(
                f"{error} ({keyword('index', index)})", path=error.path
            ) from error

    def is_finished(self) -> bool:
        """Whether all tasks are done, and :meth:`finish` has ended the job.

        Then the plan may be removed.
        """
        return self._work.is_finished()

    def remove(self, *, force: bool = False) -> list[str]:
        """Remove the plan and the results of its tasks.

        The output stays, and so do other files in its folder.

        Parameters
        ----------
        force : bool
            Also if the job is not finished.

        Returns
        -------
        list of str
            The names of the other files.

        Raises
        ------
        UnfinishedError
            The job is not finished, or its output is gone.
        """
        if not (force or self.is_finished()):
            unfinished = (
                "its job is not finished, or the output is gone: finish it, or remove the plan "
                f"with {keyword('force', True)}"
            )
            raise UnfinishedError(f"{self.path}: {unfinished}", path=self.path)
        return self._folder.remove()


def _run_stage(
    pool: ProcessPoolExecutor,
    plan: Plan,
    stage: Stage,
    indexes: list[int],
    resources: Resources,
) -> None:
    """Run tasks of a stage, each with its resources."""
    memory, threads, _ = resources
    running = [
        pool.submit(_run_in_process, plan.path, plan.digest, index, threads, memory)
        for index in indexes
    ]
    for done, job in enumerate(as_completed(running), stage.tasks - len(running) + 1):
        job.result()
        resources.report(stage.name, done, stage.tasks)


def _pool_error(path: str, stage: str, has_begun: bool) -> FpstoreError:
    """Return the error of a pool whose process has ended, perhaps before its first task."""
    if not has_begun:
        return InputError(
            f"{path}: no process could begin: each imports the script that calls run_all, which "
            'ended it: put the call under if __name__ == "__main__":'
        )
    message = (
        f"{path}: a process was ended while it ran a task of the stage {stage}; what is done is "
        "kept: run again"
    )
    return StorageError(f"{message}, with fewer processes if memory was short", path=path)


def _begin_process(parent: int, has_begun: Any, options: Mapping[str, str] | None) -> None:
    """Note that a process has begun, and end it when its parent is killed.

    Else it would wait for tasks forever. Tasks may be killed at any time.
    """
    has_begun.value = 1
    keywords.options = options
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _run_in_process(path: str, digest: str, index: int, threads: int, memory: int) -> bool:
    return open_plan_once(path, digest).run(index, threads=threads, memory=memory)


@lru_cache(maxsize=4)
def open_plan_once(path: str, digest: str) -> Plan:
    """Open a plan once for all tasks of a worker."""
    plan = open_plan(path)
    if plan.digest != digest:
        raise StoreExistsError(
            f"{path}: holds another plan than the one that was begun", path=path, expected=digest
        )
    return plan


def open_plan(path: PathLike) -> Plan:
    """Open a plan.

    Parameters
    ----------
    path : path-like
        The folder of the plan, or its URI in an object store that pyarrow knows, such as
        ``s3://bucket/plans/one``.

    Returns
    -------
    Plan

    Raises
    ------
    StoreNotFoundError
        There is no plan.
    FormatVersionError
        The plan is of another version, or was made by another version of fpstore, NumPy or pyarrow,
        whose results may differ.
    CorruptStoreError
        The plan is damaged, or was changed by hand.
    InputError
        The folder is that of a job that can be resumed.
    """
    folder = PlanFolder.open(open_place(path))
    if folder.kind == CHECKPOINT:
        raise InputError(
            f"{folder.place.uri}: is the folder of a job that can be resumed, not a plan: run the "
            f"same job again, with {keyword('resume')}",
            path=folder.place.uri,
        )
    return Plan(folder)


def remove_plan(path: PathLike, *, force: bool = False) -> list[str]:
    """Remove a plan as :meth:`Plan.remove` does, also one that this version of fpstore cannot open.

    Parameters
    ----------
    path : path-like
        The folder of the plan, or its URI.
    force : bool
        Also if the job is not finished, or another version made the plan.

    Returns
    -------
    list of str
        The names of the other files in its folder, which stay.

    Raises
    ------
    StoreNotFoundError
        There is no plan.
    FormatVersionError
        Another version made the plan, and `force` is false.
    UnfinishedError
        The job is not finished, or its output is gone, and `force` is false.
    """
    try:
        plan = open_plan(path)
    except FormatVersionError as error:
        if not force:
            raise FormatVersionError(
                f"{error}; or remove it with {keyword('force', True)}", path=error.path
            ) from error
        return remove_files(open_place(path))
    return plan.remove(force=force)
