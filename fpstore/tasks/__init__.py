"""Jobs over many processes or machines, as tasks that any engine may run."""

from fpstore.tasks.api import Plan, StageStatus, open_plan, remove_plan
from fpstore.tasks.lsh_planning import plan_lsh
from fpstore.tasks.planning import plan_build, plan_dedup, plan_join, plan_pairs, plan_probe

__all__ = [
    "Plan",
    "StageStatus",
    "open_plan",
    "plan_build",
    "plan_dedup",
    "plan_join",
    "plan_lsh",
    "plan_pairs",
    "plan_probe",
    "remove_plan",
]
