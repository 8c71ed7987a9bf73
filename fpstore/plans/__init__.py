"""Jobs over many processes or machines, as tasks that any engine may run."""

from fpstore.jobs.dedup_job import DedupSpec
from fpstore.plans.api import Plan, StageStatus, open_plan, remove_plan
from fpstore.plans.build import BuildSpec
from fpstore.plans.lsh import LshSpec
from fpstore.plans.pairs import PairsSpec
from fpstore.plans.probe import ProbeSpec

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
