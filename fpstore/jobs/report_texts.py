"""The texts of documents whose ids are paths of files, for people who look at some of them."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fpstore.errors import FpstoreError
from fpstore.hashing.base import Fingerprinter
from fpstore.hashing.html import MainText, main_texts
from fpstore.hashing.registry import from_description

SHOWN_CHARACTERS = 300
MOST_BYTES = 1 << 24  # of a file that is read
BEGINNING = 1 << 13  # characters of a text in which those that are shown are looked for


class Found(NamedTuple):
    """The beginning of a text, or why there is none."""

    text: str | None
    reason: str


NOTHING = Found(None, "")


class Texts:
    """Finds the texts of documents.

    An id comes from whoever made the store, and a page is shown to others. So a file is only read within the folder that the
    user names. If no folder is named, ids are paths as they stand; then, and whenever the fingerprinter is known, a text is only
    shown if its fingerprint is that of its document.

    Parameters
    ----------
    folder : Path, optional
        Ids are paths in it.
    description : mapping, optional
        The fingerprinter of the store.
    """

    def __init__(self, folder: Path | None, description: Mapping[str, Any] | None) -> None:
        self._folder = None if folder is None else folder.resolve()
        self._fingerprinter = _known(description)

    def of(self, name: int | str, fingerprints: list[int]) -> Found:
        """Return the text of a document, whose fingerprints are given."""
        if not isinstance(name, str) or (self._folder is None and self._fingerprinter is None):
            return NOTHING
        found = self._read(name)
        if found.text is None:
            return found if self._folder is not None else NOTHING
        hasher = self._fingerprinter
        if hasher is not None and (hasher.is_empty(found.text) or hasher.fingerprint(found.text) not in fingerprints):
            return NOTHING if self._folder is None else Found(None, "the file has changed since")
        text = main_texts([found.text], hasher.extractor)[0] if isinstance(hasher, MainText) else found.text
        return Found(beginning(text), "")

    def _read(self, name: str) -> Found:
        from fpstore.hashing.documents import iter_documents

        try:
            path = Path(name) if self._folder is None else (self._folder / name).resolve()
            if self._folder is not None and not path.is_relative_to(self._folder):
                return Found(None, "the path leads out of the folder")
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                return Found(None, "not a file of text")
            return Found(next(iter_documents([path], max_bytes=MOST_BYTES)).text, "")
        except FileNotFoundError:
            return Found(None, "no such file")
        except (OSError, ValueError, RuntimeError, FpstoreError):  # names that cannot be paths, loops of links, binary files
            return Found(None, "the file cannot be read")


def beginning(text: str) -> str:
    """Return the first characters of a text, on one line."""
    words = " ".join(text[:BEGINNING].split())
    more = len(words) > SHOWN_CHARACTERS or len(text) > BEGINNING
    return words[:SHOWN_CHARACTERS] + ("…" if more else "")


def _known(description: Mapping[str, Any] | None) -> Fingerprinter[str] | None:
    """Return the fingerprinter of texts that a store remembers, if this fpstore has it."""
    if description is None:
        return None
    try:
        found = from_description(description)
    except FpstoreError:
        return None
    return found if found.items == "texts" else None
