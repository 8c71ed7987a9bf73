"""Texts on the command line: the options of SimHash; fingerprints of files, folders and standard input."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.options import Talk, grouped
from fpstore.cli.output import count
from fpstore.errors import InputError, StorageError
from fpstore.format.manifest import is_store
from fpstore.io import Chunk, check_fingerprints

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, SimHash

SIMHASH_PARAMETERS = {"shingle", "shingle_size", "weighting"}
FOLDER_PARAMETERS = {"suffix"}
_SENTENCES = {
    "binary": "binary, not text",
    "large": "too large",
    "damaged": "damaged compressed files",
    "rows": "rows, not one text",
    "empty": "no words",
    "null": "no text",
}
_NAMED = 3

suffix_option = click.option(
    "--suffix",
    type=types.SUFFIX,
    multiple=True,
    metavar=".EXT",
    help="In folders, read only files whose names end with this; may be repeated. Symbolic links in folders are not followed.",
)


@dataclass(frozen=True)
class Shingles:
    """The parameters of SimHash that the command line offers."""

    shingle: str
    shingle_size: int
    weighting: str

    def fingerprinter(self) -> SimHash:
        """Return the fingerprinter."""
        from fpstore.hashing import SimHash

        return SimHash(shingle=self.shingle, size=self.shingle_size, weighting=self.weighting)


shingle_options = grouped(
    "shingles",
    Shingles,
    click.option(
        "--shingle", type=click.Choice(["words", "chars"]), default="words", show_default=True,
        help="Unit of the overlapping pieces of a text.",
    ),
    click.option(
        "--shingle-size", type=types.whole(1, 255), default=3, show_default=True, metavar="N",
        help="Number of units in a piece, 1 to 255.",
    ),
    click.option(
        "--weighting", type=click.Choice(["count", "set"]), default="count", show_default=True,
        help="Count each occurrence of a piece (count), or each distinct piece once (set), so that a piece which a table or a "
        "menu repeats does not outweigh the rest.",
    ),
)  # fmt: skip


class Notices:
    """Counts the files, or the rows, that are left out, to name the first of them once at the end."""

    def __init__(self, what: str = "file") -> None:
        self._what = what
        self._seen: Counter[str] = Counter()
        self._first: dict[str, list[str]] = {}

    def __call__(self, which: Path | int, reason: str) -> None:
        """Count the file with a path, or the row with a number."""
        self._seen[reason] += 1
        names = self._first.setdefault(reason, [])
        if len(names) < _NAMED:
            names.append(f"row {which}" if isinstance(which, int) else str(which))

    def report(self, talk: Talk) -> None:
        """Report how many were left out for each reason."""
        for reason, number in sorted(self._seen.items()):
            names = ", ".join(self._first[reason])
            more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
            talk.note(f"{count(number, self._what)} left out, {_SENTENCES[reason]}: {names}{more}")


def reader(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    notices: Notices,
) -> DocumentReader:
    """Return the reader of files and folders."""
    from fpstore.hashing import DocumentReader

    return DocumentReader(paths, fingerprinter, suffixes=list(suffixes) or None, on_notice=notices)


def refuse_folders(paths: Sequence[str]) -> None:
    """Refuse a folder where files of fingerprints are expected."""
    for path in paths:
        if is_store(Path(path)):
            raise InputError(
                f"{path}: is a store: fpstore merge adds stores to one another, fpstore export writes the rows of one", path=path
            )
        if Path(path).is_dir():
            raise InputError(f"{path}: is a folder; --text makes fingerprints of the text files in it", path=path)


def chunks(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    notices: Notices,
) -> Iterator[Chunk]:
    """Yield fingerprints and paths of files, folders and ``-`` (standard input), in the order given."""
    named = [path for path in paths if path != "-"]
    if len(named) == len(paths):
        yield from reader(paths, fingerprinter, suffixes, notices)
        return
    reader(named, fingerprinter, suffixes, notices)  # reports a missing path before any output
    for path in paths:
        if path != "-":
            yield from reader([path], fingerprinter, suffixes, notices)
            continue
        text = _standard_input()
        if fingerprinter.is_empty(text):
            raise InputError("standard input: no words to make a fingerprint of", path=path)
        yield Chunk(check_fingerprints([fingerprinter.fingerprint(text)]), [path])


def _standard_input() -> str:
    if sys.stdin is None:
        raise StorageError("standard input is closed")
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")
