"""Options and arguments shared by several verbs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fpstore.base.arguments import check_path
from fpstore.building.target import refuse_inside_store
from fpstore.cli import types
from fpstore.cli.streams import CLOSED, output_is_closed
from fpstore.design.blocks import AUTO, CODECS, HUFFMAN, PREFER, STORAGE
from fpstore.errors import InputError, StorageError, show
from fpstore.io import FORMATS
from fpstore.io.source import LINE_FORMATS

Function = TypeVar("Function", bound=Callable[..., Any])
Decorator = Callable[[Any], Any]

store_argument = click.argument("store", metavar="STORE")
threads_option = click.option(
    "--threads", type=types.THREADS, metavar="N", help="Number of threads; by default one per processor."
)
memory_option = click.option(
    "--memory",
    type=types.MEMORY,
    metavar="SIZE",
    help="Memory budget, such as 2GiB, at least 64MiB; by default a quarter of this machine's memory.",
)
pair_radius_option = click.option(
    "-r", "--radius", type=types.RADIUS, metavar="N", help="Largest distance of a pair; by default the store's radius."
)
width_option = click.option(
    "--width",
    type=types.WIDTH,
    default=64,
    show_default=True,
    metavar="BITS",
    help="Bits of a fingerprint: 32, 64, 128 or 256.",
)
disk_budget_option = click.option(
    "--disk-budget",
    type=types.BUDGET,
    metavar="SIZE",
    help="Disk space, such as 40GB, that the tables and ids of the chosen design may take.",
)
storage_option = click.option(
    "--storage",
    type=click.Choice(STORAGE),
    default=STORAGE[0],
    show_default=True,
    help="Compare designs by the time with tables in memory (hot) or read from disk (cold).",
)
prefer_option = click.option(
    "--prefer",
    type=click.Choice(PREFER),
    default=PREFER[0],
    show_default=True,
    help="Which of the designs that fit auto takes: a balance of speed and bytes, the fastest, or the smallest.",
)
codec_option = click.option(
    "--codec",
    type=click.Choice(CODECS),
    default=HUFFMAN,
    show_default=True,
    help="How tables of blocks are packed; elias-fano is smaller and faster. Column tables are not packed: "
    "with designs of these alone, it changes nothing.",
)
filter_option = click.option(
    "--filter/--no-filter",
    default=None,
    callback=lambda ctx, parameter, value: AUTO if value is None else value,
    help="Write a filter beside each table of blocks that gains from one, or none: a look-up that would find nothing then mostly "
    "opens no block. By default, where filters pay for their bytes; with --storage cold none.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Write JSON lines, one object per query.")


def null_option(lines: str) -> Decorator:
    """Return the option ``--null``, for some lines."""
    help_text = f"{lines} end with a zero byte, as grep -z and xargs -0 have it; ids may hold line feeds."
    return click.option("-0", "--null", is_flag=True, help=help_text)


def _read_names(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    names: dict[str, str] = {}
    for text in value:
        old, _, new = text.partition("=")
        if not old or not new:
            raise click.UsageError(f"--rename: must be OLD=NEW, got {show(text)}", ctx)
        if old in names:
            raise click.UsageError(f"--rename: the column {show(old)} is renamed twice", ctx)
        names[old] = new
    return names


rename_option = click.option(
    "--rename",
    "names",
    multiple=True,
    metavar="OLD=NEW",
    callback=_read_names,
    help="Another name for a column of the output; may be repeated. Delimited text then begins with a line of the names.",
)


def ends_with_null(null: bool, reads_lines: bool, output_format: str) -> bool:
    """Whether lines of the output end with a zero byte; a usage error for --null where there are no lines at all."""
    writes_lines = output_format in LINE_FORMATS
    if null and not (reads_lines or writes_lines):
        types.fail(f"--null is for lines ({', '.join(LINE_FORMATS)}), and neither input nor output has any")
    return null and writes_lines


def output_option(
    text: str, check: Callable[[click.Context, click.Parameter, str], str] | None = None, force: bool = False
) -> Decorator:
    """Return the option ``-o``."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        default="-",
        callback=check or check_output,
        help=f"{text}; by default standard output. An existing file is replaced{', with --force' if force else ''}.",
    )


