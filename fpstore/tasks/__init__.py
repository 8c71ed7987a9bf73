"""Jobs over many processes or machines, as tasks that any engine may run."""

from fpstore.tasks.api import Plan, StageStatus, open_plan, plan_dedup

__all__ = ["Plan", "StageStatus", "open_plan", "plan_dedup"]
