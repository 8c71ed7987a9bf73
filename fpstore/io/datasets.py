"""Datasets of the package ``datasets``: objects, and the folders that ``save_to_disk`` writes.

A folder has files of Arrow streams, ``state.json`` with their names, and ``dataset_info.json``. A
folder of several splits has such folders, and ``dataset_dict.json``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.aliases import Flags, Progress
from fpstore.base.arguments import printable
from fpstore.disk.folders import new_folder
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import InputError
from fpstore.io.arrow import import_pyarrow
from fpstore.io.files import FileState, input_error, translate_storage_errors
from fpstore.io.parquet import TableRows, translate_parquet_errors
from fpstore.io.row_copy import RowCopy
from fpstore.io.sink import Complete

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
FILE_BYTES = 500 << 20  # of a file that is written, as by the package
_PACKAGE = "datasets"
_MOST_BYTES = 1 << 24  # of a description


def is_dataset_folder(path: str | Path) -> bool:
    """Whether a folder is one that ``save_to_disk`` has written, of one split or several."""
    path = Path(path)
    with translate_storage_errors(printable(path)):
        return (path / SPLITS).is_file() or ((path / STATE).is_file() and (path / INFO).is_file())


def split_folder(path: str | Path) -> Path:
    """Return the folder of the only split of a folder; InputError if there are several."""
    path = Path(path)
    if not (path / SPLITS).is_file():
        return path
    names = _read_json(path / SPLITS).get("splits")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise input_error(printable(path / SPLITS), None, "does not name the splits")
    return path / choose_split(names, printable(path), lambda name: printable(path / name))


def choose_split(names: list[str], source: str, show_choice: Callable[[str], str]) -> str:
    """Return the only name; InputError if there are several, or none."""
    if len(names) == 1:
        return names[0]
    advice = f": choose one, such as {show_choice(names[0])}" if names else ""
    listed = f" ({', '.join(names)})" if names else ""
    raise InputError(f"{source}: has {len(names)} splits{listed}{advice}")


def is_dataset(source: object) -> bool:
    """Whether an object is one of the package."""
    return type(source).__module__.partition(".")[0] == _PACKAGE


def dataset_of(source: Any) -> Any:
    """Return a ``Dataset``, of a ``DatasetDict`` the only split; InputError for other objects."""
    kind = type(source).__name__
    if kind == "DatasetDict":
        source = source[choose_split(list(source), f"the {kind}", lambda name: f"source[{name!r}]")]
        kind = type(source).__name__
    if not hasattr(source, "with_format") or not hasattr(source, "select"):
        raise InputError(
            f"rows are a datasets.Dataset, got {kind}, which is read as a stream: save it to "
            "Parquet or with save_to_disk first",
            got=kind,
        )
    return source


def dataset_table(dataset: Any) -> Any:
    """Return the rows of a ``Dataset`` as a table, in the order of its indices."""
    import_pyarrow("the dataset", "a dataset")
    return dataset.with_format("arrow")[:]


def _read_json(path: Path) -> dict[str, Any]:
    name = printable(path)
    with translate_storage_errors(name), path.open("rb") as file:
        data = file.read(_MOST_BYTES)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise input_error(name, None, f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise input_error(name, None, "expected a JSON object")
    return value


class DatasetRows(TableRows):
    """The rows of a folder of ``save_to_disk``, whose files are mapped into memory."""

    def __init__(self, folder: str | Path, again: bool = False) -> None:
        self.folder = split_folder(folder)
        self._arrow = import_pyarrow(printable(self.folder), "a dataset")
        self._state = _read_json(self.folder / STATE)
        files = self._state.get("_data_files")
        if not isinstance(files, list) or not files:
            raise input_error(printable(self.folder / STATE), None, "names no files")
        self.paths = [str(self._file(entry)) for entry in files]
        self._states = list(map(FileState.from_path, self.paths))
        super().__init__(self._arrow.concat_tables(list(self._tables())), again)
        self.names = [printable(self.folder)]

    def _file(self, entry: Any) -> Path:
        """Return the path of a file that the state names, which must be in the folder."""
        name = entry.get("filename") if isinstance(entry, dict) else None
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise input_error(printable(self.folder / STATE), None, "names a file elsewhere")
        return self.folder / name

    def _tables(self) -> Iterator[Any]:
        for path in self.paths:
            with self._errors(path), self._arrow.memory_map(path) as file:
                yield self._arrow.ipc.open_stream(file).read_all()

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        with translate_parquet_errors(self._arrow, printable(path), "Arrow"):
            yield

    def states(self) -> list[FileState]:
        return self._states

    def check_unchanged(self) -> None:
        """Raise InputError if a file is not the one that was there at first."""
        for before in self._states:
            if FileState.from_path(before.path) != before:
                raise input_error(printable(before.path), None, "changed while it was read")

    def select_rows(self, flags: Flags) -> Any:
        """Return the numbers of the rows whose flags are set, as of other files."""
        return np.flatnonzero(flags)

    def copy_folder(
        self,
        copy: RowCopy,
        target: Path,
        progress: Progress | None = None,
        complete: Complete | None = None,
    ) -> None:
        """Copy rows to a folder of the same kind, with the description of this one."""
        self.check_unchanged()
        batches = copy.batches(self, slice(0, copy.count), progress)
        with translate_refusals(target), new_folder(target, complete) as folder:
            files = self._write_files(batches, copy.schema(self), folder)
            digest = blake2b(str(self._state.get("_fingerprint")).encode(), digest_size=8)
            for number, path in enumerate(files):
                with path.open("rb") as file:
                    digest.update(file_digest(file, blake2b).digest())
                path.rename(folder / f"data-{number:05}-of-{len(files):05}.arrow")
            names = [f"data-{number:05}-of-{len(files):05}.arrow" for number in range(len(files))]
            state = {
                **self._state,
                "_data_files": [{"filename": name} for name in names],
                # caches of the package have the results of functions by it
                "_fingerprint": digest.hexdigest(),
            }
            (folder / STATE).write_text(json.dumps(state, indent=2, sort_keys=True))
            (folder / INFO).write_bytes((self.folder / INFO).read_bytes())
            self.check_unchanged()

    def _write_files(self, batches: Iterable[Any], schema: Any, folder: Path) -> list[Path]:
        """Write files of about FILE_BYTES, at least one."""
        files, left = [folder / "0"], iter(batches)
        batch = next(left, None)
        while True:
            with self._arrow.ipc.new_stream(str(files[-1]), schema) as writer:
                size = 0
                while batch is not None and size < FILE_BYTES:
                    writer.write_batch(batch)
                    size += batch.nbytes
                    batch = next(left, None)
            if batch is None:
                return files
            files.append(folder / str(len(files)))
