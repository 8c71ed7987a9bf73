"""The verbs that change a store.

``insert``, ``delete``, ``merge``, ``absorb``, ``redesign`` and ``split``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import chain, islice
from typing import Any

import numpy as np

from fpstore.api import open_store
from fpstore.base.arguments import SYNCS, printable
from fpstore.base.width import Width
from fpstore.change.writer import changes_due, merge_advice
from fpstore.cli import answers, content, options
from fpstore.cli.answers import QUERY_ID, ROW, QueryBatch
from fpstore.cli.content import FINGERPRINTS, ROWS, TEXTS, Notices
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import print_error, summary
from fpstore.cli.questions import IDS, note_missing, parse_words, read_ids, scan_notice
from fpstore.cli.signals import Interrupted, advice_on_interrupt
from fpstore.cli.verb import Arguments, fail, index_module, output_guess, verb
from fpstore.disk.refusals import NOTHING_CHANGED
from fpstore.errors import FpstoreError, InputError, ScanWarning, StoreLockedError, plural
from fpstore.io import Chunk, open_reader
from fpstore.io.source import OmittedRow
from fpstore.store import Store, store_snapshot

CHUNK_ROWS = 1 << 16
_ID_TYPES = {"integer": "int", "string": "str"}
UPSERT_NEEDS_IDS = "--upsert needs an id in each row: without ids, rows cannot replace others"


def check_origin(store: Store, fingerprinter: Any, name: str, source: str, args: Arguments) -> None:
    """Refuse fingerprints made in another way than the store's; note an unknown origin."""
    if None not in (fingerprinter, store.fingerprinter) and fingerprinter != store.fingerprinter:
        raise InputError(
            f"{name}: the fingerprints of {source} were made in another way than the fingerprints "
            "of the store",
            path=store.path,
        )
    if store.fingerprinter is not None and fingerprinter is None:
        method = store.fingerprinter["name"]
        unknown = f"nothing says how the fingerprints of {source} were made: they may not fit"
        args.note(f"{name}: the store has fingerprints made by {method}; {unknown}")


def merge_notice(store: Store, name: str, args: Arguments) -> None:
    """Note that it is time to merge an open store."""
    advice = merge_advice(store_snapshot(store), name)
    if advice is not None:
        args.note(advice)


