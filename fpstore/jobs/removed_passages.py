"""The passages that were removed from a corpus, and the counts of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.io.tables import TabularBatches
from fpstore.jobs.editing import describe_edits
from fpstore.query.id_lookup import IdLookup, ids_in_slices

EXCERPT_BYTES = 80
EXCERPT_TYPE = f"S{EXCERPT_BYTES + 1}"  # of `pack_excerpt`


class RemovedPassages(TabularBatches):
    """The passages that :func:`fpstore.remove_passages` removed, in the order of the corpus.

    Attributes
    ----------
    rows : ndarray of uint64, shape (n,)
        The number of the row, or file, from 0 over all files.
    starts, ends : ndarray of uint64, shape (n,)
        What was removed of the text: ``text[start:end]``, without white space around it.
    lengths : ndarray of uint64, shape (n,)
        The words, or bytes, of the passage.
    occurrences : ndarray of uint64, shape (n,)
        How often the corpus has the most frequent of its runs that occur before.
    """

    def __init__(
        self,
        rows: Words,
        starts: Words,
        ends: Words,
        lengths: Words,
        occurrences: Words,
        excerpts: npt.NDArray[np.bytes_],  # of `pack_excerpt`
        ids: tuple[IdLookup, Words],
        unit: str,
    ) -> None:
        self.rows, self.starts, self.ends = rows, starts, ends
        self.lengths, self.occurrences = lengths, occurrences
        self._excerpts, self._ids, self._unit = excerpts, ids, unit

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield the columns in batches of at most 65,536 rows.

        They are ``row``, ``id``, ``start``, ``end``, ``words`` or ``bytes``, ``occurrences``, and
        ``text``, which has the first 80 bytes of the passage.
        """
        for rows, (ids,) in ids_in_slices([self._ids]):
            columns = (
                self.rows[rows],
                ids,
                *(
                    np.array(column[rows])
                    for column in (self.starts, self.ends, self.lengths, self.occurrences)
                ),
                list(map(unpack_excerpt, self._excerpts[rows].tolist())),
            )
            yield dict(zip(passage_columns(self._unit), columns, strict=True))


def pack_excerpt(text: str) -> bytes:
    """Return the first bytes of a text, and a mark: NumPy drops NULs at the end."""
    first_bytes = text[:EXCERPT_BYTES].encode("utf-8", "replace")[:EXCERPT_BYTES]
    return first_bytes.decode("utf-8", "ignore").encode() + b"."


def unpack_excerpt(packed: bytes) -> str:
    return packed[:-1].decode()


def passage_columns(unit: str) -> tuple[str, ...]:
    """Return the columns of a list of passages; ``unit`` is "words" or "bytes"."""
    return ("row", "id", "start", "end", unit, "occurrences", "text")


class Passages(NamedTuple):
    """The result of :func:`fpstore.remove_passages`.

    Attributes
    ----------
    documents : int
        Rows, or files, of the corpus.
    short : int
        Documents with fewer words, or bytes, than a passage has.
    longest : int
        The words, or bytes, of the longest document.
    changed : int
        Documents that lost a passage, dropped ones too.
    dropped : int
        Documents that went whole.
    removed_passages : int
        Passages that were removed.
    removed_bytes : int
        The bytes of texts that were removed, in UTF-8.
    temporary_bytes : int
        The bytes of all rows that were sorted: temporary files take no more.
    removed : RemovedPassages
        The passages that were removed; ``to_arrow`` makes a table.
    table : pyarrow.Table or None
        The remaining rows of a table in memory; None for files.
    """

    documents: int
    short: int
    longest: int
    changed: int
    dropped: int
    removed_passages: int
    removed_bytes: int
    temporary_bytes: int
    removed: RemovedPassages
    table: Any = None

    @property
    def kept(self) -> int:
        """Documents that remain."""
        return self.documents - self.dropped

    def __repr__(self) -> str:
        return describe_edits(self)
