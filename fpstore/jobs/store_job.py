"""Jobs over a whole store: the store as of one moment, the limits, and the folder that keeps what is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_path, printable
from fpstore.base.resources import Resources, checked_resources
from fpstore.base.width import Width
from fpstore.design.families import check_radius
from fpstore.errors import InputError
from fpstore.jobs.between import GivenRows, given_rows, join_of
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity, checkpoint_in
from fpstore.jobs.clusters import Clusters, clusters_identity, clusters_of, grouping_of
from fpstore.jobs.pairs import Pairs, pairs_identity, pairs_of
from fpstore.query.snapshot import Snapshot

Folder = str | os.PathLike[str] | None


class StoreLike(Protocol):
    """What a job needs of a store."""

    @property
    def radius(self) -> int:
        """The largest radius that its tables answer."""

    @property
    def width(self) -> int:
        """The bits of a fingerprint."""

    def _identified_snapshot(self) -> tuple[Snapshot, JobIdentity]:
        """Return the store as it is now, and what tells this state from any other."""


class StoreJob(NamedTuple):
    """What a job over a store needs.

    Attributes
    ----------
    snapshot : Snapshot
    identity : mapping
        What tells the state of the store from any other, and the radius.
    radius : int
    resources : Resources
    """

    snapshot: Snapshot
    identity: JobIdentity
    radius: int
    resources: Resources

    def full_identity(self, own: JobIdentity) -> JobIdentity:
        """Return what tells this job from any other: its own arguments, and what it has of the store."""
        return {**own, **self.identity}

    def pairs(self, duplicates: bool, folder: Folder) -> Iterator[Pairs]:
        """Yield the pairs; with a folder, what is done is kept there until the job has ended. So it is for the other jobs."""
        with self._checkpoint(folder, pairs_identity(duplicates)) as kept:
            yield from pairs_of(self.snapshot, self.radius, self.resources, duplicates, kept)

    def clusters(self, group: str | None, keep: str, fingerprinter: Mapping[str, Any] | None, folder: Folder) -> Clusters:
        """Return the clusters, with all ids in memory."""
        grouping = grouping_of(self.radius, group, keep, fingerprinter)
        with self._checkpoint(folder, clusters_identity(grouping)) as kept:
            return clusters_of(self.snapshot, grouping, self.resources, kept).held()

    def join(self, side: Snapshot | GivenRows, identity: Callable[[], JobIdentity], folder: Folder) -> Iterator[Pairs]:
        """Yield the pairs with another side, of :func:`side_of`."""
        with self._checkpoint(folder, {} if folder is None else identity()) as kept:
            yield from join_of(self.snapshot, side, self.radius, self.resources, kept)

    def _checkpoint(self, folder: Folder, own: JobIdentity) -> AbstractContextManager[Checkpoint | None]:
        return checkpoint_in(None if folder is None else check_path(folder, "resume"), lambda: self.full_identity(own))


def job_of(
    store: StoreLike, radius: int | None, memory: int | str | None, threads: int | None, progress: Progress | None
) -> StoreJob:
    """Return a job over a store as it is now; InputError for a wrong argument."""
    resources = checked_resources(memory, threads, progress)
    radius = store.radius if radius is None else check_radius(radius, store.width)
    snapshot, identity = store._identified_snapshot()
    return StoreJob(snapshot, {"radius": radius, **_named("store", identity)}, radius, resources)


def side_of(store: StoreLike, other: Any, ids: Any = None) -> tuple[Snapshot | GivenRows, Callable[[], JobIdentity]]:
    """Return the other side of a join, a store or what a caller gives, and what tells it from others."""
    if isinstance(other, str | os.PathLike):
        raise InputError(
            f"{printable(other)}: join takes what is open, not a path: pass fpstore.open(path) for a store, or "
            "fpstore.io.open_reader(path, width=store.width) for a file of fingerprints",
            path=other,
        )
    if not isinstance(other, type(store)):
        given = given_rows(other, ids, Width(store.width, stored=True))
        return given, lambda: {"job": "join", "other rows": given.digest()}
    if ids is not None:
        raise InputError("ids are for fingerprints: a store has its own")
    if other.width != store.width:
        raise InputError(f"this store holds {store.width} bits, and the other one {other.width}")
    snapshot, identity = other._identified_snapshot()
    return snapshot, lambda: {"job": "join", **_named("other store", identity)}


def _named(what: str, identity: JobIdentity) -> JobIdentity:
    """Return the identity of one of several things, with its name."""
    return {f"{what} {name}": value for name, value in identity.items()}