@verb(
    options.STORE,
    options.INPUTS,
    option(
        "--unmatched",
        "Insert only rows without a match in the store or earlier in the input; write the matches "
        "of others.",
    ),
    option(
        "--upsert",
        "Take each id from the fingerprints that had it. If ids are equal in the input, the last "
        "wins. With --unmatched and --json, decide anew about rows that have changed.",
    ),
    option(
        "-r --radius N",
        "With --unmatched, the largest distance of a match. By default the store's radius.",
        options.RADIUS,
    ),
    options.OUTPUT,
    option("--with-queries", "With --unmatched, add a column with the id of the row that matched."),
    *content.KNOWN,
    *options.ROW_OPTIONS,
    option(
        "--sync",
        "commit: each chunk of rows is durable before the next is read; batch, none: larger "
        "groups.",
        SYNCS,
        "commit",
    ),
    option(
        "--merge-at SHARE",
        "Merge when the delta has this share of the tables, such as 0.1, and 65,536 changes; at "
        "the latest at the end.",
        options.SHARE,
    ),
    options.THREADS,
    *options.RESULT,
    guesses=content.KNOWN_GUESSES,
)
def insert(args: Arguments) -> int:
    """Add fingerprints, texts, pictures or vectors.

    If the store was built of texts, pictures or vectors, an INPUT is a file or folder of them, or
    with --text-field a file of rows with texts: the store knows how to make their fingerprints.
    --fingerprints says that the inputs have fingerprints. Otherwise, an INPUT is a file of
    fingerprints, as for fpstore build.

    When this returns, the rows are durable, and every process that has the store open finds them.
    Inserts are in a log beside the tables until fpstore merge. An id that is already stored keeps
    its old fingerprint, too. With --upsert the id moves to the new fingerprint: such rows, and rows
    with new ids, are counted as changed. Where rows have no ids, their numbers go on from the
    numbers in the store.

    With --unmatched, a row is inserted only if the store has nothing within the radius. The matches
    of the other rows are written as lines `query fingerprint distance id`. With --json, each row
    has one object on standard output: {"row": ..., "query_id": ..., "query": ..., "matches": [...],
    "inserted": true or false}. The row itself is no match. A row that was not inserted has a
    "reason": "near" (the matches), "stored" (the store has this row), "no words" or "error". Lines
    that come through a pipe, a socket or a terminal are answered at once, when the row is in the
    store: with --sync commit it is durable then, with --sync batch within 0.1 seconds. A wrong line
    of these is answered with its "error"; the exit code is 1 at the end.

    With --unmatched, --upsert and --json, a row whose id is stored with another fingerprint loses
    that one, and is inserted unless another row is near: as fpstore delete and insert --unmatched,
    in one step.

    Rows are inserted in chunks of at most 65,536. After an error or Ctrl-C, the chunks before stay
    inserted, and FILE is not written. Repeat the command: a row with its id is not added twice, and
    FILE gets the matches of all rows. Where ids are row numbers, insert only the rows that are not
    in.

    An LSH index takes texts. With --upsert they replace those that have their ids. Rows are
    inserted in chunks of at most 16,384.

    $ fpstore insert crawl.fps new.tsv
    $ fpstore insert notes.fps notes
    $ fpstore insert crawl.fps new.tsv --unmatched --with-queries
    $ cat new.tsv | fpstore insert crawl.fps - --unmatched --json --quiet
    $ cat new.tsv | fpstore insert crawl.fps - --unmatched --upsert --json --quiet
    $ fpstore insert crawl.fps new.tsv --unmatched --radius 2 --output duplicates.tsv
    $ fpstore insert crawl.fps new.jsonl --fingerprint-field hash --id-field url --id-type str
    $ cut -f 1,2 new.tsv | fpstore insert crawl.fps - --format tsv --sync batch --merge-at 0.1 \
        --quiet
    $ fpstore insert crawl.fps signed.csv --decimal --signed
    $ fpstore insert crawl.fps new.tsv --upsert
    $ fpstore insert notes.fps draft.txt notes --suffix .txt --encoding utf-8
    $ fpstore insert notes.fps corpus.parquet --text-field text --id-field id
    $ fpstore insert titled.fps corpus.parquet --id-field id
    $ fpstore insert notes.fps new.tsv --fingerprints
    $ fpstore insert photos.fps new.png photos
    $ fpstore insert notes.lsh draft.txt
    $ fpstore insert titled.lsh corpus.parquet --text-field text --id-field id --upsert
    $ fpstore insert vectors.fps embeddings.parquet --vector-field embedding --id-field number \
        --upsert
    """
    if index := index_module(args):
        index.insert(args)
        return 0
    if args.unmatched and args.upsert and not _has_json(args):
        fail("--upsert with --unmatched answers in JSON: give --json")
    with open_store(args.store) as store:
        scan_notice(store, args)
        width = store.width
        source, kind, notices = _source(args, store)
    counts = _Counts(
        "changed" if args.upsert else "inserted", getattr(source, "row_numbers", False)
    )
    with (
        _with_counts(counts),
        args.bars(source) as bars,
        _match_writer(args, width) as write,
    ):
        chunks: Iterator[Any] = iter(source)
        if kind == ROWS or (kind == FINGERPRINTS and args.unmatched):
            chunks = _numbered_batches(args, source, counts)
        # before the store is opened: an input that is wrong from the start changes nothing
        first = list(islice(chunks, 1))
        with open_store(args.store, "r+", sync=args.sync, merge_at=args.merge_at) as opened:
            ids_before = len(opened.ids)
            try:
                for chunk in chain(first, chunks):
                    counts.chunk = chunk
                    counts.add(_insert_chunk(opened, chunk, write, args))
                    bars("inserting", counts.done, getattr(source, "rows", None))
            except (FpstoreError, Interrupted, KeyboardInterrupt):
                with suppress(FpstoreError):  # the first error matters more
                    # The number of ids says whether the last chunk is in although its step has not
                    # ended, unless ids move.
                    inserted = 0 if args.upsert else len(opened.ids) - ids_before - counts.inserted
                    if inserted:
                        counts.add(inserted)
                raise
            if args.merge_at is not None:
                # and waits for one in the background
                opened.merge(at=args.merge_at, progress=bars)
            totals = {"fingerprints": len(opened), "ids": len(opened.ids)}
            merge_notice(opened, args.store, args)
    notices.report(args)
    line = args.with_time(args.store, str(counts))
    if not (args.unmatched and args.output == "-"):
        args.result({"rows": counts.done, counts.verb: counts.inserted, **totals}, line)
    elif not args.quiet:
        print_error(line)
    if counts.wrong:
        args.note(
            f"{plural(len(counts.wrong), 'row')} wrong, the first one: {counts.wrong[0].error}"
        )
    return 1 if counts.wrong else 0


