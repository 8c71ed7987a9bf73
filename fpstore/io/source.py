"""Sources of rows: batches of some columns, from files, folders, tables and streams."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Progress, Words
from fpstore.base.arguments import show_json
from fpstore.base.arrays import NO_WORDS
from fpstore.base.diagnostics import notify
from fpstore.base.keywords import keyword
from fpstore.base.strings import StringColumn, TextColumn
from fpstore.base.threads import cached_property
from fpstore.base.width import WIDTH_64, Width
from fpstore.errors import InputError, plural, show
from fpstore.io.check import (
    check_fingerprint,
    check_fingerprints,
    check_id,
    check_ids,
    parse_integer_id,
)
from fpstore.io.digits import (
    Digits,
    negative,
    parse_integers,
    parse_texts,
    read_digits,
    signed_bits,
)
from fpstore.io.encodings import check_encoding
from fpstore.io.fields import names_here
from fpstore.io.files import FileState, InputFile, inner_name, input_error
from fpstore.io.keys import hash_keys
from fpstore.io.labels import Labels, encode_labels, label_of
from fpstore.io.messages import NOT_EDITED, RoleFilter, join_parts, refuse_string
from fpstore.io.remote import Copies
from fpstore.io.scores import rows_of_keys, score_key

FORMATS = ("npy", "u32", "u64", "tsv", "csv", "txt", "jsonl", "parquet")
LINE_FORMATS = ("tsv", "csv", "txt", "jsonl")
FIELD_FORMATS = ("parquet", "jsonl", "csv", "tsv")  # with named columns, such as one of texts
#: Extensions of files, and the names of their formats.
EXTENSIONS = {f".{name}": name for name in FORMATS} | dict.fromkeys(
    (".json", ".ndjson", ".jl", ".jsonlines"), "jsonl"
)
SUFFIXES = tuple(EXTENSIONS)
FIELD_SUFFIXES = tuple(
    suffix for form in FIELD_FORMATS for suffix, name in EXTENSIONS.items() if name == form
)
PART_BYTES = 1 << 20  # the most bytes of texts and ids in a batch

IdType = Literal["auto", "int", "str"]
IdKind = Literal["int", "str"]
IdColumn = Words | StringColumn | None
# makes the error of a row from its place in a batch and a message
RowError = Callable[[int, str], InputError]
Value = TypeVar("Value")


class Chunk(NamedTuple):
    """Some rows of an input, in input order.

    Attributes
    ----------
    fingerprints : ndarray
        uint32 or uint64, shape (rows,), for widths of 32 and 64; above, uint8, shape (rows, width /
        8), the most significant byte first. It may be a read-only slice of a mapped file.
    ids : ndarray of uint64, shape (rows,), list of str, or None
        None if the input has no ids.
    """

    fingerprints: npt.NDArray[Any]
    ids: Words | list[str] | None


@dataclass(frozen=True)
class Projection:
    """The columns that are read, None for others, and how fingerprints are written."""

    # a row of several columns has a tuple, with None where a column is null
    text: str | tuple[str, ...] | None = None
    fingerprint: str | None = None
    id: str | None = None
    score: str | None = None
    key: str | None = None
    key_rule: str = "url"  # one of `fpstore.io.keys.KEY_RULES`
    key_suffices: bool = False  # a row with a key is known, although its text is null or blank
    vector: str | None = None
    labels: tuple[str, ...] = ()  # read for all rows, also for those that are not known
    width: Width = WIDTH_64
    decimal: bool = False
    signed: bool = False
    # a fingerprint or an id that is null is an error; otherwise, such a row is not known
    strict: bool = False
    optional_id: bool = False  # the column of ids may be missing
    # the caller has named a column, so that delimited text of fingerprints must have a header
    names_columns: bool = True
    alike_scores: bool = False  # a number has one key as a score, whatever its type
    roles: tuple[str, ...] | None = None  # of the messages that are texts; None: all
    edits_texts: bool = False  # the texts are edited, and so must be strings

    def begin(self) -> Projection:
        """Return the projection for one reading, whose filter has met no messages."""
        return replace(self)

    @cached_property
    def role_filter(self) -> RoleFilter:
        """What chooses messages by `roles`."""
        return RoleFilter(self.roles)

    @property
    def digits(self) -> Digits:
        """How fingerprints in text are written."""
        return Digits(self.width, self.decimal, self.signed)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""
        return (
            self.text if isinstance(self.text, tuple) else () if self.text is None else (self.text,)
        )

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        columns = (
            *self.texts,
            self.fingerprint,
            self.id,
            self.score,
            self.key,
            self.vector,
            *self.labels,
        )
        return [name for name in dict.fromkeys(columns) if name is not None]

    @property
    def strict_columns(self) -> set[str]:
        """The columns of which a null is an error."""
        columns = (self.fingerprint, self.id) if self.strict else ()
        return {name for name in columns if name is not None}

    @property
    def needed(self) -> list[tuple[str, ...]]:
        """Groups of columns: a row in which all of a group are null is not known."""
        columns = () if self.strict else (self.fingerprint, self.id)
        keys = (self.key,) if self.key is not None and self.key_suffices else ()
        return [
            *([(*self.texts, *keys)] if self.texts else []),
            *((name,) for name in columns if name is not None),
        ]


def format_suffix(path: str | os.PathLike[str]) -> str:
    """Return the usual extension of the format of a path, or its own extension in lower case.

    Lines may be compressed: ``a.ndjson.gz`` has the format ``.jsonl``.
    """
    format_name = format_by_name(path)
    return f".{format_name}" if format_name else PurePath(path).suffix.lower()


def format_by_name(path: str | os.PathLike[str]) -> str:
    """Return the format that the extension of a path names; nothing if it names none.

    Behind the extension of a format of lines, another one may name a compression.
    """
    inner = inner_name(path)
    format_name = EXTENSIONS.get(PurePath(inner).suffix.lower(), "")
    return format_name if format_name in LINE_FORMATS or inner == PurePath(path).name else ""


def column_problem(name: str, names: Sequence[str], inner_names: Sequence[str] = ()) -> str:
    """Return why a name is not the name of one of some columns; nothing if it is.

    ``inner_names`` are the names of fields inside of columns.
    """
    count = names.count(name)
    if count == 1:
        return ""
    noun = "no column" if count == 0 else f"{count} columns"
    near = () if count else (*names, *inner_names)
    return f"{noun} named {name!r} ({names_here('columns', name, names, near)})"


def select_ids(ids: IdColumn, rows: slice | Flags) -> IdColumn:
    """Return the ids of successive rows, or of rows whose flags are set."""
    if isinstance(ids, StringColumn):
        return ids.slice(rows.start, rows.stop) if isinstance(rows, slice) else ids.filter(rows)
    return None if ids is None else ids[rows]


class OmittedRow(NamedTuple):
    """A row without a fingerprint: its place, its id if known, and the error of a wrong row."""

    place: int
    id: int | str | None
    error: str = ""


class Batch(NamedTuple):
    """Some rows of a source, in order: a value in each column for each row that is known."""

    fingerprints: Words = NO_WORDS
    ids: IdColumn = None
    # not a row whose text, fingerprint or id is null, or whose text is blank; None: all are
    known: Flags | None = None
    texts: Sequence[Any] | None = None  # str, or tuples of str and None
    # which of the texts each known row has; None: each has its own
    text_of_row: npt.NDArray[np.intp] | None = None
    scores: Words | None = None  # keys of `fpstore.io.scores`
    keys: Words | None = None  # hashes of `fpstore.io.keys`
    text_keys: Words | None = None  # hashes of whole texts, likewise
    vectors: npt.NDArray[Any] | None = None
    labels: tuple[Labels, ...] = ()  # of all rows, by the columns of the projection
    sets: Any = None  # the features of the texts: `fpstore.hashing.base.FeatureSets`
    text_chars: npt.NDArray[np.uint32] | None = None  # the length of each text
    chars: int = 0  # the length of the texts that the fingerprints were made of
    whole_pages: int = 0  # the pages whose main texts are too short: their whole texts are hashed
    pages: int = 0  # the texts that look like pages of HTML, and are hashed without tags
    paths: list[Path] | None = None  # if each row is a file
    row_error: RowError | None = None
    unbuffered: bool = False  # the rows are wanted before others come
    # rows that are not known, but whose ids are, and rows that are wrong
    left_out: Sequence[OmittedRow] = ()

    @property
    def string_bytes(self) -> int:
        """The bytes of the ids, if they are strings."""
        return len(self.ids.data) if isinstance(self.ids, StringColumn) else 0

    @property
    def flags(self) -> Flags:
        """Which rows are known."""
        return np.ones(len(self.fingerprints), bool) if self.known is None else self.known

    def row_texts(self) -> Iterator[Any]:
        """Iterate over the texts of the known rows."""
        texts = self.texts or []
        return (
            iter(texts)
            if self.text_of_row is None
            else map([*texts].__getitem__, self.text_of_row.tolist())
        )


@dataclass
class IdRule:
    """Whether one reading has ids, and whether they are integers or strings.

    The first rows decide.
    """

    id_type: IdType = "auto"
    has_ids: bool | None = None
    kind: IdKind | None = None  # None until it is decided

    def __post_init__(self) -> None:
        if self.id_type != "auto":
            self.kind = self.id_type

    def expect(self, has_ids: bool) -> None:
        """Refuse a mixture of rows with and without ids."""
        if self.has_ids not in (None, has_ids):
            now, before = ("an id", "none") if has_ids else ("no id", "one")
            raise InputError(f"{now} here, but earlier rows have {before}")
        self.has_ids = has_ids

    def expect_each(self, has_ids: list[bool], row_error: RowError) -> None:
        """Refuse a mixture among some rows."""
        for place in sorted(map(has_ids.index, set(has_ids))):
            try:
                self.expect(has_ids[place])
            except InputError as error:
                raise row_error(place, str(error)) from None

    def unify_type(self, ids: Words | StringColumn, row_error: RowError) -> Words | StringColumn:
        """Return ids that have a type of their own as the type of all.

        Refuse a mixture, unless the caller has chosen a type.
        """
        kind: IdKind = "str" if isinstance(ids, StringColumn) else "int"
        self.kind = self.kind or kind
        if kind == self.kind:
            return ids
        if self.id_type == "auto":
            raise row_error(0, mixed_ids(kind))
        return (
            self.integers(ids, row_error)
            if isinstance(ids, StringColumn)
            else StringColumn.from_strings(list(map(str, ids.tolist())))
        )

    def integers(self, ids: StringColumn, row_error: RowError) -> Words:
        """Return textual ids as integers."""
        integers = parse_integers(ids, plain=self.id_type == "auto")
        return (
            np.array(convert_values(ids.texts(), self.parse_integer, row_error), np.uint64)
            if integers is None
            else integers
        )

    def parse_integer(self, text: str) -> int:
        """Parse an integer id; the message for a guessed type says how to choose the type."""
        try:
            # Integers are guessed only from text that they print as.
            return parse_integer_id(text, plain=self.id_type == "auto")
        except InputError as error:
            if self.id_type != "auto":
                raise
            raise InputError(
                f"{error}, but earlier ids are integers; give the id type explicitly "
                f"({keyword('id_type', 'str')})"
            ) from None


def mixed_ids(kind: str) -> str:
    """Return what is wrong with an id of this type, ``int`` or ``str``, after ids of the other."""
    words = {"int": "strings", "str": "integers"}
    return (
        f"the id is of type {kind}, but earlier ids are {words[kind]}; give the id type "
        f"explicitly ({keyword('id_type', 'str')})"
    )


def unwritable_id(ids: IdColumn, characters: str) -> tuple[int, str] | None:
    """Return the place of the first id with one of the characters, and why a list cannot have it.

    None if all can be written.
    """
    if not isinstance(ids, StringColumn) or not any(
        character.encode() in ids.data for character in characters
    ):
        return None
    place, text = next(
        (place, text) for place, text in enumerate(ids.texts()) if set(text) & set(characters)
    )
    message = (
        f"the id {show(text)} cannot be written to a .tsv or .txt list: it holds a separator or a "
        "line break"
    )
    return place, f"{message}: name a .csv, .jsonl or .parquet file for the list"


class RowSource(ABC):
    """Rows that are read in order, for some of their columns.

    Most can be read again, to copy some of them as they are.
    """

    names: Sequence[str] = ()  # the files, for messages
    paths: Sequence[str] = ()
    # folders of the files: the next run would read what is written there
    folders: Sequence[Path] = ()
    suffix: str | None = None  # extension of a file that is written
    encoding: str | None = None  # encoding that the caller named
    copies: Copies | None = None  # of files that URIs name
    skip_bad = False  # whether lines that are broken are no rows
    typed = True  # ids have a type of their own; in delimited text, all are strings
    unbuffered = False  # rows are wanted as they come
    # columns of texts that no row has had so far, if there are several: rows of JSON may lack some
    absent: Collection[str] = ()
    # whether no row so far has had a column that is read, in a format whose rows may lack some
    lacks_columns = False
    is_part = False  # of other rows, which may have the fields that no row here has
    forbidden_in_ids = ""  # characters that no list of the output can hold
    tagged = False  # most of the first texts look like pages of HTML, and are taken as plain texts
    _has_noted_roles = False
    # pages that the reading under way compares by their whole texts, as their main texts are too
    # short
    whole_pages = 0
    rows: int | None = None  # if the number is known before they are read
    rows_before = 0  # rows of the file before the part that is read
    bytes_total: int | None = None
    bytes_done: int = 0  # by the reading under way

    @property
    def label(self) -> str:
        """The first files, for a message."""
        return ", ".join(self.names[:3]) + (" and more" if len(self.names) > 3 else "")

    def resolve_columns(self, projection: Projection) -> Projection:
        """Return the columns that the source has.

        InputError for one that is missing, as far as that is known before reading.
        """
        return projection

    @abstractmethod
    def batches(
        self, projection: Projection, rule: IdRule | None = None, skipped: int = 0
    ) -> Iterator[Batch]:
        """Read from the start; InputError for a value of another type, or a missing column.

        A rule makes ids of one type; by default, each batch has its own, and integers among strings
        are strings. Rows that are skipped at the beginning are only counted, and not taken apart
        where that can be avoided; only sources that jobs resume (:meth:`states`) skip rows.
        """

    def states(self) -> list[FileState]:
        """Return the state of each file, in order; InputError if there are no files."""
        raise InputError(
            f"a table in memory is gone when the process ends: {keyword('resume')} is for files"
        )

    def limit_memory(self, memory: int) -> None:  # noqa: B027 - of files of lines
        """Read lines as long as an amount of memory allows."""

    def leave_out_wrong(self, leave_out: bool) -> None:  # noqa: B027 - of files of lines
        """Choose whether a row that is wrong is left out, or is an error."""

    def forbid_in_ids(self, characters: str) -> None:
        """Refuse ids with one of the characters from now on, in :meth:`check_ids_writable`."""
        self.forbidden_in_ids = characters

    def check_ids_writable(self, batch: Batch) -> IdColumn:
        """Return the ids of a batch; InputError for one that cannot be written."""
        ids = batch.ids
        problem = unwritable_id(ids, self.forbidden_in_ids)
        if problem is None:
            return ids
        place, message = problem
        raise (
            InputError(f"{self.label}: {message}")
            if batch.row_error is None
            else batch.row_error(place, message)
        )

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise InputError if the last reading was of other files than the first one."""

    def select_rows(self, flags: Flags) -> Any:
        """Return the rows whose flags are set for a caller: of files, their numbers."""
        return np.flatnonzero(flags)

    def _note_roles(self, projection: Projection) -> None:
        """Report, once, a role that no message has had in a reading of all rows."""
        problem = "" if self.is_part or self._has_noted_roles else projection.role_filter.problem()
        if problem:
            self._has_noted_roles = True
            notify(f"{self.label}: {problem}")

    def _count(self, size: int) -> None:
        self.bytes_done += size


