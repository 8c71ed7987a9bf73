"""What the tasks of a kind of plan do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Any

from fpstore.base.resources import Resources
from fpstore.format.manifest import IDENTITY_BYTES
from fpstore.tasks.inputs import InputSpec, Part
from fpstore.tasks.outputs import Output
from fpstore.tasks.pieces import PieceWriter
from fpstore.tasks.plan import PlanFolder


class Work(ABC):
    """The tasks of a plan.

    The method that has the name of a stage, behind an underscore, does one of its tasks.
    """

    def __init__(self, plan: PlanFolder) -> None:
        self._plan, self._asked = plan, plan.asked
        self._inputs = [InputSpec(*spec) for spec in plan.asked.get("inputs", ())]
        self._parts = [Part(*part) for part in plan.asked.get("parts", ())]
        self._output = Output(**plan.asked["output"])

    def run(self, stage: str, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Do a task: its result is what it writes, and a function of the plan and of the results of earlier stages."""
        getattr(self, f"_{stage}")(number, writer, resources)

    def is_finished(self) -> bool:
        """Whether the job has ended, and all that it writes is there."""
        return len(self._plan.done()) == self._plan.tasks and self._output.is_finished(
            self._plan.digest
        )

    def _identity(self, what: object) -> bytes:
        """Return the identity of a store that the plan makes, so that whoever makes it writes the same bytes."""
        return blake2b(f"{self._plan.digest} {what}".encode(), digest_size=IDENTITY_BYTES).digest()

    @abstractmethod
    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write what becomes visible last, when all tasks are done; return a summary."""
