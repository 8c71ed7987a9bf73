"""Look-ups of ids: the fingerprints of an id, and the ids of matches."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Lims, Words
from fpstore.base.arrays import list_lims, lists_at
from fpstore.errors import InputError, NotStoredError, show
from fpstore.format.dictionary import NO_NUMBER
from fpstore.io.check import check_id, check_ids
from fpstore.query.id_lookup import SizedIds
from fpstore.query.snapshot import Snapshot


class Ids:
    """Look-ups by id, which :attr:`fpstore.Store.ids` returns.

    String ids, and integers in a store built with ``index_ids=True``, are found through an index,
    in microseconds. Without it, each call reads the whole id map once: for many ids, call
    :meth:`fpstore.Store.fingerprints_of` once.

    Examples
    --------
    >>> import fpstore, tempfile, os
    >>> store = fpstore.build(os.path.join(tempfile.mkdtemp(), "s.fps"), [7, 11], ids=["a", "b"])
    >>> "b" in store.ids, store.ids["b"], len(store.ids)
    (True, [11], 2)
    """

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def __len__(self) -> int:
        """Return the number of stored pairs of fingerprint and id."""
        return self._snapshot().totals.ids

    def __contains__(self, identifier: object) -> bool:
        if not is_single_id(identifier) or isinstance(identifier, bool):
            return False
        snapshot = self._snapshot()
        try:
            number = number_of(snapshot, check_id(identifier))
        except InputError:
            return False
        return number is not None and bool(snapshot.get_fingerprints(number))

    # Python would otherwise ask for 0, 1, 2, ... until one is missing.
    __iter__ = None
    __reversed__ = None

    def __getitem__(self, identifier: int | str) -> list[int]:
        """Return the fingerprints that have an id, ascending; KeyError if there are none."""
        snapshot = self._snapshot()
        number = number_of(snapshot, check_id(identifier))
        fingerprints = [] if number is None else snapshot.get_fingerprints(number)
        if not fingerprints:
            raise NotStoredError(f"the id {show(identifier)} is not stored", got=identifier)
        return list(map(snapshot.width.from_number, fingerprints))


def fingerprints_of(snapshot: Snapshot, ids: Any) -> tuple[Lims, Words]:
    """Return (lims, fingerprints) of ids; see :meth:`fpstore.Store.fingerprints_of`."""
    checked = as_id_column(ids)
    if isinstance(checked, list) != (snapshot.totals.id_kind == "string"):
        return np.zeros(len(checked) + 1, np.int64), snapshot.width.empty(0)
    wanted, stored = _numbers(snapshot, checked)
    fingerprints, numbers = snapshot.with_ids(wanted[stored])
    starts = np.searchsorted(numbers, wanted)
    sizes = np.where(stored, np.searchsorted(numbers, wanted, side="right") - starts, 0)
    return list_lims(sizes), lists_at(fingerprints, starts, sizes)


def is_single_id(ids: object) -> bool:
    """Return whether a value is one id, such as a path, and not a collection of ids."""
    return isinstance(ids, (int, str, os.PathLike, np.integer))


def as_id_column(ids: Any) -> Words | list[str]:
    """Return many ids as one array of integers or one list of strings."""
    sized = _as_sized(ids)
    return check_ids(sized, len(sized))


def number_of(snapshot: Snapshot, identifier: int | str) -> int | None:
    """Return the number of an id, or None for a string without a number."""
    _check_kind(snapshot, isinstance(identifier, str))
    return snapshot.number_of(identifier) if isinstance(identifier, str) else identifier


def numbers_of(snapshot: Snapshot, ids: Words | list[str]) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return the number of each id, and which ids have one: a string may have none."""
    if len(ids):
        _check_kind(snapshot, isinstance(ids, list))
    return _numbers(snapshot, ids)


def _numbers(snapshot: Snapshot, ids: Words | list[str]) -> tuple[Words, npt.NDArray[np.bool_]]:
    if isinstance(ids, np.ndarray):
        return ids, np.ones(len(ids), bool)
    numbers = snapshot.numbers_of_strings([name.encode() for name in ids])
    return numbers, numbers != NO_NUMBER


def _check_kind(snapshot: Snapshot, strings: bool) -> None:
    if strings != (snapshot.totals.id_kind == "string") and snapshot.totals.ids:
        kinds = ("integers", "strings") if strings else ("strings", "integers")
        raise InputError(f"the ids of this store are {kinds[0]}, got {kinds[1]}: give {kinds[0]}")


def _as_sized(ids: Any) -> Any:
    if hasattr(ids, "__len__") and getattr(ids, "shape", None) != ():
        return ids
    try:
        return list(ids)
    except TypeError:
        received = f"{type(ids).__name__} {show(ids)}"
        raise InputError(
            f"ids must be a list or an array of integers or strings, got {received}", argument="ids"
        ) from None


class SnapshotIds:
    """Looks up the ids of matches, as of the moment of the probe.

    Once pickled, as of the moment of use.
    """

    def __init__(self, path: Path, snapshot: Snapshot) -> None:
        self._path, self._snapshot = path, snapshot

    def stored_id_numbers(self, fingerprints: Words) -> tuple[Lims, Words]:
        return self._snapshot.stored_id_numbers(fingerprints)

    def ids_within(self, numbers: Words, most: int | None) -> SizedIds | None:
        return self._snapshot.ids_within(numbers, most)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path,)


def _reopen(path: Path) -> SnapshotIds:
    from fpstore.query.sharded import snapshot_at

    return SnapshotIds(path, snapshot_at(path))
