"""The verbs that ask a store: ``probe``, ``scan``, ``nearest`` and ``ids``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from fpstore.api import open_store
from fpstore.base.aliases import Words
from fpstore.base.width import Width
from fpstore.cli import content, options
from fpstore.cli.answers import (
    DOCUMENT,
    QUERY_ID,
    ROW,
    QueryBatch,
    Write,
    is_json,
    json_lines_writer,
    rows_writer,
)
from fpstore.cli.content import FINGERPRINTS, PICTURES, ROWS, TEXTS, VECTORS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.verb import Arguments, Decorator, fail, has_output_option, index_module, verb
from fpstore.errors import InputError, plural
from fpstore.io import Chunk, open_writer
from fpstore.io.check import parse_integer_id
from fpstore.io.digits import Digits, check_signed, read_digits
from fpstore.io.files import InputFile, error_location, translate_storage_errors
from fpstore.io.reader import check_format
from fpstore.io.source import format_by_name
from fpstore.query.matches import Matches
from fpstore.query.nearest import scan_advice
from fpstore.store import Store

# read and answered together, in bounded memory; a call of the kernel may take four times as many
CHUNK_QUERIES = 1 << 20
# more would not be faster, and a signal waits until all have met a part of the table
SCANNED_AT_ONCE = 1 << 10
FIRST_QUERIES = 1 << 8
MAX_ROWS = 1 << 20  # of matches held at once, as estimated from the queries before
MATCHED, UNMATCHED, FAILED = 0, 1, 2  # exit codes, as of grep
LIMIT_GUESSES = (
    dict.fromkeys(
        ("-k", "--k", "-n", "--n", "--count"),
        "--limit N writes the N nearest matches within the radius, fpstore nearest -k N the N "
        "nearest at any distance",
    )
    | content.KNOWN_GUESSES
    | options.THRESHOLD_GUESS
)
# What users of other tools call it.
COUNT_GUESSES = dict.fromkeys(
    ("-n", "--n", "--k", "--number", "--top", "--limit"), "-k N, or --count N, says how many"
)
COUNT_GUESSES |= content.KNOWN_GUESSES
LIMIT = option(
    "--limit N",
    "Write only the N nearest matches of each query, and note if there are more.",
    options.COUNT,
)
IDS_INPUT = option(
    "--input FILE",
    "Read one id per line from a file; - is standard input.",
    into="inputs",
    multiple=True,
)
IDS = argument("words", "[ID...]", nargs=-1)


def question(radius: Decorator, most: Decorator) -> tuple[Decorator, ...]:
    return (
        options.STORE,
        argument("words", "[QUERY...]", nargs=-1),
        option(
            "--input FILE",
            "Read queries from a file of rows; - is standard input, whose lines are answered as "
            "they come.",
            multiple=True,
        ),
        radius,
        most,
        option("--with-queries", "Add columns with the row and the id of the query."),
        *content.KNOWN,
        content.ORIENTED,
        *options.ROW_OPTIONS,
        options.OUTPUT,
        options.JSON,
        options.THREADS,
        option(
            "-q --quiet",
            "Write nothing but errors, and stop at the first match: the exit code says whether "
            "there is one.",
            is_eager=True,
        ),
        options.NO_PROGRESS,
    )


@verb(
    *question(
        option(
            "-r --radius N",
            "Largest distance of a match. By default the store's radius.",
            options.RADIUS,
        ),
        LIMIT,
    ),
    guesses=LIMIT_GUESSES,
    failure=FAILED,
)
def probe(args: Arguments) -> int:
    """Find all stored fingerprints within the radius.

    A QUERY is a fingerprint; or, if the store was built of texts, pictures or vectors, a file or
    folder of them: the store knows how to make fingerprints, and - is a text or picture on standard
    input. --input reads rows of fingerprints, or with --text-field of texts.

    Writes a line `query fingerprint distance id` per id of each match, separated by tabs. With
    --json, writes an object per query: {"query": ..., "matches": [{"fingerprint": ..., "distance":
    ..., "ids": [...]}]}. The object begins with "document", the path of a text or picture, or for
    --input with "row", the number of the query from 0 on, and "query_id" if it has an id. Parquet
    has these fields as columns; lines have them with --with-queries. With --limit, objects have
    "more": whether there are more matches.

    Lines that come through a pipe, a socket or a terminal are answered at once. So a program can
    hold this command open, write a line and read a line: with --json, each query has an object,
    even without a match.

    A radius above the store's is answered by a scan, with a note of what to build instead. The exit
    code is 0 if a query has a match, 1 if none has, and 2 after an error.

    In place of a store, an LSH index takes files of texts, or with --input and --text-field the
    texts of rows. It writes a line `query id similarity` per match, the most similar first. The
    query is the path, the id of the row or, without --id-field, its number. The similarity is
    estimated by signatures, in which a match differs by at most --radius bits. With --json, objects
    are {"query": ..., "matches": [{"id": ..., "similarity": ...}]}.

    $ fpstore probe crawl.fps 9d3a5b1c00f7e642 0x2a --radius 2
    $ fpstore probe notes.fps draft.txt
    $ fpstore probe crawl.fps --input queries.npy --limit 10 --json
    $ fpstore probe crawl.fps --decimal --signed --quiet -- -1
    $ fpstore probe crawl.fps --input queries.npy --output matches.parquet --threads 2 --no-progress
    $ cut -f 1 crawl.tsv | fpstore probe crawl.fps --input - --format txt
    $ fpstore probe crawl.fps --input crawl.jsonl --fingerprint-field hash --id-field url \
        --id-type str --json
    $ fpstore probe crawl.fps --input new.tsv --with-queries
    $ fpstore probe crawl.fps --input new.tsv --output matches.parquet
    $ head -n 3 new.tsv | fpstore probe crawl.fps --input -
    $ fpstore probe notes.fps --fingerprints 9d3a5b1c00f7e642
    $ fpstore probe notes.fps notes --suffix .txt --encoding utf-8 --json
    $ fpstore probe notes.fps --input corpus.parquet --text-field text --id-field id
    $ fpstore probe vectors.fps embeddings.parquet --vector-field embedding --id-field name --json
    $ fpstore probe photos.fps new.png
    $ fpstore probe photos.fps new.png --orientations 8
    $ fpstore probe pages.lsh draft.txt
    $ fpstore probe titled.lsh --input corpus.parquet --text-field text --id-field id --json
    """
    if index := index_module(args):
        code: int = index.probe(args)
        return code
    with open_store(args.store) as opened:
        radius = opened.radius if args.radius is None else args.radius
        scanning = scan_notice(opened, args)
        ask = opened.scan if scanning else opened.probe_many
        return _run(
            opened,
            args,
            partial(ask, radius=radius, threads=args.threads, limit=args.limit),
            scanning,
        )


@verb(
    *question(
        option(
            "-r --radius N",
            "Largest distance of a match, up to the store's width.",
            options.RADIUS,
            required=True,
        ),
        LIMIT,
    ),
    guesses=LIMIT_GUESSES,
    failure=FAILED,
)
def scan(args: Arguments) -> int:
    """Find matches within any radius, without look-ups.

    The first table is read once for many queries. The time grows with the number of stored
    fingerprints and the number of queries. Queries, output and exit codes are as in fpstore probe.
    With --limit, memory is bounded however many matches there are.

    $ fpstore scan crawl.fps 9d3a5b1c00f7e642 --radius 12
    $ fpstore scan crawl.fps --input queries.npy -r 30 --limit 5
    $ fpstore scan notes.fps notes --suffix .txt -r 16
    """
    with open_store(args.store) as opened:
        answer = partial(opened.scan, radius=args.radius, threads=args.threads, limit=args.limit)
        return _run(opened, args, answer, scanning=True)


@verb(
    *question(
        option(
            "-r --max-radius N",
            "Largest distance of a match. By default any.",
            options.RADIUS,
            into="radius",
        ),
        option("-k --count N", "Number of fingerprints per query.", options.COUNT, 1),
    ),
    guesses=COUNT_GUESSES,
    failure=FAILED,
)
def nearest(args: Arguments) -> int:
    """Find the nearest stored fingerprints.

    The nearest fingerprints are found at any distance from a QUERY. At equal distances, the
    smallest come first. Small radii are looked up. A query that has too few matches there is
    answered by a scan. Queries, output and exit codes are as in fpstore probe.

    $ fpstore nearest crawl.fps 9d3a5b1c00f7e642
    $ fpstore nearest crawl.fps 9d3a5b1c00f7e642 0x2a --count 10 --max-radius 16
    $ fpstore nearest notes.fps draft.txt -k 2
    $ fpstore nearest crawl.fps --input new.tsv -k 5 --json
    """
    with open_store(args.store) as opened:
        answer = partial(
            opened.nearest_many, count=args.count, max_radius=args.radius, threads=args.threads
        )
        return _run(opened, args, answer, scanning=True)


def scan_notice(store: Store, args: Arguments) -> bool:
    """Return whether a probe is a scan, as its radius is above the store's, with a note."""
    options.check_radius_option(args.radius, store.width)
    if args.radius is None or args.radius <= store.radius:
        return False
    args.note(scan_advice(len(store), store.radius, args.radius, Width(store.width)))
    return True