class RowFiles(RowSource):
    """Rows of files: regular ones if they are read ``again``, otherwise also standard input."""

    def __init__(
        self, paths: Sequence[str], again: bool = False, encoding: str | None = None
    ) -> None:
        self.encoding = check_encoding(encoding)
        self.files = [InputFile(path) for path in paths]
        for file in self.files:
            if again and file.size is None:
                raise input_error(
                    file.name, None, "must be a regular file, because it is read more than once"
                )
        self.names, self.paths = (
            [file.name for file in self.files],
            [file.path for file in self.files],
        )
        sizes = [file.size for file in self.files if file.size is not None]
        self.bytes_total = sum(sizes) if len(sizes) == len(self.files) else None
        self._states = list(map(FileState.from_path, self.paths)) if again else []
        # as the caller named them: files, or the folders in which they were found
        self.source_paths: Sequence[Path] = [Path(path) for path in self.paths]
        self.rows_of_files: list[int] = []  # as the last whole reading has counted them

    def states(self) -> list[FileState]:
        if self.copies is not None:
            raise InputError(f"{self.label}: {keyword('resume')} is for files on a disk")
        return self._states

    def keep_copies(self, copies: Copies) -> None:
        """Keep the files while this is in use, and name them by their URIs."""
        self.copies = copies
        for file in self.files:
            file.name = copies.labels.get(file.path, file.name)
        self.names = [file.name for file in self.files]

    def check_unchanged(self) -> None:
        """Raise InputError if a file is not the one that was there at first."""
        for file, path, before in zip(self.files, self.paths, self._states, strict=True):
            if FileState.from_path(path) != before:
                raise input_error(file.name, None, "changed while it was read")


