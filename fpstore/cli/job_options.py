"""The options that all jobs over a whole store have: where the output goes, limits, and whether the job can be resumed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fpstore.cli.options import (
    Talk,
    grouped,
    json_option,
    memory_option,
    output_option,
    rename_option,
    threads_option,
)
from fpstore.cli.resume import folder_of, resume_option


@dataclasses.dataclass(frozen=True)
class JobOptions:
    """The values of these options."""

    output: str
    as_json: bool
    names: dict[str, str]
    memory: str | None
    threads: int | None
    resume: bool

    def folder(self, talk: Talk) -> Path | None:
        """Return the folder of what is done, if it is kept."""
        return folder_of(self.output, self.resume, talk)


job_options = grouped(
    "options",
    JobOptions,
    output_option("Where to write: .tsv, .csv, .jsonl or .parquet"),
    json_option,
    rename_option,
    memory_option,
    threads_option,
    resume_option,
)