def check_output(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse an output that cannot be written to."""
    if value == "-" and output_is_closed():
        raise StorageError(CLOSED)
    if value != "-":
        refuse_inside_store(check_path(value, "the output"))
    return value


def grouped(name: str, kind: type, *options: Decorator) -> Decorator:
    """Add options whose values become the fields of one dataclass, which the function receives as ``name``."""
    fields = [field.name for field in dataclasses.fields(kind)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(**values: Any) -> Any:
            group = kind(**{field: values.pop(field) for field in fields})
            return function(**{name: group}, **values)

        for option in reversed(options):
            wrapped = option(wrapped)
        return wrapped

    return decorate


def is_given(parameter: str) -> bool:
    """Return whether a parameter was given on the command line."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def refuse(names: set[str], reason: str) -> None:
    """Raise a usage error if one of these parameters was given on the command line."""
    ctx = click.get_current_context()
    for parameter in ctx.command.params:
        given = parameter.name and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
        if given and parameter.name in names:
            raise click.UsageError(f"{parameter.opts[-1]} {reason}", ctx)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Report what a function of the library refuses inside the block as a usage error."""
    try:
        yield
    except InputError as error:
        types.fail(types.in_options(str(error)))


@dataclasses.dataclass(frozen=True)
class Talk:
    """How much is written to standard error besides errors."""

    quiet: bool
    no_progress: bool

    @property
    def bars(self) -> bool:
        """Whether progress bars are wanted."""
        return not (self.quiet or self.no_progress)

    def note(self, message: str) -> None:
        """Write a message to standard error, unless quiet."""
        from fpstore.cli.output import complain

        if not self.quiet:
            complain(message)


_no_progress_option = click.option(
    "--no-progress",
    is_flag=True,
    help="Do not show a progress bar (the default when standard error is not a terminal).",
)
talk_options = grouped(
    "talk",
    Talk,
    click.option(
        "-q", "--quiet", is_flag=True, help="Write errors and results such as JSON, but no progress, notes and summary."
    ),
    _no_progress_option,
)
search_talk_options = grouped(
    "talk",
    Talk,
    click.option(
        "-q", "--quiet", is_flag=True, is_eager=True,
        help="Write nothing but errors, and stop at the first match: the exit code says whether there is one.",
    ),
    _no_progress_option,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rows:
    """How files of fingerprints are read: arguments of `fpstore.io.open_reader`, which needs the width besides."""

    format: str | None
    decimal: bool
    signed: bool
    fingerprint_field: str | None
    id_field: str | None
    id_type: Any

    @property
    def arguments(self) -> dict[str, Any]:
        """The same, as keyword arguments."""
        return dataclasses.asdict(self)


format_option = click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of the input; by default from its extension, and tsv for standard input.",
)
id_field_option = click.option(
    "--id-field",
    type=types.NAME,
    help="JSON field, Parquet column, or column in the header of a CSV or TSV file, of the ids; by default id. The ids of "
    "texts are by default the row numbers.",
)
id_type_option = click.option(
    "--id-type", type=click.Choice(["auto", "int", "str"]), default="auto", show_default=True, help="Type of the ids."
)
ID_PARAMETERS = {"id_field", "id_type"}
ROW_PARAMETERS = {"format", "decimal", "signed", "fingerprint_field", *ID_PARAMETERS}

row_options = grouped(
    "rows",
    Rows,
    format_option,
    click.option("--decimal", is_flag=True, help="Fingerprints in text are decimal, not hexadecimal."),
    click.option(
        "--signed",
        is_flag=True,
        help="Signed integers in .npy, Parquet, JSON and decimal text are the bits of fingerprints of 32 or 64 bits.",
    ),
    click.option(
        "--fingerprint-field",
        type=types.NAME,
        help="JSON field, Parquet column, or column in the header of a CSV or TSV file, of the fingerprints; "
        "by default fingerprint.",
    ),
    id_field_option,
    id_type_option,
)
