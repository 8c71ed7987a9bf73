"""What a deduplication found, as new columns of the rows of a corpus."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags, Words
from fpstore.base.arguments import check_flag
from fpstore.base.arrays import list_numbers
from fpstore.base.keywords import keyword
from fpstore.errors import InputError, show
from fpstore.io.extended import OWN_ID, NewColumn, NewColumns, NewKind
from fpstore.jobs.compared import ComparedRows
from fpstore.jobs.evidence import SHOWN_DIGITS
from fpstore.jobs.grouping import Members
from fpstore.jobs.reference import id_names
from fpstore.jobs.removed import Removed
from fpstore.jobs.row_set import id_kind
from fpstore.query.id_lookup import ids_at

COPIES = "copies"


class Annotation(NamedTuple):
    """Which new columns rows get.

    With ``annotate``, all rows are written, with all columns; otherwise those that stay, with the
    column of counts.
    """

    annotate: bool
    count_column: str

    @classmethod
    def choose(cls, annotate: bool, count_column: str | None) -> Annotation | None:
        """Return what the arguments of a user ask for; None for no new columns."""
        check_flag(annotate, "annotate")
        if count_column is None:
            return cls(True, COPIES) if annotate else None
        if not (isinstance(count_column, str) and count_column):
            raise InputError(
                f"count_column must be the name of a new column, got {show(count_column)}",
                got=count_column,
                argument="count_column",
            )
        new = cls(annotate, count_column)
        # a name of two columns is one key
        if annotate and any(len(new.columns(by_texts)) < 5 for by_texts in (True, False)):
            raise InputError(
                f"{keyword('annotate', True)} has a column {count_column!r}, too: name another "
                f"for {keyword('count_column')}",
                got=count_column,
            )
        return new

    def columns(self, by_texts: bool) -> dict[str, NewColumn]:
        """Return the new columns by name."""
        rename = f"name another one with {keyword('count_column')}"
        copies = NewColumn("integer", rename)
        if not self.annotate:
            return {self.count_column: copies}
        leave_out = f"rename it, or leave {keyword('annotate')} out"
        last: dict[str, NewKind] = {"contained": "share"} if by_texts else {"distance": "integer"}
        kinds: dict[str, NewKind] = {"kept": "flag", "kept_id": "id", **last}
        return {
            "cluster": NewColumn("integer", leave_out),
            self.count_column: copies,
            **{name: NewColumn(kind, leave_out) for name, kind in kinds.items()},
        }


class Annotations(NewColumns):
    """What a deduplication found, as new columns of the rows of a corpus.

    ``cluster`` is the number of the cluster, as in the list of removed rows; ``copies`` is how many
    documents it has, 1 for others; ``kept`` whether the row stays, ``kept_id`` the id of the row
    that stays for it, or its own, null if neither stays; and ``contained`` the share of its pieces
    that the row that stays has, null for rows that stay, or ``distance`` for estimates.
    """

    def __init__(
        self,
        annotation: Annotation,
        documents: ComparedRows,
        members: Members,
        removed: Removed,
        is_kept: Flags,
        id_column: str | None,
    ) -> None:
        """Take the groups of documents, the rows that went, and a flag for each row that stays."""
        self.annotation, self.is_kept = annotation, is_kept
        self._by_texts = "rule" in removed.evidence
        self.columns = annotation.columns(self._by_texts)
        self._removed, self._documents, self.id_column = removed, documents, id_column
        self._sizes = np.diff(members.lims)
        owners = list_numbers(members.lims)
        rows = documents.rows[members.documents.view(np.intp)].astype(np.uint64)
        order = np.argsort(rows)
        self._rows, self._clusters = rows[order], owners[order]
        strings = id_kind(documents.ids) == "string" or removed.has_kept_strings
        self.id_kind = (
            "str"
            if strings
            else "any int"
            if removed.has_reference
            else "row"
            if id_column is None
            else "int"
        )

    @property
    def flags(self) -> Flags:
        """Which rows are written: all, or those that stay."""
        return np.ones(len(self.is_kept), bool) if self.annotation.annotate else self.is_kept

    def values(self, rows: Words) -> dict[str, list[Any]]:
        """Return the values of rows in each column; None for a null."""
        places, in_cluster = _find(self._rows, rows)
        clusters = self._clusters[places[in_cluster]]
        copies = np.ones(len(rows), np.int64)
        copies[in_cluster] = self._sizes[clusters]
        if not self.annotation.annotate:
            return {self.annotation.count_column: copies.tolist()}
        removed_places, is_removed = _find(self._removed.rows, rows)
        removed_places = removed_places[is_removed]
        evidence = self._removed.evidence
        if self._by_texts:
            shares = np.round(evidence["contained"][removed_places], SHOWN_DIGITS).tolist()
            last = {"contained": [value if value == value else None for value in shares]}
        else:
            last = {"distance": evidence["distance"][removed_places].tolist()}
        return {
            "cluster": _spread(in_cluster, clusters.tolist()),
            self.annotation.count_column: copies.tolist(),
            "kept": self.is_kept[rows.view(np.intp)].tolist(),
            "kept_id": self._kept_ids(rows, is_removed, removed_places),
            **{name: _spread(is_removed, values) for name, values in last.items()},
        }

    def _kept_ids(self, rows: Words, is_removed: Flags, removed_places: Any) -> list[Any]:
        """Return the id of the row that stays for each row, or its own."""
        places, is_own = _find(self._documents.rows.view(np.uint64), rows)
        is_own &= ~is_removed
        own: list[Any]
        if self.id_column is None:  # row numbers, also of rows that are not compared
            is_own = self.is_kept[rows.view(np.intp)]
            own = rows[is_own].tolist()
        else:
            own = _plain(ids_at(id_names(self._documents), places[is_own].astype(np.uint64)))
        kept = _plain(self._removed.kept_ids(removed_places))
        if self.id_kind == "str":
            own, kept = list(map(str, own)), list(map(str, kept))
        ids = _spread(is_own, own)
        # of rows that stay and are not compared, no ids were kept
        for place in np.flatnonzero(self.is_kept[rows.view(np.intp)] & ~is_own).tolist():
            ids[place] = OWN_ID
        for place, name in zip(np.flatnonzero(is_removed).tolist(), kept, strict=True):
            ids[place] = name
        return ids


def _find(ascending: Words, rows: Words) -> tuple[Any, Flags]:
    """Return the place of each row among others, and whether it is there."""
    places = np.searchsorted(ascending, rows)
    if not len(ascending):
        return places, np.zeros(len(rows), bool)
    is_there: Flags = ascending[np.minimum(places, len(ascending) - 1)] == rows
    return places, is_there


def _spread(flags: Flags, values: list[Any]) -> list[Any]:
    """Return a list with values where flags are set, and None elsewhere."""
    result: list[Any] = [None] * len(flags)
    for place, value in zip(np.flatnonzero(flags).tolist(), values, strict=True):
        result[place] = value
    return result


def _plain(ids: Words | list[str]) -> list[Any]:
    return ids if isinstance(ids, list) else ids.tolist()
