"""``fpstore hash``: fingerprints without a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from fpstore.base.resources import parse_threads
from fpstore.cli import documents, vectors
from fpstore.cli import images as pictures
from fpstore.cli.documents import Shingles, shingle_options
from fpstore.cli.options import (
    Rows,
    Talk,
    format_option,
    grouped,
    id_field_option,
    id_type_option,
    json_option,
    output_option,
    refuse,
    talk_options,
    threads_option,
    width_option,
)
from fpstore.cli.progress import Bars
from fpstore.cli.texts import CHUNK_ROWS, Texts, text_options
from fpstore.cli.vectors import Hyperplanes, hyperplane_options
from fpstore.cli.verb import Verb, VerbGroup
from fpstore.io import Chunk, open_writer

FIELD_PARAMETERS = {"format", "id_field", "id_type"}


@dataclass(frozen=True)
class Reading:
    """Which texts are read, and how."""

    texts: Texts
    width: int
    format: str | None
    id_field: str | None
    id_type: str
    threads: int | None


reading_options = grouped(
    "reading", Reading, text_options, width_option, format_option, id_field_option, id_type_option, threads_option
)


@click.group(name="hash", cls=VerbGroup)
def hash_() -> None:
    """Make fingerprints of texts, pictures or vectors.

    $ fpstore hash text notes
    $ fpstore hash vector embeddings.npy
    """


@hash_.command(cls=Verb)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@reading_options
@shingle_options
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@talk_options
def text(
    paths: Sequence[str],
    reading: Reading,
    shingles: Shingles,
    output: str,
    as_json: bool,
    talk: Talk,
) -> None:
    """Make fingerprints of text files with SimHash.

    A PATH is a file, a folder, or - for standard input. Writes a line `fingerprint path` per file, separated by a
    tab, which fpstore build can read. With --json, writes objects with the fields fingerprint and id (the path).

    With --text-field, a PATH is a file of rows, and each row with words has a line; the id is that of --id-field, or the
    number of the row, counted from 0.

    $ fpstore hash text draft.txt notes
    $ fpstore hash text notes --suffix .txt --output notes.tsv --no-progress
    $ fpstore hash text notes --shingle chars --shingle-size 5 --weighting set --json --quiet
    $ fpstore hash text notes --width 128 --digits zero --feature-hash blake2b
    $ fpstore hash text notes --longest-sentences 3
    $ fpstore hash text notes --tokenizer unicode --stop-words frequent.txt
    $ fpstore hash text notes --weights weights.json
    $ fpstore hash text corpus.parquet --text-field title=4 --text-field text --id-field id
    $ fpstore hash text draft.txt --encoding utf-8
    $ fpstore hash text site --html
    $ fpstore hash text corpus.parquet --text-field text --id-field id --threads 2
    $ cat pages.jsonl | fpstore hash text - --text-field text --format jsonl --id-field score --id-type str --quiet
    """
    texts, maker = reading.texts, shingles.fingerprinter(reading.width)
    notices = texts.notices()
    if texts.text_field is None:
        refuse(FIELD_PARAMETERS, "needs --text-field")
        chunks: Any = documents.chunks(
            paths, maker, texts.suffix, notices, threads=parse_threads(reading.threads), **texts.reading
        )
    else:
        refuse(documents.FOLDER_PARAMETERS, "does not go with --text-field")
        rows = Rows(reading.format, False, False, None, reading.id_field, reading.id_type)
        chunks = texts.row_reader(paths, maker, rows, notices, threads=reading.threads, chunk_rows=CHUNK_ROWS)
    _write(chunks, reading.width, output, as_json, talk)
    notices.report(talk)


@hash_.command(cls=Verb)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@hyperplane_options
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@talk_options
def vector(
    files: Sequence[str],
    hyperplanes: Hyperplanes,
    output: str,
    as_json: bool,
    talk: Talk,
) -> None:
    """Make fingerprints of vectors by hyperplanes.

    A FILE is an array of shape (n, dimension) in .npy, or a .parquet file with a column of lists of numbers. Writes a
    line `fingerprint id` per vector, separated by a tab, which fpstore build can read. Without ids, the number of the
    vector is the id, from 0 over all files. With --json, writes objects with the fields fingerprint and id. A vector whose
    components are all 0 has no fingerprint and is left out; NaN and infinity are errors.

    $ fpstore hash vector embeddings.npy
    $ fpstore hash vector embeddings.npy --width 256 --seed 7 --output embeddings.tsv --no-progress
    $ fpstore hash vector embeddings.parquet --vector-field embedding --id-field name --json --quiet
    """
    notices = vectors.ZeroVectors()
    rows = Rows(None, False, False, None, hyperplanes.id_field, "auto")
    chunks = vectors.reader(files, hyperplanes.fingerprinter, hyperplanes.vector_field, rows, notices)
    _write(chunks, hyperplanes.width, output, as_json, talk)
    notices.report(talk)


@hash_.command(cls=Verb)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@pictures.reading_options
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@talk_options
def image(
    paths: Sequence[str],
    reading: pictures.Reading,
    output: str,
    as_json: bool,
    talk: Talk,
) -> None:
    """Make fingerprints of pictures with ImageHash or PDQ.

    A PATH is a picture of any format that Pillow reads, a folder of them, or - for standard input. Writes a line
    `fingerprint path` per picture, separated by a tab, which fpstore build can read. With --json, writes objects with
    the fields fingerprint and id (the path). The width is 256 with pdq, and otherwise 64 by default.

    Pictures are turned upright as their Exif data say. Files in folders that are no pictures, or are broken, and
    pictures without a fingerprint (blank ones) are left out, and named at the end.

    $ fpstore hash image new.png photos
    $ fpstore hash image photos --image-hash difference --width 256 --suffix .png --output photos.tsv --no-progress
    $ fpstore hash image photos --image-hash pdq --min-quality 20 --frame all --threads 2 --json --quiet
    """
    fingerprinter = reading.images.fingerprinter(reading.width)
    notices = documents.Notices()
    chunks = pictures.chunks(paths, fingerprinter, reading.suffix, notices, reading.threads)
    _write(chunks, fingerprinter.width, output, as_json, talk)
    notices.report(talk)


def _write(chunks: Iterable[Chunk], width: int, output: str, as_json: bool, talk: Talk) -> None:
    """Write fingerprints and ids as they come."""
    form, done = "jsonl" if as_json else None, 0
    source: Any = chunks if hasattr(chunks, "bytes_done") else None
    with (
        Bars(talk.bars, source) as bars,
        open_writer(output, format=form, columns=["fingerprint", "id"], width=width) as writer,
    ):
        for chunk in chunks:
            writer.write(chunk)
            done += len(chunk.fingerprints)
            bars("hashing", done)
