"""Jobs over a whole store: the work, its identity, and its checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from fpstore.base.arguments import check_flag, check_path, printable
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.base.width import Width
from fpstore.design.families import check_radius
from fpstore.errors import InputError
from fpstore.hashing.image import ImageHash, check_orientations
from fpstore.hashing.registry import from_description
from fpstore.jobs.clusters import Clusters, cluster_grouping, find_clusters
from fpstore.jobs.pairs import Pairs, Side, find_joined_pairs, find_pairs
from fpstore.jobs.row_set import read_row_set
from fpstore.jobs.variants import find_oriented_pairs
from fpstore.query.snapshot import Snapshot
from fpstore.work.checkpoint import Checkpoint, JobIdentity, open_checkpoint_in

Result = TypeVar("Result")


class StoreJob(NamedTuple, Generic[Result]):
    """A job over one snapshot of a store; ``run`` does it, with or without a checkpoint."""

    snapshot: Snapshot
    identity: Callable[[], JobIdentity]
    run: Callable[[Checkpoint | None], Result]

    def checkpoint(
        self, folder: str | os.PathLike[str] | None
    ) -> AbstractContextManager[Checkpoint | None]:
        """Return the checkpoint in a folder; without a folder, a context of None."""
        return open_checkpoint_in(
            None if folder is None else check_path(folder, "resume"), self.identity
        )


def iterate_pairs(
    job: StoreJob[Iterator[Pairs]], folder: str | os.PathLike[str] | None
) -> Iterator[Pairs]:
    """Return an iterator over the pairs of a job; a wrong folder is an error at once."""
    path = None if folder is None else check_path(folder, "resume")

    def pairs() -> Iterator[Pairs]:
        with job.checkpoint(path) as checkpoint:
            yield from job.run(checkpoint)

    return pairs()


# Each takes a fpstore.Store and raises InputError for a wrong argument; None is the store's radius.


def _oriented(store: Any, orientations: int) -> ImageHash | None:
    """Return the hasher of a store, if its pictures are compared in eight orientations."""
    if check_orientations(orientations) == 1:
        return None
    description = store.fingerprinter
    hasher = None if description is None else from_description(description)
    if not isinstance(hasher, ImageHash):
        raise InputError(
            f"{keyword('orientations', orientations)} is for a store that was built of pictures, "
            "which are read again",
            got=description,
        )
    return hasher


def pairs_job(
    store: Any,
    radius: int | None,
    duplicates: bool,
    resources: Resources,
    orientations: int = 1,
) -> StoreJob[Iterator[Pairs]]:
    """Return the job of :meth:`fpstore.Store.pairs`."""
    hasher = _oriented(store, orientations)
    radius = store.radius if radius is None else check_radius(radius, store.width)
    duplicates = check_flag(duplicates, "duplicates")
    snapshot, identity = _snapshot_and_identity("store", store)
    facts = {"job": "pairs", "duplicates": duplicates, "radius": radius, **identity}
    if hasher is None:
        run = partial(find_pairs, snapshot, radius, resources, duplicates)
        return StoreJob(snapshot, lambda: facts, run)
    if duplicates:
        raise InputError(
            f"{keyword('orientations', orientations)} lists no pictures with equal fingerprints: "
            f"leave {keyword('duplicates', True)} out"
        )
    facts["orientations"] = orientations
    return StoreJob(
        snapshot, lambda: facts, partial(find_oriented_pairs, snapshot, hasher, radius, resources)
    )


def clusters_job(
    store: Any,
    radius: int | None,
    group: str | None,
    keep: str,
    resources: Resources,
    orientations: int = 1,
) -> StoreJob[Clusters]:
    """Return the job of :meth:`fpstore.Store.clusters`."""
    hasher = _oriented(store, orientations)
    radius = store.radius if radius is None else check_radius(radius, store.width)
    grouping = cluster_grouping(radius, group, keep, store.fingerprinter)
    snapshot, identity = _snapshot_and_identity("store", store)
    facts = {"job": "clusters", **grouping._asdict(), **identity}
    if hasher is not None:
        facts["orientations"] = orientations
    run = partial(find_clusters, snapshot, grouping, resources, oriented=hasher)
    return StoreJob(snapshot, lambda: facts, run)


def join_job(
    store: Any, other: Any, radius: int | None, ids: Any, resources: Resources
) -> StoreJob[Iterator[Pairs]]:
    """Return the job of :meth:`fpstore.Store.join`."""
    radius = store.radius if radius is None else check_radius(radius, store.width)
    (snapshot, identity), (side, described) = (
        _snapshot_and_identity("store", store),
        _side(store, other, ids),
    )
    facts = {"job": "join", "radius": radius, **identity}
    return StoreJob(
        snapshot,
        lambda: {**facts, **described()},
        partial(find_joined_pairs, snapshot, side, radius, resources),
    )


def _side(store: Any, other: Any, ids: Any) -> tuple[Side, Callable[[], JobIdentity]]:
    if isinstance(other, str | os.PathLike):
        raise InputError(
            f"{printable(other)}: join takes an open store or reader, not a path: pass "
            "fpstore.open(path) for a store, or fpstore.io.open_reader(path, width=store.width) "
            "for a file of fingerprints",
            path=other,
        )
    if not hasattr(other, "snapshot"):  # neither a store nor a sharded one
        rows = read_row_set(other, ids, Width(store.width, stored=True))
        return rows, lambda: {"other rows": rows.digest()}
    if ids is not None:
        raise InputError("ids are for fingerprints: a store has its own")
    check_same_width(store.width, other.width)
    snapshot, identity = _snapshot_and_identity("other store", other)
    return snapshot, lambda: identity


def check_same_width(width: int, other_width: int) -> None:
    """Refuse to join stores of two widths."""
    if other_width != width:
        raise InputError(f"this store holds {width} bits, and the other one {other_width}")


def _snapshot_and_identity(name: str, store: Any) -> tuple[Snapshot, JobIdentity]:
    """Return the snapshot of a store and its identity, whose facts have names with a prefix."""
    snapshot: Snapshot = store.snapshot()
    facts = {"path": str(store.path), **snapshot.state}
    return snapshot, {f"{name} {key}": value for key, value in facts.items()}
