"""Columns of ids of either type: integers, or strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.arrays import NO_WORDS
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn
from fpstore.errors import InputError
from fpstore.io.digits import parse_integers
from fpstore.io.source import IdColumn
from fpstore.io.writers import ColumnKind
from fpstore.query.snapshot import Snapshot


def id_column_kind(snapshot: Snapshot) -> ColumnKind:
    """Return the kind of column that the ids of a store are for writers."""
    return "text" if snapshot.totals.id_kind == "string" else "value"


def take_ids(ids: IdColumn, places: npt.NDArray[np.intp]) -> Any:
    if not isinstance(ids, StringColumn):
        return None if ids is None else ids[places]
    return ids.take(places)


def as_strings(ids: Words | StringColumn) -> StringColumn:
    return (
        ids
        if isinstance(ids, StringColumn)
        else StringColumn.from_strings(list(map(str, ids.tolist())))
    )


def as_integers(ids: IdColumn, where: str) -> Words:
    """Return ids as integers; InputError for a text that is no integer."""
    integers = parse_integers(ids, plain=False) if isinstance(ids, StringColumn) else ids
    if integers is None:
        raise InputError(
            f"{where}: an id is no integer: leave {keyword('id_type', 'int')} out", path=where
        )
    return integers


def concatenate_ids(columns: Sequence[Any], are_strings: bool) -> Any:
    """Concatenate columns of ids, as strings if other columns have strings."""
    if are_strings:
        return StringColumn.concatenate([as_strings(column) for column in columns])
    return np.concatenate([NO_WORDS, *columns])


def plain_ids(ids: Any) -> Any:
    """Return ids as writers take them: an array of integers, or a list of str."""
    return ids.texts() if isinstance(ids, StringColumn) else ids
