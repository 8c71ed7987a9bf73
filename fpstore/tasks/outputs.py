"""What a plan writes for its user: files that appear one by one, and a manifest that appears last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from fpstore.base.width import WIDTHS
from fpstore.errors import InputError, StoreExistsError
from fpstore.io import open_writer
from fpstore.tasks.inputs import FIELD_SUFFIXES, InputSpec, place_and_name
from fpstore.tasks.places import Place, full_uri, place_of

MANIFEST = "_fpstore.json"  # Spark, Arrow and fpstore pass over names that begin so


class Output(NamedTuple):
    """Where the rows go: a folder for files of the names of the inputs, or one file; and the list of removed rows, if any."""

    uri: str
    is_file: bool
    removed: str | None = None

    @property
    def place(self) -> Place:
        """The folder that is written to."""
        return place_and_name(self.uri)[0] if self.is_file else place_of(self.uri)

    def name_of(self, spec: InputSpec) -> str:
        """Return the name of the file with the rows of an input."""
        return place_and_name(self.uri)[1] if self.is_file else spec.name

    def claim(self, digest: str) -> None:
        """Note in an output folder whose it is; StoreExistsError if it is another plan's, or has other files."""
        place = self.place
        if self.is_file:
            name = place_and_name(self.uri)[1]
            if place.size(name) is not None:
                raise StoreExistsError(f"{self.uri} exists: name another output, or remove it", path=self.uri)
            return
        if place.size(MANIFEST) is None and place.names():
            raise StoreExistsError(f"{self.uri} exists, and has files: name a new folder", path=self.uri)
        self.check(json.loads(place.publish(MANIFEST, _manifest(digest, False))), digest)

    def check(self, manifest: Mapping[str, Any], digest: str) -> None:
        """Raise StoreExistsError for the output of another plan."""
        if manifest.get("plan") != digest:
            message = f"{self.uri}: is the output of another plan: name a new folder"
            raise StoreExistsError(message, path=self.uri, expected=digest, got=manifest.get("plan"))

    @contextmanager
    def writing(self, spec: InputSpec, digest: str) -> Iterator[Path]:
        """Yield the path of a new file for the rows of an input."""
        if not self.is_file:
            self.check(json.loads(self.place.read_all(MANIFEST)), digest)
        with self.place.writing(self.name_of(spec)) as path:
            yield path

    def finish(
        self, inputs: Iterable[InputSpec], digest: str, removed: Iterable[Mapping[str, Any]], columns: tuple[str, ...],
        summary: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Check that all files are there, write the list of removed rows, and the manifest last."""
        missing = [self.name_of(spec) for spec in inputs if self.place.size(self.name_of(spec)) is None]
        if missing:
            where = self.place.shown(missing[0])
            raise InputError(f"{where}: was written, and is gone: remove the results of the stage copy, and run it again")
        if self.removed is not None:
            place, name = place_and_name(self.removed)
            with place.writing(name) as path, open_writer(path, columns=columns, width=WIDTHS[-1]) as writer:
                for batch in removed:
                    writer.write(batch)
        self.complete(digest, summary)

    def complete(self, digest: str, summary: Mapping[str, Any]) -> None:
        """Write the manifest of a folder, when all else is there."""
        if not self.is_file:
            self.place.replace(MANIFEST, _manifest(digest, True, **summary))


def output_folder(output: str | os.PathLike[str]) -> Output:
    """Return a folder for files that are not named after inputs."""
    return Output(full_uri(output, "output"), False)


def output_of(output: str | os.PathLike[str], inputs: Sequence[InputSpec], removed: str | os.PathLike[str] | None) -> Output:
    """Return where the rows go; InputError for a file of another format, or of several inputs."""
    uri = full_uri(output, "output")
    suffix = PurePosixPath(uri).suffix.lower()
    is_file = suffix in FIELD_SUFFIXES
    if is_file and len(inputs) > 1:
        raise InputError(f"{uri}: the rows of several files go to a folder: name one without {suffix}", path=uri)
    if is_file and suffix != PurePosixPath(inputs[0].name).suffix.lower():
        raise InputError(f"{uri}: a plan copies rows in the format of the input, {inputs[0].name}", path=uri)
    return Output(uri, is_file, None if removed is None else full_uri(removed, "removed"))


def _manifest(digest: str, complete: bool, **summary: Any) -> bytes:
    return json.dumps({"plan": digest, "complete": complete, **summary}, indent=1).encode()