class Skip:
    """Counts rows at the beginning that are passed over."""

    def __init__(self, count: int) -> None:
        self.remaining = count

    def take(self, count: int) -> int:
        """Return how many of the next rows are passed over."""
        passed = min(self.remaining, count)
        self.remaining -= passed
        return passed

    def finish(self) -> None:
        """Raise InputError if there were fewer."""
        if self.remaining:
            raise InputError(
                f"the input changed: {plural(self.remaining, 'row')} fewer than there were"
            )


class RowFlags:
    """Hands out the flags of successive rows; InputError if the number of rows has changed."""

    def __init__(
        self, flags: Flags, progress: Progress | None = None, phase: str = "copying"
    ) -> None:
        self._flags = flags
        self._done = 0
        self._progress, self._phase = progress, phase

    def take(self, count: int) -> Flags:
        if self._progress is not None:
            self._progress(self._phase, self._done, len(self._flags))
        self._done += count
        if self._done > len(self._flags):
            self._raise_changed()
        return self._flags[self._done - count : self._done]

    def finish(self) -> None:
        """Raise InputError if there were fewer rows than flags."""
        if self._done != len(self._flags):
            self._raise_changed()
        if self._progress is not None:
            self._progress(self._phase, self._done, self._done)

    def _raise_changed(self) -> None:
        raise InputError(
            f"the input changed while it was read: {plural(len(self._flags), 'row')} before, "
            "another number now"
        )


