"""``fpstore insert``."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from fpstore.base.width import Width
from fpstore.cli import documents, images, match_writers, queries, types, vectors
from fpstore.cli.match_writers import Asked
from fpstore.cli.options import (
    Rows,
    Talk,
    grouped,
    json_option,
    output_option,
    refuse,
    row_options,
    store_argument,
    talk_options,
    threads_option,
)
from fpstore.cli.output import complain, print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.signals import Interrupted
from fpstore.cli.texts import READING_PARAMETERS, Texts, check_text_usage, text_options
from fpstore.cli.verb import Verb
from fpstore.disk.refusals import NOTHING_CHANGED
from fpstore.errors import FpstoreError, InputError, ScanWarning, counted
from fpstore.io import Chunk, open_reader

if TYPE_CHECKING:
    from fpstore.hashing import TextReader
    from fpstore.store import Store

CHUNK_ROWS = 1 << 16
UNMATCHED_PARAMETERS = {"radius", "output", "threads", "with_queries"}
UPSERT_NEEDS_IDS = "--upsert needs an id in each row: without ids, rows cannot replace others"


@dataclass(frozen=True)
class Contents:
    """What inputs hold, if not fingerprints, and how it is read."""

    text: bool
    image: bool
    vector: bool
    vector_field: str | None
    texts: Texts

    @property
    def of_rows(self) -> bool:
        """Whether inputs have a column of texts."""
        return self.texts.text_field is not None


contents_options = grouped(
    "contents",
    Contents,
    click.option(
        "--text", is_flag=True, help="Inputs are text files or folders; make fingerprints in the same way as the store's."
    ),
    click.option("--image", is_flag=True, help="Inputs are pictures or folders of them; make fingerprints in the same way."),
    click.option(
        "--vector", is_flag=True, help="Inputs are .npy or .parquet files of vectors; make fingerprints in the same way."
    ),
    vectors.vector_field_option,
    text_options,
)


@click.command(cls=Verb)
@store_argument
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--unmatched",
    is_flag=True,
    help="Insert only rows without a match in the store or earlier in the input; write the matches of the others.",
)
@click.option(
    "--upsert",
    is_flag=True,
    help="Take each id from the fingerprints that had it: the documents have changed. Of equal ids in the input, the last wins.",
)
@click.option(
    "-r",
    "--radius",
    type=types.RADIUS,
    metavar="N",
    help="With --unmatched, the largest distance of a match, up to the width; by default the store's radius.",
)
@output_option("With --unmatched, where to write the matches: .tsv, .csv, .jsonl or .parquet")
@click.option("--with-queries", is_flag=True, help="With --unmatched, add a column with the id of the row that matched.")
@row_options
@contents_options
@click.option(
    "--sync",
    type=click.Choice(["commit", "batch", "none"]),
    default="commit",
    show_default=True,
    help="commit: each chunk of rows is durable before the next is read; batch, none: larger groups.",
)
@click.option(
    "--merge-at",
    type=types.SHARE,
    metavar="SHARE",
    help="Merge whenever the delta reaches this share of the tables, such as 0.1, and 65,536 changes; at the latest at the end.",
)
@threads_option
@talk_options
@json_option
def insert(
    store: str,
    inputs: Sequence[str],
    unmatched: bool,
    upsert: bool,
    radius: int | None,
    output: str,
    with_queries: bool,
    rows: Rows,
    contents: Contents,
    sync: str,
    merge_at: float | None,
    threads: int | None,
    talk: Talk,
    as_json: bool,
) -> None:
    """Add fingerprints, texts, pictures or vectors.

    INPUT is as for fpstore build. When this returns, the rows are durable, and every process that has the store open finds
    them. Inserts are in a log beside the tables until fpstore merge. An id that is already stored keeps its old fingerprint,
    too. With --upsert the id moves to the new fingerprint: such rows, and rows with new ids, are counted as changed.

    Texts, pictures and vectors get fingerprints in the way that the store remembers from its build. Where rows have no ids,
    their numbers go on from the numbers in the store.

    With --unmatched, a row is inserted only if the store has nothing within the radius. The matches of the other rows are
    written as lines `query fingerprint distance id`. With --json, each row has one object on standard output: {"row": ...,
    "query_id": ..., "query": ..., "matches": [...], "inserted": true or false}. The row itself is no match.

    With --unmatched, lines that come through a pipe, a socket or a terminal are answered at once: a program can write a line,
    read a line, and so on. An answer is written when its row is in the store. With --sync commit the row is durable
    then, with --sync batch within 0.1 seconds.

    Rows are inserted in chunks of at most 65,536. After an error or Ctrl-C, the chunks before stay inserted, and FILE is not
    written. Repeat the command: a row with its id is not added twice, and FILE gets the matches of all rows. Where ids
    are row numbers, insert only the rows that are not in.

    $ fpstore insert crawl.fps new.tsv
    $ fpstore insert crawl.fps new.tsv --unmatched --with-queries
    $ cat new.tsv | fpstore insert crawl.fps - --unmatched --json --quiet
    $ fpstore insert crawl.fps new.tsv --unmatched --radius 2 --output duplicates.tsv --threads 1
    $ fpstore insert crawl.fps new.jsonl --fingerprint-field hash --id-field url --id-type str
    $ cut -f 1,2 new.tsv | fpstore insert crawl.fps - --format tsv --sync batch --merge-at 0.1 --quiet
    $ fpstore insert crawl.fps new.csv --decimal
    $ fpstore insert crawl.fps signed.csv --decimal --signed
    $ fpstore insert crawl.fps new.tsv --upsert
    $ fpstore insert notes.fps notes --text --suffix .txt --json --no-progress
    $ fpstore insert notes.fps draft.txt --text --encoding utf-8
    $ fpstore insert site.fps site --text --html
    $ fpstore insert notes.fps corpus.parquet --text-field text --id-field id
    $ fpstore insert titled.fps corpus.parquet --text-field title=4 --text-field text --id-field id
    $ fpstore insert photos.fps new.png photos --image
    $ fpstore insert vectors.fps embeddings.npy --vector
    $ fpstore insert vectors.fps embeddings.parquet --vector --vector-field embedding --id-field number --upsert
    """
    import fpstore

    _check_usage(inputs, unmatched, upsert, contents)
    notices, zeros = contents.texts.notices(), vectors.ZeroVectors()
    began = time.monotonic()
    with fpstore.open(store) as known:
        queries.scan_notice(known, radius, talk)
        width = known.width
        if contents.vector:
            source = _vectors(known, inputs, contents.vector_field, rows, zeros)
        elif contents.text or contents.image or contents.of_rows:
            source = _source(known, inputs, contents, rows, notices, threads)
        else:
            source = _fingerprints(known, inputs, rows, unmatched)
            queries.origin_notice(known, store, "the input", talk)
        if getattr(source, "row_numbers", False):
            _check_row_numbers(known, upsert, contents)
    counts = _Counts("changed" if upsert else "inserted", getattr(source, "row_numbers", False))
    matches = _writer_of_matches(output, as_json, width, with_queries) if unmatched else nullcontext()
    with _told(counts), Bars(talk.bars, source) as bars, matches as write:
        chunks = _begun(_placed(source) if contents.of_rows else source)
        with fpstore.open(store, "r+", sync=sync, merge_at=merge_at) as opened:
            add = _adding(opened, upsert, partial(_add_unmatched, opened, write, radius, threads) if write is not None else None)
            # The number of ids tells whether a chunk is in, unless ids move: then it is counted when its step has ended.
            with nullcontext() if upsert else _counting(counts, opened):
                for chunk in chunks:
                    counts.chunk = chunk
                    counts.add(add(chunk))
                    bars("inserting", counts.done, getattr(source, "rows", None))
            if merge_at is not None:
                opened.merge(at=merge_at, progress=bars)  # and waits for one in the background
            holds = {"fingerprints": len(opened), "ids": len(opened.ids)}
            queries.merge_notice(opened, store, talk)
    notices.report(talk)
    zeros.report(talk)
    if as_json and not (unmatched and output == "-"):
        print_json({"rows": counts.done, counts.what: counts.inserted, **holds})
    elif not talk.quiet:
        tell = complain if unmatched and output == "-" else click.echo
        tell(f"{shown(store)}: {counts}, {time.monotonic() - began:.1f} s")


def _source(
    known: Store, inputs: Sequence[str], contents: Contents, rows: Rows, notices: documents.Notices, threads: int | None
) -> Any:
    """Return the reader of texts or pictures; with --unmatched, JSON lines are taken as they come."""
    texts = contents.texts
    if contents.image:
        return images.reader(inputs, queries.fingerprinter_of(known, "pictures"), texts.suffix, notices, threads)
    if contents.text:
        return texts.file_reader(inputs, queries.fingerprinter_of_texts(known, texts), notices, threads)
    more = {"threads": threads, "chunk_rows": CHUNK_ROWS, "first_row": _first_row(known, rows)}
    more["unbuffered"] = click.get_current_context().params["unmatched"]
    return texts.row_reader(inputs, queries.fingerprinter_of_texts(known, texts), rows, notices, **more)


def _fingerprints(known: Store, inputs: Sequence[str], rows: Rows, answers: bool) -> Any:
    """Return the reader of fingerprints; if each row has an answer, lines are taken as they come."""
    if "-" in inputs and answers and rows.id_type == "auto" and known.snapshot().totals.id_kind == "integer":
        rows = replace(rows, id_type="int")  # in text that comes, nobody knows of what kind later ids are
    width = Width(known.width, stored=True)
    return open_reader(inputs, chunk_rows=CHUNK_ROWS, width=width, unbuffered=answers, **rows.arguments)


def _vectors(known: Store, inputs: Sequence[str], field: str | None, rows: Rows, zeros: vectors.ZeroVectors) -> Any:
    """Return the reader of vectors."""
    return vectors.reader(inputs, queries.fingerprinter_of(known, "vectors"), field, rows, zeros, _first_row(known, rows))


def _first_row(known: Store, rows: Rows) -> int:
    """Return the number of the first row of the input if ids are row numbers."""
    return 0 if rows.id_field is not None else known.snapshot().totals.next_row


def _check_row_numbers(known: Store, upsert: bool, contents: Contents) -> None:
    """Raise InputError if the numbers of rows cannot be their ids."""
    if upsert:
        raise InputError(UPSERT_NEEDS_IDS)
    totals = known.snapshot().totals
    if totals.id_kind != "row" and totals.ids:
        others = "" if contents.of_rows else ": .npy files have none, write Parquet"
        raise InputError(
            f"{known.path}: its ids are no row numbers: name the column of the ids with --id-field{others}", path=known.path
        )


def _check_usage(inputs: Sequence[str], unmatched: bool, upsert: bool, contents: Contents) -> None:
    if unmatched and upsert:
        types.fail("--upsert does not go with --unmatched: give one of them")
    if not unmatched:
        in_threads = contents.text or contents.image or contents.of_rows
        refuse(UNMATCHED_PARAMETERS - ({"threads"} if in_threads else set()), "needs --unmatched")
    if contents.image:
        images.check_usage(inputs, contents.text)
    elif contents.vector:
        if contents.text or contents.of_rows:
            types.fail("--vector does not go with --text: give one of them")
        refuse(documents.FOLDER_PARAMETERS | READING_PARAMETERS, "needs --text")
    else:
        refuse({"vector_field"}, "needs --vector")
        check_text_usage(inputs, contents.text, contents.texts)
        if not contents.text and not contents.of_rows:
            documents.refuse_folders(inputs)


@dataclass
class _Counts:
    """The rows of the chunks that are in the store."""

    what: str  # happened to them: an upsert changes which fingerprint an id has
    row_numbers: bool = False  # are the ids: they go on with each command
    ids_before: int = 0
    done: int = 0
    inserted: int = 0
    chunk: Chunk | None = None  # the last that was begun

    def add(self, inserted: int) -> None:
        """Count the chunk that was begun."""
        assert self.chunk is not None
        # Together: a signal does not come between.
        self.done, self.inserted = self.done + len(self.chunk.fingerprints), self.inserted + inserted

    def add_if_stored(self, ids: int) -> None:
        """Count the chunk that was begun if the number of ids in the store says that it is in and not yet counted."""
        inserted = ids - self.ids_before - self.inserted
        if inserted:
            self.add(inserted)

    def __str__(self) -> str:
        return f"{counted(self.inserted, 'row')} of {self.done:,} {self.what}"

    def said(self) -> str:
        """Say what is in the store, and how to go on."""
        chunk = self.chunk  # one without rows, as of a text without words, has no ids
        with_ids = chunk is not None and not self.row_numbers and (chunk.ids is not None or not len(chunk.fingerprints))
        again = "repeat the command: a row that is stored is not added again" if with_ids else "insert only the rows after these"
        were = "was" if self.inserted == 1 else "were"
        return f"; before that, {counted(self.inserted, 'row')} of the first {self.done:,} {were} {self.what}; {again}"


@contextmanager
def _counting(counts: _Counts, store: Store) -> Iterator[None]:
    """After an error or a signal, count a chunk that is in the store although its step has not ended."""
    counts.ids_before = len(store.ids)
    try:
        yield
    except (FpstoreError, Interrupted, KeyboardInterrupt):
        with suppress(FpstoreError):  # the first error matters more
            counts.add_if_stored(len(store.ids))
        raise


@contextmanager
def _told(counts: _Counts) -> Iterator[None]:
    """Let an error or a signal say which rows were inserted before it."""
    try:
        yield
    except FpstoreError as error:
        if not counts.done:
            raise
        raise type(error)(f"{str(error).removesuffix(NOTHING_CHANGED)}{counts.said()}", **vars(error)) from error
    except (Interrupted, KeyboardInterrupt) as error:
        if not counts.done:
            raise
        interrupted = error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT)
        interrupted.then = counts.said()
        raise interrupted from None


def _writer_of_matches(
    output: str, as_json: bool, width: int, with_queries: bool
) -> AbstractContextManager[match_writers.Write | None]:
    if match_writers.is_json(output, as_json and output == "-"):
        return match_writers.json_lines_writer(output, width, match_writers.ROW_AND_ID)
    return match_writers.rows_writer(output, width, [match_writers.NOTHING_MORE.id] if with_queries else [])


def _placed(source: TextReader) -> Iterator[Any]:
    """Yield the rows of texts with their places, so that those that are left out have an answer too."""
    first = source.next_row
    return (Asked(*chunk, places - np.uint64(first), end - first) for chunk, places, end in source.placed())


def _begun(source: Iterable[Chunk]) -> Iterator[Chunk]:
    """Read the first rows, before the store is opened for writing: an input that is wrong from the start changes nothing."""
    chunks = iter(source)
    return chain(list(islice(chunks, 1)), chunks)


def _adding(store: Store, upsert: bool, unmatched: Callable[[Chunk], int] | None) -> Callable[[Chunk], int]:
    """Return what puts a chunk into a store, and returns how many rows were new."""
    return unmatched or partial(_upsert if upsert else _add, store)


def _add(store: Store, chunk: Chunk) -> int:
    return store.insert(chunk.fingerprints, chunk.ids)


def _upsert(store: Store, chunk: Chunk) -> int:
    if chunk.ids is None:
        raise InputError(UPSERT_NEEDS_IDS)
    return store.upsert(chunk.fingerprints, chunk.ids)


def _add_unmatched(store: Store, write: match_writers.Write, radius: int | None, threads: int | None, chunk: Chunk) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScanWarning)  # it was noted before
        ids = chunk.ids if len(chunk.fingerprints) else []  # of texts that are all left out
        matches = store.probe_insert_many(chunk.fingerprints, ids, radius, threads=threads)
    write(Asked(*chunk), matches, chunk.ids)
    return int(np.count_nonzero(matches.inserted))  # type: ignore[arg-type]
