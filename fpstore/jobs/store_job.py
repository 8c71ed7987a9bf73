"""Jobs over a whole store: what each takes of the store, what identifies it, and the folder that keeps its work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_path, printable
from fpstore.base.resources import Resources, checked_resources
from fpstore.base.width import Width
from fpstore.design.families import check_radius
from fpstore.errors import InputError
from fpstore.jobs.checkpoint import Checkpoint, JobIdentity, checkpoint_in
from fpstore.jobs.clusters import Clusters, clusters_of, grouping_of
from fpstore.jobs.given import given_rows
from fpstore.jobs.pairs import Pairs, Side, join_of, pairs_of
from fpstore.query.snapshot import Snapshot

Result_co = TypeVar("Result_co", covariant=True)
Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class StoreJob(Generic[Result_co]):
    """A job over a store as it was at one moment: ``run`` does it, with or without a checkpoint."""

    snapshot: Snapshot
    resources: Resources
    identity: Callable[[], JobIdentity]
    run: Callable[[Checkpoint | None], Result_co]

    def pairs(self: StoreJob[Iterator[Pairs]], folder: Folder) -> Iterator[Pairs]:
        """Yield the pairs that the job finds; with a folder, what is done is kept there until the job has ended."""
        with self._checkpoint(folder) as checkpoint:
            yield from self.run(checkpoint)

    def clusters(self: StoreJob[Clusters], folder: Folder) -> Clusters:
        """Return the clusters that the job finds, with all ids in memory; the folder is as for :meth:`pairs`."""
        with self._checkpoint(folder) as checkpoint:
            return self.run(checkpoint).held()

    def _checkpoint(self, folder: Folder) -> AbstractContextManager[Checkpoint | None]:
        return checkpoint_in(None if folder is None else check_path(folder, "resume"), self.identity)


class Taken(NamedTuple):
    """What a job takes of a store: its state at one moment, the identity of this state and of the radius, and the limits."""

    snapshot: Snapshot
    identity: JobIdentity
    radius: int
    resources: Resources


def taken_from(store: Any, radius: int | None, memory: int | str | None, threads: int | None, progress: Progress | None) -> Taken:
    """Return what a job takes of a :class:`fpstore.Store` as it is now; InputError for a wrong argument."""
    resources = checked_resources(memory, threads, progress)
    radius = store.radius if radius is None else check_radius(radius, store.width)
    snapshot, identity = _identified("store", store)
    return Taken(snapshot, {"radius": radius, **identity}, radius, resources)


def pairs_job(taken: Taken, duplicates: bool) -> StoreJob[Iterator[Pairs]]:
    """Return the job of :meth:`fpstore.Store.pairs`; InputError for a wrong argument."""
    snapshot, identity, radius, resources = taken
    duplicates = check_flag(duplicates, "duplicates")

    def run(checkpoint: Checkpoint | None) -> Iterator[Pairs]:
        return pairs_of(snapshot, radius, resources, duplicates, checkpoint)

    return StoreJob(snapshot, resources, lambda: {"job": "pairs", "duplicates": duplicates, **identity}, run)


def clusters_job(taken: Taken, group: str | None, keep: str, fingerprinter: Mapping[str, Any] | None) -> StoreJob[Clusters]:
    """Return the job of :meth:`fpstore.Store.clusters`; InputError for a wrong argument."""
    snapshot, identity, radius, resources = taken
    grouping = grouping_of(radius, group, keep, fingerprinter)

    def run(checkpoint: Checkpoint | None) -> Clusters:
        return clusters_of(snapshot, grouping, resources, checkpoint)

    return StoreJob(snapshot, resources, lambda: {"job": "clusters", **grouping._asdict(), **identity}, run)


def join_job(taken: Taken, store: Any, other: Any, ids: Any = None) -> StoreJob[Iterator[Pairs]]:
    """Return the job of :meth:`fpstore.Store.join`; InputError for a wrong argument."""
    snapshot, identity, radius, resources = taken
    side, described = _side(store, other, ids)

    def run(checkpoint: Checkpoint | None) -> Iterator[Pairs]:
        return join_of(snapshot, side, radius, resources, checkpoint)

    return StoreJob(snapshot, resources, lambda: {"job": "join", **described(), **identity}, run)


def _side(store: Any, other: Any, ids: Any) -> tuple[Side, Callable[[], JobIdentity]]:
    """Return the other side of a join, a store or what a caller gives, and its identity."""
    if isinstance(other, str | os.PathLike):
        raise InputError(
            f"{printable(other)}: join takes what is open, not a path: pass fpstore.open(path) for a store, or "
            "fpstore.io.open_reader(path, width=store.width) for a file of fingerprints",
            path=other,
        )
    if not isinstance(other, type(store)):
        given = given_rows(other, ids, Width(store.width, stored=True))
        return given, lambda: {"other rows": given.digest()}
    if ids is not None:
        raise InputError("ids are for fingerprints: a store has its own")
    if other.width != store.width:
        raise InputError(f"this store holds {store.width} bits, and the other one {other.width}")
    snapshot, identity = _identified("other store", other)
    return snapshot, lambda: identity


def _identified(what: str, store: Any) -> tuple[Snapshot, JobIdentity]:
    """Return a :class:`fpstore.Store` as it is now, and the identity of this state, under a name of the store."""
    snapshot: Snapshot = store._snapshot()
    manifest = snapshot.generation.manifest
    facts = {
        "path": str(store.path), "identity": manifest.identity.hex(), "generation": manifest.generation.number,
        "log records": snapshot.record,
    }  # fmt: skip
    return snapshot, {f"{what} {name}": value for name, value in facts.items()}
