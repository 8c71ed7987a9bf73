"""Excerpts of the texts and pictures of documents whose ids are paths, for a report."""

from __future__ import annotations

import base64
import io
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fpstore.base.strings import CUT, cut_text
from fpstore.errors import FpstoreError, plural
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.decoding import (
    PictureSource,
    eight_bits,
    open_picture,
    translate_decoding_errors,
    upright,
)
from fpstore.hashing.html import MainText
from fpstore.hashing.image import ImageHash, Rejection
from fpstore.hashing.page_text import main_texts
from fpstore.hashing.registry import fingerprinter_from_description

SHOWN_CHARACTERS = 300
MAX_TEXT_BYTES = 1 << 24  # of a text file
MAX_PICTURE_BYTES = 1 << 27
BEGINNING = 1 << 13  # characters of a text from which the shown ones are taken
SIDE, QUALITY = 96, 70  # of a thumbnail: pixels of the longer side, and of its JPEG
FRAME_ID = re.compile(r"(.*)#([0-9]{1,9})")  # the id of a frame


class Excerpt(NamedTuple):
    """The beginning of a text, the thumbnail of a picture as a JPEG, or the reason without both."""

    text: str | None
    reason: str
    thumbnail: str | None = None


NOTHING = Excerpt(None, "")
CHANGED = "the file has changed since"


class Files:
    """Reads the texts and pictures of documents, by the fingerprinter that a store describes.

    An id comes from the author of the store, and a page is shown to others. So a file is only read
    within the folder that the user names; without a folder, ids are paths as they stand. Without a
    folder, and always with a fingerprinter, a text is only shown if it has the fingerprint of its
    document; a picture always needs this.

    ``sought`` counts the documents whose files were looked for, ``missing`` those without a file.
    Ids of texts need not be paths, so texts count only if the user names a folder.
    """

    def __init__(self, folder: Path | None, description: Mapping[str, Any] | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._fingerprinter = _page_fingerprinter(description)
        self.sought = self.missing = 0

    def excerpt(self, name: int | str, fingerprints: list[int]) -> Excerpt:
        """Return the excerpt of a document with these fingerprints."""
        hasher = self._fingerprinter
        if not isinstance(name, str) or (self._folder is None and hasher is None):
            return NOTHING
        pictures = hasher is not None and hasher.items == "pictures"
        counts = pictures or self._folder is not None
        self.sought += counts
        try:
            excerpt = (
                self._picture(name, fingerprints) if pictures else self._text(name, fingerprints)
            )
        except FileNotFoundError:
            excerpt = Excerpt(None, "no such file")
            self.missing += counts
        except (OSError, ValueError, RuntimeError, FpstoreError):
            # names that cannot be paths, loops of links, binary files
            excerpt = Excerpt(None, "the file cannot be read")
        return NOTHING if excerpt.reason and self._folder is None else excerpt

    def sentence(self) -> str:
        """Return a sentence about missing files, empty if all were there."""
        return (
            f"The files of {self.missing:,} of {plural(self.sought, 'document')} were not found"
            if self.missing
            else ""
        )

    def _text(self, name: str, fingerprints: list[int]) -> Excerpt:
        from fpstore.hashing.documents import iter_documents

        path = self._path(name, MAX_TEXT_BYTES)
        if isinstance(path, Excerpt):
            return path
        text = next(iter_documents([path], max_bytes=MAX_TEXT_BYTES)).text
        hasher = self._fingerprinter
        if hasher is not None and (
            hasher.is_empty(text) or hasher.fingerprint(text) not in fingerprints
        ):
            return Excerpt(None, CHANGED)
        if isinstance(hasher, MainText):
            (text,) = main_texts([text], hasher.extractor)
        return Excerpt(beginning(text), "")

    def _picture(self, name: str, fingerprints: list[int]) -> Excerpt:
        frame = FRAME_ID.fullmatch(name)
        try:
            path, number = self._path(name, MAX_PICTURE_BYTES), 0
        except FileNotFoundError:
            if frame is None:
                raise
            path, number = self._path(frame[1], MAX_PICTURE_BYTES), int(frame[2])
        if isinstance(path, Excerpt):
            return path
        hasher = self._fingerprinter
        assert isinstance(hasher, ImageHash)
        made = hasher.frame_fingerprints(PictureSource(path, name), every=number > 0)
        if not any(
            frame[0] in fingerprints
            for frame in made[number : number + 1]
            if not isinstance(frame, Rejection)
        ):
            return Excerpt(None, CHANGED)
        thumbnail = read_thumbnail(path, SIDE, number)
        return Excerpt(None, "" if thumbnail else CHANGED, thumbnail)

    def _path(self, name: str, most_bytes: int) -> Path | Excerpt:
        path = Path(name) if self._folder is None else (self._folder / name).resolve()
        if self._folder is not None and not path.is_relative_to(self._folder):
            return Excerpt(None, "the path leads out of the folder")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            return Excerpt(None, "not a file, or too large")
        return path


def read_thumbnail(path: Path, side: int, number: int = 0) -> str | None:
    """Return a frame of a picture as a JPEG in base64, or None if there is no such frame.

    ``side`` has the most pixels of a side. InputError as in `translate_decoding_errors`.
    """
    with translate_decoding_errors(str(path), path), open_picture(path) as image:
        if number >= getattr(image, "n_frames", 1):
            return None
        if number:
            image.seek(number)
        image.draft("RGB", (2 * side, 2 * side))  # decodes JPEG in a smaller size
        small, stream = eight_bits(upright(image)).convert("RGB"), io.BytesIO()
        small.thumbnail((side, side))
        small.info.clear()
        small.save(stream, "JPEG", quality=QUALITY)
        return base64.b64encode(stream.getvalue()).decode()


def beginning(text: str) -> str:
    words = " ".join(text[:BEGINNING].split())
    is_cut = len(words) <= SHOWN_CHARACTERS and len(text) > BEGINNING
    return cut_text(words, 0, SHOWN_CHARACTERS) + CUT * is_cut


def _page_fingerprinter(description: Mapping[str, Any] | None) -> Fingerprinter[Any] | None:
    if description is None:
        return None
    try:
        fingerprinter = fingerprinter_from_description(description)
    except FpstoreError:
        return None
    return fingerprinter if fingerprinter.items in ("texts", "pictures") else None
