"""The input files of a plan: their names, sizes, and digests, which reveal a change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

from fpstore.api import open_store
from fpstore.base.arguments import is_iterable, is_uri
from fpstore.base.pools import map_in_order
from fpstore.base.width import Width
from fpstore.errors import InputError
from fpstore.hashing.corpora import corpus_paths, open_source
from fpstore.io.arrow import find_column, import_pyarrow, kinds_of_numbers, plain_type
from fpstore.io.binary import RAW_BITS, NpyRows, RawRows
from fpstore.io.files import input_error
from fpstore.io.parquet import ParquetRows, row_group_sizes, translate_parquet_errors
from fpstore.io.reader import HEAD_BYTES, stored_files
from fpstore.io.shards import Shards, shard_name, shard_places
from fpstore.io.source import Projection, format_by_name, format_suffix
from fpstore.jobs.dedup_job import estimate_rows
from fpstore.jobs.row_spec import RowsSpec
from fpstore.plans.records import as_json
from fpstore.sharded import ShardedStore
from fpstore.store import Store
from fpstore.work.places import (
    DiskPlace,
    Place,
    StoredPlace,
    full_uri,
    is_inside,
    open_place,
    scratch_folder,
)

# of a file whose digest is of all bytes; of a larger file, as many bytes in even pieces
WHOLE_BYTES = 1 << 24
PIECE_BYTES = 1 << 20
MIN_PART, MAX_PART, MAX_PARTS = 16 << 20, 256 << 20, 4096  # bytes of a part, and parts
GROUP_ROWS = 1 << 20  # of raw numbers, which are cut like row groups
READERS = 16  # threads


File = tuple[Place, str, str]  # the name there, and the name of its output


class InputSpec(NamedTuple):
    """A file: its place, the name of its output, its size, and its digest.

    ``groups`` are the rows of its row groups. ``format`` is None unless the user has named it.
    """

    uri: str
    name: str
    bytes: int
    digest: str
    groups: Sequence[int] | None  # None: not Parquet
    format: str | None = None

    @property
    def suffix(self) -> str:
        """The extension of the format of the file."""
        return format_suffix(self.name) if self.format is None else f".{self.format}"

    @property
    def shard(self) -> str:
        """The name of the file in lists."""
        return shard_name(self.name)

    @property
    def is_raw(self) -> bool:
        """Whether the file holds numbers and nothing else."""
        return self.format is None and is_raw(self.name)


class Part(NamedTuple):
    """A part of the inputs: successive files, or row groups of one file.

    ``end`` is 0 for whole files.
    """

    file: int
    files: int
    first: int
    end: int

    @property
    def numbers(self) -> range:
        return range(self.file, self.file + self.files)


def file_digest(place: Place, name: str) -> tuple[int, str]:
    """Return the size of a file, and a digest of all of it or of pieces at even distances.

    The first and the last piece are among them.
    """
    size = place.size(name)
    if size is None:
        raise InputError(f"{place.label(name)}: is not there", path=place.label(name))
    pieces = WHOLE_BYTES // PIECE_BYTES
    starts = [n * (size - PIECE_BYTES) // (pieces - 1) for n in range(pieces)]
    if size <= WHOLE_BYTES:
        starts = list(range(0, size, PIECE_BYTES))
    digest = blake2b(str(size).encode(), digest_size=16)
    for start in starts:
        digest.update(place.read(name, start, PIECE_BYTES))
    return size, digest.hexdigest()


def find_inputs(
    source: Any,
    encoding: str | None = None,
    raw: bool = False,
    outside: Sequence[str | os.PathLike[str] | None] = (),
    format_name: str | None = None,
) -> list[InputSpec]:
    """Return the files of a source: paths or URIs of files or of folders, of one format.

    Files of ``raw`` numbers must be named one by one. InputError if a path of ``outside`` is in one
    of the folders, since the next run would read it.
    """
    if hasattr(source, "__arrow_c_stream__") or type(source).__name__ == "LazyFrame":
        raise InputError(
            "a plan is for files: a table in memory is not on other machines", got=type(source)
        )
    sources = list(source) if is_iterable(source, str, Mapping) else [source]
    uris = [path for path in sources if is_uri(path)]
    if (
        not uris
        and raw
        and format_name is None
        and all(isinstance(path, str | os.PathLike) and is_raw(path) for path in sources)
    ):
        paths = [Path(path) for path in corpus_paths(sources)]
        return _specs((DiskPlace(path.parent), path.name, path.name) for path in paths)
    if not uris:
        corpus = open_source(sources, format=format_name, encoding=encoding)
        if not isinstance(corpus, Shards):
            raise InputError(
                f"{corpus.label}: a dataset, which no plan reads: write it as Parquet first",
                got=source,
            )
        _check_outside(map(str, corpus.folders), outside)
        files = zip(map(Path, corpus.paths), shard_places(corpus), strict=True)
        return _specs(
            ((DiskPlace(path.parent), path.name, name.as_posix()) for path, name in files),
            format_name,
        )
    if len(uris) < len(sources):
        raise InputError(
            "paths and URIs of object stores are not mixed: name one kind of input", got=source
        )
    specs = _specs(
        (file for uri in uris for file in _list_uri(uri, len(uris) > 1, format_name)), format_name
    )
    forms = {spec.suffix for spec in specs}
    if len(forms) > 1:
        raise InputError(
            f"files of one format are expected, got {', '.join(sorted(forms))}", got=source
        )
    _check_outside(uris, outside)
    if len({spec.name for spec in specs}) < len(specs):
        raise InputError(
            "two inputs would be written to one name: name a folder above them", got=source
        )
    return specs


def _check_outside(
    folders: Iterable[str], outside: Sequence[str | os.PathLike[str] | None]
) -> None:
    paths = [full_uri(path, "output") for path in outside if path is not None]
    for folder in folders:
        inside = next((path for path in paths if is_inside(path, folder)), None)
        if inside is not None:
            raise InputError(
                f"{inside}: is in {folder}, and the next run would read it: name a place outside",
                path=inside,
            )


def _list_uri(uri: str, many: bool, format_name: str | None = None) -> Iterator[File]:
    """Yield the files of a URI: those of a folder in the order of a walk on a disk.

    If the format is named, all files of a folder have it.
    """
    top, _, folder_name = uri.rstrip("/").rpartition("/")
    place = StoredPlace(uri)
    if not top.endswith("/"):  # else it names a whole bucket
        parent = StoredPlace(top)
        if parent.size(folder_name) is not None:
            yield parent, folder_name, folder_name
            return
    for name in stored_files(
        uri, place.names(), format_name, lambda name: place.read(name, 0, HEAD_BYTES)
    ):
        yield place, name, f"{folder_name}/{name}" if many else name


def _specs(files: Iterable[File], format_name: str | None = None) -> list[InputSpec]:
    """Describe files, many at once, since an object store is slow."""
    return [spec for _, spec in map_in_order(partial(_spec, format_name), files, READERS)]


def _spec(format_name: str | None, file: File) -> InputSpec:
    place, name, output = file
    size, digest = file_digest(place, name)
    groups = None
    if (format_name or format_by_name(name)) == "parquet":
        groups = _groups(place, name)
    elif format_name is None and is_raw(name):
        rows = count_raw_rows(place, name)
        groups = [min(GROUP_ROWS, rows - start) for start in range(0, rows, GROUP_ROWS)]
    return InputSpec(place.label(name), output, size, digest, groups, format_name)


def is_raw(path: str | os.PathLike[str]) -> bool:
    return format_by_name(path) in ("npy", *RAW_BITS)


def are_raw(source: Sequence[Any], rows: RowsSpec) -> bool:
    """Return whether inputs are files of raw numbers, without named columns."""
    return (
        rows.text is None
        and rows.fingerprint is None
        and all(isinstance(path, str | os.PathLike) and is_raw(path) for path in source)
    )


def id_projection(rows: RowsSpec, width: Width) -> Projection:
    """Return the columns of ids and fingerprints.

    Without texts, "id" is the column of ids, if there is one.
    """
    optional = rows.text is None and rows.id is None
    return Projection(
        id="id" if optional else rows.id,
        width=width,
        decimal=rows.decimal,
        signed=rows.signed,
        optional_id=optional,
    )


def count_raw_rows(place: Place, name: str) -> int:
    with scratch_folder() as scratch:
        rows = raw_source(str(place.on_disk(name, scratch))).rows
    assert rows is not None
    return rows


def raw_source(path: str) -> NpyRows | RawRows:
    format_name = format_by_name(path)
    return (
        NpyRows(path, GROUP_ROWS)
        if format_name == "npy"
        else RawRows(path, RAW_BITS[format_name], GROUP_ROWS)
    )


def _groups(place: Place, name: str) -> list[int]:
    """Return the rows of each row group of a Parquet file."""
    where = place.label(name)
    arrow = import_pyarrow(where)
    with translate_parquet_errors(arrow, where), place.open(name) as file:
        return row_group_sizes(arrow, file)


def cut_parts(specs: Sequence[InputSpec], part_bytes: int | None) -> list[Part]:
    """Cut files into parts of about ``part_bytes``.

    A part has several small files, or some row groups of a large Parquet file. By default there are
    256 parts, of 16 to 256 MiB each, and never more than 4,096: a later task reads from each.
    """
    total = sum(spec.bytes for spec in specs)
    limit = (
        max(min(max(total // 256, MIN_PART), MAX_PART), total // MAX_PARTS)
        if part_bytes is None
        else part_bytes
    )
    parts, first, part_size = list[Part](), 0, 0
    for number, spec in enumerate(specs):
        count = min(-(-spec.bytes // limit), len(spec.groups or ()))
        if number > first and (count > 1 or part_size + spec.bytes > limit):
            parts.append(Part(first, number - first, 0, 0))
            first, part_size = number, 0
        part_size += spec.bytes
        if count > 1 and spec.groups is not None:
            bounds = [n * len(spec.groups) // count for n in range(count + 1)]
            parts += [Part(number, 1, *bound) for bound in pairwise(bounds)]
            first, part_size = number + 1, 0
    return [*parts, *([Part(first, len(specs) - first, 0, 0)] if first < len(specs) else [])]


def group_files(parts: Sequence[Part]) -> list[range]:
    """Return the numbers of the files of each part, or of the file that has several parts."""
    return [
        range(first, end)
        for first, end in sorted({(part.file, part.file + part.files) for part in parts})
    ]


def count_rows(specs: Sequence[InputSpec], projection: Projection, encoding: str | None) -> int:
    """Return the number of rows of the files; an estimate by the largest file, but for Parquet.

    InputError for a missing column, if that can be known before reading.
    """
    if specs[0].is_raw:
        with inputs_on_disk(specs[:1]) as (path,):
            raw_source(path).resolve_columns(projection)
    else:
        largest = max(specs, key=lambda spec: spec.bytes)
        with open_input(largest, encoding) as corpus:
            corpus.resolve_columns(projection)
            if largest.groups is None:
                _check_fields(corpus, projection)
                return estimate_rows(corpus, projection, sum(spec.bytes for spec in specs))
    return sum(sum(spec.groups or ()) for spec in specs)


def _check_fields(corpus: Shards, projection: Projection) -> None:
    """Raise InputError if no row of a file has a field that is read; read until some have it."""
    corpus.is_part = False
    with closing(corpus.batches(projection)) as batches:  # type: ignore[type-var]  # a generator
        for _ in batches:
            if not corpus.lacks_columns:
                return


def align_scores(projection: Projection, specs: Sequence[InputSpec]) -> Projection:
    """Return columns whose scores compare although each task reads only some files.

    InputError for times of several types.
    """
    name, first, kinds = projection.score, "", set[str]()
    if name is None or len(specs) < 2 or specs[0].suffix != ".parquet":
        return projection
    for spec in specs:
        place, file_name = place_and_name(spec.uri)
        arrow = import_pyarrow(spec.uri)
        with translate_parquet_errors(arrow, spec.uri), place.open(file_name) as file:
            column_type = plain_type(find_column(arrow.parquet.read_schema(file), name))
        numbers = kinds_of_numbers([column_type])
        kinds |= numbers
        kind = "a number" if numbers else str(column_type)
        if kind != "null" and kind != (first := first or kind):
            raise input_error(
                spec.uri,
                None,
                f"the column {name!r} is {kind} here, and {first} in earlier files: make them "
                "alike",
            )
    return replace(projection, alike_scores=len(kinds) > 1)


def resolve_ids(
    projection: Projection, specs: Sequence[InputSpec], encoding: str | None
) -> Projection:
    """Return columns with ids or without: the first file decides if ids are optional.

    So all tasks read the same columns.
    """
    if not projection.optional_id or projection.id is None:
        return projection
    has_ids = False
    if not specs[0].is_raw:
        with open_input(specs[0], encoding) as corpus:
            has_ids = corpus.has_column(projection.id)
    return replace(projection, id=projection.id if has_ids else None, optional_id=False)


def open_input(spec: InputSpec, encoding: str | None) -> AbstractContextManager[Shards]:
    """Yield the rows of a file; InputError if it has changed since the plan was made."""
    return open_part([spec], Part(0, 1, 0, 0), encoding)


@contextmanager
def open_part(specs: Sequence[InputSpec], part: Part, encoding: str | None) -> Iterator[Shards]:
    """Yield the rows of a part; InputError if a file has changed since the plan was made."""
    with inputs_on_disk([specs[number] for number in part.numbers]) as paths:
        format_name = specs[part.file].format
        # a string with a line break would be a text
        corpus = open_source(map(Path, paths), format=format_name, encoding=encoding)
        assert isinstance(corpus, Shards)
        if isinstance(corpus, ParquetRows) and part.end:
            corpus = corpus.row_groups(part.first, part.end)
        corpus.is_part = True
        yield corpus


@contextmanager
def inputs_on_disk(specs: Sequence[InputSpec]) -> Iterator[list[str]]:
    """Yield paths of files or of their copies; InputError if one has changed."""
    with scratch_folder() as scratch:
        place_of_folder = cache(open_place)  # a file system of pyarrow for all files there
        work = partial(_copy_to_disk, scratch, place_of_folder)
        yield [path for _, path in map_in_order(work, enumerate(specs), READERS)]


def _copy_to_disk(
    scratch: Path, place_of_folder: Callable[[str], Place], numbered: tuple[int, InputSpec]
) -> str:
    number, spec = numbered
    top, name = os.path.split(spec.uri)
    place = place_of_folder(top)
    size, digest = file_digest(place, name)
    if (size, digest) != (spec.bytes, spec.digest):
        message = f"{spec.uri}: changed since the plan was made: make a new plan"
        raise InputError(message, path=spec.uri, expected=spec.digest, got=digest)
    return str(place.on_disk(name, scratch / str(number)))


class StoreState(NamedTuple):
    """A store, by its path and its state when the plan was made."""

    path: str
    state: dict[str, Any]

    @classmethod
    def from_store(cls, store: Store) -> Self:
        return cls(str(store.path.absolute()), store.snapshot().state)

    @contextmanager
    def open(self) -> Iterator[Store]:
        """Open the store; InputError if it has changed since the plan was made."""
        with open_store(self.path) as store:
            if as_json(store.snapshot().state) != self.state:
                raise InputError(
                    f"{self.path}: changed since the plan was made: make a new plan",
                    path=self.path,
                )
            yield store


def store_context(store: Store | str | os.PathLike[str]) -> AbstractContextManager[Store]:
    """Return a context of a store, which a path opens."""
    return nullcontext(store) if isinstance(store, Store) else open_store(store)


def shard_paths(store: Store) -> list[Path]:
    """Return the folders of the shards of a store, or its own folder."""
    return store.shards if isinstance(store, ShardedStore) else [store.path]


def place_and_name(uri: str) -> tuple[Place, str]:
    if is_uri(uri):
        top, _, name = uri.rpartition("/")
        return StoredPlace(top), name
    path = Path(uri)
    return DiskPlace(path.parent), path.name
