"""A check that a hasher with a law does what an index relies on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags
from fpstore.errors import plural
from fpstore.hashing.law import Reals
from fpstore.hashing.registry import check_sketcher
from fpstore.hashing.sketcher import MAX_SIGNATURE_BITS, Signed, Sketched, Sketcher, Values

MIN_ITEMS = 8
MAX_ITEMS = 64  # whose pairs are compared
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


class MeasuredLaw(NamedTuple):
    """Expected and measured shares of pairs of about the same similarity, or distance.

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


def check_hasher(hasher: Sketcher[Any], items: Sequence[Any]) -> list[MeasuredLaw]:
    """Check that a hasher does what an index relies on, and return the law as it was measured.

    Values and signatures must have the shapes and types of the interface, and depend on an item and
    the number of a function only: not on the count, the order, the batch, or threads. Over the
    pairs of the items, in groups of about the same similarity, hash values must agree and bits must
    differ as often as the laws say, within 5.5 standard errors and a tolerance of 0.01. Some pairs
    must be near: by the law, they agree in 0.75 of the hash values or more, and are not equal.
    `estimate` must be the inverse of `differing`, the description must be JSON and rebuild the
    hasher, and wrong arguments must be refused with InputError. If the hasher has probes, the
    probability that one of them meets a near item is measured too.

    Parameters
    ----------
    hasher : Sketcher
        What is checked.
    items : sequence
        Eight or more items with content, of which many should be similar, to different degrees. The
        first 64 are compared.

    Returns
    -------
    list of MeasuredLaw
        Of the pairs, in four to eight groups, the least similar first: the quarters of all pairs,
        cut where values agree, by the law, with a probability of 0.25, 0.5, 0.75 and 0.9.

    Raises
    ------
    AssertionError
        The message says what the hasher does wrong, the first such thing, or that no two items are
        near.
    """
    chosen = list(islice(items, MAX_ITEMS))
    assert len(chosen) >= MIN_ITEMS
    checked = _Checked(hasher, chosen)
    checked.attributes()
    checked.forms()
    checked.functions_of_the_item()
    checked.curves()
    checked.description()
    checked.refusals()
    laws = checked.laws()
    if hasher.has_probes:
        checked.probes()
    return laws


class _Pairs(NamedTuple):
    """Pairs of items by their places, in the order of their similarity, and that similarity."""

    a: npt.NDArray[np.intp]
    b: npt.NDArray[np.intp]
    similarities: Reals


