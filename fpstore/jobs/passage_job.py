"""The question of a removal of passages: what a passage is, and in which order documents come."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fpstore.base.arguments import check_choice, check_flag, check_number, check_whole
from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.io.source import Projection
from fpstore.jobs.editing import edited_column

USUAL_WORDS = 50
MAX_UNITS = 1 << 20  # of a window
KEEP_PASSAGES = ("first", "longest", "highest")


@dataclass(frozen=True)
class PassageJob:
    """What a passage is, which documents come first, and what becomes of later occurrences.

    ``size`` units are a window. Documents of which more than ``drop_above`` occurs before go whole
    in place of cuts; None: passages are cut.
    """

    projection: Projection
    unit: str
    size: int
    keep: str
    drop_above: float | None
    whole_lines: bool

    @property
    def in_words(self) -> bool:
        return self.unit == "words"

    @property
    def gram(self) -> int:
        """The units of a gram: half of a window, so that few grams are hashed for each window."""
        return self.size // 2 + 1 if self.size > 2 else self.size


def passage_job(
    text: str | bool,
    words: int | None,
    bytes: int | None,
    keep: str,
    score: str | None,
    id: str | None,
    drop_above: float | None,
    whole_lines: bool,
) -> PassageJob:
    """Check the arguments of :func:`fpstore.remove_passages`; InputError if one is wrong."""
    projection = edited_column(text)
    if words is not None and bytes is not None:
        raise InputError(
            f"a passage has a length in words or in bytes: give {keyword('words')} or "
            f"{keyword('bytes')}"
        )
    unit = "words" if bytes is None else "bytes"
    size = check_whole(
        bytes if bytes is not None else USUAL_WORDS if words is None else words, 1, MAX_UNITS, unit
    )
    check_choice(keep, KEEP_PASSAGES, "keep")
    for argument, name in {"score": score, "id": id}.items():
        if name is not None and not (isinstance(name, str) and name):
            raise InputError(
                f"{argument} must be the name of a column, got {show(name)}",
                got=name,
                argument=argument,
            )
        if name is not None and text is True:
            raise InputError("files that are texts have no columns: their ids are their paths")
    if (keep == "highest") != (score is not None):
        raise InputError(
            f"{keyword('keep', 'highest')} needs {keyword('score')}, and {keyword('score')} needs "
            f"{keyword('keep', 'highest')}"
        )
    if drop_above is not None:
        check_number(drop_above, 0, 1, "drop_above")
    if check_flag(whole_lines, "whole_lines") and drop_above is not None:
        raise InputError(
            f"{keyword('drop_above')} cuts nothing, so {keyword('whole_lines', True)} does not go "
            "with it"
        )
    if id is not None:
        projection = replace(projection, id=id)
    return PassageJob(replace(projection, score=score), unit, size, keep, drop_above, whole_lines)
