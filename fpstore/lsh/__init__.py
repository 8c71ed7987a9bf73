"""Indexes of locality-sensitive hash functions: keys of bands find candidates, signatures check them."""

from fpstore.lsh.check import Law, check_family
from fpstore.lsh.plan import LshPlan, plan

__all__ = ["Law", "LshPlan", "check_family", "plan"]
