"""What a deduplication removes of each source of a corpus: a domain, a dump, a language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_number, check_whole
from fpstore.base.keywords import keyword
from fpstore.errors import SourceLossError, plural, show
from fpstore.io.labels import LabelColumn
from fpstore.io.tables import TabularBatches

MAX_COUNT = 2**63 - 1
LEAST_ROWS = 100  # of a source whose share is judged
NOTED_SHARE = 0.9  # without a bound of the user
SOURCE_COLUMNS = ("source", "rows", "removed", "share")
AT_ONCE = 1 << 16  # sources that are written together
NAMED, SHOWN = 3, 10  # sources in a message, and in each list of a summary
SHOWN_DIGITS = 6


class Sources(TabularBatches):
    """The rows of each source, and how many of them go, the largest source first.

    Sources of as many rows are in the order of their first rows, after rows whose source is null.
    Iterates as one tuple per source, of the columns.

    Attributes
    ----------
    names : list of str or None
        The values of the column of sources; an integer is the string of its digits. None has the
        rows whose value is null.
    rows, removed : ndarray of int64, shape (n,)
        The rows of each source, and those that are not kept, for any reason.
    """

    def __init__(
        self,
        names: Sequence[str | None],
        rows: npt.NDArray[np.int64],
        removed: npt.NDArray[np.int64],
    ) -> None:
        self.names, self.rows, self.removed = list(names), rows, removed

    @classmethod
    def of_column(cls, column: LabelColumn, is_kept: Flags) -> Sources:
        """Return the sources of a corpus, from the label of each row and which rows are kept."""
        names = column.names.values()
        rows = np.bincount(column.codes, minlength=len(names))
        kept = np.bincount(column.codes[is_kept], minlength=len(names))
        return cls.of_counts(names, rows, rows - kept)

    @classmethod
    def of_counts(
        cls,
        names: Sequence[str | None],
        rows: npt.NDArray[np.int64],
        removed: npt.NDArray[np.int64],
    ) -> Sources:
        """Return the sources that have rows, from counts in the order of their first rows."""
        order = np.argsort(-rows, kind="stable")
        return cls(names, rows, removed)._select(order[rows[order] > 0])

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """The share of the rows of each source that is removed."""
        return np.asarray(self.removed / np.maximum(self.rows, 1), np.float64)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str | None, int, int, float]]:
        columns = (self.rows.tolist(), self.removed.tolist(), self.shares.tolist())
        return iter(zip(self.names, *columns, strict=True))

    def above(self, share: float) -> Sources:
        """Return the sources of LEAST_ROWS rows or more that lose more than a share."""
        share = check_number(share, 0, 1, "share")
        places = np.flatnonzero((self.shares > share) & (self.rows >= LEAST_ROWS))
        return self._select(places)

    def most_removed(self, count: int) -> Sources:
        """Return the sources of LEAST_ROWS rows or more with the largest shares."""
        count = check_whole(count, 0, MAX_COUNT, "count")
        places = np.flatnonzero((self.rows >= LEAST_ROWS) & (self.removed > 0))
        order = np.argsort(-self.shares[places], kind="stable")
        return self._select(places[order[:count]])

    def largest(self, count: int) -> Sources:
        """Return the sources of the most rows."""
        count = check_whole(count, 0, MAX_COUNT, "count")
        return self._select(np.arange(min(count, len(self))))

    def _select(self, places: npt.NDArray[np.intp]) -> Sources:
        names = [self.names[place] for place in places.tolist()]
        return Sources(names, self.rows[places], self.removed[places])

    def records(self) -> list[dict[str, Any]]:
        """Return the sources as objects of JSON."""
        return [
            {
                "source": name,
                "rows": rows,
                "removed": removed,
                "share": round(share, SHOWN_DIGITS),
            }
            for name, rows, removed, share in self
        ]

    def summary(self) -> dict[str, Any]:
        """Return the number of sources, and those with the most rows and the largest shares."""
        return {
            "count": len(self),
            "largest": self.largest(SHOWN).records(),
            "most_removed": self.most_removed(SHOWN).records(),
        }

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 sources."""
        for start in range(0, max(len(self), 1), AT_ONCE):
            batch = slice(start, start + AT_ONCE)
            yield {
                "source": self.names[batch],
                "rows": self.rows[batch].astype(np.uint64),
                "removed": self.removed[batch].astype(np.uint64),
                "share": np.round(self.shares[batch], SHOWN_DIGITS),
            }

    def describe(self) -> str:
        """Return the first sources with their counts, for a message."""
        sources = ", ".join(
            f"{'null' if name is None else show(name)} {removed:,} of {plural(rows, 'row')}, "
            f"{percent(share)}"
            for name, rows, removed, share in self.largest(NAMED)
        )
        hidden = len(self) - NAMED
        return sources + (f" and {hidden:,} more" if hidden > 0 else "")

    def __repr__(self) -> str:
        return f"<fpstore.Sources: {len(self):,} sources>"


def percent(share: float) -> str:
    return f"{share:.1%}"


def loss_error(sources: Sources, most_removed: float) -> SourceLossError | None:
    """Return the error of a deduplication that removes too much of a source; None if none."""
    lost = sources.above(most_removed)
    if not len(lost):
        return None
    return SourceLossError(
        f"{plural(len(lost), 'source')} would lose more than {most_removed:g} of the rows: "
        f"{lost.describe()}; nothing is written but the lists: look at them, then raise "
        f"{keyword('most_removed')} or leave it out",
        expected=most_removed,
        sources=lost,
    )
