"""What `dedup` removes of a sample, by texts or by fingerprints, and how much of that wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import distinct_places, list_numbers
from fpstore.base.resources import Resources
from fpstore.calibration.rates import Places, Rate
from fpstore.calibration.settings import CalibrationOptions, Setting
from fpstore.design.joins import JoinDesign, scan_design
from fpstore.hashing.base import Hashed
from fpstore.jobs.deciding import decide_by_texts
from fpstore.jobs.dedup_job import DedupJob, DedupSpec
from fpstore.jobs.grouping import Grouping, Members, group_members, members_in_sets
from fpstore.jobs.joining import connect_rows
from fpstore.jobs.overlaps import connect_by_overlaps
from fpstore.jobs.text_sets import (
    LOSSLESS_CONTAINMENT,
    USUAL_CONTAINMENT,
    Rule,
    TextSets,
    join_sets,
)


class Verdict(NamedTuple):
    """The share of the grouped documents that is removed, and shares of these by the judge.

    ``contained`` is the share whose shingles of three words the kept document has to 95% and more,
    ``wrong`` the share of documents that are unlike the kept one.
    """

    removed: Rate
    contained: Rate
    wrong: Rate

    def fits(self, most_wrong: float) -> bool:
        return not self.wrong.total or self.wrong.value <= most_wrong


@dataclass(frozen=True)
class RuleMeasurement:
    """A rule of `dedup` where texts decide, with the pieces of a setting.

    Attributes
    ----------
    setting : Setting
        Its fingerprinter makes the pieces.
    rule : Rule
        When a text goes for one that stays.
    copies : mapping of str to Rate
        By the name of a change, the share of changed copies that go for their originals, or whose
        originals go for them.
    removed, contained, wrong : Rate
        As in `Verdict`.
    near : int
        The documents that stay although another one has much of their text.
    fits : bool
        Whether few enough documents are removed wrongly.
    """

    setting: Setting
    rule: Rule
    copies: Mapping[str, Rate]
    removed: Rate
    contained: Rate
    wrong: Rate
    near: int
    fits: bool

    @property
    def is_lossless(self) -> bool:
        """Whether it is the rule ``lossless`` of `dedup`."""
        return self.rule.similar > 1

    @property
    def found(self) -> Rate:
        """The share of all changed copies that go, or whose originals go."""
        rates = self.copies.values()
        return Rate(sum(rate.count for rate in rates), sum(rate.total for rate in rates))

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement as JSON values."""
        return {
            "setting": self.setting.name,
            "fingerprinter": self.setting.fingerprinter.describe(),
            "rule": {
                "contained": self.rule.contained,
                "threshold": None if self.is_lossless else self.rule.similar,
            },
            "fits": self.fits,
            **{
                name: getattr(self, name).to_dict()
                for name in ("found", "removed", "contained", "wrong")
            },
            "near": self.near,
            "by_change": {name: rate.to_dict() for name, rate in self.copies.items()},
        }


def rule_jobs(settings: list[Setting]) -> dict[int, list[DedupJob]]:
    """Return the deduplications by texts with the pieces of settings, by the place of the setting.

    Settings of MinHash make pieces. Of settings with the same pieces, the first counts. A radius is
    for fingerprints. ``lossless`` goes with the first pieces.
    """
    jobs, seen = dict[int, list[DedupJob]](), set[str]()
    for number, setting in enumerate(settings):
        if setting.radius is not None and setting.threshold is None:
            continue
        spec = partial(DedupSpec, None, text=True, fingerprinter=setting.fingerprinter)
        job = spec(threshold=setting.threshold).job()
        pieces = {**setting.fingerprinter.parameters, "width": job.rule}
        if job.rule is None or str(pieces) in seen:
            continue
        jobs[number] = [job] if seen else [job, spec(lossless=True).job()]
        seen.add(str(pieces))
    return jobs


