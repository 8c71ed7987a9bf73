"""How true the extrapolated shares of strangers are.

From few documents, and observed among many.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpstore.calibration.evidence import SampledPairs, fingerprints_of
from fpstore.calibration.measures import LEAST_MET, Measured, measured
from fpstore.calibration.request import BOUND
from fpstore.calibration.resemblance import resembling_pairs
from fpstore.calibration.seeded import Draws
from fpstore.calibration.settings import Setting, parse_setting

FEW, MANY = 200, 2000
SETTINGS = ("shingle=auto,size=1", "shingle=auto,size=2", "shingle=chars,size=4")


def tails_of(texts: list[str], seed: int, threads: int) -> list[dict[str, Any]]:
    """Return for each setting the smallest radius within which many documents have ten pairs of strangers, and both shares."""
    draws = Draws(seed, "tails")
    many = [texts[place] for place in draws.places(len(texts), MANY)]
    few = [many[place] for place in draws.places(len(many), FEW)]
    out = []
    both = [_evidence(few), _evidence(many)]
    for name in SETTINGS:
        small, large = (_measured(evidence, parse_setting(name), threads) for evidence in both)
        radius = next(
            r for r in range(large.width + 1) if large.strangers.within(r).found >= LEAST_MET
        )
        observed, expected = large.strangers.within(radius).value, small.tail.share(radius)
        out.append(
            {
                "setting": name,
                "documents": len(many),
                "radius": radius,
                "extrapolated": expected,
                "observed": observed,
            }
        )
    return out


def _evidence(texts: list[str]) -> SampledPairs:
    """Return documents without any copies."""
    return SampledPairs(
        texts, len(texts), {"none": np.empty((2, 0), np.intp)}, None, resembling_pairs(texts, BOUND)
    )


def _measured(evidence: SampledPairs, setting: Setting, threads: int) -> Measured:
    return measured(evidence, setting, fingerprints_of(evidence.items, setting, threads))
