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
from fpstore.io.source import RowSource
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


def check_output(
    output: str | os.PathLike[str], corpus: RowSource, overwrite: bool, *, folder: Path | None = None, of_rows: bool = True
) -> Path:
    """Return the path to write to; an error if it exists, or is an input, or is to hold rows in another format.

    It may exist if the job of a folder, which is to be resumed, has made it.
    """
    path = check_path(output, "output")
    if path.is_file() and any(path.samefile(name) for name in corpus.paths if Path(name).exists()):
        raise InputError(f"{printable(output)} is an input: name another output", path=path)
    check_outside(corpus, path)
    made = was_made(folder, path)
    if of_rows and isinstance(corpus, DocumentFiles):
        corpus.check_names()
        if path.resolve() == Path.cwd():
            raise InputError(f"{printable(output)}: is the current folder: name a new one", path=path)
        if path.exists() and not made and (not path.is_dir() or any(path.iterdir())):
            raise StoreExistsError(f"{printable(output)} exists: texts are copied to a new folder", path=path)
    elif path.exists() and not (made or overwrite):
        raise StoreExistsError(f"{printable(output)} exists: overwrite=True (--force) replaces it", path=path)
    if of_rows and corpus.suffix is not None and path.suffix.lower() != corpus.suffix:
        raise InputError(f"{printable(output)}: rows are written as they were read: name a {corpus.suffix} file", path=path)
    if not path.parent.is_dir():
        raise StorageError(f"{printable(path.parent)}: no such folder", path=path)
    return path


class Listing(NamedTuple):
    """A file for some rows of the result: its path, what opens a writer for it, and the rows in batches."""

    path: str
    open_writer: Callable[[str], Writer]
    rows: Callable[[Any], Iterable[Mapping[str, Any]]]


class Outputs:
    """The file or folder of the rows that are kept, if there is one, and lists; an error of a path comes before the work."""

    def __init__(
        self, corpus: RowSource, output: str | os.PathLike[str] | None, listings: Sequence[Listing], overwrite: bool,
        folder: Path | None = None,
    ) -> None:  # fmt: skip
        """Check the paths; ``folder`` is the one of a checkpoint."""
        self._corpus, self._listings, self._folder = corpus, listings, folder
        self.target = None if output is None else check_output(output, corpus, overwrite, folder=folder)
        self._paths = [check_output(one.path, corpus, overwrite, folder=folder, of_rows=False) for one in listings]
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
        else:
            self._corpus.copy(kept, self.target, resources.progress, complete)
