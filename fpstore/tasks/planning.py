"""What users plan: a deduplication, a build, a batch of probes, or the search for all pairs of a store or of two."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, get_args

from fpstore.api import USUAL_RADIUS, open_store
from fpstore.base.arguments import check_choice, check_whole, is_iterable
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.building.builder import Options
from fpstore.cleaning import opened_reference
from fpstore.design.families import check_radius
from fpstore.errors import InputError
from fpstore.hashing.registry import described_fingerprinter
from fpstore.io.source import IdType, Projection
from fpstore.jobs.dedup_job import Likeness, columns_and_maker, dedup_job
from fpstore.store import Store
from fpstore.tasks.api import PathLike, Plan
from fpstore.tasks.build import plan_of_build
from fpstore.tasks.dedup import STAR_ROWS, plan_of_dedup
from fpstore.tasks.inputs import checked_part_bytes, is_raw
from fpstore.tasks.pairs import plan_of_pairs
from fpstore.tasks.places import place_of
from fpstore.tasks.probe import plan_of_probe

SHARD_ROWS = 50_000_000
FORMATS = ("parquet", "tsv", "csv", "jsonl")  # of files of matches and pairs


def plan_dedup(
    plan: PathLike,
    source: Any,
    output: PathLike,
    *,
    text: Any = None,
    fingerprint: str | None = None,
    id: str | None = None,
    score: str | None = None,
    method: str | None = None,
    threshold: float | None = None,
    radius: int | None = None,
    width: int | None = None,
    keep: str = "first",
    group: str | None = None,
    unknown: str = "keep",
    verify: bool | None = None,
    search: str = "auto",
    against: Any = None,
    fingerprinter: Any = None,
    decimal: bool = False,
    signed: bool = False,
    encoding: str | None = None,
    html: bool | str = False,
    removed: PathLike | None = None,
    part_bytes: int | str | None = None,
    slice_rows: int | None = None,
    star_rows: int = STAR_ROWS,
    format: str | None = None,
) -> Plan:
    r"""Plan a deduplication that tasks do.

    The same rows are kept as by :func:`fpstore.dedup`, and the files have the same bytes.

    The stages are hash, links, components, members, decide and copy, and for a list of removed rows
    ranks, clusters and list; `Beyond one machine` in the guide says what they read and write.

    Parameters
    ----------
    plan : path-like
        A new folder for the plan and the results of its tasks, or its URI in an object store, as in
        ``s3://bucket/plans/one``: settings and credentials come from the environment. It may hold
        the same plan already, which goes on.
    source : path, URI, or iterable of them
        Files of Parquet, JSON lines, CSV or TSV with a header, or folders of them, as for
        :func:`fpstore.dedup`.
    output : path-like
        A new folder, or its URI, for the kept rows of each file, in a file of the same name. Of one
        input file, a path with the same extension is the file to write. A folder has the file
        ``_fpstore.json``, which says when all is complete.
    text, fingerprint, id, score, method, threshold, radius, width, keep, group, unknown, verify,
    search : optional
        As for :func:`fpstore.dedup`.
    against : path-like, optional
        A store: rows near one of its documents are removed. Tasks open it by this path.
    fingerprinter, decimal, signed, encoding, html, format : optional
        As for :func:`fpstore.dedup`.
    removed : path-like, optional
        Where :meth:`Plan.finish` lists the removed rows: .tsv, .csv, .jsonl or .parquet, with the
        columns of ``fpstore dedup --removed``.
    part_bytes : int or str, optional
        About how many bytes of input a task reads: small files together, large files of Parquet by
        row groups; other files are not cut. By default there are 256 parts, of 16 to 256 MiB, and
        no more than 4,096.
    slice_rows : int, optional
        About how many rows a task compares. By default 4 million, or more if there were more than
        512 slices. `Beyond one machine` says how much memory that takes.
    star_rows : int
        Of more rows, components are found by many tasks in rounds of large-star and small-star, and
        not by one task.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        As for :func:`fpstore.dedup`; or the source is a table, or the reference is no store, or the
        output is in a folder of the inputs or of the plan.
    StoreExistsError
        The output exists, or the folder of the plan has another plan, or other files.

    Examples
    --------
    >>> import fpstore.tasks, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "pages.csv").write_text("url,hash\na,00ff00ff00ff00ff\nb,00ff00ff00ff00fe\nc,123456789abcdef0\n")
    >>> plan = fpstore.tasks.plan_dedup(folder / "plan", folder / "pages.csv", folder / "clean.csv", fingerprint="hash")
    >>> [plan.run(index) for index in range(len(plan))]
    [True, True, True, True, True, True]
    >>> plan.finish()["kept"], (folder / "clean.csv").read_text().split()
    (2, ['url,hash', 'a,00ff00ff00ff00ff', 'c,123456789abcdef0'])
    """
    how = Projection(id=id, score=score, width=Width(WORD_BITS), decimal=decimal, signed=signed)
    likeness = Likeness(radius, width, method, threshold, group, keep, verify, search)
    if text is True:
        raise InputError(
            "a plan is for rows of files: text=True, where each file is a text, is for "
            "fpstore.dedup"
        )
    with opened_reference(against, False, False, encoding, format) as reference:
        if reference is not None and reference.store is None:
            raise InputError(
                f"{reference.path}: a plan compares with a store: fpstore build makes one",
                path=reference.path,
            )
        job = dedup_job(how, text, fingerprint, likeness, unknown, fingerprinter, html, reference)
        store = None if reference is None else reference.store
        slice_rows = (
            None if slice_rows is None else check_whole(slice_rows, 1, 1 << 40, "slice_rows")
        )
        bounds = checked_part_bytes(part_bytes), slice_rows
        stars = check_whole(star_rows, 0, 1 << 62, "star_rows")
        return Plan(
            plan_of_dedup(
                place_of(plan),
                source,
                output,
                job,
                encoding,
                store,
                removed,
                *bounds,
                stars,
                format,
            )
        )


def plan_build(
    plan: PathLike,
    source: Any,
    output: PathLike,
    *,
    text: Any = None,
    fingerprint: str | None = None,
    id: str | None = None,
    id_type: str = "auto",
    method: str | None = None,
    width: int | None = None,
    radius: int | None = None,
    fingerprinter: Any = None,
    by: str = "rows",
    shard_rows: int = SHARD_ROWS,
    design: str = "auto",
    storage: str = "hot",
    prefer: str = "balance",
    index_ids: bool = False,
    decimal: bool = False,
    signed: bool = False,
    encoding: str | None = None,
    html: bool | str = False,
    part_bytes: int | str | None = None,
    format: str | None = None,
) -> Plan:
    """Plan a build of a sharded store, which :func:`fpstore.open` opens as one.

    Parameters
    ----------
    plan : path-like
        A folder for the plan and the results of its tasks, or its URI.
    source : path, URI, or iterable of them
        Files of Parquet, JSON lines, CSV or TSV with a header, or folders of them; or files of raw
        numbers (.npy, .u64, .u32).
    output : path-like
        The folder of the sharded store, on a disk that all machines share.
    text, fingerprint, method, fingerprinter : optional
        As for :func:`fpstore.dedup`: the columns of texts and what makes their fingerprints, by
        default by simhash, or the column of fingerprints, by default "fingerprint". Neither is for
        raw numbers.
    id : str, optional
        The column of ids; by default, of fingerprints, "id" if there is such a column, and else row
        numbers, from 0 over all inputs.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes that of the column, and strings in delimited text.
    width, radius, design, storage, prefer, index_ids : optional
        As for :func:`fpstore.build`; the design by its name.
    by : {"rows", "prefix"}
        A shard has successive rows; or all fingerprints with the same leading bits, which takes a
        shuffle: the store is smaller, equal fingerprints come together, and a look-up of an id of a
        fingerprint asks one shard.
    shard_rows : int
        About how many rows a shard has. Look-ups take about as many times longer as there are
        shards.
    decimal, signed, encoding, html, format : optional
        As for :func:`fpstore.dedup`; a format is not for raw numbers.
    part_bytes : int or str, optional
        About how many bytes of input a task reads, as for :func:`plan_dedup`.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A column is missing or has a wrong type, or an argument is wrong.
    StoreExistsError
        The output has other files, or the folder of the plan holds another one.

    Examples
    --------
    >>> import fpstore, fpstore.tasks, numpy as np, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "crawl.npy", np.arange(1000, dtype=np.uint64) << np.uint64(40))
    >>> plan = fpstore.tasks.plan_build(folder / "plan", folder / "crawl.npy", folder / "crawl", by="prefix", shard_rows=500)
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()["shards"]
    2
    >>> with fpstore.open(folder / "crawl") as store:
    ...     store.probe(5 << 40, radius=0)
    [Match(fingerprint=5497558138880, distance=0, ids=[5])]
    """
    given = list(source) if is_iterable(source, str, Mapping) else [source]
    how = _projection(text, id, check_width(width or WORD_BITS), decimal, signed)
    likeness = Likeness(
        width=width,
        method="simhash"
        if method is None and text is not None and fingerprinter is None
        else method,
    )
    projection, maker = how, None
    if format is not None or not _are_raw(given, text, fingerprint):
        if text is None and method is None and fingerprinter is None:
            fingerprint = fingerprint or "fingerprint"
        projection, maker = columns_and_maker(how, text, fingerprint, likeness, fingerprinter, html)
    bits = projection.width.bits
    radius = (USUAL_RADIUS if maker is None else maker.usual_radius) if radius is None else radius
    options: dict[str, Any] = {
        "radius": check_radius(radius, bits),
        "width": bits,
        "design": design,
        "storage": storage,
        "prefer": prefer,
        "index_ids": index_ids,
    }
    Options(**options).checked()
    check_choice(by, ("rows", "prefix"), "by")
    check_choice(id_type, get_args(IdType), "id_type")
    bounds = check_whole(shard_rows, 1, 1 << 40, "shard_rows"), checked_part_bytes(part_bytes)
    return Plan(
        plan_of_build(
            place_of(plan),
            given,
            output,
            projection,
            maker,
            options,
            id_type,
            encoding,
            by,
            *bounds,
            format,
        )
    )


def plan_probe(
    plan: PathLike,
    store: Any,
    queries: Any,
    output: PathLike,
    *,
    text: Any = None,
    fingerprint: str | None = None,
    id: str | None = None,
    id_type: str = "auto",
    radius: int | None = None,
    limit: int | None = None,
    decimal: bool = False,
    signed: bool = False,
    encoding: str | None = None,
    html: bool | str = False,
    format: str = "parquet",
    part_bytes: int | str | None = None,
) -> Plan:
    """Plan a batch of probes.

    All queries against all shards of a store, by look-ups or by joins, whatever takes less time.

    Parameters
    ----------
    plan : path-like
        A folder for the plan and the results of its tasks, or its URI.
    store : Store or path-like
        A store, most often a sharded one, on a disk that all machines share. Tasks open it by its
        path.
    queries : path, URI, or iterable of them
        As the source of :func:`plan_build`.
    output : path-like
        A new folder, or its URI, for a file of matches for each part of the queries: ``row`` (of
        the query, from 0 over all inputs), ``query_id`` with `id`, ``query``, ``fingerprint``,
        ``distance`` and ``id``, as ``fpstore probe`` writes them.
    text : str or sequence of str, optional
        The columns of texts, which are hashed as the store hashed its own.
    fingerprint, id, id_type, decimal, signed, encoding, html : optional
        As for :func:`plan_build`.
    radius : int, optional
        By default the store's.
    limit : int, optional
        At most so many fingerprints for each query, the nearest; then a column ``more`` is 1 where
        others were left out.
    format : {"parquet", "tsv", "csv", "jsonl"}
        Of the files.
    part_bytes : int or str, optional
        About how many bytes of queries a task asks, as for :func:`plan_dedup`.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        An argument is wrong, or the queries do not fit the store.
    StoreExistsError
        The output has files, or the folder of the plan holds another one.

    Examples
    --------
    >>> import fpstore, fpstore.tasks, numpy as np, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fpstore.build(folder / "crawl.fps", [8, 11, 1 << 40], ["a", "b", "c"]).close()
    >>> np.save(folder / "queries.npy", np.array([9, 1], np.uint64))
    >>> plan = fpstore.tasks.plan_probe(
    ...     folder / "plan", folder / "crawl.fps", folder / "queries.npy", folder / "found", radius=1, format="csv"
    ... )
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()
    {'queries': 2, 'matched': 1, 'matches': 2}
    >>> (folder / "found" / "matches-00000.csv").read_text().split()
    ['0,0000000000000009,0000000000000008,1,a', '0,0000000000000009,000000000000000b,1,b']
    """
    given = list(queries) if is_iterable(queries, str, Mapping) else [queries]
    with _opened(store) as opened:
        made = (
            described_fingerprinter(opened.fingerprinter)
            if text is not None and opened.fingerprinter is not None
            else None
        )
        if text is not None and made is None:
            raise InputError(
                f"{opened.path}: does not know how its fingerprints were made, so it takes no texts"
            )
        how = _projection(text, id, Width(opened.width), decimal, signed)
        projection, maker = how, None
        if not _are_raw(given, text, fingerprint):
            fingerprint = (fingerprint or "fingerprint") if text is None else fingerprint
            projection, maker = columns_and_maker(how, text, fingerprint, Likeness(), made, html)
        radius = opened.radius if radius is None else check_radius(radius, opened.width)
        limit = None if limit is None else check_whole(limit, 1, 1 << 40, "limit")
        check_choice(id_type, get_args(IdType), "id_type")
        asked = (
            radius,
            limit,
            id_type,
            encoding,
            check_choice(format, FORMATS, "format"),
            checked_part_bytes(part_bytes),
        )
        return Plan(plan_of_probe(place_of(plan), opened, given, output, projection, maker, *asked))


def plan_pairs(
    plan: PathLike,
    store: Any,
    output: PathLike,
    *,
    radius: int | None = None,
    format: str = "parquet",
    slice_rows: int | None = None,
) -> Plan:
    """Plan the search for all pairs of a store.

    The same rows as of :meth:`fpstore.Store.pairs`, in many files.

    A task of the stage send reads the fingerprints of a shard, and writes them in the order of each
    table of the join. A task of the stage pairs reads a slice of a table of all shards.

    Parameters
    ----------
    plan : path-like
        A folder for the plan and the results of its tasks, or its URI.
    store : Store or path-like
        A store, most often a sharded one, on a disk that all machines share.
    output : path-like
        A new folder, or its URI, for files of pairs: ``a``, ``b``, ``distance``, ``id_a`` and
        ``id_b``. A pair is in one file.
    radius : int, optional
        By default the store's.
    format : {"parquet", "tsv", "csv", "jsonl"}
        Of the files.
    slice_rows : int, optional
        About how many fingerprints a task sorts and compares. By default 4 million, or more if
        there were more than 512 slices of a table.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        An argument is wrong.
    StoreExistsError
        The output has files, or the folder of the plan holds another one.

    Examples
    --------
    >>> import fpstore, fpstore.tasks, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fpstore.build(folder / "crawl.fps", [8, 11, 7 << 40], ["a", "b", "c"]).close()
    >>> plan = fpstore.tasks.plan_pairs(folder / "plan", folder / "crawl.fps", folder / "pairs", radius=2)
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()
    {'pairs': 1}
    """
    with _opened(store) as opened:
        return _plan_pairs(plan, [opened], output, radius, format, slice_rows)


def plan_join(
    plan: PathLike,
    store: Any,
    other: Any,
    output: PathLike,
    *,
    radius: int | None = None,
    format: str = "parquet",
    slice_rows: int | None = None,
) -> Plan:
    """Plan the search for all pairs of two stores.

    The same rows as of :meth:`fpstore.Store.join`, in many files.

    Parameters
    ----------
    plan, store, radius, format, slice_rows : optional
        As for :func:`plan_pairs`.
    other : Store or path-like
        The other store, of the same width.
    output : path-like
        As for :func:`plan_pairs`: ``a`` and ``id_a`` are of the store, ``b`` and ``id_b`` of the
        other one.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        An argument is wrong, or the stores have fingerprints of different widths.
    StoreExistsError
        The output has files, or the folder of the plan holds another one.

    Examples
    --------
    >>> import fpstore, fpstore.tasks, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> fpstore.build(folder / "crawl.fps", [8, 7 << 40], ["a", "b"]).close()
    >>> fpstore.build(folder / "new.fps", [8, 11], ["c", "d"]).close()
    >>> plan = fpstore.tasks.plan_join(folder / "plan", folder / "crawl.fps", folder / "new.fps", folder / "pairs", format="csv")
    >>> _ = [plan.run(index) for index in range(len(plan))]
    >>> plan.finish()
    {'pairs': 2}
    >>> sorted((folder / "pairs" / "pairs-00000.csv").read_text().split())
    ['0000000000000008,0000000000000008,0,a,c', '0000000000000008,000000000000000b,2,a,d']
    """
    with _opened(store) as opened, _opened(other) as another:
        return _plan_pairs(plan, [opened, another], output, radius, format, slice_rows)


def _plan_pairs(
    plan: PathLike,
    stores: Sequence[Store],
    output: PathLike,
    radius: int | None,
    form: str,
    slice_rows: int | None,
) -> Plan:
    radius = stores[0].radius if radius is None else check_radius(radius, stores[0].width)
    slice_rows = None if slice_rows is None else check_whole(slice_rows, 1, 1 << 40, "slice_rows")
    return Plan(
        plan_of_pairs(
            place_of(plan),
            stores,
            output,
            radius,
            check_choice(form, FORMATS, "format"),
            slice_rows,
        )
    )


def _opened(store: Any) -> AbstractContextManager[Store]:
    """Return a context of a store that is open, or of one that is opened by its path."""
    return nullcontext(store) if isinstance(store, Store) else open_store(store)


def _projection(
    text: Any, ids: str | None, width: Width, decimal: bool, signed: bool
) -> Projection:
    """Return how ids and fingerprints are read.

    Without texts, "id" is the column of ids, if there is one.
    """
    optional = text is None and ids is None
    return Projection(
        id="id" if optional else ids,
        width=width,
        decimal=decimal,
        signed=signed,
        optional_id=optional,
    )


def _are_raw(given: Sequence[Any], text: Any, fingerprint: str | None) -> bool:
    """Return whether inputs are files of raw numbers."""
    return (
        text is None
        and fingerprint is None
        and all(isinstance(one, str | os.PathLike) and is_raw(one) for one in given)
    )