def _source(args: Arguments, store: Store) -> tuple[Any, str, Notices]:
    """Return the reader of the inputs, their kind and the notices.

    With --unmatched, lines are read as they come.
    """
    kind, fingerprinter, columns = content.store_inputs(args, store)
    content.refuse_options_of_other_kinds(args, kind)
    if not args.unmatched:
        args.refuse(
            "needs --unmatched",
            "radius",
            "output",
            "with_queries",
            *(["threads"] if kind == FINGERPRINTS else []),
        )
    content.check_inputs(
        kind, args.inputs, "this store takes files of fingerprints, or leave out --fingerprints"
    )
    totals, notices = store.snapshot().totals, Notices(kind, args.left_out)
    reading: dict[str, Any] = {}
    if kind == FINGERPRINTS:
        fingerprinter, reading = (
            Width(store.width, stored=True),
            {"chunk_rows": CHUNK_ROWS, "unbuffered": args.unmatched},
        )
    elif kind != TEXTS:
        reading = {"first_row": 0 if args.id_field is not None else totals.next_row}
        if kind == ROWS:
            reading |= {"chunk_rows": content.CHUNK_ROWS, "unbuffered": args.unmatched}
    if (
        "-" in args.inputs
        and args.unmatched
        and args.id_type == "auto"
        and totals.id_kind in _ID_TYPES
    ):
        # of what comes, nobody knows of what kind later ids are
        args.id_type = _ID_TYPES[totals.id_kind]
    source = content.open_inputs(
        args, kind, args.inputs, fingerprinter, notices, columns, **reading
    )
    if kind == FINGERPRINTS:
        check_origin(store, source.fingerprinter, args.store, "the input", args)
    if getattr(source, "row_numbers", False):
        if args.upsert:
            raise InputError(UPSERT_NEEDS_IDS)
        if totals.id_kind != "row" and totals.ids:
            advice = "" if kind == ROWS else ": .npy files have none, write Parquet"
            message = f"its ids are not row numbers: name the column of ids with --id-field{advice}"
            raise InputError(f"{store.path}: {message}", path=store.path)
    return source, kind, notices


def _numbered_batches(args: Arguments, source: Any, counts: _Counts) -> Iterator[QueryBatch]:
    """Yield chunks with the places of their rows, and with the rows that are left out."""
    first = source.next_row
    has_json = args.unmatched and _has_json(args)
    for (rows, ids), places, end, left_out in source.numbered_chunks(
        leave_out_wrong=has_json and source.unbuffered
    ):
        counts.wrong += [row for row in left_out if row.error]
        of_rows = {row.place - first: row for row in left_out}
        yield QueryBatch(
            rows,
            ids,
            places - np.uint64(first),
            end - first,
            of_rows,
            first if getattr(source, "row_numbers", False) else None,
        )


