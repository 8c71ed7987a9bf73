"""The group ``fpstore lsh``, and its verbs that make and change an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from fpstore import lsh as indexes
from fpstore.base.arguments import SYNCS, printable
from fpstore.base.resources import shown_size
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, ROWS, TEXTS, Notices
from fpstore.cli.options import Checked, argument, option
from fpstore.cli.output import print_json
from fpstore.cli.questions import IDS, IDS_INPUT, given_ids, note_missing
from fpstore.cli.verb import Given, Verbs, fail, output_is, verb
from fpstore.errors import InputError, counted
from fpstore.hashing import MinHash
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.fields import maker_of_columns
from fpstore.hashing.html import of_pages
from fpstore.lsh import LshPlan, LshStore
from fpstore.lsh.api import UNKNOWN_COUNT
from fpstore.lsh.given import GivenTexts
from fpstore.lsh.plan import sized

CHANGING, ASKING = "lsh", "lsh_asking"  # the modules
INDEX = argument("store", "INDEX")
FEATURES = content.FEATURES[1:]  # without --method: it is MinHash
THRESHOLD = option(
    "--threshold X",
    "Jaccard similarity, 0 to 1, at which pairs of texts are found with the probability --recall.",
    click.FloatRange(0, 1),
    required=True,
)
RECALL = option(
    "--recall X",
    "The probability that a pair at the threshold is found, between 0 and 1. Of nearer pairs more "
    "are found.",
    click.FloatRange(0, 1),
    0.95,
)
CANDIDATES = option(
    "--candidates X",
    "The most unrelated documents whose signatures a look-up may compare, on average.",
    click.FloatRange(0, min_open=True),
    32.0,
)
READING = (
    content.TEXT_FIELD,
    options.SUFFIXES,
    options.ENCODING,
    options.FORMAT,
    options.ID_FIELD,
    options.ID_TYPE,
)
NUMBER = Checked("number", options.parse_count)


@click.command(
    cls=Verbs,
    modules={
        "Make and change": {
            "plan": CHANGING,
            "build": CHANGING,
            "insert": CHANGING,
            "upsert": CHANGING,
            "delete": CHANGING,
            "merge": CHANGING,
        },
        "Ask": dict.fromkeys(("probe", "pairs", "cluster"), ASKING),
        "Take care": dict.fromkeys(("stats", "verify", "repair", "backup"), ASKING),
    },
)
def lsh() -> None:
    """Find texts by LSH indexes, at low thresholds.

    An index has keys of MinHash bands on disk. Two texts that share a key are compared by their
    signatures. It serves low thresholds and many millions of texts: a store of fingerprints of
    MinHash is simpler where the threshold is 0.7 or more, and fpstore dedup needs neither.
    docs/guides/lsh.md says more. Indexes with other hashers are built in Python.

    $ fpstore lsh plan 1M --threshold 0.5
    $ fpstore lsh build fresh.lsh corpus.parquet --text-field text --id-field id --threshold 0.5
    $ fpstore lsh probe pages.lsh draft.txt
    """


@verb(argument("n", "N", type=NUMBER), THRESHOLD, RECALL, CANDIDATES, *FEATURES, options.JSON)
def plan(given: Given) -> None:
    """Show which bands an index needs.

    N is the number of documents, such as 16777216, 2^24, 1e9 or 16M. Prints the fewest bands that
    find the pairs at the threshold, what an index of them takes, and which share of the pairs it
    finds at other similarities.

    $ fpstore lsh plan 1M --threshold 0.5
    $ fpstore lsh plan 1e9 --threshold 0.8 --recall 0.99 --candidates 100 --shingle-size 5 --json
    """
    form = indexes.plan(
        given.n,
        content.features_maker(given, "minhash"),
        given.threshold,
        given.recall,
        candidates=given.candidates,
    )
    if given.as_json:
        print_json({name: getattr(form, name) for name in LshPlan.__dataclass_fields__})
    else:
        click.echo(str(form))


@verb(
    INDEX,
    options.INPUTS,
    THRESHOLD,
    RECALL,
    CANDIDATES,
    option(
        "--documents N",
        "The number to plan bands for. By default the rows of Parquet or the number of files, of "
        "others 10 "
        "million.",
        NUMBER,
    ),
    content.TEXT,
    *READING,
    options.HTML,
    *FEATURES,
    option(
        "--index-ids",
        "Index integer ids, as strings always are: delete and upsert then take no pass over all "
        "ids.",
    ),
    option(
        "--force",
        "Replace INDEX, if it is an index already, once the new one is complete. Nothing else is "
        "ever replaced.",
    ),
    *options.LIMITS,
    *options.RESULT,
    guesses=output_is("the index to write is the first argument"),
)
def build(given: Given) -> None:
    """Build an index of texts.

    INDEX is the folder of the new index. It appears complete or not at all. With --text-field, an
    INPUT is a file of rows with texts: Parquet, JSON lines, CSV or TSV with a header, a folder of
    such files, or - for standard input. With --text, it is a text file or a folder of them, and the
    path is the id. Null and blank texts are left out.

    The index remembers how texts are hashed: insert and probe need no option for it.

    $ fpstore lsh build fresh.lsh corpus.parquet --text-field text --id-field id --threshold 0.5
    $ fpstore lsh build fresh.lsh notes --text --threshold 0.5 --force
    $ fpstore lsh build fresh.lsh notes --text --suffix .txt --threshold 0.8 --recall 0.9 --shingle chars --shingle-size 5 --force
    $ fpstore lsh build fresh.lsh notes --text --encoding utf-8 --threshold 0.5 --weighting set --digits zero --force --json
    $ cat pages.jsonl | fpstore lsh build fresh.lsh - --format jsonl --text-field text --threshold 0.5 --documents 1M --force -q
    $ fpstore lsh build fresh.lsh site --text --html --candidates 100 --threshold 0.3 --documents 1000 --index-ids --force
    """
    kind = content.declared_kind(given)
    if kind == FINGERPRINTS:
        fail(
            "say what the inputs are: --text-field NAME names the column of texts, --text says "
            "that each file is one"
        )
    content.refuse_foreign(given, kind)
    content.check_inputs(kind, given.inputs, "")
    maker: Any = content.features_maker(given, "minhash")
    if kind == ROWS:
        maker, _ = maker_of_columns(maker, given.text_field)
    maker, notices = of_pages(maker, given.html), Notices(kind)
    source = content.open_inputs(given, kind, given.inputs, maker, notices)
    documents = given.documents or source.rows_of_input
    if documents is None:
        given.note(
            f"bands are planned for {UNKNOWN_COUNT:,} documents: --documents says how many there "
            "are or will be"
        )
    wanted = source.fingerprinter, given.threshold, given.recall
    form = indexes.plan(documents or UNKNOWN_COUNT, *wanted, candidates=given.candidates)
    if documents is None:
        form = sized(form, 1)  # keys for those that will be read
    with given.bars(source) as bars:
        made = indexes.build(
            given.store,
            source,
            plan=form,
            index_ids=given.index_ids,
            overwrite=given.force,
            progress=bars,
            memory=given.memory,
            threads=given.threads,
        )
    with made:
        stats = made.stats()
    notices.report(given)
    given.result(stats, given.timed(given.store, summary(stats)))


def summary(stats: dict[str, Any]) -> str:
    """Return the contents and the size of an index, in one line."""
    bands = f"{stats['bands']} bands of {stats['rows']}, radius {stats['radius']}"
    return (
        f"{counted(stats['documents'], 'document')}, {bands}, {shown_size(stats['bytes']['total'])}"
    )


def texts_of(given: Given, index: LshStore, notices: Notices, **more: Any) -> Any:
    """Return the reader of the texts of the inputs, which hashes them as the index does."""
    hasher = index.hasher
    maker: Any = hasher if isinstance(hasher, MinHashSketcher) else MinHash()
    of_texts = hasher.items in ("texts", "rows")
    if not of_texts or index.stats()["probes"] > 1:
        of = "several look-ups in a band" if of_texts else hasher.items
        raise InputError(
            f"{index.path}: an index of {of}, which the command line does not ask: use "
            "fpstore.lsh.open in Python"
        )
    columns = given.text_field
    if maker.items == "rows" and columns is None:
        columns = tuple(maker.weights)
    kind = TEXTS if columns is None else ROWS
    content.refuse_foreign(given, kind)
    notices.of(kind)
    return content.open_inputs(given, kind, given.inputs, maker, notices, columns, **more)


def given_texts(index: LshStore, reader: Any) -> GivenTexts:
    """Return the texts of a reader as an index takes them."""
    return GivenTexts(reader, index.hasher, index.bands)


CHANGE = (
    INDEX,
    options.INPUTS,
    *READING,
    option(
        "--sync",
        "commit: each chunk of rows is durable before the next is read; batch, none: larger "
        "groups.",
        SYNCS,
        "commit",
    ),
    options.THREADS,
    *options.RESULT,
)


@verb(*CHANGE, guesses=content.KNOWN_GUESSES)
def insert(given: Given) -> None:
    """Add texts to an index.

    An INPUT is a text file or a folder of them, or with --text-field a file of rows with texts, as
    for fpstore lsh build. When this returns, the texts are durable, and every process that has the
    index open finds them. A text whose id is stored already is a second document of that id:
    fpstore lsh upsert replaces. Where rows have no ids, their numbers go on from the numbers in the
    index. Rows are inserted in chunks of at most 16,384: after an error, the chunks before stay.

    $ fpstore lsh insert pages.lsh pages.jsonl --text-field text --threads 1
    $ fpstore lsh insert notes.lsh draft.txt --json
    $ cat pages.jsonl | fpstore lsh insert pages.lsh - --format jsonl --text-field text --sync batch --quiet
    """
    _change(given, upsert=False)


@verb(*CHANGE, guesses=content.KNOWN_GUESSES)
def upsert(given: Given) -> None:
    """Add texts in place of those that have their ids.

    The inputs are as for fpstore lsh insert, and have ids. Of equal ids in a chunk of rows, the
    last wins.

    $ fpstore lsh upsert notes.lsh notes --suffix .txt --encoding utf-8
    $ fpstore lsh upsert titled.lsh corpus.parquet --text-field text --id-field id --id-type str --no-progress
    """
    _change(given, upsert=True)


def _change(given: Given, upsert: bool) -> None:
    notices, done, changed = Notices(TEXTS), 0, 0
    with indexes.open(given.store, "r+", sync=given.sync) as index:
        totals = index._documents.snapshot().totals
        more = (
            {"first_row": totals.next_row}
            if given.text_field is not None and given.id_field is None
            else {}
        )
        reader = texts_of(given, index, notices, chunk_rows=content.CHUNK_ROWS, **more)
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


def _pieces(index: LshStore, reader: Any) -> Iterator[tuple[Any, Any]]:
    for asked, ids in given_texts(index, reader):
        yield asked, ids.texts() if hasattr(ids, "texts") else ids


@verb(INDEX, IDS, IDS_INPUT, *options.RESULT)
def delete(given: Given) -> None:
    """Remove documents from an index by their ids.

    When this returns, no process finds them any more. The next fpstore lsh merge gives their space
    back. With --input, each line is an id, unchanged. A note on standard error counts ids that are
    not stored ("missing" with --json); the exit code is 0 then, too.

    $ fpstore lsh delete pages.lsh 2
    $ fpstore lsh delete titled.lsh --input gone.txt --json
    $ find notes -type f | fpstore lsh delete notes.lsh --input - --quiet
    """
    if not given.words and not given.inputs:
        fail("give ids, or --input FILE")
    with indexes.open(given.store, "r+") as index:
        removed, missing = index.delete(given_ids(index._documents, given.words, given.inputs))
        left = len(index)
    line = f"{printable(given.store)}: {counted(removed, 'document')} removed, {left:,} left"
    given.result({"removed": removed, "missing": missing, "documents": left}, line)
    note_missing(given, missing, "id")


@verb(INDEX, *options.LIMITS, *options.RESULT)
def merge(given: Given) -> None:
    """Fold changes into the tables of an index.

    The keys of documents that are gone are dropped. Readers go on all the time.

    $ fpstore lsh merge pages.lsh
    $ fpstore lsh merge pages.lsh --threads 2 --memory 1GiB --json
    """
    with given.bars() as bars, indexes.open(given.store, "r+") as index:
        index.merge(memory=given.memory, threads=given.threads, progress=bars)
        stats = index.stats()
    given.result(stats, given.timed(given.store, summary(stats)))
