"""The list of losses of a repair, written as they are found, under a temporary name until it is complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from fpstore.errors import InputError, StorageError
from fpstore.io.sink import Sink

ELSEWHERE = "choose another place for the list of losses (lost=, --lost)"


class LossList:
    """Rows of a kind, a fingerprint and an id, each of which may be empty; ``counts`` has the number of rows of each kind.

    Without rows, no file is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: Counter[str] = Counter()
        try:
            self._sink = Sink(path)
        except (InputError, StorageError) as error:  # it names a folder, or cannot be made
            raise StorageError(f"{path}: {error}: {ELSEWHERE}", path=path) from error

    def add_all(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Append rows."""
        lines = []
        for kind, fingerprint, identifier in rows:
            self.counts[kind] += 1
            lines.append(f"{kind}\t{fingerprint}\t{identifier}\n")
        if lines:
            self._sink.write("".join(lines).encode())

    def finish(self) -> bool:
        """Make the file durable under its final name; return whether there is a file."""
        if self.counts:
            self._sink.commit()
        return bool(self.counts)

    def abort(self) -> None:
        """Remove the file, unless it is finished."""
        self._sink.abort()
