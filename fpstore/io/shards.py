"""Corpora of many files.

The kept rows of each file go to a file of the same name in a new folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from fpstore.base.aliases import Words
from fpstore.base.arguments import printable
from fpstore.base.arrays import list_lims
from fpstore.base.pools import Pool
from fpstore.base.resources import Resources
from fpstore.disk.folders import new_folder, sync_folder
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import InputError, plural
from fpstore.io.lines import LineRows
from fpstore.io.parquet import ParquetRows
from fpstore.io.row_copy import RowCopy
from fpstore.io.sink import Complete
from fpstore.io.source import RowSource

Shards = LineRows | ParquetRows
SHARD_MEMORY = 1 << 27  # for each thread that copies a shard of Parquet


def relative_path(sources: Sequence[Path], path: Path) -> Path:
    """Return the path of a file relative to its source folder.

    If there are several sources, it begins with the name of the folder.
    """
    for top in sources:
        if path.is_relative_to(top):
            inside = path.relative_to(top)
            return (
                inside if len(sources) == 1 and inside.parts else Path(top.resolve().name) / inside
            )
    raise InputError(f"{printable(path)}: is in none of the folders", path=path)


def shard_places(corpus: Shards) -> list[Path]:
    """Return the place of each file in the new folder; InputError if two collide."""
    paths: dict[Path, str] = {}
    for path in corpus.paths:
        place = relative_path(corpus.source_paths, Path(path))
        if place in paths:
            both = f"{printable(paths[place])} and {printable(path)}"
            raise InputError(
                f"{both} would both be written to {printable(place)}: name a folder above them, "
                "or rename one"
            )
        paths[place] = path
    return list(paths)


class ShardNames:
    """The name of the file of each row, for lists.

    It is the path in the folder of the inputs, behind the name of that folder if there are several
    inputs; of a file that is an input, its name. If two files would share a name, all have the
    paths by which they are read. Rows of a table have no name, and files that are texts have none
    beside their ids, which are their paths.
    """

    def __init__(self, names: Sequence[str], rows_of_files: Sequence[int]) -> None:
        """Take the names of files, and how many of all rows each of them has, in order."""
        self._names, self._ends = [*names, ""], np.cumsum([0, *rows_of_files])[1:]

    @classmethod
    def of_corpus(cls, corpus: RowSource) -> Self:
        """Return the names of the files of a corpus that has been read."""
        if not isinstance(corpus, Shards):
            return cls([], [])
        names = [
            shard_name(relative_path(corpus.source_paths, Path(path))) for path in corpus.paths
        ]
        if len(set(names)) < len(names):
            names = list(corpus.names)
        return cls(names, corpus.rows_of_files)

    def at(self, rows: Words) -> list[str]:
        """Return the name of the file of each row, by row numbers."""
        places = np.searchsorted(self._ends, rows, side="right")
        return [self._names[place] for place in places.tolist()]


def shard_name(path: str | os.PathLike[str]) -> str:
    r"""Return a path as a list has it: a control, or a byte that is not UTF-8, reads ``\xff``."""
    return printable(Path(path).as_posix())


def copy_shards(
    corpus: Shards,
    copy: RowCopy,
    target: Path,
    resources: Resources,
    complete: Complete | None = None,
) -> None:
    """Copy rows to a new folder, which replaces one of the same name; threads copy a file each."""
    places, counts = shard_places(corpus), corpus.rows_of_files
    if sum(counts) != copy.count:
        raise InputError(
            f"{corpus.label}: changed while it was read: {plural(copy.count, 'row')} before, "
            f"{sum(counts):,} now"
        )
    lims, stopped, lock, copied = list_lims(counts).tolist(), list[bool](), threading.Lock(), 0
    corpus.bytes_done = 0

    def copy_one(folder: Path, number: int, place: Path) -> None:
        source, rows_before, bytes_before = corpus.single_file(number), 0, 0

        def progress(_: str, rows: int, __: int | None) -> None:
            nonlocal rows_before, bytes_before, copied
            if stopped:
                raise InterruptedError("another shard could not be copied")
            with lock:  # these threads get no interrupts
                copied += rows - rows_before
                corpus.bytes_done += source.bytes_done - bytes_before
                rows_before, bytes_before = rows, source.bytes_done
                resources.report("copying", copied, copy.count)

        with translate_refusals(target):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
        copy.write(source, slice(lims[number], lims[number + 1]), folder / place, progress)

    corpus.check_unchanged()
    threads = max(min(resources.threads, len(places), resources.memory // SHARD_MEMORY), 1)
    with translate_refusals(target), new_folder(target, complete) as folder:
        with Pool(threads) as pool:
            try:
                jobs = [
                    pool.submit(copy_one, folder, number, place)
                    for number, place in enumerate(places)
                ]
                for job in jobs:
                    job.result()
            except BaseException:
                stopped.append(True)
                raise
        corpus.check_unchanged()
        for parent in {(folder / place).parent for place in places}:
            sync_folder(parent)
