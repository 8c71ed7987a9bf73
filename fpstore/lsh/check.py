"""Whether a family of hash functions does what it says: for authors of families."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags
from fpstore.errors import InputError, counted
from fpstore.families.base import MOST_WIDTH, Family, Reals, Signed, Sketched, Values, check_many
from fpstore.families.registry import as_family

LEAST_ITEMS = 8
MOST_ITEMS = 64  # whose pairs are compared
_FUNCTIONS = 4096  # that measure the law
_PROBED = 1024  # that measure probes
_FEW, _MORE = 20, 50
_GRID = 33  # values of the measure at which laws are computed
_NEAR = 0.75  # the probability of a hash value of near pairs, of which keys are made
# of the probabilities of groups of pairs, which are cut into quarters of all pairs too
_BOUNDS = (0.25, 0.5, _NEAR, 0.9)
_ERRORS = 5.5  # standard errors that a mean may be off
_TOLERANCE = 0.01  # by which the law may be an approximation
_ROWS, _PROBES = 2, 3


class Law(NamedTuple):
    """What was told and what was measured of pairs of about the same similarity, or distance.

    Attributes
    ----------
    pairs : int
    similarity : float
        The mean of the pairs.
    collision, agreed : float
        The probability that a hash value agrees, and the share of those that did.
    differing, differed : float
        The probability that a bit of the signatures differs, and the share of those that did.
    """

    pairs: int
    similarity: float
    collision: float
    agreed: float
    differing: float
    differed: float


def check_family(family: Family[Any], items: Sequence[Any]) -> list[Law]:
    """Check that a family does what an index relies on, and return the law as it was measured.

    Values and signatures must have the shapes and types of the interface, and depend on an item and
    the number of a function only: not on the count, the order, the batch, or threads. Over the
    pairs of the items, in groups of about the same similarity, hash values must agree and bits must
    differ as often as the laws say, within 5.5 standard errors and a tolerance of 0.01. Some pairs
    must be near: by the law, they agree in 0.75 of the hash values or more, and are not equal.
    `estimate` must be the inverse of `differing`, the description must be JSON and rebuild the
    family, and wrong arguments must be refused with InputError. If the family has probes, the
    probability that one of them meets a near item is measured too.

    Parameters
    ----------
    family : Family
        What is checked.
    items : sequence
        Eight or more items with content, of which many should be similar, to different degrees. The
        first 64 are compared.

    Returns
    -------
    list of Law
        Of the pairs, in four to eight groups, the least similar first: the quarters of all pairs,
        cut where values agree, by the law, with a probability of 0.25, 0.5, 0.75 and 0.9.

    Raises
    ------
    InputError
        The message says what the family does wrong, the first such thing, or that no two items are
        near.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> from fpstore.families import MinHashFamily
    >>> from fpstore.lsh.check import check_family
    >>> items = [[f"feature {i}" for i in range(size, 40)] for size in range(20)]
    >>> laws = check_family(MinHashFamily(fingerprinter=MinHash()), items)
    >>> all(abs(law.collision - law.agreed) < 0.1 for law in laws)
    True
    """
    if not isinstance(family, Family):
        raise InputError(
            f"expected a family of hash functions, got {type(family).__name__}", got=family
        )
    check_many(items, family.items)
    chosen = list(islice(items, MOST_ITEMS))
    if len(chosen) < LEAST_ITEMS:
        raise InputError(
            f"a family is checked by {LEAST_ITEMS} items or more, got {len(chosen)}",
            got=len(chosen),
        )
    checked = _Checked(family, chosen)
    checked.attributes()
    checked.forms()
    checked.functions_of_the_item()
    checked.curves()
    checked.description()
    checked.refusals()
    laws = checked.laws()
    if family.has_probes:
        checked.probes()
    return laws


class _Pairs(NamedTuple):
    """Pairs of items by their places, in the order of their similarity, and that similarity."""

    a: npt.NDArray[np.intp]
    b: npt.NDArray[np.intp]
    similarities: Reals


class _Checked:
    """A family that is checked, and the items that do it."""

    def __init__(self, family: Family[Any], items: list[Any]) -> None:
        self.family, self.items = family, items

    def wrong(self, reason: str) -> NoReturn:
        """Raise the error for a fault of the family."""
        raise InputError(f"the family {self.family.name}: {reason}", got=self.family)

    def need(self, holds: object, reason: str) -> None:
        """Raise the error for a fault if something does not hold."""
        if not holds:
            self.wrong(reason)

    def attributes(self) -> None:
        """Check what the family says of itself."""
        family = self.family
        for name, kind in (
            ("name", str),
            ("version", int),
            ("items", str),
            ("measure", str),
            ("width", int),
            ("background", (float, int)),
        ):
            value = getattr(family, name, None)
            if (
                not isinstance(value, kind)
                or isinstance(value, bool)
                or not (value or name == "background")
            ):
                raise InputError(
                    f"the family {type(family).__name__} has no {name}, or one of a wrong type: "
                    f"{value!r}",
                    got=family,
                )
        self.need(family.version >= 1, "versions count from 1")
        self.need(
            family.width % 8 == 0 and 8 <= family.width <= MOST_WIDTH,
            f"the width is no multiple of 8 up to {MOST_WIDTH}",
        )
        as_family(family)
        least, most = family.limits
        self.need(least < most, "the limits of the measure do not ascend")
        self.need(
            least <= family.background <= most,
            "the background is not within the limits of the measure",
        )

    def forms(self) -> None:
        """Check types and shapes, and that all items are known."""
        family, n = self.family, len(self.items)
        count = min(_MORE, family.most_values)
        batch = next(family.batches(self.items))
        self.results(batch, count)
        found = self.sketched(self.items, count)
        self.need(
            found.known.dtype == np.bool_ and found.known.shape == (n,),
            "known is no array of bool, one for each item",
        )
        self.need(
            found.known.all(), f"item {int(np.argmin(found.known))} of the check has no content"
        )
        for what, array, dtype, shape in (
            ("sketched(): sketches", found.sketches, np.uint32, (n, count)),
            ("sketched(): signatures", found.signatures, np.uint8, (n, family.width // 8)),
            ("sketches()", family.sketches(self.items, count), np.uint32, (n, count)),
            ("signatures()", family.signatures(self.items), np.uint8, (n, family.width // 8)),
            (
                "sketches() of nothing",
                family.sketches(self.items[:0], count),
                np.uint32,
                (0, count),
            ),
        ):
            self.need(
                array.dtype == dtype and array.shape == shape,
                f"{what} gives {array.dtype} of shape {array.shape}, not {shape}",
            )

    def results(self, batch: Sequence[Any], count: int) -> None:
        """Check what an author's own methods return."""
        values = self.family.values(batch, range(count))
        self.result(values, Values, "values()")
        self.need(
            values.values.dtype == np.uint32, f"values() gives {values.values.dtype}, not uint32"
        )
        self.result(self.family.signed(batch), Signed, "signed()")

    def result(self, found: object, kind: type[Values | Signed], call: str) -> None:
        """Check that something is the pair of arrays that it should be."""
        given = type(found).__name__
        if isinstance(found, kind):
            given = f"{kind.__name__}({', '.join(type(part).__name__ for part in found)})"
        wanted = f"{kind.__name__}({kind._fields[0]}, known), two arrays of NumPy"
        right = isinstance(found, kind) and all(isinstance(part, np.ndarray) for part in found)
        self.need(right, f"{call} must return {wanted}, and gives {given}")

    def functions_of_the_item(self) -> None:
        """Check that values depend on the item and the number of the function only."""
        family, items, count = self.family, self.items, min(_MORE, self.family.most_values)
        sketches, signatures = family.sketches(items, count), family.signatures(items)
        few = min(_FEW, count)
        again = self.sketched(items, count)
        for same, reason in (
            (
                family.sketches(items, count) == sketches,
                "the same items have other values when they come again",
            ),
            (
                family.signatures(items) == signatures,
                "the same items have other signatures when they come again",
            ),
            (
                family.sketches(items, few) == sketches[:, :few],
                f"the first values of {count} are not those of {few}",
            ),
            (again.sketches == sketches, "sketched() and sketches() give different values"),
            (
                again.signatures == signatures,
                "sketched() and signatures() give different signatures",
            ),
            (
                family.sketches(items[::-1], count)[::-1] == sketches,
                "values depend on the order of the items",
            ),
            (
                np.concatenate([family.sketches([one], count) for one in items]) == sketches,
                "values depend on the other items of a batch",
            ),
            (
                np.concatenate([family.signatures([one]) for one in items]) == signatures,
                "signatures depend on the other items of a batch",
            ),
            (
                family.sketches(items, count, threads=2) == sketches,
                "values depend on the number of threads",
            ),
            (
                family.signatures(items, threads=2) == signatures,
                "signatures depend on the number of threads",
            ),
        ):
            self.need(np.all(same), reason)

    def curves(self) -> None:
        """Check the laws themselves, and that `estimate` inverts the one of signatures."""
        family, (least, most) = self.family, self.family.limits
        grid = np.linspace(least, most, _GRID).tolist()
        nearest_first = grid if family.is_distance else grid[::-1]
        collisions = [family.collision(value) for value in nearest_first]
        shares = [family.differing(value) for value in nearest_first]
        self.need(
            all(0 <= one <= 1 for one in collisions + shares),
            "a probability is not between 0 and 1",
        )
        self.need(
            abs(collisions[0] - 1) < 1e-9 and abs(shares[0]) < 1e-9,
            "equal items do not agree for certain",
        )
        self.need(all(a >= b for a, b in pairwise(collisions)), "collision() is not monotone")
        self.need(all(a <= b for a, b in pairwise(shares)), "differing() is not monotone")
        distances = np.arange(family.width + 1)
        estimates = family.estimate(distances)
        self.need(
            estimates.shape == distances.shape and estimates.dtype == np.float64,
            "estimate() gives no float64 of the same shape",
        )
        within = distances / family.width <= shares[-1]
        back = np.array([family.differing(value) for value in estimates.tolist()])
        self.need(
            np.abs(back - distances / family.width)[within].max() < 1e-6,
            "estimate() is not the inverse of differing()",
        )

    def description(self) -> None:
        """Check that the family can be remembered."""
        try:
            text = json.dumps(self.family.describe())
        except (TypeError, ValueError) as error:
            self.wrong(f"describe() is not JSON: {error}")
        described = json.loads(text)
        self.need(
            set(described) == {"name", "version", "parameters"},
            "describe() has not name, version and parameters",
        )
        try:
            again = type(self.family).from_parameters(described["parameters"])
        except (TypeError, KeyError, ValueError) as error:
            self.wrong(f"from_parameters() does not take its parameters: {error}")
        self.need(
            again.describe() == self.family.describe(),
            "the family that a description gives has another description",
        )
        count = min(_FEW, self.family.most_values)
        same = again.sketches(self.items, count) == self.family.sketches(self.items, count)
        self.need(
            np.all(same)
            and np.all(again.signatures(self.items) == self.family.signatures(self.items)),
            "the family that a description gives has other values",
        )

    def refusals(self) -> None:
        """Check that wrong arguments are refused."""
        for call, reason in (
            (lambda: self.family.sketches(None, 1), "items that cannot be iterated"),  # type: ignore[arg-type]
            (lambda: self.family.sketches([object()], 1), "an object() as an item"),
            (lambda: self.family.signatures([object()]), "an object() as an item of signatures()"),
            (
                lambda: self.family.sketches(self.items, self.family.most_values + 1),
                "a count above most_values",
            ),
        ):
            try:
                call()
            except (TypeError, ValueError) as error:  # InputError is one
                self.need(
                    str(error) and "\n" not in str(error),
                    f"the error for {reason} has no message of one line",
                )
            except Exception as error:
                self.wrong(
                    f"{reason} should be InputError, TypeError or ValueError, and is "
                    f"{type(error).__name__}"
                )
            else:
                self.wrong(f"{reason} is not refused")

    def laws(self) -> list[Law]:
        """Compare values and bits of all pairs with the laws."""
        family, pairs = self.family, self.pairs()
        found = self.sketched(self.items, min(_FUNCTIONS, family.most_values))
        agree = found.sketches[pairs.a] == found.sketches[pairs.b]
        bits = np.unpackbits(found.signatures, axis=1)
        differ = bits[pairs.a] != bits[pairs.b]
        laws = []
        for group in self.groups(pairs):
            values = pairs.similarities[group].tolist()
            agreed = self.mean(
                agree[group],
                [family.collision(value) for value in values],
                "hash values agree",
                values,
            )
            differed = self.mean(
                differ[group], [family.differing(value) for value in values], "bits differ", values
            )
            laws.append(Law(len(group), float(np.mean(values)), *agreed, *differed))
        self.nearness(pairs)
        return laws

    def groups(self, pairs: _Pairs) -> list[npt.NDArray[np.intp]]:
        """Return the places of pairs whose hash values agree, by the law, with about the same probability."""
        told = np.array([self.family.collision(value) for value in pairs.similarities.tolist()])
        quarters = len(told) * np.arange(1, 4) // 4
        parts = np.split(
            np.arange(len(told)), np.unique([*np.searchsorted(told, _BOUNDS), *quarters])
        )
        return [part for part in parts if len(part)]

    def nearness(self, pairs: _Pairs) -> None:
        """Check that some pairs are near: a law that holds for far ones only makes wrong plans."""
        family = self.family
        nearest = family.limits[not family.is_distance]
        told = [
            family.collision(value) for value in pairs.similarities.tolist() if value != nearest
        ]
        most = max(told, default=0.0)
        reason = (
            "no two items of the check are near: by the law, the nearest unequal ones agree in "
            f"{most:.2f} of the values"
        )
        self.need(most >= _NEAR, f"{reason}; add some pairs that agree in {_NEAR} or more")

    def pairs(self) -> _Pairs:
        """Return all pairs of the items."""
        family, (least, most) = self.family, self.family.limits
        nearest = least if family.is_distance else most
        table = np.stack([family.similarities(item, self.items) for item in self.items])
        self.need(
            table.shape == (len(self.items),) * 2 and table.dtype == np.float64,
            "similarities() gives no float64, one for each item",
        )
        scale = max(abs(least), 1.0) if math.isinf(most) else max(abs(least), abs(most))
        self.need(
            np.abs(np.diagonal(table) - nearest).max() < 1e-6 * scale,
            "an item is not as near to itself as can be",
        )
        self.need(
            np.allclose(table, table.T, rtol=1e-6, atol=1e-9), "similarities() are not symmetric"
        )
        self.need(
            (table >= least - 1e-9).all() and (table <= most + 1e-9).all(),
            "a similarity is not within the limits of the measure",
        )
        a, b = np.triu_indices(len(self.items), 1)
        clipped = np.clip(table[a, b], least, most)
        order = np.argsort(-clipped if family.is_distance else clipped, kind="stable")
        return _Pairs(a[order], b[order], clipped[order])

    def mean(
        self, events: Flags, told: list[float], what: str, values: list[float]
    ) -> tuple[float, float]:
        """Return how often events should come and came, or raise the error.

        Functions are columns, and independent.
        """
        expected, share = float(np.mean(told)), float(events.mean())
        by_function = events.mean(0)
        error = float(by_function.std(ddof=1)) / math.sqrt(events.shape[1])
        off = share - expected
        if abs(off) > _ERRORS * error + _TOLERANCE and not (
            self.family.bits_differ_at_most and what == "bits differ" and off < 0
        ):
            self.wrong(
                f"of {counted(len(values), 'pair')} from {min(values):.3g} to {max(values):.3g}, "
                f"{what} with a share of "
                f"{share:.3f}, and the law says {expected:.3f}"
            )
        return expected, share

    def probes(self) -> None:
        """Check the form of probes, and how often one meets the band of another item."""
        family, pairs = self.family, self.pairs()
        bands = min(_PROBED, family.most_values) // _ROWS
        sketches = family.sketches(self.items, bands * _ROWS).reshape(-1, bands, _ROWS)
        probed = np.stack([family.probes(item, bands, _ROWS, _PROBES) for item in self.items])
        self.need(
            probed.dtype == np.uint32 and probed.shape == (len(self.items), bands, _PROBES, _ROWS),
            "probes() have a wrong type or shape",
        )
        self.need(
            (probed[:, :, 0] == sketches).all(),
            "the first probe of a band is not the band of the item",
        )
        for a in range(_PROBES):
            for b in range(a):
                self.need(
                    (probed[:, :, a] != probed[:, :, b]).any(-1).all(),
                    "two probes of a band are the same",
                )
        for group in self.groups(pairs):
            values = pairs.similarities[group].tolist()
            met = (probed[pairs.a[group]] == sketches[pairs.b[group]][:, :, None]).all(-1).any(-1)
            told = [family.band_collision(value, _ROWS, _PROBES) for value in values]
            self.mean(met, told, "probes meet bands", values)

    def sketched(self, items: list[Any], count: int) -> Sketched:
        """Return all that `sketched` yields as one."""
        parts = [part[:3] for part in self.family.sketched(items, count)]
        return Sketched(*map(np.concatenate, zip(*parts, strict=True)))