class _Counts:
    """How many rows have been read, and how many of them were inserted or changed."""

    def __init__(self, verb: str, row_numbers: bool) -> None:
        self.verb, self._row_numbers = verb, row_numbers
        self.done = self.inserted = 0
        self.chunk: Chunk | QueryBatch | None = None  # the last that was begun
        self.wrong: list[OmittedRow] = []

    def add(self, inserted: int) -> None:
        assert self.chunk is not None
        # Together: a signal does not come between.
        self.done, self.inserted = (
            self.done + len(self.chunk.fingerprints),
            self.inserted + inserted,
        )

    def __str__(self) -> str:
        return f"{plural(self.inserted, 'row')} of {self.done:,} {self.verb}"

    def advice(self) -> str:
        """Return how many rows are in the store and how to go on, for the end of a message."""
        if not self.done:
            return ""
        chunk = self.chunk  # one without rows, as of a blank text, has no ids
        with_ids = (
            chunk is not None
            and not self._row_numbers
            and (chunk.ids is not None or not len(chunk.fingerprints))
        )
        advice = (
            "repeat the command: a row that is stored is not added again"
            if with_ids
            else "insert only the rows after these"
        )
        were = "was" if self.inserted == 1 else "were"
        return (
            f"; before that, {plural(self.inserted, 'row')} of the first {self.done:,} {were} "
            f"{self.verb}; {advice}"
        )


@contextmanager
def _with_counts(counts: _Counts) -> Iterator[None]:
    """Add to an error or a signal how many rows were inserted before it."""
    try:
        with advice_on_interrupt(counts.advice):
            yield
    except FpstoreError as error:
        if not counts.done:
            raise
        raise type(error)(
            f"{str(error).removesuffix(NOTHING_CHANGED)}{counts.advice()}", **vars(error)
        ) from error


def _match_writer(args: Arguments, width: int) -> AbstractContextManager[answers.Write | None]:
    if not args.unmatched:
        return nullcontext()
    if _has_json(args):
        return answers.json_lines_writer(args.output, width, [ROW, QUERY_ID])
    return answers.rows_writer(args.output, width, [QUERY_ID] if args.with_queries else [])


def _insert_chunk(
    store: Store, chunk: Chunk | QueryBatch, write: answers.Write | None, args: Arguments
) -> int:
    """Insert or upsert rows, with --unmatched only those without a match; return their number."""
    if args.upsert and chunk.ids is None and len(chunk.fingerprints):
        raise InputError(UPSERT_NEEDS_IDS)
    ids = chunk.ids if len(chunk.fingerprints) else []  # of rows that are all left out
    if write is None:
        return (
            store.upsert(chunk.fingerprints, ids)
            if args.upsert
            else store.insert(chunk.fingerprints, ids)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScanWarning)  # it was noted before
        put = store.probe_upsert_many if args.upsert else store.probe_insert_many
        matches = put(chunk.fingerprints, ids, args.radius, threads=args.threads)
    write(QueryBatch.from_chunk(chunk), matches, chunk.ids)
    assert matches.inserted is not None
    return int(np.count_nonzero(matches.inserted))


def _has_json(args: Arguments) -> bool:
    return answers.is_json(args.output, args.as_json and args.output == "-")


@verb(
    options.STORE,
    IDS,
    option(
        "--fingerprints",
        "The arguments and lines are fingerprints; delete them with all their ids.",
    ),
    option(
        "--pairs",
        "Delete pairs alone: a fingerprint and its id by turns, or rows of --input with both.",
    ),
    options.DECIMAL,
    option(
        "--input FILE",
        "Read from a file one id per line, or with --fingerprints or --pairs rows; - is standard "
        "input.",
        into="inputs",
        multiple=True,
    ),
    *options.RESULT,
)
def delete(args: Arguments) -> None:
    """Remove documents by ids, fingerprints or pairs.

    A fingerprint is removed with all its ids, a pair is a fingerprint and one of its ids.

    When this returns, no process finds them any more. The next fpstore merge gives their space
    back. To find integer ids, the id map is read once per call, so give many at a time, unless the
    store was built with --index-ids. A note on standard error counts the ids, fingerprints or pairs
    that are not stored ("missing" with --json); the exit code is 0 then, too, so that the command
    can be repeated. With --input, each line is an id, unchanged; an id that contains a line feed
    must be an argument.

    In an LSH index, documents are removed by ids.

    $ fpstore delete crawl.fps 17 4711
    $ fpstore delete crawl.fps --input gone.txt
    $ fpstore delete crawl.fps --fingerprints 9d3a5b1c00f7e642
    $ find notes -type f | fpstore delete notes.fps --input - --quiet
    $ fpstore delete crawl.fps --pairs 9d3a5b1c00f7e642 17
    $ fpstore delete crawl.fps --pairs --input new.tsv
    $ fpstore delete pages.lsh 2
    """
    if index := index_module(args):
        index.delete(args)
        return
    if not args.words and not args.inputs:
        fail("give ids, or --input FILE")
    if args.pairs and (args.fingerprints or len(args.words) % 2):
        fail("--pairs takes a fingerprint and an id for each pair, without --fingerprints")
    if args.decimal and not (args.fingerprints or args.pairs):
        fail("--decimal needs --fingerprints or --pairs")
    with open_store(args.store) as store:
        targets = _read_targets(args, store)
    with open_store(args.store, "r+") as opened:
        removed, missing = opened.delete(**targets)
        totals = {"fingerprints": len(opened), "ids": len(opened.ids)}
        merge_notice(opened, args.store, args)
    remaining = (
        f"{plural(totals['fingerprints'], 'fingerprint')} with {plural(totals['ids'], 'id')} left"
    )
    noun = "pair" if args.pairs else "fingerprint" if args.fingerprints else "id"
    args.result(
        {"removed": removed, "missing": missing, **totals},
        f"{printable(args.store)}: {plural(removed, 'id')} removed, {remaining}",
    )
    note_missing(args, missing, noun)


