"""``fpstore build``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fpstore.base.arguments import check_path
from fpstore.base.resources import shown_size
from fpstore.base.width import WORD_BITS
from fpstore.building.target import lies_inside
from fpstore.cli import documents, types
from fpstore.cli import images as pictures
from fpstore.cli import vectors as vector_files
from fpstore.cli.documents import Shingles, shingle_options
from fpstore.cli.images import Images, image_options
from fpstore.cli.options import (
    ROW_PARAMETERS,
    Rows,
    Talk,
    codec_option,
    disk_budget_option,
    filter_option,
    is_given,
    json_option,
    memory_option,
    prefer_option,
    refuse,
    row_options,
    storage_option,
    store_argument,
    talk_options,
    threads_option,
    width_option,
)
from fpstore.cli.output import print_json, shown
from fpstore.cli.progress import Bars
from fpstore.cli.texts import READING_PARAMETERS, Texts, check_text_usage, text_options
from fpstore.cli.vectors import VECTOR_PARAMETERS, Vectors, ZeroVectors, vector_options
from fpstore.cli.verb import Verb, output_is
from fpstore.design.tables import BLOCKS
from fpstore.errors import InputError, counted
from fpstore.io import open_reader

if TYPE_CHECKING:
    from fpstore.hashing import Fingerprinter, HyperplaneHash


@click.command(cls=Verb, guesses=output_is("the store to write is the first argument"))
@store_argument
@click.argument("inputs", metavar="[INPUT...]", nargs=-1)
@click.option(
    "--empty",
    is_flag=True,
    help="Make a store of no rows, for fpstore insert; there is no INPUT. The first ids decide if ids are integers or strings.",
)
@click.option(
    "-r",
    "--radius",
    type=types.RADIUS,
    default=3,
    show_default=True,
    metavar="N",
    help="Largest radius of probes, 0 to the width; above a quarter of it, the only design is scan.",
)
@width_option
@click.option(
    "--design",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="Which tables to keep: auto, or a name that fpstore plan lists.",
)
@threads_option
@memory_option
@click.option(
    "--block-bytes",
    type=types.BLOCK,
    metavar="N",
    default=None,
    help="Bytes per block, a power of two from 128 to 4096. Larger blocks make smaller stores and slower probes. "
    "Column tables have none.",
)
@codec_option
@filter_option
@disk_budget_option
@storage_option
@prefer_option
@click.option(
    "--index-ids",
    is_flag=True,
    help="Index integer ids too, as strings always are: delete, upsert and fpstore ids then take no pass over all ids. "
    "Only a build can choose it.",
)
@row_options
@click.option(
    "--text",
    is_flag=True,
    help="Inputs are text files or folders of them; make their fingerprints with SimHash.",
)
@click.option(
    "--image",
    is_flag=True,
    help="Inputs are pictures or folders of them; make their fingerprints with an image hash, whose width and usual radius "
    "are the defaults.",
)
@text_options
@shingle_options
@vector_options
@image_options
@click.option(
    "--force",
    is_flag=True,
    help="Replace STORE, if it is a store already, once the new one is complete; nothing else is ever replaced.",
)
@talk_options
@json_option
def build(
    store: str,
    inputs: Sequence[str],
    empty: bool,
    width: int,
    rows: Rows,
    text: bool,
    image: bool,
    texts: Texts,
    shingles: Shingles,
    vectors: Vectors,
    images: Images,
    talk: Talk,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Build a store.

    STORE is the folder of the new store. It appears complete or not at all.

    An INPUT is a file of fingerprints with the extension .npy, .u32, .u64 (raw, little-endian), .tsv, .csv, .txt, .jsonl or
    .parquet; - is standard input. A line of text has a fingerprint of width / 4 hexadecimal digits (16 by default), or 0x
    and fewer digits, then an optional id. Without ids, the row number is the id. Above 64 bits, .npy has rows of uint8, as
    FAISS takes them, and Parquet has fixed_size_binary; both have the most significant byte first.

    With --text, an INPUT is a text file or a folder, and the path is the id. With --image, an INPUT is a picture or a folder.
    With --text-field, fingerprints are made of the texts in one column or several; rows without words are left out. With
    --vector, an INPUT is an array of shape (n, dimension) in .npy, or a .parquet file with a column of lists of numbers.

    $ fpstore build crawl.fps crawl.tsv
    $ fpstore build notes.fps notes --text --suffix .txt --suffix .md
    $ fpstore build pages.fps corpus.parquet --text-field text --id-field id
    $ fpstore build crawl.fps a.npy b.npy --radius 3 --design manku-10 --threads 2 --memory 1GiB --force
    $ cat crawl.csv | fpstore build crawl.fps - --format csv --decimal --id-type str --force --quiet
    $ fpstore build crawl.fps crawl.jsonl --fingerprint-field hash --id-field url --force --no-progress
    $ fpstore build crawl.fps crawl.tsv --disk-budget 1GB --storage cold --prefer space --block-bytes 1024 --force --json
    $ fpstore build crawl.fps a.npy b.npy --index-ids --force
    $ fpstore build crawl.fps a.npy b.npy --codec elias-fano --filter --force
    $ fpstore build short.fps short.tsv --width 32
    $ fpstore build signed.fps signed.csv --decimal --signed
    $ fpstore build fresh.fps --empty --text --width 256 --radius 24
    $ fpstore build pdq.fps pdq.tsv --width 256 --radius 31
    $ fpstore build notes.fps notes --text --shingle chars --shingle-size 5 --weighting set --force
    $ fpstore build notes.fps notes --text --width 128 --radius 10 --digits zero --feature-hash blake2b --force
    $ fpstore build copies.fps notes --text --longest-sentences 3 --radius 0
    $ fpstore build words.fps notes --text --tokenizer unicode --stop-words frequent.txt
    $ fpstore build vectors.fps embeddings.npy --vector --width 256 --radius 40 --seed 7
    $ fpstore build vectors.fps embeddings.parquet --vector --vector-field embedding --id-field name --force
    $ fpstore build drafts.fps draft.txt --text --encoding utf-8
    $ fpstore build site.fps site --text --html
    $ fpstore build titled.fps corpus.parquet --text-field title=4 --text-field text --id-field id --force
    $ fpstore build weighed.fps notes --text --weights weights.json
    $ fpstore build photos.fps photos --image
    $ fpstore build photos.fps photos --image --image-hash pdq --min-quality 20 --frame all --force
    """
    import fpstore

    _check_inputs(store, inputs, empty)
    if image:
        pictures.check_usage(inputs, text)
    width = pictures.settle(images if image else None, width, options)
    types.usage_error_for_design(options["design"], options["radius"], width)
    notices, zeros = texts.notices(), ZeroVectors()
    of_texts = text or texts.text_field is not None
    source: Any = []
    if not vectors.vector:
        refuse(VECTOR_PARAMETERS, "needs --vector")
        if not image:
            check_text_usage(inputs, text, texts)
    if image:
        source = [] if empty else pictures.reader(inputs, options["fingerprinter"], texts.suffix, notices, options["threads"])
    elif vectors.vector:
        source = _vector_reader(inputs, of_texts, width, vectors, rows, zeros)
        if not is_given("radius"):
            talk.note(_of_radius(source.fingerprinter, options["radius"]))
    elif of_texts and empty:
        options["fingerprinter"] = _text_maker(texts, shingles.fingerprinter(width))
    elif of_texts:
        source = _text_reader(inputs, texts, shingles.fingerprinter(width), rows, notices, options["threads"])
    else:
        refuse(documents.SIMHASH_PARAMETERS, "needs --text or --text-field")
        documents.refuse_folders(inputs)
        source = [] if empty else open_reader(inputs, width=width, **rows.arguments)
    began = time.monotonic()
    with Bars(talk.bars, source) as bars:
        made = fpstore.build(store, source, width=width, overwrite=force, progress=bars, **options)
    with made:
        stats = made.stats()
    notices.report(talk)
    zeros.report(talk)
    _note_defaults(stats, talk)
    if as_json:
        print_json(stats)
    elif not talk.quiet:
        click.echo(f"{shown(store)}: {summary(stats)}, {time.monotonic() - began:.1f} s")