class Removals:
    """What `dedup` removes of texts, and how much of that wrongly.

    A removal is wrong if the document shares less than a bound of its shingles of three words with
    the kept one, which has less than 80% of them.
    """

    def __init__(self, shingles: TextSets, options: CalibrationOptions, resources: Resources):
        """Judge by shingles of three words, with the lengths of the texts."""
        self._count, self._shingles = len(shingles), shingles
        self._options, self._resources = options, resources
        self.jobs = rule_jobs(options.settings)

    def by_texts(
        self, number: int, hashed: Hashed, copies: Mapping[str, Places]
    ) -> list[RuleMeasurement]:
        """Measure the rules with the pieces of the n-th setting, on the documents and on copies."""
        if hashed.sets is None:
            return []
        chars = np.pad(self._shingles.chars, (0, len(hashed.known) - self._count))
        texts = join_sets(hashed.sets.features, [(*hashed.sets[1:], chars)])
        searched = hashed.known.copy()
        searched[self._count :] = False
        setting = self._options.settings[number]
        return [self._measure(setting, job, texts, searched, copies) for job in self.jobs[number]]

    def _measure(
        self,
        setting: Setting,
        job: DedupJob,
        texts: TextSets,
        searched: Flags,
        copies: Mapping[str, Places],
    ) -> RuleMeasurement:
        assert job.rule is not None
        rule = job.rule
        connected, _ = members_in_sets(connect_by_overlaps(texts, rule, self._resources, searched))
        decision = decide_by_texts(connected, texts, {}, job, lambda ids: ids)
        verdict = self._judge(decision.members, int(searched.sum()))
        return RuleMeasurement(
            setting,
            rule,
            {name: _rate_found(texts, pairs, rule) for name, pairs in copies.items()},
            *verdict,
            decision.near,
            verdict.fits(self._options.most_wrong),
        )

    def within(self, hashed: Hashed, width: int, max_radius: int) -> Callable[[int], Verdict]:
        """Return a function of a radius up to a largest one, where fingerprints decide."""
        known = np.flatnonzero(hashed.known[: self._count])
        design = scan_design(max_radius, width)
        near = np.sort(self._groups(hashed.rows, known, design).documents)

        def judge(radius: int) -> Verdict:
            groups = self._groups(hashed.rows, near, scan_design(radius, width))
            members = group_members(
                groups,
                Grouping(radius, "greedy", "first"),
                lambda here: hashed.rows[groups.documents[here]],
                lambda ids: ids,
            )
            return self._judge(members, len(known))

        return judge

    def _groups(self, rows: Words, places: npt.NDArray[Any], design: JoinDesign) -> Members:
        """Return groups of the places that pairs within the radius of a design connect."""
        distinct, row_places = distinct_places(rows[places])
        # Comparing all of so few takes less time than a plan.
        sets = connect_rows(distinct, design, self._resources)
        return members_in_sets(sets[row_places], places.astype(np.uint64))[0]

    def _judge(self, members: Members, count: int) -> Verdict:
        kept = members.documents[members.lims[list_numbers(members.lims)]][members.is_removed]
        contained, similar = self._shingles.shares(members.documents[members.is_removed], kept)
        wrong = (similar < self._options.resemblance) & (contained < USUAL_CONTAINMENT)
        return Verdict(
            Rate(len(kept), count),
            Rate(int((contained >= LOSSLESS_CONTAINMENT).sum()), len(kept)),
            Rate(int(wrong.sum()), len(kept)),
        )


def _rate_found(texts: TextSets, pairs: Places, rule: Rule) -> Rate:
    """Return the share of pairs of texts of which one goes for the other by a rule."""
    a, b = np.ascontiguousarray(pairs).view(np.uint64)
    contained, similar = texts.shares(a, b)
    contained = np.maximum(contained, texts.shares(b, a)[0])
    found = (contained >= rule.contained) | (similar >= rule.similar)
    return Rate(int(found.sum()), len(found))
