"""The reports of verify and repair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fpstore.disk.files import RUN_REPAIR
from fpstore.disk.refusals import TOO_MANY_FILES
from fpstore.errors import ClosedStoreError, FpstoreError, MemoryLimitError


def _add_fault(faults: list[dict[str, Any]], error: FpstoreError, message: str) -> None:
    if (
        isinstance(error, (MemoryLimitError, ClosedStoreError))
        or getattr(error, "errno", None) in TOO_MANY_FILES
    ):
        raise error
    if all(fault["message"] != message for fault in faults):
        path = None if error.path is None else str(error.path)
        faults.append({"message": message, "path": path, "block": error.block})


@dataclass
class Report:
    """The findings of ``verify``.

    Attributes
    ----------
    ok : bool
    tables, blocks, fingerprints, ids : int
        The numbers of what was read; fingerprints and ids include the inserts and deletes since the
        last merge. ``ids`` is 0 if the id map is damaged.
    faults : list of dict
        ``message``, ``path``, ``block`` (None if the fault is not in a single block).
    """

    tables: int = 0
    blocks: int = 0
    fingerprints: int = 0
    ids: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def note(self, error: FpstoreError) -> None:
        """Add a fault, once; raise an error that is this process's, not the store's."""
        _add_fault(self.faults, error, str(error))


@dataclass
class RepairReport:
    """What ``repair`` found, did, and could not do.

    Attributes
    ----------
    sound : bool
        Nothing is wrong, and nothing was written.
    faults : list of dict
        What is wrong: ``message``, ``path``, ``block`` (None if the fault is not in a single
        block).
    actions : list of str
        What was done.
    losses : list of str
        What could not be recovered. Empty: the new store holds all that the old one held.
    output : str or None
        The new store.
    damaged : str or None
        Where the damaged store is now, if the new one took its place.
    lost_file : str or None
        Tab-separated: kind, fingerprint, id. Kind ``fingerprint``: it has no id left and is not in
        the new store; ``ids``: it has lost some of its ids; ``name``: the string of an id is lost,
        and only its number is known; ``id``: no intact record has this id, which is lost or was
        deleted before.
    fingerprints, ids : int
        In the new store.
    """

    sound: bool = False
    faults: list[dict[str, Any]] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    output: str | None = None
    damaged: str | None = None
    lost_file: str | None = None
    fingerprints: int = 0
    ids: int = 0

    @property
    def complete(self) -> bool:
        """Whether nothing was lost."""
        return not self.losses

    def note(self, error: FpstoreError) -> None:
        """Add a fault, once; raise an error that is this process's, not the store's."""
        _add_fault(self.faults, error, str(error).removesuffix(f": {RUN_REPAIR}"))
