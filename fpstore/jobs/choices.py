"""What can be asked of groups and deduplications: a module of its own, because the command line needs it at its start."""

from __future__ import annotations

from dataclasses import dataclass

GROUPINGS = ("connected", "greedy")
REPRESENTATIVES = ("first", "smallest", "central")  # of the groups of a store
KEPT = (*REPRESENTATIVES, "highest")  # of the groups of a corpus, whose documents can have scores
UNKNOWN = ("keep", "drop", "refuse")  # what becomes of a document that cannot be compared


@dataclass(frozen=True)
class Rules:
    """What a duplicate is in a corpus, and which of its group is kept.

    Attributes
    ----------
    radius : int
    keep : {"first", "smallest", "central", "highest"}
    group : {"connected", "greedy"}
    unknown : {"keep", "drop", "refuse"}
        What becomes of a row without a text, a fingerprint or an id, which is not compared.
    """

    radius: int
    keep: str = "first"
    group: str = "connected"
    unknown: str = "keep"