def _run(store: Store, args: Arguments, answer: Callable[[Words], Matches], scanning: bool) -> int:
    """Answer all queries in bounded memory; return the exit code.

    If quiet, stop at the first match.
    """
    if args.quiet:
        args.refuse("does not go with --quiet, which writes nothing", "output")
    options.check_radius_option(args.radius, store.width)
    queries = _queries(args, store)
    # queries, those of them with more matches than the limit, and whether any has one
    done, cut_off, has_match = 0, 0, False
    with ExitStack() as stack:
        bars = stack.enter_context(
            args.bars(queries.chunks if hasattr(queries.chunks, "bytes_total") else None)
        )
        chunks = iter(queries.chunks)
        first = list(islice(chunks, 1))  # it shows whether the queries have ids
        with_ids = first[0].ids is not None if first else queries.kind in (TEXTS, PICTURES, VECTORS)
        writer = nullcontext() if args.quiet else _writer(args, queries.kind, with_ids, store.width)
        write = stack.enter_context(writer)
        for matches in _answer_batches(
            chain(first, chunks),
            SCANNED_AT_ONCE if scanning else CHUNK_QUERIES,
            _united(answer, args) if args.orientations > 1 else answer,
            write,
            args.orientations,
        ):
            done, cut_off, has_match = (
                done + len(matches),
                cut_off + int(matches.more.sum()),
                has_match or len(matches.rows) > 0,
            )
            if has_match and args.quiet:
                return MATCHED
            bars("scanning" if scanning else "probing", done, queries.total)
    queries.notices.report(args)
    if cut_off and hasattr(args, "limit"):
        count = f"{cut_off:,} {'query has' if cut_off == 1 else 'queries have'}"
        args.note(f"{count} more matches than --limit {args.limit}: only the nearest are written")
    return MATCHED if has_match else UNMATCHED