def _note_defaults(stats: dict[str, Any], talk: Talk) -> None:
    """Note a radius that nobody chose for wide fingerprints, and options for blocks where a design has none."""
    if stats["width"] > WORD_BITS and stats["fingerprinter"] is None and not is_given("radius"):
        differ = "near-duplicates may differ in more bits; hashes of PDQ differ in up to 31 of 256"
        talk.note(f"the radius is {stats['radius']}: {differ}; --radius sets it")
    of_blocks = {"codec": "--codec", "block_bytes": "--block-bytes", "filter": "--filter"}
    given = [option for name, option in of_blocks.items() if is_given(name)]
    if given and all(table["kind"] != BLOCKS for table in stats["design"]["tables"]):
        changes = f"{' and '.join(given)} {'change' if len(given) > 1 else 'changes'} nothing"
        talk.note(f"{stats['design']['name']} has no tables of blocks: {changes} until a merge takes a design that has some")


def _check_inputs(store: str, inputs: Sequence[str], empty: bool) -> None:
    """Refuse inputs that the build would replace, and inputs of an empty store with the options that say how they are read."""
    if empty == bool(inputs):
        types.fail("--empty takes no INPUT" if empty else "give an INPUT, or --empty")
    if empty:
        refuse(ROW_PARAMETERS | VECTOR_PARAMETERS | {"vector", "suffix", "encoding"}, "does not go with --empty")
    for path in inputs:
        if path != "-" and lies_inside(check_path(path), check_path(store)):
            raise InputError(f"{path}: lies inside {store}, which the build would replace: move it elsewhere", path=path)


