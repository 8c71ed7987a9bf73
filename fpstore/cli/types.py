"""Types of option values. A value out of range is a usage error (exit code 2) before anything is opened or written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import click

from fpstore.base.arguments import check_share
from fpstore.base.resources import MOST_THREADS, parse_memory, parse_size
from fpstore.base.width import WIDTHS, check_width
from fpstore.design.blocks import BLOCK_BYTES
from fpstore.design.families import check_design
from fpstore.errors import InputError, show
from fpstore.io.encodings import check_encoding

_SUBJECT = re.compile(r"^(the )?\w+ must\b")


class Checked(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click only
    """A value parsed by a function of the library; its InputError becomes a usage error."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the function's result for a text; a default that is not a string is returned unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except InputError as error:
            raise click.UsageError(f"{_option(param)}: {_SUBJECT.sub('must', str(error))}", ctx) from None


def whole(least: int, most: int) -> Checked:
    """Return the type of a whole number within a range."""

    def read(text: str) -> int:
        # Longer ones are out of range, and int() refuses thousands of digits.
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
        if number is None or not least <= number <= most:
            raise InputError(f"must be a whole number from {least} to {most}, got {show(text)}")
        return number

    return Checked("integer", read)


def fail(message: str) -> None:
    """End with a usage error."""
    raise click.UsageError(message, click.get_current_context())


def in_options(message: str) -> str:
    """Return a message about an argument with the name of its option, if the command has one of this name."""
    name, _, rest = message.partition(" ")
    option = next((param for param in click.get_current_context().command.params if param.name == name), None)
    return f"{_option(option)} {rest}" if option and rest.startswith(("must ", "is for ")) else message


def usage_error_for_radius(radius: int | None, width: int) -> None:
    """Raise a usage error for a radius above the width."""
    if radius is not None and radius > width:
        option = next((param for param in click.get_current_context().command.params if param.name == "radius"), None)
        fail(f"{_option(option)}: must be a whole number from 0 to {width}, got '{radius}'")


def usage_error_for_design(name: str | None, radius: int, width: int) -> None:
    """Raise a usage error for a radius above the width, or a design that is not known or not exact for the radius."""
    usage_error_for_radius(radius, width)
    try:
        if name is not None:
            check_design(name, radius, width)
    except InputError as error:
        fail(f"--design: {error}")


def _option(param: click.Parameter | None) -> str:
    return "a value" if param is None else param.opts[-1] if param.param_type_name == "option" else param.human_readable_name


def _block_bytes(text: str) -> int:
    if text not in map(str, BLOCK_BYTES):
        raise InputError(f"must be one of {', '.join(map(str, BLOCK_BYTES))}, got {show(text)}")
    return int(text)


def _width(text: str) -> int:
    return check_width(int(text) if text in map(str, WIDTHS) else text).bits


def _share(text: str) -> float | None:
    try:
        number: Any = float(text)
    except ValueError:
        number = text
    return check_share(number, "the share")


def _name(text: str) -> str:
    if not text:
        raise InputError(f"must be the name of a column, got {show(text)}")
    return text


def _suffix(text: str) -> str:
    if not text.startswith(".") or len(text) < 2:
        raise InputError(f"must start with a dot, such as .txt, got {show(text)}")
    return text


def _encoding(text: str) -> str | None:
    return check_encoding(text)


BLOCK = Checked("integer", _block_bytes)
BUDGET = Checked("size", lambda text: parse_size(text, "the size"))
ENCODING = Checked("text", _encoding)
MEMORY = Checked("size", parse_memory)
NAME = Checked("name", _name)
RADIUS = whole(0, WIDTHS[-1])
COUNT = whole(1, 2**63 - 1)
SHARE = Checked("number", _share)
SUFFIX = Checked("text", _suffix)
WIDTH = Checked("integer", _width)
THREADS = whole(1, MOST_THREADS)
