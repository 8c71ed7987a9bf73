"""The common part of `probe`, `scan` and `nearest`: sources of queries, sizes of batches, output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from fpstore.base.aliases import Words
from fpstore.base.resources import parse_threads
from fpstore.base.width import Width
from fpstore.cli import documents, images, types, vectors
from fpstore.cli.match_writers import Asked, QueryColumns, Write, is_json, json_lines_writer, rows_writer
from fpstore.cli.options import (
    ID_PARAMETERS,
    ROW_PARAMETERS,
    Decorator,
    Rows,
    Talk,
    check_output,
    ends_with_null,
    grouped,
    json_lines_option,
    null_option,
    output_option,
    refuse,
    rename_option,
    row_options,
    search_talk_options,
    store_argument,
    threads_option,
)
from fpstore.cli.progress import Bars
from fpstore.cli.texts import CHUNK_ROWS, READING_PARAMETERS, Texts, text_options
from fpstore.cli.verb import names_output
from fpstore.errors import InputError
from fpstore.io import FORMATS, Chunk, open_reader
from fpstore.io.digits import Digits, check_signed, read_digits
from fpstore.io.reader import format_of, format_of_input
from fpstore.io.source import LINE_FORMATS
from fpstore.query.matches import Matches
from fpstore.query.nearest import scan_advice
from fpstore.store import Store

CHUNK_QUERIES = 1 << 20  # read and answered together, in bounded memory; a call of the kernel may take four times as many
SCANNED_AT_ONCE = 1 << 10  # more would not be faster, and a signal waits until all have met a part of the table
FIRST_QUERIES = 1 << 8
MOST_ROWS = 1 << 20  # of matches held at once, as estimated from the queries before
MATCHED, UNMATCHED = 0, 1  # exit codes, as those of grep
LIMIT_GUESSES = dict.fromkeys(
    ("-k", "--k", "-n", "--n", "--count"),
    "--limit N writes the N nearest matches within the radius, fpstore nearest -k N the N nearest at any distance",
)
_OPTIONS = {"texts": "--text", "rows": "--text-field", "pictures": "--image", "vectors": "--vector"}  # by what is hashed


@dataclass(frozen=True)
class Queries:
    """The queries and their options."""

    words: tuple[str, ...]
    input: tuple[str, ...]
    with_queries: bool
    text: bool
    image: bool
    texts: Texts
    vector: bool
    vector_field: str | None
    null: bool

    @property
    def of_files(self) -> bool:
        """Whether each file is a query, whose path is its id."""
        return self.text or self.image

    @property
    def have_ids(self) -> bool:
        """Whether each query has an id for sure."""
        return self.of_files or self.vector


query_options = grouped(
    "queries",
    Queries,
    click.argument("words", metavar="[FP...]", nargs=-1),
    click.option(
        "--input", multiple=True, metavar="FILE",
        help="Read queries from a file; - is standard input, whose lines are answered as they come. May be repeated.",
    ),
    click.option("--with-queries", is_flag=True, help="Add columns with the row and the id of the query."),
    click.option(
        "--text", is_flag=True,
        help="FP... are text files, folders of them, or - for standard input; "
        "make fingerprints in the same way as the store's.",
    ),
    click.option("--image", is_flag=True, help="The same with pictures."),
    text_options,
    click.option(
        "--vector", is_flag=True,
        help="FP... are .npy or .parquet files of vectors; make fingerprints in the same way as the store's.",
    ),
    vectors.vector_field_option,
    null_option("Lines of --input and of the output"),
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """The arguments of these verbs: a store, queries, which matches, and the output for them."""

    store: str
    queries: Queries
    radius: int | None
    most: int | None
    rows: Rows
    output: str
    as_json: bool
    names: dict[str, str]
    threads: int | None
    talk: Talk


limit_option = click.option(
    "--limit",
    "most",
    type=types.COUNT,
    metavar="N",
    help="Write only the N nearest matches of each query, and note if there are more.",
)


def request_options(most: Decorator = limit_option, name: str = "--radius", **radius: Any) -> Decorator:
    """Return the options of these verbs, which the function receives as ``request``; ``radius`` has the settings of -r."""
    return grouped(
        "request",
        Request,
        store_argument,
        query_options,
        click.option("-r", name, "radius", type=types.RADIUS, metavar="N", **radius),
        most,
        row_options,
        output_option("Where to write the matches: .tsv, .csv, .jsonl or .parquet", _check_output),
        json_lines_option,
        rename_option,
        threads_option,
        search_talk_options,
    )


def _check_output(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    return value if ctx.params["quiet"] else check_output(ctx, parameter, value)  # nothing is written to it


def run(store: Store, request: Request, answer: Callable[[Words], Matches], scanning: bool) -> int:
    """Answer all queries and write the matches, in bounded memory; return the exit code: 0 if there is a match, else 1.

    If it is quiet, write nothing, and stop at the first match.
    """
    if request.talk.quiet:
        refuse({"output"}, "does not go with --quiet, which writes nothing")
    types.usage_error_for_radius(request.radius, store.width)
    notices, zeros = request.queries.texts.notices(), vectors.ZeroVectors()
    chunks: Any
    chunks, total = (
        (_pictures(store, request, notices), None)
        if request.queries.image
        else _chunks(store, request.queries, request.rows, notices, zeros, request.threads)
    )
    json_lines = is_json(request.output, request.as_json)
    so_far = _SoFar()
    with ExitStack() as stack:
        bars = stack.enter_context(Bars(request.talk.bars, chunks if hasattr(chunks, "bytes_total") else None))
        begun = iter(chunks)
        first = list(islice(begun, 1))  # it tells whether the queries have ids
        with_ids = first[0].ids is not None if first else request.queries.have_ids or "query_id" in request.names
        writer = nullcontext(_count) if request.talk.quiet else _writer(request, json_lines, with_ids, store.width)
        write = stack.enter_context(writer)
        for part in _parts(chain(first, begun), SCANNED_AT_ONCE if scanning else CHUNK_QUERIES, so_far):
            matches = answer(part.fingerprints)
            so_far.add(matches, write(part, matches))
            if so_far.found and request.talk.quiet:
                return MATCHED
            bars("scanning" if scanning else "probing", so_far.queries, total)
    notices.report(request.talk)
    zeros.report(request.talk)
    if so_far.cut_off:
        few = f"{so_far.cut_off:,} {'query has' if so_far.cut_off == 1 else 'queries have'}"
        request.talk.note(f"{few} more matches than --limit {request.most}: only the nearest are written")
    return MATCHED if so_far.found else UNMATCHED


@dataclass
class _SoFar:
    """What has been answered."""

    queries: int = 0
    cut_off: int = 0  # queries with more matches than the limit
    found: bool = False
    rows: int = 0  # of the last part

    def add(self, matches: Matches, rows: int) -> None:
        self.queries += len(matches)
        self.cut_off += 0 if matches.more is None else int(matches.more.sum())
        self.found = self.found or len(matches.fingerprints) > 0
        self.rows = rows


def _parts(chunks: Iterable[Chunk | Asked], most: int, so_far: _SoFar) -> Iterator[Asked]:
    """Yield the queries to answer at once: more while they have few matches, fewer while they have many."""
    at_once = FIRST_QUERIES
    for chunk in chunks:
        start, asked = 0, Asked(*chunk)
        while start < len(chunk.fingerprints):
            end = start + at_once
            yield asked.slice(start, end)
            start = end
            if so_far.rows > MOST_ROWS:
                at_once = max(1, at_once // 4)
            elif so_far.rows < MOST_ROWS // 8:
                at_once = min(most, at_once * 4)


def _count(queries: Asked, matches: Matches) -> int:
    """Write nothing."""
    return len(matches.fingerprints)


def scan_notice(store: Store, radius: int | None, talk: Talk) -> bool:
    """Whether a probe of this radius is a scan since the radius is above the store's; if so, say what to build instead."""
    types.usage_error_for_radius(radius, store.width)
    if radius is None or radius <= store.radius:
        return False
    talk.note(scan_advice(len(store), store.radius, radius, Width(store.width)))
    return True


