"""The table of options that several verbs share, and the types of their values.

A value out of range is a usage error (exit code 2) before anything is opened or written.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem

from fpstore.base.arguments import check_path, check_share, is_uri
from fpstore.base.resources import MAX_THREADS, parse_memory, parse_size
from fpstore.base.width import WIDTHS, check_width
from fpstore.building.target import refuse_inside_store
from fpstore.cli.output import CLOSED, output_is_closed
from fpstore.cli.verb import Decorator, fail, option_name, refusal
from fpstore.design.blocks import AUTO, CODECS, HUFFMAN, PREFER, STORAGE, check_block_bytes
from fpstore.design.families import check_design
from fpstore.errors import InputError, StorageError, show
from fpstore.io.encodings import check_encoding
from fpstore.io.source import FIELD_FORMATS, FORMATS, IdType

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "b": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}
_MAX_FINGERPRINTS = 1 << 64
_PATHS = {  # what names a path
    "A",
    "B",
    "BENCHMARK",
    "CORPUS",
    "DIR",
    "FILE",
    "FOLDER",
    "FP",
    "INDEX",
    "INPUT",
    "NEW",
    "OTHER",
    "OUTPUT",
    "PATH",
    "PLAN",
    "QUERIES",
    "STORE",
}


class ParsedValue(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A value parsed by a function of the library; its InputError becomes a usage error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text; a default that is not a string stays."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except InputError as error:
            raise click.UsageError(refusal(error, _parameter_name(param)), ctx) from None


def _parameter_name(param: click.Parameter | None) -> str:
    return (
        "a value"
        if param is None
        else param.opts[-1]
        if param.param_type_name == "option"
        else param.human_readable_name
    )


def whole_number(least: int, most: int) -> ParsedValue:
    def read(text: str) -> int:
        # Longer ones are out of range, and int() refuses thousands of digits.
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
        if number is None or not least <= number <= most:
            raise InputError(f"must be a whole number from {least} to {most}, got {show(text)}")
        return number

    return ParsedValue("integer", read)


def parse_count(text: str) -> int:
    """Return a number such as ``16777216``, ``16,777,216``, ``2^24``, ``1e9`` or ``16Mi``."""
    compact = re.sub(r"[_,\s]", "", text)
    value: float | None = None
    power = re.fullmatch(r"(\d{1,6})(?:\^|\*\*)(\d{1,3})", compact)
    scaled = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?(?:[eE]\+?\d{1,2})?)([kKmMgGbBtT]i?)?", compact)
    if power:
        value = int(power[1]) ** int(power[2])
    elif scaled and (scaled[2] or "").lower() in _UNITS:
        unit = _UNITS[(scaled[2] or "").lower()]
        value = int(scaled[1]) * unit if scaled[1].isdigit() else float(scaled[1]) * unit
    if value is None or value != int(value):
        raise InputError(
            f"{show(text)} is not a number of fingerprints: write it as 16777216, 2^24, 1e9 or 16M",
            got=text,
        )
    if value > _MAX_FINGERPRINTS:
        raise InputError(
            f"{show(text)} is more than 2^64, the number of all fingerprints", got=text
        )
    return int(value)


def _number(text: str) -> Any:
    """Return a number if the text is one, else the text, for a function that refuses it."""
    with suppress(ValueError):
        return int(text) if re.fullmatch(r"[0-9]{1,20}", text) else float(text)
    return text


def _text_check(is_right: Callable[[str], bool], requirement: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if not is_right(text):
            raise InputError(f"must {requirement}, got {show(text)}")
        return text

    return read


BLOCK = ParsedValue("integer", lambda text: check_block_bytes(_number(text)))
BUDGET = ParsedValue("size", lambda text: parse_size(text, "the size"))
COUNT = whole_number(1, 2**63 - 1)
NAME = ParsedValue("name", _text_check(bool, "be the name of a column"))
NUMBER_OF_ALL = ParsedValue("number", parse_count)
RADIUS = whole_number(0, WIDTHS[-1])
SHARE = ParsedValue("number", lambda text: check_share(_number(text), "the share"))
SUFFIX = ParsedValue(
    "text",
    _text_check(
        lambda text: text.startswith(".") and len(text) > 1, "start with a dot, such as .txt"
    ),
)


def _as_path(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="file")]


def option(
    names: str, text: str, kind: Any = None, default: Any = None, into: str = "", **settings: Any
) -> Decorator:
    """Return an option of the names and the placeholder of its value, as ``-r --radius N``.

    ``kind`` is a type of click, or the words that the value may be. Without a kind and a
    placeholder, the option is a flag. ``into`` names the parameter, by default the longest name.
    """
    words = names.split()
    value = words.pop() if not words[-1].startswith("-") else None
    if isinstance(kind, tuple | list):
        kind = click.Choice(kind)
    elif kind is None and value in _PATHS:
        settings["shell_complete"] = _as_path
    elif kind is None and value is None:
        settings.setdefault("is_flag", True)
    if default is not None or "/" in names:
        settings = {"default": default, "show_default": default is not None, **settings}
    return click.option(
        *words, *([into] if into else []), type=kind, metavar=value, help=text, **settings
    )


def argument(name: str, metavar: str, **settings: Any) -> Decorator:
    if metavar.strip("[.]") in _PATHS:
        settings["shell_complete"] = _as_path
    return click.argument(name, metavar=metavar, **settings)


def check_output_path(
    ctx: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Refuse an output that cannot be written; a quiet search needs none."""
    if (
        value == "-"
        and output_is_closed()
        and not (ctx.params.get("quiet") and ctx.command.name in SEARCHES)
    ):
        raise StorageError(CLOSED)
    if value not in (None, "-") and not is_uri(value):
        refuse_inside_store(check_path(value, "the output"))
    return value


