"""The common part of `delete` and `ids`: ids from arguments, and from files of one id per line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fpstore.errors import InputError
from fpstore.io.check import parse_integer_id
from fpstore.io.files import InputFile, located, storage_errors


class Line(NamedTuple):
    """A non-empty line of an input, and its place."""

    text: str
    name: str
    number: int

    def read(self, parse: Callable[[str, bool], int], decimal: bool) -> int:
        """Return the value that a function parses from it; its InputError names the line."""
        with located(self.name, self.number):
            return parse(self.text.strip(), decimal)


def lines_of(inputs: Sequence[str], null: bool = False) -> list[Line]:
    """Return the lines of files, which end with a line feed or a zero byte."""
    return [line for path in inputs for line in _lines(path, null)]


def given_ids(words: Sequence[str], lines: Sequence[Line], strings: bool) -> list[int] | list[str]:
    """Return the ids given as arguments and as lines, of the kind that a store has."""
    if strings:
        return [*words, *(line.text for line in lines)]
    numbers = [parse_integer_id(word.strip(), plain=False) for word in words]
    return numbers + [line.read(parse_integer_id, False) for line in lines]


def _lines(path: str, null: bool) -> list[Line]:
    """Return the lines of a file. Nothing else ends one: an id may contain other line breaks of Unicode."""
    file = InputFile(path)
    with file.open() as stream, storage_errors(file.name):
        data = stream.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name}: not UTF-8 text ({error.reason})", path=file.name) from error
    cut = text.split("\0") if null else [line.removesuffix("\r") for line in text.split("\n")]
    lines = (Line(line, file.name, number) for number, line in enumerate(cut, 1))
    return [line for line in lines if line.text]
