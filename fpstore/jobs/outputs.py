"""The outputs of a job over a corpus: the kept rows, and lists, which appear together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_path, is_uri, printable
from fpstore.base.keywords import keyword
from fpstore.base.resources import Resources
from fpstore.errors import InputError, StorageError, StoreExistsError
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.datasets import INFO, STATE, DatasetRows
from fpstore.io.edited import Edit, EditedRows
from fpstore.io.extended import ExtendedRows, NewColumn, NewColumns, check_new_columns
from fpstore.io.files import PACKED, is_hidden
from fpstore.io.parquet import ParquetRows, TableRows
from fpstore.io.remote import RemoteFile, ScratchFolder
from fpstore.io.row_copy import KeptRows, RowCopy
from fpstore.io.shards import SHARD_MEMORY, Shards, copy_shards, shard_places
from fpstore.io.sink import Complete
from fpstore.io.source import SUFFIXES, RowSource, format_by_name, format_suffix
from fpstore.io.writers import Writer, forbidden_characters
from fpstore.work.checkpoint import Checkpoint, is_output

# of an output: a list, a file of rows, a folder of shards, of texts, or of a dataset
OutputKind = Literal["list", "rows", "shards", "texts", "dataset"]
# files that other programs, and plans, write beside rows
_MARKS = frozenset((".DS_Store", "_SUCCESS", "_metadata", "_common_metadata", "_fpstore.json"))


def check_outside(corpus: RowSource, path: Path) -> Path:
    """Return a path to write to; InputError if it is in a folder of the corpus.

    The next run would read it there.
    """
    for folder in corpus.folders:
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{printable(path)}: is in {printable(folder)}, and the next run would read it: "
                "name a place outside",
                path=path,
            )
    return path


def share_a_file(corpus: RowSource, other: RowSource) -> bool:
    """Return whether a file is in both sources, also under two names."""
    files = [
        {(state.st_dev, state.st_ino) for state in map(os.stat, source.paths)}
        for source in (corpus, other)
    ]
    return bool(files[0] & files[1])


def output_kind(output: str | os.PathLike[str], corpus: RowSource) -> OutputKind:
    """Return the kind of an output.

    "shards" for an existing folder, or for many files without a name of one file.
    """
    if isinstance(corpus, DocumentFiles):
        return "texts"
    if isinstance(corpus, DatasetRows) and format_by_name(output) != "parquet":
        return "dataset"
    if not isinstance(corpus, Shards):
        return "rows"
    path, name = check_path(output, "output"), os.fspath(output)
    is_file = path.suffix.lower() in (*SUFFIXES, *PACKED)
    return (
        "shards"
        if path.is_dir()
        or str(name).endswith(os.sep)
        or (_has_many_sources(corpus) and not is_file)
        else "rows"
    )


def _has_many_sources(corpus: RowSource) -> bool:
    return isinstance(corpus, Shards) and (len(corpus.source_paths) > 1 or bool(corpus.folders))


def check_output(
    output: str | os.PathLike[str],
    corpus: RowSource,
    overwrite: bool,
    kind: OutputKind,
    *,
    folder: Path | None = None,
    other_sources: Sequence[RowSource] = (),
) -> Path:
    """Return the path to write to.

    An error if it exists, is an input of the corpus or ``other_sources``, or has the name of
    another format. It may exist if the resumed job of ``folder`` has written it.
    """
    path = check_path(output, "output")
    inputs = [name for source in (corpus, *other_sources) for name in source.paths]
    if path.is_file() and any(path.samefile(name) for name in inputs if Path(name).exists()):
        raise InputError(f"{printable(output)} is an input: name another output", path=path)
    for source in (corpus, *other_sources):
        check_outside(source, path)
    is_own = is_output(folder, path)
    if kind in ("shards", "texts", "dataset"):
        _check_folder(path, corpus, inputs, overwrite and kind != "texts", is_own)
    elif path.exists() and not (is_own or overwrite):
        state = ", the output, exists" if kind == "rows" else " exists"
        raise StoreExistsError(
            f"{printable(output)}{state}: {keyword('overwrite', True)} replaces it", path=path
        )
    if kind == "rows" and corpus.suffix is not None:
        _check_format(path, corpus, corpus.suffix)
    if not path.parent.is_dir():
        raise StorageError(f"{printable(path.parent)}: no such folder", path=path)
    return path


def _check_format(path: Path, corpus: RowSource, suffix: str) -> None:
    """Raise InputError unless the output has a name of the input's format."""
    if format_suffix(path) != suffix:
        folder = " or a new folder, whose name ends with /" if isinstance(corpus, Shards) else ""
        raise InputError(
            f"{printable(path)}: the output has the format of the input: name a {suffix} file"
            f"{folder}",
            path=path,
        )
    if isinstance(corpus, ParquetRows):
        corpus.check_schemas()


