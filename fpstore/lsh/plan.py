"""The planner of an index: bands and a radius for a similarity, their size and their recall."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from fpstore.base.arguments import check_whole
from fpstore.errors import InputError, show
from fpstore.hashing.binomial import binomial_cdf
from fpstore.hashing.law import with_article
from fpstore.hashing.registry import check_sketcher
from fpstore.hashing.sketcher import Sketcher
from fpstore.lsh.keys import MAX_DOCUMENTS, EntryLayout

USUAL_RECALL = 0.95
MAX_BANDS = 256
MAX_ROWS = 256
MAX_PROBES = 1024
_CODING_BITS = 2.0  # of an entry, above the least that a set of entries can take
_SIGNATURE_BYTES = 28.4
_ID_BYTES = 5.0  # of an integer
_OF_SIGNATURE = 0.99  # recall of the signature for bands that the caller chose
_MIN_LOST_SHARE = 0.1  # least share of the lost pairs that the signature may lose
_SIMILARITIES = (0.5, 0.6, 0.7, 0.8, 0.9)
_DISTANCES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)  # times the threshold
_HALVINGS = 20


@dataclass(frozen=True)
class LshPlan:
    """The form of an index, and what it is expected to do; `str` gives a small table.

    Attributes
    ----------
    documents : int
        The number it is made for.
    threshold, recall : float
        The share of the pairs at the threshold that shall be found.
    measure : str
        What the threshold is a value of.
    bands : int
        Keys of a document.
    rows : int
        Hash values of a key.
    probes : int
        Look-ups in a band.
    key_bits : int
        Bits of a key that are stored.
    number_bits : int
        Bits of a document's number.
    radius : int
        Bits in which signatures may differ.
    width : int
        Bits of a signature.
    bytes_per_document : float
        On disk, with integer ids.
    unrelated : float
        The mean number of bands in which an unrelated document has a key that is looked up.
    false_candidates : float
        Unrelated documents whose signatures a look-up compares.
    recalls : tuple of (float, float)
        Values of the measure, and the share of the pairs that is found there.
    """

    documents: int
    threshold: float
    recall: float
    measure: str
    bands: int
    rows: int
    probes: int
    key_bits: int
    number_bits: int
    radius: int
    width: int
    bytes_per_document: float
    unrelated: float
    false_candidates: float
    recalls: tuple[tuple[float, float], ...]

    def __str__(self) -> str:
        """Return a small table."""
        probes = f", {self.probes} probes each" if self.probes > 1 else ""
        rows = (
            ("documents", f"{self.documents:,}"),
            ("bands x rows", f"{self.bands} x {self.rows}{probes}"),
            ("key", f"{self.key_bits} bits, with a number of {self.number_bits}"),
            ("signature", f"{self.width} bits, radius {self.radius}"),
            ("bytes a document", f"{self.bytes_per_document:.1f}"),
            ("false candidates", f"{self.false_candidates:.2g} a look-up"),
            (self.measure, "".join(f"{value:>8.3g}" for value, _ in self.recalls)),
            ("recall", "".join(f"{share:>8.3f}" for _, share in self.recalls)),
        )
        names = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{names}}  {text}" for name, text in rows)


@dataclass(frozen=True)
class _Bands:
    """Bands of hash values, and what they find: near pairs, and unrelated documents."""

    number: int
    rows: int
    recall: float
    unrelated: float  # bands of a document, a mean


@dataclass(frozen=True)
class _Request:
    """The requirements for bands."""

    documents: int
    hasher: Sketcher[Any]
    threshold: float
    background: float
    candidates: float
    probes: int

    def false_candidates(self, bands: int, unrelated: float) -> float:
        """Return the expected number of unrelated documents that a look-up compares."""
        return false_candidates(self.documents, bands, self.probes, unrelated)

    def bands_for(self, recall: float) -> Iterator[_Bands]:
        """Yield the fewest bands that reach a recall, for each number of rows, ascending."""
        for rows in range(1, min(MAX_ROWS, self.hasher.most_values) + 1):
            near = self.hasher.law.band_collision(self.threshold, rows, self.probes)
            most = min(MAX_BANDS, self.hasher.most_values // rows)
            number = _fewest_trials(near, recall, most)
            if number > most:
                return
            chance = self.hasher.law.band_collision(self.background, rows, self.probes)
            yield _Bands(number, rows, 1 - (1 - near) ** number, number * chance)

    def check_bands(self, bands: object) -> _Bands:
        """Check the bands that a caller chose, and return them with their recall."""
        if not isinstance(bands, tuple) or len(bands) != 2:
            raise InputError(
                "bands must be two numbers, of bands and of rows, such as (8, 5), got "
                f"{show(bands)}",
                got=bands,
                argument="bands",
            )
        number, rows = (
            check_whole(bands[0], 1, MAX_BANDS, "bands"),
            check_whole(bands[1], 1, MAX_ROWS, "rows"),
        )
        check_values(self.hasher, number, rows)
        near, chance = (
            self.hasher.law.band_collision(x, rows, self.probes)
            for x in (self.threshold, self.background)
        )
        return _Bands(number, rows, 1 - (1 - near) ** number, number * chance)

    def best_bands(self, recall: float) -> _Bands | None:
        """Return the fewest bands, of these the longest, that suffice; None if there are none."""
        fit = [
            bands
            for bands in self.bands_for(recall)
            if self.false_candidates(bands.number, bands.unrelated) <= self.candidates
        ]
        return min(fit, key=lambda bands: (bands.number, -bands.rows), default=None)

    def max_recall(self) -> float:
        """Return the largest possible recall at the threshold, in hundredths, or 0."""
        return next(
            (
                share / 100
                for share in range(99, 0, -1)
                if self.best_bands(bands_recall(share / 100)) is not None
            ),
            0.0,
        )

    def nearest_threshold(self, recall: float) -> float | None:
        """Return a threshold, nearer than this one, at which the recall is possible."""
        least, most = self.hasher.law.limits
        far, near = self.threshold, least if self.hasher.law.is_distance else most
        needed = bands_recall(recall)
        if replace(self, threshold=near).best_bands(needed) is None:
            return None
        for _ in range(_HALVINGS):
            middle = (far + near) / 2
            if replace(self, threshold=middle).best_bands(needed) is None:
                far = middle
            else:
                near = middle
        return near


def plan(
    n: int,
    hasher: object,
    threshold: float,
    recall: float = USUAL_RECALL,
    *,
    background: float | None = None,
    candidates: float = 32,
    probes: int = 1,
    bands: tuple[int, int] | None = None,
    radius: int | None = None,
) -> LshPlan:
    """Return the smallest index that finds a share of the pairs at a similarity.

    Two documents of a similarity s share the key of a band of r hash values with the probability
    ``p(s)**r``, and one of b keys with ``1 - (1 - p(s)**r)**b``, where p is the law of the
    hasher. A document that shares a key is found if the signatures differ in at most `radius`
    bits, a binomial probability. The recall is the product.

    Parameters
    ----------
    n : int
        Documents, 1 to 2^32.
    hasher : Sketcher
        A hasher that has a law, such as :class:`fpstore.MinHash`.
    threshold : float
        The similarity, or distance, at which pairs shall be found.
    recall : float
        The share of these pairs, between 0 and 1. Of nearer pairs more are found.
    background : float, optional
        The similarity of unrelated documents; by default what its law says.
    candidates : float
        The most unrelated documents whose signatures a look-up may compare, on average.
    probes : int
        Look-ups in a band: more find the pairs with fewer bands, if the hasher has probes.
    bands : (int, int), optional
        Take this number of bands and of rows. The plan says what they find, and recall and
        candidates do not count.
    radius : int, optional
        Take this radius of signatures; by default the least that finds 99% of the pairs at the
        threshold, or, without ``bands``, that reaches the recall.

    Returns
    -------
    LshPlan

    Raises
    ------
    InputError
        No number of bands up to 256 suffices, or an argument is out of range; the message says what
        would do.

    Notes
    -----
    P. Indyk and R. Motwani, *Approximate nearest neighbors: towards removing the curse of
    dimensionality*, STOC 1998;
    J. Leskovec, A. Rajaraman, J. Ullman, *Mining of Massive Datasets*, section 3.4.

    Examples
    --------
    >>> from fpstore import MinHash
    >>> from fpstore.lsh.plan import plan
    >>> index_plan = plan(10**9, MinHash(size=5), threshold=0.8, recall=0.95)
    >>> index_plan.bands, index_plan.rows, index_plan.radius
    (8, 5, 34)
    """
    hasher = check_sketcher(hasher)
    request = _check_request(n, hasher, threshold, background, candidates, probes)
    if isinstance(recall, bool) or not isinstance(recall, Real) or not 0 < float(recall) < 1:
        raise InputError(
            f"recall must be a number between 0 and 1, such as 0.95, got {show(recall)}",
            got=recall,
            argument="recall",
        )
    chosen = (
        request.best_bands(bands_recall(recall)) if bands is None else request.check_bands(bands)
    )
    if chosen is None:
        raise _unreachable_error(request, recall)
    if radius is None:
        share, needed = (
            hasher.law.differing(request.threshold),
            _OF_SIGNATURE if bands is not None else recall / chosen.recall,
        )
        radius = next(
            r
            for r in range(hasher.signature_bits + 1)
            if binomial_cdf(r, hasher.signature_bits, share) >= needed
        )
    radius = check_whole(radius, 0, hasher.signature_bits, "radius")
    form = LshPlan(
        documents=request.documents,
        threshold=request.threshold,
        recall=float(recall),
        measure=hasher.law.measure,
        bands=chosen.number,
        rows=chosen.rows,
        probes=request.probes,
        key_bits=0,
        number_bits=0,
        radius=radius,
        width=hasher.signature_bits,
        bytes_per_document=0.0,
        unrelated=chosen.unrelated,
        false_candidates=0.0,
        recalls=(),
    )
    recalls = tuple((value, recall_at(form, hasher, value)) for value in _shown_values(request))
    final_recall = recall if bands is None else recall_at(form, hasher, request.threshold)
    return replace(resize(form, request.documents), recall=float(final_recall), recalls=recalls)


def check_plan(plan: object, hasher: Sketcher[Any]) -> None:
    """Raise InputError for another type than LshPlan, or a plan of another hasher."""
    if not isinstance(plan, LshPlan):
        raise InputError(
            f"plan must be what fpstore.lsh.plan returns, got {show(plan)}",
            got=plan,
            argument="plan",
        )
    planned, own = (
        f"{plan.measure} and signatures of {plan.width} bits",
        f"{hasher.law.measure} and {hasher.signature_bits} bits",
    )
    if (plan.measure, plan.width) != (hasher.law.measure, hasher.signature_bits):
        raise InputError(
            f"plan: is for another hasher, of {planned}, and this one has {own}",
            expected=own,
            got=planned,
        )
    if plan.probes > 1 and not hasher.has_probes:
        raise InputError(
            f"plan: has {plan.probes} probes, and the hasher {hasher.name} has none",
            got=plan.probes,
        )
    check_values(hasher, plan.bands, plan.rows)


def check_values(hasher: Sketcher[Any], bands: int, rows: int) -> None:
    """Raise InputError where bands take more hash values than a hasher has."""
    if bands * rows > hasher.most_values:
        raise InputError(
            f"{bands} bands of {rows} take {bands * rows} hash values, and the hasher "
            f"{hasher.name} has {hasher.most_values}",
            expected=hasher.most_values,
            got=bands * rows,
        )


def resize(form: LshPlan, n: int) -> LshPlan:
    """Return a plan with the same bands and radius for another number of documents."""
    layout = EntryLayout.for_size(n, form.bands)
    entry_bits = sum(layout) - math.log2(max(n, 1) * form.bands) + _CODING_BITS
    size = form.bands * entry_bits / 8 + form.width * _SIGNATURE_BYTES / 224 + _ID_BYTES
    candidates = false_candidates(n, form.bands, form.probes, form.unrelated)
    return replace(
        form, documents=n, **layout._asdict(), bytes_per_document=size, false_candidates=candidates
    )


def recall_at(form: LshPlan, hasher: Sketcher[Any], value: float) -> float:
    """Return the share of the pairs at a value of the measure that an index finds."""
    by_keys = 1 - (1 - hasher.law.band_collision(value, form.rows, form.probes)) ** form.bands
    return by_keys * binomial_cdf(form.radius, form.width, hasher.law.differing(value))


def bands_recall(recall: float) -> float:
    """Return the recall that keys must have, since the signature loses pairs too."""
    return recall / (1 - _MIN_LOST_SHARE * (1 - recall))


def false_candidates(n: int, bands: int, probes: int, unrelated: float) -> float:
    """Return how many of ``n`` unrelated documents a look-up compares.

    They have equal values, or keys that are equal after they are cut.
    """
    same = bands / 2.0 ** EntryLayout.for_size(n, bands).key_bits
    return n * (unrelated + bands * probes * same)


def _fewest_trials(probability: float, recall: float, most: int) -> int:
    """Return the fewest trials of which one succeeds with the probability ``recall``.

    This is ``most + 1`` if ``most`` do not suffice.
    """
    if probability >= 1:
        return 1
    if 1 - (1 - probability) ** most < recall:
        return most + 1
    guess = max(math.ceil(math.log1p(-recall) / math.log1p(-probability)) - 1, 1)
    return next(
        number for number in range(guess, most + 1) if 1 - (1 - probability) ** number >= recall
    )


def _check_request(
    n: object,
    hasher: Sketcher[Any],
    threshold: object,
    background: object,
    candidates: object,
    probes: object,
) -> _Request:
    documents, law = check_whole(n, 1, MAX_DOCUMENTS, "n"), hasher.law
    near = law.check_measure(threshold, "threshold")
    far = law.background if background is None else law.check_measure(background, "background")
    if law.collision(near) <= law.collision(far):
        raise InputError(
            f"{with_article(law.measure)} of {near:g} is no nearer than the one of unrelated "
            f"items, {far:g}: take another "
            "threshold, or pass background",
            got=threshold,
        )
    if (
        isinstance(candidates, bool)
        or not isinstance(candidates, Real)
        or not 0 < float(candidates) < math.inf
    ):
        raise InputError(
            f"candidates must be a positive number such as 32, got {show(candidates)}",
            got=candidates,
            argument="candidates",
        )
    probe_count = check_whole(probes, 1, MAX_PROBES, "probes")
    if probe_count > 1 and not hasher.has_probes:
        raise InputError(
            f"the hasher {hasher.name} has no further probes: leave probes out", got=probes
        )
    return _Request(documents, hasher, near, far, float(candidates), probe_count)


def _shown_values(request: _Request) -> list[float]:
    if not request.hasher.law.is_distance:
        return list(_SIMILARITIES)
    most = request.hasher.law.limits[1]
    return [times * request.threshold for times in _DISTANCES if times * request.threshold <= most]


def _unreachable_error(request: _Request, recall: float) -> InputError:
    """Return the error, with arguments that can be reached."""
    best_recall, best_threshold = request.max_recall(), request.nearest_threshold(recall)
    advice = [f"recall={best_recall:g}"] if best_recall else []
    if best_threshold is not None:
        step = 10.0 ** (2 - math.floor(math.log10(best_threshold))) if best_threshold else 1.0
        rounded = (math.floor if request.hasher.law.is_distance else math.ceil)(
            best_threshold * step
        ) / step
        advice.append(f"threshold={rounded:g}")
    counts = (
        request.false_candidates(bands.number, bands.unrelated)
        for bands in request.bands_for(bands_recall(recall))
    )
    fewest = min(counts, default=math.inf)
    if fewest < math.inf:
        advice.append(f"candidates={math.ceil(fewest)}")
    if request.hasher.has_probes:
        advice.append("more probes")
    return InputError(
        f"no number of bands up to {MAX_BANDS} finds {recall:g} of the pairs at "
        f"{with_article(request.hasher.law.measure)} of "
        f"{request.threshold:g} among {request.documents:,} documents with at most "
        f"{request.candidates:g} false candidates: take " + " or ".join(advice),
        got=request.threshold,
    )
