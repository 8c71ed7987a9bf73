"""An LSH index by tasks.

Texts are hashed part by part, and one task makes the index of what they become.

Stages: *hash* makes rows of documents, keys of bands and ids of a part of the inputs; *build* reads
them in order, and writes the index. An index has at most 2^32 documents, and hashing takes most of
the time: of texts of 1,500 words nine tenths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StoreExistsError,
    StoreNotFoundError,
)
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.corpora import hashed_rows
from fpstore.hashing.html import MainText
from fpstore.hashing.registry import from_description
from fpstore.io.reader import cut_batches
from fpstore.io.source import Batch, IdRule, Projection, mixed_ids
from fpstore.lsh import LshPlan, LshStore
from fpstore.lsh.building import DocumentPieces, build_index
from fpstore.lsh.given import Given, given_of, rows_of_piece, rows_with_keys
from fpstore.lsh.manifest import DOCUMENTS, KEYS, read_index_manifest
from fpstore.tasks.asked import projection_asked, projection_in
from fpstore.tasks.inputs import InputSpec, opened_part, parts_of
from fpstore.tasks.outputs import Output
from fpstore.tasks.pieces import Pieces, PieceWriter
from fpstore.tasks.places import Place, full_uri
from fpstore.tasks.plan import PlanFolder, Stage, result_name
from fpstore.tasks.work import Work

BUILT = "build", 0  # the one task that makes the index


def plan_of_index(
    place: Place,
    specs: list[InputSpec],
    output: str | os.PathLike[str],
    projection: Projection,
    hasher: MinHashSketcher,
    form: LshPlan,
    expected: int,
    id_type: str,
    index_ids: bool,
    encoding: str | None,
    part_bytes: int | None,
) -> PlanFolder:
    """Write the plan of an index.

    Its keys are long enough for as many documents as are expected, and for those that are read.
    """
    parts, target = parts_of(specs, part_bytes), Output(full_uri(output, "output"), True)
    asked = {
        "inputs": specs,
        "parts": parts,
        "projection": projection_asked(projection),
        "hasher": hasher.describe(),
        "form": asdict(form),
        "expected": expected,
        "id_type": id_type,
        "index_ids": index_ids,
        "encoding": encoding,
        "output": target._asdict(),
    }
    return target.planned(place, "lsh", asked, [Stage("hash", len(parts)), Stage(BUILT[0], 1)])


class LshWork(Work):
    """What the tasks of an index do."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        asked = plan.asked
        self._projection, self._encoding = projection_in(asked["projection"]), asked["encoding"]
        self._hasher: Any = from_description(asked["hasher"])
        self._form = LshPlan(**asked["form"])
        self._bands = self._form.bands, self._form.rows
        self._id_type = asked["id_type"]
        self._path = Path(self._output.uri)

    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Write rows with keys, and ids, some at a time.

        Ids are places in the part unless there are others.
        """
        hashed = partial(rows_with_keys, self._hasher, self._bands)
        with opened_part(self._inputs, self._parts[number], self._encoding) as corpus:
            maker, rule = self._hasher, IdRule(self._id_type)
            made = hashed_rows(
                corpus, self._projection, maker, resources.threads, rule, hashed=hashed
            )
            self._write(writer, made, resources)
            writer.facts["whole_pages"] = corpus.whole_pages

    def _write(self, writer: PieceWriter, made: Iterator[Batch], resources: Resources) -> None:
        facts: dict[str, Any] = {"rows": 0, "documents": 0, "pieces": 0, "ids": None}

        def with_ids() -> Iterator[Batch]:
            for batch in made:
                places = np.flatnonzero(batch.flags).astype(np.uint64) + np.uint64(facts["rows"])
                facts["rows"] += len(batch.flags)
                resources.report("reading", facts["rows"])
                yield batch if self._projection.id is not None else batch._replace(ids=places)

        for batch in cut_batches(with_ids(), rows_of_piece(self._form.bands), False):
            writer.add(f"documents-{facts['pieces']}", batch.fingerprints)
            writer.add_ids(f"ids-{facts['pieces']}", batch.ids)
            facts["ids"] = "str" if isinstance(batch.ids, StringColumn) else "int"
            facts["documents"] += len(batch.fingerprints)
            facts["pieces"] += 1
        writer.facts |= facts

    def _build(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Make the index, unless a task that was ended late has done so."""
        parts = [self._plan.result("hash", part).facts for part in range(len(self._parts))]
        writer.facts |= {
            name: sum(part[name] for part in parts) for name in ("rows", "documents", "whole_pages")
        }
        self._check_parts(parts)
        if not os.path.lexists(self._path):
            documents = _Documents(self._plan, len(parts), self._projection.id is None)
            pieces = DocumentPieces(documents, self._hasher, self._form)
            with self._output.place.writing(self._path.name) as folder:
                folder.mkdir()
                options = self._asked["expected"], self._asked["index_ids"], resources
                build_index(
                    folder,
                    pieces,
                    self._form,
                    *options,
                    (self._identity(DOCUMENTS), self._identity(KEYS)),
                )
        self._check()

    def _check_parts(self, parts: list[dict[str, Any]]) -> None:
        """Raise InputError if there are no documents, or ids of two types."""
        filled = [
            (part["ids"], self._inputs[self._parts[number].file].uri)
            for number, part in enumerate(parts)
            if part["ids"]
        ]
        if not filled:
            raise InputError(
                f"{self._inputs[0].uri}: no text to make a fingerprint of, nor in other files",
                path=self._inputs[0].uri,
            )
        for kind, uri in filled:
            if kind != filled[0][0]:
                raise InputError(f"{uri}: {mixed_ids(kind)}", path=uri)

    def _check(self) -> None:
        """Raise StoreExistsError for something else than the index that the plan makes."""
        with suppress(StoreNotFoundError, CorruptStoreError, FormatVersionError):
            found = read_index_manifest(self._path)
            if (found.documents, found.keys) == (
                self._identity(DOCUMENTS).hex(),
                self._identity(KEYS).hex(),
            ):
                return
        raise StoreExistsError(
            f"{self._path}: exists, and is not what the plan makes: remove it, and run again",
            path=self._path,
        )

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Return what the index holds."""
        facts = self._plan.result(*BUILT).facts
        if not os.path.lexists(self._path):
            message = (
                f"{self._path}: was written, and is gone: remove {result_name(*BUILT)} in the "
                "plan, and run again"
            )
            raise StoreNotFoundError(message, path=self._path)
        self._check()
        with LshStore(self._path) as index:
            size = index.stats()["bytes"]["total"]
        summary = {
            "texts": facts["rows"],
            "documents": facts["documents"],
            "bands": self._form.bands,
            "bytes": size,
        }
        is_of_pages = isinstance(self._hasher, MainText)
        return summary | ({"whole_pages": facts["whole_pages"]} if is_of_pages else {})


class _Documents:
    """The documents of all parts in order, as an index takes them."""

    def __init__(self, plan: PlanFolder, parts: int, row_numbers: bool) -> None:
        self._plan, self._parts, self.row_numbers = plan, parts, row_numbers
        self.next_row = 0

    def __iter__(self) -> Iterator[Given]:
        for part in range(self._parts):
            found = self._plan.result("hash", part)
            yield from self._given(found)
            self.next_row += found.facts["rows"]

    def _given(self, found: Pieces) -> Iterator[Given]:
        for number in range(found.facts["pieces"]):
            ids: Any = found.read_ids(f"ids-{number}")
            if self.row_numbers:
                ids = ids + np.uint64(self.next_row)
            yield given_of(found.read(f"documents-{number}"), ids)
