"""The error of the last merge, if it failed: a line of text in the store, which every process can read."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fpstore.disk.files import create_anew, open_file
from fpstore.errors import CorruptStoreError, StorageError, StoreNotFoundError

MERGE_ERROR_FILE = "merge.error"
MOST_BYTES = 4096
NO_ROOM = "the last merge failed, and the disk had no room for the reason: it is probably full"  # the file is empty


class MergeError:
    """The file ``merge.error`` of a store whose folder is open.

    Parameters
    ----------
    folder : int
        Its descriptor.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def set(self, message: str) -> None:
        """Write a message; ignore a failure to do so: a full disk leaves an empty file, and without open files there is none."""
        with suppress(OSError), os.fdopen(create_anew(Path(MERGE_ERROR_FILE), self._folder), "wb") as file:
            file.write(message.encode("utf-8", "backslashreplace")[:MOST_BYTES])

    def clear(self) -> None:
        """Remove the message."""
        with suppress(OSError):
            os.unlink(MERGE_ERROR_FILE, dir_fd=self._folder)

    def get(self) -> str | None:
        """Return the message, or None."""
        try:
            descriptor = open_file(Path(MERGE_ERROR_FILE), folder=self._folder)
        except (StoreNotFoundError, StorageError):
            return None
        except CorruptStoreError:
            return f"unknown: {MERGE_ERROR_FILE} is not a regular file: remove it"
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_nlink > 1:
                return f"unknown: {MERGE_ERROR_FILE} is a hard link: remove it"
            return file.read(MOST_BYTES).decode("utf-8", "backslashreplace") or NO_ROOM
