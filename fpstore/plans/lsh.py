"""An LSH index by tasks: texts are hashed part by part, and one task builds the index.

Stages: *hash* makes rows of documents, keys of bands and ids of a part of the inputs; *build* reads
them in order, and writes the index. An index has at most 2^32 documents, and hashing takes most of
the time: nine tenths for texts of 1,500 words.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np

from fpstore.base.arguments import check_choice, check_flag, check_whole, is_uri
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.base.threads import cached_property
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StoreExistsError,
    StoreNotFoundError,
)
from fpstore.hashing import MinHash
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.corpora import hash_rows
from fpstore.hashing.html import MainText
from fpstore.hashing.registry import check_sketcher
from fpstore.io.reader import cut_batches
from fpstore.io.source import Batch, IdRule, IdType, Projection, mixed_ids
from fpstore.jobs.row_spec import RESOLVED, RowsSpec, Spec
from fpstore.lsh import LshStore
from fpstore.lsh.api import UNKNOWN_COUNT
from fpstore.lsh.building import DocumentPieces, build_index
from fpstore.lsh.items import ItemBatch, piece_rows, rows_with_keys
from fpstore.lsh.keys import MAX_DOCUMENTS
from fpstore.lsh.manifest import DOCUMENTS, KEYS, read_index_manifest
from fpstore.lsh.plan import USUAL_RECALL, LshPlan, check_plan, plan
from fpstore.plans.inputs import InputSpec, Part, count_rows, cut_parts, find_inputs, open_part
from fpstore.plans.outputs import Output
from fpstore.plans.work import Sizes, Work, stage
from fpstore.work.folder import PlanFolder, Stage, result_name
from fpstore.work.pieces import Pieces, PieceWriter
from fpstore.work.places import full_uri

BUILT = "build", 0  # the one task that makes the index


@dataclass(frozen=True)
class LshSpec(Spec):
    r"""An LSH index of texts, which many tasks hash.

    It equals an index of :func:`fpstore.lsh.build`.

    The last task builds the index from the results of the others, in bounded memory, and may have
    several threads. The plan takes 32 bytes, 8 more for each band, and the id, for each
    document. Vectors and other items are for one machine.

    Parameters
    ----------
    source : path, URI, or iterable of them
        Files of Parquet, JSON lines, CSV or TSV with a header, or folders of them.
    output : path-like
        The folder of the index, which is new, on a disk that all machines share. It appears
        complete or not at all.
    text : str, sequence of str, or mapping of str to int
        The columns of texts, as for `fpstore.hashing.TextReader`.
    id : str, optional
        The column of ids; by default row numbers, from 0 over all inputs.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes that of the column, and strings in delimited text.
    hasher : MinHash or SimMinHash, optional
        What makes hash values of texts; by default ``fpstore.MinHash()``.
    threshold, recall : float, optional
        As for :func:`fpstore.lsh.build`.
    lsh_plan : LshPlan, optional
        What :func:`fpstore.lsh.plan` returned, in place of threshold, recall, documents and
        candidates.
    documents : int, optional
        The number that bands are planned for, and that keys are long enough for. By default bands
        are planned for the rows of Parquet, and for 10 million documents in files of other formats;
        keys are made for the documents that are there.
    candidates : float, optional
        As for :func:`fpstore.lsh.plan`.
    index_ids : bool
        As for :func:`fpstore.lsh.build`.
    encoding, html, format, roles : optional
        As for `fpstore.hashing.TextReader`.

    Examples
    --------
    >>> import fpstore, pathlib, tempfile
    >>> from fpstore.plans import LshSpec, Plan
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> texts = ["it was the best of times it was the worst of times", "call me ishmael"]
    >>> rows = [f"book {number},{text}" for number, text in enumerate(texts)]
    >>> books, index_path = folder / "books.csv", folder / "books.lsh"
    >>> _ = books.write_text("\n".join(["title,text", *rows, ""]))
    >>> spec = LshSpec(books, index_path, text="text", id="title", threshold=0.7)
    >>> plan = Plan.of(spec)
    >>> [plan.run(index) for index in range(len(plan))]
    [True, True]
    >>> plan.finish()["documents"]
    2
    >>> with fpstore.open(index_path) as index:
    ...     index.probe("It was the best of times, it was the worst of times.")
    [Match(id='book 0', similarity=1.0)]
    """

    source: Any = field(metadata=RESOLVED)
    output: Any = field(metadata=RESOLVED)
    _: KW_ONLY
    text: Any = field(metadata=RESOLVED)
    id: str | None = None
    id_type: IdType = "auto"
    hasher: Any = field(default=None, metadata=RESOLVED)
    threshold: float | None = None
    recall: float | None = None
    lsh_plan: LshPlan | None = field(default=None, metadata=RESOLVED)
    documents: int | None = None
    candidates: float | None = None
    index_ids: bool = False
    encoding: str | None = None
    html: bool | str = False
    format: str | None = None
    roles: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.id_type, get_args(IdType), "id_type")
        check_flag(self.index_ids, "index_ids")
        if self.documents is not None:
            check_whole(self.documents, 1, MAX_DOCUMENTS, "documents")
        arguments = (self.threshold, self.recall, self.documents, self.candidates)
        if self.lsh_plan is not None and any(value is not None for value in arguments):
            raise InputError(
                "lsh_plan has a threshold, a recall, documents and candidates: leave them out"
            )

    def columns(self) -> tuple[Projection, MinHashSketcher]:
        """Return the columns to read, and the hasher of their texts."""
        if self.text is True:
            raise InputError(
                "a plan is for rows of files: text=True, where each file is a text, is for "
                "fpstore.lsh.build"
            )
        fingerprinter = check_sketcher(MinHash() if self.hasher is None else self.hasher)
        if not isinstance(fingerprinter, MinHashSketcher):
            raise InputError(
                f"a plan is for texts and MinHash, got the hasher {fingerprinter.name}: "
                "fpstore.lsh.build takes it",
                got=self.hasher,
            )
        rows = RowsSpec(text=self.text, html=self.html, roles=self.roles)
        projection, column_hasher = rows.columns(Projection(id=self.id, strict=True), fingerprinter)
        hasher = check_sketcher(column_hasher)
        assert isinstance(hasher, MinHashSketcher)
        return projection, hasher

    def bands(self, hasher: MinHashSketcher, rows: int) -> LshPlan:
        """Return the plan of the index for ``rows`` rows; 0 if their number is unknown."""
        if self.lsh_plan is not None:
            check_plan(self.lsh_plan, hasher)
            return self.lsh_plan
        if self.threshold is None:
            raise InputError(
                "give a threshold, and perhaps a recall, or lsh_plan= as fpstore.lsh.plan returns "
                "it"
            )
        options: dict[str, Any] = {} if self.candidates is None else {"candidates": self.candidates}
        recall = USUAL_RECALL if self.recall is None else self.recall
        return plan(
            self.documents or rows or UNKNOWN_COUNT, hasher, self.threshold, recall, **options
        )


@dataclass(kw_only=True, eq=False)
class LshWork(Work):
    """The work of an index.

    Keys are long enough for ``expected`` documents, and for those that are read.
    """

    kind = "lsh"
    sizes = ("part_bytes",)
    spec: LshSpec
    inputs: list[InputSpec]
    parts: list[Part]
    projection: Projection
    hasher: MinHashSketcher
    form: LshPlan
    expected: int

    @classmethod
    def from_spec(cls, spec: LshSpec, sizes: Sizes) -> Self:
        if is_uri(spec.output):
            raise InputError(
                f"{spec.output}: an index lies on a disk: name a folder that all machines share, "
                "or copy it afterwards"
            )
        projection, hasher = spec.columns()
        inputs = find_inputs(
            spec.source, spec.encoding, outside=[spec.output], format_name=spec.format
        )
        rows = count_rows(inputs, projection, spec.encoding)
        known_rows = rows if all(file.groups is not None for file in inputs) else 0
        if known_rows > MAX_DOCUMENTS:
            message = (
                f"the inputs have {known_rows:,} rows, and an index has at most {MAX_DOCUMENTS:,} "
                "documents: plan several"
            )
            raise InputError(message, expected=MAX_DOCUMENTS, got=known_rows)
        form = spec.bands(hasher, known_rows)
        return cls(
            spec=spec,
            inputs=inputs,
            parts=cut_parts(inputs, sizes.part_bytes),
            projection=projection,
            hasher=hasher,
            form=form,
            expected=form.documents if spec.lsh_plan is not None else spec.documents or 0,
            output=Output(full_uri(spec.output, "output"), True),
        )

    def stages(self) -> list[Stage]:
        return [Stage("hash", len(self.parts)), Stage(BUILT[0], 1)]

    @cached_property
    def _path(self) -> Path:
        return Path(self.output.uri)

    @stage("hash")
    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Write rows with keys, and ids, in pieces.

        Without a column of ids, the ids are places in the part.
        """
        hashed = partial(rows_with_keys, self.hasher, (self.form.bands, self.form.rows))
        with open_part(self.inputs, self.parts[number], self.spec.encoding) as corpus:
            fingerprinter, rule = self.hasher, IdRule(self.spec.id_type)
            batches = hash_rows(
                corpus, self.projection, fingerprinter, resources.threads, rule, hash_texts=hashed
            )
            self._write(writer, batches, resources)
            writer.facts["whole_pages"] = corpus.whole_pages

    def _write(self, writer: PieceWriter, batches: Iterator[Batch], resources: Resources) -> None:
        facts: dict[str, Any] = {"rows": 0, "documents": 0, "pieces": 0, "ids": None}

        def number_rows() -> Iterator[Batch]:
            for batch in batches:
                places = np.flatnonzero(batch.flags).astype(np.uint64) + np.uint64(facts["rows"])
                facts["rows"] += len(batch.flags)
                resources.report("reading", facts["rows"])
                yield batch if self.projection.id is not None else batch._replace(ids=places)

        for batch in cut_batches(number_rows(), piece_rows(self.form.bands), False):
            writer.add(f"documents-{facts['pieces']}", batch.fingerprints)
            writer.add_ids(f"ids-{facts['pieces']}", batch.ids)
            facts["ids"] = "str" if isinstance(batch.ids, StringColumn) else "int"
            facts["documents"] += len(batch.fingerprints)
            facts["pieces"] += 1
        writer.facts |= facts

    @stage("build")
    def _build(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Build the index, unless a killed task has done so."""
        parts = [self.plan.result("hash", part).facts for part in range(len(self.parts))]
        writer.facts |= {
            name: sum(part[name] for part in parts) for name in ("rows", "documents", "whole_pages")
        }
        self._check_parts(parts)
        if not os.path.lexists(self._path):
            documents = _Documents(self.plan, len(parts), self.projection.id is None)
            pieces = DocumentPieces(documents, self.hasher, self.form)
            with self.output.place.create_file(self._path.name) as folder:
                folder.mkdir()
                build_index(
                    folder,
                    pieces,
                    self.form,
                    self.expected,
                    self.spec.index_ids,
                    resources,
                    (self.identity(DOCUMENTS), self.identity(KEYS)),
                )
        self._check()

    def _check_parts(self, parts: list[dict[str, Any]]) -> None:
        """Raise InputError if there are no documents, or ids of two types."""
        filled = [
            (part["ids"], self.inputs[self.parts[number].file].uri)
            for number, part in enumerate(parts)
            if part["ids"]
        ]
        if not filled:
            raise InputError(
                f"{self.inputs[0].uri}: no text to make a fingerprint of, nor in other files",
                path=self.inputs[0].uri,
            )
        for kind, uri in filled:
            if kind != filled[0][0]:
                raise InputError(f"{uri}: {mixed_ids(kind)}", path=uri)

    def _check(self) -> None:
        """Raise StoreExistsError for anything else than the index of the plan."""
        with suppress(StoreNotFoundError, CorruptStoreError, FormatVersionError):
            manifest = read_index_manifest(self._path)
            if (manifest.documents, manifest.keys) == (
                self.identity(DOCUMENTS).hex(),
                self.identity(KEYS).hex(),
            ):
                return
        raise StoreExistsError(
            f"{self._path}: exists, and is not what the plan makes: remove it, and run again",
            path=self._path,
        )

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Return the contents of the index."""
        facts = self.plan.result(*BUILT).facts
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
            "bands": self.form.bands,
            "bytes": size,
        }
        is_of_pages = isinstance(self.hasher, MainText)
        return summary | ({"whole_pages": facts["whole_pages"]} if is_of_pages else {})


class _Documents:
    """The documents of all parts in order, as an index takes them."""

    def __init__(self, plan: PlanFolder, parts: int, row_numbers: bool) -> None:
        self._plan, self._parts, self.row_numbers = plan, parts, row_numbers
        self.next_row = 0

    def __iter__(self) -> Iterator[ItemBatch]:
        for part in range(self._parts):
            hashed = self._plan.result("hash", part)
            yield from self._batches(hashed)
            self.next_row += hashed.facts["rows"]

    def _batches(self, hashed: Pieces) -> Iterator[ItemBatch]:
        for number in range(hashed.facts["pieces"]):
            ids: Any = hashed.read_ids(f"ids-{number}")
            if self.row_numbers:
                ids = ids + np.uint64(self.next_row)
            yield ItemBatch.from_rows(hashed.read(f"documents-{number}"), ids)
