"""The list of losses of a repair, written as they are found, under a temporary name until it is complete."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fpstore.io.sink import Sink

HELD_ROWS = 1 << 12


class LostFile:
    """A file of rows: kind, fingerprint and id, each of which may be empty. Without rows there is no file.

    Parameters
    ----------
    path : Path
        The final name.

    Attributes
    ----------
    counts : Counter
        The number of rows of each kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        self._rows: list[str] = []
        self._sink: Sink | None = None

    def add(self, kind: str, fingerprint: str, identifier: str) -> None:
        """Append a row.

        Raises
        ------
        StorageError
        """
        self.counts[kind] += 1
        self._rows.append(f"{kind}\t{fingerprint}\t{identifier}\n")
        if len(self._rows) >= HELD_ROWS:
            self._flush()

    def _flush(self) -> None:
        self._sink = self._sink or Sink(self.path)
        self._sink.write("".join(self._rows).encode())
        self._rows.clear()

    def finish(self) -> bool:
        """Make the file durable under its final name; return whether there is a file.

        Raises
        ------
        StorageError
        """
        if not self.counts:
            return False
        self._flush()
        assert self._sink is not None
        self._sink.commit()
        return True

    def abort(self) -> None:
        """Remove the file, unless it is finished."""
        if self._sink is not None:
            self._sink.abort()
