"""What a deduplication is asked for, as JSON in a plan, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fpstore.base.width import Width
from fpstore.design.joins import JoinDesign, plan_join
from fpstore.hashing.bands import Bands
from fpstore.hashing.registry import from_description
from fpstore.io.source import Projection
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.grouping import Grouping


def asked_of(job: DedupJob) -> dict[str, Any]:
    """Return a job as JSON."""
    return {
        "projection": {**asdict(job.projection), "width": job.projection.width.bits},
        "grouping": job.grouping._asdict(), "unknown": job.unknown,
        "fingerprinter": None if job.fingerprinter is None else job.fingerprinter.describe(),
        "least_similarity": job.least_similarity, "bands": job.bands,
    }  # fmt: skip


def job_of(asked: Mapping[str, Any]) -> DedupJob:
    """Return the job that was written as JSON."""
    columns = {**asked["projection"], "width": Width(asked["projection"]["width"])}
    if isinstance(columns["text"], list):
        columns["text"] = tuple(columns["text"])
    made, bands = asked["fingerprinter"], asked["bands"]
    return DedupJob(
        Projection(**columns), Grouping(**asked["grouping"]), asked["unknown"], None if made is None else from_description(made),
        asked["least_similarity"], bands=None if bands is None else Bands(*bands),
    )  # fmt: skip


def exact_design(job: DedupJob, rows: int) -> JoinDesign:
    """Return the design of the join of so many fingerprints: the same one in every task."""
    return plan_join(rows, job.grouping.radius, job.projection.width.bits)


def slice_bits(job: DedupJob, rows: int, slice_rows: int) -> list[int]:
    """Return, for each band or table, how many leading bits of the keys tell its slices apart: of about so many rows each.

    A table in whose buckets a pair may differ has one slice.
    """
    bits = max((max(rows - 1, 0) // slice_rows).bit_length(), 0)
    if job.bands is not None:
        return [bits] * job.bands.number
    design = exact_design(job, rows)
    return [0 if flips else min(bits, table.prefix_bits) for table, flips in zip(design.tables, design.flips, strict=True)]