def _chunks(
    store: Store,
    queries: Queries,
    rows: Rows,
    notices: documents.Notices,
    zeros: vectors.ZeroVectors,
    threads: int | None,
) -> tuple[Any, int | None]:
    """Return chunks of queries (texts have their paths as ids), and their number if it is known."""
    if queries.vector:
        refuse({"text", "suffix", "input", "text_field", *READING_PARAMETERS}, "does not go with --vector")
        if not queries.words:
            raise click.UsageError("--vector needs a file", click.get_current_context())
        made = fingerprinter_of(store, "vectors")
        return vectors.reader(queries.words, made, queries.vector_field, rows, zeros), None
    refuse({"vector_field"}, "needs --vector")
    if queries.text:
        refuse(ROW_PARAMETERS | {"input", "text_field"}, "does not go with --text")
        if not queries.words:
            raise click.UsageError("--text needs a file", click.get_current_context())
        made, reading = fingerprinter_of_texts(store, queries.texts), {"threads": parse_threads(threads), **queries.texts.reading}
        return documents.chunks(queries.words, made, queries.texts.suffix, notices, **reading), None
    refuse(documents.FOLDER_PARAMETERS, "needs --text")
    if queries.texts.text_field is not None:
        return _texts_of_rows(store, queries, rows, notices, threads), None
    refuse(READING_PARAMETERS, "needs --text or --text-field")
    if not queries.words and not queries.input:
        raise click.UsageError("give fingerprints, --input FILE or --text FILE", click.get_current_context())
    if queries.words or not queries.input:
        refuse(ID_PARAMETERS, "is for --input, and does not go with fingerprints as arguments, which have no ids")
    given = parse_words(queries.words, rows.decimal, store.width, rows.signed)
    if not queries.input:
        return [Chunk(given, None)], len(given)
    stored = Width(store.width, stored=True)
    null = queries.null and _have_lines(queries.input, rows)
    reader = open_reader(queries.input, chunk_rows=CHUNK_QUERIES, width=stored, unbuffered=True, null=null, **rows.arguments)
    if not len(given):
        return reader, reader.rows
    total = None if reader.rows is None else reader.rows + len(given)
    return _joined(given, reader), total


