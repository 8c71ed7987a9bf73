"""What a deduplication is asked for, as JSON in a plan, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fpstore.base.width import Width
from fpstore.hashing.bands import Bands
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.registry import described_fingerprinter
from fpstore.io.source import Projection
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.grouping import Grouping


def asked_of(job: DedupJob) -> dict[str, Any]:
    """Return a job as JSON."""
    return {
        "projection": projection_asked(job.projection),
        "grouping": job.grouping._asdict(),
        "unknown": job.unknown,
        "fingerprinter": None if job.fingerprinter is None else job.fingerprinter.describe(),
        "least_similarity": job.least_similarity,
        "bands": job.bands,
    }


def projection_asked(projection: Projection) -> dict[str, Any]:
    """Return columns as JSON."""
    return {**asdict(projection), "width": projection.width.bits}


def job_of(asked: Mapping[str, Any]) -> DedupJob:
    """Return the job that was written as JSON."""
    bands = asked["bands"]
    return DedupJob(
        projection_in(asked["projection"]),
        Grouping(**asked["grouping"]),
        asked["unknown"],
        fingerprinter_in(asked["fingerprinter"]),
        asked["least_similarity"],
        bands=None if bands is None else Bands(*bands),
    )


def projection_in(asked: Mapping[str, Any]) -> Projection:
    """Return the columns that were written as JSON."""
    columns = {**asked, "width": Width(asked["width"])}
    if isinstance(columns["text"], list):
        columns["text"] = tuple(columns["text"])
    return Projection(**columns)


def fingerprinter_in(asked: Mapping[str, Any] | None) -> Fingerprinter[Any] | None:
    """Return the fingerprinter that was written as JSON."""
    return None if asked is None else described_fingerprinter(asked)