def _answer_batches(
    chunks: Iterable[Chunk | QueryBatch],
    most: int,
    answer: Callable[[Words], Matches],
    write: Write | None,
    variants: int,
) -> Iterator[Matches]:
    """Answer and write batches of queries; yield the matches.

    Successive rows are the ``variants`` of a query. Batches grow while queries have few matches,
    and shrink while they have many.
    """
    at_once = FIRST_QUERIES
    for chunk in chunks:
        start, queries = 0, QueryBatch.from_chunk(chunk)
        while start < len(chunk.fingerprints):
            batch = queries.slice(start, start + at_once)
            matches = answer(batch.fingerprints)
            if variants > 1:
                batch = batch.slice(0, None, variants)
            rows = len(matches.rows) if write is None else write(batch, matches)
            yield matches
            start += at_once
            if rows > MAX_ROWS:
                at_once = max(variants, at_once // 4)
            elif rows < MAX_ROWS // 8:
                at_once = min(most, at_once * 4)


def _united(answer: Callable[[Words], Matches], args: Arguments) -> Callable[[Words], Matches]:
    """Return a function whose answers unite the orientations of each picture."""
    limit = args.count if hasattr(args, "count") else args.limit
    return lambda queries: answer(queries).unite(args.orientations, limit=limit)


def _writer(
    args: Arguments, kind: str, with_ids: bool, width: int
) -> AbstractContextManager[Write | None]:
    format_name = "jsonl" if is_json(args.output, args.as_json) else check_format(args.output, None)
    row = [ROW] if args.input or args.with_queries else []
    name_column = DOCUMENT if kind in (TEXTS, PICTURES) else QUERY_ID
    if format_name == "jsonl":
        limited = getattr(args, "limit", None) is not None
        return json_lines_writer(args.output, width, [*row, name_column], limited)
    columns = [*row, *([name_column] if with_ids else [])]
    return rows_writer(
        args.output,
        width,
        columns if args.with_queries or format_name == "parquet" else [],
    )


# The queries


class _Queries(NamedTuple):
    """Queries in chunks, their kind, and their number if it is known."""

    kind: str
    chunks: Any
    notices: Notices
    total: int | None = None


def _queries(args: Arguments, store: Store) -> _Queries:
    if not args.words and not args.input:
        fail("give fingerprints, files or --input FILE")
    words = _parse_words(args, store)
    kind, fingerprinter, columns = FINGERPRINTS, Width(store.width, stored=True), None
    fields = not content.has_fingerprints(args, store) and store.fingerprinter["name"] == "fields"  # type: ignore[index]
    if words is None:
        kind, fingerprinter, columns = content.store_inputs(args, store)
        if kind == ROWS:
            fail("the texts of rows are in files that --input names, with --text-field")
        args.refuse(f"does not go with {kind}", "input")
    elif args.text_field is not None or (fields and args.input and not len(words)):
        if len(words) or not args.input:
            fail(
                "--text-field names a column of --input, and does not go with fingerprints as "
                "arguments"
            )
        kind, fingerprinter, columns = content.store_inputs(args, store)
    content.refuse_options_of_other_kinds(args, kind)
    notices = Notices(kind, args.left_out)
    if words is None:
        return _Queries(
            kind, content.open_files(args, kind, args.words, fingerprinter, notices), notices
        )
    if kind == ROWS:
        reader = content.open_inputs(
            args, kind, args.input, fingerprinter, notices, columns, chunk_rows=content.CHUNK_ROWS
        )
        placed = (
            QueryBatch(chunk[0], None if reader.row_numbers else chunk[1], places)
            for chunk, places, *_ in reader.numbered_chunks()
        )
        return _Queries(kind, placed, notices)
    if len(words) or not args.input:
        args.refuse(
            "is for --input, and does not go with fingerprints as arguments, which have no ids",
            "id_field",
            "id_type",
        )
    if not args.input:
        return _Queries(kind, [Chunk(words, None)], notices, len(words))
    reading = {"chunk_rows": CHUNK_QUERIES, "unbuffered": True}
    reader = content.open_inputs(args, kind, args.input, fingerprinter, notices, **reading)
    if (
        None not in (reader.fingerprinter, store.fingerprinter)
        and reader.fingerprinter != store.fingerprinter
    ):
        args.note(
            "the queries and the store have fingerprints that were made in different ways, so "
            "distances may mean nothing"
        )
    if not len(words):
        return _Queries(kind, reader, notices, reader.rows)
    # Without ids, which fingerprints of the command line do not have.
    chunks = chain([Chunk(words, None)], (Chunk(chunk.fingerprints, None) for chunk in reader))
    return _Queries(
        kind, chunks, notices, None if reader.rows is None else reader.rows + len(words)
    )


def _parse_words(args: Arguments, store: Store) -> Any:
    """Return the fingerprints of the command line; None if the words are files."""
    or_files, expected = not content.has_fingerprints(args, store), _digits(args, store.width)
    if or_files and args.words and not any(_is_fingerprint(word, expected) for word in args.words):
        missing = next(
            (word for word in args.words if word != "-" and not Path(word).exists()), None
        )
        if missing is None:
            return None
        parse_words(
            [missing],
            args,
            store.width,
            ", and there is no such file; for a text, - is standard input",
        )
    return parse_words(
        args.words,
        args,
        store.width,
        " (a file? give fingerprints or files, not both)" if or_files else "",
    )


def _is_fingerprint(word: str, expected: Digits) -> bool:
    with suppress(InputError):
        read_digits(word, expected)
        return True
    return False


def _digits(args: Arguments, bits: int) -> Digits:
    width = Width(bits, stored=True)
    return Digits(width, args.decimal, check_signed(getattr(args, "signed", False), width))


def parse_words(words: Sequence[str], args: Arguments, bits: int, hint: str = "") -> Any:
    """Return fingerprints of a width; any other word is a usage error."""
    expected, width, read = _digits(args, bits), Width(bits, stored=True), []
    for word in words:
        try:
            read.append(read_digits(word, expected))
        except InputError as error:
            fail(f"{error}{hint or _hint(word)}")
    return width.to_array(width.rows(read))


def _hint(word: str) -> str:
    try:
        if word and Path(word).exists():
            return (
                "; --input is for files of fingerprints; texts, pictures and vectors need a store "
                "built of them"
            )
    except (OSError, ValueError):
        return ""
    if has_output_option(click.get_current_context().command) and format_by_name(word):
        return "; --output names the file to write, --input a file of fingerprints"
    return ""


# Ids


def read_ids(of_strings: bool, words: Sequence[str], inputs: Sequence[str] = ()) -> Any:
    """Return ids of arguments and of lines of files, as a list of strings or integers.

    A line ends with a line feed: an id may contain other line breaks of Unicode.
    """
    ids: list[Any] = [
        word if of_strings else parse_integer_id(word.strip(), plain=False) for word in words
    ]
    for path in inputs:
        file = InputFile(path)
        with file.open() as stream, translate_storage_errors(file.name):
            data = stream.read()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{file.name}: not UTF-8 text ({error.reason})", path=file.name
            ) from error
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        if of_strings:
            ids += filter(None, lines)
            continue
        for number, line in enumerate(lines, 1):
            with error_location(file.name, number):
                ids += [parse_integer_id(line.strip(), plain=False)] if line else []
    return ids