def convert_values(
    values: Iterable[Any], convert: Callable[[Any], Value], row_error: RowError
) -> list[Value]:
    """Return values as something else, one by one.

    The error names the row of one that cannot be.
    """
    out = []
    for place, value in enumerate(values):
        try:
            out.append(convert(value))
        except InputError as error:
            raise row_error(place, str(error)) from None
    return out


def batch_of_values(
    columns: dict[str, Any],
    projection: Projection,
    rule: IdRule | None,
    row_error: RowError,
    typed: bool = True,
) -> Batch:
    """Return rows from Python's values in each column, None where there is none; ``typed``.

    Strings are no integers. A column of texts may be a `TextColumn`.
    """
    known, left_out = np.ones(len(next(iter(columns.values()))), bool), list[OmittedRow]()
    labels = tuple(column_labels(columns[name], name, row_error) for name in projection.labels)
    for group in projection.needed:
        known &= np.logical_or.reduce([_not_null(columns[name]) for name in group])
    if not known.all():
        places = np.flatnonzero(known).tolist()
        if projection.id is not None:
            left_out = [
                OmittedRow(place, id_or_none(columns[projection.id][place]))
                for place in np.flatnonzero(~known).tolist()
            ]
        columns = {
            name: values.filter(known)
            if isinstance(values, TextColumn)
            else list(compress(values, known))
            for name, values in columns.items()
        }
        outer_error, row_error = (
            row_error,
            lambda place, message: outer_error(places[place], message),
        )

    def column_texts(name: str) -> Sequence[str]:
        values = columns[name]
        if isinstance(values, TextColumn) and not projection.roles:
            return values
        return text_values(
            values,
            name,
            projection,
            lambda place, message: row_error(place, f"{name}: {message}"),
        )

    batch = Batch(known=known, row_error=row_error, left_out=left_out, labels=labels)
    if isinstance(projection.text, tuple):
        batch = batch._replace(texts=list(zip(*map(column_texts, projection.text), strict=True)))
    elif projection.text is not None:
        batch = batch._replace(texts=column_texts(projection.text))
    if projection.fingerprint is not None:
        batch = batch._replace(
            fingerprints=column_fingerprints(
                columns[projection.fingerprint], projection.digits, row_error
            )
        )
    if projection.id is not None:
        batch = batch._replace(ids=column_ids(columns[projection.id], rule, row_error, typed))
    if projection.score is not None:
        batch = batch._replace(
            scores=column_scores(columns[projection.score], projection.score, row_error)
        )
    if projection.key is not None:
        keys = column_keys(columns[projection.key], projection.key, projection.key_rule, row_error)
        batch = batch._replace(keys=keys)
    return batch