def replace_option(name: str, kind: str) -> Decorator:
    return option(
        "--force",
        f"Replace {name}, if it is {kind} already, once the new one is complete. Nothing else is "
        "ever replaced.",
        into="overwrite",
    )


def replace_outputs(names: str) -> Decorator:
    """Return --force of a verb that writes rows and lists."""
    return option(
        "--force",
        f"Replace {names}, if they exist. A folder of rows is replaced if it holds only files of "
        "the same format. A folder of texts must be new or empty.",
        into="overwrite",
    )


def output_option(text: str, default: str | None = "-", replaces: bool = True) -> Decorator:
    if default:
        text += " By default standard output." + " An existing file is replaced." * replaces
    return option(
        "-o --output FILE", text, default=default, show_default=False, callback=check_output_path
    )


# What several verbs have. The reference describes each once, in the section "Shared options".

SEARCHES = ("probe", "scan", "nearest")
STORE = argument("store", "STORE")
INPUTS = argument("inputs", "INPUT...", nargs=-1, required=True)

THREADS = option(
    "--threads N", "Number of threads. By default one per processor.", whole_number(1, MAX_THREADS)
)
MEMORY = option(
    "--memory SIZE",
    "Memory budget, such as 2GiB, at least 64MiB. By default a quarter of this machine's memory.",
    ParsedValue("size", parse_memory),
)
WIDTH = option(
    "--width BITS",
    "Bits of a fingerprint: 32, 64, 128 or 256. Without it, minhash takes 256.",
    ParsedValue("integer", lambda text: check_width(_number(text)).bits),
    default=64,
)
JSON = option("--json", "Write JSON.", into="as_json")
QUIET = option(
    "-q --quiet", "Write errors, and results such as JSON, but no progress, notes and summary."
)
NO_PROGRESS = option(
    "--no-progress", "Show no progress bar. Without a terminal on standard error there is none."
)
TALK = (QUIET, NO_PROGRESS)
RESULT = (*TALK, JSON)
LIMITS = (THREADS, MEMORY)
FORCE_OUTPUT = option("--force", "Replace the file of --output, if it exists.", into="overwrite")
OUTPUT = output_option(
    "Where to write: .tsv, .csv, .jsonl or .parquet. With .gz or .zst behind it, lines are "
    "compressed."
)
THRESHOLD_GUESS = {
    "--threshold": "--radius takes bits: MinHash().radius(0.8) in Python is the one for a Jaccard "
    "similarity of 0.8"
}
PAIR_RADIUS = option(
    "-r --radius N", "Largest distance of a pair. By default the store's radius.", RADIUS
)

