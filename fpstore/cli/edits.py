"""What the verbs share that edit one column of texts: ``boilerplate`` and ``passages``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fpstore.base.resources import Resources
from fpstore.cli import content, options
from fpstore.cli.content import ROWS, TEXTS, Notices
from fpstore.cli.options import option
from fpstore.cli.outputs import open_list
from fpstore.cli.verb import Arguments, fail
from fpstore.io.source import RowSource, format_by_name
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.outputs import Listing

CORPUS = (
    content.TEXT,
    option("--text-field NAME", "Column or JSON field of the texts.", options.NAME),
    content.SKIP_BAD,
    options.SUFFIXES,
    options.ENCODING,
    options.ROW_FORMAT,
)
Result = TypeVar("Result", bound=tuple[Any, ...])


def text_kind(args: Arguments) -> str:
    """Return the kind of the inputs, which are files of texts or rows with one."""
    kind = content.declared_kind(args)
    if kind not in (TEXTS, ROWS):
        fail("name the column of texts with --text-field, or give --text: each file is a document")
    content.refuse_options_of_other_kinds(args, kind)
    return kind


def edit_inputs(
    args: Arguments,
    kind: str,
    inputs: Sequence[str],
    edit: Callable[[RowSource, Resources], Result],
) -> Result:
    """Open the inputs, edit their texts with bars of progress, and print what was left out."""
    notices = Notices(kind)
    corpus = content.open_corpus(args, inputs, kind, notices)
    with args.bars(corpus) as bars:
        result = edit(corpus, args.resources(bars))
    notices.report(args)
    return result


def text_listings(
    name: str,
    path: str | None,
    columns: tuple[str, ...],
    batches: Callable[[Any], Any],
) -> list[Listing]:
    """Return the list of an option, if it is given: its texts may have line breaks and tabs."""
    if path is None:
        return []
    if forbidden_characters(format_by_name(path)):
        fail(
            f"{name}: the texts may have line breaks and tabs: name a .csv, .jsonl or .parquet file"
        )
    return [Listing(path, partial(open_list, columns), batches)]


def counts_of(result: Any) -> dict[str, int]:
    """Return the counts of a result by name, without its tables."""
    counts = {name: value for name, value in result._asdict().items() if isinstance(value, int)}
    return {**counts, "kept": result.kept}
