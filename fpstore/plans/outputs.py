"""The output of a plan: files that appear one by one, and a manifest that appears last."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fpstore.base.threads import cached_property
from fpstore.errors import InputError, StoreExistsError, StoreNotFoundError
from fpstore.io.source import FIELD_FORMATS, LINE_FORMATS, format_by_name, format_suffix
from fpstore.plans.inputs import InputSpec, file_digest, place_and_name
from fpstore.work.folder import PlanFolder, Stage
from fpstore.work.pieces import Pieces
from fpstore.work.places import DiskPlace, Place, full_uri, is_inside, open_place

LISTS = (*LINE_FORMATS, "parquet")  # formats
FORMATS = ("parquet", "tsv", "csv", "jsonl")  # of files of matches and pairs
MANIFEST = "_fpstore.json"  # Spark, Arrow and fpstore pass over names that begin so


@dataclass(frozen=True)
class Output:
    """The place of the rows: a folder for files named as the inputs, or one file.

    ``removed`` is the file of the list of removed rows.
    """

    uri: str
    is_file: bool
    removed: str | None = None

    @cached_property
    def place(self) -> Place:
        """The folder of the output."""
        return place_and_name(self.uri)[0] if self.is_file else open_place(self.uri)

    def file_name(self, spec: InputSpec) -> str:
        """Return the name of the file with the rows of an input."""
        return place_and_name(self.uri)[1] if self.is_file else spec.name

    def create_plan(
        self, place: Place, kind: str, work: Mapping[str, Any], stages: Sequence[Stage]
    ) -> PlanFolder:
        """Write a plan, and note its digest in the folder of the output.

        StoreExistsError if the output belongs to another plan, or has other files; a new plan is
        then removed.
        """
        self._check_apart(place.uri)
        plan = PlanFolder.create(place, kind, work, stages)
        try:
            if plan.is_new:
                self._check_new()
            if not self.is_file:
                self._check(
                    self.place.publish(MANIFEST, _manifest(plan.digest, False)), plan.digest
                )
        except BaseException:
            if plan.is_new:
                plan.remove()
            raise
        return plan

    def _check_apart(self, plan: str) -> None:
        """Raise InputError if the output or the list is in the folder of the plan, or around it.

        That folder is removed at the end.
        """
        for uri in (self.uri, self.removed):
            if uri is not None and is_inside(uri, plan):
                raise InputError(
                    f"{uri}: is in the folder of the plan, which is removed at the end: name a "
                    "place outside",
                    path=uri,
                )
        if is_inside(plan, self.uri):
            raise InputError(
                f"{plan}: is in the output: name a place outside for the plan", path=plan
            )
        if self.removed is not None and is_inside(self.removed, self.uri):
            message = (
                f"{self.removed}: is the output, or in it: name another place for the list of "
                "removed rows"
            )
            raise InputError(message, path=self.removed)

    def _check_new(self) -> None:
        """Raise StoreExistsError for other files.

        If there is a manifest, it names the plan of the output.
        """
        if not self.is_file and self.place.size(MANIFEST) is not None:
            return
        for uri in (self.uri if self.is_file else None, self.removed):
            if uri is not None and file_exists(uri):
                raise StoreExistsError(f"{uri} exists: name another file, or remove it", path=uri)
        if not self.is_file and self.place.names():
            raise StoreExistsError(
                f"{self.uri} exists, and has files: name a new folder", path=self.uri
            )

    def _check(self, manifest: bytes, digest: str) -> None:
        """Raise StoreExistsError for the output of another plan."""
        got = None
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            got = json.loads(manifest)["plan"]
        if got != digest:
            message = f"{self.uri}: is the output of another plan: name a new folder"
            raise StoreExistsError(message, path=self.uri, expected=digest, got=got)

    @contextmanager
    def create_file(self, name: str, digest: str) -> Iterator[Path]:
        """Yield the path of a new file, which appears under its name at the end."""
        if not self.is_file:
            self._check(self.place.read_all(MANIFEST), digest)
        with _create_file(self.place, name) as path:
            yield path

    def describe_file(self, name: str) -> dict[str, Any]:
        """Return the name and the bytes of a new file, for the result of its task."""
        return {"name": name, "bytes": self.place.size(name)}

    def finish(
        self,
        results: Iterable[Pieces],
        digest: str,
        summary: Mapping[str, Any],
        write_list: Callable[[Path], None] | None = None,
    ) -> None:
        """Check the files of results, write the list, and the manifest of a folder last.

        What killed tasks have left beside the files is removed.
        """
        names = [file["name"] for result in results for file in self._check_files(result)]
        if self.removed is not None and write_list is not None:
            place, name = place_and_name(self.removed)
            with _create_file(place, name) as path:
                write_list(path)
        for name in {str(PurePosixPath(name).parent): name for name in names}.values():
            self.place.remove_unfinished(name)
        if not self.is_file:
            self.place.replace(MANIFEST, _manifest(digest, True, **summary))

    def is_finished(self, digest: str) -> bool:
        """Whether the last file of :meth:`finish` is there."""
        if self.is_file:
            return self.removed is None or file_exists(self.removed)
        with suppress(StoreNotFoundError, ValueError, TypeError, KeyError, RecursionError):
            manifest = json.loads(self.place.read_all(MANIFEST))
            return bool(manifest["plan"] == digest and manifest["complete"])
        return False

    def _check_files(self, result: Pieces) -> list[dict[str, Any]]:
        """Return the files of a result; InputError if one is gone, or has another length."""
        files: list[dict[str, Any]] = result.facts["files"]
        for file in files:
            size = self.place.size(file["name"])
            if size != file["bytes"]:
                reason = (
                    "is gone: remove" if size is None else "has another length now: remove it, and"
                )
                message = f"was written, and {reason} {result.name} in the plan, and run again"
                where = self.place.label(file["name"])
                raise InputError(
                    f"{where}: {message}", path=where, expected=file["bytes"], got=size
                )
        return files


@contextmanager
def _create_file(place: Place, name: str) -> Iterator[Path]:
    """Yield the path of a new file; StoreExistsError if its name belongs to other bytes."""
    with place.create_file(name) as path:
        yield path
        digest = file_digest(DiskPlace(path.parent), path.name)
    if file_digest(place, name) != digest:
        where = place.label(name)
        raise StoreExistsError(
            f"{where}: exists, and is not what the plan writes: remove it, and run again",
            path=where,
        )


def file_exists(uri: str) -> bool:
    """Whether a file, or on a disk anything else, has this name."""
    place, name = place_and_name(uri)
    return os.path.lexists(uri) if isinstance(place, DiskPlace) else place.size(name) is not None


def output_folder(output: str | os.PathLike[str]) -> Output:
    return Output(full_uri(output, "output"), False)


def choose_output(
    output: str | os.PathLike[str],
    inputs: Sequence[InputSpec],
    removed: str | os.PathLike[str] | None,
) -> Output:
    """Return the output for rows; InputError for another format, or one file of several inputs."""
    uri = full_uri(output, "output")
    is_file = format_by_name(uri) in FIELD_FORMATS
    if removed is not None and format_by_name(removed) not in LISTS:
        raise InputError(
            f"{os.fspath(removed)}: the list of removed rows is one of .{', .'.join(LISTS)}",
            path=removed,
        )
    if is_file and len(inputs) > 1:
        raise InputError(
            f"{uri}: the rows of several files go to a folder: name one, without an extension",
            path=uri,
        )
    if is_file and format_suffix(uri) != inputs[0].suffix:
        raise InputError(
            f"{uri}: a plan copies rows in the format of the input, {inputs[0].name}", path=uri
        )
    return Output(uri, is_file, None if removed is None else full_uri(removed, "removed"))


def _manifest(digest: str, complete: bool, **summary: Any) -> bytes:
    return json.dumps({"plan": digest, "complete": complete, **summary}, indent=1).encode()