def _check_folder(
    path: Path, corpus: RowSource, inputs: Sequence[str], may_replace: bool, is_own: bool
) -> None:
    """Raise an error for a folder that cannot be written.

    A folder to replace may hold only files like the new ones.
    """
    if isinstance(corpus, Shards):
        shard_places(corpus)
    elif isinstance(corpus, DocumentFiles):
        corpus.check_names()
    name, top = printable(path), path.resolve()
    if top == Path.cwd():
        raise InputError(f"{name}: is the current folder: name a new one", path=path)
    inner = next((file for file in inputs if Path(file).resolve().is_relative_to(top)), None)
    if inner is not None:
        raise InputError(
            f"{name}: {printable(inner)} is an input in it: name another output", path=path
        )
    if not path.exists() or is_own or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise StoreExistsError(
            f"{name} exists, and is no folder: files are written to a new folder", path=path
        )
    if not may_replace:
        advice = (
            f"{keyword('overwrite', True)} replaces it"
            if corpus.suffix is not None
            else "texts are copied to a new folder"
        )
        raise StoreExistsError(f"{name} exists: {advice}", path=path)
    same = {path / place for place in shard_places(corpus)} if isinstance(corpus, Shards) else set()
    suffix = ".arrow" if isinstance(corpus, DatasetRows) else corpus.suffix
    if isinstance(corpus, DatasetRows):
        same = {path / STATE, path / INFO}

    def is_alike(file: Path) -> bool:
        is_mark = file.name in _MARKS or (is_hidden(file.name) and file.suffix == ".crc")
        return not file.is_symlink() and (
            file.is_dir() or is_mark or file in same or format_suffix(file) == suffix
        )

    other = next((file for file in path.rglob("*") if not is_alike(file)), None)
    if other is not None:
        raise StoreExistsError(
            f"{name}: {printable(other)} is no {suffix} file: name a new folder", path=path
        )


def _check_lists(paths: Sequence[Path], output: Path | None) -> None:
    """Raise InputError for a list that is the output, in it, or another list."""
    places = [path.resolve() for path in paths]
    for number, (path, place) in enumerate(zip(paths, places, strict=True)):
        if place in places[:number]:
            raise InputError(
                f"{printable(path)}: two lists have this name: name another file for one", path=path
            )
        if output is not None and place.is_relative_to(output.resolve()):
            where = "is the output, too" if place == output.resolve() else "is in the output"
            raise InputError(
                f"{printable(path)}: {where}: name another file for the list", path=path
            )


class Listing(NamedTuple):
    """A file for rows of a result: its path, the function that opens it, and its batches."""

    path: str
    open_writer: Callable[[str], Writer]
    rows: Callable[[Any], Iterable[Mapping[str, Any]]]


