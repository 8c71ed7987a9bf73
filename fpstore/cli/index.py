"""The verbs for an LSH index in place of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import fpstore
from fpstore.base.arguments import printable
from fpstore.base.resources import format_size
from fpstore.cli import content, options
from fpstore.cli.answers import is_json
from fpstore.cli.content import ROWS, TEXTS, Notices
from fpstore.cli.jobs import open_output
from fpstore.cli.output import print_facts, print_json, summary
from fpstore.cli.questions import MATCHED, UNMATCHED, note_missing, read_ids
from fpstore.cli.verb import Arguments, fail
from fpstore.errors import InputError, plural
from fpstore.hashing import MinHash
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.documents import NO_WORDS, SENTENCES
from fpstore.io import open_writer
from fpstore.io.sink import Sink
from fpstore.io.tables import values_at
from fpstore.jobs.clusters import CLUSTER_COLUMNS, write_clusters
from fpstore.lsh import LshStore, Matches
from fpstore.lsh.items import ItemBatch, Items, TextSource
from fpstore.lsh.manifest import DOCUMENTS, KEYS

COLUMNS = ("query", "id", "similarity")
PAIR_COLUMNS = ("id_a", "id_b", "similarity")
FLOATS: dict[str, Any] = {"similarity": "share"}
READING = (
    "text_field",
    "roles",
    "skip_bad",
    "suffixes",
    "encoding",
    "format",
    "id_field",
    "id_type",
    "left_out",
)
RESULT = ("quiet", "no_progress", "as_json")
LIMITS = ("threads", "memory")
JOB = ("radius", "output", *LIMITS, *RESULT)
Write = Callable[[Any, Matches], None]  # of the ids of queries, and their matches


def _check_options(args: Arguments, *allowed: str) -> None:
    """Refuse options that are for stores of fingerprints alone."""
    args.refuse_others(f"is not for an LSH index, which {args.store} is", *allowed)


def _reader_fingerprinter(args: Arguments, index: LshStore[Any]) -> tuple[Any, Any]:
    """Return the fingerprinter of the texts of an index, and their columns; None for files."""
    hasher = index.hasher
    fingerprinter: Any = hasher if isinstance(hasher, MinHashSketcher) else MinHash()
    of_texts = hasher.items in ("texts", "rows")
    if not of_texts or index.stats()["probes"] > 1:
        of = "several look-ups in a band" if of_texts else hasher.items
        raise InputError(
            f"{index.path}: an index of {of}, which the command line does not ask: use "
            "fpstore.open in Python"
        )
    columns = args.text_field
    if fingerprinter.items == "rows" and columns is None:
        columns = tuple(fingerprinter.weights)
    return fingerprinter, columns


def _sketch_texts(index: LshStore[Any], reader: Any) -> TextSource:
    return TextSource(reader, index.hasher, index.bands)


# Ask


def probe(args: Arguments) -> int:
    """Print the documents that are like the texts; return the exit code."""
    _check_options(args, "input", *READING, "radius", "output", "threads", *RESULT)
    if args.quiet:
        args.refuse("does not go with --quiet, which writes nothing", "output")
    notices, has_match, done = Notices(TEXTS, args.left_out), False, 0
    with fpstore.open(args.store, hasher=None) as index, args.bars() as bars:
        options.check_radius_option(args.radius, index.hasher.signature_bits)
        pieces = _query_texts(args, index, notices)
        with _writer(args) as write:
            for batch in pieces:
                items: Any = batch.items
                ids = batch.ids
                matches = index.probe_many(items, radius=args.radius, threads=args.threads)
                has_match, done = has_match or len(matches.distances) > 0, done + len(matches)
                write(ids.texts() if hasattr(ids, "texts") else ids, matches)
                bars("probing", done)
    notices.report(args)
    return MATCHED if has_match else UNMATCHED


def _query_texts(args: Arguments, index: LshStore[Any], notices: Notices) -> Iterator[ItemBatch]:
    """Yield the texts of the query: files, where ``-`` is standard input, or rows of --input."""
    if bool(args.words) == bool(args.input):
        fail("give files of texts, or --input FILE with --text-field for the texts of rows")
    fingerprinter, columns = _reader_fingerprinter(args, index)
    if args.input:
        if columns is None:
            fail("--input is for rows: --text-field names their column of texts")
        content.refuse_options_of_other_kinds(args, ROWS)
        notices.set_kind(ROWS)
        reading = {"chunk_rows": content.CHUNK_ROWS}
        reader = content.open_inputs(
            args, ROWS, args.input, fingerprinter, notices, columns, **reading
        )
        yield from _sketch_texts(index, reader)
        return
    if columns is not None:
        fail("the texts of rows are in files that --input names, with --text-field")
    content.refuse_options_of_other_kinds(args, TEXTS)
    files = [path for path in args.words if path != "-"]
    if files:  # a missing path is reported before any output
        content.open_inputs(args, TEXTS, files, fingerprinter, notices)
    if len(files) == len(args.words):
        yield from _sketch_texts(
            index, content.open_inputs(args, TEXTS, args.words, fingerprinter, notices)
        )
        return
    for path in args.words:
        if path != "-":
            yield from _sketch_texts(
                index, content.open_inputs(args, TEXTS, [path], fingerprinter, notices)
            )
            continue
        text = content.standard_input(notices, args.encoding)
        number, rows = index.bands
        items = Items.from_sketches(next(index.hasher.sketched([text], number * rows)), index.bands)
        if not len(items.rows):
            raise InputError(
                f"standard input: {SENTENCES[NO_WORDS]}, so nothing is near it", path="-"
            )
        yield ItemBatch(items, ["-"])


@contextmanager
def _writer(args: Arguments) -> Iterator[Write]:
    if args.quiet:
        yield lambda ids, matches: None
    elif is_json(args.output, args.as_json):
        encode = json.JSONEncoder(ensure_ascii=False).encode
        with Sink(args.output, packed=True) as sink:

            def write_objects(ids: Any, matches: Matches) -> None:
                for query, query_matches in zip(
                    ids if isinstance(ids, list) else ids.tolist(), matches, strict=True
                ):
                    listed = [
                        {"id": match.id, "similarity": match.similarity} for match in query_matches
                    ]
                    sink.write(f"{encode({'query': query, 'matches': listed})}\n".encode())
                sink.flush()

            yield write_objects
    else:
        with open_writer(
            args.output,
            columns=dict[str, Any].fromkeys(COLUMNS, "value") | FLOATS,
        ) as writer:

            def write_rows(ids: Any, matches: Matches) -> None:
                query = values_at(ids, np.repeat(np.arange(len(matches)), np.diff(matches.lims)))
                writer.write(
                    {"query": query, "id": matches.read_ids(), "similarity": matches.similarities}
                )
                writer.flush()

            yield write_rows


def pairs(args: Arguments) -> None:
    _check_options(args, *JOB)
    with fpstore.open(args.store, hasher=None) as index, args.bars() as bars:
        options.check_radius_option(args.radius, index.hasher.signature_bits)
        resources = {"memory": args.memory, "threads": args.threads, "progress": bars}
        with open_output(args, dict.fromkeys(PAIR_COLUMNS, "value") | FLOATS) as writer:
            for batch in index.pairs(args.radius, **resources):
                for columns in batch.rows_of_ids():
                    writer.write(columns)
            rows = writer.rows
    args.note(f"{plural(rows, 'pair')} of documents")


def cluster(args: Arguments) -> None:
    _check_options(args, "group", "keep", *JOB)
    with fpstore.open(args.store, hasher=None) as index, args.bars() as bars:
        options.check_radius_option(args.radius, index.hasher.signature_bits)
        resources = {"memory": args.memory, "threads": args.threads, "progress": bars}
        with open_output(args, CLUSTER_COLUMNS) as writer:
            clusters = index.clusters(
                args.radius, group=args.group or "greedy", keep=args.keep, **resources
            )
            write_clusters(clusters, writer, bars)
    args.note(
        f"{plural(clusters.documents, 'document')}, {plural(len(clusters), 'cluster')}, "
        f"{plural(clusters.duplicates, 'duplicate')}"
    )


# Change


def insert(args: Arguments) -> None:
    """Add texts; with --upsert, replace those with the same ids."""
    _check_options(args, "upsert", "sync", "threads", *READING, *RESULT)
    notices, done, changed = Notices(TEXTS, args.left_out), 0, 0
    upsert = args.upsert
    with fpstore.open(args.store, "r+", sync=args.sync, hasher=None) as index:
        totals = index.snapshot().documents.totals
        reading = (
            {"first_row": totals.next_row}
            if args.text_field is not None and args.id_field is None
            else {}
        )
        fingerprinter, columns = _reader_fingerprinter(args, index)
        kind = TEXTS if columns is None else ROWS
        content.refuse_options_of_other_kinds(args, kind)
        notices.set_kind(kind)
        reading["chunk_rows"] = content.CHUNK_ROWS
        reader = content.open_inputs(
            args, kind, args.inputs, fingerprinter, notices, columns, **reading
        )
        if reader.row_numbers and (upsert or (totals.id_kind != "row" and totals.ids)):
            why = "upsert needs an id for each row" if upsert else "its ids are not row numbers"
            raise InputError(
                f"{args.store}: {why}: name the column of ids with --id-field", path=args.store
            )
        with args.bars(reader) as bars:
            for texts, ids in _pieces(index, reader):
                changed += index.upsert(texts, ids) if upsert else index.insert(texts, ids)
                done += len(texts.rows)
                bars("upserting" if upsert else "inserting", done)
        documents = len(index)
    notices.report(args)
    change = "changed" if upsert else "inserted"
    line = f"{plural(changed, 'text')} {change}, {plural(documents, 'document')}"
    args.result(
        {"texts": done, change: changed, "documents": documents},
        args.with_time(args.store, line),
    )


def _pieces(index: LshStore[Any], reader: Any) -> Iterator[tuple[Any, Any]]:
    for batch in _sketch_texts(index, reader):
        ids: Any = batch.ids
        yield batch.items, ids.texts() if hasattr(ids, "texts") else ids


def delete(args: Arguments) -> None:
    _check_options(args, "inputs", *RESULT)
    if not args.words and not args.inputs:
        fail("give ids, or --input FILE")
    with fpstore.open(args.store, "r+", hasher=None) as index:
        of_strings = index.snapshot().documents.totals.id_kind == "string"
        removed, missing = index.delete(read_ids(of_strings, args.words, args.inputs))
        remaining = len(index)
    line = f"{printable(args.store)}: {plural(removed, 'document')} removed, {remaining:,} left"
    args.result({"removed": removed, "missing": missing, "documents": remaining}, line)
    note_missing(args, missing, "id")


def merge(args: Arguments) -> None:
    _check_options(args, *LIMITS, *RESULT)
    with args.bars() as bars, fpstore.open(args.store, "r+", hasher=None) as index:
        index.merge(memory=args.memory, threads=args.threads, progress=bars)
        stats = index.stats()
    args.result(stats, args.with_time(args.store, summary(stats)))


# Take care


def stats(args: Arguments) -> None:
    _check_options(args, "as_json")
    with fpstore.open(args.store, hasher=None) as index:
        record, hasher = index.stats(), index.hasher
    if args.as_json:
        print_json(record)
        return
    sizes = record["bytes"]
    facts = {
        "documents": f"{record['documents']:,}",
        "ids": f"{record['ids']:,} ({record['id_kind']})",
        "hasher": record["hasher"]["name"],
        "measure": hasher.law.measure,
        "threshold": f"{record['threshold']:g}, found with the probability {record['recall']:g}",
        "bands": f"{record['bands']} of {record['rows']} values",
        "radius": f"{record['radius']} of {hasher.signature_bits} bits",
        "keys": f"{record['keys']:,} of {record['key_bits']} bits, with numbers of "
        f"{record['number_bits']}",
        **{
            f"bytes of {name}": f"{sizes[name]:,} ({format_size(sizes[name])})"
            for name in (DOCUMENTS, KEYS)
        },
        "bytes a document": f"{record['bytes_per_document']:.1f}",
    }
    print_facts(printable(args.store), facts.items())
