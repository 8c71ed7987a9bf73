"""The error of the last merge, if it failed: a line of text in the store, which every process can read."""

from __future__ import annotations

import os
from contextlib import suppress

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
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(MERGE_ERROR_FILE, flags, 0o664, dir_fd=self._folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(message.encode("utf-8", "backslashreplace")[:MOST_BYTES])

    def clear(self) -> None:
        """Remove the message."""
        with suppress(OSError):
            os.unlink(MERGE_ERROR_FILE, dir_fd=self._folder)

    def get(self) -> str | None:
        """Return the message, or None."""
        try:
            descriptor = os.open(MERGE_ERROR_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "backslashreplace") or NO_ROOM
