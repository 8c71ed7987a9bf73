"""The functions of the package: build a store; open and repair a folder of any kind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_opening, check_path
from fpstore.base.resources import make_resources, parse_size
from fpstore.design.blocks import AUTO, HUFFMAN
from fpstore.design.families import check_design
from fpstore.disk.mapped import LAZY
from fpstore.errors import FormatVersionError, InputError, MissingExtraError
from fpstore.format.manifest import is_index, is_openable, is_sharded
from fpstore.store import Store

if TYPE_CHECKING:
    from fpstore.care.reports import RepairReport
    from fpstore.hashing import Fingerprinter
    from fpstore.lsh.store import LshStore

PathLike = str | os.PathLike[str]

INDEX_KIND = "an LSH index"


def build(
    path: PathLike,
    fingerprints: Any,
    ids: Any = None,
    *,
    radius: int | None = None,
    width: int | None = None,
    design: str = "auto",
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    block_bytes: int | None = None,
    codec: str = HUFFMAN,
    filter: bool | str = AUTO,
    disk_budget: int | str | None = None,
    storage: str = "hot",
    prefer: str = "balance",
    fingerprinter: Any = None,
    index_ids: bool = False,
) -> Store:
    """Build a store from fingerprints and open it. The target appears complete or not at all.

    Parameters
    ----------
    path : path-like
        The folder to create.
    fingerprints : array, sequence, iterable of arrays, or reader of ``fpstore.io`` or
    ``fpstore.hashing``
        Rows of the width: uint64 (n,) for 64 bits, uint32 (n,) for 32, and for 128 and 256 bits
        uint8 (n, width / 8), big-endian, or uint64 (n, width / 64), the most significant word
        first. At every width a sequence of int, bytes, rows of these arrays, or ``imagehash``
        hashes; and an iterable of rows. An array of numpy, or a column of pyarrow, polars or
        pandas, in which strings are hexadecimal digits. Duplicates are allowed: a fingerprint keeps
        the ids of all its rows.
    ids : optional
        One per row: non-negative integers below 2^64, or non-empty strings or paths. With an
        iterable of arrays, an iterable of as many arrays. By default the row number.
    radius : int, optional
        The largest radius that probes answer from the tables, 0 to the width. Above a quarter of
        it, ``scan`` is the only design. By default the `usual_radius` of the fingerprinter, or 3.
    width : int, optional
        Bits of a fingerprint: 32, 64, 128 or 256; by default the width of the fingerprinter, or 64.
    design : str
        A name; ``auto`` is the planner's choice.
    memory : int or str, optional
        Budget such as ``"2GiB"`` (at least 64 MiB); by default a quarter of this machine's memory.
        Larger inputs are sorted through temporary files beside the target. The ids of one
        fingerprint are never split: while they are sorted and packed, they take up to 40 bytes
        each, which the budget does not limit.
    threads : int, optional
        By default one per processor.
    progress : callable, optional
        Called as ``progress(phase, done, total)`` from any thread; total is None if it is not
        known.
    overwrite : bool
        Replace an existing store, in one step, once the new one is complete.
    block_bytes : int, optional
        128 to 4096, a power of two; by default 512, and 1024 above 64 bits. Larger blocks are
        smaller on disk and slower to probe.
    codec : {"huffman", "elias-fano"}
        How the tables of sorted blocks are packed: the differing bits of successive fingerprints in
        a Huffman code (Manku, section 3.3), or Elias-Fano, which is smaller and faster. Tables of
        columns have no blocks: a store of these alone only remembers it, as it does
        ``block_bytes``, for a merge that takes a design of blocks.
    filter : bool or "auto"
        Write a filter beside each table of blocks that saves time with one: a look-up that would
        find nothing then mostly opens no block. ``auto`` writes filters where they pay for their
        bytes: all with ``prefer="speed"``, none with ``"space"`` or ``storage="cold"``. The store
        keeps the setting, and merges follow it.
    disk_budget : int or str, optional
        Bytes that ``auto`` may use for tables and ids, such as ``"40GB"``.
    storage : {"hot", "cold"}
        Plan for tables in the page cache, or read from disk. Only ``auto`` uses it.
    prefer : {"balance", "speed", "space"}
        What ``auto`` takes: the best compromise of bytes and time, the fastest design, or the
        smallest, with ``filter=True`` of those that have filters. A merge that chooses again does
        likewise.
    fingerprinter : Fingerprinter or dict, optional
        The maker of the fingerprints: a :class:`fpstore.SimHash`, or its ``describe()``. The store
        remembers it, so that probes can use the same. By default the fingerprinter of a reader of
        texts, pictures or vectors, and no other then.
    index_ids : bool
        Index integer ids too, as strings always are: ``store.ids``, ``delete(ids=...)`` and
        ``upsert`` then take microseconds per id, not a pass over all ids. It takes about as many
        bytes per id as the id map.

    Returns
    -------
    Store
        Open for reading.

    Raises
    ------
    InputError
        Wrong dtype, shape, range or number of ids; an unknown design, or one that needs too many
        look-ups; a fingerprinter that is not the reader's.
    StoreExistsError
        The path exists and ``overwrite`` is false, or it is not a store.
    StorageError
        The disk is full or not writable; nothing was changed.

    Examples
    --------
    >>> import fpstore, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "crawl.fps")
    >>> store = fpstore.build(path, np.array([7, 11, 2**63], dtype=np.uint64), ids=["a", "b", "c"])
    >>> store.probe(15)
    [Match(fingerprint=7, distance=1, ids=['a']), Match(fingerprint=11, distance=1, ids=['b'])]
    """
    from fpstore.building.builder import BuildOptions, build_store

    target, overwrite = check_path(path), check_flag(overwrite, "overwrite")
    options = BuildOptions.for_fingerprinter(
        _choose_fingerprinter(fingerprints, fingerprinter),
        radius,
        width,
        design=design,
        memory=memory,
        threads=threads,
        block_bytes=block_bytes,
        codec=codec,
        filter=filter,
        disk_budget=None if disk_budget is None else parse_size(disk_budget, "disk_budget"),
        storage=storage,
        prefer=prefer,
        index_ids=index_ids,
        progress=progress,
    )
    check_design(design, options.radius, options.width)  # options also take a Design
    build_store(target, fingerprints, ids, options, overwrite)
    return Store(target)


def _choose_fingerprinter(source: Any, fingerprinter: Any) -> Fingerprinter[Any] | None:
    """Return the maker of the fingerprints of a source, which a reader has.

    InputError if a store could not use it later.
    """
    from fpstore.hashing.registry import fingerprinter_from_description

    makers: list[Any] = [fingerprinter, getattr(source, "fingerprinter", None)]
    declared, reader_fingerprinter = (
        maker.describe() if hasattr(maker, "describe") else maker for maker in makers
    )
    if (
        declared is not None
        and reader_fingerprinter is not None
        and declared != reader_fingerprinter
    ):
        message = (
            "the reader makes its fingerprints with another one, which the store must remember: "
            "leave it out"
        )
        raise InputError(f"fingerprinter: {message}", expected=reader_fingerprinter, got=declared)
    if declared is None and reader_fingerprinter is None:
        return None
    try:
        return fingerprinter_from_description(
            reader_fingerprinter if declared is None else declared
        )
    except (FormatVersionError, MissingExtraError) as error:
        raise InputError(f"fingerprinter: {error}", got=fingerprinter) from None


@overload
def open(
    path: PathLike,
    mode: str = "r",
    *,
    sync: str = "commit",
    merge_at: float | None = None,
    pages: str = LAZY,
) -> Store: ...


@overload
def open(
    path: PathLike, mode: str = "r", *, sync: str = "commit", hasher: Any
) -> LshStore[Any]: ...


def open(
    path: PathLike,
    mode: str = "r",
    *,
    sync: str = "commit",
    merge_at: float | None = None,
    pages: str = LAZY,
    hasher: Any = None,
) -> Store | LshStore[Any]:
    """Open a store, a sharded store or an LSH index: the folder says which it is.

    Parameters
    ----------
    path : path-like
        The folder.
    mode : {"r", "r+"}
        ``"r"`` to read, ``"r+"`` also to insert, delete and merge. There is one writer at a time,
        beside any number of readers.
    sync : {"commit", "batch", "none"}
        When changes are durable: see :meth:`fpstore.Store.insert`. Both this and ``merge_at`` need
        ``mode="r+"``.
    merge_at : float, optional
        Merge in the background when the delta reaches this share of the fingerprints in the tables,
        such as 0.1, and 65,536 changes. By default only :meth:`fpstore.Store.merge` merges. A
        process that keeps a store open for writing should use one of the two: no other process can
        merge, so ``fpstore merge`` is refused. Not for an LSH index.
    pages : {"lazy", "populated", "huge"}
        How tables and filters get into memory: page by page, all at opening, or as a copy.
        ``"lazy"``: each page when a probe first needs it; the store opens at once, and its first
        probes are slower. ``"populated"``: opening reads the tables and maps all their pages, which
        takes a moment when the system has them in memory, and as long as reading them when it has
        not. ``"huge"``: opening copies the tables into memory of this process, in pages of 2 MiB
        where the system gives them. It takes as much memory as the tables have bytes, which no
        other process shares. Where the file system has large pages in the page cache (ext4 from
        Linux 6.16 on, XFS), probes are no faster for that. Each generation of a merge is opened in
        the same way, while the one before is still open. Not for an LSH index.
    hasher : Sketcher, optional
        The hasher of an LSH index, if it is not installed as an entry point. Only for an index. A
        type checker takes a call with ``hasher``, which may be None, for one that opens an index.

    Returns
    -------
    Store, ShardedStore or lsh.LshStore

    Raises
    ------
    StoreNotFoundError
        The path does not exist, or is none of the three.
    CorruptStoreError, FormatVersionError
        The folder is damaged, or newer than this fpstore, or an index of another version of its
        hasher.
    InputError
        An argument is wrong, or is not for this kind of folder.
    MissingExtraError
        The hasher of an index is not installed, and ``hasher`` is not given.
    StoreLockedError
        Another process is the writer; the message names it.
    ReadOnlyError
        With ``"r+"``: the folder lies on read-only media, the user has no permission to write, or
        it is a sharded store.
    """
    target = check_path(path)
    if is_index(target):
        from fpstore.lsh.store import LshStore

        _refuse(target, INDEX_KIND, merge_at=merge_at, pages=None if pages == LAZY else pages)
        check_opening(mode, sync, None)
        return LshStore(target, mode, sync, hasher)
    if hasher is not None and is_openable(target):
        _refuse(target, "a store of fingerprints", hasher=hasher)
    return open_store(target, mode, sync=sync, merge_at=merge_at, pages=pages)


def open_store(
    path: PathLike,
    mode: str = "r",
    *,
    sync: str = "commit",
    merge_at: float | None = None,
    pages: str = LAZY,
) -> Store:
    """Open a store of fingerprints, sharded or not, for modules of this package; see :func:`open`.

    StoreNotFoundError for an LSH index.
    """
    target = check_path(path)
    if is_sharded(target):
        from fpstore.sharded import ShardedStore

        return ShardedStore(target, mode, sync, merge_at, pages)
    return Store(target, mode, sync, merge_at, pages)


def repair(
    path: PathLike,
    output: PathLike | None = None,
    *,
    in_place: bool = False,
    lost: PathLike | None = None,
    radius: int | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> RepairReport:
    """Make a sound store or LSH index from the intact parts of a damaged one.

    The report says what was done and what is lost. Each table of a store holds the whole set, so
    one intact table restores all others. Ids, strings and changes exist only once. In an index, a
    document that has lost some of its keys is found less often; one that has lost most of them is
    left out, and its id listed: insert its item again. The damaged folder is never changed or
    deleted. If nothing is wrong, nothing is written. The shards of a sharded store are repaired one
    by one.

    Parameters
    ----------
    path : path-like
        The damaged store; or index, whose ``lsh.json`` is intact.
    output : path-like, optional
        The folder to create; by default the name of `path` with ``.repaired`` appended.
    in_place : bool
        Put the new store in place of the damaged one once it is complete and verified. The damaged
        one is kept, with ``.damaged`` appended to its name. Not for an index.
    lost : path-like, optional
        The list of losses to write; by default the name of `output`, or else of the store, with
        ``.lost.tsv`` appended. Each line has a kind, a fingerprint and an id. Kinds:
        ``fingerprint`` (it has no id left), ``ids`` (the fingerprint has lost some ids), ``name``
        (the string of this id number is lost), ``id`` (no fingerprint has this id now),
        ``document`` (a document of an index is left out). Not for an index, whose lists lie beside
        the output.
    radius : int, optional
        The radius of the new store if the manifest is lost, which had it; by default 3. Not for an
        index.
    memory, threads, progress : optional
        As for :func:`build`.

    Returns
    -------
    RepairReport

    Raises
    ------
    StoreNotFoundError
        The path does not exist, or is neither a store nor an index.
    InputError
        An argument is wrong, or is not for this kind of folder; or there is a radius, and the
        manifest is intact.
    CorruptStoreError
        Nothing can be recovered; or a part of an index is missing, or belongs to another index.
    StoreExistsError
        The path of the new store exists.
    StoreLockedError
        Another process has the store open for writing.
    StorageError
        The disk is full or not writable; nothing was changed.
    """
    source = check_path(path)
    target = None if output is None else check_path(output, "output")
    losses = None if lost is None else check_path(lost, "lost")
    in_place = check_flag(in_place, "in_place")
    resources = make_resources(memory, threads, progress)
    if is_index(source):
        from fpstore.lsh.repaired import repair_index

        _refuse(source, INDEX_KIND, in_place=in_place or None, lost=lost, radius=radius)
        return repair_index(source, target, resources)
    from fpstore.care.repair import repair_store

    return repair_store(source, target, in_place, losses, resources, radius)


def _refuse(path: Path, kind: str, **arguments: Any) -> None:
    """Refuse arguments that a kind of folder does not have, unless they are None."""
    for name, value in arguments.items():
        if value is not None:
            raise InputError(f"{path}: is {kind}, which takes no {name}=", path=path, got=value)
