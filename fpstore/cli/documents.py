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
from fpstore.io import Chunk, check_fingerprints

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, SimHash

SIMHASH_PARAMETERS = {"shingle", "shingle_size", "weighting"}
FOLDER_PARAMETERS = {"suffix", "skip_empty"}
_SENTENCES = {
    "binary": "left out: binary, not text",
    "large": "left out: too large",
    "empty": "without any words: fingerprint 0",
}

suffix_option = click.option(
    "--suffix",
    type=types.SUFFIX,
    multiple=True,
    metavar=".EXT",
    help="Of the files in folders, only those whose names end so; may be repeated.",
)
skip_empty_option = click.option("--skip-empty", is_flag=True, help="Leave out texts without any words.")


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
        help="What the overlapping pieces of a text are made of.",
    ),
    click.option(
        "--shingle-size", type=types.whole(1, 255), default=3, show_default=True, metavar="N",
        help="How many of them make a piece, 1 to 255.",
    ),
    click.option(
        "--weighting", type=click.Choice(["count", "set"]), default="count", show_default=True,
        help="Whether each occurrence of a piece counts, or each distinct one once.",
    ),
)  # fmt: skip


class Notices:
    """Counts what was left out or is empty, to say it once at the end."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def __call__(self, path: Path, reason: str) -> None:
        """Count one file."""
        self._seen[reason] += 1

    def report(self, talk: Talk, skip_empty: bool) -> None:
        """Say what was counted."""
        for reason, number in sorted(self._seen.items()):
            sentence = _SENTENCES[reason]
            if reason == "empty" and skip_empty:
                sentence = "left out: without any words"
            talk.note(f"{count(number, 'file')} {sentence}")


def reader(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    skip_empty: bool,
    notices: Notices,
) -> DocumentReader:
    """Return the reader of files and folders."""
    from fpstore.hashing import DocumentReader

    return DocumentReader(paths, fingerprinter, suffixes=list(suffixes) or None, skip_empty=skip_empty, on_notice=notices)


def refuse_folders(paths: Sequence[str]) -> None:
    """Refuse a folder where files of fingerprints are read."""
    for path in paths:
        if Path(path).is_dir():
            raise InputError(f"{path}: is a folder; --text makes fingerprints of the text files in it", path=path)


def chunks(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    skip_empty: bool,
    notices: Notices,
) -> Iterator[Chunk]:
    """Yield fingerprints and paths of files, folders and ``-``, standard input, in the order given."""
    named = [path for path in paths if path != "-"]
    if len(named) == len(paths):
        yield from reader(paths, fingerprinter, suffixes, skip_empty, notices)
        return
    reader(named, fingerprinter, suffixes, skip_empty, notices)  # a path that is missing shows before any output
    for path in paths:
        if path != "-":
            yield from reader([path], fingerprinter, suffixes, skip_empty, notices)
            continue
        text = _standard_input()
        if fingerprinter.is_empty(text):
            notices(Path(path), "empty")
            if skip_empty:
                continue
        yield Chunk(check_fingerprints([fingerprinter.fingerprint(text)]), [path])


def _standard_input() -> str:
    if sys.stdin is None:
        raise StorageError("standard input is closed")
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")