def _not_null(values: Sequence[Any]) -> Flags:
    """Return which values are not None."""
    if isinstance(values, TextColumn):
        return np.ones(len(values), bool)
    return np.fromiter((value is not None for value in values), bool, len(values))


def id_or_none(value: object) -> int | str | None:
    """Return an integer or a string; None for other values, also for True and False."""
    return value if isinstance(value, (int, str)) and not isinstance(value, bool) else None


def column_fingerprints(values: list[Any], digits: Digits, row_error: RowError) -> Words:
    """Return integers and strings of digits as fingerprints."""
    kinds = set(map(type, values))
    with suppress(InputError, UnicodeEncodeError):  # below, an error names the row
        if kinds == {int}:
            signed = digits.signed and min(values) < 0
            return check_fingerprints(
                [signed_bits(n, digits.width) for n in values] if signed else values, digits.width
            )
        if kinds == {str} and (rows := parse_texts(values, digits)) is not None:
            return rows
    return digits.width.rows(
        convert_values(values, lambda value: _fingerprint(value, digits), row_error)
    )


def column_ids(
    values: list[Any], rule: IdRule | None, row_error: RowError, typed: bool = True
) -> Words | StringColumn:
    """Return integers and strings as ids, with the type that a rule asks for.

    Without a rule, integers among strings become strings.
    """
    try:
        checked: Any = check_ids(values, len(values))
    except InputError:  # an id is wrong, which is named below, or types are mixed
        checked = convert_values(values, _id, row_error)
        if rule is not None and rule.id_type == "auto":
            kinds = [type(value).__name__ for value in checked]
            odd = next(
                (place for place, kind in enumerate(kinds) if kind != (rule.kind or kinds[0])), None
            )
            if odd is not None:
                raise row_error(odd, mixed_ids(kinds[odd])) from None
        checked = list(map(str, checked))
    ids = StringColumn.from_strings(checked) if isinstance(checked, list) else checked
    if rule is None or not values or (not typed and rule.kind is None):
        return ids
    return (
        rule.unify_type(ids, row_error)
        if typed or rule.kind == "str"
        else rule.integers(cast(StringColumn, ids), row_error)
    )


