"""Folders of pictures as a reader of fingerprints and ids."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from fpstore.base.arguments import check_whole
from fpstore.base.resources import parse_threads
from fpstore.base.threads import in_order
from fpstore.base.width import Width
from fpstore.errors import InputError, show
from fpstore.hashing.documents import Notice, id_of
from fpstore.hashing.image import ImageHash, Lack
from fpstore.hashing.image_open import Given
from fpstore.hashing.walk import File, Paths, Skipped, Walk
from fpstore.io import Chunk

WAITING_FILES = 4  # for each thread: small pictures after a large one are decoded meanwhile


class ImageReader:
    """Pictures as chunks of fingerprints and ids: a reader like those of `fpstore.io`, for building a store.

    The id of a picture is its path, as in `iter_documents`. If the fingerprinter has ``frame="all"``, a file of several frames
    has a fingerprint of each, and the ids are ``path#0``, ``path#1`` and so on. Each iteration resets the counts, walks the
    folders and reads the files again.

    Parameters
    ----------
    paths : path or iterable of paths
        Files and folders, as in `iter_documents`.
    fingerprinter : ImageHash
        The maker of the fingerprints.
    chunk_pictures : int
        A chunk ends after the file with which it has this many fingerprints or more.
    suffixes, recursive, follow_symlinks, max_bytes
        As in `iter_documents`.
    threads : int, optional
        Files that are decoded at the same time; by default one per processor. The result does not depend on it.
    on_notice : callable, optional
        Called, in the order of the files, with the path of each file that is left out, and the reason: for a file in a folder
        ``"other"`` (not a picture), ``"broken"`` (truncated or damaged) or ``"large"`` (larger than `max_bytes`, or than the
        limits of Pillow); for every file ``"blank"``, ``"quality"`` or ``"small"`` for a frame without a fingerprint: see
        `ImageHash`.

    Attributes
    ----------
    rows : None
        Not known before the files are read.
    has_ids : bool
        True.
    bytes_total : int
        The total size of the files to be read or skipped, from a walk at the first use.
    bytes_done : int
        The total size of those done so far.
    skipped : int
        Files in folders that were no pictures, or too large.
    broken : int
        Pictures in folders that were broken.
    empty : int
        Frames without a fingerprint.

    Raises
    ------
    InputError
        An argument is wrong. A named file is not a picture, broken or too large; or an iteration has found no picture with a
        fingerprint.
    MissingExtraError
        A package is not installed; the message says how to install it.
    StorageError
        A file or folder is missing or cannot be read; `path` names it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from PIL import Image
    >>> from fpstore.hashing import ImageHash, ImageReader
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.linear_gradient("L").rotate(30).save(pathlib.Path(folder, "a.png"))
    ...     [len(chunk.ids) for chunk in ImageReader(folder, ImageHash())]
    [1]
    """

    rows: None = None
    has_ids = True

    def __init__(
        self,
        paths: Paths,
        fingerprinter: ImageHash,
        chunk_pictures: int = 64,
        *,
        suffixes: Iterable[str] | None = None,
        recursive: bool = True,
        follow_symlinks: bool = False,
        max_bytes: int | None = None,
        threads: int | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        self._chunk_pictures = check_whole(chunk_pictures, 1, 1 << 30, "chunk_pictures")
        self._threads = parse_threads(threads)
        if not isinstance(fingerprinter, ImageHash):
            raise InputError(f"fingerprinter must be one of pictures such as ImageHash(), got {type(fingerprinter).__name__}")
        if on_notice is not None and not callable(on_notice):
            raise InputError(f"on_notice must be a function of (path, reason), got {show(on_notice)}")
        self._walk = Walk(paths, suffixes, recursive, follow_symlinks, max_bytes)
        self.fingerprinter = fingerprinter
        self._on_notice = on_notice
        self.bytes_done = self.skipped = self.broken = self.empty = 0

    @property
    def bytes_total(self) -> int:
        """The sizes of all files, in bytes."""
        return self._walk.bytes_total

    def __iter__(self) -> Iterator[Chunk]:
        self.bytes_done = self.skipped = self.broken = self.empty = 0
        width = Width(self.fingerprinter.width)
        numbers: list[int] = []
        ids: list[str] = []
        made, lack = False, ""
        for file, found in in_order(self._read, self._walk.files(), self._threads, WAITING_FILES):
            self.bytes_done += file.size
            if isinstance(found, Skipped):
                self._skip(file.path, found.reason)
                continue
            name = id_of(file.path)
            for number, value in enumerate(found):
                if isinstance(value, Lack):
                    self.empty, lack = self.empty + 1, f"{name} {value.sentence}"
                    self._notify(file.path, value.reason)
                    continue
                numbers.append(value)
                ids.append(name if len(found) == 1 else f"{name}#{number}")
            if len(numbers) >= self._chunk_pictures:
                yield Chunk(width.rows(numbers), ids)
                numbers, ids, made = [], [], True
        if numbers:
            yield Chunk(width.rows(numbers), ids)
        elif not made:
            if self.empty == 1 and not self.skipped + self.broken:
                raise InputError(f"{lack}, so it has no fingerprint")
            raise InputError(f"{self._walk.names}: no picture to make a fingerprint of{self._left_out()}")

    def _read(self, file: File) -> list[int | Lack] | Skipped:
        """Return what the frames of a file have as fingerprints, or why the file is skipped."""
        skipped = self._walk.too_large(file)
        if skipped is not None:
            return skipped
        try:
            every = self.fingerprinter.frame == "all"
            return self.fingerprinter.of_frames(Given(file.path, os.fspath(file.path)), every=every)
        except InputError as error:
            reason = getattr(error, "reason", None)
            if file.named or reason is None:
                raise
            return Skipped(reason, str(error))

    def _skip(self, path: Path, reason: str) -> None:
        if reason == "broken":
            self.broken += 1
        else:
            self.skipped += 1
        self._notify(path, reason)

    def _notify(self, path: Path, reason: str) -> None:
        if self._on_notice is not None:
            self._on_notice(path, reason)

    def _left_out(self) -> str:
        reasons = {"not pictures or too large": self.skipped, "broken": self.broken, "blank or of low quality": self.empty}
        told = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)
        return f": {told}" if told else ""
