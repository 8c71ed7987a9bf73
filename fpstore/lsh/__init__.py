"""Indexes of locality-sensitive hash functions: keys of bands find candidates, signatures check them."""

from fpstore.lsh.plan import LshPlan, plan

__all__ = ["LshPlan", "plan"]
