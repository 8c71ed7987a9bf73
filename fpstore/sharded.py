"""Sharded stores: a folder of stores that opens as one."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fpstore.base.aliases import Id, Progress
from fpstore.base.arguments import (
    check_choice,
    check_opening,
    check_path,
    check_progress,
    check_whole,
)
from fpstore.design.families import Design
from fpstore.disk.mapped import LAZY, PAGES
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import InputError, ReadOnlyError, StoreNotFoundError, plural, show
from fpstore.format.shards import (
    Shard,
    ShardsManifest,
    is_shard_name,
    read_shards,
    shard_name,
    write_shards,
)
from fpstore.query.sharded import ShardedSnapshot, fingerprint_bounds
from fpstore.query.snapshot import Snapshot
from fpstore.store import Store, store_snapshot

if TYPE_CHECKING:
    from fpstore.care.reports import Report
    from fpstore.change.writer import StoreWriter

MAX_SHARDS = 1 << 20
READ_ONLY = (
    "a sharded store is read-only: build it anew, or build another shard and combine the shards "
    "again"
)


class ShardedStore(Store[Id]):
    """A folder of stores, its *shards*, which :func:`fpstore.open` opens as one store for reading.

    It answers like one store of all rows, and has the members of a :class:`Store`, except changes.
    Row numbers go on from shard to shard. A fingerprint that several shards have has the ids of
    all. The shards are ``shard-00000.fps``, ``shard-00001.fps`` and so on; :meth:`combine` makes a
    sharded store of them. It has the content of the moment when it was opened, and refuses a shard
    that has changed since they were combined.

    A question goes to one shard after the other. Shards stay open as far as a quarter of the files
    that the process may open is enough (``ulimit -n``); each question opens the others.
    """

    def __init__(
        self,
        path: Path,
        mode: str = "r",
        sync: str = "commit",
        merge_at: float | None = None,
        pages: str = LAZY,
    ) -> None:
        check_opening(mode, sync, merge_at)
        check_choice(pages, PAGES, "pages")
        if mode != "r":
            raise ReadOnlyError(f"{path}: {READ_ONLY}", path=path)
        self._shards = ShardedSnapshot(path, read_shards(path), pages)
        self._set_state(path, self._shards.radius, self._shards.width)
        self._writer = None

    def __reduce__(self) -> tuple[type[Store], tuple[Path, str, str, None, str]]:
        """Pickle the path and ``pages``; unpickling opens the store."""
        self._check()
        return type(self), (self.path, "r", "commit", None, self._shards.pages)

    @classmethod
    def combine(
        cls,
        path: str | os.PathLike[str],
        *,
        count: int | None = None,
        plan: str | None = None,
        progress: Progress | None = None,
    ) -> ShardedStore:
        """Make a sharded store of the stores in a folder, and open it.

        Its manifest is written last, in one step.

        The shards are named ``shard-00000.fps``, ``shard-00001.fps`` and so on, without gaps. They
        have the same width and radius, the same fingerprinter, and ids of one kind. Where the
        ranges of their fingerprints overlap, all are read once, to count common fingerprints.

        Parameters
        ----------
        path : path-like
            The folder.
        count : int, optional
            How many shards there must be.
        plan : str, optional
            A digest of the plan that made them, to be remembered.
        progress : callable, optional
            Called as ``progress("combining", done, total)``, in shards.

        Raises
        ------
        StoreNotFoundError
            The folder has no shards, or a shard is missing.
        InputError
            The shards do not fit together.
        CorruptStoreError, StorageError

        Examples
        --------
        >>> import fpstore, tempfile, os
        >>> folder = tempfile.mkdtemp()
        >>> fpstore.build(os.path.join(folder, "shard-00000.fps"), [0b1000, 0b1011]).close()
        >>> fpstore.build(os.path.join(folder, "shard-00001.fps"), [0b1011]).close()
        >>> with fpstore.ShardedStore.combine(folder) as store:
        ...     store.probe(0b1001, radius=1)
        [Match(fingerprint=8, distance=1, ids=[0]), Match(fingerprint=11, distance=1, ids=[1, 2])]
        """
        folder = check_path(path)
        check_progress(progress)
        manifest = _combine_manifests(folder, count, plan, progress)
        write_shards(folder, manifest)
        return cls(folder)

    def _close_files(self) -> None:
        self._closed = True
        self._shards.close()

    def writer(self) -> StoreWriter:
        """Refuse: a sharded store is read-only."""
        self._check()
        raise ReadOnlyError(f"{self.path}: {READ_ONLY}", path=self.path)

    def snapshot(self) -> Snapshot:
        """Return the shards as they were when the store was opened."""
        self._check()
        return self._shards

    @property
    def shards(self) -> list[Path]:
        """The folders of the shards, in order."""
        return [self.path / shard.name for shard in self._shards.manifest.shards]

    @property
    def plan(self) -> str | None:
        """The digest of the plan that made the shards, or None."""
        return self._shards.manifest.plan

    @property
    def design(self) -> Design:
        """The design of the tables of the first shard; others may have another one."""
        return self._shards.design

    @property
    def fingerprinter(self) -> dict[str, Any] | None:
        """The maker of the fingerprints (name, version, parameters), or None if it is not known."""
        return self._shards.manifest.fingerprinter

    def __repr__(self) -> str:
        if self._closed:
            return f"<fpstore.ShardedStore {str(self.path)!r}, closed>"
        holds = (
            f"{plural(len(self), 'fingerprint')} of {self.width} bits in "
            f"{plural(len(self.shards), 'shard')}"
        )
        return f"<fpstore.ShardedStore {str(self.path)!r}: {holds}, radius {self.radius}>"

    def split(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: its shards are split already."""
        raise InputError(
            f"{self.path}: a sharded store cannot be split: split its shards", path=self.path
        )

    def backup(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: since nothing changes in it, a copy of the folder is a backup."""
        raise InputError(
            f"{self.path}: a sharded store does not change: copy the folder", path=self.path
        )

    def stats(self) -> dict[str, Any]:
        """Return the contents and sizes of all shards together, by the keys of :meth:`Store.stats`.

        ``shards`` is their number. ``design``, ``block_bytes``, ``codec`` and ``filter`` are those
        of the first shard.
        """
        from fpstore.care.sharded import describe_shards

        self._check()
        return describe_shards(self._shards)

    def verify(self, *, progress: Progress | None = None) -> Report:
        """Read and check every byte of all shards that is used, and compare with the manifest."""
        from fpstore.care.sharded import verify_shards

        self._check()
        check_progress(progress)
        return verify_shards(self._shards, progress)


def _combine_manifests(
    folder: Path, count: int | None, plan: str | None, progress: Progress | None
) -> ShardsManifest:
    """Return the manifest of the shards in a folder."""
    paths, shards, first_row = _list_shards(folder, count), list[Shard](), 0
    common: dict[str, Any] = {}
    for done, path in enumerate(paths):
        if progress is not None:
            progress("combining", done, len(paths))
        with Store(path) as store:
            snapshot = store_snapshot(store)
            totals, generation = snapshot.totals, snapshot.generation
            rows = totals.next_row if totals.id_kind == "row" else 0
            shards.append(
                Shard(
                    name=path.name,
                    identity=generation.manifest.identity.hex(),
                    generation=generation.record.number,
                    records=snapshot.record,
                    fingerprints=totals.fingerprints,
                    ids=totals.ids,
                    first_row=first_row,
                    rows=rows,
                    bounds=fingerprint_bounds(snapshot),
                )
            )
            facts = {name: getattr(store, name) for name in ("width", "radius", "fingerprinter")}
        first_row += rows
        _check_agree(path, common, {**facts, **({"id_kind": totals.id_kind} if totals.ids else {})})
    kind = common.setdefault("id_kind", "row")
    if kind != "row":
        shards = [shard._replace(first_row=0, rows=0) for shard in shards]
    whole = ShardedSnapshot(
        folder,
        ShardsManifest(
            **common, fingerprints=0, ids=0, repeated_strings=False, plan=plan, shards=shards
        ),
    )
    with closing(whole):
        whole.manifest = whole.manifest._replace(
            repeated_strings=kind == "string" and any(whole.repeated_strings())
        )
        fingerprints, ids = whole.count_distinct()
    return whole.manifest._replace(fingerprints=fingerprints, ids=ids)


def _list_shards(folder: Path, count: int | None) -> list[Path]:
    with translate_refusals(folder):
        names = {path.name for path in folder.iterdir() if is_shard_name(path.name)}
    if not names and not count:
        message = (
            f"{folder}: has no shards: they are stores with the names {shard_name(0)}, "
            f"{shard_name(1)} and so on"
        )
        raise StoreNotFoundError(message, path=folder)
    shard_count = len(names) if count is None else check_whole(count, 1, MAX_SHARDS, "count")
    expected = [shard_name(number) for number in range(shard_count)]
    for name in expected:
        if name not in names:
            raise StoreNotFoundError(f"{folder / name}: this shard is missing", path=folder / name)
    if more := sorted(names.difference(expected)):
        raise InputError(
            f"{folder / more[0]}: an extra shard: there should be {len(expected)}",
            path=folder / more[0],
        )
    return [folder / name for name in expected]


def _check_agree(path: Path, common: dict[str, Any], facts: dict[str, Any]) -> None:
    for name, got in facts.items():
        expected = common.setdefault(name, got)
        if got != expected:
            field = {"id_kind": "kind of ids"}.get(name, name)
            message = f"{path}: its {field} is {show(got)}, earlier shards have {show(expected)}"
            raise InputError(message, path=path, expected=expected, got=got)