INDEX_IDS = option(
    "--index-ids",
    "Index integer ids, as strings always are: looking up, deleting and replacing by id then take "
    "no pass over all ids.",
)
DESIGN = option(
    "--design NAME",
    "Which tables to keep: auto, or a name that fpstore plan lists.",
    default="auto",
)
CHOICE = (
    option(
        "--storage",
        "Compare designs by the time with tables in memory (hot) or read from disk (cold).",
        STORAGE,
        STORAGE[0],
    ),
    option(
        "--prefer",
        "What auto takes of the designs that fit: a balance of speed and bytes, the fastest, or "
        "the smallest.",
        PREFER,
        PREFER[0],
    ),
)
PLANNING = (
    option(
        "--codec",
        "How tables of blocks are packed; elias-fano is smaller and faster.",
        CODECS,
        HUFFMAN,
    ),
    option(
        "--filter/--no-filter",
        "Write a filter beside each table of blocks that gains from one, or none. By default, "
        "where filters pay for their bytes; with --storage cold none.",
        callback=lambda ctx, parameter, value: AUTO if value is None else value,
    ),
    option(
        "--disk-budget SIZE",
        "Disk space, such as 40GB, for the tables and ids of the chosen design.",
        BUDGET,
    ),
    *CHOICE,
)
RADIUS_OF_PROBES = option(
    "-r --radius N",
    "Largest radius of probes, 0 to the width. Above a quarter of the width, the only design is "
    "scan.",
    RADIUS,
    3,
)

FORMAT = option(
    "--format",
    "Format of the input. By default from its extension, and tsv for standard input.",
    FORMATS,
)
ROW_FORMAT = option(
    "--format",
    "Format of the rows of all inputs, also of all files in folders. By default from their "
    "extensions.",
    FIELD_FORMATS,
)
DECIMAL = option("--decimal", "Fingerprints in text are decimal, not hexadecimal.")
SIGNED = option("--signed", "Signed integers are the bits of fingerprints of 32 or 64 bits.")
FINGERPRINT_FIELD = option(
    "--fingerprint-field NAME",
    "Column or JSON field of fingerprints. By default fingerprint.",
    NAME,
)
ID_FIELD = option(
    "--id-field NAME",
    "Column or JSON field of ids. By default id; of texts, the row number is the id.",
    NAME,
)
ID_TYPE = option("--id-type", "Type of the ids.", get_args(IdType), "auto")
ROW_OPTIONS = (FORMAT, DECIMAL, SIGNED, FINGERPRINT_FIELD, ID_FIELD, ID_TYPE)

SUFFIXES = option(
    "--suffix .EXT",
    "In folders, read only files with this extension; may be repeated. Symbolic links are not "
    "followed.",
    SUFFIX,
    into="suffixes",
    multiple=True,
    callback=lambda ctx, parameter, value: list(value) or None,
)
ENCODING = option(
    "--encoding NAME",
    "Encoding of texts and lines, such as gb18030. By default as a byte order mark says, or "
    "UTF-8, or as a page of HTML declares.",
    ParsedValue("text", check_encoding),
)
HTML = option(
    "--html/--html-fast",
    "Texts are pages of HTML: take titles and main texts, found by the package trafilatura, or by "
    "resiliparse: 5 times as fast, but it leaves more of the menus in.",
    callback=lambda ctx, parameter, value: (
        value is not None and ("trafilatura" if value else "resiliparse")
    ),
)


def check_radius_option(radius: int | None, width: int) -> None:
    if radius is not None and radius > width:
        fail(f"{option_name('radius')}: must be a whole number from 0 to {width}, got '{radius}'")


def check_design_name(name: str, radius: int, width: int, option_name: str = "--design") -> None:
    check_radius_option(radius, width)
    try:
        check_design(name, radius, width)
    except InputError as error:
        fail(f"{option_name}: {error}")