def _texts_of_rows(
    store: Store, queries: Queries, rows: Rows, notices: documents.Notices, threads: int | None
) -> Iterator[Asked]:
    """Return the texts of columns as queries."""
    if queries.words or not queries.input:
        raise click.UsageError(
            "--text-field names a column of --input, and does not go with fingerprints as arguments", click.get_current_context()
        )
    refuse({"null"}, "does not go with --text-field")
    options = {"threads": threads, "chunk_rows": CHUNK_ROWS}
    reader = queries.texts.row_reader(queries.input, fingerprinter_of_texts(store, queries.texts), rows, notices, **options)
    return (Asked(chunk.fingerprints, None if reader.row_numbers else chunk.ids, places) for chunk, places, _ in reader.placed())


def _pictures(store: Store, request: Request, notices: documents.Notices) -> Iterator[Chunk]:
    """Return chunks of the fingerprints of pictures, with their paths as ids."""
    queries = request.queries
    refuse(
        ROW_PARAMETERS | {"input", "text", "vector", "vector_field", "text_field", *READING_PARAMETERS},
        "does not go with --image",
    )
    if not queries.words:
        raise click.UsageError("--image needs a file", click.get_current_context())
    return images.chunks(queries.words, fingerprinter_of(store, "pictures"), queries.texts.suffix, notices, request.threads)


def _joined(given: Any, reader: Any) -> Iterator[Chunk]:
    """Yield the fingerprints of the command line, then those of files: without ids, which the first ones do not have."""
    yield Chunk(given, None)
    for chunk in reader:
        yield Chunk(chunk.fingerprints, None)