class _Checked:
    """A hasher that is checked, and the items that do it."""

    def __init__(self, hasher: Sketcher[Any], items: list[Any]) -> None:
        self.hasher, self.items = hasher, items

    def wrong(self, reason: str) -> NoReturn:
        """Raise the error for a fault of the hasher."""
        raise AssertionError(f"the hasher {self.hasher.name}: {reason}")

    def need(self, holds: object, reason: str) -> None:
        """Raise the error for a fault if something does not hold."""
        if not holds:
            self.wrong(reason)

    def attributes(self) -> None:
        """Check what the hasher says of itself."""
        hasher = self.hasher
        for name, value, kind in (
            ("name", hasher.name, str),
            ("version", hasher.version, int),
            ("items", hasher.items, str),
            ("measure", hasher.law.measure, str),
            ("signature_bits", hasher.signature_bits, int),
            ("background", hasher.law.background, (float, int)),
        ):
            self.need(
                isinstance(value, kind)
                and not isinstance(value, bool)
                and (value or name == "background"),
                f"no {name}, or one of a wrong type: {value!r}",
            )
        self.need(hasher.version >= 1, "versions count from 1")
        self.need(
            hasher.signature_bits % 8 == 0 and 8 <= hasher.signature_bits <= MAX_SIGNATURE_BITS,
            f"the signature's width is no multiple of 8 up to {MAX_SIGNATURE_BITS}",
        )
        check_sketcher(hasher)
        least, most = hasher.law.limits
        self.need(least < most, "the limits of the measure do not ascend")
        self.need(
            least <= hasher.law.background <= most,
            "the background is not within the limits of the measure",
        )

    def forms(self) -> None:
        """Check types and shapes, and that all items are known."""
        hasher, n = self.hasher, len(self.items)
        count = min(_MORE, hasher.most_values)
        batch = next(hasher.batches(self.items))
        self.results(batch, count)
        sketched = self.sketched(self.items, count)
        self.need(
            sketched.known.dtype == np.bool_ and sketched.known.shape == (n,),
            "known is no array of bool, one for each item",
        )
        self.need(
            sketched.known.all(),
            f"item {int(np.argmin(sketched.known))} of the check has no content",
        )
        for what, array, dtype, shape in (
            ("sketched(): sketches", sketched.sketches, np.uint32, (n, count)),
            (
                "sketched(): signatures",
                sketched.signatures,
                np.uint8,
                (n, hasher.signature_bits // 8),
            ),
            ("sketches()", hasher.sketches(self.items, count), np.uint32, (n, count)),
            (
                "signatures()",
                hasher.signatures(self.items),
                np.uint8,
                (n, hasher.signature_bits // 8),
            ),
            (
                "sketches() of nothing",
                hasher.sketches(self.items[:0], count),
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
        values = self.hasher.values(batch, range(count))
        self.result(values, Values, "values()")
        self.need(
            values.values.dtype == np.uint32, f"values() gives {values.values.dtype}, not uint32"
        )
        self.result(self.hasher.signed(batch), Signed, "signed()")

    def result(self, result: object, kind: type[Values | Signed], call: str) -> None:
        """Check that something is the pair of arrays that it should be."""
        actual = type(result).__name__
        if isinstance(result, kind):
            actual = f"{kind.__name__}({', '.join(type(part).__name__ for part in result)})"
        wanted = f"{kind.__name__}({kind._fields[0]}, known), two arrays of NumPy"
        right = isinstance(result, kind) and all(isinstance(part, np.ndarray) for part in result)
        self.need(right, f"{call} must return {wanted}, and gives {actual}")

    def functions_of_the_item(self) -> None:
        """Check that values depend on the item and the number of the function only."""
        hasher, items, count = self.hasher, self.items, min(_MORE, self.hasher.most_values)
        sketches, signatures = hasher.sketches(items, count), hasher.signatures(items)
        few = min(_FEW, count)
        again = self.sketched(items, count)
        for same, reason in (
            (
                hasher.sketches(items, count) == sketches,
                "the same items have other values when they come again",
            ),
            (
                hasher.signatures(items) == signatures,
                "the same items have other signatures when they come again",
            ),
            (
                hasher.sketches(items, few) == sketches[:, :few],
                f"the first values of {count} are not those of {few}",
            ),
            (again.sketches == sketches, "sketched() and sketches() give different values"),
            (
                again.signatures == signatures,
                "sketched() and signatures() give different signatures",
            ),
            (
                hasher.sketches(items[::-1], count)[::-1] == sketches,
                "values depend on the order of the items",
            ),
            (
                np.concatenate([hasher.sketches([item], count) for item in items]) == sketches,
                "values depend on the other items of a batch",
            ),
            (
                np.concatenate([hasher.signatures([item]) for item in items]) == signatures,
                "signatures depend on the other items of a batch",
            ),
            (
                hasher.sketches(items, count, threads=2) == sketches,
                "values depend on the number of threads",
            ),
            (
                hasher.signatures(items, threads=2) == signatures,
                "signatures depend on the number of threads",
            ),
        ):
            self.need(np.all(same), reason)

    def curves(self) -> None:
        """Check the laws themselves, and that `estimate` inverts the one of signatures."""
        hasher, (least, most) = self.hasher, self.hasher.law.limits
        grid = np.linspace(least, most, _GRID).tolist()
        nearest_first = grid if hasher.law.is_distance else grid[::-1]
        collisions = [hasher.law.collision(value) for value in nearest_first]
        shares = [hasher.law.differing(value) for value in nearest_first]
        self.need(
            all(0 <= share <= 1 for share in collisions + shares),
            "a probability is not between 0 and 1",
        )
        self.need(
            abs(collisions[0] - 1) < 1e-9 and abs(shares[0]) < 1e-9,
            "equal items do not agree for certain",
        )
        self.need(all(a >= b for a, b in pairwise(collisions)), "collision() is not monotone")
        self.need(all(a <= b for a, b in pairwise(shares)), "differing() is not monotone")
        distances = np.arange(hasher.signature_bits + 1)
        estimates = hasher.estimate(distances)
        self.need(
            estimates.shape == distances.shape and estimates.dtype == np.float64,
            "estimate() gives no float64 of the same shape",
        )
        within = distances / hasher.signature_bits <= shares[-1]
        back = np.array([hasher.law.differing(value) for value in estimates.tolist()])
        self.need(
            np.abs(back - distances / hasher.signature_bits)[within].max() < 1e-6,
            "estimate() is not the inverse of differing()",
        )

    def description(self) -> None:
        """Check that the hasher can be remembered."""
        try:
            text = json.dumps(self.hasher.describe())
        except (TypeError, ValueError) as error:
            self.wrong(f"describe() is not JSON: {error}")
        described = json.loads(text)
        self.need(
            set(described) == {"name", "version", "parameters"},
            "describe() has not name, version and parameters",
        )
        try:
            again = type(self.hasher).from_parameters(described["parameters"])
        except (TypeError, KeyError, ValueError) as error:
            self.wrong(f"from_parameters() does not take its parameters: {error}")
        self.need(
            again.describe() == self.hasher.describe(),
            "the hasher that a description gives has another description",
        )
        count = min(_FEW, self.hasher.most_values)
        same = again.sketches(self.items, count) == self.hasher.sketches(self.items, count)
        self.need(
            np.all(same)
            and np.all(again.signatures(self.items) == self.hasher.signatures(self.items)),
            "the hasher that a description gives has other values",
        )

    def refusals(self) -> None:
        """Check that wrong arguments are refused."""
        for call, reason in (
            (lambda: self.hasher.sketches(None, 1), "items that cannot be iterated"),  # type: ignore[arg-type]
            (lambda: self.hasher.sketches([object()], 1), "an object() as an item"),
            (lambda: self.hasher.signatures([object()]), "an object() as an item of signatures()"),
            (
                lambda: self.hasher.sketches(self.items, self.hasher.most_values + 1),
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

    def laws(self) -> list[MeasuredLaw]:
        """Compare values and bits of all pairs with the laws."""
        hasher, pairs = self.hasher, self.pairs()
        sketched = self.sketched(self.items, min(_FUNCTIONS, hasher.most_values))
        agree = sketched.sketches[pairs.a] == sketched.sketches[pairs.b]
        bits = np.unpackbits(sketched.signatures, axis=1)
        differ = bits[pairs.a] != bits[pairs.b]
        laws = []
        for group in self.groups(pairs):
            values = pairs.similarities[group].tolist()
            agreed = self.mean(
                agree[group],
                [hasher.law.collision(value) for value in values],
                "hash values agree",
                values,
            )
            differed = self.mean(
                differ[group],
                [hasher.law.differing(value) for value in values],
                "bits differ",
                values,
            )
            laws.append(MeasuredLaw(len(group), float(np.mean(values)), *agreed, *differed))
        self.nearness(pairs)
        return laws

    def groups(self, pairs: _Pairs) -> list[npt.NDArray[np.intp]]:
        """Return the places of pairs in groups of about the same probability of equal values."""
        probabilities = np.array(
            [self.hasher.law.collision(value) for value in pairs.similarities.tolist()]
        )
        quarters = len(probabilities) * np.arange(1, 4) // 4
        parts = np.split(
            np.arange(len(probabilities)),
            np.unique([*np.searchsorted(probabilities, _BOUNDS), *quarters]),
        )
        return [part for part in parts if len(part)]

    def nearness(self, pairs: _Pairs) -> None:
        """Check that some pairs are near: a law that holds for far ones only makes wrong plans."""
        hasher = self.hasher
        nearest = hasher.law.limits[not hasher.law.is_distance]
        probabilities = [
            hasher.law.collision(value) for value in pairs.similarities.tolist() if value != nearest
        ]
        most = max(probabilities, default=0.0)
        reason = (
            "no two items of the check are near: by the law, the nearest unequal ones agree in "
            f"{most:.2f} of the values"
        )
        self.need(most >= _NEAR, f"{reason}; add some pairs that agree in {_NEAR} or more")

    def pairs(self) -> _Pairs:
        """Return all pairs of the items."""
        hasher, (least, most) = self.hasher, self.hasher.law.limits
        nearest = least if hasher.law.is_distance else most
        table = np.stack([hasher.similarities(item, self.items) for item in self.items])
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
        order = np.argsort(-clipped if hasher.law.is_distance else clipped, kind="stable")
        return _Pairs(a[order], b[order], clipped[order])

    def mean(
        self, events: Flags, probabilities: list[float], what: str, values: list[float]
    ) -> tuple[float, float]:
        """Return how often events should come and came, or raise the error.

        Functions are columns, and independent.
        """
        expected, share = float(np.mean(probabilities)), float(events.mean())
        by_function = events.mean(0)
        error = float(by_function.std(ddof=1)) / math.sqrt(events.shape[1])
        off = share - expected
        if abs(off) > _ERRORS * error + _TOLERANCE and not (
            self.hasher.law.bits_differ_at_most and what == "bits differ" and off < 0
        ):
            self.wrong(
                f"of {plural(len(values), 'pair')} from {min(values):.3g} to {max(values):.3g}, "
                f"{what} with a share of "
                f"{share:.3f}, and the law says {expected:.3f}"
            )
        return expected, share

    def probes(self) -> None:
        """Check the form of probes, and how often one meets the band of another item."""
        hasher, pairs = self.hasher, self.pairs()
        bands = min(_PROBED, hasher.most_values) // _ROWS
        sketches = hasher.sketches(self.items, bands * _ROWS).reshape(-1, bands, _ROWS)
        probed = np.stack([hasher.probes(item, bands, _ROWS, _PROBES) for item in self.items])
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
            probabilities = [hasher.law.band_collision(value, _ROWS, _PROBES) for value in values]
            self.mean(met, probabilities, "probes meet bands", values)

    def sketched(self, items: list[Any], count: int) -> Sketched:
        """Return all that `sketched` yields as one."""
        parts = [part[:3] for part in self.hasher.sketched(items, count)]
        return Sketched(*map(np.concatenate, zip(*parts, strict=True)))
