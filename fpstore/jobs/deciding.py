"""Which documents of connected groups go, and for which one that stays: the end of every search.

One process, the tasks of a plan and calibration decide by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Lims, Words
from fpstore.base.arrays import list_numbers
from fpstore.base.width import distances_between
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.evidence import Evidence, of_distances, of_texts
from fpstore.jobs.grouping import (
    Grouping,
    IdReader,
    Members,
    group_members,
    rank_documents,
    regroup,
    rows_at,
)
from fpstore.jobs.keys import Keys, KeySteps
from fpstore.jobs.text_sets import TextSets
from fpstore.jobs.variants import RowVariants

COMPARED_AT_ONCE = 1 << 18


class Decision(NamedTuple):
    """Groups of which the first document stays, and the evidence of each member beside it.

    ``near`` is how many documents are connected with others by their texts, but in no group.
    """

    members: Members
    evidence: Evidence
    near: int = 0


def decide_by_fingerprints(
    connected: Members,
    fingerprints: Words,
    grouping: Grouping,
    read_ids: IdReader,
    scores: Words | None,
    variants: RowVariants | None = None,
) -> Decision:
    """Decide connected groups by the radius and the rule of a grouping.

    Near fingerprints are those with near ``variants``, if there are any.
    """
    members = group_members(
        connected,
        grouping,
        lambda span: rows_at(fingerprints, connected.documents[span]),
        read_ids,
        scores,
        None if variants is None else variants.at(connected.documents.view(np.intp)),
    )
    distances = (
        _distances_from_kept(fingerprints, members)
        if variants is None
        else variants.distances(members.documents.view(np.intp), _kept(members).view(np.intp))
    )
    return Decision(members, of_distances(distances))


def decide_by_texts(
    connected: Members,
    texts: TextSets,
    keys: Keys,
    job: DedupJob,
    read_ids: IdReader,
    scores: Words | None = None,
    own: int | None = None,
) -> Decision:
    """Decide connected groups by keys, then by the rule of a job.

    The texts from number ``own`` on are those of a reference, which stay.
    """
    assert job.rule is not None
    rule, own = job.rule, len(texts) if own is None else own
    steps = KeySteps(keys, len(texts))
    is_own = connected.documents < own
    ranks = np.zeros(len(connected.documents), np.uint64)
    ranks[is_own] = rank_documents(
        connected.documents[is_own], job.grouping.keep, texts, read_ids, scores
    )

    def choose(span: slice, order: npt.NDArray[np.intp], lims: Lims) -> Words:
        documents, stays = connected.documents[span][order], ~is_own[span][order]
        chosen = steps.choose(documents.view(np.intp), stays)
        left = np.flatnonzero(chosen == np.arange(len(chosen)))
        left_lims = np.searchsorted(left, lims)
        by_texts = np.arange(len(chosen))
        by_texts[left] = left[
            texts.decide(
                documents[left],
                left_lims,
                rule,
                stays[left].view(np.uint8) if stays.any() else None,
            ).view(np.intp)
        ]
        return by_texts[chosen].astype(np.uint64)

    members = regroup(connected, ranks, choose, ~is_own)
    evidence = of_texts(texts, members.documents, _kept(members), rule)
    evidence = steps.explain(evidence, members.documents)
    near = int(is_own.sum() - (members.documents < own).sum())
    return Decision(members, evidence, 0 if job.is_exact else near)


def kept_flags(
    is_compared: Flags, unknown: str, removed: Iterable[npt.NDArray[np.integer]]
) -> Flags:
    """Return which rows are kept, from arrays of removed rows and the rule for unknown ones."""
    flags: Flags = is_compared | (unknown == "keep")
    for rows in removed:
        flags[rows] = False
    return flags


def _kept(members: Members) -> Words:
    """Return for each member the first document of its group."""
    return members.documents[members.lims[list_numbers(members.lims)]]


def _distances_from_kept(fingerprints: Words, members: Members) -> npt.NDArray[np.uint16]:
    distances = np.empty(len(members.documents), np.uint16)
    kept = _kept(members)
    for start in range(0, len(distances), COMPARED_AT_ONCE):
        sides = (side[start : start + COMPARED_AT_ONCE] for side in (members.documents, kept))
        rows, kept_rows = (fingerprints[side.view(np.intp)] for side in sides)
        distances[start : start + COMPARED_AT_ONCE] = distances_between(rows, kept_rows)
    return distances
