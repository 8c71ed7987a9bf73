"""Texts on the command line: the options of SimHash; fingerprints of files, folders and standard input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fpstore.cli import types
from fpstore.cli.options import Talk, grouped, refuse
from fpstore.errors import InputError, counted, show
from fpstore.format.manifest import is_store
from fpstore.hashing.walk import BINARY, HEAD_BYTES, is_binary
from fpstore.io import Chunk
from fpstore.io.encodings import decoded
from fpstore.io.files import MOST_BYTES, InputFile
from fpstore.io.packed import unpacked

if TYPE_CHECKING:
    from fpstore.hashing import DocumentReader, Fingerprinter, LongestSentences, SimHash

FOLDER_PARAMETERS = {"suffix"}
_NOTES = {
    "replaced": "with bytes that are not UTF-8, which were replaced",
    "tags": "of HTML, taken as plain text with its tags (--html takes the main text)",
}
_NAMED = 3
_PART_BYTES = 1 << 20

suffix_option = click.option(
    "--suffix",
    type=types.SUFFIX,
    multiple=True,
    metavar=".EXT",
    help="In folders, read only files whose names end with this; may be repeated. Symbolic links in folders are not followed.",
)


@dataclass(frozen=True)
class Features:
    """The parameters of SimHash that say what the features of a text are."""

    shingle: str
    shingle_size: int
    weighting: str
    digits: str
    feature_hash: str
    tokenizer: str | None
    stop_words: str | None

    def simhash(self, width: int) -> SimHash:
        """Return the fingerprinter of these features."""
        from fpstore.hashing import SimHash

        return SimHash(
            shingle=self.shingle, size=self.shingle_size, weighting=self.weighting, width=width, hash=self.feature_hash,
            digits=self.digits, stop_words=self._stop_words(), tokenizer=self.tokenizer,
        )  # fmt: skip

    def _stop_words(self) -> tuple[str, ...]:
        if self.stop_words is None:
            return ()
        from fpstore.hashing import iter_documents

        words = tuple(next(iter_documents([self.stop_words])).text.split())
        if not words:
            raise InputError(f"{self.stop_words}: no words", path=self.stop_words)
        return words


@dataclass(frozen=True)
class Shingles(Features):
    """How fingerprints of texts are made."""

    weights: str | None
    longest_sentences: int | None

    def fingerprinter(self, width: int = 64) -> SimHash | LongestSentences:
        """Return the fingerprinter."""
        from fpstore.hashing import LongestSentences

        if self.longest_sentences is not None:
            refuse(SIMHASH_PARAMETERS - {"longest_sentences"}, "does not go with --longest-sentences")
            return LongestSentences(n=self.longest_sentences, width=width)
        if self.weights is not None:
            from fpstore.hashing.weights_file import read_weights

            refuse(SIMHASH_PARAMETERS - {"weights"}, "does not go with --weights: the file says how its weights were learnt")
            return read_weights(self.weights, width)
        return self.simhash(width)


SIMHASH_PARAMETERS = {field.name for field in fields(Shingles)}

_feature_options = (
    click.option(
        "--shingle", type=click.Choice(["auto", "words", "chars"]), default="auto", show_default=True,
        help="Unit of the overlapping pieces of a text. With auto, words, and characters of scripts without spaces.",
    ),
    click.option(
        "--shingle-size", type=types.whole(1, 255), default=1, show_default=True, metavar="N",
        help="Number of units in a piece, 1 to 255.",
    ),
    click.option(
        "--weighting", type=click.Choice(["count", "log", "set"]), default="log", show_default=True,
        help="The weight of a piece: how often it occurs (count), the number of binary digits of that (log), so that a piece "
        "which a table or a menu repeats does not outweigh the rest, or 1 (set).",
    ),
    click.option(
        "--digits", type=click.Choice(["keep", "zero"]), default="keep", show_default=True,
        help="zero makes all digits alike, so that texts which differ in dates and numbers only are the same.",
    ),
    click.option(
        "--feature-hash", type=click.Choice(["xxh64", "fnv1a", "md5", "blake2b"]), default="xxh64", show_default=True,
        help="Hash of a piece; md5 and blake2b are slow.",
    ),
    click.option(
        "--tokenizer", type=click.Choice(["jieba", "unicode"]), default=None,
        help="What cuts the text: unicode finds words by the rules of Unicode (pip install regex), jieba weighted Chinese "
        "keywords (pip install jieba).",
    ),
    click.option(
        "--stop-words", metavar="FILE", default=None,
        help="Only pieces with one of the words in this file count: adverts and menus have few.",
    ),
)  # fmt: skip
feature_options = grouped("features", Features, *_feature_options)
shingle_options = grouped(
    "shingles",
    Shingles,
    *_feature_options,
    click.option(
        "--weights", metavar="FILE", default=None,
        help="Weigh pieces as this file of fpstore weights says; it says, too, what a piece is.",
    ),
    click.option(
        "--longest-sentences", type=types.whole(1, 255), default=None, metavar="N",
        help="Instead of a simhash, hash the N longest sentences: copies with the same ones are found with radius 0.",
    ),
)  # fmt: skip


class Notices:
    """Counts the files, or the rows, that are left out, to name the first of them once at the end."""

    def __init__(self, what: str = "file") -> None:
        self._what = what
        self.source: Any = None  # what is read, if it may lack columns
        self._seen: Counter[str] = Counter()
        self._first: dict[str, list[str]] = {}

    def __call__(self, which: Path | int, reason: str) -> None:
        """Count the file with a path, or the row with a number."""
        self._seen[reason] += 1
        names = self._first.setdefault(reason, [])
        if len(names) < _NAMED:
            names.append(f"row {which}" if isinstance(which, int) else str(which))

    def report(self, talk: Talk) -> None:
        """Report how many were left out for each reason, and in which encodings others were read."""
        from fpstore.hashing.documents import SENTENCES

        for name in getattr(self.source, "absent", ()):
            talk.note(f"no row has the field {show(name)}")
        if getattr(self.source, "tagged", False) and "tags" not in self._seen:
            talk.note("the first texts look like pages of HTML, and were taken with their tags: --html takes the main text")
        for reason, number in sorted(self._seen.items()):
            names = ", ".join(self._first[reason])
            more = f" and {number - _NAMED:,} more" if number > _NAMED else ""
            what = f"left out, {SENTENCES[reason]}" if reason in SENTENCES else _NOTES.get(reason, f"not in UTF-8, {reason}")
            talk.note(f"{counted(number, self._what)} {what}: {names}{more}")


def reader(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    notices: Notices,
    **more: Any,
) -> DocumentReader:
    """Return the reader of files and folders; ``more`` has further arguments of `DocumentReader`."""
    from fpstore.hashing import DocumentReader

    return DocumentReader(paths, fingerprinter, suffixes=list(suffixes) or None, on_notice=notices, **more)


def refuse_folders(paths: Sequence[str]) -> None:
    """Refuse a folder where files of fingerprints are expected."""
    for path in paths:
        if is_store(Path(path)):
            raise InputError(
                f"{path}: is a store: fpstore merge adds stores to one another, fpstore export writes the rows of one", path=path
            )
        if Path(path).is_dir():
            advice = "--text makes fingerprints of the text files in it, --image of the pictures"
            raise InputError(f"{path}: is a folder; {advice}", path=path)


def chunks(
    paths: Sequence[str],
    fingerprinter: Fingerprinter[Any],
    suffixes: Sequence[str],
    notices: Notices,
    **more: Any,
) -> Iterator[Chunk]:
    """Yield fingerprints and paths of files, folders and ``-`` (standard input), in the order given."""
    from fpstore.hashing.html import MainText, of_pages

    named = [path for path in paths if path != "-"]
    if len(named) == len(paths):
        yield from reader(paths, fingerprinter, suffixes, notices, **more)
        return
    reader(named, fingerprinter, suffixes, notices, **more)  # reports a missing path before any output
    for path in paths:
        if path != "-":
            yield from reader([path], fingerprinter, suffixes, notices, **more)
            continue
        text = standard_input(notices, more.get("encoding"))
        maker = of_pages(fingerprinter, more.get("html", False))
        found = maker.hashed([text])
        if not found.known[0]:
            lack = "no main text" if isinstance(maker, MainText) else "no words"
            raise InputError(f"standard input: {lack} to make a fingerprint of", path=path)
        yield Chunk(found.rows, [path])


def standard_input(notices: Notices, encoding: str | None = None) -> str:
    """Return the text that standard input is."""
    data = bytearray()
    with unpacked(InputFile("-"), lambda _: None) as read:
        for part in iter(lambda: read(_PART_BYTES), b""):
            if len(data) + len(part) > MOST_BYTES:
                raise InputError(f"standard input: more than {MOST_BYTES} bytes, too large for one text", path="-")
            data += part
    if is_binary(data[:HEAD_BYTES], encoding):
        raise InputError(f"standard input: {BINARY.sentence}", path="-")
    found = decoded(bytes(data), encoding)
    if found is None:
        raise InputError("standard input: no encoding explains its bytes: name it with --encoding", path="-")
    if found.guessed or found.replaced:
        notices(Path("-"), f"read as {found.encoding}" if found.guessed else "replaced")
    return found.text
