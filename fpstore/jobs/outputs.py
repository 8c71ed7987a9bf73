"""The outputs of a job over a corpus: the rows that are kept, and lists beside them, which appear together."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fpstore.base.aliases import Flags
from fpstore.base.arguments import check_path, printable
from fpstore.base.resources import Resources
from fpstore.errors import InputError, StorageError, StoreExistsError
from fpstore.hashing.documents import DocumentFiles
from fpstore.io.converted import TARGETS, check_conversion, copy_converted
from fpstore.io.files import PACKED
from fpstore.io.shards import Shards, copy_shards, places_of_shards
from fpstore.io.source import SUFFIXES, RowSource
from fpstore.io.writers import Writer
from fpstore.jobs.checkpoint import Checkpoint, was_made


def check_outside(corpus: RowSource, path: Path) -> Path:
    """Return a path to write to; InputError if it is in a folder of the corpus, whose files would be others then."""
    for folder in corpus.folders:
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{printable(path)}: is in {printable(folder)}, and the next run would read it: name a place outside", path=path
            )
    return path


def share_a_file(corpus: RowSource, other: RowSource) -> bool:
    """Whether a file is in both sources, also under two names."""
    files = [{(state.st_dev, state.st_ino) for state in map(os.stat, source.paths)} for source in (corpus, other)]
    return bool(files[0] & files[1])


def is_folder_of_shards(output: str | os.PathLike[str], corpus: RowSource) -> bool:
    """Whether the kept rows of each file go to a file of its own: into an existing folder, or if no format is named for many."""
    if not isinstance(corpus, Shards):
        return False
    path, named = Path(output), os.fspath(output)
    many = len(corpus.given) > 1 or bool(corpus.folders)
    of_file = path.suffix.lower() in (*SUFFIXES, *PACKED)
    return path.is_dir() or str(named).endswith(os.sep) or (many and not of_file)


def check_output(
    output: str | os.PathLike[str], corpus: RowSource, overwrite: bool, *, folder: Path | None = None, of_rows: bool = True,
    beside: Sequence[RowSource] = (),
) -> Path:  # fmt: skip
    """Return the path to write to; an error if it exists, or is an input, or is to hold rows in another format.

    Inputs are also the sources that are read ``beside`` the corpus. It may exist if the job of a folder, which is to be resumed,
    has made it.
    """
    path = check_path(output, "output")
    inputs = [name for source in (corpus, *beside) for name in source.paths]
    if path.is_file() and any(path.samefile(name) for name in inputs if Path(name).exists()):
        raise InputError(f"{printable(output)} is an input: name another output", path=path)
    for source in (corpus, *beside):
        check_outside(source, path)
    made = was_made(folder, path)
    shards = of_rows and is_folder_of_shards(output, corpus)
    if shards or (of_rows and isinstance(corpus, DocumentFiles)):
        _check_folder(path, corpus, inputs, overwrite and shards, made)
    elif path.exists() and not (made or overwrite):
        what = ", the output, exists" if of_rows else " exists"
        raise StoreExistsError(f"{printable(output)}{what}: overwrite=True (--force) replaces it", path=path)
    if of_rows and not shards and corpus.suffix is not None:
        suffix, known = path.suffix.lower(), TARGETS[corpus.suffix]
        if suffix not in known:
            advice = f"rows of {corpus.suffix} are written as {' or '.join(known)}, and the name of a new folder ends with /"
            raise InputError(f"{printable(output)}: {advice}", path=path)
        check_conversion(corpus, suffix)
    if not path.parent.is_dir():
        raise StorageError(f"{printable(path.parent)}: no such folder", path=path)
    return path


def _check_folder(path: Path, corpus: RowSource, inputs: Sequence[str], replaced: bool, made: bool) -> None:
    """Raise an error for a folder that cannot be written: one that is replaced may hold only files like the new ones."""
    if isinstance(corpus, Shards):
        places_of_shards(corpus)
    elif isinstance(corpus, DocumentFiles):
        corpus.check_names()
    name, top = printable(path), path.resolve()
    if top == Path.cwd():
        raise InputError(f"{name}: is the current folder: name a new one", path=path)
    within = next((one for one in inputs if Path(one).resolve().is_relative_to(top)), None)
    if within is not None:
        raise InputError(f"{name}: {printable(within)} is an input in it: name another output", path=path)
    if not path.exists() or made or (path.is_dir() and not any(path.iterdir())):
        return
    if not path.is_dir():
        raise StoreExistsError(f"{name} exists, and is no folder: files are written to a new folder", path=path)
    if not replaced:
        advice = "overwrite=True (--force) replaces it" if corpus.suffix is not None else "texts are copied to a new folder"
        raise StoreExistsError(f"{name} exists: {advice}", path=path)
    other = next((one for one in path.rglob("*") if one.is_symlink() or not (one.is_dir() or one.suffix == corpus.suffix)), None)
    if other is not None:
        raise StoreExistsError(f"{name}: {printable(other)} is no {corpus.suffix} file: name a new folder", path=path)


class Listing(NamedTuple):
    """A file for some rows of the result: its path, what opens a writer for it, and the rows in batches."""

    path: str
    open_writer: Callable[[str], Writer]
    rows: Callable[[Any], Iterable[Mapping[str, Any]]]


class Outputs:
    """The file or folder of the rows that are kept, if there is one, and lists; an error of a path comes before the work."""

    def __init__(
        self, corpus: RowSource, output: str | os.PathLike[str] | None, listings: Sequence[Listing], overwrite: bool,
        folder: Path | None = None, beside: Sequence[RowSource] = (),
    ) -> None:  # fmt: skip
        """Check the paths; ``folder`` is the one of a checkpoint, and other sources are read ``beside`` the corpus."""
        self._corpus, self._listings, self._folder = corpus, listings, folder
        check = partial(check_output, corpus=corpus, overwrite=overwrite, folder=folder, beside=beside)
        self.target = None if output is None else check(output)
        self._to_shards = output is not None and is_folder_of_shards(output, corpus)
        self._paths = [check(one.path, of_rows=False) for one in listings]
        for one, path in zip(listings, self._paths, strict=True):
            one.open_writer(str(path)).abort()

    def open_lists(self, stack: ExitStack) -> None:
        """Open the lists; if the stack ends with an error, nothing is left of what has not appeared."""
        opened = zip(self._listings, self._paths, strict=True)
        self._writers = [stack.enter_context(one.open_writer(str(path))) for one, path in opened]

    def write(self, found: Any, kept: Flags, resources: Resources, checkpoint: Checkpoint | None = None) -> None:
        """Write the lists of a result, and copy the rows that are kept; a checkpoint notes what has appeared."""
        for one, writer in zip(self._listings, self._writers, strict=True):
            for batch in one.rows(found):
                resources.report("writing lists", writer.rows)
                writer.write(batch)

        def note(name: Path | None, written: Path) -> None:
            if checkpoint is not None and name is not None:
                checkpoint.note_output(name, written)

        def complete(written: Path) -> None:
            """Let the lists appear before the rows do: when the rows are there, the lists are complete."""
            note(self.target, written)
            for path, writer in zip(self._paths, self._writers, strict=True):
                writer.close(partial(note, path))

        if self.target is None:
            return
        if checkpoint is not None and was_made(self._folder, self.target):
            complete(self.target)  # a run that was killed has copied the rows
        elif self._to_shards and isinstance(self._corpus, Shards):
            copy_shards(self._corpus, kept, self.target, resources, complete)
        elif self._corpus.suffix not in (None, self.target.suffix.lower()):
            copy_converted(self._corpus, kept, self.target, resources.progress, complete)
        else:
            self._corpus.copy(kept, self.target, resources.progress, complete)