def parse_words(words: Sequence[str], decimal: bool, bits: int, signed: bool = False) -> npt.NDArray[Any]:
    """Read fingerprints of a store's width from the command line; anything else is a usage error."""
    width = Width(bits, stored=True)
    return width.outside(width.rows(_parse_word(word, Digits(width, decimal, check_signed(signed, width))) for word in words))


def _parse_word(word: str, expected: Digits) -> int:
    try:
        return read_digits(word, expected)
    except InputError as error:
        ctx, hint = click.get_current_context(), ""
        with suppress(OSError, ValueError):
            if word and Path(word).exists():
                hint = "; --text is for text files, --image for pictures, --input for files of fingerprints"
            elif names_output(ctx.command) and Path(word).suffix.lower().removeprefix(".") in FORMATS:
                hint = "; --output names the file to write, --input a file of fingerprints"
        raise click.UsageError(f"{error}{hint}", ctx) from None


def origin_notice(store: Store, name: str, those: str, talk: Talk) -> None:
    """Note that the origin of added fingerprints is unknown, where a store remembers how its own are made."""
    if store.fingerprinter is not None:
        made = store.fingerprinter["name"]
        unknown = f"nothing says how the fingerprints of {those} were made: they may not fit"
        talk.note(f"{name}: the store has fingerprints made by {made}; {unknown}")


def merge_notice(store: Store, name: str, talk: Talk) -> None:
    """Note that a store that is open for writing should be merged, if it should."""
    from fpstore.change.merging import merge_advice

    advice = merge_advice(store.snapshot(), name)
    if advice is not None:
        talk.note(advice)


def fingerprinter_of(store: Store, items: str = "texts") -> Any:
    """Return the fingerprinter of a store, which is one of texts, of pictures or of vectors."""
    from fpstore.hashing import from_description

    if store.fingerprinter is None:
        raise InputError(
            f"{store.path}: this store does not know how its fingerprints were made, so it takes no {items}: "
            f"give it fingerprints, or build it with {_OPTIONS[items]}",
            path=store.path,
        )
    made = from_description(store.fingerprinter)
    if items == "rows" and made.items == "texts":
        return made  # one column of the rows
    if made.items != items:
        raise InputError(
            f"{store.path}: the fingerprints of this store were made of {made.items} ({made.name}), so it takes no {items}: "
            f"give it {made.items} with {_OPTIONS[made.items]}",
            path=store.path,
        )
    return made


def fingerprinter_of_texts(store: Store, texts: Texts) -> Any:
    """Return the fingerprinter of texts of a store, which says whether they are pages; InputError if --html contradicts it."""
    from fpstore.hashing import MainText
    from fpstore.hashing.html import EXTRACTORS

    made = fingerprinter_of(store, "texts" if texts.text_field is None else "rows")
    found = made.extractor if isinstance(made, MainText) else None
    if texts.html not in (None, found):
        of = "texts as they are" if found is None else f"the main texts that {found} finds"
        option = "--html" if texts.html == EXTRACTORS[0] else "--html-fast"
        raise InputError(
            f"{store.path}: the fingerprints of this store were made of {of}, and {option} makes others: "
            f"leave it out, or build the store with {option}",
            path=store.path,
        )
    return made


def _writer(request: Request, json_lines: bool, with_ids: bool, width: int) -> AbstractContextManager[Write]:
    queries, names = request.queries, request.names
    query_columns = QueryColumns(bool(queries.input) or queries.with_queries, "document" if queries.of_files else "query_id")
    form = "jsonl" if json_lines else format_of(request.output, None)
    null = ends_with_null(queries.null, _have_lines(queries.input, request.rows), form)
    if json_lines:
        return json_lines_writer(request.output, width, query_columns, names, null)
    columns = [*(["row"] if query_columns.row else []), *([query_columns.id] if with_ids else [])]
    return rows_writer(request.output, width, columns if queries.with_queries or form == "parquet" else [], names, null)


def _have_lines(inputs: Sequence[str], rows: Rows) -> bool:
    return any(format_of_input(path, rows.format) in LINE_FORMATS for path in inputs)