def column_scores(values: Iterable[Any], name: str, row_error: RowError) -> Words:
    """Return numbers, or the digits of some, as keys."""
    return rows_of_keys(
        convert_values(
            values, score_key, lambda place, message: row_error(place, f"{name}: {message}")
        )
    )


def column_keys(values: Iterable[Any], name: str, rule: str, row_error: RowError) -> Words:
    """Return the hashes of the keys of a column."""
    return hash_keys(_labels(values, name, row_error), rule)


def column_labels(values: Iterable[Any], name: str, row_error: RowError) -> Labels:
    """Return the labels of a column with codes."""
    labels = _labels(values, name, row_error)
    try:
        return encode_labels(labels)
    except UnicodeEncodeError as error:
        place = labels.index(str(error.object))
        raise row_error(place, f"{name}: holds half of a surrogate pair") from None


def _labels(values: Iterable[Any], name: str, row_error: RowError) -> list[str | None]:
    """Return strings, integers and None as labels; the error names the row of another value."""
    return convert_values(
        values, label_of, lambda place, message: row_error(place, f"{name}: {message}")
    )


def text_values(
    values: Iterable[Any], name: str, projection: Projection, row_error: RowError
) -> list[Any]:
    """Return the texts of a column: strings, and lists as strings.

    None where one of several columns is null.
    """

    def text(value: object) -> Any:
        if value is None or isinstance(value, str):
            if value is not None and projection.roles and not isinstance(projection.text, tuple):
                raise refuse_string(name)
            return value
        if projection.edits_texts:
            advice = f": {NOT_EDITED}" if isinstance(value, list) else ""
            raise InputError(f"a text must be a string, got {show_json(value)}{advice}")
        return join_parts(value, projection.role_filter, show_json(value))

    return convert_values(values, text, row_error)


def _fingerprint(value: object, digits: Digits) -> int:
    if type(value) is str:
        return read_digits(value, digits)
    if type(value) is not int:
        raise InputError(
            f"{show_json(value)} is not a fingerprint: expected an integer or a string of digits"
        )
    if digits.signed:
        value = signed_bits(value, digits.width)
    if value < 0:
        raise InputError(f"{show(value)} is not a fingerprint: {negative(digits)}")
    return check_fingerprint(value, digits.width)


def _id(value: object) -> int | str:
    if type(value) not in (int, str):
        raise InputError(f"the id {show_json(value)} is neither an integer nor a string")
    return check_id(value)
