"""What the verbs do with an LSH index, where they are given one in place of a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import numpy as np

import fpstore
from fpstore.base.arguments import printable
from fpstore.base.resources import shown_size
from fpstore.cli import content, options
from fpstore.cli.answers import is_json
from fpstore.cli.content import ROWS, TEXTS, Notices
from fpstore.cli.jobs import open_output
from fpstore.cli.output import print_facts, print_json, summary
from fpstore.cli.questions import MATCHED, UNMATCHED, given_ids, note_missing
from fpstore.cli.verb import Given, fail
from fpstore.errors import InputError, counted
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
READING = ("text_field", "suffixes", "encoding", "format", "id_field", "id_type", "left_out")
RESULT = ("quiet", "no_progress", "as_json")
LIMITS = ("threads", "memory")
JOB = ("radius", "output", *LIMITS, *RESULT)
Write = Callable[[Any, Matches], None]  # of the ids of queries, and their matches


def _check_options(given: Given, *taken: str) -> None:
    """Raise a usage error for an option that is for stores of fingerprints alone."""
    for param in click.get_current_context().command.params:
        if isinstance(param, click.Option) and param.name not in taken:
            given.refuse(f"is not for an LSH index, which {given.store} is", str(param.name))


def _maker(given: Given, index: LshStore[Any]) -> tuple[Any, Any]:
    """Return the fingerprinter of the texts of an index, and their columns; None for files."""
    hasher = index.hasher
    maker: Any = hasher if isinstance(hasher, MinHashSketcher) else MinHash()
    of_texts = hasher.items in ("texts", "rows")
    if not of_texts or index.stats()["probes"] > 1:
        of = "several look-ups in a band" if of_texts else hasher.items
        raise InputError(
            f"{index.path}: an index of {of}, which the command line does not ask: use "
            "fpstore.open in Python"
        )
    columns = given.text_field
    if maker.items == "rows" and columns is None:
        columns = tuple(maker.weights)
    return maker, columns


def _given_texts(index: LshStore[Any], reader: Any) -> TextSource:
    return TextSource(reader, index.hasher, index.bands)


# Ask


def probe(given: Given) -> int:
    """Find the documents that are like some texts; return the exit code."""
    _check_options(given, "input", *READING, "radius", "output", "threads", *RESULT)
    if given.quiet:
        given.refuse("does not go with --quiet, which writes nothing", "output")
    notices, found, done = Notices(TEXTS, given.left_out), False, 0
    with fpstore.open(given.store, hasher=None) as index, given.bars() as bars:
        options.check_radius_option(given.radius, index.hasher.signature_bits)
        pieces = _asked(given, index, notices)
        with _writer(given) as write:
            for batch in pieces:
                items: Any = batch.items
                ids = batch.ids
                matches = index.probe_many(items, radius=given.radius, threads=given.threads)
                found, done = found or len(matches.distances) > 0, done + len(matches)
                write(ids.texts() if hasattr(ids, "texts") else ids, matches)
                bars("probing", done)
    notices.report(given)
    return MATCHED if found else UNMATCHED


def _asked(given: Given, index: LshStore[Any], notices: Notices) -> Iterator[ItemBatch]:
    """Yield the texts that are asked: files, where ``-`` is standard input, or rows of --input."""
    if bool(given.words) == bool(given.input):
        fail("give files of texts, or --input FILE with --text-field for the texts of rows")
    maker, columns = _maker(given, index)
    if given.input:
        if columns is None:
            fail("--input is for rows: --text-field names their column of texts")
        content.refuse_foreign(given, ROWS)
        notices.of(ROWS)
        more = {"chunk_rows": content.CHUNK_ROWS}
        reader = content.open_inputs(given, ROWS, given.input, maker, notices, columns, **more)
        yield from _given_texts(index, reader)
        return
    if columns is not None:
        fail("the texts of rows are in files that --input names, with --text-field")
    content.refuse_foreign(given, TEXTS)
    named = [path for path in given.words if path != "-"]
    if named:  # a missing path is reported before any output
        content.open_inputs(given, TEXTS, named, maker, notices)
    if len(named) == len(given.words):
        yield from _given_texts(
            index, content.open_inputs(given, TEXTS, given.words, maker, notices)
        )
        return
    for path in given.words:
        if path != "-":
            yield from _given_texts(
                index, content.open_inputs(given, TEXTS, [path], maker, notices)
            )
            continue
        text = content.standard_input(notices, given.encoding)
        number, rows = index.bands
        items = Items.of(next(index.hasher.sketched([text], number * rows)), index.bands)
        if not len(items.rows):
            raise InputError(
                f"standard input: {SENTENCES[NO_WORDS]}, so nothing is near it", path="-"
            )
        yield ItemBatch(items, ["-"])


@contextmanager
def _writer(given: Given) -> Iterator[Write]:
    """Yield what writes the matches of some queries, as rows or as objects."""
    if given.quiet:
        yield lambda ids, matches: None
    elif is_json(given.output, given.as_json):
        encode = json.JSONEncoder(ensure_ascii=False).encode
        with Sink(given.output) as sink:

            def write_objects(ids: Any, matches: Matches) -> None:
                for query, found in zip(
                    ids if isinstance(ids, list) else ids.tolist(), matches, strict=True
                ):
                    listed = [{"id": match.id, "similarity": match.similarity} for match in found]
                    sink.write(f"{encode({'query': query, 'matches': listed})}\n".encode())
                sink.flush()

            yield write_objects
    else:
        with open_writer(
            given.output,
            columns=dict[str, Any].fromkeys(COLUMNS, "value") | FLOATS,
        ) as writer:

            def write_rows(ids: Any, matches: Matches) -> None:
                query = values_at(ids, np.repeat(np.arange(len(matches)), np.diff(matches.lims)))
                writer.write(
                    {"query": query, "id": matches.read_ids(), "similarity": matches.similarities}
                )
                writer.flush()

            yield write_rows


def pairs(given: Given) -> None:
    """Write all pairs of similar documents."""
    _check_options(given, *JOB)
    with fpstore.open(given.store, hasher=None) as index, given.bars() as bars:
        options.check_radius_option(given.radius, index.hasher.signature_bits)
        resources = {"memory": given.memory, "threads": given.threads, "progress": bars}
        with open_output(given, dict.fromkeys(PAIR_COLUMNS, "value") | FLOATS) as writer:
            for batch in index.pairs(given.radius, **resources):
                for columns in batch.rows_of_ids():
                    writer.write(columns)
            found = writer.rows
    given.note(f"{counted(found, 'pair')} of documents")


def cluster(given: Given) -> None:
    """Write the clusters of similar documents."""
    _check_options(given, "group", "keep", *JOB)
    with fpstore.open(given.store, hasher=None) as index, given.bars() as bars:
        options.check_radius_option(given.radius, index.hasher.signature_bits)
        resources = {"memory": given.memory, "threads": given.threads, "progress": bars}
        with open_output(given, CLUSTER_COLUMNS) as writer:
            found = index.clusters(
                given.radius, group=given.group or "greedy", keep=given.keep, **resources
            )
            write_clusters(found, writer, bars)
    given.note(
        f"{counted(found.documents, 'document')}, {counted(len(found), 'cluster')}, "
        f"{counted(found.duplicates, 'duplicate')}"
    )


# Change


def insert(given: Given) -> None:
    """Add texts, or with --upsert in place of those that have their ids."""
    _check_options(given, "upsert", "sync", "threads", *READING, *RESULT)
    notices, done, changed = Notices(TEXTS, given.left_out), 0, 0
    upsert = given.upsert
    with fpstore.open(given.store, "r+", sync=given.sync, hasher=None) as index:
        totals = index.snapshot().documents.totals
        more = (
            {"first_row": totals.next_row}
            if given.text_field is not None and given.id_field is None
            else {}
        )
        maker, columns = _maker(given, index)
        kind = TEXTS if columns is None else ROWS
        content.refuse_foreign(given, kind)
        notices.of(kind)
        more["chunk_rows"] = content.CHUNK_ROWS
        reader = content.open_inputs(given, kind, given.inputs, maker, notices, columns, **more)
        if reader.row_numbers and (upsert or (totals.id_kind != "row" and totals.ids)):
            why = "upsert needs an id for each row" if upsert else "its ids are not row numbers"
            raise InputError(
                f"{given.store}: {why}: name the column of ids with --id-field", path=given.store
            )
        with given.bars(reader) as bars:
            for asked, ids in _pieces(index, reader):
                changed += index.upsert(asked, ids) if upsert else index.insert(asked, ids)
                done += len(asked.rows)
                bars("upserting" if upsert else "inserting", done)
        holds = len(index)
    notices.report(given)
    what = "changed" if upsert else "inserted"
    line = f"{counted(changed, 'text')} {what}, {counted(holds, 'document')}"
    given.result({"texts": done, what: changed, "documents": holds}, given.timed(given.store, line))


def _pieces(index: LshStore[Any], reader: Any) -> Iterator[tuple[Any, Any]]:
    for batch in _given_texts(index, reader):
        ids: Any = batch.ids
        yield batch.items, ids.texts() if hasattr(ids, "texts") else ids


def delete(given: Given) -> None:
    """Remove documents by their ids."""
    _check_options(given, "inputs", *RESULT)
    if not given.words and not given.inputs:
        fail("give ids, or --input FILE")
    with fpstore.open(given.store, "r+", hasher=None) as index:
        of_strings = index.snapshot().documents.totals.id_kind == "string"
        removed, missing = index.delete(given_ids(of_strings, given.words, given.inputs))
        left = len(index)
    line = f"{printable(given.store)}: {counted(removed, 'document')} removed, {left:,} left"
    given.result({"removed": removed, "missing": missing, "documents": left}, line)
    note_missing(given, missing, "id")


def merge(given: Given) -> None:
    """Fold changes into the tables."""
    _check_options(given, *LIMITS, *RESULT)
    with given.bars() as bars, fpstore.open(given.store, "r+", hasher=None) as index:
        index.merge(memory=given.memory, threads=given.threads, progress=bars)
        stats = index.stats()
    given.result(stats, given.timed(given.store, summary(stats)))


# Take care


def stats(given: Given) -> None:
    """Show the contents and the sizes of an index."""
    _check_options(given, "as_json")
    with fpstore.open(given.store, hasher=None) as index:
        found, hasher = index.stats(), index.hasher
    if given.as_json:
        print_json(found)
        return
    sizes = found["bytes"]
    facts = {
        "documents": f"{found['documents']:,}",
        "ids": f"{found['ids']:,} ({found['id_kind']})",
        "hasher": found["hasher"]["name"],
        "measure": hasher.law.measure,
        "threshold": f"{found['threshold']:g}, found with the probability {found['recall']:g}",
        "bands": f"{found['bands']} of {found['rows']} values",
        "radius": f"{found['radius']} of {hasher.signature_bits} bits",
        "keys": f"{found['keys']:,} of {found['key_bits']} bits, with numbers of "
        f"{found['number_bits']}",
        **{
            f"bytes of {name}": f"{sizes[name]:,} ({shown_size(sizes[name])})"
            for name in (DOCUMENTS, KEYS)
        },
        "bytes a document": f"{found['bytes_per_document']:.1f}",
    }
    print_facts(printable(given.store), facts.items())
