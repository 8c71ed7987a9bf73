"""Jobs over many processes or machines, as tasks that any engine may run."""

from fpstore.jobs.dedup_job import DedupSpec
from fpstore.tasks.api import Plan, StageStatus, open_plan, remove_plan
from fpstore.tasks.build import BuildSpec
from fpstore.tasks.lsh import LshSpec
from fpstore.tasks.pairs import PairsSpec
from fpstore.tasks.probe import ProbeSpec

__all__ = [
    "BuildSpec",
    "DedupSpec",
    "LshSpec",
    "PairsSpec",
    "Plan",
    "ProbeSpec",
    "StageStatus",
    "open_plan",
    "remove_plan",
]