def _read_targets(args: Arguments, store: Store) -> dict[str, Any]:
    """Return the keyword arguments of `Store.delete`."""
    of_strings, ids = store.snapshot().totals.id_kind == "string", None
    if not (args.pairs or args.fingerprints):
        return {"ids": read_ids(of_strings, args.words, args.inputs)}
    if args.pairs:
        ids = read_ids(of_strings, args.words[1::2])
        ids = ids if of_strings else np.array(ids, np.uint64)
    chunks = [Chunk(parse_words(args.words[:: 1 + args.pairs], args, store.width), ids)]
    if args.inputs:
        reading: Any = (
            {"id_type": "str" if of_strings else "int"} if args.pairs else {"format": "txt"}
        )
        chunks += open_reader(
            args.inputs,
            width=Width(store.width, stored=True),
            decimal=args.decimal,
            **reading,
        )
    columns: Any = [chunk.ids for chunk in chunks if chunk.ids is not None]
    if args.pairs and len(columns) < len(chunks):
        raise InputError("--pairs needs an id in each row")
    if args.fingerprints and columns:
        raise InputError(
            "--fingerprints takes lines of one fingerprint alone, which loses all its ids: "
            "--pairs deletes pairs"
        )
    targets: dict[str, Any] = {
        "fingerprints": np.concatenate([chunk.fingerprints for chunk in chunks])
    }
    if args.pairs:
        targets["ids"] = list(chain(*columns)) if of_strings else np.concatenate(columns)
    return targets


MERGING = (*options.LIMITS, *options.RESULT)


@verb(
    options.STORE,
    option(
        "--at SHARE",
        "Merge only if the delta has this share of the tables, such as 0.1, and 65,536 changes.",
        options.SHARE,
    ),
    *MERGING,
    guesses={"--design": "fpstore redesign takes another design"},
)
def merge(args: Arguments) -> None:
    """Fold changes into the tables.

    The new tables are written beside the old ones, so there must be space for both, and replace
    them in one step. Readers go on all the time. While another process has the store open for
    writing, this command is refused: let that process merge, with fpstore.open(..., merge_at=0.1)
    or Store.merge(). With --json, writes what fpstore stats --json does, and whether there was
    anything to merge ("merged").

    In an LSH index, a merge drops the keys of removed documents.

    $ fpstore merge crawl.fps
    $ fpstore merge crawl.fps --at 0.1 --threads 2 --memory 1GiB --json
    $ fpstore merge pages.lsh
    """
    if index := index_module(args):
        index.merge(args)
        return
    _merge(args, lambda store, resources: store.merge(at=args.at, **resources))


