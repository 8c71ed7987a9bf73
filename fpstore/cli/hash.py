"""``fpstore hash``: fingerprints without a store."""

from __future__ import annotations

from collections.abc import Sequence

import click

from fpstore.cli import documents, vectors
from fpstore.cli.documents import Shingles, shingle_options, suffix_option
from fpstore.cli.options import Rows, Talk, json_option, output_option, talk_options, width_option
from fpstore.cli.progress import Bars
from fpstore.cli.vectors import Hyperplanes, hyperplane_options
from fpstore.cli.verb import Verb, VerbGroup
from fpstore.io import open_writer


@click.group(name="hash", cls=VerbGroup)
def hash_() -> None:
    """Make fingerprints of documents or of vectors.

    $ fpstore hash text notes
    $ fpstore hash vector embeddings.npy
    """


@hash_.command(cls=Verb)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@suffix_option
@width_option
@shingle_options
@output_option("Where to write: .tsv, .csv, .jsonl or .parquet")
@json_option
@talk_options
def text(
    paths: Sequence[str],
    suffix: Sequence[str],
    width: int,
    shingles: Shingles,
    output: str,
    as_json: bool,
    talk: Talk,
) -> None:
    """Make fingerprints of text files with SimHash.

    A PATH is a file, a folder, or - for standard input. Writes a line `fingerprint path` per file, separated by a
    tab, which fpstore build can read. With --json, writes objects with the fields fingerprint and id (the path).

    $ fpstore hash text draft.txt notes
    $ fpstore hash text notes --suffix .txt --output notes.tsv --no-progress
    $ fpstore hash text notes --shingle chars --shingle-size 5 --weighting set --json --quiet
    $ fpstore hash text notes --width 128 --digits zero --feature-hash blake2b
    $ fpstore hash text notes --longest-sentences 3
    $ fpstore hash text notes --tokenizer unicode --stop-words frequent.txt
    """
    notices = documents.Notices()
    chunks = documents.chunks(paths, shingles.fingerprinter(width), suffix, notices)
    done = 0
    with (
        Bars(talk.bars) as bars,
        open_writer(output, format="jsonl" if as_json else None, columns=["fingerprint", "id"], width=width) as writer,
    ):
        for chunk in chunks:
            writer.write(chunk)
            done += len(chunk.fingerprints)
            bars("hashing", done)
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
    """Make fingerprints of vectors, such as embeddings, with hyperplane hashing.

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
    done, columns = 0, ["fingerprint", "id"]
    with (
        Bars(talk.bars, chunks) as bars,
        open_writer(output, format="jsonl" if as_json else None, columns=columns, width=hyperplanes.width) as writer,
    ):
        for chunk in chunks:
            writer.write(chunk)
            done += len(chunk.fingerprints)
            bars("hashing", done)
    notices.report(talk)
