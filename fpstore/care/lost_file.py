"""The list of losses of a repair, written as they are found, under a temporary name until it is complete."""

from __future__ import annotations

import filecmp
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from fpstore.errors import InputError, StorageError
from fpstore.io.sink import Sink

HELD_ROWS = 1 << 12
ELSEWHERE = "choose another place for the list of losses (lost=, --lost)"


class LostFile:
    """Rows of a kind, a fingerprint and an id, each of which may be empty. Without rows, no file is written.

    Parameters
    ----------
    path : Path
        The final name.
    earlier : sequence of Path
        Lists that are there. One with the same bytes is replaced: a repair that was killed has left it, most often.

    Attributes
    ----------
    path : Path
        The name that it has in the end.
    counts : Counter
        The number of rows of each kind.

    Raises
    ------
    StorageError
        It cannot be written there.
    """

    def __init__(self, path: Path, earlier: Sequence[Path]) -> None:
        self.path = path
        self._earlier = earlier
        self.counts: Counter[str] = Counter()
        self._rows: list[str] = []
        try:
            self._sink = Sink(path)
        except InputError as error:  # it names a folder
            raise StorageError(f"{path}: {error}: {ELSEWHERE}", path=path) from error
        except StorageError as error:
            raise StorageError(f"{error}: {ELSEWHERE}", path=path) from error

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
        self._sink.commit()
        with suppress(OSError):
            self._take_place()
        return True

    def _take_place(self) -> None:
        """Take the place of an earlier list that is the same."""
        for same in self._earlier:
            if same.is_file() and filecmp.cmp(self.path, same, shallow=False):
                self.path = self.path.replace(same)
                return

    def abort(self) -> None:
        """Remove the file, unless it is finished."""
        self._sink.abort()
