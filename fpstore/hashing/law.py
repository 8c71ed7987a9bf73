"""Laws of hash functions: how often values of two items agree, as a function of a similarity."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fpstore.base.arguments import check_number, check_whole
from fpstore.errors import InputError, show

Reals = npt.NDArray[np.float64]
MAX_VALUES = 1 << 16  # of a sketch
_ROUNDING = 1e-9  # how far a computed value may be out of range, as a share of the range
_HALVINGS = 60  # of an interval, down to the precision of floats


class Law(ABC):
    """How often hash values of two items agree, and bits of their signatures differ.

    Both are functions of a measure of the two items: a similarity, or a distance.
    `fpstore.lsh.plan` computes the recall of an index by a law. An author writes `measure` and
    `collision`, or takes `JaccardLaw`. The other members have defaults.

    Attributes
    ----------
    measure : str
        The name of the measure: "Jaccard similarity", "cosine similarity", "L2 distance".
    is_distance : bool
        Whether a lower measure means nearer.
    bits_differ_at_most : bool
        Whether `differing` is the most that bits differ at a similarity, and not the mean.

    Notes
    -----
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of
    dimensionality*, STOC 1998.
    """

    measure: str
    is_distance: ClassVar[bool] = False
    bits_differ_at_most: ClassVar[bool] = False

    @property
    def limits(self) -> tuple[float, float]:
        """The least and the greatest value of the measure."""
        return 0.0, 1.0

    @property
    def background(self) -> float:
        """The measure of unrelated items, by which false candidates are expected."""
        return self.limits[self.is_distance]

    @abstractmethod
    def collision(self, similarity: float) -> float:
        """Return the probability that a hash value of two items agrees."""

    def differing(self, similarity: float) -> float:
        """Return the probability that a bit of the signatures of two items differs."""
        return (1 - self.collision(similarity)) / 2

    def estimate(self, distances: npt.NDArray[np.intp], bits: int) -> Reals:
        """Return the similarities for distances of signatures of `bits` bits.

        The inverse of `differing`.
        """
        return _estimates(self, bits)[distances]

    def band_collision(self, similarity: float, rows: int, probes: int = 1) -> float:
        """Return the probability that all values of a band, or of one of its probes, agree."""
        if probes != 1:
            raise InputError("this law has no further probes: leave probes out", got=probes)
        return self.collision(similarity) ** check_whole(rows, 1, MAX_VALUES, "rows")

    def check_measure(self, value: object, name: str) -> float:
        """Return a value of the measure as a float; InputError if it is out of range."""
        least, most = self.limits
        try:
            number = float("nan") if isinstance(value, (bool, str, bytes)) else float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not least <= number <= most:
            reason = (
                f"{name} must be {with_article(self.measure)}, from {least:g} to {most:g}, got "
                f"{show(value)}"
            )
            raise InputError(reason, got=value)
        return number

    def _check_measure(self, value: object) -> float:
        """Return a value of the measure, clipped to the limits if it exceeds them by rounding."""
        least, most = self.limits
        slack = _ROUNDING * (most - least)
        return min(max(check_number(value, least - slack, most + slack, self.measure), least), most)


@dataclass(frozen=True)
class JaccardLaw(Law):
    """The law of MinHash: values agree with the Jaccard similarity as the probability.

    Parameters
    ----------
    unrelated : float
        The similarity of unrelated sets.
    """

    measure = "Jaccard similarity"

    unrelated: float = 0.0

    @property
    def background(self) -> float:
        """The similarity of unrelated sets."""
        return self.unrelated

    def collision(self, similarity: float) -> float:
        """Return the similarity."""
        return self._check_measure(similarity)

    def estimate(self, distances: npt.NDArray[np.intp], bits: int) -> Reals:
        """Return the similarities for distances of signatures."""
        return np.maximum(1 - 2 * distances / bits, 0.0)


def with_article(measure: str) -> str:
    """Return a measure with its article, as in "an L2 distance"."""
    return f"{'an' if re.match('[AEIOaeio]|L[0-9]', measure) else 'a'} {measure}"


@lru_cache(maxsize=16)
def _estimates(law: Law, bits: int) -> Reals:
    least, most = law.limits
    near, far = (least, most) if law.is_distance else (most, least)
    shares = np.arange(bits + 1) / bits
    return np.array([_invert(law.differing, share, near, far) for share in shares.tolist()])


def _invert(differing: Callable[[float], float], share: float, near: float, far: float) -> float:
    """Return the measure at which a share of bits differs; the share grows from near to far."""
    if differing(far) <= share:
        return far
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        if differing(middle) <= share:
            near = middle
        else:
            far = middle
    return near