@verb(options.STORE, IDS, IDS_INPUT, options.OUTPUT, options.JSON, *options.TALK)
def ids(args: Arguments) -> None:
    """Find the fingerprints of ids.

    Writes a line `fingerprint id` for each fingerprint of each ID, in the order of the ids,
    separated by tabs; with --json, an object per line. To find integer ids, the id map is read once
    per call, so give many at a time, unless the store was built with --index-ids. Ids that are not
    stored have no line; a note on standard error counts them, and the exit code is 0. With --input,
    each line is an id, unchanged; an id that contains a line feed must be an argument.

    $ fpstore ids crawl.fps far small
    $ fpstore ids crawl.fps --input gone.txt --output gone.parquet
    $ find notes -type f | fpstore ids notes.fps --input - --quiet
    """
    if not args.words and not args.inputs:
        fail("give ids, or --input FILE")
    format_name = "jsonl" if is_json(args.output, args.as_json) else check_format(args.output, None)
    with open_store(args.store) as opened:
        width = opened.width
        of_strings = opened.snapshot().totals.id_kind == "string"
        wanted_ids = read_ids(of_strings, args.words, args.inputs)
        lims, fingerprints = opened.fingerprints_of(wanted_ids)
    sizes = np.diff(lims)
    rows: Any = [
        wanted_id
        for wanted_id, size in zip(wanted_ids, sizes.tolist(), strict=True)
        for _ in range(size)
    ]
    with open_writer(
        args.output, format=format_name, columns=["fingerprint", "id"], width=width
    ) as writer:
        writer.write({"fingerprint": fingerprints, "id": rows})
    note_missing(args, int(np.count_nonzero(sizes == 0)), "id")


def note_missing(args: Arguments, count: int, noun: str) -> None:
    if count:
        args.note(f"{args.store}: {plural(count, noun)} {'is' if count == 1 else 'are'} not stored")
