"""Pictures as rows of a corpus: a fingerprint, the path, and a score that says which to keep."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_choice, printable
from fpstore.base.pools import map_in_order
from fpstore.base.resources import MemoryBudget, parse_memory
from fpstore.base.strings import StringColumn
from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.hashing.base import batched
from fpstore.hashing.decoding import PictureSource, open_picture, translate_decoding_errors
from fpstore.hashing.documents import (
    BATCH_DOCUMENTS,
    DocumentFiles,
    File,
    Notice,
    Walk,
    document_id,
    skip_reason,
)
from fpstore.hashing.image import ImageHash, Rejection, check_orientations
from fpstore.io.files import FileState
from fpstore.io.scores import Key, rows_of_keys, score_key
from fpstore.io.source import Batch, IdRule, Projection

#: Which picture of a group stays.
KEEP_PICTURES = ("largest", "newest", "oldest", "first")
WAITING_FILES = 4  # for each thread: small pictures are decoded during a large picture
_DATES = (0x9003, 0x9004)  # of Exif: when a picture was taken, and when it was digitized
_CHANGED = 0x0132  # the date of the main part of the metadata
_EXIF = 0x8769
_DATE = re.compile(r"\s*(\d{4})[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
_BYTES_BITS = 64  # of a score, below the pixels


class PictureFacts(NamedTuple):
    """What the head of a picture says.

    Attributes
    ----------
    width, height : int
        Pixels, as they are stored.
    bytes : int
        The size of the file.
    date : datetime
        When it was taken, by its Exif data; otherwise the time of change of the file, in local
        time.
    is_dated : bool
        Whether the date comes from the Exif data.
    """

    width: int
    height: int
    bytes: int
    date: datetime
    is_dated: bool

    @classmethod
    def read(cls, path: Path) -> PictureFacts:
        """Read the head of a file; InputError as in `translate_decoding_errors`."""
        with translate_decoding_errors(str(path), path), open_picture(path) as image:
            status = path.stat()
            date = _exif_date(image)
            changed = datetime.fromtimestamp(status.st_mtime)  # as Exif has it: local, no zone
            return cls(image.width, image.height, status.st_size, date or changed, date is not None)

    def score(self, keep: str) -> Key:
        """Return the key of a score, which is highest for the picture that stays."""
        if keep == "largest":
            return score_key(self.width * self.height << _BYTES_BITS | self.bytes)
        seconds = int(self.date.strftime("%Y%m%d%H%M%S"))
        return score_key(seconds if keep == "newest" else -seconds)


def _exif_date(image: Any) -> datetime | None:
    """Return the date that the metadata of an open picture have, if they have one."""
    # Pillow would decode a PNG to find metadata behind the pixels
    if "exif" not in image.info and image.format != "TIFF":
        return None
    with suppress(Exception):  # Pillow's readers of metadata raise many kinds for broken ones
        exif = image.getexif()
        inner = exif.get_ifd(_EXIF)
        for value in (*(inner.get(tag) for tag in _DATES), exif.get(_CHANGED)):
            if match := _DATE.match(str(value)):
                return datetime(*map(int, match.groups()))  # type: ignore[arg-type]
    return None


class _Picture(NamedTuple):
    fingerprints: tuple[int, ...] | Rejection
    score: Key | None


class PictureFiles(DocumentFiles):
    """Pictures as rows: each has a fingerprint, or one in each orientation, and its path as id.

    A row without a fingerprint is a blank picture. Files in folders that are no pictures, broken or
    too large are no rows; ``on_skip`` is called with the path and the reason of each. ``keep`` is
    one of KEEP_PICTURES, which the scores of the rows follow. ``links``: the copies of kept files
    are hard links.
    """

    def __init__(
        self,
        walk: Walk,
        fingerprinter: ImageHash,
        keep: str = KEEP_PICTURES[0],
        *,
        orientations: int = 1,
        links: bool = False,
        threads: int = 1,
        on_skip: Notice | None = None,
    ) -> None:
        super().__init__(walk, on_skip)
        self._fingerprinter = fingerprinter
        self._keep = check_choice(keep, KEEP_PICTURES, "keep")
        self.orientations = check_orientations(orientations)
        self._links, self._threads = links, threads
        self._memory = parse_memory(None)
        if fingerprinter.frame != "first":
            raise InputError("frame: a file stays or goes, so its first frame is compared")

    def limit_memory(self, memory: int) -> None:
        """Decode as many pictures at the same time as an amount of memory allows."""
        self._memory = memory

    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        """Yield the fingerprints, ids and scores of the pictures.

        A row of fingerprints has the words of all orientations.
        """
        assert not skipped
        self.bytes_done, self._read_states = 0, []
        width, words = Width(self._fingerprinter.width), Width(self._fingerprinter.width).words
        for batch in batched(self._pictures(), lambda _: 1, BATCH_DOCUMENTS):
            known = np.array(
                [not isinstance(picture.fingerprints, Rejection) for _, picture in batch], bool
            )
            rows = width.rows(
                value
                for _, picture in batch
                if not isinstance(picture.fingerprints, Rejection)
                for value in picture.fingerprints
            )
            columns = self.orientations * words
            scores = [
                picture.score
                for is_known, (_, picture) in zip(known.tolist(), batch, strict=True)
                if is_known and picture.score is not None
            ]
            yield Batch(
                fingerprints=rows if columns == 1 else rows.reshape(-1, columns),
                ids=StringColumn.from_strings(
                    [
                        document_id(file.path)
                        for is_known, (file, _) in zip(known.tolist(), batch, strict=True)
                        if is_known
                    ]
                ),
                known=known,
                scores=rows_of_keys(scores) if projection.score is not None else None,
                paths=[file.path for file, _ in batch],
            )
        self._first_states = self._first_states or self._read_states

    def _pictures(self) -> Iterator[tuple[File, _Picture]]:
        work = partial(self._hash, MemoryBudget(self._memory))
        for file, picture in map_in_order(work, self.walk.files(), self._threads, WAITING_FILES):
            self.bytes_done += file.size
            if isinstance(picture, str):
                if self._on_skip is not None:
                    self._on_skip(file.path, picture)
                continue
            self._read_states.append(file.state)
            yield file, picture

    def _hash(self, budget: MemoryBudget, file: File) -> _Picture | str:
        """Return the fingerprints and the score of a file, or why the file is skipped."""
        try:
            self.walk.check_size(file, file.size)
            (frame,) = self._fingerprinter.frame_fingerprints(
                PictureSource(file.path, os.fspath(file.path)),
                every=False,
                orientations=self.orientations,
                budget=budget,
            )
            facts = None if self._keep == "first" else PictureFacts.read(file.path)
        except InputError as error:
            return skip_reason(file, error)
        return _Picture(frame, None if facts is None else facts.score(self._keep))

    def names_at(self, flags: Flags) -> list[str]:
        """Return the ids of the rows with a flag, of the last reading."""
        paths = (Path(state.path) for state in self._read_states)
        return [document_id(path) for path, kept in zip(paths, flags.tolist(), strict=True) if kept]

    def read_flags(self, removed: Collection[str]) -> Flags:
        """Return a flag for each picture that is not among some ids.

        Only heads are read, so a picture whose end is missing stays. InputError for an id that no
        picture has.
        """
        self.bytes_done, self._read_states = 0, []
        flags, missing = list[bool](), set(removed)
        for file in self.walk.files():
            try:
                PictureFacts.read(file.path)
            except InputError as error:
                reason = skip_reason(file, error)
                if self._on_skip is not None:
                    self._on_skip(file.path, reason)
                continue
            name = document_id(file.path)
            self._read_states.append(file.state)
            flags.append(name not in removed)
            missing.discard(name)
        if missing:
            name = printable(min(missing))
            raise InputError(
                f"{name}: is in the list of choices, and no picture of {self.label}: name the "
                "inputs as before",
                got=sorted(missing),
            )
        return np.array(flags, bool)

    def _copy(self, state: FileState, place: Path) -> None:
        if not self._links:
            super()._copy(state, place)
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(state.path, place)