@verb(
    options.STORE,
    argument("others", "OTHER...", nargs=-1, required=True),
    option(
        "--renumber", "Renumber the integer ids of each OTHER, in turn, from the largest so far."
    ),
    *MERGING,
)
def absorb(args: Arguments) -> None:
    """Take in the content of other stores.

    The other stores do not change. A fingerprint in several stores gets the ids of all. Stores
    whose ids are row numbers have the same ids for different documents: use --renumber, unless they
    are parts of one store. This is a merge: see fpstore merge.

    $ fpstore absorb crawl.fps monday.fps tuesday.fps
    $ fpstore absorb numbers.fps shard.fps --renumber --json
    """
    with open_store(args.store) as store:
        for other in args.others:
            with open_store(other) as other_store:
                if other_store.fingerprinter is None:
                    check_origin(store, None, args.store, other, args)
                if other_store.path.samefile(args.store):
                    raise InputError(f"{args.store}: cannot absorb itself", path=args.store)
                if not args.renumber and all(
                    opened.snapshot().totals.id_kind == "row" for opened in (store, other_store)
                ):
                    args.note(
                        f"{args.store} and {other} both have row numbers as ids, so an id may "
                        "mean two documents: if they are "
                        "not parts of one store, use --renumber"
                    )
    _merge(
        args,
        lambda store, resources: store.absorb(*args.others, renumber=args.renumber, **resources),
    )


@verb(options.STORE, argument("design", "DESIGN"), *MERGING)
def redesign(args: Arguments) -> None:
    """Change to other tables.

    DESIGN is a name that fpstore plan lists, or auto. This is a merge: see fpstore merge.

    $ fpstore redesign crawl.fps flip-2
    $ fpstore redesign crawl.fps auto --memory 1GiB --json
    """
    with open_store(args.store) as store:
        options.check_design_name(args.design, store.radius, store.width, "DESIGN")
    _merge(args, lambda store, resources: store.redesign(args.design, **resources))


def _merge(args: Arguments, merge: Callable[[Store, dict[str, Any]], None]) -> None:
    at = getattr(args, "at", None)
    try:
        opened = open_store(args.store, "r+")
    except StoreLockedError as error:
        raise StoreLockedError(
            f"{error}. To merge in that process, call Store.merge() there, or open the store with "
            "fpstore.open(path, 'r+', "
            "merge_at=0.1) for merges in the background",
            path=error.path,
            got=error.got,
        ) from None
    with opened:
        before = store_snapshot(opened)
        generation, changes = before.generation.record.number, before.delta.kernel.operations
        due = "" if at is None else f"; --at {at:g} merges from {changes_due(before, at):,} on"
        with args.bars() as bars:
            merge(opened, {"memory": args.memory, "threads": args.threads, "progress": bars})
        stats = opened.stats()
    merged = stats["generation"] != generation
    line = args.with_time(args.store, f"generation {stats['generation']}, {summary(stats)}")
    if not merged:
        line = (
            f"{printable(args.store)}: nothing to merge yet: {plural(changes, 'change')} since "
            f"the last merge{due}"
        )
    args.result({"merged": merged, **stats}, line)


@verb(
    options.STORE,
    argument("folder", "FOLDER"),
    option(
        "--bits N",
        "Number of leading bits, 1 to 8: 2 to 256 stores.",
        whole_number(1, 8),
        required=True,
    ),
    *options.LIMITS,
    option(
        "--force",
        "Replace stores in FOLDER that have the names of new ones, each once the new one is "
        "complete.",
        into="overwrite",
    ),
    *options.RESULT,
    guesses=output_guess("the folder to write to is the second argument"),
)
def split(args: Arguments) -> None:
    """Write the content of a store to several stores.

    The leading bits of a fingerprint say which store gets it. The new stores are named after these
    bits, such as FOLDER/00.fps to FOLDER/11.fps. STORE does not change. fpstore absorb joins the
    parts again.

    $ fpstore split crawl.fps shards --bits 2
    $ fpstore split crawl.fps shards --bits 2 --force --json
    """
    with args.bars() as bars, open_store(args.store) as opened:
        paths = opened.split(
            args.folder,
            args.bits,
            overwrite=args.overwrite,
            memory=args.memory,
            threads=args.threads,
            progress=bars,
        )
    records, lines = [], []
    for path in paths:
        with open_store(path) as part:
            records.append({"path": str(path), "fingerprints": len(part), "ids": len(part.ids)})
            lines.append(
                f"{printable(path)}: {plural(len(part), 'fingerprint')}, "
                f"{plural(len(part.ids), 'id')}"
            )
    args.result(records, "\n".join(lines))
