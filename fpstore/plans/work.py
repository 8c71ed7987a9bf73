"""The work of a kind of plan: its stages, and the function of each task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar, Self, TypeVar

from fpstore.base.arguments import check_whole
from fpstore.base.resources import Resources
from fpstore.errors import InputError
from fpstore.format.manifest import IDENTITY_BYTES
from fpstore.jobs.row_spec import RESOLVED, Spec
from fpstore.plans.outputs import Output
from fpstore.work.folder import PlanFolder, Stage
from fpstore.work.pieces import PieceWriter

Task = TypeVar("Task", bound=Callable[..., None])


def stage(*names: str) -> Callable[[Task], Task]:
    """Register a method of :class:`Work` for the tasks of stages.

    A stage ``name-2`` is a round of the stage ``name``, and has the same method.
    """

    def register(task: Task) -> Task:
        task.stages = names  # type: ignore[attr-defined]
        return task

    return register


@dataclass(frozen=True)
class Sizes(Spec):
    """The approximate sizes of tasks; None stands for a default that depends on the inputs.

    See :meth:`fpstore.plans.Plan.of`.
    """

    part_bytes: int | None = None
    slice_rows: int | None = None
    star_rows: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slice_rows is not None:
            check_whole(self.slice_rows, 1, 1 << 40, "slice_rows")
        if self.star_rows is not None:
            check_whole(self.star_rows, 0, 1 << 62, "star_rows")


@dataclass(kw_only=True, eq=False)
class Work(ABC):
    """The work that follows from a spec and its inputs; the plan holds its fields as JSON.

    Attributes
    ----------
    kind : str
        The name of the kind, in plans.
    sizes : tuple of str
        The fields of :class:`Sizes` that it takes.
    tasks : dict of str to callable
        The function of each stage, ``task(work, number, writer, resources)``. It writes a result
        that depends on the plan and on the results of earlier stages only.
    plan : PlanFolder
        Where the plan is, once it is written.
    """

    kind: ClassVar[str]
    sizes: ClassVar[tuple[str, ...]]
    tasks: ClassVar[dict[str, Callable[..., None]]]
    output: Output
    plan: PlanFolder = field(init=False, repr=False, metadata=RESOLVED)

    def __init_subclass__(cls) -> None:
        cls.tasks = {
            name: task for task in vars(cls).values() for name in getattr(task, "stages", ())
        }

    @classmethod
    @abstractmethod
    def from_spec(cls, spec: Any, sizes: Sizes) -> Self:
        """Plan the work of a spec; InputError if a field is wrong."""

    @abstractmethod
    def stages(self) -> list[Stage]:
        """Return the stages in the order in which they run."""

    @abstractmethod
    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the last files of the output, when all tasks are done; return a summary."""

    @classmethod
    def check_sizes(cls, sizes: Sizes) -> None:
        """Raise InputError for a size that tasks of this kind do not have."""
        for name, value in vars(sizes).items():
            if value is not None and name not in cls.sizes:
                raise InputError(f"{name} is not for a plan of the kind {cls.kind}", got=value)

    def run(self, name: str, number: int, writer: PieceWriter, resources: Resources) -> None:
        self.tasks[name.rstrip("-0123456789")](self, number, writer, resources)

    def is_finished(self) -> bool:
        """Whether the job has ended, and its whole output is there."""
        return len(self.plan.done()) == self.plan.tasks and self.output.is_finished(
            self.plan.digest
        )

    def identity(self, store: object) -> bytes:
        """Return the identity of a store that the plan makes, the same in each process."""
        return blake2b(f"{self.plan.digest} {store}".encode(), digest_size=IDENTITY_BYTES).digest()