def _text_maker(texts: Texts, maker: Fingerprinter[Any]) -> Fingerprinter[Any]:
    """Return the fingerprinter that a reader of such texts has."""
    from fpstore.hashing.fields import maker_of_columns
    from fpstore.hashing.html import of_pages

    if texts.text_field is not None:
        maker, _ = maker_of_columns(maker, texts.text_field)
    return of_pages(maker, texts.html or False)


def _text_reader(
    inputs: Sequence[str], texts: Texts, maker: Fingerprinter[Any], rows: Rows, notices: documents.Notices, threads: int | None
) -> Any:
    if texts.text_field is None:
        return texts.file_reader(inputs, maker, notices, threads)
    return texts.row_reader(inputs, maker, rows, notices, threads=threads)


def _vector_reader(inputs: Sequence[str], text: bool, width: int, vectors: Vectors, rows: Rows, notices: ZeroVectors) -> Any:
    if text:
        types.fail("--vector does not go with --text: give one of them")
    refuse(documents.SIMHASH_PARAMETERS | documents.FOLDER_PARAMETERS | READING_PARAMETERS, "needs --text")
    made = partial(vector_files.fingerprinter, width=width, seed=vectors.seed)
    return vector_files.reader(inputs, made, vectors.vector_field, rows, notices)


def _of_radius(made: HyperplaneHash, radius: int) -> str:
    """Say what the default radius finds."""
    found = made.recall(0.95, radius)
    return (
        f"radius {radius} finds {found:.0%} of the pairs of vectors at a cosine of 0.95: give --width and --radius, "
        "as HyperplaneHash.recall tells them"
    )


def summary(stats: dict[str, Any]) -> str:
    """Return the contents and the size of a store, in one line."""
    from fpstore.care.stats import TELLING

    fingerprints, taken = stats["fingerprints"], stats["bytes"]["total"]
    parts = [
        counted(fingerprints, "fingerprint"),
        counted(stats["ids"], "id") + (" (row numbers)" if stats["id_kind"] == "row" and stats["ids"] else ""),
        f"radius {stats['radius']}",
        f"{stats['design']['name']} ({counted(len(stats['design']['tables']), 'table')})",
        shown_size(taken),
    ]
    if fingerprints >= TELLING:
        parts.append(f"{taken / fingerprints:.1f} bytes per fingerprint")
    return ", ".join(parts)
