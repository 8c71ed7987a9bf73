"""Building an LSH index."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from os import PathLike
from typing import Any

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_path
from fpstore.base.resources import make_resources
from fpstore.building.target import Target
from fpstore.errors import InputError
from fpstore.format.manifest import is_index
from fpstore.hashing.readers import HashingReader
from fpstore.hashing.sketcher import Sketcher
from fpstore.lsh.building import DocumentPieces, build_index
from fpstore.lsh.items import ItemSource, TextSource, choose_hasher
from fpstore.lsh.manifest import DOCUMENTS
from fpstore.lsh.plan import USUAL_RECALL, LshPlan, check_plan
from fpstore.lsh.plan import plan as make_plan
from fpstore.lsh.store import LshStore

# documents for which bands are planned where the number of items is not known
UNKNOWN_COUNT = 10_000_000


def build(
    path: str | PathLike[str],
    items: Iterable[Any],
    ids: Any = None,
    *,
    hasher: Any = None,
    threshold: float | None = None,
    recall: float | None = None,
    plan: LshPlan | None = None,
    index_ids: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> LshStore:
    """Build an LSH index of items, which are read once, and open it.

    It appears complete or not at all.

    Parameters
    ----------
    path : path-like
        The folder to create.
    items : iterable or reader
        Texts, vectors or what else the hasher takes. An empty one has no sketch, and is not in the
        index. Or a `fpstore.hashing.TextReader` or `DocumentReader`, which has ids too: rows of
        Parquet, JSON lines, CSV, tables, or files.
    ids : iterable, optional
        One per item: non-negative integers below 2^64, or non-empty strings. By default the place
        of the item.
    hasher : Sketcher
        What makes hash values of items, such as :class:`fpstore.MinHash`: a hasher that has a law.
        By default that of a reader.
    threshold : float
        The similarity at which documents are found with the probability ``recall``; for hashers of
        distances, the distance.
    recall : float, optional
        Between 0 and 1, by default 0.95. More similar documents are found more often.
    plan : LshPlan, optional
        What :func:`fpstore.lsh.plan` returned, in place of threshold and recall: for an index that
        will grow, planned for as many documents as it will have, since the length of keys never
        changes. Without it the bands are planned for as many documents as there are items, or for
        10 million if that is not known, or if there are none yet.
    index_ids : bool
        Index integer ids too, as strings always are: ``delete`` and ``upsert`` then take
        microseconds per id, not a pass over all.
    memory, threads, progress, overwrite : optional
        As for :func:`fpstore.build`.

    Returns
    -------
    LshStore
        Open for reading.

    Raises
    ------
    InputError
        An argument is wrong; no number of bands reaches the recall; an item is not of the hasher's
        kind, or there is not one id per item.
    StoreExistsError
        The path exists and ``overwrite`` is false, or it is not an index.
    StorageError
        The disk is full or not writable; nothing was changed.

    Examples
    --------
    >>> import fpstore, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "docs.lsh")
    >>> texts = ["it was the best of times it was the worst of times", "call me ishmael"]
    >>> ids = ["dickens", "melville"]
    >>> index = fpstore.lsh.build(path, texts, ids, hasher=fpstore.MinHash(), threshold=0.7)
    >>> index.probe("It was the best of times, it was the worst of times.")
    [Match(id='dickens', similarity=1.0)]

    Of a file, with its ids, in bounded memory:

    >>> import pathlib
    >>> from fpstore.hashing import TextReader
    >>> rows = pathlib.Path(tempfile.mkdtemp(), "rows.csv")
    >>> _ = rows.write_text("url,text" + chr(10) + "a.org," + texts[0] + chr(10))
    >>> reader = TextReader(rows, fpstore.MinHash(), text="text", id="url")
    >>> len(fpstore.lsh.build(path, reader, threshold=0.7, overwrite=True))
    1
    """
    target, overwrite = check_path(path), check_flag(overwrite, "overwrite")
    hasher = choose_hasher(hasher, items)
    if (threshold is None) == (plan is None) or (plan is not None and recall is not None):
        raise InputError(
            "give a threshold, and perhaps a recall, or plan= as fpstore.lsh.plan returns it"
        )
    if plan is not None:
        check_plan(plan, hasher)
        expected = plan.documents
    else:
        assert threshold is not None
        count = (
            items.input_rows
            if isinstance(items, HashingReader)
            else len(items)
            if isinstance(items, Sized)
            else None
        )
        plan = make_plan(
            count or UNKNOWN_COUNT, hasher, threshold, USUAL_RECALL if recall is None else recall
        )
        expected = UNKNOWN_COUNT if count == 0 else 0
    resources = make_resources(memory, threads, progress)
    if isinstance(items, HashingReader):
        items.limit_memory(resources.memory)
    pieces = DocumentPieces(
        _source(items, ids, hasher, (plan.bands, plan.rows), resources.threads), hasher, plan
    )
    with Target(target, overwrite, is_index, DOCUMENTS) as folder:
        build_index(folder, pieces, plan, expected, check_flag(index_ids, "index_ids"), resources)
    return LshStore(target, hasher=hasher)


def _source(
    items: Any, ids: Any, hasher: Sketcher[Any], bands: tuple[int, int], threads: int
) -> ItemSource | TextSource:
    if not isinstance(items, HashingReader):
        return ItemSource(items, ids, hasher, bands, threads)
    if ids is not None:
        raise InputError("ids come with the reader; do not pass them as well")
    return TextSource(items, hasher, bands)
