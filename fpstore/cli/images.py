"""Pictures on the command line: the options of image hashes; fingerprints of files, folders and standard input."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from fpstore.base.resources import parse_threads
from fpstore.cli import types
from fpstore.cli.documents import SIMHASH_PARAMETERS, Notices, suffix_option
from fpstore.cli.options import ROW_PARAMETERS, grouped, is_given, refuse, threads_option, usage_errors, width_option
from fpstore.cli.texts import READING_PARAMETERS
from fpstore.cli.vectors import VECTOR_PARAMETERS
from fpstore.errors import InputError, StorageError
from fpstore.io import Chunk
from fpstore.io.files import MOST_BYTES

if TYPE_CHECKING:
    from fpstore.hashing import ImageHash, ImageReader

PARAMETERS = {"image_hash", "frame", "min_quality"}
_METHODS = ("average", "difference", "difference-vertical", "perceptual", "wavelet", "color", "pdq")


@dataclass(frozen=True)
class Images:
    """The parameters of ImageHash, besides the width."""

    image_hash: str
    frame: str
    min_quality: int | None

    def fingerprinter(self, width: int) -> ImageHash:
        """Return the fingerprinter; the width matters only if the command line names it."""
        from fpstore.hashing import ImageHash

        with usage_errors():
            return ImageHash(
                method=self.image_hash,
                width=width if is_given("width") else None,
                frame=self.frame,
                min_quality=self.min_quality,
            )


image_options = grouped(
    "images",
    Images,
    click.option(
        "--image-hash", type=click.Choice(_METHODS), default="perceptual", show_default=True, metavar="METHOD",
        help=f"How fingerprints of pictures are made: {', '.join(_METHODS)}. pdq has 256 bits, color 64, the others 64 or, with "
        "--width 256, 256.",
    ),
    click.option(
        "--frame", type=click.Choice(["first", "all"]), default="first", show_default=True,
        help="Of a file with several frames or pages: the first, or each, whose id is then the path with # and its number.",
    ),
    click.option(
        "--min-quality", type=types.whole(0, 100), metavar="N",
        help="Leave out pictures of a lower quality, which are nearly blank: with pdq, by default 50; otherwise grey levels of "
        "detail, by default 4. 0 keeps all but blank ones.",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """Which pictures are read, and how."""

    images: Images
    width: int
    suffix: tuple[str, ...]
    threads: int | None


reading_options = grouped("reading", Reading, image_options, width_option, suffix_option, threads_option)


def check_usage(inputs: Sequence[str], text: bool) -> None:
    """Raise a usage error for what does not go with ``--image``."""
    if text:
        types.fail("--image does not go with --text: give one of them")
    if "-" in inputs:
        types.fail("--image reads files and folders, not standard input: write it to a file first")
    refuse(
        ROW_PARAMETERS | SIMHASH_PARAMETERS | VECTOR_PARAMETERS | {"vector", "text_field", *READING_PARAMETERS},
        "does not go with --image",
    )


def settle(images: Images | None, width: int, options: dict[str, Any]) -> int:
    """Return the width of a store that is built; if of pictures, put the fingerprinter and its radius into the options."""
    if images is None:
        refuse(PARAMETERS, "needs --image")
        return width
    fingerprinter = options["fingerprinter"] = images.fingerprinter(width)
    if not is_given("radius"):
        options["radius"] = fingerprinter.usual_radius
    return fingerprinter.width


def reader(
    paths: Sequence[str], fingerprinter: ImageHash, suffixes: Sequence[str], notices: Notices, threads: int | None
) -> ImageReader:
    """Return the reader of files and folders."""
    from fpstore.hashing import ImageReader

    warnings.filterwarnings("ignore", module=r"PIL\b")  # what cannot be read is told by the notices
    return ImageReader(paths, fingerprinter, suffixes=list(suffixes) or None, threads=parse_threads(threads), on_notice=notices)


def chunks(
    paths: Sequence[str], fingerprinter: ImageHash, suffixes: Sequence[str], notices: Notices, threads: int | None
) -> Iterator[Chunk]:
    """Yield fingerprints and paths of files, folders and ``-`` (standard input), in the order given."""
    named = [path for path in paths if path != "-"]
    whole = reader(named, fingerprinter, suffixes, notices, threads)  # reports a missing path before any output
    if len(named) == len(paths):
        yield from whole
        return
    for path in paths:
        if path == "-":
            yield _standard_input(fingerprinter)
        else:
            yield from reader([path], fingerprinter, suffixes, notices, threads)


def _standard_input(fingerprinter: ImageHash) -> Chunk:
    from fpstore.base.width import Width
    from fpstore.hashing.image import Lack
    from fpstore.hashing.image_open import Given

    if sys.stdin is None:
        raise StorageError("standard input is closed")
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"standard input: more than {MOST_BYTES} bytes, too large for one picture", path="-")
    picture = Given(data, "standard input")
    found = fingerprinter.of_frames(picture, every=fingerprinter.frame == "all")
    numbers = {number: value for number, value in enumerate(found) if not isinstance(value, Lack)}
    if not numbers:
        raise InputError(f"standard input {next(value.sentence for value in found if isinstance(value, Lack))}", path="-")
    ids = ["-" if len(found) == 1 else f"-#{number}" for number in numbers]
    return Chunk(Width(fingerprinter.width).rows(numbers.values()), ids)