class RemoteOutputs:
    """Outputs that URIs name: written to a temporary folder, and copied from there at the end."""

    def __init__(self, sources: Sequence[RowSource], overwrite: bool, folder: Path | None) -> None:
        self._inputs = [
            uri for source in sources if source.copies is not None for uri in source.copies.uris
        ]
        self._overwrite, self._is_resumed = overwrite, folder is not None
        self._targets = dict[Path, RemoteFile]()
        self._scratch: ScratchFolder | None = None

    def local(self, output: str | os.PathLike[str], corpus: RowSource | None = None) -> str:
        """Return a path on a disk for an output; ``corpus`` has the rows that it is for.

        InputError or StoreExistsError for a URI that cannot be written.
        """
        uri = os.fspath(output)
        if not is_uri(uri):
            return uri
        if uri in self._inputs:
            raise InputError(f"{uri} is an input: name another output", path=uri)
        if self._is_resumed:
            raise InputError(f"{uri}: {keyword('resume')} is for outputs on a disk", path=uri)
        inside = next(
            (name for name in self._inputs if f"{uri}/".startswith(f"{name.rstrip('/')}/")), None
        )
        if inside is not None:
            raise InputError(
                f"{uri}: is in {inside}, and the next run would read it: name a place outside",
                path=uri,
            )
        remote = RemoteFile(uri.rstrip("/"))
        is_file = remote.is_file()
        if is_file and not self._overwrite:
            raise StoreExistsError(
                f"{uri} exists: {keyword('overwrite', True)} replaces it", path=uri
            )
        if not is_file and remote.names():
            raise StoreExistsError(
                f"{uri} exists, and has files, which are not replaced there: name a new folder",
                path=uri,
            )
        self._scratch = self._scratch or ScratchFolder()
        path = self._scratch.path / str(len(self._targets)) / PurePosixPath(uri).name
        path.parent.mkdir()
        self._targets[path] = remote
        return f"{path}/" if uri.endswith("/") else str(path)

    def upload(self, paths: Iterable[Path | None]) -> None:
        """Copy what has been written to the places of the URIs, in order."""
        for path in paths:
            if path is None or path not in self._targets:
                continue
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if file.is_file():
                    name = "" if file == path else file.relative_to(path).as_posix()
                    self._targets[path].upload(file, name)


