"""LSH indexes: near-duplicates by keys of bands and signatures, for hashers that have a law."""

from __future__ import annotations

from fpstore.lsh.answers import Match, Matches
from fpstore.lsh.api import build
from fpstore.lsh.plan import LshPlan, plan
from fpstore.lsh.store import LshStore

__all__ = [
    "LshPlan",
    "LshStore",
    "Match",
    "Matches",
    "build",
    "plan",
]
