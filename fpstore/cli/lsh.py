"""The group ``fpstore lsh``, and its verbs that make and change an index."""

from __future__ import annotations

import click

from fpstore import lsh as indexes
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.output import print_json, summary
from fpstore.cli.verb import Arguments, Verbs, fail, output_guess, verb
from fpstore.lsh import LshPlan
from fpstore.lsh.api import UNKNOWN_COUNT
from fpstore.lsh.plan import resize

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
    "The probability that a pair at the threshold is found, between 0 and 1. Nearer pairs are "
    "found more often.",
    click.FloatRange(0, 1),
    0.95,
)
CANDIDATES = option(
    "--candidates X",
    "The most unrelated documents whose signatures a look-up may compare, on average.",
    click.FloatRange(0, min_open=True),
    32.0,
)
DOCUMENTS = option(
    "--documents N",
    "The number to plan bands for. By default the rows of Parquet or the number of files, of "
    "others 10 million.",
    options.NUMBER_OF_ALL,
)
READING = (
    content.TEXT_FIELD,
    content.ROLES,
    content.SKIP_BAD,
    options.SUFFIXES,
    options.ENCODING,
    options.FORMAT,
    options.ID_FIELD,
    options.ID_TYPE,
)


@click.command(
    cls=Verbs,
    modules={"Make": dict.fromkeys(("plan", "build"), "lsh")},
)
def lsh() -> None:
    """Find texts by LSH indexes, at low thresholds.

    An index has keys of MinHash bands on disk. Two texts that share a key are compared by their
    signatures. It serves low thresholds and many millions of texts: a store of fingerprints of
    MinHash is simpler where the threshold is 0.7 or more, and fpstore dedup needs neither.
    docs/guides/lsh.md says more. Indexes with other hashers are built in Python.

    Other verbs take an index in place of a store: probe, pairs, cluster, insert, delete, merge,
    stats, verify, repair and backup.

    $ fpstore lsh plan 1M --threshold 0.5
    $ fpstore lsh build fresh.lsh corpus.parquet --text-field text --id-field id --threshold 0.5
    """


@verb(
    argument("n", "N", type=options.NUMBER_OF_ALL),
    THRESHOLD,
    RECALL,
    CANDIDATES,
    *FEATURES,
    options.JSON,
)
def plan(args: Arguments) -> None:
    """Show which bands an index needs.

    N is the number of documents, such as 16777216, 2^24, 1e9 or 16M. Prints the fewest bands that
    find the pairs at the threshold, what an index of them takes, and which share of the pairs it
    finds at other similarities.

    $ fpstore lsh plan 1M --threshold 0.5
    $ fpstore lsh plan 1e9 --threshold 0.8 --recall 0.99 --candidates 100 --shingle-size 5 --json
    """
    index_plan = indexes.plan(
        args.n,
        content.features_option(args, "minhash"),
        args.threshold,
        args.recall,
        candidates=args.candidates,
    )
    if args.as_json:
        print_json({name: getattr(index_plan, name) for name in LshPlan.__dataclass_fields__})
    else:
        click.echo(str(index_plan))


@verb(
    INDEX,
    options.INPUTS,
    THRESHOLD,
    RECALL,
    CANDIDATES,
    DOCUMENTS,
    content.TEXT,
    *READING,
    options.HTML,
    *FEATURES,
    options.INDEX_IDS,
    options.replace_option("INDEX", "an index"),
    *options.LIMITS,
    *options.RESULT,
    guesses=output_guess("the index to write is the first argument"),
)
def build(args: Arguments) -> None:
    """Build an index of texts.

    INDEX is the folder of the new index. It appears complete or not at all. With --text-field, an
    INPUT is a file of rows with texts: Parquet, JSON lines, CSV or TSV with a header, a folder of
    such files, or - for standard input. With --text, it is a text file or a folder of them, and the
    path is the id. Null and blank texts are left out.

    The index remembers how texts are hashed: insert and probe need no option for it.

    $ fpstore lsh build fresh.lsh corpus.parquet --text-field text --id-field id --threshold 0.5
    $ fpstore lsh build fresh.lsh notes --text --threshold 0.5 --force
    $ fpstore lsh build fresh.lsh notes --text --suffix .txt --threshold 0.8 --recall 0.9 \
        --shingle chars --shingle-size 5 --force
    $ fpstore lsh build fresh.lsh notes --text --encoding utf-8 --threshold 0.5 --weighting set \
        --digits zero --force --json
    $ cat pages.jsonl | fpstore lsh build fresh.lsh - --format jsonl --text-field text \
        --threshold 0.5 --documents 1M --force -q
    $ fpstore lsh build fresh.lsh site --text --html --candidates 100 --threshold 0.3 \
        --documents 1000 --index-ids --force
    """
    kind = content.declared_kind(args)
    if kind == FINGERPRINTS:
        fail(
            "say what the inputs are: --text-field NAME names the column of texts, --text says "
            "that each file is one"
        )
    content.refuse_options_of_other_kinds(args, kind)
    content.check_inputs(kind, args.inputs, "")
    fingerprinter = content.wrap_for_inputs(args, kind, content.features_option(args, "minhash"))
    notices = Notices(kind)
    source = content.open_inputs(args, kind, args.inputs, fingerprinter, notices)
    documents = args.documents or source.input_rows
    if documents is None:
        args.note(
            f"bands are planned for {UNKNOWN_COUNT:,} documents: --documents says how many there "
            "are or will be"
        )
    index_plan = indexes.plan(
        documents or UNKNOWN_COUNT,
        source.fingerprinter,
        args.threshold,
        args.recall,
        candidates=args.candidates,
    )
    if documents is None:
        index_plan = resize(index_plan, 1)  # keys for those that will be read
    with args.bars(source) as bars:
        index = indexes.build(
            args.store,
            source,
            plan=index_plan,
            index_ids=args.index_ids,
            overwrite=args.overwrite,
            progress=bars,
            memory=args.memory,
            threads=args.threads,
        )
    with index:
        stats = index.stats()
    notices.report(args)
    args.result(stats, args.with_time(args.store, summary(stats)))
