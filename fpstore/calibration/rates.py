"""Shares of the cases of a sample, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.intp]
_Z = 1.959964  # of a 95% confidence interval


@dataclass(frozen=True)
class Rate:
    """A share of the cases of a sample."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share; not a number without cases."""
        return self.count / self.total if self.total else nan

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval (E. B. Wilson, JASA 22, 1927)."""
        if not self.total:
            return 0.0, 1.0
        n, p, square = self.total, self.value, _Z * _Z
        middle = (p + square / (2 * n)) / (1 + square / n)
        half = _Z / (1 + square / n) * sqrt(p * (1 - p) / n + square / (4 * n * n))
        low = 0.0 if self.count == 0 else max(middle - half, 0.0)
        return low, 1.0 if self.count == n else min(middle + half, 1.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the share as JSON values."""
        return {"count": self.count, "total": self.total, "interval": self.interval}