class Outputs:
    """The file or folder of the kept rows, if there is one, and lists.

    An error of a path comes before the work.
    """

    def __init__(
        self,
        corpus: RowSource,
        output: str | os.PathLike[str] | None,
        listings: Sequence[Listing],
        overwrite: bool,
        folder: Path | None = None,
        other_sources: Sequence[RowSource] = (),
    ) -> None:
        """Check the paths; ``folder`` has the checkpoint, ``other_sources`` are read, too."""
        self._corpus, self._folder = corpus, folder
        self._remote = RemoteOutputs((corpus, *other_sources), overwrite, folder)
        output = None if output is None else self._remote.local(output, corpus)
        listings = [listing._replace(path=self._remote.local(listing.path)) for listing in listings]
        self._listings = listings
        check = partial(
            check_output,
            corpus=corpus,
            overwrite=overwrite,
            folder=folder,
            other_sources=other_sources,
        )
        self._kind = None if output is None else output_kind(output, corpus)
        self.target = (
            None if output is None or self._kind is None else check(output, kind=self._kind)
        )
        _check_lists([Path(listing.path) for listing in listings], self.target)
        self._paths = [check(listing.path, kind="list") for listing in listings]
        for listing, path in zip(listings, self._paths, strict=True):
            listing.open_writer(str(path)).abort()
        for source in (corpus, *other_sources):
            source.forbid_in_ids(
                "".join(forbidden_characters(format_by_name(path)) for path in self._paths)
            )

    @property
    def paths(self) -> list[Path]:
        """The paths of the output and the lists."""
        return [*([] if self.target is None else [self.target]), *self._paths]

    def open_lists(self, stack: ExitStack) -> None:
        """Open the lists, which an error of the stack removes unless they have appeared."""
        opened = zip(self._listings, self._paths, strict=True)
        self._writers = [
            stack.enter_context(listing.open_writer(str(path))) for listing, path in opened
        ]

    def write(
        self,
        result: Any,
        is_kept: Flags,
        resources: Resources,
        checkpoint: Checkpoint | None = None,
        new_columns: NewColumns | None = None,
    ) -> None:
        """Write the lists of a result, and copy the kept rows, or rows with new columns.

        A checkpoint notes the outputs.
        """
        self._write_lists(result, resources)

        def complete(written: Path) -> None:
            """Let the lists appear before the rows: rows that are there have complete lists."""
            self._note(checkpoint, self.target, written)
            self._close_lists(checkpoint)

        if self.target is None:
            self._close_lists(checkpoint)
        elif checkpoint is not None and is_output(self._folder, self.target):
            complete(self.target)  # a run that was killed has copied the rows
        elif new_columns is None:
            self._copy(KeptRows(is_kept), self.target, resources, complete)
        else:
            extended = ExtendedRows(self._corpus, new_columns, new_columns.flags)
            self._copy(extended, self.target, resources, complete)
        self._remote.upload([*self._paths, self.target])

    def _copy(self, copy: RowCopy, target: Path, resources: Resources, complete: Complete) -> None:
        """Copy the rows of the corpus to an output of its kind."""
        corpus, progress = self._corpus, resources.progress
        if isinstance(corpus, DocumentFiles):
            if isinstance(copy, EditedRows):
                corpus.copy_edited(copy.edit, target, complete)
            elif isinstance(copy, KeptRows):
                corpus.copy_kept(copy.flags, target, progress, complete)
        elif self._kind == "shards" and isinstance(corpus, Shards):
            copy_shards(corpus, copy, target, resources, complete)
        elif self._kind == "dataset" and isinstance(corpus, DatasetRows):
            corpus.copy_folder(copy, target, progress, complete)
        else:
            # each thread has a row group
            threads = max(min(resources.threads, resources.memory // SHARD_MEMORY), 1)
            copy.write(corpus, slice(0, copy.count), target, progress, complete, threads)

    def write_lists(
        self, result: Any, resources: Resources, checkpoint: Checkpoint | None = None
    ) -> None:
        """Write the lists of a result whose rows are not copied."""
        self._write_lists(result, resources)
        self._close_lists(checkpoint)
        self._remote.upload(self._paths)

    def _close_lists(self, checkpoint: Checkpoint | None) -> None:
        for path, writer in zip(self._paths, self._writers, strict=True):
            writer.close(partial(self._note, checkpoint, path))

    def _note(self, checkpoint: Checkpoint | None, name: Path | None, written: Path) -> None:
        if checkpoint is not None and name is not None:
            checkpoint.note_output(name, written)

    def check_new_columns(self, columns: Mapping[str, NewColumn]) -> None:
        """Raise InputError for new columns that the output cannot have."""
        check_new_columns(self._corpus, columns)
        if self._kind == "dataset":
            raise InputError(
                f"{self.target}: a folder of a dataset has no new columns: name a .parquet file",
                path=self.target,
            )

    def _write_lists(self, result: Any, resources: Resources) -> None:
        for listing, writer in zip(self._listings, self._writers, strict=True):
            for batch in listing.rows(result):
                resources.report("writing lists", writer.rows)
                writer.write(batch)

    def write_edited(self, edit: Edit, column: str, table: Any, resources: Resources) -> None:
        """Write the rows or the table with edited texts of a column, and the lists of the edit.

        Lists are written when all texts are edited, and appear before the rows do.
        """

        def complete(_: Path | None = None) -> None:
            self._write_lists(edit, resources)
            self._close_lists(None)

        if self.target is None:
            complete()
        elif table is not None:
            rows, kept = slice(0, table.num_rows), KeptRows(np.ones(table.num_rows, bool))
            kept.write(TableRows(table, again=True), rows, self.target, None, complete)
        else:
            self._copy(EditedRows(edit, column), self.target, resources, complete)
        self._remote.upload([*self._paths, self.target])
